//! `cargo tangle`: see the chapter *The literate house*.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tangle::{Book, Result, expand, tree};

/// Keeps the book and the program together.
#[derive(Parser)]
#[command(name = "cargo tangle", version)]
struct Arguments {
    /// The repository (default: the nearest folder above with a book in it)
    #[arg(long, global = true, value_name = "FOLDER")]
    root: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let root = match &arguments.root {
        Some(root) => root.clone(),
        None => Book::find(&std::env::current_dir().map_err(|source| tangle::Error::Read {
            path: ".".into(),
            source,
        })?)?,
    };
    let book = Book::load(&root)?;
    tangle_book(&book)
}

fn tangle_book(book: &Book) -> Result<ExitCode> {
    let tangled = expand::tangle(book);
    let plan = tree::plan(book, &tangled)?;
    tree::apply(&book.root, &plan)?;
    for (path, _) in &plan.write {
        println!("wrote {path}");
    }
    for path in &plan.remove {
        println!("removed {path}: no chapter roots it any more");
    }
    let findings: Vec<_> =
        book.findings.iter().chain(&tangled.findings).chain(&plan.findings).collect();
    for finding in &findings {
        eprintln!("{finding}");
    }
    for path in &tangled.broken {
        eprintln!("{path} is not written: its expansion is broken");
    }
    Ok(if findings.iter().any(|f| f.is_error()) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
