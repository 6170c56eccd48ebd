//! What keeps somebody who listens to a page, or goes through it by its headings, from following it.

use crate::chapter::Chapter;
use crate::finding::Finding;
use crate::volume::Book;

pub fn check(book: &Book) -> Vec<Finding> {
    book.chapters.iter().flat_map(|chapter| [steps(chapter), silent(chapter)].concat()).collect()
}

/// Headings that are more than one level below the one before; the first one is the title.
fn steps(chapter: &Chapter) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut above = 0;
    for heading in &chapter.headings {
        if heading.level > above + 1 {
            let what = format!(
                "a heading of level {} where level {} is the deepest allowed",
                heading.level,
                above + 1
            );
            findings.push(Finding::error(&chapter.path, (heading.line, 1), what));
        }
        above = heading.level;
    }
    findings
}

/// Images without alternative text.
fn silent(chapter: &Chapter) -> Vec<Finding> {
    let images = chapter.links.iter().filter(|link| link.image && link.text.trim().is_empty());
    images
        .map(|image| {
            let what = format!("{} has no alternative text: ![what it shows](…)", image.target);
            Finding::error(&chapter.path, image.position, what)
        })
        .collect()
}
