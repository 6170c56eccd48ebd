//! The works that chapters cite: `book/references.toml`, and `[@key]` in the text.
//!
//! `[@ophus-2017]` is shown as "Ophus (2017)", and inside parentheses as "Ophus 2017": `([@a; @b])`
//! gives "(Lobato and Van Dyck 2014; Ophus 2017)". Works of the same authors and year get letters.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::finding::Finding;
use crate::math::Math;
use crate::text::{Text, nearest};

/// The file of the works, relative to the repository.
pub const REFERENCES: &str = "book/references.toml";

/// The types of works, each with the field that says where a work of this type appeared.
const TYPES: [(&str, &str); 6] = [
    ("article", "journal"),
    ("book", "publisher"),
    ("chapter", "in"),
    ("manual", "publisher"),
    ("proceedings", "in"),
    ("thesis", "school"),
];
/// The fields that hold text, besides `type`.
const FIELDS: [&str; 10] =
    ["title", "journal", "in", "publisher", "school", "edition", "volume", "pages", "doi", "note"];

/// A cited work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Work {
    /// Where the file names it.
    pub position: (usize, usize),
    /// `Surname, Initials`, or the name of an organisation; `others` at the end stands for more.
    pub authors: Vec<String>,
    /// The year in which it appeared.
    pub year: i64,
    /// What tells it from works of the same authors and year: a letter, or nothing.
    pub letter: String,
    fields: BTreeMap<String, String>,
}

impl Work {
    /// A field that holds text; empty if the work does not have it.
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// Its DOI, if it is known.
    pub fn doi(&self) -> Option<&str> {
        self.fields.get("doi").map(String::as_str)
    }

    fn surnames(&self) -> Vec<&str> {
        self.authors.iter().map(|name| name.split(',').next().unwrap_or(name).trim()).collect()
    }

    /// The authors as a citation names them: `Ophus`, `Lobato and Van Dyck`, `Vidal et al.`
    pub fn names(&self) -> String {
        match self.surnames().as_slice() {
            [] => String::new(),
            [one] => one.to_string(),
            [one, other] if *other != "others" => format!("{one} and {other}"),
            [one, ..] => format!("{one} et al."),
        }
    }

    /// The year with its letter.
    pub fn dated(&self) -> String {
        format!("{}{}", self.year, self.letter)
    }

    /// What the list sorts by.
    pub fn order(&self) -> (Vec<String>, i64, String) {
        let surnames = self.surnames().into_iter().map(str::to_lowercase).collect();
        (surnames, self.year, self.field("title").to_lowercase())
    }

    /// The whole entry in pieces: text, and whether it is set in italics.
    pub fn entry(&self) -> Vec<(String, bool)> {
        let authors: Vec<&str> = self
            .authors
            .iter()
            .map(|name| if name == "others" { "and others" } else { name.as_str() })
            .collect();
        let mut pieces = vec![(format!("{} ({}). ", authors.join("; "), self.dated()), false)];
        let whole = self.fields.keys().all(|name| !["journal", "in"].contains(&name.as_str()));
        pieces.push((self.field("title").to_string(), whole));
        let mut rest = Vec::new();
        for (name, before) in [("journal", ". "), ("in", ". In ")] {
            if let Some(container) = self.fields.get(name) {
                pieces.push((before.to_string(), false));
                pieces.push((container.clone(), true));
            }
        }
        for name in ["volume", "pages", "edition", "publisher", "school", "note"] {
            if let Some(text) = self.fields.get(name) {
                rest.push(text.as_str());
            }
        }
        // A volume follows its journal without a comma.
        let joint = if self.fields.contains_key("volume") { " " } else { ", " };
        let rest =
            if rest.is_empty() { String::new() } else { joint.to_string() + &rest.join(", ") };
        pieces.push((rest + ".", false));
        pieces
    }

    /// The whole entry as plain text.
    pub fn text(&self) -> String {
        let pieces = self.entry().into_iter().map(|(text, _)| text);
        let doi = self.doi().map(|doi| format!(" doi:{doi}"));
        pieces.chain(doi).collect()
    }
}

/// All works, by key, and what is wrong in their file.
#[derive(Debug, Clone, Default)]
pub struct Bibliography {
    /// The works.
    pub works: BTreeMap<String, Work>,
    /// Faults of the file.
    pub findings: Vec<Finding>,
}

impl Bibliography {
    /// Reads the file of the works.
    pub fn parse(source: &str) -> Bibliography {
        let text = Text::new(source);
        let mut bibliography = Bibliography::default();
        let (table, errors) = DeTable::parse_recoverable(source);
        for error in errors {
            let at = text.position(error.span().map_or(0, |span| span.start));
            bibliography.report(at, error.message().to_string());
        }
        for (key, value) in table.get_ref() {
            let at = text.position(key.span().start);
            let DeValue::Table(fields) = value.get_ref() else {
                bibliography.report(at, format!("{} is no table of a work", key.get_ref()));
                continue;
            };
            bibliography.read(&text, key.get_ref(), at, fields);
        }
        bibliography.tell_apart();
        bibliography
    }

    fn report(&mut self, at: (usize, usize), what: String) {
        self.findings.push(Finding::error(REFERENCES, at, what));
    }

    fn read(&mut self, text: &Text, key: &str, position: (usize, usize), fields: &DeTable<'_>) {
        let mut work = Work { position, ..Work::default() };
        let mut kind = None;
        for (name, value) in fields {
            let (at, name) = (text.position(name.span().start), name.get_ref().as_ref());
            match (name, value.get_ref()) {
                ("type", DeValue::String(word)) => kind = Some(word.to_string()),
                ("year", DeValue::Integer(year)) => {
                    work.year = year.as_str().parse().unwrap_or_default();
                }
                ("authors", DeValue::Array(names)) => {
                    let names = names.iter().filter_map(|name| name.get_ref().as_str());
                    work.authors = names.map(str::to_string).collect();
                }
                (_, DeValue::String(words)) if FIELDS.contains(&name) => {
                    work.fields.insert(name.to_string(), words.to_string());
                }
                ("type" | "year" | "authors", _) => self.report(
                    at,
                    format!("{key}: {name} is of another kind: type is text, year a whole number, authors a list of texts"),
                ),
                _ if FIELDS.contains(&name) => {
                    self.report(at, format!("{key}: {name} is not text between quotation marks"));
                }
                _ => {
                    let known = ["type", "authors", "year"].into_iter().chain(FIELDS);
                    let remedy = nearest(name, known.clone())
                        .map_or_else(|| known.collect::<Vec<_>>().join(", "), str::to_string);
                    self.report(at, format!("{key}: no field is called {name}: use {remedy}"));
                }
            }
        }
        for fault in faults(key, &work, kind.as_deref()) {
            self.report(position, format!("{key}: {fault}"));
        }
        self.works.insert(key.to_string(), work);
    }

    /// Gives letters to works of the same authors and year, and reports works that are entered twice.
    fn tell_apart(&mut self) {
        let mut same: BTreeMap<(String, i64), Vec<String>> = BTreeMap::new();
        let mut keys: Vec<&String> = self.works.keys().collect();
        keys.sort_by_key(|key| self.works[*key].order());
        let mut identifiers: BTreeMap<String, String> = BTreeMap::new();
        let mut twice = Vec::new();
        for key in keys {
            let work = &self.works[key];
            same.entry((work.names(), work.year)).or_default().push(key.clone());
            if let Some(doi) = work.doi()
                && let Some(other) = identifiers.insert(doi.to_lowercase(), key.clone())
            {
                twice.push((work.position, format!("{key} has the DOI of {other}: keep one")));
            }
        }
        twice.into_iter().for_each(|(at, what)| self.report(at, what));
        for keys in same.into_values().filter(|keys| keys.len() > 1) {
            for (key, letter) in keys.into_iter().zip('a'..='z') {
                if let Some(work) = self.works.get_mut(&key) {
                    work.letter = letter.to_string();
                }
            }
        }
    }

    /// The works in the order of the list: by authors, year and title.
    pub fn sorted(&self) -> Vec<(&str, &Work)> {
        let mut works: Vec<(&str, &Work)> =
            self.works.iter().map(|(key, work)| (key.as_str(), work)).collect();
        works.sort_by_key(|(_, work)| work.order());
        works
    }
}

/// What a work lacks, and what is malformed in it.
fn faults(key: &str, work: &Work, kind: Option<&str>) -> Vec<String> {
    let mut faults = Vec::new();
    let types = || TYPES.map(|(name, _)| name).join(", ");
    match kind.map(|kind| (kind, TYPES.iter().find(|(name, _)| *name == kind))) {
        None => faults.push(format!("no type: one of {}", types())),
        Some((kind, None)) => faults.push(format!("no type is called {kind}: use {}", types())),
        Some((kind, Some((_, place)))) if work.field(place).is_empty() => {
            faults.push(format!("no {place}, which a work of type {kind} has"));
        }
        Some(_) => {}
    }
    if work.field("title").is_empty() {
        faults.push("no title".to_string());
    }
    if work.authors.is_empty() || work.authors.iter().any(|name| name.trim().is_empty()) {
        faults.push("no authors: a list of names, as \"Ophus, C.\"".to_string());
    }
    if !(1600..=2100).contains(&work.year) {
        faults.push("no year".to_string());
    } else if !is_key(key) || !key.contains(&format!("-{}", work.year)) {
        let year = work.year;
        faults.push(format!("a key is spelt surname-{year}, in small letters, digits and hyphens"));
    }
    if work.doi().is_some_and(|doi| !doi.starts_with("10.") || !doi.contains('/')) {
        faults.push("a DOI is spelt 10.1000/182, without an address before it".to_string());
    }
    faults
}

fn is_key(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(fits)
}

/// A citation in a chapter: `[@one]` or `[@one; @two]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Citation {
    /// Its bytes, brackets included.
    pub range: Range<usize>,
    /// The keys that it names.
    pub keys: Vec<String>,
    /// Whether it is inside parentheses.
    pub in_parentheses: bool,
    /// Line and column.
    pub position: (usize, usize),
}

/// A fault: line and column, and what is wrong.
type Fault = ((usize, usize), String);

/// The citations of a chapter outside of code and formulas, and those that are malformed.
pub fn scan(text: &Text, literal: &[Range<usize>], math: &[Math]) -> (Vec<Citation>, Vec<Fault>) {
    let source = text.as_str();
    let spans = |part: Range<usize>| -> Vec<Range<usize>> {
        let all = literal.iter().chain(math.iter().map(|formula| &formula.range));
        all.filter(|range| range.start < part.end && part.start < range.end).cloned().collect()
    };
    let (mut citations, mut faults) = (Vec::new(), Vec::new());
    for (start, _) in source.match_indices("[@").filter(|&(at, _)| spans(at..at + 1).is_empty()) {
        let position = text.position(start);
        let inside = source[start + 1..].split(']').next().unwrap_or("");
        let keys = inside.split(';').map(|key| key.trim().strip_prefix('@'));
        let keys: Option<Vec<String>> =
            keys.map(|key| key.filter(|key| is_key(key)).map(str::to_string)).collect();
        let range = start..start + inside.len() + 2;
        match keys.filter(|_| range.end <= source.len()) {
            Some(keys) => {
                let begin = source[..start].rfind("\n\n").map_or(0, |at| at + 2);
                let around = spans(begin..start);
                let apart = |at: usize| around.iter().any(|range| range.contains(&at));
                let before = source[begin..start].char_indices();
                let before = before.filter(|(at, _)| !apart(begin + at));
                let open = before.fold(0_usize, |open, (_, c)| match c {
                    '(' => open + 1,
                    ')' => open.saturating_sub(1),
                    _ => open,
                });
                citations.push(Citation { range, keys, in_parentheses: open > 0, position });
            }
            None => faults.push((
                position,
                "a citation is spelt [@key] or [@one; @two], its keys as in book/references.toml"
                    .to_string(),
            )),
        }
    }
    (citations, faults)
}

#[cfg(test)]
mod tests {
    use super::{Bibliography, scan};
    use crate::text::Text;

    const WORKS: &str = "[a-2001]\ntype = \"article\"\nauthors = [\"Roe, A.\", \"Doe, B.\"]\n\
         title = \"One\"\njournal = \"J. Opt.\"\nyear = 2001\nvolume = \"12\"\npages = \"3–4\"\ndoi = \"10.1/x\"\n\n\
         [b-2001]\ntype = \"book\"\nauthors = [\"Roe, A.\", \"Doe, B.\"]\ntitle = \"A book\"\n\
         publisher = \"Press\"\nyear = 2001\n";

    #[test]
    fn entries_are_written_out() {
        let bibliography = Bibliography::parse(WORKS);
        assert_eq!(bibliography.findings, []);
        let texts: Vec<String> =
            bibliography.sorted().into_iter().map(|(_, work)| work.text()).collect();
        assert_eq!(
            texts,
            [
                "Roe, A.; Doe, B. (2001a). A book, Press.",
                "Roe, A.; Doe, B. (2001b). One. J. Opt. 12, 3–4. doi:10.1/x",
            ]
        );
    }

    #[test]
    fn names_are_shortened_from_three_authors_on() {
        let names = |list: &str| {
            let source = WORKS.replace("\"Roe, A.\", \"Doe, B.\"", list);
            Bibliography::parse(&source).works["a-2001"].names()
        };
        assert_eq!(names("\"Van Dyck, D.\""), "Van Dyck");
        assert_eq!(names("\"Roe, A.\", \"Doe, B.\""), "Roe and Doe");
        assert_eq!(names("\"Roe, A.\", \"others\""), "Roe et al.");
        assert_eq!(names("\"Roe, A.\", \"Doe, B.\", \"Poe, C.\""), "Roe et al.");
    }

    #[test]
    fn citations_know_whether_they_are_in_parentheses() {
        let source = "See [@a-1] (and ([x](y.md)) [@b-2;\n@c-3]), [@d-4].\n\n(open\n\n[@e-5]";
        let (citations, faults) = scan(&Text::new(source), &[], &[]);
        let inside: Vec<bool> = citations.iter().map(|c| c.in_parentheses).collect();
        assert_eq!((inside, faults), (vec![false, true, false, false], vec![]));
        assert_eq!(citations[1].keys, ["b-2", "c-3"]);
        let (none, faults) = scan(&Text::new("[@A B] [@a; b] [@a"), &[], &[]);
        assert_eq!((none, faults.len()), (vec![], 3));
    }
}
