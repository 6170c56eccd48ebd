//! Chunks that nothing uses, that are too long, or whose names say too little.

use std::collections::BTreeSet;

use crate::block::BlockKind;
use crate::expand::at_fence;
use crate::finding::Finding;
use crate::volume::{BlockId, Book};

/// Past this many lines, those of all its blocks together, a chunk is refused.
pub const MOST_LINES: usize = 60;

/// Past this many lines a chunk wants splitting.
pub const MANY_LINES: usize = 25;

/// Names that say nothing.
const EMPTY_WORDS: [&str; 5] = ["helper", "helpers", "header", "headers", "misc"];

pub fn check(book: &Book) -> Vec<Finding> {
    let mut findings = unused(book);
    for id in book.blocks() {
        let (_, block) = book.block(id);
        match &block.kind {
            BlockKind::Plain => {}
            BlockKind::Root(_) => findings.extend(length(book, &[id])),
            BlockKind::Named(name) => {
                findings.extend(named(book, id, name));
                if let (0, Some(chunk)) = (block.part, book.chunks.get(name)) {
                    findings.extend(length(book, &chunk.parts));
                }
            }
        }
    }
    findings
}

/// A chunk of these blocks that is too long. A reference counts as one line. Folded blocks count
/// like others: what is folded is to be read as well.
fn length(book: &Book, blocks: &[BlockId]) -> Option<Finding> {
    let (chapter, block) = book.block(*blocks.first()?);
    let lines: usize = blocks.iter().map(|&id| book.block(id).1.code.len()).sum();
    let name = match (block.name(), block.root()) {
        (Some(name), _) => format!("chunk <<{name}>>"),
        (_, path) => path.unwrap_or_default().to_string(),
    };
    let blocks = match blocks.len() {
        1 => String::new(),
        count => format!(" in {count} blocks"),
    };
    let (path, at) = (&chapter.path, (block.fence_line, 1));
    if lines > MOST_LINES {
        let what = format!("{name} has {lines} lines{blocks}: {MOST_LINES} is the most");
        Some(Finding::error(path, at, what))
    } else if lines > MANY_LINES {
        let what =
            format!("{name} has {lines} lines{blocks}: past {MANY_LINES} it wants splitting");
        Some(Finding::warning(path, at, what))
    } else {
        None
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
        (_, Some(word)) => format!("\"{word}\" in the chunk's name <<{name}>> says nothing"),
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
