// Tangled from book/src/plots.md: edit there, or here and run cargo tangle stitch.
//! Draws the slope covariance of two systems of the book into the folder that is given.

use lenslet::covariance::{Method, slope_covariance, slope_problem};
use lenslet::device::silent;
use lenslet::plot::{Format, Pairs, plot_covariance};
use lenslet::system::System;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("which folder shall the pictures go to?")?;
    for (name, pairs) in [("small", Pairs::All), ("keck-lgs", Pairs::One(0, 1))] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let system = System::from_file(root.join(format!("book/systems/{name}.toml")))?;
        let problem = slope_problem(&system)?;
        let covariance = slope_covariance(&problem, &Method::Direct, &silent)?;
        let picture = plot_covariance(&covariance, problem.pitch(), pairs, Format::Svg)?;
        std::fs::write(Path::new(&folder).join(format!("covariance-{name}.svg")), picture)?;
    }
    Ok(())
}
