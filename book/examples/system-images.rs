//! Draws the images of a system's targets into the folder that is given.

use lenslet::device::Engine;
use lenslet::model::{Source, System, SystemFile};
use lenslet::plan::Plan;
use lenslet::plot::{
    FieldPicture, PictureFormat, plot_budgets, plot_field, plot_profiles, plot_stars,
};
use lenslet::psf::{Exposure, Field, PsfOptions, PsfPlan, StructureFunctionModel};
use lenslet::units::ARCSEC;
use lenslet::watch::unwatched;
use std::{error::Error, path::Path, path::PathBuf};

const SYSTEM: &str = "book/systems/small-moao.toml";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let file = SystemFile::from_file(SYSTEM)?;
    let (system, options) = (file.system()?, PsfOptions::from_system_file(&file)?);
    let plan = PsfPlan::new(&system, options.clone())?;
    let found = plan.run(&Engine::default(), &unwatched)?;
    let titles: Vec<String> = found
        .targets
        .iter()
        .enumerate()
        .map(|(t, target)| format!("target {t}: Strehl {:.2}", target.exposures[0].image.strehl))
        .collect();
    let mut images = vec![("perfect", &found.targets[0].exposures[0].perfect)];
    for (title, target) in titles.iter().zip(&found.targets) {
        images.push((title, &target.exposures[0].image));
    }
    images.push(("without correction", &found.uncorrected));
    let picture = plot_stars(&images, "small-moao.toml at 1.65 µm", 4, PictureFormat::Svg)?;
    std::fs::write(folder.join("system-images.svg"), picture)?;
    images.rotate_left(1);
    let title = "small-moao.toml at 1.65 µm";
    let picture = plot_profiles(&images, title, 4, PictureFormat::Svg)?;
    std::fs::write(folder.join("star-profiles.svg"), picture)?;
    let [first, second] = &found.targets[..] else { return Err("two targets".into()) };
    let budgets = [("target 0", &first.budget), ("target 1", &second.budget)];
    let picture = plot_budgets(&budgets, "small-moao.toml: error budget", PictureFormat::Svg)?;
    std::fs::write(folder.join("budget-bars.svg"), picture)?;
    field(&system, options, &folder)?;
    galaxies(&folder)
}

/// Directions of the natural and of the laser guide stars, arcsec.
fn directions(system: &System) -> [Vec<[f64; 2]>; 2] {
    let sources = system.guide_stars().iter().map(|star| &star.sensor.source);
    let (natural, laser): (Vec<_>, Vec<_>) = sources.partition(|star| star.height().is_infinite());
    [natural, laser].map(|stars: Vec<&Source>| {
        stars.iter().map(|star| star.direction().map(|x| x / ARCSEC)).collect()
    })
}

/// Maps of a field of 96 arcseconds, of images as if errors were stationary.
fn field(system: &System, mut options: PsfOptions, folder: &Path) -> Result<(), Box<dyn Error>> {
    let field = Field { size: 96.0 * ARCSEC, step: 8.0 * ARCSEC };
    options.field = Some(field);
    options.image.structure = StructureFunctionModel::Stationary;
    let found = PsfPlan::new(system, options)?.run(&Engine::default(), &unwatched)?;
    let seen =
        |value: &dyn Fn(&Exposure) -> f64| found.map(&field, |seen| value(&seen.exposures[0]));
    let width = |seen: &Exposure| seen.width.map_or(f64::NAN, |width| 1e3 * width.mean() / ARCSEC);
    let maps = vec![
        ("Strehl ratio".to_string(), seen(&|seen| seen.image.strehl)),
        ("FWHM [mas]".to_string(), seen(&width)),
        ("energy in a box of 150 mas".to_string(), seen(&|seen| seen.ensquared[0])),
        (
            "wavefront error [nm rms]".to_string(),
            found.map(&field, |seen| 1e9 * seen.budget.total()),
        ),
    ];
    let [stars, lasers] = directions(system);
    let title = "small-moao.toml at 1.65 µm".to_string();
    let picture = FieldPicture { title, maps, step: field.step / ARCSEC, stars, lasers };
    Ok(std::fs::write(folder.join("field-maps.svg"), plot_field(&picture, PictureFormat::Svg)?)?)
}

/// The energy in a box over a field like that of MOSAIC, in fewer directions than the file asks for.
fn galaxies(folder: &Path) -> Result<(), Box<dyn Error>> {
    const GALAXIES: &str = "book/systems/mosaic-field.toml";
    let file = SystemFile::from_file(GALAXIES)?;
    let (system, mut options) = (file.system()?, PsfOptions::from_system_file(&file)?);
    let field = Field { size: 120.0 * ARCSEC, step: 30.0 * ARCSEC };
    options.field = Some(field);
    let plan = PsfPlan::new(&system, options)?;
    let found = plan.run(&Engine::default(), &unwatched)?;
    let energy = found.map(&field, |seen| seen.exposures[0].ensquared[0]);
    let (seen, middle) = (&found.uncorrected, (found.uncorrected.pixels() / 2) as f64);
    let near = |k: usize| (k as f64 - middle).abs() * seen.pixel <= 80e-3 * ARCSEC;
    let shares = seen.shares();
    let inside = shares.indexed_iter().filter(|((j, i), _)| near(*j) && near(*i));
    let none: f64 = inside.map(|(_, share)| share).sum();
    println!("in the box without correction: {none:.3}; in the field: {energy:.3}");
    let maps = vec![("energy in a box of 160 mas".to_string(), energy)];
    let [stars, lasers] = directions(&system);
    let title = "mosaic-field.toml at 1.65 µm".to_string();
    let picture = FieldPicture { title, maps, step: field.step / ARCSEC, stars, lasers };
    Ok(std::fs::write(folder.join("mosaic-field.svg"), plot_field(&picture, PictureFormat::Svg)?)?)
}
