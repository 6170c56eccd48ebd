// Tangled from book/src/foundations.md: edit there, or here and run cargo tangle stitch.
//! Special functions, rules of integration, tables: mathematics without a machine.

// Modules of numerics
pub mod special;
pub mod quadrature;
pub mod radial_table;
pub mod real;
