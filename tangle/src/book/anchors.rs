//! Names of places in the pages.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::keys;
use crate::block::{Block, BlockKind};
use crate::chapter::Chapter;
use crate::expand::Tangled;
pub use crate::pages::{equation_anchor, escape, link};
use crate::plain::typed;
use crate::symbols;
use crate::text::slug;
use crate::volume::{BlockId, Book};

/// The address of a labelled equation, as seen from a chapter.
pub fn equation(book: &Book, from: &Chapter, label: &str) -> Option<String> {
    let found = book.labels.get(label)?;
    Some(link(&from.file, &book.chapters[found.chapter].file, &equation_anchor(label)))
}

/// The number of a labelled equation in brackets, as a link from a chapter.
pub fn equation_link(book: &Book, from: &Chapter, label: &str) -> Option<String> {
    let (address, number) = (equation(book, from, label)?, &book.labels.get(label)?.number);
    Some(format!("<a class=\"equation-link\" href=\"{address}\">({number})</a>"))
}

/// The anchors of all chunks of a book.
#[derive(Debug, Clone, Default)]
pub struct ChunkAnchors(HashMap<BlockId, String>);

impl ChunkAnchors {
    /// Gives each chunk its anchor: `chunk-fold-the-spectrum`, `chunk-fold-the-spectrum.2` for its
    /// first continuation, `file-src-phase-rs`.
    pub fn new(book: &Book) -> ChunkAnchors {
        let mut anchors = HashMap::new();
        let mut taken = HashSet::new();
        for id in book.blocks() {
            let (_, block) = book.block(id);
            let stem = match &block.kind {
                BlockKind::Plain => continue,
                BlockKind::Root(path) => format!("file-{}", slug(path)),
                BlockKind::Named(name) if block.part == 0 => format!("chunk-{}", slug(name)),
                BlockKind::Named(name) => format!("chunk-{}.{}", slug(name), block.part + 1),
            };
            let mut anchor = stem.clone();
            let mut count = 1;
            while !taken.insert(anchor.clone()) {
                count += 1;
                anchor = format!("{stem}_{count}");
            }
            anchors.insert(id, anchor);
        }
        ChunkAnchors(anchors)
    }

    /// The anchor of a chunk; empty for an illustration.
    pub fn of(&self, id: BlockId) -> &str {
        self.0.get(&id).map_or("", String::as_str)
    }

    /// The address of a chunk, as seen from the chapter file `from`.
    pub fn link(&self, book: &Book, from: &str, id: BlockId) -> String {
        link(from, &book.chapters[id.chapter].file, self.of(id))
    }
}

/// The anchors of the rows of tables that the search and the index of symbols lead to.
#[derive(Debug, Clone, Default)]
pub struct RowAnchors(BTreeMap<(usize, usize), RowAnchor>);

/// The anchor of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowAnchor {
    /// Where its first cell begins in the chapter.
    pub start: usize,
    /// The anchor.
    pub id: String,
}

impl RowAnchors {
    /// Gives each symbol and each key its anchor: `symbol-l-0` for the first row of its chapter that begins with $L_0$, `symbol-l-0_2` for
    /// the second, `key-atmosphere.outer_scale`.
    pub fn new(book: &Book) -> RowAnchors {
        let symbols = symbols::rows(book).into_iter().map(|row| {
            let name = slug(&typed(&row.text(book, &row.symbol).replace('$', " ")));
            ((row.chapter, row.line), row.symbol.start, format!("symbol-{name}"))
        });
        let keys = keys::keys(book).into_iter().filter_map(|key| {
            let start = key.row?.name.start;
            Some(((key.chapter, key.line), start, format!("key-{}", key.path)))
        });
        let mut anchors = BTreeMap::new();
        let mut taken: HashMap<(usize, String), usize> = HashMap::new();
        for (place, start, stem) in symbols.chain(keys) {
            let count = taken.entry((place.0, stem.clone())).or_default();
            *count += 1;
            let id = if *count == 1 { stem } else { format!("{stem}_{count}") };
            anchors.insert(place, RowAnchor { start, id });
        }
        RowAnchors(anchors)
    }

    /// The anchor of the row in this line of a chapter; empty for other lines.
    pub fn of(&self, chapter: usize, line: usize) -> &str {
        self.0.get(&(chapter, line)).map_or("", |anchor| anchor.id.as_str())
    }

    /// All anchors of a chapter.
    pub fn of_chapter(&self, chapter: usize) -> impl Iterator<Item = &RowAnchor> {
        self.0.range((chapter, 0)..(chapter + 1, 0)).map(|(_, anchor)| anchor)
    }
}

/// Where the blocks of a book are in the program.
#[derive(Debug, Clone, Default)]
pub struct Places(HashMap<BlockId, (String, usize, usize)>);

impl Places {
    /// Notes the first file that each block goes into, with its first and last line there.
    pub fn new(tangled: &Tangled) -> Places {
        let mut places: HashMap<BlockId, (String, usize, usize)> = HashMap::new();
        for file in tangled.files.values() {
            for (index, line) in file.lines.iter().enumerate() {
                let number = index + 1;
                let place = || (file.path.clone(), number, number);
                let (path, _, last) = places.entry(line.block).or_insert_with(place);
                if *path == file.path {
                    *last = number;
                }
            }
        }
        Places(places)
    }

    /// The place of a block in words, as HTML.
    pub fn of(&self, id: BlockId) -> String {
        match self.0.get(&id) {
            Some((path, first, last)) if first == last => {
                format!("<code>{}</code>, line {first}", escape(path))
            }
            Some((path, first, last)) => {
                format!("<code>{}</code>, lines {first} to {last}", escape(path))
            }
            None => "nothing in it".to_string(),
        }
    }
}

/// The name of a chunk, or the path of its file, as HTML; empty for an illustration.
pub fn chunk_name(block: &Block) -> String {
    match &block.kind {
        BlockKind::Root(path) => format!("<code>{}</code>", escape(path)),
        BlockKind::Named(name) => escape(name),
        BlockKind::Plain => String::new(),
    }
}
