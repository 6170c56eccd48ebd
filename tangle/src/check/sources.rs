//! Numbers in prose without a source: nothing that is run or cited holds them.
//!
//! A number counts from three significant digits on; years and powers of two do not. Its source is the code of its page (chunks,
//! outputs, the program that draws a figure of the page, files that the page includes), or, for a passage, a work that it cites, a
//! chapter that it links, or a file that it names in code font. The source holds the number with the same digits, rounded.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;

use crate::chapter::Chapter;
use crate::check::links::{chapter_of, resolve};
use crate::check::words::{blanked, passages, words_only};
use crate::text::names_figure;
use crate::volume::Book;

/// The lines of numbers without a source, for each chapter of the book that `of` chooses.
pub fn unbound(book: &Book, of: impl Fn(&Chapter) -> bool) -> BTreeMap<usize, Vec<usize>> {
    let programs = book.programs();
    let pages: Vec<Option<BTreeSet<String>>> =
        book.chapters.iter().map(|chapter| page(book, chapter, &programs)).collect();
    let chosen = book.chapters.iter().enumerate().filter(|(_, chapter)| of(chapter));
    let lines = chosen.filter_map(|(index, chapter)| {
        Some((index, chapter_lines(book, chapter, pages[index].as_ref()?, &pages)))
    });
    lines.filter(|(_, lines)| !lines.is_empty()).collect()
}

/// The lines of a chapter with numbers that neither its page nor their passage has a source for.
fn chapter_lines(
    book: &Book,
    chapter: &Chapter,
    own: &BTreeSet<String>,
    pages: &[Option<BTreeSet<String>>],
) -> Vec<usize> {
    let text = readable(chapter);
    let mut lines = Vec::new();
    for passage in passages(&text) {
        let open: Vec<Number> = numbers(&text[passage.clone()])
            .into_iter()
            .filter(|number| number.needs_source() && !number.is_in(own))
            .collect();
        let cites = chapter.citations.iter().any(|cited| passage.contains(&cited.range.start));
        if open.is_empty() || cites {
            continue;
        }
        let others = named_sources(book, chapter, &passage, pages);
        let lost = open.iter().filter(|number| !others.iter().any(|other| number.is_in(other)));
        lines.extend(lost.map(|number| chapter.text.line_at(passage.start + number.at)));
    }
    lines.dedup();
    lines
}

/// The text of a chapter without code, displayed formulas and the targets of links.
fn readable(chapter: &Chapter) -> String {
    let text = words_only(chapter, |math| !math.display);
    let targets = text.match_indices("](").map(|(at, _)| {
        let end = text[at..].find(')').map_or(text.len(), |length| at + length);
        at..end
    });
    let targets: Vec<Range<usize>> = targets.collect();
    blanked(&text, targets)
}

/// The numbers that a page computes or shows; `None` if it includes an output that has not been
/// computed yet.
fn page(book: &Book, chapter: &Chapter, programs: &[String]) -> Option<BTreeSet<String>> {
    let mut held = BTreeSet::new();
    for block in &chapter.blocks {
        for line in block.code.clone().map(|line| chapter.text.line(line)) {
            match line.strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}")) {
                Some(file) => {
                    let path = book.root.join("book/src").join(file);
                    hold(&fs::read_to_string(path).ok()?, &mut held);
                }
                None => hold(line, &mut held),
            }
        }
    }
    for link in chapter.links.iter().filter(|link| link.image) {
        let Some(path) = resolve(&chapter.file, &link.target) else { continue };
        match path.strip_prefix("figures/") {
            Some(figure) => {
                let drawing = programs.iter().filter(|program| names_figure(program, figure));
                drawing.for_each(|program| hold(program, &mut held));
            }
            None => {
                let drawn = fs::read_to_string(book.root.join("book/src").join(path));
                hold(&drawn.unwrap_or_default(), &mut held);
            }
        }
    }
    Some(held)
}

/// The numbers of the chapters that a passage links and of the files that it names.
fn named_sources<'a>(
    book: &Book,
    chapter: &Chapter,
    passage: &Range<usize>,
    pages: &'a [Option<BTreeSet<String>>],
) -> Vec<Cow<'a, BTreeSet<String>>> {
    let lines = chapter.text.line_at(passage.start)..=chapter.text.line_at(passage.end.max(1) - 1);
    let linked = chapter.links.iter().filter(|link| lines.contains(&link.position.0));
    let chapters = linked.filter_map(|link| chapter_of(book, chapter, &link.target));
    let chapters = chapters.filter_map(|index| pages[index].as_ref()).map(Cow::Borrowed);
    let source = chapter.text.as_str();
    let inside = |range: &&Range<usize>| passage.contains(&range.start);
    let spans =
        chapter.literal.iter().filter(inside).map(|range| source[range.clone()].trim_matches('`'));
    let files = spans.filter(|name| name.contains('/')).filter_map(|name| {
        let mut held = BTreeSet::new();
        hold(&fs::read_to_string(book.root.join(name)).ok()?, &mut held);
        Some(Cow::Owned(held))
    });
    chapters.chain(files).collect()
}

/// Adds the digits of all numbers of a text.
fn hold(text: &str, held: &mut BTreeSet<String>) {
    held.extend(numbers(text).into_iter().map(|number| number.digits));
    let joined: String = text.chars().filter(|&c| c != '_').collect();
    if joined.len() != text.len() {
        held.extend(numbers(&joined).into_iter().map(|number| number.digits));
    }
}

/// A number as it is written.
struct Number {
    /// Its significant digits, without zeros at either end.
    digits: String,
    /// How many digits it states from the first one that is not 0.
    stated: usize,
    /// Whether it is a whole number.
    whole: bool,
    /// Where it begins.
    at: usize,
}

impl Number {
    /// Whether it is precise enough to come from somewhere: not a year or a power of two.
    fn needs_source(&self) -> bool {
        let zeros = "0".repeat(self.stated.saturating_sub(self.digits.len()));
        let value = format!("{}{zeros}", self.digits).parse::<u64>().ok().filter(|_| self.whole);
        let year = value.is_some_and(|value| (1800..2100).contains(&value));
        self.digits.len() >= 3 && !year && !value.is_some_and(u64::is_power_of_two)
    }

    /// Whether a source has it, perhaps with more digits. Zeros at the end of a whole number may
    /// be rounded ones.
    fn is_in(&self, held: &BTreeSet<String>) -> bool {
        let rounded_as = |digits: usize| {
            held.iter().any(|other| rounded(other, digits).as_deref() == Some(&self.digits))
        };
        held.contains(&self.digits)
            || rounded_as(self.stated)
            || self.whole && rounded_as(self.digits.len())
    }
}

/// Significant digits rounded to a smaller number of them, without zeros at the end; `None` if
/// there are no more than that.
fn rounded(digits: &str, to: usize) -> Option<String> {
    let (kept, rest) = digits.split_at_checked(to).filter(|(_, rest)| !rest.is_empty())?;
    let mut kept: Vec<u8> = kept.bytes().collect();
    if rest.as_bytes()[0] >= b'5' {
        let nines = kept.iter().rev().take_while(|&&digit| digit == b'9').count();
        kept.truncate(kept.len() - nines);
        match kept.last_mut() {
            Some(last) => *last += 1,
            None => kept.push(b'1'),
        }
    }
    let kept: String = kept.into_iter().map(char::from).collect();
    Some(kept.trim_end_matches('0').to_string())
}

/// What may separate groups of three digits.
const SEPARATORS: [&str; 6] = ["\u{202f}", "\u{a0}", "\\,", "{,}", ",", " "];

/// All numbers of a text that are not part of a word.
fn numbers(text: &str) -> Vec<Number> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find(|c: char| c.is_ascii_digit()).map(|skip| at + skip) {
        let digits = |from: usize| {
            let rest = text[from..].bytes();
            from + rest.take_while(u8::is_ascii_digit).count()
        };
        let mut end = digits(start);
        let mut written = text[start..end].to_string();
        if end - start <= 3 {
            while let Some(group) = SEPARATORS.iter().find_map(|separator| {
                let from = text[end..].starts_with(separator).then(|| end + separator.len())?;
                (digits(from) == from + 3).then(|| from..from + 3)
            }) {
                written.push_str(&text[group.clone()]);
                end = group.end;
            }
        }
        let fraction = text[end..].starts_with('.').then(|| end + 1..digits(end + 1));
        let fraction = fraction.filter(|fraction| !fraction.is_empty());
        let whole = fraction.is_none();
        if let Some(fraction) = fraction {
            written.push_str(&text[fraction.clone()]);
            end = fraction.end;
        }
        let of_a_word = text[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        // `1.2.3` is a version.
        let version = text[end..].starts_with('.') && digits(end + 1) > end + 1;
        if !of_a_word && !version {
            let stated = written.trim_start_matches('0');
            let number = stated.trim_end_matches('0').to_string();
            found.push(Number { digits: number, stated: stated.len(), whole, at: start });
        }
        at = if version { digits(end + 1) } else { end };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Number, numbers, rounded, unbound};
    use crate::volume::Book;

    /// The numbers of a text that need a source, as digits.
    fn needing(text: &str) -> Vec<String> {
        let needing = numbers(text).into_iter().filter(Number::needs_source);
        needing.map(|number| number.digits).collect()
    }

    #[test]
    fn numbers_are_read_with_their_digits() {
        let text = "209 nm, 0.0229, $6.88\\cdot10^{-4}$; 10\u{202f}952 and 60 104, 1,234; 2.50 m, 0.500, 500, 36 000, H200, \
                    f64, x_123, Noll 1976, 512, 1.2.345, 17; 12345 678.";
        let expected = ["209", "229", "688", "10952", "60104", "1234", "12345", "678"];
        assert_eq!(needing(text), expected);
    }

    #[test]
    fn digits_are_rounded_to_fewer() {
        let cases = [
            ("20897", 3, Some("209")),
            ("1996", 3, Some("2")),
            ("9996", 3, Some("1")),
            ("688388", 3, Some("688")),
        ];
        for (digits, to, expected) in cases {
            assert_eq!(rounded(digits, to).as_deref(), expected, "{digits}");
        }
        assert_eq!((rounded("209", 3), rounded("20", 3)), (None, None));
    }

    /// The lines without source of a chapter; the chapter b holds 4.321 in its code.
    fn lines(text: &str) -> Vec<usize> {
        let book = Book::from_sources("- [A](a.md)\n- [B](b.md)\n", |path| {
            Ok(match path {
                "book/src/a.md" => format!("# A\n\n{text}\n"),
                _ => "# B\n\n```rust\nlet b = 4.321;\n```\n".to_string(),
            })
        });
        unbound(&book, |_| true).remove(&0).unwrap_or_default()
    }

    #[test]
    fn a_source_is_on_the_page_or_named_by_the_passage() {
        let code = "```rust #fold\nassert!(x - 2.0897e-7 < 1e-9 && n == 12_345);\n```\n";
        assert_eq!(lines("It is 209 nm and\n207 nm."), [3, 4]);
        assert_eq!(
            lines(&format!(
                "It is 209 nm, not\n207 nm, of 12 345, or 12 300, not 12 400.\n\n{code}"
            )),
            [4]
        );
        assert_eq!(lines("It is 4.32 by [B](b.md).\n\nIt is 4.32."), [5]);
        assert_eq!(lines("It is 4.33 by [B](b.md)."), [3]);
        assert_eq!(lines("It is 207 [@noll-1976].\n\n- 207\n- 207 [@noll-1976]"), [5]);
        assert_eq!(lines("By [B](b.md):\n\n| x |\n|---|\n| 4.32 |\n| 4.33 |"), [8]);
        assert_eq!(
            lines("`207`, [x](https://x.org/207), <!-- 207 -->\n\n<!-- 207 -->\n\n$$ 207 $$"),
            [3]
        );
    }
}
