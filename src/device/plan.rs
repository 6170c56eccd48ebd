// Tangled from book/src/plans.md: edit there, or here and run cargo tangle stitch.
//! What a computation says of itself before it runs: its memory, its stages, its time.

use super::{engine::Engine, refuse_beyond_memory, start_threads, threads};
use crate::error::Error;

// Bytes that a plan states
/// The most bytes that a computation has in use at a time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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
pub struct Stage {
    /// What a watcher is told when it begins.
    pub name: &'static str,
    /// About how long it takes, in seconds.
    pub seconds: f64,
}

/// Threads of a processor that do as much as a device.
const THREADS_OF_A_DEVICE: f64 = 500.0;

/// Seconds until a device is ready for a stage.
const START_OF_A_DEVICE: f64 = 0.05;

// Time of a stage on an engine
impl Stage {
    /// A stage with the `work` that one thread would do in so many seconds, spread over an engine.
    pub fn new(name: &'static str, work: f64, engine: &Engine) -> Self {
        let of_device = if engine.devices().is_empty() { 1.0 } else { THREADS_OF_A_DEVICE };
        Self::shared(name, work / of_device, engine)
    }

    /// A stage that one thread, or where the engine has devices one device, would finish alone in so many seconds.
    pub fn shared(name: &'static str, alone: f64, engine: &Engine) -> Self {
        let seconds = match engine.devices() {
            [] => alone / threads() as f64,
            _ => START_OF_A_DEVICE + alone / engine.place()[1] as f64,
        };
        Self { name, seconds }
    }
}

// Description of a plan
/// What a plan will do.
#[derive(Debug, Clone, PartialEq)]
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
}
