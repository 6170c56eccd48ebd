// Tangled from book/src/conventions.md: edit there, or here and run cargo tangle stitch.
#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![deny(unsafe_code)]

// Modules of the crate
pub mod error;
pub mod units;

pub mod numerics;
pub mod device;
pub mod linear;
#[cfg(feature = "files")]
pub mod files;
pub mod model;
pub mod turbulence;
pub mod tomography;
#[cfg(feature = "plot")]
pub mod plot;
#[cfg(feature = "command")]
pub mod bench;
#[cfg(feature = "command")]
pub mod command;

pub use error::{Error, Invalid, Result};

// Names that most programs use
/// What most programs use: `use lenslet::prelude::*;`.
pub mod prelude {
    // Names of systems and their parts
    pub use crate::device::{Device, Watch, engine::Engine, silent};
    pub use crate::error::{Error, Invalid, Result};
    pub use crate::model::atmosphere::{Atmosphere, Layer};
    pub use crate::model::lenslet_array::{LensletArray, Pupil, SlopeOrder, Validity};
    pub use crate::model::noise::{GuideStar, Noise};
    pub use crate::model::sensor::Sensor;
    pub use crate::model::source::{ConeGradient, Source};
    pub use crate::model::system::System;
    pub use crate::model::wavefront_grid::PhaseGrid;
    pub use crate::numerics::real::Precision;
    pub use crate::tomography::estimate::{EstimateOptions, Estimates};
    pub use crate::tomography::estimator::{EstimatePlan, Estimator};
    pub use crate::tomography::simulation::{Simulated, SimulationOptions, SimulationPlan};
    pub use crate::turbulence::plan::{CovarianceOptions, CovariancePlan, Covariances};
    pub use crate::turbulence::plan::{Form, Method};
    pub use crate::units::{ARCSEC, DEGREE};
}
