//! The range in which a result is as exact as promised: its ends are measured against closed forms, and beyond them nothing is
//! computed without a word.

use lenslet::device::Engine;
use lenslet::model::{
    Atmosphere, ConeGradient, GuideStar, Layer, LensletArray, PhaseGrid, Sensor, Source, System,
};
use lenslet::plan::Plan;
use lenslet::turbulence::{
    CovarianceOptions, CovariancePlan, DiscAverage, Method, SlopeCovariancePlan, SlopeProblem,
    VonKarman, WavefrontProblem, cross_covariance, direct, spectral,
};
use lenslet::watch::unwatched;
use std::f64::consts::PI;

/// λ/2π in the tests, m.
const PER_RADIAN: f64 = 1e-6;

fn air(layers: Vec<Layer>) -> Atmosphere {
    Atmosphere::new(1.0, 2.0 * PI * PER_RADIAN, layers).unwrap()
}

fn star() -> Source {
    Source::star(0.0, 0.0).unwrap()
}

/// ∫B du and ∫uB du over 0 … ∞, for r0 = 1 m: from ∫x^μ K_ν dx = 2^(μ−1) Γ((1+μ+ν)/2) Γ((1+μ−ν)/2).
fn moments(outer_scale: f64) -> [f64; 2] {
    let gamma_5_6 = 1.128_787_029_908_126;
    let (gamma_4_3, gamma_11_6) = (0.892_979_511_569_249_2, 5.0 / 6.0 * gamma_5_6);
    let variance = VonKarman::new(outer_scale).covariance(0.0);
    let unit = variance / (2f64.powf(-1.0 / 6.0) * gamma_5_6);
    let length = outer_scale / (2.0 * PI);
    let first = 2f64.powf(-1.0 / 6.0) * gamma_4_3 * PI.sqrt();
    [unit * length * first, unit * length * length * 2f64.powf(5.0 / 6.0) * gamma_11_6]
}

/// Where the outer scale is much shorter than a lenslet, only what is near to an edge is alike, and covariances have closed
/// forms: of slopes at lag zero, at the next lag along and across, at the diagonal one; of a wavefront on an edge with the slope.
#[test]
fn short_outer_scales_have_closed_forms() {
    for (ratio, tolerance) in [(0.05, 1e-12), (1e-2, 1e-11), (1.0001e-3, 4e-11)] {
        for side in [1e-3, 0.7, 30.0] {
            let [first, second] = moments(ratio * side);
            let air = air(vec![Layer::new(0.0, 1.0, ratio * side)]);
            let array = LensletArray::new(2, side).unwrap();
            let problem = SlopeProblem::new(&air, &array, &[star()], ConeGradient::Pupil).unwrap();
            let slopes =
                SlopeCovariancePlan::direct(problem).run(&Engine::default(), &unwatched).unwrap();
            let variance = 4.0 * (side * first - second) / side.powi(4);
            let expected = [
                ([0, 0, 1, 1], variance),
                ([0, 0, 1, 2], -0.5 * variance),
                ([0, 0, 0, 1], 2.0 * second / side.powi(4)),
                ([0, 1, 2, 2], -0.5 * PI * second / side.powi(4)),
                ([1, 1, 1, 2], 2.0 * second / side.powi(4)),
            ];
            for ([a, b, j, i], expected) in expected {
                let found = slopes.values()[[0, 0, a, b, j, i]] / PER_RADIAN.powi(2);
                let error = (found - expected) / variance;
                assert!(error.abs() < tolerance, "L0 = {ratio} D, {a}{b} at {j},{i}: {error:e}");
            }
            let grid = PhaseGrid::new(2, 2, 0.0).unwrap();
            let (array, sources) = (LensletArray::new(1, side).unwrap(), [star()]);
            let sources = (&sources[..], &sources[..]);
            let problem =
                WavefrontProblem::new(&air, &array, sources, grid, ConeGradient::Pupil).unwrap();
            // Points at ±D/4 are inside; those of one grid of three, step D/2, stand on the edges and corners.
            let inside = direct::wavefront::covariance(&problem, &unwatched).unwrap();
            let grid = PhaseGrid::new(3, 2, 0.0).unwrap();
            let problem =
                WavefrontProblem::new(&air, &array, sources, grid, ConeGradient::Pupil).unwrap();
            let wavefront = direct::wavefront::covariance(&problem, &unwatched).unwrap();
            let entry =
                |j: usize, i: usize| wavefront.lattices()[0][[0, 0, 0, j, i]] / PER_RADIAN.powi(2);
            let unit = 2.0 * first / side.powi(2);
            // The lenslet's centre half a side to the left of the point: the point is on its right edge, and the slope is positive.
            for (j, i, share) in [(1, 0, 1.0), (1, 1, 0.0), (1, 2, -1.0), (0, 0, 0.5), (2, 2, -0.5)]
            {
                let error = entry(j, i) / unit - share;
                assert!(error.abs() < tolerance, "L0 = {ratio} D, wavefront {j},{i}: {error:e}");
            }
            assert!(inside.largest() / PER_RADIAN.powi(2) < tolerance.max(1e-6) * unit);
            // A laser star and a natural one see the ground alike, but share no lattice.
            let laser = Source::new(0.0, 0.0, 90e3).unwrap();
            let array = LensletArray::new(2, side).unwrap();
            let [natural, laser] = [star(), laser].map(|star| [Sensor::at_rest(star, array)]);
            let (all, gradient) = ([array.valid(None, Default::default())], ConeGradient::Pupil);
            let dense = cross_covariance::slope_cross_covariance(
                &air,
                (&natural, &all),
                (&laser, &all),
                gradient,
                &unwatched,
            )
            .unwrap();
            let across = 2.0 * second / side.powi(4);
            for (column, expected) in [(0, variance), (1, -0.5 * variance), (2, across)] {
                let error = (dense[[0, column]] / PER_RADIAN.powi(2) - expected) / variance;
                assert!(error.abs() < 1e-10, "L0 = {ratio} D, dense 0,{column}: {error:e}");
            }
        }
    }
}

/// Below the range nothing is computed, in any form, and the message names layer, outer scale and side.
#[test]
fn shorter_outer_scales_are_refused_by_name() {
    let layers = vec![Layer::new(0.0, 0.5, 25.0), Layer::new(9e3, 0.5, 4.9e-4)];
    let air = air(layers);
    let array = LensletArray::new(2, 0.5).unwrap();
    let problem = SlopeProblem::new(&air, &array, &[star()], ConeGradient::Pupil);
    let refused = problem.unwrap_err().to_string();
    for word in ["layers[1].outer_scale = 0.00049", "at least 5.0e-4 m", "0.5 m", "9000 m"] {
        assert!(refused.contains(word), "{word} in {refused}");
    }
    let grid = PhaseGrid::new(3, 1, 0.0).unwrap();
    let sources = ([star()], [star()]);
    let (targets, stars) = (&sources.0[..], &sources.1[..]);
    assert!(
        WavefrontProblem::new(&air, &array, (targets, stars), grid, ConeGradient::Pupil).is_err()
    );
    let (sensor, valid) =
        ([Sensor::at_rest(star(), array)], [array.valid(None, Default::default())]);
    let gradient = ConeGradient::Pupil;
    assert!(
        cross_covariance::slope_covariance(&air, &sensor, &valid, gradient, &unwatched).is_err()
    );
    let points = (targets, grid, 0.5);
    assert!(
        cross_covariance::wavefront_slope(&air, points, &sensor, &valid, gradient, &unwatched)
            .is_err()
    );
    // A laser star's footprint is smaller, and the same layer is within the range.
    let laser = [Source::new(0.0, 0.0, 90e3).unwrap()];
    assert!(SlopeProblem::new(&air, &array, &laser, ConeGradient::Pupil).is_ok());
}

/// Two layers, two stars and a target in a direction of its own; a disc of some radius around it, rad.
fn system(disc_radius: f64, height: f64) -> System {
    let air = air(vec![Layer::new(0.0, 0.6, 25.0), Layer::new(9e3, 0.4, 12.0)]);
    let array = LensletArray::new(3, 0.5).unwrap();
    let star = |zenith, azimuth| {
        let source = Source::new(zenith, azimuth, height).unwrap();
        GuideStar::at_rest(source, array, 1e-14).unwrap()
    };
    System::builder(air, array)
        .guide_stars([star(1e-4, 0.3), star(7e-5, 2.0)])
        .targets([Source::star(3e-5, 4.0).unwrap(), Source::star(0.0, 0.0).unwrap()])
        .phase(Some(PhaseGrid::new(4, 1, disc_radius).unwrap()))
        .build()
        .unwrap()
}

/// All covariances with the wavefronts, by both methods and in both forms.
fn wavefronts(disc_radius: f64) -> Vec<Vec<f64>> {
    let system = system(disc_radius, f64::INFINITY);
    let plan = CovariancePlan::new(&system, CovarianceOptions::default()).unwrap();
    let problem = plan.wavefront().unwrap().problem().clone();
    let sampling = spectral::SpectralSampling::new(64, 2).unwrap();
    let by_spectrum = spectral::wavefront::covariance(&problem, &sampling, &unwatched).unwrap();
    let (targets, pitch) = (system.targets(), system.wavefront_pitch());
    let (grid, valid) = (system.wavefront_grid().unwrap(), system.valid_lenslets());
    let (air, points) = (system.atmosphere(), (targets, grid, pitch));
    let (sensors, gradient) = (system.sensors(), ConeGradient::Pupil);
    let dense =
        cross_covariance::wavefront_slope(air, points, &sensors, &valid, gradient, &unwatched)
            .unwrap();
    let covariances = plan.run(&Engine::default(), &unwatched).unwrap();
    let directly = direct::wavefront::covariance(&problem, &unwatched).unwrap();
    let flat = |lattices: &[ndarray::Array5<f64>]| lattices.iter().flatten().copied().collect();
    let own = covariances.wavefront_wavefront.unwrap();
    vec![
        flat(directly.lattices()),
        flat(by_spectrum.lattices()),
        dense.iter().copied().collect(),
        own.iter().copied().collect(),
    ]
}

/// A disc of directions that shrinks to a point does so without a jump, through radii whose squares are no numbers.
#[test]
fn a_shrinking_disc_becomes_a_point() {
    let points = wavefronts(0.0);
    let exponents =
        [3, 4, 5, 6, 8, 10, 12, 13, 14, 15, 16, 18, 20, 30, 80, 150, 155, 160, 200, 300, 310];
    let radii = exponents.map(|k| 10f64.powi(-k)).into_iter().chain([5e-324, 1e-323]);
    for radius in radii {
        // The radius at the layer against the step of the points, half a metre.
        let allowed = 1e-12 + 25.0 * (9e3 * radius / 0.5).powf(5.0 / 3.0);
        for (kind, (discs, points)) in wavefronts(radius).iter().zip(&points).enumerate() {
            let largest = points.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
            let error =
                discs.iter().zip(points).map(|(disc, point)| (disc - point).abs() / largest);
            let worst = error.fold(0.0, |worst: f64, e| if e.is_nan() { e } else { worst.max(e) });
            assert!(worst < allowed, "{radius:e} rad, kind {kind}: {worst:e}");
        }
    }
}

/// A disc far wider than outer scale and lenslet is refused with the names of all of them.
#[test]
fn a_vast_disc_is_refused() {
    let system = system(0.1, f64::INFINITY);
    let refused =
        CovariancePlan::new(&system, CovarianceOptions::default()).unwrap_err().to_string();
    for word in
        ["phase.disc_radius = 0.1 rad", "layers[1]", "9000 m", "outer scale of 12 m", "0.5 m"]
    {
        assert!(refused.contains(word), "{word} in {refused}");
    }
    let (sensors, valid) = (system.sensors(), system.valid_lenslets());
    let points = (system.targets(), system.wavefront_grid().unwrap(), 0.5);
    let gradient = ConeGradient::Pupil;
    let matrix = cross_covariance::wavefront_slope(
        system.atmosphere(),
        points,
        &sensors,
        &valid,
        gradient,
        &unwatched,
    );
    assert!(matrix.is_err());
}

/// A layer just below the stars would need a vast lattice, and is refused at once; its slopes and the dense form are not.
#[test]
fn the_tip_of_a_cone_is_refused() {
    let system = system(0.0, 9e3 + 1e-4);
    let refused =
        CovariancePlan::new(&system, CovarianceOptions::default()).unwrap_err().to_string();
    for word in ["layers[1].altitude = 9000", "guide stars at 9000.0001 m", "pupil", "lags"] {
        assert!(refused.contains(word), "{word} in {refused}");
    }
    let slopes = CovariancePlan::new(&system, CovarianceOptions::default().slopes_only()).unwrap();
    assert!(slopes.run(&Engine::default(), &unwatched).is_ok());
    let form = CovarianceOptions::default().form(lenslet::turbulence::Form::Dense);
    let dense = CovariancePlan::new(&system, form).unwrap();
    assert!(dense.run(&Engine::default(), &unwatched).is_ok());
}

/// An estimate of the spectral error is a number, or reported in words.
#[test]
fn spectral_errors_are_never_nan() {
    // One point and one lenslet around it: by symmetry all entries vanish.
    let air = air(vec![Layer::new(0.0, 1.0, 25.0)]);
    let array = LensletArray::new(1, 0.5).unwrap();
    let (grid, sources) = (PhaseGrid::new(1, 1, 0.0).unwrap(), [star()]);
    let sources = (&sources[..], &sources[..]);
    let problem = WavefrontProblem::new(&air, &array, sources, grid, ConeGradient::Pupil).unwrap();
    let chosen = spectral::wavefront::choose(&problem);
    assert_eq!(chosen.error_estimate, f64::INFINITY);
    let told = chosen.to_string();
    assert!(told.contains("error unknown") && !told.contains("inf"), "{told}");
    // Far apart, near and far outer scales, with lasers close above a layer.
    for (pitch, outer_scale) in
        [(1e-9, 1e15), (1e-3, 1e-6), (1e3, 1e15), (0.5, f64::INFINITY), (1e9, 1e6)]
    {
        for (lenslets, height) in [(1, f64::INFINITY), (3, 9.1e3), (2, 9e3 * (1.0 + 1e-12))] {
            let layers = vec![Layer::new(0.0, 0.5, outer_scale), Layer::new(9e3, 0.5, outer_scale)];
            let air = self::air(layers);
            let array = LensletArray::new(lenslets, pitch).unwrap();
            let stars = [0.0, 0.1].map(|zenith| Source::new(zenith, 0.2, height).unwrap());
            let problem = SlopeProblem::new(&air, &array, &stars, ConeGradient::Pupil).unwrap();
            let plan = SlopeCovariancePlan::new(problem, Method::Spectral(None)).unwrap();
            let error = plan.chosen().unwrap().error_estimate;
            assert!(error > 0.0, "{pitch} {outer_scale} {height}: {error}");
            let grid = PhaseGrid::new(2, 1, 0.0).unwrap();
            let targets = [star()];
            let sources = (&targets[..], &stars[..]);
            if let Ok(problem) =
                WavefrontProblem::new(&air, &array, sources, grid, ConeGradient::Pupil)
            {
                let chosen = spectral::wavefront::choose(&problem);
                assert!(chosen.error_estimate > 0.0, "{pitch} {outer_scale} {height}: {chosen}");
            }
        }
    }
}

/// A target is a direction: another height than infinity is refused by the builder as by a file.
#[test]
fn targets_at_a_height_are_refused() {
    let system = system(0.0, f64::INFINITY);
    let low = Source::new(0.0, 0.0, 400e3).unwrap();
    let refused = system.to_builder().targets([star(), low]).build().unwrap_err().to_string();
    assert_eq!(refused, "target[1].height = 400000.0: expected inf, as a target is a direction");
    let file = "[atmosphere]\nr0 = 0.15\nwavelength = 500e-9\nouter_scale = 25\n\
                layers = [{ altitude = 0, fraction = 1 }]\n[lenslet_array]\nlenslets = 2\npitch = 0.5\n\
                [[guide_star]]\n[[target]]\nheight = inf\n";
    assert!(System::from_toml(file, "x.toml").is_ok());
}

/// Long outer scales end in Kolmogorov's law, at any pitch: 0.1622428 λ² d^(−1/3) r0^(−5/3), less a part of some (d/L0)^(1/3).
#[test]
fn long_outer_scales_end_in_a_power_law() {
    for (pitch, outer_scale) in
        [(1e-9, 1e15), (1e-3, 1e15), (1e6, f64::INFINITY), (1e-9, f64::INFINITY)]
    {
        let air = air(vec![Layer::new(0.0, 1.0, outer_scale)]);
        let array = LensletArray::new(20, pitch).unwrap();
        let problem = SlopeProblem::new(&air, &array, &[star()], ConeGradient::Pupil).unwrap();
        let slopes =
            SlopeCovariancePlan::direct(problem).run(&Engine::default(), &unwatched).unwrap();
        let kolmogorov = 0.162_242_8 * (2.0 * PI * PER_RADIAN).powi(2) * pitch.powf(-1.0 / 3.0);
        let less = 1.0 - slopes.variance() / kolmogorov;
        let part = (pitch / outer_scale).cbrt();
        assert!((less - 1.5 * part).abs() < 0.2 * part + 2e-7, "{pitch} {outer_scale}: {less:e}");
    }
}

/// Tables of any disc under any outer scale are made in bounded time, and end at the variance where they reach beyond both.
#[test]
fn tables_of_discs_are_bounded() {
    for (outer_scale, radius) in [(1e-9, 0.0), (1e-9, 1e-6), (1e-9, 1.0), (1e-4, 1.0), (1e15, 1e-6)]
    {
        let (phase, reach) = (VonKarman::new(outer_scale), 1e5);
        let start = std::time::Instant::now();
        let once = DiscAverage::new(&phase, radius, reach);
        // The hardest case takes seconds, and once is enough for it.
        let twice = (outer_scale * 1e6 > radius).then(|| DiscAverage::twice(&phase, radius, reach));
        let seconds = start.elapsed().as_secs_f64();
        assert!(seconds < 60.0, "L0 = {outer_scale}, R = {radius}: {seconds} s");
        for half_structure in
            [Some(once), twice].iter().flatten().map(|disc| disc.half_structure(reach))
        {
            let expected = phase.half_structure_and_half_mean(reach).0;
            assert!(
                (half_structure / expected - 1.0).abs() < 1e-9,
                "L0 = {outer_scale}, R = {radius}: {half_structure:e}"
            );
        }
    }
}
