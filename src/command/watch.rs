// Tangled from book/src/summaries.md: edit there, or here and run cargo tangle stitch.
//! What a person sees while the program computes, and how they stop it.

use crate::device::Watch;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};

// Stop at an interrupt
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on an interrupt, or a request to end, cancels the computation; the second one ends the process with the code 130.
pub fn catch_interrupts() {
    let stop = || {
        if INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    let _ = ctrlc::set_handler(stop); // fails only where a handler is set already
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
