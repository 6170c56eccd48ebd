// Tangled from book/src/conventions.md: edit there, or here and run cargo tangle stitch.
#![doc = include_str!("../README.md")]
#![deny(missing_docs)]
#![deny(unsafe_code)]

// Modules of the crate
pub mod error;
pub mod units;
pub mod special;
pub mod quadrature;
pub mod radial_table;
pub mod atmosphere;
pub mod source;
pub mod lenslet_array;
pub mod phase;
pub mod slope;
pub mod device;
pub mod phase_gpu;
pub mod spectral;
pub mod edges;
pub mod direct;
pub mod direct_gpu;
pub mod spectral_error;
pub mod wavefront;
pub mod disc;
pub mod wavefront_direct;
pub mod wavefront_gpu;
pub mod wavefront_spectral;
pub mod spectral_gpu;
pub mod dense;
pub mod operator;
pub mod toeplitz;
pub mod interpolation;
pub mod solver;
pub mod circulant;
pub mod device_operator;
pub mod matrix_gpu;
mod lattices_gpu;
mod plain_sum_gpu;
mod short_transforms;
mod transforms_gpu;
pub mod toeplitz_gpu;
pub mod solver_gpu;
pub mod between_transforms;
pub mod located;
pub mod system;
pub mod covariance;
pub mod estimate;
pub mod estimate_gpu;
pub mod simulation;
pub mod plot;
pub mod map;
pub mod arrays;
pub mod reading;
pub mod output;
pub mod bench;
pub mod bench_gpu;
#[cfg(test)]
mod kernel_builds;
mod summary;
mod estimate_command;
pub mod cli;

pub use error::{Error, Invalid, Result};
