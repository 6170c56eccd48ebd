// Tangled from book/src/exposures-gpu.md: edit there, or here and run cargo tangle stitch.
//! Exposures of covariances of strokes on a device.

// Imports of exposures on a device
use super::{DeviceCamera, ExposureInputs, StrokeCovariance, StructureFunctionSource};
use crate::device::Engine;
use crate::device::gpu::{Buffer, Gpu, Pinned};
use crate::error::Error;
use crate::numerics::real::{Precision, Real};
use crate::psf::point_spread::gpu::{CameraGpu, quarter_of};
use crate::psf::point_spread::{Frame, PointSpread, Quarter};
use crate::psf::structure_function::gpu::StationaryGpu;
use ndarray::Array2;
use rayon::prelude::*;

// Exposures on a device
/// A camera behind a mirror, on a device.
struct ExposuresGpu<T> {
    gpu: Gpu,
    stationary: Option<StationaryGpu<T>>,
    camera: CameraGpu<T>,
    structure: Buffer<T>,
    brought: Option<Brought>,
}

impl<T: Real> DeviceCamera for ExposuresGpu<T> {
    fn begin(&mut self) -> Result<(), Error> {
        self.camera.begin()
    }

    // Add strokes from either memory
    fn add_strokes(&mut self, strokes: &StrokeCovariance) -> Result<(), Error> {
        let Some(stationary) = &self.stationary else { return Ok(()) };
        match strokes {
            StrokeCovariance::OnDevice(strokes) => {
                stationary.queue(strokes.view(..), &self.structure)?
            }
            StrokeCovariance::OnHost(strokes) => {
                let brought = match self.brought.take() {
                    Some(brought) => brought,
                    None => Brought::new(&self.gpu, strokes.len())?,
                };
                let brought = self.brought.insert(brought);
                brought.bring(&self.gpu, strokes)?;
                stationary.queue(brought.there.view(..strokes.len()), &self.structure)?;
            }
        }
        self.camera.add(&self.structure)
    }

    fn add_structure(&mut self, structure: &Array2<f64>) -> Result<(), Error> {
        self.structure.write(&quarter_of::<T>(structure, self.camera.side()))?;
        self.camera.add(&self.structure)
    }

    // Variance and images from a device
    fn variance(&self) -> Result<f64, Error> {
        self.camera.variance()
    }

    fn images(&mut self) -> Result<Vec<PointSpread>, Error> {
        self.camera.pass()?;
        self.camera.images()
    }

    fn quarters(&mut self) -> Result<Vec<(Quarter, Frame)>, Error> {
        self.camera.pass()?;
        self.camera.quarters()
    }
}

// Send strokes to a device
/// Numbers of a piece, about.
const PIECE: usize = 1 << 19;

/// Room for a covariance on a device, and pinned memory by which it comes.
struct Brought {
    there: Buffer<f64>,
    pieces: [Pinned<f64>; 2],
    length: usize,
}

impl Brought {
    fn new(gpu: &Gpu, numbers: usize) -> Result<Self, Error> {
        let pieces = numbers.div_ceil(PIECE).max(1);
        let length = numbers.div_ceil(pieces);
        let there = gpu.zeros(pieces * length)?;
        Ok(Self { there, pieces: [gpu.pinned(length)?, gpu.pinned(length)?], length })
    }

    // Send a covariance piece by piece
    /// Queues the rows of a covariance.
    fn bring(&mut self, gpu: &Gpu, strokes: &Array2<f64>) -> Result<(), Error> {
        let strokes = strokes.as_standard_layout();
        let values = strokes.as_slice().unwrap_or_else(|| unreachable!("rows, as just laid"));
        for (k, values) in values.chunks(self.length).enumerate() {
            let piece = &mut self.pieces[k % 2];
            let to = piece.values_mut()?[..values.len()].par_chunks_mut(1 << 14);
            to.zip(values.par_chunks(1 << 14)).for_each(|(to, from)| to.copy_from_slice(from));
            gpu.send(piece, self.there.view(k * self.length..(k + 1) * self.length))?;
        }
        Ok(())
    }
}

// Camera of an engine
impl ExposureInputs<'_> {
    /// The camera of an engine's first device, if it has one.
    pub(super) fn there<'a>(
        &self,
        engine: &Engine,
    ) -> Result<Option<Box<dyn DeviceCamera + 'a>>, Error> {
        let Some(gpu) = engine.devices().first() else { return Ok(None) };
        Ok(Some(match engine.precision() {
            Precision::F64 => Box::new(self.on::<f64>(gpu)?),
            Precision::F32 => Box::new(self.on::<f32>(gpu)?),
        }))
    }

    /// The camera of a device, in one precision.
    fn on<T: Real>(&self, gpu: &Gpu) -> Result<ExposuresGpu<T>, Error> {
        let stationary = match self.structure {
            Some(StructureFunctionSource::Stationary(here)) => Some(StationaryGpu::new(gpu, here)?),
            _ => None,
        };
        let posed = (self.telescope, self.common);
        let camera = CameraGpu::new(gpu, posed, self.exposures, self.pixels)?;
        let structure = gpu.zeros(2 * camera.side().pow(2))?;
        Ok(ExposuresGpu { gpu: gpu.clone(), stationary, camera, structure, brought: None })
    }
}

// Tests of exposures on a device
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::model::Pupil;
    use crate::psf::{
        Actuators, Aperture, CameraOptions, Exposure, Exposures, StructureFunctionModel, Vane,
    };
    use std::borrow::Cow;

    /// A covariance that falls with the distance, by one diagonal faster than by the other, and is larger to one side.
    fn lopsided(positions: &[[f64; 2]]) -> Array2<f64> {
        let rms = |k: usize| 9e-8 * (1.0 + 0.3 * (positions[k][0] + 0.5 * positions[k][1]));
        Array2::from_shape_fn((positions.len(), positions.len()), |(k, l)| {
            let apart = [0, 1].map(|m| positions[k][m] - positions[l][m]);
            let square = apart[0].powi(2) + 2.0 * apart[1].powi(2) + 1.3 * apart[0] * apart[1];
            rms(k) * rms(l) * (-2.0 * square).exp()
        })
    }

    // Grids of actuators in a test
    /// A square grid without one of its actuators, and a hexagonal one.
    fn grids(pitch: f64) -> [Vec<[f64; 2]>; 2] {
        let square = |k: usize| [(k % 6) as f64 - 2.3, (k / 6) as f64 - 2.5].map(|x| x * pitch);
        let hexagonal = |k: usize| {
            let shift = 0.5 * (k / 6 % 2) as f64 - 2.6;
            [((k % 6) as f64 + shift) * pitch, ((k / 6) as f64 - 2.9) * pitch * 0.75f64.sqrt()]
        };
        [(0..36).filter(|k| *k != 31).map(square).collect(), (0..42).map(hexagonal).collect()]
    }

    fn image_of(pixels: usize) -> CameraOptions {
        let image = CameraOptions::default().structure(StructureFunctionModel::Stationary);
        let image = image.wavelengths(vec![1.1e-6, 2.2e-6]).pixels(pixels).pixel(2e-7);
        image.ensquared(vec![6e-7, 1.5e-6]).jitter(3e-8).extra(20e-9)
    }

    // Compare exposures of devices with processors
    #[test]
    fn exposures_of_devices_are_those_of_cores() {
        let vane = Vane { width: 0.1, angle: 0.5, offset: 0.05 };
        let aperture = Aperture::across(&Pupil::new(2.0, 0.2).unwrap(), &[vane], 19).unwrap();
        let influence = |[x, y]: [f64; 2]| (-(x * x + 1.2 * y * y + 0.5 * x * y) / 0.1).exp();
        let [square, hexagonal] = grids(0.4);
        // A separation of so many actuators has more pairs than a block has threads.
        let dense = |k: usize| [(k % 12) as f64 - 5.0, (k / 12) as f64 - 5.5].map(|x| 0.2 * x);
        let dense: Vec<[f64; 2]> = (0..143).map(dense).collect();
        let (stationary, exact) =
            (StructureFunctionModel::Stationary, StructureFunctionModel::Exact);
        // Modes are summed less closely than pairs.
        for (positions, pitch, structure, pixels, precision, bound) in [
            (&dense, 0.2, stationary, 15, Precision::F64, 1e-12),
            (&hexagonal, 0.4, stationary, 18, Precision::F64, 1e-12),
            (&hexagonal, 0.4, stationary, 7, Precision::F32, 1e-5),
            (&square, 0.4, exact, 8, Precision::F64, 1e-10),
        ] {
            let actuators = Actuators { positions, pitch, influence: &influence };
            let image = CameraOptions { structure, ..image_of(pixels) };
            let made = |engine: &Engine| {
                Exposures::new(actuators, &aperture, &image, 2.0, engine).unwrap()
            };
            let strokes = lopsided(positions) * if positions.len() > 100 { 0.03 } else { 1.0 };
            let mut cores = made(&Engine::default());
            for gpu in test_backends() {
                let engine = Engine::gpus(vec![gpu.clone()], precision).unwrap();
                // Compare exposures of one device with processors
                let mut made = made(&engine);
                let there =
                    StrokeCovariance::OnDevice(gpu.upload(strokes.as_slice().unwrap()).unwrap());
                let alone = made.images_of(&there).unwrap();
                assert_eq!(alone, made.images(&strokes).unwrap(), "from the host or not");
                for (alone, expected) in alone.iter().zip(cores.images(&strokes).unwrap()) {
                    same_image(alone, &expected, bound);
                }
                let of = |strokes| StrokeCovariance::OnHost(Cow::Owned(strokes));
                let causes =
                    [("one", of(strokes.clone())), ("two", of(0.3 * &strokes.t() + 1e-16))];
                for whole in [true, false] {
                    let (computed, exposures) = made.by_cause(&causes, whole).unwrap();
                    let (budget, wanted) = cores.by_cause(&causes, whole).unwrap();
                    assert_eq!((computed.terms().len(), exposures.len()), (2, 2));
                    for (a, b) in computed.terms().iter().zip(budget.terms()) {
                        let near = (a.variance / b.variance - 1.0).abs() < 10.0 * bound;
                        assert!(near && a.name == b.name, "{}: {computed}", gpu.name());
                    }
                    exposures
                        .iter()
                        .zip(&wanted)
                        .for_each(|(exposure, wanted)| same_exposure(exposure, wanted, bound));
                }
            }
        }
    }

    // Compare one exposure with another
    fn near(a: f64, b: f64, bound: f64) {
        assert!((a / b - 1.0).abs() < 10.0 * bound, "{a:e} {b:e}");
    }

    fn same_image(a: &PointSpread, b: &PointSpread, bound: f64) {
        let gap = (&a.values - &b.values).fold(0.0, |most: f64, gap| most.max(gap.abs()));
        assert!(gap < bound, "{gap:e}");
        near(a.strehl, b.strehl, bound);
        assert_eq!((a.pixel, a.share, a.wavelength), (b.pixel, b.share, b.wavelength));
        let middle = b.pixels() / 2;
        let [one, other] = [middle + 1, middle - 1].map(|i| b.values[[middle + 1, i]]);
        assert!((one - other).abs() > 1e-3, "{one} {other}");
    }

    fn same_exposure(a: &Exposure, b: &Exposure, bound: f64) {
        match b.image.pixels() {
            1 => near(a.image.values[[0, 0]], b.image.values[[0, 0]], bound),
            _ => same_image(&a.image, &b.image, bound),
        }
        assert_eq!((a.image.pixels(), &a.perfect), (b.image.pixels(), &b.perfect));
        let (one, other) = (a.width.unwrap(), b.width.unwrap());
        near(one.major, other.major, bound);
        near(one.minor, other.minor, bound);
        assert_eq!(a.ensquared.len(), 2);
        a.ensquared.iter().zip(&b.ensquared).for_each(|(a, b)| near(*a, *b, bound));
    }

    // Refuse strokes that devices cannot expose
    #[test]
    fn strokes_that_cores_refuse_are_refused_by_devices() {
        let aperture = Aperture::across(&Pupil::new(2.0, 0.0).unwrap(), &[], 11).unwrap();
        let influence = |[x, y]: [f64; 2]| (-(x * x + y * y) / 0.1).exp();
        let [positions, _] = grids(0.4);
        let actuators = Actuators { positions: &positions, pitch: 0.4, influence: &influence };
        let (image, good) = (image_of(4), lopsided(&positions));
        let made =
            |engine: &Engine| Exposures::new(actuators, &aperture, &image, 2.0, engine).unwrap();
        let mut cores = made(&Engine::default());
        let mut bad = vec![good.clone(); 2];
        (bad[0][[7, 3]], bad[1][[34, 34]]) = (f64::NAN, f64::INFINITY);
        bad.push(Array2::eye(34));
        for gpu in test_backends() {
            let engine = Engine::gpus(vec![gpu.clone()], Precision::F64).unwrap();
            let mut there = made(&engine);
            for bad in &bad {
                let refused = cores.of(bad).unwrap_err().to_string();
                assert_eq!(there.of(bad).unwrap_err().to_string(), refused, "{}", gpu.name());
                assert_eq!(there.images(bad).unwrap_err().to_string(), refused, "{}", gpu.name());
            }
            let few = StrokeCovariance::OnDevice(gpu.zeros(34 * 34).unwrap());
            assert!(there.images_of(&few).is_err());
            // A good one is exposed behind those that were refused.
            assert_eq!(there.images(&good).unwrap(), made(&engine).images(&good).unwrap());
            let mut brought = Brought { length: 300, ..Brought::new(&gpu, 35 * 35 + 275).unwrap() };
            brought.pieces = [gpu.pinned(300).unwrap(), gpu.pinned(300).unwrap()];
            brought.bring(&gpu, &good).unwrap();
            let there = brought.there.view(..35 * 35).read().unwrap();
            assert_eq!(there, good.as_slice().unwrap(), "{}", gpu.name());
        }
    }
}
