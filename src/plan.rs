// Tangled from book/src/plans.md: edit there, or here and run cargo tangle stitch.
//! Plans: what a computation will do, its memory and run time, and its run.

use crate::device::{CostKind, Engine, refuse_beyond_memory, start_threads, threads};
use crate::error::Error;
use crate::watch::Watch;
use std::fmt;
use std::time::Duration;

// Plan of a computation
/// A planned computation, whose method, memory and run time are known before it runs.
///
/// ```
/// use lenslet::prelude::*;
/// /// Prints what a plan will do, and does it.
/// fn report<P: Plan>(plan: &P, engine: &Engine) -> Result<P::Output> {
///     let description = plan.describe(engine)?;
///     println!("{} in about {:?}", description.what, plan.duration(engine)?);
///     plan.run(engine, &unwatched)
/// }
///
/// let system = System::from_file("book/systems/small.toml")?;
/// let plan = CovariancePlan::new(&system, CovarianceOptions::default())?;
/// assert!(report(&plan, &Engine::default())?.slope_slope.variance() > 0.0);
/// // The CPU computes covariances in double precision only.
/// let single = Engine::cpu(Precision::F32);
/// assert!(plan.run(&single, &unwatched).unwrap_err().to_string().starts_with("precision = f32: expected f64"));
/// # Ok::<(), Error>(())
/// ```
pub trait Plan: fmt::Debug {
    /// What a run returns.
    type Output;

    // Questions that a plan answers
    /// Rejects an engine on which the computation cannot run, or only in another precision than that of the engine.
    ///
    /// # Errors
    /// `Device` for a GPU where only the CPU computes it; `Invalid` for single precision where there is only double precision.
    fn check_engine(&self, engine: &Engine) -> Result<(), Error>;

    /// What is computed, in the words of an error about its memory, such as `the scan`.
    fn subject(&self) -> String;

    /// What a run on an engine will do.
    ///
    /// # Errors
    /// Those of [`check_engine`](Self::check_engine).
    fn describe(&self, engine: &Engine) -> Result<Description, Error>;

    // Memory and duration of a run
    /// The most memory that a run has in use at a time.
    ///
    /// # Errors
    /// Those of [`describe`](Self::describe).
    fn memory(&self, engine: &Engine) -> Result<Memory, Error> {
        Ok(self.describe(engine)?.memory)
    }

    /// About how long a run takes.
    ///
    /// # Errors
    /// Those of [`describe`](Self::describe).
    fn duration(&self, engine: &Engine) -> Result<Duration, Error> {
        let seconds = self.describe(engine)?.seconds();
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    // Check a plan and run it
    /// Rejects a run that cannot begin: an engine that does not suit the computation, or too little memory. A run checks this first.
    ///
    /// # Errors
    /// Those of [`describe`](Self::describe), and `Memory` with the bytes needed and available.
    fn check(&self, engine: &Engine) -> Result<(), Error> {
        self.memory(engine)?.check(engine, &self.subject())
    }

    /// Runs the computation and reports its progress to `watch`.
    ///
    /// # Errors
    /// Those of [`check`](Self::check); `Cancelled` where the watcher wants to stop; those of the computation and of devices.
    fn run(&self, engine: &Engine, watch: &dyn Watch) -> Result<Self::Output, Error>;
}

// Bytes that a plan states
/// The most bytes that a computation has in use at a time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Memory {
    /// On the host.
    pub host: u64,
    /// On each device of the engine, in the engine's order; empty for a processor.
    pub devices: Vec<u64>,
}

// Add up the bytes of stages
impl Memory {
    /// Bytes on the host for all that a plan does not count one by one.
    pub const REST: u64 = 64 << 20;

    /// The memory of stages that follow each other: all results, and the largest of what they work with, each for host and devices.
    pub fn of_stages<'a>(results: u64, working: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut most = Self::default();
        for stage in working {
            most.host = most.host.max(stage.host);
            most.devices.resize(most.devices.len().max(stage.devices.len()), 0);
            most.devices.iter_mut().zip(&stage.devices).for_each(|(a, b)| *a = (*a).max(*b));
        }
        most.host = most.host.saturating_add(results).saturating_add(Self::REST);
        most
    }

    // Refuse a plan beyond the memory
    /// Refuses `what` where it needs more memory than there is, on the host or on a device of the engine.
    ///
    /// # Errors
    /// `Memory`, with the bytes needed and available; where the system does not tell what is available, nothing is refused. What a
    /// device says. `Failed` where no thread can be started.
    pub fn check(&self, engine: &Engine, what: &str) -> Result<(), Error> {
        start_threads(false)?;
        refuse_beyond_memory(self.host, || what.into())?;
        let mut demands = engine.devices().iter().zip(&self.devices);
        demands.try_for_each(|(gpu, &bytes)| gpu.refuse_beyond_memory(bytes, what))
    }
}

// Stages and their times
/// A part of a computation.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Stage {
    /// Name that [`Watch::stage`] receives when it begins.
    pub name: &'static str,
    /// About how long it takes, in seconds.
    pub seconds: f64,
}

/// Threads of a processor that do as much as a device.
const THREADS_OF_A_DEVICE: f64 = 500.0;

/// Seconds until a device is ready for a stage.
const START_OF_A_DEVICE: f64 = 0.05;

/// Seconds until the libraries are ready that compute with matrices on a device.
const START_OF_LIBRARIES: f64 = 0.12;

// Time of a stage on an engine
impl Stage {
    /// A stage with the `work` that one thread would do in so many seconds by the built-in rates, spread over an engine.
    pub fn new(name: &'static str, work: &[(CostKind, f64)], engine: &Engine) -> Self {
        let stage = Self::shared(name, work, engine);
        match engine.devices() {
            [] => stage,
            _ => Self { seconds: START_OF_A_DEVICE + stage.seconds / THREADS_OF_A_DEVICE, ..stage },
        }
    }

    /// A stage that one thread, or where the engine has devices one device, would finish alone in so many seconds by the built-in rates.
    pub fn shared(name: &'static str, alone: &[(CostKind, f64)], engine: &Engine) -> Self {
        let workers = if engine.devices().is_empty() { threads() } else { engine.place()[1] };
        Self { name, seconds: engine.speed().seconds(alone) / workers as f64 }
    }

    // Stages that are not divided
    /// A stage of one device, whatever others do: it would take so many seconds by the built-in rates.
    pub fn alone(name: &'static str, alone: &[(CostKind, f64)], engine: &Engine) -> Self {
        Self { name, seconds: engine.speed().seconds(alone) }
    }

    /// The stage in which devices get ready, if there are any, of a plan that tells it by itself.
    pub(crate) fn start(engine: &Engine) -> Option<Self> {
        let there = !engine.devices().is_empty();
        there.then_some(Self { name: "start", seconds: START_OF_LIBRARIES })
    }

    /// Raises the time to that of a piece that one core computes alone, in so many seconds by the built-in rates; devices have no such piece.
    pub fn with_piece(self, alone: &[(CostKind, f64)], engine: &Engine) -> Self {
        let piece = if engine.devices().is_empty() { engine.speed().seconds(alone) } else { 0.0 };
        Self { seconds: self.seconds.max(piece), ..self }
    }
}

// Description of a plan
/// What a plan will do.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Description {
    /// What is computed, of what: `covariances of 4 guide stars and 2 targets`.
    pub what: String,
    /// Name and shape of each result.
    pub arrays: Vec<(String, Vec<usize>)>,
    /// `toeplitz` or `dense`; empty where there is no choice.
    pub form: &'static str,
    /// Why this form was chosen.
    pub reason: String,
    /// How it is computed, in words.
    pub method: String,
    /// What slopes are taken to be, as a system file calls it.
    pub slope_model: &'static str,
    /// What computes it: `2 threads`.
    pub engine: String,
    /// The memory that it takes.
    pub memory: Memory,
    /// The stages that it goes through.
    pub stages: Vec<Stage>,
    /// Where the rates of their times come from: `built in`, or when they were measured.
    pub rates: String,
}

// Seconds of a whole plan
impl Description {
    /// About how long all stages take, in seconds.
    pub fn seconds(&self) -> f64 {
        self.stages.iter().map(|stage| stage.seconds).sum()
    }
}

// Tests of memory and time
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Speed;

    #[test]
    fn stages_share_their_working_memory() {
        let working = |host, devices: &[u64]| Memory { host, devices: devices.to_vec() };
        let stages = [working(5, &[1, 7]), working(9, &[]), working(2, &[3, 4])];
        let memory = Memory::of_stages(100, &stages);
        assert_eq!(memory, working(Memory::REST + 109, &[3, 7]));
        assert!(Memory::default().check(&Engine::default(), "nothing").is_ok());
        let error = working(u64::MAX, &[]).check(&Engine::default(), "everything").unwrap_err();
        assert!(error.to_string().starts_with("everything needs ") && error.exit_code() == 2);
        assert_eq!(Memory::of_stages(u64::MAX, &stages).host, u64::MAX);
    }

    #[test]
    fn stages_follow_the_paces_and_the_largest_piece() {
        let engine = Engine::default();
        let slow = |kind| if kind == CostKind::Memory { 3.0 } else { 2.0 };
        let slow = engine.clone().with_speed(Speed::measured("now".into(), slow).unwrap());
        let work = [(CostKind::Memory, 1.0), (CostKind::Products, 5.0)];
        let [stage, slower] = [&engine, &slow].map(|engine| Stage::new("a", &work, engine));
        assert!((slower.seconds / stage.seconds - 13.0 / 6.0).abs() < 1e-12);
        let whole = stage.clone().with_piece(&work, &engine);
        assert!((whole.seconds / stage.seconds - threads() as f64).abs() < 1e-9);
        let small =
            stage.clone().with_piece(&[(CostKind::Products, 1e-3 * stage.seconds)], &engine);
        assert_eq!(small, stage);
    }
}
