//! One rendering of the book, from its chapters to finished pages.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::error::{self, BookError};
use super::progress::Progress;
use super::render::Layout;
use super::{figures, finish, math, names, render, search, sidebar};
use crate::expand;
use crate::finding::Finding;
use crate::live;
use crate::volume::Book;

/// The options of `cargo book`.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// Open the book in the browser
    #[arg(long)]
    pub open: bool,
    /// Serve the book on 127.0.0.1, and render it anew when a chapter changes
    #[arg(long)]
    pub serve: bool,
    /// The port to serve on (default: the first free one from 3000)
    #[arg(long, requires = "serve")]
    pub port: Option<u16>,
    /// Leave the figures as they are
    #[arg(long)]
    pub keep_figures: bool,
    /// Print the chapters and indices into this PDF instead, by Chromium, without the appendices
    #[arg(long, value_name = "FILE", conflicts_with_all = ["open", "serve"])]
    pub pdf: Option<PathBuf>,
    /// Print the appendices, too (the parts of the book whose titles begin with "Appendix")
    #[arg(long, requires = "pdf")]
    pub appendices: bool,
}

/// What was rendered.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The folder that holds the pages.
    pub folder: PathBuf,
    /// How many chapters, the indices not counted.
    pub chapters: usize,
    /// How many formulas.
    pub formulas: usize,
    /// How many examples were run to draw figures.
    pub drawn: usize,
    /// How long it took, figures included.
    pub time: Duration,
}

/// One line that says what was rendered.
pub fn summary(report: &Report) -> String {
    format!(
        "{}: {} chapters, {} formulas, examples run: {}, {:.1} s",
        report.folder.join("index.html").display(),
        report.chapters,
        report.formulas,
        report.drawn,
        report.time.as_secs_f64()
    )
}

/// Renders the book of the repository at `root` into `book/build`; with `draw`, the figures first.
///
/// # Errors
///
/// [`BookError::Findings`] with everything that is wrong in the chapters (undefined chunks, formulas
/// that do not parse, references to no equation, figures that no program draws), and the other kinds
/// for what stops the rendering itself.
pub fn build(root: &Path, draw: bool) -> Result<Report, BookError> {
    let progress = Progress::start();
    progress.step("reading the chapters");
    let book = Book::load(root)?;
    let named = names::named(&book, &expand::tangle(&book));
    let report = lay_out(root, draw, book, Layout::Pages, &progress)?;
    progress.step("compacting the search index");
    search::compact(&report.folder, &named)?;
    sidebar::fold_parts(&report.folder)?;
    Ok(Report { time: progress.elapsed(), ..report })
}

/// Renders the chapters of a book in this layout; with `draw`, the figures first.
///
/// # Errors
///
/// Those of [`build`].
pub fn lay_out(
    root: &Path,
    draw: bool,
    book: Book,
    layout: Layout,
    progress: &Progress,
) -> Result<Report, BookError> {
    let tangled = expand::tangle(&book);
    let mut findings: Vec<Finding> =
        book.findings.iter().chain(&tangled.findings).filter(|f| f.is_error()).cloned().collect();
    let chapters = book.chapters.len();
    let formulas: usize = book.chapters.iter().map(|chapter| chapter.math.len()).sum();
    progress.step(&format!("checking {formulas} formulas"));
    findings.extend(math::unresolved(&book));
    findings.extend(book.lost_citations());
    findings.extend(live::check(&book));
    findings.extend(math::refused(&book, math::settings(root)?));
    error::refuse(book.located(findings))?;
    figures::attach(root, &book)?;
    let drawn = if draw { figures::draw(root, progress)? } else { 0 };
    error::refuse(book.located(figures::missing(&book)))?;
    progress.step(&format!("rendering {chapters} chapters"));
    let pages = render::render(root, book, tangled, layout)?;
    progress.step("inserting chunks and formulas");
    finish::finish(root, &pages)?;
    Ok(Report { folder: pages.folder, chapters, formulas, drawn, time: progress.elapsed() })
}
