// Tangled from book/src/arrays.md: edit there, or here and run cargo tangle stitch.
//! Coordinates: name, unit and positions of the samples along a dimension.

// What coordinates depend on
#[cfg(feature = "serde")]
use crate::error::positive;
use crate::error::{Invalid, accept, finite, is_ordered};
#[cfg(feature = "serde")]
use std::collections::BTreeSet;

// Positions of samples along a dimension
/// One dimension of a variable: its name, its unit and the positions of its samples.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Coordinate {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) positions: Positions,
    /// Whether the beam was moved or a setting was varied along it.
    pub(crate) navigation: bool,
    /// Name, unit and factor of another measure of the same positions.
    pub(crate) second: Option<(String, String, f64)>,
}

// Fields of a coordinate to deserialise
#[cfg(feature = "serde")]
crate::serial::deserialize_by!(Coordinate {
    name: String,
    unit: String,
    positions: Positions,
    navigation: bool,
    second: Option<(String, String, f64)>
});

// Kinds of positions of samples
/// Where the samples along a dimension lie.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Positions {
    /// Counted from 0.
    Index,
    /// Equally spaced.
    Uniform {
        /// The position of the first sample.
        offset: f64,
        /// From one sample to the next.
        step: f64,
    },
    /// Any values that rise, or that fall.
    Values(Vec<f64>),
    /// Labels, where samples have no position on a line.
    Labels(Vec<String>),
}

// Check a coordinate from a text
#[cfg(feature = "serde")]
impl Coordinate {
    /// Rejects a step, values or labels that the constructors reject. Names are texts here: those of a result in words may have spaces.
    fn check_fields(&self) -> Result<(), Invalid> {
        let quantity = |word: &str| format!("{word} of dimension {}", self.name);
        let all = [("dimension", &self.name), ("unit", &self.unit)].into_iter();
        let second =
            self.second.iter().flat_map(|(name, unit, _)| [("dimension", name), ("unit", unit)]);
        all.chain(second).try_for_each(|(what, text)| printable(what, text))?;
        if let Some((_, _, factor)) = self.second {
            positive(&quantity("factor"), factor)?;
        }
        match &self.positions {
            Positions::Index => Ok(()),
            Positions::Uniform { offset, step } => {
                finite(&quantity("offset"), *offset)?;
                let good = *step != 0.0 && step.is_finite();
                accept(good, &quantity("step"), step, "a finite step other than 0").map(drop)
            }
            Positions::Values(values) => check_values(&quantity("values"), values),
            Positions::Labels(labels) => check_labels(labels),
        }
    }
}

impl Coordinate {
    // Kinds of coordinates
    // Dimension with given samples
    /// A dimension of signal with samples at these positions, in any order.
    pub(crate) fn listed(name: &str, unit: &str, samples: Vec<f64>) -> Self {
        let positions = Positions::of_samples(samples);
        Self { unit: unit.into(), positions, ..Self::index(name) }
    }

    /// A dimension of which nothing but the name is known.
    pub fn index(name: &str) -> Self {
        let [name, unit] = [name, ""].map(String::from);
        Self { name, unit, positions: Positions::Index, navigation: false, second: None }
    }

    /// A dimension along which the beam or the sample was moved, with the position of its first sample and the step to the next.
    ///
    /// # Errors
    /// `Invalid` for a name that does not consist of a letter, then letters, digits and underscores, an offset that is not finite, or a step
    /// that is not greater than 0.
    pub fn navigation(name: &str, unit: &str, offset: f64, step: f64) -> Result<Self, Invalid> {
        Ok(Self { navigation: true, ..Self::signal(name, unit, offset, step)? })
    }

    /// A dimension along which something was recorded each time.
    ///
    /// # Errors
    /// As [`navigation`](Self::navigation).
    pub fn signal(name: &str, unit: &str, offset: f64, step: f64) -> Result<Self, Invalid> {
        let quantity = |word: &str| format!("{word} of dimension {name}");
        finite(&quantity("offset"), offset)?;
        let expected = "a finite step greater than 0";
        accept(step > 0.0 && step.is_finite(), &quantity("step"), step, expected)?;
        Self::new(name, unit, Positions::Uniform { offset, step })
    }

    // Dimension of a series
    /// A dimension of navigation along which a setting took these values, such as the foci of a series; in a variable it comes before the
    /// dimensions of a scan.
    ///
    /// # Errors
    /// As [`navigation`](Self::navigation), and for values that are not finite, or that neither rise nor fall from each to the next.
    pub fn series(name: &str, unit: &str, values: &[f64]) -> Result<Self, Invalid> {
        check_values(&format!("values of dimension {name}"), values)?;
        let series = Self::new(name, unit, Positions::Values(values.to_vec()))?;
        Ok(Self { navigation: true, ..series })
    }

    /// A dimension of signal whose samples are parts of one thing, such as components of a vector.
    ///
    /// # Errors
    /// As [`navigation`](Self::navigation), and for a label that is empty or has control characters.
    pub fn labelled(name: &str, labels: &[&str]) -> Result<Self, Invalid> {
        check_labels(labels)?;
        Self::new(name, "", Positions::Labels(labels.iter().map(ToString::to_string).collect()))
    }
    /// Adds a second measure of the positions with its `name` and `unit`, `factor` times the first.
    ///
    /// # Errors
    /// `Invalid` for a name as in [`navigation`](Self::navigation), or a factor that is not greater than 0.
    pub fn also(self, name: &str, unit: &str, factor: f64) -> Result<Self, Invalid> {
        let other = Self::signal(name, unit, 0.0, factor)?;
        Ok(Self { second: Some((other.name, other.unit, factor)), ..self })
    }

    // Check a coordinate
    fn new(name: &str, unit: &str, positions: Positions) -> Result<Self, Invalid> {
        identifier("dimension", name)?;
        printable("unit", unit)?;
        let [name, unit] = [name, unit].map(String::from);
        Ok(Self { name, unit, positions, navigation: false, second: None })
    }

    // Read a coordinate
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The unit of the positions.
    pub fn unit(&self) -> &str {
        &self.unit
    }

    /// Where its samples lie.
    pub fn positions(&self) -> &Positions {
        &self.positions
    }

    /// The position of its first sample.
    pub fn offset(&self) -> f64 {
        match &self.positions {
            Positions::Uniform { offset, .. } => *offset,
            Positions::Values(values) => values[0],
            Positions::Index | Positions::Labels(_) => 0.0,
        }
    }

    /// From one sample to the next; of a list of values, the mean step.
    pub fn step(&self) -> f64 {
        match &self.positions {
            Positions::Uniform { step, .. } => *step,
            Positions::Values(all) if all.len() > 1 => {
                (all[all.len() - 1] - all[0]) / (all.len() - 1) as f64
            }
            _ => 1.0,
        }
    }

    // Samples along a dimension
    /// The values of a series; empty for any other dimension.
    pub fn values(&self) -> &[f64] {
        if let Positions::Values(values) = &self.positions { values } else { &[] }
    }

    /// The labels of the samples; empty for any other dimension.
    pub fn labels(&self) -> &[String] {
        if let Positions::Labels(labels) = &self.positions { labels } else { &[] }
    }

    /// Whether a list of values belongs to it.
    pub(crate) fn is_series(&self) -> bool {
        matches!(self.positions, Positions::Values(_))
    }

    /// The position of each of `count` samples; at least as many as a series has.
    pub(crate) fn samples(&self, count: usize) -> Vec<f64> {
        let (offset, step, values) = (self.offset(), self.step(), self.values());
        let uniform = |k: usize| offset + step * k as f64;
        (0..count).map(|k| values.get(k).copied().unwrap_or(uniform(k))).collect()
    }

    /// Whether offset and step give the positions of its samples.
    pub(crate) fn is_uniform(&self) -> bool {
        let (offset, step, values) = (self.offset(), self.step(), self.values());
        let far = values.iter().fold(step.abs(), |most, x| most.max(x.abs()));
        let off = |(k, x): (usize, &f64)| x - (offset + step * k as f64);
        values.iter().enumerate().map(off).all(|off| off.abs() <= 1e-9 * far)
    }
}

// Positions from samples
impl Positions {
    /// The positions of these samples, uniform where they are equally spaced.
    pub(crate) fn of_samples(samples: Vec<f64>) -> Self {
        let Some(&offset) = samples.first() else { return Self::Index };
        let first = samples.get(1).map_or(1.0, |second| second - offset);
        let listed = Coordinate { positions: Self::Values(samples), ..Coordinate::index("") };
        if !listed.is_uniform() {
            return listed.positions;
        }
        let gives = |step: &f64| {
            let mut samples = listed.values().iter().enumerate();
            samples.all(|(k, x)| *x == offset + step * k as f64)
        };
        let step = [first, listed.step()].into_iter().find(gives).unwrap_or(listed.step());
        Self::Uniform { offset, step }
    }
}

// Values and labels of samples
/// Rejects values that are not finite, or that neither rise nor fall.
fn check_values(quantity: &str, values: &[f64]) -> Result<(), Invalid> {
    let finite = values.iter().all(|x| x.is_finite()) && !values.is_empty();
    let expected = "finite numbers that rise, or that fall, without repetition";
    accept(finite && is_ordered(values), quantity, values, expected).map(drop)
}

/// Rejects labels that are empty or have control characters.
fn check_labels(labels: &[impl AsRef<str>]) -> Result<(), Invalid> {
    labels.iter().map(AsRef::as_ref).try_for_each(|label| {
        printable("label", label)?;
        accept(!label.is_empty(), "label", label, "a text that is not empty").map(drop)
    })
}

// Names that fit any file
/// Rejects a name that not all of the formats can hold.
pub(crate) fn identifier(quantity: &str, name: &str) -> Result<(), Invalid> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let good = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(plain);
    let expected = "a letter, then letters, digits and underscores, 60 at most";
    accept(good && name.len() <= 60, quantity, name, expected).map(drop)
}

/// Rejects a name that is among those before it.
#[cfg(feature = "serde")]
pub(super) fn check_distinct<'n>(
    quantity: &str,
    mut names: impl Iterator<Item = &'n str>,
) -> Result<(), Invalid> {
    let mut before = BTreeSet::new();
    names.try_for_each(|name| {
        accept(before.insert(name), quantity, name, "another name for each").map(drop)
    })
}

/// Rejects a text with control characters.
pub(crate) fn printable(quantity: &str, text: &str) -> Result<(), Invalid> {
    let good = !text.chars().any(char::is_control);
    accept(good, quantity, text, "a text without control characters").map(drop)
}
