// Tangled from book/src/turbulence.md: edit there, or here and run cargo tangle stitch.
//! Covariances of turbulence: of the phase, of slopes, and of wavefronts with slopes.

// Modules of turbulence
pub mod direct;
pub mod spectral;
pub mod phase;
pub mod slope;
pub mod edges;
pub mod wavefront;
pub mod disc;
pub mod turned;
pub mod dense;
pub mod plan;
#[cfg(feature = "files")]
pub mod arrays;
