// Tangled from book/src/stroke-commands-gpu.md: edit there, or here and run cargo tangle stitch.
//! Commands on a graphics processor.

// Imports of commands on a device
use super::{StrokeCommand, StrokeSum, command_part};
use crate::device::collective::BlockCyclic;
use crate::device::engine::Engine;
use crate::device::gpu::{Buffer, Gpu};
use crate::error::Error;
use crate::linear::factorisation::gpu::{read_rows, upload_rows};
use crate::model::system::SlopeModel;
use crate::numerics::real::{Precision, Real};
use crate::tomography::reconstructor::gpu::{FactorisedCovarianceGpu, HostColumns};
use crate::tomography::reconstructor::{RECONSTRUCTOR, ReconstructorPlan};
use crate::turbulence::{cross_covariance, edge_midpoint};
use crate::watch::{Watch, check};
use ndarray::Array2;

// Choose the precision of commands
impl ReconstructorPlan {
    /// As on processors, by a device, with numbers in a `unit` of the size of C_tt.
    pub(super) fn commands_on_device(
        &self,
        sums: &[StrokeSum],
        unit: f64,
        (gpu, precision): (&Gpu, Precision),
        watch: &dyn Watch,
    ) -> Result<Vec<StrokeCommand>, Error> {
        match precision {
            Precision::F64 => self.commands_by::<f64>(sums, (gpu, unit), watch),
            Precision::F32 => self.commands_by::<f32>(sums, (gpu, unit), watch),
        }
    }

    /// As on processors, by a device.
    pub(super) fn strokes_with_on_device(
        &self,
        t: usize,
        matrices: [&Array2<f64>; 2],
        unit: f64,
        (gpu, precision, watch): (&Gpu, Precision, &dyn Watch),
    ) -> Result<Array2<f64>, Error> {
        match precision {
            Precision::F64 => self.strokes_by::<f64>(t, matrices, (gpu, unit), watch),
            Precision::F32 => self.strokes_by::<f32>(t, matrices, (gpu, unit), watch),
        }
    }
}

// Commands of one device
impl ReconstructorPlan {
    fn commands_by<T: Real>(
        &self,
        sums: &[StrokeSum],
        (gpu, unit): (&Gpu, f64),
        watch: &dyn Watch,
    ) -> Result<Vec<StrokeCommand>, Error> {
        let (n, deal) = (self.measurements, BlockCyclic::whole(self.measurements));
        let (to, here) = ((gpu, unit, &deal), HostColumns::of(gpu, &deal)?);
        let apart = self.taken_apart::<T>(to, &here, watch)?;
        let command = |(number, sum): (usize, &StrokeSum)| {
            let watch = &command_part(number, sums.len(), watch);
            let a = sum.first().map_or(0, |(_, part)| part.nrows());
            let rows = gpu.zeros::<T>(a * n)?;
            // Add a target to the sum on a device
            for (t, part) in sum {
                let (between, m) =
                    (self.between_on_device::<T>(*t, to, &here, watch)?, part.ncols());
                let part = upload_rows::<T>(gpu, *part, 1.0)?;
                let factors = [(part.view(..), false), (between.view(..), false)];
                gpu.multiply_matrices(factors, [a, m, n], &rows, [T::one(), T::one()])?;
            }
            watch.stage(RECONSTRUCTOR, "");
            apart.command(gpu, &rows, [a, n], unit)
        };
        sums.iter().enumerate().map(command).collect()
    }

    // Covariances of one target on a device
    /// C_tm of one target in the unit, (m, n), without the removed modes.
    fn between_on_device<T: Real>(
        &self,
        t: usize,
        to: (&Gpu, f64, &BlockCyclic),
        here: &HostColumns,
        watch: &dyn Watch,
    ) -> Result<Buffer<T>, Error> {
        check(watch)?;
        let one = self.for_target(t)?;
        let rows = one.rows_on_device::<T>(to, watch)?;
        one.remove_modes_on_device(to.0, here, &rows, &|_| Ok(()))?;
        Ok(rows)
    }
}

// Solve for a command on a device
impl<T: Real> FactorisedCovarianceGpu<T> {
    /// The command of the sum of P C_tm in the unit, (a, n), which is overwritten.
    fn command(
        &self,
        gpu: &Gpu,
        rows: &Buffer<T>,
        [a, n]: [usize; 2],
        unit: f64,
    ) -> Result<StrokeCommand, Error> {
        let variance = gpu.zeros::<T>(a * a)?;
        // Square the half of a solution
        let square = |half: &Buffer<T>| {
            let factors = [(half.view(..), false), (half.view(..), true)];
            let shape = [a, half.len() / a.max(1), a];
            gpu.multiply_matrices(factors, shape, &variance, [T::one(), T::zero()])
        };
        // Solve in two halves on the device
        match self {
            Self::Cholesky(factor) => {
                factor.halve(rows)?;
                square(rows)?;
                factor.finish(rows.view(..))?;
            }
            Self::Eigen(eigen) => {
                let half = eigen.project(rows)?;
                square(&half)?;
                eigen.expand(half.view(..), rows.view(..))?;
            }
        }
        let variance = read_rows(variance.view(..), a, unit)?;
        Ok(StrokeCommand { rows: read_rows(rows.view(..), n, 1.0)?, variance })
    }
}

// Strokes with a command on a device
impl ReconstructorPlan {
    fn strokes_by<T: Real>(
        &self,
        t: usize,
        [onto, command]: [&Array2<f64>; 2],
        (gpu, unit): (&Gpu, f64),
        watch: &dyn Watch,
    ) -> Result<Array2<f64>, Error> {
        let ((b, m), (a, n)) = (onto.dim(), command.dim());
        let deal = BlockCyclic::whole(n);
        let here = HostColumns::of(gpu, &deal)?;
        let between = self.between_on_device::<T>(t, (gpu, unit, &deal), &here, watch)?;
        let command = upload_rows::<T>(gpu, command, 1.0)?;
        let (with, product) = (gpu.zeros::<T>(m * a)?, gpu.zeros::<T>(b * a)?);
        let factors = [(between.view(..), false), (command.view(..), true)];
        gpu.multiply_matrices(factors, [m, n, a], &with, [T::one(), T::zero()])?;
        let onto = upload_rows::<T>(gpu, onto, 1.0)?;
        let factors = [(onto.view(..), false), (with.view(..), false)];
        gpu.multiply_matrices(factors, [b, m, a], &product, [T::one(), T::zero()])?;
        read_rows(product.view(..), a, unit)
    }
}

// Memory of commands on a device
impl ReconstructorPlan {
    /// Bytes that commands of so many actuators take on each device of an engine.
    pub(super) fn on_devices_for_commands(&self, actuators: usize, engine: &Engine) -> Vec<u64> {
        let (air, sensors) = (self.system.atmosphere(), self.system.sensors());
        let covariances = match self.system.slope_model() {
            SlopeModel::Average => cross_covariance::gpu::bytes(engine.precision(), air, &sensors),
            SlopeModel::EdgeMidpoint => edge_midpoint::gpu::bytes(air, &sensors),
        };
        let [n, m, a] = [self.measurements, self.truth_slopes, actuators].map(|k| k as u64);
        let bytes = if engine.precision() == Precision::F32 { 4 } else { 8 };
        let own = bytes * (2 * a * (n + a) + 2 * m * a);
        let one = self.for_target(0).map_or(0, |one| one.on_first(engine.precision()));
        let mut all = vec![0; engine.devices().len()];
        all.iter_mut().take(1).for_each(|first| *first = covariances.max(one.saturating_add(own)));
        all
    }
}
