//! Wavefronts against slopes, wavefronts averaged over discs, and slopes of unequal footprints, held against tables of high
//! precision that share nothing with the crate.
//!
//! The headers of `tests/oracle/wavefront_slope.csv`, `phase_covariance_disc.csv` and `mixed_slopes.csv` say what the columns
//! are and how they were computed. Each row becomes a system of one layer whose sources bring about the row's displacement.

use lenslet::model::{Atmosphere, ConeGradient, Layer, LensletArray, PhaseGrid, Sensor, Source};
use lenslet::turbulence::{WavefrontProblem, cross_covariance, direct};
use lenslet::watch::unwatched;
use ndarray::{Array2, arr2};
use std::f64::consts::PI;

/// λ/2π in the tests, m.
const PER_RADIAN: f64 = 1e-6;

/// Altitude of the layer, m.
const ALTITUDE: f64 = 2e5;

/// B(0) for L0 = 1 m, rad².
const VARIANCE: f64 = 0.086_314_329_911_834_56;

/// The rows of a table of `N` numbers.
fn table<const N: usize>(text: &str) -> Vec<[f64; N]> {
    let rows = text.lines().filter(|line| !line.starts_with('#')).skip(1).map(|line| {
        let numbers: Vec<f64> = line.split(',').map(|number| number.parse().unwrap()).collect();
        numbers.try_into().unwrap_or_else(|_| panic!("a row does not hold {N} numbers: {line}"))
    });
    rows.collect()
}

fn atmosphere(outer_scale: f64) -> Atmosphere {
    let layer = Layer::new(ALTITUDE, 1.0, outer_scale);
    Atmosphere::new(1.0, 2.0 * PI * PER_RADIAN, vec![layer]).unwrap()
}

/// A star in the direction that shifts its footprint by `shift` at the layer.
fn star_shifting([x, y]: [f64; 2]) -> Source {
    Source::star(x.hypot(y) / ALTITUDE, y.atan2(x)).unwrap()
}

/// The largest of a set of errors, with the case that it belongs to.
#[derive(Default)]
struct Worst {
    error: f64,
    case: String,
}

impl Worst {
    fn see(&mut self, error: f64, case: impl FnOnce() -> String) {
        if error.is_nan() || error > self.error {
            *self = Self { error, case: case() };
        }
    }

    fn check(&self, what: &str, tolerance: f64) {
        println!("{what}: largest error {:.2e}, at {}", self.error, self.case);
        assert!(self.error <= tolerance, "{what}: {:.3e} at {}", self.error, self.case);
    }
}

/// The larger of the errors of two slopes, or NaN.
fn error_of(found: [f64; 2], expected: [f64; 2]) -> f64 {
    let [x, y] = [0, 1].map(|a| (found[a] - expected[a]).abs());
    if x.is_nan() || x > y { x } else { y }
}

/// side, outer_scale, radius, x, y, c_x, c_y, scale.
fn wavefront_rows() -> Vec<[f64; 8]> {
    let rows = table(include_str!("oracle/wavefront_slope.csv"));
    assert!(rows.len() > 150);
    rows
}

/// c for a row, from the lag (i, j) of N lenslets and M wavefront points, o to a lenslet, by the direct method.
fn direct(row: &[f64; 8], [n, m, o]: [usize; 3], [i, j]: [usize; 2]) -> [f64; 2] {
    let &[side, outer_scale, radius, x, y, ..] = row;
    let reach = (o * (n - 1) + m - 1) as f64 / 2.0;
    let lag = [i, j].map(|index| (index as f64 - reach) * side / o as f64);
    let star = star_shifting([x - lag[0], y - lag[1]]);
    let array = LensletArray::new(n, side).unwrap();
    let grid = PhaseGrid::new(m, o, radius / ALTITUDE).unwrap();
    let sources = (&[star_shifting([0.0; 2])][..], &[star][..]);
    let air = atmosphere(outer_scale);
    let problem = WavefrontProblem::new(&air, &array, sources, grid, ConeGradient::Pupil).unwrap();
    let covariance = direct::wavefront::covariance(&problem, &unwatched).unwrap();
    [0, 1].map(|a| covariance.lattices()[0][[0, 0, a, j, i]] / PER_RADIAN.powi(2))
}

#[test]
fn the_direct_method_agrees_with_the_table() {
    let mut worst = Worst::default();
    for (k, row) in wavefront_rows().iter().enumerate() {
        // One lattice for each row, by turns.
        let (sizes, lag) = match k % 3 {
            0 => ([1, 1, 1], [0, 0]),
            1 => ([2, 3, 1], [k % 4, k / 4 % 4]),
            _ => ([2, 4, 3], [k % 7, k / 7 % 7]),
        };
        let error = error_of(direct(row, sizes, lag), [row[5], row[6]]) / row[7];
        worst.see(error, || format!("N, M, o = {sizes:?}, lag {lag:?}, {row:?}"));
    }
    worst.check("wavefront against slopes, direct method against table", 1e-10);
}

#[test]
fn the_dense_wavefront_slopes_agree_with_the_table() {
    let mut worst = Worst::default();
    // Every other row: each takes a table of its own.
    for row in wavefront_rows().into_iter().step_by(2) {
        let [side, outer_scale, radius, x, y, c_x, c_y, scale] = row;
        let array = LensletArray::new(1, side).unwrap();
        // A target off the axis, so that the displacement is the star less the target.
        let target = [star_shifting([0.3 * x, -0.2 * y])];
        let star = [Sensor::at_rest(star_shifting([1.3 * x, 0.8 * y]), array)];
        let grid = PhaseGrid::new(1, 1, radius / ALTITUDE).unwrap();
        let (air, all) = (atmosphere(outer_scale), [arr2(&[[true]])]);
        let targets = (&target[..], grid, side);
        let matrix = cross_covariance::wavefront_slope(
            &air,
            targets,
            &star,
            &all,
            ConeGradient::Pupil,
            &unwatched,
        );
        let matrix: Array2<f64> = matrix.unwrap() / PER_RADIAN.powi(2);
        assert_eq!(matrix.dim(), (1, 2));
        let error = error_of([matrix[[0, 0]], matrix[[0, 1]]], [c_x, c_y]) / scale;
        worst.see(error, || format!("{row:?}"));
    }
    // Where the disc is far wider than the lenslet and the outer scale, hardly a slope is left, and the edges nearly cancel.
    worst.check("wavefront against slopes, pair by pair against table", 1e-9);
}

#[test]
fn the_wavefronts_of_discs_agree_with_the_table() {
    let mut worst = Worst::default();
    for row in table::<4>(include_str!("oracle/phase_covariance_disc.csv")) {
        let [outer_scale, radius, distance, covariance] = row;
        let azimuth = 0.9f64;
        let target = star_shifting([distance * azimuth.cos(), distance * azimuth.sin()]);
        let targets = [star_shifting([0.0; 2]), target];
        let (array, grid) = (LensletArray::new(1, 1.0), PhaseGrid::new(2, 1, radius / ALTITUDE));
        let sources = (&targets[..], &targets[..1]);
        let air = atmosphere(outer_scale);
        let problem = WavefrontProblem::new(
            &air,
            &array.unwrap(),
            sources,
            grid.unwrap(),
            ConeGradient::Pupil,
        );
        let found = direct::wavefront::wavefront_covariance(&problem.unwrap()).unwrap();
        let variance = VARIANCE * outer_scale.powf(5.0 / 3.0);
        for (t, u) in [(0, 1), (1, 0)] {
            let error = (found[[t, u, 1, 1]] / PER_RADIAN.powi(2) - covariance).abs() / variance;
            worst.see(error, || format!("targets {t}, {u}, {row:?}"));
        }
    }
    worst.check("wavefronts of discs against table", 1e-12);
}

#[test]
fn the_slopes_of_unequal_footprints_agree_with_the_table() {
    let mut worst = Worst::default();
    for row in table::<10>(include_str!("oracle/mixed_slopes.csv")) {
        let [first, second, outer_scale, x, y, xx, xy, yx, yy, scale] = row;
        let star = |side, shift| {
            Sensor::at_rest(star_shifting(shift), LensletArray::new(1, side).unwrap())
        };
        let stars = [star(first, [0.1 * x, -0.4 * y]), star(second, [1.1 * x, 0.6 * y])];
        let (air, all) = (atmosphere(outer_scale), [arr2(&[[true]]), arr2(&[[true]])]);
        let matrix =
            cross_covariance::slope_covariance(&air, &stars, &all, ConeGradient::Pupil, &unwatched);
        let matrix = matrix.unwrap() / PER_RADIAN.powi(2);
        let expected = [xx, xy, yx, yy];
        for (k, &expected) in expected.iter().enumerate() {
            let (a, b) = (k / 2, 2 + k % 2);
            let error = (matrix[[a, b]] - expected).abs() / scale;
            worst.see(error, || format!("component {k}, {row:?}"));
            assert_eq!(
                matrix[[a, b]].to_bits(),
                matrix[[b, a]].to_bits(),
                "not symmetric: {row:?}"
            );
        }
    }
    worst.check("slopes of unequal footprints against table", 1e-10);
}
