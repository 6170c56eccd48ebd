//! Draws the figures of the chapter on prediction into the folder that is given.

use lenslet::device::Engine;
use lenslet::model::System;
use lenslet::plan::Plan;
use lenslet::plot::Figure;
use lenslet::tomography::{ReconstructorOptions, ReconstructorPlan};
use lenslet::watch::unwatched;
use plotters::prelude::*;
use std::{error::Error, path::Path, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    against_the_wind(&folder.join("prediction.svg"))?;
    let small = System::from_file("book/systems/small-moao.toml")?;
    gain(&small, &folder.join("prediction-gain.svg"))
}

/// Beams on a layer: what is measured, and what the truth will see, drawn back against the wind.
fn against_the_wind(path: &Path) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, (640, 360)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area).margin(12).build_cartesian_2d(-4.0..6.66, -3.0..3.0)?;
    let (blue, red) = (RGBColor(0, 114, 178), RGBColor(213, 94, 0));
    let circle = |[x, y]: [f64; 2], style: ShapeStyle| Circle::new((x, y), 104, style);
    for centre in [[-0.6, 0.5], [-1.3, -0.7]] {
        let line = blue.stroke_width(2);
        chart.draw_series([circle(centre, blue.mix(0.18).filled()), circle(centre, line)])?;
    }
    let (later, present) = ([-1.4, 0.1], [0.6, 0.6]);
    chart.draw_series([
        circle(present, red.mix(0.5).stroke_width(1)),
        circle(later, red.mix(0.25).filled()),
        circle(later, red.stroke_width(3)),
    ])?;
    let arrow = |[x, y]: [f64; 2], [u, v]: [f64; 2]| {
        let length = f64::hypot(u, v);
        let (along, across) = ([0.25 * u / length, 0.25 * v / length], [-v / length, u / length]);
        let wing =
            |side: f64| (x + u - along[0] + side * across[0], y + v - along[1] + side * across[1]);
        vec![(x, y), (x + u, y + v), wing(0.12), (x + u, y + v), wing(-0.12)]
    };
    let moved = [later[0] - present[0], later[1] - present[1]];
    chart.draw_series([PathElement::new(arrow(present, moved), red.stroke_width(2))])?;
    for (y, x) in [(-2.2, 2.6), (-1.2, 2.8), (-0.2, 2.7)] {
        let wind = [-0.7 * moved[0], -0.7 * moved[1]];
        chart.draw_series([PathElement::new(arrow([x, y], wind), BLACK.stroke_width(2))])?;
    }
    lenslet::plot::load_font("DejaVu Sans")?;
    let write = |text: &str, at: (f64, f64), colour: RGBColor| {
        let style = ("DejaVu Sans", 15).into_font().color(&colour);
        Text::new(text.to_string(), at, style)
    };
    chart.draw_series([
        write("wind", (3.4, 1.0), BLACK),
        write("guide stars now", (0.2, -2.3), blue),
        write("target now", (1.9, 2.3), red),
        write("target later", (-3.9, 1.9), red),
    ])?;
    area.present()?;
    Ok(())
}

/// The error of the first target over the delay.
fn gain(small: &System, path: &Path) -> Result<(), Box<dyn Error>> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for milliseconds in [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0] {
        let options = ReconstructorOptions::default().delay(1e-3 * milliseconds);
        let found = ReconstructorPlan::new(small, options)?.run(&Engine::default(), &unwatched)?;
        let predicted = found.wavefront_errors(small)?;
        let others = found.other_wavefront_errors(small)?.unwrap_or(predicted.clone());
        let [predicted, plain] = [&predicted, &others].map(|errors| 1e9 * errors[0].rms);
        println!("{milliseconds} ms: {predicted:.1} nm, {plain:.1} nm without prediction");
        with.push((milliseconds, predicted));
        without.push((milliseconds, plain));
    }
    let figure = Figure::new()
        .x_label("delay [ms]")
        .y_label("error of the wavefront [nm rms]")
        .line("with prediction", with)
        .dashes("without prediction", without);
    Ok(figure.save(path)?)
}
