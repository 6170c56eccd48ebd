// Tangled from book/src/covariance-maps.md: edit there, or here and run cargo tangle stitch.
//! Draws covariances of two systems of the book into the folder that is given.

use lenslet::device::Engine;
use lenslet::model::System;
use lenslet::plan::Plan;
use lenslet::plot::{
    CovarianceView, PictureFormat, ShownPairs, plot_covariance, plot_wavefront_covariance,
};
use lenslet::turbulence::{SlopeCovariancePlan, WavefrontCovariancePlan};
use lenslet::turbulence::{slope_problem, wavefront_problem};
use lenslet::watch::unwatched;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("which folder shall the pictures go to?")?;
    let pictures = [
        ("small.toml", None, "covariance-small.svg"),
        ("keck-lgs.toml", Some(ShownPairs::One(0, 1)), "covariance-keck-lgs.svg"),
    ];
    let folder = Path::new(&folder);
    let read = |name| {
        System::from_file(Path::new(env!("CARGO_MANIFEST_DIR")).join("../systems").join(name))
    };
    for (name, pairs, picture) in pictures {
        let system = read(name)?;
        let plan = SlopeCovariancePlan::direct(slope_problem(&system)?);
        let covariance = plan.run(&Engine::default(), &unwatched)?;
        let view = CovarianceView::of(name).pairs(pairs);
        let svg = plot_covariance(&covariance, &system, &view, PictureFormat::Svg)?;
        std::fs::write(folder.join(picture), svg)?;
    }
    // Draw wavefronts with slopes
    let name = "keck-lgs.toml";
    let system = read(name)?;
    let plan = WavefrontCovariancePlan::direct(wavefront_problem(&system)?);
    let covariance = plan.run(&Engine::default(), &unwatched)?;
    let (view, both) = (CovarianceView::of(name), (plan.problem(), &covariance));
    let svg = plot_wavefront_covariance(both, &system, &view, PictureFormat::Svg)?;
    std::fs::write(folder.join("covariance-keck-wavefront.svg"), svg)?;
    Ok(())
}
