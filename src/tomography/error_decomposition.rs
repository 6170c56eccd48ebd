// Tangled from book/src/aliasing.md: edit there, or here and run cargo tangle stitch.
//! The error of a reconstructor by its causes: tomography, noise and aliasing.

// Imports of the error decomposition
use crate::error::{Invalid, accept};
use crate::linear::times_transpose;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::noise::SlopeNoise;
use crate::model::system::System;
use crate::tomography::covariance_matrix::CovarianceMatrices;
use crate::tomography::reconstructor::error_covariance;
use ndarray::{Array2, s};

// Error covariance due to noise
// Example of an error by noise
/// R C_n Rᵗ, (m, m), rad²: the noise part of Eq. [three causes](https://lenslet.github.io/lenslet/aliasing.html#eq-three-causes) for a reconstructor R, (m, n), of slopes with this noise.
///
/// # Panics
/// If the noise has another number of slopes.
///
/// ```
/// use lenslet::{model::*, tomography::noise_error};
/// let array = LensletArray::new(2, 0.5)?;
/// let star = GuideStar::at_rest(Source::star(0.0, 0.0)?, array, 1e-14)?;
/// let noise = SlopeNoise::new(&[star], &SlopeOrder::new(&[array.valid(None, Validity::default())]));
/// // A reconstructor that takes the mean of four slopes along each axis.
/// let mean = ndarray::Array2::from_shape_fn((2, 8), |(axis, k)| if k / 4 == axis { 0.25 } else { 0.0 });
/// let error = noise_error(&mean, &noise);
/// assert!((error[[1, 1]] / 0.25e-14 - 1.0).abs() < 1e-12 && error[[0, 1]] == 0.0);
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn noise_error(reconstructor: &Array2<f64>, noise: &SlopeNoise) -> Array2<f64> {
    assert_eq!(reconstructor.ncols(), noise.variances.len(), "slopes");
    let mut by_noise = Array2::zeros(reconstructor.dim());
    for (row, mut errors) in reconstructor.outer_iter().zip(by_noise.outer_iter_mut()) {
        for (k, errors) in errors.iter_mut().enumerate() {
            *errors = noise.variances[k] * row[k] + noise.covariances[k] * row[noise.partners[k]];
        }
        for (slopes, variance) in &noise.common {
            let sum = row.slice(s![slopes.clone()]).sum();
            errors.slice_mut(s![slopes.clone()]).mapv_inplace(|value| value + variance * sum);
        }
    }
    times_transpose(&by_noise, reconstructor)
}

// Parts of an error
/// The covariances of the error of a target's slopes by their causes, Eq. [three causes](https://lenslet.github.io/lenslet/aliasing.html#eq-three-causes); (m, m) each, rad².
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct ErrorParts {
    /// Error of the estimate of the turbulence inside the band of the mirror, without noise and aliasing.
    pub tomography: Array2<f64>,
    /// Noise of the measurements.
    pub noise: Array2<f64>,
    /// Aliasing of finer turbulence in the measurements.
    pub aliasing: Array2<f64>,
}

/// Split of a reconstructor's error by its causes: the low covariances, the aliasing covariance and the noise.
// Error split of a sensor on axis
///
/// The worked case of the chapter:
///
/// ```
/// use lenslet::{correction::low_covariances, device::Engine, model::*, ndarray::{Array2, Axis}};
/// use lenslet::{plan::Plan, tomography::*, watch::unwatched};
/// let (air, array) = (Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 25.0)])?, LensletArray::new(2, 0.5)?);
/// let axis = Source::star(0.0, 0.0)?;
/// let star = GuideStar::at_rest(axis, array, 1e-14)?;
/// let system = System::builder(air, array).guide_stars([star]).targets([axis]).build()?;
/// let plan = ReconstructorPlan::new(&system, ReconstructorOptions::default().keep(true))?;
/// let found = plan.run(&Engine::default(), &unwatched)?;
/// let (best, kept) = (found.reconstructor.unwrap(), found.covariances.unwrap());
/// let low = low_covariances(&system, 0.5, &unwatched)?;
/// let near = |found: f64, expected: f64| (1e14 * found - expected).abs() < 0.006;
/// assert!(near(kept.measurements[[0, 0]], 69.64) && near(low.measurements[[0, 0]], 64.50));
/// let split = ErrorSplit::new(&system, kept.measurements, low)?;
/// for (reconstructor, expected) in [
///     (Array2::eye(8), [0.0, 1.00, 4.14]), // a sum of 5.14
///     (best.index_axis(Axis(0), 0).to_owned(), [0.02, 0.90, 3.80]), // a sum of 4.72
/// ] {
///     let parts = split.of(&reconstructor, 0)?;
///     for (part, expected) in [parts.tomography, parts.noise, parts.aliasing].iter().zip(expected) {
///         assert!(near(part.diag().mean().unwrap(), expected));
///     }
/// }
/// # Ok::<(), lenslet::Error>(())
/// ```
// Error budgets with aliasing
///
/// The budgets of `small-moao.toml` in nm, from C_ee and by their causes:
///
/// ```
/// use lenslet::{correction::*, device::Engine, model::*, plan::Plan, psf::*};
/// use lenslet::{tomography::ReconstructorOptions, watch::unwatched};
/// let system = System::from_file("book/systems/small-moao.toml")?;
/// let budgets = |terms: &[ErrorTerm]| -> Result<Vec<Vec<f64>>, lenslet::Error> {
///     let image = CameraOptions::default().pixels(16).terms(terms.to_vec());
///     let mirror = MirrorDesign { filter: 0.05, ..MirrorDesign::new(Spacing::Actuators(9)) };
///     let correction = CorrectionOptions::new(CorrectionMode::Moao, vec![mirror]);
///     let options = PsfOptions::new(ReconstructorOptions::default(), correction, image);
///     let targets = PsfPlan::new(&system, options)?.run(&Engine::default(), &unwatched)?.targets;
///     Ok(targets.iter().map(|t| t.budget.terms().iter().map(|term| 1e9 * term.rms()).collect()).collect())
/// };
/// let close = |found: &[f64], expected: &[f64]| found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 0.7);
/// let whole = budgets(&[ErrorTerm::Tomography])?;
/// assert!(close(&whole[0], &[118.0]) && close(&whole[1], &[174.0]));
/// let parts = budgets(&[ErrorTerm::Tomography, ErrorTerm::Aliasing])?;
/// assert!(close(&parts[0], &[90.0, 54.0, 50.0])); // the root of the sum is 116
/// assert!(close(&parts[1], &[150.0, 65.0, 53.0])); // and 172
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ErrorSplit {
    low: CovarianceMatrices,
    /// C_mm of the turbulence outside of the square, (n, n), rad².
    folded: Array2<f64>,
    noise: SlopeNoise,
}

// Split the error of a reconstructor
impl ErrorSplit {
    /// The split for a system whose `measurements` have the covariance C_mm with noise, (n, n), rad², and those of low turbulence alone, without noise, are `low`.
    ///
    /// # Errors
    /// `Invalid` if one of them does not have the slopes of the system.
    pub fn new(
        system: &System,
        measurements: Array2<f64>,
        low: CovarianceMatrices,
    ) -> Result<Self, Invalid> {
        let order = SlopeOrder::new(&system.valid_lenslets());
        let (shape, name) = ((order.len(), order.len()), "covariance of measurements");
        let expected = format!("{shape:?}, the slopes of all guide stars");
        for given in [&measurements, &low.measurements] {
            accept(given.dim() == shape, name, given.dim(), &expected)?;
        }
        let noise = SlopeNoise::new(system.guide_stars(), &order);
        let mut folded = measurements;
        folded.zip_mut_with(&low.measurements, |whole, low| *whole = low - *whole);
        noise.add_to(&mut folded);
        folded.mapv_inplace(|minus| -minus);
        Ok(Self { low, folded, noise })
    }

    // Split the error of one target
    /// The parts of the error of target `t` for a reconstructor R of its slopes, (m, n), whose response to removed modes is zero.
    ///
    /// # Errors
    /// `Invalid` if there is no such target, or the reconstructor has other slopes.
    pub fn of(&self, reconstructor: &Array2<f64>, t: usize) -> Result<ErrorParts, Invalid> {
        let CovarianceMatrices { measurements, truth_measurements, truth } = &self.low;
        let shape = (truth.nrows(), measurements.nrows());
        let expected = format!("{shape:?}, slopes of the truth sensor and of all guide stars");
        accept(reconstructor.dim() == shape, "reconstructor", reconstructor.dim(), &expected)?;
        let (m, rows) = (shape.0, truth_measurements.nrows());
        accept((t + 1) * m <= rows, "target", t, "the number of a target")?;
        let with_truth = truth_measurements.slice(s![t * m..(t + 1) * m, ..]).to_owned();
        Ok(ErrorParts {
            tomography: error_covariance(reconstructor, truth, &with_truth, measurements),
            noise: noise_error(reconstructor, &self.noise),
            aliasing: times_transpose(&times_transpose(reconstructor, &self.folded), reconstructor),
        })
    }
}

// Tests of the split of an error
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::noise::Noise;
    use crate::model::removed_modes::TipTilt;
    use crate::tomography::covariance_matrix::tests::system;

    #[test]
    fn noise_of_any_kind_is_that_of_its_matrix() {
        let bare = system(1e-14);
        let mut stars = bare.guide_stars().to_vec();
        let order = SlopeOrder::new(&bare.valid_lenslets());
        let block = |k: usize| [[4e-14 + 1e-15 * k as f64, -1e-14], [-1e-14, 2e-14]];
        let blocks: Vec<_> = (0..order.lenslets(2).len()).map(block).collect();
        stars[2].noise = Noise::blocks(&blocks).unwrap();
        stars[0].tip_tilt = TipTilt::unknown(3e-13).unwrap();
        let noise = SlopeNoise::new(&stars, &order);
        let mut matrix = Array2::zeros((order.len(), order.len()));
        noise.add_to(&mut matrix);
        let r = Array2::from_shape_fn((5, order.len()), |(j, k)| ((7 * j + 3 * k) as f64).sin());
        let (found, expected) = (noise_error(&r, &noise), r.dot(&matrix).dot(&r.t()));
        let largest = expected.fold(0.0, |most: f64, value| most.max(value.abs()));
        assert!((&found - &expected).iter().all(|gap| gap.abs() < 1e-12 * largest));
        // Without noise there is none.
        let noiseless = SlopeNoise::new(system(0.0).guide_stars(), &order);
        assert!(noise_error(&r, &noiseless).iter().all(|value| *value == 0.0));
    }
}
