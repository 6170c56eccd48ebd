// Tangled from book/src/from-slopes-to-wavefronts.md: edit there, or here and run cargo tangle stitch.
//! Tomography: covariance matrices, reconstructors, and the residual wavefront error.

// Modules of tomography
pub(crate) mod covariance_matrix;
pub use covariance_matrix::{CovarianceMatrices, add_noise};
pub(crate) mod reconstructor;
pub use reconstructor::{
    Actuator, ErrorSink, ReconstructedQuantity, Reconstruction, ReconstructorOptions,
    ReconstructorPlan, error_covariance,
};
pub(crate) mod error;
pub use error::WavefrontError;
pub(crate) mod point_errors;
pub use point_errors::{PointErrors, PointErrorsPlan};
pub(crate) mod error_decomposition;
pub use error_decomposition::{ErrorParts, ErrorSplit, noise_error};
