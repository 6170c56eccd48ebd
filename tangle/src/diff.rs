//! How a file on disc differs from what the book tangles to.

use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// A place where two texts differ: these lines of the old one have become those of the new one.
/// Lines count from 0; one of the two ranges may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// Lines of the pristine text.
    pub old: Range<usize>,
    /// Lines of the edited text.
    pub new: Range<usize>,
}

/// The lines of a text; a text without a final newline has a last line all the same.
pub fn lines(text: &str) -> Vec<&str> {
    let body = text.strip_suffix('\n').unwrap_or(text);
    if text.is_empty() { Vec::new() } else { body.split('\n').collect() }
}

/// Where two sequences of lines differ, in order.
pub fn hunks(old: &[&str], new: &[&str]) -> Vec<Hunk> {
    capture_diff_slices(Algorithm::Myers, old, new)
        .iter()
        .filter(|op| !matches!(op, DiffOp::Equal { .. }))
        .map(|op| Hunk { old: op.old_range(), new: op.new_range() })
        .collect()
}

/// The line of `old` that corresponds to line `line` of `new` (both from 0): the same line where
/// nothing changed, the start of the hunk otherwise.
pub fn back(hunks: &[Hunk], line: usize) -> usize {
    let mut shift = 0_isize;
    for hunk in hunks {
        if line < hunk.new.start {
            break;
        }
        if line < hunk.new.end {
            let inside = (line - hunk.new.start).min(hunk.old.len().saturating_sub(1));
            return hunk.old.start + inside;
        }
        shift = hunk.old.end as isize - hunk.new.end as isize;
    }
    line.saturating_add_signed(shift)
}

#[cfg(test)]
mod tests {
    use super::{back, hunks, lines};

    #[test]
    fn lines_map_back_over_insertions_and_deletions() {
        let old = lines("a\nb\nc\nd\ne\n");
        let new = lines("a\nx\ny\nb\nd\ne\n");
        let hunks = hunks(&old, &new);
        let mapped: Vec<usize> = (0..new.len()).map(|line| back(&hunks, line)).collect();
        assert_eq!(mapped, [0, 1, 1, 1, 3, 4]);
    }
}
