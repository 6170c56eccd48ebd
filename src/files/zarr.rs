// Tangled from book/src/zarr.md: edit there, or here and run cargo tangle stitch.
//! The format Zarr, in a folder or an archive, with variables as xarray opens them.

// Imports of files in Zarr
use super::npz::{ErrorLatch, zip_error};
use crate::data::{AttributeValue, Coordinate, DataSet, Element, TypedArray, Variable};
use ndarray::{Array1, CowArray};
use serde_json::{Map, Value, json};
use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

// Members of an archive or a folder
/// What the members of a store are written into, one after the other.
pub(super) trait Members: Write {
    /// Begins the member of this path; what is written from now on belongs to it.
    fn begin(&mut self, path: &str) -> io::Result<()>;

    /// Ends the last member.
    fn end(&mut self) -> io::Result<()>;
}

// Members of an archive
impl<W: Write + Seek> Members for ZipWriter<ErrorLatch<W>> {
    fn begin(&mut self, path: &str) -> io::Result<()> {
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        self.start_file(path, options).map_err(zip_error)
    }

    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// Files in a folder
// Folder and its open file
/// Files in a folder, and how many bytes they have.
pub(super) struct Folder {
    root: PathBuf,
    file: Option<BufWriter<File>>,
    pub length: u64,
}

impl Folder {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.into(), file: None, length: 0 }
    }
}

impl Members for Folder {
    fn begin(&mut self, path: &str) -> io::Result<()> {
        self.end()?;
        let path = self.root.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        self.file = Some(BufWriter::new(File::create_new(path)?));
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(file) = self.file.take() else { return Ok(()) };
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    }
}
impl Write for Folder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let outside = || io::Error::other("a store writes outside of its members");
        let written = self.file.as_mut().ok_or_else(outside)?.write(bytes)?;
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), BufWriter::flush)
    }
}

// A store in the making
/// A store of groups and arrays that is being written.
pub(super) struct Store<'m, M: Members> {
    members: &'m mut M,
    /// All descriptions so far.
    descriptions: Map<String, Value>,
}

impl<'m, M: Members> Store<'m, M> {
    pub(super) fn new(members: &'m mut M) -> Self {
        Self { members, descriptions: Map::new() }
    }

    // Describe groups in a store
    /// Writes a description, and keeps it for the end.
    fn describe(&mut self, folder: &str, kind: &str, description: Value) -> io::Result<()> {
        let path = joined(folder, kind);
        self.members.begin(&path)?;
        self.members.write_all(description.to_string().as_bytes())?;
        self.descriptions.insert(path, description);
        Ok(())
    }

    pub(super) fn group(&mut self, folder: &str, attributes: Value) -> io::Result<()> {
        self.describe(folder, ".zgroup", json!({ "zarr_format": 2 }))?;
        self.describe(folder, ".zattrs", attributes)
    }

    // Finish a store
    pub(super) fn finish(self) -> io::Result<()> {
        let all = json!({
            "zarr_consolidated_format": 1, "metadata": self.descriptions, WRITER: env!("CARGO_PKG_NAME"),
        });
        self.members.begin(ALL)?;
        self.members.write_all(all.to_string().as_bytes())?;
        self.members.end()
    }
}

// Write an archive of members
/// Writes an archive.
pub(super) fn archive<W: Write + Seek>(
    file: W,
    write: impl FnOnce(&mut ZipWriter<ErrorLatch<W>>) -> io::Result<()>,
) -> io::Result<()> {
    let mut archive = ZipWriter::new(ErrorLatch::new(file));
    write(&mut archive)?;
    archive.finish().map_err(zip_error)?.flush()
}
/// The member that has all descriptions, and its entry that names the program.
const ALL: &str = ".zmetadata";
const WRITER: &str = "written_by";

/// The path of a member of a folder, which is the root if its name is empty.
pub(super) fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_string() } else { format!("{folder}/{name}") }
}

// Cut an array into chunks
/// Bytes that a chunk has at most.
pub(super) const CHUNK: usize = 1 << 23;

/// The shape of the chunks of an array, 1 along the first axes and whole along the last, and the axis between these.
fn chunks(shape: &[usize], bytes: usize, most: usize) -> (Vec<usize>, usize) {
    let mut chunk = vec![1; shape.len()];
    let mut inner = bytes;
    for k in (0..shape.len()).rev() {
        chunk[k] = shape[k].min((most / inner).max(1));
        if chunk[k] < shape[k] {
            return (chunk, k);
        }
        inner *= shape[k];
    }
    (chunk, 0)
}

// Put an array into a store
impl<M: Members> Store<'_, M> {
    /// Writes an array with its attributes, in chunks of so many bytes at most.
    pub(super) fn array(
        &mut self,
        folder: &str,
        samples: &TypedArray,
        most: usize,
        attributes: Value,
    ) -> io::Result<()> {
        let (shape, descriptor) = (samples.shape().to_vec(), samples.descriptor());
        let (chunk, cut) = chunks(&shape, samples.bytes(), most);
        self.describe_array(folder, &shape, &chunk, &descriptor, attributes)?;
        let before: usize = shape[..cut].iter().product();
        let whole: usize = chunk.iter().product();
        // Write the chunks of an array
        for index in 0..before {
            let fixed = unravel(index, &shape[..cut]);
            for (number, from) in (0..shape[cut]).step_by(chunk[cut]).enumerate() {
                let part = samples.part(&fixed, from..(from + chunk[cut]).min(shape[cut]));
                let key = fixed.iter().copied().chain([number]).map(|k| k.to_string());
                let rest = shape[cut + 1..].iter().map(|_| "0".to_string());
                let key = key.chain(rest).collect::<Vec<_>>().join(".");
                self.members.begin(&format!("{folder}/{key}"))?;
                part.write(self.members)?;
                let missing = whole - part.shape().iter().product::<usize>();
                self.members.write_all(&vec![0; missing * samples.bytes()])?;
            }
        }
        Ok(())
    }

    // Describe an array in a store
    fn describe_array(
        &mut self,
        folder: &str,
        shape: &[usize],
        chunk: &[usize],
        descriptor: &str,
        attributes: Value,
    ) -> io::Result<()> {
        let description = json!({
            "zarr_format": 2, "shape": shape, "chunks": chunk, "dtype": descriptor, "order": "C",
            "compressor": null, "filters": null, "fill_value": null,
        });
        self.describe(folder, ".zarray", description)?;
        self.describe(folder, ".zattrs", attributes)
    }

    // Put labels into a store
    fn labels(&mut self, folder: &str, labels: &[String], attributes: Value) -> io::Result<()> {
        let longest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(1);
        let shape = [labels.len()];
        self.describe_array(folder, &shape, &shape, &format!("<U{longest}"), attributes)?;
        self.members.begin(&format!("{folder}/0"))?;
        for label in labels {
            let letters = label.chars().map(u32::from).chain(std::iter::repeat(0)).take(longest);
            letters.into_iter().try_for_each(|c| self.members.write_all(&c.to_le_bytes()))?;
        }
        Ok(())
    }
}

// Indices of an element by number
/// The indices of the element of this number, the last axis the fastest.
pub(super) fn unravel(mut number: usize, shape: &[usize]) -> Vec<usize> {
    let mut indices = vec![0; shape.len()];
    for (index, &count) in indices.iter_mut().zip(shape).rev() {
        (*index, number) = (number % count, number / count);
    }
    indices
}

// Variables as xarray opens them
impl DataSet<'_> {
    /// Writes each variable as a group with its coordinates.
    pub(super) fn write_zarr(&self, members: &mut impl Members) -> io::Result<()> {
        let mut store = Store::new(members);
        store.group("", Value::Object(self.facts_as_json()))?;
        for (variable, array) in self.arrays() {
            let folder = &variable.name;
            store.group(folder, json!({}))?;
            let names: Vec<_> = variable.dimensions.iter().map(Coordinate::name).collect();
            let path = format!("{folder}/{}", variable.array_name());
            let mut attributes = variable.described();
            attributes.insert("_ARRAY_DIMENSIONS".into(), json!(names));
            store.array(&path, array, CHUNK, Value::Object(attributes))?;
            for (axis, &count) in variable.dimensions.iter().zip(array.shape()) {
                axis.write_zarr(count, folder, &mut store)?;
            }
        }
        store.finish()
    }
}

// Put one coordinate into a plain store
impl Coordinate {
    fn write_zarr<M: Members>(
        &self,
        count: usize,
        folder: &str,
        store: &mut Store<M>,
    ) -> io::Result<()> {
        let path = format!("{folder}/{}", self.name);
        let mut attributes = json!({ "_ARRAY_DIMENSIONS": [&self.name], "units": self.unit });
        if self.navigation {
            attributes["navigation"] = json!(true);
        }
        if !self.labels().is_empty() {
            return store.labels(&path, self.labels(), attributes);
        }
        let places = Array1::from(self.samples(count));
        store.array(&path, &f64::typed(CowArray::from(places).into_dyn()), CHUNK, attributes)
    }
}

// Name of an array in a store
impl Variable<'_> {
    /// Its name, unless that is the name of an axis.
    fn array_name(&self) -> &str {
        let taken = self.dimensions.iter().any(|axis| axis.name == self.name);
        if taken { "samples" } else { &self.name }
    }
}

// Facts as JSON
impl AttributeValue {
    pub(super) fn as_json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Number(x) => json!(x),
            Self::Integer(n) => json!(n),
            Self::Flag(is) => json!(is),
            Self::Numbers(all) => json!(all),
        }
    }

    /// A value of JSON as an attribute, if it is one.
    pub(super) fn from_json(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Bool(is) => Self::Flag(*is),
            Value::String(text) => Self::Text(text.clone()),
            Value::Number(number) => number.as_i64().map_or_else(
                || number.as_f64().map(Self::Number),
                |number| Some(Self::Integer(number)),
            )?,
            Value::Array(all) => {
                Self::Numbers(all.iter().map(Value::as_f64).collect::<Option<_>>()?)
            }
            Value::Null | Value::Object(_) => return None,
        })
    }
}

impl Variable<'_> {
    /// Its unit, its long name and its attributes, those that it has.
    pub(super) fn described(&self) -> Map<String, Value> {
        let own = self.attributes.iter().map(|one| (one.name.clone(), one.value.as_json()));
        let words = [("units", &self.unit), ("long_name", &self.long_name)].into_iter();
        let words = words.filter(|(_, text)| !text.is_empty());
        own.chain(words.map(|(key, text)| (key.to_string(), json!(text)))).collect()
    }

    /// Takes its unit, its long name and its attributes from those of an array in a file, but for the keys of the format.
    pub(super) fn describe(
        &mut self,
        attributes: impl IntoIterator<Item = (String, AttributeValue)>,
        keys_of_format: &[&str],
    ) {
        for (key, value) in attributes {
            match (&key[..], value) {
                ("units", AttributeValue::Text(unit)) => self.unit = unit,
                ("long_name", AttributeValue::Text(name)) => self.long_name = name,
                (key, _) if keys_of_format.contains(&key) => {}
                (key, value) => drop(self.attribute(key, value)),
            }
        }
    }
}

impl DataSet<'_> {
    pub(super) fn facts_as_json(&self) -> Map<String, Value> {
        self.facts().into_iter().map(|(key, fact)| (key, fact.as_json())).collect()
    }
}

// Recognise a store of our own
/// Refuses a folder that holds anything else than a store that this program wrote.
pub(super) fn accept_own_store(folder: &Path) -> io::Result<()> {
    let refuse = |what: &str| {
        let remedy = "it is a folder that this program did not write, or not alone";
        Err(io::Error::other(format!("{remedy} ({what}): move it away, or give another name")))
    };
    // Read a short description
    let read = |path: &Path| -> Option<Value> {
        let few = path.metadata().is_ok_and(|metadata| metadata.len() < 1 << 28);
        few.then(|| fs::read(path).ok())
            .flatten()
            .and_then(|text| serde_json::from_slice(&text).ok())
    };
    let all = read(&folder.join(ALL)).filter(|all| all[WRITER] == env!("CARGO_PKG_NAME"));
    let Some(Value::Object(descriptions)) = all.map(|mut all| all["metadata"].take()) else {
        return refuse("without a list of its arrays by this program in .zmetadata");
    };
    let mut paths = Vec::new();
    list_files(folder, "", &mut paths)?;
    for path in paths {
        // Compare a member with its description
        let own = match (descriptions.get(&path), path.rsplit_once('/')) {
            _ if path == ALL => true,
            (Some(description), _) => read(&folder.join(&path)).as_ref() == Some(description),
            (None, Some((array, chunk))) => {
                let array = descriptions.get(&format!("{array}/.zarray"));
                let length = folder.join(&path).symlink_metadata()?.len();
                array.and_then(|array| length_of_chunk(array, chunk)) == Some(length)
            }
            (None, None) => false,
        };
        if !own {
            return refuse(&format!("{path} is not part of it"));
        }
    }
    Ok(())
}

// List the files in a folder
/// Appends the paths of all files below a folder.
fn list_files(root: &Path, folder: &str, paths: &mut Vec<String>) -> io::Result<()> {
    for entry in root.join(folder).read_dir()? {
        let entry = entry?;
        let path = joined(folder, &entry.file_name().to_string_lossy());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            list_files(root, &path, paths)?;
        } else {
            paths.push(if kind.is_file() { path } else { format!("{path} (a link or a device)") });
        }
    }
    Ok(())
}

// Length of a chunk by its name
/// Bytes of the chunk of this name; none if the array has none such.
fn length_of_chunk(array: &Value, chunk: &str) -> Option<u64> {
    let numbers = |key: &str| -> Option<Vec<u64>> {
        array[key].as_array()?.iter().map(Value::as_u64).collect()
    };
    let (shape, chunks) = (numbers("shape")?, numbers("chunks")?);
    let index: Vec<u64> = chunk.split('.').map(|k| k.parse().ok()).collect::<Option<_>>()?;
    let within = |((k, all), one): ((&u64, &u64), &u64)| *one > 0 && *k < all.div_ceil(*one);
    let same = index.len() == shape.len() && shape.len() == chunks.len();
    let good = same && index.iter().zip(&shape).zip(&chunks).all(within);
    let (letters, kind) = (array["dtype"].as_str()?, array["dtype"].as_str()?.get(1..2)?);
    let bytes = letters.get(2..)?.parse::<u64>().ok()? * if kind == "U" { 4 } else { 1 };
    good.then(|| chunks.iter().fold(bytes, |all, one| all.saturating_mul(*one)))
}

// Tests of files in Zarr
#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::variables::tests::lopsided;
    use ndarray::{Array3, ArrayD};
    use std::io::{Cursor, ErrorKind, Read};
    use zip::ZipArchive;

    type Archive = ZipArchive<Cursor<Vec<u8>>>;

    fn archived(
        write: impl FnOnce(&mut ZipWriter<ErrorLatch<&mut Cursor<Vec<u8>>>>) -> io::Result<()>,
    ) -> Archive {
        let mut bytes = Cursor::new(Vec::new());
        archive(&mut bytes, write).unwrap();
        ZipArchive::new(bytes).unwrap()
    }

    fn member(archive: &mut Archive, path: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        archive.by_name(path).unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn description(archive: &mut Archive, path: &str) -> Value {
        serde_json::from_slice(&member(archive, path)).unwrap()
    }

    // Cut arrays into chunks of all sizes
    /// An array put together from its chunks.
    fn assembled(archive: &mut Archive, shape: [usize; 3], chunk: &[usize]) -> Array3<f32> {
        let mut cube = Array3::from_elem(shape, f32::NAN);
        let counts: Vec<_> = shape.iter().zip(chunk).map(|(all, one)| all.div_ceil(*one)).collect();
        for number in 0..counts.iter().product() {
            let index = unravel(number, &counts);
            let key = index.iter().map(ToString::to_string).collect::<Vec<_>>().join(".");
            let bytes = member(archive, &format!("a/{key}"));
            assert_eq!(bytes.len(), 4 * chunk.iter().product::<usize>());
            for (k, x) in bytes.chunks_exact(4).enumerate() {
                let place: Vec<_> = (0..3)
                    .map(|axis| chunk[axis] * index[axis] + unravel(k, chunk)[axis])
                    .collect();
                let x = f32::from_le_bytes(x.try_into().unwrap());
                match cube.get_mut([place[0], place[1], place[2]]) {
                    Some(to) => *to = x,
                    None => assert_eq!(x, 0.0),
                }
            }
        }
        cube
    }

    #[test]
    fn chunks_make_up_the_array() {
        let shape = [3, 5, 4];
        let cube = Array3::from_shape_fn(shape, |(i, j, k)| (100 * i + 10 * j + k) as f32 + 0.5);
        let expected: [(usize, &[usize]); 6] = [
            (1, &[1, 1, 1]),
            (12, &[1, 1, 3]),
            (16, &[1, 1, 4]),
            (40, &[1, 2, 4]),
            (170, &[2, 5, 4]),
            (1000, &[3, 5, 4]),
        ];
        for (most, chunk) in expected {
            let mut archive = archived(|members| {
                let mut store = Store::new(members);
                let samples: ArrayD<f32> = cube.clone().into_dyn();
                store.array("a", &f32::typed(samples.into()), most, json!({}))?;
                store.finish()
            });
            assert_eq!(description(&mut archive, "a/.zarray")["chunks"], json!(chunk));
            assert_eq!(assembled(&mut archive, shape, chunk), cube, "{most} bytes");
        }
    }

    // Find variables in their stores
    #[test]
    fn stores_describe_their_signals() {
        let mut archive = archived(|members| lopsided().write_zspy(members));
        let data = description(&mut archive, "Experiments/four_d/data/.zarray");
        assert_eq!((&data["shape"], &data["dtype"]), (&json!([3, 4, 5, 7]), &json!("<f4")));
        let axis = description(&mut archive, "Experiments/four_d/axis-2/.zattrs");
        assert_eq!(
            (&axis["name"], &axis["offset"], &axis["navigate"]),
            (&json!("qy"), &json!(-0.25), &json!(false))
        );
        let image = description(&mut archive, "Experiments/annulus_0/axis-0/.zattrs");
        assert_eq!((&image["name"], &image["navigate"]), (&json!("y"), &json!(false)));
        let foci = description(&mut archive, "Experiments/annulus_1/axis-0/.zattrs");
        assert_eq!((&foci["_type"], &foci["navigate"]), (&json!("DataAxis"), &json!(true)));
        assert_eq!(
            member(&mut archive, "Experiments/annulus_1/axis-0/axis/0")[..8],
            30f64.to_le_bytes()
        );
        let deep = description(&mut archive, "Experiments/annulus_1/axis-1/.zattrs");
        assert_eq!((&deep["_type"], &deep["scale"]), (&json!("UniformDataAxis"), &json!(20.0)));
        let beam = "Experiments/four_d/metadata/Acquisition_instrument/TEM/.zattrs";
        let beam = description(&mut archive, beam);
        assert_eq!(
            (&beam["beam_energy"], &beam["convergence_angle"]),
            (&json!(100.0), &json!(21.5))
        );
        let kind = |name: &str| format!("Experiments/{name}/metadata/Signal/.zattrs");
        let kinds = ["four_d", "annulus_1"].map(|name| description(&mut archive, &kind(name)));
        assert_eq!(kinds[0]["signal_type"], "electron_diffraction");
        assert_eq!(kinds[1]["signal_type"], "");
        let mut archive = archived(|members| lopsided().write_zarr(members));
        let data = description(&mut archive, "annular/annular/.zarray");
        assert_eq!(data["shape"], json!([2, 4, 3, 6]));
        let places = member(&mut archive, "annular/y/0");
        assert_eq!(places[8..16], (-0.3_f64).to_le_bytes());
        assert_eq!(
            member(&mut archive, "centre_of_mass/component/0"),
            [120, 0, 0, 0, 121, 0, 0, 0]
        );
        assert_eq!(description(&mut archive, ".zattrs")["c"], json!([4.0, 5.43, 5.43]));
        let all = description(&mut archive, ".zmetadata");
        assert_eq!(all["metadata"]["annular/annular/.zarray"], data);
    }

    // Recognise stores by all that is in them
    #[test]
    fn stores_are_recognised_by_all_that_is_in_them() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let root = folder.path().join("s.zarr");
        lopsided().write_zarr(&mut Folder::new(&root))?;
        accept_own_store(&root)?;
        let spoiled = |path: &str, text: &[u8]| -> io::Result<()> {
            let (path, before) = (root.join(path), fs::read(root.join(path)).ok());
            fs::write(&path, text)?;
            assert!(accept_own_store(&root).is_err(), "{}", path.display());
            match before {
                Some(before) => fs::write(&path, before)?,
                None => fs::remove_file(&path)?,
            }
            accept_own_store(&root)
        };
        for path in
            ["notes.txt", "four_d/notes.txt", "annulus_1/annulus_1/9.0.0.0", "x/0", ".zarray"]
        {
            spoiled(path, b"mine").or_else(|error| match error.kind() {
                ErrorKind::NotFound => Ok(()), // there is no such folder
                _ => Err(error),
            })?;
        }
        spoiled(".zattrs", br#"{"mine": 1}"#)?;
        spoiled("annulus_1/annulus_1/0.0.0.0", b"short")?;
        let all = fs::read_to_string(root.join(ALL))?;
        spoiled(ALL, all.replace(r#","written_by":"lenslet""#, "").as_bytes())?;
        spoiled(ALL, b"{}")?;
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("/", root.join("link"))?;
            assert!(accept_own_store(&root).is_err());
        }
        assert!(accept_own_store(folder.path()).is_err());
        Ok(())
    }
}
