// Tangled from book/src/telemetry-command.md: edit there, or here and run cargo tangle stitch.
//! Telemetry in commands: what `reconstruct` and `simulate` write, and what `import` reads.

// Imports of telemetry in commands
use super::summary::{Outcome, align, count, file_json, file_line};
use crate::correction::{Correction, CorrectionMode, CorrectionOptions};
use crate::device::Engine;
use crate::error::Error;
use crate::files::atomic_file::{AtomicFile, check_files};
use crate::files::provenance::Provenance;
use crate::formats::aot::system::TelemetrySystem;
use crate::formats::aot::{Telemetry, TelemetryFile};
use crate::model::control::ControlLoop;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::system::System;
use crate::model::system_file::SystemFile;
use crate::numerics::real::Precision;
use crate::tomography::reconstructor::ReconstructedQuantity;
use ndarray::{Array3, ArrayView2};
use serde_json::json;
use std::path::Path;

// Telemetry of a reconstruction
/// What names of telemetry end in.
pub const TELEMETRY: &str = ".aot.fits";

/// Whether a name ends in that.
pub fn is_named_telemetry(path: &Path) -> bool {
    path.to_string_lossy().to_ascii_lowercase().ends_with(TELEMETRY)
}

/// The mirrors and the loop of a system file, for telemetry of its reconstruction.
pub struct Loops {
    correction: Option<(Correction, CorrectionMode)>,
    control: Option<ControlLoop>,
}

impl Loops {
    /// Reads them, and checks that a reconstruction of the system will do for the mirrors.
    pub fn of(system: &System, file: &SystemFile) -> Result<Self, Error> {
        let correction = match CorrectionOptions::from_system_file(file)? {
            Some(options) => {
                let correction = Correction::new(system, &options)?;
                correction.rows_for(system.targets().len())?;
                Some((correction, options.mode))
            }
            None => None,
        };
        Ok(Self { correction, control: ControlLoop::from_system_file(file)? })
    }

    /// A draft of telemetry with the loops of a reconstructor of slopes, (T, m, n), whose command matrices are made by an engine, or with its command
    /// matrices.
    pub fn draft(
        &self,
        path: &Path,
        (system, (reconstructor, to)): (&System, (&Array3<f64>, ReconstructedQuantity)),
        (engine, precision): (&Engine, Precision),
        origin: Provenance,
    ) -> Result<AtomicFile, Error> {
        let commands = match &self.correction {
            Some(_) if to == ReconstructedQuantity::Actuators => {
                reconstructor.outer_iter().map(|command| command.to_owned()).collect()
            }
            Some((correction, _)) => correction.commands(reconstructor, engine)?,
            None => Vec::new(),
        };
        let mut telemetry = Telemetry::of(system);
        match &self.correction {
            Some((correction, mode)) => {
                telemetry.add_correction(correction, *mode, &commands, self.control.as_ref())?;
            }
            None => telemetry.add_reconstructor(system, reconstructor)?,
        }
        telemetry.origin(origin);
        let mut draft = AtomicFile::new(path)?;
        draft.fill(|file| telemetry.write(std::io::BufWriter::new(file), precision))?;
        Ok(draft)
    }
}

// Telemetry of a simulation
/// A draft of telemetry with slopes, (frames, n), rad.
pub fn draft_of_slopes(
    path: &Path,
    system: &System,
    slopes: ArrayView2<f64>,
    origin: Provenance,
) -> Result<AtomicFile, Error> {
    let mut telemetry = Telemetry::of(system);
    telemetry.add_slopes(system, slopes)?;
    telemetry.origin(origin);
    let mut draft = AtomicFile::new(path)?;
    draft.fill(|file| telemetry.write(std::io::BufWriter::new(file), Precision::F64))?;
    Ok(draft)
}

// Import telemetry as a system
/// Makes a system file of telemetry; tells what to print, whether as JSON and whether without a summary.
pub fn import_telemetry(
    path: &Path,
    output: Option<&Path>,
    (as_json, quiet): (bool, bool),
) -> Result<Outcome, Error> {
    let outputs: Vec<_> = output.iter().map(|path| ("output", *path)).collect();
    check_files(&[("telemetry", path)], &outputs)?;
    let file = TelemetryFile::open(path)?;
    let imported = TelemetrySystem::with_correction(&file)?;
    let text = imported.with_notes(path);
    let Some(output) = output else { return Ok(text.into()) };
    let system = System::from_toml(&text, &output.display().to_string())?;
    AtomicFile::holding(output, text.as_bytes())?.publish()?;
    // Say what telemetry was imported
    let (stars, targets) = (system.guide_stars().len(), system.targets().len());
    let slopes = SlopeOrder::new(&system.valid_lenslets()).len();
    let layers = system.atmosphere().layers().len();
    if as_json {
        let summary = json!({
            "file": path.display().to_string(),
            "mode": file.mode(),
            "guide_stars": stars,
            "slopes": slopes,
            "layers": layers,
            "targets": targets,
            "notes": imported.notes,
            "output": file_json(Some(output)),
        });
        return Ok(format!("{summary}\n").into());
    }
    let of_stars = [count(stars, "guide star"), count(slopes, "slope")].join(", ");
    let of_air = [count(layers, "layer"), count(targets, "target")].join(", ");
    let mut lines = vec![
        ("system", format!("{of_stars}; {of_air}")),
        ("telemetry", format!("{}: {}", path.display(), file.mode())),
    ];
    let mut name = "notes";
    for note in &imported.notes {
        lines.push((std::mem::take(&mut name), note.clone()));
    }
    lines.push(file_line("output", output, ""));
    Ok(if quiet { String::new() } else { align(&lines) }.into())
}
