//! The tables of symbols of the chapters: what each letter means, in which unit, and by which name in
//! the code.
//!
//! A table of symbols is one whose first column is headed `symbol` and whose second is headed
//! `meaning`. Its row may name several symbols at once, `$D$, $d$` or `$S, M$`; they share what the row
//! says, unless it says as many things, one after a comma each.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::chapter::Chapter;
use crate::finding::Finding;
use crate::volume::Book;

/// A row of a table of symbols, with the places of its cells in the chapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Index of the chapter.
    pub chapter: usize,
    /// Line of the chapter.
    pub line: usize,
    /// The symbols, as the row shows them.
    pub symbol: Range<usize>,
    /// What they mean.
    pub meaning: Range<usize>,
    /// The unit, if there is a column for it.
    pub unit: Option<Range<usize>>,
    /// The shape, if there is a column for it.
    pub shape: Option<Range<usize>>,
    /// The names in the code, if there is a column for them.
    pub identifier: Option<Range<usize>>,
}

impl Row {
    /// The text of a cell.
    pub fn text<'a>(&self, book: &'a Book, cell: &Range<usize>) -> &'a str {
        book.chapters[self.chapter].text.as_str().get(cell.clone()).unwrap_or("").trim()
    }
}

/// One letter of a row and what it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// The letter as TeX, without arguments and running indices: `L_0`, `\gamma`, `\hat T`.
    pub letter: String,
    /// What it means.
    pub meaning: String,
    /// The names in the code between backticks.
    pub identifiers: Vec<String>,
}

/// All rows of all tables of symbols, in the order of the book.
pub fn rows(book: &Book) -> Vec<Row> {
    let chapters = book.chapters.iter().enumerate();
    chapters.flat_map(|(index, chapter)| rows_of(index, chapter)).collect()
}

fn rows_of(index: usize, chapter: &Chapter) -> Vec<Row> {
    let text = &chapter.text;
    let mut rows = Vec::new();
    // The headings of the table of symbols that we are in.
    let mut heads: Option<Vec<String>> = None;
    for line in 1..=text.line_count() {
        let is_row = text.line(line).starts_with('|') && chapter.block_at(line).is_none();
        if !is_row {
            heads = None;
            continue;
        }
        let cells = cells(text.line(line), text.start_of(line));
        let Some(heads) = &heads else {
            let words: Vec<String> = cells
                .iter()
                .map(|cell| text.as_str()[cell.clone()].trim().to_lowercase())
                .collect();
            let first = text.line(line - 1).trim().is_empty();
            if first && words.len() > 2 && words[0] == "symbol" && words[1] == "meaning" {
                heads = Some(words);
            }
            continue;
        };
        let column = |names: &[&str]| {
            let at =
                heads.iter().position(|head| names.iter().any(|name| head.starts_with(name)))?;
            cells.get(at).cloned()
        };
        let rule =
            cells.iter().all(|cell| text.as_str()[cell.clone()].trim().starts_with(['-', ':']));
        if rule || cells.len() < 2 {
            continue;
        }
        rows.push(Row {
            chapter: index,
            line,
            symbol: cells[0].clone(),
            meaning: cells[1].clone(),
            unit: column(&["unit", "shape or unit"]),
            shape: column(&["shape"]).filter(|_| !heads.iter().any(|head| head == "shape or unit")),
            identifier: column(&["in the code", "identifier", "where"]),
        });
    }
    rows
}

/// The cells of a row, as ranges of the text that `start` is the place of the line in.
pub(crate) fn cells(line: &str, start: usize) -> Vec<Range<usize>> {
    let mut bars = Vec::new();
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        if c == '|' && !escaped {
            bars.push(at);
        }
        escaped = c == '\\' && !escaped;
    }
    let end = line.trim_end().len();
    if bars.last().is_none_or(|&last| last + 1 < end) {
        bars.push(end);
    }
    bars.windows(2).map(|pair| start + pair[0] + 1..start + pair[1]).collect()
}

/// The letters of a row, each with what it means. Rows that name words have none.
pub fn symbols(book: &Book, row: &Row) -> Vec<Symbol> {
    let letters: Vec<String> = formulas(row.text(book, &row.symbol))
        .flat_map(|formula| split(formula, ','))
        .map(letter)
        .filter(|letter| !letter.is_empty())
        .collect();
    let meaning = row.text(book, &row.meaning);
    let identifiers = row.identifier.as_ref().map_or("", |cell| row.text(book, cell));
    let meanings = shared(&letters, split(meaning, ','))
        .or_else(|| shared(&letters, meaning.split(" and ").collect()))
        .unwrap_or_else(|| vec![meaning; letters.len()]);
    let named: Vec<Vec<String>> = match shared(&letters, split(identifiers, ',')) {
        Some(parts) => parts.into_iter().map(code).collect(),
        None => vec![code(identifiers); letters.len()],
    };
    letters
        .into_iter()
        .zip(meanings)
        .zip(named)
        .map(|((letter, meaning), identifiers)| Symbol {
            letter,
            meaning: meaning.trim().trim_start_matches("and ").to_string(),
            identifiers,
        })
        .collect()
}

/// The parts of a cell, if there is one for each of several letters.
fn shared<'a>(letters: &[String], parts: Vec<&'a str>) -> Option<Vec<&'a str>> {
    (letters.len() > 1 && parts.len() == letters.len()).then_some(parts)
}

/// What stands between dollar signs.
fn formulas(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('$').skip(1).step_by(2)
}

/// What stands between backticks.
fn code(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_string).collect()
}

/// The parts of a text between separators that stand in no brackets and no formula.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut formula) = (Vec::new(), 0, 0_i32, false);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '$' => formula = !formula,
            _ if c == separator && depth <= 0 && !formula => {
                parts.push(text[start..at].trim());
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts
}

/// A symbol without what changes from place to place: its value, its arguments, and indices of small
/// letters that run. `h_l` and `h` are one letter; `L_0` and `L` are two, and so are `C_{ee}` and `C_n`.
fn letter(formula: &str) -> String {
    let head = split(formula, '=').first().copied().unwrap_or("");
    let head = head.split(['(', '\u{2208}']).next().unwrap_or("").trim();
    let head = head.split("\\in").next().unwrap_or("").trim();
    let mut letter = String::new();
    let mut rest = head;
    while let Some(at) = rest.find(['_', '^']) {
        letter.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let length = group(after);
        let index = after[..length].trim_matches(['{', '}']);
        let mut letters = index.chars().filter(char::is_ascii_alphabetic);
        let doubled = letters.next().is_some_and(|first| letters.next() == Some(first));
        let runs =
            index.chars().all(|c| c.is_ascii_lowercase() || c == ' ' || c == ',') && !doubled;
        if !runs {
            letter.push_str(&rest[at..at + 1 + length]);
        }
        rest = &after[length..];
    }
    letter.push_str(rest);
    letter.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The length of the group, the command or the character that a text starts with.
fn group(text: &str) -> usize {
    let first = text.chars().next();
    match first {
        Some('{') => {
            let mut depth = 0;
            let end = text.char_indices().find(|&(_, c)| {
                depth += i32::from(c == '{') - i32::from(c == '}');
                depth == 0
            });
            end.map_or(text.len(), |(at, _)| at + 1)
        }
        Some('\\') => {
            let word = text[1..].find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len() - 1);
            1 + word.max(1).min(text.len() - 1)
        }
        Some(c) => c.len_utf8(),
        None => 0,
    }
}

/// Words that two meanings may share without being the same.
const COMMON: [&str; 30] = [
    "the", "and", "for", "its", "with", "that", "from", "one", "two", "each", "all", "which",
    "their", "along", "across", "between", "over", "number", "same", "what", "where", "into",
    "half", "axis", "only", "there", "this", "those", "through", "them",
];

/// The words of a meaning that say something: three letters and more, no formulas, not in the plural.
fn words(meaning: &str) -> Vec<String> {
    let text: String = meaning.split('$').step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
    let words = text.split(|c: char| !c.is_alphabetic()).filter(|word| word.chars().count() > 2);
    let words = words.filter(|word| !COMMON.contains(word) && *word != "md");
    words.map(|word| word.strip_suffix('s').unwrap_or(word).to_string()).collect()
}

/// Whether two rows say the same of a letter: they give it the same name in the code, or at least half
/// of the telling words of the shorter meaning stand in the other, or one of them has no such word.
fn same(one: &Symbol, other: &Symbol) -> bool {
    if one.identifiers.iter().any(|name| other.identifiers.contains(name)) {
        return true;
    }
    let (mut few, mut many) = (words(&one.meaning), words(&other.meaning));
    if few.len() > many.len() {
        std::mem::swap(&mut few, &mut many);
    }
    2 * few.iter().filter(|word| many.contains(word)).count() >= few.len()
}

/// Letters with two meanings in one part: one warning for each further meaning. A meaning that is a
/// link to another chapter is that chapter's.
pub fn check(book: &Book) -> Vec<Finding> {
    // By part and letter: what it means, and where that is said.
    type Known<'a> = Vec<(Symbol, &'a Chapter, usize)>;
    let mut seen: BTreeMap<(&str, String), Known> = BTreeMap::new();
    let mut findings = Vec::new();
    for row in rows(book) {
        let chapter = &book.chapters[row.chapter];
        let Some(part) = chapter.part.as_deref() else { continue };
        for symbol in symbols(book, &row) {
            if symbol.meaning.contains("](") {
                continue;
            }
            let known = seen.entry((part, symbol.letter.clone())).or_default();
            if !known.iter().any(|(other, ..)| same(&symbol, other))
                && let Some((first, home, line)) = known.first()
            {
                let what = format!(
                    "${}$ is \"{}\" here and \"{}\" in {}:{line}, in one part: {part}",
                    symbol.letter, symbol.meaning, first.meaning, home.path
                );
                findings.push(Finding::warning(&chapter.path, (row.line, 1), what));
            }
            known.push((symbol, chapter, row.line));
        }
    }
    findings
}

/// By what the index sorts a letter: Latin before Greek before the rest, alphabetically, small letters
/// first.
pub fn order(letter: &str) -> (usize, usize, bool, String) {
    let mut rest = letter;
    // Past accents and type faces to the letter that they adorn.
    while let Some(command) = rest.strip_prefix('\\') {
        let length = command.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(command.len());
        let (name, after) = command.split_at(length);
        let lower = name.strip_prefix("var").unwrap_or(name).to_lowercase();
        if let Some(place) = GREEK.iter().position(|greek| *greek == lower) {
            let capital = name.starts_with(|c: char| c.is_ascii_uppercase());
            return (1, place, capital, letter.to_string());
        }
        if name == "ell" {
            return (0, usize::from(b'l'), false, letter.to_string());
        }
        rest = after.trim_start_matches(['{', ' ']);
        if name.is_empty() {
            break;
        }
    }
    match rest.chars().next() {
        Some(c) if c.is_ascii_alphabetic() => {
            (0, c.to_ascii_lowercase() as usize, c.is_ascii_uppercase(), letter.to_string())
        }
        _ => (2, 0, false, letter.to_string()),
    }
}

/// The Greek letters in TeX, in alphabetical order.
pub(crate) const GREEK: [&str; 24] = [
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa",
    "lambda", "mu", "nu", "xi", "omicron", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi",
    "psi", "omega",
];

#[cfg(test)]
mod tests {
    use super::{letter, order, rows, split, symbols};
    use crate::volume::Book;

    #[test]
    fn letters_lose_values_arguments_and_running_indices() {
        for (formula, expected) in [
            ("h_l", "h"),
            ("C_{ee}", "C_{ee}"),
            ("L_0", "L_0"),
            ("N_F", "N_F"),
            ("C_{ab}^{pq}(\\boldsymbol\\rho)", "C"),
            ("w = \\varphi\\,\\lambda/2\\pi", "w"),
            ("\\bar{\\bar S}(r)", "\\bar{\\bar S}"),
            ("\\hat T", "\\hat T"),
            ("\\sigma'_l", "\\sigma'"),
            ("\\mathrm{osf}", "\\mathrm{osf}"),
            ("x_\\perp", "x_\\perp"),
        ] {
            assert_eq!(letter(formula), expected, "{formula}");
        }
        assert_eq!(split("$a, b$, f(c, d), e", ','), ["$a, b$", "f(c, d)", "e"]);
    }

    #[test]
    fn rows_give_each_symbol_its_meaning() {
        let text = "Text\n\n| symbol | meaning | unit | in the code |\n|---|---|---|---|\n\
                    | $D$, $d$ | diameter of the pupil, side of a lenslet | m | `diameter`, `pitch` |\n\
                    | $u, v$ | two vectors | m | |\n| word | a word \\| bar | | `Word` |\n\n\
                    | key | meaning | x |\n|---|---|---|\n| $k$ | no symbol | |\n";
        let book = Book::from_sources("- [A](a.md)\n", |_| Ok(text.to_string()));
        let rows = rows(&book);
        assert_eq!(rows.len(), 3);
        assert_eq!((rows[0].line, rows[2].text(&book, &rows[2].meaning)), (5, "a word \\| bar"));
        let all: Vec<_> = rows
            .iter()
            .flat_map(|row| symbols(&book, row))
            .map(|s| (s.letter, s.meaning, s.identifiers.join(" ")))
            .collect();
        let expected = [
            ("D", "diameter of the pupil", "diameter"),
            ("d", "side of a lenslet", "pitch"),
            ("u", "two vectors", ""),
            ("v", "two vectors", ""),
        ];
        assert_eq!(all, expected.map(|(a, b, c)| (a.to_string(), b.to_string(), c.to_string())));
    }

    #[test]
    fn latin_stands_before_greek() {
        let mut letters =
            ["\\Gamma", "\\mathbf r", "\\gamma", "b", "B", "\\hat{a}", "0", "\\varphi"];
        letters.sort_by_key(|letter| order(letter));
        assert_eq!(
            letters,
            ["\\hat{a}", "b", "B", "\\mathbf r", "\\gamma", "\\Gamma", "\\varphi", "0"]
        );
    }
}
