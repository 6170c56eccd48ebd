// Tangled from book/src/python-errors.md: edit there, or here and run cargo tangle stitch.
//! Errors of the library as exceptions of Python.

// Imports of exceptions
use crate::error::{BadLine, Error, Invalid};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

// Make an exception of a class
/// A class of the module `lenslet.errors`.
fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let module = MODULE
        .get_or_try_init(py, || PyResult::Ok(py.import("lenslet.errors")?.into_any().unbind()))?;
    module.bind(py).getattr(name)
}

/// An exception of a class with a message and what else it knows.
fn exception<const N: usize>(
    py: Python<'_>,
    name: &str,
    message: String,
    facts: [(&str, Bound<'_, PyAny>); N],
) -> PyErr {
    let make = || -> PyResult<PyErr> {
        let keywords = PyDict::new(py);
        facts.into_iter().try_for_each(|(key, fact)| keywords.set_item(key, fact))?;
        let made = class(py, name)?.call((message,), Some(&keywords))?;
        Ok(PyErr::from_value(made))
    };
    make().unwrap_or_else(|failure| failure)
}

// Exceptions of all library errors
/// The exception of an error of the library.
pub(super) fn raised(error: Error) -> PyErr {
    Python::attach(|py| raised_in(py, error).unwrap_or_else(|failure| failure))
}

fn raised_in(py: Python<'_>, error: Error) -> PyResult<PyErr> {
    let message = error.to_string();
    let text = |text: &str| Ok::<_, PyErr>(text.into_pyobject(py)?.into_any());
    Ok(match error {
        Error::Invalid(invalid) => input_error(py, message, &invalid)?,
        Error::SystemFile(line) => line_error(py, message, &line)?,
        Error::NotToeplitz { .. } => exception(py, "InputError", message, []),
        Error::Cancelled => exception(py, "CancelledError", message, []),
        // Exceptions of memory and devices
        Error::Memory { needed, available, .. } => {
            let facts = [("needed", needed), ("available", available)];
            let [needed, available] = facts.map(|(key, bytes)| (key, bytes.into_pyobject(py)));
            let facts = [(needed.0, needed.1?.into_any()), (available.0, available.1?.into_any())];
            exception(py, "OutOfMemoryError", message, facts)
        }
        Error::Device { device, .. } => {
            exception(py, "DeviceError", message, [("device", text(&device)?)])
        }
        Error::Cuda { device, .. } => {
            exception(py, "DeviceError", message, [("device", text(&device)?)])
        }
        Error::Foreign { device, .. } => {
            exception(py, "DeviceError", message, [("device", text(&device)?)])
        }
        // Exceptions of files and solvers
        Error::Read { path, source } | Error::Write { path, source } => {
            let errno = source.raw_os_error().into_pyobject(py)?.into_any();
            let facts = [("file", text(&path.display().to_string())?), ("errno", errno)];
            exception(py, "FileError", message, facts)
        }
        Error::NotConverged { iterations, residual, .. } => {
            let facts = [
                ("iterations", iterations.into_pyobject(py)?.into_any()),
                ("residual", residual.into_pyobject(py)?.into_any()),
            ];
            exception(py, "ConvergenceError", message, facts)
        }
        Error::NotFinite { .. } | Error::Failed { .. } => {
            exception(py, "ComputationError", message, [])
        }
    })
}

// Input errors with and without lines
/// An error of input without a file.
fn input_error(py: Python<'_>, message: String, invalid: &Invalid) -> PyResult<PyErr> {
    let [key, value, expected] = [&invalid.quantity, &invalid.value, &invalid.expected]
        .map(|text| text.as_str().into_pyobject(py));
    let facts = [
        ("key", key?.into_any()),
        ("value", value?.into_any()),
        ("expected", expected?.into_any()),
    ];
    Ok(exception(py, "InputError", message, facts))
}

/// An error of a line of a file.
fn line_error(py: Python<'_>, message: String, line: &BadLine) -> PyResult<PyErr> {
    let text = |text: &str| text.into_pyobject(py).map(Bound::into_any);
    let some = |text: &str| Some(text).filter(|text| !text.is_empty()).map(String::from);
    let facts = [
        ("file", some(&line.file).into_pyobject(py)?.into_any()),
        ("line", Some(line.line).filter(|line| *line > 0).into_pyobject(py)?.into_any()),
        ("key", some(&line.key).into_pyobject(py)?.into_any()),
        ("value", line.value.clone().into_pyobject(py)?.into_any()),
        ("expected", text(&line.expected)?),
    ];
    Ok(exception(py, "InputError", message, facts))
}

// Exception of a refused quantity
/// The exception of a refused quantity.
pub(super) fn refused(invalid: Invalid) -> PyErr {
    raised(invalid.into())
}
