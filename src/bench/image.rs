// Tangled from book/src/benchmarks.md: edit there, or here and run cargo tangle stitch.
//! Run times of images, stage by stage, by two structure functions.

// What timing images stands on
use super::reconstruct::time_median;
use crate::device::{Watch, engine::Engine};
use crate::error::Error;
use crate::image::{ImagingOptions, ImagingPlan, Structure};
use crate::model::system::System;
use serde::Serialize;

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
/// Those of [`ImagingPlan::run`].
pub fn time_images(
    system: &System,
    options: &ImagingOptions,
    (engine, repeat): (&Engine, u32),
    watch: &dyn Watch,
) -> Result<ImageTimes, Error> {
    let by = |structure| {
        let mut options = options.clone();
        options.image.structure = structure;
        let run = |watch: &dyn Watch| {
            ImagingPlan::new(system, options.clone())?.run(engine, watch).map(drop)
        };
        time_median(repeat, run, watch)
    };
    let (stationary, (exact, stages)) = (by(Structure::Stationary)?.0, by(Structure::Exact)?);
    let plan = ImagingPlan::new(system, options.clone())?;
    Ok(ImageTimes {
        measurements: plan.reconstruction().measurements(),
        truth_slopes: plan.reconstruction().truth_slopes(),
        actuators: plan.correction().pupil_mirror().positions().len(),
        targets: plan.correction().targets(),
        stages,
        exact: exact.as_secs_f64(),
        stationary: stationary.as_secs_f64(),
        planned: plan.describe(engine).stages.iter().map(|stage| stage.seconds).sum(),
    })
}

// Table of images
/// The table of some systems by name, measured on an engine.
pub fn image_table(rows: &[(&str, ImageTimes)], engine: &str) -> String {
    let mut table = format!("From a system to its images; median times on {engine}.\n");
    for (name, times) in rows {
        table += &format!(
            "{name}: {} slopes, {} of {} target{}, {} actuators\n",
            times.measurements,
            times.truth_slopes,
            times.targets,
            if times.targets == 1 { "" } else { "s" },
            times.actuators,
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

// Tests of timed images
#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::reconstruct::SYSTEM;
    use crate::device::silent;

    #[test]
    fn both_structure_functions_are_timed() {
        let (name, text) = SYSTEM;
        let system = System::from_toml(text, name).unwrap();
        let mut options = ImagingOptions::from_toml(text, name).unwrap();
        options.image.pixels = 16;
        let times = time_images(&system, &options, (&Engine::default(), 1), &silent).unwrap();
        let sum: f64 = times.stages.iter().map(|(_, seconds)| seconds).sum();
        assert!(sum <= times.exact && sum > 0.8 * times.exact, "{times:?}");
        assert!(times.stationary > 0.0 && times.planned > 0.0);
        assert_eq!((times.targets, times.actuators), (2, 68));
        let text = image_table(&[("a.toml", times)], "2 threads");
        assert!(text.contains("2 targets, 68 actuators") && text.contains("times as fast"));
    }
}
