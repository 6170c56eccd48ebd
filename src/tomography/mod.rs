// Tangled from book/src/from-slopes-to-wavefronts.md: edit there, or here and run cargo tangle stitch.
//! Tomography: wavefronts from slopes.

// Modules of tomography
pub mod operators;
pub mod interpolation;
pub mod circulant;
pub mod estimate;
pub mod simulation;
