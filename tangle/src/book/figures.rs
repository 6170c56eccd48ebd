//! Figures: drawn by programs of a crate of their own, `book/examples/<chapter>.rs`, before the book is rendered.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::SystemTime;

use super::error::BookError;
use super::progress::Progress;
use crate::chapter::Chapter;
use crate::error::Error;
use crate::finding::Finding;
use crate::volume::Book;

/// Where the figures are, relative to the repository.
pub const FOLDER: &str = "book/src/figures";
/// How many examples run at a time.
const AT_A_TIME: usize = 2;

/// Compiles the examples and runs those whose figures are older than their binary, and reports each. Returns how many
/// were run.
///
/// # Errors
///
/// [`BookError::Examples`] if they do not compile, [`BookError::Example`] with the message of one
/// that fails, and those of the file system.
pub fn draw(root: &Path, progress: &Progress) -> Result<usize, BookError> {
    let sources = root.join("book/examples");
    if !sources.join("Cargo.toml").is_file() {
        return Ok(0);
    }
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder).map_err(Error::write(&folder))?;
    progress.step("compiling the programs that draw the figures");
    let programs = compile(root, &sources)?;
    let all = programs.len();
    let stale: VecDeque<(String, PathBuf)> =
        programs.into_iter().filter(|(_, program)| !is_fresh(program, &folder)).collect();
    let count = stale.len();
    progress.step(&format!(
        "running {count} of {all} of them; the others have drawn their figures before"
    ));
    let (queue, started) = (Mutex::new(stale), AtomicUsize::new(0));
    let next = || queue.lock().ok().and_then(|mut queue| queue.pop_front());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_A_TIME.min(count))
            .map(|_| {
                scope.spawn(|| {
                    while let Some((name, program)) = next() {
                        let number = 1 + started.fetch_add(1, Ordering::Relaxed);
                        progress.step(&format!("figures {number} of {count}: {name}"));
                        run(root, &name, &program, &folder)?;
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| match worker.join() {
            Ok(outcome) => outcome,
            Err(_) => Err(BookError::Examples),
        })
    })?;
    Ok(count)
}

/// Writes the pictures of notebooks, and the notebooks themselves, to the figures.
///
/// # Errors
///
/// Those of the file system.
pub fn attach(root: &Path, book: &Book) -> Result<(), BookError> {
    let folder = root.join(FOLDER);
    for notebook in book.chapters.iter().filter_map(|chapter| chapter.notebook.as_ref()) {
        fs::create_dir_all(&folder).map_err(Error::write(&folder))?;
        for file in &notebook.attachments {
            let path = folder.join(&file.name);
            if fs::read(&path).is_ok_and(|old| old == file.content) {
                continue;
            }
            fs::write(&path, &file.content).map_err(Error::write(&path))?;
        }
    }
    Ok(())
}

/// Figures that a chapter names and that are not there, and those that lie on another host.
pub fn missing(book: &Book) -> Vec<Finding> {
    let mut findings = Vec::new();
    for chapter in &book.chapters {
        for link in chapter.links.iter().filter(|link| link.image) {
            let what = if link.target.contains("://") {
                format!("{} lies elsewhere: the book is to be read without a network", link.target)
            } else if place(book, chapter, &link.target).is_file() {
                continue;
            } else {
                format!("no figure {}: an example in book/examples should draw it", link.target)
            };
            findings.push(Finding::error(&chapter.path, link.position, what));
        }
    }
    findings
}

fn place(book: &Book, chapter: &Chapter, target: &str) -> PathBuf {
    let file = book.root.join("book/src").join(&chapter.file);
    file.parent().map_or_else(PathBuf::new, Path::to_path_buf).join(target)
}

/// Compiles the examples in the dev profile, whose libraries `cargo test` has compiled too, and
/// returns the programs of those in `sources` by name.
fn compile(root: &Path, sources: &Path) -> Result<BTreeMap<String, PathBuf>, BookError> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string());
    let output = Command::new(&cargo)
        .args(["build", "--bins", "--message-format=json-render-diagnostics"])
        .arg("--manifest-path")
        .arg(sources.join("Cargo.toml"))
        .current_dir(root)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(Error::run(&cargo))?;
    if !output.status.success() {
        return Err(BookError::Examples);
    }
    let sources = sources.canonicalize().map_err(Error::read(sources))?;
    let mut programs = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let target = &message["target"];
        let Some(source) = target["src_path"].as_str() else { continue };
        let here = Path::new(source).canonicalize().is_ok_and(|path| path.starts_with(&sources));
        if let (true, Some(name), Some(program)) =
            (here, target["name"].as_str(), message["executable"].as_str())
        {
            programs.insert(name.to_string(), PathBuf::from(program));
        }
    }
    Ok(programs)
}

/// The list of figures that a program has drawn, kept beside it.
fn record(program: &Path) -> PathBuf {
    program.with_extension("figures")
}

/// Whether a program has drawn its figures since it was compiled, and all of them are still there.
fn is_fresh(program: &Path, folder: &Path) -> bool {
    let time = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    let Some(compiled) = time(program) else { return false };
    let Ok(names) = fs::read_to_string(record(program)) else { return false };
    names.lines().all(|name| time(&folder.join(name)).is_some_and(|drawn| drawn >= compiled))
}

/// Runs an example from the repository, lets it draw in a folder of its own, and copies what it drew
/// to the figures; what it prints becomes `<name>.txt` among them.
fn run(root: &Path, name: &str, program: &Path, folder: &Path) -> Result<(), BookError> {
    let own = program.with_extension("drawing");
    if own.exists() {
        fs::remove_dir_all(&own).map_err(Error::write(&own))?;
    }
    fs::create_dir_all(&own).map_err(Error::write(&own))?;
    let output = Command::new(program)
        .arg(&own)
        .current_dir(root)
        .stdin(Stdio::null())
        .output()
        .map_err(Error::run(&program.to_string_lossy()))?;
    if !output.status.success() {
        return Err(BookError::Example {
            name: name.to_string(),
            status: output.status.to_string(),
            message: String::from_utf8_lossy(&output.stderr).trim_end().to_string(),
        });
    }
    if !output.stdout.is_empty() {
        let printed = own.join(format!("{name}.txt"));
        fs::write(&printed, &output.stdout).map_err(Error::write(&printed))?;
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(&own).map_err(Error::read(&own))? {
        let entry = entry.map_err(Error::read(&own))?;
        let Ok(file) = entry.file_name().into_string() else { continue };
        let (from, to) = (entry.path(), folder.join(&file));
        fs::copy(&from, &to).map_err(Error::write(&to))?;
        names.push(file);
    }
    names.sort();
    let record = record(program);
    fs::write(&record, names.join("\n")).map_err(Error::write(&record))?;
    fs::remove_dir_all(&own).map_err(Error::write(&own))?;
    Ok(())
}
