//! Mathematics: numbers for equations, and KaTeX through mdbook-katex's own options.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use mdbook_katex::cfg::KatexConfig;
use rayon::prelude::*;

use super::anchors;
use crate::chapter::Chapter;
use crate::finding::Finding;
use crate::math::{Mark, Math};
use crate::volume::Book;

/// All formulas of a book, set.
#[derive(Debug, Clone, Default)]
pub struct Formulas {
    html: HashMap<(bool, String), String>,
    tex: Vec<Vec<(bool, String)>>,
}

impl Formulas {
    /// The HTML of a formula, by the indices of its chapter and of itself in [`Chapter::math`].
    pub fn html(&self, chapter: usize, formula: usize) -> Option<&str> {
        let key = self.tex.get(chapter)?.get(formula)?;
        self.html.get(key).map(String::as_str)
    }

    /// How many formulas the book has.
    pub fn count(&self) -> usize {
        self.tex.iter().map(Vec::len).sum()
    }
}

/// The label that a formula consists of, as in `$\eqref{eq:x}$`: it is a link, not mathematics.
pub fn sole_reference<'a>(chapter: &Chapter, formula: &'a Math) -> Option<&'a Mark> {
    let [mark] = formula.references.as_slice() else { return None };
    let around = chapter.text.as_str().get(formula.range.clone())?;
    let command = chapter.text.as_str().get(mark.range.clone())?;
    (!formula.display && around.trim() == command).then_some(mark)
}

/// Sets all formulas, or says which of them do not parse.
pub fn typeset(book: &Book) -> Result<Formulas, Vec<Finding>> {
    let sources: Vec<Vec<Source>> = book
        .chapters
        .iter()
        .map(|chapter| chapter.math.iter().map(|math| Source::new(book, chapter, math)).collect())
        .collect();
    let unique: BTreeSet<(bool, &str)> =
        sources.iter().flatten().map(|source| (source.display, source.tex.as_str())).collect();
    let config =
        KatexConfig { output: "htmlAndMathml".into(), trust: true, ..KatexConfig::default() };
    let (inline, display) = config.build_opts_from_macros(HashMap::new());
    let outcomes: HashMap<(bool, &str), katex::Result<String>> = unique
        .into_par_iter()
        .map(|key| (key, katex::render_with_opts(key.1, if key.0 { &display } else { &inline })))
        .collect();
    let mut findings = Vec::new();
    for (chapter, sources) in book.chapters.iter().zip(&sources) {
        for (math, source) in chapter.math.iter().zip(sources) {
            if let Some(Err(why)) = outcomes.get(&(source.display, source.tex.as_str())) {
                findings.push(source.finding(chapter, math, why));
            }
            for mark in math.labels.iter().filter(|_| !math.display) {
                let what = "only a formula between $$ and $$ can have a label";
                findings.push(Finding::error(&chapter.path, mark.position, what));
            }
        }
    }
    if !findings.is_empty() {
        return Err(findings);
    }
    let html = outcomes
        .into_iter()
        .filter_map(|((display, tex), html)| {
            Some(((display, tex.to_string()), html.ok()?.replace('\n', " ")))
        })
        .collect();
    let tex = sources
        .into_iter()
        .map(|chapter| chapter.into_iter().map(|source| (source.display, source.tex)).collect())
        .collect();
    Ok(Formulas { html, tex })
}

/// The formulas that KaTeX refuses, each with its place in the chapter: what `cargo tangle check`
/// reports about mathematics.
pub fn math_findings(book: &Book) -> Vec<Finding> {
    typeset(book).err().unwrap_or_default()
}

/// References to equations that nobody labels.
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
struct Source {
    display: bool,
    tex: String,
    /// Where each kept piece of the chapter lies in `tex`.
    kept: Vec<(usize, Range<usize>)>,
}

impl Source {
    fn new(book: &Book, chapter: &Chapter, math: &Math) -> Source {
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
