// Tangled from book/src/reconstructor-gpu.md: edit there, or here and run cargo tangle stitch.
//! The reconstructor by iterations in a build without graphics processors.

use crate::device::{engine::Engine, gpu::on_none};
use crate::error::Error;
use crate::estimation::blocks::Measured;
use crate::tomography::reconstructor::ReconstructorPlan;
use crate::watch::Watch;
use ndarray::Array2;

impl ReconstructorPlan {
    pub(super) fn solve_rows_on_device(
        &self,
        _measured: &Measured,
        _rows: &Array2<f64>,
        engine: &Engine,
        _watch: &dyn Watch,
    ) -> Result<[Array2<f64>; 2], Error> {
        on_none(engine.devices())
    }
}
