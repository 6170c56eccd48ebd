// Tangled from book/src/estimate-command.md: edit there, or here and run cargo tangle stitch.
//! The command `estimate`: from a file of slopes to a file of wavefronts.

// Imports of the command estimate
use super::examples::{self, words_and_examples};
use super::planned_run::{PlannedRun, suited};
use super::progress::{Terminal, with_speed};
use super::summary::{Outcome, align, command_line, count, file_json, file_line, file_lines};
use crate::command::value_parsers;
use crate::device;
use crate::device::engine::Engine;
use crate::error::{Error, Invalid};
use crate::estimation::estimate::{EstimateOptions, Estimates};
use crate::estimation::estimator::{EstimatePlan, Estimator};
use crate::estimation::inversion::Inversion;
use crate::files::Format;
use crate::files::atomic_file::{AtomicFile, check_files};
use crate::files::provenance::Provenance;
use crate::files::reading::split_choice;
use crate::formats::slopes::ReadSlopes;
use crate::linear::interpolation::Interpolation;
use crate::linear::solver::Solver;
use crate::model::system::System;
use crate::model::system_file::SystemFile;
use crate::model::wavefront_grid::PhaseGrid;
use crate::numerics::real::Precision;
use crate::plan::Plan;
use crate::plot::map::{WavefrontMap, plot_wavefronts, without_piston};
use crate::plot::{self, short_name};
use crate::tomography::reconstructor::ReconstructorOptions;
use crate::turbulence::plan::Form;
use crate::watch::check;
use clap::{Args, ValueEnum};
use ndarray::{Array2, ArrayView4, s};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

// Arguments of estimate
/// Help of `--precision`.
const PRECISION: &str = "Precision of the written numbers, and of the estimate; cores go on in double precision below a tolerance of 1e-5";

#[derive(Debug, Args)]
#[command(after_help = words_and_examples(value_parsers::SLOPES, examples::ESTIMATE))]
#[command(mut_arg("precision", |arg| arg.help(PRECISION)))]
pub struct EstimateArgs {
    /// System file (TOML), with targets and a grid of wavefront points.
    pub system: PathBuf,
    /// Slopes (.npy, .npz, FITS or telemetry), one vector, a row for each frame, a cube (frames, sensors, slopes) or an array for each sensor: in rad, unless FITS states a BUNIT or --unit is given; x.fits[2] chooses.
    #[arg(long, required_unless_present = "plan")]
    pub slopes: Option<PathBuf>,
    #[command(flatten)]
    pub stored: value_parsers::StoredSlopes,
    /// File to write: NumPy's .npz, or FITS if it ends in .fits, .fit or .fts.
    #[arg(short, long, required_unless_present = "plan")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub file: value_parsers::FileFormat,
    /// Draw the wavefronts of a frame into this file, .svg or .png.
    #[arg(long)]
    pub plot: Option<PathBuf>,
    /// Frame to draw, counted from 0: the first unless given.
    #[arg(long, value_name = "K", requires = "plot")]
    pub frame: Option<usize>,
    /// Multiply the slopes by the reconstructor in this file (.npz, .npy or FITS), in place of an estimate; x.npz[name] chooses an array.
    #[arg(long, value_name = "FILE")]
    pub reconstructor: Option<PathBuf>,
    // Arguments about the solver
    /// By a factor or by iterations, in place of what the system file says.
    #[arg(long, value_parser = value_parsers::inversions())]
    pub method: Option<Inversion>,
    /// Eigenvalues below this share of the largest are dropped, in place of what the system file says.
    #[arg(long)]
    pub filter: Option<f64>,
    /// The solver: cg unless given.
    #[arg(long, value_enum)]
    pub solver: Option<SolverName>,
    /// What speeds the solver up: circulant unless given.
    #[arg(long, value_enum)]
    pub preconditioner: Option<Preconditioner>,
    /// Largest relative residual that is accepted: 1e-6 unless given.
    #[arg(long)]
    pub tolerance: Option<f64>,
    /// Largest number of iterations for a frame: unless given, twice as many as slopes, and at least 1000.
    #[arg(long)]
    pub max_iterations: Option<usize>,
    /// Start each frame from the solution of the one before.
    #[arg(long)]
    pub warm_start: bool,

    // Arguments about form and frames
    /// Form of the covariances: dense is exact also for guide stars at a finite height, and needs much memory; auto unless given.
    #[arg(long, value_parser = value_parsers::forms())]
    pub form: Option<Form>,
    /// How layers are brought to the pupil, for guide stars at a finite height: cubic unless given.
    #[arg(long, value_parser = value_parsers::interpolations())]
    pub interpolation: Option<Interpolation>,
    #[command(flatten)]
    pub engine: value_parsers::EngineArgs,
    #[command(flatten)]
    pub report: value_parsers::ReportArgs,
}

// Names of the solvers
#[derive(Debug, Clone, Copy, Default, PartialEq, ValueEnum)]
pub enum SolverName {
    /// Conjugate gradients.
    #[default]
    Cg,
    /// Minimal residuals.
    Minres,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, ValueEnum)]
pub enum Preconditioner {
    /// The inverse of a circulant matrix near to the system's.
    #[default]
    Circulant,
    /// Nothing.
    None,
}

// Options of an estimate as asked
impl EstimateArgs {
    /// What the system file says, and the arguments overrule.
    fn options(&self, file: &SystemFile) -> Result<EstimateOptions, Error> {
        let said = ReconstructorOptions::from_system_file(file)?;
        let solver = self.solver_options();
        Ok(solver
            .method(self.method.unwrap_or(said.method))
            .filter(self.filter.unwrap_or(said.filter)))
    }

    /// Largest relative residual that is accepted.
    fn accepted_residual(&self) -> f64 {
        self.tolerance.unwrap_or(EstimateOptions::default().tolerance)
    }

    fn solver_options(&self) -> EstimateOptions {
        EstimateOptions::default()
            .form(self.form.unwrap_or_default())
            .exact(self.interpolation.is_none())
            .interpolation(self.interpolation.unwrap_or_default())
            .solver(match self.solver.unwrap_or_default() {
                SolverName::Cg => Solver::ConjugateGradients,
                SolverName::Minres => Solver::Minres,
            })
            .preconditioned(self.preconditioner.unwrap_or_default() == Preconditioner::Circulant)
            .tolerance(self.accepted_residual())
            .limited(self.max_iterations)
    }
}

// Estimate wavefronts from a file
/// Seconds of a plan beyond which it is worth while to measure the machine before a method is chosen.
const LONG: f64 = 10.0;

/// Estimates the wavefronts that the arguments ask for; returns what to print.
pub fn estimate(
    args: &EstimateArgs,
    read: Result<(System, SystemFile), Error>,
) -> Result<Outcome, Error> {
    // Check the files of the estimate
    let (format, picture) = args.check_outputs()?;
    let plot = args.plot.as_deref();
    let (system, file) = read?;
    if let Some((path, _)) = picture {
        check_lit(&system, path)?;
    }
    let plan = EstimatePlan::new(&system, args.options(&file)?)?;
    // Refuse an interpolation of nothing
    if let (Some(interpolation), false) = (args.interpolation, plan.interpolates()) {
        let expected = "no such option, as nothing is interpolated: layers have grids of their own only in the Toeplitz form, under \
                        guide stars at a finite height";
        return Err(Invalid::new("interpolation", interpolation.name(), expected).into());
    }
    // Print the plan or go on
    let (Some((output, format)), Some(slopes_file), false) =
        (args.output.as_ref().zip(format), &args.slopes, args.report.plan)
    else {
        // Print the plan of the command
        let opened = Engine::open(args.engine.device, args.engine.precision)?;
        let opened = with_speed(opened, true)?;
        let plan = plan.fitted(&opened)?;
        let engine = suited(opened, &plan);
        return Ok(PlannedRun::new(&plan, &engine).text(args.report.json)?.into());
    };
    // Read and check the slopes
    let stored = args.stored.format()?;
    let terminal = Terminal::new(args.report.quiet);
    terminal.reads(slopes_file);
    let slopes = ReadSlopes::from_file(slopes_file, &system, &stored)?.slopes;
    plan.check_slopes(slopes.view()).map_err(|error| of_file(error.into(), slopes_file))?;
    let plan = plan.frames(slopes.nrows())?;
    // Refuse a frame that is not there
    args.check_frame(slopes.nrows(), slopes_file)?;
    // Prepare the estimate and solve it
    let start = Instant::now();
    let opened = Engine::open(args.engine.device, args.engine.precision)?;
    let long = plan.describe(&suited(opened.clone(), &plan))?.seconds() > LONG;
    let plan = plan.fitted(&with_speed(opened.clone(), long)?)?;
    let engine = suited(opened, &plan);
    let planned = PlannedRun::new(&plan, &engine);
    let files = [Some(output.as_path()), plot].into_iter().flatten();
    let estimator = planned.run(&terminal, files)?;
    let built = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let estimates = estimator.estimate(slopes.view(), args.warm_start, &terminal);
    let estimates = estimates.map_err(|error| of_file(error, slopes_file))?;
    let solved = start.elapsed().as_secs_f64();
    // Refuse to round to infinity
    let largest = estimates.wavefront.iter().fold(0.0, |largest: f64, w| largest.max(w.abs()));
    if args.engine.precision == Precision::F32 && largest > f64::from(f32::MAX) {
        let expected = "f64, as the wavefronts are beyond the largest number of single precision";
        return Err(Invalid::new("precision", "f32", expected).into());
    }
    // Write the estimates and their picture
    let mut data = estimates.to_data_set(&system);
    let origin = Provenance::new(&command_line(), &planned.describe()?.method, file.text());
    origin.tolerance(Some(args.accepted_residual())).note(&mut data);
    terminal.writes(output);
    let mut draft = AtomicFile::new(output)?;
    draft.fill(|file| data.write(file, format, args.engine.precision))?;
    let drawing = picture.map(|(path, format)| {
        terminal.writes(path);
        AtomicFile::holding(path, &draw(args, &system, estimates.wavefront.view(), format)?)
    });
    let drawing = drawing.transpose()?;
    check(&terminal)?;
    draft.publish()?;
    drawing.map(AtomicFile::publish).transpose()?;
    terminal.finish();
    // Tell it in the form asked for
    let files = [slopes_file.as_path(), output.as_path()];
    let (method, form, seconds) = (plan.method(), plan.form(), [built, solved]);
    let formed = plan.forms_reconstructor();
    let report =
        EstimateReport { args, files, method, formed, form, engine, estimator, estimates, seconds };
    let text = args.report.summary(|| report.summary(), || report.lines());
    let warnings = report.misfit().into_iter().collect();
    Ok(Outcome { text, warnings, shortfall: report.shortfall() })
}

// Check the files to write
/// Format of the file to write, and path and format of the picture, where there are any.
type Outputs<'a> = (Option<Format>, Option<(&'a Path, plot::PictureFormat)>);

impl EstimateArgs {
    /// Refuses files that cannot be written or that are inputs as well.
    pub(super) fn check_outputs(&self) -> Result<Outputs<'_>, Error> {
        let plot = self.plot.as_deref();
        let picture = plot.map(|path| Ok::<_, Error>((path, plot::PictureFormat::of(path)?)));
        let picture = picture.transpose()?;
        let inputs = [
            Some(("system file", self.system.as_path())),
            self.slopes.as_deref().map(|path| ("slopes", split_choice(path).0)),
            self.reconstructor.as_deref().map(|path| ("reconstructor", split_choice(path).0)),
        ];
        let inputs: Vec<_> = inputs.into_iter().flatten().collect();
        let named = self.output.as_deref().map(|path| ("output", path));
        let fitting = &Format::OF_ARRAYS;
        let format = named
            .map(|name| Format::of(name, fitting, self.file.format(self.report.quiet)))
            .transpose()?;
        let outputs = [named, plot.map(|path| ("plot", path))];
        let outputs: Vec<_> = outputs.into_iter().flatten().filter(|_| !self.report.plan).collect();
        check_files(&inputs, &outputs)?;
        Ok((format, picture))
    }
}

// Refuse a frame beyond the last
impl EstimateArgs {
    /// Refuses a frame to draw that is not among so many in a file.
    pub(super) fn check_frame(&self, frames: usize, file: &Path) -> Result<(), Invalid> {
        let (frame, last) = (self.frame.unwrap_or(0), frames.saturating_sub(1));
        let expected = format!("a frame between 0 and {last}, as in {}", file.display());
        if frame > last { Err(Invalid::new("frame", frame, expected)) } else { Ok(()) }
    }
}

// Name the file in an error
/// An error about slopes, with the name of their file.
pub(super) fn of_file(error: Error, path: &Path) -> Error {
    match error {
        Error::Invalid(Invalid { quantity, value, expected }) => {
            Invalid::new(format!("{}: {quantity}", path.display()), value, expected).into()
        }
        other => other,
    }
}

// Tell what was estimated
/// The range of the iterations and the largest residual.
fn effort(estimates: &Estimates) -> (usize, usize, f64) {
    let counts = || estimates.iterations.iter().copied();
    let residual = estimates.residual.iter().copied().fold(0.0, f64::max);
    (counts().min().unwrap_or(0), counts().max().unwrap_or(0), residual)
}
/// A number in three digits behind the point, or as a power of ten where those say nothing.
fn brief(number: f64) -> String {
    if (0.01..1e4).contains(&number) { format!("{number:.3}") } else { format!("{number:.1e}") }
}
/// All that there is to tell.
struct EstimateReport<'a> {
    args: &'a EstimateArgs,
    /// Of the slopes, and of the wavefronts.
    files: [&'a Path; 2],
    method: Inversion,
    /// Whether a reconstructor was formed, by which the frames were multiplied.
    formed: bool,
    /// The form of the covariances.
    form: &'static str,
    engine: Engine,
    estimator: Estimator,
    estimates: Estimates,
    /// To prepare, and to solve.
    seconds: [f64; 2],
}

impl EstimateReport<'_> {
    // Tell what fell short
    /// What to say where some frames have not met the tolerance.
    fn shortfall(&self) -> Option<String> {
        let all = &self.estimates.shortfall;
        let (frame, reason) =
            all.iter().enumerate().find_map(|(k, reason)| Some((k, reason.as_ref()?)))?;
        let (short, frames) = (all.iter().flatten().count(), all.len());
        let residual = self.estimates.residual[frame];
        Some(format!(
            "{short} of {} fell short of the tolerance {:e}: in frame {frame}, {reason}. All frames are written, these \
             as far as they came (relative residual {residual:.1e} in frame {frame}) and marked in `converged`. A larger --tolerance \
             may do as well, more --max-iterations may help, and so does the noise that the guide stars really have: without any, \
             slopes are told apart that hardly differ",
            count(frames, "frame"),
            self.args.accepted_residual()
        ))
    }
    /// The average χ²/n over the frames that converged, with the smallest and the largest, if there is any.
    fn fit(&self) -> Option<[f64; 3]> {
        let converged = self.estimates.converged();
        let frames = self.estimates.chi_squared.iter().zip(converged);
        let measured = frames.filter(|(fit, converged)| *converged && fit.is_finite());
        let fits: Vec<f64> = measured.map(|(&fit, _)| fit).collect();
        let least = fits.iter().copied().reduce(f64::min)?;
        let most = fits.iter().copied().reduce(f64::max)?;
        Some([fits.iter().map(|fit| fit / fits.len() as f64).sum(), least, most])
    }

    /// What to say where slopes and model do not fit.
    fn misfit(&self) -> Option<String> {
        let [mean, ..] = self.fit()?;
        (!(0.5..=2.0).contains(&mean)).then(|| {
            format!(
                "χ²/n = {} on average, and 1 is expected: slopes and system do not fit each other. Are the slopes in \
                 radians, star by star, all x before all y, and are r0, layers and noise those of the recording?",
                brief(mean)
            )
        })
    }

    // Cost of the interpolation
    /// Root mean square over all frames of the error that interpolation adds, nm, and in percent of that of the estimate, if it is measured.
    fn cost_of_interpolation(&self) -> Option<[f64; 2]> {
        let (errors, wavefront) = (&self.estimates.interpolation, &self.estimates.wavefront);
        let mean = |sum: f64, count: usize| (sum / count.max(1) as f64).sqrt();
        let squares = |numbers: &mut dyn Iterator<Item = &f64>| numbers.map(|x| x * x).sum::<f64>();
        let rms = mean(squares(&mut errors.iter()), errors.len());
        let whole = mean(squares(&mut wavefront.iter()), wavefront.len());
        let percent = if whole > 0.0 { 100.0 * rms / whole } else { 0.0 };
        (!errors.is_empty()).then_some([1e9 * rms, percent])
    }

    // Tell of the estimate in lines
    fn lines(&self) -> String {
        let (frames, targets, points, _) = self.estimates.wavefront.dim();
        let (least, most, residual) = effort(&self.estimates);
        let range = |noun| {
            if least == most { count(most, noun) } else { format!("{least} to {most} {noun}s") }
        };
        let (slopes, file) = (self.estimator.slopes(), self.files[0].display());
        let written = format!("wavefront {frames} × {targets} × {points} × {points}");
        let mut lines = vec![("slopes", format!("{frames} × {slopes} from {file}"))];
        // Say it in lines
        lines.push(("form", self.form.into()));
        let error = self.estimator.interpolation_error();
        if error > 0.0 {
            let name = self.args.interpolation.unwrap_or_default().name();
            let cost = self.cost_of_interpolation().map_or_else(
                || format!("error about {error:.1e} of the largest covariance"),
                |[rms, percent]| {
                    format!("it adds an error of {rms:.1} nm rms, {percent:.2} % of the estimate")
                },
            );
            lines.push(("layers", format!("{name} interpolation: {cost}")));
        }
        let ([built, solved], engine) = (self.seconds, self.engine.name());
        let solver = match self.method {
            _ if self.formed => {
                let by = if self.method == Inversion::Eigen { "eigenvectors" } else { "a factor" };
                let rows = targets * points * points;
                format!("reconstructor of {rows} × {slopes} elements, formed once by {by}")
            }
            Inversion::Iterative => range("iteration"),
            Inversion::Eigen => "eigenvectors, filtered".into(),
            _ => format!("Cholesky's factor, {}", range("refinement")),
        };
        lines.push(("solver", format!("{solver}, relative residual {residual:.1e}")));
        if let Some([mean, least, most]) = self.fit() {
            let scatter = (2.0 / slopes as f64).sqrt();
            let [mean, least, most] = [mean, least, most].map(brief);
            let text = format!(
                "χ²/n = {mean} on average, from {least} to {most}, where 1 ± {scatter:.3} is expected"
            );
            lines.push(("fit", text));
        }
        lines.extend([
            ("time", format!("{built:.3} s to prepare, {solved:.3} s to solve, on {engine}")),
            file_line("output", self.files[1], &written),
        ]);
        lines.extend(file_lines([("plot", self.args.plot.as_deref())]));
        align(&lines)
    }

    // Tell of the estimate in json
    fn summary(&self) -> serde_json::Value {
        let (args, estimator, estimates) = (self.args, &self.estimator, &self.estimates);
        let interpolates = estimator.interpolation_error() > 0.0;
        let cost = self.cost_of_interpolation();
        json!({
            "system": args.system.display().to_string(),
            "slopes": estimator.slopes(),
            "shape": estimates.wavefront.shape(),
            "iterations": estimates.iterations,
            "residual": estimates.residual,
            "chi_squared": estimates.chi_squared,
            "converged": estimates.converged(),
            "shortfall": estimates.shortfall,
            // Repeat what was asked for
            "method": self.method.name(),
            "forms_reconstructor": self.formed,
            "form": self.form,
            "solver": format!("{:?}", args.solver.unwrap_or_default()).to_lowercase(),
            "preconditioner": format!("{:?}", args.preconditioner.unwrap_or_default()).to_lowercase(),
            "tolerance": args.accepted_residual(),
            "max_iterations": args.solver_options().limit(self.estimator.slopes()),
            "warm_start": args.warm_start,
            "precision": args.engine.precision.name(),
            "interpolation": interpolates.then(|| args.interpolation.unwrap_or_default().name()),
            "interpolation_error": estimator.interpolation_error(),
            "interpolation_nm": cost.map(|[rms, _]| rms),
            "interpolation_percent": cost.map(|[_, percent]| percent),
            "bytes_of_slopes_operator": estimator.bytes()[0],
            "bytes_of_wavefront_operator": estimator.bytes()[1],
            "seconds_to_prepare": self.seconds[0],
            "seconds_to_solve": self.seconds[1],
            // Name machine and files
            "threads": device::threads(),
            "device": args.engine.device.to_string(),
            "computed_on": self.engine.name(),
            "output": file_json(Some(self.files[1])),
            "plot": file_json(args.plot.as_deref()),
        })
    }
}

// Draw the estimate of a frame
/// A picture of the wavefronts of a frame, (frames, T, M, M).
pub(super) fn draw(
    args: &EstimateArgs,
    system: &System,
    wavefront: ArrayView4<f64>,
    format: plot::PictureFormat,
) -> Result<Vec<u8>, Error> {
    let (grid, frame) = (system.wavefront_grid()?, args.frame.unwrap_or(0));
    let maps: Vec<WavefrontMap> = (0..wavefront.dim().1)
        .map(|t| {
            let estimated = wavefront.slice(s![frame, t, .., ..]);
            let values = Array2::from_shape_fn(estimated.dim(), |(j, i)| {
                if is_lit(system, &grid, [j, i]) { estimated[[j, i]] } else { f64::NAN }
            });
            let (values, rms) = without_piston(&values);
            WavefrontMap { title: format!("target {t}: {:.0} nm rms", 1e9 * rms), values }
        })
        .collect();
    let name = args.system.display().to_string();
    let title = format!("{}: wavefronts of frame {frame}", short_name(&name));
    plot_wavefronts(&maps, &title, system.wavefront_pitch() / grid.oversampling as f64, format)
}

// Wavefront points within the pupil
/// Whether a point of the grid, \[row, column\], is in the pupil.
fn is_lit(system: &System, grid: &PhaseGrid, [j, i]: [usize; 2]) -> bool {
    let point = [i, j].map(|m| grid.coordinate(m, system.wavefront_pitch()));
    system.pupil().is_none_or(|pupil| pupil.contains(point))
}

/// Refuses a picture of a system whose wavefront points are all outside of the pupil.
pub(super) fn check_lit(system: &System, path: &Path) -> Result<(), Error> {
    let grid = system.wavefront_grid()?;
    let points = grid.points;
    if (0..points * points).any(|k| is_lit(system, &grid, [k / points, k % points])) {
        return Ok(());
    }
    let expected = "no picture, as none of the wavefront points is within the pupil";
    Err(Invalid::new("plot", path.display(), expected).into())
}
