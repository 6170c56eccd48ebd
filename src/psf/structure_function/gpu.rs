// Tangled from book/src/structure-function-gpu.md: edit there, or here and run cargo tangle stitch.
//! Modes of a mirror on a device: their squares on the pupil, and their power in its frequencies.

// Imports of sums of modes on a device
use super::{DeviceModes, Felt, Harmonic, Separations, Stationary, root};
use crate::device::Engine;
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, BufferView, Fft, Gpu, KernelSource, Shape};
use crate::device::headers::{BLOCK_SUM, REAL};
use crate::error::{Error, accept};
use crate::linear::factorisation::gpu::upload_rows;
use crate::numerics::real::{Precision, Real};
use crate::psf::transforms::Plane;
use ndarray::Array2;
use num_complex::Complex;
use std::iter::zip;

const SOURCE: KernelSource = KernelSource {
    name: "mirror_modes.cu",
    text: include_str!("../../../kernels/psf/mirror_modes.cu"),
    headers: &[REAL],
};

// Kernels of the modes of a mirror
kernels! {
    /// Kernels of the modes of a mirror.
    struct MirrorModeKernels in SOURCE {
        /// Sets what is below the diagonal to zero.
        keep_upper: KeepUpper<T> { matrix: [T], n: usize }
        /// Modes on the pupil, and the sums of their squares.
        lay_modes: LayModes<T> {
            maps: [T], variances: [f64], roots: [T], near: [i32], heights: [T], light: [T], places: [i32],
            count: usize, width: usize, actuators: usize, first: usize, modes: usize, area: usize,
        }
        /// Adds the powers of modes in their frequencies.
        add_powers: AddPowers<T> {
            spectra: [Complex<T>] as "Pair", powers: [f64], count: usize, batch: usize,
        }
    }
}

// Modes for either precision
impl Felt {
    /// Sums on the first device of an engine, if it has one, for so many actuators that the squares feel.
    pub(super) fn there(
        &self,
        engine: &Engine,
        plane: &Plane,
        actuators: usize,
    ) -> Result<Option<Box<dyn DeviceModes>>, Error> {
        let Some(gpu) = engine.devices().first() else { return Ok(None) };
        Ok(Some(match engine.precision() {
            Precision::F64 => Box::new(MirrorModesGpu::<f64>::new(gpu, self, plane, actuators)?),
            Precision::F32 => Box::new(MirrorModesGpu::<f32>::new(gpu, self, plane, actuators)?),
        }))
    }
}

// Modes of a mirror on a device
/// Bytes that the maps of a batch and their transforms take, about, and the most modes of one.
const ROOM: usize = 1 << 31;
const MOST: usize = 256;

// Buffers of mirror modes on a device
/// Buffers and kernels that sum modes of one mirror on one pupil.
struct MirrorModesGpu<T> {
    gpu: Gpu,
    kernels: MirrorModeKernels<T>,
    /// Row and column of each lit square in the pupil, and its place in a map of the plane.
    squares: Vec<[usize; 2]>,
    places: Buffer<i32>,
    light: Buffer<T>,
    /// Which actuators each square feels, and how much: (width, squares).
    near: Buffer<i32>,
    heights: Buffer<T>,
    width: usize,
    fft: Fft<T, Complex<T>>,
    maps: Buffer<T>,
    spectra: Buffer<Complex<T>>,
    /// Modes of a batch, actuators, points and squares across plane and pupil.
    batch: usize,
    actuators: usize,
    points: usize,
    side: usize,
}

impl<T: Real> MirrorModesGpu<T> {
    // Prepare modes on a device
    fn new(gpu: &Gpu, felt: &Felt, plane: &Plane, actuators: usize) -> Result<Self, Error> {
        let (points, count) = (plane.points(), felt.squares.len());
        let width = felt.near.iter().map(Vec::len).max().unwrap_or(0);
        let of_mode = points * (points + 2) * 2 * size_of::<T>();
        let batch = (ROOM / of_mode).clamp(1, MOST).min(actuators.max(1));
        let lists = width * count * (size_of::<T>() + 4);
        gpu.refuse_beyond_memory((batch * of_mode + lists) as u64, "the modes of a mirror")?;
        // Lay out lists of nearby actuators
        let squares: Vec<[usize; 2]> = felt.squares.iter().map(|(square, _)| *square).collect();
        let places: Vec<i32> = squares.iter().map(|[j, i]| (j * points + i) as i32).collect();
        let light: Vec<T> = felt.squares.iter().map(|(_, light)| T::of(*light)).collect();
        let (mut near, mut heights) = (vec![0; width * count], vec![T::zero(); width * count]);
        for (square, list) in felt.near.iter().enumerate() {
            for (k, (actuator, height)) in list.iter().enumerate() {
                near[k * count + square] = *actuator as i32;
                heights[k * count + square] = T::of(*height);
            }
        }
        Ok(Self {
            // Buffers of modes and their transforms
            gpu: gpu.clone(),
            kernels: MirrorModeKernels::load(gpu, &[])?,
            squares,
            places: gpu.upload(&places)?,
            light: gpu.upload(&light)?,
            near: gpu.upload(&near)?,
            heights: gpu.upload(&heights)?,
            width,
            fft: gpu.real_fft(&[points, points], batch)?,
            maps: gpu.zeros(batch * points * points)?,
            spectra: gpu.zeros(batch * points * (points / 2 + 1))?,
            batch,
            actuators,
            points,
            side: felt.side,
        })
    }

    // Add batch after batch of modes
    /// Adds what all modes of the `roots` have on squares and in frequencies.
    fn add_batches(
        &self,
        roots: &Buffer<T>,
        variances: &Buffer<f64>,
        powers: &Buffer<f64>,
    ) -> Result<(), Error> {
        let (n, modes) = (self.points, roots.len() / self.actuators);
        for first in (0..modes).step_by(self.batch) {
            let here = (modes - first).min(self.batch);
            // Arguments of the modes of a batch
            let arguments = LayModes {
                maps: self.maps.view(..),
                variances: variances.view(..),
                roots: roots.view(..),
                near: self.near.view(..),
                heights: self.heights.view(..),
                light: self.light.view(..),
                places: self.places.view(..),
                count: self.squares.len(),
                width: self.width,
                actuators: self.actuators,
                first,
                modes: here,
                area: n * n,
            };
            let shape = Shape::over(self.squares.len(), 128, [1, 1]);
            self.gpu.launch(&self.kernels.lay_modes, shape, arguments)?;
            self.gpu.transform(&self.fft, &self.maps, &self.spectra)?;
            let frequencies = n * (n / 2 + 1);
            let (spectra, powers) = (self.spectra.view(..), powers.view(..));
            let arguments = AddPowers { spectra, powers, count: frequencies, batch: here };
            let shape = Shape::over(frequencies, 256, [1, 1]);
            self.gpu.launch(&self.kernels.add_powers, shape, arguments)?;
        }
        Ok(())
    }
}

impl<T: Real> DeviceModes for MirrorModesGpu<T> {
    // Sum modes on a device
    fn sums(&self, strokes: &Array2<f64>) -> Result<[Array2<f64>; 2], Error> {
        let (n, half) = (self.points, self.points / 2 + 1);
        let (roots, unit) = roots_on_device(&self.gpu, &self.kernels, strokes)?;
        let variances = self.gpu.zeros::<f64>(self.squares.len())?;
        let powers = self.gpu.zeros::<f64>(n * half)?;
        self.add_batches(&roots, &variances, &powers)?;
        let mut variance = Array2::zeros((self.side, self.side));
        let values = variances.read()?;
        self.squares.iter().zip(values).for_each(|(place, value)| variance[*place] = unit * value);
        let powers = Array2::from_shape_vec((n, half), powers.read()?)
            .unwrap_or_else(|_| unreachable!("as many as were made"));
        Ok([variance, powers.t().mapv(|power| unit * power).as_standard_layout().into_owned()])
    }
}

// Root of a covariance on a device
/// Rows of modes by their strokes, (modes, actuators), whose squares add up to the covariance of `strokes` over its largest variance; and
/// that.
fn roots_on_device<T: Real>(
    gpu: &Gpu,
    kernels: &MirrorModeKernels<T>,
    strokes: &Array2<f64>,
) -> Result<(Buffer<T>, f64), Error> {
    let (n, largest) = (strokes.nrows(), strokes.diag().fold(0.0, |m: f64, v| m.max(*v)));
    let unit = if largest > 0.0 { largest } else { 1.0 };
    let least = 1e-12f64.max(T::epsilon().in_double());
    let mut lifted = strokes.clone();
    lifted.diag_mut().mapv_inplace(|value| value + least * largest);
    let matrix = upload_rows::<T>(gpu, &lifted, unit)?;
    if gpu.cholesky(&matrix, n)?.is_none() {
        let arguments = KeepUpper { matrix: matrix.view(..), n };
        gpu.launch(&kernels.keep_upper, Shape::over(n, 256, [n, 1]), arguments)?;
        return Ok((matrix, unit));
    }
    let rows = root(strokes)?.t().as_standard_layout().into_owned();
    Ok((upload_rows(gpu, &rows, unit.sqrt())?, unit))
}

// Stationary strokes on a device
// Kernels of stationary strokes
const STATIONARY: KernelSource = KernelSource {
    name: "stationary.cu",
    text: include_str!("../../../kernels/psf/stationary.cu"),
    headers: &[REAL, BLOCK_SUM],
};

kernels! {
    /// Kernels of stationary strokes.
    struct StationaryKernels in STATIONARY {
        /// Means over the pairs of each separation.
        average_pairs: AveragePairs<T> { means: [T], strokes: [f64], pairs: [i32], starts: [i32] }
        /// A spectrum from sums and weights.
        weigh_frequencies: WeighFrequencies<T> {
            spectrum: [Complex<T>] as "Pair", sums: [T], weights: [T], count: usize,
        }
        /// The structure function on quarters of the displacements.
        lay_structure: LayStructure<T> { structure: [T], covariance: [T], side: usize, n: usize }
    }
}

/// Structure functions of one mirror as if strokes were stationary, on a device.
// Buffers of stationary strokes
pub(crate) struct StationaryGpu<T> {
    gpu: Gpu,
    kernels: StationaryKernels<T>,
    /// Where pairs lie in a covariance, separation after separation, and where those of each begin.
    pairs: Buffer<i32>,
    starts: Buffer<i32>,
    means: Buffer<T>,
    /// Waves along x, (separations, 2 frequencies), and along y, (frequencies, 2 separations).
    waves: [Buffer<T>; 2],
    /// What the first product gives, and both.
    once: Buffer<T>,
    sums: Buffer<T>,
    weights: Buffer<T>,
    spectrum: Buffer<Complex<T>>,
    covariance: Buffer<T>,
    fft: Fft<Complex<T>, T>,
    /// Separations along y and x, points across the plane and displacements across a quarter.
    separations: [usize; 2],
    points: usize,
    side: usize,
}

impl<T: Real> StationaryGpu<T> {
    // Prepare stationary strokes on a device
    /// Room and waves for the covariances of a mirror, as cores would take them.
    ///
    /// # Errors
    /// `Invalid` for more actuators than a list of their pairs can number, `Memory` where there is no room, and what the device says.
    pub(crate) fn new(gpu: &Gpu, here: &Stationary) -> Result<Self, Error> {
        let (n, half) = (here.plane.points(), here.plane.points() / 2 + 1);
        let [y, x] = [0, 1].map(|axis| here.separations.axes[axis].separations.len());
        let (pairs, starts) = by_separation(&here.separations)?;
        let numbers = y * x + 2 * (x * half + n * y + y * half) + n * (4 * half + n);
        let bytes = numbers * size_of::<T>() + 4 * (pairs.len() + starts.len());
        gpu.refuse_beyond_memory(bytes as u64, "the structure function of a mirror")?;
        let scale = 1.0 / (n * n) as f64;
        let weights: Vec<T> = here.weights.t().iter().map(|weight| T::of(scale * weight)).collect();
        let [along_y, along_x] = waves_on_device(here);
        Ok(Self {
            // Upload the constants of stationary strokes
            gpu: gpu.clone(),
            kernels: StationaryKernels::load(gpu, &[])?,
            pairs: gpu.upload(&pairs)?,
            starts: gpu.upload(&starts)?,
            means: gpu.zeros(y * x)?,
            waves: [gpu.upload(&along_x)?, gpu.upload(&along_y)?],
            once: gpu.zeros(y * 2 * half)?,
            sums: gpu.zeros(n * half)?,
            weights: gpu.upload(&weights)?,
            spectrum: gpu.zeros(n * half)?,
            covariance: gpu.zeros(n * n)?,
            fft: gpu.inverse_real_fft(&[n, n], 1)?,
            separations: [y, x],
            points: n,
            side: here.reach + 1,
        })
    }

    // Queue a structure function of stationary strokes
    /// Queues the structure function, (2, side, side), of a covariance of strokes, m², whose first numbers these are.
    ///
    /// # Errors
    /// What the device says.
    pub(crate) fn queue(
        &self,
        strokes: BufferView<f64>,
        structure: &Buffer<T>,
    ) -> Result<(), Error> {
        let ([y, x], n, half) = (self.separations, self.points, self.points / 2 + 1);
        let (pairs, starts) = (self.pairs.view(..), self.starts.view(..));
        let arguments = AveragePairs { means: self.means.view(..), strokes, pairs, starts };
        let shape = Shape { grid: [y * x, 1, 1], block: 128, shared: 0 };
        self.gpu.launch(&self.kernels.average_pairs, shape, arguments)?;
        let factors = [(self.means.view(..), false), (self.waves[0].view(..), false)];
        self.gpu.multiply_matrices(factors, [y, x, 2 * half], &self.once, [T::one(), T::zero()])?;
        let factors = [(self.waves[1].view(..), false), (self.once.view(..), false)];
        self.gpu.multiply_matrices(factors, [n, 2 * y, half], &self.sums, [T::one(), T::zero()])?;
        // Weigh the frequencies of the means
        let arguments = WeighFrequencies {
            spectrum: self.spectrum.view(..),
            sums: self.sums.view(..),
            weights: self.weights.view(..),
            count: n * half,
        };
        let shape = Shape::over(n * half, 256, [1, 1]);
        self.gpu.launch(&self.kernels.weigh_frequencies, shape, arguments)?;
        self.gpu.transform(&self.fft, &self.spectrum, &self.covariance)?;
        // Lay out the structure function
        let (structure, covariance) = (structure.view(..), self.covariance.view(..));
        let arguments = LayStructure { structure, covariance, side: self.side, n };
        let shape = Shape::over(self.side, 128, [self.side, 1]);
        self.gpu.launch(&self.kernels.lay_structure, shape, arguments)
    }
}

// Pairs by their separations
/// Where the pairs of each separation lie in a covariance of strokes, and where its part of the list begins.
fn by_separation(separations: &Separations) -> Result<(Vec<i32>, Vec<i32>), Error> {
    let count = separations.axes[0].place.len();
    let most = 46_340; // squared, it is an int
    accept(count <= most, "actuators", count, "at most 46340 for a device")?;
    let mut starts = vec![0];
    starts.extend(separations.counts.iter().scan(0, |sum, &pairs| {
        *sum += pairs as i32;
        Some(*sum)
    }));
    let (mut next, mut pairs) = (starts.clone(), vec![0; count * count]);
    let across = separations.counts.ncols();
    for pair in 0..count * count {
        let [y, x] = separations.between(pair / count, pair % count);
        let next = &mut next[y * across + x];
        pairs[*next as usize] = pair as i32;
        *next += 1;
    }
    Ok((pairs, starts))
}

// Waves along separations for a device
/// Waves along y, (frequencies, 2 separations), cosine and sine of each separation in turn, and along x, (separations, 2 frequencies), all cosines
/// and then all sines.
fn waves_on_device<T: Real>(here: &Stationary) -> [Vec<T>; 2] {
    let (n, half) = (here.plane.points(), here.plane.points() / 2 + 1);
    let both = |axis: usize, count: usize| {
        let of = |wave: Harmonic| here.separations.waves(axis, [n, count], here.step, wave);
        [of(f64::cos), of(f64::sin)]
    };
    let [cosines, sines] = both(0, n);
    let in_turn = |(cosine, sine): (&f64, &f64)| [T::of(*cosine), T::of(-sine)];
    let along_y = zip(&cosines, &sines).flat_map(in_turn).collect();
    let [cosines, sines] = both(1, half);
    let side_by_side = |(cosines, sines): (ndarray::ArrayView1<f64>, ndarray::ArrayView1<f64>)| {
        cosines.iter().chain(&sines).map(|value| T::of(*value)).collect::<Vec<T>>()
    };
    let along_x = zip(cosines.columns(), sines.columns()).flat_map(side_by_side).collect();
    [along_y, along_x]
}

// Tests of summed modes on a device
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::model::Pupil;
    use crate::psf::structure_function::{Actuators, MeanStructure};
    use crate::psf::{Aperture, Vane};

    #[test]
    fn means_on_a_device_are_those_of_cores() {
        let vane = Vane { width: 0.2, angle: 0.5, offset: 0.0 };
        let aperture = Aperture::across(&Pupil::new(2.0, 0.2).unwrap(), &[vane], 13).unwrap();
        let place = |k: usize| [0.6 * (k % 4) as f64 - 0.8, 0.6 * (k / 4) as f64 - 0.95];
        let positions: Vec<[f64; 2]> = (0..17).map(place).collect();
        let influence = |[x, y]: [f64; 2]| (-(x * x + 1.2 * y * y) / 0.2).exp();
        let actuators = Actuators { positions: &positions, pitch: 0.6, influence: &influence };
        let entry = |(k, l): (usize, usize)| {
            let [a, b] = [k, l].map(|k| 1e-7 * (1.0 + 0.1 * k as f64));
            a * b * (-0.3 * (k as f64 - l as f64).powi(2)).exp()
        };
        let regular = Array2::from_shape_fn((17, 17), entry);
        let mut singular = Array2::zeros((17, 17));
        singular[[3, 3]] = 1e-14;
        singular[[3, 4]] = 2e-20;
        singular[[4, 3]] = 2e-20;
        let telescope = aperture.transfer(27).unwrap();
        let overlap = telescope.values();
        for strokes in [regular, singular] {
            let here = actuators.mean(&strokes, &aperture, 27).unwrap();
            let largest = here.fold(0.0, |most: f64, value| most.max(*value));
            // Compare devices with processors in either precision
            for gpu in test_backends() {
                for (precision, bound) in [(Precision::F64, 1e-10), (Precision::F32, 3e-6)] {
                    let engine = Engine::gpus(vec![gpu.clone()], precision).unwrap();
                    let means = MeanStructure::new(actuators, &aperture, 27, &engine).unwrap();
                    for _ in 0..2 {
                        let there = means.of(&strokes).unwrap();
                        let gap = ((&there - &here) * overlap)
                            .fold(0.0, |most: f64, gap| most.max(gap.abs()));
                        assert!(gap < bound * largest, "{}: {:e}", gpu.name(), gap / largest);
                    }
                }
            }
        }
    }
}
