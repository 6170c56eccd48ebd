// Tangled from book/src/foundations.md: edit there, or here and run cargo tangle stitch.
//! Linear operators and solvers, on processors and on devices.

// Modules of linear
pub mod operator;
pub mod matrix;
pub mod solver;
pub mod toeplitz;
pub mod interpolation;
