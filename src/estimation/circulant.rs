// Tangled from book/src/circulant.md: edit there, or here and run cargo tangle stitch.
//! A preconditioner for the covariance of slopes with noise: the inverse of a covariance on a torus.

#[cfg_attr(not(feature = "factorise"), allow(dead_code))]
pub(crate) mod between_transforms;
pub(crate) mod gpu;

// Imports of the preconditioner
use crate::error::{Error, Invalid, accept, not_negative};
use crate::linear::operator::{Operator, gather, scatter, vectors};
use crate::linear::toeplitz::{Block, BlockToeplitz, Parts};
use crate::numerics::fft::FftPlans;
use crate::numerics::real::Real;
use crate::turbulence::slope::SlopeCovariance;
use ndarray::{Array2, ArrayView2, s};
use num_complex::Complex64;
use rayon::prelude::*;
use rustfft::Fft;
use std::{ops::Range, sync::Arc};

// Stars that share a lattice
/// Guide stars whose slopes share a lattice, so that their covariance has Toeplitz form.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    /// Covariance of the slopes of these stars, rad².
    pub covariance: &'a SlopeCovariance,
    /// Mean variance of the noise of a slope, for each of them, rad²; it may be 0.
    pub noise: &'a [f64],
    /// Valid lenslets of each of them, (N, N).
    pub valid: &'a [Array2<bool>],
    /// Which of all stars they are, counted from 0 in the order of the slope vector.
    pub stars: &'a [usize],
}

// Places of all stars in the slope vector
/// Where the slopes of each star stand in the vector of all.
pub(crate) fn places(groups: &[Group]) -> Result<Vec<Range<usize>>, Invalid> {
    accept(!groups.is_empty(), "groups of guide stars", 0, "at least one")?;
    let stars = groups.iter().map(|group| group.stars.len()).sum::<usize>();
    let mut counts = vec![None; stars];
    for group in groups {
        // Check that a group is complete
        let sources = group.covariance.sources();
        let expected = format!("{sources}, as the covariance of the group has");
        let given = [group.stars.len(), group.noise.len(), group.valid.len()];
        for (count, name) in given.into_iter().zip(["stars", "noise", "masks of valid lenslets"]) {
            accept(count == sources, name, count, &expected)?;
        }
        for (&star, valid) in group.stars.iter().zip(group.valid) {
            match counts.get_mut(star) {
                Some(count @ None) => *count = Some(2 * valid.iter().filter(|&&used| used).count()),
                _ => return Err(Invalid::new("stars", star, "each number of a star once")),
            }
        }
    }
    let mut end = 0;
    let place = |count: Option<usize>| {
        let start = end;
        end += count.unwrap_or(0);
        start..end
    };
    Ok(counts.into_iter().map(place).collect())
}

// The circulant preconditioner
// Example of a circulant preconditioner
/// An approximation of the inverse of the covariance of measured slopes, symmetric and positive definite, rad⁻².
///
/// Its vectors are in the order of [`SlopeOrder`](crate::model::lenslet_array::SlopeOrder); Eq. [circulant preconditioner](https://lenslet.github.io/lenslet/circulant.html#eq-circulant-preconditioner).
///
/// ```
/// use lenslet::estimation::{Circulant, Group};
/// use lenslet::linear::Operator;
/// use lenslet::model::{Atmosphere, ConeGradient, Layer, LensletArray, Source};
/// use lenslet::turbulence::{SlopeCovariance, SlopeProblem};
/// use ndarray::{Array2, Array3};
///
/// let atmosphere = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 25.0)])?;
/// let (array, stars) = (LensletArray::new(2, 0.5)?, [Source::star(0.0, 0.0)?]);
/// let problem = SlopeProblem::new(&atmosphere, &array, &stars, ConeGradient::Pupil)?;
/// let mut lags = Array3::zeros((3, 3, 3)); // xx, xy and yy, correlated within a row or a column
/// for (k, value) in [0.5, 1.0, 0.5].into_iter().enumerate() {
///     lags[[0, 1, k]] = value;
///     lags[[2, k, 1]] = value;
/// }
/// let covariance = &SlopeCovariance::from_pairs(&problem, &[lags]);
/// let valid = &[Array2::from_elem((2, 2), true)];
/// let p = Circulant::<f64>::new(&[Group { covariance, noise: &[0.25], valid, stars: &[0] }])?;
/// let (mut column, mut scratch) = ([0.0; 8], vec![0.0; p.scratch(1)]);
/// p.apply(&[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], &mut column, &mut scratch);
/// assert!((column[0] - 1.5111).abs() < 1e-4 && (column[1] + 0.8889).abs() < 1e-4);
/// # Ok::<(), lenslet::Error>(())
/// ```
pub struct Circulant<T> {
    parts: Vec<GroupPreconditioner<T>>,
    length: usize,
}

/// The preconditioner of one group.
struct GroupPreconditioner<T> {
    operator: BlockToeplitz<T>,
    /// Where the slopes of each of its stars stand in the vector of all.
    places: Vec<Range<usize>>,
}

impl<T: Real> Circulant<T> {
    // Make the preconditioner of all groups
    // Requirements on groups of stars
    /// The preconditioner of stars that share lattices in groups; one group where all share one.
    ///
    /// Noise below 1e-3 of the variance of a slope counts as that much.
    ///
    /// # Errors
    /// `Invalid` where the groups do not hold each star once, a group's parts differ in number, masks do not fit
    /// the covariance or leave nothing, or a covariance or a noise is not finite.
    pub fn new(groups: &[Group]) -> Result<Self, Error> {
        let places = places(groups)?;
        let part = |group: &Group| {
            let kernels = inverse_kernels(group.covariance, group.noise)?;
            let places = group.stars.iter().map(|&star| places[star].clone()).collect();
            Ok(GroupPreconditioner {
                operator: BlockToeplitz::of(&parts_of(&kernels, group.valid)?),
                places,
            })
        };
        let parts = groups.iter().map(part).collect::<Result<_, Error>>()?;
        Ok(Self { parts, length: places.last().map_or(0, |place| place.end) })
    }
}

// Gather, multiply and scatter a group
// Parts of a group's operator
/// The operator's parts with these kernels, turned below the diagonal.
pub(crate) fn parts_of<'a>(
    kernels: &'a [Array2<f64>],
    valid: &[Array2<bool>],
) -> Result<Parts<'a>, Invalid> {
    let kernels: Vec<_> = kernels.iter().map(|kernel| kernel.view()).collect();
    let masks: Vec<_> = valid.iter().flat_map(|mask| [mask.clone(), mask.clone()]).collect();
    let blocks = Array2::from_shape_fn((masks.len(), masks.len()), |(i, j)| Block {
        kernel: pair(i.min(j), i.max(j)),
        turned: i > j,
    });
    Parts::new(kernels, blocks, 1, masks.clone(), masks)
}

impl<T: Real> GroupPreconditioner<T> {
    fn is_whole(&self, length: usize) -> bool {
        self.operator.rows() == length && self.places.is_sorted_by_key(|place| place.start)
    }

    fn apply(&self, x: &[T], y: &mut [T], length: usize, scratch: &mut [T]) {
        if self.is_whole(length) {
            return self.operator.apply(x, y, scratch);
        }
        let part = x.len() / length * self.operator.rows();
        let (from, scratch) = scratch.split_at_mut(part);
        let (to, scratch) = scratch.split_at_mut(part);
        gather(x, length, &self.places, from);
        self.operator.apply(from, to, scratch);
        scatter(to, length, &self.places, y);
    }
}

impl<T: Real> Operator<T> for Circulant<T> {
    // Answers of the preconditioner
    fn rows(&self) -> usize {
        self.length
    }

    fn columns(&self) -> usize {
        self.length
    }

    fn scratch(&self, vectors: usize) -> usize {
        let part = |part: &GroupPreconditioner<T>| {
            let copies = if part.is_whole(self.length) { 0 } else { 2 * part.operator.rows() };
            copies * vectors + part.operator.scratch(vectors)
        };
        self.parts.iter().map(part).max().unwrap_or(0)
    }

    // Apply the preconditioner of all groups
    fn apply(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        vectors(x, y, (self.length, self.length));
        self.parts.iter().for_each(|part| part.apply(x, y, self.length, scratch));
    }

    fn apply_transpose(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        self.apply(x, y, scratch);
    }

    fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.operator.bytes()).sum()
    }
}

// Kernels of the clipped inverse
/// Kernels of P for each pair of components (i, j) with i ≤ j, numbered by [`pair`], each of (2N − 1, 2N − 1) lags, rad⁻².
///
/// Component 2 p + a is the slope of star p along axis a. Eqs. [circulant preconditioner](https://lenslet.github.io/lenslet/circulant.html#eq-circulant-preconditioner), [clipped inverse](https://lenslet.github.io/lenslet/circulant.html#eq-clipped-inverse).
pub(crate) fn inverse_kernels(
    covariance: &SlopeCovariance,
    noise: &[f64],
) -> Result<Vec<Array2<f64>>, Invalid> {
    let weights = weights(covariance, noise)?;
    let torus = Torus::new(covariance.lenslets());
    let pairs: Vec<_> = (0..weights.len()).flat_map(|j| (0..=j).map(move |i| (i, j))).collect();
    let spectrum = |&(i, j): &(usize, usize)| {
        torus.spectrum(covariance.values().slice(s![i / 2, j / 2, i % 2, j % 2, .., ..]))
    };
    let spectra: Vec<_> = pairs.par_iter().map(spectrum).collect();
    // Invert column by column of frequencies
    let column = |kx: usize| {
        let mut inverses = vec![Complex64::default(); pairs.len() * torus.length];
        let mut inverter = Inverter::new(&weights);
        for ky in 0..torus.length {
            let frequency = kx * torus.length + ky;
            inverter.invert(|k| spectra[k][frequency]);
            for (k, &(i, j)) in pairs.iter().enumerate() {
                inverses[k * torus.length + ky] = inverter.inverse(i, j);
            }
        }
        inverses
    };
    let inverses: Vec<_> = (0..=torus.length / 2).into_par_iter().map(column).collect();
    let kernel = |k| torus.kernel(|kx| &inverses[kx][k * torus.length..(k + 1) * torus.length]);
    Ok((0..pairs.len()).into_par_iter().map(kernel).collect())
}

// Number a pair of components
/// Number of the pair of components (i, j), i ≤ j.
fn pair(i: usize, j: usize) -> usize {
    j * (j + 1) / 2 + i
}

// Weigh by the noise of slopes
/// Noise below this share of the slope variance counts as this share.
const LEAST_NOISE: f64 = 1e-3;

/// 1/√n for each component, rad⁻¹.
fn weights(covariance: &SlopeCovariance, noise: &[f64]) -> Result<Vec<f64>, Invalid> {
    if let Some(value) = covariance.values().iter().find(|value| !value.is_finite()) {
        return Err(Invalid::new("covariance of slopes", value, "finite numbers"));
    }
    let mut weights = Vec::new();
    for (star, &noise) in noise.iter().enumerate() {
        let name = format!("noise[{star}]");
        let noise = not_negative(&name, noise)?.max(LEAST_NOISE * covariance.variance());
        accept(noise >= 1e-300, &name, noise, "more than 0 where the slopes have no variance")?;
        weights.extend([1.0 / noise.sqrt(); 2]);
    }
    Ok(weights)
}

// Torus of twice the array
/// A torus of 2N × 2N lenslets, with its Fourier transforms.
struct Torus {
    lenslets: usize,
    length: usize,
    forward: Arc<dyn Fft<f64>>,
    inverse: Arc<dyn Fft<f64>>,
}

impl Torus {
    fn new(lenslets: usize) -> Self {
        let length = 2 * lenslets;
        let (forward, inverse) = f64::plan_complex(length);
        Self { lenslets, length, forward, inverse }
    }

    /// The place of lag `k − (N − 1)` along an axis.
    fn place(&self, k: usize) -> usize {
        (k + 1 + self.length - self.lenslets) % self.length
    }

    // Transform along both axes
    /// Transforms along x, exchanges the axes, and transforms along what was y.
    fn transform(&self, fft: &dyn Fft<f64>, mut field: Vec<Complex64>) -> Vec<Complex64> {
        fft.process(&mut field);
        let length = self.length;
        let exchanged = (0..length * length).map(|k| field[k % length * length + k / length]);
        let mut field: Vec<_> = exchanged.collect();
        fft.process(&mut field);
        field
    }

    // From lags to frequencies and back
    /// The spectrum of a kernel of lags: (kx, ky).
    fn spectrum(&self, kernel: ArrayView2<f64>) -> Vec<Complex64> {
        let mut field = vec![Complex64::default(); self.length * self.length];
        for ((j, i), &value) in kernel.indexed_iter() {
            field[self.place(j) * self.length + self.place(i)] = value.into();
        }
        self.transform(self.forward.as_ref(), field)
    }

    /// The kernel of lags whose spectrum has the given columns, for kx from 0 to F/2.
    fn kernel<'a>(&self, column: impl Fn(usize) -> &'a [Complex64]) -> Array2<f64> {
        let length = self.length;
        let value = |kx: usize, ky: usize| match length - kx {
            mirror if mirror < kx => column(mirror)[(length - ky) % length].conj(),
            _ => column(kx)[ky],
        };
        let field = (0..length * length).map(|k| value(k / length, k % length)).collect();
        let field = self.transform(self.inverse.as_ref(), field);
        let (lags, scale) = (2 * self.lenslets - 1, (length as f64).powi(-2));
        Array2::from_shape_fn((lags, lags), |(j, i)| {
            scale * field[self.place(j) * length + self.place(i)].re
        })
    }
}

// Invert the covariance at one frequency
/// Inverts covariances of components with noise, [clipped inverse](https://lenslet.github.io/lenslet/circulant.html#eq-clipped-inverse), one frequency after the other.
struct Inverter<'a> {
    weights: &'a [f64],
    matrix: Vec<Complex64>,
    vectors: Vec<Complex64>,
    gains: Vec<f64>,
}

impl<'a> Inverter<'a> {
    fn new(weights: &'a [f64]) -> Self {
        let (size, square) = (weights.len(), weights.len() * weights.len());
        let [matrix, vectors] = [(); 2].map(|()| vec![Complex64::default(); square]);
        Self { weights, matrix, vectors, gains: vec![0.0; size] }
    }

    // Weigh, diagonalise and clip
    /// Takes the elements of G by [`pair`], and finds the eigenvectors of B and what they are multiplied by.
    fn invert(&mut self, element: impl Fn(usize) -> Complex64) {
        let size = self.weights.len();
        for j in 0..size {
            for i in 0..=j {
                let value = element(pair(i, j)) * self.weights[i] * self.weights[j];
                self.matrix[i * size + j] = value;
                self.matrix[j * size + i] = value.conj();
            }
            self.matrix[j * size + j].im = 0.0;
        }
        diagonalise(&mut self.matrix, &mut self.vectors, size);
        for (k, gain) in self.gains.iter_mut().enumerate() {
            *gain = 1.0 / (1.0 + self.matrix[k * size + k].re.max(0.0));
        }
    }

    // Element of the clipped inverse
    /// Element (i, j) of the inverse, rad⁻².
    fn inverse(&self, i: usize, j: usize) -> Complex64 {
        let size = self.weights.len();
        let [row, column] = [i, j].map(|k| &self.vectors[k * size..(k + 1) * size]);
        let terms = row.iter().zip(column).zip(&self.gains);
        let sum: Complex64 = terms.map(|((a, b), &gain)| a * b.conj() * gain).sum();
        sum * self.weights[i] * self.weights[j]
    }
}

// Eigenvectors of a Hermitian matrix
/// Diagonalises a Hermitian matrix, [jacobi](https://lenslet.github.io/lenslet/circulant.html#eq-jacobi): its eigenvalues are left on its diagonal, their vectors in the columns
/// of `vectors`. Both are (size, size), by rows.
fn diagonalise(matrix: &mut [Complex64], vectors: &mut [Complex64], size: usize) {
    for (k, value) in vectors.iter_mut().enumerate() {
        *value = if k % (size + 1) == 0 { 1.0.into() } else { 0.0.into() };
    }
    let total: f64 = matrix.iter().map(|a| a.norm_sqr()).sum();
    for _sweep in 0..30 {
        let mut left = 0.0;
        for q in 1..size {
            for p in 0..q {
                left += matrix[p * size + q].norm_sqr();
                rotate(matrix, vectors, size, p, q);
            }
        }
        if left <= 1e-28 * total {
            return;
        }
    }
}

// Rotate an element to zero
/// Makes element (p, q) zero by a rotation.
fn rotate(matrix: &mut [Complex64], vectors: &mut [Complex64], size: usize, p: usize, q: usize) {
    let element = matrix[p * size + q];
    let modulus = element.norm();
    if modulus < f64::MIN_POSITIVE {
        return;
    }
    let tau = (matrix[q * size + q].re - matrix[p * size + p].re) / (2.0 * modulus);
    let tangent = 1f64.copysign(tau) / (tau.abs() + tau.hypot(1.0));
    let cosine = 1.0 / tangent.hypot(1.0);
    let (sine, phase) = (tangent * cosine, element.conj() / modulus);
    // Turn columns, then rows
    let turn = |a: &mut Complex64, b: &mut Complex64, phase: Complex64| {
        let (x, y) = (*a, *b * phase);
        (*a, *b) = (x * cosine - y * sine, x * sine + y * cosine);
    };
    for values in [&mut *matrix, vectors] {
        for row in values.chunks_exact_mut(size) {
            let (left, right) = row.split_at_mut(q);
            turn(&mut left[p], &mut right[0], phase);
        }
    }
    let (above, below) = matrix.split_at_mut(q * size);
    let rows = above[p * size..].iter_mut().zip(below).take(size);
    rows.for_each(|(a, b)| turn(a, b, phase.conj()));
}

// Tests of the circulant preconditioner
#[cfg(test)]
mod tests {
    use super::*;
    // Imports of tests of the preconditioner
    use crate::linear::matrix::Dense;
    use crate::linear::operator::battery;
    use crate::linear::solver::{Solver, Stop};
    use crate::model::atmosphere::{Atmosphere, Layer};
    use crate::model::lenslet_array::{LensletArray, SlopeOrder};
    use crate::model::source::{ConeGradient, Source};
    use crate::turbulence::slope::SlopeProblem;
    use crate::{turbulence::direct::slope::pair_covariances, watch::unwatched};

    // Small systems for the preconditioner
    const NOISE: [f64; 3] = [2.5e-14, 1e-14, 6e-14];

    fn covariance(lenslets: usize, stars: usize) -> SlopeCovariance {
        let layers = vec![Layer::new(0.0, 0.7, 25.0), Layer::new(9000.0, 0.3, 20.0)];
        let atmosphere = Atmosphere::new(0.15, 500e-9, layers).unwrap();
        let sources = [(1e-4, 0.3), (2e-4, 2.0), (1.5e-4, 4.4)];
        let source = |&(zenith, azimuth): &(f64, f64)| Source::new(zenith, azimuth, 90e3).unwrap();
        let sources: Vec<_> = sources[..stars].iter().map(source).collect();
        let array = LensletArray::new(lenslets, 0.5).unwrap();
        let problem =
            SlopeProblem::new(&atmosphere, &array, &sources, ConeGradient::Pupil).unwrap();
        SlopeCovariance::from_pairs(&problem, &pair_covariances(&problem, &unwatched).unwrap())
    }

    fn masks(lenslets: usize, stars: usize) -> Vec<Array2<bool>> {
        let within = |p: usize, j: usize, i: usize| {
            2 * i + j >= lenslets / 2 + p && i + 3 * j + p + 6 < 4 * lenslets
        };
        let hole = (lenslets / 3, lenslets / 2);
        let mask = |p| {
            Array2::from_shape_fn((lenslets, lenslets), |(j, i)| within(p, j, i) && (j, i) != hole)
        };
        (0..stars).map(mask).collect()
    }

    // Operators of small systems
    /// The matrix of the slopes with noise.
    fn with_noise(covariance: &SlopeCovariance, valid: &[Array2<bool>]) -> Array2<f64> {
        let mut matrix = covariance.dense(&SlopeOrder::new(valid));
        let count = |mask: &Array2<bool>| 2 * mask.iter().filter(|&&used| used).count();
        let noise = valid.iter().zip(NOISE).flat_map(|(mask, noise)| vec![noise; count(mask)]);
        matrix.diag_mut().iter_mut().zip(noise).for_each(|(value, noise)| *value += noise);
        matrix
    }

    /// The preconditioner of one group.
    fn circulant<T: Real>(covariance: &SlopeCovariance, valid: &[Array2<bool>]) -> Circulant<T> {
        let stars: Vec<_> = (0..valid.len()).collect();
        let noise = &NOISE[..valid.len()];
        Circulant::new(&[Group { covariance, noise, valid, stars: &stars }]).unwrap()
    }

    /// All columns of an operator.
    fn matrix_of(operator: &dyn Operator<f64>) -> Array2<f64> {
        let size = operator.rows();
        let identity = Array2::<f64>::eye(size).into_raw_vec_and_offset().0;
        let columns = battery::product(operator, false, &identity, size);
        Array2::from_shape_vec((size, size), columns).unwrap().reversed_axes()
    }

    // Recover eigenvalues that are known
    #[test]
    fn jacobi_finds_eigenvalues() {
        let numbers: Vec<f64> = battery::random(98, 1);
        let matrix: Vec<Complex64> = (0..49)
            .map(|k| [k, k % 7 * 7 + k / 7].map(|k| Complex64::new(numbers[k], numbers[49 + k])))
            .map(|[a, b]| a + b.conj())
            .collect();
        let (mut diagonal, mut vectors) = (matrix.clone(), matrix.clone());
        diagonalise(&mut diagonal, &mut vectors, 7);
        for (k, value) in diagonal.iter().enumerate() {
            assert!(k % 8 == 0 || value.norm() < 1e-13, "{k}: {value}");
        }
        for (k, expected) in matrix.iter().enumerate() {
            let (row, column) = (k / 7, k % 7);
            let term =
                |e: usize| vectors[row * 7 + e] * diagonal[e * 8] * vectors[column * 7 + e].conj();
            let sum: Complex64 = (0..7).map(term).sum();
            assert!((sum - expected).norm() < 1e-13, "{k}: {sum} and {expected}");
        }
    }

    // Invert the covariance of single lenslets
    #[test]
    fn one_lenslet_is_inverted_exactly() {
        let (covariance, valid) = (covariance(1, 3), vec![Array2::from_elem((1, 1), true); 3]);
        let product =
            matrix_of(&circulant(&covariance, &valid)).dot(&with_noise(&covariance, &valid));
        for (k, value) in product.indexed_iter() {
            let expected = if k.0 == k.1 { 1.0 } else { 0.0 };
            assert!((value - expected).abs() < 1e-12, "{k:?}: {value}");
        }
    }

    // Check that the preconditioner is positive definite
    #[test]
    fn most_eigenvalues_are_one() {
        let (covariance, valid) = (covariance(9, 3), masks(9, 3));
        let preconditioner = circulant(&covariance, &valid);
        battery::check(&preconditioner, 1e-12);
        battery::check(&circulant::<f32>(&covariance, &valid), 1e-4);
        let (p, a) = (matrix_of(&preconditioner), with_noise(&covariance, &valid));
        let asymmetry = (&p - &p.t()).mapv(f64::abs).into_iter().fold(0.0, f64::max);
        assert!(asymmetry < 1e-13 * p[[0, 0]], "{asymmetry:e}");
        let of = |m: &Array2<f64>| faer::Mat::from_fn(m.nrows(), m.ncols(), |i, j| m[[i, j]]);
        let l = of(&a).llt(faer::Side::Lower).unwrap().L().to_owned();
        let product = l.transpose() * of(&p) * &l;
        let values = product.self_adjoint_eigenvalues(faer::Side::Lower).unwrap();
        let share = |low: f64, high: f64| {
            let within = values.iter().filter(|&&value| low < value && value < high).count();
            within as f64 / values.len() as f64
        };
        assert!(share(0.3, 1e3) == 1.0, "{values:?}");
        assert!(share(0.7, 1.5) > 0.5, "{values:?}");
    }

    // Count iterations with and without it
    #[test]
    fn iterations_are_fewer() {
        let (covariance, valid) = (covariance(11, 2), masks(11, 2));
        let a = Dense::new(with_noise(&covariance, &valid));
        let p = circulant(&covariance, &valid);
        let b: Vec<f64> = battery::random(a.rows(), 7);
        for solver in [Solver::ConjugateGradients, Solver::Minres] {
            let count = |p: Option<&dyn Operator<f64>>| {
                let (mut x, stop) = (vec![0.0; b.len()], Stop::default());
                solver.solve(&a, p, &b, &mut x, &stop, &mut |_, _| Ok(())).unwrap().iterations
            };
            let (with, without) = (count(Some(&p)), count(None));
            let ratio = with as f64 / without as f64;
            assert!(0.25 < ratio && ratio < 0.6 && without < 250, "{with} and {without}");
        }
    }

    // Treat groups as systems of their own
    #[test]
    fn groups_stand_for_themselves() {
        let (pair, single) = (covariance(6, 2), covariance(4, 1));
        let (of_pair, of_single) = (masks(6, 2), masks(4, 1));
        let first =
            Group { covariance: &pair, noise: &NOISE[..2], valid: &of_pair, stars: &[2, 0] };
        let second =
            Group { covariance: &single, noise: &NOISE[..1], valid: &of_single, stars: &[1] };
        let both = Circulant::<f64>::new(&[first, second]).unwrap();
        battery::check(&both, 1e-12);
        let [p, q, all] = [&circulant(&pair, &of_pair), &circulant(&single, &of_single), &both]
            .map(|operator: &Circulant<f64>| matrix_of(operator));
        let counts = of_pair.iter().map(|mask| 2 * mask.iter().filter(|&&used| used).count());
        let (count, single) = (counts.collect::<Vec<_>>(), q.nrows());
        assert_eq!(all.nrows(), count[0] + count[1] + single);
        // Compare all blocks with those of the groups
        // Star 0 is the second of its group, star 1 alone, star 2 the first.
        let place = |k: usize| match k.checked_sub(count[1]) {
            None => (0, count[0] + k),
            Some(k) if k < single => (1, k),
            Some(k) => (0, k - single),
        };
        for ((i, j), &value) in all.indexed_iter() {
            let expected = match (place(i), place(j)) {
                ((0, i), (0, j)) => p[[i, j]],
                ((1, i), (1, j)) => q[[i, j]],
                _ => 0.0,
            };
            assert!(
                (value - expected).abs() <= 1e-12 * p[[0, 0]],
                "({i}, {j}): {value:e}, {expected:e}"
            );
        }
    }

    // Refuse groups that make no sense
    #[test]
    fn nonsense_is_refused_and_no_noise_is_not() {
        let (covariance, valid) = (covariance(3, 2), masks(3, 2));
        let make = |noise: &[f64], valid: &[Array2<bool>], stars: &[usize]| {
            Circulant::<f64>::new(&[Group { covariance: &covariance, noise, valid, stars }])
        };
        assert!(make(&NOISE[..2], &valid, &[0, 1]).is_ok());
        for noise in [&[1e-14][..], &[-1e-14, 0.0], &[f64::NAN, 0.0], &[f64::INFINITY, 0.0]] {
            assert!(matches!(make(noise, &valid, &[0, 1]), Err(Error::Invalid(_))), "{noise:?}");
        }
        for stars in [&[0][..], &[0, 2], &[1, 1], &[0, 1, 2]] {
            assert!(
                matches!(make(&NOISE[..2], &valid, stars), Err(Error::Invalid(_))),
                "{stars:?}"
            );
        }
        let nothing = vec![Array2::from_elem((3, 3), false); 2];
        for valid in [&valid[..1], &nothing, &masks(4, 2)] {
            assert!(matches!(make(&NOISE[..2], valid, &[0, 1]), Err(Error::Invalid(_))));
        }
        assert!(Circulant::<f64>::new(&[]).is_err());
        let noiseless = matrix_of(&make(&[0.0; 2], &valid, &[0, 1]).unwrap());
        assert!(noiseless.iter().all(|value| value.is_finite()) && noiseless[[0, 0]] > 0.0);
    }
}
