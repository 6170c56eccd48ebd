// Tangled from book/src/python-bindings.md: edit there, or here and run cargo tangle stitch.
//! The compiled module of the Python package.

// Modules of the compiled module
mod arrays;
mod device_arrays;
mod errors;
mod interruptible;
mod pages;
mod plans;
mod sample;
mod system;
mod values;

// Imports of the compiled module
use crate::command::keys::key_json;
use crate::electrons::sample_keys::SAMPLE_KEYS;
use crate::files::keys::key_rows;
use crate::model::SYSTEM_KEYS;
use pyo3::prelude::*;
use std::path::PathBuf;

// Run the command from Python
/// Runs the command `lenslet` with these arguments, the first of which is its name; returns its exit code.
#[pyfunction]
fn run_command(py: Python<'_>, arguments: Vec<String>) -> u8 {
    py.detach(|| crate::command::run_with(arguments.into_iter().map(Into::into).collect()))
}

// Threads and libraries of the process
/// Number of computing threads of this process.
#[pyfunction]
fn threads(py: Python<'_>) -> usize {
    py.detach(crate::device::threads)
}

/// Adds a folder `site-packages` to the search for NVIDIA's libraries.
#[pyfunction]
fn add_library_folder(folder: PathBuf) {
    crate::device::add_library_folder(folder);
}

// Keys of files for Python
/// All keys of system or sample files, with their units and meanings.
#[pyfunction]
fn keys<'py>(py: Python<'py>, file: &str) -> PyResult<Bound<'py, PyAny>> {
    let rows = match file {
        "sample" => key_rows(SAMPLE_KEYS),
        _ => key_rows(SYSTEM_KEYS),
    };
    values::from_json(py, &rows.iter().map(|row| key_json(file, row)).collect())
}

// Contents of the compiled module
#[pymodule]
fn _lenslet(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<system::ParsedSystem>()?;
    module.add_class::<system::PreparedEstimator>()?;
    module.add_class::<system::CovarianceOperator>()?;
    module.add_class::<sample::ParsedSample>()?;
    module.add_class::<device_arrays::DeviceArray>()?;
    module.add_class::<plans::PlannedComputation>()?;
    module.add_function(wrap_pyfunction!(arrays::save, module)?)?;
    module.add_function(wrap_pyfunction!(arrays::load, module)?)?;
    module.add_function(wrap_pyfunction!(pages::page, module)?)?;
    module.add_function(wrap_pyfunction!(system::import_tiptop, module)?)?;
    module.add_function(wrap_pyfunction!(system::import_aot, module)?)?;
    module.add_function(wrap_pyfunction!(run_command, module)?)?;
    module.add_function(wrap_pyfunction!(threads, module)?)?;
    module.add_function(wrap_pyfunction!(add_library_folder, module)?)?;
    module.add_function(wrap_pyfunction!(keys, module)?)
}
