//! Draws a simulated wavefront, its estimate from laser stars and the difference into the folder that is given.

use lenslet::device::Engine;
use lenslet::estimation::{EstimateOptions, EstimatePlan, Simulation};
use lenslet::model::System;
use lenslet::plan::Plan;
use lenslet::plot::{PictureFormat, WavefrontMap, plot_wavefronts, without_piston};
use lenslet::watch::unwatched;
use ndarray::{Array2, Axis, s};
use std::{error::Error, path::PathBuf};

/// The target that is shown: the second, off both axes.
const TARGET: usize = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let keck = System::from_file("book/systems/keck-lgs.toml")?;
    let (grid, pupil) = (keck.phase().ok_or("no grid")?, keck.pupil().ok_or("no telescope")?);
    let turbulence = Simulation::new(&keck)?.realisation(2026);
    let slopes = ndarray::aview1(&turbulence.slopes).insert_axis(Axis(0));
    let plan = EstimatePlan::new(&keck, EstimateOptions::default())?;
    let estimates =
        plan.run(&Engine::default(), &unwatched)?.estimate(slopes, false, &unwatched)?;

    let truth = turbulence.wavefronts.slice(s![TARGET, .., ..]).to_owned();
    let estimate = estimates.wavefront.slice(s![0, TARGET, .., ..]).to_owned();
    let lit = Array2::from_shape_fn(truth.dim(), |(j, i)| {
        let at = |m| grid.coordinate(m, keck.lenslet_array().pitch());
        if pupil.contains([at(i), at(j)]) { 0.0 } else { f64::NAN }
    });
    let map = |name: &str, wavefront: Array2<f64>| {
        let (values, rms) = without_piston(&(wavefront + &lit));
        WavefrontMap { title: format!("{name}: {:.0} nm rms", rms * 1e9), values }
    };
    let maps = [
        map("true", truth.clone()),
        map("estimated", estimate.clone()),
        map("difference", truth - estimate),
    ];
    for map in &maps {
        println!("{}", map.title);
    }
    let step = keck.lenslet_array().pitch() / grid.oversampling as f64;
    let picture = plot_wavefronts(&maps, "keck-lgs.toml, target 1", step, PictureFormat::Svg)?;
    std::fs::write(folder.join("estimate.svg"), picture)?;
    Ok(())
}
