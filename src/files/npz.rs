// Tangled from book/src/npz.md: edit there, or here and run cargo tangle stitch.
//! Data sets as NumPy's archives `.npz`; one array as `.npy`, too.

use crate::data::table::{Cells, Column, Table};
use crate::data::{Attribute, AttributeValue, Coordinate, DataSet, Positions};
use crate::data::{TypedArray, Values, Variable};
use crate::files::npz_notes::LONGEST;
use crate::numerics::real::Precision;
use ndarray::{Array1, CowArray, IxDyn, arr0};
use ndarray_npy::WritableElement;
use ndarray_npy::npy::header::{Header, Layout};
use serde_json::{Value, json};
use std::io::{self, ErrorKind, Seek, Write};
use zip::{CompressionMethod, ZipWriter, result::ZipError, write::SimpleFileOptions};

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
impl Variable<'_> {
    /// The form in which the numbers are written; a truth value takes a byte.
    pub(crate) fn number(&self, precision: Precision, big_endian: bool) -> Number {
        let float = |own| match precision {
            _ if !self.rounded => own,
            Precision::F64 => 8,
            Precision::F32 => 4,
        };
        let (kind, bytes) = match &self.values {
            Values::Array(TypedArray::F64(_)) => (Kind::Float, float(8)),
            Values::Array(TypedArray::F32(_)) => (Kind::Float, float(4)),
            Values::Array(TypedArray::C64(_)) => (Kind::Float, 16),
            Values::Array(TypedArray::C32(_)) => (Kind::Float, 8),
            Values::Array(TypedArray::I64(_)) => (Kind::Signed, 8),
            Values::Array(TypedArray::Bool(_)) => (Kind::Bool, 1),
            Values::Text(text) => (Kind::Unsigned, text.len()),
            Values::Table(table) => (Kind::Unsigned, table.bytes()),
        };
        Number { kind, bytes, big_endian }
    }
}

// Write numbers as bytes
/// Bytes that are gathered before they are handed to the file.
const BUFFER: usize = 1 << 16;

/// Writes an array in the order of its indices, the last the fastest.
pub(super) fn write_each<T: Copy, const PARTS: usize, const BYTES: usize>(
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
    // Numbers in their order of bytes
    fn eight(self, bits: u64) -> [u8; 8] {
        if self.big_endian { bits.to_be_bytes() } else { bits.to_le_bytes() }
    }

    fn four(self, bits: u32) -> [u8; 4] {
        if self.big_endian { bits.to_be_bytes() } else { bits.to_le_bytes() }
    }

    /// Writes all values in this form.
    pub(super) fn write(self, values: &Values, file: &mut impl Write) -> io::Result<()> {
        match values {
            Values::Array(array) => self.write_array(array, file),
            Values::Text(text) => file.write_all(text.as_bytes()),
            Values::Table(table) => table.write(self, file),
        }
    }

    // Write each element of an array
    /// Writes all elements in this form, the last dimension the fastest.
    pub(super) fn write_array(self, array: &TypedArray, file: &mut impl Write) -> io::Result<()> {
        let single = self.bytes == 4;
        match array {
            TypedArray::F64(x) if single => {
                refuse_range(x)?;
                write_each(x, |x| [self.four((x as f32).to_bits())], file)
            }
            TypedArray::F64(x) => write_each(x, |x| [self.eight(x.to_bits())], file),
            TypedArray::F32(x) if single => write_each(x, |x| [self.four(x.to_bits())], file),
            TypedArray::F32(x) => write_each(x, |x| [self.eight(f64::from(x).to_bits())], file),
            TypedArray::C64(x) => {
                write_each(x, |x| [x.re, x.im].map(|x| self.eight(x.to_bits())), file)
            }
            TypedArray::C32(x) => {
                write_each(x, |x| [x.re, x.im].map(|x| self.four(x.to_bits())), file)
            }
            TypedArray::I64(x) => write_each(x, |x| [self.eight(x.cast_unsigned())], file),
            TypedArray::Bool(x) => write_each(x, |x| [[u8::from(x)]], file),
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
                    // A short text of a row
                    Cells::Texts(cells) => {
                        let end = rows.len() + column.cells.bytes();
                        rows.extend(cells[row].bytes());
                        rows.resize(end, 0);
                    }
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
            Self::Texts(cells) => cells.iter().map(String::len).max().unwrap_or(0).max(1),
        }
    }

    /// What NumPy and FITS call the type.
    fn form(&self) -> [String; 2] {
        match self {
            Self::Integers(_) => [format!("{ORDER}i4"), "1J".into()],
            Self::Numbers(_) => [format!("{ORDER}f8"), "1D".into()],
            Self::Texts(_) => [format!("|S{}", self.bytes()), format!("{}A", self.bytes())],
        }
    }
}

impl Table {
    /// Name, form in FITS and unit of each column.
    pub(super) fn forms(&self) -> impl ExactSizeIterator<Item = [String; 3]> {
        self.columns.iter().map(|column| {
            let [_, form] = column.cells.form();
            [column.name.clone(), form, column.unit.clone()]
        })
    }

    /// The type of a row, as NumPy describes it.
    fn descriptor(&self) -> String {
        let field = |column: &Column| format!("('{}', '{}')", column.name, column.cells.form()[0]);
        format!("[{}]", self.columns.iter().map(field).collect::<Vec<_>>().join(", "))
    }
}

/// The order of bytes of this machine, as NumPy writes it.
const ORDER: char = if cfg!(target_endian = "big") { '>' } else { '<' };

// Write the arrays as an archive
impl DataSet<'_> {
    // Write an archive of npy files
    pub(super) fn write_npz<W: Write + Seek>(
        &self,
        writer: W,
        precision: Precision,
    ) -> io::Result<()> {
        let mut archive = ZipWriter::new(ErrorLatch::new(writer));
        let (flat, notes) = self.flat();
        for (variable, note) in flat.variables.iter().zip(&notes) {
            let widest = variable.number(precision, false).bytes.max(8);
            let length = variable.shape().iter().fold(widest, |size, n| size.saturating_mul(*n));
            let options = SimpleFileOptions::default().large_file(length >= 1 << 31);
            let options = options.compression_method(CompressionMethod::Stored);
            let note = Some(note.to_string()).filter(|note| note.len() <= LONGEST);
            let options = options.into_full_options().with_file_comment(note.unwrap_or_default());
            archive.start_file(format!("{}.npy", variable.name), options).map_err(zip_error)?;
            variable.write_npy(&mut archive, precision)?;
        }
        archive.finish().map_err(zip_error)?.flush()
    }

    // Write the only array by itself
    pub(super) fn write_npy(&self, mut file: impl Write, precision: Precision) -> io::Result<()> {
        let (flat, _) = self.flat();
        let [variable] = &flat.variables[..] else {
            let reason = format!("an .npy holds one array, and there are {}", flat.variables.len());
            return Err(io::Error::new(ErrorKind::InvalidInput, reason));
        };
        variable.write_npy(&mut file, precision)?;
        file.flush()
    }

    // Everything as a variable
    /// A data set without coordinates and attributes, all of which are variables; and a [note](Variable::member_note) about each.
    fn flat(&self) -> (DataSet<'_>, Vec<Value>) {
        let (mut flat, mut names) = (DataSet::default(), Names(Vec::new()));
        let mut notes = Vec::new();
        let is_text = |variable: &&Variable| matches!(variable.values, Values::Text(_));
        for variable in self.iter().filter(|variable| !is_text(variable)) {
            notes.push(variable.member_note());
            flat.variables.push(Variable { name: names.free(&variable.name), ..variable.view() });
        }
        self.flatten_coordinates((&mut flat, &mut notes), &mut names);
        // Attributes as variables
        for Attribute { name, value, .. } in &self.attributes {
            let is_flag = matches!(value, AttributeValue::Flag(_));
            notes.push(json!({ "attribute": name, "flag": is_flag }));
            let name = names.free(name);
            match value {
                AttributeValue::Text(text) => flat.add_text(&name, text.clone()),
                AttributeValue::Number(x) => flat.add(&name, arr0(*x)),
                AttributeValue::Integer(n) => flat.add(&name, arr0(*n)),
                AttributeValue::Flag(is) => flat.add(&name, arr0(i64::from(*is))),
                AttributeValue::Numbers(all) => flat.add(&name, Array1::from(all.clone())),
            };
        }
        for variable in self.iter().filter(is_text) {
            notes.push(variable.member_note());
            flat.variables.push(Variable { name: names.free(&variable.name), ..variable.view() });
        }
        (flat, notes)
    }

    // Coordinates as variables
    fn flatten_coordinates(
        &self,
        (flat, notes): (&mut DataSet, &mut Vec<Value>),
        names: &mut Names,
    ) {
        let mut known: Vec<(&Coordinate, usize)> = Vec::new();
        for variable in &self.variables {
            for (one, &count) in variable.dimensions.iter().zip(variable.shape()) {
                if known.contains(&(one, count)) || *one.positions() == Positions::Index {
                    continue;
                }
                let other = known.iter().any(|(other, _)| other.name == one.name);
                known.push((one, count));
                let long = format!("{}_{}", variable.name, one.name);
                let name = names.free(if other { &long } else { &one.name });
                notes.push(json!({ "coordinate": one.name }));
                if one.labels().is_empty() {
                    flat.add(&name, Array1::from(one.samples(count))).unit(&one.unit);
                } else {
                    flat.add_text(&name, one.labels().join(", "));
                }
                if let Some((second, unit, factor)) = &one.second {
                    notes.push(json!({ "coordinate": second }));
                    let samples = Array1::from(one.samples(count)) * *factor;
                    flat.add(&names.free(second), samples).unit(unit);
                }
            }
        }
    }
}

// Names of arrays in an archive
/// Names that are taken.
struct Names(Vec<String>);

impl Names {
    /// The name, with as many lines behind it as make it the only one.
    fn free(&mut self, name: &str) -> String {
        let mut name = name.to_string();
        while self.0.contains(&name) {
            name.push('_');
        }
        self.0.push(name.clone());
        name
    }
}

// Write an array as NumPy does
impl Variable<'_> {
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
impl Variable<'_> {
    fn npy_header(&self, number: Number) -> io::Result<Vec<u8>> {
        let of_text = |text: String| text.parse().map_err(io::Error::other);
        let type_descriptor = match (&self.values, number.kind, number.bytes) {
            (Values::Text(text), ..) => {
                of_text(format!("'{ORDER}U{}'", text.chars().count().max(1)))?
            }
            (Values::Table(table), ..) => of_text(table.descriptor())?,
            (Values::Array(array), _, bytes) if array.is_complex() => {
                of_text(format!("'{ORDER}c{bytes}'"))?
            }
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

// Error of an archive
/// What the operating system said, without the archive's own words around it.
pub(super) fn zip_error(error: ZipError) -> io::Error {
    match error {
        ZipError::Io(error) => error,
        other => io::Error::other(other),
    }
}

// Swallow what follows an error
// Fields of an error latch
/// A writer that does nothing any more after its first error, and says that all is well.
#[derive(Debug)]
pub(super) struct ErrorLatch<W> {
    writer: W,
    failed: bool,
    /// Where it writes, or would.
    place: u64,
}

// Latch without an error
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

    // Flush unless an error has come
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
    use crate::files::Format;
    use fitsio::{FitsFile, hdu::HduInfo, images::ImageType};
    use ndarray::{Array1, Array2, Array3, Ix0, Ix2, Ix3, OwnedRepr, arr0, array};
    use ndarray_npy::{NpzReader, ReadNpyExt};
    use std::path::Path;

    type Checked = Result<(), Box<dyn std::error::Error>>;

    // One array of each type
    fn one_of_each(matrix: &Array2<f64>) -> DataSet<'_> {
        let mut data = DataSet::default();
        let cube = Array3::from_shape_fn((2, 3, 5), |(k, j, i)| (15 * k + 5 * j + i) as f32 / 29.0);
        data.add_result("matrix", matrix.t())
            .unit("m rad")
            .dimensions("y, x")
            .long_name("it's a test");
        data.add("exact", matrix.view());
        data.add_result("cube", cube);
        data.add("pitch", arr0(0.4875)).unit("m");
        data.add("valid", array![[true, false, true]]);
        data.add("signed", array![-3_i64, i64::MIN]);
        data.add("counts", array![7_u32, u32::MAX]);
        data.add("sizes", array![1_usize << 40]);
        data.add("none", Array2::<f64>::zeros((0, 4)));
        data
    }

    fn matrix() -> Array2<f64> {
        array![[0.1, -2e-13, 3.0], [4.0, 5.0, f64::NAN]]
    }

    fn written(format: Format, precision: Precision) -> io::Result<Vec<u8>> {
        let mut file = io::Cursor::new(Vec::new());
        one_of_each(&matrix()).write(&mut file, format, precision)?;
        Ok(file.into_inner())
    }

    // Find the arrays in the archive
    #[test]
    fn archives_hold_the_data() -> Checked {
        let same = |a: f64, b: f64| a.to_bits() == b.to_bits();
        let mut npz = NpzReader::new(io::Cursor::new(written(Format::Npz, Precision::F64)?))?;
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
        let mut npz = NpzReader::new(io::Cursor::new(written(Format::Npz, Precision::F32)?))?;
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
    fn images_hold_the_data() -> Checked {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("data.fits");
        for (precision, expected) in
            [(Precision::F64, ImageType::Double), (Precision::F32, ImageType::Float)]
        {
            std::fs::write(&path, written(Format::Fits, precision)?)?;
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
            for (name, expected, expected_type) in forms {
                match fits.hdu(name)?.info {
                    HduInfo::ImageInfo { shape, image_type } => {
                        assert_eq!((&shape[..], image_type), (expected, expected_type), "{name}");
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
        for format in [Format::Npz, Format::Fits] {
            let length = written(format, Precision::F64)?.len();
            let mut memory = vec![0; length];
            let matrix = matrix();
            let data = one_of_each(&matrix);
            for capacity in (0..length).step_by(61).chain([length - 1, length]) {
                let file = io::Cursor::new(&mut memory[..capacity]);
                let result = data.write(file, format, Precision::F64);
                assert_eq!(
                    result.is_ok(),
                    capacity == length,
                    "{format:?}, {capacity} of {length}"
                );
            }
        }
        Ok(())
    }

    // Write one array by itself
    #[test]
    fn an_npy_holds_one_array() -> Checked {
        let matrix = matrix();
        let mut data = DataSet::default();
        data.add_result("matrix", matrix.t());
        let mut file = io::Cursor::new(Vec::new());
        data.write(&mut file, Format::Npy, Precision::F32)?;
        let found = Array2::<f32>::read_npy(&file.into_inner()[..])?;
        assert_eq!((found.dim(), found[[0, 0]], found[[1, 0]]), ((3, 2), 0.1, -2e-13));
        data.add("pitch", arr0(0.5));
        let two = data.write(io::Cursor::new(Vec::new()), Format::Npy, Precision::F64);
        assert!(
            two.is_err_and(|error| error.to_string() == "an .npy holds one array, and there are 2")
        );
        Ok(())
    }

    // Find notes, texts and tables
    /// A note of more than one card, a text and a table of two rows.
    fn explained() -> DataSet<'static> {
        let mut data = DataSet::default();
        data.add("slopes", array![[1.0, 2.0]]);
        data.note("command", format!("lenslet {}é end", "it's ".repeat(30)), "");
        data.note("tolerance", 1e-10, "");
        data.note("seed", -7, "");
        data.add_text("system", "r0 = 0.1 # µ\nlast line");
        let table = Table::of(&[(3, 0.25), (-1, -2e-13)]);
        let table = table.integer("star", |row| row.0).number("x", "m", |row| row.1).table();
        data.add_table("slope_table", table);
        data
    }

    #[test]
    fn notes_texts_and_tables_come_back_from_fits() -> Checked {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.fits");
        let file = std::fs::File::create(&path)?;
        explained().write(file, Format::Fits, Precision::F64)?;
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
        explained().write(&mut file, Format::Npz, Precision::F64)?;
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
        let mut data = DataSet::default();
        data.add_result("far", far.view());
        let written =
            |format, precision| data.write(io::Cursor::new(Vec::new()), format, precision);
        for format in [Format::Npz, Format::Npy, Format::Fits] {
            assert!(written(format, Precision::F64).is_ok());
            let error = written(format, Precision::F32).unwrap_err().to_string();
            assert!(error.contains("3.5e38, the largest number, is beyond"), "{format:?}: {error}");
        }
        for (small, fits) in
            [(array![1e-50, 0.0], false), (array![1e-50, 1.0], true), (array![0.0, -0.0], true)]
        {
            let mut data = DataSet::default();
            data.add_result("small", small.view());
            let file = io::Cursor::new(Vec::new());
            assert_eq!(data.write(file, Format::Npz, Precision::F32).is_ok(), fits, "{small}");
        }
    }

    // Choose formats by their endings
    #[test]
    fn endings_decide_and_contradictions_are_refused() {
        use Format::{Fits, Npy, Npz};
        let of = |name: &str, fitting: &[Format], format| {
            Format::of(("output", Path::new(name)), fitting, format)
                .map_err(|refused| refused.to_string())
        };
        for (name, one, many) in [
            ("c.npz", Some(Npz), Some(Npz)),
            ("c.NPY", Some(Npy), None),
            ("c.fits", Some(Fits), Some(Fits)),
            ("c.FIT", Some(Fits), Some(Fits)),
            ("c.fts", Some(Fits), Some(Fits)),
        ] {
            assert_eq!(of(name, &Format::OF_ARRAY, None).ok(), one, "{name}");
            assert_eq!(of(name, &Format::OF_ARRAYS, None).ok(), many, "{name}");
        }
        for name in ["c", "fits", ".npz", "c.h5", "c.fits.gz", "c.npz.", "c.fits+1"] {
            let refused = of(name, &Format::OF_ARRAYS, None);
            let expected = "a file name that ends in .npz, .fits, .fit or .fts";
            assert_eq!(refused, Err(format!("output = {name}: expected {expected}")));
            assert_eq!(of(name, &Format::OF_ARRAYS, Some(Npz)), Ok(Npz));
        }
        let refused = of("c.fits", &Format::OF_ARRAYS, Some(Npz));
        assert_eq!(refused, Err("output = c.fits: expected a file name that ends in .npz".into()));
        for (name, format) in [("c.npz", Fits), ("c.npy", Npz), ("c.npy", Npy), ("c", Npy)] {
            assert!(of(name, &Format::OF_ARRAYS, Some(format)).is_err(), "{name} {format:?}");
        }
    }
}
