//! After any edit of the tangled files, `stitch` either brings it back, so that tangling gives the
//! same files byte for byte, or it refuses and the tree is as before.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests

mod common;

use common::Repository;
use proptest::prelude::*;
use tangle::{Book, commands, expand};

const ONE: &str = "\
# One

```rust file=src/lib.rs
fn a() {
    // <<do the first step>>

    // <<do nothing at all>>
    // <<do the second step>>
}
// <<share the last step>>
\t// <<share the last step>>
```

````rust #do the first step
let λ = 1;

    if λ {
        // <<go one level deeper>>
    }
````

```rust #do nothing at all fold
```

```rust #share the last step
shared();
```
";

const TWO: &str = "\
```rust #do the second step\r
second();\r
second();\r
```\r
\r
```rust #go one level deeper\r
deeper();\r
```\r
\r
```toml file=src/data.toml\r
key = 1\r
# <<list all the keys>>\r
```\r
\r
```toml #list all the keys\r
a = 2\r
```\r
\r
```rust #go one level deeper fold\r
deepest();\r
```";

/// Lines that an editor might bring in, the dangerous ones among them.
const LINES: [&str; 22] = [
    "",
    "x();",
    "    x();",
    "        x();",
    "            x();",
    "\tx();",
    "    ",
    "        ",
    "    // Do the first step",
    "        // <<do the first step>>",
    "    // <<x y z>>",
    "# <<list all the keys>>",
    "```",
    "    ```",
    "````",
    "        ````  ",
    "```rust #do the first step",
    "    second();",
    "    x();\r",
    "λ🦀",
    "// Tangled from book/src/one.md: edit there, or here and run cargo tangle stitch.",
    "<!--",
];

#[derive(Debug, Clone)]
struct Edit {
    file: prop::sample::Index,
    at: prop::sample::Index,
    removed: usize,
    added: Vec<usize>,
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let added = prop::collection::vec(0..LINES.len(), 0..3);
    let edit = (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..3_usize, added);
    let edit = edit.prop_map(|(file, at, removed, added)| Edit { file, at, removed, added });
    prop::collection::vec(edit, 1..4)
}

const FILES: [&str; 2] = ["src/lib.rs", "src/data.toml"];

fn apply(repository: &Repository, edit: &Edit) {
    let path = FILES[edit.file.index(FILES.len())];
    let text = repository.read(path);
    let mut lines: Vec<&str> = text.split('\n').collect();
    let at = edit.at.index(lines.len());
    let end = (at + edit.removed).min(lines.len());
    lines.splice(at..end, edit.added.iter().map(|&line| LINES[line]));
    repository.write(path, lines.join("\n"));
}

/// Tangles what is on disc, in memory.
fn tangled(repository: &Repository) -> Vec<(String, String)> {
    let book = Book::load(repository.root()).expect("a book");
    let tangled = expand::tangle(&book);
    assert_eq!(tangled.findings, []);
    tangled.files.iter().map(|(path, file)| (path.clone(), file.content())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn stitch_brings_back_or_refuses(edits in edits()) {
        let repository = Repository::new(&[("one.md", ONE), ("two.md", TWO)]);
        commands::tangle(repository.root()).expect("the book tangles");
        for edit in &edits {
            apply(&repository, edit);
        }
        let before = repository.files();
        let answer = commands::stitch(repository.root()).expect("stitch ends");
        let after = repository.files();
        if answer == std::process::ExitCode::SUCCESS {
            for (path, content) in tangled(&repository) {
                prop_assert_eq!(content.as_bytes(), &before[&path][..], "{}", path);
                prop_assert_eq!(content.as_bytes(), &after[&path][..], "{}", path);
            }
        } else {
            prop_assert_eq!(before, after);
        }
    }

    /// A sound line inside a chunk that is used once always finds its home.
    #[test]
    fn a_sound_line_is_never_refused(line in "[ ]{0,3}[a-zé;=(){}]{1,12}", place in 0..4_usize) {
        let repository = Repository::new(&[("one.md", ONE), ("two.md", TWO)]);
        commands::tangle(repository.root()).expect("the book tangles");
        let (above, indentation) = [
            ("    let λ = 1;\n", "    "),
            ("    second();\n    second();\n", "    "),
            ("            deeper();\n", "            "),
            ("fn a() {\n", ""),
        ][place];
        // Below `fn a() {` a line goes into the root, indented as it likes.
        repository.edit("src/lib.rs", above, &format!("{above}{indentation}{line}\n"));
        let before = repository.files();
        let answer = commands::stitch(repository.root()).expect("stitch ends");
        prop_assert_eq!(answer, std::process::ExitCode::SUCCESS);
        for (path, content) in tangled(&repository) {
            prop_assert_eq!(content.as_bytes(), &before[&path][..], "{}", path);
        }
    }
}
