//! Draws the images of a system's targets into the folder that is given.

use lenslet::device::{Engine, silent};
use lenslet::image::{ImagingOptions, ImagingPlan};
use lenslet::model::System;
use lenslet::plot::{PictureFormat, plot_stars};
use std::{error::Error, path::PathBuf};

const SYSTEM: &str = "book/systems/small-moao.toml";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let text = std::fs::read_to_string(SYSTEM)?;
    let system = System::from_toml(&text, SYSTEM)?;
    let plan = ImagingPlan::new(&system, ImagingOptions::from_toml(&text, SYSTEM)?)?;
    let found = plan.run(&Engine::default(), &silent)?;
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
    Ok(std::fs::write(folder.join("system-images.svg"), picture)?)
}
