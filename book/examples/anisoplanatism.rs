//! Draws what one mirror leaves along a field, and the memory that many targets take, into the folder that is given.

use lenslet::correction::{CorrectionMode, CorrectionOptions};
use lenslet::device::Engine;
use lenslet::model::{MirrorDesign, Source, Spacing, System};
use lenslet::plan::Plan;
use lenslet::plot::Figure;
use lenslet::psf::{CameraOptions, ErrorTerm, PsfOptions, PsfPlan, StructureFunctionModel};
use lenslet::tomography::{ReconstructorOptions, ReconstructorPlan};
use lenslet::units::ARCSEC;
use lenslet::watch::unwatched;
use std::f64::consts::PI;
use std::{error::Error, path::Path, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    cut(&folder.join("anisoplanatism.svg"))?;
    memory(&folder.join("many-targets.svg"))
}

fn options(mode: CorrectionMode, actuators: usize) -> PsfOptions {
    let image = CameraOptions::default().pixels(16).terms([ErrorTerm::Tomography]);
    let image = image.structure(StructureFunctionModel::Stationary);
    let mirrors =
        vec![MirrorDesign { filter: 0.05, ..MirrorDesign::new(Spacing::Actuators(actuators)) }];
    let correction = CorrectionOptions::new(mode, mirrors);
    PsfOptions::new(ReconstructorOptions::default(), correction, image)
}

/// Errors along a cut through the field of a mirror for the axis, and of a mirror for each direction.
fn cut(path: &Path) -> Result<(), Box<dyn Error>> {
    let system = System::from_file("book/systems/small-moao.toml")?;
    let places: Vec<f64> = (-12..=12).map(|k| 5.0 * f64::from(k)).collect();
    let place = |x: &f64| Source::star(x.abs() * ARCSEC, if *x < 0.0 { PI } else { 0.0 });
    let along = places.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    let targets = [Source::star(0.0, 0.0)?].into_iter().chain(along);
    let system = system.to_builder().targets(targets).build()?;
    let mut shared = options(CorrectionMode::Ltao, 9);
    shared.image.terms.get_or_insert_default().push(ErrorTerm::Anisoplanatism);
    let run = |options| PsfPlan::new(&system, options)?.run(&Engine::default(), &unwatched);
    let (shared, own) = (run(shared)?, run(options(CorrectionMode::Moao, 9))?);
    let of = |name: &str| -> Vec<(f64, f64)> {
        let rms = |k: usize| {
            let terms = shared.targets[1 + k].budget.terms();
            terms.iter().find(|term| term.name == name).map_or(f64::NAN, |term| term.rms())
        };
        places.iter().enumerate().map(|(k, x)| (*x, 1e9 * rms(k))).collect()
    };
    let total = |k: usize| 1e9 * shared.targets[1 + k].budget.total();
    let each = |k: usize| 1e9 * own.targets[1 + k].budget.total();
    let at = |value: &dyn Fn(usize) -> f64| -> Vec<(f64, f64)> {
        places.iter().enumerate().map(|(k, x)| (*x, value(k))).collect()
    };
    let figure = Figure::new()
        .title("small-moao.toml with one mirror, for the axis")
        .x_label("direction along x [arcsec]")
        .y_label("error of the wavefront [nm]")
        .y_range(0.0, 600.0)
        .line("tomography", of("tomography"))
        .line("anisoplanatism", of("anisoplanatism"))
        .line("both", at(&total))
        .dashes("a mirror for each direction", at(&each));
    println!("{:.0?}\n{:.0?}", of("anisoplanatism"), at(&total));
    Ok(figure.save(path)?)
}

/// Memory that plans state for a large telescope by the number of its directions.
fn memory(path: &Path) -> Result<(), Box<dyn Error>> {
    let system = System::from_file("book/systems/harmoni-ltao.toml")?;
    let (mut one, mut all) = (Vec::new(), Vec::new());
    for count in [1, 2, 3, 5, 10, 20, 30, 50, 100_u32] {
        let place = |k: u32| Source::star(f64::from(k) * 0.1 * ARCSEC, 0.3);
        let targets = (0..count).map(place).collect::<Result<Vec<_>, _>>()?;
        let system = system.to_builder().targets(targets).build()?;
        let mut wanted = options(CorrectionMode::Ltao, 75);
        wanted.image.terms.get_or_insert_default().push(ErrorTerm::Anisoplanatism);
        let engine = Engine::default();
        let gibibytes = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let told = PsfPlan::new(&system, wanted)?.describe(&engine)?.memory.host;
        one.push((f64::from(count), gibibytes(told)));
        let together = ReconstructorOptions::default().keep(true);
        let told = ReconstructorPlan::new(&system, together)?.memory(&engine)?.host;
        all.push((f64::from(count), gibibytes(told)));
    }
    println!("{one:.1?}\n{all:.1?}");
    let figure = Figure::new()
        .title("harmoni-ltao.toml")
        .x_label("directions")
        .y_label("memory [GiB]")
        .log_x()
        .log_y()
        .line("one after the other", one)
        .dashes("all at once", all);
    Ok(figure.save(path)?)
}
