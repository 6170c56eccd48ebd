// Tangled from book/src/plane-wave-gpu.md: edit there, or here and run cargo tangle stitch.
//! Exit waves on devices.

// Imports of exit waves on devices
use super::{HrtemPlan, PlaneWave};
use crate::device::Engine;
use crate::device::gpu::{Buffer, Gpu};
use crate::electrons::multislice::gpu::{PassesGpu, Passing};
use crate::electrons::{Multislice, Transmission, WaveGrid};
use crate::error::Error;
use crate::numerics::real::Real;
use crate::watch::{Watch, check};
use ndarray::Array2;
use num_complex::Complex;

// A plane wave on a device
/// A plane wave on a device, and room for two slices.
struct PlaneWaveWorker<T> {
    queue: Gpu,
    passes: PassesGpu<T>,
    straight: Buffer<[i32; 2]>,
    wave: Buffer<Complex<T>>,
    spectrum: Buffer<Complex<T>>,
    slices: [Passing<T>; 2],
    shape: (usize, usize),
}

// Allocate a plane wave on a device
impl<T: Real> PlaneWaveWorker<T> {
    /// A wave on a grid, with a propagator's factors; none where there are no kernels for the grid.
    ///
    /// # Errors
    /// Those of the device.
    fn new(
        gpu: &Gpu,
        grid: &WaveGrid,
        factors: &[Vec<Complex<f64>>; 2],
    ) -> Result<Option<Self>, Error> {
        let Some(passes) = PassesGpu::new(gpu, grid, factors)? else { return Ok(None) };
        let [nx, ny] = grid.points();
        Ok(Some(Self {
            queue: gpu.clone(),
            passes,
            straight: gpu.zeros(1)?,
            wave: gpu.zeros(nx / 2 * ny)?,
            spectrum: gpu.zeros(nx / 2 * ny / 2)?,
            slices: [Passing::new(gpu, nx * ny)?, Passing::new(gpu, nx * ny)?],
            shape: (ny / 2, nx / 2),
        }))
    }
}

// A plane wave on the first device
impl HrtemPlan {
    /// The wave on the first device of an engine; none where there are no devices, or no kernels for the grid.
    ///
    /// # Errors
    /// `Memory` where there is no room for it, and those of the device.
    pub(super) fn wave_on_device<'a, T: Real>(
        &self,
        engine: &Engine,
        multislice: &Multislice<T>,
    ) -> Result<Option<Box<dyn PlaneWave<T> + 'a>>, Error> {
        let Some(gpu) = engine.devices().first() else { return Ok(None) };
        gpu.refuse_beyond_memory(self.bytes_on_device(size_of::<Complex<T>>()), "an image")?;
        let there = PlaneWaveWorker::new(gpu, &self.options.grid, &multislice.factors())?;
        Ok(there.map(|there| Box::new(there) as Box<dyn PlaneWave<T> + 'a>))
    }

    /// Bytes of it, with complex numbers of so many bytes.
    pub(super) fn bytes_on_device(&self, number: usize) -> u64 {
        let plane: usize = self.options.grid.points().iter().product();
        (number * (2 * plane + plane / 2 + plane / 4)) as u64
    }
}

// Through slices on a device
impl<T: Real> PlaneWave<T> for PlaneWaveWorker<T> {
    fn begin(&mut self) -> Result<(), Error> {
        self.passes.begin_beams(&self.queue, self.wave.view(..), self.straight.view(..))
    }

    fn pass(&mut self, slices: &[Transmission<T>], watch: &dyn Watch) -> Result<(), Error> {
        for (k, slice) in slices.iter().enumerate() {
            check(watch)?;
            let there = self.slices[k % 2].send(&self.queue, slice)?;
            self.passes.pass(&self.queue, self.wave.view(..), 1, there)?;
        }
        Ok(())
    }

    fn spectrum(&self) -> Result<Array2<Complex<T>>, Error> {
        self.passes.transform_waves(&self.queue, self.wave.view(..), 1, self.spectrum.view(..))?;
        let spectrum = Array2::from_shape_vec(self.shape, self.spectrum.read()?);
        Ok(spectrum.unwrap_or_else(|_| unreachable!("as many as there are")))
    }
}
