// Tangled from book/src/plans.md: edit there, or here and run cargo tangle stitch.
//! Options and results as text: types that are deserialised through their constructors, and numbers that JSON does not have.

// Imports of serialisation
use ndarray::{Array, ArrayBase, Data, DataOwned, Dimension};
use num_complex::Complex;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

// Deserialise through a constructor
/// Implements `Deserialize` for a type that must not be filled field by field:
///
/// * `Type::new(a: A, b: B)?` for a constructor that checks its arguments: these are the fields, and all of them are required;
/// * `Type::new(a: A) { b: B }` for options with required and optional fields: an optional one that is missing stays as the constructor sets it;
/// * `Type { a: A, b: B }` for a type with a method `check_fields`.
///
/// An unknown field is rejected.
macro_rules! deserialize_by {
    ($type:ident::$new:ident($($field:ident: $of:ty),+)?) => {
        crate::serial::deserialize_by!(@ $type, fields, ($($field: $of),+), {
            Self::$new($(fields.$field),+).map_err(serde::de::Error::custom)
        });
    };
    ($type:ident::$new:ident($($field:ident: $of:ty),+) { $($given:ident: $to:ty),+ }) => {
        crate::serial::deserialize_by!(@ $type, fields, ($($field: $of,)+ $($given: Option<$to>),+), {
            let mut made = Self::$new($(fields.$field),+);
            $(if let Some(given) = fields.$given {
                made.$given = given;
            })+
            Ok(made)
        });
    };
    ($type:ident $(<$life:lifetime>)? { $($field:ident: $of:ty),+ }) => {
        crate::serial::deserialize_by!(@ $type $(<$life>)?, fields, ($($field: $of),+), {
            let made = Self { $($field: fields.$field),+ };
            made.check_fields().map_err(serde::de::Error::custom)?;
            Ok(made)
        });
    };
    (@ $type:ty, $fields:ident, ($($field:ident: $of:ty),+), $made:block) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(serde::Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Fields {
                    $($field: $of),+
                }
                let $fields = Fields::deserialize(deserializer)?;
                $made
            }
        }
    };
}
pub(crate) use deserialize_by;

// Numbers that JSON does not have
/// A number; in a text, NaN and the infinities are `"nan"`, `"inf"` and `"-inf"`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Number(f64);

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() || !serializer.is_human_readable() {
            return serializer.serialize_f64(self.0);
        }
        serializer.serialize_str(match self.0 {
            f64::INFINITY => "inf",
            f64::NEG_INFINITY => "-inf",
            _ => "nan",
        })
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return deserializer.deserialize_any(NumberVisitor);
        }
        f64::deserialize(deserializer).map(Self)
    }
}

// Read a number or its name
struct NumberVisitor;

impl de::Visitor<'_> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, \"nan\", \"inf\" or \"-inf\"")
    }

    fn visit_f64<E: de::Error>(self, x: f64) -> Result<Number, E> {
        Ok(Number(x))
    }

    fn visit_i64<E: de::Error>(self, x: i64) -> Result<Number, E> {
        Ok(Number(x as f64))
    }

    fn visit_u64<E: de::Error>(self, x: u64) -> Result<Number, E> {
        Ok(Number(x as f64))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Number, E> {
        match text {
            "nan" => Ok(Number(f64::NAN)),
            "inf" => Ok(Number(f64::INFINITY)),
            "-inf" => Ok(Number(f64::NEG_INFINITY)),
            _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
        }
    }
}

// Elements of arrays as numbers
/// An element of an array that is written as one or two [`Number`]s.
pub(crate) trait Element: Copy {
    /// What is written.
    type Written: Serialize + for<'de> Deserialize<'de>;

    /// What is written for the element.
    fn written(self) -> Self::Written;

    /// The element for which this was written.
    fn read(written: Self::Written) -> Self;
}

impl Element for f64 {
    type Written = Number;

    fn written(self) -> Number {
        Number(self)
    }

    fn read(written: Number) -> Self {
        written.0
    }
}

impl Element for f32 {
    type Written = Number;

    fn written(self) -> Number {
        Number(self.into())
    }

    fn read(written: Number) -> Self {
        written.0 as Self
    }
}

impl<T: Element> Element for Complex<T> {
    type Written = [T::Written; 2];

    fn written(self) -> Self::Written {
        [self.re, self.im].map(T::written)
    }

    fn read(written: Self::Written) -> Self {
        let [re, im] = written.map(T::read);
        Self { re, im }
    }
}

// Arrays with numbers that are not finite
/// Arrays whose elements may be NaN or infinite, for `#[serde(with = "crate::serial::array")]`.
pub(crate) mod array {
    use super::*;

    /// Writes the elements as [`Number`]s.
    pub(crate) fn serialize<
        T: Element,
        A: Data<Elem = T>,
        I: Dimension + Serialize,
        S: Serializer,
    >(
        array: &ArrayBase<A, I>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        array.mapv(T::written).serialize(serializer)
    }

    /// Reads the elements as [`Number`]s.
    pub(crate) fn deserialize<'de, T, A, I, D>(deserializer: D) -> Result<ArrayBase<A, I>, D::Error>
    where
        T: Element,
        A: DataOwned<Elem = T>,
        I: Dimension + Deserialize<'de>,
        D: Deserializer<'de>,
    {
        let written = Array::<T::Written, I>::deserialize(deserializer)?;
        let shape = written.raw_dim();
        let elements = written.into_iter().map(T::read).collect();
        ArrayBase::from_shape_vec(shape, elements).map_err(de::Error::custom)
    }
}

// Single numbers and lists of them
/// Numbers that may be NaN or infinite, for `#[serde(with = "crate::serial::number")]`.
pub(crate) mod number {
    use super::*;

    /// Writes the number as a [`Number`].
    pub(crate) fn serialize<S: Serializer>(x: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        x.written().serialize(serializer)
    }

    /// Reads the number as a [`Number`].
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Number::deserialize(deserializer).map(f64::read)
    }
}

/// Lists whose numbers may be NaN or infinite, for `#[serde(with = "crate::serial::list")]`.
pub(crate) mod list {
    use super::*;

    /// Writes the numbers as [`Number`]s.
    pub(crate) fn serialize<S: Serializer>(all: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(all.iter().copied().map(Number))
    }

    /// Reads the numbers as [`Number`]s.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<f64>, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().map(f64::read).collect())
    }
}
