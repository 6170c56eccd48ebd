// Tangled from book/src/tiptop-files.md: edit there, or here and run cargo tangle stitch.
//! TIPTOP's parameter files: sections of keys whose values are Python's literals, each with its line.

use crate::error::{BadLine, Invalid};
use crate::files::spanned_toml::one_line;

// Literals of python
/// A value as Python writes it.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    None,
    Flag(bool),
    Number(f64),
    Text(String),
    List(Vec<Literal>),
}

// File of sections and keys
// Key with its value
/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterEntry {
    pub key: String,
    pub line: usize,
    /// The value as it stands in the file, on one line.
    pub written: String,
    pub value: Literal,
}

/// A section, whose name its errors know together with that of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    file: String,
    pub name: String,
    line: usize,
    pub entries: Vec<ParameterEntry>,
}

// Comment of a file
/// A comment: its line, and its text without the sign that begins it.
#[derive(Debug, Clone, PartialEq)]
pub struct Comment {
    pub line: usize,
    pub text: String,
}

/// A parameter file.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterFile {
    name: String,
    pub sections: Vec<Section>,
    pub comments: Vec<Comment>,
}

// Read lines of a parameter file
/// A key whose value is still a text, of one line or several.
struct SectionDraft {
    key: String,
    line: usize,
    indent: usize,
    text: String,
}

// Read a parameter file
impl ParameterFile {
    /// Reads the text of a file of this `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, BadLine> {
        let mut file = Self { name: name.into(), sections: Vec::new(), comments: Vec::new() };
        let mut draft = None;
        for (line, raw) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            // Comment and content of a line
            let (line, content) = (line + 1, raw.trim());
            let indent = raw.len() - raw.trim_start().len();
            file.comments
                .extend(comment_of(content).map(|text| Comment { line, text: text.into() }));
            if content.is_empty() || content.starts_with([';', '#']) {
                continue;
            }
            // Go on with a value
            if let Some(SectionDraft { text, indent: of_key, .. }) = &mut draft
                && indent > *of_key
            {
                text.push('\n');
                text.push_str(content);
                continue;
            }
            file.finish(draft.take())?;
            // Begin a section or a key
            match content.strip_prefix('[') {
                Some(header) => file.begin(line, header)?,
                None => draft = Some(file.key(line, indent, content)?),
            }
        }
        file.finish(draft)?;
        Ok(file)
    }

    // Begin a section
    /// Begins the section with this header, of which the first bracket is gone.
    fn begin(&mut self, line: usize, header: &str) -> Result<(), BadLine> {
        let (name, rest) = header.split_once(']').unwrap_or(("", header));
        let (name, rest) = (name.trim(), rest.trim());
        let good = !name.is_empty() && (rest.is_empty() || rest.starts_with([';', '#']));
        if !good {
            return Err(self.bad(
                line,
                "",
                None,
                &in_line("a section such as [telescope]", header),
            ));
        }
        if self.sections.iter().any(|section| section.name == name) {
            return Err(self.bad(line, name, Some(""), "one section of this name"));
        }
        let (file, name, entries) = (self.name.clone(), name.into(), Vec::new());
        self.sections.push(Section { file, name, line, entries });
        Ok(())
    }

    // Tell a key from its value
    /// The key of a line, and the beginning of its value.
    fn key(&self, line: usize, indent: usize, content: &str) -> Result<SectionDraft, BadLine> {
        let expected = "a key and its value, with = between them";
        let broken = || self.bad(line, "", None, &in_line(expected, content));
        let (key, text) = content.split_once(['=', ':']).ok_or_else(broken)?;
        let (key, text) = (key.trim(), text.trim());
        if key.is_empty() {
            return Err(broken());
        }
        let Some(section) = self.sections.last() else {
            let expected = "a section such as [telescope] before the first key";
            return Err(self.bad(line, key, Some(text), expected));
        };
        if section.entries.iter().any(|entry| entry.key == key) {
            let path = format!("{}.{key}", section.name);
            return Err(self.bad(line, &path, Some(text), "each key once in a section"));
        }
        Ok(SectionDraft { key: key.into(), line, indent, text: text.into() })
    }

    // Finish a value
    /// Takes the value of a key for what it is in Python.
    fn finish(&mut self, draft: Option<SectionDraft>) -> Result<(), BadLine> {
        let (Some(SectionDraft { key, line, text, .. }), Some(section)) =
            (draft, self.sections.last_mut())
        else {
            return Ok(());
        };
        let written = one_line(&text);
        let Some(value) = Literal::parse(&text) else {
            let path = format!("{}.{key}", section.name);
            return Err(self.bad(line, &path, Some(&written), LITERAL));
        };
        section.entries.push(ParameterEntry { key, line, written, value });
        Ok(())
    }

    fn bad(&self, line: usize, key: &str, value: Option<&str>, expected: &str) -> BadLine {
        let value = value.map(one_line);
        BadLine {
            file: self.name.clone(),
            line,
            key: one_line(key),
            value,
            expected: expected.into(),
        }
    }

    // Look for a section
    /// The section of a name, if there is one.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// The section of a name, which must be there.
    pub fn required(&self, name: &str) -> Result<&Section, BadLine> {
        let missing = || self.bad(1, name, None, &format!("a section [{name}]"));
        self.section(name).ok_or_else(missing)
    }
}

// Comment of a line
/// The comment that a line is or ends with, if it has any text.
fn comment_of(content: &str) -> Option<&str> {
    let mut quote = None;
    let begins = |c: char, quote: Option<char>| match content.starts_with([';', '#', '[']) {
        true => [';', '#'].contains(&c),
        false => c == '#' && quote.is_none(),
    };
    for (at, c) in content.char_indices() {
        if begins(c, quote) {
            let text = content[at..].trim_start_matches([';', '#']).trim();
            return (!text.is_empty()).then_some(text);
        }
        match quote {
            Some(open) if open == c => quote = None,
            None if ['\'', '"'].contains(&c) => quote = Some(c),
            _ => {}
        }
    }
    None
}

// Quote a broken line
/// What was expected, and the line as it was found.
fn in_line(expected: &str, line: &str) -> String {
    format!("{expected}, in `{}`", one_line(line))
}

// Read a literal of python
const LITERAL: &str =
    "a literal of Python's: a number, a text in quotes, True, False, None, or a list of them";

/// Lists within lists, at most.
const DEEPEST: usize = 8;

impl Literal {
    /// The literal that a text is, if it is one; several with commas between them are a list.
    fn parse(text: &str) -> Option<Self> {
        let (mut items, comma) = UnreadText(text).items(None, 0)?;
        match (items.len(), comma) {
            (0, _) => None,
            (1, false) => items.pop(),
            _ => Some(Self::List(items)),
        }
    }
}

// Rest of a text
/// Text that is still to be read.
struct UnreadText<'t>(&'t str);

impl<'t> UnreadText<'t> {
    // Read items with commas between
    /// Items up to the bracket that ends them, or to the end, and whether there was a comma.
    fn items(&mut self, end: Option<char>, depth: usize) -> Option<(Vec<Literal>, bool)> {
        let (mut items, mut commas) = (Vec::new(), 0);
        loop {
            self.skip();
            let ended = end.map_or(self.0.is_empty(), |end| self.take(end));
            if ended {
                return Some((items, commas > 0));
            }
            if items.len() == commas {
                items.push(self.item(depth)?);
            } else if self.take(',') {
                commas += 1;
            } else {
                return None;
            }
        }
    }

    // Read an item of a list
    /// One item, if there is one.
    fn item(&mut self, depth: usize) -> Option<Literal> {
        let first = self.0.chars().next().filter(|_| depth < DEEPEST)?;
        match first {
            '[' | '(' => {
                self.take(first);
                let end = if first == '[' { ']' } else { ')' };
                let (mut items, comma) = self.items(Some(end), depth + 1)?;
                let bare = first == '(' && items.len() == 1 && !comma;
                if bare { items.pop() } else { Some(Literal::List(items)) }
            }
            '\'' | '"' => {
                let (text, rest) = self.0[1..].split_once(first)?;
                self.0 = rest;
                (!text.contains(['\\', '\n'])).then(|| Literal::Text(text.into()))
            }
            _ => {
                let ends = |c: char| c.is_whitespace() || ",[]()'\"#".contains(c);
                let (word, rest) = self.0.split_at(self.0.find(ends).unwrap_or(self.0.len()));
                self.0 = rest;
                literal_of(word)
            }
        }
    }

    // Skip blanks and take a character
    /// Skips blanks and comments.
    fn skip(&mut self) {
        loop {
            self.0 = self.0.trim_start();
            if !self.0.starts_with('#') {
                return;
            }
            self.0 = self.0.find('\n').map_or("", |end| &self.0[end..]);
        }
    }

    /// Takes a character, if it is next.
    fn take(&mut self, character: char) -> bool {
        let rest: Option<&'t str> = self.0.strip_prefix(character);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }
}

// Read a word of python
fn literal_of(word: &str) -> Option<Literal> {
    match word {
        "None" => return Some(Literal::None),
        "True" => return Some(Literal::Flag(true)),
        "False" => return Some(Literal::Flag(false)),
        _ => {}
    }
    let is_number =
        word.trim_start_matches(['+', '-']).starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 = word.replace('_', "").parse().ok().filter(|_| is_number)?;
    number.is_finite().then_some(Literal::Number(number))
}

// Values of a section by type
/// A type that a literal can be read as.
pub trait FromLiteral: Sized {
    fn read(literal: &Literal) -> Option<Self>;
}

impl FromLiteral for f64 {
    fn read(literal: &Literal) -> Option<Self> {
        if let Literal::Number(number) = literal { Some(*number) } else { None }
    }
}

impl FromLiteral for usize {
    fn read(literal: &Literal) -> Option<Self> {
        let number = f64::read(literal)?;
        ((0.0..1e15).contains(&number) && number.fract() == 0.0).then_some(number as usize)
    }
}

// Lists of literals
impl<T: FromLiteral> FromLiteral for Vec<T> {
    fn read(literal: &Literal) -> Option<Self> {
        match literal {
            Literal::List(items) => items.iter().map(T::read).collect(),
            alone => T::read(alone).map(|alone| vec![alone]),
        }
    }
}

// More types of literals
impl FromLiteral for bool {
    fn read(literal: &Literal) -> Option<Self> {
        if let Literal::Flag(flag) = literal { Some(*flag) } else { None }
    }
}

impl FromLiteral for String {
    fn read(literal: &Literal) -> Option<Self> {
        if let Literal::Text(text) = literal { Some(text.clone()) } else { None }
    }
}

impl<T: FromLiteral> FromLiteral for Option<T> {
    fn read(literal: &Literal) -> Option<Self> {
        if *literal == Literal::None { Some(None) } else { T::read(literal).map(Some) }
    }
}

// Values of a section
impl Section {
    // Ask a section for values
    /// The value of a key, or `None` where it is not given; `expected` says what it should be.
    pub fn optional<T: FromLiteral>(
        &self,
        key: &str,
        expected: &str,
    ) -> Result<Option<T>, BadLine> {
        let Some(entry) = self.entry(key) else { return Ok(None) };
        Option::<T>::read(&entry.value).ok_or_else(|| self.refuse(key, expected))
    }

    /// The value of a key, which must be given.
    pub fn required<T: FromLiteral>(&self, key: &str, expected: &str) -> Result<T, BadLine> {
        self.optional(key, expected)?.ok_or_else(|| self.missing(key, expected))
    }

    /// What a constructor returns; what it refuses is the value of this key.
    pub fn check<T>(&self, key: &str, result: Result<T, Invalid>) -> Result<T, BadLine> {
        result.map_err(|invalid| self.refuse(key, &invalid.expected))
    }

    // Complain about a section
    /// The complaint about the value of a key, or that it is missing.
    pub fn refuse(&self, key: &str, expected: &str) -> BadLine {
        let Some(ParameterEntry { line, written, .. }) = self.entry(key) else {
            return self.missing(key, expected);
        };
        let (file, key) = (self.file.clone(), format!("{}.{key}", self.name));
        BadLine { file, line: *line, key, value: Some(written.clone()), expected: expected.into() }
    }

    /// The complaint that a key is missing.
    pub fn missing(&self, key: &str, expected: &str) -> BadLine {
        let (file, key) = (self.file.clone(), format!("{}.{key}", self.name));
        BadLine { file, line: self.line, key, value: None, expected: expected.into() }
    }

    /// A key with its value.
    pub fn entry(&self, key: &str) -> Option<&ParameterEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}

// Tests of parameter files
#[cfg(test)]
mod tests {
    use super::*;

    // Read what python would
    #[test]
    fn literals_are_those_of_python() {
        let text = "; TIPTOP\n[a]\nx = 500e-9 # metres\nw: [1, 2.5,\n   -3.] \ny = 'a; # b'\nn = [None]\nt = True\n\
                    \n  # indented\n[b] ; the second\nl = [[0.0, 1_000],]\np = (7)\nq = 1, 2\ne = []\n";
        let file = ParameterFile::parse("f.ini", text).unwrap();
        let section = file.required("a").unwrap();
        assert_eq!(section.required::<f64>("x", ""), Ok(500e-9));
        assert_eq!(section.required::<Vec<f64>>("w", ""), Ok(vec![1.0, 2.5, -3.0]));
        assert_eq!(section.required::<Vec<f64>>("x", ""), Ok(vec![500e-9]));
        assert_eq!(section.required::<String>("y", ""), Ok("a; # b".into()));
        assert_eq!(section.required::<Vec<Option<f64>>>("n", ""), Ok(vec![None]));
        assert_eq!(section.optional::<bool>("t", ""), Ok(Some(true)));
        assert_eq!(section.optional::<bool>("u", ""), Ok(None));
        let section = file.required("b").unwrap();
        assert_eq!(section.required::<Vec<Vec<f64>>>("l", ""), Ok(vec![vec![0.0, 1000.0]]));
        assert_eq!(section.required::<usize>("p", ""), Ok(7));
        assert_eq!(section.required::<Vec<usize>>("q", ""), Ok(vec![1, 2]));
        assert_eq!(section.entry("e").unwrap().value, Literal::List(Vec::new()));
        assert_eq!(file.required("a").unwrap().entry("w").unwrap().written, "[1, 2.5, -3.]");
    }

    // Refuse broken lines
    #[test]
    fn broken_lines_are_refused_by_their_places() {
        let refused = |text: &str| ParameterFile::parse("f.ini", text).unwrap_err().to_string();
        for (line, expected) in [
            ("Seeing", "f.ini:2: expected a key and its value, with = between them, in `Seeing`"),
            ("= 3", "f.ini:2: expected a key and its value, with = between them, in `= 3`"),
            ("[DM", "f.ini:2: expected a section such as [telescope], in `DM`"),
            ("[a]", "f.ini:2: a: expected one section of this name"),
            ("x = 1\nx = 2", "f.ini:3: a.x = 2: expected each key once in a section"),
        ] {
            assert_eq!(refused(&format!("[a]\n{line}")), expected);
        }
        assert!(refused("x = 1").starts_with("f.ini:1: x = 1: expected a section"));
        for value in [
            "",
            "[1, 2",
            "[1 2]",
            "[,]",
            "'open",
            "seeing",
            "1 ; m",
            "1e999",
            "nan",
            "inf",
            "[1]]",
            "1/3",
            "0.65 m",
            "[[[[[[[[[[1]]]]]]]]]]",
            "'a\\n'",
            "--",
            ".",
        ] {
            let message = refused(&format!("[a]\n\nx = {value}"));
            let equals = if value.is_empty() { "" } else { " = " };
            assert!(message.starts_with(&format!("f.ini:3: a.x{equals}{value}")), "{message}");
            assert!(message.contains("expected a literal of Python's"), "{message}");
        }
        let file = ParameterFile::parse("f.ini", "[a]\nx = 2.5\n").unwrap();
        let section = file.required("a").unwrap();
        let words = section.required::<usize>("x", "a whole number").unwrap_err().to_string();
        assert_eq!(words, "f.ini:2: a.x = 2.5: expected a whole number");
        let words = section.required::<f64>("y", "a number").unwrap_err().to_string();
        assert_eq!(words, "f.ini:1: a.y is missing: expected a number");
        let words = file.required("b").unwrap_err().to_string();
        assert_eq!(words, "f.ini:1: b is missing: expected a section [b]");
    }
}
