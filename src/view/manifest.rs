// Tangled from book/src/view-manifest.md: edit there, or here and run cargo tangle stitch.
//! The manifest of a page: the variables of its data sets, and where the elements of arrays are.

// Imports of the manifest
use super::encode::{Codes, Encoding, Law};
use crate::data::table::Cells;
use crate::data::{Attribute, AttributeValue, Coordinate, Positions, Table, Variable};
use serde_json::{Map, Value, json};
use std::ops::Range;

// Array as a page stores it
/// An array as a page stores it, or as a server sends it.
#[derive(Debug, Clone)]
pub(crate) struct StoredArray {
    /// Type of its elements, such as `f64`.
    pub(crate) element: &'static str,
    pub(crate) shape: Vec<usize>,
    pub(crate) original_shape: Vec<usize>,
    pub(crate) binning: Vec<usize>,
    /// Dimensions with the positions of the stored samples; empty if the file names none.
    pub(crate) dimensions: Vec<Coordinate>,
    pub(crate) encoding: Encoding,
    pub(crate) parts: Vec<StoredPart>,
    /// Path on the server, if the array is not embedded.
    pub(crate) served: Option<String>,
    /// Numbers of the file, for a short real array of one dimension.
    pub(crate) samples: Option<Vec<f64>>,
    /// Largest error of a stored number, absolute and relative to the largest magnitude.
    pub(crate) error: [f64; 2],
    /// How it differs from the array of the file, in words; empty if it does not.
    pub(crate) reduced: String,
    /// Variable from which it was computed.
    pub(crate) derived_from: Option<String>,
}

// Part of a stored array
/// Range of elements, and number of the part of the page that contains them.
#[derive(Debug, Clone)]
pub(crate) struct StoredPart {
    pub(crate) number: usize,
    pub(crate) elements: Range<usize>,
    /// Scale of its codes, if it has codes.
    pub(crate) codes: Option<Codes>,
}

// Describe a data set in json
/// Data set with these variables, in JSON.
pub(crate) fn file_json(name: &str, attributes: &[Attribute], variables: Vec<Value>) -> Value {
    json!({ "name": name, "attributes": attributes_json(attributes), "variables": variables })
}

/// Variable with these values, in JSON.
pub(crate) fn variable_json(variable: &Variable, values: &Value) -> Value {
    json!({
        "name": variable.name,
        "unit": variable.unit,
        "longName": variable.long_name,
        "attributes": attributes_json(&variable.attributes),
        "values": values,
    })
}

/// Values of a text variable, in JSON.
pub(crate) fn text_json(text: &str) -> Value {
    json!({ "kind": "text", "text": text })
}

// Describe an array in json
impl StoredArray {
    /// Values of an array variable, in JSON.
    pub(crate) fn json(&self) -> Value {
        let [absolute, relative] = self.error;
        let mut object = json!({
            "kind": "array",
            "type": self.element,
            "shape": self.shape,
            "originalShape": self.original_shape,
            "binning": self.binning,
            "dimensions": self.dimensions.iter().map(dimension_json).collect::<Vec<_>>(),
            "encoding": self.encoding.name(),
            "parts": self.parts.iter().map(StoredPart::json).collect::<Vec<_>>(),
            "error": { "absolute": absolute, "relative": relative },
            "reduced": self.reduced,
        });
        let optional = [
            ("served", self.served.as_ref().map(|path| json!(path))),
            ("samples", self.samples.as_ref().map(|all| json!(all))),
            ("derivedFrom", self.derived_from.as_ref().map(|name| json!(name))),
        ];
        for (key, value) in optional {
            if let Some(value) = value {
                object[key] = value;
            }
        }
        object
    }
}

impl StoredPart {
    fn json(&self) -> Value {
        let (id, first, count) = (part_id(self.number), self.elements.start, self.elements.len());
        match self.codes {
            None => json!({ "id": id, "first": first, "count": count }),
            Some(Codes { law, offset, step }) => {
                let law = if law == Law::Log { "log" } else { "linear" };
                json!({ "id": id, "first": first, "count": count, "law": law, "offset": offset, "step": step })
            }
        }
    }
}

/// Id of the HTML element that contains a part.
pub(crate) fn part_id(number: usize) -> String {
    format!("p{number}")
}

// Describe a dimension in json
fn dimension_json(dimension: &Coordinate) -> Value {
    let positions = match &dimension.positions {
        Positions::Uniform { offset, step } if offset.is_finite() && step.is_finite() => {
            json!({ "kind": "uniform", "offset": offset, "step": step })
        }
        Positions::Values(values) if values.iter().all(|x| x.is_finite()) => {
            json!({ "kind": "values", "values": values })
        }
        Positions::Labels(labels) => json!({ "kind": "labels", "labels": labels }),
        _ => json!({ "kind": "index" }),
    };
    let (name, unit) = (&dimension.name, &dimension.unit);
    let mut object = json!({ "name": name, "unit": unit, "positions": positions, "navigation": dimension.navigation });
    if let Some((name, unit, factor)) =
        dimension.second.as_ref().filter(|second| second.2.is_finite())
    {
        object["second"] = json!({ "name": name, "unit": unit, "factor": factor });
    }
    object
}

// Describe tables and attributes in json
/// Values of a table variable, in JSON.
pub(crate) fn table_json(table: &Table) -> Value {
    let columns = table.columns.iter().map(|column| {
        let values: Vec<_> = match &column.cells {
            Cells::Integers(all) => all.iter().map(|n| json!(n)).collect(),
            Cells::Texts(all) => all.iter().map(|text| json!(text)).collect(),
            Cells::Numbers(all) => {
                all.iter().map(|x| if x.is_nan() { Value::Null } else { number_json(*x) }).collect()
            }
        };
        json!({ "name": column.name, "unit": column.unit, "values": values })
    });
    json!({ "kind": "table", "columns": columns.collect::<Vec<_>>() })
}

fn attributes_json(attributes: &[Attribute]) -> Value {
    let value = |attribute: &Attribute| match &attribute.value {
        AttributeValue::Text(text) => json!(text),
        AttributeValue::Number(x) => number_json(*x),
        AttributeValue::Integer(n) if n.unsigned_abs() > LARGEST_INTEGER => json!(n.to_string()),
        AttributeValue::Integer(n) => json!(n),
        AttributeValue::Flag(flag) => json!(flag),
        AttributeValue::Numbers(all) if all.iter().all(|x| x.is_finite()) => json!(all),
        AttributeValue::Numbers(all) => json!(format!("{all:?}")),
    };
    attributes.iter().map(|one| (one.name.clone(), value(one))).collect::<Map<_, _>>().into()
}

/// Largest integer up to which JavaScript's numbers represent every integer exactly.
const LARGEST_INTEGER: u64 = 1 << 53;

/// A number, or a text such as "NaN" if JSON cannot represent it.
fn number_json(x: f64) -> Value {
    if x.is_finite() { json!(x) } else { json!(x.to_string()) }
}

// Write json that html cannot misread
/// JSON for an HTML script element, without any character that could end the element.
pub(crate) fn script_json(value: &Value) -> String {
    let plain = value.to_string();
    let mut text = String::with_capacity(plain.len() + plain.len() / 64);
    for c in plain.chars() {
        match c {
            '<' => text.push_str("\\u003c"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            _ => text.push(c),
        }
    }
    text
}

// Tests of the manifest
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_no_character_that_ends_an_element() {
        let text = script_json(&json!({ "<a>": "</script>\u{2028}\u{2029}é" }));
        assert_eq!(text, "{\"\\u003ca>\":\"\\u003c/script>\\u2028\\u2029é\"}");
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["<a>"], "</script>\u{2028}\u{2029}é");
    }

    #[test]
    fn numbers_that_json_lacks_become_texts() {
        let of = |value: AttributeValue| {
            let attribute = Attribute { name: "k".into(), value, comment: String::new() };
            attributes_json(&[attribute])["k"].clone()
        };
        assert_eq!(of(AttributeValue::Number(f64::NAN)), "NaN");
        assert_eq!(of(AttributeValue::Number(0.1)), 0.1);
        assert_eq!(of(AttributeValue::Integer(1 << 53)), 1_i64 << 53);
        assert_eq!(of(AttributeValue::Integer(i64::MIN)), "-9223372036854775808");
        assert_eq!(of(AttributeValue::Flag(true)), true);
        assert_eq!(of(AttributeValue::Numbers(vec![1.0, 2.5])), json!([1.0, 2.5]));
        assert_eq!(of(AttributeValue::Numbers(vec![f64::INFINITY])), "[inf]");
        let kind = |positions: Positions| {
            dimension_json(&Coordinate { positions, ..Coordinate::index("x") })["positions"]["kind"]
                .clone()
        };
        assert_eq!(kind(Positions::Uniform { offset: f64::NAN, step: 1.0 }), "index");
        assert_eq!(kind(Positions::Values(vec![0.0, f64::INFINITY])), "index");
        assert_eq!(kind(Positions::Values(vec![0.0, 1.0])), "values");
    }
}
