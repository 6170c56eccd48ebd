// Tangled from book/src/keys-command.md: edit there, or here and run cargo tangle stitch.
//! What the command `info` reports of a sample file.

// Imports of a report of a sample file
use super::stem::sample_report::{add_summary, summary_lines};
use super::summary::count;
use crate::device::{Device, Engine};
use crate::electrons::sample_file::{Algorithm, DetectorTable, SampleFile};
use crate::electrons::{Beam, SAMPLE_KEYS, SampleSummary};
use crate::error::{Error, in_bytes};
use crate::files::Keys;
use crate::files::spanned_toml::Document;
use crate::model::SYSTEM_KEYS;
use crate::plan::{Description, Plan};
use serde_json::{Value, json};

// Tell sample files from system files
/// Whether a document is a sample file: it has tables of one, and none of a system file.
pub fn is_sample(document: &Document) -> bool {
    let has = |keys: Keys| keys.iter().any(|key| document.has(key.name));
    has(SAMPLE_KEYS) && !has(SYSTEM_KEYS)
}

// Describe a sample file
/// A sample file with what its plan reports.
pub struct SampleInfo {
    file: SampleFile,
    summary: SampleSummary,
    plan: Description,
    /// Probes along x and y, of a scan.
    probes: Option<[usize; 2]>,
    beam: Beam,
}

impl SampleInfo {
    /// Plans what a sample file describes.
    pub fn new(file: SampleFile) -> Result<Self, Error> {
        let (engine, beam) =
            (Engine::open(Device::Cpu, file.run.precision)?, Beam::new(file.beam.energy_kev)?);
        let (summary, plan, probes) = match file.method.algorithm {
            Algorithm::Hrtem => {
                let (plan, summary) = file.hrtem_with_summary()?;
                (summary, plan.describe(&engine)?, None)
            }
            _ => {
                let (plan, summary) = file.plan_with_summary()?;
                let probes = Some(plan.options().scan.counts());
                (summary, plan.describe(&engine)?, probes)
            }
        };
        Ok(Self { file, summary, plan, probes, beam })
    }

    // Lines about a sample file
    /// What is reported, by lines.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let file = &self.file;
        let crystal = file.sample.crystal.file();
        let crystal =
            crystal.map_or("in the sample file".into(), |path| path.display().to_string());
        let mut lines = vec![("sample", file.name().to_owned()), ("crystal", crystal)];
        lines.extend(summary_lines(&self.summary));
        let energy =
            format!("{} keV, wavelength {:.6} Å", self.beam.energy_kev(), self.beam.wavelength());
        let runs = count(file.phonons.configurations.max(1), "configuration");
        match self.probes {
            Some([x, y]) => {
                let angle = file.beam.semi_angle;
                lines.push(("beam", format!("{energy}, convergence semi-angle {angle} mrad")));
                lines.push(("scan", format!("{x} × {y} probes, {runs}")));
                lines.push(("detectors", detectors(&file.detector).join(", ")));
            }
            None => {
                lines.push(("beam", format!("{energy}, a plane wave")));
                lines.push((
                    "images",
                    format!("{}, {runs}", count(file.beam.defocus.len(), "focus setting")),
                ));
            }
        }
        lines.push(("memory", format!("at most {} on the host", in_bytes(self.plan.memory.host))));
        lines
    }

    // A sample file in json
    /// What is reported, as JSON.
    pub fn json(&self) -> Value {
        let file = &self.file;
        let mut object = json!({
            "file": file.name(),
            "crystal": file.sample.crystal.file().map(|path| path.display().to_string()),
            "energy_kev": self.beam.energy_kev(),
            "wavelength": self.beam.wavelength(),
            "configurations": file.phonons.configurations.max(1),
            "probes": self.probes,
            "semi_angle": self.probes.map(|_| file.beam.semi_angle),
            "defocus": file.beam.defocus,
            "detectors": self.probes.map(|_| detectors(&file.detector)),
            "memory": self.plan.memory.host,
            "seconds": self.plan.seconds(),
        });
        add_summary(&mut object, &self.summary);
        object
    }
}

// Describe the detectors of a sample file
/// The detectors of a scan, in words.
fn detectors(table: &DetectorTable) -> Vec<String> {
    let mut all = vec![format!("annular bins of {} mrad", table.bin)];
    all.extend(
        table.annuli.iter().map(|[inner, outer]| format!("annulus {inner} to {outer} mrad")),
    );
    all.extend(
        table
            .segmented
            .iter()
            .map(|one| format!("{} sectors {} to {} mrad", one.sectors, one.inner, one.outer)),
    );
    all.extend(
        (table.centre_of_mass || table.integrated_centre).then(|| "centre of mass".to_owned()),
    );
    all.extend(table.integrated_centre.then(|| "integrated centre of mass".to_owned()));
    all.extend(table.four_d.map(|patterns| match patterns.crop {
        Some(crop) => format!("diffraction patterns up to {crop} mrad"),
        None => "diffraction patterns".to_owned(),
    }));
    all
}
