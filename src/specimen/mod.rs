// Tangled from book/src/electrons.md: edit there, or here and run cargo tangle stitch.
//! Specimens: atoms in a cell, what an electron sees of each, and how they tremble.

// Modules of specimen
pub(crate) mod atoms;
pub use atoms::{Atom, Element, Specimen};
pub(crate) mod crystal;
pub use crystal::{AtomColumn, BeamDirection, ClosePair, Crystal, TiledSpecimen, sides};
pub(crate) mod zone_axis;
pub use zone_axis::{Cut, zone_of_four};
#[cfg(feature = "files")]
pub(crate) mod space_groups;
pub(crate) mod slices;
pub use slices::Slicing;
pub(crate) mod phonons;
pub use phonons::Phonons;
pub(crate) mod scattering;
pub use scattering::{Factors, ScatteringFactor, VOLTS};
