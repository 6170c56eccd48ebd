// Tangled from book/src/watchers.md: edit there, or here and run cargo tangle stitch.
//! Progress of a computation, and how it is cancelled.

use crate::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

// Watch a computation and stop it
/// Watcher of a computation, which receives its progress and can cancel it; called from any thread.
///
/// ```
/// use lenslet::prelude::*;
/// use std::{sync::Mutex, time::{Duration, Instant}};
/// /// Writes down the stages, and stops what takes too long.
/// struct Impatient(Mutex<Vec<String>>, Instant);
///
/// impl Watch for Impatient {
///     fn stage(&self, name: &str, _pieces: &str) {
///         self.0.lock().unwrap().push(name.to_string());
///     }
///
///     fn cancelled(&self) -> bool {
///         Instant::now() > self.1
///     }
/// }
///
/// let system = System::from_file("book/systems/keck-lgs.toml")?;
/// let plan = CovariancePlan::new(&system, CovarianceOptions::default())?;
/// let patient = Impatient(Mutex::default(), Instant::now() + Duration::from_secs(600));
/// plan.run(&Engine::default(), &patient)?;
/// assert_eq!(patient.0.into_inner().unwrap()[..2], ["slopes", "wavefront and slopes"]);
/// let hasty = Impatient(Mutex::default(), Instant::now());
/// assert!(matches!(plan.run(&Engine::default(), &hasty), Err(Error::Cancelled)));
/// # Ok::<(), Error>(())
/// ```
pub trait Watch: Sync {
    // Events that a watcher receives
    /// A stage begins, such as `slopes`; its pieces, such as `frames`, are counted from 0 again.
    fn stage(&self, _name: &str, _pieces: &str) {}

    /// So many pieces of the stage are done, and of how many; of its present part if it has parts.
    fn progress(&self, _done: usize, _total: usize) {}

    /// A part of the stage begins, such as configuration 2 (`number` 1) of 4 (`count`); its pieces are counted from 0 again. Other stages
    /// may run between the parts.
    fn part(&self, _what: &str, _number: usize, _count: usize) {}

    /// Whether the computation shall stop. It is asked between pieces; what was begun is finished.
    fn cancelled(&self) -> bool {
        false
    }
}

// Functions that watch a computation
impl<F: Fn(usize, usize) + Sync> Watch for F {
    fn progress(&self, done: usize, total: usize) {
        self(done, total);
    }
}

/// Watches nothing: `&unwatched` is a `&dyn Watch` that neither reports nor cancels.
pub fn unwatched(_done: usize, _total: usize) {}

/// Lets another watcher cancel a computation without reporting its pieces to it.
pub struct CancelOnly<'a>(pub &'a dyn Watch);

impl Watch for CancelOnly<'_> {
    fn cancelled(&self) -> bool {
        self.0.cancelled()
    }
}

/// Ends a computation that shall stop.
///
/// # Errors
/// `Cancelled` if so.
pub fn check(watch: &dyn Watch) -> Result<(), Error> {
    if watch.cancelled() { Err(Error::Cancelled) } else { Ok(()) }
}

// Part of a larger stage
/// Watcher of one part of a stage, which reports to the watcher of the whole.
pub struct Part<'a> {
    /// The watcher of the stage.
    pub whole: &'a dyn Watch,
    /// Pieces of the parts before this one.
    pub before: usize,
    /// Pieces of all parts.
    pub total: usize,
}

impl Watch for Part<'_> {
    fn progress(&self, done: usize, _total: usize) {
        self.whole.progress(self.before + done, self.total);
    }

    fn cancelled(&self) -> bool {
        self.whole.cancelled()
    }
}

// Stages within stages
/// Watches a computation with stages of its own as one part of a stage: its stages are not reported.
pub struct WithinStage<'a>(pub &'a dyn Watch);

impl Watch for WithinStage<'_> {
    fn progress(&self, done: usize, total: usize) {
        self.0.progress(done, total);
    }

    fn cancelled(&self) -> bool {
        self.0.cancelled()
    }
}

// One of several equal computations
/// Watches one of `count` equal computations: each of its stages is a part of a stage of all of them.
pub struct StageParts<'a> {
    // Fields of equal computations
    /// The watcher of all of them.
    pub whole: &'a dyn Watch,
    /// The name of one of them, such as `target`.
    pub what: &'a str,
    /// Its number, from 0.
    pub number: usize,
    /// How many there are.
    pub count: usize,
}

impl Watch for StageParts<'_> {
    fn stage(&self, name: &str, pieces: &str) {
        self.whole.stage(name, pieces);
        self.whole.part(self.what, self.number, self.count);
    }

    fn progress(&self, done: usize, total: usize) {
        self.whole.progress(done, total);
    }

    fn cancelled(&self) -> bool {
        self.whole.cancelled()
    }
}

// Progress reported to another thread
/// Report of a computation to the thread that observes it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// A stage begins; its pieces are counted from 0.
    Stage {
        /// Its name, such as `slopes`.
        name: String,
        /// The name of its pieces, such as `frames`; may be empty.
        pieces: String,
    },
    /// A part of the stage begins; its pieces are counted from 0.
    Part {
        /// What a part is, such as `configuration`.
        what: String,
        /// Its number, from 0.
        number: usize,
        /// How many parts there are.
        count: usize,
    },
    /// Pieces of the stage, or of its present part, are done.
    Pieces {
        /// How many are done.
        done: usize,
        /// How many there are.
        total: usize,
    },
}

// Watch from another thread
/// Watcher that connects a computation with another thread: a flag, which that thread sets, cancels it, and a callback receives its
/// progress.
///
/// The callback is called by the threads that compute, several at a time; it should return at once. A sender of a channel suits.
///
/// ```
/// use lenslet::prelude::*;
/// use lenslet::watch::{Observer, Progress};
/// use std::sync::{Arc, atomic::{AtomicBool, Ordering}, mpsc::channel};
///
/// let system = System::from_file("book/systems/small.toml")?;
/// let plan = SimulationPlan::new(&system, SimulationOptions::default().frames(100_000))?;
/// let (cancel, (sender, receiver)) = (Arc::new(AtomicBool::new(false)), channel());
/// let observer = Observer::new(cancel.clone(), move |progress| drop(sender.send(progress)));
/// let running = std::thread::spawn(move || plan.run(&Engine::default(), &observer));
/// // This thread is free, as that of a window is: it shows the progress, and cancels after the first frame.
/// let done = receiver.iter().find(|progress| matches!(progress, Progress::Pieces { .. }));
/// cancel.store(true, Ordering::Relaxed);
/// assert!(matches!(running.join().unwrap(), Err(Error::Cancelled)));
/// assert!(matches!(done, Some(Progress::Pieces { done, total }) if done <= total));
/// # Ok::<(), Error>(())
/// ```
pub struct Observer<F> {
    cancel: Arc<AtomicBool>,
    report: F,
}

// Make an observer
impl<F: Fn(Progress) + Sync> Observer<F> {
    /// A watcher that cancels once `cancel` is true, and calls `report` with each stage, part and number of pieces.
    pub fn new(cancel: Arc<AtomicBool>, report: F) -> Self {
        Self { cancel, report }
    }
}

impl<F> std::fmt::Debug for Observer<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").field("cancel", &self.cancel).finish_non_exhaustive()
    }
}

// Report to another thread
impl<F: Fn(Progress) + Sync> Watch for Observer<F> {
    fn stage(&self, name: &str, pieces: &str) {
        (self.report)(Progress::Stage { name: name.into(), pieces: pieces.into() });
    }

    fn progress(&self, done: usize, total: usize) {
        (self.report)(Progress::Pieces { done, total });
    }

    fn part(&self, what: &str, number: usize, count: usize) {
        (self.report)(Progress::Part { what: what.into(), number, count });
    }

    fn cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}
