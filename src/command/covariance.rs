// Tangled from book/src/covariance-command.md: edit there, or here and run cargo tangle stitch.
//! The command `covariance`: from a system file to a file of covariances.

// Imports of the command covariance
use super::examples::{self, examples};
use super::planned_run::PlannedRun;
use super::progress::{Terminal, with_speed};
use super::summary::{Summary, command_line, method_and_error};
use crate::command::value_parsers;
use crate::error::{Error, Invalid};
use crate::files::Format;
use crate::files::atomic_file::{AtomicFile, check_files};
use crate::files::provenance::Provenance;
use crate::model::system::System;
use crate::model::system_file::SystemFile;
use crate::plot::{ColourScale, CovarianceView, PictureFormat, ShownPairs};
use crate::plot::{plot_covariance, plot_wavefront_covariance};
use crate::turbulence::plan::{
    CovarianceOptions, CovariancePlan, Covariances, Form, Method, SlopeSlope, WavefrontSlopes,
};
use crate::turbulence::spectral::slope::SpectralSampling;
use crate::watch::check;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Instant;

// Arguments of covariance
#[derive(Debug, Args)]
#[command(after_help = examples(examples::COVARIANCE))]
pub struct CovarianceArgs {
    /// System file (TOML).
    pub system: PathBuf,
    // Arguments about the file to write
    /// File to write: NumPy's .npz, or FITS if it ends in .fits, .fit or .fts.
    #[arg(short, long, required_unless_present = "plan")]
    output: Option<PathBuf>,
    #[command(flatten)]
    file: value_parsers::FileFormat,
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
    #[arg(long, value_parser = value_parsers::forms(), default_value = "auto")]
    form: Form,
    #[command(flatten)]
    engine: value_parsers::EngineArgs,
    // Arguments about what is shown
    /// Draw the covariance into this file, .svg or .png.
    #[arg(long)]
    plot: Option<PathBuf>,
    /// What to draw.
    #[arg(long, value_enum, requires = "plot", default_value = "slopes")]
    of: PlottedCovariance,
    /// Pair of guide stars to draw, or of a target and a guide star, counted from 0; or all. All of a small system, else 0,0.
    #[arg(long, value_name = "P,Q|all", requires = "plot", value_parser = parse_pair)]
    pair: Option<ShownPairs>,
    /// Component to draw: xx, xy or yy of slopes, x or y of wavefronts with slopes; or all.
    #[arg(long, requires = "plot", value_parser = value_parsers::components(), default_value = "all")]
    component: value_parsers::Components,
    /// Scale of the colours.
    #[arg(long, requires = "plot", value_parser = value_parsers::scales(), default_value = "root")]
    scale: ColourScale,
    #[command(flatten)]
    report: value_parsers::ReportArgs,
}

// Names of the methods
#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum MethodName {
    /// In real space, exact.
    Direct,
    /// Through the power spectrum.
    Spectral,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum PlottedCovariance {
    /// The covariance of the slopes among themselves.
    Slopes,
    /// The covariance of the wavefronts with the slopes.
    Wavefront,
}

fn parse_pair(text: &str) -> Result<ShownPairs, Invalid> {
    let numbers = text.split_once(',').map(|(p, q)| (p.trim().parse(), q.trim().parse()));
    match numbers {
        Some((Ok(p), Ok(q))) => Ok(ShownPairs::One(p, q)),
        _ if text == "all" => Ok(ShownPairs::All),
        _ => Err(Invalid::new("pair", text, "two numbers counted from 0, such as 0,1, or all")),
    }
}

// Compute a covariance for a file
/// Computes the covariances that the arguments ask for; returns what to print.
pub fn covariance(
    args: &CovarianceArgs,
    read: Result<(System, SystemFile), Error>,
) -> Result<String, Error> {
    // Check the output and the plot
    let plot = args.plot.as_deref();
    let picture =
        plot.map(|path| PictureFormat::of(path).map(|format| (path, format))).transpose()?;
    let named = args.output.as_deref().map(|path| ("output", path));
    let fitting = &Format::OF_ARRAYS;
    let format = named
        .map(|name| Format::of(name, fitting, args.file.format(args.report.quiet)))
        .transpose()?;
    let outputs = [named, plot.map(|path| ("plot", path))];
    let outputs: Vec<_> = outputs.into_iter().flatten().filter(|_| !args.report.plan).collect();
    check_files(&[("system file", &args.system)], &outputs)?;
    let (system, file) = read?;
    let plan = CovariancePlan::new(&system, options(args)?)?;
    // Settle what can be drawn
    if let ("blocks" | "dense", Some(path)) = (plan.form(), &args.plot) {
        let expected = format!(
            "no picture: it shows displacements, and the {} form has none that all stars share",
            plan.form()
        );
        return Err(Invalid::new("plot", path.display(), expected).into());
    }
    let view = args.plot.as_ref().map(|_| view(args, &plan)).transpose()?;
    let engine = with_speed(args.engine.engine(&plan)?, args.report.plan)?;
    let planned = PlannedRun::new(&plan, &engine);
    let (Some(output), Some(format), false) = (&args.output, format, args.report.plan) else {
        return planned.text(args.report.json);
    };
    // Compute and watch the clock
    let terminal = Terminal::new(args.report.quiet);
    let start = Instant::now();
    let files = [Some(output.as_path()), plot].into_iter().flatten();
    let computed = planned.run(&terminal, files)?;
    let seconds = start.elapsed().as_secs_f64();

    // Write the covariance and its picture
    terminal.writes(output);
    let mut archive = AtomicFile::new(output)?;
    let mut arrays = computed.to_data_set(&system);
    let (method, error) = method_and_error(&plan, args.engine.device, args.engine.precision);
    Provenance::new(&command_line(), &method, file.text()).tolerance(Some(error)).note(&mut arrays);
    archive.fill(|file| arrays.write(file, format, args.engine.precision))?;
    let drawing = picture.zip(view.as_ref()).map(|((path, drawn_as), view)| {
        terminal.writes(path);
        AtomicFile::holding(path, &draw(args, (&computed, &system), (view, drawn_as))?)
    });
    let drawing = drawing.transpose()?;
    check(&terminal)?;
    let bytes = archive.publish()?;
    drawing.map(AtomicFile::publish).transpose()?;
    terminal.finish();

    // Sum up what was done
    let summary = Summary {
        file: &args.system,
        output,
        plot,
        format,
        precision: args.engine.precision,
        device: args.engine.device,
        engine: engine.name(),
        plan: &plan,
        arrays: arrays.shapes(),
        variance: computed.slope_slope.variance(),
        seconds,
        bytes,
    };
    Ok(args.report.summary(|| summary.json(), || summary.lines()))
}

// Options of a covariance as asked
/// What the arguments ask for.
fn options(args: &CovarianceArgs) -> Result<CovarianceOptions, Error> {
    let given = args.samples.zip(args.oversampling);
    let method = match (args.method, given) {
        (MethodName::Direct, None) => Method::Direct,
        (MethodName::Direct, Some((samples, _))) => {
            let expected = "no such option, except with --method spectral";
            return Err(Invalid::new("samples", samples, expected).into());
        }
        (MethodName::Spectral, given) => {
            let sampling = given.map(|(n, kappa)| SpectralSampling::new(n, kappa));
            Method::Spectral(sampling.transpose()?)
        }
    };
    Ok(CovarianceOptions::default().form(args.form).method(method))
}

// Choose what the picture shows
/// What the picture shall show, checked.
fn view(args: &CovarianceArgs, plan: &CovariancePlan) -> Result<CovarianceView, Error> {
    let view = CovarianceView::of(args.system.display().to_string())
        .pairs(args.pair)
        .component(args.component.0)
        .scale(args.scale);
    match (args.of, plan.wavefront()) {
        (PlottedCovariance::Slopes, _) => {
            view.check_slopes(plan.system().guide_stars().len()).map(drop)?
        }
        (PlottedCovariance::Wavefront, Some(wavefront)) => {
            view.check_wavefront(wavefront.problem()).map(drop)?
        }
        (PlottedCovariance::Wavefront, None) => {
            let needed = "wavefronts need a [[target]] and a table [phase]";
            return Err(value_parsers::no_picture("wavefront", &["slopes"], needed).into());
        }
    }
    Ok(view)
}

/// The picture that the arguments ask for; of other forms than Toeplitz there is none.
fn draw(
    args: &CovarianceArgs,
    (computed, system): (&Covariances, &System),
    (view, format): (&CovarianceView, PictureFormat),
) -> Result<Vec<u8>, Error> {
    match (args.of, &computed.slope_slope, &computed.wavefront_slope) {
        (PlottedCovariance::Slopes, SlopeSlope::Toeplitz(slopes), _) => {
            plot_covariance(slopes, system, view, format)
        }
        (PlottedCovariance::Wavefront, _, Some(WavefrontSlopes::Toeplitz(problem, covariance))) => {
            plot_wavefront_covariance((problem, covariance), system, view, format)
        }
        _ => unreachable!("other forms are refused before"),
    }
}
