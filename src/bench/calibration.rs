// Tangled from book/src/calibration.md: edit there, or here and run cargo tangle stitch.
//! Calibration of this machine: run times of small reconstructors, compared with their plans, and stored in the user's cache.

// Imports of a calibration
use super::reconstruct::time_stages;
use crate::device::cuda::probe::probe;
use crate::device::{CostKind, Engine, Speed, cache, processor_name, threads};
use crate::error::{Error, Invalid, count};
use crate::estimation::inversion::Inversion;
use crate::files::provenance::today;
use crate::model::atmosphere::{Atmosphere, Layer};
use crate::model::lenslet_array::LensletArray;
use crate::model::noise::GuideStar;
use crate::model::source::Source;
use crate::model::system::System;
use crate::plan::Plan;
use crate::tomography::reconstructor::{ReconstructorOptions, ReconstructorPlan};
use crate::watch::{Watch, WithinStage};
use serde::Serialize;
use serde_json::{Value, json};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

// Pieces of a calibration
/// A small reconstructor whose stages measure the paces of a machine.
struct Piece {
    method: Inversion,
    /// Lenslets across the sensors of the guide stars, and across the truth sensor.
    lenslets: [usize; 2],
    /// Whether all stars share a lattice.
    shared: bool,
    /// Stages with one kind of cost, by their names in the plan.
    stages: &'static [(&'static str, CostKind)],
}
const INTEGRATED: (&str, CostKind) = ("covariance of measurements", CostKind::Integrals);
const WRITTEN: (&str, CostKind) = ("covariance of measurements", CostKind::Memory);
const FACTOR: (&str, CostKind) = ("factorisation", CostKind::Factors);
const VECTORS: (&str, CostKind) = ("factorisation", CostKind::Eigenvectors);
const SOLVED: (&str, CostKind) = ("reconstructor", CostKind::Products);
const ITERATED: (&str, CostKind) = ("reconstructor", CostKind::Transforms);
const READ: (&str, CostKind) = ("error", CostKind::Memory);

// Make and scale a piece
impl Piece {
    const fn new(
        method: Inversion,
        lenslets: [usize; 2],
        shared: bool,
        stages: &'static [(&'static str, CostKind)],
    ) -> Self {
        Self { method, lenslets, shared, stages }
    }

    /// Scales the numbers of lenslets across the sensors by `times`.
    fn scaled(self, times: f64) -> Self {
        let lenslets = self.lenslets.map(|lenslets| (times * lenslets as f64).round() as usize);
        Self { lenslets, ..self }
    }
}

// Pieces for cores and devices
/// For two cores.
const ON_CORES: [Piece; 4] = [
    Piece::new(Inversion::Cholesky, [14, 14], false, &[INTEGRATED, SOLVED]),
    Piece::new(Inversion::Cholesky, [26, 6], true, &[WRITTEN, FACTOR]),
    Piece::new(Inversion::Eigen, [9, 4], false, &[VECTORS]),
    Piece::new(Inversion::Iterative, [12, 4], true, &[ITERATED]),
];

const ON_DEVICES: [Piece; 3] = [
    Piece::new(Inversion::Cholesky, [60, 36], false, &[INTEGRATED, FACTOR, SOLVED, READ]),
    Piece::new(Inversion::Eigen, [24, 6], false, &[VECTORS]),
    Piece::new(Inversion::Iterative, [64, 6], true, &[ITERATED]),
];

// System of a piece
impl Piece {
    fn system(&self) -> Result<System, Invalid> {
        let [lenslets, truth] = self.lenslets;
        let width = 0.5 * lenslets as f64;
        let array = |lenslets: usize| LensletArray::new(lenslets, width / lenslets as f64);
        let layers = [(0.0, 0.5), (2e3, 0.2), (5e3, 0.1), (9e3, 0.1), (14e3, 0.1)];
        let layers = layers.map(|(altitude, share)| Layer::new(altitude, share, 25.0)).to_vec();
        let star = |zenith: f64, azimuth: f64, height: f64, lenslets: usize| {
            let source = Source::new(zenith, azimuth, height)?;
            GuideStar::at_rest(source, array(lenslets)?, 2e-14)
        };
        // Guide stars of a piece
        let mut stars = vec![
            star(1e-4, 0.3, f64::INFINITY, lenslets)?,
            star(1e-4, 2.4, f64::INFINITY, lenslets)?,
        ];
        if !self.shared {
            stars.extend([star(5e-5, 1.0, 90e3, lenslets)?, star(5e-5, 4.0, 90e3, lenslets)?]);
            let mut turned = star(8e-5, 5.5, f64::INFINITY, (lenslets / 4).max(1))?;
            turned.sensor.rotation = 0.2;
            stars.push(turned);
        }
        let air = Atmosphere::new(0.15, 500e-9, layers)?;
        System::builder(air, array(lenslets)?)
            .guide_stars(stars)
            .targets([Source::star(2e-5, 0.0)?])
            .truth_sensor(Some(array(truth)?))
            .build()
    }
}

// Run times by kind of cost
/// Measured and planned run times of the stages with one kind of cost.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasuredTimes {
    /// Name of the kind of cost.
    pub kind: &'static str,
    /// Measured run time \[s\].
    pub found: f64,
    /// Run time \[s\] by the built-in rates.
    pub planned: f64,
}

impl MeasuredTimes {
    /// Pace of the machine for this kind of cost.
    pub fn pace(&self) -> f64 {
        self.found / self.planned
    }
}

// Measure the kinds of cost
/// Name of the stage of a calibration, for the watcher.
pub const STAGE: &str = "speed of this machine";

/// Calibrates the machine of an engine: run times of one of its threads, or of one of its devices, for each kind of cost.
///
/// # Errors
/// `Cancelled` where the watcher stops it; errors of a device, and `Memory` where the pieces do not fit.
pub fn measure(engine: &Engine, watch: &dyn Watch) -> Result<Vec<MeasuredTimes>, Error> {
    match engine.devices() {
        [] => {
            let larger = (0.5 * threads() as f64).powf(0.15);
            let pieces = ON_CORES.map(|piece| piece.scaled(larger));
            run(&pieces, &Engine::cpu(engine.precision()), watch)
        }
        [first, ..] => {
            let alone = Engine::gpus(vec![first.clone()], engine.precision())?;
            run(&ON_DEVICES, &alone, watch)
        }
    }
}
/// Measures the kinds of cost of some pieces, each of which runs twice.
fn run(pieces: &[Piece], engine: &Engine, watch: &dyn Watch) -> Result<Vec<MeasuredTimes>, Error> {
    let mut measured = Vec::new();
    watch.stage(STAGE, "");
    for (number, piece) in pieces.iter().enumerate() {
        watch.part("measurement", number, pieces.len());
        let options = ReconstructorOptions::default().method(piece.method).tolerance(1e-3);
        let plan = ReconstructorPlan::new(&piece.system()?, options)?;
        let planned = plan.describe(engine)?.stages;
        let (run, within) =
            (|watch: &dyn Watch| plan.run(engine, watch).map(drop), WithinStage(watch));
        let runs = (0..2).map(|_| Ok(time_stages(run, &within)?.1));
        let runs = runs.collect::<Result<Vec<_>, Error>>()?;
        // Compare measured and planned times
        for &(name, kind) in piece.stages {
            let of_run = |run: &Vec<(String, f64)>| -> f64 {
                run.iter().filter(|(stage, _)| stage == name).map(|(_, seconds)| seconds).sum()
            };
            let fastest = runs.iter().map(of_run).fold(f64::INFINITY, f64::min);
            let stages = planned.iter().filter(|stage| stage.name == name);
            let planned = stages.map(|stage| stage.seconds).sum();
            measured.push(MeasuredTimes { kind: kind.name(), found: fastest, planned });
        }
    }
    Ok(measured)
}

// Make a speed from a calibration
/// Speed from a calibration, dated now.
///
/// # Errors
/// `Invalid` where a pace is not positive and finite.
pub fn speed(measured: &[MeasuredTimes]) -> Result<Speed, Invalid> {
    let pace = |kind: CostKind| {
        let times = measured.iter().find(|measured| measured.kind == kind.name());
        times.map_or(1.0, MeasuredTimes::pace)
    };
    Speed::measured(today(), pace)
}

/// Table of a calibration of an engine, one line for each kind of cost.
pub fn table(measured: &[MeasuredTimes], engine: &str) -> String {
    let mut table = format!("Speed of {engine}, against the built-in rates.\n");
    table += "kind               found      planned     pace\n";
    for of_kind in measured {
        let MeasuredTimes { kind, found, planned } = of_kind;
        table += &format!("{kind:12} {found:>9.4} s  {planned:>9.4} s  {:>7.2}\n", of_kind.pace());
    }
    table
}

// File of a calibration
/// File of the calibration of a machine in the user's cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    file: PathBuf,
    key: String,
}

impl Kept {
    /// File for an engine, if the user has a cache.
    pub fn of(engine: &Engine) -> Option<Self> {
        cache::folder().map(|folder| Self::within(&folder, engine))
    }

    /// File for an engine in a folder.
    pub fn within(folder: &Path, engine: &Engine) -> Self {
        Self::keyed(folder, key(engine))
    }

    fn keyed(folder: &Path, key: String) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        Self { file: folder.join(format!("speed-{:016x}.json", hasher.finish())), key }
    }

    /// Path of the file.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

/// Everything that a calibration depends on.
fn key(engine: &Engine) -> String {
    let built = if cfg!(debug_assertions) { "debug" } else { "release" };
    let version = env!("CARGO_PKG_VERSION");
    let machine = match engine.devices() {
        [] => format!("{}, {}", processor_name(), count(threads(), "thread")),
        [first, ..] => {
            let driver = probe().driver.map_or((0, 0), |driver| driver.version);
            format!("{}, {driver:?}, {}", first.name(), engine.precision().name())
        }
    };
    format!("lenslet {version}, {built}, {machine}")
}

// Read a stored calibration
/// Maximum number of bytes that are read from a file.
const LONGEST_FILE: u64 = 1 << 20;

impl Kept {
    /// Stored speed, if the file is complete and has this key.
    pub fn speed(&self) -> Option<Speed> {
        if !self.file.is_file() {
            return None;
        }
        let (mut bytes, file) = (Vec::new(), fs::File::open(&self.file).ok()?);
        file.take(LONGEST_FILE + 1).read_to_end(&mut bytes).ok()?;
        if bytes.len() as u64 > LONGEST_FILE {
            return None;
        }
        let content: Value = serde_json::from_slice(&bytes).ok()?;
        let paces = &content["paces"];
        let whole = CostKind::ALL.iter().all(|(_, name)| paces[name].is_f64());
        let date = content["date"].as_str().filter(|_| whole && content["key"] == self.key)?;
        let pace = |kind: CostKind| paces[kind.name()].as_f64().unwrap_or(f64::NAN);
        Speed::measured(date.into(), pace).ok()
    }
}

// Store a calibration
impl Kept {
    /// Stores a speed; the file is complete or absent.
    ///
    /// # Errors
    /// Reason why the file cannot be written.
    pub fn keep(&self, speed: &Speed) -> io::Result<()> {
        let paces: serde_json::Map<String, Value> = CostKind::ALL
            .map(|(kind, name)| (name.into(), json!(speed.pace(kind))))
            .into_iter()
            .collect();
        let content = json!({ "key": self.key, "date": speed.date(), "paces": paces });
        cache::keep(&self.file, &[format!("{content:#}\n").as_bytes()])
    }

    /// Message for a speed that could not be stored.
    pub fn cannot_keep(&self, error: io::Error) -> String {
        format!("the speed of this machine is not kept in {}: {error}", self.file.display())
    }
}

// Tests of calibrations
#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::unwatched;

    fn some_speed() -> Speed {
        let place = |kind: CostKind| CostKind::ALL.iter().position(|(other, _)| *other == kind);
        let pace = |kind| 0.125 + 0.5 * place(kind).unwrap() as f64;
        Speed::measured("2026-11-23T04:00:00".into(), pace).unwrap()
    }

    #[test]
    fn kept_speeds_are_those_of_their_key() {
        let (folder, speed) = (tempfile::tempdir().unwrap(), some_speed());
        let kept = Kept::keyed(&folder.path().join("deeper"), "this machine".into());
        assert_eq!(kept.speed(), None);
        kept.keep(&speed).unwrap();
        assert_eq!(kept.speed(), Some(speed.clone()));
        let other = Kept { key: "another".into(), ..kept.clone() };
        assert_eq!(other.speed(), None);
        assert_ne!(Kept::keyed(folder.path(), "another".into()).file, kept.file);
        // Damage the file in all ways
        let content = fs::read_to_string(&kept.file).unwrap();
        for length in 0..content.trim_end().len() {
            fs::write(&kept.file, &content[..length]).unwrap();
            assert_eq!(kept.speed(), None, "{length} bytes");
        }
        for (from, to) in [("0.125", "-0.125"), ("0.125", "\"fast\""), ("memory", "memories")] {
            fs::write(&kept.file, content.replacen(from, to, 1)).unwrap();
            assert_eq!(kept.speed(), None, "{to}");
        }
        // Files that hold no calibration
        fs::write(&kept.file, format!("{content}{}", " ".repeat(2 << 20))).unwrap();
        assert_eq!(kept.speed(), None, "2 MiB");
        fs::File::create(&kept.file).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(kept.speed(), None, "1 TiB");
        let start = std::time::Instant::now();
        fs::remove_file(&kept.file).unwrap();
        let pipe = std::process::Command::new("mkfifo").arg(&kept.file).status();
        if pipe.is_ok_and(|status| status.success()) {
            assert_eq!(kept.speed(), None, "a pipe");
        }
        assert!(start.elapsed().as_secs() < 5);
        kept.keep(&speed).unwrap();
        assert_eq!(kept.speed(), Some(speed));
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let blocked = folder.path().join("taken");
        fs::write(&blocked, "a file and no folder").unwrap();
        let kept = Kept::keyed(&blocked, "this machine".into());
        let error = kept.keep(&some_speed()).unwrap_err();
        assert_eq!(kept.speed(), None);
        let message = kept.cannot_keep(error);
        assert!(message.contains("is not kept in") && message.contains("taken"), "{message}");
    }

    #[test]
    fn keys_tell_machines_apart() {
        let cores = key(&Engine::default());
        assert!(cores.contains(&processor_name()) && cores.contains("threads"), "{cores}");
        assert!(cores.starts_with(&format!("lenslet {}", env!("CARGO_PKG_VERSION"))), "{cores}");
    }

    // Tests of pieces
    #[test]
    fn pieces_measure_what_they_say() {
        let tiny = [
            Piece::new(Inversion::Cholesky, [3, 2], false, &[INTEGRATED, SOLVED]),
            Piece::new(Inversion::Iterative, [3, 2], true, &[ITERATED]),
        ];
        let engine = Engine::default();
        let measured = run(&tiny, &engine, &unwatched).unwrap();
        let kinds: Vec<_> = measured.iter().map(|measured| measured.kind).collect();
        assert_eq!(kinds, ["integrals", "products", "transforms"]);
        assert!(measured.iter().all(|of_kind| of_kind.found > 0.0 && of_kind.planned > 0.0));
        let found = speed(&measured).unwrap();
        assert_eq!(found.pace(CostKind::Integrals), measured[0].pace());
        assert_eq!((found.pace(CostKind::Factors), found.date().is_some()), (1.0, true));
        // A plan with the calibrated rates reproduces the measured run times.
        let plan =
            ReconstructorPlan::new(&tiny[0].system().unwrap(), ReconstructorOptions::default());
        let plan = plan.unwrap();
        let description = plan.describe(&engine.with_speed(found.clone())).unwrap();
        let integrals = description.stages.iter().find(|stage| stage.name == INTEGRATED.0).unwrap();
        assert!((integrals.seconds / measured[0].found - 1.0).abs() < 0.2);
        assert_eq!(description.rates, found.to_string());
        let names = |pieces: &[Piece]| -> Vec<_> {
            pieces.iter().flat_map(|piece| piece.stages).map(|(_, kind)| kind.name()).collect()
        };
        for (_, name) in CostKind::ALL {
            assert!(
                [&ON_CORES[..], &ON_DEVICES[..]].iter().all(|all| names(all).contains(&name)),
                "{name}"
            );
        }
        assert!(table(&measured, "2 threads").lines().count() == 5);
    }
}
