//! Draws the figures of the chapters on the electron beam, multislice, detectors, scans and images of plane waves into the folder that is given.

use lenslet::electrons::{Aberrations, Beam, Edge, HrtemOptics, Probe, WaveGrid, integrated};
use ndarray::{Array2, Array3};
use num_complex::Complex64;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::f64::consts::PI;
use std::ops::Range;
use std::{env, error::Error, path::Path, path::PathBuf};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Points = Vec<(f64, f64)>;

const BLUE: RGBColor = RGBColor(0, 114, 178);
const RED: RGBColor = RGBColor(213, 94, 0);
const GREEN: RGBColor = RGBColor(0, 158, 115);

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("sans-serif")?;
    probes(&folder.join("electron-beam.svg"))?;
    passes(&folder.join("multislice.svg"))?;
    detectors(&folder.join("electron-detectors.svg"))?;
    deflections(&folder.join("scan-images.svg"))?;
    transfers(&folder.join("hrtem.svg"))
}

/// Lines in a panel with axes; a green one as dots.
fn panel(
    area: &Area<'_>,
    legend: SeriesLabelPosition,
    labels: [&str; 2],
    ranges: [Range<f64>; 2],
    lines: Vec<(&str, RGBColor, Points)>,
) -> Result<(), Box<dyn Error>> {
    let [x, y] = ranges;
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(x, y)?;
    chart.configure_mesh().disable_mesh().x_desc(labels[0]).y_desc(labels[1]).draw()?;
    for (name, colour, points) in lines {
        let drawn = match colour == GREEN {
            true => chart.draw_series(points.into_iter().map(|at| Circle::new(at, 3, colour)))?,
            false => chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?,
        };
        drawn
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart.configure_series_labels().position(legend).background_style(WHITE.mix(0.8)).draw()?;
    Ok(())
}

/// The phase of a lens, and the probe along a line, for no defocus and for the Scherzer defocus.
fn probes(path: &Path) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, (760, 320)).into_drawing_area();
    area.fill(&WHITE)?;
    let (beam, grid) = (Beam::new(200.0)?, WaveGrid::new([256, 256], [40.0, 40.0])?);
    let (c3, semi_angle) = (1e7, 10.0);
    let scherzer = -(1.5 * c3 * beam.wavelength()).sqrt();
    let (mut phases, mut spots) = (Vec::new(), Vec::new());
    for (name, colour, defocus) in [("in focus", RED, 0.0), ("Scherzer defocus", BLUE, scherzer)] {
        let aberrations = Aberrations { defocus, c3, ..Default::default() };
        let angles = (0..=240).map(|k| 0.05 * f64::from(k));
        let phase = |angle: f64| aberrations.phase(beam.wavelength(), [beam.frequency(angle), 0.0]);
        phases.push((name, colour, angles.map(|angle| (angle, phase(angle))).collect()));
        let probe = Probe { beam, semi_angle, aberrations: aberrations.clone(), tilt: [0.0; 2] };
        let wave = probe.wave(&grid)?;
        // Along y = 0 the wave is a sum over all frequencies along y.
        let columns: Vec<Complex64> =
            wave.on_axis().columns().into_iter().map(|column| column.sum()).collect();
        let at = |x: f64| {
            let turn = |k: usize| Complex64::cis(2.0 * PI * grid.frequency(0, k) * x);
            grid.kept(0).zip(&columns).map(|(k, a)| a * turn(k)).sum::<Complex64>().norm_sqr()
        };
        let places = (-200..=200).map(|k| 0.05 * f64::from(k));
        spots.push((name, colour, places.map(|x| (x, at(x) / 1600.0)).collect()));
    }
    let panels = area.split_evenly((1, 2));
    panel(
        &panels[0],
        SeriesLabelPosition::UpperLeft,
        ["angle [mrad]", "χ [rad]"],
        [0.0..12.0, -6.0..12.0],
        phases,
    )?;
    panel(
        &panels[1],
        SeriesLabelPosition::UpperRight,
        ["x [Å]", "intensity [1/Å²]"],
        [-8.0..8.0, 0.0..0.4],
        spots,
    )?;
    Ok(area.present()?)
}

/// The wave in memory, with the lines of the first pass and the column of the second.
fn passes(path: &Path) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, (760, 300)).into_drawing_area();
    area.fill(&WHITE)?;
    let texts = [
        ["first pass, a few lines of y:", "to samples along x, transmit, back"],
        ["second pass, a column of k_x:", "to k_y, propagate and cut, back"],
    ];
    for (k, panel) in area.split_evenly((1, 2)).iter().enumerate() {
        let mut chart =
            ChartBuilder::on(panel).margin(8).build_cartesian_2d(-2.0..17.0, -5.0..17.5)?;
        let cell = |i: i32, j: i32| {
            let corner = [(f64::from(i), f64::from(j)), (f64::from(i + 1), f64::from(j + 1))];
            let chosen = if k == 0 { (8..10).contains(&j) } else { i == 5 };
            let fill = if chosen { BLUE.mix(0.6) } else { BLUE.mix(0.12) };
            [Rectangle::new(corner, fill.filled()), Rectangle::new(corner, BLACK.mix(0.3))]
        };
        let cells = (0..8).flat_map(|i| (0..16).flat_map(move |j| cell(i, j)));
        chart.draw_series(cells)?;
        if k == 0 {
            let corner = [(8.0, 8.0), (16.0, 10.0)];
            chart.draw_series([Rectangle::new(corner, BLUE.mix(0.25).filled())])?;
        }
        let write = |text: &str, x: f64, y: f64| {
            Text::new(text.to_string(), (x, y), ("sans-serif", 15).into_font().color(&BLACK))
        };
        chart.draw_series([
            write("k_x", 3.5, -0.5),
            write("y", -1.2, 8.5),
            write(texts[k][0], -1.0, -2.0),
            write(texts[k][1], -1.0, -3.4),
        ])?;
    }
    Ok(area.present()?)
}

/// Rings, an annulus and four segments on the kept square.
fn detectors(path: &Path) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, (760, 282)).into_drawing_area();
    area.fill(&WHITE)?;
    let circle = |radius: f64| -> Points {
        let turn = |k: i32| 2.0 * PI * f64::from(k) / 180.0;
        (0..=180).map(|k| (radius * turn(k).cos(), radius * turn(k).sin())).collect()
    };
    let titles = ["rings", "an annulus", "four segments"];
    for (k, panel) in area.split_evenly((1, 3)).iter().enumerate() {
        let mut chart = ChartBuilder::on(panel)
            .caption(titles[k], ("sans-serif", 16))
            .margin(10)
            .build_cartesian_2d(-1.05..1.05, -1.05..1.05)?;
        let corners = [(-1.0, -1.0), (1.0, 1.0)];
        chart.draw_series([Rectangle::new(corners, BLACK.stroke_width(1))])?;
        let radii: &[f64] = match k {
            0 => &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
            1 => &[0.45, 0.95],
            _ => &[0.25, 0.75],
        };
        if k > 0 {
            let colour = if k == 1 { BLUE } else { GREEN };
            chart.draw_series([Polygon::new(circle(radii[1]), colour.mix(0.3).filled())])?;
            chart.draw_series([Polygon::new(circle(radii[0]), WHITE.filled())])?;
        }
        chart.draw_series(
            radii.iter().map(|&r| PathElement::new(circle(r), BLACK.stroke_width(1))),
        )?;
        if k == 2 {
            let ray = |turn: f64| {
                let (y, x) = (turn * PI / 2.0).sin_cos();
                PathElement::new([(0.25 * x, 0.25 * y), (0.75 * x, 0.75 * y)], BLACK)
            };
            chart.draw_series([0.0, 1.0, 2.0, 3.0].map(ray))?;
        }
        chart.draw_series([Circle::new((0.0, 0.0), 2, BLACK.filled())])?;
    }
    Ok(area.present()?)
}

/// A row of a scan over three atoms: its phase, the deflection, and the integral.
fn deflections(path: &Path) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, (760, 300)).into_drawing_area();
    area.fill(&WHITE)?;
    let (n, step) = (64, 0.15);
    let atoms = [[2.4, 4.8, 1.0], [4.8, 4.4, 0.4], [7.2, 5.0, 0.7]];
    let at = |j: usize, i: usize| [i as f64 * step, j as f64 * step];
    let bump = |[x, y]: [f64; 2], [a, b, height]: [f64; 3]| {
        height * (-((x - a).powi(2) + (y - b).powi(2)) / 0.5).exp()
    };
    let phase = Array2::from_shape_fn((n, n), |(j, i)| {
        atoms.iter().map(|&atom| bump(at(j, i), atom)).sum::<f64>()
    });
    let centres = Array3::from_shape_fn((n, n, 2), |(j, i, axis)| {
        let place = at(j, i);
        let slope = |atom: [f64; 3]| -4.0 * (place[axis] - atom[axis]) * bump(place, atom);
        atoms.iter().map(|&atom| slope(atom)).sum::<f64>() / (2.0 * PI)
    });
    let found = integrated(centres.view(), [step, step], Edge::Mirrored)?;
    let shift = phase.mean().unwrap_or(0.0);
    let row = n / 2;
    let line = |value: &dyn Fn(usize) -> f64| -> Points {
        (0..n).map(|i| (i as f64 * step, value(i))).collect()
    };
    let labels = ["x [Å]", "phase [rad], deflection [1/Å]"];
    let lines = vec![
        ("phase", BLACK, line(&|i| phase[[row, i]])),
        ("centre of mass along x", RED, line(&|i| centres[[row, i, 0]])),
        ("integrated", GREEN, line(&|i| found[[row, i]] + shift)),
    ];
    panel(&area, SeriesLabelPosition::UpperRight, labels, [0.0..9.5, -0.3..1.1], lines)?;
    Ok(area.present()?)
}

/// What a lens makes of the phase of a weak specimen, with and without coherence.
fn transfers(path: &Path) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, (760, 300)).into_drawing_area();
    area.fill(&WHITE)?;
    let beam = Beam::new(200.0)?;
    let aberrations = Aberrations { defocus: -610.0, c3: 1e7, ..Default::default() };
    let coherent = HrtemOptics { aberrations, ..HrtemOptics::perfect(beam) };
    let partial = HrtemOptics { focal_spread: 40.0, convergence: 0.3, ..coherent.clone() };
    let grid = WaveGrid::new([4096, 4], [1200.0, 1.0])?;
    let curve = |lens: &HrtemOptics| -> Result<Points, Box<dyn Error>> {
        let transfer = lens.transfer(&grid)?;
        let kept = grid.kept(0).take(1000);
        Ok(kept.map(|k| (grid.frequency(0, k), -transfer[[0, k]].im)).collect())
    };
    let lines =
        vec![("coherent", RED, curve(&coherent)?), ("partially coherent", BLUE, curve(&partial)?)];
    panel(
        &area,
        SeriesLabelPosition::UpperLeft,
        ["q [1/Å]", "sin χ with envelopes"],
        [0.0..0.8, -1.1..1.1],
        lines,
    )?;
    Ok(area.present()?)
}
