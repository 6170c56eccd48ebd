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
pub mod files;
pub mod model;
pub mod turbulence;
pub mod tomography;
pub mod plot;
pub mod bench;
pub mod command;

pub use error::{Error, Invalid, Result};
