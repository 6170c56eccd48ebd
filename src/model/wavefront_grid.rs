// Tangled from book/src/system-file.md: edit there, or here and run cargo tangle stitch.
//! The grid of points at which a wavefront is wanted.

use crate::error::{Invalid, accept};
use crate::model::source::small_angle;

// Grid of wavefront points
/// A square grid of M × M wavefront points of step pitch / oversampling, centred on the axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhaseGrid {
    /// The number M of points across.
    pub points: usize,
    /// Points per lenslet.
    pub oversampling: usize,
    /// Radius \[rad\] of the disc of directions around a target over which the wavefront is averaged.
    pub disc_radius: f64,
}

impl PhaseGrid {
    // Points and limits of a wavefront grid
    /// A grid of `points` across (1 to 100 000), `oversampling` (1 to 1000) of them per lenslet.
    pub fn new(points: usize, oversampling: usize, disc_radius: f64) -> Result<Self, Invalid> {
        let good = (1..=100_000).contains(&points);
        accept(good, "points", points, "a whole number from 1 to 100000")?;
        let good = (1..=1000).contains(&oversampling);
        accept(good, "oversampling", oversampling, "a whole number from 1 to 1000")?;
        small_angle("disc_radius", disc_radius)?;
        Ok(Self { points, oversampling, disc_radius })
    }

    /// The coordinate \[m\] of point `m` along either axis for lenslets of `pitch` \[m\]; Eq. [both grids](https://lenslet.github.io/lenslet/wavefront-slope.html#eq-both-grids).
    pub fn coordinate(&self, m: usize, pitch: f64) -> f64 {
        (m as f64 - (self.points as f64 - 1.0) / 2.0) * pitch / self.oversampling as f64
    }
}
