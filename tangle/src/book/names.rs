//! What the book names, and where it is explained: symbols, keys, terms, commands, options and public items.
//!
//! The full-text search knows no formulas and no code, and ranks by how often a word occurs. So these names are looked up by themselves, and
//! what they name comes before what the full-text search finds.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::{Value, json};

use super::anchors::{ChunkAnchors, RowAnchors, escape};
use super::indices;
use super::keys::{self, Key};
use super::options::{self, CommandWord};
use crate::chapter::Chapter;
use crate::expand::{Origin, Tangled};
use crate::glossary::{self, GLOSSARY};
use crate::pages::page_of;
use crate::plain::{plain, shown, typed};
use crate::symbols::{self, Row};
use crate::volume::Book;

/// What the files of the reference of the Python package begin with.
const PYTHON_REFERENCE: &str = "python-api";
/// How many places a name leads to at most, and how many of one rank: a letter of many chapters leaves room for a key of the same name.
const MOST: usize = 5;
const MOST_OF_RANK: usize = 3;

/// How a name is one of what it names: the first is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The letter of a symbol.
    Letter,
    /// The path of a key, a command or an option.
    Path,
    /// The last parts of the path of a key.
    PathEnd,
    /// What a symbol means.
    Meaning,
    /// A term of the glossary.
    Term,
    /// The name of a symbol in the code.
    Identifier,
    /// The name of a public item.
    Item,
    /// The name of a method without its type.
    Method,
}

/// Something with names, and where it is explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// Its names.
    pub names: Vec<(Rank, String)>,
    /// The chapter.
    pub chapter: String,
    /// What the list of results calls it.
    pub title: String,
    /// What the list of results says of it.
    pub text: String,
    /// Where it is explained, relative to the book.
    pub address: String,
}

/// All that the book names: symbols as [`rows_by_definition`] orders them, keys, terms, commands and options, public items.
pub fn named(book: &Book, tangled: &Tangled) -> Vec<Named> {
    let (rows, chunks) = (RowAnchors::new(book), ChunkAnchors::new(book));
    let place = |chapter: usize, anchor: &str| {
        let chapter = &book.chapters[chapter];
        (chapter.title.clone(), format!("{}#{anchor}", page_of(&chapter.file)))
    };
    let mut all = Vec::new();
    for row in rows_by_definition(book, tangled) {
        let (chapter, address) = place(row.chapter, rows.of(row.chapter, row.line));
        let names = symbol_names(book, &row);
        let title = plain(row.text(book, &row.symbol));
        let cells = [Some(&row.meaning), row.unit.as_ref(), row.identifier.as_ref()];
        let cells = cells.into_iter().flatten().map(|cell| plain(row.text(book, cell)));
        all.push(Named { names, chapter, title, text: joined(cells), address });
    }
    for key in keys::keys(book) {
        let headings = &book.chapters[key.chapter].headings;
        let heading = headings.iter().find(|heading| heading.line == key.line);
        let anchor = heading.map_or(rows.of(key.chapter, key.line), |heading| heading.id.as_str());
        let (chapter, address) = place(key.chapter, anchor);
        let text = match heading {
            Some(heading) => heading.title.clone(),
            None => key_text(book, &key),
        };
        let names = key_names(&key.path);
        all.push(Named { names, chapter, title: key.path, text, address });
    }
    for term in glossary::terms(book) {
        let names = term.words().map(|word| (Rank::Term, word.to_string())).collect();
        let (chapter, address) =
            ("Glossary".to_string(), format!("{}#{}", page_of(GLOSSARY), term.anchor()));
        all.push(Named { names, chapter, title: term.name, text: term.definition, address });
    }
    for word in options::command_words(tangled) {
        let (chapter, address) = place(word.block.chapter, chunks.of(word.block));
        let (names, title) = (word_names(&word), word_title(&word));
        all.push(Named { names, chapter, title, text: word.help, address });
    }
    for item in indices::items(tangled) {
        let (chapter, address) = place(item.block.chapter, chunks.of(item.block));
        let names = item_names(&item.name);
        if names.is_empty() {
            continue;
        }
        let text = joined([item.kind.to_string(), item.file]);
        all.push(Named { names, chapter, title: item.name, text, address });
    }
    all.extend(python_items(book));
    all
}

/// The classes, methods and functions of the reference of the Python package: the headings with anchors of the pages `python-api…`.
fn python_items(book: &Book) -> Vec<Named> {
    let pages = book.chapters.iter().filter(|chapter| chapter.file.starts_with(PYTHON_REFERENCE));
    let headings = pages.flat_map(|page| page.headings.iter().map(move |heading| (page, heading)));
    let items = headings.filter(|(page, heading)| {
        page.text.line(heading.line).ends_with(&format!("{{#{}}}", heading.id))
    });
    items
        .map(|(page, heading)| Named {
            names: python_names(&heading.id),
            chapter: page.title.clone(),
            title: heading.title.clone(),
            text: plain(first_sentence(page, heading.line)),
            address: format!("{}#{}", page_of(&page.file), heading.id),
        })
        .collect()
}

/// The first line of text below a line of a page, code left out.
fn first_sentence(page: &Chapter, line: usize) -> &str {
    let mut lines =
        (line + 1..=page.text.line_count()).filter(|&line| page.block_at(line).is_none());
    lines.find_map(|line| Some(page.text.line(line)).filter(|text| !text.is_empty())).unwrap_or("")
}

/// The name of an item of Python, and that of a method alone, as [`item_names`] for Rust.
fn python_names(name: &str) -> Vec<(Rank, String)> {
    let method = name.rsplit('.').next().unwrap_or(name);
    let names = [(Rank::Item, name), (Rank::Method, method)];
    let names = names.into_iter().filter(|(rank, name)| *rank == Rank::Item || name.contains('_'));
    names.map(|(rank, name)| (rank, name.to_string())).collect()
}

fn joined(parts: impl IntoIterator<Item = String>) -> String {
    parts
        .into_iter()
        .filter(|part| !matches!(part.as_str(), "" | "–"))
        .collect::<Vec<_>>()
        .join("; ")
}

/// The names that the chapters define: fields, functions, types and constants, each with its chapter.
fn definitions(tangled: &Tangled) -> HashSet<(usize, &str)> {
    let lines = tangled.files.values().flat_map(|file| &file.lines);
    let lines = lines.filter(|line| line.origin == Origin::Code);
    lines
        .filter_map(|line| {
            let text = line.text.trim_start();
            let rest = text.strip_prefix("pub ").unwrap_or(text);
            let end = |text: &str| text.find(|c: char| !c.is_alphanumeric() && c != '_');
            let kinds = ["const fn ", "fn ", "struct ", "enum ", "trait ", "const ", "type "];
            let name = match kinds.iter().find_map(|kind| rest.strip_prefix(kind)) {
                Some(name) => &name[..end(name)?],
                None if rest.len() < text.len() => {
                    let (name, after) = rest.split_at(end(rest)?);
                    if after.starts_with(':') { name } else { return None }
                }
                None => return None,
            };
            Some((line.block.chapter, name))
        })
        .collect()
}

/// All rows of symbols: first those whose chapter defines the symbol's name in the code, the most usual names of letters in front; last those of chapters
/// without a number, which precede the book.
fn rows_by_definition(book: &Book, tangled: &Tangled) -> Vec<Row> {
    let defined = definitions(tangled);
    let identifiers = |row: &Row| {
        let names = row.identifier.as_ref().map_or("", |cell| row.text(book, cell));
        names.split('`').skip(1).step_by(2)
    };
    let is_defined = |row: &Row| {
        identifiers(row).any(|name| defined.contains(&(row.chapter, last_part(name))))
            && !row.text(book, &row.meaning).contains("](")
    };
    let mut rows = symbols::rows(book);
    // How often a letter has a name in the code: the wavelength is a more usual λ than an eigenvalue.
    let mut uses: HashMap<(String, String), usize> = HashMap::new();
    let pairs = |row: &Row| {
        let symbols = symbols::symbols(book, row).into_iter();
        symbols.flat_map(|symbol| {
            symbol.identifiers.into_iter().map(move |name| (symbol.letter.clone(), name))
        })
    };
    for pair in rows.iter().flat_map(pairs) {
        *uses.entry(pair).or_default() += 1;
    }
    rows.sort_by_cached_key(|row| {
        let count = pairs(row).filter_map(|pair| uses.get(&pair)).max();
        (book.chapters[row.chapter].number.is_none(), !is_defined(row), Reverse(count.copied()))
    });
    rows
}

/// The name of an item without those of its module and type.
fn last_part(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// The letters of a row of symbols, as they are written and as they are typed; what they mean; and their names in the code.
fn symbol_names(book: &Book, row: &Row) -> Vec<(Rank, String)> {
    let cell = row.text(book, &row.symbol);
    let letters = symbols::symbols(book, row);
    let mut names = Vec::new();
    let formulas = cell.split('$').skip(1).step_by(2).flat_map(|formula| formula.split(','));
    let heads = formulas.filter_map(|formula| formula.split(['=', '(']).next());
    for tex in heads.chain(letters.iter().map(|symbol| symbol.letter.as_str())) {
        for name in [typed(tex), shown(tex)] {
            names.push((Rank::Letter, name.replace('_', "")));
            names.push((Rank::Letter, name));
        }
    }
    // A row of words is named by them.
    if letters.is_empty() {
        let words = plain(cell);
        names.extend(words.split(", ").map(|word| (Rank::Letter, word.to_string())));
    }
    for symbol in &letters {
        let phrases = phrases(&plain(&symbol.meaning));
        names.extend(phrases.into_iter().map(|phrase| (Rank::Meaning, phrase)));
        for name in &symbol.identifiers {
            names.push((Rank::Identifier, last_part(name).to_string()));
            names.push((Rank::Identifier, name.clone()));
        }
    }
    names
}

/// A meaning without its article, up to its first comma or bracket, and up to its first preposition: `side of a lenslet` and `side` for
/// `the side of a lenslet, the pitch`.
fn phrases(meaning: &str) -> Vec<String> {
    const PREPOSITIONS: [&str; 22] = [
        " of ",
        " at ",
        " in ",
        " on ",
        " for ",
        " from ",
        " to ",
        " by ",
        " with ",
        " without ",
        " along ",
        " across ",
        " between ",
        " over ",
        " per ",
        " under ",
        " towards ",
        " that ",
        " which ",
        " where ",
        " if ",
        " and ",
    ];
    let first = |text: &str, marks: &[&str]| {
        let at = marks.iter().filter_map(|mark| text.find(mark)).min();
        text[..at.unwrap_or(text.len())].trim().to_string()
    };
    let article = ["the ", "a ", "an "].iter().find_map(|article| meaning.strip_prefix(article));
    let phrase = first(article.unwrap_or(meaning), &[",", ";", ":", " (", ". "]);
    let short = first(&phrase, &PREPOSITIONS);
    vec![phrase, short]
}

/// The path of a key, and the ends of it.
fn key_names(path: &str) -> Vec<(Rank, String)> {
    let ends = path.match_indices('.').map(|(at, _)| (Rank::PathEnd, path[at + 1..].to_string()));
    [(Rank::Path, path.to_string())].into_iter().chain(ends).collect()
}

/// What the row of a key says, its meaning first, without the chapter that it names.
fn key_text(book: &Book, key: &Key) -> String {
    let source = book.chapters[key.chapter].text.as_str();
    let mut cells: Vec<_> = key.row.iter().flat_map(|row| &row.cells).collect();
    cells.sort_by_key(|(head, _)| head != "meaning");
    joined(cells.into_iter().map(|(head, cell)| {
        let text = plain(source.get(cell.clone()).unwrap_or(""));
        match head.as_str() {
            "chapter" => String::new(),
            "default" | "range" if !text.is_empty() => format!("{head}: {text}"),
            _ => text,
        }
    }))
}

/// The name of a public item, and that of a method alone. Words that prose has too are left to the full-text search: names of small letters or
/// of capitals, without an underscore.
fn item_names(name: &str) -> Vec<(Rank, String)> {
    let is_code = |name: &str| {
        let (small, capital) = (|c: char| c.is_lowercase(), |c: char| c.is_uppercase());
        name.contains(['_', ':']) || name.contains(small) && name.contains(capital)
    };
    let names = [(Rank::Item, name), (Rank::Method, last_part(name))];
    let names = names.into_iter().filter(|(_, name)| is_code(name));
    names.map(|(rank, name)| (rank, name.to_string())).collect()
}

/// An option alone and after its command; a command alone and after the program.
fn word_names(word: &CommandWord) -> Vec<(Rank, String)> {
    let mut names = vec![(Rank::Path, word.name.clone())];
    names.extend(word.short.iter().map(|short| (Rank::Path, short.clone())));
    names.push((Rank::Path, format!("lenslet {}", word_title(word))));
    names.push((Rank::Path, word_title(word)));
    names
}

fn word_title(word: &CommandWord) -> String {
    word.command.iter().chain([&word.name]).cloned().collect::<Vec<_>>().join(" ")
}

/// A name without what people write in different ways: small letters and digits only.
pub fn folded(name: &str) -> String {
    name.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect()
}

/// The table of names for the search: what is named, and for each name the best of what it names. A name stands there as it is written, and
/// unless it is that of a public item, also in small letters and [`folded`].
pub fn table(all: &[Named]) -> Value {
    // For each spelling: whether the name is written in another way, its rank, and what it names.
    let mut found: BTreeMap<String, Vec<(bool, Rank, usize)>> = BTreeMap::new();
    for (index, named) in all.iter().enumerate() {
        for (rank, name) in &named.names {
            let others = (*rank < Rank::Item).then(|| [name.to_lowercase(), folded(name)]);
            let spellings = others.into_iter().flatten().chain([name.clone()]);
            for spelling in spellings.collect::<BTreeSet<_>>() {
                let differs = spelling != *name;
                found.entry(spelling).or_default().push((differs, *rank, index));
            }
        }
    }
    found.remove("");
    let names: BTreeMap<String, Vec<usize>> = found
        .into_iter()
        .map(|(name, mut places)| {
            places.sort();
            let mut known = HashSet::new();
            places.retain(|(.., index)| known.insert(*index));
            let mut of_rank = BTreeMap::new();
            places.retain(|(differs, rank, _)| {
                let count: &mut usize = of_rank.entry((*differs, *rank)).or_default();
                *count += 1;
                *count <= MOST_OF_RANK
            });
            (name, places.into_iter().map(|(.., index)| index).take(MOST).collect())
        })
        .collect();
    let places: Vec<Value> = all
        .iter()
        .map(|named| {
            let heading = format!("{} » {}", escape(&named.chapter), escape(&named.title));
            json!([named.address, heading, named.text])
        })
        .collect();
    json!({ "names": names, "places": places })
}

#[cfg(test)]
mod tests {
    use super::{Named, Rank, folded, item_names, key_names, named, phrases, table};
    use crate::expand::tangle;
    use crate::volume::Book;

    #[test]
    fn meanings_are_shortened_to_what_is_named() {
        for (meaning, expected) in [
            ("the side of a lenslet, the pitch", ["side of a lenslet", "side"]),
            ("outer scale, for each layer", ["outer scale", "outer scale"]),
            (
                "Fried parameter at the wavelength λ₀",
                ["Fried parameter at the wavelength λ₀", "Fried parameter"],
            ),
            ("seeing", ["seeing", "seeing"]),
        ] {
            assert_eq!(phrases(meaning), expected);
        }
        assert_eq!(folded(" --Errors-only L_0, D_φ"), "errorsonlyl0dφ");
        let items = ["psf", "PSF", "Air", "a_b", "Air::new", "Air::a_b"].map(item_names).concat();
        let items: Vec<_> = items.into_iter().map(|(_, name)| name).collect();
        assert_eq!(items, ["Air", "Air", "a_b", "a_b", "Air::new", "Air::a_b", "a_b"]);
        let names: Vec<_> = key_names("a.b.c").into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["a.b.c", "b.c", "c"]);
    }

    #[test]
    fn the_reference_of_python_is_found_by_names() {
        let page = "# Systems\n\n## `System` {#System}\n\n```python\nclass System\n```\n\nAn `AO` system.\n\n\
                    ### `System.fit_profile` {#System.fit_profile}\n\nFit.\n\n## Other\n";
        let book = Book::from_sources("- [Systems](python-api-system.md)\n- [A](a.md)\n", |_| {
            Ok(page.to_string())
        });
        let found = named(&book, &tangle(&book));
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.title.as_str(), one.text.as_str(), one.address.as_str()))
            .collect();
        let expected = [
            ("System", "An AO system.", "python-api-system.html#System"),
            ("System.fit_profile", "Fit.", "python-api-system.html#System.fit_profile"),
        ];
        assert_eq!(found, expected);
        let table = table(&named(&book, &tangle(&book)));
        assert_eq!(table["names"]["fit_profile"].to_string(), "[1]");
        assert_eq!(table["names"]["System"].to_string(), "[0]");
    }

    #[test]
    fn the_best_of_what_has_a_name_comes_first() {
        let thing = |title: &str, names: &[(Rank, &str)]| Named {
            names: names.iter().map(|(rank, name)| (*rank, name.to_string())).collect(),
            chapter: "A & B".into(),
            title: title.into(),
            text: "text".into(),
            address: format!("a.html#{title}"),
        };
        let all = [
            thing("item", &[(Rank::Item, "R_0"), (Rank::Identifier, "r-0"), (Rank::Item, "")]),
            thing("identifier", &[(Rank::Identifier, "r0"), (Rank::Letter, "r_0")]),
            thing("symbol", &[(Rank::Letter, "r0")]),
            thing("key", &[(Rank::Path, "air.r0"), (Rank::PathEnd, "r0")]),
        ];
        let table = table(&all);
        let names = &table["names"];
        assert_eq!(names["r0"].to_string(), "[2,3,1,0]");
        assert_eq!(
            (names["r_0"].to_string(), names["R_0"].to_string()),
            ("[1]".into(), "[0]".into())
        );
        assert_eq!(names["airr0"].to_string(), "[3]");
        assert!(names[""].is_null());
        assert_eq!(
            table["places"][2].to_string(),
            "[\"a.html#symbol\",\"A &amp; B » symbol\",\"text\"]"
        );
        let many = |rank| vec![thing("many", &[(rank, "many")]); 4];
        let crowd = [many(Rank::Item), many(Rank::Method)].concat();
        assert_eq!(super::table(&crowd)["names"]["many"].to_string(), "[0,1,2,4,5]");
    }

    #[test]
    fn symbols_are_found_first_where_the_code_defines_them() {
        let table = "| symbol | meaning | unit | in the code |\n|---|---|---|---|\n";
        let row =
            "| $L_0$, $D_\\varphi(r)$ | outer scale and structure function | m | `outer_scale` |\n";
        let code = "\n```rust file=src/b.rs\npub struct Air {\n    pub outer_scale: f64,\n}\n```\n";
        let linked =
            "| $L_0$ | [outer scale](b.md) | m | `outer_scale` |\n| word, other | a term | | |\n";
        let book =
            Book::from_sources("[P](p.md)\n\n- [A](a.md)\n- [B](b.md)\n- [C](c.md)\n", |path| {
                Ok(match path.rsplit('/').next() {
                    Some("b.md") => format!("# B\n\n{table}{row}{code}"),
                    Some("c.md") => format!("# C\n\n{table}{linked}"),
                    _ => format!("# A\n\n{table}{row}"),
                })
            });
        let all = named(&book, &tangle(&book));
        let found = super::table(&all);
        let addresses = |name: &str| {
            let places = found["names"][name].as_array().into_iter().flatten();
            let places = places.filter_map(|place| all.get(place.as_u64()? as usize));
            places.map(|named| named.address.as_str()).collect::<Vec<_>>()
        };
        let (a, b, p) =
            ("a.html#symbol-l-0-d-phi-r", "b.html#symbol-l-0-d-phi-r", "p.html#symbol-l-0-d-phi-r");
        for name in ["L0", "L_0", "l0", "L₀", "outer scale", "outerscale"] {
            assert_eq!(addresses(name), [b, a, "c.html#symbol-l-0"], "{name}");
        }
        for name in ["D_phi", "Dphi", "D_φ", "structure function"] {
            assert_eq!(addresses(name), [b, a, p], "{name}");
        }
        assert_eq!(addresses("other"), ["c.html#symbol-word-other"]);
        assert_eq!(addresses("outer_scale")[0], b);
        assert_eq!(addresses("Air"), ["b.html#file-src-b-rs"]);
    }

    #[test]
    fn the_usual_meaning_of_a_letter_comes_first_and_each_row_has_its_place() {
        let table = "| symbol | meaning | unit | in the code |\n|---|---|---|---|\n\
                     | $\\lambda$ | eigenvalue | | `values` |\n\
                     | $\\lambda$ | wavelength | m | `wavelength` |\n\
                     | $\\lambda_0$ | its limit | | `values` |\n\
                     | $\\lambda_l$ | wavelength of a star | m | `wavelength` |\n";
        let book = Book::from_sources("- [A](a.md)\n", |_| Ok(format!("# A\n\n{table}")));
        let all = named(&book, &tangle(&book));
        let addresses: Vec<_> = all.iter().map(|named| named.address.as_str()).collect();
        assert_eq!(
            addresses,
            [
                "a.html#symbol-lambda_2",
                "a.html#symbol-lambda-l",
                "a.html#symbol-lambda",
                "a.html#symbol-lambda-0"
            ]
        );
    }
}
