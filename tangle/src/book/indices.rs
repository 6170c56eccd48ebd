//! The pages at the end of the book: symbols, public identifiers, and chunks.

use std::collections::{BTreeMap, BTreeSet};

use super::anchors::{self, ChunkAnchors, chunk_name, escape};
use super::marks::hide;
use super::page::PageWriter;
use crate::expand::{File, Origin, Tangled};
use crate::symbols::{self, Row};
use crate::volume::{BlockId, Book};

/// The file of the identifier index.
pub const IDENTIFIERS: &str = "identifier-index.md";
/// The file of the index of symbols.
pub const SYMBOLS: &str = "symbol-index.md";
/// The file of the chunk index.
pub const CHUNKS: &str = "chunk-index.md";

/// Titles and files of the indices, in their order.
pub const PAGES: [(&str, &str); 3] = [
    ("Index of symbols", SYMBOLS),
    ("Index of identifiers", IDENTIFIERS),
    ("Index of chunks", CHUNKS),
];

/// The number of the bibliography where the chapters are numbered from 0.
pub fn bibliography_place(book: &Book) -> usize {
    book.chapters.len()
}

/// The number of one of these pages, after the bibliography.
pub fn place(book: &Book, page: usize) -> usize {
    bibliography_place(book) + 1 + page
}

/// A public item of the program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Item {
    /// `Atmosphere`, or `Atmosphere::new` for what belongs to a type.
    pub name: String,
    /// `struct`, `fn`, `kernel`, …
    pub kind: &'static str,
    /// The file that it is tangled into.
    pub file: String,
    /// The chunk that defines it.
    pub block: BlockId,
}

/// All public items of the program, by name. The examples are tangled too, but never called.
pub fn items(tangled: &Tangled) -> Vec<Item> {
    let is_program = |file: &&File| ["src/", "kernels/"].iter().any(|f| file.path.starts_with(f));
    let mut items: Vec<Item> =
        tangled.files.values().filter(is_program).flat_map(items_of).collect();
    items.sort_by_key(|item| (item.name.to_lowercase(), item.file.clone()));
    items.dedup();
    items
}

/// The public items of a file, found by the layout that rustfmt gives it: what stands at the left
/// margin, and what is indented by four below an `impl` or a `trait`.
fn items_of(file: &File) -> Vec<Item> {
    let mut items = Vec::new();
    let mut around: Option<(String, bool)> = None;
    let mut hidden = false;
    for line in file.lines.iter().filter(|line| line.origin == Origin::Code) {
        let text = line.text.as_str();
        let mut add = |name: String, kind| {
            items.push(Item { name, kind, file: file.path.clone(), block: line.block });
        };
        if !text.starts_with([' ', '\t', '}', ')', '/', '#']) && !text.is_empty() {
            hidden = text.starts_with("mod ");
            around = owner(text);
            if let Some((kind, name)) = item(text, false) {
                add(name.to_string(), kind);
            } else if let Some(name) = kernel(text) {
                add(name.to_string(), "kernel");
            }
        } else if let (Some((owner, is_trait)), false) = (&around, hidden) {
            let inner = text.strip_prefix("    ").filter(|inner| !inner.starts_with(' '));
            if let Some((kind, name)) = inner.and_then(|inner| item(inner, *is_trait)) {
                add(format!("{owner}::{name}"), if kind == "fn" { "method" } else { kind });
            }
        }
    }
    items
}

/// The type of an inherent `impl`, or a public trait.
fn owner(line: &str) -> Option<(String, bool)> {
    if let Some(rest) = line.strip_prefix("pub trait ") {
        return Some((word(rest).to_string(), true));
    }
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(generic) => {
            let mut depth = 1;
            let end = generic.find(|c| {
                depth += i32::from(c == '<') - i32::from(c == '>');
                depth == 0
            })?;
            &generic[end + 1..]
        }
        None => rest,
    };
    let rest = rest.strip_prefix(' ')?;
    (!rest.contains(" for ")).then(|| (word(rest).to_string(), false))
}

/// The kind and the name of the public item that a line starts; in a trait, all are public.
fn item(line: &str, is_trait: bool) -> Option<(&'static str, &str)> {
    let mut rest = match line.strip_prefix("pub ") {
        Some(rest) => rest,
        None if is_trait => line,
        None => return None,
    };
    for qualifier in ["default ", "const fn ", "async ", "unsafe ", "extern \"C\" "] {
        if let Some(after) = rest.strip_prefix(qualifier) {
            rest = if qualifier == "const fn " { &rest["const ".len()..] } else { after };
        }
    }
    let kinds =
        ["fn", "struct", "enum", "trait", "const", "static", "type", "union", "macro", "mod"];
    kinds.into_iter().find_map(|kind| {
        let name = word(rest.strip_prefix(kind)?.strip_prefix(' ')?);
        (!name.is_empty() && name != "_").then_some((kind, name))
    })
}

/// The name of the CUDA kernel that a line starts.
fn kernel(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("__global__ ")?;
    let rest = rest.strip_prefix("void ").unwrap_or(rest);
    Some(word(rest)).filter(|name| !name.is_empty())
}

fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("")
}

/// The Markdown of the index of symbols, with marks for its formulas: the rows of the tables of
/// symbols in the shown chapters, letters first, then words; a row of several letters stands at each.
pub fn symbol_page(writer: &PageWriter<'_>, shown: impl Fn(usize) -> bool) -> String {
    let book = writer.book;
    let named = |row: &Row| shown(row.chapter) && !row.text(book, &row.symbol).is_empty();
    let mut rows = Vec::new();
    for row in symbols::rows(book).into_iter().filter(named) {
        let letters = symbols::symbols(book, &row);
        if letters.is_empty() {
            rows.push(((3, 0, false, row.text(book, &row.symbol).to_lowercase()), row.clone()));
        }
        let orders: BTreeSet<_> = letters.iter().map(|s| symbols::order(&s.letter)).collect();
        rows.extend(orders.into_iter().map(|order| (order, row.clone())));
    }
    rows.sort_by(|(one, a), (other, b)| (one, a.chapter, a.line).cmp(&(other, b.chapter, b.line)));
    // A row of two letters that follow each other is shown once.
    rows.dedup_by_key(|(_, row)| (row.chapter, row.line));
    let mut page = hide(
        "# Index of symbols\n\nWhat each chapter's table of symbols says, gathered: letters by the \
         alphabet, then words.\n",
    );
    let mut section = None;
    for (order, row) in &rows {
        let title = match order.0 {
            0 => "Latin letters",
            1 => "Greek letters",
            2 => "Other signs",
            _ => "Words",
        };
        if section.replace(title) != Some(title) {
            page.push_str(&format!(
                "\n## {title}\n\n| symbol | meaning | unit | shape | in the code | chapter |\n\
                 |---|---|---|---|---|---|\n"
            ));
        }
        let chapter = &book.chapters[row.chapter];
        let cells = [
            Some(&row.symbol),
            Some(&row.meaning),
            row.unit.as_ref(),
            row.shape.as_ref(),
            row.identifier.as_ref(),
        ];
        page.push('|');
        for cell in cells {
            let text = cell.map_or(String::new(), |cell| writer.excerpt(row.chapter, cell.clone()));
            page.push_str(&format!(" {} |", text.trim()));
        }
        let anchor = writer.rows.of(row.chapter, row.line);
        let address = anchors::link(SYMBOLS, &chapter.file, anchor);
        let title = escape(&chapter.title);
        let link = format!(" <a class=\"index-link\" href=\"{address}\">{title}</a> |\n");
        page.push_str(&hide(&link));
    }
    page
}

/// The Markdown of the identifier index of the shown chapters.
pub fn identifier_page(
    book: &Book,
    tangled: &Tangled,
    anchors: &ChunkAnchors,
    shown: impl Fn(usize) -> bool,
) -> String {
    let mut page = String::from(
        "# Index of identifiers\n\nThe public items of the program, with the chunk that defines each \
         and the chapter that explains it.\n\n",
    );
    let mut letters: BTreeMap<char, Vec<Item>> = BTreeMap::new();
    for item in items(tangled).into_iter().filter(|item| shown(item.block.chapter)) {
        let letter = item.name.chars().next().map_or('_', |c| c.to_ascii_uppercase());
        letters.entry(letter).or_default().push(item);
    }
    for (letter, items) in letters {
        page.push_str(&format!("<h2 class=\"index-letter\">{letter}</h2>\n<ul class=\"index\">\n"));
        for item in items {
            page.push_str(&format!(
                "<li><code>{}</code> <span class=\"kind\">{}</span> {}, {}</li>\n",
                escape(&item.name),
                item.kind,
                chunk_link(book, anchors, item.block),
                chapter_link(book, anchors, item.block)
            ));
        }
        page.push_str("</ul>\n\n");
    }
    page
}

/// The Markdown of the chunk index of the shown chapters: files first, then chunks by name.
pub fn chunk_page(book: &Book, anchors: &ChunkAnchors, shown: impl Fn(usize) -> bool) -> String {
    let mut page = String::from(
        "# Index of chunks\n\nFirst the files into which the chunks are tangled, then the named chunks, \
         each with the places where it is defined and used.\n\n<ul class=\"index\">\n",
    );
    for id in book.roots.values().flatten().filter(|id| shown(id.chapter)) {
        let (chunk, chapter) = (chunk_link(book, anchors, *id), chapter_link(book, anchors, *id));
        page.push_str(&format!("<li>{chunk} {chapter}</li>\n"));
    }
    page.push_str("</ul>\n\n<ul class=\"index\">\n");
    let mut names: Vec<&String> = book.chunks.keys().collect();
    names.sort_by_key(|name| name.to_lowercase());
    for name in names {
        let chunk = &book.chunks[name];
        let Some(&first) = chunk.parts.first().filter(|id| shown(id.chapter)) else { continue };
        let mut homes: Vec<BlockId> = chunk.parts.clone();
        homes.retain(|home| shown(home.chapter));
        homes.dedup_by_key(|id| id.chapter);
        let homes: Vec<String> =
            homes.iter().map(|&home| chapter_link(book, anchors, home)).collect();
        let mut users: Vec<BlockId> = chunk.uses.iter().map(|place| place.block).collect();
        users.retain(|user| shown(user.chapter));
        users.dedup();
        let users: Vec<String> =
            users.iter().map(|&user| chunk_link(book, anchors, user)).collect();
        let users = match users.is_empty() {
            true => String::new(),
            false => format!(" <span class=\"kind\">used in</span> {}", users.join(", ")),
        };
        let name = chunk_link(book, anchors, first);
        page.push_str(&format!("<li>{name} {}{users}</li>\n", homes.join(", ")));
    }
    page.push_str("</ul>\n");
    page
}

fn chunk_link(book: &Book, anchors: &ChunkAnchors, id: BlockId) -> String {
    let (_, block) = book.block(id);
    let (name, link) = (chunk_name(block), anchors.link(book, IDENTIFIERS, id));
    format!("⟨<a class=\"index-link\" href=\"{link}\">{name}</a>⟩")
}

fn chapter_link(book: &Book, anchors: &ChunkAnchors, id: BlockId) -> String {
    let chapter = &book.chapters[id.chapter];
    let number = chapter.number.as_deref().map(|n| format!("{n} ")).unwrap_or_default();
    let link = anchors.link(book, IDENTIFIERS, id);
    format!("<a href=\"{link}\"><cite>{number}{}</cite></a>", escape(&chapter.title))
}

#[cfg(test)]
mod tests {
    use super::{item, kernel, owner};

    #[test]
    fn items_are_recognised_by_their_first_line() {
        assert_eq!(item("pub fn gamma(x: f64) -> f64 {", false), Some(("fn", "gamma")));
        assert_eq!(item("pub const fn new() -> Self {", false), Some(("fn", "new")));
        assert_eq!(item("pub const ARCSEC: f64 = 1.0;", false), Some(("const", "ARCSEC")));
        assert_eq!(item("pub struct Layer {", false), Some(("struct", "Layer")));
        assert_eq!(item("pub(crate) fn hidden() {", false), None);
        assert_eq!(item("fn hidden() {", false), None);
        assert_eq!(item("fn shown(&self);", true), Some(("fn", "shown")));
        assert_eq!(item("pub use x::y;", false), None);
        assert_eq!(kernel("extern \"C\" __global__ void edges(double *e)"), Some("edges"));
    }

    #[test]
    fn methods_belong_to_inherent_blocks() {
        assert_eq!(owner("impl Layer {"), Some(("Layer".to_string(), false)));
        assert_eq!(
            owner("impl<'a, T: Into<f64>> Grid<'a, T> {"),
            Some(("Grid".to_string(), false))
        );
        assert_eq!(owner("impl Display for Layer {"), None);
        assert_eq!(owner("pub trait Window: Send {"), Some(("Window".to_string(), true)));
    }
}
