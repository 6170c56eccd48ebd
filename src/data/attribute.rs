// Tangled from book/src/data-variables.md: edit there, or here and run cargo tangle stitch.
//! Attributes: facts with a key, of a variable or of a whole data set.

#[cfg(feature = "serde")]
use crate::data::coordinate::{check_distinct, identifier, printable};
use crate::error::{Invalid, accept, finite};

// Attributes and their values
/// A fact with a key.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Attribute {
    pub(crate) name: String,
    pub(crate) value: AttributeValue,
    pub(crate) comment: String,
}

#[cfg(feature = "serde")]
crate::serial::deserialize_by!(Attribute { name: String, value: AttributeValue, comment: String });

// Check an attribute from a text
#[cfg(feature = "serde")]
impl Attribute {
    /// Rejects a key or a value that not all of the formats can hold.
    pub(super) fn check_fields(&self) -> Result<(), Invalid> {
        identifier("key of an attribute", &format!("k{}", self.name))?;
        printable("comment", &self.comment)?;
        self.value.check(&self.name)
    }
}

/// Rejects attributes of one key.
#[cfg(feature = "serde")]
pub(super) fn check_keys(all: &[Attribute]) -> Result<(), Invalid> {
    check_distinct("key of an attribute", all.iter().map(Attribute::name))
}

// Types of values of attributes
/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum AttributeValue {
    /// A text.
    Text(String),
    /// A number.
    Number(f64),
    /// An integer.
    Integer(i64),
    /// A truth value.
    Flag(bool),
    /// A few numbers, such as the sides of a cell.
    Numbers(Vec<f64>),
}

// Key and value of an attribute
impl Attribute {
    /// Its key.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its value.
    pub fn value(&self) -> &AttributeValue {
        &self.value
    }
}

impl AttributeValue {
    // Check the value of an attribute
    /// Rejects a value that not all of the formats can hold.
    pub(crate) fn check(&self, key: &str) -> Result<(), Invalid> {
        match self {
            Self::Text(text) => {
                let good = !text.contains('\0');
                accept(good, key, text, "a text without the character of number 0").map(drop)
            }
            Self::Number(x) => finite(key, *x).map(drop),
            Self::Integer(_) | Self::Flag(_) => Ok(()),
            Self::Numbers(all) => {
                let good = (1..=1000).contains(&all.len());
                accept(good, key, all.len(), "1 to 1000 numbers")?;
                all.iter().try_for_each(|x| finite(key, *x).map(drop))
            }
        }
    }
}

// Make values of attributes
impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<f64> for AttributeValue {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<i64> for AttributeValue {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<bool> for AttributeValue {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<&[f64]> for AttributeValue {
    fn from(numbers: &[f64]) -> Self {
        Self::Numbers(numbers.to_vec())
    }
}
