//! The last step: tables for narrow screens, formulas and chunks into the pages, and a check of what the pages would fetch.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::BookError;
use super::live;
use super::marks::{CHUNK, ELSEWHERE, LIVE, PLACE, PLACE_END, key};
use super::render::Pages;
use super::tables;
use crate::error::Error;

/// Puts the chunks and formulas into all pages, and rejects a page that fetches anything from elsewhere.
///
/// # Errors
///
/// [`BookError::Outside`] for such a page, [`Error::Read`] and [`Error::Write`].
pub fn finish(root: &Path, pages: &Pages) -> Result<(), BookError> {
    let folder = &pages.folder;
    for path in files_below(folder)? {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        if !matches!(extension, "html" | "css" | "svg") {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(Error::read(&path))?;
        let text = match extension {
            "html" => {
                let in_one = path.file_name().is_some_and(|name| name == "print.html");
                let finished = insert(&tables::prepare(&text), pages, in_one)?;
                let finished =
                    if in_one { finished } else { live::with_script(root, folder, finished)? };
                fs::write(&path, &finished).map_err(Error::write(&path))?;
                finished
            }
            _ => text,
        };
        let fetched = if extension == "css" { style_fetches(&text) } else { page_fetches(&text) };
        if let Some(address) = fetched.into_iter().next() {
            let page = path.strip_prefix(folder).unwrap_or(&path).to_path_buf();
            return Err(BookError::Outside { page, address });
        }
    }
    Ok(())
}

/// A page with its chunks and formulas; links of chunks stay in it if all chapters are on this page.
fn insert(page: &str, pages: &Pages, in_one: bool) -> Result<String, BookError> {
    let mut result = String::with_capacity(page.len() * 4);
    let mut rest = page;
    while let Some(start) = rest.find("<!--") {
        let Some(length) = rest[start..].find(PLACE_END) else { break };
        let (comment, end) = (&rest[start..start + length], start + length + PLACE_END.len());
        result.push_str(&rest[..start]);
        if let Some(place) = comment.strip_prefix(PLACE) {
            result.push_str(key(place).and_then(|key| pages.formulas.html(key)).unwrap_or(""));
        } else if let Some(place) = comment.strip_prefix(CHUNK) {
            let html = key(place).and_then(|key| pages.chunks.html(key)).unwrap_or("");
            if in_one { push_with_inner_links(html, &mut result) } else { result.push_str(html) }
        } else if let Some(file) = comment.strip_prefix(LIVE) {
            if !in_one {
                result.push_str(&live::results(&pages.folder, file)?);
            }
        } else if let Some(chapter) = comment.strip_prefix(ELSEWHERE) {
            // Where all chapters are on one page, nothing is elsewhere, and this is the chapter's start.
            match chapter.parse() {
                Ok(chapter) if in_one => {
                    let anchor = chapter_start_anchor(chapter);
                    result.push_str(&format!("<a id=\"{anchor}\"></a>"));
                }
                Ok(chapter) => result.push_str(pages.chunks.elsewhere(chapter)),
                Err(_) => {}
            }
        } else {
            result.push_str(&rest[start..end]);
        }
        rest = &rest[end..];
    }
    result.push_str(rest);
    Ok(result)
}

/// The anchor of the chapter with this index on a page of all chapters.
pub fn chapter_start_anchor(chapter: usize) -> String {
    format!("chapter-{chapter}")
}

/// Adds a chunk whose links to other pages of the book lead to the same anchors in this one.
fn push_with_inner_links(html: &str, page: &mut String) {
    const LINK: &str = "href=\"";
    let mut pieces = html.split("<a ");
    page.push_str(pieces.next().unwrap_or(""));
    for piece in pieces {
        page.push_str("<a ");
        let end = piece.find('>').unwrap_or(piece.len());
        let address = piece[..end].find(LINK).map_or(end, |start| start + LINK.len());
        let anchor = piece[address..end].find('#').map_or(address, |at| address + at);
        page.push_str(&piece[..address]);
        page.push_str(&piece[if is_elsewhere(&piece[address..end]) { address } else { anchor }..]);
    }
}

/// Addresses with a host that the elements of a page fetch by themselves.
pub fn page_fetches(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for piece in page.split('<').skip(1) {
        let Some((tag, _)) = piece.split_once('>') else { continue };
        let name = tag.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or("");
        let fetching = [
            "link", "script", "img", "image", "iframe", "source", "object", "embed", "audio",
            "video", "use", "track",
        ];
        if !fetching.contains(&name.to_ascii_lowercase().as_str()) {
            continue;
        }
        for attribute in ["src=", "href=", "srcset=", "data="] {
            for (at, _) in tag.match_indices(attribute) {
                let value = tag[at + attribute.len()..].trim_start_matches(['"', '\'', ' ']);
                let value = value.split(['"', '\'', ' ']).next().unwrap_or("");
                if is_elsewhere(value) {
                    found.push(value.to_string());
                }
            }
        }
    }
    for style in page.split("<style").skip(1) {
        found.extend(style_fetches(style.split("</style").next().unwrap_or("")));
    }
    found
}

/// Addresses with a host that a style sheet fetches.
pub fn style_fetches(style: &str) -> Vec<String> {
    let mut found = Vec::new();
    for mark in ["url(", "@import"] {
        for (at, _) in style.match_indices(mark) {
            let value = style[at + mark.len()..].trim_start_matches(['"', '\'', ' ']);
            let value = value.split(['"', '\'', ')', ';', ' ']).next().unwrap_or("");
            if is_elsewhere(value) {
                found.push(value.to_string());
            }
        }
    }
    found
}

/// Whether an address names a host.
fn is_elsewhere(address: &str) -> bool {
    let address = address.trim().to_ascii_lowercase();
    address.starts_with("//")
        || address.split_once("://").is_some_and(|(scheme, _)| {
            !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric())
        })
}

/// All files below a folder.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>, BookError> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::read(&folder))? {
            let entry = entry.map_err(Error::read(&folder))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(Error::read(&path))?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                files.push(path);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::{page_fetches, push_with_inner_links, style_fetches};

    #[test]
    fn links_of_chunks_stay_in_the_page_of_all_chapters() {
        let chunk = "a <a href=\"b.html#c\">href=\"d.html#e\"</a> <a class=\"x\" href=\"#f\">g</a><a href=\"https://h/i#j\">k</a><a>l</a>";
        let mut page = String::new();
        push_with_inner_links(chunk, &mut page);
        assert_eq!(page, chunk.replace("b.html#c", "#c"));
    }

    #[test]
    fn a_page_may_link_anywhere_but_fetch_nothing() {
        assert!(page_fetches("<a href=\"https://a.b/\">x</a><img src=\"c.svg\">").is_empty());
        assert_eq!(
            page_fetches("<script src=\"https://a.b/c.js\"></script>"),
            ["https://a.b/c.js"]
        );
        assert_eq!(page_fetches("<link rel=x href='//a.b/c.css'>"), ["//a.b/c.css"]);
        assert_eq!(page_fetches("<style>@import \"http://a/b\"</style>"), ["http://a/b"]);
        assert_eq!(style_fetches("src:url(fonts/a.woff2)").len(), 0);
        assert_eq!(style_fetches("src:url('https://a/b.woff2')"), ["https://a/b.woff2"]);
    }
}
