// Tangled from book/src/smallest-lenslet.md: edit there, or here and run cargo tangle stitch.
//! The smallest Lenslet: one star, four lenslets, one layer, and the wavefront error towards a target.

use std::f64::consts::TAU;

// Telescope, star and layer
const FRIED: f64 = 0.125; // Fried parameter r0 at a wavelength of 500 nm [m]
const METRES: f64 = 500e-9 / TAU; // wavefront of a phase of one radian [m]
const PITCH: f64 = 0.5; // side of a lenslet [m]
const ALTITUDE: f64 = 10e3; // of the layer [m]
const NOISE: f64 = 0.04e-12; // variance of the noise of a slope [rad²]
const ARCSEC: f64 = TAU / 360.0 / 3600.0; // [rad]

// Structure function of the phase
pub type Point = [f64; 2];

fn structure_function([x, y]: Point, [u, v]: Point) -> f64 {
    6.88 * ((x - u).hypot(y - v) / FRIED).powf(5.0 / 3.0)
}

// Covariance of two measurements
pub type Measurement = Vec<(f64, Point)>;

pub fn covariance(first: &Measurement, second: &Measurement) -> f64 {
    let mut sum = 0.0;
    for (v, p) in first {
        for (w, q) in second {
            sum -= 0.5 * v * w * structure_function(*p, *q);
        }
    }
    sum
}

// Slopes as differences of two phases
pub fn slopes() -> Vec<Measurement> {
    let (half, weight) = (PITCH / 2.0, METRES / PITCH);
    let centres = [[-half, -half], [half, -half], [-half, half], [half, half]];
    let along_x = centres.map(|[x, y]| vec![(weight, [x + half, y]), (-weight, [x - half, y])]);
    let along_y = centres.map(|[x, y]| vec![(weight, [x, y + half]), (-weight, [x, y - half])]);
    [along_x, along_y].concat()
}

// Covariance of a measurement with slopes
pub fn with_slopes(measurement: &Measurement) -> Vec<f64> {
    slopes().iter().map(|slope| covariance(measurement, slope)).collect()
}

// Wavefront towards a target
pub fn wavefront(shift: f64) -> Vec<Measurement> {
    let steps = [-PITCH, 0.0, PITCH];
    let points = steps.map(|y| steps.map(|x| [x + shift, y])).concat();
    let mean: Measurement = points.iter().map(|point| (-METRES / 9.0, *point)).collect();
    points.iter().map(|point| [vec![(METRES, *point)], mean.clone()].concat()).collect()
}

// Solve by elimination
pub fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    for k in 0..8 {
        for row in (0..8).filter(|row| *row != k) {
            let factor = matrix[row][k] / matrix[k][k];
            (k..8).for_each(|column| matrix[row][column] -= factor * matrix[k][column]);
            right[row] -= factor * right[k];
        }
    }
    (0..8).map(|k| right[k] / matrix[k][k]).collect()
}

// Wavefront error before and after correction
pub fn errors(angle: f64) -> [f64; 2] {
    let mut matrix: Vec<Vec<f64>> = slopes().iter().map(with_slopes).collect();
    (0..8).for_each(|k| matrix[k][k] += NOISE);
    let mut variances = [0.0; 2];
    for point in wavefront(ALTITUDE * ARCSEC * angle) {
        let right = with_slopes(&point);
        let weights = solve(matrix.clone(), right.clone());
        let explained: f64 = weights.iter().zip(&right).map(|(r, c)| r * c).sum();
        variances[0] += covariance(&point, &point) / 9.0;
        variances[1] += (covariance(&point, &point) - explained) / 9.0;
    }
    variances.map(f64::sqrt)
}

fn main() {
    // Print matrix and errors
    println!("D(0.5 m) = {:.1} rad²", structure_function([0.0, 0.0], [PITCH, 0.0]));
    for slope in slopes() {
        let row: Vec<f64> = with_slopes(&slope).iter().map(|value| 1e12 * value).collect();
        println!("{row:6.3?} µrad²");
    }
    for angle in (0..=60).step_by(5) {
        let [before, after] = errors(angle as f64).map(|error| 1e9 * error);
        let bar = "█".repeat(after as usize / 12);
        println!("{angle:2} arcsec: {before:.0} → {after:.0} nm {bar}");
    }
}
