// Tangled from book/src/scan.md: edit there, or here and run cargo tangle stitch.
//! Scans: where probes stand, in which order they are followed, and their readings.
#[cfg(feature = "cuda")]
mod gpu;

// What scans stand on
use super::beam::{Probe, ProbeWave};
use super::detector::{DetectorOptions, Detectors, Reading};
use super::multislice::{Multislice, Transmission, Unseen};
use super::potential::{Potential, PotentialModel};
use super::prism::{Prism, SMatrix};
use super::wave_grid::WaveGrid;
use crate::device::{Description, Engine, Memory, Stage, Watch, Work, Workers, gather, threads};
use crate::error::{Error, Invalid, accept, positive};
use crate::numerics::real::{Precision, Real};
use crate::specimen::{Factors, Phonons, Slicing, Specimen};
use ndarray::parallel::prelude::*;
use ndarray::{Array2, ArrayView3, Axis, s};
use num_complex::Complex;
use std::ops::Range;

/// Bytes of waves in a block, and of slices that are kept, at most.
const BLOCK: usize = 1 << 29;
const KEPT: usize = 1 << 30;

/// Seconds of one thread for a slice, by sample and bit of the number of samples.
const SECONDS: f64 = 1.5e-9;

// Places of a scan
/// Where the probe of a scan stands: a lattice of places in a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scan {
    window: [[f64; 2]; 2],
    step: [f64; 2],
    counts: [usize; 2],
}

impl Scan {
    /// Places from the beginning of `window` \[\[x from, to\], \[y from, to\]\] \[Å\] by `step`s \[Å\], the end not included.
    ///
    /// # Errors
    /// `Invalid` where an end does not lie behind its beginning, a step is not positive, or there are more than 10⁹ places.
    ///
    /// ```
    /// use lenslet::electrons::Scan;
    /// let scan = Scan::new([[0.0, 5.43], [1.0, 2.0]], [5.43 / 16.0, 0.4])?;
    /// assert_eq!(scan.counts(), [16, 3]);
    /// assert_eq!(scan.place(5), [5.43 / 16.0, 1.8]); // y goes fastest
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn new(window: [[f64; 2]; 2], step: [f64; 2]) -> Result<Self, Invalid> {
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

    /// Places along x and y.
    pub fn counts(&self) -> [usize; 2] {
        self.counts
    }

    /// Steps along x and y \[Å\].
    pub fn step(&self) -> [f64; 2] {
        self.step
    }

    /// Place `k` \[Å\] of all, x before y; the next one lies along y.
    pub fn place(&self, k: usize) -> [f64; 2] {
        let at = [k / self.counts[1], k % self.counts[1]];
        [0, 1].map(|axis| self.window[axis][0] + at[axis] as f64 * self.step[axis])
    }
}

// What is asked of a scan
/// What is asked of a scan, besides the specimen.
#[derive(Debug, Clone, PartialEq)]
pub struct StemOptions {
    /// Samples of a wave.
    pub grid: WaveGrid,
    /// Slices of the specimen.
    pub slicing: Slicing,
    /// How the potential of a slice is made.
    pub model: PotentialModel,
    /// Whose scattering factors are taken.
    pub factors: Factors,
    /// How far an atom reaches in the lookup model \[Å\].
    pub bound: f64,
    /// Frozen phonons.
    pub phonons: Phonons,
    /// The probe.
    pub probe: Probe,
    /// Defoci \[Å\] of a series, added to that of the probe; one of 0 if there is none.
    pub defoci: Vec<f64>,
    /// Where the probe stands.
    pub scan: Scan,
    /// How the waves are computed.
    pub method: StemMethod,
    /// What is read of each wave.
    pub detectors: DetectorOptions,
    /// Numbers of slices behind which the wave is read, in rising order; the last is usually that of all.
    pub ends: Vec<usize>,
}

/// How the waves of a scan are computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StemMethod {
    /// Every probe goes through all slices.
    Multislice,
    /// [Plane waves](Prism) go through all slices, every f-th of the grid along x and y, and are refocused by so many ångström.
    Prism {
        /// Interpolation along x and y.
        factor: [usize; 2],
        /// Refocus \[Å\].
        refocus: f64,
    },
}

// The plan of a scan
/// A scan that has been posed.
pub struct StemPlan {
    specimen: Specimen,
    options: StemOptions,
    /// The grid on which probes and detectors are, the window's for PRISM.
    waves: WaveGrid,
    /// A probe for each defocus.
    probes: Vec<ProbeWave>,
    detectors: Detectors,
}

impl StemPlan {
    /// Poses the scan of a specimen.
    ///
    /// # Errors
    /// `Invalid` for whatever does not fit together: a grid or slices that are not the specimen's, an element without scattering factors, a probe or detectors beyond what the grid keeps, ends that do not rise
    /// or lie behind the last slice, no defocus.
    pub fn new(specimen: Specimen, options: StemOptions) -> Result<Self, Invalid> {
        let waves = match options.method {
            StemMethod::Multislice => options.grid,
            StemMethod::Prism { factor, .. } => {
                *Prism::new(options.grid, factor, &options.probe)?.window()
            }
        };
        let (count, ends) = (options.slicing.count(), &options.ends);
        let rising = !ends.is_empty() && ends.is_sorted_by(|a, b| a < b);
        let inside = ends.iter().all(|&end| (1..=count).contains(&end));
        let expected = format!("numbers of slices from 1 to {count} that rise");
        accept(rising && inside, "ends", ends, &expected)?;
        accept(!options.defoci.is_empty(), "defocus", &options.defoci, "at least one defocus")?;
        let probes =
            options.defoci.iter().map(|defocus| focused(&options.probe, *defocus).wave(&waves));
        let probes = probes.collect::<Result<_, _>>()?;
        let detectors = Detectors::new(waves, &options.probe.beam, options.detectors.clone())?;
        let plan = Self { specimen, options, waves, probes, detectors };
        plan.potential(0)?;
        Ok(plan)
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

    /// Numbers that are read at each place: for each defocus and each end, [those of a wave](Detectors::values).
    pub fn readings(&self) -> usize {
        self.probes.len() * self.options.ends.len() * self.detectors.values()
    }

    /// What was asked.
    pub fn options(&self) -> &StemOptions {
        &self.options
    }

    /// The specimen.
    pub fn specimen(&self) -> &Specimen {
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

    /// How many of so many places are followed together.
    fn block<T: Real>(&self, places: usize) -> usize {
        let [nx, ny] = self.waves.points();
        let most = (BLOCK / (nx / 2 * ny / 2 * size_of::<Complex<T>>())).max(1);
        places.div_ceil(20).max(16 * threads()).min(most)
    }

    // Potential of a configuration
    /// The potential of configuration `c`.
    pub(super) fn potential(&self, c: usize) -> Result<Potential, Invalid> {
        let options = &self.options;
        let displaced = match options.phonons.configurations {
            0 => None,
            _ => Some(options.phonons.displaced(&self.specimen, c)),
        };
        let specimen = displaced.as_ref().unwrap_or(&self.specimen);
        let slicing = options.slicing;
        Potential::new(
            specimen,
            options.grid,
            slicing,
            options.model,
            options.factors,
            options.bound,
        )
    }

    // Run a part of a scan
    /// No readings yet, for some of all places.
    ///
    /// # Errors
    /// `Invalid` where there are no such places.
    pub fn begin(&self, places: Range<usize>) -> Result<StemReadings, Invalid> {
        let count = self.places();
        let expected = format!("some of {count} places");
        accept(!places.is_empty() && places.end <= count, "places", &places, &expected)?;
        let shape = (places.len(), self.readings());
        let spread = if self.options.phonons.configurations > 1 { shape } else { (0, 0) };
        let (mean, squares) = (Array2::zeros(shape), Array2::zeros(spread));
        Ok(StemReadings { places, done: [0, 0], mean, squares })
    }

    /// Goes on with a part of the scan from where `readings` are, to its end; `keep` is shown them after each block.
    ///
    /// The readings depend on the plan, the precision and the kind of engine alone: not on threads, on where a run was interrupted, or on how the
    /// places were shared.
    ///
    /// # Errors
    /// `Invalid` for readings of another plan; `Cancelled`; those of the engine's devices and of `keep`.
    pub fn run(
        &self,
        engine: &Engine,
        readings: &mut StemReadings,
        watch: &dyn Watch,
        keep: &mut dyn FnMut(&StemReadings) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let shape = readings.mean.dim();
        let expected = format!("{:?} of this plan", (readings.places.len(), self.readings()));
        accept(shape == (readings.places.len(), self.readings()), "readings", shape, &expected)?;
        for c in readings.done[0]..self.configurations() {
            watch.stage("probes", "probes");
            match engine.precision() {
                Precision::F32 => self.configuration::<f32>(c, engine, readings, watch, keep)?,
                Precision::F64 => self.configuration::<f64>(c, engine, readings, watch, keep)?,
            }
            readings.done = [c + 1, 0];
        }
        Ok(())
    }

    // Follow a block of probes
    /// Takes all places of a part through configuration `c`, from where they are.
    fn configuration<T: Real>(
        &self,
        c: usize,
        engine: &Engine,
        readings: &mut StemReadings,
        watch: &dyn Watch,
        keep: &mut dyn FnMut(&StemReadings) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let waves = self.waves::<T>(c, engine, watch)?;
        let (count, first) = (readings.places.len(), readings.places.start);
        let block = self.block::<T>(count);
        while readings.done[1] < count {
            let next = (readings.done[1] + block).min(count);
            let places: Vec<_> =
                (readings.done[1]..next).map(|k| self.options.scan.place(first + k)).collect();
            let found = waves.read(&places, &Unseen(watch))?;
            for (k, values) in (readings.done[1]..next).zip(found.outer_iter()) {
                readings.add(k, &values.to_vec());
            }
            readings.done[1] = next;
            watch.progress(next, count);
            keep(readings)?;
        }
        Ok(())
    }
}

/// The probe with another defocus.
pub(super) fn focused(probe: &Probe, defocus: f64) -> Probe {
    let mut probe = probe.clone();
    probe.aberrations.defocus += defocus;
    probe
}

// Readings in a row
impl Detectors {
    /// How many numbers they read of a wave.
    pub fn values(&self) -> usize {
        let options = self.options();
        let sectors: usize = options.segmented.iter().map(|segmented| segmented.sectors).sum();
        let moments = if options.centre_of_mass { 2 } else { 0 };
        let pattern = self.pattern_axes().map_or(0, |[x, y]| x.len() * y.len());
        self.rings() + 2 + options.annuli.len() + sectors + moments + pattern
    }
}

impl Reading {
    /// All numbers in a row: rings, corners, total, annuli, sectors, moments, and the pattern by lines.
    pub fn into_values(self) -> Vec<f64> {
        let mut values = self.rings;
        values.extend([self.corners, self.total]);
        values.extend(self.annuli);
        values.extend(self.segmented.into_iter().flatten());
        values.extend(self.moments.into_iter().flatten());
        values.extend(self.pattern.into_iter().flatten());
        values
    }
}

// Readings of a part of a scan
/// Readings of a part of a scan, averaged over the configurations so far.
#[derive(Debug, Clone, PartialEq)]
pub struct StemReadings {
    /// Which of all places this part has.
    pub places: Range<usize>,
    /// Configurations that all places of the part have gone through, and places that have gone through the next one.
    pub done: [usize; 2],
    /// Means: (place, reading), for each place its defoci, for each of those the ends, for each of those the [values](Reading::into_values).
    pub mean: Array2<f64>,
    /// Sums of squared deviations from the mean, of the same shape; empty without phonons.
    pub squares: Array2<f64>,
}

impl StemReadings {
    /// Adds the readings of a configuration at place `k` of the part, Eq. [running mean](https://lenslet.github.io/lenslet/scan.html#eq-running-mean).
    fn add(&mut self, k: usize, values: &[f64]) {
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

    /// Standard errors of the means, Eq. [running mean](https://lenslet.github.io/lenslet/scan.html#eq-running-mean); none with fewer than two configurations.
    pub fn standard_error(&self) -> Option<Array2<f64>> {
        let count = self.done[0] as f64;
        (count > 1.0).then(|| self.squares.mapv(|square| (square / (count * (count - 1.0))).sqrt()))
    }
}

// Waves of one configuration
/// The waves of all probes in one configuration.
pub(crate) trait Waves: Sync {
    /// Readings of probes at `places` \[Å\]: (place, reading), in the order of [`StemReadings::mean`].
    ///
    /// # Errors
    /// `Cancelled`, and those of devices.
    fn read(&self, places: &[[f64; 2]], watch: &dyn Watch) -> Result<Array2<f64>, Error>;
}

// Waves slice after slice on processors
/// Probes slice after slice, by all cores.
struct Slices<'a, T> {
    plan: &'a StemPlan,
    multislice: Multislice<T>,
    potential: Potential,
    /// All slices up to the last that is asked for, if they are kept.
    ready: Vec<Transmission<T>>,
}

impl<T: Real> Waves for Slices<'_, T> {
    fn read(&self, places: &[[f64; 2]], watch: &dyn Watch) -> Result<Array2<f64>, Error> {
        let plan = self.plan;
        let mut found = Array2::zeros((places.len(), plan.readings()));
        for (d, probe) in plan.probes.iter().enumerate() {
            let (mut waves, mut done) = (probe.at::<T>(places), 0);
            for (e, &end) in plan.options.ends.iter().enumerate() {
                if self.ready.is_empty() {
                    // Make slices as they are needed
                    let slice = |k: usize| Ok(self.potential.slice(done + k));
                    let here = [end - done];
                    self.multislice.run(waves.view_mut(), slice, &here, watch, |_, _| Ok(()))?;
                } else {
                    self.multislice.propagate(waves.view_mut(), &self.ready[done..end], watch)?;
                }
                done = end;
                plan.read_waves(waves.view(), d, e, &mut found);
            }
        }
        Ok(found)
    }
}

// Waves of shared beams on processors
/// Probes as sums of beams, by all cores.
struct Beams<'a, T> {
    plan: &'a StemPlan,
    /// The matrix behind each end.
    matrices: Vec<SMatrix<T>>,
}

impl<T: Real> Waves for Beams<'_, T> {
    fn read(&self, places: &[[f64; 2]], watch: &dyn Watch) -> Result<Array2<f64>, Error> {
        let mut found = Array2::zeros((places.len(), self.plan.readings()));
        for (d, probe) in self.plan.probes.iter().enumerate() {
            for (e, matrix) in self.matrices.iter().enumerate() {
                let waves = matrix.spectra(probe, places, watch)?;
                self.plan.read_waves(waves.view(), d, e, &mut found);
            }
        }
        Ok(found)
    }
}

// Waves of a scan
impl StemPlan {
    /// The waves of configuration `c`.
    fn waves<'a, T: Real>(
        &'a self,
        c: usize,
        engine: &Engine,
        watch: &dyn Watch,
    ) -> Result<Box<dyn Waves + 'a>, Error> {
        let (potential, options) = (self.potential(c)?, &self.options);
        let (grid, beam) = (options.grid, &options.probe.beam);
        let multislice = Multislice::<T>::new(grid, beam, potential.thickness())?;
        match options.method {
            StemMethod::Multislice => {
                // Leave the slices to devices
                #[cfg(feature = "cuda")]
                if !engine.devices().is_empty() {
                    if let Some(there) = self.there::<T>(engine, &potential, watch)? {
                        return Ok(there);
                    }
                    engine.require_cpu(
                        "a scan on a grid whose sides have other factors than 2, 3, 5 and 7",
                    )?;
                }
                let ready = self.made_ready(&multislice, &potential, watch)?;
                Ok(Box::new(Slices { plan: self, multislice, potential, ready }))
            }
            StemMethod::Prism { factor, refocus } => {
                engine.require_cpu("a scan with PRISM")?;
                let prism = Prism::new(grid, factor, &options.probe)?;
                // Send the beams through the slices
                let (mut waves, mut matrices) = (prism.waves::<T>(), Vec::new());
                let slice = |k: usize| Ok(potential.slice(k));
                multislice.run(
                    waves.view_mut(),
                    slice,
                    &options.ends,
                    &Unseen(watch),
                    |_, spectra| {
                        matrices.push(SMatrix::new(prism.clone(), beam, spectra, refocus)?);
                        Ok(())
                    },
                )?;
                Ok(Box::new(Beams { plan: self, matrices }))
            }
        }
    }

    /// The slices of a potential made ready, if they may be kept.
    fn made_ready<T: Real>(
        &self,
        multislice: &Multislice<T>,
        potential: &Potential,
        watch: &dyn Watch,
    ) -> Result<Vec<Transmission<T>>, Error> {
        let ([nx, ny], last) = (self.options.grid.points(), self.options.ends.last());
        let count = last.copied().unwrap_or(0);
        if count * nx * ny * size_of::<Complex<T>>() > KEPT {
            return Ok(Vec::new());
        }
        let ready = |_: &(), k: usize| Ok(multislice.transmission(potential.slice(k).view())?);
        gather(Workers::cores(&()), 0..count, &Unseen(watch), ready)
    }

    /// Reads waves behind end `e` of the probes of defocus `d`, and puts down what they read.
    fn read_waves<T: Real>(
        &self,
        waves: ArrayView3<'_, Complex<T>>,
        d: usize,
        e: usize,
        found: &mut Array2<f64>,
    ) {
        let values = self.detectors.values();
        let first = (d * self.options.ends.len() + e) * values;
        let mut here = found.slice_mut(s![.., first..first + values]);
        let pairs = here.axis_iter_mut(Axis(0)).into_par_iter().zip(waves.axis_iter(Axis(0)));
        pairs.for_each(|(mut to, wave)| {
            let read = self.detectors.read(wave).into_values();
            to.iter_mut().zip(read).for_each(|(to, value)| *to = value);
        });
    }
}

// Describe a scan
impl StemPlan {
    /// What will be done, in words, memory and time, without doing it.
    pub fn describe(&self, engine: &Engine) -> Description {
        let options = &self.options;
        let number = 2 * if engine.precision() == Precision::F64 { 8 } else { 4 };
        let ([nx, ny], places) = (options.grid.points(), self.places());
        let slices = options.ends.last().copied().unwrap_or(0);
        let plane = (nx * ny * number) as u64;
        let (waves, method) = match options.method {
            StemMethod::Multislice => (places * self.probes.len(), "multislice".into()),
            StemMethod::Prism { factor: [x, y], .. } => {
                let beams = Prism::new(options.grid, [x, y], &options.probe);
                let beams = beams.map_or(0, |prism| prism.beams());
                (beams, format!("PRISM with {beams} beams, interpolation {x} × {y}"))
            }
        };
        // Memory and time of a scan
        let kept = (slices as u64 * plane).min(KEPT as u64);
        let [wx, wy] = self.waves.points();
        let block = self.block::<f64>(places) * wx * wy * number;
        let beams = match options.method {
            StemMethod::Multislice => 0,
            StemMethod::Prism { .. } => waves as u64 * plane / 2,
        };
        let readings =
            (places * self.readings() * 8) as u64 * if self.configurations() > 1 { 2 } else { 1 };
        let host = kept + block as u64 + beams + 2 * readings;
        let passes = (waves * slices * self.configurations()) as f64;
        let seconds = passes * (nx * ny) as f64 * ((nx * ny) as f64).log2() * SECONDS;
        let stages = vec![Stage::shared("probes", &[(Work::Transforms, seconds)], engine)];
        let what =
            format!("a scan of {} × {} probes", options.scan.counts()[0], options.scan.counts()[1]);
        let grid = format!(
            "{nx} × {ny} samples, {slices} slices, {} configurations",
            self.configurations()
        );
        Description {
            what,
            arrays: vec![("readings".into(), vec![places, self.readings()])],
            form: "",
            reason: String::new(),
            method: format!("{method}, {grid}"),
            slope_model: "",
            engine: engine.name(),
            memory: Memory { host, devices: vec![0; engine.devices().len()] },
            stages,
            rates: engine.speed().to_string(),
        }
    }
}

// Tests of scans
#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::device::silent;
    use crate::electrons::{Aberrations, Annulus, Beam, PatternOptions};
    use crate::specimen::{Atom, Element};

    // A small scan of a lopsided specimen
    fn specimen() -> Specimen {
        let atom = |number, position| {
            let element = Element::new(number).unwrap();
            Atom { element, position, occupancy: 1.0, displacement: 0.1 }
        };
        let atoms = [(14, [1.0, 0.7, 0.4]), (79, [3.1, 4.2, 3.0]), (8, [5.5, 2.0, 5.1])];
        Specimen::new([6.4, 5.2, 6.0], atoms.map(|(number, place)| atom(number, place)).to_vec())
            .unwrap()
    }

    fn options(configurations: usize) -> StemOptions {
        let (beam, aberrations) = (Beam::new(80.0).unwrap(), Aberrations::default());
        let annulus = Annulus { inner: 20.0, outer: 60.0, exact: false };
        StemOptions {
            grid: WaveGrid::new([48, 40], [6.4, 5.2]).unwrap(),
            slicing: Slicing::new(6.0, 2.0).unwrap(),
            model: PotentialModel::Projected,
            factors: Factors::Kirkland,
            bound: 3.0,
            phonons: Phonons { configurations, seed: 5 },
            probe: Probe { beam, semi_angle: 21.0, aberrations, tilt: [0.0; 2] },
            defoci: vec![0.0, 30.0],
            scan: Scan::new([[0.0, 6.4], [1.0, 4.0]], [0.8, 0.7]).unwrap(),
            method: StemMethod::Multislice,
            detectors: DetectorOptions {
                bin: 5.0,
                annuli: vec![annulus],
                centre_of_mass: true,
                pattern: Some(PatternOptions { crop: Some(30.0), bin: 1 }),
                ..Default::default()
            },
            ends: vec![1, 3],
        }
    }

    pub(in crate::electrons) fn plan(configurations: usize) -> StemPlan {
        StemPlan::new(specimen(), options(configurations)).unwrap()
    }

    pub(in crate::electrons) fn whole(plan: &StemPlan, precision: Precision) -> StemReadings {
        let mut readings = plan.begin(0..plan.places()).unwrap();
        let engine = Engine::cpu(precision);
        plan.run(&engine, &mut readings, &silent, &mut |_| Ok(())).unwrap();
        readings
    }

    // Scans are the waves of single probes
    #[test]
    fn scans_are_the_waves_of_single_probes() {
        let (plan, options) = (plan(0), options(0));
        let found = whole(&plan, Precision::F64);
        assert_eq!((plan.places(), found.done), (8 * 5, [1, 0]));
        let multislice = Multislice::<f64>::new(options.grid, &options.probe.beam, 2.0).unwrap();
        let potential = plan.potential(0).unwrap();
        let place = options.scan.place(17);
        assert_eq!(place, [3.0 * 0.8, 1.0 + 2.0 * 0.7]);
        let probe = focused(&options.probe, 30.0).wave(&options.grid).unwrap();
        let mut wave = probe.at::<f64>(&[place]);
        let slice = |k| Ok(potential.slice(k));
        multislice.run(wave.view_mut(), slice, &[3], &silent, |_, _| Ok(())).unwrap();
        let wanted = plan.detectors.read(wave.index_axis(Axis(0), 0)).into_values();
        let last = plan.readings() - wanted.len();
        for (value, wanted) in found.mean.row(17).iter().skip(last).zip(&wanted) {
            assert!((value - wanted).abs() < 1e-13, "{value} {wanted}");
        }
        // All beams of PRISM read the same, single precision nearly so
        let method = StemMethod::Prism { factor: [1, 1], refocus: 0.0 };
        let shared = StemPlan::new(specimen(), StemOptions { method, ..options }).unwrap();
        let [beams, single] =
            [whole(&shared, Precision::F64), whole(&plan, Precision::F32)].map(|found| found.mean);
        let gap =
            |a: &Array2<f64>| (a - &found.mean).fold(0.0, |most: f64, gap| most.max(gap.abs()));
        assert!(gap(&beams) < 1e-12 && gap(&single) < 1e-5, "{:e} {:e}", gap(&beams), gap(&single));
        assert!(gap(&single) > 1e-12);
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
                let mut blocks = 0;
                let mut readings = kept.clone();
                let done = plan.run(&engine, &mut readings, &silent, &mut |now| {
                    kept = now.clone();
                    blocks += 1;
                    if blocks > 1 { Err(Error::Cancelled) } else { Ok(()) }
                });
                if done.is_ok() {
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
            .map(|c| plan.waves::<f64>(c, &engine, &silent).unwrap().read(&place, &silent).unwrap())
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
        assert_eq!(refused(&|o| o.ends = vec![4]), "ends");
        assert_eq!(refused(&|o| o.defoci.clear()), "defocus");
        assert_eq!(refused(&|o| o.slicing = Slicing::new(7.0, 2.0).unwrap()), "slices");
        assert_eq!(refused(&|o| o.grid = WaveGrid::new([48, 40], [6.4, 5.3]).unwrap()), "grid");
        assert_eq!(refused(&|o| o.probe.semi_angle = 90.0), "semi_angle");
        let prism = |factor| StemMethod::Prism { factor, refocus: 0.0 };
        assert_eq!(refused(&|o| o.method = prism([5, 1])), "interpolation");
        let scan = |window, step| Scan::new(window, step).unwrap_err().quantity;
        assert_eq!(scan([[0.0, 1.0], [1.0, 1.0]], [0.1, 0.1]), "window");
        assert_eq!(scan([[0.0, 1.0], [0.0, 1.0]], [0.0, 0.1]), "step");
        assert_eq!(scan([[0.0, 1e9], [0.0, 1e9]], [0.1, 0.1]), "step");
        let plan = plan(0);
        assert!(plan.begin(3..3).is_err() && plan.begin(30..41).is_err());
        let mut other = plan.begin(0..3).unwrap();
        other.places = 0..4;
        let engine = Engine::cpu(Precision::F64);
        assert!(plan.run(&engine, &mut other, &silent, &mut |_| Ok(())).is_err());
    }
}
