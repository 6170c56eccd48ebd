// Tangled from book/src/many-right-hand-sides.md: edit there, or here and run cargo tangle stitch.
//! Conjugate gradients for many right-hand sides at once.

pub(crate) mod gpu;

// Imports of solving several systems
use super::{Solver, Stop, combine, dot, norm_of};
use crate::error::Error;
use crate::linear::operator::Operator;
use ndarray::{Array1, Array2, Axis};
use rayon::prelude::*;

// Solve right-hand sides together
const CG: Solver = Solver::ConjugateGradients;

// State of several right-hand sides
/// Right-hand sides that are solved together, as rows.
struct MultiRhs<'a> {
    a: &'a dyn Operator<f64>,
    preconditioner: &'a dyn Operator<f64>,
    stop: Stop,
    x: Array2<f64>,
    /// b − A x.
    left: Array2<f64>,
    norms: Vec<f64>,
    iterations: Vec<usize>,
    watch: &'a mut dyn FnMut() -> Result<(), Error>,
}

/// Solves A x = b for each row of `b`; the solutions, and their true residuals b − A x. `watch` is called in each step.
///
/// # Errors
/// As for [`Solver::solve`], for the first row that fails.
pub(crate) fn solve_together(
    a: &dyn Operator<f64>,
    preconditioner: &dyn Operator<f64>,
    b: &Array2<f64>,
    stop: Stop,
    watch: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<[Array2<f64>; 2], Error> {
    let norm = |row: ndarray::ArrayView1<f64>| norm_of(&row.to_vec(), &[]);
    let norms = b.outer_iter().map(norm).collect::<Result<Vec<f64>, _>>()?;
    let (x, left) = (Array2::zeros(b.dim()), b.clone());
    let iterations = vec![0; b.nrows()];
    let mut run = MultiRhs { a, preconditioner, stop, x, left, norms, iterations, watch };
    run.sweep_until_all_are_true(b)?;
    Ok([run.x, run.left])
}

// Sweep until all residuals are true
impl MultiRhs<'_> {
    fn sweep_until_all_are_true(&mut self, b: &Array2<f64>) -> Result<(), Error> {
        let mut before = vec![f64::INFINITY; b.nrows()];
        loop {
            let known = (&self.norms[..], &self.iterations[..]);
            let aims = aims(&self.left, known, &mut before, (&self.stop, f64::EPSILON))?;
            let open: Vec<usize> = (0..b.nrows()).filter(|&k| aims[k].is_some()).collect();
            if open.is_empty() {
                return Ok(());
            }
            self.sweep(open, &mut |k, step| aims[k].is_some_and(|aim| step.square.sqrt() <= aim))?;
            self.find_residuals(b);
        }
    }

    // True residuals of all rows
    fn find_residuals(&mut self, b: &Array2<f64>) {
        let mut products = Array2::zeros(b.dim());
        let mut scratch = vec![0.0; self.a.scratch(b.nrows())];
        let [x, y] =
            [&mut self.x, &mut products].map(|rows| rows.as_slice_mut().unwrap_or_default());
        self.a.apply(x, y, &mut scratch);
        self.left = b - &products;
    }
}

// Target of each unconverged row
/// The residual at which each row ends its next sweep, from its residual vector `left`, its norm and its iterations so far; none if the
/// tolerance is met. `before` holds the residuals of the preceding sweep and receives the present ones. ε is the precision of the numbers.
///
/// # Errors
/// `NotConverged` if a row has no iterations left, or its last sweep had no effect.
fn aims(
    left: &Array2<f64>,
    (norms, iterations): (&[f64], &[usize]),
    before: &mut Vec<f64>,
    (stop, epsilon): (&Stop, f64),
) -> Result<Vec<Option<f64>>, Error> {
    let residual = |(row, norm): (VectorRow, &f64)| {
        if *norm > 0.0 { row.dot(&row).sqrt() / norm } else { 0.0 }
    };
    let residuals: Vec<f64> = left.outer_iter().zip(norms).map(residual).collect();
    // Next target of one row
    let aim = |k: usize| {
        let (now, spent) = (residuals[k], iterations[k]);
        if now <= stop.tolerance {
            return Ok(None);
        }
        if spent >= stop.iterations || now.is_nan() || now > 0.9 * before[k] {
            return Err(CG.not_converged(spent, now, stop.tolerance));
        }
        let first = stop.tolerance * (1.0 - 5e5 * epsilon);
        let aim = if spent == 0 { first } else { stop.tolerance.min(0.1 * now) };
        Ok(Some(aim.max(epsilon * now) * norms[k]))
    };
    let aims = (0..left.nrows()).map(aim).collect();
    *before = residuals;
    aims
}

// Sweep over the unconverged rows
// Numbers of a step
/// The numbers of a step: ρ and α of Eq. [conjugate steps](https://lenslet.github.io/lenslet/solvers.html#eq-conjugate-steps), and the square of the residual after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) along: f64,
    pub(crate) length: f64,
    pub(crate) square: f64,
}

/// Whether a row is complete, from its number and its last step.
type StoppingRule<'r> = dyn FnMut(usize, Step) -> bool + 'r;

impl MultiRhs<'_> {
    /// Runs conjugate gradients for these rows from their residuals, until the rule ends each of them.
    fn sweep(&mut self, mut rows: Vec<usize>, is_done: &mut StoppingRule) -> Result<(), Error> {
        // Start from the residuals of all rows
        let (n, many) = (self.a.rows(), rows.len());
        let mut r: Vec<f64> = rows.iter().flat_map(|&k| self.left.row(k).to_vec()).collect();
        let [mut x, mut z, mut product] = [(); 3].map(|()| vec![0.0; many * n]);
        let longest = self.a.scratch(many).max(self.preconditioner.scratch(many));
        let mut scratch = vec![0.0; longest];
        self.preconditioner.apply(&r, &mut z, &mut scratch);
        let mut p = z.clone();
        let mut along = self.positive(dots(&r, &z, n), &rows, ("preconditioner", "r·Pr"))?;
        while !rows.is_empty() {
            (self.watch)()?;
            // Step all rows along their directions
            let all = rows.len() * n;
            self.a.apply(&p[..all], &mut product[..all], &mut scratch);
            let curvatures = dots(&p[..all], &product[..all], n);
            let curvatures = self.positive(curvatures, &rows, ("operator", "p·Ap"))?;
            let steps: Vec<f64> = along.iter().zip(&curvatures).map(|(a, c)| a / c).collect();
            add(&mut x, &p, n, &steps, 1.0);
            add(&mut r, &product, n, &steps, -1.0);
            let squares = dots(&r[..all], &r[..all], n);
            rows.iter().for_each(|&k| self.iterations[k] += 1);
            // Remove rows that have converged
            for s in (0..rows.len()).rev() {
                let (k, last) = (rows[s], rows.len() - 1);
                let step = Step { along: along[s], length: steps[s], square: squares[s] };
                if !is_done(k, step) && self.iterations[k] < self.stop.iterations {
                    continue;
                }
                let mut row = self.x.row_mut(k);
                row.iter_mut().zip(&x[s * n..(s + 1) * n]).for_each(|(sum, part)| *sum += part);
                for vectors in [&mut x, &mut r, &mut p] {
                    vectors.copy_within(last * n..(last + 1) * n, s * n);
                }
                rows.swap_remove(s);
                along.swap_remove(s);
            }
            // Compute the new directions
            let all = rows.len() * n;
            self.preconditioner.apply(&r[..all], &mut z[..all], &mut scratch);
            let next = dots(&r[..all], &z[..all], n);
            let next = self.positive(next, &rows, ("preconditioner", "r·Pr"))?;
            let turns: Vec<f64> =
                next.iter().zip(&along).map(|(next, along)| next / along).collect();
            p[..all]
                .par_chunks_exact_mut(n)
                .zip(z.par_chunks_exact(n))
                .zip(&turns)
                .for_each(|((p, z), &turn)| combine(p, turn, z, 1.0));
            along = next;
        }
        Ok(())
    }

    // Reject numbers that are not positive
    /// The numbers of these rows, if all are positive.
    fn positive(
        &self,
        values: Vec<f64>,
        rows: &[usize],
        named: (&str, &str),
    ) -> Result<Vec<f64>, Error> {
        let check = |(&value, &k)| CG.positive(value, named, self.iterations[k] + 1);
        values.iter().zip(rows).map(check).collect()
    }
}

// Bounds of the explained variance
/// Bounds of bᵗA⁻¹b from the steps of conjugate gradients, Eqs. [explained variance](https://lenslet.github.io/lenslet/many-right-hand-sides.html#eq-explained-variance) and [upper bound](https://lenslet.github.io/lenslet/many-right-hand-sides.html#eq-upper-bound).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ExplainedVariance {
    /// Lower bound of bᵗA⁻¹b.
    pub(crate) variance: f64,
    /// Upper bound of the remainder.
    pub(crate) rest: f64,
    pub(crate) iterations: usize,
    /// γ of the last step, its length and ρ.
    bound: [f64; 3],
}

impl ExplainedVariance {
    // Values of an explained variance
    /// The explained variance with these values, as a device computes them.
    pub(crate) fn new(variance: f64, rest: f64, iterations: usize) -> Self {
        Self { variance, rest, iterations, ..Self::default() }
    }

    /// The mean of the lower and the upper bound.
    pub(crate) fn middle(&self) -> f64 {
        self.variance + 0.5 * self.rest
    }

    // Add a step to the bound
    /// Adds a step, if no eigenvalue of PA is below `least`.
    pub(crate) fn add(&mut self, step: Step, least: f64) {
        let [last, length, along] = self.bound;
        let gap = match self.iterations {
            0 => 1.0 / least,
            _ => (last - length) / (least * (last - length) + step.along / along),
        };
        let gap = if gap > step.length { gap } else { 1.0 / least + step.length };
        self.variance += step.length * step.along;
        self.rest = (gap - step.length) * step.along;
        self.iterations += 1;
        self.bound = [gap, step.length, step.along];
    }
}

// Explained variances of several rows
/// bᵗA⁻¹b for each row of `b`, if no eigenvalue of PA is below `least`. The bound of the remainder is less than the tolerance times
/// the unexplained part of the `wholes`. `watch` is called in each step.
///
/// # Errors
/// As for [`Solver::solve`], for the first row that fails.
pub(crate) fn explain_together(
    [a, preconditioner]: [&dyn Operator<f64>; 2],
    (b, x): (Array2<f64>, Array2<f64>),
    (wholes, least): (&[f64], f64),
    stop: Stop,
    watch: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<(Vec<ExplainedVariance>, Array2<f64>), Error> {
    let (norms, iterations) = (vec![1.0; b.nrows()], vec![0; b.nrows()]);
    let left = Array2::zeros(b.dim());
    let mut run = MultiRhs { a, preconditioner, stop, x, left, norms, iterations, watch };
    run.find_residuals(&b);
    // Variance explained by the first guess
    let rows = b.outer_iter().zip(run.left.outer_iter()).zip(run.x.outer_iter());
    let begin = |((b, left), x): ((VectorRow, VectorRow), VectorRow)| {
        let variance = b.iter().zip(&left).zip(&x).map(|((b, left), x)| (b + left) * x).sum();
        ExplainedVariance { variance, ..ExplainedVariance::default() }
    };
    let mut explained: Vec<ExplainedVariance> = rows.map(begin).collect();
    let open = run.left.outer_iter().enumerate();
    let open = open.filter(|(_, left)| left.iter().any(|left| *left != 0.0));
    let open = open.map(|(k, _)| k).collect();
    run.sweep(open, &mut |k, step| {
        explained[k].add(step, least);
        explained[k].rest <= stop.tolerance * (wholes[k] - explained[k].variance)
    })?;
    for (explained, whole) in explained.iter().zip(wholes) {
        explained.check(*whole, stop.tolerance)?;
    }
    Ok((explained, run.x))
}

type VectorRow<'a> = ndarray::ArrayView1<'a, f64>;

// Reject an unexplained remainder
impl ExplainedVariance {
    /// Rejects a remainder that exceeds the tolerance times the unexplained part of the whole.
    pub(crate) fn check(&self, whole: f64, tolerance: f64) -> Result<(), Error> {
        let share = self.rest / (whole - self.variance);
        if self.iterations == 0 || (0.0..=tolerance).contains(&share) {
            return Ok(());
        }
        Err(CG.not_converged(self.iterations, share, tolerance))
    }
}

// Least eigenvalue from steps
/// The steps of conjugate gradients as a tridiagonal matrix, whose smallest eigenvalue converges to that of PA, Eq. [steps as a matrix](https://lenslet.github.io/lenslet/many-right-hand-sides.html#eq-steps-as-a-matrix).
#[derive(Debug, Clone, Default)]
pub(crate) struct Ritz {
    steps: Vec<Step>,
    least: Vec<f64>,
}

impl Ritz {
    /// Adds a step; returns whether the smallest eigenvalue has converged.
    pub(crate) fn add(&mut self, step: Step) -> bool {
        self.steps.push(step);
        self.least.push(self.find());
        let (now, before) = (self.least(), self.least.iter().rev().nth(SETTLED));
        before.is_some_and(|before| now > 0.99 * before)
    }

    // Least eigenvalue so far
    fn least(&self) -> f64 {
        self.least.last().copied().unwrap_or(0.0)
    }

    /// A number below all eigenvalues of PA, after the smallest one has converged.
    pub(crate) fn below(&self) -> f64 {
        BELOW * self.least()
    }

    // Bisect for the least eigenvalue
    /// By bisection: the pivots of T − λ are all positive if λ is below all eigenvalues.
    fn find(&self) -> f64 {
        let is_below = |value: f64| {
            let (mut pivot, mut last) = (f64::INFINITY, None::<&Step>);
            self.steps.iter().all(|step| {
                let turn = last.map_or(0.0, |last| step.along / last.along / last.length);
                let off = last.map_or(0.0, |last| turn / last.length);
                pivot = 1.0 / step.length + turn - value - off / pivot;
                last = Some(step);
                pivot > 0.0
            })
        };
        let (mut low, mut high) = (0.0, 1.0 / self.steps[0].length);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            if is_below(middle) { low = middle } else { high = middle }
        }
        low
    }
}

// Convergence of the least eigenvalue
/// Iterations during which the smallest eigenvalue must not change.
const SETTLED: usize = 10;

/// Ratio of the number below all eigenvalues to the smallest eigenvalue that was found.
const BELOW: f64 = 0.8;

// A number below all eigenvalues
/// Pseudo-random numbers between −1 and 1.
pub(crate) fn patternless(count: usize) -> Vec<f64> {
    let mix = |k: usize| {
        let mixed = (k as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11
    };
    (0..count).map(|k| mix(k) as f64 / (1u64 << 52) as f64 - 1.0).collect()
}

/// A number below the eigenvalues of PA.
///
/// # Errors
/// As for [`Solver::solve`].
pub(crate) fn below_eigenvalues(
    [a, preconditioner]: [&dyn Operator<f64>; 2],
    stop: Stop,
    watch: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<f64, Error> {
    let mut ritz = Ritz::default();
    let left = Array1::from(patternless(a.rows())).insert_axis(Axis(0));
    let (x, norms, iterations) = (Array2::zeros((1, a.rows())), vec![1.0], vec![0]);
    let mut run = MultiRhs { a, preconditioner, stop, x, left, norms, iterations, watch };
    run.sweep(vec![0], &mut |_, step| ritz.add(step))?;
    Ok(ritz.below())
}

// Products and sums side by side
/// The inner products of vectors of `n` numbers.
fn dots(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
    a.par_chunks_exact(n).zip(b.par_chunks_exact(n)).map(|(a, b)| dot(a, b)).collect()
}

/// y ← y ± s x, for as many vectors of `n` numbers as there are numbers s.
fn add(y: &mut [f64], x: &[f64], n: usize, steps: &[f64], sign: f64) {
    let pairs = y.par_chunks_exact_mut(n).zip(x.par_chunks_exact(n));
    pairs.zip(steps).for_each(|((y, x), step)| combine(y, 1.0, x, sign * step));
}

// Tests of solving together
#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::matrix::Dense;
    use crate::linear::operator::{Diagonal, battery::random};

    #[test]
    fn rows_are_solved_together_as_alone() {
        let n = 40;
        let half = Array2::from_shape_vec((n + 5, n), random(n * (n + 5), 1)).unwrap();
        let a = Dense::new(half.t().dot(&half) + Array2::<f64>::eye(n));
        let p = Diagonal::new((0..n).map(|k| 1.0 / (10.0 + (k % 3) as f64)).collect());
        let mut b = Array2::from_shape_vec((5, n), random(5 * n, 2)).unwrap();
        b.row_mut(3).fill(0.0);
        let stop = Stop { tolerance: 1e-10, iterations: 200 };
        let alone = |row: ndarray::ArrayView1<f64>| {
            let (row, mut x) = (row.to_vec(), vec![0.0; n]);
            let solved = CG.solve(&a, Some(&p), &row, &mut x, &stop, &mut |_, _| Ok(())).unwrap();
            (row, x, solved.iterations)
        };
        let alone: Vec<_> = b.outer_iter().map(alone).collect();
        // Side by side no row takes more steps than alone.
        let most = alone.iter().map(|(_, _, iterations)| *iterations).max().unwrap();
        let limit = Stop { iterations: most + 1, ..stop };
        let [x, left] = solve_together(&a, &p, &b, limit, &mut || Ok(())).unwrap();
        for (k, (row, alone, _)) in alone.iter().enumerate() {
            let gap = &x.row(k) - &ndarray::ArrayView1::from(&alone[..]);
            assert!(gap.iter().all(|gap| gap.abs() < 1e-9), "row {k}");
            let size = left.row(k).dot(&left.row(k)).sqrt();
            assert!(size <= 1e-10 * dot(row, row).sqrt(), "row {k}: {size:e}");
        }
        // Ends that rows solved together may have
        let few = Stop { tolerance: 1e-10, iterations: 2 };
        let error = solve_together(&a, &p, &b, few, &mut || Ok(())).unwrap_err();
        assert!(error.to_string().contains("after 2 iterations"), "{error}");
        let bad = Diagonal::new((0..n).map(|k| k as f64 - 20.5).collect());
        let error = solve_together(&bad, &p, &b, stop, &mut || Ok(())).unwrap_err();
        assert!(error.to_string().contains("operator is not positive definite"), "{error}");
        let end = solve_together(&a, &p, &b, stop, &mut || Err(Error::Cancelled)).unwrap_err();
        assert!(matches!(end, Error::Cancelled));
    }
}
