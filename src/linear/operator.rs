// Tangled from book/src/operators.md: edit there, or here and run cargo tangle stitch.
//! Linear operators, defined by their products with vectors: diagonals, sums and products.

pub(crate) mod gpu;

use crate::error::{Invalid, accept};
use crate::numerics::real::Real;
use std::ops::Range;
use std::sync::Arc;

// What every operator can do
/// A linear operator, defined by its products with vectors.
///
/// Vectors are slices of numbers. Several vectors are multiplied at once if they are stored one after the other.
///
/// ```
/// use lenslet::linear::{Dense, Operator};
/// let a = Dense::new(ndarray::arr2(&[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]));
/// let (mut forward, mut back, mut scratch) = ([0.0; 2], [0.0; 3], vec![0.0; a.scratch(1)]);
/// a.apply(&[1.0, 0.0, -1.0], &mut forward, &mut scratch);
/// a.apply_transpose(&[2.0, 1.0], &mut back, &mut scratch);
/// assert_eq!((forward, back), ([-2.0, -2.0], [6.0, 9.0, 12.0]));
/// assert_eq!((a.bytes(), a.dense_bytes()), (48, 48));
/// ```
///
/// # Panics
/// The products panic where a slice has the wrong length, as an index out of bounds does.
pub trait Operator<T: Real>: Send + Sync {
    // Sizes of vectors and scratch
    /// Number of rows m, the length of a result.
    fn rows(&self) -> usize;

    /// Number of columns n, the length of an input.
    fn columns(&self) -> usize;

    /// Scratch numbers for either product with this number of vectors at once. A longer scratch is permitted.
    fn scratch(&self, vectors: usize) -> usize;

    // Products with an operator and its transpose
    /// y = A x for each of k vectors: `x` holds k·columns numbers, `y` takes k·rows. Allocates nothing.
    fn apply(&self, x: &[T], y: &mut [T], scratch: &mut [T]);

    /// y = Aᵀ x for each of k vectors: `x` holds k·rows numbers, `y` takes k·columns. Allocates nothing.
    ///
    /// It is the transpose in the sense of Eq. [adjoint](https://lenslet.github.io/lenslet/operators.html#eq-adjoint).
    fn apply_transpose(&self, x: &[T], y: &mut [T], scratch: &mut [T]);

    // Memory of an operator
    /// Bytes that the operator stores.
    fn bytes(&self) -> u64;

    /// Bytes of the same operator as a dense matrix.
    fn dense_bytes(&self) -> u64 {
        self.rows() as u64 * self.columns() as u64 * size_of::<T>() as u64
    }
}

// Shapes, products and vectors either way
/// Rows and columns of the operator, or of its transpose.
pub(crate) fn shape<T: Real>(operator: &dyn Operator<T>, transposed: bool) -> (usize, usize) {
    let (rows, columns) = (operator.rows(), operator.columns());
    if transposed { (columns, rows) } else { (rows, columns) }
}

/// Multiplies by the operator, or by its transpose.
fn multiply<T: Real>(
    operator: &dyn Operator<T>,
    transposed: bool,
    x: &[T],
    y: &mut [T],
    scratch: &mut [T],
) {
    match transposed {
        false => operator.apply(x, y, scratch),
        true => operator.apply_transpose(x, y, scratch),
    }
}

// Number of vectors in two slices
/// Number of vectors in `x` and `y` for a product with a matrix of this shape; panics if they disagree.
pub(crate) fn vectors<T>(x: &[T], y: &[T], (rows, columns): (usize, usize)) -> usize {
    let vectors = x.len().checked_div(columns).unwrap_or(y.len() / rows.max(1));
    let whole = x.len() == vectors * columns && y.len() == vectors * rows;
    assert!(whole, "{} → {} numbers by {rows} × {columns}", x.len(), y.len());
    vectors
}

// Positions of numbers in several vectors
/// Numbers in some ranges.
pub(crate) fn count(places: &[Range<usize>]) -> usize {
    places.iter().map(Range::len).sum()
}

/// The places in all vectors of a slice of so many numbers, of which a vector has `length`.
pub(crate) fn places_of(
    numbers: usize,
    length: usize,
    places: &[Range<usize>],
) -> impl Iterator<Item = Range<usize>> {
    let vectors = (0..numbers).step_by(length.max(1));
    vectors.flat_map(|start| places.iter().map(move |place| start + place.start..start + place.end))
}

/// Where the numbers of these places start when they stand side by side, for so many vectors.
pub(crate) fn starts(places: &[Range<usize>], vectors: usize) -> impl Iterator<Item = usize> {
    let mut end = 0;
    (0..vectors).flat_map(move |_| places).map(move |place| {
        end += place.len();
        end - place.len()
    })
}

// Gather and scatter numbers of vectors
/// Copies the numbers at some places of each vector side by side.
pub(crate) fn gather<T: Real>(x: &[T], length: usize, places: &[Range<usize>], to: &mut [T]) {
    let vectors = x.len() / length.max(1);
    for (place, start) in places_of(x.len(), length, places).zip(starts(places, vectors)) {
        to[start..start + place.len()].copy_from_slice(&x[place]);
    }
}

/// Copies numbers that stand side by side to some places of each vector.
pub(crate) fn scatter<T: Real>(from: &[T], length: usize, places: &[Range<usize>], y: &mut [T]) {
    let vectors = y.len() / length.max(1);
    for (place, start) in places_of(y.len(), length, places).zip(starts(places, vectors)) {
        let own = &from[start..start + place.len()];
        y[place].copy_from_slice(own);
    }
}

// Diagonal, low-rank and composed operators
// Diagonal matrix as an operator
/// A diagonal matrix, such as the covariance of measurement noise.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagonal<T>(Vec<T>);

impl<T: Real> Diagonal<T> {
    /// The operator with these elements on its diagonal.
    pub fn new(elements: Vec<T>) -> Self {
        Self(elements)
    }

    /// The elements on the diagonal.
    pub fn elements(&self) -> &[T] {
        &self.0
    }
}

impl<T: Real> Operator<T> for Diagonal<T> {
    // Answers of a diagonal matrix
    fn rows(&self) -> usize {
        self.0.len()
    }

    fn columns(&self) -> usize {
        self.0.len()
    }

    fn scratch(&self, _vectors: usize) -> usize {
        0
    }

    fn apply(&self, x: &[T], y: &mut [T], _: &mut [T]) {
        vectors(x, y, (self.0.len(), self.0.len()));
        for ((y, &x), &element) in y.iter_mut().zip(x).zip(self.0.iter().cycle()) {
            *y = element * x;
        }
    }

    fn apply_transpose(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        self.apply(x, y, scratch);
    }

    // Bytes of a diagonal matrix
    fn bytes(&self) -> u64 {
        size_of_val(self.0.as_slice()) as u64
    }
}

// Elements that join rows in pairs
/// A symmetric matrix with one element in each row, [pairs](https://lenslet.github.io/lenslet/matrix-operators.html#eq-pairs), such as the covariance of the noise of a lenslet's two slopes.
#[derive(Debug, Clone, PartialEq)]
pub struct Pairs<T> {
    partners: Vec<usize>,
    elements: Vec<T>,
}

impl<T: Real> Pairs<T> {
    /// The operator whose row k has the element `elements[k]` in the column `partners[k]`.
    ///
    /// # Errors
    /// `Invalid` if the partner of a partner is another row, or if two partners have unequal elements.
    pub fn new(partners: Vec<usize>, elements: Vec<T>) -> Result<Self, Invalid> {
        // Reject rows that are not paired
        let (rows, expected) = (elements.len(), "as many as elements");
        accept(partners.len() == rows, "partners", partners.len(), expected)?;
        for (k, &partner) in partners.iter().enumerate() {
            let back = partners.get(partner) == Some(&k) && elements[partner] == elements[k];
            let expected = "a row that has this one as its partner, and the same element";
            accept(back, &format!("partner of row {k}"), partner, expected)?;
        }
        Ok(Self { partners, elements })
    }

    // Partners and elements of pairs
    /// The partner of each row.
    pub fn partners(&self) -> &[usize] {
        &self.partners
    }

    /// The element of each row.
    pub fn elements(&self) -> &[T] {
        &self.elements
    }
}

impl<T: Real> Operator<T> for Pairs<T> {
    // Answers of elements in pairs
    fn rows(&self) -> usize {
        self.elements.len()
    }

    fn columns(&self) -> usize {
        self.elements.len()
    }

    fn scratch(&self, _vectors: usize) -> usize {
        0
    }

    fn apply(&self, x: &[T], y: &mut [T], _: &mut [T]) {
        let rows = self.elements.len();
        vectors(x, y, (rows, rows));
        for (x, y) in x.chunks_exact(rows.max(1)).zip(y.chunks_exact_mut(rows.max(1))) {
            let pairs = self.elements.iter().zip(&self.partners);
            for (y, (&element, &partner)) in y.iter_mut().zip(pairs) {
                *y = element * x[partner];
            }
        }
    }

    fn apply_transpose(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        self.apply(x, y, scratch);
    }

    fn bytes(&self) -> u64 {
        (size_of_val(self.elements.as_slice()) + size_of_val(self.partners.as_slice())) as u64
    }
}

// Matrix of a few vectors
/// The weighted sum of a few outer products of vectors with themselves, [low rank](https://lenslet.github.io/lenslet/matrix-operators.html#eq-low-rank).
#[derive(Debug, Clone, PartialEq)]
pub struct LowRank<T> {
    rows: usize,
    terms: Vec<(T, usize, Vec<T>)>,
}

impl<T: Real> LowRank<T> {
    /// The operator with this number of `rows` and with `terms`: for each, the weight, the first row of its vector, and the vector.
    ///
    /// # Errors
    /// `Invalid` if a vector extends beyond the last row.
    pub fn new(rows: usize, terms: Vec<(T, usize, Vec<T>)>) -> Result<Self, Invalid> {
        for (k, (_, first, vector)) in terms.iter().enumerate() {
            let (end, expected) = (first + vector.len(), format!("at most {rows}, the rows"));
            accept(end <= rows, &format!("end of vector {k}"), end, &expected)?;
        }
        Ok(Self { rows, terms })
    }
}

impl<T: Real> Operator<T> for LowRank<T> {
    // Products with a few vectors
    fn apply(&self, x: &[T], y: &mut [T], _: &mut [T]) {
        vectors(x, y, (self.rows, self.rows));
        y.fill(T::zero());
        let rows = self.rows.max(1);
        for (x, y) in x.chunks_exact(rows).zip(y.chunks_exact_mut(rows)) {
            for (weight, first, vector) in &self.terms {
                let own = *first..first + vector.len();
                let share: T = x[own.clone()].iter().zip(vector).map(|(&x, &u)| x * u).sum();
                y[own].iter_mut().zip(vector).for_each(|(y, &u)| *y += *weight * share * u);
            }
        }
    }

    // Answers of a few vectors
    fn rows(&self) -> usize {
        self.rows
    }

    fn columns(&self) -> usize {
        self.rows
    }

    fn scratch(&self, _vectors: usize) -> usize {
        0
    }

    fn apply_transpose(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        self.apply(x, y, scratch);
    }

    fn bytes(&self) -> u64 {
        self.terms.iter().map(|(_, _, vector)| size_of_val(vector.as_slice()) as u64).sum()
    }
}

// Sum of several operators
/// The sum of operators of one shape.
pub struct Sum<T>(Vec<Arc<dyn Operator<T>>>);

impl<T: Real> Sum<T> {
    // Collect terms of one shape
    /// The sum of `terms`.
    ///
    /// # Errors
    /// `Invalid` if there is no term, or if two terms have different shapes.
    pub fn new(terms: Vec<Arc<dyn Operator<T>>>) -> Result<Self, Invalid> {
        let shapes: Vec<_> = terms.iter().map(|term| shape(term.as_ref(), false)).collect();
        let first = *shapes.first().ok_or_else(|| Invalid::new("terms", 0, "at least one"))?;
        match shapes.iter().find(|&&shape| shape != first) {
            Some(other) => Err(misfit("terms of a sum", first, *other, "equal shapes")),
            None => Ok(Self(terms)),
        }
    }

    // Add up the products of the terms
    fn add_up(&self, transposed: bool, x: &[T], y: &mut [T], scratch: &mut [T]) {
        vectors(x, y, shape(self, transposed));
        let (product, scratch) = scratch.split_at_mut(y.len());
        for (k, term) in self.0.iter().enumerate() {
            if k == 0 {
                multiply(term.as_ref(), transposed, x, y, scratch);
            } else {
                multiply(term.as_ref(), transposed, x, product, scratch);
                y.iter_mut().zip(&*product).for_each(|(y, &product)| *y += product);
            }
        }
    }
}

// Reject shapes that do not fit
/// The error of two operators whose shapes do not fit.
fn misfit(what: &str, first: (usize, usize), second: (usize, usize), expected: &str) -> Invalid {
    let value = format!("{} × {} and {} × {}", first.0, first.1, second.0, second.1);
    Invalid::new(what, value, expected)
}

impl<T: Real> Operator<T> for Sum<T> {
    // Answers of a sum
    fn rows(&self) -> usize {
        self.0[0].rows()
    }

    fn columns(&self) -> usize {
        self.0[0].columns()
    }

    fn scratch(&self, vectors: usize) -> usize {
        let most = self.0.iter().map(|term| term.scratch(vectors)).max();
        vectors * self.rows().max(self.columns()) + most.unwrap_or(0)
    }

    fn apply(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        self.add_up(false, x, y, scratch);
    }

    fn apply_transpose(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        self.add_up(true, x, y, scratch);
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(|term| term.bytes()).sum()
    }
}

// Product of several operators
/// The product of operators, of which the last is applied first.
pub struct Product<T>(Vec<Arc<dyn Operator<T>>>);

impl<T: Real> Product<T> {
    // Collect factors that fit
    /// The product of `factors`, written from left to right.
    ///
    /// # Errors
    /// `Invalid` if there is no factor, or if the columns of one are not as many as the rows of the next.
    pub fn new(factors: Vec<Arc<dyn Operator<T>>>) -> Result<Self, Invalid> {
        if factors.is_empty() {
            return Err(Invalid::new("factors", 0, "at least one"));
        }
        let fits = |pair: &&[Arc<dyn Operator<T>>]| pair[0].columns() == pair[1].rows();
        match factors.windows(2).find(|pair| !fits(pair)) {
            Some(pair) => {
                let [left, right] = [0, 1].map(|k| shape(pair[k].as_ref(), false));
                let expected = "as many columns on the left as rows on the right";
                Err(misfit("factors of a product", left, right, expected))
            }
            None => Ok(Self(factors)),
        }
    }

    // Longest vector between two factors
    fn longest_between(&self) -> usize {
        self.0[1..].iter().map(|factor| factor.rows()).max().unwrap_or(0)
    }

    // Apply one factor after the other
    fn chain(&self, transposed: bool, x: &[T], y: &mut [T], scratch: &mut [T]) {
        let vectors = vectors(x, y, shape(self, transposed));
        let between = vectors * self.longest_between();
        let (mut from, scratch) = scratch.split_at_mut(between);
        let (mut to, scratch) = scratch.split_at_mut(between);
        let last = self.0.len() - 1;
        for step in 0..=last {
            let factor = self.0[if transposed { step } else { last - step }].as_ref();
            let (rows, columns) = shape(factor, transposed);
            let x = if step == 0 { x } else { &from[..vectors * columns] };
            let y = if step == last { &mut *y } else { &mut to[..vectors * rows] };
            multiply(factor, transposed, x, y, scratch);
            std::mem::swap(&mut from, &mut to);
        }
    }
}

impl<T: Real> Operator<T> for Product<T> {
    // Answers of a product
    fn rows(&self) -> usize {
        self.0[0].rows()
    }

    fn columns(&self) -> usize {
        self.0[self.0.len() - 1].columns()
    }

    fn scratch(&self, vectors: usize) -> usize {
        let most = self.0.iter().map(|factor| factor.scratch(vectors)).max();
        2 * vectors * self.longest_between() + most.unwrap_or(0)
    }

    fn apply(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        self.chain(false, x, y, scratch);
    }

    fn apply_transpose(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        self.chain(true, x, y, scratch);
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(|factor| factor.bytes()).sum()
    }
}

// Tests of operators
// Battery of tests for operators
/// Tests that every operator must pass, here and in later chapters.
#[cfg(test)]
pub(crate) mod battery {
    use super::*;
    use crate::linear::matrix::dot;
    use rand::{RngExt, SeedableRng, rngs::StdRng};

    // Random vectors and their distances
    /// Random numbers between −1 and 1.
    pub(crate) fn random<T: Real>(length: usize, seed: u64) -> Vec<T> {
        let mut generator = StdRng::seed_from_u64(seed);
        let mut number = || T::from(generator.random_range(-1.0..1.0)).unwrap();
        (0..length).map(|_| number()).collect()
    }

    /// ‖a − b‖ / ‖b‖, or ‖a‖ where b is 0.
    pub(crate) fn distance<T: Real>(a: &[T], b: &[T]) -> f64 {
        assert_eq!(a.len(), b.len());
        let norm = |x: &mut dyn Iterator<Item = T>| x.map(|x| x * x).sum::<T>().sqrt();
        let difference = norm(&mut a.iter().zip(b).map(|(&a, &b)| a - b));
        let of_b = norm(&mut b.iter().copied());
        (if of_b > T::zero() { difference / of_b } else { difference }).in_double()
    }

    // Multiply in dirty scratch
    /// A product with `vectors` vectors, from scratch and into a result that are full of NaN.
    pub(crate) fn product<T: Real>(
        operator: &dyn Operator<T>,
        transposed: bool,
        x: &[T],
        vectors: usize,
    ) -> Vec<T> {
        let (rows, columns) = shape(operator, transposed);
        assert_eq!(x.len(), vectors * columns);
        let mut y = vec![T::nan(); vectors * rows];
        let mut scratch = vec![T::nan(); operator.scratch(vectors)];
        multiply(operator, transposed, x, &mut y, &mut scratch);
        y
    }

    // Test all properties of an operator
    /// Checks adjoint, several vectors at once, linearity and repeatability, within a relative tolerance.
    pub(crate) fn check<T: Real>(operator: &dyn Operator<T>, tolerance: f64) {
        let (rows, columns) = (operator.rows(), operator.columns());
        let (x, y) = (random::<T>(columns, 1), random::<T>(rows, 2));
        let forward = product(operator, false, &x, 1);
        let back = product(operator, true, &y, 1);
        // More scratch than is asked for will do, and an odd number of places too.
        let mut roomy = vec![T::nan(); rows];
        operator.apply(&x, &mut roomy, &mut vec![T::nan(); operator.scratch(1) + 1]);
        assert!(roomy == forward, "with more scratch");
        let inner = |a: &[T], b: &[T]| dot(a, b).in_double();
        let size = (inner(&forward, &forward) * inner(&y, &y)).sqrt();
        let adjoint = inner(&forward, &y) - inner(&x, &back);
        assert!(adjoint.abs() <= tolerance * size, "adjoint: {adjoint:e} of {size:e}");
        for transposed in [false, true] {
            check_vectors(operator, transposed, tolerance);
        }
    }

    // Check several vectors and linearity
    fn check_vectors<T: Real>(operator: &dyn Operator<T>, transposed: bool, tolerance: f64) {
        let (rows, columns) = shape(operator, transposed);
        let x = random::<T>(3 * columns, 3);
        let together = product(operator, transposed, &x, 3);
        for (x, y) in x.chunks(columns).zip(together.chunks(rows)) {
            let alone = product(operator, transposed, x, 1);
            assert!(distance(&alone, y) <= tolerance, "several at once, transposed: {transposed}");
        }
        assert_eq!(together, product(operator, transposed, &x, 3), "the second time");
        // Check that products are linear
        let (two, half) = (T::from(2.0).unwrap(), T::from(0.5).unwrap());
        let combine = |x: &[T], length: usize| -> Vec<T> {
            (0..length).map(|k| two * x[k] - half * x[length + k]).collect()
        };
        let of_sum = product(operator, transposed, &combine(&x, columns), 1);
        assert!(distance(&of_sum, &combine(&together, rows)) <= tolerance, "linearity");
    }
}

// Tests of the simple operators
#[cfg(test)]
mod tests {
    use super::{battery::*, *};
    use crate::linear::matrix::Dense;
    use ndarray::{Array1, Array2, arr2};

    fn matrix<T: Real>(rows: usize, columns: usize, seed: u64) -> Array2<T> {
        Array2::from_shape_vec((rows, columns), random(rows * columns, seed)).unwrap()
    }

    fn shared<T: Real>(matrix: &Array2<T>) -> Arc<dyn Operator<T>> {
        Arc::new(Dense::new(matrix.clone()))
    }

    // Compare an operator with its matrix
    /// Runs the battery of tests on an operator and compares it with its matrix.
    fn compare<T: Real>(operator: &dyn Operator<T>, matrix: &Array2<T>, tolerance: f64) {
        check(operator, tolerance);
        for (transposed, matrix) in [(false, matrix.view()), (true, matrix.t())] {
            assert_eq!(shape(operator, transposed), matrix.dim());
            let x = random(matrix.ncols(), 4);
            let expected = matrix.dot(&Array1::from(x.clone())).to_vec();
            assert!(distance(&product(operator, transposed, &x, 1), &expected) <= tolerance);
        }
    }

    // Compare the simple operators with their matrices
    fn all_as_spelled_out<T: Real>(tolerance: f64) {
        for (rows, columns) in [(1, 1), (3, 17), (40, 5), (21, 600)] {
            let a = matrix::<T>(rows, columns, 5);
            compare(&Dense::new(a.clone()), &a, tolerance);
            let (b, c) = (matrix(rows, columns, 6), matrix(rows, columns, 7));
            let sum = Sum::new(vec![shared(&a), shared(&b), shared(&c)]).unwrap();
            compare(&sum, &(&a + &b + &c), tolerance);
            let (d, e) = (matrix(columns, 33, 8), matrix(33, 9, 9));
            let product = Product::new(vec![shared(&a), shared(&d), shared(&e)]).unwrap();
            compare(&product, &a.dot(&d).dot(&e), tolerance);
            let diagonal = Arc::new(Diagonal::new(random(columns, 10)));
            let scaled = &a * &Array1::from(diagonal.elements().to_vec());
            compare(&*diagonal, &Array2::from_diag(&Array1::from(random(columns, 10))), tolerance);
            let reversed = (0..columns).rev().collect::<Vec<_>>();
            let elements: Vec<T> =
                (0..columns).map(|k| diagonal.elements()[k.min(reversed[k])]).collect();
            let pairs = Pairs::new(reversed, elements.clone()).unwrap();
            let mut spelled_out = Array2::zeros((columns, columns));
            elements.iter().enumerate().for_each(|(k, &e)| spelled_out[[k, columns - 1 - k]] = e);
            compare(&pairs, &spelled_out, tolerance);
            // Compare a few vectors with their matrix
            let [u, v] = [10, 11].map(|seed| Array1::from(random::<T>(columns, seed)));
            let (two, last) = (T::of(2.0), v.slice(ndarray::s![columns / 2..]).to_vec());
            let terms = vec![(two, 0, u.to_vec()), (-T::one(), columns / 2, last)];
            let few = LowRank::new(columns, terms).unwrap();
            let of = |(k, l): (usize, usize)| {
                let second = if k.min(l) < columns / 2 { T::zero() } else { v[k] * v[l] };
                two * u[k] * u[l] - second
            };
            compare(&few, &Array2::from_shape_fn((columns, columns), of), tolerance);
            assert!(LowRank::new(columns, vec![(two, 1, vec![two; columns])]).is_err());
            let nested = Arc::new(Product::new(vec![shared(&a), diagonal]).unwrap());
            compare(&Sum::new(vec![nested, shared(&c)]).unwrap(), &(scaled + &c), tolerance);
        }
    }

    #[test]
    fn simple_operators_are_as_spelled_out() {
        all_as_spelled_out::<f64>(1e-13);
        all_as_spelled_out::<f32>(1e-5);
    }

    // Check refusals and sizes of operators
    #[test]
    fn a_matrix_may_lie_by_columns() {
        let a = matrix::<f64>(4, 7, 11);
        assert_eq!(Dense::new(a.t().to_owned()), Dense::new(a.reversed_axes()));
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let (wide, tall) = (matrix::<f64>(2, 3, 12), matrix::<f64>(3, 2, 13));
        let error = Sum::new(vec![shared(&wide), shared(&tall)]).err().unwrap();
        assert_eq!(error.value, "2 × 3 and 3 × 2");
        let error = Product::new(vec![shared(&wide), shared(&wide)]).err().unwrap();
        assert_eq!(error.quantity, "factors of a product");
        assert!(Sum::<f64>::new(vec![]).is_err() && Product::<f64>::new(vec![]).is_err());
        for (partners, elements) in [(vec![1, 0], vec![1.0, 2.0]), (vec![1, 2, 0], vec![1.0; 3])] {
            assert_eq!(Pairs::new(partners, elements).unwrap_err().quantity, "partner of row 0");
        }
        assert!(Pairs::new(vec![7], vec![1.0]).is_err() && Pairs::new(vec![], vec![1.0]).is_err());
        let square = Product::new(vec![shared(&wide), shared(&tall)]).unwrap();
        assert_eq!((square.bytes(), square.dense_bytes()), (96, 32));
    }

    #[test]
    #[should_panic(expected = "3 → 3 numbers by 2 × 3")]
    fn vectors_of_the_wrong_length_panic() {
        let dense = Dense::new(arr2(&[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]));
        dense.apply(&[1.0; 3], &mut [0.0; 3], &mut [0.0; 9]);
    }
}
