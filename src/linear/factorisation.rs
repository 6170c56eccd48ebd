// Tangled from book/src/factorisations.md: edit there, or here and run cargo tangle stitch.
//! Factorisations of dense matrices: Cholesky's, by eigenvectors, and by singular values.

pub(crate) mod gpu;

// Imports of factorisations
use crate::error::{Error, Invalid, accept};
use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{LltError, cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::linalg::matmul::matmul;
use faer::linalg::svd::{ComputeSvdVectors, svd, svd_scratch};
use faer::linalg::triangular_solve::{
    solve_lower_triangular_in_place, solve_upper_triangular_in_place,
};
use faer::{Accum, Mat, MatMut, MatRef, Par, Spec};
use ndarray::{Array2, ArrayBase, Data, Ix2};

// Rows as columns without a copy
/// The transpose of an array, as columns in place.
fn columns_mut(rows: &mut Array2<f64>) -> MatMut<'_, f64> {
    let (m, n) = rows.dim();
    let values = rows.as_slice_mut().unwrap_or_else(|| unreachable!("arrays are row by row here"));
    MatMut::from_column_major_slice_mut(values, n, m)
}

/// The transpose of an array, as read-only columns.
fn columns<S: Data<Elem = f64>>(rows: &ArrayBase<S, Ix2>) -> MatRef<'_, f64> {
    let (m, n) = rows.dim();
    let values = rows.as_slice().unwrap_or_else(|| unreachable!("arrays are row by row here"));
    MatRef::from_column_major_slice(values, n, m)
}

/// An array whose rows are stored one after the other.
fn row_by_row(array: Array2<f64>) -> Array2<f64> {
    if array.is_standard_layout() { array } else { array.as_standard_layout().into_owned() }
}

// Product of matrices by columns
/// The product of two matrices that are given by columns, as the transpose of an array of this shape; on all threads.
fn product(shape: (usize, usize), a: MatRef<f64>, b: MatRef<f64>) -> Array2<f64> {
    let mut product = Array2::zeros(shape);
    matmul(columns_mut(&mut product), Accum::Replace, a, b, 1.0, Par::rayon(0));
    product
}

// Multiply rows by rows
/// A Bᵗ, (m, k), for A of (m, n) and B of (k, n), on all threads.
///
/// # Panics
/// If the rows of both have different lengths.
///
/// ```
/// use ndarray::arr2;
/// let product = lenslet::linear::times_transpose(&arr2(&[[1.0, 2.0]]), &arr2(&[[3.0, 4.0], [5.0, 6.0]]));
/// assert_eq!(product, arr2(&[[11.0, 17.0]]));
/// ```
pub fn times_transpose<A: Data<Elem = f64>, B: Data<Elem = f64>>(
    a: &ArrayBase<A, Ix2>,
    b: &ArrayBase<B, Ix2>,
) -> Array2<f64> {
    assert_eq!(a.ncols(), b.ncols(), "rows of unequal length");
    let (a, b) = (a.as_standard_layout(), b.as_standard_layout());
    product((a.nrows(), b.nrows()), columns(&b).transpose(), columns(&a))
}

// Multiply rows by columns
/// A B, (m, k), for A of (m, n) and B of (n, k), on all threads.
///
/// # Panics
/// If the rows of A are not as long as the columns of B.
///
/// ```
/// use ndarray::arr2;
/// let product = lenslet::linear::times(&arr2(&[[1.0, 2.0]]), &arr2(&[[3.0, 4.0], [5.0, 6.0]]));
/// assert_eq!(product, arr2(&[[13.0, 16.0]]));
/// ```
pub fn times<A: Data<Elem = f64>, B: Data<Elem = f64>>(
    a: &ArrayBase<A, Ix2>,
    b: &ArrayBase<B, Ix2>,
) -> Array2<f64> {
    assert_eq!(a.ncols(), b.nrows(), "rows and columns of unequal length");
    let (a, b) = (a.as_standard_layout(), b.as_standard_layout());
    product((a.nrows(), b.ncols()), columns(&b), columns(&a))
}

// Cholesky factor of a matrix
/// A symmetric positive definite matrix in the form of Eq. [cholesky](https://lenslet.github.io/lenslet/factorisations.html#eq-cholesky).
///
/// ```
/// use lenslet::linear::Cholesky;
/// use ndarray::arr2;
/// let factor = Cholesky::new(arr2(&[[4.0, 2.0], [2.0, 10.0]]))?;
/// let mut rows = arr2(&[[8.0, 22.0]]);
/// factor.halve(&mut rows); // L = [[2, 0], [1, 3]]
/// assert_eq!(rows, arr2(&[[4.0, 6.0]]));
/// factor.finish(&mut rows);
/// assert_eq!(rows, arr2(&[[1.0, 2.0]]));
/// assert_eq!(Cholesky::new(arr2(&[[1.0, 2.0], [2.0, 1.0]])).unwrap_err().pivot, 1);
/// # Ok::<(), lenslet::linear::NotPositive>(())
/// ```
#[derive(Debug, Clone)]
pub struct Cholesky(Array2<f64>);

// Matrix that is not positive definite
/// A matrix that is not positive definite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the matrix is not positive definite: pivot {pivot} is not greater than 0")]
pub struct NotPositive {
    /// Number of the first pivot that is not positive, from 0.
    pub pivot: usize,
}

impl Cholesky {
    // Compute the Cholesky factor
    /// Factorises a matrix in its own memory; only its upper triangle is read.
    ///
    /// # Errors
    /// If a pivot is not positive.
    ///
    /// # Panics
    /// If the matrix is not square.
    pub fn new(matrix: Array2<f64>) -> Result<Self, NotPositive> {
        assert!(matrix.is_square(), "a matrix of {:?}", matrix.dim());
        let mut matrix = row_by_row(matrix);
        let (n, par) = (matrix.nrows(), Par::rayon(0));
        let mut memory =
            MemBuffer::new(cholesky_in_place_scratch::<f64>(n, par, Default::default()));
        let stack = MemStack::new(&mut memory);
        let lower = columns_mut(&mut matrix);
        let done = cholesky_in_place(lower, Default::default(), par, stack, Default::default());
        match done {
            Ok(_) => Ok(Self(matrix)),
            Err(LltError::NonPositivePivot { index }) => Err(NotPositive { pivot: index }),
        }
    }

    // Solve with half a factor
    /// Replaces each row b by L⁻¹ b.
    ///
    /// # Panics
    /// If the length of a row differs from the order of the matrix, or rows are not stored one after the other.
    pub fn halve(&self, rows: &mut Array2<f64>) {
        solve_lower_triangular_in_place(columns(&self.0), columns_mut(rows), Par::rayon(0));
    }

    /// Replaces each row y by L⁻ᵗ y, which is A⁻¹ b if y is L⁻¹ b.
    ///
    /// # Panics
    /// As [`halve`](Self::halve).
    pub fn finish(&self, rows: &mut Array2<f64>) {
        solve_upper_triangular_in_place(
            columns(&self.0).transpose(),
            columns_mut(rows),
            Par::rayon(0),
        );
    }

    /// The factor L itself, (n, n), 0 above the diagonal.
    pub fn lower(&self) -> Array2<f64> {
        Array2::from_shape_fn(self.0.dim(), |(i, j)| if j <= i { self.0[[j, i]] } else { 0.0 })
    }
}

// Unit of a matrix
/// A power of two of the order of the largest diagonal element.
pub(crate) fn unit(matrix: &Array2<f64>) -> f64 {
    let largest = matrix.diag().fold(0.0, |most: f64, value| most.max(value.abs()));
    if largest.is_normal() { largest.log2().floor().exp2() } else { 1.0 }
}

// Count eigenvalues that pass a filter
/// Number of the ascending `values` that are positive and at least `filter` times the last one.
fn kept(values: &[f64], filter: f64) -> usize {
    let least = filter * values.last().copied().unwrap_or(0.0);
    values.iter().filter(|&&value| value > 0.0 && value >= least).count()
}

// Eigenvectors of a matrix
/// A symmetric matrix in the form of Eq. [eigen](https://lenslet.github.io/lenslet/factorisations.html#eq-eigen).
///
/// ```
/// use lenslet::linear::Eigen;
/// use ndarray::arr2;
/// let eigen = Eigen::new(&arr2(&[[2.0, 1.0], [1.0, 2.0]]))?;
/// assert!(eigen.values().iter().zip([1.0, 3.0]).all(|(value, exact)| (value - exact).abs() < 1e-15));
/// assert_eq!((eigen.kept(0.0), eigen.kept(0.5)), (2, 1));
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Eigen {
    /// The eigenvectors, as columns.
    vectors: Mat<f64>,
    values: Vec<f64>,
}

impl Eigen {
    // Decompose a matrix
    /// Decomposes a matrix; only its upper triangle is read.
    ///
    /// # Errors
    /// `Failed` if the iterations of the decomposition do not converge.
    ///
    /// # Panics
    /// If the matrix is not square.
    pub fn new(matrix: &Array2<f64>) -> Result<Self, Error> {
        assert!(matrix.is_square(), "a matrix of {:?}", matrix.dim());
        let failed = |error| Error::Failed {
            what: format!("the decomposition of {} × {} numbers", matrix.nrows(), matrix.ncols()),
            reason: format!("{error:?}"),
        };
        let unit = unit(matrix);
        let matrix = row_by_row(matrix / unit);
        // Compute eigenvectors in a fixed division
        let n = matrix.nrows();
        let (mut vectors, mut values) = (Mat::zeros(n, n), Diag::zeros(n));
        let (par, how) = (fixed_division(), Spec::default());
        let scratch = self_adjoint_evd_scratch::<f64>(n, ComputeEigenvectors::Yes, par, how);
        let mut memory = MemBuffer::new(scratch);
        let (stack, to) = (MemStack::new(&mut memory), (values.as_mut(), Some(vectors.as_mut())));
        self_adjoint_evd(columns(&matrix), to.0, to.1, par, stack, how).map_err(failed)?;
        let values = values.column_vector().iter().map(|value| unit * value).collect();
        Ok(Self { vectors, values })
    }

    /// The eigenvalues, ascending.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    // Count eigenvalues that are kept
    /// Number of eigenvalues that are positive and at least `filter` times the largest.
    pub fn kept(&self, filter: f64) -> usize {
        kept(&self.values, filter)
    }

    /// Rejects a filter that is not a ratio.
    ///
    /// # Errors
    /// `Invalid` if it is not at least 0 and less than 1.
    pub fn check_filter(filter: f64) -> Result<f64, Invalid> {
        let expected = "a ratio of eigenvalues, at least 0 and less than 1";
        accept((0.0..1.0).contains(&filter), "filter", filter, expected)
    }

    // Project onto eigenvectors and expand
    /// The rows of B along the `kept` last eigenvectors: (m, kept).
    pub fn project(&self, rows: &Array2<f64>, kept: usize) -> Array2<f64> {
        let rows = rows.as_standard_layout();
        product((rows.nrows(), kept), self.last(kept).transpose(), columns(&rows))
    }

    /// Rows that are given along the last eigenvectors, (m, kept), as rows of (m, n).
    pub fn expand(&self, along: &Array2<f64>) -> Array2<f64> {
        let along = along.as_standard_layout();
        product((along.nrows(), self.values.len()), self.last(along.ncols()), columns(&along))
    }

    /// The last of the eigenvectors, as columns.
    fn last(&self, kept: usize) -> MatRef<'_, f64> {
        let n = self.values.len();
        self.vectors.subcols(n - kept, kept)
    }
}

// Fixed division of a decomposition
/// Parts into which decompositions are divided, however many threads there are: their last bits depend on it.
fn fixed_division() -> Par {
    Par::rayon(16)
}

// Singular values of a matrix
/// A matrix in the form of Eq. [singular values](https://lenslet.github.io/lenslet/factorisations.html#eq-singular-values).
///
/// ```
/// use lenslet::linear::SingularValues;
/// use ndarray::arr2;
/// let parts = SingularValues::new(&arr2(&[[3.0, 0.0], [0.0, 0.0], [4.0, 0.0]]))?;
/// assert!((parts.values()[0] - 5.0).abs() < 1e-14 && parts.kept(1e-9) == 1);
/// let inverse = parts.inverse(1);
/// assert!((&inverse - &arr2(&[[0.12, 0.0, 0.16], [0.0, 0.0, 0.0]])).iter().all(|gap| gap.abs() < 1e-15));
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SingularValues {
    /// Vectors of the rows, (n, k), and of the columns, (m, k), of k singular values.
    right: Mat<f64>,
    left: Mat<f64>,
    unit: f64,
    values: Vec<f64>,
}

impl SingularValues {
    // Decompose into singular values
    /// Decomposes a matrix.
    ///
    /// # Errors
    /// `Failed` if it has a number that is not finite, or if the iterations of the decomposition do not converge.
    pub fn new(matrix: &Array2<f64>) -> Result<Self, Error> {
        let (m, n) = matrix.dim();
        let failed = |reason: String| Error::Failed {
            what: format!("the decomposition of {m} × {n} numbers"),
            reason,
        };
        if matrix.iter().any(|x| !x.is_finite()) {
            return Err(failed("a number is not finite".to_string()));
        }
        let largest = matrix.fold(0.0, |most: f64, x| most.max(x.abs()));
        let unit = if largest.is_normal() { largest.log2().floor().exp2() } else { 1.0 };
        let matrix = row_by_row(matrix / unit);
        // Compute singular values in a fixed division
        let (k, par, how) = (m.min(n), fixed_division(), Spec::default());
        let [mut right, mut left] = [n, m].map(|rows| Mat::zeros(rows, k));
        let mut values = Diag::zeros(k);
        let thin = ComputeSvdVectors::Thin;
        let mut memory = MemBuffer::new(svd_scratch::<f64>(n, m, thin, thin, par, how));
        let (stack, to) = (MemStack::new(&mut memory), (Some(right.as_mut()), Some(left.as_mut())));
        svd(columns(&matrix), values.as_mut(), to.0, to.1, par, stack, how)
            .map_err(|error| failed(format!("{error:?}")))?;
        let values = values.column_vector().iter().map(|value| unit * value).collect();
        Ok(Self { right, left, unit, values })
    }

    // Keep the largest singular values
    /// The singular values, descending.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Number of singular values that are positive and at least `filter` times the largest; those at the level of rounding are not counted.
    pub fn kept(&self, filter: f64) -> usize {
        let rounding = f64::EPSILON * self.right.nrows().max(self.left.nrows()) as f64;
        let least = filter.max(rounding) * self.values.first().copied().unwrap_or(0.0);
        self.values.iter().filter(|&&value| value > 0.0 && value >= least).count()
    }

    // Pseudo-inverse of a matrix
    /// M⁺, (n, m), of the `kept` largest singular values.
    pub fn inverse(&self, kept: usize) -> Array2<f64> {
        let shrunk =
            |i: usize, k: usize| self.right[(i, k)] / (self.values[k] / self.unit) / self.unit;
        // Row by row, V diag(σ)⁻¹ is its transpose by columns.
        let right = Array2::from_shape_fn((self.right.nrows(), kept), |(i, k)| shrunk(i, k));
        product((right.nrows(), self.left.nrows()), self.left.subcols(0, kept), columns(&right))
    }

    /// Rejects a filter that is not a ratio.
    ///
    /// # Errors
    /// `Invalid` if it is not at least 0 and less than 1.
    pub fn check_filter(filter: f64) -> Result<f64, Invalid> {
        let expected = "a ratio of singular values, at least 0 and less than 1";
        accept((0.0..1.0).contains(&filter), "filter", filter, expected)
    }
}

// Tests of the factorisations
#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::operator::battery::random;

    // Random positive definite matrices
    /// A positive definite matrix, n × n, and rows, m × n.
    fn system(m: usize, n: usize) -> (Array2<f64>, Array2<f64>) {
        let of = |rows, seed| Array2::from_shape_vec((rows, n), random(rows * n, seed)).unwrap();
        let half = of(n + 3, 1);
        (half.t().dot(&half), of(m, 2))
    }

    // Factorise on any number of threads
    #[test]
    fn factors_do_not_depend_on_the_number_of_threads() {
        for n in [49, 69, 300] {
            let (matrix, rows) = system(77, n);
            let factors = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| {
                    let (factor, eigen) =
                        (Cholesky::new(matrix.clone()).unwrap(), Eigen::new(&matrix).unwrap());
                    let inverse = SingularValues::new(&rows).unwrap().inverse(49);
                    let along = eigen.project(&rows, n / 2);
                    [
                        times_transpose(&rows, &matrix),
                        factor.lower(),
                        eigen.expand(&along),
                        along,
                        inverse,
                    ]
                })
            };
            let one = factors(1);
            for threads in [2, 3, 8] {
                let equal =
                    factors(threads).iter().zip(&one).map(|(a, b)| a == b).collect::<Vec<_>>();
                assert_eq!(equal, [true; 5], "{n} rows, {threads} threads");
            }
        }
    }

    fn largest(matrix: &Array2<f64>) -> f64 {
        matrix.fold(0.0, |most: f64, value| most.max(value.abs()))
    }

    // Repeat the worked case of two slopes
    #[test]
    fn two_slopes_have_the_solutions_of_the_worked_case() {
        let near = |rows: &Array2<f64>, expected: [f64; 2], tolerance: f64| {
            let gap = (rows[[0, 0]] - expected[0]).abs().max((rows[[0, 1]] - expected[1]).abs());
            assert!(gap < tolerance, "{rows} is not {expected:?}");
        };
        let solve = |variance: f64| {
            let factor =
                Cholesky::new(ndarray::arr2(&[[variance, 0.99], [0.99, variance]])).unwrap();
            let mut rows = ndarray::arr2(&[[1.0, 0.0]]);
            factor.halve(&mut rows);
            factor.finish(&mut rows);
            (factor.lower(), rows)
        };
        let (lower, solved) = solve(1.0);
        assert!((lower[[1, 1]] - 0.1411).abs() < 1e-4);
        assert!((lower[[1, 1]].powi(2) - 0.0199).abs() < 1e-12);
        near(&solved, [50.25, -49.75], 0.005);
        near(&solve(1.1).1, [4.785, -4.306], 0.001);
        let eigen = Eigen::new(&ndarray::arr2(&[[1.0, 0.99], [0.99, 1.0]])).unwrap();
        assert!((eigen.values()[1] - 1.99).abs() < 1e-12 && eigen.kept(0.01) == 1);
        let along = eigen.project(&ndarray::arr2(&[[1.0, 0.0]]), 1) / eigen.values()[1];
        near(&eigen.expand(&along), [0.251, 0.251], 0.001);
        let noisy = Eigen::new(&ndarray::arr2(&[[1.1, 0.99], [0.99, 1.1]])).unwrap();
        assert!(
            (noisy.values()[0] - 0.11).abs() < 1e-12 && (noisy.values()[1] - 2.09).abs() < 1e-12
        );
    }

    // Solutions fulfil their equations
    #[test]
    fn solutions_fulfil_their_equations() {
        let (a, rows) = system(7, 150);
        let factor = Cholesky::new(a.clone()).unwrap();
        let mut solved = rows.clone();
        factor.halve(&mut solved);
        let squares = times_transpose(&solved, &solved);
        factor.finish(&mut solved);
        assert!(largest(&(solved.dot(&a) - &rows)) < 1e-7 * largest(&solved));
        // The halves give b A⁻¹ b.
        let expected = times_transpose(&rows, &solved);
        assert!(largest(&(&squares - &expected)) < 1e-10 * largest(&expected));
        assert!(largest(&(&expected - &rows.dot(&solved.t()))) < 1e-12 * largest(&expected));
        // Only the upper triangle counts.
        let mut upper = a.clone();
        upper[[140, 3]] = 1e9;
        let mut again = rows.clone();
        let factor = Cholesky::new(upper).unwrap();
        factor.halve(&mut again);
        factor.finish(&mut again);
        assert_eq!(again, solved);
    }

    // Eigenvectors solve what cholesky refuses
    #[test]
    fn eigenvectors_solve_what_cholesky_refuses() {
        let (mut a, mut rows) = system(3, 60);
        // Slopes 20 and 21 are one and the same.
        for k in 0..60 {
            a[[21, k]] = a[[20, k]];
        }
        for k in 0..60 {
            a[[k, 21]] = a[[k, 20]];
        }
        let copy = rows.column(20).to_owned();
        rows.column_mut(21).assign(&copy);
        a[[21, 21]] -= 1e-9 * a[[20, 20]];
        assert_eq!(Cholesky::new(a.clone()).unwrap_err(), NotPositive { pivot: 21 });
        let eigen = Eigen::new(&a).unwrap();
        assert!(eigen.values().is_sorted() && eigen.values()[0] < 0.0);
        let kept = eigen.kept(1e-7);
        assert_eq!(kept, 59);
        let mut along = eigen.project(&rows, kept);
        for mut row in along.rows_mut() {
            row.iter_mut().zip(&eigen.values()[1..]).for_each(|(b, value)| *b /= value);
        }
        let solved = eigen.expand(&along);
        assert!(largest(&(solved.dot(&a) - &rows)) < 1e-6 * largest(&rows));
        for filter in [-0.1, 1.0, f64::NAN] {
            assert_eq!(Eigen::check_filter(filter).unwrap_err().quantity, "filter");
        }
        a[[30, 30]] = f64::NAN;
        assert_eq!(Cholesky::new(a).unwrap_err().pivot, 21);
    }

    // Pseudo inverses obey the four conditions
    #[test]
    fn pseudo_inverses_obey_the_four_conditions() {
        for (m, n) in [(23, 9), (9, 23), (12, 12)] {
            // Of rank 7, and tiny.
            let of = |rows, columns, seed| {
                Array2::from_shape_vec((rows, columns), random(rows * columns, seed)).unwrap()
            };
            let matrix = of(m, 7, 3).dot(&of(7, n, 4)) * 1e-9;
            let parts = SingularValues::new(&matrix).unwrap();
            assert!(parts.values().len() == m.min(n) && parts.values().is_sorted_by(|a, b| a >= b));
            assert_eq!(parts.kept(0.0), 7);
            let inverse = parts.inverse(7);
            let (there, back) = (matrix.dot(&inverse), inverse.dot(&matrix));
            assert!(largest(&(there.dot(&matrix) - &matrix)) < 1e-12 * largest(&matrix));
            assert!(largest(&(back.dot(&inverse) - &inverse)) < 1e-12 * largest(&inverse));
            assert!(
                largest(&(&there - &there.t())) < 1e-12 && largest(&(&back - &back.t())) < 1e-12
            );
            // The sum of the squares of all elements is that of the singular values.
            let squares: f64 = parts.values().iter().map(|s| s * s).sum();
            assert!((matrix.fold(0.0, |sum, x| sum + x * x) / squares - 1.0).abs() < 1e-12);
            assert_eq!(parts.inverse(2).dim(), (n, m));
        }
        assert!(SingularValues::new(&Array2::from_elem((2, 3), f64::NAN)).is_err());
        assert_eq!(SingularValues::new(&Array2::zeros((2, 3))).unwrap().kept(0.0), 0);
        assert_eq!(SingularValues::check_filter(1.0).unwrap_err().quantity, "filter");
    }
}
