// Tangled from book/src/edge-integrals.md: edit there, or here and run cargo tangle stitch.
//! Covariance of footprint-averaged phase gradients at close range, by integrals along the edges of the lattice of lags.

use crate::phase::VonKarman;
use crate::quadrature::{Rule, gauss_legendre};
use ndarray::{Array2, Array3};
use std::sync::LazyLock;

// Integrals along one edge
/// Integrals along an edge, u running from its start.
#[derive(Debug, Clone, Copy, Default)]
struct Edge {
    /// ∫ S du.
    fall: f64,
    /// ∫ u S du.
    moment: f64,
    /// ∫ M du.
    half_mean: f64,
}

// Integrate along one edge
/// Nodes on a panel.
const NODES: usize = 10;

/// The shortest panel, in sides or outer scales.
const FINEST: f64 = 1.0 / 65_536.0;

static PANEL: LazyLock<Rule> = LazyLock::new(|| gauss_legendre(NODES));

impl Edge {
    /// Integrates from `start` to `start + side` along an edge at the distance `across` from the origin.
    fn integrate(phase: &VonKarman, across: f64, start: f64, side: f64) -> Self {
        let mut edge = Self::default();
        let nearest = f64::clamp(0.0, start, start + side);
        let mut panels = vec![(start, nearest), (nearest, start + side)];
        while let Some((from, to)) = panels.pop() {
            // Halve the panel or integrate over it
            let length = to - from;
            let distance = across.hypot(from.abs().min(to.abs()));
            let finest = FINEST * side.min(phase.outer_scale());
            let bends = length > phase.outer_scale() && distance < 8.0 * phase.outer_scale();
            if (length > distance && length > finest) || bends {
                let middle = 0.5 * (from + to);
                panels.extend([(from, middle), (middle, to)]);
            } else if length > 0.0 {
                edge.add_panel(phase, across, start, (from, to));
            }
        }
        edge
    }

    // Add the panel's integrals
    fn add_panel(&mut self, phase: &VonKarman, across: f64, start: f64, (from, to): (f64, f64)) {
        let half = 0.5 * (to - from);
        for (node, weight) in PANEL.nodes.iter().zip(&PANEL.weights) {
            let (u, weight) = (from + half * (1.0 + node), half * weight);
            let (fall, half_mean) = phase.fall_and_half_mean((across * across + u * u).sqrt());
            self.fall += weight * fall;
            self.moment += weight * (u - start) * fall;
            self.half_mean += weight * half_mean;
        }
    }
}

// Lattice of edges around the lags
/// The edges of the lattice whose inner nodes are the lags wanted.
struct Lattice {
    side: f64,
    /// Coordinates of the lines, one before the first lag to one after the last; metres.
    x: Vec<f64>,
    y: Vec<f64>,
    /// Edges parallel to y: cell row, line.
    vertical: Array2<Edge>,
    /// Edges parallel to x: line, cell column.
    horizontal: Array2<Edge>,
}

impl Lattice {
    fn new(phase: &VonKarman, side: f64, first: [f64; 2], (ny, nx): (usize, usize)) -> Self {
        let lines = |first: f64, n| (0..n + 2).map(move |k| first + (k as f64 - 1.0) * side);
        let (x, y) =
            (lines(first[0], nx).collect::<Vec<_>>(), lines(first[1], ny).collect::<Vec<_>>());
        let edge = |across: f64, start| Edge::integrate(phase, across.abs(), start, side);
        let vertical = Array2::from_shape_fn((ny + 1, nx + 2), |(j, i)| edge(x[i], y[j]));
        let horizontal = Array2::from_shape_fn((ny + 2, nx + 1), |(j, i)| edge(y[j], x[i]));
        Self { side, x, y, vertical, horizontal }
    }

    // Combine edges into triangles and cells
    /// E of Eq. `[eq:triangle-integral]` over two consecutive edges.
    fn triangle(&self, nearer: Edge, further: Edge) -> f64 {
        nearer.moment + self.side * further.fall - further.moment
    }

    /// F of Eq. `[eq:cell-by-sides]` of the cell that starts at the lines `j` and `i`.
    fn cell(&self, j: usize, i: usize) -> f64 {
        let (x, y) = (&self.x, &self.y);
        y[j + 1] * self.horizontal[[j + 1, i]].half_mean - y[j] * self.horizontal[[j, i]].half_mean
            + x[i + 1] * self.vertical[[j, i + 1]].half_mean
            - x[i] * self.vertical[[j, i]].half_mean
    }
}

// Covariances from the edge lattice
/// Covariances of footprint-averaged phase gradients for r0 = 1 m at the lags `first` + (i, j) `side` (metres).
///
/// Components xx, xy, yy on axis 0, then y and x: (3, ny, nx), rad² m⁻². Exact to some 1e-13 of the variance near the
/// origin; at R sides from it rounding takes about R³ 1e-16 of the result, so that it is meant for R up to 10 or so.
///
/// ```
/// use lenslet::{edges::gradient_covariances, phase::VonKarman};
/// let kolmogorov = VonKarman::new(f64::INFINITY);
/// let variance = gradient_covariances(&kolmogorov, 1.0, [0.0, 0.0], (1, 1))[[0, 0, 0]];
/// let of_slope = variance / (2.0 * std::f64::consts::PI).powi(2); // in λ² d^(−1/3) r0^(−5/3)
/// assert!((of_slope - 0.1622428).abs() < 1e-7);
/// ```
pub fn gradient_covariances(
    phase: &VonKarman,
    side: f64,
    first: [f64; 2],
    (ny, nx): (usize, usize),
) -> Array3<f64> {
    let lattice = Lattice::new(phase, side, first, (ny, nx));
    // Take second and mixed differences
    let (v, h) = (&lattice.vertical, &lattice.horizontal);
    let along_y = |j: usize, i: usize| lattice.triangle(v[[j, i]], v[[j + 1, i]]);
    let along_x = |j: usize, i: usize| lattice.triangle(h[[j, i]], h[[j, i + 1]]);
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

    // Check that lags do not depend on their company
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

    // Meet the limit of large footprints
    #[test]
    fn large_footprints_have_their_limit() {
        use crate::{phase::spectrum_constant, special::gamma};
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
