//! Edits of tangled files go back into the chapters, or nothing is written.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests

mod common;

use common::{HEADER, Repository};

const ONE: &str = "\
# One

```rust file=src/lib.rs
fn sum() {
    // <<add the numbers up>>
    // <<tell the world>>
}

// <<share the step>>
// <<share the step>>
```

Words.

```rust #add the numbers up
for i in 0..3 {
    s += i;
}
```

```rust #tell the world
print(s);
```

```rust #share the step
step();
```

```rust file=src/b.rs
b
```
";

fn repository() -> Repository {
    let two = "```rust #tell the world fold\nprint(t);\n```\n";
    let repository = Repository::new(&[("one.md", ONE), ("two.md", two)]);
    repository.tangle();
    assert_eq!(
        repository.read("src/lib.rs"),
        format!(
            "{HEADER}fn sum() {{\n    // Add the numbers up\n    for i in 0..3 {{\n        \
             s += i;\n    }}\n    // Tell the world\n    print(s);\n    print(t);\n}}\n\n\
             // Share the step\nstep();\n// Share the step\nstep();\n"
        )
    );
    repository
}

/// An edit of `src/lib.rs` that changes `old` to `new` in the chapter `file`.
fn accepted(edit: (&str, &str), file: &str, (old, new): (&str, &str)) {
    let repository = repository();
    repository.edit("src/lib.rs", edit.0, edit.1);
    let (edited, chapter) = (repository.read("src/lib.rs"), repository.read(file));
    let answer = repository.run(&["stitch"]);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{edit:?}");
    assert_eq!(answer.out, format!("stitched {file}\n"));
    assert_eq!(chapter.matches(old).count(), 1, "{old:?}");
    assert_eq!(repository.read(file), chapter.replace(old, new));
    assert_eq!(repository.run(&[]).out, "", "tangling changes nothing more");
    assert_eq!(repository.read("src/lib.rs"), edited);
    assert_eq!(repository.run(&["stitch"]).out, "nothing to stitch\n");
}

/// An edit that is refused for this reason; nothing is written.
fn refused(edit: (&str, &str), reason: &str) {
    let repository = repository();
    repository.edit("src/lib.rs", edit.0, edit.1);
    repository.edit("src/b.rs", "\nb\n", "\nsound\n");
    let before = repository.files();
    let answer = repository.run(&["stitch"]);
    assert_eq!((answer.code, answer.out.as_str()), (1, ""), "{edit:?}");
    assert_eq!(answer.err, format!("{reason}\n1 edit refused: nothing was written\n"));
    assert_eq!(repository.files(), before);
}

#[test]
fn a_changed_line_loses_the_indentation_of_its_chunk() {
    accepted(("s += i;", "s += 2 * i;"), "book/src/one.md", ("s += i;", "s += 2 * i;"));
}

#[test]
fn lines_are_inserted_and_removed_inside_a_chunk() {
    accepted(
        ("        s += i;\n", "        s += i;\n\n        t += λ;\n"),
        "book/src/one.md",
        ("    s += i;\n", "    s += i;\n\n    t += λ;\n"),
    );
    accepted(("        s += i;\n", ""), "book/src/one.md", ("    s += i;\n", ""));
}

#[test]
fn an_insertion_between_two_chunks_goes_to_the_one_above() {
    accepted(
        ("    }\n    // Tell", "    }\n    done();\n    // Tell"),
        "book/src/one.md",
        ("}\n```\n\n```rust #tell", "}\ndone();\n```\n\n```rust #tell"),
    );
    // Also between the parts of one chunk, and behind the last.
    accepted(
        ("    print(s);\n", "    print(s);\n    print(u);\n"),
        "book/src/one.md",
        ("print(s);\n", "print(s);\nprint(u);\n"),
    );
    accepted(
        ("    print(t);\n", "    print(t);\n    print(u);\n"),
        "book/src/two.md",
        ("print(t);\n", "print(t);\nprint(u);\n"),
    );
}

#[test]
fn below_a_reference_a_chunk_begins() {
    accepted(
        ("    // Add the numbers up\n", "    // Add the numbers up\n    start();\n"),
        "book/src/one.md",
        ("for i", "start();\nfor i"),
    );
    accepted(
        ("fn sum() {\n", "/// Sum.\nfn sum() {\n"),
        "book/src/one.md",
        ("fn sum() {\n", "/// Sum.\nfn sum() {\n"),
    );
}

#[test]
fn citations_of_equations_come_back_as_labels() {
    let one = "$$ a \\label{eq:two-waves} $$\n\n$$ b \\label{eq:ray} $$\n\n```rust file=src/lib.rs\n\
               /// Follows `[eq:two-waves]`.\nfn f() {}\n```\n";
    for address in ["", "[package.metadata.book]\nurl = \"https://example.org\"\n"] {
        let repository = Repository::new(&[("one.md", one)]);
        repository.write("Cargo.toml", address);
        repository.tangle();
        let file = repository.read("src/lib.rs");
        assert!(!file.contains("[eq:"), "{file}");
        let line = file.lines().nth(1).expect("the comment");
        let cited =
            line.strip_prefix("/// Follows ").and_then(|l| l.strip_suffix('.')).expect("words");
        let ray = cited.replace("two waves", "ray").replace("two-waves", "ray");
        repository.edit("src/lib.rs", line, &format!("/// Obeys {cited}, and {ray}."));
        let answer = repository.run(&["stitch"]);
        assert_eq!((answer.code, answer.err.as_str()), (0, ""));
        let chapter =
            one.replace("Follows `[eq:two-waves]`", "Obeys `[eq:two-waves]`, and [eq:ray]");
        assert_eq!(repository.read("book/src/one.md"), chapter);
        assert_eq!(repository.run(&[]).out, "");
    }
}

#[test]
fn a_chunk_may_become_empty_and_full_again() {
    let repository = repository();
    repository.edit("src/lib.rs", "    print(t);\n", "");
    assert_eq!(repository.run(&["stitch"]).code, 0);
    assert_eq!(repository.read("book/src/two.md"), "```rust #tell the world fold\n```\n");
    repository.edit("book/src/one.md", "print(s);\n", "");
    repository.tangle();
    let comment = "    // Tell the world\n";
    repository.edit("src/lib.rs", comment, &format!("{comment}    print(u);\n"));
    assert_eq!(repository.run(&["stitch"]).code, 0);
    assert!(repository.read("book/src/one.md").contains("```rust #tell the world\nprint(u);\n```"));
}

#[test]
fn neighbouring_lines_of_two_chunks_change_line_for_line() {
    let repository = repository();
    repository.edit("src/lib.rs", "    print(s);\n    print(t);\n", "    say(s);\n    say(t);\n");
    let answer = repository.run(&["stitch"]);
    assert_eq!(answer.out, "stitched book/src/one.md\nstitched book/src/two.md\n");
    assert_eq!(repository.read("book/src/two.md"), "```rust #tell the world fold\nsay(t);\n```\n");
    assert_eq!(repository.run(&[]).out, "");
}

/// The difference of two texts may be told in several ways; one with a home is found.
#[test]
fn a_difference_is_moved_to_where_it_has_a_home() {
    let chapter = "```rust file=src/lib.rs\n// <<do the first step>>\n// <<do the second step>>\n\
                   ```\n```rust #do the first step\na\n// Do the second step\n```\n\
                   ```rust #do the second step\na\n```\n";
    let repository = Repository::new(&[("one.md", chapter)]);
    repository.tangle();
    let comment = "// Do the second step\n";
    let (first, second) = ("// Do the first step\na\n", format!("{comment}{comment}a\n"));
    assert_eq!(repository.read("src/lib.rs"), format!("{HEADER}{first}{second}"));
    // The upper one is code, the lower one stands for a reference.
    repository.write("src/lib.rs", format!("{HEADER}{first}{comment}a\n"));
    let answer = repository.run(&["stitch"]);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    let expected = chapter.replace("a\n// Do the second step\n", "a\n");
    assert_eq!(repository.read("book/src/one.md"), expected);
}

#[test]
fn what_has_no_single_home_is_refused() {
    refused(
        ("step();\n// Share the step\nstep();\n", "leap();\n// Share the step\nstep();\n"),
        "src/lib.rs:13: chunk <<share the step>> is used more than once: edit book/src/one.md",
    );
    refused(
        ("one.md: edit there", "one.md: edit here"),
        "src/lib.rs:1: the header line is not part of any chunk",
    );
    refused(("// Tangled", "\n// Tangled"), "src/lib.rs:1: nothing goes above the header line");
    refused(
        ("// Add the numbers up", "// Add all numbers"),
        "src/lib.rs:3: \"// Add the numbers up\" stands for a reference in \
         book/src/one.md:5: edit it there",
    );
    refused(
        ("    print(s);\n    print(t);\n", ""),
        "src/lib.rs:8: an edit over several chunks has no single home",
    );
    refused(
        ("        s += i;\n", "        s += i;\n  less();\n"),
        "src/lib.rs:6: \"less();\" is indented less than its chunk (4 columns)",
    );
}

#[test]
fn what_would_not_come_back_is_refused() {
    refused(
        ("s += i;", "s += i;\r"),
        "src/lib.rs:5: a carriage return does not come back from a chapter",
    );
    refused(
        ("        s += i;\n", "        s += i;\n    \n"),
        "src/lib.rs:6: a line of blanks only: leave it empty",
    );
    refused(
        ("        s += i;\n", "        // <<tell the world>>\n"),
        "src/lib.rs:5: \"// <<tell the world>>\" would read as a chunk reference",
    );
    refused(
        ("        s += i;\n", "    ```\n"),
        "src/lib.rs:5: \"```\" would close the chunk's fence",
    );
    let repository = repository();
    let text = repository.read("src/b.rs");
    repository.write("src/b.rs", text.trim_end());
    let before = repository.files();
    let answer = repository.run(&["stitch"]);
    assert_eq!(answer.code, 1);
    assert!(answer.err.starts_with("src/b.rs:2: the file must end with a newline\n"));
    assert_eq!(repository.files(), before);
}

#[test]
fn line_endings_of_the_chapter_are_kept() {
    let chapter = ONE.replace('\n', "\r\n");
    let two = "```rust #tell the world\r\nprint(t);\r\n```";
    let repository = Repository::new(&[("one.md", &chapter), ("two.md", two)]);
    repository.tangle();
    repository.edit("src/lib.rs", "        s += i;\n", "        s += i;\n        t += i;\n");
    repository.edit("src/lib.rs", "print(t);\n", "print(t);\n    print(u);\n");
    assert_eq!(repository.run(&["stitch"]).code, 0);
    let expected = chapter.replace("    s += i;\r\n", "    s += i;\r\n    t += i;\r\n");
    assert_eq!(repository.read("book/src/one.md"), expected);
    let expected = "```rust #tell the world\r\nprint(t);\r\nprint(u);\r\n```";
    assert_eq!(repository.read("book/src/two.md"), expected);
    assert_eq!(repository.run(&[]).out, "");
}

#[test]
fn a_chapter_that_changed_is_not_taken_for_an_edit() {
    let repository = repository();
    repository.edit("book/src/one.md", "\nb\n", "\nnewer\n");
    let before = repository.files();
    let answer = repository.run(&["stitch"]);
    assert_eq!((answer.code, answer.out.as_str()), (0, "nothing to stitch\n"));
    assert_eq!(answer.err, "src/b.rs is older than its chapter: run cargo tangle\n");
    repository.edit("src/b.rs", "\nb\n", "\nmine\n");
    assert_eq!(repository.run(&["stitch"]).code, 1);
    assert_eq!(repository.read("book/src/one.md").as_bytes(), before["book/src/one.md"]);
    // Without the record we take the file for edited.
    std::fs::remove_dir_all(repository.path("target")).expect("removed");
    assert_eq!(repository.run(&["stitch"]).code, 0);
    assert!(repository.read("book/src/one.md").contains("\nmine\n"));
}

#[test]
fn formatting_reaches_book_and_source() {
    let chapter = "```rust file=src/lib.rs\nfn f( ) {\n    // <<add two numbers>>\n}\n```\n\
                   ```rust #add two numbers\nlet x=1+\n 2;\nlet y = 3 ;\n```\n";
    let repository = Repository::new(&[("one.md", chapter)]);
    let answer = repository.run(&["fmt"]);
    assert_eq!((answer.code, answer.err.as_str()), (0, ""));
    assert_eq!(
        repository.read("book/src/one.md"),
        "```rust file=src/lib.rs\nfn f() {\n    // <<add two numbers>>\n}\n```\n\
         ```rust #add two numbers\nlet x = 1 + 2;\nlet y = 3;\n```\n"
    );
    assert_eq!(
        repository.read("src/lib.rs"),
        format!(
            "{HEADER}fn f() {{\n    // Add two numbers\n    let x = 1 + 2;\n    let y = 3;\n}}\n"
        )
    );
    assert_eq!(repository.run(&["fmt"]).out, "");
    // An edit that waits to be stitched is not lost.
    repository.edit("src/lib.rs", "let y = 3;", "let  y = 4;");
    let answer = repository.run(&["fmt"]);
    let what = "src/lib.rs has been edited: run cargo tangle stitch first\n";
    assert_eq!((answer.code, answer.out.as_str(), answer.err.as_str()), (1, "", what));
}

#[test]
fn a_file_that_rustfmt_cannot_read_is_named_by_its_chapter() {
    let chapter = "\n\n```rust file=src/lib.rs\nfn f( {\n```\n";
    let repository = Repository::new(&[("one.md", chapter)]);
    let answer = repository.run(&["fmt"]);
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("--> book/src/one.md:4:"), "{}", answer.err);
}
