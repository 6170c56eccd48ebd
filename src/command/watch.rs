// Tangled from book/src/summaries.md: edit there, or here and run cargo tangle stitch.
//! What a person sees while the program computes, and how they stop it.

use super::summary::roughly;
use crate::bench::calibration::{self, Kept};
use crate::device::{Engine, Watch};
use crate::error::{Error, escaped_lines};
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::{consts, flag};
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

// Stop at an interrupt
static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From now on an interrupt, or a request to end, cancels the computation; the second one ends the process with the code 130.
pub fn catch_signals() {
    #[cfg(unix)]
    let requests = [consts::SIGINT, consts::SIGTERM, consts::SIGHUP];
    #[cfg(not(unix))]
    let requests = [consts::SIGINT, consts::SIGTERM];
    for signal in requests.into_iter().filter(|&signal| !is_ignored(signal)) {
        // These fail only where the system does not know the signal.
        let _ = flag::register_conditional_shutdown(signal, 130, INTERRUPTED.clone());
        let _ = flag::register(signal, INTERRUPTED.clone());
    }
    #[cfg(unix)]
    let _ = flag::register(consts::SIGXFSZ, Arc::default());
}

// Signals that are ignored
/// Whether a signal is ignored by this process.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.map_or_else(|| survives(signal), |mask| (mask >> (signal - 1)) & 1 == 1)
}

#[cfg(not(unix))]
fn is_ignored(_signal: i32) -> bool {
    false
}
/// Whether a shell that inherits what is ignored survives a signal.
#[cfg(unix)]
fn survives(signal: i32) -> bool {
    let kill = format!("kill -{signal} $$");
    let shell = std::process::Command::new("sh").args(["-c", &kill]).status();
    shell.is_ok_and(|status| status.success())
}

// Watch from a terminal
/// Who watches from a terminal, or only listens for interrupts where there is none.
pub struct Terminal {
    line: ProgressBar,
    /// What the pieces of the stage are called, and when it began.
    stage: Mutex<(String, Instant)>,
}

impl Terminal {
    /// A line on the terminal, unless the program shall be quiet.
    pub fn new(quiet: bool) -> Self {
        let stage = Mutex::new((String::new(), Instant::now()));
        if quiet || !io::stderr().is_terminal() {
            return Self { line: ProgressBar::hidden(), stage };
        }
        let style = ProgressStyle::with_template("{prefix} {wide_bar} {msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self { line: ProgressBar::new(1).with_style(style), stage }
    }

    fn stage(&self) -> MutexGuard<'_, (String, Instant)> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// Show progress on the terminal
impl Watch for Terminal {
    fn stage(&self, name: &str, pieces: &str) {
        *self.stage() = (pieces.to_string(), Instant::now());
        self.line.reset();
        self.line.set_message("");
        self.line.set_prefix(name.to_string());
    }

    fn progress(&self, done: usize, total: usize) {
        if self.line.is_hidden() {
            return;
        }
        let stage = self.stage();
        self.line.set_length(total as u64);
        self.line.set_position(done as u64);
        self.line.set_message(told(&stage.0, [done, total], stage.1.elapsed()));
    }

    fn cancelled(&self) -> bool {
        INTERRUPTED.load(Ordering::Relaxed)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}

// Guess the time that is left
/// So many pieces are done after some time: `3 of 10 frames, 7 s left`.
fn told(pieces: &str, [done, total]: [usize; 2], elapsed: Duration) -> String {
    let counted = format!("{done} of {total} {pieces}");
    if elapsed < Duration::from_secs(1) || done == 0 {
        return counted;
    }
    let left = elapsed.as_secs_f64() * total.saturating_sub(done) as f64 / done as f64;
    format!("{counted}, {} left", roughly(left))
}

// Know the speed of the machine
/// The engine with the speed of its machine, which is read from the user's cache, or else measured and kept there if it is `wanted`.
/// Where a user has no cache, or nothing can be measured, it is the built-in one.
///
/// # Errors
/// `Cancelled`.
pub fn with_speed(engine: Engine, wanted: bool) -> Result<Engine, Error> {
    let Some(kept) = Kept::of(&engine) else { return Ok(engine) };
    if let Some(speed) = kept.speed() {
        return Ok(engine.with_speed(speed));
    }
    if !wanted {
        return Ok(engine);
    }
    let measured = calibration::measure(&engine, &Terminal::new(false));
    match measured.and_then(|measured| Ok(calibration::speed(&measured)?)) {
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

// Complain on the standard error
/// Says on the standard error what is wrong; where even that cannot be written, the exit code has to do.
pub fn complain(how: &str, what: &dyn std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{how}: {}", escaped_lines(what));
}
// Tests of what is watched
#[cfg(test)]
mod tests {
    use super::*;

    // Tests of the progress line
    #[test]
    fn time_left_is_told_when_it_is_known() {
        let after = |seconds, done| told("frames", [done, 10], Duration::from_secs_f64(seconds));
        assert_eq!(after(0.9, 1), "1 of 10 frames");
        assert_eq!(after(60.0, 0), "0 of 10 frames");
        assert_eq!(after(3.0, 3), "3 of 10 frames, 7 s left");
        assert_eq!(after(600.0, 4), "4 of 10 frames, 15 min left");
        assert_eq!(after(2.0, 10), "10 of 10 frames, a moment left");
    }

    // Tests of ignored signals
    #[cfg(unix)]
    #[test]
    fn ignored_signals_are_known() {
        for signal in [consts::SIGINT, consts::SIGTERM, consts::SIGHUP] {
            assert_eq!(is_ignored(signal), survives(signal), "{signal}");
        }
        let deaf = "trap '' HUP; sh -c 'kill -HUP $$'";
        let shell = std::process::Command::new("sh").args(["-c", deaf]).status();
        assert!(shell.is_ok_and(|status| status.success()));
    }
}
