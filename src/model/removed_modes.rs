// Tangled from book/src/unmeasured.md: edit there, or here and run cargo tangle stitch.
//! Tip, tilt and focus that a guide star does not measure.

use crate::error::Invalid;
use crate::plausible::TILT_VARIANCE;
#[cfg(feature = "factorise")]
use ndarray::{Array1, Array2, ArrayView1, Zip, s};

// Treatment of tip and tilt
/// Treatment of tip and tilt in the slopes of a guide star; a laser guide star measures neither.
///
/// ```
/// use lenslet::model::TipTilt;
/// assert_eq!(TipTilt::unknown(1e-10)?, TipTilt::Unknown { variance: 1e-10 });
/// assert_eq!(TipTilt::unknown(0.0).unwrap_err().quantity, "tip_tilt_variance");
/// # Ok::<(), lenslet::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum TipTilt {
    /// They are measured.
    #[default]
    Measured,
    /// They are projected out of the slopes.
    Removed,
    /// All x slopes share one error, and all y slopes another.
    Unknown {
        /// Variance of each of the two errors, rad².
        variance: f64,
    },
}

// Treatment of measured focus
/// Treatment of focus in the slopes of a guide star.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Focus {
    /// It is measured.
    #[default]
    Measured,
    /// It is projected out of the slopes, orthogonalised to the tilts.
    Removed,
}

// Names and checks of treatments
impl TipTilt {
    /// Its name in a system file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Removed => "removed",
            Self::Unknown { .. } => "unknown",
        }
    }

    /// Tip and tilt with errors of a `variance` \[rad²\].
    ///
    /// # Errors
    /// `Invalid` as for [`check`](Self::check).
    pub fn unknown(variance: f64) -> Result<Self, Invalid> {
        let unknown = Self::Unknown { variance };
        unknown.check().map(|()| unknown)
    }

    /// Rejects a variance that is not above 0, or is above 1e-5 rad².
    pub fn check(&self) -> Result<(), Invalid> {
        let Self::Unknown { variance } = *self else { return Ok(()) };
        let good = variance > 0.0 && variance <= 1e-5;
        TILT_VARIANCE.accept(good, "tip_tilt_variance", variance).map(drop)
    }
}

impl Focus {
    /// Its name in a system file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Removed => "removed",
        }
    }
}

/// Expected variance of an unknown tilt, for messages.
#[cfg(feature = "files")]
pub(crate) const VARIANCE: &str = TILT_VARIANCE.expected;

// Modes that are removed
/// Modes that are projected out of the slopes of guide stars: orthonormal, each over the slopes of one star; the columns of Z in Eq.
/// [removed modes](https://lenslet.github.io/lenslet/unmeasured.html#eq-removed-modes).
///
/// ```
/// use lenslet::model::{Focus, RemovedModes, TipTilt};
/// let mut modes = RemovedModes::default();
/// modes.add_star(1, &[[0.0, 0.0], [2.0, 1.0]], TipTilt::Removed, Focus::Measured);
/// let mut slopes = [9.0, 1.0, 3.0, 5.0, 5.0]; // of another star, then x, x, y, y
/// modes.remove(&mut slopes);
/// assert!(slopes.iter().zip([9.0, -1.0, 1.0, 0.0, 0.0]).all(|(left, wanted)| (left - wanted).abs() < 1e-14));
///
/// // Tip, tilt, focus and astigmatism on four lenslets: astigmatism remains.
/// let centres = [[-0.5, -0.5], [0.5, -0.5], [-0.5, 0.5], [0.5, 0.5]];
/// let mut modes = RemovedModes::default();
/// modes.add_star(0, &centres, TipTilt::Removed, Focus::Removed);
/// let mut slopes = [0.8, 3.2, 0.8, 3.2, 0.2, 0.2, 1.8, 1.8];
/// modes.remove(&mut slopes);
/// let wanted = [-0.2, 0.2, -0.2, 0.2, 0.2, 0.2, -0.2, -0.2];
/// assert!(slopes.iter().zip(wanted).all(|(left, wanted)| (left - wanted).abs() < 1e-14));
/// let lower = 90e3_f64.powi(2) * 2e-7; // metres of sodium for that focus
/// assert!((lower - 1620.0).abs() < 1e-9);
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RemovedModes(Vec<Mode>);

/// A mode over the slopes of one star.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mode {
    /// Index of the star's first slope among those of all stars.
    pub(crate) first: usize,
    /// The mode, of length 1, over the slopes of the star.
    pub(crate) shape: Vec<f64>,
}

// Modes of a star
impl RemovedModes {
    /// Adds the modes of a star whose slopes begin at index `first`, and whose valid lenslets have these `centres` along its slope
    /// axes \[m\], Eq. [unmeasured modes](https://lenslet.github.io/lenslet/unmeasured.html#eq-unmeasured-modes).
    pub fn add_star(
        &mut self,
        first: usize,
        centres: &[[f64; 2]],
        tip_tilt: TipTilt,
        focus: Focus,
    ) {
        let n = centres.len();
        let along = |axis: usize| centres.iter().map(move |centre| centre[axis]);
        // Add tip and tilt to the modes
        if tip_tilt == TipTilt::Removed {
            let tilt = |axis: usize| (0..2 * n).map(move |k| f64::from(u8::from(k / n == axis)));
            self.push(first, tilt(0).collect());
            self.push(first, tilt(1).collect());
        }
        // Add focus to the modes
        if focus == Focus::Removed {
            let means = [0, 1].map(|axis| along(axis).sum::<f64>() / n as f64);
            let from_mean = |axis: usize| along(axis).map(move |place| place - means[axis]);
            self.push(first, from_mean(0).chain(from_mean(1)).collect());
        }
    }

    // Add a mode of length one
    /// Adds a mode, normalised to length 1, unless it vanishes.
    fn push(&mut self, first: usize, shape: Vec<f64>) {
        let length = shape.iter().map(|part| part * part).sum::<f64>().sqrt();
        if length > 0.0 {
            let shape = shape.into_iter().map(|part| part / length).collect();
            self.0.push(Mode { first, shape });
        }
    }

    // Project modes out of slopes
    /// Projects the modes out of a vector of all slopes, Eq. [removed modes](https://lenslet.github.io/lenslet/unmeasured.html#eq-removed-modes).
    ///
    /// # Panics
    /// If the vector ends before the slopes of a star.
    pub fn remove(&self, slopes: &mut [f64]) {
        for mode in &self.0 {
            let own = &mut slopes[mode.first..][..mode.shape.len()];
            let share: f64 = own.iter().zip(&mode.shape).map(|(slope, part)| slope * part).sum();
            own.iter_mut().zip(&mode.shape).for_each(|(slope, part)| *slope -= share * part);
        }
    }

    // Number and list of modes
    /// Number of modes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is removed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The modes one by one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Mode> {
        self.0.iter()
    }

    // Replace modes by their noise
    /// Replaces the modes in a covariance matrix of all slopes by independent noise of the same variance, Eqs. [removed covariances](https://lenslet.github.io/lenslet/covariance-matrices.html#eq-removed-covariances),
    /// [rank two](https://lenslet.github.io/lenslet/covariance-matrices.html#eq-rank-two).
    ///
    /// # Panics
    /// If a mode has more slopes than the matrix.
    #[cfg(feature = "factorise")]
    pub(crate) fn replace_in(&self, matrix: &mut Array2<f64>) {
        for Mode { first, shape } in &self.0 {
            let (n, own) = (matrix.nrows(), *first..first + shape.len());
            let mut z = Array1::zeros(n);
            z.slice_mut(s![own.clone()]).assign(&ArrayView1::from(&shape[..]));
            let g = matrix.dot(&z);
            let b = &g - &(&z * z.dot(&g));
            for (i, mut row) in matrix.outer_iter_mut().enumerate() {
                let touched = if own.contains(&i) { 0..n } else { own.clone() };
                let (z_i, b_i, touched) = (z[i], b[i], s![touched]);
                Zip::from(row.slice_mut(touched))
                    .and(z.slice(touched))
                    .and(b.slice(touched))
                    .for_each(|c, z_j, b_j| *c -= z_i * b_j + b_i * z_j);
            }
        }
    }
}

// Check the modes of a star
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_orthonormal_and_take_tilt_and_focus_away() {
        let centres = [[3.0, 0.5], [4.0, 0.5], [3.0, 1.5], [3.0, 2.5], [6.5, 2.5]];
        let mut modes = RemovedModes::default();
        modes.add_star(0, &[[1.0, 2.0]], TipTilt::Measured, Focus::Removed);
        assert!(modes.is_empty()); // a single lenslet has no focus
        modes.add_star(2, &centres, TipTilt::Removed, Focus::Removed);
        let shapes: Vec<&Mode> = modes.iter().collect();
        assert_eq!(shapes.len(), 3);
        for (k, a) in shapes.iter().enumerate() {
            for (l, b) in shapes.iter().enumerate() {
                let product: f64 = a.shape.iter().zip(&b.shape).map(|(a, b)| a * b).sum();
                assert!((product - f64::from(u8::from(k == l))).abs() < 1e-15, "{k} {l}");
            }
        }
        // Compare residuals of known modes
        // Slopes of a tilt and a focus leave nothing, those of astigmatism something.
        let slopes = |astigmatism: f64| -> Vec<f64> {
            let along = |axis: usize, sign: f64| {
                centres.iter().map(move |centre| 0.3 + centre[axis] * (2.0 + sign * astigmatism))
            };
            [7.0, 8.0].into_iter().chain(along(0, 1.0)).chain(along(1, -1.0)).collect()
        };
        let left = |mut slopes: Vec<f64>| {
            modes.remove(&mut slopes);
            assert_eq!(slopes[..2], [7.0, 8.0]);
            slopes[2..].iter().map(|slope| slope * slope).sum::<f64>().sqrt()
        };
        assert!(left(slopes(0.0)) < 1e-14 && left(slopes(1.0)) > 1.0);
        let mut focus = RemovedModes::default();
        focus.add_star(2, &centres, TipTilt::Unknown { variance: 1e-9 }, Focus::Removed);
        assert_eq!(focus.iter().collect::<Vec<_>>(), shapes[2..]);
    }

    // Modes of many lenslets take no time
    #[test]
    fn modes_of_many_lenslets_take_no_time() {
        let centres: Vec<[f64; 2]> =
            (0..1_000_000).map(|k| [f64::from(k % 1000), f64::from(k / 1000)]).collect();
        let (mut modes, start) = (RemovedModes::default(), std::time::Instant::now());
        modes.add_star(0, &centres, TipTilt::Removed, Focus::Removed);
        assert_eq!(modes.len(), 3);
        assert!(start.elapsed().as_secs_f64() < 2.0, "{:?}", start.elapsed());
    }

    #[test]
    fn variances_that_cannot_be_are_refused() {
        for variance in [0.0, -1e-12, f64::NAN, f64::INFINITY, 1.0] {
            assert!(TipTilt::unknown(variance).is_err(), "{variance}");
        }
        assert!(TipTilt::unknown(1e-5).is_ok() && TipTilt::Removed.check().is_ok());
    }
}
