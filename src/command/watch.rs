// Tangled from book/src/summaries.md: edit there, or here and run cargo tangle stitch.
//! What a person sees while the program computes, and how they stop it.

use crate::device::Watch;
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::{consts, flag};
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

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
pub struct Terminal(ProgressBar);

impl Terminal {
    /// A line on the terminal, unless the program shall be quiet.
    pub fn new(quiet: bool) -> Self {
        if quiet || !io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}, {eta} left");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(ProgressBar::new(1).with_style(style))
    }
}

// Show progress on the terminal
impl Watch for Terminal {
    fn stage(&self, name: &str) {
        self.0.reset();
        self.0.set_message(name.to_string());
    }

    fn progress(&self, done: usize, total: usize) {
        self.0.set_length(total as u64);
        self.0.set_position(done as u64);
    }

    fn cancelled(&self) -> bool {
        INTERRUPTED.load(Ordering::Relaxed)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

// Tests of ignored signals
#[cfg(all(test, unix))]
mod tests {
    use super::*;

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
