//! Draws the slope of half the structure function of the averaged phase, and what an average over a disc loses, into the folder that is given.

use lenslet::plot::Figure;
use lenslet::turbulence::{DiscAverage, VonKarman};
use std::{error::Error, path::PathBuf};

/// The slope of half the structure function against the distance, for a point and for discs.
fn slopes() -> Figure {
    let phase = VonKarman::new(25.0);
    let curve = |radius| {
        let average = DiscAverage::new(&phase, radius, 5.0);
        (0..=250).map(f64::from).map(move |k| (0.02 * k, average.half_structure_slope(0.02 * k)))
    };
    let mut figure = Figure::new()
        .x_label("distance r [m]")
        .y_label("slope of half the structure function, r0 = 1 m [rad² m⁻¹]")
        .dashes("a point", curve(0.0));
    for radius in [0.5, 1.0, 2.0] {
        figure = figure.line(&format!("R = {radius} m"), curve(radius));
    }
    figure
}

/// The mean square difference of the phase and its average, against the radius of the disc.
fn losses() -> Figure {
    let curve = |outer_scale| {
        let phase = VonKarman::new(outer_scale);
        (0..=60).map(|k| 10f64.powf(f64::from(k) / 30.0 - 1.0)).map(move |radius| {
            let once = DiscAverage::new(&phase, radius, radius).half_structure(0.0);
            let twice = DiscAverage::twice(&phase, radius, radius).half_structure(0.0);
            (radius, 2.0 * once - twice)
        })
    };
    let mut figure = Figure::new()
        .x_label("radius of the disc R [m]")
        .y_label("mean square difference, r0 = 1 m [rad²]")
        .log_x()
        .log_y()
        .dashes("Kolmogorov", curve(f64::INFINITY));
    for outer_scale in [100.0, 25.0, 10.0] {
        figure = figure.line(&format!("L0 = {outer_scale} m"), curve(outer_scale));
    }
    figure
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    slopes().save(folder.join("disc-slope.svg"))?;
    losses().save(folder.join("disc-loss.svg"))?;
    Ok(())
}
