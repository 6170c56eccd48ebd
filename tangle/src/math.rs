//! Where the mathematics of a chapter is: `$…$` and `$$…$$`, labels and references to them.

use std::ops::Range;

use crate::text::Text;

/// A command in mathematics with its argument: `\label{eq:x}` or `\eqref{eq:x}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The argument, e.g. `eq:x`.
    pub name: String,
    /// The bytes of the whole command in the chapter.
    pub range: Range<usize>,
    /// Line and column of the command.
    pub position: (usize, usize),
}

/// One formula.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Math {
    /// `$$…$$` rather than `$…$`.
    pub display: bool,
    /// The bytes between the delimiters, in the chapter.
    pub range: Range<usize>,
    /// The lines of the chapter on which it stands, delimiters included.
    pub lines: Range<usize>,
    /// Line and column of the opening delimiter.
    pub position: (usize, usize),
    /// Its labels.
    pub labels: Vec<Mark>,
    /// Its references to labels.
    pub references: Vec<Mark>,
}

impl Math {
    /// The bytes of the formula in the chapter, delimiters included.
    pub fn whole(&self) -> Range<usize> {
        let width = if self.display { 2 } else { 1 };
        self.range.start - width..self.range.end + width
    }
}

/// A delimiter without partner: line and column, and what is wrong.
pub type Odd = ((usize, usize), String);

/// Finds the formulas outside of the `literal` ranges, and the delimiters left without partner.
///
/// The rules are those of the book's renderer: an opening `$` is closed by the next `$` that no
/// backslash precedes. A formula ends in its own paragraph.
pub fn scan(text: &Text, literal: &[Range<usize>]) -> (Vec<Math>, Vec<Odd>) {
    let (mut found, mut odd) = (Vec::new(), Vec::new());
    let source = text.as_str();
    let bytes = source.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if let Some(range) = around(literal, at) {
            at = range.end;
            continue;
        }
        match bytes[at] {
            b'\\' => at += 2,
            b'$' => {
                let display = bytes.get(at + 1) == Some(&b'$');
                let mark = if display { "$$" } else { "$" };
                let inside = at + mark.len();
                match close(source, inside, mark).filter(|&end| {
                    let body = &source[inside..end];
                    around(literal, end).is_none() && !has_blank_line(body) && !body.is_empty()
                }) {
                    Some(end) => {
                        found.push(formula(text, display, inside..end));
                        at = end + mark.len();
                    }
                    None => {
                        odd.push((text.position(at), format!("this {mark} has no partner")));
                        at = inside;
                    }
                }
            }
            _ => at += 1,
        }
    }
    (found, odd)
}

/// The literal range that holds the byte at `at`.
fn around(literal: &[Range<usize>], at: usize) -> Option<&Range<usize>> {
    let next = literal.partition_point(|range| range.end <= at);
    literal.get(next).filter(|range| range.contains(&at))
}

/// The offset of the next closing delimiter that no backslash precedes.
fn close(source: &str, inside: usize, mark: &str) -> Option<usize> {
    let mut from = inside;
    loop {
        let end = from + source.get(from..)?.find(mark)?;
        let slashes = source[..end].bytes().rev().take_while(|&byte| byte == b'\\').count();
        if slashes % 2 == 0 {
            return Some(end);
        }
        from = end + mark.len();
    }
}

fn has_blank_line(body: &str) -> bool {
    let lines: Vec<&str> = body.split('\n').collect();
    lines.len() > 2 && lines[1..lines.len() - 1].iter().any(|line| line.trim().is_empty())
}

fn formula(text: &Text, display: bool, range: Range<usize>) -> Math {
    let width = if display { 2 } else { 1 };
    let start = range.start - width;
    let lines = text.line_at(start)..text.line_at(range.end) + 1;
    let labels = marks(text, &range, "\\label{");
    let references = marks(text, &range, "\\eqref{");
    Math { display, position: text.position(start), range, lines, labels, references }
}

fn marks(text: &Text, range: &Range<usize>, command: &str) -> Vec<Mark> {
    let body = &text.as_str()[range.clone()];
    body.match_indices(command)
        .filter_map(|(at, _)| {
            let start = at + command.len();
            let length = body[start..].find('}')?;
            let name = body[start..start + length].to_string();
            let range = range.start + at..range.start + start + length + 1;
            let position = text.position(range.start);
            Some(Mark { name, range, position })
        })
        .collect()
}
