//! Draws how many samples a lag takes, against its distance from the singular point, into the folder that is given.

use lenslet::model::System;
use lenslet::plot::Figure;
use lenslet::turbulence::wavefront_problem;
use std::{collections::BTreeSet, error::Error, path::PathBuf};

/// Samples on a panel, and the shortest panel's share of a part, as in `kernels/turbulence/wavefront.cu`.
const NODES: usize = 10;
const FINEST: f64 = 1.0 / 65_536.0;

/// Nodes along an axis in the middle zone, and the distance in sides up to which they are needed.
const RULES: [(f64, f64); 5] = [(8.0, 2.4), (7.0, 3.2), (6.0, 5.0), (5.0, 8.0), (4.0, 16.75)];

/// Samples on a piece from `start` to `end` on a line that passes the origin at the distance `across`: all of them, and those of
/// the busiest of 32 threads.
fn samples(across: f64, [start, end]: [f64; 2]) -> [usize; 2] {
    let parts = [[start, end.min(0.0)], [start.max(0.0), end]];
    let of_part = |[from, to]: [f64; 2]| {
        let (length, nearest) = (to - from, across.hypot(from.abs().min(to.abs())));
        let halvings = (0..16).take_while(|&k| {
            let last = length * 0.5f64.powi(k);
            last > nearest && last > FINEST * length
        });
        NODES * (halvings.count() + 1)
    };
    let parts = parts.into_iter().filter(|part| part[0] < part[1]).map(of_part);
    parts.fold([0, 0], |[all, busiest], of_part| [all + of_part, busiest + of_part.div_ceil(32)])
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let system = System::from_toml(include_str!("../systems/elt.toml"), "elt.toml")?;
    let problem = wavefront_problem(&system)?;
    // Samples of all pieces and of their threads, at distances in fiftieths of a side.
    let mut pieces = BTreeSet::new();
    for layer in problem.layers() {
        // Corners of the footprints, half a side before the lags; in sides.
        let first = problem.first_lag(layer, 0, 0).map(|first| first / layer.side - 0.5);
        let corners =
            (0..=problem.lags(layer)).flat_map(|j| (0..=problem.lags(layer)).map(move |i| [i, j]));
        for [x, y] in corners.map(|corner| [0, 1].map(|axis| first[axis] + corner[axis] as f64)) {
            for (across, start) in [(x, y), (y, x)] {
                let distance = across.hypot(start + 0.5);
                if distance <= 2.75 {
                    let place = (50.0 * distance).round() as usize;
                    pieces.insert((place, samples(across, [start, start + 1.0])));
                }
            }
        }
    }
    let points = |k: usize| {
        pieces.iter().map(move |(place, samples)| (*place as f64 / 50.0, samples[k] as f64))
    };
    let mut middle = vec![(2.0, 64.0)];
    for (nodes, to) in RULES {
        let from = middle[middle.len() - 1].0;
        middle.extend([(from, nodes * nodes), (to, nodes * nodes)]);
    }
    Figure::new()
        .x_label("distance from the singular point, in sides of a footprint")
        .y_label("samples")
        .log_y()
        .x_range(0.0, 22.0)
        .y_range(0.5, 1000.0)
        .points("a piece of a near lag's sides", points(0))
        .line("a lag of the middle", middle)
        .line("a lag far away, with its share of the margin", [(16.75, 2.25), (22.0, 2.25)])
        .points("one of the 32 threads of a piece", points(1))
        .save(folder.join("wavefront-gpu.svg"))?;
    Ok(())
}
