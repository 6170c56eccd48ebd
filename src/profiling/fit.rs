// Tangled from book/src/learning.md: edit there, or here and run cargo tangle stitch.
//! Turbulence profiles, and where sensors look, learned from measured slopes.

// Imports of learning
use crate::data::DataSet;
use crate::device::{CostKind, Engine, Workers, gather};
use crate::error::{Error, Invalid, accept, count};
use crate::estimation::estimate::check_slopes;
use crate::linear::least_squares::{Fitted, LeastSquares, Normal, Residuals};
use crate::model::atmosphere::{Atmosphere, Layer};
use crate::model::noise::{GuideStar, Noise};
use crate::model::sensor::Sensor;
use crate::model::system::System;
use crate::plan::{Description, Memory, Plan, Stage};
use crate::profiling::covariance_maps::{MapLayout, MapPair, SlopeMaps};
use crate::turbulence::cross_covariance::lags::{Displaced, turned_covariance};
use crate::turbulence::cross_covariance::{self, PhaseTables};
use crate::turbulence::direct::slope::pair_alone;
use crate::turbulence::rotated_footprints::Turn;
use crate::turbulence::slope::{PairCovariance, SlopeProblem};
use crate::units::DEGREE;
use crate::watch::{CancelOnly, Watch};
use ndarray::{ArcArray2, Array1, Array2, ArrayView2, s};
use std::fmt::{self, Display};
use std::ops::Range;

// Groups of learned parameters
/// A group of parameters that are fitted together or kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum ParameterGroup {
    /// The strength of each layer: Fried parameter and fractions.
    Strengths,
    /// The altitude of each layer that does not start at the ground.
    Altitudes,
    /// One outer scale of all layers.
    OuterScale,
    /// The shift of each sensor but the first.
    Shifts,
    /// The rotation of each sensor.
    Rotations,
    /// The magnification of each sensor.
    Magnifications,
}

// Parameters of a fit
/// A parameter of the fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Parameter {
    /// The strength of a layer, in units of r0^(−5/3) of the system that learning starts from.
    Strength(usize),
    /// The altitude of a layer, m.
    Altitude(usize),
    /// The outer scale, m.
    OuterScale,
    /// The shift of a star's sensor along x (0) or y (1), m.
    Shift(usize, usize),
    /// The rotation of a star's sensor, rad.
    Rotation(usize),
    /// The magnification of a star's sensor.
    Magnification(usize),
    /// The covariance of a star's noise: xx (0), xy (1) or yy (2), rad².
    Noise(usize, usize),
}

// Names of groups and parameters
impl ParameterGroup {
    /// All groups with their names.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("strengths", Self::Strengths),
        ("altitudes", Self::Altitudes),
        ("outer-scale", Self::OuterScale),
        ("shifts", Self::Shifts),
        ("rotations", Self::Rotations),
        ("magnifications", Self::Magnifications),
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// The parameters of the group in a system.
    fn parameters(self, system: &System) -> Vec<Parameter> {
        let layers = system.atmosphere().layers();
        let stars = system.guide_stars().len();
        let aloft = (0..layers.len()).filter(|&l| layers[l].altitude > 0.0);
        match self {
            Self::Strengths => (0..layers.len()).map(Parameter::Strength).collect(),
            Self::Altitudes => aloft.map(Parameter::Altitude).collect(),
            Self::OuterScale => vec![Parameter::OuterScale],
            Self::Shifts => {
                (1..stars).flat_map(|q| [0, 1].map(|axis| Parameter::Shift(q, axis))).collect()
            }
            Self::Rotations => (0..stars).map(Parameter::Rotation).collect(),
            Self::Magnifications => (0..stars).map(Parameter::Magnification).collect(),
        }
    }
}

impl Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Strength(l) => write!(f, "strength of layer {l}"),
            Self::Altitude(l) => write!(f, "altitude of layer {l}"),
            Self::OuterScale => write!(f, "outer scale"),
            Self::Shift(q, axis) => write!(f, "shift of star {q} along {}", ["x", "y"][*axis]),
            Self::Rotation(q) => write!(f, "rotation of star {q}"),
            Self::Magnification(q) => write!(f, "magnification of star {q}"),
            Self::Noise(q, k) => write!(f, "noise of star {q}, {}", ["xx", "xy", "yy"][*k]),
        }
    }
}

// Maps and derivatives of a fit
// State of a fit
/// The current values of all parameters of a fit.
#[derive(Debug, Clone)]
struct FitState {
    /// The layers; their fractions are strengths.
    layers: Vec<Layer>,
    sensors: Vec<Sensor>,
    /// Noise covariance of each star's slopes, rad²: xx, xy and yy.
    noise: Vec<[f64; 3]>,
}

impl FitState {
    // The state of a fit from a system
    fn of(system: &System) -> Self {
        let mean = |star: &GuideStar, q: usize| {
            let lenslets = system.valid_lenslets()[q].iter().filter(|valid| **valid).count();
            let blocks = (0..lenslets).map(|k| star.noise.block(k));
            let sum = blocks.fold([0.0; 3], |sum, block| [0, 1, 2].map(|i| sum[i] + block[i]));
            sum.map(|sum| sum / lenslets.max(1) as f64)
        };
        let stars = system.guide_stars().iter().enumerate();
        Self {
            layers: system.atmosphere().layers().to_vec(),
            sensors: system.sensors(),
            noise: stars.map(|(q, star)| mean(star, q)).collect(),
        }
    }

    /// The state with one outer scale for all layers: their geometric mean, weighted by strength.
    fn with_one_outer_scale(mut self) -> Self {
        let sum: f64 = self.layers.iter().map(|layer| layer.fraction).sum();
        let logs = self.layers.iter().map(|layer| layer.fraction / sum * layer.outer_scale.ln());
        let mean = logs.sum();
        let alike = self.layers.iter().all(|layer| layer.outer_scale == self.layers[0].outer_scale);
        if !alike {
            self.set(Parameter::OuterScale, mean);
        }
        self
    }

    // Get and set one parameter
    /// The value of a parameter, as the fit varies it.
    fn get(&self, parameter: Parameter) -> f64 {
        match parameter {
            Parameter::Strength(l) => self.layers[l].fraction,
            Parameter::Altitude(l) => self.layers[l].altitude,
            Parameter::OuterScale => self.layers[0].outer_scale.ln(),
            Parameter::Shift(q, axis) => self.sensors[q].shift[axis],
            Parameter::Rotation(q) => self.sensors[q].rotation,
            Parameter::Magnification(q) => self.sensors[q].magnification,
            Parameter::Noise(q, k) => self.noise[q][k],
        }
    }

    fn set(&mut self, parameter: Parameter, value: f64) {
        match parameter {
            Parameter::Strength(l) => self.layers[l].fraction = value,
            Parameter::Altitude(l) => self.layers[l].altitude = value,
            Parameter::OuterScale => {
                self.layers.iter_mut().for_each(|layer| layer.outer_scale = value.exp());
            }
            Parameter::Shift(q, axis) => self.sensors[q].shift[axis] = value,
            Parameter::Rotation(q) => self.sensors[q].rotation = value,
            Parameter::Magnification(q) => self.sensors[q].magnification = value,
            Parameter::Noise(q, k) => self.noise[q][k] = value,
        }
    }

    // Bounds and steps of a parameter
    /// The half width of the widest array, m.
    fn half_width(&self) -> f64 {
        let half = |sensor: &Sensor| 0.5 * sensor.array.lenslets() as f64 * sensor.side();
        self.sensors.iter().map(half).fold(0.0, f64::max)
    }

    fn bounds(&self, parameter: Parameter) -> [f64; 2] {
        let (now, half) = (self.get(parameter), self.half_width());
        let height = |sensor: &Sensor| sensor.source.height();
        let lowest = self.sensors.iter().map(height).fold(f64::INFINITY, f64::min);
        match parameter {
            Parameter::Strength(_) => [0.0, 1e6],
            Parameter::Altitude(_) => [0.0, now.max((0.95 * lowest).min(1e5))],
            Parameter::OuterScale => {
                let side = self.sensors.iter().map(Sensor::side).fold(0.0, f64::max);
                [side.ln().min(now), (1e4 * half).ln().max(now)]
            }
            Parameter::Shift(..) => [(now - half).max(-1e3), (now + half).min(1e3)],
            Parameter::Rotation(_) => {
                [(now - 0.5).max(-360.0 * DEGREE), (now + 0.5).min(360.0 * DEGREE)]
            }
            Parameter::Magnification(_) => [(0.8 * now).max(0.1), (1.25 * now).min(10.0)],
            Parameter::Noise(..) => [f64::NEG_INFINITY, f64::INFINITY],
        }
    }

    /// The step of a difference; it leads away from the upper bound.
    fn step(&self, parameter: Parameter, [_, high]: [f64; 2]) -> f64 {
        let step = match parameter {
            Parameter::Altitude(_) => 1.0,
            Parameter::Shift(..) => 2e-4 * self.half_width(),
            _ => 1e-4,
        };
        if self.get(parameter) + step > high { -step } else { step }
    }

    /// The standard error of a parameter beyond which a warning is reported.
    fn size(&self, parameter: Parameter) -> f64 {
        let sensor = |q: usize| &self.sensors[q];
        let edge = |q: usize| 2.0 / sensor(q).array.lenslets() as f64;
        match parameter {
            Parameter::OuterScale => 1.0,
            Parameter::Shift(q, _) => sensor(q).side(),
            Parameter::Rotation(q) | Parameter::Magnification(q) => edge(q),
            Parameter::Noise(_, 1) => f64::INFINITY,
            other => self.get(other).abs(),
        }
    }
}

// Maps of a system and its layers
/// The system, maps and valid lenslets that all states of a fit share.
#[derive(Debug, Clone)]
struct Geometry {
    system: System,
    layout: MapLayout,
    valid: Vec<Array2<bool>>,
}

impl Geometry {
    // Map of two sensors through a layer
    /// The map of two sensors through one layer of strength 1, Λ_l of Eq. [learned maps](https://lenslet.github.io/lenslet/learning.html#eq-learned-maps).
    fn unit_map(
        &self,
        layer: &Layer,
        sensors: [Sensor; 2],
        pair: &MapPair,
        tables: &PhaseTables,
    ) -> Result<Array1<f64>, Error> {
        if sensors[0].shares_lattice_with(&sensors[1]) {
            return Ok(self.spread(pair, &self.lags(layer, sensors)?));
        }
        if are_turned(sensors) {
            let turned = self.turned(layer, sensors, pair, tables)?;
            return Ok(self.layout.average(pair, turned.covariance));
        }
        // Average the covariances of all pairs
        let (air, gradient) = (self.air(layer)?, self.system.cone_gradient());
        let valid = pair.stars.map(|star| self.valid[star].clone());
        let [first, second] = [0, 1].map(|k| (&sensors[k..=k], &valid[k..=k]));
        let covariance = cross_covariance::slope_cross_covariance_with_tables(
            &air,
            [first, second],
            gradient,
            tables,
        )?;
        Ok(self.layout.average(pair, covariance))
    }

    // Covariance of two turned sensors
    /// The covariance of two sensors that are turned against each other, lag by lag.
    fn turned(
        &self,
        layer: &Layer,
        sensors: [Sensor; 2],
        pair: &MapPair,
        tables: &PhaseTables,
    ) -> Result<Displaced, Error> {
        let posed = (&self.air(layer)?, self.system.cone_gradient());
        let lenslets = pair.stars.map(|star| self.layout.order().lenslets(star));
        let number = |first, other| {
            let [j, i] = pair.lag_of(first, other);
            j * pair.lags() + i
        };
        turned_covariance(posed, &sensors, lenslets, tables, number)
    }

    // Lags of a layer alone
    /// The covariance of two sensors that share a lattice through one layer of strength 1, at all lags.
    fn lags(&self, layer: &Layer, sensors: [Sensor; 2]) -> Result<PairCovariance, Error> {
        let gradient = self.system.cone_gradient();
        let problem = SlopeProblem::of_sensors(&self.air(layer)?, &sensors, gradient)?;
        Ok(pair_alone(&problem, (0, 1)))
    }

    /// The air with a layer alone.
    fn air(&self, layer: &Layer) -> Result<Atmosphere, Invalid> {
        let air = self.system.atmosphere();
        let alone = vec![Layer { fraction: 1.0, ..*layer }];
        Atmosphere::new(air.fried_parameter(), air.wavelength(), alone)
    }

    // Expand lags to pairs of lenslets
    /// The map of two stars that share a lattice, given their covariance at all lags.
    fn spread(&self, pair: &MapPair, lags: &PairCovariance) -> Array1<f64> {
        let modes = self.layout.has_modes(pair.stars[0]) || self.layout.has_modes(pair.stars[1]);
        if !modes {
            let mut map = Array1::zeros(pair.len());
            for ((j, i), _) in pair.counts().indexed_iter().filter(|(_, count)| **count > 0.0) {
                for (axes, component) in [0, 1, 1, 2].into_iter().enumerate() {
                    map[pair.place(axes, [j, i])] = lags[[component, j, i]];
                }
            }
            return map;
        }
        let [firsts, others] = pair.stars.map(|star| self.layout.order().lenslets(star));
        let (m, n) = (firsts.len(), others.len());
        let of_pair = |(row, column): (usize, usize)| {
            let [j, i] = pair.lag_of(firsts[row % m], others[column % n]);
            lags[[row / m + column / n, j, i]]
        };
        self.layout.average(pair, Array2::from_shape_fn((2 * m, 2 * n), of_pair))
    }

    // The map of noise
    /// The map of the noise of a star, of the variance 1: xx (0), xy (1) or yy (2).
    fn noise_map(&self, pair: &MapPair, element: usize) -> Array1<f64> {
        let n = self.layout.order().lenslets(pair.stars[0]).len();
        let of_pair = |(row, column): (usize, usize)| {
            let same = row % n == column % n && row / n + column / n == element;
            f64::from(u8::from(same))
        };
        self.layout.average(pair, Array2::from_shape_fn((2 * n, 2 * n), of_pair))
    }
}

// Derivatives of a layer map
/// The map of a layer of strength 1, and its derivatives where they were computed with it.
struct LayerMap {
    map: Array1<f64>,
    slopes: Option<TurnedMapChange>,
}

/// How the map of two turned sensors changes.
struct TurnedMapChange {
    /// With a displacement of the second on the layer, along x and along y of the pupil; per metre.
    moved: [Array1<f64>; 2],
    /// With the rotation of either; per radian.
    turned: [Array1<f64>; 2],
}

// Derivatives of a map by rotations
impl Geometry {
    // Slopes of two rotated sensors
    /// The map of two turned sensors, and how it changes.
    fn turned_unit(
        &self,
        layer: &Layer,
        sensors: [Sensor; 2],
        pair: &MapPair,
        tables: &PhaseTables,
    ) -> Result<LayerMap, Error> {
        let Displaced { covariance, slopes } = self.turned(layer, sensors, pair, tables)?;
        let gamma = sensors.map(|sensor| sensor.source.cone_factor(layer.altitude));
        let turned = [0, 1].map(|turned| {
            let entry = |row, column| {
                let slopes = [0, 1].map(|k| gamma[turned] * slopes[k][[row, column]]);
                (covariance[[row, column]], slopes)
            };
            self.join_turning(pair, &sensors, turned, entry)
        });
        let along = slopes.map(|slope| self.layout.average(pair, slope));
        let axes = sensors[0].axes();
        let moved = [0, 1].map(|k| &along[0] * axes[0][k] + &along[1] * axes[1][k]);
        let map = self.layout.average(pair, covariance);
        Ok(LayerMap { map, slopes: Some(TurnedMapChange { moved, turned }) })
    }

    // Derivative by a rotation on a lattice
    /// How a map of two sensors that share a lattice changes with the rotation of one of them, per radian, Eq. [turning](https://lenslet.github.io/lenslet/fitted-maps.html#eq-turning).
    fn turning_map(
        &self,
        layer: &Layer,
        [first, second]: [Sensor; 2],
        pair: &MapPair,
        turned: usize,
    ) -> Result<Array1<f64>, Error> {
        let (axes, step) = (first.axes(), 0.01 * first.side());
        let shifted = |axis: usize, by: f64| {
            let shift = [0, 1].map(|k| second.shift[k] + by * axes[axis][k]);
            self.lags(layer, [first, Sensor { shift, ..second }])
        };
        let slope =
            |axis| Ok::<_, Error>((shifted(axis, step)? - shifted(axis, -step)?) / (2.0 * step));
        let (still, slopes) = (shifted(0, 0.0)?, [slope(0)?, slope(1)?]);
        let stars = pair.stars.map(|star| self.layout.order().lenslets(star));
        let (m, n) = (stars[0].len(), stars[1].len());
        let entry = |row: usize, column: usize| {
            let [j, i] = pair.lag_of(stars[0][row % m], stars[1][column % n]);
            let at = [row / m + column / n, j, i];
            (still[at], [slopes[0][at], slopes[1][at]])
        };
        Ok(self.join_turning(pair, &[first, second], turned, entry))
    }

    // Combine derivatives of a rotation
    /// Eq. [turning](https://lenslet.github.io/lenslet/fitted-maps.html#eq-turning) for one of two sensors, given covariances and their derivatives by row and column; these by displacements of the
    /// second along the axes of the first, in metres on the pupil.
    fn join_turning(
        &self,
        pair: &MapPair,
        sensors: &[Sensor; 2],
        turned: usize,
        entry: impl Fn(usize, usize) -> (f64, [f64; 2]),
    ) -> Array1<f64> {
        let stars = pair.stars.map(|star| self.layout.order().lenslets(star));
        let (m, n) = (stars[0].len(), stars[1].len());
        let (sign, sensor) = ([-1.0, 1.0][turned], &sensors[turned]);
        let (sin, cos) = (sensor.rotation - sensors[0].rotation).sin_cos();
        let of_pair = |(row, column): (usize, usize)| {
            let lenslet = [stars[0][row % m], stars[1][column % n]][turned];
            let along = |k: usize| sensor.magnification * sensor.array.centre(lenslet[k]);
            let (x, y) = (cos * along(1) - sin * along(0), sin * along(1) + cos * along(0));
            let (_, slopes) = entry(row, column);
            // The other axis of the sensor that is turned, with the axis of the other one.
            let axis = [row / m, column / n][turned];
            let other = [(row + m) % (2 * m), (column + n) % (2 * n)];
            let (mixed, _) = entry([other[0], row][turned], [column, other[1]][turned]);
            sign * (x * slopes[1] - y * slopes[0]) + [1.0, -1.0][axis] * mixed
        };
        self.layout.average(pair, Array2::from_shape_fn((2 * m, 2 * n), of_pair))
    }
}

// Limit of rotations for patch slopes
/// Whether a turn moves no lenslet by more than about one against those of the other sensor, so that patches tell slopes.
fn are_turned_little([first, second]: [Sensor; 2]) -> bool {
    let (sin, cos) = (second.rotation - first.rotation).sin_cos();
    let lenslets = first.array.lenslets().max(second.array.lenslets());
    cos > 0.0 && 0.5 * lenslets as f64 * sin.abs() < 1.0
}

/// Whether one sensor is turned against the other by more than quarter turns.
fn are_turned([first, second]: [Sensor; 2]) -> bool {
    Turn::by(second.rotation - first.rotation).sin != 0.0
}

// Derivatives of the maps
/// The model of a fit: the maps of its current state, compared with the measured ones.
struct FitModel<'a> {
    geometry: &'a Geometry,
    parameters: &'a [Parameter],
    bounds: &'a [[f64; 2]],
    measured: &'a Array1<f64>,
    weights: &'a MapWeights,
    /// The state that was evaluated last, with the maps of its layers, by pairs, all for strength 1.
    state: FitState,
    units: Vec<Vec<LayerMap>>,
    /// The maps of each star's noise, xx, xy and yy, with the star's own pair.
    noise: Vec<(usize, [Array1<f64>; 3])>,
    tables: PhaseTables,
    watch: &'a dyn Watch,
}

// Steps of the model of a fit
// Request of one map
/// A map that is to be computed: of a layer and sensors, for a pair.
struct MapRequest {
    layer: Layer,
    sensors: [Sensor; 2],
    pair: usize,
    what: What,
}

/// Kind of a requested map.
#[derive(Clone, Copy, PartialEq)]
enum What {
    /// The map alone.
    Map,
    /// How it changes as well, if the sensors are turned.
    Slopes,
    /// Its derivative by the rotation of one of two sensors that share a lattice.
    Turning(usize),
}

impl FitModel<'_> {
    // Compute many maps at once
    fn compute(&self, requests: Vec<MapRequest>) -> Result<Vec<LayerMap>, Error> {
        let map = |geometry: &&Geometry, request: MapRequest| {
            let MapRequest { layer, sensors, pair, what } = request;
            let pair = &geometry.layout.pairs()[pair];
            let map = match what {
                What::Slopes if are_turned(sensors) && are_turned_little(sensors) => {
                    return geometry.turned_unit(&layer, sensors, pair, &self.tables);
                }
                What::Turning(turned) => geometry.turning_map(&layer, sensors, pair, turned)?,
                _ => geometry.unit_map(&layer, sensors, pair, &self.tables)?,
            };
            Ok(LayerMap { map, slopes: None })
        };
        gather(Workers::cores(&self.geometry), requests, &CancelOnly(self.watch), map)
    }

    /// Evaluates the maps for other parameters.
    fn look_at(&mut self, parameters: &[f64]) -> Result<(), Error> {
        let known = !self.units.is_empty()
            && self.parameters.iter().zip(parameters).all(|(key, u)| self.state.get(*key) == *u);
        if known {
            return Ok(());
        }
        let mut state = self.state.clone();
        self.parameters.iter().zip(parameters).for_each(|(key, u)| state.set(*key, *u));
        let linear = |key: &Parameter| matches!(key, Parameter::Strength(_) | Parameter::Noise(..));
        let same = |key: &Parameter| linear(key) || self.state.get(*key) == state.get(*key);
        if self.units.is_empty() || !self.parameters.iter().all(same) {
            let pairs = self.geometry.layout.pairs();
            let of_layer = |layer: &Layer| {
                let pairs = pairs.iter().enumerate();
                let request = |(pair, stars): (usize, &MapPair)| MapRequest {
                    layer: *layer,
                    sensors: stars.stars.map(|star| state.sensors[star]),
                    pair,
                    what: What::Slopes,
                };
                pairs.map(request).collect::<Vec<_>>()
            };
            let maps = self.compute(state.layers.iter().flat_map(of_layer).collect())?;
            let mut maps = maps.into_iter();
            let layers = 0..state.layers.len();
            self.units = layers.map(|_| maps.by_ref().take(pairs.len()).collect()).collect();
        }
        self.state = state;
        Ok(())
    }

    // Sum the maps of a fit state
    /// Γ(β), Eq. [learned maps](https://lenslet.github.io/lenslet/learning.html#eq-learned-maps).
    fn maps(&self) -> Array1<f64> {
        let mut sum = Array1::zeros(self.geometry.layout.len());
        for (pair, at) in self.geometry.layout.pairs().iter().enumerate() {
            let mut sum = sum.slice_mut(s![at.range()]);
            for (layer, units) in self.state.layers.iter().zip(&self.units) {
                sum.scaled_add(layer.fraction, &units[pair].map);
            }
            for ((own, maps), noise) in self.noise.iter().zip(&self.state.noise) {
                if *own == pair {
                    maps.iter().zip(noise).for_each(|(map, noise)| sum.scaled_add(*noise, map));
                }
            }
        }
        sum
    }

    // Request maps for a derivative
    /// The maps that a step of a number changes, each with its layer and with the derivative's factor.
    fn changed(&self, key: Parameter, step: f64) -> Vec<(usize, f64, MapRequest)> {
        let mut moved = self.state.clone();
        moved.set(key, self.state.get(key) + step);
        let mut changed = Vec::new();
        for (l, layer) in moved.layers.iter().enumerate().filter(|(_, layer)| layer.fraction > 0.0)
        {
            for (pair, at) in self.geometry.layout.pairs().iter().enumerate() {
                let sensors = at.stars.map(|star| moved.sensors[star]);
                // Maps that depend on a parameter
                let cone = sensors[0].source.height().is_finite();
                let matters = match key {
                    Parameter::Altitude(of) => of == l && (cone || !at.is_own()),
                    Parameter::OuterScale => true,
                    Parameter::Magnification(star) => at.stars.contains(&star),
                    Parameter::Shift(star, _) | Parameter::Rotation(star) => {
                        at.stars.contains(&star) && !at.is_own()
                    }
                    Parameter::Strength(_) | Parameter::Noise(..) => false,
                };
                // Use derivatives of a lattice for rotations
                let now = at.stars.map(|star| self.state.sensors[star]);
                let (sensors, step, what) = match key {
                    Parameter::Rotation(star) if now[0].shares_lattice_with(&now[1]) => {
                        (now, 1.0, What::Turning(usize::from(at.stars[1] == star)))
                    }
                    _ => (sensors, step, What::Map),
                };
                if matters {
                    let request = MapRequest { layer: *layer, sensors, pair, what };
                    changed.push((l, layer.fraction / step, request));
                }
            }
        }
        changed
    }

    // Derivatives known with the maps
    /// The derivative of the map of a layer and a pair by a parameter, where it came with the map.
    fn slope(&self, key: Parameter, l: usize, pair: usize) -> Option<Array1<f64>> {
        let TurnedMapChange { moved, turned } = self.units[l][pair].slopes.as_ref()?;
        let stars = self.geometry.layout.pairs()[pair].stars;
        let sources = stars.map(|star| &self.state.sensors[star].source);
        let along = |[x, y]: [f64; 2]| &moved[0] * x + &moved[1] * y;
        match key {
            Parameter::Rotation(star) => Some(turned[usize::from(stars[1] == star)].clone()),
            Parameter::Shift(star, axis) => {
                let gamma = |k: usize| sources[k].cone_factor(self.state.layers[l].altitude);
                let by = if stars[1] == star { gamma(1) } else { -gamma(0) };
                Some(&moved[axis] * by)
            }
            Parameter::Altitude(_)
                if sources.iter().all(|source| source.height().is_infinite()) =>
            {
                Some(along(sources[0].shift_to(sources[1], 1.0)))
            }
            _ => None,
        }
    }
}

// Residuals and derivatives of a fit state
impl Residuals for FitModel<'_> {
    fn residuals(&mut self, parameters: &[f64]) -> Result<Array1<f64>, Error> {
        self.look_at(parameters)?;
        Ok(self.weights.apply(&(self.maps() - self.measured)))
    }

    fn jacobian(&mut self, parameters: &[f64]) -> Result<Array2<f64>, Error> {
        self.look_at(parameters)?;
        let pairs = self.geometry.layout.pairs();
        let mut jacobian = Array2::zeros((self.geometry.layout.len(), parameters.len()));
        let (mut places, mut requests) = (Vec::new(), Vec::new());
        for (k, key) in self.parameters.iter().enumerate() {
            // Fill the columns of linear parameters
            match *key {
                Parameter::Strength(l) => {
                    for (unit, pair) in self.units[l].iter().zip(pairs) {
                        jacobian.slice_mut(s![pair.range(), k]).assign(&unit.map);
                    }
                }
                Parameter::Noise(q, element) => {
                    let (own, maps) = &self.noise[q];
                    jacobian.slice_mut(s![pairs[*own].range(), k]).assign(&maps[element]);
                }
                _ => {}
            }
            // Request the maps of a derivative
            let step = self.state.step(*key, self.bounds[k]);
            for (l, factor, map) in self.changed(*key, step) {
                let mut column = jacobian.slice_mut(s![pairs[map.pair].range(), k]);
                match self.slope(*key, l, map.pair) {
                    Some(slope) => column.scaled_add(self.state.layers[l].fraction, &slope),
                    None => {
                        places.push((k, l, factor));
                        requests.push(map);
                    }
                }
            }
        }
        let kinds: Vec<(usize, What)> = requests.iter().map(|map| (map.pair, map.what)).collect();
        let maps = self.compute(requests)?;
        // Fill the columns of other parameters
        for ((k, l, factor), ((pair, what), unit)) in
            places.into_iter().zip(kinds.into_iter().zip(maps))
        {
            let mut column = jacobian.slice_mut(s![pairs[pair].range(), k]);
            let is_slope = matches!(what, What::Turning(_));
            let change = if is_slope { unit.map } else { unit.map - &self.units[l][pair].map };
            column.scaled_add(factor, &change);
        }
        Ok(self.weights.apply_to_columns(&jacobian))
    }
}
// The plan of learning
/// Options of a fit of turbulence and sensors to measured slopes.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
#[non_exhaustive]
pub struct LearnOptions {
    /// Groups of parameters that are fitted; the noise is always fitted.
    pub fit: Vec<ParameterGroup>,
    /// Largest number of steps of the fit.
    pub steps: usize,
}

// Plan of a fit to measured slopes
/// Plan of a fit of a system to measured slopes.
///
/// ```
/// use lenslet::{watch::unwatched, model::System, profiling::{LearnOptions, LearnPlan}};
/// let truth = System::from_file("book/systems/small-moao.toml")?;
/// let maps = LearnPlan::new(&truth, LearnOptions::default())?.expected(&unwatched)?;
/// let wrong = std::fs::read_to_string("book/systems/small-moao.toml")?;
/// let wrong = wrong.replace("altitude = 4500.0", "altitude = 4200.0").replace("r0 = 0.15", "r0 = 0.2");
/// let start = System::from_toml(&wrong, "wrong.toml")?;
/// let learned = LearnPlan::new(&start, LearnOptions::default())?.fit(maps, &unwatched)?;
/// assert!((learned.system.atmosphere().fried_parameter() - 0.15).abs() < 1e-7);
/// assert!((learned.system.atmosphere().layers()[1].altitude - 4500.0).abs() < 1e-2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct LearnPlan {
    geometry: Geometry,
    options: LearnOptions,
    parameters: Vec<Parameter>,
    start: FitState,
    frames: usize,
    /// Slopes (frames, n), rad, from which a run learns.
    measured: Option<ArcArray2<f64>>,
    checks: SlopeChecks,
}

// Checks of slopes before a fit
/// Checks of slopes before a system is fitted to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct SlopeChecks {
    /// Whether [the unit](LearnPlan::check_unit) of the slopes is checked.
    pub unit: bool,
    /// Whether [the order](LearnPlan::check_order) of the slopes is checked.
    pub order: bool,
}

// Steps of the plan of learning
impl LearnPlan {
    // Plan the fitted parameters
    /// Plans to learn a system, starting from one.
    ///
    /// # Errors
    /// `Invalid` where nothing is to be learned: no group at all, altitudes without a layer above the ground, shifts of a single star;
    /// where an infinite outer scale is to be fitted, or slopes are differences between points.
    pub fn new(system: &System, options: LearnOptions) -> Result<Self, Error> {
        system.expect_slopes()?;
        system.expect_average("measured slopes are averages of the gradient")?;
        let names = ParameterGroup::NAMES.map(|(name, _)| name).join(", ");
        let expected = format!("at least one of {names}");
        accept(!options.fit.is_empty(), "fit", "nothing", &expected)?;
        let mut parameters: Vec<Parameter> = Vec::new();
        for (name, unknown) in
            ParameterGroup::NAMES.iter().filter(|(_, one)| options.fit.contains(one))
        {
            let own = unknown.parameters(system);
            let expected = match unknown {
                ParameterGroup::Altitudes => {
                    "no altitudes, as all layers of the system are at the ground, where they stay"
                }
                _ => {
                    "no shifts, as the system has a single guide star, and only shifts against others are seen"
                }
            };
            accept(!own.is_empty(), "fit", name, expected)?;
            parameters.extend(own);
        }
        let mut start = FitState::of(system);
        if options.fit.contains(&ParameterGroup::OuterScale) {
            let finite =
                system.atmosphere().layers().iter().all(|layer| layer.outer_scale.is_finite());
            let expected = "finite outer scales of all layers, to begin from where one is learned";
            accept(finite, "outer_scale", f64::INFINITY, expected)?;
            start = start.with_one_outer_scale();
        }
        let stars = 0..system.guide_stars().len();
        parameters.extend(stars.flat_map(|q| [0, 1, 2].map(|k| Parameter::Noise(q, k))));
        let (layout, valid) = (MapLayout::new(system), system.valid_lenslets());
        let geometry = Geometry { system: system.clone(), layout, valid };
        let (frames, checks) = (1000, SlopeChecks::default());
        Ok(Self { geometry, options, parameters, start, frames, measured: None, checks })
    }

    // Queries of the plan of learning
    /// Sets the number of frames for which the plan estimates memory and time.
    pub fn frames(self, frames: usize) -> Self {
        Self { frames, ..self }
    }

    /// Sets the slopes (frames, n), rad, from which a run learns.
    ///
    /// # Errors
    /// As [`check_slopes`](Self::check_slopes).
    pub fn with_slopes(self, slopes: Array2<f64>) -> Result<Self, Invalid> {
        self.check_slopes(slopes.view())?;
        Ok(Self { frames: slopes.nrows(), measured: Some(slopes.into_shared()), ..self })
    }

    /// Sets which checks the slopes must pass.
    pub fn with_checks(self, checks: SlopeChecks) -> Self {
        Self { checks, ..self }
    }

    /// The system that learning starts from.
    pub fn system(&self) -> &System {
        &self.geometry.system
    }

    /// Which slopes go into which elements of the maps.
    pub fn layout(&self) -> &MapLayout {
        &self.geometry.layout
    }

    /// Slopes of a frame.
    pub fn slopes(&self) -> usize {
        self.geometry.layout.order().len()
    }

    /// The fitted parameters, those of the noise after the others.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Refuses slopes that are not (frames, n), or not finite, or a single frame.
    ///
    /// # Errors
    /// `Invalid`, with the frame and the slope.
    pub fn check_slopes(&self, slopes: ArrayView2<f64>) -> Result<(), Invalid> {
        check_slopes(slopes, self.slopes())?;
        let expected = "at least 2, as covariances are means over frames";
        accept(slopes.nrows() >= 2, "frames", slopes.nrows(), expected).map(drop)
    }

    // Memory and time of learning
    /// The most memory that learning has in use at a time, the slopes included.
    fn bytes(&self) -> Memory {
        let layers = self.geometry.system.atmosphere().layers().len();
        let (maps, slopes) = (self.geometry.layout.len() as u64, self.slopes() as u64);
        let columns = (64 + 2 * layers + 4 * self.parameters.len()) as u64;
        let pairs = self.geometry.layout.pairs().iter();
        let largest = pairs.map(|pair| pair.lenslet_pairs() as u64).max().unwrap_or(0);
        let working = maps.saturating_mul(columns).saturating_add(largest.saturating_mul(16));
        let frames = (self.frames as u64).saturating_mul(3 * slopes);
        let working =
            Memory { host: working.saturating_add(frames).saturating_mul(8), devices: Vec::new() };
        Memory::of_stages(0, [&working])
    }

    /// How long each part takes: products of slopes, and some ten looks at all layers with their derivatives.
    fn stages(&self, engine: &Engine) -> Vec<Stage> {
        let (n, frames) = (self.slopes() as f64, self.frames as f64);
        let blocks = frames.min(64.0);
        // Errors of correlated frames take about ten times as many products as the maps.
        let products = (CostKind::Products, 5.0 * frames * n * n * 1.5e-10);
        let averages = (CostKind::Memory, 0.5 * blocks * n * n * 3e-9);
        let layers = self.geometry.system.atmosphere().layers().len() as f64;
        let turning = self.options.fit.contains(&ParameterGroup::Rotations);
        let looks = |pair: &MapPair| {
            let sensors = pair.stars.map(|star| self.start.sensors[star]);
            let turned = turning && !pair.is_own();
            let each = match sensors[0].shares_lattice_with(&sensors[1]) {
                _ if turned || sensors[0].rotation != sensors[1].rotation => 8e-7,
                true => 2e-8,
                false => 2e-7,
            };
            each * pair.lenslet_pairs()
        };
        let of_layer: f64 = self.geometry.layout.pairs().iter().map(looks).sum();
        let columns = self.parameters.iter().map(|key| match key {
            Parameter::Strength(_) | Parameter::Noise(..) => 0.0,
            Parameter::Shift(..) | Parameter::Rotation(_) if turning => 0.0,
            Parameter::Altitude(_) => 1.0 / layers,
            Parameter::OuterScale => 1.0,
            _ => 2.0 / self.geometry.system.guide_stars().len() as f64,
        });
        let looks = 8.0 * (1.0 + columns.sum::<f64>());
        vec![
            Stage::new(MAPS, &[products, averages], engine),
            Stage::new(FIT, &[(CostKind::Integrals, looks * layers * of_layer)], engine),
        ]
    }

    // Learn from slopes or from maps
    // Measure the maps to learn from
    /// The maps of slopes (frames, n), rad.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn measure(&self, slopes: ArrayView2<f64>, watch: &dyn Watch) -> Result<SlopeMaps, Error> {
        self.check_slopes(slopes)?;
        watch.stage(MAPS, "realisations");
        SlopeMaps::measure(&self.geometry.system, slopes, watch)
    }

    // Expected maps of the planned system
    /// The maps that the system of the plan would measure in endless frames, its noise included.
    ///
    /// # Errors
    /// Those of the covariances, and `Cancelled`.
    ///
    /// ```
    /// use lenslet::model::{Atmosphere, GuideStar, Layer, LensletArray, Source, System};
    /// use lenslet::profiling::{LearnOptions, LearnPlan};
    /// use lenslet::{units::{ARCSEC, DEGREE}, watch::unwatched};
    /// let array = LensletArray::new(8, 0.5)?;
    /// let star = |azimuth| GuideStar::at_rest(Source::star(40.0 * ARCSEC, azimuth * DEGREE)?, array, 2e-14);
    /// let displacement = star(120.0)?.sensor.source.shift_to(&star(240.0)?.sensor.source, 1.0);
    /// assert!((displacement[1] + 3.36e-4).abs() < 1e-6); // m, of footprints at an altitude of 1 m
    /// // Γxx + Γyy [1e-13 rad²] of two stars, some lenslets up, for these fractions at 0, 4.5 and 11 km.
    /// let map = |fractions: [f64; 3], lag: usize| -> Result<f64, lenslet::Error> {
    ///     let layers = [0.0, 4500.0, 11e3].into_iter().zip(fractions);
    ///     let layers = layers.map(|(h, fraction)| Layer::new(h, fraction, 25.0)).collect();
    ///     let system = System::builder(Atmosphere::new(0.15, 500e-9, layers)?, array);
    ///     let system = system.guide_stars([star(120.0)?, star(240.0)?]).build()?;
    ///     let maps = LearnPlan::new(&system, LearnOptions::default())?.expected(&unwatched)?;
    ///     let pair = &maps.layout.pairs()[1];
    ///     let at = |axes| maps.values[pair.range().start + pair.place(axes, [7 + lag, 7])];
    ///     Ok(1e13 * (at(0) + at(3)))
    /// };
    /// let [one, all] = [[0.0, 1.0, 0.0], [0.55, 0.3, 0.15]];
    /// for (fractions, lag, value) in [(one, 3, 13.7), (one, 0, 2.6), (all, 3, 5.76), (all, 0, 8.4)] {
    ///     assert!((map(fractions, lag)? - value).abs() < 0.05);
    /// }
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    pub fn expected(&self, watch: &dyn Watch) -> Result<SlopeMaps, Error> {
        let (layout, start) = (self.geometry.layout.clone(), &self.start);
        let bounds = self.bounds();
        let none = Array1::zeros(layout.len());
        let weights = MapWeights::of_elements(none.clone());
        let mut model = self.model(&none, &weights, &bounds, watch);
        let parameters: Vec<f64> = self.parameters.iter().map(|key| start.get(*key)).collect();
        model.look_at(&parameters)?;
        let (values, scatter) = (model.maps(), Array2::zeros((0, layout.len())));
        Ok(SlopeMaps { layout, values, scatter, frames: 0, independent: 0.0, memory: 1, echo: 0.0 })
    }
    fn bounds(&self) -> Vec<[f64; 2]> {
        self.parameters.iter().map(|key| self.start.bounds(*key)).collect()
    }

    fn model<'a>(
        &'a self,
        measured: &'a Array1<f64>,
        weights: &'a MapWeights,
        bounds: &'a [[f64; 2]],
        watch: &'a dyn Watch,
    ) -> FitModel<'a> {
        let geometry = &self.geometry;
        let own = geometry.layout.pairs().iter().enumerate().filter(|(_, pair)| pair.is_own());
        let maps = |pair: &MapPair| [0, 1, 2].map(|k| geometry.noise_map(pair, k));
        let noise = own.map(|(k, pair)| (k, maps(pair))).collect();
        let (parameters, state) = (&self.parameters[..], self.start.clone());
        FitModel {
            geometry,
            parameters,
            bounds,
            measured,
            weights,
            state,
            units: Vec::new(),
            noise,
            tables: PhaseTables::default(),
            watch,
        }
    }
}

// Run the plan of learning
impl Plan for LearnPlan {
    type Output = Learned;

    // Engine and subject of learning
    /// Rejects a GPU, and single precision.
    fn check_engine(&self, engine: &Engine) -> Result<(), Error> {
        engine.require_cpu("a fit to slopes")?;
        Ok(engine.require_double_on_cpu("a fit to slopes")?)
    }

    fn subject(&self) -> String {
        "learning".into()
    }

    /// Learns from the slopes of the plan.
    ///
    /// # Errors
    /// Those of [`check`](Self::check); `Invalid` without [slopes](Self::with_slopes), or where they do not pass their checks;
    /// `Failed` where there is no turbulence in the slopes; `Cancelled`.
    fn run(&self, engine: &Engine, watch: &dyn Watch) -> Result<Learned, Error> {
        self.check(engine)?;
        let expected = "frames of slopes, by LearnPlan::with_slopes";
        let slopes = self.measured.as_ref();
        let slopes = slopes.ok_or_else(|| Invalid::new("slopes", "none", expected))?;
        let maps = self.measure(slopes.view(), watch)?;
        if self.checks.unit {
            self.check_unit(&maps, watch)?;
        }
        if self.checks.order {
            self.check_order(slopes.view(), watch)?;
        }
        self.fit(maps, watch)
    }

    // Describe the plan of learning
    fn describe(&self, engine: &Engine) -> Result<Description, Error> {
        self.check_engine(engine)?;
        let [stars, layers] = [
            self.geometry.system.guide_stars().len(),
            self.geometry.system.atmosphere().layers().len(),
        ];
        let names: Vec<&str> = self.options.fit.iter().map(|unknown| unknown.name()).collect();
        let noise = 3 * stars;
        Ok(Description {
            what: format!(
                "{} of {} and {}, from {} of {}",
                names.join(", "),
                count(layers, "layer"),
                count(stars, "guide star"),
                count(self.frames, "frame"),
                count(self.slopes(), "slope")
            ),
            arrays: vec![("maps".into(), vec![self.geometry.layout.len()])],
            form: "",
            reason: String::new(),
            method: format!(
                "{} and {noise} of noise, by damped least squares on maps of {} of stars",
                count(self.parameters.len() - noise, "number"),
                count(self.geometry.layout.pairs().len(), "pair")
            ),
            slope_model: self.geometry.system.slope_model().name(),
            engine: engine.name(),
            memory: self.bytes(),
            stages: self.stages(engine),
            rates: engine.speed().to_string(),
        })
    }
}

impl Default for LearnOptions {
    /// Strengths and altitudes, in at most fifty steps.
    fn default() -> Self {
        Self { fit: vec![ParameterGroup::Strengths, ParameterGroup::Altitudes], steps: 50 }
    }
}

impl LearnOptions {
    /// Sets the parameter groups that are fitted.
    pub fn fit(self, fit: impl IntoIterator<Item = ParameterGroup>) -> Self {
        Self { fit: fit.into_iter().collect(), ..self }
    }

    /// Sets the most steps of the fit.
    pub fn steps(self, steps: usize) -> Self {
        Self { steps, ..self }
    }
}
/// Names of the stages of a fit.
const MAPS: &str = "maps of the slopes";
const FIT: &str = "fit";

// Fit the measured maps
impl LearnPlan {
    /// Learns from maps, measured or [expected](Self::expected).
    ///
    /// # Errors
    /// As [`run`](Self::run), and `Invalid` for maps of another system.
    pub fn fit(&self, maps: SlopeMaps, watch: &dyn Watch) -> Result<Learned, Error> {
        // Refuse maps of another system
        let expected =
            format!("{} elements, as this system's maps have", self.geometry.layout.len());
        let fits = maps.values.len() == self.geometry.layout.len();
        accept(fits, "maps", maps.values.len(), &expected)?;
        watch.stage(FIT, "steps");
        let (weights, bounds) = (MapWeights::of(&maps)?, self.bounds());
        // Minimise the weighted difference of maps
        let weighted = weights.apply(&maps.values);
        let mut model = self.model(&maps.values, &weights, &bounds, watch);
        let start: Vec<f64> = self.parameters.iter().map(|key| self.start.get(*key)).collect();
        let floor = 1e-10 * weighted.dot(&weighted).sqrt();
        let least = LeastSquares { bounds: bounds.clone(), floor, steps: self.options.steps };
        let fitted = least.run(&mut model, &start, watch)?;
        model.look_at(&fitted.parameters)?;
        let (fitted_maps, state) = (model.maps(), model.state.clone());
        let spread = Spread::of(&fitted, &maps, &weights)?;
        // Refuse a misfit that is not finite
        if spread.misfit.is_some_and(|misfit| !misfit.is_finite()) {
            let reason = "the misfit is not finite: the errors of the maps vanish, or the slopes are no angles in radians".into();
            return Err(Error::Failed { what: "learning".into(), reason });
        }
        Learned::new(self, state, &fitted, (maps, fitted_maps), spread)
    }
}

// Weights of maps
/// The weights of the elements of maps.
struct MapWeights {
    /// √g
    elements: Array1<f64>,
    /// The elements of each pair and axes.
    maps: Vec<Range<usize>>,
    /// η of Eq. [tilt weight](https://lenslet.github.io/lenslet/learning-errors.html#eq-tilt-weight).
    tilts: f64,
}

impl MapWeights {
    // Weights of measured maps
    fn of(maps: &SlopeMaps) -> Result<Self, Invalid> {
        let lags = |pair: &MapPair| pair.lags() * pair.lags();
        let axes = |pair: &MapPair, a: usize| {
            let start = pair.range().start + a * lags(pair);
            start..start + lags(pair)
        };
        let pairs = maps.layout.pairs().iter();
        let parts = pairs.flat_map(|pair| (0..4).map(move |a| axes(pair, a))).collect();
        let mut weights = Self { maps: parts, ..Self::of_elements(weights_of(maps)?) };
        weights.tilts = weights.tilt_factor(&maps.scatter);
        Ok(weights)
    }

    /// Weights of the elements alone.
    fn of_elements(elements: Array1<f64>) -> Self {
        Self { elements, maps: Vec::new(), tilts: 1.0 }
    }

    // Apply weights to residuals
    /// Weighted residuals.
    fn apply(&self, residuals: &Array1<f64>) -> Array1<f64> {
        let mut weighted = residuals * &self.elements;
        for own in self.maps.iter().filter(|_| self.tilts < 1.0) {
            let along = self.elements.slice(s![own.clone()]);
            let square = along.dot(&along);
            let mut part = weighted.slice_mut(s![own.clone()]);
            if square > 0.0 {
                let share = (1.0 - self.tilts) * along.dot(&part) / square;
                part.scaled_add(-share, &along);
            }
        }
        weighted
    }
    // Weigh tilts by their scatter
    /// η of Eq. [tilt weight](https://lenslet.github.io/lenslet/learning-errors.html#eq-tilt-weight), from realisations of the errors of the maps.
    fn tilt_factor(&self, scatter: &Array2<f64>) -> f64 {
        let (mut along, mut all) = (0.0, 0.0);
        for errors in scatter.rows() {
            let weighted = &errors * &self.elements;
            all += weighted.dot(&weighted);
            for own in &self.maps {
                let weights = self.elements.slice(s![own.clone()]);
                let product = weights.dot(&weighted.slice(s![own.clone()]));
                along += product * product / weights.dot(&weights).max(f64::MIN_POSITIVE);
            }
        }
        let elements = self.elements.iter().filter(|weight| **weight > 0.0).count();
        let (tilts, others) = (self.maps.len(), elements.saturating_sub(self.maps.len()));
        let ratio = (all - along) / others.max(1) as f64 * tilts as f64 / along;
        if others > 0 && ratio.is_finite() { ratio.clamp(0.0, 1.0).sqrt() } else { 1.0 }
    }

    // Apply weights to derivatives of maps
    /// Weighted derivatives, (elements, parameters).
    fn apply_to_columns(&self, columns: &Array2<f64>) -> Array2<f64> {
        let mut weighted = Array2::zeros(columns.dim());
        for (mut to, from) in weighted.columns_mut().into_iter().zip(columns.columns()) {
            to.assign(&self.apply(&from.to_owned()));
        }
        weighted
    }
}

// Weights of all elements
/// √g of Eq. [learning sum](https://lenslet.github.io/lenslet/learning-errors.html#eq-learning-sum).
fn weights_of(maps: &SlopeMaps) -> Result<Array1<f64>, Invalid> {
    let pairs = maps.layout.pairs();
    let middle = |pair: &MapPair| [pair.lags() / 2; 2];
    let zero_lag = |pair: &MapPair| {
        let at = |axes| maps.values[pair.range().start + pair.place(axes, middle(pair))];
        0.5 * (at(0) + at(3))
    };
    let variances: Vec<f64> = pairs.iter().filter(|pair| pair.is_own()).map(zero_lag).collect();
    for (star, &variance) in variances.iter().enumerate() {
        let good = variance > 1e-36 && variance.is_finite();
        let expected = "a variance in rad², greater than 0";
        accept(good, &format!("zero lag of guide_star[{star}]"), variance, expected)?;
    }
    let mut weights = Array1::zeros(maps.layout.len());
    for pair in pairs {
        let [one, two] = pair.stars.map(|star| variances[star]);
        let twice = if pair.is_own() { 1.0 } else { 2.0 };
        for ((j, i), count) in pair.counts().indexed_iter() {
            for axes in 0..4 {
                let weight = (twice * count).sqrt() / (one.sqrt() * two.sqrt());
                weights[pair.range().start + pair.place(axes, [j, i])] = weight;
            }
        }
    }
    Ok(weights)
}

// Errors and warnings of a fit
// Errors from shifted frames
/// How the errors of the maps move what was fitted.
struct Spread {
    /// Covariance of the parameters; none where the maps are not measured.
    covariance: Option<Array2<f64>>,
    /// The sum of squares over its expectation.
    misfit: Option<f64>,
    /// The largest misfit that chance explains.
    limit: f64,
    /// Combinations of parameters that the maps do not determine, and those that they determine poorly.
    blind: [Vec<Vec<f64>>; 2],
    /// The parameters that take part in the fit.
    free: Vec<usize>,
}

// Propagate the errors of maps
impl Spread {
    fn of(fitted: &Fitted, maps: &SlopeMaps, weights: &MapWeights) -> Result<Self, Error> {
        let normal = Normal::new(&fitted.jacobian, &fitted.held)?;
        let [none, few] = [Normal::ROUNDING, HARDLY].map(|share| normal.blind(share));
        let blind = [none.clone(), few[none.len()..].to_vec()];
        let free = normal.free().to_vec();
        let number = maps.scatter.nrows() as f64;
        if number < 1.0 {
            return Ok(Self { covariance: None, misfit: None, limit: f64::INFINITY, blind, free });
        }
        let apart = weights.apply_to_columns(&maps.scatter.t().to_owned()).reversed_axes();
        let scores = apart.dot(&fitted.jacobian);
        let moves = normal.solve(&scores, 0.0);
        let covariance = moves.t().dot(&moves) / number;
        let expected =
            (apart.iter().map(|x| x * x).sum::<f64>() - (&scores * &moves).sum()) / number;
        let misfit = fitted.residuals.dot(&fitted.residuals) / expected.max(f64::MIN_POSITIVE);
        let limit = misfit_limit(&(&apart - &moves.dot(&fitted.jacobian.t())));
        Ok(Self { covariance: Some(covariance), misfit: Some(misfit), limit, blind, free })
    }
}

// Largest misfit expected by chance
/// The largest misfit that chance explains, from realisations of the residuals, (R, elements), Eq. [misfit freedom](https://lenslet.github.io/lenslet/learning-errors.html#eq-misfit-freedom).
fn misfit_limit(residuals: &Array2<f64>) -> f64 {
    let (number, products) = (residuals.nrows() as f64, residuals.dot(&residuals.t()));
    let squares = products.diag();
    let mean = squares.sum() / number;
    let others: f64 = products.iter().map(|x| x * x).sum::<f64>() - squares.dot(&squares);
    let freedom = mean * mean * number * (number - 1.0) / others;
    let spread = if freedom > 0.0 { 2.0 / freedom.sqrt() } else { f64::INFINITY };
    (3.0 * spread).exp().max(1.2)
}

/// Share of the largest eigenvalue of the normal matrix below which a combination of parameters is poorly determined.
const HARDLY: f64 = 1e-3;

// Warnings about a fit
/// Warning about a fit: a parameter, or a combination of parameters, that the slopes do not determine.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum FitWarning {
    /// The fitted value is at a bound.
    Bound(Parameter, f64),
    /// A parameter without an effect on the slopes.
    Idle(Parameter),
    /// A parameter whose standard error exceeds its value, or, for the placement of a sensor, a lenslet.
    Vague(Parameter),
    /// A combination of parameters, with their coefficients, that has no effect on the slopes.
    Blind(Vec<(Parameter, f64)>),
    /// A combination of parameters that has almost no effect on the slopes.
    Hardly(Vec<(Parameter, f64)>),
    /// Two parameters whose errors have this correlation.
    Tied([Parameter; 2], f64),
}

/// Absolute correlation of two errors beyond which a warning is reported.
const TIED: f64 = 0.95;

// Collect the warnings about a fit
impl FitWarning {
    /// All warnings about a fit.
    fn all(plan: &LearnPlan, state: &FitState, fitted: &Fitted, spread: &Spread) -> Vec<Self> {
        let keys = &plan.parameters;
        let is_reported = |key: &Parameter| !matches!(key, Parameter::Noise(..));
        let mut warnings = Vec::new();
        for (k, &key) in keys.iter().enumerate().filter(|(_, key)| is_reported(key)) {
            let error = spread.covariance.as_ref().map(|all| all[[k, k]].max(0.0).sqrt());
            if fitted.held[k] {
                warnings.push(Self::Bound(key, shown(key, state.get(key), 0.0)[0]));
            } else if !spread.free.contains(&k) {
                warnings.push(Self::Idle(key));
            } else if error.is_some_and(|error| error > state.size(key)) {
                warnings.push(Self::Vague(key));
            }
        }
        let parts = |direction: &Vec<f64>| {
            let all = keys.iter().copied().zip(direction.iter().copied());
            all.filter(|(_, part)| part.abs() > 0.2).collect::<Vec<_>>()
        };
        let [none, few] = &spread.blind;
        warnings.extend(none.iter().map(parts).map(Self::Blind));
        warnings.extend(few.iter().map(parts).map(Self::Hardly));
        warnings.extend(spread.ties(keys));
        warnings
    }
}

impl Spread {
    /// Pairs of parameters with strongly correlated errors, without those of the noise.
    fn ties(&self, keys: &[Parameter]) -> Vec<FitWarning> {
        let Some(all) = &self.covariance else { return Vec::new() };
        let mut ties = Vec::new();
        let is_reported = |k: &usize| !matches!(keys[*k], Parameter::Noise(..));
        for (at, &k) in self.free.iter().enumerate().filter(|(_, k)| is_reported(k)) {
            for &l in self.free[at + 1..].iter().filter(|l| is_reported(l)) {
                let correlation = all[[k, l]] / (all[[k, k]] * all[[l, l]]).sqrt();
                if correlation.abs() > TIED {
                    ties.push(FitWarning::Tied([keys[k], keys[l]], correlation));
                }
            }
        }
        ties
    }
}

// Print a fit warning
impl Display for FitWarning {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let names = |parts: &[(Parameter, f64)]| {
            let part = |(key, part): &(Parameter, f64)| {
                format!("{} {key}", if *part < 0.0 { "less" } else { "more" })
            };
            parts.iter().map(part).collect::<Vec<_>>().join(" with ")
        };
        match self {
            Self::Bound(key, value) => write!(f, "{key}: at the bound of {value}"),
            Self::Idle(key) => write!(f, "{key}: the slopes do not depend on it"),
            Self::Vague(
                key @ (Parameter::Shift(..) | Parameter::Rotation(_) | Parameter::Magnification(_)),
            ) => {
                write!(f, "{key}: its error is more than a lenslet at the edge of the array")
            }
            Self::Vague(key) => write!(f, "{key}: its error is as large as itself"),
            Self::Blind(parts) => write!(f, "{}: no effect at all", names(parts)),
            Self::Hardly(parts) => write!(f, "{}: hardly any effect", names(parts)),
            Self::Tied([one, other], correlation) => {
                write!(f, "{one} and {other}: errors correlated by {correlation:.2}")
            }
        }
    }
}

// Results of a fit
// A value with its error
/// A fitted value, with its standard error if the slopes determine it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LearnedValue {
    /// The parameter.
    pub parameter: Parameter,
    /// The value, in SI units.
    pub value: f64,
    /// Its standard error.
    pub error: Option<f64>,
}

// Values that were learned
/// Result of a fit of turbulence and sensors to slopes.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Learned {
    /// The system with the fitted parameters.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub system: System,
    /// All parameters of the fit; those that the slopes do not determine have no error.
    pub values: Vec<LearnedValue>,
    /// The Fried parameter \[m\] and its error.
    pub fried_parameter: (f64, Option<f64>),
    /// The fraction of each layer and its error.
    pub fractions: Vec<(f64, Option<f64>)>,
    /// The mean noise of each star's slopes, rad², and its error; negative if the zero lag is smaller than the turbulence explains.
    pub noise: Vec<(f64, Option<f64>)>,
    /// Warnings about parameters that the slopes do not determine.
    pub warnings: Vec<FitWarning>,
    /// The maps that it was learned from.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub maps: SlopeMaps,
    /// The maps of the fitted system, rad².
    pub fitted: Array1<f64>,
    /// The sum of squares over its expectation: 1 if the model is right.
    pub misfit: Option<f64>,
    /// The largest misfit that chance explains.
    #[cfg_attr(feature = "serde", serde(with = "crate::serial::number"))]
    pub misfit_limit: f64,
    /// Steps of the fit, and whether it ended by itself.
    pub steps: usize,
    /// Whether the fit has ended by itself.
    pub converged: bool,
}

impl Learned {
    // The learned profile as a data set
    /// The learned profile as a data set: a value and its standard error, which is NaN where the slopes do not determine the value.
    pub fn to_data_set(&self) -> DataSet<'_> {
        let mut data = DataSet::default();
        let mut add = |name: &str, unit: &str, dimension: &str, all: &[(f64, Option<f64>)]| {
            let values = all.iter().map(|(value, _)| *value).collect::<Array1<f64>>();
            data.add(name, values).unit(unit).dimensions(dimension);
            let errors = all.iter().map(|(_, error)| error.unwrap_or(f64::NAN));
            let error = data.add(&format!("{name}_error"), errors.collect::<Array1<f64>>());
            error.unit(unit).dimensions(dimension).long_name("standard error");
        };
        add("fried_parameter", "m", "one", &[self.fried_parameter]);
        add("fraction", "", "layer", &self.fractions);
        add("noise", "rad2", "star", &self.noise);
        let values: Vec<_> = self.values.iter().map(|one| (one.value, one.error)).collect();
        add("value", "", "parameter", &values);
        let names: Vec<_> = self.values.iter().map(|one| one.parameter.to_string()).collect();
        data.add_text("parameters", names.join(", ")).long_name("names of the values, SI units");
        data.add("fitted_maps", self.fitted.view()).unit("rad2").dimensions("sample");
        data
    }

    // Collect the results of a fit
    fn new(
        plan: &LearnPlan,
        state: FitState,
        fit: &Fitted,
        (maps, fitted): (SlopeMaps, Array1<f64>),
        spread: Spread,
    ) -> Result<Self, Error> {
        let keys = &plan.parameters;
        let warnings = FitWarning::all(plan, &state, fit, &spread);
        let blind = |k: usize| spread.blind[0].iter().any(|direction| direction[k].abs() > 0.1);
        let has_error = |k: usize| spread.free.contains(&k) && !blind(k);
        let error = |k: usize| {
            let all = spread.covariance.as_ref().filter(|_| has_error(k))?;
            Some(all[[k, k]].max(0.0).sqrt())
        };
        let value = |(k, &parameter): (usize, &Parameter)| {
            let at_most = error(k).unwrap_or(f64::NAN);
            let [value, at_most] = shown(parameter, state.get(parameter), at_most);
            LearnedValue {
                parameter,
                value,
                error: Some(at_most).filter(|error| error.is_finite()),
            }
        };
        let values = keys.iter().enumerate().map(value).collect();
        let of = |key: Parameter| keys.iter().position(|known| *known == key);
        let strengths: Option<Vec<usize>> =
            (0..state.layers.len()).map(|l| of(Parameter::Strength(l))).collect();
        let (fried_parameter, fractions) =
            profile(plan, &state, strengths, spread.covariance.as_ref())?;
        let noise = (0..state.noise.len()).map(|q| {
            let ends = [0, 2].map(|k| of(Parameter::Noise(q, k)));
            let mean = 0.5 * (state.noise[q][0] + state.noise[q][2]);
            let error =
                spread.covariance.as_ref().zip(ends[0].zip(ends[1])).map(|(all, (k, l))| {
                    0.5 * (all[[k, k]] + all[[l, l]] + 2.0 * all[[k, l]]).max(0.0).sqrt()
                });
            (mean, error)
        });
        let noise: Vec<_> = noise.collect();
        let system = Self::system(plan, &state, fried_parameter.0, &fractions, &noise)?;
        let (misfit, misfit_limit) = (spread.misfit, spread.limit);
        let (steps, converged) = (fit.steps, fit.converged);
        Ok(Self {
            system,
            values,
            fried_parameter,
            fractions,
            noise,
            warnings,
            maps,
            fitted,
            misfit,
            misfit_limit,
            steps,
            converged,
        })
    }

    // Insert the learned profile into a system
    /// The initial system with the fitted parameters.
    fn system(
        plan: &LearnPlan,
        state: &FitState,
        r0: f64,
        fractions: &[(f64, Option<f64>)],
        noise: &[(f64, Option<f64>)],
    ) -> Result<System, Error> {
        let old = &plan.geometry.system;
        let layer = |(layer, (fraction, _)): (&Layer, &(f64, Option<f64>))| Layer {
            fraction: *fraction,
            ..*layer
        };
        let layers = state.layers.iter().zip(fractions).map(layer).collect();
        let air = Atmosphere::new(r0, old.atmosphere().wavelength(), layers)?;
        let star = |((star, sensor), (noise, _)): ((&GuideStar, &Sensor), &(f64, Option<f64>))| {
            let noise = match star.noise.is_uniform() {
                true => Noise::uniform(noise.max(0.0))?,
                false => star.noise.clone(),
            };
            Ok(GuideStar { sensor: *sensor, noise, ..star.clone() })
        };
        let stars = old.guide_stars().iter().zip(&state.sensors).zip(noise).map(star);
        let stars = stars.collect::<Result<Vec<_>, Invalid>>()?;
        Ok(old.to_builder().atmosphere(air).guide_stars(stars).build()?)
    }
}

// Combine errors of strengths
/// A value of a fit and its error as they are reported: an outer scale in metres instead of its logarithm.
fn shown(key: Parameter, value: f64, error: f64) -> [f64; 2] {
    match key {
        Parameter::OuterScale => [value.exp(), value.exp() * error],
        _ => [value, error],
    }
}

// Learned Fried parameter and fractions
/// A number, and its standard error if there is one.
type WithError = (f64, Option<f64>);

/// The Fried parameter and the fractions of layers, with errors where strengths, of these numbers, were learned.
fn profile(
    plan: &LearnPlan,
    state: &FitState,
    strengths: Option<Vec<usize>>,
    covariance: Option<&Array2<f64>>,
) -> Result<(WithError, Vec<WithError>), Error> {
    let sum: f64 = state.layers.iter().map(|layer| layer.fraction).sum();
    // Refuse slopes without common turbulence
    if sum <= 1e-9 {
        let (what, reason) = ("learning", "the slopes have no turbulence in common");
        return Err(Error::Failed { what: what.into(), reason: reason.into() });
    }
    let r0 = plan.geometry.system.atmosphere().fried_parameter() * sum.powf(-0.6);
    let errors = covariance.zip(strengths);
    // Error of weighted strengths
    // The error of a combination of strengths.
    let error = |weight: &dyn Fn(usize) -> f64| {
        let (all, places) = errors.as_ref()?;
        let pairs = places.iter().enumerate().flat_map(|(l, k)| {
            places.iter().enumerate().map(move |(m, n)| weight(l) * weight(m) * all[[*k, *n]])
        });
        Some(pairs.sum::<f64>().max(0.0).sqrt())
    };
    let fraction = |l: usize| state.layers[l].fraction / sum;
    let of_layer = |l: usize| {
        let weight = |m: usize| (f64::from(u8::from(l == m)) - fraction(l)) / sum;
        (fraction(l), error(&weight))
    };
    let of_r0 = error(&|_| 0.6 * r0 / sum);
    Ok(((r0, of_r0), (0..state.layers.len()).map(of_layer).collect()))
}

// Tests of learning
#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimation::simulation::{Sampling, Simulation};
    use crate::model::{LensletArray, Pupil, Source, TipTilt};
    use crate::units::ARCSEC;
    use crate::watch::unwatched;

    // System without symmetry to learn
    /// Three stars on arrays of 5 × 5 lenslets of half a metre, of which 4 are dark, and layers of this r0, these strengths and altitudes.
    fn system(r0: f64, fractions: [f64; 3], altitudes: [f64; 2], outer_scale: f64) -> System {
        let [low, high] = altitudes;
        let layers = [0.0, low, high].into_iter().zip(fractions);
        let layers = layers.map(|(h, fraction)| Layer::new(h, fraction, outer_scale)).collect();
        let array = LensletArray::new(5, 0.5).unwrap();
        let star = |zenith: f64, azimuth: f64| {
            let source = Source::star(zenith * ARCSEC, azimuth * DEGREE).unwrap();
            GuideStar::at_rest(source, array, 3e-14).unwrap()
        };
        System::builder(Atmosphere::new(r0, 500e-9, layers).unwrap(), array)
            .pupil(Some(Pupil::new(2.5, 0.2).unwrap()))
            .guide_stars([star(30.0, 10.0), star(40.0, 130.0), star(25.0, 250.0)])
            .build()
            .unwrap()
    }

    /// The system with something done to its stars.
    fn with(system: &System, change: impl Fn(&mut [GuideStar])) -> System {
        let mut stars = system.guide_stars().to_vec();
        change(&mut stars);
        system.to_builder().guide_stars(stars).build().unwrap()
    }

    fn run(plan: &LearnPlan, slopes: Array2<f64>) -> Result<Learned, Error> {
        plan.clone().with_slopes(slopes)?.run(&Engine::default(), &unwatched)
    }

    fn plan(system: &System, fit: &[ParameterGroup]) -> LearnPlan {
        LearnPlan::new(system, LearnOptions::default().fit(fit.iter().copied())).unwrap()
    }

    /// What is learned from the exact maps of a truth, from some start.
    fn learn(truth: &System, start: &System, fit: &[ParameterGroup]) -> Learned {
        let maps = plan(truth, fit).expected(&unwatched).unwrap();
        plan(start, fit).fit(maps, &unwatched).unwrap()
    }

    fn close(found: f64, expected: f64, tolerance: f64) {
        assert!((found - expected).abs() <= tolerance, "{found} and not {expected}");
    }

    // Test learning from exact maps
    #[test]
    fn exact_maps_give_profile_and_noise_back() {
        for removed in [TipTilt::Measured, TipTilt::Removed] {
            let tilt = |stars: &mut [GuideStar]| stars[1].tip_tilt = removed;
            let truth = with(&system(0.15, [0.5, 0.3, 0.2], [3000.0, 6500.0], 20.0), tilt);
            let start = with(&system(0.2, [0.2, 0.2, 0.6], [2500.0, 7100.0], 45.0), |stars| {
                tilt(stars);
                stars.iter_mut().for_each(|star| star.noise = Noise::uniform(0.0).unwrap());
            });
            let fit =
                [ParameterGroup::Strengths, ParameterGroup::Altitudes, ParameterGroup::OuterScale];
            let learned = learn(&truth, &start, &fit);
            let (air, known) = (learned.system.atmosphere(), truth.atmosphere());
            assert!(learned.converged && learned.misfit.is_none() && learned.warnings.is_empty());
            close(air.fried_parameter(), known.fried_parameter(), 1e-6 * 0.15);
            for (layer, known) in air.layers().iter().zip(known.layers()) {
                close(layer.fraction, known.fraction, 1e-6);
                close(layer.altitude, known.altitude, 1e-6 * known.altitude);
                close(layer.outer_scale, known.outer_scale, 1e-6 * known.outer_scale);
            }
            learned.noise.iter().for_each(|(noise, _)| close(*noise, 3e-14, 1e-6 * 3e-14));
        }
    }

    #[test]
    fn exact_maps_tell_where_sensors_look() {
        let rest = system(0.15, [0.6, 0.3, 0.1], [3000.0, 6500.0], 20.0);
        let mut stars = rest.guide_stars()[..2].to_vec();
        stars[1].sensor.source = Source::new(40.0 * ARCSEC, 130.0 * DEGREE, 90e3).unwrap();
        stars.iter_mut().for_each(|star| star.sensor.array = LensletArray::new(3, 0.7).unwrap());
        let layers = [Layer::new(0.0, 0.6, 20.0), Layer::new(3000.0, 0.4, 20.0)].to_vec();
        let air = Atmosphere::new(0.15, 500e-9, layers).unwrap();
        let start = rest.to_builder().atmosphere(air).guide_stars(stars).build().unwrap();
        let truth = with(&start, |stars| {
            stars[1].sensor.shift = [0.12, -0.07];
            stars[1].sensor.rotation = 2.5 * DEGREE;
            stars[1].sensor.magnification = 1.02;
        });
        let fit =
            [ParameterGroup::Shifts, ParameterGroup::Rotations, ParameterGroup::Magnifications];
        let learned = learn(&truth, &start, &fit);
        assert!(learned.converged, "{:?}", learned.warnings);
        for (star, known) in learned.system.guide_stars().iter().zip(truth.guide_stars()) {
            let (sensor, known) = (star.sensor, known.sensor);
            for axis in [0, 1] {
                close(sensor.shift[axis], known.shift[axis], 1e-6);
            }
            close(sensor.rotation, known.rotation, 1e-6);
            close(sensor.magnification, known.magnification, 1e-6);
        }
        assert_eq!(learned.fried_parameter, (0.15, None));
    }

    // Test derivatives of the maps
    #[test]
    fn a_turn_changes_maps_as_differences_do() {
        let rest = system(0.15, [0.6, 0.3, 0.1], [3000.0, 6500.0], 20.0);
        for turn in [0.0, 0.03] {
            let rest = with(&rest, |stars| {
                stars[0].tip_tilt = TipTilt::Removed;
                stars[1].sensor.shift = [0.2, -0.1];
                for (star, turn) in stars.iter_mut().zip([0.0, turn, 0.7 * turn]) {
                    star.sensor.array = LensletArray::new(3, 0.8).unwrap();
                    star.sensor.rotation = 0.3 + turn;
                }
            });
            let fit =
                [ParameterGroup::Altitudes, ParameterGroup::Shifts, ParameterGroup::Rotations];
            let plan = plan(&rest, &fit);
            let (bounds, none) = (plan.bounds(), Array1::zeros(plan.geometry.layout.len()));
            let weights = MapWeights::of_elements(none.clone() + 1.0);
            let mut model = plan.model(&none, &weights, &bounds, &unwatched);
            let at: Vec<f64> = plan.parameters.iter().map(|key| plan.start.get(*key)).collect();
            let jacobian = model.jacobian(&at).unwrap();
            for (k, key) in plan.parameters.iter().enumerate().take(9) {
                let step = if matches!(key, Parameter::Altitude(_)) { 5.0 } else { 2e-3 };
                let mut ends = [step, -step].into_iter().map(|step| {
                    let mut moved = at.clone();
                    moved[k] += step;
                    model.residuals(&moved).unwrap()
                });
                let differences = (ends.next().unwrap() - ends.next().unwrap()) / (2.0 * step);
                let largest = differences.fold(0.0, |most: f64, x| most.max(x.abs()));
                let gaps = &jacobian.column(k) - &differences;
                let error = gaps.fold(0.0, |most: f64, x| most.max(x.abs()));
                assert!(error < 2e-2 * largest, "{turn} {key}: {error:e} of {largest:e}");
            }
        }
    }

    // Test errors of independent frames
    /// So many simulated frames, from a seed on.
    fn simulated(system: &System, frames: usize, seed: u64) -> Array2<f64> {
        let sampling = Sampling { period: 1.2, growth: 0.6, highest: 15.0 };
        let simulation = Simulation::with_sampling(system, &sampling).unwrap();
        let mut slopes = Array2::zeros((frames, simulation.order().len()));
        for (t, mut frame) in slopes.rows_mut().into_iter().enumerate() {
            frame.assign(&Array1::from(simulation.realisation(seed + t as u64).slopes));
        }
        slopes
    }

    #[test]
    fn simulated_slopes_tell_the_truth_within_errors() {
        let truth = with(&system(0.15, [0.5, 0.3, 0.2], [3000.0, 6500.0], 20.0), |stars| {
            stars[2].sensor.shift = [0.1, -0.05];
            stars[0].tip_tilt = TipTilt::Removed;
        });
        let start = with(&system(0.17, [0.4, 0.3, 0.3], [2700.0, 6900.0], 20.0), |stars| {
            stars[0].tip_tilt = TipTilt::Removed;
        });
        let slopes = simulated(&truth, 800, 11);
        let learning = plan(
            &start,
            &[ParameterGroup::Strengths, ParameterGroup::Altitudes, ParameterGroup::Shifts],
        );
        let (mut squares, mut count) = (0.0, 0.0);
        for part in 0..4 {
            let own = slopes.slice(s![200 * part..200 * (part + 1), ..]);
            let learned = run(&learning, own.to_owned()).unwrap();
            let layers = learned.system.atmosphere().layers();
            let misfit = learned.misfit.unwrap();
            assert!(learned.converged && (0.4..2.5).contains(&misfit), "{misfit}");
            let mut deviations =
                vec![(learned.fried_parameter.0 - 0.15, learned.fried_parameter.1)];
            for (l, fraction) in [0.5, 0.3, 0.2].into_iter().enumerate() {
                deviations.push((learned.fractions[l].0 - fraction, learned.fractions[l].1));
            }
            for value in &learned.values {
                let known = match value.parameter {
                    Parameter::Altitude(l) => {
                        assert_eq!(value.value, layers[l].altitude);
                        [0.0, 3000.0, 6500.0][l]
                    }
                    Parameter::Shift(q, axis) => truth.guide_stars()[q].sensor.shift[axis],
                    _ => continue,
                };
                deviations.push((value.value - known, value.error));
            }
            deviations.extend(learned.noise.iter().map(|(noise, error)| (noise - 3e-14, *error)));
            for (deviation, error) in deviations {
                let pull = deviation / error.unwrap();
                assert!(pull.abs() < 5.0, "{pull} of {error:?}");
                (squares, count) = (squares + pull * pull, count + 1.0);
            }
        }
        let mean = squares / count;
        assert!((0.5..1.9).contains(&mean), "{mean} over {count}");
    }

    // Test errors of rotated sensors
    #[test]
    fn turned_sensors_are_told_within_errors() {
        let rest = system(0.15, [0.6, 0.4, 0.0], [3000.0, 6500.0], 20.0);
        let layers = rest.atmosphere().layers()[..2].to_vec();
        let mut stars = rest.guide_stars()[..2].to_vec();
        stars.iter_mut().for_each(|star| star.sensor.array = LensletArray::new(4, 0.6).unwrap());
        let air = Atmosphere::new(0.15, 500e-9, layers).unwrap();
        let start = rest.to_builder().atmosphere(air).guide_stars(stars).build().unwrap();
        let truth = with(&start, |stars| {
            (stars[0].sensor.rotation, stars[1].sensor.rotation) = (-0.03, 0.05);
            stars[1].sensor.shift = [0.1, -0.05];
        });
        let slopes = simulated(&truth, 800, 5);
        let learning = plan(&start, &[ParameterGroup::Shifts, ParameterGroup::Rotations]);
        let (mut squares, known) = (0.0, [0.1, -0.05, -0.03, 0.05]);
        for part in 0..4 {
            let own = slopes.slice(s![200 * part..200 * (part + 1), ..]);
            let learned = run(&learning, own.to_owned()).unwrap();
            // Stars this close to each other hardly determine a common rotation.
            let both = [Parameter::Rotation(0), Parameter::Rotation(1)];
            let is_that = |warning: &FitWarning| matches!(warning, FitWarning::Tied(keys, _) if *keys == both);
            assert!(
                learned.converged && learned.warnings.iter().all(is_that),
                "{:?}",
                learned.warnings
            );
            for (value, known) in learned.values.iter().zip(known) {
                let pull = (value.value - known) / value.error.unwrap();
                assert!(pull.abs() < 5.0, "{}: {pull}", value.parameter);
                squares += pull * pull / 16.0;
            }
        }
        assert!((0.3..2.2).contains(&squares), "{squares}");
    }

    // Test errors of correlated frames
    /// Frames that turn from one realisation into the next, (frames × between, n).
    fn correlated(independent: ArrayView2<f64>, between: usize) -> Array2<f64> {
        let frames = between * (independent.nrows() - 1);
        Array2::from_shape_fn((frames, independent.ncols()), |(t, k)| {
            let phase = std::f64::consts::FRAC_PI_2 * (t % between) as f64 / between as f64;
            let [now, next] = [0, 1].map(|later| independent[[t / between + later, k]]);
            phase.cos() * now + phase.sin() * next
        })
    }

    #[test]
    fn correlated_frames_are_learned_within_errors() {
        let truth = with(&system(0.15, [0.5, 0.3, 0.2], [3000.0, 6500.0], 20.0), |stars| {
            stars[2].sensor.shift = [0.1, -0.05];
        });
        let start = system(0.16, [0.45, 0.3, 0.25], [2800.0, 6800.0], 20.0);
        let learning = plan(
            &start,
            &[ParameterGroup::Strengths, ParameterGroup::Altitudes, ParameterGroup::Shifts],
        );
        let (mut squares, mut count, mut alarms) = (0.0, 0.0, 0);
        for seed in 0..10 {
            let slopes = correlated(simulated(&truth, 61, 1000 * seed).view(), 8);
            let learned = run(&learning, slopes).unwrap();
            assert!(
                (15.0..70.0).contains(&learned.maps.independent),
                "{}",
                learned.maps.independent
            );
            alarms += usize::from(learned.misfit.unwrap() > learned.misfit_limit);
            let mut pulls = vec![(learned.fried_parameter.0 - 0.15, learned.fried_parameter.1)];
            for (value, known) in learned.fractions.iter().zip([0.5, 0.3, 0.2]) {
                pulls.push((value.0 - known, value.1));
            }
            for value in &learned.values {
                let known = match value.parameter {
                    Parameter::Altitude(l) => [0.0, 3000.0, 6500.0][l],
                    Parameter::Shift(q, axis) => truth.guide_stars()[q].sensor.shift[axis],
                    _ => continue,
                };
                pulls.push((value.value - known, value.error));
            }
            for (deviation, error) in pulls {
                let pull = deviation / error.unwrap();
                (squares, count) = (squares + pull * pull, count + 1.0);
            }
        }
        let rms = f64::sqrt(squares / count);
        assert!((0.8..1.25).contains(&rms) && alarms == 0, "{rms}, {alarms} alarms");
    }

    // Test misfits that are not finite
    #[test]
    fn a_misfit_that_is_not_finite_is_an_error() {
        let truth = system(0.15, [0.5, 0.3, 0.2], [3000.0, 6500.0], 20.0);
        let mut maps = plan(&truth, &[ParameterGroup::Altitudes]).expected(&unwatched).unwrap();
        maps.scatter = Array2::zeros((4, maps.values.len()));
        let start = system(0.2, [0.5, 0.3, 0.2], [3000.0, 6500.0], 20.0);
        let said = plan(&start, &[ParameterGroup::Altitudes])
            .fit(maps, &unwatched)
            .unwrap_err()
            .to_string();
        assert!(said.contains("the misfit is not finite"), "{said}");
    }

    #[test]
    fn a_wrong_model_is_beyond_chance() {
        let truth = system(0.15, [0.4, 0.3, 0.3], [3000.0, 6500.0], 20.0);
        let start = system(0.15, [0.6, 0.4, 0.0], [1000.0, 6500.0], 20.0);
        let learning = plan(&start, &[ParameterGroup::Strengths]);
        let learned = run(&learning, simulated(&truth, 1000, 9)).unwrap();
        let misfit = learned.misfit.unwrap();
        assert!(
            misfit > learned.misfit_limit && learned.misfit_limit < 2.5,
            "{misfit} of {}",
            learned.misfit_limit
        );
    }

    // Combinations without an effect are reported
    #[test]
    fn layers_that_look_alike_are_named() {
        let truth = system(0.15, [0.5, 0.3, 0.2], [3000.0, 6500.0], 20.0);
        let start = system(0.15, [0.5, 0.3, 0.2], [3000.0, 3000.0], 20.0);
        let learned = learn(&truth, &start, &[ParameterGroup::Strengths]);
        let [FitWarning::Blind(parts)] = &learned.warnings[..] else {
            panic!("{:?}", learned.warnings)
        };
        let keys: Vec<Parameter> = parts.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, [Parameter::Strength(1), Parameter::Strength(2)]);
        assert!(parts[0].1 * parts[1].1 < 0.0);
        let message = learned.warnings[0].to_string();
        assert!(
            message.contains("more strength of layer") && message.ends_with("no effect at all"),
            "{message}"
        );
        // Layers a fifth of a lenslet apart can hardly be separated.
        let near = system(0.15, [0.5, 0.3, 0.2], [3000.0, 3300.0], 20.0);
        let learned = learn(&near, &near, &[ParameterGroup::Strengths]);
        assert!(matches!(&learned.warnings[..], [FitWarning::Hardly(parts)] if parts.len() == 2));
    }

    // Parameters without an effect are reported
    #[test]
    fn layers_that_are_not_there_and_stars_that_stand_together_tell_nothing() {
        let truth = system(0.15, [0.7, 0.3, 0.0], [3000.0, 6500.0], 20.0);
        let start = system(0.2, [0.4, 0.3, 0.3], [3000.0, 6500.0], 20.0);
        let learned = learn(&truth, &start, &[ParameterGroup::Strengths]);
        close(learned.fractions[2].0, 0.0, 1e-6);
        let learned =
            learn(&truth, &truth, &[ParameterGroup::Strengths, ParameterGroup::Altitudes]);
        let idle = FitWarning::Idle(Parameter::Altitude(2));
        assert!(learned.warnings.contains(&idle), "{:?}", learned.warnings);
        assert_eq!(idle.to_string(), "altitude of layer 2: the slopes do not depend on it");
        let together = |stars: &mut [GuideStar]| {
            for star in stars {
                star.sensor.source = Source::star(0.0, 0.0).unwrap();
            }
        };
        let blind = with(&truth, together);
        let learned = learn(&blind, &blind, &[ParameterGroup::Altitudes]);
        assert!(learned.warnings.contains(&FitWarning::Idle(Parameter::Altitude(1))));
        // A warning about a bound names it, and slopes of noise alone have no profile.
        let bound = FitWarning::Bound(Parameter::Strength(1), 0.0).to_string();
        assert_eq!(bound, "strength of layer 1: at the bound of 0");
        let refused =
            |maps| plan(&truth, &[ParameterGroup::Strengths]).fit(maps, &unwatched).unwrap_err();
        let mut silence = learned.maps;
        silence.values.fill(0.0);
        let mut noise = silence.clone();
        let message = refused(silence).to_string();
        assert!(
            message.starts_with("zero lag of guide_star[0] = 0.0: expected a variance"),
            "{message}"
        );
        for pair in noise.layout.pairs().iter().filter(|pair| pair.is_own()) {
            for axes in [0, 3] {
                noise.values[pair.range().start + pair.place(axes, [4, 4])] = 1e-14;
            }
        }
        let message = refused(noise).to_string();
        assert!(message.contains("no turbulence in common"), "{message}");
    }

    // Test a common rotation of sensors
    #[test]
    fn a_common_turn_is_told_only_aloft() {
        for (altitudes, blind) in [([0.0, 0.0], true), ([3000.0, 6500.0], false)] {
            let rest = system(0.15, [0.5, 0.3, 0.2], altitudes, 20.0);
            let turned = with(&rest, |stars| {
                for (star, turn) in stars.iter_mut().zip([0.02, 0.0, -0.01]) {
                    star.sensor.array = LensletArray::new(4, 0.6).unwrap();
                    star.sensor.rotation = turn;
                }
            });
            let warnings = learn(&turned, &turned, &[ParameterGroup::Rotations]).warnings;
            let together = |warning: &FitWarning| match warning {
                FitWarning::Blind(parts) | FitWarning::Hardly(parts) => {
                    parts.len() == 3 && parts.iter().all(|(_, part)| part * parts[0].1 > 0.0)
                }
                _ => false,
            };
            assert_eq!(warnings.iter().any(together), blind, "{warnings:?}");
        }
    }

    // Refusals of learning
    #[test]
    fn what_cannot_be_learned_is_refused_by_name() {
        let whole = system(0.15, [0.5, 0.3, 0.2], [3000.0, 6500.0], 20.0);
        let refused = |system: &System, fit: &[ParameterGroup]| {
            let options = LearnOptions::default().fit(fit.iter().copied());
            LearnPlan::new(system, options).unwrap_err().to_string()
        };
        let nothing = refused(&whole, &[]);
        assert!(
            nothing.starts_with("fit = \"nothing\": expected at least one of strengths"),
            "{nothing}"
        );
        let ground = system(0.15, [0.5, 0.3, 0.2], [0.0, 0.0], 20.0);
        assert!(
            refused(&ground, &[ParameterGroup::Altitudes])
                .contains("all layers of the system are at the ground")
        );
        let alone =
            whole.to_builder().guide_stars(whole.guide_stars()[..1].to_vec()).build().unwrap();
        assert!(refused(&alone, &[ParameterGroup::Shifts]).contains("a single guide star"));
        let endless = system(0.15, [0.5, 0.3, 0.2], [3000.0, 6500.0], f64::INFINITY);
        assert!(refused(&endless, &[ParameterGroup::OuterScale]).starts_with("outer_scale = inf"));
        let plan = plan(&whole, &[ParameterGroup::Strengths]);
        let bad = run(&plan, Array2::zeros((1, plan.slopes()))).unwrap_err();
        assert!(bad.to_string().starts_with("frames = 1: expected at least 2"), "{bad}");
        let other = learn(&alone, &alone, &[ParameterGroup::Strengths]).maps;
        assert!(plan.fit(other, &unwatched).unwrap_err().to_string().starts_with("maps = "));
        let description = plan.describe(&Engine::default()).unwrap();
        assert!(
            description.method.starts_with("3 numbers and 9 of noise")
                && description.memory.host > 1 << 20
        );
    }
}
