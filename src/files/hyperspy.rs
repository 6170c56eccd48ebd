// Tangled from book/src/hyperspy.md: edit there, or here and run cargo tangle stitch.
//! The formats of HyperSpy: one tree of groups, in HDF5 or in Zarr.

// Imports of HyperSpy's formats
use super::hdf5::{Address, Hdf5, Link};
use super::variables::Instrument;
use super::zarr::{CHUNK, Members, Store, joined};
use crate::data::{AttributeValue, Coordinate, DataSet, Element, TypedArray, Variable};
use ndarray::{Array1, CowArray};
use serde_json::{Map, Value, json};
use std::io::{self, Seek, Write};

// A tree of groups and arrays
/// A group with its attributes and what is in it, or an array.
enum Node<'s> {
    Group(Map<String, Value>, Vec<(String, Node<'s>)>),
    Array(TypedArray<'s>),
}

impl<'s> Node<'s> {
    /// A group; `attributes` is an object.
    fn group(attributes: Value, inside: Vec<(String, Node<'s>)>) -> Self {
        let Value::Object(attributes) = attributes else { return Self::Group(Map::new(), inside) };
        Self::Group(attributes, inside)
    }

    /// A group with attributes alone.
    fn leaf(name: &str, attributes: Value) -> (String, Self) {
        (name.into(), Self::group(attributes, Vec::new()))
    }
}

// Variables as HyperSpy saves them
impl DataSet<'_> {
    /// The tree of all variables, HyperSpy's signals, in a format of this name.
    fn hyperspy(&self, format: &str) -> Node<'_> {
        let all = self.arrays().map(|(variable, array)| {
            let mut inside = variable.hyperspy(array);
            inside.push(("metadata".into(), self.metadata(variable)));
            let facts = Value::Object(self.facts_as_json());
            inside.push(Node::leaf("original_metadata", facts));
            let package = json!({ "package": "", "package_version": "" });
            (variable.name.clone(), Node::group(package, inside))
        });
        let all = Node::group(json!({}), all.collect());
        let version = json!({ "file_format": format, "file_format_version": VERSION });
        Node::group(version, vec![("Experiments".into(), all)])
    }

    // Metadata for HyperSpy
    fn metadata(&self, variable: &Variable) -> Node<'_> {
        let [series, scanned, recorded] = variable.kinds();
        let axes = &variable.dimensions[series + scanned..];
        let pattern =
            recorded == 2 && axes.iter().all(|axis| matches!(&axis.unit[..], "1/Å" | "1/nm"));
        let kind = if pattern { "electron_diffraction" } else { "" };
        let mut inside = vec![
            Node::leaf("General", json!({ "title": variable.name })),
            Node::leaf("Signal", json!({ "signal_type": kind })),
            Node::leaf(WORDS, Value::Object(variable.words())),
        ];
        if let Some(beam) = Instrument::of(self) {
            let facts = beam.attributes().map(|(key, fact)| (key.to_string(), fact.as_json()));
            let microscope = Node::leaf("TEM", Value::Object(facts.into_iter().collect()));
            inside
                .push(("Acquisition_instrument".into(), Node::group(json!({}), vec![microscope])));
        }
        Node::group(json!({}), inside)
    }
}

// Words that HyperSpy lacks
/// Version of HyperSpy's formats.
const VERSION: &str = "3.3";

/// Name of the group of metadata that has a variable's unit, long name and attributes, and how its dimensions are ordered.
pub(super) const WORDS: &str = "Lenslet";

/// What the key of a dimension's labels begins with, one label a line.
pub(super) const LABELS: &str = "labels_";

impl Variable<'_> {
    /// What HyperSpy has no place for: from which dimension each axis comes, how many of them the beam was moved along, and the words about the variable.
    fn words(&self) -> Map<String, Value> {
        let [series, scanned, _] = self.kinds();
        let mut words = self.described();
        let order: Vec<_> = self.picture_order().iter().map(usize::to_string).collect();
        words.insert("order".into(), json!(order.join(" ")));
        words.insert("navigation".into(), json!(series + scanned));
        for axis in self.dimensions.iter().filter(|axis| !axis.labels().is_empty()) {
            words.insert(format!("{LABELS}{}", axis.name), json!(axis.labels().join("\n")));
        }
        words
    }
}

// Numbers and axes for HyperSpy
impl Variable<'_> {
    /// Numbers and axes.
    fn hyperspy<'s>(&'s self, array: &'s TypedArray) -> Vec<(String, Node<'s>)> {
        let (order, [series, scanned, recorded]) = (self.picture_order(), self.kinds());
        let samples = array.permuted(&order);
        let moved = if recorded > 0 { series + scanned } else { series };
        let axes = order.iter().zip(samples.shape()).enumerate();
        let axes: Vec<_> = axes
            .map(|(k, (&axis, &count))| {
                (format!("axis-{k}"), self.dimensions[axis].hyperspy(count, k < moved))
            })
            .collect();
        let mut inside = vec![("data".into(), Node::Array(samples))];
        inside.extend(axes);
        inside
    }
}

// An axis for HyperSpy
impl Coordinate {
    fn hyperspy(&self, count: usize, moved: bool) -> Node<'_> {
        let Self { name, unit, .. } = self;
        let mut attributes = json!({
            "_type": "DataAxis", "name": name, "units": unit, "navigate": moved,
            "is_binned": false,
        });
        if !self.is_uniform() {
            let values = CowArray::from(Array1::from(self.values().to_vec())).into_dyn();
            return Node::group(attributes, vec![("axis".into(), Node::Array(f64::typed(values)))]);
        }
        let uniform = json!({
            "_type": "UniformDataAxis", "size": count, "offset": self.offset(), "scale": self.step(),
        });
        if let (Value::Object(all), Value::Object(more)) = (&mut attributes, uniform) {
            all.extend(more);
        }
        Node::group(attributes, Vec::new())
    }
}

// Write a tree into Zarr
impl DataSet<'_> {
    /// Writes all variables as HyperSpy does in `.zspy`.
    pub(super) fn write_zspy(&self, members: &mut impl Members) -> io::Result<()> {
        let mut store = Store::new(members);
        self.hyperspy("ZSpy").write_zarr("", &mut store)?;
        store.finish()
    }
}

impl Node<'_> {
    fn write_zarr<M: Members>(self, path: &str, store: &mut Store<M>) -> io::Result<()> {
        match self {
            Self::Array(samples) => store.array(path, &samples, CHUNK, json!({})),
            Self::Group(attributes, inside) => {
                store.group(path, Value::Object(attributes))?;
                let mut inside = inside.into_iter();
                inside.try_for_each(|(name, node)| node.write_zarr(&joined(path, &name), store))
            }
        }
    }
}

// Write a tree into HDF5
impl DataSet<'_> {
    // Write all variables for HyperSpy
    /// Writes all variables as HyperSpy does in `.hspy`.
    pub(super) fn write_hspy<W: Write + Seek>(&self, file: W) -> io::Result<()> {
        let mut file = Hdf5::begin(file)?;
        let root = self.hyperspy("HyperSpy").write_hdf5(&mut file)?;
        file.finish(root)
    }
}

impl Node<'_> {
    fn write_hdf5<W: Write + Seek>(self, file: &mut Hdf5<W>) -> io::Result<Address> {
        let (attributes, inside) = match self {
            Self::Array(samples) => return file.chunked_samples(&samples, CHUNK),
            Self::Group(attributes, inside) => (attributes, inside),
        };
        let mut links = Vec::new();
        for (name, node) in inside {
            links.push((name, node.write_hdf5(file)?));
        }
        let links: Vec<_> = links.iter().map(|(name, at)| (&name[..], Link::Hard(*at))).collect();
        let facts = attributes
            .iter()
            .filter_map(|(key, value)| Some((&key[..], AttributeValue::from_json(value)?)));
        file.group(&links, &facts.collect::<Vec<_>>())
    }
}
