//! Equations that do not parse, and references to equations that do not exist.

use std::fs;

use crate::chapter::Chapter;
use crate::check::formula::{self, Grammar};
use crate::citations;
use crate::finding::Finding;
use crate::text::setting;
use crate::volume::Book;

pub fn check(book: &Book) -> Vec<Finding> {
    let grammar = Grammar::with_macros(&macros(book));
    let mut findings = Vec::new();
    for chapter in &book.chapters {
        let source = chapter.text.as_str();
        for math in &chapter.math {
            let path = &chapter.path;
            if let Some((at, what)) = formula::fault(&source[math.range.clone()], &grammar) {
                let place = chapter.text.position(math.range.start + at);
                findings.push(Finding::error(path, place, format!("equation: {what}")));
            }
            for label in math.labels.iter().filter(|_| !math.display) {
                let what = format!("label {} in a formula that is not displayed", label.name);
                findings.push(Finding::error(path, label.position, what));
            }
            for label in math.labels.iter().filter(|label| !well_named(&label.name)) {
                let what = format!("a label is spelt eq:name-of-it, not {}", label.name);
                findings.push(Finding::error(path, label.position, what));
            }
            for mark in &math.references {
                if !book.labels.contains_key(&mark.name) {
                    let what = format!("\\eqref{{{}}}: no equation has this label", mark.name);
                    findings.push(Finding::error(path, mark.position, what));
                }
            }
        }
        findings.extend(cited(book, chapter));
    }
    findings
}

/// The macros that the book gives to KaTeX: `[preprocessor.katex] macros = "file"` in `book.toml`.
fn macros(book: &Book) -> String {
    let folder = book.root.join("book");
    let settings = fs::read_to_string(folder.join("book.toml")).unwrap_or_default();
    setting(&settings, "macros")
        .and_then(|file| fs::read_to_string(folder.join(file)).ok())
        .unwrap_or_default()
}

/// `eq:` and letters, digits, hyphens.
fn well_named(label: &str) -> bool {
    label.strip_prefix("eq:").is_some_and(|name| {
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':'))
    })
}

/// `[eq:name]` and `` `eq:name` `` in the documentation comments of tangled code, and links there to
/// equations of the rendered book.
fn cited(book: &Book, chapter: &Chapter) -> Vec<Finding> {
    let mut findings = Vec::new();
    for block in chapter.blocks.iter().filter(|block| block.is_chunk()) {
        for number in block.code.clone() {
            let line = chapter.text.line(number);
            if !citations::is_documentation(line) {
                continue;
            }
            for (at, what) in citations::lost_links(book, line) {
                let column = line[..at].chars().count() + 1;
                findings.push(Finding::error(&chapter.path, (number, column), what));
            }
            for (at, name) in labels(line) {
                if !book.labels.contains_key(name) {
                    let column = line[..at].chars().count() + 1;
                    let what = format!("{name}: no equation has this label");
                    findings.push(Finding::error(&chapter.path, (number, column), what));
                }
            }
        }
    }
    findings
}

/// The labels that a line cites, and where.
fn labels(line: &str) -> Vec<(usize, &str)> {
    line.match_indices("eq:")
        .filter_map(|(at, _)| {
            let close = match line[..at].chars().next_back()? {
                '[' => ']',
                '`' => '`',
                _ => return None,
            };
            let length = line[at..].find(close)?;
            let name = &line[at..at + length];
            well_named(name).then_some((at, name))
        })
        .collect()
}
