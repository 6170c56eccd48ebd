// Tangled from book/src/from-slopes-to-wavefronts.md: edit there, or here and run cargo tangle stitch.
//! Tomography: wavefronts from slopes.

// Modules of tomography
pub(crate) mod operators;
pub(crate) mod interpolation;
pub(crate) mod circulant;
pub use circulant::{Circulant, Group};
pub(crate) mod estimate;
pub use estimate::{EstimateOptions, Estimates};
pub(crate) mod estimator;
pub use estimator::{EstimatePlan, Estimator};
pub(crate) mod simulation;
pub use simulation::{
    Draw, Look, Sampling, Simulated, Simulation, SimulationOptions, SimulationPlan,
};
