// Tangled from book/src/mirrors-gpu.md: edit there, or here and run cargo tangle stitch.
//! Projectors onto a mirror by a device.

// Imports of projectors on a device
use super::{Projector, make_even};
use crate::device::Engine;
use crate::device::gpu::{Buffer, Gpu};
use crate::error::Error;
use crate::linear::factorisation::gpu::{EigenGpu, read_rows, upload_rows};
use ndarray::{Array2, ArrayView2};

// Choose a device for a projector
/// Filters below this require singular values.
const COARSE: f64 = 1e-3;

impl Projector {
    /// The device of an engine that computes a projector with this filter, if there is one.
    pub(super) fn device(engine: &Engine, filter: f64) -> Option<&Gpu> {
        let coarse = filter >= COARSE;
        engine.devices().first().filter(|gpu| coarse && gpu.require_factors(true).is_ok())
    }
}

// Projector by eigenvectors
impl Projector {
    /// The projector of an interaction matrix by a device.
    pub(super) fn there(gpu: &Gpu, interaction: Array2<f64>, filter: f64) -> Result<Self, Error> {
        let (m, a) = interaction.dim();
        let unit = interaction.fold(0.0, |most: f64, slope| most.max(slope.abs()));
        let matrix = upload_rows::<f64>(gpu, &interaction, unit)?;
        let square = gpu.zeros::<f64>(a * a)?;
        let twice = [(matrix.view(..), true), (matrix.view(..), false)];
        gpu.multiply_matrices(twice, [a, m, a], &square, [1.0, 0.0])?;
        let eigen = EigenGpu::new(gpu, square, a, filter * filter)?;
        let along = eigen.project(&matrix)?;
        eigen.expand(along.view(..), matrix.view(..))?;
        let inverse = read_rows(matrix.view(..), a, 1.0 / unit)?;
        let (values, kept) = eigen.spectrum();
        let values = values.iter().rev().map(|value| unit * value.max(0.0).sqrt()).collect();
        Ok(Self {
            interaction,
            inverse: inverse.t().as_standard_layout().into_owned(),
            values,
            kept,
        })
    }

    // Errors of strokes by a device
    // Errors of strokes copied back
    /// C_vv of C_ee by a device, as [`stroke_errors`](Self::stroke_errors).
    pub(super) fn errors_on_device(
        &self,
        gpu: &Gpu,
        slope_errors: &ArrayView2<f64>,
    ) -> Result<Array2<f64>, Error> {
        let strokes = self.errors_kept(gpu, slope_errors)?;
        let mut strokes = read_rows(strokes.view(..), self.inverse.nrows(), 1.0)?;
        make_even(&mut strokes);
        Ok(strokes)
    }

    /// C_vv, (a, a), m², by rows in the memory of the device, symmetric up to rounding errors.
    ///
    /// # Errors
    /// `Invalid` if the shape is not that of the slopes of the truth sensor; errors of the device.
    pub(crate) fn errors_kept(
        &self,
        gpu: &Gpu,
        slope_errors: &ArrayView2<f64>,
    ) -> Result<Buffer<f64>, Error> {
        self.check_errors(slope_errors)?;
        let (a, m) = self.inverse.dim();
        let inverse = upload_rows::<f64>(gpu, &self.inverse, 1.0)?;
        let errors = upload_rows::<f64>(gpu, slope_errors, 1.0)?;
        let (once, strokes) = (gpu.zeros::<f64>(a * m)?, gpu.zeros::<f64>(a * a)?);
        let first = [(inverse.view(..), false), (errors.view(..), false)];
        gpu.multiply_matrices(first, [a, m, m], &once, [1.0, 0.0])?;
        let second = [(once.view(..), false), (inverse.view(..), true)];
        gpu.multiply_matrices(second, [a, m, a], &strokes, [1.0, 0.0])?;
        Ok(strokes)
    }
}

// Tests of projectors on a device
#[cfg(test)]
mod tests {
    use super::*;
    use crate::correction::mirror::Mirror;
    use crate::correction::mirror::tests::{star, ten_across};
    use crate::device::gpu::test_backends;
    use crate::model::mirror::{MirrorDesign, Spacing};
    use crate::model::system::SlopeModel;
    use crate::numerics::real::Precision;

    #[test]
    fn projectors_of_devices_are_those_of_cores() {
        let system = ten_across(SlopeModel::Average, &[]);
        let mirror = Mirror::new(&MirrorDesign::new(Spacing::Actuators(11)), &system).unwrap();
        let interaction = mirror.interaction(&system, &star(1e-5, 0.0));
        let here = Projector::of(interaction.clone(), 0.03, &Engine::default()).unwrap();
        let largest = |matrix: &Array2<f64>| matrix.fold(0.0, |most: f64, x| most.max(x.abs()));
        let errors = Array2::from_shape_fn((152, 152), |(k, l)| {
            let wave = |k: usize| 1e-14 * ((3 * k + 1) as f64).cos();
            wave(k) * wave(l) + if k == l { 1e-28 } else { 0.0 }
        });
        let strokes = here.stroke_errors(&errors.view(), &Engine::default()).unwrap();
        for gpu in test_backends() {
            // Compare projectors of device and host
            let engine = Engine::gpus(vec![gpu.clone()], Precision::F64).unwrap();
            let found = here.stroke_errors(&errors.view(), &engine).unwrap();
            assert!(largest(&(&found - &strokes)) < 1e-11 * largest(&strokes), "{}", gpu.name());
            assert!(Projector::device(&engine, 1e-4).is_none());
            if Projector::device(&engine, 0.03).is_none() {
                eprintln!("skipped on {}: no eigenvectors", gpu.name());
                continue;
            }
            let there = Projector::of(interaction.clone(), 0.03, &engine).unwrap();
            assert_eq!(there.spectrum().1, here.spectrum().1);
            assert!(there.spectrum().1 < 100);
            let gap = largest(&(there.inverse() - here.inverse()));
            assert!(gap < 1e-10 * largest(here.inverse()), "{}: {gap:e}", gpu.name());
            let pairs = there.spectrum().0.iter().zip(here.spectrum().0);
            let gap = pairs.fold(0.0, |most: f64, (a, b)| most.max((a - b).abs()));
            assert!(gap < 1e-7 * here.spectrum().0[0], "{}: {gap:e}", gpu.name());
        }
    }
}
