// Tangled from book/src/bench-images.md: edit there, or here and run cargo tangle stitch.
//! Run times of images, stage by stage, by two structure functions.

// Imports of timing images
use super::reconstruct::time_median;
use crate::device::engine::Engine;
use crate::error::{Error, count};
use crate::linear::factorisation::gpu::upload_rows;
use crate::model::system::System;
use crate::plan::Plan;
use crate::psf::exposures::StrokeCovariance;
use crate::psf::{
    Actuators, CameraOptions, Exposures, PsfOptions, PsfPlan, StructureFunctionModel,
};
use crate::watch::{Watch, check};
use ndarray::Array2;
use serde::Serialize;
use std::time::Instant;

// Times of images
/// How long the stages of a system's images take, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ImageTimes {
    /// Slopes of all guide stars, and of one truth sensor.
    pub measurements: usize,
    /// Slopes of one truth sensor.
    pub truth_slopes: usize,
    /// Actuators of the mirror in the pupil.
    pub actuators: usize,
    /// Targets, those of a field included.
    pub targets: usize,
    /// Each stage with its time, in order, with the exact structure function.
    pub stages: Vec<(String, f64)>,
    /// All of it, from the description.
    pub exact: f64,
    /// All of it with the stationary structure function.
    pub stationary: f64,
    /// What the plan had foreseen for the exact one.
    pub planned: f64,
}

// Time images by both structure functions
/// Makes the images of a system so many times after once for nothing, by either structure function, and gives the times of the runs whose total is the
/// median.
///
/// # Errors
/// Those of [`PsfPlan::run`].
pub fn time_images(
    system: &System,
    options: &PsfOptions,
    (engine, repeat): (&Engine, u32),
    watch: &dyn Watch,
) -> Result<ImageTimes, Error> {
    let by = |structure| {
        let mut options = options.clone();
        options.image.structure = structure;
        let run =
            |watch: &dyn Watch| PsfPlan::new(system, options.clone())?.run(engine, watch).map(drop);
        time_median(repeat, run, watch)
    };
    let (stationary, (exact, stages)) =
        (by(StructureFunctionModel::Stationary)?.0, by(StructureFunctionModel::Exact)?);
    let plan = PsfPlan::new(system, options.clone())?;
    // Times and sizes of images
    Ok(ImageTimes {
        measurements: plan.reconstruction().measurements(),
        truth_slopes: plan.reconstruction().truth_slopes(),
        actuators: plan.correction().pupil_mirror().positions().len(),
        targets: plan.correction().targets(),
        stages,
        exact: exact.as_secs_f64(),
        stationary: stationary.as_secs_f64(),
        planned: plan.describe(engine)?.stages.iter().map(|stage| stage.seconds).sum(),
    })
}

// Table of images
/// The table of some systems by name, measured on an engine.
pub fn image_table(rows: &[(&str, ImageTimes)], engine: &str) -> String {
    let mut table = format!("From a system to its images; median times on {engine}.\n");
    for (name, times) in rows {
        table += &format!(
            "{name}: {}, {} of {}, {}\n",
            count(times.measurements, "slope"),
            times.truth_slopes,
            count(times.targets, "target"),
            count(times.actuators, "actuator"),
        );
        let ratio = times.exact / times.stationary;
        let all = [("all", times.exact), ("planned", times.planned)];
        let stages = times.stages.iter().map(|(stage, seconds)| (stage.as_str(), *seconds));
        for (stage, seconds) in stages.chain(all) {
            table += &format!("    {stage:28} {seconds:>10.3} s\n");
        }
        table += &format!(
            "    {:28} {:>10.3} s, {ratio:.2} times as fast\n",
            "all, as if stationary", times.stationary
        );
    }
    table
}

// Times of exposures
/// The system of the paper, whose mirror is exposed.
pub(crate) const EXPOSED: (&str, &str) =
    ("moao-2014.toml", include_str!("../../book/systems/moao-2014.toml"));

/// How long an image takes from the covariance of the strokes of a mirror, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExposureTimes {
    /// Actuators of the mirror.
    pub actuators: usize,
    /// Pixels across the image.
    pub pixels: usize,
    /// The median on the processor.
    pub processor: f64,
    /// Medians on a device, from a covariance that lies there, and from one in the memory of the host.
    pub device: Option<[f64; 2]>,
}

// Time exposures of given strokes
/// Exposes the mirror of a system, as if its errors were stationary, on the processor and on the first device of an engine, if it has one.
///
/// # Errors
/// Those of [`Exposures`]; `Cancelled` where the watcher wants to stop.
pub fn time_exposures(
    system: &System,
    options: &PsfOptions,
    engine: &Engine,
    watch: &dyn Watch,
) -> Result<ExposureTimes, Error> {
    let plan = PsfPlan::new(system, options.clone())?;
    let mirror = plan.correction().pupil_mirror();
    let influence = |offset: [f64; 2]| mirror.influence(offset);
    let (positions, pitch) = (mirror.positions(), mirror.pitch());
    let actuators = Actuators { positions, pitch, influence: &influence };
    let image =
        CameraOptions { structure: StructureFunctionModel::Stationary, ..options.image.clone() };
    let made = |engine| Exposures::new(actuators, plan.aperture(), &image, plan.diameter(), engine);
    let (strokes, cores) = (strokes(positions, pitch), Engine::default());
    let mut here = made(&cores)?;
    let processor = median(5, watch, || here.images(&strokes).map(drop))?;
    let device = match engine.devices().first() {
        Some(gpu) => {
            let mut exposures = made(engine)?;
            let there = StrokeCovariance::OnDevice(upload_rows(gpu, &strokes, 1.0)?);
            let kept = median(101, watch, || exposures.images_of(&there).map(drop))?;
            Some([kept, median(101, watch, || exposures.images(&strokes).map(drop))?])
        }
        None => None,
    };
    let (actuators, pixels) = (positions.len(), image.pixels);
    Ok(ExposureTimes { actuators, pixels, processor, device })
}

// Median of many exposures
/// A covariance of strokes that falls with the distance, m².
fn strokes(positions: &[[f64; 2]], pitch: f64) -> Array2<f64> {
    Array2::from_shape_fn((positions.len(), positions.len()), |(k, l)| {
        let apart = [0, 1].map(|m| positions[k][m] - positions[l][m]);
        1e-14 * (-apart[0].hypot(apart[1]) / (4.0 * pitch)).exp()
    })
}

/// The median time of so many runs, in seconds, after three that do not count.
fn median(
    runs: usize,
    watch: &dyn Watch,
    mut run: impl FnMut() -> Result<(), Error>,
) -> Result<f64, Error> {
    let mut times = Vec::new();
    for k in 0..runs + 3 {
        check(watch)?;
        let start = Instant::now();
        run()?;
        if k >= 3 {
            times.push(start.elapsed().as_secs_f64());
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[runs / 2])
}

// Line of exposures
/// What [`time_exposures`] found, in words.
pub fn exposure_table(times: &ExposureTimes, engine: &str) -> String {
    let ExposureTimes { actuators, pixels, processor, device } = times;
    let mut table = format!(
        "One image of {pixels}² pixels from the covariance of {actuators} strokes; median times.\n\
         \x20   {:28} {:>10.3} ms\n",
        "processor",
        1e3 * processor
    );
    for (place, seconds) in ["device", "host"].iter().zip(device.iter().flatten()) {
        let ratio = processor / seconds;
        let name = format!("{engine}, strokes on the {place}");
        table += &format!("    {name:28} {:>10.3} ms, {ratio:.0} times as fast\n", 1e3 * seconds);
    }
    table
}

// Tests of timed images
#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::reconstruct::SYSTEM;
    use crate::model::SystemFile;
    use crate::watch::unwatched;

    #[test]
    fn both_structure_functions_are_timed() {
        let (name, text) = SYSTEM;
        let file = SystemFile::from_toml(text, name).unwrap();
        let system = file.system().unwrap();
        let mut options = PsfOptions::from_system_file(&file).unwrap();
        options.image.pixels = 16;
        let times = time_images(&system, &options, (&Engine::default(), 1), &unwatched).unwrap();
        let sum: f64 = times.stages.iter().map(|(_, seconds)| seconds).sum();
        assert!(sum <= times.exact && sum > 0.8 * times.exact, "{times:?}");
        assert!(times.stationary > 0.0 && times.planned > 0.0);
        assert_eq!((times.targets, times.actuators), (2, 68));
        let text = image_table(&[("a.toml", times)], "2 threads");
        assert!(text.contains("2 targets, 68 actuators") && text.contains("times as fast"));
        let times = time_exposures(&system, &options, &Engine::default(), &unwatched).unwrap();
        assert!(times.processor > 0.0 && (times.actuators, times.pixels) == (68, 16));
        let times = ExposureTimes { device: Some([1e-4, 2e-4]), ..times };
        let text = exposure_table(&times, "cuda:0");
        assert!(text.contains("16² pixels") && text.contains("cuda:0, strokes on the host"));
    }
}
