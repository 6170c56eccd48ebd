// Tangled from book/src/multislice-gpu.md: edit there, or here and run cargo tangle stitch.
//! Waves through slices on a device.

// Imports of slices on a device
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, BufferView, Gpu, KernelSource, Pinned, Shape};
use crate::device::headers::REAL;
use crate::electrons::{Transmission, WaveGrid};
use crate::error::Error;
use crate::linear::toeplitz::gpu::plain_sum::LOOPS;
use crate::linear::toeplitz::gpu::short_transforms::{Radices, SHORT_TRANSFORMS};
use crate::numerics::real::Real;
use num_complex::Complex;

const SOURCE: KernelSource = KernelSource {
    name: "multislice.cu",
    text: include_str!("../../../kernels/electrons/multislice.cu"),
    headers: &[REAL, LOOPS, SHORT_TRANSFORMS],
};

kernels! {
    /// Kernels of waves and slices.
    struct MultisliceKernels in SOURCE {
        /// Multiplies waves by a transmission, between transforms of their rows.
        transmit: Transmit<T> {
            waves: [Complex<T>], transmission: [Complex<T>], roots: [Complex<T>], ny: usize,
        }
        /// Propagates waves through the free space behind a slice, between transforms of their columns.
        propagate: Propagate<T> {
            waves: [Complex<T>], along_x: [Complex<T>], along_y: [Complex<T>], roots: [Complex<T>],
            nx: usize,
        }
        /// Begins waves with the spectrum of a probe.
        begin_probes: BeginProbes<T> {
            waves: [Complex<T>], spectrum: [Complex<T>], places: [[f64; 2]], roots: [Complex<T>], nx: usize,
        }
        /// Begins waves with plane waves.
        begin_beams: BeginBeams<T> {
            waves: [Complex<T>], beams: [[i32; 2]] as "int", roots: [Complex<T>], nx: usize,
        }
        /// Spectra of waves.
        look: TransformWaves<T> {
            waves: [Complex<T>], spectra: [Complex<T>], roots: [Complex<T>], nx: usize,
        }
    }
}

// The passes of a slice
/// What takes waves through slices on a device.
pub(crate) struct PassesGpu<T> {
    points: [usize; 2],
    rows: PlaneSide<T>,
    columns: PlaneSide<T>,
    /// For transforms of the rows, and of the columns.
    row_kernels: MultisliceKernels<T>,
    column_kernels: MultisliceKernels<T>,
    propagator: [Buffer<Complex<T>>; 2],
}

/// Transforms along one side of a plane, of which a block makes some at a time.
pub(crate) struct PlaneSide<T> {
    together: usize,
    threads: usize,
    shared: usize,
    pub(crate) roots: Buffer<Complex<T>>,
}

/// Sizes of a program, by the names that its kernels give them.
type Sizes = Vec<(&'static str, usize)>;

// Shape of the blocks of a side
impl<T: Real> PlaneSide<T> {
    /// Transforms of so many points, some of them in a block, and the sizes of kernels that make them; none where there are no radices for the length.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn new(
        gpu: &Gpu,
        points: usize,
        columns: bool,
    ) -> Result<Option<(Self, Sizes)>, Error> {
        // Rows that fit into a block
        let Some(radices) = Radices::exactly(points) else { return Ok(None) };
        let number = size_of::<Complex<T>>();
        let alone = radices.threads_alone();
        let most = if columns { 64 / number } else { (256 / alone).clamp(1, 16) };
        let fits = |rows: &usize| {
            rows * radices.layout(*rows, number).work * number <= gpu.shared_memory()
                && rows * alone <= 1024
        };
        let Some(together) = (1..=most).rev().find(fits) else { return Ok(None) };
        let threads = (together * alone).next_multiple_of(32);
        let sizes = [("ROWS", together), ("TEAM", threads)];
        let sizes = [&radices.sizes()[..], &sizes].concat();
        let shared = together * radices.layout(together, number).work * number;
        let roots = gpu.upload(&radices.roots::<T>())?;
        Ok(Some((Self { together, threads, shared, roots }, sizes)))
    }

    /// Blocks for so many transforms of each of so many waves.
    pub(crate) fn shape(&self, transforms: usize, waves: usize) -> Shape {
        let grid = [transforms.div_ceil(self.together), waves, 1];
        Shape { grid, block: self.threads, shared: self.shared }
    }
}

// Make the passes of a grid
impl<T: Real> PassesGpu<T> {
    /// Passes on a grid, with the propagator's factors over the kept k_x and the kept k_y; none where no kernels have the lengths of the grid.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn new(
        gpu: &Gpu,
        grid: &WaveGrid,
        [along_x, along_y]: &[Vec<Complex<f64>>; 2],
    ) -> Result<Option<Self>, Error> {
        // Kernels and factors of a grid
        let points = grid.points();
        let Some((rows, across)) = PlaneSide::new(gpu, points[0], false)? else {
            return Ok(None);
        };
        let Some((columns, down)) = PlaneSide::new(gpu, points[1], true)? else {
            return Ok(None);
        };
        let along_x: Vec<_> = along_x.iter().copied().map(T::of_complex).collect();
        let mut all_y = vec![Complex::default(); points[1]];
        for (k, y) in grid.kept(1).zip(along_y) {
            all_y[k] = T::of_complex(y / points[1] as f64);
        }
        Ok(Some(Self {
            points,
            rows,
            columns,
            row_kernels: MultisliceKernels::load(gpu, &across)?,
            column_kernels: MultisliceKernels::load(gpu, &down)?,
            propagator: [gpu.upload(&along_x)?, gpu.upload(&all_y)?],
        }))
    }

    // Begin waves on a device
    /// Begins `waves` (w, N_y, N_x/2) with the spectrum (N_y/2, N_x/2) of a probe at places x, y \[cells\], (w, 2).
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn begin(
        &self,
        queue: &Gpu,
        waves: BufferView<Complex<T>>,
        spectrum: &Buffer<Complex<T>>,
        places: BufferView<[f64; 2]>,
    ) -> Result<(), Error> {
        let (nx, roots) = (self.points[0] / 2, self.columns.roots.view(..));
        let shape = self.columns.shape(nx, places.len());
        let arguments = BeginProbes { waves, spectrum: spectrum.view(..), places, roots, nx };
        queue.launch(&self.column_kernels.begin_probes, shape, arguments)
    }

    // Begin plane waves on a device
    /// Begins `waves` (w, N_y, N_x/2) with plane waves of places x, y among the kept frequencies, (w, 2).
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn begin_beams(
        &self,
        queue: &Gpu,
        waves: BufferView<Complex<T>>,
        beams: BufferView<[i32; 2]>,
    ) -> Result<(), Error> {
        let [nx, ny] = self.points;
        let shape = Shape::over(nx / 2 * ny, 256, [beams.len(), 1]);
        let arguments = BeginBeams { waves, beams, roots: self.columns.roots.view(..), nx: nx / 2 };
        queue.launch(&self.column_kernels.begin_beams, shape, arguments)
    }

    // Waves through slices on a device
    /// Takes `count` waves through a slice with the transmission t/N_x, (N_y, N_x), and the free space behind it.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn pass(
        &self,
        queue: &Gpu,
        waves: BufferView<Complex<T>>,
        count: usize,
        transmission: BufferView<Complex<T>>,
    ) -> Result<(), Error> {
        let [nx, ny] = [self.points[0] / 2, self.points[1]];
        let [roots, of_columns] = [&self.rows, &self.columns].map(|side| side.roots.view(..));
        let arguments = Transmit { waves, transmission, roots, ny };
        queue.launch(&self.row_kernels.transmit, self.rows.shape(ny, count), arguments)?;
        let [along_x, along_y] = self.propagator.each_ref().map(|factors| factors.view(..));
        let arguments = Propagate { waves, along_x, along_y, roots: of_columns, nx };
        queue.launch(&self.column_kernels.propagate, self.columns.shape(nx, count), arguments)
    }

    // Transform waves on a device
    /// Spectra (w, N_y/2, N_x/2) of `count` waves.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn transform_waves(
        &self,
        queue: &Gpu,
        waves: BufferView<Complex<T>>,
        count: usize,
        spectra: BufferView<Complex<T>>,
    ) -> Result<(), Error> {
        let (nx, roots) = (self.points[0] / 2, self.columns.roots.view(..));
        let arguments = TransformWaves { waves, spectra, roots, nx };
        queue.launch(&self.column_kernels.look, self.columns.shape(nx, count), arguments)
    }
}

// Slices that come to a device
/// Room for a slice on the host and on a device.
pub(crate) struct Passing<T> {
    here: Pinned<Complex<T>>,
    there: Buffer<Complex<T>>,
}

impl<T: Real> Passing<T> {
    /// Room for a slice of so many samples.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn new(queue: &Gpu, samples: usize) -> Result<Self, Error> {
        Ok(Self { here: queue.pinned(samples)?, there: queue.zeros(samples)? })
    }

    // Send a slice to its buffer
    /// Queues the copy of a slice, when the last one has left; this is where it will be.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn send(
        &mut self,
        queue: &Gpu,
        slice: &Transmission<T>,
    ) -> Result<BufferView<'_, Complex<T>>, Error> {
        self.here.values_mut()?.copy_from_slice(slice.values());
        queue.send(&self.here, &self.there)?;
        Ok(self.there.view(..))
    }
}

// Tests of slices on a device
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use ndarray::Array2;
    use std::f64::consts::TAU;

    type Plane = Array2<Complex<f64>>;

    /// The transform of a plane (y, x) by its definition, not divided.
    fn transformed(plane: &Plane, sign: f64) -> Plane {
        let waves = |n: usize| {
            Array2::from_shape_fn((n, n), |(k, j)| {
                Complex::cis(sign * TAU * (j * k % n) as f64 / n as f64)
            })
        };
        let (ny, nx) = plane.dim();
        waves(ny).dot(plane).dot(&waves(nx))
    }

    fn noise(shape: (usize, usize), seed: f64) -> Plane {
        let turn = |(j, i): (usize, usize)| seed + (j * j + 3 * i * i + j * i) as f64 * 0.37;
        Array2::from_shape_fn(shape, |place| Complex::new(turn(place).sin(), turn(place).cos()))
    }

    // Waves through two slices by plain transforms
    /// Spectra (w, N_y/2, N_x/2) of probes behind two slices.
    fn by_definition(
        grid: &WaveGrid,
        spectrum: &Plane,
        places: &[[f64; 2]],
        transmissions: &[Plane],
        propagator: &Plane,
    ) -> Vec<Plane> {
        let [nx, ny] = grid.points();
        let kept: [Vec<usize>; 2] = [0, 1].map(|axis| grid.kept(axis).collect());
        let count = (nx * ny) as f64;
        let through = |place: &[f64; 2]| {
            let mut psi = Plane::zeros((ny, nx));
            for ((j, i), value) in spectrum.indexed_iter() {
                let [k, l] = [kept[0][i], kept[1][j]];
                let turns = grid.frequency(0, k) * grid.lengths()[0] * place[0]
                    + grid.frequency(1, l) * grid.lengths()[1] * place[1];
                psi[[l, k]] = value * Complex::cis(-TAU * turns);
            }
            for transmission in transmissions {
                let there = transformed(&psi, 1.0) * transmission;
                psi = transformed(&there, -1.0).mapv(|z| z / count) * propagator;
            }
            Plane::from_shape_fn((ny / 2, nx / 2), |(j, i)| psi[[kept[1][j], kept[0][i]]])
        };
        places.iter().map(through).collect()
    }

    // Hold slices to plain transforms
    fn gap<T: Real>(gpu: &Gpu, points: [usize; 2]) -> f64 {
        let grid = WaveGrid::new(points, [7.0, 5.0]).unwrap();
        let [nx, ny] = points;
        let spectrum = noise((ny / 2, nx / 2), 0.3);
        let places = [[0.0, 0.0], [0.27, 0.9], [0.51, -0.13]];
        let transmissions = [noise((ny, nx), 1.1), noise((ny, nx), 2.3)];
        let factors = [0, 1].map(|axis| -> Vec<Complex<f64>> {
            let factor = |k: usize| {
                let q = grid.frequency(axis, k);
                let turn = Complex::cis(-0.8 * q * q + 0.3 * (axis + 1) as f64 * q);
                if grid.keeps(axis, k) { turn } else { 0.0.into() }
            };
            (0..points[axis]).map(factor).collect()
        });
        let propagator = Plane::from_shape_fn((ny, nx), |(j, i)| factors[0][i] * factors[1][j]);
        let kept = [0, 1].map(|axis| grid.kept(axis).map(|k| factors[axis][k]).collect());
        let expected = by_definition(&grid, &spectrum, &places, &transmissions, &propagator);
        // The same on the device
        let cast = |plane: &Plane, scale: f64| -> Vec<Complex<T>> {
            let number = |z: &Complex<f64>| Complex::new(T::of(z.re * scale), T::of(z.im * scale));
            plane.iter().map(number).collect()
        };
        let passes = PassesGpu::<T>::new(gpu, &grid, &kept).unwrap().unwrap();
        let waves = gpu.zeros(3 * ny * nx / 2).unwrap();
        let (there, places) = (gpu.upload(&cast(&spectrum, 1.0)), gpu.upload(&places).unwrap());
        passes.begin(gpu, waves.view(..), &there.unwrap(), places.view(..)).unwrap();
        for transmission in &transmissions {
            let there = gpu.upload(&cast(transmission, 1.0 / nx as f64)).unwrap();
            passes.pass(gpu, waves.view(..), 3, there.view(..)).unwrap();
        }
        let spectra = gpu.zeros(3 * ny * nx / 4).unwrap();
        passes.transform_waves(gpu, waves.view(..), 3, spectra.view(..)).unwrap();
        let found: Vec<Complex<T>> = spectra.read().unwrap();
        let expected = expected.iter().flat_map(|plane| plane.iter());
        let gaps = expected.zip(&found).map(|(expected, found)| {
            (expected - Complex::new(found.re.in_double(), found.im.in_double())).norm()
        });
        gaps.fold(0.0, f64::max)
    }

    #[test]
    fn passes_are_plain_transforms_and_products() {
        for gpu in test_backends() {
            // Two radices and three, sides of either parity of their quarters
            for points in [[60, 32], [280, 4]] {
                let double = gap::<f64>(&gpu, points);
                assert!(double < 2e-13 * (points[0] * points[1]) as f64, "{points:?}: {double:e}");
            }
            let single = gap::<f32>(&gpu, [12, 280]);
            assert!(single < 0.1 && single > 1e-9, "{single:e}");
        }
    }

    #[test]
    fn grids_without_radices_are_left_to_processors() {
        for gpu in test_backends() {
            for points in [[44, 16], [16, 68], [4 * 1025, 16]] {
                let grid = WaveGrid::new(points, [1.0, 1.0]).unwrap();
                let one = points.map(|points| vec![Complex::ONE; points / 2]);
                let passes = PassesGpu::<f32>::new(&gpu, &grid, &one).unwrap();
                assert!(passes.is_none());
            }
        }
    }
}
