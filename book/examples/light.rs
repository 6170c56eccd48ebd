//! Draws the noise that follows from the light of a laser star into the folder that is given.

use lenslet::model::{
    Atmosphere, GuideStar, LaserSpot, Layer, LensletArray, Light, Pupil, Sensor, Source, Validity,
};
use lenslet::plot::{PictureFormat, plot_noise};
use lenslet::units::ARCSEC;
use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("the output folder is missing")?);

    let (pupil, validity) = (Pupil::new(8.0, 0.14)?, Validity::lit_fraction(0.7)?);
    let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 25.0)])?;
    let array = LensletArray::new(16, 0.5)?;
    let sensor = Sensor::at_rest(Source::new(0.0, 0.0, 90e3)?, array);

    let launch = [-5.0, 0.0];
    let spot = LaserSpot { launch, altitude: 90e3, thickness: 10e3 };
    let light = Light { spot: Some(spot), ..Light::new(200.0, 589e-9, 0.8 * ARCSEC) };
    let light = Light { read_noise: 0.1, excess_noise: 2f64.sqrt(), ..light };
    let noise = light.noise(&sensor, Some(&pupil), validity, &air)?;

    let (star, valid) = (GuideStar::new(sensor, noise), array.valid(Some(&pupil), validity));
    let picture =
        plot_noise(&star, &valid, Some(launch), "a laser from the left", PictureFormat::Svg)?;
    fs::write(folder.join("light.svg"), picture)?;
    Ok(())
}
