//! Why a book could not be rendered.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::finding::Finding;

/// What stops `cargo book`.
#[derive(Debug, Error)]
pub enum BookError {
    /// The chapters are wrong; one finding for each fault.
    #[error("{} in the book", count(.0.len()))]
    Findings(Vec<Finding>),
    /// A file could not be read or written, or a program not be started.
    #[error(transparent)]
    Tangle(#[from] crate::Error),
    /// mdbook refused to render.
    #[error("mdbook: {0}")]
    Mdbook(String),
    /// mdbook-katex would not understand its settings.
    #[error("[preprocessor.katex] in book/book.toml: {0}")]
    Settings(String),
    /// The examples that draw the figures do not compile.
    #[error("the examples that draw the figures do not compile")]
    Examples,
    /// An example failed.
    #[error("book/examples/{name}.rs failed ({status}):\n{message}")]
    Example {
        /// Its name.
        name: String,
        /// How it ended.
        status: String,
        /// What it said.
        message: String,
    },
    /// A rendered page would fetch something.
    #[error("{page} fetches {address}: the book is to be read without a network")]
    Outside {
        /// The page or style sheet.
        page: PathBuf,
        /// What it fetches.
        address: String,
    },
    /// The search index cannot be made smaller.
    #[error("the search index, book/build/searchindex.js, is {found}: expected {expected}")]
    Index {
        /// What it is.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// A live figure cannot have its computed results.
    #[error("live figures: {0}")]
    Live(String),
    /// The table of contents cannot be divided into parts.
    #[error("the table of contents, book/build/toc.js, is not of the form that mdbook 0.5 writes")]
    Sidebar,
    /// No browser that prints is installed.
    #[error("a PDF is printed by Chromium, and none of {0} is installed")]
    NoBrowser(String),
    /// Chromium printed nothing.
    #[error("{browser} did not print the book ({status}):\n{message}")]
    Printing {
        /// Its name.
        browser: String,
        /// How it ended.
        status: String,
        /// What it said.
        message: String,
    },
    /// The book cannot be served.
    #[error("cannot serve the book on 127.0.0.1: {0}")]
    Serve(io::Error),
}

impl BookError {
    pub(crate) fn mdbook(why: mdbook_preprocessor::errors::Error) -> BookError {
        BookError::Mdbook(format!("{why:#}"))
    }
}

/// An error if there is any finding.
pub(crate) fn refuse(mut findings: Vec<Finding>) -> Result<(), BookError> {
    findings.sort();
    findings.dedup();
    if findings.is_empty() { Ok(()) } else { Err(BookError::Findings(findings)) }
}

/// The error for people: the findings one to a line, then what it comes to.
pub fn explain(error: &BookError) -> String {
    let mut text = String::new();
    if let BookError::Findings(findings) = error {
        for finding in findings {
            text.push_str(&format!("{finding}\n"));
        }
    }
    text.push_str(&format!("error: {error}"));
    text
}

fn count(faults: usize) -> String {
    if faults == 1 { "one fault".to_string() } else { format!("{faults} faults") }
}
