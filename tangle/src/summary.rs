//! The table of contents, `book/src/SUMMARY.md`.

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use crate::text::Text;

/// One line of the table of contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The title, as plain text.
    pub title: String,
    /// The chapter's file relative to `book/src`; `None` for a chapter still to be written.
    pub file: Option<String>,
    /// `"3"` or `"3.1"`; `None` for chapters outside the numbered list.
    pub number: Option<String>,
    /// The part of the book that it belongs to, as it is titled; `None` before the first part and
    /// outside the numbered list.
    pub part: Option<String>,
    /// Where the table of contents names it.
    pub position: (usize, usize),
}

/// Reads the entries in their order, numbered as mdbook numbers them.
pub fn parse(source: &Text) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut counters: Vec<usize> = Vec::new();
    let mut top = 0; // parts of a book do not restart its numbers
    let mut open: Option<Entry> = None;
    let (mut part, mut heading): (Option<String>, Option<String>) = (None, None);
    for (at, (event, range)) in Parser::new(source.as_str()).into_offset_iter().enumerate() {
        match event {
            // What the file begins with is the title of the table itself.
            Event::Start(Tag::Heading { .. }) if at > 0 => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => part = heading.take().or(part),
            Event::Start(Tag::List(_)) => counters.push(if counters.is_empty() { top } else { 0 }),
            Event::End(TagEnd::List(_)) => {
                let last = counters.pop();
                if counters.is_empty() {
                    top = last.unwrap_or(top);
                }
            }
            Event::Start(Tag::Item) => {
                if let Some(last) = counters.last_mut() {
                    *last += 1;
                }
            }
            Event::Start(Tag::Link { dest_url, .. }) => {
                let parts: Vec<String> = counters.iter().map(usize::to_string).collect();
                open = Some(Entry {
                    title: String::new(),
                    file: (!dest_url.is_empty()).then(|| dest_url.to_string()),
                    part: part.clone().filter(|_| !parts.is_empty()),
                    number: (!parts.is_empty()).then(|| parts.join(".")),
                    position: source.position(range.start),
                });
            }
            Event::End(TagEnd::Link) => entries.extend(open.take()),
            Event::Text(text) | Event::Code(text) => {
                if let Some(title) =
                    open.as_mut().map(|entry| &mut entry.title).or(heading.as_mut())
                {
                    title.push_str(&text);
                }
            }
            _ => {}
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::{Text, parse};

    #[test]
    fn chapters_are_numbered_as_they_are_listed() {
        let source = "# B\n\n[In](in.md)\n\n- [One](one.md)\n  - [Sub](d/s.md)\n- [Two `x`]()\n";
        let entries = parse(&Text::new(source));
        let seen: Vec<_> = entries
            .iter()
            .map(|e| (e.title.as_str(), e.file.as_deref(), e.number.as_deref(), e.position))
            .collect();
        assert_eq!(
            seen,
            [
                ("In", Some("in.md"), None, (3, 1)),
                ("One", Some("one.md"), Some("1"), (5, 3)),
                ("Sub", Some("d/s.md"), Some("1.1"), (6, 5)),
                ("Two x", None, Some("2"), (7, 3)),
            ]
        );
    }

    #[test]
    fn parts_have_titles_and_do_not_restart_the_numbers() {
        let source = "[In](in.md)\n\n- [Zero](zero.md)\n\n# I `Ground`\n\n- [One](one.md)\n  - [On it](on.md)\n    \
                      - [Deep](deep.md)\n- [Two](two.md)\n\n# II\n\n- [Three](three.md)\n\n[Out](out.md)\n";
        let entries = parse(&Text::new(source));
        let seen: Vec<_> = entries
            .iter()
            .map(|e| (e.title.as_str(), e.number.as_deref(), e.part.as_deref()))
            .collect();
        assert_eq!(
            seen,
            [
                ("In", None, None),
                ("Zero", Some("1"), None),
                ("One", Some("2"), Some("I Ground")),
                ("On it", Some("2.1"), Some("I Ground")),
                ("Deep", Some("2.1.1"), Some("I Ground")),
                ("Two", Some("3"), Some("I Ground")),
                ("Three", Some("4"), Some("II")),
                ("Out", None, None),
            ]
        );
    }
}
