//! From a line of the program to the line of the book, and back.

use std::fs;

use crate::diff::{self, Hunk};
use crate::error::{Error, Result};
use crate::expand::{File, Tangled};
use crate::volume::{BlockId, Book};

/// A place in a file: path relative to the repository, line from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub path: String,
    /// The line.
    pub line: usize,
}

impl Place {
    /// Reads `src/x.rs:120` or `src/x.rs:120:5`.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] for anything else.
    pub fn parse(text: &str) -> Result<Place> {
        let mut parts = text.split(':');
        let path = parts.next().unwrap_or("").trim_start_matches("./");
        let line = parts.next().and_then(|line| line.parse().ok()).filter(|&line| line > 0);
        let column = parts.next().is_none_or(|column| column.parse::<usize>().is_ok());
        match line {
            Some(line) if column && parts.next().is_none() && !path.is_empty() => {
                Ok(Place { path: path.to_string(), line })
            }
            _ => Err(Error::Usage(format!("{text} is no place: write src/x.rs:120"))),
        }
    }
}

/// A tangled file as it is on disc, with the way back to its chapters.
pub struct Mapped<'a> {
    book: &'a Book,
    file: &'a File,
    hunks: Vec<Hunk>,
}

impl<'a> Mapped<'a> {
    /// Reads the file from the repository, since it may have been edited or not yet tangled.
    pub fn new(book: &'a Book, file: &'a File) -> Mapped<'a> {
        let pristine = file.content();
        let disc = fs::read_to_string(book.root.join(&file.path));
        let disc = disc.unwrap_or_else(|_| pristine.clone());
        let hunks = diff::hunks(&diff::lines(&pristine), &diff::lines(&disc));
        Mapped { book, file, hunks }
    }

    /// The chapter and line of a line of the file, its block, and how many columns of indentation
    /// the chapter does not show.
    pub fn origin(&self, line: usize) -> Option<(Place, BlockId, usize)> {
        let index = diff::back(&self.hunks, line.checked_sub(1)?);
        let line = self.file.lines.get(index)?;
        let path = self.book.block(line.block).0.path.clone();
        Some((Place { path, line: line.line }, line.block, line.indentation.chars().count()))
    }
}

/// Answers for a line of a tangled file or of a chapter, one line of text for each place.
///
/// # Errors
///
/// [`Error::Usage`] if the file is none of ours, or has no such line.
pub fn locate(book: &Book, tangled: &Tangled, place: &Place) -> Result<Vec<String>> {
    if let Some(file) = tangled.files.get(&place.path) {
        let (origin, id, _) = Mapped::new(book, file)
            .origin(place.line)
            .ok_or_else(|| Error::Usage(format!("{} has no line {}", place.path, place.line)))?;
        return Ok(vec![format!("{}:{}  {}", origin.path, origin.line, described(book, id))]);
    }
    if let Some(index) = book.chapter_at(&place.path) {
        return in_chapter(book, tangled, index, place.line);
    }
    Err(Error::Usage(format!("{} is neither a tangled file nor a chapter", place.path)))
}

fn in_chapter(book: &Book, tangled: &Tangled, chapter: usize, line: usize) -> Result<Vec<String>> {
    let source = &book.chapters[chapter];
    if line > source.text.line_count() {
        return Err(Error::Usage(format!("{} has no line {line}", source.path)));
    }
    let mut found = Vec::new();
    for file in tangled.files.values() {
        for (index, tangled) in file.lines.iter().enumerate() {
            if tangled.block.chapter == chapter && tangled.line == line {
                let what = described(book, tangled.block);
                found.push(format!("{}:{}  {what}", file.path, index + 1));
            }
        }
    }
    if found.is_empty() {
        let block = source.block_at(line).map(|block| BlockId { chapter, block });
        let what = match block.filter(|&id| book.block(id).1.is_chunk()) {
            Some(id) => format!("the fence of {}", described(book, id)),
            None => "prose, in no chunk".to_string(),
        };
        found.push(format!("{}:{line}  {what}", source.path));
    }
    Ok(found)
}

/// What a block is, in words.
fn described(book: &Book, id: BlockId) -> String {
    let (_, block) = book.block(id);
    let what = match (block.name(), block.root()) {
        (Some(name), _) if block.part > 0 => format!("<<{name}>>, part {}", block.part + 1),
        (Some(name), _) => format!("<<{name}>>"),
        (_, Some(path)) => format!("the root of {path}"),
        _ => "an illustration".to_string(),
    };
    if block.folded { what + ", folded" } else { what }
}
