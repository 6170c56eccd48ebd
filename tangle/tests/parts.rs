//! Parts of the book, and their maps.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests

use tangle::{Book, expand, map};

const SUMMARY: &str = "# Contents\n\n[Before](before.md)\n\n# I Ground\n\n- [Stone](stone.md)\n\n\
                       # II House\n\n- [The house](house.md)\n- [Walls & floors](walls.md)\n  \
                       - [Walls on paper](paper.md)\n- [Roof](roof.md)\n- [Guests](guests.md)\n";

fn book() -> Book {
    Book::from_sources(SUMMARY, |path| {
        let text = match path {
            "book/src/before.md" => "# Before\n",
            "book/src/stone.md" => "# Stone\n\n```rust file=src/stone.rs\n```\n",
            "book/src/house.md" => {
                "# The house\n\n```\n{{#part-map}}\n```\n\n{{#part-map}}\n\nWords.\n"
            }
            "book/src/walls.md" => {
                "# Walls\n\n```rust file=src/walls.rs\nuse crate::stone::X;\n```\n"
            }
            "book/src/paper.md" => {
                "# Paper\n\n$$ a \\label{eq:a} $$\n\n```rust file=src/walls/paper.rs\nuse super::Y;\n```\n"
            }
            "book/src/roof.md" => {
                "```rust file=src/roof.rs\nuse crate::{stone::X, walls::{Y, paper::Z}};\n```\n"
            }
            _ => "# Guests\n",
        };
        Ok(text.to_string())
    })
}

#[test]
fn chapters_know_their_part_and_their_place_in_it() {
    let book = book();
    let parts: Vec<_> =
        book.chapters.iter().map(|c| (c.part.as_deref(), c.number.as_deref())).collect();
    let (one, two) = (Some("I Ground"), Some("II House"));
    assert_eq!(
        parts,
        [
            (None, None),
            (one, Some("1")),
            (two, Some("2")),
            (two, Some("3")),
            (two, Some("3.1")),
            (two, Some("4")),
            (two, Some("5")),
        ]
    );
    assert_eq!(book.labels["eq:a"].number, "3.1.1");
    assert_eq!(book.chapters[2].map_line(), Some(7));
}

#[test]
fn a_map_shows_the_chapters_of_a_part_and_what_stands_on_what() {
    let book = book();
    let maps = map::maps(&book, &expand::tangle(&book));
    assert_eq!(maps.len(), 1);
    let map = &maps[&2];
    for part in [
        "<a href=\"walls.html#walls\"><text",
        ">Walls &amp; floors</text></a>",
        "<a href=\"paper.html#paper\" class=\"nested\"><text",
        ">▸ Walls on paper</text></a>",
        "<a href=\"roof.html\"><text",
        ">Guests</text>",
        "The part depends on I Ground: <a href=\"stone.html#stone\">Stone</a>.",
    ] {
        assert!(map.contains(part), "{part} is not in {map}");
    }
    // One arrow, from the walls down to the roof.
    assert_eq!(
        (map.matches("<rect").count(), map.matches("class=\"tip\"").count()),
        (3, 1),
        "{map}"
    );
    let row = |title: &str| -> f64 {
        let before = map.split(title).next().expect("the title");
        let y = before.rsplit(" y=\"").next().and_then(|rest| rest.split('"').next());
        y.and_then(|y| y.parse().ok()).expect("a height")
    };
    assert!(row(">Roof<") > row(">Walls &amp; floors<"));
    assert_eq!(row(">Guests<"), row(">Roof<"));
    assert!(!map.trim().contains("\n\n"), "Markdown would end the figure at a blank line");
}
