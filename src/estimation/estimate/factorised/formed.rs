// Tangled from book/src/formed-reconstructor.md: edit there, or here and run cargo tangle stitch.
//! Estimates by a reconstructor that is formed once, by a factor of the covariance of measurements.

// Imports of the formed reconstructor
use super::{
    EstimateOptions, Estimates, Factorised, Frames, Inversion, Matrices, Model, TOGETHER,
    check_frames, check_slopes,
};
use crate::device::engine::Engine;
use crate::error::Error;
use crate::estimation::matrix_estimator::{
    FrameProduct, ReconstructorMatrix, multiply_frames, products,
};
use crate::model::system::System;
use crate::watch::{Watch, check};
use ndarray::{Array2, ArrayView2, Axis, s};

// Estimator by a formed reconstructor
/// Name of the stage in which a reconstructor is formed.
pub(crate) const RECONSTRUCTOR: &str = "reconstructor";

/// An estimator that multiplies frames by a reconstructor, which a factor has given.
pub(crate) struct FormedReconstructor {
    factorised: Factorised,
    workers: Vec<Box<dyn FrameProduct>>,
    /// Largest relative residual of a row, and why it is beyond the tolerance, if it is.
    residual: f64,
    shortfall: Option<String>,
}

impl FormedReconstructor {
    // Form a reconstructor by a factor
    /// Factorises the covariance of the measurements of a model of `system`, and forms the reconstructor.
    ///
    /// # Errors
    /// As [`Factorised::new`].
    pub(crate) fn new(
        (model, system): (Model, &System),
        options: EstimateOptions,
        method: Inversion,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Self, Error> {
        let known = match &model.covariances {
            Matrices::Dense([_, wavefront]) => Some(wavefront.clone()),
            _ => None,
        };
        let factorised = Factorised::new((model, system), options, method, engine, watch)?;
        watch.stage(RECONSTRUCTOR, "rows");
        let mut rows = known.map_or_else(|| factorised.wavefront_rows(watch), Ok)?;
        let (residual, shortfall) = Self::solve(&factorised, &mut rows, watch)?;
        let matrix = ReconstructorMatrix::from(rows.insert_axis(Axis(0)));
        let workers = products(&matrix, engine)?;
        Ok(Self { factorised, workers, residual, shortfall })
    }

    // Solve for the rows
    /// Replaces the rows of Ξ by those of R; returns the largest relative residual, and why it is beyond the tolerance, if it is.
    fn solve(
        factorised: &Factorised,
        rows: &mut Array2<f64>,
        watch: &dyn Watch,
    ) -> Result<(f64, Option<String>), Error> {
        let (count, mut worst) = (rows.nrows(), (0.0, 0));
        for first in (0..count).step_by(BLOCK) {
            check(watch)?;
            let last = count.min(first + BLOCK);
            let mut block = rows.slice(s![first..last, ..]).to_owned();
            let units = factorised.scale(&mut block);
            let (mut solution, histories) = factorised.coefficients(&block)?;
            solution.rows_mut().into_iter().zip(units).for_each(|(mut row, unit)| row *= unit);
            rows.slice_mut(s![first..last, ..]).assign(&solution);
            let found =
                histories.iter().map(|history| (history[history.len() - 1], history.len() - 1));
            worst = found.fold(
                worst,
                |worst: (f64, usize), found| if found.0 > worst.0 { found } else { worst },
            );
            watch.progress(last, count);
        }
        Ok((worst.0, factorised.shortfall("the reconstructor by Cholesky's factor", worst)))
    }
}

// Rows of wavefronts with slopes
/// Rows that are solved together.
const BLOCK: usize = 256;

impl Factorised {
    /// Ξ, (T M², n), column by column.
    fn wavefront_rows(&self, watch: &dyn Watch) -> Result<Array2<f64>, Error> {
        let [n, targets, points] = self.shape;
        let mut rows = Array2::zeros((targets * points.pow(2), n));
        for first in (0..n).step_by(TOGETHER) {
            check(watch)?;
            let last = n.min(first + TOGETHER);
            let unit = |(k, slope)| f64::from(u8::from(first + k == slope));
            let units = Array2::from_shape_fn((last - first, n), unit);
            let columns = self.parts.wavefronts(&units)?;
            rows.slice_mut(s![.., first..last]).assign(&columns.t());
        }
        Ok(rows)
    }

    /// Why a solution with such a residual after so many refinements is beyond the tolerance, if it is.
    fn shortfall(&self, what: &str, (residual, iterations): (f64, usize)) -> Option<String> {
        let (what, tolerance) = (what.to_string(), self.options.tolerance);
        let error = Error::NotConverged { what, iterations, residual, tolerance };
        (!self.filtered && residual > tolerance).then(|| error.to_string())
    }
}

// Frames by a formed reconstructor
impl Frames for FormedReconstructor {
    fn frames(
        &self,
        slopes: ArrayView2<f64>,
        _warm: bool,
        watch: &dyn Watch,
    ) -> Result<Estimates, Error> {
        let ([n, targets, points], frames) = (self.factorised.shape, slopes.nrows());
        check_slopes(slopes, n)?;
        check_frames(frames, [targets, points, points])?;
        let rows = targets * points.pow(2);
        let products = multiply_frames(&self.workers, slopes, rows, "wavefronts", watch)?;
        let mut estimates = Estimates::of(0, [targets, points]);
        let shaped = products.into_shape_with_order((frames, targets, points, points));
        estimates.wavefront = shaped.unwrap_or_else(|_| unreachable!("as many numbers"));
        // Tell how the frames were found
        estimates.iterations = vec![0; frames];
        estimates.residual = vec![self.residual; frames];
        estimates.shortfall = vec![self.shortfall.clone(); frames];
        estimates.chi_squared = vec![f64::NAN; frames];
        let samples = frames.min(TOGETHER);
        let sample: Vec<usize> = (0..samples).map(|k| k * frames / samples).collect();
        check(watch)?;
        for (&frame, solved) in
            sample.iter().zip(self.factorised.solve(slopes.select(Axis(0), &sample).view())?)
        {
            let fit = solved.unit * solved.chi_squared * solved.unit;
            estimates.chi_squared[frame] = fit.min(f64::MAX);
            estimates.interpolation.extend(solved.interpolation.map(|error| error * solved.unit));
        }
        Ok(estimates)
    }

    fn facts(&self) -> (usize, f64, [u64; 2]) {
        self.factorised.facts()
    }
}

// Tests of the formed reconstructor
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::estimation::estimate::PosedEstimate;
    use crate::estimation::estimate::tests::{blinded, built, mixed, slopes, streaked, system};
    use crate::linear::solver::Stop;
    use crate::model::noise::Noise;
    use crate::numerics::real::Precision;
    use crate::turbulence::plan::Form;
    use crate::watch::unwatched;

    fn formed(
        system: &System,
        options: EstimateOptions,
        method: Inversion,
        engine: &Engine,
    ) -> FormedReconstructor {
        let posed = PosedEstimate::new(system, options).unwrap();
        let model = posed.compute(engine, &unwatched).unwrap();
        FormedReconstructor::new((model, system), options, method, engine, &unwatched).unwrap()
    }

    fn distance(found: &Estimates, expected: &Estimates) -> f64 {
        let scale = expected.wavefront.fold(0.0, |most: f64, w| most.max(w.abs()));
        let gaps = &found.wavefront - &expected.wavefront;
        gaps.fold(0.0, |most: f64, gap| most.max(gap.abs())) / scale
    }

    // Formed reconstructors estimate as iterations do
    #[test]
    fn formed_reconstructors_estimate_as_iterations_do() {
        let quiet = system(["inf", "inf"], 0.0);
        let mut natural = quiet.guide_stars().to_vec();
        natural[1].noise = Noise::uniform(0.0).unwrap();
        let quiet = quiet.to_builder().guide_stars(natural).build().unwrap();
        for (system, form, method, bound) in [
            (blinded(&system(["90e3", "inf"], 0.0)), Form::Dense, Inversion::Cholesky, 1e-8),
            (blinded(&system(["90e3", "inf"], 0.0)), Form::Auto, Inversion::Cholesky, 1e-8),
            (
                blinded(&streaked(&system(["90e3", "90e3"], 0.0))),
                Form::Toeplitz,
                Inversion::Cholesky,
                1e-8,
            ),
            (blinded(&mixed("90e3")), Form::Blocks, Inversion::Cholesky, 1e-8),
            (quiet, Form::Auto, Inversion::Eigen, 1e-6),
        ] {
            let stop = Stop { tolerance: 1e-11, iterations: 4000 };
            let options = EstimateOptions::default().form(form).stop(stop);
            let iterated = built(&system, options).unwrap();
            let slopes = slopes(TOGETHER + 5, iterated.slopes());
            let expected = iterated.estimate(slopes.view(), false, &unwatched).unwrap();
            let reconstructor = formed(&system, options, method, &Engine::default());
            let found = reconstructor.frames(slopes.view(), false, &unwatched).unwrap();
            let gap = distance(&found, &expected);
            assert!(gap < bound, "{form:?} {method:?}: {gap:e}");
            assert!(found.converged().iter().all(|converged| *converged));
            assert!(found.residual[0] > 0.0 && found.residual[0] < 1e-9, "{:e}", found.residual[0]);
            // Compare the fit of a sample
            let fits = found.chi_squared.iter().zip(&expected.chi_squared);
            let measured: Vec<_> = fits.filter(|(fit, _)| fit.is_finite()).collect();
            assert_eq!(measured.len(), TOGETHER);
            assert!(found.chi_squared[0].is_finite());
            for (found, expected) in measured {
                assert!((found / expected - 1.0).abs() < bound, "{found} {expected}");
            }
            let few = reconstructor.frames(slopes.slice(s![..3, ..]), false, &unwatched).unwrap();
            assert!(few.chi_squared.iter().all(|fit| fit.is_finite()));
            assert_eq!(
                few.interpolation.len(),
                if expected.interpolation.is_empty() { 0 } else { 3 }
            );
        }
    }

    // Formed reconstructors on devices
    #[test]
    fn devices_form_and_apply_reconstructors_as_cores_do() {
        let system = blinded(&system(["90e3", "inf"], 0.0));
        let options = EstimateOptions::default().tolerance(1e-5);
        let here = formed(&system, options, Inversion::Cholesky, &Engine::default());
        let slopes = slopes(TOGETHER + 3, here.factorised.shape[0]);
        let expected = here.frames(slopes.view(), false, &unwatched).unwrap();
        for gpu in test_backends() {
            for (precision, bound) in [(Precision::F64, 1e-9), (Precision::F32, 1e-3)] {
                let engine = Engine::gpus(vec![gpu.clone(), gpu.clone()], precision).unwrap();
                let there = formed(&system, options, Inversion::Cholesky, &engine);
                let found = there.frames(slopes.view(), false, &unwatched).unwrap();
                let gap = distance(&found, &expected);
                assert!(gap < bound, "{precision:?}: {gap:e}");
                assert!(
                    found.converged().iter().all(|converged| *converged),
                    "{:e}",
                    found.residual[0]
                );
            }
        }
    }
}
