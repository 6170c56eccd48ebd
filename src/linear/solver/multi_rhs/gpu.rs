// Tangled from book/src/systems-gpu.md: edit there, or here and run cargo tangle stitch.
//! Conjugate gradients for many right-hand sides at once, on a device.

// Imports of systems side by side
use super::{ExplainedVariance, Ritz, Step, aims, patternless};
use crate::device::gpu::{Buffer, Gpu, Graph, Shape};
use crate::error::Error;
use crate::linear::operator::gpu::DeviceOperator;
use crate::linear::solver::gpu::{
    BeginSystems, MultiplyFew, SCALARS, SolverMethod, SolverWorkspace, descent,
};
use crate::linear::solver::{Solver, Stop, norm_of};
use crate::numerics::real::Real;
use ndarray::{Array2, s};
use std::sync::Arc;

// Systems side by side on a device
/// Solves for several right-hand sides side by side, or explains their variances bᵗA⁻¹b, as
/// [`solve_together`](super::solve_together) and [`explain_together`](super::explain_together) do on cores.
pub(crate) struct SideBySide<T> {
    work: SolverWorkspace<T>,
    method: Box<dyn SolverMethod<T>>,
    iteration: Graph,
    /// The target of each system: a tolerance, and the whole variance or 0.
    targets: Buffer<f64>,
    /// Iterations of the preceding right-hand sides.
    expected: usize,
}

/// The target of a system that is not solved.
const NOTHING: [f64; 2] = [-1.0, 0.0];

impl<T: Real> SideBySide<T> {
    // Allocate systems side by side
    /// A solver for as many right-hand sides as `a` and the preconditioner multiply vectors at once.
    ///
    /// # Errors
    /// `Invalid` if the operators are not square or differ in size, `Memory` if the vectors do not fit, and errors of the device.
    pub(crate) fn new(
        a: Arc<dyn DeviceOperator<T>>,
        preconditioner: Arc<dyn DeviceOperator<T>>,
        systems: usize,
    ) -> Result<Self, Error> {
        let (work, method) = descent(a, preconditioner, systems)?;
        Self::of(work, method)
    }

    /// A solver by this method, whose iteration is recorded here.
    pub(crate) fn of(
        work: SolverWorkspace<T>,
        method: Box<dyn SolverMethod<T>>,
    ) -> Result<Self, Error> {
        method.iterate(&work)?;
        let iteration = work.a.gpu().record(|| method.iterate(&work))?;
        Ok(Self {
            iteration,
            targets: work.a.gpu().zeros(2 * work.systems)?,
            expected: 1,
            method,
            work,
        })
    }

    // Buffers of systems side by side
    pub(crate) fn gpu(&self) -> &Gpu {
        self.work.a.gpu()
    }

    /// How many right-hand sides there are at a time.
    pub(crate) fn systems(&self) -> usize {
        self.work.systems
    }

    /// The buffer of the right-hand sides, one after the other, which the solver overwrites.
    pub(crate) fn right_hand_sides(&self) -> &Buffer<T> {
        &self.work.r
    }

    /// The solutions, one after the other: those of the preceding right-hand sides, from which the next ones start.
    pub(crate) fn solutions(&self) -> &Buffer<T> {
        &self.work.x
    }

    // Run systems until all are done
    /// Begins systems with these targets, and runs them until all are complete.
    fn run(
        &mut self,
        targets: &[[f64; 2]],
        (least, limit): (f64, usize),
        watch: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<Vec<SystemProgress>, Error> {
        self.start(targets, (least, limit))?;
        let mut ahead = self.expected;
        loop {
            (0..ahead).try_for_each(|_| self.work.a.gpu().replay(&self.iteration))?;
            watch()?;
            let mut systems = self.progress()?;
            systems.truncate(targets.len());
            if systems.iter().all(|system| system.is_done) {
                let most = systems.iter().map(|system| system.iterations).max();
                self.expected = most.unwrap_or(1).max(1);
                return Ok(systems);
            }
            ahead = 2;
        }
    }

    // Start the states of all systems
    fn start(&self, targets: &[[f64; 2]], (least, limit): (f64, usize)) -> Result<(), Error> {
        let work = &self.work;
        let none = std::iter::repeat(NOTHING);
        let all: Vec<f64> =
            targets.iter().copied().chain(none).take(work.systems).flatten().collect();
        self.targets.write(&all)?;
        let shape = Shape { grid: [1, 1, work.systems], block: work.threads, shared: 0 };
        let arguments = BeginSystems {
            now: work.states[0].view(..),
            next: work.states[1].view(..),
            squares: work.squares.view(..),
            targets: self.targets.view(..),
            least,
            limit: limit as f64,
            r: work.r.view(..),
            x: work.x.view(..),
            product: work.product.view(..),
            blocks: work.blocks,
            n: work.length(),
        };
        work.a.gpu().launch(&work.kernels.begin_systems, shape, arguments)?;
        self.method.begin(work)
    }

    // Progress of all systems
    /// Progress of all systems.
    fn progress(&self) -> Result<Vec<SystemProgress>, Error> {
        self.method.judge(&self.work)?;
        let numbers = self.work.states[1].read()?;
        Ok(numbers.chunks_exact(SCALARS).take(self.work.systems).map(SystemProgress::new).collect())
    }

    // Explained variances to a tolerance
    /// The explained variances of the first right-hand sides, as many as there are `wholes`, starting from
    /// [`solutions`](Self::solutions).
    ///
    /// # Errors
    /// As for [`Solver::solve`], for the first that fails, and errors of the device.
    pub(crate) fn explain(
        &mut self,
        (wholes, least): (&[f64], f64),
        stop: &Stop,
        watch: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<Vec<ExplainedVariance>, Error> {
        let ask = |whole: &f64| if *whole > 0.0 { [stop.tolerance, *whole] } else { NOTHING };
        let targets: Vec<[f64; 2]> = wholes.iter().map(ask).collect();
        self.work.multiply_solution(false)?;
        let progress = self.run(&targets, (least, stop.iterations), watch)?;
        let of_systems = progress.iter().zip(wholes);
        of_systems.map(|(progress, whole)| progress.explained(*whole, stop.tolerance)).collect()
    }

    // Solve right-hand sides to a residual
    /// The solutions for right-hand sides as rows, no more than there are systems, and their true residuals.
    ///
    /// # Errors
    /// As for [`Solver::solve`], for the first that fails, and errors of the device.
    pub(crate) fn solve(
        &mut self,
        b: &Array2<f64>,
        stop: &Stop,
        watch: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<[Array2<f64>; 2], Error> {
        let norm = |row: ndarray::ArrayView1<f64>| norm_of(&row.to_vec(), &[]);
        let norms = b.outer_iter().map(norm).collect::<Result<Vec<f64>, _>>()?;
        let (mut spent, mut before) = (vec![0; b.nrows()], vec![f64::INFINITY; b.nrows()]);
        let (mut x, mut left) = (Array2::zeros(b.dim()), b.clone());
        self.work.multiply_solution(true)?;
        loop {
            let epsilon = T::epsilon().in_double();
            let aims = aims(&left, (&norms, &spent), &mut before, (stop, epsilon))?;
            if aims.iter().all(Option::is_none) {
                return Ok([x, left]);
            }
            // Sweep on a device towards these aims
            let given: Vec<T> = b.iter().map(|&value| T::of(value)).collect();
            self.work.r.view(..given.len()).write(&given)?;
            let ask = |aim: &Option<f64>| aim.map_or(NOTHING, |aim| [aim, 0.0]);
            let targets: Vec<[f64; 2]> = aims.iter().map(ask).collect();
            let most = spent.iter().max().copied().unwrap_or(0);
            let limit = stop.iterations.saturating_sub(most).max(1);
            let progress = self.run(&targets, (1.0, limit), watch)?;
            for (progress, spent) in progress.iter().zip(&mut spent) {
                progress.refuse_breakdown(*spent)?;
                *spent += progress.iterations;
            }
            self.work.multiply_solution(false)?;
            x = self.rows(&self.work.x, b.nrows())?;
            left = b - &self.rows(&self.work.product, b.nrows())?;
        }
    }

    // Vectors of systems as rows
    /// Some of the vectors that are stored one after the other, as rows.
    fn rows(&self, vectors: &Buffer<T>, count: usize) -> Result<Array2<f64>, Error> {
        let all = vectors.read()?.into_iter().map(Real::in_double).collect();
        let all = Array2::from_shape_vec((self.work.systems, self.work.length()), all);
        let all = all.unwrap_or_else(|_| unreachable!("same length"));
        Ok(all.slice(s![..count, ..]).to_owned())
    }

    // Find the least eigenvalue on a device
    /// A number below the eigenvalues of PA.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn below_eigenvalues(
        &mut self,
        stop: &Stop,
        watch: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<f64, Error> {
        let (mut ritz, n) = (Ritz::default(), self.work.length());
        let first: Vec<T> = patternless(n).into_iter().map(T::of).collect();
        self.work.r.view(..n).write(&first)?;
        self.work.multiply_solution(true)?;
        // Nothing is ever explained to a tolerance of nothing.
        self.start(&[[0.0, 1.0]], (f64::MIN_POSITIVE.sqrt(), stop.iterations))?;
        for _ in 0..stop.iterations {
            watch()?;
            self.work.a.gpu().replay(&self.iteration)?;
            let progress = self.progress()?[0];
            if progress.is_done || ritz.add(progress.step) {
                break;
            }
        }
        Ok(ritz.below())
    }

    // Multiply right-hand sides with a few vectors
    /// The inner products of all right-hand sides with some vectors of their length, (right-hand sides, vectors).
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn times(&self, few: &Buffer<T>, products: &Buffer<f64>) -> Result<Vec<f64>, Error> {
        let (work, n) = (&self.work, self.work.length());
        let shape =
            Shape { grid: [1, few.len() / n, work.systems], block: work.threads, shared: 0 };
        let (r, few, products_at) = (work.r.view(..), few.view(..), products.view(..));
        let arguments = MultiplyFew { r, few, products: products_at, n };
        work.a.gpu().launch(&work.kernels.multiply_few, shape, arguments)?;
        products.read()
    }
}

// Progress of one system
/// The progress of a system.
#[derive(Debug, Clone, Copy)]
struct SystemProgress {
    is_done: bool,
    fault: [f64; 2],
    iterations: usize,
    step: Step,
    variance: f64,
    rest: f64,
}

impl SystemProgress {
    fn new(numbers: &[f64]) -> Self {
        let [iterations, done, fault, value] = [0, 1, 2, 3].map(|k| numbers[k]);
        let [along, length, variance, gap] = [12, 13, 14, 15].map(|k| numbers[k]);
        Self {
            is_done: done != 0.0,
            fault: [fault, value],
            iterations: iterations as usize,
            step: Step { along, length, square: numbers[5].powi(2) },
            variance,
            rest: (gap - length) * along,
        }
    }

    /// The explained part of a whole variance, if its bound is sufficient; zero for a right-hand side of zeros.
    fn explained(&self, whole: f64, tolerance: f64) -> Result<ExplainedVariance, Error> {
        let explained = ExplainedVariance::new(self.variance, self.rest, self.iterations);
        match self.fault {
            [0.0, _] => explained.check(whole, tolerance)?,
            [_, 0.0] => (),
            _ => self.refuse_breakdown(0)?,
        }
        Ok(explained)
    }

    /// Rejects a system with a fault, after this number of iterations `before`.
    fn refuse_breakdown(&self, before: usize) -> Result<(), Error> {
        let (cg, at) = (Solver::ConjugateGradients, before + self.iterations + 1);
        match self.fault {
            [0.0, _] => Ok(()),
            [3.0, value] => cg.finite(value, "‖r‖/‖b‖", at).map(drop),
            [4.0, value] => cg.positive(value, ("preconditioner", "r·Pr"), at).map(drop),
            [_, value] => cg.positive(value, ("operator", "p·Ap"), at).map(drop),
        }
    }
}

// Tests of systems side by side
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::linear::matrix::{Dense, gpu::MatrixGpu};
    use crate::linear::operator::battery::{distance, random};
    use crate::linear::solver::multi_rhs::{below_eigenvalues, explain_together, solve_together};
    use ndarray::Array1;

    // Solve side by side as on cores
    #[test]
    fn systems_side_by_side_are_solved_as_on_cores() {
        let (n, systems) = (30, 3);
        let half = Array2::from_shape_vec((n + 5, n), random(n * (n + 5), 1)).unwrap();
        let a = half.t().dot(&half) + Array2::<f64>::eye(n);
        let diagonal =
            |value: &dyn Fn(usize) -> f64| Array2::from_diag(&Array1::from_iter((0..n).map(value)));
        let p = diagonal(&|k| 1.0 / (10.0 + (k % 3) as f64));
        let mut b = Array2::from_shape_vec((systems, n), random(systems * n, 2)).unwrap();
        b.row_mut(1).fill(0.0);
        let many = |matrix: &Array2<f64>| {
            let element = |(i, j): (usize, usize)| {
                if i / n == j / n { matrix[[i % n, j % n]] } else { 0.0 }
            };
            Array2::from_shape_fn((systems * n, systems * n), element)
        };
        let here = [&a, &p].map(|matrix| Dense::new(matrix.clone()));
        let operators = [&here[0] as &dyn crate::linear::operator::Operator<f64>, &here[1]];
        let (stop, ask) = (Stop { tolerance: 1e-10, iterations: 200 }, &mut || Ok(()));
        let [x, _] = solve_together(operators[0], operators[1], &b, stop, ask).unwrap();
        let least = below_eigenvalues(operators, stop, ask).unwrap();
        let wholes: Vec<f64> = (0..systems).map(|k| 1.001 * b.row(k).dot(&x.row(k))).collect();
        let given = (b.clone(), Array2::zeros(b.dim()));
        let coarse = Stop { tolerance: 0.01, ..stop };
        let (explained, _) =
            explain_together(operators, given, (&wholes, least), coarse, ask).unwrap();
        for gpu in test_backends() {
            // Compare systems on a device and processor
            let on_device =
                |matrix| Arc::new(MatrixGpu::<f64>::new(&gpu, many(matrix).view()).unwrap());
            let mut there = SideBySide::new(on_device(&a), on_device(&p), systems).unwrap();
            let [found, left] = there.solve(&b, &stop, ask).unwrap();
            assert!(distance(found.as_slice().unwrap(), x.as_slice().unwrap()) < 1e-9);
            let residual = &b - &found.dot(&a);
            assert!((&left - &residual).iter().all(|gap| gap.abs() < 1e-13));
            assert!(
                (0..systems)
                    .all(|k| left.row(k).dot(&left.row(k)) <= 1e-20 * b.row(k).dot(&b.row(k)))
            );
            let few = Stop { tolerance: 1e-10, iterations: 2 };
            let error = there.solve(&b, &few, ask).unwrap_err().to_string();
            assert!(error.contains("after 2 iterations"), "{error}");
            let found = there.below_eigenvalues(&stop, ask).unwrap();
            assert!((found / least - 1.0).abs() < 1e-6, "{found} {least}");
            let given: Vec<f64> = b.iter().copied().collect();
            there.right_hand_sides().write(&given).unwrap();
            there.solutions().clear().unwrap();
            let found = there.explain((&wholes, least), &coarse, ask).unwrap();
            for (found, here) in found.iter().zip(&explained) {
                assert_eq!(found.iterations, here.iterations);
                assert!((found.middle() - here.middle()).abs() <= 1e-9 * here.middle());
            }
            // Refuse what is not positive
            let bad = diagonal(&|k| k as f64 - 20.5);
            let mut there = SideBySide::new(on_device(&bad), on_device(&p), systems).unwrap();
            let error = there.solve(&b, &stop, ask).unwrap_err().to_string();
            assert!(error.contains("operator is not positive definite"), "{error}");
        }
    }
}
