// Tangled from book/src/commands.md: edit there, or here and run cargo tangle stitch.
//! What the commands say: aligned lines for a person, JSON for a program.

use crate::arrays::{Format, Precision};
use crate::device::{self, CudaDriver, CudaProbe, Device, NoCuda};
use crate::error::in_bytes;
use crate::output::valid_lenslets;
use crate::slope::SlopeProblem;
use crate::{covariance::slope_problem, system::System, units::ARCSEC};
use crate::{spectral::SpectralSampling, spectral_error::Chosen};
use serde_json::{Value, json};
use std::path::Path;

// Summary of a covariance
/// What was computed, how, and where it is now.
pub struct Summary<'a> {
    pub file: &'a Path,
    pub output: &'a Path,
    pub plot: Option<&'a Path>,
    pub format: Format,
    pub precision: Precision,
    pub device: Device,
    pub system: &'a System,
    pub problem: &'a SlopeProblem,
    /// The sampling of the spectral method.
    pub chosen: Option<Chosen>,
    pub variance: f64,
    pub seconds: f64,
    pub bytes: u64,
}

/// Bound of the direct method's error, in units of the variance.
const DIRECT_ERROR: f64 = 1e-10;

impl Summary<'_> {
    // Tell it to a person
    pub fn lines(&self) -> String {
        let shape = shape(self.problem).map(|length| length.to_string()).join(" × ");
        let (precision, size) = (self.precision.name(), in_bytes(self.bytes));
        let direct = || format!("direct, error below {DIRECT_ERROR:e} of the variance");
        let method = self.chosen.map_or_else(direct, |chosen| format!("spectral, {chosen}"));
        let (variance, rms) = (self.variance, self.variance.sqrt() / ARCSEC);
        let threads = count(device::threads(), "thread");
        let output = self.output.display();
        let mut lines = vec![
            ("system", geometry(self.system, self.problem)),
            ("method", method),
            ("variance", format!("{variance:.3e} rad², or {rms:.3} arcsec rms")),
            ("time", format!("{:.3} s on {threads}", self.seconds)),
            ("output", format!("{output}: slope_slope {shape}, {precision}, {size}")),
        ];
        if let Some(path) = self.plot {
            lines.push(("plot", path.display().to_string()));
        }
        align(&lines)
    }

    // Tell it to a program
    pub fn json(&self) -> Value {
        let sampling = self.chosen.map(|chosen| chosen.sampling);
        json!({
            "system": self.file.display().to_string(),
            "guide_stars": self.problem.sources(),
            "layers": self.problem.layers().len(),
            "lenslets": self.problem.lenslets(),
            "pitch": self.problem.pitch(),
            "valid": valid(self.system),
            "method": if sampling.is_some() { "spectral" } else { "direct" },
            "samples": sampling.map(|sampling| sampling.samples()),
            "oversampling": sampling.map(|sampling| sampling.oversampling()),
            "error_estimate": self.chosen.map_or(DIRECT_ERROR, |chosen| chosen.error_estimate),
            "limited": self.chosen.is_some_and(|chosen| chosen.limited),
            "variance": self.variance,
            // Tell how it was computed and written
            "seconds": self.seconds,
            "threads": device::threads(),
            "device": self.device.to_string(),
            "shape": shape(self.problem),
            "format": self.format.name(),
            "precision": self.precision.name(),
            "bytes": self.bytes,
            "output": self.output.display().to_string(),
            "plot": self.plot.map(|path| path.display().to_string()),
        })
    }
}

// Tell about the machine
pub fn machine_lines(cuda: &CudaProbe) -> Vec<(&'static str, String)> {
    let memory = device::available_memory().map_or("unknown".into(), in_bytes);
    let mut lines = vec![
        ("lenslet", env!("CARGO_PKG_VERSION").to_string()),
        ("processor", count(device::threads(), "thread")),
        ("memory", format!("{memory} available")),
    ];
    match &cuda.driver {
        Err(reason) => lines.push(("CUDA", reason.to_string())),
        Ok(driver) => lines.extend(driver_lines(driver)),
    }
    let found = |found: bool| if found { "found" } else { "not found" };
    let libraries = cuda.libraries.map(|(name, present)| format!("{name} {}", found(present)));
    lines.push(("libraries", libraries.join(", ")));
    lines
}

fn driver_lines(driver: &CudaDriver) -> Vec<(&'static str, String)> {
    let (major, minor) = driver.version;
    let version = format!("driver for CUDA {major}.{minor}; this version computes on the CPU only");
    let devices = driver.devices.iter().map(|found| {
        let ((major, minor), memory) = (found.compute_capability, in_bytes(found.memory));
        let (ordinal, name) = (found.ordinal, &found.name);
        ("", format!("cuda:{ordinal}  {name}, {memory}, compute capability {major}.{minor}"))
    });
    std::iter::once(("CUDA", version)).chain(devices).collect()
}

pub fn machine_json(cuda: &CudaProbe) -> Value {
    let devices = cuda.driver.iter().flat_map(|driver| &driver.devices).map(|found| {
        let (major, minor) = found.compute_capability;
        // Describe one device in json
        json!({
            "ordinal": found.ordinal,
            "name": found.name,
            "memory": found.memory,
            "compute_capability": [major, minor],
        })
    });
    let version = cuda.driver.as_ref().ok().map(|driver| [driver.version.0, driver.version.1]);
    let libraries: serde_json::Map<_, _> =
        cuda.libraries.iter().map(|(name, found)| ((*name).to_string(), json!(found))).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "threads": device::threads(),
        "memory_available": device::available_memory(),
        "cuda": {
            "driver_library": !matches!(cuda.driver, Err(NoCuda::NoLibrary)),
            "driver_version": version,
            "reason": cuda.driver.as_ref().err().map(ToString::to_string),
            "devices": devices.collect::<Vec<_>>(),
            "libraries": libraries,
        },
    })
}

// Tell about the system
/// Bytes of the Toeplitz form and of the dense matrix of `valid` lenslets.
fn sizes(problem: &SlopeProblem, valid: usize) -> [u64; 2] {
    let slopes = 2 * (valid as u64).saturating_mul(problem.sources() as u64);
    [8 * problem.len() as u64, slopes.saturating_mul(slopes).saturating_mul(8)]
}

pub fn system_lines(path: &Path, system: &System) -> Vec<(&'static str, String)> {
    let atmosphere = &system.atmosphere;
    let (r0, nanometres) = (atmosphere.fried_parameter(), 1e9 * atmosphere.wavelength());
    let seeing = atmosphere.seeing_at(atmosphere.wavelength()) / ARCSEC;
    let turbulence = format!("r0 = {r0} m at {nanometres:.0} nm, a seeing of {seeing:.2} arcsec");
    let mut lines = vec![("system", path.display().to_string()), ("turbulence", turbulence)];
    match slope_problem(system) {
        Err(error) => lines.push(("covariance", error.to_string())),
        Ok(problem) => {
            let [compressed, dense] = sizes(&problem, valid(system)).map(in_bytes);
            lines.push(("geometry", geometry(system, &problem)));
            lines.push(("covariance", format!("{compressed} in Toeplitz form, {dense} dense")));
            lines.push(("spectral", SpectralSampling::choose(&problem).to_string()));
        }
    }
    lines
}

pub fn system_json(path: &Path, system: &System) -> Value {
    let valid = valid(system);
    let mut told = json!({
        "file": path.display().to_string(),
        "guide_stars": system.guide_stars.len(),
        "targets": system.targets.len(),
        "layers": system.atmosphere.layers().len(),
        "r0": system.atmosphere.fried_parameter(),
        "wavelength": system.atmosphere.wavelength(),
        "valid": valid,
    });
    match slope_problem(system) {
        Err(error) => told["no_covariance"] = json!(error.to_string()),
        Ok(problem) => {
            // Tell the sizes of the covariance
            let [compressed, dense] = sizes(&problem, valid);
            let chosen = SpectralSampling::choose(&problem);
            told["lenslets"] = json!(problem.lenslets());
            told["pitch"] = json!(problem.pitch());
            told["shape"] = json!(shape(&problem));
            told["toeplitz_bytes"] = json!(compressed);
            told["dense_bytes"] = json!(dense);
            told["samples"] = json!(chosen.sampling.samples());
            told["oversampling"] = json!(chosen.sampling.oversampling());
            told["error_estimate"] = json!(chosen.error_estimate);
        }
    }
    told
}

// Words that several commands use
pub fn align(lines: &[(&str, String)]) -> String {
    lines.iter().map(|(key, text)| format!("{key:<12}{text}\n")).collect()
}

fn shape(problem: &SlopeProblem) -> [usize; 6] {
    let (sources, lags) = (problem.sources(), problem.lags());
    [sources, sources, 2, 2, lags, lags]
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

fn valid(system: &System) -> usize {
    valid_lenslets(system).iter().filter(|valid| **valid).count()
}

fn geometry(system: &System, problem: &SlopeProblem) -> String {
    let (n, pitch, valid) = (problem.lenslets(), problem.pitch(), valid(system));
    let stars = count(problem.sources(), "guide star");
    let layers = count(problem.layers().len(), "layer");
    format!("{stars}, {layers}, {n} × {n} lenslets of {pitch} m, {valid} of them valid")
}
