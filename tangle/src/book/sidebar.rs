//! The sidebar: parts as headings that open, and the chapters of the part that is being read.
//!
//! mdbook writes the table of contents as one script, which builds it in the sidebar of each page. There a heading of a part is an entry like any other;
//! here it gets the chapters that follow it, in a list that mdbook's own script opens for the chapter that is shown, and at a click.

use std::fs;
use std::path::Path;

use super::error::BookError;
use crate::error::Error;

/// Where the list starts and ends in the script.
const BEFORE: &str = "this.innerHTML = '<ol class=\"chapter\">";
const AFTER: &str = "</ol>';\n";
/// How an entry starts.
const ENTRY: &str = "<li class=\"chapter-item expanded \">";
/// What the title of a part stands between, inside its entry.
const TITLE: (&str, &str) = ("<li class=\"part-title\">", "</li></li>");
/// What only a chapter with a number holds.
const NUMBER: &str = "<strong aria-hidden=\"true\">";

/// Puts the chapters of each part into a list of its own, in the script of the book in `folder`.
///
/// # Errors
///
/// [`BookError::Sidebar`] for a script that is not as mdbook writes it; [`Error::Read`] and [`Error::Write`].
pub fn fold_parts(folder: &Path) -> Result<(), BookError> {
    let path = folder.join("toc.js");
    let script = fs::read_to_string(&path).map_err(Error::read(&path))?;
    let (before, rest) = script.split_once(BEFORE).ok_or(BookError::Sidebar)?;
    let (list, after) = rest.split_once(AFTER).ok_or(BookError::Sidebar)?;
    let script = [before, BEFORE, &in_parts(list), AFTER, after].concat();
    fs::write(&path, script).map_err(Error::write(&path))?;
    Ok(())
}

/// The entries of the table of contents, those of a part inside it. A part ends with its last numbered chapter.
fn in_parts(list: &str) -> String {
    let mut result = String::with_capacity(list.len());
    let mut inside = false;
    for entry in list.split(ENTRY).filter(|entry| !entry.is_empty()) {
        let title = entry.strip_prefix(TITLE.0).and_then(|rest| rest.strip_suffix(TITLE.1));
        if inside && (title.is_some() || !entry.contains(NUMBER)) {
            result.push_str("</ol></li>");
            inside = false;
        }
        match title {
            Some(title) => {
                result.push_str(&part(title));
                inside = true;
            }
            None => result.push_str(&[ENTRY, entry].concat()),
        }
    }
    if inside { result + "</ol></li>" } else { result }
}

/// The start of a part: its title, which opens and closes the list that follows.
fn part(title: &str) -> String {
    format!(
        "<li class=\"chapter-item part\"><span class=\"chapter-link-wrapper\"><button type=\"button\" class=\"chapter-fold-toggle part-title\" \
         aria-expanded=\"false\">{title}</button></span><ol class=\"section\">"
    )
}

#[cfg(test)]
mod tests {
    use super::{ENTRY, in_parts, part};

    #[test]
    fn chapters_stand_in_their_parts() {
        let numbered = |n: &str| {
            format!("{ENTRY}<a><strong aria-hidden=\"true\">{n}.</strong> Chapter</a></li>")
        };
        let nested = format!(
            "{ENTRY}<a><strong aria-hidden=\"true\">2.</strong> B</a><ol class=\"section\">{}</ol></li>",
            numbered("2.1")
        );
        let title = |t: &str| format!("{ENTRY}<li class=\"part-title\">{t}</li></li>");
        let plain = format!("{ENTRY}<a>Preface</a></li>");
        let spacer = format!("{ENTRY}<li class=\"spacer\"></li></li>");
        let (one, three) = (numbered("1"), numbered("3"));
        let (a, b, end) = (title("A"), title("B"), "</ol></li>".to_string());
        let list = [&plain, &a, &one, &nested, &b, &three, &spacer, &plain];
        let (c, d) = (part("A"), part("B"));
        let expected = [&plain, &c, &one, &nested, &end, &d, &three, &end, &spacer, &plain];
        assert_eq!(
            in_parts(&list.map(String::as_str).concat()),
            expected.map(String::as_str).concat()
        );
        // A part at the end, one without a chapter, and a book without parts.
        assert_eq!(in_parts(&(title("A") + &one)), part("A") + &one + &end);
        assert_eq!(in_parts(&title("A")), part("A") + &end);
        assert_eq!(in_parts(&(plain.clone() + &one)), plain + &one);
    }
}
