//! Chunks that nothing uses, that are too long, or whose names describe too little.

use std::collections::BTreeSet;

use crate::block::{Block, BlockKind};
use crate::docs::shown_lines;
use crate::expand::at_fence;
use crate::finding::Finding;
use crate::volume::{BlockId, Book};

/// A chunk with more lines than this, those of all its blocks together, is an error. Folded blocks count
/// as others do, since this limits the size of what a name stands for.
pub const MOST_LINES: usize = 60;

/// A warning is given of an open block that shows more lines than this. Folded code and the hidden lines
/// of comments do not count, since nobody reads them line by line.
pub const MANY_OPEN_LINES: usize = 25;

/// Words in names that describe no code.
const EMPTY_WORDS: [&str; 5] = ["helper", "helpers", "header", "headers", "misc"];

pub fn check(book: &Book) -> Vec<Finding> {
    let mut findings = unused(book);
    for id in book.blocks() {
        let (_, block) = book.block(id);
        let parts = match &block.kind {
            BlockKind::Plain => continue,
            BlockKind::Root(_) => vec![id],
            BlockKind::Named(name) => {
                findings.extend(named(book, id, name));
                let chunk = book.chunks.get(name).filter(|_| block.part == 0);
                chunk.map_or(Vec::new(), |chunk| chunk.parts.clone())
            }
        };
        findings.extend(assembled_length(book, &parts));
        findings.extend(open_length(book, id));
    }
    findings
}

/// A chunk of these blocks that is too long. A reference counts as one line.
fn assembled_length(book: &Book, blocks: &[BlockId]) -> Option<Finding> {
    let (chapter, block) = book.block(*blocks.first()?);
    let lines: usize = blocks.iter().map(|&id| book.block(id).1.code.len()).sum();
    let name = called(block);
    let blocks = match blocks.len() {
        1 => String::new(),
        count => format!(" in {count} blocks"),
    };
    let what = format!("{name} has {lines} lines{blocks}, and {MOST_LINES} is the most: divide it");
    (lines > MOST_LINES).then(|| Finding::error(&chapter.path, (block.fence_line, 1), what))
}

/// An open block that shows many lines, unless it is too long even for a folded one.
fn open_length(book: &Book, id: BlockId) -> Option<Finding> {
    let (chapter, block) = book.block(id);
    let lines = shown_lines(chapter, block);
    if block.folded || block.code.len() > MOST_LINES || lines <= MANY_OPEN_LINES {
        return None;
    }
    let what = format!(
        "{} shows {lines} lines: above {MANY_OPEN_LINES}, divide it or fold what a reader skips",
        called(block)
    );
    Some(Finding::warning(&chapter.path, (block.fence_line, 1), what))
}

/// How a finding names a chunk or a file.
fn called(block: &Block) -> String {
    match (block.name(), block.root()) {
        (Some(name), _) => format!("chunk <<{name}>>"),
        (_, path) => path.unwrap_or_default().to_string(),
    }
}

/// Language and name of one part of a chunk.
fn named(book: &Book, id: BlockId, name: &str) -> Option<Finding> {
    let (chapter, block) = book.block(id);
    let at = (block.fence_line, 1);
    let first = book.chunks.get(name)?.parts.first()?;
    let (home, opening) = book.block(*first);
    if *first != id {
        if opening.language == block.language {
            return None;
        }
        let what = format!(
            "chunk <<{name}>> continues in {}, but is {} at {}:{}",
            block.language, opening.language, home.path, opening.fence_line
        );
        return Some(Finding::error(&chapter.path, at, what));
    }
    let words: Vec<&str> = name.split_whitespace().collect();
    let empty = words.iter().find(|word| EMPTY_WORDS.contains(&word.to_lowercase().as_str()));
    let what = match (words.len(), empty) {
        (_, Some(word)) => format!("\"{word}\" in the chunk's name <<{name}>> describes no code"),
        (3..=9, None) => return None,
        (count, None) => format!("chunk <<{name}>> has {count} words in its name, not 3 to 9"),
    };
    Some(Finding::warning(&chapter.path, at, what))
}

/// Chunks that no file reaches.
fn unused(book: &Book) -> Vec<Finding> {
    let mut reached: BTreeSet<&str> = BTreeSet::new();
    let mut blocks: Vec<BlockId> = book.roots.values().flatten().copied().collect();
    while let Some(id) = blocks.pop() {
        let (chapter, block) = book.block(id);
        for line in block.code.clone() {
            if let Some(reference) = block.reference(chapter.text.line(line))
                && let Some((name, chunk)) = book.chunks.get_key_value(reference.name)
                && reached.insert(name)
            {
                blocks.extend(&chunk.parts);
            }
        }
    }
    let unused = book.chunks.iter().filter(|(name, _)| !reached.contains(name.as_str()));
    unused
        .filter_map(|(name, chunk)| {
            let what = if chunk.uses.is_empty() {
                format!("chunk <<{name}>> is not used")
            } else {
                format!("chunk <<{name}>> is used by no file")
            };
            chunk.parts.first().map(|&part| at_fence(book, part, what))
        })
        .collect()
}
