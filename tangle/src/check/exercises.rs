//! Exercises without an answer, and answers without an exercise.
//!
//! Exercises are the numbered list below a heading that names them. Their answers have the same numbers
//! below a heading that links to their chapter, on a page of the part whose title names answers.

use std::collections::BTreeMap;

use crate::chapter::Chapter;
use crate::check::links::chapter_of;
use crate::finding::Finding;
use crate::volume::Book;

/// All exercises and answers that have no partner; nothing where no part has answers.
pub fn check(book: &Book) -> Vec<Finding> {
    let has_answers =
        |chapter: &&Chapter| chapter.part.as_ref().is_some_and(|part| part.contains("Answers"));
    if !book.chapters.iter().any(|chapter| has_answers(&chapter)) {
        return Vec::new();
    }
    let (mut exercises, mut answers) = (BTreeMap::new(), BTreeMap::new());
    for (at, chapter) in book.chapters.iter().enumerate() {
        if !has_answers(&chapter) {
            exercises.insert(at, of(chapter));
            continue;
        }
        for (index, heading) in chapter.headings.iter().enumerate() {
            if let Some(asking) = linked(book, chapter, heading.line) {
                let items = items(chapter, index);
                let with_page = items.into_iter().map(|(number, line)| (number, (at, line)));
                answers.entry(asking).or_insert_with(BTreeMap::new).extend(with_page);
            }
        }
    }
    compare(book, &exercises, &answers)
}

/// The exercises of a chapter by their numbers, with their lines.
pub fn of(chapter: &Chapter) -> BTreeMap<usize, usize> {
    let named = |title: &str| title.to_lowercase().contains("exercise");
    let headings = chapter.headings.iter().enumerate();
    let headings = headings.filter(|(_, heading)| named(&heading.title));
    headings.flat_map(|(index, _)| items(chapter, index)).collect()
}

/// Numbers of items, with what tells where they are, by the chapter of the exercises.
type Lists<P> = BTreeMap<usize, BTreeMap<usize, P>>;

/// A finding for each number that only one of the two lists of a chapter has.
fn compare(book: &Book, exercises: &Lists<usize>, answers: &Lists<(usize, usize)>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (&at, numbers) in exercises {
        let chapter = &book.chapters[at];
        let answered = |number| answers.get(&at).is_some_and(|list| list.contains_key(number));
        for (number, &line) in numbers.iter().filter(|(number, _)| !answered(number)) {
            let what = format!("exercise {number} has no answer: add it in the part of answers");
            findings.push(Finding::error(&chapter.path, (line, 1), what));
        }
    }
    for (of, numbers) in answers {
        let asked = |number| exercises.get(of).is_some_and(|list| list.contains_key(number));
        for (number, &(page, line)) in numbers.iter().filter(|(number, _)| !asked(number)) {
            let what = format!("{} has no exercise {number}", book.chapters[*of].path);
            findings.push(Finding::error(&book.chapters[page].path, (line, 1), what));
        }
    }
    findings
}

/// The numbered items between a heading and the next one, with their lines.
fn items(chapter: &Chapter, heading: usize) -> Vec<(usize, usize)> {
    let first = chapter.headings[heading].line + 1;
    let next = chapter.headings.get(heading + 1).map(|next| next.line);
    let end = next.unwrap_or(chapter.text.line_count() + 1);
    let outside = (first..end).filter(|&line| chapter.block_at(line).is_none());
    outside.filter_map(|line| Some((number(chapter.text.line(line))?, line))).collect()
}

/// The number that begins a line as an item of a list at the margin: 3 in `3. What …`.
fn number(line: &str) -> Option<usize> {
    let (digits, _) = line.split_once(". ")?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// The chapter that a line links to.
fn linked(book: &Book, chapter: &Chapter, line: usize) -> Option<usize> {
    let link = chapter.links.iter().find(|link| link.position.0 == line && !link.image)?;
    chapter_of(book, chapter, &link.target)
}
