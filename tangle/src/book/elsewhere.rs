//! Code of other chapters, for references that expand in place.
//!
//! A page of `file://` may not read another one. Nearly all code that a page refers to is on that page; the rest, with the code that it refers to in turn, is
//! put at its start in elements that are not shown.

use std::collections::BTreeSet;

use crate::volume::{BlockId, Book};

/// The blocks of other chapters that references lead to from this one, through others too, in the order of the book.
pub fn reached(book: &Book, chapter: usize) -> BTreeSet<BlockId> {
    let blocks = 0..book.chapters[chapter].blocks.len();
    let mut open: Vec<BlockId> = blocks.map(|block| BlockId { chapter, block }).collect();
    let mut reached = BTreeSet::new();
    while let Some(id) = open.pop() {
        let (home, block) = book.block(id);
        for line in block.code.clone() {
            let Some(reference) = block.reference(home.text.line(line)) else { continue };
            let parts = book.chunks.get(reference.name).map_or(&[][..], |chunk| &chunk.parts);
            let others = parts.iter().filter(|part| part.chapter != chapter);
            open.extend(others.filter(|&&part| reached.insert(part)));
        }
    }
    reached
}
