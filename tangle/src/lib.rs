//! The literate tool of lenslet.
//!
//! The chapters in `book/src` are the only source of `src/` and `kernels/`. This crate reads them
//! ([`Book`]), expands their chunks ([`expand::tangle`]), and keeps book and program together.
//!
//! ```
//! use tangle::{Book, expand};
//!
//! let chapter = "```rust file=src/lib.rs\nfn main() {\n    // <<say hello>>\n}\n```\n\n\
//!                ```rust #say hello\nprintln!(\"hello\");\n```\n";
//! let book = Book::from_sources("- [One](one.md)\n", |_| Ok(chapter.to_string()));
//! let tangled = expand::tangle(&book);
//! assert_eq!(
//!     tangled.files["src/lib.rs"].content(),
//!     "// Tangled from book/src/one.md: edit there, or here and run cargo tangle stitch.\n\
//!      fn main() {\n    // Say hello\n    println!(\"hello\");\n}\n"
//! );
//! ```

#![deny(missing_docs)]

/// Prints a line; a reader that has gone away is no fault of ours.
macro_rules! say {
    ($($word:tt)*) => {{ let _ = writeln!(std::io::stdout(), $($word)*); }};
}

/// Prints a line on standard error.
macro_rules! tell {
    ($($word:tt)*) => {{ let _ = writeln!(std::io::stderr(), $($word)*); }};
}

#[cfg(feature = "book")]
pub mod book;
pub mod bibliography;
pub mod block;
pub mod chapter;
pub mod check;
pub mod citations;
pub mod commands;
pub mod diagnostics;
pub mod diff;
pub mod docs;
pub mod error;
pub mod expand;
pub mod finding;
pub mod format;
pub mod glossary;
pub mod imports;
pub mod live;
pub mod locate;
mod markdown;
pub mod math;
pub mod map;
pub mod memory;
pub mod notebook;
pub mod pages;
pub mod plain;
mod rust;
pub mod stitch;
pub mod summary;
pub mod symbols;
pub mod text;
pub mod tree;
pub mod volume;
pub mod watch;

pub use block::{Block, BlockKind, Reference};
pub use chapter::Chapter;
pub use error::{Error, Result};
pub use finding::{Finding, Severity};
pub use markdown::{Heading, Link};
pub use math::{Mark, Math};
pub use text::Text;
pub use volume::{BlockId, Book, Chunk, Label, Use};
