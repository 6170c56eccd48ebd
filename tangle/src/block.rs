//! Fenced blocks, and the lines in them that stand for chunks.

use std::ops::Range;

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
    /// Whether the book shows it closed: the info string of a chunk or a root ends with `fold`.
    pub folded: bool,
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
        let sound = name.trim() == name && !name.is_empty() && !has_brackets(name);
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

/// Whether a name holds angle brackets that a reference could not tell from its own.
pub(crate) fn has_brackets(name: &str) -> bool {
    name.contains("<<") || name.contains(">>") || name.starts_with('<') || name.ends_with('>')
}
