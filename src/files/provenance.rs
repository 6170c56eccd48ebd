// Tangled from book/src/origin.md: edit there, or here and run cargo tangle stitch.
//! Provenance of results: the command, method, system, version and date that a file records.

use crate::data::DataSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

// Provenance of a result
/// Provenance of a result: the command, the method, the text of the system file, and where they apply a tolerance and a seed.
///
/// ```
/// use lenslet::{data::DataSet, files::Provenance};
/// let text = std::fs::read_to_string("book/systems/small.toml")?;
/// let mut data = DataSet::default();
/// Provenance::new("a notebook", "direct", &text).seed(Some(7)).note(&mut data);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Provenance {
    command: String,
    method: String,
    system: String,
    tolerance: Option<f64>,
    seed: Option<u64>,
}

impl Provenance {
    /// A provenance of the command line, the method of computation, and the text of the system file.
    pub fn new(command: &str, method: &str, system: &str) -> Self {
        let [command, method, system] = [command, method, system].map(String::from);
        Self { command, method, system, tolerance: None, seed: None }
    }

    // Tolerance and seed of a provenance
    /// Adds the error bound of the numbers; an infinite one is left out.
    pub fn tolerance(self, tolerance: Option<f64>) -> Self {
        Self { tolerance: tolerance.filter(|error| error.is_finite()), ..self }
    }

    /// Adds the seed of the random numbers.
    pub fn seed(self, seed: Option<u64>) -> Self {
        Self { seed, ..self }
    }

    // Note the provenance in a file
    /// Adds the provenance to a data set as attributes, with program, version and date, and the text of the system file as a text.
    pub fn note(self, data: &mut DataSet) {
        data.note("program", env!("CARGO_PKG_NAME"), "");
        data.note("version", env!("CARGO_PKG_VERSION"), "");
        data.note("command", self.command, "");
        data.note("date", today(), "Universal Time");
        data.note("method", self.method, "");
        if let Some(tolerance) = self.tolerance {
            data.note("tolerance", tolerance, "");
        }
        match self.seed.map(i64::try_from) {
            Some(Ok(seed)) => data.note("seed", seed, ""),
            Some(Err(_)) => data.note("seed", self.seed.unwrap_or_default().to_string(), ""),
            None => {}
        }
        data.add_text("system", self.system).long_name("text of the system file, in UTF-8");
    }
}

// Date and time of day
/// The present time, or that of `SOURCE_DATE_EPOCH`.
fn now() -> SystemTime {
    let fixed = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok());
    let fixed = fixed.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
    fixed.unwrap_or_else(SystemTime::now)
}

/// The present date and time of day, as [`date`] formats them.
pub(crate) fn today() -> String {
    date(now())
}

// Date of a time
/// Date and time of day, Universal Time, by the proleptic Gregorian calendar: `2026-11-22T14:20:31`.
pub(crate) fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (year, month, day) = civil((seconds / 86_400) as i64);
    let [hour, minute] = [seconds / 3600 % 24, seconds / 60 % 60];
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}", seconds % 60)
}

/// Year, month and day of a day counted from 1 January 1970. The year is counted from March, so that a leap day ends it.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let calendar = if month < 10 { month + 3 } else { month - 9 };
    (year + 400 * era + i64::from(calendar <= 2), calendar, of_month)
}

// Tests of the provenance
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_their_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(-1), (1969, 12, 31));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_777), (2026, 11, 20));
        assert_eq!(civil(47_540), (2100, 2, 28));
        assert_eq!(civil(47_541), (2100, 3, 1));
        let time = UNIX_EPOCH + Duration::from_secs(20_779 * 86_400 + 14 * 3600 + 20 * 60 + 31);
        assert_eq!(date(time), "2026-11-22T14:20:31");
    }
}
