// Tangled from book/src/benchmarks.md: edit there, or here and run cargo tangle stitch.
//! Run times of both methods, beside the original algorithm's.

use crate::covariance::{Method, slope_covariance, slope_problem};
use crate::device::silent;
use crate::error::Error;
use crate::spectral::{SpectralSampling, original_component};
use crate::system::System;
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
    ("small", include_str!("../book/systems/small.toml")),
    ("keck-lgs", include_str!("../book/systems/keck-lgs.toml")),
    ("elt", include_str!("../book/systems/elt.toml")),
];

// Time both methods and the original
/// Times the slope covariance of a system, as the median of at most `repeat` runs.
///
/// # Errors
/// Those of [`slope_covariance`].
pub fn time_covariance(system: &System, repeat: u32) -> Result<Times, Error> {
    let problem = slope_problem(system)?;
    let sampling = SpectralSampling::original();
    let compute = |method: Method| slope_covariance(&problem, &method, &silent);
    let (exact, approximate) = (compute(Method::Direct)?, compute(Method::Spectral(sampling))?);
    let differences = exact.values().iter().zip(approximate.values()).map(|(a, b)| (a - b).abs());
    let difference = differences.fold(0.0, f64::max) / exact.variance();
    drop((exact, approximate));
    let blocks = 4 * problem.sources().pow(2);
    let last = problem.sources() - 1;
    Ok(Times {
        direct: median(repeat, || compute(Method::Direct)),
        spectral: median(repeat, || compute(Method::Spectral(sampling))),
        original: blocks as f64
            * median(repeat, || original_component(&problem, 0, last, 0, 0, &sampling)),
        difference,
    })
}

// Take the median time
/// The median duration of at most `repeat` runs, at least one, in seconds.
fn median<T>(repeat: u32, work: impl Fn() -> T) -> f64 {
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
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
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

// Check that a bench measures
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_taken_of_the_runs() {
        let runs = std::cell::Cell::new(0);
        let time = median(3, || runs.set(runs.get() + 1));
        assert_eq!(runs.get(), 3);
        assert!((0.0..1.0).contains(&time));
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
}
