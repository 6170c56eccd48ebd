//! Draws the error of the spectral method against oversampling and period into the folder that is given.

use lenslet::model::{Atmosphere, ConeGradient, Layer, LensletArray, Source};
use lenslet::turbulence::spectral::SpectralSampling;
use lenslet::turbulence::{PairCovariance, SlopeProblem, direct, spectral};
use lenslet::units::ARCSEC;
use lenslet::watch::unwatched;
use plotters::prelude::*;
use std::{env, error::Error, ops::Range, path::PathBuf};

type Failure = Box<dyn Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Chart<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<LogAxis, LogAxis>>;
type LogAxis = plotters::coord::combinators::LogCoord<f64>;

/// Four lenslets of 0.25 m, two stars 20″ apart, one layer at 5 km.
fn problem(outer_scale: f64) -> Result<SlopeProblem, Failure> {
    let (altitude, fraction, wind_speed, wind_direction) = (5e3, 1.0, 0.0, 0.0);
    let layer = Layer { altitude, fraction, outer_scale, wind_speed, wind_direction };
    let atmosphere = Atmosphere::new(0.15, 500e-9, vec![layer])?;
    let stars = [Source::star(10.0 * ARCSEC, 0.4)?, Source::star(10.0 * ARCSEC, 3.6)?];
    Ok(SlopeProblem::new(&atmosphere, &LensletArray::new(4, 0.25)?, &stars, ConeGradient::Pupil)?)
}

/// The largest error of an entry in units of the variance, and its estimate.
fn errors(
    problem: &SlopeProblem,
    exact: &[PairCovariance],
    sampling: SpectralSampling,
) -> Result<(f64, f64), Failure> {
    let spectral = spectral::slope::pair_covariances(problem, &sampling, &unwatched)?;
    let differences = spectral.iter().zip(exact).flat_map(|(one, other)| (one - other).into_iter());
    let worst = differences.fold(0.0, |worst: f64, x| worst.max(x.abs()));
    let centre = problem.lags() / 2;
    Ok((worst / exact[0][[0, centre, centre]], sampling.error_estimate(problem)))
}

/// A curve: its name, its colour, and (abscissa, error, estimate).
type Curve = (String, RGBColor, Vec<(f64, f64, f64)>);

fn against_oversampling() -> Result<Curve, Failure> {
    let problem = problem(10.0)?;
    let exact = direct::slope::pair_covariances(&problem, &unwatched)?;
    let mut points = Vec::new();
    for oversampling in [1, 2, 3, 4, 6, 8, 12, 16, 24] {
        let (error, estimate) =
            errors(&problem, &exact, SpectralSampling::new(240 * oversampling, oversampling)?)?;
        points.push((oversampling as f64, error, estimate));
    }
    Ok(("L0 = 10 m, period 60 m".into(), RGBColor(0, 114, 178), points))
}

fn against_period() -> Result<Vec<Curve>, Failure> {
    let scales = [
        (3.0, (0, 114, 178)),
        (10.0, (0, 158, 115)),
        (30.0, (230, 159, 0)),
        (f64::INFINITY, (213, 94, 0)),
    ];
    let curve = |(outer_scale, (r, g, b)): (f64, (u8, u8, u8))| {
        let problem = problem(outer_scale)?;
        let exact = direct::slope::pair_covariances(&problem, &unwatched)?;
        let mut points = Vec::new();
        for folded in [16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512] {
            let (error, estimate) =
                errors(&problem, &exact, SpectralSampling::new(8 * folded, 8)?)?;
            points.push((0.25 * folded as f64, error, estimate));
        }
        Ok((format!("L0 = {outer_scale} m").replace("inf m", "∞"), RGBColor(r, g, b), points))
    };
    scales.into_iter().map(curve).collect()
}

fn chart<'a, 'b>(area: &'b Area<'a>, x: Range<f64>, name: &str) -> Result<Chart<'a, 'b>, Failure> {
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(65)
        .build_cartesian_2d(x.log_scale(), (1e-5..1.0).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&one_two_five)
        .y_label_formatter(&|y| format!("{y:.0e}"))
        .x_desc(name)
        .y_desc("largest error / variance")
        .draw()?;
    Ok(chart)
}

/// Names 1, 2 and 5 times a power of ten, and leaves the other lines of the axis without a name.
fn one_two_five(x: &f64) -> String {
    let leading = x / 10f64.powf(x.log10().floor());
    let named = [1.0, 2.0, 5.0].iter().any(|digit| (leading - digit).abs() < 0.01);
    if named { format!("{x:.0}") } else { String::new() }
}

/// Points for errors, a line for the estimate.
fn draw(chart: &mut Chart, (name, colour, points): &Curve) -> Result<(), Failure> {
    let (colour, size) = (*colour, 3);
    let line = points.iter().map(|(x, _, estimate)| (*x, *estimate));
    chart.draw_series(LineSeries::new(line, colour.stroke_width(1)))?;
    chart
        .draw_series(
            points.iter().map(|(x, error, _)| Circle::new((*x, *error), size, colour.filled())),
        )?
        .label(name)
        .legend(move |(x, y)| Circle::new((x + 9, y), size, colour.filled()));
    Ok(())
}

fn name_series<'a: 'b, 'b>(chart: &mut Chart<'a, 'b>) -> Result<(), Failure> {
    let mut labels = chart.configure_series_labels();
    labels.position(SeriesLabelPosition::LowerLeft).border_style(BLACK).background_style(WHITE);
    Ok(labels.draw()?)
}

fn main() -> Result<(), Failure> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("sans-serif")?;
    let path = folder.join("spectral-error.svg");
    let area = SVGBackend::new(&path, (860, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(430);

    let mut oversampling = chart(&left, 0.9..30.0, "oversampling κ")?;
    draw(&mut oversampling, &against_oversampling()?)?;
    name_series(&mut oversampling)?;

    let mut period = chart(&right, 3.0..200.0, "period [m]")?;
    for curve in &against_period()? {
        draw(&mut period, curve)?;
    }
    name_series(&mut period)?;
    area.present()?;
    Ok(())
}
