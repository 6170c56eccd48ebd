// Tangled from book/src/toml-decoder.md: edit there, or here and run cargo tangle stitch.
//! TOML whose values remember their lines, so that every error can name one.

// Imports of the spanned decoder
use crate::device::refuse_beyond_memory;
use crate::error::{BadLine, Error, Invalid};
use crate::files::keys::{Key, KeyKind, Keys};
use std::collections::BTreeMap;
use std::ops::Range;
use std::{fs::File, io, io::Read, path::Path};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

// A document with lines
/// A parsed TOML file, or a dictionary. It owns its text and all that was parsed of it.
#[derive(Debug, Clone)]
pub struct Document {
    name: String,
    text: String,
    /// Whether errors name lines of the text, which a dictionary has none of.
    has_lines: bool,
    entries: Entries,
}

impl Document {
    // Parse and point at lines
    /// Parses the text of the file `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, BadLine> {
        let (root, errors) = DeTable::parse_recoverable(text);
        let (name, text) = (name.to_owned(), text.to_owned());
        let document = Self { name, text, has_lines: true, entries: Entries::new() };
        let Some(error) = errors.first() else {
            let entries = owned_entries(root.into_inner());
            return Ok(Self { entries, ..document });
        };
        // Quote the line of an error
        let at = error.span().unwrap_or_default().start;
        let mut bad = document.bad(at, String::new(), None, String::new());
        let quoted = one_line(document.text.lines().nth(bad.line - 1).unwrap_or_default());
        let quoted = if quoted.is_empty() { quoted } else { format!(", in `{quoted}`") };
        bad.expected = format!("TOML: {}{quoted}", error.message());
        Err(bad)
    }

    // Name, text and folder of a document
    /// The name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text of the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The folder of the file, to which names of other files are relative.
    pub fn folder(&self) -> &Path {
        Path::new(&self.name).parent().unwrap_or(Path::new(""))
    }

    /// Whether there is a value at a path, such as `atmosphere.layers[1].altitude`.
    pub fn has(&self, path: &str) -> bool {
        let mut steps = path.split(['.', '[']);
        let first = steps.next().and_then(|key| self.entries.get(key));
        first.and_then(|entry| steps.try_fold(&entry.value, SpannedValue::step)).is_some()
    }

    /// The table of all that stands in the document, in which only `keys` are allowed.
    pub fn root(&self, keys: Keys) -> Result<Table<'_>, BadLine> {
        Table { document: self, path: String::new(), at: 0, entries: &self.entries, keys }.checked()
    }

    // Make a complaint with its line
    fn bad(&self, at: usize, key: String, value: Option<String>, expected: String) -> BadLine {
        let line = if self.has_lines { line_of(self.text.as_bytes(), at) } else { 0 };
        BadLine { file: self.name.clone(), line, key, value, expected }
    }

    fn written(&self, span: Range<usize>) -> String {
        one_line(self.text.get(span).unwrap_or_default())
    }
}

// Compare two documents
/// Documents are equal where they have one name and one text.
impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.text, self.has_lines) == (&other.name, &other.text, other.has_lines)
    }
}

fn line_of(bytes: &[u8], at: usize) -> usize {
    1 + bytes[..at.min(bytes.len())].iter().filter(|&&byte| byte == b'\n').count()
}

// Values and their positions in the text
/// The entries of a table by their keys.
type Entries = BTreeMap<String, SpannedEntry>;

/// A value of a table, and the byte of the text at which its key begins.
#[derive(Debug, Clone)]
struct SpannedEntry {
    key_start: usize,
    value: SpannedValue,
}

/// A value, and the bytes of the text that it was written in.
#[derive(Debug, Clone)]
pub struct SpannedValue {
    span: Range<usize>,
    value: ParsedValue,
}

// Values without positions
/// A value without its position.
#[derive(Debug, Clone)]
enum ParsedValue {
    Text(String),
    Whole(i128),
    Number(f64),
    Flag(bool),
    List(Vec<SpannedValue>),
    Table(Entries),
    /// A date, a time, or a number that no type here holds.
    Other,
}

// Own the values of a document
// Own the entries of a table
fn owned_entries(entries: DeTable) -> Entries {
    let owned = |(key, value): (Spanned<_>, _)| {
        let key_start = key.span().start;
        let key: std::borrow::Cow<str> = key.into_inner();
        (key.into_owned(), SpannedEntry { key_start, value: SpannedValue::owned(value) })
    };
    entries.into_iter().map(owned).collect()
}

impl SpannedValue {
    fn owned(value: Spanned<DeValue>) -> Self {
        let span = value.span();
        let value = match value.into_inner() {
            DeValue::String(text) => ParsedValue::Text(text.into_owned()),
            DeValue::Integer(whole) => i128::from_str_radix(whole.as_str(), whole.radix())
                .map_or(ParsedValue::Other, ParsedValue::Whole),
            // Own a floating-point number
            DeValue::Float(number) => {
                let text = number.as_str();
                let held = |x: &f64| !x.is_infinite() || text.contains("inf");
                let number = text.parse().ok().filter(held);
                number.map_or(ParsedValue::Other, ParsedValue::Number)
            }
            DeValue::Boolean(flag) => ParsedValue::Flag(flag),
            DeValue::Datetime(_) => ParsedValue::Other,
            DeValue::Array(list) => ParsedValue::List(list.into_iter().map(Self::owned).collect()),
            DeValue::Table(entries) => ParsedValue::Table(owned_entries(entries)),
        };
        Self { span, value }
    }

    // Access to tables and lists
    fn as_table(&self) -> Option<&Entries> {
        match &self.value {
            ParsedValue::Table(entries) => Some(entries),
            _ => None,
        }
    }

    fn as_list(&self) -> Option<&[Self]> {
        match &self.value {
            ParsedValue::List(list) => Some(list),
            _ => None,
        }
    }

    /// The value of a step of a path: a key of a table, or, with a closing bracket, an index of a list.
    fn step(&self, step: &str) -> Option<&Self> {
        match step.strip_suffix(']') {
            Some(index) => self.as_list()?.get(index.parse::<usize>().ok()?),
            None => self.as_table()?.get(step).map(|entry| &entry.value),
        }
    }
}

// Documents of dictionaries
/// The most tables and lists inside of one another.
const MOST_NESTED: usize = 64;

impl Document {
    /// The document of a dictionary, whose errors name keys and no lines.
    pub fn from_table(values: toml::Table) -> Result<Self, BadLine> {
        let values: Vec<_> =
            values.into_iter().map(|(key, value)| (key, without_depth(value))).collect();
        if let Some((key, _)) = values.iter().find(|(_, value)| value.is_none()) {
            let expected = format!("at most {MOST_NESTED} tables and lists inside of one another");
            let (file, key, value) = (String::new(), one_line(key), Some(String::new()));
            return Err(BadLine { file, line: 0, key, value, expected });
        }
        let values = values.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let text = dictionary_text(&values.collect());
        Ok(Self::parse("", &text)?.without_lines())
    }

    // Names and lines of a document
    /// This document under another `name`, in whose folder other files are.
    pub fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// This document, with errors that name no lines.
    pub fn without_lines(self) -> Self {
        Self { has_lines: false, ..self }
    }

    /// Whether errors name lines of the text.
    pub fn has_lines(&self) -> bool {
        self.has_lines
    }
}

// Write dictionaries of limited depth
// Write a dictionary as TOML
/// A dictionary in TOML: plain values, and a heading for each table.
fn dictionary_text(values: &toml::Table) -> String {
    let (tables, plain): (Vec<_>, Vec<_>) =
        values.iter().partition(|(_, value)| matches!(value, toml::Value::Table(_)));
    let line = |(key, value): (&String, &toml::Value)| entry_text(key, value) + "\n";
    let mut text: String = plain.into_iter().map(line).collect();
    for (key, value) in tables {
        text += &format!("\n[{}]\n", key_text(key));
        text.extend(value.as_table().into_iter().flatten().map(line));
    }
    text
}

/// A value in TOML, on one line. A number keeps the exponent that `toml` would write out as zeros.
pub(crate) fn value_text(value: &toml::Value) -> String {
    match value {
        toml::Value::Float(number) if number.is_finite() => format!("{number:?}"),
        toml::Value::Array(list) => {
            format!("[{}]", list.iter().map(value_text).collect::<Vec<_>>().join(", "))
        }
        toml::Value::Table(table) => {
            let entries: Vec<_> = table.iter().map(|(key, value)| entry_text(key, value)).collect();
            format!("{{ {} }}", entries.join(", "))
        }
        other => other.to_string(),
    }
}

fn entry_text(key: &str, value: &toml::Value) -> String {
    format!("{} = {}", key_text(key), value_text(value))
}

fn key_text(key: &str) -> String {
    toml_edit::Key::new(key).display_repr().into_owned()
}

// Refuse values of great depth
/// The value, unless more than 64 tables and lists are inside of one another in it.
pub(crate) fn without_depth(value: toml::Value) -> Option<toml::Value> {
    let mut level = vec![&value];
    for _ in 0..MOST_NESTED {
        level = level.into_iter().flat_map(inside).collect();
        if level.is_empty() {
            return Some(value);
        }
    }
    // Dropped as a whole, it would exhaust the stack.
    let mut parts = vec![value];
    while let Some(part) = parts.pop() {
        match part {
            toml::Value::Array(list) => parts.extend(list),
            toml::Value::Table(table) => parts.extend(table.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
    None
}

// Values inside of a value
/// The values in a list or a table.
fn inside(value: &toml::Value) -> Vec<&toml::Value> {
    match value {
        toml::Value::Array(list) => list.iter().collect(),
        toml::Value::Table(table) => table.values().collect(),
        _ => Vec::new(),
    }
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
    document: &'d Document,
    path: String,
    at: usize,
    entries: &'d Entries,
    keys: Keys,
}

impl<'d> Table<'d> {
    fn checked(self) -> Result<Self, BadLine> {
        self.refuse_unknown_keys()?;
        Ok(self)
    }

    // Complain about a key
    fn refuse_unknown_keys(&self) -> Result<(), BadLine> {
        let unknown = self.entries.iter().filter(|(key, _)| self.declaration(key).is_none());
        let Some((key, entry)) = unknown.min_by_key(|(_, entry)| entry.key_start) else {
            return Ok(());
        };
        let renamed = self.keys.iter().find(|known| !key.is_empty() && known.former == key);
        let expected = match renamed.map(|key| key.name).or_else(|| nearest(key, self.keys)) {
            Some(known) if renamed.is_some() => format!("{known}, the new name of {key}"),
            Some(known) => format!("a known key; did you mean {known}?"),
            None => {
                let names: Vec<_> = self.keys.iter().map(|key| key.name).collect();
                format!("one of the keys {}", names.join(", "))
            }
        };
        let value = Some(self.value_text(&entry.value));
        Err(self.document.bad(entry.key_start, self.path_of(key), value, expected))
    }

    // Names and paths of keys
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
    fn value_text(&self, value: &SpannedValue) -> String {
        let is_table = |value: &SpannedValue| value.as_table().is_some();
        if is_table(value) || value.as_list().is_some_and(|list| list.iter().any(is_table)) {
            return String::new();
        }
        self.document.written(value.span.clone())
    }

    fn wrong(&self, key: &str, value: &SpannedValue, expected: &str) -> BadLine {
        let text = self.value_text(value);
        self.document.bad(value.span.start, self.path_of(key), Some(text), expected.into())
    }

    // Point at what a constructor refused
    /// The complaint of a constructor, at the line of the value that it refused.
    pub fn refuse(&self, invalid: Invalid) -> BadLine {
        let mut at = self.at;
        let mut steps = invalid.quantity.split(['.', '[']);
        let first = self.entries.get(steps.next().unwrap_or_default());
        let mut value_at = first.map(|entry| &entry.value);
        for step in steps {
            let Some(value) = value_at else { break };
            at = value.span.start;
            value_at = value.step(step);
        }
        let is_plain =
            |value: &SpannedValue| value.as_table().is_none() && value.as_list().is_none();
        let text = match value_at {
            Some(value) if is_plain(value) => self.value_text(value),
            _ => invalid.value,
        };
        let at = value_at.map_or(at, |value| value.span.start);
        self.document.bad(at, self.path_of(&invalid.quantity), Some(text), invalid.expected)
    }
    /// What a constructor returns, its complaint at the line of the value that it refused.
    pub fn check<T>(&self, result: Result<T, Invalid>) -> Result<T, BadLine> {
        result.map_err(|invalid| self.refuse(invalid))
    }
}

// Access to values and their types
// Typed access to values
impl<'d> Table<'d> {
    // Look up a declared key
    fn entry(&self, key: &str) -> Option<&'d SpannedValue> {
        debug_assert!(
            self.declaration(key).is_some(),
            "{key} is missing from the keys of {}",
            self.path
        );
        self.entries.get(key).map(|entry| &entry.value)
    }

    // Folder and keys of a table
    /// The folder of the file, to which names of other files are relative.
    pub fn folder(&self) -> &'d Path {
        self.document.folder()
    }

    /// Whether there is a value of `key`, of whatever type.
    pub fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// The value of `key`, or `None` if it is not given; `expected` says what it should be.
    pub fn optional<T: Decode<'d>>(&self, key: &str, expected: &str) -> Result<Option<T>, BadLine> {
        let decode = |value| T::decode(value).ok_or_else(|| self.wrong(key, value, expected));
        self.entry(key).map(decode).transpose()
    }

    // Require the value of a key
    /// The value of `key`, which must be given; `expected` says what it should be.
    pub fn required<T: Decode<'d>>(&self, key: &str, expected: &str) -> Result<T, BadLine> {
        self.optional(key, expected)?.ok_or_else(|| self.missing(key, expected))
    }

    // Lines before a text
    /// Lines of the file before the first line of the text of `key`.
    pub fn lines_before(&self, key: &str) -> usize {
        let Some(span) = self.entry(key).map(|value| value.span.clone()) else { return 0 };
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
        let word = <&str>::decode(value);
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
        let entries = value.as_table().ok_or_else(|| self.wrong(key, value, &expected))?;
        let (path, at) = (self.path_of(key), value.span.start);
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
        let list = value.as_list().ok_or_else(|| self.wrong(key, value, &expected))?;
        let open = |(index, value): (usize, &'d SpannedValue)| {
            let name = format!("{key}[{index}]");
            let entries = value.as_table();
            let entries = entries.ok_or_else(|| self.wrong(&name, value, "a table"))?;
            let (path, at) = (self.path_of(&name), value.span.start);
            Self { document: self.document, path, at, entries, keys }.checked()
        };
        list.iter().enumerate().map(open).collect()
    }

    // Check the keys of all tables
    /// Refuses a key of a table inside of this one, at whatever depth, that is not declared.
    pub fn check_keys(&self) -> Result<(), BadLine> {
        for key in self.keys.iter().filter(|key| self.has(key.name)) {
            match key.kind {
                KeyKind::Table(_) | KeyKind::Alike(..) => {
                    self.table(key.name)?.map_or(Ok(()), |table| table.check_keys())?;
                }
                KeyKind::Tables(_) => {
                    self.tables(key.name)?.iter().try_for_each(Table::check_keys)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

// What a value decodes to
/// A type that a TOML value can be read as.
pub trait Decode<'d>: Sized {
    /// The value as this type, or `None` if it does not fit.
    fn decode(value: &'d SpannedValue) -> Option<Self>;
}

impl<'d> Decode<'d> for &'d str {
    fn decode(value: &'d SpannedValue) -> Option<Self> {
        match &value.value {
            ParsedValue::Text(text) => Some(text),
            _ => None,
        }
    }
}

// Numbers as values of a table
impl<'d, T: Decode<'d>> Decode<'d> for Vec<T> {
    fn decode(value: &'d SpannedValue) -> Option<Self> {
        value.as_list()?.iter().map(T::decode).collect()
    }
}
impl Decode<'_> for usize {
    fn decode(value: &SpannedValue) -> Option<Self> {
        match value.value {
            ParsedValue::Whole(whole) => whole.try_into().ok(),
            _ => None,
        }
    }
}

impl Decode<'_> for f64 {
    fn decode(value: &SpannedValue) -> Option<Self> {
        match value.value {
            ParsedValue::Whole(whole) => i64::try_from(whole).ok().map(|whole| whole as f64),
            ParsedValue::Number(number) => Some(number),
            _ => None,
        }
    }
}
impl Decode<'_> for bool {
    fn decode(value: &SpannedValue) -> Option<Self> {
        match value.value {
            ParsedValue::Flag(flag) => Some(flag),
            _ => None,
        }
    }
}
impl Decode<'_> for [f64; 2] {
    fn decode(value: &SpannedValue) -> Option<Self> {
        match value.as_list()? {
            [x, y] => Some([f64::decode(x)?, f64::decode(y)?]),
            _ => None,
        }
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

/// The least number of edits that turn one word into the other, [edit distance](https://lenslet.github.io/lenslet/toml-decoder.html#eq-edit-distance).
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
