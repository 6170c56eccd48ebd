// Tangled from book/src/npz-notes.md: edit there, or here and run cargo tangle stitch.
//! Words about the arrays of NumPy's archive, in the comments of its members.

use crate::data::table::Column;
use crate::data::{AttributeValue, Coordinate, Positions, TypedArray, Values, Variable};
use serde_json::{Value, json};

/// Bytes that the comment of a member has at most.
pub(super) const LONGEST: usize = 65_535;

// Words about a member of an archive
impl Variable<'_> {
    /// The words about the variable, as the comment of its member.
    pub(super) fn member_note(&self) -> Value {
        let mut note = json!({ "name": self.name });
        for (key, text) in [("units", &self.unit), ("long_name", &self.long_name)] {
            if !text.is_empty() {
                note[key] = json!(text);
            }
        }
        let own = self.attributes.iter().map(|one| (one.name.clone(), one.value.as_json()));
        note["attributes"] = Value::Object(own.collect());
        match &self.values {
            Values::Table(table) => {
                note["columns"] = table.columns().iter().map(Column::unit).collect();
            }
            _ => note["dimensions"] = self.dimensions.iter().map(Coordinate::member_note).collect(),
        }
        note
    }
}

// Words about a dimension of an archive
impl Coordinate {
    fn member_note(&self) -> Value {
        let mut note = json!({ "name": self.name, "units": self.unit });
        if self.navigation {
            note["navigation"] = json!(true);
        }
        if let Some(second) = &self.second {
            note["second"] = json!(second);
        }
        match &self.positions {
            Positions::Index => {}
            Positions::Uniform { offset, step } => note["uniform"] = json!([offset, step]),
            Positions::Values(values) => note["values"] = json!(values),
            Positions::Labels(labels) => note["labels"] = json!(labels),
        }
        note
    }

    // Dimension from the words of an archive
    /// The dimension of so many samples that a note describes; none where it does not fit.
    fn of_member_note(note: &Value, count: usize) -> Option<Self> {
        let text = |key: &str| note[key].as_str().unwrap_or_default().to_string();
        let numbers = |key: &str| note[key].as_array()?.iter().map(Value::as_f64).collect();
        let uniform: Option<Vec<f64>> = numbers("uniform");
        let values: Option<Vec<f64>> = numbers("values");
        let labels = note["labels"].as_array().map(|all| {
            all.iter()
                .map(|label| label.as_str().unwrap_or_default().to_string())
                .collect::<Vec<_>>()
        });
        let positions = match (uniform.as_deref(), values, labels) {
            (Some(&[offset, step]), ..) if step != 0.0 => Positions::Uniform { offset, step },
            (_, Some(values), _) if values.len() == count => Positions::Values(values),
            (.., Some(labels)) if labels.len() == count => Positions::Labels(labels),
            (None, None, None) => Positions::Index,
            _ => return None,
        };
        // Second measure of a dimension
        let second = || {
            let factor = note["second"][2].as_f64()?;
            let word = |k: usize| Some(note["second"][k].as_str()?.to_string());
            Some((word(0)?, word(1)?, factor))
        };
        let second = second();
        let named = Self::index(note["name"].as_str()?);
        let navigation = note["navigation"] == true;
        Some(Self { unit: text("units"), positions, navigation, second, ..named })
    }
}

// Data set from members with words
// Kinds of members of an archive
/// What a member of an archive is.
pub(super) enum Member {
    Variable(Variable<'static>),
    Attribute(String, AttributeValue),
    /// It repeats the positions of a dimension.
    Coordinate,
}

impl Member {
    /// What a variable is by the comment of its member, if that is a note.
    pub(super) fn of(variable: Variable<'static>, comment: &str) -> Self {
        let Ok(Value::Object(note)) = serde_json::from_str(comment) else {
            return Self::Variable(variable);
        };
        let note = Value::Object(note);
        if note["coordinate"].is_string() {
            return Self::Coordinate;
        }
        if let Some((name, value)) = note["attribute"].as_str().zip(variable.single_value()) {
            let flag = value == AttributeValue::Integer(1);
            let value = if note["flag"] == true { AttributeValue::Flag(flag) } else { value };
            return Self::Attribute(name.into(), value);
        }
        Self::Variable(variable.with_member_note(&note))
    }
}

// Variable with its words
impl Variable<'static> {
    /// The variable with the words of a note.
    fn with_member_note(mut self, note: &Value) -> Self {
        let text = |key: &str| note[key].as_str().unwrap_or_default().to_string();
        (self.unit, self.long_name) = (text("units"), text("long_name"));
        if let Some(name) = note["name"].as_str() {
            self.name = name.into();
        }
        for (key, value) in note["attributes"].as_object().into_iter().flatten() {
            if let Some(value) = AttributeValue::from_json(value) {
                self.attribute(key, value);
            }
        }
        let shape = self.shape().to_vec();
        let all = note["dimensions"].as_array().filter(|all| all.len() == shape.len());
        let restored = all.into_iter().flatten().zip(&shape);
        let restored = restored.map(|(note, count)| Coordinate::of_member_note(note, *count));
        if self.array().is_some() {
            self.dimensions = restored.collect::<Option<_>>().unwrap_or_default();
        }
        if let (Values::Table(table), Some(units)) = (&mut self.values, note["columns"].as_array())
        {
            for (column, unit) in table.columns.iter_mut().zip(units) {
                column.unit = unit.as_str().unwrap_or_default().into();
            }
        }
        self
    }

    /// The value of a variable of one element, a text or a list of numbers, as an attribute.
    fn single_value(&self) -> Option<AttributeValue> {
        match &self.values {
            Values::Text(text) => Some(AttributeValue::Text(text.clone())),
            Values::Array(TypedArray::F64(x)) if x.ndim() == 0 => x.first().map(|x| (*x).into()),
            Values::Array(TypedArray::F64(x)) if x.ndim() == 1 => {
                Some(AttributeValue::Numbers(x.iter().copied().collect()))
            }
            Values::Array(TypedArray::I64(n)) if n.ndim() == 0 => n.first().map(|n| (*n).into()),
            _ => None,
        }
    }
}

// Tests of words in an archive
#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array1, array};

    #[test]
    fn notes_that_do_not_fit_are_ignored() {
        let plain = || {
            let values = Values::Array(TypedArray::F64(array![1.0, 2.0, 4.0].into_dyn().into()));
            Variable::unnamed("a", values)
        };
        let restored = |comment: &str| match Member::of(plain(), comment) {
            Member::Variable(variable) => variable,
            _ => unreachable!("a variable"),
        };
        for comment in ["", "{", "[1]", "\u{0}", "7"] {
            assert!(restored(comment).dimensions.is_empty());
        }
        let with = |dimension: &str| restored(&format!("{{\"dimensions\": [{dimension}]}}"));
        let good = with("{\"name\": \"x\", \"units\": \"m\", \"uniform\": [0.5, 0.25]}");
        assert_eq!(
            (good.dimensions[0].samples(3), good.dimensions[0].unit()),
            (vec![0.5, 0.75, 1.0], "m")
        );
        for bad in [
            "{\"name\": \"x\", \"values\": [1.0, 2.0]}",
            "{\"name\": \"x\", \"labels\": [\"a\"]}",
            "{\"name\": \"x\", \"uniform\": [1.0, 0.0]}",
            "{\"units\": \"m\"}",
            "{\"name\": \"x\"}, {\"name\": \"y\"}",
        ] {
            assert!(with(bad).dimensions.is_empty(), "{bad}");
        }
        let list = AttributeValue::Numbers(Array1::from(vec![1.0, 2.0, 4.0]).to_vec());
        let attribute = Member::of(plain(), "{\"attribute\": \"defoci\"}");
        assert!(
            matches!(attribute, Member::Attribute(name, value) if name == "defoci" && value == list)
        );
        assert!(matches!(Member::of(plain(), "{\"coordinate\": \"x\"}"), Member::Coordinate));
    }
}
