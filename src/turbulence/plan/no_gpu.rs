// Tangled from book/src/covariance.md: edit there, or here and run cargo tangle stitch.
//! Plans of covariances in a build without graphics processors.

use super::{CovariancePlan, SlopeCovariancePlan, WavefrontCovariancePlan};
use crate::device::{engine::Engine, gpu::on_none};
use crate::error::Error;
use crate::model::system::System;
use crate::turbulence::slope::PairCovariance;
use crate::turbulence::wavefront::WavefrontSlope;
use crate::watch::Watch;
use ndarray::Array2;

// Dense covariances on no device
impl CovariancePlan {
    pub(super) fn dense_on_devices(_system: &System, _engine: &Engine) -> Vec<u64> {
        Vec::new()
    }

    pub(super) fn dense_slopes_on(
        _system: &System,
        engine: &Engine,
        _watch: &dyn Watch,
    ) -> Result<Array2<f64>, Error> {
        on_none(engine.devices())
    }

    pub(super) fn cross_covariance_on(
        _atmosphere: &crate::model::Atmosphere,
        _sensors: [(&[crate::model::Sensor], &[Array2<bool>]); 2],
        _gradient: crate::model::ConeGradient,
        engine: &Engine,
        _watch: &dyn Watch,
    ) -> Result<Array2<f64>, Error> {
        on_none(engine.devices())
    }
}

impl SlopeCovariancePlan {
    pub(super) fn on_devices(&self, _engine: &Engine) -> Vec<u64> {
        Vec::new()
    }

    pub(super) fn pairs_on(
        &self,
        engine: &Engine,
        _watch: &dyn Watch,
    ) -> Result<Vec<PairCovariance>, Error> {
        on_none(engine.devices())
    }
}

impl WavefrontCovariancePlan {
    pub(super) fn on_devices(&self, _engine: &Engine) -> Vec<u64> {
        Vec::new()
    }

    pub(super) fn compute_on(
        &self,
        engine: &Engine,
        _watch: &dyn Watch,
    ) -> Result<WavefrontSlope, Error> {
        on_none(engine.devices())
    }
}
