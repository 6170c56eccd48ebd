//! Draws the covariance of a natural star's lenslets with a laser star's into the folder that is given.

use lenslet::model::{Atmosphere, ConeGradient, Layer, LensletArray, Sensor, SlopeOrder, Source};
use lenslet::plot::Figure;
use lenslet::turbulence::cross_covariance::slope_covariance;
use lenslet::watch::unwatched;
use ndarray::Array2;
use std::{error::Error, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let (array, row) = (LensletArray::new(20, 0.5)?, 10);
    let air = Atmosphere::new(0.18, 500e-9, vec![Layer::new(16e3, 1.0, 28.0)])?;
    // One row of lenslets is enough.
    let valid = vec![Array2::from_shape_fn((20, 20), |(j, _)| j == row); 2];
    let order = SlopeOrder::new(&valid);
    let cut = |height: f64, lenslet: usize| -> Result<Vec<(f64, f64)>, Box<dyn Error>> {
        let stars = [f64::INFINITY, height].map(|height| {
            Source::new(0.0, 0.0, height).map(|source| Sensor::at_rest(source, array))
        });
        let [natural, other] = stars;
        let stars = [natural?, other?];
        let matrix = slope_covariance(&air, &stars, &valid, ConeGradient::Pupil, &unwatched)?;
        let first = order.index(0, 0, lenslet);
        let value = |k| matrix[[first, order.index(1, 0, k)]] / matrix[[first, first]];
        Ok((0..20).map(|k| (array.centre(k), value(k))).collect())
    };
    Figure::new()
        .x_label("x of the other star's lenslet [m]")
        .y_label("covariance of x slopes / variance")
        .line("laser star, against 0.25 m", cut(90e3, 10)?)
        .line("laser star, against 3.75 m", cut(90e3, 17)?)
        .dashes("natural star, against 0.25 m", cut(f64::INFINITY, 10)?)
        .dashes("natural star, against 3.75 m", cut(f64::INFINITY, 17)?)
        .save(folder.join("unequal-footprints.svg"))?;
    Ok(())
}
