// Tangled from book/src/factorised-estimate.md: edit there, or here and run cargo tangle stitch.
//! Estimates by a factor of the covariance of measurements.

pub(crate) mod formed;
pub(crate) mod gpu;

// Imports of estimates by a factor
use super::{
    EstimateOptions, Estimates, EstimatorCpu, FrameEstimate, Frames, Grouped, Matrices, Model,
    check_frames, check_slopes, chi_squared, unit_of,
};
use crate::device::engine::Engine;
use crate::error::Error;
use crate::estimation::blocks::expanded;
use crate::estimation::interpolation::SampledErrors;
use crate::estimation::inversion::{Inversion, not_definite};
use crate::linear::operator::Operator;
use crate::linear::solver::{Attempt, Solved};
use crate::linear::{Cholesky, Eigen};
use crate::model::lenslet_array::SlopeOrder;
use crate::model::{removed_modes::RemovedModes, system::System};
use crate::watch::{Watch, check};
use ndarray::{Array2, ArrayView2, ArrayViewMut1, s};

// What a factor has to do
/// Solution and products of a factor, on processors or a device; a row is a frame.
pub(crate) trait Factored: Send + Sync {
    /// Replaces each row s by c of Eq. [blind estimate](https://lenslet.github.io/lenslet/estimate-operators.html#eq-blind-estimate).
    fn solve(&self, rows: &mut Array2<f64>) -> Result<(), Error>;

    /// (Θ + C_n) c for each row, with or without the modes that are removed.
    fn multiply(&self, rows: &Array2<f64>) -> Result<Array2<f64>, Error>;

    /// Ξ c for each row.
    fn wavefronts(&self, rows: &Array2<f64>) -> Result<Array2<f64>, Error>;

    /// Bytes of the factor and of Ξ.
    fn bytes(&self) -> [u64; 2];
}

// Matrix of the measurements
/// Θ + C_n without the modes that are removed, (n, n), rad².
fn matrix(model: &Model) -> Array2<f64> {
    let mut matrix = match &model.covariances {
        Matrices::Dense([slopes, _]) => slopes.clone(),
        Matrices::Toeplitz(..) => model.groups[0].covariance.dense(&SlopeOrder::new(&model.valid)),
        Matrices::Blocks(rectangles, _) => {
            let groups: Vec<_> = model.groups.iter().map(Grouped::group).collect();
            expanded(&groups, rectangles)
        }
    };
    model.noise.add_to(&mut matrix);
    model.removed.replace_in(&mut matrix);
    matrix
}

// A factor on cores
/// A factor on cores, and the operators of the estimate.
struct OnCores {
    operators: EstimatorCpu<f64>,
    factor: Factor,
}

enum Factor {
    Cholesky(Cholesky),
    /// With the number of eigenvectors that are kept.
    Eigen(Box<Eigen>, usize),
}

impl Factored for OnCores {
    fn solve(&self, rows: &mut Array2<f64>) -> Result<(), Error> {
        match &self.factor {
            Factor::Cholesky(factor) => {
                factor.halve(rows);
                factor.finish(rows);
            }
            Factor::Eigen(eigen, kept) => {
                // Divide by the kept eigenvalues
                let values = &eigen.values()[eigen.values().len() - kept..];
                let mut along = eigen.project(rows, *kept);
                along.rows_mut().into_iter().for_each(|mut row| {
                    row.iter_mut().zip(values).for_each(|(part, value)| *part /= value);
                });
                *rows = eigen.expand(&along);
            }
        }
        Ok(())
    }

    // Products of a factor on cores
    fn multiply(&self, rows: &Array2<f64>) -> Result<Array2<f64>, Error> {
        Ok(times(self.operators.measured(), rows))
    }

    fn wavefronts(&self, rows: &Array2<f64>) -> Result<Array2<f64>, Error> {
        Ok(times(self.operators.wavefront(), rows))
    }

    fn bytes(&self) -> [u64; 2] {
        [8 * (self.operators.slopes() as u64).pow(2), self.operators.wavefront().bytes()]
    }
}
/// The products of an operator with all rows, as rows.
fn times(operator: &dyn Operator<f64>, rows: &Array2<f64>) -> Array2<f64> {
    let (frames, rows) = (rows.nrows(), rows.as_standard_layout());
    let x = rows.as_slice().unwrap_or_default();
    let mut products = Array2::zeros((frames, operator.rows()));
    let y = products.as_slice_mut().unwrap_or_default();
    rayon::scope(|_| operator.apply(x, y, &mut vec![0.0; operator.scratch(frames)]));
    products
}

// Estimate by a factor
/// An estimator by a factor, on cores or on the first device of an engine.
pub(crate) struct Factorised {
    parts: Box<dyn Factored>,
    /// Whether eigenvectors may have been dropped, on purpose.
    filtered: bool,
    removed: RemovedModes,
    options: EstimateOptions,
    /// Slopes of a frame, targets, and points across a wavefront.
    shape: [usize; 3],
    interpolation_error: f64,
    sampled: Option<SampledErrors>,
}

impl Factorised {
    // Factorise the model of a system
    /// Takes the matrix of a model of `system` apart, by Cholesky's method or into eigenvectors.
    ///
    /// # Errors
    /// `Failed` where the matrix is not positive definite, with the star and the slope that are to blame; what a device says.
    pub(crate) fn new(
        (model, system): (Model, &System),
        options: EstimateOptions,
        method: Inversion,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Self, Error> {
        let options = EstimateOptions { preconditioned: false, ..options };
        let (removed, interpolation_error) = (model.removed.clone(), model.interpolation_error);
        let sampled = model.sampled.clone();
        let (filtered, matrix) = (method == Inversion::Eigen, matrix(&model));
        let (n, filter) = (matrix.nrows(), options.filter);
        let shape = [n, model.targets, model.points];
        check(watch)?;
        let blame = |pivot| not_definite(system, pivot);
        let parts: Box<dyn Factored> = if !engine.devices().is_empty() {
            Self::there(&model, options, (matrix, filtered), engine, &blame)?
        } else {
            // Factorise on cores
            let factor = if filtered {
                let eigen = Eigen::new(&matrix)?;
                let kept = eigen.kept(filter.max(n as f64 * f64::EPSILON));
                Factor::Eigen(Box::new(eigen), kept)
            } else {
                Factor::Cholesky(Cholesky::new(matrix).map_err(|error| blame(error.pivot))?)
            };
            Box::new(OnCores { operators: EstimatorCpu::of(model, options)?, factor })
        };
        Ok(Self { parts, filtered, removed, options, shape, interpolation_error, sampled })
    }

    // Solve some frames by a factor
    /// Estimates of some frames of slopes, rad.
    fn solve(&self, slopes: ArrayView2<f64>) -> Result<Vec<FrameEstimate<f64>>, Error> {
        let mut rows = slopes.as_standard_layout().into_owned();
        let units = self.scale(&mut rows);
        let (solution, histories) = self.coefficients(&rows)?;
        // Wavefronts of some frames
        let wavefronts = self.parts.wavefronts(&solution)?;
        let free = (self.shape[0] - self.removed.len()).max(1);
        let all = histories.into_iter().enumerate();
        Ok(all
            .map(|(k, history)| {
                let [slopes, coefficients] = [&rows, &solution].map(|rows| rows.row(k).to_vec());
                let chi_squared = chi_squared(&slopes, &coefficients, free);
                let (residual, iterations) = (history[history.len() - 1], history.len() - 1);
                let tolerance = self.options.tolerance;
                let shortfall = (!self.filtered && residual > tolerance).then(|| {
                    let what = "the solution by Cholesky's factor".to_string();
                    Error::NotConverged { what, iterations, residual, tolerance }
                });
                let attempt =
                    Attempt { solved: Solved { iterations, residual, history }, shortfall };
                FrameEstimate {
                    wavefront: wavefronts.row(k).to_vec(),
                    attempt,
                    chi_squared,
                    unit: units[k],
                    interpolation: self.sampled.as_ref().map(|sampled| sampled.rms(&coefficients)),
                }
            })
            .collect())
    }

    // Coefficients of some frames
    /// Takes the modes that are removed out of rows, and divides each by a power of two; returns these powers.
    fn scale(&self, rows: &mut Array2<f64>) -> Vec<f64> {
        let scale = |mut row: ArrayViewMut1<f64>| {
            self.removed.remove(row.as_slice_mut().unwrap_or_default());
            let unit = unit_of(&row);
            row *= unit.recip();
            unit
        };
        rows.rows_mut().into_iter().map(scale).collect()
    }

    // Solve and refine rows
    /// c of Eq. [blind estimate](https://lenslet.github.io/lenslet/estimate-operators.html#eq-blind-estimate) for each row s, and its relative residual before and after each refinement.
    fn coefficients(&self, rows: &Array2<f64>) -> Result<(Array2<f64>, Vec<Vec<f64>>), Error> {
        let mut solution = rows.clone();
        self.parts.solve(&mut solution)?;
        let (mut left, residuals) = self.left(rows, &mut solution)?;
        let mut histories: Vec<Vec<f64>> = residuals.into_iter().map(|first| vec![first]).collect();
        let is_rough = |history: &Vec<f64>| history[history.len() - 1] > self.options.tolerance;
        while !self.filtered && histories.iter().any(is_rough) {
            // Correct frames by their residuals
            let mut better = left.clone();
            self.parts.solve(&mut better)?;
            better += &solution;
            let (rest, residuals) = self.left(rows, &mut better)?;
            let mut corrected = false;
            for (k, residual) in residuals.into_iter().enumerate() {
                let before = histories[k][histories[k].len() - 1];
                if before > self.options.tolerance && residual < 0.5 * before {
                    solution.row_mut(k).assign(&better.row(k));
                    left.row_mut(k).assign(&rest.row(k));
                    histories[k].push(residual);
                    corrected = true;
                }
            }
            if !corrected {
                break;
            }
        }
        Ok((solution, histories))
    }

    // Residuals of some frames
    /// s − (Θ + C_n) c for rows s and c, without the modes that are removed, and its norm over that of s; takes the modes out of c.
    fn left(
        &self,
        rows: &Array2<f64>,
        solution: &mut Array2<f64>,
    ) -> Result<(Array2<f64>, Vec<f64>), Error> {
        let without = |rows: &mut Array2<f64>| {
            let each = rows.rows_mut().into_iter();
            each.for_each(|mut row| self.removed.remove(row.as_slice_mut().unwrap_or_default()));
        };
        without(solution);
        let mut products = self.parts.multiply(solution)?;
        without(&mut products);
        let left = rows - &products;
        let residual = |k: usize| {
            let [part, whole] = [&left, rows].map(|rows| rows.row(k).dot(&rows.row(k)).sqrt());
            if whole > 0.0 { part / whole } else { 0.0 }
        };
        let residuals = (0..rows.nrows()).map(residual).collect();
        Ok((left, residuals))
    }
}

// Solve frames and refine them
/// Frames that are solved together.
const TOGETHER: usize = 64;

impl Frames for Factorised {
    fn frames(
        &self,
        slopes: ArrayView2<f64>,
        _warm: bool,
        watch: &dyn Watch,
    ) -> Result<Estimates, Error> {
        let ([n, targets, points], frames) = (self.shape, slopes.nrows());
        check_slopes(slopes, n)?;
        check_frames(frames, [targets, points, points])?;
        let mut estimates = Estimates::of(frames, [targets, points]);
        for first in (0..frames).step_by(TOGETHER) {
            check(watch)?;
            let last = frames.min(first + TOGETHER);
            let estimated = self.solve(slopes.slice(s![first..last, ..]))?;
            estimated.into_iter().try_for_each(|frame| estimates.push(frame))?;
            watch.progress(last, frames);
        }
        Ok(estimates)
    }

    // Facts about an estimator by a factor
    fn facts(&self) -> (usize, f64, [u64; 2]) {
        (self.shape[0], self.interpolation_error, self.parts.bytes())
    }
}

// Tests of estimates by a factor
#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimation::estimate::PosedEstimate;
    use crate::estimation::estimate::tests::{blinded, built, slopes, streaked, system};
    use crate::linear::solver::Stop;
    use crate::model::noise::Noise;
    use crate::watch::unwatched;

    fn factorised(system: &System, options: EstimateOptions, method: Inversion) -> Factorised {
        let engine = Engine::default();
        let model =
            PosedEstimate::new(system, options).unwrap().compute(&engine, &unwatched).unwrap();
        Factorised::new((model, system), options, method, &engine, &unwatched).unwrap()
    }

    // Factors estimate as iterations do
    #[test]
    fn factors_estimate_as_iterations_do() {
        let quiet = system(["inf", "inf"], 0.0).to_builder();
        let mut natural = system(["inf", "inf"], 0.0).guide_stars().to_vec();
        natural[1].noise = Noise::uniform(0.0).unwrap();
        for (system, method, bound) in [
            (blinded(&system(["90e3", "inf"], 0.0)), Inversion::Cholesky, 1e-8),
            (blinded(&streaked(&system(["90e3", "90e3"], 0.0))), Inversion::Cholesky, 1e-8),
            (quiet.guide_stars(natural).build().unwrap(), Inversion::Eigen, 1e-6),
        ] {
            let stop = Stop { tolerance: 1e-11, iterations: 4000 };
            let options = EstimateOptions::default().stop(stop);
            let iterated = built(&system, options).unwrap();
            let mut slopes = slopes(2, iterated.slopes());
            slopes.row_mut(1).fill(0.0);
            let expected = iterated.estimate(slopes.view(), false, &unwatched).unwrap();
            let found = factorised(&system, options, method);
            let found = found.frames(slopes.view(), false, &unwatched).unwrap();
            let scale = expected.wavefront.fold(0.0, |most: f64, w| most.max(w.abs()));
            let gap =
                (&found.wavefront - &expected.wavefront).fold(0.0, |a: f64, b| a.max(b.abs()));
            assert!(gap < bound * scale, "{method:?}: {:e}", gap / scale);
            assert!(found.wavefront.index_axis(ndarray::Axis(0), 1).iter().all(|w| *w == 0.0));
            // Hold what a factor tells
            assert!(
                found.converged() == [true; 2] && found.residual[0] < 1e-9,
                "{:e}",
                found.residual[0]
            );
            assert!(found.iterations[0] <= 1 && found.residual[1] == 0.0);
            let chi_squared = found.chi_squared[0] / expected.chi_squared[0];
            assert!((chi_squared - 1.0).abs() < bound, "{chi_squared}");
        }
    }
}
