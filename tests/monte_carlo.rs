//! Monte-Carlo check of slopes, as in the chapter of that name.

#[allow(dead_code)]
#[path = "../book/examples/monte-carlo.rs"]
mod simulation;

use lenslet::model::ConeGradient;
use simulation::{ENTRIES, Failure, predict, simulate};

/// Differences from a prediction in standard errors.
fn deviations(measured: &[(f64, f64)], predicted: &[f64]) -> Vec<f64> {
    measured.iter().zip(predicted).map(|((mean, error), value)| (mean - value) / error).collect()
}

/// One experiment serves both gradients: the pupil's prediction is its mean, and the layer's is not.
#[test]
fn a_sensor_measures_the_gradient_along_the_pupil_and_not_along_the_layer() -> Result<(), Failure> {
    let measured = simulate(60, 4)?;
    let pupil = predict(ConeGradient::Pupil)?;
    // The experiment must be able to tell: the variance is known to better than a percent, and worse than perfect.
    let relative_error = measured[0].1 / pupil[0];
    assert!((5e-4..1e-2).contains(&relative_error), "{relative_error}");

    let chance = deviations(&measured, &pupil);
    let chi_squared: f64 = chance.iter().map(|z| z * z).sum();
    println!("from the pupil's prediction, in standard errors: {chance:.1?}");
    assert!(chance.iter().all(|z| z.abs() < 4.0), "{chance:.1?}");
    assert!((2.0..36.0).contains(&chi_squared), "{chi_squared} for {} entries", ENTRIES.len());

    let refusals = deviations(&measured, &predict(ConeGradient::Layer)?);
    println!("from the layer's prediction, in standard errors: {refusals:.1?}");
    // Both variances are far too large in the prediction; xx and yy between the stars are wrong as well.
    for k in [0, 1, 5, 6] {
        assert!(refusals[k].abs() > 5.0, "{:?}: {:.1}", ENTRIES[k], refusals[k]);
    }
    assert!(refusals[0] < 0.0 && refusals[1] < 0.0, "{refusals:.1?}");
    Ok(())
}
