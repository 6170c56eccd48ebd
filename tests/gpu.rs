//! The systems of the book on graphics processors: held against the processor, and against each other.

use lenslet::bench::SYSTEMS;
use lenslet::device::{Device, Engine, Gpu};
use lenslet::estimation::{EstimateOptions, EstimatePlan, Simulation};
use lenslet::linear::Stop;
use lenslet::model::{Atmosphere, ConeGradient, Layer, LensletArray, PhaseGrid, Source, System};
use lenslet::numerics::Precision;
use lenslet::plan::Plan;
use lenslet::turbulence::spectral::SpectralSampling;
use lenslet::turbulence::{
    Method, SlopeCovariancePlan, SlopeProblem, WavefrontCovariancePlan, WavefrontProblem,
    slope_problem, spectral, wavefront_problem,
};
use lenslet::watch::unwatched;
use ndarray::{Array1, Axis};
use rand::{RngExt, SeedableRng, rngs::StdRng};

/// The engines of this machine's graphics processors, in both precisions; none, with a message, where there are none, unless
/// `LENSLET_REQUIRE_CUDA` is set.
fn engines() -> Vec<Engine> {
    match Engine::open(Device::Cuda(None), Precision::F64) {
        Ok(found) => [Precision::F64, Precision::F32].map(|p| of(found.devices(), p)).into(),
        Err(reason) if std::env::var_os("LENSLET_REQUIRE_CUDA").is_some() => panic!("{reason}"),
        Err(reason) => {
            eprintln!("skipped: {reason}");
            Vec::new()
        }
    }
}

/// An engine of these devices.
fn of(gpus: &[Gpu], precision: Precision) -> Engine {
    Engine::gpus(gpus.to_vec(), precision).unwrap()
}

/// The largest error that is accepted, in units of the largest entry.
fn bound(engine: &Engine) -> f64 {
    if engine.precision() == Precision::F64 { 1e-11 } else { 2e-6 }
}

/// The largest difference of two sequences, in units of the largest number of the second.
fn difference<'a>(a: impl Iterator<Item = &'a f64>, b: impl Iterator<Item = &'a f64>) -> f64 {
    let (mut worst, mut largest, mut count) = (0.0f64, 0.0f64, 0);
    for (a, b) in a.zip(b) {
        assert!(a.is_finite());
        (worst, largest, count) = (worst.max((a - b).abs()), largest.max(b.abs()), count + 1);
    }
    assert!(count > 0);
    worst / largest
}

#[test]
fn covariances_of_every_system_are_those_of_the_processor() {
    let engines = engines();
    for (name, text) in SYSTEMS.into_iter().filter(|_| !engines.is_empty()) {
        let system = System::from_toml(text, name).unwrap();
        let problem = slope_problem(&system).unwrap();
        let spectral = Method::Spectral(Some(SpectralSampling::choose(&problem).sampling));
        for method in [Method::Direct, spectral] {
            let plan = SlopeCovariancePlan::new(problem.clone(), method).unwrap();
            let here = plan.run(&Engine::default(), &unwatched).unwrap();
            for engine in &engines {
                let there = plan.run(engine, &unwatched).unwrap();
                let error = difference(there.values().iter(), here.values().iter());
                println!("{name}, slopes, {method:?}, {}: {error:.1e}", engine.name());
                assert!(error < bound(engine), "{name}, {method:?}, {}: {error:e}", engine.name());
            }
        }
        if !system.wants_wavefront() {
            continue;
        }
        let problem = wavefront_problem(&system).unwrap();
        let spectral = Method::Spectral(Some(spectral::wavefront::choose(&problem).sampling));
        for method in [Method::Direct, spectral] {
            let plan = WavefrontCovariancePlan::new(problem.clone(), method).unwrap();
            let compute = |engine: &Engine| plan.run(engine, &unwatched).unwrap();
            let here = compute(&Engine::default());
            for engine in &engines {
                let there = compute(engine);
                for (there, here) in there.lattices().iter().zip(here.lattices()) {
                    let error = difference(there.iter(), here.iter());
                    println!("{name}, wavefront, {method:?}, {}: {error:.1e}", engine.name());
                    assert!(error < bound(engine), "{name}, {method:?}: {error:e}");
                }
            }
        }
    }
}

#[test]
fn one_device_computes_what_all_do() {
    let engines = engines();
    for engine in &engines {
        let (gpus, precision) = (engine.devices(), engine.precision());
        if gpus.len() < 2 {
            eprintln!("skipped: there is one graphics processor only");
        }
        let one = of(&gpus[..1], precision);
        // The same device twice shares the work as two would.
        let two = of(&[gpus, &gpus[..1]].concat(), precision);
        for (name, text) in SYSTEMS {
            let system = System::from_toml(text, name).unwrap();
            let problem = slope_problem(&system).unwrap();
            for method in [Method::Direct, Method::Spectral(Some(SpectralSampling::original()))] {
                let plan = SlopeCovariancePlan::new(problem.clone(), method).unwrap();
                let alone = plan.run(&one, &unwatched).unwrap();
                assert_eq!(alone, plan.run(engine, &unwatched).unwrap());
                assert_eq!(alone, plan.run(&two, &unwatched).unwrap());
            }
            if system.wants_wavefront() {
                let plan = WavefrontCovariancePlan::direct(wavefront_problem(&system).unwrap());
                let compute = |engine: &Engine| plan.run(engine, &unwatched).unwrap();
                assert_eq!(compute(&one), compute(engine));
                assert_eq!(compute(&one), compute(&two));
            }
        }
    }
}

#[test]
fn estimates_of_every_system_are_those_of_the_processor() {
    let engines = engines();
    for (name, text) in SYSTEMS.into_iter().filter(|_| !engines.is_empty()) {
        let system = System::from_toml(text, name).unwrap();
        if !system.wants_wavefront() {
            continue;
        }
        let slopes = Array1::from(Simulation::new(&system).unwrap().realisation(3).slopes);
        let slopes = slopes.insert_axis(Axis(0));
        let estimate = |engine: &Engine, tolerance: f64| {
            let stop = Stop { tolerance, ..Stop::default() };
            let options = EstimateOptions::default().stop(stop);
            let plan = EstimatePlan::new(&system, options).unwrap();
            let estimator = plan.run(engine, &unwatched).unwrap();
            estimator.estimate(slopes.view(), false, &unwatched).unwrap()
        };
        let here = estimate(&Engine::cpu(Precision::F64), 1e-9);
        for engine in &engines {
            let double = engine.precision() == Precision::F64;
            let there = estimate(engine, if double { 1e-9 } else { 1e-5 });
            let error = difference(there.wavefront.iter(), here.wavefront.iter());
            println!("{name}, estimate, {}: {error:.1e}", engine.name());
            assert!(error < if double { 1e-6 } else { 1e-2 }, "{name}: {error:e}");
        }
    }
}

/// A random problem: its air, its lenslets, its stars and its targets.
fn random_problem(seed: u64) -> (Atmosphere, LensletArray, [Vec<Source>; 2], PhaseGrid) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut uniform = |low: f64, high: f64| low + (high - low) * random.random::<f64>();
    let count = if seed.is_multiple_of(10) { 40 } else { uniform(1.0, 9.0) as usize };
    let outer_scales =
        [10f64.powf(uniform(0.0, 3.0)), f64::INFINITY, 10f64.powf(uniform(0.0, 3.0))];
    let layer = |k: usize| {
        let altitude = 20_000.0 * k as f64 / count as f64;
        Layer::new(altitude, 1.0 / count as f64, outer_scales[k % 3])
    };
    let atmosphere = Atmosphere::new(0.15, 500e-9, (0..count).map(layer).collect()).unwrap();
    let lenslets = uniform(1.0, 45.0) as usize;
    let array = LensletArray::new(lenslets, 10f64.powf(uniform(-2.0, 0.7))).unwrap();
    let height = [f64::INFINITY, uniform(6e4, 1.2e5)][seed as usize % 2];
    let mut sources = |count: usize, height: f64| -> Vec<Source> {
        let reach = 10f64.powf(uniform(-6.0, -3.0));
        (0..count)
            .map(|_| Source::new(reach * uniform(0.0, 1.0), uniform(0.0, 6.0), height).unwrap())
            .collect()
    };
    let stars = [sources(1 + seed as usize % 4, height), sources(1 + seed as usize % 2, height)];
    let oversampling = 1 + seed as usize % 3;
    let disc = if seed % 5 == 1 { 1e-5 } else { 0.0 };
    let grid = PhaseGrid::new(1 + oversampling * lenslets, oversampling, disc).unwrap();
    (atmosphere, array, stars, grid)
}

#[test]
fn random_problems_are_those_of_the_processor() {
    let engines = engines();
    for seed in (0..60).filter(|_| !engines.is_empty()) {
        let (air, array, [stars, targets], grid) = random_problem(seed);
        let slopes = SlopeProblem::new(&air, &array, &stars, ConeGradient::Pupil).unwrap();
        let sources = (targets.as_slice(), stars.as_slice());
        let wavefront =
            WavefrontProblem::new(&air, &array, sources, grid, ConeGradient::Pupil).unwrap();
        let slopes = SlopeCovariancePlan::direct(slopes);
        let wavefront = WavefrontCovariancePlan::direct(wavefront);
        let compute = |engine: &Engine| {
            let slopes = slopes.run(engine, &unwatched).unwrap();
            (slopes, wavefront.run(engine, &unwatched).unwrap())
        };
        let (slopes_on_host, waves_on_host) = compute(&Engine::cpu(Precision::F64));
        for engine in &engines {
            let (slopes_on_device, waves_on_device) = compute(engine);
            let of_slopes =
                difference(slopes_on_device.values().iter(), slopes_on_host.values().iter());
            let lattices = [&waves_on_device, &waves_on_host].map(|waves| &waves.lattices()[0]);
            let of_waves = difference(lattices[0].iter(), lattices[1].iter());
            println!("{seed}, {}: {of_slopes:.1e} {of_waves:.1e}", engine.name());
            let bound = bound(engine);
            assert!(of_slopes < bound && of_waves < bound, "{seed}: {of_slopes:e} {of_waves:e}");
        }
    }
}
