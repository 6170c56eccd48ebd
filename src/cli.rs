// Tangled from book/src/commands.md: edit there, or here and run cargo tangle stitch.
//! The commands: `covariance`, `info`, `bench`.

use crate::covariance::{Method, check_memory, slope_covariance, slope_problem};
use crate::device::{self, Device};
use crate::error::{Error, Invalid};
use crate::output::{self, Draft, covariance_arrays};
use crate::plot::{Format, Pairs, plot_covariance};
use crate::slope::SlopeProblem;
use crate::summary::{self, Summary};
use crate::system::System;
use crate::{arrays, bench};
use crate::{spectral::SpectralSampling, spectral_error::Chosen};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::io::{self, IsTerminal, Write};
use std::{path::PathBuf, process::ExitCode, time::Instant};

// Commands and their arguments
/// Exact and fast covariance of Shack–Hartmann slopes under turbulence.
#[derive(Debug, Parser)]
#[command(name = "lenslet", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compute the slope covariance of all pairs of guide stars of a system.
    Covariance(CovarianceArgs),
    /// Say what this machine offers, and what a system asks for.
    Info(InfoArgs),
    /// Measure run times.
    Bench {
        #[command(subcommand)]
        what: Bench,
    },
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Time both methods and the original algorithm for the slope covariance.
    Covariance(BenchArgs),
}

// Arguments of covariance
#[derive(Debug, Args)]
struct CovarianceArgs {
    /// System file (TOML).
    system: PathBuf,
    // Arguments about the file to write
    /// File to write: FITS if it ends in .fits, .fit or .fts, else NumPy's .npz.
    #[arg(short, long)]
    output: PathBuf,
    /// Format of the file, whatever its name ends in.
    #[arg(long, value_enum)]
    save: Option<arrays::Format>,
    /// How to compute.
    #[arg(long, value_enum, default_value = "direct")]
    method: MethodName,
    /// Samples of the spectrum along an axis; chosen by the error unless given.
    #[arg(long, requires = "oversampling")]
    samples: Option<usize>,
    /// Samples of the covariance per lenslet pitch.
    #[arg(long, requires = "samples")]
    oversampling: Option<usize>,
    /// Where to compute: cpu, cuda, or cuda:K.
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// Precision of the written numbers.
    #[arg(long, value_enum, default_value = "f64")]
    precision: arrays::Precision,
    // Arguments about what is shown
    /// Draw the covariance into this file, .svg or .png.
    #[arg(long)]
    plot: Option<PathBuf>,
    /// Pair of guide stars to draw, counted from 0: all of up to three stars, else 0,0.
    #[arg(long, value_name = "P,Q", requires = "plot", value_parser = parse_pair)]
    pair: Option<(usize, usize)>,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
    /// Print neither summary nor progress.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum MethodName {
    /// In real space, exact.
    Direct,
    /// Through the power spectrum.
    Spectral,
}

fn parse_pair(text: &str) -> Result<(usize, usize), Invalid> {
    let numbers = text.split_once(',').map(|(p, q)| (p.trim().parse(), q.trim().parse()));
    match numbers {
        Some((Ok(p), Ok(q))) => Ok((p, q)),
        _ => Err(Invalid::new("pair", text, "two guide stars counted from 0, such as 0,1")),
    }
}

// Arguments of info and bench
#[derive(Debug, Args)]
struct InfoArgs {
    /// System file to describe.
    system: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct BenchArgs {
    /// System files; the three of the book unless given.
    systems: Vec<PathBuf>,
    /// Repetitions, of which the median is taken.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// Run the command
/// Runs the command that the arguments of the process ask for.
pub fn run() -> ExitCode {
    output::remove_drafts_on_interrupt();
    let told = match Cli::parse().command {
        Command::Covariance(args) => covariance(&args),
        Command::Info(args) => info(&args),
        Command::Bench { what: Bench::Covariance(args) } => bench_covariance(&args),
    };
    match told {
        Ok(text) => match io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                complain(&format_args!("cannot write the summary: {error}"));
                ExitCode::FAILURE
            }
            _ => ExitCode::SUCCESS,
        },
        Err(error) => {
            complain(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

// Complain on the standard error
/// Says on the standard error what is wrong; where even that cannot be written, the exit code has to do.
fn complain(what: &dyn std::fmt::Display) {
    let _ = writeln!(io::stderr(), "error: {what}");
}

// Compute a covariance for a file
fn covariance(args: &CovarianceArgs) -> Result<String, Error> {
    args.device.require_cpu("the slope covariance")?;
    // Check the output and the plot
    output::check_distinct(("output", &args.output), ("system file", &args.system))?;
    drop(Draft::new(&args.output)?);
    let mut picture = None;
    if let Some(path) = &args.plot {
        picture = Some((path, Format::of(path)?));
        output::check_distinct(("plot", path), ("output", &args.output))?;
        output::check_distinct(("plot", path), ("system file", &args.system))?;
        drop(Draft::new(path)?);
    }
    let system = System::from_file(&args.system)?;
    let problem = slope_problem(&system)?;
    let pairs = args.pair.map_or(Pairs::default_for(problem.sources()), |(p, q)| Pairs::One(p, q));
    pairs.check(problem.sources())?;
    check_memory(&problem)?;
    let (method, chosen) = choose_method(args, &problem)?;

    // Compute and watch the clock
    let start = Instant::now();
    let bar = progress_bar(args.quiet);
    let covariance = slope_covariance(&problem, &method, &|done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    let seconds = start.elapsed().as_secs_f64();

    // Write the covariance and its picture
    let mut archive = Draft::new(&args.output)?;
    let format = args.save.unwrap_or(arrays::Format::of(&args.output));
    let arrays = covariance_arrays(&covariance, &system);
    archive.fill(|file| arrays.write(file, format, args.precision))?;
    let mut drawing = None;
    if let Some((path, drawn_as)) = picture {
        let bytes = plot_covariance(&covariance, problem.pitch(), pairs, drawn_as)?;
        let mut draft = Draft::new(path)?;
        draft.fill(|file| file.write_all(&bytes))?;
        drawing = Some(draft);
    }
    let bytes = archive.publish()?;
    drawing.map(Draft::publish).transpose()?;

    // Sum up what was done
    let summary = Summary {
        file: &args.system,
        output: &args.output,
        plot: args.plot.as_deref(),
        format,
        precision: args.precision,
        device: args.device,
        system: &system,
        problem: &problem,
        chosen,
        variance: covariance.variance(),
        seconds,
        bytes,
    };
    Ok(match (args.json, args.quiet) {
        (true, _) => format!("{}\n", summary.json()),
        (false, true) => String::new(),
        (false, false) => summary.lines(),
    })
}

// Choose the method
/// The method that the arguments ask for; the sampling and its error where it is the spectral one.
fn choose_method(
    args: &CovarianceArgs,
    problem: &SlopeProblem,
) -> Result<(Method, Option<Chosen>), Error> {
    let chosen = match (args.method, args.samples.zip(args.oversampling)) {
        (MethodName::Direct, None) => return Ok((Method::Direct, None)),
        (MethodName::Direct, Some((samples, _))) => {
            let expected = "no such option, except with --method spectral";
            return Err(Invalid::new("samples", samples, expected).into());
        }
        (MethodName::Spectral, None) => SpectralSampling::choose(problem),
        (MethodName::Spectral, Some((samples, oversampling))) => {
            let sampling = SpectralSampling::new(samples, oversampling)?;
            let error_estimate = sampling.error_estimate(problem);
            Chosen { sampling, error_estimate, limited: false, unit: "variance" }
        }
    };
    Ok((Method::Spectral(chosen.sampling), Some(chosen)))
}

// Show progress on a terminal
/// A bar on a terminal; nothing elsewhere.
fn progress_bar(quiet: bool) -> indicatif::ProgressBar {
    use indicatif::{ProgressBar, ProgressStyle};
    if quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}, {eta} left");
    ProgressBar::new(1).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

// Tell what there is
fn info(args: &InfoArgs) -> Result<String, Error> {
    let system = match &args.system {
        Some(path) => Some((path, System::from_file(path)?)),
        None => None,
    };
    let cuda = device::probe();
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

// Measure and print a table
fn bench_covariance(args: &BenchArgs) -> Result<String, Error> {
    use serde_json::json;
    // Gather the systems to measure
    let mut systems = Vec::new();
    for path in &args.systems {
        systems.push((path.display().to_string(), System::from_file(path)?));
    }
    if systems.is_empty() {
        for (name, text) in bench::SYSTEMS {
            systems.push((name.to_string(), System::from_toml(text, name)?));
        }
    }
    let mut rows = Vec::new();
    for (name, system) in &systems {
        rows.push((name.as_str(), bench::time_covariance(system, args.repeat)?));
    }
    let threads = device::threads();
    if !args.json {
        return Ok(bench::table(&rows, threads));
    }
    let entry = |(name, times)| json!({ "system": name, "seconds": times });
    let entries: Vec<_> = rows.into_iter().map(entry).collect();
    Ok(format!("{}\n", json!({ "threads": threads, "covariance": entries })))
}
