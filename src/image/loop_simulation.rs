// Tangled from book/src/loop-monte-carlo.md: edit there, or here and run cargo tangle stitch.
//! A loop that runs in simulated worlds: screens, sensors, reconstructor, mirrors, and the images of what they leave.

// What a loop in worlds stands on
use crate::correction::{Correction, Mirror};
use crate::device::{Engine, silent};
use crate::error::{Error, Invalid, accept};
use crate::image::optical_transfer::{Aperture, Edges, OpticalTransfer, TelescopeTransfer};
use crate::image::plan::ImagingOptions;
use crate::image::transforms::Plane;
use crate::model::control::{ControlLoop, LoopKind};
use crate::model::noise::GuideStar;
use crate::model::source::Source;
use crate::model::system::System;
use crate::model::wavefront_grid::PhaseGrid;
use crate::tomography::reconstructor::ReconstructorPlan;
use crate::tomography::simulation::{Simulation, SimulationOptions, World};
use ndarray::{Array1, Array2, ArrayView1, Zip, s};
use num_complex::Complex64;
use std::f64::consts::PI;

// Loop in simulated worlds
/// A loop that runs in simulated worlds.
pub struct LoopSimulation {
    simulation: Simulation,
    control: ControlLoop,
    /// K, (a, n): one for all targets, or one for each.
    commands: Vec<Array2<f64>>,
    /// J⁺ of a mirror in the pupil, (a, m).
    known: Array2<f64>,
    /// Wavefronts of the strokes of all mirrors at the lit points of the pupil, towards each target, (points, a).
    shapes: Vec<Array2<f64>>,
    /// The same of a mirror in the pupil.
    pupil_shapes: Array2<f64>,
    lit: Vec<[usize; 2]>,
    aperture: Aperture,
    telescope: TelescopeTransfer,
    plane: Plane,
    /// The light of the pupil on the plane.
    light: Array2<Complex64>,
    wavelengths: Vec<f64>,
    targets: usize,
}

// Prepare a loop for its worlds
impl LoopSimulation {
    /// The loop of a system with the mirrors, the delay and the wavelengths of `options`, with so many squares of the pupil's grid to each
    /// lenslet. Other options of an image are not used, nor is a field.
    ///
    /// # Errors
    /// As for the [plan of images](crate::image::ImagingPlan::new) and for [`Simulation::with_options`].
    pub fn new(
        system: &System,
        options: &ImagingOptions,
        per_lenslet: usize,
    ) -> Result<Self, Error> {
        options.image.check()?;
        options.control.as_ref().map_or(Ok(()), ControlLoop::check)?;
        let correction = Correction::new(system, &options.correction)?;
        let reconstructor = options.reconstructor.errors_only(false).keep(true);
        let plan = ReconstructorPlan::new(correction.system(), reconstructor)?;
        let found = plan.run(&Engine::default(), &silent)?;
        let commands = correction.of(&found)?.commands;
        let (control, targets) = (options.control.unwrap_or(AT_ONCE), system.targets().len());
        // Lay a grid over the pupil
        let expected = "a [telescope], whose images are wanted";
        let pupil = system.pupil().ok_or_else(|| Invalid::new("telescope", "none", expected))?;
        accept(per_lenslet > 0, "per_lenslet", per_lenslet, "at least one square to a lenslet")?;
        let step = system.wavefront_pitch() / per_lenslet as f64;
        let samples = (pupil.diameter() / step * (1.0 - 1e-9)).ceil() as usize;
        let aperture = Aperture::new(pupil, &[], samples, step, Edges::Area)?;
        let (telescope, plane) = (aperture.transfer(2 * samples)?, Plane::around(2 * samples - 1));
        let light = plane.spectrum(&aperture.light().view());
        let squares = aperture.light().indexed_iter().filter(|(_, light)| **light > 0.0);
        let lit: Vec<[usize; 2]> = squares.map(|((j, i), _)| [j, i]).collect();
        // Simulate with truth sensors
        let truth = |target: &Source| GuideStar::at_rest(*target, *system.truth_sensor(), 0.0);
        let truths = system.targets().iter().map(truth).collect::<Result<Vec<_>, Invalid>>()?;
        let stars = system.guide_stars().iter().cloned().chain(truths);
        let grid = PhaseGrid::new(samples, per_lenslet, 0.0)?;
        let seen = system.to_builder().guide_stars(stars).phase(Some(grid)).build()?;
        let lasting = SimulationOptions::default().lasting(control.lasting());
        let simulation = Simulation::with_options(&seen, lasting)?;
        // Wavefronts of all actuators
        let middle = 0.5 * (samples as f64 - 1.0);
        let towards = |mirrors: &[Mirror], target: &Source| {
            let count = mirrors.iter().map(|mirror| mirror.positions().len()).sum();
            let mut shapes = Array2::zeros((lit.len(), count));
            for (mut row, [j, i]) in shapes.outer_iter_mut().zip(&lit) {
                let point = [i, j].map(|k| (*k as f64 - middle) * step);
                let actuators = mirrors.iter().flat_map(|mirror| {
                    let [x, y] = target.project(point, mirror.altitude());
                    let places = mirror.positions().iter().enumerate();
                    places
                        .map(move |(k, place)| mirror.influence_of(k, [x - place[0], y - place[1]]))
                });
                row.iter_mut().zip(actuators).for_each(|(to, height)| *to = height);
            }
            shapes
        };
        let shapes =
            system.targets().iter().map(|target| towards(correction.mirrors(), target)).collect();
        let mirror = std::slice::from_ref(correction.pupil_mirror());
        let pupil_shapes = towards(mirror, &system.targets()[0]);
        Ok(Self {
            simulation,
            control,
            commands,
            known: correction.pupil().inverse().clone(),
            shapes,
            pupil_shapes,
            lit,
            aperture,
            telescope,
            plane,
            light,
            wavelengths: options.image.wavelengths.clone(),
            targets,
        })
    }

    /// The pupil on its grid.
    pub fn aperture(&self) -> &Aperture {
        &self.aperture
    }

    /// The transfer function of the telescope on that grid.
    pub fn telescope(&self) -> &TelescopeTransfer {
        &self.telescope
    }
}

// Run the loop in a world
impl LoopSimulation {
    /// What is left towards each target in the world of a seed.
    ///
    /// # Errors
    /// `Invalid` where a wavefront is not finite.
    pub fn world(&self, seed: u64) -> Result<Vec<WorldSeen>, Error> {
        let mut world = self.simulation.world(seed);
        let (frames, sets) = (self.control.settling(), self.commands.len());
        let mut loops: Vec<Strokes> =
            (0..sets + self.targets).map(|_| Strokes::new(&self.control)).collect();
        for k in 0..frames {
            let slopes = self.exposure(&mut world, k as f64);
            for (c, strokes) in loops.iter_mut().enumerate() {
                let wanted = match c.checked_sub(sets) {
                    None => self.commands[c].dot(&slopes.slice(s![..self.commands[c].ncols()])),
                    Some(t) => self.known.dot(&self.truth(&slopes, t)),
                };
                strokes.follow(&wanted, false);
            }
        }
        let held: Vec<&Array1<f64>> = loops.iter().map(Strokes::held).collect();
        self.look(&world, (frames - 1) as f64 + self.control.delay, &held)
    }

    // Average slopes over an exposure
    /// The slopes of an exposure that starts at a frame, with their noise, rad.
    fn exposure(&self, world: &mut World, start: f64) -> Array1<f64> {
        let mut sum = Array1::from(world.noise());
        for node in NODES {
            let slopes = world.slopes((start + node) / self.control.rate);
            sum.scaled_add(1.0 / NODES.len() as f64, &Array1::from(slopes));
        }
        sum
    }

    /// Those of them that the truth sensor of a target sees.
    fn truth<'a>(&self, slopes: &'a Array1<f64>, t: usize) -> ArrayView1<'a, f64> {
        let m = self.known.ncols();
        let first = slopes.len() - (self.targets - t) * m;
        slopes.slice(s![first..first + m])
    }
}

// Strokes of a loop in time
impl ControlLoop {
    /// Exposures after which a closed loop has forgotten how it began, to a hundredth.
    fn settling(&self) -> usize {
        if self.kind == LoopKind::Open {
            return 1;
        }
        let (mut pushed, mut last) = (Strokes::new(self), 0);
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

/// What is done where there is no loop: an exposure takes no time, and nothing is late.
const AT_ONCE: ControlLoop =
    ControlLoop { kind: LoopKind::Open, rate: f64::INFINITY, gain: 1.0, delay: 0.0 };

/// No loop is given more frames to settle.
const MOST_FRAMES: usize = 400;

/// The strokes of a loop, the newest last.
struct Strokes<'a> {
    control: &'a ControlLoop,
    rows: Vec<Array1<f64>>,
}

// Follow what is wanted of strokes
impl<'a> Strokes<'a> {
    fn new(control: &'a ControlLoop) -> Self {
        Self { control, rows: Vec::new() }
    }

    /// Takes what is wanted after an exposure. A loop that is at rest had nothing before, another one the same.
    fn follow(&mut self, wanted: &Array1<f64>, at_rest: bool) {
        let ControlLoop { kind, gain, delay, .. } = *self.control;
        if kind == LoopKind::Open {
            self.rows = vec![wanted.clone()];
            return;
        }
        let (whole, rest) = (delay.floor() as usize, delay.fract());
        if self.rows.is_empty() {
            let before = if at_rest { Array1::zeros(wanted.len()) } else { wanted.clone() };
            self.rows = vec![before; whole + 1];
        }
        let ago = |frames: usize| &self.rows[self.rows.len() - frames];
        let seen = ago(whole) * (1.0 - rest) + ago(whole + 1) * rest;
        let next = ago(1) + &((wanted - &seen) * gain);
        self.rows.push(next);
    }

    /// The strokes that are held in the end.
    fn held(&self) -> &Array1<f64> {
        &self.rows[self.rows.len() - 1]
    }
}

// See what the loop leaves
/// Times in units of a frame at which exposures and holds are looked at: the nodes of Gauss's rule.
const NODES: [f64; 2] = [0.211_324_865_405_187_1, 0.788_675_134_594_812_9];

/// What a loop left of a wavefront in one world, on average over a hold.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WorldSeen {
    /// Structure functions \[m²\] of the parts in the order of [`PARTS`](Self::PARTS), and of their sum, on the displacements of the telescope.
    pub structures: [Array2<f64>; 4],
    /// What passes at each wavelength; its odd part is left out.
    pub transfers: Vec<OpticalTransfer>,
}

impl WorldSeen {
    /// What the parts are due to, and all of them.
    pub const PARTS: [&'static str; 4] = ["tomography", "fitting", "bandwidth", "whole"];
}

impl LoopSimulation {
    // Look at the hold of strokes
    /// Looks at a hold from a frame on, with the strokes of the sensors and behind them those that the truth would have.
    fn look(
        &self,
        world: &World,
        start: f64,
        held: &[&Array1<f64>],
    ) -> Result<Vec<WorldSeen>, Error> {
        let (sets, half) =
            (self.commands.len(), (self.plane.points() / 2 + 1, self.plane.points()));
        let mut sums =
            vec![vec![Array2::<f64>::zeros(half); 4 + self.wavelengths.len()]; self.targets];
        for node in NODES {
            let time = (start + node) / self.control.rate;
            let (fronts, slopes) = (world.wavefronts(time), Array1::from(world.slopes(time)));
            for (t, (sums, front)) in sums.iter_mut().zip(fronts.outer_iter()).enumerate() {
                let front: Array1<f64> = self.lit.iter().map(|place| front[*place]).collect();
                let at_once = self.pupil_shapes.dot(&self.known.dot(&self.truth(&slopes, t)));
                let in_time = self.pupil_shapes.dot(held[sets + t]);
                let made = self.shapes[t].dot(held[t.min(sets - 1)]);
                let parts =
                    [&in_time - &made, &front - &at_once, &at_once - &in_time, &front - &made];
                for (sum, part) in sums.iter_mut().zip(&parts) {
                    *sum += &self.pairs(part);
                }
                for (sum, wavelength) in sums[4..].iter_mut().zip(&self.wavelengths) {
                    *sum += &self.power(&parts[3], *wavelength);
                }
            }
        }
        sums.iter().map(|sums| self.seen(sums)).collect()
    }

    // Structure function of a wavefront
    /// The spectrum of the sum over pairs of points of their squared differences, of a wavefront at the lit points, m².
    fn pairs(&self, wavefront: &Array1<f64>) -> Array2<f64> {
        let light = self.aperture.light();
        let weights = self.lit.iter().map(|place| light[*place]);
        let piston =
            wavefront.iter().zip(weights).map(|(value, weight)| value * weight).sum::<f64>()
                / light.sum();
        let once = self.on_plane(wavefront, |value, light| light * (value - piston));
        let twice = self.on_plane(wavefront, |value, light| light * (value - piston).powi(2));
        let mut sum = Array2::zeros(once.dim());
        Zip::from(&mut sum).and(&once).and(&twice).and(&self.light).for_each(
            |sum, once, twice, light| {
                *sum = 2.0 * ((light.conj() * twice).re - once.norm_sqr());
            },
        );
        sum
    }

    /// The transform of a function of the wavefront and the light at the lit points.
    fn on_plane(
        &self,
        wavefront: &Array1<f64>,
        value: impl Fn(f64, f64) -> f64,
    ) -> Array2<Complex64> {
        let light = self.aperture.light();
        let mut map = Array2::zeros(light.dim());
        for (place, wavefront) in self.lit.iter().zip(wavefront) {
            map[*place] = value(*wavefront, light[*place]);
        }
        self.plane.spectrum(&map.view())
    }

    // Transfer function of a wavefront
    /// The spectrum of the autocorrelation of the field at a wavelength, its even part.
    fn power(&self, wavefront: &Array1<f64>, wavelength: f64) -> Array2<f64> {
        let turn = 2.0 * PI / wavelength;
        let even = self.on_plane(wavefront, |value, light| light * (turn * value).cos());
        let odd = self.on_plane(wavefront, |value, light| light * (turn * value).sin());
        let mut power = Array2::zeros(even.dim());
        Zip::from(&mut power).and(&even).and(&odd).for_each(|power, even, odd| {
            *power = even.norm_sqr() + odd.norm_sqr();
        });
        power
    }

    /// What the sums over all looks of a world come to.
    fn seen(&self, sums: &[Array2<f64>]) -> Result<WorldSeen, Error> {
        let (points, squares) = (self.telescope.points(), self.aperture.light().sum());
        let scale = 1.0 / (NODES.len() as f64 * squares);
        let correlate =
            |sum: &Array2<f64>| self.plane.correlation(sum, self.telescope.reach, points) * scale;
        let structure = |k: usize| {
            let mut pairs = correlate(&sums[k]);
            Zip::from(&mut pairs).and(self.telescope.values()).for_each(|value, &overlap| {
                *value = if overlap > 1e-9 { (*value / overlap).max(0.0) } else { 0.0 };
            });
            pairs[[points / 2, points / 2]] = 0.0;
            pairs
        };
        let transfer = |(sum, wavelength): (&Array2<f64>, &f64)| {
            let mut values = correlate(sum);
            values[[points / 2, points / 2]] = 1.0;
            self.telescope.with_values(values, *wavelength)
        };
        let transfers = sums[4..].iter().zip(&self.wavelengths).map(transfer);
        Ok(WorldSeen {
            structures: [0, 1, 2, 3].map(structure),
            transfers: transfers.collect::<Result<_, _>>()?,
        })
    }
}

// Tests of loops in worlds
#[cfg(test)]
mod tests {
    use super::*;
    use crate::correction::{CorrectionMode, CorrectionOptions};
    use crate::image::{ImageOptions, ImagingPlan};
    use crate::model::mirror::{MirrorDesign, Spacing};
    use crate::model::{Atmosphere, Layer, LensletArray, Pupil, Sensor};
    use crate::tomography::reconstructor::ReconstructorOptions;

    // Pose lopsided loops in worlds
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

    fn options(mode: CorrectionMode, control: ControlLoop) -> ImagingOptions {
        let mirrors =
            vec![MirrorDesign { filter: 0.05, ..MirrorDesign::new(Spacing::Actuators(7)) }];
        let image =
            ImageOptions { wavelengths: vec![1.65e-6], pixels: 32, ..ImageOptions::default() };
        let correction = CorrectionOptions { mode, mirrors, weights: Vec::new() };
        let reconstructor = ReconstructorOptions::default();
        ImagingOptions { reconstructor, correction, control: Some(control), image, field: None }
    }

    // Run an open loop in worlds
    #[test]
    fn an_open_loop_in_worlds_leaves_what_is_foretold() {
        let control = ControlLoop { kind: LoopKind::Open, rate: 150.0, gain: 0.5, delay: 2.0 };
        let (system, options) = (lopsided(), options(CorrectionMode::Moao, control));
        let start = std::time::Instant::now();
        let plan = ImagingPlan::new(&system, options.clone()).unwrap();
        let foretold = plan.run(&Engine::default(), &silent).unwrap();
        println!("{:?}", start.elapsed());
        let simulation = LoopSimulation::new(&system, &options, 4).unwrap();
        println!("{:?}", start.elapsed());
        const WORLDS: u64 = 100;
        let worlds: Vec<Vec<WorldSeen>> =
            (0..WORLDS).map(|seed| simulation.world(seed + 1).unwrap()).collect();
        println!("{:?}", start.elapsed());
        for t in 0..2 {
            let mean = |value: &dyn Fn(&WorldSeen) -> f64| {
                let values: Vec<f64> = worlds.iter().map(|world| value(&world[t])).collect();
                let mean = values.iter().sum::<f64>() / WORLDS as f64;
                let square = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
                [mean, square.sqrt() / WORLDS as f64]
            };
            for (k, name) in WorldSeen::PARTS.iter().enumerate() {
                let [mean, error] = mean(&|seen| {
                    1e18 * simulation.telescope().variance(&seen.structures[k]).unwrap()
                });
                let budget = &foretold.targets[t].budget;
                let told = if k < 3 { budget.terms()[k].rms() } else { budget.total() };
                println!(
                    "{t} {name} {:.1} ± {:.1}: {:.1}",
                    mean.sqrt(),
                    0.5 * error / mean.sqrt(),
                    1e9 * told
                );
            }
            let [strehl, error] = mean(&|seen| seen.transfers[0].strehl());
            println!(
                "{t} {strehl:.4} ± {error:.4}: {:.4}",
                foretold.targets[t].exposures[0].image.strehl
            );
        }
    }
}
