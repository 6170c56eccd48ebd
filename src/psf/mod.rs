// Tangled from book/src/optical-transfer.md: edit there, or here and run cargo tangle stitch.
//! Optical transfer functions and point-spread functions behind the residual wavefront.

// Modules of psf
pub(crate) mod transforms;
pub(crate) mod optical_transfer;
pub use optical_transfer::{Aperture, Edges, OpticalTransfer, TelescopeTransfer, Vane};
pub(crate) mod point_spread;
pub use point_spread::{PointSpread, Ring, Width};
pub(crate) mod structure_function;
pub use structure_function::Actuators;
pub(crate) mod budget;
pub use budget::{Budget, BudgetTerm};
pub(crate) mod options;
pub use options::{CameraOptions, ErrorTerm, Exposure, StructureFunctionModel};
#[cfg(feature = "factorise")]
pub(crate) mod exposures;
#[cfg(feature = "factorise")]
pub use exposures::Exposures;
#[cfg(feature = "factorise")]
pub(crate) mod residual;
pub(crate) mod field;
pub use field::Field;
pub(crate) mod files;
pub use files::Images;
#[cfg(feature = "factorise")]
pub(crate) mod plan;
#[cfg(feature = "factorise")]
pub use plan::{PsfOptions, PsfPlan, PsfResult, TargetImage};
#[cfg(feature = "factorise")]
pub(crate) mod loop_simulation;
#[cfg(feature = "factorise")]
pub use loop_simulation::{
    LoopFrame, LoopSimulation, LoopSimulationOptions, LoopSimulationPlan, Simulated,
};
