// Tangled from book/src/view-page.md: edit there, or here and run cargo tangle stitch.
//! An HTML page with the data sets of several files, and the viewer.

// Imports of a page
use super::encode::{Codes, Elements, Encoding, encoded, packed, part_ranges};
use super::manifest::{
    StoredArray, StoredPart, file_json, part_id, script_json, table_json, text_json, variable_json,
};
use super::reduce::{ArrayFacts, Reduction, Rings, averaged, averaged_positions, choose};
use crate::data::{Coordinate, DataSet, Positions, TypedArray, Values, Variable};
use crate::error::{Error, Invalid, accept};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::ops::Range;

// Options of a page
/// Size limit and title of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageOptions {
    /// Bytes of all arrays before compression, above which arrays are reduced; at least 1 MB.
    pub limit: u64,
    /// Title of the page; by default the names of its files.
    pub title: Option<String>,
}

impl Default for PageOptions {
    /// A limit of 32 MB.
    fn default() -> Self {
        Self { limit: 32_000_000, title: None }
    }
}

// Page with its parts
/// An HTML page that shows data sets in a browser, without a network.
///
/// ```
/// use lenslet::{data::DataSet, view::{Page, PageOptions}};
/// let mut data = DataSet::default();
/// data.add("psf", ndarray::array![[0.0, 0.25], [0.25, 0.5]]).dimensions("y, x");
/// let page = Page::new(&[("psf.fits", &data)], &PageOptions::default())?;
/// let html = page.to_html();
/// assert!(html.starts_with("<!doctype html>") && html.contains(r#""name":"psf""#));
/// assert!(page.arrays()[0].reduced.is_empty()); // exact
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Page {
    pub(super) title: String,
    pub(super) manifest: String,
    pub(super) parts: Vec<String>,
    pub(super) arrays: Vec<PageArray>,
    /// Content security policy of the page.
    pub(super) policy: &'static str,
}

// Array of a page in brief
/// Array of a page: its size, and its loss of precision and resolution.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PageArray {
    /// Number of its file, from 0.
    pub file: usize,
    /// Name of its variable.
    pub variable: String,
    /// Lengths of its dimensions.
    pub shape: Vec<usize>,
    /// Lengths of its dimensions in the page, after averages.
    pub stored_shape: Vec<usize>,
    /// Bytes before compression.
    pub bytes: u64,
    /// How it differs from the file's array, with the largest error, in words; empty if it does not.
    pub reduced: String,
}

impl PageArray {
    fn new(file: usize, variable: &str, stored: &StoredArray) -> Self {
        let numbers = stored.shape.iter().fold(1, |all: u64, n| all.saturating_mul(*n as u64));
        let components = if stored.element.starts_with('c') { 2 } else { 1 };
        let bytes = numbers.saturating_mul(components * stored.encoding.bytes() as u64);
        let (shape, stored_shape) = (stored.original_shape.clone(), stored.shape.clone());
        Self {
            file,
            variable: variable.into(),
            shape,
            stored_shape,
            bytes,
            reduced: stored.reduced.clone(),
        }
    }
}

// Make a page of data sets
impl Page {
    /// A page of the data sets of files with these names.
    ///
    /// # Errors
    /// `Invalid` without files or with a limit below 1 MB; `Failed` if compression fails.
    pub fn new(files: &[(&str, &DataSet)], options: &PageOptions) -> Result<Self, Error> {
        let reductions = reductions(files, options)?;
        let mut store = Store { parts: Vec::new(), arrays: Vec::new(), limit: options.limit };
        let mut entries = Vec::new();
        for (number, ((name, data), reductions)) in files.iter().zip(reductions).enumerate() {
            let variables = store.variables((number, data), &reductions)?;
            entries.push(file_json(name, &data.attributes, variables));
        }
        let names: Vec<_> = files.iter().map(|(name, _)| *name).collect();
        let title = options.title.clone().unwrap_or_else(|| names.join(", "));
        let program = concat!("lenslet ", env!("CARGO_PKG_VERSION"));
        let manifest = script_json(&json!({ "format": 1, "program": program, "files": entries }));
        let Store { parts, arrays, .. } = store;
        Ok(Self { title, manifest, parts, arrays, policy: POLICY })
    }

    // Arrays of a page before it is made
    /// Arrays that a page of these data sets would have, with their reductions, but without the errors.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn plan(
        files: &[(&str, &DataSet)],
        options: &PageOptions,
    ) -> Result<Vec<PageArray>, Error> {
        let reductions = reductions(files, options)?;
        let mut arrays = Vec::new();
        for (number, ((_, data), reductions)) in files.iter().zip(reductions).enumerate() {
            for ((variable, array), reduction) in data.arrays().zip(&reductions) {
                let mut stored = unstored(variable, array, reduction);
                stored.reduced = reduced(&stored, None);
                arrays.push(PageArray::new(number, &variable.name, &stored));
            }
        }
        Ok(arrays)
    }

    /// Arrays in the order of the files and their variables.
    pub fn arrays(&self) -> &[PageArray] {
        &self.arrays
    }
}

// Reductions of all arrays of a page
/// The reductions of the arrays of each file.
fn reductions(
    files: &[(&str, &DataSet)],
    options: &PageOptions,
) -> Result<Vec<Vec<Reduction>>, Invalid> {
    accept(!files.is_empty(), "files", files.len(), "at least one")?;
    accept(options.limit >= 1_000_000, "limit", options.limit, "at least 1000000 bytes, or 1 MB")?;
    let all = files.iter().flat_map(|(_, data)| data.arrays());
    let facts: Vec<_> = all
        .map(|(variable, array)| ArrayFacts::of(array, &Elements::of(array), &variable.dimensions))
        .collect();
    let mut chosen = choose(&facts, options.limit).into_iter();
    Ok(files
        .iter()
        .map(|(_, data)| chosen.by_ref().take(data.arrays().count()).collect())
        .collect())
}

// Store the arrays of a page
// Parts of a page in the making
/// The parts and arrays of a page that is being made.
pub(super) struct Store {
    pub(super) parts: Vec<String>,
    pub(super) arrays: Vec<PageArray>,
    pub(super) limit: u64,
}

impl Store {
    /// Variables of a file in JSON, with sums over rings if diffraction patterns are averaged.
    fn variables(
        &mut self,
        (file, data): (usize, &DataSet),
        reductions: &[Reduction],
    ) -> Result<Vec<Value>, Error> {
        let (mut variables, mut reductions) = (Vec::new(), reductions.iter());
        for variable in data.iter() {
            let values = match &variable.values {
                Values::Text(text) => text_json(text),
                Values::Table(table) => table_json(table),
                Values::Array(array) => {
                    let Some(reduction) = reductions.next() else { continue };
                    let elements = Elements::of(array);
                    let stored = self.array((file, variable), array, &elements, reduction)?;
                    variables.extend(self.rings((file, data, variable), &elements, &stored)?);
                    stored.json()
                }
            };
            variables.push(variable_json(variable, &values));
        }
        Ok(variables)
    }

    // Store an array with its reduction
    pub(super) fn array(
        &mut self,
        (file, variable): (usize, &Variable),
        array: &TypedArray,
        elements: &Elements,
        reduction: &Reduction,
    ) -> Result<StoredArray, Error> {
        let mut stored = unstored(variable, array, reduction);
        let shape = (array.shape(), components(stored.element));
        if reduction.is_binned() {
            let (_, numbers) = averaged(elements, shape, &reduction.binning);
            self.fill(&mut stored, &Elements::F64(numbers.into()))?;
        } else {
            self.fill(&mut stored, elements)?;
            let numbers = elements.numbers(0..elements.len().min(MOST_SAMPLES));
            let short = array.shape().len() == 1 && shape.1 == 1 && elements.len() <= MOST_SAMPLES;
            stored.samples = (short && numbers.iter().all(|x| x.is_finite())).then_some(numbers);
        }
        stored.reduced = reduced(&stored, Some(stored.error[1]));
        self.arrays.push(PageArray::new(file, &variable.name, &stored));
        Ok(stored)
    }

    /// Stores the elements in parts, and records the errors.
    fn fill(&mut self, stored: &mut StoredArray, elements: &Elements) -> Result<(), Error> {
        let (parts, error) =
            store(elements, (&stored.shape, components(stored.element)), stored.encoding)?;
        stored.error = error;
        for (elements, codes, text) in parts {
            stored.parts.push(StoredPart { number: self.parts.len(), elements, codes });
            self.parts.push(text);
        }
        Ok(())
    }

    // Store sums over rings
    /// Variable of sums over rings, if the patterns are averaged.
    fn rings(
        &mut self,
        (file, data, variable): (usize, &DataSet, &Variable),
        patterns: &Elements,
        stored: &StoredArray,
    ) -> Result<Option<Value>, Error> {
        let name = format!("{}_rings", variable.name);
        let is_binned = stored.binning.iter().rev().take(2).any(|samples| *samples > 1);
        let rings = Rings::of(&stored.original_shape, &variable.dimensions);
        let Some(rings) = rings
            .filter(|_| is_binned && components(stored.element) == 1 && data.get(&name).is_none())
        else {
            return Ok(None);
        };
        let scan = stored.binning.len() - 2;
        let mut shape = stored.original_shape[..scan].to_vec();
        shape.push(rings.count);
        let mut binning = stored.binning[..scan].to_vec();
        binning.push(1);
        let (shape, sums) =
            averaged(&Elements::F32(rings.sums(patterns).into()), (&shape, 1), &binning);
        let (positions, unit) = (
            Positions::Uniform { offset: rings.width / 2.0, step: rings.width },
            variable.dimensions[scan].unit.clone(),
        );
        let mut dimensions = stored.dimensions[..scan].to_vec();
        dimensions.push(Coordinate { positions, unit, ..Coordinate::index("ring") });
        let many = sums.len() as u64 * 4 > self.limit / 4;
        let encoding = if many { Encoding::U16 } else { Encoding::F32 };
        let derived_from = Some(variable.name.clone());
        let original_shape = shape.clone();
        let mut sum = StoredArray {
            element: "f32",
            encoding,
            shape,
            original_shape,
            binning,
            dimensions,
            derived_from,
            ..unfilled()
        };
        self.fill(&mut sum, &Elements::F64(sums.into()))?;
        sum.reduced = reduced(&sum, Some(sum.error[1]));
        self.arrays.push(PageArray::new(file, &name, &sum));
        let mut entry = Variable::unnamed(&name, Values::Text(String::new()));
        entry.unit = variable.unit.clone();
        entry.long_name = format!("sums of {} over rings about q = 0", variable.name);
        Ok(Some(variable_json(&entry, &sum.json())))
    }
}

// Store one array in parts
/// Parts of an array in an encoding, and the largest error of its numbers, absolute and relative to the largest magnitude.
fn store(
    elements: &Elements,
    (shape, components): (&[usize], usize),
    encoding: Encoding,
) -> Result<(Vec<TextPart>, [f64; 2]), Error> {
    let ranges = part_ranges(shape, components * encoding.bytes());
    let parts = ranges.into_par_iter().map(|range| {
        let numbers = elements.numbers(range.start * components..range.end * components);
        let codes = (encoding == Encoding::U16).then(|| Codes::of(&numbers));
        let bytes = match codes {
            Some(scale) => scale.encoded(&numbers),
            None => encoded(&numbers, encoding),
        };
        let text = packed(&bytes, encoding.bytes())?;
        // Error of a part
        let shown = |x: f64| match (codes, encoding) {
            (Some(scale), _) => f64::from(scale.number(scale.code(x))),
            (None, Encoding::F32) => f64::from(x as f32),
            (None, _) => x,
        };
        let errors =
            numbers.chunks(components).fold([0.0, 0.0], |[error, largest]: [f64; 2], x| {
                let far = x.iter().fold(0.0, |far: f64, x| {
                    far.hypot(if x.is_nan() { 0.0 } else { shown(*x) - x })
                });
                let size = x.iter().fold(0.0, |size: f64, x| size.hypot(*x));
                [error.max(far), largest.max(if size.is_finite() { size } else { 0.0 })]
            });
        Ok(((range, codes, text), errors))
    });
    let parts: io::Result<Vec<_>> = parts.collect();
    // Errors of all parts
    let parts = parts
        .map_err(|error| Error::Failed { what: "compression".into(), reason: error.to_string() })?;
    let [error, largest] =
        parts.iter().fold([0.0, 0.0], |[error, largest]: [f64; 2], (_, part)| {
            [error.max(part[0]), largest.max(part[1])]
        });
    let relative = if largest > 0.0 { error / largest } else { 0.0 };
    Ok((parts.into_iter().map(|(part, _)| part).collect(), [error, relative]))
}

// Names of stored parts
/// Most numbers of an array that the manifest contains as well.
const MOST_SAMPLES: usize = 4096;

type TextPart = (Range<usize>, Option<Codes>, String);

// Array without its elements
/// Real numbers per element of this type.
fn components(element: &str) -> usize {
    if element.starts_with('c') { 2 } else { 1 }
}

/// Description of an array as a page will store it, before its elements and errors are known.
pub(super) fn unstored(
    variable: &Variable,
    array: &TypedArray,
    reduction: &Reduction,
) -> StoredArray {
    let (original_shape, binning) = (array.shape().to_vec(), reduction.binning.clone());
    let lengths = original_shape.iter().zip(&binning);
    let shape = lengths.clone().map(|(n, samples)| n.div_ceil(*samples)).collect();
    let dimensions = variable.dimensions.iter().zip(lengths).map(|(one, (n, samples))| {
        Coordinate { positions: averaged_positions(&one.positions, *n, *samples), ..one.clone() }
    });
    let dimensions = if variable.dimensions.len() == original_shape.len() {
        dimensions.collect()
    } else {
        Vec::new()
    };
    let element = match array {
        TypedArray::I64(_) | TypedArray::Bool(_) if reduction.is_binned() => "f64",
        TypedArray::C64(_) => "c64",
        TypedArray::C32(_) => "c32",
        real => real.element(),
    };
    StoredArray {
        element,
        shape,
        original_shape,
        binning,
        dimensions,
        encoding: reduction.encoding,
        ..unfilled()
    }
}

fn unfilled() -> StoredArray {
    StoredArray {
        element: "f64",
        shape: Vec::new(),
        original_shape: Vec::new(),
        binning: Vec::new(),
        dimensions: Vec::new(),
        encoding: Encoding::F64,
        parts: Vec::new(),
        served: None,
        samples: None,
        error: [0.0; 2],
        reduced: String::new(),
        derived_from: None,
    }
}

// Say how an array was reduced
/// How an array differs from the file's, in words, with its relative error if that is known.
fn reduced(stored: &StoredArray, error: Option<f64>) -> String {
    let mut words = Vec::new();
    // Words about averages
    let averaged: Vec<_> = (0..stored.binning.len()).filter(|k| stored.binning[*k] > 1).collect();
    if !averaged.is_empty() {
        let named = |k: &usize| {
            stored.dimensions.get(*k).map_or(format!("dimension {k}"), |one| one.name.clone())
        };
        let samples: Vec<_> = averaged.iter().map(|k| stored.binning[*k].to_string()).collect();
        let (samples, names) =
            (samples.join(" × "), averaged.iter().map(named).collect::<Vec<_>>());
        words.push(format!("averaged over {samples} samples along {}", names.join(", ")));
    }
    let error = error.map_or(String::new(), |error| {
        format!(" (error at most {error:.1e} of the largest value)")
    });
    match stored.encoding {
        Encoding::F32 if stored.element.ends_with("64") => {
            words.push(format!("rounded to single precision{error}"))
        }
        Encoding::U16 if stored.error[0] > 0.0 || error.is_empty() => {
            words.push(format!("stored in 16 bits{error}"))
        }
        _ => {}
    }
    words.join("; ")
}

// Write the page as html
impl Page {
    /// Writes the page.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn write(&self, file: &mut impl Write) -> io::Result<()> {
        // Write the head of the page
        let policy = self.policy;
        let title = self.title.replace('&', "&amp;").replace('<', "&lt;");
        writeln!(file, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">")?;
        writeln!(file, r#"<meta name="viewport" content="width=device-width, initial-scale=1">"#)?;
        writeln!(file, r#"<meta name="generator" content="lenslet">"#)?;
        writeln!(file, r#"<meta http-equiv="Content-Security-Policy" content="{policy}">"#)?;
        writeln!(file, "<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>")?;
        writeln!(file, "<noscript>{NO_SCRIPT}</noscript>\n<div id=\"lenslet-viewer\"></div>")?;
        let manifest = &self.manifest;
        writeln!(
            file,
            r#"<script type="application/json" id="lenslet-manifest">{manifest}</script>"#
        )?;
        // Write the viewer into the page
        let viewer = packed(VIEWER.as_bytes(), 1)?;
        writeln!(file, r#"<script type="text/plain">{LICENCES}</script>"#)?;
        writeln!(
            file,
            r#"<script type="application/octet-stream;base64" id="lenslet-program">{viewer}</script>"#
        )?;
        writeln!(file, "<script>{START}</script>")?;
        for (number, text) in self.parts.iter().enumerate() {
            let id = part_id(number);
            writeln!(
                file,
                r#"<script type="application/octet-stream;base64" id="{id}">{text}</script>"#
            )?;
        }
        writeln!(file, "</body>\n</html>")
    }

    // Page as a text
    /// The page as HTML text.
    pub fn to_html(&self) -> String {
        let mut html = Vec::new();
        let _ = self.write(&mut html); // writing to memory does not fail
        String::from_utf8(html).unwrap_or_default()
    }
}

// Fixed texts of a page
/// Content security policy: a page loads nothing from outside.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; connect-src data: blob:";
const NO_SCRIPT: &str =
    "This page needs JavaScript to show its data, but this browser does not run it.";
const VIEWER: &str = include_str!("../../viewer/dist/viewer.js");
/// Script that decompresses and runs the viewer.
const START: &str = include_str!("../../viewer/dist/start.js");
/// Licences of the libraries in the viewer.
const LICENCES: &str = include_str!("../../viewer/dist/LICENCES.txt");
const STYLE: &str = include_str!("../../viewer/dist/viewer.css");

// Tests of a page
#[cfg(test)]
mod tests {
    use super::super::encode::Law;
    use super::super::encode::decoder::decoded;
    use super::*;
    use crate::data::{Attribute, AttributeValue, Table};
    use ndarray::{Array1, Array2, Array3, Array4, array};
    use num_complex::Complex64;

    // Read a page back
    /// Manifest of a page, and its parts.
    fn read(html: &str) -> (Value, Vec<&str>) {
        let between = |start: &str| {
            let begin = html.find(start).map(|at| at + start.len()).unwrap();
            &html[begin..begin + html[begin..].find("</script>").unwrap()]
        };
        let manifest = serde_json::from_str(between("id=\"lenslet-manifest\">")).unwrap();
        let parts = (0..).map_while(|k| {
            html.contains(&format!("id=\"p{k}\">")).then(|| between(&format!("id=\"p{k}\">")))
        });
        (manifest, parts.collect())
    }

    /// Manifest entry and numbers of a variable of the first file of a page.
    fn variable(page: &Page, name: &str) -> (Value, Vec<f64>) {
        let html = page.to_html();
        let (manifest, parts) = read(&html);
        let all = manifest["files"][0]["variables"].as_array().unwrap();
        let values = all.iter().find(|one| one["name"] == name).unwrap()["values"].clone();
        let encoding = match values["encoding"].as_str().unwrap() {
            "f64" => Encoding::F64,
            "f32" => Encoding::F32,
            "i32" => Encoding::I32,
            "u8" => Encoding::U8,
            _ => Encoding::U16,
        };
        let mut numbers = Vec::new();
        for part in values["parts"].as_array().unwrap() {
            let law = if part["law"] == "log" { Law::Log } else { Law::Linear };
            let number = |key: &str| part[key].as_f64();
            let codes = number("offset").zip(number("step")).map(|(offset, step)| Codes {
                law,
                offset,
                step,
            });
            let place: usize = part["id"].as_str().unwrap()[1..].parse().unwrap();
            let components = components(values["type"].as_str().unwrap());
            assert_eq!(part["first"].as_u64().unwrap() as usize * components, numbers.len());
            numbers.extend(decoded(parts[place], encoding, codes));
            assert_eq!(
                (part["first"].as_u64().unwrap() + part["count"].as_u64().unwrap()) as usize
                    * components,
                numbers.len()
            );
        }
        (values, numbers)
    }

    fn page(data: &DataSet, limit: u64) -> Page {
        Page::new(&[("file", data)], &PageOptions { limit, title: None }).unwrap()
    }

    #[test]
    fn a_page_has_at_most_300_kilobytes_besides_its_data() {
        let mut data = DataSet::default();
        data.add("one", array![1.0]);
        let bytes = page(&data, 1_000_000).to_html().len();
        assert!(bytes < 300_000, "{bytes} bytes");
        assert!(bytes > VIEWER.len() / 3 + STYLE.len()); // the viewer is in it
    }

    // Exact arrays of each type
    #[test]
    fn arrays_within_the_limit_are_exact() {
        let mut data = DataSet::default();
        data.add("double", array![[0.1, -2e-13, 3.0], [4.0, f64::NAN, f64::INFINITY]]).unit("m");
        data.add("single", array![0.1_f32, f32::MIN_POSITIVE]);
        data.add("wave", array![Complex64::new(1.0, -2.0), Complex64::new(0.5, 0.25)]);
        data.add("signed", array![-3_i64, 1 << 20]);
        data.add("large", array![-3_i64, 1 << 40]);
        data.add("lit", array![true, false, true]);
        data.add("scalar", ndarray::arr0(2.5));
        data.add("none", Array2::<f64>::zeros((0, 4)));
        let made = page(&data, 32_000_000);
        let numbers = |name: &str| variable(&made, name).1;
        let double = numbers("double");
        assert_eq!(double[..4], [0.1, -2e-13, 3.0, 4.0]);
        assert!(double[4].is_nan() && double[5] == f64::INFINITY);
        assert_eq!(numbers("single"), [f64::from(0.1_f32), f64::from(f32::MIN_POSITIVE)]);
        assert_eq!(numbers("wave"), [1.0, -2.0, 0.5, 0.25]);
        assert_eq!(
            (numbers("signed"), numbers("large")),
            (vec![-3.0, 1048576.0], vec![-3.0, 1099511627776.0])
        );
        assert_eq!(
            (numbers("lit"), numbers("scalar"), numbers("none")),
            (vec![1.0, 0.0, 1.0], vec![2.5], vec![])
        );
        // Entries of exact arrays
        let entry = |name: &str| variable(&made, name).0;
        let encodings =
            ["wave", "signed", "large", "lit"].map(|name| entry(name)["encoding"].clone());
        assert_eq!(encodings, ["f64", "i32", "f64", "u8"].map(Value::from));
        let types =
            ["double", "single", "wave", "signed", "lit"].map(|name| entry(name)["type"].clone());
        assert_eq!(types, ["f64", "f32", "c64", "i64", "bool"].map(Value::from));
        assert_eq!(
            entry("single")["samples"],
            json!([f64::from(0.1_f32), f64::from(f32::MIN_POSITIVE)])
        );
        assert_eq!(
            (&entry("double")["samples"], &entry("wave")["samples"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(entry("double")["error"], json!({ "absolute": 0.0, "relative": 0.0 }));
        assert!(
            made.arrays()
                .iter()
                .all(|array| array.reduced.is_empty() && array.shape == array.stored_shape)
        );
        assert_eq!(
            made.arrays().iter().map(|array| array.bytes).sum::<u64>(),
            48 + 8 + 32 + 8 + 16 + 3 + 8
        );
    }

    // Rounded and averaged arrays with their errors
    #[test]
    fn reduced_arrays_keep_to_their_stated_errors() {
        let image = Array3::from_shape_fn((4, 300, 300), |(i, j, k)| {
            (0.01 * (i * j + k) as f64).sin() + 1e-9 * k as f64
        });
        let mut data = DataSet::default();
        data.add("image", image.view()).dimensions("frame, y, x");
        let sizes = [(2_880_000, "f64", 0.0), (1_500_000, "f32", 6e-8), (1_000_000, "u16", 1.6e-5)];
        for (limit, encoding, bound) in sizes {
            let (entry, numbers) = variable(&page(&data, limit), "image");
            assert_eq!(entry["encoding"], encoding);
            let far = numbers.iter().zip(&image).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
            let stated = entry["error"]["absolute"].as_f64().unwrap();
            // Decoding in single precision adds to the stated error of codes
            assert!(far <= stated + 6e-8 && stated <= far + 6e-8, "{encoding}: {far} and {stated}");
            assert!(
                stated <= bound && (bound == 0.0 || stated > bound / 4.0),
                "{encoding}: {stated}"
            );
            assert_eq!(entry["reduced"].as_str().unwrap().is_empty(), bound == 0.0);
        }
        let large =
            Array2::from_shape_fn((2000, 1000), |(j, k)| (j / 2 * 7 + k / 2) as f64 + 100.25);
        let mut data = DataSet::default();
        data.add("mirror", large.view()).dimensions("y, x");
        let (entry, numbers) = variable(&page(&data, 1_000_000), "mirror");
        assert_eq!((&entry["shape"], &entry["binning"]), (&json!([1000, 500]), &json!([2, 2])));
        assert_eq!(entry["originalShape"], json!([2000, 1000]));
        let far = |(k, x): (usize, &f64)| (x - large[[2 * (k / 500), 2 * (k % 500)]]).abs();
        let far = numbers.iter().enumerate().map(far).fold(0.0, f64::max);
        assert!(far <= entry["error"]["absolute"].as_f64().unwrap() + 1e-3 && far < 0.2, "{far}");
        let words = entry["reduced"].as_str().unwrap();
        assert!(
            words.starts_with(
                "averaged over 2 × 2 samples along y, x; stored in 16 bits (error at most "
            ),
            "{words}"
        );
        assert_eq!(
            entry["dimensions"][0]["positions"],
            json!({ "kind": "uniform", "offset": 0.5, "step": 2.0 })
        );
    }

    // Rings of averaged patterns
    #[test]
    fn averaged_patterns_come_with_sums_over_rings() {
        let patterns = Array4::from_shape_fn((8, 6, 100, 100), |(i, j, k, l)| {
            (i + j) as f32 * (-((k as f32 - 50.0).hypot(l as f32 - 50.0) / 9.0)).exp()
        });
        let step = |name: &str| Coordinate::navigation(name, "Å", 0.0, 0.5).unwrap();
        let q = |name: &str| Coordinate::signal(name, "1/Å", -2.5, 0.05).unwrap();
        let dimensions = vec![step("x"), step("y"), q("qx"), q("qy")];
        let mut data = DataSet::default();
        data.insert(Variable::new("four_d", &patterns, dimensions).unwrap()).unwrap();
        let exact = page(&data, 2_000_000);
        assert!(exact.arrays().iter().all(|array| array.variable != "four_d_rings"));
        let made = page(&data, 1_000_000); // codes of 960 kB: no averages
        assert_eq!(made.arrays().len(), 1);
        // More positions of the scan
        let more = ndarray::concatenate(ndarray::Axis(0), &[patterns.view(); 3]).unwrap();
        let mut data = DataSet::default();
        data.insert(
            Variable::new("four_d", &more, vec![step("x"), step("y"), q("qx"), q("qy")]).unwrap(),
        )
        .unwrap();
        let made = page(&data, 1_000_000);
        let (entry, sums) = variable(&made, "four_d_rings");
        assert_eq!(
            (&entry["derivedFrom"], &entry["binning"]),
            (&json!("four_d"), &json!([1, 1, 1]))
        );
        let last = &entry["dimensions"][2];
        assert_eq!((&last["name"], &last["unit"]), (&json!("ring"), &json!("1/Å")));
        assert_eq!(last["positions"], json!({ "kind": "uniform", "offset": 0.025, "step": 0.05 }));
        let rings = entry["shape"][2].as_u64().unwrap() as usize;
        let whole: f64 = sums[rings * 7..rings * 8].iter().sum();
        let expected: f64 =
            patterns.slice(ndarray::s![1, 1, .., ..]).iter().copied().map(f64::from).sum();
        assert!((whole / expected - 1.0).abs() < 1e-4, "{whole} and {expected}");
        assert_eq!(variable(&made, "four_d").0["binning"], json!([1, 1, 2, 2]));
    }

    // Markup in every text of a file
    #[test]
    fn texts_of_files_never_become_markup() {
        let bad = "</script><script>alert('\u{2028}&quot;')</script><!-- <b \"q\" --> ]]>";
        let mut data = DataSet::default();
        data.add("plain", array![[1.0, 2.0]]);
        data.add_text("text", bad);
        data.add_table(
            "table",
            Table::of(&[1.5, f64::NAN, f64::INFINITY])
                .number(bad, bad, |x| *x)
                .text("words", |_| bad.to_string())
                .table(),
        );
        let [first, .., _] = &mut data.variables[..] else { panic!() };
        (first.name, first.unit, first.long_name) = (bad.into(), bad.into(), bad.into());
        let positions = Positions::Labels(vec![bad.into()]);
        first.dimensions = vec![
            Coordinate {
                positions,
                unit: bad.into(),
                second: Some((bad.into(), bad.into(), 2.0)),
                ..Coordinate::index(bad)
            },
            Coordinate::index(bad),
        ];
        let value = AttributeValue::Text(bad.into());
        let attribute = Attribute { name: bad.into(), value, comment: bad.into() };
        first.attributes.push(attribute.clone());
        data.attributes.push(attribute);
        let html = Page::new(&[(bad, &data)], &PageOptions::default()).unwrap().to_html();
        // Elements of the page
        let count = |text: &str| html.matches(text).count();
        assert_eq!((count("<script"), count("</script")), (5, 5));
        let own = [VIEWER.matches("</script"), START.matches("</script")].map(Iterator::count);
        assert_eq!((own, STYLE.matches("</style").count()), ([0, 0], 0));
        let head = &html[..html.find("<style>").unwrap()];
        assert!(
            head.contains("<title>&lt;/script>&lt;script>alert('\u{2028}&amp;quot;')"),
            "{head}"
        );
        assert!(
            !html[html.find("lenslet-manifest").unwrap()..html.rfind("<script>").unwrap()]
                .contains('\u{2028}')
        );
        let (manifest, _) = read(&html);
        let file = &manifest["files"][0];
        assert_eq!((&file["name"], &file["attributes"][bad]), (&json!(bad), &json!(bad)));
        let array = &file["variables"][0];
        for key in ["name", "unit", "longName"] {
            assert_eq!(array[key], bad);
        }
        assert_eq!(array["attributes"][bad], bad);
        let dimension = &array["values"]["dimensions"][0];
        assert_eq!(dimension["positions"]["labels"], json!([bad]));
        assert_eq!(
            (&dimension["name"], &dimension["unit"], &dimension["second"]["name"]),
            (&json!(bad), &json!(bad), &json!(bad))
        );
        assert_eq!(file["variables"][1]["values"]["text"], bad);
        let column = &file["variables"][2]["values"]["columns"][0];
        assert_eq!((&column["name"], &column["values"]), (&json!(bad), &json!([1.5, null, "inf"])));
        assert_eq!(file["variables"][2]["values"]["columns"][1]["values"], json!([bad, bad, bad]));
    }

    #[test]
    fn a_page_asks_for_nothing_outside_of_it() {
        let mut data = DataSet::default();
        data.add("wave", Array1::<f64>::zeros(3));
        let html = page(&data, 1_000_000).to_html();
        assert!(html.contains("default-src 'none'") && !html.contains("unsafe-eval"));
        for request in [
            "src=\"http",
            "href=\"http",
            "src=\"//",
            "href=\"//",
            "url(http",
            "url(\"http",
            "url(//",
            "@import",
            "import(",
        ] {
            assert!(!html.contains(request), "{request}");
        }
        assert!(html.len() < 310_000, "{}", html.len());
    }

    // Requests that have no page
    #[test]
    fn requests_without_a_page_are_rejected() {
        let none = Page::new(&[], &PageOptions::default()).unwrap_err().to_string();
        assert_eq!(none, "files = 0: expected at least one");
        let small = PageOptions { limit: 999_999, title: None };
        let said = Page::new(&[("a", &DataSet::default())], &small).unwrap_err().to_string();
        assert!(said.starts_with("limit = 999999: expected at least 1000000 bytes"), "{said}");
        let empty = Page::new(
            &[("a.npz", &DataSet::default()), ("b.npz", &DataSet::default())],
            &PageOptions::default(),
        )
        .unwrap();
        assert!(
            empty.to_html().contains("<title>a.npz, b.npz</title>") && empty.arrays().is_empty()
        );
    }

    #[test]
    fn a_plan_is_what_is_made() {
        let mut data = DataSet::default();
        data.add("image", Array2::from_shape_fn((990, 1000), |(j, k)| (j * k) as f64 + 0.5))
            .dimensions("y, x");
        data.add("radii", Array1::<f64>::linspace(0.0, 1.0, 10));
        let options = PageOptions { limit: 1_000_000, title: None };
        let planned = Page::plan(&[("f", &data)], &options).unwrap();
        let page = Page::new(&[("f", &data)], &options).unwrap();
        for (plan, made) in planned.iter().zip(page.arrays()) {
            assert_eq!((&plan.stored_shape, plan.bytes), (&made.stored_shape, made.bytes));
            assert!(
                made.reduced.starts_with(&plan.reduced)
                    && plan.reduced.is_empty() == made.reduced.is_empty()
            );
        }
        assert_eq!((planned.len(), &planned[0].reduced[..]), (2, "stored in 16 bits"));
    }
}
