// Tangled from book/src/view-page.md: edit there, or here and run cargo tangle stitch.
//! A page of HTML with the data sets of several files, and the viewer.

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
/// What a page may carry, and how it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageOptions {
    /// Bytes of arrays before compression beyond which they are reduced; from 1 MB on.
    pub limit: u64,
    /// Title of the page; the names of its files unless given.
    pub title: Option<String>,
}

impl Default for PageOptions {
    /// A limit of 32 MB.
    fn default() -> Self {
        Self { limit: 32_000_000, title: None }
    }
}

// Page with its parts
/// A page of HTML that shows data sets in a browser, without a network.
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
    title: String,
    manifest: String,
    parts: Vec<String>,
    arrays: Vec<PageArray>,
}

// Array of a page in brief
/// An array of a page: how much of it there is, and what it lost.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PageArray {
    /// Number of its file, from 0.
    pub file: usize,
    /// Name of its variable.
    pub variable: String,
    /// Lengths of its dimensions.
    pub shape: Vec<usize>,
    /// Lengths of the dimensions that the page has.
    pub stored_shape: Vec<usize>,
    /// Bytes before compression.
    pub bytes: u64,
    /// How it differs from the file's array, with the largest error, in words; empty where it does not.
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
    /// `Invalid` where there is no file, or the limit is below 1 MB; `Failed` where compression fails.
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
        Ok(Self { title, manifest, parts: store.parts, arrays: store.arrays })
    }

    // Arrays of a page before it is made
    /// The arrays that a page of these data sets would have, with how they would be reduced, without their errors.
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

    /// The arrays, in the order of the files and their variables.
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
/// The parts and arrays of a page that is being made.
struct Store {
    parts: Vec<String>,
    arrays: Vec<PageArray>,
    limit: u64,
}

impl Store {
    /// The variables of a file in JSON, with sums over rings where diffraction patterns are averaged.
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
    fn array(
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

    /// Stores the elements in parts, and notes the errors.
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
    /// The variable of sums over rings of averaged diffraction patterns.
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
/// Numbers of an array that the manifest has as well.
const MOST_SAMPLES: usize = 4096;

type TextPart = (Range<usize>, Option<Codes>, String);

/// The parts of an array in an encoding, and the largest error of its numbers, absolute and over the largest magnitude.
fn store(
    elements: &Elements,
    (shape, components): (&[usize], usize),
    encoding: Encoding,
) -> Result<(Vec<TextPart>, [f64; 2]), Error> {
    let ranges = part_ranges(shape, components * encoding.bytes());
    let parts = ranges.into_par_iter().map(|range| {
        let numbers = elements.numbers(range.start * components..range.end * components);
        let (codes, bytes) = match encoding {
            Encoding::U16 => {
                let scale = Codes::of(&numbers);
                let codes: Vec<_> = numbers.iter().map(|x| f64::from(scale.code(*x))).collect();
                (Some(scale), encoded(&codes, encoding))
            }
            _ => (None, encoded(&numbers, encoding)),
        };
        // Error of a part
        let shown = |x: f64| match (codes, encoding) {
            (Some(scale), _) => f64::from(scale.number(scale.code(x))),
            (None, Encoding::F32) => f64::from(x as f32),
            (None, _) => x,
        };
        let errors = numbers.iter().fold([0.0, 0.0], |[error, largest]: [f64; 2], x| {
            [
                error.max((shown(*x) - x).abs()),
                largest.max(if x.is_finite() { x.abs() } else { 0.0 }),
            ]
        });
        let text = packed(&bytes, encoding.bytes())?;
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

// Array without its elements
/// Real numbers of an element of this type.
fn components(element: &str) -> usize {
    if element.starts_with('c') { 2 } else { 1 }
}

/// An array as a page will store it, without elements and errors yet.
fn unstored(variable: &Variable, array: &TypedArray, reduction: &Reduction) -> StoredArray {
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
/// How an array differs from the file's, in words, with its relative error where that is known.
fn reduced(stored: &StoredArray, error: Option<f64>) -> String {
    let mut words = Vec::new();
    let averaged: Vec<_> = (0..stored.binning.len()).filter(|k| stored.binning[*k] > 1).collect();
    if !averaged.is_empty() {
        let samples: Vec<_> = averaged.iter().map(|k| stored.binning[*k].to_string()).collect();
        let named = |k: &usize| {
            stored.dimensions.get(*k).map_or(format!("dimension {k}"), |one| one.name.clone())
        };
        let names: Vec<_> = averaged.iter().map(named).collect();
        words.push(format!(
            "averaged over {} samples along {}",
            samples.join(" × "),
            names.join(", ")
        ));
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
    /// What the operating system reports.
    pub fn write(&self, file: &mut impl Write) -> io::Result<()> {
        let title = self.title.replace('&', "&amp;").replace('<', "&lt;");
        write!(file, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")?;
        write!(file, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n")?;
        write!(file, "<meta name=\"generator\" content=\"lenslet\">\n")?;
        write!(file, "<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n")?;
        write!(file, "<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n")?;
        write!(file, "<noscript>{NO_SCRIPT}</noscript>\n<div id=\"lenslet-viewer\"></div>\n")?;
        write!(
            file,
            "<script type=\"application/json\" id=\"lenslet-manifest\">{}</script>\n",
            self.manifest
        )?;
        for (number, text) in self.parts.iter().enumerate() {
            let id = part_id(number);
            write!(
                file,
                "<script type=\"application/octet-stream;base64\" id=\"{id}\">{text}</script>\n"
            )?;
        }
        write!(file, "<script>{VIEWER}</script>\n</body>\n</html>\n")
    }

    // Page as a text
    /// The page as a text.
    pub fn to_html(&self) -> String {
        let mut html = Vec::new();
        let _ = self.write(&mut html); // memory takes any length
        String::from_utf8(html).unwrap_or_default()
    }
}

// Fixed texts of a page
/// What a page may load: what is in it, and nothing else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; connect-src data: blob:";
const NO_SCRIPT: &str =
    "This page shows its data by a program in JavaScript, which this browser does not run.";
const VIEWER: &str = include_str!("../../viewer/dist/viewer.js");
const STYLE: &str = include_str!("../../viewer/dist/viewer.css");
