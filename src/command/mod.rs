// Tangled from book/src/commands.md: edit there, or here and run cargo tangle stitch.
//! The commands: `covariance`, `estimate`, `reconstruct`, `psf`, `learn`, `import`, `simulate`, `stem`, `info`, `keys`, `new`, `bench`.

mod value_parsers;
mod examples;
mod planned_run;
mod progress;
mod ranks;
mod summary;
mod watch;

mod estimate;

mod bench;
mod covariance;
mod import;
mod info;
mod keys;
mod learn;
mod psf;
mod reconstruct;
mod simulate;
mod prismatic;
mod stem;
mod sample_info;
mod telemetry;
mod templates;

// What the commands stand on
use self::bench::BenchCommand;
use self::covariance::CovarianceArgs;
use self::estimate::EstimateArgs;
use self::examples::examples;
use self::import::ImportArgs;
use self::info::InfoArgs;
use self::keys::KeysArgs;
use self::learn::LearnArgs;
use self::psf::PsfArgs;
use self::reconstruct::ReconstructArgs;
use self::simulate::SimulateArgs;
use self::stem::StemArgs;
use self::summary::Outcome;
use self::templates::NewArgs;
use self::watch::complain;
use crate::device::start_threads;
use crate::error::{Error, escaped_lines};
use crate::files::spanned_toml::Document;
use crate::model::SYSTEM_KEYS;
use crate::model::system::{System, rates_apart, suspect_units};
use crate::psf::options::check_telescope;
use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

// Commands and their arguments
/// Simulate adaptive-optics tomography and electron microscopy, exactly and fast: covariances of turbulence, reconstructors, estimates and images
/// of telescopes; images of scanning transmission electron microscopes.
#[derive(Debug, Parser)]
#[command(name = "lenslet", version, after_help = examples(examples::LENSLET))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compute the covariances of a system: of its slopes, and with targets and a grid those of the wavefront.
    Covariance(CovarianceArgs),
    // Commands besides the covariance
    /// Estimate the wavefronts of a system's targets from measured slopes.
    Estimate(EstimateArgs),
    /// Compute the reconstructor of a system's targets, and the error that it leaves.
    Reconstruct(ReconstructArgs),
    /// Make the images of a system's targets behind its mirrors, and tell the errors that they show.
    Psf(PsfArgs),
    /// Make a system file of a parameter file of TIPTOP, and tell what became of each of its keys, or of telemetry (AOT 2.0).
    Import(ImportArgs),
    /// Learn the turbulence profile, and where sensors look, from measured slopes.
    Learn(LearnArgs),
    /// Simulate the slopes that a system's sensors would measure, and the true wavefronts.
    Simulate(SimulateArgs),
    /// Simulate the images of a scanning transmission electron microscope.
    Stem(StemArgs),
    /// Describe this machine, and a system or a sample.
    Info(InfoArgs),
    /// List all keys of system and sample files.
    Keys(KeysArgs),
    /// Write a commented system or sample file to start from.
    New(NewArgs),
    /// Measure run times: of products with compressed and dense matrices, unless something else is named.
    Bench(BenchCommand),
}

// Run the command
/// Runs the command that the arguments of the process ask for.
pub fn run() -> ExitCode {
    let command = parse().command;
    watch::catch_signals();
    let said = start_threads(true).and_then(|()| match command {
        Command::Covariance(args) => {
            of_system(Some(&args.system), || covariance::covariance(&args).map(Outcome::from))
        }
        Command::Estimate(args) => of_system(Some(&args.system), || estimate::estimate(&args)),
        Command::Reconstruct(args) => {
            of_system(Some(&args.system), || reconstruct::reconstruct(&args).map(Outcome::from))
        }
        Command::Psf(args) => of_system(Some(&args.system), || psf::psf(&args).map(Outcome::from)),
        Command::Import(args) => import::import(&args),
        Command::Learn(args) => of_system(Some(&args.system), || learn::learn(&args)),
        Command::Simulate(args) => {
            of_system(Some(&args.system), || simulate::simulate(&args).map(Outcome::from))
        }
        Command::Stem(args) => stem::stem(&args).map(Outcome::from),
        Command::Info(args) => {
            of_system(args.file.as_deref(), || info::info(&args).map(Outcome::from))
        }
        Command::Keys(args) => keys::keys(&args).map(Outcome::from),
        Command::New(args) => templates::new(&args).map(Outcome::from),
        Command::Bench(command) => bench::bench(&command).map(Outcome::from),
    });
    match said {
        Ok(said) => say(&said),
        Err(error) => {
            if !matches!(error, Error::Cancelled) {
                complain("error", &error);
            }
            ExitCode::from(error.exit_code())
        }
    }
}

// Parse the arguments of the process
/// The arguments of the process; where they are wrong, prints how and ends the process.
fn parse() -> Cli {
    Cli::try_parse().unwrap_or_else(|error| {
        let plain = error.to_string();
        let printable = escaped_lines(&plain).to_string();
        if printable == plain {
            error.exit();
        }
        let _ = io::stderr().write_all(printable.as_bytes()); // the exit code remains
        std::process::exit(error.exit_code());
    })
}

// Run a command with a system file
/// Runs a command that reads a system file. The pupil of the file is checked as for images, whatever the command computes, errors that name
/// keys of the file get its name and a line, and sensors at rates of their own and values that suggest another unit are warned of.
fn of_system(
    path: Option<&Path>,
    command: impl FnOnce() -> Result<Outcome, Error>,
) -> Result<Outcome, Error> {
    let name = path.map_or_else(String::new, |path| path.display().to_string());
    let text = path.and_then(|path| System::text(path).ok());
    let warnings = match &text {
        Some(text) if System::from_toml(text, &name).is_ok() => {
            check_telescope(text, &name)?;
            let units = suspect_units(text, &name).unwrap_or_default();
            units.into_iter().chain(rates_apart(text, &name).unwrap_or_default()).collect()
        }
        _ => Vec::new(),
    };
    let said = command().map_err(|error| located(error, &name, text.as_deref()))?;
    Ok(said.warned(warnings))
}

/// An error about a key of a system file, with the line of the file.
fn located(error: Error, name: &str, text: Option<&str>) -> Error {
    let (Error::Invalid(invalid), Some(text)) = (&error, text) else { return error };
    let key = invalid.quantity.split(['.', '[']).next().unwrap_or_default();
    if !SYSTEM_KEYS.iter().any(|table| table.name == key) {
        return error;
    }
    let found = Document::parse(name, text).and_then(|document| {
        let root = document.root(SYSTEM_KEYS)?;
        Ok(root.refuse(invalid.clone()))
    });
    let Ok(bad) = found else { return error };
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let plain = |text: &str| text.trim_matches(['"', '\'']).to_string();
    let is_of_file = bad.value.as_ref().is_none_or(|value| {
        number(value).is_some() || value.is_empty() || plain(value) == plain(&invalid.value)
    });
    // A word that is not that of the file is from an option.
    if is_of_file { bad.into() } else { error }
}

// Print what the command has to say
fn say(said: &Outcome) -> ExitCode {
    let written = io::stdout().write_all(escaped_lines(&said.text).to_string().as_bytes());
    said.warnings.iter().for_each(|warning| complain("warning", warning));
    match (written, &said.shortfall) {
        (Err(error), _) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain("error", &format_args!("cannot write the summary: {error}"));
            ExitCode::FAILURE
        }
        (_, Some(shortfall)) => {
            complain("error", shortfall);
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
