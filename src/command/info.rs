// Tangled from book/src/commands.md: edit there, or here and run cargo tangle stitch.
//! The command `info`: what this machine offers, and what a system asks for.

use super::examples::{self, examples};
use super::summary;
use crate::device::cuda::probe::probe;
use crate::error::Error;
use crate::model::system::System;
use clap::Args;
use std::path::PathBuf;

// Arguments of info
#[derive(Debug, Args)]
#[command(after_help = examples(examples::INFO))]
pub struct InfoArgs {
    /// System file to describe.
    pub system: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// Tell what there is
/// Tells about the machine, and about a system if there is one.
pub fn info(args: &InfoArgs) -> Result<String, Error> {
    let system = match &args.system {
        Some(path) => Some((path, System::from_file(path)?)),
        None => None,
    };
    let cuda = probe();
    if args.json {
        let mut told = summary::machine_json(&cuda);
        if let Some((path, system)) = &system {
            told["system"] = summary::system_json(path, system);
        }
        return Ok(format!("{told}\n"));
    }
    let mut lines = summary::machine_lines(&cuda);
    if let Some((path, system)) = &system {
        lines.extend(summary::system_lines(path, system));
    }
    Ok(summary::align(&lines))
}
