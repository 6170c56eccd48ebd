// Tangled from book/src/layers-to-pupil.md: edit there, or here and run cargo tangle stitch.
//! The error that interpolation makes in a covariance.

use crate::linear::interpolation::{Interpolation, Stencils};
use crate::model::lenslet_array::SlopeOrder;
use crate::turbulence::direct::wavefront::Exact;
use crate::turbulence::wavefront::{
    WavefrontLayer, WavefrontProblem, WavefrontSlope, lattice_entry,
};
use ndarray::{Array2, ArrayView1};
use rayon::prelude::*;

// Error of the interpolation
/// Pairs of wavefront point and lenslet on which the error is measured.
const PAIRS: usize = 1000;

/// The largest error of an interpolated entry, in units of the largest entry, on a sample of pairs; 0 for a common lattice.
pub fn interpolation_error(
    problem: &WavefrontProblem,
    covariance: &WavefrontSlope,
    kind: Interpolation,
) -> f64 {
    if !problem.is_layered() {
        return 0.0;
    }
    let (points, lenslets) = (problem.grid().points, problem.lenslets());
    let (stencils, pairs) = (stencils_of(problem, kind), Exact::new(problem));
    let errors = (0..PAIRS).into_par_iter().map(|k| {
        // Choose a point and a lenslet
        let choose =
            |root: f64, count: usize| ((k as f64 + 1.0) * root.sqrt()).fract() * count as f64;
        let choose = |root, count| choose(root, count) as usize;
        let (t, q) = (choose(2.0, problem.targets()), choose(3.0, problem.stars()));
        let point = [choose(5.0, points), choose(7.0, points)];
        // Half of the lenslets are drawn near to the point, where the covariance bends most.
        let near = |m: usize, root: f64| {
            let middle = m * lenslets / points + choose(root, 5);
            middle.saturating_sub(2).min(lenslets - 1)
        };
        let anywhere = [choose(11.0, lenslets), choose(13.0, lenslets)];
        let lenslet =
            if k % 2 == 0 { [near(point[0], 11.0), near(point[1], 13.0)] } else { anywhere };
        // Compare one pair with its exact covariance
        let exact = pairs.entry((t, q), point, lenslet);
        let interpolated =
            interpolated_entry((problem, covariance), &stencils, (t, q), point, lenslet);
        let larger = |pair: [f64; 2]| pair[0].abs().max(pair[1].abs());
        (larger([0, 1].map(|a| exact[a] - interpolated[a])), larger(exact))
    });
    let (error, largest) =
        errors.reduce(|| (0.0, 0.0), |a, b| (f64::max(a.0, b.0), f64::max(a.1, b.1)));
    if largest > 0.0 { error / largest } else { 0.0 }
}

// An interpolated entry of all layers
// Stencils of all the layers
/// The stencils of all layers.
fn stencils_of(problem: &WavefrontProblem, kind: Interpolation) -> Vec<Stencils<f64>> {
    let points = problem.grid().points;
    let stencils = |layer: &WavefrontLayer| Stencils::new(points, layer.points, layer.gamma, kind);
    problem.layers().iter().map(stencils).collect()
}

/// The covariance of a wavefront point and the slopes of a lenslet, both \[row, column\], as interpolation gives it, m rad.
fn interpolated_entry(
    (problem, covariance): (&WavefrontProblem, &WavefrontSlope),
    stencils: &[Stencils<f64>],
    pair: (usize, usize),
    point: [usize; 2],
    lenslet: [usize; 2],
) -> [f64; 2] {
    let mut sum = [0.0; 2];
    for ((layer, stencils), lattice) in
        problem.layers().iter().zip(stencils).zip(covariance.lattices())
    {
        let shape = (layer.points, problem.grid().oversampling);
        for (j, weight_j) in stencils.of(point[0]) {
            for (i, weight_i) in stencils.of(point[1]) {
                let entry = lattice_entry(lattice.view(), shape, pair, [j, i], lenslet);
                (0..2).for_each(|a| sum[a] += weight_j * weight_i * entry[a]);
            }
        }
    }
    sum
}

// Errors of some rows by interpolation
/// Rows of the error that interpolation makes in the covariance of wavefronts and slopes, for some points, m rad.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SampledErrors(Array2<f64>);

// Numbers of sampled points and pairs
/// The most and the fewest points, and the number of their pairs with lenslets that is not exceeded between them.
const POINTS: [usize; 2] = [4, 32];
const ALL_PAIRS: usize = 200_000;

impl SampledErrors {
    /// Those of all slopes of the valid lenslets, or none for a common lattice.
    pub(crate) fn new(
        problem: &WavefrontProblem,
        covariance: &WavefrontSlope,
        kind: Interpolation,
        valid: &[Array2<bool>],
    ) -> Option<Self> {
        // Stop where nothing is interpolated
        let (order, points) = (SlopeOrder::new(valid), problem.grid().points);
        let interpolates = problem.is_layered() && !order.is_empty();
        if !interpolates {
            return None;
        }
        // Exact minus interpolated rows
        let (stencils, pairs) = (stencils_of(problem, kind), Exact::new(problem));
        let count = (2 * ALL_PAIRS / order.len()).clamp(POINTS[0], POINTS[1]);
        let rows = (0..count).into_par_iter().map(|k| {
            let (t, point) = (k % problem.targets(), spiral(k, count, points));
            let mut row = vec![0.0; order.len()];
            for q in 0..valid.len() {
                for (n, &lenslet) in order.lenslets(q).iter().enumerate() {
                    let exact = pairs.entry((t, q), point, lenslet);
                    let known = (problem, covariance);
                    let other = interpolated_entry(known, &stencils, (t, q), point, lenslet);
                    (0..2).for_each(|a| row[order.index(q, a, n)] = exact[a] - other[a]);
                }
            }
            row
        });
        let rows: Vec<f64> = rows.collect::<Vec<_>>().concat();
        Array2::from_shape_vec((count, order.len()), rows).ok().map(Self)
    }

    // Root mean square of sampled errors
    /// Root mean square of the error of an estimate with these coefficients, m for coefficients in rad⁻¹.
    pub(crate) fn rms(&self, coefficients: &[f64]) -> f64 {
        let errors = self.0.dot(&ArrayView1::from(coefficients));
        (errors.dot(&errors) / errors.len() as f64).sqrt()
    }
}

// Point on a spiral of equal areas
/// Point `k` of a spiral of `count` points over the circle within a grid of so many points, \[row, column\].
fn spiral(k: usize, count: usize, points: usize) -> [usize; 2] {
    let golden = std::f64::consts::PI * (3.0 - 5f64.sqrt());
    let middle = 0.5 * (points as f64 - 1.0);
    let radius = middle * ((k as f64 + 0.5) / count as f64).sqrt();
    let (sine, cosine) = (golden * k as f64).sin_cos();
    [sine, cosine].map(|x| (middle + radius * x).round() as usize)
}
