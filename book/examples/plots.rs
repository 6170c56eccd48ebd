// Tangled from book/src/plots.md: edit there, or here and run cargo tangle stitch.
//! Draws the slope covariance of two systems of the book into the folder that is given.

use lenslet::device::{Engine, silent};
use lenslet::model::System;
use lenslet::plot::{Pairs, PictureFormat, plot_covariance};
use lenslet::turbulence::{SlopeCovariancePlan, slope_problem};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("which folder shall the pictures go to?")?;
    let pictures = [
        ("small.toml", Pairs::All, "covariance-small.svg"),
        ("keck-lgs.toml", Pairs::One(0, 1), "covariance-keck-lgs.svg"),
    ];
    for (name, pairs, picture) in pictures {
        let systems = Path::new(env!("CARGO_MANIFEST_DIR")).join("../systems");
        let system = System::from_file(systems.join(name))?;
        let problem = slope_problem(&system)?;
        let plan = SlopeCovariancePlan::direct(problem);
        let covariance = plan.run(&Engine::default(), &silent)?;
        let svg = plot_covariance(&covariance, plan.problem().pitch(), pairs, PictureFormat::Svg)?;
        std::fs::write(Path::new(&folder).join(picture), svg)?;
    }
    Ok(())
}
