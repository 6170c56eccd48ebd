//! References by numbers written by hand, "chapter 12" or "Eq. (4)", which are wrong as soon as the book
//! changes.
//!
//! Numbers of other works are fine. A sentence (of a list, an entry) speaks of another work if it holds a
//! year, a citation `[@key]`, a title in italics that begins with a capital, one of the words of
//! [`OTHER_WORK`], or if "of" and a name follow the number. The whole title of a part, "Part I Air", is fine
//! as well: `lists` compares it with the table of contents.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::chapter::Chapter;
use crate::check::words::{paragraphs, words_only};
use crate::finding::Finding;
use crate::volume::Book;

/// What a book numbers, as prose names it, which numbers may follow, and what to write instead.
const NUMBERED: [(&[&str], &[Numeral], &str); 5] = [
    (
        &["chapter", "chapters", "section", "sections", "sec.", "secs.", "§"],
        &[Numeral::Arabic, Numeral::Roman],
        "link it by its title",
    ),
    (
        &["equation", "equations", "eq.", "eqs."],
        &[Numeral::Arabic],
        "cite its label, $\\eqref{eq:name}$",
    ),
    (
        &["figure", "figures", "fig.", "figs.", "table", "tables"],
        &[Numeral::Arabic],
        "link it, or say what it shows",
    ),
    (&["part", "parts"], &[Numeral::Roman], "link its first chapter by its title"),
    (&["appendix", "appendices"], &[Numeral::Letter, Numeral::Arabic], "link its title"),
];

/// A way to write a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numeral {
    /// `12`, `3.2`
    Arabic,
    /// `IV`
    Roman,
    /// `A`
    Letter,
}

/// Words of a sentence about another work.
const OTHER_WORK: [&str; 14] = [
    "their", "his", "her", "et", "paper", "papers", "article", "thesis", "manual", "standard",
    "original", "document", "edition", "handbook",
];

/// References to a chapter, an equation, a figure, a part or an appendix of this book by its number.
pub fn check(book: &Book) -> Vec<Finding> {
    let parts: BTreeSet<&str> =
        book.chapters.iter().filter_map(|chapter| chapter.part.as_deref()).collect();
    book.chapters.iter().flat_map(|chapter| chapter_findings(chapter, &parts)).collect()
}

fn chapter_findings(chapter: &Chapter, parts: &BTreeSet<&str>) -> Vec<Finding> {
    let text = words_only(chapter, |_| false);
    let mut findings = Vec::new();
    for paragraph in paragraphs(&text) {
        for sentence in sentences(&text, paragraph) {
            for (reference, instead) in references(&text[sentence.clone()]) {
                let words = &text[sentence.clone()];
                let whole = parts.iter().any(|part| words[reference.start..].starts_with(part));
                if whole || of_another_work(words, reference.end) {
                    continue;
                }
                let spelt = words[reference.clone()].split_whitespace().collect::<Vec<_>>();
                let what = format!(
                    "\"{}\" is a number written by hand, wrong when the book changes: {instead}",
                    spelt.join(" ")
                );
                let place = chapter.text.position(sentence.start + reference.start);
                findings.push(Finding::error(&chapter.path, place, what));
            }
        }
    }
    findings
}

/// The sentences of a paragraph. One ends with a full stop before a word in capitals, but not after an
/// initial.
fn sentences(text: &str, paragraph: Range<usize>) -> Vec<Range<usize>> {
    let mut sentences = Vec::new();
    let mut start = paragraph.start;
    for (at, _) in text[paragraph.clone()].match_indices(['.', '!', '?']) {
        let end = paragraph.start + at + 1;
        let rest = &text[end..paragraph.end];
        let next = rest.trim_start().chars().next();
        let last = text[start..end - 1].rsplit([' ', '\n', '-']).next().unwrap_or("");
        let initial = last.chars().count() == 1;
        let begins = next.is_some_and(|c| c.is_uppercase() || "*[\"“".contains(c));
        if rest.starts_with(char::is_whitespace) && begins && !initial {
            sentences.push(start..end);
            start = end;
        }
    }
    sentences.push(start..paragraph.end);
    sentences
}

/// The references by number in a sentence, each with what to write instead.
fn references(sentence: &str) -> Vec<(Range<usize>, &'static str)> {
    let place = |word: &str| word.as_ptr() as usize - sentence.as_ptr() as usize;
    let words: Vec<&str> = sentence.split_whitespace().collect();
    let mut found = Vec::new();
    for pair in words.windows(2) {
        let name = pair[0].trim_start_matches(|c: char| !c.is_alphanumeric() && c != '§');
        let number = pair[1].trim_start_matches(['(', '[']);
        let kind = NUMBERED.iter().find(|(names, ..)| names.contains(&&*name.to_lowercase()));
        let Some((_, numerals, instead)) = kind else { continue };
        if let Some(length) = numerals.iter().find_map(|&numeral| numeral_length(number, numeral)) {
            let closed = pair[1].starts_with('(') && number[length..].starts_with(')');
            let end = place(number) + length + usize::from(closed);
            found.push((place(name)..end, *instead));
        }
    }
    for word in words.iter().filter(|word| word.starts_with('§') && word.len() > '§'.len_utf8()) {
        let number = &word['§'.len_utf8()..];
        if let Some(length) = numeral_length(number, Numeral::Arabic) {
            found.push((place(word)..place(number) + length, NUMBERED[0].2));
        }
    }
    found
}

/// The length of the number that a word begins with, if nothing but a sign follows.
fn numeral_length(word: &str, numeral: Numeral) -> Option<usize> {
    let belongs = |c: char| match numeral {
        Numeral::Arabic => c.is_ascii_digit() || c == '.',
        Numeral::Roman => "IVXL".contains(c),
        Numeral::Letter => c.is_ascii_uppercase(),
    };
    let number = &word[..word.find(|c| !belongs(c)).unwrap_or(word.len())];
    let number = number.trim_end_matches('.');
    let whole = !word[number.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '-');
    let letter = numeral != Numeral::Letter || number.len() == 1;
    let begins = numeral != Numeral::Arabic || number.starts_with(|c: char| c.is_ascii_digit());
    (!number.is_empty() && whole && letter && begins).then_some(number.len())
}

/// Whether a sentence speaks of another work; the number ends at `end`.
fn of_another_work(sentence: &str, end: usize) -> bool {
    let mut words = sentence.split(|c: char| !c.is_alphanumeric());
    let year = |word: &str| {
        word.len() == 4 && word.parse().is_ok_and(|year: usize| (1800..2100).contains(&year))
    };
    let telling = words.any(|word| year(word) || OTHER_WORK.contains(&&*word.to_lowercase()));
    let mut following = sentence[end..].split_whitespace();
    let of_a_name = following.next() == Some("of")
        && following.next().is_some_and(|name| name.starts_with(char::is_uppercase));
    let titles = sentence.split('*').skip(1).step_by(2);
    telling
        || of_a_name
        || sentence.contains("[@")
        || titles.into_iter().any(|title| title.starts_with(char::is_uppercase))
}

#[cfg(test)]
mod tests {
    use super::{check, references};
    use crate::volume::Book;

    /// The places and references that are found in a chapter.
    fn found(text: &str) -> Vec<(usize, usize, String)> {
        let book = Book::from_sources("- [A](a.md)\n", |_| Ok(text.to_string()));
        let quoted = |message: &str| message.split('"').nth(1).unwrap_or("").to_string();
        check(&book).iter().map(|f| (f.line, f.column, quoted(&f.message))).collect()
    }

    #[test]
    fn references_by_number_are_found() {
        let text = "# A\n\nSee chapter 12, and Section 3.2. By Eq. (4) and équation; by equations\n5 and 6 we are done.\n\n\
                    - In Fig.~3 and [figure 4](a.md).\n- The rest is in (part IV).\n\n> As table 2, Appendix B, § 7 and §8 say.\n";
        let expected = [
            (3, 5, "chapter 12"),
            (3, 21, "Section 3.2"),
            (3, 37, "Eq. (4)"),
            (3, 62, "equations 5"),
            (6, 6, "Fig. 3"),
            (6, 18, "figure 4"),
            (7, 19, "part IV"),
            (9, 6, "table 2"),
            (9, 15, "Appendix B"),
            (9, 27, "§ 7"),
            (9, 35, "§8"),
        ];
        assert_eq!(found(text), expected.map(|(l, c, what)| (l, c, what.to_string())));
    }

    #[test]
    fn numbers_of_other_works_and_other_numbers_are_left_alone() {
        for text in [
            "Their Eq. 16 is ours.",
            "It is Eq. 16 of the original document.",
            "See Fig. 3 of Gendron et al. for more.",
            "Landen's transformation is in chapter 22 of\nWhittaker and Watson.",
            "- J. W. Goodman, *Statistical Optics*, chapter 8: the transfer function.",
            "- J. W. Hardy, Adaptive Optics, Oxford (1998),\n  chapter 5: what a lenslet measures.",
            "The model of [@vidal-2010] has it as Eq. (3).",
            "[^hall]: *International Tables* B, section 4.",
            "Part 0 is the mean and part 1 its error; the chapter 3D, a section 4-fold, and part of it.",
            "As $\\eqref{eq:x}$ says, equation `5` and Eq. $4$; this part is it.",
            "```text\nchapter 5\n```",
            "<!-- chapter 5 -->",
        ] {
            assert_eq!(found(&format!("# A\n\n{text}\n")), [], "{text}");
        }
        // Only the sentence that names the work may hold its numbers.
        let two = "Hardy (1998) has it. See chapter 5. J. W. Hardy writes of it.";
        assert_eq!(found(two), [(1, 26, "chapter 5".to_string())]);
        let book = Book::from_sources("# B\n\n# Part I Air\n\n- [A](a.md)\n", |_| {
            Ok("# A\n\n| part |\n|---|\n| Part I Air |\n| Part I |\n".to_string())
        });
        assert_eq!(check(&book).iter().map(|f| f.line).collect::<Vec<_>>(), [6]);
        let entries = "- Hardy (1998), chapter 5.\n- Chapter 6 has it.";
        assert_eq!(found(entries), [(2, 3, "Chapter 6".to_string())]);
        assert_eq!(references("chapter 5"), [(0..9, "link it by its title")]);
    }
}
