//! Draws the terms of the trapezoidal sum of K_5/6 into the folder that is given.

use lenslet::plot::Figure;
use std::{error::Error, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let order: f64 = 5.0 / 6.0;
    let term = |x: f64, t: f64| f64::exp(-x * (t.cosh() - 1.0)) * (order * t).cosh();
    let mut figure = Figure::new()
        .x_label("t")
        .y_label("term of the sum, of the first")
        .log_y()
        .y_range(1e-20, 1e5);
    for x in [0.01, 1.0, 20.0] {
        let points = (0..100).map(|k| 0.125 * f64::from(k)).map(|t| (t, term(x, t)));
        figure = figure.points(&format!("x = {x}"), points.filter(|(_, y)| *y > 1e-20));
    }
    figure.save(folder.join("bessel-terms.svg"))?;
    Ok(())
}
