//! Marks that stand for dollar signs, backticks and formulas while mdbook-katex is at work.
//!
//! mdbook-katex takes everything between dollar signs for mathematics, and skips what stands
//! between backticks, wherever these signs are. So the chapters leave it no others than those
//! around our formulas: all the rest travel under marks of their own, as do the places of the
//! formulas. The marks are noncharacters of Unicode, which no text holds.

/// Starts the comment that stands for a formula until the pages are finished.
pub const PLACE: &str = "<!--m:";
/// Starts the comment that stands for a chunk until the pages are finished.
pub const CHUNK: &str = "<!--c:";
/// Starts the comment that stands for code of other chapters until the pages are finished.
pub const ELSEWHERE: &str = "<!--e:";
/// Starts the comment that stands for computed results of a live figure until the pages are finished.
pub const LIVE: &str = "<!--l:";
/// Ends such a comment.
pub const PLACE_END: &str = "-->";
/// Opens a formula.
pub const OPEN: char = '\u{FDD0}';
/// Closes a formula.
pub const CLOSE: char = '\u{FDD1}';
/// Stands for `$` where it is no mathematics.
const DOLLAR: char = '\u{FDD2}';
/// Stands for a backtick.
const BACKTICK: char = '\u{FDD3}';

/// A formula for mdbook-katex, with its indices in front.
pub fn formula(chapter: usize, formula: usize, tex: &str, display: bool) -> String {
    let delimiter = if display { "$$" } else { "$" };
    format!("{OPEN}{chapter}.{formula}:{delimiter}{tex}{delimiter}{CLOSE}")
}

/// The comment that stands for a formula until the pages are finished.
pub fn placeholder(key: (usize, usize)) -> String {
    format!("{PLACE}{}.{}{PLACE_END}", key.0, key.1)
}

/// The comment that stands for the chunk in a block of a chapter until the pages are finished.
pub fn chunk_placeholder(chapter: usize, block: usize) -> String {
    format!("{CHUNK}{chapter}.{block}{PLACE_END}")
}

/// The comment that stands for the code of other chapters at the start of a chapter until the pages are finished.
pub fn elsewhere_placeholder(chapter: usize) -> String {
    format!("{ELSEWHERE}{chapter}{PLACE_END}")
}

/// The comment that stands for a file of computed results until the pages are finished.
pub fn live_placeholder(file: &str) -> String {
    format!("{LIVE}{file}{PLACE_END}")
}

/// The indices of a formula or a chunk, as its placeholder holds them.
pub fn key(text: &str) -> Option<(usize, usize)> {
    let (chapter, formula) = text.split_once('.')?;
    Some((chapter.parse().ok()?, formula.parse().ok()?))
}

/// Hides a text from mdbook-katex.
pub fn hide(text: &str) -> String {
    text.replace('$', DOLLAR.encode_utf8(&mut [0; 4]))
        .replace('`', BACKTICK.encode_utf8(&mut [0; 4]))
}

/// Undoes [`hide`].
pub fn show(text: &str) -> String {
    text.replace(DOLLAR, "$").replace(BACKTICK, "`")
}
