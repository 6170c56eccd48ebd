//! Draws how a fit steps down a valley, which lenslets a map averages over, and a profile learned from simulated slopes, into the folder that
//! is given.

use lenslet::device::Engine;
use lenslet::estimation::Simulation;
use lenslet::linear::{LeastSquares, Residuals};
use lenslet::model::{Atmosphere, Layer, System};
use lenslet::plan::Plan;
use lenslet::plot::{PictureFormat, plot_learned};
use lenslet::profiling::{LearnOptions, LearnPlan, ParameterGroup};
use lenslet::watch::unwatched;
use ndarray::{Array1, Array2, arr1, arr2};
use plotters::prelude::*;
use std::{error::Error, path::Path, path::PathBuf};

type Drawn = Result<(), Box<dyn Error>>;

fn main() -> Drawn {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("sans-serif")?;
    valley(&folder)?;
    pairs(&folder)?;
    learned(&folder)
}

/// Rosenbrock's valley, less steep.
struct Valley;

impl Residuals for Valley {
    fn residuals(&mut self, u: &[f64]) -> Result<Array1<f64>, lenslet::Error> {
        Ok(arr1(&[4.0 * (u[1] - u[0] * u[0]), 1.0 - u[0]]))
    }
    fn jacobian(&mut self, u: &[f64]) -> Result<Array2<f64>, lenslet::Error> {
        Ok(arr2(&[[-8.0 * u[0], 4.0], [-1.0, 0.0]]))
    }
}

fn valley(folder: &Path) -> Drawn {
    let path = folder.join("least-squares.svg");
    let area = SVGBackend::new(&path, (760, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(-1.6f64..1.8, -0.6f64..2.2)?;
    let (across, up) = (136, 112);
    let cells = (0..across * up).map(|k| {
        let [x, y] =
            [-1.6 + 3.4 / 136.0 * (k % across) as f64, -0.6 + 2.8 / 112.0 * (k / across) as f64];
        let at = [x + 0.0125, y + 0.0125];
        let sum = (4.0 * (at[1] - at[0] * at[0])).powi(2) + (1.0 - at[0]).powi(2);
        let level = ((sum.ln() + 4.0) / 9.0).clamp(0.0, 1.0);
        let grey = |share: f64| (255.0 - share * (1.0 - level) * 150.0) as u8;
        Rectangle::new(
            [(x, y), (x + 0.026, y + 0.026)],
            RGBColor(grey(1.0), grey(0.7), grey(0.3)).filled(),
        )
    });
    chart.draw_series(cells)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc("first parameter")
        .y_desc("second parameter")
        .draw()?;
    for (high, colour) in [(5.0, RGBColor(213, 94, 0)), (0.6, RGBColor(0, 0, 0))] {
        let at = |steps: usize| {
            let fit = LeastSquares { bounds: vec![[-5.0, high], [-5.0, 5.0]], floor: 0.0, steps };
            fit.run(&mut Valley, &[-1.2, 1.8], &unwatched)
                .map(|found| (found.parameters[0], found.parameters[1]))
        };
        let steps = (0..40).map(at).collect::<Result<Vec<_>, _>>()?;
        chart.draw_series([PathElement::new(steps.clone(), colour.stroke_width(2))])?;
        chart.draw_series(steps.into_iter().map(|at| Circle::new(at, 4, colour.filled())))?;
    }
    chart.draw_series([PathElement::new(
        [(0.6, -0.6), (0.6, 2.2)],
        BLACK.mix(0.5).stroke_width(1),
    )])?;
    area.present()?;
    Ok(())
}

fn pairs(folder: &Path) -> Drawn {
    let path = folder.join("measured-maps.svg");
    let area = SVGBackend::new(&path, (760, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let panels = area.split_evenly((1, 2));
    let (blue, red) = (RGBColor(0, 114, 178), RGBColor(213, 94, 0));
    let mut chart = ChartBuilder::on(&panels[0])
        .caption("pairs of lenslets two right, one up", ("sans-serif", 18))
        .margin(14)
        .build_cartesian_2d(-0.6f64..5.6, -0.6f64..5.6)?;
    let square = |i: i32, j: i32, style| {
        let [x, y] = [f64::from(i), f64::from(j)];
        Rectangle::new([(x + 0.04, y + 0.04), (x + 0.96, y + 0.96)], style)
    };
    let lit = |i: i32, j: i32| {
        (0..5).contains(&i) && (0..5).contains(&j) && (i - 2).abs() + (j - 2).abs() < 4
    };
    let all = || (0..25).map(|k| (k % 5, k / 5)).filter(|&(i, j)| lit(i, j));
    chart.draw_series(all().map(|(i, j)| square(i, j, BLACK.mix(0.35).stroke_width(1))))?;
    for (i, j) in all().filter(|&(i, j)| lit(i + 2, j + 1)) {
        let from = (f64::from(i) + 0.5, f64::from(j) + 0.5);
        let to = (from.0 + 2.0, from.1 + 1.0);
        chart.draw_series([PathElement::new([from, to], blue.mix(0.7).stroke_width(2))])?;
        chart
            .draw_series([Circle::new(from, 3, blue.filled()), Circle::new(to, 5, red.filled())])?;
    }
    let mut chart = ChartBuilder::on(&panels[1])
        .caption("their element of the map", ("sans-serif", 18))
        .margin(14)
        .build_cartesian_2d(-0.5f64..9.5, -0.5f64..9.5)?;
    let count = |i: i32, j: i32| all().filter(|&(k, l)| lit(k + i - 4, l + j - 4)).count();
    chart.draw_series((0..81).map(|k| (k % 9, k / 9)).map(|(i, j)| {
        let share = count(i, j) as f64 / all().count() as f64;
        square(i, j, BLACK.mix(0.6 * share).filled())
    }))?;
    chart.draw_series([square(6, 5, red.stroke_width(4)), square(4, 4, blue.stroke_width(2))])?;
    area.present()?;
    Ok(())
}

/// A profile and a shift from a thousand simulated frames.
fn learned(folder: &Path) -> Drawn {
    let truth = System::from_file("book/systems/small-moao.toml")?;
    let mut stars = truth.guide_stars()[1..].to_vec();
    for (star, shift) in stars.iter_mut().zip([[0.0, 0.0], [0.1, -0.05]]) {
        star.sensor.array = *truth.lenslet_array();
        (star.sensor.rotation, star.sensor.shift) = (0.0, shift);
    }
    let truth = truth.to_builder().guide_stars(stars.clone()).targets([]).build()?;
    let simulation = Simulation::new(&truth)?;
    let mut slopes = Array2::zeros((1000, simulation.order().len()));
    for (seed, mut frame) in slopes.rows_mut().into_iter().enumerate() {
        frame.assign(&Array1::from(simulation.realisation(seed as u64).slopes));
    }
    stars[1].sensor.shift = [0.0; 2];
    let layers = [(0.0, 0.4), (3800.0, 0.3), (9800.0, 0.3)];
    let layers = layers.map(|(h, fraction)| Layer::new(h, fraction, 25.0)).to_vec();
    let start = truth.to_builder().atmosphere(Atmosphere::new(0.2, 500e-9, layers)?);
    let start = start.guide_stars(stars).build()?;
    let options = LearnOptions::default().fit([
        ParameterGroup::Strengths,
        ParameterGroup::Altitudes,
        ParameterGroup::Shifts,
    ]);
    let plan = LearnPlan::new(&start, options)?.with_slopes(slopes)?;
    let learned = plan.run(&Engine::default(), &unwatched)?;
    let title = "learned from 1000 frames of two stars";
    Ok(std::fs::write(
        folder.join("learning.svg"),
        plot_learned(&learned, &start, title, PictureFormat::Svg)?,
    )?)
}
