// Tangled from book/src/python-arrays.md: edit there, or here and run cargo tangle stitch.
//! Conversion between data sets of the library and NumPy arrays.

// Imports of exchanged arrays
use super::errors::{raised, refused};
use crate::data::attribute::AttributeValue;
use crate::data::coordinate::{Coordinate, Positions};
use crate::data::table::{Cells, Column, Table};
use crate::data::{DataSet, Element, TypedArray, Values, Variable};
use crate::error::Invalid;
use crate::files::Format;
use ndarray::{ArrayViewD, CowArray};
use num_complex::{Complex32, Complex64};
use numpy::{
    IntoPyArray, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArray,
    PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};
use std::path::PathBuf;

// Data set as dictionaries of arrays
/// Data set as a dictionary of variables, each a dictionary with `values`, `dimensions`, `unit`, `long_name` and `attributes`, and a
/// dictionary of attributes. Arrays that the data set owns are passed to NumPy without a copy.
pub(super) fn to_python<'py>(
    py: Python<'py>,
    data: DataSet<'static>,
) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
    let variables = PyDict::new(py);
    for variable in data.variables {
        // Dictionary of one variable
        let about = PyDict::new(py);
        let Variable { name, values, dimensions, unit, long_name, attributes, rounded } = variable;
        about.set_item("values", values_to_python(py, values)?)?;
        let coordinates = PyList::empty(py);
        dimensions.iter().try_for_each(|one| coordinates.append(coordinate_to_python(py, one)?))?;
        about.set_item("dimensions", coordinates)?;
        about.set_item("unit", unit)?;
        about.set_item("long_name", long_name)?;
        about.set_item("rounded", rounded)?;
        let facts = PyDict::new(py);
        for one in &attributes {
            facts.set_item(&one.name, attribute_to_python(py, &one.value)?)?;
        }
        about.set_item("attributes", facts)?;
        variables.set_item(name, about)?;
    }
    let facts = PyDict::new(py);
    for one in &data.attributes {
        facts.set_item(&one.name, attribute_to_python(py, &one.value)?)?;
    }
    Ok((variables, facts))
}

// Values as arrays of NumPy
fn values_to_python<'py>(py: Python<'py>, values: Values<'static>) -> PyResult<Bound<'py, PyAny>> {
    fn array<'py, T: numpy::Element + Clone>(
        py: Python<'py>,
        array: CowArray<'static, T, ndarray::IxDyn>,
    ) -> Bound<'py, PyAny> {
        array.into_owned().into_pyarray(py).into_any()
    }
    Ok(match values {
        Values::Array(TypedArray::F64(values)) => array(py, values),
        Values::Array(TypedArray::F32(values)) => array(py, values),
        Values::Array(TypedArray::C64(values)) => array(py, values),
        Values::Array(TypedArray::C32(values)) => array(py, values),
        Values::Array(TypedArray::I64(values)) => array(py, values),
        Values::Array(TypedArray::Bool(values)) => array(py, values),
        Values::Text(text) => PyString::new(py, &text).into_any(),
        Values::Table(table) => {
            // Tables as dictionaries of columns
            let columns = PyDict::new(py);
            for column in table.columns {
                let cells = match column.cells {
                    Cells::Integers(cells) => cells.into_pyarray(py).into_any(),
                    Cells::Numbers(cells) => cells.into_pyarray(py).into_any(),
                    Cells::Texts(cells) => py.import("numpy")?.call_method1("array", (cells,))?,
                };
                columns.set_item(column.name, (cells, column.unit))?;
            }
            columns.into_any()
        }
    })
}

// Coordinates and attributes for Python
/// Coordinate as a dictionary with `name`, `unit`, `navigation`, `kind`, `positions` and `second`.
fn coordinate_to_python<'py>(py: Python<'py>, one: &Coordinate) -> PyResult<Bound<'py, PyDict>> {
    let about = PyDict::new(py);
    about.set_item("name", &one.name)?;
    about.set_item("unit", &one.unit)?;
    about.set_item("navigation", one.navigation)?;
    let (kind, values) = match &one.positions {
        Positions::Index => ("index", py.None().into_bound(py)),
        Positions::Uniform { offset, step } => {
            ("uniform", (*offset, *step).into_pyobject(py)?.into_any())
        }
        Positions::Values(values) => ("values", values.as_slice().into_pyobject(py)?.into_any()),
        Positions::Labels(labels) => ("labels", labels.as_slice().into_pyobject(py)?.into_any()),
    };
    about.set_item("kind", kind)?;
    about.set_item("positions", values)?;
    about.set_item("second", one.second.clone())?;
    Ok(about)
}

fn attribute_to_python<'py>(
    py: Python<'py>,
    value: &AttributeValue,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        AttributeValue::Text(text) => PyString::new(py, text).into_any(),
        AttributeValue::Number(number) => PyFloat::new(py, *number).into_any(),
        AttributeValue::Integer(integer) => integer.into_pyobject(py)?.into_any(),
        AttributeValue::Flag(flag) => PyBool::new(py, *flag).to_owned().into_any(),
        AttributeValue::Numbers(numbers) => numbers.as_slice().into_pyobject(py)?.into_any(),
    })
}

// Arrays that are borrowed from NumPy
/// NumPy arrays, borrowed while their data set is in use.
enum Borrowed<'py> {
    F64(PyReadonlyArrayDyn<'py, f64>),
    F32(PyReadonlyArrayDyn<'py, f32>),
    C64(PyReadonlyArrayDyn<'py, Complex64>),
    C32(PyReadonlyArrayDyn<'py, Complex32>),
    I64(PyReadonlyArrayDyn<'py, i64>),
    Bool(PyReadonlyArrayDyn<'py, bool>),
    Text(String),
    Table(Table),
}

impl<'py> Borrowed<'py> {
    // Borrow an array by its type
    fn of(name: &str, value: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = value.cast::<PyString>() {
            return Ok(Self::Text(text.to_string()));
        }
        if let Ok(table) = value.cast::<PyDict>() {
            return Ok(Self::Table(table_of(table)?));
        }
        macro_rules! borrow {
            ($variant:ident) => {
                if let Ok(array) = value.cast::<PyArrayDyn<_>>() {
                    return Ok(Self::$variant(array.try_readonly()?));
                }
            };
        }
        borrow!(F64);
        borrow!(F32);
        borrow!(C64);
        borrow!(C32);
        borrow!(I64);
        borrow!(Bool);
        let found = match value.cast::<PyUntypedArray>() {
            Ok(array) => format!("an array of {}", array.dtype()),
            Err(_) => value.get_type().to_string(),
        };
        let expected = "an array of float64, float32, complex128, complex64, int64 or bool";
        Err(refused(Invalid::new(name, found, expected)))
    }

    // Views of borrowed arrays
    fn values(&self) -> Values<'_> {
        fn typed<'a, T: Element>(view: ArrayViewD<'a, T>) -> Values<'a> {
            Values::Array(T::typed(view.into()))
        }
        match self {
            Self::F64(array) => typed(array.as_array()),
            Self::F32(array) => typed(array.as_array()),
            Self::C64(array) => typed(array.as_array()),
            Self::C32(array) => typed(array.as_array()),
            Self::I64(array) => typed(array.as_array()),
            Self::Bool(array) => typed(array.as_array()),
            Self::Text(text) => Values::Text(text.clone()),
            Self::Table(table) => Values::Table(table.clone()),
        }
    }
}

// Tables from dictionaries of columns
fn table_of(columns: &Bound<'_, PyDict>) -> PyResult<Table> {
    let mut table = Table { columns: Vec::new(), rows: [0] };
    for (name, column) in columns.iter() {
        let (cells, unit): (Bound<'_, PyAny>, String) = column.extract()?;
        let cells = match (cells.extract::<Vec<i32>>(), kind_of_cells(&column)?.as_str()) {
            (_, "U") => Cells::Texts(cells.extract()?),
            (Ok(cells), kind) if kind != "f" => Cells::Integers(cells),
            _ => Cells::Numbers(cells.extract()?),
        };
        table.rows = [cells.len()];
        table.columns.push(Column { name: name.extract()?, unit, cells });
    }
    Ok(table)
}

/// NumPy's letter for the kind of the cells of a column.
fn kind_of_cells(column: &Bound<'_, PyAny>) -> PyResult<String> {
    column.get_item(0)?.getattr("dtype")?.getattr("kind")?.extract()
}

// Coordinates and attributes from Python
fn coordinate_of(about: &Bound<'_, PyAny>) -> PyResult<Coordinate> {
    let get = |key: &str| about.get_item(key);
    let positions = get("positions")?;
    Ok(Coordinate {
        name: get("name")?.extract()?,
        unit: get("unit")?.extract()?,
        navigation: get("navigation")?.extract()?,
        second: get("second")?.extract()?,
        positions: match get("kind")?.extract::<String>()?.as_str() {
            "uniform" => {
                let (offset, step) = positions.extract()?;
                Positions::Uniform { offset, step }
            }
            "values" => Positions::Values(positions.extract()?),
            "labels" => Positions::Labels(positions.extract()?),
            _ => Positions::Index,
        },
    })
}

fn attribute_of(value: &Bound<'_, PyAny>) -> PyResult<AttributeValue> {
    Ok(if value.is_instance_of::<PyBool>() {
        AttributeValue::Flag(value.extract()?)
    } else if value.is_instance_of::<PyInt>() {
        AttributeValue::Integer(value.extract()?)
    } else if value.is_instance_of::<PyString>() {
        AttributeValue::Text(value.extract()?)
    } else if value.is_instance_of::<PyList>() {
        AttributeValue::Numbers(value.extract()?)
    } else {
        AttributeValue::Number(value.extract()?)
    })
}

// Data sets of borrowed arrays
/// Python variables with their borrowed arrays.
pub(super) struct BorrowedSet<'py> {
    variables: Vec<(String, Borrowed<'py>, Bound<'py, PyAny>)>,
    attributes: Bound<'py, PyDict>,
}

impl<'py> BorrowedSet<'py> {
    pub(super) fn of(
        variables: &Bound<'py, PyDict>,
        attributes: &Bound<'py, PyDict>,
    ) -> PyResult<Self> {
        let mut borrowed = Vec::new();
        for (name, about) in variables.iter() {
            let name: String = name.extract()?;
            let values = Borrowed::of(&name, &about.get_item("values")?)?;
            borrowed.push((name, values, about));
        }
        Ok(Self { variables: borrowed, attributes: attributes.clone() })
    }

    /// Data set whose arrays are views of NumPy's.
    pub(super) fn data_set(&self) -> PyResult<DataSet<'_>> {
        let mut data = DataSet::default();
        // Variables of borrowed arrays
        for (name, values, about) in &self.variables {
            let mut variable = Variable::unnamed(name, values.values());
            for one in about.get_item("dimensions")?.try_iter()? {
                variable.dimensions.push(coordinate_of(&one?)?);
            }
            variable.unit = about.get_item("unit")?.extract()?;
            variable.long_name = about.get_item("long_name")?.extract()?;
            variable.rounded = about.get_item("rounded")?.extract()?;
            let facts = about.get_item("attributes")?;
            for (key, value) in facts.cast::<PyDict>()?.iter() {
                variable.attribute(&key.extract::<String>()?, attribute_of(&value)?);
            }
            data.insert(variable).map_err(refused)?;
        }
        for (key, value) in self.attributes.iter() {
            data.set_attribute(&key.extract::<String>()?, attribute_of(&value)?)
                .map_err(refused)?;
        }
        Ok(data)
    }
}

// Save a data set of Python
/// Writes a Python data set into a file, in the format of the file name's extension; `signal` selects the variable for formats that store only one. Returns the bytes written.
#[pyfunction]
pub(super) fn save(
    py: Python<'_>,
    variables: &Bound<'_, PyDict>,
    attributes: &Bound<'_, PyDict>,
    path: PathBuf,
    signal: Option<String>,
) -> PyResult<u64> {
    let format = Format::of(("path", &path), &Format::ALL, None).map_err(refused)?;
    let borrowed = BorrowedSet::of(variables, attributes)?;
    let data = borrowed.data_set()?;
    py.detach(|| data.save(&path, format, signal.as_deref())).map_err(raised)
}

// Load a data set for Python
/// Reads a data set from a file that Lenslet wrote.
#[pyfunction]
pub(super) fn load<'py>(
    py: Python<'py>,
    path: PathBuf,
) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
    let data = py.detach(|| DataSet::read(&path)).map_err(raised)?;
    to_python(py, data)
}
