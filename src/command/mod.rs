// Tangled from book/src/commands.md: edit there, or here and run cargo tangle stitch.
//! Commands: `covariance`, `estimate`, `reconstruct`, `psf`, `learn`, `import`, `simulate`, `stem`, `view`, `info`, `keys`, `new`, `bench`.

// Modules of the commands
mod value_parsers;
mod examples;
pub(crate) mod planned_run;
pub(crate) mod progress;
mod ranks;
mod summary;
mod watch;

mod estimate;
mod apply_reconstructor;

mod bench;
mod covariance;
mod import;
mod info;
pub(crate) mod keys;
pub(crate) mod learned_file;
mod learn;
pub(crate) mod psf;
mod reconstruct;
mod simulate;
mod prismatic;
mod stem;
mod sample_info;
mod telemetry;
mod templates;
mod view;
mod view_server;
mod with_system;

// Imports of the commands
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
use self::view::ViewArgs;
use self::watch::complain;
use self::with_system::of_file;
use crate::device::rank_group::end_if_abandoned;
use crate::device::start_threads;
use crate::error::{Error, escaped_lines};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::io::{self, Write};
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
    // Further commands of the program
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
    /// Write a page of HTML that shows the arrays of files in a browser, without a network.
    View(ViewArgs),
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
// Run the command of this process
/// Runs the command that the arguments of the process ask for.
pub fn run() -> ExitCode {
    ExitCode::from(run_with(std::env::args_os().collect()))
}

/// Runs the command that arguments ask for, the first of which is the name of the program; returns the exit code.
pub fn run_with(arguments: Vec<OsString>) -> u8 {
    let command = match parse(&arguments) {
        Ok(parsed) => parsed.command,
        Err(code) => return code,
    };
    summary::remember_arguments(arguments);
    watch::catch_signals();
    let said = start_threads(true).and_then(|()| match command {
        // Run one of the commands
        Command::Covariance(args) => {
            of_file(&args.system, |read| covariance::covariance(&args, read).map(Outcome::from))
        }
        Command::Estimate(args) => of_file(&args.system, |read| match &args.reconstructor {
            Some(matrix) => apply_reconstructor::apply_reconstructor(&args, matrix, read),
            None => estimate::estimate(&args, read),
        }),
        Command::Reconstruct(args) => {
            of_file(&args.system, |read| reconstruct::reconstruct(&args, read).map(Outcome::from))
        }
        Command::Psf(args) => {
            of_file(&args.system, |read| psf::psf(&args, read).map(Outcome::from))
        }
        Command::Import(args) => import::import(&args),
        Command::Learn(args) => of_file(&args.system, |read| learn::learn(&args, read)),
        Command::Simulate(args) => {
            of_file(&args.system, |read| simulate::simulate(&args, read).map(Outcome::from))
        }
        Command::Stem(args) => stem::stem(&args).map(Outcome::from),
        Command::View(args) if args.serve => view_server::serve(&args),
        Command::View(args) => view::view(&args),
        Command::Info(args) => info::info(&args),
        Command::Keys(args) => keys::keys(&args).map(Outcome::from),
        Command::New(args) => templates::new(&args).map(Outcome::from),
        Command::Bench(command) => bench::bench(&command).map(Outcome::from),
    });
    said.map_or_else(fail, |said| say(&said))
}

// End a command with an error
/// Prints an error, unless it is an interrupt; returns its exit code.
fn fail(error: Error) -> u8 {
    if !matches!(error, Error::Cancelled) {
        complain("error", &error);
    }
    end_if_abandoned(error.exit_code());
    error.exit_code()
}

// Parse the arguments of the process
/// The parsed arguments; where they are wrong, or ask for help, prints that and returns the exit code.
fn parse(arguments: &[OsString]) -> Result<Cli, u8> {
    Cli::try_parse_from(arguments).map_err(|error| {
        let plain = error.to_string();
        let printable = escaped_lines(&plain).to_string();
        // Colours are kept where nothing has to be escaped; the exit code remains where nothing can be printed.
        let _ = match printable == plain {
            true => error.print(),
            false => io::stderr().write_all(printable.as_bytes()),
        };
        u8::try_from(error.exit_code()).unwrap_or(2)
    })
}

// Print what the command has to say
fn say(said: &Outcome) -> u8 {
    let written = io::stdout().write_all(escaped_lines(&said.text).to_string().as_bytes());
    said.warnings.iter().for_each(|warning| complain("warning", warning));
    match (written, &said.shortfall) {
        (Err(error), _) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain("error", &format_args!("cannot write the summary: {error}"));
            1
        }
        (_, Some(shortfall)) => {
            complain("error", shortfall);
            1
        }
        _ => 0,
    }
}
