// Tangled from book/src/turbulence.md: edit there, or here and run cargo tangle stitch.
//! Covariances in real space, exact to 1e-10.

// Modules of the direct methods
pub mod slope;
pub mod wavefront;
