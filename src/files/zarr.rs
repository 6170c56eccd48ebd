// Tangled from book/src/zarr.md: edit there, or here and run cargo tangle stitch.
//! The format Zarr in an archive: signals as HyperSpy saves them, and as xarray opens them.

// What files in Zarr stand on
use super::arrays::{Swallow, zip_error};
use super::signals::{Axis, Fact, Sample, Samples, Signal, Signals};
use ndarray::{Array1, CowArray};
use serde_json::{Map, Value, json};
use std::io::{self, Seek, Write};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

// A store in the making
/// A store of groups and arrays that is being written into an archive.
struct Store<W: Write + Seek> {
    archive: ZipWriter<Swallow<W>>,
    /// All descriptions so far.
    descriptions: Map<String, Value>,
}

impl<W: Write + Seek> Store<W> {
    fn begin(file: W) -> Self {
        let archive = ZipWriter::new(Swallow::new(file));
        Self { archive, descriptions: Map::new() }
    }

    fn member(&mut self, path: &str) -> io::Result<()> {
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        self.archive.start_file(path, options).map_err(zip_error)
    }

    // Describe groups in a store
    /// Writes a description, and keeps it for the end.
    fn describe(&mut self, folder: &str, kind: &str, description: Value) -> io::Result<()> {
        let path = if folder.is_empty() { kind.to_string() } else { format!("{folder}/{kind}") };
        self.member(&path)?;
        self.archive.write_all(description.to_string().as_bytes())?;
        self.descriptions.insert(path, description);
        Ok(())
    }

    fn group(&mut self, folder: &str, attributes: Value) -> io::Result<()> {
        self.describe(folder, ".zgroup", json!({ "zarr_format": 2 }))?;
        self.describe(folder, ".zattrs", attributes)
    }

    // Finish a store
    fn finish(mut self) -> io::Result<()> {
        let descriptions = std::mem::take(&mut self.descriptions);
        let all = json!({ "zarr_consolidated_format": 1, "metadata": descriptions });
        self.member(".zmetadata")?;
        self.archive.write_all(all.to_string().as_bytes())?;
        self.archive.finish().map_err(zip_error)?.flush()
    }
}

// Cut an array into chunks
/// Bytes that a chunk has at most.
const CHUNK: usize = 1 << 23;

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
impl<W: Write + Seek> Store<W> {
    /// Writes an array with its attributes, in chunks of so many bytes at most.
    fn array(
        &mut self,
        folder: &str,
        samples: &Samples,
        most: usize,
        attributes: Value,
    ) -> io::Result<()> {
        let (shape, descriptor) = (samples.shape().to_vec(), samples.descriptor());
        let (chunk, cut) = chunks(&shape, samples.bytes(), most);
        self.describe_array(folder, &shape, &chunk, &descriptor, attributes)?;
        let before: usize = shape[..cut].iter().product();
        let whole: usize = chunk.iter().product();
        for index in 0..before {
            let fixed = unravel(index, &shape[..cut]);
            for (number, from) in (0..shape[cut]).step_by(chunk[cut]).enumerate() {
                let part = samples.part(&fixed, from..(from + chunk[cut]).min(shape[cut]));
                let key = fixed.iter().copied().chain([number]).map(|k| k.to_string());
                let rest = shape[cut + 1..].iter().map(|_| "0".to_string());
                let key = key.chain(rest).collect::<Vec<_>>().join(".");
                self.member(&format!("{folder}/{key}"))?;
                part.write(&mut self.archive)?;
                let missing = whole - part.shape().iter().product::<usize>();
                self.archive.write_all(&vec![0; missing * samples.bytes()])?;
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
        self.member(&format!("{folder}/0"))?;
        for label in labels {
            let letters = label.chars().map(u32::from).chain(std::iter::repeat(0)).take(longest);
            letters.into_iter().try_for_each(|c| self.archive.write_all(&c.to_le_bytes()))?;
        }
        Ok(())
    }
}

/// The indices of the element of this number, the last axis the fastest.
fn unravel(mut number: usize, shape: &[usize]) -> Vec<usize> {
    let mut indices = vec![0; shape.len()];
    for (index, &count) in indices.iter_mut().zip(shape).rev() {
        (*index, number) = (number % count, number / count);
    }
    indices
}

// Signals as HyperSpy saves them
/// Version of HyperSpy's format.
const HYPERSPY: &str = "3.3";

impl Signals<'_> {
    /// Writes all signals as HyperSpy does.
    pub(super) fn write_zspy<W: Write + Seek>(&self, file: W) -> io::Result<()> {
        let mut store = Store::begin(file);
        store.group("", json!({ "file_format": "ZSpy", "file_format_version": HYPERSPY }))?;
        store.group("Experiments", json!({}))?;
        for signal in &self.items {
            let folder = format!("Experiments/{}", signal.title());
            store.group(&folder, json!({ "package": "", "package_version": "" }))?;
            signal.write_zspy(&folder, &mut store)?;
            let mut original = self.facts_as_json();
            let thickness = signal.depth.map(|(_, thickness)| json!(thickness));
            original.extend(thickness.map(|thickness| ("thickness".into(), thickness)));
            store.group(&format!("{folder}/original_metadata"), Value::Object(original))?;
        }
        store.finish()
    }
}

// Put one signal into HyperSpy's store
impl Signal<'_> {
    fn write_zspy<W: Write + Seek>(&self, folder: &str, store: &mut Store<W>) -> io::Result<()> {
        let order = self.picture_order();
        let samples = self.samples.permuted(&order);
        let integrated = self.axes.iter().all(|axis| axis.navigation);
        store.array(&format!("{folder}/data"), &samples, CHUNK, json!({}))?;
        for (place, (&k, &count)) in order.iter().zip(samples.shape()).enumerate() {
            let Axis { name, unit, offset, scale, navigation, .. } = &self.axes[k];
            let navigation = *navigation && !integrated;
            let attributes = json!({
                "_type": "UniformDataAxis", "name": name, "units": unit, "navigate": navigation,
                "is_binned": false, "size": count, "offset": offset, "scale": scale,
            });
            store.group(&format!("{folder}/axis-{place}"), attributes)?;
        }
        let metadata = format!("{folder}/metadata");
        store.group(&metadata, json!({}))?;
        store.group(&format!("{metadata}/General"), json!({ "title": self.title() }))?;
        store.group(&format!("{metadata}/Signal"), json!({ "signal_type": "" }))
    }
}

// Signals as xarray opens them
impl Signals<'_> {
    /// Writes each signal as a group with its axes.
    pub(super) fn write_zarr<W: Write + Seek>(&self, file: W) -> io::Result<()> {
        let mut store = Store::begin(file);
        store.group("", Value::Object(self.facts_as_json()))?;
        for signal in &self.items {
            let folder = signal.title();
            let thickness = signal.depth.map(|(_, thickness)| thickness);
            store.group(&folder, json!({ "thickness": thickness }))?;
            let names: Vec<_> = signal.axes.iter().map(|axis| &axis.name).collect();
            let path = format!("{folder}/{}", signal.array_name());
            let attributes = json!({ "_ARRAY_DIMENSIONS": names });
            store.array(&path, &signal.samples, CHUNK, attributes)?;
            for (axis, &count) in signal.axes.iter().zip(signal.samples.shape()) {
                axis.write_zarr(count, &folder, &mut store)?;
            }
        }
        store.finish()
    }
}

// Put one axis into a plain store
impl Axis {
    fn write_zarr<W: Write + Seek>(
        &self,
        count: usize,
        folder: &str,
        store: &mut Store<W>,
    ) -> io::Result<()> {
        let path = format!("{folder}/{}", self.name);
        let attributes = json!({ "_ARRAY_DIMENSIONS": [&self.name], "units": self.unit });
        if !self.labels.is_empty() {
            return store.labels(&path, &self.labels, attributes);
        }
        let places = Array1::from(self.places(count));
        store.array(&path, &f64::samples(CowArray::from(places).into_dyn()), CHUNK, attributes)
    }
}

impl Signal<'_> {
    /// Its name, unless that is the name of an axis.
    fn array_name(&self) -> &str {
        let taken = self.axes.iter().any(|axis| axis.name == self.name);
        if taken { "samples" } else { &self.name }
    }
}

// Facts as JSON
impl Signals<'_> {
    fn facts_as_json(&self) -> Map<String, Value> {
        let value = |fact: &Fact| match fact {
            Fact::Text(text) => json!(text),
            Fact::Number(x) => json!(x),
            Fact::Integer(n) => json!(n),
            Fact::Numbers(all) => json!(all),
        };
        self.facts.iter().map(|(key, fact)| (key.clone(), value(fact))).collect()
    }
}

// Tests of files in Zarr
#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::signals::tests::lopsided;
    use ndarray::{Array3, ArrayD};
    use std::io::{Cursor, Read};
    use zip::ZipArchive;

    type Archive = ZipArchive<Cursor<Vec<u8>>>;

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
            let mut bytes = Cursor::new(Vec::new());
            let mut store = Store::begin(&mut bytes);
            let samples: ArrayD<f32> = cube.clone().into_dyn();
            store.array("a", &f32::samples(samples.into()), most, json!({})).unwrap();
            store.finish().unwrap();
            let mut archive = ZipArchive::new(bytes).unwrap();
            assert_eq!(description(&mut archive, "a/.zarray")["chunks"], json!(chunk));
            assert_eq!(assembled(&mut archive, shape, chunk), cube, "{most} bytes");
        }
    }

    // Find signals in their stores
    #[test]
    fn stores_describe_their_signals() {
        let (mut zspy, mut zarr) = (Cursor::new(Vec::new()), Cursor::new(Vec::new()));
        lopsided().write_zspy(&mut zspy).unwrap();
        lopsided().write_zarr(&mut zarr).unwrap();
        let mut archive = ZipArchive::new(zspy).unwrap();
        let data = description(&mut archive, "Experiments/four_d/data/.zarray");
        assert_eq!((&data["shape"], &data["dtype"]), (&json!([3, 4, 5, 7]), &json!("<f4")));
        let axis = description(&mut archive, "Experiments/four_d/axis-2/.zattrs");
        assert_eq!(
            (&axis["name"], &axis["offset"], &axis["navigate"]),
            (&json!("qy"), &json!(-0.25), &json!(false))
        );
        let image = description(&mut archive, "Experiments/annulus_0/axis-0/.zattrs");
        assert_eq!((&image["name"], &image["navigate"]), (&json!("y"), &json!(false)));
        let mut archive = ZipArchive::new(zarr).unwrap();
        let data = description(&mut archive, "annular_depth0001/annular/.zarray");
        assert_eq!(data["shape"], json!([4, 3, 6]));
        let places = member(&mut archive, "annular_depth0001/y/0");
        assert_eq!(places[8..16], (-0.3_f64).to_le_bytes());
        assert_eq!(
            member(&mut archive, "centre_of_mass/component/0"),
            [120, 0, 0, 0, 121, 0, 0, 0]
        );
        assert_eq!(description(&mut archive, ".zattrs")["c"], json!([4.0, 5.43, 5.43]));
        let all = description(&mut archive, ".zmetadata");
        assert_eq!(all["metadata"]["annular_depth0001/annular/.zarray"], data);
    }
}
