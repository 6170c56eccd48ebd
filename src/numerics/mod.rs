// Tangled from book/src/foundations.md: edit there, or here and run cargo tangle stitch.
//! Special functions, rules of integration, tables: mathematics without a machine.

// Modules of numerics
pub(crate) mod special;
pub use special::{bessel_k, erfc};
pub(crate) mod quadrature;
pub use quadrature::{Rule, gauss_legendre, gauss_trapezium, gauss_triangle};
pub(crate) mod radial_table;
pub use radial_table::RadialTable;
pub(crate) mod fft;
pub(crate) mod real;
pub use real::{Precision, Real};
