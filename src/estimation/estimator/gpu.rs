// Tangled from book/src/estimate-plan.md: edit there, or here and run cargo tangle stitch.
//! Estimates on the graphics processors of an engine.

// Imports of estimates on an engine's devices
use crate::device::{engine::Engine, gpu::Gpu};
use crate::error::Error;
use crate::estimation::estimate::gpu::{EstimatorGpu, bytes_needed, estimate_on};
use crate::estimation::estimate::{EstimateOptions, Estimates, Frames, Model, PosedEstimate};
use crate::estimation::inversion::Inversion;
use crate::numerics::real::{Precision, Real};
use crate::watch::Watch;
use ndarray::ArrayView2;
use rayon::prelude::*;

// Bytes of an estimate on each device
/// Bytes of the operators on each device of an engine.
pub(super) fn on_devices(posed: &PosedEstimate, engine: &Engine) -> Vec<u64> {
    let bytes = match engine.precision() {
        Precision::F64 => bytes_needed::<f64>(posed),
        Precision::F32 => bytes_needed::<f32>(posed),
    };
    vec![bytes; engine.devices().len()]
}

/// Why the first device of an engine has no factor to solve by, if it has none.
pub(super) fn without_factors(engine: &Engine, method: Inversion) -> Option<String> {
    let required = engine.devices().first()?.require_factors(method == Inversion::Eigen);
    required.err().map(|error| error.to_string())
}

// One estimator for each device
/// One estimator for each device.
pub(super) fn estimators(
    engine: &Engine,
    model: &Model,
    options: EstimateOptions,
) -> Result<Box<dyn Frames>, Error> {
    Ok(match engine.precision() {
        Precision::F64 => Box::new(in_precision::<f64>(engine.devices(), model, options)?),
        Precision::F32 => Box::new(in_precision::<f32>(engine.devices(), model, options)?),
    })
}

fn in_precision<T: Real>(
    gpus: &[Gpu],
    model: &Model,
    options: EstimateOptions,
) -> Result<Vec<EstimatorGpu<T>>, Error> {
    gpus.par_iter().map(|gpu| EstimatorGpu::of(gpu, model, options)).collect()
}

impl<T: Real> Frames for Vec<EstimatorGpu<T>> {
    // Answers of the estimators on devices
    fn frames(
        &self,
        slopes: ArrayView2<f64>,
        warm: bool,
        watch: &dyn Watch,
    ) -> Result<Estimates, Error> {
        estimate_on(self, slopes, warm, watch)
    }

    fn facts(&self) -> (usize, f64, [u64; 2]) {
        self.first().map_or((0, 0.0, [0; 2]), |estimator| {
            let bytes = [estimator.measured().bytes(), estimator.wavefront().bytes()];
            (estimator.slopes(), estimator.interpolation_error(), bytes)
        })
    }
}
