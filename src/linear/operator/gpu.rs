// Tangled from book/src/device-operators.md: edit there, or here and run cargo tangle stitch.
//! Linear operators between vectors in the memory of a device.

// What operators on a device stand on
use crate::device::gpu::{Buffer, Gpu};
use crate::error::{Error, Invalid, accept};
use crate::linear::operator::{Operator, vectors};
use crate::numerics::real::Real;
use bytemuck::Pod;
use std::sync::Arc;

// What an operator on a device does
/// A linear operator between vectors in the memory of a device.
///
/// A product only launches kernels, in order on the stream of the device: it may be recorded in a graph. The same
/// operator must not be used by two threads at once, because its products share scratch.
pub trait DeviceOperator<T>: Send + Sync {
    /// The device that the operator lives on.
    fn gpu(&self) -> &Gpu;

    /// Numbers in a vector that comes out, m.
    fn rows(&self) -> usize;

    /// Numbers in a vector that goes in, n.
    fn columns(&self) -> usize;

    // Queue products with a device operator
    /// y = A x: `x` holds n numbers, `y` takes m. They are different buffers.
    ///
    /// # Errors
    /// `Invalid` where a buffer has the wrong length; what the device says where a launch fails.
    fn apply(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error>;

    /// y = Aᵀ x: `x` holds m numbers, `y` takes n. They are different buffers.
    ///
    /// # Errors
    /// As in [`DeviceOperator::apply`].
    fn apply_transpose(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error>;

    /// Bytes of the device's memory that the operator keeps, with its scratch.
    fn bytes(&self) -> u64;
}

// Refuse buffers of other lengths
/// Refuses buffers that an operator of m × n numbers, or its transpose, cannot take.
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
    /// `Invalid` where they do not fit; what the device says.
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

// Operator on a device used from the host
/// An operator on a device, used from the host: vectors go there and come back at each product.
///
/// A product of which the device fails is full of NaN, and the standard error says why.
pub struct OnHost<T>(pub Arc<dyn DeviceOperator<T>>);

impl<T: Real> OnHost<T> {
    // Carry vectors there and back
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
