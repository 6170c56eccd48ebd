// Tangled from book/src/bench-frames.md: edit there, or here and run cargo tangle stitch.
//! Run times of frames with a stored reconstructor, one by one and in batches.

// Imports of timing frames
use crate::device::engine::Engine;
use crate::error::{Error, accept, in_bytes};
use crate::estimation::matrix_estimator::{
    FrameProduct, ReconstructorMatrix, multiply_frames, products,
};
use crate::numerics::real::{Precision, Real};
use crate::plan::Memory;
use crate::watch::{Watch, check};
use ndarray::{Array2, Array3, ArrayView2, Axis, s};
use rayon::prelude::*;
use serde::Serialize;
use std::time::Instant;

// Times of frames
/// How long frames take with a reconstructor in memory, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FrameTimes {
    /// Rows of the reconstructor, and slopes of a frame.
    pub rows: usize,
    /// Slopes of a frame.
    pub slopes: usize,
    /// Bytes of the reconstructor where it is multiplied.
    pub bytes: u64,
    /// Frames that are multiplied together.
    pub frames: usize,
    /// The matrix to where it is multiplied.
    pub prepare: f64,
    /// A single frame, from its slopes to its product on the host.
    pub single: f64,
    /// A frame of those that are multiplied together.
    pub together: f64,
}

// Rates of frames
impl FrameTimes {
    /// Bytes of the matrix that a single frame reads in a second.
    pub fn bandwidth(&self) -> f64 {
        self.bytes as f64 / self.single
    }

    /// Multiplications with their additions of frames together, in a second.
    pub fn multiplications(&self) -> f64 {
        (self.rows * self.slopes) as f64 / self.together
    }
}

// Time frames one by one and together
/// Runs of a single frame at least.
const SINGLE_RUNS: u32 = 20;

/// Times frames with a reconstructor of so many rows and columns: single ones and so many together; medians of some repetitions.
///
/// # Errors
/// `Invalid` for sizes that are 0; `Memory` where matrix and frames do not fit; `Cancelled` where the watcher wants to stop; what a device says.
pub fn time_frames(
    [rows, n]: [usize; 2],
    frames: usize,
    (engine, repeat): (&Engine, u32),
    watch: &dyn Watch,
) -> Result<FrameTimes, Error> {
    // Check the sizes of a benchmark
    for (name, size) in [("rows", rows), ("slopes", n), ("frames", frames)] {
        accept(size > 0, name, size, "at least 1")?;
    }
    let size = if engine.precision() == Precision::F64 { 8 } else { 4 };
    let bytes = size * (rows as u64).saturating_mul(n as u64);
    let host = bytes.saturating_add(8 * (frames as u64).saturating_mul((rows + n) as u64));
    let devices = ReconstructorMatrix::bytes_on_devices([rows, n], engine);
    Memory { host, devices }.check(engine, "the benchmark of a reconstructor")?;
    // Matrix of a benchmark
    let matrix = match engine.precision() {
        Precision::F64 => ReconstructorMatrix::from(patternless::<f64>([rows, n])),
        Precision::F32 => ReconstructorMatrix::from(patternless::<f32>([rows, n])),
    };
    let slopes = patternless::<f64>([frames, n]).index_axis_move(Axis(0), 0);
    let start = Instant::now();
    let workers = products(&matrix, engine)?;
    let prepare = start.elapsed().as_secs_f64();
    let time = |slopes: ArrayView2<f64>, runs| median((&workers, rows), slopes, runs, watch);
    let single = time(slopes.slice(s![..1, ..]), repeat.max(SINGLE_RUNS))?;
    let together = time(slopes.view(), repeat)? / frames as f64;
    Ok(FrameTimes { rows, slopes: n, bytes, frames, prepare, single, together })
}

// Median time of some frames
/// Numbers between -1 and 1 without a pattern, in one set of rows.
fn patternless<T: Real>([rows, n]: [usize; 2]) -> Array3<T> {
    let number = |k: usize| {
        let mixed = (k as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        T::of((mixed >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
    };
    let numbers: Vec<T> = (0..rows * n).into_par_iter().map(number).collect();
    Array3::from_shape_vec((1, rows, n), numbers).unwrap_or_else(|_| unreachable!("same length"))
}

/// The median time of all frames of slopes, after a run that does not count.
fn median(
    (workers, rows): (&[Box<dyn FrameProduct>], usize),
    slopes: ArrayView2<f64>,
    runs: u32,
    watch: &dyn Watch,
) -> Result<f64, Error> {
    let mut times = Vec::new();
    for _ in 0..=runs {
        check(watch)?;
        let start = Instant::now();
        let products: Array2<f64> = multiply_frames(workers, slopes, rows, "products", watch)?;
        times.push(start.elapsed().as_secs_f64());
        drop(std::hint::black_box(products));
    }
    times.remove(0);
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

// Table of frames
/// The table of some times, measured on an engine.
pub fn frame_table(times: &FrameTimes, engine: &str) -> String {
    let FrameTimes { rows, slopes, bytes, frames, prepare, single, together } = times;
    let milliseconds = |seconds: f64| format!("{:>10.4} ms", 1e3 * seconds);
    format!(
        "Frames with a reconstructor in memory; median times on {engine}.\n\
         {rows} × {slopes} elements, {}\n\
         {:22}{}\n{:22}{}, {:.0} GB/s\n{:22}{}, {:.1} × 10⁹ multiplications a second\n",
        in_bytes(*bytes),
        "matrix to its place",
        milliseconds(*prepare),
        "one frame",
        milliseconds(*single),
        1e-9 * times.bandwidth(),
        format!("each of {frames}"),
        milliseconds(*together),
        1e-9 * times.multiplications(),
    )
}

// Tests of timed frames
#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::unwatched;

    #[test]
    fn frames_are_timed_alone_and_together() {
        for precision in [Precision::F64, Precision::F32] {
            let engine = Engine::cpu(precision);
            let times = time_frames([700, 900], 64, (&engine, 3), &unwatched).unwrap();
            let size = if precision == Precision::F64 { 8 } else { 4 };
            assert_eq!(times.bytes, size * 700 * 900);
            assert!(times.single > 0.0 && times.together > 0.0);
            let table = frame_table(&times, "2 threads");
            assert!(
                table.contains("700 × 900 elements") && table.contains("each of 64"),
                "{table}"
            );
        }
        let refused = time_frames([0, 900], 64, (&Engine::default(), 3), &unwatched);
        assert!(refused.unwrap_err().to_string().starts_with("rows = 0"));
        let huge = time_frames([1 << 30, 1 << 20], 1, (&Engine::default(), 1), &unwatched);
        assert!(matches!(huge, Err(Error::Memory { .. })));
    }

    #[test]
    fn numbers_have_no_pattern() {
        let numbers = patternless::<f64>([50, 40]);
        let mean = numbers.mean().unwrap_or(1.0);
        let variance = numbers.fold(0.0, |sum, x| sum + x * x) / 2000.0;
        assert!(mean.abs() < 0.05 && (variance - 1.0 / 3.0).abs() < 0.05, "{mean} {variance}");
    }
}
