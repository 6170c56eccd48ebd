// Tangled from book/src/reading.md: edit there, or here and run cargo tangle stitch.
//! One array out of a file that somebody else may have written.

use crate::error::{Error, Invalid};
use crate::files::arrays::{Kind, Number};
use ndarray::{Array2, ArrayD, Axis, Dimension, IxDyn, ShapeBuilder};
use ndarray_npy::npy::header::{Header, Layout, ReadHeaderError};
use std::io::{self, BufReader, ErrorKind, Read};
use std::{fs::File, path::Path};

// Read one array from a file
/// Reads an array of finite numbers, `.npy` or FITS (the first image in it), with one of two numbers of axes.
///
/// Floating-point numbers of 32 or 64 bits and integers are accepted, in either order of bytes. The array comes in C order.
///
/// # Errors
/// `Read` where the file cannot be read, is of another kind or is cut short; `Invalid`, with the file's name,
/// where the array has no numbers or another number of axes, another type, or a number that is not finite.
pub fn read_array(path: &Path, axes: [usize; 2]) -> Result<ArrayD<f64>, Error> {
    let refuse = |source| Error::Read { path: path.into(), source };
    let mut file = BufReader::new(File::open(path).map_err(refuse)?);
    let found = find_array(&mut file, path)?;
    if !axes.contains(&found.shape.len()) || found.shape.contains(&0) {
        return Err(found.refuse_shape(path, axes));
    }
    let numbers = found.read_numbers(&mut file).map_err(refuse)?;
    // Give the numbers their shape
    let shape = IxDyn(&found.shape).set_f(found.columns_first);
    let array = ArrayD::from_shape_vec(shape, numbers)
        .map_err(|error| refuse(io::Error::other(error)))?
        .as_standard_layout()
        .into_owned();
    match array.indexed_iter().find(|(_, value)| !value.is_finite()) {
        None => Ok(array),
        Some((place, value)) => {
            let rest: Vec<_> = place.as_array_view().iter().map(ToString::to_string).collect();
            let (row, index) = match rest.split_first() {
                Some((row, index)) if !index.is_empty() => (row.as_str(), index.join(", ")),
                _ => ("0", rest.join(", ")),
            };
            let place = format!("{}: row {row}, index {index}", path.display());
            Err(Invalid::new(place, value, "a finite number (both are counted from 0)").into())
        }
    }
}

// Read rows of slopes
/// Reads an array of one or two axes as rows; a single axis becomes a single row. Errors as for [`read_array`].
///
/// ```
/// use lenslet::files::{ArrayFormat, Arrays, read_array2};
/// use lenslet::numerics::Precision;
/// let slopes = ndarray::array![[1e-7, -2e-7, 0.0], [3e-7, 0.0, 1e-7]]; // two frames, rad
/// let mut arrays = Arrays::default();
/// arrays.add_result("slopes", slopes.view()).unit("rad").axes("frame, slope");
/// let path = std::env::temp_dir().join(format!("lenslet-{}.fits", std::process::id()));
/// arrays.write(&mut std::fs::File::create(&path)?, ArrayFormat::Fits, Precision::F64)?;
/// assert_eq!(read_array2(&path)?, slopes);
/// std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_array2(path: &Path) -> Result<Array2<f64>, Error> {
    let array = read_array(path, [1, 2])?;
    let rows = if array.ndim() == 1 { array.insert_axis(Axis(0)) } else { array };
    rows.into_dimensionality().map_err(|error| {
        let source = io::Error::other(error);
        Error::Read { path: path.into(), source }
    })
}

// Array that was found in a file
/// An array in a file: what its header says.
pub(super) struct Found {
    pub(super) shape: Vec<usize>,
    /// Whether the first index runs fastest.
    pub(super) columns_first: bool,
    pub(super) number: Number,
    /// What the numbers are multiplied by, and what is added then.
    pub(super) scale: (f64, f64),
    /// The integer that stands for an unknown value.
    pub(super) blank: Option<f64>,
}

impl Found {
    fn refuse_shape(&self, path: &Path, axes: [usize; 2]) -> Error {
        let name = format!("{}: shape", path.display());
        let shape = format!("{:?}", self.shape);
        let [one, other] =
            axes.map(|axes| ["no", "one", "two", "three"].get(axes).copied().unwrap_or("many"));
        let expected = format!("{one} or {other} axes, none of them of length 0");
        Invalid::new(name, shape, expected).into()
    }

    // Read all numbers
    fn read_numbers(&self, file: &mut impl Read) -> io::Result<Vec<f64>> {
        let count = self.shape.iter().fold(1, |count: usize, n| count.saturating_mul(*n));
        let mut numbers = Vec::new();
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..self.number.bytes];
        for done in 0..count {
            file.read_exact(bytes).map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => cut_short(&format!("after {done} of {count} numbers")),
                _ => error,
            })?;
            let number = self.number.value(bytes);
            let known = self.blank != Some(number);
            numbers.push(if known { self.scale.0 * number + self.scale.1 } else { f64::NAN });
        }
        Ok(numbers)
    }
}

// Find the array of a file
fn find_array(file: &mut impl Read, path: &Path) -> Result<Found, Error> {
    let refuse = |source| Error::Read { path: path.into(), source };
    let mut start = [0; 6];
    file.read_exact(&mut start).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => refuse(unknown_format("it has less than six bytes")),
        _ => refuse(error),
    })?;
    let mut whole = start.as_slice().chain(file);
    match &start {
        b"\x93NUMPY" => find_npy(&mut whole, path),
        b"SIMPLE" => Found::image(&mut whole, path),
        [b'P', b'K', ..] => Err(refuse(unknown_format("it is an archive, perhaps an .npz"))),
        _ => Err(refuse(unknown_format("it is neither"))),
    }
}

// Words for files that are refused
pub(super) fn unknown_format(what: &str) -> io::Error {
    let reason = format!("expected a NumPy array (.npy) or a FITS image, and {what}");
    io::Error::new(ErrorKind::InvalidData, reason)
}

pub(super) fn cut_short(place: &str) -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, format!("it is cut short {place}"))
}

// Find the array of an npy file
fn find_npy(file: &mut impl Read, path: &Path) -> Result<Found, Error> {
    let refuse = |source| Error::Read { path: path.into(), source };
    let header = Header::from_reader(file).map_err(|error| match error {
        ReadHeaderError::Io(error) if error.kind() == ErrorKind::UnexpectedEof => {
            refuse(cut_short("in its header"))
        }
        ReadHeaderError::Io(error) => refuse(error),
        ReadHeaderError::Parse(_) => refuse(unknown_format("its header is none of NumPy's")),
    })?;
    let named = header.type_descriptor.to_string();
    let named = named.trim_matches('\'');
    let number = Number::of_numpy(named).ok_or_else(|| {
        let expected = "real numbers, such as <f8 or <f4";
        Invalid::new(format!("{}: type", path.display()), named, expected)
    })?;
    let columns_first = header.layout == Layout::Fortran;
    Ok(Found { shape: header.shape, columns_first, number, scale: (1.0, 0.0), blank: None })
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
    use crate::files::arrays::{ArrayFormat, Arrays, Precision};
    use crate::files::fits::BLOCK;
    use fitsio::{FitsFile, images::ImageDescription, images::ImageType, tables};
    use ndarray::{Array3, array};
    use ndarray_npy::WriteNpyExt;

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
        read_array2(path.path())
    }

    // Two images of our own
    fn images() -> io::Result<Vec<u8>> {
        let mut arrays = Arrays::default();
        arrays.add("first", array![[1.0, 2.0], [3.0, 4.0], [5.0, -6.0]]);
        arrays.add("second", array![[1.0, f64::NAN]]);
        let mut file = io::Cursor::new(Vec::new());
        arrays.write(&mut file, ArrayFormat::Fits, Precision::F64)?;
        Ok(file.into_inner())
    }

    // Read each form of numbers
    #[test]
    fn numpy_arrays_are_read() -> Checked {
        let wanted = array![[1.0, -2.0, 3.0], [4.0, 5.0, 6.0]];
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
            assert_eq!(read(&file)?, wanted);
        }
        Ok(())
    }

    // Read what a library has written
    #[test]
    fn rows_are_read() -> Checked {
        let one_axis = npy("<u2", "False", "(2,)", &[1, 0, 255, 255]);
        assert_eq!(read(&one_axis)?, array![[1.0, 65535.0]]);
        let wanted = array![[1.0, -2.0, 3.0], [4.0, 5.0, 6.0]];
        for array in [wanted.view(), wanted.t()] {
            let mut file = Vec::new();
            array.write_npy(&mut file)?;
            assert_eq!(read(&file)?, array);
        }
        let path = tempfile::NamedTempFile::new()?;
        let mut blocks =
            Array3::from_shape_fn((3, 2, 2), |(k, b, a)| (100 * k + 10 * b + a) as f64);
        for _ in 0..2 {
            blocks.write_npy(path.reopen()?)?;
            assert_eq!(read_array(path.path(), [1, 3])?, blocks.view().into_dyn());
            blocks = blocks.reversed_axes().as_standard_layout().into_owned();
        }
        blocks[[2, 0, 1]] = f64::NAN;
        blocks.write_npy(path.reopen()?)?;
        let refused = [[1, 3], [1, 2]].map(|axes| read_array(path.path(), axes).unwrap_err());
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
        let wanted = Array2::from_shape_fn((50, 400), |(j, i)| (j * i) as f64);
        let (end, writer) = io::pipe()?;
        let written = wanted.clone();
        let other_side = std::thread::spawn(move || written.write_npy(writer));
        let found = read_array2(format!("/dev/fd/{}", end.as_raw_fd()).as_ref())?;
        assert_eq!(found, wanted);
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
            assert_eq!(read_array2(&path)?, array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], "{kind:?}");
        }
        std::fs::write(&path, images()?)?;
        assert_eq!(read_array2(&path)?, array![[1.0, 2.0], [3.0, 4.0], [5.0, -6.0]]);
        Ok(())
    }

    // Refuse what cannot be read
    #[test]
    fn bad_files_are_refused() -> Checked {
        let ones = [1.0_f64.to_le_bytes(); 6].concat();
        let infinite = [[0; 8], [0; 8], f64::INFINITY.to_le_bytes(), [0; 8]].concat();
        let fits = images()?;
        let changed = |old: &str, new: &str| {
            let text = String::from_utf8_lossy(&fits[BLOCK..2 * BLOCK]).replace(old, new);
            [&fits[..BLOCK], text.as_bytes(), &fits[2 * BLOCK..]].concat()
        };
        let cases: &[(Vec<u8>, &str)] = &[
            // Bad arrays and what is said of them
            (vec![], "less than six bytes"),
            (b"1.0, 2.0\n".to_vec(), "it is neither"),
            (b"PK\x03\x04 \x14".to_vec(), "it is an archive"),
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
            (changed("'IMAGE   '", "'TABLE   '"), "row 0, index 1 = NaN"),
        ];
        for (file, words) in cases {
            let Err(refused) = read(file) else { panic!("accepted, and not {words:?}") };
            let refused = refused.to_string();
            assert!(refused.contains(words), "no {words:?} in {refused:?}");
            assert!(refused.contains(".tmp") && !refused.contains('\n'), "{refused:?}");
        }
        assert!(matches!(read_array2("absent.npy".as_ref()), Err(Error::Read { .. })));
        assert!(matches!(read_array2(".".as_ref()), Err(Error::Read { .. })));
        Ok(())
    }
}
