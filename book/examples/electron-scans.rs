//! Draws the figures of the chapters on PRISM, scans and their files into the folder that is given.

mod boxes;
mod images;

use boxes::{BLUE_INK, Drawn, GREEN_INK, Part, RED_INK, draw};
use images::{TYPEFACE, grey, paint, picture, write};
use lenslet::electrons::sample_file::SampleFile;
use lenslet::electrons::{Multislice, Potential, Prism, SMatrix, StemMethod};
use lenslet::electrons::{Scan, StemPlan, StemReadings};
use lenslet::numerics::Precision;
use lenslet::plan::Plan;
use lenslet::prelude::Engine;
use lenslet::specimen::{Atom, Slicing, Specimen};
use lenslet::watch::unwatched;
use ndarray::Array2;
use num_complex::Complex64;
use plotters::prelude::*;
use serde_json::json;
use std::{error::Error, path::Path, path::PathBuf};

fn main() -> Drawn {
    lenslet::plot::load_font("DejaVu Sans")?;
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    passes(&folder.join("two-passes.svg"))?;
    devices(&folder.join("scan-gpu.svg"))?;
    lists(&folder.join("detector-lists.svg"))?;
    windows_on_device(&folder.join("windows-on-device.svg"))?;
    order(&folder.join("scan-order.svg"))?;
    posed(&folder.join("posed-scans.svg"))?;
    options(&folder.join("prismatic-options.svg"))?;
    checkpoint(&folder.join("checkpoint.svg"))?;
    micrographs(&folder.join("micrographs.svg"))?;
    beside(&folder.join("beside-readings.svg"))?;
    window(&folder.join("prism-window.svg"))?;
    scans(&folder)
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
    let parts: [Part; 6] = [
        ((15, 15), (150, 60), &["host", "slices of", "a configuration"], BLUE_INK),
        ((15, 95), (150, 42), &["host", "positions of a batch"], BLUE_INK),
        ((15, 195), (150, 42), &["host", "means of readings"], BLUE_INK),
        (
            (250, 15),
            (300, 60),
            &["on each device", "all slices; the spectrum of the probe;", "lists of the detectors"],
            GREEN_INK,
        ),
        (
            (250, 95),
            (300, 42),
            &["waves of a batch, in each queue", "begin, all slices, detect"],
            RED_INK,
        ),
        ((250, 195), (300, 42), &["readings of the batch", "sums over the lists"], RED_INK),
    ];
    let arrows = [
        [(165, 45), (250, 45)],
        [(165, 116), (250, 116)],
        [(400, 75), (400, 95)],
        [(400, 137), (400, 195)],
        [(250, 216), (165, 216)],
    ];
    draw((path, (570, 255)), &parts, &arrows)
}

/// Frequencies, and lists of those that a detector adds up.
fn lists(path: &Path) -> Drawn {
    let area = SVGBackend::new(path, (560, 250)).into_drawing_area();
    area.fill(&WHITE)?;
    let (cell, count) = (14, 15);
    let colour = |radius: f64| match radius {
        r if r < 2.5 => BLUE_INK.mix(0.55),
        r if r < 4.5 => GREEN_INK.mix(0.5),
        r if r < 7.0 => RED_INK.mix(0.5),
        _ => BLACK.mix(0.12),
    };
    let square = |(x, y): (i32, i32), colour: RGBAColor| {
        Rectangle::new([(x, y), (x + cell - 2, y + cell - 2)], colour.filled())
    };
    for k in 0..count * count {
        let [i, j] = [k % count, k / count];
        let radius = f64::hypot(f64::from(i - count / 2), f64::from(j - count / 2));
        area.draw(&square((20 + i * cell, 20 + j * cell), colour(radius)))?;
    }
    let text = |words: &str, (x, y): (i32, i32)| {
        let style = ("DejaVu Sans", 13).into_font().color(&BLACK);
        area.draw(&Text::new(words.to_string(), (x, y), style))
    };
    let rows = [("a ring", 1.0, 13), ("the next ring", 3.0, 18), ("an annulus", 5.0, 18)];
    for (k, (words, radius, long)) in rows.into_iter().enumerate() {
        let y = 34 + 52 * k as i32;
        text(words, (270, y - 18))?;
        for i in 0..long {
            area.draw(&square((270 + i * cell, y), colour(radius)))?;
        }
        text("Σ", (270 + 18 * cell + 8, y - 2))?;
    }
    text("bins of the pattern, one by one", (270, 172))?;
    for (i, radius) in [9.0, 5.0, 5.0, 3.0, 1.0, 1.0].into_iter().enumerate() {
        area.draw(&square((270 + i as i32 * 2 * cell, 190), colour(radius)))?;
    }
    area.present()?;
    Ok(())
}

/// Planes of beams on a device, and a probe that looks through a window of each.
fn windows_on_device(path: &Path) -> Drawn {
    let area = SVGBackend::new(path, (600, 220)).into_drawing_area();
    area.fill(&WHITE)?;
    for k in (0..4).rev() {
        let (x, y) = (20 + 22 * k, 60 - 14 * k);
        area.draw(&Rectangle::new([(x, y), (x + 130, y + 130)], WHITE.filled()))?;
        area.draw(&Rectangle::new([(x, y), (x + 130, y + 130)], BLUE_INK.stroke_width(1)))?;
        let corners = [(x + 62, y + 30), (x + 102, y + 70)];
        area.draw(&Rectangle::new(corners, RED_INK.mix(0.25).filled()))?;
        area.draw(&Rectangle::new(corners, RED_INK.stroke_width(1)))?;
    }
    let text = |words: &str, place: (i32, i32)| {
        let style = ("DejaVu Sans", 13).into_font().color(&BLACK);
        area.draw(&Text::new(words.to_string(), place, style))
    };
    text("each beam behind the specimen", (20, 198))?;
    let steps = [
        "times the amplitude in the probe",
        "added over all beams",
        "rows, then columns",
        "lists of detectors",
    ];
    for (k, (words, colour)) in
        steps.into_iter().zip([RED_INK, RED_INK, GREEN_INK, BLUE_INK]).enumerate()
    {
        let (x, y) = (300 + 20 * k as i32, 25 + 42 * k as i32);
        area.draw(&Rectangle::new([(x, y), (x + 230, y + 28)], colour.mix(0.15).filled()))?;
        area.draw(&Rectangle::new([(x, y), (x + 230, y + 28)], colour.stroke_width(1)))?;
        text(words, (x + 10, y + 8))?;
    }
    area.present()?;
    Ok(())
}

/// Options of Prismatic and the tables that they go into.
fn options(path: &Path) -> Drawn {
    let parts: [Part; 9] = [
        ((15, 15), (110, 60), &["crystal", "-i  -c  -t", "-oc"], BLUE_INK),
        ((140, 15), (130, 60), &["potential", "-p  -s  -P  -f", "-3DP  -te  -F"], BLUE_INK),
        ((285, 15), (130, 60), &["beam and scan", "-E  -sa  -df  -tx", "-r  -wx  -nqs"], BLUE_INK),
        ((430, 15), (110, 60), &["method", "-a  -f  -mrf", "-ns  -zs"], BLUE_INK),
        ((555, 15), (110, 60), &["readings", "-d  -2D  -4D", "-DPC"], BLUE_INK),
        ((15, 110), (110, 42), &["file of atoms", "its cell, its atoms"], GREEN_INK),
        (
            (140, 110),
            (525, 42),
            &[
                "text of a sample file",
                "[sample] [potential] [phonons] [beam] [scan] [method] [detector] [run]",
            ],
            RED_INK,
        ),
        ((140, 185), (255, 42), &["notes", "what is not as in Prismatic"], GREEN_INK),
        ((410, 185), (255, 42), &["plan, run, origin", "as of any sample file"], RED_INK),
    ];
    let arrows = [
        [(70, 75), (70, 110)],
        [(125, 131), (140, 131)],
        [(205, 75), (205, 110)],
        [(350, 75), (350, 110)],
        [(485, 75), (485, 110)],
        [(610, 75), (610, 110)],
        [(265, 152), (265, 185)],
        [(535, 152), (535, 185)],
    ];
    draw((path, (680, 242)), &parts, &arrows)
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
        ((230, 156), (150, 40), &["Scan, Detectors", "positions, readings"], GREEN_INK),
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
        ((220, 20), (110, 60), &["how far", "positions, config-", "urations done"], GREEN_INK),
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
        ((355, 70), (120, 40), &["readings", "of all positions"], GREEN_INK),
        ((355, 150), (120, 40), &["readings", "of K positions"], RED_INK),
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

/// Silicon, 22 Å of it. Its atoms lie half a slice above the cuts, so that none is at the exit face, where the last slice would hold two planes.
fn silicon() -> Result<StemPlan, Box<dyn Error>> {
    let text = std::fs::read_to_string("book/systems/silicon-stem.toml")?;
    let text = text
        .replace("tile = [4, 4, 10]", "tile = [3, 3, 4]")
        .replace("[256, 256]", "[168, 168]")
        .replace("configurations = 4", "configurations = 0");
    let plan = SampleFile::from_toml(&text, "book/systems/silicon-stem.toml")?.plan()?;
    let (specimen, half) = (plan.specimen(), plan.options().slicing.thickness() / 2.0);
    let lifted = |atom: &Atom| {
        let [x, y, z] = atom.position;
        Atom { position: [x, y, z + half], ..*atom }
    };
    let atoms = specimen.atoms().iter().map(lifted).collect();
    Ok(StemPlan::new(Specimen::new(specimen.cell(), atoms)?, plan.options().clone())?)
}

fn read(plan: &StemPlan) -> Result<StemReadings, Box<dyn Error>> {
    Ok(plan.run(&Engine::cpu(Precision::F32), &unwatched)?)
}

/// A beam behind the crystal, and the window of a probe.
fn window(path: &Path) -> Drawn {
    let plan = silicon()?;
    let (options, specimen) = (plan.options(), plan.specimen());
    let slicing = Slicing::new(specimen.cell()[2], options.slicing.thickness())?;
    let potential = Potential::new(specimen, options.grid, slicing, options.potential)?;
    let prism = Prism::new(options.grid, [2, 2], &options.probe, None)?;
    let mut waves = prism.waves::<f64>(0..prism.beams());
    let multislice =
        Multislice::<f64>::new(options.grid, &options.probe.beam, potential.thickness())?;
    let slice = |k: usize| Ok(potential.slice(k));
    multislice.run(waves.view_mut(), slice, &[potential.count()], &unwatched, |_, _| Ok(()))?;
    let matrix = SMatrix::new(prism, &options.probe.beam, waves, 0.0)?;
    let beam = matrix.plane(5);
    let (ny, nx) = beam.dim();
    let least = beam.iter().map(|a: &Complex64| a.norm()).fold(f64::INFINITY, f64::min);
    let most = beam.iter().map(|a: &Complex64| a.norm()).fold(0.0, f64::max);
    let place = |share: f64, n: usize| (share * n as f64) as usize;
    picture(path, (860, 620), |area| {
        paint(&area.clone().shrink((30, 30), (560, 560)), |x, y| {
            grey((beam[[place(y, ny), place(x, nx)]].norm() - least) / (most - least))
        })?;
        let corners = vec![(170, 170), (450, 170), (450, 450), (170, 450), (170, 170)];
        area.draw(&PathElement::new(corners, RED_INK.stroke_width(4)))?;
        area.draw(&Circle::new((310, 310), 8, RED_INK.filled()))?;
        for (k, line) in ["a beam behind", "the crystal, |S_b|"].into_iter().enumerate() {
            write(area, line, (610, 40 + 36 * k as i32))?;
        }
        for (k, line) in ["the window of", "a probe, f = 2"].into_iter().enumerate() {
            let ink = (TYPEFACE, 26).into_font().color(&RED_INK);
            area.draw(&Text::new(line, (610, 260 + 36 * k as i32), ink))?;
        }
        Ok(())
    })
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
    rings(&folder.join("live-silicon-rings.json"), &plan, &readings)?;
    // Errors of PRISM by detector, at every other place along both axes
    let scan = Scan::new([[0.0, 5.43]; 2], plan.options().scan.step().map(|step| 2.0 * step))?;
    let coarse = plan.options().clone().scan(scan);
    let readings = read(&StemPlan::new(plan.specimen().clone(), coarse.clone())?)?;
    let detectors =
        [(0.0, 20.0, "0–20 mrad"), (22.0, 40.0, "22–40 mrad"), (60.0, 90.0, "60–90 mrad")];
    let mut lines: Vec<Vec<(f64, f64)>> = vec![Vec::new(); 3];
    let exact = detectors.map(|(first, last, _)| column(first, last, &readings));
    let means = exact.clone().map(|image| image.iter().sum::<f64>() / image.len() as f64);
    let parts = |image: &[f64], mean: f64| -> Vec<i64> {
        image.iter().map(|value| (1e4 * value / mean).round() as i64).collect()
    };
    let factors = [1, 2, 3, 6, 7];
    let (mut beams, mut differences) = (Vec::new(), Vec::new());
    for f in factors {
        let method = StemMethod::Prism { factor: [f, f], refocus: 0.0, margin: None };
        let options = coarse.clone().method(method);
        let shared = read(&StemPlan::new(plan.specimen().clone(), options)?)?;
        for (line, (first, last, _)) in lines.iter_mut().zip(detectors) {
            let (a, b) = (column(first, last, &shared), column(first, last, &readings));
            let mean = b.iter().sum::<f64>() / b.len() as f64;
            let square =
                a.iter().zip(&b).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / b.len() as f64;
            line.push((f as f64, 100.0 * square.sqrt() / mean));
        }
        let found = detectors.map(|(first, last, _)| column(first, last, &shared));
        let less =
            |d: usize| -> Vec<f64> { found[d].iter().zip(&exact[d]).map(|(a, b)| a - b).collect() };
        differences.push([0, 1, 2].map(|d| parts(&less(d), means[d])));
        beams.push(Prism::new(coarse.grid, [f, f], &coarse.probe, None)?.beams());
    }
    let multislice = [0, 1, 2].map(|d| parts(&exact[d], means[d]));
    let results = json!({
        "step": coarse.scan.step()[0],
        "counts": coarse.scan.counts(),
        "detectors": detectors.map(|(.., name)| name),
        "factors": factors,
        "means": means,
        "multislice": multislice,
        "differences": differences,
        "errors": (0..factors.len()).map(|k| [0, 1, 2].map(|d| lines[d][k].1)).collect::<Vec<_>>(),
        "beams": beams,
    });
    std::fs::write(folder.join("live-prism-factor.json"), results.to_string())?;
    errors(&folder.join("prism-errors.svg"), &lines, &detectors.map(|(.., name)| name))
}

/// Share of the electrons by position and ring, in millionths, for the live figure of detectors: three rings of the readings in one.
fn rings(path: &Path, plan: &StemPlan, readings: &StemReadings) -> Drawn {
    let millionths = |rings: &[f64]| (1e6 * rings.iter().sum::<f64>()).round() as i64;
    let last = plan.detectors().rings().min(96) / 3 * 3;
    let of_position = |row: ndarray::ArrayView1<'_, f64>| -> Vec<i64> {
        row.to_vec()[..last].chunks(3).map(millionths).collect()
    };
    let scan = &plan.options().scan;
    let all: Vec<Vec<i64>> = readings.mean.outer_iter().map(of_position).collect();
    let results =
        json!({ "step": scan.step()[0], "counts": scan.counts(), "width": 3, "rings": all });
    Ok(std::fs::write(path, results.to_string())?)
}

fn dark_field(path: &Path, image: &Array2<f64>, step: f64) -> Drawn {
    let (nx, ny) = image.dim();
    let [least, most] =
        [image.fold(f64::INFINITY, |a: f64, b| a.min(*b)), image.fold(0.0, |a: f64, b| a.max(*b))];
    let place = |share: f64, n: usize| (share * n as f64) as usize;
    picture(path, (800, 680), |area| {
        paint(&area.clone().shrink((30, 30), (560, 560)), |x, y| {
            grey((image[[place(x, nx), place(y, ny)]] - least) / (most - least))
        })?;
        let length = (2.0 / step * 560.0 / nx as f64) as i32;
        area.draw(&Rectangle::new([(30, 612), (30 + length, 622)], BLACK.filled()))?;
        write(area, "2 Å", (44 + length, 602))?;
        paint(&area.clone().shrink((620, 30), (40, 560)), |_, y| grey(y))?;
        write(area, &format!("{:.2} %", 100.0 * most), (670, 30))?;
        write(area, &format!("{:.2} %", 100.0 * least), (670, 562))
    })
}

fn errors(path: &Path, lines: &[Vec<(f64, f64)>], names: &[&str; 3]) -> Drawn {
    let area = SVGBackend::new(path, (560, 300)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d((0.9..8.0f64).log_scale(), (1e-4..200.0f64).log_scale())?;
    let style = ("DejaVu Sans", 13).into_font();
    let mesh = &mut chart.configure_mesh();
    mesh.label_style(style.clone())
        .light_line_style(TRANSPARENT)
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
