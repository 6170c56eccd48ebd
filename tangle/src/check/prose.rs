//! What only new prose can correct, counted: `check --prose`.

use std::cmp::Reverse;
use std::fmt::Write as _;

use crate::chapter::Chapter;
use crate::check::extent::{is_code, part_of, parts, table, words};
use crate::check::order;
use crate::docs::shown_lines;
use crate::volume::Book;

/// Past this many lines an open chunk is counted.
const MOST_OPEN_LINES: usize = 30;

/// A rule, and where the book does not follow it.
struct Count {
    rule: String,
    /// Indices of chapters with the lines in question, in the order of the book.
    chapters: Vec<(usize, Vec<usize>)>,
}

impl Count {
    /// Counts by a function that gives the lines in a chapter.
    fn new(rule: impl Into<String>, book: &Book, lines: impl Fn(&Chapter) -> Vec<usize>) -> Count {
        let lines = book.chapters.iter().map(lines).enumerate();
        let chapters = lines.filter(|(_, lines)| !lines.is_empty()).collect();
        Count { rule: rule.into(), chapters }
    }
}

/// The counts of all rules by part and chapter, most first, and a table of the length of each part.
pub fn report(book: &Book) -> String {
    let narrative = |chapter: &Chapter| chapter.part.is_some() && !chapter.in_appendix();
    let misnamed = order::check(book);
    let counts = [
        Count::new("open chunks without prose since the previous chunk", book, bare_chunks),
        Count::new(format!("open chunks above {MOST_OPEN_LINES} lines"), book, long_chunks),
        Count::new("narrative chapters with an equation before any drawing", book, |chapter| {
            let early = early_equation(chapter).filter(|_| narrative(chapter));
            early.into_iter().collect()
        }),
        Count::new(
            "links to the next, previous, last or first chapter that is another",
            book,
            |c| {
                let here = misnamed.iter().filter(|finding| finding.path == c.path);
                here.map(|finding| finding.line).collect()
            },
        ),
    ];
    let lists: String = counts.iter().map(|count| list(book, count) + "\n").collect();
    lists + &table(book)
}

/// The total of a rule, then its parts, each with its chapters and their lines.
fn list(book: &Book, count: &Count) -> String {
    let total = |chapters: &[&(usize, Vec<usize>)]| -> usize {
        chapters.iter().map(|(_, lines)| lines.len()).sum()
    };
    let all: Vec<_> = count.chapters.iter().collect();
    let mut text = format!("{}: {}\n", count.rule, total(&all));
    let within = |part: &str| -> Vec<_> {
        let of_part = |(index, _): &&(usize, _)| part_of(&book.chapters[*index]) == part;
        count.chapters.iter().filter(of_part).collect()
    };
    let mut parts: Vec<_> = parts(book).into_iter().map(|part| (part, within(part))).collect();
    parts.retain(|(_, chapters)| !chapters.is_empty());
    parts.sort_by_key(|(_, chapters)| Reverse(total(chapters)));
    for (part, mut chapters) in parts {
        let _ = writeln!(text, "  {} {part}", total(&chapters));
        chapters.sort_by_key(|(_, lines)| Reverse(lines.len()));
        for (index, lines) in chapters {
            let path = &book.chapters[*index].path;
            let places: Vec<String> = lines.iter().map(usize::to_string).collect();
            let _ = writeln!(text, "    {} {path}: {}", lines.len(), places.join(", "));
        }
    }
    text
}

/// The lines of the open chunks that no word of prose separates from the chunk before, or from the
/// start of the chapter.
fn bare_chunks(chapter: &Chapter) -> Vec<usize> {
    let words = words(chapter);
    let mut from = 0;
    let mut bare = Vec::new();
    for block in chapter.blocks.iter().filter(|block| block.is_chunk()) {
        let between = words.get(from..block.fence_line - 1).unwrap_or_default();
        if is_code(block) && !block.folded && between.iter().all(|&count| count == 0) {
            bare.push(block.fence_line);
        }
        from = block.closing_line();
    }
    bare
}

/// The lines of the open chunks that show too many lines. One of several blocks is judged by itself.
fn long_chunks(chapter: &Chapter) -> Vec<usize> {
    let open = chapter.blocks.iter().filter(|block| is_code(block) && !block.folded);
    let long = open.filter(|block| shown_lines(chapter, block) > MOST_OPEN_LINES);
    long.map(|block| block.fence_line).collect()
}

/// The line of the first displayed equation, if no drawing precedes it.
fn early_equation(chapter: &Chapter) -> Option<usize> {
    let equation = chapter.math.iter().find(|formula| formula.display)?.position;
    let drawn = chapter.links.iter().any(|link| link.image && link.position < equation);
    (!drawn).then_some(equation.0)
}
