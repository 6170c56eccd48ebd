//! What `cargo book` is doing, as lines on standard error.

use std::time::{Duration, Instant};

/// Reports steps with the time since the first.
#[derive(Debug)]
pub struct Progress(Instant);

impl Progress {
    /// The time starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Reports the step that begins.
    pub fn step(&self, what: &str) {
        eprintln!("{}", line(self.elapsed(), what));
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A line of the report.
fn line(elapsed: Duration, what: &str) -> String {
    format!("[{:6.1} s] {what}", elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::line;
    use std::time::Duration;

    #[test]
    fn lines_have_the_time() {
        assert_eq!(line(Duration::from_millis(12_340), "reading"), "[  12.3 s] reading");
    }
}
