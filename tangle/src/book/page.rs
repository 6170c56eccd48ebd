//! A chapter as the Markdown that mdbook-katex and mdbook get: figures are already HTML, formulas have their numbers, and comments stand for
//! the chunks.

use std::collections::BTreeMap;
use std::ops::Range;

use super::anchors::{self, RowAnchors, escape};
use super::chunks::highlighter;
use super::marks::{chunk_placeholder, elsewhere_placeholder, formula, hide, live_placeholder};
use super::math::{Source, sole_reference};
use super::references::Replaced;
use crate::block::Block;
use crate::chapter::Chapter;
use crate::live::{Live, directives};
use crate::pages::page_of;
use crate::text::slug;
use crate::volume::Book;

/// What replaces a part of a chapter.
enum Piece {
    Formula(usize),
    Chunk(usize),
    /// The info string of an illustration.
    Language(usize),
    /// An image that is a paragraph of its own: caption, target, number, and the name of the live figure in its place.
    Figure(Range<usize>, String, String, Option<String>),
    /// A line that is left out.
    Nothing,
    /// An explicit anchor at the end of a heading.
    Anchor(String),
    /// The anchor of a row of a table, in its first cell.
    Row(String),
    /// The map of the chapter's part.
    Map,
    /// A citation or a term, and the HTML in its place.
    Written(String),
}

/// Writes the Markdown of chapters.
pub struct PageWriter<'a> {
    /// The book.
    pub book: &'a Book,
    /// The maps of the parts, by the chapters that ask for them.
    pub maps: &'a BTreeMap<usize, String>,
    /// The anchors of rows of tables.
    pub rows: &'a RowAnchors,
    /// The citations and terms of the chapters.
    pub replaced: &'a Replaced,
    /// The live figures.
    pub live: &'a Live,
}

impl PageWriter<'_> {
    /// The Markdown of the chapter with this index.
    pub fn markdown(&self, index: usize) -> String {
        let chapter = &self.book.chapters[index];
        let mut pieces = pieces(chapter);
        let rows = self.rows.of_chapter(index);
        pieces.extend(rows.map(|row| (row.start..row.start, Piece::Row(row.id.clone()))));
        let written = self.replaced.get(&index).into_iter().flatten();
        pieces.extend(written.map(|(range, html)| (range.clone(), Piece::Written(html.clone()))));
        pieces.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
        let text = self.write(index, 0..chapter.text.as_str().len(), &pieces);
        format!("{}\n\n{text}", elsewhere_placeholder(index))
    }

    /// A part of a chapter as another page beside it shows it: references lead to the chapter.
    pub fn excerpt(&self, index: usize, part: Range<usize>) -> String {
        let chapter = &self.book.chapters[index];
        let formulas = chapter.math.iter().enumerate();
        let formulas = formulas.map(|(at, math)| (math.whole(), Piece::Formula(at)));
        let pieces: Vec<_> = formulas.filter(|(range, _)| range.start >= part.start).collect();
        let file = &chapter.file;
        let page = page_of(file);
        let text = self.write(index, part, &pieces).replace("](#", &format!("]({file}#"));
        text.replace(" href=\"#", &format!(" href=\"{page}#"))
    }

    /// A part of a chapter with its pieces replaced.
    fn write(&self, index: usize, part: Range<usize>, pieces: &[(Range<usize>, Piece)]) -> String {
        let chapter = &self.book.chapters[index];
        let source = chapter.text.as_str();
        let mut result = String::new();
        let mut at = part.start;
        for (range, piece) in pieces {
            if range.start < at || range.end > part.end {
                continue;
            }
            result.push_str(&hide(source.get(at..range.start).unwrap_or("")));
            match piece {
                Piece::Formula(formula) => result.push_str(&self.formula(index, *formula)),
                Piece::Chunk(block) => {
                    let place = chunk_placeholder(index, *block);
                    result.push_str(&format!("\n\n{place}\n\n"));
                }
                Piece::Language(block) => {
                    result.push_str(&hide(highlighter(&chapter.blocks[*block].language)));
                }
                Piece::Map => {
                    result.push_str(&hide(self.maps.get(&index).map_or("", String::as_str)))
                }
                Piece::Written(html) => result.push_str(&hide(html)),
                Piece::Anchor(id) => result.push_str(&hide(&format!(" {{#{id}}}"))),
                Piece::Row(id) => result.push_str(&hide(&format!(" <span id=\"{id}\"></span>"))),
                Piece::Nothing => {}
                Piece::Figure(caption, target, number, live) => {
                    let text = self.write(index, caption.clone(), pieces);
                    let alt = plain(source.get(caption.clone()).unwrap_or(""));
                    result.push_str(&figure(
                        &hide(target),
                        number,
                        &hide(&alt),
                        &text,
                        self.live(live.as_deref()),
                    ));
                }
            }
            at = range.end;
        }
        result.push_str(&hide(source.get(at..part.end).unwrap_or("")));
        result
    }

    /// The attributes of a live figure, and the places of the results that it needs.
    fn live(&self, name: Option<&str>) -> [String; 2] {
        let Some((name, needs)) = name.and_then(|name| self.live.get_key_value(name)) else {
            return Default::default();
        };
        let places: Vec<String> = needs.results.iter().map(|file| live_placeholder(file)).collect();
        let image = if needs.image { " data-image=\"\"" } else { "" };
        [format!(" class=\"live\" data-live=\"{}\"{image}", escape(name)), places.concat()]
    }

    fn formula(&self, index: usize, number: usize) -> String {
        let chapter = &self.book.chapters[index];
        let math = &chapter.math[number];
        if let Some(mark) = sole_reference(chapter, math) {
            let link = anchors::equation_link(self.book, chapter, &mark.name);
            return link.unwrap_or_else(|| "(?)".to_string());
        }
        let tex = Source::new(self.book, chapter, math).tex;
        let formula = formula(index, number, &tex, math.display);
        if !math.display {
            return format!("<span class=\"math\">{formula}</span>");
        }
        let id = math.labels.first().map_or(String::new(), |label| {
            format!(" id=\"{}\"", anchors::equation_anchor(&label.name))
        });
        let indentation = indentation(chapter, math.position.0);
        format!("\n\n{indentation}<div class=\"equation\"{id}>{formula}</div>\n\n{indentation}")
    }
}

/// The blanks at the start of a line, so that what is in a list stays there.
fn indentation(chapter: &Chapter, line: usize) -> String {
    chapter.text.line(line).chars().take_while(|&c| c == ' ').collect()
}

fn pieces(chapter: &Chapter) -> Vec<(Range<usize>, Piece)> {
    let text = &chapter.text;
    let mut pieces = Vec::new();
    for (index, block) in chapter.blocks.iter().enumerate() {
        if block.is_chunk() {
            let range = text.start_of(block.fence_line)..text.start_of(block.closing_line() + 1);
            pieces.push((range, Piece::Chunk(index)));
        } else if let Some(range) = language_range(chapter, block) {
            pieces.push((range, Piece::Language(index)));
        }
    }
    for (index, math) in chapter.math.iter().enumerate() {
        pieces.push((math.whole(), Piece::Formula(index)));
    }
    for heading in &chapter.headings {
        let line = text.line(heading.line);
        let has_math = chapter.math.iter().any(|math| math.lines.contains(&heading.line));
        if has_math && line.starts_with('#') && !line.trim_end().ends_with('}') {
            let end = text.start_of(heading.line) + line.trim_end().len();
            pieces.push((end..end, Piece::Anchor(heading.id.clone())));
        }
    }
    if let Some(line) = chapter.map_line() {
        pieces.push((text.start_of(line)..text.start_of(line + 1), Piece::Map));
    }
    let live = directives(chapter);
    for found in &live {
        pieces.push((text.start_of(found.line)..text.start_of(found.line + 1), Piece::Nothing));
    }
    let mut count = 0;
    for link in chapter.links.iter().filter(|link| link.image && link.position.1 == 1) {
        if let Some((range, caption)) = lone_image(chapter, link.position.0) {
            count += 1;
            let number = chapter.equation_number(count);
            let live = live.iter().find(|live| live.figure == Some(link.position.0));
            let live = live.map(|live| live.name.clone());
            pieces.push((range, Piece::Figure(caption, link.target.clone(), number, live)));
        }
    }
    pieces
}

/// Where an illustration names its language.
fn language_range(chapter: &Chapter, block: &Block) -> Option<Range<usize>> {
    if block.language.is_empty() || block.fence.is_empty() {
        return None;
    }
    let line = chapter.text.line(block.fence_line);
    let fence = line.find(&block.fence)? + block.fence.len();
    let start = fence + line[fence..].find(&block.language)?;
    let offset = chapter.text.start_of(block.fence_line) + start;
    Some(offset..offset + block.language.len())
}

/// An image that starts a line and is a paragraph of its own: its range, and that of its caption.
fn lone_image(chapter: &Chapter, line: usize) -> Option<(Range<usize>, Range<usize>)> {
    let text = &chapter.text;
    let (source, start) = (text.as_str(), text.start_of(line));
    if !source[start..].starts_with("![") || !text.line(line.saturating_sub(1)).trim().is_empty() {
        return None;
    }
    let caption = start + 2..closing_bracket(chapter, start + 2)?;
    let target = caption.end + 1;
    if !source[target..].starts_with('(') {
        return None;
    }
    let end = target + source[target..].find(')')? + 1;
    let last = text.line_at(end - 1);
    let rest = source[end..text.start_of(last + 1)].trim();
    (rest.is_empty() && text.line(last + 1).trim().is_empty()).then_some((start..end, caption))
}

/// The bracket that closes the one before `from`, formulas and escapes left out.
fn closing_bracket(chapter: &Chapter, from: usize) -> Option<usize> {
    let bytes = chapter.text.as_str().as_bytes();
    let (mut at, mut depth) = (from, 0);
    while let Some(&byte) = bytes.get(at) {
        if let Some(math) = chapter.math.iter().find(|math| math.range.contains(&at)) {
            at = math.range.end;
            continue;
        }
        match byte {
            b'\\' => at += 1,
            b'[' => depth += 1,
            b']' if depth == 0 => return Some(at),
            b']' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    None
}

/// A caption without its markup, for those who cannot see the figure.
fn plain(caption: &str) -> String {
    let kept: String = caption.chars().filter(|c| !matches!(c, '$' | '*' | '`' | '\\')).collect();
    escape(&kept.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn figure(
    target: &str,
    number: &str,
    alt: &str,
    caption: &str,
    [attributes, results]: [String; 2],
) -> String {
    let target = escape(target);
    let name = target.rsplit('/').next().unwrap_or(&target);
    let anchor = slug(name.split('.').next().unwrap_or(name));
    format!(
        "<figure id=\"figure-{anchor}\"{attributes}>\n<a href=\"{target}\"><img src=\"{target}\" \
         alt=\"{alt}\"></a>\n<figcaption>\n\n<span class=\"figure-number\">Figure {number}</span> \
         {caption}\n\n</figcaption>\n{results}</figure>\n"
    )
}
