// Tangled from book/src/direct-method.md: edit there, or here and run cargo tangle stitch.
//! Slope covariance in real space: edge integrals near, Gauss rules in the middle, a lattice filter far away.

pub(crate) mod gpu;

// Imports of the direct method
use crate::device::{Workers, gather};
use crate::error::Error;
use crate::numerics::quadrature::{Rule, gauss_triangle};
use crate::numerics::radial_table::RadialTable;
use crate::turbulence::edges::gradient_covariances;
use crate::turbulence::phase::{VonKarman, hessian};
use crate::turbulence::slope::{PairCovariance, ProjectedLayer, SlopeProblem};
use crate::watch::Watch;
use ndarray::{Array3, Axis, Zip, s};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

// Distances of the three zones
/// Edge integrals serve lags with |x| and |y| below this many sides.
pub(crate) const NEAR: f64 = 4.0;

/// The lattice filter serves lags with |x| or |y| beyond this many sides.
pub(crate) const FAR: f64 = 16.0;

/// Gradients on the lattice are left out, as zero, where |x| and |y| are below this many sides.
pub(crate) const CORE: f64 = 3.0;

/// Nodes along an axis in the middle distance, with the distance in sides from which they suffice.
pub(crate) const REACH: [(usize, f64); 3] = [(4, 9.5), (5, 5.5), (6, 0.0)];

/// Neighbours on either side that the lattice filter uses.
pub(crate) const NEIGHBOURS: usize = 4;

// Weights of the lattice filter
/// Weight of the lag itself and of its neighbours at 1, 2, 3 and 4 sides; Eq. [numerov](https://lenslet.github.io/lenslet/direct-method.html#eq-numerov).
pub(crate) static FILTER: LazyLock<[f64; NEIGHBOURS + 1]> = LazyLock::new(|| {
    let series = [1.0, 1.0 / 12.0, -1.0 / 240.0, 31.0 / 60_480.0, -289.0 / 3_628_800.0];
    let mut power = vec![1.0]; // δ^(2k), from its centre outwards
    let mut weights = [0.0; NEIGHBOURS + 1];
    for coefficient in series {
        for (weight, value) in weights.iter_mut().zip(&power) {
            *weight += coefficient * value;
        }
        let at = |k: usize| power.get(k).copied().unwrap_or(0.0);
        power = (0..=power.len()).map(|k| at(k.abs_diff(1)) - 2.0 * at(k) + at(k + 1)).collect();
    }
    weights
});

// Covariance of all pairs by averages
/// Slope covariance of the pairs of [`SlopeProblem::pairs`], in that order, rad².
///
// Documentation of the direct pair covariances
/// Every entry is exact to 1e-10 of the slope variance; working memory is about 4 (2N + 7)² numbers a thread.
///
/// ```
/// use lenslet::model::{Atmosphere, ConeGradient, Layer, LensletArray, Source};
/// use lenslet::turbulence::direct::slope::pair_covariances;
/// use lenslet::turbulence::{SlopeProblem, VonKarman, hessian};
/// let air = Atmosphere::new(1.0, 500e-9, vec![Layer::new(0.0, 1.0, f64::INFINITY)])?;
/// let (array, star) = (LensletArray::new(18, 1.0)?, Source::star(0.0, 0.0)?);
/// let problem = SlopeProblem::new(&air, &array, &[star], ConeGradient::Pupil)?;
/// let covariance = &pair_covariances(&problem, &lenslet::watch::unwatched)?[0];
/// let found = covariance[[2, 17, 17 + 16]] / problem.layers()[0].strength; // yy, 16 sides along x
/// assert!((found - 2.2761449).abs() < 1e-7);
/// // One term of the filter, by the gradients at the lag and at its four neighbours
/// let kolmogorov = VonKarman::new(f64::INFINITY);
/// let gradient = |x: f64, y: f64| {
///     let t = x * x + y * y;
///     let p = kolmogorov.slope_over_distance(t);
///     hessian(p, -p / (6.0 * t), [x, y])[2]
/// };
/// let centre = gradient(16.0, 0.0);
/// let along_x = gradient(17.0, 0.0) + gradient(15.0, 0.0) - 2.0 * centre;
/// let along_y = 2.0 * gradient(16.0, 1.0) - 2.0 * centre;
/// assert!((centre - 2.27656).abs() < 1e-5);
/// assert!((along_x - 0.00396).abs() < 1e-5 && (along_y + 0.00886).abs() < 1e-5);
/// assert!((centre + (along_x + along_y) / 12.0 - 2.27615).abs() < 1e-5);
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn pair_covariances(
    problem: &SlopeProblem,
    watch: &dyn Watch,
) -> Result<Vec<PairCovariance>, Error> {
    let gradients = tabulate(problem);
    gather(Workers::cores(&gradients), problem.pairs(), watch, |gradients, pair| {
        Ok(covariance_of(problem, gradients, pair))
    })
}

// Sum over layers of one pair
/// Slope covariance of any one pair of sources, rad².
#[cfg(feature = "factorise")]
pub(crate) fn pair_alone(problem: &SlopeProblem, pair: (usize, usize)) -> PairCovariance {
    covariance_of(problem, &tabulate(problem), pair)
}

/// Slope covariance of one pair of sources.
fn covariance_of(
    problem: &SlopeProblem,
    gradients: &[Arc<Gradients>],
    (p, q): (usize, usize),
) -> PairCovariance {
    let layers: Vec<SourcePairGeometry> = (problem.layers().iter().zip(gradients))
        .map(|(layer, gradients)| SourcePairGeometry {
            grid: LagGrid::new(problem, layer, p, q),
            strength: layer.strength,
            gradients,
        })
        .collect();
    pair_covariance(&layers, problem.lags())
}

// Layer of one pair of sources
/// A layer for one pair of sources.
struct SourcePairGeometry<'a> {
    grid: LagGrid,
    /// σ of the slope covariance, rad² per (rad² m⁻²).
    strength: f64,
    gradients: &'a Gradients,
}

// Covariance of one pair by averages
fn pair_covariance(layers: &[SourcePairGeometry], lags: usize) -> PairCovariance {
    let whole = Window { rows: 0..lags, columns: 0..lags };
    let windows = layers.iter().map(|layer| (layer, layer.grid.window(FAR)));
    let (close, spread): (Vec<_>, Vec<_>) = windows.partition(|(_, window)| *window == whole);
    let filtered: Vec<&SourcePairGeometry> = spread.iter().map(|(layer, _)| *layer).collect();
    let mut covariance = filter_lattice(&filtered, &whole);
    let correct = |(layer, window): (&SourcePairGeometry, Window), filtered: bool| {
        let mut exact = average(layer, &window);
        if filtered {
            exact -= &filter_lattice(&[layer], &window);
        }
        (window, exact)
    };
    let corrections: Vec<_> = (close.into_par_iter().map(|each| correct(each, false)))
        .chain(spread.into_par_iter().map(|each| correct(each, true)))
        .collect();
    for (window, correction) in corrections {
        let mut target = covariance.slice_mut(s![.., window.rows, window.columns]);
        target += &correction;
    }
    covariance
}

// Tabulated phase gradients of a layer
/// Covariance of phase gradients for one outer scale and r0 = 1 m.
struct Gradients {
    phase: VonKarman,
    slope_over_distance: RadialTable,
}

impl Gradients {
    /// H_xx, H_xy and H_yy at the displacement (x, y) in metres, rad² m⁻²; Eq. [hessian](https://lenslet.github.io/lenslet/phase.html#eq-hessian).
    #[inline(always)]
    fn at(&self, x: f64, y: f64) -> [f64; 3] {
        let (p, slope) = self.slope_over_distance.value_and_slope(x * x + y * y);
        hessian(p, slope, [x, y])
    }
}

// Tabulate the gradients of each outer scale
/// The gradients of each layer of the problem, tables shared between equal outer scales.
fn tabulate(problem: &SlopeProblem) -> Vec<Arc<Gradients>> {
    problem.for_each_outer_scale(|outer_scale| {
        let phase = VonKarman::new(outer_scale);
        let sharers = problem.layers().iter().filter(|layer| layer.outer_scale == outer_scale);
        let (low, high) = (sharers.map(|layer| distances(problem, layer)))
            .fold((f64::INFINITY, 0.0), |(a, b), (c, d)| (a.min(c), f64::max(b, d)));
        let slope = |t| phase.slope_over_distance(t);
        let table = RadialTable::new(low.powi(2), high.powi(2), slope);
        Gradients { slope_over_distance: table, phase }
    })
}

// Range of distances of a layer
/// The nearest and the farthest distance in metres at which a layer's gradients are looked up.
fn distances(problem: &SlopeProblem, layer: &ProjectedLayer) -> (f64, f64) {
    let offset = |&(p, q): &(usize, usize)| {
        let [x, y] = problem.offset(layer, p, q);
        x.hypot(y)
    };
    let farthest_offset = problem.pairs().iter().map(offset).fold(0.0, f64::max);
    let margin = (problem.lenslets() + NEIGHBOURS) as f64 * layer.side;
    // A hundredth of a side to spare covers rounding at both ends.
    let nearest = (CORE - 0.01) * layer.side;
    (nearest, (2f64.sqrt() * margin + farthest_offset).max(2.0 * NEAR * layer.side))
}

// Grid of lags on a layer
/// The lags of the array on a layer: lag (j, i) is at (x + i side, y + j side).
#[derive(Debug, Clone, Copy)]
pub(crate) struct LagGrid {
    side: f64,
    pub(crate) first: [f64; 2],
    lags: usize,
}

impl LagGrid {
    pub(crate) fn new(problem: &SlopeProblem, layer: &ProjectedLayer, p: usize, q: usize) -> Self {
        let reach = (problem.lenslets() - 1) as f64 * layer.side;
        let first = problem.offset(layer, p, q).map(|offset| offset - reach);
        Self { side: layer.side, first, lags: problem.lags() }
    }

    // Locate a lag and a square of lags
    /// Coordinate along an axis (0 is x) of lag `k`, which may lie outside the array; metres.
    fn lag(&self, axis: usize, k: isize) -> f64 {
        self.first[axis] + k as f64 * self.side
    }

    /// The lags with |x| and |y| below this number of sides.
    pub(crate) fn window(&self, sides: f64) -> Window {
        let range = |axis: usize| {
            let reach = (sides - 1e-9) * self.side;
            let close = |&k: &usize| self.lag(axis, k as isize).abs() < reach;
            let first = (0..self.lags).find(close).unwrap_or(0);
            first..(first..self.lags).take_while(close).last().map_or(first, |last| last + 1)
        };
        Window { rows: range(1), columns: range(0) }
    }
}

// Window of lags in a pair
/// A rectangle of lags.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Window {
    pub(crate) rows: Range<usize>,
    pub(crate) columns: Range<usize>,
}

impl Window {
    fn is_empty(&self) -> bool {
        self.rows.is_empty() || self.columns.is_empty()
    }

    fn contains(&self, (j, i): (usize, usize)) -> bool {
        self.rows.contains(&j) && self.columns.contains(&i)
    }

    /// The lags of the rectangle by rows, as (j, i).
    fn lags(&self) -> impl Iterator<Item = (usize, usize)> {
        self.rows.clone().flat_map(|j| self.columns.clone().map(move |i| (j, i)))
    }
}

// Filter the lattice of gradients
/// The filtered gradient covariance of some layers together over a window: (3, rows, columns), rad².
fn filter_lattice(layers: &[&SourcePairGeometry], window: &Window) -> Array3<f64> {
    let (rows, columns) = (window.rows.len(), window.columns.len());
    let mut filtered = Array3::zeros((3, rows, columns));
    if layers.is_empty() || filtered.is_empty() {
        return filtered;
    }
    let mut along_x = Array3::zeros((rows + 2 * NEIGHBOURS, 3, columns));
    along_x.axis_iter_mut(Axis(0)).into_par_iter().enumerate().for_each(|(j, mut out)| {
        let row = lattice_row(layers, window, j);
        // Filter the row along x
        for (mut out, row) in out.rows_mut().into_iter().zip(row.chunks(columns + 2 * NEIGHBOURS)) {
            for (i, out) in out.iter_mut().enumerate() {
                let pair = |k| row[i + NEIGHBOURS - k] + row[i + NEIGHBOURS + k];
                let centre = FILTER[0] * row[i + NEIGHBOURS];
                *out = (1..=NEIGHBOURS).fold(centre, |sum, k| sum + FILTER[k] * pair(k));
            }
        }
    });
    // Filter the rows along y
    for component in 0..3 {
        for j in 0..rows {
            let row = |j: usize| along_x.slice(s![j, component, ..]);
            let mut out = filtered.slice_mut(s![component, j, ..]);
            out.scaled_add(FILTER[0], &row(j + NEIGHBOURS));
            for k in 1..=NEIGHBOURS {
                Zip::from(&mut out)
                    .and(row(j + NEIGHBOURS - k))
                    .and(row(j + NEIGHBOURS + k))
                    .for_each(|out, below, above| *out += FILTER[k] * (below + above));
            }
        }
    }
    filtered
}

// Make a row of the lattice
/// Row `j` of the lattice around a window, the three components one after the other.
fn lattice_row(layers: &[&SourcePairGeometry], window: &Window, j: usize) -> Vec<f64> {
    let width = window.columns.len() + 2 * NEIGHBOURS;
    let mut row = vec![0.0; 3 * width];
    let (xx, rest) = row.split_at_mut(width);
    let (xy, yy) = rest.split_at_mut(width);
    let at = |start: usize, k: usize| (start + k) as isize - NEIGHBOURS as isize;
    for layer in layers {
        let (grid, core) = (layer.grid, CORE * layer.grid.side);
        let y = grid.lag(1, at(window.rows.start, j));
        for i in 0..width {
            let x = grid.lag(0, at(window.columns.start, i));
            if x.abs() >= core || y.abs() >= core {
                let gradients = layer.gradients.at(x, y);
                xx[i] += layer.strength * gradients[0];
                xy[i] += layer.strength * gradients[1];
                yy[i] += layer.strength * gradients[2];
            }
        }
    }
    row
}

// Average exactly within a window
/// The footprint-averaged covariance of one layer over a window: (3, rows, columns), rad².
fn average(layer: &SourcePairGeometry, window: &Window) -> Array3<f64> {
    let (grid, near) = (layer.grid, layer.grid.window(NEAR));
    let mut covariance = Array3::zeros((3, window.rows.len(), window.columns.len()));
    for (j, i) in window.lags().filter(|&lag| !near.contains(lag)) {
        let average = gauss_average(layer, grid.lag(0, i as isize), grid.lag(1, j as isize));
        for (component, value) in average.into_iter().enumerate() {
            covariance[[component, j - window.rows.start, i - window.columns.start]] = value;
        }
    }
    if !near.is_empty() {
        // Fill the near lags by edge integrals
        let first = [(0, near.columns.start), (1, near.rows.start)]
            .map(|(axis, start)| grid.lag(axis, start as isize));
        let shape = (near.rows.len(), near.columns.len());
        let exact = gradient_covariances(&layer.gradients.phase, grid.side, first, shape);
        let within = |range: Range<usize>, start: usize| range.start - start..range.end - start;
        let rows = within(near.rows, window.rows.start);
        let columns = within(near.columns, window.columns.start);
        covariance.slice_mut(s![.., rows, columns]).assign(&exact);
    }
    covariance *= layer.strength;
    covariance
}

// Average by a product of Gauss rules
/// Rules for the triangle, in the order of `REACH`.
pub(crate) static RULES: LazyLock<[Rule; 3]> =
    LazyLock::new(|| REACH.map(|(nodes, _)| gauss_triangle(nodes)));

/// c of Eq. [averaged gradients](https://lenslet.github.io/lenslet/direct-method.html#eq-averaged-gradients) at the displacement (x, y) in metres: xx, xy, yy, rad² m⁻².
fn gauss_average(layer: &SourcePairGeometry, x: f64, y: f64) -> [f64; 3] {
    let side = layer.grid.side;
    let distance = x.hypot(y) / side;
    let nodes = REACH.iter().position(|&(_, from)| distance >= from).unwrap_or(REACH.len() - 1);
    let Rule { nodes, weights } = &RULES[nodes];
    let mut sum = [0.0; 3];
    for (v, weight_v) in nodes.iter().zip(weights) {
        for (u, weight_u) in nodes.iter().zip(weights) {
            let gradients = layer.gradients.at(x + u * side, y + v * side);
            for (sum, gradient) in sum.iter_mut().zip(gradients) {
                *sum += weight_u * weight_v * gradient;
            }
        }
    }
    sum
}

// Tests of the direct method
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::atmosphere::{Atmosphere, Layer};
    use crate::model::lenslet_array::LensletArray;
    use crate::model::source::{ConeGradient, Source};
    use crate::watch::unwatched;

    // Two stars and one layer
    /// One layer and two stars whose footprints are displaced by `offset`.
    fn two_stars(lenslets: usize, pitch: f64, outer_scale: f64, offset: [f64; 2]) -> SlopeProblem {
        let (altitude, wind_speed, wind_direction) = (10_000.0, 0.0, 0.0);
        let layer = Layer { altitude, fraction: 1.0, outer_scale, wind_speed, wind_direction };
        let atmosphere = Atmosphere::new(1.0, 1e-6, vec![layer]).unwrap();
        let [x, y] = offset.map(|offset| offset / altitude);
        let stars = [(0.0, 0.0), (x.hypot(y), y.atan2(x))];
        let stars = stars.map(|(zenith, azimuth)| Source::star(zenith, azimuth).unwrap());
        let array = LensletArray::new(lenslets, pitch).unwrap();
        SlopeProblem::new(&atmosphere, &array, &stars, ConeGradient::Pupil).unwrap()
    }

    // Compare the three zones with edge integrals
    #[test]
    fn all_distances_agree_with_edge_integrals() {
        let pitch = 0.5;
        for outer_scale in [0.1, 0.5, 1.0, 2.5, 10.0, 400.0, f64::INFINITY] {
            for (lenslets, offset) in [(24, [1.65, -0.85]), (9, [0.0, 2.0]), (7, [-9.5, 3.2])] {
                let problem = two_stars(lenslets, pitch, outer_scale, offset);
                let computed = pair_covariances(&problem, &unwatched).unwrap();
                let layer = &problem.layers()[0];
                let phase = VonKarman::new(outer_scale);
                let variance = gradient_covariances(&phase, pitch, [0.0; 2], (1, 1))[[0, 0, 0]];
                for (&(p, q), computed) in problem.pairs().iter().zip(&computed) {
                    let grid = LagGrid::new(&problem, layer, p, q);
                    let shape = (problem.lags(), problem.lags());
                    let exact = gradient_covariances(&phase, pitch, grid.first, shape);
                    let largest = (&exact - &(computed / layer.strength))
                        .fold(0.0, |a: f64, b| a.max(b.abs()));
                    let error = largest / variance;
                    assert!(error < 2e-11, "L0 = {outer_scale}, N = {lenslets}: {error:.1e}");
                }
            }
        }
    }

    // Check the filter against the triangle's transform
    #[test]
    fn filter_averages_slow_waves_as_the_triangle_does() {
        let transform = |frequency: f64| {
            let angle = |k: usize| 2.0 * std::f64::consts::PI * frequency * k as f64;
            FILTER[0] + (1..=NEIGHBOURS).map(|k| 2.0 * FILTER[k] * f64::cos(angle(k))).sum::<f64>()
        };
        for (frequency, tolerance) in [(0.01, 1e-15), (0.03, 1e-12), (0.1, 2e-7)] {
            let x = std::f64::consts::PI * frequency;
            let error = (transform(frequency) - (x.sin() / x).powi(2)).abs();
            assert!(error < tolerance, "{frequency}: {error:e}");
            assert!(frequency < 0.1 || error > 1e-9, "the next term is still missing");
        }
    }
}
