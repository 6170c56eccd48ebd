// Tangled from book/src/keys-command.md: edit there, or here and run cargo tangle stitch.
//! The command `new`: commented files to start from.

// Imports of the command new
use super::examples::{self, examples};
use super::summary::{align, file_line};
use crate::error::{Error, Invalid};
use crate::files::atomic_file::AtomicFile;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

// Arguments of new
#[derive(Debug, Args)]
#[command(after_help = examples(examples::NEW))]
pub struct NewArgs {
    /// The kind of file.
    #[arg(value_enum)]
    kind: FileKind,
    /// What the file describes: scao, ltao, mcao or moao of systems, stem or hrtem of samples; scao or stem unless given.
    #[arg(long, value_enum)]
    like: Option<Template>,
    /// File (.toml) to write; without it, it is printed.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Overwrite the file if it exists.
    #[arg(long, requires = "output")]
    force: bool,
    /// Print no summary.
    #[arg(long, short, requires = "output")]
    quiet: bool,
}
/// A kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FileKind {
    /// A system of adaptive optics.
    System,
    /// A sample in an electron microscope.
    Sample,
}

/// What a template describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Template {
    /// One natural star, one mirror, a closed loop.
    Scao,
    /// Laser tomography: four laser stars and a natural one, one mirror.
    Ltao,
    /// Seven stars, two mirrors in series for a field.
    Mcao,
    /// Three stars, a mirror for each target, an open loop.
    Moao,
    /// A scan of silicon with bright-field and dark-field detectors.
    Stem,
    /// Images of silicon under a plane wave.
    Hrtem,
}

// Texts of templates
impl Template {
    /// Its text, its kind, and a command that runs it.
    fn parts(self) -> (&'static str, FileKind) {
        use FileKind::{Sample, System};
        match self {
            Self::Scao => (include_str!("../../book/systems/templates/scao.toml"), System),
            Self::Ltao => (include_str!("../../book/systems/templates/ltao.toml"), System),
            Self::Mcao => (include_str!("../../book/systems/templates/mcao.toml"), System),
            Self::Moao => (include_str!("../../book/systems/small-moao.toml"), System),
            Self::Stem => (include_str!("../../book/systems/templates/stem.toml"), Sample),
            Self::Hrtem => (include_str!("../../book/systems/templates/hrtem.toml"), Sample),
        }
    }
}

// Write a template
/// Prints or writes the template that the arguments ask for; returns what to print.
pub fn new(args: &NewArgs) -> Result<String, Error> {
    let usual = if args.kind == FileKind::System { Template::Scao } else { Template::Stem };
    let template = args.like.unwrap_or(usual);
    let (text, kind) = template.parts();
    if kind != args.kind {
        let known = Template::value_variants().iter().filter(|known| known.parts().1 == args.kind);
        let name = |template: &Template| {
            template.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
        };
        let expected =
            format!("{} for this kind of file", known.map(name).collect::<Vec<_>>().join(", "));
        return Err(Invalid::new("like", name(&template), expected).into());
    }
    let Some(output) = &args.output else { return Ok(text.to_owned()) };
    if !args.force && output.symlink_metadata().is_ok() {
        let expected = "a file that does not exist yet; --force overwrites this one";
        return Err(Invalid::new("output", output.display(), expected).into());
    }
    AtomicFile::holding(output, text.as_bytes())?.publish()?;
    // Say what to do with a template
    if args.quiet {
        return Ok(String::new());
    }
    let (command, ending) = match kind {
        FileKind::System => ("psf", "fits"),
        FileKind::Sample => ("stem", "emd"),
    };
    let result = output.with_extension(ending);
    let next = format!("lenslet {command} {} -o {}", output.display(), result.display());
    Ok(align(&[file_line("output", output, ""), ("next", next)]))
}
