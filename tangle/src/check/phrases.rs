//! Phrases that the book does not use, because plain ones say the same.

use crate::chapter::Chapter;
use crate::check::words::words_only;

/// The phrases, in small letters.
const PHRASES: [&str; 31] = [
    "whoever",
    "whatever is",
    "nobody",
    "is told",
    "are told",
    "was told",
    "tells how",
    "what is left",
    "stands on",
    "stand on",
    "beside",
    "lives in",
    "live in",
    "is looked at",
    "are looked at",
    "held against",
    "hold against",
    "aloud",
    "comes to nothing",
    "come to nothing",
    "knows nothing",
    "know nothing",
    "and that is all",
    "on its way",
    "on their way",
    "so to speak",
    "takes the place of",
    "take the place of",
    "in its place",
    "of its own accord",
    "asks for",
];

/// The lines of a chapter with one of the phrases as whole words.
pub fn lines(chapter: &Chapter) -> Vec<usize> {
    // A phrase may be broken between lines; each byte keeps its place.
    let text = words_only(chapter, |_| false).replace(['\n', '>'], " ").to_ascii_lowercase();
    let whole = |at: usize, phrase: &str| {
        let letter = |c: char| c.is_alphanumeric();
        !text[..at].ends_with(letter) && !text[at + phrase.len()..].starts_with(letter)
    };
    let mut places: Vec<usize> = PHRASES
        .iter()
        .flat_map(|&phrase| text.match_indices(phrase).map(move |(at, _)| (at, phrase)))
        .filter(|&(at, phrase)| whole(at, phrase))
        .map(|(at, _)| chapter.text.line_at(at))
        .collect();
    places.sort_unstable();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::lines;
    use crate::chapter::Chapter;

    #[test]
    fn phrases_are_found_at_their_lines() {
        // The sign of kelvin is longer than its small letter.
        let text = format!(
            "# A\n\n{}\n\nNobody, `beside`, besides; on\nits way.\n",
            "\u{212a}".repeat(40)
        );
        assert_eq!(lines(&Chapter::parse("A", "a.md", None, text)), [5]);
        assert!(
            lines(&Chapter::parse("A", "a.md", None, "# A\n\nPlain words.\n".into())).is_empty()
        );
    }
}
