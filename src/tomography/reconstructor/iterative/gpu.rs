// Tangled from book/src/iterative-gpu.md: edit there, or here and run cargo tangle stitch.
//! The reconstructor by iterations on devices.

// Imports of iterating on devices
use crate::device::gpu::Gpu;
use crate::device::{Workers, engine::Engine, gather, lock};
use crate::error::Error;
use crate::estimation::blocks::{MeasuredCovariance, gpu::systems_on};
use crate::estimation::estimate::unit_of;
use crate::linear::solver::multi_rhs::gpu::SideBySide;
use crate::numerics::real::{Precision, Real};
use crate::tomography::reconstructor::ReconstructorPlan;
use crate::watch::{Watch, check};
use ndarray::{Array1, Array2, ArrayView2, Axis, s};
use std::sync::Mutex;

// Rows of a reconstructor on devices
impl ReconstructorPlan {
    // Iterate in the precision of devices
    /// The solutions for right-hand sides, and their residuals, as rows, by the devices of an engine.
    pub(super) fn solve_rows_on_device(
        &self,
        measured: &MeasuredCovariance,
        rows: &Array2<f64>,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<[Array2<f64>; 2], Error> {
        match engine.precision() {
            Precision::F64 => self.rows_in_precision::<f64>(measured, rows, engine, watch),
            Precision::F32 => self.rows_in_precision::<f32>(measured, rows, engine, watch),
        }
    }

    fn rows_in_precision<T: Real>(
        &self,
        measured: &MeasuredCovariance,
        rows: &Array2<f64>,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<[Array2<f64>; 2], Error> {
        let (systems, gpus) = (self.rows_at_a_time(rows.nrows(), engine), engine.devices());
        let solver = |gpu: &Gpu| systems_on::<T>(gpu, measured, systems).map(Mutex::new);
        let solvers = gpus.iter().map(solver).collect::<Result<Vec<_>, Error>>()?;
        let firsts: Vec<usize> = (0..rows.nrows()).step_by(systems).collect();
        let solutions = gather(Workers::devices(&solvers), &firsts, watch, |solver, &first| {
            let mut solver = lock(solver);
            let some = rows.slice(s![first..rows.nrows().min(first + systems), ..]);
            self.solve_some(&mut solver, some, watch)
        })?;
        let mut all = [Array2::zeros(rows.dim()), Array2::zeros(rows.dim())];
        for (&first, solutions) in firsts.iter().zip(solutions) {
            for (all, solutions) in all.iter_mut().zip(solutions) {
                all.slice_mut(s![first..first + solutions.nrows(), ..]).assign(&solutions);
            }
        }
        Ok(all)
    }
}

// Solve some rows on a device
impl ReconstructorPlan {
    /// The solutions for some rows, and their residuals.
    fn solve_some<T: Real>(
        &self,
        solver: &mut SideBySide<T>,
        rows: ArrayView2<f64>,
        watch: &dyn Watch,
    ) -> Result<[Array2<f64>; 2], Error> {
        let units: Array1<f64> = rows.outer_iter().map(unit_of).collect();
        let units = units.insert_axis(Axis(1));
        let solutions = solver.solve(&(&rows / &units), &self.stop(), &mut || check(watch))?;
        Ok(solutions.map(|rows| rows * &units))
    }
}
