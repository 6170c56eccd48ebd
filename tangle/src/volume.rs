//! The whole book: its chapters in order, and who defines and uses each chunk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::bibliography::{Bibliography, REFERENCES};
use crate::block::{Block, BlockKind};
use crate::chapter::Chapter;
use crate::error::{Error, Result};
use crate::finding::Finding;
use crate::notebook;
use crate::summary::{self, Entry};
use crate::text::{Text, nearest, setting_in};

/// The table of contents, relative to the repository.
pub const SUMMARY: &str = "book/src/SUMMARY.md";

/// A block: the index of its chapter in [`Book::chapters`], and its own in [`Chapter::blocks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    /// Index of the chapter.
    pub chapter: usize,
    /// Index of the block in the chapter.
    pub block: usize,
}

/// A place that refers to a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    /// The block that refers to it.
    pub block: BlockId,
    /// The line of the chapter.
    pub line: usize,
}

/// A named chunk with all its parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Where it is defined, in the order of the book. Empty for a chunk that is only used.
    pub parts: Vec<BlockId>,
    /// Where it is used.
    pub uses: Vec<Use>,
}

/// Where a label stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Index of the chapter.
    pub chapter: usize,
    /// Index of the formula in [`Chapter::math`].
    pub math: usize,
    /// Its number in the book, e.g. `"3.2"`.
    pub number: String,
    /// Line and column.
    pub position: (usize, usize),
}

/// The book.
#[derive(Debug, Clone, Default)]
pub struct Book {
    /// The repository.
    pub root: PathBuf,
    /// The chapters that could be read, in the order of the table of contents.
    pub chapters: Vec<Chapter>,
    /// All named chunks, by name.
    pub chunks: BTreeMap<String, Chunk>,
    /// All roots, by path; more than one block is an error of the book.
    pub roots: BTreeMap<String, Vec<BlockId>>,
    /// All labels of equations; the first one where a label is given twice.
    pub labels: BTreeMap<String, Label>,
    /// The works that the chapters cite.
    pub bibliography: Bibliography,
    /// Where the rendered book can be read, if `Cargo.toml` says so.
    pub url: Option<String>,
    /// Chapters that the table of contents lists but that could not be read (`book/src/x.md`).
    pub missing: BTreeSet<String>,
    /// What is wrong in the table of contents, in the chapters by themselves, and with labels.
    pub findings: Vec<Finding>,
}

impl Book {
    /// The texts of the programs that draw the figures.
    pub fn programs(&self) -> Vec<String> {
        let entries = fs::read_dir(self.root.join("book/examples")).into_iter().flatten().flatten();
        entries.filter_map(|entry| fs::read_to_string(entry.path()).ok()).collect()
    }

    /// The repository around `start`: the nearest folder that holds `book/src/SUMMARY.md`.
    ///
    /// # Errors
    ///
    /// [`Error::NoBook`] if there is none.
    pub fn find(start: &Path) -> Result<PathBuf> {
        start
            .ancestors()
            .find(|folder| folder.join(SUMMARY).is_file())
            .map(Path::to_path_buf)
            .ok_or_else(|| Error::NoBook(start.to_path_buf()))
    }

    /// Reads the book of the repository at `root`.
    ///
    /// # Errors
    ///
    /// [`Error::Read`] if there is no table of contents, or if the works cannot be read. A chapter that cannot be read is a
    /// finding.
    pub fn load(root: &Path) -> Result<Book> {
        let path = root.join(SUMMARY);
        let summary = fs::read_to_string(&path).map_err(Error::read(&path))?;
        let mut book = Book::from_sources(&summary, |file| fs::read_to_string(root.join(file)));
        let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
        let url = setting_in(&manifest, "package.metadata.book", "url");
        book.url = url.filter(|url| !url.is_empty()).map(str::to_string);
        let works = root.join(REFERENCES);
        if works.is_file() {
            let works = fs::read_to_string(&works).map_err(Error::read(&works))?;
            book.bibliography = Bibliography::parse(&works);
        }
        book.root = root.to_path_buf();
        Ok(book)
    }

    /// Reads a book from a table of contents and a function that gives each chapter's text by its
    /// path relative to the repository.
    pub fn from_sources(summary: &str, read: impl Fn(&str) -> io::Result<String>) -> Book {
        let mut book = Book::default();
        let mut seen = BTreeSet::new();
        let mut texts: Vec<(Entry, String, String)> = Vec::new();
        for entry in summary::parse(&Text::new(summary)) {
            let Some(file) = entry.file.clone() else { continue };
            let path = format!("book/src/{file}");
            if file.split('/').any(|part| matches!(part, "" | "." | "..")) || file.contains('\\') {
                book.report(entry.position, format!("{file} is not a plain path below book/src"));
                continue;
            }
            if !seen.insert(path.clone()) {
                book.report(entry.position, format!("{file} is listed twice"));
                continue;
            }
            match read(&path) {
                Ok(text) => texts.push((entry, file, text)),
                Err(why) => {
                    let what = match why.kind() {
                        io::ErrorKind::NotFound => format!("{path} is listed but does not exist"),
                        io::ErrorKind::InvalidData => format!("{path} is not UTF-8"),
                        _ => format!("cannot read {path}: {why}"),
                    };
                    book.report(entry.position, what);
                    book.missing.insert(path);
                }
            }
        }
        book.read_chapters(texts, read);
        book.index();
        book
    }

    /// Parses the chapters, with notebooks in place of the lines that ask for them.
    fn read_chapters(
        &mut self,
        texts: Vec<(Entry, String, String)>,
        read: impl Fn(&str) -> io::Result<String>,
    ) {
        let asking = texts.iter().filter_map(|(_, file, text)| {
            Some((notebook::asked(text)?.1.to_string(), file.clone()))
        });
        let pages: BTreeMap<String, String> = asking.collect();
        for (entry, file, text) in texts {
            let part = entry.part;
            let parse = |text| {
                let chapter = Chapter::parse(&entry.title, &file, entry.number.clone(), text);
                Chapter { part: part.clone(), ..chapter }
            };
            let chapter = match notebook::insert(&text, &pages, &read) {
                Ok(None) => parse(text),
                Ok(Some((whole, notebook, faults))) => {
                    let mut chapter = parse(whole);
                    let line = notebook.line;
                    if chapter.blocks.iter().any(Block::is_chunk) {
                        // Chunks are stitched into the file, which is not this text.
                        chapter = parse(text);
                        let what =
                            "a chapter that shows a notebook holds no chunks: move them to another";
                        chapter.report((line, 1), what.to_string());
                    } else {
                        chapter.notebook = Some(notebook);
                    }
                    let place = |fault: notebook::Fault| ((line, 1), fault.to_string());
                    let faults: Vec<_> = faults.into_iter().map(place).collect();
                    let own = std::mem::take(&mut chapter.findings);
                    chapter.findings = located(&chapter, own);
                    faults.into_iter().for_each(|(at, what)| chapter.report(at, what));
                    chapter
                }
                Err((line, fault)) => {
                    let mut chapter = parse(text);
                    chapter.report((line, 1), fault.to_string());
                    chapter
                }
            };
            self.chapters.push(chapter);
        }
    }

    /// Findings with the lines of the chapters' files where a notebook is part of the chapter, and with the notebook's cells.
    pub fn located(&self, findings: Vec<Finding>) -> Vec<Finding> {
        let mut by_chapter: BTreeMap<usize, Vec<Finding>> = BTreeMap::new();
        let mut others = Vec::new();
        for finding in findings {
            let chapter = self
                .chapters
                .iter()
                .position(|chapter| chapter.notebook.is_some() && chapter.path == finding.path);
            match chapter {
                Some(chapter) => by_chapter.entry(chapter).or_default().push(finding),
                None => others.push(finding),
            }
        }
        let placed = by_chapter.into_iter().flat_map(|(at, own)| located(&self.chapters[at], own));
        others.into_iter().chain(placed).collect()
    }

    fn report(&mut self, position: (usize, usize), what: String) {
        self.findings.push(Finding::error(SUMMARY, position, what));
    }

    /// The chapter and the block of an identifier.
    pub fn block(&self, id: BlockId) -> (&Chapter, &Block) {
        let chapter = &self.chapters[id.chapter];
        (chapter, &chapter.blocks[id.block])
    }

    /// All blocks in the order of the book.
    pub fn blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.chapters.iter().enumerate().flat_map(|(chapter, c)| {
            (0..c.blocks.len()).map(move |block| BlockId { chapter, block })
        })
    }

    /// The index of the chapter with this path (`book/src/x.md`).
    pub fn chapter_at(&self, path: &str) -> Option<usize> {
        self.chapters.iter().position(|chapter| chapter.path == path)
    }

    /// Citations of works that `book/references.toml` does not hold.
    pub fn lost_citations(&self) -> Vec<Finding> {
        let works = &self.bibliography.works;
        let mut findings = Vec::new();
        for chapter in &self.chapters {
            for citation in &chapter.citations {
                for key in citation.keys.iter().filter(|key| !works.contains_key(*key)) {
                    let remedy = match nearest(key, works.keys().map(String::as_str)) {
                        Some(known) => format!("did you mean {known}?"),
                        None => "enter the work there".to_string(),
                    };
                    let what = format!("{REFERENCES} holds no work {key}: {remedy}");
                    findings.push(Finding::error(&chapter.path, citation.position, what));
                }
            }
        }
        findings
    }

    /// Finds chunks, roots and labels anew, after chapters have been replaced.
    pub(crate) fn reindex(&mut self) {
        self.chunks.clear();
        self.roots.clear();
        self.labels.clear();
        self.findings.clear();
        self.index();
    }

    fn index(&mut self) {
        let ids: Vec<BlockId> = self.blocks().collect();
        for id in ids {
            let (chapter, block) = self.block(id);
            let mut uses = Vec::new();
            for line in block.code.clone() {
                if let Some(reference) = block.reference(chapter.text.line(line)) {
                    uses.push((reference.name.to_string(), line));
                }
            }
            match block.kind.clone() {
                BlockKind::Plain => {}
                BlockKind::Root(path) => self.roots.entry(path).or_default().push(id),
                BlockKind::Named(name) => {
                    let chunk = self.chunks.entry(name).or_default();
                    let part = chunk.parts.len();
                    chunk.parts.push(id);
                    self.chapters[id.chapter].blocks[id.block].part = part;
                }
            }
            for (name, line) in uses {
                self.chunks.entry(name).or_default().uses.push(Use { block: id, line });
            }
        }
        self.index_labels();
        for chapter in &mut self.chapters {
            self.findings.append(&mut chapter.findings);
        }
    }

    fn index_labels(&mut self) {
        for (index, chapter) in self.chapters.iter().enumerate() {
            let mut ordinal = 0;
            for (math, formula) in chapter.math.iter().enumerate() {
                for mark in &formula.labels {
                    ordinal += 1;
                    if let Some(first) = self.labels.get(&mark.name) {
                        let other = &self.chapters[first.chapter].path;
                        let what = format!(
                            "label {} is already given at {other}:{}",
                            mark.name, first.position.0
                        );
                        self.findings.push(Finding::error(&chapter.path, mark.position, what));
                        continue;
                    }
                    let number = chapter.equation_number(ordinal);
                    let label = Label { chapter: index, math, number, position: mark.position };
                    self.labels.insert(mark.name.clone(), label);
                }
            }
        }
    }
}

/// The findings of a chapter at the lines of its file.
fn located(chapter: &Chapter, findings: Vec<Finding>) -> Vec<Finding> {
    let Some(notebook) = &chapter.notebook else { return findings };
    let place = |finding: Finding| {
        if finding.located {
            return finding;
        }
        let (line, cell) = notebook.origin(finding.line);
        match cell {
            Some(cell) => Finding {
                line,
                column: 1,
                message: format!("{cell}: {}", finding.message),
                located: true,
                ..finding
            },
            None => Finding { line, located: true, ..finding },
        }
    };
    findings.into_iter().map(place).collect()
}
