// Tangled from book/src/hrtem-command.md: edit there, or here and run cargo tangle stitch.
//! Images of a plane wave, by the command `stem`.

// Imports of images by command
use super::sample_report::{add_summary, plan_with_summary, summary_lines, warn};
use crate::command::planned_run::PlannedRun;
use crate::command::progress::{Terminal, with_speed};
use crate::command::summary::{align, command_line, count, file_json, file_line, file_lines};
use crate::command::value_parsers::ReportArgs;
use crate::device::Engine;
use crate::electrons::sample_file::SampleFile;
use crate::electrons::{HrtemImages, SampleSummary};
use crate::error::Error;
use crate::files::Format;
use crate::files::atomic_file::AtomicFile;
use crate::files::provenance::Provenance;
use crate::plot::{PictureFormat, ScanPicture, number, plot_scan, short_name};
use crate::watch::check;
use serde_json::json;
use std::path::Path;
use std::time::Instant;

// What is asked of images by command
/// What is asked of images of a plane wave.
pub struct ImageRequest<'a> {
    /// The sample file, or what stands in its place.
    pub sample: String,
    /// The file to write; none for a plan alone.
    pub output: Option<&'a Path>,
    /// The picture to draw.
    pub picture: Option<(&'a Path, PictureFormat)>,
    /// Name of the variable that a file in MRC holds.
    pub signal: Option<&'a str>,
    /// Whether exit waves are written, too.
    pub waves: bool,
    /// Whether the potential is.
    pub potential: bool,
    /// What is printed.
    pub report: ReportArgs,
}

// Image a plane wave
/// Takes the images that the arguments ask for; returns what to print.
pub fn image(
    request: &ImageRequest,
    file: &SampleFile,
    engine: Engine,
    format: Option<Format>,
) -> Result<String, Error> {
    let (plan, summary) = file.hrtem_with_summary()?;
    warn(&summary);
    let engine = with_speed(engine, request.output.is_none())?;
    let potential = if request.potential { plan.bytes_of_potential(engine.precision()) } else { 0 };
    let planned = PlannedRun::new(&plan, &engine).with_bytes(potential);
    let description = planned.describe()?;
    let (Some(output), Some(format)) = (request.output, format) else {
        return Ok(plan_with_summary(&description, &summary, request.report.json));
    };
    // Run a plan of images
    let (terminal, start) = (Terminal::new(request.report.quiet), Instant::now());
    let plot = request.picture.map(|(path, _)| path);
    let taken = planned.run(&terminal, [Some(output), plot].into_iter().flatten())?;
    terminal.writes(output);
    // Data set of the images
    let mut data = taken.to_data_set(&plan, request.waves, engine.precision())?;
    if request.potential {
        plan.keep_potential(&mut data, engine.precision())?;
    }
    check(&terminal)?;
    Provenance::new(&command_line(), &description.method, file.text()).note(&mut data);
    // Draw and save the images
    let drawn = |(path, format)| {
        terminal.writes(path);
        let title = format!("{}, {} keV", short_name(&request.sample), file.beam.energy_kev);
        let (specimen, notes) = (plan.specimen(), focus(&plan.options().defoci));
        let picture =
            ScanPicture { title, specimen, data: &data, semi_angle: 0.0, notes, counted: false };
        AtomicFile::holding(path, &plot_scan(&picture, format)?)
    };
    let drawing = request.picture.map(drawn).transpose()?;
    data.save(output, format, request.signal)?;
    drawing.map(AtomicFile::publish).transpose()?;
    terminal.finish();
    let seconds = start.elapsed().as_secs_f64();
    Ok(report((request, output, &summary), &taken, &engine, seconds))
}

// Tell of images of a plane wave
/// The defocus of the images for their titles, where it is not an axis of a series.
fn focus(defoci: &[f64]) -> Vec<(String, String)> {
    match defoci {
        [defocus] => vec![("image".into(), format!("defocus {} Å", number(*defocus)))],
        _ => Vec::new(),
    }
}

/// What is said of the images.
fn report(
    (request, output, sample): (&ImageRequest, &Path, &SampleSummary),
    taken: &HrtemImages,
    engine: &Engine,
    seconds: f64,
) -> String {
    let kept = taken.mean.mean().unwrap_or(0.0);
    let plot = request.picture.map(|(path, _)| path);
    let (defoci, planes, ..) = taken.mean.dim();
    if request.report.json {
        let mut summary = json!({
            "sample": request.sample,
            "output": file_json(Some(output)),
            "plot": file_json(plot),
            "images": defoci * planes,
            "configurations": taken.configurations,
            "kept": kept,
            "computed_on": engine.name(),
            "precision": engine.precision().name(),
            "seconds": seconds,
        });
        add_summary(&mut summary, sample);
        return format!("{summary}\n");
    }
    if request.report.quiet {
        return String::new();
    }
    let images = count(defoci * planes, "image");
    let mut lines = vec![("images", format!("{images} of {}", request.sample))];
    lines.extend(summary_lines(sample));
    lines.extend([
        ("mean", format!("{kept:.4}, where 1 is without a specimen and an aperture")),
        ("time", format!("{seconds:.2} s on {}", engine.name())),
        file_line("output", output, ""),
    ]);
    lines.extend(file_lines([("plot", plot)]));
    align(&lines)
}
