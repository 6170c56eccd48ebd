//! Draws the lenslets of `keck-lgs.toml`, shaded by their lit fraction, into the folder that is given.

use lenslet::model::System;
use plotters::prelude::*;
use std::{env, error::Error, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("sans-serif")?;

    let keck = System::from_file("book/systems/keck-lgs.toml")?;
    let (array, pupil) = (keck.lenslet_array(), keck.pupil().ok_or("no telescope")?);
    let valid = array.valid(Some(pupil), keck.validity());

    let path = folder.join("lenslets.svg");
    let area = SVGBackend::new(&path, (600, 600)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(-5.4..5.4, -5.4..5.4)?;
    chart.configure_mesh().disable_mesh().x_desc("x [m]").y_desc("y [m]").draw()?;

    let half = array.pitch() / 2.0;
    let square = |j: usize, i: usize| {
        let (x, y) = (array.centre(i), array.centre(j));
        [(x - half, y - half), (x + half, y + half)]
    };
    chart.draw_series(valid.indexed_iter().map(|((j, i), _)| {
        let lit = pupil.lit_fraction([array.centre(i), array.centre(j)], array.pitch());
        let shade = |full: f64| (255.0 - lit * (255.0 - full)) as u8;
        Rectangle::new(square(j, i), RGBColor(shade(120.0), shade(170.0), shade(220.0)).filled())
    }))?;
    let used = valid.indexed_iter().filter(|&(_, &valid)| valid);
    chart.draw_series(used.map(|((j, i), _)| Rectangle::new(square(j, i), BLACK)))?;
    for radius in [pupil.diameter() / 2.0, pupil.diameter() * pupil.obstruction() / 2.0] {
        let angles = (0..=360).map(|k| f64::from(k).to_radians());
        let rim = angles.map(|angle| (radius * angle.cos(), radius * angle.sin()));
        chart.draw_series(LineSeries::new(rim, RED.stroke_width(2)))?;
    }
    area.present()?;
    Ok(())
}
