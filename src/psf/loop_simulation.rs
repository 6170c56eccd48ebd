// Tangled from book/src/loop-monte-carlo.md: edit there, or here and run cargo tangle stitch.
//! Simulation of the loop in turbulence realisations: screens, sensors, reconstructor, mirrors, and the images of the residual wavefronts.

// Imports of the simulated loop
use crate::correction::{Correction, Projector};
use crate::data::DataSet;
use crate::device::{Engine, Workers, gather};
use crate::error::{Error, Invalid, accept, count};
use crate::estimation::simulation::{
    EvolvingTurbulence, Simulation, SimulationOptions, SimulationPlan,
};
use crate::model::control::{ControlLoop, LoopKind};
use crate::model::noise::GuideStar;
use crate::model::source::Source;
use crate::model::system::System;
use crate::model::wavefront_grid::PhaseGrid;
use crate::plan::{Description, Memory, Plan, Stage};
use crate::psf::optical_transfer::{Aperture, OpticalTransfer, TelescopeTransfer};
use crate::psf::options::EXPONENT;
use crate::psf::plan::PsfOptions;
use crate::psf::residual::{sample_step, sampled_aperture, shapes_towards};
use crate::psf::transforms::Plane;
use crate::tomography::reconstructor::{ReconstructedQuantity, ReconstructorPlan};
use crate::watch::{CancelOnly, Watch, unwatched};
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis, Zip, s};
use num_complex::Complex64;
use std::f64::consts::PI;

// Simulated loop and its matrices
/// A loop in simulated turbulence.
pub struct LoopSimulation {
    simulation: Simulation,
    control: ControlLoop,
    /// K, (a, n): one for all targets, or one for each.
    commands: Vec<Array2<f64>>,
    /// J⁺ of a mirror in the pupil, (a, m).
    by_slopes: Array2<f64>,
    /// Eq. [best fit](https://lenslet.github.io/lenslet/loop-monte-carlo.html#eq-best-fit) for wavefronts at the lit points, (a, points).
    by_eye: Array2<f64>,
    /// Wavefronts of the strokes of all mirrors at the lit points of the pupil, towards each target, (points, a).
    shapes: Vec<Array2<f64>>,
    /// Those of a mirror in the pupil.
    pupil_shapes: Array2<f64>,
    lit: Vec<[usize; 2]>,
    aperture: Aperture,
    telescope: TelescopeTransfer,
    plane: Plane,
    // Light and given errors of a loop
    /// The light of the lit points, and its spectrum on the plane.
    light: Array1<f64>,
    spectrum: Array2<Complex64>,
    wavelengths: Vec<f64>,
    /// Structure function of the errors that are given, m².
    given: Array2<f64>,
    targets: usize,
}

// Plan of simulated loops
// Options of simulated loops
/// Options of simulated loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct LoopSimulationOptions {
    /// Independent turbulence realisations, at least 2: their scatter gives the standard errors.
    pub realisations: usize,
    /// Squares of the pupil's grid per lenslet. The default samples the influence functions as finely as the computed
    /// residuals.
    pub squares_per_lenslet: Option<usize>,
}

impl Default for LoopSimulationOptions {
    /// A hundred realisations.
    fn default() -> Self {
        Self { realisations: 100, squares_per_lenslet: None }
    }
}

impl LoopSimulationOptions {
    /// Sets the number of realisations.
    pub fn realisations(self, realisations: usize) -> Self {
        Self { realisations, ..self }
    }

    /// Sets the number of squares of the pupil's grid per lenslet.
    pub fn squares_per_lenslet(self, squares: usize) -> Self {
        Self { squares_per_lenslet: Some(squares), ..self }
    }
}

/// Plan of independent realisations of a loop in simulated turbulence, towards all targets of a system.
#[derive(Debug, Clone)]
pub struct LoopSimulationPlan {
    system: System,
    options: PsfOptions,
    realisations: usize,
    correction: Correction,
    reconstructor: ReconstructorPlan,
    /// The pupil on its grid, and the side of its squares, m.
    aperture: Aperture,
    step: f64,
    /// Turbulence of the guide stars, the truth sensors and the grid of the pupil.
    turbulence: SimulationPlan,
    /// Seconds of all realisations.
    seconds: f64,
}

// Prepare the plan of simulated loops
impl LoopSimulationPlan {
    // Documentation of simulated loops
    /// Plans the loop of a system with the mirrors, the delay and the wavelengths of `options`. Other options of an image and a field are not
    /// used.
    ///
    /// # Errors
    /// As for the [plan of images](crate::psf::PsfPlan::new) and for [`SimulationPlan::new`]; `Invalid` for fewer than two realisations.
    pub fn new(
        system: &System,
        options: &PsfOptions,
        loops: LoopSimulationOptions,
    ) -> Result<Self, Error> {
        // Check the numbers of simulated loops
        let LoopSimulationOptions { realisations, squares_per_lenslet } = loops;
        let expected = "at least 2 realisations, whose scatter tells the standard error";
        accept(realisations > 1, "check", realisations, expected)?;
        options.image.check()?;
        options.control.as_ref().map_or(Ok(()), ControlLoop::check)?;
        // Reconstruct with a matrix
        let correction = Correction::new(system, &options.correction)?;
        let reconstructor = options.reconstructor.errors_only(false).keep(true);
        let reconstructor = reconstructor.to(ReconstructedQuantity::Slopes);
        let reconstructor = ReconstructorPlan::new(correction.system(), reconstructor)?;
        // Lay a grid over the pupil
        let expected = "a [telescope], whose images are wanted";
        let pupil = system.pupil().ok_or_else(|| Invalid::new("telescope", "none", expected))?;
        let finest = sample_step(pupil.diameter(), correction.pupil_mirror().fitting_pitch());
        let fine = (system.wavefront_pitch() / finest * (1.0 - 1e-12)).ceil().max(1.0) as usize;
        let squares = squares_per_lenslet.unwrap_or(fine);
        accept(squares > 0, "squares_per_lenslet", squares, "at least one square to a lenslet")?;
        let step = system.wavefront_pitch() / squares as f64;
        let samples = (pupil.diameter() / step * (1.0 - 1e-9)).ceil() as usize;
        let aperture = sampled_aperture(&options.image, pupil, samples, step)?;
        // Simulate with truth sensors
        let truth = |target: &Source| GuideStar::at_rest(*target, *system.truth_sensor(), 0.0);
        let truths = system.targets().iter().map(truth).collect::<Result<Vec<_>, Invalid>>()?;
        let stars = system.guide_stars().iter().cloned().chain(truths);
        let grid = PhaseGrid::new(samples, squares, 0.0)?;
        let with_truths = system.to_builder().guide_stars(stars).phase(Some(grid)).build()?;
        let control = options.control.unwrap_or(AT_ONCE);
        let lasting = SimulationOptions::default().lasting(control.lasting());
        let turbulence = SimulationPlan::new(&with_truths, lasting)?;
        // Time of all realisations
        // As many frames as the loop takes to settle, each sampled at two times
        let frames = SimulationOptions::default().frames(realisations);
        let frames = SimulationPlan::new(system, frames)?.describe(&Engine::default())?.seconds();
        let seconds = frames * (NODES.len() * (control.settling() + 1)) as f64;
        let (system, options) = (system.clone(), options.clone());
        Ok(Self {
            // Parts of the loop plan
            system,
            options,
            realisations,
            correction,
            reconstructor,
            aperture,
            step,
            turbulence,
            seconds,
        })
    }

    // Stage of the realisations
    /// Stage of the realisations.
    fn stage(&self) -> Stage {
        Stage { name: LOOPS, seconds: self.seconds }
    }
}

// Run the plan of simulated loops
impl Plan for LoopSimulationPlan {
    /// Residual wavefront error and Strehl ratios of each target.
    type Output = Vec<Simulated>;

    // Describe simulated loops
    /// Rejects a GPU, and single precision.
    fn check_engine(&self, engine: &Engine) -> Result<(), Error> {
        engine.require_cpu("a simulated loop")?;
        Ok(engine.require_double_on_cpu("a simulated loop")?)
    }

    fn describe(&self, engine: &Engine) -> Result<Description, Error> {
        self.check_engine(engine)?;
        let (targets, waves) = (self.system.targets().len(), self.options.image.wavelengths.len());
        let [reconstructor, turbulence] =
            [self.reconstructor.memory(engine)?, self.turbulence.memory(engine)?];
        let host = reconstructor.host.max(turbulence.host);
        let (realisations, across) = (self.realisations, self.aperture.light().nrows());
        Ok(Description {
            what: format!(
                "{} of the loop towards {}",
                count(realisations, "realisation"),
                count(targets, "target")
            ),
            arrays: vec![
                ("error".into(), vec![targets, 2]),
                ("strehl".into(), vec![targets, waves, 2]),
            ],
            form: "",
            reason: String::new(),
            method: format!("simulated turbulence on {across} × {across} squares of the pupil"),
            slope_model: self.system.slope_model().name(),
            engine: engine.name(),
            memory: Memory { host, devices: Vec::new() },
            stages: vec![self.stage()],
            rates: engine.speed().to_string(),
        })
    }

    fn subject(&self) -> String {
        "simulated loops".into()
    }

    /// Averages independent realisations, with seeds from 1 on; `watch` counts them.
    ///
    /// # Errors
    /// Those of [`check`](Self::check); as for the plan of the reconstructor; `Cancelled`; `Invalid` where a wavefront is not finite.
    fn run(&self, engine: &Engine, watch: &dyn Watch) -> Result<Vec<Simulated>, Error> {
        self.check(engine)?;
        watch.stage(LOOPS, REALISATIONS);
        LoopSimulation::of(self, &CancelOnly(watch))?.average(self.realisations, watch)
    }
}

// Prepare a simulated loop
impl LoopSimulation {
    // Loop without a plan
    /// The loop of a system with the mirrors, the delay and the wavelengths of `options`, with a number of squares of the pupil's grid per
    /// lenslet.
    ///
    /// # Errors
    /// As for [`LoopSimulationPlan::new`] and [`of`](Self::of).
    pub fn new(system: &System, options: &PsfOptions, per_lenslet: usize) -> Result<Self, Error> {
        let loops = LoopSimulationOptions::default().squares_per_lenslet(per_lenslet);
        Self::of(&LoopSimulationPlan::new(system, options, loops)?, &unwatched)
    }

    /// The loop of a plan: its matrices, its mirrors and its turbulence.
    ///
    /// # Errors
    /// As for the plans of the reconstructor and of the simulation; `Cancelled` if the watcher stops the run.
    pub fn of(plan: &LoopSimulationPlan, watch: &dyn Watch) -> Result<Self, Error> {
        // Reconstruct and command a loop
        let LoopSimulationPlan { system, options, correction, aperture, step, .. } = plan;
        let engine = Engine::default();
        plan.check(&engine)?;
        let reconstruction = plan.reconstructor.run(&engine, watch)?;
        let commands = correction.of(&reconstruction, &engine)?.commands;
        let (control, targets) = (options.control.unwrap_or(AT_ONCE), system.targets().len());
        // Transform the light of the pupil
        let samples = aperture.light().nrows();
        let (telescope, plane) = (aperture.transfer(2 * samples)?, Plane::around(2 * samples - 1));
        let spectrum = plane.spectrum(&aperture.light().view());
        let image = &options.image;
        let given = telescope.jitter(image.jitter)? + telescope.extra(image.extra, EXPONENT)?;
        let squares = aperture.light().indexed_iter().filter(|(_, light)| **light > 0.0);
        let lit: Vec<[usize; 2]> = squares.map(|((j, i), _)| [j, i]).collect();
        let light: Array1<f64> = lit.iter().map(|place| aperture.light()[*place]).collect();
        let simulation = plan.turbulence.prepare(watch)?;
        // Wavefronts of all actuators
        let middle = 0.5 * (samples as f64 - 1.0);
        let positions: Vec<[f64; 2]> =
            lit.iter().map(|[j, i]| [*i, *j].map(|k| (k as f64 - middle) * step)).collect();
        let towards = |target| shapes_towards(correction.mirrors(), target, &positions);
        let shapes = system.targets().iter().map(towards).collect();
        let mirror = std::slice::from_ref(correction.pupil_mirror());
        let pupil_shapes = shapes_towards(mirror, &system.targets()[0], &positions);
        // Fit strokes directly to the wavefront
        let share = &light / light.sum();
        let pistons = share.dot(&pupil_shapes);
        let roots = light.mapv(f64::sqrt).insert_axis(Axis(1));
        let flat = (&pupil_shapes - &pistons) * &roots;
        let best = Projector::of(flat, 1e-3, &engine)?.inverse() * &roots.t();
        let sums = best.sum_axis(Axis(1)).insert_axis(Axis(1));
        let by_eye = &best - &(sums * &share);
        Ok(Self {
            // Matrices of a prepared loop
            simulation,
            control,
            commands,
            by_slopes: correction.pupil(&engine)?.inverse().clone(),
            by_eye,
            shapes,
            pupil_shapes,
            lit,
            aperture: aperture.clone(),
            telescope,
            plane,
            light,
            spectrum,
            wavelengths: options.image.wavelengths.clone(),
            given,
            targets,
        })
    }

    // Pupil of a simulated loop
    /// The pupil on its grid.
    pub fn aperture(&self) -> &Aperture {
        &self.aperture
    }

    /// The transfer function of the telescope on that grid.
    pub fn telescope(&self) -> &TelescopeTransfer {
        &self.telescope
    }
}

// Run the loop in one realisation
impl LoopSimulation {
    /// Residual wavefronts of all targets in the turbulence realisation of a seed.
    ///
    /// # Errors
    /// `Invalid` where a wavefront is not finite.
    pub fn realisation(&self, seed: u64) -> Result<Vec<LoopFrame>, Error> {
        let mut turbulence = self.simulation.turbulence(seed);
        let (frames, sets) = (self.control.settling(), self.commands.len());
        let mut loops: Vec<StrokeHistory> =
            (0..sets + 2 * self.targets).map(|_| StrokeHistory::new(&self.control)).collect();
        for k in 0..frames {
            let noise = Array1::from(turbulence.noise());
            let frame = self.exposure(&turbulence, k as f64);
            let slopes = &frame.slopes + &noise;
            let own = self.commands.iter().map(|k| k.dot(&slopes.slice(s![..k.ncols()])));
            let best = (0..self.targets).flat_map(|t| self.best(&frame, t));
            // Command the loops of stars and ideal ones
            for (strokes, command) in loops.iter_mut().zip(own.chain(best)) {
                strokes.follow(&command, false);
            }
        }
        let held: Vec<&Array1<f64>> = loops.iter().map(StrokeHistory::held).collect();
        self.measure_residuals(&turbulence, (frames - 1) as f64 + self.control.delay, &held)
    }

    // Average slopes and wavefronts over a frame
    /// Slopes without noise and wavefronts, averaged over the frame that starts at `start`, in frames.
    fn exposure(&self, turbulence: &EvolvingTurbulence, start: f64) -> TurbulenceFrame {
        let looks = NODES.map(|node| self.at(turbulence, start + node));
        let share = 1.0 / NODES.len() as f64;
        let front = |t: usize| looks.iter().map(|frame| &frame.fronts[t] * share).fold(None, added);
        let slopes = looks.iter().map(|frame| &frame.slopes * share).fold(None, added);
        let fronts = (0..self.targets).filter_map(front).collect();
        TurbulenceFrame { slopes: slopes.unwrap_or_default(), fronts }
    }

    /// Slopes without noise and wavefronts at a time, in frames.
    fn at(&self, turbulence: &EvolvingTurbulence, frames: f64) -> TurbulenceFrame {
        let time = frames / self.control.rate;
        let fronts = turbulence.wavefronts(time);
        let lit = |front: ArrayView2<f64>| self.lit.iter().map(|place| front[*place]).collect();
        TurbulenceFrame {
            slopes: Array1::from(turbulence.slopes(time)),
            fronts: fronts.outer_iter().map(lit).collect(),
        }
    }

    // Best strokes of a target
    /// Best strokes for a target without delay, by its truth sensor and by the direct fit.
    fn best(&self, frame: &TurbulenceFrame, t: usize) -> [Array1<f64>; 2] {
        let m = self.by_slopes.ncols();
        let first = frame.slopes.len() - (self.targets - t) * m;
        let slopes = frame.slopes.slice(s![first..first + m]);
        [self.by_slopes.dot(&slopes), self.by_eye.dot(&frame.fronts[t])]
    }
}

// Names of stages of simulated loops
/// Names of the stage of simulated loops and of its steps.
pub const LOOPS: &str = "simulated loops";
pub const REALISATIONS: &str = "realisations";

// Strokes of a loop in time
impl ControlLoop {
    // Frames until a loop has settled
    /// Exposures after which the response of a closed loop to its initial strokes stays below one hundredth.
    fn settling(&self) -> usize {
        if self.kind == LoopKind::Open {
            return 1;
        }
        let (mut pushed, mut last) = (StrokeHistory::new(self), 0);
        for k in 0..MOST_FRAMES {
            let push = if k == 0 { 1.0 } else { 0.0 };
            pushed.follow(&Array1::from_elem(1, push), k == 0);
            last = if pushed.held()[0].abs() > 0.01 { k } else { last };
        }
        last + 1
    }

    /// From the start of the first exposure to the end of the last hold, s.
    fn lasting(&self) -> f64 {
        (self.settling() as f64 + self.delay) / self.rate
    }
}

/// Loop of a system without a control loop: exposures take no time, and there is no delay.
const AT_ONCE: ControlLoop =
    ControlLoop { kind: LoopKind::Open, rate: f64::INFINITY, gain: 1.0, delay: 0.0 };

/// Largest number of frames for a loop to settle.
const MOST_FRAMES: usize = 400;

/// The strokes of a loop, the newest last.
struct StrokeHistory<'a> {
    control: &'a ControlLoop,
    rows: Vec<Array1<f64>>,
}

// History of strokes in a loop
impl<'a> StrokeHistory<'a> {
    fn new(control: &'a ControlLoop) -> Self {
        Self { control, rows: Vec::new() }
    }

    // Follow one command of the loop
    /// Appends the strokes for the command after an exposure. Before the first command, a loop at rest had zero strokes, any other loop this command.
    fn follow(&mut self, command: &Array1<f64>, at_rest: bool) {
        let ControlLoop { kind, gain, delay, .. } = *self.control;
        if kind == LoopKind::Open {
            self.rows = vec![command.clone()];
            return;
        }
        let (whole, rest) = (delay.floor() as usize, delay.fract());
        if self.rows.is_empty() {
            let before = if at_rest { Array1::zeros(command.len()) } else { command.clone() };
            self.rows = vec![before; whole + 1];
        }
        let ago = |frames: usize| &self.rows[self.rows.len() - frames];
        let delayed = ago(whole) * (1.0 - rest) + ago(whole + 1) * rest;
        let next = ago(1) + &((command - &delayed) * gain);
        self.rows.push(next);
    }

    /// The newest strokes, which are held last.
    fn held(&self) -> &Array1<f64> {
        &self.rows[self.rows.len() - 1]
    }
}

// Measure the residual of a loop
/// Times, in units of a frame, at which exposures and holds are sampled: the nodes of Gauss's rule.
const NODES: [f64; 2] = [0.211_324_865_405_187_1, 0.788_675_134_594_812_9];

// Turbulence at one time
/// Slopes, rad, and the wavefronts of the targets at the lit points, m, at one time of a turbulence realisation.
struct TurbulenceFrame {
    slopes: Array1<f64>,
    fronts: Vec<Array1<f64>>,
}

fn added(sum: Option<Array1<f64>>, next: Array1<f64>) -> Option<Array1<f64>> {
    Some(sum.map_or_else(|| next.clone(), |sum| sum + &next))
}

// Residual of one simulated loop
/// Residual wavefront of a loop in one turbulence realisation, averaged over a hold.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LoopFrame {
    /// Mean products over the pupil, without pistons, of the parts of Eq. [parts of what is left](https://lenslet.github.io/lenslet/loop-monte-carlo.html#eq-parts-of-what-is-left) in the order of [`PARTS`](Self::PARTS),
    /// with the best strokes by a truth sensor \[m²\].
    pub by_slopes: [[f64; 3]; 3],
    /// Mean products with the best strokes by a direct fit to the wavefront at every point of the pupil \[m²\].
    pub by_eye: [[f64; 3]; 3],
    /// Structure function of the residual wavefront \[m²\], on the displacements of the telescope.
    pub structure: Array2<f64>,
    /// Optical transfer function at each wavelength, without its odd part.
    pub transfers: Vec<OpticalTransfer>,
}

impl LoopFrame {
    /// Names of the parts.
    pub const PARTS: [&'static str; 3] = ["tomography", "fitting", "bandwidth"];

    /// Variance of the residual wavefront \[m²\]: the sum of all products.
    pub fn variance(&self) -> f64 {
        self.by_eye.iter().flatten().sum()
    }
}

impl LoopSimulation {
    // Average the residual over a hold
    /// Averages over the hold that starts at `start`, in frames, with the strokes `held` by the loop, followed by the best strokes.
    fn measure_residuals(
        &self,
        turbulence: &EvolvingTurbulence,
        start: f64,
        held: &[&Array1<f64>],
    ) -> Result<Vec<LoopFrame>, Error> {
        let half = (self.plane.points() / 2 + 1, self.plane.points());
        let spectra = vec![Array2::<f64>::zeros(half); 1 + self.wavelengths.len()];
        let mut sums = vec![([[[0.0; 3]; 3]; 2], spectra); self.targets];
        let (own, best) = held.split_at(self.commands.len());
        for frame in NODES.map(|node| self.at(turbulence, start + node)) {
            for (t, (products, spectra)) in sums.iter_mut().enumerate() {
                let front = &frame.fronts[t];
                let made = self.shapes[t].dot(own[t.min(own.len() - 1)]);
                // Split the residual by both fits
                for (k, at_once) in self.best(&frame, t).iter().enumerate() {
                    let [at_once, in_time] =
                        [at_once, best[2 * t + k]].map(|v| self.pupil_shapes.dot(v));
                    let parts = [&in_time - &made, front - &at_once, at_once - &in_time];
                    self.add_products(&parts, &mut products[k]);
                }
                let left = front - &made;
                spectra[0] += &self.pairs(&left);
                for (sum, wavelength) in spectra[1..].iter_mut().zip(&self.wavelengths) {
                    *sum += &self.power(&left, *wavelength);
                }
            }
        }
        sums.iter().map(|(products, spectra)| self.average_frame(*products, spectra)).collect()
    }

    // Mean products of the parts
    /// Adds the mean products of three parts over the pupil, without pistons, by their share in the average over the hold.
    fn add_products(&self, parts: &[Array1<f64>; 3], sums: &mut [[f64; 3]; 3]) {
        let whole = self.light.sum();
        let mean = |part: &Array1<f64>| self.light.dot(part) / whole;
        let share = 1.0 / NODES.len() as f64;
        for (row, one) in sums.iter_mut().zip(parts) {
            for (sum, other) in row.iter_mut().zip(parts) {
                let product = self.light.dot(&(one * other)) / whole;
                *sum += share * (product - mean(one) * mean(other));
            }
        }
    }

    // Structure function of a wavefront
    /// The spectrum of the sum over pairs of points of their squared differences, of a wavefront at the lit points, m².
    fn pairs(&self, wavefront: &Array1<f64>) -> Array2<f64> {
        let flat = wavefront - self.light.dot(wavefront) / self.light.sum();
        let once = self.on_plane(&(&flat * &self.light));
        let twice = self.on_plane(&(&flat * &flat * &self.light));
        let mut sum = Array2::zeros(once.dim());
        Zip::from(&mut sum).and(&once).and(&twice).and(&self.spectrum).for_each(
            |sum, once, twice, light| *sum = 2.0 * ((light.conj() * twice).re - once.norm_sqr()),
        );
        sum
    }

    /// The transform of values at the lit points.
    fn on_plane(&self, values: &Array1<f64>) -> Array2<Complex64> {
        let mut map = Array2::zeros(self.aperture.light().dim());
        for (place, value) in self.lit.iter().zip(values) {
            map[*place] = *value;
        }
        self.plane.spectrum(&map.view())
    }

    // Transfer function of a wavefront
    /// The spectrum of the autocorrelation of the field at a wavelength, its even part.
    fn power(&self, wavefront: &Array1<f64>, wavelength: f64) -> Array2<f64> {
        let phase = wavefront * (2.0 * PI / wavelength);
        let [even, odd] = [f64::cos as fn(f64) -> f64, f64::sin]
            .map(|wave| self.on_plane(&(phase.mapv(wave) * &self.light)));
        Zip::from(&even).and(&odd).map_collect(|even, odd| even.norm_sqr() + odd.norm_sqr())
    }

    // Average the sums of a realisation
    /// Averages of the sums over all times of a realisation.
    fn average_frame(
        &self,
        products: [[[f64; 3]; 3]; 2],
        spectra: &[Array2<f64>],
    ) -> Result<LoopFrame, Error> {
        let (points, squares) = (self.telescope.points(), self.light.sum());
        let share = 1.0 / (NODES.len() as f64 * squares);
        let correlate =
            |sum: &Array2<f64>| self.plane.correlation(sum, self.telescope.reach, points) * share;
        let mut structure = correlate(&spectra[0]);
        Zip::from(&mut structure).and(self.telescope.values()).for_each(|value, &overlap| {
            *value = if overlap > 1e-9 { (*value / overlap).max(0.0) } else { 0.0 };
        });
        structure[[points / 2, points / 2]] = 0.0;
        let transfer = |(sum, wavelength): (&Array2<f64>, &f64)| {
            let mut values = correlate(sum);
            values[[points / 2, points / 2]] = 1.0;
            self.telescope.with_values(values, *wavelength)
        };
        let transfers = spectra[1..].iter().zip(&self.wavelengths).map(transfer);
        let transfers = transfers.collect::<Result<_, Invalid>>()?;
        Ok(LoopFrame { by_slopes: products[0], by_eye: products[1], structure, transfers })
    }
}

// Check a budget by simulation
// Simulated errors with their uncertainties
/// Residual wavefront error and Strehl ratios of a target in simulated loops: means over realisations, with their standard errors.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Simulated {
    /// Rms of the residual wavefront \[m\].
    pub error: [f64; 2],
    /// Strehl ratio at each wavelength.
    pub strehl: Vec<[f64; 2]>,
}

// Residuals of loops as a data set
impl Simulated {
    /// The residuals of `all` targets as a data set: `error` (target, part) and `strehl` (target, wavelength, part), of which part 0 is the mean
    /// and part 1 its standard error.
    pub fn to_data_set(all: &[Self]) -> DataSet<'static> {
        let waves = all.first().map_or(0, |one| one.strehl.len());
        let errors = Array2::from_shape_fn((all.len(), 2), |(t, part)| all[t].error[part]);
        let strehl = |(t, w, part): (usize, usize, usize)| all[t].strehl[w][part];
        let mut data = DataSet::default();
        data.add("error", errors).unit("m").dimensions("target, mean and standard error");
        let strehl = data.add("strehl", Array3::from_shape_fn((all.len(), waves, 2), strehl));
        strehl.dimensions("target, wavelength, mean and standard error");
        data
    }
}

impl LoopSimulation {
    /// The errors and Strehl ratios of all targets over some realisations, those of the seeds from 1 on. `watch` counts realisations.
    fn average(&self, realisations: usize, watch: &dyn Watch) -> Result<Vec<Simulated>, Error> {
        let of_seed = |_: &(), seed: usize| {
            let frames = self.realisation(seed as u64)?;
            Ok(frames.iter().map(|frame| self.numbers(frame)).collect::<Vec<Vec<f64>>>())
        };
        let all = gather(Workers::cores(&()), 1..realisations + 1, watch, of_seed)?;
        let given = self.telescope.variance(&self.given)?;
        let of_target = |t: usize| {
            // Average the realisations of a target
            let count = realisations as f64;
            let mean = |k: usize| {
                let mean = all.iter().map(|values| values[t][k]).sum::<f64>() / count;
                let squares = all.iter().map(|values| (values[t][k] - mean).powi(2)).sum::<f64>();
                [mean, (squares / (count * (count - 1.0))).sqrt()]
            };
            let [variance, uncertainty] = mean(0);
            let error = (variance + given).max(0.0).sqrt();
            Simulated {
                error: [error, 0.5 * uncertainty / error.max(f64::MIN_POSITIVE)],
                strehl: (1..=self.wavelengths.len()).map(mean).collect(),
            }
        };
        Ok((0..self.targets).map(of_target).collect())
    }

    // Error and Strehl ratios of a residual
    /// The variance of a residual \[m²\], and the Strehl ratio at each wavelength.
    fn numbers(&self, frame: &LoopFrame) -> Vec<f64> {
        let strehl = |transfer: &OpticalTransfer| {
            let scale = -0.5 * (2.0 * PI / transfer.wavelength).powi(2);
            let pairs = transfer.values.iter().zip(&self.given);
            pairs.map(|(value, given)| value * (scale * given).exp()).sum::<f64>()
                / transfer.perfect
        };
        std::iter::once(frame.variance()).chain(frame.transfers.iter().map(strehl)).collect()
    }
}

// Tests of simulated loops
#[cfg(test)]
mod tests {
    use super::*;
    use crate::correction::{CorrectionMode, CorrectionOptions};
    use crate::model::mirror::{MirrorDesign, Spacing};
    use crate::model::removed_modes::TipTilt;
    use crate::model::{Atmosphere, Layer, LensletArray, Noise, Pupil, Sensor};
    use crate::psf::{CameraOptions, ErrorTerm, PsfPlan};
    use crate::tomography::reconstructor::ReconstructorOptions;
    use rayon::prelude::*;

    // Set up lopsided simulated loops
    /// Three stars of unlike noise around two targets, the second turned and the third coarser; two layers and a wind in each.
    fn lopsided() -> System {
        let layer = |altitude, fraction, speed, direction| Layer {
            wind_speed: speed,
            wind_direction: direction,
            ..Layer::new(altitude, fraction, 20.0)
        };
        let layers = vec![layer(0.0, 0.6, 9.0, 0.4), layer(7e3, 0.4, 22.0, 1.3)];
        let fine = LensletArray::new(6, 0.5).unwrap();
        let star = |zenith, azimuth, height, array, noise| {
            GuideStar::at_rest(Source::new(zenith, azimuth, height).unwrap(), array, noise).unwrap()
        };
        let mut turned = star(1.5e-4, 2.0, f64::INFINITY, fine, 6e-14);
        turned.sensor = Sensor { rotation: 0.2, shift: [0.05, 0.0], ..turned.sensor };
        let infinity = f64::INFINITY;
        let coarse = LensletArray::new(4, 0.75).unwrap();
        System::builder(Atmosphere::new(0.16, 500e-9, layers).unwrap(), fine)
            .pupil(Some(Pupil::new(3.0, 0.2).unwrap()))
            .guide_stars([
                star(5e-5, 0.0, 90e3, fine, 3e-14),
                turned,
                star(1.2e-4, 4.1, infinity, coarse, 2e-14),
            ])
            .targets([Source::star(0.0, 0.0).unwrap(), Source::star(1e-4, 3.3).unwrap()])
            .truth_sensor(Some(fine))
            .build()
            .unwrap()
    }

    fn options(mode: CorrectionMode, control: ControlLoop) -> PsfOptions {
        let mirrors =
            vec![MirrorDesign { filter: 0.05, ..MirrorDesign::new(Spacing::Actuators(7)) }];
        let terms = [ErrorTerm::Tomography, ErrorTerm::Fitting, ErrorTerm::ServoLag];
        let image = CameraOptions::default().pixels(32).terms(terms);
        let correction = CorrectionOptions::new(mode, mirrors);
        let reconstructor = ReconstructorOptions::default();
        PsfOptions::new(reconstructor, correction, image).control(control)
    }

    // Means over turbulence realisations
    /// The first realisations of a simulation.
    fn run(simulation: &LoopSimulation, count: u64) -> Vec<Vec<LoopFrame>> {
        (1..=count).into_par_iter().map(|seed| simulation.realisation(seed).unwrap()).collect()
    }

    /// The mean over realisations, and its standard error.
    fn mean<T>(realisations: &[T], value: impl Fn(&T) -> f64) -> [f64; 2] {
        let values: Vec<f64> = realisations.iter().map(value).collect();
        let count = realisations.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let square = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        [mean, square.sqrt() / count]
    }

    // Settle a loop by hand
    #[test]
    fn a_loop_settles_as_computed_by_hand() {
        let control = ControlLoop { kind: LoopKind::Closed, rate: 500.0, gain: 0.5, delay: 2.0 };
        let (mut strokes, mut found) = (StrokeHistory::new(&control), Vec::new());
        for k in 0..13 {
            strokes.follow(&Array1::from_elem(1, if k == 0 { 1.0 } else { 0.0 }), k == 0);
            found.push(128.0 * strokes.held()[0]);
        }
        let by_hand = [64, 64, 32, 0, -16, -16, -8, 0, 4, 4, 2, 0, -1].map(f64::from);
        assert_eq!(found, by_hand);
        assert_eq!(control.settling(), 11);
        assert!((control.lasting() - 26e-3).abs() < 1e-12);
    }

    // Compare a simulated open loop with a budget
    #[test]
    fn a_simulated_open_loop_has_the_computed_residual() {
        let control = ControlLoop { kind: LoopKind::Open, rate: 150.0, gain: 0.5, delay: 2.0 };
        let (system, options) = (lopsided(), options(CorrectionMode::Moao, control));
        let plan = PsfPlan::new(&system, options.clone()).unwrap();
        let foretold = plan.run(&Engine::default(), &unwatched).unwrap();
        let simulation = LoopSimulation::new(&system, &options, 3).unwrap();
        let realisations = run(&simulation, 64);
        for (t, expected) in foretold.targets.iter().enumerate() {
            let terms = expected.budget.terms();
            let of =
                |value: &dyn Fn(&LoopFrame) -> f64| mean(&realisations, |frames| value(&frames[t]));
            // The tomographic error is that of a truth sensor, noise included.
            let [tomography, error] = of(&|frame| frame.by_slopes[0][0]);
            let gap = tomography - terms[0].variance;
            assert!(gap.abs() < 4.0 * error && error < 0.05 * tomography, "{t}: {gap:e} {error:e}");
            // Compare fitting and bandwidth with simulated loops
            let [fitting, error] = of(&|frame| frame.by_eye[1][1]);
            let share = fitting / terms[1].variance;
            assert!((0.8..1.0).contains(&share) && error < 0.02 * fitting, "{t}: fitting {share}");
            let [bandwidth, error] = of(&|frame| frame.by_eye[2][2]);
            let share = bandwidth / terms[2].variance;
            assert!(
                (0.95..1.2).contains(&share) && error < 0.05 * bandwidth,
                "{t}: bandwidth {share}"
            );
            // The residual of a direct fit contains nothing that the mirror could correct.
            assert!(
                realisations.iter().all(|frames| frames[t].by_eye[1][0].abs() < 1e-6 * fitting)
            );
            assert!(
                realisations.iter().all(|frames| frames[t].by_eye[1][2].abs() < 1e-6 * fitting)
            );
            // Turbulence that is not estimated cannot be late.
            let [both, error] = of(&|frame| frame.by_eye[0][2]);
            assert!(both < -4.0 * error && both > -0.2 * bandwidth, "{t}: {both:e} ± {error:e}");
            // Compare the image with simulated loops
            let [whole, error] = of(&LoopFrame::variance);
            let share = expected.budget.total().powi(2) / whole;
            assert!((0.95..1.2).contains(&share) && error < 0.05 * whole, "{t}: whole {share}");
            let telescope = simulation.telescope();
            let by_pairs = of(&|frames| telescope.variance(&frames.structure).unwrap())[0];
            assert!((by_pairs / whole - 1.0).abs() < 1e-9, "{t}");
            let other: f64 = realisations[0][t].by_slopes.iter().flatten().sum();
            assert!((other / realisations[0][t].variance() - 1.0).abs() < 1e-9, "{t}");
            // The mean image is that of the mean structure function, and a little better.
            let sum = realisations
                .iter()
                .fold(Array2::zeros((36, 36)), |sum, frames| sum + &frames[t].structure);
            let mean_structure = sum / realisations.len() as f64;
            let gauss = telescope.through(&mean_structure, &[1.65e-6]).unwrap().remove(0).strehl();
            let [strehl, error] = of(&|frame| frame.transfers[0].strehl());
            assert!(
                strehl > gauss - error && strehl < 1.05 * gauss,
                "{t}: {strehl} ± {error}, {gauss}"
            );
            let foretold = expected.exposures[0].image.strehl;
            let ratio = foretold / strehl;
            assert!(
                (0.88..1.05).contains(&ratio) && error < 0.03 * strehl,
                "{t}: {strehl} {foretold}"
            );
        }
    }

    // Noise gain of a simulated closed loop
    #[test]
    fn a_simulated_closed_loop_has_the_noise_gain() {
        let control = ControlLoop { kind: LoopKind::Closed, rate: 600.0, gain: 0.3, delay: 1.5 };
        let mut star = lopsided().guide_stars()[0].clone();
        star.noise = Noise::uniform(6e-13).unwrap();
        star.sensor.source = Source::star(5e-5, 0.0).unwrap();
        let builder = lopsided().to_builder().targets([star.sensor.source]);
        let system = builder.guide_stars([star]).build().unwrap();
        let closed = options(CorrectionMode::Scao, control);
        let simulation = LoopSimulation::new(&system, &closed, 2).unwrap();
        let [tomography, error] = mean(&run(&simulation, 48), |frames| frames[0].by_slopes[0][0]);
        let foretold = |options: &PsfOptions| {
            let plan = PsfPlan::new(&system, options.clone()).unwrap();
            let found = plan.run(&Engine::default(), &unwatched).unwrap();
            found.targets[0].budget.terms()[0].variance
        };
        let open = PsfOptions { control: None, ..closed.clone() };
        // Two ways to strokes: with a mirror for each target, and with one for a guide star.
        let correction = closed.correction.clone().mode(CorrectionMode::Moao);
        let own = closed.clone().correction(correction);
        assert!((foretold(&own) / foretold(&closed) - 1.0).abs() < 1e-6);
        let gap = tomography - foretold(&closed);
        assert!(gap.abs() < 3.0 * error && error < 0.08 * tomography, "{gap:e} ± {error:e}");
        assert!(foretold(&open) > 2.2 * tomography, "{tomography:e}");
    }

    // Loops without time or sense
    #[test]
    fn loops_without_time_have_no_bandwidth() {
        let still = ControlLoop { kind: LoopKind::Open, rate: 500.0, gain: 0.5, delay: 2.0 };
        let mut at_once = options(CorrectionMode::Glao, still);
        at_once.control = None;
        let simulation = LoopSimulation::new(&lopsided(), &at_once, 2).unwrap();
        for frame in simulation.realisation(3).unwrap() {
            assert!(frame.by_eye[2][2] < 1e-12 * frame.variance(), "{:?}", frame.by_eye);
            assert!(frame.by_eye[0][0] > 0.1 * frame.variance());
        }
        assert!(LoopSimulation::new(&lopsided(), &at_once, 0).is_err());
        let blind = lopsided().to_builder().pupil(None).build().unwrap();
        let refused = LoopSimulation::new(&blind, &at_once, 2).err().map(|error| error.to_string());
        assert!(refused.is_some_and(|refused| refused.starts_with("telescope = none")));
        let wild = ControlLoop { kind: LoopKind::Closed, gain: 1.2, ..still };
        assert!(LoopSimulation::new(&lopsided(), &options(CorrectionMode::Scao, wild), 2).is_err());
    }

    // Compare one covariance with loops
    /// All terms of a correction of the lopsided system, whose winds are turned by an angle \[rad\], with the tilt of its laser star removed.
    fn posed(mode: CorrectionMode, control: ControlLoop, turn: f64) -> (System, PsfOptions) {
        let air = lopsided().atmosphere().clone();
        let turned =
            |layer: &Layer| Layer { wind_direction: layer.wind_direction + turn, ..*layer };
        let layers = air.layers().iter().map(turned).collect();
        let mut stars = lopsided().guide_stars().to_vec();
        stars[0].tip_tilt = TipTilt::Removed;
        let air = Atmosphere::new(air.fried_parameter(), air.wavelength(), layers).unwrap();
        let system = lopsided().to_builder().atmosphere(air).guide_stars(stars).build().unwrap();
        let mut wanted = options(mode, control);
        wanted.image.terms = None;
        if mode == CorrectionMode::Mcao {
            let high = MirrorDesign { altitude: 6e3, ..wanted.correction.mirrors[0].clone() };
            wanted.correction.mirrors.push(high);
        }
        (system, wanted)
    }

    #[test]
    fn one_covariance_agrees_with_loops_in_all_modes() {
        use CorrectionMode::{Glao, Ltao, Mcao, Moao, Scao};
        let open = ControlLoop { kind: LoopKind::Open, rate: 150.0, gain: 0.5, delay: 2.0 };
        let closed = ControlLoop { kind: LoopKind::Closed, rate: 400.0, gain: 0.4, delay: 1.6 };
        let mut by_wind = Vec::new();
        for (mode, control, turn) in [
            (Moao, open, 0.0),
            (Mcao, open, 1.0),
            (Ltao, closed, 0.0),
            (Glao, closed, 2.0),
            (Scao, closed, 0.3),
            (Scao, closed, 0.3 + PI),
        ] {
            let (system, wanted) = posed(mode, control, turn);
            let plan = PsfPlan::new(&system, wanted.clone()).unwrap();
            assert_eq!(plan.independent(), None);
            let found = plan.run(&Engine::default(), &unwatched).unwrap();
            let loops = LoopSimulationOptions::default().realisations(64);
            let loops = LoopSimulationPlan::new(&system, &wanted, loops).unwrap();
            let simulated = loops.run(&Engine::default(), &unwatched).unwrap();
            for (t, (target, simulated)) in found.targets.iter().zip(&simulated).enumerate() {
                let ([mean, error], computed) = (simulated.error, target.budget.total());
                let ([strehl, scatter], image) =
                    (simulated.strehl[0], target.exposures[0].image.strehl);
                let case = format!(
                    "{mode:?} {turn} {t}: {mean:e} ± {error:e}, {computed:e}; {strehl} ± {scatter}, {image}"
                );
                assert!((mean - computed).abs() < 3.5 * error && error < 0.03 * mean, "{case}");
                assert!((strehl - image).abs() < 3.5 * scatter + 2e-3, "{case}");
                let terms: f64 = target.budget.terms().iter().map(|term| term.variance).sum();
                assert!((terms / computed.powi(2) - 1.0).abs() < 1e-12, "{case}");
            }
            by_wind.push(found.targets[1].budget.total());
        }
        // The wind makes a difference that a sum of independent terms does not know.
        let [one, other] = [by_wind[4], by_wind[5]];
        assert!((one / other - 1.0).abs() > 0.01, "{one:e} {other:e}");
    }
}
