// Tangled from book/src/hrtem.md: edit there, or here and run cargo tangle stitch.
//! HRTEM: images of a plane wave behind a specimen.

// Modules of plane-wave images
pub(crate) mod optics;
pub use optics::{HrtemOptics, ImageSamples, plane_wave};
pub(crate) mod plan;
pub use plan::{HrtemImages, HrtemOptions, HrtemPlan};
#[cfg(feature = "files")]
mod setup;
