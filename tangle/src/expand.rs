//! From chunks to files: expansion, with the origin of every line.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::citations;
use crate::finding::Finding;
use crate::volume::{BlockId, Book, Use};

/// Past this many lines a file is taken to be a book that doubles itself, not a program.
const MOST_LINES: usize = 200_000;

/// Where a tangled line comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The first line, which names the chapter.
    Header,
    /// A line of code.
    Code,
    /// The comment that a reference has become.
    Reference,
}

/// A line of a tangled file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its text, without an ending.
    pub text: String,
    /// What it is.
    pub origin: Origin,
    /// The block it stands in (for a header: the root).
    pub block: BlockId,
    /// The line of the chapter (for a header: that of the fence).
    pub line: usize,
    /// The indentation that the references above it give to its block (an empty line shows none).
    pub indentation: Arc<str>,
}

/// A tangled file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its path, relative to the repository.
    pub path: String,
    /// The block that roots it.
    pub root: BlockId,
    /// Its lines.
    pub lines: Vec<Line>,
}

impl File {
    /// What is written to disc: every line ends with `\n`.
    pub fn content(&self) -> String {
        let mut content = String::new();
        for line in &self.lines {
            content.push_str(&line.text);
            content.push('\n');
        }
        content
    }
}

/// All files of a book, and what is wrong with the chunks.
#[derive(Debug, Clone, Default)]
pub struct Tangled {
    /// The files that are sound, by path.
    pub files: BTreeMap<String, File>,
    /// Paths that are rooted but whose expansion is broken: they are left as they are.
    pub broken: BTreeSet<String>,
    /// Undefined and cyclic chunks, two roots for one file, paths that leave the repository.
    pub findings: Vec<Finding>,
}

/// How a comment starts in a file.
pub fn comment_of_file(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("toml" | "py" | "sh" | "yaml" | "yml") => "#",
        _ => "//",
    }
}

/// The first line of a tangled file.
pub fn header(path: &str, chapter: &str) -> String {
    let comment = comment_of_file(path);
    format!("{comment} Tangled from {chapter}: edit there, or here and run cargo tangle stitch.")
}

/// The chapter that a file's first line names, if that line is our header.
pub fn header_chapter(first_line: &str) -> Option<&str> {
    let line = first_line.strip_suffix('\n').unwrap_or(first_line);
    let line = line.strip_suffix('\r').unwrap_or(line);
    let rest = line.strip_prefix("// ").or_else(|| line.strip_prefix("# "))?;
    rest.strip_prefix("Tangled from ")?
        .strip_suffix(": edit there, or here and run cargo tangle stitch.")
}

/// What is wrong with the path of a root, by its spelling alone.
pub fn path_fault(path: &str) -> Option<String> {
    if path.is_empty() {
        return Some("a file without a path".to_string());
    }
    if path.starts_with('/') || path.contains(['\\', ':', '\0']) {
        return Some(format!("{path} is not a path inside the repository"));
    }
    for part in path.split('/') {
        match part {
            ".." => return Some(format!("{path} leaves the repository")),
            "" | "." => return Some(format!("{path} is not a plain path")),
            ".git" => return Some(format!("{path} lies in git's own folder")),
            _ => {}
        }
    }
    None
}

/// Expands all roots of a book.
pub fn tangle(book: &Book) -> Tangled {
    let mut tangled = Tangled { findings: undefined(book), ..Tangled::default() };
    tangled.findings.extend(cycles(book));
    for (path, roots) in &book.roots {
        let Some((&root, rest)) = roots.split_first() else { continue };
        let (home, block) = book.block(root);
        let mut faults = Vec::new();
        for &other in rest {
            let what = format!(
                "a second root for {path}: the first is at {}:{}",
                home.path, block.fence_line
            );
            faults.push(at_fence(book, other, what));
        }
        if let Some(fault) = path_fault(path) {
            faults.push(at_fence(book, root, fault));
        }
        let mut expansion = Expansion { book, lines: Vec::new(), open: Vec::new(), unsound: false };
        expansion.lines.push(Line {
            text: header(path, &home.path),
            origin: Origin::Header,
            block: root,
            line: block.fence_line,
            indentation: "".into(),
        });
        if faults.is_empty() {
            expansion.block(root, "");
        }
        let Expansion { lines, unsound, .. } = expansion;
        let unsound = unsound || !faults.is_empty();
        if lines.len() > MOST_LINES {
            let what = format!("{path} would have more than {MOST_LINES} lines");
            faults.push(at_fence(book, root, what));
        }
        if unsound {
            tangled.broken.insert(path.clone());
        } else {
            tangled.files.insert(path.clone(), File { path: path.clone(), root, lines });
        }
        tangled.findings.extend(faults);
    }
    tangled.findings.sort();
    tangled
}

/// A finding at the opening fence of a block.
pub(crate) fn at_fence(book: &Book, id: BlockId, what: String) -> Finding {
    let (chapter, block) = book.block(id);
    Finding::error(&chapter.path, (block.fence_line, 1), what)
}

/// A finding at the line that refers to a chunk.
fn at_use(book: &Book, place: Use, what: String) -> Finding {
    let (chapter, _) = book.block(place.block);
    let line = chapter.text.line(place.line);
    let indentation = line.chars().take_while(|c| c.is_whitespace()).count();
    Finding::error(&chapter.path, (place.line, indentation + 1), what)
}

fn undefined(book: &Book) -> Vec<Finding> {
    let missing = book.chunks.iter().filter(|(_, chunk)| chunk.parts.is_empty());
    missing
        .flat_map(|(name, chunk)| {
            let fold =
                if name.ends_with(" fold") { ": a last word \"fold\" folds a block" } else { "" };
            let what = format!("chunk <<{name}>> is not defined{fold}");
            chunk.uses.iter().map(move |&place| at_use(book, place, what.clone()))
        })
        .collect()
}

/// Reports each reference that closes a circle of chunks.
fn cycles(book: &Book) -> Vec<Finding> {
    let mut inside: BTreeMap<&str, Vec<(&str, Use)>> = BTreeMap::new();
    for (name, chunk) in &book.chunks {
        for &place in &chunk.uses {
            if let Some(outer) = book.block(place.block).1.name() {
                inside.entry(outer).or_default().push((name, place));
            }
        }
    }
    let mut findings = Vec::new();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    for start in book.chunks.keys() {
        // A walk with its own stack: (chunk, how many of its references have been followed).
        let mut path: Vec<(&str, usize)> = vec![(start, 0)];
        if done.contains(start.as_str()) {
            continue;
        }
        while let Some((name, next)) = path.last().copied() {
            let Some(&(inner, place)) = inside.get(name).and_then(|uses| uses.get(next)) else {
                done.insert(name);
                path.pop();
                continue;
            };
            if let Some(last) = path.last_mut() {
                last.1 += 1;
            }
            if let Some(from) = path.iter().position(|&(open, _)| open == inner) {
                let circle: Vec<&str> = path[from..].iter().map(|&(open, _)| open).collect();
                let what =
                    format!("chunk <<{inner}>> uses itself: {} → {inner}", circle.join(" → "));
                findings.push(at_use(book, place, what));
            } else if !done.contains(inner) {
                path.push((inner, 0));
            }
        }
    }
    findings
}

/// The expansion of one root.
struct Expansion<'a> {
    book: &'a Book,
    lines: Vec<Line>,
    open: Vec<&'a str>,
    /// Something undefined, cyclic or endless was met.
    unsound: bool,
}

impl<'a> Expansion<'a> {
    /// Brings in a block; every line that is not empty receives `indentation`.
    fn block(&mut self, id: BlockId, indentation: &str) {
        let book: &'a Book = self.book;
        let (chapter, block) = book.block(id);
        let shared: Arc<str> = indentation.into();
        for line in block.code.clone() {
            if self.lines.len() > MOST_LINES {
                self.unsound = true;
                return;
            }
            let text = chapter.text.line(line);
            let reference = block.reference(text);
            let shown = match &reference {
                Some(reference) => format!("{indentation}{}", reference.tangled()),
                None if text.is_empty() => String::new(),
                None if block.language == "rust" => {
                    format!("{indentation}{}", citations::spelt_out(book, text))
                }
                None => format!("{indentation}{text}"),
            };
            let origin = if reference.is_some() { Origin::Reference } else { Origin::Code };
            let given = Arc::clone(&shared);
            self.lines.push(Line { text: shown, origin, block: id, line, indentation: given });
            if let Some(reference) = reference {
                self.chunk(reference.name, &format!("{indentation}{}", reference.indentation));
            }
        }
    }

    fn chunk(&mut self, name: &'a str, indentation: &str) {
        let book: &'a Book = self.book;
        let parts = book.chunks.get(name).map(|chunk| chunk.parts.as_slice()).unwrap_or(&[]);
        if parts.is_empty() || self.open.contains(&name) || self.open.len() > 100 {
            self.unsound = true;
            return;
        }
        self.open.push(name);
        for &part in parts {
            self.block(part, indentation);
        }
        self.open.pop();
    }
}
