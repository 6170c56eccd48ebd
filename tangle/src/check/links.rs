//! Links that lead nowhere.

use crate::chapter::Chapter;
use crate::finding::Finding;
use crate::glossary::{GLOSSARY, Term, terms};
use crate::markdown::Link;
pub use crate::pages::resolve;
use crate::text::{names_figure, nearest, slug};
use crate::volume::Book;

pub fn check(book: &Book) -> Vec<Finding> {
    let programs = book.programs();
    let mut findings = Vec::new();
    for chapter in &book.chapters {
        for link in &chapter.links {
            if let Some(what) = fault(book, chapter, link, &programs) {
                findings.push(Finding::error(&chapter.path, link.position, what));
            }
        }
    }
    findings
}

fn fault(book: &Book, chapter: &Chapter, link: &Link, programs: &[String]) -> Option<String> {
    let target = link.target.as_str();
    if target.is_empty() {
        return Some("a link to nothing".to_string());
    }
    let scheme = target.split_once(':').map(|(scheme, _)| scheme);
    if matches!(scheme, Some("http" | "https" | "mailto")) {
        return None;
    }
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (target, None),
    };
    let file = file.replace("%20", " ");
    let Some(path) = resolve(&chapter.file, &file) else {
        return Some(format!("{target} leaves the book"));
    };
    let other = if file.is_empty() {
        chapter
    } else if let Some(index) = book.chapter_at(&format!("book/src/{path}")) {
        &book.chapters[index]
    } else if path.ends_with(".md") {
        return Some(match book.root.join("book/src").join(&path).exists() {
            true => format!("{target} is in no table of contents"),
            false => format!("{target} does not exist"),
        });
    } else {
        let provided = chapter.notebook.as_ref().is_some_and(|notebook| notebook.provides(&path));
        return (!provided && missing_file(book, &path, programs))
            .then(|| format!("{target} does not exist"));
    };
    let anchor = anchor?;
    let known = other.headings.iter().any(|heading| heading.id == anchor)
        || other.anchors.iter().any(|id| id == anchor)
        || other.math.iter().flat_map(|math| &math.labels).any(|label| slug(&label.name) == anchor)
        || other.blocks.iter().any(|block| match (block.name(), block.root()) {
            (Some(name), _) => format!("chunk-{}", slug(name)) == anchor,
            (_, Some(path)) => format!("file-{}", slug(path)) == anchor,
            _ => false,
        });
    if other.file == GLOSSARY && !known {
        return lost_term(book, anchor);
    }
    (!known).then(|| format!("{} has no heading or label #{anchor}", other.file))
}

/// What is wrong with a link to a term, if the glossary has no such entry.
fn lost_term(book: &Book, anchor: &str) -> Option<String> {
    let anchors: Vec<String> = terms(book).iter().map(Term::anchor).collect();
    if anchors.iter().any(|known| known == anchor) {
        return None;
    }
    let remedy = nearest(anchor, anchors.iter().map(String::as_str));
    let remedy = remedy.map_or(String::new(), |known| format!(": did you mean #{known}?"));
    Some(format!("{GLOSSARY} has no entry or heading #{anchor}{remedy}"))
}

/// Figures are drawn when the book is built: it is enough that a program names them.
fn missing_file(book: &Book, path: &str, programs: &[String]) -> bool {
    if book.root.join("book/src").join(path).exists() {
        return false;
    }
    let Some(figure) = path.strip_prefix("figures/") else { return true };
    !programs.iter().any(|program| names_figure(program, figure))
}

/// The index of the chapter that a link of another leads to, at whichever heading.
pub fn chapter_of(book: &Book, from: &Chapter, target: &str) -> Option<usize> {
    let file = target.split('#').next()?.replace("%20", " ");
    book.chapter_at(&format!("book/src/{}", resolve(&from.file, &file)?))
}
