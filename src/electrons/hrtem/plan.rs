// Tangled from book/src/micrographs.md: edit there, or here and run cargo tangle stitch.
//! Images of a plane wave through a specimen that trembles: planned and run.

// Imports of micrographs
mod gpu;

use super::optics::{HrtemOptics, ImageSamples, plane_wave};
use crate::device::{CostKind, Engine, threads};
use crate::electrons::multislice::{Multislice, Transmission, seconds_of_a_pass};
use crate::electrons::potential::{Potential, PotentialOptions};
use crate::electrons::scan_images::transform_plane;
use crate::electrons::wave_grid::WaveGrid;
use crate::error::{Error, Invalid, accept, count, finite, is_ordered};
use crate::numerics::real::{Precision, Real};
use crate::plan::{Description, Memory, Plan, Stage};
use crate::specimen::{Phonons, Slicing, Specimen, TiledSpecimen};
use crate::watch::{CancelOnly, Watch};
use ndarray::{Array2, Array3, Array4, ArrayView2, Axis, Zip, s};
use num_complex::{Complex, Complex64};

/// Bytes of transmissions that are held at a time, at most.
const HELD: u64 = 1 << 30;

// Options of plane-wave images
/// Options of images of a plane wave: all but the specimen.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HrtemOptions {
    /// Samples of a wave.
    pub grid: WaveGrid,
    /// Slices of the specimen.
    pub slicing: Slicing,
    /// How the potential of a slice is made.
    pub potential: PotentialOptions,
    /// Frozen phonons.
    pub phonons: Phonons,
    /// The lens, and the electrons.
    pub lens: HrtemOptics,
    /// Tilt of the beam against the specimen \[mrad\], x and y.
    pub tilt: [f64; 2],
    /// Defoci \[Å\] of a series, added to that of the lens; one of 0 if there is none.
    pub defoci: Vec<f64>,
    /// How far exit waves are taken back before they are imaged \[Å\]: the plane in front of the exit face on which a lens without a defocus is focused.
    pub refocus: f64,
    /// Samples of images and of exit waves.
    pub samples: ImageSamples,
    /// Numbers of slices behind which waves are imaged, in rising order.
    pub ends: Vec<usize>,
}

// Read options of plane-wave images
#[cfg(feature = "serde")]
crate::serial::deserialize_by!(HrtemOptions::new(grid: WaveGrid, slicing: Slicing, lens: HrtemOptics) {
    potential: PotentialOptions,
    phonons: Phonons,
    tilt: [f64; 2],
    defoci: Vec<f64>,
    refocus: f64,
    samples: ImageSamples,
    ends: Vec<usize>
});

// Options of plane-wave images one by one
impl HrtemOptions {
    /// Images of a specimen at rest behind its last slice, on all samples of the grid.
    pub fn new(grid: WaveGrid, slicing: Slicing, lens: HrtemOptics) -> Self {
        let (potential, phonons) = (PotentialOptions::default(), Phonons::default());
        let (samples, ends) = (ImageSamples::default(), vec![slicing.count()]);
        let (tilt, defoci, refocus) = ([0.0; 2], vec![0.0], 0.0);
        Self { grid, slicing, potential, phonons, lens, tilt, defoci, refocus, samples, ends }
    }

    /// Sets how the potential of a slice is made.
    pub fn potential(self, potential: PotentialOptions) -> Self {
        Self { potential, ..self }
    }

    /// Sets the frozen phonons.
    pub fn phonons(self, phonons: Phonons) -> Self {
        Self { phonons, ..self }
    }

    /// Sets the lens, and the electrons.
    pub fn lens(self, lens: HrtemOptics) -> Self {
        Self { lens, ..self }
    }

    /// Sets the tilt of the beam against the specimen \[mrad\], x and y.
    pub fn tilt(self, tilt: [f64; 2]) -> Self {
        Self { tilt, ..self }
    }

    // What images are made of a plane wave
    /// Sets the defoci of a series \[Å\], added to that of the lens.
    pub fn defoci(self, defoci: Vec<f64>) -> Self {
        Self { defoci, ..self }
    }

    /// Sets how far exit waves are taken back before they are imaged \[Å\].
    pub fn refocus(self, refocus: f64) -> Self {
        Self { refocus, ..self }
    }

    /// Sets the samples of images and of exit waves.
    pub fn samples(self, samples: ImageSamples) -> Self {
        Self { samples, ..self }
    }

    /// Sets the numbers of slices behind which waves are imaged, in rising order.
    pub fn ends(self, ends: Vec<usize>) -> Self {
        Self { ends, ..self }
    }
}

// The plan of micrographs
/// Plan of the images of a plane wave.
#[derive(Debug, Clone)]
pub struct HrtemPlan {
    specimen: TiledSpecimen,
    options: HrtemOptions,
}

impl HrtemPlan {
    /// Plans the images of a specimen.
    ///
    /// # Errors
    /// `Invalid` for whatever does not fit together: a grid or slices that are not the specimen's, an element without scattering factors, a lens that is none, ends that do not rise or lie behind the last slice, no
    /// defocus.
    pub fn new(specimen: impl Into<TiledSpecimen>, options: HrtemOptions) -> Result<Self, Invalid> {
        // Check the options of images
        let specimen = specimen.into();
        options.slicing.accept_ends(&options.ends)?;
        let defoci = &options.defoci;
        accept(!defoci.is_empty(), "defocus", defoci, "at least one defocus")?;
        accept(is_ordered(defoci), "defocus", defoci, "defoci that rise, or that fall")?;
        for &defocus in &options.defoci {
            finite("defocus", defocus)?;
        }
        finite("refocus", options.refocus)?;
        for defocus in &options.defoci {
            options.lens.at_defocus(*defocus).check_phase(&options.grid)?;
        }
        for tilt in options.tilt {
            finite("tilt", tilt)?;
        }
        Potential::check(&specimen, &options.grid, &options.slicing, options.potential)?;
        Ok(Self { specimen, options })
    }

    // What micrographs are made with
    /// The options of the images.
    pub fn options(&self) -> &HrtemOptions {
        &self.options
    }

    /// The specimen.
    pub fn specimen(&self) -> &Specimen {
        self.specimen.specimen()
    }

    /// The specimen, whose atoms are made when they are needed.
    pub fn tiled_specimen(&self) -> &TiledSpecimen {
        &self.specimen
    }

    /// Configurations of the specimen: one of atoms at rest if there are no phonons.
    pub fn configurations(&self) -> usize {
        self.options.phonons.configurations.max(1)
    }

    /// The potential of configuration `c`.
    pub(crate) fn potential(&self, c: usize) -> Result<Potential, Invalid> {
        let o = &self.options;
        let specimen = o.phonons.displaced(self.specimen.specimen(), c);
        Potential::new(&specimen, o.grid, o.slicing, o.potential)
    }

    /// Samples of an image along x and y.
    fn shape(&self) -> [usize; 2] {
        self.options.grid.points().map(|points| points / self.options.samples.stride())
    }

    fn multislice<T: Real>(&self) -> Result<Multislice<T>, Invalid> {
        let (options, thickness) = (&self.options, self.options.slicing.thickness());
        Multislice::new(options.grid, &options.lens.beam, thickness)?.tilted(options.tilt)
    }

    // Take all micrographs
    fn take<T: Real>(&self, engine: &Engine, watch: &dyn Watch) -> Result<HrtemImages, Error> {
        let (ends, count, multislice) =
            (&self.options.ends, self.configurations(), self.multislice::<T>()?);
        let mut wave = self.wave(engine, &multislice)?;
        let mut taken = HrtemImages::none(self);
        let last = ends.last().copied().unwrap_or(0);
        watch.stage(EXIT_WAVES, "");
        for c in 0..count {
            watch.part("configuration", c, count);
            let (potential, mut done) = (self.potential(c)?, 0);
            wave.begin()?;
            // Image the wave behind each plane
            for (plane, &end) in ends.iter().enumerate() {
                let (slice, mut passed) = (|k: usize| Ok(potential.slice(k)), done);
                multislice.in_groups(done..end, slice, watch, |slices| {
                    wave.pass(slices, watch)?;
                    passed += slices.len();
                    watch.progress(passed, last);
                    Ok(())
                })?;
                taken.add(self, [c, plane], wave.spectrum()?.view())?;
                done = end;
            }
            taken.configurations = c + 1;
        }
        Ok(taken)
    }

    // Who takes the wave
    /// Who takes the wave: the first device of an engine, or the cores if it has none.
    fn wave<'a, T: Real>(
        &self,
        engine: &Engine,
        multislice: &'a Multislice<T>,
    ) -> Result<Box<dyn PlaneWave<T> + 'a>, Error> {
        let grid = self.options.grid;
        if let Some(there) = self.wave_on_device(engine, multislice)? {
            return Ok(there);
        }
        let what = "an image on a grid whose sides have other factors than 2, 3, 5 and 7";
        engine.require_cpu(what)?;
        Ok(Box::new(HostWorker { multislice, grid, wave: Array3::default((0, 0, 0)) }))
    }
}

// Run the plan of images of a plane wave
impl Plan for HrtemPlan {
    type Output = HrtemImages;

    /// Accepts either precision: waves are computed in it.
    fn check_engine(&self, _engine: &Engine) -> Result<(), Error> {
        Ok(())
    }

    fn subject(&self) -> String {
        "the images".into()
    }

    /// Takes all images.
    ///
    /// # Errors
    /// Those of [`check`](Self::check); `Device` where the engine has devices and the grid sides for which there are no kernels;
    /// `Cancelled`, and those of devices.
    fn run(&self, engine: &Engine, watch: &dyn Watch) -> Result<HrtemImages, Error> {
        self.check(engine)?;
        match engine.precision() {
            Precision::F32 => self.take::<f32>(engine, watch),
            Precision::F64 => self.take::<f64>(engine, watch),
        }
    }

    // Describe images of a plane wave
    fn describe(&self, engine: &Engine) -> Result<Description, Error> {
        let (options, configurations) = (&self.options, self.configurations());
        let ([nx, ny], ends) = (options.grid.points(), options.ends.len());
        let (defoci, slices) = (options.defoci.len(), options.ends[ends - 1]);
        let [width, height] = self.shape();
        // Memory and time of micrographs
        let plane = (nx * ny) as u64;
        let number = if engine.precision() == Precision::F64 { 16 } else { 8 };
        let group = (slices as u64 * plane * number).min(HELD);
        let images = (defoci * ends) as u64 * plane * 8;
        let kept = images * if configurations > 1 { 3 } else { 1 };
        let atoms = self.specimen.bytes().saturating_mul(if configurations > 1 { 5 } else { 3 });
        let host = (group + kept + images + (ends as u64 + 4) * plane * 16).saturating_add(atoms);
        let there = self.bytes_on_device(number as usize);
        let first = |k| if k == 0 { there } else { 0 };
        let devices = (0..engine.devices().len()).map(first).collect();
        let making = options.potential.model.passes(
            self.specimen.count(),
            &options.slicing,
            &options.phonons,
        );
        let pass = |precision| configurations as f64 * seconds_of_a_pass(&options.grid, precision);
        let made = slices as f64 * making * pass(Precision::F32) / threads() as f64;
        let followed = (slices + 2 * defoci * ends) as f64 * pass(engine.precision());
        let stages =
            vec![Stage::alone(EXIT_WAVES, &[(CostKind::Transforms, made + followed)], engine)];
        Ok(Description {
            what: match ends {
                1 => format!("images of a plane wave, foci: {defoci}"),
                _ => format!("images of a plane wave, foci: {defoci}, planes: {ends}"),
            },
            arrays: vec![("image".into(), vec![defoci, ends, height, width])],
            form: "",
            reason: String::new(),
            method: format!(
                "multislice of a plane wave, {nx} × {ny} samples, {}, {}",
                count(slices, "slice"),
                count(configurations, "configuration")
            ),
            slope_model: "",
            engine: engine.name(),
            memory: Memory { host, devices },
            stages,
            rates: engine.speed().to_string(),
        })
    }
}

/// Name of the stage that computes the exit waves, for [`Watch::stage`](crate::watch::Watch::stage).
const EXIT_WAVES: &str = "exit waves";

// A plane wave on its way
/// Who takes a plane wave through slices.
trait PlaneWave<T> {
    /// Begins above the specimen.
    fn begin(&mut self) -> Result<(), Error>;

    /// Goes through slices.
    fn pass(&mut self, slices: &[Transmission<T>], watch: &dyn Watch) -> Result<(), Error>;

    /// What the wave has become, (k_y, k_x).
    fn spectrum(&self) -> Result<Array2<Complex<T>>, Error>;
}

// A plane wave on cores
/// The cores of this machine.
struct HostWorker<'a, T> {
    multislice: &'a Multislice<T>,
    grid: WaveGrid,
    wave: Array3<Complex<T>>,
}

impl<T: Real> PlaneWave<T> for HostWorker<'_, T> {
    fn begin(&mut self) -> Result<(), Error> {
        self.wave = plane_wave(&self.grid);
        Ok(())
    }

    fn pass(&mut self, slices: &[Transmission<T>], watch: &dyn Watch) -> Result<(), Error> {
        self.multislice.propagate(self.wave.view_mut(), slices, &CancelOnly(watch))
    }

    fn spectrum(&self) -> Result<Array2<Complex<T>>, Error> {
        Ok(self.wave.index_axis(Axis(0), 0).to_owned())
    }
}

// All micrographs of a specimen
/// High-resolution images of a plane wave, and its exit waves.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct HrtemImages {
    /// Configurations that the images are averaged over.
    pub configurations: usize,
    /// Mean images: (defocus, end, y, x), 1 without a specimen.
    pub mean: Array4<f64>,
    /// Sums of squared deviations from the mean, of the same shape; empty without phonons.
    pub squares: Array4<f64>,
    /// Exit waves of the first configuration, (end, y, x), in the frame of the beam.
    pub exits: Array3<Complex64>,
}

impl HrtemImages {
    // Images before the first configuration
    /// No images yet.
    fn none(plan: &HrtemPlan) -> Self {
        let (options, [nx, ny]) = (&plan.options, plan.shape());
        let shape = (options.defoci.len(), options.ends.len(), ny, nx);
        let spread = if plan.configurations() > 1 { shape } else { (0, 0, 0, 0) };
        let exits = Array3::zeros((options.ends.len(), ny, nx));
        let (mean, squares) = (Array4::zeros(shape), Array4::zeros(spread));
        Self { configurations: 0, mean, squares, exits }
    }

    // Add the images of an exit wave
    /// Adds the images of an exit wave (k_y, k_x) of a configuration, behind a plane.
    fn add<T: Real>(
        &mut self,
        plan: &HrtemPlan,
        [c, plane]: [usize; 2],
        exit: ArrayView2<'_, Complex<T>>,
    ) -> Result<(), Invalid> {
        let (options, stride) = (&plan.options, plan.options.samples.stride());
        let every = s![..;stride, ..;stride];
        if c == 0 {
            let exit = samples(&options.grid, exit);
            self.exits.index_axis_mut(Axis(0), plane).assign(&exit.slice(every));
        }
        let middle = options.lens.aberrations.defocus - options.refocus;
        let defoci: Vec<f64> = options.defoci.iter().map(|defocus| middle + defocus).collect();
        let images = options.lens.series(&options.grid, exit, &defoci)?;
        let images = images.slice(s![.., ..;stride, ..;stride]);
        // Average the images of a plane
        let mut means = self.mean.index_axis_mut(Axis(1), plane);
        if self.squares.is_empty() {
            means.assign(&images);
            return Ok(());
        }
        let squares = self.squares.index_axis_mut(Axis(1), plane);
        Zip::from(&mut means).and(squares).and(&images).for_each(|mean, square, x| {
            let before = x - *mean;
            *mean += before / (c + 1) as f64;
            *square += before * (x - *mean);
        });
        Ok(())
    }

    // Standard errors of images
    /// Standard errors of the means, Eq. [running mean](https://lenslet.github.io/lenslet/scan-runs.html#eq-running-mean); none with fewer than two configurations.
    pub fn standard_error(&self) -> Option<Array4<f64>> {
        let count = self.configurations as f64;
        (count > 1.0).then(|| self.squares.mapv(|square| (square / (count * (count - 1.0))).sqrt()))
    }
}

// Samples of an exit wave
/// Samples (y, x), on the whole grid, of a wave (k_y, k_x), kept frequencies in their order.
pub(crate) fn samples<T: Real>(
    grid: &WaveGrid,
    wave: ArrayView2<'_, Complex<T>>,
) -> Array2<Complex64> {
    let [nx, ny] = grid.points();
    let mut plane = Array2::zeros((ny, nx));
    for (j, line) in grid.kept(1).zip(wave.outer_iter()) {
        for (i, a) in grid.kept(0).zip(line) {
            plane[[j, i]] = Complex64::new(a.re.in_double(), a.im.in_double());
        }
    }
    transform_plane(&mut plane, true);
    plane
}

// Tests of micrographs
#[cfg(test)]
mod tests {
    use super::*;
    use crate::electrons::{Aberrations, Beam};
    use crate::specimen::{Atom, Element};
    use crate::watch::unwatched;

    // Micrographs of a lopsided specimen
    fn specimen() -> Specimen {
        let atom = |number, position| {
            let element = Element::new(number).unwrap();
            Atom { element, position, occupancy: 1.0, displacement: 0.1 }
        };
        let atoms = [(14, [1.0, 0.7, 0.4]), (79, [3.1, 4.2, 3.0]), (8, [5.5, 2.0, 5.1])];
        Specimen::new([6.4, 5.2, 6.0], atoms.map(|(number, place)| atom(number, place)).to_vec())
            .unwrap()
    }

    fn options(configurations: usize) -> HrtemOptions {
        let aberrations = Aberrations { defocus: 20.0, c3: 6e6, ..Aberrations::default() };
        let lens = HrtemOptics { aberrations, ..HrtemOptics::perfect(Beam::new(200.0).unwrap()) };
        let grid = WaveGrid::new([48, 40], [6.4, 5.2]).unwrap();
        let slicing = Slicing::new(6.0, 2.0).unwrap();
        let lens =
            HrtemOptics { aperture: Some(25.0), focal_spread: 30.0, tilt: [1.0, 0.0], ..lens };
        HrtemOptions::new(grid, slicing, lens)
            .phonons(Phonons { configurations, seed: 5 })
            .tilt([0.0, 4.0])
            .defoci(vec![0.0, -300.0])
            .ends(vec![1, 3])
    }

    fn taken(options: HrtemOptions, precision: Precision) -> HrtemImages {
        let plan = HrtemPlan::new(specimen(), options).unwrap();
        plan.run(&Engine::cpu(precision), &unwatched).unwrap()
    }

    // Micrographs are images of single waves
    #[test]
    fn micrographs_are_images_of_single_waves() {
        let (still, asked) = (taken(options(0), Precision::F64), options(0));
        let potential = HrtemPlan::new(specimen(), options(0)).unwrap().potential(0).unwrap();
        let multislice = Multislice::<f64>::new(asked.grid, &asked.lens.beam, 2.0).unwrap();
        let mut wave = plane_wave::<f64>(&asked.grid);
        let slice = |k: usize| Ok(potential.slice(k));
        let multislice = multislice.tilted([0.0, 4.0]).unwrap();
        multislice.run(wave.view_mut(), slice, &[3], &unwatched, |_, _| Ok(())).unwrap();
        let wave = wave.index_axis(Axis(0), 0);
        let aberrations = Aberrations { defocus: -280.0, ..asked.lens.aberrations.clone() };
        let lens = HrtemOptics { aberrations, ..asked.lens.clone() };
        let image = lens.image(&asked.grid, wave).unwrap();
        let found = still.mean.slice(ndarray::s![1, 1, .., ..]);
        assert!((&found - &image).iter().all(|x| x.abs() < 1e-12));
        assert!(still.squares.is_empty() && still.standard_error().is_none());
        // An exit wave is what a perfect lens images
        let perfect = HrtemOptics::perfect(asked.lens.beam).image(&asked.grid, wave).unwrap();
        let exit = still.exits.index_axis(Axis(0), 1).mapv(|a| a.norm_sqr());
        assert!((exit - perfect).iter().all(|x| x.abs() < 1e-12));
        let single = taken(options(0), Precision::F32);
        let gap = (&single.mean - &still.mean).iter().fold(0.0f64, |m, x| m.max(x.abs()));
        assert!((1e-12..1e-4).contains(&gap), "{gap:e}");
    }

    #[test]
    fn trembling_atoms_average_images() {
        let (two, one) = (taken(options(2), Precision::F64), taken(options(1), Precision::F64));
        let error = two.standard_error().unwrap();
        // Half of the distance of two images is the error of their mean, which is half-way between
        assert!(((&one.mean - &two.mean).mapv(f64::abs) - &error).iter().all(|x| x.abs() < 1e-12));
        assert!(error.iter().any(|x| *x > 1e-3) && two.exits == one.exits);
        assert!(two.configurations == 2 && one.standard_error().is_none());
        let empty =
            HrtemOptions { lens: HrtemOptics { tilt: [0.0; 2], ..options(0).lens }, ..options(0) };
        let nothing = Specimen::new([6.4, 5.2, 6.0], vec![specimen().atoms()[2]]).unwrap();
        let plan = HrtemPlan::new(nothing, empty).unwrap();
        let images = plan.run(&Engine::cpu(Precision::F64), &unwatched).unwrap();
        let above = images.mean.slice(ndarray::s![.., 0, .., ..]).mean().unwrap();
        assert!((0.99..1.0 + 1e-9).contains(&above), "{above}");
    }

    // Refocused waves on the samples of the mask
    /// Waves that are taken back by the multislice's own propagator through empty space, and imaged on every second sample.
    #[test]
    fn refocused_waves_are_imaged_on_the_samples_of_the_mask() {
        let asked = HrtemOptions {
            refocus: 3.0,
            samples: ImageSamples::Mask,
            lens: HrtemOptics { focal_spread: 0.0, tilt: [0.0; 2], ..options(0).lens },
            tilt: [0.0; 2],
            ..options(0)
        };
        let plan = HrtemPlan::new(specimen(), asked.clone()).unwrap();
        let halved = plan.run(&Engine::cpu(Precision::F64), &unwatched).unwrap();
        let potential = plan.potential(0).unwrap();
        let multislice = plan.multislice::<f64>().unwrap();
        let mut wave = plane_wave::<f64>(&asked.grid);
        let slice = |k: usize| Ok(potential.slice(k));
        multislice.run(wave.view_mut(), slice, &[3], &unwatched, |_, _| Ok(())).unwrap();
        let [x, y] = crate::electrons::beam::kept_frequencies(&asked.grid);
        let lambda = asked.lens.beam.wavelength();
        for ((_, j, i), a) in wave.indexed_iter_mut() {
            let phase = std::f64::consts::PI * lambda * 3.0 * (x[i] * x[i] + y[j] * y[j]);
            *a *= Complex64::cis(phase);
        }
        let image = asked.lens.image(&asked.grid, wave.index_axis(Axis(0), 0)).unwrap();
        assert_eq!(halved.mean.dim(), (2, 2, 20, 24));
        let gap = &halved.mean.slice(s![0, 1, .., ..]) - &image.slice(s![..;2, ..;2]);
        assert!(gap.iter().all(|gap| gap.abs() < 1e-12));
        let whole = HrtemOptions { samples: ImageSamples::Grid, ..asked };
        let whole = taken(whole, Precision::F64);
        assert_eq!(halved.exits, whole.exits.slice(s![.., ..;2, ..;2]));
        let off = taken(options(0), Precision::F64);
        assert!((&off.mean - &whole.mean).iter().any(|x| x.abs() > 1e-3));
    }

    // Waves on devices make the same images
    #[test]
    fn waves_on_devices_make_the_same_images() {
        use crate::device::gpu::test_backends;
        for (precision, bound) in [(Precision::F64, 1e-12), (Precision::F32, 1e-5)] {
            let plan = HrtemPlan::new(specimen(), options(2)).unwrap();
            let here = plan.run(&Engine::cpu(precision), &unwatched).unwrap();
            for gpu in test_backends() {
                let engine = Engine::gpus(vec![gpu], precision).unwrap();
                let there = plan.run(&engine, &unwatched).unwrap();
                let gap = (&there.mean - &here.mean).fold(0.0f64, |most, gap| most.max(gap.abs()));
                let waves =
                    (&there.exits - &here.exits).fold(0.0f64, |most, gap| most.max(gap.norm()));
                assert!(gap < bound && waves < bound && gap > 0.0, "{gap:e} {waves:e}");
                assert!(plan.describe(&engine).unwrap().memory.devices[0] > 0);
            }
        }
        let lengths =
            HrtemOptions { grid: WaveGrid::new([44, 40], [6.4, 5.2]).unwrap(), ..options(0) };
        let plan = HrtemPlan::new(specimen(), lengths).unwrap();
        for gpu in test_backends() {
            let engine = Engine::gpus(vec![gpu], Precision::F64).unwrap();
            let refused = plan.run(&engine, &unwatched).unwrap_err().to_string();
            assert!(refused.contains("other factors than 2, 3, 5 and 7"), "{refused}");
        }
    }

    // Refuse micrographs that make no sense
    #[test]
    fn micrographs_that_make_no_sense_are_refused() {
        let refused = |change: &dyn Fn(&mut HrtemOptions)| {
            let mut bad = options(0);
            change(&mut bad);
            HrtemPlan::new(specimen(), bad).err().unwrap().quantity
        };
        assert_eq!(refused(&|o| o.ends = vec![2, 2]), "ends");
        assert_eq!(refused(&|o| o.ends = vec![4]), "ends");
        assert_eq!(refused(&|o| o.ends.clear()), "ends");
        assert_eq!(refused(&|o| o.defoci.clear()), "defocus");
        assert_eq!(refused(&|o| o.defoci = vec![f64::NAN]), "defocus");
        assert_eq!(refused(&|o| o.lens.aperture = Some(-1.0)), "aperture");
        assert_eq!(refused(&|o| o.tilt = [f64::INFINITY, 0.0]), "tilt");
        assert_eq!(refused(&|o| o.refocus = f64::NAN), "refocus");
        assert_eq!(refused(&|o| o.slicing = Slicing::new(7.0, 2.0).unwrap()), "slices");
        struct Impatient;
        impl Watch for Impatient {
            fn cancelled(&self) -> bool {
                true
            }
        }
        let plan = HrtemPlan::new(specimen(), options(0)).unwrap();
        let cancelled = plan.run(&Engine::cpu(Precision::F64), &Impatient);
        assert!(matches!(cancelled, Err(Error::Cancelled)));
        let said = plan.describe(&Engine::cpu(Precision::F32)).unwrap();
        assert!(said.memory.host > 48 * 40 * 8 * 4 && said.seconds() > 0.0);
    }
}
