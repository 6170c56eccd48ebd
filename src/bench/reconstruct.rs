// Tangled from book/src/bench-reconstructors.md: edit there, or here and run cargo tangle stitch.
//! Run times of reconstructors, stage by stage.

// Imports of timing a reconstructor
use crate::device::{engine::Engine, lock};
use crate::error::{Error, count};
use crate::model::system::System;
use crate::plan::Plan;
use crate::tomography::reconstructor::{
    ReconstructedQuantity, ReconstructorOptions, ReconstructorPlan,
};
use crate::watch::{Watch, check};
use serde::Serialize;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The system that is timed unless others are given: name and text.
pub const SYSTEM: (&str, &str) = ("small-moao", include_str!("../../book/systems/small-moao.toml"));

// Times of a reconstructor
/// How long the stages of a reconstructor take, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReconstructorTimes {
    /// Slopes of all guide stars.
    pub measurements: usize,
    /// Slopes of one truth sensor.
    pub truth_slopes: usize,
    /// Targets.
    pub targets: usize,
    /// How C_mm is inverted.
    pub method: &'static str,
    /// Devices that invert it together.
    pub ranks: usize,
    /// Why one of several devices inverts it alone, if one does.
    pub alone: Option<String>,
    /// Each stage with its time, in order.
    pub stages: Vec<(String, f64)>,
    /// All of it, to R and C_ee on the host.
    pub total: f64,
    /// What the plan had foreseen for all of it.
    pub planned: f64,
}

// Watch the clock at each stage
/// Records when stages begin, and passes them on to another [`Watch`].
struct Clock<'a> {
    begun: Mutex<Vec<(String, Instant)>>,
    inner: &'a dyn Watch,
}

impl Watch for Clock<'_> {
    fn stage(&self, name: &str, pieces: &str) {
        let mut begun = lock(&self.begun);
        begun.push((name.into(), Instant::now()));
        self.inner.stage(name, pieces);
    }

    fn progress(&self, done: usize, total: usize) {
        self.inner.progress(done, total);
    }

    fn part(&self, what: &str, number: usize, count: usize) {
        self.inner.part(what, number, count);
    }

    fn cancelled(&self) -> bool {
        self.inner.cancelled()
    }
}

// Time the stages of a plan
/// How long all of a run takes, and each of its stages.
///
/// # Errors
/// Those of the run.
pub(super) fn time_stages(
    run: impl FnOnce(&dyn Watch) -> Result<(), Error>,
    watch: &dyn Watch,
) -> Result<(Duration, Vec<(String, f64)>), Error> {
    check(watch)?;
    let clock = Clock { begun: Mutex::default(), inner: watch };
    let start = Instant::now();
    run(&clock)?;
    let end = Instant::now();
    let begun = clock.begun.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((end - start, stages(&begun, end)))
}

// Take the median of several runs
/// The time of all and of the stages of so many runs, of which the first one, which compiles kernels and fills caches, does not count: those
/// of the run whose total is the median.
pub(super) fn time_median(
    repeat: u32,
    mut run: impl FnMut(&dyn Watch) -> Result<(), Error>,
    watch: &dyn Watch,
) -> Result<(Duration, Vec<(String, f64)>), Error> {
    let runs = (0..=repeat.max(1)).map(|_| time_stages(&mut run, watch));
    let mut runs = runs.collect::<Result<Vec<_>, _>>()?.split_off(1);
    runs.sort_by_key(|(total, _)| *total);
    Ok(runs.swap_remove(runs.len() / 2))
}

// Time a reconstructor
/// Computes the reconstructor of a system so many times after once for nothing, and gives the times of the run whose total is the median.
///
/// # Errors
/// Those of [`ReconstructorPlan::run`].
pub fn time_reconstructor(
    system: &System,
    options: ReconstructorOptions,
    (engine, repeat): (&Engine, u32),
    watch: &dyn Watch,
) -> Result<ReconstructorTimes, Error> {
    let options = options.to(ReconstructedQuantity::Slopes);
    let plan = ReconstructorPlan::new(system, options)?;
    let planned = plan.describe(engine)?.stages.iter().map(|stage| stage.seconds).sum();
    let (total, stages) = time_median(repeat, |watch| plan.run(engine, watch).map(drop), watch)?;
    Ok(ReconstructorTimes {
        measurements: plan.measurements(),
        truth_slopes: plan.truth_slopes(),
        targets: system.targets().len(),
        method: plan.method().name(),
        ranks: plan.ranks(engine),
        alone: plan.why_alone(engine),
        stages,
        total: total.as_secs_f64(),
        planned,
    })
}

/// How long each stage lasts, to the beginning of the next one or to the end; the durations of a stage that comes twice are added.
fn stages(begun: &[(String, Instant)], end: Instant) -> Vec<(String, f64)> {
    let ends = begun.iter().skip(1).map(|(_, next)| *next).chain([end]);
    let mut stages: Vec<(String, f64)> = Vec::new();
    for ((name, start), end) in begun.iter().zip(ends) {
        let seconds = (end - *start).as_secs_f64();
        match stages.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += seconds,
            None => stages.push((name.clone(), seconds)),
        }
    }
    stages
}

// Table of reconstructors
/// The table of some systems by name, measured on an engine.
pub fn reconstructor_table(rows: &[(&str, ReconstructorTimes)], engine: &str) -> String {
    let mut table = format!("Reconstructor and its error; median times on {engine}.\n");
    for (name, times) in rows {
        table += &format!(
            "{name}: {}, {} of {}, {}{}\n",
            count(times.measurements, "slope"),
            times.truth_slopes,
            count(times.targets, "target"),
            times.method,
            match (times.ranks, &times.alone) {
                (1, None) => String::new(),
                (1, Some(why)) => format!("; by one device alone: {why}"),
                (ranks, _) => format!(", {ranks} ranks"),
            },
        );
        let all = [("all", times.total), ("planned", times.planned)];
        let stages = times.stages.iter().map(|(stage, seconds)| (stage.as_str(), *seconds));
        for (stage, seconds) in stages.chain(all) {
            table += &format!("    {stage:28} {seconds:>10.3} s\n");
        }
    }
    table
}

// Tests of timed reconstructors
#[cfg(test)]
mod tests {
    use super::*;
    use crate::tomography::covariance_matrix::tests::system;
    use crate::watch::unwatched;

    #[test]
    fn stages_add_up_to_all() {
        let options = ReconstructorOptions::default();
        let engine = Engine::default();
        let times = time_reconstructor(&system(1e-14), options, (&engine, 1), &unwatched).unwrap();
        let sum: f64 = times.stages.iter().map(|(_, seconds)| seconds).sum();
        assert!(sum <= times.total && sum > 0.9 * times.total, "{times:?}");
        let names: Vec<_> = times.stages.iter().map(|(name, _)| name.as_str()).collect();
        let expected = [
            "covariance of measurements",
            "covariance with the truth",
            "factorisation",
            "reconstructor",
        ];
        assert_eq!(names, expected);
        let alone = ReconstructorTimes { alone: Some("too few".into()), ..times.clone() };
        let text = reconstructor_table(&[("a.toml", times)], "2 threads");
        assert!(text.contains("2 targets, cholesky\n") && text.lines().count() == 8, "{text}");
        let text = reconstructor_table(&[("a.toml", alone)], "2 devices");
        assert!(text.contains("cholesky; by one device alone: too few\n"), "{text}");
    }
}
