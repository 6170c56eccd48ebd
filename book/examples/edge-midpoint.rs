//! Draws the midpoints of two lenslets' edges, and how far the formula of four points is from the average over lenslets, into the
//! folder that is given.

use lenslet::model::{Atmosphere, ConeGradient, Layer, LensletArray, Sensor, Source};
use lenslet::turbulence::{cross_covariance, edge_midpoint};
use lenslet::watch::unwatched;
use plotters::prelude::*;
use std::{env, error::Error, path::Path};

type Drawn = Result<(), Box<dyn Error>>;

const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(213, 94, 0);

fn main() -> Drawn {
    let folder = env::args_os().nth(1).ok_or("the output folder is missing")?;
    lenslet::plot::load_font("sans-serif")?;
    draw_midpoints(&Path::new(&folder).join("edge-midpoint.svg"))?;
    draw_error(&Path::new(&folder).join("edge-midpoint-error.svg"))
}

/// Two lenslets of unequal size, and the four distances of their x slopes.
fn draw_midpoints(path: &Path) -> Drawn {
    let area = SVGBackend::new(path, (620, 300)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area).margin(15).build_cartesian_2d(-0.8..4.0, -0.7..1.5)?;
    let lenslets = [([0.0, 0.0], 0.5, BLUE), ([2.9, 0.7], 0.7, ORANGE)];
    let ends = lenslets.map(|([x, y], half, _)| [(x - half, y), (x + half, y)]);
    for from in ends[0] {
        for to in ends[1] {
            let grey = RGBColor(150, 150, 150);
            chart.draw_series([PathElement::new(vec![from, to], grey)])?;
        }
    }
    for (([x, y], half, colour), ends) in lenslets.into_iter().zip(ends) {
        let corners = [(x - half, y - half), (x + half, y + half)];
        chart.draw_series([Rectangle::new(corners, colour.stroke_width(2))])?;
        chart.draw_series(ends.map(|end| Circle::new(end, 5, colour.filled())))?;
        chart.draw_series(ends.into_iter().zip(["−", "+"]).map(|((x, y), sign)| {
            Text::new(sign, (x - 0.03, y - 0.1), ("sans-serif", 22).into_font().color(&colour))
        }))?;
    }
    area.present()?;
    Ok(())
}

/// The error over the separation of two equal lenslets, in units of the variance.
fn draw_error(path: &Path) -> Drawn {
    let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 25.0)])?;
    let one = Sensor::at_rest(Source::star(0.0, 0.0)?, LensletArray::new(1, 0.5)?);
    let apart: Vec<f64> = (0..=120).map(|k| 0.05 * f64::from(k)).collect();
    let mask = ndarray::arr2(&[[true]]);
    let masks = vec![mask.clone(); apart.len()];

    let area = SVGBackend::new(path, (620, 360)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..6.0, -6.0..14.0)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("distance [lenslets]")
        .y_desc("error [% of the variance]")
        .draw()?;
    let axes = [("along the slope", [0.5, 0.0], BLUE), ("across it", [0.0, 0.5], ORANGE)];
    for (name, step, colour) in axes {
        let place = |r: &f64| Sensor { shift: step.map(|part| part * r), ..one };
        let others: Vec<Sensor> = apart.iter().map(place).collect();
        let (first, second) = ((&[one][..], &[mask.clone()][..]), (&others[..], &masks[..]));
        let four = edge_midpoint::slope_cross_covariance(&air, first, second, &unwatched)?;
        let exact = cross_covariance::slope_cross_covariance(
            &air,
            first,
            second,
            ConeGradient::Pupil,
            &unwatched,
        )?;
        let error = |k: usize| 100.0 * (four[[0, 2 * k]] - exact[[0, 2 * k]]) / exact[[0, 0]];
        let line = apart.iter().enumerate().map(|(k, &r)| (r, error(k)));
        chart
            .draw_series(LineSeries::new(line, colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
    area.present()?;
    Ok(())
}
