// Tangled from book/src/conventions.md: edit there, or here and run cargo tangle stitch.
#![doc = include_str!("../README.md")]
//!
//! ## The rooms of the library
//!
// Rooms and their tasks
//! | task | begins with |
//! |---|---|
//! | describe a system, or read its file | [`model::System`] |
//! | compute the covariances that it asks for, in any form | [`turbulence::CovariancePlan`] |
//! | … of slopes alone, or of wavefronts with slopes | [`turbulence::SlopeCovariancePlan`], [`turbulence::WavefrontCovariancePlan`] |
//! | … between any sensors, entry by entry | [`turbulence::dense::between`] |
//! | multiply by a covariance without writing it down | [`linear::BlockToeplitz`] |
//! | solve a symmetric system | [`linear::conjugate_gradients`], [`linear::minres`] |
//! | estimate wavefronts from slopes | [`tomography::EstimatePlan`] |
//! | reconstruct slopes of targets, and tell the error that is left | `tomography::ReconstructorPlan`, `tomography::WavefrontError` |
//! | take errors of slopes to a mirror | [`correction::Mirror`], `correction::Projector` |
//! | correct targets by one mirror or several, and tell what is left | `correction::Correction` |
//! | tell what a mirror is too coarse for, and what comes too late | [`correction::Fitting`], [`correction::Bandwidth`] |
//! | make an image of a telescope and a structure function | [`image::Aperture`], [`image::OpticalTransfer`] |
//! | make images of one covariance of strokes after another | `image::Exposures` |
//! | make the images of a system's targets, with budgets of their errors | `image::ImagingPlan` |
//! | read a crystal and cut a specimen from it | [`specimen::Crystal`] |
//! | scan a probe over a specimen | [`electrons::StemPlan`] |
//! | send waves through slices, all or some of a probe's beams | [`electrons::Multislice`], [`electrons::Prism`] |
//! | draw slopes of a simulated sky | [`tomography::SimulationPlan`] |
//! | choose who computes, watch and stop them | [`device::Engine`], [`device::Watch`] |
//! | write and read arrays | `files::Arrays`, `files::read_array` |
//! | draw results | `plot::Figure`, `plot::plot_covariance`, `plot::plot_wavefronts` |
//!
//! [`prelude`] has the names that most programs use.
#![deny(missing_docs)]
#![deny(unsafe_code)]

// Modules of the crate
pub mod error;
pub mod units;
#[cfg_attr(not(feature = "files"), allow(dead_code))] // most intervals are of keys of files
pub(crate) mod plausible;

pub mod numerics;
#[cfg_attr(not(feature = "factorise"), allow(dead_code))] // ranks share factorisations alone
pub mod device;
pub mod linear;
#[cfg(feature = "files")]
pub mod files;
pub mod model;
#[cfg_attr(not(feature = "factorise"), allow(dead_code))] // ranks share factorisations alone
pub mod turbulence;
pub mod tomography;
pub mod correction;
pub mod image;
pub mod specimen;
pub mod electrons;
#[cfg(feature = "plot")]
pub mod plot;
#[cfg(feature = "command")]
pub mod bench;
#[cfg(feature = "command")]
pub mod command;

// What unit tests take from the library
#[cfg(all(test, in_repository))]
extern crate lenslet as _;

pub use error::{Error, Invalid, Result};

// Names that most programs use
/// What most programs use: `use lenslet::prelude::*;`.
pub mod prelude {
    // Names of systems and their parts
    pub use crate::device::{Device, Engine, Watch, silent};
    pub use crate::error::{Error, Invalid, Result};
    pub use crate::model::{
        Atmosphere, ConeGradient, Focus, GuideStar, Layer, LensletArray, Noise,
    };
    pub use crate::model::{PhaseGrid, Pupil, Sensor, SlopeModel, SlopeOrder, Source, System};
    pub use crate::model::{SystemBuilder, TipTilt, Validity};
    pub use crate::numerics::Precision;
    pub use crate::tomography::{EstimateOptions, EstimatePlan, Estimates, Estimator};
    #[cfg(feature = "factorise")]
    pub use crate::tomography::{
        Inversion, Reconstruction, ReconstructorOptions, ReconstructorPlan, WavefrontError,
    };
    pub use crate::tomography::{Simulated, SimulationOptions, SimulationPlan};
    pub use crate::turbulence::{CovarianceOptions, CovariancePlan, Covariances, Form, Method};
    pub use crate::units::{ARCSEC, DEGREE};
}
