//! Edits made in the tangled files go back into the chapters.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;

use crate::block::Reference;
use crate::chapter::Chapter;
use crate::citations;
use crate::diff::{self, Hunk};
use crate::expand::{self, File, Line, Origin, Tangled};
use crate::markdown::closes;
use crate::text::Text;
use crate::volume::{BlockId, Book};

/// An edit that has no single home in the book.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The tangled file.
    pub path: String,
    /// The line of the edit in the file as it is, from 1.
    pub line: usize,
    /// Why it cannot be brought back.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.reason)
    }
}

/// What stitching would write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stitched {
    /// The new text of each chapter that changes, by path.
    pub chapters: BTreeMap<String, String>,
    /// The files that carry edits.
    pub edited: BTreeSet<String>,
}

/// A change of a chapter: these lines (from 1; possibly none) become those.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edit {
    lines: Range<usize>,
    with: Vec<String>,
}

/// Finds the home of every edit. `edited` holds the present content of tangled files by path.
///
/// The result is tried out: the new chapters tangle to `edited` byte for byte, and all other
/// files stay as they are. Otherwise everything is refused.
///
/// # Errors
///
/// One refusal for each edit that has no single home.
pub fn stitch(
    book: &Book,
    tangled: &Tangled,
    edited: &BTreeMap<String, String>,
) -> Result<Stitched, Vec<Refusal>> {
    let uses = Uses::count(book, tangled);
    let mut edits: BTreeMap<usize, Vec<Edit>> = BTreeMap::new();
    let mut stitched = Stitched::default();
    let mut refusals = Vec::new();
    for (path, content) in edited {
        let Some(file) = tangled.files.get(path) else {
            refusals.push(refusal(path, 1, "no chapter tangles to this file"));
            continue;
        };
        let pristine = file.content();
        if pristine == *content {
            continue;
        }
        stitched.edited.insert(path.clone());
        if !content.ends_with('\n') {
            let line = content.lines().count().max(1);
            refusals.push(refusal(path, line, "the file must end with a newline"));
            continue;
        }
        let (old, new) = (diff::lines(&pristine), diff::lines(content));
        for hunk in diff::hunks(&old, &new) {
            match (Placing { book, file, uses: &uses, old: &old, new: &new }).place_any(&hunk) {
                Ok(placed) => {
                    for (chapter, edit) in placed {
                        edits.entry(chapter).or_default().push(edit);
                    }
                }
                Err(reason) => refusals.push(refusal(path, hunk.new.start + 1, &reason)),
            }
        }
    }
    if !refusals.is_empty() {
        return Err(refusals);
    }
    for (chapter, edits) in edits {
        let chapter = &book.chapters[chapter];
        stitched.chapters.insert(chapter.path.clone(), rewrite(&chapter.text, edits));
    }
    verify(book, tangled, edited, &stitched)?;
    Ok(stitched)
}

fn refusal(path: &str, line: usize, reason: &str) -> Refusal {
    Refusal { path: path.to_string(), line, reason: reason.to_string() }
}

/// How often each block goes into the program.
struct Uses {
    times: HashMap<BlockId, usize>,
}

impl Uses {
    fn count(book: &Book, tangled: &Tangled) -> Uses {
        let mut uses = Uses { times: HashMap::new() };
        for (path, roots) in &book.roots {
            let sound = tangled.files.contains_key(path);
            for &root in roots {
                uses.block(book, root, sound, &mut Vec::new());
            }
        }
        uses
    }

    /// A block below a broken root counts twice: it cannot be tried out.
    fn block<'a>(&mut self, book: &'a Book, id: BlockId, sound: bool, open: &mut Vec<&'a str>) {
        let times = self.times.entry(id).or_insert(0);
        *times += if sound { 1 } else { 2 };
        if *times > 4 {
            return;
        }
        let (chapter, block) = book.block(id);
        for line in block.code.clone() {
            let Some(reference) = block.reference(chapter.text.line(line)) else { continue };
            let Some(chunk) = book.chunks.get(reference.name) else { continue };
            if open.contains(&reference.name) {
                continue;
            }
            open.push(reference.name);
            for &part in &chunk.parts {
                self.block(book, part, sound, open);
            }
            open.pop();
        }
    }

    fn once(&self, id: BlockId) -> bool {
        self.times.get(&id) == Some(&1)
    }
}

/// Finds the home of the hunks of one file.
struct Placing<'a> {
    book: &'a Book,
    file: &'a File,
    uses: &'a Uses,
    old: &'a [&'a str],
    new: &'a [&'a str],
}

/// Where new lines go: a place in a block.
struct Home<'a> {
    block: BlockId,
    lines: Range<usize>,
    indentation: Cow<'a, str>,
}

type Placed = Vec<(usize, Edit)>;

impl<'a> Placing<'a> {
    /// Places a hunk; where it has no home as it stands, one of its equivalents may have one: an
    /// inserted or removed line that equals its neighbour could as well be the neighbour.
    fn place_any(&self, hunk: &Hunk) -> Result<Placed, String> {
        self.place(hunk).or_else(|reason| {
            let shifted = slides(self.old, self.new, hunk);
            shifted.iter().find_map(|hunk| self.place(hunk).ok()).ok_or(reason)
        })
    }

    fn place(&self, hunk: &Hunk) -> Result<Placed, String> {
        if hunk.old.is_empty() {
            let home = self.insertion(hunk.old.start)?;
            return Ok(vec![self.edit(home, hunk.new.clone())?]);
        }
        let old = &self.file.lines[hunk.old.clone()];
        if let Some(line) = old.iter().find(|line| line.origin != Origin::Code) {
            return Err(self.fixed(line));
        }
        let (first, last) = (&old[0], &old[old.len() - 1]);
        if first.block == last.block && last.line + 1 - first.line == old.len() {
            let home = Home {
                block: first.block,
                lines: first.line..last.line + 1,
                indentation: Cow::Borrowed(&first.indentation),
            };
            return Ok(vec![self.edit(home, hunk.new.clone())?]);
        }
        if hunk.old.len() != hunk.new.len() {
            return Err("an edit over several chunks has no single home".to_string());
        }
        // Line for line, so that each has its own home.
        let lines = old.iter().zip(hunk.new.clone());
        lines
            .map(|(line, new)| {
                let home = Home {
                    block: line.block,
                    lines: line.line..line.line + 1,
                    indentation: Cow::Borrowed(&line.indentation),
                };
                self.edit(home, new..new + 1)
            })
            .collect()
    }

    /// Why a line that is not code cannot change.
    fn fixed(&self, line: &Line) -> String {
        let (chapter, _) = self.book.block(line.block);
        match line.origin {
            Origin::Header => "the header line is not part of any chunk".to_string(),
            _ => format!(
                "\"{}\" stands for a reference in {}:{}: edit it there",
                line.text.trim(),
                chapter.path,
                line.line
            ),
        }
    }

    /// The home of lines inserted before line `at`: in the chunk of the line above them, or at
    /// the start of the chunk that begins there.
    fn insertion(&self, at: usize) -> Result<Home<'a>, String> {
        let Some(above) = at.checked_sub(1).and_then(|at| self.file.lines.get(at)) else {
            return Err("nothing goes above the header line".to_string());
        };
        match above.origin {
            Origin::Code => Ok(Home {
                block: above.block,
                lines: above.line + 1..above.line + 1,
                indentation: Cow::Borrowed(&above.indentation),
            }),
            Origin::Header => {
                let (_, block) = self.book.block(above.block);
                let start = block.code.start;
                Ok(Home { block: above.block, lines: start..start, indentation: Cow::Borrowed("") })
            }
            Origin::Reference => self.start_of_chunk(above, at),
        }
    }

    /// The start of the chunk that a reference brings in; `at` is the line below the reference.
    fn start_of_chunk(&self, reference: &Line, at: usize) -> Result<Home<'a>, String> {
        let (chapter, block) = self.book.block(reference.block);
        let missing = || "there is no chunk below this reference".to_string();
        let found = Reference::parse(chapter.text.line(reference.line), &block.language)
            .ok_or_else(missing)?;
        let parts = &self.book.chunks.get(found.name).ok_or_else(missing)?.parts;
        if let Some(below) = self.file.lines.get(at).filter(|line| parts.contains(&line.block)) {
            let indentation = Cow::Borrowed(below.indentation.as_ref());
            return Ok(Home { block: below.block, lines: below.line..below.line, indentation });
        }
        // An empty chunk receives its first lines.
        let first = *parts.first().ok_or_else(missing)?;
        let start = self.book.block(first).1.code.start;
        let indentation = Cow::Owned(format!("{}{}", reference.indentation, found.indentation));
        Ok(Home { block: first, lines: start..start, indentation })
    }

    /// The new lines at their home, their indentation removed.
    fn edit(&self, home: Home<'_>, new: Range<usize>) -> Result<(usize, Edit), String> {
        let (chapter, block) = self.book.block(home.block);
        if !self.uses.once(home.block) {
            let name = block.name().or(block.root()).unwrap_or("");
            return Err(format!("chunk <<{name}>> is used more than once: edit {}", chapter.path));
        }
        let replaced: Vec<&str> = home.lines.clone().map(|line| chapter.text.line(line)).collect();
        let replaced = replaced.join("\n");
        let mut with = Vec::new();
        for &line in &self.new[new] {
            let stripped = if line.is_empty() {
                line
            } else {
                line.strip_prefix(home.indentation.as_ref()).ok_or_else(|| {
                    format!(
                        "\"{}\" is indented less than its chunk ({} columns)",
                        line.trim(),
                        home.indentation.len()
                    )
                })?
            };
            if stripped.is_empty() && !line.is_empty() {
                return Err("a line of blanks only: leave it empty".to_string());
            }
            if stripped.contains('\r') {
                return Err("a carriage return does not come back from a chapter".to_string());
            }
            if Reference::parse(stripped, &block.language).is_some() {
                return Err(format!("\"{}\" would read as a chunk reference", stripped.trim()));
            }
            if closes(stripped, '`', block.fence.len()) {
                return Err(format!("\"{}\" would close the chunk's fence", stripped.trim()));
            }
            with.push(match block.language.as_str() {
                "rust" => citations::shortened(self.book, stripped, &replaced).into_owned(),
                _ => stripped.to_string(),
            });
        }
        Ok((home.block.chapter, Edit { lines: home.lines, with }))
    }
}

/// All other places at which a pure insertion or a pure deletion has the same effect.
fn slides(old: &[&str], new: &[&str], hunk: &Hunk) -> Vec<Hunk> {
    let text = match (hunk.old.is_empty(), hunk.new.is_empty()) {
        (true, false) => new,
        (false, true) => old,
        _ => return Vec::new(),
    };
    let moved = if hunk.old.is_empty() { hunk.new.clone() } else { hunk.old.clone() };
    let up = (1..=moved.start).take_while(|by| text[moved.start - by] == text[moved.end - by]).map(
        |by| Hunk {
            old: hunk.old.start.saturating_sub(by)..hunk.old.end.saturating_sub(by),
            new: hunk.new.start.saturating_sub(by)..hunk.new.end.saturating_sub(by),
        },
    );
    let down = (0..text.len() - moved.end)
        .take_while(|by| text[moved.start + by] == text[moved.end + by])
        .map(|by| Hunk {
            old: hunk.old.start + by + 1..hunk.old.end + by + 1,
            new: hunk.new.start + by + 1..hunk.new.end + by + 1,
        });
    up.chain(down).filter(|hunk| hunk.old.end <= old.len() && hunk.new.end <= new.len()).collect()
}

/// Applies edits to a chapter; new lines end as the line above them does.
fn rewrite(text: &Text, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| (edit.lines.start, edit.lines.end));
    let mut result = String::with_capacity(text.as_str().len() + 256);
    let mut next = 1;
    for edit in edits {
        for line in next..edit.lines.start {
            result.push_str(text.full_line(line));
        }
        let ending = match text.ending(edit.lines.start.saturating_sub(1)) {
            "" => "\n",
            ending => ending,
        };
        for line in &edit.with {
            result.push_str(line);
            result.push_str(ending);
        }
        next = edit.lines.end.max(next);
    }
    for line in next..=text.line_count() {
        result.push_str(text.full_line(line));
    }
    result
}

/// Tries the new chapters out.
fn verify(
    book: &Book,
    tangled: &Tangled,
    edited: &BTreeMap<String, String>,
    stitched: &Stitched,
) -> Result<(), Vec<Refusal>> {
    let mut changed = book.clone();
    for chapter in &mut changed.chapters {
        if let Some(text) = stitched.chapters.get(&chapter.path) {
            let (number, part) = (chapter.number.clone(), chapter.part.clone());
            let parsed = Chapter::parse(&chapter.title, &chapter.file, number, text.clone());
            *chapter = Chapter { part, ..parsed };
        }
    }
    changed.reindex();
    let again = expand::tangle(&changed);
    let mut refusals = Vec::new();
    for (path, file) in &tangled.files {
        let now = again.files.get(path).map(File::content);
        let want = edited.get(path).cloned().unwrap_or_else(|| file.content());
        if now.as_ref() != Some(&want) {
            let line = now.map_or(1, |now| {
                let same = now.lines().zip(want.lines()).take_while(|(a, b)| a == b).count();
                same + 1
            });
            refusals.push(refusal(path, line, "the edited chapter would not tangle to this again"));
        }
    }
    if again.files.len() != tangled.files.len() && refusals.is_empty() {
        refusals.push(refusal("book", 1, "the edited chapters would tangle to other files"));
    }
    if refusals.is_empty() { Ok(()) } else { Err(refusals) }
}
