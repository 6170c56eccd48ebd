// Tangled from book/src/commands.md: edit there, or here and run cargo tangle stitch.
//! The command `simulate`: from a system file to files of slopes and of true wavefronts.

// What the command simulate stands on
use super::summary::{align, plan_text};
use super::watch::Terminal;
use crate::device::{check, engine::Engine, threads};
use crate::error::{Error, Invalid};
use crate::files::arrays;
use crate::files::draft::{Draft, check_files};
use crate::model::system::System;
use crate::tomography::simulation::{SimulationOptions, SimulationPlan};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

// Arguments of simulate
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// System file (TOML).
    system: PathBuf,
    /// File for the slopes, (frames, n): .npy, or FITS if it ends in .fits, .fit or .fts.
    #[arg(short, long, required_unless_present = "plan")]
    output: Option<PathBuf>,
    /// File for the true wavefronts too, (frames, T, M, M).
    #[arg(long)]
    wavefront: Option<PathBuf>,
    /// Independent frames.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    frames: u32,
    /// Seed of the first frame; the others follow it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    // Arguments about what simulate says
    /// Say what would be simulated, in what memory and time, and stop.
    #[arg(long)]
    plan: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
    /// Print neither summary nor progress.
    #[arg(long, short)]
    quiet: bool,
}

// Simulate slopes into a file
/// Simulates what the arguments ask for; returns what to print.
pub fn simulate(args: &SimulateArgs) -> Result<String, Error> {
    // Check the files of the simulation
    let wavefront = args.wavefront.as_deref().map(|path| ("wavefront", path));
    let outputs = [args.output.as_deref().map(|path| ("output", path)), wavefront];
    let outputs: Vec<_> = outputs.into_iter().flatten().filter(|_| !args.plan).collect();
    check_files(&[("system file", &args.system)], &outputs)?;
    let system = System::from_file(&args.system)?;
    let options = SimulationOptions::default().frames(args.frames as usize).seed(args.seed);
    // Refuse wavefronts that nobody sees
    if args.wavefront.is_some() && !system.wants_wavefront() {
        let expected = "a system with at least one [[target]] and a table [phase]";
        return Err(Invalid::new("wavefront", args.system.display(), expected).into());
    }
    let plan = SimulationPlan::new(&system, options)?;
    let engine = Engine::default();
    let Some(output) = args.output.as_ref().filter(|_| !args.plan) else {
        return Ok(plan_text(&plan.describe(&engine), args.json));
    };
    let terminal = Terminal::new(args.quiet);
    let start = Instant::now();
    let simulated = plan.run(&engine, &terminal)?;
    let seconds = start.elapsed().as_secs_f64();
    // Write what was simulated
    let mut drafts = vec![draft_of(output, ("slopes", "rad"), simulated.slopes.view())?];
    if let (Some(path), Some(wavefronts)) = (&args.wavefront, &simulated.wavefronts) {
        drafts.push(draft_of(path, ("wavefront", "m"), wavefronts.view())?);
    }
    check(&terminal)?;
    for draft in drafts {
        draft.publish()?;
    }
    // Say what was simulated
    let (frames, slopes) = simulated.slopes.dim();
    let lines = [
        ("slopes", format!("{}: {frames} × {slopes}", output.display())),
        ("seed", args.seed.to_string()),
    ];
    Ok(match (args.json, args.quiet) {
        (true, _) => {
            let told = json!({
                "system": args.system.display().to_string(),
                "output": output.display().to_string(),
                "shape": [frames, slopes],
                "seed": args.seed,
                "seconds": seconds,
                "threads": threads(),
            });
            format!("{told}\n")
        }
        (false, true) => String::new(),
        (false, false) => align(&lines),
    })
}

// Start a draft of one array
/// A draft that holds one array by itself.
fn draft_of<D: ndarray::Dimension>(
    path: &Path,
    (name, unit): (&str, &str),
    array: ndarray::ArrayView<f64, D>,
) -> Result<Draft, Error> {
    let mut draft = Draft::new(path)?;
    let format = arrays::ArrayFormat::of(path);
    draft.fill(|file| arrays::write_single(file, format, (name, unit), array))?;
    Ok(draft)
}
