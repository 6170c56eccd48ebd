// Tangled from book/src/estimate-gpu.md: edit there, or here and run cargo tangle stitch.
//! The estimate of wavefronts from slopes on graphics processors.

// Imports of the estimate on a device
use crate::device::gpu::{Buffer, Gpu};
use crate::device::{Workers, gather, lock};
use crate::error::{Error, Invalid};
use crate::estimation::blocks::MeasuredCovariance;
use crate::estimation::blocks::gpu::{
    SlopesInBlocksGpu, eliminated_on, is_diagonal, modes_of, with_noise, without,
};
use crate::estimation::circulant::Group;
use crate::estimation::circulant::gpu::CirculantGpu;
use crate::estimation::estimate::{
    EstimateOptions, Estimates, FrameEstimate, Grouped, Matrices, Model, PosedEstimate,
    check_frames, check_slopes, unit_of,
};
use crate::linear::blocks::gpu::{Given, SideBySideGpu};
use crate::linear::interpolation::gpu::LayersGpu;
use crate::linear::interpolation::{Interpolation, ToPupil};
use crate::linear::matrix::gpu::MatrixGpu;
use crate::linear::operator::gpu::modes::ModesGpu;
use crate::linear::operator::gpu::{DeviceOperator, ProductGpu};
use crate::linear::solver::Solver;
use crate::linear::solver::gpu::{SolverGpu, Start};
use crate::linear::toeplitz::gpu::{BlockToeplitzGpu, Tuning};
use crate::linear::toeplitz::{Block, Parts};
use crate::model::removed_modes::RemovedModes;
use crate::numerics::real::Real;
use crate::turbulence::blocks::CrossBlocks;
use crate::turbulence::plan::{
    GroupWavefrontSlopes, SlopeCovariancePlan, WavefrontCovariancePlan, dense_bytes,
};
use crate::turbulence::wavefront::{WavefrontLayer, WavefrontProblem, WavefrontSlope};
use crate::watch::{Watch, check};
use ndarray::{Array2, ArrayView2, s};
use std::sync::{Arc, Mutex};

// All layers in one product
/// Ξ of all layers, layer by layer and target by target, Eq. [stacked layers](https://lenslet.github.io/lenslet/estimate-gpu.html#eq-stacked-layers).
pub(crate) fn stacked<T: Real>(
    gpu: &Gpu,
    problem: &WavefrontProblem,
    covariance: &WavefrontSlope,
    valid: &[Array2<bool>],
    (tuning, at): (Tuning, Option<(&[usize], usize)>),
) -> Result<BlockToeplitzGpu<T>, Error> {
    let (targets, inputs) = (problem.targets(), 2 * problem.stars());
    let layers: Vec<_> = problem.lattices().map(|layers| layers[0]).collect();
    let largest = layers.iter().map(|layer| layer.points).max().unwrap_or(0);
    let (mut kernels, mut outputs) = (Vec::new(), Vec::new());
    for (layer, lattice) in layers.iter().zip(covariance.lattices()) {
        // Extend the kernels of a layer
        let (size, extra) = (layer.points, largest - layer.points);
        let lags = problem.lags(layer);
        for t in 0..targets {
            let mask = |(j, i)| j < size && i < size;
            outputs.push(Array2::from_shape_fn((largest, largest), mask));
            for input in 0..inputs {
                let mut kernel = Array2::zeros((lags + extra, lags + extra));
                let known = lattice.slice(s![t, input / 2, input % 2, .., ..]);
                kernel.slice_mut(s![extra.., extra..]).assign(&known);
                kernels.push(kernel);
            }
        }
    }
    let kernels: Vec<_> = kernels.iter().map(|kernel| kernel.view()).collect();
    let kernel = |(output, input)| Block { kernel: output * inputs + input, turned: false };
    let blocks = Array2::from_shape_fn((outputs.len(), inputs), kernel);
    let masks: Vec<_> = valid.iter().flat_map(|mask| [mask.clone(), mask.clone()]).collect();
    let parts = Parts::new(kernels, blocks, problem.grid().oversampling, outputs, masks)?;
    BlockToeplitzGpu::placed(gpu, &parts, false, (tuning, at))
}

// Estimator on a device
/// An estimator on a device.
pub(crate) struct EstimatorGpu<T> {
    /// Θ + C_n.
    measured: Arc<dyn DeviceOperator<T>>,
    /// Ξ.
    wavefront: Arc<dyn DeviceOperator<T>>,
    removed: RemovedModes,
    run: Mutex<FrameState<T>>,
    options: EstimateOptions,
    targets: usize,
    points: usize,
    interpolation_error: f64,
}

/// What changes from frame to frame.
struct FrameState<T> {
    solver: SolverGpu<T>,
    slopes: Buffer<T>,
    wavefronts: Buffer<T>,
}

// Steps of an estimator on a device
impl<T: Real> EstimatorGpu<T> {
    // Build the operators on a device
    /// Builds the operators of a model on a device.
    pub(crate) fn of(gpu: &Gpu, model: &Model, options: EstimateOptions) -> Result<Self, Error> {
        let Model { targets, points, interpolation_error, .. } = *model;
        let groups: Vec<Group> = model.groups.iter().map(Grouped::group).collect();
        let circulant = || CirculantGpu::new(gpu, &groups).map(Arc::new);
        let Operators { measured, toeplitz, wavefront } = operators(gpu, model, options)?;
        let (removed, n) = (model.removed.clone(), measured.rows());
        // Operators without modes on a device
        let (measured, toeplitz) =
            (without(measured, n, &removed)?, toeplitz.filter(|_| removed.is_empty()));
        let wavefront: Arc<dyn DeviceOperator<T>> = match removed.is_empty() {
            true => wavefront,
            false => {
                let modes = ModesGpu::new(gpu, [n, 1], &modes_of(&removed))?;
                Arc::new(ProductGpu::new(wavefront, Arc::new(modes))?)
            }
        };
        // Solver for the operators on a device
        let a = Arc::clone(&measured);
        let solver = match (options.solver, toeplitz, &model.covariances) {
            (solver, _, _) if !options.preconditioned => SolverGpu::new(solver, a, None)?,
            (solver, _, Matrices::Blocks(rectangles, _)) => {
                let (valid, noise) = (&model.valid[..], &model.noise);
                let known = MeasuredCovariance {
                    groups: &groups,
                    rectangles: Some(rectangles),
                    valid,
                    noise,
                    removed: &removed,
                };
                let p = eliminated_on(gpu, &known, rectangles, Tuning::default())?;
                SolverGpu::new(solver, a, Some(p))?
            }
            (Solver::ConjugateGradients, Some(a), _) => {
                SolverGpu::between_transforms(a, circulant()?)?
            }
            (solver, _, _) => SolverGpu::new(solver, a, Some(circulant()?))?,
        };
        let (slopes, wavefronts) = (gpu.zeros(measured.rows())?, gpu.zeros(wavefront.rows())?);
        let run = Mutex::new(FrameState { solver, slopes, wavefronts });
        Ok(Self {
            measured,
            wavefront,
            removed,
            run,
            options,
            targets,
            points,
            interpolation_error,
        })
    }

    // Getters of the estimator on a device
    /// Slopes of a frame, n.
    pub(crate) fn slopes(&self) -> usize {
        self.measured.rows()
    }

    /// Θ + C_n, (n, n), rad².
    pub(crate) fn measured(&self) -> &dyn DeviceOperator<T> {
        self.measured.as_ref()
    }

    /// Ξ, (T M², n), m rad.
    pub(crate) fn wavefront(&self) -> &dyn DeviceOperator<T> {
        self.wavefront.as_ref()
    }

    /// Largest error of an entry of Ξ by interpolation, in units of the largest entry; 0 if there is none.
    pub(crate) fn interpolation_error(&self) -> f64 {
        self.interpolation_error
    }

    // Estimate one frame on a device
    /// The wavefronts of one frame, in units of `unit` rad of slope, and how they were found.
    fn frame(
        &self,
        slopes: &[f64],
        unit: f64,
        from: Start,
        watch: &dyn Watch,
    ) -> Result<FrameEstimate<T>, Error> {
        let mut run = lock(&self.run);
        let FrameState { solver, slopes: there, wavefronts } = &mut *run;
        let slopes: Vec<T> = slopes.iter().map(|&slope| T::of(slope * unit.recip())).collect();
        there.write(&slopes)?;
        let stop = self.options.stop_at(slopes.len());
        let attempt = solver.attempt(there, from, &stop, &mut |_, _| check(watch))?;
        self.wavefront.apply(solver.solution(), wavefronts)?;
        let free = (slopes.len() - self.removed.len()).max(1);
        let chi_squared = solver.along(there)? / free as f64;
        let (wavefront, interpolation) = (wavefronts.read()?, None);
        Ok(FrameEstimate { wavefront, attempt, chi_squared, unit, interpolation })
    }
}

// Operators of an estimate on a device
/// The operators of an estimate on a device.
pub(crate) struct Operators<T> {
    /// Θ + C_n, and the same once more where it has the Toeplitz form.
    pub(crate) measured: Arc<dyn DeviceOperator<T>>,
    toeplitz: Option<Arc<BlockToeplitzGpu<T>>>,
    /// Ξ.
    pub(crate) wavefront: Arc<dyn DeviceOperator<T>>,
}

// Make operators of either form
pub(crate) fn operators<T: Real>(
    gpu: &Gpu,
    model: &Model,
    options: EstimateOptions,
) -> Result<Operators<T>, Error> {
    let (problem, covariance) = match &model.covariances {
        Matrices::Dense([slopes, wavefront]) => {
            let mut measured = slopes.clone();
            model.noise.add_to(&mut measured);
            let [measured, wavefront] =
                [&measured, wavefront].map(|matrix| MatrixGpu::new(gpu, matrix.view()));
            let (measured, wavefront) = (Arc::new(measured?), Arc::new(wavefront?));
            return Ok(Operators { measured, toeplitz: None, wavefront });
        }
        Matrices::Blocks(rectangles, sets) => {
            return operators_in_blocks(gpu, model, (rectangles, sets), options.interpolation);
        }
        Matrices::Toeplitz(problem, covariance) => (problem, covariance),
    };
    // Make the Toeplitz operators on a device
    let slopes = BlockToeplitzGpu::slopes(gpu, &model.groups[0].covariance, &model.valid)?;
    let on_diagonal = Arc::new(slopes.with_diagonal(&model.noise.variances)?);
    let toeplitz = is_diagonal(&model.noise).then(|| Arc::clone(&on_diagonal));
    let measured = with_noise(on_diagonal, &model.noise)?;
    let given = (problem, covariance, options.interpolation);
    Ok(Operators { measured, toeplitz, wavefront: through_layers(gpu, given, &model.valid)? })
}

// Go through layers to the pupil
/// Ξ of stars that share a lattice with the wavefront.
fn through_layers<T: Real>(
    gpu: &Gpu,
    (problem, covariance, interpolation): (&WavefrontProblem, &WavefrontSlope, Interpolation),
    valid: &[Array2<bool>],
) -> Result<Arc<dyn DeviceOperator<T>>, Error> {
    let stacked = stacked(gpu, problem, covariance, valid, (Tuning::default(), None))?;
    let stacked = Arc::new(stacked);
    if !problem.is_layered() {
        return Ok(stacked);
    }
    let (targets, points) = (problem.targets(), problem.grid().points);
    let to_pupil = |layer: &WavefrontLayer| {
        ToPupil::new(targets, points, (layer.points, layer.gamma), interpolation)
    };
    let layers = problem.layers().iter().map(to_pupil).collect::<Result<Vec<_>, _>>()?;
    let layers = Arc::new(LayersGpu::new(gpu, &layers)?);
    Ok(Arc::new(ProductGpu::new(layers, stacked)?))
}

// Make operators in blocks
/// The operators in blocks.
fn operators_in_blocks<T: Real>(
    gpu: &Gpu,
    model: &Model,
    (rectangles, wavefronts): (&CrossBlocks, &[GroupWavefrontSlopes]),
    interpolation: Interpolation,
) -> Result<Operators<T>, Error> {
    let groups: Vec<Group> = model.groups.iter().map(Grouped::group).collect();
    let variances = &model.noise.variances;
    let tuning = Tuning::default();
    let slopes = SlopesInBlocksGpu::new(gpu, &groups, rectangles, variances, tuning)?;
    let measured = with_noise(Arc::new(slopes), &model.noise)?;
    let rows = model.targets * model.points.pow(2);
    let (sets, mut given) = (&rectangles.sets, Vec::new());
    // Wavefront operator of each group
    for (k, wavefront) in wavefronts.iter().enumerate() {
        let operator = match wavefront {
            GroupWavefrontSlopes::Toeplitz(problem, covariance) => {
                let of_set = (problem, covariance, interpolation);
                Given::Operator(through_layers(gpu, of_set, &sets.pick(k, &model.valid))?)
            }
            GroupWavefrontSlopes::Dense(values) => {
                let matrix = values.view().into_shape_with_order((rows, sets.slopes(k)));
                let matrix = matrix.unwrap_or_else(|_| unreachable!("same length"));
                Given::Transposed(matrix.reversed_axes())
            }
        };
        given.push((operator, sets.places(k)));
    }
    let wavefront = Arc::new(SideBySideGpu::new(gpu, (rows, variances.len()), given)?);
    Ok(Operators { measured, toeplitz: None, wavefront })
}

// Bytes needed by estimates on a device
/// Bytes of the operators of an estimate on a device, or a little more.
pub(crate) fn bytes_needed<T: Real>(posed: &PosedEstimate) -> u64 {
    let size = size_of::<T>() as u64;
    let numbers = match (posed.covariances.wavefront(), posed.covariances.blocks()) {
        (Some(plan), _) => numbers_of(plan),
        (_, Some(blocks)) => {
            let lattices = blocks.slopes.iter().zip(&blocks.wavefront);
            let of_set = |(slopes, wavefront): (&SlopeCovariancePlan, &Option<_>)| {
                let (stars, lenslets) = (slopes.problem().sources(), slopes.problem().lenslets());
                wavefront.as_ref().map_or(numbers_of_slopes(stars, lenslets), numbers_of)
            };
            let [between, wavefronts] = blocks.entries();
            lattices.map(of_set).sum::<u64>() + 2 * between + wavefronts
        }
        _ => dense_bytes(posed.covariances.system()).iter().sum::<u64>() / 8,
    };
    size.saturating_mul(numbers).saturating_add(32 << 20)
}

// Numbers of compressed operators
/// Numbers of the spectra of points and lenslets across that meet.
fn spectrum(points: usize) -> u64 {
    points.next_multiple_of(32).pow(2) as u64
}

/// Numbers of the slopes' covariance and its preconditioner.
fn numbers_of_slopes(stars: usize, lenslets: usize) -> u64 {
    8 * (stars * stars) as u64 * spectrum(2 * lenslets)
}

/// Numbers of these and of the wavefronts with the slopes.
fn numbers_of(plan: &WavefrontCovariancePlan) -> u64 {
    let (problem, grid) = (plan.problem(), plan.problem().grid());
    let largest = problem.layers().iter().map(|layer| layer.points).max().unwrap_or(0);
    let outputs = problem.lattices().len() * problem.targets() * grid.oversampling.pow(2);
    let across = problem.lenslets() + largest.div_ceil(grid.oversampling);
    let of_wavefronts = 2 * (problem.stars() * outputs) as u64 * spectrum(across);
    numbers_of_slopes(problem.stars(), problem.lenslets()) + of_wavefronts
}

// Estimates on several devices
/// Estimates the wavefronts of the frames in the rows of `slopes`, (frames, n), rad, as `EstimatorCpu::estimate` does, on all
/// devices for which there is an estimator of the same system.
///
/// # Errors
/// As on the processor; and what a device says.
pub(crate) fn estimate_on<T: Real>(
    estimators: &[EstimatorGpu<T>],
    slopes: ArrayView2<f64>,
    warm: bool,
    watch: &dyn Watch,
) -> Result<Estimates, Error> {
    let first = estimators.first();
    let first = first.ok_or_else(|| Invalid::new("estimators", 0, "one for each device"))?;
    check_slopes(slopes, first.slopes())?;
    let (frames, targets, points) = (slopes.nrows(), first.targets, first.points);
    check_frames(frames, [targets, points, points])?;
    let workers = if warm { &estimators[..1] } else { estimators };
    // Let each device take the next frame
    let shared = warm.then(|| unit_of(slopes));
    let results = gather(Workers::devices(workers), 0..frames, watch, |estimator, frame| {
        let from = if warm && frame > 0 { Start::Warm } else { Start::Cold };
        let mut left = slopes.row(frame).to_vec();
        estimator.removed.remove(&mut left);
        let unit = shared.unwrap_or_else(|| unit_of(&left));
        estimator.frame(&left, unit, from, watch)
    })?;
    // Put the frames in their order
    let mut estimates = Estimates::of(frames, [targets, points]);
    results.into_iter().try_for_each(|estimate| estimates.push(estimate))?;
    Ok(estimates)
}

// Tests of the estimate on a device
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{engine::Engine, gpu::test_backends};
    use crate::estimation::estimate::tests::{blinded, built, mixed, slopes, streaked, system};
    use crate::linear::operator::gpu::OnHost;
    use crate::linear::operator::{Operator, battery};
    use crate::linear::solver::Stop;
    use crate::linear::toeplitz::Parts;
    use crate::linear::toeplitz::gpu::Tuning;
    use crate::model::system::System;
    use crate::turbulence::plan::Form;
    use crate::watch::unwatched;

    fn model(system: &System, options: EstimateOptions) -> Model {
        PosedEstimate::new(system, options)
            .unwrap()
            .compute(&Engine::default(), &unwatched)
            .unwrap()
    }

    // Bring layers to the pupil on both machines
    #[test]
    fn layers_reach_the_pupil_as_on_the_processor() {
        for (points, sizes, kind) in [
            (9, &[(13, 0.8), (9, 1.0), (11, 0.85)][..], Interpolation::Cubic),
            (4, &[(5, 0.9)], Interpolation::Quintic),
            (6, &[(6, 1.0), (9, 0.7)], Interpolation::Linear),
        ] {
            let one = |&grid: &(usize, f64)| ToPupil::<f64>::new(2, points, grid, kind).unwrap();
            let layers: Vec<_> = sizes.iter().map(one).collect();
            for gpu in test_backends() {
                let there = OnHost(Arc::new(LayersGpu::<f64>::new(&gpu, &layers).unwrap()));
                battery::check(&there, 1e-13);
                let x = battery::random::<f64>(there.columns(), 1);
                let mut expected = vec![0.0; there.rows()];
                // Add up the layers one by one
                let mut rest = x.as_slice();
                for one in &layers {
                    let (layer, others) = rest.split_at(one.columns());
                    rest = others;
                    let pupil = battery::product(one, false, layer, 1);
                    expected.iter_mut().zip(pupil).for_each(|(sum, value)| *sum += value);
                }
                let pupil = battery::product(&there, false, &x, 1);
                assert!(battery::distance(&pupil, &expected) < 1e-14, "{points}");
                assert!(LayersGpu::<f64>::new(&gpu, &[]).is_err());
            }
        }
    }

    // Estimate on both machines
    #[test]
    fn estimates_are_those_of_the_processor() {
        for (heights, disc, solver, preconditioned) in [
            (["inf", "inf"], 0.0, Solver::ConjugateGradients, true),
            (["90e3", "inf"], 0.0, Solver::ConjugateGradients, true),
            (["inf", "inf"], 6.0, Solver::Minres, true),
            (["90e3", "90e3"], 0.0, Solver::Minres, false),
        ] {
            let tolerance = if preconditioned { 1e-9 } else { 1e-6 };
            let options = EstimateOptions { solver, preconditioned, ..EstimateOptions::default() };
            let options = options.tolerance(tolerance);
            let frames = if disc > 0.0 { 2 } else { 1 };
            hold_to_the_processor(&system(heights, disc), options, frames);
        }
    }

    #[test]
    fn estimates_with_correlated_noise_are_those_of_the_processor() {
        let options = EstimateOptions::default().tolerance(1e-7);
        hold_to_the_processor(&streaked(&system(["90e3", "inf"], 0.0)), options, 1);
        hold_to_the_processor(&blinded(&streaked(&system(["90e3", "90e3"], 0.0))), options, 1);
    }

    #[test]
    fn estimates_in_blocks_are_those_of_the_processor() {
        for (solver, preconditioned, tolerance) in
            [(Solver::ConjugateGradients, true, 1e-9), (Solver::Minres, false, 1e-6)]
        {
            let options = EstimateOptions::default().form(Form::Blocks).tolerance(tolerance);
            let options = EstimateOptions { solver, preconditioned, ..options };
            hold_to_the_processor(&mixed("inf"), options, 1);
        }
        let options = EstimateOptions::default().form(Form::Blocks).tolerance(1e-7);
        hold_to_the_processor(&blinded(&streaked(&mixed("90e3"))), options, 1);
    }

    // Hold an estimate to the processor
    fn hold_to_the_processor(system: &System, options: EstimateOptions, frames: usize) {
        let here = built(system, options).unwrap();
        let slopes = slopes(frames, here.slopes());
        let expected = here.estimate(slopes.view(), false, &unwatched).unwrap();
        for gpu in test_backends() {
            // Compare with the estimate on one device
            let there = EstimatorGpu::<f64>::of(&gpu, &model(system, options), options).unwrap();
            let x = battery::random::<f64>(here.slopes(), 3);
            let on_host = OnHost(Arc::clone(&there.wavefront));
            let [ours, theirs] = [here.wavefront(), &on_host]
                .map(|operator| battery::product(operator, false, &x, 1));
            assert!(battery::distance(&theirs, &ours) < 1e-12, "{options:?}");
            let facts = (there.slopes(), there.interpolation_error());
            assert_eq!(facts, (here.slopes(), here.interpolation_error()));
            let there = [there];
            let estimates = estimate_on(&there, slopes.view(), false, &unwatched).unwrap();
            let mut counts = estimates.iterations.iter().zip(&expected.iterations);
            assert!(
                counts.all(|(a, b)| a.abs_diff(*b) <= 1 + b / 20),
                "{:?}",
                estimates.iterations
            );
            assert!(estimates.residual.iter().all(|residual| *residual <= options.tolerance));
            let [ours, theirs] =
                [&expected, &estimates].map(|e| e.wavefront.iter().copied().collect::<Vec<f64>>());
            let error = battery::distance(&theirs, &ours);
            assert!(error < 10.0 * options.tolerance, "{options:?}: {error:e}");
            let fits = estimates.chi_squared.iter().zip(&expected.chi_squared);
            fits.for_each(|(a, b)| assert!((a / b - 1.0).abs() < 1e-5, "{options:?}: {a} {b}"));
        }
    }

    // Estimate with kernels between transforms
    #[test]
    fn kernels_between_the_transforms_solve_the_same() {
        for gpu in test_backends() {
            between_the_transforms::<f64>(&gpu, [1e-9, 1e-12], 1e-7);
            between_the_transforms::<f32>(&gpu, [1e-3, 1e-9], 1e-2);
        }
    }

    fn between_the_transforms<T: Real>(gpu: &Gpu, tolerances: [f64; 2], close: f64) {
        let tuning = Tuning { direct: Some(false), ..Tuning::default() };
        let system = system(["inf", "inf"], 0.0);
        let model = model(&system, EstimateOptions::default());
        let groups: Vec<Group> = model.groups.iter().map(Grouped::group).collect();
        let parts = Parts::slopes(groups[0].covariance, &model.valid).unwrap();
        let a = BlockToeplitzGpu::<T>::of(gpu, &parts, true, tuning).unwrap();
        let a = Arc::new(a.with_diagonal(&model.noise.variances).unwrap());
        let p = Arc::new(CirculantGpu::<T>::tuned(gpu, &groups, tuning).unwrap());
        let mut fused = SolverGpu::joined(&a, &p).unwrap().expect("operators that go together");
        let mut plain = SolverGpu::new(Solver::ConjugateGradients, a, Some(p)).unwrap();
        let b: Vec<T> = slopes(1, model.noise.variances.len()).iter().map(|&s| T::of(s)).collect();
        let b = gpu.upload(&b).unwrap();
        // Solve with and without kernels between
        for (tolerance, iterations) in
            [(0.1, 50), (tolerances[0], 500), (tolerances[1], 500), (1e-6, 3)]
        {
            for from in [Start::Cold, Start::Warm] {
                let stop = Stop { tolerance, iterations };
                let [ours, theirs] = [&mut fused, &mut plain].map(|solver| {
                    let solved = solver.solve(&b, from, &stop, &mut |_, _| Ok(()));
                    (solved, solver.solution().read().unwrap())
                });
                assert!(battery::distance(&ours.1, &theirs.1) < close, "{tolerance} {from:?}");
                match (ours.0, theirs.0) {
                    (Ok(ours), Ok(theirs)) => {
                        let counts = (ours.iterations, theirs.iterations);
                        assert!(counts.0.abs_diff(counts.1) <= 1 + counts.1 / 5, "{counts:?}");
                        assert!(ours.residual <= tolerance && ours.history.len() == counts.0 + 1);
                        let first = ours.history[1..].iter().zip(&theirs.history[1..]).take(2);
                        assert!(first.into_iter().all(|(a, b)| (a - b).abs() < close * b));
                    }
                    (Err(ours), Err(theirs)) => {
                        assert_eq!(ours.to_string(), theirs.to_string());
                    }
                    (ours, theirs) => panic!("{tolerance} {from:?}: {ours:?} {theirs:?}"),
                }
            }
        }

        // Solve for nothing at all
        let zero = gpu.zeros(fused.solution().len()).unwrap();
        let solved = fused.solve(&zero, Start::Warm, &Stop::default(), &mut |_, _| Ok(())).unwrap();
        assert_eq!((solved.iterations, solved.residual), (0, 0.0));
        assert!(fused.solution().read().unwrap().iter().all(|x| x.is_zero()));
    }
}
