//! The terms of the field: the chapter `glossary.md`, and where each part of the book first uses them.
//!
//! An entry is an item of a list on the page: `- **term** (also *synonym*): definition. See
//! [Chapter](chapter.md).` Nobody links terms by hand: the first use of each term in each part is
//! found here, and becomes a link when the book is rendered.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::chapter::Chapter;
use crate::plain::plain;
use crate::text::slug;
use crate::volume::Book;

/// The file of the glossary, relative to `book/src`.
pub const GLOSSARY: &str = "glossary.md";

/// An entry of the glossary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// The term.
    pub name: String,
    /// Its synonyms.
    pub synonyms: Vec<String>,
    /// The definition as plain text, without the link.
    pub definition: String,
    /// Whether a link to a chapter follows the definition.
    pub explained: bool,
    /// The bytes of `**term**` in the glossary.
    pub range: Range<usize>,
    /// Line and column of the entry.
    pub position: (usize, usize),
}

impl Term {
    /// Its anchor on the page.
    pub fn anchor(&self) -> String {
        format!("term-{}", slug(&self.name))
    }

    /// The term and its synonyms.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.name).chain(&self.synonyms).map(String::as_str)
    }
}

/// The entries of the glossary; none where the book has no such chapter.
pub fn terms(book: &Book) -> Vec<Term> {
    let glossary = book.chapters.iter().find(|chapter| chapter.file == GLOSSARY);
    glossary.map_or_else(Vec::new, entries)
}

fn entries(chapter: &Chapter) -> Vec<Term> {
    let text = &chapter.text;
    let first = |line: &usize| text.line(*line).starts_with("- **");
    (1..=text.line_count()).filter(first).filter_map(|line| entry(chapter, line)).collect()
}

/// The entry that starts on a line; it ends with the item of the list.
fn entry(chapter: &Chapter, line: usize) -> Option<Term> {
    let text = &chapter.text;
    let goes_on = |&next: &usize| text.line(next).starts_with("  ");
    let last = (line + 1..=text.line_count()).take_while(goes_on).last().unwrap_or(line);
    let start = text.start_of(line) + "- ".len();
    let item = text.as_str()[start..text.start_of(last + 1)].split_whitespace();
    let item = item.collect::<Vec<_>>().join(" ");
    let (name, rest) = item.strip_prefix("**")?.split_once("**")?;
    let range = start..start + text.as_str()[start + 2..].find("**")? + 4;
    let (synonyms, rest) = match rest.trim_start().strip_prefix("(also ") {
        Some(also) => also.split_once(')')?,
        None => ("", rest),
    };
    let rest = rest.trim_start().strip_prefix(':').unwrap_or(rest).trim();
    let (definition, explained) = match rest.rsplit_once("See [") {
        Some((definition, link)) => (definition.trim(), link.contains(".md")),
        None => (rest, false),
    };
    Some(Term {
        name: name.to_string(),
        synonyms: synonyms.split('*').skip(1).step_by(2).map(str::to_string).collect(),
        definition: plain(definition),
        explained,
        range,
        position: text.position(start),
    })
}

/// The first use of a term in a part of the book.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstUse {
    /// Index of the chapter.
    pub chapter: usize,
    /// The bytes of the term there.
    pub range: Range<usize>,
    /// Index of the term.
    pub term: usize,
}

/// The first use of each term in each part, in the order of the book. What is not in the text of a
/// chapter is no use: headings, code, formulas, links, images, citations, and a word in quotation
/// marks, which is a value. Where one term contains another, the longer one is used.
pub fn first_uses(book: &Book, terms: &[Term]) -> Vec<FirstUse> {
    let phrases = Phrases::new(terms);
    let mut uses = Vec::new();
    let mut seen: HashSet<usize> = HashSet::new();
    let mut part = None;
    for (chapter, page) in book.chapters.iter().enumerate() {
        if part != Some(&page.part) {
            seen.clear();
            part = Some(&page.part);
        }
        if page.file == GLOSSARY || terms.is_empty() {
            continue;
        }
        let words = words(page);
        let mut at = 0;
        while at < words.len() {
            let Some((term, count)) = phrases.longest(page.text.as_str(), &words[at..]) else {
                at += 1;
                continue;
            };
            let (range, text) = (words[at].start..words[at + count - 1].end, page.text.as_str());
            let is_value = text[..range.start].ends_with('"') && text[range.end..].starts_with('"');
            if !is_value && seen.insert(term) {
                uses.push(FirstUse { chapter, range, term });
            }
            at += count;
        }
    }
    uses
}

/// The words of all terms and synonyms.
struct Phrases<'a> {
    /// By the first word in small letters: the words of each phrase, and the index of the term.
    by_first: HashMap<String, Vec<(Vec<&'a str>, usize)>>,
}

impl<'a> Phrases<'a> {
    fn new(terms: &'a [Term]) -> Phrases<'a> {
        let mut by_first: HashMap<String, Vec<(Vec<&str>, usize)>> = HashMap::new();
        for (index, term) in terms.iter().enumerate() {
            for phrase in term.words() {
                let words: Vec<&str> = phrase.split_whitespace().collect();
                let Some(first) = words.first() else { continue };
                by_first.entry(first.to_lowercase()).or_default().push((words, index));
            }
        }
        Phrases { by_first }
    }

    /// The longest phrase with which these words begin: its term, and how many words it has.
    fn longest(&self, source: &str, words: &[Range<usize>]) -> Option<(usize, usize)> {
        let word = |range: &Range<usize>| source.get(range.clone()).unwrap_or("");
        let blank = |pair: &[Range<usize>]| {
            let between = source.get(pair[0].end..pair[1].start).unwrap_or("");
            let blank = between.chars().all(|c| c.is_whitespace() || c == '>');
            blank && between.matches('\n').count() < 2
        };
        let fits = |(phrase, _): &&(Vec<&str>, usize)| {
            let count = phrase.len();
            let pairs = phrase.iter().zip(words).enumerate();
            words.len() >= count
                && pairs.into_iter().all(|(at, (term, w))| agrees(term, word(w), at + 1 == count))
                && words[..count].windows(2).all(blank)
        };
        let first = word(words.first()?).to_lowercase();
        let singular = ["", "s", "es"].into_iter().filter_map(|plural| first.strip_suffix(plural));
        let phrases = singular.filter_map(|first| self.by_first.get(first)).flatten();
        // "Lenslet" is the program, if the glossary has that name, but "Lenslets" begins a sentence.
        let rank = |(phrase, _): &&(Vec<&str>, usize)| {
            let exact = phrase.iter().zip(words).all(|(term, range)| *term == word(range));
            (phrase.len(), exact, phrase[0].starts_with(char::is_lowercase))
        };
        let (phrase, term) = phrases.filter(fits).max_by_key(rank)?;
        Some((*term, phrase.len()))
    }
}

/// Whether a word of the text is that of a term: a capital may begin it, and a plural may end the last.
fn agrees(term: &str, word: &str, last: bool) -> bool {
    let same = |word: &str| {
        let (mut a, mut b) = (term.chars(), word.chars());
        let first = a.next().zip(b.next()).is_some_and(|(a, b)| a == b || a.to_uppercase().eq([b]));
        first && a.as_str() == b.as_str()
    };
    let plural = |ending| word.strip_suffix(ending).is_some_and(same);
    same(word) || last && (plural("s") || plural("es"))
}

/// The words of a chapter's text.
fn words(chapter: &Chapter) -> Vec<Range<usize>> {
    let source = chapter.text.as_str();
    let mut apart: Vec<Range<usize>> = chapter.math.iter().map(|math| math.whole()).collect();
    apart.extend(chapter.citations.iter().map(|citation| citation.range.clone()));
    apart.sort_by_key(|range| range.start);
    let mut words: Vec<Range<usize>> = Vec::new();
    for prose in &chapter.prose {
        let mut start = None;
        for (at, letter) in source[prose.clone()].char_indices().chain([(prose.len(), ' ')]) {
            let at = prose.start + at;
            match (letter.is_alphanumeric() || matches!(letter, '-' | '–' | '&'), start) {
                (true, None) => start = Some(at),
                (false, Some(begin)) => {
                    words.push(begin..at);
                    start = None;
                }
                _ => {}
            }
        }
    }
    words.retain(|word| {
        let next = apart.partition_point(|range| range.end <= word.start);
        apart.get(next).is_none_or(|range| range.start >= word.end)
    });
    words
}

#[cfg(test)]
mod tests {
    use super::{agrees, plain};

    #[test]
    fn a_word_may_begin_with_a_capital_and_end_as_a_plural() {
        assert!(agrees("lenslet", "Lenslets", true) && agrees("lens", "lenses", true));
        assert!(agrees("STEM", "STEM", true) && agrees("Fried", "Fried", false));
        assert!(!agrees("lenslet", "lenslets", false) && !agrees("STEM", "stem", true));
        assert!(!agrees("Fried", "fried", false) && !agrees("lens", "lenslet", true));
    }

    #[test]
    fn hover_text_has_no_markup() {
        assert_eq!(plain("The *mean* of [a wave](a.md#b) in `x`."), "The mean of a wave in x.");
    }
}
