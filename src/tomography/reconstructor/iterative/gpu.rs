// Tangled from book/src/reconstructor-gpu.md: edit there, or here and run cargo tangle stitch.
//! The reconstructor by iterations on devices.

// What iterating on devices stands on
use crate::device::gpu::{Buffer, Gpu};
use crate::device::{Watch, Workers, check, engine::Engine, gather};
use crate::error::Error;
use crate::linear::operator::Pairs;
use crate::linear::operator::gpu::{DeviceOperator, WithPairsGpu};
use crate::linear::solver::Solver;
use crate::linear::solver::gpu::{SolverGpu, Start};
use crate::linear::toeplitz::gpu::BlockToeplitzGpu;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::noise::SlopeNoise;
use crate::numerics::real::{Precision, Real};
use crate::tomography::circulant::Group;
use crate::tomography::circulant::gpu::CirculantGpu;
use crate::tomography::estimate::unit_of;
use crate::tomography::reconstructor::ReconstructorPlan;
use crate::turbulence::slope::SlopeCovariance;
use ndarray::{Array2, ArrayView1};
use std::sync::{Arc, Mutex, PoisonError};

// Rows of a reconstructor on devices
impl ReconstructorPlan {
    /// The solutions for right-hand sides, and their residuals, as rows, by the devices of an engine.
    pub(super) fn solve_rows_there(
        &self,
        table: &SlopeCovariance,
        rows: &Array2<f64>,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<[Array2<f64>; 2], Error> {
        match engine.precision() {
            Precision::F64 => self.rows_in_precision::<f64>(table, rows, engine.devices(), watch),
            Precision::F32 => self.rows_in_precision::<f32>(table, rows, engine.devices(), watch),
        }
    }

    fn rows_in_precision<T: Real>(
        &self,
        table: &SlopeCovariance,
        rows: &Array2<f64>,
        gpus: &[Gpu],
        watch: &dyn Watch,
    ) -> Result<[Array2<f64>; 2], Error> {
        let solver = |gpu: &Gpu| self.solver_there::<T>(gpu, table);
        let solvers = gpus.iter().map(solver).collect::<Result<Vec<_>, Error>>()?;
        let found = gather(Workers::devices(&solvers), 0..rows.nrows(), watch, |solver, k| {
            let mut solver = solver.lock().unwrap_or_else(PoisonError::into_inner);
            solver.solve(rows.row(k), self, watch)
        })?;
        let mut all = [Array2::zeros(rows.dim()), Array2::zeros(rows.dim())];
        for (k, found) in found.into_iter().enumerate() {
            for (all, found) in all.iter_mut().zip(found) {
                all.row_mut(k).assign(&ArrayView1::from(&found[..]));
            }
        }
        Ok(all)
    }
}

// Solver of rows on a device
/// What solves row by row on a device.
struct RowSolver<T> {
    measured: Arc<dyn DeviceOperator<T>>,
    solver: SolverGpu<T>,
    /// A right-hand side, and a product.
    vectors: [Buffer<T>; 2],
}

impl<T: Real> RowSolver<T> {
    fn solve(
        &mut self,
        row: ArrayView1<f64>,
        plan: &ReconstructorPlan,
        watch: &dyn Watch,
    ) -> Result<[Vec<f64>; 2], Error> {
        let (unit, [b, product]) = (unit_of(row), &self.vectors);
        b.write(&row.iter().map(|&value| T::of(value / unit)).collect::<Vec<T>>())?;
        let stop = plan.stop();
        self.solver.solve(b, Start::Cold, &stop, &mut |_, _| check(watch))?;
        self.measured.apply(self.solver.solution(), product)?;
        let x = self.solver.solution().read()?;
        let x = x.into_iter().map(|value| unit * value.in_double()).collect();
        let products = product.read()?.into_iter().map(|value| unit * value.in_double());
        Ok([x, row.iter().zip(products).map(|(b, product)| b - product).collect()])
    }
}

// Make a solver of rows on a device
impl ReconstructorPlan {
    fn solver_there<T: Real>(
        &self,
        gpu: &Gpu,
        table: &SlopeCovariance,
    ) -> Result<Mutex<RowSolver<T>>, Error> {
        let valid = self.system.valid_lenslets();
        let all = SlopeNoise::new(self.system.guide_stars(), &SlopeOrder::new(&valid));
        let slopes = BlockToeplitzGpu::slopes(gpu, table, &valid)?;
        let slopes = Arc::new(slopes.with_diagonal(&all.variances)?);
        let (noise, stars) = self.noise_of_stars();
        let group = Group { covariance: table, noise: &noise, valid: &valid, stars: &stars };
        let preconditioner = Arc::new(CirculantGpu::new(gpu, &[group])?);
        let (measured, solver): (Arc<dyn DeviceOperator<T>>, _) = if all.is_correlated() {
            let pairs = Pairs::new(all.partners, all.covariances)?;
            let measured = Arc::new(WithPairsGpu::new(slopes, &pairs)?);
            let cg = Solver::ConjugateGradients;
            (measured.clone(), SolverGpu::new(cg, measured, Some(preconditioner))?)
        } else {
            (slopes.clone(), SolverGpu::between_transforms(slopes, preconditioner)?)
        };
        let vectors = [gpu.zeros(measured.rows())?, gpu.zeros(measured.rows())?];
        Ok(Mutex::new(RowSolver { measured, solver, vectors }))
    }
}
