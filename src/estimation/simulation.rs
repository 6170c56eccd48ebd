// Tangled from book/src/simulation.md: edit there, or here and run cargo tangle stitch.
//! Simulated turbulence: what the sensors of a system measure, and the wavefronts of its targets.

// Imports of the simulation
use crate::data::DataSet;
use crate::device::engine::Engine;
use crate::device::{CostKind, Workers, gather, threads};
use crate::error::{Error, Invalid, accept, count};
use crate::model::atmosphere::Layer;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::noise::{GuideStar, Noise};
use crate::model::sensor::Sensor;
use crate::model::source::ConeGradient;
use crate::model::system::System;
use crate::numerics::special::sinc;
use crate::plan::{Description, Memory, Plan, Stage};
use crate::turbulence::arrays::slope_table;
use crate::turbulence::phase::VonKarman;
use crate::watch::{Watch, check, unwatched};
use libm::j1;
use ndarray::{Array1, Array2, Array3, Array4, ArrayView1, Axis, Zip, concatenate, s};
use rand::{Rng, SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, StandardNormal};
use rayon::prelude::*;
use std::f64::consts::PI;

// Sampling and its limits
// Sampling of the spectrum
/// How closely a simulation samples the power spectrum; Eq. [frequency step](https://lenslet.github.io/lenslet/simulation.html#eq-frequency-step).
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Sampling {
    /// P_max/r: one over the step where slopes get their variance, in units of the widest distance at a layer.
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

// Refuse an invalid spectral sampling
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
    /// The frequencies for a layer of `outer_scale` that footprints of `side` sample over `reach`, all in metres.
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

// Advance by half a frequency cell
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
/// A layer: the standard deviations of its coefficients, and the waves of every star and target.
struct Screen {
    /// The frequencies along an axis, m⁻¹, and the velocity of the layer, m/s.
    at: Array1<f64>,
    velocity: [f64; 2],
    /// Rows are frequencies along y, metres.
    deviations: Array2<f64>,
    /// The same for wavefronts that are averaged over a disc.
    averaged: Option<Array2<f64>>,
    stars: Vec<WaveFootprints>,
    /// Waves of each target along x and y, (M, 2n).
    targets: Vec<[Array2<f64>; 2]>,
}

// Waves of the footprints
/// Waves that the lenslets of a star see, averaged over their squares.
enum WaveFootprints {
    /// Of squares along the axes, waves along x and y: themselves, and their derivatives.
    Straight { mean: [Array2<f64>; 2], slope: [Array2<f64>; 2] },
    /// Of squares that are turned.
    Turned(Turned),
}

/// Waves and factors of rotated lenslets.
struct Turned {
    /// Waves at the centres of all lenslets, row by row, along x and y, (N², 2n).
    waves: [Array2<f64>; 2],
    /// Half sum and half difference of the factors of Eq. [turned coefficients](https://lenslet.github.io/lenslet/simulation.html#eq-turned-coefficients) for both axes of the sensor, (n, n), m⁻¹.
    factors: [[Array2<f64>; 2]; 2],
}

// Steps of a simulated layer
// Prepare straight and rotated footprints
impl WaveFootprints {
    // Give each footprint its waves
    fn new(sensor: &Sensor, gradient: ConeGradient, altitude: f64, at: &Array1<f64>) -> Self {
        if sensor.rotation != 0.0 {
            return Self::Turned(Turned::new(sensor, gradient, altitude, at));
        }
        let gamma = sensor.source.cone_factor(altitude);
        let gradient = gradient.factor(gamma);
        let box_mean = |f: f64| sinc(gamma * sensor.side() * f);
        let centres = [0, 1].map(|axis| -> Vec<f64> {
            let centre = |i| sensor.footprint([i, i], altitude).centre[axis];
            (0..sensor.array.lenslets()).map(centre).collect()
        });
        let mean = [0, 1].map(|axis| waves(at, &centres[axis], box_mean));
        let slope = [0, 1].map(|axis| derivatives(at, &centres[axis], |f| gradient * box_mean(f)));
        Self::Straight { mean, slope }
    }
}

impl Turned {
    // Prepare rotated footprints of a star
    fn new(sensor: &Sensor, gradient: ConeGradient, altitude: f64, at: &Array1<f64>) -> Self {
        let gamma = sensor.source.cone_factor(altitude);
        let (gradient, side) = (gradient.factor(gamma), gamma * sensor.side());
        let (lenslets, axes) = (sensor.array.lenslets(), sensor.axes());
        let centres: Vec<[f64; 2]> = (0..lenslets * lenslets)
            .map(|k| sensor.footprint([k / lenslets, k % lenslets], altitude).centre)
            .collect();
        let along = |axis: usize| centres.iter().map(|centre| centre[axis]).collect::<Vec<_>>();
        let waves = [0, 1].map(|axis| waves(at, &along(axis), |_| 1.0));
        let factor = |axis: usize, x: f64, y: f64| {
            let [p, q] = axes.map(|axis| axis[0] * x + axis[1] * y);
            2.0 * PI * gradient * [p, q][axis] * sinc(side * p) * sinc(side * q)
        };
        // Halve sums and differences of factors
        let n = at.len();
        let factors = [0, 1].map(|axis| {
            [1.0, -1.0].map(|sign| {
                Array2::from_shape_fn((n, n), |(j, k)| {
                    0.5 * (factor(axis, at[k], at[j]) + sign * factor(axis, at[k], -at[j]))
                })
            })
        });
        Self { waves, factors }
    }

    // Differentiate along a rotated axis
    /// The coefficients of the slopes along an axis of the sensor, Eq. [turned coefficients](https://lenslet.github.io/lenslet/simulation.html#eq-turned-coefficients), from those of the phase.
    fn differentiate(&self, axis: usize, coefficients: &Array2<f64>) -> Array2<f64> {
        let [sum, difference] = &self.factors[axis];
        let n = sum.nrows();
        Array2::from_shape_fn((2 * n, 2 * n), |(row, column)| {
            let ((y, j), (x, k)) = ((row / n, row % n), (column / n, column % n));
            let sum = sum[[j, k]] * coefficients[[row, (1 - x) * n + k]];
            let difference = difference[[j, k]] * coefficients[[(1 - y) * n + j, column]];
            [sum, -sum][x] + [difference, -difference][y]
        })
    }

    /// The slopes along an axis of the sensor at all lenslets, (N, N).
    fn slopes(&self, axis: usize, coefficients: &Array2<f64>) -> Array2<f64> {
        let [x, y] = &self.waves;
        let sums = (y.dot(&self.differentiate(axis, coefficients)) * x).sum_axis(Axis(1));
        let lenslets = sums.len().isqrt();
        Array2::from_shape_fn((lenslets, lenslets), |(j, i)| sums[j * lenslets + i])
    }

    // Weights along a rotated axis
    /// Weights of the phase's coefficients in the slope of lenslet \[row, column\] along an axis of the sensor, (2n, 2n).
    fn weights(&self, axis: usize, [j, i]: [usize; 2]) -> Option<Array2<f64>> {
        let [x, y] = &self.waves;
        let lenslets = x.nrows().isqrt();
        let exists = j < lenslets && i < lenslets;
        exists.then(|| {
            let at = j * lenslets + i;
            let of_phase = WaveWeights::Separable([y.row(at), x.row(at)]).all();
            -self.differentiate(axis, &of_phase)
        })
    }
}

impl Screen {
    // Prepare the layer for its system
    fn new(system: &System, options: &SimulationOptions, layer: &Layer) -> Self {
        let [reach, side] = extent(system, layer, options.lasting);
        let outer_scale = layer.outer_scale.min(1e10 * reach);
        let frequencies = Frequencies::new(&options.sampling, outer_scale, reach, side);
        let (at, n) = (&frequencies.at, frequencies.at.len());
        // Give each frequency its deviation
        let (air, phase) = (system.atmosphere(), VonKarman::new(outer_scale));
        let strength = layer.fraction * air.fried_parameter().powf(-5.0 / 3.0);
        let metres = air.wavelength() / (2.0 * PI);
        let deviations = Array2::from_shape_fn((n, n), |(j, k)| {
            let cell = 4.0 * frequencies.width[j] * frequencies.width[k];
            metres * (strength * phase.power_spectrum(at[j].powi(2) + at[k].powi(2)) * cell).sqrt()
        });
        let (altitude, pitch) = (layer.altitude, system.wavefront_pitch());
        let disc = system.phase();
        let disc = disc.map_or(0.0, |grid| grid.disc_at(altitude, layer.outer_scale, pitch));
        let factor = |(j, k): (usize, usize)| {
            let x = 2.0 * PI * disc * at[j].hypot(at[k]);
            2.0 * j1(x) / x
        };
        let averaged = (disc > 0.0).then(|| &deviations * &Array2::from_shape_fn((n, n), factor));
        let footprints = |star: &GuideStar| {
            WaveFootprints::new(&star.sensor, system.cone_gradient(), layer.altitude, at)
        };
        let stars = system.guide_stars().iter().map(footprints);
        // Give each wavefront point its waves
        let targets = system.targets().iter().map(|target| {
            [0, 1].map(|axis| {
                let place = |x: f64| target.project([x; 2], layer.altitude)[axis];
                let points: Vec<f64> = wavefront_points(system).into_iter().map(place).collect();
                waves(at, &points, |_| 1.0)
            })
        });
        let (stars, targets) = (stars.collect(), targets.collect());
        Self { at: at.clone(), velocity: layer.velocity(), deviations, averaged, stars, targets }
    }

    // Generate a realisation of the layer
    // Normal numbers of a layer
    /// The normal numbers of the layer's coefficients, (2n, 2n).
    fn normal(&self, seed: u64) -> Array2<f64> {
        let mut random = StdRng::seed_from_u64(seed);
        let n = self.deviations.nrows();
        Array2::from_shape_simple_fn((2 * n, 2 * n), || StandardNormal.sample(&mut random))
    }

    /// Slopes along x and y of all lenslets of each star, rad.
    fn slopes(&self, normal: &Array2<f64>) -> Vec<[Array2<f64>; 2]> {
        let coefficients = spread(normal, &self.deviations);
        let slopes = self.stars.iter().map(|star| {
            [0, 1].map(|axis| match star {
                WaveFootprints::Straight { mean, slope } => {
                    let rows = if axis == 0 { &mean[1] } else { &slope[1] };
                    let columns = if axis == 0 { &slope[0] } else { &mean[0] };
                    rows.dot(&coefficients).dot(&columns.t())
                }
                WaveFootprints::Turned(turned) => turned.slopes(axis, &coefficients),
            })
        });
        slopes.collect()
    }

    /// The wavefronts of all targets, m.
    fn wavefronts(&self, normal: &Array2<f64>) -> Vec<Array2<f64>> {
        let coefficients = spread(normal, self.averaged.as_ref().unwrap_or(&self.deviations));
        self.targets.iter().map(|[x, y]| y.dot(&coefficients).dot(&x.t())).collect()
    }

    // Displace the layer by the wind
    /// The normal numbers a time later, s; Eq. [turned waves](https://lenslet.github.io/lenslet/evolving-turbulence.html#eq-turned-waves).
    fn blown(&self, normal: &Array2<f64>, time: f64) -> Array2<f64> {
        let (n, mut turned) = (self.at.len(), normal.clone());
        for (along, speed) in [Axis(1), Axis(0)].into_iter().zip(self.velocity) {
            if speed * time == 0.0 {
                continue;
            }
            let (cosines, sines) = turned.view_mut().split_at(along, n);
            let turns = self.at.mapv(|f| (2.0 * PI * f * speed * time).sin_cos());
            let turns = if along == Axis(1) {
                turns.insert_axis(Axis(0))
            } else {
                turns.insert_axis(Axis(1))
            };
            Zip::from(cosines).and(sines).and_broadcast(&turns).for_each(|c, s, &(sin, cos)| {
                (*c, *s) = (*c * cos - *s * sin, *c * sin + *s * cos);
            });
        }
        turned
    }

    // Covariance that the layer simulates
    /// Covariance of two simulated quantities; `None` where there is no such lenslet or point.
    fn covariance(&self, first: Quantity, second: Quantity) -> Option<f64> {
        let [first, second] = [self.weights(first)?, self.weights(second)?];
        let (WaveWeights::Separable(one), WaveWeights::Separable(other)) = (&first.1, &second.1)
        else {
            let product = first.1.all() * second.1.all();
            return Some(spread(&product, &(first.0 * second.0)).sum());
        };
        let n = self.deviations.nrows();
        let [y, x] = [0, 1].map(|axis| {
            let product = &one[axis] * &other[axis];
            &product.slice(s![..n]) + &product.slice(s![n..])
        });
        let rows = first.0.rows().into_iter().zip(second.0.rows());
        let along_x = rows.map(|(one, other)| {
            Zip::from(one).and(other).and(&x).fold(0.0, |sum, one, other, x| sum + one * other * x)
        });
        Some(along_x.zip(&y).map(|(sum, y)| sum * y).sum())
    }

    /// Deviations of the layers that a quantity depends on, and its weights of the coefficients.
    fn weights(&self, quantity: Quantity) -> Option<(&Array2<f64>, WaveWeights<'_>)> {
        // Look up the waves of a quantity
        let (deviations, [rows, columns], [j, i]) = match quantity {
            Quantity::Slope { star, axis, lenslet } => match self.stars.get(star)? {
                WaveFootprints::Straight { mean, slope } => {
                    let along =
                        if axis == 0 { [&mean[1], &slope[0]] } else { [&slope[1], &mean[0]] };
                    (&self.deviations, along, lenslet)
                }
                WaveFootprints::Turned(turned) => {
                    let weights = turned.weights(axis, lenslet)?;
                    return Some((&self.deviations, WaveWeights::All(weights)));
                }
            },
            Quantity::Wavefront { target, point } => {
                let [x, y] = self.targets.get(target)?;
                (self.averaged.as_ref().unwrap_or(&self.deviations), [y, x], point)
            }
        };
        let exists = j < rows.nrows() && i < columns.nrows();
        exists.then(|| (deviations, WaveWeights::Separable([rows.row(j), columns.row(i)])))
    }
}

// Widest distance at a layer
/// Coordinates of the wavefront points in the pupil along an axis, metres; none where no wavefront is wanted.
fn wavefront_points(system: &System) -> Vec<f64> {
    let pitch = system.wavefront_pitch();
    let points = |grid: crate::model::wavefront_grid::PhaseGrid| {
        (0..grid.points).map(|m| grid.coordinate(m, pitch)).collect()
    };
    system.phase().map_or_else(Vec::new, points)
}

/// Widest distance along an axis between points of a layer that are sampled within `lasting` seconds, and side of the smallest footprint, metres.
fn extent(system: &System, layer: &Layer, lasting: f64) -> [f64; 2] {
    let stars = system.guide_stars().iter();
    let sides = stars.clone().map(|star| star.sensor.footprint([0, 0], layer.altitude).side);
    // Collect the edges of all footprints
    let mut edges: Vec<[f64; 2]> = Vec::new();
    for GuideStar { sensor, .. } in stars {
        edges.extend(sensor.outline().map(|corner| sensor.source.project(corner, layer.altitude)));
    }
    let disc = system.phase().map_or(0.0, |grid| grid.disc_radius * layer.altitude);
    let points = wavefront_points(system);
    for target in system.targets().iter().filter(|_| !points.is_empty()) {
        let ends = [(points[0], -disc), (points[points.len() - 1], disc)];
        let end = |(x, disc): (f64, f64)| target.project([x; 2], layer.altitude).map(|x| x + disc);
        edges.extend(ends.map(end));
    }
    let widest = [0, 1].map(|axis| {
        let along = edges.iter().map(|edge| edge[axis]);
        let still =
            along.clone().fold(f64::NEG_INFINITY, f64::max) - along.fold(f64::INFINITY, f64::min);
        still + lasting * layer.velocity()[axis].abs()
    });
    [widest[0].max(widest[1]), sides.fold(f64::INFINITY, f64::min)]
}

// Deviations of the waves
/// Normal numbers (2n, 2n) times the deviations (n, n) of their frequencies.
fn spread(normal: &Array2<f64>, deviations: &Array2<f64>) -> Array2<f64> {
    let mut coefficients = normal.clone();
    let n = deviations.nrows();
    for mut quarter in coefficients.exact_chunks_mut((n, n)) {
        quarter *= deviations;
    }
    coefficients
}

// Weights of a simulated quantity
/// Weights of the coefficients in one simulated quantity.
enum WaveWeights<'a> {
    /// By products of waves along y and along x, 2n each.
    Separable([ArrayView1<'a, f64>; 2]),
    /// One by one, (2n, 2n).
    All(Array2<f64>),
}

impl WaveWeights<'_> {
    /// The weights one by one.
    fn all(&self) -> Array2<f64> {
        match self {
            Self::Separable([y, x]) => {
                Array2::from_shape_fn((y.len(), x.len()), |(j, k)| y[j] * x[k])
            }
            Self::All(weights) => weights.clone(),
        }
    }
}

// Simulation of a system
/// A simulated quantity: a slope or a value of a wavefront.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Quantity {
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

// Realisations and plan of a simulation
// Random key of a frame
/// A key of 256 bits, which a seed is expanded to.
struct SeedKey([u8; 32]);

impl SeedableRng for SeedKey {
    type Seed = [u8; 32];

    fn from_seed(seed: [u8; 32]) -> Self {
        Self(seed)
    }
}

/// The random numbers of a frame of a seed, independent of those of any other frame of any seed.
fn stream(seed: u64, frame: u64) -> StdRng {
    let SeedKey(mut key) = SeedKey::seed_from_u64(seed);
    for (byte, of_frame) in key[24..].iter_mut().zip(frame.to_le_bytes()) {
        *byte ^= of_frame;
    }
    StdRng::from_seed(key)
}

// Simulation and its layers
/// Simulated turbulence above a system.
///
/// ```
/// use lenslet::device::Engine;
/// use lenslet::estimation::{Quantity, Simulation};
/// use lenslet::model::{Atmosphere, GuideStar, Layer, LensletArray, PhaseGrid, Source, System};
/// use lenslet::turbulence::{SlopeCovariancePlan, slope_problem};
/// use lenslet::{plan::Plan, watch::unwatched};
/// let (array, above) = (LensletArray::new(8, 0.5)?, Source::star(0.0, 0.0)?);
/// let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 25.0)])?;
/// let system = System::builder(air, array).guide_stars([GuideStar::at_rest(above, array, 0.0)?]);
/// let system = system.phase(Some(PhaseGrid::new(9, 1, 0.0)?)).targets([above]).build()?;
/// let simulation = Simulation::new(&system)?;
/// assert_eq!(simulation.frequencies(), [53]);
/// let point = Quantity::Wavefront { target: 0, point: [4, 4] };
/// let variance = simulation.covariance(point, point).unwrap_or(f64::NAN); // m²
/// let metres = (500e-9 / (2.0 * std::f64::consts::PI)).powi(2);
/// let closed_form = 0.0863143 * metres * (25.0f64 / 0.15).powf(5.0 / 3.0);
/// assert!((variance / closed_form - 1.0).abs() < 1e-5 && (closed_form.sqrt() - 1.66e-6).abs() < 5e-9);
/// let slope = |column| Quantity::Slope { star: 0, axis: 0, lenslet: [4, column] };
/// let exact = SlopeCovariancePlan::direct(slope_problem(&system)?);
/// let exact = exact.run(&Engine::default(), &unwatched)?;
/// for (column, tolerance) in [(0, 1e-5), (7, 1.35e-4)] {
///     let simulated = simulation.covariance(slope(0), slope(column)).unwrap_or(f64::NAN);
///     let error = simulated - exact.values()[[0, 0, 0, 0, 7, 7 + column]];
///     assert!((error / exact.variance()).abs() < tolerance);
/// }
/// assert!((exact.variance() / 6.864e-13 - 1.0).abs() < 1e-4);
/// # Ok::<(), lenslet::Error>(())
/// ```
pub struct Simulation {
    screens: Vec<Screen>,
    order: SlopeOrder,
    /// Noise of the slopes of each guide star.
    noise: Vec<Noise>,
    points: usize,
}

// One realisation of turbulence
/// One turbulence realisation: its slopes and wavefronts.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Realisation {
    /// Slopes with their noise in the order of [`SlopeOrder`], rad.
    pub slopes: Vec<f64>,
    /// True wavefronts of the targets, (T, M, M), m; axis 1 is y.
    pub wavefronts: Array3<f64>,
}

impl Simulation {
    // Prepare the simulation of a system
    /// A simulation with the default sampling. Without targets or a grid of points its realisations have no wavefronts.
    ///
    /// An infinite outer scale is replaced by 1e10 times the widest distance seen at the layer; the pistons of wavefronts are then
    /// large and have no meaning.
    ///
    /// # Errors
    /// `Memory` where the coefficients do not fit.
    pub fn new(system: &System) -> Result<Self, Error> {
        Self::with_sampling(system, &Sampling::default())
    }

    // Prepare a simulation with its sampling
    /// A simulation with the given sampling of the spectrum; errors as for [`new`](Self::new), and `Invalid` for a sampling that
    /// makes no sense.
    pub fn with_sampling(system: &System, sampling: &Sampling) -> Result<Self, Error> {
        Self::with_options(system, SimulationOptions::default().sampling(*sampling))
    }

    /// A simulation with the sampling of its options, and turbulence that evolves over their duration; errors as before.
    pub fn with_options(system: &System, options: SimulationOptions) -> Result<Self, Error> {
        let plan = SimulationPlan::new(system, options)?;
        plan.check(&Engine::default())?;
        plan.prepare(&unwatched)
    }

    // Generate realisations from a seed
    // Realisation of a seed
    /// The first frame of a seed: the same for the same seed, whatever the number of threads.
    ///
    /// ```
    /// use lenslet::model::System;
    /// use lenslet::estimation::Simulation;
    /// let system = System::from_file("book/systems/keck-lgs.toml")?;
    /// let turbulence = Simulation::new(&system)?.realisation(7);
    /// let valid = system.lenslet_array().valid(system.pupil(), system.validity());
    /// assert_eq!(turbulence.slopes.len(), 4 * 2 * valid.iter().filter(|valid| **valid).count());
    /// assert_eq!(turbulence.wavefronts.dim(), (2, 41, 41));
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn realisation(&self, seed: u64) -> Realisation {
        self.realisation_of_frame(seed, 0)
    }

    /// One of the frames of a seed, independent of all frames of other seeds.
    pub fn realisation_of_frame(&self, seed: u64, frame: u64) -> Realisation {
        let mut turbulence = self.turbulence_of_frame(seed, frame);
        let (mut slopes, wavefronts) = (turbulence.slopes(0.0), turbulence.wavefronts(0.0));
        slopes.iter_mut().zip(turbulence.noise()).for_each(|(slope, noise)| *slope += noise);
        Realisation { slopes, wavefronts }
    }

    // Evolving turbulence of a seed
    /// The evolving turbulence of a seed; at the time 0, that of [`realisation`](Self::realisation).
    ///
    /// ```
    /// use lenslet::model::System;
    /// use lenslet::estimation::{Simulation, SimulationOptions};
    /// let system = System::from_file("book/systems/small-moao.toml")?;
    /// let simulation = Simulation::with_options(&system, SimulationOptions::default().lasting(4e-3))?;
    /// let turbulence = simulation.turbulence(7);
    /// assert_ne!(turbulence.slopes(0.0), turbulence.slopes(4e-3));
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn turbulence(&self, seed: u64) -> EvolvingTurbulence<'_> {
        self.turbulence_of_frame(seed, 0)
    }

    /// The evolving turbulence of one of the frames of a seed; at the time 0, that of [`realisation_of_frame`](Self::realisation_of_frame).
    pub fn turbulence_of_frame(&self, seed: u64, frame: u64) -> EvolvingTurbulence<'_> {
        let mut random = stream(seed, frame);
        let seeded: Vec<_> =
            self.screens.iter().map(|screen| (screen, random.next_u64())).collect();
        let normal = |(screen, seed): &(&Screen, u64)| screen.normal(*seed);
        let normals = seeded.par_iter().with_max_len(1).map(normal).collect();
        EvolvingTurbulence { simulation: self, normals, random }
    }

    // Covariance that the simulation has
    /// Covariance of two simulated quantities, turbulence alone: rad², m rad, or m². It is exact, not an average over realisations.
    ///
    /// `None` where the system has no such lenslet or point.
    pub fn covariance(&self, first: Quantity, second: Quantity) -> Option<f64> {
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

// Turbulence moved by the wind
/// A turbulence realisation that the wind moves.
pub struct EvolvingTurbulence<'a> {
    simulation: &'a Simulation,
    /// Normal numbers of each layer.
    normals: Vec<Array2<f64>>,
    random: StdRng,
}

impl EvolvingTurbulence<'_> {
    // Evaluate slopes at a time
    /// The slopes at a time \[s\] in the order of [`SlopeOrder`], without noise, rad. Times should be apart by no more than the simulation
    /// [lasts](SimulationOptions::lasting).
    pub fn slopes(&self, time: f64) -> Vec<f64> {
        let order = &self.simulation.order;
        let mut slopes = vec![0.0; order.len()];
        for fields in self.layers(|screen, normal| screen.slopes(&screen.blown(normal, time))) {
            // Add a layer to the slopes
            for (q, fields) in fields.iter().enumerate() {
                for (axis, field) in fields.iter().enumerate() {
                    for (k, lenslet) in order.lenslets(q).iter().enumerate() {
                        slopes[order.index(q, axis, k)] += field[*lenslet];
                    }
                }
            }
        }
        slopes
    }

    // Evaluate wavefronts at a time
    /// The true wavefronts of the targets at a time \[s\], (T, M, M), m; axis 1 is y.
    pub fn wavefronts(&self, time: f64) -> Array3<f64> {
        let Simulation { screens, points, .. } = self.simulation;
        let targets = screens.first().map_or(0, |screen| screen.targets.len());
        let mut sum = Array3::zeros((targets, *points, *points));
        for fronts in self.layers(|screen, normal| screen.wavefronts(&screen.blown(normal, time))) {
            Zip::from(sum.outer_iter_mut()).and(&fronts).for_each(|mut sum, front| sum += front);
        }
        sum
    }

    // Evaluate all layers in parallel
    /// The `quantity` of each layer, in the order of the layers.
    fn layers<T: Send>(&self, quantity: impl Fn(&Screen, &Array2<f64>) -> T + Sync) -> Vec<T> {
        let layers = self.simulation.screens.par_iter().zip(&self.normals).with_max_len(1);
        layers.map(|(screen, normal)| quantity(screen, normal)).collect()
    }

    // Generate noise for an exposure
    /// The noise of another exposure, in the order of the slopes, rad.
    pub fn noise(&mut self) -> Vec<f64> {
        let Simulation { order, noise, .. } = self.simulation;
        let mut slopes = vec![0.0; order.len()];
        for (q, noise) in noise.iter().enumerate() {
            let lenslets = order.lenslets(q).len();
            let normal: Vec<f64> =
                (0..2 * lenslets).map(|_| StandardNormal.sample(&mut self.random)).collect();
            for k in 0..lenslets {
                let ([a, b, c], [along_x, along_y]) =
                    (noise.factor(k), [normal[k], normal[lenslets + k]]);
                slopes[order.index(q, 0, k)] = a * along_x;
                slopes[order.index(q, 1, k)] = b * along_x + c * along_y;
            }
        }
        slopes
    }
}

// Planned simulation of a system
// Plan of a simulation
/// How turbulence will be simulated.
///
/// ```
/// use lenslet::device::Engine;
/// use lenslet::plan::Plan;
/// use lenslet::watch::unwatched;
/// use lenslet::model::System;
/// use lenslet::estimation::*;
/// let system = System::from_file("book/systems/keck-lgs.toml")?;
/// let plan = SimulationPlan::new(&system, SimulationOptions::default().frames(2).seed(7))?;
/// let simulated = plan.run(&Engine::default(), &unwatched)?;
/// let second = Simulation::new(&system)?.realisation_of_frame(7, 1);
/// assert_eq!(simulated.slopes.row(1).to_vec(), second.slopes);
/// # Ok::<(), lenslet::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SimulationPlan {
    system: System,
    options: SimulationOptions,
    order: SlopeOrder,
    /// Frequencies along an axis, layer by layer.
    frequencies: Vec<usize>,
}

// Options and results of a simulation
/// Options of a simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct SimulationOptions {
    /// How closely the spectrum is sampled.
    pub sampling: Sampling,
    /// Number of independent frames.
    pub frames: usize,
    /// Seed of all frames; frames of different seeds are independent.
    pub seed: u64,
    /// Duration over which [turbulence](EvolvingTurbulence) evolves, s.
    pub lasting: f64,
}

// Choices of a simulation
impl Default for SimulationOptions {
    /// One frame from the seed 1, with the default sampling.
    fn default() -> Self {
        Self { sampling: Sampling::default(), frames: 1, seed: 1, lasting: 0.0 }
    }
}

impl SimulationOptions {
    /// Asks for a sampling of the spectrum.
    pub fn sampling(self, sampling: Sampling) -> Self {
        Self { sampling, ..self }
    }

    /// Asks for so many frames.
    pub fn frames(self, frames: usize) -> Self {
        Self { frames, ..self }
    }

    /// Gives the frames their seed.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets the duration over which turbulence evolves, s.
    pub fn lasting(self, lasting: f64) -> Self {
        Self { lasting, ..self }
    }
}

// Simulated slopes and wavefronts of frames
/// Simulated slopes and wavefronts of all frames.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Simulated {
    /// Slopes with their noise, (frames, n), in the order of [`SlopeOrder`], rad.
    pub slopes: Array2<f64>,
    /// True wavefronts, (frames, T, M, M), m, where there are targets and a grid; axis 2 is y.
    pub wavefronts: Option<Array4<f64>>,
}

impl Simulated {
    /// Slopes and wavefronts as a data set, with the order of the slopes of the `system`.
    pub fn to_data_set(&self, system: &System) -> DataSet<'_> {
        let mut data = DataSet::default();
        data.add("slopes", self.slopes.view()).unit("rad");
        if let Some(wavefronts) = &self.wavefronts {
            data.add("wavefront", wavefronts.view()).unit("m");
        }
        data.add_table("slope_table", slope_table(system));
        data
    }
}

// Steps of the plan of a simulation
impl SimulationPlan {
    // Plan the simulation of a system
    /// Plans a simulation.
    ///
    /// # Errors
    /// `Invalid` where the sampling or the duration of the turbulence makes no sense, or the system has another model of slopes than the average.
    pub fn new(system: &System, options: SimulationOptions) -> Result<Self, Error> {
        system.expect_slopes()?;
        system.expect_average("sensors that are simulated average the gradient")?;
        options.sampling.check()?;
        let good = (0.0..=1e3).contains(&options.lasting);
        accept(good, "lasting", options.lasting, "a time in seconds, from 0 to 1000")?;
        let count = |layer: &Layer| {
            let [reach, side] = extent(system, layer, options.lasting);
            let outer_scale = layer.outer_scale.min(1e10 * reach);
            Frequencies::new(&options.sampling, outer_scale, reach, side).at.len()
        };
        let frequencies = system.atmosphere().layers().iter().map(count).collect();
        let order = SlopeOrder::new(&system.valid_lenslets());
        Ok(Self { system: system.clone(), options, order, frequencies })
    }

    /// Whether there are targets and a grid, and so wavefronts.
    pub fn has_wavefronts(&self) -> bool {
        self.system.wants_wavefront()
    }

    // Count the memory of a simulation
    /// The most memory that the simulation has in use at a time, its frames included.
    fn bytes(&self) -> Memory {
        let is_turned = |star: &&GuideStar| star.sensor.rotation != 0.0;
        let lenslets = |star: &GuideStar| match star.sensor.array.lenslets() {
            n if is_turned(&star) => 4 * n * n,
            n => 4 * n,
        };
        let lenslets = self.system.guide_stars().iter().map(lenslets).sum::<usize>();
        let turned = self.system.guide_stars().iter().filter(is_turned).count() as u64;
        let rows =
            lenslets + 2 * self.system.targets().len() * wavefront_points(&self.system).len();
        // Numbers of a layer by frequencies
        let numbers = |&n: &usize| {
            let frequencies = if n < MOST { n as u64 } else { 1 << 28 };
            [
                2 * frequencies * (3 * frequencies + rows as u64 + 2 * turned * frequencies),
                12 * frequencies * frequencies,
            ]
        };
        let layers = || self.frequencies.iter().map(numbers);
        let kept = layers().map(|[kept, _]| kept).sum::<u64>();
        let drawn = layers().map(|[_, drawn]| drawn).max().unwrap_or(0);
        let drawn = Memory { host: 8 * drawn * threads() as u64, devices: Vec::new() };
        let frame = (self.order.len() + self.shape().iter().product::<usize>()) as u64;
        let frames = frame.saturating_mul(self.options.frames as u64);
        Memory::of_stages(kept.saturating_add(frames).saturating_mul(8), [&drawn])
    }

    // Shape of the wavefronts of frames
    /// The shape of a frame's wavefronts, (T, M, M).
    fn shape(&self) -> [usize; 3] {
        let points = if self.has_wavefronts() {
            self.system.phase().map_or(0, |grid| grid.points)
        } else {
            0
        };
        [self.system.targets().len(), points, points]
    }

    // Describe the plan of a simulation
    /// What the plan will do.
    fn description(&self, engine: &Engine) -> Description {
        let (frames, targets) = (self.options.frames, self.system.targets().len());
        let mut arrays = vec![("slopes".to_string(), vec![frames, self.order.len()])];
        if self.has_wavefronts() {
            let [targets, rows, columns] = self.shape();
            arrays.push(("wavefront".into(), vec![frames, targets, rows, columns]));
        }
        let fewest = self.frequencies.iter().min().copied().unwrap_or(0);
        let most = self.frequencies.iter().max().copied().unwrap_or(0);
        Description {
            what: format!(
                "{} of {} and {}",
                count(frames, "simulated frame"),
                count(self.order.len(), "slope"),
                count(targets, "target")
            ),
            arrays,
            form: "",
            reason: String::new(),
            method: format!("graded spectrum, {fewest} to {most} frequencies along an axis"),
            slope_model: self.system.slope_model().name(),
            engine: engine.name(),
            memory: self.bytes(),
            stages: self.stages(engine),
            rates: engine.speed().to_string(),
        }
    }

    // Time of each simulation stage
    fn stages(&self, engine: &Engine) -> Vec<Stage> {
        let lenslets: usize =
            self.system.guide_stars().iter().map(|star| star.sensor.array.lenslets()).sum();
        let [targets, points, _] = self.shape();
        let places = (2 * lenslets + targets * points) as f64;
        let (mut layers, mut drawn, mut summed) = (0.0, 0.0, 0.0);
        for &n in &self.frequencies {
            let n = n as f64;
            layers += 20e-9 * (n * n + 4.0 * n * places);
            drawn += 0.2e-3 + 4.0 * n * n * 10e-9;
            summed += places * 4.0 * n * n / 30e9;
        }
        let frames = self.options.frames as f64;
        let frames = [(CostKind::Integrals, frames * drawn), (CostKind::Products, frames * summed)];
        let layers = [(CostKind::Integrals, layers)];
        vec![Stage::new(LAYERS, &layers, engine), Stage::new(FRAMES, &frames, engine)]
    }

    // Prepare the layers of a simulation
    /// Prepares all layers.
    pub(crate) fn prepare(&self, watch: &dyn Watch) -> Result<Simulation, Error> {
        watch.stage(LAYERS, LAYERS);
        let system = &self.system;
        let layers = system.atmosphere().layers();
        let screen = |_: &(), layer: &Layer| Ok(Screen::new(system, &self.options, layer));
        Ok(Simulation {
            screens: gather(Workers::cores(&()), layers, watch, screen)?,
            order: self.order.clone(),
            noise: system.guide_stars().iter().map(|star| star.noise.clone()).collect(),
            points: system.phase().map_or(0, |grid| grid.points),
        })
    }
}

// Run the plan of a simulation
impl Plan for SimulationPlan {
    type Output = Simulated;

    /// Rejects a GPU, and single precision.
    fn check_engine(&self, engine: &Engine) -> Result<(), Error> {
        engine.require_cpu("a simulation")?;
        Ok(engine.require_double_on_cpu("a simulation")?)
    }

    fn describe(&self, engine: &Engine) -> Result<Description, Error> {
        self.check_engine(engine)?;
        Ok(self.description(engine))
    }

    fn subject(&self) -> String {
        count(self.options.frames, "simulated frame")
    }

    // Simulate all frames of a plan
    fn run(&self, engine: &Engine, watch: &dyn Watch) -> Result<Simulated, Error> {
        self.check(engine)?;
        let simulation = self.prepare(watch)?;
        watch.stage(FRAMES, FRAMES);
        let (frames, [targets, rows, columns]) = (self.options.frames, self.shape());
        let mut slopes = Array2::zeros((frames, self.order.len()));
        let mut wavefronts =
            self.has_wavefronts().then(|| Array4::zeros((frames, targets, rows, columns)));
        for frame in 0..frames {
            check(watch)?;
            let realisation = simulation.realisation_of_frame(self.options.seed, frame as u64);
            slopes.row_mut(frame).assign(&ndarray::aview1(&realisation.slopes));
            if let Some(wavefronts) = &mut wavefronts {
                wavefronts.index_axis_mut(Axis(0), frame).assign(&realisation.wavefronts);
            }
            watch.progress(frame + 1, frames);
        }
        Ok(Simulated { slopes, wavefronts })
    }
}

// Stages of a simulation
/// Names of the stages of a simulation.
const LAYERS: &str = "layers";
const FRAMES: &str = "frames";

// Tests of the simulation
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::atmosphere::Atmosphere;
    use crate::model::lenslet_array::{LensletArray, Pupil};
    use crate::model::source::Source;
    use crate::model::wavefront_grid::PhaseGrid;
    use crate::turbulence::direct::wavefront::{Exact, wavefront_covariance};
    use crate::turbulence::plan::{
        SlopeCovariancePlan, dense_slopes, dense_wavefront_slope, slope_problem, wavefront_problem,
    };
    use crate::watch::unwatched;

    // System without symmetry to simulate
    /// Two stars at `height`, two targets, 8 × 8 lenslets, 7 × 7 points, two layers of unequal outer scales.
    fn system(height: f64, outer_scale: f64, disc_radius: f64) -> System {
        let layers =
            vec![Layer::new(9000.0, 0.4, outer_scale), Layer::new(0.0, 0.6, outer_scale / 2.0)];
        let array = LensletArray::new(8, 0.5).unwrap();
        let source = |zenith, azimuth, height| Source::new(zenith, azimuth, height).unwrap();
        let star = |source, noise| GuideStar::at_rest(source, array, noise).unwrap();
        let infinity = f64::INFINITY;
        System::builder(Atmosphere::new(0.15, 500e-9, layers).unwrap(), array)
            .pupil(Some(Pupil::new(4.0, 0.2).unwrap()))
            .guide_stars([
                star(source(1e-4, 0.3, height), 1e-14),
                star(source(5e-5, 4.0, height), 4e-14),
            ])
            .targets([source(2e-5, 2.0, infinity), source(1.2e-4, 5.0, infinity)])
            .phase(Some(PhaseGrid::new(7, 2, disc_radius).unwrap()))
            .build()
            .unwrap()
    }

    // Largest errors of simulated covariances
    /// Largest errors of ⟨ss⟩, ⟨ws⟩ and ⟨ww⟩ for the system, each in units of the largest value.
    fn errors(system: &System) -> [f64; 3] {
        let simulation = Simulation::new(system).unwrap();
        let simulated = |first, second| simulation.covariance(first, second).unwrap();
        let mut pairs: [Vec<[f64; 2]>; 3] = Default::default();
        // Compare slopes with the direct method
        let problem = slope_problem(system).unwrap();
        let exact =
            SlopeCovariancePlan::direct(problem).run(&Engine::default(), &unwatched).unwrap();
        let first = |p, axis, lenslet| Quantity::Slope { star: p, axis, lenslet };
        for ((p, q, a, b, j, i), &exact) in exact.values().indexed_iter() {
            if (j + 2 * i) % 21 != 0 {
                continue;
            }
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
            let front = Quantity::Wavefront { target: t, point };
            for lenslet in [[0, 0], [3, 4], [7, 2], [5, 7]] {
                let exact = entries.entry((t, u), point, lenslet);
                for (axis, exact) in exact.into_iter().enumerate() {
                    let slope = Quantity::Slope { star: u, axis, lenslet };
                    pairs[1].push([exact, simulated(front, slope)]);
                }
            }
            let other = Quantity::Wavefront { target: u, point: [6, 1] };
            let exact = phase[[t, u, 12 - point[0], 7 - point[1]]];
            pairs[2].push([exact, simulated(front, other)]);
        }
        pairs.map(|pairs| {
            let largest = |of: &dyn Fn(&[f64; 2]) -> f64| pairs.iter().map(of).fold(0.0, f64::max);
            largest(&|[exact, simulated]| (exact - simulated).abs())
                / largest(&|pair| pair[0].abs())
        })
    }

    // Tests of simulated covariances
    // Compare simulated covariances with exact values
    #[test]
    fn simulated_covariances_are_exact_to_a_thousandth() {
        for (height, outer_scale, disc) in
            [(f64::INFINITY, 25.0, 0.0), (90e3, 50.0, 1e-4), (90e3, 400.0, 0.0)]
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
        // Sensors with unlike shifts share a lattice all the same.
        let rest = system(90e3, 25.0, 0.0);
        let mut stars = rest.guide_stars().to_vec();
        (stars[0].sensor.shift, stars[1].sensor.shift) = ([0.2, -0.1], [-0.15, 0.3]);
        let errors = errors(&rest.to_builder().guide_stars(stars).build().unwrap());
        assert!(errors.iter().all(|error| *error < 5e-4), "shifted: {errors:?}");
    }

    // Check the tilt without outer scale
    #[test]
    fn slopes_without_outer_scale_have_all_their_tilt() {
        let system = system(90e3, f64::INFINITY, 0.0);
        let problem = slope_problem(&system).unwrap();
        let exact =
            SlopeCovariancePlan::direct(problem).run(&Engine::default(), &unwatched).unwrap();
        let system = system.to_builder().targets([]).build().unwrap();
        let simulation = Simulation::new(&system).unwrap();
        let first = Quantity::Slope { star: 0, axis: 0, lenslet: [0, 7] };
        let second = Quantity::Slope { star: 1, axis: 0, lenslet: [7, 0] };
        let variance = simulation.covariance(first, first).unwrap() / exact.variance() - 1.0;
        let far = simulation.covariance(first, second).unwrap();
        let far = (far - exact.values()[[0, 1, 0, 0, 14, 0]]) / exact.variance();
        assert!(variance.abs() < 1e-3 && far.abs() < 1e-3, "{variance:e} {far:e}");
    }

    // Compare unlike stars with the dense form
    #[test]
    fn stars_with_their_own_lenslets_agree_with_the_dense_form() {
        let system = system(f64::INFINITY, 25.0, 0.0);
        let (laser, coarse) = (Source::new(1e-4, 0.3, 90e3), LensletArray::new(5, 0.8));
        let laser = GuideStar::at_rest(laser.unwrap(), coarse.unwrap(), 0.0).unwrap();
        let mut stars = [laser, system.guide_stars()[1].clone()];
        let rest = system.to_builder().guide_stars(stars.clone()).build().unwrap();
        hold_to_the_dense_form(&rest, 37);
        stars[0].sensor = Sensor { rotation: 0.3, shift: [0.2, -0.1], ..stars[0].sensor };
        stars[1].sensor = Sensor { rotation: -0.2, magnification: 1.1, ..stars[1].sensor };
        let turned = system.to_builder().guide_stars(stars).build().unwrap();
        hold_to_the_dense_form(&turned, 131);
    }

    // Compare covariances with the dense form
    /// Compares covariances of a system of two stars with the dense form, one in `every` of each row and column.
    fn hold_to_the_dense_form(system: &System, every: usize) {
        let simulation = Simulation::new(system).unwrap();
        let order = simulation.order();
        let quantities = |star: usize| {
            let axis = move |axis| {
                order.lenslets(star).iter().map(move |&lenslet| Quantity::Slope {
                    star,
                    axis,
                    lenslet,
                })
            };
            axis(0).chain(axis(1))
        };
        let slopes: Vec<Quantity> = quantities(0).chain(quantities(1)).collect();
        let points = (0..2 * 49).map(|k| (k / 49, [k / 7 % 7, k % 7]));
        let fronts: Vec<Quantity> =
            points.map(|(target, point)| Quantity::Wavefront { target, point }).collect();
        // The dense form has the same order of rows and columns.
        let slope_slope = dense_slopes(system, &Engine::default(), &unwatched).unwrap();
        let wavefront_slope = dense_wavefront_slope(system, &unwatched).unwrap();
        for (exact, rows) in [(slope_slope, &slopes), (wavefront_slope, &fronts)] {
            let largest = exact.iter().fold(0.0, |largest: f64, c| largest.max(c.abs()));
            let some =
                exact.indexed_iter().filter(|((row, column), _)| (row + 3 * column) % every == 0);
            for ((row, column), exact) in some {
                let error = simulation.covariance(rows[row], slopes[column]).unwrap() - exact;
                assert!(error.abs() < 5e-4 * largest, "{row} {column}: {error:e}");
            }
        }
    }

    // Compare sensors turned alike with exact values
    #[test]
    fn sensors_that_are_turned_alike_agree_with_their_toeplitz_form() {
        let rest = system(90e3, 25.0, 0.0);
        let mut stars = rest.guide_stars().to_vec();
        for star in &mut stars {
            (star.sensor.rotation, star.sensor.magnification) = (0.4, 1.1);
        }
        stars[1].sensor.shift = [0.2, -0.3];
        let turned = rest.to_builder().guide_stars(stars).targets([]).build().unwrap();
        let plan = SlopeCovariancePlan::direct(slope_problem(&turned).unwrap());
        let exact = plan.run(&Engine::default(), &unwatched);
        let (exact, simulation) = (exact.unwrap(), Simulation::new(&turned).unwrap());
        let slope = |star, axis, lenslet| Quantity::Slope { star, axis, lenslet };
        for ((p, q, a, b, j, i), &exact_value) in exact.values().indexed_iter() {
            if (j + 2 * i) % 21 != 0 {
                continue;
            }
            let place = |lag: usize| (7usize.saturating_sub(lag), lag.saturating_sub(7));
            let ((j, j2), (i, i2)) = (place(j), place(i));
            let quantities = [slope(p, a, [j, i]), slope(q, b, [j2, i2])];
            let simulated = simulation.covariance(quantities[0], quantities[1]).unwrap();
            let error = (simulated - exact_value) / exact.variance();
            assert!(error.abs() < 5e-4, "{quantities:?}: {error:e}");
        }
        assert_eq!(simulation.covariance(slope(0, 0, [8, 0]), slope(0, 0, [0, 0])), None);
    }

    // Rotate the whole field
    #[test]
    fn a_turned_sky_changes_nothing() {
        const TURN: f64 = 0.7;
        let rest = system(f64::INFINITY, 25.0, 0.0);
        let simulate = |turns: [f64; 2], sky: f64| {
            let mut stars = rest.guide_stars().to_vec();
            for (star, turn) in stars.iter_mut().zip(turns) {
                let [x, y] = star.sensor.source.direction();
                star.sensor.source = Source::star(x.hypot(y), y.atan2(x) + sky).unwrap();
                star.sensor.rotation = turn;
            }
            Simulation::new(&rest.to_builder().guide_stars(stars).build().unwrap()).unwrap()
        };
        let [one, other] = [simulate([0.0, TURN], 0.0), simulate([-TURN, 0.0], -TURN)];
        let slope = |star, axis, lenslet| Quantity::Slope { star, axis, lenslet };
        let variance = one.covariance(slope(0, 0, [0, 0]), slope(0, 0, [0, 0])).unwrap();
        for k in 0..64 {
            let quantities =
                [slope(0, k % 2, [k / 8, k % 8]), slope(1, k / 2 % 2, [(3 * k) % 8, k / 8])];
            let [here, there] = [&one, &other]
                .map(|turbulence| turbulence.covariance(quantities[0], quantities[1]).unwrap());
            let error = (here - there) / variance;
            assert!(error.abs() < 5e-4 && error != 0.0, "{quantities:?}: {error:e}");
        }
    }

    // Tests of turbulence realisations
    // Compare turned slopes with their covariance
    #[test]
    fn turned_slopes_are_drawn_as_announced() {
        let rest = system(90e3, 8.0, 0.0);
        let mut stars = rest.guide_stars().to_vec();
        stars[0].sensor = Sensor { rotation: -0.5, shift: [0.1, 0.2], ..stars[0].sensor };
        stars.iter_mut().for_each(|star| star.noise = Noise::uniform(0.0).unwrap());
        let simulation =
            Simulation::new(&rest.to_builder().guide_stars(stars).build().unwrap()).unwrap();
        let order = simulation.order();
        let places = [(0, 0, 3), (0, 1, 3), (0, 1, 30), (1, 0, 3), (1, 1, 20)];
        let realisations: Vec<Vec<f64>> =
            (0..250).map(|seed| simulation.realisation(seed).slopes).collect();
        let quantity = |(star, axis, k): (usize, usize, usize)| Quantity::Slope {
            star,
            axis,
            lenslet: order.lenslets(star)[k],
        };
        // Compare each pair of turned slopes
        for (one, other) in places.iter().flat_map(|&one| places.map(|other| (one, other))) {
            let announced =
                |one, other| simulation.covariance(quantity(one), quantity(other)).unwrap();
            let at = |place: (usize, usize, usize)| order.index(place.0, place.1, place.2);
            let products = realisations.iter().map(|slopes| slopes[at(one)] * slopes[at(other)]);
            let mean = products.sum::<f64>() / realisations.len() as f64;
            let (expected, scale) =
                (announced(one, other), announced(one, one) * announced(other, other));
            let error = ((scale + expected.powi(2)) / realisations.len() as f64).sqrt();
            assert!(
                (mean - expected).abs() < 4.0 * error,
                "{one:?} {other:?}: {mean:e} {expected:e}"
            );
        }
    }

    // Test the sign of a tilt
    #[test]
    fn wavefronts_that_rise_have_positive_slopes() {
        let system = system(f64::INFINITY, 400.0, 0.0);
        let (target, grid) = (system.guide_stars()[0].sensor.source, PhaseGrid::new(17, 2, 0.0));
        let builder = system.to_builder().targets([target]).phase(Some(grid.unwrap()));
        let system = builder.pupil(None).build().unwrap();
        let simulation = Simulation::new(&system).unwrap();
        for axis in [0, 1] {
            let (mut product, mut square) = (0.0, 0.0);
            for turbulence in (0..20).map(|seed| simulation.realisation(seed)) {
                let slopes = &turbulence.slopes[64 * axis..64 * (axis + 1)];
                let slope = slopes.iter().sum::<f64>() / 64.0;
                // The last column less the first, or the last row less the first; they are 4 m apart.
                let front = turbulence.wavefronts.index_axis(Axis(0), 0);
                let [low, high] =
                    [0, 16].map(|end| front.index_axis(Axis(1 - axis), end).mean().unwrap());
                product += slope * (high - low) / 4.0;
                square += slope * slope;
            }
            assert!((0.95..1.05).contains(&(product / square)), "{axis}: {}", product / square);
        }
    }

    // Reproduce realisations and their noise
    #[test]
    fn realisations_depend_on_their_seed_alone_and_noise_on_the_star() {
        let noisy = system(90e3, 25.0, 0.0);
        let mut stars = noisy.guide_stars().to_vec();
        stars.iter_mut().for_each(|star| star.noise = Noise::uniform(0.0).unwrap());
        let noiseless = noisy.to_builder().guide_stars(stars).build().unwrap();
        let [noisy, noiseless] = [noisy, noiseless].map(|system| Simulation::new(&system).unwrap());
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(noisy.realisation(3), one.install(|| noisy.realisation(3)));
        assert_ne!(noisy.realisation(3), noisy.realisation(4));
        let (mut square, mut count) = ([0.0; 2], [0.0; 2]);
        for seed in 0..20 {
            let (with, without) = (noisy.realisation(seed), noiseless.realisation(seed));
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

    // Test the rejection of invalid simulations
    #[test]
    fn what_cannot_be_simulated_is_refused() {
        let system = system(90e3, 25.0, 0.0);
        let sampling = Sampling { period: 0.5, ..Sampling::default() };
        assert!(Simulation::with_sampling(&system, &sampling).is_err());
        let absent = Quantity::Wavefront { target: 0, point: [7, 0] };
        assert_eq!(Simulation::new(&system).unwrap().covariance(absent, absent), None);
    }

    // Compare frames of neighbouring seeds
    #[test]
    fn frames_of_all_seeds_are_independent() {
        let system = system(f64::INFINITY, 25.0, 0.0);
        let engine = Engine::default();
        let mut frames: Vec<Vec<f64>> = Vec::new();
        for seed in [0, 1, 2, 3, u64::MAX, u64::MAX - 1] {
            let options = SimulationOptions::default().frames(4).seed(seed);
            let simulated = SimulationPlan::new(&system, options).unwrap().run(&engine, &unwatched);
            let simulated = simulated.unwrap().slopes;
            assert_eq!(
                simulated.row(0).to_vec(),
                Simulation::new(&system).unwrap().realisation(seed).slopes
            );
            frames.extend(simulated.rows().into_iter().map(|row| row.to_vec()));
        }
        // Slopes are correlated over the pupil: as many numbers as lenslets across are independent at least.
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        for (k, one) in frames.iter().enumerate() {
            for other in &frames[..k] {
                let correlation = dot(one, other) / (dot(one, one) * dot(other, other)).sqrt();
                assert!(correlation.abs() < 0.9, "{k}: {correlation}");
            }
        }
        // The mean correlation of all pairs vanishes.
        let sums: Vec<f64> =
            (0..frames[0].len()).map(|n| frames.iter().map(|f| f[n]).sum()).collect();
        let ratio = dot(&sums, &sums) / frames.iter().map(|frame| dot(frame, frame)).sum::<f64>();
        assert!((0.5..1.7).contains(&ratio), "{ratio}");
    }

    // Generate correlated noise in blocks
    #[test]
    fn noise_of_a_lenslet_has_its_block() {
        let rest = system(90e3, 25.0, 0.0);
        let mut stars = rest.guide_stars().to_vec();
        let lenslets = rest.valid_lenslets()[0].iter().filter(|valid| **valid).count();
        let block = [[4e-14, -3e-14], [-3e-14, 5e-14]];
        stars[0].noise = Noise::blocks(&vec![block; lenslets]).unwrap();
        let noisy = rest.to_builder().guide_stars(stars.clone()).build().unwrap();
        stars[0].noise = Noise::uniform(0.0).unwrap();
        let quiet = rest.to_builder().guide_stars(stars).build().unwrap();
        let [noisy, quiet] = [noisy, quiet].map(|system| Simulation::new(&system).unwrap());
        let (mut sums, mut count) = ([0.0; 3], 0.0);
        // Sum the squares of noise
        for seed in 0..20 {
            let (with, without) = (noisy.realisation(seed).slopes, quiet.realisation(seed).slopes);
            let noise: Vec<f64> =
                with.iter().zip(without).map(|(with, without)| with - without).collect();
            for k in 0..lenslets {
                let (x, y) = (noise[k], noise[lenslets + k]);
                sums = [sums[0] + x * x, sums[1] + x * y, sums[2] + y * y];
                count += 1.0;
            }
        }
        let errors =
            [2.0 * 16e-28, 20e-28 + 9e-28, 2.0 * 25e-28].map(|square: f64| (square / count).sqrt());
        for ((sum, error), expected) in sums.into_iter().zip(errors).zip([4e-14, -3e-14, 5e-14]) {
            assert!(
                (sum / count - expected).abs() < 4.0 * error,
                "{} {expected} ± {error}",
                sum / count
            );
        }
    }

    // Move turbulence with the wind
    #[test]
    fn the_wind_moves_turbulence() {
        let rest = system(f64::INFINITY, 25.0, 0.0);
        let layer = |altitude, direction| Layer {
            wind_speed: 25.0,
            wind_direction: direction,
            ..Layer::new(altitude, 0.5, 20.0)
        };
        let moving = |direction: f64| {
            let layers = vec![layer(0.0, direction), layer(6e3, direction)];
            let air = Atmosphere::new(0.15, 500e-9, layers).unwrap();
            let mut stars = rest.guide_stars().to_vec();
            // One of the sensors is turned by a right angle: its x is the y of the pupil.
            stars[1].sensor.rotation = 0.5 * PI;
            let system = rest.to_builder().atmosphere(air).guide_stars(stars).pupil(None).build();
            let options = SimulationOptions::default().lasting(0.04);
            Simulation::with_options(&system.unwrap(), options).unwrap()
        };
        // 20 ms are a lenslet, and two points of the wavefront, to one side or the other.
        for (direction, [v, u]) in [(0.0, [0, 1]), (0.5 * PI, [1, 0]), (-0.5 * PI, [-1, 0])] {
            let simulation = moving(direction);
            let turbulence = simulation.turbulence(5);
            let (before, after) = (turbulence.slopes(0.01), turbulence.slopes(0.03));
            let at = |slopes: &[f64], star: usize, axis: usize, j: i32, i: i32| -> f64 {
                slopes[128 * star + 64 * axis + (8 * j + i) as usize]
            };
            for (j, i, axis) in [(3, 4, 0), (2, 5, 1), (5, 2, 0)] {
                let [was, is] = [at(&before, 0, axis, j, i), at(&after, 0, axis, j + v, i + u)];
                assert!((was / is - 1.0).abs() < 1e-9, "{direction} {axis}: {was:e} {is:e}");
                // Seen by the turned sensor, whose axes are (0, 1) and (−1, 0).
                let [was, is] = [at(&before, 1, axis, j, i), at(&after, 1, axis, j - u, i + v)];
                assert!(
                    (was / is - 1.0).abs() < 1e-9,
                    "turned, {direction} {axis}: {was:e} {is:e}"
                );
            }
            let (before, after) = (turbulence.wavefronts(0.01), turbulence.wavefronts(0.03));
            let moved = [3 + 2 * v, 3 + 2 * u].map(|k| k as usize);
            for t in 0..2 {
                let (was, is) = (before[[t, 3, 3]], after[[t, moved[0], moved[1]]]);
                assert!(
                    (was / is - 1.0).abs() < 1e-9,
                    "wavefront {t}, {direction}: {was:e} {is:e}"
                );
            }
            assert_eq!(simulation.realisation(5).wavefronts, turbulence.wavefronts(0.0));
        }
        let forever = SimulationOptions::default().lasting(f64::INFINITY);
        assert!(Simulation::with_options(&rest, forever).is_err());
        // Noise is new in each exposure.
        let simulation = moving(0.0);
        let mut turbulence = simulation.turbulence(5);
        assert_ne!(turbulence.noise(), turbulence.noise());
    }
}
