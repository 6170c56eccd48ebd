//! Draws the memory of the slope covariance, dense and as spectra, into the folder that is given.

use lenslet::linear::{BlockToeplitz, Operator};
use lenslet::model::{Atmosphere, ConeGradient, Layer, LensletArray, Source};
use lenslet::plot::Figure;
use lenslet::turbulence::{SlopeCovariance, SlopeProblem};
use ndarray::{Array2, Array3};
use std::{error::Error, path::PathBuf};

/// Gigabytes of the dense matrix and of the operator. Their sizes do not depend on the covariances, which are zero here.
fn gigabytes(sources: usize, lenslets: usize) -> Result<[f64; 2], lenslet::Error> {
    let (altitude, fraction, outer_scale, wind_speed, wind_direction) = (0.0, 1.0, 25.0, 0.0, 0.0);
    let layer = Layer { altitude, fraction, outer_scale, wind_speed, wind_direction };
    let atmosphere = Atmosphere::new(0.15, 500e-9, vec![layer])?;
    let stars = vec![Source::star(0.0, 0.0)?; sources];
    let array = LensletArray::new(lenslets, 0.5)?;
    let problem = SlopeProblem::new(&atmosphere, &array, &stars, ConeGradient::Pupil)?;
    let nothing = Array3::zeros((3, problem.lags(), problem.lags()));
    let pairs = vec![nothing; problem.pairs().len()];
    let covariance = SlopeCovariance::from_pairs(&problem, &pairs);
    let valid = vec![Array2::from_elem((lenslets, lenslets), true); sources];
    let operator = BlockToeplitz::<f64>::slopes(&covariance, &valid)?;
    Ok([operator.dense_bytes(), operator.bytes()].map(|bytes| bytes as f64 / 1e9))
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let lenslets: Vec<usize> = (5..=20).map(|k| 4 * k).chain((11..=15).map(|k| 8 * k)).collect();
    let mut figure = Figure::new()
        .x_label("lenslets across an array, N")
        .y_label("memory in double precision, GB")
        .log_x()
        .log_y();
    for (sources, name) in [(6, "six stars"), (1, "one star")] {
        let sizes: Result<Vec<_>, _> = lenslets.iter().map(|&n| gigabytes(sources, n)).collect();
        let sizes = sizes?;
        let curve =
            |k: usize| lenslets.iter().zip(&sizes).map(move |(&n, size)| (n as f64, size[k]));
        figure = figure
            .dashes(&format!("{name}, dense"), curve(0))
            .line(&format!("{name}, spectra"), curve(1));
    }
    figure.save(folder.join("toeplitz-memory.svg"))?;
    Ok(())
}
