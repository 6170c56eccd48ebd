// Tangled from book/src/learn-command.md: edit there, or here and run cargo tangle stitch.
//! The command `learn`: from a file of slopes to a system file.

// Imports of the command learn
use super::examples::{self, words_and_examples};
use super::learned_file::LearnedFile;
use super::planned_run::PlannedRun;
use super::progress::{Terminal, with_speed};
use super::summary::{Outcome, align, command_line, count, file_json, file_line, file_lines};
use super::value_parsers;
use crate::device::{engine::Engine, threads};
use crate::error::{Error, Invalid};
use crate::files::atomic_file::{AtomicFile, check_files};
use crate::files::reading::split_choice;
use crate::formats::slopes::ReadSlopes;
use crate::model::system::System;
use crate::model::system_file::SystemFile;
use crate::plot::{PictureFormat, plot_learned, short_name};
use crate::profiling::fit::{LearnOptions, LearnPlan, Learned, ParameterGroup, SlopeChecks};
use crate::watch::check;
use clap::Args;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

// Arguments of learn
#[derive(Debug, Args)]
#[command(after_help = words_and_examples(value_parsers::SLOPES, examples::LEARN))]
pub struct LearnArgs {
    /// System file (TOML) to start from.
    pub system: PathBuf,
    /// Slopes (.npy, .npz, FITS or telemetry), a row for each frame, a cube (frames, sensors, slopes) or an array for each sensor: in rad, unless FITS states a BUNIT or --unit is given; x.fits[2] chooses.
    #[arg(long, required_unless_present = "plan")]
    slopes: Option<PathBuf>,
    #[command(flatten)]
    stored: value_parsers::StoredSlopes,
    /// System file (.toml) to write.
    #[arg(short, long, required_unless_present = "plan")]
    output: Option<PathBuf>,
    /// What is learned, separated by commas.
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = value_parsers::parameter_groups(),
        default_values = ["strengths", "altitudes"]
    )]
    fit: Vec<ParameterGroup>,
    /// Draw the profile and the maps into this file, .svg or .png.
    #[arg(long)]
    plot: Option<PathBuf>,
    // Arguments about what learn says
    #[command(flatten)]
    report: value_parsers::ReportArgs,
}

// Learn a system from a file
/// Learns a system as the arguments request; returns the text to print.
pub fn learn(
    args: &LearnArgs,
    read: Result<(System, SystemFile), Error>,
) -> Result<Outcome, Error> {
    // Check the files of learning
    let plot = args.plot.as_deref();
    let picture =
        plot.map(|path| PictureFormat::of(path).map(|format| (path, format))).transpose()?;
    let slopes = args.slopes.as_deref().map(|path| ("slopes", split_choice(path).0));
    let inputs: Vec<_> =
        [Some(("system file", args.system.as_path())), slopes].into_iter().flatten().collect();
    if let Some(output) = &args.output {
        let toml = output.extension().is_some_and(|end| end.eq_ignore_ascii_case("toml"));
        let expected = "a file name that ends in .toml";
        let refused = || Invalid::new("output", output.display(), expected);
        toml.then_some(()).ok_or_else(refused)?;
    }
    let outputs =
        [args.output.as_deref().map(|path| ("output", path)), plot.map(|path| ("plot", path))];
    let outputs: Vec<_> = outputs.into_iter().flatten().filter(|_| !args.report.plan).collect();
    check_files(&inputs, &outputs)?;
    let (system, file) = read?;
    let plan = LearnPlan::new(&system, LearnOptions::default().fit(args.fit.iter().copied()))?;
    let format = args.stored.format()?;
    let read = |path| ReadSlopes::from_file(path, &system, &format);
    let terminal = Terminal::new(args.report.quiet || args.report.plan);
    args.slopes.iter().for_each(|path| terminal.reads(path));
    let read = args.slopes.as_deref().map(read).transpose()?;
    let engine = with_speed(Engine::default(), args.report.plan)?;
    let (Some(slopes_file), Some(output), false) = (&args.slopes, &args.output, args.report.plan)
    else {
        let plan = plan.frames(read.map_or(1000, |read| read.slopes.nrows()));
        return Ok(PlannedRun::new(&plan, &engine).text(args.report.json)?.into());
    };
    let plan = match read {
        Some(read) => plan
            .with_checks(SlopeChecks { unit: !read.has_unit, order: !read.has_order })
            .with_slopes(read.slopes)
            .map_err(|error| of_file(error.into(), slopes_file))?,
        None => plan,
    };
    check_folder(&file, output, args)?;
    let files = [Some(output.as_path()), plot].into_iter().flatten();
    let start = Instant::now();
    let learned = PlannedRun::new(&plan, &engine).run(&terminal, files);
    let learned = learned.map_err(|error| of_file(error, slopes_file))?;
    let seconds = start.elapsed().as_secs_f64();
    let report =
        LearnReport { args, files: [slopes_file, output], start: &system, learned, seconds };
    // Write what was learned
    terminal.writes(output);
    let (written, values) = report.file(&file)?;
    let mut draft = AtomicFile::new(output)?;
    draft.fill(|file| file.write_all(written.as_bytes()))?;
    let drawing = picture.map(|(path, format)| {
        terminal.writes(path);
        let title = format!("learned from {}", short_name(&slopes_file.display().to_string()));
        AtomicFile::holding(path, &plot_learned(&report.learned, &system, &title, format)?)
    });
    let drawing = drawing.transpose()?;
    check(&terminal)?;
    draft.publish()?;
    drawing.map(AtomicFile::publish).transpose()?;
    terminal.finish();
    let text = args.report.summary(|| report.summary(), || report.lines(&values));
    Ok(Outcome { text, warnings: report.warnings(), shortfall: report.shortfall() })
}

// Refuse folders and name files
/// Refuses an output from whose folder the files are not found that the system file names.
fn check_folder(file: &SystemFile, output: &Path, args: &LearnArgs) -> Result<(), Error> {
    file.named(&output.display().to_string()).system().map(drop).map_err(|_| {
        let system = args.system.display();
        let expected = format!("a folder in which the files are found that {system} names");
        Invalid::new("output", output.display(), expected).into()
    })
}

/// An error about slopes, with the name of their file.
fn of_file(error: Error, path: &Path) -> Error {
    match error {
        Error::Invalid(Invalid { quantity, value, expected }) => {
            Invalid::new(format!("{}: {quantity}", path.display()), value, expected).into()
        }
        other => other,
    }
}

// Report of the command learn
/// The results of the command, with what is needed to report them.
struct LearnReport<'a> {
    args: &'a LearnArgs,
    /// Of the slopes, and of the system.
    files: [&'a Path; 2],
    start: &'a System,
    learned: Learned,
    seconds: f64,
}

impl LearnReport<'_> {
    /// The text of the fitted system file, and the values in it with their errors.
    fn file(&self, start: &SystemFile) -> Result<(String, Vec<(String, String)>), Error> {
        let (slopes, origin) = (self.files[0].display().to_string(), command_line());
        let written = LearnedFile {
            learned: &self.learned,
            start: self.start,
            groups: &self.args.fit,
            slopes: &slopes,
            origin: &origin,
        };
        Ok((written.text(start, &self.files[1].display().to_string())?, written.values()))
    }

    /// Warnings that the command prints.
    fn warnings(&self) -> Vec<String> {
        let (learned, maps) = (&self.learned, &self.learned.maps);
        let mut warnings = Vec::new();
        if let Some(misfit) = learned.misfit.filter(|misfit| *misfit > learned.misfit_limit) {
            warnings.push(format!(
                "the model does not explain the slopes: misfit {misfit:.1}, where 1 is expected and chance explains {:.1}. Layers may be missing, or sensors elsewhere",
                learned.misfit_limit
            ));
        }
        if maps.echo > 0.0 {
            warnings.push(format!(
                "errors are too small: the recording is too short, as frames a quarter of it apart are still correlated by {:.2}",
                maps.echo.sqrt()
            ));
        }
        if maps.independent < 16.0 {
            warnings.push(format!(
                "errors are from {} that are as good as {}, and hardly known themselves",
                count(maps.frames, "frame"),
                count(maps.independent.round() as usize, "independent one")
            ));
        }
        warnings
    }

    fn shortfall(&self) -> Option<String> {
        let steps = self.learned.steps;
        (!self.learned.converged)
            .then(|| format!("the fit has not ended after {}", count(steps, "step")))
    }
}

// Report learned values in lines
impl LearnReport<'_> {
    fn lines(&self, values: &[(String, String)]) -> String {
        let (learned, maps) = (&self.learned, &self.learned.maps);
        let slopes = self.files[0].display();
        let (frames, n) = (maps.frames, maps.layout.order().len());
        let fits: Vec<&str> = self.args.fit.iter().map(|unknown| unknown.name()).collect();
        let misfit = learned
            .misfit
            .map_or(String::new(), |misfit| format!(", misfit {misfit:.2} where 1 is expected"));
        let independent = maps.independent;
        let mut lines = vec![
            (
                "slopes",
                format!(
                    "{frames} × {n} from {slopes}, as good as {}",
                    count(independent.round() as usize, "independent frame")
                ),
            ),
            ("fit", format!("{}: {}{misfit}", fits.join(", "), count(learned.steps, "step"))),
        ];
        let mut name = "learned";
        for (what, value) in values {
            lines.push((std::mem::take(&mut name), format!("{what}: {value}")));
        }
        let mut name = "not told";
        for warning in &learned.warnings {
            lines.push((std::mem::take(&mut name), warning.to_string()));
        }
        lines.push(("time", format!("{:.3} s on {}", self.seconds, count(threads(), "thread"))));
        lines.push(file_line("output", self.files[1], ""));
        lines.extend(file_lines([("plot", self.args.plot.as_deref())]));
        align(&lines)
    }
}

// Report learned values as JSON
impl LearnReport<'_> {
    fn summary(&self) -> Value {
        let (learned, maps) = (&self.learned, &self.learned.maps);
        let pair = |(value, error): &(f64, Option<f64>)| json!({ "value": value, "error": error });
        let values = learned.values.iter().map(|value| {
            json!({ "name": value.parameter.to_string(), "value": value.value, "error": value.error })
        });
        let altitudes = learned.system.atmosphere().layers().iter().map(|layer| layer.altitude);
        json!({
            "system": self.args.system.display().to_string(),
            "slopes": self.files[0].display().to_string(),
            "output": file_json(Some(self.files[1])),
            "plot": file_json(self.args.plot.as_deref()),
            "fit": self.args.fit.iter().map(|unknown| unknown.name()).collect::<Vec<_>>(),
            "shape": [maps.frames, maps.layout.order().len()],
            "independent_frames": maps.independent,
            "blocks": maps.scatter.nrows(),
            "memory_frames": maps.memory,
            "correlation_of_blocks": maps.echo,
            "r0": pair(&learned.fried_parameter),
            "fractions": learned.fractions.iter().map(pair).collect::<Vec<_>>(),
            "altitudes": altitudes.collect::<Vec<_>>(),
            "noise": learned.noise.iter().map(pair).collect::<Vec<_>>(),
            "values": values.collect::<Vec<_>>(),
            "not_told": learned.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "misfit": learned.misfit,
            "misfit_limit": Some(learned.misfit_limit).filter(|limit| limit.is_finite()),
            "steps": learned.steps,
            "converged": learned.converged,
            "seconds": self.seconds,
            "threads": threads(),
        })
    }
}
