// Tangled from book/src/point-errors-gpu.md: edit there, or here and run cargo tangle stitch.
//! Errors at points in a build without graphics processors.

use super::{Answers, Job, PointErrorsPlan};
use crate::device::{engine::Engine, gpu::on_none};
use crate::error::Error;
use crate::estimation::estimate::Model;
use crate::watch::Watch;

impl PointErrorsPlan {
    pub(super) fn bytes_on_device(&self, _batch: usize, _engine: &Engine) -> u64 {
        0
    }

    pub(super) fn batch_on(&self, _engine: &Engine) -> usize {
        1
    }
}

impl Job<'_> {
    pub(super) fn explain_on_device(
        &self,
        _model: &Model,
        engine: &Engine,
        _watch: &dyn Watch,
    ) -> Result<Answers, Error> {
        on_none(engine.devices())
    }
}
