// Tangled from book/src/emd-files.md: edit there, or here and run cargo tangle stitch.
//! Data sets in HDF5, in the trees of Prismatic and of EMD 1.0, which py4DSTEM reads.

// Imports of files like Prismatic's
use super::hdf5::{Address, Hdf5, Link};
use super::variables::{Instrument, known_as};
use crate::data::{AttributeValue, Coordinate, DataSet, TypedArray, Variable};
use std::io::{self, Seek, Write};

// Names and folders in Prismatic's tree
/// Name of the group of a variable.
fn group_name(variable: &Variable) -> String {
    let kind = if variable.dimensions.iter().any(|axis| axis.navigation) { "depth" } else { "fp" };
    format!("{}_{kind}0000", known_as(&variable.name))
}

/// Folder of a variable, and name of its numbers.
fn folder(variable: &Variable) -> (&'static str, &'static str) {
    let [series, scanned, recorded] = variable.kinds();
    let pattern = variable.dimensions[series + scanned..].iter().all(|axis| is_angle(&axis.unit));
    match [scanned, recorded] {
        [2, 2] => ("datacubes", "datacube"),
        [0, 1 | 2] if pattern => ("diffractionslices", "diffractionslice"),
        _ => ("realslices", "realslice"),
    }
}

fn is_angle(unit: &str) -> bool {
    matches!(unit, "1/Å" | "1/nm" | "mrad" | "rad")
}
/// Name of the numbers of a variable, and number of its first dimension, by which RosettaSciIO finds the two axes of a picture.
fn layout(variable: &Variable) -> (&'static str, usize) {
    let [series, scanned, recorded] = variable.kinds();
    let picture = if [scanned, recorded] == [2, 2] { series + 2 } else { series };
    match (series, picture) {
        (0, _) => (folder(variable).1, 1),
        (_, 1) => ("realslice", 0),
        (_, 3) => ("datacube", 0),
        _ => ("datacube", 1),
    }
}

// Write both trees of a simulation
// Names of Prismatic's folders
/// Folders of the tree, in the order of their names.
const FOLDERS: [&str; 7] = [
    "counted_datacubes",
    "datacubes",
    "diffractionslices",
    "pointlistarrays",
    "pointlists",
    "realslices",
    "supergroups",
];

/// Name of the group around Prismatic's tree.
const SIMULATION: &str = "4DSTEM_simulation";

impl DataSet<'_> {
    /// Writes all variables into both trees.
    pub(super) fn write_emd<W: Write + Seek>(&self, file: W) -> io::Result<()> {
        let mut file = Hdf5::begin(file)?;
        let mut leaves = Vec::new();
        for (variable, array) in self.arrays() {
            let address = variable.write_emd(array, &mut file)?;
            leaves.push((folder(variable).0, group_name(variable), address));
        }
        let mut folders = Vec::new();
        for name in FOLDERS {
            let inside = leaves.iter().filter(|leaf| leaf.0 == name);
            let links: Vec<_> = inside.map(|leaf| (&leaf.1[..], Link::Hard(leaf.2))).collect();
            folders.push((name, Link::Hard(file.group(&links, &[])?)));
        }
        // Write what is around the folders
        let data = file.group(&folders, &[])?;
        let steps = Steps::of(self);
        let metadata = self.write_metadata(&steps, &mut file)?;
        let log = file.group(&[], &[])?;
        let top = [("data", data), ("log", log), ("metadata", metadata)];
        let versions = |major, minor| {
            let versions =
                [("version_major", major), ("version_minor", minor), ("version_release", 0)];
            versions.map(|(key, number)| (key, AttributeValue::Integer(number)))
        };
        let attributes =
            [&versions(0, 9)[..], &[("emd_group_type", AttributeValue::Integer(2))]].concat();
        let top = file.group(&top.map(|(name, at)| (name, Link::Hard(at))), &attributes)?;
        let tree = self.write_emd_1(&steps, &mut file)?;
        let made = ("authoring_program", env!("CARGO_PKG_NAME").into());
        let of_file = [("emd_group_type", "file".into()), made];
        let attributes = [&versions(1, 0)[..], &of_file].concat();
        let links = [(SIMULATION, Link::Hard(top)), (ROOT, Link::Hard(tree))];
        let root = file.group(&links, &attributes)?;
        file.finish(root)
    }
}

// Write one variable into Prismatic's tree
impl Variable<'_> {
    fn write_emd<W: Write + Seek>(
        &self,
        array: &TypedArray,
        file: &mut Hdf5<W>,
    ) -> io::Result<Address> {
        let (name, first) = layout(self);
        let words = [("units", self.unit[..].into()), ("long_name", self.long_name[..].into())];
        let words = words.into_iter().filter(|(key, text)| *key == "units" || *text != "".into());
        let own = self.attributes.iter().map(|one| (&one.name[..], one.value.clone()));
        let numbers = file.samples(array, &words.chain(own).collect::<Vec<_>>())?;
        let mut links = vec![(name.to_string(), Link::Hard(numbers))];
        links.push(("data".into(), Link::Soft(name)));
        for (k, (axis, &count)) in self.dimensions.iter().zip(self.shape()).enumerate() {
            let unit = format!("[{}]", spelt(&axis.unit, "none"));
            let places = axis.write_emd(count, &unit, file)?;
            links.push((format!("dim{}", k + first), Link::Hard(places)));
        }
        let links: Vec<_> = links.iter().map(|(name, link)| (&name[..], *link)).collect();
        let attributes = [("emd_group_type", AttributeValue::Integer(1)), ("metadata", 0.into())];
        file.group(&links, &attributes)
    }
}

// Write one coordinate of a tree
// A unit in powers
/// A unit in powers; `none` where there is no unit.
fn spelt(unit: &str, none: &str) -> String {
    match unit.strip_prefix("1/") {
        _ if unit.is_empty() => none.to_string(),
        Some(length) => format!("{length}^-1"),
        None => unit.to_string(),
    }
}

impl Coordinate {
    fn write_emd<W: Write + Seek>(
        &self,
        count: usize,
        unit: &str,
        file: &mut Hdf5<W>,
    ) -> io::Result<Address> {
        let moved = self.navigation.then(|| ("navigation", true.into()));
        let words = [("name", self.name[..].into()), ("units", unit.into())];
        let attributes: Vec<_> = words.into_iter().chain(moved).collect();
        if self.labels().is_empty() {
            file.numbers(&self.samples(count.max(2)), &attributes)
        } else {
            file.texts(self.labels(), &attributes)
        }
    }
}

// Write facts into Prismatic's tree
impl DataSet<'_> {
    fn write_metadata<W: Write + Seek>(
        &self,
        steps: &Steps,
        file: &mut Hdf5<W>,
    ) -> io::Result<Address> {
        let all = self.facts();
        let mut facts: Vec<_> = all.iter().map(|(key, fact)| (&key[..], fact.clone())).collect();
        let mut microscope = Vec::new();
        if let Some(beam) = Instrument::of(self) {
            let [energy, angle] =
                [beam.beam_energy, beam.convergence_angle].map(AttributeValue::Number);
            facts.extend([("E", energy.clone()), ("sa", angle.clone())]);
            microscope.extend([("beam_energy", energy), ("convergence_semiangle_mrad", angle)]);
        }
        let original = file.group(&[], &facts)?;
        let original = file.group(&[("simulation_parameters", Link::Hard(original))], &[])?;
        let mut links = vec![("original", Link::Hard(original))];
        // Groups of metadata of a file
        for name in ["calibration", "comments", "microscope", "sample", "user"] {
            let attributes = match name {
                "calibration" => &steps.facts()[..],
                "microscope" => &microscope[..],
                _ => &[],
            };
            links.push((name, Link::Hard(file.group(&[], attributes)?)));
        }
        let first = file.group(&links, &[])?;
        file.group(&[("metadata_0", Link::Hard(first))], &[])
    }
}

// Write the tree of EMD 1.0
/// Name of the root of the tree.
const ROOT: &str = "lenslet";

impl Variable<'_> {
    // Whether a variable is a cube
    fn is_cube(&self) -> bool {
        self.kinds() == [0, 2, 2] && self.dimensions.iter().all(|axis| axis.labels().is_empty())
    }

    /// Writes the group of the variable around `inside`, with a link to its numbers in Prismatic's tree.
    fn write_emd_1<W: Write + Seek>(
        &self,
        inside: &[(String, Address)],
        file: &mut Hdf5<W>,
    ) -> io::Result<Address> {
        let (folder, name) = (folder(self).0, layout(self).0);
        let path = format!("/{SIMULATION}/data/{folder}/{}/{name}", group_name(self));
        let mut links = inside.to_vec();
        // Coordinates of a variable in EMD
        for (k, (axis, &count)) in self.dimensions.iter().zip(self.shape()).enumerate() {
            let unit = spelt(&axis.unit, "").replace('Å', "A");
            links.push((format!("dim{k}"), axis.write_emd(count, &unit, file)?));
        }
        let mut links: Vec<_> =
            links.iter().map(|(name, at)| (&name[..], Link::Hard(*at))).collect();
        links.push(("data", Link::Soft(&path)));
        let class = if self.is_cube() { "DataCube" } else { "Array" };
        file.group(&links, &[("emd_group_type", "array".into()), ("python_class", class.into())])
    }
}
impl DataSet<'_> {
    fn write_emd_1<W: Write + Seek>(
        &self,
        steps: &Steps,
        file: &mut Hdf5<W>,
    ) -> io::Result<Address> {
        let cube = self.arrays().map(|(variable, _)| variable).find(|variable| variable.is_cube());
        let mut nodes = Vec::new();
        for (variable, _) in self.arrays() {
            if cube.is_none_or(|cube| cube.name != variable.name) {
                nodes.push((variable.name.clone(), variable.write_emd_1(&[], file)?));
            }
        }
        if let Some(cube) = cube {
            nodes = vec![(cube.name.clone(), cube.write_emd_1(&nodes, file)?)];
        }
        let bundle = self.write_bundle(steps, file)?;
        nodes.push(("metadatabundle".into(), bundle));
        let links: Vec<_> = nodes.iter().map(|(name, at)| (&name[..], Link::Hard(*at))).collect();
        file.group(&links, &[("emd_group_type", "root".into()), ("python_class", "Root".into())])
    }

    // Write the metadata of EMD 1.0
    fn write_bundle<W: Write + Seek>(
        &self,
        steps: &Steps,
        file: &mut Hdf5<W>,
    ) -> io::Result<Address> {
        let mut calibration = Vec::new();
        for (key, fact) in steps.facts() {
            calibration.push((key, file.item(&fact)?));
        }
        calibration.push(("QR_flip", file.item(&AttributeValue::Flag(false))?));
        calibration.push(("_root_treepath", file.item(&"".into())?));
        let cubes =
            self.arrays().map(|(variable, _)| variable).filter(|variable| variable.is_cube());
        let mut targets: Vec<_> = cubes.map(|cube| format!("/{}", cube.name)).collect();
        if let Some((first, others)) = targets.split_first_mut() {
            others.iter_mut().for_each(|other| other.insert_str(0, first));
        }
        calibration.push(("_target_paths", file.items(&targets)?));
        if let Some(beam) = Instrument::of(self) {
            let angle = file.item(&beam.convergence_angle.into())?;
            calibration.push(("convergence_semiangle_mrad", angle));
        }
        let mut facts = Vec::new();
        let all = self.facts();
        for (key, fact) in &all {
            facts.push((&key[..], file.item(fact)?));
        }
        let mut bundle = Vec::new();
        for (name, class, items) in
            [("calibration", "Calibration", calibration), ("simulation", "Metadata", facts)]
        {
            let links: Vec<_> = items.into_iter().map(|(key, at)| (key, Link::Hard(at))).collect();
            let attributes =
                [("emd_group_type", "metadata".into()), ("python_class", class.into())];
            bundle.push((name, Link::Hard(file.group(&links, &attributes)?)));
        }
        file.group(&bundle, &[("emd_group_type", "metadatabundle".into())])
    }
}

// Write items of metadata
impl<W: Write + Seek> Hdf5<W> {
    /// An item of metadata.
    fn item(&mut self, fact: &AttributeValue) -> io::Result<Address> {
        let kind = match fact {
            AttributeValue::Text(_) => "string",
            AttributeValue::Number(_) | AttributeValue::Integer(_) => "number",
            AttributeValue::Flag(_) => "bool",
            AttributeValue::Numbers(_) => "array",
        };
        self.fact(fact, &[("type", kind.into())])
    }

    /// A list of texts as an item of metadata.
    fn items(&mut self, texts: &[String]) -> io::Result<Address> {
        let mut links = Vec::new();
        for (k, text) in texts.iter().enumerate() {
            links.push((k.to_string(), self.fact(&text[..].into(), &[])?));
        }
        let links: Vec<_> = links.iter().map(|(k, at)| (&k[..], Link::Hard(*at))).collect();
        let length = AttributeValue::Integer(texts.len() as i64);
        self.group(&links, &[("type", "list_of_strings".into()), ("length", length)])
    }
}

// Steps that calibrate both trees
/// Sizes of pixels, each with its unit, as py4DSTEM spells it.
struct Steps {
    scan: (f64, String),
    pattern: (f64, String),
}

impl Steps {
    fn of(data_set: &DataSet) -> Self {
        let axes = || data_set.iter().flat_map(|variable| &variable.dimensions);
        let plain = |axis: &&Coordinate| !axis.is_series() && axis.labels().is_empty();
        let recorded = || axes().filter(|axis| is_angle(&axis.unit) && plain(axis));
        let scan = axes().filter(plain).find(|axis| axis.navigation && axis.unit == "Å");
        let scan = scan.or_else(|| axes().filter(plain).find(|axis| axis.unit == "Å"));
        let pattern = recorded().find(|axis| axis.unit == "1/Å").or_else(|| recorded().next());
        // Units of py4DSTEM's pixels
        let size = |axis: Option<&Coordinate>| match axis.map(|axis| (axis.step(), &axis.unit[..]))
        {
            Some((scale, "1/nm")) => (0.1 * scale, "A^-1".into()),
            Some((scale, "rad")) => (1e3 * scale, "mrad".into()),
            Some((scale, unit)) => (scale, spelt(unit, "").replace('Å', "A")),
            None => (1.0, "pixels".into()),
        };
        Self { scan: size(scan), pattern: size(pattern) }
    }

    // Sizes of pixels for py4DSTEM
    /// Sizes of pixels and their units, under the names of py4DSTEM.
    fn facts(&self) -> [(&'static str, AttributeValue); 4] {
        let ((scan, scan_unit), (pattern, pattern_unit)) = (&self.scan, &self.pattern);
        [
            ("R_pixel_size", (*scan).into()),
            ("R_pixel_units", scan_unit[..].into()),
            ("Q_pixel_size", (*pattern).into()),
            ("Q_pixel_units", pattern_unit[..].into()),
        ]
    }
}

// Tests of files like Prismatic's
#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::hdf5::tests::{dataset, find, messages};
    use crate::files::variables::tests::{LENGTHS, lopsided, scan};
    use ndarray::Array2;

    // Find variables in the tree
    fn written(data_set: &DataSet) -> Vec<u8> {
        let mut file = io::Cursor::new(Vec::new());
        data_set.write_emd(&mut file).unwrap();
        file.into_inner()
    }

    #[test]
    fn signals_are_where_readers_look() {
        let file = written(&lopsided());
        let data = |path: &str| dataset(&file, &format!("4DSTEM_simulation/data/{path}"));
        let [x, y, bins, qx, qy] = LENGTHS.map(|count| count as u64);
        let number =
            |bytes: &[u8], at: usize| f32::from_le_bytes(bytes[4 * at..][..4].try_into().unwrap());
        let (shape, _, cube) = data("datacubes/CBED_array_depth0000/datacube");
        assert_eq!(shape, [x, y, qx, qy]);
        assert_eq!(number(cube, (3 * 7 + 4) * 5 + 2), 1042.25);
        let (shape, _, rings) = data("realslices/virtual_detector_depth0000/realslice");
        assert_eq!((shape, number(rings, 1)), (vec![2, x, y, bins], 1.0 / 7.0));
        assert_eq!(number(rings, 4 * 3 * 6 + 1), 1001.0 / 7.0);
        assert_eq!(data("realslices/virtual_detector_depth0000/dim0").0, [2]);
        assert_eq!(data("realslices/annulus_1_depth0000/datacube").0, [3, 2, x, y]);
        let (_, _, foci) = data("realslices/annulus_1_depth0000/dim1");
        assert_eq!(foci[8..16], 10.0_f64.to_le_bytes());
        assert_eq!(data("realslices/annular_detector_depth0000/realslice").0, [x, y]);
        assert_eq!(data("realslices/DPC_CoM_depth0000/dim3").0, [2]);
        assert_eq!(data("realslices/probe_fp0000/realslice").0, [x, y]);
        let (shape, _, places) = data("datacubes/CBED_array_depth0000/dim4");
        assert_eq!((shape, &places[..8]), (vec![qy], &(-0.25_f64).to_le_bytes()[..]));
        let parameters = "4DSTEM_simulation/metadata/metadata_0/original/simulation_parameters";
        let facts = messages(&file, find(&file, parameters).unwrap());
        assert_eq!(facts.iter().filter(|message| message.0 == 12).count(), 9);
        // Find the second tree and its calibration
        let size = |path: &str| {
            let (shape, _, bytes) =
                dataset(&file, &format!("lenslet/metadatabundle/calibration/{path}"));
            assert!(shape.is_empty());
            f64::from_le_bytes(bytes.try_into().unwrap())
        };
        assert_eq!((size("R_pixel_size"), size("Q_pixel_size")), (0.5, 0.25));
        assert_eq!(size("convergence_semiangle_mrad"), 21.5);
        let nested = dataset(&file, "lenslet/four_d/annulus_1/dim0");
        assert_eq!((nested.0, &nested.2[..8]), (vec![3], &30.0_f64.to_le_bytes()[..]));
        assert!(find(&file, "lenslet/four_d/data").is_none(), "a soft link only");
    }

    // Calibrate variables of one kind of dimensions
    #[test]
    fn steps_are_those_of_the_first_signal_that_has_them() {
        let steps = |axes: Vec<Coordinate>| {
            let mut data_set = DataSet::default();
            let length = |axis: &Coordinate| if axis.is_series() { axis.values().len() } else { 3 };
            let shape: Vec<usize> = axes.iter().map(length).collect();
            let array = ndarray::ArrayD::<f64>::zeros(shape);
            data_set.insert(Variable::new("one", array, axes).unwrap()).unwrap();
            let Steps { scan, pattern } = Steps::of(&data_set);
            ((scan.0, scan.1.to_string()), (pattern.0, pattern.1.to_string()))
        };
        let of = |size: f64, unit: &str| (size, unit.to_string());
        let angle = Coordinate::signal("angle", "mrad", 2.0, 4.0).unwrap();
        let [x, y] = [scan(0.5)[0].clone(), scan(0.5)[1].clone()];
        let foci = Coordinate::series("defocus", "Å", &[5.0, 9.0]).unwrap();
        let with_angle = steps(vec![foci, x.clone(), y, angle]);
        assert_eq!(with_angle, (of(0.5, "A"), of(4.0, "mrad")));
        let q = Coordinate::signal("q", "1/nm", 0.0, 2.0).unwrap();
        assert_eq!(steps(vec![q]), (of(1.0, "pixels"), of(0.2, "A^-1")));
        let plane = Coordinate::signal("x", "Å", 0.0, 0.125).unwrap();
        assert_eq!(steps(vec![plane]), (of(0.125, "A"), of(1.0, "pixels")));
    }

    #[test]
    fn single_samples_have_a_step() {
        let mut data_set = DataSet::default();
        let line = Variable::new("annulus_1", Array2::<f64>::zeros((1, 3)), scan(0.5)).unwrap();
        data_set.insert(line).unwrap();
        let file = written(&data_set);
        let path = "4DSTEM_simulation/data/realslices/annulus_1_depth0000/dim1";
        let (shape, _, places) = dataset(&file, path);
        assert_eq!((shape, &places[8..]), (vec![2], &1.75_f64.to_le_bytes()[..]));
    }
}
