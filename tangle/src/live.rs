//! Live figures: a line `{{#live name}}` below a figure makes a script draw it anew, with sliders, where the book is read in a browser.
//!
//! The script is `viewer/dist/live.js`. The file `viewer/src/live/figures.json` lists what it can draw, and for each name what that needs: files of computed
//! results, which programs in `book/examples` write among the figures, and the script of images.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use crate::chapter::Chapter;
use crate::finding::Finding;
use crate::text::{names_figure, nearest};
use crate::volume::Book;

/// The list of live figures, relative to the repository.
pub const LIST: &str = "viewer/src/live/figures.json";

/// Where the figures are, relative to the repository.
const FIGURES: &str = "book/src/figures";

/// How the line of a live figure begins.
const DIRECTIVE: &str = "{{#live";

/// Live figures by their names.
pub type Live = BTreeMap<String, Needs>;

/// What a live figure needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Files of computed results, among the figures.
    pub results: Vec<String>,
    /// Whether it shows an image, whose view is a script of its own.
    pub image: bool,
}

/// A line of a chapter that makes a figure live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive {
    /// The line.
    pub line: usize,
    /// The name of the live figure, as written.
    pub name: String,
    /// The line where the figure above it begins, if there is one.
    pub figure: Option<usize>,
}

/// Reads the list of live figures below `root`.
///
/// # Errors
///
/// What is wrong with the list, as a sentence.
pub fn list(root: &Path) -> Result<Live, String> {
    let text =
        fs::read_to_string(root.join(LIST)).map_err(|why| format!("cannot read {LIST}: {why}"))?;
    let entries: Map<String, Value> =
        serde_json::from_str(&text).map_err(|why| format!("{LIST}: {why}; expected an object"))?;
    entries.into_iter().map(|(name, value)| read_entry(name, &value)).collect()
}

/// A live figure of the list.
fn read_entry(name: String, value: &Value) -> Result<(String, Needs), String> {
    let read = || {
        let fields = value.as_object().filter(|fields| fields.len() == 2)?;
        let texts = fields.get("results")?.as_array()?.iter();
        let results = texts.map(|text| text.as_str().map(str::to_string)).collect::<Option<_>>()?;
        Some(Needs { results, image: fields.get("image")?.as_bool()? })
    };
    match read() {
        Some(needs) => Ok((name, needs)),
        None => Err(format!(
            "{LIST}: {name} is {value}; expected {{ \"results\": [names of files], \"image\": true or false }}"
        )),
    }
}

/// The lines of a chapter that make figures live.
pub fn directives(chapter: &Chapter) -> Vec<Directive> {
    let literal = |line: usize| {
        let start = chapter.text.start_of(line);
        chapter.literal.iter().any(|range| range.contains(&start))
    };
    let mut found = Vec::new();
    for line in 1..=chapter.text.line_count() {
        let Some(rest) = chapter.text.line(line).trim_end().strip_prefix(DIRECTIVE) else {
            continue;
        };
        if !literal(line) {
            let name = rest.strip_suffix("}}").unwrap_or(rest).trim().to_string();
            found.push(Directive { line, name, figure: figure_above(chapter, line) });
        }
    }
    found
}

/// The line where a figure begins that is the paragraph above a line.
fn figure_above(chapter: &Chapter, line: usize) -> Option<usize> {
    let empty = |line: &usize| chapter.text.line(*line).trim().is_empty();
    let last = (1..line).rev().find(|line| !empty(line)).filter(|last| last + 1 < line)?;
    let first = (1..=last).rev().take_while(|line| !empty(line)).last()?;
    let begins = chapter.links.iter().any(|link| link.image && link.position == (first, 1));
    (begins && chapter.text.line(last).trim_end().ends_with(')')).then_some(first)
}

/// Live figures that the script does not know, that have no figure above them or no results, or that are shown twice or never.
pub fn check(book: &Book) -> Vec<Finding> {
    let all: Vec<(&Chapter, Directive)> = book
        .chapters
        .iter()
        .flat_map(|chapter| directives(chapter).into_iter().map(move |found| (chapter, found)))
        .collect();
    if all.is_empty() && !book.root.join(LIST).exists() {
        return Vec::new();
    }
    let known = match list(&book.root) {
        Ok(known) => known,
        Err(what) => return vec![Finding::error(LIST, (1, 1), what)],
    };
    let programs = book.programs();
    let mut findings = Vec::new();
    let mut shown: BTreeMap<&str, String> = BTreeMap::new();
    for (chapter, found) in &all {
        let here = format!("{}:{}", chapter.path, found.line);
        let first = shown.entry(&found.name).or_insert_with(|| here.clone());
        let repeated = (*first != here)
            .then(|| format!("the live figure {} is shown before, at {first}", found.name));
        let faults = fault(book, found, &known, &programs).or(repeated);
        findings.extend(faults.map(|what| Finding::error(&chapter.path, (found.line, 1), what)));
    }
    for name in known.keys().filter(|name| !shown.contains_key(name.as_str())) {
        let what = format!(
            "no chapter shows the live figure {name}: put {{{{#live {name}}}}} below its figure, or delete the entry"
        );
        findings.push(Finding::error(LIST, (1, 1), what));
    }
    findings
}

/// What is wrong with one line.
fn fault(book: &Book, found: &Directive, known: &Live, programs: &[String]) -> Option<String> {
    let Some(needs) = known.get(&found.name) else {
        let remedy = nearest(&found.name, known.keys().map(String::as_str));
        let remedy = remedy
            .map_or_else(|| format!("{LIST} lists all"), |name| format!("did you mean {name}?"));
        return Some(format!("no live figure is called {:?}: {remedy}", found.name));
    };
    if found.figure.is_none() {
        let what = "a live figure without a still one: this line follows a figure and a blank line";
        return Some(what.to_string());
    }
    let is_there = |file: &String| {
        book.root.join(FIGURES).join(file).is_file()
            || programs.iter().any(|program| names_figure(program, file))
    };
    let lost = needs.results.iter().find(|file| !is_there(file))?;
    let name = &found.name;
    Some(format!("no program in book/examples writes {lost}, which the live figure {name} needs"))
}
