// Tangled from book/src/frame-method.md: edit there, or here and run cargo tangle stitch.
//! How the frames of an estimate are solved: the method with the least cost.

// Imports of the choice for frames
use crate::device::engine::Engine;
use crate::device::{CostKind, Speed};
use crate::error::{Invalid, count};
#[cfg(feature = "factorise")]
use crate::estimation::estimate::factorised::Factorised;
use crate::estimation::estimate::{EstimateOptions, PosedEstimate};
use crate::estimation::inversion::{
    Cost, Inversion, LARGEST, MatrixRates, iterations, toeplitz_product,
};
use crate::turbulence::plan::{SlopeCovariancePlan, dense_bytes};

// Method for the frames
// Method and its reason
/// How the frames of an estimate are solved, and why.
#[derive(Debug, Clone)]
pub(crate) struct FrameMethod {
    pub(crate) inversion: Inversion,
    pub(crate) reason: String,
    /// Whether a reconstructor is formed, by which the frames are multiplied.
    pub(crate) forms_reconstructor: bool,
}

impl FrameMethod {
    /// The requested method, or the fastest one; a reconstructor only if `form` allows it. Errors are those of [`Cost::choose`].
    pub(crate) fn choose(
        posed: &PosedEstimate,
        speed: &Speed,
        form: bool,
    ) -> Result<Self, Invalid> {
        let (options, cost) = (posed.options, cost(posed));
        let is_open = options.method == Inversion::Auto;
        if is_open && asks_for_iterations(&options) {
            return Ok(Self::solving(Inversion::Iterative, "its solver was asked for".into()));
        }
        let stars = posed.covariances.system().guide_stars();
        let (inversion, reason) = cost.choose(options.method, options.filter, stars, speed)?;
        let formed = (is_open && form).then(|| Self::forming(posed, &cost, speed, inversion));
        Ok(formed.flatten().unwrap_or(Self::solving(inversion, reason)))
    }

    // Form a reconstructor where it is faster
    /// A reconstructor formed by a factor, if that takes less time than the method that solves each frame.
    fn forming(
        posed: &PosedEstimate,
        cost: &Cost,
        speed: &Speed,
        solving: Inversion,
    ) -> Option<Self> {
        let (n, rows) = (cost.slopes, rows(posed));
        let bytes = 8 * (n as u64).saturating_mul(n.max(rows) as u64);
        if !cfg!(feature = "factorise") || bytes > LARGEST {
            return None;
        }
        let stars = posed.covariances.system().guide_stars();
        let (dense, why) = Inversion::dense(posed.options.filter, stars);
        let total = |work: &[Vec<(CostKind, f64)>]| -> f64 {
            work.iter().map(|work| speed.seconds(work)).sum()
        };
        let formed = total(&of_reconstructor(posed, cost, dense));
        let solved = total(&cost.of(solving)) + total(&[of_products(posed, cost, solving)]);
        (formed < solved).then(|| Self::formed(dense, why, [rows, n], cost.frames))
    }

    // Words about a formed reconstructor
    /// A reconstructor of so many rows and columns for some frames.
    fn formed(dense: Inversion, why: &str, [rows, n]: [usize; 2], frames: usize) -> Self {
        let frames = count(frames, "frame");
        let reason = format!(
            "{why}; it forms a reconstructor of {rows} × {n} elements, as a product with each of {frames} takes less time \
             than a solution"
        );
        Self { inversion: dense, reason, forms_reconstructor: true }
    }
}

// Methods that solve each frame
/// Whether options have been set that iterations alone have a use for, and none that they cannot have.
fn asks_for_iterations(options: &EstimateOptions) -> bool {
    let usual = EstimateOptions::default();
    let asked = options.solver != usual.solver
        || options.preconditioned != usual.preconditioned
        || options.iterations.is_some();
    asked && options.filter == 0.0
}

impl FrameMethod {
    fn solving(inversion: Inversion, reason: String) -> Self {
        Self { inversion, reason, forms_reconstructor: false }
    }

    /// Iterations, as something that this method needs is missing.
    pub(crate) fn without(&self, missing: &str) -> Self {
        let reason = format!("{} cannot be: {missing}", self.inversion.name());
        Self::solving(Inversion::Iterative, reason)
    }
}

// Cost of a posed estimate
// Bytes of a factor and its matrices
/// Bytes of a factor on the first device, and how many matrices of its size the host has meanwhile.
#[cfg(feature = "factorise")]
pub(crate) fn factor_bytes(n: usize, method: Inversion, engine: &Engine) -> (u64, u64) {
    let filtered = method == Inversion::Eigen;
    let there = Factorised::bytes_on_device(n, filtered, engine);
    (there, if filtered && engine.devices().is_empty() { 4 } else { 1 })
}

#[cfg(not(feature = "factorise"))]
pub(crate) fn factor_bytes(_: usize, _: Inversion, _: &Engine) -> (u64, u64) {
    (0, 0)
}

/// Cost of solving the frames of an estimate.
pub(crate) fn cost(posed: &PosedEstimate) -> Cost {
    let (system, slopes) = (posed.covariances.system(), posed.noise.variances.len());
    let toeplitz = |plan: &SlopeCovariancePlan| {
        toeplitz_product(plan.problem().sources(), plan.problem().lags())
    };
    let product = match (posed.covariances.slopes(), posed.covariances.blocks()) {
        (Some(plan), _) => toeplitz(plan),
        (_, Some(blocks)) => {
            let lattices = blocks.slopes.iter().map(toeplitz).sum::<f64>();
            lattices + 16.0 * blocks.entries()[0] as f64 / 5e9
        }
        _ => dense_bytes(system)[0] as f64 / 5e9,
    };
    let iterations = iterations(system, posed.options.limit(slopes));
    Cost { slopes, frames: posed.options.frames, product, iterations }
}

// Cost of a formed reconstructor
/// Rows of a reconstructor, T M².
fn rows(posed: &PosedEstimate) -> usize {
    posed.targets * posed.points.pow(2)
}

/// Whether Θ and Ξ are dense matrices.
fn is_dense(posed: &PosedEstimate) -> bool {
    posed.covariances.wavefront().is_none() && posed.covariances.blocks().is_none()
}

/// Work of one thread for the wavefronts of all frames, and with a factor for their residuals.
fn of_products(posed: &PosedEstimate, cost: &Cost, solving: Inversion) -> Vec<(CostKind, f64)> {
    let [n, rows, frames] = [cost.slopes, rows(posed), cost.frames].map(|k| k as f64);
    let is_factor = solving != Inversion::Iterative;
    vec![match is_dense(posed) {
        true => {
            let residual = if is_factor { n * n } else { 0.0 };
            MatrixRates::of_threads().products(frames * (residual + rows * n), n)
        }
        false => (CostKind::Transforms, frames * cost.product * if is_factor { 2.0 } else { 1.0 }),
    }]
}

/// Work of one thread to factorise, to form a reconstructor, and to multiply all frames by it.
pub(crate) fn of_reconstructor(
    posed: &PosedEstimate,
    cost: &Cost,
    dense: Inversion,
) -> [Vec<(CostKind, f64)>; 3] {
    let [n, rows, frames] = [cost.slopes, rows(posed), cost.frames].map(|k| k as f64);
    let rates = MatrixRates::of_threads();
    let [factor, _] = cost.of(dense);
    let residuals = match is_dense(posed) {
        true => rates.products(rows * n * n, n),
        false => (CostKind::Transforms, (n + rows) * cost.product),
    };
    let matrix = vec![rates.products(rows * n * n, n), residuals];
    [factor, matrix, vec![rates.products(frames * rows * n, n)]]
}
