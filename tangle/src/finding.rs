//! What `check` reports, one line each.

use std::fmt;

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The book is wrong: `check` fails.
    Error,
    /// The book could read better: `check` passes.
    Warning,
}

/// One thing found, and where: `book/src/x.md:LINE:COL: what`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// File, relative to the repository, with `/` between its parts.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Whether it fails the check.
    pub severity: Severity,
    /// What was found.
    pub message: String,
    /// Whether the line is that of the file, also where the chapter shows a notebook.
    pub located: bool,
}

impl Finding {
    /// A finding that fails the check.
    pub fn error(
        path: impl Into<String>,
        (line, column): (usize, usize),
        message: impl Into<String>,
    ) -> Finding {
        let (path, message) = (path.into(), message.into());
        Finding { path, line, column, severity: Severity::Error, message, located: false }
    }

    /// A finding that does not fail the check.
    pub fn warning(
        path: impl Into<String>,
        (line, column): (usize, usize),
        message: impl Into<String>,
    ) -> Finding {
        let (path, message) = (path.into(), message.into());
        Finding { path, line, column, severity: Severity::Warning, message, located: false }
    }

    /// Whether it fails the check.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_error() { "" } else { "warning: " };
        write!(f, "{}:{}:{}: {kind}{}", self.path, self.line, self.column, self.message)
    }
}
