// Tangled from book/src/read-hdf5.md: edit there, or here and run cargo tangle stitch.
//! Data sets read from HDF5, in the trees of EMD and of HyperSpy.

use super::content::{Chunks, Content, Located, Locator, Storage};
use super::elements::{ElementForm, add_attributes, axis, bytes_of, in_own_order, wrong};
use crate::data::{AttributeValue, Coordinate, DataSet, Positions, TypedArray, Values, Variable};
use crate::files::hdf5::checksum;
use crate::files::hyperspy::WORDS;
use crate::files::npz::{Kind, Number};
use crate::files::reading::cut_short;
use crate::files::zarr::unravel;
use std::borrow::Cow;
use std::io;

// Decode a tree in HDF5
// Objects, links and arrays of a tree
/// An object of the tree.
#[derive(Default)]
struct Object {
    attributes: Vec<(String, AttributeValue)>,
    links: Vec<(String, Target)>,
    array: Option<Stored>,
}

/// What a link leads to.
enum Target {
    Address(u64),
    Path(String),
}

/// An array as the file stores it.
struct Stored {
    kind: Type,
    shape: Vec<usize>,
    chunk: Option<Vec<usize>>,
    /// Where the bytes begin, and how many there are.
    at: u64,
    length: usize,
}

/// What the elements of an array are.
#[derive(Clone, Copy)]
enum Type {
    Numbers(ElementForm),
    Texts,
}

/// The data set of a file in HDF5.
pub(super) fn decode(content: &Content) -> io::Result<DataSet<'static>> {
    let expected = "it does not begin as a file in HDF5 of this program";
    if !content.starts_with(b"\x89HDF\r\n\x1a\n\x02\x08\x08\x00") {
        return Err(wrong(expected));
    }
    let file = File(content);
    let root = file.object(file.word(36)?)?;
    match root.links.iter().any(|(name, _)| name == "Experiments") {
        true => file.experiments(&root),
        false => file.emd(&root),
    }
}

/// The bytes of a file.
#[derive(Clone, Copy)]
struct File<'c>(&'c Content<'c>);

impl<'c> File<'c> {
    // Bytes of a file in HDF5
    fn bytes(self, from: u64, length: usize) -> io::Result<Cow<'c, [u8]>> {
        let part = self.0.bytes(from, length);
        part.map_err(|_| cut_short(&format!("in {length} bytes at {from}")))
    }

    fn word(self, from: u64) -> io::Result<u64> {
        Ok(number(&self.bytes(from, 8)?))
    }
}

// Decode the objects of HDF5
/// A number of at most eight bytes, the least significant first.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The first bytes of a message, and what is behind them.
fn part<'m>(message: &mut &'m [u8], length: usize) -> io::Result<&'m [u8]> {
    let (first, rest) =
        message.split_at_checked(length).ok_or_else(|| cut_short("in a message of HDF5"))?;
    *message = rest;
    Ok(first)
}

impl<'c> File<'c> {
    /// The object at an address.
    fn object(self, address: u64) -> io::Result<Object> {
        let start = self.bytes(address, 10)?;
        if &start[..6] != b"OHDR\x02\x02" {
            return Err(wrong(format!("there is no HDF5 object at {address}")));
        }
        let length = number(&start[6..10]) as usize;
        let header = self.bytes(address, 10 + length)?;
        let end = address.saturating_add(10 + length as u64);
        if number(&self.bytes(end, 4)?) != u64::from(checksum(&header)) {
            return Err(wrong(format!("the HDF5 object at {address} is damaged")));
        }
        let (mut messages, mut object) = (&header[10..], Object::default());
        let (mut shape, mut kind) = (Vec::new(), None);
        while !messages.is_empty() {
            let start = part(&mut messages, 4)?;
            let mut body = part(&mut messages, number(&start[1..3]) as usize)?;
            match start[0] {
                1 => shape = dataspace(body)?,
                3 => kind = Some(Type::of(body)?),
                6 => object.links.push(link(&mut body)?),
                8 => object.array = Some(self.layout(body, &shape, kind)?),
                12 => object.attributes.extend(self.attribute(&mut body)?),
                _ => {}
            }
        }
        Ok(object)
    }

    // Decode the layout of an array
    /// Where the elements of an array are: in one piece, or in chunks that follow each other.
    fn layout(self, body: &[u8], shape: &[usize], kind: Option<Type>) -> io::Result<Stored> {
        let refuse = || {
            wrong("the layout of an HDF5 array: expected contiguous, or equal uncompressed chunks")
        };
        let kind = kind.ok_or_else(refuse)?;
        let each = match kind {
            Type::Numbers(form) => form.number.bytes,
            Type::Texts => 16,
        };
        let length = bytes_of(shape, each)?;
        let (mut rest, shape) = (body, shape.to_vec());
        let (chunk, address) = match part(&mut rest, 2)? {
            [3, 1] => (None, part(&mut rest, 8)?),
            [4, 2] => {
                let [_, dimensions, width] = *part(&mut rest, 3)? else { return Err(refuse()) };
                let (mut chunk, width) = (Vec::new(), usize::from(width).min(8));
                for _ in 0..dimensions {
                    chunk.push(usize::try_from(number(part(&mut rest, width)?)).unwrap_or(0));
                }
                chunk.pop();
                let divides = |(all, one): (&usize, &usize)| *one > 0 && all % one == 0;
                let fits = chunk.len() == shape.len() && shape.iter().zip(&chunk).all(divides);
                let in_order = part(&mut rest, 1)? == [2];
                if !fits || !in_order {
                    return Err(refuse());
                }
                (Some(chunk), part(&mut rest, 8)?)
            }
            _ => return Err(refuse()),
        };
        let at = number(address);
        if self.0.part(at, length as u64).is_none() {
            return Err(cut_short(&format!("in {length} bytes at {at}")));
        }
        Ok(Stored { kind, shape, chunk, at, length })
    }
}

// Decode links and shapes
/// The lengths in a message about a shape.
fn dataspace(mut body: &[u8]) -> io::Result<Vec<usize>> {
    let rank = usize::from(part(&mut body, 4)?[1]);
    let sides = part(&mut body, 8 * rank)?.chunks_exact(8);
    sides
        .map(|side| usize::try_from(number(side)).map_err(|_| wrong("a side is too long")))
        .collect()
}

/// Name and target of a link.
fn link(body: &mut &[u8]) -> io::Result<(String, Target)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let is_soft = part(body, 2)?[1] == 8;
    if is_soft {
        part(body, 1)?;
    }
    let length = usize::from(part(body, 1)?[0]);
    let name = text(part(body, length)?);
    if !is_soft {
        return Ok((name, Target::Address(number(part(body, 8)?))));
    }
    let length = number(part(body, 2)?) as usize;
    Ok((name, Target::Path(text(part(body, length)?))))
}

// Decode types of HDF5
impl Type {
    /// The type that a message describes.
    fn of(body: &[u8]) -> io::Result<Self> {
        let start = body.get(..8).ok_or_else(|| cut_short("in a type of HDF5"))?;
        let bytes = number(&start[4..8]) as usize;
        let form = |kind, is_complex| {
            let number = Number { kind, bytes, big_endian: false };
            Ok(Self::Numbers(ElementForm { number, is_complex }))
        };
        match (start[0] & 15, bytes) {
            (0, 8) => form(Kind::Signed, false),
            (1, 4 | 8) => form(Kind::Float, false),
            (6, 8 | 16) => form(Kind::Float, true),
            (8, 1) => form(Kind::Bool, false),
            (9, 16) => Ok(Self::Texts),
            (class, bytes) => Err(wrong(format!(
                "HDF5 numbers of class {class} with {bytes} bytes cannot be read"
            ))),
        }
    }
}

// Decode attributes and texts of HDF5
impl File<'_> {
    /// Name and value of an attribute; none where the value is of no use.
    fn attribute(self, body: &mut &[u8]) -> io::Result<Option<(String, AttributeValue)>> {
        let start = part(body, 9)?;
        let lengths = [2, 4, 6].map(|at| number(&start[at..at + 2]) as usize);
        let name = part(body, lengths[0])?;
        let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_string();
        let kind = Type::of(part(body, lengths[1])?)?;
        let shape = dataspace(part(body, lengths[2])?)?;
        let value = match kind {
            Type::Texts => AttributeValue::Text(self.text(part(body, 16)?)?),
            Type::Numbers(form) => match form.array(body, (&shape, false))? {
                TypedArray::F64(x) if shape.is_empty() => x.first().copied().unwrap_or(0.0).into(),
                TypedArray::F64(x) => AttributeValue::Numbers(x.iter().copied().collect()),
                TypedArray::I64(n) => n.first().copied().unwrap_or(0).into(),
                TypedArray::Bool(is) => is.first().copied().unwrap_or(false).into(),
                _ => return Ok(None),
            },
        };
        Ok(Some((name, value)))
    }

    /// The text in a heap that a reference of 16 bytes stands for.
    fn text(self, reference: &[u8]) -> io::Result<String> {
        let (length, index) = (number(&reference[..4]) as usize, number(&reference[12..16]));
        if length == 0 {
            return Ok(String::new());
        }
        let heap = number(&reference[4..12]);
        let all = self.bytes(heap, 16)?;
        if &all[..4] != b"GCOL" {
            return Err(wrong(format!("there is no HDF5 heap at {heap}")));
        }
        let all = self.bytes(heap, number(&all[8..16]) as usize)?;
        let mut texts = all.get(16..).unwrap_or(&[]);
        loop {
            let start = part(&mut texts, 16)?;
            let size = number(&start[8..16]) as usize;
            let text = part(&mut texts, size.checked_next_multiple_of(8).unwrap_or(usize::MAX))?;
            match number(&start[..2]) {
                0 => return Err(wrong("an HDF5 text is missing in its heap")),
                found if found == index => {
                    let text = text.get(..length).ok_or_else(|| cut_short("in a text"))?;
                    return Ok(String::from_utf8_lossy(text).into());
                }
                _ => {}
            }
        }
    }
}

// Variables of a tree in HDF5
impl<'c> File<'c> {
    /// The object at the end of a path from another object.
    fn follow(self, root: &Object, path: &str) -> io::Result<Object> {
        let mut names = path.split('/').filter(|name| !name.is_empty());
        let first = names.next().ok_or_else(|| wrong("an HDF5 path is empty"))?;
        let mut object = self.child(root, first)?;
        for name in names {
            object = self.child(&object, name)?;
        }
        Ok(object)
    }

    fn child(self, group: &Object, name: &str) -> io::Result<Object> {
        match group.links.iter().find(|(other, _)| other == name) {
            Some((_, Target::Address(address))) => self.object(*address),
            _ => Err(wrong(format!("there is no {name} in an HDF5 group"))),
        }
    }

    /// The variables of EMD and their attributes.
    fn emd(self, root: &Object) -> io::Result<DataSet<'static>> {
        let mut data = DataSet::default();
        let mut groups = vec![(String::new(), self.child(root, "lenslet")?)];
        let mut messages = 0;
        while let Some((name, group)) = groups.pop() {
            messages += 1;
            if messages > 10_000 {
                return Err(wrong("the HDF5 file has more than 10000 groups"));
            }
            for (inside, target) in &group.links {
                match target {
                    Target::Path(path) if inside == "data" => {
                        data.variables.push(self.variable(root, &name, path)?);
                    }
                    Target::Address(address) if !inside.starts_with("dim") => {
                        let object = self.object(*address)?;
                        let kind =
                            object.attributes.iter().find(|(key, _)| key == "emd_group_type");
                        if kind.is_some_and(|(_, kind)| *kind == AttributeValue::from("array")) {
                            groups.push((inside.clone(), object));
                        }
                    }
                    _ => {}
                }
            }
        }
        let path = "4DSTEM_simulation/metadata/metadata_0/original/simulation_parameters";
        let facts = self.follow(root, path)?.attributes.into_iter();
        add_attributes(&mut data, facts.filter(|(key, _)| !["E", "sa"].contains(&&key[..])));
        Ok(data)
    }

    // Variables and dimensions of EMD
    /// The variable of a name whose numbers are at the end of a path.
    fn variable(self, root: &Object, name: &str, path: &str) -> io::Result<Variable<'static>> {
        let refuse = || wrong(format!("the variable {name} has no array in HDF5"));
        let (group, numbers) = path.rsplit_once('/').ok_or_else(refuse)?;
        let group = self.follow(root, group)?;
        let Object { array, attributes, .. } = self.child(&group, numbers)?;
        let stored = array.ok_or_else(refuse)?;
        let mut dims = group.links.iter().filter_map(|(name, target)| match target {
            Target::Address(at) => Some((name.strip_prefix("dim")?.parse::<usize>().ok()?, *at)),
            Target::Path(_) => None,
        });
        let mut dims = dims.by_ref().collect::<Vec<_>>();
        dims.sort_unstable();
        let mut dimensions = Vec::new();
        for ((_, address), &count) in dims.iter().zip(&stored.shape) {
            dimensions.push(self.dimension(*address, count)?);
        }
        let plain = Variable::unnamed(name, Values::Array(stored.array(self.0)?));
        let mut variable = Variable { dimensions, ..plain };
        variable.describe(attributes, &[]);
        Ok(variable)
    }

    /// The coordinate of a dimension of so many samples.
    fn dimension(self, address: u64, count: usize) -> io::Result<Coordinate> {
        let object = self.object(address)?;
        let text = |key: &str| match object.attributes.iter().find(|(name, _)| name == key) {
            Some((_, AttributeValue::Text(text))) => text.as_str(),
            _ => "",
        };
        let unit = text("units").trim_matches(['[', ']']);
        let unit = match unit.strip_suffix("^-1") {
            _ if unit == "none" => String::new(),
            Some(length) => format!("1/{length}"),
            None => unit.to_string(),
        };
        let stored = object.array.as_ref().ok_or_else(|| wrong("a dimension has no positions"))?;
        let positions = match stored.kind {
            Type::Texts => {
                let references = self.bytes(stored.at, stored.length)?;
                let labels = references.chunks_exact(16).map(|reference| self.text(reference));
                Positions::Labels(labels.collect::<io::Result<_>>()?)
            }
            Type::Numbers(_) => match stored.numbers(self.0)? {
                TypedArray::F64(x) => {
                    let all = x.iter().copied().collect::<Vec<_>>();
                    match (Positions::of_samples(all.clone()), count) {
                        (uniform @ Positions::Uniform { .. }, _) => uniform,
                        _ => Positions::of_samples(all.into_iter().take(count).collect()),
                    }
                }
                _ => Positions::Index,
            },
        };
        let flag = ("navigation".to_string(), AttributeValue::Flag(true));
        let navigation = object.attributes.contains(&flag);
        Ok(Coordinate { unit, positions, navigation, ..Coordinate::index(text("name")) })
    }

    // Variables of HyperSpy in HDF5
    /// The variables of HyperSpy, in its order of dimensions.
    fn experiments(self, root: &Object) -> io::Result<DataSet<'static>> {
        let (mut data, all) = (DataSet::default(), self.child(root, "Experiments")?);
        for (name, target) in &all.links {
            let Target::Address(address) = target else { continue };
            let group = self.object(*address)?;
            let stored = self.child(&group, "data")?.array;
            let stored = stored.ok_or_else(|| wrong(format!("{name} has no array in HDF5")))?;
            let mut dimensions = Vec::new();
            for k in 0..stored.shape.len() {
                let group_of_axis = self.child(&group, &format!("axis-{k}"))?;
                let values = self.child(&group_of_axis, "axis").ok().and_then(|it| it.array);
                let values = values.map(|it| it.numbers(self.0)).transpose()?;
                dimensions.push(axis(&group_of_axis.attributes, values.as_ref()));
            }
            let words = self.follow(&group, &format!("metadata/{WORDS}"));
            let words = words.map(|it| it.attributes).unwrap_or_default();
            data.variables.push(in_own_order(
                name,
                stored.array(self.0)?,
                dimensions,
                words,
                |array, order| Locator::permuted(self.0.locator(), array, order),
            ));
            if data.variables.len() == 1 {
                let facts = self.child(&group, "original_metadata")?.attributes;
                add_attributes(&mut data, facts.into_iter());
            }
        }
        // A text is behind the variables.
        data.variables.sort_by_key(|variable| variable.array().is_none());
        Ok(data)
    }
}

// Array of a variable in HDF5
impl Stored {
    /// The array of a variable, which may be located only.
    fn array(&self, content: &Content) -> io::Result<TypedArray<'static>> {
        let Type::Numbers(form) = self.kind else {
            return Err(wrong("an array in HDF5 has texts"));
        };
        match self.chunk.as_ref().filter(|chunk| !chunk.is_empty()) {
            None => content.array(form, self.at, (&self.shape, false)),
            Some(chunk) => {
                let storage = |stretch| Storage::Chunks {
                    chunk: chunk.clone(),
                    chunks: Chunks::Consecutive(stretch),
                };
                let part = content.part(self.at, self.length as u64);
                let located = part.as_ref().and_then(|part| part.locate(self.length));
                match located {
                    Some((stretch, found)) => {
                        found.add(Located::new(form, &self.shape, storage(stretch)))
                    }
                    None => self.numbers(content),
                }
            }
        }
    }
}
// Arrays in chunks of HDF5
impl Stored {
    /// The array, in the order of its indices.
    fn numbers(&self, content: &Content) -> io::Result<TypedArray<'static>> {
        let Type::Numbers(form) = self.kind else {
            return Err(wrong("an array in HDF5 has texts"));
        };
        let stored = content.bytes(self.at, self.length)?;
        let Some(chunk) = self.chunk.as_ref().filter(|chunk| !chunk.is_empty()) else {
            return form.array(&stored, (&self.shape, false));
        };
        let (each, last) = (form.number.bytes, chunk.len() - 1);
        let counts: Vec<_> = self.shape.iter().zip(chunk).map(|(all, one)| all / one).collect();
        let mut bytes = vec![0; self.length];
        let row = chunk[last] * each;
        let rows = chunk[..last].iter().product::<usize>().max(1);
        for (k, source) in stored.chunks_exact(row).enumerate() {
            let (grid, inside) = (unravel(k / rows, &counts), unravel(k % rows, &chunk[..last]));
            let at = |d: usize| grid[d] * chunk[d] + inside.get(d).copied().unwrap_or(0);
            let place = (0..=last).fold(0, |place, d| place * self.shape[d] + at(d)) * each;
            bytes[place..place + row].copy_from_slice(source);
        }
        form.array(&bytes, (&self.shape, false))
    }
}
