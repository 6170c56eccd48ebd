// Tangled from book/src/simulation.md: edit there, or here and run cargo tangle stitch.
//! Simulated turbulence: what the sensors of a system measure, and the wavefronts of its targets.

// What the simulation stands on
use crate::device::{refuse_beyond_memory, threads};
use crate::error::{Error, Invalid, accept};
use crate::model::atmosphere::Layer;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::system::System;
use crate::turbulence::phase::VonKarman;
use crate::turbulence::plan::wavefront_pitch;
use crate::turbulence::spectral::slope::sinc;
use libm::j1;
use ndarray::{Array1, Array2, Array3, ArrayView1, Axis, Zip, concatenate, s};
use rand::{Rng, SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;
use std::f64::consts::PI;

// Sampling of the spectrum
/// How closely a simulation samples the power spectrum; Eq. [frequency step](https://lenslet.github.io/lenslet/simulation.html#eq-frequency-step).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// P/r: one over the step where slopes get their variance, in units of the widest distance at a layer.
    pub period: f64,
    /// ε: step over frequency where the step grows with the frequency.
    pub growth: f64,
    /// The highest frequency times the side of the smallest footprint.
    pub highest: f64,
}

impl Default for Sampling {
    /// A covariance that is right to 1e-3 of the variance, in most places to 1e-4.
    fn default() -> Self {
        Self { period: 1.5, growth: 0.4, highest: 60.0 }
    }
}
impl Sampling {
    fn check(&self) -> Result<(), Invalid> {
        let good = (1.0..=100.0).contains(&self.period);
        accept(good, "period", self.period, "1 to 100 times the widest distance")?;
        let good = (0.01..=1.0).contains(&self.growth);
        accept(good, "growth", self.growth, "a ratio of step to frequency from 0.01 to 1")?;
        let good = (1.0..=1e4).contains(&self.highest);
        accept(good, "highest", self.highest, "1 to 10000 over the side of a footprint")?;
        Ok(())
    }
}

// Graded frequencies of a layer
/// Positive spatial frequencies along one axis, and the widths of their cells, m⁻¹.
struct Frequencies {
    at: Array1<f64>,
    width: Array1<f64>,
}

/// No simulation has more frequencies than this along an axis.
const MOST: usize = 50_000;

impl Frequencies {
    /// The frequencies for a layer of `outer_scale` that is seen over `reach` by footprints of `side`, all in metres.
    fn new(sampling: &Sampling, outer_scale: f64, reach: f64, side: f64) -> Self {
        // Width of a frequency cell
        let knee = 2.0 / side + 1.0 / outer_scale;
        let step = |f: f64| {
            let low = (0.5 / outer_scale).powi(2) + (sampling.growth * f).powi(2);
            let uniform = (1.0 + (f / knee).powi(4)) / (sampling.period * reach).powi(2);
            (low * uniform / (low + uniform)).sqrt()
        };
        let first = half_cell(&step, 0.0);
        let next = |f: &f64| Some(half_cell(&step, half_cell(&step, *f)));
        let at: Array1<f64> = std::iter::successors(Some(first), next)
            .take_while(|f| *f < sampling.highest / side)
            .take(MOST)
            .collect();
        Self { width: at.mapv(step), at }
    }
}

// Go half a cell up the frequencies
/// The frequency half a cell above `f`, where cells have the width `step`.
fn half_cell(step: &impl Fn(f64) -> f64, f: f64) -> f64 {
    const H: f64 = 0.125;
    (0..4).fold(f, |f, _| {
        let first = step(f);
        let second = step(f + 0.5 * H * first);
        let third = step(f + 0.5 * H * second);
        let fourth = step(f + H * third);
        f + H / 6.0 * (first + 2.0 * (second + third) + fourth)
    })
}

// Waves along one axis
/// cos(2πfx) and sin(2πfx) at the positions x in metres, (positions, 2n), each times the `factor` of its frequency.
fn waves(at: &Array1<f64>, x: &[f64], factor: impl Fn(f64) -> f64) -> Array2<f64> {
    let n = at.len();
    Array2::from_shape_fn((x.len(), 2 * n), |(i, k)| {
        let (sine, cosine) = (2.0 * PI * at[k % n] * x[i]).sin_cos();
        factor(at[k % n]) * if k < n { cosine } else { sine }
    })
}

/// The derivatives of [`waves`] by x, m⁻¹.
fn derivatives(at: &Array1<f64>, x: &[f64], factor: impl Fn(f64) -> f64) -> Array2<f64> {
    let n = at.len();
    let waves = waves(at, x, |f| 2.0 * PI * f * factor(f));
    let (cosines, sines) = (waves.slice(s![.., ..n]), waves.slice(s![.., n..]));
    concatenate![Axis(1), sines.mapv(|sine| -sine), cosines]
}

// Simulated layer of turbulence
/// A layer: the deviations of its coefficients, and all that looks at it.
struct Screen {
    /// Rows are frequencies along y, metres.
    deviations: Array2<f64>,
    /// The same for wavefronts that are averaged over a disc.
    averaged: Option<Array2<f64>>,
    stars: Vec<Footprints>,
    /// Waves of each target along x and y, (M, 2n).
    targets: Vec<[Array2<f64>; 2]>,
}

// Waves that footprints see
/// Waves that the lenslets of a star see along x and y, averaged over their sides: themselves, and their derivatives.
struct Footprints {
    mean: [Array2<f64>; 2],
    slope: [Array2<f64>; 2],
}

impl Screen {
    // Prepare the layer for its system
    fn new(system: &System, sampling: &Sampling, layer: &Layer) -> Self {
        let [reach, side] = extent(system, layer);
        let outer_scale = layer.outer_scale.min(1e10 * reach);
        let frequencies = Frequencies::new(sampling, outer_scale, reach, side);
        let (at, n) = (&frequencies.at, frequencies.at.len());
        // Give each frequency its deviation
        let (air, phase) = (&system.atmosphere, VonKarman::new(outer_scale));
        let strength = layer.fraction * air.fried_parameter().powf(-5.0 / 3.0);
        let metres = air.wavelength() / (2.0 * PI);
        let deviations = Array2::from_shape_fn((n, n), |(j, k)| {
            let cell = 4.0 * frequencies.width[j] * frequencies.width[k];
            metres * (strength * phase.power_spectrum(at[j].powi(2) + at[k].powi(2)) * cell).sqrt()
        });
        let disc = system.phase.map_or(0.0, |grid| grid.disc_radius * layer.altitude);
        let factor = |(j, k): (usize, usize)| {
            let x = 2.0 * PI * disc * at[j].hypot(at[k]);
            2.0 * j1(x) / x
        };
        let averaged = (disc > 0.0).then(|| &deviations * &Array2::from_shape_fn((n, n), factor));
        // Give each footprint its waves
        let stars = system.guide_stars.iter().map(|star| {
            let gamma = star.source.cone_factor(layer.altitude);
            let gradient = system.cone_gradient.factor(gamma);
            let box_mean = |f: f64| sinc(gamma * star.array.pitch() * f);
            let centres = [0, 1].map(|axis| -> Vec<f64> {
                let centre =
                    |i| star.source.project([star.array.centre(i); 2], layer.altitude)[axis];
                (0..star.array.lenslets()).map(centre).collect()
            });
            let mean = [0, 1].map(|axis| waves(at, &centres[axis], box_mean));
            let slope =
                [0, 1].map(|axis| derivatives(at, &centres[axis], |f| gradient * box_mean(f)));
            Footprints { mean, slope }
        });
        // Give each wavefront point its waves
        let targets = system.targets.iter().map(|target| {
            [0, 1].map(|axis| {
                let place = |x: f64| target.project([x; 2], layer.altitude)[axis];
                let points: Vec<f64> = wavefront_points(system).into_iter().map(place).collect();
                waves(at, &points, |_| 1.0)
            })
        });
        Self { deviations, averaged, stars: stars.collect(), targets: targets.collect() }
    }

    // Draw the layer once
    /// Slopes along x and y of all lenslets of each star, rad, and the wavefronts of all targets, m.
    fn draw(&self, seed: u64) -> (Vec<[Array2<f64>; 2]>, Vec<Array2<f64>>) {
        let mut random = StdRng::seed_from_u64(seed);
        let n = self.deviations.nrows();
        let normal: Array2<f64> =
            Array2::from_shape_simple_fn((2 * n, 2 * n), || StandardNormal.sample(&mut random));
        let coefficients = spread(&normal, &self.deviations);
        let slopes = self.stars.iter().map(|star| {
            let [x, y] = [0, 1].map(|axis| {
                let rows = if axis == 0 { &star.mean[1] } else { &star.slope[1] };
                let columns = if axis == 0 { &star.slope[0] } else { &star.mean[0] };
                rows.dot(&coefficients).dot(&columns.t())
            });
            [x, y]
        });
        let averaged = self.averaged.as_ref().map(|deviations| spread(&normal, deviations));
        let coefficients = averaged.as_ref().unwrap_or(&coefficients);
        let wavefronts = self.targets.iter().map(|[x, y]| y.dot(coefficients).dot(&x.t()));
        (slopes.collect(), wavefronts.collect())
    }

    // Covariance that the layer simulates
    /// The covariance of two looks; `None` where there is no such lenslet or point.
    fn covariance(&self, first: Look, second: Look) -> Option<f64> {
        let [first, second] = [self.factors(first)?, self.factors(second)?];
        let n = self.deviations.nrows();
        let [y, x] = [0, 1].map(|way| {
            let product = &first.1[way] * &second.1[way];
            &product.slice(s![..n]) + &product.slice(s![n..])
        });
        let variances = first.0 * second.0;
        Some(y.dot(&variances).dot(&x))
    }

    /// The deviations that a look is subject to, and the waves that it sees along y and x.
    fn factors(&self, look: Look) -> Option<(&Array2<f64>, [ArrayView1<'_, f64>; 2])> {
        // Look up the waves of a look
        let (deviations, [rows, columns], [j, i]) = match look {
            Look::Slope { star, axis, lenslet } => {
                let Footprints { mean, slope } = self.stars.get(star)?;
                let along = if axis == 0 { [&mean[1], &slope[0]] } else { [&slope[1], &mean[0]] };
                (&self.deviations, along, lenslet)
            }
            Look::Wavefront { target, point } => {
                let [x, y] = self.targets.get(target)?;
                (self.averaged.as_ref().unwrap_or(&self.deviations), [y, x], point)
            }
        };
        let exists = j < rows.nrows() && i < columns.nrows();
        exists.then(|| (deviations, [rows.row(j), columns.row(i)]))
    }
}

// Widest distance at a layer
/// Coordinates of the wavefront points in the pupil along an axis, metres; none where no wavefront is wanted.
fn wavefront_points(system: &System) -> Vec<f64> {
    let pitch = wavefront_pitch(system);
    let points = |grid: crate::model::wavefront_grid::PhaseGrid| {
        (0..grid.points).map(|m| grid.coordinate(m, pitch)).collect()
    };
    system.phase.map_or_else(Vec::new, points)
}

/// The widest distance along an axis between points of a layer that are looked at, and the smallest footprint's side, metres.
fn extent(system: &System, layer: &Layer) -> [f64; 2] {
    let stars = system.guide_stars.iter();
    let sides =
        stars.clone().map(|star| star.source.cone_factor(layer.altitude) * star.array.pitch());
    // Collect the edges of all that is seen
    let mut edges: Vec<[f64; 2]> = Vec::new();
    for star in stars {
        let half = 0.5 * star.array.lenslets() as f64 * star.array.pitch();
        edges.extend([-half, half].map(|x| star.source.project([x; 2], layer.altitude)));
    }
    let disc = system.phase.map_or(0.0, |grid| grid.disc_radius * layer.altitude);
    let points = wavefront_points(system);
    for target in system.targets.iter().filter(|_| !points.is_empty()) {
        let ends = [(points[0], -disc), (points[points.len() - 1], disc)];
        let end = |(x, disc): (f64, f64)| target.project([x; 2], layer.altitude).map(|x| x + disc);
        edges.extend(ends.map(end));
    }
    let widest = [0, 1].map(|axis| {
        let along = edges.iter().map(|edge| edge[axis]);
        along.clone().fold(f64::NEG_INFINITY, f64::max) - along.fold(f64::INFINITY, f64::min)
    });
    [widest[0].max(widest[1]), sides.fold(f64::INFINITY, f64::min)]
}
/// Normal numbers (2n, 2n) times the deviations (n, n) of their frequencies.
fn spread(normal: &Array2<f64>, deviations: &Array2<f64>) -> Array2<f64> {
    let mut coefficients = normal.clone();
    let n = deviations.nrows();
    for mut quarter in coefficients.exact_chunks_mut((n, n)) {
        quarter *= deviations;
    }
    coefficients
}

// Simulation of a system
/// One of the numbers that a draw gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The slope along `axis` (0 for x) of lenslet \[row, column\] of a guide star, without noise.
    Slope {
        /// The guide star.
        star: usize,
        /// 0 for x, 1 for y.
        axis: usize,
        /// Row and column of the lenslet.
        lenslet: [usize; 2],
    },
    /// The wavefront of a target at a point \[row, column\].
    Wavefront {
        /// The target.
        target: usize,
        /// Row and column of the point.
        point: [usize; 2],
    },
}
/// Simulated turbulence above a system.
pub struct Simulation {
    screens: Vec<Screen>,
    order: SlopeOrder,
    /// Standard deviation of the noise of each guide star, rad.
    noise: Vec<f64>,
    points: usize,
}

/// One world, measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Draw {
    /// Slopes with their noise in the order of [`SlopeOrder`], rad.
    pub slopes: Vec<f64>,
    /// True wavefronts of the targets, (T, M, M), m; axis 1 is y.
    pub wavefronts: Array3<f64>,
}

impl Simulation {
    // Prepare the simulation of a system
    /// A simulation with the default sampling. Without targets or a grid of points its draws have no wavefronts.
    ///
    /// An infinite outer scale is replaced by 1e10 times the widest distance seen at the layer; the pistons of wavefronts are then
    /// large and have no meaning.
    ///
    /// # Errors
    /// `Invalid` where there is no guide star, or a layer at or above a star or a target; `Memory` where the coefficients do not fit.
    pub fn new(system: &System) -> Result<Self, Error> {
        Self::with_sampling(system, &Sampling::default())
    }

    // Prepare a simulation with its sampling
    /// A simulation with the given sampling of the spectrum; errors as for [`new`](Self::new).
    pub fn with_sampling(system: &System, sampling: &Sampling) -> Result<Self, Error> {
        sampling.check()?;
        let stars = &system.guide_stars;
        accept(!stars.is_empty(), "guide stars", stars.len(), "at least one")?;
        for source in stars.iter().map(|star| &star.source).chain(&system.targets) {
            source.check_above(&system.atmosphere)?;
        }
        let layers = system.atmosphere.layers();
        check_memory(system, sampling)?;
        Ok(Self {
            screens: layers
                .par_iter()
                .with_max_len(1)
                .map(|layer| Screen::new(system, sampling, layer))
                .collect(),
            order: SlopeOrder::new(&system.valid_lenslets()),
            noise: stars.iter().map(|star| star.noise.sqrt()).collect(),
            points: system.phase.map_or(0, |grid| grid.points),
        })
    }

    // Draw one world
    /// The world of a seed: the same for the same seed, whatever the number of threads.
    ///
    /// ```
    /// use lenslet::{tomography::simulation::Simulation, model::system::System};
    /// let system = System::from_file("book/systems/keck-lgs.toml")?;
    /// let world = Simulation::new(&system)?.draw(7);
    /// let valid = system.lenslet_array.valid(system.pupil.as_ref(), system.validity);
    /// assert_eq!(world.slopes.len(), 4 * 2 * valid.iter().filter(|valid| **valid).count());
    /// assert_eq!(world.wavefronts.dim(), (2, 41, 41));
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn draw(&self, seed: u64) -> Draw {
        let mut random = StdRng::seed_from_u64(seed);
        let seeded: Vec<_> =
            self.screens.iter().map(|screen| (screen, random.next_u64())).collect();
        let drawn: Vec<_> =
            seeded.par_iter().with_max_len(1).map(|(screen, seed)| screen.draw(*seed)).collect();
        let targets = self.screens.first().map_or(0, |screen| screen.targets.len());
        let mut slopes = vec![0.0; self.order.len()];
        let mut wavefronts = Array3::zeros((targets, self.points, self.points));
        for (fields, fronts) in &drawn {
            // Add a layer to the world
            for (q, fields) in fields.iter().enumerate() {
                for (axis, field) in fields.iter().enumerate() {
                    for (k, lenslet) in self.order.lenslets(q).iter().enumerate() {
                        slopes[self.order.index(q, axis, k)] += field[*lenslet];
                    }
                }
            }
            Zip::from(wavefronts.outer_iter_mut())
                .and(fronts)
                .for_each(|mut sum, front| sum += front);
        }
        // Add noise to the slopes
        for (q, noise) in self.noise.iter().enumerate() {
            let start = self.order.index(q, 0, 0);
            for slope in &mut slopes[start..start + 2 * self.order.lenslets(q).len()] {
                let normal: f64 = StandardNormal.sample(&mut random);
                *slope += noise * normal;
            }
        }
        Draw { slopes, wavefronts }
    }

    // Covariance that the simulation has
    /// The covariance of two numbers of the draws, turbulence alone: rad², m rad, or m². It is exact, not an average over draws.
    ///
    /// `None` where the system has no such lenslet or point.
    pub fn covariance(&self, first: Look, second: Look) -> Option<f64> {
        self.screens.iter().map(|screen| screen.covariance(first, second)).sum()
    }

    /// Frequencies along an axis, for each layer.
    pub fn frequencies(&self) -> Vec<usize> {
        self.screens.iter().map(|screen| screen.deviations.nrows()).collect()
    }

    /// The order of the slopes.
    pub fn order(&self) -> &SlopeOrder {
        &self.order
    }
}
/// Refuses a simulation that does not fit into the memory.
fn check_memory(system: &System, sampling: &Sampling) -> Result<(), Error> {
    let lenslets = system.guide_stars.iter().map(|star| 4 * star.array.lenslets()).sum::<usize>();
    let rows = (lenslets + 2 * system.targets.len() * wavefront_points(system).len()) as u64;
    let numbers = |layer: &Layer| {
        let [reach, side] = extent(system, layer);
        let outer_scale = layer.outer_scale.min(1e10 * reach);
        let n = Frequencies::new(sampling, outer_scale, reach, side).at.len();
        let wanted = if n < MOST { n as u64 } else { 1 << 28 };
        [2 * wanted * (wanted + rows), 12 * wanted * wanted]
    };
    let layers: Vec<[u64; 2]> = system.atmosphere.layers().iter().map(numbers).collect();
    let kept = layers.iter().map(|[kept, _]| kept).sum::<u64>();
    let drawn =
        layers.iter().map(|[_, drawn]| drawn).max().map_or(0, |most| most * threads() as u64);
    refuse_beyond_memory(8 * (kept + drawn), || "the simulation".into())
}

// Tests of the simulation
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::silent;
    use crate::model::atmosphere::Atmosphere;
    use crate::model::lenslet_array::{GuideStar, LensletArray, Pupil, Validity};
    use crate::model::source::{ConeGradient, Source};
    use crate::model::wavefront_grid::PhaseGrid;
    use crate::turbulence::direct::wavefront::{Exact, wavefront_covariance};
    use crate::turbulence::plan::{
        Method, dense_slopes, dense_wavefront_slope, slope_covariance, slope_problem,
        wavefront_problem,
    };

    // Pose a lopsided system to simulate
    /// Two stars at `height`, two targets, 8 × 8 lenslets, 7 × 7 points, two layers of unequal outer scales.
    fn system(height: f64, outer_scale: f64, disc_radius: f64) -> System {
        let layers =
            vec![Layer::new(9000.0, 0.4, outer_scale), Layer::new(0.0, 0.6, outer_scale / 2.0)];
        let array = LensletArray::new(8, 0.5).unwrap();
        let source = |zenith, azimuth, height| Source::new(zenith, azimuth, height).unwrap();
        let star = |source, noise| GuideStar::new(source, noise, array).unwrap();
        let infinity = f64::INFINITY;
        System {
            atmosphere: Atmosphere::new(0.15, 500e-9, layers).unwrap(),
            cone_gradient: ConeGradient::Pupil,
            pupil: Some(Pupil::new(4.0, 0.2).unwrap()),
            lenslet_array: array,
            validity: Validity::default(),
            guide_stars: vec![
                star(source(1e-4, 0.3, height), 1e-14),
                star(source(5e-5, 4.0, height), 4e-14),
            ],
            targets: vec![source(2e-5, 2.0, infinity), source(1.2e-4, 5.0, infinity)],
            phase: Some(PhaseGrid::new(7, 2, disc_radius).unwrap()),
        }
    }

    // Largest errors of simulated covariances
    /// Largest errors of ⟨ss⟩, ⟨ws⟩ and ⟨ww⟩ for the system, each in units of the largest value.
    fn errors(system: &System) -> [f64; 3] {
        let simulation = Simulation::new(system).unwrap();
        let simulated = |first, second| simulation.covariance(first, second).unwrap();
        let mut pairs: [Vec<[f64; 2]>; 3] = Default::default();
        // Compare slopes with the direct method
        let problem = slope_problem(system).unwrap();
        let exact = slope_covariance(&problem, &Method::Direct, &silent).unwrap();
        let first = |p, axis, lenslet| Look::Slope { star: p, axis, lenslet };
        for ((p, q, a, b, j, i), &exact) in exact.values().indexed_iter() {
            // The lag from the first lenslet to the second is (j − 7, i − 7).
            let place = |lag: usize| (7usize.saturating_sub(lag), lag.saturating_sub(7));
            let ((j, j2), (i, i2)) = (place(j), place(i));
            pairs[0].push([exact, simulated(first(p, a, [j, i]), first(q, b, [j2, i2]))]);
        }
        // Compare wavefronts with exact entries
        let problem = wavefront_problem(system).unwrap();
        let entries = Exact::new(&problem);
        let phase = wavefront_covariance(&problem).unwrap();
        for k in 0..2 * 2 * 49 {
            let (t, u, point) = (k % 2, k / 2 % 2, [k / 4 / 7, k / 4 % 7]);
            let front = Look::Wavefront { target: t, point };
            for lenslet in [[0, 0], [3, 4], [7, 2], [5, 7]] {
                let exact = entries.entry((t, u), point, lenslet);
                for (axis, exact) in exact.into_iter().enumerate() {
                    let slope = Look::Slope { star: u, axis, lenslet };
                    pairs[1].push([exact, simulated(front, slope)]);
                }
            }
            let other = Look::Wavefront { target: u, point: [6, 1] };
            let exact = phase[[t, u, 12 - point[0], 7 - point[1]]];
            pairs[2].push([exact, simulated(front, other)]);
        }
        pairs.map(|pairs| {
            let largest = |of: &dyn Fn(&[f64; 2]) -> f64| pairs.iter().map(of).fold(0.0, f64::max);
            largest(&|[exact, simulated]| (exact - simulated).abs())
                / largest(&|pair| pair[0].abs())
        })
    }

    // Hold the simulated covariance against exact values
    #[test]
    fn simulated_covariances_are_exact_to_a_thousandth() {
        for (height, outer_scale, disc) in
            [(f64::INFINITY, 25.0, 0.0), (90e3, 25.0, 0.0), (90e3, 50.0, 1e-4), (90e3, 400.0, 0.0)]
        {
            let errors = errors(&system(height, outer_scale, disc));
            println!(
                "{height} {outer_scale} {disc}: {:?}",
                errors.map(|error| format!("{error:.1e}"))
            );
            assert!(
                errors.iter().all(|error| *error < 5e-4),
                "{height}, {outer_scale}: {errors:?}"
            );
        }
    }
    #[test]
    fn slopes_without_outer_scale_have_all_their_tilt() {
        let mut system = system(90e3, f64::INFINITY, 0.0);
        let problem = slope_problem(&system).unwrap();
        let exact = slope_covariance(&problem, &Method::Direct, &silent).unwrap();
        system.targets.clear();
        let simulation = Simulation::new(&system).unwrap();
        let first = Look::Slope { star: 0, axis: 0, lenslet: [0, 7] };
        let second = Look::Slope { star: 1, axis: 0, lenslet: [7, 0] };
        let variance = simulation.covariance(first, first).unwrap() / exact.variance() - 1.0;
        let far = simulation.covariance(first, second).unwrap();
        let far = (far - exact.values()[[0, 1, 0, 0, 14, 0]]) / exact.variance();
        assert!(variance.abs() < 1e-3 && far.abs() < 1e-3, "{variance:e} {far:e}");
    }
    #[test]
    fn stars_with_their_own_lenslets_agree_with_the_dense_form() {
        let mut system = system(f64::INFINITY, 25.0, 0.0);
        let (laser, coarse) = (Source::new(1e-4, 0.3, 90e3), LensletArray::new(5, 0.8));
        system.guide_stars[0] = GuideStar::new(laser.unwrap(), 0.0, coarse.unwrap()).unwrap();
        let simulation = Simulation::new(&system).unwrap();
        let order = simulation.order();
        let looks = |star: usize| {
            let axis = move |axis| {
                order.lenslets(star).iter().map(move |&lenslet| Look::Slope { star, axis, lenslet })
            };
            axis(0).chain(axis(1))
        };
        let slopes: Vec<Look> = looks(0).chain(looks(1)).collect();
        let points = (0..2 * 49).map(|k| (k / 49, [k / 7 % 7, k % 7]));
        let fronts: Vec<Look> =
            points.map(|(target, point)| Look::Wavefront { target, point }).collect();
        let slope_slope = dense_slopes(&system, &silent).unwrap();
        let wavefront_slope = dense_wavefront_slope(&system, &silent).unwrap();
        for (exact, rows) in [(slope_slope, &slopes), (wavefront_slope, &fronts)] {
            let largest = exact.iter().fold(0.0, |largest: f64, c| largest.max(c.abs()));
            for ((row, column), exact) in exact.indexed_iter() {
                let error = simulation.covariance(rows[row], slopes[column]).unwrap() - exact;
                assert!(error.abs() < 5e-4 * largest, "{row} {column}: {error:e}");
            }
        }
    }

    // See a tilt with its sign
    #[test]
    fn wavefronts_that_rise_have_positive_slopes() {
        let mut system = system(f64::INFINITY, 400.0, 0.0);
        system.targets = vec![system.guide_stars[0].source];
        system.phase = Some(PhaseGrid::new(17, 2, 0.0).unwrap());
        system.pupil = None;
        let simulation = Simulation::new(&system).unwrap();
        for axis in [0, 1] {
            let (mut product, mut square) = (0.0, 0.0);
            for world in (0..20).map(|seed| simulation.draw(seed)) {
                let slopes = &world.slopes[64 * axis..64 * (axis + 1)];
                let slope = slopes.iter().sum::<f64>() / 64.0;
                // The last column less the first, or the last row less the first; they are 4 m apart.
                let front = world.wavefronts.index_axis(Axis(0), 0);
                let [low, high] =
                    [0, 16].map(|end| front.index_axis(Axis(1 - axis), end).mean().unwrap());
                product += slope * (high - low) / 4.0;
                square += slope * slope;
            }
            assert!((0.95..1.05).contains(&(product / square)), "{axis}: {}", product / square);
        }
    }

    // Reproduce worlds and their noise
    #[test]
    fn worlds_depend_on_their_seed_alone_and_noise_on_the_star() {
        let noisy = system(90e3, 25.0, 0.0);
        let mut silent = noisy.clone();
        silent.guide_stars.iter_mut().for_each(|star| star.noise = 0.0);
        let [noisy, silent] = [noisy, silent].map(|system| Simulation::new(&system).unwrap());
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(noisy.draw(3), one.install(|| noisy.draw(3)));
        assert_ne!(noisy.draw(3), noisy.draw(4));
        let (mut square, mut count) = ([0.0; 2], [0.0; 2]);
        for seed in 0..20 {
            let (with, without) = (noisy.draw(seed), silent.draw(seed));
            assert_eq!(with.wavefronts, without.wavefronts);
            for (k, (with, without)) in with.slopes.iter().zip(&without.slopes).enumerate() {
                let star = usize::from(k >= noisy.order.index(1, 0, 0));
                square[star] += (with - without).powi(2);
                count[star] += 1.0;
            }
        }
        for (star, variance) in [1e-14, 4e-14].into_iter().enumerate() {
            let ratio: f64 = square[star] / count[star] / variance;
            let error = (2.0 / count[star]).sqrt();
            assert!((ratio - 1.0).abs() < 4.0 * error && ratio != 1.0, "{star}: {ratio} ± {error}");
        }
    }
    #[test]
    fn what_cannot_be_simulated_is_refused() {
        let mut system = system(90e3, 25.0, 0.0);
        let sampling = Sampling { period: 0.5, ..Sampling::default() };
        assert!(Simulation::with_sampling(&system, &sampling).is_err());
        let absent = Look::Wavefront { target: 0, point: [7, 0] };
        assert_eq!(Simulation::new(&system).unwrap().covariance(absent, absent), None);
        system.guide_stars[1].source = Source::new(0.0, 0.0, 8e3).unwrap();
        assert!(matches!(Simulation::new(&system), Err(Error::Invalid(_))));
        system.guide_stars.clear();
        assert!(matches!(Simulation::new(&system), Err(Error::Invalid(_))));
    }
}
