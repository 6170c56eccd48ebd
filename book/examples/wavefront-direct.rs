//! Draws cuts through the wavefront–slope covariance of one layer into the folder that is given.

use lenslet::model::{Atmosphere, ConeGradient, Layer, LensletArray, PhaseGrid, Source};
use lenslet::plot::Figure;
use lenslet::turbulence::{WavefrontProblem, direct};
use lenslet::watch::unwatched;
use std::{error::Error, path::PathBuf};

const ALTITUDE: f64 = 10e3;
const PITCH: f64 = 0.5;

/// Points of ⟨w s_x⟩ along x, displacement in metres and covariance in m rad, for a disc of that radius in metres.
fn cut(disc: f64) -> Result<Vec<(f64, f64)>, lenslet::Error> {
    let atmosphere = Atmosphere::new(0.15, 500e-9, vec![Layer::new(ALTITUDE, 1.0, 25.0)])?;
    let star = [Source::star(0.0, 0.0)?];
    let array = LensletArray::new(17, PITCH)?;
    let grid = PhaseGrid::new(4, 4, disc / ALTITUDE)?;
    let sources: (&[Source], &[Source]) = (&star, &star);
    let problem = WavefrontProblem::new(&atmosphere, &array, sources, grid, ConeGradient::Pupil)?;
    let layer = problem.layers()[0];
    let covariance = direct::wavefront::covariance(&problem, &unwatched)?;
    let (lattice, lags) = (&covariance.lattices()[0], problem.lags(&layer));
    let first = problem.first_lag(&layer, 0, 0)[0];
    let at = |i: usize| (first + i as f64 * layer.step, lattice[[0, 0, 0, lags / 2, i]]);
    Ok((0..lags).map(at).collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let scale = |(x, c): (f64, f64)| (x, 1e13 * c);
    let mut figure = Figure::new()
        .x_label("lenslet minus wavefront point, along x [m]")
        .y_label("covariance with the x slope [1e-13 m rad]");
    for (name, disc) in [("at a point", 0.0), ("disc of 1 m", 1.0), ("disc of 2.5 m", 2.5)] {
        figure = figure.line(name, cut(disc)?.into_iter().map(scale));
    }
    figure.save(folder.join("wavefront-direct.svg"))?;
    Ok(())
}
