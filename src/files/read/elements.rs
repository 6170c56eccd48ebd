// Tangled from book/src/read-data-sets.md: edit there, or here and run cargo tangle stitch.
//! Arrays, texts and tables from the bytes of a file.

// What elements depend on
use crate::data::table::{Cells, Column, Table};
use crate::data::{AttributeValue, Coordinate, DataSet, Element, Positions, TypedArray};
use crate::data::{Values, Variable};
use crate::device::refuse_beyond_memory;
use crate::files::hyperspy::LABELS;
#[cfg(doc)]
use crate::files::hyperspy::WORDS;
use crate::files::npz::{Kind, Number};
use crate::files::reading::{cut_short, damaged_member, zip_refusal};
use ndarray::{ArrayD, IxDyn, ShapeBuilder};
use num_complex::{Complex32, Complex64};
use std::io::{self, ErrorKind, Read};

// Arrays from bytes
/// The form of the elements of an array in a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ElementForm {
    pub(crate) number: Number,
    pub(crate) is_complex: bool,
}

/// An error about the content of a file.
pub(super) fn wrong(reason: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason.into())
}

/// Bytes of an array of this shape, of which each element has so many.
pub(super) fn bytes_of(shape: &[usize], each: usize) -> io::Result<usize> {
    let bytes = shape.iter().try_fold(each, |bytes, n| bytes.checked_mul(*n));
    bytes.ok_or_else(|| wrong(format!("an array of shape {shape:?} exceeds the address space")))
}

impl ElementForm {
    // Form by the name of a type
    /// The form that NumPy calls by this name, such as `<f8`.
    pub fn of_numpy(name: &str) -> io::Result<Self> {
        let form = |kind, bytes, is_complex| {
            let number = Number { kind, bytes, big_endian: name.starts_with('>') };
            Ok(Self { number, is_complex })
        };
        match name.get(1..) {
            Some("f4") => form(Kind::Float, 4, false),
            Some("f8") => form(Kind::Float, 8, false),
            Some("c8") => form(Kind::Float, 8, true),
            Some("c16") => form(Kind::Float, 16, true),
            Some("b1") => form(Kind::Bool, 1, false),
            Some(integer) if integer.starts_with(['i', 'u']) => {
                let kind = if integer.starts_with('i') { Kind::Signed } else { Kind::Unsigned };
                match &integer[1..] {
                    "1" => form(kind, 1, false),
                    "2" => form(kind, 2, false),
                    "4" => form(kind, 4, false),
                    "8" => form(kind, 8, false),
                    _ => Err(wrong(format!(
                        "arrays of type {name} cannot be read: convert it to float32 or float64"
                    ))),
                }
            }
            _ => Err(wrong(format!(
                "arrays of type {name} cannot be read: convert it to float32 or float64"
            ))),
        }
    }

    // Elements from bytes
    /// The array of this shape at the beginning of some bytes; `columns_first` where the first index runs fastest.
    pub fn array(
        self,
        bytes: &[u8],
        (shape, columns_first): (&[usize], bool),
    ) -> io::Result<TypedArray<'static>> {
        let each = self.number.bytes;
        // Refuse an array that is cut short
        let all = bytes.get(..bytes_of(shape, each)?).ok_or_else(|| {
            let count: usize = shape.iter().product();
            cut_short(&format!("after {} of {count} numbers", bytes.len() / each))
        })?;
        let place = (shape, columns_first);
        let is_little = !self.number.big_endian;
        let eight = |b: &[u8]| f64::from_bits(self.bits(b));
        let four = |b: &[u8]| f32::from_bits(self.bits(b) as u32);
        match (self.number.kind, each, self.is_complex) {
            // Complex numbers from bytes
            (Kind::Float, 16, true) => {
                let number = |b: &[u8]| Complex64::new(eight(&b[..8]), eight(&b[8..]));
                shaped(all.chunks_exact(16).map(number), place)
            }
            (Kind::Float, 8, true) => {
                let number = |b: &[u8]| Complex32::new(four(&b[..4]), four(&b[4..]));
                shaped(all.chunks_exact(8).map(number), place)
            }
            // Real numbers from bytes
            (Kind::Float, 8, false) if is_little => {
                shaped(all.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)), place)
            }
            (Kind::Float, 4, false) if is_little => {
                shaped(all.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)), place)
            }
            (Kind::Float, 8, false) => shaped(all.chunks_exact(8).map(eight), place),
            (Kind::Float, ..) => shaped(all.chunks_exact(4).map(four), place),
            (Kind::Bool, ..) => shaped(all.iter().map(|b| *b != 0), place),
            // Whole numbers from bytes
            (Kind::Signed, ..) => {
                let shift = 64 - 8 * each as u32;
                let integer = |b: &[u8]| (self.bits(b) << shift).cast_signed() >> shift;
                shaped(all.chunks_exact(each).map(integer), place)
            }
            (Kind::Unsigned, ..) => {
                let integers = all.chunks_exact(each).map(|b| i64::try_from(self.bits(b)));
                let integers = integers.collect::<Result<Vec<_>, _>>();
                let integers =
                    integers.map_err(|_| wrong("an unsigned number exceeds 2^63 - 1"))?;
                shaped(integers.into_iter(), place)
            }
        }
    }

    // Bits of a number in either order
    /// The bits of a number of at most eight bytes.
    fn bits(self, bytes: &[u8]) -> u64 {
        let fold = |bits: u64, byte: &u8| bits << 8 | u64::from(*byte);
        match self.number.big_endian {
            true => bytes.iter().fold(0, fold),
            false => bytes.iter().rev().fold(0, fold),
        }
    }
}

// Elements as an array of a shape
/// Elements as an array of a shape.
fn shaped<T: Element>(
    elements: impl Iterator<Item = T>,
    (shape, columns_first): (&[usize], bool),
) -> io::Result<TypedArray<'static>> {
    let array = ArrayD::from_shape_vec(IxDyn(shape).set_f(columns_first), elements.collect());
    let array = array.map_err(|error| wrong(error.to_string()))?;
    let array = if columns_first { array.as_standard_layout().into_owned() } else { array };
    Ok(T::typed(array.into()))
}

// Texts and tables from bytes
/// Keys of the provenance, which are attributes in every format.
pub(super) const PROVENANCE: [&str; 7] =
    ["program", "version", "command", "date", "method", "tolerance", "seed"];

/// All bytes of a member of an archive.
pub(super) fn whole<R: Read>(member: zip::read::ZipFile<'_, R>) -> io::Result<Vec<u8>> {
    let (size, name) = (member.size(), member.name().map_err(zip_refusal)?.to_string());
    refuse_beyond_memory(size, || name.clone()).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    // One byte more than there is: at the end, the archive compares the checksum.
    let read = member.take(size.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| damaged_member(&name, error))?;
    if bytes.len() as u64 > size {
        return Err(wrong(format!("{name} is longer than the archive says")));
    }
    Ok(bytes)
}

/// The text that an array of one text holds.
pub(super) fn letters(
    length: &str,
    shape: &[usize],
    (bytes, big): (&[u8], bool),
) -> io::Result<String> {
    let count = shape.iter().product::<usize>();
    let length = length.parse::<usize>().ok().filter(|_| count == 1);
    let length =
        length.ok_or_else(|| wrong("it contains an array of texts, which cannot be read"))?;
    let all = bytes.get(..bytes_of(&[length], 4)?).ok_or_else(|| cut_short("in a text"))?;
    let letter = |b: &[u8]| match big {
        true => u32::from_be_bytes([b[0], b[1], b[2], b[3]]),
        false => u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
    };
    let letters = all.chunks_exact(4).map(letter).map(char::from_u32);
    let text = letters.collect::<Option<String>>();
    let text = text.ok_or_else(|| wrong("a text contains an invalid character"))?;
    Ok(text.trim_end_matches('\0').to_string())
}
// Form of the cells of a column
/// The form of the cells of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum CellForm {
    Integer,
    Number,
    /// A text in so many bytes.
    Text(usize),
}

impl CellForm {
    fn bytes(self) -> usize {
        match self {
            Self::Integer => 4,
            Self::Number => 8,
            Self::Text(bytes) => bytes,
        }
    }
}

// Tables from bytes
/// A table whose rows follow each other, of columns with a name, a unit, the form of their cells, and whether the most significant byte comes first.
pub(super) fn table(
    columns: Vec<(String, String, CellForm, bool)>,
    rows: usize,
    bytes: &[u8],
) -> io::Result<Table> {
    let row = columns.iter().try_fold(0_usize, |sum, column| sum.checked_add(column.2.bytes()));
    let row = row.filter(|row| *row > 0).ok_or_else(|| wrong("the rows of a table are empty"))?;
    let all = bytes.get(..bytes_of(&[rows], row)?).ok_or_else(|| cut_short("in a table"))?;
    let (mut made, mut at) = (Vec::new(), 0);
    for (name, unit, cell_form, big_endian) in columns {
        let bytes = cell_form.bytes();
        let number = Number { kind: Kind::Float, bytes, big_endian };
        let form = ElementForm { number, is_complex: false };
        let part = |k: usize| &all[k * row + at..k * row + at + bytes];
        let cells = match cell_form {
            CellForm::Integer => {
                let cell = |k| (form.bits(part(k)) as u32).cast_signed();
                Cells::Integers((0..rows).map(cell).collect())
            }
            CellForm::Number => {
                Cells::Numbers((0..rows).map(|k| f64::from_bits(form.bits(part(k)))).collect())
            }
            CellForm::Text(_) => {
                let text = |k| String::from_utf8_lossy(part(k));
                let ends = [char::from(0), ' '];
                Cells::Texts((0..rows).map(|k| text(k).trim_end_matches(ends).into()).collect())
            }
        };
        made.push(Column { name, unit, cells });
        at += bytes;
    }
    Ok(Table { columns: made, rows: [rows] })
}

// Attributes and axes of trees
/// Adds attributes, and the text of the system as a text.
pub(super) fn add_attributes(
    data: &mut DataSet,
    attributes: impl Iterator<Item = (String, AttributeValue)>,
) {
    for (key, value) in attributes {
        match value {
            AttributeValue::Text(text) if key == "system" => drop(data.add_text(&key, text)),
            value => data.note(&key, value, ""),
        }
    }
}

// Variable of HyperSpy in its own order
/// A variable of HyperSpy in its own order of dimensions, from what this program [noted](WORDS) about it; without a note, in HyperSpy's.
pub(super) fn in_own_order(
    name: &str,
    array: TypedArray<'static>,
    dimensions: Vec<Coordinate>,
    words: Vec<(String, AttributeValue)>,
    permute: impl FnOnce(TypedArray<'static>, &[usize]) -> TypedArray<'static>,
) -> Variable<'static> {
    let value = |key: &str| words.iter().find(|(name, _)| name == key).map(|(_, it)| it.clone());
    let count = dimensions.len();
    let order = match value("order") {
        Some(AttributeValue::Text(all)) => {
            let all: Vec<usize> = all.split(' ').filter_map(|k| k.parse().ok()).collect();
            let back = (0..count).map(|k| all.iter().position(|from| *from == k));
            back.collect::<Option<Vec<_>>>().filter(|_| all.len() == count)
        }
        _ => None,
    };
    let order = order.unwrap_or_else(|| (0..count).collect());
    let mut own: Vec<_> = order.iter().map(|k| dimensions[*k].clone()).collect();
    if let Some(AttributeValue::Integer(moved)) = value("navigation") {
        let moved = usize::try_from(moved).unwrap_or(0);
        own.iter_mut().enumerate().for_each(|(k, one)| one.navigation = k < moved);
    }
    let array = permute(array, &order);
    // Labels of the dimensions of HyperSpy
    for (one, count) in own.iter_mut().zip(array.shape()) {
        if let Some(AttributeValue::Text(text)) = value(&format!("{LABELS}{}", one.name)) {
            let labels: Vec<_> = text.split('\n').map(String::from).collect();
            if labels.len() == *count {
                one.positions = Positions::Labels(labels);
            }
        }
    }
    let plain = Variable::unnamed(name, Values::Array(array));
    let mut variable = Variable { dimensions: own, ..plain };
    let words = words.into_iter().filter(|(key, _)| !key.starts_with(LABELS));
    variable.describe(words, &["order", "navigation"]);
    variable
}

/// The coordinate of an axis of HyperSpy, from its attributes and the list of its values, if it has one.
pub(super) fn axis(
    attributes: &[(String, AttributeValue)],
    values: Option<&TypedArray>,
) -> Coordinate {
    let value = |key: &str| attributes.iter().find(|(name, _)| name == key).map(|(_, it)| it);
    let text = |key: &str| match value(key) {
        Some(AttributeValue::Text(text)) => text.clone(),
        _ => String::new(),
    };
    let number = |key: &str, otherwise: f64| match value(key) {
        Some(AttributeValue::Number(x)) => *x,
        Some(AttributeValue::Integer(n)) => *n as f64,
        _ => otherwise,
    };
    let navigation = value("navigate") == Some(&AttributeValue::Flag(true));
    let positions = match values {
        Some(TypedArray::F64(x)) => Positions::of_samples(x.iter().copied().collect()),
        _ => Positions::Uniform { offset: number("offset", 0.0), step: number("scale", 1.0) },
    };
    let named = Coordinate::index(&text("name"));
    Coordinate { unit: text("units"), positions, navigation, ..named }
}
