// Tangled from book/src/errors.md: edit there, or here and run cargo tangle stitch.
//! What can go wrong, and how it is said.

// Imports of the errors
use std::{
    fmt::{self, Debug, Display, Write as _},
    io,
    path::PathBuf,
};

// A value that makes no sense
/// A quantity whose value has no meaning: its name, the value, and what was expected.
///
/// ```
/// use lenslet::error::Invalid;
/// let error = Invalid::new("r0", -0.15, "a length in metres greater than 0");
/// assert_eq!(error.to_string(), "r0 = -0.15: expected a length in metres greater than 0");
/// ```
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{} = {}: expected {}", escaped(.quantity), escaped(.value), escaped(.expected))]
pub struct Invalid {
    /// Name of the quantity, as a system file spells it: `r0`, `layers[2].fraction`.
    pub quantity: String,
    /// The value that was refused, as text.
    pub value: String,
    /// What would have been accepted, with its unit.
    pub expected: String,
}

// Refuse a value and say why
impl Invalid {
    /// Refuses `value` for `quantity`, and says what was expected instead.
    pub fn new(
        quantity: impl Into<String>,
        value: impl Display,
        expected: impl Into<String>,
    ) -> Self {
        Self { quantity: quantity.into(), value: value.to_string(), expected: expected.into() }
    }
}

// Escape control characters of inputs
/// A text whose control characters are printed as codes, `\u001b`, so that a terminal does not execute them.
pub(crate) struct Escaped<'a, T: ?Sized> {
    text: &'a T,
    keeps_lines: bool,
}

/// A text without control characters, line breaks included.
pub(crate) fn escaped<T: Display + ?Sized>(text: &T) -> Escaped<'_, T> {
    Escaped { text, keeps_lines: false }
}

/// A text without control characters besides line breaks and tabulators.
pub(crate) fn escaped_lines<T: Display + ?Sized>(text: &T) -> Escaped<'_, T> {
    Escaped { text, keeps_lines: true }
}

// Characters that terminals obey
/// Whether a terminal does not print a character but obeys it: controls, line and paragraph separators, marks of direction, and
/// characters without width.
fn is_control(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
                | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        )
}

// Write escaped text
impl<T: Display + ?Sized> Display for Escaped<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keeps_lines = self.keeps_lines;
        write!(EscapingWriter { to: f, keeps_lines }, "{}", self.text)
    }
}

/// Writes text with its control characters as codes.
struct EscapingWriter<'a, 'b> {
    to: &'a mut fmt::Formatter<'b>,
    keeps_lines: bool,
}

impl fmt::Write for EscapingWriter<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(is_control) {
            let last = part.chars().next_back().filter(|&last| is_control(last));
            let plain = &part[..part.len() - last.map_or(0, char::len_utf8)];
            self.to.write_str(plain)?;
            match last {
                Some(kept @ ('\n' | '\t')) if self.keeps_lines => self.to.write_char(kept)?,
                Some(control) => write!(self.to, "\\u{:04x}", u32::from(control))?,
                None => {}
            }
        }
        Ok(())
    }
}

// Checks of a number
/// `x`, if it is `good`; else it is refused, and `expected` says what would have been accepted.
pub(crate) fn accept<T: Debug>(
    good: bool,
    quantity: &str,
    x: T,
    expected: &str,
) -> std::result::Result<T, Invalid> {
    if good { Ok(x) } else { Err(Invalid::new(quantity, format!("{x:?}"), expected)) }
}
/// `x`, unless it is infinite or NaN.
pub(crate) fn finite(quantity: &str, x: f64) -> std::result::Result<f64, Invalid> {
    accept(x.is_finite(), quantity, x, "a finite number")
}

/// Whether each value is greater than the one before it, or each is less.
pub(crate) fn is_ordered(values: &[f64]) -> bool {
    let pairs = || values.windows(2);
    pairs().all(|pair| pair[0] < pair[1]) || pairs().all(|pair| pair[0] > pair[1])
}

/// `x`, if it is finite and greater than 0.
pub(crate) fn positive(quantity: &str, x: f64) -> std::result::Result<f64, Invalid> {
    accept(x > 0.0 && x.is_finite(), quantity, x, "a finite number greater than 0")
}

/// `x`, if it is finite and not less than 0.
pub(crate) fn not_negative(quantity: &str, x: f64) -> std::result::Result<f64, Invalid> {
    accept(x >= 0.0 && x.is_finite(), quantity, x, "a finite number not less than 0")
}

// Checks of a length
/// `x`, if it is a length between 1 nm and 1e15 m.
pub(crate) fn length(quantity: &str, x: f64) -> std::result::Result<f64, Invalid> {
    accept(x != f64::INFINITY, quantity, x, "a finite length in metres")?;
    accept(x > 0.0, quantity, x, "a length in metres greater than 0")?;
    accept((1e-9..=1e15).contains(&x), quantity, x, "a length between 1e-9 and 1e15 m")
}

/// `x`, if it is a length (see [`length`]) or infinity.
pub(crate) fn length_or_infinity(quantity: &str, x: f64) -> std::result::Result<f64, Invalid> {
    if x == f64::INFINITY {
        return Ok(x);
    }
    let refuse =
        |error: Invalid| Invalid { expected: format!("{}, or inf", error.expected), ..error };
    length(quantity, x).map_err(refuse)
}

// A bad line of a file
/// A line of a system file that is refused: where it is, what it says, what was expected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}{}expected {}", escaped(&self.location()), escaped(&self.complaint()), escaped(.expected))]
pub struct BadLine {
    /// The file, as it was named; empty where there is none.
    pub file: String,
    /// Line number, the first line being 1; 0 where values are from a dictionary and not from a text.
    pub line: usize,
    /// The key with the tables around it, `atmosphere.layers[2].fraction`; empty for the whole file.
    pub key: String,
    /// The value as the file has it, empty for a table; `None` where there is none.
    pub value: Option<String>,
    /// What would have been accepted.
    pub expected: String,
}
impl BadLine {
    /// The file and the line, `keck.toml:12: `, as far as there are some.
    pub(crate) fn location(&self) -> String {
        match (self.file.as_str(), self.line) {
            ("", 0) => String::new(),
            (file, 0) => format!("{file}: "),
            (file, line) => format!("{file}:{line}: "),
        }
    }

    fn complaint(&self) -> String {
        match &self.value {
            _ if self.key.is_empty() => String::new(),
            Some(value) if value.is_empty() => format!("{}: ", self.key),
            Some(value) => format!("{} = {value}: ", self.key),
            None => format!("{} is missing: ", self.key),
        }
    }
}

// Every way to fail
/// Why an operation of this crate did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A quantity has a value without meaning.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A line of a system file is wrong.
    #[error(transparent)]
    SystemFile(Box<BadLine>),
    // Covariances without a Toeplitz form
    /// The covariance of these guide stars has no Toeplitz form.
    #[error("no Toeplitz form: {}", escaped(.reason))]
    NotToeplitz {
        /// What breaks the invariance under translation.
        reason: String,
    },
    /// The computation was cancelled by its [`Watch`](crate::watch::Watch).
    #[error("cancelled")]
    Cancelled,
    // Memory and devices that are wanting
    /// The result does not fit into the memory.
    #[error("{} needs {}, and {} are available", escaped(.what), in_bytes(*.needed), in_bytes(*.available))]
    Memory {
        /// What would be computed.
        what: String,
        /// Memory that it takes, in bytes.
        needed: u64,
        /// Memory that there is, in bytes.
        available: u64,
    },
    /// A device that was asked for is not there.
    #[error("device {}: {}", escaped(.device), escaped_lines(.reason))]
    Device {
        /// Its name, as it was asked for: `cuda:1`.
        device: String,
        /// Why it cannot be used.
        reason: String,
    },

    // Files that cannot be read or written
    /// A file cannot be read.
    #[error("cannot read {}: {}", escaped(&.path.display()), escaped(.source))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {}", escaped(&.path.display()), escaped(.source))]
    Write {
        /// The file, or its folder.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },

    // Computations that break down
    /// A result has an entry that is NaN or infinite.
    #[error("{} is {value} at {place:?}, which is no number to go on with", escaped(.result))]
    NotFinite {
        /// Name of the result, as in a file.
        result: String,
        /// Indices of the first such entry.
        place: Vec<usize>,
        /// The entry.
        value: f64,
    },
    /// A computation broke down although its input was good.
    #[error("{} failed: {}", escaped(.what), escaped_lines(.reason))]
    Failed {
        /// What was being done.
        what: String,
        /// Why it failed.
        reason: String,
    },
    // Say that a call of CUDA failed
    /// A call of NVIDIA's libraries failed.
    #[error("{call} failed on {}: {}", escaped(.device), escaped_lines(.reason))]
    Cuda {
        /// Name of the function.
        call: &'static str,
        /// Name of the device.
        device: String,
        /// What the library says.
        reason: String,
    },
    // Say that something belongs to another device
    /// Something of one graphics processor was handed to another.
    #[error("a {what} of {} was handed to {}", escaped(.owner), escaped(.device))]
    Foreign {
        /// What it is: a buffer, a kernel.
        what: &'static str,
        /// Name of the device that it belongs to.
        owner: String,
        /// Name of the device that it was handed to.
        device: String,
    },
    // Say that a solver has not converged
    /// An iterative solver has used up its iterations.
    #[error(
        "{} has not converged: after {} the relative residual is {residual:.1e}, \
         and at most {tolerance:.1e} was asked for",
        escaped(.what), count(*.iterations, "iteration")
    )]
    NotConverged {
        /// What was being solved.
        what: String,
        /// Iterations that were made.
        iterations: usize,
        /// Norm of the residual over that of the right-hand side.
        residual: f64,
        /// Largest relative residual that was asked for.
        tolerance: f64,
    },
}

/// What the fallible functions of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

// Choose the exit code
impl Error {
    /// The exit code of a process that ends with this error: 2 for bad input, 1 for a failed run, 130 if it was cancelled.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed { .. }
            | Self::NotFinite { .. }
            | Self::NotConverged { .. }
            | Self::Cuda { .. }
            | Self::Foreign { .. } => 1,
            Self::Cancelled => 130,
            _ => 2,
        }
    }
}

impl From<BadLine> for Error {
    fn from(line: BadLine) -> Self {
        Self::SystemFile(Box::new(line))
    }
}

// Print numbers of bytes and things
// Print a number of bytes
/// A number of bytes in the largest fitting unit, from bytes to GiB.
///
/// ```
/// assert_eq!(lenslet::error::in_bytes(3 << 29), "1.5 GiB");
/// assert_eq!(lenslet::error::in_bytes(1000), "1000 bytes");
/// ```
pub fn in_bytes(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(power, _)| bytes >> power > 0) {
        Some((power, unit)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << power) as f64),
        None => count(bytes as usize, "byte"),
    }
}

// Print a number of things
/// A number of things: `3 targets`, or `1 target`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

// Check that errors speak plainly
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_accept_and_refuse() {
        let checks = [finite, positive, not_negative, length, length_or_infinity];
        let accepted = |x: f64| checks.map(|check| check("x", x).is_ok());
        assert_eq!(accepted(f64::NAN), [false; 5]);
        assert_eq!(accepted(f64::INFINITY), [false, false, false, false, true]);
        assert_eq!(accepted(-1.0), [true, false, false, false, false]);
        assert_eq!(accepted(0.0), [true, false, true, false, false]);
        assert_eq!(accepted(1e-200), [true, true, true, false, false]);
        assert_eq!(accepted(8.0), [true; 5]);
    }

    // Messages and their exit codes
    #[test]
    fn messages_and_exit_codes() {
        let line = |key: &str, value: Option<&str>| BadLine {
            file: "keck.toml".into(),
            line: 12,
            key: key.into(),
            value: value.map(str::to_owned),
            expected: "a length".into(),
        };
        let wrong = Error::from(line("atmosphere.r0", Some("-0.15")));
        assert_eq!(wrong.to_string(), "keck.toml:12: atmosphere.r0 = -0.15: expected a length");
        assert_eq!(wrong.exit_code(), 2);
        let missing = line("atmosphere.r0", None).to_string();
        assert_eq!(missing, "keck.toml:12: atmosphere.r0 is missing: expected a length");
        let large = Error::Memory { what: "it".into(), needed: 5 << 30, available: 1 << 20 };
        assert_eq!(large.to_string(), "it needs 5.0 GiB, and 1.0 MiB are available");
        // Check what failed runs say
        let failed = Error::Failed { what: "the solver".into(), reason: "it diverged".into() };
        assert_eq!(
            (failed.to_string().as_str(), failed.exit_code()),
            ("the solver failed: it diverged", 1)
        );
        let (iterations, residual, tolerance) = (100, 3e-4, 1e-6);
        let stopped = Error::NotConverged { what: "it".into(), iterations, residual, tolerance };
        assert!(stopped.to_string().contains("100 iterations the relative residual is 3.0e-4"));
        assert_eq!((stopped.exit_code(), Error::Cancelled.exit_code()), (1, 130));
    }

    // Control characters in messages
    #[test]
    fn control_characters_of_inputs_are_escaped() {
        let bad = "a\u{1b}[31mb\u{7}\u{9b}2J\r\n\u{202e}\0\u{7f}é";
        let text = || bad.to_string();
        let (file, key, expected, value) = (text(), text(), text(), Some(text()));
        let invalid = Invalid::new(bad, bad, bad);
        let line = BadLine { file, line: 3, key, value, expected };
        assert_eq!(
            Invalid::new(bad, 1, "é").to_string(),
            r"a\u001b[31mb\u0007\u009b2J\u000d\u000a\u202e\u0000\u007fé = 1: expected é"
        );
        // Errors of every kind with such a text
        let source = || io::Error::other(bad);
        let (call, path) = ("cuMemAlloc", PathBuf::from(bad));
        let (iterations, residual, tolerance) = (100, 3e-4, 1e-6);
        let errors = [
            invalid.into(),
            line.into(),
            Error::NotToeplitz { reason: text() },
            Error::Memory { what: text(), needed: 2, available: 1 },
            Error::Device { device: text(), reason: text() },
            Error::Read { path: path.clone(), source: source() },
            Error::Write { path, source: source() },
            Error::NotFinite { result: text(), place: Vec::new(), value: f64::NAN },
            Error::Failed { what: text(), reason: text() },
            Error::Cuda { call, device: text(), reason: text() },
            Error::Foreign { what: "buffer", owner: text(), device: text() },
            Error::NotConverged { what: text(), iterations, residual, tolerance },
        ];
        for error in errors {
            let message = error.to_string();
            assert!(message.contains(r"\u001b[31m"), "{message}");
            let controls = |c: &char| c.is_control() && *c != '\n' || *c == '\u{202e}';
            assert_eq!(message.chars().find(controls), None, "{error:?}");
        }
        assert_eq!(escaped_lines("a\n\tb\u{1b}").to_string(), "a\n\tb\\u001b");
    }
}
