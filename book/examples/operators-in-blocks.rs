//! Draws the covariance of the slopes of two laser stars and a natural one, in blocks, into the folder that is given.

use lenslet::device::Engine;
use lenslet::model::{SlopeOrder, System};
use lenslet::plan::Plan;
use lenslet::turbulence::{CovarianceOptions, CovariancePlan, Form, LatticeGroups, SlopeSlope};
use lenslet::watch::unwatched;
use plotters::prelude::*;
use std::{env, error::Error, path::PathBuf};

const SYSTEM: &str = "
atmosphere = { r0 = 0.15, outer_scale = 25, layers = [
    { altitude = 0, fraction = 0.6 }, { altitude = 6000, fraction = 0.4 }] }
telescope = { diameter = 3.0, obstruction = 0.2 }
lenslet_array = { lenslets = 5 }
guide_star = [{ zenith = 20, height = 90e3 }, { zenith = 20, azimuth = 180, height = 90e3 },
    { zenith = 15, azimuth = 80, lenslets = 2, rotation = 10 }]
";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("sans-serif")?;
    let system = System::from_toml(SYSTEM, "blocks.toml")?;
    let options = CovarianceOptions::default().form(Form::Dense);
    let covariances = CovariancePlan::new(&system, options)?.run(&Engine::default(), &unwatched)?;
    let SlopeSlope::Dense(matrix) = covariances.slope_slope else { return Err("not dense".into()) };
    let sets = LatticeGroups::new(&system.groups(), &SlopeOrder::new(&system.valid_lenslets()));
    let (n, many) = (matrix.nrows(), sets.slopes(0));

    let path = folder.join("blocks.svg");
    let area = SVGBackend::new(&path, (560, 560)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(0..n as i32 + 1, n as i32 + 1..0)?;
    chart.configure_mesh().disable_mesh().x_desc("slope").y_desc("slope").draw()?;
    let largest = matrix.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    // A gap of one slope parts the sets.
    let place = |k: usize| (k + usize::from(k >= many)) as i32;
    let squares = matrix.indexed_iter().filter_map(|((row, column), value)| {
        let share = (value.abs() / largest).sqrt();
        let fade = |full: f64| (255.0 - share * (255.0 - full)) as u8;
        let [r, g, b] = if *value > 0.0 { [213.0, 94.0, 0.0] } else { [0.0, 114.0, 178.0] };
        let corners = [(column, row), (column + 1, row + 1)].map(|(x, y)| {
            let end = |k: usize, from: usize| place(from) + (k - from) as i32;
            (end(x, column), end(y, row))
        });
        let colour = RGBColor(fade(r), fade(g), fade(b));
        (share > 0.1).then(|| Rectangle::new(corners, colour.filled()))
    });
    chart.draw_series(squares)?;
    let ends = [(0, many as i32), (many as i32 + 1, n as i32 + 1)];
    let frames = ends.iter().flat_map(|rows| ends.iter().map(move |columns| (rows, columns)));
    chart.draw_series(frames.map(|(rows, columns)| {
        Rectangle::new([(columns.0, rows.0), (columns.1, rows.1)], BLACK)
    }))?;
    area.present()?;
    Ok(())
}
