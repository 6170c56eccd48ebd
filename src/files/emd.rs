// Tangled from book/src/emd-files.md: edit there, or here and run cargo tangle stitch.
//! Signals in HDF5, in the tree that Prismatic writes and others read.

// What files like Prismatic's stand on
use super::hdf5::{Address, Hdf5, Link};
use super::signals::{Axis, Fact, Signal, Signals, known_as};
use std::io::{self, Seek, Write};

// Names and folders in Prismatic's tree
/// Name of the group of a signal.
fn group_name(signal: &Signal) -> String {
    let name = known_as(&signal.name);
    let scanned = signal.axes.iter().any(|axis| axis.navigation);
    match signal.depth {
        None if !scanned => format!("{name}_fp0000"),
        depth => format!("{name}_depth{:04}", depth.map_or(0, |(number, _)| number)),
    }
}

/// The folder that a signal belongs to, and the name of its numbers.
fn folder(signal: &Signal) -> (&'static str, &'static str) {
    let navigation = signal.axes.iter().filter(|axis| axis.navigation).count();
    let pattern = signal.axes[navigation..].iter().all(|axis| is_angle(&axis.unit));
    match [navigation, signal.axes.len() - navigation] {
        [2, 2] => ("datacubes", "datacube"),
        [0, _] if pattern => ("diffractionslices", "diffractionslice"),
        _ => ("realslices", "realslice"),
    }
}

fn is_angle(unit: &str) -> bool {
    matches!(unit, "1/Å" | "1/nm" | "mrad" | "rad")
}

// Write the tree of a simulation
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

impl Signals<'_> {
    /// Writes all signals into the tree of a simulation.
    pub(super) fn write_emd<W: Write + Seek>(&self, file: W) -> io::Result<()> {
        let mut file = Hdf5::begin(file)?;
        let mut leaves = Vec::new();
        for signal in &self.items {
            leaves.push((folder(signal).0, group_name(signal), signal.write_emd(&mut file)?));
        }
        let mut folders = Vec::new();
        for name in FOLDERS {
            let inside = leaves.iter().filter(|leaf| leaf.0 == name);
            let links: Vec<_> = inside.map(|leaf| (&leaf.1[..], Link::Hard(leaf.2))).collect();
            folders.push((name, Link::Hard(file.group(&links, &[])?)));
        }
        // Write what is around the folders
        let data = file.group(&folders, &[])?;
        let metadata = self.write_metadata(&mut file)?;
        let log = file.group(&[], &[])?;
        let top = [("data", data), ("log", log), ("metadata", metadata)];
        let versions = [
            ("version_major", 0),
            ("version_minor", 9),
            ("version_release", 0),
            ("emd_group_type", 2),
        ];
        let versions = versions.map(|(key, number)| (key, Fact::Integer(number)));
        let top = file.group(&top.map(|(name, at)| (name, Link::Hard(at))), &versions)?;
        let root = file.group(&[("4DSTEM_simulation", Link::Hard(top))], &[])?;
        file.finish(root)
    }
}

// Write one signal into the tree
impl Signal<'_> {
    fn write_emd<W: Write + Seek>(&self, file: &mut Hdf5<W>) -> io::Result<Address> {
        let name = folder(self).1;
        let mut links = vec![(name.to_string(), Link::Hard(file.samples(&self.samples, &[])?))];
        links.push(("data".into(), Link::Soft(name)));
        for (k, (axis, &count)) in self.axes.iter().zip(self.samples.shape()).enumerate() {
            links.push((format!("dim{}", k + 1), Link::Hard(axis.write_emd(count, file)?)));
        }
        let links: Vec<_> = links.iter().map(|(name, link)| (&name[..], *link)).collect();
        let mut attributes = vec![("emd_group_type", Fact::Integer(1)), ("metadata", 0.into())];
        if let Some((_, thickness)) = self.depth {
            attributes.push(("output_depth", thickness.into()));
        }
        file.group(&links, &attributes)
    }
}

// Write one axis into the tree
impl Axis {
    fn write_emd<W: Write + Seek>(&self, count: usize, file: &mut Hdf5<W>) -> io::Result<Address> {
        let unit = match self.unit.strip_prefix("1/") {
            _ if self.unit.is_empty() => "[none]".to_string(),
            Some(length) => format!("[{length}^-1]"),
            None => format!("[{}]", self.unit),
        };
        let attributes = [("name", self.name[..].into()), ("units", unit[..].into())];
        if self.labels.is_empty() {
            file.numbers(&self.places(count.max(2)), &attributes)
        } else {
            file.texts(&self.labels, &attributes)
        }
    }
}

// Write facts into the tree
impl Signals<'_> {
    fn write_metadata<W: Write + Seek>(&self, file: &mut Hdf5<W>) -> io::Result<Address> {
        let mut facts: Vec<_> =
            self.facts.iter().map(|(key, fact)| (&key[..], fact.clone())).collect();
        let missing = |key: &str| !self.facts.iter().any(|(known, _)| known == key);
        if ["ns", "s", "zs", "t", "c"].into_iter().any(missing) {
            for (key, fact) in self.depth_facts() {
                facts.retain(|(known, _)| *known != key);
                facts.push((key, fact));
            }
        }
        let original = file.group(&[], &facts)?;
        let original = file.group(&[("simulation_parameters", Link::Hard(original))], &[])?;
        let mut links = vec![("original", Link::Hard(original))];
        for name in ["calibration", "comments", "microscope", "sample", "user"] {
            links.push((name, Link::Hard(file.group(&[], &[])?)));
        }
        let first = file.group(&links, &[])?;
        file.group(&[("metadata_0", Link::Hard(first))], &[])
    }

    // Facts about evenly spaced depths
    /// What tells a reader where the depths are, if there are several.
    fn depth_facts(&self) -> Vec<(&'static str, Fact)> {
        let last = self.items.iter().filter_map(|signal| signal.depth).max_by_key(|depth| depth.0);
        let Some((number, thickness)) = last.filter(|(number, _)| *number > 0) else {
            return Vec::new();
        };
        let step = thickness / (number + 1) as f64;
        let even = |(k, z): (usize, f64)| (z - step * (k + 1) as f64).abs() <= 1e-6 * thickness;
        let even = self.items.iter().filter_map(|signal| signal.depth).all(even);
        let (tiles, cell) = ([1.0; 3], [if even { thickness } else { 0.0 }, 0.0, 0.0]);
        vec![
            ("ns", Fact::Integer(1)),
            ("s", Fact::Number(if even { step } else { 1.0 })),
            ("zs", Fact::Number(0.0)),
            ("t", Fact::Numbers(tiles.to_vec())),
            ("c", Fact::Numbers(cell.to_vec())),
        ]
    }
}

// Tests of files like Prismatic's
#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::hdf5::tests::{dataset, find, messages};
    use crate::files::signals::tests::{LENGTHS, lopsided, scan};
    use ndarray::Array2;

    // Find signals in the tree
    fn written(signals: &Signals) -> Vec<u8> {
        let mut file = io::Cursor::new(Vec::new());
        signals.write_emd(&mut file).unwrap();
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
        for (depth, added) in [(0, 0.0), (1, 1000.0)] {
            let (shape, _, bins_of) =
                data(&format!("realslices/virtual_detector_depth000{depth}/realslice"));
            assert_eq!((shape, number(bins_of, 1)), (vec![x, y, bins], (1.0 + added) / 7.0));
        }
        assert_eq!(data("realslices/annular_detector_depth0000/realslice").0, [x, y]);
        assert_eq!(data("realslices/DPC_CoM_depth0000/dim3").0, [2]);
        assert_eq!(data("realslices/probe_fp0000/realslice").0, [x, y]);
        let (shape, _, places) = data("datacubes/CBED_array_depth0000/dim4");
        assert_eq!((shape, &places[..8]), (vec![qy], &(-0.25_f64).to_le_bytes()[..]));
        let parameters = "4DSTEM_simulation/metadata/metadata_0/original/simulation_parameters";
        let facts = messages(&file, find(&file, parameters).unwrap());
        assert_eq!(facts.iter().filter(|message| message.0 == 12).count(), 7);
    }

    // Tell depths to readers
    #[test]
    fn depths_and_single_samples_have_a_scale() {
        let deep = |thicknesses: &[f64]| {
            let mut signals = Signals::default();
            for (number, &thickness) in thicknesses.iter().enumerate() {
                let signal =
                    Signal::new("annulus_1", Array2::<f64>::zeros((1, 3)), scan(0.5)).unwrap();
                signals.add(signal.at_depth(number, thickness).unwrap()).unwrap();
            }
            signals
        };
        let fact = |signals: &Signals, key| {
            signals.depth_facts().into_iter().find(|fact| fact.0 == key).unwrap().1
        };
        let even = deep(&[7.0, 14.0, 21.0]);
        assert_eq!(
            (fact(&even, "s"), fact(&even, "c")),
            (7.0.into(), [21.0, 0.0, 0.0].as_slice().into())
        );
        assert_eq!(fact(&deep(&[7.0, 15.0]), "s"), 1.0.into());
        assert!(deep(&[7.0]).depth_facts().is_empty());
        let file = written(&even);
        let path = "4DSTEM_simulation/data/realslices/annulus_1_depth0002/dim1";
        let (shape, _, places) = dataset(&file, path);
        assert_eq!((shape, &places[8..]), (vec![2], &1.75_f64.to_le_bytes()[..]));
    }
}
