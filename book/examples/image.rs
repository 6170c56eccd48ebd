//! Draws the figures of the chapters on the image into the folder that is given.

use lenslet::model::{Pupil, SystemFile};
use lenslet::plot::{Figure, PictureFormat, plot_stars};
use lenslet::psf::{
    Actuators, Aperture, Budget, CameraOptions, OpticalTransfer, TelescopeTransfer,
};
use lenslet::turbulence::VonKarman;
use lenslet::units::ARCSEC;
use ndarray::{Array2, s};
use serde_json::json;
use std::{error::Error, f64::consts::PI, path::Path, path::PathBuf};

const WAVELENGTH: f64 = 1.65e-6;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let telescope = Aperture::across(&Pupil::new(8.0, 0.14)?, &[], 160)?.transfer(320)?;
    let [whole, beyond] = wavefronts(&telescope);
    let perfect = telescope.alone(WAVELENGTH)?;
    let corrected = telescope.through(&beyond, &[WAVELENGTH])?.remove(0);
    let seen = telescope.through(&whole, &[WAVELENGTH])?.remove(0);
    let all = [
        ("perfect", &perfect),
        ("with a mirror of 17 × 17 actuators", &corrected),
        ("without correction", &seen),
    ];
    cuts(&all, &folder.join("optical-transfer.svg"))?;
    stars(&all, &folder.join("point-spread.svg"))?;
    boxes(&all, &folder.join("ensquared.svg"))?;
    structures(&folder.join("structure-function.svg"))?;
    budget(&telescope, &beyond, &folder.join("error-budget.svg"))?;
    images_by_terms(&telescope, &beyond, &folder.join("live-error-budget.json"))?;
    exposures(&telescope, &beyond, &folder.join("image-options.svg"))
}

/// Structure functions \[m²\] of the whole turbulence, and of what a mirror with actuators every 0.5 m leaves: the
/// waves that are shorter than two of them along either axis.
fn wavefronts(telescope: &TelescopeTransfer) -> [Array2<f64>; 2] {
    let air = VonKarman::new(25.0);
    let scale = (0.5e-6 / (2.0 * PI)).powi(2) * 0.15f64.powf(-5.0 / 3.0);
    let whole = telescope.on_grid(|[x, y]| scale * air.structure_function(x.hypot(y)));
    // Waves that the mirror takes away, in a sum over the square of their frequencies.
    let (half, step) = (100, 0.01);
    let middle = telescope.points() / 2;
    let mut waves = Vec::new();
    for k in -half..half {
        for l in -half..half {
            let f = [k, l].map(|k| (f64::from(k) + 0.5) * step);
            waves.push((f, scale * step * step * air.power_spectrum(f[0] * f[0] + f[1] * f[1])));
        }
    }
    let powers = Array2::from_shape_fn((2 * half as usize, 2 * half as usize), |(k, l)| {
        waves[k * 2 * half as usize + l].1
    });
    let phase = |k: usize, j: usize| 2.0 * PI * waves[k].0[1] * (j as f64) * telescope.step();
    let cosines =
        Array2::from_shape_fn((middle + 1, 2 * half as usize), |(j, k)| phase(k, j).cos());
    let sums = cosines.dot(&powers).dot(&cosines.t());
    let beyond = Array2::from_shape_fn(whole.dim(), |(j, i)| {
        let taken = 2.0 * (sums[[0, 0]] - sums[[j.abs_diff(middle), i.abs_diff(middle)]]);
        (whole[[j, i]] - taken).max(0.0)
    });
    [whole, beyond]
}

type ShownTransfers<'a> = [(&'a str, &'a OpticalTransfer); 3];

fn cuts(all: &ShownTransfers, path: &Path) -> Result<(), Box<dyn Error>> {
    let mut figure = Figure::new().x_label("displacement [m]").y_label("optical transfer function");
    for (name, transfer) in all {
        let middle = transfer.values().nrows() / 2;
        let at = |k: usize| (k as f64 * transfer.step(), transfer.values()[[middle, middle + k]]);
        figure = figure.line(name, (0..middle).map(at));
    }
    Ok(figure.save(path)?)
}

fn stars(all: &ShownTransfers, path: &Path) -> Result<(), Box<dyn Error>> {
    let mut images = Vec::new();
    for (name, transfer) in all {
        let image = transfer.point_spread(0.008 * ARCSEC, 241)?;
        println!(
            "{name}: Strehl {:.4}, {:.1} mas",
            image.strehl,
            1e3 * transfer.width()?.mean() / ARCSEC
        );
        images.push((*name, image));
    }
    let images: Vec<_> = images.iter().map(|(name, image)| (*name, image)).collect();
    let title = "A star at 1.65 µm in a telescope of 8 m, in units of the perfect maximum";
    Ok(std::fs::write(path, plot_stars(&images, title, 5, PictureFormat::Svg)?)?)
}

fn boxes(all: &ShownTransfers, path: &Path) -> Result<(), Box<dyn Error>> {
    let sides: Vec<f64> = (0..=150).map(|k| 0.01 * f64::from(k)).collect();
    let mut figure = Figure::new().x_label("side of the box [arcsec]").y_label("ensquared energy");
    for (name, transfer) in all {
        let light =
            transfer.ensquared(&sides.iter().map(|side| side * ARCSEC).collect::<Vec<_>>())?;
        figure = figure.line(name, sides.iter().copied().zip(light));
    }
    Ok(figure.save(path)?)
}

/// The structure functions of strokes whose error grows to one side.
fn structures(path: &Path) -> Result<(), Box<dyn Error>> {
    let pitch = 0.5;
    let place = |k: usize| [k % 17, k / 17].map(|k| (k as f64 - 8.0) * pitch);
    let positions: Vec<[f64; 2]> =
        (0..17 * 17).map(place).filter(|[x, y]| x.hypot(*y) < 4.3).collect();
    let influence = |[x, y]: [f64; 2]| (-(x * x + y * y) / 0.155).exp();
    let actuators = Actuators { positions: &positions, pitch, influence: &influence };
    let count = positions.len();
    let strokes = Array2::from_shape_fn((count, count), |(k, l)| {
        let [x, y] = [0, 1].map(|m| positions[k][m] - positions[l][m]);
        let rms = |k: usize| 8e-8 * (1.0 + 0.5 * positions[k][0] / 4.0);
        rms(k) * rms(l) * (-x.hypot(y) / 1.5).exp()
    });
    let aperture = Aperture::across(&Pupil::new(8.0, 0.14)?, &[], 80)?;
    let telescope = aperture.transfer(160)?;
    let cut = |structure: &Array2<f64>| -> Vec<(f64, f64)> {
        (0..76).map(|k| (0.1 * k as f64, 1e18 * structure[[80, 80 + k]])).collect()
    };
    // What a structure function would have to be for the exact transfer function.
    let exact = actuators.by_pairs(&strokes, &aperture, 160, &[WAVELENGTH])?.remove(0);
    let scale = -2.0 * (WAVELENGTH / (2.0 * PI)).powi(2);
    let ratio = exact.values() / telescope.values();
    let figure = Figure::new()
        .x_label("displacement [m]")
        .y_label("structure function [nm²]")
        .line("as if stationary", cut(&actuators.stationary(&strokes, &telescope)?))
        .line("mean over the pupil", cut(&actuators.mean(&strokes, &aperture, 160)?))
        .dashes("of the transfer pair by pair", cut(&ratio.mapv(|ratio| scale * ratio.ln())));
    Ok(figure.save(path)?)
}

/// Structure functions of the terms of a budget, with their numbers.
fn budget(
    telescope: &TelescopeTransfer,
    beyond: &Array2<f64>,
    path: &Path,
) -> Result<(), Box<dyn Error>> {
    let (extra, jitter) = (telescope.extra(50e-9, -2.0)?, telescope.jitter(3e-3 * ARCSEC)?);
    let whole = beyond + &extra + &jitter;
    let terms = [("beyond the mirror", beyond), ("extra", &extra), ("jitter", &jitter)];
    let budget = Budget::of(telescope, &terms)?;
    println!("{budget}; Maréchal {:.4}", budget.marechal(WAVELENGTH));
    println!("Strehl {:.4}", telescope.through(&whole, &[WAVELENGTH])?[0].strehl());
    let mut figure = Figure::new().x_label("displacement [m]").y_label("structure function [nm²]");
    let middle = telescope.points() / 2;
    let cut = |structure: &Array2<f64>| -> Vec<(f64, f64)> {
        let at = |k: usize| (telescope.step() * k as f64, 1e18 * structure[[middle, middle + k]]);
        (0..middle).map(at).collect()
    };
    for (term, (name, structure)) in budget.terms().iter().zip(&terms) {
        figure = figure.line(&format!("{name}, {:.0} nm", 1e9 * term.rms()), cut(structure));
    }
    let total = format!("all, {:.0} nm", 1e9 * budget.total());
    Ok(figure.dashes(&total, cut(&whole)).save(path)?)
}

/// Images for each set of terms of the budget, for the live figure: a quarter of the sky, as log₁₀ in thousandths.
fn images_by_terms(
    telescope: &TelescopeTransfer,
    beyond: &Array2<f64>,
    path: &Path,
) -> Result<(), Box<dyn Error>> {
    let (extra, jitter) = (telescope.extra(50e-9, -2.0)?, telescope.jitter(3e-3 * ARCSEC)?);
    let terms = [("beyond the mirror", beyond), ("extra", &extra), ("jitter", &jitter)];
    let budget = Budget::of(telescope, &terms)?;
    let rms: Vec<f64> = budget.terms().iter().map(|term| 1e9 * term.rms()).collect();
    let (pixel, side) = (16.0, 27);
    let mut images = Vec::new();
    for set in 0..1 << terms.len() {
        let mut structure = Array2::zeros(beyond.dim());
        let mut square = 0.0;
        for (k, (_, term)) in terms.iter().enumerate().filter(|(k, _)| set >> k & 1 == 1) {
            structure += *term;
            square += rms[k] * rms[k];
        }
        let seen = telescope.through(&structure, &[WAVELENGTH])?.remove(0);
        let image = seen.point_spread(1e-3 * pixel * ARCSEC, 2 * side - 1)?;
        let quarter = image.values.slice(s![side - 1.., side - 1..]);
        let code = |value: &f64| (1e3 * value.max(1e-6).log10()).round() as i64;
        let light: Vec<i64> = quarter.iter().map(code).collect();
        images.push(json!({ "total": square.sqrt(), "strehl": image.strehl, "light": light }));
    }
    let names = terms.iter().zip(&rms);
    let terms: Vec<_> = names.map(|((name, _), rms)| json!({ "name": name, "rms": rms })).collect();
    let all = json!({ "terms": terms, "pixel": pixel, "side": side, "images": images });
    Ok(std::fs::write(path, all.to_string())?)
}

/// One wavefront at three wavelengths.
fn exposures(
    telescope: &TelescopeTransfer,
    beyond: &Array2<f64>,
    path: &Path,
) -> Result<(), Box<dyn Error>> {
    let text = "image = { wavelengths = [0.64e-6, 1.25e-6, 2.2e-6], pixel = 6.0, pixels = 241, jitter = 3.0 }";
    let options = CameraOptions::from_system_file(&SystemFile::from_toml(text, "image.rs")?)?;
    let seen = options.expose(telescope, beyond, 8.0)?;
    let title =
        |wavelength: f64, strehl: f64| format!("{:.2} µm, Strehl {strehl:.2}", 1e6 * wavelength);
    let titles: Vec<String> =
        seen.iter().map(|seen| title(seen.image.wavelength, seen.image.strehl)).collect();
    let images: Vec<_> =
        titles.iter().zip(&seen).map(|(title, seen)| (title.as_str(), &seen.image)).collect();
    let title = "One wavefront, in units of the perfect maximum at each wavelength";
    Ok(std::fs::write(path, plot_stars(&images, title, 5, PictureFormat::Svg)?)?)
}
