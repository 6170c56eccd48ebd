// Tangled from book/src/from-slopes-to-wavefronts.md: edit there, or here and run cargo tangle stitch.
//! Tomography: wavefronts from slopes.

// Modules of tomography
pub(crate) mod operators;
pub(crate) mod interpolation;
pub(crate) mod circulant;
pub use circulant::{Circulant, Group};
pub(crate) mod blocks;
pub(crate) mod estimate;
pub use estimate::{EstimateOptions, Estimates};
pub(crate) mod inversion;
pub use inversion::Inversion;
pub(crate) mod estimator;
pub use estimator::{EstimatePlan, Estimator};
pub(crate) mod simulation;
pub use simulation::{
    EvolvingTurbulence, Quantity, Realisation, Sampling, Simulated, Simulation, SimulationOptions,
    SimulationPlan,
};
#[cfg(feature = "factorise")]
pub(crate) mod covariance_matrix;
#[cfg(feature = "factorise")]
pub use covariance_matrix::{CovarianceMatrices, add_noise};
#[cfg(feature = "factorise")]
pub(crate) mod reconstructor;
#[cfg(feature = "factorise")]
pub use reconstructor::{
    ErrorSink, Reconstruction, ReconstructorOptions, ReconstructorPlan, Truth, error_covariance,
};
#[cfg(feature = "factorise")]
pub(crate) mod error;
#[cfg(feature = "factorise")]
pub use error::WavefrontError;
#[cfg(feature = "factorise")]
pub(crate) mod point_errors;
#[cfg(feature = "factorise")]
pub use point_errors::{PointErrors, PointErrorsPlan};
#[cfg(feature = "factorise")]
pub(crate) mod measured_maps;
#[cfg(feature = "factorise")]
pub use measured_maps::{MapLayout, MapPair, SlopeMaps};
#[cfg(feature = "factorise")]
pub(crate) mod learning;
#[cfg(feature = "factorise")]
pub use learning::{
    FitWarning, LearnOptions, LearnPlan, Learned, LearnedValue, Parameter, ParameterGroup,
    SlopeChecks,
};
#[cfg(feature = "factorise")]
pub(crate) mod slope_checks;
#[cfg(feature = "factorise")]
pub use slope_checks::UNITS_OF_SLOPES;
#[cfg(feature = "factorise")]
pub(crate) mod error_decomposition;
#[cfg(feature = "factorise")]
pub use error_decomposition::{ErrorParts, ErrorSplit, noise_error};
