// Tangled from book/src/arrays.md: edit there, or here and run cargo tangle stitch.
//! Named arrays in a file, as NumPy's `.npz` or as FITS.

use ndarray::{ArrayView, CowArray, Dimension, IxDyn};
use ndarray_npy::npy::header::{Header, Layout};
use ndarray_npy::{WritableElement, WriteNpyExt};
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
    /// FITS, with an image for each array.
    Fits,
}

impl ArrayFormat {
    /// The format that a file's name suggests: FITS for `.fits`, `.fit` and `.fts`, NumPy's for all others.
    ///
    /// ```
    /// use lenslet::files::ArrayFormat;
    /// assert_eq!(ArrayFormat::of("cov.FITS".as_ref()), ArrayFormat::Fits);
    /// assert_eq!(ArrayFormat::of("fits".as_ref()), ArrayFormat::Npz);
    /// ```
    pub fn of(path: &Path) -> Self {
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        let fits = ["fits", "fit", "fts"].iter().any(|known| extension == *known);
        if fits { Self::Fits } else { Self::Npz }
    }
}

// Precision of the numbers
pub use crate::numerics::real::Precision;

// Names of formats and precisions
impl ArrayFormat {
    /// The ending of such a file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Npz => "npz",
            Self::Fits => "fits",
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
pub struct Arrays<'a>(pub(super) Vec<Entry<'a>>);

// One array with its words
/// An array that will go into a file, and what a reader of the file should know about it.
#[derive(Debug)]
pub struct Entry<'a> {
    pub(super) name: String,
    pub(super) values: Values<'a>,
    result: bool,
    pub(super) unit: String,
    pub(super) axes: String,
    pub(super) about: String,
}

// Elements of the arrays
/// The numbers of an array, of any of the types that we write.
#[derive(Debug)]
pub enum Values<'a> {
    /// Double precision.
    F64(CowArray<'a, f64, IxDyn>),
    /// Single precision.
    F32(CowArray<'a, f32, IxDyn>),
    /// Integers, counts among them.
    I64(CowArray<'a, i64, IxDyn>),
    /// Yes or no.
    Bool(CowArray<'a, bool, IxDyn>),
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
        let (name, values) = (name.into(), T::values(array.into().into_dyn()));
        let [unit, axes, about] = [const { String::new() }; 3];
        let last = self.0.len();
        self.0.push(Entry { name, values, result: false, unit, axes, about });
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
    pub(super) fn shape(&self) -> &[usize] {
        match &self.values {
            Values::F64(array) => array.shape(),
            Values::F32(array) => array.shape(),
            Values::I64(array) => array.shape(),
            Values::Bool(array) => array.shape(),
        }
    }
}

// Names and shapes of the arrays
impl Arrays<'_> {
    /// Name and shape of each array, in their order.
    pub fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.0.iter().map(|entry| (entry.name.clone(), entry.shape().to_vec())).collect()
    }
}
/// Writes one array by itself: as NumPy's `.npy`, or as the only extension of a FITS file with its name and unit.
///
/// # Errors
/// What the operating system says.
pub fn write_single<D: Dimension>(
    file: impl Write + Seek,
    format: ArrayFormat,
    (name, unit): (&str, &str),
    array: ArrayView<f64, D>,
) -> io::Result<()> {
    if format == ArrayFormat::Npz {
        return array.write_npy(file).map_err(io::Error::other);
    }
    let mut arrays = Arrays::default();
    arrays.add(name, array).unit(unit);
    arrays.write(file, format, Precision::F64)
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
    pub(super) fn number(&self, precision: Precision, big_endian: bool) -> Number {
        let float = |own| match precision {
            _ if !self.result => own,
            Precision::F64 => 8,
            Precision::F32 => 4,
        };
        let (kind, bytes) = match self.values {
            Values::F64(_) => (Kind::Float, float(8)),
            Values::F32(_) => (Kind::Float, float(4)),
            Values::I64(_) => (Kind::Signed, 8),
            Values::Bool(_) => (Kind::Bool, 1),
        };
        Number { kind, bytes, big_endian }
    }
}

// Write numbers as bytes
/// Bytes that are gathered before they are handed to the file.
const BUFFER: usize = 1 << 16;

/// Writes an array in the order of its indices, the last the fastest.
fn write_each<T: Copy, const BYTES: usize>(
    array: &CowArray<T, IxDyn>,
    to_bytes: impl Fn(T) -> [u8; BYTES],
    file: &mut impl Write,
) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(BUFFER + BYTES);
    for value in array {
        buffer.extend_from_slice(&to_bytes(*value));
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
            Values::F64(x) if single => write_each(x, |x| self.four((x as f32).to_bits()), file),
            Values::F64(x) => write_each(x, |x| self.eight(x.to_bits()), file),
            Values::F32(x) if single => write_each(x, |x| self.four(x.to_bits()), file),
            Values::F32(x) => write_each(x, |x| self.eight(f64::from(x).to_bits()), file),
            Values::I64(x) => write_each(x, |x| self.eight(x.cast_unsigned()), file),
            Values::Bool(x) => write_each(x, |x| [u8::from(x)], file),
        }
    }
}

// Write the arrays as an archive
impl Arrays<'_> {
    /// Writes all arrays, in one of the formats, results in the given precision.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn write<W: Write + Seek>(
        &self,
        file: W,
        format: ArrayFormat,
        precision: Precision,
    ) -> io::Result<()> {
        match format {
            ArrayFormat::Npz => self.write_npz(file, precision),
            ArrayFormat::Fits => self.write_fits(file, precision),
        }
    }

    // Write an archive of npy files
    fn write_npz<W: Write + Seek>(&self, writer: W, precision: Precision) -> io::Result<()> {
        let mut archive = ZipWriter::new(Swallow { writer, failed: false });
        for entry in &self.0 {
            let number = entry.number(precision, cfg!(target_endian = "big"));
            let length = entry.shape().iter().fold(number.bytes, |size, n| size.saturating_mul(*n));
            let options = SimpleFileOptions::default().large_file(length >= 1 << 31);
            let options = options.compression_method(CompressionMethod::Stored);
            archive.start_file(format!("{}.npy", entry.name), options).map_err(zip_error)?;
            archive.write_all(&npy_header(number, entry.shape())?)?;
            number.write(&entry.values, &mut archive)?;
        }
        archive.finish().map(drop).map_err(zip_error)
    }
}

// Describe an array to NumPy
fn npy_header(number: Number, shape: &[usize]) -> io::Result<Vec<u8>> {
    let type_descriptor = match (number.kind, number.bytes) {
        (Kind::Float, 4) => f32::type_descriptor(),
        (Kind::Float, _) => f64::type_descriptor(),
        (Kind::Bool, _) => bool::type_descriptor(),
        _ => i64::type_descriptor(),
    };
    let header = Header { type_descriptor, layout: Layout::Standard, shape: shape.to_vec() };
    header.to_bytes().map_err(io::Error::other)
}

/// What the operating system said, without the archive's own words around it.
fn zip_error(error: ZipError) -> io::Error {
    match error {
        ZipError::Io(error) => error,
        other => io::Error::other(other),
    }
}

// Swallow what follows an error
#[derive(Debug)]
struct Swallow<W> {
    writer: W,
    failed: bool,
}

impl<W: Write> Write for Swallow<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed {
            return Ok(bytes.len());
        }
        let written = self.writer.write(bytes);
        self.failed = match &written {
            Ok(length) => *length == 0 && !bytes.is_empty(),
            Err(error) => error.kind() != ErrorKind::Interrupted,
        };
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.failed { Ok(()) } else { self.writer.flush() }
    }
}

// Seek in what is swallowed
impl<W: Seek> Seek for Swallow<W> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.writer.seek(to)
    }
}

// Tests of arrays in files
#[cfg(test)]
mod tests {
    use super::*;
    use fitsio::{FitsFile, hdu::HduInfo, images::ImageType};
    use ndarray::{Array1, Array2, Array3, Ix0, Ix2, Ix3, OwnedRepr, arr0, array};
    use ndarray_npy::NpzReader;

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
}
