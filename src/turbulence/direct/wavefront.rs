// Tangled from book/src/wavefront-direct.md: edit there, or here and run cargo tangle stitch.
//! Wavefront–slope covariance in real space: edges near, Gauss rules in the middle, a box filter far away.

pub(crate) mod gpu;

// Imports of the direct wavefront method
use crate::error::{Error, Invalid};
use crate::numerics::quadrature::{Rule, gauss_legendre};
use crate::numerics::radial_table::RadialTable;
use crate::turbulence::disc::DiscAverage;
use crate::turbulence::edges::EdgePanels;
use crate::turbulence::phase::VonKarman;
use crate::turbulence::wavefront::{WavefrontLayer, WavefrontProblem, WavefrontSlope};
use crate::watch::Watch;
use ndarray::{Array2, Array3, Array4, Axis, s};
use rayon::prelude::*;
use std::sync::LazyLock;

// Phase at a point or averaged
/// The phase with which a gradient is compared, for r0 = 1 m: at a point, or averaged over a disc.
pub(crate) enum Reference {
    /// At a point; with a table of S₁(t) for gradients.
    Point { phase: Box<VonKarman>, slope_over_distance: RadialTable },
    /// Averaged over a disc.
    Disc { outer_scale: f64, average: DiscAverage },
}

impl Reference {
    /// The phase for a `disc` of that radius, or a point if it is 0; gradients from `nearest` to `farthest`, all in metres.
    pub(crate) fn new(outer_scale: f64, disc: f64, [nearest, farthest]: [f64; 2]) -> Self {
        let phase = VonKarman::new(outer_scale);
        if disc > 0.0 {
            return Self::Disc { outer_scale, average: DiscAverage::new(&phase, disc, farthest) };
        }
        let slope = |t| phase.slope_over_distance(t);
        let slope_over_distance = RadialTable::new(nearest.powi(2), farthest.powi(2), slope);
        Self::Point { phase: Box::new(phase), slope_over_distance }
    }

    // Circle on which the phase is singular
    /// Radius of the circle on which half the structure function is singular, metres.
    pub(crate) fn kink(&self) -> f64 {
        match self {
            Self::Point { .. } => 0.0,
            Self::Disc { average, .. } => average.radius(),
        }
    }

    /// Distance of a displacement from that circle, metres.
    pub(crate) fn distance(&self, [x, y]: [f64; 2]) -> f64 {
        (x.hypot(y) - self.kink()).abs()
    }

    fn outer_scale(&self) -> f64 {
        match self {
            Self::Point { phase, .. } => phase.outer_scale(),
            Self::Disc { outer_scale, .. } => *outer_scale,
        }
    }

    // Evaluate the reference phase
    /// S(r), rad²; of an average, up to a constant.
    pub(crate) fn half_structure(&self, r: f64) -> f64 {
        match self {
            Self::Point { phase, .. } => phase.half_structure_and_half_mean(r).0,
            Self::Disc { average, .. } => average.half_structure(r),
        }
    }

    /// ∇S at the displacement (x, y) in metres, rad² m⁻¹.
    #[inline(always)]
    pub(crate) fn gradient(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        let t = x * x + y * y;
        let p = match self {
            Self::Point { slope_over_distance, .. } => slope_over_distance.value_and_slope(t).0,
            Self::Disc { .. } if t == 0.0 => 0.0,
            Self::Disc { average, .. } => average.half_structure_slope(t.sqrt()) / t.sqrt(),
        };
        [p * x, p * y]
    }

    // Integrate the reference along a line
    /// ∫ S du from `start` to `end` along a line at the distance `across` from the origin, rad² m.
    pub(crate) fn along(&self, across: f64, start: f64, end: f64) -> f64 {
        let panels = EdgePanels::new(self.kink(), self.outer_scale(), end - start);
        let [integral] =
            panels.integrate(across, [start, end], |t| [self.half_structure(t.sqrt())]);
        integral
    }
}

// Wavefront slope covariance, directly
/// Wavefront–slope covariance, exact to about 1e-10 of the largest entry, m rad.
///
/// ```
/// use lenslet::watch::unwatched;
/// use lenslet::model::System;
/// use lenslet::turbulence::{direct, wavefront_problem};
/// let text = std::fs::read_to_string("book/systems/small.toml").unwrap();
/// let system = System::from_toml(&(text + "\n[[target]]\n[phase]\npoints = 21\n"), "small.toml")?;
/// let covariance = direct::wavefront::covariance(&wavefront_problem(&system)?, &unwatched)?;
/// let on_axis = &covariance.lattices()[0]; // (T, S, 2, K, K), K = N − 1 + M = 40
/// assert_eq!(on_axis.dim(), (1, 1, 2, 40, 40));
/// let left = on_axis[[0, 0, 0, 19, 19]]; // a lenslet half a pitch to the left of the point, and half a pitch below
/// assert!(left > 0.0 && (left + on_axis[[0, 0, 0, 19, 20]]).abs() < 1e-12 * left);
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn covariance(problem: &WavefrontProblem, watch: &dyn Watch) -> Result<WavefrontSlope, Error> {
    let references = references(problem);
    let lattices: Vec<&[WavefrontLayer]> = problem.lattices().collect();
    WavefrontSlope::compute(problem, watch, |k, t, q| {
        field_of(problem, (lattices[k], &references[k..]), (t, q))
    })
}

// Covariance of target and star
/// The covariance of one target and one star on a lattice, (2, K, K), m rad. A lattice is a single layer, or the only lattice is all
/// of them: the k-th begins with layer k, and so do its references.
fn field_of(
    problem: &WavefrontProblem,
    (lattice, references): (&[WavefrontLayer], &[Reference]),
    (t, q): (usize, usize),
) -> Array3<f64> {
    let fields = lattice.iter().zip(references).map(|(layer, reference)| {
        Lags::new(problem, layer, t, q).field(reference) * -layer.slope_strength
    });
    fields.reduce(|sum, field| sum + field).unwrap_or_default()
}

// Prepare each wavefront layer
/// The reference phase of each layer.
fn references(problem: &WavefrontProblem) -> Vec<Reference> {
    problem.layers().par_iter().map(|layer| reference(problem, layer)).collect()
}

/// The reference phase of a layer, with tables for all its displacements.
fn reference(problem: &WavefrontProblem, layer: &WavefrontLayer) -> Reference {
    Reference::new(layer.outer_scale, layer.disc, distances(problem, layer))
}

/// The nearest and the farthest distance in metres at which a layer's gradients are looked up.
pub(crate) fn distances(problem: &WavefrontProblem, layer: &WavefrontLayer) -> [f64; 2] {
    let (targets, stars) = (0..problem.targets(), 0..problem.stars());
    let pairs = targets.flat_map(|t| stars.clone().map(move |q| (t, q)));
    let reach = (problem.lags(layer) - 1) as f64 * layer.step;
    let corner = |(t, q): (usize, usize)| {
        let first = problem.first_lag(layer, t, q);
        let [x, y] = first.map(|first| first.abs().max((first + reach).abs()));
        x.hypot(y)
    };
    let margin = (MARGIN as f64 + problem.grid().oversampling as f64) * layer.step;
    let farthest = pairs.map(corner).fold(0.0, f64::max) + 2.0 * margin + NEAR * layer.side;
    // A hundredth to spare covers rounding at the ends.
    let nearest = 0.99 * (CORE * layer.step).min((NEAR - 0.71) * layer.side);
    [nearest, farthest]
}

// Zones of a layer's lags
/// Edges serve lags that are closer to the singular circle than this many sides.
pub(crate) const NEAR: f64 = 2.0;

/// The box filter serves lags farther from it than so many steps, and so many for each step of a side.
pub(crate) const FAR: [f64; 2] = [16.0, 0.75];

/// Samples closer to it than so many steps are left out, as zero; no lag of the far zone needs them.
pub(crate) const CORE: f64 = 3.0;

/// Lags of one layer, target and guide star: lag (j, i) lies at (x + i step, y + j step).
struct Lags {
    first: [f64; 2],
    step: f64,
    side: f64,
    /// Steps in a side.
    oversampling: usize,
    count: usize,
}

enum Zone {
    Near,
    Middle,
    Far,
}

// Lags and their zones
impl Lags {
    fn new(problem: &WavefrontProblem, layer: &WavefrontLayer, t: usize, q: usize) -> Self {
        Self {
            first: problem.first_lag(layer, t, q),
            step: layer.step,
            side: layer.side,
            oversampling: problem.grid().oversampling,
            count: problem.lags(layer),
        }
    }

    /// The displacement (x, y) in metres of lag (j, i), which may lie outside of the lattice or between its points.
    fn at(&self, j: f64, i: f64) -> [f64; 2] {
        [self.first[0] + i * self.step, self.first[1] + j * self.step]
    }

    // Zone of a single lag
    fn zone(&self, reference: &Reference, j: usize, i: usize) -> Zone {
        let distance = reference.distance(self.at(j as f64, i as f64));
        let far = (FAR[0] + FAR[1] * self.oversampling as f64) * self.step;
        match distance {
            distance if distance < NEAR * self.side => Zone::Near,
            distance if distance < far => Zone::Middle,
            _ => Zone::Far,
        }
    }

    // Fill the field zone by zone
    /// The mean of ∇S over the footprints at all lags, (2, K, K), rad² m⁻¹.
    fn field(&self, reference: &Reference) -> Array3<f64> {
        let (mut near, mut middle) = (Vec::new(), Vec::new());
        for (j, i) in (0..self.count).flat_map(|j| (0..self.count).map(move |i| (j, i))) {
            match self.zone(reference, j, i) {
                Zone::Near => near.push((j, i)),
                Zone::Middle => middle.push((j, i)),
                Zone::Far => {}
            }
        }
        let mut field = if near.len() + middle.len() < self.count.pow(2) {
            self.filtered(reference)
        } else {
            Array3::zeros((2, self.count, self.count))
        };
        for (j, i) in middle {
            let mean = self.gauss_mean(reference, self.at(j as f64, i as f64));
            field.slice_mut(s![.., j, i]).assign(&ndarray::arr1(&mean));
        }
        self.fill_near(reference, &near, &mut field);
        field
    }
}

// Averages in the three zones
// Near lags by pieces of edges
impl Lags {
    /// Fills the near lags with differences of edges, Eq. [phase edges](https://lenslet.github.io/lenslet/wavefront-direct.html#eq-phase-edges).
    fn fill_near(&self, reference: &Reference, near: &[(usize, usize)], field: &mut Array3<f64>) {
        let (o, corners) = (self.oversampling, self.count + self.oversampling);
        let mut pieces = [Array2::zeros((corners, corners)), Array2::zeros((corners, corners))];
        for &(j, i) in near {
            for side in [0, o] {
                pieces[0].slice_mut(s![j..j + o, i + side]).fill(1.0);
                pieces[1].slice_mut(s![j + side, i..i + o]).fill(1.0);
            }
        }
        // Integrate along the marked pieces
        let half = 0.5 * o as f64;
        for (axis, pieces) in pieces.iter_mut().enumerate() {
            let marked = pieces.indexed_iter_mut().filter(|(_, mark)| **mark != 0.0);
            marked.collect::<Vec<_>>().into_par_iter().for_each(|((j, i), piece)| {
                let [x, y] = self.at(j as f64 - half, i as f64 - half);
                let (across, start) = if axis == 0 { (x, y) } else { (y, x) };
                *piece = reference.along(across.abs(), start, start + self.step);
            });
        }
        let area = self.side * self.side;
        for &(j, i) in near {
            let [vertical, horizontal] = &pieces;
            let sum =
                |v: &Array2<f64>, j: usize, i: usize| -> f64 { v.slice(s![j..j + o, i]).sum() };
            field[[0, j, i]] = (sum(vertical, j, i + o) - sum(vertical, j, i)) / area;
            let sum =
                |h: &Array2<f64>, j: usize, i: usize| -> f64 { h.slice(s![j, i..i + o]).sum() };
            field[[1, j, i]] = (sum(horizontal, j + o, i) - sum(horizontal, j, i)) / area;
        }
    }
}

// Middle lags by Gauss rules
/// Nodes along an axis, with the distance from the circle in sides from which they suffice.
pub(crate) const NODES: [(usize, f64); 5] = [(4, 8.0), (5, 5.0), (6, 3.2), (7, 2.4), (8, 0.0)];

static RULES: LazyLock<[Rule; 5]> = LazyLock::new(|| NODES.map(|(n, _)| gauss_legendre(n)));

impl Lags {
    /// The mean of ∇S over the footprint at `r`, rad² m⁻¹.
    fn gauss_mean(&self, reference: &Reference, r: [f64; 2]) -> [f64; 2] {
        let distance = reference.distance(r) / self.side;
        let suffices = |&(_, from): &(usize, f64)| distance >= from;
        let Rule { nodes, weights } = &RULES[NODES.iter().position(suffices).unwrap_or(4)];
        let half = 0.5 * self.side;
        let mut mean = [0.0; 2];
        for (v, weight_v) in nodes.iter().zip(weights) {
            for (u, weight_u) in nodes.iter().zip(weights) {
                let gradient = reference.gradient([r[0] + half * u, r[1] + half * v]);
                (0..2).for_each(|a| mean[a] += 0.25 * weight_u * weight_v * gradient[a]);
            }
        }
        mean
    }
}

// Far lags by the box filter
// Weights of the box filter
/// Samples beyond the box on either side that the filter uses.
const MARGIN: usize = 4;

/// Weights w of the mean over a box of `o` steps, for samples from −⌊o/2⌋ − 4 to ⌊o/2⌋ + 4 steps.
pub(crate) fn box_filter(o: usize) -> Vec<f64> {
    let reach = o / 2 + MARGIN;
    let mut weights = vec![0.0; 2 * reach + 1];
    let rule = gauss_legendre(6);
    let samples = 9 + (o + 1) % 2; // the number nearest to the centre of a cell, odd or even
    for cell in 0..o {
        // The first of the samples nearest to the cell's centre, both counted from the first weight.
        let centre = reach as f64 + cell as f64 - 0.5 * (o - 1) as f64;
        let first = (centre - 0.5 * (samples - 1) as f64).round() as usize;
        for (k, weight) in weights.iter_mut().enumerate().skip(first).take(samples) {
            let others = (first..first + samples).filter(|other| *other != k);
            let lagrange = |u: f64| -> f64 {
                others.clone().map(|l| (u - l as f64) / (k as f64 - l as f64)).product()
            };
            let mean = rule.nodes.iter().zip(&rule.weights);
            *weight +=
                mean.map(|(x, w)| 0.5 * w * lagrange(centre + 0.5 * x)).sum::<f64>() / o as f64;
        }
    }
    weights
}

impl Lags {
    /// The box-filtered gradients at all lags, (2, K, K), of use outside the two inner zones.
    fn filtered(&self, reference: &Reference) -> Array3<f64> {
        let weights = box_filter(self.oversampling);
        let (reach, count) = (weights.len() / 2, self.count);
        let mut along_x = Array3::zeros((count + 2 * reach, 2, count));
        along_x.axis_iter_mut(Axis(0)).into_par_iter().enumerate().for_each(|(j, mut out)| {
            let samples = self.sample_row(reference, j as f64 - reach as f64, reach);
            for (a, samples) in samples.iter().enumerate() {
                for (k, weight) in weights.iter().enumerate() {
                    let shifted = ndarray::aview1(&samples[k..k + count]);
                    out.slice_mut(s![a, ..]).scaled_add(*weight, &shifted);
                }
            }
        });
        // Filter the samples along y
        let mut field = Array3::zeros((2, count, count));
        for a in 0..2 {
            field
                .index_axis_mut(Axis(0), a)
                .axis_iter_mut(Axis(0))
                .into_par_iter()
                .enumerate()
                .for_each(|(j, mut out)| {
                    for (k, weight) in weights.iter().enumerate() {
                        out.scaled_add(*weight, &along_x.slice(s![j + k, a, ..]));
                    }
                });
        }
        field
    }

    // Sample a row of gradients
    /// ∂S/∂x and ∂S/∂y along row `j` of the lattice, with `reach` samples more at both ends.
    fn sample_row(&self, reference: &Reference, j: f64, reach: usize) -> [Vec<f64>; 2] {
        let samples = (0..self.count + 2 * reach).map(|i| {
            let r = self.at(j, i as f64 - reach as f64);
            let cored = reference.distance(r) < CORE * self.step;
            if cored { [0.0; 2] } else { reference.gradient(r) }
        });
        let (x, y) = samples.map(|[x, y]| (x, y)).unzip();
        [x, y]
    }
}

// Exact entries without a lattice
/// Exact covariances of single points and lenslets, also where targets and stars have unequal cones.
pub(crate) struct Exact<'a> {
    problem: &'a WavefrontProblem,
    references: Vec<Reference>,
}

impl<'a> Exact<'a> {
    pub(crate) fn new(problem: &'a WavefrontProblem) -> Self {
        Self { problem, references: references(problem) }
    }

    /// ⟨w s⟩ of wavefront point `point` and lenslet `lenslet` (both \[row, column\], in the pupil) for target and star (t, q),
    /// both slopes, m rad.
    pub(crate) fn entry(
        &self,
        pair: (usize, usize),
        point: [usize; 2],
        lenslet: [usize; 2],
    ) -> [f64; 2] {
        // Add the edges of all layers
        let mut sum = [0.0; 2];
        for (layer, reference) in self.problem.layers().iter().zip(&self.references) {
            let [x, y] = self.problem.displacement(layer, pair, point, lenslet);
            let half = 0.5 * layer.side;
            let edge = |across: f64, middle: f64| {
                reference.along(across.abs(), middle - half, middle + half)
            };
            let scale = -layer.slope_strength / layer.side.powi(2);
            sum[0] += scale * (edge(x + half, y) - edge(x - half, y));
            sum[1] += scale * (edge(y + half, x) - edge(y - half, x));
        }
        sum
    }
}

// Wavefront covariance at the targets
/// Covariance ⟨w^t(x) w^u(x + ρ)⟩ of the targets' wavefronts: (T, T, 2M − 1, 2M − 1), m².
///
/// ρ = ((i − M + 1), (j − M + 1)) steps d/o of the wavefront points. With a disc of directions both wavefronts are averaged.
///
/// # Errors
/// `Invalid` where an outer scale is infinite, as the phase then has no covariance.
pub fn wavefront_covariance(problem: &WavefrontProblem) -> Result<Array4<f64>, Error> {
    if problem.layers().iter().any(|layer| layer.outer_scale.is_infinite()) {
        let expected = "a finite length for the covariance of wavefronts";
        return Err(Invalid::new("outer_scale", f64::INFINITY, expected).into());
    }
    let (targets, points) = (problem.targets(), problem.grid().points);
    let lags = 2 * points - 1;
    let mut covariance = Array4::zeros((targets, targets, lags, lags));
    for layer in problem.layers() {
        // Add the covariance of a layer
        let shrink = if problem.is_layered() { 1.0 } else { layer.gamma };
        let step = shrink * problem.pitch() / problem.grid().oversampling as f64;
        let reach = (points - 1) as f64 * step;
        let pairs = || (0..targets).flat_map(|t| (t..targets).map(move |u| (t, u)));
        let offset = |(t, u)| problem.target_offset(layer, t, u);
        let corner = |[x, y]: [f64; 2]| (x.abs() + reach).hypot(y.abs() + reach);
        // A table needs some length, even where there is a single point.
        let farthest = pairs().map(|pair| corner(offset(pair))).fold(layer.disc, f64::max);
        let phase = VonKarman::new(layer.outer_scale);
        let average = (layer.disc > 0.0).then(|| DiscAverage::twice(&phase, layer.disc, farthest));
        let value = |r: f64| match &average {
            None => phase.covariance(r),
            Some(average) => phase.covariance(0.0) - average.half_structure(r),
        };
        for (t, u) in pairs() {
            let first = offset((t, u)).map(|offset| offset - reach);
            let field = radial_field(&value, first, step, lags) * layer.wavefront_strength;
            let mut block = covariance.slice_mut(s![t, u, .., ..]);
            block += &field;
            if t != u {
                let mut block = covariance.slice_mut(s![u, t, ..;-1, ..;-1]);
                block += &field;
            }
        }
    }
    Ok(covariance)
}

// Tabulate a function of distance
/// A function of distance on a square lattice of displacements that starts at `first`; (lags, lags).
fn radial_field(
    value: &(impl Fn(f64) -> f64 + Sync),
    first: [f64; 2],
    step: f64,
    lags: usize,
) -> Array2<f64> {
    let at = |axis: usize, k: usize| first[axis] + k as f64 * step;
    let mut field = Array2::zeros((lags, lags));
    field.axis_iter_mut(Axis(0)).into_par_iter().enumerate().for_each(|(j, mut row)| {
        row.iter_mut().enumerate().for_each(|(i, entry)| *entry = value(at(0, i).hypot(at(1, j))));
    });
    field
}

// Tests of the direct wavefront method
#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::atmosphere::{Atmosphere, Layer};
    use crate::model::lenslet_array::LensletArray;
    use crate::model::source::{ConeGradient, Source};
    use crate::model::wavefront_grid::PhaseGrid;
    use crate::watch::unwatched;

    // Pose one layer for the wavefront
    /// One layer at 10 km, a target and a star whose footprints lie `offset` metres apart.
    fn problem(
        (lenslets, pitch): (usize, f64),
        (points, oversampling): (usize, usize),
        outer_scale: f64,
        disc: f64,
        offset: [f64; 2],
    ) -> WavefrontProblem {
        let altitude = 10_000.0;
        let atmosphere =
            Atmosphere::new(1.0, 1e-6, vec![Layer::new(altitude, 1.0, outer_scale)]).unwrap();
        let [x, y] = offset.map(|offset| offset / altitude);
        let star = [Source::star(x.hypot(y), y.atan2(x)).unwrap()];
        let target = [Source::star(0.0, 0.0).unwrap()];
        let array = LensletArray::new(lenslets, pitch).unwrap();
        let grid = PhaseGrid::new(points, oversampling, disc / altitude).unwrap();
        WavefrontProblem::new(&atmosphere, &array, (&target, &star), grid, ConeGradient::Pupil)
            .unwrap()
    }

    // Compare a point on an edge
    #[test]
    fn a_point_on_an_edge_agrees_with_the_worked_case() {
        let posed = problem((1, 1.0), (3, 2), f64::INFINITY, 0.0, [0.0; 2]);
        let on_edge = covariance(&posed, &unwatched).unwrap().lattices()[0][[0, 0, 0, 1, 0]];
        let (constant, on_edge) =
            (crate::turbulence::kolmogorov_constant(), on_edge / posed.layers()[0].slope_strength);
        assert!((on_edge - 3.272).abs() < 1e-3 && (constant - 3.442).abs() < 1e-3, "{on_edge}");
        assert!((on_edge / constant - (1.069 - 0.118)).abs() < 1e-3, "{on_edge}");
        assert!((5.0 / 3.0 * constant * 0.5f64.powf(2.0 / 3.0) - 3.614).abs() < 1e-3);
    }

    // Compare the zones with plain edges
    #[test]
    fn all_zones_agree_with_edges() {
        let infinity = f64::INFINITY;
        let phases = [(infinity, 0.0), (25.0, 0.0), (1.0, 0.0), (25.0, 2.3), (25.0, 0.03)];
        for (outer_scale, disc) in phases.into_iter().chain([(infinity, 7.0)]) {
            for (array, grid, offset) in [
                ((12, 0.5), (13, 1), [1.3, -0.4]),
                ((7, 0.5), (9, 2), [0.0, 0.0]),
                ((9, 0.4), (20, 3), [-6.0, 2.2]),
                ((5, 0.6), (21, 4), [0.1, 14.0]),
            ] {
                let posed = problem(array, grid, outer_scale, disc, offset);
                let layer = &posed.layers()[0];
                let computed = covariance(&posed, &unwatched).unwrap();
                let reference = reference(&posed, layer);
                let lags = Lags::new(&posed, layer, 0, 0);
                // Find the worst lag of the layer
                let mut worst: f64 = 0.0;
                let half = 0.5 * layer.side;
                for j in 0..lags.count {
                    for i in 0..lags.count {
                        let [x, y] = lags.at(j as f64, i as f64);
                        let edge = |across: f64, start: f64| {
                            reference.along(across.abs(), start - half, start + half)
                        };
                        let exact = [
                            edge(x + half, y) - edge(x - half, y),
                            edge(y + half, x) - edge(y - half, x),
                        ];
                        for (a, exact) in exact.iter().enumerate() {
                            let exact = -layer.slope_strength * exact / layer.side.powi(2);
                            let value = computed.lattices()[0][[0, 0, a, j, i]];
                            worst = worst.max((value - exact).abs());
                        }
                    }
                }
                let centred = problem(array, grid, outer_scale, disc, [0.0; 2]);
                let scale =
                    covariance(&centred, &unwatched).unwrap().largest().max(computed.largest());
                let error = worst / scale;
                assert!(error < 2e-11, "L0 = {outer_scale}, R = {disc}, {grid:?}: {error:e}");
            }
        }
    }
}
