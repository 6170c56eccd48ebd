// Tangled from book/src/estimate-gpu.md: edit there, or here and run cargo tangle stitch.
//! Estimates by a factor in a build without graphics processors.

use super::{Factored, Factorised};
use crate::device::{engine::Engine, gpu::on_none};
use crate::error::Error;
use crate::estimation::estimate::{EstimateOptions, Model};
use ndarray::Array2;

impl Factorised {
    pub(super) fn there(
        _model: &Model,
        _options: EstimateOptions,
        _matrix: (Array2<f64>, bool),
        engine: &Engine,
        _blame: &dyn Fn(usize) -> Error,
    ) -> Result<Box<dyn Factored>, Error> {
        on_none(engine.devices())
    }

    pub(crate) fn bytes_on_device(_n: usize, _filtered: bool, _engine: &Engine) -> u64 {
        0
    }
}
