// Tangled from book/src/solver-host.md: edit there, or here and run cargo tangle stitch.
//! Conjugate gradients and MINRES on a device, without the host in their loop.

// Imports of solving on a device
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, Graph, Header, Kernel, KernelArguments, KernelSource, Shape};
use crate::device::headers::REAL;
use crate::error::{Error, Invalid, accept, positive};
use crate::linear::operator::gpu::DeviceOperator;
use crate::linear::solver::{Attempt, Solved, Solver, Stop, norm_of};
use crate::numerics::real::Real;
use std::sync::Arc;

const SOURCE: KernelSource = KernelSource {
    name: "solver.cu",
    text: include_str!("../../../kernels/linear/solver.cu"),
    headers: &[REAL, HEADER],
};

// Kernels of a solver
kernels! {
    /// Kernels of iterative solvers, by one method or another.
    pub(crate) struct SolverKernels in SOURCE {
        /// Queues the sums a·z and w·z in all blocks but the last, and the judgement in that.
        look: Look<T> {
            now: [f64] as "State", next: [f64] as "State", squares: [f64], a: [T], z: [T], w: [T],
            parts: [f64], blocks: usize, n: usize,
        }
        /// Parts of the sum a·z.
        along: Along<T> { a: [T], z: [T], parts: [f64], blocks: usize, n: usize }
        /// The residual at the start of a sweep, and its square.
        open_sweep: OpenSweep<T> {
            b: [T], product: [T], r: [T], squares: [f64], blocks: usize, n: usize,
        }
        /// The state at the start of a sweep.
        begin_sweep: BeginSweep {
            now: [f64] as "State", next: [f64] as "State", squares: [f64], blocks: usize, first: bool,
            tolerance: f64, limit: f64, epsilon: f64,
        }
        /// A step of conjugate gradients.
        step_along: StepAlong<T> {
            now: [f64] as "State", next: [f64] as "State", parts: [f64], z: [T], w: [T], p: [T], s: [T],
            x: [T], r: [T], squares: [f64], blocks: usize, n: usize,
        }
        /// The states of systems side by side at their start.
        begin_systems: BeginSystems<T> {
            now: [f64] as "State", next: [f64] as "State", squares: [f64], targets: [f64], least: f64,
            limit: f64, r: [T], x: [T], product: [T], blocks: usize, n: usize,
        }
        /// Products of right-hand sides with a few vectors.
        multiply_few: MultiplyFew<T> { r: [T], few: [T], products: [f64], n: usize }
        // Kernels of minimum residuals
        /// Parts of the sum u·z of a vector and its preconditioned twin.
        measure: Measure<T> {
            now: [f64] as "State", u: [T], z_next: [T], parts: [f64], blocks: usize, n: usize,
        }
        /// The first vectors of Lanczos.
        start_lanczos: StartLanczos<T> {
            now: [f64] as "State", next: [f64] as "State", parts: [f64], r: [T], z_next: [T], v: [T],
            v_last: [T], z: [T], d: [T], d_last: [T], blocks: usize, n: usize,
        }
        /// Makes a product orthogonal to the last two vectors of Lanczos.
        orthogonalise: Orthogonalise<T> {
            now: [f64] as "State", next: [f64] as "State", parts: [f64], v: [T], v_last: [T], u: [T],
            squares: [f64], blocks: usize, n: usize,
        }
        /// Rotates the last column of the tridiagonal matrix, and takes a step.
        turn_column: TurnColumn<T> {
            now: [f64] as "State", next: [f64] as "State", parts: [f64], u: [T], z_next: [T], v: [T],
            v_last: [T], z: [T], d: [T], d_last: [T], x: [T], r: [T], squares: [f64], blocks: usize,
            n: usize,
        }
    }
}

// Solver for kernels that include it
/// The state of a solution, and functions of kernels that use it.
pub(crate) const HEADER: Header =
    Header { name: "linear/solver.cuh", text: include_str!("../../../kernels/linear/solver.cuh") };

/// The most threads in a block.
pub(crate) const THREADS: usize = 512;

/// Numbers of a state.
pub(crate) const SCALARS: usize = 23;

/// Index of the flag in the state that marks the end of a sweep.
pub(crate) const DONE: usize = 1;

/// Residuals that the device stores until the host reads them.
const HISTORY: usize = 512;

// What a method launches
/// The launches in which methods differ.
pub(crate) trait SolverMethod<T>: Send + Sync {
    /// The name of the method for the user.
    fn solver(&self) -> Solver;

    /// Queues the launches that begin a sweep, after those of its residual.
    fn begin(&self, work: &SolverWorkspace<T>) -> Result<(), Error>;

    /// Queues one iteration.
    fn iterate(&self, work: &SolverWorkspace<T>) -> Result<(), Error>;

    /// Queues the convergence test of the last iteration.
    fn judge(&self, work: &SolverWorkspace<T>) -> Result<(), Error>;
}

// Solver on a device
/// Solves A x = b on a device for one operator, as [`Solver::solve`] does on the processor.
pub struct SolverGpu<T> {
    work: SolverWorkspace<T>,
    method: Box<dyn SolverMethod<T>>,
    /// One iteration, and [`MANY`] of them.
    graphs: [Graph; 2],
    /// Iterations that the last solution took.
    expected: usize,
}

/// Where a solution starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// From zero.
    #[default]
    Cold,
    /// From the values of [`SolverGpu::solution`].
    Warm,
}

// Make, run and watch a solver
/// Iterations that are recorded together; one by one they would cost the host a launch each.
const MANY: usize = 8;

impl<T: Real> SolverGpu<T> {
    // Make a solver on a device
    /// A solver for a symmetric operator, with the same requirements for operator and preconditioner as on the processor.
    ///
    /// # Errors
    /// `Invalid` if the operators are not square or differ in size, `Memory` if the vectors do not fit, and errors of the
    /// device.
    pub fn new(
        solver: Solver,
        a: Arc<dyn DeviceOperator<T>>,
        preconditioner: Option<Arc<dyn DeviceOperator<T>>>,
    ) -> Result<Self, Error> {
        check_shapes(a.as_ref(), preconditioner.as_deref())?;
        let own = match solver {
            Solver::ConjugateGradients => Descent::<T>::VECTORS,
            Solver::Minres => Lanczos::<T>::VECTORS,
        };
        let work = SolverWorkspace::of_systems(a, own + usize::from(preconditioner.is_some()), 1)?;
        let preconditioner = PlacedPreconditioner::new(&work, preconditioner)?;
        let method: Box<dyn SolverMethod<T>> = match solver {
            Solver::ConjugateGradients => Box::new(Descent::new(&work, preconditioner)?),
            Solver::Minres => Box::new(Lanczos::new(&work, preconditioner)?),
        };
        Self::of(work, method)
    }

    // Record the iterations of a method
    /// A solver by a method, whose iterations are recorded here.
    pub(crate) fn of(
        work: SolverWorkspace<T>,
        method: Box<dyn SolverMethod<T>>,
    ) -> Result<Self, Error> {
        method.iterate(&work)?;
        let gpu = work.a.gpu();
        let one = gpu.record(|| method.iterate(&work))?;
        let many = gpu.record(|| (0..MANY).try_for_each(|_| method.iterate(&work)))?;
        Ok(Self { work, method, graphs: [one, many], expected: 4 * MANY })
    }

    // Solution and its inner products
    /// The solution, n numbers, from which the next solution starts if it starts warm.
    pub fn solution(&self) -> &Buffer<T> {
        &self.work.x
    }

    /// The inner product of the solution with a vector of n numbers, summed in double precision.
    ///
    /// # Errors
    /// `Invalid` if the length differs, and errors of the device.
    pub fn along(&self, b: &Buffer<T>) -> Result<f64, Error> {
        let work = &self.work;
        accept(b.len() == work.x.len(), "length of a vector", b.len(), "that of the solution")?;
        let [a, z] = [b, &work.x].map(|vector| vector.view(..));
        let (parts, blocks, n) = (work.parts.view(..), work.blocks, work.length());
        work.over_all(&work.kernels.along, Along { a, z, parts, blocks, n })?;
        Ok(work.parts.read()?[..work.blocks].iter().sum())
    }

    // Solve on a device
    /// Solves A x = b, and leaves the result in [`solution`](Self::solution). `watch` is called with the number and the
    /// relative residual of the last iteration whenever the host reads them from the device; an error that it returns ends the run.
    ///
    /// # Errors
    /// As for [`Solver::solve`], and errors of the device.
    pub fn solve(
        &mut self,
        b: &Buffer<T>,
        from: Start,
        stop: &Stop,
        watch: &mut dyn FnMut(usize, f64) -> Result<(), Error>,
    ) -> Result<Solved, Error> {
        self.attempt(b, from, stop, watch)?.whole()
    }

    // Attempt a solution on a device
    /// Solves A x = b as [`solve`](Self::solve) does, but keeps the best solution if it does not reach its
    /// tolerance.
    ///
    /// # Errors
    /// As for [`Solver::attempt`], and errors of the device.
    pub fn attempt(
        &mut self,
        b: &Buffer<T>,
        from: Start,
        stop: &Stop,
        watch: &mut dyn FnMut(usize, f64) -> Result<(), Error>,
    ) -> Result<Attempt, Error> {
        check(b, self.work.x.len(), stop)?;
        let mut history = Vec::new();
        let shortfall = match self.sweep(b, from, stop, &mut history, watch) {
            Ok(()) => None,
            Err(short @ Error::NotConverged { .. }) => Some(short),
            Err(short @ Error::Failed { .. }) => {
                let settled = self.settle(b, stop)?;
                history.pop();
                history.push(settled);
                Some(short)
            }
            Err(error) => return Err(error),
        };
        let (iterations, residual) = (history.len() - 1, history[history.len() - 1]);
        Ok(Attempt { solved: Solved { iterations, residual, history }, shortfall })
    }
    /// The residual of the last iterate after a breakdown, which is made finite.
    fn settle(&mut self, b: &Buffer<T>, stop: &Stop) -> Result<f64, Error> {
        self.work.multiply_solution(false)?;
        self.work.begin(b, true, stop)?;
        self.method.begin(&self.work)?;
        match self.advance(0, b, &mut Vec::new()) {
            Ok(report) => Ok(report.start),
            Err(Error::Failed { .. } | Error::Invalid(_)) => {
                self.work.x.clear()?;
                Ok(1.0)
            }
            Err(error) => Err(error),
        }
    }

    // Sweep on a device
    /// Sweeps until the true residual meets the tolerance; `history` holds the residuals.
    fn sweep(
        &mut self,
        b: &Buffer<T>,
        from: Start,
        stop: &Stop,
        history: &mut Vec<f64>,
        watch: &mut dyn FnMut(usize, f64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (mut iterations, mut before) = (0, f64::INFINITY);
        loop {
            // Start a sweep and read its residual
            let first = before.is_infinite();
            self.work.multiply_solution(first && from == Start::Cold)?;
            self.work.begin(b, first, stop)?;
            self.method.begin(&self.work)?;
            history.pop();
            let ahead = if first { self.expected } else { 0 };
            let mut report = self.advance(ahead, b, history)?;
            let residual = report.start;
            // End the solution or give up
            if report.norm == 0.0 {
                self.work.x.clear()?;
            }
            if residual <= stop.tolerance {
                self.expected = iterations.max(1);
                return Ok(());
            }
            if iterations >= stop.iterations || residual > 0.9 * before {
                return Err(self.method.solver().not_converged(
                    iterations,
                    residual,
                    stop.tolerance,
                ));
            }
            before = residual;
            while !report.done {
                let ahead = report.iterations_left(iterations);
                report = self.advance(ahead, b, history)?;
                watch(report.iterations, report.residual)?;
            }
            iterations = report.iterations;
        }
    }

    // Queue iterations and read the state
    /// Queues this number of iterations, and reads the state after them.
    fn advance(
        &self,
        ahead: usize,
        b: &Buffer<T>,
        history: &mut Vec<f64>,
    ) -> Result<SolverStatus, Error> {
        let (work, ahead) = (&self.work, ahead.min(HISTORY - 1));
        let [one, many] = &self.graphs;
        (0..ahead / MANY).try_for_each(|_| work.a.gpu().replay(many))?;
        (0..ahead % MANY).try_for_each(|_| work.a.gpu().replay(one))?;
        self.method.judge(work)?;
        let mut numbers = [0.0; SCALARS + HISTORY];
        work.states[1].read_into(&mut numbers)?;
        let report = SolverStatus::new(&numbers);
        let new = history.len()..=report.iterations;
        let new = new.map(|k| numbers[SCALARS + k % HISTORY]);
        history.extend(new.filter(|residual| residual.is_finite()));
        self.refuse(&report, b)?;
        Ok(report)
    }

    // Translate faults of the device
    fn refuse(&self, report: &SolverStatus, b: &Buffer<T>) -> Result<(), Error> {
        let ((fault, value), solver) = (report.fault, self.method.solver());
        let at = report.iterations + 1;
        let positive = |operator, name| solver.positive(value, (operator, name), at).map(|_| ());
        let finite = |name, at| solver.finite(value, name, at).map(|_| ());
        match fault {
            0 => Ok(()),
            1 | 2 => {
                norm_of(&b.read()?, &self.work.x.read()?)?;
                finite("‖b − Ax‖/‖b‖", at)
            }
            3 => finite("‖r‖/‖b‖", report.iterations),
            4 => positive("preconditioner", "r·Pr"),
            5 => positive("operator", "p·Ap"),
            6 => finite("z·Az", at),
            7 => positive("preconditioner", "v·Pv"),
            _ => Err(solver.singular()),
        }
    }
}

// Reject operators that are not square
/// Rejects operators that are not square, or differ in size.
fn check_shapes<T>(
    a: &dyn DeviceOperator<T>,
    preconditioner: Option<&dyn DeviceOperator<T>>,
) -> Result<(), Invalid> {
    let n = a.rows();
    accept(a.columns() == n, "columns of the operator", a.columns(), &format!("{n}, as rows"))?;
    if let Some(p) = preconditioner {
        let expected = format!("{n}, the size of the operator");
        accept(p.rows() == n, "rows of the preconditioner", p.rows(), &expected)?;
        accept(p.columns() == n, "columns of the preconditioner", p.columns(), &expected)?;
    }
    Ok(())
}

// Reject an invalid system
/// Rejects a right-hand side of the wrong length and an invalid tolerance.
fn check<T: Real>(b: &Buffer<T>, n: usize, stop: &Stop) -> Result<(), Invalid> {
    positive("tolerance", stop.tolerance)?;
    let (name, expected) =
        ("length of the right-hand side", format!("{n}, the size of the operator"));
    accept(b.len() == n, name, b.len(), &expected).map(|_| ())
}

// Sizes of a solver's kernels
/// Sizes that the kernels of a solver need.
pub(crate) const SIZES: [(&str, usize); 2] = [("SCALARS", SCALARS), ("HISTORY", HISTORY)];

// Report of the device
/// The numbers of a state that the host uses.
struct SolverStatus {
    iterations: usize,
    done: bool,
    /// The fault, and the value that caused it.
    fault: (usize, f64),
    /// Relative residuals: at the start of the sweep, and now.
    start: f64,
    residual: f64,
    /// ‖b‖.
    norm: f64,
    /// The residual at which the sweep ends.
    target: f64,
}

impl SolverStatus {
    fn new(numbers: &[f64; SCALARS + HISTORY]) -> Self {
        let [iterations, done, fault, value, start, residual, norm, target, ..] = *numbers;
        let (iterations, fault) = (iterations as usize, (fault as usize, value));
        Self { iterations, done: done != 0.0, fault, start, residual, norm, target }
    }

    // Estimate the remaining iterations
    /// An estimate of the remaining iterations of a sweep that began after this number.
    fn iterations_left(&self, before: usize) -> usize {
        let made = (self.iterations - before) as f64;
        let (gained, needed) =
            ((self.start / self.residual).ln(), (self.residual / self.target).ln());
        let guess = if gained > 0.0 { 0.75 * made * needed / gained } else { made };
        (guess.ceil() as usize).clamp(1, MANY.max(2 * made as usize))
    }
}

// What all methods work on
/// A system with its solution, and the numbers of the device.
pub(crate) struct SolverWorkspace<T> {
    pub(crate) a: Arc<dyn DeviceOperator<T>>,
    pub(crate) x: Buffer<T>,
    /// b − A x.
    pub(crate) r: Buffer<T>,
    /// A product with A.
    pub(crate) product: Buffer<T>,
    /// Two buffers that contain the state in turn; the history follows the second one.
    pub(crate) states: [Buffer<f64>; 2],
    pub(crate) squares: Buffer<f64>,
    parts: Buffer<f64>,
    /// Blocks of a launch over all numbers of a system, threads of a block, and number of systems.
    pub(crate) blocks: usize,
    pub(crate) threads: usize,
    pub(crate) systems: usize,
    pub(crate) kernels: SolverKernels<T>,
}

// Work that all methods share
impl<T: Real> SolverWorkspace<T> {
    // Allocate the workspace of a solution
    /// The workspace of as many systems as `a` has matrices on its diagonal, each with a separate state, if the memory is also sufficient
    /// for this number of further vectors of a method.
    pub(crate) fn of_systems(
        a: Arc<dyn DeviceOperator<T>>,
        vectors: usize,
        systems: usize,
    ) -> Result<Self, Error> {
        let (gpu, n) = (a.gpu().clone(), a.rows());
        let bytes = ((3 + vectors) * n * size_of::<T>() + (64 << 10)) as u64;
        gpu.refuse_beyond_memory(bytes, "the vectors of the solver")?;
        let kernels = SolverKernels::load(&gpu, &SIZES)?;
        let threads = (n / systems).next_multiple_of(32).min(THREADS);
        let blocks = (n / systems).div_ceil(THREADS).min(THREADS);
        Ok(Self {
            x: gpu.zeros(n)?,
            r: gpu.zeros(n)?,
            product: gpu.zeros(n)?,
            states: [gpu.zeros(systems * SCALARS)?, gpu.zeros(systems * SCALARS + HISTORY)?],
            squares: gpu.zeros(3 * blocks * systems)?,
            parts: gpu.zeros(2 * blocks * systems)?,
            a,
            blocks,
            threads,
            systems,
            kernels,
        })
    }

    // Make one more vector
    /// One more vector of the size of the system, or of all systems.
    pub(crate) fn vector(&self) -> Result<Buffer<T>, Error> {
        self.a.gpu().zeros(self.x.len())
    }

    /// Numbers of a vector of one system.
    pub(crate) fn length(&self) -> usize {
        self.x.len() / self.systems
    }

    // Queue a launch over all numbers
    /// A launch with this number of blocks for each system.
    fn shape(&self, blocks: usize) -> Shape {
        Shape { grid: [blocks, 1, self.systems], block: self.threads, shared: 0 }
    }

    /// Queues a kernel that works on all numbers.
    fn over_all<A: KernelArguments>(
        &self,
        kernel: &Kernel<A::Kernel>,
        arguments: A,
    ) -> Result<(), Error> {
        self.a.gpu().launch(kernel, self.shape(self.blocks), arguments)
    }

    /// Queues the sums a·z and w·z in all blocks but the last, and the convergence test in the last one.
    fn look(&self, blocks: usize, vectors: [&Buffer<T>; 3]) -> Result<(), Error> {
        let [a, z, w] = vectors.map(|vector| vector.view(..));
        let [now, next] = self.states.each_ref().map(|state| state.view(..));
        let (squares, parts) = (self.squares.view(..), self.parts.view(..));
        let arguments =
            Look { now, next, squares, a, z, w, parts, blocks: self.blocks, n: self.length() };
        self.a.gpu().launch(&self.kernels.look, self.shape(blocks), arguments)
    }

    // Sum and judge
    /// Queues the sums a·z and w·z, and the convergence test of the last iteration.
    fn sum(&self, vectors: [&Buffer<T>; 3]) -> Result<(), Error> {
        self.look(self.blocks + 1, vectors)
    }

    /// Queues the convergence test alone.
    fn judge(&self) -> Result<(), Error> {
        self.look(1, [&self.r; 3])
    }

    // Begin a sweep on the device
    /// Queues the product A x with the present solution, or with zero.
    pub(crate) fn multiply_solution(&self, zero: bool) -> Result<(), Error> {
        if zero {
            self.x.clear()?;
            return self.product.clear();
        }
        self.a.apply(&self.x, &self.product)
    }
    /// Queues the start of the first or a later sweep, from the product with the present solution.
    fn begin(&self, b: &Buffer<T>, first: bool, stop: &Stop) -> Result<(), Error> {
        let [b, product, r] = [b, &self.product, &self.r].map(|vector| vector.view(..));
        let (squares, blocks, n) = (self.squares.view(..), self.blocks, self.length());
        let open = OpenSweep { b, product, r, squares, blocks, n };
        self.over_all(&self.kernels.open_sweep, open)?;
        let [now, next] = self.states.each_ref().map(|state| state.view(..));
        let epsilon = if size_of::<T>() == 8 { f64::EPSILON } else { f64::from(f32::EPSILON) };
        let (tolerance, limit) = (stop.tolerance, stop.iterations as f64);
        let begin = BeginSweep { now, next, squares, blocks, first, tolerance, limit, epsilon };
        let shape = Shape { grid: [1; 3], block: self.threads, shared: 0 };
        self.a.gpu().launch(&self.kernels.begin_sweep, shape, begin)
    }
}

// Product of a preconditioner on a device
/// P with the buffer of its products, or nothing if P is the identity.
struct PlacedPreconditioner<T>(Option<(Arc<dyn DeviceOperator<T>>, Buffer<T>)>);

impl<T: Real> PlacedPreconditioner<T> {
    fn new(
        work: &SolverWorkspace<T>,
        p: Option<Arc<dyn DeviceOperator<T>>>,
    ) -> Result<Self, Error> {
        let with_place = |p| Ok::<_, Error>((p, work.vector()?));
        Ok(Self(p.map(with_place).transpose()?))
    }

    /// Queues P x; the buffer that holds it, `x` itself without preconditioner.
    fn apply<'a>(&'a self, x: &'a Buffer<T>) -> Result<&'a Buffer<T>, Error> {
        match &self.0 {
            Some((p, y)) => p.apply(x, y).map(|()| y),
            None => Ok(x),
        }
    }
}

// Conjugate gradients on a device
struct Descent<T> {
    preconditioner: PlacedPreconditioner<T>,
    p: Buffer<T>,
    s: Buffer<T>,
}

impl<T: Real> Descent<T> {
    const VECTORS: usize = 2;

    fn new(
        work: &SolverWorkspace<T>,
        preconditioner: PlacedPreconditioner<T>,
    ) -> Result<Self, Error> {
        Ok(Self { preconditioner, p: work.vector()?, s: work.vector()? })
    }
}

// Iterate by conjugate gradients
impl<T: Real> SolverMethod<T> for Descent<T> {
    fn solver(&self) -> Solver {
        Solver::ConjugateGradients
    }

    fn begin(&self, _: &SolverWorkspace<T>) -> Result<(), Error> {
        Ok(())
    }

    // Queue one iteration of conjugate gradients
    /// An iteration by Eqs. [product by recurrence](https://lenslet.github.io/lenslet/solver-gpu.html#eq-product-by-recurrence) and [curvature by recurrence](https://lenslet.github.io/lenslet/solver-gpu.html#eq-curvature-by-recurrence).
    fn iterate(&self, work: &SolverWorkspace<T>) -> Result<(), Error> {
        let z = self.preconditioner.apply(&work.r)?;
        work.a.apply(z, &work.product)?;
        work.sum([&work.r, z, &work.product])?;
        let arguments = StepAlong {
            now: work.states[1].view(..),
            next: work.states[0].view(..),
            parts: work.parts.view(..),
            z: z.view(..),
            w: work.product.view(..),
            p: self.p.view(..),
            s: self.s.view(..),
            x: work.x.view(..),
            r: work.r.view(..),
            squares: work.squares.view(..),
            blocks: work.blocks,
            n: work.length(),
        };
        work.over_all(&work.kernels.step_along, arguments)
    }

    fn judge(&self, work: &SolverWorkspace<T>) -> Result<(), Error> {
        work.judge()
    }
}

// Conjugate gradients for several systems
/// The workspace of systems, and the method that uses it.
pub(crate) type WithMethod<T> = (SolverWorkspace<T>, Box<dyn SolverMethod<T>>);

/// The workspace of systems side by side with a preconditioner, and this method for them.
pub(crate) fn descent<T: Real>(
    a: Arc<dyn DeviceOperator<T>>,
    preconditioner: Arc<dyn DeviceOperator<T>>,
    systems: usize,
) -> Result<WithMethod<T>, Error> {
    check_shapes(a.as_ref(), Some(preconditioner.as_ref()))?;
    let work = SolverWorkspace::of_systems(a, Descent::<T>::VECTORS + 1, systems)?;
    let preconditioner = PlacedPreconditioner::new(&work, Some(preconditioner))?;
    let method = Box::new(Descent::new(&work, preconditioner)?);
    Ok((work, method))
}

// Minimum residuals on a device
struct Lanczos<T> {
    preconditioner: PlacedPreconditioner<T>,
    z: Buffer<T>,
    v: [Buffer<T>; 2],
    d: [Buffer<T>; 2],
    third: Buffer<f64>,
    lengths: Buffer<f64>,
}

impl<T: Real> Lanczos<T> {
    const VECTORS: usize = 5;

    // Allocate the vectors of Lanczos
    fn new(
        work: &SolverWorkspace<T>,
        preconditioner: PlacedPreconditioner<T>,
    ) -> Result<Self, Error> {
        let gpu = work.a.gpu();
        Ok(Self {
            preconditioner,
            z: work.vector()?,
            v: [work.vector()?, work.vector()?],
            d: [work.vector()?, work.vector()?],
            third: gpu.zeros(SCALARS)?,
            lengths: gpu.zeros(work.blocks)?,
        })
    }

    // Queue the length of a vector
    /// Queues the parts of u·z for a vector and its preconditioned twin.
    fn measure(
        &self,
        work: &SolverWorkspace<T>,
        state: &Buffer<f64>,
        pair: [&Buffer<T>; 2],
    ) -> Result<(), Error> {
        let [u, z_next] = pair.map(|vector| vector.view(..));
        let (now, parts) = (state.view(..), self.lengths.view(..));
        let arguments = Measure { now, u, z_next, parts, blocks: work.blocks, n: work.length() };
        work.over_all(&work.kernels.measure, arguments)
    }
}

// Iterate by minimum residuals
impl<T: Real> SolverMethod<T> for Lanczos<T> {
    fn solver(&self) -> Solver {
        Solver::Minres
    }

    // Begin the vectors of Lanczos
    fn begin(&self, work: &SolverWorkspace<T>) -> Result<(), Error> {
        let next = self.preconditioner.apply(&work.r)?;
        let [first, second] = &work.states;
        self.measure(work, second, [&work.r, next])?;
        let arguments = StartLanczos {
            now: second.view(..),
            next: first.view(..),
            parts: self.lengths.view(..),
            r: work.r.view(..),
            z_next: next.view(..),
            v: self.v[0].view(..),
            v_last: self.v[1].view(..),
            z: self.z.view(..),
            d: self.d[0].view(..),
            d_last: self.d[1].view(..),
            blocks: work.blocks,
            n: work.length(),
        };
        work.over_all(&work.kernels.start_lanczos, arguments)
    }

    // Queue one iteration of minimum residuals
    fn iterate(&self, work: &SolverWorkspace<T>) -> Result<(), Error> {
        let (z, u) = (&self.z, &work.product);
        work.a.apply(z, u)?;
        work.sum([z, z, u])?;
        // Queue the orthogonalisation
        let arguments = Orthogonalise {
            now: work.states[1].view(..),
            next: self.third.view(..),
            parts: work.parts.view(..),
            v: self.v[0].view(..),
            v_last: self.v[1].view(..),
            u: u.view(..),
            squares: self.lengths.view(..),
            blocks: work.blocks,
            n: work.length(),
        };
        work.over_all(&work.kernels.orthogonalise, arguments)?;
        let next = self.preconditioner.apply(u)?;
        if self.preconditioner.0.is_some() {
            self.measure(work, &self.third, [u, next])?;
        }
        // Queue the rotation of the last column
        let arguments = TurnColumn {
            now: self.third.view(..),
            next: work.states[0].view(..),
            parts: self.lengths.view(..),
            u: u.view(..),
            z_next: next.view(..),
            v: self.v[0].view(..),
            v_last: self.v[1].view(..),
            z: z.view(..),
            d: self.d[0].view(..),
            d_last: self.d[1].view(..),
            x: work.x.view(..),
            r: work.r.view(..),
            squares: work.squares.view(..),
            blocks: work.blocks,
            n: work.length(),
        };
        work.over_all(&work.kernels.turn_column, arguments)
    }

    fn judge(&self, work: &SolverWorkspace<T>) -> Result<(), Error> {
        work.judge()
    }
}

// Tests of the solver on a device
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::{Gpu, test_backends};
    use crate::linear::matrix::Dense;
    use crate::linear::matrix::gpu::MatrixGpu;
    use crate::linear::operator::gpu::WithPairsGpu;
    use crate::linear::operator::{Operator, Pairs, battery};
    use ndarray::{Array1, Array2, ArrayView1};

    // Symmetric matrices for both solvers
    /// Rows of the largest matrix that is full.
    const FULL: usize = 100;

    /// A symmetric matrix with these eigenvalues, rotated by two reflections, or a large one rotated in pairs.
    fn with_eigenvalues(values: &[f64]) -> Array2<f64> {
        let mut a = Array2::from_diag(&Array1::from_vec(values.to_vec()));
        if values.len() > FULL {
            let half = values.len() / 2;
            for k in 0..half {
                let (sum, rest) = (values[k] + values[k + half], values[k] - values[k + half]);
                (a[[k, k]], a[[k + half, k + half]]) = (sum / 2.0, sum / 2.0);
                (a[[k, k + half]], a[[k + half, k]]) = (rest / 2.0, rest / 2.0);
            }
            return a;
        }
        for seed in [1, 2] {
            let u = Array1::from_vec(battery::random::<f64>(values.len(), seed));
            let u = (&u / u.dot(&u).sqrt()).insert_axis(ndarray::Axis(1));
            let reflection = Array2::eye(values.len()) - 2.0 * u.dot(&u.t());
            a = reflection.dot(&a).dot(&reflection);
        }
        (&a + &a.t()) / 2.0
    }

    fn diagonal(value: impl Fn(usize) -> f64, n: usize) -> Array2<f64> {
        Array2::from_diag(&Array1::from_iter((0..n).map(value)))
    }

    const SOLVERS: [Solver; 2] = [Solver::ConjugateGradients, Solver::Minres];

    // Solve on the processor or a device
    // Solve with the processor
    /// The outcome with its message, the solution, and the reported residual.
    type Outcome = (Result<Solved, String>, Vec<f64>, Option<f64>);

    fn outcome(attempt: Result<Attempt, Error>, x: Vec<f64>) -> Outcome {
        let residual = attempt.as_ref().ok().map(|attempt| attempt.solved.residual);
        (attempt.and_then(Attempt::whole).map_err(|error| error.to_string()), x, residual)
    }

    /// Solves from `x`, with the processor.
    fn here(
        solver: Solver,
        [a, p]: [Option<&Array2<f64>>; 2],
        (b, x): (&[f64], &[f64]),
        stop: Stop,
    ) -> Outcome {
        let [a, p] = [a, p].map(|matrix| matrix.map(|matrix| Dense::new(matrix.clone())));
        let p = p.as_ref().map(|p| p as &dyn Operator<f64>);
        let mut x = x.to_vec();
        let attempt = solver.attempt(&a.unwrap(), p, b, &mut x, &stop, &mut |_, _| Ok(()));
        outcome(attempt, x)
    }

    // Symmetric matrices on a device
    /// The square operator that gives zeros, with its rows.
    struct Nothing(Gpu, usize);

    impl DeviceOperator<f64> for Nothing {
        fn gpu(&self) -> &Gpu {
            &self.0
        }

        fn rows(&self) -> usize {
            self.1
        }

        fn columns(&self) -> usize {
            self.1
        }

        fn apply(&self, _x: &Buffer<f64>, y: &Buffer<f64>) -> Result<(), Error> {
            y.clear()
        }

        fn apply_transpose(&self, _x: &Buffer<f64>, y: &Buffer<f64>) -> Result<(), Error> {
            y.clear()
        }

        fn bytes(&self) -> u64 {
            0
        }
    }

    // Choose the form of a matrix
    /// A symmetric matrix on a device, full or in pairs.
    fn on_device(gpu: &Gpu, a: &Array2<f64>) -> Arc<dyn DeviceOperator<f64>> {
        let n = a.nrows();
        if n <= FULL {
            return Arc::new(MatrixGpu::new(gpu, a.view()).unwrap());
        }
        let with = |operator, partner: &dyn Fn(usize) -> usize| {
            let elements = (0..n).map(|k| a[[k, partner(k)]]).collect();
            let pairs = Pairs::new((0..n).map(partner).collect(), elements).unwrap();
            Arc::new(WithPairsGpu::new(operator, &pairs).unwrap())
        };
        let diagonal = with(Arc::new(Nothing(gpu.clone(), n)), &|k| k);
        with(diagonal, &|k| (k + n / 2) % n)
    }

    // Solve with a device
    /// Solves from `x`, with a device.
    fn there(
        gpu: &Gpu,
        solver: Solver,
        matrices: [Option<&Array2<f64>>; 2],
        (b, x): (&[f64], &[f64]),
        stop: Stop,
    ) -> Outcome {
        let [a, p] = matrices.map(|matrix| matrix.map(|matrix| on_device(gpu, matrix)));
        let mut run = SolverGpu::new(solver, a.unwrap(), p).unwrap();
        run.expected = 1;
        run.solution().write(x).unwrap();
        let from = if x.iter().all(|&x| x == 0.0) { Start::Cold } else { Start::Warm };
        let attempt = run.attempt(&gpu.upload(b).unwrap(), from, &stop, &mut |_, _| Ok(()));
        outcome(attempt, run.solution().read().unwrap())
    }

    // Compare both solvers on both machines
    #[test]
    fn a_device_solves_as_the_processor_does() {
        let (few, many) = ([1.0, 3.0, 4.0, 9.0, 20.0], |k: usize| 1.0 + (k % 10) as f64);
        for gpu in test_backends() {
            for (n, value, tolerance) in [
                (40, &(|k: usize| few[k % 5]) as &dyn Fn(usize) -> f64, 1e-6),
                (530, &many, 1e-8),
                (60, &|k| 1.3f64.powi(k as i32 % 20), 1e-13),
            ] {
                let a = with_eigenvalues(&(0..n).map(value).collect::<Vec<_>>());
                let p = diagonal(|k| 1.0 / a[[k, k]], n);
                let (b, x) = (battery::random::<f64>(n, 9), vec![0.0; n]);
                for (solver, p) in SOLVERS.into_iter().flat_map(|s| [(s, None), (s, Some(&p))]) {
                    let stop = Stop { tolerance, iterations: 500 };
                    let matrices = [Some(&a), p];
                    let (expected, x_on_host, _) = here(solver, matrices, (&b, &x), stop);
                    let (solved, x_on_device, _) = there(&gpu, solver, matrices, (&b, &x), stop);
                    let (expected, solved) = (expected.unwrap(), solved.unwrap());
                    // Compare two solutions of one system
                    let counts = (solved.iterations, expected.iterations);
                    let loose = if tolerance > 1e-10 { 1 + counts.1 / 20 } else { counts.1 / 4 };
                    assert!(counts.0.abs_diff(counts.1) <= loose, "{solver:?} {n}: {counts:?}");
                    assert_eq!(solved.history.len(), solved.iterations + 1);
                    assert!(
                        solved.residual <= tolerance
                            && solved.history.last() == Some(&solved.residual)
                    );
                    let error = battery::distance(&x_on_device, &x_on_host);
                    assert!(error < 1e-8 + tolerance, "{solver:?} {n}: {error:e}");
                    for (k, (device, processor)) in
                        solved.history.iter().zip(&expected.history).take(5).enumerate()
                    {
                        let near = (device - processor).abs() < 1e-11 * processor + 1e-13;
                        assert!(near, "{solver:?} {k}: {device:e} {processor:e}");
                    }
                    let b = Array1::from(b.clone());
                    let r = &b - &a.dot(&ArrayView1::from(&x_on_device));
                    let truth = (r.dot(&r) / b.dot(&b)).sqrt();
                    assert!(
                        (solved.residual - truth).abs() < 1e-14 + 1e-3 * truth,
                        "{} {truth}",
                        solved.residual
                    );
                }
            }
        }
    }

    // Compare the iterates of both machines
    #[test]
    fn iterates_are_those_of_the_processor() {
        let n = 90;
        let a = with_eigenvalues(&(0..n).map(|k| 1.0 + (k % 60) as f64).collect::<Vec<_>>());
        let p = diagonal(|k| 1.0 / (1.0 + (k % 5) as f64), n);
        let (b, zero) = (battery::random::<f64>(n, 6), vec![0.0; n]);
        for (gpu, solver) in test_backends().iter().flat_map(|gpu| SOLVERS.map(|s| (gpu, s))) {
            for (p, iterations) in
                [None, Some(&p)].into_iter().flat_map(|p| [1, 2, 3, 7].map(|k| (p, k)))
            {
                let (stop, matrices) = (Stop { tolerance: 1e-12, iterations }, [Some(&a), p]);
                let (ours, x_on_host, _) = here(solver, matrices, (&b, &zero), stop);
                let (theirs, x_on_device, _) = there(gpu, solver, matrices, (&b, &zero), stop);
                assert_eq!(theirs.unwrap_err(), ours.unwrap_err(), "{solver:?} {iterations}");
                let error = battery::distance(&x_on_device, &x_on_host);
                assert!(error < 1e-10, "{solver:?} {iterations}: {error:e}");
            }
        }
    }

    // Compare sentences with numbers
    /// Whether two sentences have the same words, and the same numbers up to rounding.
    fn alike(a: &str, b: &str) -> bool {
        let near = |a: &str, b: &str| match (a.parse::<f64>(), b.parse::<f64>()) {
            (Ok(a), Ok(b)) => (a - b).abs() < 1e-10 * b.abs(),
            _ => false,
        };
        let (ours, theirs) = (a.split(' '), b.split(' '));
        ours.clone().count() == theirs.clone().count()
            && ours.zip(theirs).all(|(a, b)| a == b || near(a, b))
    }

    // Compare the errors of both machines
    #[test]
    fn a_device_refuses_what_the_processor_refuses() {
        let n = 30;
        let definite = with_eigenvalues(&(1..=n).map(|k| k as f64).collect::<Vec<_>>());
        let negative = diagonal(|_| -1.0, n);
        let poisoned = Array2::from_elem((n, n), f64::NAN);
        let singular = diagonal(|k| (k as f64 - 10.0).max(0.0), n);
        let b = battery::random::<f64>(n, 2);
        let with = |value: f64| b[1..].iter().copied().chain([value]).collect::<Vec<_>>();
        let (zero, capped) = (vec![0.0; n], Stop { tolerance: 1e-10, iterations: 4 });
        let cases = [
            (&definite, None, b.clone(), zero.clone()),
            (&negative, None, b.clone(), zero.clone()),
            (&definite, Some(&negative), b.clone(), zero.clone()),
            (&definite, Some(&poisoned), b.clone(), zero.clone()),
            (&poisoned, None, b.clone(), zero.clone()),
            (&definite, None, with(f64::NAN), zero.clone()),
            (&definite, None, with(1e200), zero.clone()),
            (&definite, None, vec![1e-200; n], zero.clone()),
            (&definite, None, b.clone(), with(f64::INFINITY)),
            (&definite, None, zero.clone(), b.clone()),
            (&singular, None, vec![1.0; n], zero.clone()),
        ];
        // Compare both machines in each case
        for gpu in test_backends() {
            for (solver, (a, p, b, x)) in
                SOLVERS.iter().flat_map(|s| cases.iter().map(move |c| (*s, c)))
            {
                let matrices = [Some(*a), *p];
                let (expected, x_on_host, reached) = here(solver, matrices, (b, x), capped);
                let (outcome, x_on_device, residual) =
                    there(&gpu, solver, matrices, (b, x), capped);
                assert_eq!(residual.is_some(), reached.is_some());
                if let (Some(residual), Some(reached)) = (residual, reached) {
                    assert!((residual - reached).abs() < 1e-9, "{solver:?}: {residual}, {reached}");
                    assert!(x_on_device.iter().all(|x| x.is_finite()));
                }
                match (&outcome, &expected) {
                    (Ok(solved), Ok(expected)) => {
                        assert_eq!(solved.iterations, expected.iterations);
                        assert!(battery::distance(&x_on_device, &x_on_host) < 1e-12);
                    }
                    (Err(reason), Err(expected)) => {
                        assert!(alike(reason, expected), "{solver:?}: {reason}, {expected}")
                    }
                    _ => panic!("{solver:?}: {outcome:?} for {expected:?}"),
                }
            }
            // Reject systems of unequal sizes
            let matrix =
                |shape| Arc::new(MatrixGpu::<f64>::new(&gpu, Array2::zeros(shape).view()).unwrap());
            let refused = |a, p: Option<_>| {
                let p = p.map(|p| matrix(p) as Arc<dyn DeviceOperator<f64>>);
                SolverGpu::new(Solver::Minres, matrix(a), p).err().unwrap().to_string()
            };
            assert!(refused((3, 4), None).contains("columns of the operator = 4: expected 3"));
            assert!(refused((3, 3), Some((4, 3))).contains("rows of the preconditioner = 4"));
            let mut run = SolverGpu::new(Solver::Minres, matrix((3, 3)), None).unwrap();
            let patient = &mut |_, _| Ok(());
            assert!(run.solve(&gpu.zeros(4).unwrap(), Start::Cold, &capped, patient).is_err());
            let stop = Stop { tolerance: 0.0, iterations: 1 };
            assert!(run.solve(&gpu.zeros(3).unwrap(), Start::Cold, &stop, patient).is_err());
        }
    }

    // Reach the limit of single precision
    #[test]
    fn single_precision_goes_as_far_on_a_device() {
        let a = with_eigenvalues(&(1..=30).map(f64::from).collect::<Vec<_>>());
        let b: Vec<f32> = battery::random(30, 2);
        for (gpu, solver) in test_backends().iter().flat_map(|gpu| SOLVERS.map(|s| (gpu, s))) {
            let operator = Arc::new(MatrixGpu::<f32>::new(gpu, a.view()).unwrap());
            let mut run = SolverGpu::new(solver, operator, None).unwrap();
            let b = gpu.upload(&b).unwrap();
            let mut to = |tolerance| {
                let stop = Stop { tolerance, iterations: 1000 };
                run.solve(&b, Start::Warm, &stop, &mut |_, _| Ok(()))
            };
            assert!(to(1e-5).unwrap().residual < 1e-5);
            let error = to(1e-9).unwrap_err();
            assert!(
                matches!(error, Error::NotConverged { iterations, residual, .. }
                    if iterations < 500 && residual < 1e-5),
                "{error}"
            );
        }
    }

    // Repeat a solution and start warm
    #[test]
    fn solutions_repeat_bit_by_bit_and_warm_starts_help() {
        let (n, stop) = (520, Stop { tolerance: 1e-9, iterations: 500 });
        let a = with_eigenvalues(&(0..n).map(|k| 1.0 + (k % 40) as f64 / 8.0).collect::<Vec<_>>());
        let truth = battery::random::<f64>(n, 3);
        let b = a.dot(&ArrayView1::from(&truth)).to_vec();
        for (gpu, solver) in test_backends().iter().flat_map(|gpu| SOLVERS.map(|s| (gpu, s))) {
            let b = gpu.upload(&b).unwrap();
            let mut run = SolverGpu::new(solver, on_device(gpu, &a), None).unwrap();
            let mut from = |x: &[f64], expected: usize| {
                run.expected = expected;
                run.solution().write(x).unwrap();
                let solved = run.solve(&b, Start::Warm, &stop, &mut |_, _| Ok(())).unwrap();
                (solved, run.solution().read().unwrap())
            };
            let cold = from(&vec![0.0; n], 1);
            assert_eq!(cold, from(&vec![0.0; n], 40), "{solver:?}");
            let near = truth.iter().zip(battery::random::<f64>(n, 4)).map(|(x, e)| x + 1e-5 * e);
            let warm = from(&near.collect::<Vec<_>>(), 10).0;
            let counts = (warm.iterations, cold.0.iterations);
            assert!(
                0 < counts.0 && counts.0 + 5 < counts.1 && counts.1 < 40,
                "{solver:?}: {counts:?}"
            );
            assert_eq!(from(&truth, 5), (from(&truth, 1).0, truth.clone()));
            assert!(battery::distance(&cold.1, &truth) < 1e-7);
        }
    }
}
