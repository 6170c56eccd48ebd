//! Draws the errors of Gauss's rules and of the lattice filter against distance into the folder that is given.

use lenslet::numerics::{RadialTable, gauss_triangle};
use lenslet::plot::Figure;
use lenslet::turbulence::{VonKarman, gradient_covariances, hessian};
use std::{error::Error, path::PathBuf};

/// The lag is averaged over these offsets (in sides) along each axis, with these weights.
type Weights = Vec<(f64, f64)>;

fn gauss(nodes: usize) -> Weights {
    let rule = gauss_triangle(nodes);
    rule.nodes.into_iter().zip(rule.weights).collect()
}

/// 1 + δ²/12 − δ⁴/240 + 31 δ⁶/60480 − 289 δ⁸/3628800, multiplied out.
fn filter() -> Weights {
    let series = [1.0, 1.0 / 12.0, -1.0 / 240.0, 31.0 / 60_480.0, -289.0 / 3_628_800.0];
    let mut power = [0.0; 11]; // δ^(2k), its centre at index 5
    power[5] = 1.0;
    let mut weights = [0.0; 11];
    for coefficient in series {
        for (weight, value) in weights.iter_mut().zip(power) {
            *weight += coefficient * value;
        }
        let before = power;
        for k in 1..10 {
            power[k] = before[k - 1] - 2.0 * before[k] + before[k + 1];
        }
    }
    (0..11).map(|k| (k as f64 - 5.0, weights[k])).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let phase = VonKarman::new(20.0); // the lenslet's side is 1 m
    let table = RadialTable::new(1e-2, 1e4, |t| phase.slope_over_distance(t));
    let exact = |lag| gradient_covariances(&phase, 1.0, lag, (1, 1));
    let variance = exact([0.0, 0.0])[[0, 0, 0]];
    let average = |weights: &Weights, [x, y]: [f64; 2]| {
        let mut sum = [0.0; 3];
        for (u, weight_u) in weights {
            for (v, weight_v) in weights {
                let (x, y) = (x + u, y + v);
                let (p, slope) = table.value_and_slope(x * x + y * y);
                let gradients = hessian(p, slope, [x, y]);
                (0..3).for_each(|c| sum[c] += weight_u * weight_v * gradients[c]);
            }
        }
        sum
    };
    let error = |weights: &Weights, distance: f64| {
        let at = |angle: f64| {
            let lag = [distance * angle.cos(), distance * angle.sin()];
            let (approximate, exact) = (average(weights, lag), exact(lag));
            (0..3).map(|c| (approximate[c] - exact[[c, 0, 0]]).abs()).fold(0.0, f64::max) / variance
        };
        (distance, (0..5).map(|k| at(0.2 * f64::from(k))).fold(1e-14, f64::max))
    };
    let curve = |weights: Weights, first: f64| -> Vec<(f64, f64)> {
        let distances = (0..30).map(|k| first * 10f64.powf(f64::from(k) / 40.0));
        distances.filter(|r| *r < 25.0).map(|r| error(&weights, r)).collect()
    };
    Figure::new()
        .x_label("distance R, in sides")
        .y_label("largest error, of the variance")
        .log_x()
        .log_y()
        .y_range(1e-14, 1e-4)
        .line("4 nodes", curve(gauss(4), 3.0))
        .line("5 nodes", curve(gauss(5), 3.0))
        .line("6 nodes", curve(gauss(6), 3.0))
        .line("lattice filter", curve(filter(), 7.5))
        .dashes("the aim", [(3.0, 2e-11), (25.0, 2e-11)])
        .points("handover", [(4.0, 2e-11), (5.5, 2e-11), (9.5, 2e-11), (16.0, 2e-11)])
        .save(folder.join("direct-error.svg"))?;
    Ok(())
}
