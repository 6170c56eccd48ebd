// Tangled from book/src/view-python.md: edit there, or here and run cargo tangle stitch.
//! Pages of the viewer for Python.

// Imports of pages for Python
use super::arrays::BorrowedSet;
use super::errors::raised;
use crate::data::DataSet;
use crate::view::{Page, PageOptions};
use pyo3::prelude::*;
use pyo3::types::PyDict;

// What is exchanged of a page
type NamedVariables<'py> = (String, Bound<'py, PyDict>, Bound<'py, PyDict>);
type ReducedArray = (usize, String, String);

// Make a page for Python
/// Page of data sets with their names, whose arrays occupy at most `limit` bytes; and a list of the reduced arrays: number of the data set, name, and description of the reduction.
#[pyfunction]
pub(super) fn page(
    py: Python<'_>,
    files: Vec<NamedVariables<'_>>,
    limit: u64,
    title: Option<String>,
) -> PyResult<(String, Vec<ReducedArray>)> {
    let borrowed =
        files.iter().map(|(_, variables, attributes)| BorrowedSet::of(variables, attributes));
    let borrowed = borrowed.collect::<PyResult<Vec<_>>>()?;
    let data = borrowed.iter().map(BorrowedSet::data_set).collect::<PyResult<Vec<_>>>()?;
    let names = files.iter().map(|(name, ..)| name.as_str());
    let named: Vec<(&str, &DataSet)> = names.zip(&data).collect();
    let options = PageOptions { limit, title };
    let made = py.detach(|| Page::new(&named, &options).map(|page| (page.to_html(), page)));
    let (html, page) = made.map_err(raised)?;
    let reduced = page.arrays().iter().filter(|array| !array.reduced.is_empty());
    Ok((
        html,
        reduced.map(|array| (array.file, array.variable.clone(), array.reduced.clone())).collect(),
    ))
}
