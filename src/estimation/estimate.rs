// Tangled from book/src/estimate.md: edit there, or here and run cargo tangle stitch.
//! The minimum-mean-square-error estimate of wavefronts from slopes.

#[cfg(feature = "factorise")]
pub(crate) mod factorised;
pub(crate) mod gpu;

// Imports of the estimate
use crate::data::DataSet;
use crate::device::engine::Engine;
use crate::error::{Error, Invalid, accept, count};
use crate::estimation::blocks::{MeasuredCovariance, SharedOperator, side_by_side, with_noise};
use crate::estimation::circulant::{Circulant, Group};
use crate::estimation::interpolation::{SampledErrors, interpolation_error};
use crate::estimation::inversion::Inversion;
use crate::linear::interpolation::{Interpolation, ToPupil};
use crate::linear::matrix::Dense;
use crate::linear::operator::{Diagonal, LowRank, Operator, Product, Sum};
use crate::linear::solver::{Attempt, Solver, Stop};
use crate::linear::toeplitz::BlockToeplitz;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::noise::SlopeNoise;
use crate::model::removed_modes::{Mode, RemovedModes};
use crate::model::system::System;
use crate::numerics::real::Real;
use crate::plan::Memory;
use crate::turbulence::arrays::slope_table;
use crate::turbulence::blocks::CrossBlocks;
use crate::turbulence::plan::{
    CovarianceOptions, CovariancePlan, Form, GroupWavefrontSlopes, PIECES, SLOPES,
    SlopeCovariancePlan, WAVEFRONT, dense_slopes, dense_wavefront_slope,
};
use crate::turbulence::slope::{SlopeCovariance, SlopeProblem};
use crate::turbulence::wavefront::{WavefrontProblem, WavefrontSlope};
use crate::watch::{StageParts, Watch, check};
use ndarray::{Array1, Array2, Array4, ArrayView1, ArrayView2, Axis};
use std::sync::Arc;

// Options of an estimate
// Settings of an estimate
/// Options of an estimate.
///
/// ```
/// use lenslet::{device::Engine, estimation::{EstimateOptions, EstimatePlan}, model::*, plan::Plan, watch::unwatched};
/// let (axis, array) = (Source::star(0.0, 0.0)?, LensletArray::new(1, 1.0)?);
/// let rise = |noise: f64| -> Result<f64, lenslet::Error> {
///     let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 25.0)])?;
///     let system = System::builder(air, array)
///         .guide_stars([GuideStar::at_rest(axis, array, noise)?])
///         .phase(Some(PhaseGrid::new(2, 1, 0.0)?))
///         .targets([axis])
///         .build()?;
///     let plan = EstimatePlan::new(&system, EstimateOptions::default())?;
///     let estimator = plan.run(&Engine::default(), &unwatched)?;
///     let slopes = ndarray::array![[1e-6, 0.0]];
///     let wavefront = estimator.estimate(slopes.view(), false, &unwatched)?.wavefront;
///     assert!((wavefront[[0, 0, 1, 1]] + wavefront[[0, 0, 1, 0]]).abs() < 1e-12);
///     Ok(1e6 * wavefront[[0, 0, 1, 1]]) // µm
/// };
/// assert!((rise(1e-20)? - 0.4561).abs() < 1e-4);
/// assert!((rise(0.4417e-12)? - 0.228).abs() < 1e-3); // noise as large as the signal
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct EstimateOptions {
    /// Form of the covariances; the dense form needs no interpolation of layers, but memory for a matrix.
    pub form: Form,
    /// Interpolation of the layers to the pupil, where guide stars are at a finite height.
    pub interpolation: Interpolation,
    /// Solution by a factor of the covariance matrix or by iterations.
    pub method: Inversion,
    /// Eigenvalues below this share of the largest are dropped, where eigenvectors solve.
    pub filter: f64,
    /// Iterative solver of the normal equations, Eq. [normal](https://lenslet.github.io/lenslet/estimate.html#eq-normal).
    pub solver: Solver,
    /// Whether the solver has the circulant preconditioner.
    pub preconditioned: bool,
    /// Largest relative residual that is accepted, between 0 and 1.
    pub tolerance: f64,
    /// Largest number of iterations; by default twice the number of slopes, and at least 1000.
    pub iterations: Option<usize>,
    /// Number of frames that will follow, for the memory and run time in a plan.
    pub frames: usize,
    /// Whether the dense form is preferred to one that interpolates layers, where the form is not given.
    pub exact: bool,
}

// Settings unless others are given
impl Default for EstimateOptions {
    /// Cubic interpolation, preconditioned conjugate gradients, a residual of 1e-6.
    fn default() -> Self {
        Self {
            form: Form::default(),
            interpolation: Interpolation::default(),
            method: Inversion::default(),
            filter: 0.0,
            solver: Solver::default(),
            preconditioned: true,
            tolerance: Stop::default().tolerance,
            iterations: None,
            frames: 1,
            exact: true,
        }
    }
}

// Settings one by one
impl EstimateOptions {
    /// Sets the form of the covariances.
    pub fn form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// Sets whether the dense form is used wherever it fits, or interpolated layers even there.
    pub fn exact(self, exact: bool) -> Self {
        Self { exact, ..self }
    }

    /// Sets the interpolation of layers to the pupil.
    pub fn interpolation(self, interpolation: Interpolation) -> Self {
        Self { interpolation, ..self }
    }

    /// Sets the method: a factor or iterations.
    pub fn method(self, method: Inversion) -> Self {
        Self { method, ..self }
    }

    /// Sets the filter of eigenvalues.
    pub fn filter(self, filter: f64) -> Self {
        Self { filter, ..self }
    }

    /// Sets the iterative solver.
    pub fn solver(self, solver: Solver) -> Self {
        Self { solver, ..self }
    }

    // Settings of the solver and its frames
    /// Sets whether the solver is preconditioned.
    pub fn preconditioned(self, preconditioned: bool) -> Self {
        Self { preconditioned, ..self }
    }

    /// Sets the tolerance and the largest number of iterations.
    pub fn stop(self, stop: Stop) -> Self {
        Self { tolerance: stop.tolerance, iterations: Some(stop.iterations), ..self }
    }

    /// Sets the largest number of iterations; `None` for the default of [`limit`](Self::limit).
    pub fn limited(self, iterations: Option<usize>) -> Self {
        Self { iterations, ..self }
    }

    /// Sets the largest relative residual that is accepted.
    pub fn tolerance(self, tolerance: f64) -> Self {
        Self { tolerance, ..self }
    }

    /// Largest number of iterations for a number of slopes: the one that was set, or twice the number of slopes, and at least 1000.
    pub fn limit(&self, slopes: usize) -> usize {
        self.iterations.unwrap_or(slopes.saturating_mul(2).max(Stop::default().iterations))
    }

    /// Stopping rule of the solver for a number of slopes.
    pub(crate) fn stop_at(&self, slopes: usize) -> Stop {
        Stop { tolerance: self.tolerance, iterations: self.limit(slopes) }
    }

    /// Sets the number of frames that will follow.
    pub fn frames(self, frames: usize) -> Self {
        Self { frames, ..self }
    }
}

// Problem and model of an estimate
// Problem of an estimate
// Estimate that is posed
/// An estimate that is posed: plans of its covariances, and the noise.
#[derive(Debug, Clone)]
pub(crate) struct PosedEstimate {
    pub(crate) covariances: CovariancePlan,
    pub(crate) groups: Vec<PosedGroup>,
    pub(crate) valid: Vec<Array2<bool>>,
    /// C_n, rad².
    pub(crate) noise: SlopeNoise,
    pub(crate) removed: RemovedModes,
    pub(crate) targets: usize,
    pub(crate) points: usize,
    pub(crate) options: EstimateOptions,
    /// Why the form is another than the covariances alone would have.
    pub(crate) reason: Option<String>,
}

/// Guide stars that share a lattice, and the plan of their slopes' covariance.
#[derive(Debug, Clone)]
pub(crate) struct PosedGroup {
    stars: Vec<usize>,
    pub(crate) plan: SlopeCovariancePlan,
}

// Pose an estimate of a system
impl PosedEstimate {
    /// Poses the estimate of a system.
    ///
    /// # Errors
    /// `Invalid` where the system has no target, no grid of wavefront points, or no valid lenslet, or the tolerance makes no
    /// sense; `NotToeplitz` where that form is asked for and there is none.
    pub(crate) fn new(system: &System, options: EstimateOptions) -> Result<Self, Error> {
        system.expect_slopes()?;
        let grid = system.wavefront_grid()?;
        let tolerance = options.tolerance;
        accept(tolerance > 0.0 && tolerance < 1.0, "tolerance", tolerance, "between 0 and 1")?;
        let form = CovarianceOptions::default().form(options.form);
        let covariances = CovariancePlan::new(system, form)?;
        let groups = groups(system, &covariances)?;
        let (targets, points, valid) =
            (system.targets().len(), grid.points, system.valid_lenslets());
        let noise = SlopeNoise::new(system.guide_stars(), &SlopeOrder::new(&valid));
        let removed = system.removed_modes();
        let reason = None;
        Ok(Self { covariances, groups, valid, noise, removed, targets, points, options, reason })
    }

    // Compute the model that was posed
    /// Computes the covariances, by the direct method.
    ///
    /// # Errors
    /// `Cancelled` where the watcher wants to stop; what a device says.
    pub(crate) fn compute(&self, engine: &Engine, watch: &dyn Watch) -> Result<Model, Error> {
        let system = self.covariances.system();
        let toeplitz = self.covariances.wavefront();
        let count = self.groups.len() + usize::from(toeplitz.is_none());
        let part = |number| StageParts { whole: watch, what: "set of stars", number, count };
        let group = |(k, group): (usize, &PosedGroup)| {
            group.compute((system, &self.valid), engine, &part(k))
        };
        let groups = self.groups.iter().enumerate().map(group).collect::<Result<Vec<_>, _>>()?;
        let last = part(self.groups.len());
        // Covariances in the planned form
        let covariances = match (toeplitz, self.covariances.blocks()) {
            (Some(plan), _) => {
                Matrices::Toeplitz(plan.problem().clone(), plan.compute(engine, watch)?)
            }
            (_, Some(blocks)) => {
                let rectangles = blocks.rectangles(system, engine, &last)?;
                Matrices::Blocks(rectangles, blocks.wavefronts(system, engine, watch)?)
            }
            _ => Matrices::Dense(dense_matrices(system, engine, (&last, watch))?),
        };
        // Model from its covariances
        let interpolation = self.options.interpolation;
        let interpolation_error = covariances.interpolation_error(interpolation);
        let sampled = covariances.sampled_errors(interpolation, &self.valid);
        let (valid, noise, removed) =
            (self.valid.clone(), self.noise.clone(), self.removed.clone());
        let Self { targets, points, .. } = *self;
        Ok(Model {
            covariances,
            groups,
            valid,
            noise,
            removed,
            targets,
            points,
            interpolation_error,
            sampled,
        })
    }
}

// Group stars that share a lattice
/// The groups of a system, in the order of their first stars; in blocks those whose lattices are used. What plans are known is theirs.
pub(crate) fn groups(system: &System, known: &CovariancePlan) -> Result<Vec<PosedGroup>, Error> {
    if let Some(blocks) = known.blocks() {
        let group = |(set, plan): (usize, &SlopeCovariancePlan)| PosedGroup {
            stars: blocks.sets.members(set).to_vec(),
            plan: plan.clone(),
        };
        return Ok(blocks.slopes.iter().enumerate().map(group).collect());
    }
    let group = |members: &[usize]| {
        let plan = match known.slopes() {
            Some(plan) => plan.clone(),
            None => {
                let alike: Vec<_> =
                    members.iter().map(|&q| system.guide_stars()[q].sensor).collect();
                let (air, gradient) = (system.atmosphere(), system.cone_gradient());
                SlopeCovariancePlan::direct(SlopeProblem::of_sensors(air, &alike, gradient)?)
            }
        };
        Ok(PosedGroup { stars: members.to_vec(), plan })
    };
    system.groups().members().map(group).collect()
}

// Model of a system
/// Covariances and noise from which the operators of an estimate are built.
pub(crate) struct Model {
    pub(crate) covariances: Matrices,
    pub(crate) groups: Vec<Grouped>,
    pub(crate) valid: Vec<Array2<bool>>,
    /// C_n, rad².
    pub(crate) noise: SlopeNoise,
    pub(crate) removed: RemovedModes,
    pub(crate) targets: usize,
    pub(crate) points: usize,
    pub(crate) interpolation_error: f64,
    /// Errors of some rows of Ξ by interpolation, by which the error of an estimate is measured.
    pub(crate) sampled: Option<SampledErrors>,
}

/// The covariances Θ and Ξ.
pub(crate) enum Matrices {
    /// Ξ lattice by lattice; Θ is that of the only group.
    Toeplitz(WavefrontProblem, WavefrontSlope),
    /// The cross blocks of Θ, and Ξ group by group.
    Blocks(CrossBlocks, Vec<GroupWavefrontSlopes>),
    /// Θ, (n, n), and Ξ, (T M², n).
    Dense([Array2<f64>; 2]),
}

// Error of the interpolation in a model
impl Matrices {
    /// Largest error of an entry of Ξ by interpolation, in units of the largest entry of its lattices.
    fn interpolation_error(&self, kind: Interpolation) -> f64 {
        let of_set = |set: &GroupWavefrontSlopes| match set {
            GroupWavefrontSlopes::Toeplitz(problem, covariance) => {
                interpolation_error(problem, covariance, kind)
            }
            GroupWavefrontSlopes::Dense(_) => 0.0,
        };
        match self {
            Self::Toeplitz(problem, covariance) => interpolation_error(problem, covariance, kind),
            Self::Blocks(_, sets) => sets.iter().map(of_set).fold(0.0, f64::max),
            Self::Dense(_) => 0.0,
        }
    }

    /// Errors of some rows of Ξ by interpolation, if all stars share a lattice and layers are interpolated.
    fn sampled_errors(&self, kind: Interpolation, valid: &[Array2<bool>]) -> Option<SampledErrors> {
        match self {
            Self::Toeplitz(problem, covariance) => {
                SampledErrors::new(problem, covariance, kind, valid)
            }
            _ => None,
        }
    }
}

// Compute the matrices in dense form
/// Θ and Ξ as dense matrices.
fn dense_matrices(
    system: &System,
    engine: &Engine,
    (last, watch): (&dyn Watch, &dyn Watch),
) -> Result<[Array2<f64>; 2], Error> {
    last.stage(SLOPES, PIECES);
    let slopes = dense_slopes(system, engine, last)?;
    watch.stage(WAVEFRONT, PIECES);
    Ok([slopes, dense_wavefront_slope(system, watch)?])
}

/// Guide stars that share a lattice, and the covariance of their slopes.
pub(crate) struct Grouped {
    stars: Vec<usize>,
    pub(crate) covariance: SlopeCovariance,
    noise: Vec<f64>,
    valid: Vec<Array2<bool>>,
}

// Groups with their covariances
impl Grouped {
    /// The group in the form of the preconditioner.
    pub(crate) fn group(&self) -> Group<'_> {
        let Self { stars, covariance, noise, valid } = self;
        Group { stars, covariance, noise, valid }
    }

    /// Multiplies the noise that the preconditioner assumes.
    #[cfg(feature = "factorise")]
    pub(crate) fn regularise(&mut self, times: f64) {
        self.noise.iter_mut().for_each(|noise| *noise *= times);
    }
}

impl PosedGroup {
    /// The group of a system with its covariance.
    pub(crate) fn compute(
        &self,
        (system, valid): (&System, &[Array2<bool>]),
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Grouped, Error> {
        let (stars, all) = (self.stars.clone(), system.guide_stars());
        let noise = stars.iter().map(|&q| all[q].noise.mean()).collect();
        let valid = stars.iter().map(|&q| valid[q].clone()).collect();
        Ok(Grouped { stars, covariance: self.plan.compute(engine, watch)?, noise, valid })
    }
}

// Estimator on the processor
// Estimator of a system
/// All that is needed to turn slopes of a system into wavefronts, on the processor.
pub(crate) struct EstimatorCpu<T> {
    /// Θ + C_n, and Ξ; without the modes that are removed.
    measured: Arc<dyn Operator<T>>,
    wavefront: Arc<dyn Operator<T>>,
    removed: RemovedModes,
    preconditioner: Option<Arc<dyn Operator<T>>>,
    options: EstimateOptions,
    targets: usize,
    points: usize,
    interpolation_error: f64,
    sampled: Option<SampledErrors>,
}

// Make an estimator of a model
impl<T: Real> EstimatorCpu<T> {
    /// Builds the operators of a model.
    ///
    /// # Errors
    /// `Invalid` where there is no valid lenslet.
    pub(crate) fn of(model: Model, options: EstimateOptions) -> Result<Self, Error> {
        let Model { targets, points, interpolation_error, sampled, .. } = model;
        let groups: Vec<_> = model.groups.iter().map(Grouped::group).collect();
        // Build the two operators
        let measured = |rectangles| {
            let (groups, valid, noise) = (&groups[..], &model.valid[..], &model.noise);
            MeasuredCovariance { groups, rectangles, valid, noise, removed: &model.removed }
                .operators(options.preconditioned)
        };
        let ((slopes, preconditioner), wavefront): (_, SharedOperator<T>) = match model.covariances
        {
            Matrices::Dense(matrices) => {
                let [slopes, wavefront] = matrices
                    .map(|matrix| Arc::new(Dense::new(matrix.mapv(T::of))) as SharedOperator<T>);
                let circulant =
                    || Circulant::new(&groups).map(|p| Arc::new(p) as SharedOperator<T>);
                ((slopes, options.preconditioned.then(circulant).transpose()?), wavefront)
            }
            // Operators in blocks and on one lattice
            Matrices::Blocks(rectangles, sets) => {
                let of_set = |(k, set): (usize, &GroupWavefrontSlopes)| {
                    let valid = rectangles.sets.pick(k, &model.valid);
                    wavefront_operator(set, options.interpolation, &valid)
                };
                let wavefront = sets.iter().enumerate().map(of_set).collect::<Result<_, _>>()?;
                let wavefront = side_by_side(&rectangles.sets, wavefront)?;
                (measured(Some(&rectangles))?, wavefront)
            }
            Matrices::Toeplitz(problem, covariance) => {
                let given = (&problem, &covariance, options.interpolation);
                (measured(None)?, layered_operator(given, &model.valid)?)
            }
        };
        // Put the estimator together
        let measured = with_noise(slopes, model.noise)?;
        let (measured, wavefront) = without(&model.removed, measured, wavefront)?;
        Ok(Self {
            measured,
            wavefront,
            removed: model.removed,
            preconditioner,
            options,
            targets,
            points,
            interpolation_error,
            sampled,
        })
    }

    // Getters of the estimator
    /// Slopes of a frame, n.
    pub(crate) fn slopes(&self) -> usize {
        self.measured.rows()
    }

    /// Θ + C_n, (n, n), rad².
    pub(crate) fn measured(&self) -> &dyn Operator<T> {
        self.measured.as_ref()
    }

    /// Ξ, (T M², n), m rad.
    pub(crate) fn wavefront(&self) -> &dyn Operator<T> {
        self.wavefront.as_ref()
    }

    /// The preconditioner, if there is one.
    #[cfg(feature = "factorise")]
    pub(crate) fn preconditioner(&self) -> Option<&dyn Operator<T>> {
        self.preconditioner.as_deref()
    }

    /// Largest error of an entry of Ξ by interpolation, in units of the largest entry, measured on a sample; 0 if there is none.
    pub(crate) fn interpolation_error(&self) -> f64 {
        self.interpolation_error
    }
}

// Operator from a set to wavefronts
/// Ξ of one group of stars.
fn wavefront_operator<T: Real>(
    set: &GroupWavefrontSlopes,
    interpolation: Interpolation,
    valid: &[Array2<bool>],
) -> Result<Arc<dyn Operator<T>>, Error> {
    match set {
        GroupWavefrontSlopes::Toeplitz(problem, covariance) => {
            layered_operator((problem, covariance, interpolation), valid)
        }
        GroupWavefrontSlopes::Dense(values) => {
            let n = values.dim().3;
            let rows = values.len() / n.max(1);
            let matrix = values.mapv(T::of).into_shape_with_order((rows, n));
            Ok(Arc::new(Dense::new(matrix.unwrap_or_else(|_| unreachable!("same length")))))
        }
    }
}

// Operator of layers and pupil
/// Ξ of Eq. [layered estimate](https://lenslet.github.io/lenslet/estimate.html#eq-layered-estimate).
fn layered_operator<T: Real>(
    (problem, covariance, interpolation): (&WavefrontProblem, &WavefrontSlope, Interpolation),
    valid: &[Array2<bool>],
) -> Result<Arc<dyn Operator<T>>, Error> {
    let (targets, points) = (problem.targets(), problem.grid().points);
    let mut terms: Vec<Arc<dyn Operator<T>>> = Vec::new();
    for (layers, lattice) in problem.lattices().zip(covariance.lattices()) {
        // Take one lattice to the pupil
        let layer = &layers[0];
        let everywhere = vec![Array2::from_elem((layer.points, layer.points), true); targets];
        let oversampling = problem.grid().oversampling;
        let product =
            BlockToeplitz::wavefront_slope(lattice.view(), oversampling, &everywhere, valid)?;
        if problem.is_layered() {
            let grid = (layer.points, layer.gamma);
            let to_pupil = ToPupil::new(targets, points, grid, interpolation)?;
            terms.push(Arc::new(Product::new(vec![Arc::new(to_pupil), Arc::new(product)])?));
        } else {
            terms.push(Arc::new(product));
        }
    }
    Ok(Arc::new(Sum::new(terms)?))
}

// Operators without removed modes
// Remove modes from an operator
/// Θ + C_n without modes, and Π of Eq. [blind estimate](https://lenslet.github.io/lenslet/estimate-operators.html#eq-blind-estimate), where there are modes to remove.
pub(crate) fn blind<T: Real>(
    modes: &RemovedModes,
    measured: SharedOperator<T>,
) -> Result<Option<[SharedOperator<T>; 2]>, Invalid> {
    if modes.is_empty() {
        return Ok(None);
    }
    let n = measured.rows();
    let shape = |mode: &Mode| mode.shape.iter().map(|&part| T::of(part)).collect::<Vec<T>>();
    let low_rank = |weight: &dyn Fn(&Mode) -> T| {
        let terms = modes.iter().map(|mode| (weight(mode), mode.first, shape(mode)));
        LowRank::new(n, terms.collect())
    };
    // Variance of a mode that is measured
    let variance = |mode: &Mode| {
        let own = mode.first..mode.first + mode.shape.len();
        let (mut x, mut y) = (vec![T::zero(); n], vec![T::zero(); n]);
        x[own.clone()].copy_from_slice(&shape(mode));
        measured.apply(&x, &mut y, &mut vec![T::zero(); measured.scratch(1)]);
        x[own.clone()].iter().zip(&y[own]).map(|(&x, &y)| x * y).sum::<T>()
    };
    let identity: SharedOperator<T> = Arc::new(Diagonal::new(vec![T::one(); n]));
    let removed: SharedOperator<T> = Arc::new(low_rank(&|_| -T::one())?);
    let removal: SharedOperator<T> = Arc::new(Sum::new(vec![identity, removed])?);
    let replaced: SharedOperator<T> = Arc::new(low_rank(&variance)?);
    let between = Product::new(vec![removal.clone(), measured, removal.clone()])?;
    Ok(Some([Arc::new(Sum::new(vec![Arc::new(between), replaced])?), removal]))
}

/// Both operators without modes, Eq. [blind estimate](https://lenslet.github.io/lenslet/estimate-operators.html#eq-blind-estimate).
fn without<T: Real>(
    modes: &RemovedModes,
    measured: SharedOperator<T>,
    wavefront: SharedOperator<T>,
) -> Result<(SharedOperator<T>, SharedOperator<T>), Invalid> {
    match blind(modes, measured.clone())? {
        None => Ok((measured, wavefront)),
        Some([measured, removal]) => {
            Ok((measured, Arc::new(Product::new(vec![wavefront, removal])?)))
        }
    }
}

// Estimates frame by frame
// Estimates of several frames
/// Estimated wavefronts of several frames, with iterations, residuals and goodness of fit.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Estimates {
    /// Wavefronts, (frames, T, M, M), metres; axis 2 is y.
    pub wavefront: Array4<f64>,
    /// Iterations of the solver for each frame.
    pub iterations: Vec<usize>,
    /// Relative residual ‖s − (Θ + C_n) c‖ / ‖s‖ for each frame; the largest one of a row, where a reconstructor was formed for all frames.
    pub residual: Vec<f64>,
    /// χ²/n of Eq. [chi squared](https://lenslet.github.io/lenslet/estimate-frames.html#eq-chi-squared) for each frame: 1 on average if the model is right. Where a
    /// reconstructor was formed, for a sample of the frames, and NaN for others.
    #[cfg_attr(feature = "serde", serde(with = "crate::serial::list"))]
    pub chi_squared: Vec<f64>,
    /// Root mean square of the error that the interpolation of layers adds, for each frame of which χ²/n is known, m, measured at some points;
    /// none where nothing is interpolated, or it is not measured.
    pub interpolation: Vec<f64>,
    /// For each frame why its solver ended short of the tolerance, or nothing if it did not; the wavefront is then that of the
    /// last iterate.
    pub shortfall: Vec<Option<String>>,
}

impl Estimates {
    // Estimates as a data set
    /// Whether the solver met its tolerance, for each frame.
    pub fn converged(&self) -> Vec<bool> {
        self.shortfall.iter().map(Option::is_none).collect()
    }

    /// The estimates as a data set, with the order of the slopes of the `system`.
    pub fn to_data_set(&self, system: &System) -> DataSet<'_> {
        let mut data = DataSet::default();
        let wavefront = data.add_result("wavefront", self.wavefront.view()).unit("m");
        wavefront.dimensions("frame, target, y, x").long_name("estimated wavefronts");
        let iterations = data.add("iterations", Array1::from(self.iterations.clone()));
        iterations.dimensions("frame").long_name("iterations of the solver");
        let residual = data.add("residual", ArrayView1::from(&self.residual));
        residual.dimensions("frame").long_name("relative residual");
        let about = "chi squared over the number of slopes, 1 on average if the model is right; NaN where it was not measured";
        let chi_squared = data.add("chi_squared", ArrayView1::from(&self.chi_squared));
        chi_squared.dimensions("frame").long_name(about);
        let converged = data.add("converged", Array1::from(self.converged()));
        converged.dimensions("frame").long_name("whether the residual met the tolerance");
        data.add_table("slope_table", slope_table(system));
        data
    }

    // Room for some frames
    /// Room for some frames, filled one by one.
    pub(crate) fn of(frames: usize, [targets, points]: [usize; 2]) -> Self {
        let wavefront = Array4::zeros((frames, targets, points, points));
        let (iterations, shortfall) = (Vec::new(), Vec::new());
        let [residual, chi_squared, interpolation] = [(); 3].map(|()| Vec::new());
        Self { wavefront, iterations, residual, chi_squared, interpolation, shortfall }
    }
}

// What is found for one frame
/// Estimate of one frame, in units of `unit` rad of slope.
pub(crate) struct FrameEstimate<T> {
    pub(crate) wavefront: Vec<T>,
    pub(crate) attempt: Attempt,
    /// χ²/n of slopes in that unit.
    pub(crate) chi_squared: f64,
    pub(crate) unit: f64,
    /// Root mean square of the error by interpolation in that unit, where it is measured.
    pub(crate) interpolation: Option<f64>,
}

/// χ²/n of slopes and coefficients, Eq. [chi squared](https://lenslet.github.io/lenslet/estimate-frames.html#eq-chi-squared), where `n` of them are free.
pub(crate) fn chi_squared<T: Real>(slopes: &[T], coefficients: &[T], n: usize) -> f64 {
    let terms = slopes.iter().zip(coefficients).map(|(s, c)| s.in_double() * c.in_double());
    terms.sum::<f64>() / n as f64
}

// Put a frame among the estimates
impl Estimates {
    /// Adds the estimate of the next frame.
    ///
    /// # Errors
    /// `Invalid` where a wavefront is beyond the largest number.
    pub(crate) fn push<T: Real>(&mut self, estimate: FrameEstimate<T>) -> Result<(), Invalid> {
        let (frame, unit) = (self.iterations.len(), estimate.unit);
        let mut wavefront = self.wavefront.index_axis_mut(Axis(0), frame);
        let mut finite = true;
        for (point, w) in wavefront.iter_mut().zip(&estimate.wavefront) {
            *point = w.in_double() * unit;
            finite &= point.is_finite();
        }
        if !finite {
            let expected = "finite numbers: are the slopes in radians?";
            return Err(Invalid::new(format!("wavefronts of frame {frame}"), "infinite", expected));
        }
        // Note how the frame was found
        let Attempt { solved, shortfall } = estimate.attempt;
        self.iterations.push(solved.iterations);
        self.residual.push(solved.residual);
        self.chi_squared.push((unit * estimate.chi_squared * unit).min(f64::MAX));
        self.interpolation.extend(estimate.interpolation.map(|error| error * unit));
        self.shortfall.push(shortfall.map(|error| error.to_string()));
        Ok(())
    }
}

// Unit in which a frame is solved
/// The power of two not above the largest of some slopes, within 2^±1000; 1 if all are zero.
pub(crate) fn unit_of<'a>(slopes: impl IntoIterator<Item = &'a f64>) -> f64 {
    let bits = slopes.into_iter().fold(0, |largest, s| s.abs().to_bits().max(largest));
    let largest = f64::from_bits(bits);
    if largest == 0.0 {
        return 1.0;
    }
    2f64.powi(largest.log2().floor().clamp(-1000.0, 1000.0) as i32)
}

// Estimate the frames of a recording
impl<T: Real> EstimatorCpu<T> {
    /// Estimates the wavefronts of the frames in the rows of `slopes`, (frames, n), rad, in the order of
    /// [`SlopeOrder`](crate::model::lenslet_array::SlopeOrder).
    ///
    /// # Errors
    /// `Invalid` where a row has the wrong length, a slope is not finite, or a wavefront leaves the range of the numbers;
    /// `Cancelled` where the watcher wants to stop.
    pub fn estimate(
        &self,
        slopes: ArrayView2<f64>,
        warm: bool,
        watch: &dyn Watch,
    ) -> Result<Estimates, Error> {
        check_slopes(slopes, self.slopes())?;
        let frames = slopes.nrows();
        check_frames(frames, [self.targets, self.points, self.points])?;
        rayon::scope(|_| self.estimate_frames(slopes, warm, watch))
    }

    // Estimate the frames one by one
    /// Estimates the wavefronts of the frames in the rows of `slopes`, on one of the threads that share the products.
    fn estimate_frames(
        &self,
        slopes: ArrayView2<f64>,
        warm: bool,
        watch: &dyn Watch,
    ) -> Result<Estimates, Error> {
        let frames = slopes.nrows();
        let mut estimates = Estimates::of(frames, [self.targets, self.points]);
        let mut coefficients = vec![T::zero(); self.slopes()];
        let mut scratch = vec![T::zero(); self.wavefront.scratch(1)];
        let shared = warm.then(|| unit_of(slopes));
        for (frame, measured) in slopes.outer_iter().enumerate() {
            check(watch)?;
            let mut left = measured.to_vec();
            self.removed.remove(&mut left);
            let unit = shared.unwrap_or_else(|| unit_of(&left));
            // Estimate one frame
            let measured: Vec<T> = left.iter().map(|&slope| T::of(slope * unit.recip())).collect();
            if !warm {
                coefficients.fill(T::zero());
            }
            let attempt = self.options.solver.attempt(
                self.measured.as_ref(),
                self.preconditioner.as_deref(),
                &measured,
                &mut coefficients,
                &self.options.stop_at(measured.len()),
                &mut |_, _| check(watch),
            )?;
            let free = (measured.len() - self.removed.len()).max(1);
            let chi_squared = chi_squared(&measured, &coefficients, free);
            let mut wavefront = vec![T::zero(); self.wavefront.rows()];
            self.wavefront.apply(&coefficients, &mut wavefront, &mut scratch);
            // Add the estimate of a frame
            let interpolation = self.sampled.as_ref().map(|sampled| {
                let mut used: Vec<f64> = coefficients.iter().map(|c| c.in_double()).collect();
                self.removed.remove(&mut used);
                sampled.rms(&used)
            });
            estimates.push(FrameEstimate {
                wavefront,
                attempt,
                chi_squared,
                unit,
                interpolation,
            })?;
            watch.progress(frame + 1, frames);
        }
        Ok(estimates)
    }
}

// Refuse slopes and too many frames
/// Refuses frames of slopes that make no sense.
pub(crate) fn check_slopes(slopes: ArrayView2<f64>, n: usize) -> Result<(), Invalid> {
    if slopes.ncols() != n {
        let expected = format!(
            "{n}: the x slopes of the valid lenslets of the first guide star, then its y slopes, then those of the next"
        );
        return Err(Invalid::new("slopes in a frame", slopes.ncols(), expected));
    }
    if slopes.iter().all(|slope| slope.is_finite()) {
        return Ok(());
    }
    let bad = slopes.indexed_iter().find(|(_, slope)| !slope.is_finite());
    bad.map_or(Ok(()), |((frame, k), slope)| {
        let name = format!("slope {k} of frame {frame}");
        Err(Invalid::new(name, slope, "a finite angle in radians"))
    })
}

// Refuse more frames than fit
/// Refuses more frames than fit into the memory. A few frames are not worth the time that it takes to ask the system.
pub(crate) fn check_frames(frames: usize, wavefronts: [usize; 3]) -> Result<(), Error> {
    let frame = 8 * wavefronts.iter().product::<usize>() as u64;
    let bytes = frame.saturating_mul(frames as u64);
    if bytes < 1 << 24 {
        return Ok(());
    }
    let memory = Memory { host: bytes, devices: Vec::new() };
    memory.check(&Engine::default(), &format!("the wavefronts of {}", count(frames, "frame")))
}

// What all estimators can do
/// Common interface of the estimators on processors and devices.
pub(crate) trait Frames: Send + Sync {
    /// Estimates the frames in the rows of `slopes`.
    fn frames(
        &self,
        slopes: ArrayView2<f64>,
        warm: bool,
        watch: &dyn Watch,
    ) -> Result<Estimates, Error>;

    /// Slopes of a frame, the error of the interpolation, and the bytes of both operators.
    fn facts(&self) -> (usize, f64, [u64; 2]);
}

impl<T: Real> Frames for EstimatorCpu<T> {
    // Answers of an estimator on the processor
    fn frames(
        &self,
        slopes: ArrayView2<f64>,
        warm: bool,
        watch: &dyn Watch,
    ) -> Result<Estimates, Error> {
        self.estimate(slopes, warm, watch)
    }

    fn facts(&self) -> (usize, f64, [u64; 2]) {
        let bytes = [self.measured().bytes(), self.wavefront().bytes()];
        (self.slopes(), self.interpolation_error(), bytes)
    }
}

// Tests of the estimate
#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::lenslet_array::LensletArray;
    use crate::model::noise::Noise;
    use crate::model::removed_modes::{Focus, TipTilt};
    use crate::model::sensor::Sensor;
    use crate::model::source::Source;
    use crate::model::wavefront_grid::PhaseGrid;
    use crate::watch::unwatched;
    use faer::prelude::Solve;

    // Make a lopsided system
    /// Seven lenslets across an obstructed pupil, two layers, two targets, two stars at the given heights.
    pub(crate) fn system(heights: [&str; 2], disc: f64) -> System {
        let text = format!(
            "atmosphere = {{ r0 = 0.16, outer_scale = 20, layers = [\
               {{ altitude = 9000, fraction = 0.4 }}, {{ altitude = 0, fraction = 0.6 }}] }}\n\
             telescope = {{ diameter = 3.5, obstruction = 0.3 }}\n\
             lenslet_array = {{ lenslets = 7 }}\n\
             phase = {{ points = 12, oversampling = 2, disc_radius = {disc} }}\n\
             guide_star = [{{ zenith = 20, azimuth = 30, height = {}, noise = 1e-13 }},\
               {{ zenith = 15, azimuth = 200, height = {}, noise = 3e-13 }}]\n\
             target = [{{ zenith = 8, azimuth = 75 }}, {{ zenith = 3 }}]\n",
            heights[0], heights[1]
        );
        System::from_toml(&text, "lopsided.toml").unwrap()
    }

    // Make a mixed system
    /// A system with two large stars at `height`, a laser star on 3 × 3 lenslets and a rotated natural star on 2 × 2 lenslets.
    pub(crate) fn mixed(height: &str) -> System {
        let system = system([height, "80e3"], 0.0);
        let mut stars = system.guide_stars().to_vec();
        stars.extend([stars[1].clone(), stars[0].clone()]);
        let array = |lenslets| LensletArray::new(lenslets, 3.5 / lenslets as f64).unwrap();
        stars[1].sensor.array = array(3);
        let source = Source::star(5e-5, 4.0).unwrap();
        stars[2].sensor = Sensor { rotation: 0.3, ..Sensor::at_rest(source, array(2)) };
        stars[3].sensor.source = Source::new(8e-5, 5.0, stars[0].sensor.source.height()).unwrap();
        stars.swap(0, 1);
        system.to_builder().guide_stars(stars).build().unwrap()
    }

    // Make a system with streaked noise
    /// A system whose first star has elongated noise, which differs from lenslet to lenslet.
    pub(crate) fn streaked(system: &System) -> System {
        let mut stars = system.guide_stars().to_vec();
        let lenslets = system.valid_lenslets()[0].iter().filter(|valid| **valid).count();
        let block = |k: usize| {
            let (x, y) = ((k as f64).cos(), 3.0 * (0.4 * k as f64).sin());
            [[1.0 + x * x, x * y], [x * y, 1.0 + y * y]].map(|row| row.map(|value| 1e-13 * value))
        };
        stars[0].noise = Noise::blocks(&(0..lenslets).map(block).collect::<Vec<_>>()).unwrap();
        system.to_builder().guide_stars(stars).build().unwrap()
    }

    // Make a system with stars that are blind to modes
    /// A system with one star that measures neither tilt nor focus, and another whose tilt has errors.
    pub(crate) fn blinded(system: &System) -> System {
        let mut stars = system.guide_stars().to_vec();
        (stars[0].tip_tilt, stars[0].focus) = (TipTilt::Removed, Focus::Removed);
        stars[1].tip_tilt = TipTilt::unknown(1e-11).unwrap();
        system.to_builder().guide_stars(stars).build().unwrap()
    }

    /// Slopes without a pattern, one frame in a row.
    pub(crate) fn slopes(frames: usize, n: usize) -> Array2<f64> {
        Array2::from_shape_fn((frames, n), |(f, k)| 1e-6 * ((k * k + 17 * f) as f64 * 0.37).sin())
    }

    // Build an estimator for a test
    /// The estimator of a system on the processor.
    pub(crate) fn built(
        system: &System,
        options: EstimateOptions,
    ) -> Result<EstimatorCpu<f64>, Error> {
        let model = PosedEstimate::new(system, options)?.compute(&Engine::default(), &unwatched)?;
        EstimatorCpu::of(model, options)
    }

    // Solve by Cholesky's method
    /// An operator as a dense matrix.
    fn dense_matrix(operator: &dyn Operator<f64>) -> faer::Mat<f64> {
        let (rows, columns) = (operator.rows(), operator.columns());
        let mut matrix = faer::Mat::zeros(rows, columns);
        let (mut y, mut scratch) = (vec![0.0; rows], vec![0.0; operator.scratch(1)]);
        for column in 0..columns {
            let x: Vec<f64> = (0..columns).map(|k| f64::from(u8::from(k == column))).collect();
            operator.apply(&x, &mut y, &mut scratch);
            y.iter().enumerate().for_each(|(row, value)| matrix[(row, column)] = *value);
        }
        matrix
    }

    /// Ξ (Θ + C_n)⁻¹ s.
    fn by_cholesky(measured: &faer::Mat<f64>, wavefront: &faer::Mat<f64>, s: &[f64]) -> Vec<f64> {
        let right = faer::Mat::from_fn(s.len(), 1, |row, _| s[row]);
        let factored = measured.llt(faer::Side::Lower).unwrap();
        let estimate = wavefront * factored.solve(&right);
        (0..estimate.nrows()).map(|row| estimate[(row, 0)]).collect()
    }

    // Compare estimates with dense ones
    #[test]
    fn estimates_agree_with_dense_algebra() {
        for (heights, disc) in [
            (["inf", "inf"], 0.0),
            (["90e3", "90e3"], 0.0),
            (["90e3", "inf"], 0.0),
            (["inf", "inf"], 6.0),
        ] {
            let system = system(heights, disc);
            // Pose the same with dense matrices
            let order = SlopeOrder::new(&system.valid_lenslets());
            let [theta, xi] =
                dense_matrices(&system, &Engine::default(), (&unwatched, &unwatched)).unwrap();
            let xi = faer::Mat::from_fn(xi.nrows(), xi.ncols(), |row, column| xi[[row, column]]);
            let noise = |k: usize| if k < order.index(1, 0, 0) { 1e-13 } else { 3e-13 };
            let measured = faer::Mat::from_fn(order.len(), order.len(), |row, column| {
                theta[[row, column]] + if row == column { noise(row) } else { 0.0 }
            });
            let largest = |values: &mut dyn Iterator<Item = f64>| {
                values.fold(0.0, |a: f64, b| a.max(b.abs()))
            };
            let stop = Stop { tolerance: 1e-12, iterations: 2000 };
            for (solver, preconditioned) in [
                (Solver::ConjugateGradients, true),
                (Solver::ConjugateGradients, false),
                (Solver::Minres, true),
            ] {
                let options =
                    EstimateOptions { solver, preconditioned, ..EstimateOptions::default() };
                let options = options.stop(stop);
                let estimator = built(&system, options).unwrap();
                let slopes = slopes(2, estimator.slopes());
                let estimates = estimator.estimate(slopes.view(), false, &unwatched).unwrap();
                assert_eq!(estimates.wavefront.dim(), (2, 2, 12, 12));
                let wavefront = dense_matrix(estimator.wavefront());
                for frame in 0..2 {
                    let s = slopes.row(frame).to_vec();
                    // Hold each frame against both
                    let same = by_cholesky(&measured, &wavefront, &s);
                    let exact = by_cholesky(&measured, &xi, &s);
                    let estimated = estimates.wavefront.index_axis(ndarray::Axis(0), frame);
                    let scale = largest(&mut exact.iter().copied());
                    let error =
                        largest(&mut estimated.iter().zip(&same).map(|(a, b)| a - b)) / scale;
                    assert!(error < 1e-8, "{heights:?} {solver:?} {preconditioned}: {error:e}");
                    let loss =
                        largest(&mut estimated.iter().zip(&exact).map(|(a, b)| a - b)) / scale;
                    let layered = heights == ["90e3", "90e3"];
                    assert!(
                        if layered { (1e-9..5e-2).contains(&loss) } else { loss < 1e-8 },
                        "{heights:?}: {loss:e}"
                    );
                }
            }
        }
    }

    // Compare estimates with correlated noise
    #[test]
    fn estimates_with_correlated_noise_agree_with_dense_algebra() {
        for (heights, rotation) in
            [(["inf", "inf"], 0.0), (["90e3", "inf"], 0.0), (["90e3", "90e3"], 0.2)]
        {
            let system = streaked(&system(heights, 0.0));
            let mut stars = system.guide_stars().to_vec();
            stars[1].sensor.rotation = rotation;
            let system = system.to_builder().guide_stars(stars).build().unwrap();
            let stop = Stop { tolerance: 1e-12, iterations: 2000 };
            let estimator = built(&system, EstimateOptions::default().stop(stop)).unwrap();
            let order = SlopeOrder::new(&system.valid_lenslets());
            let mut matrix = dense_slopes(&system, &Engine::default(), &unwatched).unwrap();
            // Add the blocks of noise to a matrix
            for (q, star) in system.guide_stars().iter().enumerate() {
                for k in 0..order.lenslets(q).len() {
                    let [xx, xy, yy] = star.noise.block(k);
                    let [x, y] = [0, 1].map(|axis| order.index(q, axis, k));
                    for (at, value) in [([x, x], xx), ([x, y], xy), ([y, x], xy), ([y, y], yy)] {
                        matrix[at] += value;
                    }
                }
            }
            let measured = dense_matrix(&Dense::new(matrix));
            let slopes = slopes(1, estimator.slopes());
            let wavefront = dense_matrix(estimator.wavefront());
            let exact = by_cholesky(&measured, &wavefront, &slopes.row(0).to_vec());
            let estimates = estimator.estimate(slopes.view(), false, &unwatched).unwrap();
            let largest = |values: &mut dyn Iterator<Item = f64>| {
                values.fold(0.0, |a: f64, b| a.max(b.abs()))
            };
            let scale = largest(&mut exact.iter().copied());
            let error = largest(&mut estimates.wavefront.iter().zip(&exact).map(|(a, b)| a - b));
            assert!(error < 1e-8 * scale, "{heights:?}: {error:e} of {scale:e}");
        }
    }

    // Compare estimates without modes
    #[test]
    fn estimates_without_modes_agree_with_dense_algebra() {
        let plain = system(["90e3", "90e3"], 0.0);
        let blind = blinded(&plain);
        let options = EstimateOptions::default().stop(Stop { tolerance: 1e-12, iterations: 2000 });
        let [plain, blind_estimator] =
            [&plain, &blind].map(|system| built(system, options).unwrap());
        let order = SlopeOrder::new(&blind.valid_lenslets());
        let mut matrix = dense_slopes(&blind, &Engine::default(), &unwatched).unwrap();
        SlopeNoise::new(blind.guide_stars(), &order).add_to(&mut matrix);
        let modes = blind.removed_modes();
        let mut z = Array2::zeros((order.len(), modes.len()));
        for (k, Mode { first, shape }) in modes.iter().enumerate() {
            shape.iter().enumerate().for_each(|(i, part)| z[[first + i, k]] = *part);
        }
        let p = Array2::eye(order.len()) - z.dot(&z.t());
        let measured = dense_matrix(&Dense::new(p.dot(&matrix).dot(&p) + 1e-11 * z.dot(&z.t())));
        let wavefront = dense_matrix(plain.wavefront()) * dense_matrix(&Dense::new(p.clone()));
        // Hold a spoilt frame against projections
        let slopes = slopes(1, order.len());
        let left = p.dot(&slopes.row(0)).to_vec();
        let exact = by_cholesky(&measured, &wavefront, &left);
        let spoilt = &slopes + &z.dot(&Array2::from_elem((modes.len(), 1), 5e-5)).t();
        let found = blind_estimator.estimate(spoilt.view(), false, &unwatched).unwrap();
        let scale = exact.iter().fold(0.0, |most: f64, w| most.max(w.abs()));
        let errors = found.wavefront.iter().zip(&exact).map(|(a, b)| (a - b).abs());
        let error = errors.fold(0.0, f64::max) / scale;
        assert!(error < 1e-8, "{error:e}");
        let other = plain.estimate(spoilt.view(), false, &unwatched).unwrap();
        let iterations = [&found, &other].map(|estimates| estimates.iterations[0]);
        assert!(iterations[0] < 2 * iterations[1], "{iterations:?}");
        let right = faer::Mat::from_fn(left.len(), 1, |row, _| left[row]);
        let coefficients = measured.llt(faer::Side::Lower).unwrap().solve(&right);
        let chi_squared =
            left.iter().enumerate().map(|(k, s)| s * coefficients[(k, 0)]).sum::<f64>();
        let ratio = found.chi_squared[0] * (order.len() - modes.len()) as f64 / chi_squared;
        assert!((ratio - 1.0).abs() < 1e-6, "{ratio}");
    }

    // Compare operators in blocks with dense ones
    #[test]
    fn estimates_in_blocks_are_those_of_dense_matrices() {
        let options = EstimateOptions::default().stop(Stop { tolerance: 1e-11, iterations: 2000 });
        for system in [mixed("inf"), streaked(&mixed("inf")), mixed("90e3")] {
            let forms = [Form::Dense, Form::Blocks];
            let [dense, blocks] = forms.map(|form| built(&system, options.form(form)).unwrap());
            let [one, other] =
                [&dense, &blocks].map(|estimator| dense_matrix(estimator.measured()));
            assert!((&one - &other).norm_max() < 1e-11 * one.norm_max());
            let slopes = slopes(1, dense.slopes());
            let [one, other] = [&dense, &blocks]
                .map(|estimator| estimator.estimate(slopes.view(), false, &unwatched).unwrap());
            let size = |values: &Array4<f64>| values.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
            let error = size(&(&one.wavefront - &other.wavefront)) / size(&one.wavefront);
            let layered = blocks.interpolation_error() > 0.0;
            assert!(error < if layered { 5e-2 } else { 1e-8 }, "{error:e}");
            let ratio = one.chi_squared[0] / other.chi_squared[0];
            assert!((ratio - 1.0).abs() < 1e-8, "{ratio}");
            // Count iterations with and without it
            let plain = built(&system, options.form(Form::Blocks).preconditioned(false)).unwrap();
            let plain = plain.estimate(slopes.view(), false, &unwatched).unwrap();
            let counts = [&other, &one, &plain].map(|estimates| estimates.iterations[0]);
            assert!(3 * counts[0] < 2 * counts[2] && counts[0] < counts[1], "{counts:?}");
        }
    }

    // Compare blocks of one number
    #[test]
    fn blocks_of_one_number_are_that_number() {
        let plain = system(["90e3", "90e3"], 0.0);
        let mut stars = plain.guide_stars().to_vec();
        for (star, valid) in stars.iter_mut().zip(plain.valid_lenslets()) {
            let (variance, count) =
                (star.noise.mean(), valid.iter().filter(|valid| **valid).count());
            star.noise = Noise::blocks(&vec![[[variance, 0.0], [0.0, variance]]; count]).unwrap();
        }
        let blocks = plain.to_builder().guide_stars(stars).build().unwrap();
        let [one, other] = [plain, blocks].map(|system| {
            let estimator = built(&system, EstimateOptions::default()).unwrap();
            let slopes = slopes(1, estimator.slopes());
            let measured = dense_matrix(estimator.measured());
            (measured, estimator.estimate(slopes.view(), false, &unwatched).unwrap())
        });
        assert_eq!(one.0, other.0);
        let difference = &one.1.wavefront - &other.1.wavefront;
        let size = |values: &Array4<f64>| values.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
        assert!(size(&difference) < 1e-10 * size(&one.1.wavefront));
    }

    // Let a tilt pin the sign
    #[test]
    fn a_tilt_along_x_comes_back_as_it_was() {
        for heights in [["inf", "inf"], ["90e3", "90e3"], ["90e3", "inf"]] {
            let system = system(heights, 0.0);
            let estimator = built(&system, EstimateOptions::default()).unwrap();
            let order = SlopeOrder::new(&system.valid_lenslets());
            let along_x = |k: usize| {
                let x_slopes = |q| (order.index(q, 0, 0)..order.index(q, 1, 0)).contains(&k);
                if x_slopes(0) || x_slopes(1) { 1e-6 } else { 0.0 }
            };
            let slopes = Array2::from_shape_fn((1, order.len()), |(_, k)| along_x(k));
            let estimates = estimator.estimate(slopes.view(), false, &unwatched).unwrap();
            let wavefront = estimates.wavefront.slice(ndarray::s![0, 1, .., ..]);
            let step = system.wavefront_pitch() / 2.0;
            let along = |a: [usize; 2], b: [usize; 2]| (wavefront[b] - wavefront[a]) / (6.0 * step);
            let (x, y) = (along([6, 3], [6, 9]), along([3, 6], [9, 6]));
            assert!((0.85..1.1).contains(&(x / 1e-6)), "{heights:?}: {x:e} along x");
            assert!((y / 1e-6).abs() < 0.1, "{heights:?}: {y:e} along y");
        }
    }

    // Start warm and stop short
    #[test]
    fn warm_starts_help_and_bad_slopes_are_refused() {
        let system = system(["inf", "inf"], 0.0);
        let estimator = built(&system, EstimateOptions::default()).unwrap();
        let row = slopes(1, estimator.slopes());
        let twice = ndarray::concatenate![ndarray::Axis(0), row, row.mapv(|s| 1.0001 * s)];
        let [cold, warm] =
            [false, true].map(|warm| estimator.estimate(twice.view(), warm, &unwatched).unwrap());
        assert!(
            warm.iterations[1] < cold.iterations[1],
            "{:?} {:?}",
            warm.iterations,
            cold.iterations
        );
        assert!(cold.residual.iter().all(|residual| (0.0..=1e-6).contains(residual)));
        let refusal =
            |slopes: Array2<f64>| estimator.estimate(slopes.view(), false, &unwatched).unwrap_err();
        let error = refusal(slopes(1, 5));
        assert!(error.to_string().starts_with("slopes in a frame = 5: expected "), "{error}");
        let mut hole = row.clone();
        hole[[0, 3]] = f64::NAN;
        assert!(refusal(hole).to_string().starts_with("slope 3 of frame 0 = NaN"));
        // Stop short and refuse by name
        // a single target on 13 × 13 points
        let grid = PhaseGrid::new(13, 2, 0.0).unwrap();
        let odd =
            system.to_builder().targets([system.targets()[0]]).phase(Some(grid)).build().unwrap();
        let single = built(&odd, EstimateOptions::default()).unwrap();
        let estimates = single.estimate(row.view(), false, &unwatched).unwrap();
        assert!(estimates.wavefront.dim() == (1, 1, 13, 13));
        let stop = Stop { tolerance: 1e-10, iterations: 3 };
        let short = built(&system, EstimateOptions::default().stop(stop)).unwrap();
        let estimates = short.estimate(row.view(), false, &unwatched).unwrap();
        assert!(estimates.iterations == [3] && estimates.residual[0] > 1e-10);
        assert_eq!(estimates.converged(), [false]);
        let reason = estimates.shortfall[0].as_deref().unwrap();
        assert!(reason.contains("after 3 iterations"), "{reason}");
        for (key, missing) in [("target", "[[target]]"), ("phase", "[phase]")] {
            let builder = system.to_builder();
            let without = if key == "target" { builder.targets([]) } else { builder.phase(None) };
            let refused = built(&without.build().unwrap(), EstimateOptions::default());
            let error = refused.err().unwrap().to_string();
            assert!(error.contains(missing), "{error}");
        }
    }

    // Hold χ² to dense algebra
    #[test]
    fn chi_squared_tells_slopes_that_fit_from_others() {
        let mut stars = system(["inf", "90e3"], 0.0).guide_stars().to_vec();
        stars.iter_mut().for_each(|star| star.noise = Noise::uniform(1e-15).unwrap());
        let system = system(["inf", "90e3"], 0.0).to_builder().guide_stars(stars).build().unwrap();
        let simulation = crate::estimation::simulation::Simulation::new(&system).unwrap();
        let drawn = simulation.realisation(3).slopes;
        let n = drawn.len();
        let order = SlopeOrder::new(&system.valid_lenslets());
        let half = |q: usize| order.lenslets(q).len();
        let exchanged = |k: usize| {
            let q = usize::from(k >= order.index(1, 0, 0));
            let start = order.index(q, 0, 0);
            drawn[start + (k - start + half(q)) % (2 * half(q))]
        };
        let frames =
            Array2::from_shape_fn(
                (2, n),
                |(frame, k)| {
                    if frame == 0 { drawn[k] } else { exchanged(k) }
                },
            );
        let stop = Stop { tolerance: 1e-10, iterations: 2000 };
        let estimator = built(&system, EstimateOptions::default().stop(stop)).unwrap();
        let estimates = estimator.estimate(frames.view(), false, &unwatched).unwrap();
        let factored = dense_matrix(estimator.measured()).llt(faer::Side::Lower).unwrap();
        for (frame, &statistic) in estimates.chi_squared.iter().enumerate() {
            let s = faer::Mat::from_fn(n, 1, |k, _| frames[[frame, k]]);
            let exact = (s.transpose() * factored.solve(&s))[(0, 0)] / n as f64;
            assert!((statistic / exact - 1.0).abs() < 1e-8, "{statistic} {exact}");
        }
        let scatter = (2.0 / n as f64).sqrt();
        assert!((estimates.chi_squared[0] - 1.0).abs() < 4.0 * scatter);
        assert!(estimates.chi_squared[1] > 2.0, "{:?}", estimates.chi_squared);
    }

    // Slopes of any size are the same
    #[test]
    fn estimates_are_linear_at_any_size() {
        let system = system(["inf", "inf"], 0.0);
        let estimator = built(&system, EstimateOptions::default()).unwrap();
        let row = slopes(1, estimator.slopes());
        let plain = estimator.estimate(row.view(), false, &unwatched).unwrap();
        for exponent in [-660, -100, 5, 500] {
            let factor = 2f64.powi(exponent);
            let sized = (&row * factor).view().to_owned();
            let estimates = estimator.estimate(sized.view(), false, &unwatched).unwrap();
            assert_eq!(estimates.wavefront, &plain.wavefront * factor, "2^{exponent}");
            assert_eq!(estimates.iterations, plain.iterations);
            assert!(estimates.chi_squared[0].is_finite());
        }
        let huge = estimator.estimate((&row * 1e306 / 1e-6).view(), false, &unwatched);
        assert!(huge.is_ok_and(|estimates| estimates.wavefront.iter().all(|w| w.is_finite())));
        let one = Array2::from_elem((1, estimator.slopes()), f64::MAX);
        let error = estimator.estimate(one.view(), false, &unwatched).unwrap_err();
        assert!(error.to_string().contains("radians"), "{error}");
    }

    // Let the limit grow with the system
    #[test]
    fn the_limit_grows_with_the_system() {
        let options = EstimateOptions::default();
        assert_eq!([10, 500, 7440].map(|slopes| options.limit(slopes)), [1000, 1000, 14_880]);
        let stop = Stop { tolerance: 1e-3, iterations: 7 };
        assert_eq!((options.stop(stop).limit(7440), options.stop(stop).tolerance), (7, 1e-3));
        let text = "atmosphere = { r0 = 0.15, outer_scale = 25, layers = [\
               { altitude = 0, fraction = 0.6 }, { altitude = 9000, fraction = 0.4 }] }\n\
             telescope = { diameter = 5.2, obstruction = 0.14 }\n\
             lenslet_array = { lenslets = 13 }\n\
             phase = { points = 3 }\n\
             guide_star = [{ zenith = 20, noise = 1e-19 }, { zenith = 20, azimuth = 90, noise = 1e-19 },\
               { zenith = 20, azimuth = 180, noise = 1e-19 }, { zenith = 20, azimuth = 270, noise = 1e-19 }]\n\
             target = [{ zenith = 0 }]\n";
        let system = System::from_toml(text, "quiet.toml").unwrap();
        let estimator = built(&system, options).unwrap();
        let slopes = slopes(1, estimator.slopes());
        let estimates = estimator.estimate(slopes.view(), false, &unwatched).unwrap();
        assert!(estimates.iterations[0] > 1000, "{:?}", estimates.iterations);
        assert_eq!(estimates.converged(), [true]);
    }
}
