// Tangled from book/src/edge-midpoint.md: edit there, or here and run cargo tangle stitch.
//! Covariances of slopes by the formula of four points, for comparison with codes that take slopes between midpoints of edges.

pub(crate) mod gpu;

// Imports of the formula of four points
use crate::error::Error;
use crate::model::atmosphere::Atmosphere;
use crate::model::sensor::Sensor;
use crate::numerics::radial_table::RadialTable;
use crate::turbulence::cross_covariance::{
    Slopes, check_slope_memory, fill_slopes, rectangle, square,
};
use crate::turbulence::phase::VonKarman;
use crate::watch::Watch;
use ndarray::Array2;
use std::f64::consts::PI;
use std::sync::Arc;

// Half structure of one outer scale
/// S, half the structure function, of one outer scale for r0 = 1 m, tabulated over squared distance.
struct HalfStructure {
    outer_scale: f64,
    /// The least squared distance in the table; nearer ones are taken to be there.
    least: f64,
    table: RadialTable,
}

impl HalfStructure {
    /// A table for footprints of at least `side`, out to the distance `reach`; metres.
    fn new(outer_scale: f64, side: f64, reach: f64) -> Self {
        let phase = VonKarman::new(outer_scale);
        let least = (1e-10 * side.min(outer_scale)).powi(2);
        let half_structure = |t: f64| phase.half_structure_and_half_mean(t.sqrt()).0;
        let slope = |t: f64| 0.5 * phase.slope_over_distance(t);
        let table = RadialTable::by_slope([least, reach.powi(2)], half_structure, slope);
        Self { outer_scale, least, table }
    }

    // Half structure at a displacement
    /// S in rad² at the displacement (x, y) in metres.
    #[inline(always)]
    fn at(&self, x: f64, y: f64) -> f64 {
        let t = x * x + y * y;
        self.table.value_and_slope(if t < self.least { self.least } else { t }).0
    }

    // Difference of the phase from a point
    /// χ of [seen from ends](https://lenslet.github.io/lenslet/edge-midpoint.html#eq-seen-from-ends): minus the covariance of both phase differences of a lenslet with the phase at a point, rad².
    #[inline(always)]
    fn seen_from(&self, [[left, right], [below, above]]: &Ends, [x, y]: [f64; 2]) -> [f64; 2] {
        let value = |end: &[f64; 2]| self.at(end[0] - x, end[1] - y);
        [value(right) - value(left), value(above) - value(below)]
    }
}

// Second differences of the structure function
/// Midpoints of a footprint's edges, metres: behind and ahead along x, and along y.
type Ends = [[[f64; 2]; 2]; 2];

/// J of [seen from ends](https://lenslet.github.io/lenslet/edge-midpoint.html#eq-seen-from-ends), from χ at the ends of the second lenslet: xx, xy, yx and yy.
#[inline(always)]
fn differences([[left, right], [below, above]]: Ends) -> [f64; 4] {
    [left[0] - right[0], below[0] - above[0], left[1] - right[1], below[1] - above[1]]
}

// Lattice of a sensor on a layer
/// The lattice of a sensor's lenslets on a layer, metres.
struct SensorLattice {
    /// Half the side of a footprint, e.
    half: f64,
    /// The centre of lenslet \[0, 0\].
    corner: [f64; 2],
    /// From a lenslet to the next of its row, and to the next of its column.
    steps: [[f64; 2]; 2],
    /// Lenslets across the array.
    lenslets: usize,
}

impl SensorLattice {
    fn new(sensor: &Sensor, altitude: f64) -> Self {
        let footprint = sensor.footprint([0, 0], altitude);
        let steps = footprint.axes.map(|axis| axis.map(|part| footprint.side * part));
        let (half, lenslets) = (0.5 * footprint.side, sensor.array.lenslets());
        Self { half, corner: footprint.centre, steps, lenslets }
    }

    // Centre and ends of a footprint
    /// The centre of the footprint in a row and a column, which may lie beyond the array.
    #[inline(always)]
    fn centre(&self, [row, column]: [f64; 2]) -> [f64; 2] {
        let ([x, y], [along, up]) = (self.corner, self.steps);
        [x + column * along[0] + row * up[0], y + column * along[1] + row * up[1]]
    }

    /// The ends of that footprint, along the axes of the pupil.
    #[inline(always)]
    fn ends(&self, place: [f64; 2]) -> Ends {
        let ([x, y], half) = (self.centre(place), self.half);
        [[[x - half, y], [x + half, y]], [[x, y - half], [x, y + half]]]
    }

    // Farthest end of any footprint
    /// How far from the axis its ends are, at most.
    fn extent(&self) -> f64 {
        let last = self.lenslets as f64 - 1.0;
        let corners = [[0.0, 0.0], [0.0, last], [last, 0.0], [last, last]];
        let far = corners.map(|corner| self.centre(corner)).map(|[x, y]| x.hypot(y));
        far.into_iter().fold(0.0, f64::max) + self.half
    }

    // Test whether edges coincide
    /// Whether the lenslets are aligned with the axes of the pupil, so that neighbours share an edge.
    fn is_straight(&self) -> bool {
        let side = 2.0 * self.half;
        self.steps == [[side, 0.0], [0.0, side]]
    }
}

// Layer with the lattices of all sensors
/// A layer with the lattices of all sensors.
struct MidpointLayer {
    /// (λ/2π)² r0^(−5/3) f, m².
    strength: f64,
    half_structure: Arc<HalfStructure>,
    views: Vec<SensorLattice>,
}

// Place all sensors on layers
/// All layers with turbulence, with the lattices of the sensors.
fn see_layers(atmosphere: &Atmosphere, sensors: &[Sensor]) -> Vec<MidpointLayer> {
    let wavefront = (atmosphere.wavelength() / (2.0 * PI)).powi(2)
        * atmosphere.fried_parameter().powf(-5.0 / 3.0);
    let layers = || atmosphere.layers().iter().filter(|layer| layer.fraction > 0.0);
    let mut midpoint_layers: Vec<MidpointLayer> = Vec::new();
    for layer in layers() {
        // Find or make the table of a layer
        let known = midpoint_layers
            .iter()
            .find(|known| known.half_structure.outer_scale == layer.outer_scale);
        let table = || {
            let sharing = layers().filter(|other| other.outer_scale == layer.outer_scale);
            let (mut side, mut farthest) = (f64::INFINITY, 0.0);
            for (other, sensor) in sharing.flat_map(|other| sensors.iter().map(move |s| (other, s)))
            {
                let view = SensorLattice::new(sensor, other.altitude);
                side = f64::min(side, 2.0 * view.half);
                farthest = f64::max(farthest, view.extent());
            }
            Arc::new(HalfStructure::new(layer.outer_scale, side, 2.02 * farthest))
        };
        let half_structure = known.map_or_else(table, |known| Arc::clone(&known.half_structure));
        let views =
            sensors.iter().map(|sensor| SensorLattice::new(sensor, layer.altitude)).collect();
        midpoint_layers.push(MidpointLayer {
            strength: wavefront * layer.fraction,
            half_structure,
            views,
        });
    }
    midpoint_layers
}

// Covariances tabulated by displacement
/// Covariances of the lenslets of two sensors on one lattice, xx, xy, yx and yy by their displacement in rows and columns.
pub(crate) struct Displacements {
    /// None where no layer has such a lattice.
    values: Option<Array2<[f64; 4]>>,
    /// Lenslets across the first sensor.
    lenslets: usize,
}

impl Displacements {
    // Tabulate covariances by displacement
    /// Those of sensors with so many lenslets across, if some layers `share_lattices`.
    pub(crate) fn new(
        [lenslets, others]: [usize; 2],
        share_lattices: bool,
        of: impl Fn([f64; 2]) -> [f64; 4],
    ) -> Self {
        let lag = |k: usize| k as f64 - (lenslets as f64 - 1.0);
        let lags = lenslets + others - 1;
        let displacement = |(row, column)| of([row, column].map(lag));
        let values = share_lattices.then(|| Array2::from_shape_fn((lags, lags), displacement));
        Self { values, lenslets }
    }

    /// Those of two lenslets, by row and column.
    pub(crate) fn between_lenslets(&self, first: [usize; 2], other: [usize; 2]) -> [f64; 4] {
        let lag = [0, 1].map(|axis| self.lenslets - 1 + other[axis] - first[axis]);
        self.values.as_ref().map_or([0.0; 4], |values| values[lag])
    }
}

// Block by the formula of four points
/// The covariances of the slopes of two sensors.
struct MidpointBlock<'a> {
    /// Of layers where both share a lattice, rad².
    shared: Displacements,
    /// Of the other layers: the strength, rad² per rad², half the structure function, and the lattices of both sensors.
    apart: Vec<(f64, &'a HalfStructure, [&'a SensorLattice; 2])>,
}

impl<'a> MidpointBlock<'a> {
    // Divide layers by their lattices
    fn new(sensors: &[Sensor], layers: &'a [MidpointLayer], [p, q]: [usize; 2]) -> Self {
        let sides = sensors[p].side() * sensors[q].side();
        let terms = layers.iter().map(|layer| {
            (layer.strength / sides, &*layer.half_structure, [&layer.views[p], &layer.views[q]])
        });
        let (together, apart): (Vec<_>, Vec<_>) =
            terms.partition(|(.., [one, two])| one.steps == two.steps);
        let displacement = |lag: [f64; 2]| {
            // Sum the layers of a displacement
            let mut sum = [0.0; 4];
            for (strength, half_structure, [one, two]) in &together {
                let first = one.ends([0.0; 2]);
                let values =
                    two.ends(lag).map(|ends| ends.map(|end| half_structure.seen_from(&first, end)));
                sum.iter_mut()
                    .zip(differences(values))
                    .for_each(|(sum, value)| *sum += strength * value);
            }
            sum
        };
        let lenslets = [p, q].map(|k| sensors[k].array.lenslets());
        let shared = Displacements::new(lenslets, !together.is_empty(), displacement);
        Self { shared, apart }
    }

    // Gather and compute pairs of lenslets
    /// Covariances of some lenslets with others: for each of the first its xx, xy, yx and yy.
    fn fill(&self, [firsts, others]: [&[[usize; 2]]; 2], rows: &mut [[&mut [f64]; 4]]) {
        for (first, [xx, xy, yx, yy]) in firsts.iter().zip(&mut *rows) {
            for (k, &other) in others.iter().enumerate() {
                [xx[k], xy[k], yx[k], yy[k]] = self.shared.between_lenslets(*first, other);
            }
        }
        let mut edge_differences = Vec::new();
        for (strength, half_structure, [one, two]) in &self.apart {
            let first = EdgeMidpoints::new(one, firsts);
            for start in (0..others.len()).step_by(TILE) {
                let tile = start..others.len().min(start + TILE);
                let second = EdgeMidpoints::new(two, &others[tile.clone()]);
                see_edges(half_structure, [&first, &second], &mut edge_differences);
                // Add differences between ends of edges
                let count = second.of.len();
                for (&[left, right, below, above], rows) in first.of.iter().zip(&mut *rows) {
                    for (axis, behind, ahead) in [(0, left, right), (1, below, above)] {
                        let [behind, ahead] = [behind, ahead]
                            .map(|k| &edge_differences[2 * count * k..][..2 * count]);
                        for other in [0, 1] {
                            let row = &mut rows[2 * axis + other][tile.clone()];
                            let [behind, ahead] =
                                [behind, ahead].map(|differences| &differences[other * count..]);
                            for ((entry, ahead), behind) in row.iter_mut().zip(ahead).zip(behind) {
                                *entry += strength * (ahead - behind);
                            }
                        }
                    }
                }
            }
        }
    }
}

// Edges that lenslets have in common
/// Midpoints of the edges of some lenslets on a layer.
struct EdgeMidpoints {
    /// Each midpoint once, metres.
    points: Vec<[f64; 2]>,
    /// The numbers of the midpoints of each lenslet: left, right, below and above.
    of: Vec<[usize; 4]>,
}

impl EdgeMidpoints {
    /// Those of some lenslets, which come row by row.
    fn new(view: &SensorLattice, lenslets: &[[usize; 2]]) -> Self {
        let mut edges = Self { points: Vec::new(), of: Vec::with_capacity(lenslets.len()) };
        let (is_straight, mut last) = (view.is_straight(), vec![None; view.lenslets]);
        for (k, &[row, column]) in lenslets.iter().enumerate() {
            // Find the midpoints of neighbours
            let neighbour = |of: Option<usize>, at: [usize; 2]| {
                of.filter(|&of| {
                    is_straight
                        && [lenslets[of][0] + at[0], lenslets[of][1] + at[1]] == [row, column]
                })
            };
            let left = neighbour(k.checked_sub(1), [0, 1]).map(|of| edges.of[of][1]);
            let below = neighbour(last[column], [1, 0]).map(|of| edges.of[of][3]);
            let ends = view.ends([row, column].map(|index| index as f64));
            let known = [left, None, below, None];
            edges.add(known, [ends[0][0], ends[0][1], ends[1][0], ends[1][1]]);
            last[column] = Some(k);
        }
        edges
    }

    // Add a lenslet with its midpoints
    /// Adds a lenslet with the midpoints of its edges, of which some may be known.
    fn add(&mut self, known: [Option<usize>; 4], points: [[f64; 2]; 4]) {
        let mut of = [0; 4];
        for ((of, known), point) in of.iter_mut().zip(known).zip(points) {
            *of = known.unwrap_or(self.points.len());
            self.points.extend(known.is_none().then_some(point));
        }
        self.of.push(of);
    }
}

// Differences between edges of lenslets
/// Lenslets of the second sensor that are processed together.
const TILE: usize = 256;

/// From each midpoint of the first lenslets, the differences of S between the left and the right ends of all others, then between their
/// lower and upper ones, rad².
fn see_edges(
    half_structure: &HalfStructure,
    [first, second]: [&EdgeMidpoints; 2],
    differences: &mut Vec<f64>,
) {
    let (count, mut half_structures) = (second.of.len(), vec![0.0; second.points.len()]);
    differences.resize(2 * count * first.points.len(), 0.0);
    for (&[x, y], differences) in first.points.iter().zip(differences.chunks_mut(2 * count)) {
        for (differences, end) in half_structures.iter_mut().zip(&second.points) {
            *differences = half_structure.at(end[0] - x, end[1] - y);
        }
        let (along, up) = differences.split_at_mut(count);
        for ((along, up), ends) in along.iter_mut().zip(up).zip(&second.of) {
            let [left, right, below, above] = ends.map(|k| half_structures[k]);
            (*along, *up) = (left - right, below - above);
        }
    }
}

// Slope covariance between midpoints of edges
// The documentation of midpoint covariance
/// The covariance matrix of the slopes of any sensors by the formula of four points, [midpoint covariance](https://lenslet.github.io/lenslet/edge-midpoint.html#eq-midpoint-covariance), in the order of
/// [`SlopeOrder`](crate::model::SlopeOrder), rad².
///
/// Arguments and shape are those of [`cross_covariance::slope_covariance`](super::cross_covariance::slope_covariance). Slopes are differences of the phase
/// between midpoints of edges, along the axes of the pupil also for a rotated sensor, and derivatives by the pupil's coordinate.
///
/// # Errors
/// Those of [`cross_covariance::slope_covariance`](super::cross_covariance::slope_covariance).
///
/// ```
/// use lenslet::watch::unwatched;
/// use lenslet::model::*;
/// use lenslet::turbulence::edge_midpoint;
/// let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, f64::INFINITY)])?;
/// let star = Sensor::at_rest(Source::star(0.0, 0.0)?, LensletArray::new(1, 0.5)?);
/// let matrix = edge_midpoint::slope_covariance(&air, &[star], &[ndarray::arr2(&[[true]])], &unwatched)?;
/// // 6.883877 / (2π)² λ² d^(−1/3) r0^(−5/3), where an average over the lenslet has 0.1622428.
/// let variance = 0.1743706 * 500e-9f64.powi(2) * 0.5f64.powf(-1.0 / 3.0) * 0.15f64.powf(-5.0 / 3.0);
/// assert!((matrix[[0, 0]] / variance - 1.0).abs() < 1e-6 && matrix[[0, 1]] == 0.0);
///
/// // Of four lenslets, neighbours along the slope have 2^(2/3) − 1 of the variance, those across it 2^(5/6) − 1.
/// let four = Sensor::at_rest(Source::star(0.0, 0.0)?, LensletArray::new(2, 0.5)?);
/// let all = ndarray::Array2::from_elem((2, 2), true);
/// let matrix = edge_midpoint::slope_covariance(&air, &[four], &[all], &unwatched)?;
/// let correlation = |k: usize| matrix[[0, k]] / matrix[[0, 0]];
/// assert!((correlation(1) - 0.5874).abs() < 1e-4 && (correlation(2) - 0.7818).abs() < 1e-4);
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn slope_covariance(
    atmosphere: &Atmosphere,
    sensors: &[Sensor],
    valid: &[Array2<bool>],
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    let compute =
        |sensors: &[Sensor], slopes: [Slopes; 2]| fill(atmosphere, sensors, slopes, watch);
    square(atmosphere, (sensors, valid), compute)
}
/// The covariances of the slopes of the `first` sensors, as rows, with those of the `second`, as columns, by the formula of four
/// points, rad²; each in the order of their own [`SlopeOrder`](crate::model::SlopeOrder).
///
/// # Errors
/// Those of [`cross_covariance::slope_covariance`](super::cross_covariance::slope_covariance).
pub fn slope_cross_covariance(
    atmosphere: &Atmosphere,
    first: (&[Sensor], &[Array2<bool>]),
    second: (&[Sensor], &[Array2<bool>]),
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    let compute =
        |sensors: &[Sensor], slopes: [Slopes; 2]| fill(atmosphere, sensors, slopes, watch);
    rectangle(atmosphere, [first, second], compute)
}

// Fill rows by the formula of four points
/// The covariances of rows with columns.
fn fill(
    atmosphere: &Atmosphere,
    sensors: &[Sensor],
    slopes: [Slopes; 2],
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    let lenslets = |side: Slopes| {
        sensors[side.first..][..side.sensors].iter().map(|sensor| sensor.array.lenslets() as u64)
    };
    let lags = |one: u64| lenslets(slopes[1]).map(move |other| 4 * (one + other).pow(2));
    check_slope_memory(slopes, lenslets(slopes[0]).flat_map(lags).sum())?;
    let layers = see_layers(atmosphere, sensors);
    let block = |pair| MidpointBlock::new(sensors, &layers, pair);
    fill_slopes(slopes, block, MidpointBlock::fill, watch)
}

// Tests of the formula of four points
#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::atmosphere::Layer;
    use crate::model::lenslet_array::{LensletArray, SlopeOrder};
    use crate::model::source::{ConeGradient, Source};
    use crate::turbulence::cross_covariance;
    use crate::watch::unwatched;

    // Sensors of every kind between midpoints
    pub(crate) fn lopsided() -> (Atmosphere, Vec<Sensor>, Vec<Array2<bool>>) {
        let layers = [
            (0.0, 0.5, 25.0),
            (4e3, 0.2, f64::INFINITY),
            (7e3, 0.0, 1.0),
            (9e3, 0.1, 25.0),
            (12e3, 0.2, 0.9),
        ];
        let layers = layers.map(|(altitude, share, scale)| Layer::new(altitude, share, scale));
        let air = Atmosphere::new(0.15, 500e-9, layers.to_vec()).unwrap();
        let sensor =
            |(zenith, azimuth, height), (lenslets, pitch), degrees: f64, shift, magnification| {
                let source = Source::new(zenith, azimuth, height).unwrap();
                let rest = Sensor::at_rest(source, LensletArray::new(lenslets, pitch).unwrap());
                Sensor { rotation: degrees.to_radians(), shift, magnification, ..rest }
            };
        let (star, laser) = ((4e-5, 0.3, f64::INFINITY), (9e-5, 2.0, 90e3));
        let sensors = vec![
            sensor(star, (6, 0.4), 0.0, [0.0, 0.0], 1.0),
            sensor(laser, (6, 0.4), 0.0, [0.1, 0.0], 1.0),
            sensor((7e-5, 4.0, 90e3), (5, 0.4), 0.0, [0.0, 0.0], 1.0),
            sensor((0.0, 0.0, 120e3), (4, 0.6), -33.0, [0.05, -0.2], 1.07),
            sensor((2e-5, 1.0, f64::INFINITY), (5, 0.4), -33.0, [0.0, 0.1], 1.0),
        ];
        let masks = sensors.iter().enumerate().map(|(q, sensor)| {
            let n = sensor.array.lenslets();
            let dark = [[0, 0], [0, 1], [1, 0], [1, 2], [4, 3], [4, 4]];
            Array2::from_shape_fn((n, n), |(j, i)| !dark.contains(&[j, i]) && (q, j) != (1, 3))
        });
        let masks = masks.collect();
        (air, sensors, masks)
    }

    // Covariance of end points without a table
    /// Covariance of two slopes: each a sensor, a component and a lenslet.
    fn exact(air: &Atmosphere, slopes: [(&Sensor, usize, [usize; 2]); 2]) -> f64 {
        let layer = |layer: &Layer| {
            let phase = VonKarman::new(layer.outer_scale);
            let ends = slopes.map(|(sensor, component, lenslet)| {
                let footprint = sensor.footprint(lenslet, layer.altitude);
                [-1.0, 1.0].map(|sign| {
                    let mut end = footprint.centre;
                    end[component] += 0.5 * sign * footprint.side;
                    (sign, end)
                })
            });
            let mut sum = 0.0;
            for (one, [x, y]) in ends[0] {
                for (two, [u, v]) in ends[1] {
                    sum -= 0.5 * one * two * phase.structure_function((u - x).hypot(v - y));
                }
            }
            layer.fraction * sum
        };
        let sides = slopes[0].0.side() * slopes[1].0.side();
        let strength = (air.wavelength() / (2.0 * PI)).powi(2) / sides
            * air.fried_parameter().powf(-5.0 / 3.0);
        strength * air.layers().iter().map(layer).sum::<f64>()
    }

    /// All slopes in their order: sensor, component, lenslet.
    fn slopes<'a>(
        sensors: &'a [Sensor],
        valid: &[Array2<bool>],
    ) -> Vec<(&'a Sensor, usize, [usize; 2])> {
        let order = SlopeOrder::new(valid);
        let mut all = Vec::new();
        for (q, sensor) in sensors.iter().enumerate() {
            for component in [0, 1] {
                all.extend(order.lenslets(q).iter().map(|&lenslet| (sensor, component, lenslet)));
            }
        }
        all
    }

    // Compare four points with end points
    #[test]
    fn four_points_are_the_covariance_of_differences() {
        let (air, sensors, valid) = lopsided();
        let matrix = slope_covariance(&air, &sensors, &valid, &unwatched).unwrap();
        let all = slopes(&sensors, &valid);
        assert_eq!(matrix.dim(), (all.len(), all.len()));
        let mut worst: f64 = 0.0;
        for k in (0..all.len() * all.len()).step_by(13) {
            let (row, column) = (k / all.len(), k % all.len());
            let exact = exact(&air, [all[row], all[column]]);
            worst = worst.max((matrix[[row, column]] - exact).abs() / matrix[[0, 0]]);
        }
        assert!(worst < 1e-13 && worst > 0.0, "{worst:.1e}");
    }

    // Check entries at long distances
    #[test]
    fn long_distances_lose_no_more_than_their_digits() {
        for (side, outer_scale) in [(0.5, 25.0), (0.2, 25.0), (0.5, f64::INFINITY)] {
            let layers = vec![Layer::new(0.0, 1.0, outer_scale)];
            let air = Atmosphere::new(0.15, 500e-9, layers).unwrap();
            let n = (40.0 / side) as usize;
            let array = LensletArray::new(n, side).unwrap();
            let sensor = [Sensor::at_rest(Source::star(0.0, 0.0).unwrap(), array)];
            let corner = [Array2::from_shape_fn((n, n), |at| at == (0, 0))];
            let few = [Array2::from_shape_fn((n, n), |(j, i)| (i % 7, j % 31) == (3, 2))];
            let matrix =
                slope_cross_covariance(&air, (&sensor, &corner), (&sensor, &few), &unwatched)
                    .unwrap();
            let [rows, columns] = [corner, few].map(|valid| slopes(&sensor, &valid));
            let variance = exact(&air, [rows[0], rows[0]]);
            for ((row, column), found) in matrix.indexed_iter() {
                let error = (found - exact(&air, [rows[row], columns[column]])).abs() / variance;
                assert!(error < 1e-12, "{side} {outer_scale}: {error:.1e}");
            }
        }
    }

    // Compare entries with forty digits
    /// Side, outer scale and displacement in metres, and xx, xy and yy in units of the variance; by mpmath.
    const EXACT: &str = "
        0.1 25.0 0.25 -0.125 0.265926192292501263 0.100536673074143224 0.413186369004073654
        0.1 25.0 2.75 1.5 -0.00401772303374108355 -0.03605494539009227 0.0424087437386834898
        0.1 25.0 7.0 3.75 -0.0108920961027971332 -0.0114549701771166674 0.00435367813785504972
        0.1 25.0 7.5 -2.5 -0.0143593778669054809 0.00832437285269717109 0.00783858594974040707
        0.1 25.0 20.0 9.5 -0.000624511261141665496 -0.00036951936986407088 -0.0000220878352194640097
        0.1 25.0 -31.0 24.0 -8.07853841706811121e-6 7.37703146519021462e-6 -4.26104243093007189e-6
        0.5 25.0 7.0 3.75 -0.0237436589791372301 -0.0250107413289969294 0.00953079579032945025
        2.0 25.0 -31.0 24.0 -0.0000447124797303431037 0.0000408891853137071441 -0.0000233771508311299368
        0.1 100.0 7.0 3.75 0.0101517098666833805 -0.0273181257349299691 0.0465098668546592552
        0.1 100.0 20.0 9.5 -0.00867025164955154325 -0.010574582655143315 0.00856904869588698914
        0.1 100.0 -31.0 24.0 -0.00304706120066940014 0.00487902380345923076 -0.000522298282971992468";

    #[test]
    fn small_lenslets_keep_twelve_digits_of_the_variance() {
        for line in EXACT.trim().lines() {
            let numbers: Vec<f64> = line.split_whitespace().map(|n| n.parse().unwrap()).collect();
            let [side, outer_scale, x, y, ..] = numbers[..] else { panic!("{line}") };
            let layers = vec![Layer::new(0.0, 1.0, outer_scale)];
            let air = Atmosphere::new(0.15, 500e-9, layers).unwrap();
            let array = LensletArray::new(1, side).unwrap();
            let first = Sensor::at_rest(Source::star(0.0, 0.0).unwrap(), array);
            let sensors = [first, Sensor { shift: [x, y], ..first }];
            let all = [(); 2].map(|_| Array2::from_elem((1, 1), true));
            let matrix = slope_covariance(&air, &sensors, &all, &unwatched).unwrap();
            for ((a, b), exact) in [(0, 0), (0, 1), (1, 1)].into_iter().zip(&numbers[4..]) {
                let error = matrix[[a, 2 + b]] / matrix[[0, 0]] - exact;
                assert!(error.abs() < 2e-13, "{line}: {error:.1e}");
            }
        }
    }

    // Check the digits of the tabulated structure function
    #[test]
    fn the_table_of_half_structure_keeps_all_digits() {
        for outer_scale in [f64::INFINITY, 100.0, 25.0, 1.0] {
            let (half_structure, phase) =
                (HalfStructure::new(outer_scale, 0.5, 200.0), VonKarman::new(outer_scale));
            let mut worst: f64 = 0.0;
            for k in 0..2000 {
                let r = 1e-4 * 1.9e6f64.powf((f64::from(k) + 0.37) / 2000.0);
                let exact = phase.half_structure_and_half_mean(r).0;
                worst = worst.max((half_structure.at(0.6 * r, -0.8 * r) / exact - 1.0).abs());
            }
            assert!(worst < 2e-14, "L0 = {outer_scale}: {worst:.1e}");
            assert!(half_structure.at(0.0, 0.0) < 1e-15 * half_structure.at(0.5, 0.0));
        }
    }

    // Check the symmetry of four points
    #[test]
    fn blocks_and_their_mirror_images_agree() {
        let (air, sensors, valid) = lopsided();
        let matrix = slope_covariance(&air, &sensors, &valid, &unwatched).unwrap();
        assert_eq!(matrix, matrix.t());
        let [one, two] = [(&sensors[..2], &valid[..2]), (&sensors[2..], &valid[2..])];
        let across = slope_cross_covariance(&air, one, two, &unwatched).unwrap();
        let back = slope_cross_covariance(&air, two, one, &unwatched).unwrap();
        let rows = across.nrows();
        let largest =
            |error: Array2<f64>| error.iter().fold(0.0, |most, e| f64::max(most, e.abs()));
        assert!(largest(&across - &back.t()) < 1e-14 * matrix[[0, 0]]);
        assert_eq!(across, matrix.slice(ndarray::s![..rows, rows..]));
    }

    // Rotate positions but not edges
    #[test]
    fn a_quarter_turn_moves_lenslets_and_keeps_their_slopes() {
        let (air, sensors, _) = lopsided();
        let all = [Array2::from_elem((6, 6), true)];
        let covariance = |degrees: f64| {
            let second = [Sensor { rotation: degrees.to_radians(), ..sensors[0] }];
            slope_cross_covariance(&air, (&sensors[1..2], &all), (&second, &all), &unwatched)
                .unwrap()
        };
        let (rest, quarter) = (covariance(0.0), covariance(90.0));
        for (j, i) in (0..36).map(|k| (k / 6, k % 6)) {
            // Row j of the turned array stands along y, from the right to the left.
            let (turned, still) = (6 * j + i, 6 * i + 5 - j);
            for (row, component) in (0..144).map(|k| (k / 2, k % 2)) {
                let [found, expected] =
                    [quarter[[row, 36 * component + turned]], rest[[row, 36 * component + still]]];
                assert!((found - expected).abs() < 1e-14 * rest[[0, 0]].abs(), "{row} {still}");
            }
        }
    }

    // Compare four points with averages
    #[test]
    fn four_points_miss_the_average_where_lenslets_are_near() {
        let across = |outer_scale: f64| {
            let layers = vec![Layer::new(0.0, 1.0, outer_scale)];
            let air = Atmosphere::new(0.15, 500e-9, layers).unwrap();
            let array = LensletArray::new(5, 0.5).unwrap();
            let sensors = [Sensor::at_rest(Source::star(0.0, 0.0).unwrap(), array)];
            let all = [Array2::from_elem((5, 5), true)];
            let four = slope_covariance(&air, &sensors, &all, &unwatched).unwrap();
            let cone = ConeGradient::Pupil;
            (
                four,
                cross_covariance::slope_covariance(&air, &sensors, &all, cone, &unwatched).unwrap(),
            )
        };
        let (four, average) = across(f64::INFINITY);
        assert!((four[[0, 1]] / four[[0, 0]] - 0.587_401).abs() < 1e-6);
        assert!((four[[0, 0]] / average[[0, 0]] - 0.174_370_7 / 0.162_242_8).abs() < 1e-6);
        let (four, average) = across(25.0);
        let percent = |k: usize| 100.0 * (four[[0, k]] - average[[0, k]]) / average[[0, 0]];
        for (k, along, over) in [
            (0, 13.07, 13.07),
            (1, -4.18, -1.88),
            (2, -1.17, -0.87),
            (3, -0.46, -0.40),
            (4, -0.23, -0.22),
        ] {
            let error = (percent(k) - along).abs().max((percent(5 * k) - over).abs());
            assert!(error < 0.006, "{k}: {} {}", percent(k), percent(5 * k));
        }
    }

    // Refuse and stop four points
    #[test]
    fn four_points_refuse_what_averages_refuse() {
        let (air, sensors, valid) = lopsided();
        let mut low = sensors.clone();
        low[1].source = Source::new(0.0, 0.0, 12e3).unwrap();
        for (sensors, valid) in
            [(&sensors[..0], &valid[..0]), (&sensors, &valid[1..]), (&low, &valid)]
        {
            let error = slope_covariance(&air, sensors, valid, &unwatched).unwrap_err();
            let other = cross_covariance::slope_covariance(
                &air,
                sensors,
                valid,
                ConeGradient::Pupil,
                &unwatched,
            );
            assert_eq!((error.to_string(), error.exit_code()), (other.unwrap_err().to_string(), 2));
        }
        let array = LensletArray::new(1000, 0.4).unwrap();
        let (large, all) = (Sensor { array, ..sensors[0] }, Array2::from_elem((1000, 1000), true));
        let vast = slope_covariance(&air, &[large], &[all], &unwatched).unwrap_err();
        assert!(matches!(vast, Error::Memory { .. }), "{vast}");
        let stopped = slope_covariance(&air, &sensors, &valid, &Stopped);
        assert!(matches!(stopped, Err(Error::Cancelled)));
    }

    struct Stopped;

    impl Watch for Stopped {
        fn cancelled(&self) -> bool {
            true
        }
    }
}
