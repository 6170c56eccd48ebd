// Tangled from book/src/dense-covariance.md: edit there, or here and run cargo tangle stitch.
//! Covariances without a Toeplitz form, pair by pair: stars at unequal heights, arrays of unequal pitch, any target.

pub mod gpu;
#[cfg(feature = "factorise")]
pub(crate) mod lags;

// Imports of pairs without a lattice
use crate::device::{Workers, dispatch, gather, lock, refuse_beyond_memory, threads};
use crate::error::{Error, accept, count, length};
use crate::model::atmosphere::{Atmosphere, Layer};
use crate::model::lenslet_array::SlopeOrder;
use crate::model::sensor::{Groups, Sensor};
use crate::model::source::{ConeGradient, Source};
use crate::model::wavefront_grid::PhaseGrid;
use crate::turbulence::aligned_footprints::corners_serve;
use crate::turbulence::aligned_footprints::{
    DistantTable, FootprintAverage, FootprintPair, PanelGrid, TabulatedPhase, band_covariances,
};
use crate::turbulence::direct::slope::pair_covariances;
use crate::turbulence::disc::DiscAverage;
use crate::turbulence::edges::EdgePanels;
use crate::turbulence::phase::VonKarman;
use crate::turbulence::rotated_footprints::{Turn, TurnedSquares};
use crate::turbulence::slope::{SlopeCovariance, SlopeProblem, check_outer_scales};
use crate::watch::{CancelOnly, Watch, unwatched};
use ndarray::Array2;
use rayon::prelude::*;
use std::f64::consts::PI;
use std::sync::{Arc, Mutex};

// Average over two rotated footprints
/// Rings, with the distance in half widths from which they suffice, the farthest first; nearer than all, edges serve.
const RINGS: [(usize, f64); 2] = [(2, 12.0), (3, 6.5)];

/// The average of the covariance of phase gradients over two footprints rotated against each other, for r0 = 1 m.
struct TurnedAverage {
    phase: Arc<TabulatedPhase>,
    squares: TurnedSquares,
    /// (D1 + D2) / 2, metres.
    half_width: f64,
    /// Nodes and weights in the order of `RINGS`.
    rules: [Vec<[f64; 3]>; RINGS.len()],
}

impl TurnedAverage {
    // Average over rotated footprints at any distance
    fn new(phase: &Arc<TabulatedPhase>, squares: TurnedSquares) -> Self {
        let half_width = 0.5 * (squares.sides[0] + squares.sides[1]);
        let rules = RINGS.map(|(rings, _)| squares.rings(rings));
        Self { phase: Arc::clone(phase), squares, half_width, rules }
    }

    /// c_ab at the displacement (x, y), in metres along the axes of the first footprint; rad² m⁻².
    fn at(&self, x: f64, y: f64) -> [[f64; 2]; 2] {
        let (phase, distance) = (&self.phase, x.hypot(y) / self.half_width);
        let Some(rule) = RINGS.iter().position(|&(_, from)| distance >= from) else {
            let [one, two] = self.squares.sides;
            let panels = EdgePanels::new(0.0, phase.outer_scale, one.min(two));
            let functions = (|t| phase.half_structure_alone(t), |t| phase.half_mean_alone(t));
            return self.squares.by_edges(&panels, functions, [x, y]);
        };
        let mut sum = [0.0; 3];
        for [u, v, weight] in &self.rules[rule] {
            for (sum, gradient) in sum.iter_mut().zip(phase.gradients(x + u, y + v)) {
                *sum += weight * gradient;
            }
        }
        self.squares.along_axes(sum)
    }
}

// Footprints of a sensor on a layer
/// The footprints of one sensor's lenslets on a layer.
struct Footprints {
    /// D = γ m d, metres.
    side: f64,
    /// g of Eq. [slope](https://lenslet.github.io/lenslet/slope-covariance.html#eq-slope).
    factor: f64,
    /// The rotation of the sensor, rad, and its axes.
    rotation: f64,
    axes: [[f64; 2]; 2],
    /// Coordinates of the centres along these axes: along x by column, along y by row; metres.
    centres: [Vec<f64>; 2],
}

// Place the footprints on a layer
impl Footprints {
    fn new(sensor: &Sensor, gradient: ConeGradient, altitude: f64) -> Self {
        let gamma = sensor.source.cone_factor(altitude);
        let (axes, rest) = (sensor.axes(), |i| sensor.magnification * sensor.array.centre(i));
        let middle = own_coordinates(axes, sensor.source.project(sensor.shift, altitude));
        let lenslets = 0..sensor.array.lenslets();
        let centres = middle.map(|m| lenslets.clone().map(|i| gamma * rest(i) + m).collect());
        let (side, factor) = (gamma * sensor.side(), gradient.factor(gamma));
        Self { side, factor, rotation: sensor.rotation, axes, centres }
    }

    // Lines and extent of the footprints
    /// Whether their axes are those of the pupil.
    fn is_upright(&self) -> bool {
        self.axes == [[1.0, 0.0], [0.0, 1.0]]
    }

    /// How far from the axis the footprints extend along either of their axes; metres.
    fn extent(&self) -> f64 {
        let centres = self.centres.iter().flatten();
        centres.fold(0.0, |most, centre| f64::max(most, centre.abs())) + self.side
    }
    /// The centre of the footprint of lenslet `[j, i]` along the sensor's axes, metres.
    fn centre(&self, [j, i]: [usize; 2]) -> [f64; 2] {
        [self.centres[0][i], self.centres[1][j]]
    }
    /// The lines that the footprints' edges lie on, one more than footprints along each axis, relative to a point; metres.
    fn lines(&self, point: [f64; 2]) -> [Vec<f64>; 2] {
        [0, 1].map(|axis| {
            let centres = &self.centres[axis];
            let beyond = centres.last().map(|centre| centre + self.side);
            let lines = centres.iter().copied().chain(beyond);
            lines.map(|centre| centre - 0.5 * self.side - point[axis]).collect()
        })
    }
}

// Coordinates along two axes
/// The coordinates of a point along two axes.
fn own_coordinates(axes: [[f64; 2]; 2], [x, y]: [f64; 2]) -> [f64; 2] {
    axes.map(|axis| axis[0] * x + axis[1] * y)
}

// Layer with the footprints of all stars
struct SensorLayer {
    altitude: f64,
    /// (λ/2π)² r0^(−5/3) f: a covariance for r0 = 1 m in rad² times this is one of wavefronts in m².
    strength: f64,
    phase: Arc<TabulatedPhase>,
    footprints: Vec<Footprints>,
}

impl SensorLayer {
    // Sides and strength for two sensors
    /// The sides of their footprints, metres.
    fn sides(&self, pair: [usize; 2]) -> [f64; 2] {
        pair.map(|k| self.footprints[k].side)
    }

    /// By what c must be multiplied, rad² per rad² m⁻².
    fn strength_for(&self, [p, q]: [usize; 2]) -> f64 {
        self.strength * self.footprints[p].factor * self.footprints[q].factor
    }

    /// Rotation of sensor `q` against sensor `p`.
    fn turn(&self, [p, q]: [usize; 2]) -> Turn {
        Turn::by(self.footprints[q].rotation - self.footprints[p].rotation)
    }
}

// Tables of the phase that are kept
/// Tables of the phase that many computations share.
#[derive(Default)]
pub(crate) struct PhaseTables(Mutex<Vec<Arc<TabulatedPhase>>>);

impl PhaseTables {
    /// A table for footprints of at least `side`, out to the distance `reach`; metres.
    fn get(&self, outer_scale: f64, side: f64, reach: f64) -> Arc<TabulatedPhase> {
        let mut tables = lock(&self.0);
        if let Some(known) = tables.iter().find(|known| known.serves(outer_scale, side, reach)) {
            return Arc::clone(known);
        }
        let new = Arc::new(TabulatedPhase::new(outer_scale, 0.5 * side, 2.0 * reach));
        tables.push(Arc::clone(&new));
        if tables.len() > 8 {
            tables.remove(0);
        }
        new
    }
}

// Place all stars on all layers
/// The footprints of all stars on each layer.
fn place_footprints(
    atmosphere: &Atmosphere,
    stars: &[Sensor],
    gradient: ConeGradient,
) -> Vec<Vec<Footprints>> {
    let on = |altitude| stars.iter().map(move |star| Footprints::new(star, gradient, altitude));
    atmosphere.layers().iter().map(|layer| on(layer.altitude).collect()).collect()
}

/// All layers with the footprints of the stars; `extent` is the distance of other points of interest from the axis at an altitude.
fn see_layers(
    atmosphere: &Atmosphere,
    stars: &[Sensor],
    gradient: ConeGradient,
    extent: impl Fn(f64) -> f64,
    kept: Option<&PhaseTables>,
) -> Vec<SensorLayer> {
    let footprints = place_footprints(atmosphere, stars, gradient);
    // Make a table for each outer scale
    let table = |outer_scale: f64| {
        let sharing = (atmosphere.layers().iter().zip(&footprints))
            .filter(|(layer, _)| layer.outer_scale == outer_scale);
        let (mut side, mut reach) = (f64::INFINITY, 0.0);
        for (layer, stars) in sharing {
            let farthest =
                stars.iter().map(Footprints::extent).fold(extent(layer.altitude), f64::max);
            reach = f64::max(reach, 1.01 * 8f64.sqrt() * farthest);
            side = stars.iter().map(|star| star.side).fold(side, f64::min);
        }
        let new = || Arc::new(TabulatedPhase::new(outer_scale, side, reach));
        kept.map_or_else(new, |tables| tables.get(outer_scale, side, reach))
    };
    // Join layers footprints and tables
    let mut phases: Vec<Arc<TabulatedPhase>> = Vec::new();
    for Layer { outer_scale, .. } in atmosphere.layers() {
        let known = phases.iter().find(|known| known.outer_scale == *outer_scale);
        phases.push(known.map_or_else(|| table(*outer_scale), Arc::clone));
    }
    let wavefront = (atmosphere.wavelength() / (2.0 * PI)).powi(2)
        * atmosphere.fried_parameter().powf(-5.0 / 3.0);
    let layers = atmosphere.layers().iter().zip(phases).zip(footprints);
    layers
        .map(|((layer, phase), footprints)| SensorLayer {
            altitude: layer.altitude,
            strength: wavefront * layer.fraction,
            phase,
            footprints,
        })
        .collect()
}

// Check stars and their valid lenslets
/// The order of the slopes, after all checks.
fn slope_order(
    atmosphere: &Atmosphere,
    stars: &[Sensor],
    valid: &[Array2<bool>],
) -> Result<SlopeOrder, Error> {
    accept(!stars.is_empty(), "guide stars", 0, "at least one")?;
    check_outer_scales(atmosphere, stars)?;
    let expected = format!("one mask for each of {}", count(stars.len(), "guide star"));
    accept(valid.len() == stars.len(), "masks of valid lenslets", valid.len(), &expected)?;
    for (k, (star, valid)) in stars.iter().zip(valid).enumerate() {
        star.source.check_above(atmosphere)?;
        let (name, n) = (format!("valid lenslets of guide_star[{k}]"), star.array.lenslets());
        let expected = format!("a mask of {n} × {n}, the lenslets of the star");
        accept(valid.dim() == (n, n), &name, valid.dim(), &expected)?;
        accept(valid.iter().any(|&valid| valid), &name, 0, "at least one")?;
    }
    Ok(SlopeOrder::new(valid))
}

// Block of the slope covariance matrix
/// The covariance of the slopes of two stars.
enum StarPairBlock<'a> {
    /// Of two stars that share a lattice, by their numbers in the group.
    Shared(&'a SlopeCovariance, [usize; 2]),
    /// Of two stars with aligned footprints, for each layer; and the quarter turns of the second against the first.
    Parallel(Vec<FootprintPair<'a>>, Turn),
    /// Of two others: each layer's strength (rad² per rad² m⁻²), its average, both stars' footprints on it. And how the second is
    /// turned against the first.
    Turned(Vec<(f64, TurnedAverage, [&'a Footprints; 2])>, Turn),
}

impl<'a> StarPairBlock<'a> {
    // Choose how a block is computed
    fn new(
        (groups, shared): (&Groups, &'a [Option<SlopeCovariance>]),
        (layers, averages): (&'a [SensorLayer], &'a [Vec<FootprintAverage>]),
        [p, q]: [usize; 2],
    ) -> Self {
        let ((group, first), (other, second)) = (groups.place(p), groups.place(q));
        if let (true, Some(covariance)) = (group == other, &shared[group]) {
            return Self::Shared(covariance, [first, second]);
        }
        let turn = layers[0].turn([p, q]);
        if turn.sin == 0.0 {
            let layers = layers.iter().zip(averages);
            let views = layers.filter_map(|layer| Self::view(layer, [p, q], turn));
            return Self::Parallel(views.collect(), turn);
        }
        Self::turned(layers.iter(), [p, q], turn)
    }

    // Block of two rotated sensors
    /// The block of two sensors that are rotated against each other.
    fn turned(
        layers: impl Iterator<Item = &'a SensorLayer>,
        [p, q]: [usize; 2],
        turn: Turn,
    ) -> Self {
        let turned = layers.map(|layer| {
            let squares =
                TurnedSquares { sides: layer.sides([p, q]), cos: turn.cos, sin: turn.sin };
            let average = TurnedAverage::new(&layer.phase, squares);
            (layer.strength_for([p, q]), average, [p, q].map(|k| &layer.footprints[k]))
        });
        Self::Turned(turned.collect(), turn)
    }

    // Pair of aligned footprints on a layer
    /// The aligned footprints of two sensors on a layer, given the layer's averages, one of which has their sides.
    fn view(
        (layer, averages): (&'a SensorLayer, &'a Vec<FootprintAverage>),
        [p, q]: [usize; 2],
        turn: Turn,
    ) -> Option<FootprintPair<'a>> {
        let average = averages.iter().find(|average| average.is_of(layer.sides([p, q])))?;
        let [x, y] = &layer.footprints[q].centres;
        let along = |centres: &[f64], sign: f64| centres.iter().map(|x| sign * x).collect();
        let second = match turn.quarters {
            0 => [along(x, 1.0), along(y, 1.0)],
            1 => [along(y, -1.0), along(x, 1.0)],
            2 => [along(x, -1.0), along(y, -1.0)],
            _ => [along(y, 1.0), along(x, -1.0)],
        };
        let (strength, first) = (layer.strength_for([p, q]), &layer.footprints[p].centres);
        Some(FootprintPair { strength, average, first, second })
    }

    // Covariance of two lenslets
    /// The covariance of a lenslet of the first of two stars in a group with one of the second, by row and column: rows are the components
    /// of the first, columns those of the second; rad².
    fn of_group(
        covariance: &SlopeCovariance,
        [p, q]: [usize; 2],
        [first, second]: [[usize; 2]; 2],
    ) -> [[f64; 2]; 2] {
        let [j, i] = [0, 1].map(|axis| covariance.lenslets() - 1 + second[axis] - first[axis]);
        let [xx, xy, yy] =
            [[0, 0], [0, 1], [1, 1]].map(|[a, b]| covariance.values()[[p, q, a, b, j, i]]);
        [[xx, xy], [xy, yy]]
    }

    // Covariance of two rotated lenslets
    /// The covariance of lenslets of two stars that are rotated against each other: rows are components of the first, columns of the second; rad².
    fn of_turned(
        layers: &[(f64, TurnedAverage, [&Footprints; 2])],
        turn: &Turn,
        [first, second]: [[usize; 2]; 2],
    ) -> [[f64; 2]; 2] {
        let mut sum = [[0.0; 2]; 2];
        for (strength, average, [one, two]) in layers {
            let ([x, y], [u, v]) = (turn.apply(two.centre(second)), one.centre(first));
            let average = turn.complete(average.at(x - u, y - v));
            let components = sum.as_flattened_mut().iter_mut().zip(average.as_flattened());
            components.for_each(|(sum, component)| *sum += strength * component);
        }
        sum
    }

    // Fill a block's part of some rows
    /// Covariances of some lenslets with others: for each of the first its row of xx, xy, yx and yy.
    fn fill(&self, [firsts, others]: [&[[usize; 2]]; 2], rows: &mut [[&mut [f64]; 4]]) {
        let mut put = |[first, other]: [usize; 2], covariance: [[f64; 2]; 2]| {
            let values = covariance.into_iter().flatten();
            rows[first].iter_mut().zip(values).for_each(|(row, value)| row[other] = value);
        };
        let pairs = || {
            let of = |k| (0..others.len()).map(move |l| ([k, l], [firsts[k], others[l]]));
            (0..firsts.len()).flat_map(of)
        };
        match self {
            Self::Shared(covariance, stars) => {
                pairs().for_each(|(at, pair)| put(at, Self::of_group(covariance, *stars, pair)));
            }
            Self::Turned(layers, turn) => {
                pairs().for_each(|(at, pair)| put(at, Self::of_turned(layers, turn, pair)));
            }
            Self::Parallel(views, turn) => {
                // Fill from rows of aligned footprints
                let swapped = turn.quarters % 2 == 1;
                let order = |&[row, column]: &[usize; 2]| {
                    if swapped { [column, row] } else { [row, column] }
                };
                let others: Vec<[usize; 2]> = others.iter().map(order).collect();
                let put = |at, [xx, xy, yy]: [f64; 3]| put(at, turn.complete([[xx, xy], [xy, yy]]));
                band_covariances(views, [firsts, &others], put);
            }
        }
    }
}

// Slope covariance of any stars
// The documentation of the slope covariance
/// The covariance matrix of the slopes of any guide stars in the order of [`SlopeOrder`], rad².
///
/// `valid` has the valid lenslets of each star. Stars may have unequal heights, and their arrays unequal pitch, size, rotation, shift
/// and magnification; slopes are along the sensors' own axes. Every entry is exact to 1e-9 of the slope variance, and to
/// 1e-10 where sensors are aligned; those of sensors that share a lattice are expanded from their Toeplitz form. `watch` counts
/// lenslets.
///
/// # Errors
/// `Invalid` where there is no star, a layer at or above one, or a mask of the wrong shape or without a valid lenslet; `Memory`
/// where the matrix, and the Toeplitz forms from which it is expanded, do not fit.
///
/// ```
/// use lenslet::watch::unwatched;
/// use lenslet::model::*;
/// use lenslet::turbulence::cross_covariance;
/// let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, f64::INFINITY)])?;
/// let star = |source| Ok::<_, lenslet::Invalid>(Sensor::at_rest(source, LensletArray::new(1, 0.5)?));
/// let stars = [star(Source::new(0.0, 0.0, 90e3)?)?, star(Source::star(0.0, 0.0)?)?];
/// let one = ndarray::arr2(&[[true]]);
/// let matrix = cross_covariance::slope_covariance(&air, &stars, &[one.clone(), one], ConeGradient::Pupil, &unwatched)?;
/// // On the ground both stars have the same footprints: 0.1622428 λ² d^(−1/3) r0^(−5/3) everywhere, along x and along y.
/// let variance = 0.1622428 * 500e-9f64.powi(2) * 0.5f64.powf(-1.0 / 3.0) * 0.15f64.powf(-5.0 / 3.0);
/// assert!([0, 2].iter().all(|&column| (matrix[[0, column]] / variance - 1.0).abs() < 1e-6));
/// assert!(matrix[[0, 1]].abs() < 1e-12 * variance && matrix[[1, 2]].abs() < 1e-12 * variance);
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn slope_covariance(
    atmosphere: &Atmosphere,
    stars: &[Sensor],
    valid: &[Array2<bool>],
    gradient: ConeGradient,
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    let compute = |sensors: &[Sensor], slopes: [Slopes; 2]| {
        any_slopes((atmosphere, gradient), sensors, slopes, (None, watch))
    };
    square(atmosphere, (stars, valid), compute)
}

// Covariance between two lists of sensors
// The documentation of rectangular covariance
/// The covariances of the slopes of the `first` sensors, as rows, with those of the `second`, as columns, rad²; each in the order of
/// their own [`SlopeOrder`].
///
/// Each sensor has a mask of valid lenslets. Sensors may differ in every property; slopes are along the sensors' own axes. Entries are
/// as exact as those of [`slope_covariance`], whose blocks they are. `watch` counts lenslets of the rows.
///
/// # Errors
/// Those of [`slope_covariance`].
///
/// ```
/// use lenslet::watch::unwatched;
/// use lenslet::model::*;
/// use lenslet::turbulence::cross_covariance;
/// let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(5e3, 1.0, 25.0)])?;
/// let rest = Sensor::at_rest(Source::star(0.0, 0.0)?, LensletArray::new(1, 0.5)?);
/// let turned = Sensor { rotation: std::f64::consts::FRAC_PI_2, ..rest };
/// let one = [ndarray::arr2(&[[true]])];
/// let matrix = cross_covariance::slope_cross_covariance(&air, (&[rest], &one), (&[turned], &one), ConeGradient::Pupil, &unwatched)?;
/// // The x slope of the second is the y slope of the first, and its y slope minus the x slope of the first.
/// assert!(matrix[[1, 0]] > 0.0 && (matrix[[0, 1]] + matrix[[1, 0]]).abs() < 1e-12 * matrix[[1, 0]]);
/// assert!(matrix[[0, 0]].abs() < 1e-12 * matrix[[1, 0]]);
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn slope_cross_covariance(
    atmosphere: &Atmosphere,
    first: (&[Sensor], &[Array2<bool>]),
    second: (&[Sensor], &[Array2<bool>]),
    gradient: ConeGradient,
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    let compute = |sensors: &[Sensor], slopes: [Slopes; 2]| {
        any_slopes((atmosphere, gradient), sensors, slopes, (None, watch))
    };
    rectangle(atmosphere, [first, second], compute)
}

// Prepare a square of slopes
/// The matrix of some sensors' slopes against themselves, of which `compute` fills the blocks from the diagonal on.
pub(crate) fn square(
    atmosphere: &Atmosphere,
    (sensors, valid): (&[Sensor], &[Array2<bool>]),
    compute: impl FnOnce(&[Sensor], [Slopes; 2]) -> Result<Array2<f64>, Error>,
) -> Result<Array2<f64>, Error> {
    let mut matrix = half_square(atmosphere, (sensors, valid), compute)?;
    mirror(&mut matrix);
    Ok(matrix)
}

/// The upper triangle of the slope covariance matrix of some sensors, wherever `compute` keeps it.
pub(crate) fn half_square<R>(
    atmosphere: &Atmosphere,
    (sensors, valid): (&[Sensor], &[Array2<bool>]),
    compute: impl FnOnce(&[Sensor], [Slopes; 2]) -> Result<R, Error>,
) -> Result<R, Error> {
    let order = slope_order(atmosphere, sensors, valid)?;
    let slopes = Slopes { order: &order, first: 0, sensors: sensors.len() };
    compute(sensors, [slopes, slopes])
}

// Prepare a rectangle of slopes
/// The matrix of some sensors' slopes against those of others, which `compute` fills; all sensors are in one list.
pub(crate) fn rectangle<R>(
    atmosphere: &Atmosphere,
    sets: [(&[Sensor], &[Array2<bool>]); 2],
    compute: impl FnOnce(&[Sensor], [Slopes; 2]) -> Result<R, Error>,
) -> Result<R, Error> {
    let [rows, columns] = sets.map(|(sensors, valid)| slope_order(atmosphere, sensors, valid));
    let ((rows, columns), [(first, _), (second, _)]) = ((rows?, columns?), sets);
    let slopes = [
        Slopes { order: &rows, first: 0, sensors: first.len() },
        Slopes { order: &columns, first: first.len(), sensors: second.len() },
    ];
    compute(&[first, second].concat(), slopes)
}

// Slopes of some sensors against others
/// The slopes that are rows, or columns, of a matrix.
#[derive(Clone, Copy)]
pub(crate) struct Slopes<'a> {
    pub(crate) order: &'a SlopeOrder,
    /// Index of their first sensor among all of a layer.
    pub(crate) first: usize,
    /// Number of these sensors.
    pub(crate) sensors: usize,
}

// Fill rows against columns block by block
/// The covariances of rows with columns. Where both are of the same sensors, those below the diagonal of blocks stay zero.
fn any_slopes(
    (atmosphere, gradient): (&Atmosphere, ConeGradient),
    sensors: &[Sensor],
    slopes: [Slopes; 2],
    (kept, watch): (Option<&PhaseTables>, &dyn Watch),
) -> Result<Array2<f64>, Error> {
    // Prepare groups, layers and requests
    let groups = Groups::new(sensors);
    let both = |members: &[usize]| slopes.iter().all(|side| members.iter().any(|&k| side.holds(k)));
    let worthy = groups.members().filter(|members| both(members));
    let layers = see_layers(atmosphere, sensors, gradient, |_| 0.0, kept);
    let views = layers.iter().map(|layer| (layer.phase.outer_scale, &layer.footprints[..]));
    let requests = average_requests(&shares(&groups), views, slopes);
    let tables = requests.iter().flatten().map(AverageRequest::numbers).sum::<u64>();
    check_slope_memory(slopes, expanded(sensors, worthy).saturating_add(tables))?;
    // Compute the groups that share a lattice
    let mut shared = Vec::new();
    for members in groups.members() {
        let covariance = |members: &[usize]| {
            let alike: Vec<Sensor> = members.iter().map(|&k| sensors[k]).collect();
            let problem = SlopeProblem::of_sensors(atmosphere, &alike, gradient)?;
            let pairs = pair_covariances(&problem, &unwatched)?;
            Ok::<_, Error>(SlopeCovariance::from_pairs(&problem, &pairs))
        };
        shared.push(both(members).then(|| covariance(members)).transpose()?);
    }
    let averages = prepare_averages(&layers, requests, watch)?;
    let block = |pair| StarPairBlock::new((&groups, &shared), (&layers, &averages), pair);
    fill_slopes(slopes, block, StarPairBlock::fill, watch)
}

// Averages that all pairs of sensors share
/// An average over two sides, needed by a number of pairs of lenslets that are displaced by up to `reach`; metres.
struct AverageRequest {
    outer_scale: f64,
    sides: [f64; 2],
    reach: f64,
    pairs: usize,
}

/// Whether two sensors are of one group, whose lattice serves all of its pairs.
fn shares(groups: &Groups) -> impl Fn([usize; 2]) -> bool {
    |[p, q]| groups.place(p).0 == groups.place(q).0
}

// Request averages of all pairs
/// Averages that pairs of aligned sensors need on each layer, if they are not `shared`.
fn average_requests<'a>(
    shared: &dyn Fn([usize; 2]) -> bool,
    layers: impl Iterator<Item = (f64, &'a [Footprints])>,
    slopes: [Slopes; 2],
) -> Vec<Vec<AverageRequest>> {
    let [rows, columns] = slopes;
    let pairs: Vec<[usize; 2]> = (pairs_of(slopes).into_iter())
        .map(|[p, q]| [rows.first + p, columns.first + q])
        .filter(|pair| !shared(*pair))
        .collect();
    let of_layer = |(outer_scale, stars): (f64, &[Footprints])| {
        let mut requests: Vec<AverageRequest> = Vec::new();
        for &pair in &pairs {
            // Request an average for two sensors
            let [one, two] = pair.map(|k| &stars[k]);
            if Turn::by(two.rotation - one.rotation).sin != 0.0 {
                continue;
            }
            let mut sides = [one.side, two.side];
            sides.sort_by(f64::total_cmp);
            let reach = [one, two].map(|star| star.extent() - star.side).iter().sum();
            let lenslets =
                rows.count(pair[0] - rows.first) * columns.count(pair[1] - columns.first);
            match requests.iter_mut().find(|known| known.sides == sides) {
                Some(known) => {
                    known.reach = f64::max(known.reach, reach);
                    known.pairs += lenslets;
                }
                None => {
                    requests.push(AverageRequest { outer_scale, sides, reach, pairs: lenslets })
                }
            }
        }
        requests
    };
    layers.map(of_layer).collect()
}
impl AverageRequest {
    fn grid(&self) -> Option<PanelGrid> {
        PanelGrid::worthy(self.sides, self.reach, self.pairs)
    }

    /// Number of values in its table.
    fn numbers(&self) -> u64 {
        self.grid().map_or(0, |grid| grid.numbers(self.sides, self.outer_scale))
    }
}
// Prepare averages with their tables
/// The averages that were requested for each layer.
fn prepare_averages(
    layers: &[SensorLayer],
    requests: Vec<Vec<AverageRequest>>,
    watch: &dyn Watch,
) -> Result<Vec<Vec<FootprintAverage>>, Error> {
    let corners = tables_of_corners(layers, &requests, watch)?;
    let all: Vec<(usize, AverageRequest)> = (requests.into_iter().enumerate())
        .flat_map(|(k, requests)| requests.into_iter().map(move |request| (k, request)))
        .collect();
    let prepare = |_: &(), (k, request): (usize, AverageRequest)| {
        let average = FootprintAverage::new(&layers[k].phase, request.sides);
        let share = corners.iter().find(|(sharing, _)| sharing.serve(&request));
        let grid = request.grid();
        let table = share.filter(|_| grid.is_some()).and_then(|(_, table)| table.as_ref());
        Ok((k, average.tabulated(grid, table)))
    };
    let mut averages: Vec<Vec<_>> = layers.iter().map(|_| Vec::new()).collect();
    for (k, average) in gather(Workers::cores(&()), all, &CancelOnly(watch), prepare)? {
        averages[k].push(average);
    }
    Ok(averages)
}

// Tables of corners for many averages
/// Averages that share a table of corners: those of an outer scale whose sum of sides is up to this, metres, and half of it or more.
struct Sharing {
    outer_scale: f64,
    most: f64,
    sides: Vec<[f64; 2]>,
}

impl Sharing {
    fn serve(&self, request: &AverageRequest) -> bool {
        let sum = request.sides[0] + request.sides[1];
        request.outer_scale == self.outer_scale && sum <= self.most && sum >= 0.5 * self.most
    }
}

// Group and fill tables of corners
/// The tables of corners of all averages that have a table.
fn tables_of_corners(
    layers: &[SensorLayer],
    requests: &[Vec<AverageRequest>],
    watch: &dyn Watch,
) -> Result<Vec<(Sharing, Option<DistantTable>)>, Error> {
    let sum = |request: &AverageRequest| request.sides[0] + request.sides[1];
    let mut all: Vec<&AverageRequest> =
        requests.iter().flatten().filter(|request| request.grid().is_some()).collect();
    all.sort_by(|one, other| sum(other).total_cmp(&sum(one)));
    let mut shared: Vec<Sharing> = Vec::new();
    for &request in &all {
        let AverageRequest { outer_scale, sides, .. } = *request;
        match shared.iter_mut().find(|sharing| sharing.serve(request)) {
            Some(sharing) => sharing.sides.push(sides),
            None => shared.push(Sharing { outer_scale, most: sum(request), sides: vec![sides] }),
        }
    }
    // Fill a shared table of corners
    let prepare = |_: &(), sharing: Sharing| {
        let mut phases = layers.iter().map(|layer| &layer.phase);
        let phase = phases.find(|phase| phase.outer_scale == sharing.outer_scale);
        let table = phase.and_then(|phase| DistantTable::of_corners(phase, &sharing.sides));
        Ok((sharing, table))
    };
    gather(Workers::cores(&()), shared, &CancelOnly(watch), prepare)
}

// Numbers of all tables for some sensors
impl AverageRequest {
    /// Whether its corners are tabulated, too.
    fn has_corners(&self) -> bool {
        corners_serve(self.sides)
    }
}

/// Number of values in all tables with corners for some sensors, if all of their lenslets are valid.
fn numbers_of_tables(atmosphere: &Atmosphere, sensors: &[Sensor]) -> u64 {
    let all = |star: &Sensor| Array2::from_elem([star.array.lenslets(); 2], true);
    let valid: Vec<Array2<bool>> = sensors.iter().map(all).collect();
    let order = SlopeOrder::new(&valid);
    let slopes = Slopes { order: &order, first: 0, sensors: sensors.len() };
    let footprints = place_footprints(atmosphere, sensors, ConeGradient::Pupil);
    let scales = atmosphere.layers().iter().map(|layer| layer.outer_scale);
    let layers = scales.zip(footprints.iter().map(Vec::as_slice));
    let requests = average_requests(&shares(&Groups::new(sensors)), layers, [slopes; 2]);
    let whole = requests.iter().flatten().filter(|average| average.has_corners());
    whole.map(AverageRequest::numbers).sum()
}

// Lenslets of a sensor in slopes
impl Slopes<'_> {
    fn holds(&self, sensor: usize) -> bool {
        (self.first..self.first + self.sensors).contains(&sensor)
    }

    /// Valid lenslets of a sensor, counted from the first.
    fn count(&self, sensor: usize) -> usize {
        self.order.lenslets(sensor).len()
    }
}

// Fill the matrix of slopes
/// Rows of lenslets that are filled at once.
const ROWS: usize = 4;

/// Fills the rows. `block` prepares what two sensors need, by their numbers among all; `fill` computes the covariances of some
/// lenslets with others of a block's second sensor: for each its xx, xy, yx and yy, the first letter being the slope of that lenslet.
pub(crate) fn fill_slopes<B: Send + Sync>(
    [rows, columns]: [Slopes; 2],
    block: impl Fn([usize; 2]) -> B + Sync,
    fill: impl Fn(&B, [&[[usize; 2]]; 2], &mut [[&mut [f64]; 4]]) + Sync,
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    let n = columns.order.len();
    let blocks = pairs_of_sensors([rows, columns], block, watch)?;
    let mut values = vec![0.0; rows.order.len() * n];
    // Distribute the rows of both slopes
    let (mut bands, mut rest): (Vec<Rows>, _) = (Vec::new(), values.as_mut_slice());
    for p in 0..rows.sensors {
        let (these, others) = rest.split_at_mut(2 * rows.count(p) * n);
        let (mut along_x, mut along_y) = these.split_at_mut(rows.count(p) * n);
        let together = |one: &[usize; 2], next: &[usize; 2]| one[0] / ROWS == next[0] / ROWS;
        for firsts in rows.order.lenslets(p).chunk_by(together) {
            let [x, y] = [along_x, along_y].map(|rows| rows.split_at_mut(firsts.len() * n));
            bands.push((p, x.0, y.0, firsts));
            (along_x, along_y) = (x.1, y.1);
        }
        rest = others;
    }
    let fill = |blocks: &Vec<Vec<(usize, B)>>, (p, rows_x, rows_y, firsts): Rows| {
        // Fill the rows of both slopes
        for (q, block) in &blocks[p] {
            let (start, lenslets) = (columns.order.index(*q, 0, 0), columns.order.lenslets(*q));
            let both = rows_x.chunks_mut(n).zip(rows_y.chunks_mut(n));
            let mut parts: Vec<[&mut [f64]; 4]> = both
                .map(|(row_x, row_y)| {
                    let part = [row_x, row_y].map(|row| &mut row[start..][..2 * lenslets.len()]);
                    let [(xx, xy), (yx, yy)] = part.map(|row| row.split_at_mut(lenslets.len()));
                    [xx, xy, yx, yy]
                })
                .collect();
            fill(block, [firsts, lenslets], &mut parts);
        }
        Ok(firsts.len())
    };
    // Report the progress of rows
    let (total, mut done) = ((0..rows.sensors).map(|p| rows.count(p)).sum(), 0);
    let count = |_, lenslets| {
        done += lenslets;
        watch.progress(done, total);
        Ok(())
    };
    dispatch(Workers::cores(&blocks), bands, &CancelOnly(watch), fill, count)?;
    let shape = (rows.order.len(), n);
    Ok(Array2::from_shape_vec(shape, values).unwrap_or_else(|_| unreachable!("same length")))
}

// Prepare the blocks of all pairs
/// The sensors of rows with their partners among those of the columns, both counted from their first.
pub(crate) fn pairs_of([rows, columns]: [Slopes; 2]) -> Vec<[usize; 2]> {
    let symmetric = rows.first == columns.first;
    let partners = |p: usize| (if symmetric { p } else { 0 })..columns.sensors;
    (0..rows.sensors).flat_map(|p| partners(p).map(move |q| [p, q])).collect()
}

/// The blocks of each sensor of the rows with its partners among the columns, by the partners' numbers there.
fn pairs_of_sensors<B: Send>(
    [rows, columns]: [Slopes; 2],
    block: impl Fn([usize; 2]) -> B + Sync,
    watch: &dyn Watch,
) -> Result<Vec<Vec<(usize, B)>>, Error> {
    let pairs = pairs_of([rows, columns]);
    let prepare =
        |_: &(), [p, q]: [usize; 2]| Ok((p, q, block([rows.first + p, columns.first + q])));
    let mut blocks: Vec<Vec<_>> = (0..rows.sensors).map(|_| Vec::new()).collect();
    for (p, q, block) in gather(Workers::cores(&()), pairs, &CancelOnly(watch), prepare)? {
        blocks[p].push((q, block));
    }
    Ok(blocks)
}

// Rows of both slopes of lenslets
/// A sensor of the rows, the rows of both slopes of some of its lenslets, and which lenslets these are.
type Rows<'a> = (usize, &'a mut [f64], &'a mut [f64], &'a [[usize; 2]]);

// Mirror the matrix of slopes
/// Rows of a band that is mirrored at once.
const BAND: usize = 128;

/// Copies what is above the diagonal of a square matrix to below it.
pub(crate) fn mirror(matrix: &mut Array2<f64>) {
    let n = matrix.nrows();
    let Some(values) = matrix.as_slice_mut() else { unreachable!("in C order") };
    for start in (0..n).step_by(BAND) {
        let (above, band) = values.split_at_mut(start * n);
        let band = &mut band[..BAND.min(n - start) * n];
        band.par_chunks_mut(n * BAND / 8).enumerate().for_each(|(k, rows)| {
            let first = start + k * BAND / 8;
            for (column, values) in above.chunks(n).enumerate() {
                let values = &values[first..][..rows.len() / n];
                values.iter().zip(rows.chunks_mut(n)).for_each(|(value, row)| row[column] = *value);
            }
        });
        // Mirror a band within itself
        for row in 0..band.len() / n {
            for column in 0..row {
                band[row * n + start + column] = band[column * n + start + row];
            }
        }
    }
}

// Check that the slope matrix fits
/// Number of values in the Toeplitz forms of some groups.
fn expanded<'a>(sensors: &[Sensor], groups: impl Iterator<Item = &'a [usize]>) -> u64 {
    let toeplitz = |group: &[usize]| {
        let lags = 2 * sensors[group[0]].array.lenslets() as u64 - 1;
        let members = group.len() as u64;
        let pairs = 1 + members * (members - 1) / 2;
        (4 * members * members + 3 * pairs + 6 * threads() as u64).saturating_mul(lags * lags)
    };
    groups.map(toeplitz).fold(0, u64::saturating_add)
}

/// Rejects a matrix that does not fit together with `other` numbers.
pub(crate) fn check_slope_memory([rows, columns]: [Slopes; 2], other: u64) -> Result<(), Error> {
    let [m, n] = [rows, columns].map(|slopes| slopes.order.len() as u64);
    let what = || match rows.first == columns.first {
        true => format!("the covariance matrix of {n} slopes"),
        false => format!("the covariance matrix of {m} slopes with {n} others"),
    };
    check_memory(what, m.saturating_mul(n).saturating_add(other))
}

/// Rejects a computation that needs more memory than is available, with 64 MiB for the rest.
fn check_memory(what: impl Fn() -> String, numbers: u64) -> Result<(), Error> {
    refuse_beyond_memory(numbers.saturating_mul(8).saturating_add(64 << 20), what)
}

// Rectangular covariance with kept tables
/// Slope covariance of two groups of sensors, rad², with tables of the phase that are kept for other covariances.
#[cfg(feature = "factorise")]
pub(crate) fn slope_cross_covariance_with_tables(
    atmosphere: &Atmosphere,
    sets: [(&[Sensor], &[Array2<bool>]); 2],
    gradient: ConeGradient,
    tables: &PhaseTables,
) -> Result<Array2<f64>, Error> {
    let compute = |sensors: &[Sensor], slopes: [Slopes; 2]| {
        any_slopes((atmosphere, gradient), sensors, slopes, (Some(tables), &unwatched))
    };
    rectangle(atmosphere, sets, compute)
}

// Wavefront against the slopes of any stars
/// Half the structure function of a wavefront and the phase at a distance on a layer.
enum RadialPhase {
    /// Of the wavefront at a point.
    Point(Arc<TabulatedPhase>),
    /// Of its average over a disc, for an outer scale in metres.
    Disc(DiscAverage, f64),
}

impl RadialPhase {
    // Half structure and panels of a radial phase
    /// S, or its average over the disc, in rad² at the squared distance `t` in m².
    #[inline(always)]
    fn half_structure(&self, t: f64) -> f64 {
        match self {
            Self::Point(phase) => phase.half_structure_alone(t),
            Self::Disc(average, _) => average.half_structure(t.sqrt()),
        }
    }

    /// Panels for the edges of a footprint of `side` metres.
    fn panels(&self, side: f64) -> EdgePanels {
        match self {
            Self::Point(phase) => EdgePanels::new(0.0, phase.outer_scale, side),
            Self::Disc(average, outer_scale) => {
                EdgePanels::new(average.radius(), *outer_scale, side)
            }
        }
    }
}

// Integrate along the edge of a footprint
/// Adds the covariances of the phase at `point` on a layer, times `strength`, to the x slopes and the y slopes of the lenslets.
fn add_star(
    (phase, strength): (&RadialPhase, f64),
    (star, lenslets): (&Footprints, &[[usize; 2]]),
    point: [f64; 2],
    slopes: &mut [f64],
) {
    let point = own_coordinates(star.axes, point);
    let (lines, panels) = (star.lines(point), phase.panels(star.side));
    let n = lines[0].len();
    let mut edges = vec![f64::NAN; 2 * n * n];
    // Integrate an edge once
    let mut edge = |axis: usize, line: usize, cell: usize| {
        let known = &mut edges[(axis * n + line) * n + cell];
        if known.is_nan() {
            let ends = [lines[1 - axis][cell], lines[1 - axis][cell + 1]];
            [*known] = panels.integrate(lines[axis][line], ends, |t| [phase.half_structure(t)]);
        }
        *known
    };
    let (along_x, along_y) = slopes.split_at_mut(lenslets.len());
    let scale = strength / (star.side * star.side);
    for (k, &[j, i]) in lenslets.iter().enumerate() {
        along_x[k] += scale * (edge(0, i, j) - edge(0, i + 1, j));
        along_y[k] += scale * (edge(1, j, i) - edge(1, j + 1, i));
    }
}
/// Crossings that are made at a time.
const CROSSINGS: usize = 1 << 16;

/// Adds the covariances of the phase at the `points` of a row, times `strength`, to the slopes of the lenslets against each of
/// them, from the table of edges.
fn add_row(
    (table, strength): (&DistantTable, f64),
    (star, lenslets): (&Footprints, &[[usize; 2]]),
    points: &[[f64; 2]],
    slopes: &mut [&mut [f64]],
) {
    let lines: Vec<[Vec<f64>; 2]> = points.iter().map(|&point| star.lines(point)).collect();
    let Some([_, y]) = lines.first() else { return };
    let (n, scale) = (y.len(), strength / (star.side * star.side));
    let across: Vec<f64> = lines.iter().flat_map(|[x, _]| x.iter().copied()).collect();
    let sums = table.crossings([&across, y]);
    for (p, (slopes, [x, _])) in slopes.iter_mut().zip(&lines).enumerate() {
        // Add differences of crossings
        let at = |j: usize, i: usize| sums[j * across.len() + p * n + i];
        let along_y = |j: usize, i: usize| y[j + 1] * at(j + 1, i)[0] - y[j] * at(j, i)[0];
        let along_x = |j: usize, i: usize| x[i + 1] * at(j, i + 1)[2] - x[i] * at(j, i)[2];
        let (x_slopes, y_slopes) = slopes.split_at_mut(lenslets.len());
        for (k, &[j, i]) in lenslets.iter().enumerate() {
            x_slopes[k] += scale * (along_y(j, i) - along_y(j, i + 1));
            y_slopes[k] += scale * (along_x(j, i) - along_x(j + 1, i));
        }
    }
}

// Choose tables of edges
/// For each layer the table of edges that it shares with others of its outer scale, where so many `points` need enough of them.
fn tables_of_edges(
    layers: &[SensorLayer],
    phases: &[RadialPhase],
    points: usize,
) -> Vec<Option<Arc<DistantTable>>> {
    let mut tables: Vec<(f64, Option<Arc<DistantTable>>)> = Vec::new();
    // Table of edges for one scale
    let table = |outer_scale: f64| {
        let sharing = || layers.iter().filter(|layer| layer.phase.outer_scale == outer_scale);
        let stars =
            || sharing().flat_map(|layer| &layer.footprints).filter(|star| star.is_upright());
        let crossings =
            stars().map(|star| points * (star.centres[0].len() + 1).pow(2)).sum::<usize>();
        let side = stars().map(|star| star.side).fold(f64::INFINITY, f64::min);
        let phase = &sharing().next()?.phase;
        let enough = crossings > 2 * DistantTable::values_of_edges(phase, side);
        enough.then(|| Arc::new(DistantTable::of_edges(phase, side)))
    };
    for (layer, phase) in layers.iter().zip(phases) {
        let outer_scale = layer.phase.outer_scale;
        let known = tables.iter().any(|(known, _)| *known == outer_scale);
        if !known && matches!(phase, RadialPhase::Point(_)) {
            tables.push((outer_scale, table(outer_scale)));
        }
    }
    let find = |(layer, phase): (&SensorLayer, &RadialPhase)| {
        let own = tables.iter().find(|(known, _)| *known == layer.phase.outer_scale);
        own.filter(|_| matches!(phase, RadialPhase::Point(_))).and_then(|(_, table)| table.clone())
    };
    layers.iter().zip(phases).map(find).collect()
}

// Wavefront slope covariance of any stars
// The documentation of the wavefront covariance
/// The covariance ⟨w s⟩ of the wavefronts of `targets` with the slopes of any guide stars, m rad; Eq. [wavefront slope dense](https://lenslet.github.io/lenslet/dense-wavefront.html#eq-wavefront-slope-dense).
///
/// Rows are wavefront points: target by target, and in each the points of the grid by rows, x fastest. The grid's step is
/// `pitch` / oversampling, `pitch` in metres. Columns are slopes in the order of [`SlopeOrder`], for the lenslets of `valid`.
/// Targets and stars may have any heights. Entries are exact to 1e-10 of the largest. `watch` counts rows.
///
/// # Errors
/// `Invalid` where there is no target or no star, a layer at or above one, or a mask of the wrong shape or without a valid
/// lenslet; `Memory` where the matrix does not fit.
///
/// ```
/// use lenslet::watch::unwatched;
/// use lenslet::model::{*, PhaseGrid};
/// use lenslet::turbulence::cross_covariance;
/// let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(8e3, 1.0, 25.0)])?;
/// let laser = Sensor::at_rest(Source::new(0.0, 0.0, 90e3)?, LensletArray::new(1, 0.5)?);
/// let points = (&[Source::star(0.0, 0.0)?][..], PhaseGrid::new(3, 2, 0.0)?, 0.5);
/// let one = [ndarray::arr2(&[[true]])];
/// let matrix = cross_covariance::wavefront_slope(&air, points, &[laser], &one, ConeGradient::Pupil, &unwatched)?;
/// assert_eq!(matrix.dim(), (9, 2));
/// // The points left and right of the lenslet, against its x slope: low on the left, high on the right.
/// assert!(matrix[[3, 0]] < 0.0 && matrix[[5, 0]] == -matrix[[3, 0]]);
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn wavefront_slope(
    atmosphere: &Atmosphere,
    (targets, grid, pitch): (&[Source], PhaseGrid, f64),
    stars: &[Sensor],
    valid: &[Array2<bool>],
    gradient: ConeGradient,
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    let at_rest = |layer| Motion { layer, by: [0.0; 2], weight: 1.0 };
    let motions: Vec<Motion> = (0..atmosphere.layers().len()).map(at_rest).collect();
    wavefront_slope_moving(
        (atmosphere, &motions),
        (targets, grid, pitch),
        (stars, valid, gradient),
        watch,
    )
}

// Wavefront slope covariance with displaced sensors
/// A layer whose footprints are displaced, and the weight of its covariance in a sum.
pub(crate) struct Motion {
    /// The number of the layer.
    pub(crate) layer: usize,
    /// The displacement of all stars' footprints on it, metres.
    pub(crate) by: [f64; 2],
    pub(crate) weight: f64,
}

// Displace the footprints of a layer
impl SensorLayer {
    /// The layer with displaced footprints of all sensors from the number `first` on.
    fn moved(&self, motion: &Motion, first: usize) -> Self {
        let moved = |(k, star): (usize, &Footprints)| {
            let by = if k < first { [0.0; 2] } else { own_coordinates(star.axes, motion.by) };
            let along = |axis: usize| star.centres[axis].iter().map(|x| x + by[axis]).collect();
            Footprints { centres: [along(0), along(1)], ..*star }
        };
        Self {
            altitude: self.altitude,
            strength: motion.weight * self.strength,
            phase: Arc::clone(&self.phase),
            footprints: self.footprints.iter().enumerate().map(moved).collect(),
        }
    }
}

/// How far footprints are displaced along either axis, at most; metres.
fn farthest(motions: &[Motion]) -> f64 {
    motions.iter().flat_map(|motion| motion.by).fold(0.0, |far: f64, x| far.max(x.abs()))
}

// Weighted sum of displaced layers
/// [`wavefront_slope`] as a weighted sum over layers with displaced footprints.
pub(crate) fn wavefront_slope_moving(
    (atmosphere, motions): (&Atmosphere, &[Motion]),
    (targets, grid, pitch): (&[Source], PhaseGrid, f64),
    (stars, valid, gradient): (&[Sensor], &[Array2<bool>], ConeGradient),
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    let order = slope_order(atmosphere, stars, valid)?;
    // Check the targets and their grid
    accept(!targets.is_empty(), "targets", 0, "at least one")?;
    targets.iter().try_for_each(|target| target.check_above(atmosphere))?;
    length("pitch", pitch)?;
    let grid = PhaseGrid::new(grid.points, grid.oversampling, grid.disc_radius)?;
    grid.check_discs(atmosphere, pitch)?;
    let rows = targets.len() * grid.points * grid.points;
    let what = || format!("the covariance of {rows} wavefront points and {} slopes", order.len());
    check_memory(what, (rows as u64).saturating_mul(order.len() as u64))?;
    // Place targets and stars on the layers
    let corner = grid.coordinate(grid.points - 1, pitch);
    let farthest = farthest(motions);
    let extent = |altitude: f64| {
        let corners =
            targets.iter().flat_map(|t| [-corner, corner].map(|c| t.project([c, c], altitude)));
        corners.flatten().fold(farthest, |most, c| f64::max(most, c.abs() + farthest))
    };
    let layers = see_layers(atmosphere, stars, gradient, extent, None);
    let layers: Vec<_> =
        motions.iter().map(|motion| layers[motion.layer].moved(motion, 0)).collect();
    let phase_of = |layer: &SensorLayer| {
        let phase = &layer.phase;
        let radius = grid.disc_at(layer.altitude, phase.outer_scale, pitch);
        if radius == 0.0 {
            return RadialPhase::Point(Arc::clone(phase));
        }
        let point = VonKarman::new(phase.outer_scale);
        RadialPhase::Disc(DiscAverage::new(&point, radius, phase.reach), phase.outer_scale)
    };
    let phases: Vec<RadialPhase> = layers.iter().map(phase_of).collect();
    let edges = tables_of_edges(&layers, &phases, rows);
    let mut values = vec![0.0; rows * order.len()];
    let m = grid.points;
    let lines = values.chunks_mut(m * order.len()).enumerate();
    let fill = |phases: &Vec<RadialPhase>, (line, slopes): (usize, &mut [f64])| {
        // Fill the rows of a line of points
        let points = (0..m).map(|k| [k, line % m].map(|k| grid.coordinate(k, pitch)));
        let points: Vec<[f64; 2]> = points.collect();
        let mut rows: Vec<&mut [f64]> = slopes.chunks_mut(order.len()).collect();
        for ((layer, phase), edges) in layers.iter().zip(phases).zip(&edges) {
            let project = |&point: &[f64; 2]| targets[line / m].project(point, layer.altitude);
            let projected: Vec<[f64; 2]> = points.iter().map(project).collect();
            for (q, star) in layer.footprints.iter().enumerate() {
                let (lenslets, strength) = (order.lenslets(q), layer.strength * star.factor);
                let place = order.index(q, 0, 0)..order.index(q, 0, 0) + 2 * lenslets.len();
                let mut slopes: Vec<&mut [f64]> =
                    rows.iter_mut().map(|row| &mut row[place.clone()]).collect();
                match edges.as_deref().filter(|_| star.is_upright()) {
                    Some(table) => {
                        let few = (CROSSINGS / (star.centres[0].len() + 1).pow(2)).max(1);
                        for (projected, slopes) in projected.chunks(few).zip(slopes.chunks_mut(few))
                        {
                            add_row((table, strength), (star, lenslets), projected, slopes);
                        }
                    }
                    None => slopes.iter_mut().zip(&projected).for_each(|(slopes, &at)| {
                        add_star((phase, strength), (star, lenslets), at, slopes);
                    }),
                }
            }
        }
        Ok(())
    };
    dispatch(Workers::cores(&phases), lines, watch, fill, |_, ()| Ok(()))?;
    let shape = (rows, order.len());
    Ok(Array2::from_shape_vec(shape, values).unwrap_or_else(|_| unreachable!("same length")))
}

// Covariances of slopes with displaced sensors
/// [`slope_cross_covariance`] as a weighted sum over layers on which the footprints of the second sensors are displaced.
pub(crate) fn moving_cross_covariance(
    (atmosphere, motions): (&Atmosphere, &[Motion]),
    sets: [(&[Sensor], &[Array2<bool>]); 2],
    gradient: ConeGradient,
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    rectangle(atmosphere, sets, |sensors: &[Sensor], slopes: [Slopes; 2]| {
        // Share averages among all motions
        check_slope_memory(slopes, 0)?;
        let far = farthest(motions);
        let extent = |altitude: f64| {
            let widths = sensors.iter().map(|s| Footprints::new(s, gradient, altitude).extent());
            widths.fold(0.0, f64::max) + far
        };
        let layers = see_layers(atmosphere, sensors, gradient, extent, None);
        let views = layers.iter().map(|layer| (layer.phase.outer_scale, &layer.footprints[..]));
        let mut requests = average_requests(&|_| false, views, slopes);
        for (layer, requests) in requests.iter_mut().enumerate() {
            let count = motions.iter().filter(|motion| motion.layer == layer).count();
            for average in requests {
                average.reach += far;
                average.pairs = average.pairs.saturating_mul(count);
            }
        }
        let averages = prepare_averages(&layers, requests, watch)?;
        let moving: Vec<(usize, SensorLayer)> = motions
            .iter()
            .map(|motion| (motion.layer, layers[motion.layer].moved(motion, slopes[1].first)))
            .collect();
        let block = |pair| MovingBlock::new(sensors, (&moving, &averages), pair);
        fill_slopes(slopes, block, MovingBlock::fill, &CancelOnly(watch))
    })
}

// Block of two sensors with one displaced
/// The covariance of the slopes of two sensors, of which the second is displaced in several ways.
enum MovingBlock<'a> {
    /// Of sensors that share a lattice: xx, xy and yy by the displacement of lenslets in rows and columns, and lenslets across.
    Lattice(Array2<[f64; 3]>, usize),
    Pairs(StarPairBlock<'a>),
}

impl<'a> MovingBlock<'a> {
    // Choose the block of displaced sensors
    fn new(
        sensors: &[Sensor],
        (layers, averages): (&'a [(usize, SensorLayer)], &'a [Vec<FootprintAverage>]),
        [p, q]: [usize; 2],
    ) -> Self {
        let Some((_, first)) = layers.first() else {
            return Self::Pairs(StarPairBlock::Parallel(Vec::new(), Turn::by(0.0)));
        };
        let turn = first.turn([p, q]);
        if turn.sin != 0.0 {
            return Self::Pairs(StarPairBlock::turned(
                layers.iter().map(|(_, layer)| layer),
                [p, q],
                turn,
            ));
        }
        let view = |(k, layer): &'a (usize, SensorLayer)| {
            StarPairBlock::view((layer, &averages[*k]), [p, q], turn)
        };
        let views: Vec<FootprintPair> = layers.iter().filter_map(view).collect();
        match sensors[p].shares_lattice_with(&sensors[q]) {
            true => Self::on_lattice(&views, sensors[p].array.lenslets()),
            false => Self::Pairs(StarPairBlock::Parallel(views, turn)),
        }
    }

    // Covariances by displacements on a lattice
    /// The block of sensors with `across` lenslets across whose footprints share a lattice on each layer.
    fn on_lattice(views: &[FootprintPair], across: usize) -> Self {
        let lags = 2 * across - 1;
        let first = |view: &FootprintPair| [0, 1].map(|axis| vec![view.first[axis][0]]);
        let firsts: Vec<[Vec<f64>; 2]> = views.iter().map(first).collect();
        let displaced = |centres: &Vec<f64>| -> Vec<f64> {
            let step = if across > 1 { centres[1] - centres[0] } else { 0.0 };
            (0..lags).map(|k| centres[0] + (k as f64 - (across - 1) as f64) * step).collect()
        };
        let extended = views.iter().zip(&firsts).map(|(view, first)| {
            let second = view.second.each_ref().map(displaced);
            FootprintPair { strength: view.strength, average: view.average, first, second }
        });
        let views: Vec<FootprintPair> = extended.collect();
        let all: Vec<[usize; 2]> = (0..lags * lags).map(|k| [k / lags, k % lags]).collect();
        let mut values = Array2::from_elem((lags, lags), [0.0; 3]);
        band_covariances(&views, [&[[0, 0]], &all], |[_, k], value| values[all[k]] = value);
        Self::Lattice(values, across)
    }

    // Fill rows from a displaced block
    fn fill(&self, lenslets: [&[[usize; 2]]; 2], rows: &mut [[&mut [f64]; 4]]) {
        match self {
            Self::Pairs(block) => block.fill(lenslets, rows),
            Self::Lattice(values, across) => {
                for (first, rows) in lenslets[0].iter().zip(rows) {
                    for (k, other) in lenslets[1].iter().enumerate() {
                        let lag = [0, 1].map(|axis| across - 1 + other[axis] - first[axis]);
                        let [xx, xy, yy] = values[lag];
                        rows.iter_mut().zip([xx, xy, xy, yy]).for_each(|(row, x)| row[k] = x);
                    }
                }
            }
        }
    }
}

// Tests of pairs without a lattice
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::lenslet_array::LensletArray;
    use crate::numerics::quadrature::gauss_legendre;
    use crate::turbulence::aligned_footprints::tests::{TEN, brute_force, exact_slopes};

    // Exact wavefront by brute force
    /// c of Eq. [point average](https://lenslet.github.io/lenslet/dense-wavefront.html#eq-point-average) of a side at (x, y).
    fn exact_wavefront(phase: &VonKarman, side: f64, at: [f64; 2]) -> [f64; 2] {
        let f = |x: f64, y: f64| [x, y].map(|r| -r * phase.slope_over_distance(x * x + y * y));
        let footprint = at.map(|centre| [centre - 0.5 * side, centre + 0.5 * side]);
        brute_force(footprint, phase.outer_scale(), &f).map(|sum| sum / (side * side))
    }

    // Lopsided system of unequal stars
    /// Two layers of unlike outer scales; four stars: two at 90 km, one natural, one natural with another array; a mask for each.
    fn lopsided() -> (Atmosphere, Vec<Sensor>, Vec<Array2<bool>>) {
        let layers = vec![Layer::new(0.0, 0.6, 25.0), Layer::new(12e3, 0.4, f64::INFINITY)];
        let atmosphere = Atmosphere::new(0.15, 500e-9, layers).unwrap();
        let star = |zenith, azimuth, height, lenslets, pitch| {
            let array = LensletArray::new(lenslets, pitch).unwrap();
            Sensor::at_rest(Source::new(zenith, azimuth, height).unwrap(), array)
        };
        let stars = vec![
            star(1e-4, 0.4, 90e3, 6, 0.4),
            star(5e-5, 4.0, f64::INFINITY, 6, 0.4),
            star(8e-5, 2.0, 90e3, 6, 0.4),
            star(0.0, 0.0, f64::INFINITY, 4, 0.55),
        ];
        let mask = |star: &Sensor, without: usize| {
            let n = star.array.lenslets();
            Array2::from_shape_fn((n, n), |(j, i)| (j * n + 2 * i) % 7 != without && j + i > 0)
        };
        let valid = stars.iter().enumerate().map(|(k, star)| mask(star, k)).collect();
        (atmosphere, stars, valid)
    }

    // Check the matrix of a mixed system
    #[test]
    fn pair_by_pair_agrees_with_the_toeplitz_form() {
        let (air, stars, _) = lopsided();
        for (n, gradient) in [(6, ConeGradient::Pupil), (12, ConeGradient::Layer)] {
            let alike = |array| [stars[0], stars[2]].map(|star| Sensor { array, ..star });
            let mut stars = alike(LensletArray::new(n, 0.4).unwrap());
            let valid =
                [0, 2].map(|k| Array2::from_shape_fn((n, n), |(j, i)| (j * n + 2 * i) % 7 != k));
            let covariance = |stars: &[Sensor]| {
                slope_covariance(&air, stars, &valid, gradient, &unwatched).unwrap()
            };
            let toeplitz = covariance(&stars);
            // A pitch that differs in its last digits puts the stars into groups of their own.
            stars[1].array = LensletArray::new(n, 0.4 * (1.0 + 1e-14)).unwrap();
            assert_eq!(Groups::new(&stars).len(), 2);
            let error = largest(&(&toeplitz - &covariance(&stars))) / toeplitz[[0, 0]];
            assert!(error < 1e-11 && error > 0.0, "{n}: {error:.1e}");
        }
    }

    fn largest(values: &Array2<f64>) -> f64 {
        values.fold(0.0, |most, value| f64::max(most, value.abs()))
    }

    // Check symmetry and eigenvalues
    #[test]
    fn a_mixed_matrix_is_symmetric_and_not_negative() {
        let (air, stars, valid) = lopsided();
        let matrix =
            slope_covariance(&air, &stars, &valid, ConeGradient::Pupil, &unwatched).unwrap();
        assert_eq!(matrix, matrix.t());
        let n = matrix.nrows();
        let dense = faer::Mat::from_fn(n, n, |row, column| matrix[[row, column]]);
        let values = dense.self_adjoint_eigenvalues(faer::Side::Lower).unwrap();
        assert!(values[0] > -1e-12 * values[n - 1] && values[n - 1] > 10.0 * matrix[[0, 0]]);
        // Compare an entry with its definition
        let order = SlopeOrder::new(&valid);
        let ([j, i], [l, k]) = (order.lenslets(2)[2], order.lenslets(3)[4]);
        let mut sum = 0.0;
        for layer in air.layers() {
            let (h, gamma) = (layer.altitude, 1.0 - layer.altitude / 90e3);
            let first = stars[2].source.project([i, j].map(|i| stars[2].array.centre(i)), h);
            let second = stars[3].source.project([k, l].map(|i| stars[3].array.centre(i)), h);
            let displacement = [0, 1].map(|axis| second[axis] - first[axis]);
            let phase = VonKarman::new(layer.outer_scale);
            sum +=
                layer.fraction * gamma * exact_slopes(&phase, [0.4 * gamma, 0.55], displacement)[1];
        }
        sum *= (500e-9 / (2.0 * PI)).powi(2) * 0.15f64.powf(-5.0 / 3.0);
        let error = matrix[[order.index(2, 1, 2), order.index(3, 0, 4)]] - sum;
        assert!(error.abs() < 1e-10 * matrix[[0, 0]] && sum.abs() > 1e-3 * matrix[[0, 0]]);
    }

    // Pin the sign by a tilt
    #[test]
    fn a_wavefront_that_grows_along_x_has_positive_x_slopes() {
        let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(5e3, 1.0, 30.0)]).unwrap();
        let (axis, array) = (Source::star(0.0, 0.0).unwrap(), LensletArray::new(1, 0.5).unwrap());
        let star = [Sensor::at_rest(axis, array)];
        let points = (&[axis][..], PhaseGrid::new(3, 2, 0.0).unwrap(), 0.5);
        let one = [Array2::from_elem((1, 1), true)];
        let xi =
            wavefront_slope(&air, points, &star, &one, ConeGradient::Pupil, &unwatched).unwrap();
        assert!(xi[[5, 0]] > 0.0, "the x slope against the point on the right");
        for row in 0..9 {
            for (component, side) in [(0, row as i32 % 3 - 1), (1, row as i32 / 3 - 1)] {
                let ratio = xi[[row, component]] / xi[[5, 0]];
                assert!(if side == 0 {
                    ratio.abs() < 1e-12
                } else {
                    ratio * f64::from(side) > 0.5
                });
            }
        }
    }

    // Mirror matrices of any size
    #[test]
    fn all_that_is_below_the_diagonal_mirrors_what_is_above() {
        for n in [1, 2, BAND - 1, BAND, BAND + 1, 2 * BAND + 43] {
            let entry =
                |row, column| if row <= column { 1e3 * row as f64 + column as f64 } else { -1.0 };
            let mut matrix = Array2::from_shape_fn((n, n), |(row, column)| entry(row, column));
            mirror(&mut matrix);
            for ((row, column), value) in matrix.indexed_iter() {
                assert_eq!(*value, entry(row.min(column), row.max(column)), "{n}: {row} {column}");
            }
        }
    }

    // Refuse bad input by name
    #[test]
    fn bad_input_is_refused_by_name() {
        let (air, stars, valid) = lopsided();
        let (grid, axis) = (PhaseGrid::new(3, 1, 0.0).unwrap(), [Source::star(0.0, 0.0).unwrap()]);
        let message = |stars: &[Sensor], valid: &[Array2<bool>]| {
            let cone = ConeGradient::Pupil;
            let error = slope_covariance(&air, stars, valid, cone, &unwatched).unwrap_err();
            let other = wavefront_slope(&air, (&axis, grid, 0.4), stars, valid, cone, &unwatched);
            assert!(matches!(error, Error::Invalid(_)));
            assert_eq!(error.to_string(), other.unwrap_err().to_string());
            error.to_string()
        };
        // Refuse stars and masks
        assert_eq!(message(&[], &[]), "guide stars = 0: expected at least one");
        assert!(
            message(&stars, &valid[1..]).contains("expected one mask for each of 4 guide stars")
        );
        let (mut wrong, mut none, mut low) = (valid.clone(), valid.clone(), stars.clone());
        wrong[2] = valid[3].clone();
        assert!(
            message(&stars, &wrong).contains("valid lenslets of guide_star[2] = (4, 4): expected")
        );
        none[3].fill(false);
        assert!(message(&stars, &none).contains("guide_star[3] = 0: expected at least one"));
        low[0].source = Source::new(0.0, 0.0, 12e3).unwrap();
        assert!(message(&low, &valid).contains("height = 12000.0: expected a height above"));
        // Refuse targets grids and sizes
        let error = |targets: &[Source], grid: PhaseGrid, pitch| {
            let points = (targets, grid, pitch);
            wavefront_slope(&air, points, &stars, &valid, ConeGradient::Pupil, &unwatched)
                .unwrap_err()
        };
        let beneath = [Source::new(0.0, 0.0, 9e3).unwrap()];
        assert!(error(&[], grid, 0.4).to_string().contains("targets = 0"));
        assert!(error(&beneath, grid, 0.4).to_string().contains("height = 9000.0"));
        let uneven = PhaseGrid { oversampling: 0, ..grid };
        assert!(error(&axis, uneven, 0.4).to_string().contains("oversampling"));
        assert!(error(&axis, grid, f64::NAN).to_string().contains("pitch"));
        let vast = error(&axis, PhaseGrid { points: 100_000, ..grid }, 0.4);
        assert!(matches!(vast, Error::Memory { .. }), "{vast}");
        let array = LensletArray::new(1000, 0.4).unwrap();
        let (star, all) = (Sensor { array, ..stars[0] }, Array2::from_elem((1000, 1000), true));
        let vast =
            slope_covariance(&air, &[star], &[all], ConeGradient::Pupil, &unwatched).unwrap_err();
        assert!(matches!(vast, Error::Memory { .. }) && vast.exit_code() == 2, "{vast}");
    }

    // Check rotated sensors
    /// The lopsided system with sensors that are rotated by some angles, shifted and magnified.
    fn turned(angles: [f64; 4]) -> (Atmosphere, Vec<Sensor>, Vec<Array2<bool>>) {
        let (air, mut stars, valid) = lopsided();
        for (star, angle) in stars.iter_mut().zip(angles) {
            star.rotation = angle.to_radians();
        }
        stars[1].shift = [0.11, -0.07];
        stars[2].shift = [-0.05, 0.02];
        stars[3].magnification = 1.07;
        (air, stars, valid)
    }

    /// The covariance of the first two sensors with the last two.
    fn across((air, stars, valid): &(Atmosphere, Vec<Sensor>, Vec<Array2<bool>>)) -> Array2<f64> {
        let [first, second] = [0..2, 2..4].map(|k| (&stars[k.clone()], &valid[k]));
        slope_cross_covariance(air, first, second, ConeGradient::Pupil, &unwatched).unwrap()
    }

    // Check the matrix of rotated sensors
    #[test]
    fn turned_sensors_have_a_covariance_matrix() {
        let system = turned([0.0, 3.0, 0.0, 90.4]);
        let (air, stars, valid) = &system;
        let matrix = slope_covariance(air, stars, valid, ConeGradient::Pupil, &unwatched).unwrap();
        assert_eq!(matrix, matrix.t());
        let n = matrix.nrows();
        let dense = faer::Mat::from_fn(n, n, |row, column| matrix[[row, column]]);
        let values = dense.self_adjoint_eigenvalues(faer::Side::Lower).unwrap();
        assert!(values[0] > -1e-10 * values[n - 1], "{:e} {:e}", values[0], values[n - 1]);
        let block = across(&system);
        let (m, k) = block.dim();
        assert_eq!(matrix.slice(ndarray::s![..m, n - k..]), block);
        let [first, second] = [0..2, 2..4].map(|k| (&stars[k.clone()], &valid[k]));
        let other =
            slope_cross_covariance(air, second, first, ConeGradient::Pupil, &unwatched).unwrap();
        let error = largest(&(&block - &other.t())) / matrix[[0, 0]];
        assert!(error < 1e-10 && error > 0.0, "{error:.1e}");
        // Rotate the whole system by an angle
        let (sin, cos) = 0.7f64.sin_cos();
        let turn = |[x, y]: [f64; 2]| [cos * x - sin * y, sin * x + cos * y];
        let all = stars.iter().map(|star| {
            let [x, y] = turn(star.source.direction());
            let source = Source::new(x.hypot(y), y.atan2(x), star.source.height()).unwrap();
            Sensor { source, rotation: star.rotation + 0.7, shift: turn(star.shift), ..*star }
        });
        let moved = across(&(air.clone(), all.collect(), valid.clone()));
        let error = largest(&(&block - &moved)) / matrix[[0, 0]];
        assert!(error < 1e-10, "{error:.1e}");
    }

    // Check limits and quarter turns
    #[test]
    fn small_angles_and_quarter_turns_have_their_limits() {
        let rest = across(&turned([0.0; 4]));
        let scale = largest(&rest);
        for (angle, bound) in [(1e-11, 1e-11), (1e-7, 1e-7)] {
            let error = largest(&(&rest - &across(&turned([0.0, angle, -angle, 0.0])))) / scale;
            assert!(error < bound && error > 0.0, "{angle}: {error:.1e}");
        }
        let (air, stars, _) = lopsided();
        let all = Array2::from_elem((6, 6), true);
        let covariance = |rotation: f64| {
            let second = [Sensor { rotation: rotation.to_radians(), ..stars[1] }];
            let masks = [all.clone()];
            slope_cross_covariance(
                &air,
                (&stars[..1], &masks),
                (&second, &masks),
                ConeGradient::Pupil,
                &unwatched,
            )
            .unwrap()
        };
        let (rest, quarter, more) = (covariance(0.0), covariance(90.0), covariance(90.0 + 6e-6));
        // Compare with the rotated array at rest
        for (j, i) in (0..36).map(|k| (k / 6, k % 6)) {
            // Row j of the turned array stands along y, from the right to the left.
            let (turned, still) = (6 * j + i, 6 * i + 5 - j);
            for row in 0..72 {
                let [x, y] = [quarter[[row, turned]], quarter[[row, 36 + turned]]];
                let error = (x - rest[[row, 36 + still]]).abs() + (y + rest[[row, still]]).abs();
                assert!(error < 1e-12 * scale, "{error:e}");
            }
        }
        let error = largest(&(&quarter - &more)) / scale;
        assert!(error < 1e-6 && error > 0.0, "{error:.1e}");
    }

    // Check small rotated lenslets
    #[test]
    fn small_lenslets_measure_turned_gradients() {
        let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(1e4, 1.0, 20.0)]).unwrap();
        let one = [Array2::from_elem((1, 1), true)];
        let sensor = |rotation: f64, shift| {
            let rest = Sensor::at_rest(
                Source::star(0.0, 0.0).unwrap(),
                LensletArray::new(1, 0.1).unwrap(),
            );
            Sensor { rotation: rotation.to_radians(), shift, ..rest }
        };
        let covariance = |angle: f64, other: f64| {
            let sets = [[sensor(angle, [0.0; 2])], [sensor(other, [2.0, 1.1])]];
            slope_cross_covariance(
                &air,
                (&sets[0], &one),
                (&sets[1], &one),
                ConeGradient::Pupil,
                &unwatched,
            )
            .unwrap()
        };
        let axes = |angle: f64| {
            let (sin, cos) = angle.to_radians().sin_cos();
            ndarray::arr2(&[[cos, sin], [-sin, cos]])
        };
        let rest = covariance(0.0, 0.0);
        for (angle, other) in
            [(0.0, 30.0), (0.0, -70.0), (20.0, 0.0), (130.0, 200.0), (-10.0, 80.0)]
        {
            let expected = axes(angle).dot(&rest).dot(&axes(other).t());
            let error = largest(&(&covariance(angle, other) - &expected)) / largest(&rest);
            assert!(error < 1e-3, "{angle} {other}: {error:.1e}");
        }
    }

    // Check a row of lenslets at altitude
    /// A row of lenslets of a natural star and of a laser star, on the axis, through a layer at 16 km.
    #[test]
    fn cone_moves_the_maximum_of_a_row() {
        let array = LensletArray::new(20, 0.5).unwrap();
        let air = Atmosphere::new(0.18, 500e-9, vec![Layer::new(16e3, 1.0, 28.0)]).unwrap();
        let valid = vec![Array2::from_shape_fn((20, 20), |(j, _)| j == 10); 2];
        let star = |height| Sensor::at_rest(Source::new(0.0, 0.0, height).unwrap(), array);
        let stars = [star(f64::INFINITY), star(90e3)];
        let matrix =
            slope_covariance(&air, &stars, &valid, ConeGradient::Pupil, &unwatched).unwrap();
        let order = SlopeOrder::new(&valid);
        assert!(
            (array.centre(19) - 4.75).abs() < 1e-12 && (3.75 * 90.0 / 74.0 - 4.56f64).abs() < 1e-2
        );
        for (lenslet, other, expected) in [(10, 10, 0.8476), (17, 17, 0.2241), (17, 19, 0.7589)] {
            let first = order.index(0, 0, lenslet);
            let ratio = matrix[[first, order.index(1, 0, other)]] / matrix[[first, first]];
            assert!((ratio - expected).abs() < 1e-4, "{lenslet}, {other}: {ratio}");
        }
    }

    // Check the wavefront against brute force
    #[test]
    fn edges_of_a_footprint_are_exact_at_all_distances() {
        for outer_scale in [f64::INFINITY, 20.0, 4.0, 1.0] {
            let phase = VonKarman::new(outer_scale);
            let radial = RadialPhase::Point(Arc::new(TabulatedPhase::new(outer_scale, 0.5, 60.0)));
            let (mut most, mut error) = (0.0, 0.0);
            for k in 0..38 {
                let (r, angle) = (0.07 * 1.19f64.powi(k), 0.1 + f64::from(k));
                let at = [r * angle.cos(), r * angle.sin()];
                let axes = [[1.0, 0.0], [0.0, 1.0]];
                let centres = at.map(|c| vec![c]);
                let star = Footprints { side: 0.5, factor: 1.0, rotation: 0.0, axes, centres };
                let mut slopes = [0.0; 2];
                add_star((&radial, 1.0), (&star, &[[0, 0]]), [0.0; 2], &mut slopes);
                for (computed, exact) in slopes.iter().zip(exact_wavefront(&phase, 0.5, at)) {
                    (most, error) = (exact.abs().max(most), (computed - exact).abs().max(error));
                }
            }
            assert!(error < 1e-11 * most, "L0 = {outer_scale}: {:.1e}", error / most);
        }
    }

    // Compare a mixed wavefront with brute force
    #[test]
    fn wavefront_of_a_mixed_system_agrees_with_brute_force() {
        for (air, stars, valid) in [lopsided(), turned([10.0, 3.0, -120.0, 1e-4])] {
            check_wavefront(&air, &stars, &valid);
        }
    }

    fn check_wavefront(air: &Atmosphere, stars: &[Sensor], valid: &[Array2<bool>]) {
        let order = SlopeOrder::new(valid);
        let targets = [Source::star(6e-5, 1.0).unwrap(), Source::new(3e-5, 5.0, 60e3).unwrap()];
        let points = (&targets[..], PhaseGrid::new(5, 2, 0.0).unwrap(), 0.4);
        let xi =
            wavefront_slope(air, points, stars, valid, ConeGradient::Pupil, &unwatched).unwrap();
        assert_eq!(xi.dim(), (50, order.len()));
        for (t, [m, n], q, k) in
            [(0, [2, 1], 0, 9), (0, [4, 0], 1, 14), (1, [0, 3], 2, 17), (1, [2, 2], 3, 5)]
        {
            let mut sum = [0.0; 2];
            for layer in air.layers() {
                // Add a layer by brute force
                let (h, lenslet) = (layer.altitude, order.lenslets(q)[k]);
                let at = targets[t].project([n, m].map(|n| (n as f64 - 2.0) * 0.2), h);
                let footprint = stars[q].footprint(lenslet, h);
                let (gamma, phase) =
                    (stars[q].source.cone_factor(h), VonKarman::new(layer.outer_scale));
                let displacement = own_coordinates(
                    footprint.axes,
                    [0, 1].map(|axis| footprint.centre[axis] - at[axis]),
                );
                let c = exact_wavefront(&phase, footprint.side, displacement);
                let strength = (500e-9 / (2.0 * PI)).powi(2)
                    * 0.15f64.powf(-5.0 / 3.0)
                    * layer.fraction
                    * gamma;
                sum = [0, 1].map(|k| sum[k] + strength * c[k]);
            }
            for (component, sum) in sum.iter().enumerate() {
                let error = xi[[t * 25 + m * 5 + n, order.index(q, component, k)]] - sum;
                assert!(error.abs() < 2e-11 * largest(&xi), "{t} {q} {component}: {error:e}");
            }
        }
    }

    // Compare the disc with a sum over directions
    #[test]
    fn disc_agrees_with_a_sum_over_directions() {
        let (air, stars, valid) = lopsided();
        let (zenith, radius) = (6e-5, 3e-5);
        let star = |x: f64, y: f64| Source::star(x.hypot(y), y.atan2(x)).unwrap();
        let xi = |targets: &[Source], disc| {
            let points = (targets, PhaseGrid::new(3, 1, disc).unwrap(), 0.4);
            wavefront_slope(&air, points, &stars, &valid, ConeGradient::Pupil, &unwatched).unwrap()
        };
        let [disc, point] = [radius, 0.0].map(|disc| xi(&[star(zenith, 0.0)], disc));
        let (rings, spokes) = (gauss_legendre(6), 24);
        let (mut directions, mut weights) = (Vec::new(), Vec::new());
        for (node, weight) in rings.nodes.iter().zip(&rings.weights) {
            let ring = radius * (0.5 * (1.0 + node)).sqrt(); // equal areas
            for spoke in 0..spokes {
                let angle = 2.0 * PI * (spoke as f64 + 0.25) / spokes as f64;
                directions.push(star(zenith + ring * angle.cos(), ring * angle.sin()));
                weights.push(0.5 * weight / spokes as f64);
            }
        }
        let (many, mut sum) = (xi(&directions, 0.0), Array2::zeros(disc.dim()));
        let of_directions = many.axis_chunks_iter(ndarray::Axis(0), sum.nrows());
        of_directions.zip(weights).for_each(|(one, weight)| sum.scaled_add(weight, &one));
        let error = |other: &Array2<f64>| largest(&(other - &disc)) / largest(&disc);
        assert!(error(&sum) < 1e-5 && error(&point) > 1e-2, "{:.1e}", error(&sum));
    }

    // Cross a circle with short panels
    #[test]
    fn edges_across_a_circle_lose_no_digits() {
        let edges = [(0.0, 0.1), (0.2, -0.4), (0.36, -0.2), (0.4, 0.3), (2.9, 0.5), (5.0, 1.0)];
        for (radius, outer_scale) in [(0.36, f64::INFINITY), (0.36, 0.3), (3.0, 10.0)] {
            let average = DiscAverage::new(&VonKarman::new(outer_scale), radius, 9.0);
            let phase = RadialPhase::Disc(average, outer_scale);
            for (across, start) in edges {
                let (step, rule) = (0.5 / 2000.0, &*TEN);
                let node =
                    |k: usize| start + ((k / 10) as f64 + 0.5 + 0.5 * rule.nodes[k % 10]) * step;
                let term = |k: usize| {
                    rule.weights[k % 10] * phase.half_structure(across * across + node(k).powi(2))
                };
                let even = (0..20_000).map(term).sum::<f64>() * 0.5 * step;
                let ends = [start, start + 0.5];
                let [computed] =
                    phase.panels(0.5).integrate(across, ends, |t| [phase.half_structure(t)]);
                let error = computed / even - 1.0;
                assert!(error.abs() < 1e-11, "{radius} {across}: {error:e}");
            }
        }
    }
}
