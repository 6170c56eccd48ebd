//! Draws two footprints that are turned against each other, and the displacements of two of their edges, into the folder that is given.

use lenslet::model::{LensletArray, Sensor, Source};
use lenslet::units::DEGREE;
use plotters::prelude::*;
use std::{env, error::Error, path::PathBuf};

const FIRST: RGBColor = RGBColor(0, 114, 178);
const SECOND: RGBColor = RGBColor(213, 94, 0);

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("sans-serif")?;
    let rest = Sensor::at_rest(Source::star(0.0, 0.0)?, LensletArray::new(1, 1.0)?);
    let turned = Sensor { rotation: 28.0 * DEGREE, shift: [1.0, 0.45], magnification: 0.8, ..rest };
    let [first, second] = [rest, turned].map(|sensor| sensor.footprint([0, 0], 0.0).corners());

    let path = folder.join("turned-footprints.svg");
    let area = SVGBackend::new(&path, (780, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let [left, right]: [_; 2] =
        area.split_evenly((1, 2)).try_into().map_err(|_| "two halves of the drawing")?;
    draw_footprints(&left, [first, second])?;
    draw_displacements(&right, [first, second])?;
    area.present()?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Corners = [[f64; 2]; 4];

fn closed(corners: &[[f64; 2]]) -> Vec<(f64, f64)> {
    corners.iter().chain(&corners[..1]).map(|&[x, y]| (x, y)).collect()
}

/// The squares, and the right edge of each drawn heavily.
fn draw_footprints(area: &Area, squares: [Corners; 2]) -> Result<(), Box<dyn Error>> {
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(-0.8..1.8, -1.0..1.6)?;
    chart.configure_mesh().disable_mesh().x_desc("x [m]").y_desc("y [m]").draw()?;
    for (corners, colour) in squares.iter().zip([FIRST, SECOND]) {
        let edge = [corners[1], corners[2]].map(|[x, y]| (x, y));
        chart.draw_series([PathElement::new(closed(corners), colour)])?;
        chart.draw_series([PathElement::new(edge.to_vec(), colour.stroke_width(4))])?;
    }
    Ok(())
}

/// The displacements from points of the first heavy edge to points of the second.
fn draw_displacements(area: &Area, [first, second]: [Corners; 2]) -> Result<(), Box<dyn Error>> {
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(-0.8..1.8, -1.0..1.6)?;
    let (x_name, y_name) = ("displacement along x [m]", "along y [m]");
    chart.configure_mesh().disable_mesh().x_desc(x_name).y_desc(y_name).draw()?;
    let between = |from: usize, to: usize| [0, 1].map(|k| second[to][k] - first[from][k]);
    let ring = [between(1, 1), between(2, 1), between(2, 2), between(1, 2)];
    chart.draw_series([Polygon::new(closed(&ring), BLACK.mix(0.12))])?;
    for (k, colour) in [FIRST, SECOND, FIRST, SECOND].into_iter().enumerate() {
        let side = [ring[k], ring[(k + 1) % 4]].map(|[x, y]| (x, y));
        chart.draw_series([PathElement::new(side.to_vec(), colour.stroke_width(3))])?;
    }
    chart.draw_series([Circle::new((0.0, 0.0), 4, BLACK.filled())])?;
    let style = ("sans-serif", 15).into_font();
    chart.draw_series([Text::new("origin", (0.05, -0.12), style)])?;
    Ok(())
}
