// Tangled from book/src/covariance-gpu.md: edit there, or here and run cargo tangle stitch.
//! Plans of covariances on graphics processors.

// Imports of plans on devices
use super::{CovariancePlan, SlopeCovariancePlan, WavefrontCovariancePlan};
use crate::device::engine::Engine;
use crate::error::Error;
use crate::model::system::{SlopeModel, System};
use crate::numerics::real::{Precision, Real};
use crate::turbulence::direct::slope::gpu::{pair_covariances_on, pieces};
use crate::turbulence::slope::PairCovariance;
use crate::turbulence::wavefront::WavefrontSlope;
use crate::turbulence::{cross_covariance, direct, edge_midpoint, spectral};
use crate::watch::Watch;
use ndarray::Array2;

impl SlopeCovariancePlan {
    // Count the memory of slopes on devices
    /// Bytes that the plan takes on each device of an engine.
    pub(super) fn on_devices(&self, engine: &Engine) -> Vec<u64> {
        let (devices, pairs) = (engine.devices().len(), self.problem.pairs().len());
        let most = pieces(pairs, devices).map(|piece| piece.len()).max().unwrap_or(0);
        let bytes = match (&self.chosen, engine.precision()) {
            (None, Precision::F64) => direct::slope::gpu::memory::<f64>(&self.problem, most),
            (None, Precision::F32) => direct::slope::gpu::memory::<f32>(&self.problem, most),
            (Some(chosen), Precision::F64) => {
                spectral::gpu::slope_memory::<f64>(&self.problem, &chosen.sampling)
            }
            (Some(chosen), Precision::F32) => {
                spectral::gpu::slope_memory::<f32>(&self.problem, &chosen.sampling)
            }
        };
        vec![bytes; devices]
    }

    // Compute pairs of slopes on devices
    pub(super) fn pairs_on(
        &self,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Vec<PairCovariance>, Error> {
        let (problem, gpus) = (&self.problem, engine.devices());
        match (&self.chosen, engine.precision()) {
            (None, _) => pair_covariances_on(problem, engine, watch),
            (Some(chosen), Precision::F64) => {
                spectral::gpu::slope_pairs::<f64>(problem, &chosen.sampling, gpus, watch)
            }
            (Some(chosen), Precision::F32) => {
                spectral::gpu::slope_pairs::<f32>(problem, &chosen.sampling, gpus, watch)
            }
        }
    }
}

impl WavefrontCovariancePlan {
    // Count the memory of wavefronts on devices
    /// Bytes that the plan takes on each device of an engine.
    pub(super) fn on_devices(&self, engine: &Engine) -> Vec<u64> {
        let devices = engine.devices().len();
        let pairs = self.problem.targets() * self.problem.stars();
        let most = pieces(pairs, devices).map(|piece| piece.len()).max().unwrap_or(0);
        let bytes = match (&self.chosen, engine.precision()) {
            (None, Precision::F64) => direct::wavefront::gpu::memory::<f64>(&self.problem, most),
            (None, Precision::F32) => direct::wavefront::gpu::memory::<f32>(&self.problem, most),
            (Some(chosen), Precision::F64) => {
                spectral::gpu::wavefront_memory::<f64>(&self.problem, &chosen.sampling)
            }
            (Some(chosen), Precision::F32) => {
                spectral::gpu::wavefront_memory::<f32>(&self.problem, &chosen.sampling)
            }
        };
        vec![bytes; devices]
    }

    // Compute wavefronts and slopes on devices
    pub(super) fn compute_on(
        &self,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<WavefrontSlope, Error> {
        match engine.precision() {
            Precision::F64 => self.compute_in::<f64>(engine, watch),
            Precision::F32 => self.compute_in::<f32>(engine, watch),
        }
    }

    fn compute_in<T: Real>(
        &self,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<WavefrontSlope, Error> {
        match &self.chosen {
            None => direct::wavefront::gpu::covariance::<T>(&self.problem, engine, watch),
            Some(chosen) => {
                let gpus = engine.devices();
                spectral::gpu::wavefront::<T>(&self.problem, &chosen.sampling, gpus, watch)
            }
        }
    }
}

impl CovariancePlan {
    // Dense slopes on devices
    /// Bytes that the dense form takes on each device of an engine.
    pub(super) fn dense_on_devices(system: &System, engine: &Engine) -> Vec<u64> {
        let (air, sensors) = (system.atmosphere(), system.sensors());
        let bytes = match system.slope_model() {
            SlopeModel::Average => cross_covariance::gpu::bytes(engine.precision(), air, &sensors),
            SlopeModel::EdgeMidpoint => edge_midpoint::gpu::bytes_with_piece(air, &sensors),
        };
        vec![bytes; engine.devices().len()]
    }

    // Slope matrix on several devices
    /// The slope covariance matrix of a system on the devices of an engine, (n, n), rad².
    pub(super) fn dense_slopes_on(
        system: &System,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Array2<f64>, Error> {
        let (sensors, valid) = (system.sensors(), system.valid_lenslets());
        let (air, gradient) = (system.atmosphere(), system.cone_gradient());
        let (sensors, gpus) = ((sensors.as_slice(), valid.as_slice()), engine.devices());
        match (system.slope_model(), engine.precision()) {
            (SlopeModel::Average, Precision::F64) => {
                cross_covariance::gpu::slope_covariance::<f64>(air, sensors, gradient, gpus, watch)
            }
            (SlopeModel::Average, Precision::F32) => {
                cross_covariance::gpu::slope_covariance::<f32>(air, sensors, gradient, gpus, watch)
            }
            (SlopeModel::EdgeMidpoint, Precision::F64) => {
                edge_midpoint::gpu::slope_covariance::<f64>(air, sensors, gpus, watch)
            }
            (SlopeModel::EdgeMidpoint, Precision::F32) => {
                edge_midpoint::gpu::slope_covariance::<f32>(air, sensors, gpus, watch)
            }
        }
    }

    // Rows against columns on devices
    /// The covariances of the slopes of some sensors with those of others on the devices of an engine, (m, n), rad².
    pub(super) fn cross_covariance_on(
        atmosphere: &crate::model::Atmosphere,
        [first, second]: [(&[crate::model::Sensor], &[Array2<bool>]); 2],
        gradient: crate::model::ConeGradient,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Array2<f64>, Error> {
        let between = match engine.precision() {
            Precision::F64 => cross_covariance::gpu::slope_cross_covariance::<f64>,
            Precision::F32 => cross_covariance::gpu::slope_cross_covariance::<f32>,
        };
        between(atmosphere, first, second, gradient, engine.devices(), watch)
    }
}
