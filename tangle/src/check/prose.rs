//! What only new prose can correct, counted: `check --prose`.

use std::cmp::Reverse;
use std::fmt::Write as _;

use crate::chapter::Chapter;
use crate::check::extent::{self, is_code, part_of, parts, words};
use crate::check::shape::{self, in_narrative, is_main};
use crate::check::{order, phrases, sources};
use crate::volume::Book;

/// A rule, and where the book does not follow it.
struct Count {
    rule: String,
    /// Indices of chapters with the lines in question, in the order of the book.
    chapters: Vec<(usize, Vec<usize>)>,
}

impl Count {
    /// Counts by a function that gives the lines in a chapter.
    fn new(rule: &str, book: &Book, lines: impl Fn(&Chapter) -> Vec<usize>) -> Count {
        let lines = book.chapters.iter().map(lines).enumerate();
        let chapters = lines.filter(|(_, lines)| !lines.is_empty()).collect();
        Count { rule: rule.to_string(), chapters }
    }
}

/// The counts of all rules that the book does not follow, by part and chapter, most first.
pub fn report(book: &Book) -> String {
    let misnamed = order::check(book);
    let order = |chapter: &Chapter| -> Vec<usize> {
        let here = misnamed.iter().filter(|finding| finding.path == chapter.path);
        here.map(|finding| finding.line).collect()
    };
    let counts = [
        Count::new("open chunks without prose since the previous chunk", book, bare_chunks),
        Count::new(
            "links to the next, previous, last or first chapter that is another",
            book,
            order,
        ),
    ];
    let counts = counts.into_iter().chain(narrative(book)).chain(main(book));
    let counts = counts.filter(|count| !count.chapters.is_empty());
    let lists = counts.map(|count| list(book, &count)).chain(thin_parts(book));
    lists.collect::<Vec<_>>().join("\n")
}

/// What all chapters of the parts that are read in order have to follow.
fn narrative(book: &Book) -> Vec<Count> {
    let count = |rule: &str, lines: fn(&Chapter) -> Vec<usize>| {
        let within = |chapter: &Chapter| match in_narrative(chapter) {
            true => lines(chapter),
            false => Vec::new(),
        };
        Count::new(rule, book, within)
    };
    let early = |chapter: &Chapter| early_equation(chapter).into_iter().collect();
    let opening = |chapter: &Chapter| match chapter.map_line() {
        Some(_) => shape::without_picture(chapter),
        None => Vec::new(),
    };
    let mut sources = sources::unbound(book, |chapter| !chapter.in_appendix());
    let sources = (0..book.chapters.len()).filter_map(|index| sources.remove_entry(&index));
    vec![
        count("narrative chapters with an equation before any drawing", early),
        count("narrative chapters that do not begin with their question", shape::without_question),
        count("parts that open without a picture", opening),
        count("captions of figures without a number", shape::captions_without_number),
        count("exercises that are not rated by time", shape::unrated_exercises),
        count("phrases that plain ones should replace", phrases::lines),
        Count {
            rule: "numbers of three or more digits without a source".to_string(),
            chapters: sources.collect(),
        },
    ]
}

/// What the chapters that are not nested in others have to hold.
fn main(book: &Book) -> Vec<Count> {
    let count = |rule: &str, lines: &dyn Fn(&Chapter) -> Vec<usize>| {
        let within = |chapter: &Chapter| match is_main(chapter) {
            true => lines(chapter),
            false => Vec::new(),
        };
        Count::new(rule, book, within)
    };
    let heading = |words: &'static [&'static str]| {
        move |chapter: &Chapter| shape::without_heading(chapter, words)
    };
    vec![
        count("main chapters without a picture", &shape::without_picture),
        count("main chapters without a worked case", &heading(&["worked case"])),
        count("main chapters without what can go wrong", &heading(&["can go wrong"])),
        count("main chapters without a check", &heading(&["check", "comparison"])),
        count("main chapters with fewer than three exercises", &shape::few_exercises),
        count("main chapters without further reading", &heading(&["further reading"])),
        count("main chapters without a citation", &shape::without_citation),
    ]
}

/// The parts that are read in order with fewer than five words for each open line of code.
fn thin_parts(book: &Book) -> Option<String> {
    let thin: Vec<String> = extent::ratios(book)
        .into_iter()
        .filter(|(_, ratio)| *ratio < 5.0)
        .map(|(part, ratio)| format!("  {ratio:.1} {part}\n"))
        .collect();
    let rule = "narrative parts with fewer than five words for each open line of code";
    (!thin.is_empty()).then(|| format!("{rule}: {}\n{}", thin.len(), thin.concat()))
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

/// The line of the first displayed equation, if no drawing precedes it.
fn early_equation(chapter: &Chapter) -> Option<usize> {
    let equation = chapter.math.iter().find(|formula| formula.display)?.position;
    let drawn = chapter.links.iter().any(|link| link.image && link.position < equation);
    (!drawn).then_some(equation.0)
}
