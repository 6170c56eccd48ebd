//! The script of live figures, and the computed results that they need, in the pages that show some.
//!
//! What a page says without a script stays: the script replaces a still figure when it runs. The results go into the finished pages, so that the search
//! index never sees them.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::error::BookError;
use crate::error::Error;

/// Where the scripts and the style sheet of live figures are, relative to the repository.
const FROM: &str = "viewer/dist";
/// The style sheet.
const STYLE: &str = "live.css";
/// The script.
const SCRIPT: &str = "live.js";
/// The script that it needs for images.
const IMAGES: &str = "live-image.js";

/// Most bytes of results in a page: they are read with it.
const MOST: usize = 60_000;

/// The page with the script of live figures, if it shows one; script and style sheet are copied beside the page.
///
/// # Errors
///
/// [`Error::Read`] and [`Error::Write`]; [`BookError::Live`] for a page with too many results.
pub fn with_script(root: &Path, folder: &Path, page: String) -> Result<String, BookError> {
    if !page.contains("<figure id=\"") || !page.contains(" data-live=\"") {
        return Ok(page);
    }
    let bytes: usize = page.split(START).skip(1).filter_map(|part| part.find(END)).sum();
    if bytes > MOST {
        let what = format!(
            "{bytes} bytes of computed results of live figures on one page: expected at most {MOST}"
        );
        return Err(BookError::Live(what));
    }
    let mut files = vec![STYLE, SCRIPT];
    if page.contains(" data-image=") {
        files.insert(1, IMAGES);
    }
    for file in &files {
        let (from, to) = (root.join(FROM).join(file), folder.join(file));
        fs::copy(&from, &to).map_err(Error::read(&from))?;
    }
    let scripts: Vec<String> =
        files[1..].iter().map(|file| format!("<script src=\"{file}\"></script>\n")).collect();
    let style = format!("<link rel=\"stylesheet\" href=\"{STYLE}\">\n</head>");
    let page = page.replacen("</head>", &style, 1);
    let end = page.rfind("</body>").unwrap_or(page.len());
    let (before, after) = page.split_at(end);
    Ok(format!("{before}{}{after}", scripts.concat()))
}

const START: &str = "<script type=\"application/json\" class=\"live-results\"";
const END: &str = "</script>";

/// A file of results of the figures in the rendered book, as an element of the page.
///
/// # Errors
///
/// [`Error::Read`]; [`BookError::Live`] for a file that is no JSON.
pub fn results(folder: &Path, file: &str) -> Result<String, BookError> {
    let path = folder.join("figures").join(file);
    let text = fs::read_to_string(&path).map_err(Error::read(&path))?;
    let value: Value = serde_json::from_str(&text)
        .map_err(|why| BookError::Live(format!("{file} is no JSON: {why}")))?;
    let text = value.to_string().replace('<', "\\u003c");
    Ok(format!("{START} data-file=\"{file}\">{text}{END}"))
}
