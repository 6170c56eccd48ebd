// Tangled from book/src/foundations.md: edit there, or here and run cargo tangle stitch.
//! Files: arrays in NumPy's and in the astronomers' format, tables with places.

// Modules of files
pub mod draft;
pub mod arrays;
pub mod reading;
pub mod fits;
pub mod located;
