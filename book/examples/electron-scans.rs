//! Draws the figures of the chapters on PRISM, scans and their files into the folder that is given.

use lenslet::device::silent;
use lenslet::electrons::sample_file::SampleFile;
use lenslet::electrons::{Multislice, Potential, PotentialModel, Prism, SMatrix, StemMethod};
use lenslet::electrons::{StemPlan, StemReadings};
use lenslet::numerics::Precision;
use lenslet::prelude::Engine;
use lenslet::specimen::{Factors, Slicing};
use ndarray::Array2;
use num_complex::Complex64;
use plotters::prelude::*;
use std::{error::Error, path::Path, path::PathBuf};

type Drawn = Result<(), Box<dyn Error>>;

const BLUE_INK: RGBColor = RGBColor(0, 114, 178);
const RED_INK: RGBColor = RGBColor(213, 94, 0);
const GREEN_INK: RGBColor = RGBColor(0, 130, 90);

/// A box: its upper left corner, width and height, its lines, and the colour of its kind.
type Part = ((i32, i32), (i32, i32), &'static [&'static str], RGBColor);

fn main() -> Drawn {
    lenslet::plot::load_font("DejaVu Sans")?;
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    passes(&folder.join("two-passes.svg"))?;
    devices(&folder.join("scan-gpu.svg"))?;
    order(&folder.join("scan-order.svg"))?;
    posed(&folder.join("posed-scans.svg"))?;
    checkpoint(&folder.join("checkpoint.svg"))?;
    micrographs(&folder.join("micrographs.svg"))?;
    beside(&folder.join("beside-readings.svg"))?;
    window(&folder.join("prism-window.svg"))?;
    scans(&folder)
}

/// Boxes with lines of text, and arrows between points.
fn draw((path, size): (&Path, (u32, u32)), parts: &[Part], arrows: &[[(i32, i32); 2]]) -> Drawn {
    let area = SVGBackend::new(path, size).into_drawing_area();
    area.fill(&WHITE)?;
    for ((x, y), (width, height), lines, colour) in parts {
        let corners = [(*x, *y), (x + width, y + height)];
        area.draw(&Rectangle::new(corners, colour.mix(0.15).filled()))?;
        area.draw(&Rectangle::new(corners, colour.stroke_width(1)))?;
        for (k, line) in lines.iter().enumerate() {
            let style = ("DejaVu Sans", 13).into_font().color(if k == 0 { colour } else { &BLACK });
            area.draw(&Text::new((*line).to_string(), (x + 7, y + 6 + 18 * k as i32), style))?;
        }
    }
    for [(x, y), (u, v)] in arrows {
        let (dx, dy) = (f64::from(u - x), f64::from(v - y));
        let length = f64::hypot(dx, dy);
        let (along, across) = ([dx / length, dy / length], [-dy / length, dx / length]);
        let wing = |side: f64| {
            let at = |k: usize, end: i32| f64::from(end) - 9.0 * along[k] + side * across[k];
            (at(0, *u).round() as i32, at(1, *v).round() as i32)
        };
        let points = vec![(*x, *y), (*u, *v), wing(4.0), (*u, *v), wing(-4.0)];
        area.draw(&PathElement::new(points, BLACK.mix(0.7).stroke_width(1)))?;
    }
    area.present()?;
    Ok(())
}

/// A slice in two passes over memory.
fn passes(path: &Path) -> Drawn {
    let parts: [Part; 5] = [
        ((15, 70), (120, 60), &["wave", "(y, k_x), half of k_x", "in memory"], BLUE_INK),
        (
            (175, 15),
            (190, 80),
            &["rows, in a block", "k_x → x", "times the transmission", "x → k_x"],
            RED_INK,
        ),
        ((405, 70), (120, 60), &["wave", "(y, k_x)", "in memory"], BLUE_INK),
        (
            (175, 110),
            (190, 80),
            &["columns, in a block", "y → k_y", "times the propagator", "k_y → y"],
            GREEN_INK,
        ),
        ((15, 145), (120, 42), &["next slice", ""], BLUE_INK),
    ];
    let arrows = [
        [(135, 85), (175, 60)],
        [(365, 60), (405, 85)],
        [(405, 115), (365, 140)],
        [(175, 150), (135, 165)],
    ];
    draw((path, (545, 205)), &parts, &arrows)
}

/// What lies on a device, and what goes to it and comes back.
fn devices(path: &Path) -> Drawn {
    let parts: [Part; 5] = [
        ((15, 15), (150, 60), &["host", "potential of", "a configuration"], BLUE_INK),
        ((15, 110), (150, 60), &["host", "places of a block;", "detectors"], BLUE_INK),
        (
            (250, 15),
            (290, 42),
            &["on each device, once a configuration", "all slices; the spectrum of the probe"],
            GREEN_INK,
        ),
        ((250, 75), (290, 42), &["waves of a batch", "begin, all slices, look"], RED_INK),
        ((250, 135), (290, 42), &["spectra of the batch", ""], RED_INK),
    ];
    let arrows = [
        [(165, 40), (250, 35)],
        [(165, 125), (250, 95)],
        [(395, 117), (395, 135)],
        [(250, 156), (165, 150)],
    ];
    draw((path, (560, 195)), &parts, &arrows)
}

/// Loops of a scan, one in the other.
fn order(path: &Path) -> Drawn {
    let parts: [Part; 5] = [
        (
            (15, 15),
            (540, 190),
            &["configuration c of the phonons: potential, slices made ready"],
            BLUE_INK,
        ),
        ((35, 45), (340, 145), &["block of probes"], RED_INK),
        (
            (55, 75),
            (300, 60),
            &["slice after slice", "all probes of the block, a batch for each thread"],
            GREEN_INK,
        ),
        ((55, 145), (300, 36), &["detectors: a row of readings for each probe"], GREEN_INK),
        (
            (400, 105),
            (140, 60),
            &["mean and spread", "of all configurations", "so far; checkpoint"],
            RED_INK,
        ),
    ];
    draw((path, (570, 220)), &parts, &[[(205, 135), (205, 145)], [(355, 163), (400, 140)]])
}

/// Tables of a sample file and what they become.
fn posed(path: &Path) -> Drawn {
    let parts: [Part; 9] = [
        ((15, 15), (150, 40), &["[sample]", "file, tile, cell, beam"], BLUE_INK),
        ((15, 62), (150, 40), &["[potential]", "grid, slice_thickness"], BLUE_INK),
        ((15, 109), (150, 40), &["[beam]", "energy, angle, lenses"], BLUE_INK),
        ((15, 156), (150, 40), &["[scan], [detector]", "window, step, annuli"], BLUE_INK),
        ((230, 15), (150, 40), &["Specimen", "atoms in a cell"], GREEN_INK),
        ((230, 62), (150, 40), &["WaveGrid, Slicing", "samples and slices"], GREEN_INK),
        ((230, 109), (150, 40), &["Probe", "its wave on the grid"], GREEN_INK),
        ((230, 156), (150, 40), &["Scan, Detectors", "places, readings"], GREEN_INK),
        ((440, 85), (110, 40), &["StemPlan", "ready to run"], RED_INK),
    ];
    let rows = [35, 82, 129, 176];
    let across = rows.map(|y| [(165, y), (230, y)]);
    let into = rows.map(|y| [(380, y), (440, 105)]);
    draw((path, (570, 210)), &parts, &[across, into].concat())
}

/// What a checkpoint is made of.
fn checkpoint(path: &Path) -> Drawn {
    let parts: [Part; 5] = [
        ((15, 20), (95, 60), &["mark", "what file", "it is"], BLUE_INK),
        ((110, 20), (110, 60), &["fingerprint", "of plan, atoms,", "engine"], RED_INK),
        ((220, 20), (110, 60), &["how far", "places, config-", "urations done"], GREEN_INK),
        ((330, 20), (150, 60), &["readings", "means, squared", "deviations"], GREEN_INK),
        ((480, 20), (80, 60), &["sum", "over all", "bytes"], RED_INK),
    ];
    draw((path, (575, 100)), &parts, &[])
}

/// Which images a plane wave makes on its way.
fn micrographs(path: &Path) -> Drawn {
    let parts: [Part; 7] = [
        ((15, 50), (105, 58), &["configuration c", "atoms displaced,", "one plane wave"], BLUE_INK),
        ((150, 15), (100, 130), &["slices", "transmit and", "propagate"], BLUE_INK),
        ((290, 15), (110, 40), &["plane inside", "after 20 slices"], GREEN_INK),
        ((290, 105), (110, 40), &["exit face", "after all slices"], GREEN_INK),
        ((440, 15), (110, 40), &["lens", "one image a focus"], GREEN_INK),
        ((440, 105), (110, 40), &["lens", "one image a focus"], GREEN_INK),
        ((590, 50), (110, 58), &["mean over c", "and the standard", "error of it"], RED_INK),
    ];
    let arrows = [
        [(120, 79), (150, 79)],
        [(250, 35), (290, 35)],
        [(250, 125), (290, 125)],
        [(400, 35), (440, 35)],
        [(400, 125), (440, 125)],
        [(550, 35), (590, 70)],
        [(550, 125), (590, 90)],
    ];
    draw((path, (715, 160)), &parts, &arrows)
}

/// What is kept of a run besides its readings, and what PRISM is held against.
fn beside(path: &Path) -> Drawn {
    let parts: [Part; 8] = [
        ((15, 15), (120, 40), &["potential", "first configuration"], BLUE_INK),
        ((15, 70), (120, 40), &["probe", "on its grid"], BLUE_INK),
        ((185, 15), (120, 40), &["S-matrix", "a wave a beam"], GREEN_INK),
        ((185, 70), (120, 40), &["PRISM", "all probes"], GREEN_INK),
        ((185, 150), (120, 40), &["multislice", "K probes, all beams"], RED_INK),
        ((355, 70), (120, 40), &["readings", "of all places"], GREEN_INK),
        ((355, 150), (120, 40), &["readings", "of K places"], RED_INK),
        ((525, 110), (120, 40), &["errors", "by detector"], RED_INK),
    ];
    let arrows = [
        [(135, 35), (185, 35)],
        [(135, 90), (185, 90)],
        [(245, 55), (245, 70)],
        [(75, 110), (185, 165)],
        [(305, 90), (355, 90)],
        [(305, 170), (355, 170)],
        [(475, 90), (525, 122)],
        [(475, 170), (525, 138)],
    ];
    draw((path, (660, 205)), &parts, &arrows)
}

fn silicon() -> Result<StemPlan, Box<dyn Error>> {
    let text = std::fs::read_to_string("book/systems/silicon-stem.toml")?;
    let text =
        text.replace("tile = [4, 4, 10]", "tile = [4, 4, 4]").replace("[256, 256]", "[224, 224]");
    Ok(SampleFile::from_toml(&text, "book/systems/silicon-stem.toml")?.plan()?)
}

fn read(plan: &StemPlan) -> Result<StemReadings, Box<dyn Error>> {
    let mut readings = plan.begin(0..plan.places())?;
    plan.run(&Engine::cpu(Precision::F32), &mut readings, &silent, &mut |_| Ok(()))?;
    Ok(readings)
}

/// A beam behind the crystal, and the window of a probe.
fn window(path: &Path) -> Drawn {
    let plan = silicon()?;
    let (options, specimen) = (plan.options(), plan.specimen());
    let slicing = Slicing::new(specimen.cell()[2], options.slicing.thickness())?;
    let model = PotentialModel::Projected;
    let potential = Potential::new(specimen, options.grid, slicing, model, Factors::Kirkland, 3.0)?;
    let prism = Prism::new(options.grid, [2, 2], &options.probe)?;
    let mut waves = prism.waves::<f64>();
    let multislice =
        Multislice::<f64>::new(options.grid, &options.probe.beam, potential.thickness())?;
    let slice = |k: usize| Ok(potential.slice(k));
    multislice.run(waves.view_mut(), slice, &[potential.count()], &silent, |_, _| Ok(()))?;
    let matrix = SMatrix::new(prism, &options.probe.beam, waves.view(), 0.0)?;
    let beam = matrix.plane(5);
    let (ny, nx) = beam.dim();
    let area = SVGBackend::new(path, (420, 320)).into_drawing_area();
    area.fill(&WHITE)?;
    let least = beam.iter().map(|a: &Complex64| a.norm()).fold(f64::INFINITY, f64::min);
    let most = beam.iter().map(|a: &Complex64| a.norm()).fold(0.0, f64::max);
    for ((j, i), a) in beam.indexed_iter() {
        let grey = (255.0 * (a.norm() - least) / (most - least)) as u8;
        let corner = |k: usize, n: usize| 20 + (280 * k / n) as i32;
        let corners = [(corner(i, nx), corner(j, ny)), (corner(i + 1, nx), corner(j + 1, ny))];
        area.draw(&Rectangle::new(corners, RGBColor(grey, grey, grey).filled()))?;
    }
    area.draw(&Rectangle::new([(90, 90), (230, 230)], RED_INK.stroke_width(2)))?;
    area.draw(&Circle::new((160, 160), 4, RED_INK.filled()))?;
    let ink = |colour| ("DejaVu Sans", 13).into_font().color(colour);
    area.draw(&Text::new("a beam behind", (310, 30), ink(&BLACK)))?;
    area.draw(&Text::new("the crystal, |S_b|", (310, 48), ink(&BLACK)))?;
    area.draw(&Text::new("the window of", (310, 140), ink(&RED_INK)))?;
    area.draw(&Text::new("a probe, f = 2", (310, 158), ink(&RED_INK)))?;
    area.present()?;
    Ok(())
}

/// Silicon in a dark field, and what PRISM's interpolation changes of it.
fn scans(folder: &Path) -> Drawn {
    let plan = silicon()?;
    let detectors = plan.detectors();
    let [nx, ny] = plan.options().scan.counts();
    let readings = read(&plan)?;
    let column = |first: f64, last: f64, readings: &StemReadings| -> Vec<f64> {
        let rings = (first as usize)..(last as usize).min(detectors.rings());
        readings.mean.outer_iter().map(|row| rings.clone().map(|k| row[k]).sum()).collect()
    };
    let image = Array2::from_shape_vec((nx, ny), column(60.0, 90.0, &readings))?;
    dark_field(&folder.join("silicon-haadf.svg"), &image, plan.options().scan.step()[0])?;
    // Errors of PRISM by detector
    let detectors =
        [(0.0, 20.0, "0–20 mrad"), (22.0, 40.0, "22–40 mrad"), (60.0, 90.0, "60–90 mrad")];
    let mut lines: Vec<Vec<(f64, f64)>> = vec![Vec::new(); 3];
    for f in [1, 2, 4, 7, 8] {
        let method = StemMethod::Prism { factor: [f, f], refocus: 0.0 };
        let options = lenslet::electrons::StemOptions { method, ..plan.options().clone() };
        let shared = read(&StemPlan::new(plan.specimen().clone(), options)?)?;
        for (line, (first, last, _)) in lines.iter_mut().zip(detectors) {
            let (a, b) = (column(first, last, &shared), column(first, last, &readings));
            let mean = b.iter().sum::<f64>() / b.len() as f64;
            let square =
                a.iter().zip(&b).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / b.len() as f64;
            line.push((f as f64, 100.0 * square.sqrt() / mean));
        }
    }
    errors(&folder.join("prism-errors.svg"), &lines, &detectors.map(|(.., name)| name))
}

fn dark_field(path: &Path, image: &Array2<f64>, step: f64) -> Drawn {
    let (nx, ny) = image.dim();
    let area = SVGBackend::new(path, (380, 330)).into_drawing_area();
    area.fill(&WHITE)?;
    let [least, most] =
        [image.fold(f64::INFINITY, |a: f64, b| a.min(*b)), image.fold(0.0, |a: f64, b| a.max(*b))];
    let side = 280 / nx.max(ny) as i32;
    for ((i, j), value) in image.indexed_iter() {
        let grey = (255.0 * (value - least) / (most - least)) as u8;
        let corner = [i, j].map(|k| 20 + side * k as i32);
        let corners = [(corner[0], corner[1]), (corner[0] + side, corner[1] + side)];
        area.draw(&Rectangle::new(corners, RGBColor(grey, grey, grey).filled()))?;
    }
    let bar = (2.0 / step * f64::from(side)) as i32;
    area.draw(&Rectangle::new([(30, 300), (30 + bar, 305)], BLACK.filled()))?;
    let ink = ("DejaVu Sans", 13).into_font().color(&BLACK);
    area.draw(&Text::new("2 Å", (40 + bar, 296), ink.clone()))?;
    area.draw(&Text::new(format!("{:.1} %", 100.0 * most), (310, 25), ink.clone()))?;
    area.draw(&Text::new(format!("to {:.1} %", 100.0 * least), (310, 45), ink))?;
    area.present()?;
    Ok(())
}

fn errors(path: &Path, lines: &[Vec<(f64, f64)>], names: &[&str; 3]) -> Drawn {
    let area = SVGBackend::new(path, (560, 300)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d((0.9..9.0f64).log_scale(), (1e-4..100.0f64).log_scale())?;
    let style = ("DejaVu Sans", 13).into_font();
    let mesh = &mut chart.configure_mesh();
    mesh.label_style(style.clone())
        .x_desc("interpolation f")
        .y_desc("rms error [% of the mean]")
        .draw()?;
    for ((line, name), colour) in lines.iter().zip(names).zip([BLUE_INK, GREEN_INK, RED_INK]) {
        let shown: Vec<_> = line.iter().map(|&(f, error)| (f, error.max(1.2e-4))).collect();
        let drawn = LineSeries::new(shown, colour.stroke_width(2)).point_size(3);
        let key = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2));
        chart.draw_series(drawn)?.label(*name).legend(key);
    }
    let position = SeriesLabelPosition::LowerRight;
    chart
        .configure_series_labels()
        .position(position)
        .label_font(style)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}
