//! `cargo book`: the chapters as pages to read, without a network and with nothing to install.
//!
//! The chapters come from [`Book`](crate::Book), which has already found their chunks, formulas and
//! labels; the pages are laid out by mdbook's library crates, and the mathematics is set by
//! mdbook-katex. Around these, this module
//!
//! - says where KaTeX refuses a formula, before anything is rendered ([`math`]),
//! - draws the figures by running the crate's own examples ([`figures`]),
//! - weaves the chapters as a preprocessor of mdbook ([`preprocess`]): every chunk gets its name and
//!   its links ([`chunks`], [`page`]) and every page the code that its references expand to ([`elsewhere`]), every labelled equation its number, every part its map, every citation and every first use of a term its link ([`references`]), and the book its
//!   indices ([`indices`]),
//! - collects the formulas that mdbook-katex has set, in a preprocessor after it,
//! - prepares the [`tables`] for narrow screens, puts formulas and chunks into the finished pages and looks for anything that would be fetched from elsewhere
//!   ([`finish`]),
//! - puts the script and the computed results of [`live`] figures into the pages that show some,
//! - makes the search index smaller ([`search`]), adds what the book names to it ([`names`]: symbols, [`keys`], [`options`] and public items), and gives the sidebar its parts ([`sidebar`]), and
//! - shows the result in a browser ([`serve`]), or prints it ([`pdf`]).
//!
//! Between the preprocessors and the finished pages a formula is a comment, `<!--m:3.14-->`
//! ([`marks`]), and so is a chunk, `<!--c:3.1-->`. So Markdown cannot spoil them, and the search index never sees them.

use std::path::Path;
use std::process::ExitCode;

pub mod anchors;
mod build;
pub mod chunks;
pub mod elsewhere;
pub mod error;
pub mod figures;
pub mod finish;
pub mod indices;
pub mod keys;
pub mod live;
pub mod marks;
pub mod math;
pub mod names;
pub mod options;
pub mod page;
pub mod pdf;
pub mod preprocess;
pub mod progress;
pub mod references;
pub mod render;
pub mod search;
pub mod serve;
pub mod sidebar;
pub mod tables;

pub use build::{Options, Report, build, summary};
pub use error::BookError;
pub use math::math_findings;

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
    let outcome = if let Some(file) = &options.pdf {
        pdf::print(root, !options.keep_figures, options.appendices, file)
            .map(|pages| println!("{}: {pages} pages", file.display()))
    } else if options.serve {
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
