// Tangled from book/src/modes-gpu.md: edit there, or here and run cargo tangle stitch.
//! Modes on a device: common noise of some numbers of a vector, and modes that are removed from them.

// Imports of modes on a device
use super::{DeviceOperator, check_lengths, vectors_of};
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, Gpu, KernelSource, Shape};
use crate::device::headers::{BLOCK_SUM, REAL};
use crate::error::{Error, accept};
use crate::numerics::real::Real;
use std::sync::Arc;

// Modes in the memory of a device
// Kernels of modes on a device
const MODES: KernelSource = KernelSource {
    name: "modes.cu",
    text: include_str!("../../../../kernels/linear/modes.cu"),
    headers: &[REAL, BLOCK_SUM],
};

kernels! {
    /// Kernels of modes.
    struct ModeKernels in MODES {
        /// Products of modes with vectors.
        mode_shares: ModeShares<T> {
            x: [T], modes: [i32] as "Mode", shapes: [T], shares: [T], n: usize,
        }
        /// Adds modes to vectors.
        add_modes: AddModes<T> {
            x: [T], y: [T], modes: [i32] as "Mode", shapes: [T], shares: [T], weights: [T],
            count: usize, n: usize,
        }
    }
}

/// Threads of a block.
const THREADS: usize = 256;

/// A mode: the row at which it begins, and its numbers.
pub(crate) type RowMode = (usize, Vec<f64>);

/// Modes over the rows of vectors that are stored one after the other.
pub(crate) struct ModesGpu<T> {
    gpu: Gpu,
    /// Rows of a vector, vectors, and modes.
    sizes: [usize; 3],
    /// Where the modes are, and their numbers.
    places: Buffer<i32>,
    shapes: Buffer<T>,
    /// Products of the modes with vectors, and the weights with which modes are removed.
    shares: Buffer<T>,
    minus: Buffer<T>,
    kernels: ModeKernels<T>,
}

// Copy modes to a device
impl<T: Real> ModesGpu<T> {
    /// Modes over vectors of this number of `rows`, for this number of vectors.
    ///
    /// # Errors
    /// `Invalid` if a mode extends beyond the last row, and errors of the device.
    pub(crate) fn new(
        gpu: &Gpu,
        [rows, vectors]: [usize; 2],
        modes: &[RowMode],
    ) -> Result<Self, Error> {
        // List the places of modes
        let (mut places, mut shapes) = (Vec::new(), Vec::new());
        for (k, (first, shape)) in modes.iter().enumerate() {
            let (end, expected) = (first + shape.len(), format!("at most {rows}, the rows"));
            accept(end <= rows, &format!("end of mode {k}"), end, &expected)?;
            places.extend([*first, shape.len(), shapes.len()].map(|place| place as i32));
            shapes.extend(shape.iter().map(|&part| T::of(part)));
        }
        // Buffers of modes on a device
        Ok(Self {
            sizes: [rows, vectors, modes.len()],
            places: gpu.upload(&places)?,
            shapes: gpu.upload(&shapes)?,
            shares: gpu.zeros(vectors * modes.len())?,
            minus: gpu.upload(&vec![-T::one(); modes.len()])?,
            kernels: ModeKernels::load(gpu, &[])?,
            gpu: gpu.clone(),
        })
    }

    // Multiply modes with vectors
    /// Writes the products of the modes with vectors to `shares`.
    fn share(&self, x: &Buffer<T>, shares: &Buffer<T>) -> Result<(), Error> {
        let [rows, vectors, count] = self.sizes;
        let (modes, shapes) = (self.places.view(..), self.shapes.view(..));
        let arguments =
            ModeShares { x: x.view(..), modes, shapes, shares: shares.view(..), n: rows };
        let shape = Shape {
            grid: [count, 1, vectors],
            block: THREADS.min(rows.next_multiple_of(32)),
            shared: 0,
        };
        self.gpu.launch(&self.kernels.mode_shares, shape, arguments)
    }

    // Add modes by their shares
    /// y = x plus the modes, multiplied by their shares and weights; y may be x.
    fn add(
        &self,
        [x, y]: [&Buffer<T>; 2],
        [shares, weights]: [&Buffer<T>; 2],
    ) -> Result<(), Error> {
        let [rows, vectors, count] = self.sizes;
        let arguments = AddModes {
            x: x.view(..),
            y: y.view(..),
            modes: self.places.view(..),
            shapes: self.shapes.view(..),
            shares: shares.view(..),
            weights: weights.view(..),
            count,
            n: rows,
        };
        let shape = Shape::over(rows, THREADS, [1, vectors]);
        self.gpu.launch(&self.kernels.add_modes, shape, arguments)
    }
}

// Remove modes from vectors
/// 1 − Σ u uᵗ for orthonormal modes; the result may overwrite the input.
impl<T: Real> DeviceOperator<T> for ModesGpu<T> {
    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn rows(&self) -> usize {
        self.sizes[0] * self.sizes[1]
    }

    fn columns(&self) -> usize {
        self.rows()
    }

    fn apply(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        check_lengths(x, y, (self.rows(), self.rows()))?;
        self.share(x, &self.shares)?;
        self.add([x, y], [&self.shares, &self.minus])
    }

    fn apply_transpose(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        self.apply(x, y)
    }

    fn bytes(&self) -> u64 {
        let numbers = [&self.shapes, &self.shares, &self.minus].map(Buffer::bytes);
        self.places.bytes() + numbers.iter().sum::<u64>()
    }
}

// Operator with modes in common
/// A symmetric operator A with modes u: A + Σ c u uᵗ with their weights, or with the modes removed, Eq. [blind on device](https://lenslet.github.io/lenslet/modes-gpu.html#eq-blind-on-device).
pub(crate) struct WithModesGpu<T> {
    operator: Arc<dyn DeviceOperator<T>>,
    modes: ModesGpu<T>,
    weights: Buffer<T>,
    /// If modes are removed: vectors without them, and their shares in the result.
    without: Option<[Buffer<T>; 2]>,
}

impl<T: Real> WithModesGpu<T> {
    // Add modes to an operator
    /// The sum of an `operator` and of weighted modes, which are repeated for each vector of this number of `rows`.
    ///
    /// # Errors
    /// As for [`ModesGpu::new`], and `Invalid` if the number of rows does not fit.
    pub(crate) fn in_common(
        operator: Arc<dyn DeviceOperator<T>>,
        rows: usize,
        modes: &[RowMode],
        weights: &[f64],
    ) -> Result<Self, Error> {
        let vectors = vectors_of(operator.as_ref(), (rows, "modes"))?;
        let modes = ModesGpu::new(operator.gpu(), [rows, vectors], modes)?;
        let weights: Vec<T> = weights.iter().map(|&weight| T::of(weight)).collect();
        let weights = operator.gpu().upload(&weights)?;
        Ok(Self { operator, modes, weights, without: None })
    }

    // Remove modes from a device operator
    /// An `operator` with modes removed, which are repeated for each vector of this number of `rows`.
    ///
    /// # Errors
    /// As for [`WithModesGpu::in_common`].
    pub(crate) fn taken_out(
        operator: Arc<dyn DeviceOperator<T>>,
        rows: usize,
        modes: &[RowMode],
    ) -> Result<Self, Error> {
        let (gpu, vectors) =
            (operator.gpu().clone(), vectors_of(operator.as_ref(), (rows, "modes"))?);
        let [left, there] = [gpu.zeros::<T>(vectors * rows)?, gpu.zeros::<T>(vectors * rows)?];
        let mut variances = Vec::new();
        // Variances of modes from products
        for some in modes.chunks(vectors) {
            let mut x = vec![T::zero(); vectors * rows];
            for ((first, shape), x) in some.iter().zip(x.chunks_exact_mut(rows)) {
                let own = x[*first..].iter_mut().zip(shape);
                own.for_each(|(x, &part)| *x = T::of(part));
            }
            left.write(&x)?;
            operator.apply(&left, &there)?;
            let along = |(x, y): (&[T], &[T])| {
                x.iter().zip(y).map(|(&x, &y)| x.in_double() * y.in_double()).sum::<f64>()
            };
            let there = there.read()?;
            let products = x.chunks_exact(rows).zip(there.chunks_exact(rows)).map(along);
            variances.extend(products.take(some.len()));
        }
        let with = Self::in_common(operator, rows, modes, &variances)?;
        let after = gpu.zeros(with.modes.shares.len())?;
        Ok(Self { without: Some([left, after]), ..with })
    }
}

// Multiply with modes or without
impl<T: Real> DeviceOperator<T> for WithModesGpu<T> {
    // Sizes of an operator with modes
    fn gpu(&self) -> &Gpu {
        self.operator.gpu()
    }

    fn rows(&self) -> usize {
        self.operator.rows()
    }

    fn columns(&self) -> usize {
        self.operator.columns()
    }

    fn apply(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        let modes = &self.modes;
        match &self.without {
            None => {
                modes.share(x, &modes.shares)?;
                self.operator.apply(x, y)?;
            }
            Some([left, after]) => {
                modes.apply(x, left)?;
                self.operator.apply(left, y)?;
                modes.share(y, after)?;
                modes.add([y, y], [after, &modes.minus])?;
            }
        }
        modes.add([y, y], [&modes.shares, &self.weights])
    }

    // Transpose of an operator with modes
    fn apply_transpose(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        self.apply(x, y)
    }

    // Bytes of an operator with modes
    fn bytes(&self) -> u64 {
        let own = self.without.iter().flatten().chain([&self.weights]).map(Buffer::bytes);
        self.operator.bytes() + self.modes.bytes() + own.sum::<u64>()
    }
}

// Tests of modes on a device
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::linear::matrix::gpu::MatrixGpu;
    use crate::linear::operator::{battery, gpu::OnHost};
    use ndarray::Array2;

    #[test]
    fn modes_are_added_and_taken_out() {
        // Two modes over the same rows, orthogonal to each other, and one over others.
        let (n, long) = (70, 40);
        let wave = |k: usize| {
            move |i: usize| {
                (0.05f64).sqrt() * (2.0 * std::f64::consts::PI * (k * i) as f64 / 40.0).cos()
            }
        };
        let modes: Vec<RowMode> = vec![
            (3, (0..long).map(wave(1)).collect()),
            (3, (0..long).map(wave(2)).collect()),
            (50, vec![0.5; 4]),
        ];
        let (weights, mut z) = ([2.0, 3.0, 0.7], Array2::<f64>::zeros((n, 3)));
        for (k, (first, shape)) in modes.iter().enumerate() {
            shape.iter().enumerate().for_each(|(i, part)| z[[first + i, k]] = *part);
        }
        let values = battery::random::<f64>(n * n, 1);
        let a = Array2::from_shape_vec((n, n), values).unwrap();
        let a = &a + &a.t();
        let q = Array2::eye(n) - z.dot(&z.t());
        let with = |weights: &[f64]| (&z * &ndarray::arr1(weights)).dot(&z.t());
        let variances: Vec<f64> = z.t().dot(&a).dot(&z).diag().to_vec();
        for gpu in test_backends() {
            let there = Arc::new(MatrixGpu::<f64>::new(&gpu, a.view()).unwrap());
            let common = WithModesGpu::in_common(there.clone(), n, &modes, &weights).unwrap();
            let blind = WithModesGpu::taken_out(there.clone(), n, &modes).unwrap();
            let out = ModesGpu::new(&gpu, [n, 1], &modes).unwrap();
            let expected = [&a + &with(&weights), q.dot(&a).dot(&q) + with(&variances), q.clone()];
            let all: [Arc<dyn DeviceOperator<f64>>; 3] =
                [Arc::new(common), Arc::new(blind), Arc::new(out)];
            for (operator, expected) in all.into_iter().zip(expected) {
                let operator = OnHost(operator);
                battery::check(&operator, 1e-12);
                let x = battery::random(n, 3);
                let found = battery::product(&operator, false, &x, 1);
                let exact = expected.dot(&ndarray::arr1(&x)).to_vec();
                assert!(battery::distance(&found, &exact) < 1e-13);
            }
            // What does not fit is refused
            assert!(ModesGpu::<f64>::new(&gpu, [n, 1], &[(69, vec![1.0; 2])]).is_err());
            assert!(WithModesGpu::taken_out(there, n - 1, &modes).is_err());
        }
    }
}
