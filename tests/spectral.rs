//! The spectral method against the direct method: is its error what it says it is?

use lenslet::model::{Atmosphere, ConeGradient, Layer, LensletArray, Source};
use lenslet::turbulence::spectral::{SpectralSampling, TOLERANCE};
use lenslet::turbulence::{PairCovariance, SlopeProblem, direct, spectral};
use lenslet::watch::unwatched;

/// (altitude, fraction, outer scale) of each layer.
type Layers<'a> = &'a [(f64, f64, f64)];

fn problem(
    lenslets: usize,
    pitch: f64,
    layers: Layers,
    stars: &[(f64, f64)],
    height: f64,
) -> SlopeProblem {
    let layer = |&(altitude, fraction, outer_scale): &(f64, f64, f64)| {
        let (wind_speed, wind_direction) = (0.0, 0.0);
        Layer { altitude, fraction, outer_scale, wind_speed, wind_direction }
    };
    let atmosphere = Atmosphere::new(0.15, 500e-9, layers.iter().map(layer).collect()).unwrap();
    let array = LensletArray::new(lenslets, pitch).unwrap();
    let star = |&(zenith, azimuth): &(f64, f64)| Source::new(zenith, azimuth, height).unwrap();
    let stars: Vec<Source> = stars.iter().map(star).collect();
    SlopeProblem::new(&atmosphere, &array, &stars, ConeGradient::Pupil).unwrap()
}

/// The largest difference of any entry, in units of the variance.
fn largest(one: &[PairCovariance], other: &[PairCovariance]) -> f64 {
    let centre = (other[0].dim().1 - 1) / 2;
    let differences = one.iter().zip(other).flat_map(|(one, other)| (one - other).into_iter());
    differences.fold(0.0, |worst: f64, x| worst.max(x.abs())) / other[0][[0, centre, centre]]
}

fn true_error(problem: &SlopeProblem, sampling: SpectralSampling) -> f64 {
    let spectral = spectral::slope::pair_covariances(problem, &sampling, &unwatched).unwrap();
    largest(&spectral, &direct::slope::pair_covariances(problem, &unwatched).unwrap())
}

/// The estimate must be an honest one: hardly below the error, and of its order.
fn hold_to_account(problem: &SlopeProblem, samples: usize, oversampling: usize) {
    let sampling = SpectralSampling::new(samples, oversampling).unwrap();
    let (error, estimate) = (true_error(problem, sampling), sampling.error_estimate(problem));
    println!("{samples:6} {oversampling:3}  error {error:.2e}  estimate {estimate:.2e}");
    assert!(error < 1.3 * estimate, "{samples}, {oversampling}: {error:e} but {estimate:e} said");
    assert!(estimate < 10.0 * error, "{samples}, {oversampling}: {error:e} but {estimate:e} said");
}

const INF: f64 = f64::INFINITY;
const STARS: [(f64, f64); 3] = [(1e-4, 0.3), (2e-4, 2.0), (1.5e-4, 4.4)];

#[test]
fn estimates_are_honest_where_truncation_rules() {
    let ground = problem(5, 0.5, &[(0.0, 1.0, 20.0)], &STARS[..1], INF);
    let cone = problem(4, 0.3, &[(0.0, 0.6, 12.0), (12e3, 0.4, 9.0)], &STARS, 90e3);
    let wide = problem(3, 4.0, &[(0.0, 0.5, 6.0), (4e3, 0.5, 3.0)], &STARS[1..], INF);
    for oversampling in [2, 3, 4, 6, 8, 12] {
        hold_to_account(&ground, 180 * oversampling, oversampling);
        hold_to_account(&cone, 180 * oversampling, oversampling);
        hold_to_account(&wide, 36 * oversampling, oversampling);
    }
}

#[test]
fn estimates_are_honest_where_the_period_is_too_short() {
    let layers = [(0.0, 0.7, 25.0), (9e3, 0.3, 40.0)];
    let moderate = problem(6, 0.2, &layers, &STARS, 90e3);
    let kolmogorov = problem(4, 0.25, &[(2e3, 0.3, INF), (8e3, 0.7, INF)], &STARS[..2], INF);
    let one = problem(1, 0.1, &[(0.0, 1.0, 1000.0)], &STARS[..1], INF);
    for folded in [32, 50, 96, 180] {
        hold_to_account(&moderate, 8 * folded, 8);
        hold_to_account(&kolmogorov, 8 * folded, 8);
        hold_to_account(&one, 8 * folded, 8);
    }
}

#[test]
fn the_original_sampling_has_its_known_error() {
    // Measured before this crate was: 1.0e-3 to 1.3e-3 low on the variance, 5e-4 at one lenslet.
    for (pitch, outer_scale, known) in [(0.1, 30.0, 9.9e-4), (0.5, 30.0, 1.3e-3)] {
        let problem = problem(3, pitch, &[(0.0, 1.0, outer_scale)], &STARS[..1], INF);
        let original = SpectralSampling::original();
        let spectral = spectral::slope::pair_covariances(&problem, &original, &unwatched).unwrap();
        let exact = direct::slope::pair_covariances(&problem, &unwatched).unwrap();
        let difference = (&spectral[0] - &exact[0]) / exact[0][[0, 2, 2]];
        let (variance, neighbour) = (difference[[0, 2, 2]], difference[[0, 2, 3]]);
        println!("pitch {pitch}: {variance:.3e} on the variance, {neighbour:.3e} at one lenslet");
        assert!((-variance / known - 1.0).abs() < 0.05, "{variance:e}");
        assert!((4e-4..7e-4).contains(&neighbour), "{neighbour:e}");
        hold_to_account(&problem, 4096, 4);
    }
}

#[test]
fn chosen_samplings_keep_their_promise() {
    let layers = [(0.0, 0.6, 25.0), (5e3, 0.3, 15.0), (12e3, 0.1, 15.0)];
    let problems = [
        problem(20, 0.1, &[(0.0, 1.0, 30.0)], &STARS[..1], INF),
        problem(16, 0.5, &layers, &STARS, 90e3),
        problem(7, 1.5, &layers, &STARS, INF),
        problem(1, 0.2, &[(0.0, 1.0, 8.0)], &STARS[..1], INF),
        problem(3, 5.0, &[(0.0, 1.0, 1.0)], &STARS[..2], INF),
    ];
    for problem in &problems {
        let chosen = SpectralSampling::choose(problem);
        let error = true_error(problem, chosen.sampling);
        println!("{chosen}; in truth {error:.1e}");
        assert!(!chosen.limited && chosen.error_estimate <= TOLERANCE, "{chosen}");
        assert!(error < TOLERANCE && chosen.error_estimate < 10.0 * error, "{chosen}: {error:e}");
    }
}

#[test]
fn what_does_not_fit_is_said_plainly() {
    let kolmogorov = problem(4, 0.2, &[(0.0, 1.0, INF)], &STARS[..1], INF);
    let chosen = SpectralSampling::choose(&kolmogorov);
    assert!(chosen.limited && chosen.error_estimate > 1e-2, "{chosen}");
    assert!(chosen.to_string().contains("too much memory or time"), "{chosen}");
    assert!(chosen.sampling.memory(&kolmogorov) <= 1 << 30);
}
