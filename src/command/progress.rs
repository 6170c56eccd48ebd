// Tangled from book/src/progress.md: edit there, or here and run cargo tangle stitch.
//! Progress of a whole job: its stage, the share that is done and the time that remains.

// Imports of the progress
use super::summary::roughly;
use super::watch::{complain, is_interrupted};
use crate::bench::calibration::{self, Kept};
use crate::device::{Engine, lock};
use crate::error::Error;
use crate::plan::Description;
use crate::watch::Watch;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

// Stages of a job
/// A stage of a job.
#[derive(Debug)]
struct JobStage {
    name: String,
    /// Planned seconds.
    seconds: f64,
    /// The fraction that is done.
    done: f64,
}

/// The part of a stage that runs: `configuration` 1 of 4, counted from 0.
#[derive(Debug, PartialEq)]
struct StagePart {
    what: String,
    number: usize,
    count: usize,
}

/// The progress of a whole job.
#[derive(Debug, Default)]
pub struct JobProgress {
    stages: Vec<JobStage>,
    /// Whether the stages are planned; before that there is no share.
    planned: bool,
    /// The number of the stage that runs.
    present: Option<usize>,
    /// What its pieces are called.
    pieces: String,
    part: Option<StagePart>,
    /// Pieces that are done, and all of them.
    counted: Option<[usize; 2]>,
    /// When the stage or its part began.
    since: f64,
    /// The largest share so far.
    share: f64,
    /// From where the remaining time is extrapolated: a time, and the share at that time.
    base: [f64; 2],
    /// Whether an interrupted job is resumed, and its first report is awaited.
    resuming: bool,
}

// Share of a job
impl JobProgress {
    /// Adds the planned stages, with their seconds.
    pub fn plan(&mut self, stages: impl IntoIterator<Item = (String, f64)>) {
        for (name, seconds) in stages {
            let k = self.number(&name);
            self.stages[k].seconds += if seconds.is_finite() { seconds.max(0.0) } else { 0.0 };
        }
        self.planned = self.stages.iter().any(|stage| stage.seconds > 0.0);
    }

    /// The number of a stage, which is added if it is not known.
    fn number(&mut self, name: &str) -> usize {
        self.stages.iter().position(|stage| stage.name == name).unwrap_or_else(|| {
            self.stages.push(JobStage { name: name.into(), seconds: 0.0, done: 0.0 });
            self.stages.len() - 1
        })
    }

    // Fraction of a stage
    /// The fraction of the present stage that is done at a time.
    fn fraction(&self, now: f64) -> f64 {
        let Some(stage) = self.present.map(|k| &self.stages[k]) else { return 0.0 };
        let (number, count) = self.part.as_ref().map_or((0, 1), |part| (part.number, part.count));
        let inner = match self.counted {
            Some([done, total]) => done as f64 / total.max(1) as f64,
            None if stage.seconds > 0.0 => {
                let x = (now - self.since).max(0.0) * count as f64 / stage.seconds;
                x / (1.0 + x.powi(4)).powf(0.25)
            }
            None => 0.0,
        };
        stage.done.max((number as f64 + inner.min(1.0)) / count as f64).min(1.0)
    }

    /// The share of the job that is done at a time, Eq. [job share](https://lenslet.github.io/lenslet/progress.html#eq-job-share); it never decreases.
    pub fn share(&mut self, now: f64) -> f64 {
        let fraction = self.fraction(now);
        let present = self.present.map(|k| (k, fraction));
        let done = |(k, stage): (usize, &JobStage)| match present {
            Some((present, fraction)) if present == k => fraction,
            _ => stage.done,
        };
        let all: f64 = self.stages.iter().map(|stage| stage.seconds).sum();
        if self.planned && all > 0.0 {
            let weighted = |(k, stage)| done((k, stage)) * stage.seconds;
            let share = self.stages.iter().enumerate().map(weighted).sum::<f64>() / all;
            self.share = self.share.max(share.min(1.0));
        }
        self.share
    }

    /// Everything is done.
    pub fn finish(&mut self) {
        self.share = 1.0;
    }

    // Time that remains
    /// An interrupted job is resumed: what its first report says is done was done before.
    pub fn resume(&mut self) {
        self.resuming = true;
    }

    /// Seconds that remain, Eq. [time left](https://lenslet.github.io/lenslet/progress.html#eq-time-left), if that can be said.
    pub fn remaining(&mut self, now: f64) -> Option<f64> {
        let share = self.share(now);
        let [start, before] = self.base;
        let (elapsed, gained) = (now - start, share - before);
        let known = elapsed >= 1.0 && gained >= 0.02 && share < 1.0;
        known.then(|| elapsed * (1.0 - share) / gained)
    }
}

// Report stages of a job
impl JobProgress {
    /// A stage begins, or goes on with another part.
    pub fn stage(&mut self, name: &str, pieces: &str, now: f64) {
        let k = self.number(name);
        self.pieces = pieces.into();
        if self.present == Some(k) {
            return;
        }
        if let Some(present) = self.present {
            let part = self.part.take();
            let end = part.map_or(1.0, |part| (part.number + 1) as f64 / part.count as f64);
            let stage = &mut self.stages[present];
            // A job that is resumed first names the parts from which it goes on.
            stage.done = if self.resuming { stage.done } else { stage.done.max(end.min(1.0)) };
        }
        (self.present, self.counted, self.since) = (Some(k), None, now);
    }

    /// A part of the present stage begins.
    pub fn part(&mut self, what: &str, number: usize, count: usize, now: f64) {
        let part = StagePart { what: what.into(), number, count: count.max(1) };
        let Some(present) = self.present else { return };
        if self.part.as_ref() == Some(&part) {
            return;
        }
        let before = (part.number as f64 / part.count as f64).min(1.0);
        let stage = &mut self.stages[present];
        stage.done = stage.done.max(before);
        (self.part, self.counted, self.since) = (Some(part), None, now);
    }

    /// So many pieces of the present stage, or of its part, are done.
    pub fn progress(&mut self, done: usize, total: usize, now: f64) {
        let Some(present) = self.present else { return };
        self.counted = Some([done.min(total), total]);
        self.stages[present].done = self.fraction(now);
        if self.resuming {
            (self.base, self.resuming) = ([now, self.share(now)], false);
        }
    }
}

// Words about the progress
impl JobProgress {
    /// The present stage: `probes: configuration 2 of 4`, or `slopes: 3 of 8 pieces`.
    fn label(&self) -> String {
        let Some(stage) = self.present.map(|k| &self.stages[k]) else { return String::new() };
        let name = &stage.name;
        match (&self.part, self.counted) {
            (Some(StagePart { what, number, count }), _) if *count > 1 => {
                format!("{name}: {what} {} of {count}", number + 1)
            }
            (_, Some([done, total])) if total > 1 && *name == self.pieces => {
                format!("{name}: {done} of {total}")
            }
            (_, Some([done, total])) if total > 1 && !self.pieces.is_empty() => {
                format!("{name}: {done} of {total} {}", self.pieces)
            }
            _ => name.clone(),
        }
    }

    /// Stage, share and remaining time: `probes: configuration 2 of 4, 31 %, 12 s left`.
    pub fn text(&mut self, now: f64) -> String {
        let mut parts = vec![self.label()];
        if self.planned {
            parts.push(format!("{:.0} %", (100.0 * self.share(now)).floor()));
            parts.extend(self.remaining(now).map(|left| format!("{} left", roughly(left))));
        }
        parts.retain(|part| !part.is_empty());
        parts.join(", ")
    }
}

/// The stage in which a file is read or written: `writing psf.fits`.
fn file_stage(verb: &str, path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    format!("{verb} {}", name.to_string_lossy())
}

// Line on the terminal
/// Parts of the bar.
const PARTS: u64 = 1000;

/// The line with the progress of a job.
struct Line {
    bar: ProgressBar,
    job: Mutex<JobProgress>,
    begun: Instant,
    ended: Mutex<bool>,
    wake: Condvar,
}

impl Line {
    fn new() -> Self {
        let style = ProgressStyle::with_template("{wide_bar} {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(PARTS).with_style(style);
        let (job, ended, wake) = (Mutex::default(), Mutex::default(), Condvar::new());
        Self { bar, job, begun: Instant::now(), ended, wake }
    }

    /// Changes the progress, with the seconds since the job began, and draws it.
    fn change(&self, change: impl FnOnce(&mut JobProgress, f64)) {
        let mut job = lock(&self.job);
        let now = self.begun.elapsed().as_secs_f64();
        change(&mut job, now);
        self.bar.set_position((job.share(now) * PARTS as f64) as u64);
        self.bar.set_message(job.text(now));
    }

    /// Draws the line now and then until it has ended.
    fn redraw(&self) {
        let mut ended = lock(&self.ended);
        while !*ended {
            let waited = self.wake.wait_timeout(ended, Duration::from_millis(200));
            ended = waited.unwrap_or_else(PoisonError::into_inner).0;
            if !*ended {
                self.change(|_, _| ());
            }
        }
    }
}

// Watch from a terminal
/// Watches from a terminal, or only listens for interrupts where there is none.
pub struct Terminal {
    line: Option<Arc<Line>>,
    redraws: Option<JoinHandle<()>>,
}

impl Terminal {
    /// A line on the terminal, unless the program shall be quiet.
    pub fn new(quiet: bool) -> Self {
        if quiet || !io::stderr().is_terminal() {
            return Self { line: None, redraws: None };
        }
        let line = Arc::new(Line::new());
        let drawn = Arc::clone(&line);
        let thread = std::thread::Builder::new().name("progress".into()).stack_size(1 << 18);
        let redraws = thread.spawn(move || drawn.redraw()).ok();
        Self { line: Some(line), redraws }
    }

    fn change(&self, change: impl FnOnce(&mut JobProgress, f64)) {
        if let Some(line) = &self.line {
            line.change(change);
        }
    }

    // Plan and files of a job
    /// The stages of a job: those of a plan, and the files that are written in the end, the arrays first.
    pub fn plan<'p>(
        &self,
        plan: impl FnOnce() -> Result<Description, Error>,
        files: impl IntoIterator<Item = &'p Path>,
    ) -> Result<(), Error> {
        if self.line.is_some() {
            self.plan_stages(job_stages(&plan()?, files));
        }
        Ok(())
    }

    /// The stages of a job by name, with their seconds.
    pub fn plan_stages(&self, stages: impl IntoIterator<Item = (String, f64)>) {
        self.change(|job, _| job.plan(stages));
    }

    /// A file is read before the job can be planned.
    pub fn reads(&self, path: &Path) {
        Watch::stage(self, &file_stage("reading", path), "");
    }

    /// A planned file is being written.
    pub fn writes(&self, path: &Path) {
        Watch::stage(self, &file_stage("writing", path), "");
    }

    /// An interrupted job is resumed.
    pub fn resumes(&self) {
        self.change(|job, _| job.resume());
    }

    /// The whole job is done.
    pub fn finish(&self) {
        if let Some(line) = &self.line {
            line.change(|job, _| job.finish());
            line.bar.force_draw();
        }
    }
}

impl Watch for Terminal {
    fn stage(&self, name: &str, pieces: &str) {
        self.change(|job, now| job.stage(name, pieces, now));
    }

    fn progress(&self, done: usize, total: usize) {
        self.change(|job, now| job.progress(done, total, now));
    }

    fn part(&self, what: &str, number: usize, count: usize) {
        self.change(|job, now| job.part(what, number, count, now));
    }

    fn cancelled(&self) -> bool {
        is_interrupted()
    }
}

// End of the line
impl Drop for Terminal {
    fn drop(&mut self) {
        let Some(line) = &self.line else { return };
        *lock(&line.ended) = true;
        line.wake.notify_all();
        if let Some(thread) = self.redraws.take() {
            let _ = thread.join(); // a panic has been reported
        }
        line.bar.finish_and_clear();
    }
}

// Stages of a plan and of files
/// Bytes that are written in a second, and seconds for a file beside them.
const WRITTEN: f64 = 2e8;
const FILE: f64 = 0.02;

/// The stages of a job by name, with their seconds; the starting of devices is not reported, and not counted.
fn job_stages<'p>(
    plan: &Description,
    files: impl IntoIterator<Item = &'p Path>,
) -> Vec<(String, f64)> {
    let numbers = |shape: &Vec<usize>| shape.iter().map(|n| *n as f64).product::<f64>();
    let arrays: f64 = plan.arrays.iter().map(|(_, shape)| 8.0 * numbers(shape)).sum();
    let planned = plan.stages.iter().filter(|stage| stage.name != "start");
    let planned = planned.map(|stage| (stage.name.to_string(), stage.seconds));
    let seconds = |k| if k == 0 { FILE + arrays / WRITTEN } else { FILE };
    let files = files.into_iter().enumerate();
    let files = files.map(|(k, path)| (file_stage("writing", path), seconds(k)));
    planned.chain(files).collect()
}

// Know the speed of the machine
/// The engine with the speed of its machine, which is read from the user's cache, or else measured and stored there if it is to be `measured`.
/// Where a user has no cache, or nothing can be measured, it is the built-in one.
///
/// # Errors
/// `Cancelled`.
pub fn with_speed(engine: Engine, measured: bool) -> Result<Engine, Error> {
    let Some(kept) = Kept::of(&engine) else { return Ok(engine) };
    if let Some(speed) = kept.speed() {
        return Ok(engine.with_speed(speed));
    }
    if !measured {
        return Ok(engine);
    }
    let terminal = Terminal::new(false);
    terminal.plan_stages([(calibration::STAGE.to_string(), 1.0)]);
    let measured = calibration::measure(&engine, &terminal);
    drop(terminal);
    match measured.and_then(|measured| Ok(calibration::speed(&measured)?)) {
        // Keep the measured speed
        Ok(speed) => {
            let unkept = |error| complain("warning", &kept.cannot_keep(error));
            kept.keep(&speed).unwrap_or_else(unkept);
            Ok(engine.with_speed(speed))
        }
        Err(Error::Cancelled) => Err(Error::Cancelled),
        Err(error) => {
            complain("warning", &format_args!("the speed of this machine is not known: {error}"));
            Ok(engine)
        }
    }
}

// Tests of the progress
#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plan, Stage};

    // Tests of shares and times
    #[test]
    fn the_share_of_a_job_is_weighted_by_planned_times() {
        let mut job = JobProgress::default();
        assert_eq!((job.share(0.0), job.text(0.0)), (0.0, String::new()));
        job.stage("reading x.npz", "", 0.0);
        job.progress(1, 1, 0.5);
        assert_eq!((job.share(0.5), job.text(0.5)), (0.0, "reading x.npz".into()));
        job.plan(
            [("slopes", 10.0), ("factor", 20.0), ("images", 60.0), ("bad", f64::NAN)].map(own),
        );
        job.plan([("writing y.npz", 10.0)].map(own));
        job.stage("slopes", "pieces", 1.0);
        job.progress(1, 4, 2.0);
        assert_eq!(job.text(2.0), "slopes: 1 of 4 pieces, 2 %, 78 s left");
        // Nothing goes back, and an end is an end.
        job.progress(0, 4, 2.5);
        assert_eq!(job.share(2.5), 0.025);
        job.stage("factor", "", 9.0);
        assert_eq!(job.text(9.0), "factor, 10 %, 81 s left");
        let halfway = job.share(19.0);
        assert!((0.19..0.2).contains(&halfway), "{halfway}");
        let late = job.share(1e9);
        assert!(late < 0.3 + 1e-9 && job.share(20.0) == late);
        job.stage("writing y.npz", "", 50.0);
        job.finish();
        assert_eq!(job.text(60.0), "writing y.npz, 100 %");
    }

    // Parts of stages come again
    #[test]
    fn parts_of_stages_come_again_after_other_stages() {
        let mut job = JobProgress::default();
        job.plan([("rows", 40.0), ("images", 60.0)].map(own));
        let mut before = 0.0;
        for t in 0..3 {
            job.stage("rows", "", 30.0);
            job.part("target", t, 3, 30.0);
            job.stage("images", "", 31.0);
            job.part("target", t, 3, 31.0);
            let (share, thirds) = (job.share(31.0), t as f64 / 3.0);
            assert!((share - (0.4 * (thirds + 1.0 / 3.0) + 0.6 * thirds)).abs() < 1e-9, "{share}");
            assert!(job.text(31.0).starts_with(&format!("images: target {} of 3, ", t + 1)));
            assert!(share >= before);
            job.progress(1, 2, 32.0);
            before = job.share(32.0);
            assert!((before - share - 0.1).abs() < 1e-9, "{before}");
        }
        // A report of the same part does not begin it anew.
        job.stage("images", "", 33.0);
        job.part("target", 2, 3, 33.0);
        assert_eq!(job.share(33.0), before);
        job.stage("end", "", 34.0);
        assert!((job.share(34.0) - 1.0).abs() < 1e-9);
    }

    fn own((name, seconds): (&str, f64)) -> (String, f64) {
        (name.into(), seconds)
    }

    #[test]
    fn remaining_times_are_reported_when_they_are_known() {
        let mut job = JobProgress::default();
        job.plan([own(("frames", 10.0))]);
        job.stage("frames", "frames", 0.0);
        job.progress(1, 10, 0.9);
        assert_eq!(job.text(0.9), "frames: 1 of 10, 10 %");
        assert_eq!(job.text(3.0), "frames: 1 of 10, 10 %, 27 s left");
        job.progress(1, 1, 3.0);
        assert_eq!(job.text(3.0), "frames, 100 %");
        // A thousandth says nothing about the whole.
        let mut job = JobProgress::default();
        job.plan([own(("rows", 10.0))]);
        job.stage("rows", "rows", 0.0);
        job.progress(1, 1000, 60.0);
        assert_eq!(job.text(60.0), "rows: 1 of 1000, 0 %");
    }

    // Progress of resumed jobs
    /// A job that is resumed has a share that took no time.
    #[test]
    fn resumed_jobs_start_at_their_share() {
        let mut job = JobProgress::default();
        job.plan([own(("probes", 40.0))]);
        job.resume();
        job.stage("probes", "probes", 5.0);
        job.part("configuration", 2, 4, 5.0);
        job.progress(0, 100, 5.0);
        assert_eq!(job.text(5.0), "probes: configuration 3 of 4, 50 %");
        job.progress(40, 100, 15.0);
        assert_eq!(job.text(15.0), "probes: configuration 3 of 4, 60 %, 40 s left");
    }

    // Record the stages of a job
    /// Records a job, with a clock that advances at each report.
    #[derive(Default)]
    struct Recorder {
        job: Mutex<(JobProgress, usize)>,
        /// Stages in order with their parts: number and count.
        stages: Mutex<Vec<(String, Option<[usize; 2]>)>>,
        shares: Mutex<Vec<f64>>,
    }

    impl Recorder {
        fn report(&self, change: impl FnOnce(&mut JobProgress, f64)) {
            let mut job = self.job.lock().unwrap();
            job.1 += 1;
            let now = 1e-6 * job.1 as f64;
            change(&mut job.0, now);
            self.shares.lock().unwrap().push(job.0.share(now));
        }
    }

    impl Watch for Recorder {
        fn stage(&self, name: &str, pieces: &str) {
            self.report(|job, now| job.stage(name, pieces, now));
            let mut stages = self.stages.lock().unwrap();
            if stages.last().is_none_or(|(last, _)| last != name) {
                stages.push((name.into(), None));
            }
        }

        fn progress(&self, done: usize, total: usize) {
            assert!(done <= total, "{done} of {total}");
            self.report(|job, now| job.progress(done, total, now));
        }

        fn part(&self, what: &str, number: usize, count: usize) {
            assert!(number < count, "{what} {number} of {count}");
            self.report(|job, now| job.part(what, number, count, now));
            let mut stages = self.stages.lock().unwrap();
            let name = stages.last().unwrap().0.clone();
            stages.push((name, Some([number, count])));
        }
    }

    // Check a recorded job
    /// Runs a job as it was planned, and checks its reports; `unplanned` are short stages that no plan has.
    fn check_job(
        planned: &[Stage],
        unplanned: &[&str],
        run: impl FnOnce(&Recorder) -> Result<(), crate::Error>,
    ) {
        let recorder = Recorder::default();
        let stages = planned.iter().filter(|stage| stage.name != "start");
        let stages: Vec<_> = stages.map(|stage| (stage.name.to_string(), stage.seconds)).collect();
        recorder.job.lock().unwrap().0.plan(stages.clone());
        run(&recorder).unwrap();
        // Compare the stages with the plan
        let found = recorder.stages.into_inner().unwrap();
        for (k, (name, part)) in found.iter().enumerate() {
            let is_planned = stages.iter().any(|(known, _)| known == name);
            assert!(is_planned || unplanned.contains(&&**name), "{name} is not among {stages:?}");
            let earlier = found[..k].iter().rev().find(|(known, _)| known == name);
            match (earlier, part) {
                (Some((_, Some([before, all]))), Some([number, count])) => {
                    assert!(all == count && before <= number, "{name}: {found:?}");
                }
                // A stage that goes on announces its part next.
                (Some((_, Some([before, all]))), None) => {
                    let next = found.get(k + 1).filter(|(next, _)| next == name);
                    let is_next = next.is_some_and(|(_, part)| part.is_some());
                    assert!(is_next && before < all, "{name}: {found:?}");
                }
                (Some((_, None)), None) => panic!("{name} comes twice: {found:?}"),
                _ => {}
            }
        }
        // Check that all of the plan is reported
        // Check that all of a plan is reported
        for (name, seconds) in &stages {
            let parts = found.iter().rev().find(|(known, _)| known == name);
            assert!(parts.is_some() || *seconds == 0.0, "{name} is never reported: {found:?}");
            if let Some((_, Some([number, count]))) = parts {
                assert_eq!(number + 1, *count, "{name}: {found:?}");
            }
        }

        let (mut job, _) = recorder.job.into_inner().unwrap();
        job.stage("writing", "", 1.0);
        let share = job.share(1.0);
        assert!((share - 1.0).abs() < 1e-9, "{share} of {stages:?}");
        assert!(recorder.shares.into_inner().unwrap().is_sorted());
    }

    // Systems of recorded jobs
    /// A laser star, and a natural one that is turned and coarser.
    const SYSTEM: &str = "
    atmosphere = { r0 = 0.16, outer_scale = 20, layers = [
        { altitude = 0, fraction = 0.6, wind_speed = 8, wind_direction = 30 },
        { altitude = 9000, fraction = 0.4, wind_speed = 20, wind_direction = 60 } ] }
    telescope = { diameter = 2.5, obstruction = 0.3 }
    lenslet_array = { lenslets = 5 }
    truth_sensor = { lenslets = 5 }
    phase = { points = 6 }
    guide_star = [
        { zenith = 20, azimuth = 30, height = 90e3, noise = 1e-13 },
        { zenith = 15, azimuth = 200, noise = 1e-13, lenslets = 4, rotation = 8 } ]
    target = [ { zenith = 8, azimuth = 75 }, { zenith = 15, azimuth = 0 } ]
    mirror = [ { actuators = 6 } ]
    correction = { mode = 'moao' }
    loop = { kind = 'open', rate = 500.0, delay = 2.0 }
    image = { wavelengths = [1.65e-6], pixel = 20.0, pixels = 32 }
    ";

    /// The text of a system with two natural stars that share a lattice.
    fn alike() -> String {
        let one = SYSTEM.replace("height = 90e3, ", "");
        one.replace(", lenslets = 4, rotation = 8", "")
    }

    fn system(text: &str) -> crate::model::system::System {
        crate::model::system::System::from_toml(text, "test").unwrap()
    }

    // Tests of jobs on covariances
    #[test]
    fn covariances_and_estimates_report_what_they_plan() {
        use crate::estimation::estimate::EstimateOptions;
        use crate::estimation::estimator::EstimatePlan;
        use crate::estimation::inversion::Inversion;
        use crate::turbulence::plan::{CovarianceOptions, CovariancePlan, Form};
        let (alike, engine) = (alike(), Engine::default());
        for (text, form) in [
            (&*alike, Form::Toeplitz),
            (&*alike, Form::Dense),
            (SYSTEM, Form::Blocks),
            (SYSTEM, Form::Dense),
        ] {
            let system = system(text);
            let plan =
                CovariancePlan::new(&system, CovarianceOptions::default().form(form)).unwrap();
            check_job(&plan.describe(&engine).unwrap().stages, &[], |watch| {
                plan.run(&engine, watch).map(drop)
            });
            for method in [Inversion::Iterative, Inversion::Cholesky] {
                let options = EstimateOptions::default().form(form).method(method);
                let plan = EstimatePlan::new(&system, options).unwrap();
                let plan = plan.frames(3).unwrap().fitted(&engine).unwrap();
                let slopes = ndarray::Array2::from_shape_fn((3, plan.slopes()), |(k, i)| {
                    1e-6 * ((k + 1) as f64 * i as f64).sin()
                });
                check_job(&plan.describe(&engine).unwrap().stages, &[], |watch| {
                    plan.run(&engine, watch)?.estimate(slopes.view(), false, watch).map(drop)
                });
            }
        }
    }

    // Tests of jobs on reconstructors
    #[test]
    fn reconstructors_report_what_they_plan() {
        use crate::correction::{CorrectionMode, CorrectionOptions};
        use crate::estimation::inversion::Inversion;
        use crate::model::mirror::{MirrorDesign, Spacing};
        use crate::tomography::point_errors::PointErrorsPlan;
        use crate::tomography::reconstructor::{
            ReconstructedQuantity, ReconstructorOptions, ReconstructorPlan,
        };
        let engine = Engine::default();
        for text in [alike(), SYSTEM.into()] {
            let system = system(&text);
            for method in [Inversion::Cholesky, Inversion::Eigen, Inversion::Iterative] {
                for delay in [0.0, 0.01] {
                    let options = ReconstructorOptions::default().method(method).delay(delay);
                    let plan = ReconstructorPlan::new(&system, options.tolerance(1e-3)).unwrap();
                    check_job(&plan.describe(&engine).unwrap().stages, &[], |watch| {
                        plan.run(&engine, watch).map(drop)
                    });
                }
            }
            // Wavefronts and strokes report what they plan
            for method in [Inversion::Cholesky, Inversion::Iterative] {
                let options = ReconstructorOptions::default().method(method).tolerance(1e-3);
                let wavefronts = options.to(ReconstructedQuantity::Wavefront);
                let mirror = MirrorDesign::new(Spacing::Actuators(4));
                let correction = CorrectionOptions::new(CorrectionMode::Ltao, vec![mirror]);
                for plan in [
                    ReconstructorPlan::new(&system, wavefronts).unwrap(),
                    ReconstructorPlan::for_mirrors(&system, options, &correction).unwrap(),
                ] {
                    check_job(&plan.describe(&engine).unwrap().stages, &[], |watch| {
                        plan.run(&engine, watch).map(drop)
                    });
                }
            }
            let options = ReconstructorOptions::default().errors_only(true).tolerance(0.05);
            let plan = PointErrorsPlan::new(&system, options.to(ReconstructedQuantity::Wavefront))
                .unwrap();
            let unplanned = ["variances before measurements"];
            check_job(&plan.describe(&engine).unwrap().stages, &unplanned, |watch| {
                plan.run(&engine, watch).map(drop)
            });
        }
    }

    // Tests of jobs on images
    #[test]
    fn images_report_what_they_plan() {
        use crate::model::SystemFile;
        use crate::psf::{LoopSimulationOptions, LoopSimulationPlan, PsfOptions, PsfPlan};
        let engine = Engine::default();
        let with = |more: &str| SYSTEM.replace("pixels = 32", &format!("pixels = 32, {more}"));
        let mcao = |text: String| text.replace("'moao'", "'mcao'");
        for (text, checked) in [
            (SYSTEM.to_string(), true),
            (mcao(SYSTEM.into()), false),
            (with("structure = 'stationary'"), false),
            (with("terms = ['tomography', 'fitting']"), false),
            (mcao(with("terms = ['tomography', 'fitting', 'aliasing']")), false),
            (with("terms = ['fitting']"), false),
        ] {
            let file = SystemFile::from_toml(&text, "test").unwrap();
            let system = file.system().unwrap();
            let options = PsfOptions::from_system_file(&file).unwrap();
            let plan = PsfPlan::new(&system, options).unwrap();
            let mut stages = plan.describe(&engine).unwrap().stages;
            let loops = LoopSimulationOptions::default().realisations(2);
            let loops = checked.then(|| LoopSimulationPlan::new(&system, plan.options(), loops));
            let loops = loops.transpose().unwrap();
            stages.extend(loops.iter().flat_map(|loops| loops.describe(&engine).unwrap().stages));
            check_job(&stages, &[], |watch| {
                plan.run(&engine, watch)?;
                loops.map_or(Ok(()), |loops| loops.run(&engine, watch).map(drop))
            });
        }
    }

    // Tests of jobs on slopes
    #[test]
    fn simulations_and_fits_report_what_they_plan() {
        use crate::estimation::simulation::{SimulationOptions, SimulationPlan};
        use crate::profiling::fit::{LearnOptions, LearnPlan, ParameterGroup};
        let (engine, system) = (Engine::default(), system(&alike()));
        let options = SimulationOptions::default().frames(40);
        let plan = SimulationPlan::new(&system, options).unwrap();
        let mut slopes = None;
        check_job(&plan.describe(&engine).unwrap().stages, &[], |watch| {
            slopes = Some(plan.run(&engine, watch)?.slopes);
            Ok(())
        });
        let plan =
            LearnPlan::new(&system, LearnOptions::default().fit([ParameterGroup::Strengths]))
                .unwrap();
        let plan = plan.with_slopes(slopes.unwrap()).unwrap();
        check_job(&plan.describe(&engine).unwrap().stages, &[], |watch| {
            plan.run(&engine, watch).map(drop)
        });
    }

    // Tests of jobs on electrons
    #[test]
    fn scans_and_images_of_electrons_report_what_they_plan() {
        use crate::electrons::StemRunOptions;
        use crate::electrons::sample_file::SampleFile;
        const SAMPLE: &str = "sample = { file = 'book/systems/SI100.XYZ' }\nphonons = { configurations = 3, seed = 3 }\n[potential]\ngrid = [48, 32]\nslice_thickness = 1.3575\n[beam]\nenergy_kev = 100\n";
        const SCAN: &str = "semi_angle = 15\n[scan]\nwindow = [[0.0, 5.43], [1.0, 4.0]]\nstep = [1.4, 1.5]\n[detector]\nbin = 4.0\nannuli = [[20.0, 40.0]]\n";
        let engine = Engine::cpu(crate::numerics::Precision::F64);

        for method in ["", "[method]\nalgorithm = 'prism'\ninterpolation = 1\n"] {
            let text = format!("{SAMPLE}{SCAN}{method}");
            let (plan, _) =
                SampleFile::from_toml(&text, "test").unwrap().plan_with_summary().unwrap();
            let mut stages = plan.describe(&engine).unwrap().stages;
            let compared = plan.by_multislice(2).is_ok();
            stages.extend(compared.then(|| plan.comparing(2, &engine)));
            check_job(&stages, &[], |watch| {
                let readings = plan.run(&engine, watch)?;
                if compared {
                    plan.compare(&readings, 2, 1, &engine, watch).map(drop)
                } else {
                    Ok(())
                }
            });
            // A run that is resumed begins at its share.
            let recorder = Recorder::default();
            let all = plan.describe(&engine).unwrap().stages;
            let all = all.into_iter().map(|stage| (stage.name.to_string(), stage.seconds));
            recorder.job.lock().unwrap().0.plan(all);
            recorder.job.lock().unwrap().0.resume();
            let mut rest = plan.begin(0..plan.places()).unwrap();
            rest.done = [2, 0];
            plan.run_with(&engine, StemRunOptions::default().resume(rest), &recorder).unwrap();
            let (job, _) = recorder.job.into_inner().unwrap();
            assert!(job.base[1] > 0.6 && job.base[1] < 0.7, "{job:?}");
        }
        let text = format!("{SAMPLE}[method]\nalgorithm = 'hrtem'\n[imaging]\naperture = 15.0\n");
        let file = SampleFile::from_toml(&text, "test").unwrap();
        let (plan, _) = file.hrtem_with_summary().unwrap();
        check_job(&plan.describe(&engine).unwrap().stages, &[], |watch| {
            plan.run(&engine, watch).map(drop)
        });
    }
}
