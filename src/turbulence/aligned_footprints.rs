// Tangled from book/src/parallel-footprints.md: edit there, or here and run cargo tangle stitch.
//! Gradients averaged over two parallel squares of unequal sides: their covariance, for whole rows of pairs.

// Imports of aligned footprints
use crate::numerics::quadrature::{Rule, gauss_trapezium};
use crate::numerics::radial_table::RadialTable;
use crate::turbulence::edges::{EdgeIntegrals, EdgeLattice, EdgePanels};
use crate::turbulence::phase::{VonKarman, hessian};
use rayon::prelude::*;
use std::f64::consts::{FRAC_1_SQRT_2, PI};
use std::sync::Arc;

// Phase tabulated for one outer scale
/// The phase of one outer scale and r0 = 1 m, tabulated over squared distance.
pub(crate) struct TabulatedPhase {
    pub(crate) outer_scale: f64,
    /// The farthest distance that may be looked up, metres.
    pub(crate) reach: f64,
    /// The least squared distance in the tables; nearer ones are taken to be there.
    least: f64,
    half_structure: RadialTable,
    half_mean: RadialTable,
    slope_over_distance: RadialTable,
}

impl TabulatedPhase {
    // Tabulate the phase between two distances
    /// Tables for footprints of at least `side`, out to the distance `reach`; metres.
    pub(crate) fn new(outer_scale: f64, side: f64, reach: f64) -> Self {
        let phase = VonKarman::new(outer_scale);
        let least = (1e-7 * side.min(outer_scale)).powi(2);
        let most = reach.powi(2);
        Self {
            outer_scale,
            reach,
            least,
            half_structure: RadialTable::new(least, most, |t| {
                phase.half_structure_and_half_mean(t.sqrt()).0
            }),
            half_mean: RadialTable::new(least, most, |t| {
                phase.half_structure_and_half_mean(t.sqrt()).1
            }),
            slope_over_distance: RadialTable::new(least, most, |t| phase.slope_over_distance(t)),
        }
    }

    // Look up the tabulated phase
    // Whether tables of the phase serve
    /// Whether the tables serve footprints of at least `side`, out to the distance `reach`; metres.
    pub(crate) fn serves(&self, outer_scale: f64, side: f64, reach: f64) -> bool {
        let least = (1e-7 * side.min(outer_scale)).powi(2);
        self.outer_scale == outer_scale && self.reach >= reach && self.least <= least
    }

    /// S and M in rad² at the squared distance `t` in m².
    pub(crate) fn half_structure_and_half_mean(&self, t: f64) -> (f64, f64) {
        let t = t.max(self.least);
        (self.half_structure.value_and_slope(t).0, self.half_mean.value_and_slope(t).0)
    }

    /// S in rad² at the squared distance `t` in m².
    #[inline(always)]
    pub(crate) fn half_structure_alone(&self, t: f64) -> f64 {
        self.half_structure.value_and_slope(t.max(self.least)).0
    }

    /// M in rad² at the squared distance `t` in m².
    pub(crate) fn half_mean_alone(&self, t: f64) -> f64 {
        self.half_mean.value_and_slope(t.max(self.least)).0
    }

    /// H_xx, H_xy and H_yy at the displacement (x, y) in metres, not the origin; rad² m⁻².
    #[inline(always)]
    pub(crate) fn gradients(&self, x: f64, y: f64) -> [f64; 3] {
        let (p, slope) = self.slope_over_distance.value_and_slope(x * x + y * y);
        hessian(p, slope, [x, y])
    }
}

// Average over two unequal footprints
/// Half widths |x|, |y| below which footprints are near each other.
pub(crate) const NEAR: f64 = 2.5;

/// Nodes along an axis, with the distance in half widths from which they suffice.
pub(crate) const REACH: [(usize, f64); 6] =
    [(4, 12.0), (5, 6.8), (6, 5.1), (8, 3.6), (10, 2.8), (12, 0.0)];

// Average over two sides with its tables
/// The average of the covariance of phase gradients over two footprints on a layer, for r0 = 1 m.
pub(crate) struct FootprintAverage {
    phase: Arc<TabulatedPhase>,
    /// (D1 + D2) / 2 and |D2 − D1| / 2, metres.
    half_width: f64,
    half_flat: f64,
    /// Rules for the trapezium, in the order of `REACH`.
    rules: [Rule; REACH.len()],
    /// Table of the covariance for displacements that are not near.
    table: Option<DistantTable>,
    /// Table of the corner functions, for displacements that are near.
    corners: Option<DistantTable>,
}

impl FootprintAverage {
    // Prepare the average of two sides
    pub(crate) fn new(phase: &Arc<TabulatedPhase>, sides: [f64; 2]) -> Self {
        let [half_width, half_flat] = half_sum_and_difference(sides);
        let rules = REACH.map(|(nodes, _)| gauss_trapezium(nodes, half_flat / half_width));
        Self { phase: Arc::clone(phase), half_width, half_flat, rules, table: None, corners: None }
    }

    /// Whether this is the average over footprints of two sides, in either order.
    pub(crate) fn is_of(&self, sides: [f64; 2]) -> bool {
        [self.half_width, self.half_flat] == half_sum_and_difference(sides)
    }

    // Average by a product of trapezium rules
    /// c of Eq. [trapezium average](https://lenslet.github.io/lenslet/parallel-footprints.html#eq-trapezium-average) at a displacement (x, y) in metres that is not near: xx, xy, yy, rad² m⁻².
    fn by_nodes(&self, x: f64, y: f64) -> [f64; 3] {
        self.by_rule(self.rule(x, y, 0), x, y)
    }

    /// The rule for a displacement, or the one `spare` positions after it, which has more nodes.
    fn rule(&self, x: f64, y: f64, spare: usize) -> &Rule {
        let distance = x.hypot(y) / self.half_width;
        let last = REACH.len() - 1;
        let enough = REACH.iter().position(|&(_, from)| distance >= from).unwrap_or(last);
        &self.rules[last.min(enough + spare)]
    }

    // Sum a product of rules
    fn by_rule(&self, Rule { nodes, weights }: &Rule, x: f64, y: f64) -> [f64; 3] {
        let mut sum = [0.0; 3];
        for (v, weight_v) in nodes.iter().zip(weights) {
            for (u, weight_u) in nodes.iter().zip(weights) {
                let [u, v] = [u, v].map(|node| node * self.half_width);
                let gradients = self.phase.gradients(x + u, y + v);
                for (sum, gradient) in sum.iter_mut().zip(gradients) {
                    *sum += weight_u * weight_v * gradient;
                }
            }
        }
        sum
    }
    /// Nodes (x, y) in metres and weights of all rules, each multiplied with itself, in the order of `REACH`.
    pub(crate) fn products(&self) -> Vec<Vec<[f64; 3]>> {
        let product = |Rule { nodes, weights }: &Rule| {
            let (n, node) = (nodes.len(), |k: usize| nodes[k] * self.half_width);
            let at = |k| [node(k % n), node(k / n), weights[k / n] * weights[k % n]];
            (0..n * n).map(at).collect()
        };
        self.rules.iter().map(product).collect()
    }

    /// (D1 + D2) / 2 and |D2 − D1| / 2, metres.
    pub(crate) fn half_widths(&self) -> [f64; 2] {
        [self.half_width, self.half_flat]
    }

    /// Where panels end, and the coefficients on them, of the table of displacements and of that of corners, if there are both.
    pub(crate) fn tables(&self) -> Option<[[&[f64]; 2]; 2]> {
        let [table, corners] = [self.table.as_ref()?, self.corners.as_ref()?];
        Some([table, corners].map(|table| [&table.grid.0[..], table.coefficients.as_flattened()]))
    }

    // Average by four lines each way
    fn by_edges(&self, x: f64, y: f64) -> [f64; 3] {
        let side = self.half_width - self.half_flat;
        let lines = |centre: f64| self.lines(centre).to_vec();
        let panels = EdgePanels::new(0.0, self.phase.outer_scale, side);
        let phase = |t| self.phase.half_structure_and_half_mean(t);
        let lattice = EdgeLattice::new(&panels, phase, [lines(x), lines(y)]);
        let (v, h) = (&lattice.vertical, &lattice.horizontal);
        let trapezium = |[first, middle, last]: [EdgeIntegrals; 3]| {
            EdgeLattice::triangle(side, first, last) + side * middle.half_structure
        };
        let along_y = |i: usize| trapezium([0, 1, 2].map(|j| v[[j, i]]));
        let along_x = |j: usize| trapezium([0, 1, 2].map(|i| h[[j, i]]));
        // Take the differences of the trapezium
        let cell = |j, i| lattice.cell(j, i);
        let xx = along_y(0) - along_y(1) - along_y(2) + along_y(3);
        let xy = cell(0, 0) - cell(0, 2) - cell(2, 0) + cell(2, 2);
        let yy = along_x(0) - along_x(1) - along_x(2) + along_x(3);
        self.over_squares([xx, xy, yy])
    }
    /// Differences over D1² D2².
    fn over_squares<const N: usize>(&self, differences: [f64; N]) -> [f64; N] {
        let squares =
            ((self.half_width + self.half_flat) * (self.half_width - self.half_flat)).powi(2);
        differences.map(|difference| difference / squares)
    }

    /// c of Eq. [trapezium average](https://lenslet.github.io/lenslet/parallel-footprints.html#eq-trapezium-average) at the displacement (x, y) in metres: xx, xy, yy, rad² m⁻².
    fn at(&self, x: f64, y: f64) -> [f64; 3] {
        if x.abs().max(y.abs()) < NEAR * self.half_width {
            self.by_edges(x, y)
        } else {
            self.by_nodes(x, y)
        }
    }

    // Tabulate an average for many pairs
    /// The average with a table, if there are panels for it, and with the table of its `corners`, if there is one.
    pub(crate) fn tabulated(self, grid: Option<PanelGrid>, corners: Option<&DistantTable>) -> Self {
        let [share] = self.over_squares([1.0]);
        let corners = corners.map(|table| table.times(share));
        let table = grid.map(|grid| DistantTable::new(&self, grid));
        Self { table, corners, ..self }
    }
}
impl FootprintAverage {
    /// The lesser side, and the other; metres.
    fn sides(&self) -> [f64; 2] {
        [self.half_width - self.half_flat, self.half_width + self.half_flat]
    }

    /// Where four lines lie about a coordinate, metres.
    fn lines(&self, x: f64) -> [f64; 4] {
        let (wide, flat) = (self.half_width, self.half_flat);
        [-wide, -flat, flat, wide].map(|line| x + line)
    }
}

/// (D1 + D2) / 2 and |D2 − D1| / 2.
fn half_sum_and_difference([one, two]: [f64; 2]) -> [f64; 2] {
    [0.5 * (one + two), 0.5 * (two - one).abs()]
}

// Table over panels of displacements
/// Nodes on a panel along an axis, and coefficients of its polynomial.
const NODES: usize = 10;

/// Panels along an axis within `NEAR`.
const INNER: usize = 4;

/// Length of the panels beyond, as a share of the distance from the outermost corners.
const GROWTH: f64 = 0.4;

// Panels and their table
/// Where panels end along either axis, from 0 on; metres.
pub(crate) struct PanelGrid(Vec<f64>);

/// c over displacements that are not near, by polynomials on panels.
pub(crate) struct DistantTable {
    grid: PanelGrid,
    /// By panel of |y| and power of its place, then by panel of |x| and power of its place: xx, xy, yy, and 0; rad² m⁻².
    coefficients: Vec<[f64; 4]>,
}

/// A coordinate of a displacement in the table: the panel, the position on it and the coordinate's sign.
#[derive(Clone, Copy)]
struct PanelCoordinate {
    panel: usize,
    z: f64,
    sign: f64,
}

// Steps of panels and tables
impl PanelGrid {
    // Place panels along an axis
    /// Where panels end, in metres, for footprints of a half width whose displacements reach so far along either axis.
    fn new(half_width: f64, reach: f64) -> Self {
        let mut ends: Vec<f64> =
            (0..=INNER).map(|k| NEAR * half_width * k as f64 / INNER as f64).collect();
        let mut last = NEAR * half_width;
        while last < reach {
            last = (last + GROWTH * (last - half_width)).min(reach);
            ends.push(last);
        }
        Self(ends)
    }

    // Place a coordinate on its panel
    /// Panels along an axis.
    fn panels(&self) -> usize {
        self.0.len() - 1
    }

    fn place(&self, x: f64) -> PanelCoordinate {
        let panel = self.0[1..].partition_point(|end| *end <= x.abs()).min(self.panels() - 1);
        let [from, to] = [self.0[panel], self.0[panel + 1]];
        PanelCoordinate { panel, z: (2.0 * x.abs() - from - to) / (to - from), sign: x.signum() }
    }

    /// The nodes of all panels, ascending.
    fn nodes(&self) -> Vec<f64> {
        let at = |ends: &[f64], z: f64| 0.5 * (ends[0] + ends[1] + z * (ends[1] - ends[0]));
        let of_panel = |ends| (0..NODES).rev().map(move |k| at(ends, chebyshev(k)));
        self.0.windows(2).flat_map(of_panel).collect()
    }

    // Place panels for corners
    /// The panels for corners that reach so far in a phase that bends within a `unit`, the lesser of side and outer scale; metres.
    fn of_corners(unit: f64, reach: f64) -> Self {
        let (mut ends, mut end) = (vec![0.0], INNERMOST * unit);
        while end < reach {
            ends.push(end);
            end *= if end < DOUBLING * unit { 2.0 } else { RATIO };
        }
        ends.push(reach);
        Self(ends)
    }

    // Choose a table by the pairs it serves
    /// The panels for displacements of up to `reach` metres along either axis, if a table for `pairs` pairs is worth its cost.
    pub(crate) fn worthy(sides: [f64; 2], reach: f64, pairs: usize) -> Option<Self> {
        let grid = Self::new(half_sum_and_difference(sides)[0], reach);
        let nodes = |panels: usize| (NODES * panels).pow(2);
        let values = (nodes(grid.panels()) - nodes(INNER)) / 2;
        (values > 0 && pairs > 2 * values).then_some(grid)
    }

    /// Number of values in a table, with that of its corners if they have one, for two sides and an outer scale.
    pub(crate) fn numbers(&self, sides: [f64; 2], outer_scale: f64) -> u64 {
        let numbers = |grid: &Self| 4 * (NODES * grid.panels()).pow(2) as u64;
        let corners = extremes(&[sides])
            .map(|(side, wide)| Self::of_corners(side.min(outer_scale), (NEAR + 1.0) * wide));
        numbers(self) + corners.as_ref().map_or(0, numbers)
    }
}

impl DistantTable {
    // Fill the table of displacements
    fn new(average: &FootprintAverage, grid: PanelGrid) -> Self {
        let nodes = grid.nodes();
        let (n, inner) = (nodes.len(), INNER * NODES);
        let mut values = vec![[0.0; 4]; n * n];
        values.chunks_mut(n).enumerate().for_each(|(j, row)| {
            for i in if j < inner { inner } else { j }..n {
                let [x, y] = [nodes[i], nodes[j]];
                let [xx, xy, yy] = average.by_rule(average.rule(x, y, 1), x, y);
                row[i] = [xx, xy, yy, 0.0];
            }
        });
        for (j, i) in (0..n).flat_map(|j| (0..j).map(move |i| (j, i))) {
            let [xx, xy, yy, _] = values[i * n + j];
            values[j * n + i] = [yy, xy, xx, 0.0];
        }
        Self::through(grid, values)
    }
    /// The table whose polynomials go through values at the nodes, by y, then by x.
    fn through(grid: PanelGrid, mut values: Vec<[f64; 4]>) -> Self {
        let (fit, n) = (fit_matrices(), NODES * grid.panels());
        values.par_chunks_mut(NODES * n).for_each(|band| {
            band.chunks_exact_mut(NODES).for_each(|panel| fit_polynomial(&fit, panel, 1));
            (0..n).for_each(|start| fit_polynomial(&fit, &mut band[start..], n));
        });
        Self { grid, coefficients: values }
    }

    // Fill the table of corners
    /// Φ, for footprints of some pairs of sides that share a table, metres; nothing where their corners do not serve.
    pub(crate) fn of_corners(phase: &TabulatedPhase, sides: &[[f64; 2]]) -> Option<Self> {
        let (side, wide) = extremes(sides)?;
        let grid = PanelGrid::of_corners(side.min(phase.outer_scale), (NEAR + 1.0) * wide);
        let lines = [vec![0.0], grid.nodes()].concat();
        let sums = CornerFunctions::integrate(phase, [side, wide], [&lines, &lines]);
        let values =
            sums.chunks_exact(lines.len()).skip(1).flat_map(|row| row[1..].iter().copied());
        Some(Self::through(grid, values.collect()))
    }

    // Read the table where lines cross
    /// Table of the function multiplied by `share`.
    fn times(&self, share: f64) -> Self {
        let scaled = self.coefficients.iter().map(|powers| powers.map(|value| share * value));
        Self { grid: PanelGrid(self.grid.0.clone()), coefficients: scaled.collect() }
    }

    /// The function where lines cross, by line of y, then of x.
    pub(crate) fn crossings(&self, [x, y]: [&[f64]; 2]) -> Vec<[f64; 4]> {
        let places: Vec<PanelCoordinate> = x.iter().map(|&x| self.grid.place(x)).collect();
        let mut panels: Vec<usize> = places.iter().map(|place| place.panel).collect();
        panels.sort_unstable();
        panels.dedup();
        let (mut line, mut sums) = (Vec::new(), Vec::with_capacity(x.len() * y.len()));
        for &y in y {
            self.along_x(panels.iter().copied(), (y, 1.0), &mut line);
            sums.extend(places.iter().map(|&place| Self::on_line(&line, place)));
        }
        sums
    }

    // Fill the table of edges
    /// ∫ S dv from 0 to y at x, over y, and with the axes exchanged, as first and third component, less a constant; for edges of a
    /// `side`, metres.
    pub(crate) fn of_edges(phase: &TabulatedPhase, side: f64) -> Self {
        let grid = Self::grid_of_edges(phase, side);
        let lines = [vec![0.0], grid.nodes()].concat();
        let (n, constant) = (lines.len(), phase.half_structure_alone((0.5 * phase.reach).powi(2)));
        let along = CornerFunctions::along((phase, constant), side, [&lines, &lines]);
        let value = |k: usize| {
            let (j, i) = (1 + k / (n - 1), 1 + k % (n - 1));
            [along[i * n + j][0] / lines[j], 0.0, along[j * n + i][0] / lines[i], 0.0]
        };
        Self::through(grid, (0..(n - 1).pow(2)).map(value).collect())
    }

    fn grid_of_edges(phase: &TabulatedPhase, side: f64) -> PanelGrid {
        PanelGrid::of_corners(side.min(phase.outer_scale), phase.reach * FRAC_1_SQRT_2)
    }

    /// Values that such a table goes through.
    pub(crate) fn values_of_edges(phase: &TabulatedPhase, side: f64) -> usize {
        (NODES * Self::grid_of_edges(phase, side).panels()).pow(2)
    }

    // Look a displacement up
    /// The polynomials along x of some `panels`, at some `y`, times `strength`; `line` keeps its values for the others.
    fn along_x(
        &self,
        panels: impl Iterator<Item = usize>,
        (y, strength): (f64, f64),
        line: &mut Vec<[f64; 4]>,
    ) {
        let n = NODES * self.grid.panels();
        let PanelCoordinate { panel, z, sign } = self.grid.place(y);
        let scale = [strength, sign * strength, strength, 0.0];
        let powers = &self.coefficients[panel * NODES * n..][..NODES * n];
        line.resize(n, [0.0; 4]);
        for k in panels.flat_map(|panel| panel * NODES..(panel + 1) * NODES) {
            let mut sum = [0.0; 4];
            for power in powers.chunks_exact(n).rev() {
                sum = std::array::from_fn(|c| sum[c] * z + power[k][c]);
            }
            line[k] = std::array::from_fn(|c| scale[c] * sum[c]);
        }
    }

    // Read a line at a position
    /// xx, xy and yy at a position on such a line.
    #[inline(always)]
    fn on_line(line: &[[f64; 4]], PanelCoordinate { panel, z, sign }: PanelCoordinate) -> [f64; 4] {
        let polynomial = &line[panel * NODES..][..NODES];
        let mut sum = [0.0; 4];
        for coefficient in polynomial.iter().rev() {
            sum = std::array::from_fn(|k| sum[k] * z + coefficient[k]);
        }
        sum[1] *= sign;
        sum
    }
}

// Fit a polynomial to nodes
/// Node of Chebyshev on a panel, from 1 downwards.
fn chebyshev(k: usize) -> f64 {
    f64::cos((2 * k + 1) as f64 * PI / (2 * NODES) as f64)
}

/// What takes values at the nodes to shares of Chebyshev's polynomials, and what takes these to coefficients by power.
fn fit_matrices() -> [[[f64; NODES]; NODES]; 2] {
    let [mut shares, mut powers] = [[[0.0; NODES]; NODES]; 2];
    let (mut last, mut polynomial) = ([0.0; NODES], [0.0; NODES]);
    polynomial[0] = 1.0;
    for m in 0..NODES {
        let share = if m == 0 { 1.0 } else { 2.0 } / NODES as f64;
        for k in 0..NODES {
            let cosine = f64::cos((m * (2 * k + 1)) as f64 * PI / (2 * NODES) as f64);
            (shares[m][k], powers[k][m]) = (share * cosine, polynomial[k]);
        }
        // Go on to the next polynomial
        let twice = if m == 0 { 1.0 } else { 2.0 };
        let next = std::array::from_fn(|power| match power {
            0 => -last[0],
            _ => twice * polynomial[power - 1] - last[power],
        });
        (last, polynomial) = (polynomial, next);
    }
    [shares, powers]
}
/// Replaces values at the nodes of a panel, ascending and `step` apart, by coefficients.
fn fit_polynomial(fit: &[[[f64; NODES]; NODES]; 2], values: &mut [[f64; 4]], step: usize) {
    let mut numbers: [[f64; 4]; NODES] = std::array::from_fn(|k| values[(NODES - 1 - k) * step]);
    for matrix in fit {
        numbers = matrix.map(|row| {
            row.iter().zip(&numbers).fold([0.0; 4], |sum, (weight, number)| {
                std::array::from_fn(|k| sum[k] + weight * number[k])
            })
        });
    }
    numbers.iter().enumerate().for_each(|(power, number)| values[power * step] = *number);
}
/// Where the innermost panel of corners ends, and up to where the next ones double, in lesser sides or outer scales.
const INNERMOST: f64 = 5e-4;
const DOUBLING: f64 = 0.1;

/// Ratio of the end of a panel to its beginning, for the outer panels.
const RATIO: f64 = 1.3;
/// The least side and the largest half width of pairs of sides whose corners serve, if there are any.
fn extremes(sides: &[[f64; 2]]) -> Option<(f64, f64)> {
    let serving = sides.iter().filter(|&&sides| corners_serve(sides));
    let both = serving.map(|&sides| (sides[0].min(sides[1]), half_sum_and_difference(sides)[0]));
    both.reduce(|(side, wide), (one, other)| (side.min(one), wide.max(other)))
}

// Corners of nearby footprints
/// The corner functions of [corner functions](https://lenslet.github.io/lenslet/footprint-corners.html#eq-corner-functions) where lines parallel to the axes cross.
struct CornerFunctions {
    /// Coordinates of the lines, ascending; metres.
    x: Vec<f64>,
    y: Vec<f64>,
    /// Φ over D1² D2² by line of y, then of x: xx, xy, yy, and 0; rad² m⁻².
    sums: Vec<[f64; 4]>,
    /// How far from a crossing the four lines of a trapezium may lie, and still be there; metres.
    slack: f64,
}

impl CornerFunctions {
    // Sort the lines of displacements
    /// The corners of footprints at all displacements of `x` and `y`, metres.
    fn new(average: &FootprintAverage, [x, y]: [&[f64]; 2]) -> Self {
        let slack = 1e-13 * (average.half_width - average.half_flat);
        let sorted = |centres: &[f64]| {
            let mut lines: Vec<f64> = centres.iter().flat_map(|&x| average.lines(x)).collect();
            lines.sort_unstable_by(f64::total_cmp);
            lines.dedup_by(|next, line| *next - *line < slack);
            lines
        };
        let (x, y) = (sorted(x), sorted(y));
        // Sum corners over all lines
        let sums = match &average.corners {
            Some(table) => table.crossings([&x, &y]),
            None => {
                let ([one, _], share) = (average.sides(), average.over_squares([1.0; 4]));
                let sums = Self::integrate(&average.phase, [one, average.half_width], [&x, &y]);
                let scaled = sums.into_iter().map(|sum| [0, 1, 2, 3].map(|k| share[k] * sum[k]));
                scaled.collect()
            }
        };
        Self { sums, x, y, slack }
    }

    /// The numbers of some lines.
    fn numbers(&self, lines: &[f64], positions: [f64; 4]) -> [usize; 4] {
        positions.map(|x| lines.partition_point(|line| *line < x - self.slack))
    }

    // Integrate from crossing to crossing
    /// Φ where lines cross, by line of y, then of x, for footprints of a `side` or longer, and a constant that makes S vanish at a
    /// distance `wide`; metres.
    fn integrate(
        phase: &TabulatedPhase,
        [side, wide]: [f64; 2],
        [x, y]: [&[f64]; 2],
    ) -> Vec<[f64; 4]> {
        let constant = phase.half_structure_alone(wide.powi(2));
        let along_y = Self::along((phase, constant), side, [x, y]);
        let along_x = (x != y).then(|| Self::along((phase, constant), side, [y, x]));
        let along_x = along_x.as_ref().unwrap_or(&along_y);
        let corner = |k: usize| {
            let (j, i) = (k / x.len(), k % x.len());
            let [half_structure_y, half_mean_y] = along_y[i * y.len() + j];
            let [half_structure_x, half_mean_x] = along_x[k];
            let t = x[i].powi(2) + y[j].powi(2);
            let disc = t * (phase.half_mean_alone(t) - 0.5 * constant);
            let xy = x[i] * half_mean_y + y[j] * half_mean_x;
            [y[j] * half_structure_y - disc, xy, x[i] * half_structure_x - disc, 0.0]
        };
        (0..x.len() * y.len()).map(corner).collect()
    }
    /// ∫ S and ∫ M, less their constants, along each of the lines `across` from the first of the lines that it crosses to each, in this order.
    fn along(
        (phase, constant): (&TabulatedPhase, f64),
        side: f64,
        [across, crossed]: [&[f64]; 2],
    ) -> Vec<[f64; 2]> {
        let panels = EdgePanels::new(0.0, phase.outer_scale, side);
        let pair = |t| {
            let (half_structure, half_mean) = phase.half_structure_and_half_mean(t);
            [half_structure - constant, half_mean - 0.5 * constant]
        };
        let along = |line: &f64| {
            let steps = crossed.windows(2).scan([0.0; 2], |sum, ends| {
                let step = panels.integrate(line.abs(), [ends[0], ends[1]], pair);
                *sum = [sum[0] + step[0], sum[1] + step[1]];
                Some(*sum)
            });
            std::iter::once([0.0; 2]).chain(steps).collect::<Vec<_>>()
        };
        across.par_iter().with_min_len(LINES).flat_map_iter(along).collect()
    }

    // Sum over corners
    /// The sums over four lines of y at all lines of x, times `strength`.
    fn along_x(&self, y: [f64; 4], strength: f64, line: &mut Vec<[f64; 4]>) {
        let n = self.x.len();
        let rows = self.numbers(&self.y, y).map(|j| &self.sums[j * n..][..n]);
        let at = |i: usize| four(rows.map(|row| row[i])).map(|sum| strength * sum);
        line.clear();
        line.extend((0..n).map(at));
    }
}
/// Lines that a thread integrates along at least.
const LINES: usize = 32;

/// |D2 − D1| / (D1 + D2) from which corners lose digits.
const SLENDER: f64 = 0.97;

/// Whether displacements of two sides that are near may be summed over corners.
pub(crate) fn corners_serve(sides: [f64; 2]) -> bool {
    let [wide, flat] = half_sum_and_difference(sides);
    flat < SLENDER * wide
}
/// The sum of [sixteen corners](https://lenslet.github.io/lenslet/footprint-corners.html#eq-sixteen-corners) along one axis.
#[inline(always)]
fn four([a, b, c, d]: [[f64; 4]; 4]) -> [f64; 4] {
    std::array::from_fn(|k| (a[k] - b[k]) - (c[k] - d[k]))
}

// Layer of two parallel sensors
/// One layer with the aligned footprints of two sensors; lengths in metres.
pub(crate) struct FootprintPair<'a> {
    /// By what c is multiplied.
    pub(crate) strength: f64,
    pub(crate) average: &'a FootprintAverage,
    /// Centres of the first sensor's footprints along x and along y.
    pub(crate) first: &'a [Vec<f64>; 2],
    /// Centres of the second sensor's footprints along the same axes.
    pub(crate) second: [Vec<f64>; 2],
}

// Band of rows at work
/// A view of a band of the first sensor's rows, and the row of pairs that is at work.
struct RowBand<'a> {
    view: &'a FootprintPair<'a>,
    /// By index along x in the first and in the second sensor: the displacement, its position in the table, and its four corners
    /// if it is near; None without a table or corners.
    x: Vec<(f64, Option<PanelCoordinate>, Option<[usize; 4]>)>,
    corners: Option<CornerFunctions>,
    /// Polynomials and sums over corners along the row.
    line: Vec<[f64; 4]>,
    corner_line: Vec<[f64; 4]>,
}

impl<'a> RowBand<'a> {
    // Prepare a band of rows
    /// A view for the rows of the first sensor with the numbers `rows`.
    fn new(view: &'a FootprintPair<'a>, rows: &[usize]) -> Self {
        let FootprintPair { average, first, second, .. } = view;
        let near = NEAR * average.half_width;
        let displacements = |first: &[f64], second: &[f64]| -> Vec<f64> {
            first.iter().flat_map(|from| second.iter().map(move |to| to - from)).collect()
        };
        let nearby =
            |all: &[f64]| -> Vec<f64> { all.iter().copied().filter(|x| x.abs() < near).collect() };
        let x = displacements(&first[0], &second[0]);
        let rows: Vec<f64> = rows.iter().map(|&j| first[1][j]).collect();
        let (near_x, near_y) = (nearby(&x), nearby(&displacements(&rows, &second[1])));
        let by_corners = corners_serve(average.sides()) && !near_x.is_empty() && !near_y.is_empty();
        let corners = by_corners.then(|| CornerFunctions::new(average, [&near_x, &near_y]));
        let of_pair = |x: f64| {
            let near = corners.as_ref().filter(|_| x.abs() < near);
            let numbers = near.map(|corners| corners.numbers(&corners.x, average.lines(x)));
            (x, average.table.as_ref().map(|table| table.grid.place(x)), numbers)
        };
        let x = x.into_iter().map(of_pair).collect();
        Self { view, x, corners, line: Vec::new(), corner_line: Vec::new() }
    }

    // Add a row of pairs
    /// Adds the covariances of the row `first` with the row `second`, of the columns in `columns` of each, to `sums`.
    fn add(&mut self, [first, second]: [usize; 2], columns: [&[usize]; 2], sums: &mut [[f64; 4]]) {
        let FootprintPair { strength, average, .. } = self.view;
        let y = self.view.second[1][second] - self.view.first[1][first];
        let near = NEAR * average.half_width;
        let is_near = y.abs() < near;
        if let (true, Some(corners)) = (is_near, &self.corners) {
            corners.along_x(average.lines(y), *strength, &mut self.corner_line);
        }
        if let Some(table) = &average.table {
            table.along_x(0..table.grid.panels(), (y, *strength), &mut self.line);
        }
        let across = self.view.second[0].len();
        let pairs = columns[0].iter().flat_map(|i| columns[1].iter().map(move |k| i * across + k));
        for (pair, sum) in pairs.zip(sums) {
            let (x, place, corners) = self.x[pair];
            // Add a pair of lenslets
            let value = match (place, corners) {
                (_, Some(corners)) if is_near => {
                    four(corners.map(|corner| self.corner_line[corner]))
                }
                (Some(place), _) if !is_near || x.abs() >= near => {
                    DistantTable::on_line(&self.line, place)
                }
                _ => {
                    let [xx, xy, yy] = average.at(x, y).map(|value| strength * value);
                    [xx, xy, yy, 0.0]
                }
            };
            *sum = std::array::from_fn(|k| sum[k] + value[k]);
        }
    }
}

// Covariances of a band of rows
/// Computes the covariances of lenslets of a first sensor, in rows, with those of a second, summed over all layers.
///
/// Lenslets come by their numbers along y and along x, those of one row of the first together; `give` is called with their
/// indices in the two lists, and with xx, xy and yy.
pub(crate) fn band_covariances(
    views: &[FootprintPair],
    [firsts, seconds]: [&[[usize; 2]]; 2],
    mut give: impl FnMut([usize; 2], [f64; 3]),
) {
    let in_row = |one: &[usize; 2], other: &[usize; 2]| one[0] == other[0];
    let rows: Vec<usize> = firsts.chunk_by(in_row).map(|row| row[0][0]).collect();
    let mut bands: Vec<RowBand> = views.iter().map(|view| RowBand::new(view, &rows)).collect();
    let mut order: Vec<usize> = (0..seconds.len()).collect();
    order.sort_by_key(|&k| seconds[k]);
    let (mut sums, mut start) = (Vec::new(), 0);
    for row in firsts.chunk_by(in_row) {
        for others in order.chunk_by(|&one, &other| in_row(&seconds[one], &seconds[other])) {
            // Sum the layers of two rows
            let columns = [
                row.iter().map(|lenslet| lenslet[1]).collect::<Vec<_>>(),
                others.iter().map(|&k| seconds[k][1]).collect(),
            ];
            sums.clear();
            sums.resize(row.len() * others.len(), [0.0; 4]);
            for band in &mut bands {
                let rows = [row[0][0], seconds[others[0]][0]];
                band.add(rows, [&columns[0], &columns[1]], &mut sums);
            }
            for (k, [xx, xy, yy, _]) in sums.iter().enumerate() {
                give([start + k / others.len(), others[k % others.len()]], [*xx, *xy, *yy]);
            }
        }
        start += row.len();
    }
}

// Tests of parallel footprints
#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::numerics::quadrature::gauss_legendre;
    use crate::numerics::special::bessel_k;
    use crate::turbulence::edges::gradient_covariances;
    use std::sync::LazyLock;

    // Integrate over a rectangle by quartering
    /// Ten nodes of Gauss.
    pub(crate) static TEN: LazyLock<Rule> = LazyLock::new(|| gauss_legendre(10));

    /// ∫ f over x\[0\]..x\[1\] × y\[0\]..y\[1\] for an f that is singular at the origin and bends within `scale`.
    pub(crate) fn brute_force<const N: usize>(
        [x, y]: [[f64; 2]; 2],
        scale: f64,
        f: &dyn Fn(f64, f64) -> [f64; N],
    ) -> [f64; N] {
        let size = (x[1] - x[0]).max(y[1] - y[0]);
        let [dx, dy] = [x, y].map(|ends| 0f64.clamp(ends[0], ends[1]));
        let mut sum = [0.0; N];
        let mut add = |weight: f64, term: [f64; N]| (0..N).for_each(|k| sum[k] += weight * term[k]);
        if size > 1e-8 && (size > dx.hypot(dy) || size > scale) {
            let [mx, my] = [x, y].map(|ends| 0.5 * (ends[0] + ends[1]));
            for x in [[x[0], mx], [mx, x[1]]] {
                for y in [[y[0], my], [my, y[1]]] {
                    add(1.0, brute_force([x, y], scale, f));
                }
            }
        } else if size > 1e-8 {
            // Integrate over a rectangle by Gauss
            let (rule, area) = (&*TEN, (x[1] - x[0]) * (y[1] - y[0]));
            let at =
                |ends: [f64; 2], node: f64| 0.5 * (ends[0] + ends[1] + node * (ends[1] - ends[0]));
            for (u, wu) in rule.nodes.iter().zip(&rule.weights) {
                for (v, wv) in rule.nodes.iter().zip(&rule.weights) {
                    add(0.25 * wu * wv * area, f(at(x, *u), at(y, *v)));
                }
            }
        }
        sum
    }

    // Exact averages by brute force
    /// ∂_x∂_x S, ∂_x∂_y S, ∂_y∂_y S without a table.
    fn exact_hessian(phase: &VonKarman, x: f64, y: f64) -> [f64; 3] {
        let t = x * x + y * y;
        let p = phase.slope_over_distance(t);
        let bend = if phase.outer_scale().is_infinite() {
            1.0 / (6.0 * t)
        } else {
            let z = 2.0 * PI * t.sqrt() / phase.outer_scale();
            let k_7_6 = bessel_k(5.0 / 6.0, z) + bessel_k(1.0 / 6.0, z) / (3.0 * z);
            PI / (phase.outer_scale() * t.sqrt()) * k_7_6 / bessel_k(1.0 / 6.0, z)
        };
        hessian(p, -p * bend, [x, y])
    }

    // Exact slopes by brute force
    /// c of Eq. [trapezium average](https://lenslet.github.io/lenslet/parallel-footprints.html#eq-trapezium-average) of two sides at (x, y).
    pub(crate) fn exact_slopes(phase: &VonKarman, sides: [f64; 2], [x, y]: [f64; 2]) -> [f64; 3] {
        let [wide, flat] = [sides[0] + sides[1], (sides[1] - sides[0]).abs()].map(|sum| 0.5 * sum);
        let weight = |u: f64| (wide - u.abs()).min(wide - flat) / (sides[0] * sides[1]);
        let f =
            |u: f64, v: f64| exact_hessian(phase, u, v).map(|h| h * weight(u - x) * weight(v - y));
        let parts = [[-wide, -flat], [-flat, flat], [flat, wide]];
        let mut sum = [0.0; 3];
        for (along_x, along_y) in parts.iter().flat_map(|part| parts.map(|other| (part, other))) {
            let cell = [along_x.map(|u| u + x), along_y.map(|v| v + y)];
            let term = brute_force(cell, phase.outer_scale(), &f);
            sum = [0, 1, 2].map(|k| sum[k] + term[k]);
        }
        sum
    }

    // Covariances at some displacements
    /// c of one lenslet at the origin with one at each of some places.
    fn at(average: &FootprintAverage, places: &[[f64; 2]]) -> Vec<[f64; 3]> {
        let second = [0, 1].map(|axis| places.iter().map(|place| place[axis]).collect());
        let first = &[vec![0.0], vec![0.0]];
        let view = FootprintPair { strength: 1.0, average, first, second };
        let seconds: Vec<[usize; 2]> = (0..places.len()).map(|k| [k, k]).collect();
        let mut values = vec![[0.0; 3]; places.len()];
        band_covariances(&[view], [&[[0, 0]], &seconds], |[_, k], value| values[k] = value);
        values
    }

    fn largest_difference(one: [f64; 3], other: [f64; 3]) -> f64 {
        one.iter().zip(other).fold(0.0, |most, (one, other)| f64::max(most, (one - other).abs()))
    }

    // Compare unequal footprints with brute force
    #[test]
    fn unequal_footprints_agree_with_brute_force() {
        let near = [[0.0, 0.0], [0.03, -0.01], [-0.2, 0.31]];
        let apart = [[0.45, -0.4], [-1.02, 0.7]];
        for (outer_scale, sides) in
            [(f64::INFINITY, [0.5, 0.3]), (25.0, [0.33, 0.5]), (1.3, [0.5, 0.05])]
        {
            let phase = VonKarman::new(outer_scale);
            let tabulated = Arc::new(TabulatedPhase::new(outer_scale, 0.05, 3.0));
            let average = FootprintAverage::new(&tabulated, sides);
            let variance = exact_slopes(&phase, sides, [0.0; 2])[0];
            let places = [&near[..], &apart].concat();
            for (computed, [x, y]) in at(&average, &places).into_iter().zip(places) {
                let exact = exact_slopes(&phase, sides, [x, y]);
                let error = largest_difference(computed, exact) / variance;
                assert!(error < 2e-11, "{sides:?} at {x}, {y}: {error:.1e}");
            }
        }
    }

    // Compare the trapezium rules with edge integrals
    #[test]
    fn trapezium_rules_are_exact_from_where_they_serve() {
        for (kappa, outer_scale) in [0.0, 0.5, 0.9, 0.99].into_iter().flat_map(|kappa| {
            [f64::INFINITY, 40.0, 20.0, 10.0, 5.0, 1.0].map(|outer_scale| (kappa, outer_scale))
        }) {
            let phase = Arc::new(TabulatedPhase::new(outer_scale, 0.01, 40.0));
            let average = FootprintAverage::new(&phase, [1.0 - kappa, 1.0 + kappa]);
            let variance = average.by_edges(0.0, 0.0)[0];
            for (from, angle) in REACH.iter().flat_map(|reach| {
                [0.0, 0.2, 0.4, 0.6, 0.785].map(|angle: f64| (reach.1.max(NEAR), angle))
            }) {
                let [x, y] = [1.0001 * from * angle.cos(), -1.0001 * from * angle.sin()];
                let edges = average.by_edges(x, y);
                let error = largest_difference(average.by_nodes(x, y), edges) / variance;
                assert!(error < 1e-11, "κ = {kappa}, L0 = {outer_scale}, {from}: {error:.1e}");
            }
        }
    }

    // Compare equal footprints with the edge lattice
    #[test]
    fn equal_footprints_agree_with_the_edge_lattice() {
        for outer_scale in [f64::INFINITY, 30.0, 0.7] {
            let phase = VonKarman::new(outer_scale);
            let tabulated = Arc::new(TabulatedPhase::new(outer_scale, 0.4, 9.0));
            let average = FootprintAverage::new(&tabulated, [0.4; 2]);
            let exact = gradient_covariances(&phase, 0.4, [-0.8, -0.3], (6, 7));
            let variance = gradient_covariances(&phase, 0.4, [0.0; 2], (1, 1))[[0, 0, 0]];
            let lags = (0..42).map(|k| [k / 7, k % 7]);
            let places: Vec<[f64; 2]> =
                lags.clone().map(|[j, i]| [-0.8 + 0.4 * i as f64, -0.3 + 0.4 * j as f64]).collect();
            for (computed, [j, i]) in at(&average, &places).into_iter().zip(lags) {
                let exact = [0, 1, 2].map(|component| exact[[component, j, i]]);
                let error = largest_difference(computed, exact) / variance;
                assert!(error < 1e-11, "{j} {i}: {error:.1e}");
            }
        }
    }

    // Compare tables and corners with edge integrals
    #[test]
    fn tables_and_corners_are_exact_on_both_sides_of_each_seam() {
        for (outer_scale, pairs) in [
            (f64::INFINITY, [[0.1, 1.0], [2.9, 0.1]]),
            (1.0, [[1.0, 0.8], [0.3, 0.5]]),
            (25.0, [[0.5, 0.5], [0.9, 1.0]]),
            (25.0, [[0.085, 1.0], [0.1, 1.25]]),
            (0.02, [[0.9, 1.0], [0.5, 0.5]]),
            (1.3, [[0.02, 1.0], [1.0, 0.03]]),
            (1.25, [[0.025, 1.0], [0.05, 1.0]]),
        ] {
            let phase = Arc::new(TabulatedPhase::new(outer_scale, 0.1, 40.0));
            pairs.into_iter().for_each(|sides| hold_table_and_corners(&phase, sides));
        }
    }

    fn hold_table_and_corners(phase: &Arc<TabulatedPhase>, sides: [f64; 2]) {
        let average = FootprintAverage::new(phase, sides);
        let alone = |side| FootprintAverage::new(phase, [side; 2]).by_edges(0.0, 0.0)[0];
        let (wide, variance) = (average.half_width, (alone(sides[0]) * alone(sides[1])).sqrt());
        let grid = PanelGrid::new(wide, 16.0 * wide);
        // Place displacements about the seams
        let mut places =
            vec![[0.0; 2], [-0.3 * wide, 0.2 * wide], [wide, wide], [1.7 * wide, -wide]];
        for (k, end) in grid.0.iter().enumerate().skip(1) {
            for other in [0.0, 0.37, 0.999] {
                let (before, after) =
                    (end * (1.0 - 1e-9), f64::min(end * (1.0 + 1e-9), 16.0 * wide));
                places.extend([[before, -other * end], [-other * end, after]]);
                let within = end * (1.0 - 0.07 * (1 + k % 3) as f64);
                places.push([-within, other * within]);
            }
        }
        let corners = DistantTable::of_corners(phase, &[sides]);
        let average = average.tabulated(Some(grid), corners.as_ref());
        let rule = gauss_trapezium(14, average.half_flat / wide);
        for (computed, &[x, y]) in at(&average, &places).into_iter().zip(&places) {
            let exact = if x.hypot(y) < 6.0 * wide {
                average.by_edges(x, y)
            } else {
                average.by_rule(&rule, x, y)
            };
            let error = largest_difference(computed, exact) / variance;
            assert!(error < 1e-11, "{sides:?}, L0 = {}, {x}, {y}: {error:.1e}", phase.outer_scale);
        }
    }

    // Choose tables for many pairs
    #[test]
    fn tables_are_for_more_pairs_than_they_have_values() {
        let sides = [0.8, 1.2];
        let worthy =
            |reach, pairs| PanelGrid::worthy(sides, reach, pairs).map(|grid| grid.panels());
        // Ten panels along an axis, four of them within the near square: (100² − 40²) / 2 values.
        assert_eq!((worthy(10.0, 8400), worthy(10.0, 8401)), (None, Some(10)));
        assert_eq!((worthy(2.4, usize::MAX), worthy(2.6, usize::MAX)), (None, Some(5)));
        let phase = Arc::new(TabulatedPhase::new(20.0, 0.8, 40.0));
        let bare = FootprintAverage::new(&phase, sides);
        let tabulated = FootprintAverage::new(&phase, sides)
            .tabulated(PanelGrid::worthy(sides, 10.0, 9999), None);
        let (place, variance) = ([[3.0, -4.0]], bare.by_edges(0.0, 0.0)[0]);
        let [bare, tabulated] = [bare, tabulated].map(|average| at(&average, &place)[0]);
        let difference = largest_difference(bare, tabulated) / variance;
        assert!(difference > 0.0 && difference < 1e-11, "{difference:e}");
    }

    // Compute concentric footprints
    #[test]
    fn concentric_footprints_of_unequal_sides_are_nearly_one() {
        let phase = Arc::new(TabulatedPhase::new(f64::INFINITY, 0.8, 3.0));
        let [xx, xy, yy] = FootprintAverage::new(&phase, [1.0, 0.8]).at(0.0, 0.0);
        assert!((xx - 6.5937456).abs() < 1e-6 && (yy - xx).abs() < 1e-9 && xy.abs() < 1e-9, "{xx}");
        let variance = |side: f64| 0.1622428 * 4.0 * PI * PI * side.powf(-1.0 / 3.0);
        let [one, two] = [variance(1.0), variance(0.8)];
        assert!((one - 6.405).abs() < 1e-3 && (two - 6.900).abs() < 1e-3, "{one}, {two}");
        assert!((xx / (one * two).sqrt() - 0.992).abs() < 1e-3);
    }
}
