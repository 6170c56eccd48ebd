//! Notebooks of Jupyter as chapters: a line `{{#notebook python/notebooks/x.ipynb}}` is replaced by the cells of the notebook.
//!
//! Markdown cells are taken as they are, one level below the chapter's title; code cells become blocks of Python. Of their outputs
//! the book shows printed text, results as text, and pictures (SVG or PNG), which are written next to the figures; never HTML.
//! [`Notebook::origin`] says which cell a line of the chapter comes from.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;

use serde_json::Value;
use thiserror::Error;

use crate::pages::resolve;

/// What the line that asks for a notebook begins with.
const DIRECTIVE: &str = "{{#notebook ";
/// The media types that the book can show, the best first.
const PICTURES: [(&str, &str); 2] = [("image/svg+xml", "svg"), ("image/png", "png")];
const TEXT: &str = "text/plain";

/// Why a notebook, or a part of it, cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// The path leaves the repository, or is not that of a notebook.
    #[error(
        "{path} is no notebook: expected a plain path that ends in .ipynb, from the repository's root"
    )]
    Path {
        /// The path.
        path: String,
    },
    /// There is no such file, or it cannot be read.
    #[error("cannot read {path}: {why}")]
    Unread {
        /// The notebook.
        path: String,
        /// What the system said.
        why: String,
    },
    /// The file is no JSON.
    #[error("{path} is no JSON: {why}")]
    Json {
        /// The notebook.
        path: String,
        /// What is wrong, and where.
        why: String,
    },
    /// The file is of another version of the format.
    #[error(
        "{path} has nbformat = {found}: expected 4, to which jupyter nbconvert --to notebook converts it"
    )]
    Version {
        /// The notebook.
        path: String,
        /// The version.
        found: String,
    },
    /// A field of the format is missing, or of another type.
    #[error("{place}: no {field}: expected {expected}")]
    Field {
        /// The notebook and the cell.
        place: Place,
        /// The name of the field.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// A kind of cell that the format does not have.
    #[error("{place}: cell_type = {found:?}: expected \"markdown\", \"code\" or \"raw\"")]
    Cell {
        /// The notebook and the cell.
        place: Place,
        /// The type.
        found: String,
    },
    /// An output that the book cannot show.
    #[error(
        "{place}: an output of {found}: the book shows stdout, text/plain, image/svg+xml and image/png"
    )]
    Output {
        /// The notebook and the cell.
        place: Place,
        /// Its kind or its media types.
        found: String,
    },
    /// A cell that failed.
    #[error(
        "{place}: {error}: run the notebook again, or tag the cell raises-exception where the error is meant"
    )]
    Raised {
        /// The notebook and the cell.
        place: Place,
        /// The error.
        error: String,
    },
    /// A picture that is not encoded as the format demands.
    #[error("{place}: the {media} is not encoded in base64")]
    Encoding {
        /// The notebook and the cell.
        place: Place,
        /// The media type.
        media: &'static str,
    },
    /// A picture without a caption.
    #[error(
        "{place}: a picture without a caption: give the cell the metadata {{\"caption\": \"…\"}}, or begin the next Markdown cell \
         with a sentence in *italics*"
    )]
    Caption {
        /// The notebook and the cell.
        place: Place,
    },
    /// Mathematics that the book does not set.
    #[error("{place}: mathematics stands between $ and $, or between $$ and $$, also {found}")]
    Mathematics {
        /// The notebook and the cell.
        place: Place,
        /// The line.
        found: String,
    },
}

/// A cell of a notebook, and perhaps a line of its source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The notebook, relative to the repository.
    pub path: String,
    /// The cell, from 1, all kinds counted.
    pub cell: usize,
    /// The line of its source, from 1; `None` for an output.
    pub line: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, cell {}", self.path, self.cell)?;
        self.line.map_or(Ok(()), |line| write!(f, ", line {line}"))
    }
}

/// A file that the rendered book needs beside its pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Its name among the figures.
    pub name: String,
    /// Its content.
    pub content: Vec<u8>,
}

/// A notebook in a chapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notebook {
    /// Its path, relative to the repository.
    pub path: String,
    /// The line of the chapter's file that asks for it.
    pub line: usize,
    /// Its pictures, and the notebook itself.
    pub attachments: Vec<Attachment>,
    /// The lines of the chapter's text that it fills.
    lines: Range<usize>,
    /// Cell and line of each of them; `None` for lines of the book's own.
    origins: Vec<Option<(usize, Option<usize>)>>,
}

impl Notebook {
    /// The line of the chapter's file that gave a line of the chapter's text, and the place in the notebook.
    pub fn origin(&self, line: usize) -> (usize, Option<Place>) {
        if line < self.lines.start {
            return (line, None);
        }
        if line >= self.lines.end {
            return (line - self.lines.len() + 1, None);
        }
        let origin = self.origins.get(line - self.lines.start).copied().flatten();
        let place = origin.map(|(cell, line)| Place { path: self.path.clone(), cell, line });
        (self.line, place)
    }

    /// Whether the rendered book gets a file of this path, relative to `book/src`, from the notebook.
    pub fn provides(&self, path: &str) -> bool {
        let name = path.strip_prefix("figures/");
        name.is_some_and(|name| self.attachments.iter().any(|file| file.name == name))
    }
}

/// The notebook that a chapter asks for: the line, and the path as written.
pub fn asked(text: &str) -> Option<(usize, &str)> {
    let mut fenced = false;
    for (number, line) in (1..).zip(text.lines()) {
        fenced ^= line.trim_start().starts_with("```");
        if let Some(path) = line.trim_end().strip_prefix(DIRECTIVE).filter(|_| !fenced) {
            return Some((number, path.strip_suffix("}}").unwrap_or(path).trim()));
        }
    }
    None
}

/// The text of a chapter with its notebook, the notebook, and what cannot be shown of it.
pub type Inserted = (String, Notebook, Vec<Fault>);

/// The text of a chapter with its notebook in place of the line that asks for it, and what cannot be shown. `pages` are the
/// chapters that show notebooks, by the notebooks' paths.
///
/// # Errors
///
/// The [`Fault`] for which nothing of the notebook can be shown, with the line of the chapter.
pub fn insert(
    chapter: &str,
    pages: &BTreeMap<String, String>,
    read: impl Fn(&str) -> io::Result<String>,
) -> Result<Option<Inserted>, (usize, Fault)> {
    let Some((line, path)) = asked(chapter) else { return Ok(None) };
    let source = open(path, read).map_err(|fault| (line, fault))?;
    let cells = cells(path, &source).map_err(|fault| (line, fault))?;
    let title = chapter.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or("").trim();
    let mut page = Page::new(path, pages);
    page.download(source);
    page.shift = shift(&cells, title);
    for (at, cell) in cells.iter().enumerate() {
        page.cell(at + 1, cell, cells.get(at + 1), title);
    }
    let mut lines: Vec<&str> = chapter.lines().collect();
    let rest = lines.split_off(line);
    lines.pop();
    let body = page.lines.iter().map(|(text, _)| text.as_str());
    let text: Vec<&str> = lines.into_iter().chain(body).chain(rest).collect();
    let notebook = Notebook {
        path: path.to_string(),
        line,
        attachments: page.attachments,
        lines: line..line + page.lines.len(),
        origins: page.lines.iter().map(|(_, origin)| *origin).collect(),
    };
    Ok(Some((text.join("\n") + "\n", notebook, page.faults)))
}

/// The text of a notebook.
fn open(path: &str, read: impl Fn(&str) -> io::Result<String>) -> Result<String, Fault> {
    let plain = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if !plain || path.contains('\\') || !path.ends_with(".ipynb") {
        return Err(Fault::Path { path: path.to_string() });
    }
    read(path).map_err(|why| {
        let why = match why.kind() {
            io::ErrorKind::NotFound => "it does not exist".to_string(),
            io::ErrorKind::InvalidData => "it is not UTF-8".to_string(),
            _ => why.to_string(),
        };
        Fault::Unread { path: path.to_string(), why }
    })
}

/// A cell, as far as it is shown.
struct Cell {
    kind: Kind,
    source: Vec<String>,
    captions: Vec<String>,
    raises: bool,
    outputs: Vec<Value>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Markdown,
    Code,
    Raw,
}

/// The cells of a notebook of nbformat 4.
fn cells(path: &str, source: &str) -> Result<Vec<Cell>, Fault> {
    let path = path.to_string();
    let value: Value = serde_json::from_str(source)
        .map_err(|why| Fault::Json { path: path.clone(), why: why.to_string() })?;
    if value["nbformat"].as_u64() != Some(4) {
        return Err(Fault::Version { path, found: value["nbformat"].to_string() });
    }
    let place = |cell| Place { path: path.clone(), cell, line: None };
    let Some(cells) = value["cells"].as_array() else {
        return Err(Fault::Field { place: place(1), field: "cells", expected: "a list" });
    };
    cells.iter().enumerate().map(|(at, cell)| read_cell(cell, place(at + 1))).collect()
}

fn read_cell(cell: &Value, place: Place) -> Result<Cell, Fault> {
    let kind = match cell["cell_type"].as_str() {
        Some("markdown") => Kind::Markdown,
        Some("code") => Kind::Code,
        Some("raw") => Kind::Raw,
        found => return Err(Fault::Cell { place, found: found.unwrap_or("").to_string() }),
    };
    let Some(source) = text(&cell["source"]) else {
        return Err(Fault::Field { place, field: "source", expected: "a text or a list of texts" });
    };
    let outputs = match (kind, cell["outputs"].as_array()) {
        (Kind::Code, None) => {
            return Err(Fault::Field { place, field: "outputs", expected: "a list" });
        }
        (_, outputs) => outputs.cloned().unwrap_or_default(),
    };
    let captions = match &cell["metadata"]["caption"] {
        Value::Array(captions) => {
            captions.iter().filter_map(Value::as_str).map(str::to_string).collect()
        }
        caption => caption.as_str().into_iter().map(str::to_string).collect(),
    };
    let tags = cell["metadata"]["tags"].as_array();
    let raises = tags.is_some_and(|tags| tags.iter().any(|tag| tag == "raises-exception"));
    let source = source.trim_end().lines().map(|line| line.trim_end().to_string()).collect();
    Ok(Cell { kind, source, captions, raises, outputs })
}

/// A text that may be divided into lines.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(lines) => lines.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

/// How far headings move down: by one where a heading of the first level is not just the chapter's title.
fn shift(cells: &[Cell], title: &str) -> usize {
    let lines = cells
        .iter()
        .filter(|cell| cell.kind == Kind::Markdown)
        .flat_map(|cell| outside(&cell.source));
    let top = lines
        .filter_map(|(_, line)| line.strip_prefix("# "))
        .any(|heading| heading.trim() != title);
    usize::from(top)
}

/// The lines of a Markdown cell that are no fenced code, with their numbers from 1.
fn outside(source: &[String]) -> Vec<(usize, &str)> {
    let mut fence: Option<&str> = None;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(source) {
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, mark) {
            (None, None) => lines.push((number, line.as_str())),
            (None, opening) => fence = opening,
            (Some(open), closing) if closing == Some(open) => fence = None,
            _ => {}
        }
    }
    lines
}

/// The caption that a Markdown cell begins with.
struct Caption {
    text: String,
    /// What follows it in its paragraph.
    rest: String,
    /// The lines of the paragraph, and the empty ones behind it.
    lines: usize,
}

/// The caption that a Markdown cell begins with: a first paragraph in italics, or a first sentence in italics.
fn caption(source: &[String]) -> Option<Caption> {
    let count = source.iter().take_while(|line| !line.is_empty()).count();
    let paragraph = source[..count].join(" ");
    let (text, rest) = paragraph.strip_prefix('*')?.split_once('*')?;
    let whole = rest.is_empty() || text.ends_with('.') && rest.starts_with(' ');
    let empty = source[count..].iter().take_while(|line| line.is_empty()).count();
    let caption =
        Caption { text: text.to_string(), rest: rest.trim().to_string(), lines: count + empty };
    (!text.is_empty() && whole).then_some(caption)
}

/// Cell of a line, and the line in it, if it is one of the cell.
type Origin = (usize, Option<usize>);

/// What stands for a notebook in its chapter.
struct Page<'a> {
    path: &'a str,
    stem: String,
    pages: &'a BTreeMap<String, String>,
    shift: usize,
    lines: Vec<(String, Option<Origin>)>,
    attachments: Vec<Attachment>,
    pictures: usize,
    /// The lines at the start of the next Markdown cell that hold a caption, and what follows it there.
    captioned: Option<(usize, String)>,
    faults: Vec<Fault>,
}

impl<'a> Page<'a> {
    fn new(path: &'a str, pages: &'a BTreeMap<String, String>) -> Page<'a> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let stem = name.trim_end_matches(".ipynb").to_string();
        Page {
            path,
            stem,
            pages,
            shift: 0,
            lines: Vec::new(),
            attachments: Vec::new(),
            pictures: 0,
            captioned: None,
            faults: Vec::new(),
        }
    }

    fn place(&self, cell: usize, line: Option<usize>) -> Place {
        Place { path: self.path.to_string(), cell, line }
    }

    fn push(&mut self, text: impl Into<String>, origin: Option<(usize, Option<usize>)>) {
        self.lines.push((text.into(), origin));
    }

    /// An empty line, unless there is one.
    fn gap(&mut self) {
        if self.lines.last().is_some_and(|(line, _)| !line.is_empty()) {
            self.push("", None);
        }
    }

    /// The link to the notebook itself.
    fn download(&mut self, source: String) {
        let name = format!("{}.ipynb", self.stem);
        self.push(format!("This page is a notebook, [`{}`](figures/{name}): download it to run it and to change it.", self.path), None);
        self.attachments.push(Attachment { name, content: source.into_bytes() });
    }

    fn cell(&mut self, number: usize, cell: &Cell, next: Option<&Cell>, title: &str) {
        match cell.kind {
            Kind::Raw => {}
            Kind::Markdown => self.markdown(number, &cell.source, title),
            Kind::Code => {
                let lines = (1..).zip(&cell.source).map(|(line, text)| (text.clone(), Some(line)));
                // Magics at the start of a cell are commands to Jupyter, and no Python.
                let lines: Vec<_> = lines
                    .skip_while(|(text, _)| text.is_empty() || text.starts_with('%'))
                    .collect();
                if !lines.is_empty() {
                    self.gap();
                    self.fenced("python", number, lines);
                }
                self.outputs(number, cell, next);
            }
        }
    }

    fn markdown(&mut self, number: usize, source: &[String], title: &str) {
        let plain: BTreeMap<usize, &str> = outside(source).into_iter().collect();
        let (skipped, rest) = self.captioned.take().unwrap_or_default();
        let mut in_display = false;
        self.gap();
        if !rest.is_empty() {
            let text = self.links(&rest);
            self.push(text, Some((number, Some(1))));
            self.gap();
        }
        for (line, text) in (1..).zip(source).skip(skipped) {
            let origin = Some((number, Some(line)));
            let Some(&outside) = plain.get(&line) else {
                self.push(text.clone(), origin);
                continue;
            };
            if outside.strip_prefix("# ").is_some_and(|heading| heading.trim() == title) {
                continue;
            }
            if !in_display && outside.trim_start().starts_with("\\begin{") {
                let (place, found) = (self.place(number, Some(line)), outside.trim().to_string());
                self.faults.push(Fault::Mathematics { place, found });
            }
            in_display ^= outside.matches("$$").count() % 2 == 1;
            let text = self.heading(&self.links(outside));
            self.push(text, origin);
        }
    }

    /// A line with its heading moved down.
    fn heading(&self, line: &str) -> String {
        let level = line.bytes().take_while(|&byte| byte == b'#').count();
        if level == 0 || level > 6 || !line[level..].starts_with(' ') {
            return line.to_string();
        }
        format!("{}{}", "#".repeat((level + self.shift).min(6)), &line[level..])
    }

    /// A line whose links to pages of the book and to other notebooks lead to chapters.
    fn links(&self, line: &str) -> String {
        let mut pieces = line.split("](");
        let mut result = pieces.next().unwrap_or("").to_string();
        for piece in pieces {
            let end = piece.find([')', ' ']).unwrap_or(piece.len());
            let (target, rest) = piece.split_at(end);
            result.push_str("](");
            result.push_str(&self.target(target).unwrap_or_else(|| target.to_string()));
            result.push_str(rest);
        }
        result
    }

    /// Where a link of the notebook leads from `book/src`, if it leads into the book.
    fn target(&self, target: &str) -> Option<String> {
        let (file, anchor) = target.split_at(target.find('#').unwrap_or(target.len()));
        if file.is_empty() || file.contains(':') {
            return None;
        }
        let path = resolve(self.path, file)?;
        let page =
            path.strip_prefix("book/src/").or_else(|| self.pages.get(&path).map(String::as_str))?;
        Some(format!("{page}{anchor}"))
    }

    /// A fenced block of lines, with the lines of the cell that they come from.
    fn fenced(&mut self, language: &str, cell: usize, lines: Vec<(String, Option<usize>)>) {
        let ticks = |line: &str| line.split(|c| c != '`').map(str::len).max().unwrap_or(0);
        let longest = lines.iter().map(|(line, _)| ticks(line)).max().unwrap_or(0);
        let fence = "`".repeat((longest + 1).max(3));
        self.push(format!("{fence}{language}"), Some((cell, None)));
        for (text, line) in lines {
            self.push(text, Some((cell, line)));
        }
        self.push(fence, Some((cell, None)));
    }

    fn outputs(&mut self, number: usize, cell: &Cell, next: Option<&Cell>) {
        let mut printed = String::new();
        let mut captions = cell.captions.clone().into_iter();
        for output in &cell.outputs {
            match self.shown(number, cell, output) {
                Ok(Shown::Text(text)) => {
                    if !printed.is_empty() && !printed.ends_with('\n') {
                        printed.push('\n');
                    }
                    printed.push_str(&text);
                }
                Ok(Shown::Picture(extension, content)) => {
                    self.printed(number, &std::mem::take(&mut printed));
                    let caption = captions.next().or_else(|| self.following_caption(next));
                    self.picture(number, extension, content, caption);
                }
                Err(fault) => self.faults.push(fault),
            }
        }
        self.printed(number, &printed);
    }

    /// The caption in the next cell, which belongs to one picture.
    fn following_caption(&mut self, next: Option<&Cell>) -> Option<String> {
        let next = next.filter(|next| next.kind == Kind::Markdown && self.captioned.is_none())?;
        let caption = caption(&next.source)?;
        self.captioned = Some((caption.lines, caption.rest));
        Some(caption.text)
    }

    /// What the book shows of an output.
    fn shown(&self, number: usize, cell: &Cell, output: &Value) -> Result<Shown, Fault> {
        let place = self.place(number, None);
        let kind = output["output_type"].as_str().unwrap_or("");
        match (kind, output["name"].as_str()) {
            ("stream", Some("stdout")) => {
                let field =
                    Fault::Field { place, field: "text", expected: "a text or a list of texts" };
                text(&output["text"]).map(Shown::Text).ok_or(field)
            }
            ("stream", name) => {
                Err(Fault::Output { place, found: name.unwrap_or("an unknown stream").to_string() })
            }
            ("error", _) => {
                let word = |field: &str| output[field].as_str().unwrap_or("").to_string();
                let error = format!("{}: {}", word("ename"), word("evalue"));
                if cell.raises {
                    Ok(Shown::Text(error))
                } else {
                    Err(Fault::Raised { place, error })
                }
            }
            ("execute_result" | "display_data", _) => media(place, &output["data"]),
            _ => Err(Fault::Output { place, found: format!("the type {kind:?}") }),
        }
    }

    /// A block of printed text.
    fn printed(&mut self, number: usize, text: &str) {
        let text = without_colours(text);
        if !text.trim().is_empty() {
            self.gap();
            let lines = text.trim_end().lines().map(|line| (line.trim_end().to_string(), None));
            self.fenced("text", number, lines.collect());
        }
    }

    fn picture(
        &mut self,
        number: usize,
        extension: &str,
        content: Vec<u8>,
        caption: Option<String>,
    ) {
        self.pictures += 1;
        let name = format!("notebook-{}-{}.{extension}", self.stem, self.pictures);
        let caption =
            match caption.map(|caption| caption.split_whitespace().collect::<Vec<_>>().join(" ")) {
                Some(caption) if !caption.is_empty() => caption,
                _ => {
                    let place = self.place(number, None);
                    return self.faults.push(Fault::Caption { place });
                }
            };
        self.gap();
        self.push(format!("![{caption}](figures/{name})"), Some((number, None)));
        self.push("", None);
        self.attachments.push(Attachment { name, content });
    }
}

/// What is shown of an output.
enum Shown {
    Text(String),
    Picture(&'static str, Vec<u8>),
}

/// The best of the media of an output.
fn media(place: Place, data: &Value) -> Result<Shown, Fault> {
    for (media, extension) in PICTURES {
        let Some(content) = text(&data[media]) else { continue };
        let content = match extension {
            "svg" => Some(content.into_bytes()),
            _ => from_base64(&content),
        };
        return match content {
            Some(content) => Ok(Shown::Picture(extension, content)),
            None => Err(Fault::Encoding { place, media }),
        };
    }
    match text(&data[TEXT]) {
        Some(text) => Ok(Shown::Text(text)),
        None => {
            let found: Vec<&str> = data
                .as_object()
                .into_iter()
                .flat_map(|data| data.keys())
                .map(String::as_str)
                .collect();
            let found =
                if found.is_empty() { "no media type".to_string() } else { found.join(", ") };
            Err(Fault::Output { place, found })
        }
    }
}

/// A text without the escape sequences that colour a terminal.
fn without_colours(text: &str) -> String {
    let mut pieces = text.split("\u{1b}[");
    let mut plain = pieces.next().unwrap_or("").to_string();
    for piece in pieces {
        plain.push_str(
            piece.find(|c: char| c.is_ascii_alphabetic()).map_or("", |end| &piece[end + 1..]),
        );
    }
    plain
}

/// The bytes of a text in base64 (RFC 4648), blanks and line ends left out.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut buffer, mut bits) = (0u32, 0);
    let letters = text.bytes().filter(|byte| !byte.is_ascii_whitespace());
    let whole = letters.clone().count() % 4 == 0;
    let padded = letters.clone().skip_while(|&byte| byte != b'=');
    let sound = whole && padded.clone().count() <= 2 && padded.into_iter().all(|byte| byte == b'=');
    for letter in letters.take_while(|&byte| byte != b'=') {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        buffer = buffer << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((buffer >> bits & 0xff) as u8);
        }
    }
    sound.then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io;

    use serde_json::{Value, json};

    use super::{Fault, Notebook, Place, asked, from_base64, insert};

    const CHAPTER: &str =
        "# Pupils\n\nBefore.\n\n{{#notebook python/notebooks/pupils.ipynb}}\n\nAfter.\n";

    fn notebook(cells: Value) -> String {
        json!({ "nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells }).to_string()
    }

    fn code(source: &str, outputs: Value) -> Value {
        json!({ "cell_type": "code", "source": source, "outputs": outputs, "metadata": {}, "execution_count": 1 })
    }

    fn markdown(source: &str) -> Value {
        json!({ "cell_type": "markdown", "source": source, "metadata": {} })
    }

    /// The text, the notebook and what is wrong with it.
    fn inserted(cells: Value) -> (String, Notebook, Vec<Fault>) {
        let pages = BTreeMap::from([(
            "python/notebooks/other.ipynb".to_string(),
            "notebook-other.md".to_string(),
        )]);
        let found = insert(CHAPTER, &pages, |_| Ok(notebook(cells.clone())));
        found.ok().flatten().unwrap_or_else(|| panic!("a notebook"))
    }

    /// The lines that the notebook fills, without the link to it.
    fn body(text: &str) -> String {
        let body = text.split_once("to change it.\n").map_or("", |(_, rest)| rest);
        body.trim_end_matches("\n\nAfter.\n").trim().to_string()
    }

    fn fault(text: io::Result<&str>) -> Option<(usize, Fault)> {
        let read =
            |_: &str| text.as_ref().map(|text| text.to_string()).map_err(|why| why.kind().into());
        insert(CHAPTER, &BTreeMap::new(), read).err()
    }

    fn place(cell: usize, line: Option<usize>) -> Place {
        Place { path: "python/notebooks/pupils.ipynb".into(), cell, line }
    }

    #[test]
    fn cells_become_markdown_and_blocks() {
        let printed = json!([
            { "output_type": "stream", "name": "stdout", "text": ["1\n", "\u{1b}[31m2\u{1b}[0m\n"] },
            { "output_type": "execute_result", "data": { "text/html": "<b>3</b>", "text/plain": ["3"] } },
        ]);
        let (text, notebook, faults) = inserted(json!([
            markdown("# Pupils\n\nA pupil of $D$.\n\n## Area\n\n```python\n# no heading\n```"),
            code("print(1)\n# two\nprint(2)\n3", printed),
            { "cell_type": "raw", "source": "never shown", "metadata": {} },
            code("%matplotlib inline\n\nprint('```')", json!([])),
            markdown("See [areas](../../book/src/areas.md#ring), [it](other.ipynb) and [there](x.png)."),
        ]));
        assert_eq!(faults, []);
        let expected = "A pupil of $D$.\n\n## Area\n\n```python\n# no heading\n```\n\n```python\nprint(1)\n# two\nprint(2)\n3\n```\n\n\
                        ```text\n1\n2\n3\n```\n\n````python\nprint('```')\n````\n\n\
                        See [areas](areas.md#ring), [it](notebook-other.md) and [there](x.png).";
        assert_eq!(body(&text), expected);
        assert!(text.starts_with("# Pupils\n\nBefore.\n\nThis page is a notebook"), "{text}");
        assert!(text.ends_with("\n\nAfter.\n"), "{text}");
        assert!(
            notebook.provides("figures/pupils.ipynb") && !notebook.provides("figures/other.ipynb")
        );
    }

    #[test]
    fn lines_know_their_cells() {
        let (text, notebook, _) =
            inserted(json!([markdown("# Pupils\n\nOne."), code("x = 2\nx", json!([]))]));
        let line =
            |word: &str| 1 + text.lines().position(|line| line == word).unwrap_or(usize::MAX - 1);
        assert_eq!(notebook.origin(line("Before.")), (3, None));
        assert_eq!(notebook.origin(line("One.")), (5, Some(place(1, Some(3)))));
        assert_eq!(notebook.origin(line("x")), (5, Some(place(2, Some(2)))));
        assert_eq!(notebook.origin(line("After.")), (7, None));
    }

    #[test]
    fn headings_move_below_the_title() {
        let moved = |source: &str| body(&inserted(json!([markdown(source)])).0);
        assert_eq!(moved("# Pupils\n## Area\n#### Deep"), "## Area\n#### Deep");
        assert_eq!(
            moved("# Telescopes\n## Area\n###### Deep\n#no heading"),
            "## Telescopes\n### Area\n###### Deep\n#no heading"
        );
    }

    #[test]
    fn pictures_have_captions_and_files() {
        let svg = json!({ "output_type": "display_data", "data": { "image/svg+xml": ["<svg>", "</svg>"], "image/png": "AAAA", "text/plain": "<Figure>" } });
        let png = json!({ "output_type": "display_data", "data": { "image/png": "aGk/\nAA==\n", "text/plain": "<Figure>" } });
        let mut told = code("plot()", json!([svg, png]));
        told["metadata"]["caption"] = json!(["A pupil of $D = 8$ m.", "Its\n[image]."]);
        let (text, notebook, faults) = inserted(json!([
            told,
            code("again()", json!([svg])),
            markdown("*The same\npupil.*\n\n*Not a* caption.")
        ]));
        assert_eq!(faults, []);
        let expected = "```python\nplot()\n```\n\n![A pupil of $D = 8$ m.](figures/notebook-pupils-1.svg)\n\n\
                        ![Its [image].](figures/notebook-pupils-2.png)\n\n```python\nagain()\n```\n\n\
                        ![The same pupil.](figures/notebook-pupils-3.svg)\n\n*Not a* caption.";
        assert_eq!(body(&text), expected);
        let contents: Vec<&[u8]> =
            notebook.attachments[1..].iter().map(|file| file.content.as_slice()).collect();
        assert_eq!(contents, [b"<svg></svg>".as_slice(), b"hi?\0", b"<svg></svg>"]);
        let (text, _, faults) =
            inserted(json!([code("plot()", json!([svg, svg])), markdown("*One.*")]));
        assert_eq!(
            (faults, text.matches("![").count()),
            (vec![Fault::Caption { place: place(1, None) }], 1)
        );
        let first =
            json!([code("plot()", json!([svg])), markdown("*A\npupil.* It is\nround.\n\nMore.")]);
        let (text, _, faults) = inserted(first);
        assert_eq!(faults, []);
        assert!(
            body(&text)
                .ends_with("![A pupil.](figures/notebook-pupils-1.svg)\n\nIt is round.\n\nMore."),
            "{text}"
        );
        let word = json!([code("plot()", json!([svg])), markdown("*Here* it is.")]);
        assert_eq!(inserted(word).2, [Fault::Caption { place: place(1, None) }]);
    }

    #[test]
    fn outputs_that_the_book_cannot_show_are_faults() {
        let faults = |outputs: Value| inserted(json!([markdown("x"), code("f()", outputs)])).2;
        let output =
            |found: &str| vec![Fault::Output { place: place(2, None), found: found.to_string() }];
        assert_eq!(
            faults(json!([{ "output_type": "stream", "name": "stderr", "text": "warning" }])),
            output("stderr")
        );
        let html = json!([{ "output_type": "display_data", "data": { "text/html": "<b>1</b>", "text/latex": "1" } }]);
        assert_eq!(faults(html), output("text/html, text/latex"));
        assert_eq!(faults(json!([{ "output_type": "pyout" }])), output("the type \"pyout\""));
        assert_eq!(
            faults(json!([{ "output_type": "stream", "name": "stdout" }])),
            [Fault::Field {
                place: place(2, None),
                field: "text",
                expected: "a text or a list of texts"
            }]
        );
        let png = json!([{ "output_type": "display_data", "data": { "image/png": "not base64" } }]);
        assert_eq!(faults(png), [Fault::Encoding { place: place(2, None), media: "image/png" }]);
        let error = json!([{ "output_type": "error", "ename": "InputError", "evalue": "r0 = -1", "traceback": [] }]);
        assert_eq!(
            faults(error.clone()),
            [Fault::Raised { place: place(2, None), error: "InputError: r0 = -1".into() }]
        );
        let mut meant = code("f()", error);
        meant["metadata"]["tags"] = json!(["raises-exception"]);
        let (text, _, faults) = inserted(json!([meant]));
        assert_eq!((faults, text.contains("```text\nInputError: r0 = -1\n```")), (vec![], true));
    }

    #[test]
    fn mathematics_stands_between_dollars() {
        let found = inserted(json!([markdown(
            "$$\n\\begin{aligned}\nx\n\\end{aligned}\n$$\n\n\\begin{align}\ny\n\\end{align}"
        )]))
        .2;
        assert_eq!(
            found,
            [Fault::Mathematics { place: place(1, Some(7)), found: "\\begin{align}".into() }]
        );
    }

    #[test]
    fn files_that_are_no_notebooks_are_refused() {
        let path = "python/notebooks/pupils.ipynb".to_string();
        let missing = Fault::Unread { path: path.clone(), why: "it does not exist".into() };
        assert_eq!(fault(Err(io::ErrorKind::NotFound.into())), Some((5, missing)));
        assert!(matches!(fault(Ok("{\"nbformat\": 4,")), Some((5, Fault::Json { .. }))));
        assert_eq!(
            fault(Ok("{\"nbformat\": 3}")),
            Some((5, Fault::Version { path, found: "3".into() }))
        );
        let field = |cell, field, expected| {
            Some((5, Fault::Field { place: place(cell, None), field, expected }))
        };
        assert_eq!(fault(Ok("{\"nbformat\": 4}")), field(1, "cells", "a list"));
        let cells = notebook(json!([markdown("x"), { "cell_type": "code", "source": "y" }]));
        assert_eq!(fault(Ok(&cells)), field(2, "outputs", "a list"));
        let cells = notebook(json!([{ "cell_type": "markdown", "source": 1 }]));
        assert_eq!(fault(Ok(&cells)), field(1, "source", "a text or a list of texts"));
        let cells = notebook(json!([{ "cell_type": "heading", "source": "" }]));
        assert_eq!(
            fault(Ok(&cells)),
            Some((5, Fault::Cell { place: place(1, None), found: "heading".into() }))
        );
        for path in ["../x.ipynb", "/x.ipynb", "x.py", "a//x.ipynb", ""] {
            let chapter = format!("{{{{#notebook {path}}}}}\n");
            let read = |_: &str| -> io::Result<String> { Ok(notebook(json!([]))) };
            let found = insert(&chapter, &BTreeMap::new(), read);
            assert_eq!(found.err(), Some((1, Fault::Path { path: path.to_string() })), "{path}");
        }
    }

    #[test]
    fn only_a_line_of_its_own_asks_for_a_notebook() {
        assert_eq!(asked("a\n{{#notebook x.ipynb}}  \n"), Some((2, "x.ipynb")));
        assert_eq!(asked("```text\n{{#notebook x.ipynb}}\n```\n`{{#notebook x.ipynb}}`\n"), None);
    }

    #[test]
    fn base64_is_decoded() {
        assert_eq!(from_base64("").as_deref(), Some(&b""[..]));
        assert_eq!(from_base64("+/8=").as_deref(), Some(&[0xfb, 0xff][..]));
        for wrong in ["a", "ab=c", "ab==cd==", "a===", "a*bc"] {
            assert_eq!(from_base64(wrong), None, "{wrong}");
        }
    }
}
