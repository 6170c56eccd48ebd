// Tangled from book/src/python-interrupts.md: edit there, or here and run cargo tangle stitch.
//! Computations that report their progress to a Python callable, and that Ctrl-C interrupts.

// Imports of interruptible computations
use crate::device::lock;
use crate::watch::Watch;
use pyo3::prelude::*;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

// Periods of checks and reports
/// Time between two checks for a signal on the interpreter's thread.
const PERIOD: Duration = Duration::from_millis(20);

/// Time that a computation has to end normally after a signal.
const GRACE: Duration = Duration::from_millis(120);

/// Least time between two reports of progress.
const PAUSE: Duration = Duration::from_millis(50);

// State shared by both threads
/// Stage, part and pieces of a computation.
#[derive(Debug, Clone, Default)]
struct Report {
    stage: String,
    part: Option<(String, usize, usize)>,
    pieces: Option<(usize, usize)>,
    /// Whether it has not been reported yet.
    is_new: bool,
}

/// State shared by the computing thread and the interpreter's thread.
struct Shared<R> {
    cancelled: AtomicBool,
    /// Whether there is a progress function.
    listens: bool,
    report: Mutex<Report>,
    result: Mutex<Option<Result<R, Box<dyn Any + Send>>>>,
    done: Condvar,
}

impl<R> Shared<R> {
    // Make and change shared state
    fn new(listens: bool) -> Self {
        Self {
            cancelled: AtomicBool::new(false),
            listens,
            report: Mutex::default(),
            result: Mutex::new(None),
            done: Condvar::new(),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Report)) {
        if self.listens {
            let mut report = lock(&self.report);
            change(&mut report);
            report.is_new = true;
        }
    }

    // Wait for the result
    /// Result, or `None` if it is not available after `time`.
    fn wait(&self, time: Duration) -> Option<Result<R, Box<dyn Any + Send>>> {
        let waiting = self.done.wait_timeout_while(lock(&self.result), time, |it| it.is_none());
        waiting.map_or(None, |(mut result, _)| result.take())
    }

    fn finish(&self, result: Result<R, Box<dyn Any + Send>>) {
        *lock(&self.result) = Some(result);
        self.done.notify_all();
    }
}

// Watcher that stores its reports
impl<R: Send> Watch for Shared<R> {
    fn stage(&self, name: &str, _pieces: &str) {
        self.change(|report| {
            *report = Report { stage: name.into(), ..Report::default() };
        });
    }

    fn progress(&self, done: usize, total: usize) {
        self.change(|report| report.pieces = Some((done, total)));
    }

    fn part(&self, what: &str, number: usize, count: usize) {
        self.change(|report| {
            (report.part, report.pieces) = (Some((what.into(), number, count)), None);
        });
    }

    fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }
}

// Run on a thread of its own
/// Runs a job on a separate thread, without the interpreter lock. `progress` is called on the present thread with the stage, the number of completed pieces
/// and the total number; an exception there, or an interrupt, cancels the job. A job that does not end soon after an interrupt is detached, so that the
/// interpreter can continue immediately.
pub(super) fn run<R: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    job: impl FnOnce(&dyn Watch) -> R + Send + 'static,
) -> PyResult<R> {
    let shared = Arc::new(Shared::new(progress.is_some()));
    let of_thread = Arc::clone(&shared);
    let thread = std::thread::Builder::new().name("lenslet".into()).spawn(move || {
        let result = catch_unwind(AssertUnwindSafe(|| job(&*of_thread)));
        of_thread.finish(result);
    })?;
    let ended = attend(py, progress, &shared);
    if ended.is_ok() {
        let _ = py.detach(|| thread.join());
    }
    ended
}

// Run with borrowed arrays
/// Runs a job with borrowed data like [`run`], but always waits for its end.
pub(super) fn run_borrowing<R: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    job: impl FnOnce(&dyn Watch) -> R + Send,
) -> PyResult<R> {
    let shared = Shared::new(progress.is_some());
    std::thread::scope(|scope| {
        let of_thread = &shared;
        std::thread::Builder::new().name("lenslet".into()).spawn_scoped(scope, move || {
            let result = catch_unwind(AssertUnwindSafe(|| job(of_thread)));
            of_thread.finish(result);
        })?;
        let ended = attend(py, progress, &shared);
        if ended.is_err() {
            py.detach(|| while shared.wait(Duration::from_secs(3600)).is_none() {});
        }
        ended
    })
}

// Attend to Python while waiting
/// Waits for a job without holding the interpreter lock, reports its progress, and cancels it after a signal.
fn attend<R: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    shared: &Shared<R>,
) -> PyResult<R> {
    let mut reported = Instant::now();
    loop {
        if let Some(result) = py.detach(|| shared.wait(PERIOD)) {
            report(progress, shared)?;
            return Ok(result.unwrap_or_else(|panic| resume_unwind(panic)));
        }
        let mut heard = py.check_signals();
        if heard.is_ok() && reported.elapsed() >= PAUSE {
            reported = Instant::now();
            heard = report(progress, shared);
        }
        // Cancel after an interrupt
        if let Err(interrupt) = heard {
            shared.cancelled.store(true, Ordering::Relaxed);
            py.detach(|| {
                let result = shared.wait(GRACE);
                if let Some(result) = result {
                    shared.finish(result);
                }
            });
            return Err(interrupt);
        }
    }
}

// Report progress to a callable
/// Reports the progress to the callable, if it has changed.
fn report<R>(progress: Option<&Bound<'_, PyAny>>, shared: &Shared<R>) -> PyResult<()> {
    let Some(callable) = progress else { return Ok(()) };
    let latest = {
        let mut latest = lock(&shared.report);
        if !std::mem::take(&mut latest.is_new) {
            return Ok(());
        }
        latest.clone()
    };
    let stage = match &latest.part {
        Some((what, number, count)) => {
            format!("{}, {what} {} of {count}", latest.stage, number + 1)
        }
        None => latest.stage,
    };
    let (done, total) = latest.pieces.unwrap_or((0, 0));
    callable.call1((stage, done, total)).map(drop)
}
