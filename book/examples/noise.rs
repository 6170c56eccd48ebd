//! Draws the noise of lenslets whose spots are drawn out away from a laser into the folder that is given.

use lenslet::model::{LensletArray, Noise};
use plotters::prelude::*;
use std::{env, error::Error, f64::consts::PI, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("sans-serif")?;

    // The streak of a lenslet points away from the launch, and is the longer the farther that is.
    let (array, launch) = (LensletArray::new(10, 0.8)?, [-5.0, 0.0]);
    let centres: Vec<[f64; 2]> =
        (0..100).map(|k| [array.centre(k % 10), array.centre(k / 10)]).collect();
    let blocks: Vec<_> = (centres.iter())
        .map(|[x, y]| {
            let [u, v] = [x - launch[0], y - launch[1]];
            [[0.01 + 1e-3 * u * u, 1e-3 * u * v], [1e-3 * u * v, 0.01 + 1e-3 * v * v]]
        })
        .collect();
    let noise = Noise::blocks(&blocks)?;

    let path = folder.join("noise.svg");
    let area = SVGBackend::new(&path, (560, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(-5.6..4.6, -4.4..4.4)?;
    chart.configure_mesh().disable_mesh().x_desc("x [m]").y_desc("y [m]").draw()?;
    let ellipses =
        centres.iter().enumerate().filter(|(_, [x, y])| x.hypot(*y) < 4.0).map(|(k, [x, y])| {
            let [a, b, c] = noise.factor(k);
            let point = |step: usize| {
                let (sin, cos) = (step as f64 * PI / 24.0).sin_cos();
                (x + a * cos, y + b * cos + c * sin)
            };
            PathElement::new((0..=48).map(point).collect::<Vec<_>>(), RGBColor(0, 114, 178))
        });
    chart.draw_series(ellipses)?;
    chart.draw_series([Circle::new((launch[0], launch[1]), 5, RGBColor(213, 94, 0).filled())])?;
    area.present()?;
    Ok(())
}
