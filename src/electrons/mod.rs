// Tangled from book/src/electrons.md: edit there, or here and run cargo tangle stitch.
//! Electron optics: probes, potentials, multislice and PRISM, and what detectors make of the wave.

// Modules of electrons
pub(crate) mod wave_grid;
pub use wave_grid::WaveGrid;
#[cfg(feature = "files")]
pub mod sample_file;
