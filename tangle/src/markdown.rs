//! What Markdown says about a chapter: fenced blocks, headings, links, and which parts are literal.
//!
//! The parser is mdbook's own, so that the tool and the rendered book agree on what a block is.

use std::collections::HashMap;
use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::block::{Block, BlockKind, has_brackets};
use crate::finding::Finding;
use crate::text::Text;

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
    /// What it shows; of an image, the alternative text.
    pub text: String,
    /// Where it starts.
    pub position: (usize, usize),
}

/// What one pass over a chapter gives.
#[derive(Debug, Default)]
pub struct Scan {
    pub blocks: Vec<Block>,
    pub headings: Vec<Heading>,
    pub links: Vec<Link>,
    pub anchors: Vec<String>,
    /// Byte ranges of code, in which `$` is no mathematics.
    pub literal: Vec<Range<usize>>,
    /// Byte ranges of text outside of headings, code, links, images and HTML.
    pub prose: Vec<Range<usize>>,
    pub findings: Vec<Finding>,
}

/// The extensions that mdbook turns on.
fn options() -> Options {
    Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_HEADING_ATTRIBUTES
}

/// Scans a chapter; `path` is for the findings.
pub fn scan(text: &Text, path: &str) -> Scan {
    let mut scan = Scan::default();
    let mut ids: HashMap<String, usize> = HashMap::new();
    let mut heading: Option<(Heading, bool)> = None;
    let mut open: Vec<usize> = Vec::new();
    let mut in_block = false; // of code
    for (event, range) in Parser::new_ext(text.as_str(), options()).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                if let CodeBlockKind::Fenced(_) = kind {
                    scan.fenced(text, path, &range);
                }
                scan.literal.push(range);
                in_block = true;
            }
            Event::End(TagEnd::CodeBlock) => in_block = false,
            Event::Start(Tag::Heading { level, id, .. }) => {
                let line = text.line_at(range.start);
                let given = id.is_some();
                let id = id.map(|id| id.to_string()).unwrap_or_default();
                heading =
                    Some((Heading { title: String::new(), level: level as u8, id, line }, given));
            }
            Event::End(TagEnd::Heading(_)) => {
                if let Some((mut heading, given)) = heading.take() {
                    if !given {
                        heading.id = unique_id(&heading.title, &mut ids);
                    }
                    scan.headings.push(heading);
                }
            }
            Event::Start(Tag::Link { dest_url, .. }) => {
                open.push(scan.links.len());
                scan.link(text, &dest_url, false, range.start);
            }
            Event::Start(Tag::Image { dest_url, .. }) => {
                open.push(scan.links.len());
                scan.link(text, &dest_url, true, range.start);
            }
            Event::End(TagEnd::Link | TagEnd::Image) => {
                open.pop();
            }
            Event::Html(html) | Event::InlineHtml(html) => {
                scan.anchors.extend(anchors(&html));
                scan.images(text, &html, range.start);
            }
            Event::Code(code) => {
                scan.literal.push(range);
                if let Some((heading, _)) = &mut heading {
                    heading.title.push_str(&code);
                }
                open.iter().for_each(|&link| scan.links[link].text.push_str(&code));
            }
            Event::Text(words) => {
                if heading.is_none() && open.is_empty() && !in_block {
                    scan.prose.push(range);
                }
                if let Some((heading, _)) = &mut heading {
                    heading.title.push_str(&words);
                }
                open.iter().for_each(|&link| scan.links[link].text.push_str(&words));
            }
            Event::SoftBreak | Event::HardBreak => {
                open.iter().for_each(|&link| scan.links[link].text.push(' '));
            }
            _ => {}
        }
    }
    scan.literal.sort_by_key(|range| range.start);
    scan
}

impl Scan {
    fn link(&mut self, text: &Text, target: &str, image: bool, start: usize) {
        let position = text.position(start);
        let target = target.to_string();
        self.links.push(Link { target, image, text: String::new(), position });
    }

    /// Notes the images in a piece of HTML.
    fn images(&mut self, text: &Text, html: &str, start: usize) {
        for (at, _) in html.match_indices("<img") {
            let tag = html[at..].split('>').next().unwrap_or("");
            let value = |mark| Some(tag.split_once(mark)?.1.split_once('"')?.0);
            self.link(text, value(" src=\"").unwrap_or(""), true, start + at);
            if let Some(link) = self.links.last_mut() {
                link.text = value(" alt=\"").unwrap_or("").to_string();
            }
        }
    }

    /// Reads the fenced block in `range`.
    fn fenced(&mut self, text: &Text, path: &str, range: &Range<usize>) {
        let fence_line = text.line_at(range.start);
        let (_, column) = text.position(range.start);
        let opening = &text.as_str()[range.start..text.start_of(fence_line + 1)];
        let mark = opening.chars().next().unwrap_or('`');
        let width = opening.chars().take_while(|&c| c == mark).count();
        let info = opening.trim_start_matches(mark).trim();
        let (language, kind, folded) = match read_info(info) {
            Ok(read) => read,
            Err(what) => {
                self.findings.push(Finding::error(path, (fence_line, column), what));
                (String::new(), BlockKind::Plain, false)
            }
        };
        let last = text.line_at(range.end.saturating_sub(1).max(range.start));
        let closed = last > fence_line && closes(text.line(last), mark, width);
        let end = if closed { last } else { last + 1 };
        if !closed {
            let what = "this block is not closed: it runs to the end of the chapter";
            self.findings.push(Finding::error(path, (fence_line, column), what));
        }
        if kind != BlockKind::Plain && (column != 1 || mark != '`') {
            let what = "a chunk opens at the left margin, with backticks";
            self.findings.push(Finding::error(path, (fence_line, column), what));
        }
        let sound = closed && column == 1 && mark == '`';
        let kind = if sound { kind } else { BlockKind::Plain };
        let fence = mark.to_string().repeat(width);
        let code = fence_line + 1..end.max(fence_line + 1);
        self.blocks.push(Block { language, kind, part: 0, fence_line, code, fence, folded });
    }
}

/// Whether a line closes a fence of `width` times `mark`.
pub(crate) fn closes(line: &str, mark: char, width: usize) -> bool {
    let stripped = line.trim_start_matches([' ', '>']);
    let rest = stripped.trim_start_matches(mark);
    stripped.len() - rest.len() >= width && rest.trim().is_empty()
}

/// Reads an info string: language, then `#name of the chunk` or `file=path`, then perhaps `fold`.
fn read_info(info: &str) -> Result<(String, BlockKind, bool), String> {
    let (first, rest) = match info.split_once([' ', '\t']) {
        Some((first, rest)) => (first, rest.trim()),
        None => (info, ""),
    };
    let language = first.split(',').next().unwrap_or("").to_string();
    if first.starts_with('#') || first.starts_with("file=") {
        return Err(format!("a chunk names its language first: ```rust {info}"));
    }
    let (rest, folded) = match rest.strip_suffix("fold") {
        Some(before) if before.ends_with([' ', '\t']) && before.trim() != "#" => {
            (before.trim_end(), true)
        }
        _ => (rest, false),
    };
    let kind = if let Some(name) = rest.strip_prefix('#') {
        let name = name.trim();
        if name.is_empty() {
            return Err("a chunk without a name".to_string());
        }
        if has_brackets(name) {
            return Err(format!("a chunk's name holds no angle brackets: {name}"));
        }
        BlockKind::Named(name.to_string())
    } else if let Some(file) = rest.strip_prefix("file=") {
        BlockKind::Root(file.trim().to_string())
    } else {
        BlockKind::Plain
    };
    let folded = folded && kind != BlockKind::Plain;
    Ok((language, kind, folded))
}

/// The anchor that mdbook gives a heading; repeated ones are numbered.
fn unique_id(title: &str, seen: &mut HashMap<String, usize>) -> String {
    let id: String = title
        .trim()
        .chars()
        .filter_map(|c| {
            if c.is_alphanumeric() || c == '_' || c == '-' {
                Some(c.to_ascii_lowercase())
            } else {
                c.is_whitespace().then_some('-')
            }
        })
        .collect();
    let count = seen.entry(id.clone()).or_insert(0);
    let unique = if *count == 0 { id } else { format!("{id}-{count}") };
    *count += 1;
    unique
}

/// The values of `id="…"` and `name="…"` in a piece of HTML.
fn anchors(html: &str) -> Vec<String> {
    [" id=\"", " name=\""]
        .iter()
        .flat_map(|mark| html.split(mark).skip(1))
        .filter_map(|rest| rest.split_once('"').map(|(id, _)| id.to_string()))
        .collect()
}
