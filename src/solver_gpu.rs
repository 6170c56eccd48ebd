// Tangled from book/src/solver-gpu.md: edit there, or here and run cargo tangle stitch.
//! Conjugate gradients and MINRES on a device, without the host in their loop.

// What solving on a device stands on
use crate::device::gpu::{Argument, Buffer, Gpu, Graph, Kernel, Number, Shape, Source};
use crate::device_operator::DeviceOperator;
use crate::error::{Error, Invalid, accept, positive};
use crate::operator::Real;
use crate::solver::{Solved, Solver, Stop, norm_of};
use crate::toeplitz_gpu::{BlockToeplitzGpu, CirculantGpu};
use std::sync::Arc;

const SOURCE: Source = Source { name: "solver.cu", text: include_str!("../kernels/solver.cu") };

/// Threads in a block.
const THREADS: usize = 512;

/// Numbers of a state.
const SCALARS: usize = 22;

/// Residuals that the device keeps until they are fetched.
const HISTORY: usize = 512;

// Solver on a device
/// Solves A x = b on a device for one operator, as [`Solver::solve`] does on the processor.
pub struct SolverGpu<T> {
    steps: Steps<T>,
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
    /// From what [`SolverGpu::solution`] holds.
    Warm,
}
/// Iterations that are recorded together; one by one they would cost the host a launch each.
const MANY: usize = 8;

impl<T: Number + Real> SolverGpu<T> {
    // Make a solver on a device
    /// A solver for a symmetric operator, with the same demands on operator and preconditioner as on the processor.
    ///
    /// # Errors
    /// `Invalid` where the operators are not square or differ in size; `Memory` where the vectors do not fit; what the device
    /// says.
    pub fn new(
        solver: Solver,
        a: Arc<dyn DeviceOperator<T>>,
        preconditioner: Option<Arc<dyn DeviceOperator<T>>>,
    ) -> Result<Self, Error> {
        Self::of(Steps::new(solver, a, preconditioner, None)?)
    }

    /// A solver by conjugate gradients, with kernels between the transforms where both operators work by transforms of the
    /// same lattices.
    ///
    /// # Errors
    /// As for [`SolverGpu::new`].
    pub fn between_transforms(
        a: Arc<BlockToeplitzGpu<T>>,
        preconditioner: Arc<CirculantGpu<T>>,
    ) -> Result<Self, Error> {
        let between = Between::new(&a, &preconditioner)?;
        Self::of(Steps::new(Solver::ConjugateGradients, a, Some(preconditioner), between)?)
    }
    /// Whether it works between the transforms.
    #[cfg(test)]
    pub(crate) fn is_between_transforms(&self) -> bool {
        self.steps.between.is_some()
    }

    fn of(steps: Steps<T>) -> Result<Self, Error> {
        steps.iterate()?;
        let gpu = steps.a.gpu();
        let many = || (0..MANY).try_for_each(|_| steps.iterate());
        let graphs = [gpu.record(|| steps.iterate())?, gpu.record(many)?];
        Ok(Self { steps, graphs, expected: 4 * MANY })
    }

    /// The solution, n numbers: where the next one starts from if that is to start warm.
    pub fn solution(&self) -> &Buffer<T> {
        &self.steps.x
    }

    // Solve on a device
    /// Solves A x = b, and leaves the result in [`solution`](Self::solution).
    ///
    /// # Errors
    /// As for [`Solver::solve`]; and what the device says.
    pub fn solve(&mut self, b: &Buffer<T>, from: Start, stop: &Stop) -> Result<Solved, Error> {
        check(b, self.steps.x.len(), stop)?;
        let (mut history, mut iterations, mut before) = (Vec::new(), 0, f64::INFINITY);
        loop {
            let first = before.is_infinite();
            self.steps.multiply_solution(first && from == Start::Cold)?;
            self.steps.begin(b, first, stop)?;
            history.pop();
            let ahead = if first { self.expected } else { 0 };
            let mut report = self.advance(ahead, b, &mut history)?;
            let residual = report.start;
            // End the solution or give up
            if report.norm == 0.0 {
                self.steps.x.clear()?;
            }
            if residual <= stop.tolerance {
                self.expected = iterations.max(1);
                return Ok(Solved { iterations, residual, history });
            }
            if iterations >= stop.iterations || residual > 0.9 * before {
                return Err(self.steps.solver.not_converged(iterations, residual, stop.tolerance));
            }
            before = residual;
            while !report.done {
                let ahead = report.iterations_left(iterations);
                report = self.advance(ahead, b, &mut history)?;
            }
            iterations = report.iterations;
        }
    }

    // Queue iterations and read the state
    /// Queues so many iterations, and reads what has become of them.
    fn advance(
        &self,
        ahead: usize,
        b: &Buffer<T>,
        history: &mut Vec<f64>,
    ) -> Result<Report, Error> {
        let (steps, ahead) = (&self.steps, ahead.min(HISTORY - 1));
        let [one, many] = &self.graphs;
        (0..ahead / MANY).try_for_each(|_| steps.a.gpu().replay(many))?;
        (0..ahead % MANY).try_for_each(|_| steps.a.gpu().replay(one))?;
        steps.judge()?;
        let mut numbers = [0.0; SCALARS + HISTORY];
        steps.states[1].read_into(&mut numbers)?;
        let report = Report::new(&numbers);
        steps.refuse(&report, b)?;
        let new = history.len()..=report.iterations;
        history.extend(new.map(|k| numbers[SCALARS + k % HISTORY]));
        Ok(report)
    }
}
/// Refuses a right-hand side of the wrong length, and a tolerance that makes no sense.
fn check<T: Number>(b: &Buffer<T>, n: usize, stop: &Stop) -> Result<(), Invalid> {
    positive("tolerance", stop.tolerance)?;
    let (name, expected) =
        ("length of the right-hand side", format!("{n}, the size of the operator"));
    accept(b.len() == n, name, b.len(), &expected).map(|_| ())
}

// Launches of an iteration
/// The vectors of a solution, and the kernels that work on them.
struct Steps<T> {
    solver: Solver,
    a: Arc<dyn DeviceOperator<T>>,
    preconditioner: Option<Arc<dyn DeviceOperator<T>>>,
    x: Buffer<T>,
    r: Buffer<T>,
    /// z, product, and of conjugate gradients p, s; of MINRES next, v, v_last, d, d_last.
    vectors: [Buffer<T>; 7],
    /// One after the other in an iteration; the history is behind the second.
    states: [Buffer<f64>; 3],
    /// Parts of the squares of the residual, and of other sums.
    squares: Buffer<f64>,
    parts: Buffer<f64>,
    lengths: Buffer<f64>,
    blocks: usize,
    kernels: Kernels,
    /// Kernels between the transforms, where there are transforms.
    between: Option<Between<T>>,
}
struct Kernels {
    look: Kernel,
    open: Kernel,
    begin: Kernel,
    step: Kernel,
    measure: Kernel,
    start: Kernel,
    orthogonalise: Kernel,
    turn: Kernel,
}
impl<T: Number + Real> Steps<T> {
    // Make the vectors of a solver
    fn new(
        solver: Solver,
        a: Arc<dyn DeviceOperator<T>>,
        preconditioner: Option<Arc<dyn DeviceOperator<T>>>,
        between: Option<Between<T>>,
    ) -> Result<Self, Error> {
        let n = check_shapes(a.as_ref(), preconditioner.as_deref())?;
        let with = usize::from(preconditioner.is_some());
        let needed = match solver {
            Solver::ConjugateGradients => [with, 1, 1, 1, 0, 0, 0],
            Solver::Minres => [1, 1, with, 1, 1, 1, 1],
        };
        let (gpu, count) = (a.gpu().clone(), 2 + needed.iter().sum::<usize>());
        let bytes = (count * n * size_of::<T>() + (64 << 10)) as u64;
        gpu.refuse_beyond_memory(bytes, "the vectors of the solver")?;
        let (room, number) = (|len| gpu.zeros::<T>(len), |len| gpu.zeros::<f64>(len));
        let blocks = n.div_ceil(THREADS).min(THREADS);
        // Make room for vectors and states
        let vector = |k: usize| room(needed[k] * n);
        let [first, second, third] = [vector(0)?, vector(1)?, vector(2)?];
        let [fourth, fifth] = [vector(3)?, vector(4)?];
        let vectors = [first, second, third, fourth, fifth, vector(5)?, vector(6)?];
        let states = [number(SCALARS)?, number(SCALARS + HISTORY)?, number(SCALARS)?];
        Ok(Self {
            // Keep method, operators and vectors
            solver,
            a,
            preconditioner,
            vectors,
            x: room(n)?,
            r: room(n)?,
            states,
            squares: number(3 * blocks)?,
            parts: number(2 * blocks)?,
            lengths: number(blocks)?,
            blocks,
            kernels: Kernels::new::<T>(&gpu)?,
            between,
        })
    }

    // Precondition on the device
    /// The buffer that holds P x: `y`, or `x` where there is no preconditioner.
    fn precondition<'a>(&self, x: &'a Buffer<T>, y: &'a Buffer<T>) -> Result<&'a Buffer<T>, Error> {
        match &self.preconditioner {
            Some(p) => p.apply(x, y).map(|()| y),
            None => Ok(x),
        }
    }

    // Queue a launch over all numbers
    /// Queues a kernel with these buffers, and with the number of blocks and of elements after them.
    fn queue(&self, kernel: &Kernel, blocks: usize, buffers: &[Argument]) -> Result<(), Error> {
        let shape = Shape { grid: [blocks, 1, 1], block: THREADS, shared: 0 };
        let sizes = [self.blocks.into(), self.x.len().into()];
        self.a.gpu().launch(kernel, shape, &[buffers, &sizes].concat())
    }

    /// Queues the sums a·z and w·z in all blocks but the last, and the judgement in that.
    fn look(&self, blocks: usize, [a, z, w]: [&Buffer<T>; 3]) -> Result<(), Error> {
        let [now, next, _] = &self.states;
        let numbers = [now, next, &self.squares].map(Argument::from);
        let vectors = [a, z, w].map(Argument::from);
        let arguments = [&numbers[..], &vectors, &[(&self.parts).into()]].concat();
        self.queue(&self.kernels.look, blocks, &arguments)
    }

    // Begin a sweep on the device
    /// Queues the product A x with the solution so far, or with zero.
    fn multiply_solution(&self, zero: bool) -> Result<(), Error> {
        let [_, product, ..] = &self.vectors;
        if zero {
            self.x.clear()?;
            return product.clear();
        }
        self.a.apply(&self.x, product)
    }
    /// Queues the start of a sweep, the first one or another, from the product with the solution so far.
    fn begin(&self, b: &Buffer<T>, first: bool, stop: &Stop) -> Result<(), Error> {
        let [_, product, ..] = &self.vectors;
        let open = [b, product, &self.r].map(Argument::from);
        let open = [&open[..], &[(&self.squares).into()]].concat();
        self.queue(&self.kernels.open, self.blocks, &open)?;
        let [now, next, _] = &self.states;
        let [now, next, squares] = [now, next, &self.squares].map(Argument::from);
        let epsilon = if size_of::<T>() == 8 { f64::EPSILON } else { f64::from(f32::EPSILON) };
        let counts = [self.blocks, usize::from(first)].map(Argument::from);
        let numbers = [stop.tolerance, stop.iterations as f64, epsilon].map(Argument::from);
        let arguments = [&[now, next, squares][..], &counts, &numbers].concat();
        let shape = Shape { grid: [1; 3], block: THREADS, shared: 0 };
        self.a.gpu().launch(&self.kernels.begin, shape, &arguments)?;
        match (self.solver, &self.between) {
            (Solver::ConjugateGradients, None) => Ok(()),
            (Solver::ConjugateGradients, Some(between)) => between.begin(&self.r),
            (Solver::Minres, _) => self.start_lanczos(),
        }
    }
    /// Queues the judgement of the last residual.
    fn judge(&self) -> Result<(), Error> {
        match &self.between {
            None => self.look(1, [&self.r; 3]),
            Some(between) => between.judge(&self.states),
        }
    }
    /// Queues the first vectors of Lanczos.
    fn start_lanczos(&self) -> Result<(), Error> {
        let [z, _, next, v, v_last, d, d_last] = &self.vectors;
        let preconditioned = self.precondition(&self.r, next)?;
        let measure = [&self.r, preconditioned].map(Argument::from);
        let [first, second, _] = self.states.each_ref().map(Argument::from);
        let length = (&self.lengths).into();
        let measure = [&[second][..], &measure, &[length]].concat();
        self.queue(&self.kernels.measure, self.blocks, &measure)?;
        let vectors = [&self.r, preconditioned, v, v_last, z, d, d_last].map(Argument::from);
        let start = [&[second, first, length][..], &vectors].concat();
        self.queue(&self.kernels.start, self.blocks, &start)
    }

    // Queue one iteration of either method
    /// Queues one iteration.
    fn iterate(&self) -> Result<(), Error> {
        match (self.solver, &self.between) {
            (Solver::ConjugateGradients, None) => self.descend(),
            (Solver::ConjugateGradients, Some(between)) => between.descend(self),
            (Solver::Minres, _) => self.minimise(),
        }
    }

    /// An iteration of conjugate gradients, Eqs. `[eq:product-by-recurrence]` and `[eq:curvature-by-recurrence]`.
    fn descend(&self) -> Result<(), Error> {
        let [z, product, p, s, ..] = &self.vectors;
        let z = self.precondition(&self.r, z)?;
        self.a.apply(z, product)?;
        self.look(self.blocks + 1, [&self.r, z, product])?;
        let [first, second, _] = self.states.each_ref().map(Argument::from);
        let vectors = [z, product, p, s, &self.x, &self.r].map(Argument::from);
        let numbers = [second, first, (&self.parts).into()];
        let arguments = [&numbers[..], &vectors, &[(&self.squares).into()]].concat();
        self.queue(&self.kernels.step, self.blocks, &arguments)
    }
    /// An iteration of MINRES.
    fn minimise(&self) -> Result<(), Error> {
        let [z, product, next, v, v_last, d, d_last] = &self.vectors;
        let [first, second, third] = self.states.each_ref().map(Argument::from);
        let length = Argument::from(&self.lengths);
        self.a.apply(z, product)?;
        self.look(self.blocks + 1, [z, z, product])?;
        let vectors = [v, v_last, product].map(Argument::from);
        let numbers = [second, third, (&self.parts).into()];
        let arguments = [&numbers[..], &vectors, &[length]].concat();
        self.queue(&self.kernels.orthogonalise, self.blocks, &arguments)?;
        let next = self.precondition(product, next)?;
        if self.preconditioner.is_some() {
            let vectors = [product, next].map(Argument::from);
            let arguments = [&[third][..], &vectors, &[length]].concat();
            self.queue(&self.kernels.measure, self.blocks, &arguments)?;
        }
        let vectors = [product, next, v, v_last, z, d, d_last, &self.x, &self.r];
        let vectors = vectors.map(Argument::from);
        let arguments = [&[third, first, length][..], &vectors, &[(&self.squares).into()]].concat();
        self.queue(&self.kernels.turn, self.blocks, &arguments)
    }

    // Refuse what broke on the device
    fn refuse(&self, report: &Report, b: &Buffer<T>) -> Result<(), Error> {
        let (fault, value) = report.fault;
        let at = report.iterations + 1;
        let positive =
            |operator, name| self.solver.positive(value, (operator, name), at).map(|_| ());
        let finite = |name, at| self.solver.finite(value, name, at).map(|_| ());
        match fault {
            0 => Ok(()),
            1 | 2 => {
                norm_of(&b.read()?, &self.x.read()?)?;
                finite("‖b − Ax‖/‖b‖", at)
            }
            3 => finite("‖r‖/‖b‖", report.iterations),
            4 => positive("preconditioner", "r·Pr"),
            5 => positive("operator", "p·Ap"),
            6 => finite("z·Az", at),
            7 => positive("preconditioner", "v·Pv"),
            _ => Err(self.solver.singular()),
        }
    }
}
impl Kernels {
    fn new<T: Number>(gpu: &Gpu) -> Result<Self, Error> {
        let program = gpu.program(&SOURCE, &[sizes(THREADS), vec![T::option()]].concat())?;
        Ok(Self {
            look: program.kernel("look")?,
            open: program.kernel("open_sweep")?,
            begin: program.kernel("begin_sweep")?,
            step: program.kernel("step_along")?,
            measure: program.kernel("measure")?,
            start: program.kernel("start_lanczos")?,
            orthogonalise: program.kernel("orthogonalise")?,
            turn: program.kernel("turn_column")?,
        })
    }
}
/// Options about sizes, for so many threads in a block.
fn sizes(threads: usize) -> Vec<String> {
    let sizes = [("TEAM", threads), ("SCALARS", SCALARS), ("HISTORY", HISTORY)];
    sizes.map(|(name, size)| format!("-D{name}={size}")).into()
}

/// The size of the system, if operator and preconditioner agree about it.
fn check_shapes<T>(
    a: &dyn DeviceOperator<T>,
    preconditioner: Option<&dyn DeviceOperator<T>>,
) -> Result<usize, Invalid> {
    let n = a.rows();
    accept(a.columns() == n, "columns of the operator", a.columns(), &format!("{n}, as rows"))?;
    if let Some(p) = preconditioner {
        let expected = format!("{n}, the size of the operator");
        accept(p.rows() == n, "rows of the preconditioner", p.rows(), &expected)?;
        accept(p.columns() == n, "columns of the preconditioner", p.columns(), &expected)?;
    }
    Ok(n)
}

// Launches between the transforms
/// The three files that are compiled together.
const TOGETHER: Source = Source {
    name: "iteration.cu",
    text: concat!(
        include_str!("../kernels/toeplitz.cu"),
        include_str!("../kernels/solver.cu"),
        include_str!("../kernels/iteration.cu")
    ),
};

/// Kernels between the transforms of two operators on the same lattices.
struct Between<T> {
    a: Arc<BlockToeplitzGpu<T>>,
    preconditioner: Arc<CirculantGpu<T>>,
    exchange: Kernel,
    finish: Kernel,
    step: Kernel,
    judge: Kernel,
    shape: Shape,
    /// Parts of r·z and of w·z, and of the squares of the last residual and the next.
    parts: Buffer<f64>,
    squares: Buffer<f64>,
}
impl<T: Number> Between<T> {
    fn new(
        a: &Arc<BlockToeplitzGpu<T>>,
        preconditioner: &Arc<CirculantGpu<T>>,
    ) -> Result<Option<Self>, Error> {
        let (Some((of_a, _)), Some(of_p)) = (a.around(), preconditioner.around()) else {
            return Ok(None);
        };
        if !of_a.is_like(&of_p) {
            return Ok(None);
        }
        let (grid, numbers) = of_a.blocks();
        let block = numbers.next_multiple_of(32).min(THREADS);
        let shape = Shape { grid, block, shared: of_a.shared() };
        let options = [of_a.options(block), sizes(block)].concat();
        let program = a.gpu().program(&TOGETHER, &options)?;
        let blocks = grid[0] * grid[1];
        // Keep the kernels between the transforms
        Ok(Some(Self {
            exchange: program.kernel("exchange_rows")?,
            finish: program.kernel("finish_rows")?,
            step: program.kernel("step_rows")?,
            judge: program.kernel("judge_rows")?,
            parts: a.gpu().zeros(2 * blocks)?,
            squares: a.gpu().zeros(2 * blocks)?,
            a: Arc::clone(a),
            preconditioner: Arc::clone(preconditioner),
            shape,
        }))
    }

    // Queue an iteration between the transforms
    /// Queues the first pass of the first product with P.
    fn begin(&self, r: &Buffer<T>) -> Result<(), Error> {
        self.preconditioner.around().map_or(Ok(()), |around| around.transform_rows(r))
    }

    fn judge(&self, [_, last, _]: &[Buffer<f64>; 3]) -> Result<(), Error> {
        let blocks = self.shape.grid[0] * self.shape.grid[1];
        let shape = Shape { grid: [1; 3], shared: 0, ..self.shape };
        let arguments = [last.into(), (&self.squares).into(), blocks.into()];
        self.a.gpu().launch(&self.judge, shape, &arguments)
    }
    /// Queues an iteration of conjugate gradients, from the columns of P r to the rows of the next r.
    fn descend(&self, steps: &Steps<T>) -> Result<(), Error> {
        let around = (self.a.around(), self.preconditioner.around());
        let (Some((of_a, noise)), Some(of_p)) = around else { return Ok(()) };
        let launch = |kernel: &Kernel, arguments: &[&[Argument]]| {
            self.a.gpu().launch(kernel, self.shape, &arguments.concat())
        };
        let [now, last, _] = steps.states.each_ref().map(Argument::from);
        let [parts, squares] = [&self.parts, &self.squares].map(Argument::from);
        let (tables, [lines, columns]) = (of_a.tables(), of_a.lines_and_columns());
        let [lines_of_p, columns_of_p] = of_p.lines_and_columns();
        let [z, w, p, s, ..] = &steps.vectors;
        of_p.mix_columns()?;
        let vectors = [&steps.r, z].map(Argument::from);
        launch(&self.exchange, &[&[last, now, columns_of_p], &tables, &vectors, &[parts, lines]])?;
        of_a.mix_columns()?;
        let vectors = [&*noise, z, w].map(Argument::from);
        launch(&self.finish, &[&[now, columns], &tables, &vectors, &[parts]])?;
        let vectors = [z, w, p, s, &steps.x, &steps.r].map(Argument::from);
        let numbers = [now, last, parts, squares];
        launch(&self.step, &[&numbers, &tables, &vectors, &[lines_of_p]])
    }
}

// Report of the device
/// What the host wants to know of a state.
struct Report {
    iterations: usize,
    done: bool,
    /// What broke, and its value.
    fault: (usize, f64),
    /// Relative residuals: at the start of the sweep, and now.
    start: f64,
    residual: f64,
    /// ‖b‖.
    norm: f64,
    /// The residual at which the sweep ends.
    target: f64,
}

impl Report {
    fn new(numbers: &[f64; SCALARS + HISTORY]) -> Self {
        let [iterations, done, fault, value, start, residual, norm, target, ..] = *numbers;
        let (iterations, fault) = (iterations as usize, (fault as usize, value));
        Self { iterations, done: done != 0.0, fault, start, residual, norm, target }
    }

    // Guess the iterations that are left
    /// A guess at the iterations that are left in a sweep that began after so many.
    fn iterations_left(&self, before: usize) -> usize {
        let made = (self.iterations - before) as f64;
        let (gained, wanted) =
            ((self.start / self.residual).ln(), (self.residual / self.target).ln());
        let guess = if gained > 0.0 { 0.75 * made * wanted / gained } else { made };
        (guess.ceil() as usize).clamp(1, MANY.max(2 * made as usize))
    }
}

// Tests of the solver on a device
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_machines;
    use crate::matrix_gpu::MatrixGpu;
    use crate::operator::{Dense, Operator, battery};
    use ndarray::{Array1, Array2, ArrayView1};

    // Symmetric matrices for both solvers
    /// A symmetric matrix with these eigenvalues, turned by two reflections.
    fn with_eigenvalues(values: &[f64]) -> Array2<f64> {
        let mut a = Array2::from_diag(&Array1::from_vec(values.to_vec()));
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

    // Solve on the processor and on the device
    type Outcome = (Result<Solved, String>, Vec<f64>);

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
        let solved = solver.solve(&a.unwrap(), p, b, &mut x, &stop, &mut |_, _| ());
        (solved.map_err(|error| error.to_string()), x)
    }
    /// Solves from `x`, with a device.
    fn there(
        gpu: &Gpu,
        solver: Solver,
        matrices: [Option<&Array2<f64>>; 2],
        (b, x): (&[f64], &[f64]),
        stop: Stop,
    ) -> Outcome {
        let operator = |matrix: &Array2<f64>| -> Arc<dyn DeviceOperator<f64>> {
            Arc::new(MatrixGpu::new(gpu, matrix.view()).unwrap())
        };
        let [a, p] = matrices.map(|matrix| matrix.map(operator));
        let mut run = SolverGpu::new(solver, a.unwrap(), p).unwrap();
        run.solution().write(x).unwrap();
        let from = if x.iter().all(|&x| x == 0.0) { Start::Cold } else { Start::Warm };
        let solved = run.solve(&gpu.upload(b).unwrap(), from, &stop);
        (solved.map_err(|error| error.to_string()), run.solution().read().unwrap())
    }

    // Compare both solvers on both machines
    #[test]
    fn a_device_solves_as_the_processor_does() {
        let (few, many) = ([1.0, 3.0, 4.0, 9.0, 20.0], |k: usize| 1.0 + (k % 20) as f64);
        for gpu in test_machines() {
            for (n, value, tolerance) in [
                (40, &(|k: usize| few[k % 5]) as &dyn Fn(usize) -> f64, 1e-6),
                (530, &many, 1e-8),
                (60, &|k| 1.2f64.powi(k as i32 % 40), 1e-13),
            ] {
                let a = with_eigenvalues(&(0..n).map(value).collect::<Vec<_>>());
                let p = diagonal(|k| 1.0 / a[[k, k]], n);
                let (b, x) = (battery::random::<f64>(n, 9), vec![0.0; n]);
                for (solver, p) in SOLVERS.into_iter().flat_map(|s| [(s, None), (s, Some(&p))]) {
                    let stop = Stop { tolerance, iterations: 500 };
                    let matrices = [Some(&a), p];
                    let (expected, x_here) = here(solver, matrices, (&b, &x), stop);
                    let (solved, x_there) = there(&gpu, solver, matrices, (&b, &x), stop);
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
                    let error = battery::distance(&x_there, &x_here);
                    assert!(error < 1e-8 + tolerance, "{solver:?} {n}: {error:e}");
                    for (k, (device, processor)) in
                        solved.history.iter().zip(&expected.history).take(5).enumerate()
                    {
                        let near = (device - processor).abs() < 1e-11 * processor + 1e-13;
                        assert!(near, "{solver:?} {k}: {device:e} {processor:e}");
                    }
                    let b = Array1::from(b.clone());
                    let r = &b - &a.dot(&ArrayView1::from(&x_there));
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
    #[test]
    fn iterates_are_those_of_the_processor() {
        let n = 520;
        let a = with_eigenvalues(&(0..n).map(|k| 1.0 + (k % 60) as f64).collect::<Vec<_>>());
        let p = diagonal(|k| 1.0 / (1.0 + (k % 5) as f64), n);
        let (b, zero) = (battery::random::<f64>(n, 6), vec![0.0; n]);
        for (gpu, solver) in test_machines().iter().flat_map(|gpu| SOLVERS.map(|s| (gpu, s))) {
            for (p, iterations) in
                [None, Some(&p)].into_iter().flat_map(|p| [1, 2, 3, 7].map(|k| (p, k)))
            {
                let (stop, matrices) = (Stop { tolerance: 1e-12, iterations }, [Some(&a), p]);
                let (ours, x_here) = here(solver, matrices, (&b, &zero), stop);
                let (theirs, x_there) = there(gpu, solver, matrices, (&b, &zero), stop);
                assert_eq!(theirs.unwrap_err(), ours.unwrap_err(), "{solver:?} {iterations}");
                let error = battery::distance(&x_there, &x_here);
                assert!(error < 1e-10, "{solver:?} {iterations}: {error:e}");
            }
        }
    }

    // Compare what both refuse
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
        // Hold both machines to each case
        for gpu in test_machines() {
            for (solver, (a, p, b, x)) in
                SOLVERS.iter().flat_map(|s| cases.iter().map(move |c| (*s, c)))
            {
                let matrices = [Some(*a), *p];
                let (expected, x_here) = here(solver, matrices, (b, x), capped);
                let (outcome, x_there) = there(&gpu, solver, matrices, (b, x), capped);
                match (&outcome, &expected) {
                    (Ok(solved), Ok(expected)) => {
                        assert_eq!(solved.iterations, expected.iterations);
                        assert!(battery::distance(&x_there, &x_here) < 1e-12);
                    }
                    (Err(reason), Err(expected)) => {
                        assert!(alike(reason, expected), "{solver:?}: {reason}, {expected}")
                    }
                    _ => panic!("{solver:?}: {outcome:?} for {expected:?}"),
                }
            }
            // Refuse systems whose parts disagree
            let matrix =
                |shape| Arc::new(MatrixGpu::<f64>::new(&gpu, Array2::zeros(shape).view()).unwrap());
            let refused = |a, p: Option<_>| {
                let p = p.map(|p| matrix(p) as Arc<dyn DeviceOperator<f64>>);
                SolverGpu::new(Solver::Minres, matrix(a), p).err().unwrap().to_string()
            };
            assert!(refused((3, 4), None).contains("columns of the operator = 4: expected 3"));
            assert!(refused((3, 3), Some((4, 3))).contains("rows of the preconditioner = 4"));
            let mut run = SolverGpu::new(Solver::Minres, matrix((3, 3)), None).unwrap();
            assert!(run.solve(&gpu.zeros(4).unwrap(), Start::Cold, &capped).is_err());
            let stop = Stop { tolerance: 0.0, iterations: 1 };
            assert!(run.solve(&gpu.zeros(3).unwrap(), Start::Cold, &stop).is_err());
        }
    }

    // Go as far as single precision can
    #[test]
    fn single_precision_goes_as_far_on_a_device() {
        let a = with_eigenvalues(&(1..=30).map(f64::from).collect::<Vec<_>>());
        let b: Vec<f32> = battery::random(30, 2);
        for (gpu, solver) in test_machines().iter().flat_map(|gpu| SOLVERS.map(|s| (gpu, s))) {
            let operator = Arc::new(MatrixGpu::<f32>::new(gpu, a.view()).unwrap());
            let mut run = SolverGpu::new(solver, operator, None).unwrap();
            let b = gpu.upload(&b).unwrap();
            let mut to =
                |tolerance| run.solve(&b, Start::Warm, &Stop { tolerance, iterations: 1000 });
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
        let a = with_eigenvalues(&(0..n).map(|k| 1.0 + (k % 40) as f64).collect::<Vec<_>>());
        let truth = battery::random::<f64>(n, 3);
        let b = a.dot(&ArrayView1::from(&truth)).to_vec();
        for (gpu, solver) in test_machines().iter().flat_map(|gpu| SOLVERS.map(|s| (gpu, s))) {
            let b = gpu.upload(&b).unwrap();
            let operator = Arc::new(MatrixGpu::new(gpu, a.view()).unwrap());
            let mut run = SolverGpu::new(solver, operator, None).unwrap();
            let mut from = |x: &[f64], expected: usize| {
                run.expected = expected;
                run.solution().write(x).unwrap();
                let solved = run.solve(&b, Start::Warm, &stop).unwrap();
                (solved, run.solution().read().unwrap())
            };
            let cold = from(&vec![0.0; n], 1);
            assert_eq!(cold, from(&vec![0.0; n], 100), "{solver:?}");
            let near = truth.iter().zip(battery::random::<f64>(n, 4)).map(|(x, e)| x + 1e-5 * e);
            let warm = from(&near.collect::<Vec<_>>(), 20).0;
            assert!(0 < warm.iterations && warm.iterations + 5 < cold.0.iterations, "{solver:?}");
            assert_eq!(from(&truth, 20), (from(&truth, 1).0, truth.clone()));
            assert!(battery::distance(&cold.1, &truth) < 1e-7);
        }
    }
}
