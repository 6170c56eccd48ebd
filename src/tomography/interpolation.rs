// Tangled from book/src/layers-to-pupil.md: edit there, or here and run cargo tangle stitch.
//! The error that interpolation makes in a covariance.

use crate::linear::interpolation::{Interpolation, Stencils};
use crate::turbulence::direct::wavefront::Exact;
use crate::turbulence::wavefront::{WavefrontProblem, WavefrontSlope, lattice_entry};
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
    let stencils: Vec<Stencils<f64>> = (problem.layers().iter())
        .map(|layer| Stencils::new(points, layer.points, layer.gamma, kind))
        .collect();
    let pairs = Exact::new(problem);
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
        let mut interpolated = [0.0; 2];
        for ((layer, stencils), lattice) in
            problem.layers().iter().zip(&stencils).zip(covariance.lattices())
        {
            let shape = (layer.points, problem.grid().oversampling);
            for (j, weight_j) in stencils.of(point[0]) {
                for (i, weight_i) in stencils.of(point[1]) {
                    let entry = lattice_entry(lattice.view(), shape, (t, q), [j, i], lenslet);
                    (0..2).for_each(|a| interpolated[a] += weight_j * weight_i * entry[a]);
                }
            }
        }
        let larger = |pair: [f64; 2]| pair[0].abs().max(pair[1].abs());
        (larger([0, 1].map(|a| exact[a] - interpolated[a])), larger(exact))
    });
    let (error, largest) =
        errors.reduce(|| (0.0, 0.0), |a, b| (f64::max(a.0, b.0), f64::max(a.1, b.1)));
    if largest > 0.0 { error / largest } else { 0.0 }
}
