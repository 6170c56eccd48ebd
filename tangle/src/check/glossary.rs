//! Entries of the glossary that cannot be linked where their terms are first used.

use std::collections::{BTreeMap, BTreeSet};

use crate::finding::Finding;
use crate::glossary::{GLOSSARY, first_uses, terms};
use crate::volume::Book;

pub fn check(book: &Book) -> Vec<Finding> {
    let path = format!("book/src/{GLOSSARY}");
    let terms = terms(book);
    let used: BTreeSet<usize> = first_uses(book, &terms).iter().map(|found| found.term).collect();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let mut findings = Vec::new();
    for (index, term) in terms.iter().enumerate() {
        let name = &term.name;
        let mut report = |what: String| findings.push(Finding::error(&path, term.position, what));
        if term.definition.is_empty() {
            report(format!(
                "{name} has no definition: - **term**: definition. See [Chapter](file.md)."
            ));
        }
        if !term.explained {
            report(format!(
                "{name} names no chapter that explains it: end with See [Chapter](file.md)."
            ));
        }
        if !used.contains(&index) {
            report(format!(
                "no chapter uses the term {name} in its text: use it there, or delete the entry"
            ));
        }
        for word in term.words() {
            if let Some(other) = seen.insert(word, index) {
                let line = terms[other].position.0;
                report(format!("{word} is already an entry or a synonym on line {line}: keep one"));
            }
        }
    }
    findings
}
