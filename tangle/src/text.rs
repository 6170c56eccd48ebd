//! A text with its lines: every finding needs a line and a column. And what we read out of a text
//! that is no chapter: an anchor, a setting, a similar word.

use similar::{Algorithm, capture_diff_slices, get_diff_ratio};

/// A text and the offsets at which its lines start.
///
/// Lines end with `\n` or `\r\n`; the last one may have no ending at all. Numbers of lines and
/// columns start at 1, columns count characters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Text {
    content: String,
    starts: Vec<usize>,
}

impl Text {
    /// Cuts `content` into lines.
    pub fn new(content: impl Into<String>) -> Text {
        let content = content.into();
        let mut starts = Vec::new();
        let mut start = 0;
        while start < content.len() {
            starts.push(start);
            start = match content[start..].find('\n') {
                Some(end) => start + end + 1,
                None => content.len(),
            };
        }
        Text { content, starts }
    }

    /// The whole text, byte for byte.
    pub fn as_str(&self) -> &str {
        &self.content
    }

    /// How many lines the text has.
    pub fn line_count(&self) -> usize {
        self.starts.len()
    }

    /// Line `number` (from 1) with its ending; empty where there is no such line.
    pub fn full_line(&self, number: usize) -> &str {
        let Some(&start) = number.checked_sub(1).and_then(|n| self.starts.get(n)) else {
            return "";
        };
        let end = self.starts.get(number).copied().unwrap_or(self.content.len());
        &self.content[start..end]
    }

    /// Line `number` (from 1) without its ending.
    pub fn line(&self, number: usize) -> &str {
        let full = self.full_line(number);
        let line = full.strip_suffix('\n').unwrap_or(full);
        if line.len() == full.len() { line } else { line.strip_suffix('\r').unwrap_or(line) }
    }

    /// The ending of line `number`: `"\n"`, `"\r\n"` or nothing.
    pub fn ending(&self, number: usize) -> &str {
        let full = self.full_line(number);
        &full[self.line(number).len()..]
    }

    /// The byte offset at which line `number` starts; the length of the text past the last line.
    pub fn start_of(&self, number: usize) -> usize {
        number
            .checked_sub(1)
            .and_then(|n| self.starts.get(n))
            .copied()
            .unwrap_or(self.content.len())
    }

    /// The number of the line that holds the byte at `offset`.
    pub fn line_at(&self, offset: usize) -> usize {
        self.starts.partition_point(|&start| start <= offset).max(1)
    }

    /// Line and column (in characters, from 1) of the byte at `offset`.
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.line_at(offset);
        let start = self.start_of(line).min(offset);
        let before = self.content.get(start..offset).unwrap_or("");
        (line, before.chars().count() + 1)
    }
}

/// A text as part of an anchor: lower case, with a hyphen for anything but letters and digits.
pub fn slug(text: &str) -> String {
    let mut slug = String::new();
    for letter in text.chars().flat_map(char::to_lowercase) {
        if letter.is_alphanumeric() {
            slug.push(letter);
        } else if !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.trim_matches('-').to_string()
}

/// The value of `key = "…"` in a TOML text: the first one, whatever table it stands in. Only what
/// is written on one line is seen.
pub(crate) fn setting<'a>(toml: &'a str, key: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.trim().strip_prefix(key)?.trim().strip_prefix('=');
    toml.lines().find_map(value).map(|value| value.trim().trim_matches('"'))
}

/// The value of `key = "…"` in a table of a TOML text.
pub(crate) fn setting_in<'a>(toml: &'a str, table: &str, key: &str) -> Option<&'a str> {
    let head = format!("[{table}]");
    let start = toml.lines().position(|line| line.trim() == head)?;
    let inside =
        toml.lines().skip(start + 1).take_while(|line| !line.trim_start().starts_with('['));
    inside.filter_map(|line| setting(line, key)).next()
}

/// The candidate that shares most letters with a word, if it shares two thirds of them.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().collect();
    let alike = |other: &str| {
        let other: Vec<char> = other.chars().collect();
        let operations = capture_diff_slices(Algorithm::Myers, &word, &other);
        get_diff_ratio(&operations, word.len(), other.len())
    };
    let ranked = known.into_iter().map(|other| (alike(other), other));
    let best = ranked.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (best.0 > 0.66).then_some(best.1)
}

/// A name as clap writes it: `errors-only` for `errors_only`, `new-file` for `NewFile`.
pub(crate) fn kebab(name: &str) -> String {
    let mut result = String::with_capacity(name.len() + 2);
    for c in name.chars() {
        if c.is_uppercase() && !result.is_empty() {
            result.push('-');
        }
        result.extend(c.to_lowercase());
    }
    result.replace('_', "-")
}

/// Whether the text of a program names a figure as one that it draws.
pub fn names_figure(program: &str, figure: &str) -> bool {
    let stem = figure.rsplit_once('.').map_or(figure, |(stem, _)| stem);
    let named = |literal: &str| match (literal.split_once('{'), literal.rsplit_once('}')) {
        // `format!("covariance-{name}.svg")`
        (Some((start, _)), Some((_, end))) => {
            end.len() > 1 && figure.starts_with(start) && figure.ends_with(end)
        }
        _ => literal == figure || literal == stem,
    };
    program.split('"').any(named)
}

#[cfg(test)]
mod tests {
    use super::{Text, nearest, setting, setting_in, slug};

    #[test]
    fn a_misspelt_word_has_a_nearest_one() {
        let known = ["ophus-2017", "conan-2014", "journal"];
        assert_eq!(nearest("ophus-2016", known), Some("ophus-2017"));
        assert_eq!(nearest("jurnal", known), Some("journal"));
        assert_eq!(nearest("xyz", known), None);
    }

    #[test]
    fn lines_know_their_endings() {
        let text = Text::new("a\r\nb\n\nλd");
        assert_eq!(text.line_count(), 4);
        assert_eq!((text.line(1), text.ending(1)), ("a", "\r\n"));
        assert_eq!((text.line(2), text.ending(2)), ("b", "\n"));
        assert_eq!((text.line(3), text.ending(3)), ("", "\n"));
        assert_eq!((text.line(4), text.ending(4)), ("λd", ""));
        assert_eq!((text.line(0), text.line(5)), ("", ""));
    }

    #[test]
    fn columns_count_characters() {
        let text = Text::new("a\nλd = 1\n");
        assert_eq!(text.position(text.as_str().find('d').unwrap_or(0)), (2, 2));
        assert_eq!(text.position(0), (1, 1));
    }

    #[test]
    fn anchors_hold_letters_and_digits() {
        assert_eq!(slug("eq:von-Kármán (1)"), "eq-von-kármán-1");
    }

    #[test]
    fn settings_are_found_by_their_whole_name() {
        let toml = "names = \"x\"\nname.workspace = true\n  name=\"y\"\nname = \"z\"\n";
        assert_eq!(setting(toml, "name"), Some("y"));
        assert_eq!(setting(toml, "edition"), None);
        let toml = "[a]\nurl = \"x\"\n[b.c]\nname = \"y\"\n\nurl = \"z\" \n[d]\nlate = \"w\"\n";
        assert_eq!(setting_in(toml, "b.c", "url"), Some("z"));
        assert_eq!(setting_in(toml, "b.c", "late"), None);
        assert_eq!(setting_in(toml, "b", "url"), None);
    }
}
