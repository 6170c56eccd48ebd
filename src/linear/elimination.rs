// Tangled from book/src/operators-in-blocks.md: edit there, or here and run cargo tangle stitch.
//! A preconditioner that eliminates a few unknowns beside many.

#[cfg(feature = "cuda")]
pub(crate) mod gpu;

// What the elimination stands on
use crate::error::{Error, accept};
use crate::linear::matrix::Dense;
use crate::linear::operator::{Operator, count, gather, scatter, vectors};
use crate::numerics::real::Real;
use ndarray::{Array2, ArrayView2};
use std::ops::Range;
use std::sync::Arc;

// Elimination of a few unknowns
/// A preconditioner for a symmetric matrix of many unknowns and a few others, symmetric and positive definite where that of the
/// many is: the few are eliminated, Eq. [eliminated](https://lenslet.github.io/lenslet/operators-in-blocks.html#eq-eliminated).
pub struct Elimination<T> {
    /// Where the many stand in a vector, and where the few.
    many: Vec<Range<usize>>,
    few: Vec<Range<usize>>,
    /// P, of the many.
    inverse: Arc<dyn Operator<T>>,
    /// Bᵀ, (few, many), and D⁻¹.
    between: Arc<Dense<T>>,
    small: Dense<T>,
}

impl<T: Real> Elimination<T> {
    // Make the elimination
    /// The preconditioner of `inverse`, which approximates the inverse of the many, of the block `between`, (few, many), and the
    /// block `small` of the few, which is positive definite; both stand at their places, \[many, few\].
    ///
    /// # Errors
    /// `Invalid` where shapes do not fit; `Failed` where the small block is not finite.
    pub fn new(
        inverse: Arc<dyn Operator<T>>,
        between: Arc<Dense<T>>,
        small: ArrayView2<f64>,
        [many, few]: [Vec<Range<usize>>; 2],
    ) -> Result<Self, Error> {
        check((between.rows(), between.columns()), small.dim(), [&many, &few])?;
        let m = between.columns();
        accept(
            inverse.rows() == m,
            "rows of the inverse",
            inverse.rows(),
            &format!("{m}, the many"),
        )?;
        let small = Dense::new(invert(small)?.mapv(T::of));
        Ok(Self { many, few, inverse, between, small })
    }
}

/// Refuses blocks that do not fit their places.
fn check(
    between: (usize, usize),
    small: (usize, usize),
    [many, few]: [&[Range<usize>]; 2],
) -> Result<(), Error> {
    let (m, n) = (count(many), count(few));
    let named = [("shape between", between, (n, m)), ("shape of the small block", small, (n, n))];
    for (name, shape, expected) in named {
        accept(shape == expected, name, format!("{shape:?}"), &format!("{expected:?}, as places"))?;
    }
    Ok(())
}

// Invert a small positive matrix
/// The inverse of a symmetric matrix that is positive definite, or is not by rounding alone: then its diagonal grows until it is.
fn invert(matrix: ArrayView2<f64>) -> Result<Array2<f64>, Error> {
    let n = matrix.nrows();
    let even: Vec<f64> =
        matrix.indexed_iter().map(|((i, j), value)| 0.5 * (value + matrix[[j, i]])).collect();
    let most = (0..n).fold(0.0, |most, k| f64::max(most, even[k * n + k].abs()));
    if !even.iter().all(|value| value.is_finite()) || most == 0.0 {
        let reason = "the matrix of the few unknowns is not finite or zero";
        return Err(Error::Failed { what: "elimination".into(), reason: reason.into() });
    }
    let mut share = f64::EPSILON;
    loop {
        let mut inverse = even.clone();
        (0..n).for_each(|k| inverse[k * n + k] += share * most);
        if sweep(&mut inverse, n) {
            let inverse = Array2::from_shape_vec((n, n), inverse);
            return Ok(inverse.unwrap_or_else(|_| unreachable!("same length")));
        }
        share *= 10.0;
    }
}

// Sweep a matrix pivot by pivot
/// Replaces a symmetric matrix by its inverse; false, and some numbers, where a pivot is not positive.
fn sweep(matrix: &mut [f64], n: usize) -> bool {
    for k in 0..n {
        let pivot = matrix[k * n + k];
        if pivot.is_nan() || pivot <= 0.0 {
            return false;
        }
        matrix[k * n + k] = 1.0;
        let row: Vec<f64> = matrix[k * n..][..n].iter().map(|value| value / pivot).collect();
        for (i, values) in matrix.chunks_exact_mut(n).enumerate() {
            let factor = std::mem::take(&mut values[k]);
            if i != k {
                values.iter_mut().zip(&row).for_each(|(value, share)| *value -= factor * share);
            }
        }
        matrix[k * n..][..n].copy_from_slice(&row);
    }
    true
}

impl<T: Real> Operator<T> for Elimination<T> {
    // Answers of an elimination
    fn rows(&self) -> usize {
        self.between.columns() + self.between.rows()
    }

    fn columns(&self) -> usize {
        self.rows()
    }

    fn scratch(&self, _vectors: usize) -> usize {
        let (m, n) = (self.between.columns(), self.between.rows());
        2 * m + 2 * n + self.inverse.scratch(1).max(m)
    }

    fn apply_transpose(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        self.apply(x, y, scratch);
    }

    fn bytes(&self) -> u64 {
        self.inverse.bytes() + self.between.bytes() + self.small.bytes()
    }
    // Eliminate and substitute
    fn apply(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        let all = self.rows();
        vectors(x, y, (all, all));
        let (m, n) = (self.between.columns(), self.between.rows());
        let (many, rest) = scratch.split_at_mut(m);
        let (product, rest) = rest.split_at_mut(m);
        let (given, rest) = rest.split_at_mut(n);
        let (few, rest) = rest.split_at_mut(n);
        for (x, y) in x.chunks_exact(all).zip(y.chunks_exact_mut(all)) {
            gather(x, all, &self.few, given);
            self.small.apply(given, few, rest);
            self.between.apply_transpose(few, product, rest);
            gather(x, all, &self.many, many);
            many.iter_mut().zip(&*product).for_each(|(many, &known)| *many -= known);
            self.inverse.apply(many, product, rest);
            scatter(product, all, &self.many, y);
            // Substitute the many for the few
            self.between.apply(product, few, rest);
            given.iter_mut().zip(&*few).for_each(|(given, &known)| *given -= known);
            self.small.apply(given, few, rest);
            scatter(few, all, &self.few, y);
        }
    }
}

// Tests of the elimination
#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::operator::battery;

    /// A positive definite matrix.
    fn positive(n: usize, seed: u64) -> Array2<f64> {
        let root = Array2::from_shape_vec((n, n), battery::random(n * n, seed)).unwrap();
        root.dot(&root.t()) + 0.3 * Array2::<f64>::eye(n)
    }

    fn matrix_of(operator: &dyn Operator<f64>) -> Array2<f64> {
        let n = operator.rows();
        let identity = Array2::<f64>::eye(n).into_raw_vec_and_offset().0;
        Array2::from_shape_vec((n, n), battery::product(operator, false, &identity, n)).unwrap()
    }

    // Invert exactly what is known exactly
    #[test]
    fn an_exact_inverse_of_what_is_left_gives_that_of_all() {
        let a = positive(12, 1);
        let (many, few) = (vec![1, 2, 3, 6, 7, 8, 9, 10, 11], vec![0, 4, 5]);
        let places = || [vec![1..4, 6..12], vec![0..1, 4..6]];
        let part = |rows: &[usize], columns: &[usize]| {
            Array2::from_shape_fn((rows.len(), columns.len()), |(i, j)| a[[rows[i], columns[j]]])
        };
        let (between, small) = (part(&few, &many), part(&few, &few));
        let make = |inverse: Array2<f64>| {
            let [inverse, between] = [&inverse, &between].map(|m| Arc::new(Dense::new(m.clone())));
            Elimination::new(inverse, between, small.view(), places()).unwrap()
        };
        let known = between.t().dot(&invert(small.view()).unwrap()).dot(&between);
        let exact = make(invert((part(&many, &many) - known).view()).unwrap());
        battery::check(&exact, 1e-12);
        let error = matrix_of(&exact).dot(&a) - Array2::<f64>::eye(12);
        let error = error.fold(0.0, |most: f64, e| most.max(e.abs()));
        assert!(error < 1e-10, "{error:e}");
        // Stay positive with a poor inverse
        let poor = matrix_of(&make(40.0 * positive(9, 7)));
        assert!((&poor - &poor.t()).iter().all(|difference| difference.abs() < 1e-9));
        assert!(sweep(&mut poor.into_raw_vec_and_offset().0, 12));
    }
    // Lift and refuse small matrices
    #[test]
    fn what_is_not_positive_is_lifted_and_what_does_not_fit_refused() {
        let lifted = invert(ndarray::arr2(&[[1.0, 1.0], [1.0, 1.0]]).view()).unwrap();
        assert!(lifted.iter().all(|value| value.is_finite()) && lifted[[0, 0]] > 0.0);
        assert!(!sweep(&mut [1.0, 2.0, 2.0, 1.0], 2));
        let refused = |value: f64| invert(ndarray::arr2(&[[value]]).view()).is_err();
        assert!(refused(f64::NAN) && refused(0.0) && !refused(2.0));
        let make = |shape, n| {
            let inverse = Arc::new(Dense::new(positive(3, 3)));
            let small = positive(n, 2);
            let between = Arc::new(Dense::new(Array2::zeros(shape)));
            Elimination::new(inverse, between, small.view(), [vec![0..1, 1..3], vec![3..3, 3..4]])
        };
        assert!(make((1, 3), 1).is_ok());
        assert!(make((1, 2), 1).is_err() && make((1, 3), 2).is_err() && make((2, 3), 1).is_err());
    }
}
