// Tangled from book/src/turbulence.md: edit there, or here and run cargo tangle stitch.
//! Covariances of turbulence: of the phase, of slopes, and of wavefronts with slopes.

// Modules of turbulence
pub mod direct;
pub mod spectral;
pub(crate) mod phase;
pub use phase::{VonKarman, hessian, kolmogorov_constant};
pub(crate) mod slope;
pub use slope::{PairCovariance, ProjectedLayer, SlopeCovariance, SlopeProblem};
pub(crate) mod edges;
pub use edges::gradient_covariances;
pub(crate) mod wavefront;
pub use wavefront::{WavefrontLayer, WavefrontProblem, WavefrontSlope};
pub(crate) mod disc;
pub use disc::DiscAverage;
pub(crate) mod aligned_footprints;
pub(crate) mod rotated_footprints;
pub mod cross_covariance;
pub mod edge_midpoint;
pub(crate) mod blocks;
pub use blocks::{CrossBlocks, LatticeGroups};
pub(crate) mod cost_model;
pub(crate) mod plan;
pub use plan::{
    CovarianceOptions, CovariancePlan, Covariances, Form, GroupWavefrontSlopes, Method,
    SlopeCovariancePlan, SlopeSlope, WavefrontCovariancePlan, WavefrontSlopes, slope_problem,
    wavefront_problem,
};
pub(crate) mod arrays;
pub use arrays::slope_table;
