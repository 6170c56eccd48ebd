// Tangled from book/src/crate.md: edit there, or here and run cargo tangle stitch.
//! Wave optics, exact and fast: adaptive-optics tomography and electron-microscope images.
//!
// Purpose of the crate
//! Lenslet computes, for **adaptive optics**, covariances of the slopes that Shack–Hartmann sensors measure under atmospheric turbulence, the
//! tomographic reconstructors and point-spread functions that follow from them, and budgets of wavefront errors; and for **electron microscopy**,
//! projected potentials of crystals and the STEM, 4D-STEM and HRTEM images that multislice and PRISM simulations give. The CPU computes in double or
//! single precision, and so do NVIDIA GPUs, one or several.
//!
//! A computation is described, planned and run. A [`model::System`] or an `electrons::sample_file::SampleFile` describes it; a plan checks the
//! description and reports memory and time; `run` takes a [`device::Engine`], which chooses the processor, and a [`watch::Watch`], which reports progress
//! and can cancel. Lengths are in metres and angles in radians; in electron optics lengths are in ångström and angles in mrad. The
//! [book](https://lenslet.github.io/lenslet) derives every equation and contains all of the code.
//!
//! # Modules
//!
// Table of the modules
//! | module | contents | begins with |
//! |---|---|---|
//! | [`model`] | atmosphere, guide stars, sensors, mirrors; system files | [`model::System`] |
//! | [`turbulence`] | covariances of slopes and wavefronts | [`turbulence::CovariancePlan`] |
//! | [`linear`] | Toeplitz products, factorisations, iterative solvers | [`linear::BlockToeplitz`], [`linear::minres`] |
//! | [`estimation`] | estimates of wavefronts without a matrix, stored reconstructors applied to frames, simulated slopes | [`estimation::EstimatePlan`], [`estimation::MatrixEstimatorPlan`], [`estimation::SimulationPlan`] |
//! | [`tomography`] | covariance matrices, reconstructors, residual wavefront errors | [`tomography::ReconstructorPlan`] |
//! | [`profiling`] | Learn & Apply: profiles fitted to slopes | [`profiling::LearnPlan`] |
//! | [`correction`] | deformable mirrors, fitting error, servo-lag error | [`correction::Mirror`], [`correction::Fitting`] |
//! | [`psf`] | point-spread functions, Strehl ratios, error budgets | [`psf::PsfPlan`], [`psf::Aperture`] |
//! | [`specimen`] | crystals from CIF and XYZ files, slices, frozen phonons, scattering factors | [`specimen::Crystal`] |
//! | [`formats`] | files of other programs: telemetry in AOT, parameters of TIPTOP, fields for ScopeSim, crystals in CIF and XYZ | [`formats::Imported`], [`formats::CrystalFile`] |
//! | [`electrons`] | potentials, probes, multislice, PRISM, detectors, scans, HRTEM | [`electrons::StemPlan`], [`electrons::Multislice`] |
//! | [`watch`] | progress and cancellation of a computation | [`watch::Watch`], [`watch::Observer`] |
//! | [`device`] | CPU threads and GPUs, memory | [`device::Engine`] |
//! | [`plan`] | description, memory and run time of a computation | [`plan::Plan`] |
//! | [`data`] | named arrays with dimensions, coordinates, units and attributes | [`data::DataSet`] |
//! | [`files`] | data sets in NPZ, FITS, HDF5 and other formats | [`files::Format`], [`files::read_array`] |
//! | [`plot`] | pictures of results, SVG or PNG | [`plot::Figure`] |
//! | [`view`] | pages of HTML that show results in a browser | [`view::Page`] |
//! | [`numerics`] | special functions, quadrature, tables, transforms | [`numerics::Precision`] |
//! | [`error`](mod@error) | errors with file, line, value and expectation | [`Error`], [`Invalid`] |
//! | [`units`] | arcseconds and degrees in radians | [`units::ARCSEC`] |
//! | [`bench`](mod@bench), [`command`] | run times, and the program `lenslet` | [`command::run`] |
//!
//! [`prelude`] holds the names that most programs use.
//!
//! # Examples
//!
// Examples of the crate
// Example of a covariance
//! **Covariance** of the slopes of one sensor. The outer scale of 30 m reduces the variance of a slope to 76 % of its value in Kolmogorov turbulence.
//!
//! ```
//! use lenslet::prelude::*;
//!
//! let system = System::from_file("book/systems/small.toml")?;
//! let plan = CovariancePlan::new(&system, CovarianceOptions::default())?;
//! let variance = plan.run(&Engine::default(), &unwatched)?.slope_slope.variance(); // rad²
//! let kolmogorov = 0.1622428 * 500e-9f64.powi(2) * 0.1f64.powf(-1.0 / 3.0) * 0.15f64.powf(-5.0 / 3.0);
//! assert!((variance / kolmogorov - 0.761653).abs() < 1e-5);
//! # Ok::<(), Error>(())
//! ```
//!
// Example of a reconstructor
//! **Reconstructor** of the slopes towards two targets, from the slopes of three guide stars, and the residual wavefront error of each.
//!
//! ```
//! use lenslet::prelude::*;
//!
//! let system = System::from_file("book/systems/small-moao.toml")?;
//! let plan = ReconstructorPlan::new(&system, ReconstructorOptions::default())?;
//! let reconstruction = plan.run(&Engine::default(), &unwatched)?;
//! let errors = reconstruction.wavefront_errors(&system)?;
//! let nanometres: Vec<f64> = errors.iter().map(|error| (1e9 * error.rms).round()).collect();
//! assert_eq!(nanometres, [163.0, 216.0]); // on the axis, and 30″ from it
//! # Ok::<(), Error>(())
//! ```
//!
// Example of a point-spread function
//! **Point-spread function** of the same instrument behind its deformable mirrors, at 1.65 µm.
//!
//! ```
//! use lenslet::prelude::*;
//!
//! let file = SystemFile::from_file("book/systems/small-moao.toml")?;
//! let plan = PsfPlan::new(&file.system()?, PsfOptions::from_system_file(&file)?)?;
//! let images = plan.run(&Engine::default(), &unwatched)?;
//! let strehl = images.targets.iter().map(|target| target.exposures[0].image.strehl);
//! assert_eq!(strehl.map(|ratio| (1e3 * ratio).round()).collect::<Vec<_>>(), [664.0, 534.0]); // per mille
//! # Ok::<(), Error>(())
//! ```
//!
// Example of a scan
//! **STEM**: high-angle annular dark field (HAADF) of silicon \[100\], 27 Å thick, with the probe on a column of atoms and between columns.
//!
//! ```
//! use lenslet::prelude::*;
//!
//! let text = "sample = { file = 'SI100.XYZ', tile = [2, 2, 5] }
//!     potential = { grid = [128, 128], slice_thickness = 1.3575 }
//!     beam = { energy_kev = 100.0, semi_angle = 20.0 }
//!     scan = { window = [[0.0, 1.3575], [0.0, 0.5]], step = [0.67875, 0.5] }
//!     detector.annuli = [[60.0, 90.0]]";
//! let plan = SampleFile::from_toml(text, "book/systems/silicon.toml")?.plan()?;
//! let scan = plan.run(&Engine::default(), &unwatched)?;
//! let annulus = plan.detectors().layout().annuli.start;
//! let [column, between] = [0, 1].map(|place| scan.mean[[place, annulus]]);
//! assert_eq!([column, between].map(|share| (1e4 * share).round()), [32.0, 9.0]); // 0.32 % and 0.09 % of the electrons
//! # Ok::<(), Error>(())
//! ```
//!
// Example of options as text
//! **Options and results as JSON**, for a job queue for example, with the feature `serde`. Fields have the units that their documentation states.
//! Those that are missing have their defaults, unknown ones are rejected, and so are values that a constructor rejects, with its message. A result of
//! operators, such as a covariance, is written through `to_data_set`.
//!
//! ```
//! use lenslet::{electrons::WaveGrid, prelude::*};
//!
//! let options: ReconstructorOptions = serde_json::from_str(r#"{ "method": "eigen", "filter": 1e-6, "delay": 0.002 }"#)?;
//! let system = System::from_file("book/systems/small-moao.toml")?;
//! let reconstruction = ReconstructorPlan::new(&system, options)?.run(&Engine::default(), &unwatched)?;
//! let answer = serde_json::to_string(&reconstruction.wavefront_errors(&system)?)?;
//! let errors: Vec<WavefrontError> = serde_json::from_str(&answer)?;
//! assert!(errors[0].rms < errors[1].rms && errors[0].variance[[0, 0]].is_nan()); // no lenslet in the corner
//!
//! let refused = |text: &str| serde_json::from_str::<WaveGrid>(text).unwrap_err().to_string();
//! let wrong = refused(r#"{ "points": [256, 255], "lengths": [21.72, 10.86] }"#);
//! assert!(wrong.starts_with("grid = 255: expected a multiple of 4 from 4 to 32768"));
//! assert!(refused(r#"{ "points": [256, 256], "sides": [1, 1] }"#).starts_with("unknown field `sides`"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
// Features of the crate
//! # Features
//!
//! All but `python` are on by default. Without them, `default-features = false`, the mathematics remains: 45 crates or fewer.
//!
//! | feature | adds |
//! |---|---|
//! | `files` | system and sample files, arrays on disk |
//! | `factorise` | dense factorisations: reconstructors, error covariances, point-spread functions |
//! | `plot` | pictures |
//! | `view` | pages that show results in a browser |
//! | `cuda` | NVIDIA GPUs, whose libraries are loaded at run time |
//! | `serde` | options and results as JSON and in other formats: `Serialize` and `Deserialize` |
//! | `command` | the program `lenslet` and its benchmarks |
//! | `python` | the compiled module of the Python package, for maturin; not on by default |
#![deny(missing_docs)]
#![deny(unsafe_code)]

// Modules and tests of the crate
// Modules of the crate
pub mod error;
pub mod units;
#[cfg_attr(not(feature = "files"), allow(dead_code))] // most intervals are of keys of files
pub(crate) mod plausible;

pub mod numerics;
pub mod watch;
#[cfg_attr(not(feature = "factorise"), allow(dead_code))] // ranks share factorisations alone
pub mod device;
pub mod plan;
#[cfg(feature = "serde")]
pub(crate) mod serial;
pub mod linear;
#[cfg_attr(not(feature = "files"), allow(dead_code))] // files write coordinates
pub mod data;
#[cfg(feature = "files")]
pub mod files;
pub mod model;
#[cfg_attr(not(feature = "factorise"), allow(dead_code))] // ranks share factorisations alone
pub mod turbulence;
pub mod estimation;
#[cfg(feature = "factorise")]
pub mod tomography;
#[cfg(feature = "factorise")]
pub mod profiling;
pub mod correction;
pub mod psf;
pub mod specimen;
#[cfg(feature = "files")]
pub mod formats;
pub mod electrons;
#[cfg(feature = "plot")]
pub mod plot;
#[cfg(feature = "view")]
pub mod view;
#[cfg(feature = "command")]
pub mod bench;
#[cfg(feature = "command")]
pub mod command;
#[cfg(feature = "python")]
mod python;

// Examples of the README
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

// What unit tests take from the library
#[cfg(all(test, in_repository))]
extern crate lenslet as _;

pub use error::{Error, Invalid, Result};
pub use ndarray;
pub use num_complex;
#[cfg(feature = "files")]
pub use toml;

// Names that most programs use
/// What most programs use: `use lenslet::prelude::*;`.
pub mod prelude {
    // Names of systems and their parts
    pub use crate::device::{Device, Engine};
    #[cfg(feature = "files")]
    pub use crate::electrons::sample_file::SampleFile;
    pub use crate::electrons::{HrtemPlan, StemOptions, StemPlan, StemReadings};
    pub use crate::error::{Error, Invalid, Result};
    #[cfg(feature = "factorise")]
    pub use crate::estimation::Inversion;
    pub use crate::estimation::{EstimateOptions, EstimatePlan, Estimates, Estimator};
    pub use crate::estimation::{Simulated, SimulationOptions, SimulationPlan};
    pub use crate::model::{
        Atmosphere, ConeGradient, Focus, GuideStar, Layer, LensletArray, Noise,
    };
    pub use crate::model::{PhaseGrid, Pupil, Sensor, SlopeModel, SlopeOrder, Source, System};
    pub use crate::model::{SystemBuilder, TipTilt, Validity};
    #[cfg(feature = "files")]
    pub use crate::model::{SystemFile, SystemFileBuilder};
    pub use crate::numerics::Precision;
    pub use crate::plan::Plan;
    #[cfg(feature = "factorise")]
    pub use crate::psf::{PsfOptions, PsfPlan, PsfResult};
    pub use crate::specimen::{Crystal, Specimen};
    #[cfg(feature = "factorise")]
    pub use crate::tomography::{
        Reconstruction, ReconstructorOptions, ReconstructorPlan, WavefrontError,
    };
    pub use crate::turbulence::{CovarianceOptions, CovariancePlan, Covariances, Form, Method};
    pub use crate::units::{ARCSEC, DEGREE};
    pub use crate::watch::{Watch, unwatched};
}
