// Tangled from book/src/system-file.md: edit there, or here and run cargo tangle stitch.
//! TOML whose values remember their lines, so that every error can name one.

use crate::device::refuse_beyond_memory;
use crate::error::{BadLine, Error, Invalid};
use crate::files::keys::{Key, Keys};
use std::{fs::File, io, io::Read, path::Path};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

// A document with lines
/// A parsed TOML file.
#[derive(Debug)]
pub struct Document<'d> {
    name: &'d str,
    text: &'d str,
    entries: DeTable<'d>,
}

impl<'d> Document<'d> {
    // Parse and point at lines
    /// Parses the text of the file `name`.
    pub fn parse(name: &'d str, text: &'d str) -> Result<Self, BadLine> {
        let (root, errors) = DeTable::parse_recoverable(text);
        let document = Self { name, text, entries: root.into_inner() };
        let Some(error) = errors.first() else { return Ok(document) };
        let at = error.span().unwrap_or_default().start;
        let mut bad = document.bad(at, String::new(), None, String::new());
        let found = one_line(text.lines().nth(bad.line - 1).unwrap_or_default());
        let found = if found.is_empty() { found } else { format!(", in `{found}`") };
        bad.expected = format!("TOML: {}{found}", error.message());
        Err(bad)
    }

    /// The name of the file.
    pub fn name(&self) -> &'d str {
        self.name
    }

    /// The table of all that stands in the document, in which only `keys` are allowed.
    pub fn root(&self, keys: Keys) -> Result<Table<'_>, BadLine> {
        Table { document: self, path: String::new(), at: 0, entries: &self.entries, keys }.checked()
    }

    // Make a complaint with its line
    fn bad(&self, at: usize, key: String, value: Option<String>, expected: String) -> BadLine {
        let line = line_of(self.text.as_bytes(), at);
        BadLine { file: self.name.into(), line, key, value, expected }
    }

    fn written(&self, span: std::ops::Range<usize>) -> String {
        one_line(self.text.get(span).unwrap_or_default())
    }
}

fn line_of(bytes: &[u8], at: usize) -> usize {
    1 + bytes[..at.min(bytes.len())].iter().filter(|&&byte| byte == b'\n').count()
}

// Read a file as text
/// The text of the file at `path`, which is to be `what`, such as `a system file`, and not longer than `limit` bytes.
///
/// # Errors
/// `Read` where it cannot be read or is longer; `SystemFile` at the first byte that is not UTF-8.
pub(crate) fn read_text(path: &Path, limit: u64, what: &str) -> Result<String, Error> {
    let failed = |source| Error::Read { path: path.into(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let needed = 2 * length.min(limit);
    refuse_beyond_memory(needed, || format!("the text of {}", path.display()))?;
    file.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        let size = match limit >> 30 {
            0 => format!("{} MiB", limit >> 20),
            gibibytes => format!("{gibibytes} GiB"),
        };
        let reason = format!("it is larger than {size}, too large for {what}");
        return Err(failed(io::Error::other(reason)));
    }
    String::from_utf8(bytes).map_err(|error| {
        let (at, bytes) = (error.utf8_error().valid_up_to(), error.as_bytes());
        let expected = format!("text in UTF-8, and the byte 0x{:02x} is none", bytes[at]);
        let (file, line) = (path.display().to_string(), line_of(bytes, at));
        BadLine { file, line, key: String::new(), value: None, expected }.into()
    })
}

// Quote a text on one line
pub(crate) fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let clean: String = line.chars().filter(|c| !c.is_control()).collect();
    match clean.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &clean[..end]),
        None => clean,
    }
}

// A table that knows its keys
/// A table of a [`Document`]: its name, its place, and its entries.
#[derive(Debug, Clone)]
pub struct Table<'d> {
    document: &'d Document<'d>,
    path: String,
    at: usize,
    entries: &'d DeTable<'d>,
    keys: Keys,
}

impl<'d> Table<'d> {
    fn checked(self) -> Result<Self, BadLine> {
        self.refuse_unknown_keys()?;
        Ok(self)
    }

    // Complain about a key
    fn refuse_unknown_keys(&self) -> Result<(), BadLine> {
        let unknown =
            self.entries.iter().filter(|(key, _)| self.declaration(key.get_ref()).is_none());
        let Some((key, value)) = unknown.min_by_key(|(key, _)| key.span().start) else {
            return Ok(());
        };
        let expected = match nearest(key.get_ref(), self.keys) {
            Some(known) => format!("a known key; did you mean {known}?"),
            None => {
                let names: Vec<_> = self.keys.iter().map(|key| key.name).collect();
                format!("one of the keys {}", names.join(", "))
            }
        };
        let path = self.path_of(key.get_ref());
        Err(self.document.bad(key.span().start, path, Some(self.value_text(value)), expected))
    }

    /// The declaration of a key of this table.
    fn declaration(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The complaint that `key` is missing.
    pub fn missing(&self, key: &str, expected: &str) -> BadLine {
        self.document.bad(self.at, self.path_of(key), None, expected.into())
    }

    fn path_of(&self, key: &str) -> String {
        let key = if key.is_empty() { "\"\"".into() } else { one_line(key) };
        if self.path.is_empty() { key } else { format!("{}.{key}", self.path) }
    }

    // Quote a value as it was written
    fn value_text(&self, value: &Spanned<DeValue>) -> String {
        let is_table = |value: &DeValue| value.as_table().is_some();
        let list = value.get_ref().as_array();
        let tables = list.is_some_and(|list| list.iter().any(|value| is_table(value.get_ref())));
        if tables || is_table(value.get_ref()) {
            return String::new();
        }
        self.document.written(value.span())
    }

    fn wrong(&self, key: &str, value: &Spanned<DeValue>, expected: &str) -> BadLine {
        let text = self.value_text(value);
        self.document.bad(value.span().start, self.path_of(key), Some(text), expected.into())
    }

    // Point at what a constructor refused
    /// The complaint of a constructor, at the line of the value that it refused.
    pub fn refuse(&self, invalid: Invalid) -> BadLine {
        let mut at = self.at;
        let mut steps = invalid.quantity.split(['.', '[']);
        let mut found = self.entries.get(steps.next().unwrap_or_default());
        for step in steps {
            let Some(value) = found else { break };
            at = value.span().start;
            found = match step.strip_suffix(']') {
                Some(index) => index.parse::<usize>().ok().and_then(|k| value.get_ref().get(k)),
                None => value.get_ref().get(step),
            };
        }
        let is_plain = |value: &DeValue| value.as_table().is_none() && value.as_array().is_none();
        let text = match found {
            Some(value) if is_plain(value.get_ref()) => self.value_text(value),
            _ => invalid.value,
        };
        let at = found.map_or(at, |value| value.span().start);
        self.document.bad(at, self.path_of(&invalid.quantity), Some(text), invalid.expected)
    }
    /// What a constructor returns, its complaint at the line of the value that it refused.
    pub fn check<T>(&self, result: Result<T, Invalid>) -> Result<T, BadLine> {
        result.map_err(|invalid| self.refuse(invalid))
    }
}

// Typed access to values
impl<'d> Table<'d> {
    fn entry(&self, key: &str) -> Option<&'d Spanned<DeValue<'d>>> {
        debug_assert!(
            self.declaration(key).is_some(),
            "{key} is missing from the keys of {}",
            self.path
        );
        self.entries.get(key)
    }

    /// The folder of the file, to which names of other files are relative.
    pub fn folder(&self) -> &'d Path {
        Path::new(self.document.name).parent().unwrap_or(Path::new(""))
    }

    /// Whether there is a value of `key`, of whatever type.
    pub fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// The value of `key`, or `None` if it is not given; `expected` says what it should be.
    pub fn optional<T: Decode<'d>>(&self, key: &str, expected: &str) -> Result<Option<T>, BadLine> {
        let decode = |value: &'d Spanned<DeValue<'d>>| {
            T::decode(value.get_ref()).ok_or_else(|| self.wrong(key, value, expected))
        };
        self.entry(key).map(decode).transpose()
    }

    /// The value of `key`, which must be given; `expected` says what it should be.
    pub fn required<T: Decode<'d>>(&self, key: &str, expected: &str) -> Result<T, BadLine> {
        self.optional(key, expected)?.ok_or_else(|| self.missing(key, expected))
    }

    // Lines before a text
    /// Lines of the file before the first line of the text of `key`.
    pub fn lines_before(&self, key: &str) -> usize {
        let Some(span) = self.entry(key).map(Spanned::span) else { return 0 };
        let before = line_of(self.document.text.as_bytes(), span.start) - 1;
        let written = self.document.text.get(span).unwrap_or_default();
        let inside = written.strip_prefix("\"\"\"").or(written.strip_prefix("'''"));
        let breaks = inside.is_some_and(|text| text.starts_with(['\n', '\r']));
        before + usize::from(breaks)
    }

    // Access to choices and tables
    /// What the word given for `key` stands for, or `None` if it is not given.
    pub fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Result<Option<T>, BadLine> {
        let Some(value) = self.entry(key) else { return Ok(None) };
        let word = <&str>::decode(value.get_ref());
        match choices.iter().find(|(name, _)| Some(*name) == word) {
            Some(&(_, meaning)) => Ok(Some(meaning)),
            None => {
                let names: Vec<_> = choices.iter().map(|(name, _)| format!("{name:?}")).collect();
                Err(self.wrong(key, value, &names.join(" or ")))
            }
        }
    }

    // Open tables and lists of tables
    /// The table under `key`, in which only its declared keys are allowed, or `None` if it is not given.
    pub fn table(&self, key: &str) -> Result<Option<Table<'d>>, BadLine> {
        let Some(value) = self.entry(key) else { return Ok(None) };
        let keys = self.declaration(key).map_or(&[][..], Key::keys);
        let expected = format!("a table [{key}]");
        let entries =
            value.get_ref().as_table().ok_or_else(|| self.wrong(key, value, &expected))?;
        let (path, at) = (self.path_of(key), value.span().start);
        Self { document: self.document, path, at, entries, keys }.checked().map(Some)
    }

    /// The table under `key`, which must be given.
    pub fn required_table(&self, key: &str) -> Result<Table<'d>, BadLine> {
        self.table(key)?.ok_or_else(|| self.missing(key, &format!("a table [{key}]")))
    }

    // Open a list of tables
    /// The tables listed under `key`, in each of which only its declared keys are allowed.
    pub fn tables(&self, key: &str) -> Result<Vec<Table<'d>>, BadLine> {
        let Some(value) = self.entry(key) else { return Ok(Vec::new()) };
        let keys = self.declaration(key).map_or(&[][..], Key::keys);
        let expected = format!("a list of tables, each under [[{}]]", self.path_of(key));
        let list = value.get_ref().as_array().ok_or_else(|| self.wrong(key, value, &expected))?;
        let open = |(index, value): (usize, &'d Spanned<DeValue<'d>>)| {
            let name = format!("{key}[{index}]");
            let entries = value.get_ref().as_table();
            let entries = entries.ok_or_else(|| self.wrong(&name, value, "a table"))?;
            let (path, at) = (self.path_of(&name), value.span().start);
            Self { document: self.document, path, at, entries, keys }.checked()
        };
        list.iter().enumerate().map(open).collect()
    }
}

// What a value decodes to
/// A type that a TOML value can be read as.
pub trait Decode<'d>: Sized {
    /// The value as this type, or `None` if it does not fit.
    fn decode(value: &'d DeValue<'d>) -> Option<Self>;
}

impl<'d> Decode<'d> for &'d str {
    fn decode(value: &'d DeValue<'d>) -> Option<Self> {
        value.as_str()
    }
}

// Numbers as values of a table
impl<'d> Decode<'d> for usize {
    fn decode(value: &'d DeValue<'d>) -> Option<Self> {
        let whole = value.as_integer()?;
        usize::from_str_radix(whole.as_str(), whole.radix()).ok()
    }
}

impl<'d> Decode<'d> for f64 {
    fn decode(value: &'d DeValue<'d>) -> Option<Self> {
        if let Some(whole) = value.as_integer() {
            return i64::from_str_radix(whole.as_str(), whole.radix()).ok().map(|x| x as f64);
        }
        let text = value.as_float()?.as_str();
        let number: f64 = text.parse().ok()?;
        (!number.is_infinite() || text.contains("inf")).then_some(number)
    }
}
impl<'d> Decode<'d> for bool {
    fn decode(value: &'d DeValue<'d>) -> Option<Self> {
        value.as_bool()
    }
}
impl<'d> Decode<'d> for [f64; 2] {
    fn decode(value: &'d DeValue<'d>) -> Option<Self> {
        let list = value.as_array()?;
        let (Some(x), Some(y), 2) = (list.first(), list.get(1), list.len()) else { return None };
        Some([f64::decode(x.get_ref())?, f64::decode(y.get_ref())?])
    }
}
impl<'d, T: Decode<'d>> Decode<'d> for Vec<T> {
    fn decode(value: &'d DeValue<'d>) -> Option<Self> {
        value.as_array()?.iter().map(|item| T::decode(item.get_ref())).collect()
    }
}

// Suggest the nearest known key
fn nearest(word: &str, keys: &[Key]) -> Option<&'static str> {
    if word.len() > 100 {
        return None;
    }
    let distance = |name: &&str| edits(&word.to_lowercase().replace('-', "_"), name);
    let name = keys.iter().map(|key| key.name).min_by_key(distance)?;
    (distance(&name) <= (name.len() / 3).max(1)).then_some(name)
}

/// The least number of edits that turn one word into the other, [edit distance](https://lenslet.github.io/lenslet/system-file.html#eq-edit-distance).
pub(crate) fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.chars().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.chars().count()]
}

// Check the located decoder
#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::keys::KeyKind;

    #[test]
    fn the_nearest_key_is_near() {
        let key = |name| Key::new(name, KeyKind::Number, "", "");
        let keys = &["r0", "wavelength", "outer_scale"].map(key);
        assert_eq!(nearest("ro", keys), Some("r0"));
        assert_eq!(nearest("Outer-Scale", keys), Some("outer_scale"));
        assert_eq!(nearest("wavelenght", keys), Some("wavelength"));
        assert_eq!(nearest("seeing", keys), None);
        assert_eq!((edits("kitten", "sitting"), edits("", "abc"), edits("é", "e")), (3, 3, 1));
    }

    // Read a lamp
    const LAMP: Keys = &[Key::table("lamp", POWER_AND_COLOUR, "", "a lamp")];
    const POWER_AND_COLOUR: Keys = &[
        Key::new("power", KeyKind::Number, "W", "its power"),
        Key::new("colour", KeyKind::Number, "m", "its wavelength"),
    ];

    #[test]
    fn a_lamp_is_read_and_its_colour_refused() -> Result<(), BadLine> {
        let document = Document::parse("lamp.toml", "[lamp]\npower = 20\ncolour = 'red'\n")?;
        let lamp = document.root(LAMP)?.required_table("lamp")?;
        assert_eq!(lamp.required::<f64>("power", "a power in watts")?, 20.0);
        let colour = lamp.required::<f64>("colour", "a wavelength in metres").unwrap_err();
        let message = "lamp.toml:3: lamp.colour = 'red': expected a wavelength in metres";
        assert_eq!(colour.to_string(), message);
        Ok(())
    }

    // Check lines and types
    #[test]
    fn values_have_lines_and_types() {
        let text = "a = 1\nb = 0x10\n\n[t]\nc = 2.5\nd = [\n  { e = inf },\n  { e = 1e999 },\n]\n";
        let document = Document::parse("f", text).unwrap();
        const E: Keys = &[Key::new("e", KeyKind::Number, "", "")];
        const T: Keys = &[Key::new("c", KeyKind::Number, "", ""), Key::tables("d", E, "", "")];
        const ROOT: Keys = &[
            Key::new("a", KeyKind::Number, "", ""),
            Key::new("b", KeyKind::Whole, "", ""),
            Key::table("t", T, "", ""),
        ];
        let root = document.root(ROOT).unwrap();
        assert_eq!(root.required::<f64>("a", "").unwrap(), 1.0);
        assert_eq!(root.required::<usize>("b", "").unwrap(), 16);
        let table = root.table("t").unwrap().unwrap();
        assert_eq!(table.required::<usize>("c", "a number").unwrap_err().line, 5);
        let list = table.tables("d").unwrap();
        assert_eq!(list[0].required::<f64>("e", "").unwrap(), f64::INFINITY);
        let large = list[1].required::<f64>("e", "a number").unwrap_err().to_string();
        assert_eq!(large, "f:8: t.d[1].e = 1e999: expected a number");
        let refused = table.refuse(Invalid::new("d[0].e", "?", "less")).to_string();
        assert_eq!(refused, "f:7: t.d[0].e = inf: expected less");
        let default = table.refuse(Invalid::new("d[1].x", 0.5, "more")).to_string();
        assert_eq!(default, "f:8: t.d[1].x = 0.5: expected more");
        assert_eq!(document.bad(text.len(), String::new(), None, String::new()).line, 10);
        assert_eq!(document.bad(usize::MAX, String::new(), None, String::new()).line, 10);
    }
}
