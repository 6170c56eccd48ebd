// Tangled from book/src/speed.md: edit there, or here and run cargo tangle stitch.
//! Calibration of run times: the pace of a machine for each kind of cost.

use crate::error::{Invalid, accept};
use std::fmt;

// Six kinds of cost
/// Kind of cost: the resource of a machine that limits the run time of a computation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostKind {
    /// Products of large matrices: multiplications with additions, limited by arithmetic throughput.
    Products,
    /// Cholesky's factor of a large matrix, half of which is products, and solutions with it.
    Factors,
    /// Eigenvectors of a large matrix, which is read as many times as it has rows.
    Eigenvectors,
    /// Sums over nodes, tables and special functions, computed one number after another.
    Integrals,
    /// Reading and writing of numbers with little computation, limited by memory bandwidth.
    Memory,
    /// Fourier transforms, and the element-wise operations between them.
    Transforms,
}

// Names of kinds of cost
impl CostKind {
    /// All kinds, with their names.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Products, "products"),
        (Self::Factors, "factors"),
        (Self::Eigenvectors, "eigenvectors"),
        (Self::Integrals, "integrals"),
        (Self::Memory, "memory"),
        (Self::Transforms, "transforms"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

// Paces by kind of cost
/// Speed of a machine: its pace for each kind of cost, the run time as a multiple of that by the built-in rates.
///
/// ```
/// use lenslet::device::{Engine, Speed, CostKind};
/// let slow = Speed::measured("today".into(), |kind| if kind == CostKind::Memory { 3.0 } else { 1.0 })?;
/// assert_eq!(slow.seconds(&[(CostKind::Memory, 0.5), (CostKind::Products, 2.0)]), 3.5);
/// let engine = Engine::default().with_speed(slow);
/// assert_eq!(engine.speed().to_string(), "measured today");
/// assert_eq!(Speed::default().to_string(), "built in");
/// # Ok::<(), lenslet::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Speed {
    /// Paces by kind of cost, in the order of [`CostKind::ALL`].
    paces: [f64; CostKind::ALL.len()],
    date: Option<String>,
}

impl Default for Speed {
    /// Speed of the machines on which the built-in rates were measured: all paces are 1.
    fn default() -> Self {
        Self { paces: [1.0; CostKind::ALL.len()], date: None }
    }
}

// Make a speed from measured paces
impl Speed {
    /// Speed from a calibration at some date, with the pace of each kind of cost.
    ///
    /// # Errors
    /// `Invalid` where a pace is not positive and finite.
    pub fn measured(date: String, pace: impl Fn(CostKind) -> f64) -> Result<Self, Invalid> {
        let paces = CostKind::ALL.map(|(kind, _)| pace(kind));
        for ((_, name), pace) in CostKind::ALL.iter().zip(paces) {
            accept(pace > 0.0 && pace.is_finite(), name, pace, "a pace, positive and finite")?;
        }
        Ok(Self { paces, date: Some(date) })
    }

    /// Date of the calibration; none for the built-in rates.
    pub fn date(&self) -> Option<&str> {
        self.date.as_deref()
    }

    /// Pace of a kind of cost.
    pub fn pace(&self, kind: CostKind) -> f64 {
        self.paces[kind as usize]
    }
}

impl fmt::Display for Speed {
    /// Source of the paces: `built in`, or `measured` with the date.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.date {
            Some(date) => write!(f, "measured {date}"),
            None => f.write_str("built in"),
        }
    }
}

// Run time from costs
impl Speed {
    /// Run time \[s\] of one thread, or of one device, from the costs of each kind, in seconds by the built-in rates.
    pub fn seconds(&self, work: &[(CostKind, f64)]) -> f64 {
        work.iter().map(|&(kind, seconds)| self.pace(kind) * seconds).sum()
    }
}

// Tests of paces
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paces_are_kept_by_kind() {
        let place = |kind: CostKind| CostKind::ALL.iter().position(|(other, _)| *other == kind);
        let speed = Speed::measured("now".into(), |kind| 1.0 + place(kind).unwrap() as f64);
        let speed = speed.unwrap();
        for (k, (kind, _)) in CostKind::ALL.into_iter().enumerate() {
            assert_eq!(speed.pace(kind), 1.0 + k as f64);
            assert_eq!(speed.seconds(&[(kind, 2.0), (kind, 1.0)]), 3.0 * speed.pace(kind));
            assert_eq!(Speed::default().pace(kind), 1.0);
        }
        assert_eq!((speed.date(), Speed::default().date()), (Some("now"), None));
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = Speed::measured(String::new(), |_| bad).unwrap_err().to_string();
            assert!(error.starts_with("products = ") && error.contains("positive"), "{error}");
        }
    }
}
