// Tangled from book/src/estimate-plan.md: edit there, or here and run cargo tangle stitch.
//! Estimates of wavefronts from slopes: planned, and run wherever an engine computes.

mod gpu;

// Imports of the planned estimate
use self::gpu::{estimators, on_devices, without_factors};
use crate::device::{CostKind, engine::Engine};
use crate::error::{Error, Invalid, count};
#[cfg(feature = "factorise")]
use crate::estimation::estimate::factorised::{
    Factorised,
    formed::{FormedReconstructor, RECONSTRUCTOR},
};
use crate::estimation::estimate::{
    EstimateOptions, Estimates, EstimatorCpu, Frames, PosedEstimate, check_slopes,
};
use crate::estimation::frame_method::{FrameMethod, cost, factor_bytes, of_reconstructor};
use crate::estimation::inversion::Inversion;
use crate::estimation::matrix_estimator::ReconstructorMatrix;
use crate::model::system::System;
use crate::numerics::real::Precision;
use crate::plan::Plan;
use crate::plan::{Description, Memory, Stage};
use crate::turbulence::plan::{Form, PIECES, SlopeCovariancePlan, WAVEFRONTS, dense_bytes};
use crate::watch::{Watch, check};
use ndarray::ArrayView2;

// Plan of an estimate
/// How wavefronts will be estimated.
///
/// ```
/// use lenslet::estimation::EstimateOptions;
/// use lenslet::plan::Plan;
/// use lenslet::estimation::EstimatePlan;
/// use lenslet::device::Engine;
/// use lenslet::watch::unwatched;
/// use lenslet::model::System;
/// let system = System::from_file("book/systems/keck-lgs.toml")?;
/// let plan = EstimatePlan::new(&system, EstimateOptions::default())?;
/// let estimator = plan.run(&Engine::default(), &unwatched)?;
/// let flat = ndarray::Array2::zeros((1, plan.slopes()));
/// let estimates = estimator.estimate(flat.view(), false, &unwatched)?;
/// assert!(estimates.wavefront.iter().all(|w| *w == 0.0));
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct EstimatePlan {
    posed: PosedEstimate,
    /// How frames are solved, once it is decided, and why.
    method: FrameMethod,
}

// Steps of the plan of an estimate
impl EstimatePlan {
    /// Plans the estimate of a system's wavefronts from its slopes.
    ///
    /// # Errors
    /// `Invalid` where the system has no target, no grid of wavefront points, or no valid lenslet, or tolerance or method make no
    /// sense; `NotToeplitz` where that form is asked for and there is none.
    pub fn new(system: &System, options: EstimateOptions) -> Result<Self, Error> {
        Self::of(exact_where_it_fits(PosedEstimate::new(system, options)?)?, &Engine::default())
    }

    // Choose how to solve a frame
    fn of(posed: PosedEstimate, engine: &Engine) -> Result<Self, Error> {
        let plan = |posed, form| {
            let method = FrameMethod::choose(&posed, engine.speed(), form)?;
            Ok::<_, Error>(Self { posed, method })
        };
        let chosen = plan(posed, true)?;
        if chosen.method.forms_reconstructor && chosen.check_memory(engine).is_err() {
            return plan(chosen.posed, false);
        }
        Ok(chosen)
    }

    // Plan for another number of frames
    /// Sets the number of frames, for which another method may be the faster one.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn frames(self, frames: usize) -> Result<Self, Error> {
        Self::of(
            PosedEstimate { options: self.posed.options.frames(frames), ..self.posed },
            &Engine::default(),
        )
    }

    // Fit the plan to an engine
    /// Fits the plan to an engine: chooses the faster method where the choice is left to the plan, and iterations where a device lacks
    /// the library that a factor needs.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn fitted(self, engine: &Engine) -> Result<Self, Error> {
        let plan = Self::of(self.posed, engine)?;
        let Self { posed, method } = Self::of(plan.on_engine(engine)?, engine)?;
        let iterates =
            posed.options.filter == 0.0 && posed.covariances.system().expect_measured("").is_ok();
        let is_open =
            posed.options.method == Inversion::Auto && method.inversion != Inversion::Iterative;
        let missing =
            if is_open && iterates { without_factors(engine, method.inversion) } else { None };
        let method = missing.map_or_else(|| method.clone(), |missing| method.without(&missing));
        Ok(Self { posed, method })
    }

    // Interpolate where memory is short
    /// The stated problem, with interpolated layers where the dense form was chosen here and does not fit into the memory of an engine.
    fn on_engine(self, engine: &Engine) -> Result<PosedEstimate, Error> {
        if self.posed.reason.is_none() || self.check_memory(engine).is_ok() {
            return Ok(self.posed);
        }
        let (system, options) = (self.posed.covariances.system(), self.posed.options);
        PosedEstimate::new(system, options.form(Form::Auto).exact(false))
    }

    // Method that was chosen
    /// How frames are solved, once it is decided.
    pub fn method(&self) -> Inversion {
        self.method.inversion
    }

    /// Whether a reconstructor is formed once and multiplies the frames, which are then not solved one by one.
    pub fn forms_reconstructor(&self) -> bool {
        self.method.forms_reconstructor
    }

    // Slopes that a plan expects
    /// Slopes of a frame, n.
    pub fn slopes(&self) -> usize {
        self.posed.noise.variances.len()
    }

    /// The name of the form of the covariances: `toeplitz`, `blocks` or `dense`.
    pub fn form(&self) -> &'static str {
        self.posed.covariances.form()
    }

    /// Whether layers are brought to the pupil by interpolation.
    pub fn interpolates(&self) -> bool {
        interpolates(&self.posed)
    }

    /// Refuses frames of slopes, (frames, n), that make no sense.
    ///
    /// # Errors
    /// `Invalid` where a row has the wrong length or a slope is not finite.
    pub fn check_slopes(&self, slopes: ArrayView2<f64>) -> Result<(), Invalid> {
        check_slopes(slopes, self.slopes())
    }

    // Count the memory of an estimate
    /// The most memory that the estimate has in use at a time, its frames included.
    pub(crate) fn memory_on(&self, engine: &Engine) -> Memory {
        let posed = &self.posed;
        let slopes = |plan: &SlopeCovariancePlan| 8 * plan.problem().len() as u64;
        let of_groups: u64 = posed.groups.iter().map(|group| slopes(&group.plan)).sum();
        let of_wavefront = match (posed.covariances.wavefront(), posed.covariances.blocks()) {
            (Some(plan), _) => 8 * plan.problem().len() as u64,
            (_, Some(blocks)) => blocks.result_bytes() - of_groups,
            _ => dense_bytes(posed.covariances.system()).iter().sum(),
        };
        // Count the operators of an estimate
        let mut working: Vec<Memory> =
            posed.groups.iter().map(|group| group.plan.working(engine)).collect();
        working.extend(posed.covariances.wavefront().map(|plan| plan.working(engine)));
        let (blocks, system) = (posed.covariances.blocks(), posed.covariances.system());
        working.extend(blocks.into_iter().flat_map(|plan| plan.working(system, engine)));
        let (mut devices, mut factor) = (on_devices(posed, engine), 0);
        if self.method() != Inversion::Iterative {
            let (first, matrices) = factor_bytes(self.slopes(), self.method(), engine);
            devices.iter_mut().take(1).for_each(|bytes| *bytes = bytes.saturating_add(first));
            factor = dense_bytes(posed.covariances.system())[0].saturating_mul(matrices);
        }
        if self.method.forms_reconstructor {
            let shape = [posed.targets * posed.points.pow(2), self.slopes()];
            let there = ReconstructorMatrix::bytes_on_devices(shape, engine);
            let sums = devices.iter_mut().zip(there);
            sums.for_each(|(bytes, more)| *bytes = bytes.saturating_add(more));
            factor = factor.saturating_add(16 * shape.iter().map(|&k| k as u64).product::<u64>());
        }
        let host = (4 * of_groups + 2 * of_wavefront).saturating_add(factor);
        let operators = Memory { host, devices };
        let frame = 8 * (posed.targets * posed.points.pow(2)) as u64;
        let frames = frame.saturating_mul(posed.options.frames as u64);
        let kept = of_groups.saturating_add(of_wavefront).saturating_add(frames);
        Memory::of_stages(kept, working.iter().chain([&operators]))
    }

    // Describe the plan of an estimate
    /// Description of the plan.
    fn description(&self, engine: &Engine) -> Description {
        let posed = &self.posed;
        let covariances = posed.covariances.description(engine);
        let (targets, points, frames) = (posed.targets, posed.points, posed.options.frames);
        let solver = format!("{:?}", posed.options.solver);
        let unstructured = posed.covariances.blocks().and_then(|blocks| blocks.sets.unstructured());
        let aid = match (posed.options.preconditioned, unstructured) {
            (true, Some(_)) => ", circulant preconditioner, few slopes eliminated",
            (true, None) => ", circulant preconditioner",
            (false, _) => "",
        };
        let form = posed.reason.clone().unwrap_or(covariances.reason);
        let form = match interpolates(posed) {
            true => format!(
                "{form}, with {} interpolation of layers",
                posed.options.interpolation.name()
            ),
            false => form,
        };
        let method = match self.method() {
            Inversion::Cholesky => "Cholesky's factor".to_string(),
            Inversion::Eigen => "eigenvectors, filtered".to_string(),
            _ => format!("{solver} to {:e}{aid}", posed.options.tolerance),
        };
        let method = match self.method.forms_reconstructor {
            true => format!("product with a reconstructor, formed once by {method}"),
            false => method,
        };
        Description {
            what: format!(
                "the wavefronts of {} from {}",
                count(targets, "target"),
                count(self.slopes(), "slope")
            ),
            arrays: vec![("wavefront".into(), vec![frames, targets, points, points])],
            form: covariances.form,
            reason: format!("{form}; {} as {}", self.method().name(), self.method.reason),
            method,
            slope_model: covariances.slope_model,
            engine: engine.name(),
            memory: self.memory_on(engine),
            stages: self.stages(engine),
            rates: engine.speed().to_string(),
        }
    }

    // Stages of an estimate
    fn stages(&self, engine: &Engine) -> Vec<Stage> {
        let posed = &self.posed;
        let remains = |stage: &Stage| stage.name != WAVEFRONTS;
        let mut stages = posed.covariances.stages(engine);
        stages.retain(remains);
        let cost = cost(posed);
        stages.push(Stage::new(OPERATORS, &[(CostKind::Transforms, 20.0 * cost.product)], engine));
        if self.method.forms_reconstructor {
            let [factor, matrix, frames] = of_reconstructor(posed, &cost, self.method());
            stages.push(Stage::new(FACTOR, &factor, engine));
            stages.push(Stage::new(RECONSTRUCTOR, &matrix, engine));
            stages.push(Stage::new(FRAMES, &frames, engine));
            return stages;
        }
        let [factor, frames] = cost.of(self.method());
        if self.method() != Inversion::Iterative {
            stages.push(Stage::new(FACTOR, &factor, engine));
        }
        stages.push(Stage::new(FRAMES, &frames, engine));
        stages
    }

    // Refuse an estimate beyond the memory
    fn check_memory(&self, engine: &Engine) -> Result<(), Error> {
        self.memory_on(engine).check(engine, &self.subject())
    }
}

// Run the plan of an estimate
impl Plan for EstimatePlan {
    /// The operators of an estimate: covariances, and a factor or a preconditioner.
    type Output = Estimator;

    // Engine and memory of an estimate
    /// Rejects single precision on the CPU where frames are solved by a factor, or to a tolerance below 1e-5: both need double precision.
    fn check_engine(&self, engine: &Engine) -> Result<(), Error> {
        if self.method() != Inversion::Iterative {
            return Ok(engine.require_double_on_cpu("estimates by factors")?);
        }
        if self.posed.options.tolerance >= SINGLE {
            return Ok(());
        }
        let what = format!("estimates to a tolerance below {SINGLE:e}");
        Ok(engine.require_double_on_cpu(&what)?)
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
        let (targets, slopes) = (count(self.posed.targets, "target"), self.slopes());
        format!("the estimate of {targets} from {slopes} slopes")
    }

    fn run(&self, engine: &Engine, watch: &dyn Watch) -> Result<Estimator, Error> {
        self.check(engine)?;
        let (model, options) = (self.posed.compute(engine, watch)?, self.posed.options);
        // Run an estimate by a factor
        #[cfg(feature = "factorise")]
        if self.method() != Inversion::Iterative {
            watch.stage(OPERATORS, "");
            check(watch)?;
            watch.stage(FACTOR, "");
            let (system, method) = (self.posed.covariances.system(), self.method());
            let model = (model, system);
            return Ok(Estimator(if self.method.forms_reconstructor {
                Box::new(FormedReconstructor::new(model, options, method, engine, watch)?)
            } else {
                Box::new(Factorised::new(model, options, method, engine, watch)?)
            }));
        }
        watch.stage(OPERATORS, PIECES);
        check(watch)?;
        let single = engine.precision() == Precision::F32;
        Ok(Estimator(match engine.devices() {
            [] if single => Box::new(EstimatorCpu::<f32>::of(model, options)?),
            [] => Box::new(EstimatorCpu::<f64>::of(model, options)?),
            _ => estimators(engine, &model, options)?,
        }))
    }
}

// Exact estimates where they fit
/// Bytes of the largest matrix, and the largest time in seconds, for which an open form becomes dense.
const EXACT_BYTES: u64 = 2 << 30;
const EXACT_SECONDS: f64 = 60.0;

/// Whether layers are brought to the pupil by interpolation.
fn interpolates(posed: &PosedEstimate) -> bool {
    posed.covariances.wavefront().is_some_and(|plan| plan.problem().is_layered())
}

/// The stated problem, in dense form where layers would be interpolated, the form is open, and dense matrices fit.
fn exact_where_it_fits(posed: PosedEstimate) -> Result<PosedEstimate, Error> {
    let (options, system) = (posed.options, posed.covariances.system());
    let is_open = options.form == Form::Auto && options.exact && interpolates(&posed);
    if !is_open || dense_bytes(system).into_iter().any(|bytes| bytes > EXACT_BYTES) {
        return Ok(posed);
    }
    let (mut dense, engine) =
        (PosedEstimate::new(system, options.form(Form::Dense))?, Engine::default());
    dense.reason = Some("exact, without interpolation of layers, and the matrices fit".into());
    let of = |posed: &PosedEstimate| EstimatePlan::of(posed.clone(), &engine);
    let (dense, interpolated) = (of(&dense)?, of(&posed)?);
    let [exact, other] = [&dense, &interpolated].map(|plan| plan.description(&engine).seconds());
    let fits = dense.check_memory(&engine).is_ok() && exact <= EXACT_SECONDS.max(2.0 * other);
    Ok(if fits { dense.posed } else { posed })
}

// Estimator on an engine
/// The smallest residual that cores try to reach in single precision.
const SINGLE: f64 = 1e-5;

/// Names of the last stages of an estimate.
const OPERATORS: &str = "operators";
const FACTOR: &str = "factorisation";
#[cfg(not(feature = "factorise"))]
const RECONSTRUCTOR: &str = "reconstructor";
const FRAMES: &str = "frames";

/// Turns slopes of a system into wavefronts, wherever an engine computes.
pub struct Estimator(Box<dyn Frames>);

// Estimate frames on an engine
impl Estimator {
    /// Estimates the wavefronts of the frames in the rows of `slopes`, (frames, n), rad, in the order of
    /// [`SlopeOrder`](crate::model::lenslet_array::SlopeOrder). `warm` starts each frame from the solution of the one before.
    ///
    /// # Errors
    /// `Invalid` where a row has the wrong length, a slope is not finite, or a wavefront leaves the range of the numbers;
    /// `Memory` where the wavefronts do not fit; `Cancelled` where the watcher wants to stop; what a device says.
    pub fn estimate(
        &self,
        slopes: ArrayView2<f64>,
        warm: bool,
        watch: &dyn Watch,
    ) -> Result<Estimates, Error> {
        watch.stage(FRAMES, FRAMES);
        self.0.frames(slopes, warm, watch)
    }

    // Numbers that an estimator tells
    /// Slopes of a frame, n.
    pub fn slopes(&self) -> usize {
        self.0.facts().0
    }

    /// Largest error of an entry of Ξ by interpolation, in units of the largest entry, measured on a sample; 0 if there is none.
    pub fn interpolation_error(&self) -> f64 {
        self.0.facts().1
    }

    /// Bytes of Θ + C_n and of Ξ, on each device.
    pub fn bytes(&self) -> [u64; 2] {
        self.0.facts().2
    }
}

// Tests of planned estimates
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::estimation::estimate::tests::{slopes, system};
    use crate::linear::operator::battery;
    use crate::linear::solver::Stop;
    use crate::model::removed_modes::{Focus, TipTilt};
    use crate::watch::unwatched;

    fn planned(
        system: &System,
        options: EstimateOptions,
        engine: &Engine,
    ) -> Result<Estimator, Error> {
        EstimatePlan::new(system, options)?.run(engine, &unwatched)
    }

    // Prefer exact estimates
    #[test]
    fn estimates_are_exact_where_dense_matrices_fit() {
        let engine = Engine::default();
        let plan = |system: &System, options| EstimatePlan::new(system, options).unwrap();
        let (lasers, usual) = (system(["80e3", "80e3"], 0.0), EstimateOptions::default());
        assert_eq!(plan(&lasers, usual).form(), "dense");
        assert!(
            plan(&lasers, usual)
                .describe(&engine)
                .unwrap()
                .reason
                .contains("without interpolation")
        );
        assert_eq!(plan(&system(["inf", "inf"], 0.0), usual).form(), "toeplitz");
        for options in [usual.exact(false), usual.form(Form::Toeplitz)] {
            assert_eq!(plan(&lasers, options).form(), "toeplitz");
            assert!(
                plan(&lasers, options)
                    .describe(&engine)
                    .unwrap()
                    .reason
                    .contains("cubic interpolation")
            );
        }
        let frames = slopes(3, plan(&lasers, usual).slopes());
        let estimate = |options: EstimateOptions| {
            let options = options.tolerance(1e-9);
            let found = planned(&lasers, options, &engine).unwrap();
            found.estimate(frames.view(), false, &unwatched).unwrap()
        };
        let exact = estimate(usual);
        assert!(exact.interpolation.is_empty());
        let dense = estimate(usual.form(Form::Dense));
        let worst = battery::distance(
            &exact.wavefront.into_raw_vec_and_offset().0,
            &dense.wavefront.iter().copied().collect::<Vec<f64>>(),
        );
        assert!(worst < 1e-7, "{worst:e}");
        for method in [Inversion::Cholesky, Inversion::Iterative] {
            let layered = estimate(usual.exact(false).method(method));
            for (frame, stated) in layered.interpolation.iter().enumerate() {
                let of = |estimates: &crate::estimation::estimate::Estimates| {
                    estimates.wavefront.index_axis(ndarray::Axis(0), frame).to_owned()
                };
                let gaps = of(&layered) - of(&dense);
                let (mut sum, mut count) = (0.0, 0.0);
                for ((_, j, i), gap) in gaps.indexed_iter() {
                    if (j as f64 - 5.5).hypot(i as f64 - 5.5) <= 5.5 {
                        (sum, count) = (sum + gap * gap, count + 1.0);
                    }
                }
                let measured = f64::sqrt(sum / count);
                assert!(
                    (0.5..2.0).contains(&(stated / measured)),
                    "{method:?}: {stated:e} {measured:e}"
                );
            }
            assert_eq!(layered.interpolation.len(), 3);
        }
    }

    // Share frames and refuse bad ones
    #[test]
    fn frames_are_shared_and_errors_name_them() {
        let system = system(["inf", "inf"], 0.0);
        for gpu in test_backends() {
            let engine = Engine::gpus(vec![gpu.clone(), gpu.clone()], Precision::F64).unwrap();
            let iterated = EstimateOptions::default().method(Inversion::Iterative);
            let options = iterated.tolerance(1e-2);
            let two = planned(&system, options, &engine).unwrap();
            let one = Engine::gpus(vec![gpu.clone()], Precision::F64).unwrap();
            let one = planned(&system, options, &one).unwrap();
            let row = slopes(1, two.slopes());
            let frames = ndarray::concatenate![ndarray::Axis(0), row, row.mapv(|s| 1.0001 * s)];
            let shared = two.estimate(frames.view(), false, &unwatched).unwrap();
            assert_eq!(shared, one.estimate(frames.view(), false, &unwatched).unwrap());
            let warm = two.estimate(frames.view(), true, &unwatched).unwrap();
            assert!(warm.iterations[1] < shared.iterations[1], "{:?}", warm.iterations);
            // Hold the device to the words of the processor
            let cpu = planned(&system, iterated, &Engine::default()).unwrap();
            assert_eq!((cpu.slopes(), cpu.interpolation_error()), (two.slopes(), 0.0));
            assert!(two.bytes().iter().chain(&cpu.bytes()).all(|&bytes| bytes > 0));
            let mut hole = frames.clone();
            hole[[1, 3]] = f64::NAN;
            for bad in [slopes(1, 5), hole] {
                let [ours, theirs] = [&cpu, &two]
                    .map(|e| e.estimate(bad.view(), false, &unwatched).unwrap_err().to_string());
                assert_eq!(theirs, ours);
            }
            let stop = Stop { tolerance: 1e-10, iterations: 3 };
            let options = EstimateOptions::default().stop(stop);
            let short = planned(&system, options, &engine).unwrap();
            let estimates = short.estimate(frames.view(), false, &unwatched).unwrap();
            assert!(estimates.iterations == [3, 3] && estimates.converged() == [false; 2]);
            assert!(Engine::gpus(Vec::new(), Precision::F32).is_err());
        }
    }

    // Estimate by a factor on a device
    #[cfg(feature = "factorise")]
    #[test]
    fn factors_on_devices_estimate_as_on_the_processor() {
        let plain = system(["90e3", "inf"], 0.0);
        let mut stars = plain.guide_stars().to_vec();
        (stars[0].tip_tilt, stars[0].focus) = (TipTilt::Removed, Focus::Removed);
        let blind = plain.to_builder().guide_stars(stars).build().unwrap();
        let options = EstimateOptions::default().method(Inversion::Cholesky);
        let here = planned(&blind, options, &Engine::default()).unwrap();
        let slopes = slopes(2, here.slopes());
        let expected = here.estimate(slopes.view(), false, &unwatched).unwrap();
        for gpu in test_backends() {
            for (precision, tolerance, bound) in
                [(Precision::F64, 1e-6, 1e-9), (Precision::F32, 1e-5, 1e-3)]
            {
                let engine = Engine::gpus(vec![gpu.clone()], precision).unwrap();
                let there = planned(&blind, options.tolerance(tolerance), &engine).unwrap();
                let found = there.estimate(slopes.view(), false, &unwatched).unwrap();
                assert_eq!(found.converged(), [true; 2], "{precision:?} {:?}", found.residual);
                let [ours, theirs] =
                    [&expected, &found].map(|e| e.wavefront.iter().copied().collect::<Vec<f64>>());
                let error = battery::distance(&theirs, &ours);
                assert!(error < bound, "{precision:?}: {error:e}");
                assert!(there.bytes()[0] > 0 && there.interpolation_error() == 0.0);
            }
        }
    }

    #[cfg(feature = "factorise")]
    #[test]
    fn the_cheaper_way_is_chosen_and_said() {
        let system = system(["inf", "inf"], 0.0);
        let plan = EstimatePlan::new(&system, EstimateOptions::default()).unwrap();
        assert_eq!(plan.method(), Inversion::Cholesky);
        let info = plan.describe(&Engine::default()).unwrap();
        assert!(info.reason.contains("cholesky as all guide stars have noise"), "{}", info.reason);
        use crate::device::Speed;
        use crate::estimation::inversion::Cost;
        let cost = Cost { slopes: 2400, frames: 1, product: 2e-4, iterations: 100.0 };
        let choose = |cost: Cost| {
            cost.choose(Inversion::Auto, 0.0, system.guide_stars(), &Speed::default()).unwrap()
        };
        assert_eq!(choose(cost).0, Inversion::Iterative);
        assert_eq!(choose(Cost { frames: 20, ..cost }).0, Inversion::Cholesky);
        let (method, reason) = choose(Cost { slopes: 20_000, frames: 9000, ..cost });
        assert!(
            method == Inversion::Iterative && reason == "the matrix would take 2 GiB",
            "{reason}"
        );
        let minres = EstimateOptions::default().solver(crate::linear::Solver::Minres);
        assert_eq!(EstimatePlan::new(&system, minres).unwrap().method(), Inversion::Iterative);
        let refused = EstimateOptions::default().method(Inversion::Iterative).filter(0.1);
        let words = EstimatePlan::new(&system, refused).err().unwrap().to_string();
        assert!(
            words.starts_with("filter = 0.1: expected 0 with method = \"iterative\""),
            "{words}"
        );
        // Iterate where a library is missing
        let mut stars = system.guide_stars().to_vec();
        stars[0].noise = crate::model::Noise::uniform(0.0).unwrap();
        let quiet = system.to_builder().guide_stars(stars.clone()).build().unwrap();
        stars[1].tip_tilt = TipTilt::Removed;
        let blind = system.to_builder().guide_stars(stars).build().unwrap();
        for gpu in crate::device::gpu::emulated(1) {
            let engine = Engine::gpus(vec![gpu], Precision::F64).unwrap();
            let fitted = |system: &System, options: EstimateOptions| {
                EstimatePlan::new(system, options).unwrap().fitted(&engine).unwrap()
            };
            let options = EstimateOptions::default().frames(1000);
            assert_eq!(fitted(&system, options).method(), Inversion::Cholesky);
            let plan = fitted(&quiet, options);
            let said = plan.describe(&engine).unwrap().reason;
            assert_eq!(plan.method(), Inversion::Iterative, "{said}");
            assert!(
                said.contains("eigen cannot be: ") && said.contains("only a library"),
                "{said}"
            );
            // What is asked for stays, and so does what iterations on a device cannot do.
            let asked = options.method(Inversion::Eigen);
            assert_eq!(fitted(&quiet, asked).method(), Inversion::Eigen);
            assert_eq!(fitted(&blind, options).method(), Inversion::Eigen);
        }
    }

    // Estimate in single precision
    #[test]
    fn single_precision_estimates_to_its_tolerance() {
        let system = system(["90e3", "90e3"], 0.0);
        let stop = Stop { tolerance: 1e-3, iterations: 500 };
        let options = EstimateOptions::default().stop(stop);
        let here = planned(&system, options, &Engine::default()).unwrap();
        let slopes = slopes(1, here.slopes());
        let expected = here.estimate(slopes.view(), false, &unwatched).unwrap();
        let devices =
            test_backends().into_iter().map(|gpu| Engine::gpus(vec![gpu], Precision::F32));
        for engine in devices.chain([Ok(Engine::cpu(Precision::F32))]) {
            let engine = engine.unwrap();
            let there = planned(&system, options, &engine).unwrap();
            let estimates = there.estimate(slopes.view(), false, &unwatched).unwrap();
            assert!(estimates.residual[0] <= 1e-3);
            let [ours, theirs] =
                [&expected, &estimates].map(|e| e.wavefront.iter().copied().collect::<Vec<f64>>());
            let error = battery::distance(&theirs, &ours);
            assert!((1e-9..5e-3).contains(&error), "{}: {error:e}", engine.name());
            let shares = [0, 1].map(|k| here.bytes()[k] as f64 / there.bytes()[k] as f64);
            let halves = shares.iter().all(|share| (1.6..=2.0).contains(share));
            assert!(engine.devices().len() == 1 || halves, "{shares:?}");
        }
    }
}
