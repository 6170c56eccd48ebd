// Tangled from book/src/reconstruct-command.md: edit there, or here and run cargo tangle stitch.
//! The command `reconstruct`: from a system file to reconstructors and the errors that they leave.

// Imports of the command reconstruct
use super::examples::{self, words_and_examples};
use super::planned_run::{PlannedRun, suited};
use super::progress::{Terminal, with_speed};
use super::ranks::RankArgs;
use super::summary::{align, command_line, count, file_json, file_line, file_lines};
use super::telemetry::{Loops, TELEMETRY, is_named_telemetry};
use super::value_parsers;
use super::watch::complain;
use crate::data::DataSet;
use crate::device::engine::Engine;
use crate::device::threads;
use crate::error::{Error, Invalid, accept};
use crate::estimation::inversion::Inversion;
use crate::files::Format;
use crate::files::atomic_file::{AtomicFile, check_files};
use crate::files::provenance::Provenance;
use crate::model::system::System;
use crate::model::system_file::SystemFile;
use crate::plan::{Description, Plan};
use crate::plot::map::{WavefrontMap, plot_wavefront_errors};
use crate::plot::noise::{check_noise, plot_noise_of_stars};
use crate::plot::reconstructor::{plot_reconstruction, plot_spectrum};
use crate::plot::{ColourScale, PictureFormat, short_name};
use crate::tomography::error::WavefrontError;
use crate::tomography::point_errors::{PointErrors, PointErrorsPlan, errors_in_pupil};
use crate::tomography::reconstructor::{
    ReconstructedQuantity, Reconstruction, ReconstructorOptions, ReconstructorPlan,
};
use crate::watch::{Watch, check};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

// Arguments of reconstruct
#[derive(Debug, Args)]
#[command(after_help = words_and_examples(value_parsers::SLOPES, examples::RECONSTRUCT))]
#[command(mut_arg("precision", |arg| arg.help(value_parsers::DOUBLE_ON_CPU)))]
pub struct ReconstructArgs {
    /// System file (TOML), with at least one target.
    pub system: PathBuf,
    /// File to write: NumPy's .npz, or FITS if it ends in .fits, .fit or .fts.
    #[arg(short, long, required_unless_present = "plan")]
    output: Option<PathBuf>,
    /// How the covariance of the measurements is inverted, in place of what the system file says.
    #[arg(long, value_parser = value_parsers::inversions())]
    method: Option<Inversion>,
    /// Eigenvalues below this share of the largest are dropped, in place of what the system file says.
    #[arg(long)]
    filter: Option<f64>,
    /// Largest relative residual of a row by iterations, or relative error of an error at a point, in place of what the system file says.
    #[arg(long)]
    tolerance: Option<f64>,
    // Argument about the reconstructed quantity
    /// What is reconstructed, in place of what the system file says.
    #[arg(long, value_parser = value_parsers::reconstructed_quantities())]
    to: Option<ReconstructedQuantity>,
    /// Compute the errors alone: the reconstructor is neither kept nor written.
    #[arg(long)]
    errors_only: bool,
    /// Further arrays to write into the output, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ARRAYS")]
    save: Vec<ExtraArray>,
    /// Write telemetry with the control matrices of loops into this file, .aot.fits, too.
    #[arg(long, value_name = "FILE")]
    telemetry: Option<PathBuf>,
    // Arguments about the picture of a reconstruction
    /// Draw what was found into this file, .svg or .png.
    #[arg(long)]
    plot: Option<PathBuf>,
    /// What to draw.
    #[arg(long, value_enum, requires = "plot", default_value = "error")]
    of: ReconstructorPlotKind,
    /// Target whose reconstructor is drawn, counted from 0.
    #[arg(long, requires = "plot")]
    target: Option<usize>,
    /// Scale of the colours of a reconstructor.
    #[arg(long, requires = "plot", value_parser = value_parsers::scales(), default_value = "root")]
    scale: ColourScale,
    #[command(flatten)]
    engine: value_parsers::EngineArgs,
    // Arguments about what reconstruct says
    #[command(flatten)]
    report: value_parsers::ReportArgs,
    #[command(flatten)]
    ranks: RankArgs,
}

// Arrays that may be asked for
/// Arrays that are written if they are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum ExtraArray {
    /// Covariance of the measurements, noise included.
    CMm,
    /// Covariance of the truth with the measurements.
    CTm,
    /// Covariance of the truth.
    CTt,
    /// Eigenvalues of the covariance of the measurements.
    Eigenvalues,
    /// The old name of the option --telemetry, with x.aot.fits next to the output x.npz.
    #[value(hide = true)]
    Aot,
}
/// What a picture shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReconstructorPlotKind {
    /// The error of the wavefront over the pupil, a map for each target.
    Error,
    /// The reconstructor of one target, as blocks of sensors.
    Reconstructor,
    /// The eigenvalues of the covariance of the measurements, kept and dropped.
    Spectrum,
    /// The noise of each guide star over the pupil.
    Noise,
}

// Reconstruct into a file
/// Computes what the arguments ask for; returns what to print.
pub fn reconstruct(
    args: &ReconstructArgs,
    read: Result<(System, SystemFile), Error>,
) -> Result<String, Error> {
    // Check the files of the reconstruction
    let picture = args.plot.as_deref();
    let picture =
        picture.map(|path| PictureFormat::of(path).map(|format| (path, format))).transpose()?;
    let named = args.output.as_deref().map(|path| ("output", path));
    let format = named.map(|name| Format::of(name, &Format::OF_ARRAYS, None)).transpose()?;
    let telemetry = args.telemetry_file();
    if let Some(path) = args.telemetry.as_deref().filter(|path| !is_named_telemetry(path)) {
        let expected = format!("a file name that ends in {TELEMETRY}");
        return Err(Invalid::new("telemetry", path.display(), expected).into());
    }
    if let (true, Some(path)) =
        (args.save.contains(&ExtraArray::Aot) && !args.report.quiet, &telemetry)
    {
        let note = format!("--save aot has become --telemetry {}", path.display());
        complain("note", &note);
    }
    let outputs = [
        named,
        picture.map(|(path, _)| ("plot", path)),
        telemetry.as_deref().map(|path| ("telemetry", path)),
    ];
    let outputs: Vec<_> = outputs.into_iter().flatten().filter(|_| !args.report.plan).collect();
    check_files(&[("system file", &args.system)], &outputs)?;
    let (system, file) = read?;
    let options = args.options(&file)?;
    if options.to == ReconstructedQuantity::Wavefront && options.errors_only {
        return errors_at_points(args, (&system, &file), options, (format, picture));
    }
    let plan = ReconstructorPlan::from_system_file(&file, options)?;
    args.check_extras(&plan)?;
    // Prepare the telemetry of the reconstruction
    let telemetry = match args.telemetry_file().filter(|_| !args.report.plan) {
        Some(path) => Some((path, Loops::of(&system, &file)?)),
        None => None,
    };
    args.check_picture(&system, &plan)?;
    let engine = suited(args.ranks.engine(args.engine.device, args.engine.precision)?, &plan);
    let engine = with_speed(engine, args.report.plan)?;
    let (plan, writes) = (plan.fitted(&engine), engine.place()[0] == 0);
    let cores = with_speed(Engine::default(), args.report.plan && writes)?;
    let of_errors = plan.stage_of_wavefront_errors(&cores);
    let of_maps = of_errors.as_ref().map(|stage| stage.name);
    let planned = PlannedRun::new(&plan, &engine).with_stages(of_errors);
    let Some((output, format)) = args.output.as_ref().zip(format).filter(|_| !args.report.plan)
    else {
        return if writes { planned.text(args.report.json) } else { Ok(String::new()) };
    };
    let (terminal, start) = (Terminal::new(args.report.quiet || !writes), Instant::now());
    let telemetry_file = args.telemetry_file();
    let files = [Some(output.as_path()), telemetry_file.as_deref(), args.plot.as_deref()];
    let result = planned.run(&terminal, files.into_iter().flatten())?;
    if !writes {
        return Ok(String::new());
    }
    of_maps.iter().for_each(|name| terminal.stage(name, ""));
    let errors = result.wavefront_errors(&system)?;
    let others = result.other_wavefront_errors(&system)?;
    let seconds = start.elapsed().as_secs_f64();
    let description = plan.describe(&engine)?;
    let report = ReconstructReport {
        args,
        system,
        plan,
        description,
        engine,
        result,
        errors,
        others,
        seconds,
    };
    // Write the reconstruction and its picture
    terminal.writes(output);
    let mut arrays = report.data_set();
    let origin = Provenance::new(&command_line(), &report.description.method, file.text());
    origin.clone().note(&mut arrays);
    let mut draft = AtomicFile::new(output)?;
    draft.fill(|file| arrays.write(file, format, args.engine.precision))?;
    drop(arrays);
    let telemetry = match (telemetry, &report.result.reconstructor) {
        (Some((path, loops)), Some(matrix)) => {
            terminal.writes(&path);
            let matrix = (matrix, report.result.to);
            let (of_system, by_engine) =
                ((&report.system, matrix), (&report.engine, args.engine.precision));
            Some(loops.draft(&path, of_system, by_engine, origin)?)
        }
        _ => None,
    };
    let drawing = picture.map(|(path, format)| {
        terminal.writes(path);
        AtomicFile::holding(path, &report.draw(format)?)
    });
    let drawing = drawing.transpose()?;
    check(&terminal)?;
    draft.publish()?;
    telemetry.map(AtomicFile::publish).transpose()?;
    drawing.map(AtomicFile::publish).transpose()?;
    terminal.finish();
    Ok(args.report.summary(|| report.summary(), || report.lines()))
}

// Options of a reconstruction
impl ReconstructArgs {
    /// What the system file says, and the arguments overrule.
    fn options(&self, file: &SystemFile) -> Result<ReconstructorOptions, Error> {
        let said = ReconstructorOptions::from_system_file(file)?;
        let matrices = [ExtraArray::CMm, ExtraArray::CTm, ExtraArray::CTt];
        let method = self.method.unwrap_or(said.method);
        let kept = matrices.iter().find(|matrix| self.save.contains(matrix));
        let to = self.to.unwrap_or(said.to);
        let expected = match (method, to) {
            (Inversion::Iterative, _) => {
                "no such array, as --method iterative never forms the covariances"
            }
            (_, ReconstructedQuantity::Wavefront) => {
                "no such array with --to wavefront: covariance --form dense writes the covariances"
            }
            _ => "",
        };
        if let Some(matrix) = kept.filter(|_| !expected.is_empty()) {
            let name = format!("{matrix:?}").replace('C', "c_").to_lowercase();
            return Err(Invalid::new("save", name, expected).into());
        }
        Ok(said
            .method(method)
            .filter(self.filter.unwrap_or(said.filter))
            .tolerance(self.tolerance.unwrap_or(said.tolerance))
            .errors_only(self.errors_only || said.errors_only)
            .to(to)
            .keep(matrices.iter().any(|matrix| self.save.contains(matrix))))
    }

    /// Refuses eigenvalues where there are none.
    fn check_extras(&self, plan: &ReconstructorPlan) -> Result<(), Error> {
        if self.save.contains(&ExtraArray::Eigenvalues) && plan.method() != Inversion::Eigen {
            let expected =
                "no such array, as only eigenvectors have them: --method eigen computes them";
            return Err(Invalid::new("save", "eigenvalues", expected).into());
        }
        let expected = "no telemetry, as only errors are asked for";
        let old = self.save.contains(&ExtraArray::Aot) && plan.errors_only();
        accept(!old, "save", "aot", expected)?;
        let to_wavefront = plan.to() == ReconstructedQuantity::Wavefront;
        let expected = match to_wavefront {
            true => "none with --to wavefront: telemetry has matrices of slopes or of actuators",
            false => expected,
        };
        match self.telemetry_file().filter(|_| plan.errors_only() || to_wavefront) {
            Some(path) => Err(Invalid::new("telemetry", path.display(), expected).into()),
            None => Ok(()),
        }
    }

    /// The file of the telemetry, if there shall be one: by its old option next to the output.
    fn telemetry_file(&self) -> Option<PathBuf> {
        let output = self.output.as_ref().filter(|_| self.save.contains(&ExtraArray::Aot));
        let next = output.map(|output| output.with_extension(TELEMETRY.trim_start_matches('.')));
        self.telemetry.clone().or(next)
    }
}

// Check the picture of a reconstruction
impl ReconstructArgs {
    /// Refuses a picture of what there is not.
    fn check_picture(&self, system: &System, plan: &ReconstructorPlan) -> Result<(), Error> {
        let targets = plan.shape()[0];
        let expected = match targets {
            1 if plan.to() == ReconstructedQuantity::Actuators => {
                "0, as one command matrix is for all targets".to_string()
            }
            _ => format!("a target between 0 and {}", targets - 1),
        };
        accept(
            self.target.unwrap_or(0) < targets,
            "--target",
            self.target.unwrap_or(0),
            &expected,
        )?;
        let expected = "none, except with --of reconstructor";
        let fits = self.target.is_none() || self.of == ReconstructorPlotKind::Reconstructor;
        accept(fits, "--target", self.target.unwrap_or(0), expected)?;
        let kept = (!plan.errors_only(), "only errors are asked for, and no reconstructor is kept");
        let eigen = plan.method() == Inversion::Eigen;
        let spectrum = (eigen, "only eigenvectors have a spectrum: --method eigen computes them");
        Ok(self.check_existing(system, kept, spectrum)?)
    }

    /// Refuses a picture of what does not exist, and lists those that do: there is a reconstructor, and a spectrum, or a reason why not.
    fn check_existing(
        &self,
        system: &System,
        reconstructor: (bool, &str),
        spectrum: (bool, &str),
    ) -> Result<(), Invalid> {
        let noise = "a map of noise needs some noise of a guide star: guide_star.noise, or a table [guide_star.sensor]";
        let pictures = [
            (ReconstructorPlotKind::Error, "error", (true, "")),
            (ReconstructorPlotKind::Reconstructor, "reconstructor", reconstructor),
            (ReconstructorPlotKind::Spectrum, "spectrum", spectrum),
            (ReconstructorPlotKind::Noise, "noise", (check_noise(system).is_ok(), noise)),
        ];
        let existing = pictures.iter().filter(|(_, _, (exists, _))| *exists);
        let existing: Vec<&str> = existing.map(|(_, name, _)| *name).collect();
        match pictures.iter().find(|(of, _, (exists, _))| *of == self.of && !exists) {
            Some((_, name, (_, needed))) => Err(value_parsers::no_picture(name, &existing, needed)),
            None => Ok(()),
        }
    }
}

// Arrays of a reconstruction
/// All that there is to tell.
struct ReconstructReport<'a> {
    args: &'a ReconstructArgs,
    system: System,
    plan: ReconstructorPlan,
    description: Description,
    engine: Engine,
    result: Reconstruction,
    errors: Vec<WavefrontError>,
    /// With a delay, those of the other choice about prediction.
    others: Option<Vec<WavefrontError>>,
    seconds: f64,
}

impl ReconstructReport<'_> {
    /// The reconstruction as a data set, of which only what was requested.
    fn data_set(&self) -> DataSet<'_> {
        let mut data = self.result.to_data_set(&self.system, &self.errors);
        for extra in ExtraArray::value_variants().iter().filter(|one| !self.args.save.contains(one))
        {
            if let Some(value) = extra.to_possible_value() {
                data.remove(value.get_name());
            }
        }
        data
    }
}

// Tell what was reconstructed
/// Numbers of guide stars, slopes and targets in words.
fn geometry(stars: usize, slopes: usize, targets: usize) -> String {
    let measured = [count(stars, "guide star"), count(slopes, "slope")].join(", ");
    format!("{measured}; {}", count(targets, "target"))
}

impl ReconstructReport<'_> {
    fn lines(&self) -> String {
        let (targets, m) = (self.errors.len(), self.plan.truth_slopes());
        let [commands, rows, n] = self.plan.shape();
        let stars = self.system.guide_stars().len();
        let nanometres = |metres: f64| format!("{:.0} nm", 1e9 * metres);
        let other = if self.plan.delay().1 { "without prediction" } else { "with prediction" };
        let about = |(t, error): (usize, &WavefrontError)| {
            let [with, without] = [error.rms, error.rms_without_tilt].map(nanometres);
            let others = self.others.as_ref().map(|others| nanometres(others[t].rms));
            let others = others.map_or(String::new(), |rms| format!("; {rms} {other}"));
            format!("{with} rms, {without} without tilt{others}")
        };
        let names: Vec<String> = (0..targets).map(|t| format!("target {t}")).collect();
        let mut method = self.description.reason.clone();
        if let Some((values, kept)) = &self.result.spectrum {
            method += &format!("; {kept} of {} kept", count(values.len(), "eigenvalue"));
        }
        let mut lines = vec![
            ("system", format!("{}, {}", geometry(stars, n, targets), self.unknowns())),
            ("method", method),
        ];
        let errors = self.errors.iter().enumerate().map(about);
        lines.extend(names.iter().map(String::as_str).zip(errors));
        let output = self.args.output.as_deref().unwrap_or("".as_ref());
        let written = match self.result.reconstructor {
            Some(_) => format!("reconstructor {commands} × {rows} × {n}"),
            None => format!("error_covariance {targets} × {m} × {m}"),
        };
        lines.extend([
            ("time", format!("{:.3} s on {}", self.seconds, self.description.engine)),
            file_line("output", output, &written),
        ]);
        let telemetry = self.args.telemetry_file();
        let further = [("telemetry", telemetry.as_deref()), ("plot", self.args.plot.as_deref())];
        lines.extend(file_lines(further));
        align(&lines)
    }

    /// The unknowns of the reconstruction in words.
    fn unknowns(&self) -> String {
        let ([_, rows, _], across) = (self.plan.shape(), self.errors[0].variance.nrows());
        match self.plan.to() {
            ReconstructedQuantity::Wavefront => format!("{across} × {across} points"),
            ReconstructedQuantity::Actuators => count(rows, "actuator"),
            _ => format!("{rows} slopes each"),
        }
    }

    // Tell of the reconstruction in json
    fn summary(&self) -> serde_json::Value {
        let (targets, n, to) = (self.errors.len(), self.plan.measurements(), self.plan.to());
        let to_wavefront = to == ReconstructedQuantity::Wavefront;
        let m = (!to_wavefront).then(|| self.plan.truth_slopes());
        let points = to_wavefront.then(|| self.errors[0].variance.nrows());
        let actuators = (to == ReconstructedQuantity::Actuators).then(|| self.plan.shape()[1]);
        let of = |rms: fn(&WavefrontError) -> f64| -> Vec<f64> {
            self.errors.iter().map(|error| 1e9 * rms(error)).collect()
        };
        let spectrum = self.result.spectrum.as_ref();
        let ((delay, predict), others) = (self.plan.delay(), self.others.as_ref());
        let rms = |errors: &Vec<WavefrontError>| -> Vec<f64> {
            errors.iter().map(|error| 1e9 * error.rms).collect()
        };
        let both = others.map(|others| [rms(&self.errors), rms(others)]);
        let of_prediction =
            |prediction: bool| both.as_ref().map(|both| &both[usize::from(predict != prediction)]);
        json!({
            "system": self.args.system.display().to_string(),
            "measurements": n,
            "to": to.name(),
            "truth_slopes": m,
            "points": points,
            "actuators": actuators,
            "targets": targets,
            "method": self.plan.method().name(),
            "kept": spectrum.map(|(_, kept)| kept),
            "error_nm": of(|error| error.rms),
            "error_nm_without_tilt": of(|error| error.rms_without_tilt),
            "delay": delay,
            "predict": predict,
            "error_nm_with_prediction": of_prediction(true),
            "error_nm_without_prediction": of_prediction(false),
            "precision": self.args.engine.precision.name(),
            "seconds": self.seconds,
            "threads": threads(),
            "output": file_json(self.args.output.as_deref()),
            "telemetry": file_json(self.args.telemetry_file().as_deref()),
            "plot": file_json(self.args.plot.as_deref()),
        })
    }
}

// Draw a reconstruction
impl ReconstructReport<'_> {
    fn draw(&self, format: PictureFormat) -> Result<Vec<u8>, Error> {
        let name = short_name(&self.args.system.display().to_string());
        let Reconstruction { reconstructor, spectrum, to, .. } = &self.result;
        match (self.args.of, reconstructor, spectrum) {
            (ReconstructorPlotKind::Reconstructor, Some(_), _) => {
                let target = self.args.target.unwrap_or(0);
                let title = match self.plan.shape()[0] {
                    1 if self.plan.to() == ReconstructedQuantity::Actuators => {
                        format!("{name}: command matrix")
                    }
                    _ => format!("{name}: reconstructor of target {target}"),
                };
                let (found, scale) = ((&self.result, target), self.args.scale);
                plot_reconstruction(found, &self.system, &title, scale, format)
            }
            (ReconstructorPlotKind::Spectrum, _, Some((values, kept))) => {
                let title = format!("{name}: eigenvalues of the covariance of the measurements");
                plot_spectrum(values, *kept, self.plan.filter(&self.engine), &title, format)
            }
            (ReconstructorPlotKind::Reconstructor | ReconstructorPlotKind::Spectrum, ..) => {
                unreachable!("refused before")
            }
            (ReconstructorPlotKind::Noise, ..) => {
                plot_noise_of_stars(&self.system, &noise_title(&name), format)
            }
            (ReconstructorPlotKind::Error, ..) => match to {
                ReconstructedQuantity::Wavefront => {
                    draw_point_errors(&self.errors, (&name, &self.system), format)
                }
                _ => draw_errors(&self.errors, (&name, self.system.truth_sensor().pitch()), format),
            },
        }
    }
}

// Draw errors of wavefronts
fn noise_title(name: &str) -> String {
    format!("{name}: noise of the slopes")
}

/// Draws the errors of some targets at the points of a system's grid that are in its pupil.
fn draw_point_errors(
    errors: &[WavefrontError],
    (name, system): (&str, &System),
    format: PictureFormat,
) -> Result<Vec<u8>, Error> {
    let step = system.wavefront_pitch() / system.wavefront_grid()?.oversampling as f64;
    draw_errors(&errors_in_pupil(errors, system)?, (name, step), format)
}

/// Draws the errors of some targets on grids of a step (m).
fn draw_errors(
    errors: &[WavefrontError],
    (name, step): (&str, f64),
    format: PictureFormat,
) -> Result<Vec<u8>, Error> {
    let map = |(t, error): (usize, &WavefrontError)| WavefrontMap {
        title: format!("target {t}: {:.0} nm rms", 1e9 * error.rms),
        values: error.variance.mapv(|variance| variance.clamp(0.0, f64::INFINITY).sqrt()),
    };
    let maps: Vec<WavefrontMap> = errors.iter().enumerate().map(map).collect();
    let title = format!("{name}: error of the wavefront");
    plot_wavefront_errors(&maps, &title, step, format)
}

// Errors at points into a file
/// Computes the errors of wavefronts for [`reconstruct`].
fn errors_at_points(
    args: &ReconstructArgs,
    (system, file): (&System, &SystemFile),
    options: ReconstructorOptions,
    (format, picture): (Option<Format>, Option<(&Path, PictureFormat)>),
) -> Result<String, Error> {
    args.check_points(system)?;
    let plan = PointErrorsPlan::new(system, options)?;
    let engine = suited(args.ranks.engine(args.engine.device, args.engine.precision)?, &plan);
    let engine = with_speed(engine, args.report.plan)?;
    let planned = PlannedRun::new(&plan, &engine);
    let Some((output, format)) = args.output.as_ref().zip(format).filter(|_| !args.report.plan)
    else {
        return planned.text(args.report.json);
    };
    let description = planned.describe()?;
    let (terminal, start) = (Terminal::new(args.report.quiet), Instant::now());
    let files = [Some(output.as_path()), args.plot.as_deref()].into_iter().flatten();
    let errors_of_points = planned.run(&terminal, files)?;
    let seconds = start.elapsed().as_secs_f64();
    // Write errors at points
    terminal.writes(output);
    let mut arrays = errors_of_points.to_data_set(system);
    Provenance::new(&command_line(), &description.method, file.text()).note(&mut arrays);
    let mut draft = AtomicFile::new(output)?;
    draft.fill(|file| arrays.write(file, format, args.engine.precision))?;
    let draw = |(path, format): (&Path, PictureFormat)| {
        terminal.writes(path);
        let name = short_name(&args.system.display().to_string());
        let drawn = match args.of {
            ReconstructorPlotKind::Noise => {
                plot_noise_of_stars(system, &noise_title(&name), format)?
            }
            _ => draw_point_errors(&errors_of_points.errors, (&name, system), format)?,
        };
        AtomicFile::holding(path, &drawn)
    };
    let drawing = picture.map(draw).transpose()?;
    check(&terminal)?;
    draft.publish()?;
    drawing.map(AtomicFile::publish).transpose()?;
    terminal.finish();
    let report = (args, plan.measurements(), &errors_of_points, options.tolerance);
    let lines = || lines_of_points(report, (system, seconds, &description.engine));
    Ok(args.report.summary(|| summary_of_points(report, seconds), lines))
}

// Check what errors at points are asked for
impl ReconstructArgs {
    /// Refuses arrays and pictures that errors at points have not.
    fn check_points(&self, system: &System) -> Result<(), Error> {
        let expected = "nothing with --to wavefront --errors-only, which has errors alone";
        accept(self.save.is_empty(), "save", self.save.len(), expected)?;
        let file = self.telemetry.as_deref().unwrap_or("".as_ref()).display();
        accept(self.telemetry.is_none(), "telemetry", file, expected)?;
        let errors = (false, "--to wavefront --errors-only has errors alone");
        Ok(self.check_existing(system, errors, errors)?)
    }
}

// Tell of errors at points
/// What was asked, of how many slopes, what was found, and to what tolerance.
type PointsReport<'a> = (&'a ReconstructArgs, usize, &'a PointErrors, f64);

fn lines_of_points(
    (args, n, result, _): PointsReport,
    (system, seconds, engine): (&System, f64, &str),
) -> String {
    let (stars, targets) = (system.guide_stars().len(), result.errors.len());
    let m = result.errors[0].variance.nrows();
    let names: Vec<String> = (0..targets).map(|t| format!("target {t}")).collect();
    let [mean, most] = [result.iterations.0, result.iterations.1 as f64];
    let mut lines = vec![
        ("system", format!("{}, {m} × {m} points", geometry(stars, n, targets))),
        ("method", format!("iterative: {mean:.1} iterations for a point, {most} at most")),
    ];
    for (name, error) in names.iter().zip(&result.errors) {
        let [with, without] = [error.rms, error.rms_without_tilt].map(|rms| 1e9 * rms);
        lines.push((name, format!("{with:.0} nm rms, {without:.0} nm without tilt")));
    }
    let output = args.output.as_deref().unwrap_or("".as_ref());
    lines.push(("time", format!("{seconds:.3} s on {engine}")));
    lines.push(file_line("output", output, &format!("error_map {targets} × {m} × {m}")));
    lines.extend(file_lines([("plot", args.plot.as_deref())]));
    align(&lines)
}

// Tell of errors at points in json
fn summary_of_points(
    (args, n, result, tolerance): PointsReport,
    seconds: f64,
) -> serde_json::Value {
    let of = |rms: fn(&WavefrontError) -> f64| -> Vec<f64> {
        result.errors.iter().map(|error| 1e9 * rms(error)).collect()
    };
    json!({
        "system": args.system.display().to_string(),
        "measurements": n,
        "to": "wavefront",
        "points": result.errors[0].variance.nrows(),
        "targets": result.errors.len(),
        "method": Inversion::Iterative.name(),
        "tolerance": tolerance,
        "iterations": result.iterations.0,
        "most_iterations": result.iterations.1,
        "interpolation_error": result.interpolation_error,
        "error_nm": of(|error| error.rms),
        "error_nm_without_tilt": of(|error| error.rms_without_tilt),
        "precision": args.engine.precision.name(),
        "seconds": seconds,
        "threads": threads(),
        "output": file_json(args.output.as_deref()),
        "plot": file_json(args.plot.as_deref()),
    })
}
