//! One chapter: its fenced blocks, headings, links, equations and citations, each with its place.

use std::ops::Range;

use crate::bibliography::{self, Citation};
use crate::block::Block;
use crate::finding::Finding;
use crate::markdown::{self, Heading, Link};
use crate::math::{self, Math};
use crate::notebook::Notebook;
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
    /// The part of the book that it belongs to.
    pub part: Option<String>,
    /// Its text; where it shows a notebook, with the cells of the notebook.
    pub text: Text,
    /// The notebook that it shows.
    pub notebook: Option<Notebook>,
    /// All fenced blocks, in order.
    pub blocks: Vec<Block>,
    /// All headings, in order.
    pub headings: Vec<Heading>,
    /// All links and images, in order.
    pub links: Vec<Link>,
    /// All mathematics, in order.
    pub math: Vec<Math>,
    /// All citations of works, in order.
    pub citations: Vec<Citation>,
    /// Explicit anchors: `id="x"` or `name="x"` in raw HTML.
    pub anchors: Vec<String>,
    /// The bytes that are code.
    pub literal: Vec<Range<usize>>,
    /// The bytes that are text: not headings, code, links, images or HTML.
    pub prose: Vec<Range<usize>>,
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
        let (citations, malformed) = bibliography::scan(&text, &scan.literal, &math);
        let mut findings = scan.findings;
        findings.extend(malformed.into_iter().map(|(at, what)| Finding::error(&path, at, what)));
        findings.extend(odd.into_iter().map(|(at, what)| Finding::error(&path, at, what)));
        Chapter {
            title: title.to_string(),
            file: file.to_string(),
            path,
            number,
            part: None,
            text,
            notebook: None,
            blocks: scan.blocks,
            headings: scan.headings,
            links: scan.links,
            math,
            citations,
            anchors: scan.anchors,
            literal: scan.literal,
            prose: scan.prose,
            findings,
        }
    }

    /// Adds a finding at a place of the chapter's file.
    pub(crate) fn report(&mut self, place: (usize, usize), what: String) {
        let finding = Finding::error(&self.path, place, what);
        self.findings.push(Finding { located: true, ..finding });
    }

    /// The block that holds the given line of the chapter, its fences included.
    pub fn block_at(&self, line: usize) -> Option<usize> {
        self.blocks.iter().position(|b| (b.fence_line..=b.closing_line()).contains(&line))
    }

    /// The line that asks for the map of the chapter's part: `{{#part-map}}` and nothing else.
    pub fn map_line(&self) -> Option<usize> {
        let asks = |&line: &usize| self.text.line(line).trim_end() == "{{#part-map}}";
        let literal = |line: usize| {
            let start = self.text.start_of(line);
            self.literal.iter().any(|range| range.contains(&start))
        };
        (1..=self.text.line_count()).find(|line| asks(line) && !literal(*line))
    }

    /// Whether it belongs to an appendix, that is to a part whose title begins with "Appendix".
    pub fn in_appendix(&self) -> bool {
        self.part.as_deref().is_some_and(|part| part.starts_with("Appendix"))
    }

    /// The number of the chapter that this one is nested in, or its own: `"3"` for `"3.1"`.
    pub fn top_number(&self) -> Option<&str> {
        self.number.as_deref()?.split('.').next()
    }

    /// The number of an equation of this chapter from its ordinal (from 1): `"3.2"`, `"3.1.2"` in
    /// a nested chapter, or `"2"` in one without a number.
    pub fn equation_number(&self, ordinal: usize) -> String {
        match &self.number {
            Some(number) => format!("{number}.{ordinal}"),
            None => ordinal.to_string(),
        }
    }
}
