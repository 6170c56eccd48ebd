// Tangled from book/src/correction-and-image.md: edit there, or here and run cargo tangle stitch.
//! Correction: deformable mirrors, their fitting and aliasing errors, and servo lag.

// Modules of correction
pub(crate) mod influence;
pub(crate) mod mirror;
pub use mirror::Mirror;
#[cfg(feature = "factorise")]
pub(crate) mod projector;
#[cfg(feature = "factorise")]
pub use projector::Projector;
#[cfg(feature = "factorise")]
pub(crate) mod modes;
#[cfg(feature = "factorise")]
pub use modes::{Corrected, Correction, CorrectionMode, CorrectionOptions};
#[cfg(feature = "factorise")]
mod command_matrix;
pub(crate) mod correctable_band;
pub mod fitting;
pub use fitting::Fitting;
#[cfg(feature = "factorise")]
pub(crate) mod in_band_covariance;
#[cfg(feature = "factorise")]
pub use in_band_covariance::low_covariances;
#[cfg(feature = "factorise")]
pub(crate) mod shared_mirrors;
#[cfg(feature = "factorise")]
pub use shared_mirrors::{ResidualStrokes, SharedMirrors, SharedOptions};
pub mod servo_lag;
pub use servo_lag::ServoLag;
#[cfg(feature = "factorise")]
pub(crate) mod loop_covariances;
