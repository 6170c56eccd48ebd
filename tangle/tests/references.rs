//! Citations and terms: what `check` says of them.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests

mod common;

use common::Repository;
use tangle::Book;
use tangle::glossary::{first_uses, terms};

const WORKS: &str = "[roe-2001]\ntype = \"article\"\nauthors = [\"Roe, A.\"]\ntitle = \"One\"\n\
                     journal = \"J. Opt.\"\nyear = 2001\n";

/// The findings for a chapter and a file of works.
fn findings(chapter: &str, works: &str) -> Vec<String> {
    let repository = Repository::new(&[("one.md", chapter)]);
    repository.write("book/references.toml", works);
    repository.check()
}

#[test]
fn a_citation_needs_a_work_and_a_work_a_citation() {
    assert_eq!(findings("# One\n\nSee [@roe-2001].\n", WORKS), [""; 0]);
    assert_eq!(
        findings("# One\n\nSee ([@roe-2010]).\n", WORKS),
        [
            "book/references.toml:1:2: no chapter cites roe-2001: cite it as [@roe-2001], or delete the entry",
            "book/src/one.md:3:6: book/references.toml holds no work roe-2010: did you mean roe-2001?",
        ]
    );
    assert_eq!(
        findings("# One\n\nSee [@other; roe-2001].\n\n`[@code]` and $[@x]$\n", ""),
        ["book/src/one.md:3:5: a citation is spelt [@key] or [@one; @two], its keys as in \
             book/references.toml"]
    );
    let without_file = Repository::new(&[("one.md", "# One\n\n[@roe-2001]\n")]);
    assert_eq!(
        without_file.check(),
        ["book/src/one.md:3:1: book/references.toml holds no work roe-2001: enter the work there"]
    );
}

#[test]
fn a_work_has_the_fields_of_its_type_and_no_others() {
    let chapter = "# One\n\nSee [@roe-2001].\n";
    let faults = |old: &str, new: &str| -> Vec<String> {
        assert!(WORKS.contains(old));
        let found = findings(chapter, &WORKS.replace(old, new));
        found.iter().map(|line| line.replace("book/references.toml:", "")).collect()
    };
    assert_eq!(
        faults("journal", "jurnal"),
        [
            "1:2: roe-2001: no journal, which a work of type article has",
            "5:1: roe-2001: no field is called jurnal: use journal"
        ]
    );
    assert_eq!(faults("title = \"One\"\n", ""), ["1:2: roe-2001: no title"]);
    assert_eq!(
        faults("\"article\"", "\"paper\""),
        [
            "1:2: roe-2001: no type is called paper: use article, book, chapter, manual, proceedings, thesis"
        ]
    );
    assert_eq!(
        faults("year = 2001", "year = 2002"),
        ["1:2: roe-2001: a key is spelt surname-2002, in small letters, digits and hyphens"]
    );
    assert_eq!(
        faults("[\"Roe, A.\"]", "[]"),
        ["1:2: roe-2001: no authors: a list of names, as \"Ophus, C.\""]
    );
    assert_eq!(
        faults("year = 2001", "year = 2001\ndoi = \"https://doi.org/10.1/2\""),
        ["1:2: roe-2001: a DOI is spelt 10.1000/182, without an address before it"]
    );
    assert_eq!(
        faults("\"J. Opt.\"", "3"),
        [
            "1:2: roe-2001: no journal, which a work of type article has",
            "5:1: roe-2001: journal is not text between quotation marks"
        ]
    );
    assert_eq!(faults("\"One\"", "One").len(), 1, "the file must be TOML");
}

#[test]
fn no_work_is_entered_twice() {
    let one = format!("{WORKS}doi = \"10.1/A\"\n");
    let two = one.replace("roe-2001", "roe-2001-again").replace("10.1/A", "10.1/a");
    let chapter = "# One\n\n[@roe-2001; @roe-2001-again]\n";
    assert_eq!(
        findings(chapter, &(one.clone() + &two)),
        ["book/references.toml:8:2: roe-2001-again has the DOI of roe-2001: keep one"]
    );
    assert_eq!(findings(chapter, &(one + &two.replace("10.1/a", "10.1/b"))), [""; 0]);
}

#[test]
fn citations_are_not_in_headings_nor_in_documentation() {
    let chapter = "# One\n\n## After [@roe-2001]\n\n```rust file=src/lib.rs\n//! Said in [@roe-2001].\n\
                   pub fn f() -> &'static str {\n    \"[@roe-2001]\"\n}\n```\n";
    let repository = Repository::new(&[("one.md", chapter)]);
    repository.write("book/references.toml", WORKS);
    repository.run(&[]);
    assert_eq!(
        repository.check(),
        [
            "book/src/one.md:3:10: a citation in a heading: cite the work in the text below",
            "book/src/one.md:6:13: a citation in documentation, where rustdoc shows [@…]: cite the work in the text",
        ]
    );
}

/// A book of a part with two chapters, one with one, and this glossary.
fn with_glossary(glossary: &str) -> Repository {
    let repository = Repository::new(&[
        (
            "one.md",
            "# Fried parameter\n\nThe `Fried parameter`, a [Fried parameter](two.md), $Fried parameter$.\n\n\
             A *Fried* parameter.\n\nFried\n\nparameter.\n\n\
             ```text\nFried parameter\n```\n",
        ),
        (
            "two.md",
            "# Two\n\n> The two *Fried\n> parameters* of a Shack–Hartmann sensor.\n\nThe Fried parameter.\n",
        ),
        (
            "three.md",
            "# Three\n\n\"coherence length\", Fried parameter, coherence lengths, phase, coherence length.\n",
        ),
        ("glossary.md", glossary),
    ]);
    repository.write(
        "book/src/SUMMARY.md",
        "# B\n\n# I\n\n- [One](one.md)\n- [Two](two.md)\n\n# II\n\n- [Three](three.md)\n\n[G](glossary.md)\n",
    );
    repository
}

const GLOSSARY: &str = "# Glossary\n\n- **Fried parameter** (also *coherence length*): the *diameter* over which\n  \
                        [one](one.md) radian remains. See [Two](two.md).\n- **sensor**: it measures. See [Two](two.md).\n";

#[test]
fn the_first_use_in_each_part_is_found_in_its_text() {
    let repository = with_glossary(GLOSSARY);
    assert_eq!(repository.check(), [""; 0]);
    let book = Book::load(repository.root()).unwrap();
    let terms = terms(&book);
    assert_eq!(terms[0].definition, "the diameter over which one radian remains.");
    let uses: Vec<(&str, &str)> = first_uses(&book, &terms)
        .into_iter()
        .map(|found| {
            let chapter = &book.chapters[found.chapter];
            (chapter.file.as_str(), &chapter.text.as_str()[found.range])
        })
        .collect();
    assert_eq!(
        uses,
        [("two.md", "Fried\n> parameters"), ("two.md", "sensor"), ("three.md", "Fried parameter")]
    );
}

#[test]
fn entries_that_cannot_be_linked_are_findings() {
    let faults = |old: &str, new: &str| -> Vec<String> {
        assert!(GLOSSARY.contains(old));
        let found = with_glossary(&GLOSSARY.replace(old, new)).check();
        found.iter().map(|line| line.replace("book/src/glossary.md:", "")).collect()
    };
    assert_eq!(
        faults("it measures. See [Two](two.md).", "it measures."),
        ["5:3: sensor names no chapter that explains it: end with See [Chapter](file.md)."]
    );
    assert_eq!(
        faults("it measures. ", ""),
        ["5:3: sensor has no definition: - **term**: definition. See [Chapter](file.md)."]
    );
    assert_eq!(
        faults("**sensor**", "**pyramid**"),
        ["5:3: no chapter uses the term pyramid in its text: use it there, or delete the entry"]
    );
    assert_eq!(
        faults("**sensor**", "**sensor** (also *coherence length*)"),
        ["5:3: coherence length is already an entry or a synonym on line 3: keep one"]
    );
}

#[test]
fn a_link_to_a_term_by_hand_needs_the_term() {
    let repository = with_glossary(GLOSSARY);
    let linked = |anchor: &str| {
        repository.write("book/src/three.md", format!("# Three\n\n[x](glossary.md#{anchor})\n"));
        repository.check()
    };
    assert_eq!(linked("term-fried-parameter"), [""; 0]);
    assert_eq!(linked("glossary"), [""; 0]);
    assert_eq!(
        linked("term-fried-parameters"),
        [
            "book/src/three.md:3:1: glossary.md has no entry or heading #term-fried-parameters: did you mean \
             #term-fried-parameter?"
        ]
    );
}

#[test]
fn a_name_is_told_from_a_word_at_the_start_of_a_sentence() {
    let glossary = "# Glossary\n\n- **Lens**: a program. See [One](one.md).\n- **lens**: glass. See [One](one.md).\n";
    let first = |text: &str| {
        let repository = Repository::new(&[("one.md", text), ("glossary.md", glossary)]);
        let book = Book::load(repository.root()).unwrap();
        let terms = terms(&book);
        let uses = first_uses(&book, &terms);
        uses.iter().map(|found| terms[found.term].name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(first("# One\n\nLens runs. Lens stops. Lenses are made.\n"), ["Lens", "lens"]);
    assert_eq!(first("# One\n\nLenses are made of a lens.\n"), ["lens"]);
}
