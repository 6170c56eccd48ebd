//! Products with the slope covariance: as spectra, as a dense matrix, in double and single precision.
//!
//! `cargo bench --bench operators` prints the comparison first and divan's statistics after it.

use divan::{Bencher, black_box};
use lenslet::device::Engine;
use lenslet::linear::{BlockToeplitz, Dense, Operator};
use lenslet::model::{LensletArray, SlopeOrder, System};
use lenslet::numerics::Real;
use lenslet::plan::Plan;
use lenslet::turbulence::{SlopeCovariance, SlopeCovariancePlan, SlopeProblem, slope_problem};
use lenslet::watch::unwatched;
use lenslet::{Error, Result};
use ndarray::Array2;
use std::time::Instant;

/// The slope covariance of `elt.toml`, six stars and 80 × 80 lenslets, and its valid lenslets.
fn six_stars() -> (SlopeCovariance, Vec<Array2<bool>>) {
    let make = || -> Result<_> {
        let path = format!("{}/book/systems/elt.toml", env!("CARGO_MANIFEST_DIR"));
        let system = System::from_file(path)?;
        let plan = SlopeCovariancePlan::direct(slope_problem(&system)?);
        let covariance = plan.run(&Engine::default(), &unwatched)?;
        let valid = system.lenslet_array().valid(system.pupil(), system.validity());
        Ok((covariance, vec![valid; 6]))
    };
    must(make())
}

/// The slope covariance of one star above the same atmosphere, 40 × 40 lenslets, all valid.
fn one_star() -> (SlopeCovariance, Vec<Array2<bool>>) {
    let make = || -> Result<_> {
        let path = format!("{}/book/systems/elt.toml", env!("CARGO_MANIFEST_DIR"));
        let system = System::from_file(path)?;
        let array = LensletArray::new(40, 0.5)?;
        let stars = [system.guide_stars()[0].sensor.source];
        let (atmosphere, gradient) = (system.atmosphere(), system.cone_gradient());
        let problem = SlopeProblem::new(atmosphere, &array, &stars, gradient)?;
        let covariance =
            SlopeCovariancePlan::direct(problem).run(&Engine::default(), &unwatched)?;
        Ok((covariance, vec![Array2::from_elem((40, 40), true)]))
    };
    must(make())
}

fn must<R>(result: std::result::Result<R, Error>) -> R {
    result.unwrap_or_else(|error| panic!("{error}"))
}

fn spectra<T: Real>(
    (covariance, valid): &(SlopeCovariance, Vec<Array2<bool>>),
) -> BlockToeplitz<T> {
    must(BlockToeplitz::slopes(covariance, valid))
}

fn dense((covariance, valid): &(SlopeCovariance, Vec<Array2<bool>>)) -> Dense<f64> {
    Dense::new(covariance.dense(&SlopeOrder::new(valid)))
}

/// A product with so many vectors at once, ready to be repeated.
fn repeat<T: Real>(operator: &dyn Operator<T>, vectors: usize) -> impl FnMut() {
    let number = |k: usize| T::from_usize(k * 7919 % 1000).unwrap_or_default();
    let x: Vec<T> = (0..vectors * operator.columns()).map(number).collect();
    let mut y = vec![T::zero(); vectors * operator.rows()];
    let mut scratch = vec![T::zero(); operator.scratch(vectors)];
    move || operator.apply(black_box(&x), black_box(&mut y), &mut scratch)
}

/// Prints and gives the best time of a product, in seconds.
fn time<T: Real>(name: &str, operator: &dyn Operator<T>, vectors: usize) -> f64 {
    let mut product = repeat(operator, vectors);
    let run = |_| {
        let start = Instant::now();
        product();
        start.elapsed().as_secs_f64()
    };
    let best = (0..50).map(run).fold(f64::INFINITY, f64::min);
    let (kept, full) = (operator.bytes() as f64 / 1e6, operator.dense_bytes() as f64 / 1e6);
    println!("  {name:<32} {:9.3} ms  {kept:9.2} MB of {full:9.1} MB", 1e3 * best);
    best
}

fn compare() {
    let (one, six) = (one_star(), six_stars());
    println!("one star, 40 × 40 lenslets: {} threads", rayon::current_num_threads());
    let full = time("dense, f64", &dense(&one), 1);
    let compressed = time("spectra, f64", &spectra::<f64>(&one), 1);
    time("spectra, f32", &spectra::<f32>(&one), 1);
    println!("  dense / spectra {:.0}", full / compressed);
    println!("six stars, 80 × 80 lenslets, 12 × 12 blocks");
    time("spectra, f64", &spectra::<f64>(&six), 1);
    time("spectra, f64, 8 vectors at once", &spectra::<f64>(&six), 8);
    time("spectra, f32", &spectra::<f32>(&six), 1);
}

#[divan::bench]
fn one_star_dense(bencher: Bencher) {
    let dense = dense(&one_star());
    bencher.bench_local(repeat(&dense, 1));
}

#[divan::bench(types = [f32, f64])]
fn one_star_spectra<T: Real>(bencher: Bencher) {
    let spectra = spectra::<T>(&one_star());
    bencher.bench_local(repeat(&spectra, 1));
}

#[divan::bench(types = [f32, f64], args = [1, 8])]
fn six_stars_spectra<T: Real>(bencher: Bencher, vectors: usize) {
    let spectra = spectra::<T>(&six_stars());
    bencher.bench_local(repeat(&spectra, vectors));
}

fn main() {
    // `cargo test --benches` passes --test, and only wants to know that the benches run.
    if !std::env::args().any(|argument| argument == "--test" || argument == "--list") {
        compare();
    }
    divan::main();
}
