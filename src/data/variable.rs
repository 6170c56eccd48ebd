// Tangled from book/src/data-variables.md: edit there, or here and run cargo tangle stitch.
//! Variables: arrays, texts and tables with names, dimensions and units.

// What variables depend on
use crate::data::coordinate::{Coordinate, identifier};
use crate::data::{Attribute, AttributeValue, Element, Table, TypedArray};
#[cfg(feature = "serde")]
use crate::data::{attribute::check_keys, coordinate::printable};
use crate::error::{Error, Invalid, accept};
use ndarray::{CowArray, Dimension};

// An array with its words
/// An array, a text or a table with its name, dimensions, unit and attributes.
///
/// ```
/// use lenslet::data::{Coordinate, Variable};
/// let image = ndarray::array![[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]];
/// let scan = vec![Coordinate::navigation("x", "Å", 0.0, 0.25)?, Coordinate::navigation("y", "Å", 0.0, 0.25)?];
/// let variable = Variable::new("annulus_0", image.view(), scan)?;
/// assert_eq!((variable.name(), variable.shape()), ("annulus_0", &[2, 3][..]));
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Variable<'a> {
    pub(crate) name: String,
    pub(crate) values: Values<'a>,
    pub(crate) dimensions: Vec<Coordinate>,
    pub(crate) unit: String,
    pub(crate) long_name: String,
    pub(crate) attributes: Vec<Attribute>,
    /// Whether its numbers are written in the precision that is requested of a file.
    pub(crate) rounded: bool,
}

// Values that a variable holds
/// What a variable holds.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Values<'a> {
    /// An array of numbers or truth values.
    Array(TypedArray<'a>),
    /// A text of any length.
    Text(String),
    /// Columns of a table.
    Table(Table),
}

// Read a variable from a text
// Fields of a variable to deserialise
#[cfg(feature = "serde")]
crate::serial::deserialize_by!(Variable<'static> {
    name: String,
    values: Values<'static>,
    dimensions: Vec<Coordinate>,
    unit: String,
    long_name: String,
    attributes: Vec<Attribute>,
    rounded: bool
});

// Check a variable from a text
#[cfg(feature = "serde")]
impl Variable<'_> {
    /// Rejects a name that not all of the formats can hold, and coordinates that do not fit the array.
    fn check_fields(&self) -> Result<(), Invalid> {
        identifier("variable", &self.name)?;
        printable("unit", &self.unit)?;
        check_keys(&self.attributes)?;
        let (quantity, shape) = (format!("dimensions of {}", self.name), self.shape());
        let (count, expected) = (self.dimensions.len(), format!("none, or {}", shape.len()));
        accept(count == 0 || count == shape.len(), &quantity, count, &expected)?;
        (self.dimensions.iter().zip(shape))
            .try_for_each(|(one, &count)| one.check_samples(&self.name, count))
    }
}

// Make and read a variable
impl<'a> Variable<'a> {
    // Make and check a variable
    /// An array with a coordinate for each of its dimensions, navigation before signal; it may be borrowed or owned.
    ///
    /// # Errors
    /// `Invalid` where there is not a coordinate for each dimension, one of navigation follows one of signal, a series follows another, two have
    /// one name, labels or values are more or fewer than samples, or a dimension has no samples; `NotFinite` where a number is NaN or infinite.
    pub fn new<T: Element, D: Dimension>(
        name: &str,
        array: impl Into<CowArray<'a, T, D>>,
        dimensions: Vec<Coordinate>,
    ) -> Result<Self, Error> {
        identifier("variable", name)?;
        let array = T::typed(array.into().into_dyn());
        check_dimensions(name, array.shape(), &dimensions)?;
        match array.first_not_finite() {
            Some((place, value)) => Err(Error::NotFinite { result: name.into(), place, value }),
            None => Ok(Self { dimensions, ..Self::unnamed(name, Values::Array(array)) }),
        }
    }

    // Copies and views of a variable
    /// A variable with a name and values alone.
    pub(crate) fn unnamed(name: &str, values: Values<'a>) -> Self {
        let [unit, long_name] = [const { String::new() }; 2];
        let (name, dimensions, attributes) = (name.into(), Vec::new(), Vec::new());
        Self { name, values, dimensions, unit, long_name, attributes, rounded: false }
    }

    /// A variable that borrows the array of this one.
    pub fn view(&self) -> Variable<'_> {
        let values = match &self.values {
            Values::Array(array) => Values::Array(array.view()),
            Values::Text(text) => Values::Text(text.clone()),
            Values::Table(table) => Values::Table(table.clone()),
        };
        let (dimensions, attributes) = (self.dimensions.clone(), self.attributes.clone());
        let (unit, long_name) = (self.unit.clone(), self.long_name.clone());
        let plain = Variable::unnamed(&self.name, values);
        Variable { dimensions, unit, long_name, attributes, rounded: self.rounded, ..plain }
    }

    /// A copy that borrows nothing.
    pub fn into_owned(self) -> Variable<'static> {
        let values = match self.values {
            Values::Array(array) => Values::Array(array.into_owned()),
            Values::Text(text) => Values::Text(text),
            Values::Table(table) => Values::Table(table),
        };
        let Self { name, dimensions, unit, long_name, attributes, rounded, .. } = self;
        Variable { name, values, dimensions, unit, long_name, attributes, rounded }
    }

    // Read a variable
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it holds.
    pub fn values(&self) -> &Values<'a> {
        &self.values
    }

    /// The array that it holds, if it is no text and no table.
    pub fn array(&self) -> Option<&TypedArray<'a>> {
        if let Values::Array(array) = &self.values { Some(array) } else { None }
    }

    /// Lengths of its dimensions; a text has none, and a table has its rows.
    pub fn shape(&self) -> &[usize] {
        match &self.values {
            Values::Array(array) => array.shape(),
            Values::Text(_) => &[],
            Values::Table(table) => &table.rows,
        }
    }

    /// Name of the type of its elements, such as `f64`; or `text` or `table`.
    pub fn element(&self) -> &'static str {
        match &self.values {
            Values::Array(array) => array.element(),
            Values::Text(_) => "text",
            Values::Table(_) => "table",
        }
    }

    /// Its dimensions with their coordinates; empty where not even their names are known.
    pub fn coordinates(&self) -> &[Coordinate] {
        &self.dimensions
    }

    /// Its attributes.
    pub fn attributes(&self) -> &[Attribute] {
        &self.attributes
    }
}

// Describe a variable in words
impl Variable<'_> {
    /// Sets its unit, as FITS spells it: `rad2`, `m rad`.
    pub fn unit(&mut self, unit: &str) -> &mut Self {
        self.unit = unit.into();
        self
    }

    /// Sets the names of its dimensions, the slowest first, with commas between them.
    pub fn dimensions(&mut self, names: &str) -> &mut Self {
        self.dimensions = names.split(',').map(|name| Coordinate::index(name.trim())).collect();
        self
    }

    /// Sets its dimensions with their coordinates, the slowest first.
    pub(crate) fn along(&mut self, dimensions: Vec<Coordinate>) -> &mut Self {
        self.dimensions = dimensions;
        self
    }

    /// Sets its long name: what it is, in a sentence.
    pub fn long_name(&mut self, long_name: &str) -> &mut Self {
        self.long_name = long_name.into();
        self
    }

    /// Adds an attribute; a file in FITS has it as a card.
    pub fn attribute(&mut self, name: &str, value: impl Into<AttributeValue>) -> &mut Self {
        let (name, value, comment) = (name.into(), value.into(), String::new());
        self.attributes.push(Attribute { name, value, comment });
        self
    }
}

// Kinds of the dimensions
impl Variable<'_> {
    /// How many dimensions it has of each kind: series, navigation that is no series, and signal; they come in this order.
    pub(crate) fn kinds(&self) -> [usize; 3] {
        let navigation = self.dimensions.iter().filter(|one| one.navigation);
        let (navigation, series) =
            (navigation.clone().count(), navigation.filter(|one| one.is_series()).count());
        [series, navigation - series, self.dimensions.len() - navigation]
    }

    /// The dimensions in an order in which a picture is indexed by y, x: pairs of one kind are exchanged.
    pub(crate) fn picture_order(&self) -> Vec<usize> {
        let [series, scanned, recorded] = self.kinds();
        let mut order: Vec<usize> = (0..self.dimensions.len()).collect();
        if scanned == 2 {
            order.swap(series, series + 1);
        }
        if recorded == 2 {
            order.swap(series + scanned, series + scanned + 1);
        }
        order
    }
}

// Coordinates that fit an array
/// Rejects coordinates that do not fit the array of the variable `name`.
pub(crate) fn check_dimensions(
    name: &str,
    shape: &[usize],
    all: &[Coordinate],
) -> Result<(), Invalid> {
    let quantity = format!("dimensions of {name}");
    let expected = format!("a coordinate for each of the {}, and at least one", shape.len());
    accept(all.len() == shape.len() && !all.is_empty(), &quantity, all.len(), &expected)?;
    for (k, (one, &count)) in all.iter().zip(shape).enumerate() {
        let late = one.navigation && all[..k].iter().any(|before| !before.navigation);
        accept(!late, &quantity, &one.name, "dimensions of navigation before those of signal")?;
        let late = one.is_series() && all[..k].iter().any(|before| !before.is_series());
        accept(!late, &quantity, &one.name, "dimensions of a series before all others")?;
        let twice = all[..k].iter().any(|before| before.name == one.name);
        accept(!twice, &quantity, &one.name, "another name for each dimension")?;
        let quantity = format!("samples of {name} along {}", one.name);
        accept(count > 0, &quantity, count, "at least one")?;
        one.check_samples(name, count)?;
    }
    Ok(())
}

impl Coordinate {
    /// Rejects labels or values that are more or fewer than the samples of the variable `name`.
    fn check_samples(&self, name: &str, count: usize) -> Result<(), Invalid> {
        let quantity = format!("samples of {name} along {}", self.name);
        for (list, what) in [(self.labels().len(), "labels"), (self.values().len(), "values")] {
            let expected = format!("{list}, as there are {what}");
            accept(list == 0 || list == count, &quantity, count, &expected)?;
        }
        Ok(())
    }
}
