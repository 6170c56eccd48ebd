// Tangled from book/src/reconstructor.md: edit there, or here and run cargo tangle stitch.
//! The reconstructor by iterations with Toeplitz products.

#[cfg(feature = "cuda")]
mod gpu;
#[cfg(not(feature = "cuda"))]
#[path = "iterative/no_gpu.rs"]
mod gpu;

// What iterating a reconstructor stands on
use super::{ERROR, Errors, RECONSTRUCTOR, Reconstruction, ReconstructorPlan};
use crate::device::plan::Memory;
use crate::device::{Watch, check, engine::Engine};
use crate::error::{Error, Invalid};
use crate::linear::operator::Operator;
use crate::linear::solver::{Stop, together::solve_together};
use crate::linear::{BlockToeplitz, times_transpose};
use crate::model::lenslet_array::SlopeOrder;
use crate::model::noise::SlopeNoise;
use crate::numerics::real::Precision;
use crate::tomography::circulant::{Circulant, Group};
use crate::tomography::covariance_matrix::{
    CovarianceMatrices, TRUTH, rows_with_measurements, truth_covariance,
};
use crate::tomography::estimate::{Shared, blind, with_noise};
use crate::tomography::inversion::{Inversion, iterations, toeplitz_product};
use crate::turbulence::plan::{CovarianceOptions, CovariancePlan, Form};
use crate::turbulence::slope::SlopeCovariance;
use ndarray::{Array2, Array3, ArrayView2, Axis, concatenate, s};
use std::sync::Arc;

// Iterate a reconstructor
impl ReconstructorPlan {
    /// The plan of the table of the slopes' covariance, which all stars share.
    ///
    /// # Errors
    /// `NotToeplitz` where they share no lattice.
    pub(super) fn table(&self) -> Result<CovariancePlan, Error> {
        let form = CovarianceOptions::default().form(Form::Toeplitz);
        CovariancePlan::new(&self.system, form.slopes_only())
    }

    /// Reconstructor and error by iterations.
    ///
    /// # Errors
    /// As for [`run`](Self::run), and `NotConverged`.
    pub(super) fn iterate(
        &self,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Reconstruction, Error> {
        let system = &self.system;
        let plan = self.table()?;
        let table = plan.slopes().unwrap_or_else(|| unreachable!("this form was asked for"));
        let table = table.compute(engine, watch)?;
        watch.stage(TRUTH, "");
        let mut rows = rows_with_measurements(system, engine, watch)?;
        if self.is_delayed() {
            let later = CovarianceMatrices::later_truth(system, self.options.delay, engine, watch)?;
            rows = concatenate![Axis(0), later, rows];
        }
        let truth = truth_covariance(system, watch)?;
        watch.stage(RECONSTRUCTOR, "rows");
        let solved = match engine.devices() {
            [] => self.solve_rows(&table, &rows, watch)?,
            _ => self.solve_rows_there(&table, &rows, engine, watch)?,
        };
        watch.stage(ERROR, "");
        check(watch)?;
        let errors = self.errors_of_iterations(&truth, &rows, &solved);
        drop(rows);
        let [x, _] = solved;
        Ok(self.found((self.asked(x), errors, None, None), truth))
    }

    // Limit of the iterations
    /// When a row is solved.
    fn stop(&self) -> Stop {
        let iterations = (2 * self.measurements).max(Stop::default().iterations);
        Stop { tolerance: self.options.tolerance, iterations }
    }

    /// The stars as one group for the preconditioner.
    fn noise_of_stars(&self) -> (Vec<f64>, Vec<usize>) {
        let stars = self.system.guide_stars();
        (stars.iter().map(|star| star.noise.mean()).collect(), (0..stars.len()).collect())
    }
}

// Solve for the rows on cores
/// Rows that are solved side by side.
const BLOCK: usize = 32;

impl ReconstructorPlan {
    /// The solutions for right-hand sides, and their residuals, as rows.
    fn solve_rows(
        &self,
        table: &SlopeCovariance,
        rows: &Array2<f64>,
        watch: &dyn Watch,
    ) -> Result<[Array2<f64>; 2], Error> {
        let (system, valid) = (&self.system, self.system.valid_lenslets());
        let slopes: Shared<f64> = Arc::new(BlockToeplitz::slopes(table, &valid)?);
        let order = SlopeOrder::new(&valid);
        let noise = SlopeNoise::new(system.guide_stars(), &order);
        let measured = with_noise(slopes, noise)?;
        let measured = match blind(&system.removed_modes(), measured.clone())? {
            Some([measured, _]) => measured,
            None => measured,
        };
        let (noise, stars) = self.noise_of_stars();
        let group = Group { covariance: table, noise: &noise, valid: &valid, stars: &stars };
        let preconditioner = Circulant::new(&[group])?;
        rayon::scope(|_| self.solve_blocks(measured.as_ref(), &preconditioner, rows, watch))
    }

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
            let found = solve_together(measured, preconditioner, &b, self.stop(), ask)?;
            for (all, found) in all.iter_mut().zip(&found) {
                all.slice_mut(s![block.clone(), ..]).assign(found);
            }
            watch.progress(block.end, rows.nrows());
        }
        Ok(all)
    }
}

// Error of iterated rows
impl ReconstructorPlan {
    /// C_ee of what is asked for, and with a delay of the other choice, from all right-hand sides and from solutions and residuals.
    fn errors_of_iterations(
        &self,
        truth: &Array2<f64>,
        rows: &Array2<f64>,
        [x, left]: &[Array2<f64>; 2],
    ) -> Errors {
        let (m, targets) = (self.truth_slopes, self.system.targets().len());
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

/// C Xᵗ + X Cᵗ − B Xᵗ, made symmetric to the last digit.
fn explained_by([c, x, b]: [ArrayView2<f64>; 3]) -> Array2<f64> {
    let [cross, quadratic] = [times_transpose(&c, &x), times_transpose(&b, &x)];
    &cross + &cross.t() - 0.5 * (&quadratic + &quadratic.t())
}

// What iterating will take
impl ReconstructorPlan {
    /// The same plan for an engine: by iterations, where the choice is left to it, and the dense matrices do not fit.
    pub fn fitted(self, engine: &Engine) -> Self {
        let open = self.options.method == Inversion::Auto && self.method == Inversion::Cholesky;
        let possible = open && !self.options.keep && self.table().is_ok();
        if possible && matches!(self.check(engine), Err(Error::Memory { .. })) {
            let reason = "the dense matrix of all slopes does not fit the memory";
            return Self { method: Inversion::Iterative, reason, ..self };
        }
        self
    }

    /// The most memory that iterations have in use at a time.
    pub(super) fn memory_of_iterations(&self, engine: &Engine) -> Memory {
        let [n, m, targets] =
            [self.measurements, self.truth_slopes, self.system.targets().len()].map(|k| k as u64);
        let rows = targets * m * if self.is_delayed() { 2 } else { 1 };
        let working = 8 * (7 * BLOCK as u64 * n + 16 * self.spectra());
        let results = 8 * (3 * rows).saturating_mul(n).saturating_add(5 * rows * m);
        let devices = vec![self.bytes_of_iterations(engine); engine.devices().len()];
        Memory::of_stages(results, [&Memory { host: working, devices }])
    }

    // Numbers of the operators
    /// Numbers of the spectra of the operator and of its preconditioner, or a little more, which their kernels do not exceed.
    fn spectra(&self) -> u64 {
        let stars = self.system.guide_stars();
        let lags = 2 * stars[0].sensor.array.lenslets() as u64;
        8 * (stars.len() as u64).pow(2) * lags.next_multiple_of(32).pow(2)
    }

    /// Bytes of both on each device.
    fn bytes_of_iterations(&self, engine: &Engine) -> u64 {
        let size = match engine.precision() {
            Precision::F64 => 8,
            Precision::F32 => 4,
        };
        size * (self.spectra() + 12 * self.measurements as u64) + (32 << 20)
    }

    /// Seconds of one thread for the solutions.
    pub(super) fn work_of_iterations(&self) -> f64 {
        let rows = (self.truth_slopes * self.system.targets().len()) as f64;
        let rows = if self.is_delayed() { 2.0 * rows } else { rows };
        let stars = self.system.guide_stars();
        let lags = 2 * stars[0].sensor.array.lenslets() - 1;
        let product = toeplitz_product(stars.len(), lags);
        2.0 * rows * product * iterations(&self.system, self.stop().iterations)
    }

    /// Refuses to iterate on a device where the tilt or focus of a guide star is not measured.
    pub(super) fn check_modes(&self, engine: &Engine) -> Result<(), Invalid> {
        let reason = "a graphics processor iterates with all that stars see; use cpu, or method = \"cholesky\"";
        let blind = !engine.devices().is_empty() && self.method == Inversion::Iterative;
        if blind { self.system.expect_measured(reason) } else { Ok(()) }
    }
}

// Tests of iterated reconstructors
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{gpu::test_machines, silent};
    use crate::model::lenslet_array::LensletArray;
    use crate::model::system::System;
    use crate::model::unmeasured::TipTilt;
    use crate::tomography::estimate::tests::{streaked, system};
    use crate::tomography::reconstructor::ReconstructorOptions;

    fn run(system: &System, options: ReconstructorOptions, engine: &Engine) -> Reconstruction {
        ReconstructorPlan::new(system, options).unwrap().run(engine, &silent).unwrap()
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
        let c = CovarianceMatrices::of(&system, &silent).unwrap();
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
    /// The same system with a wind.
    fn windy(system: &System) -> System {
        let air = system.atmosphere();
        let mut layers = air.layers().to_vec();
        layers.iter_mut().for_each(|layer| layer.wind_speed = 12.0);
        let r0 = air.fried_parameter();
        let air = crate::model::Atmosphere::new(r0, air.wavelength(), layers).unwrap();
        system.to_builder().atmosphere(air).build().unwrap()
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
        let told = vast.describe(&engine);
        assert!(told.reason.contains("does not fit") && told.form == "toeplitz", "{}", told.reason);
        let iterative = options.method(Inversion::Iterative);
        let mixed = system(["90e3", "inf"], 0.0);
        assert!(ReconstructorPlan::new(&mixed, iterative).is_err());
        for (bad, words) in [
            (iterative.keep(true), "keep = true: expected false"),
            (iterative.filter(0.1), "filter = 0.1: expected 0"),
            (iterative.tolerance(0.0), "tolerance = 0.0: expected between 0 and 1"),
        ] {
            let error = ReconstructorPlan::new(&shared, bad).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
        let one = LensletArray::new(1, 3.5).unwrap(); // a single row for each axis, as the emulated device is slow
        let target = shared.targets()[..1].to_vec();
        let few = shared.to_builder().targets(target).truth_sensor(Some(one)).build().unwrap();
        for gpu in test_machines() {
            // Iterate on a device in either precision
            let here = run(&few, options, &engine);
            for (precision, tolerance, bounds) in
                [(Precision::F64, 1e-8, [1e-5, 1e-9]), (Precision::F32, 1e-4, [2e-2, 1e-4])]
            {
                let there = Engine::gpus(vec![gpu.clone()], precision).unwrap();
                let found = run(&few, iterative.tolerance(tolerance), &there);
                let gaps = [
                    gap(r(&found), r(&here)),
                    gap(&found.error_covariance, &here.error_covariance),
                ];
                assert!(gaps[0] < bounds[0] && gaps[1] < bounds[1], "{precision:?}: {gaps:?}");
            }
            let mut stars = shared.guide_stars().to_vec();
            stars[0].tip_tilt = TipTilt::Removed;
            let blind = shared.to_builder().guide_stars(stars).build().unwrap();
            let there = Engine::gpus(vec![gpu.clone()], Precision::F64).unwrap();
            let refused = ReconstructorPlan::new(&blind, iterative).unwrap().run(&there, &silent);
            assert!(refused.unwrap_err().to_string().contains("expected measured"));
        }
    }
}
