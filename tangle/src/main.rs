//! `cargo tangle`: see the chapter *Literate programming*.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tangle::{Book, Error, Result, commands, format};

/// Keeps the book and the program together. Without a command: writes the program from the book.
#[derive(Parser)]
#[command(name = "cargo tangle", version)]
struct Arguments {
    /// The repository (default: the nearest folder above that holds a book)
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Report what is wrong, and write nothing
    Check {
        /// Print the graph of src/ first: its rooms, then its modules
        #[arg(long)]
        graph: bool,
        /// Print what only new prose can correct, counted by part and chapter, instead of the
        /// findings: the exit code is 0
        #[arg(long)]
        prose: bool,
        /// Print the length of each part, in words and in lines of code, instead of the findings
        #[arg(long)]
        lengths: bool,
    },
    /// Bring edits made in src/ or kernels/ back into the chapters
    Stitch,
    /// Format the Rust files, and the chapters with them
    Fmt {
        /// Only these files
        files: Vec<String>,
    },
    /// Say where a line of the program is in the book, or the other way round
    Locate {
        /// src/x.rs:120 or book/src/x.md:88
        place: String,
    },
    /// Run a cargo command with its diagnostics at the chapters' lines
    #[command(disable_help_flag = true)]
    Cargo {
        /// What cargo gets
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<String>,
    },
    /// Tangle whenever a chapter is saved
    Watch,
    /// Render the book
    #[cfg(feature = "book")]
    Book(tangle::book::Options),
    /// Render the book: `cargo book`, which is built with what that takes
    #[cfg(not(feature = "book"))]
    #[command(hide = true)]
    Book {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
}

fn main() -> ExitCode {
    run(Arguments::parse()).unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(2)
    })
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let here =
        || std::env::current_dir().map_err(|source| Error::Read { path: ".".into(), source });
    let root = match arguments.root {
        Some(root) => root,
        None => Book::find(&here()?)?,
    };
    match arguments.command {
        None => commands::tangle(&root),
        Some(Command::Check { graph, prose, lengths }) => {
            commands::check(&root, graph, prose, lengths)
        }
        Some(Command::Stitch) => commands::stitch(&root),
        Some(Command::Fmt { files }) => format::format(&root, &files),
        Some(Command::Locate { place }) => commands::locate(&root, &place),
        Some(Command::Cargo { arguments }) => commands::cargo(&root, &arguments),
        Some(Command::Watch) => commands::watch(&root),
        #[cfg(feature = "book")]
        Some(Command::Book(options)) => Ok(tangle::book::run(&root, &options)),
        #[cfg(not(feature = "book"))]
        Some(Command::Book { options }) => {
            let options = options.join(" ");
            Err(Error::Usage(format!("the book is rendered by: cargo book {options}")))
        }
    }
}
