// Tangled from book/src/stem-command.md: edit there, or here and run cargo tangle stitch.
//! Images of a plane wave, by the command `stem`.

// What images by command stand on
use super::{Extra, StemArgs};
use crate::command::summary::{align, command_line, count, plan_text};
use crate::command::watch::{Terminal, with_speed};
use crate::device::{Engine, check};
use crate::electrons::Micrographs;
use crate::electrons::sample_file::SampleFile;
use crate::error::{Error, Invalid, accept};
use crate::files::origin::Origin;
use crate::files::signal_files::SignalFormat;
use serde_json::json;
use std::path::Path;
use std::time::Instant;

// Image a plane wave
/// Takes the images that the arguments ask for; returns what to print.
pub fn image(
    args: &StemArgs,
    file: &SampleFile,
    engine: Engine,
    format: Option<SignalFormat>,
) -> Result<String, Error> {
    // Refuse what images do not have
    let expected = "a sample file whose algorithm is \"multislice\" or \"prism\"";
    for extra in &args.save {
        let name = match extra {
            Extra::Potential | Extra::Wave => continue,
            Extra::Smatrix => "smatrix",
            Extra::Probe => "probe",
        };
        return Err(Invalid::new("save", name, expected).into());
    }
    accept(args.share.is_none(), "share", args.share, expected)?;
    accept(args.collect.is_empty(), "collect", &args.collect, expected)?;
    accept(args.compare.is_none(), "compare", args.compare, expected)?;
    let plan = file.micrographs()?;
    let engine = with_speed(engine, args.plan)?;
    let description = plan.describe(&engine);
    let (Some(output), Some(format)) = (args.output.as_ref().filter(|_| !args.plan), format) else {
        return Ok(plan_text(&description, args.json));
    };
    description.memory.check(&engine, "the images")?;
    let (terminal, start) = (Terminal::new(args.quiet), Instant::now());
    let taken = plan.run(&engine, &terminal)?;
    let waves = args.save.contains(&Extra::Wave);
    let mut signals = plan.signals(&taken, waves, engine.precision())?;
    if args.save.contains(&Extra::Potential) {
        plan.keep_potential(&mut signals, engine.precision())?;
    }
    check(&terminal)?;
    signals.origin(Origin::new(&command_line(), &description.method, file.text()))?;
    signals.write(output, format, args.signal.as_deref())?;
    Ok(told(args, &taken, &engine, start.elapsed().as_secs_f64()))
}

// Tell of images of a plane wave
/// What is said of the images.
fn told(args: &StemArgs, taken: &Micrographs, engine: &Engine, seconds: f64) -> String {
    let kept = taken.mean.mean().unwrap_or(0.0);
    let output = args.output.as_deref().unwrap_or(Path::new("")).display().to_string();
    let (defoci, planes, ..) = taken.mean.dim();
    if args.json {
        let summary = json!({
            "sample": args.sample.display().to_string(),
            "output": output,
            "images": defoci * planes,
            "configurations": taken.configurations,
            "kept": kept,
            "computed_on": engine.name(),
            "precision": engine.precision().name(),
            "seconds": seconds,
        });
        return format!("{summary}\n");
    }
    if args.quiet {
        return String::new();
    }
    let images = count(defoci * planes, "image");
    align(&[
        ("images", format!("{images} of {}", args.sample.display())),
        ("mean", format!("{kept:.4}, where 1 is without a specimen and an aperture")),
        ("time", format!("{seconds:.2} s on {}", engine.name())),
        ("written", output),
    ])
}
