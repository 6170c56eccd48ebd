//! Draws the structure function of von Kármán phase into the folder that is given.

use lenslet::plot::Figure;
use lenslet::turbulence::VonKarman;
use std::{error::Error, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let distances = || (0..=120).map(|k| 10f64.powf(f64::from(k) / 30.0 - 2.0));
    let curve = |outer_scale: f64| {
        let phase = VonKarman::new(outer_scale);
        distances().map(move |r| (r, phase.structure_function(r)))
    };
    let mut figure = Figure::new()
        .x_label("distance r [m]")
        .y_label("structure function D(r), r0 = 1 m [rad²]")
        .log_x()
        .log_y()
        .y_range(1e-3, 1e4)
        .dashes("Kolmogorov", curve(f64::INFINITY));
    for outer_scale in [100.0, 25.0, 10.0] {
        figure = figure.line(&format!("L0 = {outer_scale} m"), curve(outer_scale));
    }
    figure.save(folder.join("phase-structure.svg"))?;
    Ok(())
}
