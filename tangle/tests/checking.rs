//! What `check` finds, each with its place.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests

mod common;

use common::Repository;

/// The findings of a book of these chapters once it is tangled.
fn findings(chapters: &[(&str, &str)]) -> Vec<String> {
    let repository = Repository::new(chapters);
    repository.run(&[]);
    let before = repository.files();
    let findings = repository.check();
    assert_eq!(repository.files(), before, "check writes nothing");
    findings
}

const ROOT: &str = "```rust file=src/lib.rs\n//! Text.\n```\n";

#[test]
fn a_sound_book_has_no_findings() {
    let one = "# Où est β?\n\n## A `code` heading\n\n$$ a^2 \\label{eq:square} $$\n\n\
               [self](#a-code-heading), [other](two.md#top), [web](https://example.org/x#y), \
               [equation](#eq-square), [chunk](two.md#chunk-do-a-thing), [doubled](two.md#again-1) \
               costs 5\\$ and `$` and [ού](#où-est-β).\n\n\
               ```rust file=src/lib.rs\n//! Follows [eq:square] and `eq:square`.\n// [eq:comment]\n\
               // <<do a thing>>\n```\n";
    let two = "# Two {#top}\n\n# Again\n\n# Again\n\n$x$ by $\\eqref{eq:square}$.\n\n\
               ```rust #do a thing\nx\n```\n";
    assert_eq!(findings(&[("one.md", one), ("two.md", two)]), Vec::<String>::new());
}

#[test]
fn drift_is_found_at_the_line_of_its_chunk() {
    let one = "```rust file=src/lib.rs\na\n// <<do a thing>>\nz\n```\n\n\
               ```rust #do a thing\nb\nc\n```\n```rust file=src/other.rs\n```\n";
    let repository = Repository::new(&[("one.md", one)]);
    repository.tangle();
    repository.edit("src/lib.rs", "\nc\n", "\nC\n");
    std::fs::remove_file(repository.path("src/other.rs")).expect("removed");
    repository.write("src/old.rs", common::HEADER);
    repository.write("kernels/older.cu", common::HEADER.replace("one.md", "zero.md"));
    assert_eq!(
        repository.check(),
        [
            "book/src/SUMMARY.md:1:1: kernels/older.cu has no root any more: run cargo tangle",
            "book/src/one.md:1:1: src/old.rs has no root any more: run cargo tangle",
            "book/src/one.md:9:1: src/lib.rs:5 differs from the book: run cargo tangle, or \
             cargo tangle stitch",
            "book/src/one.md:11:1: src/other.rs does not exist: run cargo tangle",
        ]
    );
}

#[test]
fn chunks_that_nothing_uses_are_findings() {
    let one = format!(
        "{ROOT}```rust #do a thing\n// <<do another thing>>\n```\n\
         ```rust #do another thing\nx\n```\n"
    );
    assert_eq!(
        findings(&[("one.md", &one)]),
        [
            "book/src/one.md:4:1: chunk <<do a thing>> is not used",
            "book/src/one.md:7:1: chunk <<do another thing>> is used by no file",
        ]
    );
}

#[test]
fn undefined_and_cyclic_chunks_and_second_roots_are_findings() {
    let one = "```rust file=src/a.rs\n// <<one two three>>\n```\n```rust file=src/b.rs\n```\n\
               ```rust file=src/b.rs\n```\n```rust file=src/c.rs\n// <<go round and round>>\n```\n\
               ```rust #go round and round\n// <<go round and round>>\n```\n";
    assert_eq!(
        findings(&[("one.md", one)]),
        [
            "book/src/one.md:2:1: chunk <<one two three>> is not defined",
            "book/src/one.md:6:1: a second root for src/b.rs: the first is at book/src/one.md:4",
            "book/src/one.md:12:1: chunk <<go round and round>> uses itself: \
             go round and round → go round and round",
        ]
    );
}

#[test]
fn long_chunks_are_warned_of_and_then_refused_by_all_their_lines() {
    let file = |lines: usize| format!("```rust file=src/n{lines}.rs\n{}```\n", "x\n".repeat(lines));
    let one = [25, 26, 60, 61].map(file).concat();
    assert_eq!(
        findings(&[("one.md", &one)]),
        [
            "book/src/one.md:28:1: warning: src/n26.rs shows 26 lines: above 25, divide it or fold what a reader skips",
            "book/src/one.md:56:1: src/n60.rs shows 60 lines, and 30 is the most: divide it or fold what a reader skips",
            "book/src/one.md:118:1: src/n61.rs has 61 lines, and 60 is the most: divide it",
        ]
    );
    let part = |info: &str, lines: usize| format!("```rust #{info}\n{}```\n", "x\n".repeat(lines));
    let root = "```rust file=src/a.rs\n// <<do it in parts>>\n// <<do it at once>>\n```\n";
    let one = format!("{root}{}{}", part("do it in parts", 20), part("do it at once", 24));
    // A reference is one line, whatever it brings in.
    let two = format!(
        "{}```rust #do it at once\n// <<do it in parts>>\n```\n",
        part("do it in parts fold", 20)
    );
    let three = part("do it in parts", 21);
    assert_eq!(
        findings(&[("one.md", &one), ("two.md", &two), ("three.md", &three)]),
        [
            "book/src/one.md:5:1: chunk <<do it in parts>> has 61 lines in 3 blocks, and 60 is the most: divide it"
        ]
    );
}

#[test]
fn only_lines_that_a_reader_sees_are_warned_of() {
    let comment = "/// One.\n/// Two.\n/// Three.\n/// Four.\n";
    let part = |info: &str, lines: usize| {
        format!("```rust #{info}\n{comment}{}```\n", "x\n".repeat(lines))
    };
    let root = "```rust file=src/a.rs\n// <<do it openly here>>\n// <<do it in secret>>\n```\n";
    let one = [root, &part("do it in secret fold", 40), &part("do it openly here", 24)].concat();
    assert_eq!(findings(&[("one.md", &one)]), [""; 0]);
    let two = [root, &part("do it in secret", 24), &part("do it openly here", 25)].concat();
    assert_eq!(
        findings(&[("one.md", &two)]),
        [
            "book/src/one.md:35:1: warning: chunk <<do it openly here>> shows 26 lines: above 25, divide it or fold what a reader skips"
        ]
    );
}

#[test]
fn blocks_hold_whole_items() {
    let one = "```rust file=src/a.rs\nfn a<'a>(x: &'a str) {\n    // <<open and never close>> (\n\
               // <<open a bracket>>\n// <<close the other bracket>>\n    let s = (\"{\", '(', r#\"[\"#);\n}\n```\n\
               ```rust #open a bracket\nif λ(x) {\n    f([1,\n```\n\
               ```rust #close the other bracket\n    2]); /* } */\n}\n```\n\
               ```cuda file=kernels/a.cu\nint x = 1'000; // {\nf<<<(1), 2>>>(x[0]};\n```\n\
               ```toml file=src/a.toml\na = [\n```\n```rust\nfn no_chunk() {\n```\n";
    let whole = "a block holds whole items or whole statements";
    assert_eq!(
        findings(&[("one.md", one)]),
        [
            format!("book/src/one.md:10:9: {{ is not closed in this block: {whole}"),
            format!("book/src/one.md:14:6: ] closes what another block opens: {whole}"),
            format!("book/src/one.md:19:14: ( is closed by }} in this block: {whole}"),
        ]
    );
}

#[test]
fn names_that_say_nothing_are_warned_of() {
    let one = "```rust file=src/lib.rs\n// <<sum>>\n// <<some small helpers>>\n// <<of two minds>>\n\
               ```\n```rust #sum\n```\n```rust #some small helpers\n```\n```rust #of two minds\n\
               ```\n```cuda #of two minds\n```\n";
    assert_eq!(
        findings(&[("one.md", one)]),
        [
            "book/src/one.md:6:1: warning: chunk <<sum>> has 1 words in its name, not 3 to 9",
            "book/src/one.md:8:1: warning: \"helpers\" in the chunk's name \
             <<some small helpers>> describes no code",
            "book/src/one.md:12:1: chunk <<of two minds>> continues in cuda, but is rust at \
             book/src/one.md:10",
        ]
    );
}

#[test]
fn equations_that_do_not_parse_are_found_at_their_column() {
    let one = "λ: $\\frac{a}$ and $x$.\n\n$$\na & b\n$$\n\nA lone $ here.\n\n\
               $$ \\foo \\label{eq:f} $$\n\n$$ \\begin{aligned} a \\end{align} $$\n";
    assert_eq!(
        findings(&[("one.md", one)]),
        [
            "book/src/one.md:1:13: equation: an argument of \\frac is missing",
            "book/src/one.md:4:3: equation: & stands outside an environment",
            "book/src/one.md:7:8: this $ has no partner",
            "book/src/one.md:9:4: equation: KaTeX does not know \\foo",
            "book/src/one.md:11:22: equation: \\begin{aligned} ends with \\end{align}",
        ]
    );
}

#[test]
fn a_formula_ends_in_its_paragraph_and_outside_of_code() {
    let one = "Costs 5$ here.\n\nAnd 6$ there.\n\nA $x `y$` z.\n\n$$\na\n\nb\n$$\n";
    assert_eq!(
        findings(&[("one.md", one)]),
        [
            "book/src/one.md:1:8: this $ has no partner",
            "book/src/one.md:3:6: this $ has no partner",
            "book/src/one.md:5:3: this $ has no partner",
            "book/src/one.md:7:1: this $$ has no partner",
            "book/src/one.md:11:1: this $$ has no partner",
        ]
    );
}

#[test]
fn macros_of_the_book_are_known() {
    let repository = Repository::new(&[("one.md", "$\\vect{x} \\half \\vect$\n")]);
    repository.write("book/book.toml", "[preprocessor.katex]\nmacros = \"macros.txt\"\n");
    repository.write("book/macros.txt", "\\vect:{\\mathbf{#1}}\n\\half:{\\frac12}\n");
    let what = "book/src/one.md:1:22: equation: an argument of \\vect is missing";
    assert_eq!(repository.check(), [what]);
}

#[test]
fn labels_are_unique_and_references_resolve() {
    let one = "$$ a \\label{eq:a} $$\n\n$$ b \\label{eq:a} $$\n\n$c \\label{eq:c}$\n\n\
               $$ d \\label{d} $$\n\nSee $\\eqref{eq:b}$ and $\\eqref{eq:c}$.\n\n\
               ```rust file=src/lib.rs\n/// λ is [eq:a], not [eq:z].\n    //! Nor `eq:y`.\n\
               /// [a](https://x.y/book/one.html#eq-a), [b](../book/two.html#eq-a \"t\"), <z.html#eq-w>, [c](#eq:a)\n```\n";
    assert_eq!(
        findings(&[("one.md", one)]),
        [
            "book/src/one.md:3:6: label eq:a is already given at book/src/one.md:1",
            "book/src/one.md:5:4: label eq:c in a formula that is not displayed",
            "book/src/one.md:7:6: a label is spelt eq:name-of-it, not d",
            "book/src/one.md:9:6: \\eqref{eq:b}: no equation has this label",
            "book/src/one.md:12:23: eq:z: no equation has this label",
            "book/src/one.md:13:14: eq:y: no equation has this label",
            "book/src/one.md:14:62: #eq-a is on the page one.html, not two.html",
            "book/src/one.md:14:81: #eq-w: no equation has this label",
        ]
    );
}

#[test]
fn links_lead_somewhere() {
    let one = "# One\n\n[a](two.md) [b](two.md#nowhere) [c](#nowhere) [d](three.md) [e](loose.md)\n\
               [f](../out.md) [g](../../../out.md) ![h](figures/no.svg) ![i](figures/yes.svg)\n\
               [j](data.csv) [k]() ![l](figures/map-a.svg)\n";
    let repository = Repository::new(&[("one.md", one), ("sub/two.md", "[up](../one.md#one)\n")]);
    repository.write("book/src/two.md", "");
    repository.write("book/src/loose.md", "");
    repository.write("book/src/data.csv", "");
    repository.write("book/examples/one.rs", "draw(\"yes.svg\", format!(\"map-{x}.svg\"))\n");
    assert_eq!(
        repository.check(),
        [
            "book/src/one.md:3:1: two.md is in no table of contents",
            "book/src/one.md:3:13: two.md#nowhere is in no table of contents",
            "book/src/one.md:3:33: one.md has no heading or label #nowhere",
            "book/src/one.md:3:47: three.md does not exist",
            "book/src/one.md:3:61: loose.md is in no table of contents",
            "book/src/one.md:4:1: ../out.md leaves the book",
            "book/src/one.md:4:16: ../../../out.md leaves the book",
            "book/src/one.md:4:37: figures/no.svg does not exist",
            "book/src/one.md:5:15: a link to nothing",
        ]
    );
}

const LIB: &str = "```rust file=src/lib.rs\n// <<modules of the crate>>\n```\n\
                   ```rust #modules of the crate\npub mod a;\n```\n";

#[test]
fn headings_go_down_by_one_level_and_images_speak() {
    let files =
        "\n[![a *lens* `f`](two.md)](two.md) ![$x$](two.md) <img src=\"two.md\" alt=\"lens\">\n";
    let sound = format!("# One\n\n## A\n\n### B\n\n## C\n\n# Two\n{files}\n{ROOT}");
    let two = "# Two\n";
    assert_eq!(findings(&[("one.md", &sound), ("two.md", two)]), Vec::<String>::new());
    let one = format!(
        "## One\n\n#### A\n\n# B\n\n![](two.md) and\n![ ](two.md)\n<img src=\"two.md\">\n\n{ROOT}"
    );
    let expected = [
        "book/src/one.md:1:1: a heading of level 2 where level 1 is the deepest allowed",
        "book/src/one.md:3:1: a heading of level 4 where level 3 is the deepest allowed",
        "book/src/one.md:7:1: two.md has no alternative text: ![what it shows](…)",
        "book/src/one.md:8:1: two.md has no alternative text: ![what it shows](…)",
        "book/src/one.md:9:1: two.md has no alternative text: ![what it shows](…)",
    ];
    assert_eq!(findings(&[("one.md", &one), ("two.md", two)]), expected);
}

#[test]
fn modules_import_from_earlier_chapters_only() {
    let one = format!("{LIB}```rust file=src/a.rs\n// <<import the later one>>\n```\n");
    let two = "```rust #modules of the crate\npub mod b;\npub use crate::b::B;\n```\n\
               ```rust file=src/b.rs\nuse crate::a::A;\npub struct B;\n```\n\
               ```rust #import the later one\nuse crate::{a::A, b::B};\n```\n\
               ```rust file=src/c/d.rs\n// crate::e::E\n#[cfg(test)]\nmod tests { use crate::e::E; }\n```\n";
    let three = "```rust file=src/e.rs\nuse crate::c::d::D;\nuse lenslet::b::B;\n```\n";
    let repository = Repository::new(&[("one.md", &one), ("two.md", two), ("three.md", three)]);
    repository.tangle();
    assert_eq!(
        repository.check(),
        ["book/src/two.md:10:1: src/a.rs imports b, which a later chapter defines: Chapter two.md"]
    );
    let answer = repository.run(&["check", "--graph"]);
    let graph = "rooms, each on the rooms above it
    c  d
modules, by chapter
  1 Chapter one.md
    ├─ lib (all modules)
    └─ a ─────────────────▶ b
  2 Chapter two.md
    ├─ b ─────────────────▶ a
    └─ c::d
  3 Chapter three.md
    └─ e ─────────────────▶ b, c::d
";
    assert!(answer.out.starts_with(graph), "{}", answer.out);
}

#[test]
fn parts_import_from_appendices_what_imports_nothing_from_parts() {
    let one = "```rust file=src/a.rs\nuse crate::c::C;\n```\n";
    let two = "```rust file=src/b.rs\nuse crate::a::A;\n```\n";
    let machine = "```rust file=src/c.rs\nuse crate::d::D;\nuse crate::e::E;\n```\n";
    // An appendix may import from a part, and from a later appendix.
    let files = "```rust file=src/d.rs\npub struct D;\n```\n\
                 ```rust file=src/e.rs\npub struct E;\n```\n\
                 ```rust file=src/f.rs\nuse crate::b::B;\n```\n";
    let repository = Repository::new(&[
        ("one.md", one),
        ("two.md", two),
        ("machine.md", machine),
        ("files.md", files),
    ]);
    let summary = "# I Air\n\n- [One](one.md)\n\n# II Glass\n\n- [Two](two.md)\n\n# Appendix A The machine\n\n\
                   - [Machine](machine.md)\n\n# Appendix B Files\n\n- [Files](files.md)\n";
    repository.write("book/src/SUMMARY.md", format!("# Book\n\n{summary}"));
    repository.tangle();
    assert_eq!(repository.check(), Vec::<String>::new());
    let rule = "what a part imports from an appendix imports nothing from the parts";
    // Through another module of an appendix, c needs the second part; then the first part must not import c.
    repository.edit("book/src/files.md", "pub struct E;", "use crate::b::B;");
    repository.tangle();
    let expected = [format!(
        "book/src/one.md:2:1: src/a.rs imports c, which an appendix defines (Machine) and which imports b of the \
         part II Glass: {rule}"
    )];
    assert_eq!(repository.check(), expected);
    // The same chapters in a part are in the wrong order.
    repository.edit("book/src/SUMMARY.md", "# Appendix A The machine", "# III The machine");
    let expected =
        "book/src/one.md:2:1: src/a.rs imports c, which a later chapter defines: Machine";
    assert!(repository.check().iter().any(|finding| finding == expected));
}

#[test]
fn exercises_and_answers_have_partners() {
    let one = "# One\n\n## Further reading and exercises\n\n1. *Easy.* Why?\n2. Is it\n   3. or 4?\n\n```text\n9. no\n```\n\n## Later\n\n7. no\n";
    let two = "# Two\n\n1. no\n\n## Exercises\n\n1. How?\n";
    let answers = "# Answers\n\n1. no\n\n## [One](one.md)\n\n1. So.\n2. Yes.\n\n## [Two](two.md#two)\n\n1. Thus.\n";
    let repository = Repository::new(&[
        ("one.md", one),
        ("two.md", two),
        ("answers.md", answers),
        ("z.md", ROOT),
    ]);
    let parts = "# Book\n\n# I\n\n- [One](one.md)\n- [Two](two.md)\n- [Z](z.md)\n\n# Appendix H Answers\n\n- [A](answers.md)\n";
    repository.write("book/src/SUMMARY.md", parts);
    repository.tangle();
    assert_eq!(repository.check(), Vec::<String>::new());
    repository.edit("book/src/answers.md", "2. Yes.\n", "");
    repository.edit("book/src/answers.md", "1. Thus.", "1. Thus.\n2. And thus.");
    repository.edit("book/src/two.md", "1. How?", "1. How?\n3. What?");
    let expected = [
        "book/src/answers.md:12:1: book/src/two.md has no exercise 2",
        "book/src/one.md:6:1: exercise 2 has no answer: add it in the part of answers",
        "book/src/two.md:8:1: exercise 3 has no answer: add it in the part of answers",
    ];
    assert_eq!(repository.check(), expected);
    // A book without answers may have exercises.
    repository.edit("book/src/SUMMARY.md", "Answers", "End");
    assert_eq!(repository.check(), Vec::<String>::new());
}

/// A library of three rooms, `optics`, `waves` and `sky`, whose list of modules each chapter continues.
const HOUSE: &str = "```rust file=src/lib.rs\nmod error;\npub mod optics;\npub mod waves;\npub mod sky;\n\
                     pub use sky::Star;\npub use error::Error;\n\
                     pub mod prelude { pub use crate::sky::{star::Star as Sun, Sky}; }\n```\n\
                     ```rust file=src/error.rs\npub struct Error;\n```\n\
                     ```rust file=src/optics/mod.rs\n// <<modules of the optics>>\n```\n\
                     ```rust #modules of the optics\npub mod lens;\npub use lens::Lens;\n```\n\
                     ```rust file=src/optics/lens.rs\npub(crate) mod inside { pub struct Glass; }\n\
                     // <<imports of the lens>>\n```\n";

#[test]
fn rooms_stand_on_rooms_above_them() {
    let optics = "```rust #modules of the optics\nmod gpu;\npub use gpu::Gpu;\n```\n\
                  ```rust file=src/optics/lens/gpu.rs\nuse super::inside::Glass;\n\
                  use super::super::Lens;\nuse crate::Error;\n```\n\
                  ```rust file=src/optics/gpu.rs\nuse crate::Error;\n```\n\
                  ```rust #imports of the lens\nmod gpu;\npub use gpu::Glasses;\n```\n";
    let waves = "```rust file=src/waves/mod.rs\npub mod wave;\n```\n\
                 ```rust file=src/waves/wave.rs\nuse crate::optics::{Gpu, Lens, lens::Glasses};\n\
                 #[cfg(all(test, feature = \"x\"))]\nmod tests { use crate::prelude::Sun; }\n```\n";
    let sky = "```rust file=src/sky/mod.rs\npub mod star;\npub use star::{Star, self as stars};\n\
               #[cfg(test)]\nmod late;\npub struct Sky;\n```\n\
               ```rust file=src/sky/star.rs\nuse crate::waves::wave::Wave;\n```\n\
               ```rust file=src/sky/late.rs\nuse crate::later::X;\n```\n";
    let sound = [("one.md", HOUSE), ("two.md", optics), ("three.md", waves), ("four.md", sky)];
    let repository = Repository::new(&sound);
    repository.tangle();
    assert_eq!(repository.check(), Vec::<String>::new());
    let graph = "rooms, each on the rooms above it
    optics  lens, lens::gpu, gpu
    waves   wave
            ▶ optics
    sky     star, late
            ▶ waves
modules, by chapter
  1 Chapter one.md
    ├─ lib (all modules)
    ├─ error
    ├─ optics
    └─ optics::lens
  2 Chapter two.md
    ├─ optics::lens::gpu ─▶ error, optics::lens
    └─ optics::gpu ───────▶ error
  3 Chapter three.md
    ├─ waves
    └─ waves::wave ───────▶ optics::lens, optics::lens::gpu, optics::gpu
  4 Chapter four.md
    ├─ sky
    ├─ sky::star ─────────▶ waves::wave
    └─ sky::late
";
    let answer = repository.run(&["check", "--graph"]);
    assert_eq!(answer.out, graph);

    // Through a re-export, an import is still one of a later room.
    let three = repository.read("book/src/three.md");
    for path in ["Star", "prelude::Sun", "sky::stars::X", "optics::Lens as L, sky::star::Star"] {
        let import = format!("use crate::{{{path}}};\nuse crate::optics");
        repository.write("book/src/three.md", three.replace("use crate::optics", &import));
        repository.tangle();
        assert_eq!(
            repository.check(),
            [
                "book/src/three.md:5:1: src/waves/wave.rs imports sky::star, which a later chapter \
                 defines: Chapter four.md",
                "book/src/three.md:5:1: src/waves/wave.rs imports sky::star: the room sky comes \
                 after waves",
            ]
        );
    }
}

#[test]
fn modules_of_one_chapter_do_not_stand_on_each_other() {
    let one = "```rust file=src/a.rs\nuse crate::b::B;\n```\n```rust file=src/b.rs\nmod c;\nuse crate::d::D;\n```\n\
               ```rust file=src/b/c.rs\nuse super::B;\nuse lenslet::d::D;\n```\n\
               ```rust file=src/d.rs\nuse crate::a::A;\nfn f() { crate::b::c::g() }\n```\n";
    assert_eq!(
        findings(&[("one.md", one)]),
        ["book/src/one.md:2:1: modules import each other: a → b → d → a"]
    );
}

/// A book that lists its parts, commands and features, with all that they are compared with.
fn listing() -> Repository {
    let introduction = "# In\n\n| part | contents |\n|---|---|\n| I Air | a |\n| [II Glass](two.md) | b |\n\n\
                        | command | result |\n|:--|---|\n| `house new` | a |\n| `house dry-run` | b |\n";
    let commands = "# Two\n\n| command | chapter |\n|---|---|\n| [`new`](#two) | |\n| `house dry-run` | |\n\n\
                    ```rust file=src/command/mod.rs\n//! Commands: `new`, `dry-run`.\n\nenum Command {\n    \
                    /// Makes one.\n    New(NewArgs), // {\n    #[command(hide = true)]\n    DryRun {\n        \
                    Hidden: bool,\n    },\n}\n```\n";
    let features = "# One\n\n| part | unit |\n|---|---|\n| edge | m |\n\n\
                    ```rust file=src/lib.rs\n// <<features of the house>>\n```\n\n\
                    ```rust #features of the house\n//! | feature | adds |\n//! |---|---|\n//! | `plot` | a |\n\
                    //! | `files` | b |\n```\n";
    let repository = Repository::new(&[
        ("introduction.md", introduction),
        ("one.md", features),
        ("commands.md", commands),
    ]);
    let summary = "# Book\n\n[In](introduction.md)\n\n# I Air\n\n- [One](one.md)\n\n# II Glass\n\n\
                   - [Two](commands.md)\n";
    repository.write("book/src/SUMMARY.md", summary);
    repository.edit("book/src/introduction.md", "two.md", "commands.md");
    let manifest = "[package]\nname = \"house\"\n\n[features]\ndefault = [\"plot\"]\n# Pictures = 1.\n\
                    plot = [\n    \"dep:a\",\n]\nfiles = []\n\n[dependencies]\na = \"1\"\n";
    repository.write("Cargo.toml", manifest);
    repository.write("README.md", "# House\n\nCommands: `new` and `dry-run`.\n");
    repository.tangle();
    repository
}

#[test]
fn lists_agree_with_what_they_repeat() {
    assert_eq!(listing().check(), Vec::<String>::new());
    // The text to be edited, what becomes of it, and what is said then.
    let commands = "enum Command in src/command/mod.rs";
    let cases = [
        (
            ("book/src/introduction.md", "| I Air | a |\n", ""),
            vec!["book/src/introduction.md:3:1: the part I Air of book/src/SUMMARY.md is missing in this list"
                .to_string()],
        ),
        (
            ("book/src/SUMMARY.md", "# II Glass", "# II Lenses"),
            vec![
                "book/src/introduction.md:3:1: the part II Lenses of book/src/SUMMARY.md is missing in this list"
                    .to_string(),
                "book/src/introduction.md:6:1: II Glass is no part of book/src/SUMMARY.md".to_string(),
            ],
        ),
        (
            ("book/src/introduction.md", "| `house new` | a |", "| `house new` | a |\n| `house old` | a |"),
            vec![format!("book/src/introduction.md:11:1: old is no command of {commands}")],
        ),
        (
            ("book/src/commands.md", "| `house dry-run` | |", "| `house new` | |"),
            vec![
                format!("book/src/commands.md:3:1: the command dry-run of {commands} is missing in this list"),
                "book/src/commands.md:6:1: the command new is listed twice".to_string(),
            ],
        ),
        (
            ("README.md", "`new` and ", ""),
            vec![format!("README.md:3:1: the command new of {commands} is missing in this list")],
        ),
        (
            ("README.md", "Commands:", "There are"),
            vec!["README.md:1:1: no list of commands: a table whose first column is headed command".to_string()],
        ),
        (
            ("Cargo.toml", "files = []", "store = []"),
            vec![
                "book/src/one.md:12:1: the feature store of [features] in Cargo.toml is missing in this list"
                    .to_string(),
                "book/src/one.md:15:1: files is no feature of [features] in Cargo.toml".to_string(),
            ],
        ),
        (
            ("book/src/one.md", "| feature |", "| gadget |"),
            vec!["book/src/one.md:1:1: no list of features: a table whose first column is headed feature"
                .to_string()],
        ),
    ];
    for ((path, old, new), expected) in cases {
        let repository = listing();
        repository.edit(path, old, new);
        repository.tangle();
        assert_eq!(repository.check(), expected, "{path}: {old}");
    }
}

#[test]
fn a_new_command_is_missing_in_all_lists() {
    let repository = listing();
    repository.edit("book/src/commands.md", "    DryRun {", "    Tidy,\n    DryRun {");
    repository.tangle();
    let what = "the command tidy of enum Command in src/command/mod.rs is missing in this list";
    let places = [
        "README.md:3",
        "book/src/commands.md:3",
        "book/src/commands.md:9",
        "book/src/introduction.md:8",
    ];
    assert_eq!(repository.check(), places.map(|place| format!("{place}:1: {what}")));
}

#[test]
fn a_list_without_its_definition_is_superfluous() {
    let repository = listing();
    repository.edit("book/src/commands.md", "enum Command {", "enum Order {");
    repository.tangle();
    let what = |name: &str| format!("{name} is no command of enum Command in src/command");
    let findings = repository.check();
    assert_eq!(findings.len(), 8, "{findings:?}");
    assert_eq!(findings[0], format!("README.md:3:1: {}", what("dry-run")));
    // Where the definition is broken, that alone is reported.
    repository.edit(
        "book/src/commands.md",
        "    New(NewArgs)",
        "    // <<commands of the house>>\n    New(NewArgs)",
    );
    let broken = "book/src/commands.md:13:5: chunk <<commands of the house>> is not defined";
    assert_eq!(repository.check(), [broken]);
}

#[test]
fn a_letter_has_one_meaning_in_a_part() {
    let table =
        |rows: &str| format!("| symbol | meaning | in the code |\n|---|---|---|\n{rows}\n\n");
    let one =
        table("| $h_l$, $z$ | altitude of layer $l$, height of a source | `altitude`, `height` |")
            + &table("| $L_0$ | outer scale | |\n| $w$ | wavefront | `w` |");
    let two = table("| $h$ | altitudes | |\n| $L$ | length of the transforms | |")
        + &table(
            "| $z$ | residual | |\n| $w$ | path, as elsewhere | `w` |\n| $L_0$ | [scale](three.md) | |",
        )
        + &table("| $z$ | preconditioned residual | `z` |\n| $L_0$ | the largest step | |");
    let three = table("| $h$ | step of a rule | |");
    let repository = Repository::new(&[("one.md", &one), ("two.md", &two), ("three.md", &three)]);
    assert_eq!(repository.check(), Vec::<String>::new(), "no parts, no warnings");
    let summary =
        "# Book\n\n# I Air\n\n- [One](one.md)\n- [Two](two.md)\n\n# II\n\n- [Three](three.md)\n";
    repository.write("book/src/SUMMARY.md", summary);
    assert_eq!(
        repository.check(),
        [
            "book/src/two.md:8:1: $z$ is \"residual\" here and \"height of a source\" in \
             book/src/one.md:3, in one part: I Air",
            "book/src/two.md:15:1: $L_0$ is \"the largest step\" here and \"outer scale\" in \
             book/src/one.md:7, in one part: I Air",
        ]
    );
}

#[test]
fn a_map_needs_a_part() {
    let what = "a map is drawn in a chapter below the title of a part in SUMMARY.md";
    let one = "# One\n\n`{{#part-map}}`\n\n{{#part-map}}\n";
    assert_eq!(findings(&[("one.md", one)]), [format!("book/src/one.md:5:1: {what}")]);
}

#[test]
fn chapters_that_cannot_be_read_are_findings() {
    let repository = Repository::new(&[("one.md", ROOT), ("two.md", ""), ("three.md", "")]);
    repository.tangle();
    repository.write("book/src/two.md", b"\xff\xfe");
    std::fs::remove_file(repository.path("book/src/three.md")).expect("removed");
    repository.write(
        "book/src/SUMMARY.md",
        repository.read("book/src/SUMMARY.md") + "- [x](../x.md)\n- [again](one.md)\n- [draft]()\n",
    );
    assert_eq!(
        repository.check(),
        [
            "book/src/SUMMARY.md:2:3: book/src/two.md is not UTF-8",
            "book/src/SUMMARY.md:3:3: book/src/three.md is listed but does not exist",
            "book/src/SUMMARY.md:4:3: ../x.md is not a plain path below book/src",
            "book/src/SUMMARY.md:5:3: one.md is listed twice",
        ]
    );
}

#[test]
fn places_are_found_both_ways() {
    let one = "# One\n\n```rust file=src/lib.rs\na\n  // <<do a thing>>\n```\n\n\
               ```rust #do a thing\nb\n```\n```rust #do a thing fold\nc\n```\n";
    let repository = Repository::new(&[("one.md", one)]);
    repository.tangle();
    for (place, answer) in [
        ("src/lib.rs:4", "book/src/one.md:9  <<do a thing>>\n"),
        ("src/lib.rs:5:3", "book/src/one.md:12  <<do a thing>>, part 2, folded\n"),
        ("./src/lib.rs:3", "book/src/one.md:5  the root of src/lib.rs\n"),
        ("book/src/one.md:12", "src/lib.rs:5  <<do a thing>>, part 2, folded\n"),
        ("book/src/one.md:1", "book/src/one.md:1  prose, in no chunk\n"),
        ("book/src/one.md:8", "book/src/one.md:8  the fence of <<do a thing>>\n"),
    ] {
        let found = repository.run(&["locate", place]);
        assert_eq!((found.code, found.out.as_str()), (0, answer), "{place}: {}", found.err);
    }
    for (place, error) in [
        ("src/lib.rs:6", "error: src/lib.rs has no line 6\n"),
        ("src/lib.rs", "error: src/lib.rs is no place: write src/x.rs:120\n"),
        ("src/lib.rs:0", "error: src/lib.rs:0 is no place: write src/x.rs:120\n"),
        ("Cargo.toml:1", "error: Cargo.toml is neither a tangled file nor a chapter\n"),
    ] {
        let found = repository.run(&["locate", place]);
        assert_eq!((found.code, found.err.as_str()), (2, error), "{place}");
    }
    // An edited file is located through what has changed in it.
    repository.edit("src/lib.rs", "a\n", "a\nnew\nnew\n");
    assert_eq!(
        repository.run(&["locate", "src/lib.rs:6"]).out,
        "book/src/one.md:9  <<do a thing>>\n"
    );
}

#[test]
fn a_chapter_that_is_called_the_next_one_is_the_next_one() {
    let one = "# One\n\nThe [next chapter](two.md#two), [the first\nchapter](one.md), [the last chapter](three.md).\n";
    let two = "# Two\n\nThe [previous chapter](one.md), the [last chapter](one.md), the [Next Chapter](./three.md), \
               the [first chapters](one.md), a [chapter](two.md), [nexus chapter](one.md), \
               [next chapter](https://example.org/).\n";
    assert_eq!(
        findings(&[("one.md", one), ("two.md", two), ("three.md", "# Three\n")]),
        Vec::<String>::new()
    );
    let one = "# One\n\n[the next\nchapter](three.md), [previous chapter](two.md#two)\n";
    let two = "# Two\n\n[first `chapter`](two.md), the [last chapter](two.md)\n";
    let three = "# Three\n\n[next chapter](one.md)\n";
    let what = |text: &str, leads: &str, there: &str| {
        format!("\"{text}\" links to \"Chapter {leads}\", but {there}: link it by its title")
    };
    assert_eq!(
        findings(&[("one.md", one), ("two.md", two), ("three.md", three)]),
        [
            "book/src/one.md:3:1: ".to_string()
                + &what("the next chapter", "three.md", "the next chapter is \"Chapter two.md\""),
            "book/src/one.md:4:21: ".to_string()
                + &what("previous chapter", "two.md", "there is no previous chapter"),
            "book/src/three.md:3:1: ".to_string()
                + &what("next chapter", "one.md", "there is no next chapter"),
            "book/src/two.md:3:1: ".to_string()
                + &what("first chapter", "two.md", "the first chapter is \"Chapter one.md\""),
            "book/src/two.md:3:32: ".to_string()
                + &what("last chapter", "two.md", "the last chapter is \"Chapter one.md\""),
        ]
    );
}

/// A notebook of these cells, as Jupyter writes it.
fn notebook(cells: &[&str]) -> String {
    format!(
        "{{\"nbformat\": 4, \"nbformat_minor\": 5, \"metadata\": {{}}, \"cells\": [{}]}}",
        cells.join(", ")
    )
}

/// The findings of a chapter `one.md` that shows a notebook.
fn notebook_findings(chapter: &str, notebook: Option<&str>) -> Vec<String> {
    let repository = Repository::new(&[("one.md", chapter), ("two.md", ROOT)]);
    if let Some(text) = notebook {
        repository.write("python/notebooks/x.ipynb", text);
    }
    repository.run(&[]);
    repository.check()
}

#[test]
fn notebooks_are_checked_cell_by_cell() {
    let chapter = "# Stars\n\n{{#notebook python/notebooks/x.ipynb}}\n\nSee [it](nowhere.md).\n";
    let picture = "{\"output_type\": \"display_data\", \"data\": {\"image/svg+xml\": \"<svg/>\"}}";
    let code = |metadata: &str, output: &str| {
        format!(
            "{{\"cell_type\": \"code\", \"source\": \"f(\\\"$\\\")\", \"metadata\": {metadata}, \"outputs\": [{output}]}}"
        )
    };
    let told = code("{\"caption\": \"A star.\"}", picture);
    let sound = "{\"cell_type\": \"markdown\", \"source\": [\"# Stars\\n\", \"\\n\", \"$x$, [two](../../book/src/two.md)\"]}";
    let chapter_only = "book/src/one.md:5:5: nowhere.md does not exist";
    assert_eq!(notebook_findings(chapter, Some(&notebook(&[sound, &told]))), [chapter_only]);

    let odd = "{\"cell_type\": \"markdown\", \"source\": \"## Sky\\n\\nA $\\\\frac{x$ and [lost](../../book/src/three.md).\\n\\n#### Deep\"}";
    let untold = code("{}", picture);
    let found = notebook_findings(chapter, Some(&notebook(&[sound, odd, &untold])));
    let here = "book/src/one.md:3:1: python/notebooks/x.ipynb, cell";
    let expected = [
        format!("{here} 2, line 3: three.md does not exist"),
        format!("{here} 2, line 5: a heading of level 4 where level 3 is the deepest allowed"),
        format!("{here} 3: a picture without a caption"),
    ];
    for expected in &expected {
        assert!(
            found.iter().any(|line| line.starts_with(expected)),
            "{expected} is not in {found:#?}"
        );
    }
    assert!(
        found.iter().any(|line| line.starts_with(&format!("{here} 2, line 3: equation"))),
        "{found:#?}"
    );
    assert_eq!(found.last().map(String::as_str), Some(chapter_only));
}

#[test]
fn notebooks_that_cannot_be_shown_are_findings() {
    let chapter = "# Stars\n\n{{#notebook python/notebooks/x.ipynb}}\n";
    let here = "book/src/one.md:3:1:";
    assert_eq!(
        notebook_findings(chapter, None),
        [format!("{here} cannot read python/notebooks/x.ipynb: it does not exist")]
    );
    let broken = notebook_findings(chapter, Some("{"));
    assert!(
        broken.len() == 1
            && broken[0].starts_with(&format!("{here} python/notebooks/x.ipynb is no JSON: EOF")),
        "{broken:?}"
    );
    let with_chunks = format!("{chapter}\n```rust file=src/one.rs\n//! One.\n```\n");
    let found = notebook_findings(&with_chunks, Some(&notebook(&[])));
    assert_eq!(
        found,
        [format!("{here} a chapter that shows a notebook holds no chunks: move them to another")]
    );
}

#[test]
fn edits_are_stitched_beside_notebooks() {
    let chapter = "# Stars\n\n{{#notebook python/notebooks/x.ipynb}}\n";
    let repository = Repository::new(&[("one.md", chapter), ("two.md", ROOT)]);
    repository.write(
        "python/notebooks/x.ipynb",
        notebook(&["{\"cell_type\": \"markdown\", \"source\": \"A star.\"}"]),
    );
    repository.tangle();
    repository.edit("src/lib.rs", "Text", "Prose");
    assert_eq!(repository.run(&["stitch"]).code, 0);
    assert_eq!(repository.read("book/src/one.md"), chapter);
    assert_eq!(repository.read("book/src/two.md"), ROOT.replace("Text", "Prose"));
    assert_eq!(repository.check(), Vec::<String>::new());
}

#[test]
fn live_figures_are_known_and_stand_below_a_figure() {
    let one = format!(
        "{ROOT}\n![A](figures/a.svg)\n\n{{{{#live bent-rays}}}}\n\n![B](figures/b.svg)\n\n{{{{#live bent-ray}}}}\n\n\
         Text.\n\n{{{{#live waves}}}}\n\n![C](figures/a.svg)\n\n{{{{#live bent-rays}}}}\n\n```text\n{{{{#live lost}}}}\n```\n"
    );
    let repository = Repository::new(&[("one.md", &one)]);
    repository.tangle();
    for figure in ["a.svg", "b.svg"] {
        repository.write(&format!("book/src/figures/{figure}"), "");
    }
    let list = "viewer/src/live/figures.json";
    let start = format!("{list}:1:1: ");
    assert!(repository.check()[0].starts_with(&format!("{start}cannot read")));
    repository.write(list, "{\"bent-rays\": []}");
    assert!(
        repository.check()[0].starts_with(&format!("{start}{list}: bent-rays is []; expected"))
    );
    let entry = "{\"results\": [], \"image\": false}";
    let needy = "{\"results\": [\"waves.json\"], \"image\": true}";
    repository
        .write(list, format!("{{\"bent-rays\": {needy}, \"waves\": {entry}, \"spare\": {entry}}}"));
    assert_eq!(
        repository.check(),
        [
            "book/src/one.md:7:1: no program in book/examples writes waves.json, which the live figure bent-rays needs",
            "book/src/one.md:11:1: no live figure is called \"bent-ray\": did you mean bent-rays?",
            "book/src/one.md:15:1: a live figure without a still one: this line follows a figure and a blank line",
            "book/src/one.md:19:1: no program in book/examples writes waves.json, which the live figure bent-rays needs",
            &format!(
                "{start}no chapter shows the live figure spare: put {{{{#live spare}}}} below its figure, or delete the entry"
            ),
        ]
    );
    repository.write("book/examples/waves.rs", "write(\"waves.json\")");
    let findings = repository.check();
    assert_eq!(
        findings[2],
        "book/src/one.md:19:1: the live figure bent-rays is shown before, at book/src/one.md:7"
    );
}
