// Tangled from book/src/reconstructor-gpu.md: edit there, or here and run cargo tangle stitch.
//! Reconstructors in a build without graphics processors.

use super::{Inverted, ReconstructorPlan};
use crate::device::{Watch, engine::Engine, gpu::on_none};
use crate::error::Error;
use ndarray::Array2;

impl ReconstructorPlan {
    pub(super) fn on_devices(&self, _engine: &Engine) -> Vec<u64> {
        Vec::new()
    }

    pub(super) fn invert_there(
        &self,
        _truth: &Array2<f64>,
        _given: Option<[Array2<f64>; 2]>,
        engine: &Engine,
        _watch: &dyn Watch,
    ) -> Result<Inverted, Error> {
        on_none(engine.devices())
    }
}
