// Tangled from book/src/bench-gpu.md: edit there, or here and run cargo tangle stitch.
//! Run times on a graphics processor, beside the original's.

// Imports of benches of devices
use crate::bench::{ARRAYS, SYSTEMS, one_star};
use crate::device::engine::Engine;
use crate::device::gpu::{Buffer, Gpu};
use crate::error::{Error, in_bytes};
use crate::estimation::estimate::EstimateOptions;
use crate::estimation::estimator::EstimatePlan;
use crate::estimation::simulation::Simulation;
use crate::files::provenance::date;
use crate::linear::operator::gpu::DeviceOperator;
use crate::linear::solver::Stop;
use crate::linear::toeplitz::gpu::BlockToeplitzGpu;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::source::{ConeGradient, Source};
use crate::model::system::System;
use crate::model::wavefront_grid::PhaseGrid;
use crate::numerics::real::{Precision, Real};
use crate::plan::Plan;
use crate::turbulence::direct::wavefront::gpu::WavefrontPlan;
use crate::turbulence::direct::{self, slope::gpu::SlopePlan};
use crate::turbulence::edges::gradient_covariances;
use crate::turbulence::phase::VonKarman;
use crate::turbulence::phase::gpu::PhaseTablesGpu;
use crate::turbulence::plan::{SlopeCovariancePlan, slope_problem, wavefront_problem};
use crate::turbulence::slope::{PairCovariance, SlopeCovariance, SlopeProblem};
use crate::turbulence::wavefront::WavefrontProblem;
use crate::watch::unwatched;
use ndarray::{Array1, Array2, Axis};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

// Cases with times and bounds
// Cases and their originals
/// One computation of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// What is computed, and how large.
    pub name: String,
    /// Median time of the original, milliseconds.
    pub original: f64,
    /// Median time of the original without its leftover copy, milliseconds, where it was measured.
    pub stripped: Option<f64>,
    /// Times of cuBLAS with the dense matrix, in double and single precision, where a product was measured beside it.
    pub dense: Option<[f64; 2]>,
    /// Our bounds in double and single precision, milliseconds.
    pub bound: [Option<f64>; 2],
    /// Our median times in double and single precision, milliseconds.
    pub time: [f64; 2],
}

// Times of the original program
/// Milliseconds of the original for the slope covariance of one star, as it is and without its leftover copy.
const ORIGINAL_SLOPES: [f64; 2] = [77.0, 1.985];
/// Milliseconds of the original for the slope covariance of 6 stars and 10 layers, as it is and without its leftover copy.
const ORIGINAL_MANY_SLOPES: [f64; 2] = [3095.0, 366.7];
/// Milliseconds of the original for the wavefront covariance of one star.
const ORIGINAL_WAVEFRONT: f64 = 1.02;
/// Milliseconds of the original for the wavefront covariance of 6 stars and 10 layers, at infinity and at 90 km.
const ORIGINAL_MANY_WAVEFRONTS: [f64; 2] = [27.1, 58.5];
/// Milliseconds of the original for the product of one star, for [`ARRAYS`].
const ORIGINAL_PRODUCTS: [f64; 5] = [0.0139, 0.0159, 0.0225, 0.0380, 0.0337];
/// Milliseconds of the original for the product of 12 × 12 blocks.
const ORIGINAL_MANY_PRODUCTS: f64 = 0.0747;
/// Milliseconds of the original for the estimate with 6 stars, to a residual of 5e-2, without noise.
const ORIGINAL_ESTIMATE: f64 = 13.1;

// Bounds of a case
impl Case {
    /// Whether the measured times are within their bounds.
    pub fn is_met(&self) -> bool {
        self.time
            .iter()
            .zip(self.bound)
            .all(|(time, bound)| bound.is_none_or(|bound| *time <= bound))
    }
}

// Sheet of measured figures
/// Figures measured on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sheet {
    /// Day of the measurement, UTC: `2026-11-20`.
    pub date: String,
    /// The device: `cuda:0 (NVIDIA H200)`.
    pub device: String,
    /// Version of this crate.
    pub version: String,
    /// Repetitions of which medians were taken.
    pub repeat: u32,
    /// The cases.
    pub cases: Vec<Case>,
    /// Error of the variance of one slope, relative, in double and single precision.
    pub error: [f64; 2],
    /// Bytes of device memory that the slope covariance of 6 stars and 10 layers takes, in double and single precision.
    pub memory: [u64; 2],
    /// Bytes of its result.
    pub result: [u64; 2],
    /// Iterations of the estimate, in double and single precision.
    pub iterations: [usize; 2],
}

// Measure a case on a device
/// Repetitions that are queued in a batch.
const BATCH: usize = 20;

/// The median over batches of the mean time of `work`, in milliseconds.
fn median(
    gpu: &Gpu,
    repeat: u32,
    mut work: impl FnMut() -> Result<(), Error>,
) -> Result<f64, Error> {
    gpu.milliseconds(BATCH, &mut work)?;
    let batch = |_| gpu.milliseconds(BATCH, &mut work);
    let mut times = (0..repeat.max(1)).map(batch).collect::<Result<Vec<_>, _>>()?;
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

// Take the median of many runs
/// The median over batches of the mean time of `work` recorded as a graph, in milliseconds.
fn median_of_graph(
    gpu: &Gpu,
    repeat: u32,
    mut work: impl FnMut() -> Result<(), Error>,
) -> Result<f64, Error> {
    work()?;
    let graph = gpu.record(work)?;
    median(gpu, repeat, || gpu.replay(&graph))
}

// Pose the problems of the cases
fn one_slope_problem(lenslets: usize) -> Result<SlopeProblem, Error> {
    let (atmosphere, array, star) = one_star(lenslets)?;
    SlopeProblem::new(&atmosphere, &array, &star, ConeGradient::Pupil)
}

fn one_wavefront_problem(lenslets: usize) -> Result<WavefrontProblem, Error> {
    let (atmosphere, array, star) = one_star(lenslets)?;
    let grid = PhaseGrid::new(lenslets + 1, 1, 0.0)?;
    WavefrontProblem::new(&atmosphere, &array, (&star, &star), grid, ConeGradient::Pupil)
}
/// The large telescope, its stars at a height in metres; one target on the axis.
fn large(height: f64) -> Result<System, Error> {
    let system = System::from_toml(SYSTEMS[2].1, "elt")?;
    let mut stars = system.guide_stars().to_vec();
    for star in &mut stars {
        let [x, y] = star.sensor.source.direction();
        star.sensor.source = Source::new(x.hypot(y), y.atan2(x), height)?;
    }
    Ok(system.to_builder().guide_stars(stars).targets([Source::star(0.0, 0.0)?]).build()?)
}

// Time covariances on a device
fn time_slopes<T: Real>(gpu: &Gpu, problem: &SlopeProblem, repeat: u32) -> Result<f64, Error> {
    let tables = Arc::new(PhaseTablesGpu::<T>::on(gpu)?);
    let plan = SlopePlan::new(gpu, &tables, problem, &problem.pairs())?;
    median_of_graph(gpu, repeat, || plan.run())
}

fn time_wavefront<T: Real>(
    gpu: &Gpu,
    problem: &WavefrontProblem,
    repeat: u32,
) -> Result<f64, Error> {
    let tables = Arc::new(PhaseTablesGpu::<T>::on(gpu)?);
    let plan = WavefrontPlan::new(gpu, &tables, problem)?;
    median_of_graph(gpu, repeat, || plan.run())
}

// Time products and estimates on a device
/// Time of a product with a slope covariance, all lenslets of `valid` in use.
fn time_product<T: Real>(
    gpu: &Gpu,
    covariance: &SlopeCovariance,
    valid: &[Array2<bool>],
    repeat: u32,
) -> Result<f64, Error> {
    let operator = BlockToeplitzGpu::<T>::slopes(gpu, covariance, valid)?;
    let x: Vec<T> = (0..operator.columns()).map(|k| T::of((k as f64).sin())).collect();
    let (x, y): (Buffer<T>, Buffer<T>) = (gpu.upload(&x)?, gpu.zeros(operator.rows())?);
    median_of_many(gpu, repeat, || operator.apply(&x, &y))
}

// Time the dense product on a device
/// Times of the product with the dense matrix, in double and single precision, unless it is too large.
fn time_dense(
    gpu: &Gpu,
    covariance: &SlopeCovariance,
    valid: &[Array2<bool>],
    repeat: u32,
) -> Result<Option<[f64; 2]>, Error> {
    let order = SlopeOrder::new(valid);
    if order.len().pow(2) > 1 << 27 {
        return Ok(None);
    }
    let matrix = covariance.dense(&order);
    Ok(Some([time_matrix::<f64>(gpu, &matrix, repeat)?, time_matrix::<f32>(gpu, &matrix, repeat)?]))
}

fn time_matrix<T: Real>(gpu: &Gpu, matrix: &Array2<f64>, repeat: u32) -> Result<f64, Error> {
    let values: Vec<T> = matrix.iter().map(|&value| T::of(value)).collect();
    let there = gpu.upload(&values)?;
    let x: Vec<T> = (0..matrix.ncols()).map(|k| T::of((k as f64).sin())).collect();
    let (x, y) = (gpu.upload(&x)?, gpu.zeros(matrix.nrows())?);
    median_of_many(gpu, repeat, || gpu.multiply_matrix(&there, matrix.dim(), &x, &y))
}

// Time an estimate on a device
/// Median time of an estimate of one frame of the large telescope to a residual of 1e-3, and its iterations.
fn time_estimate(gpu: &Gpu, precision: Precision, repeat: u32) -> Result<(f64, usize), Error> {
    let system = large(f64::INFINITY)?;
    let stop = Stop { tolerance: 1e-3, ..Stop::default() };
    let plan = EstimatePlan::new(&system, EstimateOptions::default().stop(stop))?;
    let engine = Engine::gpus(vec![gpu.clone()], precision)?;
    let estimator = plan.run(&engine, &unwatched)?;
    let slopes = Array1::from(Simulation::new(&system)?.realisation(1).slopes).insert_axis(Axis(0));
    let mut iterations = 0;
    let mut times = Vec::new();
    for _ in 0..=repeat {
        let start = Instant::now();
        let estimate = estimator.estimate(slopes.view(), false, &unwatched)?;
        times.push(1e3 * start.elapsed().as_secs_f64());
        iterations = estimate.iterations[0];
    }
    times.remove(0);
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2], iterations))
}
/// The median time of one of many that follow each other, of which a batch is recorded.
fn median_of_many(
    gpu: &Gpu,
    repeat: u32,
    product: impl Fn() -> Result<(), Error>,
) -> Result<f64, Error> {
    let products = || (0..BATCH).try_for_each(|_| product());
    Ok(median_of_graph(gpu, repeat, products)? / BATCH as f64)
}

// Measure all cases on a device
impl Sheet {
    /// Measures all cases on a device, each as the median over `repeat` batches.
    ///
    /// # Errors
    /// What the device says.
    pub fn measure(gpu: &Gpu, repeat: u32) -> Result<Self, Error> {
        let mut cases = Vec::new();
        // Measure covariances of one star
        for lenslets in ARRAYS {
            let problem = one_slope_problem(lenslets)?;
            let time = [
                time_slopes::<f64>(gpu, &problem, repeat)?,
                time_slopes::<f32>(gpu, &problem, repeat)?,
            ];
            let bound = [Some(0.10), Some(0.05)];
            let name = format!("slope covariance, N = {lenslets}");
            let [original, stripped] = ORIGINAL_SLOPES;
            cases.push(Case { stripped: Some(stripped), ..case(name, original, bound, time) });
        }
        for lenslets in ARRAYS {
            let problem = one_wavefront_problem(lenslets)?;
            let time = [
                time_wavefront::<f64>(gpu, &problem, repeat)?,
                time_wavefront::<f32>(gpu, &problem, repeat)?,
            ];
            let name = format!("wavefront–slope, N = {lenslets}");
            cases.push(case(name, ORIGINAL_WAVEFRONT, [Some(0.05); 2], time));
        }
        // Measure covariances of many stars
        let system = large(f64::INFINITY)?;
        let problem = slope_problem(&system)?;
        let time = [
            time_slopes::<f64>(gpu, &problem, repeat)?,
            time_slopes::<f32>(gpu, &problem, repeat)?,
        ];
        let name = "slope covariance, 6 × 6, N = 80, 10 layers".to_string();
        let [original, stripped] = ORIGINAL_MANY_SLOPES;
        let bound = [Some(1.0), Some(0.5)];
        cases.push(Case { stripped: Some(stripped), ..case(name, original, bound, time) });
        let heights = [(f64::INFINITY, "∞"), (90e3, "90 km")];
        for ((height, name), original) in heights.into_iter().zip(ORIGINAL_MANY_WAVEFRONTS) {
            let problem = wavefront_problem(&large(height)?)?;
            let time = [
                time_wavefront::<f64>(gpu, &problem, repeat)?,
                time_wavefront::<f32>(gpu, &problem, repeat)?,
            ];
            let name = format!("wavefront–slope, 1 × 6, N = 80, 10 layers, {name}");
            cases.push(case(name, original, [Some(1.0); 2], time));
        }
        // Measure products and the estimate
        for (lenslets, original) in ARRAYS.into_iter().zip(ORIGINAL_PRODUCTS) {
            let everywhere = [Array2::from_elem((lenslets, lenslets), true)];
            let problem = one_slope_problem(lenslets)?;
            let covariance =
                SlopeCovariancePlan::direct(problem.clone()).run(&Engine::default(), &unwatched)?;
            let time = [
                time_product::<f64>(gpu, &covariance, &everywhere, repeat)?,
                time_product::<f32>(gpu, &covariance, &everywhere, repeat)?,
            ];
            let name = format!("product, N = {lenslets}");
            let dense = time_dense(gpu, &covariance, &everywhere, repeat)?;
            cases.push(Case { dense, ..case(name, original, [None, Some(0.5 * original)], time) });
        }
        // Measure blocks of stars and the estimate
        let valid = system.valid_lenslets();
        let covariance =
            SlopeCovariancePlan::direct(problem.clone()).run(&Engine::default(), &unwatched)?;
        let time = [
            time_product::<f64>(gpu, &covariance, &valid, repeat)?,
            time_product::<f32>(gpu, &covariance, &valid, repeat)?,
        ];
        let name = "product, 12 × 12 blocks, N = 80".to_string();
        cases.push(case(name, ORIGINAL_MANY_PRODUCTS, [None, Some(0.015)], time));
        let double = time_estimate(gpu, Precision::F64, repeat)?;
        let single = time_estimate(gpu, Precision::F32, repeat)?;
        let name = "estimate to 1e-3, 6 stars, N = 80".to_string();
        cases.push(case(name, ORIGINAL_ESTIMATE, [None, Some(3.0)], [double.0, single.0]));
        // Measure error and memory
        let one = one_slope_problem(20)?;
        let layer = one.layers()[0];
        let exact =
            gradient_covariances(&VonKarman::new(layer.outer_scale), layer.side, [0.0; 2], (1, 1))
                [[0, 0, 0]];
        let variance = |pairs: Vec<PairCovariance>| pairs[0][[0, 19, 19]];
        let gpus = std::slice::from_ref(gpu);
        let strengths = [
            variance(direct::slope::gpu::pair_covariances::<f64>(&one, gpus, &unwatched)?),
            variance(direct::slope::gpu::pair_covariances::<f32>(&one, gpus, &unwatched)?),
        ];
        let error = strengths.map(|strengths| (strengths / (layer.strength * exact) - 1.0).abs());
        let pairs = problem.pairs().len();
        let memory = [
            direct::slope::gpu::memory::<f64>(&problem, pairs),
            direct::slope::gpu::memory::<f32>(&problem, pairs),
        ];
        let result = [8, 4].map(|size| (size * 3 * pairs * problem.lags().pow(2)) as u64);
        Ok(Self {
            date: date(SystemTime::now())[..10].to_string(),
            device: gpu.name().to_string(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            repeat,
            cases,
            error,
            memory,
            result,
            iterations: [double.1, single.1],
        })
    }
}

// Case without other times
/// A case with its name.
fn case(name: String, original: f64, bound: [Option<f64>; 2], time: [f64; 2]) -> Case {
    Case { name, original, stripped: None, dense: None, bound, time }
}

// Lay out the sheet
impl Sheet {
    /// The figures as a table, times in microseconds.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{}, {}, lenslet {}; median of {} batches, microseconds\n",
            self.device, self.date, self.version, self.repeat
        );
        let heads = ["original", "no copy", "f64", "f32", "gain"];
        text += &row("", heads.map(String::from));
        for case in &self.cases {
            let micro = |time: f64| format!("{:.1}", 1e3 * time);
            let stripped = case.stripped.map_or("-".to_string(), micro);
            let gain = case.stripped.unwrap_or(case.original) / case.time[1];
            let [double, single] = case.time.map(micro);
            let numbers = [micro(case.original), stripped, double, single, format!("{gain:.1}")];
            text += &row(&case.name, numbers);
        }
        text + &self.remarks()
    }

    // Describe the machine of the times
    /// Error, memory and iterations in words.
    fn remarks(&self) -> String {
        let [error, error_single] = self.error;
        let [memory, memory_single] = self.memory.map(in_bytes);
        let [result, result_single] = self.result.map(in_bytes);
        let [iterations, iterations_single] = self.iterations;
        // Say whether the bounds are met
        let missed: Vec<_> = self.cases.iter().filter(|case| !case.is_met()).collect();
        let met = match missed.as_slice() {
            [] => "All bounds are met.".to_string(),
            missed => {
                let names: Vec<_> = missed.iter().map(|case| case.name.as_str()).collect();
                format!("Bounds that are not met: {}.", names.join("; "))
            }
        };
        format!(
            "Gain: original over single precision. Error of a slope's variance: {error:.1e} and {error_single:.1e}.\n\
             Memory of the large slope covariance: {memory} for {result} of result, and {memory_single} for {result_single}.\n\
             Iterations of the estimate: {iterations} and {iterations_single}. {met}\n{}",
            self.peers()
        )
    }

    /// The dense products by cuBLAS.
    fn peers(&self) -> String {
        let peer = |case: &Case| {
            let [double, single] = case.dense?.map(|time| 1e3 * time);
            Some(format!("{}: {double:.1} and {single:.1}", case.name))
        };
        let peers: Vec<_> = self.cases.iter().filter_map(peer).collect();
        format!("With the dense matrix, by cuBLAS, f64 and f32:\n  {}\n", peers.join("\n  "))
    }
}

// Row of the sheet
/// A line of the table.
fn row(name: &str, [original, stripped, double, single, gain]: [String; 5]) -> String {
    format!("{name:50}  {original:>9}  {stripped:>8}  {double:>7}  {single:>7}  {gain:>7}\n")
}

// Tests of the sheet
#[cfg(test)]
mod tests {
    use super::*;

    // Check the table of a sheet
    #[test]
    fn tables_name_the_bounds_that_are_missed() {
        let slow = case("product, N = 20".into(), 0.0139, [None, Some(0.007)], [0.005, 0.008]);
        let slow = Case { dense: Some([0.009, 0.0045]), stripped: Some(0.012), ..slow };
        let fast = case("slope covariance".into(), 2.0, [Some(0.1), None], [0.05, 0.04]);
        assert!(!slow.is_met() && fast.is_met());
        let sheet = Sheet {
            date: "2026-11-20".into(),
            device: "cuda:0".into(),
            version: "0.1.0".into(),
            repeat: 9,
            cases: vec![slow, fast],
            error: [1e-13, 1e-7],
            memory: [10 << 20, 8 << 20],
            result: [8 << 20, 4 << 20],
            iterations: [40, 41],
        };
        // Compare the table's columns
        let table = sheet.table();
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[2].ends_with("   13.9      12.0      5.0      8.0      1.5"), "{table}");
        assert_eq!(lines[1].len(), lines[3].len());
        let peers = "by cuBLAS, f64 and f32:\n  product, N = 20: 9.0 and 4.5\n";
        assert!(table.contains(peers), "{table}");
        assert!(
            table.contains("not met: product, N = 20.") && table.contains("10.0 MiB for 8.0 MiB")
        );
        let copy: Sheet = serde_json::from_str(&serde_json::to_string(&sheet).unwrap()).unwrap();
        assert_eq!(copy, sheet);
    }
}
