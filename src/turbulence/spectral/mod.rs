// Tangled from book/src/turbulence.md: edit there, or here and run cargo tangle stitch.
//! Covariances through the spectrum, as most codes compute them, and estimates of their error.

// Modules of the spectral methods
pub mod slope;
pub use slope::SpectralSampling;
pub(crate) mod error;
pub use error::{Chosen, TOLERANCE};
pub mod wavefront;
pub(crate) mod gpu;
