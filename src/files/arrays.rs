// Tangled from book/src/arrays.md: edit there, or here and run cargo tangle stitch.
//! Named arrays in a file, as NumPy's `.npz` or as FITS; one array as `.npy`, too.

use crate::error::Invalid;
use ndarray::{CowArray, Dimension, IxDyn};
use ndarray_npy::WritableElement;
use ndarray_npy::npy::header::{Header, Layout};
use num_complex::{Complex32, Complex64};
use std::io::{self, ErrorKind, Seek, Write};
use std::path::Path;
use zip::{CompressionMethod, ZipWriter, result::ZipError, write::SimpleFileOptions};

// Formats and precisions
/// In which format arrays are saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArrayFormat {
    /// NumPy's archive of arrays.
    Npz,
    /// NumPy's file of one array by itself.
    Npy,
    /// FITS, with an image for each array.
    Fits,
}

impl ArrayFormat {
    /// The formats for several arrays in a file.
    pub const OF_MANY: [Self; 2] = [Self::Npz, Self::Fits];
    /// All formats, for one array.
    pub const ALL: [Self; 3] = [Self::Npz, Self::Npy, Self::Fits];

    // Find the format of a file's name
    /// The format of the file of a `role`, such as `output`: what its name ends in, or, where that is no ending of ours, what
    /// was `asked` for; it must be one of those that fit.
    ///
    /// # Errors
    /// `Invalid`, with the endings that fit, for any other ending or none, or one that contradicts what was asked for.
    ///
    /// ```
    /// use lenslet::files::ArrayFormat;
    /// let of = |name: &str, asked| ArrayFormat::of(("output", name.as_ref()), &ArrayFormat::OF_MANY, asked);
    /// assert_eq!(of("cov.FITS", None), Ok(ArrayFormat::Fits));
    /// assert_eq!(of("cov.tmp", Some(ArrayFormat::Npz)), Ok(ArrayFormat::Npz));
    /// assert!(of("cov.tmp", None).is_err() && of("cov.fits", Some(ArrayFormat::Npz)).is_err());
    /// ```
    pub fn of(
        (role, path): (&str, &Path),
        fitting: &[Self],
        asked: Option<Self>,
    ) -> Result<Self, Invalid> {
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        let known = [Self::Npz, Self::Npy, Self::Fits].into_iter();
        let mut known =
            known.filter(|format| format.endings().iter().any(|ending| extension == *ending));
        let fits = |format: &Self| fitting.contains(format) && asked.is_none_or(|it| it == *format);
        known.next().or(asked).filter(fits).ok_or_else(|| {
            // Name the endings that fit
            let formats = asked.as_ref().map_or(fitting, std::slice::from_ref);
            let endings: Vec<_> = formats.iter().flat_map(|format| format.endings()).collect();
            let endings = endings.iter().map(|ending| format!(".{ending}")).collect::<Vec<_>>();
            let expected = match endings.split_last() {
                Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
                _ => endings.concat(),
            };
            Invalid::new(role, path.display(), format!("a file name that ends in {expected}"))
        })
    }
}

// Precision of the numbers
pub use crate::numerics::real::Precision;

// Names of formats and precisions
impl ArrayFormat {
    /// Its name, which is the first of its endings.
    pub fn name(self) -> &'static str {
        self.endings()[0]
    }

    /// What names of such files end in, behind a point.
    fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Npz => &["npz"],
            Self::Npy => &["npy"],
            Self::Fits => &["fits", "fit", "fts"],
        }
    }
}
// Named arrays with units
/// Arrays that will go into one file, in the order in which they were added.
///
/// ```
/// use lenslet::files::{ArrayFormat, Arrays};
/// use lenslet::numerics::Precision;
/// let covariance = ndarray::array![[1.0, 0.5], [0.5, 1.0]];
/// let mut arrays = Arrays::default();
/// arrays.add_result("covariance", covariance.view()).unit("rad2").axes("star, star");
/// arrays.add("pitch", ndarray::arr0(0.5)).unit("m").about("side of a lenslet");
/// let mut file = std::io::Cursor::new(Vec::new());
/// arrays.write(&mut file, ArrayFormat::Fits, Precision::F32)?;
/// assert_eq!(file.into_inner().len(), 5 * 2880);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Arrays<'a>(pub(crate) Vec<Entry<'a>>);

// One array with its words
/// An array that will go into a file, and what a reader of the file should know about it.
#[derive(Debug)]
pub struct Entry<'a> {
    pub(super) name: String,
    pub(crate) values: Values<'a>,
    result: bool,
    /// Whether it is a note about the file.
    pub(super) note: bool,
    pub(crate) unit: String,
    pub(crate) axes: String,
    pub(crate) about: String,
    /// Cards of its own in FITS.
    pub(super) cards: Vec<(String, Card)>,
}

// Elements of the arrays
/// What an entry holds: numbers of any of the types that we write, a text, or a table.
#[derive(Debug)]
#[non_exhaustive]
pub enum Values<'a> {
    /// Double precision.
    F64(CowArray<'a, f64, IxDyn>),
    /// Single precision.
    F32(CowArray<'a, f32, IxDyn>),
    /// Complex, in double precision; not in FITS.
    C64(CowArray<'a, Complex64, IxDyn>),
    /// Complex, in single precision; not in FITS.
    C32(CowArray<'a, Complex32, IxDyn>),
    /// Integers, counts among them.
    I64(CowArray<'a, i64, IxDyn>),
    /// Yes or no.
    Bool(CowArray<'a, bool, IxDyn>),
    /// A text.
    Text(String),
    /// Columns of a table.
    Table(Table),
}

/// What the arrays in a file may consist of.
pub trait Element: Copy + 'static {
    /// The array with its type told.
    fn values(array: CowArray<'_, Self, IxDyn>) -> Values<'_>;
}

// Choose the type of each element
impl Element for f64 {
    fn values(array: CowArray<'_, Self, IxDyn>) -> Values<'_> {
        Values::F64(array)
    }
}

impl Element for f32 {
    fn values(array: CowArray<'_, Self, IxDyn>) -> Values<'_> {
        Values::F32(array)
    }
}

impl Element for i64 {
    fn values(array: CowArray<'_, Self, IxDyn>) -> Values<'_> {
        Values::I64(array)
    }
}

// Types of the other elements
impl Element for Complex64 {
    fn values(array: CowArray<'_, Self, IxDyn>) -> Values<'_> {
        Values::C64(array)
    }
}

impl Element for Complex32 {
    fn values(array: CowArray<'_, Self, IxDyn>) -> Values<'_> {
        Values::C32(array)
    }
}

impl Element for bool {
    fn values(array: CowArray<'_, Self, IxDyn>) -> Values<'_> {
        Values::Bool(array)
    }
}

impl Element for u32 {
    fn values(array: CowArray<'_, Self, IxDyn>) -> Values<'_> {
        Values::I64(array.mapv(i64::from).into())
    }
}

impl Element for usize {
    fn values(array: CowArray<'_, Self, IxDyn>) -> Values<'_> {
        Values::I64(array.mapv(|count| i64::try_from(count).unwrap_or(i64::MAX)).into())
    }
}

// Add an array to the list
impl<'a> Arrays<'a> {
    /// Adds an array that is written in its own precision, borrowed or owned, of any number of dimensions.
    pub fn add<T: Element, D: Dimension>(
        &mut self,
        name: &str,
        array: impl Into<CowArray<'a, T, D>>,
    ) -> &mut Entry<'a> {
        self.push(name, T::values(array.into().into_dyn()))
    }

    fn push(&mut self, name: &str, values: Values<'a>) -> &mut Entry<'a> {
        let [unit, axes, about] = [const { String::new() }; 3];
        let (name, last) = (name.into(), self.0.len());
        let cards = Vec::new();
        self.0.push(Entry { name, values, result: false, note: false, unit, axes, about, cards });
        &mut self.0[last]
    }

    /// Adds an array whose floating-point numbers are written in the precision that is asked for.
    pub fn add_result<T: Element, D: Dimension>(
        &mut self,
        name: &str,
        array: impl Into<CowArray<'a, T, D>>,
    ) -> &mut Entry<'a> {
        let entry = self.add(name, array);
        entry.result = true;
        entry
    }
}

// Describe an array in words
impl Entry<'_> {
    /// Tells its unit, as FITS spells it: `rad2`, `m rad`.
    pub fn unit(&mut self, unit: &str) -> &mut Self {
        self.unit = unit.into();
        self
    }

    /// Tells the names of its axes, the slowest first, with commas between them.
    pub fn axes(&mut self, axes: &str) -> &mut Self {
        self.axes = axes.into();
        self
    }

    /// Tells what it is, in a sentence.
    pub fn about(&mut self, about: &str) -> &mut Self {
        self.about = about.into();
        self
    }

    // Shape of an entry
    pub(crate) fn shape(&self) -> &[usize] {
        match &self.values {
            Values::F64(array) => array.shape(),
            Values::F32(array) => array.shape(),
            Values::C64(array) => array.shape(),
            Values::C32(array) => array.shape(),
            Values::I64(array) => array.shape(),
            Values::Bool(array) => array.shape(),
            Values::Text(_) => &[],
            Values::Table(table) => &table.rows,
        }
    }
}

// Cards of an entry's own
impl Entry<'_> {
    /// Adds a card with a text to the header of the array; only files in FITS have it.
    pub fn card(&mut self, key: &str, text: &str) -> &mut Self {
        self.cards.push((key.into(), Card::Text(text.into())));
        self
    }

    /// Adds a card with a number to the header of the array; only files in FITS have it.
    pub fn number_card(&mut self, key: &str, number: f64) -> &mut Self {
        self.cards.push((key.into(), Card::Number(number)));
        self
    }
}

/// What stands in a card of an entry.
#[derive(Debug)]
pub(super) enum Card {
    Text(String),
    Number(f64),
}

// Texts, notes and tables
impl<'a> Arrays<'a> {
    /// Adds a text of any length.
    pub fn add_text(&mut self, name: &str, text: impl Into<String>) -> &mut Entry<'a> {
        self.push(name, Values::Text(text.into()))
    }

    /// Adds a table.
    pub fn add_table(&mut self, name: &str, table: Table) -> &mut Entry<'a> {
        self.push(name, Values::Table(table))
    }

    /// Adds a note about the file: one number or a line of text, by a name of at most eight letters.
    pub fn note(&mut self, name: &str, values: Values<'a>) -> &mut Entry<'a> {
        let entry = self.push(name, values);
        entry.note = true;
        entry
    }
}
/// Columns of a table, each with its name and its unit.
///
/// ```
/// use lenslet::files::Table;
/// let lenslets = [[0.5, 1.5], [-0.5, 2.0]];
/// let table = Table::of(&lenslets).number("x", "m", |place| place[0]).number("y", "m", |place| place[1]).table();
/// # let _ = table;
/// ```
#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: [usize; 1],
}

#[derive(Debug)]
struct Column {
    name: &'static str,
    unit: &'static str,
    cells: Cells,
}

#[derive(Debug)]
enum Cells {
    Integers(Vec<i32>),
    Numbers(Vec<f64>),
}

// Make a table column by column
/// A table in the making, with the list that its columns are taken from.
#[derive(Debug)]
pub struct TableOf<'r, R> {
    rows: &'r [R],
    columns: Vec<Column>,
}

impl Table {
    /// Begins a table with a row for each of these.
    pub fn of<R>(rows: &[R]) -> TableOf<'_, R> {
        TableOf { rows, columns: Vec::new() }
    }
}

impl<R> TableOf<'_, R> {
    /// Adds a column of integers.
    pub fn integer(mut self, name: &'static str, cell: impl Fn(&R) -> i32) -> Self {
        let cells = Cells::Integers(self.rows.iter().map(cell).collect());
        self.columns.push(Column { name, unit: "", cells });
        self
    }

    /// Adds a column of numbers in a unit.
    pub fn number(
        mut self,
        name: &'static str,
        unit: &'static str,
        cell: impl Fn(&R) -> f64,
    ) -> Self {
        let cells = Cells::Numbers(self.rows.iter().map(cell).collect());
        self.columns.push(Column { name, unit, cells });
        self
    }

    /// The table.
    pub fn table(self) -> Table {
        Table { columns: self.columns, rows: [self.rows.len()] }
    }
}

// Write the rows of a table
impl Table {
    /// Bytes of a row.
    fn bytes(&self) -> usize {
        self.columns.iter().map(|column| column.cells.bytes()).sum()
    }

    fn write(&self, number: Number, file: &mut impl Write) -> io::Result<()> {
        let mut rows = Vec::with_capacity(self.bytes() * self.rows[0]);
        for row in 0..self.rows[0] {
            for column in &self.columns {
                match &column.cells {
                    Cells::Integers(cells) => rows.extend(number.four(cells[row].cast_unsigned())),
                    Cells::Numbers(cells) => rows.extend(number.eight(cells[row].to_bits())),
                }
            }
        }
        file.write_all(&rows)
    }
}

// Forms of the columns of a table
impl Cells {
    fn bytes(&self) -> usize {
        match self {
            Self::Integers(_) => 4,
            Self::Numbers(_) => 8,
        }
    }

    /// What NumPy and FITS call the type.
    fn form(&self) -> [&'static str; 2] {
        match self {
            Self::Integers(_) => ["i4", "1J"],
            Self::Numbers(_) => ["f8", "1D"],
        }
    }
}

impl Table {
    /// Name, form in FITS and unit of each column.
    pub(super) fn columns(&self) -> impl ExactSizeIterator<Item = [&'static str; 3]> {
        self.columns.iter().map(|column| [column.name, column.cells.form()[1], column.unit])
    }

    /// The type of a row, as NumPy describes it.
    fn descriptor(&self) -> String {
        let field =
            |column: &Column| format!("('{}', '{ORDER}{}')", column.name, column.cells.form()[0]);
        format!("[{}]", self.columns.iter().map(field).collect::<Vec<_>>().join(", "))
    }
}

/// The order of bytes of this machine, as NumPy writes it.
const ORDER: char = if cfg!(target_endian = "big") { '>' } else { '<' };

// Names and shapes of the arrays
impl Arrays<'_> {
    /// Name and shape of each array, in their order.
    pub fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let entries = self.0.iter().filter(|entry| !entry.note);
        entries.map(|entry| (entry.name.clone(), entry.shape().to_vec())).collect()
    }
}

// Form of a number in a file
/// The form of one number in a file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Number {
    pub kind: Kind,
    pub bytes: usize,
    /// Whether the most significant byte comes first.
    pub big_endian: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Float,
    Signed,
    Unsigned,
    /// One byte, 0 or 1.
    Bool,
}

// Choose the form of the numbers
impl Entry<'_> {
    /// The form in which the numbers are written; a truth value takes a byte.
    pub(crate) fn number(&self, precision: Precision, big_endian: bool) -> Number {
        let float = |own| match precision {
            _ if !self.result => own,
            Precision::F64 => 8,
            Precision::F32 => 4,
        };
        let (kind, bytes) = match self.values {
            Values::F64(_) => (Kind::Float, float(8)),
            Values::F32(_) => (Kind::Float, float(4)),
            Values::C64(_) => (Kind::Float, 16),
            Values::C32(_) => (Kind::Float, 8),
            Values::I64(_) => (Kind::Signed, 8),
            Values::Bool(_) => (Kind::Bool, 1),
            Values::Text(ref text) => (Kind::Unsigned, text.len()),
            Values::Table(ref table) => (Kind::Unsigned, table.bytes()),
        };
        Number { kind, bytes, big_endian }
    }
}

// Write numbers as bytes
/// Bytes that are gathered before they are handed to the file.
const BUFFER: usize = 1 << 16;

/// Writes an array in the order of its indices, the last the fastest.
fn write_each<T: Copy, const PARTS: usize, const BYTES: usize>(
    array: &CowArray<T, IxDyn>,
    to_bytes: impl Fn(T) -> [[u8; BYTES]; PARTS],
    file: &mut impl Write,
) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(BUFFER + PARTS * BYTES);
    for value in array {
        buffer.extend_from_slice(to_bytes(*value).as_flattened());
        if buffer.len() >= BUFFER {
            file.write_all(&buffer)?;
            buffer.clear();
        }
    }
    file.write_all(&buffer)
}

// Turn numbers into bytes
impl Number {
    fn eight(self, bits: u64) -> [u8; 8] {
        if self.big_endian { bits.to_be_bytes() } else { bits.to_le_bytes() }
    }

    fn four(self, bits: u32) -> [u8; 4] {
        if self.big_endian { bits.to_be_bytes() } else { bits.to_le_bytes() }
    }

    /// Writes all values in this form.
    pub(super) fn write(self, values: &Values, file: &mut impl Write) -> io::Result<()> {
        let single = self.bytes == 4;
        match values {
            Values::F64(x) if single => {
                refuse_range(x)?;
                write_each(x, |x| [self.four((x as f32).to_bits())], file)
            }
            Values::F64(x) => write_each(x, |x| [self.eight(x.to_bits())], file),
            Values::F32(x) if single => write_each(x, |x| [self.four(x.to_bits())], file),
            Values::F32(x) => write_each(x, |x| [self.eight(f64::from(x).to_bits())], file),
            Values::C64(x) => {
                write_each(x, |x| [x.re, x.im].map(|x| self.eight(x.to_bits())), file)
            }
            Values::C32(x) => write_each(x, |x| [x.re, x.im].map(|x| self.four(x.to_bits())), file),
            Values::I64(x) => write_each(x, |x| [self.eight(x.cast_unsigned())], file),
            Values::Bool(x) => write_each(x, |x| [[u8::from(x)]], file),
            Values::Text(text) => file.write_all(text.as_bytes()),
            Values::Table(table) => table.write(self, file),
        }
    }
}

// Refuse what leaves single precision
fn refuse_range(array: &CowArray<f64, IxDyn>) -> io::Result<()> {
    let sizes = array.iter().map(|x| x.abs()).filter(|x| x.is_finite());
    let largest = sizes.fold(0.0, f64::max);
    let rounded = largest as f32;
    if rounded.is_finite() && (rounded > 0.0 || largest == 0.0) {
        return Ok(());
    }
    let reason =
        format!("{largest:e}, the largest number, is beyond the range of single precision");
    Err(io::Error::new(ErrorKind::InvalidData, reason))
}

// Write the arrays as an archive
impl Arrays<'_> {
    /// Writes all arrays, in one of the formats, results in the given precision.
    ///
    /// # Errors
    /// What the operating system says; `InvalidInput` where the format holds one array, and there is another number of them.
    pub fn write<W: Write + Seek>(
        &self,
        file: W,
        format: ArrayFormat,
        precision: Precision,
    ) -> io::Result<()> {
        match format {
            ArrayFormat::Npz => self.write_npz(file, precision),
            ArrayFormat::Npy => self.write_npy(file, precision),
            ArrayFormat::Fits => self.write_fits(file, precision),
        }
    }

    // Write an archive of npy files
    fn write_npz<W: Write + Seek>(&self, writer: W, precision: Precision) -> io::Result<()> {
        let mut archive = ZipWriter::new(ErrorLatch::new(writer));
        for entry in &self.0 {
            let widest = entry.number(precision, false).bytes.max(8);
            let length = entry.shape().iter().fold(widest, |size, n| size.saturating_mul(*n));
            let options = SimpleFileOptions::default().large_file(length >= 1 << 31);
            let options = options.compression_method(CompressionMethod::Stored);
            archive.start_file(format!("{}.npy", entry.name), options).map_err(zip_error)?;
            entry.write_npy(&mut archive, precision)?;
        }
        archive.finish().map(drop).map_err(zip_error)
    }

    // Write the only array by itself
    fn write_npy(&self, mut file: impl Write, precision: Precision) -> io::Result<()> {
        let [entry] = &self.0[..] else {
            let reason = format!("an .npy holds one array, and there are {}", self.0.len());
            return Err(io::Error::new(ErrorKind::InvalidInput, reason));
        };
        entry.write_npy(&mut file, precision)?;
        file.flush()
    }
}

// Write an array as NumPy does
impl Entry<'_> {
    /// Writes the array as the content of an `.npy`.
    fn write_npy(&self, file: &mut impl Write, precision: Precision) -> io::Result<()> {
        let number = self.number(precision, cfg!(target_endian = "big"));
        file.write_all(&self.npy_header(number)?)?;
        match &self.values {
            // A letter of a text takes four bytes.
            Values::Text(text) => {
                text.chars().try_for_each(|c| file.write_all(&u32::from(c).to_ne_bytes()))
            }
            values => number.write(values, file),
        }
    }
}

// Describe an array to NumPy
impl Entry<'_> {
    fn npy_header(&self, number: Number) -> io::Result<Vec<u8>> {
        let of_text = |text: String| text.parse().map_err(io::Error::other);
        let type_descriptor = match (&self.values, number.kind, number.bytes) {
            (Values::Text(text), ..) => {
                of_text(format!("'{ORDER}U{}'", text.chars().count().max(1)))?
            }
            (Values::Table(table), ..) => of_text(table.descriptor())?,
            (Values::C64(_) | Values::C32(_), _, bytes) => of_text(format!("'{ORDER}c{bytes}'"))?,
            (_, Kind::Float, 4) => f32::type_descriptor(),
            (_, Kind::Float, _) => f64::type_descriptor(),
            (_, Kind::Bool, _) => bool::type_descriptor(),
            _ => i64::type_descriptor(),
        };
        let (layout, shape) = (Layout::Standard, self.shape().to_vec());
        let header = Header { type_descriptor, layout, shape };
        header.to_bytes().map_err(io::Error::other)
    }
}

/// What the operating system said, without the archive's own words around it.
pub(super) fn zip_error(error: ZipError) -> io::Error {
    match error {
        ZipError::Io(error) => error,
        other => io::Error::other(other),
    }
}

// Swallow what follows an error
/// A writer that does nothing any more after its first error, and says that all is well.
#[derive(Debug)]
pub(super) struct ErrorLatch<W> {
    writer: W,
    failed: bool,
    /// Where it writes, or would.
    place: u64,
}

impl<W> ErrorLatch<W> {
    pub(super) fn new(writer: W) -> Self {
        Self { writer, failed: false, place: 0 }
    }
}

impl<W: Write> Write for ErrorLatch<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = if self.failed { Ok(bytes.len()) } else { self.writer.write(bytes) };
        match &written {
            Ok(length) => {
                self.place += *length as u64;
                self.failed |= *length == 0 && !bytes.is_empty();
            }
            Err(error) => self.failed |= error.kind() != ErrorKind::Interrupted,
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.failed {
            return Ok(());
        }
        self.writer.flush().inspect_err(|_| self.failed = true)
    }
}

// Seek in what is swallowed
impl<W: Seek> Seek for ErrorLatch<W> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.place = match to {
            to if !self.failed => self.writer.seek(to).inspect_err(|_| self.failed = true)?,
            io::SeekFrom::Start(place) => place,
            io::SeekFrom::Current(by) | io::SeekFrom::End(by) => {
                self.place.saturating_add_signed(by)
            }
        };
        Ok(self.place)
    }
}

// Tests of arrays in files
#[cfg(test)]
mod tests {
    use super::*;
    use fitsio::{FitsFile, hdu::HduInfo, images::ImageType};
    use ndarray::{Array1, Array2, Array3, Ix0, Ix2, Ix3, OwnedRepr, arr0, array};
    use ndarray_npy::{NpzReader, ReadNpyExt};

    type Checked = Result<(), Box<dyn std::error::Error>>;

    // One array of each type
    fn one_of_each(matrix: &Array2<f64>) -> Arrays<'_> {
        let mut arrays = Arrays::default();
        let cube = Array3::from_shape_fn((2, 3, 5), |(k, j, i)| (15 * k + 5 * j + i) as f32 / 29.0);
        arrays.add_result("matrix", matrix.t()).unit("m rad").axes("y, x").about("it's a test");
        arrays.add("exact", matrix.view());
        arrays.add_result("cube", cube);
        arrays.add("pitch", arr0(0.4875)).unit("m");
        arrays.add("valid", array![[true, false, true]]);
        arrays.add("signed", array![-3_i64, i64::MIN]);
        arrays.add("counts", array![7_u32, u32::MAX]);
        arrays.add("sizes", array![1_usize << 40]);
        arrays.add("none", Array2::<f64>::zeros((0, 4)));
        arrays
    }

    fn matrix() -> Array2<f64> {
        array![[0.1, -2e-13, 3.0], [4.0, 5.0, f64::NAN]]
    }

    fn written(format: ArrayFormat, precision: Precision) -> io::Result<Vec<u8>> {
        let mut file = io::Cursor::new(Vec::new());
        one_of_each(&matrix()).write(&mut file, format, precision)?;
        Ok(file.into_inner())
    }

    // Find the arrays in the archive
    #[test]
    fn archives_hold_the_arrays() -> Checked {
        let same = |a: f64, b: f64| a.to_bits() == b.to_bits();
        let mut npz = NpzReader::new(io::Cursor::new(written(ArrayFormat::Npz, Precision::F64)?))?;
        let found: Array2<f64> = npz.by_name("matrix")?;
        assert_eq!(found.dim(), (3, 2));
        assert!(found.iter().zip(matrix().t()).all(|(a, b)| same(*a, *b)));
        let pitch = npz.by_name::<OwnedRepr<f64>, Ix0>("pitch")?;
        assert_eq!(pitch, arr0(0.4875));
        assert_eq!(npz.by_name::<OwnedRepr<f64>, Ix3>("cube")?.dim(), (2, 3, 5));
        let valid: Array2<bool> = npz.by_name("valid")?;
        assert_eq!(valid, array![[true, false, true]]);
        // Find the integers and the single numbers
        let signed: Array1<i64> = npz.by_name("signed")?;
        assert_eq!(signed, array![-3, i64::MIN]);
        let counts: Array1<i64> = npz.by_name("counts")?;
        assert_eq!(counts, array![7, (1 << 32) - 1]);
        assert_eq!(npz.by_name::<OwnedRepr<f64>, Ix2>("none")?.dim(), (0, 4));
        let mut npz = NpzReader::new(io::Cursor::new(written(ArrayFormat::Npz, Precision::F32)?))?;
        let single: Array2<f32> = npz.by_name("matrix")?;
        assert_eq!((single[[0, 0]], single[[1, 0]]), (0.1, -2e-13));
        let exact: Array2<f64> = npz.by_name("exact")?;
        assert!(same(exact[[0, 0]], 0.1) && same(exact[[0, 1]], -2e-13));
        let cube: Array3<f32> = npz.by_name("cube")?;
        assert_eq!((cube[[0, 0, 1]], cube[[1, 2, 4]]), (1.0 / 29.0, 1.0));
        Ok(())
    }

    // Find the arrays in the images
    #[test]
    fn images_hold_the_arrays() -> Checked {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("arrays.fits");
        for (precision, expected) in
            [(Precision::F64, ImageType::Double), (Precision::F32, ImageType::Float)]
        {
            std::fs::write(&path, written(ArrayFormat::Fits, precision)?)?;
            let mut fits = FitsFile::open(&path)?;
            assert_eq!(fits.iter().count(), 10);
            // Check the form of each image
            let forms: [(&str, &[usize], ImageType); 9] = [
                ("MATRIX", &[3, 2], expected),
                ("EXACT", &[2, 3], ImageType::Double),
                ("CUBE", &[2, 3, 5], expected),
                ("PITCH", &[1], ImageType::Double),
                ("VALID", &[1, 3], ImageType::UnsignedByte),
                ("SIGNED", &[2], ImageType::LongLong),
                ("COUNTS", &[2], ImageType::LongLong),
                ("SIZES", &[1], ImageType::LongLong),
                ("NONE", &[0, 4], ImageType::Double),
            ];
            for (name, wanted, wanted_type) in forms {
                match fits.hdu(name)?.info {
                    HduInfo::ImageInfo { shape, image_type } => {
                        assert_eq!((&shape[..], image_type), (wanted, wanted_type), "{name}");
                    }
                    other => panic!("{name} is {other:?}"),
                }
            }
            // Check the numbers of some images
            let hdu = fits.hdu("MATRIX")?;
            let found: Vec<f64> = hdu.read_image(&mut fits)?;
            let round = |x: f64| if precision == Precision::F32 { f64::from(x as f32) } else { x };
            assert!(
                found.iter().zip(matrix().t()).all(|(a, b)| a.to_bits() == round(*b).to_bits())
            );
            assert_eq!(hdu.read_key::<String>(&mut fits, "BUNIT")?, "m rad");
            let valid: Vec<u8> = fits.hdu("VALID")?.read_image(&mut fits)?;
            assert_eq!(valid, [1, 0, 1]);
            let signed: Vec<i64> = fits.hdu("SIGNED")?.read_image(&mut fits)?;
            assert_eq!(signed, [-3, i64::MIN]);
            let pitch: Vec<f64> = fits.hdu("PITCH")?.read_image(&mut fits)?;
            assert_eq!(pitch, [0.4875]);
            let sizes: Vec<i64> = fits.hdu("SIZES")?.read_image(&mut fits)?;
            assert_eq!(sizes, [1 << 40]);
        }
        Ok(())
    }

    // Fail at every place of a file
    #[test]
    fn no_shortage_goes_unnoticed() -> io::Result<()> {
        for format in [ArrayFormat::Npz, ArrayFormat::Fits] {
            let length = written(format, Precision::F64)?.len();
            let mut memory = vec![0; length];
            let matrix = matrix();
            let arrays = one_of_each(&matrix);
            for room in (0..length).step_by(61).chain([length - 1, length]) {
                let file = io::Cursor::new(&mut memory[..room]);
                let result = arrays.write(file, format, Precision::F64);
                assert_eq!(result.is_ok(), room == length, "{format:?}, {room} of {length}");
            }
        }
        Ok(())
    }

    // Write one array by itself
    #[test]
    fn an_npy_holds_one_array() -> Checked {
        let matrix = matrix();
        let mut arrays = Arrays::default();
        arrays.add_result("matrix", matrix.t());
        let mut file = io::Cursor::new(Vec::new());
        arrays.write(&mut file, ArrayFormat::Npy, Precision::F32)?;
        let found = Array2::<f32>::read_npy(&file.into_inner()[..])?;
        assert_eq!((found.dim(), found[[0, 0]], found[[1, 0]]), ((3, 2), 0.1, -2e-13));
        arrays.add("pitch", arr0(0.5));
        let two = arrays.write(io::Cursor::new(Vec::new()), ArrayFormat::Npy, Precision::F64);
        assert!(
            two.is_err_and(|error| error.to_string() == "an .npy holds one array, and there are 2")
        );
        Ok(())
    }

    // Find notes, texts and tables
    /// A note of more than one card, a text and a table of two rows.
    fn explained() -> Arrays<'static> {
        let mut arrays = Arrays::default();
        arrays.add("slopes", array![[1.0, 2.0]]);
        arrays.note("command", Values::Text(format!("lenslet {}é end", "it's ".repeat(30))));
        arrays.note("tolerance", Values::F64(arr0(1e-10).into_dyn().into()));
        arrays.note("seed", Values::I64(arr0(-7_i64).into_dyn().into()));
        arrays.add_text("system", "r0 = 0.1 # µ\nlast line");
        let table = Table::of(&[(3, 0.25), (-1, -2e-13)]);
        let table = table.integer("star", |row| row.0).number("x", "m", |row| row.1).table();
        arrays.add_table("slope_table", table);
        arrays
    }

    #[test]
    fn notes_texts_and_tables_come_back_from_fits() -> Checked {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.fits");
        let file = std::fs::File::create(&path)?;
        explained().write(file, ArrayFormat::Fits, Precision::F64)?;
        let mut fits = FitsFile::open(&path)?;
        let first = fits.primary_hdu()?;
        assert_eq!(first.read_key::<f64>(&mut fits, "TOLERANC")?, 1e-10);
        assert_eq!(first.read_key::<i64>(&mut fits, "SEED")?, -7);
        let table = fits.hdu("SLOPE_TABLE")?;
        assert_eq!(table.read_col::<i32>(&mut fits, "star")?, [3, -1]);
        assert_eq!(table.read_col::<f64>(&mut fits, "x")?, [0.25, -2e-13]);
        assert_eq!(table.read_key::<String>(&mut fits, "TUNIT2")?, "m");
        let bytes = std::fs::read(&path)?;
        // Read a long note card by card
        let cards = bytes[..2880].chunks(80).map(String::from_utf8_lossy);
        let parts =
            cards.filter(|card| card.starts_with("COMMAND =") || card.starts_with("CONTINUE"));
        let parts: Vec<String> = parts.map(|card| card[10..].trim_end().to_string()).collect();
        let inside = |part: &String| part[1..part.len() - 1].replace("''", "'");
        let inside: Vec<String> = parts.iter().map(inside).collect();
        let (last, rest) = inside.split_last().ok_or("no command")?;
        assert!(rest.len() > 1 && rest.iter().all(|part| part.ends_with('&')), "{parts:?}");
        let command = rest.concat().replace('&', "") + last;
        assert_eq!(command, format!("lenslet {}? end", "it's ".repeat(30)));
        let text = "r0 = 0.1 # µ\nlast line".as_bytes();
        let start = bytes.windows(text.len()).position(|part| part == text);
        assert!(start.is_some_and(|start| start % 2880 == 0));
        assert!(fits.iter().count() == 4 && bytes.len() % 2880 == 0);
        Ok(())
    }

    // Find texts and tables in the archive
    #[test]
    fn notes_texts_and_tables_come_back_from_archives() -> Checked {
        let mut file = io::Cursor::new(Vec::new());
        explained().write(&mut file, ArrayFormat::Npz, Precision::F64)?;
        let mut archive = zip::ZipArchive::new(file)?;
        let mut member = |name: &str| -> Result<(String, Vec<u8>), Box<dyn std::error::Error>> {
            let mut bytes = Vec::new();
            io::Read::read_to_end(&mut archive.by_name(name)?, &mut bytes)?;
            let end = bytes.iter().position(|byte| *byte == b'\n').ok_or("no header")? + 1;
            Ok((String::from_utf8_lossy(&bytes[10..end]).into(), bytes[end..].to_vec()))
        };
        let (header, data) = member("system.npy")?;
        assert!(header.contains("'<U22'") && header.contains("'shape': ()"), "{header}");
        let letters = data.chunks(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]));
        let text: Option<String> = letters.map(char::from_u32).collect();
        assert_eq!(text.as_deref(), Some("r0 = 0.1 # µ\nlast line"));
        let (header, data) = member("slope_table.npy")?;
        assert!(header.contains("[('star', '<i4'), ('x', '<f8')]"), "{header}");
        let rows: Vec<u8> = [(3_i32, 0.25_f64), (-1, -2e-13)]
            .iter()
            .flat_map(|(star, x)| [star.to_le_bytes().to_vec(), x.to_le_bytes().to_vec()].concat())
            .collect();
        assert!(header.contains("'shape': (2,)") && data == rows, "{header}");
        assert_eq!(member("seed.npy")?.1, (-7_i64).to_le_bytes());
        Ok(())
    }

    // Refuse what single precision does not reach
    #[test]
    fn nothing_becomes_infinite_on_the_way() {
        let far = array![1.0, -3.5e38, f64::NAN];
        let mut arrays = Arrays::default();
        arrays.add_result("far", far.view());
        let written =
            |format, precision| arrays.write(io::Cursor::new(Vec::new()), format, precision);
        for format in [ArrayFormat::Npz, ArrayFormat::Npy, ArrayFormat::Fits] {
            assert!(written(format, Precision::F64).is_ok());
            let error = written(format, Precision::F32).unwrap_err().to_string();
            assert!(error.contains("3.5e38, the largest number, is beyond"), "{format:?}: {error}");
        }
        for (small, fits) in
            [(array![1e-50, 0.0], false), (array![1e-50, 1.0], true), (array![0.0, -0.0], true)]
        {
            let mut arrays = Arrays::default();
            arrays.add_result("small", small.view());
            let file = io::Cursor::new(Vec::new());
            assert_eq!(
                arrays.write(file, ArrayFormat::Npz, Precision::F32).is_ok(),
                fits,
                "{small}"
            );
        }
    }

    // Choose formats by their endings
    #[test]
    fn endings_decide_and_contradictions_are_refused() {
        use ArrayFormat::{Fits, Npy, Npz};
        let of = |name: &str, fitting: &[ArrayFormat], asked| {
            ArrayFormat::of(("output", Path::new(name)), fitting, asked)
                .map_err(|refused| refused.to_string())
        };
        for (name, one, many) in [
            ("c.npz", Some(Npz), Some(Npz)),
            ("c.NPY", Some(Npy), None),
            ("c.fits", Some(Fits), Some(Fits)),
            ("c.FIT", Some(Fits), Some(Fits)),
            ("c.fts", Some(Fits), Some(Fits)),
        ] {
            assert_eq!(of(name, &ArrayFormat::ALL, None).ok(), one, "{name}");
            assert_eq!(of(name, &ArrayFormat::OF_MANY, None).ok(), many, "{name}");
        }
        for name in ["c", "fits", ".npz", "c.h5", "c.fits.gz", "c.npz.", "c.fits+1"] {
            let refused = of(name, &ArrayFormat::OF_MANY, None);
            let expected = "a file name that ends in .npz, .fits, .fit or .fts";
            assert_eq!(refused, Err(format!("output = {name}: expected {expected}")));
            assert_eq!(of(name, &ArrayFormat::OF_MANY, Some(Npz)), Ok(Npz));
        }
        let refused = of("c.fits", &ArrayFormat::OF_MANY, Some(Npz));
        assert_eq!(refused, Err("output = c.fits: expected a file name that ends in .npz".into()));
        for (name, asked) in [("c.npz", Fits), ("c.npy", Npz), ("c.npy", Npy), ("c", Npy)] {
            assert!(of(name, &ArrayFormat::OF_MANY, Some(asked)).is_err(), "{name} {asked:?}");
        }
    }
}
