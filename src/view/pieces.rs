//! Files whose arrays are read in pieces, as a viewer asks for them.

// Imports of pieces
use super::encode::{Elements, Encoding, encoded};
use crate::data::{DataSet, TypedArray};
use crate::error::Error;
use crate::files::read::content::LocatedData;
use crate::files::read::content::Located;
use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

// Arrays read in pieces
/// An open file: what is small of it is read, and its large arrays are read in pieces.
///
/// ```
/// use lenslet::{data::DataSet, files::Format, view::Pieces};
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("scan.npy");
/// let mut data = DataSet::default();
/// data.add("scan", ndarray::Array::from_shape_fn((300, 500), |(j, k)| (500 * j + k) as f64));
/// data.save(&path, Format::Npy, None)?;
/// let file = Pieces::open(&path)?;
/// assert_eq!(file.read(0, 1002..1003)?, 1002.0_f64.to_le_bytes());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Pieces {
    path: PathBuf,
    located: LocatedData,
    stamp: Option<Stamp>,
}

/// Length of a file and when it was written, by which a change is noticed.
type Stamp = (u64, Option<SystemTime>);

/// Bytes beyond which an array is read in pieces.
pub(crate) const LARGE: usize = 1_000_000;

// Open a file for pieces
impl Pieces {
    /// Opens a file, and reads its arrays of up to 1 MB.
    ///
    /// # Errors
    /// As of [`DataSet::read`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let stamp = stamp(path);
        Ok(Self { path: path.into(), located: LocatedData::open(path, LARGE)?, stamp })
    }

    /// Its name, without those of its folders.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }

    /// Everything but the elements of large arrays, which are 0 here and take no memory.
    pub fn data(&self) -> &DataSet<'static> {
        &self.located.data
    }

    /// Sentences about arrays that had to be copied into temporary files.
    pub fn notes(&self) -> &[String] {
        &self.located.notes
    }

    /// Bytes of each large array, as they are served.
    pub fn served_bytes(&self) -> impl Iterator<Item = u64> {
        self.located.arrays.iter().filter_map(|(k, _)| Some(self.bytes(*k)?.1))
    }

    // Find an array that is read in pieces
    /// Where the elements of a variable are, if it is a large array.
    fn find(&self, variable: usize) -> Option<&Located> {
        self.located.arrays.iter().find(|(k, _)| *k == variable).map(|(_, array)| array)
    }

    /// The encoding of the pieces of a variable, if it is a large array.
    pub(crate) fn encoding(&self, variable: usize) -> Option<Encoding> {
        let array = self.find(variable)?;
        Some(match self.located.data.variables.get(variable)?.array()? {
            TypedArray::F64(_) | TypedArray::C64(_) => Encoding::F64,
            TypedArray::F32(_) | TypedArray::C32(_) => Encoding::F32,
            TypedArray::Bool(_) => Encoding::U8,
            TypedArray::I64(_) if array.fits_i32() => Encoding::I32,
            TypedArray::I64(_) => Encoding::F64,
        })
    }

    /// Bytes of an encoded element of a variable, and of all of them, if it is a large array.
    pub(crate) fn bytes(&self, variable: usize) -> Option<(usize, u64)> {
        let array = self.find(variable)?;
        let complex = self.located.data.variables.get(variable)?.array()?.is_complex();
        let each = self.encoding(variable)?.bytes() * (1 + usize::from(complex));
        Some((each, (array.count() as u64).saturating_mul(each as u64)))
    }
}

/// The stamp of a file; of a store in Zarr, that of its description.
fn stamp(path: &Path) -> Option<Stamp> {
    let description = path.join(".zmetadata");
    let path = if path.is_dir() { &description } else { path };
    let of = |file: Metadata| (file.len(), file.modified().ok());
    path.metadata().ok().map(of)
}

// Read a piece of an array
impl Pieces {
    /// The elements of a range of a large array, in C order.
    pub(crate) fn elements(
        &self,
        variable: usize,
        range: Range<usize>,
    ) -> io::Result<TypedArray<'static>> {
        let array = self.find(variable).ok_or(io::ErrorKind::NotFound)?;
        if stamp(&self.path) != self.stamp {
            let reason = "the file was changed after it was opened: end the server and start it again";
            return Err(io::Error::other(reason));
        }
        array.range(range)
    }

    /// The bytes of a range of the elements of a large array: in C order and little-endian, of real and imaginary parts in pairs.
    ///
    /// # Errors
    /// `NotFound` where the variable is no large array, what the system reports, and where the file was changed since it was opened.
    pub fn read(&self, variable: usize, range: Range<usize>) -> io::Result<Vec<u8>> {
        let encoding = self.encoding(variable).ok_or(io::ErrorKind::NotFound)?;
        let array = self.elements(variable, range)?;
        Ok(match (&array, encoding) {
            (TypedArray::I64(_), _) => {
                let elements = Elements::of(&array);
                encoded(&elements.numbers(0..elements.len()), encoding)
            }
            _ => {
                let mut bytes = Vec::new();
                array.write(&mut bytes)?;
                bytes
            }
        })
    }
}
