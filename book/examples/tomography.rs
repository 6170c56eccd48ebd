//! Draws the figures of the chapters on tomography into the folder that is given.

use lenslet::device::Engine;
use lenslet::estimation::Inversion;
use lenslet::linear::Eigen;
use lenslet::model::{GuideStar, LensletArray, Noise, PhaseGrid, Source, System};
use lenslet::plan::Plan;
use lenslet::plot::{
    ColourScale, Figure, PictureFormat, WavefrontMap, plot_reconstructor, plot_spectrum,
    plot_wavefront_errors,
};
use lenslet::tomography::{
    CovarianceMatrices, PointErrorsPlan, ReconstructedQuantity, ReconstructorOptions,
    ReconstructorPlan, WavefrontError,
};
use lenslet::units::{ARCSEC, DEGREE};
use lenslet::watch::unwatched;
use ndarray::{Array2, Axis};
use plotters::prelude::*;
use std::{error::Error, path::Path, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let small = System::from_file("book/systems/small-moao.toml")?;
    spectra(&small, &folder.join("factorisations.svg"))?;
    beams(&folder.join("covariance-matrices.svg"))?;
    over_the_field(&small, &folder.join("reconstructor.svg"))?;
    maps(&small, &folder.join("tomographic-error.svg"))?;
    points(&folder.join("point-errors.svg"))?;
    matrices(&small, &folder)
}

/// The error at every point of a wavefront behind four laser stars, with tilt and without; lenslets of 1 m keep it quick.
fn points(path: &Path) -> Result<(), Box<dyn Error>> {
    let keck = System::from_file("book/systems/keck-lgs.toml")?;
    let (grid, target) = (PhaseGrid::new(11, 1, 0.0)?, keck.targets()[1]);
    let array = LensletArray::new(10, 1.0)?;
    let stars = keck.guide_stars().iter();
    let stars: Result<Vec<GuideStar>, lenslet::Invalid> = stars
        .map(|star| GuideStar::at_rest(star.sensor.source, array, star.noise.mean()))
        .collect();
    let keck = System::builder(keck.atmosphere().clone(), array)
        .pupil(keck.pupil().copied())
        .guide_stars(stars?)
        .phase(Some(grid))
        .targets([target])
        .build()?;
    let options =
        ReconstructorOptions::default().to(ReconstructedQuantity::Wavefront).errors_only(true);
    let plan = PointErrorsPlan::new(&keck, options.tolerance(1e-2))?;
    let error = &plan.run(&Engine::default(), &unwatched)?.in_pupil(&keck)?[0];
    let map = |name: &str, rms: f64, values: &Array2<f64>| WavefrontMap {
        title: format!("{name}: {:.0} nm rms", 1e9 * rms),
        values: values.mapv(f64::sqrt),
    };
    let maps = [
        map("with tilt", error.rms, &error.variance),
        map("without", error.rms_without_tilt, &error.variance_without_tilt),
    ];
    let title = "keck-lgs.toml off the axis, with 10 lenslets across";
    let drawn = plot_wavefront_errors(&maps, title, keck.wavefront_pitch(), PictureFormat::Svg)?;
    Ok(std::fs::write(path, drawn)?)
}

/// The same system with slopes of all stars that have a noise of this variance, rad².
fn with_noise(system: &System, noise: f64) -> Result<System, Box<dyn Error>> {
    let noise = Noise::uniform(noise)?;
    let star = |star: &GuideStar| GuideStar { noise: noise.clone(), ..star.clone() };
    Ok(system.to_builder().guide_stars(system.guide_stars().iter().map(star)).build()?)
}

fn spectra(small: &System, path: &Path) -> Result<(), Box<dyn Error>> {
    let without = with_noise(small, 0.0)?;
    let stars = without.guide_stars();
    let twice: Vec<GuideStar> = [&stars[0], &stars[1], &stars[1]].map(Clone::clone).to_vec();
    let twice = without.to_builder().guide_stars(twice).build()?;
    let mut figure =
        Figure::new().log_y().x_label("eigenvalue").y_label("rad²").y_range(1e-30, 1e-8);
    for (name, system) in [
        ("with noise of 2·10⁻¹⁴ rad²", with_noise(small, 2e-14)?),
        ("without noise", without),
        ("without noise, two sensors alike", twice),
    ] {
        let covariances = CovarianceMatrices::of(&system, &unwatched)?;
        let values = Eigen::new(&covariances.measurements)?.values().to_vec();
        let largest_first = values.iter().rev().enumerate().filter(|(_, value)| **value > 0.0);
        figure = figure.line(name, largest_first.map(|(k, value)| (k as f64 + 1.0, *value)));
    }
    Ok(figure.save(path)?)
}

/// Beams of a target and two guide stars through the air, seen from the side.
fn beams(path: &Path) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, (640, 360)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(-9.0..9.0, 0.0..14.0)?;
    chart.configure_mesh().disable_mesh().x_desc("x [m]").y_desc("altitude [km]").draw()?;
    let blue = RGBColor(0, 114, 178);
    for (tilt, colour) in [(-0.35, blue), (0.35, blue), (0.05, RGBColor(213, 94, 0))] {
        let edge = |x: f64, h: f64| (x + tilt * h, h);
        let beam = vec![edge(-2.0, 0.0), edge(2.0, 0.0), edge(2.0, 13.5), edge(-2.0, 13.5)];
        chart.draw_series([Polygon::new(beam.clone(), colour.mix(0.25))])?;
        let outline: Vec<(f64, f64)> = beam.iter().chain(&beam[..1]).copied().collect();
        chart.draw_series([PathElement::new(outline, colour.stroke_width(2))])?;
    }
    for layer in [0.05, 4.5, 11.0] {
        let line = vec![(-9.0, layer), (9.0, layer)];
        chart.draw_series([PathElement::new(line, BLACK.mix(0.5).stroke_width(2))])?;
    }
    area.present()?;
    Ok(())
}

/// The error of a target over its distance from the middle of three natural stars, for an instrument of 8 m.
fn over_the_field(small: &System, path: &Path) -> Result<(), Box<dyn Error>> {
    let array = LensletArray::new(16, 0.5)?;
    let star = |azimuth: f64| {
        GuideStar::at_rest(Source::star(40.0 * ARCSEC, azimuth * DEGREE)?, array, 1e-14)
    };
    let distances: Vec<f64> = (0..9).map(|k| 10.0 * k as f64).collect();
    let target = |&zenith: &f64| Source::star(zenith * ARCSEC, 60.0 * DEGREE);
    let targets: Result<Vec<Source>, lenslet::Invalid> = distances.iter().map(target).collect();
    let system = System::builder(small.atmosphere().clone(), array)
        .pupil(Some(lenslet::model::Pupil::new(8.0, 0.25)?))
        .guide_stars([star(0.0)?, star(120.0)?, star(240.0)?])
        .targets(targets?)
        .build()?;
    let errors = errors(&system)?;
    let of = |rms: fn(&WavefrontError) -> f64| -> Vec<(f64, f64)> {
        distances.iter().zip(&errors).map(|(x, error)| (*x, 1e9 * rms(error))).collect()
    };
    let figure = Figure::new()
        .x_label("distance of the target [arcsec]")
        .y_label("error of the wavefront [nm rms]")
        .line("with tilt", of(|error| error.rms))
        .line("without tilt", of(|error| error.rms_without_tilt));
    Ok(figure.save(path)?)
}

fn errors(system: &System) -> Result<Vec<WavefrontError>, Box<dyn Error>> {
    let plan = ReconstructorPlan::new(system, ReconstructorOptions::default())?;
    let found = plan.run(&Engine::default(), &unwatched)?;
    Ok(found.wavefront_errors(system)?)
}

fn maps(small: &System, path: &Path) -> Result<(), Box<dyn Error>> {
    let errors = errors(small)?;
    let error = errors.last().ok_or("no target")?;
    let map = |name: &str, variance: &Array2<f64>, rms: f64| WavefrontMap {
        title: format!("{name}: {:.0} nm rms", 1e9 * rms),
        values: variance.mapv(|variance| variance.max(0.0).sqrt()),
    };
    let maps = [
        map("with tilt", &error.variance, error.rms),
        map("without tilt", &error.variance_without_tilt, error.rms_without_tilt),
    ];
    let step = small.truth_sensor().pitch();
    let picture =
        plot_wavefront_errors(&maps, "small-moao.toml, target 1", step, PictureFormat::Svg)?;
    std::fs::write(path, picture)?;
    Ok(())
}

/// The reconstructor of the first target, and the spectrum that a filter divides.
fn matrices(small: &System, folder: &Path) -> Result<(), Box<dyn Error>> {
    let filtered = ReconstructorOptions::default().method(Inversion::Eigen).filter(3e-3);
    let plan = ReconstructorPlan::new(small, filtered)?;
    let (values, kept) = plan.run(&Engine::default(), &unwatched)?.spectrum.ok_or("no spectrum")?;
    let title = "small-moao.toml: covariance of the measurements";
    let picture =
        plot_spectrum(&values, kept, plan.filter(&Engine::default()), title, PictureFormat::Svg)?;
    std::fs::write(folder.join("reconstructor-spectrum.svg"), picture)?;

    let plan = ReconstructorPlan::new(small, ReconstructorOptions::default())?;
    let found = plan.run(&Engine::default(), &unwatched)?;
    let title = "small-moao.toml: reconstructor of target 0";
    let reconstructor = found.reconstructor.ok_or("a plan without errors_only keeps it")?;
    let matrix = reconstructor.index_axis(Axis(0), 0);
    let picture = plot_reconstructor(&matrix, small, title, ColourScale::Root, PictureFormat::Svg)?;
    std::fs::write(folder.join("reconstructor-blocks.svg"), picture)?;
    Ok(())
}
