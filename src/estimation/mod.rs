// Tangled from book/src/from-slopes-to-wavefronts.md: edit there, or here and run cargo tangle stitch.
//! Estimates of wavefronts from slopes, iterative and without a matrix; simulated slopes.

// Modules of estimation
pub(crate) mod operators;
pub(crate) mod interpolation;
pub(crate) mod circulant;
pub use circulant::{Circulant, Group};
pub(crate) mod blocks;
pub(crate) mod inversion;
pub use inversion::Inversion;
pub(crate) mod estimate;
pub use estimate::{EstimateOptions, Estimates};
pub(crate) mod measured_operator;
pub use measured_operator::measured_covariance;
pub(crate) mod matrix_estimator;
pub use matrix_estimator::{
    MatrixEstimates, MatrixEstimator, MatrixEstimatorPlan, ReconstructorMatrix,
    ReconstructorOutput, StoredReconstructor,
};
pub(crate) mod frame_method;
pub(crate) mod estimator;
pub use estimator::{EstimatePlan, Estimator};
pub(crate) mod simulation;
pub use simulation::{
    EvolvingTurbulence, Quantity, Realisation, Sampling, Simulated, Simulation, SimulationOptions,
    SimulationPlan,
};
