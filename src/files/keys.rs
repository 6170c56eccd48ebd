// Tangled from book/src/keys.md: edit there, or here and run cargo tangle stitch.
//! Declarations of the keys of a file: types, units, defaults, limits and meanings.

use crate::plausible::Plausible;
use std::fmt;

// Declaration of a key
/// The keys that a table may have.
pub type Keys = &'static [Key];

/// The declaration of a key of a file.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name, without the tables around it.
    pub name: &'static str,
    /// The type of its value.
    pub kind: KeyKind,
    /// Unit of its numbers; empty for none.
    pub unit: &'static str,
    /// What holds where it is left out.
    pub default: KeyDefault,
    /// Limits of its numbers.
    pub range: KeyRange,
    /// What it is, in a phrase.
    pub meaning: &'static str,
    /// The chapter that explains it, without its ending; empty for that of the table around it.
    pub chapter: &'static str,
    /// The name that it had in earlier versions; empty for none.
    pub former: &'static str,
}

// Types of keys
/// The type of the value of a key.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum KeyKind {
    /// A number.
    Number,
    /// A whole number, not negative.
    Whole,
    /// `true` or `false`.
    Flag,
    /// A text.
    Text,
    /// The name of a file.
    File,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of these words.
    Words(&'static [&'static str]),
    /// A list of numbers.
    Numbers,
    /// So many numbers.
    Tuple(usize),
    // Types of keys with several values
    /// So many whole numbers.
    Wholes(&'static str),
    /// A number, or two.
    NumberOrPair,
    /// A whole number, or two.
    WholeOrPair,
    /// A number, or a list of numbers.
    NumberOrList,
    /// A number, or the name of a file.
    NumberOrFile,
    /// A list of pairs of numbers.
    Pairs,
    /// A table.
    Table(Keys),
    /// A list of tables.
    Tables(Keys),
    /// A table of keys that differ by their names alone, and what these names are.
    Alike(Keys, &'static str),
}

// Defaults of keys
/// What holds where a key is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyDefault {
    /// Nothing: it must be given.
    Required,
    /// This value, in TOML.
    Value(&'static str),
    /// What these words say.
    Words(&'static str),
}

// Limits of keys
/// Limits of the numbers of a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeyRange {
    /// The lowest number.
    pub low: f64,
    /// The highest number.
    pub high: f64,
    /// Whether the lowest and the highest are excluded.
    pub excluded: [bool; 2],
    /// Whether infinity is allowed beyond the highest.
    pub infinite: bool,
    /// What else is asked of the numbers.
    pub note: &'static str,
}

// Make a declaration of a key
impl Key {
    /// A key without limits that may be left out.
    pub const fn new(
        name: &'static str,
        kind: KeyKind,
        unit: &'static str,
        meaning: &'static str,
    ) -> Self {
        let (default, range) = (KeyDefault::Words("none"), KeyRange::ANY);
        Self { name, kind, unit, default, range, meaning, chapter: "", former: "" }
    }

    /// A table that may be left out.
    pub const fn table(
        name: &'static str,
        keys: Keys,
        chapter: &'static str,
        meaning: &'static str,
    ) -> Self {
        Self::new(name, KeyKind::Table(keys), "", meaning).chapter(chapter)
    }

    /// A list of tables, which may be empty.
    pub const fn tables(
        name: &'static str,
        keys: Keys,
        chapter: &'static str,
        meaning: &'static str,
    ) -> Self {
        Self::new(name, KeyKind::Tables(keys), "", meaning).chapter(chapter)
    }

    // Set a part of a declaration
    /// Makes the key required.
    pub const fn required(self) -> Self {
        Self { default: KeyDefault::Required, ..self }
    }

    /// Adds the default value, as TOML.
    pub const fn default(self, value: &'static str) -> Self {
        Self { default: KeyDefault::Value(value), ..self }
    }

    /// Adds words for what holds where the key is left out.
    pub const fn otherwise(self, words: &'static str) -> Self {
        Self { default: KeyDefault::Words(words), ..self }
    }

    /// Sets the limits of the value.
    pub const fn range(self, range: KeyRange) -> Self {
        Self { range, ..self }
    }

    /// Sets the chapter that explains the key.
    pub const fn chapter(self, chapter: &'static str) -> Self {
        Self { chapter, ..self }
    }

    /// Sets the name that the key had in earlier versions, for the error about an older file.
    pub const fn formerly(self, former: &'static str) -> Self {
        Self { former, ..self }
    }

    /// The keys of the table that this is, or of each of its tables; none of a plain key.
    pub const fn keys(&self) -> Keys {
        match self.kind {
            KeyKind::Table(keys) | KeyKind::Tables(keys) | KeyKind::Alike(keys, _) => keys,
            _ => &[],
        }
    }
}

// Make the limits of a key
impl KeyRange {
    /// Any finite number.
    pub const ANY: Self = Self::within(f64::NEG_INFINITY, f64::INFINITY);
    /// Numbers greater than 0.
    pub const POSITIVE: Self = Self::within(0.0, f64::INFINITY).above();
    /// Numbers not less than 0.
    pub const NOT_NEGATIVE: Self = Self::within(0.0, f64::INFINITY);

    /// Numbers that are plausible for a quantity.
    pub(crate) const fn plausible(quantity: &Plausible) -> Self {
        let [low, high] = quantity.accepted;
        match (quantity.signed, quantity.zero && low > 0.0) {
            (true, _) => Self::within(-high, high),
            (false, true) => Self::within(low, high).note("or 0"),
            (false, false) => Self::within(low, high),
        }
    }

    /// Numbers from `low` to `high`.
    pub const fn within(low: f64, high: f64) -> Self {
        Self { low, high, excluded: [false; 2], infinite: false, note: "" }
    }

    /// Excludes the lowest number.
    pub const fn above(self) -> Self {
        Self { excluded: [true, self.excluded[1]], ..self }
    }

    /// Excludes the highest number.
    pub const fn below(self) -> Self {
        Self { excluded: [self.excluded[0], true], ..self }
    }

    /// Allows infinity beyond the highest number.
    pub const fn or_infinite(self) -> Self {
        Self { infinite: true, ..self }
    }

    /// Adds a note with a further condition or exception.
    pub const fn note(self, note: &'static str) -> Self {
        Self { note, ..self }
    }
}

// Print limits of a key
impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [low, high] = [self.low, self.high].map(plain_number);
        let signs =
            (["≥", ">"][usize::from(self.excluded[0])], ["≤", "<"][usize::from(self.excluded[1])]);
        let mut parts = Vec::new();
        match (self.low.is_finite(), self.high.is_finite(), self.excluded) {
            (true, true, [false, false]) => parts.push(format!("{low} to {high}")),
            (from, to, _) => {
                parts.extend(from.then(|| format!("{} {low}", signs.0)));
                parts.extend(to.then(|| format!("{} {high}", signs.1)));
            }
        }
        parts.extend(self.infinite.then(|| "or inf".to_owned()));
        parts.extend((!self.note.is_empty()).then(|| self.note.to_owned()));
        f.write_str(&parts.join(", "))
    }
}

// Print a number of a declaration
/// A number of at most six digits, with an exponent where it is very small or large.
fn plain_number(x: f64) -> String {
    let rounded = format!("{x:.5e}").parse::<f64>().unwrap_or(x);
    match rounded.abs() {
        size if size != 0.0 && !(2e-3..1e5).contains(&size) => format!("{rounded:e}"),
        _ => format!("{rounded}"),
    }
}

// Print the type of a key
impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Number => "number",
            Self::Whole => "whole number",
            Self::Flag => "true or false",
            Self::Text => "text",
            Self::File => "file name",
            Self::Word(_) => "word",
            Self::Words(_) => "list of words",
            Self::Numbers => "list of numbers",
            Self::Tuple(2) => "2 numbers",
            Self::Tuple(count) => return write!(f, "{count} numbers"),
            Self::Wholes(count) => return write!(f, "{count} whole numbers"),
            Self::NumberOrPair => "number, or 2",
            Self::WholeOrPair => "whole number, or 2",
            Self::NumberOrList => "number, or a list",
            Self::NumberOrFile => "number, or a file name",
            Self::Pairs => "list of pairs",
            Self::Table(_) | Self::Alike(..) => "table",
            Self::Tables(_) => "list of tables",
        })
    }
}

// Rows of all keys
/// A key with the tables around it.
#[derive(Debug, Clone)]
pub struct KeyRow {
    /// The declaration.
    pub key: &'static Key,
    /// Its name with the tables around it: `guide_star.sensor.pixel`.
    pub path: String,
    /// The table that it belongs to, or that it is, as a heading: `[guide_star.sensor]`.
    pub table: String,
    /// The chapter that explains it, without its ending.
    pub chapter: &'static str,
}

/// All keys below some, each table followed by its keys.
pub fn key_rows(keys: Keys) -> Vec<KeyRow> {
    let mut rows = Vec::new();
    keys.iter().for_each(|key| add_rows(key, "", "", "", &mut rows));
    rows
}

// Add the rows of a key
/// Adds the rows of a key of the table `path`, whose heading and chapter are given.
fn add_rows(
    key: &'static Key,
    path: &str,
    heading: &str,
    chapter: &'static str,
    rows: &mut Vec<KeyRow>,
) {
    let name = if path.is_empty() { key.name.to_owned() } else { format!("{path}.{}", key.name) };
    let chapter = if key.chapter.is_empty() { chapter } else { key.chapter };
    let table = match key.kind {
        KeyKind::Table(_) | KeyKind::Alike(..) => format!("[{name}]"),
        KeyKind::Tables(_) => format!("[[{name}]]"),
        _ => heading.to_owned(),
    };
    rows.push(KeyRow { key, path: name.clone(), table: table.clone(), chapter });
    if let KeyKind::Alike(keys, noun) = key.kind {
        let any = keys.first().map(|key| (key, format!("{name}.{noun}")));
        rows.extend(any.map(|(key, path)| KeyRow { key, path, table, chapter }));
        return;
    }
    let (tables, plain): (Vec<_>, Vec<_>) = key.keys().iter().partition(|key| key.is_table());
    plain.into_iter().chain(tables).for_each(|key| add_rows(key, &name, &table, chapter, rows));
}

impl Key {
    /// Whether its value is a table, or a list of tables.
    pub const fn is_table(&self) -> bool {
        matches!(self.kind, KeyKind::Table(_) | KeyKind::Tables(_) | KeyKind::Alike(..))
    }
}

// Cells of a row
impl KeyRow {
    /// What a table says of the key: its type, unit, default, range, meaning and chapter.
    pub fn cells(&self) -> [String; 6] {
        let key = self.key;
        let default = match key.default {
            KeyDefault::Required => "required",
            KeyDefault::Value(value) | KeyDefault::Words(value) => value,
        };
        let range = match key.kind {
            KeyKind::Word(words) | KeyKind::Words(words) => {
                words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
            }
            _ => key.range.to_string(),
        };
        let (unit, meaning, chapter) = (key.unit.into(), key.meaning.into(), self.chapter.into());
        [key.kind.to_string(), unit, default.into(), range, meaning, chapter]
    }
}

// Rows in Markdown
/// The keys of one table of a file in Markdown, as the book has them; `table` is the path of that table.
pub fn key_markdown(rows: &[KeyRow], table: &str) -> String {
    let escaped = |text: &str| text.replace('|', "\\|");
    let mut text = String::from(
        "| key | type | unit | default | range | meaning | chapter |\n|---|---|---|---|---|---|---|\n",
    );
    let of_table = |row: &&KeyRow| {
        row.path.rsplit_once('.').is_some_and(|(path, _)| path == table) && !row.key.is_table()
    };
    for row in rows.iter().filter(of_table) {
        let name = row.path.rsplit('.').next().unwrap_or_default();
        let [kind, unit, default, range, meaning, chapter] = row.cells().map(|cell| escaped(&cell));
        let default = match row.key.default {
            KeyDefault::Value(_) => format!("`{default}`"),
            _ => default,
        };
        text += &format!(
            "| `{name}` | {kind} | {unit} | {default} | {range} | {meaning} | [{chapter}]({chapter}.md) |\n"
        );
    }
    text
}

// Check declarations of keys
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_declarations_have_paths_and_words() {
        const BULB: Keys = &[Key::new("power", KeyKind::Number, "W", "its power")
            .range(KeyRange::within(1e-4, 2e6).above().or_infinite())];
        const COLOURS: Keys = &[Key::new("Na", KeyKind::Number, "nm", "a line")];
        const LAMP: Keys = &[
            Key::tables("bulb", BULB, "", "one each"),
            Key::new("colour", KeyKind::Word(&["red", "blue"]), "", "its colour")
                .default("\"red\""),
            Key::new("lines", KeyKind::Alike(COLOURS, "ELEMENT"), "", "lines"),
        ];
        const FILE: Keys = &[Key::table("lamp", LAMP, "light", "a lamp").required()];
        let rows = key_rows(FILE);
        let paths: Vec<&str> = rows.iter().map(|row| row.path.as_str()).collect();
        let all = [
            "lamp",
            "lamp.colour",
            "lamp.bulb",
            "lamp.bulb.power",
            "lamp.lines",
            "lamp.lines.ELEMENT",
        ];
        assert_eq!(paths, all);
        assert_eq!((rows[3].table.as_str(), rows[3].chapter), ("[[lamp.bulb]]", "light"));
        assert_eq!(rows[3].cells()[3], "> 1e-4, ≤ 2e6, or inf");
        assert_eq!(rows[1].cells()[2..4], ["\"red\"".to_owned(), "\"red\", \"blue\"".to_owned()]);
        let markdown = key_markdown(&rows, "lamp");
        assert!(markdown.ends_with("| `colour` | word |  | `\"red\"` | \"red\", \"blue\" | its colour | [light](light.md) |\n"));
        assert_eq!(markdown.lines().count(), 3);
        assert_eq!(KeyRange::NOT_NEGATIVE.note("small").to_string(), "≥ 0, small");
        assert_eq!(KeyRange::within(0.0, 0.1).to_string(), "0 to 0.1");
    }
}
