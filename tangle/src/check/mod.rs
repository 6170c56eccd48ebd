//! What can be wrong with a book, and with the program beside it.

mod brackets;
mod chunks;
mod drift;
mod equations;
mod exercises;
mod extent;
pub mod formula;
mod glossary;
mod links;
mod lists;
mod modules;
mod numbers;
mod order;
mod phrases;
mod prose;
mod reading;
mod references;
mod shape;
mod sources;
mod words;

use crate::error::Result;
use crate::expand::{Tangled, tangle};
use crate::finding::Finding;
use crate::volume::Book;

pub use extent::table as lengths;
pub use modules::graph;
pub use prose::report as prose_report;

/// All findings, in the order of their places. Writes nothing.
///
/// # Errors
///
/// [`Error::Read`](crate::Error::Read) if a tangled file cannot be read.
pub fn check(book: &Book) -> Result<Vec<Finding>> {
    let tangled = tangle(book);
    let mut findings = book.findings.clone();
    findings.extend(tangled.findings.iter().cloned());
    findings.extend(content(book, &tangled));
    findings.extend(drift::check(book, &tangled)?);
    let mut findings = book.located(findings);
    findings.sort();
    findings.dedup();
    Ok(findings)
}

/// The findings that need nothing but the chapters (and, for links and lists, the files next to them).
fn content(book: &Book, tangled: &Tangled) -> Vec<Finding> {
    let mut findings = chunks::check(book);
    findings.extend(brackets::check(book));
    findings.extend(equations::check(book));
    findings.extend(exercises::check(book));
    findings.extend(links::check(book));
    findings.extend(order::check(book));
    findings.extend(numbers::check(book));
    findings.extend(lists::check(book, tangled));
    findings.extend(reading::check(book));
    findings.extend(references::check(book));
    findings.extend(glossary::check(book));
    findings.extend(modules::check(book, tangled));
    findings.extend(homeless_maps(book));
    findings.extend(crate::live::check(book));
    findings.extend(crate::symbols::check(book));
    #[cfg(feature = "book")]
    findings.extend(rendering(book, &findings));
    findings
}

/// Maps that are asked for where there is no part to draw.
fn homeless_maps(book: &Book) -> Vec<Finding> {
    let lost = book.chapters.iter().filter(|chapter| chapter.part.is_none());
    lost.filter_map(|chapter| {
        let what = "a map is drawn in a chapter below the title of a part in SUMMARY.md";
        Some(Finding::error(&chapter.path, (chapter.map_line()?, 1), what))
    })
    .collect()
}

/// What KaTeX itself says, where the light parser has found nothing.
#[cfg(feature = "book")]
fn rendering(book: &Book, known: &[Finding]) -> Vec<Finding> {
    let mut findings = crate::book::math_findings(book);
    findings.retain(|new| !known.iter().any(|old| (&old.path, old.line) == (&new.path, new.line)));
    findings
}
