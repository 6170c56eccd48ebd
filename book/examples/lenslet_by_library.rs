// Tangled from book/src/smallest-lenslet.md: edit there, or here and run cargo tangle stitch.
//! The errors of the smallest Lenslet, computed by the library.

use lenslet::prelude::*;
use lenslet::tomography::PointErrorsPlan;

// Errors of four lenslets by the library
/// Residual wavefront errors in metres, towards targets at angles in arcsec from the guide star.
pub fn errors(outer_scale: f64, angles: &[f64]) -> Result<Vec<f64>> {
    let air = Atmosphere::new(0.125, 500e-9, vec![Layer::new(10e3, 1.0, outer_scale)])?;
    let (array, star) = (LensletArray::new(2, 0.5)?, Source::star(0.0, 0.0)?);
    let targets = angles.iter().map(|angle| Source::star(angle * ARCSEC, 0.0));
    let system = System::builder(air, array)
        .guide_stars([GuideStar::at_rest(star, array, 0.04e-12)?])
        .targets(targets.collect::<std::result::Result<Vec<_>, _>>()?)
        .phase(Some(PhaseGrid::new(3, 1, 0.0)?))
        .build()?;
    let plan = PointErrorsPlan::new(&system, ReconstructorOptions::default().errors_only(true))?;
    let residual = plan.run(&Engine::default(), &unwatched)?;
    Ok(residual.errors.iter().map(|error| error.rms).collect())
}
