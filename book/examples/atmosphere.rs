//! Draws the layers of `keck-lgs.toml` and their fractions into the folder that is given.

use lenslet::model::System;
use lenslet::units::ARCSEC;
use plotters::prelude::*;
use std::{env, error::Error, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("sans-serif")?;

    let system = System::from_file("book/systems/keck-lgs.toml")?;
    let air = system.atmosphere();
    let path = folder.join("atmosphere-profile.svg");
    let area = SVGBackend::new(&path, (640, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let title = format!(
        "seeing {:.2}″ and isoplanatic angle {:.2}″ at {:.0} nm",
        air.seeing_at(air.wavelength()) / ARCSEC,
        air.isoplanatic_angle_at(air.wavelength()) / ARCSEC,
        air.wavelength() * 1e9,
    );
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .caption(title, ("sans-serif", 16))
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..0.5, -0.5..18.0)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_mesh().x_desc("fraction of r0^(-5/3)").y_desc("altitude [km]").draw()?;

    let colour = RGBColor(0, 114, 178);
    for layer in air.layers() {
        let end = (layer.fraction, layer.altitude / 1e3);
        chart.draw_series(LineSeries::new([(0.0, end.1), end], colour.stroke_width(6)))?;
        let text = format!("{:.2}", layer.fraction);
        chart.draw_series([Text::new(text, (end.0 + 0.008, end.1 + 0.3), ("sans-serif", 12))])?;
    }
    let mean = air.mean_altitude() / 1e3;
    chart.draw_series(DashedLineSeries::new([(0.0, mean), (0.5, mean)], 5, 5, BLACK.into()))?;
    let text = format!("mean altitude {mean:.1} km");
    chart.draw_series([Text::new(text, (0.33, mean + 0.7), ("sans-serif", 12))])?;
    area.present()?;
    Ok(())
}
