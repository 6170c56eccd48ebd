// Tangled from book/src/solvers.md: edit there, or here and run cargo tangle stitch.
//! Iterative solution of symmetric systems: conjugate gradients and MINRES, preconditioned.

pub(crate) mod gpu;
#[cfg_attr(not(feature = "factorise"), allow(dead_code))]
pub(crate) mod multi_rhs;

use crate::error::{Error, Invalid, accept, positive};
use crate::linear::operator::Operator;
use crate::numerics::real::Real;

// When to stop and what came out
/// When an iteration stops.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stop {
    /// Largest relative residual ‖b − A x‖ / ‖b‖ that is accepted; finite and greater than 0.
    pub tolerance: f64,
    /// Largest number of iterations, each of which takes one product with the operator.
    pub iterations: usize,
}

impl Default for Stop {
    /// A residual of 1e-6 within 1000 iterations.
    fn default() -> Self {
        Self { tolerance: 1e-6, iterations: 1000 }
    }
}
/// The result of an iteration.
#[derive(Debug, Clone, PartialEq)]
pub struct Solved {
    /// Iterations that were made.
    pub iterations: usize,
    /// True relative residual ‖b − A x‖ / ‖b‖ of the result, computed from a product.
    pub residual: f64,
    /// Relative residual at the start and after each iteration: `iterations + 1` numbers.
    pub history: Vec<f64>,
}
/// A solution that may be incomplete.
#[derive(Debug)]
pub struct Attempt {
    /// The iterations, with the true residual of the last iterate.
    pub solved: Solved,
    /// The reason if the tolerance was not reached: `NotConverged`, or `Failed` after a breakdown of the method.
    pub shortfall: Option<Error>,
}

impl Attempt {
    /// The solution if it met its tolerance, and otherwise the reason as an error.
    ///
    /// # Errors
    /// The shortfall.
    pub fn whole(self) -> Result<Solved, Error> {
        self.shortfall.map_or(Ok(self.solved), Err)
    }
}

// Solve by conjugate gradients or MINRES
/// A method for symmetric systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Solver {
    /// Conjugate gradients, for positive definite operators.
    #[default]
    ConjugateGradients,
    /// MINRES of Paige and Saunders, for symmetric operators, definite or not.
    Minres,
}

// Methods of a solver
impl Solver {
    // Solve with a watch on the residual
    /// Solves A x = b. `x` holds the start on entry and the solution on return; an iteration makes one product with
    /// `a` and one with the preconditioner. `watch` is called with the number and the relative residual of each iteration; an error
    /// that it returns ends the run.
    ///
    /// # Errors
    /// `Invalid` for shapes that do not fit and for an invalid tolerance, `b` or `x`. `NotConverged`, with the true residual, if the
    /// iterations or the precision are exhausted. `Failed` if the operator or the preconditioner is found not to be
    /// positive definite (MINRES requires this of the latter only), or singular. Errors of `watch`.
    pub fn solve<T: Real>(
        self,
        a: &dyn Operator<T>,
        preconditioner: Option<&dyn Operator<T>>,
        b: &[T],
        x: &mut [T],
        stop: &Stop,
        watch: &mut dyn FnMut(usize, f64) -> Result<(), Error>,
    ) -> Result<Solved, Error> {
        self.attempt(a, preconditioner, b, x, stop, watch)?.whole()
    }

    // Attempt a solution
    /// Solves A x = b as [`solve`](Self::solve) does, but leaves the best solution in `x` if it does not reach its
    /// tolerance.
    ///
    /// # Errors
    /// `Invalid` for shapes that do not fit and for an invalid tolerance, `b` or `x`. Errors of `watch`.
    pub fn attempt<T: Real>(
        self,
        a: &dyn Operator<T>,
        preconditioner: Option<&dyn Operator<T>>,
        b: &[T],
        x: &mut [T],
        stop: &Stop,
        watch: &mut dyn FnMut(usize, f64) -> Result<(), Error>,
    ) -> Result<Attempt, Error> {
        let norm = check(a, preconditioner, b, x, stop)?;
        // Return zero or start a run
        if norm == 0.0 {
            x.fill(T::zero());
            let solved = Solved { iterations: 0, residual: 0.0, history: vec![0.0] };
            return Ok(Attempt { solved, shortfall: None });
        }
        let longest = preconditioner.map_or(0, |p| p.scratch(1)).max(a.scratch(1));
        let (stop, scratch, history) = (*stop, vec![T::zero(); longest], Vec::new());
        let mut run =
            SolverState { solver: self, a, preconditioner, norm, stop, scratch, history, watch };
        let shortfall = match run.sweep_until_it_is_true(b, x) {
            Ok(()) => None,
            Err(short @ (Error::NotConverged { .. } | Error::Failed { .. })) => {
                run.settle(b, x);
                Some(short)
            }
            Err(error) => return Err(error),
        };
        let (iterations, residual) = (run.iterations(), run.last_residual());
        Ok(Attempt { solved: Solved { iterations, residual, history: run.history }, shortfall })
    }

    // Errors of either method
    /// A breakdown of the method, with its reason.
    pub(crate) fn broken(self, reason: impl Into<String>) -> Error {
        Error::Failed { what: self.name().into(), reason: reason.into() }
    }

    /// `value`, if it is finite.
    pub(crate) fn finite(self, value: f64, name: &str, iteration: usize) -> Result<f64, Error> {
        let reason = || format!("{name} = {value} in iteration {iteration}");
        if value.is_finite() { Ok(value) } else { Err(self.broken(reason())) }
    }

    /// `value`, if it is positive, as it is for a symmetric positive definite `operator`.
    pub(crate) fn positive(
        self,
        value: f64,
        (operator, name): (&str, &str),
        iteration: usize,
    ) -> Result<f64, Error> {
        if self.finite(value, name, iteration)? > 0.0 {
            return Ok(value);
        }
        let about = format!("{name} = {value:e} in iteration {iteration}");
        Err(self.broken(format!("the {operator} is not positive definite: {about}")))
    }

    // Errors of a failed solution
    /// The right-hand side is beyond the range of a singular operator.
    pub(crate) fn singular(self) -> Error {
        self.broken("the operator is singular, and the right-hand side beyond its range")
    }

    /// The tolerance was not met.
    pub(crate) fn not_converged(self, iterations: usize, residual: f64, tolerance: f64) -> Error {
        let what = format!("the solution by {}", self.name());
        Error::NotConverged { what, iterations, residual, tolerance }
    }

    fn name(self) -> &'static str {
        match self {
            Self::ConjugateGradients => "conjugate gradients",
            Self::Minres => "MINRES",
        }
    }
}

// Solve by conjugate gradients
/// Solves A x = b for a symmetric positive definite operator, see [`Solver::solve`].
///
/// # Errors
/// As in [`Solver::solve`].
///
/// ```
/// use lenslet::linear::{Dense, Stop, conjugate_gradients};
/// let a = Dense::new(ndarray::arr2(&[[4.0, 1.0], [1.0, 3.0]]));
/// let mut x = [0.0f64; 2];
/// let solved = conjugate_gradients(&a, None, &[1.0, 2.0], &mut x, &Stop::default())?;
/// assert_eq!(solved.iterations, 2);
/// assert!((x[0] - 1.0 / 11.0).abs() < 1e-12 && (x[1] - 7.0 / 11.0).abs() < 1e-12);
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn conjugate_gradients<T: Real>(
    a: &dyn Operator<T>,
    preconditioner: Option<&dyn Operator<T>>,
    b: &[T],
    x: &mut [T],
    stop: &Stop,
) -> Result<Solved, Error> {
    Solver::ConjugateGradients.solve(a, preconditioner, b, x, stop, &mut |_, _| Ok(()))
}

// Solve by minimum residuals
/// Solves A x = b for a symmetric operator by MINRES, see [`Solver::solve`].
///
/// # Errors
/// As in [`Solver::solve`].
pub fn minres<T: Real>(
    a: &dyn Operator<T>,
    preconditioner: Option<&dyn Operator<T>>,
    b: &[T],
    x: &mut [T],
    stop: &Stop,
) -> Result<Solved, Error> {
    Solver::Minres.solve(a, preconditioner, b, x, stop, &mut |_, _| Ok(()))
}

// Check the system and its right-hand side
/// The norm of `b`, if the system is valid.
fn check<T: Real>(
    a: &dyn Operator<T>,
    preconditioner: Option<&dyn Operator<T>>,
    b: &[T],
    x: &[T],
    stop: &Stop,
) -> Result<f64, Invalid> {
    positive("tolerance", stop.tolerance)?;
    let n = a.rows();
    accept(a.columns() == n, "columns of the operator", a.columns(), &format!("{n}, as rows"))?;
    let expected = format!("{n}, the size of the operator");
    for (rows, name) in [(b.len(), "length of the right-hand side"), (x.len(), "length of x")] {
        accept(rows == n, name, rows, &expected)?;
    }
    if let Some(p) = preconditioner {
        accept(p.rows() == n, "rows of the preconditioner", p.rows(), &expected)?;
        accept(p.columns() == n, "columns of the preconditioner", p.columns(), &expected)?;
    }
    norm_of(b, x)
}
/// The norm of `b`, if it and the start `x` are valid.
pub(crate) fn norm_of<T: Real>(b: &[T], x: &[T]) -> Result<f64, Invalid> {
    // Measure the right-hand side and the start
    if let Some(k) = x.iter().position(|x| !x.is_finite()) {
        return Err(Invalid::new(
            format!("x[{k}]"),
            x[k].in_double(),
            "a finite number to start from",
        ));
    }
    if let Some(k) = b.iter().position(|b| !b.is_finite()) {
        let name = format!("right-hand side[{k}]");
        return Err(Invalid::new(name, b[k].in_double(), "a finite number"));
    }
    let norm = dot(b, b).sqrt();
    let normal = b.iter().all(|b| b.is_zero()) || (1e-150..1e150).contains(&norm);
    accept(normal, "norm of the right-hand side", norm, "0, or a number between 1e-150 and 1e150")
}

// State of a solution in progress
/// A solution in progress.
struct SolverState<'a, T: Real> {
    solver: Solver,
    a: &'a dyn Operator<T>,
    preconditioner: Option<&'a dyn Operator<T>>,
    /// ‖b‖.
    norm: f64,
    stop: Stop,
    scratch: Vec<T>,
    history: Vec<f64>,
    watch: &'a mut dyn FnMut(usize, f64) -> Result<(), Error>,
}

// Methods of a solution in progress
impl<T: Real> SolverState<'_, T> {
    // Sweep until the residual is true
    fn sweep_until_it_is_true(&mut self, b: &[T], x: &mut [T]) -> Result<(), Error> {
        let mut r = vec![T::zero(); b.len()];
        let mut before = f64::INFINITY;
        loop {
            let residual = self.true_residual(b, x, &mut r)?;
            let (iterations, tolerance) = (self.iterations(), self.stop.tolerance);
            if residual <= tolerance {
                return Ok(());
            }
            if self.is_spent() || residual > 0.9 * before {
                return Err(self.solver.not_converged(iterations, residual, tolerance));
            }
            before = residual;
            match self.solver {
                Solver::ConjugateGradients => descend(self, x, &mut r)?,
                Solver::Minres => minimise(self, x, &mut r)?,
            }
        }
    }

    // Residual at the start of a sweep
    /// Computes r = b − A x, replaces the last recorded residual by its relative norm, and returns it.
    fn true_residual(&mut self, b: &[T], x: &[T], r: &mut [T]) -> Result<f64, Error> {
        r.fill(T::zero());
        if x.iter().any(|x| !x.is_zero()) {
            self.multiply(x, r);
        }
        combine(r, -1.0, b, 1.0);
        let residual = self.finite(dot(r, r).sqrt() / self.norm, "‖b − Ax‖/‖b‖")?;
        self.history.pop();
        self.history.push(residual);
        Ok(residual)
    }

    // Make the last iterate finite
    /// Makes the last iterate finite, and records its residual as the last one.
    fn settle(&mut self, b: &[T], x: &mut [T]) {
        let mut r = vec![T::zero(); b.len()];
        if self.true_residual(b, x, &mut r).is_err() {
            x.fill(T::zero());
            self.history.pop();
            self.history.push(1.0);
        }
    }

    fn last_residual(&self) -> f64 {
        self.history.last().copied().unwrap_or(1.0)
    }

    // Products of a solution in progress
    fn multiply(&mut self, x: &[T], y: &mut [T]) {
        let scratch = &mut self.scratch[..self.a.scratch(1)];
        self.a.apply(x, y, scratch);
    }

    /// y = P x, or a copy of x where there is no preconditioner.
    fn precondition(&mut self, x: &[T], y: &mut [T]) {
        match self.preconditioner {
            Some(p) => p.apply(x, y, &mut self.scratch[..p.scratch(1)]),
            None => y.copy_from_slice(x),
        }
    }

    // Record of residuals
    /// The relative residual at which a sweep from the residual `r` ends.
    fn target(&self, r: &[T]) -> f64 {
        let start = dot(r, r).sqrt() / self.norm;
        let tolerance = self.stop.tolerance;
        let aim = if self.iterations() == 0 { tolerance } else { tolerance.min(0.1 * start) };
        aim.max(T::epsilon().in_double() * start)
    }

    /// Records the relative residual after an iteration, and returns it.
    fn record(&mut self, r: &[T]) -> Result<f64, Error> {
        let residual = self.finite(dot(r, r).sqrt() / self.norm, "‖r‖/‖b‖")?;
        self.history.push(residual);
        let iterations = self.iterations();
        (self.watch)(iterations, residual)?;
        Ok(residual)
    }

    fn iterations(&self) -> usize {
        self.history.len().saturating_sub(1)
    }

    fn is_spent(&self) -> bool {
        self.iterations() >= self.stop.iterations
    }

    // Faults of a solution in progress
    fn finite(&self, value: f64, name: &str) -> Result<f64, Error> {
        self.solver.finite(value, name, self.iterations() + 1)
    }

    fn positive(&self, value: f64, operator: &str, name: &str) -> Result<f64, Error> {
        self.solver.positive(value, (operator, name), self.iterations() + 1)
    }
}

// Vectors of either precision
/// Inner product, summed in double precision.
fn dot<T: Real>(x: &[T], y: &[T]) -> f64 {
    let term = |(x, y): (&T, &T)| x.in_double() * y.in_double();
    let part = |(x, y): (&[T], &[T])| x.iter().zip(y).map(term).sum::<f64>();
    x.chunks(256).zip(y.chunks(256)).map(part).sum()
}

/// y ← s y + t x.
fn combine<T: Real>(y: &mut [T], s: f64, x: &[T], t: f64) {
    let (s, t) = (T::of(s), T::of(t));
    for (y, x) in y.iter_mut().zip(x) {
        *y = s * *y + t * *x;
    }
}

/// y ← s y.
fn scale<T: Real>(y: &mut [T], s: f64) {
    let s = T::of(s);
    y.iter_mut().for_each(|y| *y *= s);
}

// Conjugate gradients from a residual
/// Runs conjugate gradients from `x` with its residual `r`; Eqs. [conjugate direction](https://lenslet.github.io/lenslet/solvers.html#eq-conjugate-direction) and [conjugate steps](https://lenslet.github.io/lenslet/solvers.html#eq-conjugate-steps).
fn descend<T: Real>(run: &mut SolverState<T>, x: &mut [T], r: &mut [T]) -> Result<(), Error> {
    let [mut z, mut product] = [(); 2].map(|()| vec![T::zero(); r.len()]);
    let target = run.target(r);
    run.precondition(r, &mut z);
    let mut p = z.clone();
    let mut along = run.positive(dot(r, &z), "preconditioner", "r·Pr")?;
    loop {
        run.multiply(&p, &mut product);
        let curvature = run.positive(dot(&p, &product), "operator", "p·Ap")?;
        let step = along / curvature;
        combine(x, 1.0, &p, step);
        combine(r, 1.0, &product, -step);
        if run.record(r)? <= target || run.is_spent() {
            return Ok(());
        }
        run.precondition(r, &mut z);
        let next = run.positive(dot(r, &z), "preconditioner", "r·Pr")?;
        combine(&mut p, next / along, &z, 1.0);
        along = next;
    }
}

// Minimum residuals from a residual
/// A rotation in the plane.
#[derive(Clone, Copy)]
struct Rotation {
    cosine: f64,
    sine: f64,
}

/// Runs MINRES from `x` with its residual `r`; Eqs. [lanczos](https://lenslet.github.io/lenslet/solvers.html#eq-lanczos), [minres rotations](https://lenslet.github.io/lenslet/solvers.html#eq-minres-rotations), [minres residual](https://lenslet.github.io/lenslet/solvers.html#eq-minres-residual).
fn minimise<T: Real>(run: &mut SolverState<T>, x: &mut [T], r: &mut [T]) -> Result<(), Error> {
    let target = run.target(r);
    // Start the recurrence of Lanczos
    let [mut v_last, mut v, mut z, mut d_last, mut d, mut v_next, mut z_next] =
        [(); 7].map(|()| vec![T::zero(); r.len()]);
    run.precondition(r, &mut z);
    let length = run.positive(dot(r, &z), "preconditioner", "r·Pr")?.sqrt();
    combine(&mut v, 0.0, r, 1.0 / length);
    scale(&mut z, 1.0 / length);
    let (mut beta, mut phi, mut size) = (0.0, length, 0.0f64);
    let mut last = Rotation { cosine: 1.0, sine: 0.0 };
    let mut before_last = last;
    loop {
        // Make the next Lanczos vector
        run.multiply(&z, &mut v_next);
        let alpha = run.finite(dot(&z, &v_next), "z·Az")?;
        combine(&mut v_next, 1.0, &v, -alpha);
        combine(&mut v_next, 1.0, &v_last, -beta);
        run.precondition(&v_next, &mut z_next);
        let square = dot(&v_next, &z_next);
        let ended = square == 0.0;
        let next =
            if ended { 0.0 } else { run.positive(square, "preconditioner", "v·Pv")?.sqrt() };
        // Rotate the new column of Lanczos
        let rotated = before_last.cosine * beta;
        let epsilon = before_last.sine * beta;
        let delta = last.cosine * rotated + last.sine * alpha;
        let bar = last.cosine * alpha - last.sine * rotated;
        let gamma = bar.hypot(next);
        size = size.max(alpha.abs()).max(next);
        if gamma <= T::epsilon().in_double() * size {
            return Err(run.solver.singular());
        }
        before_last = last;
        last = Rotation { cosine: bar / gamma, sine: next / gamma };
        // Step along the new direction
        combine(&mut d_last, -epsilon, &d, -delta);
        combine(&mut d_last, 1.0 / gamma, &z, 1.0 / gamma);
        std::mem::swap(&mut d_last, &mut d);
        combine(x, 1.0, &d, last.cosine * phi);
        phi *= -last.sine;
        // Update the residual and stop
        if !ended {
            scale(&mut v_next, 1.0 / next);
            scale(&mut z_next, 1.0 / next);
        }
        combine(r, last.sine * last.sine, &v_next, last.cosine * phi);
        if run.record(r)? <= target || run.is_spent() || ended {
            return Ok(());
        }
        // Move on to the next column
        std::mem::swap(&mut v_last, &mut v);
        std::mem::swap(&mut v, &mut v_next);
        std::mem::swap(&mut z, &mut z_next);
        beta = next;
    }
}

// Tests of the iterative solvers
#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::matrix::Dense;
    use crate::linear::operator::battery;
    use ndarray::{Array1, Array2, ArrayView1, Axis};

    // A dense matrix for the tests of solvers
    fn random(length: usize, seed: u64) -> Vec<f64> {
        battery::random(length, seed)
    }

    /// A symmetric matrix with these eigenvalues: three Householder reflections of a diagonal one.
    fn with_eigenvalues(values: &[f64]) -> Array2<f64> {
        let mut a = Array2::from_diag(&Array1::from_vec(values.to_vec()));
        for seed in 1..4 {
            let u = Array1::from_vec(random(values.len(), seed));
            let u = &u / u.dot(&u).sqrt();
            let column = u.view().insert_axis(Axis(1));
            let reflection = Array2::eye(values.len()) - 2.0 * column.dot(&column.t());
            a = reflection.dot(&a).dot(&reflection);
        }
        (&a + &a.t()) / 2.0
    }

    fn residual(a: &Array2<f64>, x: &[f64], b: &[f64]) -> f64 {
        let (x, b) = (ArrayView1::from(x), ArrayView1::from(b));
        let r = &b - &a.dot(&x);
        (r.dot(&r) / b.dot(&b)).sqrt()
    }

    const SOLVERS: [Solver; 2] = [Solver::ConjugateGradients, Solver::Minres];

    // Repeat the two steps by hand
    #[test]
    fn conjugate_gradients_repeat_the_worked_case() {
        let a = Dense::new(ndarray::arr2(&[[4.0, 1.0], [1.0, 3.0]]));
        let (b, stop) = ([1.0, 2.0], Stop { tolerance: 1e-12, iterations: 9 });
        let mut x = [0.0f64; 2];
        let solved = conjugate_gradients(&a, None, &b, &mut x, &stop).unwrap();
        assert_eq!((solved.iterations, solved.history[1]), (2, f64::sqrt(0.3125 / 5.0)));
        assert!((x[0] - 1.0 / 11.0).abs() < 1e-15 && (x[1] - 7.0 / 11.0).abs() < 1e-15);
        assert!((x[0] - 0.0909).abs() < 1e-4 && (x[1] - 0.6364).abs() < 1e-4);
        // The new direction and its curvature.
        let p: [f64; 2] = [-0.5 + 0.0625 * b[0], 0.25 + 0.0625 * b[1]];
        let product = [4.0 * p[0] + p[1], p[0] + 3.0 * p[1]];
        assert_eq!((p, product), ([-0.4375, 0.375], [-1.375, 0.6875]));
        let curvature = p[0] * product[0] + p[1] * product[1];
        assert_eq!((curvature, 6.0 * p[0], 7.0 * p[1]), (0.859_375, -2.625, 2.625));
        assert!((0.3125 / curvature - 0.3636).abs() < 1e-4);
        let root = f64::sqrt(5.0);
        assert!(((7.0 + root) / (7.0 - root) - 1.94).abs() < 0.005);
    }

    // Compare both solvers with Cholesky
    #[test]
    fn both_agree_with_cholesky() {
        use faer::linalg::solvers::Solve;
        let values: Vec<f64> = (0..60).map(|k| 1.2f64.powi(k % 40)).collect();
        let weights: Vec<f64> = (0..60).map(|k| 10f64.powf((k % 7) as f64 / 6.0)).collect();
        let bare = with_eigenvalues(&values);
        let a = Array2::from_shape_fn((60, 60), |(i, j)| weights[i] * bare[[i, j]] * weights[j]);
        let p =
            Array2::from_shape_fn((60, 60), |(i, j)| if i == j { 1.0 / a[[i, i]] } else { 0.0 });
        let b = random(60, 9);
        let matrix = faer::Mat::from_fn(60, 60, |i, j| a[[i, j]]);
        let factor = matrix.llt(faer::Side::Lower).unwrap();
        let exact = factor.solve(faer::Mat::from_fn(60, 1, |i, _| b[i]));
        let size = exact.norm_l2();
        let (a_operator, p) = (Dense::new(a.clone()), Dense::new(p));
        for solver in SOLVERS {
            let solve = |p: Option<&dyn Operator<f64>>| {
                // Solve to the last digits and compare
                let (mut x, mut progress) = (vec![0.0; 60], Vec::new());
                let stop = Stop { tolerance: 1e-12, iterations: 1000 };
                let watch = &mut |k: usize, residual: f64| {
                    progress.push((k, residual));
                    Ok(())
                };
                let solved = solver.solve(&a_operator, p, &b, &mut x, &stop, watch).unwrap();
                let error: f64 = (0..60).map(|k| (x[k] - exact[(k, 0)]).powi(2)).sum();
                assert!(error.sqrt() < 1e-8 * size, "{solver:?}: {:e}", error.sqrt() / size);
                assert!(solved.residual <= 1e-12);
                assert!((residual(&a, &x, &b) / solved.residual - 1.0).abs() < 0.5);
                assert_eq!(solved.history.len(), solved.iterations + 1);
                assert_eq!(
                    (solved.history[0], solved.history[solved.iterations]),
                    (1.0, solved.residual)
                );
                assert_eq!(
                    (progress.len(), progress[4].0, progress[4].1),
                    (solved.iterations, 5, solved.history[5])
                );
                solved.iterations
            };
            let (plain, preconditioned) = (solve(None), solve(Some(&p)));
            assert!(preconditioned < plain, "{solver:?}: {preconditioned} and {plain}");
        }
    }

    // Compare recursive and true residuals
    #[test]
    fn recurrences_follow_the_true_residual() {
        let a = with_eigenvalues(&(1..=40).map(|k| f64::from(k * k)).collect::<Vec<_>>());
        let scales = Array1::from_iter((0..40).map(|k| 1.0 / f64::from(1 + 3 * (k % 5))));
        let (a_operator, p) = (Dense::new(a.clone()), Dense::new(Array2::from_diag(&scales)));
        let b = random(40, 6);
        for (solver, iterations) in SOLVERS.into_iter().flat_map(|s| [1, 2, 3, 9].map(|k| (s, k))) {
            let (mut x, mut reported) = (vec![0.0; 40], 0.0);
            let stop = Stop { tolerance: 1e-12, iterations };
            let watch = &mut |_: usize, residual: f64| {
                reported = residual;
                Ok(())
            };
            let error = solver.solve(&a_operator, Some(&p), &b, &mut x, &stop, watch).unwrap_err();
            let truth = residual(&a, &x, &b);
            assert!(
                (reported / truth - 1.0).abs() < 1e-10,
                "{solver:?}, {iterations}: {reported}, {truth}"
            );
            let Error::NotConverged { residual, .. } = error else { panic!("{error}") };
            assert!((residual / truth - 1.0).abs() < 1e-10);
        }
    }

    // Count the steps of both solvers
    #[test]
    fn steps_are_as_many_as_eigenvalues() {
        let values: Vec<f64> = (0..40).map(|k| [1.0, 3.0, 4.0, 9.0, 20.0][k % 5]).collect();
        let inverse: Vec<f64> = values.iter().map(|value| 1.0 / value).collect();
        let (a, b) = (Dense::new(with_eigenvalues(&values)), random(40, 5));
        let (inverse, stop) = (Dense::new(with_eigenvalues(&inverse)), Stop::default());
        for solver in SOLVERS {
            let count = |p: Option<&dyn Operator<f64>>| {
                let solved =
                    solver.solve(&a, p, &b, &mut [0.0; 40], &stop, &mut |_, _| Ok(())).unwrap();
                if solver == Solver::Minres && p.is_none() {
                    assert!(solved.history.is_sorted_by(|a, b| a > b), "{:?}", solved.history);
                }
                solved.iterations
            };
            assert_eq!((count(None), count(Some(&inverse))), (5, 1), "{solver:?}");
        }
    }

    // Start warm and start at the solution
    #[test]
    fn a_warm_start_saves_iterations() {
        let values: Vec<f64> = (1..=50).map(|k| (k * k) as f64).collect();
        let (a, stop) = (with_eigenvalues(&values), Stop { tolerance: 1e-9, iterations: 500 });
        let (a_operator, truth) = (Dense::new(a.clone()), random(50, 3));
        let b = a.dot(&ArrayView1::from(&truth)).to_vec();
        for solver in SOLVERS {
            let count = |mut x: Vec<f64>| {
                let solved = solver.solve(&a_operator, None, &b, &mut x, &stop, &mut |_, _| Ok(()));
                assert!(residual(&a, &x, &b) < 1.01e-9);
                solved.unwrap().iterations
            };
            let near = truth.iter().zip(random(50, 4)).map(|(x, e)| x + 1e-5 * e).collect();
            let (cold, warm) = (count(vec![0.0; 50]), count(near));
            assert!(0 < warm && warm < cold - 5, "{solver:?}: {warm} and {cold}");
            assert_eq!(count(truth.clone()), 0);
        }
    }

    // Solve indefinite systems
    #[test]
    fn indefinite_systems_want_minres() {
        let indefinite: Vec<f64> = (0..50).map(|k| k as f64 - 19.5).collect();
        let (a, b, stop) = (with_eigenvalues(&indefinite), random(50, 8), Stop::default());
        let mut x = vec![0.0; 50];
        let solved = minres(&Dense::new(a.clone()), None, &b, &mut x, &stop).unwrap();
        assert!(solved.residual <= 1e-6 && residual(&a, &x, &b) < 1.01e-6);
        let error =
            conjugate_gradients(&Dense::new(a), None, &b, &mut [0.0; 50], &stop).unwrap_err();
        assert!(matches!(error, Error::NotConverged { .. } | Error::Failed { .. }), "{error}");
    }

    // Solve consistent singular systems
    #[test]
    fn consistent_singular_systems_are_solved() {
        let (b, stop) = (random(50, 8), Stop::default());
        let singular: Vec<f64> = (0..50).map(|k| (k as f64 - 10.0).max(0.0)).collect();
        let singular = with_eigenvalues(&singular);
        let inside = singular.dot(&ArrayView1::from(&b)).to_vec();
        for solver in SOLVERS {
            let (a, mut x) = (Dense::new(singular.clone()), vec![0.0; 50]);
            let solved =
                solver.solve(&a, None, &inside, &mut x, &stop, &mut |_, _| Ok(())).unwrap();
            assert!(solved.iterations < 60 && residual(&singular, &x, &inside) < 1.01e-6);
            let error = solver.solve(&a, None, &b, &mut x, &stop, &mut |_, _| Ok(())).unwrap_err();
            assert!(matches!(error, Error::NotConverged { .. } | Error::Failed { .. }), "{error}");
            assert!(x.iter().all(|x| x.is_finite()));
        }
    }

    // Reject systems without a solution
    #[test]
    fn refusals_are_typed() {
        let definite = Dense::new(with_eigenvalues(&(1..=30).map(f64::from).collect::<Vec<_>>()));
        let negative = Dense::new(Array2::from_diag(&Array1::from_elem(30, -1.0)));
        let poisoned = Dense::new(Array2::from_elem((30, 30), f64::NAN));
        let (b, stop) = (random(30, 2), Stop { tolerance: 1e-10, iterations: 4 });
        for solver in SOLVERS {
            let run =
                |a: &dyn Operator<f64>, p: Option<&dyn Operator<f64>>, b: &[f64], stop: &Stop| {
                    let mut x = vec![0.0; b.len()];
                    let result = solver.solve(a, p, b, &mut x, stop, &mut |_, _| Ok(()));
                    assert!(x.iter().all(|x| x.is_finite()));
                    result
                };
            // Reject bad operators and capped runs
            match run(&definite, None, &b, &stop).unwrap_err() {
                Error::NotConverged { iterations: 4, residual, tolerance, .. } => {
                    assert!(residual > 1e-3 && residual < 1.0 && tolerance == 1e-10)
                }
                error => panic!("{error}"),
            }
            let failure = |a: &Dense<f64>, p: Option<&dyn Operator<f64>>| {
                run(a, p, &b, &stop).unwrap_err().to_string()
            };
            let bad = failure(&definite, Some(&negative));
            assert!(bad.contains("preconditioner is not positive definite: r·Pr = -"), "{bad}");
            assert!(failure(&definite, Some(&poisoned)).contains("r·Pr = NaN"));
            assert!(failure(&poisoned, None).contains("= NaN in iteration 1"));
            // Return incomplete solutions
            let full = with_eigenvalues(&(1..=30).map(f64::from).collect::<Vec<_>>());
            let attempt =
                |a: &Array2<f64>, watch: &mut dyn FnMut(usize, f64) -> Result<(), Error>| {
                    let (a, mut x) = (Dense::new(a.clone()), vec![0.0; 30]);
                    solver.attempt(&a, None, &b, &mut x, &stop, watch).map(|attempt| (attempt, x))
                };
            let (short, x) = attempt(&full, &mut |_, _| Ok(())).unwrap();
            let truth = residual(&full, &x, &b);
            assert!(short.solved.iterations == 4 && truth < 1.0);
            assert!((short.solved.residual / truth - 1.0).abs() < 1e-10);
            assert!(matches!(short.whole(), Err(Error::NotConverged { .. })));
            let nothing = Array2::from_diag(&Array1::from_elem(30, 1e-309));
            let (broken, x) = attempt(&nothing, &mut |_, _| Ok(())).unwrap();
            assert!(matches!(broken.shortfall, Some(Error::Failed { .. })));
            assert!(x.iter().all(|x| *x == 0.0) && broken.solved.residual == 1.0);
            let mut impatient = |k, _| if k < 2 { Ok(()) } else { Err(Error::Cancelled) };
            assert!(matches!(attempt(&full, &mut impatient), Err(Error::Cancelled)));
            let zero = run(&definite, None, &[0.0; 30], &stop).unwrap();
            assert_eq!((zero.iterations, zero.residual), (0, 0.0));
            let out_of_reach = Stop { tolerance: 1e-30, iterations: 100_000 };
            let error = run(&definite, None, &b, &out_of_reach).unwrap_err();
            assert!(
                matches!(error, Error::NotConverged { iterations, .. } if iterations < 1000),
                "{error}"
            );
            // Reject bad numbers and shapes
            let with = |value: f64| b.iter().take(29).copied().chain([value]).collect::<Vec<_>>();
            let invalid = |b: &[f64], tolerance: f64| {
                let stop = Stop { tolerance, iterations: 100 };
                matches!(run(&definite, None, b, &stop), Err(Error::Invalid(_)))
            };
            for bad in [
                with(f64::NAN),
                with(f64::INFINITY),
                with(1e200),
                b[1..].to_vec(),
                vec![1e-200; 30],
            ] {
                assert!(invalid(&bad, 1e-6));
            }
            for tolerance in [0.0, -1.0, f64::NAN, f64::INFINITY] {
                assert!(invalid(&b, tolerance));
            }
            assert!(!invalid(&b, 1e-6));
        }
        let error = conjugate_gradients(&negative, None, &b, &mut [0.0; 30], &stop).unwrap_err();
        assert!(error.to_string().contains("operator is not positive definite: p·Ap"), "{error}");
    }

    // Solve in single precision
    #[test]
    fn single_precision_goes_as_far_as_it_can() {
        let a = with_eigenvalues(&(1..=30).map(f64::from).collect::<Vec<_>>());
        let b: Vec<f32> = random(30, 2).iter().map(|&b| b as f32).collect();
        let a_operator = Dense::new(a.mapv(|a| a as f32));
        for solver in SOLVERS {
            let mut x = [0f32; 30];
            let mut run = |tolerance| {
                let stop = Stop { tolerance, iterations: 1000 };
                solver.solve(&a_operator, None, &b, &mut x, &stop, &mut |_, _| Ok(()))
            };
            assert!(run(1e-5).unwrap().residual < 1e-5);
            assert!(
                matches!(run(1e-9), Err(Error::NotConverged { residual, .. }) if residual < 1e-5)
            );
            let (x, b) = (x.map(f64::from), b.iter().copied().map(f64::from).collect::<Vec<_>>());
            assert!(residual(&a, &x, &b) < 1e-5);
        }
    }
}
