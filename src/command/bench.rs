// Tangled from book/src/bench-command.md: edit there, or here and run cargo tangle stitch.
//! The command `bench`: run times, measured here.

// Imports of the command bench
use super::examples::{self, examples};
use super::progress::{Terminal, with_speed};
use super::ranks::RankArgs;
use super::summary::{plan_json, plan_text};
use super::value_parsers;
use super::watch::complain;
use crate::bench::calibration::{self, Kept};
use crate::bench::electrons::{CASES, StemSheet, chosen};
use crate::bench::{self, gpu::Sheet};
use crate::device::{self, Device, engine::Engine};
use crate::error::{Error, Invalid};
use crate::estimation::inversion::Inversion;
use crate::model::lenslet_array::LensletArray;
use crate::model::system::System;
use crate::model::system_file::SystemFile;
use crate::numerics::real::Precision;
use crate::plan::Plan;
use crate::psf::PsfOptions;
use crate::tomography::reconstructor::ReconstructorOptions;
use crate::watch::check;
use clap::{Args, Subcommand, builder::PossibleValuesParser};
use std::path::PathBuf;

// Arguments of bench
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = examples(examples::BENCH))]
pub struct BenchCommand {
    #[command(subcommand)]
    what: Option<Bench>,
    #[command(flatten)]
    products: ProductsArgs,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Time both methods and the original algorithm for the slope covariance.
    Covariance(BenchArgs),
    /// Time the stages of reconstructors.
    Reconstruct(ReconstructBenchArgs),
    /// Time the stages of images, by the exact structure function and the stationary one.
    Image(ImageBenchArgs),
    /// Time frames of slopes with a reconstructor in memory, one by one and together.
    Frames(FramesBenchArgs),
    /// Time scans of silicon by an electron probe, beside transforms alone.
    Stem(StemBenchArgs),
    /// Measure how fast this machine is, for the times that --plan foretells, and keep it in the user's cache.
    Calibrate(CalibrateArgs),
}

// Arguments about the measured engine
// Arguments about the measured engine
/// Arguments about where times are measured.
#[derive(Debug, Clone, Copy, Args)]
struct MeasuredEngineArgs {
    /// Where to measure: cpu, cuda (all graphics processors), or cuda:K (one of them).
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// Precision of the numbers on a graphics processor: f64 or f32.
    #[arg(long, default_value = "f64", value_parser = value_parsers::precisions())]
    precision: Precision,
}

impl MeasuredEngineArgs {
    /// The engine that is measured.
    fn engine(self) -> Result<Engine, Error> {
        Engine::open(self.device, self.precision)
    }
}

// Arguments of the measurements
// Arguments for timing products
#[derive(Debug, Args)]
struct ProductsArgs {
    /// Lenslets across the arrays, with commas between.
    #[arg(long, value_delimiter = ',', default_values_t = bench::ARRAYS)]
    lenslets: Vec<usize>,
    /// Where to measure: cpu, cuda or cuda:K; on a graphics processor, the cases of the book's table.
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// Repetitions, of which the median is taken.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// Arguments for timing covariances
#[derive(Debug, Args)]
#[command(after_help = examples(examples::BENCH_COVARIANCE))]
struct BenchArgs {
    /// System files; the three of the book unless given.
    systems: Vec<PathBuf>,
    /// Repetitions, of which the median is taken.
    #[arg(long, conflicts_with = "plan", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Say what would be computed for each system by both methods, and stop.
    #[arg(long)]
    plan: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// Arguments for timing reconstructors
#[derive(Debug, Args)]
#[command(after_help = examples(examples::BENCH_RECONSTRUCT))]
struct ReconstructBenchArgs {
    /// System files; a small one of the book unless given.
    systems: Vec<PathBuf>,
    #[command(flatten)]
    engine: MeasuredEngineArgs,
    /// How the covariance of the measurements is inverted, in place of what the system file says: auto, cholesky, eigen or iterative.
    #[arg(long, value_parser = value_parsers::inversions())]
    method: Option<Inversion>,
    /// Compute the errors alone, without the reconstructor.
    #[arg(long)]
    errors_only: bool,
    /// Repetitions, of which the median is taken, after one that does not count.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ranks: RankArgs,
}

// Arguments for timing images
#[derive(Debug, Args)]
#[command(after_help = examples(examples::BENCH_IMAGE))]
struct ImageBenchArgs {
    /// System files; a small one of the book unless given.
    systems: Vec<PathBuf>,
    #[command(flatten)]
    engine: MeasuredEngineArgs,
    /// Repetitions, of which the median is taken, after one that does not count.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// Arguments for timing frames
#[derive(Debug, Args)]
#[command(after_help = examples(examples::BENCH_FRAMES))]
struct FramesBenchArgs {
    /// Slopes of a frame, the columns of the reconstructor.
    #[arg(long, default_value_t = 7200)]
    slopes: usize,
    /// Rows of the reconstructor, of all targets or loops.
    #[arg(long, default_value_t = 3362)]
    rows: usize,
    /// Frames that are multiplied together.
    #[arg(long, default_value_t = 1024)]
    frames: usize,
    #[command(flatten)]
    engine: MeasuredEngineArgs,
    /// Repetitions, of which the median is taken, after one that does not count.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// Arguments for timing scans
#[derive(Debug, Args)]
#[command(after_help = examples(examples::BENCH_STEM))]
struct StemBenchArgs {
    /// Cases to measure, with commas between; those of the book's table for the device unless given.
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(CASES.map(|case| case.name)))]
    case: Vec<String>,
    /// Where to measure: cpu, cuda or cuda:K; several devices are also compared with the first of them alone.
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// Precision of waves: f64 or f32.
    #[arg(long, default_value = "f32", value_parser = value_parsers::precisions())]
    precision: Precision,
    /// Runs of which the least time is taken, after one that does not count.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// Arguments for measuring the machine
#[derive(Debug, Args)]
#[command(after_help = examples(examples::BENCH_CALIBRATE))]
struct CalibrateArgs {
    #[command(flatten)]
    engine: MeasuredEngineArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// Measure and print a table
/// Measures what the arguments ask for; returns what to print.
pub fn bench(command: &BenchCommand) -> Result<String, Error> {
    match &command.what {
        Some(Bench::Covariance(args)) => bench_covariance(args),
        Some(Bench::Reconstruct(args)) => bench_reconstruct(args),
        Some(Bench::Image(args)) => bench_image(args),
        Some(Bench::Frames(args)) => bench_frames(args),
        Some(Bench::Stem(args)) => bench_stem(args),
        Some(Bench::Calibrate(args)) => bench_calibrate(args),
        None => bench_products(&command.products),
    }
}

// Measurements of the bench
// Measure products on the processor
fn bench_products(args: &ProductsArgs) -> Result<String, Error> {
    if args.device != Device::Cpu {
        return bench_device(args);
    }
    for &lenslets in &args.lenslets {
        LensletArray::new(lenslets, 1.0)?;
    }
    let terminal = Terminal::new(true);
    let times = |matrix| -> Result<Vec<_>, Error> {
        let time = |&lenslets: &usize| {
            check(&terminal)?;
            bench::time_products(matrix, lenslets, args.repeat, &terminal)
        };
        args.lenslets.iter().map(time).collect()
    };
    let (slopes, wavefront) =
        (times(bench::TimedMatrix::Slopes)?, times(bench::TimedMatrix::WavefrontSlope)?);
    if !args.json {
        return Ok(bench::product_tables(&slopes, &wavefront));
    }
    // Times of both matrices in JSON
    let summary = serde_json::json!({
        "processor": device::processor_name(),
        "threads": device::threads(),
        "slopes": slopes,
        "wavefront_slope": wavefront,
    });
    Ok(format!("{summary}\n"))
}

// Measure products on a graphics processor
fn bench_device(args: &ProductsArgs) -> Result<String, Error> {
    if args.lenslets != bench::ARRAYS {
        let expected =
            "no such option on a graphics processor, where the cases are those of the book's table";
        return Err(Invalid::new("lenslets", format!("{:?}", args.lenslets), expected).into());
    }
    let gpus = device::cuda::open(args.device)?;
    let sheets = gpus.iter().take(1).map(|gpu| Sheet::measure(gpu, args.repeat));
    let sheets = sheets.collect::<Result<Vec<_>, _>>()?;
    let written = |sheet: &Sheet| match args.json {
        true => serde_json::to_value(sheet).map(|sheet| format!("{sheet:#}\n")),
        false => Ok(sheet.table()),
    };
    let written = sheets.iter().map(written).collect::<Result<String, _>>();
    let failed = |error: serde_json::Error| Error::Failed {
        what: "the summary".into(),
        reason: error.to_string(),
    };
    written.map_err(failed)
}

// Measure the covariances of systems
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
    if args.plan {
        return plans_of(&systems, args.json);
    }
    let terminal = Terminal::new(true);
    let mut rows = Vec::new();
    for (name, system) in &systems {
        check(&terminal)?;
        rows.push((name.as_str(), bench::time_covariance(system, args.repeat, &terminal)?));
    }
    let threads = device::threads();
    if !args.json {
        return Ok(bench::table(&rows, threads));
    }
    let entry = |(name, times)| json!({ "system": name, "seconds": times });
    let entries: Vec<_> = rows.into_iter().map(entry).collect();
    Ok(format!("{}\n", json!({ "threads": threads, "covariance": entries })))
}

// Measure the reconstructors of systems
fn bench_reconstruct(args: &ReconstructBenchArgs) -> Result<String, Error> {
    let read = |path: &PathBuf| -> Result<_, Error> {
        let file = SystemFile::from_file(path)?;
        let options = ReconstructorOptions::from_system_file(&file)?;
        Ok((path.display().to_string(), file.system()?, options))
    };
    let mut systems = args.systems.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    if systems.is_empty() {
        let (name, text) = bench::reconstruct::SYSTEM;
        systems.push((
            name.into(),
            System::from_toml(text, name)?,
            ReconstructorOptions::default(),
        ));
    }
    let engine = args.ranks.engine(args.engine.device, args.engine.precision)?;
    let engine = with_speed(engine, false)?;
    let terminal = Terminal::new(true);
    let mut rows = Vec::new();
    for (name, system, options) in &systems {
        let options = options.method(args.method.unwrap_or(options.method));
        let options = options.errors_only(args.errors_only || options.errors_only);
        let how = (&engine, args.repeat);
        let times = bench::reconstruct::time_reconstructor(system, options, how, &terminal)?;
        rows.push((name.as_str(), times));
    }
    if engine.place()[0] > 0 {
        return Ok(String::new());
    }
    if !args.json {
        return Ok(bench::reconstruct::reconstructor_table(&rows, &engine.name()));
    }
    let entry = |(name, times)| serde_json::json!({ "system": name, "seconds": times });
    let entries: Vec<_> = rows.into_iter().map(entry).collect();
    let summary = serde_json::json!({ "engine": engine.name(), "reconstruct": entries });
    Ok(format!("{summary}\n"))
}

// Measure the images of systems
fn bench_image(args: &ImageBenchArgs) -> Result<String, Error> {
    let posed = |file: SystemFile| -> Result<_, Error> {
        Ok((file.name().to_string(), file.system()?, PsfOptions::from_system_file(&file)?))
    };
    let read = |path: &PathBuf| SystemFile::from_file(path).and_then(posed);
    let mut systems = args.systems.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    if systems.is_empty() {
        let (name, text) = bench::reconstruct::SYSTEM;
        systems.push(posed(SystemFile::from_toml(text, name)?)?);
    }
    let engine = with_speed(args.engine.engine()?, false)?;
    let terminal = Terminal::new(true);
    let mut rows = Vec::new();
    for (name, system, options) in &systems {
        let how = (&engine, args.repeat);
        let times = bench::image::time_images(system, options, how, &terminal)?;
        rows.push((name.as_str(), times));
    }
    let exposed = exposed(&engine, &terminal)?;
    if !args.json {
        let table = bench::image::image_table(&rows, &engine.name());
        return Ok(table + &bench::image::exposure_table(&exposed, &engine.name()));
    }
    let entry = |(name, times)| serde_json::json!({ "system": name, "seconds": times });
    let entries: Vec<_> = rows.into_iter().map(entry).collect();
    let summary =
        serde_json::json!({ "engine": engine.name(), "image": entries, "exposure": exposed });
    Ok(format!("{summary}\n"))
}

/// The times of exposures of the mirror of the paper.
fn exposed(engine: &Engine, terminal: &Terminal) -> Result<bench::image::ExposureTimes, Error> {
    let (name, text) = bench::image::EXPOSED;
    let file = SystemFile::from_toml(text, name)?;
    let options = PsfOptions::from_system_file(&file)?;
    bench::image::time_exposures(&file.system()?, &options, engine, terminal)
}

// Measure frames with a reconstructor
fn bench_frames(args: &FramesBenchArgs) -> Result<String, Error> {
    let engine = args.engine.engine()?;
    let (shape, how) = ([args.rows, args.slopes], (&engine, args.repeat));
    let times = bench::frames::time_frames(shape, args.frames, how, &Terminal::new(true))?;
    if !args.json {
        return Ok(bench::frames::frame_table(&times, &engine.name()));
    }
    Ok(format!("{}\n", serde_json::json!({ "engine": engine.name(), "seconds": times })))
}

// Measure scans of silicon
/// Measures scans; returns what to print.
fn bench_stem(args: &StemBenchArgs) -> Result<String, Error> {
    let engine = Engine::open(args.device, args.precision)?;
    let cases = chosen(&args.case, engine.devices().len())?;
    let sheet = StemSheet::measure(&cases, &engine, args.repeat, &Terminal::new(true))?;
    if !args.json {
        return Ok(sheet.table());
    }
    Ok(format!("{:#}\n", serde_json::json!(sheet)))
}

// Measure the speed of the machine
fn bench_calibrate(args: &CalibrateArgs) -> Result<String, Error> {
    let engine = args.engine.engine()?;
    let measured = calibration::measure(&engine, &Terminal::new(true))?;
    let (speed, kept) = (calibration::speed(&measured)?, Kept::of(&engine));
    let unkept = |kept: &Kept, error| complain("warning", &kept.cannot_keep(error));
    let written =
        kept.filter(|kept| kept.keep(&speed).map_err(|error| unkept(kept, error)).is_ok());
    let file = written.as_ref().map(|kept| kept.file().display().to_string());
    if args.json {
        let summary = serde_json::json!({
            "engine": engine.name(), "rates": speed.to_string(), "measured": measured, "file": file,
        });
        return Ok(format!("{summary}\n"));
    }
    let place = file.map_or("kept nowhere".into(), |file| format!("kept in {file}"));
    Ok(calibration::table(&measured, &engine.name()) + &place + "\n")
}

// Tell the plans of a bench
/// The plans for some systems, in words or as one array in JSON.
fn plans_of(systems: &[(String, System)], json: bool) -> Result<String, Error> {
    let (mut text, mut values) = (String::new(), Vec::new());
    let engine = with_speed(Engine::default(), true)?;
    for (name, system) in systems {
        for plan in bench::covariance_plans(system)? {
            let description = plan.describe(&engine)?;
            text += &format!("{name}\n{}\n", plan_text(&description, false));
            values.push(plan_json(&description));
        }
    }
    Ok(if json { format!("{}\n", serde_json::Value::from(values)) } else { text })
}
