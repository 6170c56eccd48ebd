//! Equations that the documentation of the code cites: `[eq:name]` in a chapter, a link into the book
//! in the program.
//!
//! rustdoc knows nothing of our labels. So a documentation comment of a Rust file gets what it can
//! show: a link to the equation's page where `Cargo.toml` says at which address the book can be read,
//! `[package.metadata.book] url = "…"`, and otherwise the equation's name and its chapter. Neither
//! holds a number, which would change with every chapter that moves.

use std::borrow::Cow;

use crate::pages::{equation_anchor, page_of};
use crate::volume::Book;

/// Whether a line is a documentation comment.
pub fn is_documentation(line: &str) -> bool {
    let comment = line.trim_start();
    comment.starts_with("///") || comment.starts_with("//!")
}

/// What rustdoc gets for a label: a link, or words.
fn shown(book: &Book, label: &str) -> Option<String> {
    let chapter = &book.chapters[book.labels.get(label)?.chapter];
    let name = label.strip_prefix("eq:").unwrap_or(label).replace('-', " ");
    Some(match &book.url {
        Some(url) => {
            let (page, anchor) = (page_of(&chapter.file), equation_anchor(label));
            format!("[{name}]({}/{page}#{anchor})", url.trim_end_matches('/'))
        }
        None => format!("*{name}* (chapter *{}*)", chapter.title),
    })
}

/// A line of the chapter as the program has it: `[eq:name]`, also between backticks, is replaced where
/// an equation has that label and no link follows.
pub fn spelt_out<'a>(book: &Book, line: &'a str) -> Cow<'a, str> {
    if !is_documentation(line) || !line.contains("[eq:") {
        return Cow::Borrowed(line);
    }
    let mut result = String::with_capacity(line.len() + 64);
    let mut rest = line;
    while let Some(start) = rest.find("[eq:") {
        let Some(length) = rest[start..].find(']') else { break };
        let (mut before, mut after) = (&rest[..start], &rest[start + length + 1..]);
        let words = shown(book, &rest[start + 1..start + length]);
        match words.filter(|_| !after.starts_with('(')) {
            Some(words) => {
                if let Some(pair) = before.strip_suffix('`').zip(after.strip_prefix('`')) {
                    (before, after) = pair;
                }
                result.push_str(before);
                result.push_str(&words);
            }
            None => result.push_str(&rest[..=start + length]),
        }
        rest = after;
    }
    Cow::Owned(result + rest)
}

/// A line of the program as the chapter has it. A label between backticks in the lines that this one
/// replaces keeps them.
pub fn shortened<'a>(book: &Book, line: &'a str, replaced: &str) -> Cow<'a, str> {
    let likely = line.contains("* (chapter *") || line.contains("#eq-");
    if !is_documentation(line) || !likely {
        return Cow::Borrowed(line);
    }
    let mut result = line.to_string();
    for label in book.labels.keys() {
        if let Some(words) = shown(book, label).filter(|words| result.contains(words.as_str())) {
            let quoted = format!("`[{label}]`");
            let short = if replaced.contains(&quoted) { quoted } else { format!("[{label}]") };
            result = result.replace(&words, &short);
        }
    }
    Cow::Owned(result)
}

/// Links to equations in a line, `…x.html#eq-name` or `…#eq:name`, that lead to none: where each
/// starts, and what is wrong.
pub fn lost_links(book: &Book, line: &str) -> Vec<(usize, String)> {
    let mut lost = Vec::new();
    for (at, _) in line.match_indices("#eq-").chain(line.match_indices("#eq:")) {
        let end = line[at..].find([')', '>', '"', '`', ' ']).map_or(line.len(), |end| at + end);
        let anchor = &line[at + 1..end];
        let page = line[..at].rsplit(['/', '(', '<', ' ', '"']).next().unwrap_or("");
        let label = book
            .labels
            .iter()
            .find(|(label, _)| label.as_str() == anchor || equation_anchor(label) == anchor);
        let what = match label.map(|(_, label)| page_of(&book.chapters[label.chapter].file)) {
            None => format!("#{anchor}: no equation has this label"),
            Some(home) if !page.is_empty() && home.rsplit('/').next() != Some(page) => {
                format!("#{anchor} is on the page {home}, not {page}")
            }
            Some(_) => continue,
        };
        lost.push((at, what));
    }
    lost
}
