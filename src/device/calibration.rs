// Tangled from book/src/speed.md: edit there, or here and run cargo tangle stitch.
//! How fast a machine does each kind of work.

use crate::error::{Invalid, accept};
use std::fmt;

// Kinds of work
/// A kind of work: what of a machine decides how long it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostKind {
    /// Products of large matrices: multiplications with additions, as many as the machine can do at a time.
    Products,
    /// Cholesky's factor of a large matrix, half of which is products, and solutions by it.
    Factors,
    /// Eigenvectors of a large matrix, which is read as often as it has rows.
    Eigenvectors,
    /// Sums over nodes, tables and special functions: one number after the other.
    Integrals,
    /// Numbers that are written and read, and hardly computed.
    Memory,
    /// Fourier transforms, and what stands between them.
    Transforms,
}

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

// Paces of a machine
/// How long a machine takes for each kind of work, as a multiple of the time by the built-in rates.
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
    /// By kind, in the order of [`CostKind::ALL`].
    paces: [f64; CostKind::ALL.len()],
    date: Option<String>,
}

impl Default for Speed {
    /// That of the machines of the built-in rates.
    fn default() -> Self {
        Self { paces: [1.0; CostKind::ALL.len()], date: None }
    }
}

// Make a speed of what was measured
impl Speed {
    /// What was measured at some date: the pace of each kind.
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

    /// When it was measured, if it was.
    pub fn date(&self) -> Option<&str> {
        self.date.as_deref()
    }

    /// The pace of a kind of work.
    pub fn pace(&self, kind: CostKind) -> f64 {
        self.paces[kind as usize]
    }
}

impl fmt::Display for Speed {
    /// Where it comes from.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.date {
            Some(date) => write!(f, "measured {date}"),
            None => f.write_str("built in"),
        }
    }
}

// Seconds of some work
impl Speed {
    /// How long one thread, or one device, takes for work of some kinds, each given in seconds by the built-in rates; seconds.
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
