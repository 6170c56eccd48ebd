//! From Markdown to files.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests

mod common;

use common::{HEADER, Repository, expanded};

/// The only file of a book of one chapter, without its header; no findings.
fn file(chapter: &str) -> String {
    let (files, findings) = expanded(&[chapter]);
    assert_eq!(findings, Vec::<String>::new());
    assert_eq!(files.len(), 1);
    let content = files.into_values().next().unwrap_or_default();
    content.strip_prefix(HEADER).expect("the header").to_string()
}

#[test]
fn a_chunk_receives_the_indentation_of_its_reference() {
    let chapter = "\
# One

```rust file=src/lib.rs
fn sum() {
    // <<add the numbers up>>
}
```

Words.

```rust #add the numbers up
for i in 0..3 {

    // <<do the step>>
}
```

```rust #do the step
s += i;
\tt += s;
```
";
    assert_eq!(
        file(chapter),
        "\
fn sum() {
    // Add the numbers up
    for i in 0..3 {

        // Do the step
        s += i;
        \tt += s;
    }
}
"
    );
}

#[test]
fn a_tab_before_a_reference_is_kept() {
    let chapter = "```rust file=src/lib.rs\n\t // <<a b c>>\n```\n```rust #a b c\nx\n```\n";
    assert_eq!(file(chapter), "\t // A b c\n\t x\n");
}

#[test]
fn a_chunk_continues_over_chapters_in_their_order() {
    let one = "```rust file=src/lib.rs\n// <<modules of the crate>>\nend\n```\n\
               ```rust #modules of the crate\nmod a;\n```\n";
    let two = "```rust #modules of the crate\nmod b;\n```\n\
               ```rust #modules of the crate\nmod c;\n```\n";
    let (files, findings) = expanded(&[one, two]);
    assert_eq!(findings, Vec::<String>::new());
    let expected = format!("{HEADER}// Modules of the crate\nmod a;\nmod b;\nmod c;\nend\n");
    assert_eq!(files["src/lib.rs"], expected);
}

#[test]
fn a_folded_block_is_tangled_like_any_other() {
    let chapter = "```rust file=src/lib.rs fold\n// <<see the sky>>\n```\n\
                   ```rust #see the sky\na\n```\n```rust #see the sky fold\nb\n```\n\
                   ```rust  #see the sky\tfold  \nc\n```\n";
    assert_eq!(file(chapter), "// See the sky\na\nb\nc\n");
    let book = |text: &str| tangle::Book::from_sources("- [C](one.md)\n", |_| Ok(text.to_string()));
    let folded = |text: &str| -> Vec<bool> {
        book(text).chapters[0].blocks.iter().map(|block| block.folded).collect()
    };
    assert_eq!(folded(chapter), [true, false, true, true]);
    assert_eq!(book(chapter).chunks["see the sky"].parts.len(), 3);
    let others = "```rust #fold\n```\n```rust #unfold\n```\n```rust file=fold\n```\n\
                  ```text fold\n```\n```rust ignore fold\n```\n";
    assert_eq!(folded(others), [false; 5]);
    assert!(book(others).chunks.keys().eq(["fold", "unfold"]));
}

const CITING: &str = "# Waves\n\n$$ a \\label{eq:two-waves} $$\n\n```rust file=src/lib.rs\n\
                      //! By Eq. `[eq:two-waves]`, [eq:two-waves]; [eq:none], [eq:two-waves](one.html#eq-two-waves).\n\
                      // Not [eq:two-waves].\n```\n\n```cuda file=kernels/k.cu\n/// [eq:two-waves]\n```\n";

#[test]
fn equations_are_cited_by_name_and_chapter() {
    let (files, _) = expanded(&[CITING]);
    let words = "*two waves* (chapter *C*)";
    let rest = "[eq:none], [eq:two-waves](one.html#eq-two-waves).\n// Not [eq:two-waves].\n";
    assert_eq!(files["src/lib.rs"], format!("{HEADER}//! By Eq. {words}, {words}; {rest}"));
    assert_eq!(files["kernels/k.cu"], format!("{HEADER}/// [eq:two-waves]\n"));
}

#[test]
fn equations_are_links_where_the_book_has_an_address() {
    let repository = Repository::new(&[("one.md", CITING)]);
    repository
        .write("Cargo.toml", "[package.metadata.book]\nurl = \"https://example.org/book/\"\n");
    repository.run(&[]);
    let link = "[two waves](https://example.org/book/one.html#eq-two-waves)";
    let file = repository.read("src/lib.rs");
    assert!(file.contains(&format!("//! By Eq. {link}, {link}; [eq:none], ")), "{file}");
    assert_eq!(repository.check(), ["book/src/one.md:6:47: eq:none: no equation has this label"]);
}

#[test]
fn a_name_does_not_end_with_fold() {
    let (files, findings) = expanded(&[
        "```rust file=src/lib.rs\n// <<do the fold>>\n```\n```rust #do the fold\n```\n",
    ]);
    assert!(files.is_empty());
    let what = "chunk <<do the fold>> is not defined: a last word \"fold\" folds a block";
    assert_eq!(findings, [format!("book/src/one.md:2:1: {what}")]);
}

#[test]
fn a_chunk_may_be_used_before_and_after_it_is_defined_and_twice() {
    let chapter =
        "```rust #a b c\nx\n```\n```rust file=src/lib.rs\n// <<a b c>>\n  // <<a b c>>\n```\n";
    assert_eq!(file(chapter), "// A b c\nx\n  // A b c\n  x\n");
}

#[test]
fn shifts_and_launches_are_left_alone() {
    let chapter = "\
```cuda file=kernels/k.cu
int x = 1 << 2 >> 1;
kernel<<<grid, block>>>(x);
// <<<grid>>>
// <<<grid>>
// <<grid>>>
// << 1 >>
// <<a>> and <<b>>
/// <<not a reference>>
let s = \"// <<not one either>>\";
//<<nor this>>
// <<>>
# <<nor this one here>>
```
";
    let expected: String =
        chapter.lines().skip(1).take(12).map(|line| format!("{line}\n")).collect();
    assert_eq!(file(chapter), expected);
}

#[test]
fn toml_and_python_have_references_of_their_own() {
    let chapter = "```python file=tests/x.py\nif a:\n    # <<do the work>>\n    // <<no one>>\n```\n\
                   ```python #do the work\npass\n```\n";
    let (files, findings) = expanded(&[chapter]);
    assert_eq!(findings, Vec::<String>::new());
    let header = HEADER.replace("//", "#");
    let expected = format!("{header}if a:\n    # Do the work\n    pass\n    // <<no one>>\n");
    assert_eq!(files["tests/x.py"], expected);
}

#[test]
fn crlf_chapters_tangle_to_plain_newlines() {
    let chapter = "```rust file=src/lib.rs\r\na\r\n  // <<a b c>>\r\n```\r\n```rust #a b c\r\nb\r\n\r\n```\r\n";
    assert_eq!(file(chapter), "a\n  // A b c\n  b\n\n");
}

#[test]
fn a_chapter_may_end_without_a_newline() {
    assert_eq!(file("```rust file=src/lib.rs\na\n```"), "a\n");
}

#[test]
fn a_block_that_is_not_closed_is_a_finding() {
    let (files, findings) = expanded(&["\n```rust file=src/lib.rs\na"]);
    assert!(files.is_empty());
    let what = "book/src/one.md:2:1: this block is not closed: it runs to the end of the chapter";
    assert_eq!(findings, [what]);
}

#[test]
fn empty_chunks_leave_their_comment() {
    let chapter = "```rust file=src/lib.rs\na\n    // <<nothing at all>>\n// <<a b c>>\n```\n\
                   ```rust #nothing at all\n```\n```rust #a b c\nx\n```\n";
    assert_eq!(file(chapter), "a\n    // Nothing at all\n// A b c\nx\n");
    assert_eq!(file("```rust file=src/lib.rs\n```\n"), "");
}

#[test]
fn fences_inside_longer_fences_and_tildes_are_text() {
    let chapter = "\
````markdown
```rust file=src/no.rs
no
```
````

~~~text
```rust #not a chunk
```
~~~

<!--
```rust file=src/comment.rs
```
-->

    ```rust file=src/indented.rs

````rust file=src/lib.rs
//! ```
//! 1 + 1
//! ```
```
````
";
    assert_eq!(file(chapter), "//! ```\n//! 1 + 1\n//! ```\n```\n");
}

#[test]
fn a_chunk_stands_at_the_margin() {
    let (files, findings) = expanded(&["- list\n\n  ```rust file=src/lib.rs\n  a\n  ```\n"]);
    assert!(files.is_empty());
    assert_eq!(findings, ["book/src/one.md:3:3: a chunk opens at the left margin, with backticks"]);
}

#[test]
fn names_and_code_may_hold_any_letters() {
    let chapter = "```rust file=src/lib.rs\nλ\n\u{a0}\n  // <<élargir le ζ>>\n```\n\
                   ```rust #élargir le ζ\nlet ρ = \"Δ∞🦀\";\n```\n";
    assert_eq!(file(chapter), "λ\n\u{a0}\n  // Élargir le ζ\n  let ρ = \"Δ∞🦀\";\n");
}

#[test]
fn undefined_chunks_break_their_file_and_no_other() {
    let chapter =
        "```rust file=src/a.rs\n  // <<not there yet>>\n```\n```rust file=src/b.rs\nb\n```\n";
    let (files, findings) = expanded(&[chapter]);
    assert_eq!(files.keys().collect::<Vec<_>>(), ["src/b.rs"]);
    assert_eq!(findings, ["book/src/one.md:2:3: chunk <<not there yet>> is not defined"]);
}

#[test]
fn cycles_are_reported_where_they_close() {
    let chapter = "```rust file=src/lib.rs\n// <<a>>\n```\n```rust #a\n// <<b>>\n```\n\
                   ```rust #b\nx\n  // <<a>>\n```\n```rust #c\n// <<c>>\n```\n";
    let (files, findings) = expanded(&[chapter]);
    assert!(files.is_empty());
    assert_eq!(
        findings,
        [
            "book/src/one.md:9:3: chunk <<a>> uses itself: a → b → a",
            "book/src/one.md:12:1: chunk <<c>> uses itself: c → c",
        ]
    );
}

#[test]
fn a_book_that_doubles_itself_ends() {
    let mut chapter = "```rust file=src/lib.rs\n// <<c0>>\n```\n".to_string();
    for i in 0..60 {
        let next = i + 1;
        chapter += &format!("```rust #c{i}\n// <<c{next}>>\n// <<c{next}>>\n```\n");
    }
    chapter += "```rust #c60\nx\n```\n";
    let (files, findings) = expanded(&[&chapter]);
    assert!(files.is_empty());
    assert_eq!(findings, ["book/src/one.md:1:1: src/lib.rs would have more than 200000 lines"]);
}

#[test]
fn two_roots_for_one_file_are_refused() {
    let one = "```rust file=src/lib.rs\na\n```\n";
    let (files, findings) = expanded(&[one, "\n```rust file=src/lib.rs\nb\n```\n"]);
    assert!(files.is_empty());
    let what = "book/src/two.md:2:1: a second root for src/lib.rs: the first is at \
                book/src/one.md:1";
    assert_eq!(findings, [what]);
}

#[test]
fn malformed_names_are_findings() {
    let (_, findings) = expanded(&["```rust #\n```\n```#a b c\n```\n```rust #a <<b>>\n```\n"]);
    assert_eq!(
        findings,
        [
            "book/src/one.md:1:1: a chunk without a name",
            "book/src/one.md:3:1: a chunk names its language first: ```rust #a b c",
            "book/src/one.md:5:1: a chunk's name holds no angle brackets: a <<b>>",
        ]
    );
}

#[test]
fn only_files_that_change_are_touched() {
    let chapter = "```rust file=src/a.rs\na\n```\n```rust file=src/b.rs\nb\n```\n";
    let repository = Repository::new(&[("one.md", chapter)]);
    assert_eq!(repository.run(&[]).out, "wrote src/a.rs\nwrote src/b.rs\n");
    let time = |path| repository.path(path).metadata().and_then(|m| m.modified()).ok();
    let before = (time("src/a.rs"), time("src/b.rs"));
    assert_eq!(repository.run(&[]).out, "");
    std::thread::sleep(std::time::Duration::from_millis(20));
    repository.edit("book/src/one.md", "\nb\n", "\nc\n");
    assert_eq!(repository.run(&[]).out, "wrote src/b.rs\n");
    assert_eq!(time("src/a.rs"), before.0);
    assert_ne!(time("src/b.rs"), before.1);
    assert_eq!(repository.read("src/b.rs"), format!("{HEADER}c\n"));
}

#[test]
fn files_without_a_root_are_removed_only_if_they_are_ours() {
    let repository = Repository::new(&[("one.md", "```rust file=src/a/b.rs\na\n```\n")]);
    repository.tangle();
    repository.write("src/mine.rs", "fn mine() {}\n");
    repository.write("src/near.rs", "// Tangled from somewhere\n");
    repository.write("kernels/old.cu", HEADER);
    repository.write("tests/old.rs", HEADER);
    repository.write("book/src/one.md", "nothing\n");
    let answer = repository.run(&[]);
    let removed = |path| format!("removed {path}: no chapter roots it any more\n");
    assert_eq!(answer.out, removed("src/a/b.rs") + &removed("kernels/old.cu"));
    for path in ["src/mine.rs", "src/near.rs", "tests/old.rs"] {
        assert!(repository.exists(path), "{path}");
    }
    assert!(!repository.exists("src/a/b.rs") && !repository.exists("kernels/old.cu"));
}

#[test]
fn a_missing_chapter_is_reported_and_its_files_stay() {
    let one = "```rust file=src/a.rs\na\n```\n";
    let repository = Repository::new(&[("one.md", one), ("two.md", "")]);
    std::fs::remove_file(repository.path("book/src/two.md")).expect("removed");
    let old = HEADER.replace("one.md", "two.md");
    repository.write("src/b.rs", &old);
    let answer = repository.run(&[]);
    assert_eq!((answer.code, answer.out.as_str()), (1, "wrote src/a.rs\n"));
    let what = "book/src/SUMMARY.md:2:3: book/src/two.md is listed but does not exist\n";
    assert_eq!(answer.err, what);
    assert_eq!(repository.read("src/b.rs"), old);
}

#[test]
fn a_broken_file_is_left_as_it_was() {
    let repository = Repository::new(&[("one.md", "```rust file=src/a.rs\na\n```\n")]);
    repository.tangle();
    repository.edit("book/src/one.md", "\na\n", "\nb\n// <<not there yet>>\n");
    let answer = repository.run(&[]);
    assert_eq!(answer.code, 1);
    assert_eq!(
        answer.err,
        "book/src/one.md:3:1: chunk <<not there yet>> is not defined\n\
         src/a.rs is left as it is: its chunks are broken\n"
    );
    assert_eq!(repository.read("src/a.rs"), format!("{HEADER}a\n"));
}

#[test]
fn an_edit_that_was_not_stitched_is_kept_aside() {
    let repository = Repository::new(&[("one.md", "```rust file=src/a.rs\na\n```\n")]);
    repository.tangle();
    repository.edit("src/a.rs", "\na\n", "\nmine\n");
    let answer = repository.run(&[]);
    assert_eq!((answer.code, answer.out.as_str()), (0, "wrote src/a.rs\n"));
    assert_eq!(repository.read("src/a.rs"), format!("{HEADER}a\n"));
    let copy = "target/tangle/overwritten/src/a.rs";
    assert_eq!(repository.read(copy), format!("{HEADER}mine\n"));
    assert!(answer.err.contains(copy));
}

#[test]
fn a_folder_without_a_book_is_an_error() {
    let repository = Repository::new(&[]);
    std::fs::remove_file(repository.path("book/src/SUMMARY.md")).expect("removed");
    let answer = repository.run(&["check"]);
    assert_eq!(answer.code, 2);
    assert!(answer.err.starts_with("error: no book/src/SUMMARY.md in "), "{}", answer.err);
}
