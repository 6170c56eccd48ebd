// Tangled from book/src/read-zarr.md: edit there, or here and run cargo tangle stitch.
//! Data sets read from stores in Zarr.

use super::content::{Chunks, Content, Located, Locator, ReadSeek, Storage, Stretch};
use super::elements::{ElementForm, add_attributes, axis, bytes_of, in_own_order, letters};
use super::elements::{whole, wrong};
use crate::data::{AttributeValue, Coordinate, DataSet, Positions, TypedArray, Values, Variable};
use crate::device::refuse_beyond_memory;
use crate::files::hyperspy::WORDS;
use crate::files::reading::{cut_short, readable, zip_refusal};
use crate::files::zarr::unravel;
use serde_json::{Map, Value};
use std::io;
use std::path::{Component, Path, PathBuf};
use zip::{CompressionMethod, ZipArchive};

// Members of a store
/// Where the members of a store are.
trait StoreMembers {
    /// The bytes of a member; `None` where there is none of this path.
    fn read(&mut self, path: &str) -> io::Result<Option<Vec<u8>>>;

    /// The length of a member; `None` where there is none of this path.
    fn length(&mut self, path: &str) -> Option<u64>;

    /// Who notes where large arrays are, if they are to be located only.
    fn locator(&self) -> Option<&Locator>;

    /// Where these members are; `None` where one is compressed.
    fn chunks(&mut self, paths: &[String]) -> Option<Chunks>;
}

// Members of a zipped store
/// The members of a zipped store.
struct Archive<'c> {
    zip: ZipArchive<Box<dyn ReadSeek + 'c>>,
    disk: Option<(Stretch, &'c Locator)>,
}

impl StoreMembers for Archive<'_> {
    fn read(&mut self, path: &str) -> io::Result<Option<Vec<u8>>> {
        match self.zip.by_name(path) {
            Err(zip::result::ZipError::FileNotFound) => Ok(None),
            member => whole(readable(member)?).map(Some),
        }
    }

    fn length(&mut self, path: &str) -> Option<u64> {
        self.zip.by_name(path).ok().map(|member| member.size())
    }

    fn locator(&self) -> Option<&Locator> {
        self.disk.as_ref().map(|(_, locator)| *locator)
    }

    fn chunks(&mut self, paths: &[String]) -> Option<Chunks> {
        let (whole, zip) = (self.disk.as_ref().map(|(whole, _)| whole)?, &mut self.zip);
        let stretches = paths.iter().map(|path| {
            let member = zip.by_name(path).ok()?;
            let stored = member.compression() == CompressionMethod::Stored;
            whole.part(member.data_start().filter(|_| stored)?, member.size())
        });
        stretches.collect::<Option<_>>().map(Chunks::Members)
    }
}
// Members of a store in a folder
/// The members of a store in a folder.
struct Folder<'c>(&'c Path, Option<&'c Locator>);

impl StoreMembers for Folder<'_> {
    fn read(&mut self, path: &str) -> io::Result<Option<Vec<u8>>> {
        if Path::new(path).components().any(|part| !matches!(part, Component::Normal(_))) {
            return Err(wrong(format!("the path {path} is outside the folder")));
        }
        let Some(length) = self.length(path) else { return Ok(None) };
        refuse_beyond_memory(length, || path.into()).map_err(io::Error::other)?;
        std::fs::read(self.0.join(path)).map(Some)
    }

    fn length(&mut self, path: &str) -> Option<u64> {
        self.0.join(path).metadata().ok().filter(std::fs::Metadata::is_file).map(|it| it.len())
    }

    fn locator(&self) -> Option<&Locator> {
        self.1
    }

    fn chunks(&mut self, paths: &[String]) -> Option<Chunks> {
        let normal = |path: &str| {
            Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
        };
        let files: Option<Vec<PathBuf>> =
            paths.iter().map(|path| normal(path).then(|| self.0.join(path))).collect();
        files.map(Chunks::Files)
    }
}

// Data set of a folder or an archive
/// The data set of a folder.
pub(super) fn folder(path: &Path, locator: Option<&Locator>) -> io::Result<DataSet<'static>> {
    decode(&mut Folder(path, locator))
}

/// The data set of an archive.
pub(super) fn archive(content: &Content) -> io::Result<DataSet<'static>> {
    let zip = ZipArchive::new(content.reader()).map_err(zip_refusal)?;
    decode(&mut Archive { zip, disk: content.disk() })
}

// Decode a store
/// The descriptions of a store, by path.
type Descriptions = Map<String, Value>;

fn decode(members: &mut impl StoreMembers) -> io::Result<DataSet<'static>> {
    let none = || wrong("there is no .zmetadata in it, which describes a store in Zarr 2");
    let all = members.read(".zmetadata")?.ok_or_else(none)?;
    let all: Value = serde_json::from_slice(&all).map_err(|error| wrong(error.to_string()))?;
    let Some(Value::Object(all)) = all.get("metadata").cloned() else { return Err(none()) };
    let mut data = DataSet::default();
    if all.contains_key("Experiments/.zgroup") {
        return experiments(&all, members);
    }
    add_attributes(&mut data, attributes(&all, ".zattrs").into_iter());
    for key in all.keys() {
        if let Some(group) = key.strip_suffix("/.zgroup") {
            data.variables.push(variable(group, &all, members)?);
        }
    }
    Ok(data)
}

/// The attributes that the description at a path has.
fn attributes(all: &Descriptions, path: &str) -> Vec<(String, AttributeValue)> {
    let Some(Value::Object(values)) = all.get(path) else { return Vec::new() };
    values
        .iter()
        .filter_map(|(key, value)| Some((key.clone(), AttributeValue::from_json(value)?)))
        .collect()
}

// Decode the variable of a group
fn variable(
    group: &str,
    all: &Descriptions,
    members: &mut impl StoreMembers,
) -> io::Result<Variable<'static>> {
    let path = [group, "samples"].map(|name| format!("{group}/{name}"));
    let path = path.into_iter().find(|path| all.contains_key(&format!("{path}/.zarray")));
    let path = path.ok_or_else(|| wrong(format!("the group {group} has no array")))?;
    let array = array(&path, all, members, true)?;
    let names = all.get(&format!("{path}/.zattrs")).map(|it| &it["_ARRAY_DIMENSIONS"]);
    let names = names.and_then(Value::as_array).cloned().unwrap_or_default();
    let names = names.iter().filter_map(Value::as_str).collect::<Vec<_>>();
    let mut dimensions = Vec::new();
    for (name, &count) in names.iter().zip(array.shape()) {
        dimensions.push(coordinate((group, name), count, all, members)?);
    }
    let plain = Variable::unnamed(group, Values::Array(array));
    let mut variable = Variable { dimensions, ..plain };
    variable.describe(attributes(all, &format!("{path}/.zattrs")), &["_ARRAY_DIMENSIONS"]);
    Ok(variable)
}

/// The coordinate of a dimension of a group.
fn coordinate(
    (group, name): (&str, &str),
    count: usize,
    all: &Descriptions,
    members: &mut impl StoreMembers,
) -> io::Result<Coordinate> {
    let path = format!("{group}/{name}");
    let index = Coordinate::index(name);
    let Some(described) = all.get(&format!("{path}/.zarray")) else { return Ok(index) };
    let words = all.get(&format!("{path}/.zattrs")).unwrap_or(&Value::Null);
    let unit = words["units"].as_str().unwrap_or_default().to_string();
    let index = Coordinate { navigation: words["navigation"] == true, ..index };
    if let Some(length) = described["dtype"].as_str().and_then(|kind| kind.strip_prefix("<U")) {
        let bytes = members.read(&format!("{path}/0"))?.unwrap_or_default();
        let length: usize = length.parse().map_err(|_| wrong("a label has no length"))?;
        let each = bytes_of(&[length], 4)?;
        let cut = bytes.len() != bytes_of(&[count], each)? || each == 0;
        let labels = (!cut).then(|| bytes.chunks_exact(each));
        let labels = labels.ok_or_else(|| cut_short(&format!("in the labels of {name}")))?;
        let label = |bytes| letters(&length.to_string(), &[], (bytes, false));
        let labels = labels.map(label).collect::<io::Result<Vec<_>>>()?;
        return Ok(Coordinate { unit, positions: Positions::Labels(labels), ..index });
    }
    let TypedArray::F64(samples) = array(&path, all, members, false)? else {
        return Err(wrong(format!("the positions {path} are not of type f64")));
    };
    let positions = Positions::of_samples(samples.iter().copied().collect());
    Ok(Coordinate { unit, positions, ..index })
}

// Decode the variables of HyperSpy
/// The variables of HyperSpy, in its order of dimensions.
fn experiments(
    all: &Descriptions,
    members: &mut impl StoreMembers,
) -> io::Result<DataSet<'static>> {
    let mut data = DataSet::default();
    let names = all.keys().filter_map(|key| {
        let name = key.strip_prefix("Experiments/")?.strip_suffix("/data/.zarray")?;
        (!name.contains('/')).then_some(name)
    });
    for name in names {
        let group = format!("Experiments/{name}");
        let array = array(&format!("{group}/data"), all, members, true)?;
        let mut dimensions = Vec::new();
        for k in 0..array.shape().len() {
            let path = format!("{group}/axis-{k}");
            let listed = all.contains_key(&format!("{path}/axis/.zarray"));
            let values = match listed {
                true => Some(self::array(&format!("{path}/axis"), all, members, false)?),
                false => None,
            };
            let attributes = attributes(all, &format!("{path}/.zattrs"));
            dimensions.push(axis(&attributes, values.as_ref()));
        }
        if data.variables.is_empty() {
            let facts = attributes(all, &format!("{group}/original_metadata/.zattrs"));
            add_attributes(&mut data, facts.into_iter());
        }
        let words = attributes(all, &format!("{group}/metadata/{WORDS}/.zattrs"));
        let permute = |array, order: &[usize]| Locator::permuted(members.locator(), array, order);
        data.variables.push(in_own_order(name, array, dimensions, words, permute));
    }
    data.variables.sort_by_key(|variable| variable.array().is_none());
    Ok(data)
}

// Decode an array of chunks
/// The array of this path; if it is large it may be located only.
fn array(
    path: &str,
    all: &Descriptions,
    members: &mut impl StoreMembers,
    may_be_located: bool,
) -> io::Result<TypedArray<'static>> {
    let refuse = |what: &str| wrong(format!("the {what} of the array {path} cannot be read"));
    let described = all.get(&format!("{path}/.zarray")).ok_or_else(|| refuse("description"))?;
    let plain = ["compressor", "filters"].iter().all(|key| described[*key].is_null());
    if !plain || described["order"] != "C" {
        let expected = "expected uncompressed chunks in C order";
        return Err(wrong(format!("the layout of the array {path}: {expected}")));
    }
    let list = |key: &str| -> Option<Vec<usize>> {
        let numbers = described[key].as_array()?.iter().map(Value::as_u64);
        numbers.map(|n| usize::try_from(n?).ok()).collect()
    };
    let shape = list("shape").ok_or_else(|| refuse("shape"))?;
    let chunk = list("chunks").filter(|chunk| chunk.len() == shape.len() && !chunk.contains(&0));
    let chunk = chunk.filter(|_| !shape.is_empty()).ok_or_else(|| refuse("shape of chunks"))?;
    let form = ElementForm::of_numpy(described["dtype"].as_str().unwrap_or_default())?;
    let each = form.number.bytes;
    let counts: Vec<_> = shape.iter().zip(&chunk).map(|(all, one)| all.div_ceil(*one)).collect();
    let (length, chunks) = (bytes_of(&chunk, each)?, bytes_of(&counts, 1)?);
    let key = |number: usize| {
        let index = unravel(number, &counts);
        (
            format!(
                "{path}/{}",
                index.iter().map(ToString::to_string).collect::<Vec<_>>().join(".")
            ),
            index,
        )
    };
    for number in 0..chunks {
        let (key, _) = key(number);
        match members.length(&key) {
            Some(found) if found == length as u64 => {}
            Some(_) => return Err(cut_short(&format!("in the chunk {key}"))),
            None => return Err(wrong(format!("the chunk {key} is missing"))),
        }
    }
    let total = bytes_of(&shape, each)?;
    let is_large =
        members.locator().is_some_and(|locator| may_be_located && locator.is_large(total));
    if is_large {
        let paths: Vec<_> = (0..chunks).map(|number| key(number).0).collect();
        let found = members.chunks(&paths);
        if let (Some(chunks), Some(locator)) = (found, members.locator()) {
            let storage = Storage::Chunks { chunk, chunks };
            return locator.add(Located::new(form, &shape, storage));
        }
    }
    refuse_beyond_memory(2 * total as u64, || path.into()).map_err(io::Error::other)?;
    // Put the chunks together
    let mut bytes = vec![0; bytes_of(&shape, each)?];
    let last = shape.len() - 1;
    for number in 0..chunks {
        let (key, index) = key(number);
        let content = members.read(&key)?.unwrap_or_default();
        let from: Vec<_> = index.iter().zip(&chunk).map(|(k, one)| k * one).collect();
        let columns = chunk[last].min(shape[last] - from[last]) * each;
        for (row, source) in content.chunks_exact(chunk[last] * each).enumerate() {
            let inside = unravel(row, &chunk[..last]);
            let at: Vec<_> = inside.iter().zip(&from).map(|(k, from)| k + from).collect();
            if at.iter().zip(&shape).any(|(k, all)| k >= all) {
                continue;
            }
            let place = at.iter().zip(&shape).fold(0, |place, (k, all)| place * all + k);
            let place = (place * shape[last] + from[last]) * each;
            bytes[place..place + columns].copy_from_slice(&source[..columns]);
        }
    }
    if let Some(locator) = members.locator().filter(|_| is_large) {
        return locator.spill(form, &shape, &bytes);
    }
    form.array(&bytes, (&shape, false))
}
