//! What stops a command.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// A reason for which a command could not do its work at all.
///
/// What is wrong *in* the book is a [`Finding`](crate::Finding), not an error.
#[derive(Debug, Error)]
pub enum Error {
    /// No `book/src/SUMMARY.md` here or in any folder above.
    #[error("no book/src/SUMMARY.md in {0} or any folder above it")]
    NoBook(PathBuf),
    /// A file could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file could not be written or removed.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another program could not be started.
    #[error("cannot run {program}: {source}")]
    Run {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// The command line asks for something that does not exist.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
        move |source| Error::Read { path: path.to_path_buf(), source }
    }

    pub(crate) fn write(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
        move |source| Error::Write { path: path.to_path_buf(), source }
    }

    pub(crate) fn run(program: &str) -> impl FnOnce(io::Error) -> Error + '_ {
        move |source| Error::Run { program: program.to_string(), source }
    }
}

/// The result of a command.
pub type Result<T> = std::result::Result<T, Error>;
