// Tangled from book/src/point-spread-gpu.md: edit there, or here and run cargo tangle stitch.
//! Images of wavefronts on a device, from their structure functions on a quarter of the displacements.

// Imports of images on a device
use super::{Frame, PointSpread, Quarter, waves};
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, Gpu, KernelSource, Pinned, Shape};
use crate::device::headers::{BLOCK_SUM, REAL};
use crate::error::{Error, Invalid, accept, length};
use crate::numerics::real::Real;
use crate::psf::optical_transfer::TelescopeTransfer;
use ndarray::Array2;
use std::f64::consts::PI;

const SOURCE: KernelSource = KernelSource {
    name: "point_spread.cu",
    text: include_str!("../../../kernels/psf/point_spread.cu"),
    headers: &[REAL, BLOCK_SUM],
};

// Kernels of a camera on a device
kernels! {
    /// Kernels of a camera.
    struct CameraKernels in SOURCE {
        /// Adds a structure function to the total.
        add_structure: AddStructure<T> {
            total: [T], rows: [f64], structure: [T], telescope: [T], side: usize,
        }
        /// Transfer functions at all wavelengths.
        pass_light: PassLight<T> {
            quarters: [T], telescope: [T], total: [T], scales: [T], side: usize,
        }
    }
}

// Camera on a device
/// A camera behind a telescope, on a device.
pub(crate) struct CameraGpu<T> {
    gpu: Gpu,
    kernels: CameraKernels<T>,
    telescope: Buffer<T>,
    /// What all wavefronts have in common, and that with what was added, m².
    common: Buffer<T>,
    total: Buffer<T>,
    /// Sums over the rows of a quarter of what was added last, times the transfer of the telescope, m².
    rows: Buffer<f64>,
    /// −½ (2π/λ)² of each wavelength, m⁻².
    scales: Buffer<T>,
    waves: Buffer<T>,
    quarters: Buffer<T>,
    once: Buffer<T>,
    sums: Buffer<T>,
    frames: Vec<Frame>,
    /// What a sum over all rows is multiplied by to be a variance over the pupil.
    share: f64,
    side: usize,
    count: usize,
    /// Memory of the host for sums and for quarters, made when it is first asked for.
    fetched: [Option<Pinned<T>>; 2],
}

// Quarter of a map for a device
/// A map that is the same at −ρ, (n, n), on a quarter of it: at (ρ_x, ρ_y) and at (−ρ_x, ρ_y), (2, side, side).
pub(crate) fn quarter_of<T: Real>(map: &Array2<f64>, side: usize) -> Vec<T> {
    let middle = map.nrows() / 2;
    let places = (0..2).flat_map(|sign| (0..side * side).map(move |place| (sign, place)));
    let value = |(sign, place): (usize, usize)| {
        let (j, i) = (place / side, place % side);
        let x = if sign == 0 { middle + i } else { middle - i };
        T::of(map[[middle + j, x]])
    };
    places.map(value).collect()
}
/// Bytes of a camera with so many displacements and directions along an axis of a quarter.
pub(crate) fn camera_bytes<T>(side: usize, count: usize, wavelengths: usize) -> u64 {
    let each = 2 * (side * side + side * count + count * count);
    ((6 * side * side + side * count + wavelengths * each) * size_of::<T>() + 8 * side) as u64
}

// Prepare a camera on a device
impl<T: Real> CameraGpu<T> {
    /// A camera with so many `pixels` across, of a wavelength \[m\] and a side \[rad\] in each of the `exposures`; `common` is the structure
    /// function \[m²\] that all wavefronts have in common, on the displacements of the telescope.
    ///
    /// # Errors
    /// `Invalid` where pixels reach beyond the field or a wavelength is none, `Memory` where there is no room, and what the device says.
    pub(crate) fn new(
        gpu: &Gpu,
        (telescope, common): (&TelescopeTransfer, &Array2<f64>),
        exposures: &[(f64, f64)],
        pixels: usize,
    ) -> Result<Self, Error> {
        telescope.check_structure(common)?;
        let (side, count) = (telescope.reach + 1, pixels / 2 + 1);
        let frames = frames(telescope, exposures, pixels)?;
        // Refuse a camera without room
        gpu.refuse_beyond_memory(camera_bytes::<T>(side, count, exposures.len()), "images")?;
        let of = |map| gpu.upload(&quarter_of::<T>(map, side));
        let scale = |frame: &Frame| T::of(-0.5 * (2.0 * PI / frame.wavelength).powi(2));
        let waves: Vec<T> =
            frames.iter().flat_map(|frame| waves_of(frame, [count, side])).collect();
        Ok(Self {
            // Buffers of a camera on a device
            gpu: gpu.clone(),
            kernels: CameraKernels::load(gpu, &[])?,
            telescope: of(telescope.values())?,
            common: of(common)?,
            total: of(common)?,
            rows: gpu.zeros(side)?,
            scales: gpu.upload(&frames.iter().map(scale).collect::<Vec<T>>())?,
            waves: gpu.upload(&waves)?,
            quarters: gpu.zeros(2 * exposures.len() * side * side)?,
            once: gpu.zeros(count * side)?,
            sums: gpu.zeros(2 * exposures.len() * count * count)?,
            share: 0.5 * telescope.step().powi(2) / telescope.area(),
            frames,
            side,
            count,
            fetched: [None, None],
        })
    }
}

// Frames and waves of a camera
/// The frames of images of these wavelengths \[m\] and sides of pixels \[rad\].
fn frames(
    telescope: &TelescopeTransfer,
    exposures: &[(f64, f64)],
    pixels: usize,
) -> Result<Vec<Frame>, Invalid> {
    accept(!exposures.is_empty(), "wavelengths", exposures.len(), "at least one")?;
    let (step, perfect) = (telescope.step(), telescope.values().sum());
    let frame = |&(wavelength, pixel): &(f64, f64)| {
        let wavelength = length("wavelength", wavelength)?;
        let frame = Frame { step, wavelength, perfect, pixel, pixels };
        frame.check().map(|()| frame)
    };
    exposures.iter().map(frame).collect()
}

/// Cosines and sines of directions by displacements, (2, directions, displacements).
fn waves_of<T: Real>(frame: &Frame, shape: [usize; 2]) -> Vec<T> {
    let of = |wave: fn(f64) -> f64| waves(shape, frame.pixel * frame.step / frame.wavelength, wave);
    let both = [of(f64::cos), of(f64::sin)];
    both.iter().flatten().map(|value| T::of(*value)).collect()
}

// Add up structure functions on a device
impl<T: Real> CameraGpu<T> {
    /// Queues: the wavefront has what is common to all, and nothing else.
    pub(crate) fn begin(&self) -> Result<(), Error> {
        self.gpu.copy_within(&self.common, &self.total)
    }

    // Add a structure function on the device
    /// Queues: the wavefront has an error with this structure function too, (2, side, side), m².
    pub(crate) fn add(&self, structure: &Buffer<T>) -> Result<(), Error> {
        let arguments = AddStructure {
            total: self.total.view(..),
            rows: self.rows.view(..),
            structure: structure.view(..),
            telescope: self.telescope.view(..),
            side: self.side,
        };
        let shape = Shape { grid: [self.side, 1, 1], block: 128, shared: 0 };
        self.gpu.launch(&self.kernels.add_structure, shape, arguments)
    }

    /// The variance over the pupil, without piston, of what was added last, m².
    pub(crate) fn variance(&self) -> Result<f64, Error> {
        Ok(self.share * self.rows.read()?.iter().sum::<f64>())
    }

    /// Displacements of a quarter along an axis.
    pub(crate) fn side(&self) -> usize {
        self.side
    }
}

// Sum fringes on a device
impl<T: Real> CameraGpu<T> {
    /// Queues the transfer of the wavefront at all wavelengths.
    pub(crate) fn pass(&self) -> Result<(), Error> {
        let side = self.side;
        let arguments = PassLight {
            quarters: self.quarters.view(..),
            telescope: self.telescope.view(..),
            total: self.total.view(..),
            scales: self.scales.view(..),
            side,
        };
        let shape = Shape::over(side, 128, [side, self.frames.len()]);
        self.gpu.launch(&self.kernels.pass_light, shape, arguments)
    }

    // Multiply fringes along both axes
    /// Queues W Z Wᵗ for both parts of all wavelengths.
    fn sum(&self) -> Result<(), Error> {
        let (side, count, whole) = (self.side, self.count, [T::one(), T::zero()]);
        for k in 0..2 * self.frames.len() {
            let waves = self.waves.view(k * count * side..(k + 1) * count * side);
            let quarter = self.quarters.view(k * side * side..(k + 1) * side * side);
            let first = [(waves, false), (quarter, false)];
            self.gpu.multiply_matrices(first, [count, side, side], &self.once, whole)?;
            let second = [(self.once.view(..), false), (waves, true)];
            let sums = self.sums.view(k * count * count..(k + 1) * count * count);
            self.gpu.multiply_matrices(second, [count, side, count], sums, whole)?;
        }
        Ok(())
    }
}

// Fetch images from a device
impl<T: Real> CameraGpu<T> {
    /// The images of the wavefront whose light [passed](Self::pass).
    ///
    /// # Errors
    /// What the device says.
    pub(crate) fn images(&mut self) -> Result<Vec<PointSpread>, Error> {
        self.sum()?;
        let sums = fetch(&self.gpu, &self.sums, &mut self.fetched[0], self.count)?;
        let image = |(frame, sums): (&Frame, &[Array2<f64>; 2])| {
            frame.image(sums, sums[0][[0, 0]] / frame.perfect)
        };
        Ok(self.frames.iter().zip(&sums).map(image).collect())
    }

    // Quarters from the device
    /// Quarters of the optical transfer functions, and the frames of their images.
    ///
    /// # Errors
    /// What the device says.
    pub(crate) fn quarters(&mut self) -> Result<Vec<(Quarter, Frame)>, Error> {
        let parts = fetch(&self.gpu, &self.quarters, &mut self.fetched[1], self.side)?;
        let quarter = |([even, odd], frame): ([Array2<f64>; 2], &Frame)| {
            (Quarter { even, odd, field: frame.wavelength / frame.step }, *frame)
        };
        Ok(parts.into_iter().zip(&self.frames).map(quarter).collect())
    }
}

// Fetch pairs of squares by pinned memory
/// Pairs of squares with so many numbers along an axis, all of a buffer.
fn fetch<T: Real>(
    gpu: &Gpu,
    from: &Buffer<T>,
    buffer: &mut Option<Pinned<T>>,
    side: usize,
) -> Result<Vec<[Array2<f64>; 2]>, Error> {
    if buffer.is_none() {
        *buffer = Some(gpu.pinned(from.len())?);
    }
    let Some(pinned) = buffer else { return Ok(Vec::new()) };
    gpu.fetch(from, pinned)?;
    let values = pinned.values()?;
    let square = |values: &[T]| {
        let values = values.iter().map(|value| value.in_double()).collect();
        Array2::from_shape_vec((side, side), values)
            .unwrap_or_else(|_| unreachable!("as many as a square has"))
    };
    let pairs = values.chunks_exact(2 * side * side);
    Ok(pairs.map(|pair| pair.split_at(side * side)).map(|(a, b)| [square(a), square(b)]).collect())
}
