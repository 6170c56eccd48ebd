//! Links that call a chapter the next, previous, last or first one.

use crate::check::links::chapter_of;
use crate::finding::Finding;
use crate::markdown::Link;
use crate::volume::Book;

/// Links whose words name another chapter than the table of contents does.
pub fn check(book: &Book) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, chapter) in book.chapters.iter().enumerate() {
        for link in chapter.links.iter().filter(|link| !link.image) {
            if let Some(what) = misnamed(book, index, link) {
                findings.push(Finding::error(&chapter.path, link.position, what));
            }
        }
    }
    findings
}

/// What is wrong with a link of the chapter at `index`, if its text places a chapter where it is not.
fn misnamed(book: &Book, index: usize, link: &Link) -> Option<String> {
    let word = order_word(&link.text)?;
    let target = chapter_of(book, &book.chapters[index], &link.target)?;
    let previous = index.checked_sub(1);
    let meant: Vec<usize> = match word {
        "next" => vec![index + 1],
        "previous" => previous.into_iter().collect(),
        // Of this chapter, or of the book.
        "last" => previous.into_iter().chain([book.chapters.len() - 1]).collect(),
        _ => vec![book.chapters.iter().position(|chapter| chapter.number.is_some()).unwrap_or(0)],
    };
    if meant.contains(&target) {
        return None;
    }
    let title = &book.chapters[target].title;
    let there = match meant.first().and_then(|&index| book.chapters.get(index)) {
        Some(chapter) => format!("the {word} chapter is \"{}\"", chapter.title),
        None => format!("there is no {word} chapter"),
    };
    Some(format!("\"{}\" links to \"{title}\", but {there}: link it by its title", link.text))
}

/// The word of order that stands directly before "chapter" or "chapters".
fn order_word(text: &str) -> Option<&'static str> {
    let words: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    words.windows(2).filter(|pair| matches!(pair[1].as_str(), "chapter" | "chapters")).find_map(
        |pair| ["next", "previous", "last", "first"].into_iter().find(|&word| word == pair[0]),
    )
}
