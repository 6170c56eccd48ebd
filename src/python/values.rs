// Tangled from book/src/python-values.md: edit there, or here and run cargo tangle stitch.
//! Values of Python as values of TOML and JSON.

// Imports of converted values
use super::errors::refused;
use crate::error::Invalid;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};

// Convert a value to TOML
/// The deepest nesting of lists and dictionaries.
const DEPTH: usize = 64;

/// A value of Python as one of TOML: truth values, numbers, texts, paths, lists, tuples, arrays and dictionaries; entries that are `None` are left out.
pub(super) fn toml_value(key: &str, value: &Bound<'_, PyAny>) -> PyResult<toml::Value> {
    nested(key, value, DEPTH)
}

fn nested(key: &str, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<toml::Value> {
    let refuse = |expected: &str| Err(refused(Invalid::new(key, shown(value), expected)));
    if depth == 0 {
        return refuse("at most 64 tables and lists inside of one another");
    }
    // Scalars of Python as TOML
    if value.is_instance_of::<PyBool>() {
        return Ok(toml::Value::Boolean(value.extract()?));
    }
    if value.is_instance_of::<PyInt>() {
        return match value.extract() {
            Ok(integer) => Ok(toml::Value::Integer(integer)),
            Err(_) => refuse("an integer of 64 bits"),
        };
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(toml::Value::Float(value.extract()?));
    }
    if value.is_instance_of::<PyString>() {
        return Ok(toml::Value::String(value.extract()?));
    }
    // Dictionaries of Python as TOML
    if let Ok(table) = value.cast::<PyDict>() {
        let mut values = toml::Table::new();
        for (name, entry) in table.iter() {
            let Ok(name) = name.extract::<String>() else {
                return refuse("a dictionary whose keys are texts");
            };
            if !entry.is_none() {
                let inner = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                values.insert(name, nested(&inner, &entry, depth - 1)?);
            }
        }
        return Ok(toml::Value::Table(values));
    }
    // Arrays paths and iterables as TOML
    // Arrays and numbers of NumPy know how to become lists and numbers, paths how to become texts.
    if value.hasattr("tolist")? {
        return nested(key, &value.call_method0("tolist")?, depth - 1);
    }
    if value.hasattr("__fspath__")? {
        return nested(key, &value.call_method0("__fspath__")?, depth - 1);
    }
    if value.hasattr("__iter__")? {
        let entries = value
            .try_iter()?
            .enumerate()
            .map(|(index, entry)| nested(&format!("{key}[{index}]"), &entry?, depth - 1));
        return Ok(toml::Value::Array(entries.collect::<PyResult<_>>()?));
    }
    refuse("a truth value, a number, a text, a list or a dictionary")
}

// Shorten a value in a message
/// A value as messages show it, cut where it is long.
fn shown(value: &Bound<'_, PyAny>) -> String {
    let text = value.repr().map(|text| text.to_string()).unwrap_or_default();
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

// Values of TOML for Python
/// A value of TOML as one of Python.
pub(super) fn from_toml<'py>(py: Python<'py>, value: &toml::Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        toml::Value::String(text) => PyString::new(py, text).into_any(),
        toml::Value::Integer(integer) => integer.into_pyobject(py)?.into_any(),
        toml::Value::Float(number) => number.into_pyobject(py)?.into_any(),
        toml::Value::Boolean(flag) => PyBool::new(py, *flag).to_owned().into_any(),
        toml::Value::Datetime(date) => PyString::new(py, &date.to_string()).into_any(),
        toml::Value::Array(entries) => {
            let list = PyList::empty(py);
            entries.iter().try_for_each(|entry| list.append(from_toml(py, entry)?))?;
            list.into_any()
        }
        toml::Value::Table(table) => {
            let values = PyDict::new(py);
            let mut entries = table.iter();
            entries.try_for_each(|(key, entry)| values.set_item(key, from_toml(py, entry)?))?;
            values.into_any()
        }
    })
}

// Values of JSON for Python
/// A value of JSON as one of Python.
pub(super) fn from_json<'py>(
    py: Python<'py>,
    value: &serde_json::Value,
) -> PyResult<Bound<'py, PyAny>> {
    use serde_json::Value;
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(flag) => PyBool::new(py, *flag).to_owned().into_any(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => integer.into_pyobject(py)?.into_any(),
            (None, Some(count)) => count.into_pyobject(py)?.into_any(),
            (None, None) => number.as_f64().into_pyobject(py)?.into_any(),
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(entries) => {
            let list = PyList::empty(py);
            entries.iter().try_for_each(|entry| list.append(from_json(py, entry)?))?;
            list.into_any()
        }
        Value::Object(entries) => {
            let values = PyDict::new(py);
            let mut entries = entries.iter();
            entries.try_for_each(|(key, entry)| values.set_item(key, from_json(py, entry)?))?;
            values.into_any()
        }
    })
}

// Options of Python by name
/// Options of Python as those of the library, whose unknown and impossible values are refused by key.
pub(super) fn options<T: serde::de::DeserializeOwned>(given: &Bound<'_, PyDict>) -> PyResult<T> {
    let toml::Value::Table(values) = toml_value("", given.as_any())? else {
        return Err(refused(Invalid::new("options", shown(given.as_any()), "a dictionary")));
    };
    // The first option that is refused by itself is the one to name.
    for (key, value) in &values {
        let alone = toml::Table::from_iter([(key.clone(), value.clone())]);
        if let Err(error) = T::deserialize(toml::Value::Table(alone)) {
            let message = error.message().trim();
            let expected = message.rsplit_once("expected ").map_or(message, |(_, after)| after);
            return Err(refused(Invalid::new(key, value, expected)));
        }
    }
    let refuse = |error: toml::de::Error| {
        refused(Invalid::new("options", shown(given.as_any()), error.message()))
    };
    T::deserialize(toml::Value::Table(values)).map_err(refuse)
}
