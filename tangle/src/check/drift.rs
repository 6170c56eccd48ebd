//! Where the files on disc are not what the book tangles to.

use crate::diff;
use crate::error::Result;
use crate::expand::{File, Tangled, at_fence, header_chapter};
use crate::finding::Finding;
use crate::tree::{self, Occupant, Plan};
use crate::volume::{Book, SUMMARY};

pub fn check(book: &Book, tangled: &Tangled) -> Result<Vec<Finding>> {
    let Plan { write, remove, findings, .. } = tree::plan(book, tangled)?;
    let mut drift = findings;
    for (path, content) in &write {
        let Some(file) = tangled.files.get(path) else { continue };
        match tree::occupant(&book.root, path)? {
            Occupant::File(old) => drift.extend(differences(book, file, content, &old)),
            _ => {
                let what = format!("{path} does not exist: run cargo tangle");
                drift.push(at_fence(book, file.root, what));
            }
        }
    }
    for path in remove {
        let what = format!("{path} has no root any more: run cargo tangle");
        drift.push(Finding::error(named_chapter(book, &path), (1, 1), what));
    }
    Ok(drift)
}

/// The chapter that the header of a file names, or the table of contents if there is none.
fn named_chapter(book: &Book, path: &str) -> String {
    let text = std::fs::read_to_string(book.root.join(path)).unwrap_or_default();
    let chapter = text.lines().next().and_then(header_chapter);
    let known = chapter.filter(|chapter| book.chapter_at(chapter).is_some());
    known.unwrap_or(SUMMARY).to_string()
}

/// One finding for each place that differs, at the chapter's line.
fn differences(book: &Book, file: &File, content: &str, disc: &[u8]) -> Vec<Finding> {
    let path = &file.path;
    let Ok(disc) = std::str::from_utf8(disc) else {
        return vec![at_fence(book, file.root, format!("{path} is not UTF-8: run cargo tangle"))];
    };
    let hunks = diff::hunks(&diff::lines(content), &diff::lines(disc));
    if hunks.is_empty() {
        let what = format!("{path} differs in its last line ending: run cargo tangle");
        return vec![at_fence(book, file.root, what)];
    }
    let drifted = hunks.iter().filter_map(|hunk| {
        let line = file.lines.get(hunk.old.start).or(file.lines.last())?;
        let (chapter, _) = book.block(line.block);
        let what = format!(
            "{path}:{} differs from the book: run cargo tangle, or cargo tangle stitch",
            hunk.new.start + 1
        );
        Some(Finding::error(&chapter.path, (line.line, 1), what))
    });
    drifted.collect()
}
