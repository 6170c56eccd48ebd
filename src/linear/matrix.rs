// Tangled from book/src/matrix-operators.md: edit there, or here and run cargo tangle stitch.
//! The dense matrix, as an operator.

pub(crate) mod gpu;

use crate::linear::operator::{Operator, vectors};
use crate::numerics::real::Real;
use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, ArrayViewMut2};
use rayon::prelude::*;

// Dense matrix as an operator
/// A dense matrix, (rows, columns).
///
/// ```
/// use lenslet::linear::Dense;
/// use lenslet::linear::Operator;
/// let matrix = Dense::new(ndarray::arr2(&[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]));
/// let (mut y, mut scratch) = ([0.0; 2], vec![0.0; matrix.scratch(1)]);
/// matrix.apply(&[1.0, 0.0, -1.0], &mut y, &mut scratch);
/// assert_eq!(y, [-2.0, -2.0]);
/// assert_eq!((matrix.bytes(), matrix.dense_bytes()), (48, 48));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Dense<T>(Array2<T>);

// Scalar product as eight sums
/// Σ a b, as eight independent sums in the precision of b.
pub(crate) fn dot<A: Real, T: Real>(a: &[A], b: &[T]) -> T {
    let term = |a: A, b: T| T::of(a.in_double()) * b;
    let mut sums = [T::zero(); 8];
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: T = (a.remainder().iter().zip(b.remainder())).map(|(&a, &b)| term(a, b)).sum();
    for (a, b) in a.zip(b) {
        for k in 0..8 {
            sums[k] += term(a[k], b[k]);
        }
    }
    sums.into_iter().sum::<T>() + rest
}

// Product of rows with several vectors
/// Vectors from which on a product of matrices is faster than scalar products.
const SEVERAL: usize = 6;

/// A Xᵗ, (rows, vectors), of a matrix with rows of n elements and vectors of n numbers, on all threads.
pub(crate) fn times_vectors<T: Real>(matrix: &[T], x: &[T], n: usize, products: &mut [T]) {
    let (rows, vectors) = (matrix.len() / n, x.len() / n);
    let block = rows.div_ceil(4 * rayon::current_num_threads()).clamp(8, 512);
    let blocks = products.par_chunks_mut(block * vectors).zip(matrix.par_chunks(block * n));
    blocks.for_each(|(products, matrix)| {
        if vectors < SEVERAL {
            for (products, row) in products.chunks_exact_mut(vectors).zip(matrix.chunks_exact(n)) {
                let each = products.iter_mut().zip(x.chunks_exact(n));
                each.for_each(|(product, x)| *product = dot(row, x));
            }
            return;
        }
        // Multiply a block of rows
        let rows = matrix.len() / n;
        let shaped = (
            ArrayView2::from_shape((rows, n), matrix),
            ArrayView2::from_shape((vectors, n), x),
            ArrayViewMut2::from_shape((rows, vectors), products),
        );
        if let (Ok(matrix), Ok(x), Ok(mut products)) = shaped {
            general_mat_mul(T::one(), &matrix, &x.t(), T::zero(), &mut products);
        }
    });
}

// What a dense matrix can do
impl<T: Real> Dense<T> {
    // Keep a matrix by rows
    /// The operator of a matrix of shape (rows, columns).
    pub fn new(matrix: Array2<T>) -> Self {
        match matrix.is_standard_layout() {
            true => Self(matrix),
            false => Self(matrix.as_standard_layout().into_owned()),
        }
    }

    /// The elements, row by row.
    fn values(&self) -> &[T] {
        self.0.as_slice().unwrap_or_default()
    }

    // Multiply the rows by vectors
    /// y = A x, row by row.
    fn by_rows(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        let (rows, columns) = self.0.dim();
        let vectors = vectors(x, y, (rows, columns));
        if y.is_empty() || columns == 0 {
            return y.fill(T::zero());
        }
        let products = &mut scratch[..y.len()];
        times_vectors(self.values(), x, columns, products);
        for (vector, y) in y.chunks_exact_mut(rows).enumerate() {
            for (row, y) in y.iter_mut().enumerate() {
                *y = products[row * vectors + vector];
            }
        }
    }

    // Multiply the columns by vectors
    /// Columns that one thread takes at a time in a product with the transpose.
    const STRIP: usize = 256;

    /// y = Aᵀ x, strip by strip of columns.
    fn by_columns(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        let (rows, columns) = self.0.dim();
        let vectors = vectors(x, y, (columns, rows));
        if y.is_empty() || rows == 0 {
            return y.fill(T::zero());
        }
        let products = &mut scratch[..y.len()];
        products.par_chunks_mut(Self::STRIP * vectors).enumerate().for_each(|(strip, products)| {
            // Add up a strip of all rows
            let (first, width) = (strip * Self::STRIP, products.len() / vectors);
            products.fill(T::zero());
            for (r, row) in self.values().chunks_exact(columns).enumerate() {
                let row = &row[first..first + width];
                for (products, x) in products.chunks_exact_mut(width).zip(x.chunks_exact(rows)) {
                    for (product, &value) in products.iter_mut().zip(row) {
                        *product += x[r] * value;
                    }
                }
            }
        });
        for (vector, y) in y.chunks_exact_mut(columns).enumerate() {
            for (strip, y) in y.chunks_mut(Self::STRIP).enumerate() {
                let start = strip * Self::STRIP * vectors + vector * y.len();
                y.copy_from_slice(&products[start..start + y.len()]);
            }
        }
    }
}

impl<T: Real> Operator<T> for Dense<T> {
    // Answers of a dense matrix
    fn rows(&self) -> usize {
        self.0.nrows()
    }

    fn columns(&self) -> usize {
        self.0.ncols()
    }

    fn scratch(&self, vectors: usize) -> usize {
        vectors * self.0.nrows().max(self.0.ncols())
    }

    fn apply(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        self.by_rows(x, y, scratch);
    }

    fn apply_transpose(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        self.by_columns(x, y, scratch);
    }

    fn bytes(&self) -> u64 {
        size_of_val(self.values()) as u64
    }
}
