//! The pages themselves, by mdbook's library crates.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use mdbook_driver::MDBook;
use mdbook_driver::book::{BookItem, Chapter as Page};

use super::anchors::ChunkAnchors;
use super::error::BookError;
use super::indices;
use super::math::Formulas;
use super::page::PageWriter;
use crate::expand::Tangled;
use crate::volume::Book;

/// Renders the book into the folder that `book/book.toml` names (`book/build`), and returns it. The
/// formulas are still comments there.
///
/// # Errors
///
/// [`BookError::Mdbook`] with what mdbook says.
pub fn render(
    root: &Path,
    book: &Book,
    tangled: &Tangled,
    formulas: &Formulas,
) -> Result<PathBuf, BookError> {
    debug_assert!(formulas.count() == book.chapters.iter().map(|c| c.math.len()).sum::<usize>());
    let mut pages = MDBook::load(root.join("book")).map_err(mdbook)?;
    let anchors = ChunkAnchors::new(book);
    let writer = PageWriter { book, anchors: &anchors };
    let content: HashMap<&str, String> = book
        .chapters
        .iter()
        .enumerate()
        .map(|(index, chapter)| (chapter.file.as_str(), writer.markdown(index)))
        .collect();
    pages.book.for_each_chapter_mut(|page| {
        let file = page.source_path.as_deref().and_then(Path::to_str);
        if let Some(content) = file.and_then(|file| content.get(file)) {
            page.content = content.clone();
        }
    });
    pages.book.push_item(BookItem::Separator);
    let identifiers = indices::identifier_page(book, tangled, &anchors);
    let chunks = indices::chunk_page(book, &anchors);
    for (title, file, text) in [
        ("Index of identifiers", indices::IDENTIFIERS, identifiers),
        ("Index of chunks", indices::CHUNKS, chunks),
    ] {
        pages.book.push_item(BookItem::Chapter(Page::new(title, text, file, Vec::new())));
    }
    let folder = pages.build_dir_for("html");
    pages.build().map_err(mdbook)?;
    Ok(folder)
}

fn mdbook(why: mdbook_driver::errors::Error) -> BookError {
    BookError::Mdbook(format!("{why:#}"))
}
