// Tangled from book/src/iterative-reconstructor.md: edit there, or here and run cargo tangle stitch.
//! The reconstructor by iterations with Toeplitz products.

mod gpu;

// Imports of iterating a reconstructor
use super::{
    ERROR, Errors, RECONSTRUCTOR, ReconstructedQuantity, Reconstruction, ReconstructorPlan,
};
use crate::device::engine::Engine;
use crate::error::Error;
use crate::estimation::blocks::{MeasuredCovariance, with_noise};
use crate::estimation::circulant::Group;
use crate::estimation::estimate::{Grouped, PosedGroup, blind, groups};
use crate::estimation::inversion::{
    Inversion, half_spectra, iterations, side_by_side, toeplitz_product,
};
use crate::linear::operator::Operator;
use crate::linear::solver::{Stop, multi_rhs::solve_together};
use crate::linear::times_transpose;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::noise::SlopeNoise;
use crate::numerics::real::Precision;
use crate::plan::{Memory, Plan};
use crate::tomography::covariance_matrix::{
    CovarianceMatrices, TRUTH, rows_with_measurements, truth_covariance,
};
use crate::turbulence::plan::{CovarianceOptions, CovariancePlan, Form, SlopeCovariancePlan};
use crate::watch::{StageParts, Watch, check};
use ndarray::{Array2, Array3, ArrayView2, Axis, concatenate, s};

// Iterate a reconstructor
impl ReconstructorPlan {
    // Compressed covariance of the slopes
    /// The plan of the slopes' covariance without its matrix: of the table that all stars share, or in blocks.
    ///
    /// # Errors
    /// `Invalid` where slopes are differences between points.
    pub(super) fn compressed(&self) -> Result<CovariancePlan, Error> {
        let of_form = |form| {
            let options = CovarianceOptions::default().form(form);
            CovariancePlan::new(&self.system, options.slopes_only())
        };
        match of_form(Form::Toeplitz) {
            Err(Error::NotToeplitz { .. }) => of_form(Form::Blocks),
            plan => plan,
        }
    }

    // Reconstruct by iterations
    /// Reconstructor and error of slopes by iterations.
    ///
    /// # Errors
    /// As for [`run`](Self::run), and `NotConverged`.
    pub(super) fn iterate(
        &self,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Reconstruction, Error> {
        let (rows, solved) = self.solve_iteratively((engine, watch), || {
            watch.stage(TRUTH, "");
            // Right-hand sides of the iterations
            let rows = rows_with_measurements(&self.system, engine, watch)?;
            if !self.is_delayed() {
                return Ok(rows);
            }
            let (system, delay) = (&self.system, self.options.delay);
            let later = CovarianceMatrices::later_truth(system, delay, engine, watch)?;
            Ok(concatenate![Axis(0), later, rows])
        })?;
        watch.stage(ERROR, "");
        check(watch)?;
        let truth = truth_covariance(&self.system, watch)?;
        let errors = self.errors_of_iterations(&truth, &rows, &solved);
        drop(rows);
        let [x, _] = solved;
        Ok(self.result((self.chosen_rows(x), errors, None, None), truth))
    }

    // Compute what iterations multiply by
    /// Right-hand sides, with their solutions and residuals by iterations.
    pub(super) fn solve_iteratively(
        &self,
        (engine, watch): (&Engine, &dyn Watch),
        right_hand_sides: impl FnOnce() -> Result<Array2<f64>, Error>,
    ) -> Result<(Array2<f64>, [Array2<f64>; 2]), Error> {
        let system = &self.system;
        let (plan, valid) = (self.compressed()?, system.valid_lenslets());
        let posed = groups(system, &plan)?;
        let count = posed.len() + usize::from(plan.blocks().is_some());
        let part = |number| StageParts { whole: watch, what: "set of stars", number, count };
        let compute =
            |(k, group): (usize, &PosedGroup)| group.compute((system, &valid), engine, &part(k));
        let last = part(posed.len());
        let groups = posed.iter().enumerate().map(compute).collect::<Result<Vec<_>, _>>()?;
        let groups: Vec<Group> = groups.iter().map(Grouped::group).collect();
        let rectangles = plan.blocks().map(|blocks| blocks.rectangles(system, engine, &last));
        let rectangles = rectangles.transpose()?;
        // Solve for all right-hand sides
        let noise = SlopeNoise::new(system.guide_stars(), &SlopeOrder::new(&valid));
        let measured = MeasuredCovariance {
            groups: &groups,
            rectangles: rectangles.as_ref(),
            valid: &valid,
            noise: &noise,
            removed: &system.removed_modes(),
        };
        let rows = right_hand_sides()?;
        watch.stage(RECONSTRUCTOR, "rows");
        let solved = match engine.devices() {
            [] => self.solve_rows(&measured, &rows, watch)?,
            _ => self.solve_rows_on_device(&measured, &rows, engine, watch)?,
        };
        Ok((rows, solved))
    }

    // Limit of the iterations
    /// When a row is solved.
    fn stop(&self) -> Stop {
        let iterations = (2 * self.measurements).max(Stop::default().iterations);
        Stop { tolerance: self.options.tolerance, iterations }
    }
}

// Solve for the rows on cores
/// Rows that are solved side by side.
const BLOCK: usize = 32;

impl ReconstructorPlan {
    /// The solutions for right-hand sides, and their residuals, as rows.
    fn solve_rows(
        &self,
        measured: &MeasuredCovariance,
        rows: &Array2<f64>,
        watch: &dyn Watch,
    ) -> Result<[Array2<f64>; 2], Error> {
        let (slopes, preconditioner) = measured.operators(true)?;
        let measured = with_noise(slopes, measured.noise.clone())?;
        let measured = match blind(&self.system.removed_modes(), measured.clone())? {
            Some([measured, _]) => measured,
            None => measured,
        };
        let preconditioner = preconditioner.as_deref().unwrap_or(measured.as_ref());
        rayon::scope(|_| self.solve_blocks(measured.as_ref(), preconditioner, rows, watch))
    }

    // Solve the rows block by block
    fn solve_blocks(
        &self,
        measured: &dyn Operator<f64>,
        preconditioner: &dyn Operator<f64>,
        rows: &Array2<f64>,
        watch: &dyn Watch,
    ) -> Result<[Array2<f64>; 2], Error> {
        let mut all = [Array2::zeros(rows.dim()), Array2::zeros(rows.dim())];
        for first in (0..rows.nrows()).step_by(BLOCK) {
            let block = first..rows.nrows().min(first + BLOCK);
            let b = rows.slice(s![block.clone(), ..]).to_owned();
            let ask = &mut || check(watch);
            let solutions = solve_together(measured, preconditioner, &b, self.stop(), ask)?;
            for (all, solutions) in all.iter_mut().zip(&solutions) {
                all.slice_mut(s![block.clone(), ..]).assign(solutions);
            }
            watch.progress(block.end, rows.nrows());
        }
        Ok(all)
    }
}

// Error of iterated rows
impl ReconstructorPlan {
    /// C_ee of the requested reconstructor, and with a delay of the other one, from all right-hand sides, solutions and residuals.
    fn errors_of_iterations(
        &self,
        truth: &Array2<f64>,
        rows: &Array2<f64>,
        [x, left]: &[Array2<f64>; 2],
    ) -> Errors {
        let (m, targets) = (self.truth_slopes, self.system.targets().len());
        // Errors of one set of rows
        let of_set = |set: usize| {
            let mut errors = Array3::zeros((targets, m, m));
            for (t, mut error) in errors.outer_iter_mut().enumerate() {
                let own = |all: &'_ Array2<f64>, set: usize| {
                    let first = (set * targets + t) * m;
                    all.slice(s![first..first + m, ..]).to_owned()
                };
                let explained = [own(rows, 0), own(x, set), own(rows, set) - own(left, set)];
                error.assign(&(truth - &explained_by(explained.each_ref().map(|a| a.view()))));
            }
            errors
        };
        let with = of_set(0);
        if self.is_delayed() { self.choose(with, of_set(1)) } else { (with, None) }
    }
}

/// C Xᵗ + X Cᵗ − Y Xᵗ, made symmetric to the last digit.
fn explained_by([c, x, b]: [ArrayView2<f64>; 3]) -> Array2<f64> {
    let [cross, quadratic] = [times_transpose(&c, &x), times_transpose(&b, &x)];
    &cross + &cross.t() - 0.5 * (&quadratic + &quadratic.t())
}

// What iterating will take
// Sizes of the iterated operators
/// Upper bound of the numbers in the operators of the iterations.
#[derive(Debug, Clone, Copy, Default)]
struct Numbers {
    /// Of the spectra of lattices, in the operator and its preconditioner.
    spectra: u64,
    /// Between lattices.
    dense: u64,
    /// Of the half spectra of a row, for both.
    of_row: u64,
    /// Time of a product, seconds of one thread.
    product: f64,
}

impl ReconstructorPlan {
    /// Fits the plan to an engine: iterates where the choice is left to the plan and the dense matrices do not fit.
    pub fn fitted(self, engine: &Engine) -> Self {
        let open = self.options.method == Inversion::Auto && self.method == Inversion::Cholesky;
        let possible = open && !self.options.keep && self.compressed().is_ok();
        if possible && matches!(self.check(engine), Err(Error::Memory { .. })) {
            let reason = "the dense matrix of all slopes does not fit the memory";
            return Self { method: Inversion::Iterative, reason, ..self };
        }
        self
    }

    // Memory of the iterations
    /// The most memory that iterations have in use at a time.
    pub(super) fn memory_of_iterations(&self, engine: &Engine) -> Memory {
        let [n, m, targets] =
            [self.measurements, self.unknowns(), self.system.targets().len()].map(|k| k as u64);
        let rows = targets * m * if self.is_delayed() { 2 } else { 1 };
        let Numbers { spectra, dense, .. } = self.numbers();
        let working = 8 * (7 * BLOCK as u64 * n + 16 * spectra + 3 * dense);
        let of_errors = if self.options.to == ReconstructedQuantity::Wavefront { 0 } else { 5 * m };
        let results = 8 * rows.saturating_mul(3 * n + of_errors);
        let there = self.bytes_of_iterations(self.rows_at_a_time(rows as usize, engine), engine);
        let devices = vec![there; engine.devices().len()];
        Memory::of_stages(results, [&Memory { host: working, devices }])
    }

    // Numbers of the operators
    /// What the operator and its preconditioner have.
    fn numbers(&self) -> Numbers {
        let plan = self.compressed().ok();
        let slopes = plan.as_ref().and_then(CovariancePlan::slopes);
        let blocks = plan.as_ref().and_then(CovariancePlan::blocks);
        let lattices = slopes.into_iter().chain(blocks.into_iter().flat_map(|plan| &plan.slopes));
        let mut all =
            Numbers { dense: blocks.map_or(0, |plan| plan.entries()[0]), ..Numbers::default() };
        for problem in lattices.map(SlopeCovariancePlan::problem) {
            let (stars, lenslets) = (problem.sources() as u64, problem.lenslets() as u64);
            let length = (2 * lenslets).next_multiple_of(32);
            all.spectra += 8 * stars.pow(2) * length.pow(2);
            all.of_row += half_spectra(problem.sources(), problem.lenslets()) as u64;
            all.product += toeplitz_product(problem.sources(), 2 * problem.lenslets() - 1);
        }
        all
    }

    /// How many of so many rows each device of an engine solves at a time: a block of them, or as many as fit.
    fn rows_at_a_time(&self, rows: usize, engine: &Engine) -> usize {
        let most = rows.div_ceil(engine.devices().len().max(1)).min(BLOCK);
        side_by_side(most, |rows| engine.has_room(self.bytes_of_iterations(rows, engine)))
    }

    /// Bytes of both on each device, with the vectors of so many rows at a time.
    fn bytes_of_iterations(&self, rows: usize, engine: &Engine) -> u64 {
        let size = match engine.precision() {
            Precision::F64 => 8,
            Precision::F32 => 4,
        };
        let (numbers, n) = (self.numbers(), self.measurements as u64);
        let of_rows = rows as u64 * (8 * n + numbers.of_row);
        let operators = numbers.spectra + 2 * numbers.dense + 4 * n;
        size * (operators + of_rows) + (32 << 20)
    }

    /// Seconds of one thread for the solutions.
    pub(super) fn work_of_iterations(&self) -> f64 {
        let rows = (self.unknowns() * self.system.targets().len()) as f64;
        let rows = if self.is_delayed() { 2.0 * rows } else { rows };
        let product = self.numbers().product;
        2.0 * rows * product * iterations(&self.system, self.stop().iterations)
    }
}

// Tests of iterated reconstructors
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::estimation::estimate::tests::{blinded, mixed, streaked, system};
    use crate::model::lenslet_array::LensletArray;
    use crate::model::removed_modes::TipTilt;
    use crate::model::system::{SlopeModel, System};
    use crate::tomography::reconstructor::ReconstructorOptions;
    use crate::watch::unwatched;

    fn run(system: &System, options: ReconstructorOptions, engine: &Engine) -> Reconstruction {
        ReconstructorPlan::new(system, options).unwrap().run(engine, &unwatched).unwrap()
    }

    fn gap(a: &Array3<f64>, b: &Array3<f64>) -> f64 {
        let size = |all: &Array3<f64>| all.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        size(&(a - b)) / size(b)
    }

    fn r(found: &Reconstruction) -> &Array3<f64> {
        found.reconstructor.as_ref().unwrap()
    }

    // Three ways lead to one reconstructor
    #[test]
    fn three_ways_lead_to_one_reconstructor() {
        let mut stars = streaked(&system(["90e3", "90e3"], 0.0)).guide_stars().to_vec();
        stars[1].tip_tilt = TipTilt::Removed;
        let system = system(["90e3", "90e3"], 0.0).to_builder().guide_stars(stars).build().unwrap();
        let engine = Engine::default();
        let options = ReconstructorOptions::default();
        let [factor, eigen] = [Inversion::Cholesky, Inversion::Eigen]
            .map(|method| run(&system, options.method(method), &engine));
        let iterative = options.method(Inversion::Iterative);
        let fine = run(&system, iterative.tolerance(1e-10), &engine);
        for found in [&eigen, &fine] {
            assert!(gap(r(found), r(&factor)) < 1e-7);
            assert!(gap(&found.error_covariance, &factor.error_covariance) < 1e-10);
        }
        let coarse = run(&system, iterative.tolerance(1e-3), &engine);
        let gaps =
            [gap(r(&coarse), r(&factor)), gap(&coarse.error_covariance, &factor.error_covariance)];
        assert!(gaps[0] > 1e-5 && gaps[1] < 1e-4 && gaps[1] > 0.0, "{gaps:?}");
        // The error of iterations is the long form
        let c = CovarianceMatrices::of(&system, &unwatched).unwrap();
        let m = c.truth.nrows();
        let rows = c.truth_measurements.slice(s![m.., ..]).to_owned();
        let r = r(&coarse).index_axis(Axis(0), 1).to_owned();
        let long = crate::tomography::error_covariance(&r, &c.truth, &rows, &c.measurements);
        let error = &coarse.error_covariance.index_axis(Axis(0), 1) - &long;
        let size = c.truth.diag()[0];
        assert!(error.iter().all(|gap| gap.abs() < 1e-10 * size), "{error:?}");
        let mut late = [Inversion::Cholesky, Inversion::Iterative].map(|method| {
            let air = windy(&system);
            run(&air, options.method(method).delay(5e-3).tolerance(1e-9), &engine)
        });
        let others = late.each_mut().map(|found| found.other_error_covariance.take().unwrap());
        let errors_only = options.method(Inversion::Iterative).tolerance(1e-10).errors_only(true);
        let alone = run(&system, errors_only, &engine);
        assert!(alone.reconstructor.is_none() && alone.error_covariance == fine.error_covariance);
        assert!(gap(&late[1].error_covariance, &late[0].error_covariance) < 1e-9);
        assert!(
            gap(&others[1], &others[0]) < 1e-9 && gap(&others[1], &late[1].error_covariance) > 1e-3
        );
    }

    // Iterations are chosen and refused
    /// A system with a wind of 12 m/s in each layer.
    fn windy(system: &System) -> System {
        let air = system.atmosphere();
        let mut layers = air.layers().to_vec();
        layers.iter_mut().for_each(|layer| layer.wind_speed = 12.0);
        let r0 = air.fried_parameter();
        let air = crate::model::Atmosphere::new(r0, air.wavelength(), layers).unwrap();
        system.to_builder().atmosphere(air).build().unwrap()
    }

    /// A system with one target and a truth of a single row for each axis, as the emulated device is slow.
    fn few(system: &System) -> System {
        let (one, target) = (LensletArray::new(1, 3.5).unwrap(), system.targets()[..1].to_vec());
        system.to_builder().targets(target).truth_sensor(Some(one)).build().unwrap()
    }

    #[test]
    fn iterations_are_chosen_and_refused() {
        let shared = system(["inf", "inf"], 0.0);
        let options = ReconstructorOptions::default();
        let engine = Engine::default();
        let plan = ReconstructorPlan::new(&shared, options).unwrap().fitted(&engine);
        assert_eq!(plan.method(), Inversion::Cholesky);
        // A plan of so many slopes that nobody has the memory for their matrix.
        let vast = ReconstructorPlan { measurements: 40_000_000, ..plan }.fitted(&engine);
        assert_eq!(vast.method(), Inversion::Iterative);
        let info = vast.describe(&engine).unwrap();
        assert!(info.reason.contains("does not fit") && info.form == "toeplitz", "{}", info.reason);
        let iterative = options.method(Inversion::Iterative);
        // Rows go side by side as they fit, and one does in any case
        assert_eq!(
            [64, 33, 32, 3, 0].map(|fits| side_by_side(32, |rows| rows <= fits)),
            [32, 32, 32, 2, 1]
        );
        // Stars that share no lattice are taken in blocks, which differences between points do not have
        let apart = few(&blinded(&streaked(&mixed("90e3"))));
        let plan = ReconstructorPlan::new(&apart, iterative.tolerance(1e-10)).unwrap();
        assert_eq!(plan.describe(&engine).unwrap().form, "blocks");
        let (found, exact) =
            (plan.run(&engine, &unwatched).unwrap(), run(&apart, options, &engine));
        assert!(gap(r(&found), r(&exact)) < 1e-7);
        assert!(gap(&found.error_covariance, &exact.error_covariance) < 1e-10);
        let points = apart.to_builder().slope_model(SlopeModel::EdgeMidpoint).phase(None);
        let refused = ReconstructorPlan::new(&points.build().unwrap(), iterative).unwrap_err();
        assert!(refused.to_string().contains("no form of blocks"), "{refused}");
        for (bad, words) in [
            (iterative.keep(true), "keep = true: expected false"),
            (iterative.filter(0.1), "filter = 0.1: expected 0"),
            (iterative.tolerance(0.0), "tolerance = 0.0: expected between 0 and 1"),
        ] {
            let error = ReconstructorPlan::new(&shared, bad).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
        for gpu in test_backends() {
            // Iterate on a device in either precision
            let few = [
                (run(&few(&shared), options, &engine), few(&shared)),
                (exact.clone(), apart.clone()),
            ];
            for (precision, tolerance, bounds) in
                [(Precision::F64, 1e-8, [1e-5, 1e-9]), (Precision::F32, 1e-4, [2e-2, 1e-4])]
            {
                let there = Engine::gpus(vec![gpu.clone()], precision).unwrap();
                for (here, system) in &few {
                    let found = run(system, iterative.tolerance(tolerance), &there);
                    let gaps = [
                        gap(r(&found), r(here)),
                        gap(&found.error_covariance, &here.error_covariance),
                    ];
                    assert!(gaps[0] < bounds[0] && gaps[1] < bounds[1], "{precision:?}: {gaps:?}");
                }
            }
        }
    }
}
