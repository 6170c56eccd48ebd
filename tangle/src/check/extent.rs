//! How long the parts of a book are: words of prose, and lines of code.

use std::fmt::Write as _;

use crate::block::Block;
use crate::chapter::Chapter;
use crate::docs::shown_lines;
use crate::volume::Book;

/// The length of some chapters. Code is that of Rust and CUDA chunks; a chunk is one fenced block. Lines
/// of comments that an open chunk hides are folded ones.
#[derive(Default)]
struct Extent {
    chapters: usize,
    words: usize,
    folded_lines: usize,
    /// Shown lines of each open chunk, with its place.
    open: Vec<(usize, String)>,
}

impl Extent {
    fn of<'a>(chapters: impl Iterator<Item = &'a Chapter>) -> Extent {
        let mut extent = Extent::default();
        for chapter in chapters {
            extent.chapters += 1;
            extent.words += words(chapter).iter().sum::<usize>();
            for block in chapter.blocks.iter().filter(|block| is_code(block)) {
                if block.folded {
                    extent.folded_lines += block.code.len();
                } else {
                    let shown = shown_lines(chapter, block);
                    extent.folded_lines += block.code.len() - shown;
                    extent.open.push((shown, format!("{}:{}", chapter.path, block.fence_line)));
                }
            }
        }
        extent
    }

    /// The cells of its row in the table.
    fn row(&self, name: &str) -> [String; 8] {
        let mut lines: Vec<usize> = self.open.iter().map(|&(lines, _)| lines).collect();
        lines.sort_unstable();
        let none = || "-".to_string();
        // The first of several chunks of that length.
        let largest = self.open.iter().rev().max_by_key(|(lines, _)| lines);
        [
            name.to_string(),
            self.chapters.to_string(),
            self.words.to_string(),
            lines.iter().sum::<usize>().to_string(),
            self.folded_lines.to_string(),
            median(&lines).map_or_else(none, |median| median.to_string()),
            largest.map_or_else(none, |(lines, _)| lines.to_string()),
            largest.map_or_else(String::new, |(_, place)| place.clone()),
        ]
    }
}

/// The median of sorted numbers; of an even count, the mean of the two in the middle.
fn median(sorted: &[usize]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some((lower + upper) as f64 / 2.0)
}

/// A row for each part in the order of the book, and one for the whole.
pub fn table(book: &Book) -> String {
    let head = ["part", "chapters", "words", "open", "folded", "median", "largest", "at"];
    let mut rows = vec![head.map(str::to_string)];
    rows.extend(parts(book).into_iter().map(|part| {
        Extent::of(book.chapters.iter().filter(|chapter| part_of(chapter) == part)).row(part)
    }));
    rows.push(Extent::of(book.chapters.iter()).row("whole book"));
    aligned(&rows)
}

/// The words of prose for each open line of code, of each part before the appendices that has such lines.
pub fn ratios(book: &Book) -> Vec<(&str, f64)> {
    let read = |chapter: &&Chapter| !chapter.in_appendix();
    let of_part = |part: &str| {
        let chapters = book.chapters.iter().filter(read);
        let extent = Extent::of(chapters.filter(|chapter| part_of(chapter) == part));
        let open: usize = extent.open.iter().map(|(lines, _)| lines).sum();
        (open > 0).then(|| extent.words as f64 / open as f64)
    };
    parts(book).into_iter().filter_map(|part| Some((part, of_part(part)?))).collect()
}

/// Rows as lines, with names to the left and numbers to the right of their columns.
fn aligned(rows: &[[String; 8]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; 8] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let mut line = format!("{:<width$}", row[0], width = widths[0]);
        for column in 1..7 {
            let _ = write!(line, "  {:>width$}", row[column], width = widths[column]);
        }
        let _ = write!(line, "  {}", row[7]);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The parts in the order of the book, each once.
pub fn parts(book: &Book) -> Vec<&str> {
    let mut parts: Vec<&str> = Vec::new();
    for part in book.chapters.iter().map(part_of) {
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    parts
}

/// The part of a chapter, as it is printed.
pub fn part_of(chapter: &Chapter) -> &str {
    chapter.part.as_deref().unwrap_or("(outside the parts)")
}

/// Whether a block is a chunk of Rust or CUDA.
pub fn is_code(block: &Block) -> bool {
    block.is_chunk() && matches!(block.language.as_str(), "rust" | "cuda")
}

/// The number of words of prose on each line of a chapter. Headings, fenced blocks, displayed
/// formulas and lines of comments contain none; a word has a letter or a digit.
pub fn words(chapter: &Chapter) -> Vec<usize> {
    let mut source = chapter.text.as_str().to_string();
    // Blanks of the same width and number of lines stand in for a displayed formula.
    for formula in chapter.math.iter().filter(|formula| formula.display) {
        let breaks = source[formula.whole()].matches('\n').count();
        let width = formula.whole().len();
        source.replace_range(formula.whole(), &("\n".repeat(breaks) + &" ".repeat(width - breaks)));
    }
    let is_word = |word: &&str| word.chars().any(char::is_alphanumeric);
    let count = |line: &str| match line.trim_start().starts_with("<!--") {
        true => 0,
        false => line.split_whitespace().filter(is_word).count(),
    };
    let mut words: Vec<usize> = source.lines().map(count).collect();
    let blocks = chapter.blocks.iter().map(|block| block.fence_line..=block.closing_line());
    let headings = chapter.headings.iter().map(|heading| heading.line..=heading.line);
    for line in blocks.chain(headings).flatten() {
        if let Some(words) = words.get_mut(line - 1) {
            *words = 0;
        }
    }
    words
}
