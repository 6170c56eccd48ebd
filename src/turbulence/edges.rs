// Tangled from book/src/edge-integrals.md: edit there, or here and run cargo tangle stitch.
//! Covariance of footprint-averaged phase gradients at close range, by integrals along the edges of the lattice of lags.

use crate::numerics::quadrature::{Rule, gauss_legendre};
use crate::turbulence::phase::VonKarman;
use ndarray::{Array2, Array3};
use std::sync::LazyLock;

// Panels along an edge
/// The shortest panel, in sides or outer scales.
const FINEST: f64 = 1.0 / 65_536.0;

/// How edges are cut into panels for a function of distance that is smooth but for a circle around the origin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EdgePanels {
    circle: f64,
    outer_scale: f64,
    finest: f64,
}

impl EdgePanels {
    /// Panels for a function singular at the distance `circle` that bends within `outer_scale`, on edges of some `side`; metres.
    pub(crate) fn new(circle: f64, outer_scale: f64, side: f64) -> Self {
        Self { circle, outer_scale, finest: FINEST * side.min(outer_scale) }
    }

    // Cut an edge into panels
    /// Passes to `panel` the ends of each panel, and its distance from the singularity, of the edge from `start` to `end` that
    /// passes the origin at the distance `across`.
    #[inline]
    pub(crate) fn along(
        &self,
        across: f64,
        [start, end]: [f64; 2],
        mut panel: impl FnMut([f64; 2], f64),
    ) {
        let square = across * across;
        let meets = (self.circle * self.circle - square).max(0.0).sqrt();
        let [a, b, c] = [-meets, 0.0, meets].map(|cut| f64::clamp(cut, start, end));
        for part in [[c, end], [b, c], [a, b], [start, a]] {
            if part[0] < part[1] {
                self.halve(square, part, &mut panel);
            }
        }
    }

    // Halve a panel that is too long
    /// Passes on the panel, or recursively its halves; `square` is the squared distance of the edge's line from the origin.
    fn halve(&self, square: f64, [from, to]: [f64; 2], panel: &mut impl FnMut([f64; 2], f64)) {
        let (length, distance) = (to - from, self.distance(square, [from, to]));
        let bends = length > self.outer_scale && distance < 8.0 * self.outer_scale;
        if (length > distance && length > self.finest) || bends {
            let middle = 0.5 * (from + to);
            self.halve(square, [middle, to], panel);
            self.halve(square, [from, middle], panel);
        } else {
            panel([from, to], distance);
        }
    }

    // Measure the distance from the singularity
    /// Distance in metres between the circle and a panel that no cut divides.
    fn distance(&self, square: f64, ends: [f64; 2]) -> f64 {
        let [a, b] = ends.map(|u| (square + u * u).sqrt());
        (a.min(b) - self.circle).max(self.circle - a.max(b)).max(0.0)
    }

    // Integrate over the panels of an edge
    /// ∫ f du between two ends of an edge that passes the origin at the distance `across`, for functions of squared distance.
    pub(crate) fn integrate<const N: usize>(
        &self,
        across: f64,
        ends: [f64; 2],
        f: impl Fn(f64) -> [f64; N],
    ) -> [f64; N] {
        let (square, mut sum) = (across * across, [0.0; N]);
        self.along(across, ends, |[from, to], distance| {
            let (half, middle) = (0.5 * (to - from), 0.5 * (from + to));
            let enough = |(least, _): &&(f64, Rule)| distance >= least * (to - from);
            let Some((_, rule)) = RULES.iter().find(enough) else { return };
            for (node, weight) in rule.nodes.iter().zip(&rule.weights) {
                let u = middle + half * node;
                let values = f(square + u * u);
                sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += half * weight * value);
            }
        });
        sum
    }
}

// Rules for panels by their distance
/// Rules for a panel, with the distance from the singularity in panel lengths from which they suffice.
static RULES: LazyLock<[(f64, Rule); 6]> = LazyLock::new(|| {
    [(20.0, 3), (8.0, 4), (4.5, 5), (3.0, 6), (1.7, 8), (0.0, 10)]
        .map(|(from, nodes)| (from, gauss_legendre(nodes)))
});

// Integrals along one edge
/// Integrals along an edge, u running from its start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EdgeIntegrals {
    /// ∫ S du.
    pub(crate) half_structure: f64,
    /// ∫ u S du.
    pub(crate) moment: f64,
    /// ∫ M du.
    half_mean: f64,
}

// Integrate along one edge
/// Nodes on a panel.
const NODES: usize = 10;

static PANEL: LazyLock<Rule> = LazyLock::new(|| gauss_legendre(NODES));

impl EdgeIntegrals {
    /// Integrates `phase`, the functions S and M of squared distance, along an edge; see [`EdgePanels::along`].
    pub(crate) fn integrate(
        panels: &EdgePanels,
        phase: &impl Fn(f64) -> (f64, f64),
        across: f64,
        ends: [f64; 2],
    ) -> Self {
        let mut edge = Self::default();
        panels.along(across, ends, |[from, to], _| {
            // Add the integrals of a panel
            let half = 0.5 * (to - from);
            for (node, weight) in PANEL.nodes.iter().zip(&PANEL.weights) {
                let (u, weight) = (from + half * (1.0 + node), half * weight);
                let (half_structure, half_mean) = phase(across * across + u * u);
                edge.half_structure += weight * half_structure;
                edge.moment += weight * (u - ends[0]) * half_structure;
                edge.half_mean += weight * half_mean;
            }
        });
        edge
    }
}

// Lattice of edges around the lags
/// The edges between the crossings of vertical and horizontal lines.
pub(crate) struct EdgeLattice {
    /// Coordinates of the lines, ascending; metres.
    x: Vec<f64>,
    y: Vec<f64>,
    /// Edges parallel to y: cell row, line.
    pub(crate) vertical: Array2<EdgeIntegrals>,
    /// Edges parallel to x: line, cell column.
    pub(crate) horizontal: Array2<EdgeIntegrals>,
}

impl EdgeLattice {
    // Integrate along all edges of the lattice
    /// The lattice of the lines `x` and `y`, at least one each, for a phase whose S and M are given by squared distance.
    pub(crate) fn new(
        panels: &EdgePanels,
        phase: impl Fn(f64) -> (f64, f64),
        [x, y]: [Vec<f64>; 2],
    ) -> Self {
        let edge = |across: f64, ends| EdgeIntegrals::integrate(panels, &phase, across.abs(), ends);
        let (lines, cells) = ((y.len(), x.len()), (y.len() - 1, x.len() - 1));
        let vertical =
            Array2::from_shape_fn((cells.0, lines.1), |(j, i)| edge(x[i], [y[j], y[j + 1]]));
        let horizontal =
            Array2::from_shape_fn((lines.0, cells.1), |(j, i)| edge(y[j], [x[i], x[i + 1]]));
        Self { x, y, vertical, horizontal }
    }

    // Combine edges into triangles and cells
    /// The triangle integral of Eq. [triangle integral](https://lenslet.github.io/lenslet/edge-integrals.html#eq-triangle-integral) over two edges of length `side`: the weight u rises on the first and falls on the second.
    pub(crate) fn triangle(side: f64, rising: EdgeIntegrals, falling: EdgeIntegrals) -> f64 {
        rising.moment + side * falling.half_structure - falling.moment
    }

    /// The integral of S, Eq. [cell by sides](https://lenslet.github.io/lenslet/edge-integrals.html#eq-cell-by-sides), over the cell that starts at the lines `j` and `i`.
    pub(crate) fn cell(&self, j: usize, i: usize) -> f64 {
        let (x, y) = (&self.x, &self.y);
        y[j + 1] * self.horizontal[[j + 1, i]].half_mean - y[j] * self.horizontal[[j, i]].half_mean
            + x[i + 1] * self.vertical[[j, i + 1]].half_mean
            - x[i] * self.vertical[[j, i]].half_mean
    }
}

// Covariances from the edge lattice
// Documentation of the gradient covariances
/// Covariances of footprint-averaged phase gradients for r0 = 1 m at the lags `first` + (i, j) `side` (metres).
///
/// Components xx, xy, yy on axis 0, then y and x: (3, ny, nx), rad² m⁻². Exact to some 1e-13 of the variance near the
/// origin; at R sides from it rounding takes about R³ 1e-16 of the result, so that it is meant for R up to 10 or so.
///
/// ```
/// use lenslet::turbulence::{VonKarman, gradient_covariances};
/// let kolmogorov = VonKarman::new(f64::INFINITY);
/// let variance = gradient_covariances(&kolmogorov, 1.0, [0.0, 0.0], (1, 1))[[0, 0, 0]];
/// let of_slope = variance / (2.0 * std::f64::consts::PI).powi(2); // in λ² d^(−1/3) r0^(−5/3)
/// assert!((of_slope - 0.1622428).abs() < 1e-7);
/// assert!((variance - 6.4051).abs() < 1e-4); // the midpoints of the edges give 6.884
/// for (outer_scale, expected) in [(f64::INFINITY, 8.0699), (25.0, 4.5898)] {
///     let phase = VonKarman::new(outer_scale);
///     let variance = gradient_covariances(&phase, 0.5, [0.0, 0.0], (1, 1))[[0, 0, 0]];
///     assert!((variance - expected).abs() < 1e-4);
/// }
/// assert!((kolmogorov.structure_function(1.0) - 6.884).abs() < 1e-3);
/// ```
pub fn gradient_covariances(
    phase: &VonKarman,
    side: f64,
    first: [f64; 2],
    (ny, nx): (usize, usize),
) -> Array3<f64> {
    let lines = |first: f64, n| (0..n + 2).map(|k| first + (k as f64 - 1.0) * side).collect();
    let panels = EdgePanels::new(0.0, phase.outer_scale(), side);
    let half_structure_and_half_mean = |t: f64| phase.half_structure_and_half_mean(t.sqrt());
    let lattice = EdgeLattice::new(
        &panels,
        half_structure_and_half_mean,
        [lines(first[0], nx), lines(first[1], ny)],
    );
    // Take second and mixed differences
    let (v, h) = (&lattice.vertical, &lattice.horizontal);
    let along_y = |j: usize, i: usize| EdgeLattice::triangle(side, v[[j, i]], v[[j + 1, i]]);
    let along_x = |j: usize, i: usize| EdgeLattice::triangle(side, h[[j, i]], h[[j, i + 1]]);
    let cell = |j, i| lattice.cell(j, i);
    Array3::from_shape_fn((3, ny, nx), |(component, j, i)| {
        let difference = match component {
            0 => along_y(j, i) - 2.0 * along_y(j, i + 1) + along_y(j, i + 2),
            1 => cell(j + 1, i + 1) - cell(j + 1, i) - cell(j, i + 1) + cell(j, i),
            _ => along_x(j, i) - 2.0 * along_x(j + 1, i) + along_x(j + 2, i),
        };
        difference / side.powi(4)
    })
}

// Tests of the edge integrals
#[cfg(test)]
mod tests {
    use super::*;

    // Check symmetry under exchange of axes
    #[test]
    fn exchange_of_axes_exchanges_components() {
        let phase = VonKarman::new(7.0);
        let at = |x, y| gradient_covariances(&phase, 0.4, [x, y], (1, 1));
        let (here, swapped, mirrored) = (at(0.17, 0.61), at(0.61, 0.17), at(-0.17, 0.61));
        let scale = at(0.0, 0.0)[[0, 0, 0]];
        for (a, b) in [(0, 2), (1, 1), (2, 0)] {
            assert!((here[[a, 0, 0]] - swapped[[b, 0, 0]]).abs() < 1e-13 * scale);
        }
        assert!((here[[1, 0, 0]] + mirrored[[1, 0, 0]]).abs() < 1e-13 * scale);
        assert!(here[[1, 0, 0]] < -0.01 * scale, "the mixed component is not small here");
    }

    // Check that lags are independent of each other
    #[test]
    fn lags_do_not_depend_on_their_company() {
        let (phase, side, first) = (VonKarman::new(25.0), 0.5, [-1.3, -0.2]);
        let all = gradient_covariances(&phase, side, first, (3, 5));
        for (j, i) in [(0, 0), (1, 3), (2, 4)] {
            let lag = [first[0] + i as f64 * side, first[1] + j as f64 * side];
            let alone = gradient_covariances(&phase, side, lag, (1, 1));
            for component in 0..3 {
                let error = alone[[component, 0, 0]] - all[[component, j, i]];
                assert!(error.abs() < 1e-12, "{error:e}");
            }
        }
    }

    // Compare with a sum over two footprints
    #[test]
    fn a_plain_sum_over_two_footprints_agrees() {
        let (phase, side, lag, n) = (VonKarman::new(5.0), 0.5, [0.65, 0.9], 200);
        let mut sum = [0.0; 3];
        for (k, l) in (0..n * n).map(|k| (k % n, k / n)) {
            let node = |k: usize| 2.0 * (k as f64 + 0.5) / n as f64 - 1.0;
            let (u, v) = (node(k), node(l));
            let weight = (1.0 - u.abs()) * (1.0 - v.abs()) * (2.0 / n as f64).powi(2);
            let (x, y) = (lag[0] + u * side, lag[1] + v * side);
            let (t, step) = (x * x + y * y, 1e-4);
            let p = phase.slope_over_distance(t);
            let q =
                (phase.slope_over_distance(t + step) - phase.slope_over_distance(t - step)) / step;
            for (sum, term) in sum.iter_mut().zip([p + q * x * x, q * x * y, p + q * y * y]) {
                *sum += weight * term;
            }
        }
        let exact = gradient_covariances(&phase, side, lag, (1, 1));
        for (component, sum) in sum.iter().enumerate() {
            assert!((sum / exact[[component, 0, 0]] - 1.0).abs() < 2e-4, "{component}: {sum}");
        }
    }

    // Compare with the limit of large footprints
    #[test]
    fn large_footprints_have_their_limit() {
        use crate::{numerics::special::gamma, turbulence::phase::spectrum_constant};
        for (side, outer_scale) in [(8.0, 1.0), (40.0f64, 1.0f64), (1e3, 0.2)] {
            let line = std::f64::consts::PI.sqrt() * gamma(4.0 / 3.0) / gamma(11.0 / 6.0);
            let moments = line * outer_scale.powf(8.0 / 3.0)
                - outer_scale.powf(11.0 / 3.0) / (std::f64::consts::PI * side);
            let limit = 2.0 * spectrum_constant() / side.powi(3) * moments;
            let phase = VonKarman::new(outer_scale);
            let variance = gradient_covariances(&phase, side, [0.0; 2], (1, 1))[[0, 0, 0]];
            assert!((variance / limit - 1.0).abs() < 1e-10, "D = {side}: {}", variance / limit);
        }
    }
}
