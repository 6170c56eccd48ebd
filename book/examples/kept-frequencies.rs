//! Draws the frequencies that a wave keeps into the folder that is given.

use plotters::prelude::*;
use std::{env, error::Error, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("sans-serif")?;
    let path = folder.join("kept-frequencies.svg");
    let area = SVGBackend::new(&path, (700, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area).margin(8).build_cartesian_2d(-1.5..2.0, -1.05..1.05)?;
    let (blue, red) = (RGBColor(0, 114, 178), RGBColor(213, 94, 0));
    // In units of half of the grid: the wave reaches to 1/2, the layer to 1, their product to 3/2.
    let square =
        |half: f64, style: ShapeStyle| Rectangle::new([(-half, -half), (half, half)], style);
    let strip = |left: f64, style| Rectangle::new([(left, -1.0), (left + 0.5, 1.0)], style);
    chart.draw_series([
        strip(1.0, red.mix(0.35).filled()),
        strip(-1.0, red.mix(0.35).filled()),
        square(1.0, BLACK.stroke_width(2)),
        square(0.5, blue.mix(0.3).filled()),
        square(0.5, blue.stroke_width(2)),
    ])?;
    let arc = (0..=60).map(|k| {
        let turn = std::f64::consts::PI * f64::from(k) / 60.0;
        (0.25 + turn.cos(), 0.55 + 0.3 * turn.sin())
    });
    let arc: Vec<(f64, f64)> = arc.collect();
    let head = vec![(-0.75, 0.55), (-0.70, 0.63), (-0.79, 0.65), (-0.75, 0.55)];
    chart.draw_series([
        PathElement::new(arc, red.stroke_width(2)),
        PathElement::new(head, red.stroke_width(2)),
    ])?;
    let write = |text: &str, x: f64, y: f64, colour: RGBColor| {
        Text::new(text.to_string(), (x, y), ("sans-serif", 16).into_font().color(&colour))
    };
    chart.draw_series([
        write("kept: N/2 across", -0.32, 0.05, blue),
        write("the grid: N across", -0.36, -0.88, BLACK),
        write("dropped", -0.92, -0.6, red),
        write("beyond the grid", 1.04, -0.6, red),
        write("aliased", 0.18, 0.95, red),
        write("0", 0.0, -0.05, BLACK),
        write("N/2", 1.02, -0.93, BLACK),
        write("3N/4", 1.52, -0.93, BLACK),
        write("-N/2", -1.22, -0.93, BLACK),
    ])?;
    Ok(area.present()?)
}
