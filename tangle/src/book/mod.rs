//! `cargo book`: the chapters as pages to read, without a network and with nothing to install.
//!
//! The chapters come from [`Book`], which has already found their chunks, formulas and labels; the
//! pages are laid out by mdbook's library crates, and the mathematics is set by mdbook-katex. Around
//! these, this module
//!
//! - says where KaTeX refuses a formula, before anything is rendered ([`math`]),
//! - draws the figures by running the crate's own examples ([`figures`]),
//! - weaves the chapters as a preprocessor of mdbook ([`preprocess`]): every chunk gets its name and
//!   its links ([`chunks`], [`page`]), every labelled equation its number, and the book two indices
//!   ([`indices`]),
//! - collects the formulas that mdbook-katex has set, in a preprocessor after it,
//! - puts them into the finished pages and looks for anything that would be fetched from elsewhere
//!   ([`finish`]), and
//! - shows the result in a browser ([`serve`]).
//!
//! Between the preprocessors and the finished pages a formula is a comment, `<!--m:3.14-->`. So
//! Markdown cannot spoil it, and the search index never sees it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use crate::expand;
use crate::finding::Finding;
use crate::volume::Book;

pub mod anchors;
pub mod chunks;
pub mod error;
pub mod figures;
pub mod finish;
pub mod indices;
pub mod math;
pub mod page;
pub mod preprocess;
pub mod render;
pub mod serve;

pub use error::BookError;
pub use math::math_findings;

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

/// Runs `cargo book` in the repository at `root`, and says on standard error what went wrong.
///
/// Exit code 0: done; 1: the book is wrong or could not be rendered.
pub fn run(root: &Path, options: &Options) -> ExitCode {
    let _ = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_target(false)
        .without_time()
        .with_writer(std::io::stderr)
        .try_init();
    let outcome = if options.serve {
        serve::serve(root, options)
    } else {
        build(root, !options.keep_figures).and_then(|report| {
            println!("{}", summary(&report));
            let index = report.folder.join("index.html");
            if options.open { serve::open_browser(&index.to_string_lossy()) } else { Ok(()) }
        })
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error::explain(&error));
            ExitCode::FAILURE
        }
    }
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
/// that do not parse, references to no equation, figures that nobody draws), and the other kinds
/// for what stops the rendering itself.
pub fn build(root: &Path, draw: bool) -> Result<Report, BookError> {
    let start = Instant::now();
    let book = Book::load(root)?;
    let tangled = expand::tangle(&book);
    let mut findings: Vec<Finding> =
        book.findings.iter().chain(&tangled.findings).filter(|f| f.is_error()).cloned().collect();
    findings.extend(math::unresolved(&book));
    findings.extend(math::refused(&book, math::settings(root)?));
    error::refuse(findings)?;
    let drawn = if draw { figures::draw(root)? } else { 0 };
    error::refuse(figures::missing(&book))?;
    let (chapters, count) = (book.chapters.len(), book.chapters.iter().map(|c| c.math.len()).sum());
    let (folder, formulas) = render::render(root, book, tangled)?;
    finish::finish(&folder, &formulas)?;
    Ok(Report { folder, chapters, formulas: count, drawn, time: start.elapsed() })
}
