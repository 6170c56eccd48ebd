//! The pages of the rendered book: their names, how one refers to another, and text as HTML.

use crate::text::slug;

/// The page of a chapter, relative to the book: `phase.html`.
pub fn page_of(file: &str) -> String {
    let stem = file.strip_suffix(".md").unwrap_or(file);
    match stem.strip_suffix("README") {
        Some(folder) if folder.is_empty() || folder.ends_with('/') => format!("{folder}index.html"),
        _ => format!("{stem}.html"),
    }
}

/// The address of `anchor` on the page of `to`, as seen from the page of `from`.
pub fn link(from: &str, to: &str, anchor: &str) -> String {
    if from == to {
        return format!("#{anchor}");
    }
    let (from, to) = (page_of(from), page_of(to));
    let mut here: Vec<&str> = from.split('/').collect();
    let mut there: Vec<&str> = to.split('/').collect();
    here.pop();
    while !here.is_empty() && there.len() > 1 && here[0] == there[0] {
        here.remove(0);
        there.remove(0);
    }
    format!("{}{}#{anchor}", "../".repeat(here.len()), there.join("/"))
}

/// The anchor of an equation: `eq-name` for the label `eq:name`.
pub fn equation_anchor(label: &str) -> String {
    slug(label)
}

/// A text as HTML. Double braces are hidden from mdbook's own commands.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + text.len() / 8);
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '{' => escaped.push_str("&#123;"),
            _ => escaped.push(letter),
        }
    }
    escaped
}

/// `file` as seen from the folder of the chapter `from`, relative to `book/src`.
pub fn resolve(from: &str, file: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::{link, page_of};

    #[test]
    fn pages_refer_to_each_other() {
        assert_eq!(link("a.md", "a.md", "x"), "#x");
        assert_eq!(link("a.md", "b.md", "x"), "b.html#x");
        assert_eq!(link("one/a.md", "one/b.md", "x"), "b.html#x");
        assert_eq!(link("one/a.md", "two/b.md", "x"), "../two/b.html#x");
        assert_eq!(link("a.md", "two/b.md", "x"), "two/b.html#x");
        assert_eq!(page_of("README.md"), "index.html");
    }
}
