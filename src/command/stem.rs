// Tangled from book/src/stem-command.md: edit there, or here and run cargo tangle stitch.
//! The command `stem`: from a sample file to what detectors read at each place of a scan.
mod plane_wave;
pub(super) mod sample_report;

// Imports of the command stem
use self::sample_report::{add_summary, plan_with_summary, summary_lines, warn};
use super::examples::{self, examples};
use super::planned_run::PlannedRun;
use super::prismatic::FromPrismatic;
use super::progress::{Terminal, with_speed};
use super::summary::{align, command_line, count, file_json, file_line, file_lines};
use super::value_parsers;
use super::watch::complain;
use crate::data::{DataSet, Element};
use crate::device::{Device, Engine};
use crate::electrons::sample_file::{Algorithm, SampleFile};
use crate::electrons::{Comparison, DetectorError, Finishing, Intermediate, SampleSummary};
use crate::electrons::{StemMethod, StemPlan, StemReadings, StemRunOptions};
use crate::error::{Error, Invalid, accept, positive};
use crate::files::Format;
use crate::files::atomic_file::{AtomicFile, check_distinct, check_files, check_length};
use crate::files::atomic_file::{check_names, check_outside};
use crate::files::provenance::Provenance;
use crate::numerics::Precision;
use crate::numerics::real::Real;
use crate::plan::Stage;
use crate::plot::{PictureFormat, ScanPicture, plot_scan, short_name};
use crate::watch::{Watch, WithinStage, check};
use clap::{Args, ValueEnum};
use num_complex::Complex;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

// Arguments of stem
#[derive(Debug, Args)]
#[command(after_help = examples(examples::STEM))]
pub struct StemArgs {
    /// Sample file (TOML), with a crystal, a beam and what detectors shall read.
    #[arg(required_unless_present = "prismatic")]
    sample: Option<PathBuf>,
    // Arguments in place of a sample file
    /// A command line of Prismatic in place of a sample file, such as "-i SI100.XYZ -a m -te 0".
    #[arg(long, value_name = "LINE", allow_hyphen_values = true, conflicts_with = "sample")]
    prismatic: Option<String>,
    /// Write the sample file that a command line of Prismatic amounts to, and stop.
    #[arg(long, value_name = "FILE", requires = "prismatic")]
    write_sample: Option<PathBuf>,
    /// File to write: .emd (or .h5, .hdf5) for py4DSTEM and HyperSpy, HyperSpy's .hspy or .zspy, a folder in .zarr or an archive in .zarr.zip, .mrc, or
    /// NumPy's .npz; a share's readings may have any name.
    #[arg(short, long, required_unless_present_any = ["plan", "prismatic"])]
    output: Option<PathBuf>,
    /// Compute the K-th of N parts of the scan, K/N, and write its readings for --collect.
    #[arg(long, value_parser = read_share, conflicts_with = "collect")]
    share: Option<[usize; 2]>,
    /// Join these shares instead of computing anything.
    #[arg(long, num_args = 1..)]
    collect: Vec<PathBuf>,
    /// The signal that a file in MRC holds, such as annulus_0.
    #[arg(long)]
    signal: Option<String>,
    /// Draw the crystal and what was read of it into this file, .svg or .png.
    #[arg(long, conflicts_with = "share")]
    plot: Option<PathBuf>,
    // Arguments about what stem adds
    /// Further arrays to write into the output, separated by commas: of a scan its potential, smatrix and probe, of images of a plane wave the potential and
    /// the exit wave.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "ARRAYS",
        conflicts_with = "share"
    )]
    save: Vec<Extra>,
    /// Compare PRISM with multislice at so many places of the scan, drawn at random: print its error by detector, and write the exit waves of both methods.
    #[arg(long, value_name = "N", conflicts_with = "share")]
    compare: Option<usize>,
    /// Seconds between two checkpoints, which stand beside the output as OUTPUT.checkpoint until it is written.
    #[arg(long, default_value_t = 60.0)]
    checkpoint: f64,
    /// Precision of waves, in place of what the sample file says.
    #[arg(long, value_parser = value_parsers::precisions())]
    precision: Option<Precision>,
    /// Where to compute: cpu, which is the default, cuda (all graphics processors), or cuda:K (one of them).
    #[arg(long)]
    device: Option<Device>,
    /// Let the cores of this machine compute beside its graphics processors.
    #[arg(long)]
    cores: bool,
    // Arguments about what stem says
    #[command(flatten)]
    report: value_parsers::ReportArgs,
}

// Things that may be asked for
/// What is written if it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Extra {
    /// The potential of all slices.
    Potential,
    /// What PRISM's beams have become behind the specimen.
    Smatrix,
    /// The probe at the first place of the scan.
    Probe,
    /// The exit wave of a plane wave.
    Wave,
}

// Read a share
/// The numbers of `K/N`.
fn read_share(text: &str) -> Result<[usize; 2], String> {
    let numbers = text.split_once('/').map(|(k, n)| (k.parse(), n.parse()));
    match numbers {
        Some((Ok(k), Ok(n))) => Ok([k, n]),
        _ => Err("expected K/N, such as 3/8".into()),
    }
}

// What is asked of stem
// Name of the sample
impl StemArgs {
    /// The sample file, or what stands in its place.
    fn name(&self) -> String {
        self.sample.as_ref().map_or("--prismatic".into(), |path| path.display().to_string())
    }
}

/// What arguments and a line of Prismatic ask for together.
struct ScanRequest {
    file: SampleFile,
    line: Option<FromPrismatic>,
    output: Option<PathBuf>,
    save: Vec<Extra>,
    device: Device,
}

impl ScanRequest {
    fn read(args: &StemArgs) -> Result<Self, Error> {
        let line = args.prismatic.as_deref().map(FromPrismatic::read).transpose()?;
        // Sample file or text of the line
        let file = match (&args.sample, &line) {
            (Some(path), _) => SampleFile::from_file(path)?,
            (None, line) => {
                let text = line.as_ref().map_or("", |line| &line.text);
                SampleFile::from_toml(text, &args.name())?
            }
        };
        // Require an output or a plan
        let named = line.as_ref().and_then(|line| line.output.clone());
        let output = args.output.clone().or(named);
        let done = output.is_some() || args.report.plan || args.write_sample.is_some();
        accept(done, "output", "nothing", "-o FILE here or in the line of Prismatic, or --plan")?;
        // Join what both ask to save
        let besides = line.as_ref().map_or(&[][..], |line| &line.save);
        let besides = besides.iter().filter_map(|name| Extra::from_str(name, true).ok());
        let mut save = args.save.clone();
        besides.for_each(|extra| {
            if !save.contains(&extra) {
                save.push(extra)
            }
        });
        let device = line.as_ref().and_then(|line| line.device);
        let device = args.device.or(device).unwrap_or(Device::Cpu);
        Ok(Self { file, line, output, save, device })
    }

    // Files that a scan reads
    /// Files that are read, and so must not be written.
    fn inputs<'a>(&'a self, args: &'a StemArgs) -> Vec<(&'static str, &'a Path)> {
        let aberrations = self.line.as_ref().and_then(|line| line.aberrations.as_deref());
        let sample = args.sample.as_deref().map(|path| ("sample file", path));
        let list = aberrations.map(|path| ("list of aberrations", path));
        let crystal = self.file.sample.crystal.file().map(|path| ("crystal", path));
        [sample, crystal, list].into_iter().flatten().collect()
    }
}

// Scan a sample
/// Computes what the arguments ask for; returns what to print.
pub fn stem(args: &StemArgs) -> Result<String, Error> {
    let request = ScanRequest::read(args)?;
    let file = &request.file;
    // Say what becomes of a line of Prismatic
    if let Some(line) = &request.line {
        let notes = line.notes.iter().filter(|_| !args.report.quiet);
        notes.for_each(|note| complain("note", note));
        if let Some(path) = &args.write_sample {
            check_files(&request.inputs(args), &[("sample file", path)])?;
            AtomicFile::holding(path, line.text_beside(path)?.as_bytes())?.publish()?;
            let written = align(&[file_line("output", path, "")]);
            return Ok(if args.report.quiet { String::new() } else { written });
        }
    }
    let engine = Engine::open(request.device, args.precision.unwrap_or(file.run.precision))?;
    let engine = if args.cores { engine.with_cores() } else { engine };
    // Check the files of a scan
    let named = request.output.as_deref().map(|path| ("output", path));
    let whole = named.filter(|_| args.share.is_none());
    let format = whole.map(|it| Format::of(it, &Format::WITH_COORDINATES, None)).transpose()?;
    positive("checkpoint", args.checkpoint)?;
    let mut inputs = request.inputs(args);
    inputs.extend(args.collect.iter().map(|path| ("share", path.as_path())));
    let picture = args.plot.as_deref();
    let picture =
        picture.map(|path| PictureFormat::of(path).map(|format| (path, format))).transpose()?;
    let outputs = [named, picture.map(|(path, _)| ("plot", path))];
    let outputs: Vec<_> = outputs.into_iter().flatten().filter(|_| !args.report.plan).collect();
    check_names(&inputs, &outputs)?;
    for &(role, path) in &outputs {
        match format.filter(|_| role == "output") {
            Some(format) => format.check_output(path)?,
            None => drop(AtomicFile::new(path)?),
        }
    }
    if let Some(output) = named.filter(|_| format == Some(Format::Zarr)) {
        inputs.iter().chain(&outputs).try_for_each(|other| check_outside(output, *other))?;
    }
    let keeps = file.method.algorithm != Algorithm::Hrtem && args.collect.is_empty();
    if let Some((role, output)) = named.filter(|_| !args.report.plan && keeps) {
        check_length((role, output), CHECKPOINT)?;
        let kept = checkpoint(output);
        for &other in inputs.iter().chain(&outputs) {
            check_distinct(("checkpoint", &kept), other)?;
        }
    }
    if file.method.algorithm == Algorithm::Hrtem {
        return plane_wave::image(&request.images(args, picture)?, file, engine, format);
    }
    // Plan a scan and its additions
    let (plan, summary) = file.plan_with_summary()?;
    warn(&summary);
    let engine = with_speed(engine, args.report.plan)?;
    let mut planned = PlannedRun::new(&plan, &engine);
    // Plan what is added to a scan
    for extra in &request.save {
        let intermediate = extra.of_scan(&plan)?;
        planned = planned.with_bytes(plan.intermediate_bytes(intermediate, engine.precision()));
    }
    if let Some(count) = args.compare {
        plan.by_multislice(count)?;
        planned = planned.with_stages([plan.comparing(count, &engine)]);
        planned = planned.with_bytes(plan.compared_bytes(count, engine.precision()));
    }
    let description = planned.describe()?;
    let Some(output) = request.output.as_ref().filter(|_| !args.report.plan) else {
        return Ok(plan_with_summary(&description, &summary, args.report.json));
    };
    planned.check()?;
    // Check the variable of an image file
    let signal = args.signal.as_deref();
    let besides = |extra: &Extra| {
        extra.to_possible_value().is_some_and(|value| Some(value.get_name()) == signal)
    };
    if format == Some(Format::Mrc) && !request.save.iter().any(besides) {
        let mut none = plan.begin(0..plan.places())?;
        none.done = [plan.configurations(), 0];
        none.to_data_set::<f32>(&plan, &file.finishing(&plan))?.check(Format::Mrc, signal)?;
    }
    let (terminal, start) = (Terminal::new(args.report.quiet), Instant::now());
    // Gather what a run needs
    let run = ScanJob {
        args,
        plan: &plan,
        summary: &summary,
        lenient: file.method.lenient,
        engine: &engine,
        fingerprint: plan.fingerprint(&engine),
        finishing: file.finishing(&plan),
        save: &request.save,
    };
    let is_new = args.collect.is_empty();
    // Plan the progress of a scan
    let counted = plan.counting(&engine)?.filter(|_| is_new && !checkpoint(output).exists());
    let job = || {
        let mut job = description.clone();
        if !is_new {
            job.stages = run.comparison_stage().into_iter().collect();
        }
        job.stages.extend(counted);
        Ok(job)
    };
    let picture_file = picture.map(|(path, _)| path);
    terminal.plan(job, [Some(output.as_path()), picture_file].into_iter().flatten())?;

    // Compute or join the readings
    let (readings, resumed) = match is_new {
        true => run.compute(output, &terminal)?,
        false => (run.join()?, None),
    };
    check(&terminal)?;
    let comparison = run.compare(&readings, file.phonons.seed, &terminal)?;
    // Write readings or images
    terminal.writes(output);
    match format {
        None => readings.write(output, run.fingerprint)?,
        Some(format) => {
            let origin = Provenance::new(&command_line(), &description.method, file.text());
            let compared = comparison.as_ref().filter(|_| format != Format::Mrc);
            run.write((&readings, compared), (output, format), picture, origin, &terminal)?;
        }
    }
    // Remove the checkpoint of a scan
    if args.collect.is_empty() {
        StemReadings::remove(&checkpoint(output), &plan, run.fingerprint)?;
    }
    terminal.finish();
    // Warn of large errors of PRISM
    let warnings =
        comparison.as_ref().map_or_else(Vec::new, |comparison| comparison.warnings(&plan));
    warnings.iter().for_each(|warning| complain("warning", warning));
    let summary =
        SampleSummary { warnings: [&summary.warnings[..], &warnings].concat(), ..summary.clone() };
    // Summary of a scan
    let run = ScanJob { summary: &summary, ..run };
    let results = (&readings, comparison.as_ref(), resumed);
    Ok(run.summary(results, output, start.elapsed().as_secs_f64()))
}

// Things kept of a scan
impl Extra {
    /// What it is of a scan.
    fn of_scan(self, plan: &StemPlan) -> Result<Intermediate, Invalid> {
        let prism = matches!(plan.options().method, StemMethod::Prism { .. });
        let refused = |name, algorithm| {
            let expected = format!("a sample file whose algorithm is \"{algorithm}\"");
            Err(Invalid::new("save", name, expected))
        };
        match self {
            Self::Potential => Ok(Intermediate::Potential),
            Self::Probe => Ok(Intermediate::Probe),
            Self::Smatrix if prism => Ok(Intermediate::SMatrix),
            Self::Smatrix => refused("smatrix", "prism"),
            Self::Wave => refused("wave", "hrtem"),
        }
    }
}

// Refuse what images do not have
impl ScanRequest {
    /// What is asked of images of a plane wave.
    fn images<'a>(
        &'a self,
        args: &'a StemArgs,
        picture: Option<(&'a Path, PictureFormat)>,
    ) -> Result<plane_wave::ImageRequest<'a>, Invalid> {
        let expected = "a sample file whose algorithm is \"multislice\" or \"prism\"";
        let refuse = |quantity: &str, value: String| Err(Invalid::new(quantity, value, expected));
        for (extra, name) in [(Extra::Smatrix, "smatrix"), (Extra::Probe, "probe")] {
            if self.save.contains(&extra) {
                return refuse("save", name.into());
            }
        }
        match (args.share, &args.collect[..], args.compare) {
            (Some([k, n]), ..) => refuse("share", format!("{k}/{n}")),
            (_, [first, ..], _) => refuse("collect", first.display().to_string()),
            (.., Some(count)) => refuse("compare", count.to_string()),
            _ => Ok(plane_wave::ImageRequest {
                sample: args.name(),
                output: self.output.as_deref().filter(|_| !args.report.plan),
                picture,
                signal: args.signal.as_deref(),
                waves: self.save.contains(&Extra::Wave),
                potential: self.save.contains(&Extra::Potential),
                report: args.report,
            }),
        }
    }
}

// Compute the readings of a run
// What a run is made of
/// What a run is made of.
struct ScanJob<'a> {
    args: &'a StemArgs,
    plan: &'a StemPlan,
    summary: &'a SampleSummary,
    /// Whether too large an interpolation is a warning rather than an error.
    lenient: bool,
    engine: &'a Engine,
    fingerprint: u64,
    finishing: Finishing,
    save: &'a [Extra],
}

// Name of a checkpoint
/// What the name of a checkpoint ends in, behind that of the output.
const CHECKPOINT: &str = ".checkpoint";

/// The file next to the output in which a run is kept.
fn checkpoint(output: &Path) -> PathBuf {
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(CHECKPOINT);
    output.with_file_name(name)
}

impl ScanJob<'_> {
    // Stage of the comparison
    /// The stage of the comparison with multislice, if there is one.
    fn comparison_stage(&self) -> Option<Stage> {
        self.args.compare.map(|count| self.plan.comparing(count, self.engine))
    }

    /// Computes the readings, from a checkpoint if there is one; with the configurations and the probes of the next one that it had.
    fn compute(
        &self,
        output: &Path,
        terminal: &Terminal,
    ) -> Result<(StemReadings, Option<[usize; 2]>), Error> {
        // Run a scan with checkpoints
        let watch: &dyn Watch = terminal;
        // Places of the share
        let places = match self.args.share {
            Some([k, n]) => self.plan.share(k, n)?,
            None => 0..self.plan.places(),
        };
        let (path, mut kept) = (checkpoint(output), Instant::now());
        // Begin or resume the readings of a run
        let mut options = StemRunOptions::default().places(places.clone());
        let mut done = [0, 0];
        if path.exists() {
            let readings = StemReadings::read(&path, self.plan, self.fingerprint)?;
            let expected = format!("a checkpoint of places {places:?}; remove it to begin anew");
            accept(readings.places == places, "checkpoint", &readings.places, &expected)?;
            done = readings.done;
            options = options.resume(readings);
        }
        // Electrons that multislice keeps
        let resumed = Some(done).filter(|done| *done != [0, 0]);
        if resumed.is_some() {
            terminal.resumes();
        }
        let mut kept_by_multislice = match resumed {
            None => self.plan.kept_by_multislice(&places, self.engine, watch)?,
            Some(_) => Vec::new(),
        };
        // Keep a checkpoint now and then
        let keep = |now: &StemReadings| {
            self.check_kept(&std::mem::take(&mut kept_by_multislice), now)?;
            if kept.elapsed().as_secs_f64() < self.args.checkpoint && !watch.cancelled() {
                return Ok(());
            }
            kept = Instant::now();
            now.write(&path, self.fingerprint)
        };

        let readings = self.plan.run_with(self.engine, options.sink(keep), watch)?;
        Ok((readings, resumed))
    }

    // Check and join the parts of a run
    /// Compares the electrons that PRISM keeps with those that multislice kept at some probes.
    fn check_kept(&self, by_multislice: &[(usize, f64)], now: &StemReadings) -> Result<(), Error> {
        match self.plan.check_kept(by_multislice, now) {
            Err(invalid) if self.lenient => complain("warning", &invalid),
            checked => checked?,
        }
        Ok(())
    }

    /// Joins the shares.
    fn join(&self) -> Result<StemReadings, Error> {
        let read = |path: &PathBuf| StemReadings::read(path, self.plan, self.fingerprint);
        let parts = self.args.collect.iter().map(read).collect::<Result<_, _>>()?;
        Ok(self.plan.collect(parts)?)
    }

    // Write and tell a run
    /// The errors of PRISM, if they are asked for.
    fn compare(
        &self,
        readings: &StemReadings,
        seed: u64,
        watch: &dyn Watch,
    ) -> Result<Option<Comparison>, Error> {
        let compare = |count| self.plan.compare(readings, count, seed, self.engine, watch);
        self.args.compare.map(compare).transpose()
    }

    // Write the readings with their picture
    /// Writes the readings as a data set, in the precision of the waves, and their picture, which appears only when the data set is in place.
    fn write(
        &self,
        results: (&StemReadings, Option<&Comparison>),
        (output, format): (&Path, Format),
        picture: Option<(&Path, PictureFormat)>,
        origin: Provenance,
        terminal: &Terminal,
    ) -> Result<(), Error> {
        let watch: &dyn Watch = &WithinStage(terminal);
        let mut data = match self.engine.precision() {
            Precision::F32 => self.data_set::<f32>(results, watch)?,
            Precision::F64 => self.data_set::<f64>(results, watch)?,
        };
        origin.note(&mut data);
        let drawn = |(path, format)| {
            terminal.writes(path);
            AtomicFile::holding(path, &self.draw(&data, format)?)
        };
        let drawing = picture.map(drawn).transpose()?;
        data.save(output, format, self.args.signal.as_deref())?;
        drawing.map(AtomicFile::publish).transpose().map(|_| ())
    }

    // Readings and intermediates as a data set
    /// The readings and what was asked for besides, in the precision `T`.
    fn data_set<T: Real + Element>(
        &self,
        (readings, comparison): (&StemReadings, Option<&Comparison>),
        watch: &dyn Watch,
    ) -> Result<DataSet<'static>, Error>
    where
        Complex<T>: Element,
    {
        let mut data = readings.to_data_set::<T>(self.plan, &self.finishing)?;
        for extra in self.save {
            self.plan.keep::<T>(extra.of_scan(self.plan)?, &mut data, watch)?;
        }
        if let Some(comparison) = comparison {
            self.plan.keep_compared::<T>(comparison, &mut data, watch)?;
        }
        Ok(data)
    }

    // Done parts of a checkpoint
    /// What a checkpoint has done, in words.
    fn done(&self, [configurations, probes]: [usize; 2]) -> String {
        let (all, places) = (self.plan.configurations(), self.plan.places());
        let probes = format!("{probes} of {}", count(places, "probe"));
        match all {
            1 => probes,
            _ => {
                format!("{configurations} of {}, {probes} of the next", count(all, "configuration"))
            }
        }
    }

    // Draw the variables of a run
    /// The picture of the data set.
    fn draw(&self, data: &DataSet<'_>, format: PictureFormat) -> Result<Vec<u8>, Error> {
        let (options, probe) = (self.plan.detectors().options(), &self.plan.options().probe);
        let note = |name: String, inner: f64, outer: f64| (name, format!("{inner}–{outer} mrad"));
        let annuli = options.annuli.iter().enumerate();
        let annuli = annuli.map(|(k, a)| note(format!("annulus_{k}"), a.inner, a.outer));
        let segmented = options.segmented.iter().enumerate();
        let segmented =
            segmented.map(|(k, s)| note(format!("segmented_{}", k + 1), s.inner, s.outer));
        let name = short_name(&self.args.name());
        let title = format!("{name}, {} keV, {} mrad", probe.beam.energy_kev(), probe.semi_angle);
        let (specimen, semi_angle) = (self.plan.specimen(), probe.semi_angle);
        let notes = annuli.chain(segmented).collect();
        let counted = self.finishing.dose.is_some();
        plot_scan(&ScanPicture { title, specimen, data, semi_angle, notes, counted }, format)
    }

    // Tell of a run
    /// The summary of the run, in words or as JSON.
    fn summary(
        &self,
        (readings, comparison, resumed): (&StemReadings, Option<&Comparison>, Option<[usize; 2]>),
        output: &Path,
        seconds: f64,
    ) -> String {
        let plot = self.args.plot.as_deref();
        let (detectors, mean) = (self.plan.detectors(), &readings.mean);
        let total = mean.column(detectors.layout().total).mean().unwrap_or(0.0);
        if self.args.report.json {
            let mut summary = json!({
                "sample": self.args.name(),
                "output": file_json(Some(output)),
                "plot": file_json(plot),
                "resumed": resumed.map(|[configurations, probes]| {
                    let from = file_json(Some(&checkpoint(output)));
                    json!({ "from": from, "configurations": configurations, "probes": probes })
                }),
                "places": [readings.places.start, readings.places.end],
                "configurations": self.plan.configurations(),
                "kept": total,
                "computed_on": self.engine.name(),
                "precision": self.engine.precision().name(),
                "seconds": seconds,
            });
            add_summary(&mut summary, self.summary);
            if let Some(comparison) = comparison {
                summary["compare"] = compared_json(comparison);
            }
            return format!("{summary}\n");
        }
        if self.args.report.quiet {
            return String::new();
        }
        let lost =
            format!("{:.3} % of the electrons left what the grid keeps", 100.0 * (1.0 - total));
        let scan = format!("{} of {}", count(readings.places.len(), "probe"), self.args.name());
        let time = format!("{seconds:.2} s on {}", self.engine.name());
        let mut lines = vec![("scan", scan)];
        lines.extend(summary_lines(self.summary));
        lines.extend([("lost", lost), ("time", time)]);
        let kept = checkpoint(output);
        lines.extend(resumed.map(|done| file_line("resumed", &kept, &self.done(done))));
        lines.push(file_line("output", output, ""));
        lines.extend(file_lines([("plot", plot)]));
        lines.extend(comparison.map(compared_line));
        let errors = comparison.map(compared_errors).unwrap_or_default();
        align(&lines) + &errors
    }
}

// Tell how far PRISM is off
/// How many probes were compared.
fn compared_line(comparison: &Comparison) -> (&'static str, String) {
    let probes = count(comparison.places.len(), "probe");
    ("compared", format!("{probes} with multislice; errors of PRISM in shares of the mean:"))
}

/// A line for each detector.
fn compared_errors(comparison: &Comparison) -> String {
    let mut lines = Vec::new();
    for error in &comparison.detectors {
        let [rms, largest] = [error.rms, error.largest].map(|share| 100.0 * share);
        lines.push((&error.name[..], format!("rms {rms:.3} %, largest {largest:.3} %")));
    }
    let width = comparison.detectors.iter().map(|error| error.name.len()).max().unwrap_or(0);
    lines.iter().map(|(name, errors)| format!("  {name:width$}  {errors}\n")).collect()
}

/// Comparison of PRISM with multislice as JSON.
fn compared_json(comparison: &Comparison) -> Value {
    let error = |error: &DetectorError| {
        json!({
            "name": error.name,
            "scale": error.scale,
            "rms": error.rms,
            "largest": error.largest,
        })
    };
    let detectors: Vec<_> = comparison.detectors.iter().map(error).collect();
    json!({ "places": comparison.places, "detectors": detectors })
}
