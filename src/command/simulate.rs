// Tangled from book/src/simulate-command.md: edit there, or here and run cargo tangle stitch.
//! The command `simulate`: from a system file to files of slopes and of true wavefronts.

// Imports of the command simulate
use super::examples::{self, words_and_examples};
use super::planned_run::PlannedRun;
use super::progress::{Terminal, with_speed};
use super::summary::{align, command_line, file_json, file_line};
use super::telemetry::{draft_of_slopes, is_named_telemetry};
use super::value_parsers;
use crate::data::DataSet;
use crate::device::{engine::Engine, threads};
use crate::error::{Error, Invalid};
use crate::estimation::simulation::{SimulationOptions, SimulationPlan};
use crate::files::Format;
use crate::files::atomic_file::{AtomicFile, check_files};
use crate::files::provenance::Provenance;
use crate::model::system::System;
use crate::model::system_file::SystemFile;
use crate::numerics::real::Precision;
use crate::watch::check;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

// Arguments of simulate
#[derive(Debug, Args)]
#[command(after_help = words_and_examples(value_parsers::SLOPES, examples::SIMULATE))]
#[command(mut_arg("plan", |arg| arg.help("Say what would be simulated, in what memory and time, and stop")))]
pub struct SimulateArgs {
    /// System file (TOML).
    pub system: PathBuf,
    /// File for the slopes, (frames, n), in radians, with noise: .npz, FITS (.fits, .fit, .fts) or .npy, which has room for
    /// the slopes alone.
    #[arg(short, long, required_unless_present = "plan")]
    output: Option<PathBuf>,
    /// File for the true wavefronts too, (frames, T, M, M), in the same formats.
    #[arg(long)]
    wavefront: Option<PathBuf>,
    /// Independent frames.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    frames: u32,
    /// Seed of the frames: frames of different seeds are independent.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    // Arguments about what simulate says
    #[command(flatten)]
    report: value_parsers::ReportArgs,
}

// Simulate slopes into a file
/// Simulates what the arguments ask for; returns what to print.
pub fn simulate(
    args: &SimulateArgs,
    read: Result<(System, SystemFile), Error>,
) -> Result<String, Error> {
    // Check the files of the simulation
    let wavefront = args.wavefront.as_deref().map(|path| ("wavefront", path));
    let outputs = [args.output.as_deref().map(|path| ("output", path)), wavefront];
    let mut outputs: Vec<_> = outputs.into_iter().flatten().collect();
    for &output in &outputs {
        Format::of(output, &Format::OF_ARRAY, None)?;
    }
    outputs.retain(|_| !args.report.plan);
    check_files(&[("system file", &args.system)], &outputs)?;
    let (system, file) = read?;
    let options = SimulationOptions::default().frames(args.frames as usize).seed(args.seed);
    // Refuse wavefronts that nobody sees
    if args.wavefront.is_some() && !system.wants_wavefront() {
        let expected = "a system with at least one [[target]] and a table [phase]";
        return Err(Invalid::new("wavefront", args.system.display(), expected).into());
    }
    let plan = SimulationPlan::new(&system, options)?;
    let engine = with_speed(Engine::default(), args.report.plan)?;
    let planned = PlannedRun::new(&plan, &engine);
    let Some(output) = args.output.as_ref().filter(|_| !args.report.plan) else {
        return planned.text(args.report.json);
    };
    let terminal = Terminal::new(args.report.quiet);
    let wavefront = args.wavefront.as_deref();
    let files = [Some(output.as_path()), wavefront];
    let start = Instant::now();
    let simulated = planned.run(&terminal, files.into_iter().flatten())?;
    let seconds = start.elapsed().as_secs_f64();
    // Write what was simulated
    let method = "phase screens by fast Fourier transforms";
    let origin = Provenance::new(&command_line(), method, file.text()).seed(Some(args.seed));
    let data = simulated.to_data_set(&system);
    terminal.writes(output);
    let mut drafts = vec![match is_named_telemetry(output) {
        true => draft_of_slopes(output, &system, simulated.slopes.view(), origin.clone())?,
        false => draft_of(("slopes", output), &data, &origin)?,
    }];
    if let Some(path) = &args.wavefront {
        terminal.writes(path);
        drafts.push(draft_of(("wavefront", path), &data, &origin)?);
    }
    check(&terminal)?;
    for draft in drafts {
        draft.publish()?;
    }
    terminal.finish();
    // Say what was simulated
    let (frames, slopes) = simulated.slopes.dim();
    let shape = simulated.wavefronts.iter().map(|wavefronts| {
        wavefronts.shape().iter().map(usize::to_string).collect::<Vec<_>>().join(" × ")
    });
    let mut lines = vec![
        ("seed", args.seed.to_string()),
        ("time", format!("{seconds:.3} s on {}", engine.name())),
        file_line("output", output, &format!("slopes {frames} × {slopes}")),
    ];
    let wavefronts = wavefront.into_iter().zip(shape);
    lines.extend(wavefronts.map(|(path, shape)| file_line("wavefront", path, &shape)));
    let summary = || {
        json!({
            "system": args.system.display().to_string(),
            "output": file_json(Some(output)),
            "wavefront": file_json(wavefront),
            "shape": [frames, slopes],
            "seed": args.seed,
            "seconds": seconds,
            "threads": threads(),
        })
    };
    Ok(args.report.summary(summary, || align(&lines)))
}

// Start a draft of one array
/// A draft that holds one array of a data set, with its provenance and the table of slopes where the format has room for them.
fn draft_of(
    (name, path): (&str, &Path),
    data: &DataSet,
    provenance: &Provenance,
) -> Result<AtomicFile, Error> {
    let format = Format::of((name, path), &Format::OF_ARRAY, None)?;
    let mut data = data.select(&[name, "slope_table"]);
    match format {
        Format::Npy => drop(data.remove("slope_table")),
        _ => provenance.clone().note(&mut data),
    }
    let mut draft = AtomicFile::new(path)?;
    draft.fill(|file| data.write(file, format, Precision::F64))?;
    Ok(draft)
}
