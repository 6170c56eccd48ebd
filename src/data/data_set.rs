// Tangled from book/src/data-set-access.md: edit there, or here and run cargo tangle stitch.
//! Data sets: variables and attributes of one result.

// What data sets depend on
use crate::data::coordinate::identifier;
use crate::data::{Attribute, AttributeValue, Element, Table, Values, Variable};
#[cfg(feature = "serde")]
use crate::data::{attribute::check_keys, coordinate::check_distinct};
use crate::error::{Invalid, accept, escaped};
use ndarray::{Array, ArrayView, CowArray, Dimension};

// Variables and attributes of a result
/// Named arrays, texts and tables with dimensions, units and attributes, in the order in which they were added.
///
/// ```
/// use lenslet::data::DataSet;
/// use ndarray::{Ix2, arr0, array};
/// let covariance = array![[1.0, 0.5], [0.5, 1.0]];
/// let mut data = DataSet::default();
/// data.add_result("covariance", covariance.view()).unit("rad2").dimensions("star, star");
/// data.add("pitch", arr0(0.5)).unit("m").long_name("side of a lenslet");
/// assert_eq!(data.array::<f64, Ix2>("covariance")?, covariance);
/// let refused = data.array::<f64, Ix2>("pitch").unwrap_err().to_string();
/// assert_eq!(refused, "pitch is an array of 0 dimensions, of shape []: expected 2 dimensions");
/// # Ok::<(), lenslet::data::DataError>(())
/// ```
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DataSet<'a> {
    pub(crate) variables: Vec<Variable<'a>>,
    pub(crate) attributes: Vec<Attribute>,
}

// Deserialise a data set
#[cfg(feature = "serde")]
crate::serial::deserialize_by!(DataSet<'static> { variables: Vec<Variable<'static>>, attributes: Vec<Attribute> });

#[cfg(feature = "serde")]
impl DataSet<'_> {
    /// Rejects variables or attributes of one name.
    fn check_fields(&self) -> Result<(), Invalid> {
        check_keys(&self.attributes)?;
        check_distinct("variable", self.names())
    }
}

// Methods of a data set
impl<'a> DataSet<'a> {
    // Add an array to a data set
    /// Adds an array that is written in its own precision, borrowed or owned, of any number of dimensions.
    pub fn add<T: Element, D: Dimension>(
        &mut self,
        name: &str,
        array: impl Into<CowArray<'a, T, D>>,
    ) -> &mut Variable<'a> {
        self.push(name, Values::Array(T::typed(array.into().into_dyn())))
    }

    /// Adds an array whose floating-point numbers are written in the precision that is requested of a file.
    pub fn add_result<T: Element, D: Dimension>(
        &mut self,
        name: &str,
        array: impl Into<CowArray<'a, T, D>>,
    ) -> &mut Variable<'a> {
        let variable = self.add(name, array);
        variable.rounded = true;
        variable
    }

    fn push(&mut self, name: &str, values: Values<'a>) -> &mut Variable<'a> {
        let last = self.variables.len();
        self.variables.push(Variable::unnamed(name, values));
        &mut self.variables[last]
    }

    // Add texts, tables and variables
    /// Adds a text of any length.
    pub fn add_text(&mut self, name: &str, text: impl Into<String>) -> &mut Variable<'a> {
        self.push(name, Values::Text(text.into()))
    }

    /// Adds a table.
    pub fn add_table(&mut self, name: &str, table: Table) -> &mut Variable<'a> {
        self.push(name, Values::Table(table))
    }

    /// Adds a variable.
    ///
    /// # Errors
    /// `Invalid` where there is one of this name already.
    pub fn insert(&mut self, variable: Variable<'a>) -> Result<(), Invalid> {
        let twice = self.get(&variable.name).is_some();
        accept(!twice, "variable", &variable.name, "another name for each variable")?;
        self.variables.push(variable);
        Ok(())
    }

    // Select and append variables
    /// Removes the variable of this name, and returns it.
    pub fn remove(&mut self, name: &str) -> Option<Variable<'a>> {
        let place = self.variables.iter().position(|variable| variable.name == name)?;
        Some(self.variables.remove(place))
    }

    /// A data set of the variables of these names alone, which borrows from this one, with all attributes.
    pub fn select(&self, names: &[&str]) -> DataSet<'_> {
        let selected = self.iter().filter(|variable| names.contains(&&variable.name[..]));
        let variables = selected.map(Variable::view).collect();
        DataSet { variables, attributes: self.attributes.clone() }
    }

    /// Appends the variables and the attributes of another data set.
    ///
    /// # Errors
    /// `Invalid` where a name is in both.
    pub fn append(&mut self, other: DataSet<'a>) -> Result<(), Invalid> {
        other.variables.into_iter().try_for_each(|variable| self.insert(variable))?;
        let mut attributes = other.attributes.into_iter();
        attributes.try_for_each(|one| self.set_attribute(&one.name, one.value).map(drop))
    }

    // Add attributes of a data set
    /// Adds an attribute; the key consists of letters, digits and underscores.
    ///
    /// # Errors
    /// `Invalid` for another key or one that is there already, a number that is not finite, or no numbers or more than a thousand.
    pub fn set_attribute(
        &mut self,
        name: &str,
        value: impl Into<AttributeValue>,
    ) -> Result<(), Invalid> {
        identifier("key of an attribute", &format!("k{name}"))?;
        let free = !name.is_empty() && self.attribute(name).is_none();
        accept(free, "key of an attribute", name, "another key for each attribute")?;
        let value = value.into();
        value.check(name)?;
        self.note(name, value, "");
        Ok(())
    }

    /// Adds an attribute that needs no check, with a comment for the headers of FITS.
    pub(crate) fn note(&mut self, name: &str, value: impl Into<AttributeValue>, comment: &str) {
        let (name, value, comment) = (name.into(), value.into(), comment.into());
        self.attributes.push(Attribute { name, value, comment });
    }

    // Read a data set
    /// The variables, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Variable<'a>> {
        self.variables.iter()
    }

    /// The names of the variables, in their order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.variables.iter().map(Variable::name)
    }

    /// Name and shape of each variable, in their order.
    pub fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.iter().map(|variable| (variable.name.clone(), variable.shape().to_vec())).collect()
    }

    /// The variable of this name.
    pub fn get(&self, name: &str) -> Option<&Variable<'a>> {
        self.variables.iter().find(|variable| variable.name == name)
    }

    /// The attributes, in their order.
    pub fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }

    /// The value of the attribute of this key.
    pub fn attribute(&self, name: &str) -> Option<&AttributeValue> {
        self.attributes.iter().find(|one| one.name == name).map(|one| &one.value)
    }

    /// A data set that borrows nothing, in which the arrays of these names are missing: [`fill`](Self::fill) puts them back without a copy.
    #[cfg(feature = "python")]
    pub(crate) fn owned_without(mut self, names: &[&str]) -> DataSet<'static> {
        for variable in self.variables.iter_mut().filter(|one| names.contains(&one.name.as_str())) {
            let empty = ndarray::Array1::<f64>::zeros(0).into_dyn();
            variable.values = Values::Array(f64::typed(empty.into()));
        }
        self.into_owned()
    }

    /// Puts an array in the place of that of a variable, if there is one of this name.
    #[cfg(feature = "python")]
    pub(crate) fn fill<T: Element, D: Dimension>(&mut self, name: &str, array: Array<T, D>) {
        if let Some(variable) = self.variables.iter_mut().find(|one| one.name == name) {
            variable.values = Values::Array(T::typed(array.into_dyn().into()));
        }
    }

    /// A data set that borrows nothing.
    pub fn into_owned(self) -> DataSet<'static> {
        let variables = self.variables.into_iter().map(Variable::into_owned).collect();
        DataSet { variables, attributes: self.attributes }
    }
}

// Access to the arrays
impl DataSet<'_> {
    /// A copy of the array of this name.
    ///
    /// # Errors
    /// [`DataError`] where there is no such variable, its elements are of a type with numbers that `T` does not have, or it has another number
    /// of dimensions.
    pub fn array<T: Element, D: Dimension>(&self, name: &str) -> Result<Array<T, D>, DataError> {
        let (variable, wrong) = self.variable(name, T::NAME)?;
        let copy = variable.array().and_then(T::copy).ok_or(wrong)?;
        copy.into_dimensionality().map_err(|_| variable.wrong_dimensions(D::NDIM))
    }

    /// A view of the array of this name, without a copy.
    ///
    /// # Errors
    /// [`DataError`] where there is no such variable, its elements are not of the type `T`, or it has another number of dimensions.
    pub fn view<T: Element, D: Dimension>(
        &self,
        name: &str,
    ) -> Result<ArrayView<'_, T, D>, DataError> {
        let (variable, wrong) = self.variable(name, T::NAME)?;
        let view = variable.array().and_then(T::view).ok_or(wrong)?;
        view.into_dimensionality().map_err(|_| variable.wrong_dimensions(D::NDIM))
    }

    // Texts and tables by name
    /// The text of this name.
    ///
    /// # Errors
    /// [`DataError`] where there is no such variable, or it is no text.
    pub fn text(&self, name: &str) -> Result<&str, DataError> {
        let (variable, wrong) = self.variable(name, "text")?;
        if let Values::Text(text) = &variable.values { Ok(text) } else { Err(wrong) }
    }

    /// The table of this name.
    ///
    /// # Errors
    /// [`DataError`] where there is no such variable, or it is no table.
    pub fn table(&self, name: &str) -> Result<&Table, DataError> {
        let (variable, wrong) = self.variable(name, "table")?;
        if let Values::Table(table) = &variable.values { Ok(table) } else { Err(wrong) }
    }
}

// Errors of access to arrays
/// Why a variable cannot be had as it is wanted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// There is no variable of this name.
    #[error("no variable {}: expected one of {}", escaped(.name), escaped(&.names.join(", ")))]
    Missing {
        /// The name.
        name: String,
        /// The names that there are.
        names: Vec<String>,
    },
    /// The elements have another type.
    #[error("{} is of type {element} and of shape {shape:?}: expected {expected}", escaped(.name))]
    Element {
        /// Name of the variable.
        name: String,
        /// The type of its elements.
        element: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// The type that was expected.
        expected: &'static str,
    },
    /// The array has another number of dimensions.
    #[error("{} is an array of {} dimensions, of shape {shape:?}: expected {expected} dimensions", escaped(.name), .shape.len())]
    Dimensions {
        /// Name of the variable.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
        /// The number of dimensions that was expected.
        expected: usize,
    },
}

// Make errors of access
impl<'a> DataSet<'a> {
    /// The variable of this name, and the error for the case that it is of another type than the one `expected`.
    fn variable(
        &self,
        name: &str,
        expected: &'static str,
    ) -> Result<(&Variable<'a>, DataError), DataError> {
        let names = || self.names().map(String::from).collect();
        let missing = || DataError::Missing { name: name.into(), names: names() };
        let variable = self.get(name).ok_or_else(missing)?;
        let (name, element, shape) = (name.into(), variable.element(), variable.shape().to_vec());
        Ok((variable, DataError::Element { name, element, shape, expected }))
    }
}

impl Variable<'_> {
    fn wrong_dimensions(&self, expected: Option<usize>) -> DataError {
        let (name, shape) = (self.name.clone(), self.shape().to_vec());
        DataError::Dimensions { name, expected: expected.unwrap_or(shape.len()), shape }
    }
}

// Tests of data sets
#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Coordinate, TypedArray};
    use ndarray::{Array1, Array2, Array3, ArrayD, Ix1, Ix2, IxDyn, arr0, array};
    use num_complex::{Complex32, Complex64};

    // One variable of each type
    fn one_of_each() -> DataSet<'static> {
        let mut data = DataSet::default();
        data.add("double", array![[0.1, -2e-13]]).unit("m").dimensions("y, x");
        data.add("single", array![0.1_f32]);
        data.add("wave", array![Complex32::new(1.0, -2.0)]);
        data.add("counts", array![7_u32, u32::MAX]);
        data.add("signed", array![-3_i64]);
        data.add("lit", arr0(true));
        data.add_text("system", "r0 = 0.1\n");
        data.add_table("slopes", Table::of(&[3, -1]).integer("star", |star| *star).table());
        data.set_attribute("seed", 7).unwrap();
        data
    }

    #[test]
    fn arrays_come_back_with_their_type() -> Result<(), DataError> {
        let data = one_of_each();
        assert_eq!(data.array::<f64, Ix2>("double")?, array![[0.1, -2e-13]]);
        assert_eq!(data.view::<f64, IxDyn>("double")?.shape(), [1, 2]);
        assert_eq!(data.array::<f64, Ix1>("single")?, array![f64::from(0.1_f32)]);
        assert_eq!(data.array::<Complex64, Ix1>("wave")?, array![Complex64::new(1.0, -2.0)]);
        assert_eq!(data.array::<usize, Ix1>("counts")?, array![7, (1 << 32) - 1]);
        assert_eq!(data.array::<bool, ndarray::Ix0>("lit")?, arr0(true));
        assert_eq!((data.text("system")?, data.table("slopes")?.rows()), ("r0 = 0.1\n", 2));
        assert_eq!(data.table("slopes")?.integers("star"), Some(&[3, -1][..]));
        assert_eq!(data.attribute("seed"), Some(&AttributeValue::Integer(7)));
        let refused = |error: DataError| error.to_string();
        let missing = refused(data.array::<f64, Ix1>("psf").unwrap_err());
        assert!(
            missing.starts_with("no variable psf: expected one of double, single, "),
            "{missing}"
        );
        let narrow = refused(data.array::<f32, Ix2>("double").unwrap_err());
        assert_eq!(narrow, "double is of type f64 and of shape [1, 2]: expected f32");
        let negative = refused(data.array::<usize, Ix1>("signed").unwrap_err());
        assert_eq!(negative, "signed is of type i64 and of shape [1]: expected usize");
        let view = refused(data.view::<f64, Ix1>("single").unwrap_err());
        assert_eq!(view, "single is of type f32 and of shape [1]: expected f64");
        assert!(refused(data.text("lit").unwrap_err()).ends_with("of shape []: expected text"));
        let owned = data.clone().into_owned();
        assert_eq!((owned.shapes(), owned.iter().len()), (data.shapes(), 8));
        let mut both = one_of_each();
        assert!(both.append(owned).unwrap_err().to_string().contains("another name for each"));
        Ok(())
    }

    // Reject variables that do not fit
    fn scan() -> Vec<Coordinate> {
        let axis = |name, offset, step| Coordinate::navigation(name, "Å", offset, step).unwrap();
        vec![axis("x", 1.25, 0.5), axis("y", -0.5, 0.2)]
    }

    #[test]
    fn variables_that_do_not_fit_are_rejected() {
        let image = Array2::<f32>::zeros((4, 3));
        let said = |name: &str, array: &Array2<f32>, dimensions: Vec<Coordinate>| {
            Variable::new(name, array, dimensions).map(drop).unwrap_err().to_string()
        };
        let few = said("i", &image, scan()[..1].to_vec());
        assert!(few.contains("dimensions of i = 1: expected a coordinate for each of the 2"));
        let name = said("no name", &image, scan());
        assert!(name.starts_with("variable = \"no name\": expected a letter"), "{name}");
        let empty = said("i", &Array2::zeros((4, 0)), scan());
        assert!(empty.starts_with("samples of i along y = 0: expected at least one"), "{empty}");
        let same = vec![scan()[0].clone(), scan()[0].clone()];
        assert!(said("i", &image, same).contains("another name for each dimension"));
        let late = vec![Coordinate::signal("q", "1/Å", 0.0, 1.0).unwrap(), scan()[0].clone()];
        assert!(said("i", &image, late).contains("navigation before those of signal"));
        let labels = vec![scan()[0].clone(), Coordinate::labelled("c", &["x", "y"]).unwrap()];
        assert!(said("i", &image, labels).contains("along c = 3: expected 2, as there are labels"));
        let foci = Coordinate::series("f", "Å", &[1.0, 2.0, 5.0]).unwrap();
        let late = vec![scan()[0].clone(), foci.clone()];
        assert!(said("i", &image, late).contains("dimensions of a series before all others"));
        let few = vec![foci, scan()[1].clone()];
        assert!(said("i", &image, few).contains("along f = 4: expected 3, as there are values"));
        // Reject numbers and attributes
        for values in [&[][..], &[1.0, 1.0], &[1.0, 3.0, 2.0], &[f64::NAN], &[f64::INFINITY]] {
            assert!(Coordinate::series("f", "Å", values).is_err(), "{values:?}");
        }
        let mut broken = image.clone();
        broken[[2, 1]] = f32::NAN;
        assert_eq!(
            said("i", &broken, scan()),
            "i is NaN at [2, 1], which is no number to go on with"
        );
        let wave = Array1::from(vec![Complex32::new(0.0, 1.0), Complex32::new(0.0, f32::INFINITY)]);
        let found = Variable::new("wave", &wave, scan()[..1].to_vec()).map(drop).unwrap_err();
        assert!(found.to_string().starts_with("wave is inf at [1]"));
        for (offset, step) in [(f64::NAN, 1.0), (0.0, 0.0), (0.0, -1.0), (0.0, f64::INFINITY)] {
            assert!(Coordinate::signal("q", "", offset, step).is_err());
        }
        assert!(Coordinate::labelled("c", &[""]).is_err());
        assert!(Coordinate::navigation("x", "Å\n", 0.0, 1.0).is_err());
        let mut data = one_of_each();
        assert!(data.insert(Variable::new("lit", image.clone(), scan()).unwrap()).is_err());
        assert!(data.insert(Variable::new("image", image, scan()).unwrap()).is_ok());
        for (key, value) in [("seed", 1.0), ("", 1.0), ("a/b", 1.0), ("f", f64::NAN)] {
            assert!(data.set_attribute(key, value).is_err(), "{key}");
        }
        assert!(
            data.set_attribute("none", &[][..]).is_err()
                && data.set_attribute("nul", "\0").is_err()
        );
    }

    // Views of another order
    #[test]
    fn arrays_are_permuted_and_cut() {
        let cube: ArrayD<f32> =
            Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (100 * i + 10 * j + k) as f32).into_dyn();
        let array = TypedArray::F32(cube.into());
        let numbers =
            |array: &TypedArray| f32::copy(array).unwrap().iter().copied().collect::<Vec<_>>();
        let permuted = array.permuted(&[1, 0, 2]);
        assert_eq!(permuted.shape(), [3, 2, 4]);
        assert_eq!(numbers(&permuted)[4..8], [100.0, 101.0, 102.0, 103.0]);
        assert_eq!(numbers(&array.part(&[1, 2], 1..3)), [121.0, 122.0]);
        assert_eq!(numbers(&permuted.part(&[2], 1..2)), [120.0, 121.0, 122.0, 123.0]);
    }

    #[test]
    fn series_are_even_or_uneven() {
        let series = |values: &[f64]| Coordinate::series("defocus", "Å", values).unwrap();
        let foci = [0.3, 0.2, 0.1, 0.0].map(|x: f64| x - 1e4);
        assert!(series(&foci).is_uniform() && series(&[7.0]).is_uniform());
        let uneven = [30.0, 10.0, -25.0];
        assert!(!series(&uneven).is_uniform() && !series(&[0.0, 1.0, 2.0 + 1e-6]).is_uniform());
        assert_eq!((series(&[20.0, 40.0]).step(), series(&[7.0]).step()), (20.0, 1.0));
        assert_eq!(series(&uneven).samples(3), uneven);
        assert!(scan()[0].is_uniform() && !scan()[0].is_series());
    }
}
