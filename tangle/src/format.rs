//! `cargo tangle fmt`: rustfmt for the program, and so for the book.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::commands::{refuse, tangle, write_chapters};
use crate::diagnostics;
use crate::error::{Error, Result};
use crate::expand::{self, Tangled};
use crate::memory::{Memory, State};
use crate::stitch;
use crate::text::setting;
use crate::tree::{self, Occupant};
use crate::volume::Book;

/// `cargo tangle fmt`: formats the Rust files, and the chapters with them. Without `only`, all.
pub fn format(root: &Path, only: &[String]) -> Result<ExitCode> {
    let book = Book::load(root)?;
    let tangled = expand::tangle(&book);
    let edited = edited_by_hand(&book, &tangled)?;
    for path in &edited {
        tell!("{path} has been edited: run cargo tangle stitch first");
    }
    if !edited.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    let tangled_first = tangle(root)?;
    let edition = edition(&book);
    let mut formatted = BTreeMap::new();
    let mut failed = false;
    for (path, file) in tangled.files.iter().filter(|(path, _)| path.ends_with(".rs")) {
        if !only.is_empty() && !only.iter().any(|wanted| wanted.trim_start_matches("./") == path) {
            continue;
        }
        match rustfmt(&book, &edition, &file.content())? {
            Ok(text) => {
                formatted.insert(path.clone(), text);
            }
            Err(message) => {
                failed = true;
                tell!("rustfmt cannot read {path}:");
                let map = diagnostics::Map::new(&book, &tangled);
                tell!("{}", map.rendered(&message.replace("<stdin>", path)).trim_end());
            }
        }
    }
    let stitched = match stitch::stitch(&book, &tangled, &formatted) {
        Ok(stitched) => stitched,
        Err(refusals) => return Ok(refuse(&refusals)),
    };
    for path in &stitched.edited {
        if let Some(content) = formatted.get(path) {
            tree::write(&root.join(path), content)?;
            say!("formatted {path}");
        }
    }
    write_chapters(&book, &stitched, &formatted)?;
    Ok(if failed { ExitCode::FAILURE } else { tangled_first })
}

/// Files that are known to have been edited since they were tangled.
fn edited_by_hand(book: &Book, tangled: &Tangled) -> Result<Vec<String>> {
    let memory = Memory::load(&book.root);
    let mut edited = Vec::new();
    for (path, file) in &tangled.files {
        let pristine = file.content();
        if let Occupant::File(disc) = tree::occupant(&book.root, path)?
            && disc != pristine.as_bytes()
            && memory.knows(path)
            && memory.state(path, &disc, &pristine) != State::Outdated
        {
            edited.push(path.clone());
        }
    }
    Ok(edited)
}

/// The edition that `Cargo.toml` names.
fn edition(book: &Book) -> String {
    let manifest = std::fs::read_to_string(book.root.join("Cargo.toml")).unwrap_or_default();
    setting(&manifest, "edition").unwrap_or("2024").to_string()
}

/// The formatted text, or what rustfmt says against it.
fn rustfmt(book: &Book, edition: &str, text: &str) -> Result<std::result::Result<String, String>> {
    let mut command = Command::new("rustfmt");
    command.args(["--edition", edition, "--emit", "stdout", "--color", "never"]);
    // rustfmt looks for its settings where it is started.
    command.current_dir(&book.root);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(Error::run("rustfmt"))?;
    let writer = child.stdin.take().map(|mut input| {
        let text = text.to_string();
        std::thread::spawn(move || input.write_all(text.as_bytes()))
    });
    let output = child.wait_with_output().map_err(Error::run("rustfmt"))?;
    if let Some(writer) = writer {
        let _ = writer.join();
    }
    if output.status.success() {
        Ok(Ok(String::from_utf8_lossy(&output.stdout).into_owned()))
    } else {
        Ok(Err(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}
