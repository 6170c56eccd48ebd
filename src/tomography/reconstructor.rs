// Tangled from book/src/reconstructor.md: edit there, or here and run cargo tangle stitch.
//! The reconstructor of minimum mean square error, and the covariance of its error.

pub(crate) mod command;
mod gpu;
mod iterative;
mod ranks;
mod wavefront;

// Imports of the reconstructor
use crate::device::{CostKind, engine::Engine};
use crate::error::{Error, Invalid, accept, count};
use crate::estimation::inversion::{Inversion, MatrixRates, not_definite};
use crate::linear::{Cholesky, Eigen, NotPositive, times_transpose};
#[cfg(feature = "files")]
use crate::model::SystemFile;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::system::System;
use crate::numerics::real::Precision;
use crate::plan::{Description, Memory, Plan, Stage};
use crate::plausible::DELAY;
use crate::tomography::covariance_matrix::{
    CovarianceMatrices, LATER, MEASUREMENTS, TRUTH, check_targets, truth_covariance, truth_sensors,
    truth_valid,
};
use crate::turbulence::cost_model::{SensorCost, among, between, time_of_slopes};
use crate::turbulence::plan::{SLOPES, sensors_of};
use crate::watch::{Watch, check};
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis, concatenate, s, stack};
use std::fmt;
use std::sync::Arc;

// Options and plan of a reconstructor
// Options and truth of a reconstructor
// Options of a reconstructor
/// Options of a reconstructor: the table `[reconstructor]` of a system file.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct ReconstructorOptions {
    /// How C_mm is inverted.
    pub method: Inversion,
    /// Eigenvalues below this share of the largest are dropped.
    pub filter: f64,
    /// How much later than the measurements the truth is, s.
    pub delay: f64,
    /// Whether the reconstructor predicts over the delay.
    pub predict: bool,
    /// Whether the covariances C_mm, C_tm and C_tt are kept with the results.
    pub keep: bool,
    /// Largest relative residual of a row, where iterations invert.
    pub tolerance: f64,
    /// Whether only the errors are computed, without the reconstructor.
    pub errors_only: bool,
    /// The quantity that is reconstructed.
    pub to: ReconstructedQuantity,
}

// The usual options of a reconstructor
impl Default for ReconstructorOptions {
    fn default() -> Self {
        Self {
            method: Inversion::Auto,
            filter: 0.0,
            delay: 0.0,
            predict: true,
            keep: false,
            errors_only: false,
            tolerance: 1e-6,
            to: ReconstructedQuantity::Slopes,
        }
    }
}

impl ReconstructorOptions {
    /// Sets the method of inversion.
    pub fn method(self, method: Inversion) -> Self {
        Self { method, ..self }
    }

    // Choose what is kept
    /// Sets whether the covariances are kept.
    pub fn keep(self, keep: bool) -> Self {
        Self { keep, ..self }
    }

    /// Sets the largest relative residual of a row, where iterations invert.
    pub fn tolerance(self, tolerance: f64) -> Self {
        Self { tolerance, ..self }
    }

    /// Sets whether only the errors are computed, without the reconstructor.
    pub fn errors_only(self, errors_only: bool) -> Self {
        Self { errors_only, ..self }
    }

    /// Sets the quantity that is reconstructed: slopes of a truth sensor, wavefronts, or strokes of actuators.
    pub fn to(self, to: ReconstructedQuantity) -> Self {
        Self { to, ..self }
    }

    /// Sets the filter of eigenvalues, as a share of the largest.
    pub fn filter(self, filter: f64) -> Self {
        Self { filter, ..self }
    }

    // Choose a delay and prediction
    /// Sets the delay \[s\] of the truth after the measurements.
    pub fn delay(self, delay: f64) -> Self {
        Self { delay, ..self }
    }

    /// Sets whether the reconstructor predicts over the delay.
    pub fn predict(self, predict: bool) -> Self {
        Self { predict, ..self }
    }

    // Read the table of the reconstructor
    /// Reads the table `[reconstructor]` of a system file.
    ///
    /// # Errors
    /// The first line of the table that makes no sense.
    ///
    /// ```
    /// use lenslet::{estimation::Inversion, model::SystemFile, tomography::ReconstructorOptions};
    /// let read = |text: &str| ReconstructorOptions::from_system_file(&SystemFile::from_toml(text, "s.toml")?);
    /// let options = read("reconstructor = { method = 'eigen', filter = 1e-6 }")?;
    /// assert_eq!((options.method, options.filter), (Inversion::Eigen, 1e-6));
    /// let wrong = read("[reconstructor]\nfilter = 2").unwrap_err();
    /// assert!(wrong.to_string().starts_with("s.toml:2: reconstructor.filter = 2: expected a ratio"));
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    #[cfg(feature = "files")]
    pub fn from_system_file(file: &SystemFile) -> Result<Self, Error> {
        let Some(table) = file.root()?.table("reconstructor")? else {
            return Ok(Self::default());
        };
        let method = table.choice("method", &Inversion::NAMES)?.unwrap_or_default();
        let filter = table.optional("filter", "a ratio of eigenvalues")?.unwrap_or(0.0);
        table.check(Eigen::check_filter(filter))?;
        // Read the delay of the truth
        let delay = table.optional("delay", "a time in seconds")?.unwrap_or(0.0);
        let predict = table.optional("predict", "true or false")?.unwrap_or(true);
        if delay > 0.0 {
            file.require_winds("a speed in m/s, which may be 0, as reconstructor.delay is not")?;
        }
        let errors_only = table.optional("errors_only", "true or false")?.unwrap_or(false);
        let tolerance = table.optional("tolerance", "a relative residual")?.unwrap_or(1e-6);
        let to = table.choice("to", &ReconstructedQuantity::NAMES)?.unwrap_or_default();
        let keep = false;
        let options = Self { method, filter, delay, predict, keep, errors_only, tolerance, to };
        table.check(options.check())?;
        Ok(options)
    }
}

// What is to be known
/// The quantity that is reconstructed for the targets of a system.
// Worked case of a wavefront reconstructor
///
/// The reconstructor of four wavefront points around one lenslet, the worked case of its chapter:
///
/// ```
/// use lenslet::{device::Engine, model::*, plan::Plan, tomography::*, watch::unwatched};
/// let array = LensletArray::new(1, 1.0)?;
/// let found = |noise: f64| -> Result<Reconstruction, lenslet::Error> {
///     let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 25.0)])?;
///     let axis = Source::star(0.0, 0.0)?;
///     let system = System::builder(air, array)
///         .guide_stars([GuideStar::at_rest(axis, array, noise)?])
///         .phase(Some(PhaseGrid::new(2, 1, 0.0)?))
///         .targets([axis])
///         .build()?;
///     let options = ReconstructorOptions::default().to(ReconstructedQuantity::Wavefront);
///     ReconstructorPlan::new(&system, options)?.run(&Engine::default(), &unwatched)
/// };
/// let measured = found(1e-20)?;
/// let matrix = measured.reconstructor.unwrap_or_default();
/// for (point, [x, y]) in [[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [1.0, 1.0]].into_iter().enumerate() {
///     assert!((matrix[[0, point, 0]] - 0.4561 * x).abs() < 1e-4);
///     assert!((matrix[[0, point, 1]] - 0.4561 * y).abs() < 1e-4);
/// }
/// let noisy = found(0.4417e-12)?.reconstructor.unwrap_or_default();
/// assert!((noisy[[0, 3, 0]] - 0.228).abs() < 1e-3);
/// let [before, after] = [found(1.0)?.point_errors[0].rms, measured.point_errors[0].rms].map(|rms| 1e9 * rms);
/// assert!((before - 478.3).abs() < 0.1 && (after - 212.1).abs() < 0.1, "{before} {after}");
/// let explained = 1e3 * (2.0 * 0.4561f64.powi(2) * 0.4417).sqrt();
/// assert!((explained - 429.0).abs() < 0.5 && ((before.powi(2) - after.powi(2)).sqrt() - explained).abs() < 0.2);
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum ReconstructedQuantity {
    /// The slopes of a truth sensor.
    #[default]
    Slopes,
    /// The wavefront at the points of its grid: the matrix of the [estimate](crate::estimation::EstimatePlan), or the errors
    /// alone by a [`PointErrorsPlan`](crate::tomography::PointErrorsPlan).
    Wavefront,
    /// The strokes of the actuators of deformable mirrors.
    Actuators,
}

impl ReconstructedQuantity {
    /// All of them by the names that a system file has for them.
    pub const NAMES: [(&'static str, Self); 3] =
        [("slopes", Self::Slopes), ("wavefront", Self::Wavefront), ("actuators", Self::Actuators)];

    /// Its name in a system file.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, quantity)| *quantity == self).map_or("", |(name, _)| name)
    }
}

// Check the options of a reconstructor
impl ReconstructorOptions {
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        self.method.check_filter(self.filter)?;
        let good = self.tolerance > 0.0 && self.tolerance < 1.0;
        accept(good, "tolerance", self.tolerance, "between 0 and 1")?;
        if self.method == Inversion::Iterative && self.keep {
            let expected = "false with method = \"iterative\", which never forms the covariances";
            return Err(Invalid::new("keep", true, expected));
        }
        DELAY.check("delay", self.delay).map(drop)
    }
}

// Rates of a device
const DEVICE: MatrixRates =
    MatrixRates::new([27e12, 20e3, 1.0], [25e12, 15.5e3, 2.0], [1.9e12, 8e3, 1.2]);

/// What the libraries take for the whole solution by ranks, in such solutions by one device.
const SOLUTION_OF_RANKS: f64 = 2.0;

/// Seconds in which a number comes from a device, and those in which it gets ready to send them.
const READ: f64 = 1e-9;
const READY: f64 = 0.03;

// Plan of a reconstructor
/// How a reconstructor will be computed.
///
/// ```
/// use lenslet::device::Engine;
/// use lenslet::plan::Plan;
/// use lenslet::watch::unwatched;
/// use lenslet::model::System;
/// use lenslet::tomography::{ReconstructorOptions, ReconstructorPlan};
/// let system = System::from_file("book/systems/small-moao.toml")?;
/// let plan = ReconstructorPlan::new(&system, ReconstructorOptions::default())?;
/// assert_eq!((plan.measurements(), plan.truth_slopes()), (232, 96));
/// let reconstruction = plan.run(&Engine::default(), &unwatched)?;
/// // Three stars leave a small part of the variance, on average over the slopes of the target.
/// let mean = |c: ndarray::ArrayView2<f64>| c.diag().mean().unwrap_or(0.0);
/// let left = mean(reconstruction.error_covariance.index_axis(ndarray::Axis(0), 0));
/// assert!(left < 0.25 * mean(reconstruction.truth_covariance.view()));
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ReconstructorPlan {
    system: System,
    options: ReconstructorOptions,
    method: Inversion,
    reason: &'static str,
    measurements: usize,
    truth_slopes: usize,
    /// Mirrors whose strokes are reconstructed.
    mirrors: Option<Arc<dyn StrokeProjection>>,
}

// Methods of a planned reconstructor
impl ReconstructorPlan {
    // Plan a reconstructor
    /// Plans the reconstructor of a system's targets: to slopes or to wavefronts. [`for_mirrors`](Self::for_mirrors) plans those to actuators.
    ///
    /// # Errors
    /// `Invalid` where the system has no target, or no grid for its wavefronts, or the options contradict each other.
    pub fn new(system: &System, options: ReconstructorOptions) -> Result<Self, Error> {
        let expected = "slopes or wavefront; strokes of actuators need mirrors, and ReconstructorPlan::for_mirrors takes them";
        let good = options.to != ReconstructedQuantity::Actuators;
        accept(good, "to", options.to.name(), expected)?;
        Self::with_options(system, options)
    }

    /// The plan for some options that are valid by themselves.
    fn with_options(system: &System, options: ReconstructorOptions) -> Result<Self, Error> {
        options.check()?;
        check_targets(system)?;
        system.expect_slopes()?;
        if options.to == ReconstructedQuantity::Wavefront {
            options.check_wavefront(system)?;
        }
        let (method, reason) = match options.method {
            Inversion::Auto => Inversion::dense(options.filter, system.guide_stars()),
            asked => (asked, "it was asked for"),
        };
        let order = SlopeOrder::new(&system.valid_lenslets());
        let truth_slopes = 2 * truth_valid(system).iter().filter(|valid| **valid).count();
        let (system, measurements, mirrors) = (system.clone(), order.len(), None);
        let plan = Self { system, options, method, reason, measurements, truth_slopes, mirrors };
        if method == Inversion::Iterative {
            plan.compressed()?;
        }
        Ok(plan)
    }

    // Plan the reconstructor of some mirrors
    /// Plans the reconstructor of the strokes of mirrors, from that of the slopes of a system's targets and of all directions that the mirrors are for.
    ///
    /// # Errors
    /// As for [`new`](Self::new), and `Invalid` where only errors are wanted.
    pub(crate) fn with_mirrors(
        system: &System,
        options: ReconstructorOptions,
        mirrors: Arc<dyn StrokeProjection>,
    ) -> Result<Self, Error> {
        let expected = "false with to = \"actuators\": errors of slopes or wavefronts need no mirror, and have to = \"slopes\" or \"wavefront\"";
        accept(!options.errors_only, "errors_only", true, expected)?;
        let options = options.to(ReconstructedQuantity::Actuators);
        Ok(Self { mirrors: Some(mirrors), ..Self::with_options(system, options)? })
    }

    // Numbers of a planned reconstructor
    /// Slopes of all guide stars, n.
    pub fn measurements(&self) -> usize {
        self.measurements
    }

    /// Slopes of one truth sensor, m.
    pub fn truth_slopes(&self) -> usize {
        self.truth_slopes
    }

    /// Targets, T.
    pub(crate) fn targets(&self) -> usize {
        self.system.targets().len()
    }

    /// How many devices, or processes with one each, invert together on an engine; 1 where one does it alone.
    pub fn ranks(&self, engine: &Engine) -> usize {
        if self.is_shared(engine) { engine.place()[1] } else { 1 }
    }

    /// Whether only the errors are computed.
    pub fn errors_only(&self) -> bool {
        self.options.errors_only
    }

    /// How C_mm is inverted, once it is decided.
    pub fn method(&self) -> Inversion {
        self.method
    }

    /// The share of the largest eigenvalue that others have to pass, with eigenvectors: where none was asked for, the rounding of the
    /// engine decides.
    pub fn filter(&self, engine: &Engine) -> f64 {
        let single = engine.precision() == Precision::F32 && !engine.devices().is_empty();
        self.filter_above(if single { f32::EPSILON.into() } else { f64::EPSILON })
    }

    /// The filter of eigenvalues, as a share of the largest, for a relative rounding error.
    fn filter_above(&self, rounding: f64) -> f64 {
        self.options.filter.max(self.measurements as f64 * rounding)
    }

    // Shape of a planned reconstructor
    /// The quantity that is reconstructed.
    pub fn to(&self) -> ReconstructedQuantity {
        self.options.to
    }

    /// Shape of the reconstructor: targets or commands of mirrors, rows of each, and slopes of all guide stars.
    pub fn shape(&self) -> [usize; 3] {
        match &self.mirrors {
            Some(mirrors) => [mirrors.commands(), mirrors.actuators().len(), self.measurements],
            None => [self.targets(), self.unknowns(), self.measurements],
        }
    }

    /// Right-hand sides of one target: points of its wavefront, or slopes of its truth sensor.
    fn unknowns(&self) -> usize {
        match self.options.to {
            ReconstructedQuantity::Wavefront => {
                self.system.phase().map_or(0, |grid| grid.points.pow(2))
            }
            _ => self.truth_slopes,
        }
    }

    // Memory and stages of a reconstructor
    /// The most memory that the computation has in use at a time, as a part of a larger one.
    pub(crate) fn memory_on(&self, engine: &Engine) -> Memory {
        if self.is_to_wavefront() && self.method != Inversion::Iterative {
            return self.memory_of_wavefronts(engine);
        }
        let [n, m, targets] =
            [self.measurements, self.truth_slopes, self.system.targets().len()].map(|k| k as u64);
        let square = n.saturating_mul(n).saturating_mul(8);
        let rows = targets.saturating_mul(m).saturating_mul(8);
        let (sets, keep) = (self.sets() as u64, u64::from(self.options.keep));
        let of_rows = match (!engine.devices().is_empty(), self.options.errors_only) {
            (true, true) => keep,
            (true, false) => 1 + keep,
            _ => 2 * sets + keep,
        };
        let results = rows.saturating_mul(n).saturating_mul(of_rows);
        let results = results.saturating_add(rows.saturating_mul(3 * m * sets));
        let results = results.saturating_add(self.bytes_of_commands());
        let matrices = match (engine.devices(), self.method) {
            (_, Inversion::Iterative) => return self.memory_of_iterations(engine),
            ([], Inversion::Eigen) => 4,
            ([_, ..], _) => 0,
            _ => 1,
        } + keep;
        let working =
            Memory { host: square.saturating_mul(matrices), devices: self.on_devices(engine) };
        Memory::of_stages(results, [&working])
    }

    /// Bytes of the command matrices of mirrors.
    fn bytes_of_commands(&self) -> u64 {
        let numbers = |k: u64, n: usize| k.saturating_mul(n as u64);
        self.mirrors.as_ref().map_or(0, |_| self.shape().into_iter().fold(8, numbers))
    }

    // Stages of a reconstructor
    fn stages(&self, engine: &Engine) -> Vec<Stage> {
        let (stars, truths) = (sensors_of(&self.system), self.truths());
        let (measurements, with_truth) = (among(&stars), between(&truths, &stars));
        let slopes = [(MEASUREMENTS, &measurements), (TRUTH, &with_truth), (LATER, &with_truth)]
            .map(|(name, pairs)| time_of_slopes(name, &self.system, pairs, engine));
        let iterated = self.method == Inversion::Iterative;
        let bordered = self.has_border(engine);
        let to_wavefront = self.is_to_wavefront();
        let remains = |stage: &Stage| match stage.name {
            TRUTH => !bordered && !to_wavefront,
            LATER => self.is_delayed(),
            MEASUREMENTS | FACTOR => !iterated,
            ERROR | RECONSTRUCTOR => stage.seconds > 0.0,
            _ => true,
        };
        let wavefronts = to_wavefront.then(|| self.stage_of_wavefront_rows(engine));
        let times = wavefronts.into_iter().chain(slopes);
        let times = times.chain(self.stages_of_matrices(engine)).filter(remains);
        let compressed = iterated.then(|| self.compressed().ok()).flatten();
        let compressed = compressed.map_or_else(Vec::new, |plan| plan.stages(engine));
        let compressed = compressed.into_iter().filter(|stage| stage.name == SLOPES);
        let strokes = self.mirrors.as_ref().map(|_| self.stage_of_strokes());
        Stage::start(engine).into_iter().chain(compressed).chain(times).chain(strokes).collect()
    }

    /// The stage that projects the rows of slopes onto strokes.
    fn stage_of_strokes(&self) -> Stage {
        let [_, actuators, n] = self.shape().map(|k| k as f64);
        let products = (self.targets() * self.truth_slopes) as f64 * actuators * n;
        let work = [MatrixRates::of_threads().products(products, n)];
        Stage::shared(STROKES, &work, &Engine::default())
    }

    /// The truth sensors of all targets, with their valid lenslets.
    fn truths(&self) -> Vec<SensorCost> {
        let sensors = truth_sensors(&self.system);
        let valid = vec![truth_valid(&self.system); sensors.len()];
        SensorCost::all(&sensors, &SlopeOrder::new(&valid))
    }

    // Stages of dense matrices
    /// Factorisation, reconstructor and error, as one thread or one device takes them.
    fn stages_of_matrices(&self, engine: &Engine) -> [Stage; 3] {
        let [n, m] = [self.measurements, self.unknowns()].map(|k| k as f64);
        let rows = m * self.system.targets().len() as f64;
        // Errors at points are those of single rows.
        let per_row = if self.is_to_wavefront() { 4.0 } else { m };
        let there = !engine.devices().is_empty();
        let rates = if there { DEVICE } else { MatrixRates::of_threads() };
        let (shared, bordered) = (self.is_shared(engine), self.has_border(engine));
        let by = if there && !shared { Stage::alone } else { Stage::shared };
        let order = if bordered { n + rows } else { n };
        let passes = match (self.method, self.options.errors_only) {
            (Inversion::Cholesky, _) if shared => SOLUTION_OF_RANKS,
            (_, true) => 0.5,
            (_, false) => 1.0,
        };
        let solved = match self.method {
            Inversion::Iterative => Stage::new(
                RECONSTRUCTOR,
                &[(CostKind::Transforms, self.work_of_iterations())],
                engine,
            ),
            _ if bordered => Stage::alone(RECONSTRUCTOR, &[], engine),
            _ => {
                let products = passes * rows * n * n + rows * per_row * n;
                by(RECONSTRUCTOR, &[rates.products(products, n)], engine)
            }
        };
        let read = rows * if self.options.errors_only { m } else { m + n };
        let error = match self.method {
            _ if self.is_to_wavefront() => self.stage_of_point_errors(),
            Inversion::Iterative => {
                Stage::shared(ERROR, &[rates.products(2.0 * rows * m * n, n)], engine)
            }
            _ if there => Stage::alone(ERROR, &[(CostKind::Memory, READY + READ * read)], engine),
            _ => Stage::alone(ERROR, &[], engine),
        };
        let factor = [rates.factor(self.method, order)];
        let factor = match self.method {
            Inversion::Eigen if there => Stage::alone(FACTOR, &factor, engine),
            _ => by(FACTOR, &factor, engine),
        };
        [factor, solved, error]
    }

    // Words and arrays of a planned reconstructor
    /// What is computed, in words.
    fn what(&self) -> String {
        let (targets, n) = (count(self.targets(), "target"), count(self.measurements, "slope"));
        let rows = match (self.options.to, self.shape()[1]) {
            (ReconstructedQuantity::Slopes, m) => format!("{} of {targets}", count(m, "slope")),
            (ReconstructedQuantity::Wavefront, points) => {
                let across = points.isqrt();
                format!("{across} × {across} wavefront points of {targets}")
            }
            (ReconstructedQuantity::Actuators, actuators) => {
                format!("{} for {targets}", count(actuators, "actuator"))
            }
        };
        let what = if self.options.errors_only { "the error of the" } else { "the" };
        format!("{what} reconstructor of {rows} from {n}")
    }

    /// Names and shapes of the results.
    fn arrays(&self) -> Vec<(String, Vec<usize>)> {
        let [all, unknowns, _] = self.shape();
        let mut arrays = vec![("reconstructor".into(), self.shape().to_vec())];
        arrays.retain(|_| !self.options.errors_only);
        if self.is_to_wavefront() {
            let across = unknowns.isqrt();
            let maps = ["error_map", "error_map_without_tilt"];
            arrays.extend(maps.map(|name| (name.into(), vec![all, across, across])));
        } else {
            let evaluated = self.mirrors.as_ref().map_or(all, |mirrors| mirrors.targets());
            let m = self.truth_slopes;
            arrays.push(("error_covariance".into(), vec![evaluated, m, m]));
        }
        arrays
    }

    // Describe a planned reconstructor
    /// Description of the plan, as a part of a larger one.
    pub(crate) fn description(&self, engine: &Engine) -> Description {
        Description {
            what: self.what(),
            arrays: self.arrays(),
            slope_model: self.system.slope_model().name(),
            form: match (self.method, self.compressed()) {
                (Inversion::Iterative, Ok(plan)) => plan.form(),
                _ => "dense",
            },
            reason: format!("{} as {}", self.method.name(), self.reason),
            method: match self.method {
                Inversion::Eigen => {
                    format!("eigenvectors, filtered at {:.1e}", self.filter(engine))
                }
                Inversion::Iterative => {
                    format!("conjugate gradients to {:e}", self.options.tolerance)
                }
                _ => "Cholesky's factor".to_string(),
            } + &self.say_delay()
                + &self.say_ranks(engine),
            engine: engine.name(),
            memory: self.memory_on(engine),
            stages: self.stages(engine),
            rates: engine.speed().to_string(),
        }
    }
}

// Run the plan of a reconstructor
impl Plan for ReconstructorPlan {
    type Output = Reconstruction;

    // Checks and memory of a reconstructor
    /// Rejects single precision on the CPU.
    fn check_engine(&self, engine: &Engine) -> Result<(), Error> {
        Ok(engine.require_double_on_cpu("reconstructors")?)
    }

    fn describe(&self, engine: &Engine) -> Result<Description, Error> {
        self.check_engine(engine)?;
        Ok(self.description(engine))
    }

    fn memory(&self, engine: &Engine) -> Result<Memory, Error> {
        self.check_engine(engine)?;
        Ok(self.memory_on(engine))
    }

    /// Rejects also several processes that cannot share the reconstructor.
    fn check(&self, engine: &Engine) -> Result<(), Error> {
        self.check_ranks(engine)?;
        self.memory(engine)?.check(engine, &(self.subject() + &self.say_alone(engine)))
    }

    fn subject(&self) -> String {
        let [_, m, n] = self.shape();
        let rows = match self.options.to {
            ReconstructedQuantity::Slopes => "slopes of each target",
            ReconstructedQuantity::Wavefront => "wavefront points of each target",
            ReconstructedQuantity::Actuators => "actuators",
        };
        format!("the reconstructor of {m} {rows} from {n} slopes")
    }

    // Compute a reconstructor
    /// Computes the reconstructor and its error. Where several processes compute it together, rank 0 has it, and the others have
    /// empty arrays.
    ///
    /// # Errors
    /// Those of [`check`](Self::check); `Failed` where C_mm is not positive definite, with the guide star and the slope that are to
    /// blame; `Cancelled` where the watcher wants to stop; those of devices.
    fn run(&self, engine: &Engine, watch: &dyn Watch) -> Result<Reconstruction, Error> {
        self.check(engine)?;
        if self.options.to == ReconstructedQuantity::Wavefront {
            return self.reconstruct_wavefronts(engine, watch);
        }
        let found = self.reconstruct_slopes(engine, watch)?;
        match &self.mirrors {
            Some(mirrors) => found.onto(mirrors.as_ref(), engine, watch),
            None => Ok(found),
        }
    }
}

// Compute the reconstructor of slopes
impl ReconstructorPlan {
    /// The reconstructor of the slopes of truth sensors, and its error.
    fn reconstruct_slopes(
        &self,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Reconstruction, Error> {
        if self.method == Inversion::Iterative {
            return self.iterate(engine, watch);
        }
        if self.is_shared(engine) {
            let truth = truth_covariance(&self.system, watch)?;
            let inverted = self.invert_together(&truth, engine, watch)?;
            return Ok(inverted
                .map_or_else(Reconstruction::elsewhere, |inverted| self.result(inverted, truth)));
        }
        if !engine.devices().is_empty() {
            let truth = truth_covariance(&self.system, watch)?;
            let inverted = self.invert_on_device(&truth, engine, watch)?;
            return Ok(self.result(inverted, truth));
        }
        // Invert the three covariance matrices
        let mut covariances = CovarianceMatrices::on(&self.system, engine, watch)?;
        self.add_later_truth(&mut covariances, engine, watch)?;
        self.invert(covariances, watch)
    }
}

// Errors of each target, one by one
impl ReconstructorPlan {
    // Errors of each target
    /// Whether an engine computes the rows of one target at a time, where only errors are requested.
    fn is_one_by_one(&self, engine: &Engine) -> bool {
        let alone = !engine.devices().is_empty() && !self.is_shared(engine);
        alone && self.method != Inversion::Iterative && !self.is_delayed() && !self.options.keep
    }

    /// Passes the covariance C_ee of each target's error, (m, m), rad², to `sink` with the number of the target, one after the other. C_mm is
    /// factorised once, and a device has rows of one target at a time.
    ///
    /// # Errors
    /// As [`run`](Self::run), and those of `sink`.
    pub fn each_error(
        &self,
        engine: &Engine,
        watch: &dyn Watch,
        sink: &mut ErrorSink,
    ) -> Result<(), Error> {
        let expected = "slopes or actuators: a PointErrorsPlan has the errors of wavefronts";
        accept(!self.is_to_wavefront(), "to", self.options.to.name(), expected)?;
        if !self.is_one_by_one(engine) {
            let result = self.run(engine, watch)?.error_covariance;
            return result.outer_iter().enumerate().try_for_each(|(t, error)| sink(t, error));
        }
        self.memory_of_each(engine).check(engine, &self.subject())?;
        self.each_error_on_device(engine, watch, sink)
    }

    // Memory and plan of one target
    /// The most memory that [`each_error`](Self::each_error) has in use at a time.
    pub fn memory_of_each(&self, engine: &Engine) -> Memory {
        match self.for_target(0) {
            Ok(one) if self.is_one_by_one(engine) => one.memory_on(engine),
            _ => self.memory_on(engine),
        }
    }

    /// The plan for the errors of one of the targets.
    fn for_target(&self, t: usize) -> Result<Self, Error> {
        let system = self.system.to_builder().targets([self.system.targets()[t]]).build()?;
        let options = ReconstructorOptions { errors_only: true, ..self.options };
        Ok(Self { system, options, ..self.clone() })
    }
}

// What a reconstruction is
/// Tomographic reconstructor and covariance of its error, for each of T targets.
///
/// ```
/// use lenslet::{device::Engine, model::*, plan::Plan, tomography::{ReconstructorOptions, ReconstructorPlan}, watch::unwatched};
/// let array = LensletArray::new(1, 1.0)?;
/// let reconstruct = |directions: &[f64]| -> Result<_, lenslet::Error> {
///     let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(10e3, 1.0, 25.0)])?;
///     let star = |&x: &f64| {
///         let azimuth = if x < 0.0 { std::f64::consts::PI } else { 0.0 };
///         GuideStar::at_rest(Source::star(x.abs(), azimuth)?, array, 1e-13)
///     };
///     let stars: Result<Vec<GuideStar>, lenslet::Invalid> = directions.iter().map(star).collect();
///     let builder = System::builder(air, array).guide_stars(stars?);
///     let system = builder.targets([Source::star(0.0, 0.0)?]).build()?;
///     let plan = ReconstructorPlan::new(&system, ReconstructorOptions::default())?;
///     let found = plan.run(&Engine::default(), &unwatched)?;
///     let errors = [0, 1].map(|k| 1e12 * found.error_covariance[[0, k, k]]);
///     Ok((found.reconstructor.unwrap_or_default(), errors))
/// };
/// let (r, [x, y]) = reconstruct(&[-5e-5, 5e-5])?;
/// assert!((r[[0, 0, 0]] - 0.4735).abs() < 1e-4 && (r[[0, 0, 2]] - 0.4735).abs() < 1e-4);
/// assert!((r[[0, 1, 1]] - 0.4673).abs() < 1e-4);
/// assert!((x - 0.1414).abs() < 1e-4 && (y - 0.0720).abs() < 1e-4);
/// let (_, [alone, _]) = reconstruct(&[0.0])?; // Wiener's filter
/// assert!((alone - 0.4417 * 0.1 / 0.5417).abs() < 1e-4 && (alone - 0.0815).abs() < 1e-4);
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Reconstruction {
    /// The quantity that was reconstructed.
    pub to: ReconstructedQuantity,
    /// R of Eq. [reconstructor](https://lenslet.github.io/lenslet/reconstructor.html#eq-reconstructor), (T, m, n): the slopes of a truth sensor per measured slope; the wavefront at
    /// the points of its grid, row by row, per slope, (T, M², n), m/rad; or strokes of all mirrors per slope, m/rad, (T, a, n) where each target has a
    /// mirror and otherwise (1, a, n). None where only the errors were requested.
    pub reconstructor: Option<Array3<f64>>,
    /// C_ee of Eq. [error covariance](https://lenslet.github.io/lenslet/reconstructor.html#eq-error-covariance), (T, m, m), rad², of the slopes of truth sensors; empty for wavefronts.
    pub error_covariance: Array3<f64>,
    /// With a delay, C_ee of the other reconstructor: without prediction if one with prediction was requested, and vice versa.
    pub other_error_covariance: Option<Array3<f64>>,
    /// C_tt, (m, m), rad²; empty for wavefronts.
    pub truth_covariance: Array2<f64>,
    // Further results of a reconstruction
    /// Errors of the wavefronts of all targets at the points of their grid, where wavefronts were reconstructed.
    pub point_errors: Vec<WavefrontError>,
    /// Actuators in the order of the rows, where their strokes were reconstructed.
    pub actuators: Vec<Actuator>,
    /// The covariances that it was computed from, where they were to be kept.
    pub covariances: Option<CovarianceMatrices>,
    /// The eigenvalues of C_mm, ascending, rad², and how many of the largest were kept; where it was inverted by them.
    pub spectrum: Option<(Vec<f64>, usize)>,
}

// Parts and stages of a reconstruction
// Error of a reconstructed wavefront
/// The error of a wavefront: maps of its variance, and means over the pupil.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct WavefrontError {
    /// Variance with piston removed, m²: at the corners of a truth sensor's lenslets, (N + 1, N + 1), NaN where no valid lenslet is; or at the points of a grid, (M, M).
    #[cfg_attr(feature = "serde", serde(with = "crate::serial::array"))]
    pub variance: Array2<f64>,
    /// The same with the tilts removed.
    #[cfg_attr(feature = "serde", serde(with = "crate::serial::array"))]
    pub variance_without_tilt: Array2<f64>,
    /// Root of the mean variance over the pupil, m.
    pub rms: f64,
    /// The same without the tilts, m.
    pub rms_without_tilt: f64,
}

// Mirrors that a reconstruction can command
/// An actuator of a deformable mirror.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Actuator {
    /// Number of its mirror, from 0, in the order of the optical series.
    pub mirror: usize,
    /// Altitude to which the mirror is conjugate, m.
    pub altitude: f64,
    /// Position in the plane to which the mirror is conjugate, m.
    pub position: [f64; 2],
}

/// Projection of the slopes towards targets onto the strokes of mirrors.
pub(crate) trait StrokeProjection: fmt::Debug + Send + Sync {
    /// How many command matrices there are: one for each target with a mirror of its own, or one.
    fn commands(&self) -> usize;

    /// How many of the targets are evaluated; further directions come after them.
    fn targets(&self) -> usize;

    /// Actuators of all mirrors, in the order of strokes.
    fn actuators(&self) -> Vec<Actuator>;

    /// Strokes per slope, m/rad, (a, n) each, from the rows for slopes of truth sensors, (T, m, n).
    fn project(&self, rows: &Array3<f64>, engine: &Engine) -> Result<Vec<Array2<f64>>, Error>;
}

// Project a reconstruction onto mirrors
impl Reconstruction {
    /// The reconstruction with strokes in place of slopes, with the errors of the targets that are evaluated.
    fn onto(
        self,
        mirrors: &dyn StrokeProjection,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Self, Error> {
        // Ranks other than the first have no rows.
        let Some(rows) = self.reconstructor else { return Ok(self) };
        watch.stage(STROKES, "");
        check(watch)?;
        let commands = mirrors.project(&rows, engine)?;
        drop(rows);
        let commands: Vec<_> = commands.iter().map(|command| command.view()).collect();
        let commands = stack(Axis(0), &commands);
        let commands = commands.unwrap_or_else(|_| unreachable!("all are of the same mirrors"));
        let evaluated =
            |errors: Array3<f64>| errors.slice(s![..mirrors.targets(), .., ..]).to_owned();
        Ok(Self {
            to: ReconstructedQuantity::Actuators,
            reconstructor: Some(commands),
            error_covariance: evaluated(self.error_covariance),
            other_error_covariance: self.other_error_covariance.map(evaluated),
            actuators: mirrors.actuators(),
            ..self
        })
    }
}

// Empty reconstruction of other ranks
impl Reconstruction {
    /// The empty result of all ranks but the first.
    fn elsewhere() -> Self {
        Self {
            to: ReconstructedQuantity::default(),
            reconstructor: None,
            error_covariance: Array3::zeros((0, 0, 0)),
            other_error_covariance: None,
            truth_covariance: Array2::zeros((0, 0)),
            point_errors: Vec::new(),
            actuators: Vec::new(),
            covariances: None,
            spectrum: None,
        }
    }
}

// Names of the stages of reconstruction
/// Names of the stages of a reconstruction.
const FACTOR: &str = "factorisation";
const RECONSTRUCTOR: &str = "reconstructor";
const ERROR: &str = "error";
const STROKES: &str = "strokes";

// Inversion of the measured covariance
// Types of inverted covariances
/// Receiver of the covariance C_ee of a target's error, (m, m), rad², with the number of the target.
pub type ErrorSink<'s> = dyn FnMut(usize, ArrayView2<f64>) -> Result<(), Error> + 's;

/// The covariances of the errors of all targets, (T, m, m), and with a delay those of the other choice about prediction.
type Errors = (Array3<f64>, Option<Array3<f64>>);

/// Rows of all targets, (T m, n), if they are wanted, their errors, the spectrum with the number of values kept, and C_mm and C_tm where
/// they are to be kept.
type Inverted = (Option<Array2<f64>>, Errors, Option<(Vec<f64>, usize)>, Option<[Array2<f64>; 2]>);

// Inverse of the measured covariance
// Invert by cholesky or eigenvectors
impl ReconstructorPlan {
    // Invert given covariances
    /// Reconstructor and error from given covariances of the planned sizes, with a delay those of the later truth and the present.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    fn invert(
        &self,
        covariances: CovarianceMatrices,
        watch: &dyn Watch,
    ) -> Result<Reconstruction, Error> {
        let kept = self.options.keep.then(|| self.kept(&covariances));
        watch.stage(FACTOR, "");
        check(watch)?;
        let CovarianceMatrices { measurements, truth_measurements, truth } = covariances;
        let given = [measurements, truth_measurements];
        let (rows, errors, spectrum, _) = self.invert_on_host(&truth, given, watch)?;
        Ok(self.result((rows, errors, spectrum, kept), truth))
    }

    // Gather a reconstruction
    /// A reconstruction from the results of the inversion.
    fn result(
        &self,
        (rows, (error, other), spectrum, kept): Inverted,
        truth: Array2<f64>,
    ) -> Reconstruction {
        let shape = (self.system.targets().len(), self.truth_slopes, self.measurements);
        let reconstructor = rows.map(|rows| {
            let reconstructor = rows.into_shape_with_order(shape);
            reconstructor.unwrap_or_else(|_| unreachable!("rows of all targets"))
        });
        let covariances = kept.map(|[measurements, truth_measurements]| {
            let truth = truth.clone();
            CovarianceMatrices { measurements, truth_measurements, truth }
        });
        Reconstruction {
            reconstructor,
            error_covariance: error,
            other_error_covariance: other,
            truth_covariance: truth,
            covariances,
            spectrum,
            ..Reconstruction::elsewhere()
        }
    }

    // Invert on processors
    /// The rows of all targets, the covariances of their errors, and the spectrum, by processors, from C_tt, and C_mm and C_tm.
    fn invert_on_host(
        &self,
        truth: &Array2<f64>,
        [measurements, mut half]: [Array2<f64>; 2],
        watch: &dyn Watch,
    ) -> Result<Inverted, Error> {
        Ok(if self.method == Inversion::Eigen {
            // Reconstruct by eigenvectors
            let eigen = Eigen::new(&measurements)?;
            drop(measurements);
            watch.stage(RECONSTRUCTOR, "");
            check(watch)?;
            let kept = eigen.kept(self.filter_above(f64::EPSILON));
            let values = eigen.values();
            let roots: Array1<f64> =
                values[values.len() - kept..].iter().map(|value| value.sqrt()).collect();
            half = eigen.project(&half, kept) / &roots;
            let errors = self.errors(truth, &half);
            check(watch)?;
            let rows = self.chosen_rows(half).map(|half| eigen.expand(&(half / &roots)));
            (rows, errors, Some((values.to_vec(), kept)), None)
        } else {
            // Reconstruct by the cholesky factor
            let factor = Cholesky::new(measurements).map_err(|error| self.blame(error))?;
            watch.stage(RECONSTRUCTOR, "");
            check(watch)?;
            factor.halve(&mut half);
            let errors = self.errors(truth, &half);
            check(watch)?;
            let mut rows = self.chosen_rows(half);
            rows.iter_mut().for_each(|rows| factor.finish(rows));
            (rows, errors, None, None)
        })
    }

    // Take away what the measurements explain
    /// C_tt − W Wᵗ for each target, from the rows of all.
    fn unexplained(&self, truth: &Array2<f64>, half: &Array2<f64>) -> Array3<f64> {
        let (targets, m) = (self.system.targets().len(), self.truth_slopes);
        let mut errors = Array3::zeros((targets, m, m));
        for (t, mut error) in errors.outer_iter_mut().enumerate() {
            let half = half.slice(s![t * m..(t + 1) * m, ..]);
            error.assign(&(truth - &times_transpose(&half, &half)));
        }
        errors
    }
}

// Blame the slope of a pivot
impl ReconstructorPlan {
    /// The error for a matrix that is not positive definite.
    fn blame(&self, NotPositive { pivot }: NotPositive) -> Error {
        not_definite(&self.system, pivot)
    }
}

// Reconstruct a later truth
impl ReconstructorPlan {
    /// Whether the truth is later than the measurements.
    pub(super) fn is_delayed(&self) -> bool {
        self.options.delay > 0.0
    }

    /// With a delay, puts the covariance with the later truth above that with the present one.
    fn add_later_truth(
        &self,
        covariances: &mut CovarianceMatrices,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        if self.is_delayed() {
            let (system, present) = (&self.system, &covariances.truth_measurements);
            let later = CovarianceMatrices::later_truth(system, self.options.delay, engine, watch)?;
            covariances.truth_measurements = concatenate![Axis(0), later, *present];
        }
        Ok(())
    }

    // Rows of the later and present truth
    /// C_mm and C_tm to keep: of the later truth, where there is one.
    fn kept(&self, covariances: &CovarianceMatrices) -> [Array2<f64>; 2] {
        let CovarianceMatrices { measurements, truth_measurements, .. } = covariances;
        let rows = truth_measurements.nrows() / self.sets();
        [measurements.clone(), truth_measurements.slice(s![..rows, ..]).to_owned()]
    }

    /// How many sets of rows C_tm has: those of the later truth and of the present one, or one.
    pub(super) fn sets(&self) -> usize {
        if self.is_delayed() { 2 } else { 1 }
    }

    // Tell errors with and without prediction
    /// C_ee of the requested reconstructor, and with a delay of the other one, Eq. [gain of prediction](https://lenslet.github.io/lenslet/prediction.html#eq-gain-of-prediction).
    fn errors(&self, truth: &Array2<f64>, half: &Array2<f64>) -> Errors {
        let with = self.unexplained(truth, half);
        if !self.is_delayed() {
            return (with, None);
        }
        let (later, present) = half.view().split_at(Axis(0), half.nrows() / 2);
        let (gap, m, mut without) = (&later - &present, self.truth_slopes, with.clone());
        for (t, mut error) in without.outer_iter_mut().enumerate() {
            let gap = gap.slice(s![t * m..(t + 1) * m, ..]);
            error += &times_transpose(&gap, &gap);
        }
        self.choose(with, without)
    }

    // Choose what was asked for
    /// The errors of the requested reconstructor and of the other one.
    fn choose(&self, with: Array3<f64>, without: Array3<f64>) -> Errors {
        if self.options.predict { (with, Some(without)) } else { (without, Some(with)) }
    }

    /// The rows of the requested reconstructor, if any.
    fn chosen_rows(&self, half: Array2<f64>) -> Option<Array2<f64>> {
        if self.options.errors_only {
            return None;
        }
        if !self.is_delayed() {
            return Some(half);
        }
        let (later, present) = half.view().split_at(Axis(0), half.nrows() / 2);
        Some(if self.options.predict { later.to_owned() } else { present.to_owned() })
    }

    // Say the delay of a plan
    /// The part of a description about the delay.
    fn say_delay(&self) -> String {
        let with = if self.options.predict { "with" } else { "without" };
        match self.is_delayed() {
            true => format!(", {with} prediction of a truth {} s later", self.options.delay),
            false => String::new(),
        }
    }

    /// The part of a description about several devices.
    fn say_ranks(&self, engine: &Engine) -> String {
        match self.ranks(engine) {
            1 => self.say_alone(engine),
            ranks => format!(", shared by {ranks} ranks"),
        }
    }

    /// Why one of several devices computes alone, if one does.
    fn say_alone(&self, engine: &Engine) -> String {
        self.why_alone(engine)
            .map_or_else(String::new, |why| format!("; by one device alone: {why}"))
    }

    /// How much later than the measurements the truth is, s, and whether the reconstructor predicts over that.
    pub fn delay(&self) -> (f64, bool) {
        (self.options.delay, self.options.predict)
    }
}

// Error of any reconstructor
/// C_ee of Eq. [error covariance](https://lenslet.github.io/lenslet/reconstructor.html#eq-error-covariance), (m, m), rad², of any reconstructor R, (m, n), where the covariances of one target are
/// `truth` = C_tt, `truth_measurements` = C_tm and `measurements` = C_mm with the noise.
///
/// ```
/// use lenslet::tomography::error_covariance;
/// use ndarray::array;
/// let (truth, cross, measured) = (array![[1.0]], array![[0.9, 0.9]], array![[1.1, 0.7], [0.7, 1.1]]);
/// let error = |r: ndarray::Array2<f64>| error_covariance(&r, &truth, &cross, &measured)[[0, 0]];
/// assert!((error(array![[0.5, 0.5]]) - 0.1).abs() < 1e-12);
/// assert!((error(array![[0.9 / 1.1, 0.0]]) - 0.2636).abs() < 1e-4); // one star
/// assert!((error(array![[1.0 / 2.1, 1.0 / 2.1]]) - 0.1020).abs() < 1e-4); // all turbulence at the ground
/// ```
///
/// # Panics
/// If the shapes do not go together.
pub fn error_covariance(
    reconstructor: &Array2<f64>,
    truth: &Array2<f64>,
    truth_measurements: &Array2<f64>,
    measurements: &Array2<f64>,
) -> Array2<f64> {
    let cross = times_transpose(truth_measurements, reconstructor);
    let by_measurements = times_transpose(reconstructor, measurements); // C_mm is symmetric
    truth - &cross - cross.t() + times_transpose(&by_measurements, reconstructor)
}

// Tests of the reconstructor
#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::operator::battery::random;
    use crate::model::atmosphere::{Atmosphere, Layer};
    use crate::model::lenslet_array::LensletArray;
    use crate::model::noise::{GuideStar, Noise};
    use crate::model::removed_modes::TipTilt;
    use crate::model::source::Source;
    use crate::tomography::covariance_matrix::add_noise;
    use crate::tomography::covariance_matrix::tests::{system, windy};
    use crate::watch::unwatched;

    // Reconstruct a system in a test
    const NOISE: f64 = 2e-14;

    fn reconstruct(system: &System, options: ReconstructorOptions) -> Reconstruction {
        let plan = ReconstructorPlan::new(system, options).unwrap();
        plan.run(&Engine::default(), &unwatched).unwrap()
    }

    /// R, (T, m, n).
    fn rows(found: &Reconstruction) -> &Array3<f64> {
        found.reconstructor.as_ref().unwrap()
    }

    fn largest(matrix: &Array2<f64>) -> f64 {
        matrix.fold(0.0, |most: f64, value| most.max(value.abs()))
    }

    /// Mean variance of the error of a slope, over both targets.
    fn mean_error(reconstruction: &Reconstruction) -> f64 {
        let errors = reconstruction.error_covariance.outer_iter();
        errors.map(|error| error.diag().mean().unwrap()).sum::<f64>() / 2.0
    }

    fn least_eigenvalue(matrix: &Array2<f64>) -> f64 {
        Eigen::new(matrix).unwrap().values()[0]
    }

    // Three forms of the error agree
    #[test]
    fn three_forms_of_the_error_agree() {
        let system = system(NOISE);
        let options = ReconstructorOptions::default();
        let [by_cholesky, by_eigen] = [Inversion::Auto, Inversion::Eigen]
            .map(|method| reconstruct(&system, options.method(method)));
        assert!(by_cholesky.spectrum.is_none());
        for (method, whole) in [(Inversion::Auto, &by_cholesky), (Inversion::Eigen, &by_eigen)] {
            let bare = reconstruct(&system, options.method(method).errors_only(true));
            assert!(bare.reconstructor.is_none());
            assert_eq!(bare.error_covariance, whole.error_covariance);
        }
        let covariances = CovarianceMatrices::of(&system, &unwatched).unwrap();
        let (n, scale) = (covariances.measurements.nrows(), largest(&covariances.truth));
        assert_eq!(
            by_eigen.spectrum.as_ref().map(|(values, kept)| (values.len(), *kept)),
            Some((n, n))
        );
        let m = covariances.truth.nrows();
        for t in 0..2 {
            let [r, other] = [&by_cholesky, &by_eigen]
                .map(|found| rows(found).index_axis(Axis(0), t).to_owned());
            assert!(largest(&(&r - &other)) < 1e-9, "{:e}", largest(&(&r - &other)));
            let c_tm = covariances.truth_measurements.slice(s![t * m..(t + 1) * m, ..]).to_owned();
            assert!(largest(&(r.dot(&covariances.measurements) - &c_tm)) < 1e-12 * scale);
            let c_ee = by_cholesky.error_covariance.index_axis(Axis(0), t).to_owned();
            let long = error_covariance(&r, &covariances.truth, &c_tm, &covariances.measurements);
            assert!(largest(&(&long - &c_ee)) < 1e-12 * scale);
            // Any other matrix does worse, in every combination of slopes.
            let bent = Array2::from_shape_vec(r.dim(), random(m * n, 7)).unwrap() * 1e-3 + &r;
            let worse =
                error_covariance(&bent, &covariances.truth, &c_tm, &covariances.measurements);
            assert!(least_eigenvalue(&(&worse - &c_ee)) > -1e-12 * scale);
            assert!((&worse - &c_ee).diag().sum() > 1e-6 * scale);
            assert!(least_eigenvalue(&c_ee) > -1e-12 * scale);
        }
    }

    // Filters cost and rounding is dropped
    #[test]
    fn filters_cost_and_rounding_is_dropped() {
        let options = ReconstructorOptions::default();
        let (noisy, silent_system) = (system(NOISE), system(0.0));
        let covariances = CovarianceMatrices::of(&noisy, &unwatched).unwrap();
        let filtered = |filter: f64| {
            let options = options.method(Inversion::Eigen).filter(filter);
            let plan = ReconstructorPlan::new(&noisy, options).unwrap();
            plan.invert(covariances.clone(), &unwatched).unwrap()
        };
        let errors = [0.0, 1e-2, 3e-2, 1e-1].map(|filter| {
            let found = filtered(filter);
            (mean_error(&found), found.spectrum.unwrap().1)
        });
        assert!(
            errors.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1),
            "{errors:?}"
        );
        // The error of a filtered reconstructor is what the long form says.
        let found = filtered(1e-2);
        let (m, scale) = (covariances.truth.nrows(), largest(&covariances.truth));
        let c_tm = covariances.truth_measurements.slice(s![m.., ..]).to_owned();
        let r = rows(&found).index_axis(Axis(0), 1).to_owned();
        let long = error_covariance(&r, &covariances.truth, &c_tm, &covariances.measurements);
        assert!(largest(&(&long - &found.error_covariance.index_axis(Axis(0), 1))) < 1e-11 * scale);
        // Without noise there is an answer, too.
        let without = reconstruct(&silent_system, options);
        assert!(without.spectrum.is_some() && mean_error(&without) < errors[0].0);
    }

    // Physics of the error
    #[test]
    fn physics_of_the_error_holds() {
        let options = ReconstructorOptions::default();
        let three = system(NOISE);
        let error = mean_error(&reconstruct(&three, options));
        assert!(mean_error(&reconstruct(&system(4.0 * NOISE), options)) > error);
        let stars = three.guide_stars();
        for left_out in 0..3 {
            let kept: Vec<GuideStar> =
                (0..3).filter(|k| *k != left_out).map(|k| stars[k].clone()).collect();
            let fewer = three.to_builder().guide_stars(kept).build().unwrap();
            assert!(mean_error(&reconstruct(&fewer, options)) > error);
        }
        // The order of stars changes nothing but the order of columns.
        let turned = [2, 0, 1].map(|k| stars[k].clone());
        let permuted = three.to_builder().guide_stars(turned).build().unwrap();
        let [first, second] = [&three, &permuted].map(|system| reconstruct(system, options));
        let [order, permuted] = [&three, &permuted].map(|s| SlopeOrder::new(&s.valid_lenslets()));
        let last = permuted.index(0, 1, permuted.lenslets(0).len() - 1) + 1;
        let moved = order.index(2, 0, 0);
        let [here, there] =
            [rows(&first).slice(s![.., .., moved..]), rows(&second).slice(s![.., .., ..last])];
        assert!((&here - &there).iter().all(|rest| rest.abs() < 1e-10));
        let gap = &first.error_covariance - &second.error_covariance;
        assert!(gap.iter().all(|rest| rest.abs() < 1e-22));
        // A star on the axis leaves noise alone
        let on_axis = |noise: f64| {
            let target: Source = three.targets()[0];
            let array = *three.truth_sensor();
            let star = GuideStar::at_rest(target, array, noise).unwrap();
            let alone =
                three.to_builder().guide_stars([star]).targets([target, target]).build().unwrap();
            mean_error(&reconstruct(&alone, options))
        };
        assert!(on_axis(1e-20) < 1e-20 && on_axis(1e-20) > 0.5e-20, "{:e}", on_axis(1e-20));
        assert!(on_axis(NOISE) < NOISE && on_axis(NOISE) > 0.3 * NOISE);
    }

    // What cannot be reconstructed is refused
    #[test]
    fn what_cannot_be_reconstructed_is_refused() {
        let (good, options) = (system(NOISE), ReconstructorOptions::default());
        let refused = |system: &System, options| {
            let made = ReconstructorPlan::new(system, options);
            made.and_then(|plan| plan.run(&Engine::default(), &unwatched)).unwrap_err().to_string()
        };
        let aimless = good.to_builder().targets([]).build().unwrap();
        assert!(
            refused(&aimless, options).starts_with("target = 0: expected at least one [[target]]")
        );
        let words = refused(&good, options.method(Inversion::Cholesky).filter(0.1));
        assert!(words.starts_with("filter = 0.1: expected 0 with method = \"cholesky\""));
        assert!(refused(&good, options.filter(1.0)).starts_with("filter = 1.0: expected a ratio"));
        // Two stars that are one, without noise.
        let mut stars = system(0.0).guide_stars().to_vec();
        stars[2] = stars[0].clone();
        let twice = good.to_builder().guide_stars(stars).build().unwrap();
        let words = refused(&twice, options.method(Inversion::Cholesky));
        assert!(
            words.contains("not positive definite") && words.contains("guide_star[2]"),
            "{words}"
        );
        let plan = ReconstructorPlan::new(&twice, options).unwrap();
        assert_eq!(plan.method(), Inversion::Eigen);
        assert!(
            plan.describe(&Engine::default()).unwrap().reason.contains("a guide star has no noise")
        );
    }

    // Removed modes carry no information
    #[test]
    fn removed_modes_carry_no_information() {
        // The laser star and one other with few lenslets are enough, and quickly computed.
        let stars = system(NOISE).guide_stars().to_vec();
        let pair = |noise: Noise, tip_tilt: TipTilt| {
            let mut stars = [stars[0].clone(), stars[2].clone()];
            stars[0].tip_tilt = tip_tilt;
            let array = stars[1].sensor.array;
            stars[0].sensor.array = array;
            stars.iter_mut().for_each(|star| star.noise = noise.clone());
            let builder = system(0.0).to_builder().truth_sensor(Some(array));
            builder.guide_stars(stars).build().unwrap()
        };
        let no_noise = pair(Noise::uniform(0.0).unwrap(), TipTilt::Measured);
        let bare = CovarianceMatrices::of(&no_noise, &unwatched).unwrap();
        let variance = bare.measurements[[0, 0]];
        // The covariances with noise and with this answer of the laser star, modes not yet removed.
        let with = |tip_tilt: TipTilt| {
            let system = pair(Noise::uniform(NOISE).unwrap(), tip_tilt);
            let mut covariances = bare.clone();
            add_noise(&mut covariances.measurements, &system);
            (covariances, system)
        };
        let unknown = |times: f64| with(TipTilt::unknown(times * variance).unwrap()).0;
        let (plain, blind_system) = with(TipTilt::Removed);
        let modes = blind_system.removed_modes();
        let plan = ReconstructorPlan::new(&blind_system, ReconstructorOptions::default()).unwrap();
        let invert =
            |covariances: CovarianceMatrices| plan.invert(covariances, &unwatched).unwrap();
        let remove = |mut covariances: CovarianceMatrices| {
            covariances.remove(&modes);
            covariances
        };
        let projected = remove(plain.clone());
        let blind = invert(projected.clone());
        let gap = |other: &Reconstruction| {
            let gap = rows(other) - rows(&blind);
            gap.iter().fold(0.0, |most: f64, gap| most.max(gap.abs()))
        };
        // Compare with an unknown tilt
        for row in rows(&blind).rows() {
            let mut left = row.to_vec();
            modes.remove(&mut left);
            assert!(left.iter().zip(row).all(|(left, whole)| (left - whole).abs() < 1e-12));
        }
        assert!(gap(&invert(remove(unknown(1e3)))) < 1e-9);
        assert!(gap(&invert(unknown(1e6))) < 1e-6 && gap(&invert(unknown(1.0))) > 1e-4);
        let errors =
            [invert(plain.clone()), invert(unknown(0.01)), invert(unknown(1.0)), blind.clone()];
        let errors = errors.map(|found| mean_error(&found));
        assert!(errors.windows(2).all(|pair| pair[0] < pair[1]), "{errors:?}");
        // The system's own path, and the long form with either covariance of the measurements.
        let run = plan.run(&Engine::default(), &unwatched).unwrap();
        assert!(gap(&run) < 1e-10);
        let (m, scale) = (bare.truth.nrows(), largest(&bare.truth));
        let r = rows(&blind).index_axis(Axis(0), 1).to_owned();
        for covariances in [&projected, &plain] {
            let c_tm = covariances.truth_measurements.slice(s![m.., ..]).to_owned();
            let long = error_covariance(&r, &bare.truth, &c_tm, &covariances.measurements);
            let c_ee = blind.error_covariance.index_axis(Axis(0), 1);
            assert!(largest(&(&long - &c_ee)) < 1e-12 * scale);
        }
    }

    // The upwind neighbour knows the future
    #[test]
    fn the_upwind_neighbour_knows_the_future() {
        let (array, delay) = (LensletArray::new(5, 0.5).unwrap(), 0.02);
        let mut layer = Layer::new(3e3, 1.0, 25.0);
        layer.wind_speed = 0.5 * 5f64.sqrt() / delay;
        layer.wind_direction = 2f64.atan2(1.0);
        let air = Atmosphere::new(0.15, 500e-9, vec![layer]).unwrap();
        let axis = Source::star(1e-4, 0.7).unwrap();
        let star = GuideStar::at_rest(axis, array, 1e-20).unwrap();
        let system =
            System::builder(air, array).guide_stars([star]).targets([axis]).build().unwrap();
        let found = reconstruct(&system, ReconstructorOptions::default().delay(delay));
        let r = rows(&found).index_axis(Axis(0), 0);
        let others = found.other_error_covariance.as_ref().unwrap();
        for (component, (j, i)) in (0..2).flat_map(|c| (0..25).map(move |k| (c, (k / 5, k % 5)))) {
            let row = 25 * component + 5 * j + i;
            let [with, without] =
                [&found.error_covariance, others].map(|errors| errors[[0, row, row]]);
            let variance = found.truth_covariance[[row, row]];
            if j >= 2 && i >= 1 {
                let upwind = 25 * component + 5 * (j - 2) + i - 1;
                for (column, weight) in r.row(row).iter().enumerate() {
                    let expected = if column == upwind { 1.0 } else { 0.0 };
                    assert!((weight - expected).abs() < 1e-3, "{row} {column}: {weight}");
                }
                assert!(with < 2e-20 && without > 0.3 * variance, "{with:e} {without:e}");
            } else {
                assert!(with > 1e-3 * variance, "{row}: {with:e}");
            }
            assert!(without > with);
        }
    }

    // Errors over growing delays
    #[test]
    fn prediction_gains_more_the_longer_the_delay() {
        let windy = windy(NOISE);
        let (present, engine) =
            (CovarianceMatrices::of(&windy, &unwatched).unwrap(), Engine::default());
        let invert = |options: ReconstructorOptions| {
            let plan = ReconstructorPlan::new(&windy, options).unwrap();
            let mut covariances = present.clone();
            plan.add_later_truth(&mut covariances, &engine, &unwatched).unwrap();
            plan.invert(covariances, &unwatched).unwrap()
        };
        let options = ReconstructorOptions::default();
        let plain = invert(options);
        assert!(plain.other_error_covariance.is_none());
        let errors = [1e-6, 8e-3, 2e-2].map(|delay| {
            let found = invert(options.delay(delay));
            let other = found.other_error_covariance.clone().unwrap();
            [mean_error(&found), mean_error(&Reconstruction { error_covariance: other, ..found })]
        });
        let now = mean_error(&plain);
        assert!(errors[0].iter().all(|error| (error / now - 1.0).abs() < 1e-4), "{now} {errors:?}");
        assert!(errors.iter().all(|[with, without]| with < without), "{errors:?}");
        let [[soon, soon_without], [late, late_without]] = [errors[1], errors[2]];
        assert!(now < soon_without && soon_without < late_without, "{now} {errors:?}");
        assert!(late_without - late > 2.0 * (soon_without - soon), "{now} {errors:?}");
        assert!(late < 1.5 * now && late_without > 1.1 * late, "{now} {errors:?}");
        // Without prediction it is the plain reconstructor
        let asked = options.delay(2e-2).method(Inversion::Eigen).filter(1e-2);
        let (found, now) = (invert(asked.predict(false).keep(true)), invert(asked.delay(0.0)));
        let gap = rows(&found) - rows(&now);
        assert!(gap.iter().all(|gap| gap.abs() < 1e-10));
        let c = found.covariances.as_ref().unwrap();
        let (m, scale) = (c.truth.nrows(), largest(&c.truth));
        let later = c.truth_measurements.slice(s![m.., ..]).to_owned();
        let r = rows(&found).index_axis(Axis(0), 1).to_owned();
        let long = error_covariance(&r, &c.truth, &later, &c.measurements);
        assert!(largest(&(&long - &found.error_covariance.index_axis(Axis(0), 1))) < 1e-11 * scale);
        let other = found.other_error_covariance.unwrap();
        let best = invert(asked);
        assert!((&other - &best.error_covariance).iter().all(|gap| gap.abs() < 1e-11 * scale));
        assert!(best.spectrum.is_some_and(|(values, kept)| kept < values.len()));
    }
}
