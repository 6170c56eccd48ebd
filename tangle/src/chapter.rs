//! One chapter: its fenced blocks, headings, links and equations, each with its place.

use crate::block::Block;
use crate::finding::Finding;
use crate::markdown::{self, Heading, Link};
use crate::math::{self, Math};
use crate::text::Text;

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
