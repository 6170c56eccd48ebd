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
