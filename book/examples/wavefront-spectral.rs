//! Draws the error of the spectral wavefront–slope covariance against oversampling and period into the folder that is given.

use lenslet::model::{Atmosphere, ConeGradient, Layer, LensletArray, PhaseGrid, Source};
use lenslet::plot::Figure;
use lenslet::turbulence::spectral::SpectralSampling;
use lenslet::turbulence::{WavefrontProblem, WavefrontSlope, direct, spectral};
use lenslet::units::ARCSEC;
use lenslet::watch::unwatched;
use std::{error::Error, path::PathBuf};

type Failure = Box<dyn Error>;

/// Four lenslets of 0.5 m with 9 x 9 points, two to a lenslet; one layer at 5 km; a target on the axis and a star beside it.
fn problem(outer_scale: f64, (zenith, height): (f64, f64)) -> Result<WavefrontProblem, Failure> {
    let atmosphere = Atmosphere::new(0.15, 500e-9, vec![Layer::new(5e3, 1.0, outer_scale)])?;
    let star = [Source::new(zenith * ARCSEC, 0.4, height)?];
    let target = [Source::star(0.0, 0.0)?];
    let (array, grid) = (LensletArray::new(4, 0.5)?, PhaseGrid::new(9, 2, 0.0)?);
    let sources = (&target[..], &star[..]);
    Ok(WavefrontProblem::new(&atmosphere, &array, sources, grid, ConeGradient::Pupil)?)
}

/// The largest error of an entry in units of the largest entry, and its estimate.
fn errors(
    problem: &WavefrontProblem,
    exact: &WavefrontSlope,
    (folded, oversampling): (usize, usize),
) -> Result<(f64, f64), Failure> {
    let sampling = SpectralSampling::new(folded * oversampling, oversampling)?;
    let spectral = spectral::wavefront::covariance(problem, &sampling, &unwatched)?;
    let pairs = spectral.lattices().iter().flatten().zip(exact.lattices().iter().flatten());
    let worst = pairs.fold(0.0, |worst: f64, (x, y)| worst.max((x - y).abs()));
    Ok((worst / exact.largest(), spectral::wavefront::error_estimate(problem, &sampling)))
}

/// Points of (abscissa, (error, estimate)): the errors.
fn errors_of(points: &[(f64, (f64, f64))]) -> Vec<(f64, f64)> {
    points.iter().map(|(x, (error, _))| (*x, *error)).collect()
}

/// Points of (abscissa, (error, estimate)): the estimates.
fn estimates_of(points: &[(f64, (f64, f64))]) -> Vec<(f64, f64)> {
    points.iter().map(|(x, (_, estimate))| (*x, *estimate)).collect()
}

fn against_oversampling() -> Result<Figure, Failure> {
    let mut figure = Figure::new().x_label("samples per side of a lenslet, κo").log_x();
    let stars = [("star on the axis", 0.0, f64::INFINITY), ("laser star at 20″", 20.0, 90e3)];
    for (name, zenith, height) in stars {
        let problem = problem(10.0, (zenith, height))?;
        let exact = direct::wavefront::covariance(&problem, &unwatched)?;
        let mut points = Vec::new();
        for oversampling in [1, 2, 3, 4, 6, 8, 12] {
            let both = errors(&problem, &exact, (240, oversampling))?;
            points.push((2.0 * oversampling as f64, both));
        }
        figure = figure.points(name, errors_of(&points));
        if zenith == 0.0 {
            figure = figure.line("estimate", estimates_of(&points));
        }
    }
    Ok(figure)
}

fn against_period() -> Result<Figure, Failure> {
    let mut figure = Figure::new().x_label("period [m]").log_x();
    for outer_scale in [3.0, 30.0, f64::INFINITY] {
        let problem = problem(outer_scale, (0.0, f64::INFINITY))?;
        let exact = direct::wavefront::covariance(&problem, &unwatched)?;
        let mut points = Vec::new();
        for folded in [16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512] {
            points.push((0.25 * folded as f64, errors(&problem, &exact, (folded, 6))?));
        }
        let name = format!("L0 = {outer_scale} m").replace("inf m", "∞");
        figure = figure.points(&name, errors_of(&points));
        figure = figure.line(&format!("{name}, estimate"), estimates_of(&points));
    }
    Ok(figure)
}

fn main() -> Result<(), Failure> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    for (name, figure) in [
        ("wavefront-spectral-truncation.svg", against_oversampling()?),
        ("wavefront-spectral-period.svg", against_period()?),
    ] {
        let figure = figure.y_label("largest error / largest entry").log_y().y_range(1e-6, 1.0);
        figure.save(folder.join(name))?;
    }
    Ok(())
}
