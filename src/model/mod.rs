// Tangled from book/src/the-system.md: edit there, or here and run cargo tangle stitch.
//! The world that is modelled: atmosphere, sources, sensors and their noise, and the system file that describes them.

// Modules of model
pub mod atmosphere;
pub mod source;
pub mod lenslet_array;
pub mod sensor;
pub mod noise;
pub mod system;
pub mod wavefront_grid;
