//! Citations without a work, works without a citation, and citations where none can be shown.

use std::collections::BTreeSet;

use crate::bibliography::REFERENCES;
use crate::chapter::Chapter;
use crate::citations::is_documentation;
use crate::finding::Finding;
use crate::volume::Book;

pub fn check(book: &Book) -> Vec<Finding> {
    let mut findings = book.bibliography.findings.clone();
    findings.extend(book.lost_citations());
    let citations = book.chapters.iter().flat_map(|chapter| &chapter.citations);
    let cited: BTreeSet<&str> =
        citations.flat_map(|citation| citation.keys.iter().map(String::as_str)).collect();
    for (key, work) in &book.bibliography.works {
        if !cited.contains(key.as_str()) {
            let what = format!("no chapter cites {key}: cite it as [@{key}], or delete the entry");
            findings.push(Finding::error(REFERENCES, work.position, what));
        }
    }
    findings.extend(book.chapters.iter().flat_map(misplaced));
    findings
}

/// Citations in headings and in the documentation of the code, which show them as they are written.
fn misplaced(chapter: &Chapter) -> Vec<Finding> {
    let in_heading = |line: usize| chapter.headings.iter().any(|heading| heading.line == line);
    let headings = chapter.citations.iter().filter(|citation| in_heading(citation.position.0));
    let what = "a citation in a heading: cite the work in the text below";
    let mut findings: Vec<Finding> =
        headings.map(|found| Finding::error(&chapter.path, found.position, what)).collect();
    for block in chapter.blocks.iter().filter(|block| block.is_chunk()) {
        for number in block.code.clone() {
            let line = chapter.text.line(number);
            if let Some(at) = line.find("[@").filter(|_| is_documentation(line)) {
                let place = (number, line[..at].chars().count() + 1);
                let what = "a citation in documentation, where rustdoc shows [@…]: cite the work in the text";
                findings.push(Finding::error(&chapter.path, place, what));
            }
        }
    }
    findings
}
