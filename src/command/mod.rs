// Tangled from book/src/commands.md: edit there, or here and run cargo tangle stitch.
//! The commands: `covariance`, `estimate`, `simulate`, `info`, `bench`.

mod estimate;
mod summary;

// What the commands stand on
use self::estimate::{EstimateArgs, estimate};
use self::summary::Summary;
use crate::bench::gpu::Sheet;
use crate::device::engine::Engine;
use crate::device::{self, Device, refuse_beyond_memory};
use crate::error::{Error, Invalid};
use crate::model::lenslet_array::LensletArray;
use crate::model::system::System;
use crate::plot::{Format, Pairs, plot_covariance};
use crate::tomography::simulation::Simulation;
use crate::turbulence::arrays::{self as output, Draft, covariance_arrays};
use crate::turbulence::plan::{
    Form, Method, SlopeSlope, check_memory, check_toeplitz, check_wavefront_memory, covariances,
    slope_problem, wavefront_problem,
};
use crate::turbulence::spectral::{self, error::Chosen, slope::SpectralSampling};
use crate::{bench, files::arrays};
use clap::{Args, Parser, Subcommand, ValueEnum};
use ndarray::{Array2, Array4, s};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::{process::ExitCode, time::Instant};

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
    /// Estimate the wavefronts of a system's targets from measured slopes.
    Estimate(EstimateArgs),
    /// Simulate the slopes that a system's sensors would measure, and the true wavefronts.
    Simulate(SimulateArgs),
    /// Say what this machine offers, and what a system asks for.
    Info(InfoArgs),
    /// Measure run times: of products with compressed and dense matrices, unless something else is named.
    Bench(BenchCommand),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
struct BenchCommand {
    #[command(subcommand)]
    what: Option<Bench>,
    #[command(flatten)]
    products: ProductsArgs,
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
    // Arguments about the method
    /// How to compute.
    #[arg(long, value_enum, default_value = "direct")]
    method: MethodName,
    /// Samples of the spectrum along an axis; chosen by the error unless given.
    #[arg(long, requires = "oversampling")]
    samples: Option<usize>,
    /// Samples of the covariance per step of its lattice: per lenslet pitch for slopes.
    #[arg(long, requires = "samples")]
    oversampling: Option<usize>,
    /// Form of the covariances.
    #[arg(long, value_enum, default_value = "auto")]
    form: Form,
    /// Where to compute: cpu, cuda, or cuda:K.
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// Precision of the written numbers, and of the computation on a graphics processor.
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

// Arguments of simulate
#[derive(Debug, Args)]
struct SimulateArgs {
    /// System file (TOML).
    system: PathBuf,
    /// File for the slopes, (frames, n): .npy, or FITS if it ends in .fits, .fit or .fts.
    #[arg(short, long)]
    output: PathBuf,
    /// File for the true wavefronts too, (frames, T, M, M).
    #[arg(long)]
    wavefront: Option<PathBuf>,
    /// Independent frames.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    frames: u32,
    /// Seed of the first frame; the others follow it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print nothing.
    #[arg(long, short)]
    quiet: bool,
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
struct ProductsArgs {
    /// Lenslets across the arrays, with commas between.
    #[arg(long, value_delimiter = ',', default_values_t = bench::ARRAYS)]
    lenslets: Vec<usize>,
    /// Where to measure; on a graphics processor, the cases of the book's table.
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// Repetitions, of which the median is taken.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
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
        Command::Estimate(args) => with_bar(args.quiet, |watch| estimate(&args, watch)),
        Command::Simulate(args) => simulate(&args),
        Command::Info(args) => info(&args),
        Command::Bench(BenchCommand { what: Some(Bench::Covariance(args)), .. }) => {
            bench_covariance(&args)
        }
        Command::Bench(BenchCommand { what: None, products }) => bench_products(&products),
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
    // Check the output and the plot
    let plot = args.plot.as_deref();
    let picture = plot.map(|path| Format::of(path).map(|format| (path, format))).transpose()?;
    let outputs = [Some(("output", args.output.as_path())), plot.map(|path| ("plot", path))];
    let outputs: Vec<_> = outputs.into_iter().flatten().collect();
    output::check_files(&[("system file", &args.system)], &outputs)?;
    let system = System::from_file(&args.system)?;
    // Settle form, pairs and methods
    let dense = args.form.is_dense(&system);
    if !dense {
        check_toeplitz(&system)?;
    }
    let stars = system.guide_stars().len();
    let pairs = args.pair.map_or(Pairs::default_for(stars), |(p, q)| Pairs::One(p, q));
    pairs.check(stars)?;
    if let (true, Some(path)) = (dense, &args.plot) {
        let expected = "no picture: it shows displacements, and the dense form has none";
        return Err(Invalid::new("plot", path.display(), expected).into());
    }
    if dense && args.method == MethodName::Spectral {
        let expected = "direct, as the spectral one has no dense form";
        return Err(Invalid::new("method", "spectral", expected).into());
    }
    let [of_slopes, of_wavefront] = choose_methods(args, &system, dense)?;

    // Compute and watch the clock
    let engine = Engine::open(args.device, args.precision)?;
    let start = Instant::now();
    let form = if dense { Form::Dense } else { Form::Toeplitz };
    let computed = with_bar(args.quiet, |watch| {
        covariances(&system, form, [&of_slopes.0, &of_wavefront.0], &engine, watch)
    })?;
    let seconds = start.elapsed().as_secs_f64();

    // Write the covariance and its picture
    let mut archive = Draft::new(&args.output)?;
    let format = args.save.unwrap_or(arrays::Format::of(&args.output));
    let arrays = covariance_arrays(&computed, &system);
    archive.fill(|file| arrays.write(file, format, args.precision))?;
    let mut drawing = None;
    if let (Some((path, drawn_as)), SlopeSlope::Toeplitz(slopes)) = (picture, &computed.slope_slope)
    {
        let pitch = system.guide_stars()[0].sensor.side();
        let bytes = plot_covariance(slopes, pitch, pairs, drawn_as)?;
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
        engine: engine.name(),
        system: &system,
        form: if dense { "dense" } else { "toeplitz" },
        arrays: arrays.shapes(),
        chosen: [of_slopes.1, of_wavefront.1],
        variance: computed.slope_slope.variance(),
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
/// A method, with the sampling and its error where it is the spectral one.
type Choice = (Method, Option<Chosen>);

/// The methods that the arguments ask for, for the slopes and for the wavefront.
fn choose_methods(
    args: &CovarianceArgs,
    system: &System,
    dense: bool,
) -> Result<[Choice; 2], Error> {
    let given = args.samples.zip(args.oversampling);
    if let (MethodName::Direct, Some((samples, _))) = (args.method, given) {
        let expected = "no such option, except with --method spectral";
        return Err(Invalid::new("samples", samples, expected).into());
    }
    let direct = (Method::Direct, None);
    if dense {
        return Ok([direct; 2]);
    }
    let spectral = |chosen: Chosen| (Method::Spectral(chosen.sampling), Some(chosen));
    let given = given.map(|(n, kappa)| SpectralSampling::new(n, kappa)).transpose()?;
    // Choose for slopes and wavefront
    let problem = slope_problem(system)?;
    check_memory(&problem)?;
    let slopes = match (args.method, given) {
        (MethodName::Direct, _) => direct,
        (MethodName::Spectral, None) => spectral(SpectralSampling::choose(&problem)),
        (MethodName::Spectral, Some(sampling)) => {
            let error_estimate = sampling.error_estimate(&problem);
            spectral(Chosen { sampling, error_estimate, limited: false, unit: "variance" })
        }
    };
    if !system.wants_wavefront() {
        return Ok([slopes, direct]);
    }
    let problem = wavefront_problem(system)?;
    check_wavefront_memory(&problem)?;
    let wavefront = match (args.method, given) {
        (MethodName::Direct, _) => direct,
        (MethodName::Spectral, None) => spectral(spectral::wavefront::choose(&problem)),
        (MethodName::Spectral, Some(sampling)) => {
            let error_estimate = spectral::wavefront::error_estimate(&problem, &sampling);
            spectral(Chosen { sampling, error_estimate, limited: false, unit: "largest entry" })
        }
    };
    Ok([slopes, wavefront])
}

// Show progress on a terminal
/// Does `work` with a bar on a terminal; with nothing elsewhere.
fn with_bar<T>(quiet: bool, work: impl FnOnce(&dyn device::Watch) -> T) -> T {
    let bar = progress_bar(quiet);
    let done = work(&|done: usize, total: usize| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    done
}

fn progress_bar(quiet: bool) -> indicatif::ProgressBar {
    use indicatif::{ProgressBar, ProgressStyle};
    if quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}, {eta} left");
    ProgressBar::new(1).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

// Simulate slopes into a file
fn simulate(args: &SimulateArgs) -> Result<String, Error> {
    // Check the files of the simulation
    let wavefront = args.wavefront.as_deref().map(|path| ("wavefront", path));
    let outputs = [Some(("output", args.output.as_path())), wavefront];
    let outputs: Vec<_> = outputs.into_iter().flatten().collect();
    output::check_files(&[("system file", &args.system)], &outputs)?;
    let system = System::from_file(&args.system)?;
    let simulation = Simulation::new(&system)?;
    let frames = args.frames as usize;
    let grid = if system.wants_wavefront() { system.phase() } else { None };
    let points = grid.map_or(0, |grid| grid.points);
    let numbers = simulation.order().len() + system.targets().len() * points * points;
    refuse_beyond_memory(8 * (frames as u64).saturating_mul(numbers as u64), || {
        format!("{frames} simulated frames")
    })?;
    let mut slopes = Array2::zeros((frames, simulation.order().len()));
    let mut wavefronts = Array4::zeros((frames, system.targets().len(), points, points));
    with_bar(args.quiet, |watch| {
        for frame in 0..frames {
            let draw = simulation.draw(args.seed.wrapping_add(frame as u64));
            slopes.row_mut(frame).assign(&ndarray::aview1(&draw.slopes));
            if grid.is_some() {
                wavefronts.slice_mut(s![frame, .., .., ..]).assign(&draw.wavefronts);
            }
            watch.progress(frame + 1, frames);
        }
    });
    // Write what was simulated
    if args.wavefront.is_some() && grid.is_none() {
        let expected = "a system with at least one [[target]] and a table [phase]";
        return Err(Invalid::new("wavefront", args.system.display(), expected).into());
    }
    let mut drafts = vec![draft_of(&args.output, ("slopes", "rad"), slopes.view())?];
    if let Some(path) = &args.wavefront {
        drafts.push(draft_of(path, ("wavefront", "m"), wavefronts.view())?);
    }
    for draft in drafts {
        draft.publish()?;
    }
    let lines = [
        ("slopes", format!("{}: {frames} × {}", args.output.display(), slopes.ncols())),
        ("seed", args.seed.to_string()),
    ];
    Ok(if args.quiet { String::new() } else { summary::align(&lines) })
}
/// A draft that holds one array by itself.
fn draft_of<D: ndarray::Dimension>(
    path: &Path,
    (name, unit): (&str, &str),
    array: ndarray::ArrayView<f64, D>,
) -> Result<Draft, Error> {
    let mut draft = Draft::new(path)?;
    let format = arrays::Format::of(path);
    draft.fill(|file| arrays::write_single(file, format, (name, unit), array))?;
    Ok(draft)
}

// Tell what there is
fn info(args: &InfoArgs) -> Result<String, Error> {
    let system = match &args.system {
        Some(path) => Some((path, System::from_file(path)?)),
        None => None,
    };
    let cuda = device::cuda::probe::probe();
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
fn bench_products(args: &ProductsArgs) -> Result<String, Error> {
    if args.device != Device::Cpu {
        return bench_device(args);
    }
    for &lenslets in &args.lenslets {
        LensletArray::new(lenslets, 1.0)?;
    }
    let times = |matrix| -> Result<Vec<_>, Error> {
        let time = |&lenslets: &usize| bench::time_products(matrix, lenslets, args.repeat);
        args.lenslets.iter().map(time).collect()
    };
    let (slopes, wavefront) =
        (times(bench::Matrix::Slopes)?, times(bench::Matrix::WavefrontSlope)?);
    if !args.json {
        return Ok(bench::product_tables(&slopes, &wavefront));
    }
    let told = serde_json::json!({
        "processor": device::processor_name(),
        "threads": device::threads(),
        "slopes": slopes,
        "wavefront_slope": wavefront,
    });
    Ok(format!("{told}\n"))
}
fn bench_device(args: &ProductsArgs) -> Result<String, Error> {
    if args.lenslets != bench::ARRAYS {
        let expected =
            "no such option on a graphics processor, where the cases are those of the book's table";
        return Err(Invalid::new("lenslets", format!("{:?}", args.lenslets), expected).into());
    }
    let gpus = device::cuda::open(args.device)?;
    let sheets = gpus.iter().take(1).map(|gpu| Sheet::measure(gpu, args.repeat));
    let sheets = sheets.collect::<Result<Vec<_>, _>>()?;
    let told = |sheet: &Sheet| match args.json {
        true => serde_json::to_value(sheet).map(|sheet| format!("{sheet:#}\n")),
        false => Ok(sheet.table()),
    };
    let told = sheets.iter().map(told).collect::<Result<String, _>>();
    let failed = |error: serde_json::Error| Error::Failed {
        what: "the summary".into(),
        reason: error.to_string(),
    };
    told.map_err(failed)
}
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
