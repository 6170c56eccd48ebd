// Tangled from book/src/commands.md: edit there, or here and run cargo tangle stitch.
//! The commands: `covariance`, `estimate`, `simulate`, `info`, `bench`.

mod choice;
mod summary;
mod watch;

mod estimate;

mod bench;
mod covariance;
mod info;
mod simulate;

// What the commands stand on
use self::bench::BenchCommand;
use self::covariance::CovarianceArgs;
use self::estimate::EstimateArgs;
use self::info::InfoArgs;
use self::simulate::SimulateArgs;
use crate::device::start_threads;
use crate::error::Error;
use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;

// Commands and their arguments
/// Covariance of slopes and wavefronts under turbulence, exact and fast, and the estimates that follow from it.
#[derive(Debug, Parser)]
#[command(name = "lenslet", version)]
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
    /// Simulate the slopes that a system's sensors would measure, and the true wavefronts.
    Simulate(SimulateArgs),
    /// Say what this machine offers, and what a system asks for.
    Info(InfoArgs),
    /// Measure run times: of products with compressed and dense matrices, unless something else is named.
    Bench(BenchCommand),
}

// Run the command
/// Runs the command that the arguments of the process ask for.
pub fn run() -> ExitCode {
    let command = Cli::parse().command;
    watch::catch_signals();
    let told = start_threads(true).and_then(|()| match command {
        Command::Covariance(args) => covariance::covariance(&args),
        Command::Estimate(args) => estimate::estimate(&args),
        Command::Simulate(args) => simulate::simulate(&args),
        Command::Info(args) => info::info(&args),
        Command::Bench(command) => bench::bench(&command),
    });
    match told {
        // Print what the command has to say
        Ok(text) => match io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                complain(&format_args!("cannot write the summary: {error}"));
                ExitCode::FAILURE
            }
            _ => ExitCode::SUCCESS,
        },
        Err(error) => {
            if !matches!(error, Error::Cancelled) {
                complain(&error);
            }
            ExitCode::from(error.exit_code())
        }
    }
}

// Complain on the standard error
/// Says on the standard error what is wrong; where even that cannot be written, the exit code has to do.
fn complain(what: &dyn std::fmt::Display) {
    let _ = writeln!(io::stderr(), "error: {what}");
}
