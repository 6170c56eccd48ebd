// Tangled from book/src/covariance.md: edit there, or here and run cargo tangle stitch.
//! Slope and wavefront–slope covariance of a system by either method.

mod blocks;
mod gpu;

// Imports of computing a covariance
use crate::device::{CostKind, engine::Engine, threads};
use crate::error::{Error, Invalid, count};
use crate::model::lenslet_array::{LensletArray, SlopeOrder};
use crate::model::system::{SlopeModel, System};
use crate::model::wavefront_grid::PhaseGrid;
use crate::plan::{Description, Memory, Plan, Stage};
use crate::turbulence::blocks::{CrossBlocks, LatticeGroups};
use crate::turbulence::cost_model::{SensorCost, VIEW, VIEW_LAG, among, time_of_slopes};
use crate::turbulence::slope::{SlopeCovariance, SlopeProblem};
use crate::turbulence::spectral::error::Chosen;
use crate::turbulence::spectral::slope::SpectralSampling;
use crate::turbulence::wavefront::{WavefrontProblem, WavefrontSlope};
use crate::turbulence::{cross_covariance, direct, edge_midpoint, spectral};
use crate::watch::{Watch, check};
use ndarray::{Array, Array2, Array4, Dimension};
use rayon::prelude::*;

// Slope problem of a system
/// The problem of a system's slope covariance.
///
/// # Errors
/// `NotToeplitz` where the sensors share no lattice, or slopes are differences between points; `Invalid` as in
/// [`SlopeProblem::of_sensors`].
pub fn slope_problem(system: &System) -> Result<SlopeProblem, Error> {
    if system.slope_model() == SlopeModel::EdgeMidpoint {
        let reason =
            "covariance.slope_model = edge-midpoint has the dense form alone: expected average";
        return Err(Error::NotToeplitz { reason: reason.into() });
    }
    SlopeProblem::of_sensors(system.atmosphere(), &system.sensors(), system.cone_gradient())
}

// Wavefront problem of a system
/// Why slopes must be averages where there are wavefronts.
pub(crate) const NO_WAVEFRONT: &str = "wavefronts with slopes have no formula of four points";

/// The problem of a system's wavefront–slope covariance.
///
/// # Errors
/// `Invalid` where the system has no target, no grid of wavefront points or another model of slopes, and as in [`WavefrontProblem::of_sensors`];
/// `NotToeplitz` as there.
pub fn wavefront_problem(system: &System) -> Result<WavefrontProblem, Error> {
    let (grid, sensors) = (system.wavefront_grid()?, system.sensors());
    system.expect_average(NO_WAVEFRONT)?;
    let sources = (system.targets(), sensors.as_slice());
    WavefrontProblem::of_sensors(system.atmosphere(), sources, grid, system.cone_gradient())
}

// Stages of the covariances
/// Names of the stages of a covariance.
pub(crate) const SLOPES: &str = "slopes";
pub(crate) const WAVEFRONT: &str = "wavefront and slopes";
pub(crate) const WAVEFRONTS: &str = "wavefronts";

/// What the CPU computes in double precision only.
const COVARIANCES: &str = "covariances";

/// What the parts of a stage are called that are too technical for a name.
pub(crate) const PIECES: &str = "pieces";

/// Seconds of one thread for a pair of target and star and a layer, and for one of its lags.
const NEAR_WAVEFRONT: f64 = 2.5e-3;
const FAR_WAVEFRONT: f64 = 20e-9;

/// Seconds of one thread for an entry of dense wavefront and slopes and a layer, and of the wavefronts.
const ENTRY_OF_WAVEFRONT: f64 = 50e-9;
const ENTRY_OF_WAVEFRONTS: f64 = 20e-9;

// Methods of slope covariance
/// How to compute a covariance.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Method {
    /// In real space: exact to 1e-10 of the variance, and fast.
    #[default]
    Direct,
    /// Through the power spectrum, as the original program does, with this sampling; `None` lets the error choose.
    Spectral(Option<SpectralSampling>),
}
/// A sampling that is given, with its error.
fn given(sampling: SpectralSampling, error_estimate: f64, unit: &'static str) -> Chosen {
    Chosen { sampling, error_estimate, limited: false, unit }
}

// Plan of the slope covariance
/// How the covariance of slopes will be computed.
///
/// ```
/// use lenslet::device::Engine;
/// use lenslet::plan::Plan;
/// use lenslet::watch::unwatched;
/// use lenslet::model::System;
/// use lenslet::turbulence::*;
/// let system = System::from_file("book/systems/small.toml")?;
/// let plan = SlopeCovariancePlan::direct(slope_problem(&system)?);
/// let covariance = plan.run(&Engine::default(), &unwatched)?;
/// // 0.1622428 λ² d^(−1/3) r0^(−5/3) without the outer scale; L0 = 30 m takes 24 % of it away.
/// let kolmogorov = 0.1622428 * 500e-9f64.powi(2) * 0.1f64.powf(-1.0 / 3.0) * 0.15f64.powf(-5.0 / 3.0);
/// assert!((covariance.variance() / kolmogorov - 0.761653).abs() < 1e-6);
/// assert!((covariance.variance() - 1.5717277e-12).abs() < 1e-18);
/// assert_eq!(covariance.values().len(), 6084);
/// // The quadratic term of the structure function explains it.
/// let quadratic = 3.0 * 0.0863143 / 0.1622428 * (0.1f64 / 30.0).powf(1.0 / 3.0);
/// assert!((covariance.variance() / kolmogorov - (1.0 - quadratic)).abs() < 1e-4);
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SlopeCovariancePlan {
    problem: SlopeProblem,
    chosen: Option<Chosen>,
}

// Steps of the slope plan
impl SlopeCovariancePlan {
    // Plan the slope covariance
    /// Plans the covariance of a problem by the direct method.
    pub fn direct(problem: SlopeProblem) -> Self {
        Self { problem, chosen: None }
    }

    /// Plans the covariance of a problem.
    ///
    /// # Errors
    /// `Invalid` if the period of the spectral sampling is shorter than the lattice of the problem.
    pub fn new(problem: SlopeProblem, method: Method) -> Result<Self, Error> {
        let chosen = match method {
            Method::Direct => None,
            Method::Spectral(None) => Some(SpectralSampling::choose(&problem)),
            Method::Spectral(Some(sampling)) => {
                Some(given(sampling, sampling.error_estimate(&problem), "variance"))
            }
        };
        if let Some(chosen) = &chosen {
            let lenslets = format_args!("{} lenslets", problem.lenslets());
            chosen.sampling.check(lenslets, problem.lags())?;
        }
        Ok(Self { problem, chosen })
    }

    // Getters of the slope plan
    /// The problem of this plan.
    pub fn problem(&self) -> &SlopeProblem {
        &self.problem
    }

    /// The sampling of the spectral method with its error; `None` for the direct one.
    pub fn chosen(&self) -> Option<&Chosen> {
        self.chosen.as_ref()
    }

    // Count the memory of the slope covariance
    /// Bytes of the result.
    fn result_bytes(&self) -> u64 {
        (self.problem.len() as u64).saturating_mul(8)
    }

    /// The working memory of the plan, besides its result.
    pub(crate) fn working(&self, engine: &Engine) -> Memory {
        let (pairs, field) = (self.problem.pairs(), field_bytes(self.problem.lags()));
        let fields = 3 * pairs.len() as u64;
        if engine.devices().is_empty() {
            let host = match &self.chosen {
                None => field.saturating_mul(fields + 6 * threads() as u64),
                Some(chosen) => chosen.sampling.memory(&self.problem),
            };
            return Memory { host, devices: Vec::new() };
        }
        Memory { host: field.saturating_mul(2 * fields), devices: self.on_devices(engine) }
    }

    // Describe the slope plan
    /// What is computed, in words.
    fn what(&self) -> String {
        let (sources, lenslets) = (self.problem.sources(), self.problem.lenslets());
        let stars = count(sources, "guide star");
        format!("the covariance of {stars} on {lenslets} × {lenslets} lenslets")
    }

    /// Name and shape of the result.
    fn array(&self) -> (String, Vec<usize>) {
        let (stars, lags) = (self.problem.sources(), self.problem.lags());
        ("slope_slope".into(), vec![stars, stars, 2, 2, lags, lags])
    }

    // Work of the slope covariance
    /// Seconds of one thread by the built-in rates.
    fn work(&self) -> (CostKind, f64) {
        let views = (self.problem.pairs().len() * self.problem.layers().len()) as f64;
        match &self.chosen {
            None => {
                let lags = (self.problem.lags() as f64).powi(2);
                (CostKind::Integrals, views * (VIEW + VIEW_LAG * lags))
            }
            Some(chosen) => (CostKind::Integrals, 4e-9 * chosen.sampling.work(&self.problem)),
        }
    }

    /// The stage of a run.
    fn stage(&self, engine: &Engine) -> Stage {
        Stage::new(SLOPES, &[self.work()], engine)
    }

    // Compute the slope covariance of a plan
    /// The slope covariance of all pairs of guide stars, rad², without the check of memory, which a larger plan has made.
    pub(crate) fn compute(
        &self,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<SlopeCovariance, Error> {
        watch.stage(SLOPES, PIECES);
        let pairs = match (engine.devices(), &self.chosen) {
            ([], None) => direct::slope::pair_covariances(&self.problem, watch)?,
            ([], Some(chosen)) => {
                spectral::slope::pair_covariances(&self.problem, &chosen.sampling, watch)?
            }
            _ => self.pairs_on(engine, watch)?,
        };
        check(watch)?;
        let covariance = SlopeCovariance::from_pairs(&self.problem, &pairs);
        check_finite("slope_slope", covariance.values())?;
        Ok(covariance)
    }
}

// Run the plan of the slope covariance
impl Plan for SlopeCovariancePlan {
    /// The slope covariance of all pairs of guide stars, (S, S, 2, 2, 2N − 1, 2N − 1), rad².
    type Output = SlopeCovariance;

    fn check_engine(&self, engine: &Engine) -> Result<(), Error> {
        Ok(engine.require_double_on_cpu(COVARIANCES)?)
    }

    fn describe(&self, engine: &Engine) -> Result<Description, Error> {
        self.check_engine(engine)?;
        let memory = Memory::of_stages(self.result_bytes(), [&self.working(engine)]);
        let (arrays, chosen) = (vec![self.array()], self.chosen.as_ref());
        Ok(compressed((self.what(), arrays), chosen, (memory, self.stage(engine)), engine))
    }

    fn subject(&self) -> String {
        self.what()
    }

    fn run(&self, engine: &Engine, watch: &dyn Watch) -> Result<SlopeCovariance, Error> {
        self.check(engine)?;
        self.compute(engine, watch)
    }
}

// Plan of the wavefront covariance
// Describe a compressed covariance
/// Description of a covariance in the Toeplitz form: its words and arrays, its sampling if it has one, its memory and its stage.
fn compressed(
    (what, arrays): (String, Vec<(String, Vec<usize>)>),
    chosen: Option<&Chosen>,
    (memory, stage): (Memory, Stage),
    engine: &Engine,
) -> Description {
    Description {
        what,
        arrays,
        form: "toeplitz",
        reason: "the guide stars share a lattice".into(),
        method: chosen.map_or("direct".into(), |chosen| format!("spectral, {chosen}")),
        slope_model: SlopeModel::Average.name(),
        engine: engine.name(),
        memory,
        stages: vec![stage],
        rates: engine.speed().to_string(),
    }
}

/// How the covariance of wavefronts with slopes will be computed.
///
/// ```
/// use lenslet::turbulence::{WavefrontCovariancePlan, wavefront_problem};
/// use lenslet::plan::Plan;
/// use lenslet::{device::Engine, watch::unwatched, model::System};
/// let system = System::from_file("book/systems/keck-lgs.toml")?;
/// let plan = WavefrontCovariancePlan::direct(wavefront_problem(&system)?);
/// let covariance = plan.run(&Engine::default(), &unwatched)?;
/// // Laser stars have a lattice for each layer: targets, stars, x and y, displacements along y and x.
/// let lattice = &covariance.lattices()[0];
/// assert_eq!(lattice.shape()[..3], [2, 4, 2]);
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct WavefrontCovariancePlan {
    problem: WavefrontProblem,
    chosen: Option<Chosen>,
}

// Steps of the wavefront plan
impl WavefrontCovariancePlan {
    // Plan the wavefront covariance
    /// Plans the covariance of a problem by the direct method.
    pub fn direct(problem: WavefrontProblem) -> Self {
        Self { problem, chosen: None }
    }

    /// Plans the covariance of a problem.
    ///
    /// # Errors
    /// `Invalid` if the period of the spectral sampling is shorter than the lattice of the problem.
    pub fn new(problem: WavefrontProblem, method: Method) -> Result<Self, Error> {
        let chosen = match method {
            Method::Direct => None,
            Method::Spectral(None) => Some(spectral::wavefront::choose(&problem)),
            Method::Spectral(Some(sampling)) => {
                let error = spectral::wavefront::error_estimate(&problem, &sampling);
                Some(given(sampling, error, "largest entry"))
            }
        };
        if let Some(chosen) = &chosen {
            spectral::wavefront::check(&problem, &chosen.sampling)?;
        }
        Ok(Self { problem, chosen })
    }

    // Getters of the wavefront plan
    /// The problem of this plan.
    pub fn problem(&self) -> &WavefrontProblem {
        &self.problem
    }

    /// The sampling of the spectral method with its error; `None` for the direct one.
    pub fn chosen(&self) -> Option<&Chosen> {
        self.chosen.as_ref()
    }

    // Count the memory of the wavefront covariance
    /// Bytes of the result.
    fn result_bytes(&self) -> u64 {
        (self.problem.len() as u64).saturating_mul(8)
    }

    fn most_lags(&self) -> usize {
        self.problem.layers().iter().map(|layer| self.problem.lags(layer)).max().unwrap_or(0)
    }

    /// The working memory of the plan, besides its result.
    pub(crate) fn working(&self, engine: &Engine) -> Memory {
        if engine.devices().is_empty() {
            let fields = field_bytes(self.most_lags()).saturating_mul(8 * threads() as u64);
            let host = match &self.chosen {
                None => fields.saturating_add(self.result_bytes()),
                Some(chosen) => spectral::wavefront::memory(&self.problem, &chosen.sampling),
            };
            return Memory { host, devices: Vec::new() };
        }
        Memory { host: 2 * self.result_bytes(), devices: self.on_devices(engine) }
    }

    // Describe the wavefront plan
    /// What is computed, in words.
    fn what(&self) -> String {
        let (targets, points) = (self.problem.targets(), self.problem.grid().points);
        let targets = count(targets, "target");
        format!("the covariance of {targets} on {points} × {points} points with the slopes")
    }

    /// Name and shape of each lattice.
    fn arrays(&self) -> Vec<(String, Vec<usize>)> {
        let problem = &self.problem;
        let shape = |lags| vec![problem.targets(), problem.stars(), 2, lags, lags];
        let lags = problem.lattices().map(|layers| problem.lags(&layers[0]));
        lags.enumerate().map(|(k, lags)| (lattice_name(problem, k), shape(lags))).collect()
    }

    /// The stage of a run.
    pub(crate) fn stage(&self, engine: &Engine) -> Stage {
        Stage::new(WAVEFRONT, &[self.work()], engine)
    }

    // Work of the wavefront covariance
    /// Seconds of one thread.
    fn work(&self) -> (CostKind, f64) {
        let pairs = (self.problem.targets() * self.problem.stars()) as f64;
        let lags = |layer| (self.problem.lags(layer) as f64).powi(2);
        match &self.chosen {
            None => {
                let layers = self.problem.layers().iter();
                let layers =
                    layers.map(|layer| NEAR_WAVEFRONT + FAR_WAVEFRONT * lags(layer)).sum::<f64>();
                (CostKind::Integrals, pairs * layers)
            }
            Some(chosen) => {
                let work = spectral::wavefront::work(&self.problem, &chosen.sampling);
                (CostKind::Integrals, 4e-9 * work)
            }
        }
    }

    // Compute the wavefront covariance of a plan
    /// The wavefront–slope covariance of all targets and guide stars, m rad, without the check of memory, which a larger plan has made.
    pub(crate) fn compute(
        &self,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<WavefrontSlope, Error> {
        watch.stage(WAVEFRONT, PIECES);
        let problem = &self.problem;
        let covariance = match (engine.devices(), &self.chosen) {
            ([], None) => direct::wavefront::covariance(problem, watch)?,
            ([], Some(chosen)) => {
                spectral::wavefront::covariance(problem, &chosen.sampling, watch)?
            }
            _ => self.compute_on(engine, watch)?,
        };
        check(watch)?;
        for (k, lattice) in covariance.lattices().iter().enumerate() {
            check_finite(&lattice_name(problem, k), lattice)?;
        }
        Ok(covariance)
    }
}

// Run the plan of the wavefront covariance
impl Plan for WavefrontCovariancePlan {
    /// The wavefront–slope covariance of all targets and guide stars, lattice by lattice, m rad.
    type Output = WavefrontSlope;

    fn check_engine(&self, engine: &Engine) -> Result<(), Error> {
        Ok(engine.require_double_on_cpu(COVARIANCES)?)
    }

    fn describe(&self, engine: &Engine) -> Result<Description, Error> {
        self.check_engine(engine)?;
        let memory = Memory::of_stages(self.result_bytes(), [&self.working(engine)]);
        let (arrays, chosen) = (self.arrays(), self.chosen.as_ref());
        Ok(compressed((self.what(), arrays), chosen, (memory, self.stage(engine)), engine))
    }

    fn subject(&self) -> String {
        self.what()
    }

    fn run(&self, engine: &Engine, watch: &dyn Watch) -> Result<WavefrontSlope, Error> {
        self.check(engine)?;
        self.compute(engine, watch)
    }
}

// All forms of a system's covariances
// All covariances of a system
/// The form of a covariance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Form {
    /// Toeplitz where the geometry allows it; else dense, or in blocks where a dense matrix of all slopes would take more than 2 GiB.
    #[default]
    Auto,
    /// Toeplitz-compressed; refused where there is no such form.
    Toeplitz,
    /// In blocks: Toeplitz for stars that share a lattice, dense between those that do not.
    Blocks,
    /// Dense: each pair of valid lenslets, each point, exact also where the cones differ.
    Dense,
}

// Results of a covariance plan
/// Covariances of slopes, and of wavefronts and slopes.
#[derive(Debug, Clone)]
pub struct Covariances {
    /// Of the slopes with themselves.
    pub slope_slope: SlopeSlope,
    /// Of the wavefronts with the slopes, where there are targets and a grid.
    pub wavefront_slope: Option<WavefrontSlopes>,
    /// Of the wavefronts with themselves, (T, T, 2M − 1, 2M − 1), m²; none where an outer scale is infinite.
    pub wavefront_wavefront: Option<Array4<f64>>,
}

// Both forms of a covariance
/// A slope covariance in either form.
#[derive(Debug, Clone)]
pub enum SlopeSlope {
    /// Compressed.
    Toeplitz(SlopeCovariance),
    /// Compressed for each group that shares a lattice, and the dense cross blocks.
    Blocks(Vec<SlopeCovariance>, CrossBlocks),
    /// (n, n) in the order of [`SlopeOrder`], rad².
    Dense(Array2<f64>),
}

// Wavefronts with slopes in either form
/// A wavefront–slope covariance in either form.
#[derive(Debug, Clone)]
pub enum WavefrontSlopes {
    /// Compressed, lattice by lattice.
    Toeplitz(WavefrontProblem, WavefrontSlope),
    /// For each group of stars.
    Blocks(Vec<GroupWavefrontSlopes>),
    /// (T, M, M, n): points of each target's grid, and slopes in the order of
    /// [`SlopeOrder`], m rad.
    Dense(Array4<f64>),
}

/// A wavefront–slope covariance for one group of stars.
#[derive(Debug, Clone)]
pub enum GroupWavefrontSlopes {
    /// Compressed, lattice by lattice, for stars that share a lattice.
    Toeplitz(WavefrontProblem, WavefrontSlope),
    /// (T, M, M, n) for stars without a lattice, as [`WavefrontSlopes::Dense`].
    Dense(Array4<f64>),
}

// Variance of the first slope
impl SlopeSlope {
    /// Variance of the x slope of the first valid lenslet of the first star, rad².
    pub fn variance(&self) -> f64 {
        match self {
            Self::Toeplitz(covariance) => covariance.variance(),
            Self::Blocks(lattices, rectangles) => {
                match (rectangles.sets.of_sensors()[0], &rectangles.unstructured) {
                    (set, Some(matrix)) if set == lattices.len() => matrix[[0, 0]],
                    (set, _) => lattices[set].variance(),
                }
            }
            Self::Dense(matrix) => matrix[[0, 0]],
        }
    }
}

// Plan of all covariances
// The documentation of a covariance plan
/// How all covariances of a system will be computed.
///
/// ```
/// use lenslet::device::Engine;
/// use lenslet::plan::Plan;
/// use lenslet::watch::unwatched;
/// use lenslet::model::System;
/// use lenslet::turbulence::*;
/// let system = System::from_file("book/systems/keck-lgs.toml")?;
/// let plan = CovariancePlan::new(&system, CovarianceOptions::default())?;
/// let description = plan.describe(&Engine::default())?;
/// assert_eq!(description.arrays[0], ("slope_slope".to_string(), vec![4, 4, 2, 2, 39, 39]));
/// let covariances = plan.run(&Engine::default(), &unwatched)?;
/// assert!(covariances.slope_slope.variance() > 0.0 && covariances.wavefront_slope.is_some());
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CovariancePlan {
    system: System,
    posed: PosedProblems,
    /// The wavefront points, if there is a wavefront.
    grid: Option<PhaseGrid>,
    /// Of the wavefronts with themselves, posed as if the targets were stars.
    wavefronts: Option<WavefrontProblem>,
    /// Why there is this form.
    reason: String,
}

// Problems and options of a plan
/// The problems of a plan.
#[derive(Debug, Clone)]
enum PosedProblems {
    Toeplitz(Box<SlopeCovariancePlan>, Option<Box<WavefrontCovariancePlan>>),
    Blocks(Box<BlocksPlan>),
    Dense,
}

/// How covariances will be computed in blocks.
#[derive(Debug, Clone)]
pub(crate) struct BlocksPlan {
    pub(crate) sets: LatticeGroups,
    /// Of each group that shares a lattice.
    pub(crate) slopes: Vec<SlopeCovariancePlan>,
    /// Of the wavefronts with each group, where there is a wavefront: compressed, or not where it has no lattice.
    pub(crate) wavefront: Vec<Option<WavefrontCovariancePlan>>,
    layers: usize,
    /// Wavefront points of all targets.
    points: usize,
}

// Options of a covariance plan
/// Options of a covariance plan.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct CovarianceOptions {
    /// Form of the covariances: by displacement (Toeplitz), in blocks of lattices, or dense.
    pub form: Form,
    /// Method: sums of closed forms in real space (direct), or Fourier transforms of the power spectrum (spectral).
    pub method: Method,
    /// Whether the wavefronts are omitted.
    pub slopes_only: bool,
}

// Options one by one
impl CovarianceOptions {
    /// Requests a form.
    pub fn form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// Requests a method.
    pub fn method(self, method: Method) -> Self {
        Self { method, ..self }
    }

    /// Omits the wavefronts, even if the system has targets and a grid.
    pub fn slopes_only(self) -> Self {
        Self { slopes_only: true, ..self }
    }
}

// Steps of the plan of covariances
impl CovariancePlan {
    // Plan the covariances of a system
    /// Plans the covariances of a system.
    ///
    /// # Errors
    /// `NotToeplitz` if that form is requested and the stars have none; `Invalid` as in [`SlopeProblem::new`] and
    /// [`WavefrontProblem::new`], if the spectral method is requested for a dense form or blocks, if its sampling is too short for the
    /// lattice, and if slopes between edge midpoints are requested with that method, with wavefronts or in blocks.
    pub fn new(system: &System, options: CovarianceOptions) -> Result<Self, Error> {
        // Refuse wavefronts and spectra of midpoints
        let grid = system.wavefront_grid().ok().filter(|_| !options.slopes_only);
        grid.map_or(Ok(()), |_| system.expect_average(NO_WAVEFRONT))?;
        if let Method::Spectral(_) = options.method {
            system.expect_average("the spectrum gives averages alone")?;
        }
        let toeplitz = || pose_toeplitz(system, options.method, grid.is_some());
        let blocks = || {
            Ok::<_, Error>(PosedProblems::Blocks(Box::new(BlocksPlan::new(
                system,
                grid.is_some(),
            )?)))
        };
        if options.form != Form::Toeplitz && toeplitz().is_err() {
            system.expect_slopes()?;
        }
        // Choose the form of a covariance
        let as_given = "as asked for".to_string();
        let (posed, reason) = match options.form {
            Form::Toeplitz => (toeplitz()?, as_given),
            Form::Dense => (PosedProblems::Dense, as_given),
            Form::Blocks => {
                system.expect_average("differences between points have no form of blocks")?;
                (blocks()?, as_given)
            }
            Form::Auto => match toeplitz() {
                Ok(posed) => (posed, "the guide stars share a lattice".to_string()),
                Err(Error::NotToeplitz { reason }) => match dense_bytes(system)[0] {
                    bytes if bytes > MOST_DENSE && system.slope_model() == SlopeModel::Average => {
                        (blocks()?, reason)
                    }
                    _ => (PosedProblems::Dense, reason),
                },
                Err(other) => return Err(other),
            },
        };
        // Refuse spectra in other forms
        if let (PosedProblems::Dense | PosedProblems::Blocks(_), Method::Spectral(_)) =
            (&posed, options.method)
        {
            let expected = "direct, as the spectral one has the toeplitz form alone";
            return Err(Invalid::new("method", "spectral", expected).into());
        }
        let wavefronts = grid.map(|grid| pose_wavefronts(system, grid)).transpose()?.flatten();
        Ok(Self { system: system.clone(), posed, grid, wavefronts, reason })
    }

    // Getters of a covariance plan
    /// The name of the form: `toeplitz`, `blocks` or `dense`.
    pub fn form(&self) -> &'static str {
        match self.posed {
            PosedProblems::Toeplitz(..) => "toeplitz",
            PosedProblems::Blocks(_) => "blocks",
            PosedProblems::Dense => "dense",
        }
    }

    /// The plan in blocks, where it has that form.
    pub(crate) fn blocks(&self) -> Option<&BlocksPlan> {
        match &self.posed {
            PosedProblems::Blocks(blocks) => Some(blocks),
            _ => None,
        }
    }

    /// The system.
    pub fn system(&self) -> &System {
        &self.system
    }

    /// The plan of the slopes' covariance, where it has the Toeplitz form.
    pub fn slopes(&self) -> Option<&SlopeCovariancePlan> {
        match &self.posed {
            PosedProblems::Toeplitz(slopes, _) => Some(slopes),
            _ => None,
        }
    }

    /// The plan of wavefronts and slopes, where there is a wavefront and it has the Toeplitz form.
    pub fn wavefront(&self) -> Option<&WavefrontCovariancePlan> {
        match &self.posed {
            PosedProblems::Toeplitz(_, wavefront) => wavefront.as_deref(),
            _ => None,
        }
    }

    // Count the memory of all covariances
    /// The most memory that the plan has in use at a time, whatever the precision of the engine.
    fn memory_on(&self, engine: &Engine) -> Memory {
        let mut stages = Vec::new();
        let results = match &self.posed {
            PosedProblems::Toeplitz(slopes, wavefront) => {
                stages.push(slopes.working(engine));
                stages.extend(wavefront.iter().map(|wavefront| wavefront.working(engine)));
                let wavefront = wavefront.as_ref().map_or(0, |wavefront| wavefront.result_bytes());
                slopes.result_bytes().saturating_add(wavefront)
            }
            PosedProblems::Blocks(blocks) => {
                stages.extend(blocks.working(&self.system, engine));
                blocks.result_bytes()
            }
            PosedProblems::Dense => {
                let devices = Self::dense_on_devices(&self.system, engine);
                stages.push(Memory { host: expanded_bytes(&self.system), devices });
                let [slopes, wavefront] = dense_bytes(&self.system);
                slopes.saturating_add(self.grid.map_or(0, |_| wavefront))
            }
        };
        // Count the wavefronts among themselves
        let wavefronts = self.wavefronts.as_ref().map_or(0, |problem| {
            let across =
                (problem.targets() as u64).saturating_mul(2 * problem.grid().points as u64);
            across.saturating_mul(across).saturating_mul(8)
        });
        stages.push(Memory { host: wavefronts, devices: Vec::new() });
        Memory::of_stages(results.saturating_add(wavefronts), &stages)
    }

    // Describe the plan of covariances
    /// What the plan will do, as a part of a larger one, which may have another precision.
    pub(crate) fn description(&self, engine: &Engine) -> Description {
        Description {
            what: self.what(),
            arrays: self.arrays(),
            form: self.form(),
            reason: self.reason.clone(),
            method: self.method(),
            slope_model: self.system.slope_model().name(),
            engine: engine.name(),
            memory: self.memory_on(engine),
            stages: self.stages(engine),
            rates: engine.speed().to_string(),
        }
    }

    // Words about covariances and methods
    /// What is computed, in words.
    fn what(&self) -> String {
        let stars = match &self.posed {
            PosedProblems::Toeplitz(slopes, _) => {
                let (stars, lenslets) = (slopes.problem.sources(), slopes.problem.lenslets());
                format!("{} on {lenslets} × {lenslets} lenslets", count(stars, "guide star"))
            }
            PosedProblems::Blocks(_) | PosedProblems::Dense => {
                let slopes = SlopeOrder::new(&self.system.valid_lenslets()).len();
                let stars = count(self.system.guide_stars().len(), "guide star");
                format!("{stars} with {}", count(slopes, "slope"))
            }
        };
        let targets = self.grid.map_or(String::new(), |grid| {
            let (targets, points) = (self.system.targets().len(), grid.points);
            format!(" and {} on {points} × {points} points", count(targets, "target"))
        });
        format!("the covariances of {stars}{targets}")
    }

    // Words about the methods of covariances
    /// How it is computed, in words.
    fn method(&self) -> String {
        let of_slopes = self.slopes().and_then(SlopeCovariancePlan::chosen);
        let of_wavefront = self.wavefront().and_then(WavefrontCovariancePlan::chosen);
        match (of_slopes, of_wavefront) {
            (Some(slopes), Some(wavefront)) => {
                format!("spectral, {slopes}; wavefront: {wavefront}")
            }
            (Some(slopes), None) => format!("spectral, {slopes}"),
            _ => match self.system.slope_model() {
                SlopeModel::Average => "direct".into(),
                SlopeModel::EdgeMidpoint => "direct, slopes between midpoints of edges".into(),
            },
        }
    }

    // Names and shapes of the covariances
    /// Names and shapes of the covariances.
    fn arrays(&self) -> Vec<(String, Vec<usize>)> {
        let mut arrays = Vec::new();
        match &self.posed {
            PosedProblems::Toeplitz(slopes, wavefront) => {
                arrays.push(slopes.array());
                arrays.extend(wavefront.iter().flat_map(|plan| plan.arrays()));
            }
            PosedProblems::Blocks(blocks) => arrays.extend(blocks.arrays(&self.system)),
            PosedProblems::Dense => {
                // Add dense matrices to the names
                let slopes = SlopeOrder::new(&self.system.valid_lenslets()).len();
                arrays.push(("slope_slope_dense".into(), vec![slopes, slopes]));
                if let Some(grid) = self.grid {
                    let (targets, points) = (self.system.targets().len(), grid.points);
                    arrays.push((
                        "wavefront_slope_dense".into(),
                        vec![targets, points, points, slopes],
                    ));
                }
            }
        }
        if let Some(problem) = &self.wavefronts {
            let (targets, lags) = (problem.targets(), 2 * problem.grid().points - 1);
            arrays.push(("wavefront_wavefront".into(), vec![targets, targets, lags, lags]));
        }
        arrays
    }

    // Stages of the plan of covariances
    /// The stages of a run.
    pub(crate) fn stages(&self, engine: &Engine) -> Vec<Stage> {
        let alone = engine.devices().is_empty();
        let cores = if alone { engine.clone() } else { Engine::default() };
        let mut stages = Vec::new();
        match &self.posed {
            PosedProblems::Toeplitz(slopes, wavefront) => {
                stages.push(slopes.stage(engine));
                stages.extend(wavefront.iter().map(|plan| plan.stage(engine)));
            }
            PosedProblems::Blocks(blocks) => {
                let [slopes, wavefront] = blocks.work();
                let stage = Stage::new(SLOPES, &slopes, engine);
                let seconds = blocks.time_between(&self.system, engine);
                stages.push(Stage { seconds: stage.seconds + seconds, ..stage });
                stages.extend(self.grid.map(|_| Stage::new(WAVEFRONT, &wavefront, engine)));
            }
            PosedProblems::Dense => {
                // Stages of the dense form
                let sensors = sensors_of(&self.system);
                let slopes = time_of_slopes(SLOPES, &self.system, &among(&sensors), engine);
                stages.extend(Stage::start(engine));
                stages.push(slopes);
                let wavefront = [(CostKind::Integrals, wavefront_work(&self.system))];
                stages.extend(self.grid.map(|_| Stage::new(WAVEFRONT, &wavefront, &cores)));
            }
        }
        // Stage of wavefronts among themselves
        if let Some(problem) = &self.wavefronts {
            let lags = (problem.targets() * 2 * problem.grid().points).pow(2) as f64;
            let work = ENTRY_OF_WAVEFRONTS * lags * problem.layers().len() as f64;
            let work = [(CostKind::Integrals, work)];
            stages.push(Stage::new(WAVEFRONTS, &work, &cores));
        }
        stages
    }

    // Compute all covariances of a plan
    /// Computes all covariances, without the check of memory, which [`run`](Self::run) or a larger plan has made.
    pub(crate) fn compute(&self, engine: &Engine, watch: &dyn Watch) -> Result<Covariances, Error> {
        let (slope_slope, wavefront_slope) = match &self.posed {
            PosedProblems::Toeplitz(slopes, wavefront) => {
                // Run both plans in Toeplitz form
                let slopes = SlopeSlope::Toeplitz(slopes.compute(engine, watch)?);
                let wavefront = wavefront.as_ref().map(|plan| {
                    let covariance = plan.compute(engine, watch)?;
                    Ok::<_, Error>(WavefrontSlopes::Toeplitz(plan.problem.clone(), covariance))
                });
                (slopes, wavefront.transpose()?)
            }
            PosedProblems::Blocks(blocks) => {
                let lattices = blocks.slopes.iter().enumerate();
                let lattices =
                    lattices.map(|(k, plan)| plan.compute(engine, &blocks.part(k, watch)));
                let lattices = lattices.collect::<Result<_, Error>>()?;
                let last = blocks.part(blocks.slopes.len(), watch);
                let rectangles = blocks.rectangles(&self.system, engine, &last)?;
                let wavefronts = || blocks.wavefronts(&self.system, engine, watch);
                let wavefronts = self.grid.map(|_| wavefronts().map(WavefrontSlopes::Blocks));
                (SlopeSlope::Blocks(lattices, rectangles), wavefronts.transpose()?)
            }
            PosedProblems::Dense => {
                // Compute both dense matrices
                watch.stage(SLOPES, PIECES);
                let slopes = SlopeSlope::Dense(dense_slopes(&self.system, engine, watch)?);
                let wavefront = self.grid.map(|grid| {
                    watch.stage(WAVEFRONT, PIECES);
                    let matrix = dense_wavefront_slope(&self.system, watch)?;
                    let values = by_points(matrix, self.system.targets().len(), grid.points);
                    Ok::<_, Error>(WavefrontSlopes::Dense(values))
                });
                (slopes, wavefront.transpose()?)
            }
        };
        // Compute the wavefronts among themselves
        let wavefronts = self.wavefronts.as_ref().map(|problem| {
            watch.stage(WAVEFRONTS, PIECES);
            check(watch)?;
            let covariance = direct::wavefront::wavefront_covariance(problem)?;
            check_finite("wavefront_wavefront", &covariance)?;
            Ok::<_, Error>(covariance)
        });
        let wavefront_wavefront = wavefronts.transpose()?;
        check(watch)?;
        Ok(Covariances { slope_slope, wavefront_slope, wavefront_wavefront })
    }
}

// Run the plan of all covariances
impl Plan for CovariancePlan {
    type Output = Covariances;

    fn check_engine(&self, engine: &Engine) -> Result<(), Error> {
        Ok(engine.require_double_on_cpu(COVARIANCES)?)
    }

    fn describe(&self, engine: &Engine) -> Result<Description, Error> {
        self.check_engine(engine)?;
        Ok(self.description(engine))
    }

    fn memory(&self, engine: &Engine) -> Result<Memory, Error> {
        self.check_engine(engine)?;
        Ok(self.memory_on(engine))
    }

    fn subject(&self) -> String {
        self.what()
    }

    fn run(&self, engine: &Engine, watch: &dyn Watch) -> Result<Covariances, Error> {
        self.check(engine)?;
        self.compute(engine, watch)
    }
}

// Parts of the plan of covariances
// Make the problems of a plan
/// Both problems with their methods.
fn pose_toeplitz(system: &System, method: Method, wavefront: bool) -> Result<PosedProblems, Error> {
    let slopes = slope_problem(system)?;
    let wavefront = wavefront.then(|| wavefront_problem(system)).transpose()?;
    let wavefront = wavefront.map(|problem| WavefrontCovariancePlan::new(problem, method));
    let wavefront = wavefront.transpose()?.map(Box::new);
    Ok(PosedProblems::Toeplitz(Box::new(SlopeCovariancePlan::new(slopes, method)?), wavefront))
}
/// The problem of the wavefronts with themselves; none where an outer scale is infinite.
fn pose_wavefronts(system: &System, grid: PhaseGrid) -> Result<Option<WavefrontProblem>, Error> {
    let array = LensletArray::new(system.lenslet_array().lenslets(), system.wavefront_pitch())?;
    let targets = (system.targets(), system.targets());
    let gradient = system.cone_gradient();
    let problem = WavefrontProblem::new(system.atmosphere(), &array, targets, grid, gradient)?;
    let finite = problem.layers().iter().all(|layer| layer.outer_scale.is_finite());
    Ok(finite.then_some(problem))
}

// Bytes of matrices in dense form
/// Bytes of the dense matrices of slopes, (n, n), and of wavefront and slopes, (T M², n).
pub fn dense_bytes(system: &System) -> [u64; 2] {
    let slopes = system.count_slopes() as u64;
    let points =
        system.phase().map_or(0, |grid| grid.points.pow(2) * system.targets().len()) as u64;
    [slopes, points].map(|rows| rows.saturating_mul(slopes).saturating_mul(8))
}

/// Bytes of the compressed form, as if all stars shared the largest lattice.
fn expanded_bytes(system: &System) -> u64 {
    let largest =
        system.guide_stars().iter().map(|star| star.sensor.array.lenslets()).max().unwrap_or(0);
    let stars = system.guide_stars().len() as u64;
    let fields = 6u64.saturating_mul(stars.saturating_mul(stars)) + 6 * threads() as u64 + 3;
    field_bytes(2 * largest).saturating_mul(fields)
}

/// Bytes of a dense matrix of all slopes beyond which it is taken in blocks unless another form is asked for.
const MOST_DENSE: u64 = 2 << 30;

/// Bytes of a field of so many lags along both axes.
fn field_bytes(lags: usize) -> u64 {
    (lags as u64).saturating_mul(lags as u64).saturating_mul(8)
}

// Name of a lattice in a file
/// The name of lattice `k` of wavefront and slopes in a file.
pub(crate) fn lattice_name(problem: &WavefrontProblem, k: usize) -> String {
    if problem.is_layered() { format!("wavefront_slope_{k}") } else { "wavefront_slope".into() }
}

// Wavefronts by target and point
/// Covariances with rows of wavefront points, by target and point: (T, M, M, n).
fn by_points(matrix: Array2<f64>, targets: usize, points: usize) -> Array4<f64> {
    let shape = (targets, points, points, matrix.ncols());
    matrix.into_shape_with_order(shape).unwrap_or_else(|_| unreachable!("same length"))
}

// Work of matrices in dense form
/// All guide stars' sensors, each with its valid lenslets.
pub(crate) fn sensors_of(system: &System) -> Vec<SensorCost> {
    SensorCost::all(&system.sensors(), &SlopeOrder::new(&system.valid_lenslets()))
}

/// Seconds of one thread for the dense matrix of wavefront and slopes.
pub(crate) fn wavefront_work(system: &System) -> f64 {
    let layers = system.atmosphere().layers().len() as f64;
    let [_, wavefront] = dense_bytes(system);
    layers * wavefront as f64 / 8.0 * ENTRY_OF_WAVEFRONT
}

// Fill matrices in dense form
/// The slope covariance matrix of a system, whatever its stars, (n, n), rad².
///
/// # Errors
/// Those of [`cross_covariance::slope_covariance`], and errors of a device.
pub(crate) fn dense_slopes(
    system: &System,
    engine: &Engine,
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    let (atmosphere, stars) = (system.atmosphere(), system.sensors());
    let (valid, gradient) = (system.valid_lenslets(), system.cone_gradient());
    let matrix = match (engine.devices(), system.slope_model()) {
        ([_, ..], _) => CovariancePlan::dense_slopes_on(system, engine, watch)?,
        ([], SlopeModel::Average) => {
            cross_covariance::slope_covariance(atmosphere, &stars, &valid, gradient, watch)?
        }
        ([], SlopeModel::EdgeMidpoint) => {
            edge_midpoint::slope_covariance(atmosphere, &stars, &valid, watch)?
        }
    };
    check_finite("slope_slope_dense", &matrix)?;
    Ok(matrix)
}

// Cross covariance on an engine
/// The covariances of the slopes of some sensors with those of others, averaged over lenslets, on an engine, (m, n), rad².
///
/// # Errors
/// Those of [`cross_covariance::slope_cross_covariance`], and errors of a device.
pub(crate) fn slope_cross_covariance(
    atmosphere: &crate::model::Atmosphere,
    [first, second]: [(&[crate::model::Sensor], &[Array2<bool>]); 2],
    gradient: crate::model::ConeGradient,
    engine: &Engine,
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    if engine.devices().is_empty() {
        return cross_covariance::slope_cross_covariance(
            atmosphere, first, second, gradient, watch,
        );
    }
    CovariancePlan::cross_covariance_on(atmosphere, [first, second], gradient, engine, watch)
}

// Dense wavefronts with slopes
/// The wavefront–slope covariance matrix of a system, whatever its stars, (T M², n), m rad.
///
/// # Errors
/// Those of [`cross_covariance::wavefront_slope`], and `Invalid` where the system has no target or no grid.
pub(crate) fn dense_wavefront_slope(
    system: &System,
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    let wavefronts = (system.targets(), system.wavefront_grid()?, system.wavefront_pitch());
    let (atmosphere, stars) = (system.atmosphere(), system.sensors());
    let (valid, gradient) = (system.valid_lenslets(), system.cone_gradient());
    let matrix =
        cross_covariance::wavefront_slope(atmosphere, wavefronts, &stars, &valid, gradient, watch)?;
    check_finite("wavefront_slope_dense", &matrix)?;
    Ok(matrix)
}

// Reject results that are not finite
/// Rejects a result with an entry that is NaN or infinite.
///
/// # Errors
/// `NotFinite`, with its name and the position of the first such entry.
pub(crate) fn check_finite<D: Dimension>(result: &str, array: &Array<f64, D>) -> Result<(), Error> {
    let good = |chunk: &[f64]| chunk.iter().fold(true, |good, value| good & value.is_finite());
    if array.as_slice_memory_order().is_some_and(|values| values.par_chunks(1 << 14).all(good)) {
        return Ok(());
    }
    let array = array.view().into_dyn();
    let bad = array.indexed_iter().find(|(_, value)| !value.is_finite());
    bad.map_or(Ok(()), |(place, value)| {
        let (result, place) = (result.to_string(), place.slice().to_vec());
        Err(Error::NotFinite { result, place, value: *value })
    })
}

// Tests of the common interface
#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::unwatched;

    // Reject lenslet arrays that differ
    #[test]
    fn lenslet_arrays_of_unequal_pitch_are_refused() {
        let system = System::from_file("book/systems/keck-lgs.toml").unwrap();
        assert!(slope_problem(&system).is_ok());
        let pitch = system.lenslet_array().pitch();
        let mut stars = system.guide_stars().to_vec();
        stars[1].sensor.array = LensletArray::new(10, 2.0 * pitch).unwrap();
        let system = system.to_builder().guide_stars(stars).build().unwrap();
        let error = slope_problem(&system).unwrap_err().to_string();
        assert!(
            error.contains("20 lenslets of 0.5 m and guide_star[1] has 10 lenslets of 1 m"),
            "{error}"
        );
    }

    // Reject results beyond the memory
    #[test]
    fn what_does_not_fit_is_refused_before_it_starts() {
        let system = System::from_file("book/systems/small.toml").unwrap();
        let mut star = system.guide_stars()[0].clone();
        star.sensor.array = LensletArray::new(10_000, 2e-4).unwrap();
        let system = system.to_builder().guide_stars(vec![star; 300]).build().unwrap();
        let problem = slope_problem(&system).unwrap();
        let plan = SlopeCovariancePlan::direct(problem);
        let error = plan.run(&Engine::default(), &unwatched).unwrap_err();
        assert!(matches!(error, Error::Memory { .. }) && error.exit_code() == 2, "{error}");
    }

    // Reject entries that are not finite
    #[test]
    fn no_result_holds_what_is_no_number() {
        let system = System::from_file("book/systems/keck-lgs.toml").unwrap();
        let refused = |error: Error| match error {
            Error::NotFinite { result, place, value } => (result, place, value.is_nan()),
            other => panic!("{other}"),
        };
        for bad in [f64::NAN, f64::INFINITY] {
            let mut slopes = slope_problem(&system).unwrap();
            slopes.spoil(bad);
            let plan = SlopeCovariancePlan::direct(slopes);
            let (result, place, _) = refused(plan.run(&Engine::default(), &unwatched).unwrap_err());
            assert_eq!((result.as_str(), place.len()), ("slope_slope", 6));
            let mut wavefront = wavefront_problem(&system).unwrap();
            wavefront.spoil(bad);
            let plan = WavefrontCovariancePlan::direct(wavefront);
            let (result, place, _) = refused(plan.run(&Engine::default(), &unwatched).unwrap_err());
            assert_eq!((result.as_str(), place.len()), ("wavefront_slope_1", 5));
        }
        let mut matrix = Array2::zeros((300, 200));
        assert!(check_finite("matrix", &matrix).is_ok());
        matrix[[299, 7]] = f64::NAN;
        let error = check_finite("matrix", &matrix).unwrap_err();
        assert_eq!(
            (error.to_string().find("matrix is NaN at [299, 7]"), error.exit_code()),
            (Some(0), 1)
        );
        assert_eq!(refused(error), ("matrix".into(), vec![299, 7], true));
        assert!(check_finite("turned", &matrix.reversed_axes()).is_err());
    }

    // Refuse before any stage begins
    /// Wants to stop, and counts the stages that began.
    #[derive(Default)]
    struct Impatient(std::sync::atomic::AtomicUsize);

    impl Watch for Impatient {
        fn stage(&self, _name: &str, _pieces: &str) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }

        fn cancelled(&self) -> bool {
            true
        }
    }

    // Check that refusals come first
    #[test]
    fn refusals_come_before_any_work_and_cancelling_ends_it() {
        let keck = System::from_file("book/systems/keck-lgs.toml").unwrap();
        let plan = |system: &System, options| CovariancePlan::new(system, options);
        let options = CovarianceOptions::default();
        let (dense, spectral) = (options.form(Form::Dense), Method::Spectral(None));
        let error = plan(&keck, dense.method(spectral)).unwrap_err();
        assert!(error.to_string().contains("toeplitz form alone"), "{error}");
        let short = Method::Spectral(Some(SpectralSampling::new(16, 2).unwrap()));
        assert!(matches!(plan(&keck, options.method(short)), Err(Error::Invalid(_))));
        // Refuse huge systems and stop others
        let watch = Impatient::default();
        let mut star = keck.guide_stars()[0].clone();
        star.sensor.array = LensletArray::new(10_000, 1e-3).unwrap();
        let huge = keck.to_builder().guide_stars(vec![star; 100]).targets([]).build().unwrap();
        let error =
            plan(&huge, options).and_then(|plan| plan.run(&Engine::default(), &watch)).unwrap_err();
        assert!(matches!(error, Error::Memory { .. }), "{error}");
        assert_eq!(watch.0.load(std::sync::atomic::Ordering::Relaxed), 0);
        for form in [Form::Toeplitz, Form::Dense] {
            let stopped = plan(&keck, options.form(form)).unwrap().run(&Engine::default(), &watch);
            assert!(matches!(stopped, Err(Error::Cancelled)), "{form:?}");
        }
    }

    // Plan slopes between midpoints
    #[test]
    fn slopes_between_midpoints_are_planned_in_dense_form() {
        let small = System::from_file("book/systems/small.toml").unwrap();
        let builder = small.to_builder().targets([]).slope_model(SlopeModel::EdgeMidpoint);
        let system = builder.build().unwrap();
        let plan = CovariancePlan::new(&system, CovarianceOptions::default()).unwrap();
        let description = plan.describe(&Engine::default()).unwrap();
        assert_eq!((description.form, description.slope_model), ("dense", "edge-midpoint"));
        assert!(
            description.reason.contains("covariance.slope_model")
                && description.method.contains("midpoints")
        );
        let covariances = plan.run(&Engine::default(), &unwatched).unwrap();
        let (sensors, valid) = (system.sensors(), system.valid_lenslets());
        let matrix =
            edge_midpoint::slope_covariance(system.atmosphere(), &sensors, &valid, &unwatched);
        let SlopeSlope::Dense(found) = covariances.slope_slope else { panic!("not dense") };
        assert_eq!(found, matrix.unwrap());
        for gpu in crate::device::gpu::test_backends() {
            let engine = Engine::gpus(vec![gpu], crate::numerics::real::Precision::F64).unwrap();
            let SlopeSlope::Dense(there) = plan.run(&engine, &unwatched).unwrap().slope_slope
            else {
                panic!("not dense")
            };
            assert!((&there - &found).iter().all(|gap| gap.abs() < 1e-12 * found[[0, 0]]));
        }
    }

    // Plan the dense form on devices
    #[test]
    fn dense_plans_run_on_devices() {
        let system = apart();
        let plan = CovariancePlan::new(&system, CovarianceOptions::default()).unwrap();
        let dense = |engine: &Engine| {
            let covariances = plan.run(engine, &unwatched).unwrap();
            let (SlopeSlope::Dense(slopes), Some(WavefrontSlopes::Dense(wavefront))) =
                (covariances.slope_slope, covariances.wavefront_slope)
            else {
                panic!("not dense")
            };
            (slopes, wavefront)
        };
        let (slopes, wavefront) = dense(&Engine::default());
        for gpu in crate::device::gpu::test_backends() {
            let engine = Engine::gpus(vec![gpu], crate::numerics::real::Precision::F64).unwrap();
            assert!(plan.memory(&engine).unwrap().devices[0] > 1 << 20);
            let (there, same) = dense(&engine);
            let worst =
                (&there - &slopes).iter().fold(0.0, |most, error| f64::max(most, error.abs()));
            assert!(worst < 1e-11 * slopes[[0, 0]] && same == wavefront, "{worst:e}");
        }
    }

    // System of stars without a common lattice
    /// A natural star and a laser star on 3 × 3 lenslets, and a target between them.
    fn apart() -> System {
        use crate::model::{atmosphere::*, noise::GuideStar, source::Source};
        let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(4e3, 1.0, 25.0)]).unwrap();
        let array = LensletArray::new(3, 0.5).unwrap();
        let star = |angle, height| {
            let source = Source::new(angle, 0.3, height).unwrap();
            GuideStar::at_rest(source, array, 0.0).unwrap()
        };
        let builder = System::builder(air, array)
            .guide_stars([star(0.0, f64::INFINITY), star(1e-4, 90e3)])
            .targets([Source::star(5e-5, 0.0).unwrap()]);
        builder.phase(PhaseGrid::new(4, 1, 0.0).ok()).build().unwrap()
    }
}
