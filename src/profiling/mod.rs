// Tangled from book/src/measured-maps.md: edit there, or here and run cargo tangle stitch.
//! Profiles of turbulence from slopes: Learn & Apply.

// Modules of profiling
pub(crate) mod covariance_maps;
pub use covariance_maps::{MapLayout, MapPair, SlopeMaps};
pub(crate) mod fit;
pub use fit::{
    FitWarning, LearnOptions, LearnPlan, Learned, LearnedValue, Parameter, ParameterGroup,
    SlopeChecks,
};
pub(crate) mod slope_checks;
pub use slope_checks::UNITS_OF_SLOPES;
