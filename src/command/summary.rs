// Tangled from book/src/summaries.md: edit there, or here and run cargo tangle stitch.
//! What the commands say: aligned lines for a person, JSON for a program.

// Imports of summaries
use crate::device::cuda::distributed;
use crate::device::cuda::probe::{CudaDriver, CudaProbe, NoCuda};
use crate::device::{self, Device};
pub(super) use crate::error::count;
use crate::error::{Error, in_bytes};
use crate::files::Format;
use crate::model::system::{SlopeModel, System};
use crate::numerics::real::Precision;
use crate::plan::{Description, Stage};
use crate::turbulence::plan::{
    CovariancePlan, SlopeCovariancePlan, WavefrontCovariancePlan, dense_bytes, slope_problem,
    wavefront_problem,
};
use crate::turbulence::slope::SlopeProblem;
use crate::turbulence::spectral;
use crate::turbulence::spectral::error::Chosen;
use crate::turbulence::spectral::slope::SpectralSampling;
use crate::turbulence::wavefront::WavefrontProblem;
use crate::units::ARCSEC;
use serde_json::{Map, Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

// What a command has to say
/// What a command has to say once its result is there.
#[derive(Default)]
pub struct Outcome {
    /// For the standard output.
    pub text: String,
    /// What looks odd.
    pub warnings: Vec<String>,
    /// How the result falls short of what was asked.
    pub shortfall: Option<String>,
}

// Add warnings to an outcome
impl Outcome {
    /// Adds warnings; a text in JSON gets a list of all of them.
    pub fn warned(mut self, warnings: Vec<String>) -> Self {
        self.warnings.extend(warnings);
        if let Ok(Value::Object(mut object)) = serde_json::from_str(&self.text)
            && !self.warnings.is_empty()
        {
            object.insert("warnings".into(), json!(self.warnings));
            self.text = format!("{}\n", Value::Object(object));
        }
        self
    }
}

// Outcome of a text alone
impl From<String> for Outcome {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

// Summary of a covariance
/// What was computed, how, and where it is now.
pub struct Summary<'a> {
    pub file: &'a Path,
    pub output: &'a Path,
    pub plot: Option<&'a Path>,
    pub format: Format,
    pub precision: Precision,
    pub device: Device,
    /// What computed it, in words.
    pub engine: String,
    /// System, form and samplings.
    pub plan: &'a CovariancePlan,
    /// Names and shapes of the arrays in the file.
    pub arrays: Vec<(String, Vec<usize>)>,
    pub variance: f64,
    pub seconds: f64,
    pub bytes: u64,
}

// Errors that a summary tells
/// Bound of the direct method's error, in units of the variance for slopes, of the largest entry for wavefronts.
const DIRECT_ERROR: f64 = 1e-10;

/// Bound of the error of a graphics processor in single precision, in the units of [`DIRECT_ERROR`].
const SINGLE_ERROR: f64 = 2e-6;

/// The sampling of the spectral method, for slopes and wavefront.
fn chosen(plan: &CovariancePlan) -> [Option<&Chosen>; 2] {
    let of_slopes = plan.slopes().and_then(SlopeCovariancePlan::chosen);
    [of_slopes, plan.wavefront().and_then(WavefrontCovariancePlan::chosen)]
}

/// How a covariance is computed, in words, and the error bound of its entries; in single precision computes only a graphics
/// processor.
pub fn method_and_error(
    plan: &CovariancePlan,
    device: Device,
    precision: Precision,
) -> (String, f64) {
    let single = device != Device::Cpu && precision == Precision::F32;
    let form = plan.form();
    match chosen(plan) {
        [Some(slopes), Some(wavefront)] => {
            let error = slopes.error_estimate.max(wavefront.error_estimate);
            (format!("spectral, {slopes}; wavefront: {wavefront}"), error)
        }
        [Some(slopes), None] => (format!("spectral, {slopes}"), slopes.error_estimate),
        _ => {
            let how = match plan.system().slope_model() {
                SlopeModel::Average => "direct",
                SlopeModel::EdgeMidpoint => "direct, edge-midpoint",
            };
            (format!("{how}, {form} form"), if single { SINGLE_ERROR } else { DIRECT_ERROR })
        }
    }
}

// Words and bounds of a summary
impl Summary<'_> {
    /// How it was computed, and the error bound of that.
    fn method_and_error(&self) -> (String, f64) {
        method_and_error(self.plan, self.device, self.precision)
    }

    // Tell it to a person
    pub fn lines(&self) -> String {
        let (precision, size) = (self.precision.name(), in_bytes(self.bytes));
        let (variance, rms) = (self.variance, self.variance.sqrt() / ARCSEC);
        let mut lines = vec![("system", geometry(self.plan.system()))];
        if let (Some(grid), true) =
            (self.plan.system().phase(), self.plan.system().wants_wavefront())
        {
            let (targets, m) = (count(self.plan.system().targets().len(), "target"), grid.points);
            let o = grid.oversampling;
            lines.push(("wavefront", format!("{targets}, {m} × {m} points, {o} per lenslet")));
        }
        // Add method, figures and files
        lines.extend([
            ("method", self.method()),
            ("variance", format!("{variance:.3e} rad², or {rms:.3} arcsec rms")),
            ("time", format!("{:.3} s on {}", self.seconds, self.engine)),
            file_line("output", self.output, &format!("{precision}, {size}")),
        ]);
        for (name, shape) in self
            .arrays
            .iter()
            .filter(|(name, _)| name.contains("_slope") || name.contains("_wavefront"))
        {
            let shape: Vec<_> = shape.iter().map(ToString::to_string).collect();
            lines.push(("", format!("{name} {}", shape.join(" × "))));
        }
        lines.extend(file_lines([("plot", self.plot)]));
        align(&lines)
    }

    // Words about the method
    fn method(&self) -> String {
        match (chosen(self.plan), self.method_and_error()) {
            ([None, _], (method, error)) => {
                format!("{method}, error below {error:e} of the largest entry")
            }
            (_, (method, _)) => method,
        }
    }

    // Tell it to a program
    pub fn json(&self) -> Value {
        let array = self.plan.system().first_array();
        let [slopes, wavefront] = chosen(self.plan);
        let sampling = slopes.map(|chosen| chosen.sampling);
        let step = self.plan.system().wavefront_pitch()
            / self.plan.system().phase().map_or(1.0, |grid| grid.oversampling as f64);
        let arrays: Map<_, _> =
            self.arrays.iter().map(|(k, shape)| (k.clone(), json!(shape))).collect();
        json!({
            "system": self.file.display().to_string(),
            // Describe the geometry in json
            "guide_stars": self.plan.system().guide_stars().len(),
            "targets": self.plan.system().targets().len(),
            "layers": self.plan.system().atmosphere().layers().len(),
            "lenslets": array.lenslets(),
            "pitch": array.pitch(),
            "valid": valid(self.plan.system()),
            "method": if sampling.is_some() { "spectral" } else { "direct" },
            "slope_model": self.plan.system().slope_model().name(),
            "samples": sampling.map(|sampling| sampling.samples()),
            "oversampling": sampling.map(|sampling| sampling.oversampling()),
            "error_estimate": slopes.map_or(self.method_and_error().1, |chosen| chosen.error_estimate),
            "limited": slopes.is_some_and(|chosen| chosen.limited),
            "wavefront_sampling": wavefront.map(|chosen| sampling_json(chosen, step)),
            "variance": self.variance,
            "form": self.plan.form(),
            "arrays": arrays,
            // Tell how it was computed and written
            "seconds": self.seconds,
            "threads": device::threads(),
            "device": self.device.to_string(),
            "computed_on": self.engine,
            "shape": self.arrays.first().map(|(_, shape)| shape),
            "format": self.format.name(),
            "precision": self.precision.name(),
            "bytes": self.bytes,
            "output": file_json(Some(self.output)),
            "plot": file_json(self.plot),
        })
    }
}

// Words about a plan
/// The description of a plan as lines, or as JSON.
pub fn plan_text(plan: &Description, json: bool) -> String {
    if json { format!("{}\n", plan_json(plan)) } else { align(&plan_lines(plan)) }
}

fn plan_lines(plan: &Description) -> Vec<(&'static str, String)> {
    let mut lines = vec![("plan", plan.what.clone())];
    if !plan.form.is_empty() {
        lines.push(("form", format!("{}: {}", plan.form, plan.reason)));
    }
    lines.push(("method", plan.method.clone()));
    lines.push(("engine", plan.engine.clone()));
    let mut memory = format!("at most {} on the host", in_bytes(plan.memory.host));
    for (k, bytes) in plan.memory.devices.iter().enumerate() {
        memory += &format!(", {} on device {k}", in_bytes(*bytes));
    }
    lines.push(("memory", memory));
    // Add stages and arrays of a plan
    lines.push(("time", format!("about {}", roughly(plan.seconds()))));
    for stage in &plan.stages {
        lines.push(("", format!("{}: {}", stage.name, roughly(stage.seconds))));
    }
    lines.push(("rates", plan.rates.clone()));
    for (k, (name, shape)) in plan.arrays.iter().enumerate() {
        let shape: Vec<_> = shape.iter().map(ToString::to_string).collect();
        lines.push((if k == 0 { "arrays" } else { "" }, format!("{name} {}", shape.join(" × "))));
    }
    lines
}

// Times and arrays of a plan
/// A time with one digit: `0.05 s`, `3 min`, `2 h`.
pub fn roughly(seconds: f64) -> String {
    match seconds {
        s if s < 0.01 => "a moment".into(),
        s if s < 1.0 => format!("{s:.2} s"),
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.0} h", s / 3600.0),
    }
}

// Tell a plan to a program
/// The description of a plan as an object.
pub fn plan_json(plan: &Description) -> Value {
    let stage = |stage: &Stage| json!({ "name": stage.name, "seconds": stage.seconds });
    let arrays: Map<_, _> =
        plan.arrays.iter().map(|(k, shape)| (k.clone(), json!(shape))).collect();
    json!({
        "plan": plan.what,
        "form": plan.form,
        "reason": plan.reason,
        "method": plan.method,
        "slope_model": plan.slope_model,
        "engine": plan.engine,
        "memory": { "host": plan.memory.host, "devices": plan.memory.devices },
        "seconds": plan.seconds(),
        "stages": plan.stages.iter().map(stage).collect::<Vec<_>>(),
        "rates": plan.rates,
        "arrays": arrays,
    })
}

// Words about the machine
// Tell about the machine
pub fn machine_lines(cuda: &CudaProbe) -> Vec<(&'static str, String)> {
    let memory = device::available_memory().map_or("unknown".into(), in_bytes);
    let mut lines = vec![
        ("lenslet", env!("CARGO_PKG_VERSION").to_string()),
        (
            "processor",
            format!("{}, {}", device::processor_name(), count(device::threads(), "thread")),
        ),
        ("memory", format!("{memory} available")),
    ];
    match &cuda.driver {
        Err(reason) => lines.push(("CUDA", reason.to_string())),
        Ok(driver) => lines.extend(driver_lines(driver)),
    }
    lines.extend(library_lines(cuda));
    if cuda.driver.as_ref().is_ok_and(|driver| driver.devices.len() > 1) {
        let shared = distributed::libraries_found().err().unwrap_or("found".into());
        lines.push(("", format!("to share matrices between devices: {shared}")));
    }
    lines
}

// Tell about driver and devices
fn driver_lines(driver: &CudaDriver) -> Vec<(&'static str, String)> {
    let (major, minor) = driver.version;
    let version = format!("driver for CUDA {major}.{minor}");
    let devices = driver.devices.iter().map(|device| {
        let ((major, minor), memory) = (device.compute_capability, in_bytes(device.memory));
        let (ordinal, name) = (device.ordinal, &device.name);
        ("", format!("cuda:{ordinal}  {name}, {memory}, compute capability {major}.{minor}"))
    });
    std::iter::once(("CUDA", version)).chain(devices).collect()
}

// Tell about the libraries
fn library_lines(cuda: &CudaProbe) -> Vec<(&'static str, String)> {
    let state = |reason: &NoCuda| match reason {
        NoCuda::NoFunction { .. } => "too old",
        NoCuda::TooNew { .. } => "too new for the driver",
        NoCuda::DoesNotLoad { .. } => "does not load",
        _ => "not found",
    };
    let (mut texts, mut others) = (Vec::new(), Vec::new());
    for (name, status) in &cuda.libraries {
        match status {
            Ok(Some(file)) => texts.push(format!("{name:<8}  {}", file.display())),
            Ok(None) => texts.push(format!("{name:<8}  found")),
            Err(reason) => others.push(format!("{name} {}", state(reason))),
        }
    }
    if !others.is_empty() {
        texts.push(others.join(", "));
        let remedy = format!("`pip install \"{}\"` brings what is missing", cuda.package);
        texts.extend(cuda.driver.is_ok().then_some(remedy));
    }
    let labels = std::iter::once("libraries").chain(std::iter::repeat(""));
    labels.zip(texts).collect()
}

// Tell a program about the machine
pub fn machine_json(cuda: &CudaProbe) -> Value {
    let devices = cuda.driver.iter().flat_map(|driver| &driver.devices).map(|device| {
        let (major, minor) = device.compute_capability;
        // Describe one device in json
        json!({
            "ordinal": device.ordinal,
            "name": device.name,
            "memory": device.memory,
            "compute_capability": [major, minor],
        })
    });
    let version = cuda.driver.as_ref().ok().map(|driver| [driver.version.0, driver.version.1]);
    let libraries: serde_json::Map<_, _> = cuda
        .libraries
        .iter()
        .map(|(name, status)| ((*name).to_string(), json!(status.is_ok())))
        .collect();
    // Files of the libraries in json
    let file = |status: &Result<Option<PathBuf>, NoCuda>| {
        status.iter().flatten().next().map(|file| file.display().to_string())
    };
    let files: Map<_, _> = cuda
        .libraries
        .iter()
        .map(|(name, status)| ((*name).to_string(), json!(file(status))))
        .collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "processor": device::processor_name(),
        "threads": device::threads(),
        "memory_available": device::available_memory(),
        "cuda": {
            "driver_library": !matches!(cuda.driver, Err(NoCuda::NoLibrary)),
            "driver_version": version,
            "reason": cuda.driver.as_ref().err().map(ToString::to_string),
            "devices": devices.collect::<Vec<_>>(),
            "libraries": libraries,
            "library_files": files,
            "shared_matrices": distributed::libraries_found().is_ok(),
        },
    })
}

// Words about the system
// Tell about the system
/// Summary of one covariance.
struct CovarianceReport {
    /// Step of the displacements in the pupil, metres.
    sampling: f64,
    /// Lags along an axis of the smallest and of the largest block.
    block: [usize; 2],
    blocks: usize,
    /// Numbers in Toeplitz form.
    numbers: u64,
    /// Numbers in dense form.
    dense: u64,
    chosen: Chosen,
}

// Gather what is told of a covariance
impl CovarianceReport {
    fn of_slopes(problem: &SlopeProblem, slopes: u64) -> Self {
        Self {
            sampling: problem.pitch(),
            block: [problem.lags(); 2],
            blocks: 4 * problem.sources().pow(2),
            numbers: problem.len() as u64,
            dense: slopes.saturating_mul(slopes),
            chosen: SpectralSampling::choose(problem),
        }
    }

    // Gather what is told about the wavefront
    fn of_wavefront(problem: &WavefrontProblem, slopes: u64) -> Self {
        let lags = || problem.lattices().map(|layers| problem.lags(&layers[0]));
        let points = (problem.targets() * problem.grid().points.pow(2)) as u64;
        Self {
            sampling: problem.pitch() / problem.grid().oversampling as f64,
            block: [lags().min().unwrap_or(0), lags().max().unwrap_or(0)],
            blocks: 2 * problem.targets() * problem.stars() * problem.lattices().len(),
            numbers: problem.len() as u64,
            dense: points.saturating_mul(slopes),
            chosen: spectral::wavefront::choose(problem),
        }
    }

    // Tell one covariance in both ways
    fn lines(&self, name: &'static str) -> [(&'static str, String); 3] {
        let [least, most] = self.block;
        let size = if least == most {
            format!("{most} × {most}")
        } else {
            format!("{least} to {most} squared")
        };
        let [compressed, dense] =
            [self.numbers, self.dense].map(|numbers| in_bytes(numbers.saturating_mul(8)));
        let highest = self.chosen.sampling.oversampling() as f64 / (2.0 * self.sampling);
        [
            (
                name,
                format!("sampling {} m, {} of {size}", self.sampling, count(self.blocks, "block")),
            ),
            ("", format!("{compressed} in Toeplitz form, {dense} dense")),
            ("", format!("spectral: {}, up to {highest:.1} m⁻¹", self.chosen)),
        ]
    }

    // Tell one covariance to a program
    /// Adds the summary to a JSON object.
    fn add_to(&self, object: &mut Value) {
        let sampling = sampling_json(&self.chosen, self.sampling);
        let summary = json!({
            "sampling": self.sampling,
            "block": self.block[1],
            "smallest_block": self.block[0],
            "blocks": self.blocks,
            "toeplitz_numbers": self.numbers,
            "toeplitz_bytes": self.numbers.saturating_mul(8),
            "dense_numbers": self.dense,
            "dense_bytes": self.dense.saturating_mul(8),
        });
        for (key, value) in [summary, sampling].iter().filter_map(Value::as_object).flatten() {
            object[key] = value.clone();
        }
    }
}

// Sampling of a spectrum in JSON
/// A sampling of the spectrum for lags that are `step` metres apart in the pupil.
fn sampling_json(chosen: &Chosen, step: f64) -> Value {
    let (samples, oversampling) = (chosen.sampling.samples(), chosen.sampling.oversampling());
    json!({
        "samples": samples,
        "oversampling": oversampling,
        "highest_frequency": oversampling as f64 / (2.0 * step),
        "frequency_step": oversampling as f64 / (samples as f64 * step),
        "error_estimate": chosen.error_estimate,
        "limited": chosen.limited,
    })
}

// Tell a person about the system
pub fn system_lines(path: &Path, system: &System) -> Vec<(&'static str, String)> {
    let atmosphere = system.atmosphere();
    let (r0, nanometres) = (atmosphere.fried_parameter(), 1e9 * atmosphere.wavelength());
    let seeing = atmosphere.seeing_at(atmosphere.wavelength()) / ARCSEC;
    let r0 = format!("{r0:.5e}").parse().unwrap_or(r0);
    let turbulence = format!("r0 = {r0} m at {nanometres:.0} nm, a seeing of {seeing:.2} arcsec");
    let mut lines = vec![("system", path.display().to_string()), ("turbulence", turbulence)];
    lines.push(("geometry", geometry(system)));
    let reports = reports(system);
    let [slopes, wavefront] = dense_bytes(system).map(in_bytes);
    match &reports {
        Ok((slopes, _)) => lines.extend(slopes.lines("slopes")),
        Err(error) => lines.push(("slopes", format!("{slopes} in dense form; {error}"))),
    }
    match reports {
        Ok((_, Some(Ok(wavefront)))) => lines.extend(wavefront.lines("wavefront")),
        Ok((_, Some(Err(error)))) => {
            lines.push(("wavefront", format!("{wavefront} in dense form; {error}")));
        }
        Err(_) if system.wants_wavefront() => {
            lines.push(("wavefront", format!("{wavefront} in dense form")));
        }
        _ => {}
    }
    lines
}

// What is told of both covariances
/// Summaries of the covariances of slopes and of wavefronts, where they have the Toeplitz form.
fn reports(
    system: &System,
) -> Result<(CovarianceReport, Option<Result<CovarianceReport, Error>>), Error> {
    let count = slopes(system);
    let slopes = CovarianceReport::of_slopes(&slope_problem(system)?, count);
    let wavefront = || Ok(CovarianceReport::of_wavefront(&wavefront_problem(system)?, count));
    Ok((slopes, system.wants_wavefront().then(wavefront)))
}

// Tell a program about the system
pub fn system_json(path: &Path, system: &System) -> Value {
    let mut object = describe(path, system);
    match reports(system) {
        Err(error) => object["no_toeplitz"] = json!(error.to_string()),
        Ok((slopes, wavefront)) => {
            slopes.add_to(&mut object);
            if let Some(wavefront) = wavefront {
                object["wavefront"] = json!({});
                match wavefront {
                    Ok(wavefront) => wavefront.add_to(&mut object["wavefront"]),
                    Err(error) => object["wavefront"]["no_toeplitz"] = json!(error.to_string()),
                }
            }
        }
    }
    object
}

// What is known without any computing
/// What is known of a system without any computing.
fn describe(path: &Path, system: &System) -> Value {
    let [slopes, wavefront] = dense_bytes(system);
    let array = system.first_array();
    json!({
        "file": path.display().to_string(),
        "guide_stars": system.guide_stars().len(),
        "targets": system.targets().len(),
        "layers": system.atmosphere().layers().len(),
        "r0": system.atmosphere().fried_parameter(),
        "wavelength": system.atmosphere().wavelength(),
        "lenslets": array.lenslets(),
        "pitch": array.pitch(),
        "valid": valid(system),
        "dense_bytes": slopes,
        "dense_wavefront_bytes": wavefront,
    })
}

// Words that several commands use
pub fn align(lines: &[(&str, String)]) -> String {
    lines.iter().map(|(key, text)| format!("{key:<12}{text}\n")).collect()
}

/// A line of a summary about a file: its role, such as `output`, `plot` or `resumed`, its name, and what it holds.
pub fn file_line<'a>(role: &'a str, path: &Path, content: &str) -> (&'a str, String) {
    let separator = if content.is_empty() { "" } else { ": " };
    (role, format!("{}{separator}{content}", path.display()))
}

/// Lines about further files, where they are written.
pub fn file_lines<'a>(
    files: impl IntoIterator<Item = (&'a str, Option<&'a Path>)>,
) -> impl Iterator<Item = (&'a str, String)> {
    let named = files.into_iter().filter_map(|(role, path)| Some((role, path?)));
    named.map(|(role, path)| file_line(role, path, ""))
}

/// The name of a file in a summary as JSON: null where it is not written.
pub fn file_json(path: Option<&Path>) -> Value {
    json!(path.map(|path| path.display().to_string()))
}
/// The arguments that the command was run with, its name first.
static ARGUMENTS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Keeps the arguments of the command, for its command line.
pub fn remember_arguments(arguments: Vec<OsString>) {
    let _ = ARGUMENTS.set(arguments); // a process runs one command
}

/// The command line of this process.
pub fn command_line() -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=,:+@%".contains(c);
    let quoted = |word: String| match !word.is_empty() && word.chars().all(plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    let arguments = ARGUMENTS.get().map_or(&[][..], Vec::as_slice);
    let words = arguments.iter().skip(1).map(|word| quoted(word.to_string_lossy().into()));
    std::iter::once("lenslet".to_string()).chain(words).collect::<Vec<_>>().join(" ")
}

// Sizes that several commands tell
/// Valid lenslets of the first star; all stars have equally many where they share an array.
fn valid(system: &System) -> usize {
    system.first_array().count_valid(system.pupil(), system.validity())
}

/// Slopes of all valid lenslets of all stars.
fn slopes(system: &System) -> u64 {
    system.count_slopes() as u64
}

fn geometry(system: &System) -> String {
    let (stars, array) = (system.guide_stars(), system.first_array());
    let (n, pitch) = (array.lenslets(), array.pitch());
    let layers = count(system.atmosphere().layers().len(), "layer");
    let lenslets = match system.common_array().is_some() {
        true => format!("{n} × {n} lenslets of {pitch} m, {} of them valid", valid(system)),
        false => format!("lenslets of each star its own, {} slopes in all", slopes(system)),
    };
    format!("{}, {layers}, {lenslets}", count(stars.len(), "guide star"))
}
