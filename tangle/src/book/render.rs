//! The pages themselves, by mdbook's library crates.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use mdbook_driver::MDBook;
use mdbook_katex::preprocess::KatexProcessor;

use super::error::BookError;
use super::math::Formulas;
use super::preprocess::{Collect, Weave};
use crate::expand::Tangled;
use crate::volume::Book;

/// Renders the book into the folder that `book/book.toml` names (`book/build`). Returns that folder,
/// and the formulas, which are still comments there.
///
/// # Errors
///
/// [`BookError::Mdbook`] with what mdbook says.
pub fn render(root: &Path, book: Book, tangled: Tangled) -> Result<(PathBuf, Formulas), BookError> {
    let formulas = Rc::new(RefCell::new(Formulas::default()));
    let mut pages = MDBook::load(root.join("book")).map_err(BookError::mdbook)?;
    pages
        .with_preprocessor(Weave { book, tangled })
        .with_preprocessor(KatexProcessor)
        .with_preprocessor(Collect { formulas: Rc::clone(&formulas) });
    pages.build().map_err(BookError::mdbook)?;
    Ok((pages.build_dir_for("html"), formulas.take()))
}
