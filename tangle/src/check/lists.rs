//! Lists that repeat what is defined elsewhere: the parts of the book, the commands of the program and
//! the features of the crate.
//!
//! A list is a table whose first column is headed `part`, `command` or `feature`, or a line that begins
//! with `Parts:`, `Commands:` or `Features:` and gives each entry in backticks.

use std::collections::BTreeSet;
use std::fs;

use crate::expand::{File, Tangled};
use crate::finding::Finding;
use crate::text::{kebab, setting_in};
use crate::volume::Book;

const INTRODUCTION: &str = "book/src/introduction.md";
const COMMANDS: &str = "book/src/commands.md";
const README: &str = "README.md";
const COMMAND_FOLDER: &str = "src/command";

/// What is listed, under its name in the head of a table, and where it is defined.
struct Subject {
    name: &'static str,
    source: String,
    entries: Vec<String>,
}

/// A list in a text: its first line, and its entries with their lines.
struct List {
    line: usize,
    entries: Vec<(usize, String)>,
}

/// Missing and superfluous entries of all lists, and lists that are missing themselves.
pub fn check(book: &Book, tangled: &Tangled) -> Vec<Finding> {
    let manifest = fs::read_to_string(book.root.join("Cargo.toml")).unwrap_or_default();
    let program = setting_in(&manifest, "package", "name").unwrap_or_default();
    let (parts, commands, features) = (parts(book), commands(tangled), features(&manifest));
    // Where the definition cannot be read, its chunks have findings of their own.
    let unread = tangled.broken.iter().any(|path| path.starts_with(COMMAND_FOLDER));
    let mut findings = Vec::new();
    let mut compare = |path: &str, text: &str, subject: &Subject, required: bool| {
        if !(unread && subject.name == commands.name) {
            findings.extend(differences(path, text, subject, program, required));
        }
    };
    for chapter in &book.chapters {
        let (path, text) = (chapter.path.as_str(), chapter.text.as_str());
        if path == INTRODUCTION {
            compare(path, text, &parts, true);
        }
        if [INTRODUCTION, COMMANDS].contains(&path) {
            compare(path, text, &commands, true);
        }
        compare(path, text, &features, roots(book, tangled, "src/lib.rs") == Some(path));
    }
    if let Ok(text) = fs::read_to_string(book.root.join(README)) {
        compare(README, &text, &commands, true);
    }
    findings
}

/// The chapter that roots a file.
fn roots<'a>(book: &'a Book, tangled: &Tangled, path: &str) -> Option<&'a str> {
    let file = tangled.files.get(path)?;
    Some(book.chapters[file.root.chapter].path.as_str())
}

/// The parts that the table of contents gives chapters to.
fn parts(book: &Book) -> Subject {
    let mut entries: Vec<String> =
        book.chapters.iter().filter_map(|chapter| chapter.part.clone()).collect();
    entries.dedup();
    Subject { name: "part", source: "book/src/SUMMARY.md".to_string(), entries }
}

/// The variants of the enumeration `Command` in `src/command`, as clap spells them.
fn commands(tangled: &Tangled) -> Subject {
    let in_command = |file: &&File| file.path.starts_with(COMMAND_FOLDER);
    let found = tangled.files.values().filter(in_command).find_map(|file| {
        let entries = variants(&file.content(), "Command")?;
        Some((format!("enum Command in {}", file.path), entries))
    });
    let (source, entries) =
        found.unwrap_or_else(|| (format!("enum Command in {COMMAND_FOLDER}"), Vec::new()));
    Subject { name: "command", source, entries }
}

/// The names of the variants of an enumeration, in kebab case.
fn variants(source: &str, name: &str) -> Option<Vec<String>> {
    let head = format!("enum {name} {{");
    let mut lines = source.lines().skip_while(|line| !line.trim_end().ends_with(&head));
    lines.next()?;
    let (mut names, mut depth) = (Vec::new(), 0);
    for line in lines {
        let code = line.split("//").next().unwrap_or_default().trim();
        if depth == 0 && code.starts_with('}') {
            return Some(names);
        }
        let variant: String = code.chars().take_while(|c| c.is_alphanumeric()).collect();
        if depth == 0 && variant.starts_with(char::is_uppercase) {
            names.push(kebab(&variant));
        }
        let count = |brackets: &[char]| code.matches(brackets).count();
        depth = (depth + count(&['(', '{', '['])).saturating_sub(count(&[')', '}', ']']));
    }
    None
}

/// The keys of `[features]`, `default` left out: it names a set of the others.
fn features(manifest: &str) -> Subject {
    let table = manifest.lines().skip_while(|line| line.trim() != "[features]").skip(1);
    let keys = table
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| Some(line.split_once('=')?.0.trim()))
        .filter(|key| key.chars().all(|c| c.is_alphanumeric() || "-_".contains(c)));
    let entries = keys.filter(|&key| key != "default").map(str::to_string).collect();
    Subject { name: "feature", source: "[features] in Cargo.toml".to_string(), entries }
}

fn differences(
    path: &str,
    text: &str,
    subject: &Subject,
    program: &str,
    required: bool,
) -> Vec<Finding> {
    let Subject { name, source, entries } = subject;
    let lists = lists(text, name, program);
    let mut findings = Vec::new();
    if required && lists.is_empty() && !entries.is_empty() {
        let what = format!("no list of {name}s: a table whose first column is headed {name}");
        findings.push(Finding::error(path, (1, 1), what));
    }
    for list in lists {
        let mut seen = BTreeSet::new();
        for (line, entry) in &list.entries {
            let what = match (entries.contains(entry), seen.insert(entry)) {
                (false, _) => format!("{entry} is no {name} of {source}"),
                (true, false) => format!("the {name} {entry} is listed twice"),
                (true, true) => continue,
            };
            findings.push(Finding::error(path, (*line, 1), what));
        }
        for entry in entries.iter().filter(|entry| !seen.contains(entry)) {
            let what = format!("the {name} {entry} of {source} is missing in this list");
            findings.push(Finding::error(path, (list.line, 1), what));
        }
    }
    findings
}

/// The lists of a subject in a text; a table may stand in a documentation comment.
fn lists(text: &str, name: &str, program: &str) -> Vec<List> {
    let sentence = format!("{}{}s:", name[..1].to_uppercase(), &name[1..]);
    let mut lists: Vec<List> = Vec::new();
    let mut table: Option<bool> = None; // whether the table that we are in is such a list
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let line = line.strip_prefix("//!").unwrap_or(line).trim();
        if let Some(listed) = line.strip_prefix(&sentence) {
            let spans = listed.split('`').skip(1).step_by(2);
            let entries = spans.map(|span| (number, plain(span, program))).collect();
            lists.push(List { line: number, entries });
        }
        let Some(cell) = line.strip_prefix('|').and_then(|row| row.split('|').next()) else {
            table = None;
            continue;
        };
        match table {
            None => {
                table = Some(cell.trim() == name);
                if table == Some(true) {
                    lists.push(List { line: number, entries: Vec::new() });
                }
            }
            Some(true) if !cell.trim().starts_with(['-', ':']) => {
                if let Some(list) = lists.last_mut() {
                    list.entries.push((number, plain(cell, program)));
                }
            }
            Some(_) => {}
        }
    }
    lists
}

/// A cell without the markup of code or of a link, and without the name of the program.
fn plain(cell: &str, program: &str) -> String {
    let cell = cell.trim();
    let text = cell.strip_prefix('[').and_then(|link| link.split(']').next()).unwrap_or(cell);
    let text = text.trim_matches('`');
    let bare = text.strip_prefix(program).filter(|rest| rest.starts_with(' '));
    bare.unwrap_or(text).trim().to_string()
}
