// Tangled from book/src/turned-lags.md: edit there, or here and run cargo tangle stitch.
//! Covariances of sensors that are rotated against each other, from few displacements for all pairs of a lag.

// Imports of turned lags
use super::{PhaseTables, SensorLayer, TurnedAverage, see_layers};
use crate::error::Error;
use crate::model::atmosphere::Atmosphere;
use crate::model::sensor::Sensor;
use crate::model::source::ConeGradient;
use crate::turbulence::rotated_footprints::{Turn, TurnedSquares};
use crate::turbulence::slope::check_outer_scales;
use ndarray::Array2;
use std::f64::consts::PI;

// Covariances with their derivatives
/// Covariances of the slopes of a sensor, by rows, with those of another, by columns, and how they change with the displacement.
pub(crate) struct Displaced {
    /// rad²
    pub(crate) covariance: Array2<f64>,
    /// By displacements of the second along x and y of the first sensor, on the layer; rad² m⁻¹.
    pub(crate) slopes: [Array2<f64>; 2],
}

/// A pair of lenslets by their numbers, and its displacement along the axes of the first sensor, metres.
struct Pair {
    at: [usize; 2],
    by: [f64; 2],
}

// Covariance of rotated sensors by lags
// The documentation of turned covariances
/// The covariances of the lenslets of two sensors that are rotated against each other, each given by `[j, i]`; `lag` numbers the groups
/// of pairs with nearly equal displacements. Exact to 1e-9 of the slope variance, or some 1e-9 at a tenth of a degree. Derivatives are
/// those of a polynomial, for fits.
///
/// # Errors
/// `Invalid` for a layer at or above a source.
pub(crate) fn turned_covariance(
    (atmosphere, gradient): (&Atmosphere, ConeGradient),
    sensors: &[Sensor; 2],
    lenslets: [&[[usize; 2]]; 2],
    tables: &PhaseTables,
    lag: impl Fn([usize; 2], [usize; 2]) -> usize,
) -> Result<Displaced, Error> {
    check_outer_scales(atmosphere, sensors)?;
    sensors.iter().try_for_each(|sensor| sensor.source.check_above(atmosphere))?;
    let [m, n] = lenslets.map(<[_]>::len);
    let mut sums = [0; 3].map(|_| Array2::zeros((2 * m, 2 * n)));
    for layer in see_layers(atmosphere, sensors, gradient, |_| 0.0, Some(tables)) {
        let (kernel, strength) = (LagKernel::new(&layer), layer.strength_for([0, 1]));
        for pairs in kernel.groups(&layer, lenslets, &lag) {
            // Add a group of pairs
            let patch = LagPatch::new(&kernel, &pairs);
            for Pair { at: [k, l], by } in pairs {
                let mut values = patch.at(by);
                if !patch.exact {
                    values[0] = kernel.at(by);
                }
                for (sum, values) in sums.iter_mut().zip(values) {
                    for (c, value) in values.into_iter().enumerate() {
                        sum[[(c / 2) * m + k, (c % 2) * n + l]] += strength * value;
                    }
                }
            }
        }
    }
    let [covariance, along_x, along_y] = sums;
    Ok(Displaced { covariance, slopes: [along_x, along_y] })
}

// Covariance of two lenslets by displacement
/// c_ab on a layer, by displacement.
struct LagKernel {
    average: TurnedAverage,
    turn: Turn,
}

impl LagKernel {
    fn new(layer: &SensorLayer) -> Self {
        let (turn, sides) = (layer.turn([0, 1]), layer.sides([0, 1]));
        let squares = TurnedSquares { sides, cos: turn.cos, sin: turn.sin };
        Self { average: TurnedAverage::new(&layer.phase, squares), turn }
    }

    /// xx, xy, yx and yy, the second along the axes of the second sensor; rad² m⁻².
    fn at(&self, [x, y]: [f64; 2]) -> [f64; 4] {
        let [[xx, xy], [yx, yy]] = self.turn.complete(self.average.at(x, y));
        [xx, xy, yx, yy]
    }

    /// All pairs of lenslets by their lag.
    fn groups(
        &self,
        layer: &SensorLayer,
        [firsts, others]: [&[[usize; 2]]; 2],
        lag: &impl Fn([usize; 2], [usize; 2]) -> usize,
    ) -> Vec<Vec<Pair>> {
        let mut groups: Vec<Vec<Pair>> = Vec::new();
        let [one, two] = [&layer.footprints[0], &layer.footprints[1]];
        let seconds: Vec<[f64; 2]> =
            others.iter().map(|&other| self.turn.apply(two.centre(other))).collect();
        for (k, &first) in firsts.iter().enumerate() {
            let [u, v] = one.centre(first);
            for (l, (&other, [x, y])) in others.iter().zip(&seconds).enumerate() {
                let number = lag(first, other);
                if groups.len() <= number {
                    groups.resize_with(number + 1, Vec::new);
                }
                groups[number].push(Pair { at: [k, l], by: [x - u, y - v] });
            }
        }
        groups.retain(|pairs| !pairs.is_empty());
        groups
    }
}

// A patch of displacements
/// c_ab over a rectangle of displacements, by a polynomial.
struct LagPatch {
    /// Its middle and half of its sides, metres.
    middle: [f64; 2],
    half: [f64; 2],
    nodes: [usize; 2],
    /// Shares of Chebyshev's polynomials, those along x together: xx, xy, yx, yy.
    shares: Vec<[f64; 4]>,
    /// Whether it represents the function itself, and not only its derivatives.
    exact: bool,
}

/// The most nodes along an axis.
const MOST: usize = 12;

impl LagPatch {
    // Put a patch around pairs
    fn new(kernel: &LagKernel, pairs: &[Pair]) -> Self {
        let sides = kernel.average.squares.sides;
        let least = 0.02 * sides[0].min(sides[1]);
        let (mut middle, mut half) = ([0.0; 2], [0.0; 2]);
        // Middle and extent of some pairs
        for axis in [0, 1] {
            let ends =
                pairs.iter().fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], pair| {
                    [low.min(pair.by[axis]), high.max(pair.by[axis])]
                });
            middle[axis] = 0.5 * (ends[0] + ends[1]);
            half[axis] = (0.5 * (ends[1] - ends[0])).max(least);
        }
        let needed = Self::needed(&kernel.average.squares, middle, half);
        let worthy = needed.filter(|[nx, ny]| nx * ny <= pairs.len().max(9));
        let wide = half.map(|half| half / sides[0].min(sides[1]));
        // Nodes for derivatives alone
        let for_slopes = wide.map(|wide| {
            if wide < 0.05 {
                3
            } else if wide < 0.2 {
                4
            } else {
                6
            }
        });
        let (nodes, exact) = (worthy.unwrap_or(for_slopes), worthy.is_some());
        Self { middle, half, nodes, shares: Self::fill(kernel, (middle, half), nodes), exact }
    }

    // Nodes that a patch needs
    /// The nodes along x and y of Eq. [nodes of patch](https://lenslet.github.io/lenslet/turned-lags.html#eq-nodes-of-patch); none where edges meet in the patch or nearby.
    fn needed(squares: &TurnedSquares, middle: [f64; 2], half: [f64; 2]) -> Option<[usize; 2]> {
        let TurnedSquares { sides: [one, two], cos, sin } = squares;
        let meet = 0.5 * (one + two * (cos.abs() + sin.abs()));
        let along = |axis: usize| {
            let across = middle[1 - axis].abs() - half[1 - axis] - meet;
            let far = (middle[axis].abs() - meet).max(0.0).hypot(across.max(0.0));
            let z = far / half[axis];
            let sum_of_axes = z + (z * z - 1.0).max(0.0).sqrt();
            let missed = |n: usize| sum_of_axes.powi(-(n as i32)) * (n as f64).powi(-4);
            (3..=MOST).find(|&n| z > 1.0 && missed(n) <= 1e-12)
        };
        Some([along(0)?, along(1)?])
    }

    // Fill the shares of a patch
    /// Shares of the polynomial through the nodes of a rectangle with a middle and half sides.
    fn fill(
        kernel: &LagKernel,
        (middle, half): ([f64; 2], [f64; 2]),
        [nx, ny]: [usize; 2],
    ) -> Vec<[f64; 4]> {
        let angle = |k: usize, n: usize| (2 * k + 1) as f64 * PI / (2 * n) as f64;
        let place = |axis: usize, k, n| middle[axis] + half[axis] * f64::cos(angle(k, n));
        let node = |k: usize| kernel.at([place(0, k % nx, nx), place(1, k / nx, ny)]);
        let values: Vec<[f64; 4]> = (0..nx * ny).map(node).collect();
        let weights = |n: usize| {
            let weight = move |(power, k): (usize, usize)| {
                let share = if power == 0 { 1.0 } else { 2.0 } / n as f64;
                share * (power as f64 * angle(k, n)).cos()
            };
            Array2::from_shape_fn((n, n), weight)
        };
        let (along_x, along_y) = (weights(nx), weights(ny));
        let sum = |n: usize, term: &dyn Fn(usize) -> (f64, [f64; 4])| {
            (0..n).map(term).fold([0.0; 4], |sum, (weight, value)| {
                std::array::from_fn(|c| sum[c] + weight * value[c])
            })
        };
        let rows: Vec<[f64; 4]> = (0..nx * ny)
            .map(|k| sum(nx, &|i| (along_x[[k % nx, i]], values[k - k % nx + i])))
            .collect();
        (0..nx * ny).map(|k| sum(ny, &|j| (along_y[[k / nx, j]], rows[j * nx + k % nx]))).collect()
    }

    // Read a patch
    /// xx, xy, yx and yy at a displacement, and their derivatives along x and along y.
    fn at(&self, by: [f64; 2]) -> [[f64; 4]; 3] {
        let along = |axis: usize| {
            polynomials((by[axis] - self.middle[axis]) / self.half[axis], self.nodes[axis])
        };
        let (along_x, along_y) = (along(0), along(1));
        let mut sums = [[0.0; 4]; 3];
        for (shares, [y, slope_y]) in self.shares.chunks_exact(self.nodes[0]).zip(along_y) {
            let mut row = [[0.0; 4]; 2];
            for (share, [x, slope_x]) in shares.iter().zip(along_x) {
                for (c, share) in share.iter().enumerate() {
                    row[0][c] += x * share;
                    row[1][c] += slope_x * share;
                }
            }
            for c in 0..4 {
                sums[0][c] += y * row[0][c];
                sums[1][c] += y * row[1][c] / self.half[0];
                sums[2][c] += slope_y * row[0][c] / self.half[1];
            }
        }
        sums
    }
}

// Polynomials of Chebyshev with slopes
/// The first `n` Chebyshev polynomials at a position, and their derivatives.
fn polynomials(z: f64, n: usize) -> [[f64; 2]; MOST] {
    let mut all = [[1.0, 0.0]; MOST];
    all[1] = [z, 1.0];
    for m in 2..n {
        let ([before, slope_before], [last, slope]) = (all[m - 2], all[m - 1]);
        all[m] = [2.0 * z * last - before, 2.0 * (last + z * slope) - slope_before];
    }
    all
}

// Tests of turned lags
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::atmosphere::Layer;
    use crate::model::lenslet_array::{LensletArray, SlopeOrder};
    use crate::model::source::Source;
    use crate::turbulence::cross_covariance::slope_cross_covariance;
    use crate::units::ARCSEC;
    use crate::watch::unwatched;

    // Turned lags agree with all pairs
    #[test]
    fn turned_lags_agree_with_all_pairs() {
        let n = 8;
        let mut valid = Array2::from_elem((n, n), true);
        (valid[[0, 0]], valid[[2, 5]], valid[[7, 1]]) = (false, false, false);
        let masks = [valid.clone(), valid];
        let order = SlopeOrder::new(&masks);
        let lenslets = [0, 1].map(|star| order.lenslets(star));
        let array = LensletArray::new(n, 0.4).unwrap();
        let rest = Sensor::at_rest(Source::star(30.0 * ARCSEC, 0.3).unwrap(), array);
        let laser = Source::new(25.0 * ARCSEC, 2.0, 90e3).unwrap();
        let lag = |first: [usize; 2], other: [usize; 2]| {
            (n + other[0] - first[0]) * 2 * n + n + other[1] - first[1]
        };
        let tables = PhaseTables::default();
        for (degrees, altitude, source) in [
            (0.12f64, 0.0, laser),
            (0.8, 6000.0, rest.source),
            (3.0, 2000.0, laser),
            (94.0, 0.0, laser),
        ] {
            let air = Atmosphere::new(0.15, 500e-9, vec![Layer::new(altitude, 1.0, 20.0)]).unwrap();
            let first = Sensor { rotation: 0.2, ..rest };
            let rotation = 0.2 + degrees.to_radians();
            let magnification = if source == laser { 1.01 } else { 1.0 };
            let second = Sensor { source, rotation, magnification, shift: [0.1, -0.03], ..rest };
            let gradient = ConeGradient::Pupil;
            let pairs = |second: Sensor| {
                let sensors = [first, second];
                let [one, two] = [0, 1].map(|k| (&sensors[k..=k], &masks[k..=k]));
                slope_cross_covariance(&air, one, two, gradient, &unwatched).unwrap()
            };
            let exact = pairs(second);
            let most = exact.fold(0.0, |most: f64, value| most.max(value.abs()));
            let posed = (&air, gradient);
            let found = turned_covariance(posed, &[first, second], lenslets, &tables, lag).unwrap();
            let error = (&found.covariance - &exact).fold(0.0, |most: f64, x| most.max(x.abs()));
            let bound = if degrees < 0.5 { 5e-9 } else { 1e-9 };
            assert!(error < bound * most, "{degrees}: {:.1e}", error / most);
            if degrees > 10.0 {
                continue; // patches are as wide as the array, and tell no slopes
            }
            // Along the pupil's x axis, which the first sensor sees at −0.2 rad.
            let step = 1e-4;
            let moved = Sensor { shift: [0.1 + step, -0.03], ..second };
            let (sin, cos) = first.rotation.sin_cos();
            let along = &found.slopes[0] * cos - &found.slopes[1] * sin;
            let gamma = second.source.cone_factor(altitude);
            let slope = (pairs(moved) - exact) / (step * gamma);
            let largest = slope.fold(0.0, |most: f64, x| most.max(x.abs()));
            let error = (along - slope).fold(0.0, |most: f64, x| most.max(x.abs()));
            assert!(error < 2e-2 * largest, "{degrees}: {:.1e}", error / largest);
        }
    }
}
