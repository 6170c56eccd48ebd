//! Draws the figures of the chapter on the aliasing error into the folder that is given.

use lenslet::correction::{CorrectionMode, CorrectionOptions};
use lenslet::device::Engine;
use lenslet::model::{
    Atmosphere, GuideStar, Layer, LensletArray, MirrorDesign, Pupil, Source, Spacing, System,
};
use lenslet::plan::Plan;
use lenslet::plot::Figure;
use lenslet::psf::{CameraOptions, ErrorTerm, PsfOptions, PsfPlan};
use lenslet::tomography::ReconstructorOptions;
use lenslet::watch::unwatched;
use plotters::prelude::*;
use std::f64::consts::PI;
use std::{error::Error, path::Path, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    ripple(&folder.join("aliasing.svg"))?;
    budget(&folder.join("aliasing-budget.svg"))
}

/// A ripple over eight lenslets, its mean slopes, and the slow wave that has them, too.
fn ripple(path: &Path) -> Result<(), Box<dyn Error>> {
    lenslet::plot::load_font("DejaVu Sans")?;
    let area = SVGBackend::new(path, (760, 260)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area).margin(8).build_cartesian_2d(-0.1..8.1, -1.75..1.75)?;
    let (blue, red) = (RGBColor(0, 114, 178), RGBColor(213, 94, 0));
    let wave = |periods: f64| {
        let height = move |x: f64| (2.0 * PI * periods * x + 0.6).sin();
        (0..=800).map(move |k| 0.01 * f64::from(k)).map(move |x| (x, height(x)))
    };
    let edges = (0..=8).map(|k| PathElement::new(edge(k), BLACK.mix(0.3).stroke_width(1)));
    chart.draw_series(edges)?;
    chart.draw_series([
        PathElement::new(wave(0.75).collect::<Vec<_>>(), blue.stroke_width(2)),
        PathElement::new(wave(-0.25).collect::<Vec<_>>(), red.stroke_width(3)),
        PathElement::new(wave(-0.25).step_by(100).collect::<Vec<_>>(), BLACK.stroke_width(2)),
    ])?;
    let write = |text: &str, x: f64, colour: RGBColor| {
        let style = ("DejaVu Sans", 15).into_font().color(&colour);
        Text::new(text.to_string(), (x, 1.7), style)
    };
    chart.draw_series([
        write("ripple", 0.3, blue),
        write("mean slopes of lenslets", 2.2, BLACK),
        write("what the mirror makes", 5.4, red),
    ])?;
    Ok(area.present()?)
}

/// The edge between two lenslets.
fn edge(k: i32) -> Vec<(f64, f64)> {
    vec![(f64::from(k), -1.35), (f64::from(k), 1.35)]
}

/// The budget of a star at the target for lenslets of several sizes.
fn budget(path: &Path) -> Result<(), Box<dyn Error>> {
    let (mut lines, names) = (vec![Vec::new(); 3], ["fitting", "aliasing", "noise"]);
    for lenslets in [5, 6, 8, 10, 13, 16, 20] {
        let pitch = 4.0 / f64::from(lenslets);
        let terms = causes(lenslets as usize, pitch)?;
        for (line, name) in lines.iter_mut().zip(names) {
            let found = terms.iter().find(|(known, _)| known == name).ok_or("a term is missing")?;
            line.push((pitch, 1e9 * found.1));
        }
        println!("{lenslets} lenslets: {terms:?}");
    }
    let figure = Figure::new()
        .x_label("side of a lenslet and pitch of the mirror [m]")
        .y_label("error [nm rms]")
        .log_x()
        .log_y();
    let figure = lines.into_iter().zip(names).fold(figure, |f, (line, name)| f.line(name, line));
    Ok(figure.save(path)?)
}

/// The terms of the budget of a 4 m telescope, m rms.
fn causes(lenslets: usize, pitch: f64) -> Result<Vec<(String, f64)>, Box<dyn Error>> {
    let axis = Source::star(0.0, 0.0)?;
    let layers = vec![Layer::new(0.0, 0.6, 25.0), Layer::new(8e3, 0.4, 25.0)];
    let (air, array) =
        (Atmosphere::new(0.15, 500e-9, layers)?, LensletArray::new(lenslets, pitch)?);
    let builder = System::builder(air, array)
        .guide_stars([GuideStar::at_rest(axis, array, 2e-15)?])
        .targets([axis]);
    let system = builder.pupil(Some(Pupil::new(4.0, 0.0)?)).build()?;
    let terms = [ErrorTerm::Tomography, ErrorTerm::Aliasing, ErrorTerm::Fitting];
    let image = CameraOptions::default().pixels(16).terms(terms);
    let mirror =
        MirrorDesign { filter: 0.05, ..MirrorDesign::new(Spacing::Actuators(lenslets + 1)) };
    let correction = CorrectionOptions::new(CorrectionMode::Moao, vec![mirror]);
    let options = PsfOptions::new(ReconstructorOptions::default(), correction, image);
    let found = PsfPlan::new(&system, options)?.run(&Engine::default(), &unwatched)?;
    let terms = found.targets[0].budget.terms().iter();
    Ok(terms.map(|term| (term.name.clone(), term.rms())).collect())
}
