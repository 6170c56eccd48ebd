//! Slope covariance of whole systems, all blocks in f64 on all cores: the direct method, the spectral method with the
//! sampling that it chooses, and the original's algorithm, of which one block is timed and multiplied.
//!
//! `cargo bench` prints the comparison first and divan's statistics after it.

use divan::{Bencher, black_box};
use lenslet::device::Engine;
use lenslet::error::Invalid;
use lenslet::model::{Atmosphere, Layer, LensletArray, Pupil, Sensor, Source, System, Validity};
use lenslet::plan::Plan;
use lenslet::turbulence::spectral::SpectralSampling;
use lenslet::turbulence::spectral::slope::original_component;
use lenslet::turbulence::{
    Method, SlopeCovariancePlan, SlopeProblem, edge_midpoint, slope_problem,
};
use lenslet::units::ARCSEC;
use lenslet::watch::unwatched;
use std::time::Instant;

const SYSTEMS: [&str; 2] = ["small", "elt"];

fn problem(name: &str) -> SlopeProblem {
    let path = format!("{}/book/systems/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let problem = System::from_file(path).and_then(|system| slope_problem(&system));
    problem.unwrap_or_else(|error| panic!("{error}"))
}

fn plan(problem: &SlopeProblem, method: Method) -> SlopeCovariancePlan {
    let plan = SlopeCovariancePlan::new(problem.clone(), method);
    plan.unwrap_or_else(|error| panic!("{error}"))
}

fn compute(plan: &SlopeCovariancePlan) {
    black_box(plan.run(&Engine::default(), &unwatched)).unwrap_or_else(|error| panic!("{error}"));
}

/// The best of `runs`, in seconds.
fn seconds(runs: usize, mut work: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..runs).map(time).fold(f64::INFINITY, f64::min)
}

/// Prints the times of one system and how many times faster than the original's algorithm each method is.
fn compare(name: &str) {
    let problem = problem(name);
    let chosen = SpectralSampling::choose(&problem);
    let [direct, spectral] =
        [Method::Direct, Method::Spectral(Some(chosen.sampling))].map(|way| plan(&problem, way));
    let direct = seconds(5, || compute(&direct));
    let spectral = seconds(2, || compute(&spectral));
    let (p, q) = (0, problem.sources() - 1);
    let original = SpectralSampling::original();
    let block = seconds(1, || {
        black_box(original_component(&problem, p, q, 0, 0, &original));
    });
    let blocks = 4 * problem.sources().pow(2);
    let whole = block * blocks as f64;
    println!("{name}: spectral with {chosen}");
    println!("  original   {whole:10.3} s  = {blocks} blocks of {block:.3} s");
    println!("  spectral   {spectral:10.4} s  {:8.0} times faster", whole / spectral);
    println!("  direct     {direct:10.4} s  {:8.0} times faster", whole / direct);
}

#[divan::bench(args = SYSTEMS)]
fn direct(bencher: Bencher, name: &str) {
    let plan = plan(&problem(name), Method::Direct);
    bencher.bench(|| compute(&plan));
}

#[divan::bench(args = SYSTEMS, sample_count = 5)]
fn spectral(bencher: Bencher, name: &str) {
    let plan = plan(&problem(name), Method::Spectral(None));
    bencher.bench(|| compute(&plan));
}

#[divan::bench(args = SYSTEMS, sample_count = 20)]
fn choice_of_sampling(bencher: Bencher, name: &str) {
    let problem = problem(name);
    bencher.bench(|| SpectralSampling::choose(black_box(&problem)));
}

/// Four laser and three natural stars on 24 × 24 lenslets of a telescope of 39 m, five layers: 6104 slopes.
#[divan::bench(sample_count = 10)]
fn edge_midpoints(bencher: Bencher) {
    let build = || {
        let layer = |altitude| Layer::new(altitude, 0.2, 25.0);
        let air = Atmosphere::new(0.129, 500e-9, [0.0, 1.4e3, 4e3, 9e3, 15e3].map(layer).to_vec())?;
        let array = LensletArray::new(24, 39.0 / 24.0)?;
        let valid = array.valid(Some(&Pupil::new(39.0, 0.17)?), Validity::Centre);
        let sensor = |k: u8| {
            let (zenith, height) = if k < 4 { (23.0, 100e3) } else { (40.0, f64::INFINITY) };
            let source = Source::new(zenith * ARCSEC, 1.6 * f64::from(k), height)?;
            Ok::<_, Invalid>(Sensor::at_rest(source, array))
        };
        let sensors: Vec<_> = (0..7).map(sensor).collect::<Result<_, _>>()?;
        Ok::<_, Invalid>((air, sensors, vec![valid; 7]))
    };
    let (air, sensors, valid) = build().unwrap_or_else(|error| panic!("{error}"));
    bencher.bench(|| edge_midpoint::slope_covariance(&air, &sensors, &valid, &unwatched));
}

fn main() {
    // `cargo test --benches` passes --test, and only wants to know that the benches run.
    if !std::env::args().any(|argument| argument == "--test" || argument == "--list") {
        SYSTEMS.iter().for_each(|name| compare(name));
    }
    divan::main();
}
