//! One chapter: its fenced blocks, headings, links and equations, each with its place.

use std::ops::Range;

use crate::finding::Finding;
use crate::markdown;
use crate::math::{self, Math};
use crate::text::Text;

/// What a fenced block is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockKind {
    /// An illustration: it does not go into the program.
    Plain,
    /// A whole file, ```` ```rust file=src/x.rs ````: the path as the chapter gives it.
    Root(String),
    /// A named chunk, ```` ```rust #name of the chunk ````.
    Named(String),
}

/// A fenced block of a chapter. Lines are those of the chapter, from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The first word of the info string (`rust`, `cuda`, …), empty if there is none.
    pub language: String,
    /// Illustration, file or named chunk.
    pub kind: BlockKind,
    /// For a named chunk: 0 where it is first defined, 1 for its first continuation, and so on
    /// through all chapters.
    pub part: usize,
    /// The line of the opening fence.
    pub fence_line: usize,
    /// The lines of code; empty (`n..n`) for an empty block.
    pub code: Range<usize>,
    /// The opening fence, e.g. ```` ``` ````.
    pub fence: String,
}

impl Block {
    /// The name of the chunk, if it has one.
    pub fn name(&self) -> Option<&str> {
        match &self.kind {
            BlockKind::Named(name) => Some(name),
            _ => None,
        }
    }

    /// The path of the file, if the block is a root.
    pub fn root(&self) -> Option<&str> {
        match &self.kind {
            BlockKind::Root(path) => Some(path),
            _ => None,
        }
    }

    /// Whether the block goes into the program.
    pub fn is_chunk(&self) -> bool {
        self.kind != BlockKind::Plain
    }

    /// The line of the closing fence (the line after the last one of code).
    pub fn closing_line(&self) -> usize {
        self.code.end
    }

    /// The reference on a line of this block, if it is one.
    pub fn reference<'a>(&self, line: &'a str) -> Option<Reference<'a>> {
        if self.is_chunk() { Reference::parse(line, &self.language) } else { None }
    }
}

/// A line that stands for a chunk: `    // <<name of the chunk>>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference<'a> {
    /// What stands before the comment: blanks that every line of the chunk receives.
    pub indentation: &'a str,
    /// `//` or `#`.
    pub comment: &'static str,
    /// The name of the chunk.
    pub name: &'a str,
}

impl<'a> Reference<'a> {
    /// Reads a line of a block in `language`; `None` for any other line, so that Rust's `1 << 2`
    /// and CUDA's `kernel<<<grid, block>>>()` are left alone.
    pub fn parse(line: &'a str, language: &str) -> Option<Reference<'a>> {
        let comment = comment_of_language(language);
        let stripped = line.trim_start_matches([' ', '\t']);
        let indentation = &line[..line.len() - stripped.len()];
        let name = stripped
            .strip_prefix(comment)?
            .strip_prefix(" <<")?
            .trim_end_matches([' ', '\t'])
            .strip_suffix(">>")?;
        let sound = name.trim() == name
            && !name.is_empty()
            && !name.starts_with('<')
            && !name.ends_with('>')
            && !name.contains("<<")
            && !name.contains(">>");
        sound.then_some(Reference { indentation, comment, name })
    }

    /// The comment that the reference becomes: `    // Name of the chunk`.
    pub fn tangled(&self) -> String {
        let mut letters = self.name.chars();
        let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
        format!("{}{} {first}{}", self.indentation, self.comment, letters.as_str())
    }
}

/// How a comment starts in the language of a block.
pub fn comment_of_language(language: &str) -> &'static str {
    match language {
        "toml" | "python" | "py" | "sh" | "bash" | "yaml" | "yml" | "make" | "makefile" => "#",
        _ => "//",
    }
}

/// A heading and the anchor that mdbook gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heading {
    /// Its text, without markup.
    pub title: String,
    /// 1 to 6.
    pub level: u8,
    /// The anchor.
    pub id: String,
    /// Its line.
    pub line: usize,
}

/// A link or an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Where it leads, as written.
    pub target: String,
    /// Whether it is an image.
    pub image: bool,
    /// Where it starts.
    pub position: (usize, usize),
}

/// A chapter of the book.
#[derive(Debug, Clone)]
pub struct Chapter {
    /// Its title in the table of contents.
    pub title: String,
    /// Its file, relative to `book/src`.
    pub file: String,
    /// Its file, relative to the repository: `book/src/x.md`.
    pub path: String,
    /// `"3"` or `"3.1"`; `None` for chapters without a number.
    pub number: Option<String>,
    /// Its text.
    pub text: Text,
    /// All fenced blocks, in order.
    pub blocks: Vec<Block>,
    /// All headings, in order.
    pub headings: Vec<Heading>,
    /// All links and images, in order.
    pub links: Vec<Link>,
    /// All mathematics, in order.
    pub math: Vec<Math>,
    /// Explicit anchors: `id="x"` or `name="x"` in raw HTML.
    pub anchors: Vec<String>,
    /// What is malformed in the chapter by itself.
    pub findings: Vec<Finding>,
}

impl Chapter {
    /// Reads a chapter. `file` is relative to `book/src`.
    pub fn parse(title: &str, file: &str, number: Option<String>, source: String) -> Chapter {
        let text = Text::new(source);
        let path = format!("book/src/{file}");
        let scan = markdown::scan(&text, &path);
        let (math, odd) = math::scan(&text, &scan.literal);
        let mut findings = scan.findings;
        findings.extend(odd.into_iter().map(|(at, what)| Finding::error(&path, at, what)));
        Chapter {
            title: title.to_string(),
            file: file.to_string(),
            path,
            number,
            text,
            blocks: scan.blocks,
            headings: scan.headings,
            links: scan.links,
            math,
            anchors: scan.anchors,
            findings,
        }
    }

    /// The block that holds the given line of the chapter, its fences included.
    pub fn block_at(&self, line: usize) -> Option<usize> {
        self.blocks.iter().position(|b| (b.fence_line..=b.closing_line()).contains(&line))
    }

    /// The number of an equation of this chapter from its ordinal (from 1): `"3.2"`, or `"2"` in
    /// a chapter without a number.
    pub fn equation_number(&self, ordinal: usize) -> String {
        match &self.number {
            Some(number) => format!("{number}.{ordinal}"),
            None => ordinal.to_string(),
        }
    }
}
