// Tangled from book/src/elimination.md: edit there, or here and run cargo tangle stitch.
//! A preconditioner that eliminates a few of many unknowns.

pub(crate) mod gpu;

// Imports of the elimination
use crate::error::{Error, accept};
use crate::linear::blocks::Strip;
use crate::linear::matrix::Dense;
use crate::linear::operator::{Operator, count, gather, scatter, vectors};
use crate::numerics::real::Real;
use ndarray::{Array2, ArrayView2, Axis};
use std::ops::Range;
use std::sync::Arc;

// Elimination of some unknowns
/// A preconditioner for a symmetric matrix that eliminates a few of its unknowns, Eq. [eliminated](https://lenslet.github.io/lenslet/elimination.html#eq-eliminated), and corrects the preconditioner of those
/// retained by Eq. [low rank correction](https://lenslet.github.io/lenslet/elimination.html#eq-low-rank-correction).
pub struct Elimination<T> {
    /// Places of the retained unknowns in a vector, and of the eliminated ones.
    retained: Vec<Range<usize>>,
    eliminated: Vec<Range<usize>>,
    /// P, of the retained unknowns.
    inverse: Arc<dyn Operator<T>>,
    /// B, (retained, eliminated), and D⁻¹.
    between: Strip<f32>,
    small: Dense<T>,
    /// R of σ E⁻¹ = RᵀR.
    root: Dense<T>,
}

/// σ of Eq. [low rank correction](https://lenslet.github.io/lenslet/elimination.html#eq-low-rank-correction).
const WEIGHT: f64 = 8.0;

impl<T: Real> Elimination<T> {
    // Make the elimination
    /// The preconditioner made of `inverse`, P, an approximate inverse of the retained block; `between`, Bᵀ, (eliminated, retained), of
    /// which six digits are kept; `small`, D, the positive definite block of the eliminated unknowns; and the places of both in a vector,
    /// \[retained, eliminated\]. `projected` is the projected Schur complement, (eliminated, eliminated), E of Eq. [low rank correction](https://lenslet.github.io/lenslet/elimination.html#eq-low-rank-correction).
    ///
    /// # Errors
    /// `Invalid` where shapes do not fit; `Failed` where the small block or the projected complement is not finite.
    pub fn new(
        inverse: Arc<dyn Operator<T>>,
        between: ArrayView2<f64>,
        [small, projected]: [ArrayView2<f64>; 2],
        [retained, eliminated]: [Vec<Range<usize>>; 2],
    ) -> Result<Self, Error> {
        check(between.dim(), [small.dim(), projected.dim()], [&retained, &eliminated])?;
        let (m, between) = (between.ncols(), Strip::new(between));
        accept(
            inverse.rows() == m,
            "rows of the inverse",
            inverse.rows(),
            &format!("{m}, the retained unknowns"),
        )?;
        let [small, root] =
            [invert(small)?, weighed(projected)?].map(|m| Dense::new(m.mapv(T::of)));
        Ok(Self { retained, eliminated, inverse, between, small, root })
    }
}

// Refuse blocks off their places
/// Refuses blocks that do not fit their places.
fn check(
    between: (usize, usize),
    [small, projected]: [(usize, usize); 2],
    [retained, eliminated]: [&[Range<usize>]; 2],
) -> Result<(), Error> {
    let (m, n) = (count(retained), count(eliminated));
    let named = [
        ("shape between", between, (n, m)),
        ("shape of the small block", small, (n, n)),
        ("shape of the projected complement", projected, (n, n)),
    ];
    for (name, shape, expected) in named {
        accept(shape == expected, name, format!("{shape:?}"), &format!("{expected:?}, as places"))?;
    }
    Ok(())
}

// Invert a small positive matrix
/// R of M⁻¹ = RᵀR, lower triangular, for a symmetric matrix M that is positive definite, or is not by rounding alone: then its
/// diagonal grows until it is.
pub(crate) fn root_of_inverse(matrix: ArrayView2<f64>) -> Result<Array2<f64>, Error> {
    let mut even = 0.5 * (&matrix + &matrix.t());
    let most = even.diag().fold(0.0, |most, value| f64::max(most, value.abs()));
    if !even.iter().all(|value| value.is_finite()) || (most == 0.0 && !matrix.is_empty()) {
        let reason = "the matrix of the eliminated unknowns is not finite or zero";
        return Err(Error::Failed { what: "elimination".into(), reason: reason.into() });
    }
    let mut share = f64::EPSILON;
    loop {
        even.diag_mut().iter_mut().for_each(|value| *value += share * most);
        if let Some(root) = orthonormal(&even) {
            return Ok(root);
        }
        share *= 10.0;
    }
}

// Inverse and weighted root
/// The inverse of such a matrix.
pub(crate) fn invert(matrix: ArrayView2<f64>) -> Result<Array2<f64>, Error> {
    let root = root_of_inverse(matrix)?;
    Ok(root.t().dot(&root))
}

/// R of σ E⁻¹ = RᵀR, of E; zero where E is.
pub(crate) fn weighed(projected: ArrayView2<f64>) -> Result<Array2<f64>, Error> {
    match projected.iter().all(|&value| value == 0.0) {
        true => Ok(projected.to_owned()),
        false => Ok(WEIGHT.sqrt() * root_of_inverse(projected)?),
    }
}

// Orthonormal rows of a small matrix
/// The lower triangular R with R M Rᵀ = 1, if the symmetric matrix M is positive definite.
fn orthonormal(matrix: &Array2<f64>) -> Option<Array2<f64>> {
    let mut root = Array2::<f64>::zeros(matrix.dim());
    for (i, line) in matrix.rows().into_iter().enumerate() {
        let (known, mut rest) = root.view_mut().split_at(Axis(0), i);
        let (shares, mut row) = (known.dot(&line), rest.row_mut(0));
        let pivot = line[i] - shares.dot(&shares);
        if pivot.is_nan() || pivot <= 0.0 {
            return None;
        }
        row.assign(&-shares.dot(&known));
        row[i] = 1.0;
        row /= pivot.sqrt();
    }
    Some(root)
}

impl<T: Real> Operator<T> for Elimination<T> {
    // Answers of an elimination
    fn rows(&self) -> usize {
        let (m, n) = self.between.dim();
        m + n
    }

    fn columns(&self) -> usize {
        self.rows()
    }

    fn scratch(&self, _vectors: usize) -> usize {
        let (m, n) = self.between.dim();
        2 * m + 3 * n + self.inverse.scratch(1).max(self.between.scratch()).max(2 * n)
    }

    fn apply_transpose(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        self.apply(x, y, scratch);
    }

    fn bytes(&self) -> u64 {
        let small = self.small.bytes() + self.root.bytes();
        self.inverse.bytes() + self.between.bytes() + small
    }
    // Eliminate and substitute
    fn apply(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        let all = self.rows();
        vectors(x, y, (all, all));
        let (m, n) = self.between.dim();
        let (retained, scratch) = scratch.split_at_mut(m);
        let (product, scratch) = scratch.split_at_mut(m);
        let (given, scratch) = scratch.split_at_mut(n);
        let (eliminated, scratch) = scratch.split_at_mut(n);
        let (sums, scratch) = scratch.split_at_mut(n);
        for (x, y) in x.chunks_exact(all).zip(y.chunks_exact_mut(all)) {
            gather(x, all, &self.eliminated, given);
            gather(x, all, &self.retained, retained);
            self.small.apply(given, eliminated, scratch);
            eliminated.iter_mut().for_each(|value| *value = -*value);
            self.between.pass(eliminated, retained, None, [sums, scratch]);
            self.inverse.apply(retained, product, scratch);
            // Add the low-rank correction
            self.root.apply(sums, eliminated, scratch);
            self.root.apply_transpose(eliminated, sums, scratch);
            self.between.pass(sums, product, None, [eliminated, scratch]);
            scatter(product, all, &self.retained, y);
            // Substitute back for the eliminated unknowns
            given.iter_mut().zip(&*eliminated).for_each(|(given, &known)| *given -= known);
            self.small.apply(given, eliminated, scratch);
            scatter(eliminated, all, &self.eliminated, y);
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
        let a = positive(12, 1).mapv(|value| f64::from(value as f32));
        let (retained, eliminated) = (vec![1, 2, 3, 6, 7, 8, 9, 10, 11], vec![0, 4, 5]);
        let places = || [vec![1..4, 6..12], vec![0..1, 4..6]];
        let part = |rows: &[usize], columns: &[usize]| {
            Array2::from_shape_fn((rows.len(), columns.len()), |(i, j)| a[[rows[i], columns[j]]])
        };
        let (between, small) = (part(&retained, &eliminated), part(&eliminated, &eliminated));
        let projected = positive(3, 5);
        let make = |inverse: Array2<f64>| {
            let (inverse, blocks) =
                (Arc::new(Dense::new(inverse)), [small.view(), projected.view()]);
            Elimination::new(inverse, between.t(), blocks, places()).unwrap()
        };
        let through =
            |matrix: &Array2<f64>| between.dot(&invert(matrix.view()).unwrap()).dot(&between.t());
        let left = part(&retained, &retained) - through(&small);
        let waves = WEIGHT * through(&projected);
        let exact = make(invert(left.view()).unwrap() - &waves);
        battery::check(&exact, 1e-12);
        let error = matrix_of(&exact).dot(&a) - Array2::<f64>::eye(12);
        let error = error.fold(0.0, |most: f64, e| most.max(e.abs()));
        assert!(error < 1e-10, "{error:e}");
        // Stay positive with a poor inverse
        let poor = matrix_of(&make(40.0 * positive(9, 7)));
        assert!((&poor - &poor.t()).iter().all(|difference| difference.abs() < 1e-9));
        assert!(orthonormal(&poor).is_some());
    }
    // Lift and refuse small matrices
    #[test]
    fn what_is_not_positive_is_lifted_and_what_does_not_fit_refused() {
        let lifted = invert(ndarray::arr2(&[[1.0, 1.0], [1.0, 1.0]]).view()).unwrap();
        assert!(lifted.iter().all(|value| value.is_finite()) && lifted[[0, 0]] > 0.0);
        assert!(orthonormal(&ndarray::arr2(&[[1.0, 2.0], [2.0, 1.0]])).is_none());
        let known = positive(5, 4);
        let error =
            root_of_inverse(known.view()).map(|root| root.dot(&known).dot(&root.t())).unwrap();
        assert!((error - Array2::<f64>::eye(5)).iter().all(|e| e.abs() < 1e-12));
        assert!(weighed(Array2::zeros((2, 2)).view()).unwrap().iter().all(|&value| value == 0.0));
        let refused = |value: f64| invert(ndarray::arr2(&[[value]]).view()).is_err();
        assert!(refused(f64::NAN) && refused(0.0) && !refused(2.0));
        let make = |shape, n, projected| {
            let inverse = Arc::new(Dense::new(positive(3, 3)));
            let [small, projected] = [positive(n, 2), positive(projected, 2)];
            let (between, places) = (Array2::zeros(shape), [vec![0..1, 1..3], vec![3..3, 3..4]]);
            Elimination::new(inverse, between.t(), [small.view(), projected.view()], places)
        };
        assert!(make((3, 1), 1, 1).is_ok());
        assert!(make((2, 1), 1, 1).is_err() && make((3, 2), 1, 1).is_err());
        assert!(make((3, 1), 2, 1).is_err() && make((3, 1), 1, 2).is_err());
    }
}
