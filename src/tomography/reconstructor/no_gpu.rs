// Tangled from book/src/reconstructor-gpu.md: edit there, or here and run cargo tangle stitch.
//! Reconstructors in a build without graphics processors.

use super::{ErrorSink, Inverted, ReconstructorPlan};
use crate::device::{engine::Engine, gpu::on_none};
use crate::error::{Error, Invalid};
use crate::watch::Watch;
use ndarray::Array2;

impl ReconstructorPlan {
    pub(super) fn on_devices(&self, _engine: &Engine) -> Vec<u64> {
        Vec::new()
    }

    pub(super) fn invert_on_device(
        &self,
        _truth: &Array2<f64>,
        engine: &Engine,
        _watch: &dyn Watch,
    ) -> Result<Inverted, Error> {
        on_none(engine.devices())
    }

    pub(super) fn each_error_on_device(
        &self,
        engine: &Engine,
        _watch: &dyn Watch,
        _sink: &mut ErrorSink,
    ) -> Result<(), Error> {
        on_none(engine.devices())
    }

    pub(super) fn why_alone(&self, _engine: &Engine) -> Option<String> {
        None
    }

    pub(super) fn is_shared(&self, _engine: &Engine) -> bool {
        false
    }

    pub(super) fn has_border(&self, _engine: &Engine) -> bool {
        false
    }

    pub(super) fn check_ranks(&self, _engine: &Engine) -> Result<(), Invalid> {
        Ok(())
    }

    pub(super) fn invert_together(
        &self,
        _truth: &Array2<f64>,
        engine: &Engine,
        _watch: &dyn Watch,
    ) -> Result<Option<Inverted>, Error> {
        on_none(engine.devices())
    }
}
