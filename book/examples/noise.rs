//! Draws the noise of lenslets whose spots are drawn out away from a laser into the folder that is given.

use lenslet::model::{GuideStar, LensletArray, Noise, Pupil, Sensor, Source, Validity};
use lenslet::plot::{PictureFormat, plot_noise};
use lenslet::units::ARCSEC;
use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("the output folder is missing")?);

    // The streak of a lenslet points away from the launch, and is the longer the farther that is.
    let (array, launch) = (LensletArray::new(10, 0.8)?, [-5.0, 0.0]);
    let valid = array.valid(Some(&Pupil::new(8.0, 0.0)?), Validity::Centre);
    let lenslets = valid.indexed_iter().filter(|(_, valid)| **valid);
    let blocks: Vec<_> = lenslets
        .map(|((j, i), _)| {
            let [u, v] = [array.centre(i) - launch[0], array.centre(j) - launch[1]];
            [[0.01 + 1e-3 * u * u, 1e-3 * u * v], [1e-3 * u * v, 0.01 + 1e-3 * v * v]]
        })
        .map(|block| block.map(|row| row.map(|square| square * ARCSEC * ARCSEC)))
        .collect();
    let star =
        GuideStar::new(Sensor::at_rest(Source::star(0.0, 0.0)?, array), Noise::blocks(&blocks)?);

    let title = "streaks away from a launch";
    let picture = plot_noise(&star, &valid, Some(launch), title, PictureFormat::Svg)?;
    fs::write(folder.join("noise.svg"), picture)?;
    Ok(())
}
