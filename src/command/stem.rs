// Tangled from book/src/stem-command.md: edit there, or here and run cargo tangle stitch.
//! The command `stem`: from a sample file to what detectors read at each place of a scan.

// What the command stem stands on
use super::choice;
use super::summary::{align, command_line, count, plan_text};
use super::watch::{Terminal, with_speed};
use crate::device::{Device, Engine, Watch, check};
use crate::electrons::sample_file::SampleFile;
use crate::electrons::{StemPlan, StemReadings};
use crate::error::{Error, accept, positive};
use crate::files::draft::{Draft, check_files};
use crate::files::origin::Origin;
use crate::files::signal_files::SignalFormat;
use crate::files::signals::Signals;
use crate::numerics::Precision;
use crate::plot::{PictureFormat, ScanPicture, plot_scan, short_name};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;
use std::{fs, io};

// Arguments of stem
#[derive(Debug, Args)]
pub struct StemArgs {
    /// Sample file (TOML), with a crystal, a beam and what detectors shall read.
    sample: PathBuf,
    /// File to write: HDF5 (.h5, .hdf5, .emd), HyperSpy's .zspy, .zarr, .mrc, or NumPy's .npz; a share's readings may have any name.
    #[arg(short, long, required_unless_present = "plan")]
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
    /// Seconds between two checkpoints, which stand beside the output as OUTPUT.checkpoint until it is written.
    #[arg(long, default_value_t = 60.0)]
    checkpoint: f64,
    /// Precision of waves, in place of what the sample file says.
    #[arg(long, value_parser = choice::precisions())]
    precision: Option<Precision>,
    /// Where waves are computed: cpu, cuda, or cuda:K.
    #[arg(long, default_value = "cpu")]
    device: Device,
    // Arguments about what stem says
    /// Say what would be computed, how, in what memory and time, and stop.
    #[arg(long)]
    plan: bool,
    /// Print the summary as JSON.
    #[arg(long)]
    json: bool,
    /// Print neither summary nor progress.
    #[arg(long, short)]
    quiet: bool,
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

// Scan a sample
/// Computes what the arguments ask for; returns what to print.
pub fn stem(args: &StemArgs) -> Result<String, Error> {
    let file = SampleFile::from_file(&args.sample)?;
    let engine = Engine::open(args.device, args.precision.unwrap_or(file.run.precision))?;
    // Check the files of a scan
    let named = args.output.as_deref().map(|path| ("output", path));
    let whole = named.filter(|_| args.share.is_none());
    let format = whole.map(SignalFormat::of).transpose()?;
    positive("checkpoint", args.checkpoint)?;
    let crystal = ("crystal", file.sample.file.as_path());
    let mut inputs = vec![("sample file", args.sample.as_path()), crystal];
    inputs.extend(args.collect.iter().map(|path| ("share", path.as_path())));
    let picture = args.plot.as_deref();
    let picture =
        picture.map(|path| PictureFormat::of(path).map(|format| (path, format))).transpose()?;
    let outputs = [named, picture.map(|(path, _)| ("plot", path))];
    let outputs: Vec<_> = outputs.into_iter().flatten().filter(|_| !args.plan).collect();
    check_files(&inputs, &outputs)?;
    let plan = file.plan()?;
    let engine = with_speed(engine, args.plan)?;
    let description = plan.describe(&engine);
    let Some(output) = args.output.as_ref().filter(|_| !args.plan) else {
        return Ok(plan_text(&description, args.json));
    };
    description.memory.check(&engine, "the scan")?;
    // Check the signal of an image file
    if format == Some(SignalFormat::Mrc) {
        let mut none = plan.begin(0..plan.places())?;
        none.done = [plan.configurations(), 0];
        plan.signals::<f32>(&none)?.check(SignalFormat::Mrc, args.signal.as_deref())?;
    }
    let (terminal, start) = (Terminal::new(args.quiet), Instant::now());
    let run = Run { args, plan: &plan, engine: &engine, fingerprint: plan.fingerprint(&engine) };
    let readings = match args.collect.is_empty() {
        true => run.compute(output, &terminal)?,
        false => run.join()?,
    };
    check(&terminal)?;
    match format {
        None => readings.write(output, run.fingerprint)?,
        Some(format) => {
            let origin = Origin::new(&command_line(), &description.method, file.text());
            run.write(&readings, (output, format), picture, origin)?;
        }
    }
    run.forget(output)?;
    Ok(run.told(&readings, output, start.elapsed().as_secs_f64()))
}

// Compute the readings of a run
/// What a run is made of.
struct Run<'a> {
    args: &'a StemArgs,
    plan: &'a StemPlan,
    engine: &'a Engine,
    fingerprint: u64,
}

/// The file beside the output in which a run is kept.
fn checkpoint(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".checkpoint");
    name.into()
}

impl Run<'_> {
    /// Computes the readings, from a checkpoint if there is one.
    fn compute(&self, output: &Path, watch: &dyn Watch) -> Result<StemReadings, Error> {
        let places = match self.args.share {
            Some([k, n]) => self.plan.share(k, n)?,
            None => 0..self.plan.places(),
        };
        let (path, mut kept) = (checkpoint(output), Instant::now());
        let mut readings = match path.exists() {
            true => StemReadings::read(&path, self.fingerprint)?,
            false => self.plan.begin(places.clone())?,
        };
        let expected = format!("a checkpoint of places {places:?}; remove it to begin anew");
        accept(readings.places == places, "checkpoint", &readings.places, &expected)?;
        let mut keep = |now: &StemReadings| {
            if kept.elapsed().as_secs_f64() < self.args.checkpoint && !watch.cancelled() {
                return Ok(());
            }
            kept = Instant::now();
            now.write(&path, self.fingerprint)
        };
        let ran = self.plan.run(self.engine, &mut readings, watch, &mut keep);
        if matches!(ran, Err(Error::Cancelled)) && readings.done != [0, 0] {
            readings.write(&path, self.fingerprint)?;
        }
        ran.map(|()| readings)
    }

    /// Joins the shares.
    fn join(&self) -> Result<StemReadings, Error> {
        let read = |path: &PathBuf| StemReadings::read(path, self.fingerprint);
        let parts = self.args.collect.iter().map(read).collect::<Result<_, _>>()?;
        Ok(self.plan.collect(parts)?)
    }

    // Write and tell a run
    /// Writes the readings as signals, in the precision of the waves, and their picture, which appears only when they are in place.
    fn write(
        &self,
        readings: &StemReadings,
        (output, format): (&Path, SignalFormat),
        picture: Option<(&Path, PictureFormat)>,
        origin: Origin,
    ) -> Result<(), Error> {
        let mut signals = match self.engine.precision() {
            Precision::F32 => self.plan.signals::<f32>(readings)?,
            Precision::F64 => self.plan.signals::<f64>(readings)?,
        };
        signals.origin(origin)?;
        let drawn = |(path, format)| Draft::holding(path, &self.draw(&signals, format)?);
        let drawing = picture.map(drawn).transpose()?;
        signals.write(output, format, self.args.signal.as_deref())?;
        drawing.map(Draft::publish).transpose().map(|_| ())
    }

    // Draw the signals of a run
    /// The picture of the signals.
    fn draw(&self, signals: &Signals<'_>, format: PictureFormat) -> Result<Vec<u8>, Error> {
        let (options, probe) = (self.plan.detectors().options(), &self.plan.options().probe);
        let note = |name: String, inner: f64, outer: f64| (name, format!("{inner}–{outer} mrad"));
        let annuli = options.annuli.iter().enumerate();
        let annuli = annuli.map(|(k, a)| note(format!("annulus_{k}"), a.inner, a.outer));
        let segmented = options.segmented.iter().enumerate();
        let segmented =
            segmented.map(|(k, s)| note(format!("segmented_{}", k + 1), s.inner, s.outer));
        let name = short_name(&self.args.sample.display().to_string());
        let title = format!("{name}, {} keV, {} mrad", probe.beam.energy_kev(), probe.semi_angle);
        let (specimen, semi_angle) = (self.plan.specimen(), probe.semi_angle);
        let notes = annuli.chain(segmented).collect();
        plot_scan(&ScanPicture { title, specimen, signals, semi_angle, notes }, format)
    }

    /// Removes the checkpoint, which is not needed any more.
    fn forget(&self, output: &Path) -> Result<(), Error> {
        match fs::remove_file(checkpoint(output)) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(Error::Write { path: checkpoint(output), source })
            }
            _ => Ok(()),
        }
    }

    // Tell of a run
    /// What is said of the run.
    fn told(&self, readings: &StemReadings, output: &Path, seconds: f64) -> String {
        let (detectors, mean) = (self.plan.detectors(), &readings.mean);
        let total = mean.column(detectors.rings() + 1).mean().unwrap_or(0.0);
        if self.args.json {
            let summary = json!({
                "sample": self.args.sample.display().to_string(),
                "output": output.display().to_string(),
                "plot": self.args.plot.as_ref().map(|path| path.display().to_string()),
                "places": [readings.places.start, readings.places.end],
                "configurations": self.plan.configurations(),
                "kept": total,
                "computed_on": self.engine.name(),
                "precision": self.engine.precision().name(),
                "seconds": seconds,
            });
            return format!("{summary}\n");
        }
        if self.args.quiet {
            return String::new();
        }
        let lost =
            format!("{:.3} % of the electrons left what the grid keeps", 100.0 * (1.0 - total));
        let scan =
            format!("{} of {}", count(readings.places.len(), "probe"), self.args.sample.display());
        let time = format!("{seconds:.2} s on {}", self.engine.name());
        let mut lines = vec![
            ("scan", scan),
            ("lost", lost),
            ("time", time),
            ("written", output.display().to_string()),
        ];
        lines.extend(self.args.plot.as_ref().map(|path| ("plot", path.display().to_string())));
        align(&lines)
    }
}
