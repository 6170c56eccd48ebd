//! What mdbook's preprocessors do to the chapters, in the order that `book/book.toml` gives them:
//! [`Weave`], mdbook-katex, [`Collect`], then mdbook's own.
//!
//! Between [`Weave`] and [`Collect`] the pages hold [`marks`](super::marks).

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use mdbook_preprocessor::book::{Book as Pages, BookItem, Chapter as Page};
use mdbook_preprocessor::errors::{Error, Result};
use mdbook_preprocessor::{Preprocessor, PreprocessorContext};

use super::anchors::{ChunkAnchors, Places, RowAnchors};
use super::chunks::Chunks;
use super::indices;
use super::marks::{CLOSE, OPEN, elsewhere_placeholder, hide, key, placeholder, show};
use super::math::Formulas;
use super::page::PageWriter;
use super::references;
use crate::expand::Tangled;
use crate::live;
use crate::map;
use crate::volume::Book;

/// Weaves the chapters: names and links of chunks, numbers of equations and figures, maps, citations, terms, and the
/// bibliography and indices at the end.
pub struct Weave {
    /// The book.
    pub book: Book,
    /// The program in it.
    pub tangled: Tangled,
    /// Whether the appendices are among the pages.
    pub appendices: bool,
    /// Where the HTML of the chunks goes.
    pub chunks: Rc<RefCell<Chunks>>,
}

impl Preprocessor for Weave {
    fn name(&self) -> &str {
        "weave"
    }

    fn run(&self, _: &PreprocessorContext, mut pages: Pages) -> Result<Pages> {
        let book = &self.book;
        let anchors = ChunkAnchors::new(book);
        let places = Places::new(&self.tangled);
        let maps = map::maps(book, &self.tangled);
        *self.chunks.borrow_mut() = Chunks::new(book, &anchors, &places);
        let rows = RowAnchors::new(book);
        let replaced = references::replaced(book);
        let live = live::list(&book.root).unwrap_or_default();
        let writer =
            PageWriter { book, maps: &maps, rows: &rows, replaced: &replaced, live: &live };
        let indices: HashMap<&str, usize> =
            book.chapters.iter().enumerate().map(|(i, c)| (c.file.as_str(), i)).collect();
        pages.for_each_chapter_mut(|page| {
            let file = page.source_path.as_deref().and_then(Path::to_str);
            page.content = match file.and_then(|file| indices.get(file)) {
                Some(&index) => writer.markdown(index),
                None => hide(&page.content),
            };
        });
        let shown = |chapter: usize| self.appendices || !book.chapters[chapter].in_appendix();
        pages.items.retain(|item| match item {
            BookItem::Chapter(page) => {
                let file = page.source_path.as_deref().and_then(Path::to_str);
                file.and_then(|file| indices.get(file)).is_none_or(|&index| shown(index))
            }
            // The page of all chapters shows neither.
            BookItem::PartTitle(_) | BookItem::Separator => true,
        });
        if let Some(page) = references::bibliography_page(book) {
            // Where all chapters are on one page, the table of contents leads to this place.
            let start = elsewhere_placeholder(indices::bibliography_place(book));
            let (text, file) = (hide(&format!("{start}\n\n{page}")), references::BIBLIOGRAPHY);
            pages.push_item(BookItem::Chapter(Page::new("Bibliography", text, file, Vec::new())));
        }
        pages.push_item(BookItem::Separator);
        let identifiers = indices::identifier_page(book, &self.tangled, &anchors, shown);
        let chunks = indices::chunk_page(book, &anchors, shown);
        let texts = [indices::symbol_page(&writer, shown), hide(&identifiers), hide(&chunks)];
        for (at, ((title, file), text)) in indices::PAGES.into_iter().zip(texts).enumerate() {
            let text = format!("{}\n\n{text}", elsewhere_placeholder(indices::place(book, at)));
            pages.push_item(BookItem::Chapter(Page::new(title, text, file, Vec::new())));
        }
        Ok(pages)
    }
}

/// Takes the formulas that mdbook-katex has set out of the chapters, and leaves a comment in the
/// place of each. So Markdown cannot spoil them, and the search index never sees them.
pub struct Collect {
    /// Where the formulas go.
    pub formulas: Rc<RefCell<Formulas>>,
}

impl Preprocessor for Collect {
    fn name(&self) -> &str {
        "collect"
    }

    fn run(&self, _: &PreprocessorContext, mut pages: Pages) -> Result<Pages> {
        let mut formulas = self.formulas.borrow_mut();
        let mut outcome = Ok(());
        pages.for_each_chapter_mut(|page| match collect(&page.content, &mut formulas) {
            Ok(content) => page.content = content,
            Err(raw) => {
                let name = &page.name;
                outcome = Err(Error::msg(format!(
                    "mdbook-katex left {raw} in the chapter {name} as it was: is it before \
                     \"collect\" in book.toml, and are its own settings sound?"
                )));
            }
        });
        outcome.map(|()| pages)
    }
}

/// The content of a page with its formulas put aside, or a formula that is not set.
fn collect(content: &str, formulas: &mut Formulas) -> std::result::Result<String, String> {
    let mut result = String::with_capacity(content.len());
    let mut rest = content;
    while let Some((before, after)) = rest.split_once(OPEN) {
        let (inside, after) = after.split_once(CLOSE).unwrap_or((after, ""));
        let (place, html) = inside.split_once(':').unwrap_or((inside, ""));
        let Some(key) = key(place).filter(|_| html.starts_with('<')) else {
            return Err(html.to_string());
        };
        formulas.insert(key, html);
        result.push_str(before);
        result.push_str(&placeholder(key));
        rest = after;
    }
    result.push_str(rest);
    Ok(show(&result))
}

#[cfg(test)]
mod tests {
    use super::{collect, hide};
    use crate::book::marks::formula;
    use crate::book::math::Formulas;

    #[test]
    fn only_formulas_are_shown_to_katex() {
        let page = hide("`a$b` and $5 ") + &formula(3, 14, "x", false) + &hide(" ```$");
        assert_eq!(page.matches(['$', '`']).collect::<String>(), "$$");
        let mut formulas = Formulas::default();
        assert_eq!(collect(&page, &mut formulas), Err("$x$".to_string()));
        let set = page.replace("$x$", "<b>x</b>");
        let collected = collect(&set, &mut formulas);
        assert_eq!(collected, Ok("`a$b` and $5 <!--m:3.14--> ```$".to_string()));
        assert_eq!(formulas.html((3, 14)), Some("<b>x</b>"));
    }
}
