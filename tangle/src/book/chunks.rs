//! A chunk on the page: its name above the code, links around and inside it.

use std::collections::HashMap;

use super::anchors::{self, ChunkAnchors, Places, chunk_name, escape};
use super::elsewhere;
use crate::block::{BlockKind, Reference};
use crate::chapter::Chapter;
use crate::docs;
use crate::volume::{BlockId, Book};

/// The name that highlight.js knows a language by. `rust` goes by its other name, `rs`, because
/// mdbook drops lines of Rust blocks that start with `# `.
pub fn highlighter(language: &str) -> &str {
    match language {
        "rust" => "rs",
        "cuda" => "cpp",
        "console" => "shell",
        "" => "plaintext",
        other => other,
    }
}

/// The button at the end of the first sentence of a long comment. Its sign is in the style sheet, so that
/// nobody copies it.
const MORE: &str = "<button type=\"button\" class=\"comment-more\" aria-expanded=\"false\" \
                    aria-label=\"the rest of this comment\"></button>";
/// What the rest of the comment stands between. The search of the browser opens it.
const REST_START: &str = "<span class=\"comment-rest\" hidden=\"until-found\">";
const REST_END: &str = "</span>";

/// The HTML of all chunks of a book, by the indices of their chapters and blocks.
///
/// It goes into the finished pages, past mdbook: mdbook would parse the code, which takes longer than all the rest, and put it into the search index,
/// which would be seven times as large.
#[derive(Debug, Clone, Default)]
pub struct Chunks {
    here: HashMap<(usize, usize), String>,
    elsewhere: HashMap<usize, String>,
}

impl Chunks {
    /// Writes all chunks of a book.
    pub fn new(book: &Book, anchors: &ChunkAnchors, places: &Places) -> Self {
        let writer = ChunkWriter { book, anchors, places };
        let chunks = book.blocks().filter(|&id| book.block(id).1.is_chunk());
        let here = chunks.map(|id| ((id.chapter, id.block), writer.html(id))).collect();
        let chapters = 0..book.chapters.len();
        let elsewhere = chapters.map(|chapter| (chapter, writer.templates(chapter))).collect();
        Self { here, elsewhere }
    }

    /// The HTML of a chunk.
    pub fn html(&self, key: (usize, usize)) -> Option<&str> {
        self.here.get(&key).map(String::as_str)
    }

    /// The code of other chapters that the chunks of this one refer to, as templates.
    pub fn elsewhere(&self, chapter: usize) -> &str {
        self.elsewhere.get(&chapter).map_or("", String::as_str)
    }
}

/// Writes chunks as HTML.
pub struct ChunkWriter<'a> {
    /// The book.
    pub book: &'a Book,
    /// Where its chunks are.
    pub anchors: &'a ChunkAnchors,
    /// Where they are in the program.
    pub places: &'a Places,
}

impl ChunkWriter<'_> {
    /// A chunk: name, code, and where else to look; of a folded one only the name, until it is opened.
    pub fn html(&self, id: BlockId) -> String {
        let (chapter, block) = self.book.block(id);
        let (left, right) = self.caption(id);
        let notes = self.notes(id);
        let class = if block.root().is_some() { "chunk root" } else { "chunk" };
        let anchor = self.anchors.of(id);
        let inside = format!(
            "<pre>{}</pre>\n\n<div class=\"chunk-notes\">{notes}</div>",
            self.code(chapter, id)
        );
        let links = format!("<span class=\"chunk-links\">{right}</span>");
        if block.folded {
            let place = self.places.of(id);
            return format!(
                "\n\n<details class=\"{class} folded\" id=\"{anchor}\"><summary class=\"chunk-name\">\
                 <span>{left}</span>{links}<span class=\"fold-place\">folded: {place}</span>\
                 </summary>\n\n{inside}</details>\n\n"
            );
        }
        format!(
            "\n\n<div class=\"{class}\" id=\"{anchor}\"><div class=\"chunk-name\"><span>{left}</span>\
             {links}</div>\n\n{inside}</div>\n\n"
        )
    }

    /// What the page of a chapter refers to and does not show itself: one template for each chunk, named by its anchor.
    fn templates(&self, chapter: usize) -> String {
        let from = &self.book.chapters[chapter];
        let mut templates = String::new();
        for id in elsewhere::reached(self.book, chapter) {
            let (anchor, code) = (self.anchors.of(id), self.code(from, id));
            templates.push_str(&format!("<template data-chunk=\"{anchor}\">{code}</template>\n"));
        }
        templates
    }

    fn caption(&self, id: BlockId) -> (String, String) {
        let (_, block) = self.book.block(id);
        let name = match &block.kind {
            BlockKind::Named(name) => name,
            BlockKind::Root(_) => return (format!("⟨{}⟩ ≡", chunk_name(block)), String::new()),
            BlockKind::Plain => return Default::default(),
        };
        let parts = self.book.chunks.get(name).map_or(&[][..], |chunk| &chunk.parts);
        let first = parts.first().copied().unwrap_or(id);
        let sign = if block.part == 0 { "≡" } else { "+≡" };
        // A click on the name of a folded chunk opens it.
        let name = match block.folded {
            true => escape(name),
            false => self.link(id, first, &escape(name)),
        };
        let left = format!("⟨{name}⟩ {sign}");
        let mut right = Vec::new();
        if let Some(&before) = block.part.checked_sub(1).and_then(|part| parts.get(part)) {
            right
                .push(format!("continued from {}", self.link(id, before, &self.place(id, before))));
        }
        if let Some(&after) = parts.get(block.part + 1) {
            right.push(format!("continued {}", self.link(id, after, &self.place(id, after))));
        }
        (left, right.join(", "))
    }

    /// Which chunks use this one, and where those that it uses are defined if not in this chapter.
    fn notes(&self, id: BlockId) -> String {
        let (chapter, block) = self.book.block(id);
        let mut notes = Vec::new();
        if let Some(chunk) = block.name().and_then(|name| self.book.chunks.get(name)) {
            let mut users: Vec<BlockId> = chunk.uses.iter().map(|place| place.block).collect();
            users.dedup();
            let users: Vec<String> = users.iter().map(|&user| self.mention(id, user)).collect();
            if block.part == 0 && !users.is_empty() {
                notes.push(format!("Used in {}", users.join(", ")));
            }
        }
        let mut elsewhere = Vec::new();
        for line in block.code.clone() {
            let Some(reference) = block.reference(chapter.text.line(line)) else { continue };
            let chunk = self.book.chunks.get(reference.name);
            let Some(&home) = chunk.and_then(|chunk| chunk.parts.first()) else { continue };
            if home.chapter != id.chapter && !elsewhere.contains(&home) {
                elsewhere.push(home);
            }
        }
        for home in elsewhere {
            let title = &self.book.chapters[home.chapter].title;
            let title = format!("<cite>{}</cite>", escape(title));
            notes.push(format!("{} is defined in {title}", self.mention(id, home)));
        }
        notes.join(". ")
    }

    fn link(&self, from: BlockId, to: BlockId, text: &str) -> String {
        let file = &self.book.chapters[from.chapter].file;
        format!("<a href=\"{}\">{text}</a>", self.anchors.link(self.book, file, to))
    }

    /// A chunk by its name in brackets, linked.
    fn mention(&self, from: BlockId, to: BlockId) -> String {
        let (_, block) = self.book.block(to);
        format!("⟨{}⟩", self.link(from, to, &chunk_name(block)))
    }

    /// Where a chunk is in words: above, below, or the chapter.
    fn place(&self, from: BlockId, to: BlockId) -> String {
        if from.chapter != to.chapter {
            let title = escape(&self.book.chapters[to.chapter].title);
            return format!("{}<cite>{title}</cite>", if to < from { "" } else { "in " });
        }
        if to < from { "above" } else { "below" }.to_string()
    }

    /// The code of a chunk for the page of the chapter `from`, which need not be its own.
    fn code(&self, from: &Chapter, id: BlockId) -> String {
        let (home, block) = self.book.block(id);
        let mut code = format!("<code class=\"language-{}\">", highlighter(&block.language));
        let hidden = docs::hidden(home, block);
        for line in block.code.clone() {
            if hidden.iter().any(|lines| lines.start == line) {
                code.push_str(REST_START);
            }
            let text = home.text.line(line);
            match block.reference(text) {
                Some(reference) => code.push_str(&self.reference(from, &reference)),
                // mdbook does not see this text: quotes and braces need no code.
                None => {
                    let line = self.cite_equations(from, text);
                    code.push_str(&line.replace("&quot;", "\"").replace("&#123;", "{"));
                }
            }
            if hidden.iter().any(|lines| lines.start == line + 1) {
                code.push_str(MORE);
            }
            code.push('\n');
            if hidden.iter().any(|lines| lines.end == line + 1) {
                code.push_str(REST_END);
            }
        }
        code + "</code>"
    }

    /// A reference: still a comment for the highlighter, a name in brackets for the reader. A chunk in several parts is named by the anchors of all.
    fn reference(&self, from: &Chapter, reference: &Reference<'_>) -> String {
        let name = format!("⟨{}⟩", escape(reference.name));
        let chunk = self.book.chunks.get(reference.name);
        let parts = chunk.map_or(&[][..], |chunk| &chunk.parts);
        let all = match parts.len() {
            0 | 1 => String::new(),
            _ => {
                let all: Vec<_> = parts.iter().map(|&part| self.anchors.of(part)).collect();
                format!(" data-parts=\"{}\"", all.join(" "))
            }
        };
        let inside = match parts.first() {
            Some(&home) => format!(
                "<a class=\"chunk-reference\"{all} href=\"{}\" title=\"defined in {}\">{name}</a>",
                self.anchors.link(self.book, &from.file, home),
                escape(&self.book.chapters[home.chapter].title)
            ),
            None => name,
        };
        let comment = reference.comment;
        format!("{}<span class=\"slashes\">{comment} </span>{inside}", reference.indentation)
    }

    /// A line of code; `[eq:name]` in it is shown as the equation's number, linked.
    fn cite_equations(&self, chapter: &Chapter, line: &str) -> String {
        let mut result = String::new();
        let mut rest = line;
        while let Some(start) = rest.find("[eq:") {
            let Some(length) = rest[start..].find(']') else { break };
            let label = &rest[start + 1..start + length];
            let (mut before, mut after) = (&rest[..start], &rest[start + length + 1..]);
            match anchors::equation_link(self.book, chapter, label) {
                Some(link) => {
                    if let Some(pair) = before.strip_suffix('`').zip(after.strip_prefix('`')) {
                        (before, after) = pair;
                    }
                    result.push_str(&(escape(before) + &link));
                }
                None => result.push_str(&escape(&rest[..=start + length])),
            }
            rest = after;
        }
        result + &escape(rest)
    }
}
