//! Draws the windows of all layers among the tiles of lags for one pair of stars into the folder that is given.

use lenslet::model::System;
use lenslet::plot::Figure;
use lenslet::turbulence::slope_problem;
use std::{error::Error, path::PathBuf};

/// Lags of a tile along x and y, as in `kernels/turbulence/direct.cu`.
const TILE: [usize; 2] = [32, 16];

/// The lags that are shown, along x and y.
const SHOWN: [[f64; 2]; 2] = [[40.0, 150.0], [44.0, 112.75]];

/// The lags along an axis that lie within so many sides of lag zero: the first, and the one after the last.
fn window(first: f64, side: f64, sides: f64, lags: usize) -> [f64; 2] {
    let within = |k: &usize| (first / side + *k as f64).abs() < sides - 1e-9;
    let start = (0..lags).find(within).unwrap_or(lags);
    [start as f64, (start + (start..lags).take_while(within).count()) as f64]
}

/// The outline of a rectangle of lags, half a lag beyond their centres.
fn outline([x, y]: [[f64; 2]; 2]) -> [(f64, f64); 5] {
    let ([x, end_x], [y, end_y]) = (x.map(|x| x - 0.5), y.map(|y| y - 0.5));
    [(x, y), (end_x, y), (end_x, end_y), (x, end_y), (x, y)]
}

/// One line along all borders of tiles at these coordinates; it turns at both ends, which are outside of the panel.
fn serpentine(
    starts: impl Iterator<Item = f64>,
    [low, high]: [f64; 2],
) -> impl Iterator<Item = (f64, f64)> {
    starts
        .map(|start| start - 0.5)
        .zip([[high, low], [low, high]].into_iter().cycle())
        .flat_map(|(border, [from, to])| [(border, from), (border, to)])
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let system = System::from_toml(include_str!("../systems/elt.toml"), "elt.toml")?;
    let problem = slope_problem(&system)?;
    let lags = problem.lags();
    let windows = |sides: f64| -> Vec<[[f64; 2]; 2]> {
        let layers = problem.layers().iter().map(|layer| {
            let reach = (problem.lenslets() - 1) as f64 * layer.side;
            let first = problem.offset(layer, 0, 2).map(|offset| offset - reach);
            first.map(|first| window(first, layer.side, sides, lags))
        });
        layers.collect()
    };
    let (far, near) = (windows(16.0), windows(4.0));
    let starts = |axis: usize| (0..lags).step_by(TILE[axis]).map(|k| k as f64);
    let mut rounds = Vec::new();
    for (x, y) in starts(1).flat_map(|y| starts(0).map(move |x| (x, y))) {
        let tile = [[x, x + TILE[0] as f64], [y, y + TILE[1] as f64]];
        let meets = |window: &&[[f64; 2]; 2]| {
            (0..2).all(|axis| window[axis][0] < tile[axis][1] && tile[axis][0] < window[axis][1])
        };
        let layers = far.iter().filter(meets).count();
        rounds.extend((0..layers).map(|k| (x + 2.0 + 1.6 * k as f64, y + 1.5)));
    }
    let [[left, right], [bottom, top]] = SHOWN;
    let beyond = SHOWN.map(|[start, end]| [start - 1.0, end + 1.0]);
    let mut borders: Vec<_> = serpentine(starts(0), beyond[1]).collect();
    // On outside of the panel to where the level borders begin.
    borders.extend(borders.last().map(|&(_, end)| (beyond[0][1], end)));
    borders.extend(serpentine(starts(1), beyond[0]).map(|(y, x)| (x, y)));
    let nothing = || std::iter::empty();
    Figure::new()
        .x_label("lag along x")
        .y_label("lag along y")
        .x_range(left, right)
        .y_range(bottom, top)
        .lines("window of a layer", far.iter().map(|window| outline(*window)))
        .lines("its near lags", near.iter().map(|window| outline(*window)))
        .points("layers whose windows meet the tile", rounds)
        .line("", nothing())
        .line("", nothing())
        .dashes("tiles", borders)
        .save(folder.join("direct-gpu.svg"))?;
    Ok(())
}
