//! Draws the samples of one bin of the folded spectrum, and who adds them up, into the folder that is given.

use lenslet::plot::Figure;
use lenslet::turbulence::spectral::SpectralSampling;
use std::{error::Error, path::PathBuf};

/// Threads that share a bin, as in `kernels/turbulence/spectral.cu`.
const PARTS: usize = 4;

/// The bin that is drawn, (i, j).
const BIN: [i64; 2] = [100, 35];

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let sampling = SpectralSampling::new(2520, 14)?;
    let (half, folded) = (sampling.samples() as i64 / 2, sampling.folded() as i64);
    let samples = |bin: i64| {
        let first = (bin + half) % folded - half;
        (first..=half).step_by(folded as usize).map(|n| n as f64).collect::<Vec<_>>()
    };
    let [columns, rows] = BIN.map(samples);
    let square = |low: i64, high: i64| {
        [(low, low), (high, low), (high, high), (low, high), (low, low)]
            .map(|(n, m)| (n as f64, m as f64))
    };
    let mut figure = Figure::new()
        .x_label("frequency along x, n")
        .y_label("frequency along y, m")
        .x_range(-1300.0, 2880.0) // as many frequencies to an inch as along y
        .y_range(-1300.0, 1300.0)
        .line("plane of the samples", square(-half, half))
        .dashes("folded plane", square(0, folded));
    for part in 0..PARTS {
        let of_part = rows.iter().skip(part).step_by(PARTS);
        let points = of_part.flat_map(|&m| columns.iter().map(move |&n| (n, m)));
        figure = figure.points(&format!("part {part}"), points);
    }
    figure.save(folder.join("spectral-gpu-bin.svg"))?;
    Ok(())
}
