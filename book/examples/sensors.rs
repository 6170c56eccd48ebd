//! Draws the footprints of a sensor at rest and of one that is turned, shifted and magnified into the folder that is given.

use lenslet::model::{LensletArray, Sensor, Source};
use lenslet::units::DEGREE;
use plotters::prelude::*;
use std::{env, error::Error, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("sans-serif")?;

    let rest = Sensor::at_rest(Source::new(0.0, 0.0, 90e3)?, LensletArray::new(8, 0.5)?);
    let turned = Sensor { rotation: 8.0 * DEGREE, shift: [0.3, -0.2], magnification: 1.05, ..rest };

    let path = folder.join("sensors.svg");
    let area = SVGBackend::new(&path, (520, 520)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(-3.0..3.0, -3.0..3.0)?;
    chart.configure_mesh().disable_mesh().x_desc("x [m]").y_desc("y [m]").draw()?;

    let sensors = [
        ("at rest", rest, RGBColor(120, 120, 120)),
        ("turned, shifted and magnified", turned, RGBColor(213, 94, 0)),
    ];
    for (name, sensor, colour) in sensors {
        let squares = (0..64).map(|k| {
            let mut corners = sensor.footprint([k / 8, k % 8], 10e3).corners().to_vec();
            corners.push(corners[0]);
            PathElement::new(corners.into_iter().map(|[x, y]| (x, y)).collect::<Vec<_>>(), colour)
        });
        let drawn = chart.draw_series(squares)?;
        drawn
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        let [x, y] = sensor.source.project(sensor.shift, 10e3);
        chart.draw_series([Circle::new((x, y), 4, colour.filled())])?;
    }
    let mut labels = chart.configure_series_labels();
    labels
        .position(SeriesLabelPosition::UpperMiddle)
        .border_style(BLACK)
        .background_style(WHITE)
        .draw()?;
    area.present()?;
    Ok(())
}
