//! The page *Bibliography*, links to it where a work is cited, and links to the glossary.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use super::anchors::{escape, link};
use crate::bibliography::{Citation, Work};
use crate::chapter::Chapter;
use crate::glossary::{self, GLOSSARY, Term};
use crate::text::slug;
use crate::volume::Book;

/// The file of the list of works.
pub const BIBLIOGRAPHY: &str = "bibliography.md";

/// Pieces of the chapters that HTML replaces, by the indices of the chapters.
pub type Replaced = HashMap<usize, Vec<(Range<usize>, String)>>;

/// The citations as links to the bibliography, the first uses of terms as links to the glossary, and
/// the terms of the glossary as places to link to.
pub fn replaced(book: &Book) -> Replaced {
    let mut replaced = Replaced::new();
    for (index, chapter) in book.chapters.iter().enumerate() {
        let mut seen = HashSet::new();
        let citations = chapter.citations.iter().map(|citation| {
            (citation.range.clone(), citation_links(book, chapter, citation, &mut seen))
        });
        replaced.insert(index, citations.collect());
    }
    let terms = glossary::terms(book);
    for found in glossary::first_uses(book, &terms) {
        let chapter = &book.chapters[found.chapter];
        let word = chapter.text.as_str().get(found.range.clone()).unwrap_or("");
        let html = term_link(&chapter.file, &terms[found.term], word);
        replaced.entry(found.chapter).or_default().push((found.range, html));
    }
    if let Some(index) = book.chapters.iter().position(|chapter| chapter.file == GLOSSARY) {
        let places = terms.iter().map(|term| {
            let (anchor, name) = (term.anchor(), escape(&term.name));
            (term.range.clone(), format!("<dfn id=\"{anchor}\">{name}</dfn>"))
        });
        replaced.entry(index).or_default().extend(places);
    }
    replaced
}

/// A term in a chapter as a link to its entry, with the definition to be shown over it.
fn term_link(from: &str, term: &Term, word: &str) -> String {
    let address = link(from, GLOSSARY, &term.anchor());
    let definition = escape(&term.definition);
    format!("<a class=\"term\" href=\"{address}\" title=\"{definition}\">{word}</a>")
}

/// A citation with a link for each work; `seen` are the works that the chapter has cited before.
fn citation_links<'a>(
    book: &Book,
    chapter: &Chapter,
    citation: &'a Citation,
    seen: &mut HashSet<&'a str>,
) -> String {
    let mut links = Vec::new();
    for key in &citation.keys {
        let Some(work) = book.bibliography.works.get(key) else { continue };
        let id = match seen.insert(key) {
            true => format!(" id=\"{}\"", place_of(chapter, key)),
            false => String::new(),
        };
        let address = link(&chapter.file, BIBLIOGRAPHY, &anchor(key));
        let shown = match citation.in_parentheses {
            true => format!("{} {}", work.names(), work.dated()),
            false => format!("{} ({})", work.names(), work.dated()),
        };
        let (shown, entry) = (escape(&shown), escape(&work.text()));
        links.push(format!(
            "<a class=\"citation\"{id} href=\"{address}\" title=\"{entry}\" \
             aria-label=\"{shown}: {entry}\">{shown}</a>"
        ));
    }
    match (citation.in_parentheses, links.split_last()) {
        (true, _) => links.join("; "),
        (false, Some((last, [_, ..]))) => {
            format!("{} and {last}", links[..links.len() - 1].join(", "))
        }
        (false, _) => links.concat(),
    }
}

/// The anchor of a work in the list.
fn anchor(key: &str) -> String {
    format!("work-{key}")
}

/// The anchor of the first citation of a work in a chapter.
fn place_of(chapter: &Chapter, key: &str) -> String {
    format!("cited-{}-{key}", slug(chapter.file.trim_end_matches(".md")))
}

/// The Markdown of the bibliography; none for a book without works.
pub fn bibliography_page(book: &Book) -> Option<String> {
    let works = book.bibliography.sorted();
    if works.is_empty() {
        return None;
    }
    let mut homes: BTreeMap<&str, Vec<&Chapter>> = BTreeMap::new();
    for chapter in &book.chapters {
        for key in chapter.citations.iter().flat_map(|citation| &citation.keys) {
            let homes = homes.entry(key).or_default();
            if homes.last().is_none_or(|last| last.file != chapter.file) {
                homes.push(chapter);
            }
        }
    }
    let mut page = String::from(
        "# Bibliography\n\nThe works that the chapters cite, each with the chapters that cite it.\n\n\
         <ul class=\"index bibliography\">\n",
    );
    for (key, work) in works {
        let homes = homes.get(key).into_iter().flatten().map(|chapter| {
            let address = link(BIBLIOGRAPHY, &chapter.file, &place_of(chapter, key));
            format!("<a href=\"{address}\"><cite>{}</cite></a>", escape(&chapter.title))
        });
        let homes: Vec<String> = homes.collect();
        page.push_str(&format!(
            "<li id=\"{}\">{} <span class=\"kind\">Cited in</span> {}</li>\n",
            anchor(key),
            entry(work),
            homes.join(", ")
        ));
    }
    page.push_str("</ul>\n");
    Some(page)
}

/// The entry of a work as HTML.
fn entry(work: &Work) -> String {
    let pieces = work.entry().into_iter().map(|(text, italic)| match italic {
        true => format!("<em>{}</em>", escape(&text)),
        false => escape(&text),
    });
    let doi = work.doi().map(|doi| {
        let doi = escape(doi);
        format!(" <a class=\"doi\" href=\"https://doi.org/{doi}\">doi:{doi}</a>")
    });
    pieces.chain(doi).collect()
}
