// Tangled from book/src/estimate-gpu.md: edit there, or here and run cargo tangle stitch.
//! Estimates in a build without graphics processors.

use crate::device::{engine::Engine, gpu::on_none};
use crate::error::Error;
use crate::estimation::estimate::{EstimateOptions, Frames, Model, PosedEstimate};
use crate::estimation::inversion::Inversion;

pub(super) fn on_devices(_posed: &PosedEstimate, _engine: &Engine) -> Vec<u64> {
    Vec::new()
}

pub(super) fn without_factors(_engine: &Engine, _method: Inversion) -> Option<String> {
    None
}

pub(super) fn estimators(
    engine: &Engine,
    _model: &Model,
    _options: EstimateOptions,
) -> Result<Box<dyn Frames>, Error> {
    on_none(engine.devices())
}
