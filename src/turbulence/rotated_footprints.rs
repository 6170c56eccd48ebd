// Tangled from book/src/turned-footprints.md: edit there, or here and run cargo tangle stitch.
//! Gradients averaged over two squares that are rotated against each other: their covariance by edges, and rules for squares far apart.

// Imports of rotated footprints
use crate::numerics::quadrature::{Rule, gauss_even, gauss_legendre};
use crate::turbulence::edges::{EdgeIntegrals, EdgePanels};
use std::f64::consts::FRAC_PI_2;
use std::sync::LazyLock;

// Rotation by any angle
/// Rotation of a second frame of axes against a first: quarter turns, and the rest of the angle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Turn {
    /// Quarter turns, 0 to 3.
    pub(crate) quarters: usize,
    /// Cosine of the rest, which is between −π/4 and π/4; 1 if there is none.
    pub(crate) cos: f64,
    /// Sine of the rest; 0 if there is none.
    pub(crate) sin: f64,
}

/// Rests of an angle that count as none, rad.
const STRAIGHT: f64 = 1e-14;

impl Turn {
    // Rotate vectors and slopes
    /// The turn by an angle, rad, from x to y.
    pub(crate) fn by(angle: f64) -> Self {
        let quarters = (angle / FRAC_PI_2).round();
        let rest = angle - quarters * FRAC_PI_2;
        let (sin, cos) = if rest.abs() < STRAIGHT { (0.0, 1.0) } else { rest.sin_cos() };
        Self { quarters: quarters.rem_euclid(4.0) as usize, cos, sin }
    }

    /// The coordinates of a vector in the first frame, from those in the second.
    pub(crate) fn apply(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        let [x, y] = [self.cos * x - self.sin * y, self.sin * x + self.cos * y];
        [[x, y], [-y, x], [-x, -y], [y, -x]][self.quarters]
    }

    /// Covariances with slopes along the axes of the second frame, from those with slopes along axes that lack the quarter turns.
    pub(crate) fn complete(&self, rows: [[f64; 2]; 2]) -> [[f64; 2]; 2] {
        rows.map(|[x, y]| [[x, y], [y, -x], [-x, -y], [-y, x]][self.quarters])
    }
}

// Two squares rotated against each other
/// Two squares; the second is rotated against the first by an angle between −45° and 45°.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnedSquares {
    /// Sides, metres.
    pub(crate) sides: [f64; 2],
    /// Cosine and sine of the angle.
    pub(crate) cos: f64,
    pub(crate) sin: f64,
}

/// |sin β| up to which edges count as nearly parallel.
pub(crate) const THIN: f64 = 1e-3;

impl TurnedSquares {
    // Covariance of rotated squares by edges
    /// c_ab for r0 = 1 m at the displacement `at` of the second centre, in metres along the axes of the first; rows are components of the
    /// first. `half_structure` and `half_mean` are S and M of squared distance.
    pub(crate) fn by_edges(
        &self,
        panels: &EdgePanels,
        (half_structure, half_mean): (impl Fn(f64) -> f64, impl Fn(f64) -> f64),
        at: [f64; 2],
    ) -> [[f64; 2]; 2] {
        let ([one, two], cos, sin) = (self.sides, self.cos, self.sin);
        // Corners relative to the other square
        let of_second =
            corners(two).map(|[p, q]| [at[0] + cos * p - sin * q, at[1] + sin * p + cos * q]);
        let of_first = corners(one).map(|corner| {
            let [x, y] = [at[0] - corner[0], at[1] - corner[1]];
            [cos * x + sin * y, cos * y - sin * x]
        });
        let (u, v) = (
            corner_sums(panels, &half_mean, one, of_second),
            corner_sums(panels, &half_mean, two, of_first),
        );
        let squares = (one * two).powi(2);
        let (xy, yx) = (-(u[0] + v[1]) / (cos * squares), -(u[1] + v[0]) / (cos * squares));
        let (xx, yy) = if sin.abs() > THIN {
            ((u[0] - v[0]) / (sin * squares), (v[1] - u[1]) / (sin * squares))
        } else {
            let strips = |at, sin| -self.strips(panels, &half_structure, at, sin) / squares;
            (strips(at, sin), strips([at[1], at[0]], -sin))
        };
        [[xx, xy], [yx, yy]]
    }

    // Strips of nearly parallel edges
    /// Σ e f W of the component along the first coordinate of `at`, for edges that run along the second; Eq. [edge pair](https://lenslet.github.io/lenslet/turned-footprints.html#eq-edge-pair).
    fn strips(
        &self,
        panels: &EdgePanels,
        half_structure: &impl Fn(f64) -> f64,
        at: [f64; 2],
        sin: f64,
    ) -> f64 {
        let ([one, two], mut sum) = (self.sides, 0.0);
        for first in [-0.5, 0.5] {
            for second in [-0.5, 0.5] {
                let across = at[0] + second * two * self.cos - first * one;
                let along = at[1] + second * two * sin;
                sum +=
                    4.0 * first * second * self.strip(panels, half_structure, [across, along], sin);
            }
        }
        sum
    }

    // Strip of two edges
    /// W of two edges by lines along their strip; `across` and `along` are h₀ and z₀ of Eq. [strip](https://lenslet.github.io/lenslet/turned-footprints.html#eq-strip).
    fn strip(
        &self,
        panels: &EdgePanels,
        half_structure: &impl Fn(f64) -> f64,
        [across, along]: [f64; 2],
        sin: f64,
    ) -> f64 {
        // Overlap of two edges in their strip
        let ([one, two], cos) = (self.sides.map(|side| 0.5 * side), self.cos);
        let (wide, flat) = (one + cos * two, (one - cos * two).abs());
        let overlap = |z: f64| [((z - one) / cos).max(-two), ((z + one) / cos).min(two)];
        let place = |[low, high]: [f64; 2], part: f64, z: f64| {
            [across - (low + part * (high - low)) * sin, along + z]
        };
        let rule = &LINES[usize::from(sin != 0.0)];
        let mut sum = 0.0;
        for [from, to] in [[-wide, -flat], [-flat, flat], [flat, wide]] {
            let (start, end) = (overlap(from), overlap(to));
            let widths = [start, end].map(|[low, high]| high - low);
            for (node, weight) in rule.nodes.iter().zip(&rule.weights) {
                let [p, q] = [(start, from), (end, to)].map(|(t, z)| place(t, 0.5 + 0.5 * node, z));
                sum +=
                    0.5 * weight * (to - from) * mean_along(panels, half_structure, [p, q], widths);
            }
        }
        sum
    }

    // Rings for squares far apart
    /// Nodes (x, y), in metres along the axes of the first square, and weights of Eq. [rings](https://lenslet.github.io/lenslet/turned-footprints.html#eq-rings).
    pub(crate) fn rings(&self, rings: usize) -> Vec<[f64; 3]> {
        let reach = (self.sides[0] + self.sides[1]) / 2f64.sqrt();
        let samples: Vec<[f64; 3]> = (self.samples(2 * rings).into_iter())
            .map(|[x, y, weight]| [x.hypot(y) / reach, y.atan2(x), weight])
            .collect();
        let mean = |f: &dyn Fn(f64) -> f64| samples.iter().map(|[r, _, w]| w * f(*r)).sum();
        let even = gauss_even(2 * rings, mean);
        let (radii, shares) = (&even.nodes[rings..], &even.weights[rings..]);
        let harmonics = rings.div_ceil(2);
        let angles = 4 * (2 * harmonics + 1);
        let mut nodes = Vec::new();
        for (i, (radius, share)) in radii.iter().zip(shares).enumerate() {
            let outermost: Vec<[f64; 2]> =
                (1..=harmonics).map(|k| harmonic(&samples, radii, [i, k])).collect();
            // Spread nodes over one ring
            for l in 0..angles {
                let angle = 4.0 * FRAC_PI_2 * l as f64 / angles as f64;
                let terms = outermost.iter().enumerate().map(|(k, [re, im])| {
                    let (sin, cos) = (4.0 * (k + 1) as f64 * angle).sin_cos();
                    re * cos + im * sin
                });
                let weight = 2.0 * (share + terms.sum::<f64>()) / angles as f64;
                nodes.push([radius * reach * angle.cos(), radius * reach * angle.sin(), weight]);
            }
        }
        nodes
    }

    // Samples of all displacements
    /// Displacements (x, y) of points of the second square from points of the first, about those of the centres, and their weights; `n`
    /// nodes along each side.
    fn samples(&self, n: usize) -> Vec<[f64; 3]> {
        let rule = gauss_legendre(n);
        let square = |side: f64| -> Vec<[f64; 3]> {
            let node = |k: usize| 0.5 * side * rule.nodes[k];
            let weight = |k: usize| 0.5 * rule.weights[k];
            let at = |k: usize| [node(k % n), node(k / n), weight(k % n) * weight(k / n)];
            (0..n * n).map(at).collect()
        };
        let (first, second) = (square(self.sides[0]), square(self.sides[1]));
        let from_all = |[p, q, weight]: [f64; 3]| {
            let [x, y] = [self.cos * p - self.sin * q, self.sin * p + self.cos * q];
            first.iter().map(move |[u, v, share]| [x - u, y - v, weight * share])
        };
        second.into_iter().flat_map(from_all).collect()
    }

    // Hessian along the axes of both
    /// c_ab from the averages of H_xx, H_xy and H_yy along the axes of the first square.
    pub(crate) fn along_axes(&self, [xx, xy, yy]: [f64; 3]) -> [[f64; 2]; 2] {
        let (cos, sin) = (self.cos, self.sin);
        [[xx, xy], [xy, yy]].map(|[x, y]| [x * cos + y * sin, y * cos - x * sin])
    }
}

// Sum over edges and corners
/// U of Eq. [corner sums](https://lenslet.github.io/lenslet/turned-footprints.html#eq-corner-sums): corners of one square, as [`corners`] has them, against the edges of another of `side` at the origin.
fn corner_sums(
    panels: &EdgePanels,
    half_mean: &impl Fn(f64) -> f64,
    side: f64,
    corners: [[f64; 2]; 4],
) -> [f64; 2] {
    let mut sums = [0.0; 2];
    for (point, sign) in corners.iter().zip([1.0, -1.0, 1.0, -1.0]) {
        for (axis, sum) in sums.iter_mut().enumerate() {
            let ends = [-0.5, 0.5].map(|end| point[1 - axis] + end * side);
            for edge in [-0.5, 0.5] {
                let across = point[axis] - edge * side;
                let integrand = |t| (half_mean(t), 0.0);
                let integral =
                    EdgeIntegrals::integrate(panels, &integrand, across.abs(), ends).half_structure;
                *sum += 2.0 * sign * edge * across * integral;
            }
        }
    }
    sums
}

// Corners of a square
/// The corners of a square about its centre, counterclockwise from the one with the least coordinates.
fn corners(side: f64) -> [[f64; 2]; 4] {
    let half = 0.5 * side;
    [[-half, -half], [half, -half], [half, half], [-half, half]]
}

// Mean along a line of a strip
/// Lines along the strip of parallel edges, and of nearly parallel ones.
static LINES: LazyLock<[Rule; 2]> = LazyLock::new(|| [1, 4].map(gauss_legendre));
/// The mean of weight × S along the line from p to q, for a weight that changes linearly between two values; m rad².
fn mean_along(
    panels: &EdgePanels,
    half_structure: &impl Fn(f64) -> f64,
    [p, q]: [[f64; 2]; 2],
    [first, last]: [f64; 2],
) -> f64 {
    let length = (q[0] - p[0]).hypot(q[1] - p[1]);
    if length == 0.0 {
        return 0.0;
    }
    let [x, y] = [0, 1].map(|axis| (q[axis] - p[axis]) / length);
    let (start, across) = (p[0] * x + p[1] * y, (p[0] * y - p[1] * x).abs());
    let edge = EdgeIntegrals::integrate(
        panels,
        &|t| (half_structure(t), 0.0),
        across,
        [start, start + length],
    );
    (first * edge.half_structure + (last - first) / length * edge.moment) / length
}

// Harmonic of samples on rings
/// Real and imaginary part of ω_ik of Eq. [rings](https://lenslet.github.io/lenslet/turned-footprints.html#eq-rings) for samples (radius, angle, weight); zero for a ring that takes no part.
fn harmonic(samples: &[[f64; 3]], radii: &[f64], [i, k]: [usize; 2]) -> [f64; 2] {
    let (first, square, mut sum) = (2 * k - 2, radii[i] * radii[i], [0.0; 2]);
    if i < first {
        return sum;
    }
    let others = || (first..radii.len()).filter(|&j| j != i).map(|j| radii[j] * radii[j]);
    for [r, angle, weight] in samples {
        let lagrange: f64 = others().map(|other| (r * r - other) / (square - other)).product();
        let weight = weight * (r / radii[i]).powi(4 * k as i32) * lagrange;
        let (sin, cos) = (4.0 * k as f64 * angle).sin_cos();
        sum = [sum[0] + weight * cos, sum[1] + weight * sin];
    }
    sum
}

// Tests of turned footprints
#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::radial_table::RadialTable;
    use crate::turbulence::phase::{VonKarman, hessian};

    // Tabulate a phase for turned footprints
    /// S, M and p of an outer scale.
    struct Tables([RadialTable; 3]);

    impl Tables {
        fn new(outer_scale: f64) -> Self {
            let phase = VonKarman::new(outer_scale);
            let [low, high] = [1e-18, 1e4];
            Self([
                RadialTable::new(low, high, |t| phase.half_structure_and_half_mean(t.sqrt()).0),
                RadialTable::new(low, high, |t| phase.half_structure_and_half_mean(t.sqrt()).1),
                RadialTable::new(low, high, |t| phase.slope_over_distance(t)),
            ])
        }

        fn at(&self, k: usize, t: f64) -> f64 {
            self.0[k].value_and_slope(t.max(1e-18)).0
        }

        fn by_edges(&self, outer_scale: f64, pair: &TurnedSquares, at: [f64; 2]) -> [[f64; 2]; 2] {
            let panels = EdgePanels::new(0.0, outer_scale, pair.sides[0].min(pair.sides[1]));
            pair.by_edges(&panels, (|t| self.at(0, t), |t| self.at(1, t)), at)
        }
    }

    // Integrate over pairs of edges by quartering
    /// ∬ f(g(s, t)) ds dt, g a squared distance; rectangles end at the size `least`, and bend within `scale`.
    fn quarter(
        [g, f]: [&dyn Fn([f64; 2]) -> f64; 2],
        [s, t]: [[f64; 2]; 2],
        [least, scale]: [f64; 2],
        rule: &Rule,
    ) -> f64 {
        let [half, middle] =
            [[-0.5, 0.5], [0.5, 0.5]].map(|w| [s, t].map(|[a, b]| w[0] * a + w[1] * b));
        let size = half[0] + half[1];
        if size > least && (g(middle).sqrt() < 2.0 * size || 2.0 * size > scale) {
            let halves = |[a, b]: [f64; 2], m: f64| [[a, m], [m, b]];
            let parts = halves(s, middle[0]).map(|s| halves(t, middle[1]).map(|t| [s, t]));
            let whole = |part: &[[f64; 2]; 2]| quarter([g, f], *part, [least, scale], rule);
            return parts.iter().flatten().map(whole).sum();
        }
        let mut sum = 0.0;
        for (x, wx) in rule.nodes.iter().zip(&rule.weights) {
            for (y, wy) in rule.nodes.iter().zip(&rule.weights) {
                let at = [middle[0] + half[0] * x, middle[1] + half[1] * y];
                sum += wx * wy * half[0] * half[1] * f([g(at), 0.0]);
            }
        }
        sum
    }

    // Covariance of squares by brute force
    /// c_ab by sixteen double integrals over pairs of edges.
    fn brute_force(
        tables: &Tables,
        scale: f64,
        pair: &TurnedSquares,
        r: [f64; 2],
    ) -> [[f64; 2]; 2] {
        let (rule, [one, two]) = (gauss_legendre(8), pair.sides);
        let axes = [[1.0, 0.0], [0.0, 1.0]];
        let turned = [[pair.cos, pair.sin], [-pair.sin, pair.cos]];
        let ranges = [one, two].map(|side| [-0.5 * side, 0.5 * side]);
        let covariance = |a: usize, b: usize| -> f64 {
            let terms = [(-0.5, -0.5), (-0.5, 0.5), (0.5, -0.5), (0.5, 0.5)].map(|(e, f)| {
                // Squared distance between two edges
                let g = |[s, t]: [f64; 2]| {
                    let part = |k: usize| {
                        r[k] + f * two * turned[b][k] + t * turned[1 - b][k]
                            - e * one * axes[a][k]
                            - s * axes[1 - a][k]
                    };
                    part(0).powi(2) + part(1).powi(2)
                };
                let least = one.min(two).min(scale) / 512.0;
                let half_structure = |t: [f64; 2]| tables.at(0, t[0]);
                -4.0 * e * f * quarter([&g, &half_structure], ranges, [least, scale], &rule)
            });
            terms.iter().sum::<f64>() / (one * two).powi(2)
        };
        [0, 1].map(|a| [0, 1].map(|b| covariance(a, b)))
    }

    // Compare rotated footprints with brute force
    #[test]
    fn turned_footprints_agree_with_brute_force() {
        let angles = [
            0.0,
            1e-9,
            1e-6,
            0.9e-3,
            1.1e-3,
            0.1f64.to_radians(),
            0.122,
            -std::f64::consts::FRAC_PI_4,
        ];
        let points =
            [[0.0, 0.0], [0.03, -0.01], [0.4, 0.0], [0.5, 0.5], [-0.2, 0.31], [-1.02, 0.7]];
        for (outer_scale, sides) in
            [(f64::INFINITY, [0.5, 0.5]), (25.0, [0.5, 0.3]), (1.0, [0.2, 0.5])]
        {
            let tables = Tables::new(outer_scale);
            for (k, angle) in angles.into_iter().enumerate() {
                let (sin, cos) = angle.sin_cos();
                let pair = TurnedSquares { sides, cos, sin };
                let variance = tables.by_edges(outer_scale, &pair, [0.0; 2])[0][0];
                for at in points.into_iter().skip(k % 2).step_by(2) {
                    let exact = brute_force(&tables, outer_scale, &pair, at);
                    let found = tables.by_edges(outer_scale, &pair, at);
                    for (found, exact) in found.as_flattened().iter().zip(exact.as_flattened()) {
                        let error = (found - exact).abs() / variance;
                        assert!(error < 2e-10, "{sides:?}, {angle} at {at:?}: {error:.1e}");
                    }
                }
            }
        }
    }

    // Compare the rings with the edges
    #[test]
    fn rings_are_exact_from_where_they_serve() {
        for (outer_scale, sides) in [f64::INFINITY, 40.0, 10.0, 1.0].into_iter().flat_map(|scale| {
            [([1.0, 1.0], 4e-11), ([1.5, 0.5], 1e-10), ([0.1, 1.9], 1e-9)]
                .map(|sides| (scale, sides))
        }) {
            let (tables, (sides, bound)) = (Tables::new(outer_scale), sides);
            for angle in [0.05, 0.1, 0.4, -std::f64::consts::FRAC_PI_4] {
                let pair = TurnedSquares { sides, cos: angle.cos(), sin: angle.sin() };
                let variance = tables.by_edges(outer_scale, &pair, [0.0; 2])[0][0];
                for (rings, from) in [(3, 6.5), (2, 12.0)] {
                    let nodes = pair.rings(rings);
                    for direction in [0.0, 0.2, 0.4, 0.6, 0.785, 1.0, 1.3f64] {
                        let at = [from * direction.cos(), -from * direction.sin()];
                        // Note the error of the rings
                        let mut h = [0.0; 3];
                        for [x, y, weight] in &nodes {
                            let r = [at[0] + x, at[1] + y];
                            let (p, slope) = tables.0[2].value_and_slope(r[0] * r[0] + r[1] * r[1]);
                            for (sum, term) in h.iter_mut().zip(hessian(p, slope, r)) {
                                *sum += weight * term;
                            }
                        }
                        let edges = tables.by_edges(outer_scale, &pair, at);
                        let found = pair.along_axes(h);
                        for (found, exact) in found.as_flattened().iter().zip(edges.as_flattened())
                        {
                            let error = (found - exact).abs() / variance;
                            assert!(
                                error < bound,
                                "{outer_scale} {sides:?} {angle} {rings}: {error:.1e}"
                            );
                        }
                    }
                }
            }
        }
    }

    // Check that quarter turns are exact
    #[test]
    fn quarter_turns_exchange_axes_exactly() {
        let quarter = Turn::by(90f64.to_radians());
        assert_eq!((quarter.cos, quarter.sin), (1.0, 0.0));
        assert_eq!(quarter.apply([0.3, 0.7]), [-0.7, 0.3]);
        assert_eq!(quarter.complete([[1.0, 2.0], [3.0, 4.0]]), [[2.0, -1.0], [4.0, -3.0]]);
        for (angle, quarters) in [(-90f64, 3), (180.0, 2), (-359.0, 0), (271.0, 3), (46.0, 1)] {
            let turn = Turn::by(angle.to_radians());
            assert_eq!(turn.quarters, quarters, "{angle}");
            let [x, y] = turn.apply([1.0, 0.0]);
            let (sin, cos) = angle.to_radians().sin_cos();
            assert!((x - cos).abs() < 1e-14 && (y - sin).abs() < 1e-14, "{angle}: {x}, {y}");
        }
    }

    // Compute concentric squares at an angle
    #[test]
    fn concentric_squares_measure_nearly_one_gradient() {
        let (sin, cos) = 30f64.to_radians().sin_cos();
        let pair = TurnedSquares { sides: [0.5, 0.5], cos, sin };
        let [[xx, xy], _] = Tables::new(f64::INFINITY).by_edges(f64::INFINITY, &pair, [0.0; 2]);
        assert!((xx - 6.967631).abs() < 1e-6 && (xy + 4.022764).abs() < 1e-6, "{xx}, {xy}");
        assert!((xx / cos - 8.046).abs() < 1e-3 && (xy / sin + 8.046).abs() < 1e-3);
        let variance = 0.1622428 * 4.0 * std::f64::consts::PI.powi(2) * 0.5f64.powf(-1.0 / 3.0);
        assert!((variance - 8.070).abs() < 1e-3 && (xx / cos / variance - 0.997).abs() < 1e-3);
    }
}
