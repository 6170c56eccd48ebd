//! rustc's messages at the chapters' lines: `cargo tangle cargo build`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::process::{Command, ExitStatus, Stdio};

use crate::error::{Error, Result};
use crate::expand::Tangled;
use crate::locate::Mapped;
use crate::volume::Book;

/// The commands of cargo that compile, and so take `--message-format`.
const COMPILING: [&str; 15] = [
    "build", "b", "check", "c", "clippy", "test", "t", "run", "r", "bench", "doc", "d", "rustc",
    "rustdoc", "fix",
];

/// Runs a cargo command in the present folder; its diagnostics name the chapters.
///
/// # Errors
///
/// [`Error::Run`] if cargo cannot be started or read.
pub fn cargo(book: &Book, tangled: &Tangled, arguments: &[String]) -> Result<ExitStatus> {
    // Cargo names itself in `CARGO`; a toolchain, `+nightly`, is understood by rustup's only.
    let chosen = arguments.first().is_some_and(|argument| argument.starts_with('+'));
    let own = std::env::var("CARGO").ok().filter(|_| !chosen);
    let program = own.unwrap_or_else(|| "cargo".to_string());
    let mut command = Command::new(&program);
    let colours = match std::env::var("CARGO_TERM_COLOR").as_deref() {
        Ok("always") => true,
        Ok("never") => false,
        _ => std::io::stderr().is_terminal(),
    };
    let Some(arguments) = with_json(arguments, colours) else {
        return command.args(arguments).status().map_err(Error::run(&program));
    };
    let mut child =
        command.args(arguments).stdout(Stdio::piped()).spawn().map_err(Error::run(&program))?;
    let map = Map::new(book, tangled);
    if let Some(output) = child.stdout.take() {
        let mut reader = BufReader::new(output);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).map_err(Error::run(&program))? > 0 {
            show(&map, &line);
            line.clear();
        }
    }
    child.wait().map_err(Error::run(&program))
}

/// A closed pipe behind us is no reason to stop reading cargo's output.
fn show(map: &Map<'_>, line: &[u8]) {
    let message = line
        .starts_with(b"{\"reason\":")
        .then(|| serde_json::from_slice::<serde_json::Value>(line).ok())
        .flatten();
    let Some(message) = message else {
        let mut out = std::io::stdout();
        let _ = match std::str::from_utf8(line) {
            Ok(text) => out.write_all(map.places(text).as_bytes()),
            Err(_) => out.write_all(line),
        };
        let _ = out.flush();
        return;
    };
    if let Some(rendered) = message.pointer("/message/rendered").and_then(|text| text.as_str()) {
        let _ = std::io::stderr().write_all(map.rendered(rendered).as_bytes());
    }
}

/// The arguments with a message format, or `None` for a command that does not compile or that
/// has a format of its own.
fn with_json(arguments: &[String], colours: bool) -> Option<Vec<String>> {
    let end = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let ours = &arguments[..end];
    if ours.iter().any(|argument| argument.starts_with("--message-format")) {
        return None;
    }
    let command = ours.iter().position(|argument| COMPILING.contains(&argument.as_str()))?;
    let asked = |word: &str| {
        ours.iter().any(|argument| argument == &format!("--color={word}"))
            || ours.windows(2).any(|pair| pair[0] == "--color" && pair[1] == word)
    };
    let colours = (colours || asked("always")) && !asked("never");
    let format = if colours { "json-diagnostic-rendered-ansi" } else { "json" };
    let mut result = arguments.to_vec();
    result.insert(command + 1, format!("--message-format={format}"));
    Some(result)
}

/// The way from tangled files to chapters.
pub struct Map<'a> {
    files: HashMap<&'a str, Mapped<'a>>,
}

impl<'a> Map<'a> {
    /// Reads all tangled files.
    pub fn new(book: &'a Book, tangled: &'a Tangled) -> Map<'a> {
        let files = tangled.files.iter();
        Map { files: files.map(|(path, f)| (path.as_str(), Mapped::new(book, f))).collect() }
    }

    fn origin(&self, path: &str, line: usize) -> Option<(String, usize, usize)> {
        let path = path.strip_prefix("./").unwrap_or(path);
        let (place, _, indentation) = self.files.get(path)?.origin(line)?;
        Some((place.path, place.line, indentation))
    }

    /// Replaces each `src/x.rs:LINE:COL` in a line of output.
    pub fn places(&self, text: &str) -> String {
        let mut result = String::new();
        let mut rest = text;
        while let Some((before, path, line, column, after)) = next_place(rest) {
            result.push_str(before);
            match self.origin(path, line) {
                Some((chapter, line, indentation)) => {
                    let column = column.saturating_sub(indentation).max(1);
                    result.push_str(&format!("{chapter}:{line}:{column}"));
                }
                None => result.push_str(&rest[before.len()..rest.len() - after.len()]),
            }
            rest = after;
        }
        result + rest
    }

    /// Moves a rendered diagnostic to the chapters: its places and the numbers in its margin.
    pub fn rendered(&self, text: &str) -> String {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let mut file: Option<String> = None;
        let mut primary: Option<String> = None;
        let mut margins = Vec::new();
        for line in &lines {
            let plain = plain(line);
            let trimmed = plain.trim_start();
            if let Some(place) =
                trimmed.strip_prefix("--> ").or_else(|| trimmed.strip_prefix("::: "))
            {
                file = next_place(place).map(|(before, path, ..)| format!("{before}{path}"));
                if primary.is_none() {
                    primary.clone_from(&file);
                }
            } else if ["help", "note"].iter().any(|word| trimmed.starts_with(word)) {
                file.clone_from(&primary);
            }
            let number = margin_number(&plain);
            let moved = number.and_then(|number| self.origin(file.as_deref()?, number));
            margins.push((number, moved.map(|(_, line, _)| line).or(number)));
        }
        let width = |numbers: &mut dyn Iterator<Item = usize>| {
            numbers.map(|number| number.to_string().len()).max().unwrap_or(0)
        };
        let old = width(&mut margins.iter().filter_map(|margin| margin.0));
        let new = width(&mut margins.iter().filter_map(|margin| margin.1));
        let shifted = lines.iter().zip(&margins).map(|(line, &(number, moved))| {
            let line = match (number, moved) {
                (Some(number), Some(moved)) => renumbered(line, number, moved, new),
                _ => realigned(line, old, new),
            };
            self.places(&line)
        });
        shifted.collect()
    }
}

/// The first `path:LINE:COL` in a text: before, path, line, column, after.
fn next_place(text: &str) -> Option<(&str, &str, usize, usize, &str)> {
    let mut from = 0;
    while let Some(at) = text[from..].find(':').map(|at| from + at) {
        let (line, rest) = digits(&text[at + 1..]);
        let second = rest.strip_prefix(':').map(digits).filter(|(digits, _)| !digits.is_empty());
        if let (Ok(line), Some((column, after))) = (line.parse(), second) {
            let start = text[..at]
                .rfind(|c: char| c.is_whitespace() || "\"'`()[]<>=,\u{1b}".contains(c))
                .map_or(0, |start| start + text[start..].chars().next().map_or(1, char::len_utf8));
            // A colour may stand right before the path.
            let start = match text[..start].ends_with("\u{1b}[") {
                true => text[start..at]
                    .find(|c: char| c.is_ascii_alphabetic())
                    .map_or(start, |end| start + end + 1),
                false => start,
            };
            let path = &text[start..at];
            if !path.is_empty() {
                return Some((&text[..start], path, line, column.parse().unwrap_or(1), after));
            }
        }
        from = at + 1;
    }
    None
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// A line without its colours.
fn plain(line: &str) -> String {
    let mut plain = String::new();
    let mut escaped = false;
    for c in line.chars() {
        match c {
            '\u{1b}' => escaped = true,
            _ if escaped => escaped = !c.is_ascii_alphabetic(),
            c => plain.push(c),
        }
    }
    plain
}

/// The number in the margin of a line such as `12 | code` or `12 + code`.
fn margin_number(plain: &str) -> Option<usize> {
    let (number, rest) = digits(plain);
    let sign = rest.trim_start_matches(' ');
    let known = ["|", "+", "-", "~"].iter().any(|mark| sign.starts_with(mark));
    if known && sign.len() < rest.len() { number.parse().ok() } else { None }
}

/// Puts another number into the margin.
fn renumbered(line: &str, number: usize, moved: usize, width: usize) -> String {
    let number = number.to_string();
    let Some(at) = line.find(&number) else { return line.to_string() };
    let (before, after) = (&line[..at], &line[at + number.len()..]);
    // The blanks between the number and the bar, which may stand behind a colour.
    let moved = format!("{moved:<width$}");
    let mut rest = String::new();
    let mut blanks = 0;
    let mut chars = after.char_indices().peekable();
    while let Some((index, c)) = chars.next() {
        match c {
            ' ' => blanks += 1,
            '\u{1b}' => {
                rest.push(c);
                for (_, c) in chars.by_ref() {
                    rest.push(c);
                    if c.is_ascii_alphabetic() {
                        break;
                    }
                }
            }
            _ => {
                let gap = if blanks > 0 { " " } else { "" };
                return format!("{before}{moved}{rest}{gap}{}", &after[index..]);
            }
        }
    }
    line.to_string()
}

/// Widens or narrows the empty margin of a line by the difference of the widths.
fn realigned(line: &str, old: usize, new: usize) -> String {
    let plain = plain(line);
    let blanks = plain.len() - plain.trim_start_matches(' ').len();
    if old == 0 || old == new || blanks < old || plain.trim().is_empty() {
        return line.to_string();
    }
    if new > old {
        return format!("{}{line}", " ".repeat(new - old));
    }
    // Fewer digits in the chapter: blanks may stand behind a colour.
    let mut surplus = old - new;
    let mut escaped = false;
    line.chars()
        .filter(|&c| {
            match c {
                '\u{1b}' => escaped = true,
                _ if escaped => escaped = !c.is_ascii_alphabetic(),
                ' ' if surplus > 0 => {
                    surplus -= 1;
                    return false;
                }
                _ => surplus = 0,
            }
            true
        })
        .collect()
}
