// Tangled from book/src/scan.md: edit there, or here and run cargo tangle stitch.
//! Scans: where probes stand, in which order they are followed, and their readings.
mod gpu;

// Imports of scans
use super::beam::{Probe, ProbeWave};
use super::detector::{DetectorOptions, Detectors};
use super::multislice::{Multislice, Transmission, seconds_of_a_pass};
use super::potential::{Potential, PotentialOptions};
use super::prism::{Prism, SMatrix};
use super::wave_grid::WaveGrid;
use crate::device::gpu::Buffer;
use crate::device::{CostKind, Engine, Workers, dispatch, dispatch_in_runs, gather, threads};
use crate::error::{Error, Invalid, accept, count, finite, is_ordered, positive};
use crate::numerics::real::{Precision, Real};
use crate::plan::{Description, Memory, Plan, Stage};
use crate::specimen::{Phonons, Slicing, Specimen, TiledSpecimen};
use crate::watch::{CancelOnly, Part, Watch};
use ndarray::parallel::prelude::*;
use ndarray::{Array2, Array3, ArrayView1, ArrayView3, Axis, Zip, s};
use num_complex::Complex;
use std::sync::{Arc, OnceLock};
use std::{ops::Range, thread::ScopedJoinHandle};

/// Bytes of waves in a block, and of slices that are kept, at most.
const BLOCK: usize = 1 << 29;
const KEPT: usize = 1 << 30;

/// Seconds of one thread for a beam in a sample of a window.
const TERM: f64 = 6e-9;

/// Seconds of one device for the waves of a scan, from which several finish sooner, though each of them has to prepare its kernels, its
/// transforms and its copy of the slices.
const WORTHWHILE: f64 = 0.2;

/// Share of a thread that propagating waves through slices occupies: all of it on the host, next to none on a device.
fn share(engine: &Engine) -> f64 {
    if engine.devices().is_empty() { 1.0 } else { 5e-4 }
}

// Places of a scan
/// Positions of the probe in a scan: a lattice in a window.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Scan {
    window: [[f64; 2]; 2],
    step: [f64; 2],
    #[cfg_attr(feature = "serde", serde(skip))]
    counts: [usize; 2],
}

#[cfg(feature = "serde")]
crate::serial::deserialize_by!(Scan::new(window: [[f64; 2]; 2], step: [f64; 2])?);

impl Scan {
    // Lay positions over a window
    /// Positions from the beginning of `window` \[\[x from, to\], \[y from, to\]\] \[Å\] by `step`s \[Å\], the end not included.
    ///
    /// # Errors
    /// `Invalid` where an end does not lie behind its beginning, a step is not positive, or there are more than 10⁹ positions.
    ///
    /// ```
    /// use lenslet::electrons::Scan;
    /// let scan = Scan::new([[0.0, 5.43], [1.0, 2.0]], [5.43 / 16.0, 0.4])?;
    /// assert_eq!(scan.counts(), [16, 3]);
    /// assert_eq!(scan.place(5), [5.43 / 16.0, 1.8]); // y goes fastest
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn new(window: [[f64; 2]; 2], step: [f64; 2]) -> Result<Self, Invalid> {
        // Count the positions along each axis
        let mut counts = [0; 2];
        for axis in 0..2 {
            let [from, to] = window[axis];
            let good = from.is_finite() && to.is_finite() && from < to;
            accept(good, "window", [from, to], "two lengths in Å, the second larger")?;
            let steps = (to - from) / positive("step", step[axis])? - 1e-9;
            counts[axis] = accept(steps < 1e9, "step", step[axis], "at most 1e9 places")
                .map(|_| steps.ceil().max(1.0) as usize)?;
        }
        let all = counts[0].saturating_mul(counts[1]);
        accept(all <= 1_000_000_000, "step", step, "at most 1e9 places")?;
        Ok(Self { window, step, counts })
    }

    // Counts and steps of a scan
    /// Numbers of positions along x and y.
    pub fn counts(&self) -> [usize; 2] {
        self.counts
    }

    /// Steps along x and y \[Å\].
    pub fn step(&self) -> [f64; 2] {
        self.step
    }

    // Position of a probe by number
    /// Position `k` \[Å\] of all, x before y; the next one lies along y.
    pub fn place(&self, k: usize) -> [f64; 2] {
        let at = [k / self.counts[1], k % self.counts[1]];
        [0, 1].map(|axis| self.window[axis][0] + at[axis] as f64 * self.step[axis])
    }
}

// What is asked of a scan
/// Options of a scan, without the specimen.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StemOptions {
    /// Samples of a wave.
    pub grid: WaveGrid,
    /// Slices of the specimen.
    pub slicing: Slicing,
    /// Model of the potential of a slice.
    pub potential: PotentialOptions,
    /// Frozen phonons.
    pub phonons: Phonons,
    /// The probe.
    pub probe: Probe,
    /// Tilt of the specimen in a straight beam \[mrad\], x and y, see [`Multislice::through_tilted`].
    pub tilt: [f64; 2],
    /// Defoci \[Å\] of a series, added to that of the probe; one of 0 if there is none.
    pub defoci: Vec<f64>,
    /// Positions of the probe.
    pub scan: Scan,
    /// How the waves are computed.
    pub method: StemMethod,
    /// Detectors that read each wave.
    pub detectors: DetectorOptions,
    /// Numbers of slices behind which the wave is read, in rising order; the last is usually that of all.
    pub ends: Vec<usize>,
}

// Read options of a scan
#[cfg(feature = "serde")]
crate::serial::deserialize_by!(StemOptions::new(grid: WaveGrid, slicing: Slicing, probe: Probe, scan: Scan) {
    potential: PotentialOptions,
    phonons: Phonons,
    tilt: [f64; 2],
    defoci: Vec<f64>,
    method: StemMethod,
    detectors: DetectorOptions,
    ends: Vec<usize>
});

// Options of a scan one by one
impl StemOptions {
    /// A scan by multislice of a specimen at rest, read behind its last slice with the default detectors.
    pub fn new(grid: WaveGrid, slicing: Slicing, probe: Probe, scan: Scan) -> Self {
        let (potential, phonons) = (PotentialOptions::default(), Phonons::default());
        let (method, detectors) = (StemMethod::default(), DetectorOptions::default());
        let (tilt, defoci, ends) = ([0.0; 2], vec![0.0], vec![slicing.count()]);
        Self {
            grid,
            slicing,
            potential,
            phonons,
            probe,
            tilt,
            defoci,
            scan,
            method,
            detectors,
            ends,
        }
    }

    /// Sets the model of the potential of a slice.
    pub fn potential(self, potential: PotentialOptions) -> Self {
        Self { potential, ..self }
    }

    /// Sets the frozen phonons.
    pub fn phonons(self, phonons: Phonons) -> Self {
        Self { phonons, ..self }
    }

    /// Sets the probe.
    pub fn probe(self, probe: Probe) -> Self {
        Self { probe, ..self }
    }

    /// Sets the positions of the probe.
    pub fn scan(self, scan: Scan) -> Self {
        Self { scan, ..self }
    }

    // What is read of a scan
    /// Sets the tilt of the specimen in a straight beam \[mrad\], x and y.
    pub fn tilt(self, tilt: [f64; 2]) -> Self {
        Self { tilt, ..self }
    }

    /// Sets the defoci of a series \[Å\], added to that of the probe.
    pub fn defoci(self, defoci: Vec<f64>) -> Self {
        Self { defoci, ..self }
    }

    /// Sets how the waves are computed.
    pub fn method(self, method: StemMethod) -> Self {
        Self { method, ..self }
    }

    /// Sets the detectors that read each wave.
    pub fn detectors(self, detectors: DetectorOptions) -> Self {
        Self { detectors, ..self }
    }

    /// Sets the numbers of slices behind which the wave is read, in rising order.
    pub fn ends(self, ends: Vec<usize>) -> Self {
        Self { ends, ..self }
    }
}

// Methods of a scan
/// How the waves of a scan are computed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case", deny_unknown_fields))]
pub enum StemMethod {
    /// Every probe goes through all slices.
    #[default]
    Multislice,
    /// [Plane waves](Prism) go through all slices, every f-th of the grid along x and y, and are refocused by so many ångström.
    Prism {
        /// Interpolation along x and y.
        factor: [usize; 2],
        /// Refocus \[Å\].
        #[cfg_attr(feature = "serde", serde(default))]
        refocus: f64,
        /// Margin of the beams beyond the semi-angle \[mrad\]; the soft edge of the probe unless given.
        margin: Option<f64>,
    },
}

// Options of a run of a scan
/// Receives readings, complete up to the state that they record.
type ReadingsSink<'a> = dyn FnMut(&StemReadings) -> Result<(), Error> + 'a;

/// Options of a [run](StemPlan::run_with) of a scan: its positions, readings from which it resumes, and a sink for finished ones.
#[derive(Default)]
#[non_exhaustive]
pub struct StemRunOptions<'a> {
    places: Option<Range<usize>>,
    resumed: Option<StemReadings>,
    sink: Option<Box<ReadingsSink<'a>>>,
}

impl<'a> StemRunOptions<'a> {
    /// Restricts the run to some positions, such as those of a [share](StemPlan::share).
    pub fn places(self, places: Range<usize>) -> Self {
        Self { places: Some(places), ..self }
    }

    /// Goes on from readings of an interrupted run, such as those of a checkpoint.
    pub fn resume(self, readings: StemReadings) -> Self {
        Self { resumed: Some(readings), ..self }
    }

    /// Passes the readings to a sink after each block of positions, and once more if the run is cancelled.
    pub fn sink(self, sink: impl FnMut(&StemReadings) -> Result<(), Error> + 'a) -> Self {
        Self { sink: Some(Box::new(sink)), ..self }
    }
}

impl std::fmt::Debug for StemRunOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let resumed = self.resumed.as_ref().map(|readings| readings.done);
        f.debug_struct("StemRunOptions")
            .field("places", &self.places)
            .field("resumed", &resumed)
            .finish_non_exhaustive()
    }
}

// The plan of a scan
/// Plan of a scan.
#[derive(Debug, Clone)]
pub struct StemPlan {
    specimen: TiledSpecimen,
    options: StemOptions,
    /// The grid on which probes and detectors are, the window's for PRISM.
    waves: WaveGrid,
    /// A probe for each defocus.
    probes: OnceLock<Vec<ProbeWave>>,
    detectors: Detectors,
    /// How many slices of a configuration may differ, up to the last that is asked for.
    distinct: OnceLock<usize>,
}

/// Atoms of a specimen, at most, whose slices a plan compares.
const COMPARED: usize = 200_000;

// Steps of the plan of a scan
impl StemPlan {
    // Make the plan of a scan
    /// The plan of the scan of a specimen.
    ///
    /// # Errors
    /// `Invalid` for settings that do not fit together: a grid or slices that are not the specimen's, an element without scattering factors, a probe or detectors beyond what the grid keeps, a probe whose phase it does not
    /// sample, ends that do not rise or lie behind the last slice, no defocus.
    pub fn new(specimen: impl Into<TiledSpecimen>, options: StemOptions) -> Result<Self, Invalid> {
        let specimen = specimen.into();
        // The grid of the probes
        let waves = match options.method {
            StemMethod::Multislice => options.grid,
            StemMethod::Prism { factor, refocus, margin } => {
                finite("refocus", refocus)?;
                *Prism::new(options.grid, factor, &options.probe, margin)?.window()
            }
        };
        options.slicing.accept_ends(&options.ends)?;
        // Check the probe of each defocus
        let defoci = &options.defoci;
        accept(!defoci.is_empty(), "defocus", defoci, "at least one defocus")?;
        accept(is_ordered(defoci), "defocus", defoci, "defoci that rise, or that fall")?;
        for defocus in defoci {
            let probe = focused(&options.probe, *defocus);
            probe.check(&waves)?;
            probe.check_sampling(&options.grid)?;
        }
        let detectors = Detectors::new(waves, &options.probe.beam, options.detectors.clone())?;
        Potential::check(&specimen, &options.grid, &options.slicing, options.potential)?;
        let (probes, distinct) = (OnceLock::new(), OnceLock::new());
        Ok(Self { specimen, options, waves, probes, detectors, distinct })
    }

    // Numbers of a scan
    /// Places of the scan.
    pub fn places(&self) -> usize {
        self.options.scan.counts().iter().product()
    }

    /// Configurations of the specimen: one of atoms at rest if there are no phonons.
    pub fn configurations(&self) -> usize {
        self.options.phonons.configurations.max(1)
    }

    /// Number of readings at each position: for each defocus and each end, [those of a wave](Detectors::values).
    pub fn readings(&self) -> usize {
        self.options.defoci.len() * self.options.ends.len() * self.detectors.values()
    }

    /// The options of the scan.
    pub fn options(&self) -> &StemOptions {
        &self.options
    }

    /// The specimen with all its atoms.
    pub fn specimen(&self) -> &Specimen {
        self.specimen.specimen()
    }

    /// The specimen, whose atoms are computed on demand.
    pub fn tiled_specimen(&self) -> &TiledSpecimen {
        &self.specimen
    }

    /// The detectors, on the grid of the probes.
    pub fn detectors(&self) -> &Detectors {
        &self.detectors
    }

    /// The grid on which probes and detectors are: the window's for PRISM.
    pub fn grid(&self) -> &WaveGrid {
        &self.waves
    }

    // Probes and slices of a scan
    /// A probe for each defocus.
    pub(super) fn probes(&self) -> &[ProbeWave] {
        let probe =
            |defocus: &f64| focused(&self.options.probe, *defocus).checked_wave(&self.waves);
        self.probes.get_or_init(|| self.options.defoci.iter().map(probe).collect())
    }

    /// How many slices of a configuration may differ, up to the last that is asked for.
    pub(super) fn distinct(&self) -> usize {
        let (options, last) = (&self.options, self.options.ends.last().copied().unwrap_or(0));
        let large = self.specimen.count() > COMPARED && !self.specimen.is_made();
        if options.phonons.configurations > 0 || large {
            return last;
        }
        *self.distinct.get_or_init(|| {
            let model = options.potential.model;
            model.distinct_slices(self.specimen.specimen(), &options.slicing, last)
        })
    }

    // Potential of a configuration
    /// The potential of configuration `c`.
    pub(super) fn potential(&self, c: usize) -> Result<Potential, Invalid> {
        let o = &self.options;
        let specimen = o.phonons.displaced(self.specimen.specimen(), c);
        Potential::new(&specimen, o.grid, o.slicing, o.potential)
    }

    /// Multislice through its slices.
    pub(super) fn multislice<T: Real>(&self) -> Result<Multislice<T>, Invalid> {
        let options = &self.options;
        let (beam, thickness) = (&options.probe.beam, options.slicing.thickness());
        Multislice::new(options.grid, beam, thickness)?.through_tilted(options.tilt)
    }

    // Begin a part of a scan
    /// No readings yet, for some of all places.
    ///
    /// # Errors
    /// `Invalid` where there are no such places.
    pub(crate) fn begin(&self, places: Range<usize>) -> Result<StemReadings, Invalid> {
        self.accept_places(&places)?;
        let shape = (places.len(), self.readings());
        let spread = if self.averages() { shape } else { (0, 0) };
        let (mean, squares) = (Array2::zeros(shape), Array2::zeros(spread));
        Ok(StemReadings { places, done: [0, 0], mean, squares })
    }

    // Check how far a part has come
    /// Whether each reading is an average over configurations, with its deviations.
    pub(super) fn averages(&self) -> bool {
        self.options.phonons.configurations > 1
    }

    /// Refuses places that are none of this scan's.
    pub(super) fn accept_places(&self, places: &Range<usize>) -> Result<(), Invalid> {
        let count = self.places();
        let expected = format!("some of {count} places");
        accept(!places.is_empty() && places.end <= count, "places", places, &expected).map(drop)
    }

    /// Refuses readings that claim to be further than this plan goes.
    ///
    /// # Errors
    /// `Invalid` for places beyond the scan, more configurations than there are, or more places of the next configuration than the part has.
    pub(super) fn accept_progress(&self, readings: &StemReadings) -> Result<(), Invalid> {
        self.accept_places(&readings.places)?;
        let ([done, next], all) = (readings.done, self.configurations());
        let expected = format!("at most {all}");
        accept(done <= all, "configurations of the specimen", done, &expected)?;
        let most = if done < all { readings.places.len() } else { 0 };
        let expected = if most > 0 { format!("at most {most}") } else { "0".into() };
        accept(next <= most, "positions of the next configuration", next, &expected).map(drop)
    }

    // Refuse readings of another plan
    /// Refuses readings of another plan, from which this one cannot go on.
    fn accept_readings(&self, readings: &StemReadings) -> Result<(), Invalid> {
        self.accept_progress(readings)?;
        let (shape, own) = (readings.mean.dim(), (readings.places.len(), self.readings()));
        let expected = format!("{own:?} of this plan");
        accept(shape == own, "readings", shape, &expected)?;
        let (shape, own) = (readings.squares.dim(), if self.averages() { own } else { (0, 0) });
        accept(shape == own, "deviations", shape, &format!("{own:?} of this plan")).map(drop)
    }

    // Run a part of a scan
    /// Runs the scan, or a part of it, with options.
    ///
    /// The readings depend on the plan, the precision and the kind of engine alone: not on threads, on where a run was interrupted, or on how the
    /// places were shared.
    ///
    /// # Errors
    /// Those of [`run`](Plan::run); `Invalid` for places that the scan lacks, and for readings of another plan or of other places; those of the sink.
    pub fn run_with(
        &self,
        engine: &Engine,
        options: StemRunOptions<'_>,
        watch: &dyn Watch,
    ) -> Result<StemReadings, Error> {
        self.check(engine)?;
        let StemRunOptions { places, resumed, sink } = options;
        let all = 0..self.places();
        // Readings that a run starts from
        let mut readings = match resumed {
            Some(readings) => {
                self.accept_readings(&readings)?;
                let places = places.unwrap_or_else(|| readings.places.clone());
                let expected = format!("{places:?}, the places of the run");
                accept(readings.places == places, "readings", &readings.places, &expected)?;
                readings
            }
            None => self.begin(places.unwrap_or(all))?,
        };
        let mut sink = sink.unwrap_or_else(|| Box::new(|_| Ok(())));
        let end = self.configurations();
        let ran = self.run_until(engine, &mut readings, end, watch, &mut *sink);
        // Keep readings of a cancelled run
        if matches!(ran, Err(Error::Cancelled)) && readings.done != [0, 0] {
            sink(&readings)?;
        }
        ran.map(|()| readings)
    }

    // Choose the devices of a run
    /// The engine of a run: the first of several devices alone where the others would take longer to prepare than they save.
    fn engine_of_run(&self, engine: &Engine) -> Engine {
        if engine.devices().len() < 2 || engine.has_cores() {
            return engine.clone();
        }
        let first = engine.first_device();
        let waves = self.followed(self.places() * self.options.defoci.len()).unwrap_or(0);
        let stages = self.stages(waves, &first);
        let following = stages.iter().filter(|stage| stage.name != SLICES);
        let seconds: f64 = following.map(|stage| stage.seconds).sum();
        if seconds < WORTHWHILE { first } else { engine.clone() }
    }

    // Run configurations up to an end
    /// Takes a part through the configurations that are left before `end`, in the precision of the engine.
    ///
    /// # Errors
    /// Those of [`run`](Plan::run), and those of `keep`.
    pub(super) fn run_until(
        &self,
        engine: &Engine,
        readings: &mut StemReadings,
        end: usize,
        watch: &dyn Watch,
        keep: &mut dyn FnMut(&StemReadings) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let engine = &self.engine_of_run(engine);
        match engine.precision() {
            Precision::F32 => self.run_all::<f32>(engine, readings, end, watch, keep),
            Precision::F64 => self.run_all::<f64>(engine, readings, end, watch, keep),
        }
    }

    // Run the configurations that are left
    // Waves that pass all slices
    /// The beams of PRISM and how far they are refocused \[Å\], if that is the method.
    pub(super) fn prism(&self) -> Result<Option<(Prism, f64)>, Invalid> {
        let StemMethod::Prism { factor, refocus, margin } = self.options.method else {
            return Ok(None);
        };
        let prism = Prism::new(self.options.grid, factor, &self.options.probe, margin)?;
        Ok(Some((prism, refocus)))
    }

    /// Waves that go through all slices for so many probes: as many, or the beams of PRISM.
    pub(crate) fn followed(&self, probes: usize) -> Result<usize, Invalid> {
        Ok(self.prism()?.map_or(probes, |(prism, _)| prism.beams()))
    }

    /// Takes a part through the configurations that are left before `end`.
    fn run_all<T: Real>(
        &self,
        engine: &Engine,
        readings: &mut StemReadings,
        end: usize,
        watch: &dyn Watch,
        keep: &mut dyn FnMut(&StemReadings) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.specimen.specimen();
        // Choose followers and the maker of slices
        let followers = self.followers::<T>(engine, self.followed(readings.places.len())?)?;
        // Cores that follow no waves make the slices of the next configuration meanwhile.
        let ahead = followers.iter().all(|follower| follower.holds()) && self.keeps::<T>();
        // Report the stages of a resumed run
        if readings.done != [0, 0] {
            let all = [SLICES, BEAMS, PROBES];
            let own = all.into_iter().filter(|name| *name != BEAMS || self.shares_beams());
            own.for_each(|name| self.stage(name, readings.done[0], watch));
            watch.progress(readings.done[1], readings.places.len());
        }
        std::thread::scope(|scope| {
            let mut next = None;
            for c in readings.done[0]..end {
                // Take the slices of a configuration
                self.stage(SLICES, c, watch);
                let slices = match next.take() {
                    Some(made) => join(made)?,
                    None => self.slices(c, watch)?,
                };
                let slices = self.handed_out(slices, &followers, watch)?;
                // Make the next slices in advance
                if ahead && c + 1 < end {
                    let make = move || self.slices::<T>(c + 1, watch);
                    next = std::thread::Builder::new().spawn_scoped(scope, make).ok();
                }
                // Propagate and read all waves
                if self.shares_beams() {
                    self.stage(BEAMS, c, watch);
                }
                let workers = self.waves(&followers, &slices, engine, watch)?;
                self.stage(PROBES, c, watch);
                watch.progress(readings.done[1], readings.places.len());
                self.configuration(&workers, readings, watch, keep)?;
                readings.done = [c + 1, 0];
            }
            Ok(())
        })
    }

    // Follow a block of probes
    // Report stages of a configuration
    /// Reports that a stage of configuration `c` begins.
    fn stage(&self, name: &str, c: usize, watch: &dyn Watch) {
        watch.stage(name, if name == PROBES { PROBES } else { "" });
        watch.part("configuration", c, self.configurations());
    }

    /// Whether probes are sums of beams that they share.
    fn shares_beams(&self) -> bool {
        matches!(self.options.method, StemMethod::Prism { .. })
    }

    /// Takes all places of a part through one configuration, from where they are.
    fn configuration(
        &self,
        workers: &[Box<dyn Waves + '_>],
        readings: &mut StemReadings,
        watch: &dyn Watch,
        keep: &mut dyn FnMut(&StemReadings) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (count, first) = (readings.places.len(), readings.places.start);
        let together: usize = workers.iter().map(|waves| waves.batch(count)).sum();
        let block = count.div_ceil(20).next_multiple_of(together);
        while readings.done[1] < count {
            let next = (readings.done[1] + block).min(count);
            // Read a block of positions
            let places: Vec<_> =
                (readings.done[1]..next).map(|k| self.options.scan.place(first + k)).collect();
            let part = Part { whole: watch, before: readings.done[1], total: count };
            let rows = self.shared(workers, &places, &part)?;
            for (k, values) in (readings.done[1]..next).zip(rows.outer_iter()) {
                readings.add(k, values);
            }
            readings.done[1] = next;
            keep(readings)?;
        }
        Ok(())
    }

    // Share probes among workers
    /// Readings of probes at `places` \[Å\], (place, reading), which the workers share.
    fn shared(
        &self,
        workers: &[Box<dyn Waves + '_>],
        places: &[[f64; 2]],
        watch: &dyn Watch,
    ) -> Result<Array2<f64>, Error> {
        let mut readings = Array2::zeros((places.len(), self.readings()));
        dispatch_in_runs(
            workers,
            places.len(),
            watch,
            |waves| waves.batch(places.len()),
            |waves, run| waves.read(&places[run], &CancelOnly(watch)),
            |run, values| {
                readings.slice_mut(s![run, ..]).assign(&values);
                Ok(())
            },
        )?;
        Ok(readings)
    }

    // Read any places
    /// Mean readings of all configurations at any places \[Å\]: (place, reading).
    ///
    /// # Errors
    /// As for [running](Self::run).
    pub(super) fn mean_at(
        &self,
        engine: &Engine,
        places: &[[f64; 2]],
        watch: &dyn Watch,
    ) -> Result<Array2<f64>, Error> {
        match engine.precision() {
            Precision::F32 => self.mean_of::<f32>(engine, places, watch),
            Precision::F64 => self.mean_of::<f64>(engine, places, watch),
        }
    }

    // Average readings over all configurations
    fn mean_of<T: Real>(
        &self,
        engine: &Engine,
        places: &[[f64; 2]],
        watch: &dyn Watch,
    ) -> Result<Array2<f64>, Error> {
        let (count, cancel) = (self.configurations(), CancelOnly(watch));
        let followers = self.followers::<T>(engine, self.followed(places.len())?)?;
        let mut mean = Array2::zeros((places.len(), self.readings()));
        for c in 0..count {
            watch.part("configuration", c, count);
            let slices = self.handed_out(self.slices(c, &cancel)?, &followers, &cancel)?;
            let readings =
                self.shared(&self.waves(&followers, &slices, engine, &cancel)?, places, watch)?;
            mean.zip_mut_with(&readings, |mean, x| *mean += (x - *mean) / (c + 1) as f64);
        }
        Ok(mean)
    }
}

// Another focus, another thread
// Names of the stages of a configuration
/// Names of the stages of a configuration.
const SLICES: &str = "slices";
const BEAMS: &str = "beams";
const PROBES: &str = "probes";

/// The probe with another defocus.
pub(super) fn focused(probe: &Probe, defocus: f64) -> Probe {
    let mut probe = probe.clone();
    probe.aberrations.defocus += defocus;
    probe
}

/// What another thread has computed.
fn join<R>(thread: ScopedJoinHandle<'_, R>) -> R {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

// Readings of a part of a scan
/// Readings of a part of a scan, averaged over the configurations so far.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StemReadings {
    /// The positions of this part among all.
    pub places: Range<usize>,
    /// Configurations that all places of the part have gone through, and places that have gone through the next one.
    pub done: [usize; 2],
    /// Means: (place, reading), for each place its defoci, for each of those the ends, for each of those the numbers in their [layout](crate::electrons::ReadingLayout).
    pub mean: Array2<f64>,
    /// Sums of squared deviations from the mean, of the same shape; empty without phonons.
    pub squares: Array2<f64>,
}

impl StemReadings {
    // Add readings to running means
    /// Adds the readings of a configuration at place `k` of the part, Eq. [running mean](https://lenslet.github.io/lenslet/scan-runs.html#eq-running-mean).
    pub(super) fn add(&mut self, k: usize, values: ArrayView1<'_, f64>) {
        let count = (self.done[0] + 1) as f64;
        let mut mean = self.mean.row_mut(k);
        let means = mean.iter_mut().zip(values);
        if self.squares.is_empty() {
            means.for_each(|(mean, x)| *mean = *x);
            return;
        }
        for ((mean, x), square) in means.zip(self.squares.row_mut(k)) {
            let before = *x - *mean;
            *mean += before / count;
            *square += before * (*x - *mean);
        }
    }

    // Standard errors of the means
    /// Standard errors of the means, Eq. [running mean](https://lenslet.github.io/lenslet/scan-runs.html#eq-running-mean); none with fewer than two configurations.
    pub fn standard_error(&self) -> Option<Array2<f64>> {
        let count = self.done[0] as f64;
        (count > 1.0).then(|| self.squares.mapv(|square| (square / (count * (count - 1.0))).sqrt()))
    }
}

// Waves of one configuration
/// The waves of all probes in one configuration, as one worker has them.
pub(crate) trait Waves: Sync {
    /// How many of so many probes it best reads at a time.
    fn batch(&self, probes: usize) -> usize;

    /// Readings of probes at `places` \[Å\]: (place, reading), in the order of [`StemReadings::mean`].
    ///
    /// # Errors
    /// `Cancelled`, and those of devices.
    fn read(&self, places: &[[f64; 2]], watch: &dyn Watch) -> Result<Array2<f64>, Error>;
}

// Who follows waves
/// What takes waves through slices: the cores of this machine, or a queue of a device.
pub(crate) trait Follower<T>: Sync {
    /// How many of so many waves it best follows at a time.
    fn batch(&self, waves: usize) -> usize;

    /// Whether it has room of its own for the slices of a configuration: then it is given each once.
    fn holds(&self) -> bool;

    /// Takes a slice of kind `kind`.
    ///
    /// # Errors
    /// Those of devices.
    fn take(&self, kind: usize, slice: &Transmission<T>) -> Result<(), Error>;

    // Probes and beams of a follower
    /// Readings of probes at `places` \[Å\]: (place, reading), in the order of [`StemReadings::mean`].
    ///
    /// # Errors
    /// `Cancelled`, and those of devices, as for beams.
    fn probes(
        &self,
        slices: &Slices<T>,
        places: &[[f64; 2]],
        watch: &dyn Watch,
    ) -> Result<Array2<f64>, Error>;

    /// Spectra of some beams behind each end: (beam, k_y, k_x).
    fn beams(
        &self,
        slices: &Slices<T>,
        prism: &Prism,
        which: Range<usize>,
        watch: &dyn Watch,
    ) -> Result<Vec<Array3<Complex<T>>>, Error>;

    // Leave beams on their device
    /// Leaves the spectra of some beams on its device, behind each end among those of all beams, if it has one; whether it did.
    fn leave_beams(
        &self,
        _slices: &Slices<T>,
        _prism: &Prism,
        _which: Range<usize>,
        _spectra: &[Buffer<Complex<T>>],
        _watch: &dyn Watch,
    ) -> Result<bool, Error> {
        Ok(false)
    }
}

// The slices of a configuration
/// The slices of a configuration.
pub(crate) struct Slices<T> {
    multislice: Multislice<T>,
    potential: Potential,
    /// The kind of each slice up to the last that is asked for, and the first slice of each kind.
    kinds: Vec<usize>,
    firsts: Vec<usize>,
    /// A slice of each kind, if they are kept.
    ready: Vec<Transmission<T>>,
}

impl<T: Real> Slices<T> {
    /// The transmission of slice `k`, made anew.
    fn made(&self, k: usize) -> Result<Transmission<T>, Error> {
        Ok(self.multislice.transmission(self.potential.slice(k).view())?)
    }

    // Waves through all slices on cores
    /// Takes waves (wave, k_y, k_x) through the slices, by all cores; `read` is called behind each of `ends` with its index and the waves.
    fn follow(
        &self,
        mut waves: Array3<Complex<T>>,
        ends: &[usize],
        watch: &dyn Watch,
        mut read: impl FnMut(usize, ArrayView3<'_, Complex<T>>),
    ) -> Result<(), Error> {
        let mut done = 0;
        for (e, &end) in ends.iter().enumerate() {
            if self.ready.is_empty() {
                let slice = |k: usize| Ok(self.potential.slice(done + k));
                let here = [end - done];
                self.multislice.run(waves.view_mut(), slice, &here, watch, |_, _| Ok(()))?;
            } else {
                let kinds = self.kinds[done..end].iter();
                let slices: Vec<_> = kinds.map(|&kind| self.ready[kind].clone()).collect();
                self.multislice.propagate(waves.view_mut(), &slices, watch)?;
            }
            done = end;
            read(e, waves.view());
        }
        Ok(())
    }
}

// The cores follow waves
// Waves in a block on cores
/// How many of so many waves on a grid the cores follow together.
fn block<T: Real>(grid: &WaveGrid, waves: usize) -> usize {
    let [nx, ny] = grid.points();
    let most = (BLOCK / (nx / 2 * ny / 2 * size_of::<Complex<T>>())).max(1);
    waves.div_ceil(20).max(16 * threads()).min(most)
}

/// All cores of this machine.
struct Cores<'a> {
    plan: &'a StemPlan,
    /// Whether no device propagates waves, too.
    alone: bool,
}

impl<T: Real> Follower<T> for Cores<'_> {
    fn batch(&self, waves: usize) -> usize {
        if self.alone { block::<T>(&self.plan.options.grid, waves) } else { threads() }
    }

    fn holds(&self) -> bool {
        false
    }

    fn take(&self, _kind: usize, _slice: &Transmission<T>) -> Result<(), Error> {
        Ok(())
    }

    // Probes and beams by the cores
    fn probes(
        &self,
        slices: &Slices<T>,
        places: &[[f64; 2]],
        watch: &dyn Watch,
    ) -> Result<Array2<f64>, Error> {
        let (plan, ends) = (self.plan, &self.plan.options.ends);
        let mut readings = Array2::zeros((places.len(), plan.readings()));
        for (d, probe) in plan.probes().iter().enumerate() {
            slices.follow(probe.at::<T>(places), ends, watch, |e, waves| {
                plan.read_waves(waves, d, e, &mut readings);
            })?;
        }
        Ok(readings)
    }

    // Spectra of beams by cores
    fn beams(
        &self,
        slices: &Slices<T>,
        prism: &Prism,
        which: Range<usize>,
        watch: &dyn Watch,
    ) -> Result<Vec<Array3<Complex<T>>>, Error> {
        let mut all = Vec::new();
        let read = |_, spectra: ArrayView3<'_, Complex<T>>| all.push(spectra.to_owned());
        slices.follow(prism.waves(which), &self.plan.options.ends, watch, read)?;
        Ok(all)
    }
}

// The crew of a scan
impl StemPlan {
    /// Who follows so many waves.
    fn followers<'a, T: Real>(
        &'a self,
        engine: &Engine,
        waves: usize,
    ) -> Result<Vec<Box<dyn Follower<T> + 'a>>, Error> {
        let mut followers = self.workers_on_device(engine, waves)?;
        let alone = followers.is_empty();
        if alone {
            let what = "a scan on a grid whose sides have other factors than 2, 3, 5 and 7";
            engine.require_cpu(what)?;
        }
        if alone || engine.has_cores() {
            followers.push(Box::new(Cores { plan: self, alone }));
        }
        Ok(followers)
    }

    // Make slices and hand them out
    /// Whether the slices of a configuration are kept on the host.
    fn keeps<T: Real>(&self) -> bool {
        let plane: usize = self.options.grid.points().iter().product();
        self.distinct() * plane * size_of::<Complex<T>>() <= KEPT
    }

    // Make the slices of a configuration
    /// The slices of configuration `c`, made ready if they are kept.
    fn slices<T: Real>(&self, c: usize, watch: &dyn Watch) -> Result<Slices<T>, Error> {
        let (potential, multislice) = (self.potential(c)?, self.multislice::<T>()?);
        let (mut kinds, mut firsts) = (Vec::new(), Vec::new());
        for k in 0..self.options.ends.last().copied().unwrap_or(0) {
            match potential.first_alike(k) {
                first if first < k => kinds.push(kinds[first]),
                _ => {
                    kinds.push(firsts.len());
                    firsts.push(k);
                }
            }
        }
        let slices = Slices { multislice, potential, kinds, firsts, ready: Vec::new() };
        let kinds = if self.keeps::<T>() { &slices.firsts[..] } else { &[] };
        let make = |_: &(), k: &usize| slices.made(*k);
        let ready = gather(Workers::cores(&()), kinds, &CancelOnly(watch), make)?;
        Ok(Slices { ready, ..slices })
    }

    // Hand the slices to followers
    /// Gives the slices to all followers with memory for them; the host keeps its copies unless all followers have them.
    fn handed_out<T: Real>(
        &self,
        mut slices: Slices<T>,
        followers: &[Box<dyn Follower<T> + '_>],
        watch: &dyn Watch,
    ) -> Result<Slices<T>, Error> {
        let holders = || followers.iter().filter(|follower| follower.holds());
        let give = |kind: usize, slice: &Transmission<T>| {
            holders().try_for_each(|follower| follower.take(kind, slice))
        };
        // Give each kind of slice
        if !slices.ready.is_empty() {
            slices.ready.iter().enumerate().try_for_each(|(kind, slice)| give(kind, slice))?;
        } else if holders().next().is_some() {
            let make = |_: &(), k: &usize| slices.made(*k);
            dispatch(
                Workers::cores(&()),
                &slices.firsts,
                &CancelOnly(watch),
                make,
                |kind, slice| give(kind, &slice),
            )?;
        }
        if holders().count() == followers.len() {
            slices.ready.clear();
        }
        Ok(slices)
    }

    // Waves of a scan
    /// The waves of a configuration with these slices.
    fn waves<'s, T: Real>(
        &'s self,
        followers: &'s [Box<dyn Follower<T> + 's>],
        slices: &'s Slices<T>,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Vec<Box<dyn Waves + 's>>, Error> {
        let Some((prism, refocus)) = self.prism()? else {
            let through = |follower| Box::new(Through { follower, slices }) as Box<dyn Waves + 's>;
            return Ok(followers.iter().map(|follower| through(&**follower)).collect());
        };
        // Who sums the beams
        let beams = (&prism, refocus);
        let workers = self.windows_in_place(followers, slices, beams, engine, watch)?;
        if !workers.is_empty() {
            return Ok(workers);
        }
        let matrices = Arc::new(self.matrices(followers, slices, beams, watch)?);
        let mut workers = self.windows_on_device(engine, &matrices)?;
        let alone = workers.is_empty();
        if alone {
            let what = "PRISM in windows whose sides have other factors than 2, 3, 5 and 7";
            engine.require_cpu(what)?;
        }
        if alone || engine.has_cores() {
            workers.push(Box::new(Beams { plan: self, matrices, alone }));
        }
        Ok(workers)
    }

    // Waves of shared beams
    /// The S-matrix behind each end, of beams that all followers have shared.
    fn matrices<T: Real>(
        &self,
        followers: &[Box<dyn Follower<T> + '_>],
        slices: &Slices<T>,
        (prism, refocus): (&Prism, f64),
        watch: &dyn Watch,
    ) -> Result<Vec<SMatrix<T>>, Error> {
        let options = &self.options;
        let [nx, ny] = options.grid.points().map(|points| points / 2);
        let empty = |_: &usize| Array3::zeros((prism.beams(), ny, nx));
        let mut spectra: Vec<Array3<Complex<T>>> = options.ends.iter().map(empty).collect();
        // Gather spectra from all followers
        dispatch_in_runs(
            followers,
            prism.beams(),
            watch,
            |follower| follower.batch(prism.beams()),
            |follower, which| follower.beams(slices, prism, which, &CancelOnly(watch)),
            |which, new| {
                for (all, some) in spectra.iter_mut().zip(new) {
                    let all = all.slice_mut(s![which.clone(), .., ..]);
                    Zip::from(all).and(&some).par_for_each(|all, some| *all = *some);
                }
                Ok(())
            },
        )?;
        let matrix = |spectra| SMatrix::new(prism.clone(), &options.probe.beam, spectra, refocus);
        Ok(spectra.into_iter().map(matrix).collect::<Result<_, _>>()?)
    }

    // Put down what waves read
    /// Reads waves behind end `e` of the probes of defocus `d`, and puts down what they read.
    fn read_waves<T: Real>(
        &self,
        waves: ArrayView3<'_, Complex<T>>,
        d: usize,
        e: usize,
        readings: &mut Array2<f64>,
    ) {
        let mut here = readings.slice_mut(s![.., self.columns(d, e)]);
        let pairs = here.axis_iter_mut(Axis(0)).into_par_iter().zip(waves.axis_iter(Axis(0)));
        pairs.for_each(|(mut to, wave)| {
            let read = self.detectors.read(wave).into_values();
            to.iter_mut().zip(read).for_each(|(to, value)| *to = value);
        });
    }

    /// The columns of readings that belong to defocus `d` and end `e`.
    fn columns(&self, d: usize, e: usize) -> Range<usize> {
        let (wave, values) = (d * self.options.ends.len() + e, self.detectors.values());
        wave * values..(wave + 1) * values
    }
}

// Probes through the slices
/// Probes that somebody takes through slices.
struct Through<'s, T> {
    follower: &'s dyn Follower<T>,
    slices: &'s Slices<T>,
}

impl<T: Real> Waves for Through<'_, T> {
    fn batch(&self, probes: usize) -> usize {
        self.follower.batch(probes)
    }

    fn read(&self, places: &[[f64; 2]], watch: &dyn Watch) -> Result<Array2<f64>, Error> {
        self.follower.probes(self.slices, places, watch)
    }
}

// Sums of beams by the cores
/// Probes as sums of beams, by all cores.
struct Beams<'a, T> {
    plan: &'a StemPlan,
    /// The matrix behind each end.
    matrices: Arc<Vec<SMatrix<T>>>,
    /// Whether no device reads probes, too.
    alone: bool,
}

impl<T: Real> Waves for Beams<'_, T> {
    fn batch(&self, probes: usize) -> usize {
        if self.alone { block::<T>(&self.plan.waves, probes) } else { threads() }
    }

    fn read(&self, places: &[[f64; 2]], watch: &dyn Watch) -> Result<Array2<f64>, Error> {
        let mut readings = Array2::zeros((places.len(), self.plan.readings()));
        for (d, probe) in self.plan.probes().iter().enumerate() {
            for (e, matrix) in self.matrices.iter().enumerate() {
                let waves = matrix.spectra(probe, places, watch)?;
                self.plan.read_waves(waves.view(), d, e, &mut readings);
            }
        }
        Ok(readings)
    }
}

// Run the plan of a scan
impl Plan for StemPlan {
    /// The readings of all places of the scan.
    type Output = StemReadings;

    /// Accepts either precision: waves are computed in it.
    fn check_engine(&self, _engine: &Engine) -> Result<(), Error> {
        Ok(())
    }

    fn subject(&self) -> String {
        "the scan".into()
    }

    fn run(&self, engine: &Engine, watch: &dyn Watch) -> Result<StemReadings, Error> {
        self.run_with(engine, StemRunOptions::default(), watch)
    }

    // Describe a scan
    fn describe(&self, engine: &Engine) -> Result<Description, Error> {
        let (options, devices) = (&self.options, engine.devices().len());
        let engine = &self.engine_of_run(engine);
        let alone = if engine.devices().len() < devices { ", by one device alone" } else { "" };
        let number = 2 * if engine.precision() == Precision::F64 { 8 } else { 4 };
        let ([nx, ny], places) = (options.grid.points(), self.places());
        let slices = options.ends.last().copied().unwrap_or(0);
        let plane = (nx * ny * number) as u64;
        let waves = self.followed(places * options.defoci.len()).unwrap_or(0);
        let method = match options.method {
            StemMethod::Multislice => "multislice".into(),
            StemMethod::Prism { factor: [x, y], .. } => {
                format!("PRISM with {}, interpolation {x} × {y}", count(waves, "beam"))
            }
        };
        // Memory of a scan
        let kept = (self.distinct() as u64 * plane).min(KEPT as u64);
        let [wx, wy] = self.waves.points();
        let block = block::<f64>(&self.waves, places) * wx * wy * number;
        let beams = match options.method {
            StemMethod::Multislice => 0,
            StemMethod::Prism { .. } => waves as u64 * plane / 2,
        };
        let copies = if self.configurations() > 1 { 4 } else { 2 };
        let readings =
            (places as u64).saturating_mul(self.readings() as u64).saturating_mul(8 * copies);
        let host = (kept + block as u64 + beams + self.atoms_of_run()).saturating_add(readings);
        let devices = self.memory_on_device(engine, number, beams);
        let what = match options.scan.counts() {
            [1, 1] => "a scan of 1 probe".into(),
            [x, y] => format!("a scan of {x} × {y} probes"),
        };
        let grid = format!(
            "{nx} × {ny} samples, {}, {}",
            count(slices, "slice"),
            count(self.configurations(), "configuration")
        );
        Ok(Description {
            what,
            arrays: vec![("readings".into(), vec![places, self.readings()])],
            form: "",
            reason: String::new(),
            method: format!("{method}, {grid}{alone}"),
            slope_model: "",
            engine: engine.name(),
            memory: Memory { host, devices },
            stages: self.stages(waves, engine),
            rates: engine.speed().to_string(),
        })
    }
}

// Memory and time of a scan
impl StemPlan {
    // Memory of atoms
    /// Bytes of the atoms of a run, in all their lists.
    fn atoms_of_run(&self) -> u64 {
        let copies = if self.options.phonons.configurations > 0 { 5 } else { 3 };
        self.specimen.bytes().saturating_mul(copies)
    }

    // Time of a scan
    /// How long slices take, and so many waves through all of them, in all configurations.
    pub(super) fn following(
        &self,
        name: &'static str,
        waves: usize,
        engine: &Engine,
    ) -> [Stage; 2] {
        let (options, configurations) = (&self.options, self.configurations() as f64);
        let making = options.potential.model.passes(
            self.specimen.count(),
            &options.slicing,
            &options.phonons,
        );
        let pass = |precision| configurations * seconds_of_a_pass(&options.grid, precision);
        let slices = self.distinct() as f64 * making * pass(Precision::F32) / threads() as f64;
        let passes = (waves * options.ends.last().copied().unwrap_or(0)) as f64;
        let seconds = passes * pass(engine.precision()) * share(engine);
        [
            Stage::alone(SLICES, &[(CostKind::Transforms, slices)], engine),
            Stage::shared(name, &[(CostKind::Transforms, seconds)], engine),
        ]
    }

    // Time of the stages of a scan
    /// How long all of it takes, with so many waves through the slices.
    fn stages(&self, waves: usize, engine: &Engine) -> Vec<Stage> {
        let shared = self.shares_beams();
        let mut stages =
            self.following(if shared { BEAMS } else { PROBES }, waves, engine).to_vec();
        if shared {
            let window: usize = self.waves.points().iter().map(|points| points / 2).product();
            let sums = (self.places() * self.options.defoci.len() * self.options.ends.len()) as f64;
            let terms = sums * waves as f64 * window as f64 * self.configurations() as f64;
            let seconds = TERM * terms * share(engine);
            stages.push(Stage::shared(PROBES, &[(CostKind::Transforms, seconds)], engine));
        }
        stages
    }
}

// Tests of scans
#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::electrons::{Aberrations, Annulus, Beam, PatternOptions};
    use crate::specimen::{Atom, Element};
    use crate::watch::unwatched;

    // A small scan of a lopsided specimen
    fn specimen() -> Specimen {
        let atom = |number, position| {
            let element = Element::new(number).unwrap();
            Atom { element, position, occupancy: 1.0, displacement: 0.1 }
        };
        // Three slices that differ, twice
        let atoms = [(14, [1.0, 0.7, 0.4]), (79, [3.1, 4.2, 3.0]), (8, [5.5, 2.0, 5.1])];
        let above = atoms.map(|(number, [x, y, z])| (number, [x, y, z + 6.0]));
        let atoms = [atoms, above].concat().into_iter();
        Specimen::new([6.4, 5.2, 12.0], atoms.map(|(number, place)| atom(number, place)).collect())
            .unwrap()
    }

    pub(in crate::electrons) fn options(configurations: usize) -> StemOptions {
        let (beam, aberrations) = (Beam::new(80.0).unwrap(), Aberrations::default());
        let annulus = Annulus { inner: 20.0, outer: 60.0, exact: false };
        let grid = WaveGrid::new([48, 40], [6.4, 5.2]).unwrap();
        let slicing = Slicing::new(12.0, 2.0).unwrap();
        let probe = Probe { beam, semi_angle: 21.0, aberrations, tilt: [0.0; 2] };
        let scan = Scan::new([[0.0, 6.4], [1.0, 4.0]], [0.8, 0.7]).unwrap();
        let detectors = DetectorOptions::default().bin(5.0).annuli(vec![annulus]);
        let pattern = PatternOptions::default().crop(30.0);
        StemOptions::new(grid, slicing, probe, scan)
            .phonons(Phonons { configurations, seed: 5 })
            .defoci(vec![0.0, 30.0])
            .detectors(detectors.centre_of_mass(true).pattern(pattern))
            .ends(vec![1, 6])
    }

    pub(in crate::electrons) fn plan(configurations: usize) -> StemPlan {
        StemPlan::new(specimen(), options(configurations)).unwrap()
    }

    pub(in crate::electrons) fn prism_plan() -> StemPlan {
        let method = StemMethod::Prism { factor: [2, 1], refocus: 12.0, margin: None };
        StemPlan::new(specimen(), options(0).method(method)).unwrap()
    }

    pub(in crate::electrons) fn whole(plan: &StemPlan, precision: Precision) -> StemReadings {
        plan.run(&Engine::cpu(precision), &unwatched).unwrap()
    }

    // Scans are the waves of single probes
    #[test]
    fn scans_are_the_waves_of_single_probes() {
        let (plan, options) = (plan(0), options(0));
        let found = whole(&plan, Precision::F64);
        assert_eq!((plan.places(), found.done), (8 * 5, [1, 0]));
        assert_eq!((plan.distinct(), super::tests::plan(2).distinct()), (3, 6));
        let multislice = Multislice::<f64>::new(options.grid, &options.probe.beam, 2.0).unwrap();
        let potential = plan.potential(0).unwrap();
        let place = options.scan.place(17);
        assert_eq!(place, [3.0 * 0.8, 1.0 + 2.0 * 0.7]);
        let probe = focused(&options.probe, 30.0).wave(&options.grid).unwrap();
        let mut wave = probe.at::<f64>(&[place]);
        let slice = |k| Ok(potential.slice(k));
        multislice.run(wave.view_mut(), slice, &[6], &unwatched, |_, _| Ok(())).unwrap();
        let expected = plan.detectors.read(wave.index_axis(Axis(0), 0)).into_values();
        let last = plan.readings() - expected.len();
        for (value, expected) in found.mean.row(17).iter().skip(last).zip(&expected) {
            assert!((value - expected).abs() < 1e-13, "{value} {expected}");
        }
        // All beams of PRISM read the same, single precision nearly so
        let method = StemMethod::Prism { factor: [1, 1], refocus: 0.0, margin: None };
        let shared = StemPlan::new(specimen(), options.method(method)).unwrap();
        let [beams, single] =
            [whole(&shared, Precision::F64), whole(&plan, Precision::F32)].map(|found| found.mean);
        let gap =
            |a: &Array2<f64>| (a - &found.mean).fold(0.0, |most: f64, gap| most.max(gap.abs()));
        assert!(gap(&beams) < 1e-12 && gap(&single) < 1e-5, "{:e} {:e}", gap(&beams), gap(&single));
        assert!(gap(&single) > 1e-12);
    }

    // Scans of a tilted specimen
    #[test]
    fn a_tilted_specimen_is_scanned_through_its_propagator() {
        let (upright, tilt) = (options(0), [40.0, -25.0]);
        let options = upright.clone().tilt(tilt);
        let plan = StemPlan::new(specimen(), options.clone()).unwrap();
        let found = whole(&plan, Precision::F64).mean;
        let beam = &options.probe.beam;
        let multislice = Multislice::<f64>::new(options.grid, beam, 2.0).unwrap();
        let multislice = multislice.through_tilted(tilt).unwrap();
        let potential = plan.potential(0).unwrap();
        let probe = focused(&options.probe, 30.0).wave(&options.grid).unwrap();
        let mut wave = probe.at::<f64>(&[options.scan.place(17)]);
        let slice = |k| Ok(potential.slice(k));
        multislice.run(wave.view_mut(), slice, &[6], &unwatched, |_, _| Ok(())).unwrap();
        let expected = plan.detectors.read(wave.index_axis(Axis(0), 0)).into_values();
        let last = plan.readings() - expected.len();
        for (value, expected) in found.row(17).iter().skip(last).zip(&expected) {
            assert!((value - expected).abs() < 1e-13, "{value} {expected}");
        }
        let gap = |options: StemOptions| {
            let other = StemPlan::new(specimen(), options).unwrap();
            let other = whole(&other, Precision::F64).mean;
            (other - &found).fold(0.0, |most: f64, gap| most.max(gap.abs()))
        };
        let method = StemMethod::Prism { factor: [1, 1], refocus: 0.0, margin: None };
        let beams = gap(options.method(method));
        assert!(beams < 1e-12 && gap(upright) > 1e-3, "{beams:e}");
    }

    // Interrupted and shared scans are whole ones
    #[test]
    fn interrupted_and_shared_scans_are_whole_ones() {
        let plan = plan(2);
        let (engine, all) = (Engine::cpu(Precision::F32), whole(&plan, Precision::F32));
        for places in [0..7, 7..32, 32..40] {
            let mut kept = plan.begin(places.clone()).unwrap();
            for stop in 1.. {
                // Every run is stopped behind its first block, and goes on from what was kept then
                let (mut blocks, resumed) = (0, kept.clone());
                let options = StemRunOptions::default().places(places.clone()).resume(resumed);
                let options = options.sink(|now| {
                    kept = now.clone();
                    blocks += 1;
                    if blocks > 1 { Err(Error::Cancelled) } else { Ok(()) }
                });
                let done = plan.run_with(&engine, options, &unwatched);
                if let Ok(readings) = done {
                    kept = readings;
                    break;
                }
                assert!(stop < 50);
            }
            assert_eq!(kept.mean, all.mean.slice(s![places.clone(), ..]));
            assert_eq!(kept.squares, all.squares.slice(s![places, ..]));
        }
    }

    // The mean of configurations and its error
    #[test]
    fn means_and_errors_are_those_of_the_configurations() {
        let plan = plan(3);
        let found = whole(&plan, Precision::F64);
        let engine = Engine::cpu(Precision::F64);
        let place = [plan.options.scan.place(4)];
        let each: Vec<Array2<f64>> = (0..3)
            .map(|c| {
                let followers = plan.followers::<f64>(&engine, 1).unwrap();
                let slices = plan.slices(c, &unwatched).unwrap();
                let slices = plan.handed_out(slices, &followers, &unwatched).unwrap();
                let workers = plan.waves(&followers, &slices, &engine, &unwatched).unwrap();
                plan.shared(&workers, &place, &unwatched).unwrap()
            })
            .collect();
        let errors = found.standard_error().unwrap();
        for k in [0, 3, plan.readings() - 1] {
            let values: Vec<f64> = each.iter().map(|values| values[[0, k]]).collect();
            let mean = values.iter().sum::<f64>() / 3.0;
            let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
            assert!((found.mean[[4, k]] - mean).abs() < 1e-14);
            assert!((errors[[4, k]] - (square / 6.0).sqrt()).abs() < 1e-12);
        }
        assert!(
            each[0] != each[1]
                && whole(&super::tests::plan(0), Precision::F64).standard_error().is_none()
        );
    }

    // Refuse scans that make no sense
    #[test]
    fn scans_that_make_no_sense_are_refused() {
        let refused = |change: &dyn Fn(&mut StemOptions)| {
            let mut bad = options(0);
            change(&mut bad);
            StemPlan::new(specimen(), bad).err().unwrap().quantity
        };
        assert_eq!(refused(&|o| o.ends = vec![2, 2]), "ends");
        assert_eq!(refused(&|o| o.ends = vec![7]), "ends");
        assert_eq!(refused(&|o| o.defoci.clear()), "defocus");
        assert_eq!(refused(&|o| o.slicing = Slicing::new(13.0, 2.0).unwrap()), "slices");
        assert_eq!(refused(&|o| o.grid = WaveGrid::new([48, 40], [6.4, 5.3]).unwrap()), "grid");
        assert_eq!(refused(&|o| o.probe.semi_angle = 90.0), "semi_angle");
        let prism = |factor| StemMethod::Prism { factor, refocus: 0.0, margin: None };
        assert_eq!(refused(&|o| o.method = prism([5, 1])), "interpolation");
        let astray = StemMethod::Prism { factor: [1, 1], refocus: f64::NAN, margin: None };
        assert_eq!(refused(&|o| o.method = astray), "refocus");
        let scan = |window, step| Scan::new(window, step).unwrap_err().quantity;
        assert_eq!(scan([[0.0, 1.0], [1.0, 1.0]], [0.1, 0.1]), "window");
        assert_eq!(scan([[0.0, 1.0], [0.0, 1.0]], [0.0, 0.1]), "step");
        assert_eq!(scan([[0.0, 1e9], [0.0, 1e9]], [0.1, 0.1]), "step");
        let plan = plan(0);
        assert!(plan.begin(3..3).is_err() && plan.begin(30..41).is_err());
        let mut other = plan.begin(0..3).unwrap();
        other.places = 0..4;
        let run = |options| plan.run_with(&Engine::default(), options, &unwatched);
        assert!(run(StemRunOptions::default().resume(other)).is_err());
        let part = StemRunOptions::default().resume(plan.begin(0..3).unwrap());
        assert!(run(part.places(0..4)).is_err());
    }
}
