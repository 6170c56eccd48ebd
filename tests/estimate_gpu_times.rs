//! Run times of the estimate on a graphics processor, for the book. Run by hand:
//! `cargo test --release --test estimate_gpu_times -- --ignored --nocapture`

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests

use lenslet::{
    covariance::Engine,
    device::{
        Device, cuda,
        gpu::{Gpu, Number},
        silent,
    },
    estimate::Settings,
    estimate_gpu::{EstimatorGpu, estimate_on},
    operator::Real,
    simulation::Simulation,
    solver::{Solver, Stop},
    system::System,
};
use ndarray::Array2;
use std::time::Instant;

const FRAMES: usize = 8;

/// Prints the median time of a frame, from slopes on the host to wavefronts on the host, and of the products in it.
fn time<T: Number + Real>(gpu: &Gpu, system: &System, slopes: &Array2<f64>, settings: Settings) {
    let start = Instant::now();
    let estimator = EstimatorGpu::<T>::new(gpu, system, settings, &Engine::Cpu).unwrap();
    let prepared = start.elapsed().as_secs_f64();
    let estimator = [estimator];
    let tolerance = settings.stop.tolerance;
    let name = format!(
        "{:6} {:?} {} {tolerance:.0e}",
        T::C_NAME,
        settings.solver,
        if settings.preconditioned { "circulant" } else { "none" }
    );
    // Once to warm up: the number of iterations to queue ahead is learnt there.
    if let Err(reason) = estimate_on(&estimator, slopes.view(), false, &silent) {
        return println!("{name}: {reason}");
    }
    let (mut times, mut counts) = (Vec::new(), Vec::new());
    for frame in slopes.outer_iter().cycle().take(5 * FRAMES) {
        let start = Instant::now();
        let frame = frame.insert_axis(ndarray::Axis(0));
        let estimates = estimate_on(&estimator, frame, false, &silent).unwrap();
        times.push(1e3 * start.elapsed().as_secs_f64());
        counts.push(estimates.iterations[0]);
    }
    times.sort_by(f64::total_cmp);
    let [measured, wavefront] = [estimator[0].measured(), estimator[0].wavefront()].map(|operator| {
        let (x, y) = (gpu.zeros(operator.columns()).unwrap(), gpu.zeros(operator.rows()).unwrap());
        let product = || operator.apply(&x, &y);
        gpu.milliseconds(10, product).unwrap();
        1e3 * gpu.milliseconds(200, product).unwrap()
    });
    println!(
        "{name}: {:.3} ms a frame (best {:.3}), {} to {} iterations, {:.1} µs an iteration; \
         product with Θ {measured:.1} µs, with Ξ {wavefront:.1} µs (launched one by one); {prepared:.2} s to prepare",
        times[times.len() / 2],
        times[0],
        counts.iter().min().unwrap(),
        counts.iter().max().unwrap(),
        1e3 * times[times.len() / 2] / counts[0] as f64,
    );
}

#[test]
#[ignore = "measures a graphics processor"]
fn times_of_the_estimate() {
    let gpus = match cuda::open(Device::Cuda(Some(0))) {
        Ok(gpus) => gpus,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let system = System::from_file("book/systems/elt.toml").unwrap();
    let simulation = Simulation::new(&system).unwrap();
    let draws: Vec<_> = (0..FRAMES).map(|seed| simulation.draw(seed as u64).slopes).collect();
    let slopes = Array2::from_shape_fn((FRAMES, draws[0].len()), |(f, k)| draws[f][k]);
    println!("{}", gpus[0].name());
    for tolerance in [1e-3, 1e-6] {
        for solver in [Solver::ConjugateGradients, Solver::Minres] {
            for preconditioned in [true, false] {
                let stop = Stop { tolerance, iterations: 2000 };
                let settings = Settings { solver, preconditioned, stop, ..Settings::default() };
                time::<f32>(&gpus[0], &system, &slopes, settings);
                time::<f64>(&gpus[0], &system, &slopes, settings);
            }
        }
    }
}
