// Tangled from book/src/matrix-gpu.md: edit there, or here and run cargo tangle stitch.
//! A dense matrix as an operator on a device.

// Kernels of the dense matrix
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, BufferView, Gpu, KernelSource, Shape};
use crate::device::headers::REAL;
use crate::error::Error;
use crate::linear::operator::gpu::{DeviceOperator, check_lengths};
use crate::numerics::real::Real;
use ndarray::ArrayView2;

const SOURCE: KernelSource = KernelSource {
    name: "matrix.cu",
    text: include_str!("../../../kernels/linear/matrix.cu"),
    headers: &[REAL],
};

kernels! {
    /// Kernels of a dense matrix.
    struct MatrixKernels in SOURCE {
        /// y = A x.
        multiply_rows: MultiplyRows<T> { matrix: [T], x: [T], y: [T], rows: usize, columns: usize }
        /// y = Aᵀ x.
        multiply_columns: MultiplyColumns<T> {
            matrix: [T], x: [T], y: [T], rows: usize, columns: usize,
        }
    }
}

/// Threads in a block.
const THREADS: usize = 256;

/// Bytes that cuSOLVER and cuBLAS occupy for any size of the matrix.
pub(crate) const WORKING: u64 = 1 << 30;

// Matrix on a device
/// A dense matrix in the memory of a device.
pub struct MatrixGpu<T> {
    gpu: Gpu,
    elements: Buffer<T>,
    shape: (usize, usize),
    kernels: MatrixKernels<T>,
}

// Copy a matrix to a device
impl<T: Real> MatrixGpu<T> {
    /// The matrix on the device, rounded to its precision.
    ///
    /// # Errors
    /// `Memory` if it does not fit, and errors of the device.
    pub fn new(gpu: &Gpu, matrix: ArrayView2<f64>) -> Result<Self, Error> {
        let bytes = (matrix.len() * size_of::<T>()) as u64;
        gpu.refuse_beyond_memory(bytes, "a dense matrix")?;
        let elements: Vec<T> = matrix.iter().map(|&element| T::of(element)).collect();
        Self::of(gpu, gpu.upload(&elements)?, matrix.dim())
    }

    // Parts of a matrix on a device
    /// The matrix of this shape whose elements are there, row by row.
    pub(crate) fn of(gpu: &Gpu, elements: Buffer<T>, shape: (usize, usize)) -> Result<Self, Error> {
        Ok(Self { elements, shape, kernels: MatrixKernels::load(gpu, &[])?, gpu: gpu.clone() })
    }

    /// The elements, row by row.
    pub(crate) fn elements(&self) -> BufferView<'_, T> {
        self.elements.view(..)
    }

    /// Queues y = A x.
    pub(crate) fn multiply_vector(&self, x: BufferView<T>, y: BufferView<T>) -> Result<(), Error> {
        let (rows, columns) = self.shape;
        let arguments = MultiplyRows { matrix: self.elements(), x, y, rows, columns };
        let shape = Shape::over(32 * rows, THREADS, [1, 1]);
        self.gpu.launch(&self.kernels.multiply_rows, shape, arguments)
    }
}

// Products with a matrix on a device
impl<T: Real> DeviceOperator<T> for MatrixGpu<T> {
    // Answers of a matrix on a device
    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn rows(&self) -> usize {
        self.shape.0
    }

    fn columns(&self) -> usize {
        self.shape.1
    }

    fn bytes(&self) -> u64 {
        self.elements.bytes()
    }

    fn apply(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        check_lengths(x, y, self.shape)?;
        self.multiply_vector(x.view(..), y.view(..))
    }

    fn apply_transpose(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        check_lengths(x, y, (self.shape.1, self.shape.0))?;
        let (rows, columns) = self.shape;
        let [matrix, x, y] = [&self.elements, x, y].map(|buffer| buffer.view(..));
        let arguments = MultiplyColumns { matrix, x, y, rows, columns };
        let shape = Shape::over(columns, THREADS, [1, 1]);
        self.gpu.launch(&self.kernels.multiply_columns, shape, arguments)
    }
}

// Tests of the matrix on a device
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::linear::matrix::Dense;
    use crate::linear::operator::gpu::OnHost;
    use crate::linear::operator::{Operator, battery};
    use ndarray::Array2;
    use std::sync::Arc;

    // Hold matrices on devices to the host
    #[test]
    fn a_matrix_on_a_device_is_the_matrix() {
        for gpu in test_backends() {
            for shape in [(1, 1), (3, 17), (70, 5), (21, 300)] {
                let values = battery::random(shape.0 * shape.1, 5);
                let matrix = Array2::from_shape_vec(shape, values).unwrap();
                let there = OnHost(Arc::new(MatrixGpu::<f64>::new(&gpu, matrix.view()).unwrap()));
                battery::check(&there, 1e-13);
                let x = battery::random(shape.1, 6);
                let expected = battery::product(&Dense::new(matrix), false, &x, 1);
                let product = battery::product(&there, false, &x, 1);
                assert!(battery::distance(&product, &expected) < 1e-14);
                assert_eq!(there.bytes(), 8 * (shape.0 * shape.1) as u64);
            }
        }
    }
}
