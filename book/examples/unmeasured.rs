//! Draws tilt and focus as slopes of the lenslets of a pupil into the folder that is given.

use lenslet::model::{LensletArray, Pupil, Validity};
use plotters::prelude::*;
use std::{env, error::Error, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("sans-serif")?;
    let (array, pupil) = (LensletArray::new(10, 0.8)?, Pupil::new(8.0, 0.3)?);
    let valid = array.valid(Some(&pupil), Validity::default());
    let lenslets = valid.indexed_iter().filter(|(_, valid)| **valid);
    let centres: Vec<_> = lenslets.map(|((j, i), _)| (array.centre(i), array.centre(j))).collect();

    let path = folder.join("unmeasured.svg");
    let area = SVGBackend::new(&path, (760, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let tilt = |_: f64| 0.5;
    let focus = |along: f64| 0.17 * along;
    let panels = area.split_evenly((1, 2));
    for (panel, name, slope_x, slope_y) in [
        (
            &panels[0],
            "tilt along x",
            &tilt as &dyn Fn(f64) -> f64,
            &(|_| 0.0) as &dyn Fn(f64) -> f64,
        ),
        (&panels[1], "focus", &focus, &focus),
    ] {
        let mut chart = ChartBuilder::on(panel)
            .caption(name, ("sans-serif", 18))
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(50)
            .build_cartesian_2d(-4.8..4.8, -4.8..4.8)?;
        chart.configure_mesh().disable_mesh().x_desc("x [m]").y_desc("y [m]").draw()?;
        let colour = RGBColor(0, 114, 178);
        chart.draw_series(centres.iter().map(|&(x, y)| {
            let end = (x + slope_x(x), y + slope_y(y));
            PathElement::new([(x, y), end], colour.stroke_width(2))
        }))?;
        chart.draw_series(centres.iter().map(|&centre| Circle::new(centre, 3, colour.filled())))?;
    }
    area.present()?;
    Ok(())
}
