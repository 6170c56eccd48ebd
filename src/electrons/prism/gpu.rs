// Tangled from book/src/prism-gpu.md: edit there, or here and run cargo tangle stitch.
//! Probes as sums of beams on a device.

// Imports of windows on a device
use super::{Prism, SMatrix};
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, BufferView, Gpu, KernelSource, Shape};
use crate::device::headers::REAL;
use crate::electrons::multislice::gpu::PlaneSide;
use crate::electrons::{ProbeWave, WaveGrid};
use crate::error::Error;
use crate::linear::toeplitz::gpu::plain_sum::LOOPS;
use crate::linear::toeplitz::gpu::short_transforms::SHORT_TRANSFORMS;
use crate::numerics::real::Real;
use ndarray::s;
use num_complex::Complex;
use std::ops::Range;

const SOURCE: KernelSource = KernelSource {
    name: "prism.cu",
    text: include_str!("../../../kernels/electrons/prism.cu"),
    headers: &[REAL, LOOPS, SHORT_TRANSFORMS],
};

kernels! {
    /// Kernels of beams and windows.
    struct PrismKernels in SOURCE {
        /// Weights of beams in probes.
        weigh_beams: WeighBeams<T> {
            weights: [Complex<T>], probe: [Complex<T>], beams: [i32], places: [[f64; 2]], count: usize,
        }
        /// Sums of beams in windows.
        sum_beams: SumBeams<T> {
            sums: [Complex<T>], planes: [Complex<T>], weights: [Complex<T>], firsts: [[i32; 2]] as "int",
            count: usize, nx: usize, ny: usize, wide_x: usize, wide_y: usize,
        }
        /// Transforms the rows of windows.
        transform_rows: TransformRows<T> {
            sums: [Complex<T>], roots: [Complex<T>], count: usize,
        }
        /// Transforms the columns of windows.
        transform_columns: TransformColumns<T> {
            sums: [Complex<T>], roots: [Complex<T>], nx: usize,
        }
        /// Transforms the rows of beams back.
        back_along_rows: BackAlongRows<T> {
            planes: [Complex<T>], factors: [Complex<T>], roots: [Complex<T>], count: usize,
        }
        /// Transforms the columns of beams back.
        back_along_columns: BackAlongColumns<T> {
            planes: [Complex<T>], factors: [Complex<T>], roots: [Complex<T>], nx: usize,
        }
    }
}

// The windows of a device
/// What makes spectra of probes out of beams on a device.
pub(crate) struct WindowsGpu<T> {
    rows: (PlaneSide<T>, PrismKernels<T>),
    columns: (PlaneSide<T>, PrismKernels<T>),
    /// Pixels of a window, x and y.
    wide: [usize; 2],
}

impl<T: Real> WindowsGpu<T> {
    // Kernels of a window
    /// For windows on this grid; none where no kernels have its lengths.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn new(gpu: &Gpu, window: &WaveGrid) -> Result<Option<Self>, Error> {
        let wide = window.points().map(|points| points / 2);
        let Some((rows, across)) = PlaneSide::new(gpu, wide[0], false)? else {
            return Ok(None);
        };
        let Some((columns, down)) = PlaneSide::new(gpu, wide[1], true)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            rows: (rows, PrismKernels::load(gpu, &across)?),
            columns: (columns, PrismKernels::load(gpu, &down)?),
            wide,
        }))
    }

    // Sum and transform on a device
    /// Sums beams in the windows of the probes of defocus `d`, into `sums` (w, y, x).
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn sum(
        &self,
        queue: &Gpu,
        beams: &BeamsGpu<T>,
        d: usize,
        (places, firsts): (BufferView<[f64; 2]>, BufferView<[i32; 2]>),
        [weights, sums]: [BufferView<Complex<T>>; 2],
        probes: usize,
    ) -> Result<(), Error> {
        let ([wide_x, wide_y], [nx, ny], count) = (self.wide, beams.pixels, beams.count);
        let kernels = &self.rows.1;
        let (probe, indices) = (beams.probes[d].view(..), beams.indices.view(..));
        let arguments = WeighBeams { weights, probe, beams: indices, places, count };
        queue.launch(&kernels.weigh_beams, Shape::over(count, 64, [probes, 1]), arguments)?;
        let planes = beams.planes.view(..);
        let arguments = SumBeams { sums, planes, weights, firsts, count, nx, ny, wide_x, wide_y };
        let shape = Shape::over(wide_x * wide_y, 128, [probes, 1]);
        queue.launch(&kernels.sum_beams, shape, arguments)
    }

    // Transform the sums of probes
    /// Transforms the sums of `count` probes, in place.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn transform(
        &self,
        queue: &Gpu,
        sums: BufferView<Complex<T>>,
        count: usize,
    ) -> Result<(), Error> {
        let ([wx, wy], (rows, along_x), (columns, along_y)) =
            (self.wide, &self.rows, &self.columns);
        let arguments = TransformRows { sums, roots: rows.roots.view(..), count: count * wy };
        queue.launch(&along_x.transform_rows, rows.shape(count * wy, 1), arguments)?;
        let arguments = TransformColumns { sums, roots: columns.roots.view(..), nx: wx };
        queue.launch(&along_y.transform_columns, columns.shape(wx, count), arguments)
    }
}

// Beams on a device
/// Some beams of a matrix on a device.
pub(crate) struct BeamsGpu<T> {
    planes: Buffer<Complex<T>>,
    /// Signed indices of the beams in the window.
    indices: Buffer<i32>,
    /// Amplitudes of the beams in the probe of each defocus, times f_x f_y.
    probes: Vec<Buffer<Complex<T>>>,
    count: usize,
    /// Pixels of a plane, x and y.
    pixels: [usize; 2],
}

impl<T: Real> BeamsGpu<T> {
    // Upload planes of a matrix
    /// The beams `which` of a matrix, for these probes on the grid of its window.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn new(
        gpu: &Gpu,
        matrix: &SMatrix<T>,
        which: Range<usize>,
        probes: &[ProbeWave],
    ) -> Result<Self, Error> {
        let planes = matrix.planes.slice(s![which.clone(), .., ..]);
        let planes = planes.as_slice().unwrap_or_else(|| unreachable!("planes are whole"));
        Self::of_planes(gpu, &matrix.prism, gpu.upload(planes)?, which, probes)
    }

    // Beams from planes on a device
    /// The beams `which`, whose planes are there already.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn of_planes(
        gpu: &Gpu,
        prism: &Prism,
        planes: Buffer<Complex<T>>,
        which: Range<usize>,
        probes: &[ProbeWave],
    ) -> Result<Self, Error> {
        let beams = &prism.beams[which];
        // Indices and amplitudes for a device
        let wide = prism.window.points().map(|points| points as i32 / 2);
        let signed = |beam: &[usize; 2]| {
            [0, 1].map(|axis| {
                let k = beam[axis] as i32;
                if k < wide[axis] / 2 { k } else { k - wide[axis] }
            })
        };
        let indices: Vec<i32> = beams.iter().flat_map(signed).collect();
        let [fx, fy] = prism.factor;
        let amplitudes = |probe: &ProbeWave| {
            let amplitude =
                |[i, j]: &[usize; 2]| T::of_complex(probe.on_axis()[[*j, *i]] * (fx * fy) as f64);
            gpu.upload(&beams.iter().map(amplitude).collect::<Vec<_>>())
        };
        Ok(Self {
            planes,
            indices: gpu.upload(&indices)?,
            probes: probes.iter().map(amplitudes).collect::<Result<_, _>>()?,
            count: beams.len(),
            pixels: prism.grid.points().map(|points| points / 2),
        })
    }
}

// Planes of beams on a device
/// What turns spectra of beams into planes on a device.
pub(crate) struct PlanesGpu<T> {
    rows: (PlaneSide<T>, PrismKernels<T>, Buffer<Complex<T>>),
    columns: (PlaneSide<T>, PrismKernels<T>, Buffer<Complex<T>>),
}

impl<T: Real> PlanesGpu<T> {
    // Kernels for spectra of beams
    /// For beams on a grid, with a factor for each kept k_x and each kept k_y; none where no kernels have its lengths.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn new(
        gpu: &Gpu,
        grid: &WaveGrid,
        [along_x, along_y]: &[Vec<Complex<f64>>; 2],
    ) -> Result<Option<Self>, Error> {
        let [nx, ny] = grid.points().map(|points| points / 2);
        let Some((rows, across)) = PlaneSide::new(gpu, nx, false)? else { return Ok(None) };
        let Some((columns, down)) = PlaneSide::new(gpu, ny, true)? else { return Ok(None) };
        let upload = |factors: &[Complex<f64>]| {
            gpu.upload(&factors.iter().copied().map(T::of_complex).collect::<Vec<_>>())
        };
        Ok(Some(Self {
            rows: (rows, PrismKernels::load(gpu, &across)?, upload(along_x)?),
            columns: (columns, PrismKernels::load(gpu, &down)?, upload(along_y)?),
        }))
    }

    // Transform spectra of beams in place
    /// Turns `count` spectra (beam, k_y, k_x) of kept frequencies into planes (beam, y, x), in place.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn back(
        &self,
        queue: &Gpu,
        planes: &Buffer<Complex<T>>,
        count: usize,
    ) -> Result<(), Error> {
        let ((rows, along_x, x), (columns, along_y, y)) = (&self.rows, &self.columns);
        let (lines, nx, planes) = (count * y.len(), x.len(), planes.view(..));
        let (factors, roots) = (x.view(..), rows.roots.view(..));
        let arguments = BackAlongRows { planes, factors, roots, count: lines };
        queue.launch(&along_x.back_along_rows, rows.shape(lines, 1), arguments)?;
        let (factors, roots) = (y.view(..), columns.roots.view(..));
        let arguments = BackAlongColumns { planes, factors, roots, nx };
        queue.launch(&along_y.back_along_columns, columns.shape(nx, count), arguments)
    }
}

// Tests of windows on a device
#[cfg(test)]
mod tests {
    use super::super::tests::{PLACES, matrix, probe};
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::watch::unwatched;

    #[test]
    fn windows_on_devices_are_those_of_processors() {
        let matrix = matrix::<f64>([3, 2], 40.0);
        let window = *matrix.prism.window();
        let wave = probe().wave(&window).unwrap();
        let expected = matrix.spectra(&wave, &PLACES, &unwatched).unwrap();
        let [wx, wy] = window.points().map(|points| points / 2);
        for gpu in test_backends() {
            let windows = WindowsGpu::<f64>::new(&gpu, &window).unwrap().unwrap();
            let lengths = window.lengths();
            let places = PLACES.map(|[x, y]| [x / lengths[0], y / lengths[1]]);
            let firsts = PLACES.map(|place| matrix.prism.first_pixel(place).map(|k| k as i32));
            let (places, firsts) = (gpu.upload(&places).unwrap(), gpu.upload(&firsts).unwrap());
            let half = matrix.prism.beams() / 2;
            let mut whole = vec![Complex::default(); 3 * wx * wy];
            for which in [0..half, half..matrix.prism.beams()] {
                let probes = std::slice::from_ref(&wave);
                let beams = BeamsGpu::new(&gpu, &matrix, which.clone(), probes).unwrap();
                let weights = gpu.zeros(3 * which.len()).unwrap();
                let sums = gpu.zeros(3 * wx * wy).unwrap();
                let at = (places.view(..), firsts.view(..));
                let workspace = [weights.view(..), sums.view(..)];
                windows.sum(&gpu, &beams, 0, at, workspace, 3).unwrap();
                let some: Vec<Complex<f64>> = sums.read().unwrap();
                whole.iter_mut().zip(some).for_each(|(all, some)| *all += some);
            }
            let sums = gpu.upload(&whole).unwrap();
            windows.transform(&gpu, sums.view(..), 3).unwrap();
            let found: Vec<Complex<f64>> = sums.read().unwrap();
            let gaps = expected.iter().zip(&found).map(|(a, b)| (a - b).norm());
            let gap = gaps.fold(0.0, f64::max);
            assert!(gap < 1e-14 && gap > 0.0, "{gap:e}");
        }
    }

    #[test]
    fn windows_without_radices_are_left_to_processors() {
        for gpu in test_backends() {
            let grid = WaveGrid::new([8, 44], [1.0, 1.0]).unwrap();
            assert!(WindowsGpu::<f32>::new(&gpu, &grid).unwrap().is_none());
        }
    }
}
