//! The spectral wavefront–slope covariance against the direct one: is its error what it says it is?

use lenslet::model::{Atmosphere, ConeGradient, Layer, LensletArray, PhaseGrid, Source};
use lenslet::turbulence::spectral::{SpectralSampling, TOLERANCE};
use lenslet::turbulence::{WavefrontProblem, WavefrontSlope, direct, spectral};
use lenslet::watch::unwatched;

/// (altitude, fraction, outer scale) of each layer.
type Layers<'a> = &'a [(f64, f64, f64)];

fn problem(
    (lenslets, pitch): (usize, f64),
    (points, oversampling, disc_radius): (usize, usize, f64),
    layers: Layers,
    height: f64,
) -> WavefrontProblem {
    let layer =
        |&(altitude, fraction, outer_scale): &_| Layer::new(altitude, fraction, outer_scale);
    let atmosphere = Atmosphere::new(0.15, 500e-9, layers.iter().map(layer).collect()).unwrap();
    let targets = [Source::star(0.0, 0.0).unwrap(), Source::star(6e-5, 1.2).unwrap()];
    let star = |zenith, azimuth| Source::new(zenith, azimuth, height).unwrap();
    let stars = [star(1e-4, 0.3), star(1.5e-4, 4.4)];
    let array = LensletArray::new(lenslets, pitch).unwrap();
    let grid = PhaseGrid::new(points, oversampling, disc_radius).unwrap();
    let sources = (&targets[..], &stars[..]);
    WavefrontProblem::new(&atmosphere, &array, sources, grid, ConeGradient::Pupil).unwrap()
}

/// The largest difference of any entry, in units of the largest entry.
fn largest_difference(one: &WavefrontSlope, other: &WavefrontSlope) -> f64 {
    let entries = |covariance: &WavefrontSlope| {
        covariance.lattices().iter().flatten().copied().collect::<Vec<f64>>()
    };
    let differences = entries(one).into_iter().zip(entries(other)).map(|(x, y)| (x - y).abs());
    differences.fold(0.0, f64::max) / other.largest()
}

/// The estimate must be an honest one: hardly below the error, and of its order.
fn hold_to_account(problem: &WavefrontProblem, samplings: &[(usize, usize)]) {
    let exact = direct::wavefront::covariance(problem, &unwatched).unwrap();
    for &(folded, oversampling) in samplings {
        let sampling = SpectralSampling::new(folded * oversampling, oversampling).unwrap();
        let spectral = spectral::wavefront::covariance(problem, &sampling, &unwatched).unwrap();
        let error = largest_difference(&spectral, &exact);
        let estimate = spectral::wavefront::error_estimate(problem, &sampling);
        println!(
            "F = {folded:4}, κ = {oversampling:2}: error {error:.2e}, estimate {estimate:.2e}"
        );
        assert!(error < 1.1 * estimate, "{folded}, {oversampling}: {error:e}, {estimate:e} said");
        assert!(estimate < 4.0 * error, "{folded}, {oversampling}: {error:e}, {estimate:e} said");
    }
}

const INF: f64 = f64::INFINITY;
const LAYERS: [(f64, f64, f64); 2] = [(0.0, 0.7, 20.0), (9e3, 0.3, 12.0)];

#[test]
fn estimates_are_honest_where_truncation_rules() {
    let ground = problem((5, 0.5), (6, 1, 0.0), &[(0.0, 1.0, 20.0)], INF);
    hold_to_account(&ground, &[2, 3, 4, 6, 8].map(|k| (180, k)));
    let common = problem((4, 0.4), (9, 2, 0.0), &LAYERS, INF);
    hold_to_account(&common, &[1, 2, 3, 4, 5].map(|k| (400, k)));
    let layered = problem((4, 0.4), (13, 3, 0.0), &LAYERS, 90e3);
    hold_to_account(&layered, &[1, 2, 3, 4].map(|k| (600, k)));
    let disc = problem((4, 0.4), (9, 2, 6e-5), &[(9e3, 1.0, 12.0)], 90e3);
    hold_to_account(&disc, &[1, 2, 3, 4].map(|k| (400, k)));
}

#[test]
fn estimates_are_honest_where_the_period_is_too_short() {
    let common = problem((6, 0.3), (7, 1, 0.0), &[(0.0, 0.7, 25.0), (9e3, 0.3, 40.0)], INF);
    hold_to_account(&common, &[20, 32, 50, 96, 150].map(|folded| (folded, 8)));
    let layered = problem((6, 0.3), (13, 2, 0.0), &LAYERS, 90e3);
    hold_to_account(&layered, &[32, 50, 80, 120].map(|folded| (folded, 4)));
    let kolmogorov = problem((4, 0.25), (5, 1, 0.0), &[(2e3, 0.3, INF), (8e3, 0.7, INF)], INF);
    hold_to_account(&kolmogorov, &[16, 50, 96, 250].map(|folded| (folded, 8)));
}

#[test]
fn chosen_samplings_keep_their_promise() {
    let layers = [(0.0, 0.6, 25.0), (5e3, 0.3, 15.0), (12e3, 0.1, 15.0)];
    for problem in [
        problem((16, 0.5), (17, 1, 0.0), &layers, 90e3),
        problem((8, 0.4), (17, 2, 5e-5), &layers, INF),
        problem((7, 1.5), (7, 1, 0.0), &layers, INF),
        problem((1, 0.2), (2, 1, 0.0), &[(0.0, 1.0, 8.0)], INF),
        problem((20, 0.1), (21, 1, 0.0), &[(0.0, 1.0, 30.0)], INF),
    ] {
        let chosen = spectral::wavefront::choose(&problem);
        let exact = direct::wavefront::covariance(&problem, &unwatched).unwrap();
        let spectral =
            spectral::wavefront::covariance(&problem, &chosen.sampling, &unwatched).unwrap();
        let error = largest_difference(&spectral, &exact);
        println!("{chosen}; in truth {error:.1e}");
        assert!(!chosen.limited && chosen.error_estimate <= TOLERANCE, "{chosen}");
        assert!(error < TOLERANCE, "{chosen}: {error:e}");
    }
}

#[test]
fn what_does_not_fit_is_said_plainly() {
    let kolmogorov = problem((4, 0.2), (5, 1, 0.0), &[(0.0, 1.0, INF)], INF);
    let chosen = spectral::wavefront::choose(&kolmogorov);
    assert!(chosen.limited && chosen.error_estimate > 1e-2, "{chosen}");
    assert!(chosen.to_string().contains("of the largest entry (finer sampling"), "{chosen}");
    assert!(spectral::wavefront::memory(&kolmogorov, &chosen.sampling) <= 1 << 30);
}
