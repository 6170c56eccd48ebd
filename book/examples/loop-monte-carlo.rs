//! Simulates the loop of a small system in many turbulence realisations, and draws the star's profile and the parts of the
//! residual wavefront next to the computed ones, into the given folder.

use lenslet::device::Engine;
use lenslet::model::SystemFile;
use lenslet::plan::Plan;
use lenslet::plot::{Figure, PictureFormat, plot_budgets};
use lenslet::psf::{
    Budget, ErrorTerm, LoopFrame, LoopSimulation, PointSpread, PsfOptions, PsfPlan,
};
use lenslet::units::ARCSEC;
use lenslet::watch::unwatched;
use rayon::prelude::*;
use std::{error::Error, path::Path, path::PathBuf};

const SYSTEM: &str = "book/systems/small-moao.toml";

/// Number of turbulence realisations, unless the second argument gives another.
const REALISATIONS: u64 = 150;

/// The target of the figures: the one off the axis.
const TARGET: usize = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().ok_or("the output folder is missing")?);
    let count = args.next().map_or(Ok(REALISATIONS), |count| count.parse())?;
    let file = SystemFile::from_file(SYSTEM)?;
    let (system, mut options) = (file.system()?, PsfOptions::from_system_file(&file)?);
    // Terms as if they were independent, each of which is compared with a part of the residual.
    options.image.terms =
        Some(vec![ErrorTerm::Tomography, ErrorTerm::Fitting, ErrorTerm::ServoLag]);
    let foretold = PsfPlan::new(&system, options.clone())?.run(&Engine::default(), &unwatched)?;
    let simulation = LoopSimulation::new(&system, &options, 6)?;
    let realisations = (1..=count).into_par_iter().map(|seed| simulation.realisation(seed));
    let realisations: Vec<LoopFrame> = realisations
        .map(|seen| seen.map(|mut seen| seen.swap_remove(TARGET)))
        .collect::<Result<_, _>>()?;
    let foretold = &foretold.targets[TARGET];
    let (image, budget) = (&foretold.exposures[0].image, &foretold.budget);
    tell(&realisations, budget, image);
    profile(&realisations, image, &folder.join("loop-monte-carlo.svg"))?;
    bars(&realisations, budget, &folder.join("loop-monte-carlo-budget.svg"))
}

/// A mean over realisations and its standard error.
fn mean(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let values: Vec<f64> = values.collect();
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let square = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    [mean, (square / (count - 1.0) / count).sqrt()]
}

/// Prints variances and covariances of the parts, in nm².
fn tell(realisations: &[LoopFrame], budget: &Budget, image: &PointSpread) {
    let of = |value: &dyn Fn(&LoopFrame) -> f64| mean(realisations.iter().map(value));
    for (j, part) in LoopFrame::PARTS.iter().enumerate() {
        let told = budget.terms()[j].variance * 1e18;
        for k in j..3 {
            let by = |seen: fn(&LoopFrame) -> &[[f64; 3]; 3]| of(&|one| 1e18 * seen(one)[j][k]);
            let ([slopes, e], [eye, f]) = (by(|seen| &seen.by_slopes), by(|seen| &seen.by_eye));
            let other = LoopFrame::PARTS[k];
            println!(
                "{part} {other}: truth sensor {slopes:.0} ± {e:.0}, direct fit {eye:.0} ± {f:.0}, budget {told:.0}"
            );
        }
    }
    let [whole, error] = of(&|one| 1e18 * one.variance());
    println!("whole {whole:.0} ± {error:.0}, budget {:.0}", 1e18 * budget.total().powi(2));
    let [strehl, error] = of(&|one| one.transfers[0].strehl());
    println!("Strehl {strehl:.4} ± {error:.4}, computed {:.4}", image.strehl);
}

/// Profile of the star: computed, and the mean over realisations.
fn profile(
    realisations: &[LoopFrame],
    image: &PointSpread,
    path: &Path,
) -> Result<(), Box<dyn Error>> {
    let seen = |one: &LoopFrame| one.transfers[0].point_spread(image.pixel, 97);
    let images = realisations.iter().map(seen).collect::<Result<Vec<_>, _>>()?;
    let rings: Vec<_> = images.iter().map(PointSpread::rings).collect();
    let mas = |radius: f64| 1e3 * radius / ARCSEC;
    let points = (0..rings[0].len()).map(|k| {
        let light = rings.iter().zip(&images).map(|(rings, image)| rings[k].mean * image.strehl);
        let [light, error] = mean(light);
        (mas(rings[0][k].radius), light, error)
    });
    let curve = image.rings().into_iter().map(|ring| (mas(ring.radius), ring.mean * image.strehl));
    let figure = Figure::new()
        .x_label("distance from the star [mas]")
        .y_label("light, of a perfect star's middle")
        .log_y()
        .x_range(-10.0, 720.0)
        .y_range(3e-4, 1.0)
        .line("computed", curve)
        .points_with_errors(&format!("mean of {} realisations", realisations.len()), points);
    Ok(figure.save(path)?)
}

/// Terms of the budget, and the parts of the simulated residual by the truth sensor and by a direct fit.
fn bars(realisations: &[LoopFrame], budget: &Budget, path: &Path) -> Result<(), Box<dyn Error>> {
    let parts = |of: fn(&LoopFrame) -> &[[f64; 3]; 3]| {
        let part = |k: usize| mean(realisations.iter().map(|one| of(one)[k][k]))[0];
        let mut found = Budget::default();
        for (k, term) in budget.terms().iter().enumerate() {
            found = found.with(&term.name, part(k))?;
        }
        Ok::<_, Box<dyn Error>>(found)
    };
    let [sensor, eye] = [parts(|seen| &seen.by_slopes)?, parts(|seen| &seen.by_eye)?];
    let whole = mean(realisations.iter().map(LoopFrame::variance))[0].sqrt();
    let bars =
        [("computed", budget), ("loop, by truth sensor", &sensor), ("loop, by direct fit", &eye)];
    let title = format!("simulated residual wavefront: {:.0} nm", 1e9 * whole);
    Ok(std::fs::write(path, plot_budgets(&bars, &title, PictureFormat::Svg)?)?)
}
