//! The example in the chapter *Literate programming* tangles to what the chapter shows.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests

use std::path::Path;

use tangle::{Book, expand};

#[test]
fn the_example_tangles_to_what_is_shown() {
    let root = Book::find(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("the repository");
    let book = Book::load(&root).expect("the book");
    let chapter = book.chapter_at("book/src/literate-house.md").expect("the chapter");
    let chapter = &book.chapters[chapter];
    let shown = |language: &str| {
        let block = chapter.blocks.iter().find(|block| block.language == language);
        let code = block.expect("a block of this language").code.clone();
        code.map(|line| format!("{}\n", chapter.text.line(line))).collect::<String>()
    };
    let example = shown("markdown");
    let small = Book::from_sources("- [Mean](mean.md)\n", |_| Ok(example.clone()));
    let tangled = expand::tangle(&small);
    assert_eq!(tangled.findings, []);
    assert_eq!(tangled.files["src/mean.rs"].content(), shown("rust"));
}
