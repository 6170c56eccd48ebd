//! Mathematics: numbers for equations, the settings of mdbook-katex, and what KaTeX refuses.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::ops::Range;
use std::path::Path;

use mdbook_katex::cfg::KatexConfig;
use mdbook_preprocessor::config::Config;
use rayon::prelude::*;
use serde_json::Value;

use super::anchors;
use super::error::BookError;
use crate::chapter::Chapter;
use crate::error::Error;
use crate::finding::Finding;
use crate::math::{Mark, Math};
use crate::volume::Book;

/// The formulas of a book as HTML, by the indices of their chapter and of themselves in
/// [`Chapter::math`].
#[derive(Debug, Clone, Default)]
pub struct Formulas(HashMap<(usize, usize), String>);

impl Formulas {
    /// The HTML of a formula.
    pub fn html(&self, key: (usize, usize)) -> Option<&str> {
        self.0.get(&key).map(String::as_str)
    }

    /// Adds a formula.
    pub fn insert(&mut self, key: (usize, usize), html: &str) {
        self.0.insert(key, html.to_string());
    }
}

/// The settings of mdbook-katex in `book/book.toml` below `root`, its macros included. mdbook-katex
/// itself takes its defaults where it does not understand a setting, and panics over its macros.
///
/// # Errors
///
/// [`BookError::Settings`] for a setting that it does not know or that has the wrong type, and
/// for a macro without a definition; [`Error::Read`] if the macros cannot be read.
pub fn settings(root: &Path) -> Result<KatexConfig, BookError> {
    let folder = root.join("book");
    let file = folder.join("book.toml");
    let mut config = match file.is_file() {
        true => Config::from_disk(&file).map_err(BookError::mdbook)?,
        false => Config::default(),
    };
    config.update_from_env().map_err(BookError::mdbook)?;
    let table = "preprocessor.katex";
    let refuse = |why: mdbook_preprocessor::errors::Error| BookError::Settings(format!("{why:#}"));
    let given: BTreeMap<String, Value> = config.get(table).map_err(refuse)?.unwrap_or_default();
    let known = serde_json::to_value(KatexConfig::default()).unwrap_or_default();
    for name in given.keys().filter(|name| known.get(name.as_str()).is_none()) {
        if !["after", "before", "command", "optional", "renderers"].contains(&name.as_str()) {
            return Err(BookError::Settings(format!("no setting is called {name}")));
        }
    }
    let settings: KatexConfig = config.get(table).map_err(refuse)?.unwrap_or_default();
    if let Some(path) = settings.macros.as_ref().map(|path| folder.join(path)) {
        let macros = fs::read_to_string(&path).map_err(Error::read(&path))?;
        if let Some(line) = macros.lines().find(|l| l.starts_with('\\') && !l.contains(':')) {
            return Err(BookError::Settings(format!("no colon in the macro {line}")));
        }
    }
    Ok(settings)
}

/// The label that a formula consists of, as in `$\eqref{eq:x}$`: it is a link, not mathematics.
pub fn sole_reference<'a>(chapter: &Chapter, formula: &'a Math) -> Option<&'a Mark> {
    let [mark] = formula.references.as_slice() else { return None };
    let around = chapter.text.as_str().get(formula.range.clone())?;
    let command = chapter.text.as_str().get(mark.range.clone())?;
    (!formula.display && around.trim() == command).then_some(mark)
}

/// The formulas that KaTeX refuses under these settings, each with its place in the chapter.
/// mdbook-katex would only warn of them.
pub fn refused(book: &Book, settings: KatexConfig) -> Vec<Finding> {
    let sources: Vec<Vec<Source>> = book
        .chapters
        .iter()
        .map(|chapter| chapter.math.iter().map(|math| Source::new(book, chapter, math)).collect())
        .collect();
    let unique: BTreeSet<(bool, &str)> =
        sources.iter().flatten().map(|source| (source.display, source.tex.as_str())).collect();
    let settings = KatexConfig { throw_on_error: true, ..settings };
    let (inline, display) = settings.build_opts(book.root.join("book"));
    let wrong: HashMap<(bool, &str), katex::Error> = unique
        .into_par_iter()
        .filter_map(|key| {
            let options = if key.0 { &display } else { &inline };
            katex::render_with_opts(key.1, options).err().map(|why| (key, why))
        })
        .collect();
    let mut findings = Vec::new();
    for (chapter, sources) in book.chapters.iter().zip(&sources) {
        for (math, source) in chapter.math.iter().zip(sources) {
            if let Some(why) = wrong.get(&(source.display, source.tex.as_str())) {
                findings.push(source.finding(chapter, math, why));
            }
            for mark in math.labels.iter().filter(|_| !math.display) {
                let what = "only a formula between $$ and $$ can have a label";
                findings.push(Finding::error(&chapter.path, mark.position, what));
            }
        }
    }
    findings
}

/// What `cargo tangle check` reports about mathematics: the formulas that KaTeX refuses, or why its
/// settings are wrong.
pub fn math_findings(book: &Book) -> Vec<Finding> {
    match settings(&book.root) {
        Ok(settings) => refused(book, settings),
        Err(why) => vec![Finding::error("book/book.toml", (1, 1), why.to_string())],
    }
}

/// References to equations without a label.
pub fn unresolved(book: &Book) -> Vec<Finding> {
    let mut findings = Vec::new();
    for chapter in &book.chapters {
        for mark in chapter.math.iter().flat_map(|math| &math.references) {
            if !book.labels.contains_key(&mark.name) {
                let what = format!("no equation has the label {}", mark.name);
                findings.push(Finding::error(&chapter.path, mark.position, what));
            }
        }
    }
    findings
}

/// A formula as KaTeX gets it: labels are tags, references are numbers.
pub struct Source {
    /// `$$…$$` rather than `$…$`.
    pub display: bool,
    /// What stands between the delimiters.
    pub tex: String,
    /// Where each kept piece of the chapter lies in `tex`.
    kept: Vec<(usize, Range<usize>)>,
}

impl Source {
    /// Replaces labels and references in a formula of `chapter`.
    pub fn new(book: &Book, chapter: &Chapter, math: &Math) -> Source {
        let mut marks: Vec<(&Mark, bool)> = math.labels.iter().map(|mark| (mark, true)).collect();
        marks.extend(math.references.iter().map(|mark| (mark, false)));
        marks.sort_by_key(|(mark, _)| mark.range.start);
        let mut source = Source { display: math.display, tex: String::new(), kept: Vec::new() };
        let mut at = math.range.start;
        for (mark, is_label) in marks {
            source.keep(chapter, at..mark.range.start);
            let number = book.labels.get(&mark.name).map_or("?", |label| label.number.as_str());
            if is_label {
                source.tex.push_str(&format!("\\tag{{{number}}}"));
            } else {
                let link = anchors::equation(book, chapter, &mark.name).unwrap_or_default();
                source.tex.push_str(&format!("\\href{{{link}}}{{\\text{{({number})}}}}"));
            }
            at = mark.range.end;
        }
        source.keep(chapter, at..math.range.end);
        source
    }

    fn keep(&mut self, chapter: &Chapter, range: Range<usize>) {
        if let Some(text) = chapter.text.as_str().get(range.clone()) {
            self.kept.push((self.tex.len(), range));
            self.tex.push_str(text);
        }
    }

    /// Where in the chapter the byte of `tex` at `offset` comes from.
    fn origin(&self, offset: usize) -> Option<usize> {
        let (start, range) = self.kept.iter().rev().find(|(start, _)| *start <= offset)?;
        Some((range.start + offset - start).min(range.end))
    }

    fn finding(&self, chapter: &Chapter, math: &Math, why: &katex::Error) -> Finding {
        let (message, place) = complaint(&why.to_string());
        let position = place
            .and_then(|units| self.origin(byte_of(&self.tex, units)))
            .map_or(math.position, |offset| chapter.text.position(offset));
        Finding::error(&chapter.path, position, message)
    }
}

/// KaTeX's message without its trimmings, and the place that it names (from 1, in UTF-16 units).
fn complaint(why: &str) -> (String, Option<usize>) {
    let start = why.find("KaTeX parse error: ").map_or(0, |at| at + "KaTeX parse error: ".len());
    let text = why[start..].lines().next().unwrap_or("");
    let text = text.split(" (detail").next().unwrap_or(text).trim_end_matches(')');
    let (message, place) = match text.split_once(" at position ") {
        Some((message, rest)) => {
            (message, rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()))
        }
        None => (text.split(" at end of input").next().unwrap_or(text), None),
    };
    // The engine hands the message on as a quoted string.
    (message.trim().replace("\\\\", "\\").replace("\\'", "'"), place)
}

/// The byte that holds UTF-16 unit `place` (from 1) of a text.
fn byte_of(text: &str, place: usize) -> usize {
    let mut units = 1;
    for (offset, letter) in text.char_indices() {
        if units >= place {
            return offset;
        }
        units += letter.len_utf16();
    }
    text.len()
}
