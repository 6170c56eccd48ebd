//! Closed forms and invariants of slope covariance, for both methods.

use lenslet::device::Engine;
use lenslet::model::{Atmosphere, ConeGradient, Layer, LensletArray, SlopeOrder, Source, System};
use lenslet::plan::Plan;
use lenslet::turbulence::spectral::SpectralSampling;
use lenslet::turbulence::{
    Method, SlopeCovariance, SlopeCovariancePlan, SlopeProblem, slope_problem,
};
use lenslet::units::ARCSEC;
use lenslet::watch::unwatched;
use ndarray::Array2;

const WAVELENGTH: f64 = 500e-9;
const FRIED_PARAMETER: f64 = 0.15;

fn layer(altitude: f64, fraction: f64, outer_scale: f64) -> Layer {
    Layer { altitude, fraction, outer_scale, wind_speed: 0.0, wind_direction: 0.0 }
}

/// One star on axis above one ground layer.
fn one_lenslet(pitch: f64, outer_scale: f64) -> SlopeProblem {
    let layers = vec![layer(0.0, 1.0, outer_scale)];
    let atmosphere = Atmosphere::new(FRIED_PARAMETER, WAVELENGTH, layers).unwrap();
    let star = Source::star(0.0, 0.0).unwrap();
    let array = LensletArray::new(1, pitch).unwrap();
    SlopeProblem::new(&atmosphere, &array, &[star], ConeGradient::Pupil).unwrap()
}

/// Three laser stars without symmetry, looking through three unequal layers; `shift` moves all of them (arcsec).
fn lopsided(lenslets: usize, gradient: ConeGradient, shift: [f64; 2]) -> SlopeProblem {
    let layers = vec![layer(0.0, 0.6, 25.0), layer(4000.0, 0.3, 12.0), layer(11_000.0, 0.1, 25.0)];
    let atmosphere = Atmosphere::new(FRIED_PARAMETER, WAVELENGTH, layers).unwrap();
    let stars = [[10.0, 3.0], [-22.0, 17.0], [5.0, -31.0]].map(|[x, y]: [f64; 2]| {
        let (x, y) = (x + shift[0], y + shift[1]);
        Source::new(x.hypot(y) * ARCSEC, y.atan2(x), 90e3).unwrap()
    });
    let array = LensletArray::new(lenslets, 0.5).unwrap();
    SlopeProblem::new(&atmosphere, &array, &stars, gradient).unwrap()
}

fn direct(problem: &SlopeProblem) -> SlopeCovariance {
    SlopeCovariancePlan::direct(problem.clone()).run(&Engine::default(), &unwatched).unwrap()
}

fn spectral(problem: &SlopeProblem, samples: usize, oversampling: usize) -> SlopeCovariance {
    let sampling = SpectralSampling::new(samples, oversampling).unwrap();
    let plan = SlopeCovariancePlan::new(problem.clone(), Method::Spectral(Some(sampling)));
    plan.unwrap().run(&Engine::default(), &unwatched).unwrap()
}

/// The largest difference of two covariances, in units of the variance.
fn difference(a: &SlopeCovariance, b: &SlopeCovariance) -> f64 {
    let largest = (a.values() - b.values()).fold(0.0, |largest: f64, x| largest.max(x.abs()));
    largest / a.variance()
}

/// The variance of a square lenslet's slope: 0.1622428 λ² d^(−1/3) r0^(−5/3), with the first outer-scale corrections.
///
/// The constants follow from the moments of the distance of two random points in a square (tests/oracle).
#[test]
fn variance_is_the_closed_form() {
    for (pitch, outer_scale, tolerance) in [
        (0.5, f64::INFINITY, 1e-12),
        (0.01, f64::INFINITY, 1e-12),
        (0.01, 1000.0, 1e-11),
        (0.1, 30.0, 1e-8),
        (0.5, 25.0, 1e-5),
    ] {
        let q: f64 = pitch / outer_scale;
        let correction = 1.0 - 1.596021623878282 * q.cbrt() + 7.403275683760221 * q.powi(2)
            - 9.001201167578786 * q.powf(7.0 / 3.0);
        let expected = 0.1622427828429294
            * WAVELENGTH.powi(2)
            * pitch.powf(-1.0 / 3.0)
            * FRIED_PARAMETER.powf(-5.0 / 3.0)
            * correction;
        let error = direct(&one_lenslet(pitch, outer_scale)).variance() / expected - 1.0;
        assert!(error.abs() < tolerance, "d = {pitch}, L0 = {outer_scale}: {error:e}");
    }
}

/// The factor γ of the pupil's gradient: its square, layer by layer.
#[test]
fn cone_gradient_differs_by_the_square_of_the_cone_factor() {
    let layers = vec![layer(9000.0, 1.0, 25.0)];
    let atmosphere = Atmosphere::new(FRIED_PARAMETER, WAVELENGTH, layers).unwrap();
    let star = Source::new(0.0, 0.0, 90e3).unwrap();
    let array = LensletArray::new(4, 0.5).unwrap();
    let with =
        |gradient| direct(&SlopeProblem::new(&atmosphere, &array, &[star], gradient).unwrap());
    let ratio = with(ConeGradient::Pupil).values() / with(ConeGradient::Layer).values();
    for ((_, _, a, b, j, i), ratio) in ratio.indexed_iter() {
        // Nothing vanishes exactly but the mixed components at displacements along an axis.
        let vanishes = a != b && (j == 3 || i == 3);
        assert!(
            (ratio - 0.81).abs() < 1e-12 || (vanishes && ratio.is_nan()),
            "{a}{b} {j} {i}: {ratio}"
        );
    }
}

/// The spectral method converges to the direct one as its sampling is refined.
#[test]
fn spectral_converges_to_direct() {
    for gradient in [ConeGradient::Pupil, ConeGradient::Layer] {
        let problem = lopsided(9, gradient, [0.0, 0.0]);
        let exact = direct(&problem);
        let coarse = difference(&exact, &spectral(&problem, 2048, 4));
        let fine = difference(&exact, &spectral(&problem, 3072, 16));
        assert!((5e-4..2e-3).contains(&coarse), "κ = 4: {coarse:e}");
        assert!(fine < 6e-5, "κ = 16: {fine:e}");
    }
}

/// The covariance knows only differences of directions.
#[test]
fn a_shift_of_all_sources_changes_nothing() {
    let here = direct(&lopsided(7, ConeGradient::Pupil, [0.0, 0.0]));
    let there = direct(&lopsided(7, ConeGradient::Pupil, [40.0, -25.0]));
    assert!(difference(&here, &there) < 1e-11);
}

/// Exchanging two sources transposes their block; rotating by a quarter turn exchanges x and y.
#[test]
fn exchange_and_rotation() {
    let layers = vec![layer(2000.0, 0.5, 20.0), layer(10_000.0, 0.5, 40.0)];
    let atmosphere = Atmosphere::new(FRIED_PARAMETER, WAVELENGTH, layers).unwrap();
    let array = LensletArray::new(6, 0.4).unwrap();
    let star = |zenith: f64, azimuth: f64| Source::new(zenith * ARCSEC, azimuth, 90e3).unwrap();
    let pair = |sources: &[Source]| {
        direct(&SlopeProblem::new(&atmosphere, &array, sources, ConeGradient::Pupil).unwrap())
    };
    let (first, second) = (star(20.0, 0.3), star(35.0, 1.1));
    let (forward, backward) = (pair(&[first, second]), pair(&[second, first]));
    let quarter = std::f64::consts::FRAC_PI_2;
    let turned = pair(&[star(20.0, 0.3 + quarter), star(35.0, 1.1 + quarter)]);
    let variance = forward.variance();
    for ((p, q, a, b, j, i), value) in forward.values().indexed_iter() {
        let exchanged = backward.values()[[1 - p, 1 - q, a, b, j, i]];
        assert!((value - exchanged).abs() < 1e-11 * variance);
        // (x, y) → (−y, x): the component along x becomes that along y, that along y minus that along x.
        let sign = if a == b { 1.0 } else { -1.0 };
        let rotated = sign * turned.values()[[p, q, 1 - a, 1 - b, i, 10 - j]];
        assert!((value - rotated).abs() < 1e-11 * variance, "{p}{q}{a}{b} {j} {i}");
    }
}

/// The matrix of a lopsided mask is symmetric and, being a covariance, has a Cholesky factor.
#[test]
fn dense_matrix_is_symmetric_and_positive() {
    let covariance = direct(&lopsided(6, ConeGradient::Pupil, [0.0, 0.0]));
    let mask = |skip: usize| Array2::from_shape_fn((6, 6), |(j, i)| (3 * j + 2 * i) % skip != 1);
    let order = SlopeOrder::new(&[mask(4), mask(5), mask(7)]);
    let mut matrix = covariance.dense(&order);
    assert_eq!(matrix, matrix.t());
    let size = matrix.nrows();
    // A pivot at rounding level would be no proof, so all pivots must stay above it.
    for k in 0..size {
        let pivot = matrix[[k, k]];
        assert!(pivot > 1e-9 * covariance.variance(), "pivot {k}: {pivot:e}");
        for i in k + 1..size {
            let factor = matrix[[i, k]] / pivot;
            for j in k + 1..size {
                matrix[[i, j]] -= factor * matrix[[k, j]];
            }
        }
    }
}

/// The corners of the range that the method promises: finite, no larger than the variance, for every entry.
#[test]
fn extreme_systems_stay_finite() {
    for (lenslets, pitch, outer_scale, offset) in [
        (1, 0.01, 1.0, 500.0),
        (200, 0.01, 1000.0, 0.35),
        (2, 5.0, 1.0, 7.3),
        (200, 5.0, f64::INFINITY, 500.0),
        (3, 0.01, f64::INFINITY, 500.0),
    ] {
        let atmosphere =
            Atmosphere::new(FRIED_PARAMETER, WAVELENGTH, vec![layer(10_000.0, 1.0, outer_scale)]);
        let stars = [0.0, offset / 10_000.0].map(|zenith| Source::star(zenith, 0.7).unwrap());
        let array = LensletArray::new(lenslets, pitch).unwrap();
        let problem =
            SlopeProblem::new(&atmosphere.unwrap(), &array, &stars, ConeGradient::Pupil).unwrap();
        let covariance = direct(&problem);
        let limit = covariance.variance() * (1.0 + 1e-12);
        assert!(covariance.values().iter().all(|value| value.abs() <= limit));
    }
}

/// What the command line runs is what the library computes: the shipped systems pose their problems.
#[test]
fn shipped_systems_pose_their_problems() {
    for (name, sources, lenslets, layers) in
        [("small", 1, 20, 1), ("keck-lgs", 4, 20, 7), ("elt", 6, 80, 10)]
    {
        let system = System::from_file(format!("book/systems/{name}.toml")).unwrap();
        let problem = slope_problem(&system).unwrap();
        assert_eq!(
            (problem.sources(), problem.lenslets(), problem.layers().len()),
            (sources, lenslets, layers)
        );
    }
}
