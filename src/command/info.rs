// Tangled from book/src/bench-command.md: edit there, or here and run cargo tangle stitch.
//! The command `info`: what this machine offers, and what a system or a sample asks for.

use super::examples::{self, examples};
use super::{
    sample_info::{SampleInfo, is_sample},
    summary::{self, Outcome},
    with_system::of_system,
};
use crate::device::cuda::probe::probe;
use crate::electrons::sample_file::SampleFile;
use crate::error::Error;
use crate::files::spanned_toml::{Document, read_text};
use crate::model::system::System;
use clap::Args;
use serde_json::Value;
use std::path::{Path, PathBuf};

// Arguments of info
#[derive(Debug, Args)]
#[command(after_help = examples(examples::INFO))]
pub struct InfoArgs {
    /// System file or sample file to describe.
    pub file: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// Tell what there is
/// Describes the machine, and a system or a sample if there is one; returns what to print.
pub fn info(args: &InfoArgs) -> Result<Outcome, Error> {
    let Some(path) = &args.file else { return Ok(report(args, None)) };
    let text = read_text(path, 16 << 20, "a system file")?;
    let document = Document::parse(&path.display().to_string(), &text)?;
    if is_sample(&document) {
        let sample = SampleInfo::new(SampleFile::from_document(document)?)?;
        return Ok(report(args, Some(DescribedFile::Sample(Box::new(sample)))));
    }
    of_system(Ok(document.into()), |read| {
        let (system, _) = read?;
        Ok(report(args, Some(DescribedFile::System(path, Box::new(system)))))
    })
}

// Print a description of the machine
fn report(args: &InfoArgs, described: Option<DescribedFile>) -> Outcome {
    let cuda = probe();
    if args.json {
        let mut report = summary::machine_json(&cuda);
        if let Some((kind, json)) = described.as_ref().map(DescribedFile::json) {
            report[kind] = json;
        }
        return format!("{report}\n").into();
    }
    let mut lines = summary::machine_lines(&cuda);
    lines.extend(described.iter().flat_map(DescribedFile::lines));
    summary::align(&lines).into()
}

// Describe the file of info
/// A file that is described.
enum DescribedFile<'a> {
    System(&'a Path, Box<System>),
    Sample(Box<SampleInfo>),
}

impl DescribedFile<'_> {
    fn lines(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::System(path, system) => summary::system_lines(path, system),
            Self::Sample(sample) => sample.lines(),
        }
    }

    fn json(&self) -> (&'static str, Value) {
        match self {
            Self::System(path, system) => ("system", summary::system_json(path, system)),
            Self::Sample(sample) => ("sample", sample.json()),
        }
    }
}
