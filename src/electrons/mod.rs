// Tangled from book/src/electrons.md: edit there, or here and run cargo tangle stitch.
//! Electron optics: probes, potentials, multislice and PRISM, and what detectors make of the wave.

// Modules of electrons
pub(crate) mod wave_grid;
pub use wave_grid::WaveGrid;
pub(crate) mod potential;
pub use potential::{Potential, PotentialModel, PotentialOptions};
pub(crate) mod beam;
pub use beam::{Aberration, Aberrations, Beam, GeometricExtent, Probe, ProbeWave};
pub(crate) mod multislice;
pub use multislice::{Multislice, Transmission};
pub(crate) mod prism;
pub use prism::{BEAMS_ACROSS, MOST_LOST, Prism, SMatrix, window_fault};
pub(crate) mod detector;
pub use detector::{
    Annulus, DetectorOptions, Detectors, PatternOptions, Reading, ReadingLayout, Segmented,
};
pub(crate) mod scan;
pub use scan::{Scan, StemMethod, StemOptions, StemPlan, StemReadings, StemRunOptions};
pub(crate) mod scan_images;
pub use scan_images::{Edge, blurred, counted, integrated};
pub(crate) mod postprocess;
pub use postprocess::Finishing;
pub(crate) mod hrtem;
pub use hrtem::{HrtemImages, HrtemOptions, HrtemPlan};
pub use hrtem::{HrtemOptics, ImageSamples, plane_wave};
#[cfg(feature = "files")]
pub(crate) mod sample_keys;
#[cfg(feature = "files")]
pub use sample_keys::SAMPLE_KEYS;
#[cfg(feature = "files")]
pub mod sample_file;
#[cfg(feature = "files")]
mod kept_angles;
#[cfg(feature = "files")]
mod scan_setup;
#[cfg(feature = "files")]
pub use scan_setup::SampleSummary;
mod configurations;
pub use configurations::ConfigurationReadings;
#[cfg(feature = "files")]
mod checkpoint;
#[cfg(feature = "files")]
pub(crate) mod intermediates;
#[cfg(feature = "files")]
pub use intermediates::Intermediate;
pub(crate) mod comparison;
pub use comparison::{Comparison, DetectorError};
#[cfg(feature = "files")]
mod compared_waves;
