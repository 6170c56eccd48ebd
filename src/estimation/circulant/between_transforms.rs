// Tangled from book/src/between-transforms.md: edit there, or here and run cargo tangle stitch.
//! Conjugate gradients with kernels between the transforms of two operators on the same lattices.

// What kernels between transforms stand on
use crate::device::gpu::{Argument, Buffer, Kernel, KernelSource, Shape};
use crate::device::headers::REAL;
use crate::error::Error;
use crate::estimation::circulant::gpu::CirculantGpu;
use crate::linear::solver::Solver;
use crate::linear::solver::gpu::{
    self as solver, DONE, Method, SCALARS, SIZES, SolverGpu, SolverWorkspace, THREADS,
};
use crate::linear::solver::multi_rhs::gpu::SideBySide;
use crate::linear::toeplitz::gpu::BlockToeplitzGpu;
use crate::linear::toeplitz::gpu::plain_sum::LOOPS;
use crate::linear::toeplitz::gpu::short_transforms::SHORT_TRANSFORMS;
use crate::linear::toeplitz::gpu::transforms::{Around, ROW_SPECTRA};
use crate::numerics::real::Real;
use std::sync::Arc;

const SOURCE: KernelSource = KernelSource {
    name: "iteration.cu",
    text: include_str!("../../../kernels/estimation/iteration.cu"),
    headers: &[REAL, LOOPS, SHORT_TRANSFORMS, ROW_SPECTRA, solver::HEADER],
};

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
    exchange: Kernel,
    finish: Kernel,
    step: Kernel,
    judge: Kernel,
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
        let program = gpu.program::<T>(&SOURCE, &sizes)?;
        let blocks: usize = grid.iter().product();
        Ok(Self {
            length: work.x.len() / grid[2],
            vectors: [work.vector()?, work.vector()?, work.vector()?],
            exchange: program.kernel("exchange_rows")?,
            finish: program.kernel("finish_rows")?,
            step: program.kernel("step_rows")?,
            judge: program.kernel("judge_rows")?,
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
impl<T: Real> Method<T> for Between<T> {
    fn solver(&self) -> Solver {
        Solver::ConjugateGradients
    }

    fn begin(&self, work: &SolverWorkspace<T>) -> Result<(), Error> {
        self.p.transform_rows(&work.r)
    }

    // Queue an iteration between the transforms
    fn iterate(&self, work: &SolverWorkspace<T>) -> Result<(), Error> {
        let launch = |kernel: &Kernel, arguments: &[&[Argument]]| {
            let length = self.length.into();
            work.a.gpu().launch(kernel, self.shape, &[&arguments.concat()[..], &[length]].concat())
        };
        let [now, last] = work.states.each_ref().map(Argument::from);
        let [parts, squares] = [&self.parts, &self.squares].map(Argument::from);
        let (tables, [lines, columns]) = (self.a.tables(), self.a.lines_and_columns());
        let [lines_of_p, columns_of_p] = self.p.lines_and_columns();
        let ([z, p, s], w) = (&self.vectors, &work.product);
        self.p.mix_columns(work.states[1].view(DONE..), SCALARS)?;
        let vectors = [&work.r, z].map(Argument::from);
        launch(&self.exchange, &[&[last, now, columns_of_p], &tables, &vectors, &[parts, lines]])?;
        self.a.mix_columns(work.states[0].view(DONE..), SCALARS)?;
        let vectors = [&*self.noise, z, w].map(Argument::from);
        launch(&self.finish, &[&[now, columns], &tables, &vectors, &[parts]])?;
        let vectors = [z, w, p, s, &work.x, &work.r].map(Argument::from);
        let numbers = [now, last, parts, squares];
        launch(&self.step, &[&numbers, &tables, &vectors, &[lines_of_p]])
    }

    fn judge(&self, work: &SolverWorkspace<T>) -> Result<(), Error> {
        let blocks = self.shape.grid[0] * self.shape.grid[1];
        let shape = Shape { grid: [1, 1, self.shape.grid[2]], shared: 0, ..self.shape };
        let arguments = [(&work.states[1]).into(), (&self.squares).into(), blocks.into()];
        work.a.gpu().launch(&self.judge, shape, &arguments)
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
