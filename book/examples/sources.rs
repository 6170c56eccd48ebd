//! Draws the beams of a natural star and of a laser star through three layers into the folder that is given.

use lenslet::model::Source;
use lenslet::units::ARCSEC;
use plotters::prelude::*;
use std::{env, error::Error, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("sans-serif")?;

    let star = Source::star(80.0 * ARCSEC, 0.0)?;
    let laser = Source::new(80.0 * ARCSEC, std::f64::consts::PI, 90e3)?;
    let beams = [
        ("natural star, 80″ to the right", star, RGBColor(0, 114, 178)),
        ("laser star at 90 km, 80″ to the left", laser, RGBColor(213, 94, 0)),
    ];

    let path = folder.join("cone.svg");
    let area = SVGBackend::new(&path, (640, 480)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(-14.0..14.0, 0.0..23.0)?;
    chart.configure_mesh().disable_mesh().x_desc("x [m]").y_desc("altitude [km]").draw()?;

    let layers = [0.0, 5e3, 15e3];
    for altitude in layers {
        let line = [(-14.0, altitude / 1e3), (14.0, altitude / 1e3)];
        chart.draw_series(LineSeries::new(line, BLACK.mix(0.4)))?;
    }
    for (name, source, colour) in beams {
        let edge = |x: f64, altitude: f64| (source.project([x, 0.0], altitude)[0], altitude / 1e3);
        let beam = vec![edge(-5.0, 0.0), edge(5.0, 0.0), edge(5.0, 18e3), edge(-5.0, 18e3)];
        let beam = chart.draw_series([Polygon::new(beam, colour.mix(0.15))])?;
        beam.label(name).legend(move |(x, y)| {
            Rectangle::new([(x, y - 5), (x + 18, y + 5)], colour.mix(0.5).filled())
        });
        for altitude in layers {
            let footprint = [edge(-5.0, altitude), edge(5.0, altitude)];
            chart.draw_series(LineSeries::new(footprint, colour.stroke_width(4)))?;
            chart.draw_series([Circle::new(edge(0.0, altitude), 4, colour.filled())])?;
        }
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
