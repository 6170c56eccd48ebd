//! Draws the error of the slope variance against the number of nodes on a panel into the folder that is given.

use lenslet::numerics::gauss_legendre;
use lenslet::plot::Figure;
use lenslet::turbulence::{VonKarman, gradient_covariances};
use std::{error::Error, path::PathBuf};

/// ∫ (side − u) S(√(across² + u²)) du from 0 to the side, on panels with `nodes` nodes: cut towards the cusp, or one.
fn half_triangle(phase: &VonKarman, across: f64, side: f64, nodes: usize, cut: bool) -> f64 {
    let rule = gauss_legendre(nodes);
    let mut edges = vec![side];
    while cut && edges.len() < 17 && edges[edges.len() - 1] > across {
        edges.push(0.5 * edges[edges.len() - 1]);
    }
    edges.push(0.0);
    let panel = |ends: &[f64]| -> f64 {
        let (half, middle) = (0.5 * (ends[0] - ends[1]), 0.5 * (ends[0] + ends[1]));
        let at = |u: f64| (side - u) * phase.half_structure_and_half_mean(across.hypot(u)).0;
        (rule.nodes.iter().zip(&rule.weights)).map(|(x, w)| w * half * at(middle + half * x)).sum()
    };
    edges.windows(2).map(panel).sum()
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let (phase, side) = (VonKarman::new(25.0), 0.5);
    let exact = gradient_covariances(&phase, side, [0.0, 0.0], (1, 1))[[0, 0, 0]];
    // The variance is the second difference of the triangle integral, whose two halves are equal at zero lag.
    let error = |nodes, cut| {
        let edge = |across| 2.0 * half_triangle(&phase, across, side, nodes, cut);
        let variance = (2.0 * edge(side) - 2.0 * edge(0.0)) / side.powi(4);
        (nodes as f64, (variance / exact - 1.0).abs().max(1e-16))
    };
    Figure::new()
        .x_label("nodes on a panel")
        .y_label("relative error of the variance")
        .log_y()
        .y_range(1e-16, 1.0)
        .line("panels cut at the cusp", (1..=14).map(|nodes| error(nodes, true)))
        .line("one panel an edge", (1..=14).map(|nodes| error(nodes, false)))
        .save(folder.join("edge-nodes.svg"))?;
    Ok(())
}
