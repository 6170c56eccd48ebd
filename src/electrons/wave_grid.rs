// Tangled from book/src/wave-grid.md: edit there, or here and run cargo tangle stitch.
//! The rectangle on which waves are sampled.

// Imports of a wave's grid
use crate::error::{Invalid, accept, positive};

// A grid for waves
/// A rectangle on which waves are sampled: the cell of a specimen across the beam, which repeats in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct WaveGrid {
    points: [usize; 2],
    lengths: [f64; 2],
}

#[cfg(feature = "serde")]
crate::serial::deserialize_by!(WaveGrid::new(points: [usize; 2], lengths: [f64; 2])?);

// Sizes and frequencies of a wave's grid
impl WaveGrid {
    /// A grid of `points` samples on a rectangle of sides `lengths` \[Å\], x before y.
    ///
    /// # Errors
    /// `Invalid` where there are fewer than 4 points along a side, more than 32 768, a number that 4 does not divide, or a side that is not a
    /// length between 1e-3 and 1e7 Å.
    ///
    /// ```
    /// use lenslet::electrons::WaveGrid;
    /// let grid = WaveGrid::new([256, 128], [21.72, 10.86])?;
    /// assert_eq!(grid.frequency(0, 255), -1.0 / 21.72);
    /// assert_eq!(grid.kept(1).count(), 64); // of 128 along y
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn new(points: [usize; 2], lengths: [f64; 2]) -> Result<Self, Invalid> {
        for (points, length) in points.into_iter().zip(lengths) {
            let good = (4..=32_768).contains(&points) && points.is_multiple_of(4);
            accept(good, "grid", points, "a multiple of 4 from 4 to 32768")?;
            let good = (1e-3..=1e7).contains(&length);
            accept(good, "cell", length, "a length between 1e-3 and 1e7 Å")?;
        }
        Ok(Self { points, lengths })
    }

    // Points and pixels of a grid
    /// Samples along x and y.
    pub fn points(&self) -> [usize; 2] {
        self.points
    }

    /// Sides of the rectangle \[Å\], x and y.
    pub fn lengths(&self) -> [f64; 2] {
        self.lengths
    }

    /// Sides of a pixel \[Å\], x and y.
    pub fn pixel(&self) -> [f64; 2] {
        [0, 1].map(|axis| self.lengths[axis] / self.points[axis] as f64)
    }

    // Frequency of a sample's index
    /// The frequency \[1/Å\] of index `k` of a transform along `axis` (0 for x, 1 for y), Eq. [wave frequency](https://lenslet.github.io/lenslet/wave-grid.html#eq-wave-frequency).
    ///
    /// ```
    /// use lenslet::electrons::{Beam, WaveGrid};
    /// let grid = WaveGrid::new([256, 256], [21.72, 21.72])?;
    /// assert!((grid.pixel()[0] - 0.0848).abs() < 1e-4); // Å
    /// let edge = -grid.frequency(0, 192); // of the kept square
    /// assert!((edge - 2.947).abs() < 1e-3);
    /// assert!((1e3 * Beam::new(100.0)?.wavelength() * edge - 109.1).abs() < 0.1); // mrad
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn frequency(&self, axis: usize, k: usize) -> f64 {
        let turned =
            if k >= self.points[axis].div_ceil(2) { self.points[axis] as f64 } else { 0.0 };
        (k as f64 - turned) / self.lengths[axis]
    }

    // Frequencies that a wave keeps
    /// The indices of a transform along `axis` (0 for x, 1 for y) that waves keep, from 0 up and then those of negative frequencies,
    /// from −N/4 to N/4 − 1 in all.
    pub fn kept(&self, axis: usize) -> impl ExactSizeIterator<Item = usize> + Clone + use<> {
        let (points, half) = (self.points[axis], self.points[axis] / 2);
        (0..half).map(move |k| if k < half / 2 { k } else { points - half + k })
    }

    /// Whether index `k` of a transform along `axis` is among those that waves keep.
    pub fn keeps(&self, axis: usize, k: usize) -> bool {
        let quarter = self.points[axis] / 4;
        k < quarter || k >= self.points[axis] - quarter
    }
}

// A grid with a requested pixel
impl WaveGrid {
    /// The grid on a rectangle of sides `lengths` \[Å\] whose pixels are nearest to `pixel` \[Å\], x before y, where 4 `factor` divides the number of points:
    /// N = 4 f round(L/(4 f p)), and at least 4 f.
    ///
    /// # Errors
    /// `Invalid` for a pixel or a factor that is not positive, and as [`new`](Self::new).
    pub fn with_pixel(
        pixel: [f64; 2],
        lengths: [f64; 2],
        factor: [usize; 2],
    ) -> Result<Self, Invalid> {
        let mut points = [0; 2];
        for axis in 0..2 {
            let unit = 4 * accept(factor[axis] > 0, "interpolation", factor[axis], "at least 1")?;
            let count = lengths[axis] / (unit as f64 * positive("pixel", pixel[axis])?);
            points[axis] = unit * (count.round().clamp(1.0, 1e6) as usize);
        }
        Self::new(points, lengths)
    }
}

// Tests of a wave's grid
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_are_signed_and_half_of_them_kept() {
        let grid = WaveGrid::new([12, 8], [6.0, 2.0]).unwrap();
        let along_x: Vec<f64> = grid.kept(0).map(|k| 6.0 * grid.frequency(0, k)).collect();
        assert_eq!(along_x, [0.0, 1.0, 2.0, -3.0, -2.0, -1.0]);
        for axis in [0, 1] {
            let kept: Vec<usize> = grid.kept(axis).collect();
            let by_question: Vec<usize> =
                (0..grid.points()[axis]).filter(|&k| grid.keeps(axis, k)).collect();
            assert_eq!(kept, by_question);
        }
        assert_eq!(grid.pixel(), [0.5, 0.25]);
    }

    #[test]
    fn pixels_are_rounded_to_what_the_interpolation_wants() {
        let grid = WaveGrid::with_pixel([0.1, 0.1], [21.72, 10.9], [4, 2]).unwrap();
        assert_eq!(grid.points(), [224, 112]); // 16 · 13.575, 8 · 13.625
        let coarse = WaveGrid::with_pixel([10.0, 0.1], [5.0, 10.0], [4, 1]).unwrap();
        assert_eq!(coarse.points(), [16, 100]);
    }

    #[test]
    fn grids_that_make_no_sense_are_refused() {
        let refused = |points, lengths| WaveGrid::new(points, lengths).unwrap_err().quantity;
        assert_eq!(refused([6, 8], [1.0, 1.0]), "grid");
        assert_eq!(refused([8, 0], [1.0, 1.0]), "grid");
        assert_eq!(refused([8, 8], [1.0, f64::NAN]), "cell");
        assert_eq!(refused([8, 8], [0.0, 1.0]), "cell");
        assert!(WaveGrid::with_pixel([0.0, 0.1], [1.0, 1.0], [1, 1]).is_err());
        assert!(WaveGrid::with_pixel([0.1, 0.1], [1.0, 1.0], [1, 0]).is_err());
        assert!(WaveGrid::with_pixel([0.1, f64::NAN], [1.0, 1.0], [1, 1]).is_err());
    }
}
