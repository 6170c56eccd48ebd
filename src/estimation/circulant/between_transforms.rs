// Tangled from book/src/between-transforms.md: edit there, or here and run cargo tangle stitch.
//! Conjugate gradients with kernels between the transforms of two operators on the same lattices.

// Imports of kernels between transforms
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, KernelSource, Shape};
use crate::device::headers::REAL;
use crate::error::Error;
use crate::estimation::circulant::gpu::CirculantGpu;
use crate::linear::solver::Solver;
use crate::linear::solver::gpu::{
    self as solver, DONE, SCALARS, SIZES, SolverGpu, SolverMethod, SolverWorkspace, THREADS,
};
use crate::linear::solver::multi_rhs::gpu::SideBySide;
use crate::linear::toeplitz::gpu::BlockToeplitzGpu;
use crate::linear::toeplitz::gpu::plain_sum::LOOPS;
use crate::linear::toeplitz::gpu::short_transforms::SHORT_TRANSFORMS;
use crate::linear::toeplitz::gpu::transforms::{Around, ROW_SPECTRA};
use crate::numerics::real::Real;
use num_complex::Complex;
use std::sync::Arc;

const SOURCE: KernelSource = KernelSource {
    name: "iteration.cu",
    text: include_str!("../../../kernels/estimation/iteration.cu"),
    headers: &[REAL, LOOPS, SHORT_TRANSFORMS, ROW_SPECTRA, solver::HEADER],
};

// Kernels between the transforms
kernels! {
    /// Kernels of conjugate gradients between the transforms of two operators.
    struct BetweenKernels in SOURCE {
        /// Restores the rows of z and transforms them for A; r·z.
        exchange_rows: ExchangeRows<T> {
            last: [f64] as "State", now: [f64] as "State", columns: [Complex<T>], places: [[i32; 2]],
            roots: [Complex<T>], r: [T], z: [T], parts: [f64], lines: [Complex<T>], n: usize,
        }
        /// Restores the rows of w; w·z.
        finish_rows: FinishRows<T> {
            now: [f64] as "State", columns: [Complex<T>], places: [[i32; 2]], roots: [Complex<T>],
            noise: [T], z: [T], w: [T], parts: [f64], n: usize,
        }
        /// Takes a step, and transforms the rows of the residual for P.
        step_rows: StepRows<T> {
            now: [f64] as "State", next: [f64] as "State", parts: [f64], squares: [f64],
            places: [[i32; 2]], roots: [Complex<T>], z: [T], w: [T], p: [T], s: [T], x: [T], r: [T],
            lines: [Complex<T>], n: usize,
        }
        /// Judges the last residual.
        judge_rows: JudgeRows { state: [f64] as "State", squares: [f64], blocks: usize }
    }
}

// Make a solver between the transforms
impl<T: Real> SolverGpu<T> {
    /// A solver by conjugate gradients, with kernels between the transforms where both operators work by transforms of the
    /// same lattices.
    ///
    /// # Errors
    /// As for [`SolverGpu::new`].
    pub(crate) fn between_transforms(
        a: Arc<BlockToeplitzGpu<T>>,
        preconditioner: Arc<CirculantGpu<T>>,
    ) -> Result<Self, Error> {
        match Self::joined(&a, &preconditioner)? {
            Some(joined) => Ok(joined),
            None => Self::new(Solver::ConjugateGradients, a, Some(preconditioner)),
        }
    }

    // Join an operator and its preconditioner
    /// A solver with kernels between the transforms; `None` where the two operators do not work by transforms of the same lattices.
    pub(crate) fn joined(
        a: &Arc<BlockToeplitzGpu<T>>,
        p: &Arc<CirculantGpu<T>>,
    ) -> Result<Option<Self>, Error> {
        let Some((work, between)) = Between::joined(a, p)? else { return Ok(None) };
        Self::of(work, Box::new(between)).map(Some)
    }
}

// Launches between the transforms
/// Kernels between the transforms of two operators on the same lattices.
struct Between<T> {
    a: Around<T>,
    p: Around<T>,
    /// The diagonal of A.
    noise: Arc<Buffer<T>>,
    /// z, and of conjugate gradients p and s.
    vectors: [Buffer<T>; 3],
    kernels: BetweenKernels<T>,
    shape: Shape,
    /// Numbers of a vector.
    length: usize,
    /// Parts of r·z and of w·z, and of the squares of the last residual and the next.
    parts: Buffer<f64>,
    squares: Buffer<f64>,
}

impl<T: Real> Between<T> {
    const VECTORS: usize = 3;

    // Room between the transforms
    /// The kernels for two operators, and their room; none where these do not go together.
    fn joined(
        a: &Arc<BlockToeplitzGpu<T>>,
        p: &Arc<CirculantGpu<T>>,
    ) -> Result<Option<(SolverWorkspace<T>, Self)>, Error> {
        let Some(((of_a, noise), of_p)) = a.around().zip(p.around()) else { return Ok(None) };
        if !of_a.is_like(&of_p)? {
            return Ok(None);
        }
        let systems = of_a.blocks().0[2];
        let a = Arc::<BlockToeplitzGpu<T>>::clone(a);
        let work = SolverWorkspace::of_systems(a, Self::VECTORS, systems)?;
        let between = Self::new(&work, of_a, of_p, noise)?;
        Ok(Some((work, between)))
    }

    // Compile the kernels between the transforms
    fn new(
        work: &SolverWorkspace<T>,
        a: Around<T>,
        p: Around<T>,
        noise: Arc<Buffer<T>>,
    ) -> Result<Self, Error> {
        let (gpu, (grid, numbers)) = (work.a.gpu(), a.blocks());
        let block = numbers.next_multiple_of(32).min(THREADS);
        let sizes = [&a.sizes(block)[..], &SIZES].concat();
        let blocks: usize = grid.iter().product();
        Ok(Self {
            length: work.x.len() / grid[2],
            vectors: [work.vector()?, work.vector()?, work.vector()?],
            kernels: BetweenKernels::load(gpu, &sizes)?,
            shape: Shape { grid, block, shared: a.shared() },
            parts: gpu.zeros(2 * blocks)?,
            squares: gpu.zeros(2 * blocks)?,
            a,
            p,
            noise,
        })
    }
}

// Method between the transforms
impl<T: Real> SolverMethod<T> for Between<T> {
    fn solver(&self) -> Solver {
        Solver::ConjugateGradients
    }

    fn begin(&self, work: &SolverWorkspace<T>) -> Result<(), Error> {
        self.p.transform_rows(&work.r)
    }

    // Queue an iteration between the transforms
    fn iterate(&self, work: &SolverWorkspace<T>) -> Result<(), Error> {
        let (gpu, kernels, n) = (work.a.gpu(), &self.kernels, self.length);
        let [now, last] = work.states.each_ref().map(|state| state.view(..));
        let [parts, squares] = [&self.parts, &self.squares].map(|numbers| numbers.view(..));
        let ((places, roots), [lines, columns]) = (self.a.tables(), self.a.lines_and_columns());
        let [lines_of_p, columns_of_p] = self.p.lines_and_columns();
        let [z, p, s] = self.vectors.each_ref().map(|vector| vector.view(..));
        let [w, x, r] = [&work.product, &work.x, &work.r].map(|vector| vector.view(..));
        self.p.mix_columns(work.states[1].view(DONE..), SCALARS)?;
        let exchange =
            ExchangeRows { last, now, columns: columns_of_p, places, roots, r, z, parts, lines, n };
        gpu.launch(&kernels.exchange_rows, self.shape, exchange)?;
        self.a.mix_columns(work.states[0].view(DONE..), SCALARS)?;
        let noise = self.noise.view(..);
        let finish = FinishRows { now, columns, places, roots, noise, z, w, parts, n };
        gpu.launch(&kernels.finish_rows, self.shape, finish)?;
        let (next, lines) = (last, lines_of_p);
        let step =
            StepRows { now, next, parts, squares, places, roots, z, w, p, s, x, r, lines, n };
        gpu.launch(&kernels.step_rows, self.shape, step)
    }

    fn judge(&self, work: &SolverWorkspace<T>) -> Result<(), Error> {
        let blocks = self.shape.grid[0] * self.shape.grid[1];
        let shape = Shape { grid: [1, 1, self.shape.grid[2]], shared: 0, ..self.shape };
        let (state, squares) = (work.states[1].view(..), self.squares.view(..));
        let arguments = JudgeRows { state, squares, blocks };
        work.a.gpu().launch(&self.kernels.judge_rows, shape, arguments)
    }
}

// Join systems side by side
impl<T: Real> SideBySide<T> {
    /// For as many right-hand sides as both operators multiply vectors side by side; with kernels between the transforms where they
    /// work by transforms of the same lattices.
    ///
    /// # Errors
    /// As for [`SideBySide::new`].
    pub(crate) fn between_transforms(
        a: Arc<BlockToeplitzGpu<T>>,
        preconditioner: Arc<CirculantGpu<T>>,
        systems: usize,
    ) -> Result<Self, Error> {
        match Between::joined(&a, &preconditioner)? {
            Some((work, between)) => Self::of(work, Box::new(between)),
            None => Self::new(a, preconditioner, systems),
        }
    }
}

// Tests of joined operators
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::estimation::circulant::Group;
    use crate::linear::operator::gpu::DeviceOperator;
    use crate::linear::toeplitz::Parts;
    use crate::linear::toeplitz::gpu::Tuning;
    use crate::linear::toeplitz::tests::{covariance, masks};
    use ndarray::s;

    // Join only what belongs together
    #[test]
    fn only_operators_on_the_same_lattices_are_joined() {
        let (covariance, valid) = (covariance(2, 7), masks(2, 7, 0.7, 5));
        let mirrored: Vec<_> =
            valid.iter().map(|mask| mask.slice(s![.., ..;-1]).to_owned()).collect();
        assert_ne!(valid, mirrored);
        let parts = Parts::slopes(&covariance, &valid).unwrap();
        let noise = [0.3, 0.4];
        let group = |valid| Group { covariance: &covariance, noise: &noise, valid, stars: &[0, 1] };
        let transforms = |direct| Tuning { direct: Some(direct), ..Tuning::default() };
        for gpu in test_backends() {
            // Make operators and join them
            let operator = |direct| {
                BlockToeplitzGpu::<f64>::of(&gpu, &parts, true, transforms(direct)).unwrap()
            };
            let with_noise = |direct| {
                let a = operator(direct);
                let noise = vec![0.3; a.rows()];
                Arc::new(a.with_diagonal(&noise).unwrap())
            };
            let p = |valid, direct| {
                let groups = [group(valid)];
                Arc::new(CirculantGpu::<f64>::tuned(&gpu, &groups, transforms(direct)).unwrap())
            };
            let joined = |a: &Arc<_>, p: &Arc<_>| SolverGpu::joined(a, p).unwrap().is_some();
            let a = with_noise(false);
            assert!(joined(&a, &p(&valid, false)));
            assert!(!joined(&a, &p(&mirrored, false)) && !joined(&a, &p(&valid, true)));
            assert!(!joined(&with_noise(true), &p(&valid, false)));
            assert!(!joined(&Arc::new(operator(false)), &p(&valid, false)));
        }
    }
}
