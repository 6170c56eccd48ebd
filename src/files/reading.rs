// Tangled from book/src/reading.md: edit there, or here and run cargo tangle stitch.
//! One array out of a file that somebody else may have written.

use crate::device::{available_memory, refuse_beyond_memory};
use crate::error::{Error, Invalid};
use crate::files::npz::{Kind, Number};
use crate::units::{ARCSEC, DEGREE};
use ndarray::{Array2, ArrayD, Axis, Dimension, IxDyn, ShapeBuilder};
use ndarray_npy::npy::header::{Header, Layout, ReadHeaderError};
use std::io::{self, BufReader, ErrorKind, Read, Seek};
use std::{fmt::Display, fs::File, path::Path};
use zip::read::ZipFile;
use zip::result::{ZipError, ZipResult};
use zip::{CompressionMethod, ZipArchive};

// Read one array from a file
/// Reads an array of finite numbers with one of two numbers of axes: from `.npy`, `.npz` or FITS.
///
/// Floating-point numbers of 32 or 64 bits and integers are accepted, in either order of bytes. The array comes in C order,
/// in rad, rad² or m: what a FITS file tells in another [unit](Unit) is converted. Where a file holds several arrays, one
/// is chosen in brackets behind its name, `slopes.fits[2]` or `slopes.npz[s]`, unless there is a file of that very name.
///
/// # Errors
/// `Read` where the file cannot be read, is of another kind, holds an image that is compressed by tiles or is cut short;
/// `Invalid`, with the file's name, where the array has no numbers or another number of axes, another type or unit, or a
/// number that is not finite, or where none of several is chosen.
pub fn read_array(path: &Path, axes: [usize; 2], unit: Unit) -> Result<ArrayD<f64>, Error> {
    let (named, choice) = split_choice(path);
    let request = ReadRequest { path: named, choice, axes, unit };
    let refuse = |source| Error::Read { path: named.into(), source };
    let mut file = BufReader::new(File::open(named).map_err(refuse)?);
    // Look at the first bytes of a file
    let mut start = [0; 6];
    file.read_exact(&mut start).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => refuse(unknown_format("it has fewer than six bytes")),
        _ => refuse(error),
    })?;
    match &start {
        b"SIMPLE" => request.read_image(&mut start.chain(file)),
        [b'P', b'K', ..] => read_archive(file, &request),
        b"\x93NUMPY" if choice.is_none() => {
            let mut whole = start.chain(file);
            request.take(&find_npy(&mut whole, named)?, &mut whole)
        }
        b"\x93NUMPY" => Err(refuse(io::Error::other("it holds one array, and no choice of them"))),
        _ => Err(refuse(unknown_format("it is neither"))),
    }
}

// Read rows of slopes
/// Reads an array of one or two axes as rows; a single axis becomes a single row. Errors as for [`read_array`].
///
/// ```
/// use lenslet::{data::DataSet, files::{Format, Unit, read_array2}};
/// use lenslet::numerics::Precision;
/// let slopes = ndarray::array![[1e-7, -2e-7, 0.0], [3e-7, 0.0, 1e-7]]; // two frames, rad
/// let mut arrays = DataSet::default();
/// arrays.add_result("slopes", slopes.view()).unit("rad").dimensions("frame, slope");
/// let path = std::env::temp_dir().join(format!("lenslet-{}.fits", std::process::id()));
/// arrays.write(&mut std::fs::File::create(&path)?, Format::Fits, Precision::F64)?;
/// assert_eq!(read_array2(&path, Unit::Radian)?, slopes);
/// std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_array2(path: &Path, unit: Unit) -> Result<Array2<f64>, Error> {
    let array = read_array(path, [1, 2], unit)?;
    let rows = if array.ndim() == 1 { array.insert_axis(Axis(0)) } else { array };
    rows.into_dimensionality().map_err(|error| {
        let source = io::Error::other(error);
        Error::Read { path: path.into(), source }
    })
}

// Arrays that are wanted and found
// Array that is wanted of a file
// Request of an array in a file
/// What is wanted of a file.
#[derive(Clone, Copy)]
pub(crate) struct ReadRequest<'a> {
    pub(crate) path: &'a Path,
    /// Which of several arrays.
    pub(crate) choice: Option<&'a str>,
    pub(crate) axes: [usize; 2],
    pub(crate) unit: Unit,
}

impl ReadRequest<'_> {
    /// Takes the array that was found from the file.
    pub(super) fn take(
        &self,
        header: &ArrayHeader,
        file: &mut impl Read,
    ) -> Result<ArrayD<f64>, Error> {
        if !self.axes.contains(&header.shape.len()) || header.shape.contains(&0) {
            return Err(self.refuse_shape(&header.shape));
        }
        let factor = self.factor(&header.unit)?;
        let numbers = header.read_numbers(file, factor, self.path)?;
        // Give the numbers their shape
        let shape = IxDyn(&header.shape).set_f(header.columns_first);
        let array = ArrayD::from_shape_vec(shape, numbers)
            .map_err(|error| self.unreadable(io::Error::other(error)))?;
        let array = if array.is_standard_layout() {
            array
        } else {
            array.as_standard_layout().into_owned()
        };
        match array.indexed_iter().find(|(_, value)| !value.is_finite()) {
            None => Ok(array),
            Some((place, value)) => {
                let rest: Vec<_> = place.as_array_view().iter().map(ToString::to_string).collect();
                let (row, index) = match rest.split_first() {
                    Some((row, index)) if !index.is_empty() => (row.as_str(), index.join(", ")),
                    _ => ("0", rest.join(", ")),
                };
                let expected = "a finite number (both are counted from 0)";
                Err(self.refuse(&format!("row {row}, index {index}"), value, expected))
            }
        }
    }

    // What a number in a unit is worth
    fn factor(&self, unit: &str) -> Result<f64, Error> {
        let expected = match self.unit {
            Unit::Radian => {
                "rad, mrad, urad, nrad, deg, arcmin, arcsec, mas or uas, or no unit for rad"
            }
            Unit::SquareRadian => {
                "rad2, arcsec2, mas2 or the square of another angle, or no unit for rad2"
            }
            Unit::Metre => "m, mm, um or nm, or no unit for m",
            Unit::None | Unit::Stored => "no unit",
        };
        let factor = self.unit.factor(unit);
        factor.ok_or_else(|| self.refuse("BUNIT", format!("'{unit}'"), expected))
    }

    // Say what is wrong with a file
    pub(crate) fn unreadable(&self, source: io::Error) -> Error {
        Error::Read { path: self.path.into(), source }
    }

    pub(crate) fn refuse(&self, what: &str, value: impl Display, expected: &str) -> Error {
        Invalid::new(format!("{}: {what}", self.path.display()), value, expected).into()
    }

    fn refuse_shape(&self, shape: &[usize]) -> Error {
        let [one, other] = self
            .axes
            .map(|axes| ["no", "one", "two", "three"].get(axes).copied().unwrap_or("many"));
        let expected = format!("{one} or {other} axes, none of them of length 0");
        self.refuse("shape", format!("{shape:?}"), &expected)
    }

    /// Several arrays and no choice among them, or a choice that is none of them.
    pub(super) fn refuse_choice(&self, what: &str, all: &[String], examples: &[String]) -> Error {
        let file = self.path.display();
        let examples: Vec<_> = examples.iter().map(|choice| format!("{file}[{choice}]")).collect();
        let how = if examples.len() > 1 { "named or counted" } else { "named" };
        let expected = format!("one of them, {how} in brackets: {}", examples.join(", "));
        let quantity = match self.choice {
            Some(choice) => format!("{file}[{choice}]: {what}"),
            None => format!("{file}: {what}"),
        };
        Invalid::new(quantity, all.join(", "), expected).into()
    }
}

// Array that was found in a file
/// An array in a file: what its header says.
pub(crate) struct ArrayHeader {
    pub(crate) shape: Vec<usize>,
    /// Whether the first index runs fastest.
    pub(crate) columns_first: bool,
    pub(crate) number: Number,
    /// What the numbers are multiplied by, and what is added then.
    pub(crate) scale: (f64, f64),
    /// The integer that stands for an unknown value.
    pub(crate) blank: Option<f64>,
    /// The unit, as the file spells it; empty where it tells none.
    pub(crate) unit: String,
}

impl ArrayHeader {
    // Read all numbers
    pub(crate) fn read_numbers(
        &self,
        file: &mut impl Read,
        factor: f64,
        path: &Path,
    ) -> Result<Vec<f64>, Error> {
        let scale = [self.scale.0, self.scale.1].map(|part| factor * part);
        let count = self.shape.iter().fold(1, |count: usize, n| count.saturating_mul(*n));
        let mut numbers = Vec::new();
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..self.number.bytes];
        for done in 0..count {
            if done == numbers.capacity() {
                self.reserve(&mut numbers, count, path)?;
            }
            // Report a file that is too short
            file.read_exact(bytes).map_err(|error| {
                let source = match error.kind() {
                    ErrorKind::UnexpectedEof => {
                        cut_short(&format!("after {done} of {count} numbers"))
                    }
                    _ => error,
                };
                Error::Read { path: path.into(), source }
            })?;
            let number = self.number.value(bytes);
            let known = self.blank != Some(number);
            numbers.push(if known { scale[0] * number + scale[1] } else { f64::NAN });
        }
        Ok(numbers)
    }

    // Memory for all numbers
    /// Reserves memory for more numbers: first for some, then for all of them.
    fn reserve(&self, numbers: &mut Vec<f64>, count: usize, path: &Path) -> Result<(), Error> {
        const FIRST: usize = 1 << 22;
        let more = if numbers.is_empty() { count.min(FIRST) } else { count - numbers.len() };
        let copies = 1 + u64::from(self.columns_first);
        let needed = (count as u64).saturating_mul(8 * copies);
        let what = || format!("{}: an array of shape {:?}", path.display(), self.shape);
        if !numbers.is_empty() {
            refuse_beyond_memory(needed, what)?;
        }
        numbers.try_reserve_exact(more).map_err(|_| {
            let available = available_memory().unwrap_or(0);
            Error::Memory { what: what(), needed, available }
        })
    }
}
pub(super) fn unknown_format(what: &str) -> io::Error {
    let reason = format!("expected an array of NumPy's (.npy, .npz) or a FITS image, and {what}");
    io::Error::new(ErrorKind::InvalidData, reason)
}

pub(crate) fn cut_short(place: &str) -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, format!("it is cut short {place}"))
}

// Find an array in a file
// Find the array of an npy file
fn find_npy(file: &mut impl Read, path: &Path) -> Result<ArrayHeader, Error> {
    let refuse = |source| Error::Read { path: path.into(), source };
    let header = npy_header(file).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => refuse(cut_short("in its header")),
        _ => refuse(error),
    })?;
    let header = Header::from_reader(&mut &header[..]).map_err(|error| match error {
        ReadHeaderError::Io(error) => refuse(error),
        ReadHeaderError::Parse(_) => refuse(unknown_format("its header is not in NumPy's format")),
    })?;
    let named = header.type_descriptor.to_string();
    let named = named.trim_matches('\'');
    let number = Number::of_numpy(named).ok_or_else(|| {
        let expected = "real numbers, such as <f8 or <f4";
        Invalid::new(format!("{}: type", path.display()), named, expected)
    })?;
    let columns_first = header.layout == Layout::Fortran;
    let (scale, blank, unit) = ((1.0, 0.0), None, String::new());
    Ok(ArrayHeader { shape: header.shape, columns_first, number, scale, blank, unit })
}

// Read the description of an npy file
/// The bytes of a header, with the signature and the length before it.
pub(super) fn npy_header(file: &mut impl Read) -> io::Result<Vec<u8>> {
    const LONGEST: usize = 10_000;
    let mut header = vec![0; 10];
    file.read_exact(&mut header)?;
    let mut length = [header[8], header[9], 0, 0];
    if header[6] > 1 {
        file.read_exact(&mut length[2..])?;
        header.extend(&length[2..]);
    }
    let (length, start) = (u32::from_le_bytes(length) as usize, header.len());
    if length > LONGEST {
        let reason = format!("its header has {length} bytes, and NumPy's at most {LONGEST}");
        return Err(io::Error::new(ErrorKind::InvalidData, reason));
    }
    header.resize(start + length, 0);
    file.read_exact(&mut header[start..])?;
    // Bound the depth of brackets
    let depths = header[start..].iter().scan(0, |depth, byte| {
        *depth += i32::from(b"([{".contains(byte)) - i32::from(b")]}".contains(byte));
        Some(*depth)
    });
    match depths.max() {
        Some(depth) if depth > 16 => Err(unknown_format("its header is not in NumPy's format")),
        _ => Ok(header),
    }
}

// Understand the name of a type
impl Number {
    /// The form that NumPy calls by this name, if it is one of a real number.
    fn of_numpy(name: &str) -> Option<Self> {
        let mut letters = name.chars();
        let (order, kind, bytes) = (letters.next()?, letters.next()?, letters.as_str());
        let kind = match kind {
            'f' => Kind::Float,
            'i' => Kind::Signed,
            'u' => Kind::Unsigned,
            _ => return None,
        };
        let lengths: &[usize] = if kind == Kind::Float { &[4, 8] } else { &[1, 2, 4, 8] };
        let bytes = lengths.iter().copied().find(|length| bytes == length.to_string())?;
        matches!(order, '<' | '>' | '|').then_some(Self { kind, bytes, big_endian: order == '>' })
    }
}

// Split a choice from a name
/// The file that a name stands for, and what is chosen in it, if it has several arrays.
pub(crate) fn split_choice(path: &Path) -> (&Path, Option<&str>) {
    let name = path.to_str().filter(|_| !path.exists());
    let inside = name.and_then(|name| name.strip_suffix(']'));
    match inside.and_then(|inside| inside.rsplit_once('[')) {
        Some((file, choice)) => (Path::new(file), Some(choice)),
        None => (path, None),
    }
}

// Read an array from an archive
fn read_archive(mut file: BufReader<File>, request: &ReadRequest) -> Result<ArrayD<f64>, Error> {
    let refuse = |source| request.unreadable(source);
    let piped = |_| refuse(unknown_format("an archive cannot be read from a pipe"));
    file.rewind().map_err(piped)?;
    let mut archive = ZipArchive::new(file).map_err(|error| refuse(zip_refusal(error)))?;
    let names = archive.file_names().map(|name| name.map_err(|error| refuse(zip_refusal(error))));
    let names: Vec<_> = names.collect::<Result<_, Error>>()?;
    let arrays = names.iter().filter_map(|name| Some(name.strip_suffix(".npy")?.to_string()));
    let names: Vec<String> = arrays.collect();
    let usual = names.iter().any(|name| name == request.unit.usual_name());
    let choice = request.choice.or(usual.then(|| request.unit.usual_name()));
    let chosen = match (choice, &names[..]) {
        (None, [only]) => only,
        (_, []) => return Err(refuse(unknown_format("this archive contains none"))),
        (choice, _) => {
            let known = choice.and_then(|choice| names.iter().find(|name| *name == choice));
            known.ok_or_else(|| request.refuse_choice("arrays", &names, &names[..1]))?
        }
    };
    let mut member = readable(archive.by_name(&format!("{chosen}.npy"))).map_err(refuse)?;
    let numbers = request.take(&find_npy(&mut member, request.path)?, &mut member)?;
    check_end(member, chosen).map_err(refuse).map(|()| numbers)
}

// Say why an archive cannot be read
pub(super) fn zip_refusal(error: ZipError) -> io::Error {
    match error {
        ZipError::Io(error) => error,
        ZipError::UnsupportedArchive(_) | ZipError::CompressionMethodNotSupported(_) => {
            io::Error::other(OTHER_COMPRESSION)
        }
        ZipError::InvalidArchive(_) => io::Error::new(ErrorKind::InvalidData, NO_ARCHIVE),
        other => io::Error::new(ErrorKind::InvalidData, other),
    }
}

const NO_ARCHIVE: &str = "it is not a NumPy archive (.npz), or it is truncated or damaged";

/// Reads the end of a member of an archive, where the checksum is compared.
fn check_end<R: Read>(mut member: ZipFile<'_, R>, name: &str) -> io::Result<()> {
    let rest = io::copy(&mut member, &mut io::sink());
    rest.map_or_else(|error| Err(damaged_member(name, error)), |_| Ok(()))
}

/// What is wrong with a member of an archive whose bytes or checksum cannot be read.
pub(super) fn damaged_member(name: &str, error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::InvalidData => {
            io::Error::new(ErrorKind::InvalidData, format!("{name} is damaged: {error}"))
        }
        _ => error,
    }
}

// Refuse members of another compression
const OTHER_COMPRESSION: &str = "its compression is not one that NumPy writes";

/// A member of an archive, unless it is compressed by a method that the reader would reject only at the first byte.
pub(super) fn readable<R: Read>(member: ZipResult<ZipFile<'_, R>>) -> io::Result<ZipFile<'_, R>> {
    let member = member.map_err(zip_refusal)?;
    match member.compression() {
        CompressionMethod::Stored | CompressionMethod::Deflated => Ok(member),
        _ => Err(io::Error::other(OTHER_COMPRESSION)),
    }
}

// List the arrays of a file
// Array in a file and its choice
/// An array in a file, without its numbers.
#[derive(Debug, Clone)]
pub(crate) struct ListedArray {
    /// Its place among the units of a FITS file.
    pub(crate) number: Option<usize>,
    /// Its name, which may be empty in FITS.
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    /// The unit, as the file spells it; empty where it states none.
    pub(crate) unit: String,
}

impl ListedArray {
    /// What chooses it in brackets behind the name of the file.
    pub(crate) fn choice(&self) -> String {
        self.number.map_or_else(|| self.name.clone(), |number| number.to_string())
    }

    /// Whether this is chosen in brackets.
    pub(crate) fn is_called(&self, choice: &str) -> bool {
        match self.number {
            Some(number) => choice.parse() == Ok(number) || choice.eq_ignore_ascii_case(&self.name),
            None => choice == self.name,
        }
    }
}

/// The arrays of a file: the images of FITS, the members of an archive, or the one of an `.npy` file.
///
/// # Errors
/// `Read` where the file cannot be read, `Invalid` where a header makes no sense.
pub(crate) fn list_arrays(path: &Path) -> Result<Vec<ListedArray>, Error> {
    let request = ReadRequest { path, choice: None, axes: [0; 2], unit: Unit::Stored };
    let refuse = |source| request.unreadable(source);
    let mut file = BufReader::new(File::open(path).map_err(refuse)?);
    let mut start = [0; 6];
    file.read_exact(&mut start).map_err(refuse)?;
    file.rewind().map_err(refuse)?;
    let listed = |name: &str, header: ArrayHeader| {
        let name = name.strip_suffix(".npy").unwrap_or(name).to_string();
        ListedArray { number: None, name, shape: header.shape, unit: String::new() }
    };
    match &start {
        b"SIMPLE" => request.list_images(&mut file),
        // List the members of an archive
        [b'P', b'K', ..] => {
            let mut archive = ZipArchive::new(file).map_err(|error| refuse(zip_refusal(error)))?;
            let mut all = Vec::new();
            for k in 0..archive.len() {
                let mut member = readable(archive.by_index(k)).map_err(refuse)?;
                let name = member.name().map_err(|error| refuse(zip_refusal(error)))?.to_string();
                if name.ends_with(".npy") {
                    all.push(listed(&name, find_npy(&mut member, path)?));
                }
            }
            Ok(all)
        }
        _ => Ok(vec![listed("", find_npy(&mut file, path)?)]),
    }
}

// Units that numbers may come in
/// What the numbers of a file shall be; also converted to this from the units that a FITS file may tell, in any spelling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Angles in radians; from mrad, urad, nrad, deg, arcmin, arcsec, mas and uas.
    Radian,
    /// Squares of angles, in rad²; from the squares of the same, as `rad2`, `rad^2` or `rad**2`.
    SquareRadian,
    /// Lengths in metres; from mm, um and nm.
    Metre,
    /// Numbers as they are stored, whatever unit the file states.
    Stored,
    /// Plain numbers, as of light that is let through.
    None,
}

// Spellings of units
const ANGLES: [(&[&str], f64); 9] = [
    (&["rad", "radian", "radians"], 1.0),
    (&["mrad", "milliradian", "milliradians"], 1e-3),
    (&["urad", "microrad", "microradian", "microradians"], 1e-6),
    (&["nrad", "nanoradian", "nanoradians"], 1e-9),
    (&["deg", "degree", "degrees"], DEGREE),
    (&["arcmin", "arcminute", "arcminutes"], 60.0 * ARCSEC),
    (&["arcsec", "arcsecs", "arcsecond", "arcseconds", "asec"], ARCSEC),
    (&["mas", "marcsec", "milliarcsec", "milliarcsecond", "milliarcseconds"], 1e-3 * ARCSEC),
    (&["uas", "uarcsec", "microarcsec", "microarcsecond", "microarcseconds"], 1e-6 * ARCSEC),
];

const LENGTHS: [(&[&str], f64); 4] = [
    (&["m", "metre", "metres", "meter", "meters"], 1.0),
    (&["mm", "millimetre", "millimetres", "millimeter", "millimeters"], 1e-3),
    (&["um", "micron", "microns", "micrometre", "micrometres"], 1e-6),
    (&["nm", "nanometre", "nanometres", "nanometer", "nanometers"], 1e-9),
];

impl Unit {
    // Usual names of arrays in archives
    /// What an array in this unit is called where it stands among others.
    fn usual_name(self) -> &'static str {
        match self {
            Self::Radian | Self::Stored => "slopes",
            Self::SquareRadian => "noise",
            Self::Metre => "wavefront",
            Self::None => "pupil",
        }
    }

    // Worth of a unit in ours
    /// What a number in the unit of this name is multiplied by, if the name is known.
    pub(crate) fn factor(self, name: &str) -> Option<f64> {
        let name = name.trim().to_ascii_lowercase();
        let of = |units: &[(&[&str], f64)], name: &str| {
            units.iter().find(|(names, _)| names.contains(&name)).map(|(_, factor)| *factor)
        };
        match self {
            _ if name.is_empty() || self == Self::Stored => Some(1.0),
            Self::Radian => of(&ANGLES, &name),
            Self::Metre => of(&LENGTHS, &name),
            Self::None | Self::Stored => None,
            Self::SquareRadian => {
                let powers = ["**2", "^2", "2"];
                let root = powers.iter().find_map(|power| name.strip_suffix(power))?;
                of(&ANGLES, root).map(|factor| factor * factor)
            }
        }
    }
}

// Take a number from its bytes
impl Number {
    /// The number that these bytes, at most eight, stand for.
    fn value(self, bytes: &[u8]) -> f64 {
        let push = |word: u64, byte: &u8| (word << 8) | u64::from(*byte);
        let word = match self.big_endian {
            true => bytes.iter().fold(0, push),
            false => bytes.iter().rev().fold(0, push),
        };
        let unused = 64 - 8 * self.bytes as u32;
        match self.kind {
            Kind::Float if self.bytes == 4 => f64::from(f32::from_bits(word as u32)),
            Kind::Float => f64::from_bits(word),
            Kind::Signed => ((word << unused).cast_signed() >> unused) as f64,
            Kind::Unsigned | Kind::Bool => word as f64,
        }
    }
}

// Tests of foreign arrays
#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::fits::BLOCK;
    use crate::{data::DataSet, files::Format, numerics::Precision};
    use fitsio::{FitsFile, images::ImageDescription, images::ImageType, tables};
    use ndarray::{Array3, array};
    use ndarray_npy::WriteNpyExt;
    use std::path::PathBuf;

    type Checked = Result<(), Box<dyn std::error::Error>>;

    // Read what others have written
    /// An `.npy` file with these words in its header, and these bytes behind it.
    fn npy(kind: &str, columns_first: &str, shape: &str, bytes: &[u8]) -> Vec<u8> {
        let header =
            format!("{{'descr': '{kind}', 'fortran_order': {columns_first}, 'shape': {shape}, }}");
        let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        file.extend(format!("{header:<117}\n").bytes());
        file.extend(bytes);
        file
    }

    fn bytes<const N: usize>(numbers: impl IntoIterator<Item = [u8; N]>) -> Vec<u8> {
        numbers.into_iter().flatten().collect()
    }

    fn read(file: &[u8]) -> Result<Array2<f64>, Error> {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), file).unwrap();
        read_array2(path.path(), Unit::Radian)
    }

    // Two images of our own
    fn two_arrays(format: Format) -> io::Result<Vec<u8>> {
        let mut arrays = DataSet::default();
        arrays.add("first", array![[1.0, 2.0], [3.0, 4.0], [5.0, -6.0]]);
        arrays.add("second", array![[1.0, f64::NAN]]);
        let mut file = io::Cursor::new(Vec::new());
        arrays.write(&mut file, format, Precision::F64)?;
        Ok(file.into_inner())
    }

    // Read each form of numbers
    #[test]
    fn numpy_arrays_are_read() -> Checked {
        let expected = array![[1.0, -2.0, 3.0], [4.0, 5.0, 6.0]];
        let (rows, columns) = ([1, -2, 3, 4, 5, 6], [1, 4, -2, 5, 3, 6]);
        let shape = "(2, 3)";
        for file in [
            npy("<f8", "False", shape, &bytes(rows.map(|x| f64::from(x).to_le_bytes()))),
            npy(">f8", "False", shape, &bytes(rows.map(|x| f64::from(x).to_be_bytes()))),
            npy("<f4", "True", shape, &bytes(columns.map(|x| (x as f32).to_le_bytes()))),
            npy(">f4", "False", shape, &bytes(rows.map(|x| (x as f32).to_be_bytes()))),
            npy(">i2", "False", shape, &bytes(rows.map(|x| (x as i16).to_be_bytes()))),
            npy("<i8", "True", shape, &bytes(columns.map(|x| i64::from(x).to_le_bytes()))),
            npy("|i1", "False", shape, &bytes(rows.map(|x| (x as i8).to_le_bytes()))),
        ] {
            assert_eq!(read(&file)?, expected);
        }
        Ok(())
    }

    // Read what a library has written
    #[test]
    fn rows_are_read() -> Checked {
        let one_axis = npy("<u2", "False", "(2,)", &[1, 0, 255, 255]);
        assert_eq!(read(&one_axis)?, array![[1.0, 65535.0]]);
        let expected = array![[1.0, -2.0, 3.0], [4.0, 5.0, 6.0]];
        for array in [expected.view(), expected.t()] {
            let mut file = Vec::new();
            array.write_npy(&mut file)?;
            assert_eq!(read(&file)?, array);
        }
        let path = tempfile::NamedTempFile::new()?;
        let mut blocks =
            Array3::from_shape_fn((3, 2, 2), |(k, b, a)| (100 * k + 10 * b + a) as f64);
        for _ in 0..2 {
            blocks.write_npy(path.reopen()?)?;
            let read = read_array(path.path(), [1, 3], Unit::SquareRadian)?;
            assert_eq!(read, blocks.view().into_dyn());
            blocks = blocks.reversed_axes().as_standard_layout().into_owned();
        }
        blocks[[2, 0, 1]] = f64::NAN;
        blocks.write_npy(path.reopen()?)?;
        let refuse = |axes| read_array(path.path(), axes, Unit::SquareRadian).unwrap_err();
        let refused = [[1, 3], [1, 2]].map(refuse);
        let [refused, of_shape] = refused.map(|error| error.to_string());
        assert!(
            refused.contains(": row 2, index 0, 1 = NaN: expected a finite number"),
            "{refused}"
        );
        assert!(of_shape.contains("shape = [3, 2, 2]: expected one or two axes"), "{of_shape}");
        Ok(())
    }

    // Read what comes through a pipe
    #[cfg(target_os = "linux")]
    #[test]
    fn pipes_are_read() -> Checked {
        use std::os::fd::AsRawFd;
        let expected = Array2::from_shape_fn((50, 400), |(j, i)| (j * i) as f64);
        let (end, writer) = io::pipe()?;
        let written = expected.clone();
        let other_side = std::thread::spawn(move || written.write_npy(writer));
        let found = read_array2(format!("/dev/fd/{}", end.as_raw_fd()).as_ref(), Unit::Radian)?;
        assert_eq!(found, expected);
        assert!(other_side.join().is_ok_and(|written| written.is_ok()));
        Ok(())
    }

    // Read images of all kinds
    #[test]
    fn images_are_read() -> Checked {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("slopes.fits");
        let description = |data_type| ImageDescription { data_type, dimensions: &[2, 3] };
        let kinds =
            [ImageType::Double, ImageType::Float, ImageType::Short, ImageType::UnsignedShort];
        for (kind, behind_a_table) in
            kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)])
        {
            let (file, image) = (FitsFile::create(&path).overwrite(), description(kind));
            let mut fits = if behind_a_table {
                file.open()?
            } else {
                file.with_custom_primary(&image).open()?
            };
            // Put the image behind a table
            let mut number = 0;
            if behind_a_table {
                let column = tables::ColumnDescription::new("C")
                    .with_type(tables::ColumnDataType::Double)
                    .create()?;
                fits.create_table("T", &[column])?;
                fits.hdu(1)?.write_col(&mut fits, "C", &[7.0; 500])?;
                fits.create_image("I", &image)?;
                number = 2;
            }
            fits.hdu(number)?.write_image(&mut fits, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
            drop(fits);
            let read = read_array2(&path, Unit::Radian)?;
            assert_eq!(read, array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "{kind:?}");
        }
        Ok(())
    }

    // Refuse what cannot be read
    #[test]
    fn bad_files_are_refused() -> Checked {
        let ones = [1.0_f64.to_le_bytes(); 6].concat();
        let infinite = [[0; 8], [0; 8], f64::INFINITY.to_le_bytes(), [0; 8]].concat();
        let both = two_arrays(Format::Fits)?;
        let fits = &both[..3 * BLOCK];
        let changed = |old: &str, new: &str| {
            let text = String::from_utf8_lossy(&both[BLOCK..2 * BLOCK]).replace(old, new);
            [&both[..BLOCK], text.as_bytes(), &both[2 * BLOCK..3 * BLOCK]].concat()
        };
        assert_eq!(read(fits)?, array![[1.0, 2.0], [3.0, 4.0], [5.0, -6.0]]);
        assert_eq!(read(&[fits, &[b'x'; BLOCK]].concat())?.dim(), (3, 2), "remarks at the end");
        let cases: &[(Vec<u8>, &str)] = &[
            // Bad arrays and what is said of them
            (vec![], "fewer than six bytes"),
            (b"1.0, 2.0\n".to_vec(), "it is neither"),
            (b"PK\x03\x04 \x14".to_vec(), "archive"),
            (npy("<f8", "False", "(6,)", &ones[..47]), "cut short after 5 of 6 numbers"),
            (npy("<f8", "False", "(6,)", &ones)[..40].to_vec(), "cut short in its header"),
            (npy("<f8", "Maybe", "(6,)", &ones), "header"),
            (npy("<f8", "False", "()", &ones[..8]), "shape = []: expected one or two axes"),
            (
                npy("<f8", "False", "(1, 2, 3)", &ones),
                "shape = [1, 2, 3]: expected one or two axes",
            ),
            (npy("<f8", "False", "(0,)", &[]), "shape = [0]"),
            (npy("<f8", "False", "(2, 0)", &[]), "shape = [2, 0]"),
            (npy("<f8", "False", "(4000000000, 4000000000)", &ones), "after 6 of"),
            (npy("<c16", "False", "(3,)", &ones), "type = <c16: expected real numbers"),
            (npy("<f2", "False", "(24,)", &ones), "type = <f2"),
            (npy("|b1", "False", "(48,)", &ones), "type = |b1"),
            (npy("<U2", "False", "(6,)", &ones), "type = <U2"),
            (
                npy("<f8", "False", "(2, 2)", &infinite),
                "row 1, index 0 = inf: expected a finite number",
            ),
            (npy("<f8", "True", "(2, 2)", &infinite), "row 0, index 1 = inf"),
            // Bad images and what is said of them
            (fits[..BLOCK - 1].to_vec(), "cut short in a header"),
            (fits[..BLOCK].to_vec(), "there is no image"),
            (fits[..2 * BLOCK + 47].to_vec(), "cut short after 5 of 6 numbers"),
            (fits[..2 * BLOCK - 80].to_vec(), "cut short in a header"),
            (changed("-64", "-65"), "BITPIX = -65: expected 8, 16"),
            (
                changed("NAXIS2  =                    3", "NAXIS2  =                   -3"),
                "NAXIS2 = -3",
            ),
            (changed("NAXIS2  ", "NAXIS9  "), "NAXIS2 = nothing: expected a number"),
            (
                changed("NAXIS   =                    2", "NAXIS   =           2000000000"),
                "NAXIS2000000000",
            ),
            (changed("'IMAGE   '", "'TABLE   '"), "there is no image in this one"),
            (both[..4 * BLOCK - 80].to_vec(), "cut short in a header"),
        ];
        for (file, words) in cases {
            let Err(refused) = read(file) else { panic!("accepted, and not {words:?}") };
            let refused = refused.to_string();
            assert!(refused.contains(words), "no {words:?} in {refused:?}");
            assert!(refused.contains(".tmp") && !refused.contains('\n'), "{refused:?}");
        }
        for name in ["absent.npy", "absent.npy[s]", "."] {
            let refused = read_array2(name.as_ref(), Unit::Radian);
            assert!(matches!(refused, Err(Error::Read { .. })), "{name}");
        }
        Ok(())
    }

    // Reject what memory cannot hold
    #[test]
    fn arrays_beyond_the_memory_are_refused() -> Checked {
        let folder = tempfile::tempdir()?;
        let (path, shape) = (folder.path().join("s.npy"), "(131072, 1048576)");
        let refused = || {
            let start = std::time::Instant::now();
            let error = read_array2(&path, Unit::Radian).unwrap_err();
            assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
            (matches!(error, Error::Memory { .. }), error.to_string())
        };
        let expected = (true, "s.npy: an array of shape [131072, 1048576] needs 1024.0 GiB, and ");
        std::fs::write(&path, npy("<f8", "False", shape, &[]))?;
        File::options().write(true).open(&path)?.set_len((1 << 40) + 128)?;
        let (is_memory, said) = refused();
        assert!(is_memory && said.contains(expected.1) && said.ends_with("available"), "{said}");
        // Reject bombs and endless descriptions
        let file = File::create(&path)?;
        let mut archive = zip::ZipWriter::new(file);
        archive.start_file("slopes.npy", zip::write::SimpleFileOptions::default())?;
        io::Write::write_all(&mut archive, &npy("<f8", "True", shape, &[]))?;
        io::copy(&mut io::repeat(0).take(40 << 20), &mut archive)?;
        archive.finish()?;
        let (is_memory, said) = refused();
        assert!(is_memory && said.contains("needs 2048.0 GiB"), "{said}");
        for (bytes, expected) in [
            (npy("<f8", &"(".repeat(60), "(6,)", &[]), "header is not in NumPy's format"),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec(), "4294967295 bytes"),
        ] {
            std::fs::write(&path, bytes)?;
            let (_, said) = refused();
            assert!(said.contains(expected), "{said}");
        }
        let mut header = format!("{:<80}", "SIMPLE  =                    T").repeat(36);
        header.push_str(&" ".repeat(BLOCK * 27_800));
        std::fs::write(&path, header)?;
        let (_, said) = refused();
        assert!(said.contains("no END in 1000000 cards"), "{said}");
        Ok(())
    }

    // Convert the units of images
    #[test]
    fn units_are_converted_or_refused() -> Checked {
        let path = tempfile::NamedTempFile::new()?;
        let read = |bunit: &str, unit: Unit| {
            let mut arrays = DataSet::default();
            arrays.add("slopes", array![[5.0, -6.0]]).unit(bunit);
            arrays.write(path.reopen().unwrap(), Format::Fits, Precision::F64).unwrap();
            read_array2(path.path(), unit).map_err(|error| error.to_string())
        };
        let turn = std::f64::consts::TAU;
        for (unit, name, of_one) in [
            // Units and what they are worth
            (Unit::Radian, "", 1.0),
            (Unit::Radian, "rad", 1.0),
            (Unit::Radian, "Radians", 1.0),
            (Unit::Radian, "mrad", 1e-3),
            (Unit::Radian, "urad", 1e-6),
            (Unit::Radian, "nrad", 1e-9),
            (Unit::Radian, "deg", turn / 360.0),
            (Unit::Radian, "arcmin", turn / 21_600.0),
            (Unit::Radian, "ARCSEC", turn / 1_296_000.0),
            (Unit::Radian, "mas", turn / 1.296e9),
            (Unit::Radian, "uas", turn / 1.296e12),
            (Unit::SquareRadian, "", 1.0),
            (Unit::SquareRadian, "rad2", 1.0),
            (Unit::SquareRadian, "mrad^2", 1e-6),
            (Unit::SquareRadian, "arcsec**2", (turn / 1_296_000.0).powi(2)),
            (Unit::SquareRadian, "mas2", (turn / 1.296e9).powi(2)),
            (Unit::Metre, "m", 1.0),
            (Unit::Metre, "nm", 1e-9),
        ] {
            let found = read(name, unit)?;
            let error = (found[[0, 0]] - 5.0 * of_one).abs() + (found[[0, 1]] + 6.0 * of_one).abs();
            assert!(error < 1e-14 * of_one, "{name}: {found}");
        }
        for (unit, name) in [
            (Unit::Radian, "pixel"),
            (Unit::Radian, "rad2"),
            (Unit::Radian, "m rad"),
            (Unit::SquareRadian, "rad"),
            (Unit::SquareRadian, "2"),
            (Unit::Metre, "arcsec"),
        ] {
            let refused = read(name, unit).unwrap_err();
            assert!(refused.contains(&format!(": BUNIT = '{name}': expected ")), "{refused}");
        }
        Ok(())
    }

    // Choose among several arrays
    #[test]
    fn one_of_several_is_chosen_and_not_guessed() -> Checked {
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name);
        for (name, format) in [("s.fits", Format::Fits), ("s.npz", Format::Npz)] {
            std::fs::write(path(name), two_arrays(format)?)?;
        }
        let read = |name: &str| read_array2(&path(name), Unit::Radian).map_err(|e| e.to_string());
        let first = array![[1.0, 2.0], [3.0, 4.0], [5.0, -6.0]];
        for name in ["s.fits[FIRST]", "s.fits[first]", "s.fits[1]", "s.npz[first]"] {
            assert_eq!(read(name).as_ref(), Ok(&first), "{name}");
        }
        for name in ["s.fits[2]", "s.npz[second]"] {
            assert!(read(name).is_err_and(|said| said.contains("row 0, index 1 = NaN")), "{name}");
        }
        let (images, arrays) =
            ("images = 1 FIRST [3, 2], 2 SECOND [1, 2]: ", "arrays = first, second: ");
        for (name, list) in [
            ("s.fits", images),
            ("s.fits[third]", images),
            ("s.fits[0]", images),
            ("s.npz", arrays),
            ("s.npz[1]", arrays),
        ] {
            let refused = read(name).unwrap_err();
            assert!(refused.contains(list) && refused.contains(&format!("{name}: ")), "{refused}");
        }
        let refused = read("s.fits").unwrap_err();
        assert!(
            refused.contains("/s.fits[FIRST], ") && refused.ends_with("/s.fits[1]"),
            "{refused}"
        );
        // Choose where there is no choice
        let mut one = DataSet::default();
        one.add("first", first.view());
        for (name, format) in [("a.npz", Format::Npz), ("b[2]", Format::Npy)] {
            one.write(File::create(path(name))?, format, Precision::F64)?;
            assert_eq!(read(name).as_ref(), Ok(&first), "{name}");
        }
        assert_eq!(split_choice(&path("b[2]")), (path("b[2]").as_path(), None));
        std::fs::rename(path("b[2]"), path("b.npy"))?;
        assert!(read("b.npy[2]").is_err_and(|said| said.contains("it holds one array")));
        assert_eq!(split_choice(&path("b.npy[2]")), (path("b.npy").as_path(), Some("2")));
        // Refuse what is compressed
        let image = ImageDescription { data_type: ImageType::Double, dimensions: &[2, 300] };
        let packed: PathBuf = path("packed.fits[compress R]");
        let mut fits = FitsFile::create(&packed).open()?;
        let hdu = fits.create_image("SLOPES", &image)?;
        hdu.write_image(&mut fits, &[1.0; 600])?;
        drop(fits);
        let said = read("packed.fits").unwrap_err();
        assert!(said.contains("1 SLOPES [2, 300] is compressed by tiles (RICE_1)"), "{said}");
        assert!(said.ends_with("unpack the file with funpack"), "{said}");
        let mut archive = ndarray_npy::NpzWriter::new_compressed(File::create(path("packed.npz"))?);
        archive.add_array("first", &first)?;
        archive.finish()?;
        assert_eq!(read("packed.npz").as_ref(), Ok(&first));
        let mut other = std::fs::read(path("a.npz"))?;
        let list = other.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
        (other[8], other[list + 10]) = (12, 12);
        std::fs::write(path("other.npz"), other)?;
        assert!(read("other.npz").is_err_and(|said| said.contains("is not one that NumPy writes")));
        Ok(())
    }
}
