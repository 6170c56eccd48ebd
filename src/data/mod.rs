// Tangled from book/src/arrays.md: edit there, or here and run cargo tangle stitch.
//! Data sets: named arrays with dimensions, coordinates, units and attributes, as in xarray and NetCDF.

// Modules of data sets
pub(crate) mod attribute;
pub use attribute::{Attribute, AttributeValue};
pub(crate) mod coordinate;
pub use coordinate::{Coordinate, Positions};
pub(crate) mod data_set;
pub use data_set::{DataError, DataSet};
pub(crate) mod table;
pub use table::{Column, Table, TableBuilder};
pub(crate) mod typed_array;
pub use typed_array::{Element, TypedArray};
pub(crate) mod variable;
pub use variable::{Values, Variable};
