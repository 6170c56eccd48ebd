//! The pages themselves, by mdbook's library crates.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use mdbook_driver::MDBook;
use mdbook_katex::preprocess::KatexProcessor;

use super::chunks::Chunks;
use super::error::BookError;
use super::math::Formulas;
use super::preprocess::{Collect, Weave};
use crate::expand::Tangled;
use crate::volume::Book;

/// What is rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A page for each chapter, and the indices, in the folder that `book/book.toml` names (`book/build`).
    Pages,
    /// Chapters and indices on one page, `print.html` in `target/book-on-paper`.
    Sheet {
        /// Whether it holds the appendices.
        appendices: bool,
    },
}

/// The pages, in which comments stand for chunks and formulas.
pub struct Pages {
    /// The folder that holds them.
    pub folder: PathBuf,
    /// The HTML of the formulas.
    pub formulas: Formulas,
    /// The HTML of the chunks.
    pub chunks: Chunks,
}

/// Renders the book.
///
/// # Errors
///
/// [`BookError::Mdbook`] with what mdbook says.
pub fn render(
    root: &Path,
    book: Book,
    tangled: Tangled,
    layout: Layout,
) -> Result<Pages, BookError> {
    let formulas = Rc::new(RefCell::new(Formulas::default()));
    let chunks = Rc::new(RefCell::new(Chunks::default()));
    let mut pages = MDBook::load(root.join("book")).map_err(BookError::mdbook)?;
    if let Layout::Sheet { .. } = layout {
        pages.config.build.build_dir = "../target/book-on-paper".into();
        pages.config.set("output.html.print.enable", true).map_err(BookError::mdbook)?;
        pages.config.set("output.html.search.enable", false).map_err(BookError::mdbook)?;
    }
    let appendices = layout != Layout::Sheet { appendices: false };
    pages
        .with_preprocessor(Weave { book, tangled, appendices, chunks: Rc::clone(&chunks) })
        .with_preprocessor(KatexProcessor)
        .with_preprocessor(Collect { formulas: Rc::clone(&formulas) });
    pages.build().map_err(BookError::mdbook)?;
    let folder = pages.build_dir_for("html");
    Ok(Pages { folder, formulas: formulas.take(), chunks: chunks.take() })
}
