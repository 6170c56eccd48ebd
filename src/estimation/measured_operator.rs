// Tangled from book/src/measured-covariance.md: edit there, or here and run cargo tangle stitch.
//! The covariance of the measurements as an operator.

// Imports of the measured covariance
use super::blocks::{MeasuredCovariance, SharedOperator, with_noise};
use super::estimate::{Grouped, PosedGroup, blind, groups};
use crate::device::Engine;
use crate::error::Error;
use crate::linear::Dense;
use crate::linear::operator::Operator;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::noise::SlopeNoise;
use crate::model::system::System;
use crate::turbulence::plan::{CovarianceOptions, CovariancePlan, dense_slopes};
use crate::watch::Watch;
use std::sync::Arc;

// Operator of the measurements
/// Covariance of the slopes of all guide stars, their noise included and without the modes that are removed, in the form that suits the system: (n, n), rad².
///
/// # Errors
/// `Invalid` where there is no valid lenslet; `Memory` where a dense matrix does not fit; `Cancelled`; what a device says.
///
/// ```
/// use lenslet::{device::Engine, estimation::measured_covariance, model::System, watch::unwatched};
/// let system = System::from_file("book/systems/small-moao.toml")?;
/// let covariance = measured_covariance(&system, &Engine::default(), &unwatched)?;
/// let (mut x, mut y) = (vec![0.0; 232], vec![0.0; 232]);
/// x[3] = 1.0;
/// covariance.apply(&x, &mut y, &mut vec![0.0; covariance.scratch(1)]);
/// let (row, variance) = (y[100], y[3]);
/// (x[3], x[100]) = (0.0, 1.0);
/// covariance.apply(&x, &mut y, &mut vec![0.0; covariance.scratch(1)]);
/// assert!((y[3] - row).abs() < 1e-9 * variance && variance > 0.0); // it is symmetric
/// # Ok::<(), lenslet::Error>(())
/// ```
pub fn measured_covariance(
    system: &System,
    engine: &Engine,
    watch: &dyn Watch,
) -> Result<Arc<dyn Operator<f64>>, Error> {
    let plan = CovariancePlan::new(system, CovarianceOptions::default().slopes_only())?;
    let valid = system.valid_lenslets();
    let noise = SlopeNoise::new(system.guide_stars(), &SlopeOrder::new(&valid));
    let removed = system.removed_modes();
    // Slopes in the form of the plan
    let slopes: SharedOperator<f64> = if plan.form() == "dense" {
        Arc::new(Dense::new(dense_slopes(system, engine, watch)?))
    } else {
        let posed = groups(system, &plan)?;
        let of_group = |group: &PosedGroup| group.compute((system, &valid), engine, watch);
        let computed = posed.iter().map(of_group).collect::<Result<Vec<_>, _>>()?;
        let all: Vec<_> = computed.iter().map(Grouped::group).collect();
        let rectangles = plan.blocks().map(|blocks| blocks.rectangles(system, engine, watch));
        let rectangles = rectangles.transpose()?;
        let (groups, rectangles) = (&all[..], rectangles.as_ref());
        MeasuredCovariance { groups, rectangles, valid: &valid, noise: &noise, removed: &removed }
            .operators(false)?
            .0
    };
    let measured = with_noise(slopes, noise)?;
    Ok(match blind(&removed, measured.clone())? {
        Some([without, _]) => without,
        None => measured,
    })
}
