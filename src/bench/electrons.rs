// Tangled from book/src/bench-electrons.md: edit there, or here and run cargo tangle stitch.
//! Run times of scans, beside those of transforms alone.

// Imports of timing scans
use crate::device::gpu::Gpu;
use crate::device::{Engine, processor_name, threads};
use crate::electrons::prism::transform_along;
use crate::electrons::{
    Aberrations, Beam, PotentialModel, PotentialOptions, Probe, Scan, StemMethod, StemOptions,
    StemPlan, StemRunOptions, WaveGrid,
};
use crate::error::{Error, Invalid};
use crate::files::provenance::date;
use crate::numerics::real::{Precision, Real};
use crate::specimen::{Atom, Element, Phonons, Slicing, Specimen};
use crate::watch::{Watch, check};
use ndarray::Array2;
use num_complex::Complex;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::time::{Instant, SystemTime};

// Scans that are timed
/// A scan of silicon that is timed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScanCase {
    /// Its name on the command line.
    pub name: &'static str,
    /// Cells of silicon along x, y and z.
    cells: [usize; 3],
    /// Samples along either side.
    points: usize,
    /// Thickness of a slice \[Å\].
    thickness: f64,
    /// Probes along either side of the specimen.
    probes: usize,
    /// Interpolation of PRISM; 0 is multislice.
    interpolation: usize,
    /// Whether atoms are deep and tremble.
    deep: bool,
    /// The fewest devices for which it is timed unless it is asked for by name; 0 for cores, too.
    devices: usize,
}

// All scans that are timed
const SMALL: ScanCase = ScanCase {
    name: "128-multislice",
    cells: [3, 3, 15],
    points: 128,
    thickness: 2.0,
    probes: 16,
    interpolation: 0,
    deep: false,
    devices: 0,
};
const MIDDLE: ScanCase =
    ScanCase { name: "256-multislice", cells: [4, 4, 10], points: 256, thickness: 1.3575, ..SMALL };
const DEEP: ScanCase = ScanCase {
    name: "512-prism-4-deep",
    cells: [8, 8, 10],
    points: 512,
    interpolation: 4,
    deep: true,
    ..MIDDLE
};
const LARGE: ScanCase = ScanCase {
    name: "512-multislice",
    cells: [8, 8, 25],
    points: 512,
    probes: 64,
    devices: 1,
    ..MIDDLE
};

/// All scans that are timed.
pub const CASES: [ScanCase; 11] = [
    MIDDLE,
    ScanCase { name: "256-prism-4", interpolation: 4, ..MIDDLE },
    SMALL,
    ScanCase { name: "128-prism-2", interpolation: 2, ..SMALL },
    ScanCase { name: "128-prism-4", interpolation: 4, ..SMALL },
    DEEP,
    LARGE,
    ScanCase { name: "512-prism-4", interpolation: 4, ..LARGE },
    ScanCase { name: "512-prism-4-dense", interpolation: 4, probes: 128, ..LARGE },
    ScanCase { name: "512-multislice-dense", probes: 128, devices: 2, ..LARGE },
    ScanCase { name: "512-multislice-65536", probes: 256, devices: 4, ..LARGE },
];

// Silicon without a file
/// So many cells of silicon.
fn silicon(cells: [usize; 3]) -> Result<Specimen, Invalid> {
    const SIDE: f64 = 5.43; // Å
    let quarters =
        [[0, 0, 0], [2, 2, 0], [1, 1, 1], [3, 3, 1], [2, 0, 2], [0, 2, 2], [3, 1, 3], [1, 3, 3]];
    let mut atoms = Vec::new();
    for cell in 0..cells.iter().product() {
        let corner = [cell % cells[0], cell / cells[0] % cells[1], cell / cells[0] / cells[1]];
        for place in quarters {
            let along = |axis: usize| SIDE * (corner[axis] as f64 + 0.25 * f64::from(place[axis]));
            let position = [along(0), along(1), along(2) + 0.125 * SIDE];
            let element = Element::new(14)?;
            atoms.push(Atom { element, position, occupancy: 1.0, displacement: 0.076 });
        }
    }
    Specimen::new(cells.map(|cells| SIDE * cells as f64), atoms)
}

// Pose a scan that is timed
impl ScanCase {
    /// The plan of the scan, as users have it.
    fn plan(&self) -> Result<StemPlan, Invalid> {
        let specimen = silicon(self.cells)?;
        let [x, y, z] = specimen.cell();
        let slicing = Slicing::new(z, self.thickness)?;
        let step = [x, y].map(|side| side / self.probes as f64);
        let method = match self.interpolation {
            0 => StemMethod::Multislice,
            f => StemMethod::Prism { factor: [f; 2], refocus: 0.0, margin: None },
        };
        let model = if self.deep { PotentialModel::Sliced } else { PotentialModel::Projected };
        let (grid, aberrations) =
            (WaveGrid::new([self.points; 2], [x, y])?, Aberrations::default());
        let probe =
            Probe { beam: Beam::new(100.0)?, semi_angle: 20.0, aberrations, tilt: [0.0; 2] };
        let scan = Scan::new([[0.0, x], [0.0, y]], step)?;
        let options = StemOptions::new(grid, slicing, probe, scan)
            .potential(PotentialOptions::default().model(model))
            .phonons(Phonons { configurations: usize::from(self.deep), seed: 1 })
            .method(method);
        StemPlan::new(specimen, options)
    }
}

// Times of a scan
/// How long a scan takes, in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StemTimes {
    /// Name of the case.
    pub name: String,
    /// Samples along either side.
    pub points: usize,
    /// Slices.
    pub slices: usize,
    /// Probes.
    pub probes: usize,
    /// Waves that go through all slices.
    pub waves: usize,
    /// All of it.
    pub total: f64,
    /// Of it what one probe takes as well.
    pub prepared: f64,
    /// Of it reading all waves by detectors, where cores do that.
    pub reading: Option<f64>,
    /// The transforms of whole planes alone, two for each wave and each slice.
    pub transforms: f64,
    /// The total on the first of several devices alone.
    pub alone: Option<f64>,
}

// Time a scan
/// Times a scan as the least of `repeat` runs, after one that does not count.
///
/// # Errors
/// Those of [`StemPlan::run_with`].
pub fn time_stem(
    case: &ScanCase,
    (engine, repeat): (&Engine, u32),
    watch: &dyn Watch,
) -> Result<StemTimes, Error> {
    let plan = case.plan()?;
    let run = |engine: &Engine, places: usize| {
        least(repeat, watch, || {
            let options = StemRunOptions::default().places(0..places);
            plan.run_with(engine, options, watch).map(drop)
        })
    };
    let (probes, waves) = (plan.places(), plan.followed(plan.places())?);
    let (total, prepared) = (run(engine, probes)?, run(engine, 1)?);
    let alone = match engine.devices() {
        [first, _, ..] => {
            let alone = Engine::gpus(vec![first.clone()], engine.precision())?;
            Some(run(&alone, probes)?)
        }
        _ => None,
    };
    let (points, slices) = (case.points, plan.options().slicing.count());
    let work = WaveCost { points, slices, waves };
    let (reading, transforms) = match engine.precision() {
        Precision::F32 => read_and_transform_times::<f32>(&plan, work, engine, repeat, watch)?,
        Precision::F64 => read_and_transform_times::<f64>(&plan, work, engine, repeat, watch)?,
    };
    let name = case.name.into();
    Ok(StemTimes {
        name,
        points,
        slices,
        probes,
        waves,
        total,
        prepared,
        reading,
        transforms,
        alone,
    })
}

// The least time of a few runs
/// The least time of so many runs, in seconds, after one that does not count.
fn least(
    repeat: u32,
    watch: &dyn Watch,
    mut run: impl FnMut() -> Result<(), Error>,
) -> Result<f64, Error> {
    let mut least = f64::INFINITY;
    for k in 0..=repeat.max(1) {
        check(watch)?;
        let start = Instant::now();
        run()?;
        if k > 0 {
            least = least.min(start.elapsed().as_secs_f64());
        }
    }
    Ok(least)
}

// Time intermediate results of a scan
// Samples and slices of waves
/// Waves of so many samples along either side, and through how many slices they go.
#[derive(Debug, Clone, Copy)]
struct WaveCost {
    points: usize,
    slices: usize,
    waves: usize,
}

/// The times of reading all waves, if cores do that, and of transforms alone.
fn read_and_transform_times<T: Real>(
    plan: &StemPlan,
    work: WaveCost,
    engine: &Engine,
    repeat: u32,
    watch: &dyn Watch,
) -> Result<(Option<f64>, f64), Error> {
    if let Some(gpu) = engine.devices().first() {
        let all = transforms_on_device::<T>(gpu, work, repeat)?;
        return Ok((None, all / engine.devices().len() as f64));
    }
    let [nx, ny] = plan.grid().points().map(|points| points / 2);
    let wave = Array2::from_elem((ny, nx), Complex::new(T::one(), T::zero()));
    let read = |_| drop(black_box(plan.detectors().read(wave.view())));
    let all = || {
        (0..plan.places()).into_par_iter().for_each(read);
        Ok(())
    };
    Ok((Some(least(repeat, watch, all)?), transforms_on_host::<T>(work, repeat, watch)?))
}

// Transforms alone on cores
/// Seconds of the transforms of whole planes on all cores, forward and back for each wave and slice.
fn transforms_on_host<T: Real>(
    work: WaveCost,
    repeat: u32,
    watch: &dyn Watch,
) -> Result<f64, Error> {
    let (forward, inverse) = T::plan_complex(work.points);
    let transforms = [forward, inverse].map(|transform| [transform.clone(), transform]);
    let (waves, slices) = (work.waves.min(4 * threads()), work.slices.min(4));
    let number = Complex::new(T::one(), T::zero());
    let mut planes = vec![vec![number; work.points * work.points]; waves];
    let transform = |plane: &mut Vec<Complex<T>>| {
        let mut scratch = Vec::new();
        plane.fill(number);
        for k in 0..2 * slices {
            transform_along(plane, &transforms[k % 2], &mut scratch);
        }
    };
    let some = least(repeat, watch, || {
        planes.par_iter_mut().for_each(transform);
        Ok(())
    })?;
    Ok(some * (work.waves as f64 / waves as f64) * (work.slices as f64 / slices as f64))
}

// Transforms alone on a device
/// Seconds of the same on a device, by its clock.
fn transforms_on_device<T: Real>(gpu: &Gpu, work: WaveCost, repeat: u32) -> Result<f64, Error> {
    let plane = work.points * work.points;
    let waves = work.waves.min(((1 << 27) / (plane * size_of::<Complex<T>>())).max(1));
    let sides = [work.points; 2];
    let (forward, inverse) =
        (gpu.forward_fft::<T>(&sides, waves)?, gpu.inverse_fft::<T>(&sides, waves)?);
    let planes = gpu.zeros::<Complex<T>>(waves * plane)?;
    let slice = || {
        gpu.transform(&forward, &planes, &planes)?;
        gpu.transform(&inverse, &planes, &planes)
    };
    let mut least = f64::INFINITY;
    for _ in 0..=repeat.max(1) {
        least = least.min(gpu.milliseconds(work.slices.min(20), slice)?);
    }
    Ok(1e-3 * least * work.slices as f64 * (work.waves as f64 / waves as f64))
}

// Sheet of scans
/// Times of scans that were measured on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StemSheet {
    /// Day of the measurement, UTC.
    pub date: String,
    /// Version of this crate.
    pub version: String,
    /// The processor, whose cores prepare what devices need.
    pub processor: String,
    /// Threads, or devices.
    pub engine: String,
    /// Precision of waves.
    pub precision: String,
    /// Runs of which least times were taken.
    pub repeat: u32,
    /// The scans.
    pub rows: Vec<StemTimes>,
}

impl StemSheet {
    /// Measures some cases on an engine.
    ///
    /// # Errors
    /// Those of [`time_stem`].
    pub fn measure(
        cases: &[ScanCase],
        engine: &Engine,
        repeat: u32,
        watch: &dyn Watch,
    ) -> Result<Self, Error> {
        let rows = cases.iter().map(|case| time_stem(case, (engine, repeat), watch));
        Ok(Self {
            rows: rows.collect::<Result<_, _>>()?,
            date: date(SystemTime::now())[..10].to_string(),
            version: env!("CARGO_PKG_VERSION").into(),
            processor: processor_name(),
            engine: engine.name(),
            precision: engine.precision().name().into(),
            repeat,
        })
    }

    // Table of scans
    /// The table of the scans.
    pub fn table(&self) -> String {
        let Self { date, version, processor, engine, precision, repeat, .. } = self;
        let mut table = format!(
            "Scans of silicon, {precision}; the least of {repeat} runs, in seconds\n\
             {processor}; {engine}; lenslet {version}, {date}\n\
             {:21} {:>6} {:>6} {:>6}  {:>9} {:>9} {:>9} {:>9}  {:>10} {:>6}\n",
            "case",
            "slices",
            "probes",
            "waves",
            "one probe",
            "others",
            "reading",
            "all",
            "transforms",
            "ratio"
        );
        for times in &self.rows {
            let reading = times.reading.map_or("–".into(), |reading| format!("{reading:.4}"));
            let others = (times.total - times.prepared).max(0.0);
            table += &format!(
                "{:21} {:>6} {:>6} {:>6}  {:>9.4} {others:>9.4} {reading:>9} {:>9.4}  {:>10.4} {:>6.2}\n",
                times.name,
                times.slices,
                times.probes,
                times.waves,
                times.prepared,
                times.total,
                times.transforms,
                times.transforms / times.total,
            );
            if let Some(alone) = times.alone {
                let gain = alone / times.total;
                table += &format!(
                    "    on the first device alone {alone:.4} s: {gain:.2} times as long\n"
                );
            }
        }
        table
    }
}

// Choose scans by number of devices
/// The cases of some names, or those for so many devices where there is no name.
///
/// # Errors
/// `Invalid` for a name that no case has.
pub fn chosen(names: &[String], devices: usize) -> Result<Vec<ScanCase>, Invalid> {
    if names.is_empty() {
        let fits = |case: &ScanCase| case.devices <= devices;
        return Ok(CASES.into_iter().filter(fits).collect());
    }
    let all = CASES.map(|case| case.name).join(", ");
    let known = |name: &String| {
        let case = CASES.into_iter().find(|case| case.name == name);
        case.ok_or_else(|| Invalid::new("case", name, format!("one of {all}")))
    };
    names.iter().map(known).collect()
}

// Tests of timed scans
#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::unwatched;

    const TINY: ScanCase = ScanCase {
        name: "tiny",
        cells: [1, 1, 1],
        points: 32,
        thickness: 5.43 / 2.0,
        probes: 3,
        interpolation: 0,
        deep: false,
        devices: 0,
    };

    #[test]
    fn scans_are_those_of_the_table() {
        let [middle, prism, small] = [0, 1, 2].map(|k| CASES[k].plan().unwrap());
        let sides = |plan: &StemPlan, l: f64| (plan.options().grid.lengths()[0] - l).abs() < 1e-9;
        assert!(sides(&middle, 21.72) && sides(&small, 16.29));
        assert_eq!([&middle, &small].map(|plan| plan.options().slicing.count()), [40, 41]);
        assert_eq!([&middle, &small].map(StemPlan::places), [256, 256]);
        assert_eq!((prism.followed(256).unwrap(), prism.grid().points()), (37, [64, 64]));
        assert_eq!(middle.specimen().atoms().len(), 8 * 160);
        let named = |devices| chosen(&[], devices).unwrap().len();
        assert_eq!([0, 1, 2].map(named), [6, 9, 10]);
        assert_eq!(CASES[5].plan().unwrap().configurations(), 1);
        assert_eq!(chosen(&["128-prism-2".into()], 0).unwrap(), [CASES[3]]);
        let refused = chosen(&["129".into()], 0).unwrap_err();
        assert!(refused.expected.contains("512-multislice-dense"), "{refused}");
    }

    #[test]
    fn the_parts_of_a_time_are_those_of_its_whole() {
        for (interpolation, deep) in [(0, false), (1, false), (1, true)] {
            let case = ScanCase { interpolation, deep, ..TINY };
            let engine = Engine::cpu(Precision::F32);
            let sheet = StemSheet::measure(&[case], &engine, 2, &unwatched).unwrap();
            let times = &sheet.rows[0];
            assert_eq!((times.slices, times.probes, times.alone), (2, 9, None));
            assert_eq!(times.waves, if interpolation == 0 { 9 } else { 37 }, "{times:?}");
            assert!(times.prepared > 0.0 && times.total > 0.0 && times.transforms > 0.0);
            let table = sheet.table();
            let widths: Vec<_> = table.lines().map(|line| line.chars().count()).collect();
            assert!(widths.len() == 4 && widths[2] == widths[3], "{table}");
            let copy: StemSheet =
                serde_json::from_str(&serde_json::to_string(&sheet).unwrap()).unwrap();
            assert_eq!(copy.rows[0].waves, times.waves);
        }
    }

    #[test]
    fn transforms_are_timed_on_devices_as_well() {
        for gpu in crate::device::gpu::test_backends() {
            let work = WaveCost { points: 16, slices: 3, waves: 5 };
            assert!(transforms_on_device::<f32>(&gpu, work, 2).unwrap() > 0.0, "{}", gpu.name());
        }
    }
}
