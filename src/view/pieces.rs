// Tangled from book/src/view-pieces.md: edit there, or here and run cargo tangle stitch.
//! Files whose arrays are read in pieces, at a viewer's request.

// Imports of pieces
use super::encode::{Elements, Encoding, encoded};
use crate::data::{DataSet, TypedArray};
use crate::error::Error;
use crate::files::read::content::Located;
use crate::files::read::content::LocatedData;
use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

// Arrays read in pieces
/// An open file, with its small variables in memory; its large arrays are read in pieces.
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

/// Length and modification time of a file, from which a change is detected.
type Stamp = (u64, Option<SystemTime>);

/// Bytes above which an array is read in pieces.
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

    /// Its name, without folders.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }

    /// Contents of the file, except that the elements of large arrays are 0 here and occupy no memory.
    pub fn data(&self) -> &DataSet<'static> {
        &self.located.data
    }

    /// Notes about arrays that had to be copied into temporary files.
    pub fn notes(&self) -> &[String] {
        &self.located.notes
    }

    /// Bytes of each large array, as they are served.
    pub fn served_bytes(&self) -> impl Iterator<Item = u64> {
        self.located.arrays.iter().filter_map(|(k, _)| Some(self.bytes(*k)?.1))
    }

    // Find an array that is read in pieces
    /// Location of the elements of a variable, if it is a large array.
    fn find(&self, variable: usize) -> Option<&Located> {
        self.located.arrays.iter().find(|(k, _)| *k == variable).map(|(_, array)| array)
    }

    /// Encoding of the pieces of a variable, if it is a large array.
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

    /// Bytes of one encoded element of a variable, and of all its elements, if it is a large array.
    pub(crate) fn bytes(&self, variable: usize) -> Option<(usize, u64)> {
        let array = self.find(variable)?;
        let complex = self.located.data.variables.get(variable)?.array()?.is_complex();
        let each = self.encoding(variable)?.bytes() * (1 + usize::from(complex));
        Some((each, (array.count() as u64).saturating_mul(each as u64)))
    }
}

// Notice that a file changed
/// Stamp of a file; for a Zarr store, the stamp of its metadata file.
fn stamp(path: &Path) -> Option<Stamp> {
    let description = path.join(".zmetadata");
    let path = if path.is_dir() { &description } else { path };
    let of = |file: Metadata| (file.len(), file.modified().ok());
    path.metadata().ok().map(of)
}

// Read a piece of an array
impl Pieces {
    /// Range of the elements of a large array, in C order.
    pub(crate) fn elements(
        &self,
        variable: usize,
        range: Range<usize>,
    ) -> io::Result<TypedArray<'static>> {
        self.unchanged(variable)?.range(range)
    }

    // Refuse a file that was changed
    /// Location of the elements of a large array; an error if the file was changed.
    fn unchanged(&self, variable: usize) -> io::Result<&Located> {
        let array = self.find(variable).ok_or(io::ErrorKind::NotFound)?;
        if stamp(&self.path) != self.stamp {
            let reason =
                "the file was changed after it was opened: end the server and start it again";
            return Err(io::Error::other(reason));
        }
        Ok(array)
    }

    // Bytes of a piece
    /// Bytes of a range of elements of a large array, in C order and little-endian; a complex number is a pair of real and imaginary part.
    ///
    /// # Errors
    /// `NotFound` if the variable is not a large array; errors of the operating system; an error if the file was changed after it was opened.
    pub fn read(&self, variable: usize, range: Range<usize>) -> io::Result<Vec<u8>> {
        let encoding = self.encoding(variable).ok_or(io::ErrorKind::NotFound)?;
        let located = self.unchanged(variable)?;
        if located.is_plain() {
            return located.bytes(range);
        }
        let array = located.range(range)?;
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

// Tests of pieces of files
#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Element, Values};
    use crate::files::Format;
    use crate::files::variables::tests::lopsided;
    use ndarray::{Array3, ArrayD, IxDyn};
    use num_complex::Complex32;
    use std::fs::File;
    use std::io::{Seek, SeekFrom, Write};
    use std::time::Instant;

    /// Opens a file; arrays of more than `above` bytes are read in pieces.
    fn open(path: &Path, above: usize) -> Pieces {
        let located = LocatedData::open(path, above).unwrap();
        Pieces { path: path.into(), located, stamp: stamp(path) }
    }

    // Pieces compared with whole arrays
    fn served(array: &TypedArray, encoding: Encoding) -> Vec<u8> {
        if let TypedArray::I64(_) = array {
            let elements = Elements::of(array);
            return encoded(&elements.numbers(0..elements.len()), encoding);
        }
        let mut bytes = Vec::new();
        array.write(&mut bytes).unwrap();
        bytes
    }

    /// Compares all pieces of a file with its arrays read as a whole; returns the number of arrays that are read in pieces.
    fn compare(path: &Path) -> usize {
        let (pieces, whole) = (open(path, 100), DataSet::read(path).unwrap());
        assert_eq!(pieces.data().shapes(), whole.shapes());
        let (mut compared, mut state) = (0, 1_u64);
        for (k, variable) in whole.iter().enumerate() {
            let own = pieces.data().iter().nth(k).unwrap();
            assert_eq!((own.name(), own.element()), (variable.name(), variable.element()));
            assert_eq!((&own.unit, &own.dimensions), (&variable.unit, &variable.dimensions));
            let (Values::Array(array), Some(encoding)) = (&variable.values, pieces.encoding(k))
            else {
                assert!(pieces.encoding(k).is_none() && pieces.bytes(k).is_none());
                continue;
            };
            let (all, (each, bytes)) = (served(array, encoding), pieces.bytes(k).unwrap());
            assert_eq!(bytes, all.len() as u64);
            let count = all.len() / each;
            assert_eq!(pieces.read(k, 0..count).unwrap(), all, "{}", variable.name());
            for _ in 0..50 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let from = (state >> 33) as usize % count;
                let to = from + (state >> 20) as usize % (count - from + 1);
                let piece = pieces.read(k, from..to).unwrap();
                assert_eq!(piece, all[from * each..to * each], "{} {from}..{to}", variable.name());
            }
            assert!(pieces.read(k, 0..count + 1).is_err());
            compared += 1;
        }
        compared
    }

    #[test]
    fn pieces_have_the_numbers_of_the_file_in_every_format() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a.h5", "a.hspy", "a.zspy", "a.zarr", "a.zarr.zip", "a.npz"] {
            let format = Format::of(("file", &at(name)), &Format::ALL, None).unwrap();
            lopsided().save(&at(name), format, None).unwrap();
            assert_eq!(compare(&at(name)), 5, "{name}");
        }
        lopsided().save(&at("a.mrc"), Format::Mrc, Some("four_d")).unwrap();
        assert_eq!(compare(&at("a.mrc")), 1);
        // Arrays of other types in archives and FITS
        let mut data = DataSet::default();
        let value = |(i, j, k)| (i * 100 + j * 10 + k) as i64 - 7;
        data.add("counts", Array3::from_shape_fn((3, 5, 4), value)).unit("e").dimensions("t, y, x");
        data.add("far", Array3::from_shape_fn((3, 5, 4), |place| value(place) << 40));
        data.add("lit", Array3::from_shape_fn((9, 5, 4), |(i, j, k)| (i + j * k) % 3 == 1));
        data.add("single", Array3::from_shape_fn((3, 5, 4), |place| value(place) as f32 / 7.0));
        data.add("double", Array3::from_shape_fn((3, 5, 4), |place| value(place) as f64 / 7.0));
        data.save(&at("b.fits"), Format::Fits, None).unwrap();
        data.save(&at("b.npz"), Format::Npz, None).unwrap();
        assert_eq!((compare(&at("b.fits")), compare(&at("b.npz"))), (5, 5));
        let waves =
            ArrayD::from_shape_fn(vec![4, 3, 5], |k| Complex32::new(k[0] as f32, k[2] as f32));
        let mut data = DataSet::default();
        data.add("waves", waves);
        data.save(&at("c.npy"), Format::Npy, None).unwrap();
        assert_eq!(compare(&at("c.npy")), 1);
    }

    // Files that NumPy writes otherwise
    /// An .npy file of this type and order of indices.
    fn npy(kind: &str, columns_first: bool, shape: &str, bytes: &[u8]) -> Vec<u8> {
        let order = if columns_first { "True" } else { "False" };
        let mut header =
            format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}");
        while (header.len() + 11) % 64 != 0 {
            header.push(' ');
        }
        header.push('\n');
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.as_bytes());
        file.extend(bytes);
        file
    }

    #[test]
    fn pieces_of_other_orders_and_compressed_members_are_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let shorts: Vec<u8> = (0..210_i16).flat_map(|k| (k - 100).to_be_bytes()).collect();
        std::fs::write(at("a.npy"), npy(">i2", false, "(2, 15, 7)", &shorts)).unwrap();
        assert_eq!(compare(&at("a.npy")), 1);
        assert_eq!(open(&at("a.npy"), 100).encoding(0), Some(Encoding::I32));
        std::fs::write(at("b.npy"), npy(">i2", true, "(2, 15, 7)", &shorts)).unwrap();
        assert_eq!(compare(&at("b.npy")), 1);
        let notes = open(&at("b.npy"), 100).located.notes;
        assert!(notes.len() == 1 && notes[0].contains("temporary file"), "{notes:?}");
        // A compressed archive
        let mut zip = zip::ZipWriter::new(File::create(at("c.npz")).unwrap());
        for (name, method) in
            [("one", zip::CompressionMethod::Deflated), ("two", zip::CompressionMethod::Stored)]
        {
            let options = zip::write::SimpleFileOptions::default().compression_method(method);
            zip.start_file(format!("{name}.npy"), options).unwrap();
            zip.write_all(&npy(">i2", false, "(2, 15, 7)", &shorts)).unwrap();
        }
        zip.finish().unwrap();
        assert_eq!(compare(&at("c.npz")), 2);
        let notes = open(&at("c.npz"), 100).located.notes;
        assert!(notes.len() == 1 && notes[0].contains("one.npy is compressed"), "{notes:?}");
        // A compressed member with a wrong checksum
        let mut bytes = std::fs::read(at("c.npz")).unwrap();
        let central = bytes.windows(4).position(|four| four == b"PK\x01\x02").unwrap();
        bytes[central + 16] ^= 1;
        std::fs::write(at("d.npz"), bytes).unwrap();
        let damaged = format!("{:?}", LocatedData::open(&at("d.npz"), 100).unwrap_err());
        assert!(damaged.contains("one.npy"), "{damaged}");
    }

    // Chunks in files of a store
    #[test]
    fn pieces_of_small_chunks_are_put_together() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.zarr");
        std::fs::create_dir_all(path.join("image")).unwrap();
        let array = r#"{"zarr_format":2,"shape":[7,5],"chunks":[3,2],"dtype":"<f8","order":"C","compressor":null,"filters":null}"#;
        let all = format!(
            r#"{{"zarr_consolidated_format":1,"metadata":{{".zgroup":{{}},"image/.zgroup":{{}},"image/image/.zarray":{array}}}}}"#
        );
        std::fs::write(path.join(".zmetadata"), all).unwrap();
        std::fs::create_dir_all(path.join("image/image")).unwrap();
        for (i, j) in (0..3).flat_map(|i| (0..3).map(move |j| (i, j))) {
            let places = (0..3).flat_map(|k| (0..2).map(move |l| (3 * i + k, 2 * j + l)));
            let bytes =
                places.flat_map(|(y, x)| (10.0 * f64::from(y) + f64::from(x)).to_le_bytes());
            std::fs::write(path.join(format!("image/image/{i}.{j}")), bytes.collect::<Vec<u8>>())
                .unwrap();
        }
        assert_eq!(compare(&path), 1);
        let row = open(&path, 100).read(0, 30..35).unwrap();
        let row: Vec<f64> =
            row.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(row, [60.0, 61.0, 62.0, 63.0, 64.0]);
        // A chunk that is lost later
        let pieces = open(&path, 100);
        std::fs::write(path.join("image/image/0.1"), b"short").unwrap();
        assert!(pieces.read(0, 0..2).is_ok() && pieces.read(0, 0..3).is_err());
        std::fs::remove_file(path.join("image/image/0.0")).unwrap();
        assert!(pieces.read(0, 0..2).is_err());
    }

    // Files that change
    #[test]
    fn files_that_change_or_shrink_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.npy");
        let mut data = DataSet::default();
        data.add("a", ArrayD::from_shape_fn(IxDyn(&[50, 60]), |k| (k[0] * k[1]) as f64));
        data.save(&path, Format::Npy, None).unwrap();
        let pieces = open(&path, 100);
        assert!(pieces.read(0, 2999..3000).is_ok());
        assert_eq!(pieces.read(1, 0..1).unwrap_err().kind(), io::ErrorKind::NotFound);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(5000).unwrap();
        let refused = pieces.read(0, 0..1).unwrap_err().to_string();
        assert!(refused.starts_with("the file was changed"), "{refused}");
        // Shortened, and seen too late
        let unaware = Pieces { stamp: stamp(&path), ..pieces };
        assert!(unaware.read(0, 0..1).is_ok() && unaware.read(0, 2999..3000).is_err());
        let short = format!("{:?}", LocatedData::open(&path, 100).unwrap_err());
        assert!(short.contains("it is cut short after 609 of 3000 numbers"), "{short}");
    }

    // A file beyond memory
    #[test]
    fn a_plane_of_a_large_file_is_read_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large.npy");
        let start = npy("<f4", false, "(96, 64, 350, 350)", b"");
        let mut file = File::create(&path).unwrap();
        file.write_all(&start).unwrap();
        file.set_len(start.len() as u64 + 4 * 96 * 64 * 350 * 350).unwrap(); // 3 GB, sparse
        let plane = 350 * 350;
        file.seek(SeekFrom::Start((start.len() + 4 * (6000 * plane + 7)) as u64)).unwrap();
        file.write_all(&2.5_f32.to_le_bytes()).unwrap();
        drop(file);
        let begin = Instant::now();
        let pieces = Pieces::open(&path).unwrap();
        let read = pieces.elements(0, 6000 * plane..6001 * plane).unwrap();
        let taken = begin.elapsed();
        let read = f32::copy(&read).unwrap();
        assert_eq!((read.len(), read[[7]], read.sum()), (plane, 2.5, 2.5));
        assert_eq!(pieces.bytes(0), Some((4, 3_010_560_000)));
        assert!(taken.as_secs_f64() < 5.0, "{taken:?}"); // milliseconds, unless all of it is read
    }
}
