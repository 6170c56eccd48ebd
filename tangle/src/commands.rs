//! The commands, each as a function that prints and gives an exit code.
//!
//! Exit codes: 0 for done, 1 where the book or the program has faults, 2 for what could not be
//! done at all (an [`Error`](crate::Error): a file that cannot be read or written, a program that
//! cannot be started, a place that does not exist).

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use crate::diagnostics;
use crate::error::Result;
use crate::expand::{self, Tangled};
use crate::finding::Finding;
use crate::locate::{self, Place};
use crate::memory::{Memory, State};
use crate::stitch::{self, Refusal, Stitched};
use crate::tree::{self, Occupant, Plan};
use crate::volume::Book;
use crate::watch::Watch;

/// `cargo tangle`: writes the program. What is sound is written, what is not is reported.
pub fn tangle(root: &Path) -> Result<ExitCode> {
    let book = Book::load(root)?;
    let tangled = expand::tangle(&book);
    let plan = tree::plan(&book, &tangled)?;
    write_files(&book, &tangled, &plan)?;
    let findings: Vec<&Finding> =
        book.findings.iter().chain(&tangled.findings).chain(&plan.findings).collect();
    for finding in &findings {
        tell!("{finding}");
    }
    for path in &tangled.broken {
        tell!("{path} is left as it is: its chunks are broken");
    }
    Ok(code(!findings.iter().any(|finding| finding.is_error())))
}

fn code(success: bool) -> ExitCode {
    if success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Carries out a plan. A file that was edited by hand is copied before it is overwritten.
fn write_files(book: &Book, tangled: &Tangled, plan: &Plan) -> Result<()> {
    let mut memory = Memory::load(&book.root);
    for (path, content) in &plan.write {
        if let Occupant::File(old) = tree::occupant(&book.root, path)?
            && memory.state(path, &old, content) != State::Outdated
        {
            let copy = Memory::keep(&book.root, path, &old)?;
            tell!("{path} was not as it had been tangled: the old one is kept as {copy}");
        }
    }
    tree::apply(&book.root, plan)?;
    for (path, _) in &plan.write {
        say!("wrote {path}");
    }
    for path in &plan.remove {
        say!("removed {path}: no chapter roots it any more");
    }
    for (path, file) in tangled.files.iter().filter(|(path, _)| !plan.refused.contains(*path)) {
        memory.note(path, &file.content());
    }
    memory.save(&book.root);
    Ok(())
}

/// `cargo tangle check`: reports what is wrong and writes nothing. With `graph` the graph of modules
/// is printed first; with `lengths` the length of each part, or with `prose` the counts of what only
/// new prose can correct, are printed instead of the findings, and fail nothing.
pub fn check(root: &Path, graph: bool, prose: bool, lengths: bool) -> Result<ExitCode> {
    let book = Book::load(root)?;
    if graph {
        say!("{}", crate::check::graph(&book, &expand::tangle(&book)).trim_end());
    }
    if lengths {
        say!("{}", crate::check::lengths(&book).trim_end());
    }
    if prose {
        let report = crate::check::prose_report(&book);
        if !report.is_empty() {
            say!("{}", report.trim_end());
        }
    }
    if prose || lengths {
        return Ok(ExitCode::SUCCESS);
    }
    let findings = crate::check::check(&book)?;
    for finding in &findings {
        say!("{finding}");
    }
    let errors = findings.iter().filter(|finding| finding.is_error()).count();
    let formulas: usize = book.chapters.iter().map(|chapter| chapter.math.len()).sum();
    let judge = if cfg!(feature = "book") { "set by KaTeX" } else { "parsed" };
    tell!(
        "{} chapters, {} chunks, {formulas} formulas {judge}: {}, {}",
        book.chapters.len(),
        book.blocks().filter(|&id| book.block(id).1.is_chunk()).count(),
        count(errors, "finding"),
        count(findings.len() - errors, "warning"),
    );
    Ok(code(errors == 0))
}

fn count(number: usize, what: &str) -> String {
    match number {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

/// `cargo tangle stitch`: brings edits of tangled files back into the chapters.
pub fn stitch(root: &Path) -> Result<ExitCode> {
    let book = Book::load(root)?;
    let tangled = expand::tangle(&book);
    let (edited, refusals) = edits(&book, &tangled)?;
    if !refusals.is_empty() {
        return Ok(refuse(&refusals));
    }
    match stitch::stitch(&book, &tangled, &edited) {
        Err(refusals) => Ok(refuse(&refusals)),
        Ok(stitched) => {
            write_chapters(&book, &stitched, &edited)?;
            if stitched.edited.is_empty() {
                say!("nothing to stitch");
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

pub(crate) fn refuse(refusals: &[Refusal]) -> ExitCode {
    for refusal in refusals {
        tell!("{refusal}");
    }
    tell!("{}: nothing was written", count(refusals.len(), "edit") + " refused");
    ExitCode::FAILURE
}

/// The files that have been edited since they were tangled, and those that cannot be read as such.
fn edits(book: &Book, tangled: &Tangled) -> Result<(BTreeMap<String, String>, Vec<Refusal>)> {
    let memory = Memory::load(&book.root);
    let mut edited = BTreeMap::new();
    let mut refusals = Vec::new();
    for (path, file) in &tangled.files {
        let mut refuse = |reason: &str| {
            refusals.push(Refusal { path: path.clone(), line: 1, reason: reason.to_string() });
        };
        let disc = match tree::occupant(&book.root, path)? {
            Occupant::File(disc) => disc,
            Occupant::Nothing => {
                refuse("the file does not exist: run cargo tangle");
                continue;
            }
            _ => {
                refuse("a link or a folder stands in its place");
                continue;
            }
        };
        let pristine = file.content();
        if disc == pristine.as_bytes() {
            continue;
        }
        match memory.state(path, &disc, &pristine) {
            State::Outdated => tell!("{path} is older than its chapter: run cargo tangle"),
            State::Both => refuse(
                "file and chapter have both changed since the last tangling (if only the file has, \
                 delete target/tangle)",
            ),
            State::Edited => match String::from_utf8(disc) {
                Ok(content) => {
                    edited.insert(path.clone(), content);
                }
                Err(_) => refuse("the file is not UTF-8"),
            },
        }
    }
    Ok((edited, refusals))
}

/// Writes stitched chapters; the files are as the new chapters tangle.
pub(crate) fn write_chapters(
    book: &Book,
    stitched: &Stitched,
    files: &BTreeMap<String, String>,
) -> Result<()> {
    for (path, text) in &stitched.chapters {
        tree::write(&book.root.join(path), text)?;
        say!("stitched {path}");
    }
    let mut memory = Memory::load(&book.root);
    for path in &stitched.edited {
        if let Some(content) = files.get(path) {
            memory.note(path, content);
        }
    }
    memory.save(&book.root);
    Ok(())
}

/// `cargo tangle locate`: where a line of the program is in the book, or the other way round.
pub fn locate(root: &Path, place: &str) -> Result<ExitCode> {
    let book = Book::load(root)?;
    let tangled = expand::tangle(&book);
    for line in locate::locate(&book, &tangled, &Place::parse(&relative(root, place))?)? {
        say!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

/// A place below the present folder, as seen from the repository.
fn relative(root: &Path, place: &str) -> String {
    let path = Path::new(place);
    let seen = |path: &Path| {
        path.strip_prefix(root).ok().and_then(Path::to_str).map(|path| path.to_string())
    };
    if path.is_absolute() {
        return seen(path).unwrap_or_else(|| place.to_string());
    }
    let file = place.split(':').next().unwrap_or(place);
    if root.join(file).exists() {
        return place.to_string();
    }
    std::env::current_dir()
        .ok()
        .and_then(|here| seen(&here.join(path)))
        .unwrap_or_else(|| place.to_string())
}

/// `cargo tangle cargo …`: a cargo command whose diagnostics name the chapters.
pub fn cargo(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    let book = Book::load(root)?;
    let tangled = expand::tangle(&book);
    refresh(&book, &tangled)?;
    let status = diagnostics::cargo(&book, &tangled, arguments)?;
    Ok(match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) => ExitCode::from(code),
        None => ExitCode::FAILURE,
    })
}

/// Tangles the files without edits, so that the compiler sees the chapters as they are.
fn refresh(book: &Book, tangled: &Tangled) -> Result<()> {
    let mut memory = Memory::load(&book.root);
    let mut plan = tree::plan(book, tangled)?;
    plan.remove.clear();
    let mut safe = Vec::new();
    for (path, content) in plan.write {
        match tree::occupant(&book.root, &path)? {
            Occupant::File(old) if memory.state(&path, &old, &content) != State::Outdated => {
                tell!("{path} has been edited: it is compiled as it is");
            }
            _ => safe.push((path, content)),
        }
    }
    plan.write = safe;
    tree::apply(&book.root, &plan)?;
    for (path, content) in &plan.write {
        memory.note(path, content);
    }
    memory.save(&book.root);
    Ok(())
}

/// `cargo tangle watch`: tangles whenever a chapter is saved, until it is interrupted.
pub fn watch(root: &Path) -> Result<ExitCode> {
    let mut watch = Watch::new(&root.join("book/src"));
    loop {
        if let Err(error) = tangle(root) {
            tell!("error: {error}");
        }
        tell!("watching book/src");
        watch.wait();
    }
}
