// Tangled from book/src/benchmarks.md: edit there, or here and run cargo tangle stitch.
//! Run times of both methods, beside the original algorithm's, and of products, beside the dense ones.

pub mod calibration;
pub mod electrons;
pub mod frames;
pub mod gpu;
pub mod image;
#[cfg(test)]
mod kernel_builds;
pub mod reconstruct;

// Imports of benches
use crate::device::engine::Engine;
use crate::device::{available_memory, processor_name, threads};
use crate::error::{Error, in_bytes};
use crate::linear::matrix::Dense;
use crate::linear::operator::Operator;
use crate::linear::toeplitz::BlockToeplitz;
use crate::model::atmosphere::{Atmosphere, Layer};
use crate::model::lenslet_array::{LensletArray, SlopeOrder, Validity};
use crate::model::source::{ConeGradient, Source};
use crate::model::system::System;
use crate::model::wavefront_grid::PhaseGrid;
use crate::plan::Plan;
use crate::turbulence::plan::{
    CovarianceOptions, CovariancePlan, Covariances, Form, Method, SlopeCovariancePlan, SlopeSlope,
    WavefrontCovariancePlan,
};
use crate::turbulence::slope::SlopeProblem;
use crate::turbulence::spectral::slope::{SpectralSampling, original_component};
use crate::turbulence::wavefront::{WavefrontProblem, lattice_entry};
use crate::watch::{Watch, check};
use ndarray::{Array2, Axis};
use rayon::prelude::*;
use serde::Serialize;
use std::time::{Duration, Instant};

// Run times of one system
/// Run times of the slope covariance of one system, all pairs, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Times {
    /// The direct method.
    pub direct: f64,
    /// The spectral method with the original's sampling, 4096 samples and oversampling 4.
    pub spectral: f64,
    /// The original algorithm: one block timed, times their number.
    pub original: f64,
    /// Largest difference of the two methods, in units of the variance.
    pub difference: f64,
}

/// The systems of the book: name and text.
pub const SYSTEMS: [(&str, &str); 3] = [
    ("small", include_str!("../../book/systems/small.toml")),
    ("keck-lgs", include_str!("../../book/systems/keck-lgs.toml")),
    ("elt", include_str!("../../book/systems/elt.toml")),
];

// Time both methods and the original
/// The plans of a system's slope covariance that are timed: directly, and spectrally with the original's sampling.
///
/// # Errors
/// Those of [`CovariancePlan::new`]; `NotToeplitz` where there is no such form.
pub fn covariance_plans(system: &System) -> Result<[CovariancePlan; 2], Error> {
    let options = CovarianceOptions::default().form(Form::Toeplitz).slopes_only();
    let spectral = options.method(Method::Spectral(Some(SpectralSampling::original())));
    Ok([CovariancePlan::new(system, options)?, CovariancePlan::new(system, spectral)?])
}

/// Times the slope covariance of a system, as the median of at most `repeat` runs.
///
/// # Errors
/// Those of [`covariance_plans`] and of [`CovariancePlan::run`].
pub fn time_covariance(system: &System, repeat: u32, watch: &dyn Watch) -> Result<Times, Error> {
    let [direct, spectral] = covariance_plans(system)?;
    // Compare the two methods once
    let compute = |plan: &CovariancePlan| plan.run(&Engine::default(), watch);
    let values = |covariances: Covariances| match covariances.slope_slope {
        SlopeSlope::Toeplitz(covariance) => Some(covariance),
        SlopeSlope::Blocks(..) | SlopeSlope::Dense(_) => None,
    };
    let pair = values(compute(&direct)?).zip(values(compute(&spectral)?));
    let difference = pair.map_or(0.0, |(exact, approximate)| {
        let pairs = exact.values().iter().zip(approximate.values());
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / exact.variance()
    });
    // Time the methods one by one
    let sampling = SpectralSampling::original();
    let original = direct.slopes().map_or(0.0, |plan| {
        let (problem, last) = (plan.problem(), plan.problem().sources() - 1);
        let block = median(repeat, || original_component(problem, 0, last, 0, 0, &sampling));
        4.0 * (problem.sources() as f64).powi(2) * block
    });
    let [direct, spectral] = [direct, spectral].map(|plan| median(repeat, || compute(&plan)));
    check(watch)?;
    Ok(Times { direct, spectral, original, difference })
}

// Take the median time
/// The median duration of at most `repeat` runs, at least one, in seconds.
fn median<T>(repeat: u32, mut work: impl FnMut() -> T) -> f64 {
    let begin = Instant::now();
    let mut times = Vec::new();
    while times.is_empty()
        || (times.len() < repeat as usize && begin.elapsed() < Duration::from_secs(4))
    {
        let start = Instant::now();
        let result = work();
        times.push(start.elapsed().as_secs_f64());
        drop(result);
    }
    middle(times)
}

/// The median of some numbers, at least one; of an even count, the larger of the two in the middle.
fn middle(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

// Lay out the table of times
/// A table of times, one row for each system with its name.
pub fn table(rows: &[(&str, Times)], threads: usize) -> String {
    let widest = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(6);
    // Head the table of times
    let mut table = format!(
        "Slope covariance, all pairs, f64; median times on {threads} thread{}.\n\
         {:widest$}  {:>11}  {:>11}  {:>11}  {:>15}  {:>17}  {:>10}\n",
        if threads == 1 { "" } else { "s" },
        "system",
        "direct",
        "spectral",
        "original",
        "original/direct",
        "original/spectral",
        "difference"
    );
    for (name, times) in rows {
        let seconds =
            [times.direct, times.spectral, times.original].map(|time| format!("{time:.4} s"));
        let (gain, spectral) = (times.original / times.direct, times.original / times.spectral);
        table += &format!(
            "{name:widest$}  {:>11}  {:>11}  {:>11}  {gain:>15.0}  {spectral:>17.0}  {:>10.1e}\n",
            seconds[0], seconds[1], seconds[2], times.difference
        );
    }
    table
        + "Spectral and original: 4096 samples, oversampling 4; of the original one block of 4 S² is timed.\n\
             The difference is that of spectral and direct, in units of the variance.\n"
}

// Compressed products against dense ones
// Run times of products
/// Arrays for which the original's test program measured its products, by lenslets across.
pub const ARRAYS: [usize; 5] = [20, 40, 64, 84, 150];

/// Which matrix a product is timed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimedMatrix {
    /// The slope covariance, 2 N² × 2 N².
    Slopes,
    /// The wavefront–slope covariance, (N + 1)² × 2 N².
    WavefrontSlope,
}

// Row of run times
/// Run times of products with one matrix, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProductTimes {
    /// Lenslets across the array, N.
    pub lenslets: usize,
    /// Product of the dense matrix with a vector; none where two copies of it do not fit into half of the memory.
    pub full: Option<f64>,
    /// Product of the Toeplitz form with a vector.
    pub compressed: f64,
    /// Computing the covariance.
    pub evaluation: f64,
    /// Largest difference of the two products, in units of the largest number of the full one.
    pub difference: f64,
    /// Bytes of the dense matrix.
    pub full_bytes: u64,
    /// Bytes of the Toeplitz form.
    pub compressed_bytes: u64,
}

// Time the products of one array
/// Times the products for `lenslets` across, as medians of at most `repeat` runs.
///
/// # Errors
/// Those of the covariances; `Invalid` for an array without lenslets.
pub fn time_products(
    matrix: TimedMatrix,
    lenslets: usize,
    repeat: u32,
    watch: &dyn Watch,
) -> Result<ProductTimes, Error> {
    let (atmosphere, array, star) = one_star(lenslets)?;
    let valid = [array.valid(None, Validity::default())];
    let order = SlopeOrder::new(&valid);
    match matrix {
        TimedMatrix::Slopes => {
            // Time products with the slope covariance
            let problem = SlopeProblem::new(&atmosphere, &array, &star, ConeGradient::Pupil)?;
            let plan = SlopeCovariancePlan::direct(problem);
            let compute = || plan.run(&Engine::default(), watch);
            let covariance = compute()?;
            let operator = BlockToeplitz::slopes(&covariance, &valid)?;
            let (values, origin) = (covariance.values(), lenslets - 1);
            let entry = |row: usize, column: usize| {
                let [(a, [y, x]), (b, [y2, x2])] = [row, column].map(|k| slope_at(&order, k));
                values[[0, 0, a, b, origin + y2 - y, origin + x2 - x]]
            };
            let evaluation = median(repeat, compute);
            Ok(compare_products(&operator, entry, (lenslets, evaluation), repeat))
        }
        TimedMatrix::WavefrontSlope => {
            // Time products with wavefront and slopes
            let grid = PhaseGrid::new(lenslets + 1, 1, 0.0)?;
            let sources: (&[Source], &[Source]) = (&star, &star);
            let problem =
                WavefrontProblem::new(&atmosphere, &array, sources, grid, ConeGradient::Pupil)?;
            let plan = WavefrontCovariancePlan::direct(problem);
            let compute = || plan.run(&Engine::default(), watch);
            let covariance = compute()?;
            let lattice = covariance.lattices()[0].view();
            let points = grid.points;
            let everywhere = [Array2::from_elem((points, points), true)];
            let operator = BlockToeplitz::wavefront_slope(lattice, 1, &everywhere, &valid)?;
            let entry = |row: usize, column: usize| {
                let (a, lenslet) = slope_at(&order, column);
                lattice_entry(lattice, (points, 1), (0, 0), [row / points, row % points], lenslet)
                    [a]
            };
            let evaluation = median(repeat, compute);
            Ok(compare_products(&operator, entry, (lenslets, evaluation), repeat))
        }
    }
}

// Air lenslets and star of products
/// The air, the lenslets and the star of the products.
pub(crate) fn one_star(lenslets: usize) -> Result<(Atmosphere, LensletArray, [Source; 1]), Error> {
    let atmosphere = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 30.0)])?;
    Ok((atmosphere, LensletArray::new(lenslets, 0.1)?, [Source::star(0.0, 0.0)?]))
}

// Compare the two products
/// Axis and lenslet of slope `k` of the only star.
fn slope_at(order: &SlopeOrder, k: usize) -> (usize, [usize; 2]) {
    let lenslets = order.lenslets(0);
    (k / lenslets.len(), lenslets[k % lenslets.len()])
}

/// Times the products of a Toeplitz form and of the matrix with these entries, and compares them.
fn compare_products(
    operator: &BlockToeplitz<f64>,
    entry: impl Fn(usize, usize) -> f64 + Sync,
    (lenslets, evaluation): (usize, f64),
    repeat: u32,
) -> ProductTimes {
    let (rows, columns) = (operator.rows(), operator.columns());
    let x: Vec<f64> = (0..columns).map(|k| k as f64).collect();
    let time = |operator: &dyn Operator<f64>| {
        let (mut y, mut scratch) = (vec![0.0; rows], vec![0.0; operator.scratch(1)]);
        let seconds = median(repeat, || operator.apply(&x, &mut y, &mut scratch));
        (seconds, y)
    };
    let (compressed, product) = time(operator);
    // Multiply by the dense matrix or its rows
    let fits = available_memory().is_none_or(|bytes| 4 * operator.dense_bytes() < bytes);
    let (full, expected): (Option<f64>, Vec<(usize, f64)>) = if fits {
        let mut matrix = Array2::zeros((rows, columns));
        matrix.axis_iter_mut(Axis(0)).into_par_iter().enumerate().for_each(|(row, mut entries)| {
            entries.iter_mut().enumerate().for_each(|(column, value)| *value = entry(row, column));
        });
        let (seconds, y) = time(&Dense::new(matrix));
        (Some(seconds), y.into_iter().enumerate().collect())
    } else {
        let sum = |row: usize| (row, (0..columns).map(|k| entry(row, k) * x[k]).sum());
        (None, (0..rows).into_par_iter().step_by(rows.div_ceil(200)).map(sum).collect())
    };

    // Tell the largest difference of products
    let [difference, largest] = expected
        .iter()
        .map(|&(row, value)| [(product[row] - value).abs(), value.abs()])
        .fold([0.0, 0.0], |most: [f64; 2], now| [most[0].max(now[0]), most[1].max(now[1])]);
    ProductTimes {
        lenslets,
        full,
        compressed,
        evaluation,
        difference: difference / largest,
        full_bytes: operator.dense_bytes(),
        compressed_bytes: operator.bytes(),
    }
}

// Lay out the table of products
/// The tables of the original's test program: run times of products, for slopes and for wavefront and slopes.
pub fn product_tables(slopes: &[ProductTimes], wavefront: &[ProductTimes]) -> String {
    let threads = threads();
    let mut text = format!(
        "{}, {threads} thread{}; f64, median times in milliseconds; one star, one layer\n",
        processor_name(),
        if threads == 1 { "" } else { "s" }
    );
    for (title, rows) in [("Slopes", slopes), ("Wavefront and slopes", wavefront)] {
        text += &format!(
            "\n{title}\n{:>4}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}  {:>10}\n",
            "N",
            "FULL MVM",
            "COMP MVM",
            "COMP EVAL",
            "FULL/COMP",
            "difference",
            "dense",
            "compressed"
        );
        rows.iter().for_each(|row| text += &product_row(row));
    }
    text + "\nA dash: two copies of the dense matrix do not fit into half of the memory.\n"
}

// Row of the table of products
fn product_row(row: &ProductTimes) -> String {
    let or_dash = |value: Option<f64>, digits: usize| {
        value.map_or("-".to_string(), |value| format!("{value:.digits$}"))
    };
    format!(
        "{:>4}  {:>10}  {:>10.3}  {:>10.3}  {:>10}  {:>10.1e}  {:>10}  {:>10}\n",
        row.lenslets,
        or_dash(row.full.map(|seconds| 1e3 * seconds), 3),
        1e3 * row.compressed,
        1e3 * row.evaluation,
        or_dash(row.full.map(|seconds| seconds / row.compressed), 1),
        row.difference,
        in_bytes(row.full_bytes),
        in_bytes(row.compressed_bytes)
    )
}

// Check that a bench measures
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_taken_of_the_runs() {
        let runs = std::cell::Cell::new(0);
        let pause = Duration::from_millis(2);
        let time = median(3, || {
            runs.set(runs.get() + 1);
            std::thread::sleep(pause);
        });
        assert_eq!(runs.get(), 3);
        assert!((pause.as_secs_f64()..4.0).contains(&time), "{time} s");
        assert_eq!(middle(vec![9.0, 1.0, 2.0]), 2.0);
        assert_eq!(middle(vec![3.0, 9.0, 1.0, 2.0]), 3.0);
        for (name, text) in SYSTEMS {
            assert!(System::from_toml(text, name).is_ok(), "{name}");
        }
    }

    // Check the columns of the table
    #[test]
    fn columns_stand_under_their_heads() {
        let times = Times { direct: 0.5, spectral: 2.0, original: 1234.0, difference: 1e-3 };
        let text = table(&[("a/rather/long/path.toml", times)], 1);
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].ends_with("on 1 thread."));
        assert_eq!(lines[1].len(), lines[2].len());
        assert!(lines[2].contains(" 2468 ") && lines[2].contains(" 617 "));
    }

    // Check that products are compared
    #[test]
    fn products_agree_for_small_arrays() {
        let [slopes, wavefront] = [TimedMatrix::Slopes, TimedMatrix::WavefrontSlope]
            .map(|matrix| vec![time_products(matrix, 6, 1, &crate::watch::unwatched).unwrap()]);
        for times in slopes.iter().chain(&wavefront) {
            assert!(times.difference < 1e-13 && times.full.is_some(), "{times:?}");
        }
        assert_eq!((slopes[0].full_bytes, wavefront[0].full_bytes), (8 * 72 * 72, 8 * 49 * 72));
        let mut dashed = slopes.clone();
        dashed[0].full = None;
        let text = product_tables(&dashed, &wavefront);
        let widths: Vec<_> =
            text.lines().filter(|line| line.starts_with("   ")).map(str::len).collect();
        assert!(widths.len() == 4 && widths.iter().all(|width| *width == widths[0]), "{text}");
    }
}
