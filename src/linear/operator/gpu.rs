// Tangled from book/src/device-operators.md: edit there, or here and run cargo tangle stitch.
//! Linear operators between vectors in the memory of a device.

pub(crate) mod modes;

// Imports of operators on a device
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, Gpu, KernelSource, Shape};
use crate::device::headers::REAL;
use crate::error::{Error, Invalid, accept};
use crate::linear::operator::{Operator, Pairs, vectors};
use crate::numerics::real::Real;
use bytemuck::Pod;
use std::sync::Arc;

// What an operator on a device does
/// A linear operator between vectors in the memory of a device.
///
/// A product only launches kernels, in order on the stream of the device: it may be recorded in a graph. The same
/// operator must not be used by two threads at once, because its products share scratch.
pub trait DeviceOperator<T>: Send + Sync {
    /// The device whose memory contains the operator.
    fn gpu(&self) -> &Gpu;

    /// Number of rows m, the length of a result.
    fn rows(&self) -> usize;

    /// Number of columns n, the length of an input.
    fn columns(&self) -> usize;

    // Queue products with a device operator
    /// y = A x: `x` holds n numbers, `y` takes m. They are different buffers.
    ///
    /// # Errors
    /// `Invalid` if a buffer has the wrong length, and an error of the device if a launch fails.
    fn apply(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error>;

    /// y = Aᵀ x: `x` holds m numbers, `y` takes n. They are different buffers.
    ///
    /// # Errors
    /// As in [`DeviceOperator::apply`].
    fn apply_transpose(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error>;

    /// Bytes that the operator occupies in the memory of the device, including its scratch.
    fn bytes(&self) -> u64;
}

// Reject buffers of other lengths
/// Rejects buffers whose lengths do not fit an operator of m × n numbers, or its transpose.
pub(crate) fn check_lengths<T: Pod>(
    x: &Buffer<T>,
    y: &Buffer<T>,
    (rows, columns): (usize, usize),
) -> Result<(), Invalid> {
    if (y.len(), x.len()) == (rows, columns) {
        return Ok(());
    }
    let value = format!("{} → {} numbers", x.len(), y.len());
    Err(Invalid::new("buffers of a product", value, format!("{columns} → {rows}")))
}

// Count the vectors of an operator
/// Number of vectors with this number of rows, that of another object, that a square operator multiplies at once.
fn vectors_of<T>(
    operator: &dyn DeviceOperator<T>,
    (rows, others): (usize, &str),
) -> Result<usize, Invalid> {
    let shape = (operator.rows(), operator.columns());
    let fits = shape.0 == shape.1 && shape.0.is_multiple_of(rows);
    accept(fits, "shape", shape, &format!("{rows} × {rows}, as the {others}"))?;
    Ok(shape.0 / rows)
}

// Product of two operators on a device
/// The product of two operators, the second of which is applied first.
pub struct ProductGpu<T> {
    factors: [Arc<dyn DeviceOperator<T>>; 2],
    between: Buffer<T>,
}

impl<T: Real> ProductGpu<T> {
    /// The product of `left` and `right`.
    ///
    /// # Errors
    /// `Invalid` if their sizes do not fit, and errors of the device.
    pub fn new(
        left: Arc<dyn DeviceOperator<T>>,
        right: Arc<dyn DeviceOperator<T>>,
    ) -> Result<Self, Error> {
        let (rows, expected) =
            (right.rows(), format!("{}, as columns on the left", left.columns()));
        accept(left.columns() == rows, "rows of the right factor", rows, &expected)?;
        let between = left.gpu().zeros(rows)?;
        Ok(Self { factors: [left, right], between })
    }
}

// Apply two operators on a device
impl<T: Real> DeviceOperator<T> for ProductGpu<T> {
    // Answers of a product on a device
    fn gpu(&self) -> &Gpu {
        self.factors[0].gpu()
    }

    fn rows(&self) -> usize {
        self.factors[0].rows()
    }

    fn columns(&self) -> usize {
        self.factors[1].columns()
    }

    fn bytes(&self) -> u64 {
        self.factors[0].bytes() + self.factors[1].bytes() + self.between.bytes()
    }

    fn apply(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        self.factors[1].apply(x, &self.between)?;
        self.factors[0].apply(&self.between, y)
    }

    fn apply_transpose(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        self.factors[0].apply_transpose(x, &self.between)?;
        self.factors[1].apply_transpose(&self.between, y)
    }
}

// Elements in pairs on a device
// Source of elements in pairs
const PAIRS: KernelSource = KernelSource {
    name: "pairs.cu",
    text: include_str!("../../../kernels/linear/pairs.cu"),
    headers: &[REAL],
};

// Kernel of elements in pairs
kernels! {
    /// Kernel of elements in pairs.
    struct PairKernels in PAIRS {
        /// Adds elements in pairs times x to y.
        add_pairs: AddPairs<T> { x: [T], y: [T], partners: [i32], elements: [T], rows: usize }
    }
}

/// The sum of a square operator and of elements in pairs.
pub struct WithPairsGpu<T> {
    operator: Arc<dyn DeviceOperator<T>>,
    partners: Buffer<i32>,
    elements: Buffer<T>,
    kernels: PairKernels<T>,
}

// Copy pairs to a device
impl<T: Real> WithPairsGpu<T> {
    /// The sum of `operator` and `pairs`, which are repeated for each of the vectors that the operator multiplies at once.
    ///
    /// # Errors
    /// `Invalid` if their sizes do not fit, and errors of the device.
    pub fn new(operator: Arc<dyn DeviceOperator<T>>, pairs: &Pairs<f64>) -> Result<Self, Error> {
        vectors_of(operator.as_ref(), (pairs.elements().len(), "pairs"))?;
        let gpu = operator.gpu();
        let partners: Vec<i32> = pairs.partners().iter().map(|&partner| partner as i32).collect();
        let elements: Vec<T> = pairs.elements().iter().map(|&element| T::of(element)).collect();
        let kernels = PairKernels::load(gpu, &[])?;
        let (partners, elements) = (gpu.upload(&partners)?, gpu.upload(&elements)?);
        Ok(Self { operator, partners, elements, kernels })
    }

    // Add elements in pairs
    fn add(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        let rows = self.elements.len();
        let shape = Shape::over(rows, 256, [1, x.len() / rows]);
        let (partners, elements) = (self.partners.view(..), self.elements.view(..));
        let arguments = AddPairs { x: x.view(..), y: y.view(..), partners, elements, rows };
        self.gpu().launch(&self.kernels.add_pairs, shape, arguments)
    }
}
impl<T: Real> DeviceOperator<T> for WithPairsGpu<T> {
    // Sizes of an operator with pairs
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
        self.operator.apply(x, y)?;
        self.add(x, y)
    }

    fn apply_transpose(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        self.operator.apply_transpose(x, y)?;
        self.add(x, y)
    }

    fn bytes(&self) -> u64 {
        self.operator.bytes() + self.partners.bytes() + self.elements.bytes()
    }
}

// Operator on a device used from the host
/// An operator on a device that is used from the host: each product copies its vectors to the device and back.
///
/// If the device fails, the product is filled with NaN, and the reason is printed on the standard error.
pub struct OnHost<T>(pub Arc<dyn DeviceOperator<T>>);

impl<T: Real> OnHost<T> {
    // Copy vectors to the device and back
    /// Multiplies vector after vector on the device.
    fn multiply(&self, transposed: bool, x: &[T], y: &mut [T]) -> Result<(), Error> {
        let (mut rows, mut columns) = (self.0.rows(), self.0.columns());
        if transposed {
            (rows, columns) = (columns, rows);
        }
        vectors(x, y, (rows, columns));
        let (from, to) = (self.0.gpu().zeros(columns)?, self.0.gpu().zeros(rows)?);
        for (x, y) in x.chunks_exact(columns).zip(y.chunks_exact_mut(rows)) {
            from.write(x)?;
            match transposed {
                false => self.0.apply(&from, &to)?,
                true => self.0.apply_transpose(&from, &to)?,
            }
            to.read_into(y)?;
        }
        Ok(())
    }

    fn multiply_or_say(&self, transposed: bool, x: &[T], y: &mut [T]) {
        if let Err(error) = self.multiply(transposed, x, y) {
            eprintln!("{error}");
            y.fill(T::nan());
        }
    }
}

impl<T: Real> Operator<T> for OnHost<T> {
    // Answers of an operator on a device
    fn rows(&self) -> usize {
        self.0.rows()
    }

    fn columns(&self) -> usize {
        self.0.columns()
    }

    fn scratch(&self, _vectors: usize) -> usize {
        0
    }

    fn apply(&self, x: &[T], y: &mut [T], _: &mut [T]) {
        self.multiply_or_say(false, x, y);
    }

    fn apply_transpose(&self, x: &[T], y: &mut [T], _: &mut [T]) {
        self.multiply_or_say(true, x, y);
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

// Tests of elements in pairs
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::linear::matrix::{Dense, gpu::MatrixGpu};
    use crate::linear::operator::{Sum, battery};
    use ndarray::Array2;

    #[test]
    fn pairs_are_added_to_any_operator() {
        let n = 300;
        let values = battery::random::<f64>(n * n, 1);
        let matrix = Array2::from_shape_vec((n, n), values).unwrap();
        let partners: Vec<usize> = (0..n).map(|k| (k + n / 2) % n).collect();
        let joins = battery::random::<f64>(n / 2, 2).repeat(2);
        let pairs = Pairs::new(partners, joins).unwrap();
        let here: Vec<Arc<dyn Operator<f64>>> =
            vec![Arc::new(Dense::new(matrix.clone())), Arc::new(pairs.clone())];
        let here = Sum::new(here).unwrap();
        for gpu in test_backends() {
            let there = Arc::new(MatrixGpu::<f64>::new(&gpu, matrix.view()).unwrap());
            let there = OnHost(Arc::new(WithPairsGpu::new(there, &pairs).unwrap()));
            battery::check(&there, 1e-12);
            let x = battery::random(n, 3);
            for transposed in [false, true] {
                let [here, there] = [&here as &dyn Operator<f64>, &there]
                    .map(|operator| battery::product(operator, transposed, &x, 1));
                assert!(battery::distance(&there, &here) < 1e-13, "transposed: {transposed}");
            }
            let small =
                Arc::new(MatrixGpu::<f64>::new(&gpu, matrix.slice(ndarray::s![1.., 1..])).unwrap());
            assert!(WithPairsGpu::new(small, &pairs).is_err());
        }
    }
}
