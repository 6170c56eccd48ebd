// Tangled from book/src/wavefront-reconstructor-gpu.md: edit there, or here and run cargo tangle stitch.
//! The reconstructor of wavefronts by a factor on a graphics processor.

// Imports of the wavefront reconstructor on a device
use super::{ExplainedWavefront, SolvedWavefronts};
use crate::device::collective::BlockCyclic;
use crate::device::engine::Engine;
use crate::device::gpu::{Buffer, Gpu};
use crate::error::Error;
use crate::linear::factorisation::gpu::{read_rows, upload_rows};
use crate::numerics::real::{Precision, Real};
use crate::tomography::point_errors::Lit;
use crate::tomography::reconstructor::ReconstructorPlan;
use crate::tomography::reconstructor::gpu::{FactorisedCovarianceGpu, HostColumns};
use crate::watch::Watch;
use ndarray::Array2;

// Choose the precision of wavefronts
impl ReconstructorPlan {
    /// As on processors, by one device: C_mm is made and factorised there.
    pub(super) fn wavefronts_on_device(
        &self,
        lit: &Lit,
        (gpu, engine): (&Gpu, &Engine),
        watch: &dyn Watch,
    ) -> Result<SolvedWavefronts, Error> {
        match engine.precision() {
            Precision::F64 => self.wavefronts_by::<f64>(lit, (gpu, engine), watch),
            Precision::F32 => self.wavefronts_by::<f32>(lit, (gpu, engine), watch),
        }
    }

    // Solve for wavefronts by a factor on a device
    fn wavefronts_by<T: Real>(
        &self,
        lit: &Lit,
        (gpu, engine): (&Gpu, &Engine),
        watch: &dyn Watch,
    ) -> Result<SolvedWavefronts, Error> {
        let mut rows = self.wavefront_rows(engine, watch)?;
        let (n, unit, deal) =
            (self.measurements, self.unit_of_slopes(), BlockCyclic::whole(self.measurements));
        let here = HostColumns::of(gpu, &deal)?;
        let factorised = self.taken_apart::<T>((gpu, unit, &deal), &here, watch)?;
        let explained = self.solve_each_target(&mut rows, watch, &|own| {
            let unit_of_rows = unit_of(&own);
            let there = upload_rows::<T>(gpu, &own, unit_of_rows)?;
            factorised.solve(&there)?;
            let solution = read_rows(there.view(..), n, unit_of_rows / unit)?;
            let explained = ExplainedWavefront::of(lit, [own.view(), solution.view()]);
            Ok((solution, explained))
        })?;
        Ok((rows, explained, factorised.spectrum(unit)))
    }

    // Units for single precision
    /// A power of two of the order of the variance of a slope, rad².
    fn unit_of_slopes(&self) -> f64 {
        let air = self.system.atmosphere();
        let strength = air.wavelength().powi(2) / air.fried_parameter().powf(5.0 / 3.0);
        power_of_two(0.1622 * strength / self.system.lenslet_array().pitch().cbrt())
    }
}

// Powers of two as units
/// A power of two of the order of the largest element.
fn unit_of(matrix: &Array2<f64>) -> f64 {
    power_of_two(matrix.fold(0.0, |most: f64, value| most.max(value.abs())))
}

/// The largest power of two that is not above a size, or 1 for a size that is not a normal number.
fn power_of_two(size: f64) -> f64 {
    if size.is_normal() { size.log2().floor().exp2() } else { 1.0 }
}

// Solve in place on a device
impl<T: Real> FactorisedCovarianceGpu<T> {
    /// Replaces rows B, (m, n), by B C_mm⁻¹.
    fn solve(&self, rows: &Buffer<T>) -> Result<(), Error> {
        match self {
            Self::Cholesky(factor) => {
                factor.halve(rows)?;
                factor.finish(rows.view(..))
            }
            Self::Eigen(eigen) => eigen.expand(eigen.project(rows)?.view(..), rows.view(..)),
        }
    }

    // Spectrum of a factor on a device
    /// The eigenvalues times a unit, ascending, and how many are kept, where there are eigenvectors.
    fn spectrum(&self, unit: f64) -> Option<(Vec<f64>, usize)> {
        match self {
            Self::Cholesky(_) => None,
            Self::Eigen(eigen) => {
                let (values, kept) = eigen.spectrum();
                Some((values.iter().map(|value| unit * value).collect(), kept))
            }
        }
    }
}
