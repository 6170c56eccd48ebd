//! Draws the weights of past frames in a loop, and the error of a target off axis against the direction of the wind, into the folder that is given.

use lenslet::correction::{CorrectionMode, CorrectionOptions};
use lenslet::device::Engine;
use lenslet::model::{
    Atmosphere, ControlLoop, GuideStar, Layer, LensletArray, LoopKind, MirrorDesign, Pupil, Source,
    Spacing, System,
};
use lenslet::plan::Plan;
use lenslet::plot::Figure;
use lenslet::psf::{
    CameraOptions, ErrorTerm, LoopSimulationOptions, LoopSimulationPlan, PsfOptions, PsfPlan,
};
use lenslet::tomography::ReconstructorOptions;
use lenslet::units::ARCSEC;
use lenslet::watch::unwatched;
use std::{error::Error, f64::consts::PI, path::PathBuf};

const CONTROL: ControlLoop =
    ControlLoop { kind: LoopKind::Closed, rate: 400.0, gain: 0.4, delay: 2.0 };

/// Simulated loops for each direction of the wind.
const REALISATIONS: usize = 48;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    weights().save(folder.join("loop-covariances.svg"))?;
    Ok(against_the_wind()?.save(folder.join("residual-wavefront.svg"))?)
}

/// The response of the strokes to a single frame.
fn weights() -> Figure {
    let ControlLoop { gain, delay, .. } = CONTROL;
    let mut response: Vec<f64> = Vec::new();
    for j in 0..16 {
        let ago = |frames: usize| if frames > j { 0.0 } else { response[j - frames] };
        let push = if j == 0 { 1.0 } else { 0.0 };
        response.push(ago(1) + gain * (push - ago(delay as usize)));
    }
    let after = |weights: &[f64]| -> Vec<(f64, f64)> {
        let at = |k: isize| usize::try_from(k).ok().and_then(|k| weights.get(k)).unwrap_or(&0.0);
        let weight = |k: isize| (at(k - 1) + 10.0 * at(k) + at(k + 1)) / 12.0;
        (-1..=14).map(|k| (delay + k as f64, weight(k))).collect()
    };
    Figure::new()
        .x_label("frames between measurement and hold")
        .y_label("weight")
        .x_range(0.0, 16.5)
        .line("open loop", after(&[1.0]))
        .line("closed loop, gain 0.4", after(&response))
        .points("", after(&response))
}

/// A star on the axis of a telescope of 4 m with 8 × 8 lenslets, three layers whose winds are turned, and a target 12 arcseconds away along x.
fn system(turn: f64) -> Result<System, Box<dyn Error>> {
    let layer = |altitude, fraction, wind_speed, direction: f64| Layer {
        wind_speed,
        wind_direction: direction.to_radians() + turn,
        ..Layer::new(altitude, fraction, 25.0)
    };
    let layers = vec![
        layer(0.0, 0.6, 10.0, 0.0),
        layer(4e3, 0.25, 20.0, 30.0),
        layer(9e3, 0.15, 30.0, -20.0),
    ];
    let array = LensletArray::new(8, 0.5)?;
    Ok(System::builder(Atmosphere::new(0.15, 500e-9, layers)?, array)
        .pupil(Some(Pupil::new(4.0, 0.2)?))
        .guide_stars([GuideStar::at_rest(Source::star(0.0, 0.0)?, array, 1e-14)?])
        .targets([Source::star(12.0 * ARCSEC, 0.0)?])
        .build()?)
}

fn options(terms: Option<Vec<ErrorTerm>>) -> PsfOptions {
    let mut image = CameraOptions::default().pixels(16);
    image.terms = terms;
    let mirrors = vec![MirrorDesign::new(Spacing::Actuators(9))];
    let correction = CorrectionOptions::new(CorrectionMode::Scao, mirrors);
    PsfOptions::new(ReconstructorOptions::default(), correction, image).control(CONTROL)
}

/// The rms of the residual wavefront, nm.
fn total(turn: f64, terms: Option<Vec<ErrorTerm>>) -> Result<f64, Box<dyn Error>> {
    let plan = PsfPlan::new(&system(turn)?, options(terms))?;
    Ok(1e9 * plan.run(&Engine::default(), &unwatched)?.targets[0].budget.total())
}

fn against_the_wind() -> Result<Figure, Box<dyn Error>> {
    let degrees = |k: usize| 30.0 * k as f64 - 180.0;
    let (mut joint, mut simulated) = (Vec::new(), Vec::new());
    for k in 0..12 {
        let turn = degrees(k) * PI / 180.0;
        joint.push((degrees(k), total(turn, None)?));
        if k % 2 == 0 {
            let (system, options) = (system(turn)?, options(None));
            let loops = LoopSimulationOptions::default().realisations(REALISATIONS);
            let loops = LoopSimulationPlan::new(&system, &options, loops)?;
            let [mean, error] = loops.run(&Engine::default(), &unwatched)?[0].error;
            println!("{:4} {:.1} {:.1} ± {:.1}", degrees(k), joint[k].1, 1e9 * mean, 1e9 * error);
            simulated.push((degrees(k), 1e9 * mean, 1e9 * error));
        }
    }
    // All the way round
    joint.push((180.0, joint[0].1));
    simulated.push((180.0, simulated[0].1, simulated[0].2));
    use ErrorTerm::{Aliasing, Anisoplanatism, Fitting, ServoLag, Tomography};
    let all = vec![Tomography, Aliasing, Anisoplanatism, Fitting, ServoLag];
    let mut apart = options(Some(all));
    apart.image.structure = lenslet::psf::StructureFunctionModel::Stationary;
    let plan = PsfPlan::new(&system(0.0)?, apart)?;
    let sum = 1e9 * plan.run(&Engine::default(), &unwatched)?.targets[0].budget.total();
    Ok(Figure::new()
        .x_label("direction of the wind against that of the target [degrees]")
        .y_label("residual wavefront, rms [nm]")
        .x_range(-185.0, 185.0)
        .y_range(150.0, 300.0)
        .line("one covariance", joint)
        .dashes("sum of independent terms", [(-180.0, sum), (180.0, sum)])
        .points_with_errors(&format!("{REALISATIONS} simulated loops each"), simulated))
}
