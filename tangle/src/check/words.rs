//! The words of a chapter that a reader reads, byte for byte at their places.

use std::ops::Range;

use crate::chapter::Chapter;
use crate::math::Math;

/// The text of a chapter with blanks for code, lines of comments and the formulas that are not kept.
pub fn words_only(chapter: &Chapter, keep: impl Fn(&Math) -> bool) -> String {
    let line = |number: usize| chapter.text.start_of(number)..chapter.text.start_of(number + 1);
    let comment = |number: &usize| chapter.text.line(*number).trim_start().starts_with("<!--");
    let comments = (1..=chapter.text.line_count()).filter(comment).map(line);
    let formulas = chapter.math.iter().filter(|math| !keep(math)).map(Math::whole);
    let hidden = chapter.literal.iter().cloned().chain(formulas).chain(comments);
    blanked(chapter.text.as_str(), hidden).replace('~', " ")
}

/// A text with blanks for whole characters of some ranges; the lines stay.
pub fn blanked(text: &str, ranges: impl IntoIterator<Item = Range<usize>>) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for range in ranges {
        for byte in &mut bytes[range] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    }
    // Whole characters have been replaced: this loses nothing.
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Paragraphs, entries of lists, rows of tables and headings.
pub fn paragraphs(text: &str) -> Vec<Range<usize>> {
    divided(text, |words| ["#", "|", "[^"].iter().any(|mark| words.starts_with(mark)))
}

/// Paragraphs, each with the table that follows it, entries of lists and headings: what one source
/// of numbers may serve.
pub fn passages(text: &str) -> Vec<Range<usize>> {
    let mut passages: Vec<Range<usize>> = Vec::new();
    for passage in divided(text, |words| words.starts_with('#')) {
        let table = text[passage.clone()].trim_start().starts_with('|');
        match passages.last_mut().filter(|_| table) {
            Some(last) => last.end = passage.end,
            None => passages.push(passage),
        }
    }
    passages
}

/// The text divided at blank lines, entries of lists, and lines that begin as `begins` tells.
fn divided(text: &str, begins: impl Fn(&str) -> bool) -> Vec<Range<usize>> {
    let mut paragraphs: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    let mut inside = false;
    for line in text.split_inclusive('\n') {
        let words = line.trim_start_matches([' ', '>']);
        let number = words.trim_start_matches(|c: char| c.is_ascii_digit());
        let entry = ["- ", "* ", "+ "].iter().any(|mark| words.starts_with(mark))
            || number.len() < words.len() && number.starts_with(". ")
            || begins(words);
        let end = at + line.len();
        match paragraphs.last_mut().filter(|_| inside && !entry) {
            Some(last) => last.end = end,
            None => paragraphs.push(at..end),
        }
        inside = !words.trim().is_empty() && !words.starts_with('#');
        at = end;
    }
    paragraphs
}
