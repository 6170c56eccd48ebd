// Tangled from book/src/commands.md: edit there, or here and run cargo tangle stitch.
//! The command `info`: what this machine offers, and what a system or a sample asks for.

use super::examples::{self, examples};
use super::{
    sample_info::{SampleInfo, is_sample},
    summary,
};
use crate::device::cuda::probe::probe;
use crate::electrons::sample_file::SampleFile;
use crate::error::Error;
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
pub fn info(args: &InfoArgs) -> Result<String, Error> {
    let described = args.file.as_deref().map(DescribedFile::read).transpose()?;
    let cuda = probe();
    if args.json {
        let mut report = summary::machine_json(&cuda);
        if let Some((kind, json)) = described.as_ref().map(DescribedFile::json) {
            report[kind] = json;
        }
        return Ok(format!("{report}\n"));
    }
    let mut lines = summary::machine_lines(&cuda);
    lines.extend(described.iter().flat_map(DescribedFile::lines));
    Ok(summary::align(&lines))
}

// Describe the file of info
/// A file that is described.
enum DescribedFile<'a> {
    System(&'a Path, Box<System>),
    Sample(Box<SampleInfo>),
}

impl<'a> DescribedFile<'a> {
    fn read(path: &'a Path) -> Result<Self, Error> {
        let (text, name) = (System::text(path)?, path.display().to_string());
        if is_sample(&text) {
            let sample = SampleInfo::new(SampleFile::from_toml(&text, &name)?)?;
            return Ok(Self::Sample(Box::new(sample)));
        }
        Ok(Self::System(path, Box::new(System::from_toml(&text, &name)?)))
    }

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
