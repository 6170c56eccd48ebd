//! Documentation comments that the book shows by their first sentence.

use std::ops::Range;

use crate::block::Block;
use crate::chapter::Chapter;
use crate::citations::is_documentation;

/// A documentation comment with more lines than this shows its first sentence only.
pub const MOST_LINES: usize = 3;

/// The lines of a block, numbered as in its chapter, that the page hides until a reader asks for
/// them: of each long documentation comment all after the first sentence. A folded block is hidden
/// as a whole and has none.
pub fn hidden(chapter: &Chapter, block: &Block) -> Vec<Range<usize>> {
    let mut hidden = Vec::new();
    let mut line = if block.folded { block.code.end } else { block.code.start };
    while line < block.code.end {
        let length = run(chapter, line..block.code.end);
        if length > MOST_LINES {
            hidden.push(line + first_sentence(chapter, line)..line + length);
        }
        line += length.max(1);
    }
    hidden
}

/// The number of lines of a block that the page shows, unless it is folded.
pub fn shown_lines(chapter: &Chapter, block: &Block) -> usize {
    block.code.len() - hidden(chapter, block).iter().map(Range::len).sum::<usize>()
}

/// The length of the documentation comment that these lines begin with; outer and inner ones, `///`
/// and `//!`, are two comments.
fn run(chapter: &Chapter, lines: Range<usize>) -> usize {
    let mark = |line| {
        let text = chapter.text.line(line);
        is_documentation(text).then(|| text.trim_start().get(..3)).flatten()
    };
    let first = mark(lines.start);
    lines.take_while(|&line| first.is_some() && mark(line) == first).count()
}

/// The number of lines of the first sentence of the comment at a line, at most [`MOST_LINES`]. It ends
/// with a full stop or its paragraph.
fn first_sentence(chapter: &Chapter, start: usize) -> usize {
    let words = |line| chapter.text.line(line).trim_start().get(3..).unwrap_or("").trim();
    let ends = |line| {
        let text: &str = words(line);
        text.ends_with(['.', '!', '?']) || text.contains(". ") || words(line + 1).is_empty()
    };
    (1..MOST_LINES).find(|&count| ends(start + count - 1)).unwrap_or(MOST_LINES)
}

#[cfg(test)]
mod tests {
    use super::{hidden, shown_lines};
    use crate::chapter::Chapter;

    /// The hidden lines of a chunk with this code, counted from 1 in the code, and how many are shown.
    fn hides(info: &str, code: &str) -> (Vec<(usize, usize)>, usize) {
        let source = format!("# A\n\n```{info}\n{code}\n```\n");
        let chapter = Chapter::parse("A", "a.md", None, source);
        let block = &chapter.blocks[0];
        let lines = hidden(&chapter, block).into_iter().map(|r| (r.start - 3, r.end - 3)).collect();
        (lines, shown_lines(&chapter, block))
    }

    #[test]
    fn long_comments_show_their_first_sentence() {
        let open = "rust #a chunk of code";
        let four = "    /// One.\n    /// Two.\n    ///\n    /// Four.\n    fn a() {}";
        assert_eq!(hides(open, four), (vec![(2, 5)], 2));
        assert_eq!(hides("rust #a chunk of code fold", four), (vec![], 5));
        let three = "/// One.\n/// Two.\n/// Three.\n#[test]\n/// Four.\nfn a() {}";
        assert_eq!(hides(open, three), (vec![], 6));
        // A sentence of two lines, of one without a full stop, of one that ends within its line, and of many.
        assert_eq!(hides(open, "/// One\n/// two.\n/// Three.\n/// Four.").0, [(3, 5)]);
        assert_eq!(hides(open, "//! One\n//!\n//! Three.\n//! Four.").0, [(2, 5)]);
        assert_eq!(hides(open, "/// One. Two\n/// three.\n/// Three.\n/// Four.").0, [(2, 5)]);
        assert_eq!(hides(open, "/// One\n/// two\n/// three\n/// four\n/// five.").0, [(4, 6)]);
    }

    #[test]
    fn comments_of_two_kinds_are_two_and_others_none() {
        let open = "rust file=src/a.rs";
        assert_eq!(hides(open, "//! 1.\n//! 2.\n/// 3.\n/// 4."), (vec![], 4));
        assert_eq!(hides(open, "// 1.\n// 2.\n// 3.\n// 4."), (vec![], 4));
        let two = "/// 1.\n/// 2.\n/// 3.\n/// 4.\nx\n/// 6.\n/// 7.\n/// 8.\n/// 9.";
        assert_eq!(hides(open, two), (vec![(2, 5), (7, 10)], 3));
    }
}
