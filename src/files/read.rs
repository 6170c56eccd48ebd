// Tangled from book/src/read-data-sets.md: edit there, or here and run cargo tangle stitch.
//! Data sets read from files.

// Modules of the decoders
// Only the viewer locates arrays; other readers share the rest.
#[cfg_attr(not(feature = "view"), expect(dead_code))]
pub(crate) mod content;
mod elements;
mod fits;
mod hdf5;
mod mrc;
mod store;

// What decoders depend on
use super::Format;
use super::fits::read_keys;
use super::npz_notes::Member;
use super::reading::{cut_short, list_arrays, npy_header, readable, zip_refusal};
use crate::data::table::Table;
use crate::data::{AttributeValue, DataSet, TypedArray, Values, Variable};
use crate::device::refuse_beyond_memory;
use crate::error::Error;
use content::{Content, Locator};
#[cfg(feature = "view")]
use content::{LocatedData, Stretch};
use elements::{CellForm, ElementForm, PROVENANCE, letters, table, whole, wrong};
use ndarray_npy::npy::header::{Header, Layout};
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek};
use std::path::Path;
use zip::ZipArchive;
use zip::result::ZipError;

// Read a data set from a file
impl DataSet<'static> {
    /// Reads a file, or a folder in `.zarr`, as the program writes them.
    ///
    /// # Errors
    /// `Invalid` for another ending; `Read` where the file cannot be read, is cut short, or is not what its ending says; `Memory` where it does not
    /// fit.
    ///
    /// ```
    /// use lenslet::{data::DataSet, files::Format, numerics::Precision};
    /// let mut data = DataSet::default();
    /// data.add("pitch", ndarray::array![0.5, 0.25]).unit("m");
    /// let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("pitches.fits");
    /// data.write(std::fs::File::create(&path).unwrap(), Format::Fits, Precision::F64).unwrap();
    /// let read = DataSet::read(&path)?;
    /// assert_eq!(read.array::<f64, ndarray::Ix1>("pitch")?, ndarray::array![0.5, 0.25]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    // Read and decode a file
    pub fn read(path: &Path) -> Result<Self, Error> {
        let refuse = |source| Error::Read { path: path.into(), source };
        let format = Format::of(("file", path), &Format::ALL, None)?;
        if format == Format::Zarr && path.is_dir() {
            return store::folder(path, None).map_err(refuse);
        }
        let length = path.metadata().map_err(refuse)?.len();
        refuse_beyond_memory(length.saturating_mul(2), || path.display().to_string())?;
        let content = std::fs::read(path).map_err(refuse)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        decode(format, &name, &Content::Memory(&content)).map_err(refuse)
    }

    // Data set of one variable
    /// A data set of one variable.
    fn of(variable: Variable<'static>) -> Self {
        DataSet { variables: vec![variable], attributes: Vec::new() }
    }
}

// Decode the content by its format
/// The data set of a file of this format, whose only variable may have this name.
fn decode(format: Format, name: &str, content: &Content) -> io::Result<DataSet<'static>> {
    match format {
        Format::Npz => npz(content),
        Format::Npy => npy(name, content).map(DataSet::of),
        Format::Fits => fits::decode(content),
        Format::Hdf5 | Format::Hspy => hdf5::decode(content),
        Format::Mrc => mrc::decode(content).map(DataSet::of),
        _ => store::archive(content),
    }
}

// Locate the arrays of a file
#[cfg(feature = "view")]
impl LocatedData {
    /// Opens a file, and locates its arrays of more than so many bytes. Errors as for [`DataSet::read`].
    pub(crate) fn open(path: &Path, above: usize) -> Result<Self, Error> {
        let refuse = |source| Error::Read { path: path.into(), source };
        let format = Format::of(("file", path), &Format::ALL, None)?;
        let locator = Locator::new(above);
        let data = if format == Format::Zarr && path.is_dir() {
            store::folder(path, Some(&locator)).map_err(refuse)?
        } else {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let file = Stretch::of_file(path).map_err(refuse)?;
            decode(format, &name, &Content::Disk(file, &locator)).map_err(refuse)?
        };
        locator.finish(data).map_err(refuse)
    }
}

// Read names and one text of a file
/// A file of several arrays, to be searched.
enum Searched {
    Archive(ZipArchive<BufReader<File>>),
    Fits(BufReader<File>),
    /// A file of one array, without a name.
    Single,
}

impl Searched {
    fn open(path: &Path) -> io::Result<Self> {
        let (mut file, mut start) = (BufReader::new(File::open(path)?), Vec::new());
        file.by_ref().take(6).read_to_end(&mut start)?;
        file.rewind()?;
        Ok(match &start[..] {
            b"SIMPLE" => Self::Fits(file),
            [b'P', b'K', ..] => Self::Archive(ZipArchive::new(file).map_err(zip_refusal)?),
            _ => Self::Single,
        })
    }
}

/// Names of the arrays in an archive or a FITS file; none for a file of one array.
pub(crate) fn array_names(path: &Path) -> Result<Vec<String>, Error> {
    let refuse = |source| Error::Read { path: path.into(), source };
    Ok(match Searched::open(path).map_err(refuse)? {
        Searched::Single => Vec::new(),
        Searched::Fits(_) => list_arrays(path)?.into_iter().map(|array| array.name).collect(),
        Searched::Archive(archive) => {
            let names: Result<Vec<_>, _> = archive.file_names().collect();
            let names = names.map_err(|error| refuse(zip_refusal(error)))?;
            names.iter().filter_map(|name| name.strip_suffix(".npy")).map(String::from).collect()
        }
    })
}

// Read one text of a file
/// The text attribute of this name of an archive of NumPy's or a FITS file, if there is one.
pub(crate) fn stored_text(path: &Path, name: &str) -> Result<Option<String>, Error> {
    let refuse = |source| Error::Read { path: path.into(), source };
    match Searched::open(path).map_err(refuse)? {
        Searched::Single => Ok(None),
        Searched::Fits(mut file) => {
            let keys = read_keys(&mut file, 0).map_err(refuse)?.unwrap_or_default();
            Ok(keys.get(&name.to_ascii_uppercase()).cloned())
        }
        Searched::Archive(mut archive) => {
            let member = match archive.by_name(&format!("{name}.npy")) {
                Err(ZipError::FileNotFound) => return Ok(None),
                member => readable(member).map_err(refuse)?,
            };
            let bytes = whole(member).map_err(refuse)?;
            let variable = npy(name, &Content::Memory(&bytes)).map_err(refuse)?;
            match variable.values {
                Values::Text(text) => Ok(Some(text)),
                _ => Err(refuse(wrong(format!("{name} is not a text")))),
            }
        }
    }
}

// Decode NumPy's formats
fn npz(content: &Content) -> io::Result<DataSet<'static>> {
    let mut archive = ZipArchive::new(content.reader()).map_err(zip_refusal)?;
    let mut data = DataSet::default();
    for k in 0..archive.len() {
        let member = readable(archive.by_index(k))?;
        let name = member.name().map_err(zip_refusal)?.strip_suffix(".npy").map(String::from);
        let Some(name) = name else { continue };
        let comment = member.comment().to_string();
        let located = content.locator().map_or(0, Locator::count);
        let variable = npy(&name, &content.member(member)?.content())?;
        // A member by its comment
        match Member::of(variable, &comment) {
            Member::Coordinate => {
                content.locator().into_iter().for_each(|it| it.forget_beyond(located))
            }
            Member::Attribute(name, value) => data.note(&name, value, ""),
            Member::Variable(variable) => {
                match attribute(&variable).filter(|_| PROVENANCE.contains(&&name[..])) {
                    Some(value) => data.note(&name, value, ""),
                    None => data.variables.push(variable),
                }
            }
        }
    }
    Ok(data)
}

// Values of single elements
/// The value of a variable without dimensions, as an attribute.
fn attribute(variable: &Variable) -> Option<AttributeValue> {
    match &variable.values {
        Values::Text(text) => Some(AttributeValue::Text(text.clone())),
        Values::Array(TypedArray::F64(x)) if x.ndim() == 0 => x.first().map(|x| (*x).into()),
        Values::Array(TypedArray::I64(n)) if n.ndim() == 0 => n.first().map(|n| (*n).into()),
        _ => None,
    }
}

// Decode one npy file
/// Bytes of the longest header of NumPy's, and of what is before it.
const LONGEST_HEADER: usize = 10_012;

fn npy(name: &str, content: &Content) -> io::Result<Variable<'static>> {
    if !content.starts_with(b"\x93NUMPY") {
        return Err(wrong(format!("{name} is not an array in NumPy's format")));
    }
    let start = content.start(LONGEST_HEADER);
    let mut rest = &start[..];
    let header = npy_header(&mut rest).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => cut_short("in its header"),
        _ => error,
    })?;
    let header = Header::from_reader(&mut &header[..])
        .map_err(|_| wrong(format!("the header of {name} is not in NumPy's format")))?;
    let at = (start.len() - rest.len()) as u64;
    let kind = header.type_descriptor.to_string();
    let kind = kind.trim_matches('\'');
    let values = if kind.starts_with('[') {
        Values::Table(records(kind, &header.shape, &content.rest(at)?)?)
    } else if let Some(("<" | ">" | "|", length)) = kind.split_once('U') {
        Values::Text(letters(length, &header.shape, (&content.rest(at)?, kind.starts_with('>')))?)
    } else {
        let place = (&header.shape[..], header.layout == Layout::Fortran);
        Values::Array(content.array(ElementForm::of_numpy(kind)?, at, place)?)
    };
    Ok(Variable::unnamed(name, values))
}

// Decode a table of records
/// The table of an array of records, which NumPy describes as in `[('star', '<i4'), ('x', '<f8')]`.
fn records(kind: &str, shape: &[usize], bytes: &[u8]) -> io::Result<Table> {
    let refuse = || wrong(format!("tables of type {kind} cannot be read"));
    let fields = kind.trim_matches(['[', ']']).split("), (").map(|field| {
        let (name, form) = field.trim_matches(['(', ')']).split_once(", ")?;
        Some((name.trim_matches('\'').to_string(), form.trim_matches('\'').to_string()))
    });
    let fields = fields.collect::<Option<Vec<_>>>().ok_or_else(refuse)?;
    let [rows] = *shape else { return Err(refuse()) };
    let mut columns = Vec::new();
    for (name, form) in fields {
        let big_endian = form.starts_with('>');
        let cells = match form.get(1..) {
            Some("i4") => CellForm::Integer,
            Some("f8") => CellForm::Number,
            Some(text) if text.starts_with('S') => {
                CellForm::Text(text[1..].parse().map_err(|_| refuse())?)
            }
            _ => return Err(refuse()),
        };
        columns.push((name, String::new(), cells, big_endian));
    }
    table(columns, rows, bytes)
}

// Tests of read data sets
#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Coordinate;
    use crate::files::variables::tests::lopsided;
    use crate::numerics::real::Precision;
    use ndarray::{Array2, arr0, array};
    use num_complex::Complex64;

    type Checked = Result<(), Box<dyn std::error::Error>>;

    // One variable of each kind
    fn one_of_each() -> DataSet<'static> {
        let mut data = DataSet::default();
        let matrix = array![[0.1, -2e-13, 3.0], [4.0, 5.0, f64::NAN]];
        data.add("matrix", matrix).unit("m rad").dimensions("y, x").long_name("it's a test");
        data.add("single", array![0.1_f32, f32::MIN_POSITIVE]);
        data.add("signed", array![-3_i64, i64::MIN]);
        data.add("lit", array![true, false, true]).dimensions("star");
        data.add("none", Array2::<f64>::zeros((0, 4)));
        let table = Table::of(&[(3, 0.25, "tip"), (-1, -2e-13, "défocus")]);
        let table = table.integer("star", |r| r.0).text("term", |r| r.2.into());
        data.add_table("slopes", table.number("x", "m", |r| r.1).table());
        data.note("command", format!("lenslet it's {}end", "long ".repeat(30)), "");
        data.note("tolerance", 1e-10, "");
        data.note("seed", -7, "");
        data.add_text("system", "r0 = 0.1 # µ\nlast line");
        data
    }

    /// Compares names, shapes, types and every bit of two data sets.
    fn same(read: &DataSet, written: &DataSet, units: bool) {
        assert_eq!(read.shapes(), written.shapes());
        for (one, other) in read.iter().zip(written.iter()) {
            assert_eq!(one.element(), other.element(), "{}", one.name());
            let bytes = |variable: &Variable| {
                let mut bytes = Vec::new();
                if let Some(array) = variable.array() {
                    array.write(&mut bytes).unwrap();
                }
                bytes
            };
            assert_eq!(bytes(one), bytes(other), "{}", one.name());
            if units {
                assert_eq!((&one.unit, &one.long_name), (&other.unit, &other.long_name));
                assert_eq!(one.dimensions, other.dimensions, "{}", one.name());
            }
        }
    }

    // Round trips of arrays
    #[test]
    fn arrays_come_back_from_numpy_and_fits() -> Checked {
        let (folder, written) = (tempfile::tempdir()?, one_of_each());
        for (name, format) in [("a.npz", Format::Npz), ("a.fits", Format::Fits)] {
            let path = folder.path().join(name);
            written.write(std::fs::File::create(&path)?, format, Precision::F64)?;
            let read = DataSet::read(&path)?;
            same(&read, &written, true);
            let values = |data: &DataSet| {
                let values =
                    data.attributes.iter().map(|one| (one.name.clone(), one.value.clone()));
                values.collect::<Vec<_>>()
            };
            assert_eq!(values(&read), values(&written));
            assert_eq!(read.text("system")?, written.text("system")?);
            let table = read.table("slopes")?;
            assert_eq!(table.numbers("x"), Some(&[0.25, -2e-13][..]));
            assert_eq!(table.integers("star"), Some(&[3, -1][..]));
            assert_eq!(table.texts("term"), Some(&["tip".to_string(), "défocus".into()][..]));
        }
        let mut one = DataSet::default();
        one.add("wave", array![[Complex64::new(0.5, -1.0)], [Complex64::new(2.0, 3.0)]]);
        let path = folder.path().join("wave.npy");
        one.write(std::fs::File::create(&path)?, Format::Npy, Precision::F64)?;
        same(&DataSet::read(&path)?, &one, false);
        let mut scalar = DataSet::default();
        scalar.add("pitch", arr0(0.5)).unit("m");
        let path = folder.path().join("pitch.npz");
        scalar.write(std::fs::File::create(&path)?, Format::Npz, Precision::F64)?;
        same(&DataSet::read(&path)?, &scalar, true);
        Ok(())
    }

    /// Unit, long name and attributes of a variable.
    fn words(variable: &Variable) -> (String, String, Vec<(String, AttributeValue)>) {
        let own = variable.attributes.iter().map(|one| (one.name.clone(), one.value.clone()));
        (variable.unit.clone(), variable.long_name.clone(), own.collect())
    }

    // Round trips of signals in NumPy's archive
    #[test]
    fn signals_come_back_from_numpy() -> Checked {
        let (folder, mut written) = (tempfile::tempdir()?, lopsided());
        let angle = Coordinate::signal("angle", "mrad", 0.5, 1.0)?.also("q", "1/Å", 0.27)?;
        let mut rings = Variable::new("rings", array![0.25, 0.5, 0.125], vec![angle])?;
        rings.unit("1").long_name("shares").attribute("seed", 3_i64);
        written.insert(rings)?;
        let path = folder.path().join("s.npz");
        written.save(&path, Format::Npz, None)?;
        let read = DataSet::read(&path)?;
        same(&read, &written, true);
        assert!(read.iter().zip(written.iter()).all(|(one, other)| words(one) == words(other)));
        for one in &written.attributes {
            assert_eq!(read.attribute(&one.name), Some(&one.value), "{}", one.name);
        }
        // NumPy sees the arrays and the coordinates, as before
        let names = array_names(&path)?;
        for name in ["annular", "x", "angle", "q", "defocus", "component", "ns"] {
            assert!(names.iter().any(|other| other == name), "{name}: {names:?}");
        }
        Ok(())
    }

    // Round trips of variables with coordinates
    #[test]
    fn signals_come_back_from_zarr_and_mrc() -> Checked {
        let (folder, mut written) = (tempfile::tempdir()?, lopsided());
        written.variables.sort_by(|one, other| one.name.cmp(&other.name));
        for (k, one) in written.variables.iter_mut().enumerate().skip(1) {
            one.unit("1/Å").long_name(&format!("it's signal <{k}>")).attribute("seed", k as i64);
        }
        for (name, format) in [("s.zarr", Format::Zarr), ("s.zarr.zip", Format::ZarrZip)] {
            let path = folder.path().join(name);
            written.save(&path, format, None)?;
            let read = DataSet::read(&path)?;
            same(&read, &written, false);
            for (one, other) in read.iter().zip(written.iter()) {
                for (one, other) in one.dimensions.iter().zip(&other.dimensions) {
                    assert_eq!((&one.name, &one.unit), (&other.name, &other.unit));
                    assert_eq!((one.samples(3), one.labels()), (other.samples(3), other.labels()));
                    assert_eq!(one.navigation, other.navigation);
                }
                assert_eq!(words(one), words(other));
            }
            assert_eq!(read.attribute("ns"), Some(&AttributeValue::Integer(10)));
            assert_eq!(read.attribute("periodic"), Some(&AttributeValue::Flag(true)));
        }
        // Variables from EMD and HyperSpy
        for (name, format) in
            [("s.h5", Format::Hdf5), ("s.hspy", Format::Hspy), ("s.zspy", Format::Zspy)]
        {
            let path = folder.path().join(name);
            written.save(&path, format, None)?;
            let mut read = DataSet::read(&path)?;
            read.variables.sort_by(|one, other| one.name.cmp(&other.name));
            assert_eq!(read.names().collect::<Vec<_>>(), written.names().collect::<Vec<_>>());
            for (one, other) in read.iter().zip(written.iter()) {
                let bytes = |array: &TypedArray| {
                    let mut bytes = Vec::new();
                    array.write(&mut bytes).map(|()| bytes)
                };
                let (Some(array), Some(expected)) = (one.array(), other.array()) else { continue };
                assert_eq!(
                    (array.shape(), array.element()),
                    (expected.shape(), expected.element())
                );
                assert_eq!(bytes(array)?, bytes(expected)?, "{name} {}", one.name());
                assert_eq!(words(one), words(other));
                for (read, written) in one.dimensions.iter().zip(&other.dimensions) {
                    assert_eq!((&read.name, &read.unit), (&written.name, &written.unit));
                    assert_eq!(read.samples(2), written.samples(2), "{name} {}", read.name);
                    assert_eq!(read.labels(), written.labels(), "{name} {}", read.name);
                    assert_eq!(read.navigation, written.navigation, "{name} {}", read.name);
                }
            }
            assert_eq!(read.attribute("ns"), Some(&AttributeValue::Integer(10)));
            assert_eq!(read.attribute("c"), written.attribute("c"));
            assert_eq!(read.attribute("periodic"), Some(&AttributeValue::Flag(true)));
        }
        let path = folder.path().join("s.mrc");
        written.save(&path, Format::Mrc, Some("four_d"))?;
        let read = DataSet::read(&path)?;
        let cube = read.array::<f32, ndarray::Ix4>("four_d")?;
        let expected = written.array::<f32, ndarray::Ix4>("four_d")?;
        assert_eq!(cube, expected.permuted_axes([1, 0, 3, 2]));
        let names = read.get("four_d").map(|one| one.coordinates().to_vec()).unwrap_or_default();
        let [x, _, _, qx] = [1, 0, 2, 3].map(|k: usize| names[k].clone());
        assert_eq!((x.name(), x.unit(), x.offset(), x.step()), ("x", "Å", 1.25, 0.5));
        assert_eq!((qx.name(), qx.unit(), qx.offset(), qx.step()), ("qx", "1/Å", -0.75, 0.25));
        Ok(())
    }

    // Damaged numbers of an archive
    #[test]
    fn archives_with_damaged_numbers_are_refused() -> Checked {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("a.npz");
        let mut data = DataSet::default();
        data.add("slopes", ndarray::Array2::from_elem((40, 3), 0.1));
        data.write(std::fs::File::create(&path)?, Format::Npz, Precision::F64)?;
        let mut bytes = std::fs::read(&path)?;
        assert_eq!(DataSet::read(&path)?.shapes().len(), 1);
        let tenth = 0.1_f64.to_le_bytes();
        let place = bytes.windows(8).position(|part| part == tenth).unwrap();
        bytes[place + 80] ^= 1;
        std::fs::write(&path, bytes)?;
        let refused = DataSet::read(&path).unwrap_err().to_string();
        assert!(refused.contains("slopes.npy is damaged: Invalid checksum"), "{refused}");
        let array = crate::files::read_array2(&path, crate::files::Unit::Stored);
        let refused = array.unwrap_err().to_string();
        assert!(refused.contains("slopes is damaged"), "{refused}");
        Ok(())
    }

    // Damaged files of data sets
    #[test]
    fn damaged_files_are_errors_and_not_panics() -> Checked {
        let folder = tempfile::tempdir()?;
        let mut files = Vec::new();
        for (name, format) in [("a.npz", Format::Npz), ("a.fits", Format::Fits)] {
            let path = folder.path().join(name);
            one_of_each().write(std::fs::File::create(&path)?, format, Precision::F64)?;
            files.push(path);
        }
        let data = [
            ("s.zarr.zip", Format::ZarrZip),
            ("s.mrc", Format::Mrc),
            ("s.h5", Format::Hdf5),
            ("s.hspy", Format::Hspy),
            ("s.zspy", Format::Zspy),
        ];
        for (name, format) in data {
            let path = folder.path().join(name);
            lopsided().save(&path, format, (format == Format::Mrc).then_some("four_d"))?;
            files.push(path);
        }
        for path in files {
            let whole = std::fs::read(&path)?;
            for length in (0..whole.len()).step_by(whole.len() / 97 + 1) {
                std::fs::write(&path, &whole[..length])?;
                let read = DataSet::read(&path);
                let fits = path.extension().is_some_and(|it| it == "fits");
                assert!(read.is_err() || fits, "{} cut to {length}", path.display());
            }
            for place in (0..whole.len().min(6000)).step_by(7) {
                let mut damaged = whole.clone();
                damaged[place] = damaged[place].wrapping_add(0x35);
                std::fs::write(&path, damaged)?;
                drop(DataSet::read(&path)); // which may notice or not, but returns
            }
        }
        Ok(())
    }

    // Huge sizes in small files
    #[test]
    fn huge_sizes_reserve_no_memory() -> Checked {
        let folder = tempfile::tempdir()?;
        let refused = |name: &str, content: &[u8]| -> Result<String, io::Error> {
            let path = folder.path().join(name);
            std::fs::write(&path, content)?;
            Ok(DataSet::read(&path).unwrap_err().to_string())
        };
        let huge = "{'descr': '<f8', 'fortran_order': False, 'shape': (4000000000, 4000000000), }";
        let mut npy = b"\x93NUMPY\x01\x00".to_vec();
        npy.extend((huge.len() as u16 + 1).to_le_bytes());
        npy.extend(format!("{huge}\n").bytes());
        assert!(refused("h.npy", &npy)?.contains("exceeds the address space"));
        let smaller = String::from_utf8_lossy(&npy[10..])
            .replace("(4000000000, 4000000000)", "(40000000000,)");
        let smaller =
            [&npy[..8], &(smaller.len() as u16).to_le_bytes(), smaller.as_bytes()].concat();
        assert!(refused("h.npy", &smaller)?.contains("after 0 of 40000000000 numbers"));
        assert!(refused("x.npy", b"PK\x03\x04")?.contains("not an array in NumPy's format"));
        assert!(refused("x.fits", b"PK\x03\x04")?.contains("does not begin as a FITS file"));
        assert!(refused("x.mrc", &[0; 2000])?.contains("does not begin as a file in MRC"));
        assert!(refused("x.npz", b"SIMPLE  =")?.contains("x.npz"));
        assert!(refused("x.h5", b"HDF")?.contains("does not begin as a file in HDF5"));
        assert!(refused("x.tif", b"")?.contains("expected a file name that ends in .npz, "));
        let path = folder.path().join("h.zarr");
        std::fs::create_dir(&path)?;
        let array = r#"{"shape": [1000000000, 1000000000], "chunks": [1, 10], "dtype": "<f8", "order": "C"}"#;
        let all = format!(r#"{{"metadata": {{"a/.zgroup": {{}}, "a/a/.zarray": {array}}}}}"#);
        std::fs::write(path.join(".zmetadata"), all)?;
        let said = DataSet::read(&path).unwrap_err().to_string();
        assert!(said.contains("the chunk a/a/0.0 is missing"), "{said}");
        Ok(())
    }
}
