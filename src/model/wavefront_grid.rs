// Tangled from book/src/whole-system.md: edit there, or here and run cargo tangle stitch.
//! Grid of points at which a wavefront is estimated.

use crate::error::{Invalid, accept};
use crate::model::atmosphere::Atmosphere;
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

// Radius of the disc at a layer
/// Below this part of a wavefront's step, or of the outer scale, a disc is a point; Eq. [no disc](https://lenslet.github.io/lenslet/disc-average.html#eq-no-disc).
const POINT: f64 = 1e-11;

/// The widest disc for which averages keep their accuracy, in means of outer scale and lenslet; see the text.
const WIDEST: f64 = 100.0;

impl PhaseGrid {
    /// The radius R in metres of the disc at a layer of an altitude and outer scale (m), for lenslets of `pitch` (m); 0 where it
    /// is a point.
    pub(crate) fn disc_at(&self, altitude: f64, outer_scale: f64, pitch: f64) -> f64 {
        let (radius, step) = (altitude * self.disc_radius, pitch / self.oversampling as f64);
        if radius < POINT * step.min(outer_scale) { 0.0 } else { radius }
    }

    // Refuse a disc far beyond the outer scale
    /// Refuses a disc that is too wide for the promised accuracy, for lenslets of `pitch` (m).
    pub(crate) fn check_discs(&self, air: &Atmosphere, pitch: f64) -> Result<(), Invalid> {
        for (l, layer) in air.layers().iter().enumerate() {
            let radius = self.disc_at(layer.altitude, layer.outer_scale, pitch);
            let most = WIDEST * (layer.outer_scale * pitch.min(layer.outer_scale)).sqrt();
            if radius > most {
                // Name the layer and its disc
                let expected = format!(
                    "at most {:.1e} rad: on layers[{l}], at {} m, it is a disc of {radius:.3e} m, and the average over more than {most:.3e} m is \
                     not as exact as promised for an outer scale of {} m and lenslets of {pitch} m",
                    most / layer.altitude,
                    layer.altitude,
                    layer.outer_scale
                );
                return Err(Invalid::new(
                    "phase.disc_radius",
                    format!("{} rad", self.disc_radius),
                    expected,
                ));
            }
        }
        Ok(())
    }
}
