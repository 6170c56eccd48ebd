// Tangled from book/src/point-errors.md: edit there, or here and run cargo tangle stitch.
//! The error that an estimate leaves at every point of a wavefront.

mod gpu;

// Imports of errors at points
use crate::data::DataSet;
use crate::device::{CostKind, engine::Engine};
use crate::error::{Error, Invalid, accept, count};
use crate::estimation::estimate::{EstimateOptions, EstimatorCpu, Model, PosedEstimate};
use crate::estimation::estimator::EstimatePlan;
use crate::estimation::inversion::{Inversion, iterations, toeplitz_product};
use crate::linear::operator::Operator;
use crate::linear::solver::Stop;
use crate::linear::solver::multi_rhs::{
    ExplainedVariance, below_eigenvalues, explain_together, solve_together,
};
use crate::model::source::Source;
use crate::model::system::System;
use crate::model::wavefront_grid::PhaseGrid;
use crate::plan::{Description, Memory, Plan, Stage};
use crate::tomography::error::{WavefrontError, add_errors, piston_and_tilts, without_modes};
use crate::tomography::reconstructor::ReconstructorOptions;
use crate::turbulence::arrays::describe_system;
use crate::turbulence::disc::DiscAverage;
use crate::turbulence::phase::VonKarman;
use crate::turbulence::plan::{Form, WAVEFRONTS};
use crate::watch::{Watch, check};
use ndarray::{Array1, Array2, s};
use rayon::prelude::*;
use std::f64::consts::PI;

// Prior of a wavefront in its pupil
// Prior of a wavefront
/// Statistics of a target's wavefront before any measurement.
pub(crate) struct Prior {
    /// S of Eq. [von karman functions](https://lenslet.github.io/lenslet/phase.html#eq-von-karman-functions) of all layers at displacements of whole steps, (M, M), m².
    half_structures: Array2<f64>,
    /// Points across.
    points: usize,
}

impl Prior {
    pub(crate) fn new(system: &System, grid: PhaseGrid, target: &Source) -> Self {
        let (air, step) =
            (system.atmosphere(), system.wavefront_pitch() / grid.oversampling as f64);
        let metres = (air.wavelength() / (2.0 * PI)).powi(2);
        let strength = metres * air.fried_parameter().powf(-5.0 / 3.0);
        let mut half_structures = Array2::zeros((grid.points, grid.points));
        // Add the structure functions of layers
        for layer in air.layers().iter().filter(|layer| layer.fraction > 0.0) {
            let phase = VonKarman::new(layer.outer_scale);
            let step = step * target.cone_factor(layer.altitude);
            let radius = grid.disc_at(layer.altitude, layer.outer_scale, system.wavefront_pitch());
            let reach = step * 2f64.sqrt() * grid.points as f64;
            let average = (radius > 0.0).then(|| DiscAverage::twice(&phase, radius, reach));
            let half_structure = |(j, i): (usize, usize)| {
                let r = step * (i as f64).hypot(j as f64);
                average.as_ref().map_or_else(
                    || phase.half_structure_and_half_mean(r).0,
                    |average| average.half_structure(r) - average.half_structure(0.0),
                )
            };
            let layer = strength
                * layer.fraction
                * Array2::from_shape_fn(half_structures.dim(), half_structure);
            half_structures += &layer;
        }
        Self { half_structures, points: grid.points }
    }

    // Sum structure functions over the pupil
    /// Σ S(x − y) f(y) over all points y, for each point x.
    fn sums(&self, field: &Array1<f64>) -> Array1<f64> {
        let m = self.points;
        // S along a row of the grid, mirrored, so that each sum is over neighbours.
        let row =
            |j: usize| (0..2 * m - 1).map(move |k| self.half_structures[[j, k.abs_diff(m - 1)]]);
        let rows: Vec<Vec<f64>> = (0..m).map(|j| row(j).collect()).collect();
        let field: Vec<&[f64]> = field.as_slice().unwrap_or_default().chunks(m).collect();
        let along = |x: usize| {
            let (j, i) = (x / m, x % m);
            let row = |(k, row): (usize, &&[f64])| {
                let half_structures = &rows[j.abs_diff(k)][m - 1 - i..];
                row.iter().zip(half_structures).map(|(f, s)| f * s).sum::<f64>()
            };
            field.iter().enumerate().map(row).sum()
        };
        (0..m * m).into_par_iter().map(along).collect::<Vec<f64>>().into()
    }
}

// Pupil of a wavefront
/// The points of the pupil with their weights, and the modes over them.
pub(crate) struct Lit {
    /// Share of each point, (M²); they sum to 1.
    pub(crate) area: Array1<f64>,
    /// Piston and tilts, orthonormal over the area.
    pub(crate) modes: Vec<Array1<f64>>,
}

impl Lit {
    // Points that count in the mean
    /// # Errors
    /// `Invalid` where no point is in the pupil.
    pub(crate) fn new(system: &System, grid: PhaseGrid) -> Result<Self, Invalid> {
        let (m, inside) = (grid.points, in_pupil(system, grid));
        let lit = |k: usize| f64::from(u8::from(inside((k / m, k % m))));
        let area: Array1<f64> = (0..m * m).map(lit).collect();
        let count = area.sum();
        let expected = "a grid with a point in the pupil, for errors over the pupil";
        accept(count > 0.0, "phase.points", m, expected)?;
        let (area, along) = (area / count, |k: usize| k as f64 - 0.5 * (m - 1) as f64);
        let tilts = [|k: usize, m: usize| k % m, |k: usize, m: usize| k / m];
        let tilts = tilts.map(|place| (0..m * m).map(|k| along(place(k, m))).collect());
        Ok(Self { modes: piston_and_tilts(&area, tilts), area })
    }

    // Field without its mean
    /// A field without its mean over the pupil.
    fn level(&self, field: Array1<f64>) -> Array1<f64> {
        let mean = self.area.dot(&field);
        field - mean
    }
}

// Variances before measurements
/// Variances of a wavefront without piston before anything is measured, m², and its covariance with each tilt.
pub(crate) struct Before {
    variance: Array1<f64>,
    with_tilts: Vec<Array1<f64>>,
}

impl Before {
    pub(crate) fn new(prior: &Prior, lit: &Lit) -> Self {
        let sums = prior.sums(&lit.area);
        let with_tilt = |tilt: &Array1<f64>| -lit.level(prior.sums(&(&lit.area * tilt)));
        let with_tilts = lit.modes[1..].iter().map(with_tilt).collect();
        Self { variance: 2.0 * &sums - lit.area.dot(&sums), with_tilts }
    }
}

// Plan of errors at points
/// Plan of the tomographic error at all points of the wavefronts of a system's targets.
#[derive(Debug, Clone)]
pub struct PointErrorsPlan {
    posed: PosedEstimate,
    /// Reason for the form of its covariances.
    reason: String,
    tolerance: f64,
    grid: PhaseGrid,
    batch: Option<usize>,
}

// Errors at all points
/// Tomographic errors at all points of the wavefronts.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct PointErrors {
    /// Errors of each target.
    pub errors: Vec<WavefrontError>,
    /// Iterations, of a point on average and at most.
    pub iterations: (f64, usize),
    /// Largest error of a covariance by interpolation, in units of the largest covariance; 0 if there is none.
    pub interpolation_error: f64,
}

impl PointErrors {
    /// The errors as a data set, with a description of the `system`.
    pub fn to_data_set(&self, system: &System) -> DataSet<'_> {
        let mut data = DataSet::default();
        add_errors(&mut data, &self.errors, "variance of the wavefront's error at its points");
        describe_system(&mut data, system);
        data
    }
}

impl PointErrorsPlan {
    // Plan errors at points
    /// Plans the errors of a system's wavefronts at the points of its grid. The tolerance of the options is the largest relative
    /// deviation of an error.
    ///
    /// # Errors
    /// `Invalid` where the system has no target or no grid, or the grid has no point in the pupil; where options are invalid or require a truth
    /// sensor.
    ///
    /// ```
    /// use lenslet::model::{Atmosphere, GuideStar, Layer, LensletArray, PhaseGrid, Pupil, Source, System};
    /// use lenslet::tomography::{PointErrorsPlan, ReconstructorOptions, ReconstructedQuantity};
    /// use lenslet::{device::Engine, plan::Plan, watch::unwatched};
    /// // With tilt and without \[nm\], for the noise of a star above the target and an outer scale.
    /// let errors = |noise, outer_scale| -> Result<[f64; 2], lenslet::Error> {
    ///     let array = LensletArray::new(8, 0.5)?;
    ///     let star = GuideStar::at_rest(Source::star(0.0, 0.0)?, array, noise)?;
    ///     let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, outer_scale)])?;
    ///     let system = System::builder(air, array).pupil(Some(Pupil::new(4.0, 0.0)?));
    ///     let system = system.guide_stars([star]).targets([Source::star(0.0, 0.0)?]);
    ///     let system = system.phase(Some(PhaseGrid::new(17, 2, 0.0)?)).build()?;
    ///     let options = ReconstructorOptions::default().to(ReconstructedQuantity::Wavefront);
    ///     let plan = PointErrorsPlan::new(&system, options.errors_only(true).tolerance(1e-2))?;
    ///     let error = &plan.run(&Engine::default(), &unwatched)?.errors[0];
    ///     Ok([error.rms, error.rms_without_tilt].map(|rms| 1e9 * rms))
    /// };
    /// let unit = 500.0 / (2.0 * std::f64::consts::PI) * (4.0f64 / 0.15).powf(5.0 / 6.0); // of (D/r0)^(5/3)
    /// let unmeasured = errors(1.0, f64::INFINITY)?;
    /// for (error, noll) in unmeasured.into_iter().zip([1.0299f64, 0.134]) {
    ///     assert!((error / (unit * noll.sqrt()) - 1.0).abs() < 0.02); // 1246 nm and 449 nm
    /// }
    /// assert!((unmeasured[0] - 1226.3).abs() < 0.5 && (unmeasured[1] - 442.7).abs() < 0.5);
    /// let [measured, short] = [errors(1e-14, f64::INFINITY)?[0], errors(1e-14, 25.0)?[0]];
    /// assert!((measured - 108.4).abs() < 0.5 && (measured - short).abs() < 0.5);
    /// assert!((errors(1.0, 25.0)?[0] - 732.1).abs() < 0.5);
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn new(system: &System, options: ReconstructorOptions) -> Result<Self, Error> {
        options.check()?;
        let tolerance = options.tolerance;
        check_options(&options)?;
        let options = EstimateOptions::default().method(Inversion::Iterative).tolerance(tolerance);
        let (grid, pose) =
            (system.wavefront_grid()?, |form| PosedEstimate::new(system, options.form(form)));
        let (posed, reason) = match pose(Form::Toeplitz) {
            Err(Error::NotToeplitz { reason }) => (pose(Form::Blocks)?, reason),
            posed => (posed?, "the guide stars share a lattice".into()),
        };
        Lit::new(system, grid)?;
        Ok(Self { posed, reason, tolerance, grid, batch: None })
    }

    // Compute errors at points
    fn compute(&self, engine: &Engine, watch: &dyn Watch) -> Result<PointErrors, Error> {
        let (system, grid) = (self.posed.covariances.system(), self.grid);
        watch.stage(PRIOR, "");
        let lit = Lit::new(system, grid)?;
        let before = |target: &Source| Before::new(&Prior::new(system, grid, target), &lit);
        let before: Vec<Before> = system.targets().iter().map(before).collect();
        check(watch)?;
        let mut model = self.posed.compute(engine, watch)?;
        model.groups.iter_mut().for_each(|group| group.regularise(REGULAR));
        let interpolation_error = model.interpolation_error;
        watch.stage(POINTS, POINTS);
        let batch = self.batch.unwrap_or_else(|| self.batch_on(engine));
        let job = Job { posed: &self.posed, lit: &lit, before: &before, batch };
        let answers = match engine.devices() {
            [] => job.explain_on_host(model, watch)?,
            _ => job.explain_on_device(&model, engine, watch)?,
        };
        let errors = (0..before.len()).map(|t| job.error_of(t, &answers));
        let counts = || answers.explained.iter().map(|explained| explained.iterations);
        let mean = counts().sum::<usize>() as f64 / counts().count().max(1) as f64;
        let iterations = (mean, counts().max().unwrap_or(0));
        Ok(PointErrors { errors: errors.collect(), iterations, interpolation_error })
    }
}

/// Factor of the noise in the preconditioner.
const REGULAR: f64 = 8.0;

// Errors restricted to the pupil
impl PointErrors {
    /// The errors with NaN at the points that are outside of the pupil of the system.
    ///
    /// # Errors
    /// `Invalid` where the system has another grid of points.
    pub fn in_pupil(&self, system: &System) -> Result<Vec<WavefrontError>, Error> {
        Ok(errors_in_pupil(&self.errors, system)?)
    }
}

/// Errors with NaN at the points of a system's grid that are outside of its pupil.
///
/// # Errors
/// `Invalid` where the system has another grid of points.
pub(crate) fn errors_in_pupil(
    errors: &[WavefrontError],
    system: &System,
) -> Result<Vec<WavefrontError>, Invalid> {
    let grid = system.wavefront_grid()?;
    let (mut errors, inside) = (errors.to_vec(), in_pupil(system, grid));
    for error in &mut errors {
        for map in [&mut error.variance, &mut error.variance_without_tilt] {
            let (m, points) = (map.nrows(), grid.points);
            accept(m == points, "points of the errors", m, &format!("{points}"))?;
            let outside = map.indexed_iter_mut().filter(|(place, _)| !inside(*place));
            outside.for_each(|(_, variance)| *variance = f64::NAN);
        }
    }
    Ok(errors)
}

/// Whether the point in a row and a column of a grid is in the pupil.
fn in_pupil(system: &System, grid: PhaseGrid) -> impl Fn((usize, usize)) -> bool {
    let at = move |k: usize| grid.coordinate(k, system.wavefront_pitch());
    move |(j, i)| system.pupil().is_none_or(|pupil| pupil.contains([at(i), at(j)]))
}

// Job of errors at points
// Job and its answers
/// The variances to be explained.
struct Job<'a> {
    posed: &'a PosedEstimate,
    lit: &'a Lit,
    /// Of each target.
    before: &'a [Before],
    /// How many points a device explains side by side, at most.
    batch: usize,
}

/// Variances and covariances that the measurements explain.
struct Answers {
    /// Of the variance at each point, target by target.
    explained: Vec<ExplainedVariance>,
    /// Of the covariance of the wavefront there with the tilts of all targets, (T M², tilts).
    with_tilts: Vec<f64>,
}

// Strips of points
/// Points side by side in all rows of a target's grid.
struct PointStrip {
    target: usize,
    start: usize,
    width: usize,
    rows: usize,
}

impl PointStrip {
    /// The first point of a row, among those of all targets.
    fn first(&self, row: usize) -> usize {
        (self.target * self.rows + row) * self.rows + self.start
    }

    // Unit vectors of a row of points
    fn units(&self, row: usize, area: &Array1<f64>, all: usize) -> Array2<f64> {
        let mut units = Array2::zeros((self.width, all));
        let start = self.target * area.len();
        for (k, mut unit) in units.outer_iter_mut().enumerate() {
            unit.slice_mut(s![start..start + area.len()]).assign(&-area);
            unit[self.first(row) + k] += 1.0;
        }
        units
    }
}

// Strips and their prior variances
impl Job<'_> {
    // Strips across the grid
    /// Strips of points up to the given width.
    fn strips(&self, most: usize) -> Vec<PointStrip> {
        let across = self.lit.area.len().isqrt();
        let width = across.div_ceil(across.div_ceil(most));
        let strip = |k: usize| {
            let (target, start) = (k / across.div_ceil(width), k % across.div_ceil(width) * width);
            PointStrip { target, start, width: width.min(across - start), rows: across }
        };
        (0..self.before.len() * across.div_ceil(width)).map(strip).collect()
    }

    /// Variances of the points of a strip in a row, before anything is measured.
    fn wholes(&self, strip: &PointStrip, row: usize) -> &[f64] {
        let variances = self.before[strip.target].variance.as_slice().unwrap_or_default();
        let first = row * strip.rows + strip.start;
        &variances[first..first + strip.width]
    }
}

// Collect the answers of strips
impl Job<'_> {
    /// Storage for the answers at all points.
    fn answers(&self) -> Answers {
        let (points, tilts) = (self.before.len() * self.lit.area.len(), self.tilts());
        let (explained, with_tilts) =
            (vec![ExplainedVariance::default(); points], vec![0.0; points * tilts]);
        Answers { explained, with_tilts }
    }
}

impl Answers {
    /// Stores the answers of consecutive points, from the first on.
    fn put(&mut self, first: usize, explained: &[ExplainedVariance], with_tilts: &[f64]) {
        let tilts = with_tilts.len() / explained.len();
        self.explained[first..first + explained.len()].copy_from_slice(explained);
        self.with_tilts[first * tilts..first * tilts + with_tilts.len()]
            .copy_from_slice(with_tilts);
    }
}

// Stopping criterion of a point
impl Job<'_> {
    /// When points are explained, Eq. [when a point is done](https://lenslet.github.io/lenslet/point-errors.html#eq-when-a-point-is-done).
    fn stop(&self) -> Stop {
        let stop = self.posed.options.stop_at(self.posed.noise.variances.len());
        let share = 1.0 - (1.0 - stop.tolerance).powi(2);
        Stop { tolerance: 2.0 * share / (1.0 + 2.0 * share), ..stop }
    }
}

// Tilts of all targets
/// Relative residual of the solutions for tilts, as a share of the tolerance.
const MORE: f64 = 1e-3;

impl Job<'_> {
    fn tilts(&self) -> usize {
        self.before.len() * (self.lit.modes.len() - 1)
    }

    /// The weights by which a mean over the pupil tells tilt k, and where they stand among all points.
    fn tilt(&self, k: usize) -> (usize, Array1<f64>) {
        let own = self.lit.modes.len() - 1;
        (k / own * self.lit.area.len(), &self.lit.area * &self.lit.modes[1 + k % own])
    }

    /// The variance of tilt k before anything is measured, m².
    fn whole_of_tilt(&self, k: usize) -> f64 {
        let own = self.lit.modes.len() - 1;
        self.tilt(k).1.dot(&self.before[k / own].with_tilts[k % own])
    }
}

// Explain variances on cores
/// Points that are explained side by side.
const BLOCK: usize = 32;

impl Job<'_> {
    fn explain_on_host(&self, model: Model, watch: &dyn Watch) -> Result<Answers, Error> {
        let estimator = EstimatorCpu::<f64>::of(model, self.posed.options)?;
        let (measured, wavefront) = (estimator.measured(), estimator.wavefront());
        let operators = [measured, estimator.preconditioner().unwrap_or(measured)];
        let (points, all) = (self.lit.area.len(), wavefront.rows());
        let stop = self.stop();
        let ask = &mut || check(watch);
        // Solve for tilts on cores
        let mut tilts = Array2::zeros((self.tilts(), all));
        for (k, mut tilt) in tilts.outer_iter_mut().enumerate() {
            let (start, weights) = self.tilt(k);
            tilt.slice_mut(s![start..start + points]).assign(&weights);
        }
        let exact = Stop { tolerance: (MORE * stop.tolerance).max(1e-10), ..stop };
        let rows = times_transposed(wavefront, &tilts);
        let [tilts, _] = solve_together(measured, operators[1], &rows, exact, ask)?;
        let below = below_eigenvalues(operators, stop, ask)?;
        // Explain the strips on cores
        let (mut answers, strips) = (self.answers(), self.strips(BLOCK));
        for (done, strip) in strips.iter().enumerate() {
            let mut x = Array2::zeros((strip.width, measured.rows()));
            for row in 0..strip.rows {
                let rows = times_transposed(wavefront, &strip.units(row, &self.lit.area, all));
                let products = rows.dot(&tilts.t());
                let wholes = (self.wholes(strip, row), below);
                let (explained, solved) =
                    explain_together(operators, (rows, x), wholes, stop, ask)?;
                answers.put(strip.first(row), &explained, products.as_slice().unwrap_or_default());
                x = solved;
            }
            watch.progress(done + 1, strips.len());
        }
        Ok(answers)
    }
}

// Products with several transposed vectors
/// Y = X A for the rows of X.
fn times_transposed(operator: &dyn Operator<f64>, x: &Array2<f64>) -> Array2<f64> {
    let mut y = Array2::zeros((x.nrows(), operator.columns()));
    let mut scratch = vec![0.0; operator.scratch(x.nrows())];
    let (from, to) = (x.as_slice().unwrap_or_default(), y.as_slice_mut().unwrap_or_default());
    operator.apply_transpose(from, to, &mut scratch);
    y
}

// Error of one target at all points
impl Job<'_> {
    /// The error of the wavefront of a target.
    fn error_of(&self, t: usize, answers: &Answers) -> WavefrontError {
        let (points, all, own) = (self.lit.area.len(), self.tilts(), self.lit.modes.len() - 1);
        let explained = &answers.explained[t * points..(t + 1) * points];
        let explained = explained.iter().map(ExplainedVariance::middle).collect();
        let with_tilts = &answers.with_tilts[t * points * all..(t + 1) * points * all];
        let with_tilt = |k: usize| with_tilts[t * own + k..].iter().step_by(all).copied().collect();
        let with_tilts: Vec<Array1<f64>> = (0..own).map(with_tilt).collect();
        self.before[t].error_after(self.lit, &explained, &with_tilts)
    }
}

// Subtract what is explained from the prior
impl Before {
    /// The error of a wavefront of which measurements explain these variances at its points, m², and these covariances with the tilts.
    pub(crate) fn error_after(
        &self,
        lit: &Lit,
        explained: &Array1<f64>,
        explained_with_tilts: &[Array1<f64>],
    ) -> WavefrontError {
        let variance = &self.variance - explained;
        let pairs = self.with_tilts.iter().zip(explained_with_tilts);
        let with_tilts: Vec<Array1<f64>> = pairs.map(|(all, part)| all - part).collect();
        let without = without_modes(&lit.area, &lit.modes[1..], &with_tilts, variance.clone());
        let rms = |variance: &Array1<f64>| lit.area.dot(variance).max(0.0).sqrt();
        let [rms, rms_without_tilt] = [&variance, &without].map(rms);
        let across = lit.area.len().isqrt();
        let map = |values: Array1<f64>| {
            let map = Array2::from_shape_vec((across, across), values.to_vec());
            map.unwrap_or_else(|_| unreachable!("M² points"))
        };
        let [variance, variance_without_tilt] = [variance, without].map(map);
        WavefrontError { variance, variance_without_tilt, rms, rms_without_tilt }
    }
}

// Refuse options of other truths
/// Refuses what the errors of wavefronts have no use for.
fn check_options(options: &ReconstructorOptions) -> Result<(), Invalid> {
    let good = matches!(options.method, Inversion::Auto | Inversion::Iterative);
    let expected = "auto or iterative for the errors alone at the points of a wavefront: errors_only = false computes the matrix by any method";
    accept(good, "method", options.method.name(), expected)?;
    Inversion::Iterative.check_filter(options.filter)?;
    let expected = "true, as the matrix is that of a ReconstructorPlan";
    accept(options.errors_only, "reconstructor.errors_only", false, expected)?;
    let expected = "0 with to = \"wavefront\", which is that of the measurements' time";
    accept(options.delay == 0.0, "delay", options.delay, expected)?;
    Ok(())
}

// Stages of errors at points
/// Names of the stages.
const PRIOR: &str = "variances before measurements";
const POINTS: &str = "points";

impl PointErrorsPlan {
    /// Slopes of all guide stars, n.
    pub fn measurements(&self) -> usize {
        self.posed.noise.variances.len()
    }
}

// Run the plan of errors at points
impl Plan for PointErrorsPlan {
    type Output = PointErrors;

    /// Rejects single precision on the CPU.
    fn check_engine(&self, engine: &Engine) -> Result<(), Error> {
        Ok(engine.require_double_on_cpu("errors at points")?)
    }

    // Memory of errors at points
    fn memory(&self, engine: &Engine) -> Result<Memory, Error> {
        self.check_engine(engine)?;
        let estimate = EstimatePlan::new(self.posed.covariances.system(), self.posed.options)?;
        let (all, n) = (self.posed.targets * self.grid.points.pow(2), self.measurements());
        let mut memory = estimate.memory_on(engine);
        let block = if engine.devices().is_empty() { BLOCK * (7 * n + all) } else { 0 };
        memory.host = memory.host.saturating_add(8 * (8 * all + block) as u64);
        let there = self.bytes_on_device(self.batch_on(engine), engine);
        memory.devices = vec![there; engine.devices().len()];
        Ok(memory)
    }

    // Describe errors at points
    fn describe(&self, engine: &Engine) -> Result<Description, Error> {
        let (system, n) = (self.posed.covariances.system(), self.measurements());
        let [targets, m] = [self.posed.targets, self.grid.points];
        let stars = system.guide_stars();
        let lags = 2 * stars[0].sensor.array.lenslets() - 1;
        let product = toeplitz_product(stars.len(), lags);
        let most = 0.5 * iterations(system, self.posed.options.limit(n));
        let work = 2.0 * most * product * (targets * m * m) as f64;
        let covariances = self.posed.covariances.description(engine);
        let maps = ["error_map", "error_map_without_tilt"];
        Ok(Description {
            what: format!(
                "the errors of {} at {m} × {m} points from {}",
                count(targets, "wavefront"),
                count(n, "slope")
            ),
            arrays: maps.map(|name| (name.into(), vec![targets, m, m])).into(),
            form: covariances.form,
            reason: format!("{}; iterative as the matrix of slopes is never formed", self.reason),
            method: format!("conjugate gradients to {:e} of each error", self.tolerance),
            slope_model: covariances.slope_model,
            engine: engine.name(),
            memory: self.memory(engine)?,
            stages: {
                let own = Stage::new(POINTS, &[(CostKind::Transforms, work)], engine);
                let among = |stage: &Stage| stage.name != WAVEFRONTS && stage.name != "start";
                covariances.stages.into_iter().filter(among).chain([own]).collect()
            },
            rates: engine.speed().to_string(),
        })
    }

    /// Rejects also several processes, as one computes errors at points.
    fn check(&self, engine: &Engine) -> Result<(), Error> {
        let (ranks, own) = (engine.place()[1], engine.devices().len());
        if own > 0 {
            accept(ranks == own, "ranks", ranks, "1, as one process computes errors at points")?;
        }
        self.memory(engine)?.check(engine, &self.subject())
    }

    fn subject(&self) -> String {
        "errors at all points".into()
    }

    /// Computes the errors.
    ///
    /// # Errors
    /// Those of [`check`](Self::check); `NotConverged`; `Invalid` where a device is asked for stars that do not see tilt or focus;
    /// `Cancelled` where the watcher wants to stop; those of devices.
    fn run(&self, engine: &Engine, watch: &dyn Watch) -> Result<PointErrors, Error> {
        self.check(engine)?;
        self.compute(engine, watch)
    }
}

// Tests of errors at points
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{RankInfo, gpu::test_backends};
    use crate::estimation::estimate::tests::{blinded, mixed, streaked, system};
    use crate::linear::operator::battery;
    use crate::model::lenslet_array::SlopeOrder;
    use crate::model::noise::SlopeNoise;
    use crate::model::removed_modes::TipTilt;
    use crate::numerics::real::Precision;
    use crate::tomography::ReconstructedQuantity;
    use crate::turbulence::plan::{dense_slopes, dense_wavefront_slope};
    use crate::watch::unwatched;
    use faer::prelude::Solve;

    // Run small systems
    fn few_points(system: &System) -> System {
        let grid = PhaseGrid::new(5, 2, 0.0).unwrap();
        system.to_builder().phase(Some(grid)).build().unwrap()
    }

    fn options(tolerance: f64) -> ReconstructorOptions {
        let options = ReconstructorOptions::default().to(ReconstructedQuantity::Wavefront);
        options.errors_only(true).tolerance(tolerance)
    }

    fn run(system: &System, tolerance: f64, engine: &Engine) -> PointErrors {
        let plan = PointErrorsPlan::new(system, options(tolerance)).unwrap();
        let description = plan.describe(engine).unwrap();
        let alike = system.groups().members().count() == 1;
        assert_eq!(description.form, if alike { "toeplitz" } else { "blocks" });
        PointErrorsPlan { batch: Some(2), ..plan }.run(engine, &unwatched).unwrap()
    }

    /// Variances without piston and without tilts, of all points of all targets.
    fn variances(found: &PointErrors) -> [Vec<f64>; 2] {
        let all = |of: fn(&WavefrontError) -> &Array2<f64>| {
            found.errors.iter().flat_map(|error| of(error).iter().copied()).collect()
        };
        [all(|error| &error.variance), all(|error| &error.variance_without_tilt)]
    }

    // Errors by dense algebra
    /// The covariance of the wavefront at the points `at` of one target, before anything is measured, m².
    fn dense_prior(system: &System, at: &[[f64; 2]]) -> faer::Mat<f64> {
        let air = system.atmosphere();
        let metres = air.wavelength() / (2.0 * PI);
        let strength = metres.powi(2) * air.fried_parameter().powf(-5.0 / 3.0);
        faer::Mat::from_fn(at.len(), at.len(), |a, b| {
            let r = (at[a][0] - at[b][0]).hypot(at[a][1] - at[b][1]);
            let layer = |layer: &crate::model::Layer| {
                layer.fraction * VonKarman::new(layer.outer_scale).covariance(r)
            };
            strength * air.layers().iter().map(layer).sum::<f64>()
        })
    }

    /// The errors' covariance for each target by Cholesky's factor, and the places of the points.
    fn dense_errors(system: &System) -> (Vec<faer::Mat<f64>>, Vec<[f64; 2]>) {
        let mut measured = dense_slopes(system, &Engine::default(), &unwatched).unwrap();
        let order = SlopeOrder::new(&system.valid_lenslets());
        SlopeNoise::new(system.guide_stars(), &order).add_to(&mut measured);
        let (n, grid) = (measured.nrows(), system.wavefront_grid().unwrap());
        let factor = faer::Mat::from_fn(n, n, |i, j| measured[[i, j]]).llt(faer::Side::Lower);
        let (rows, m) = (dense_wavefront_slope(system, &unwatched).unwrap(), grid.points);
        let place = |k: usize| grid.coordinate(k, system.wavefront_pitch());
        let at: Vec<_> = (0..m * m).map(|k| [k % m, k / m].map(place)).collect();
        let (factor, prior) = (factor.unwrap(), dense_prior(system, &at));
        let error = |t: usize| {
            let c = faer::Mat::from_fn(n, m * m, |k, x| rows[[t * m * m + x, k]]);
            &prior - c.transpose() * factor.solve(&c)
        };
        ((0..system.targets().len()).map(error).collect(), at)
    }

    // Project modes out of dense errors
    /// Variances of all points with the first modes of 1, x, y fitted to the pupil and taken out.
    fn without(
        system: &System,
        (errors, at): &(Vec<faer::Mat<f64>>, Vec<[f64; 2]>),
        modes: usize,
    ) -> Vec<f64> {
        let pupil = system.pupil().unwrap();
        let lit: Vec<usize> = (0..at.len()).filter(|&k| pupil.contains(at[k])).collect();
        assert!(!lit.is_empty() && lit.len() < at.len());
        let mode = |x: usize, k: usize| [1.0, at[x][0], at[x][1]][k];
        let basis = faer::Mat::from_fn(lit.len(), modes, |x, k| mode(lit[x], k));
        let gram = (basis.transpose() * &basis).llt(faer::Side::Lower).unwrap();
        let fit = faer::Mat::from_fn(at.len(), modes, mode) * gram.solve(basis.transpose());
        let left = faer::Mat::from_fn(at.len(), at.len(), |x, y| {
            let taken = lit.iter().position(|&k| k == y).map_or(0.0, |k| fit[(x, k)]);
            f64::from(u8::from(x == y)) - taken
        });
        let diagonal = |error: &faer::Mat<f64>| {
            let rest = &left * error * left.transpose();
            (0..at.len()).map(|x| rest[(x, x)]).collect::<Vec<f64>>()
        };
        errors.iter().flat_map(diagonal).collect()
    }

    // Compare errors with dense algebra
    #[test]
    fn errors_are_those_of_dense_algebra() {
        let (engine, natural) = (Engine::default(), system(["inf", "inf"], 0.0));
        for system in [&natural, &mixed("inf"), &streaked(&natural)].map(few_points) {
            let (dense, fine) = (dense_errors(&system), run(&system, 1e-9, &engine));
            let exact = [1, 3].map(|modes| without(&system, &dense, modes));
            for (exact, found) in exact.iter().zip(variances(&fine)) {
                for (exact, found) in exact.iter().zip(&found) {
                    assert!((found / exact - 1.0).abs() < 1e-6, "{found:e} {exact:e}");
                }
            }
            // What is left is bounded by the tolerance
            let coarse = run(&system, 0.1, &engine);
            let found = &variances(&coarse)[0];
            let gaps = found.iter().zip(&exact[0]).map(|(a, b)| (a / b).sqrt() - 1.0);
            let gaps: Vec<f64> = gaps.map(f64::abs).collect();
            assert!(gaps.iter().all(|gap| *gap < 0.1), "{gaps:?}");
            assert!(gaps.iter().any(|gap| *gap > 1e-4), "{gaps:?}");
            assert!(coarse.iterations.0 < fine.iterations.0);
            // The grid is no wider than the shadow of the obstruction and a bit
            let inside = &coarse.in_pupil(&system).unwrap()[0].variance;
            assert!(inside[[2, 2]].is_nan() && inside[[0, 1]] == coarse.errors[0].variance[[0, 1]]);
            assert!(coarse.in_pupil(&self::system(["inf", "inf"], 0.0)).is_err());
        }
    }

    // Compare error maps of devices and cores
    #[test]
    fn devices_explain_as_cores_do() {
        // Nine points are four batches of two and one of a single point.
        let nine_points = |system: &System| {
            let grid = PhaseGrid::new(3, 1, 0.0).unwrap();
            system.to_builder().phase(Some(grid)).build().unwrap()
        };
        let alike = nine_points(&system(["90e3", "90e3"], 0.0));
        let (double, single) = ((Precision::F64, 1e-6, 1e-5), (Precision::F32, 0.03, 0.1));
        // Two devices share the points; each of them makes all that one needs, so that one is enough for stars of every kind.
        let unlike = nine_points(&blinded(&streaked(&mixed("90e3"))));
        for (system, devices, (precision, tolerance, bound)) in
            [(&alike, 2, double), (&unlike, 1, double), (&alike, 2, single)]
        {
            let here = variances(&run(system, tolerance, &Engine::default()));
            for gpu in test_backends() {
                let there = Engine::gpus(vec![gpu.clone(); devices], precision).unwrap();
                let found = variances(&run(system, tolerance, &there));
                for (here, found) in here.iter().flatten().zip(found.iter().flatten()) {
                    assert!(
                        (found / here - 1.0).abs() < bound,
                        "{precision:?}: {found:e} {here:e}"
                    );
                }
            }
        }
    }

    // Test the rejection of impossible maps
    #[test]
    fn what_cannot_be_told_is_refused() {
        let good = few_points(&system(["inf", "inf"], 0.0));
        let plan = |system: &System, tolerance| PointErrorsPlan::new(system, options(tolerance));
        let refused = |system: &System| plan(system, 0.1).unwrap_err().to_string();
        let words = plan(&good, 0.0).unwrap_err().to_string();
        assert!(words.starts_with("tolerance = 0.0: expected between 0 and 1"), "{words}");
        let with = |grid| good.to_builder().phase(Some(grid)).build().unwrap();
        // A single point is in the shadow of the obstruction.
        let words = refused(&with(PhaseGrid::new(1, 2, 0.0).unwrap()));
        assert!(words.starts_with("phase.points = 1: expected a grid with a point"), "{words}");
        for (bad, words) in [
            (
                options(0.1).method(Inversion::Cholesky),
                "method = \"cholesky\": expected auto or iter",
            ),
            (options(0.1).errors_only(false), "reconstructor.errors_only = false: expected true"),
            (options(0.1).delay(1e-3), "delay = 0.001: expected 0"),
        ] {
            let message = PointErrorsPlan::new(&good, bad).unwrap_err().to_string();
            assert!(message.starts_with(words), "{message}");
        }
        let elsewhere = crate::tomography::ReconstructorPlan::new(&good, options(0.1));
        assert!(
            elsewhere
                .unwrap_err()
                .to_string()
                .starts_with("errors_only = true: expected false with to = \"wavefront\"")
        );
        let mut stars = good.guide_stars().to_vec();
        stars[0].tip_tilt = TipTilt::Removed;
        let blind = good.to_builder().guide_stars(stars).build().unwrap();
        let [less, more] = [&blind, &good].map(|system| run(system, 0.1, &Engine::default()));
        assert!(less.errors[0].rms > more.errors[0].rms);
        // Devices refuse what only cores do
        for gpu in test_backends() {
            let engine = Engine::gpus(vec![gpu], Precision::F64).unwrap();
            let rank_info = RankInfo::of_test([1, 2], "nowhere");
            let engine = engine.with_rank_info(rank_info).unwrap();
            let message =
                plan(&good, 0.1).unwrap().run(&engine, &unwatched).unwrap_err().to_string();
            assert!(message.starts_with("ranks = 2: expected 1"), "{message}");
        }
    }

    // Test sums of structure functions
    #[test]
    fn sums_of_structure_functions_are_sums() {
        let system = few_points(&system(["inf", "inf"], 0.0));
        let prior = Prior::new(&system, system.wavefront_grid().unwrap(), &system.targets()[0]);
        let field: Array1<f64> = battery::random(25, 3).into();
        for (x, found) in prior.sums(&field).iter().enumerate() {
            let half_structure = |y: usize| {
                prior.half_structures[[(x / 5).abs_diff(y / 5), (x % 5).abs_diff(y % 5)]]
            };
            let sum: f64 = (0..25).map(|y| half_structure(y) * field[y]).sum();
            assert!((found - sum).abs() < 1e-9 * prior.half_structures[[4, 4]]);
        }
    }
}
