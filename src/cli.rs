// Tangled from book/src/commands.md: edit there, or here and run cargo tangle stitch.
//! The commands: `covariance`, `info`, `bench`.

use crate::bench;
use crate::covariance::{Method, check_memory, slope_covariance, slope_problem};
use crate::device::{self, Device, NoCuda};
use crate::error::{Error, Invalid, in_bytes};
use crate::output::{self, Archive, Draft};
use crate::plot::{Format, Pairs, plot_covariance};
use crate::slope::{SlopeCovariance, SlopeProblem};
use crate::spectral::SpectralSampling;
use crate::spectral_error::Chosen;
use crate::system::System;
use crate::units::ARCSEC;
use clap::{Args, Parser, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use ndarray::Array2;
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

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
#[derive(Debug, Args)]
struct CovarianceArgs {
    /// System file (TOML).
    system: PathBuf,
    /// File to write (NumPy's .npz).
    #[arg(short, long)]
    output: PathBuf,
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
    precision: Precision,
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

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum Precision {
    F64,
    F32,
}

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
fn parse_pair(text: &str) -> Result<(usize, usize), Invalid> {
    let numbers = text.split_once(',').map(|(p, q)| (p.trim().parse(), q.trim().parse()));
    match numbers {
        Some((Ok(p), Ok(q))) => Ok((p, q)),
        _ => Err(Invalid::new("pair", text, "two guide stars counted from 0, such as 0,1")),
    }
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
                eprintln!("error: cannot write the summary: {error}");
                ExitCode::FAILURE
            }
            _ => ExitCode::SUCCESS,
        },
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

// Compute a covariance for a file
fn covariance(args: &CovarianceArgs) -> Result<String, Error> {
    args.device.require_cpu("the slope covariance")?;
    // Check the output and the plot
    drop(Draft::new(&args.output)?);
    let mut picture = None;
    if let Some(path) = &args.plot {
        picture = Some((path, Format::of(path)?));
        output::check_distinct(&args.output, path)?;
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

    let valid = valid_lenslets(&system);
    // Write the covariance and its picture
    let mut archive = Draft::new(&args.output)?;
    archive.fill(|file| fill_archive(Archive::new(file), args, &system, &covariance, &valid))?;
    let mut drawing = None;
    if let Some((path, format)) = picture {
        let bytes = plot_covariance(&covariance, problem.pitch(), pairs, format)?;
        let mut draft = Draft::new(path)?;
        draft.fill(|file| file.write_all(&bytes))?;
        drawing = Some(draft);
    }
    let bytes = archive.publish()?;
    drawing.map(Draft::publish).transpose()?;
    let summary = Summary { args, system: &system, problem: &problem, chosen, seconds, bytes };
    Ok(summary.tell(covariance.variance(), valid.iter().filter(|valid| **valid).count()))
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
            Chosen { sampling, error_estimate, limited: false }
        }
    };
    Ok((Method::Spectral(chosen.sampling), Some(chosen)))
}

/// Bound of the direct method's error, in units of the variance.
const DIRECT_ERROR: f64 = 1e-10;

// Set up for computing
/// A bar on a terminal; nothing elsewhere.
fn progress_bar(quiet: bool) -> ProgressBar {
    if quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}, {eta} left");
    ProgressBar::new(1).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The valid lenslets of the array that the guide stars share, (N, N).
fn valid_lenslets(system: &System) -> Array2<bool> {
    let array = system.guide_stars.first().map_or(system.lenslet_array, |star| star.array);
    array.valid(system.pupil.as_ref(), system.validity)
}

// Fill the archive
fn fill_archive(
    mut archive: Archive<&mut std::fs::File>,
    args: &CovarianceArgs,
    system: &System,
    covariance: &SlopeCovariance,
    valid: &Array2<bool>,
) -> io::Result<()> {
    match args.precision {
        Precision::F64 => archive.add("slope_slope", covariance.values().view())?,
        Precision::F32 => {
            let single = covariance.values().mapv(|c| c as f32);
            archive.add("slope_slope", single.view())?;
        }
    }
    archive.add("valid", valid.view())?;
    let pitch =
        system.guide_stars.first().map_or(system.lenslet_array.pitch(), |star| star.array.pitch());
    archive.add("pitch", ndarray::arr0(pitch).view())?;
    let sources: Vec<_> = system.guide_stars.iter().map(|star| star.source).collect();
    archive.add("directions", output::directions(&sources).view())?;
    archive.finish()
}

// Tell what was computed
struct Summary<'a> {
    args: &'a CovarianceArgs,
    system: &'a System,
    problem: &'a SlopeProblem,
    /// The sampling of the spectral method.
    chosen: Option<Chosen>,
    seconds: f64,
    bytes: u64,
}

impl Summary<'_> {
    fn tell(&self, variance: f64, valid: usize) -> String {
        if self.args.json {
            format!("{}\n", self.json(variance, valid))
        } else if self.args.quiet {
            String::new()
        } else {
            self.lines(variance, valid)
        }
    }

    // Tell it to a person
    fn lines(&self, variance: f64, valid: usize) -> String {
        let precision = if self.args.precision == Precision::F64 { "f64" } else { "f32" };
        let shape = shape(self.problem).map(|length| length.to_string()).join(" × ");
        let size = in_bytes(self.bytes);
        let direct = || format!("direct, error below {DIRECT_ERROR:e} of the variance");
        let method = self.chosen.map_or_else(direct, |chosen| format!("spectral, {chosen}"));
        let output = self.args.output.display();
        let rms = variance.sqrt() / ARCSEC;
        let mut lines = vec![
            ("system", describe(self.system, self.problem, valid)),
            ("method", method),
            ("variance", format!("{variance:.3e} rad², or {rms:.3} arcsec rms")),
            ("time", format!("{:.3} s on {} threads", self.seconds, device::threads())),
            ("output", format!("{output}: slope_slope {shape}, {precision}, {size}")),
        ];
        if let Some(path) = &self.args.plot {
            lines.push(("plot", path.display().to_string()));
        }
        align(&lines)
    }

    // Tell it to a program
    fn json(&self, variance: f64, valid: usize) -> Value {
        let sampling = self.chosen.map(|chosen| chosen.sampling);
        json!({
            "system": self.args.system.display().to_string(),
            "guide_stars": self.problem.sources(),
            "layers": self.problem.layers().len(),
            "lenslets": self.problem.lenslets(),
            "pitch": self.problem.pitch(),
            "valid": valid,
            "method": if sampling.is_some() { "spectral" } else { "direct" },
            "samples": sampling.map(|sampling| sampling.samples()),
            "oversampling": sampling.map(|sampling| sampling.oversampling()),
            "error_estimate": self.chosen.map_or(DIRECT_ERROR, |chosen| chosen.error_estimate),
            "limited": self.chosen.is_some_and(|chosen| chosen.limited),
            "variance": variance,
            "seconds": self.seconds,
            "threads": device::threads(),
            "device": self.args.device.to_string(),
            "shape": shape(self.problem),
            "precision": if self.args.precision == Precision::F64 { "f64" } else { "f32" },
            "bytes": self.bytes,
            "output": self.args.output.display().to_string(),
            "plot": self.args.plot.as_ref().map(|path| path.display().to_string()),
        })
    }
}

// Align lines and shapes
fn align(lines: &[(&str, String)]) -> String {
    lines.iter().map(|(key, text)| format!("{key:<12}{text}\n")).collect()
}

fn shape(problem: &SlopeProblem) -> [usize; 6] {
    let (sources, lags) = (problem.sources(), problem.lags());
    [sources, sources, 2, 2, lags, lags]
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn describe(system: &System, problem: &SlopeProblem, valid: usize) -> String {
    let (n, pitch) = (problem.lenslets(), problem.pitch());
    format!(
        "{}, {}, {n} × {n} lenslets of {pitch} m, {valid} of them valid",
        count(system.guide_stars.len(), "guide star"),
        count(problem.layers().len(), "layer")
    )
}

// Tell what there is
fn info(args: &InfoArgs) -> Result<String, Error> {
    let system = match &args.system {
        Some(path) => Some((path, System::from_file(path)?)),
        None => None,
    };
    let cuda = device::probe();
    if args.json {
        let mut told = machine_json(&cuda);
        if let Some((path, system)) = &system {
            told["system"] = system_json(path, system);
        }
        return Ok(format!("{told}\n"));
    }
    let mut lines = machine_lines(&cuda);
    if let Some((path, system)) = &system {
        lines.extend(system_lines(path, system));
    }
    Ok(align(&lines))
}

// Tell about the machine
fn machine_lines(cuda: &device::CudaProbe) -> Vec<(&'static str, String)> {
    let memory = device::available_memory().map_or("unknown".into(), in_bytes);
    let mut lines = vec![
        ("lenslet", env!("CARGO_PKG_VERSION").to_string()),
        ("processor", count(device::threads(), "thread")),
        ("memory", format!("{memory} available")),
    ];
    match &cuda.driver {
        Err(reason) => lines.push(("CUDA", reason.to_string())),
        Ok(driver) => lines.extend(driver_lines(driver)),
    }
    let found = |found: bool| if found { "found" } else { "not found" };
    let libraries = cuda.libraries.map(|(name, present)| format!("{name} {}", found(present)));
    lines.push(("libraries", libraries.join(", ")));
    lines
}

fn driver_lines(driver: &device::CudaDriver) -> Vec<(&'static str, String)> {
    let (major, minor) = driver.version;
    let version = format!("driver for CUDA {major}.{minor}; this version computes on the CPU only");
    let devices = driver.devices.iter().map(|found| {
        let ((major, minor), memory) = (found.compute_capability, in_bytes(found.memory));
        let (ordinal, name) = (found.ordinal, &found.name);
        ("", format!("cuda:{ordinal}  {name}, {memory}, compute capability {major}.{minor}"))
    });
    std::iter::once(("CUDA", version)).chain(devices).collect()
}
fn machine_json(cuda: &device::CudaProbe) -> Value {
    let devices = cuda.driver.iter().flat_map(|driver| &driver.devices).map(|found| {
        json!({
            "ordinal": found.ordinal,
            "name": found.name,
            "memory": found.memory,
            "compute_capability": [found.compute_capability.0, found.compute_capability.1],
        })
    });
    let version = cuda.driver.as_ref().ok().map(|driver| [driver.version.0, driver.version.1]);
    let libraries: serde_json::Map<_, _> =
        cuda.libraries.iter().map(|(name, found)| ((*name).to_string(), json!(found))).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "threads": device::threads(),
        "memory_available": device::available_memory(),
        "cuda": {
            "driver_library": !matches!(cuda.driver, Err(NoCuda::NoLibrary)),
            "driver_version": version,
            "reason": cuda.driver.as_ref().err().map(ToString::to_string),
            "devices": devices.collect::<Vec<_>>(),
            "libraries": libraries,
        },
    })
}

// Tell about the system
/// Bytes of the Toeplitz form and of the dense matrix of `valid` lenslets.
fn sizes(problem: &SlopeProblem, valid: usize) -> [u64; 2] {
    let slopes = 2 * (valid as u64).saturating_mul(problem.sources() as u64);
    [8 * problem.len() as u64, slopes.saturating_mul(slopes).saturating_mul(8)]
}

fn system_lines(path: &Path, system: &System) -> Vec<(&'static str, String)> {
    let valid = valid_lenslets(system).iter().filter(|valid| **valid).count();
    let atmosphere = &system.atmosphere;
    let (r0, nanometres) = (atmosphere.fried_parameter(), 1e9 * atmosphere.wavelength());
    let seeing = atmosphere.seeing_at(atmosphere.wavelength()) / ARCSEC;
    let mut lines = vec![
        ("system", path.display().to_string()),
        (
            "turbulence",
            format!("r0 = {r0} m at {nanometres:.0} nm, a seeing of {seeing:.2} arcsec"),
        ),
    ];
    match slope_problem(system) {
        Err(error) => lines.push(("covariance", error.to_string())),
        Ok(problem) => {
            let [compressed, dense] = sizes(&problem, valid).map(in_bytes);
            lines.push(("geometry", describe(system, &problem, valid)));
            lines.push(("covariance", format!("{compressed} in Toeplitz form, {dense} dense")));
            lines.push(("spectral", SpectralSampling::choose(&problem).to_string()));
        }
    }
    lines
}
fn system_json(path: &Path, system: &System) -> Value {
    let valid = valid_lenslets(system).iter().filter(|valid| **valid).count();
    let mut told = json!({
        "file": path.display().to_string(),
        "guide_stars": system.guide_stars.len(),
        "targets": system.targets.len(),
        "layers": system.atmosphere.layers().len(),
        "r0": system.atmosphere.fried_parameter(),
        "wavelength": system.atmosphere.wavelength(),
        "valid": valid,
    });
    match slope_problem(system) {
        Err(error) => told["no_covariance"] = json!(error.to_string()),
        Ok(problem) => {
            let ([compressed, dense], chosen) =
                (sizes(&problem, valid), SpectralSampling::choose(&problem));
            // Tell the sizes of the covariance
            told["lenslets"] = json!(problem.lenslets());
            told["pitch"] = json!(problem.pitch());
            told["shape"] = json!(shape(&problem));
            told["toeplitz_bytes"] = json!(compressed);
            told["dense_bytes"] = json!(dense);
            told["samples"] = json!(chosen.sampling.samples());
            told["oversampling"] = json!(chosen.sampling.oversampling());
            told["error_estimate"] = json!(chosen.error_estimate);
        }
    }
    told
}

// Measure and print a table
fn bench_covariance(args: &BenchArgs) -> Result<String, Error> {
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
        rows.push((name, bench::time_covariance(system, args.repeat)?));
    }
    let threads = device::threads();
    if args.json {
        let rows = rows.iter().map(|(name, times)| json!({ "system": name, "seconds": times }));
        return Ok(format!(
            "{}\n",
            json!({ "threads": threads, "covariance": rows.collect::<Vec<_>>() })
        ));
    }
    Ok(bench_table(&rows, threads))
}

// Lay out the table of times
fn bench_table(rows: &[(&String, bench::Times)], threads: usize) -> String {
    let widest = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(6);
    // Head the table of times
    let mut table = format!(
        "Slope covariance, all pairs, f64, {}; median times.\n\
         {:widest$}  {:>11}  {:>11}  {:>11}  {:>15}  {:>17}  {:>10}\n",
        count(threads, "thread"),
        "system",
        "direct",
        "spectral",
        "original",
        "original/direct",
        "original/spectral",
        "difference"
    );
    for (name, times) in rows {
        let seconds =
            [times.direct, times.spectral, times.original].map(|time| format!("{time:.4} s"));
        let (gain, spectral) = (times.original / times.direct, times.original / times.spectral);
        table += &format!(
            "{name:widest$}  {:>11}  {:>11}  {:>11}  {gain:>15.0}  {spectral:>17.1}  {:>10.1e}\n",
            seconds[0], seconds[1], seconds[2], times.difference
        );
    }
    table
        + "Spectral and original: 4096 samples, oversampling 4; of the original one block of 4 S² is timed.\n\
             The difference is that of spectral and direct, in units of the variance.\n"
}
