//! Draws potentials of atoms and of silicon into the folder that is given.

use lenslet::electrons::{Potential, PotentialModel, PotentialOptions, WaveGrid};
use lenslet::plot::Figure;
use lenslet::specimen::{Atom, Element, Factors, Slicing, Specimen};
use ndarray::{Array2, Axis};
use plotters::prelude::*;
use serde_json::json;
use std::{error::Error, path::Path, path::PathBuf};

/// Side of silicon's cell \[Å\].
const SIDE: f64 = 5.43;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("sans-serif")?;
    atoms(&folder.join("atom-potentials.svg"))?;
    kirkland(&folder.join("live-kirkland.json"))?;
    models(&folder.join("potential-models.svg"))?;
    shares(&folder.join("atom-shares.svg"))?;
    silicon_map(&folder.join("silicon-potential.svg"))
}

/// Kirkland's parameters by symbols of the elements, for the live figure.
fn kirkland(path: &Path) -> Result<(), Box<dyn Error>> {
    let table = include_str!("../data/kirkland.csv");
    let mut elements = Vec::new();
    for line in table.lines().skip(1) {
        let mut fields = line.split(',').map(str::trim).skip(1);
        let symbol = fields.next().ok_or("a line without an element")?;
        let parameters = fields.map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        elements.push(json!([symbol, parameters]));
    }
    Ok(std::fs::write(path, json!(elements).to_string())?)
}

fn atoms(path: &Path) -> Result<(), Box<dyn Error>> {
    let mut figure = Figure::new().x_label("distance from the line to the nucleus [Å]");
    figure = figure.y_label("potential along the line [V Å]").log_x().log_y();
    let places = || (0..=60).map(|k| 0.01 * 400f64.powf(f64::from(k) / 60.0));
    for symbol in ["H", "C", "Si", "Au"] {
        let element = Element::of_symbol(symbol)?;
        let [kirkland, lobato] = [Factors::Kirkland.of(element)?, Factors::Lobato.of(element)?];
        figure = figure
            .line(&format!("{symbol}, Kirkland"), places().map(|r| (r, kirkland.projected(r))))
            .dashes(&format!("{symbol}, Lobato"), places().map(|r| (r, lobato.projected(r))));
    }
    Ok(figure.y_range(1e-4, 2e4).save(path)?)
}

fn silicon() -> Result<Specimen, Box<dyn Error>> {
    let corner = [[0.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5]];
    let mut atoms = Vec::new();
    for [x, y, z] in corner {
        for shift in [0.0, 0.25] {
            let position = [x + shift, y + shift, z + shift + 0.125].map(|place| SIDE * place);
            let element = Element::new(14)?;
            atoms.push(Atom { element, position, occupancy: 1.0, displacement: 0.0 });
        }
    }
    Ok(Specimen::new([SIDE; 3], atoms)?)
}

fn of_silicon(model: PotentialModel, points: usize) -> Result<Potential, Box<dyn Error>> {
    let (grid, slices) = (WaveGrid::new([points; 2], [SIDE; 2])?, Slicing::new(SIDE, SIDE / 4.0)?);
    let options = PotentialOptions::default().model(model).bound(2.0);
    Ok(Potential::new(&silicon()?, grid, slices, options)?)
}

fn models(path: &Path) -> Result<(), Box<dyn Error>> {
    // This slice has its atoms at (1/2, 0) and (0, 1/2) of the cell, so its first row passes one.
    let mut figure = Figure::new().x_label("x [Å]").y_label("potential of a slice [V Å]").log_y();
    let models = [
        ("lookup, atoms end at 2 Å", PotentialModel::Lookup),
        ("projected", PotentialModel::Projected),
        ("sliced", PotentialModel::Sliced),
    ];
    for (name, model) in models {
        let slice = of_silicon(model, 120)?.slice(1);
        let line = slice.row(0).to_vec().into_iter().enumerate();
        let points: Vec<_> = line.map(|(i, v)| (i as f64 * SIDE / 120.0, v)).collect();
        let above = points.into_iter().filter(|&(_, value)| value > 0.1);
        figure = figure.line(name, above);
    }
    Ok(figure.y_range(0.1, 3000.0).save(path)?)
}

fn shares(path: &Path) -> Result<(), Box<dyn Error>> {
    let silicon = Factors::Kirkland.of(Element::new(14)?)?;
    let mut figure = Figure::new().x_label("frequency [1/Å]").y_label("share of the slice");
    let thickness = SIDE / 4.0;
    // The nucleus lies a quarter of the thickness below the middle of its slice.
    let below = 0.25 * thickness;
    let places = || (0..=80).map(|k| f64::from(k) / 40.0);
    let share = |low: f64, high: f64, q: f64| {
        let beyond = |z: f64| {
            let above = silicon.beyond(z.abs())(q);
            if z >= 0.0 { above } else { silicon.at(q) - above }
        };
        (beyond(low) - beyond(high)) / silicon.at(q)
    };
    let names = ["two above", "one above", "its own", "one below", "two below"];
    for (name, k) in names.into_iter().zip([2.0, 1.0, 0.0, -1.0, -2.0]) {
        let (low, high) = (below + (k - 0.5) * thickness, below + (k + 0.5) * thickness);
        figure = figure.line(name, places().map(|q| (q, share(low, high, q))));
    }
    Ok(figure.y_range(-0.02, 1.02).save(path)?)
}

fn silicon_map(path: &Path) -> Result<(), Box<dyn Error>> {
    let points = 80;
    let total = of_silicon(PotentialModel::Projected, points)?.slices().sum_axis(Axis(0));
    let shade: Array2<f64> = total.mapv(|v| v.max(1.0).ln());
    let (low, high) = shade.iter().fold((f64::MAX, f64::MIN), |(a, b), &v| (a.min(v), b.max(v)));
    let area = SVGBackend::new(path, (560, 560)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..SIDE, 0.0..SIDE)?;
    chart.configure_mesh().disable_mesh().x_desc("x [Å]").y_desc("y [Å]").draw()?;
    let pixel = SIDE / points as f64;
    chart.draw_series(shade.indexed_iter().map(|((j, i), value)| {
        let (x, y) = (i as f64 * pixel, j as f64 * pixel);
        let grey = (255.0 * (value - low) / (high - low)) as u8;
        Rectangle::new([(x, y), (x + pixel, y + pixel)], RGBColor(grey, grey, grey).filled())
    }))?;
    area.present()?;
    Ok(())
}
