//! What the crate promises to whoever uses it, one module a subject; a single program, which is compiled and linked once.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests

mod allocation;
mod cli;
mod gpu;
mod licences;
mod monte_carlo;
mod monte_carlo_estimate;
mod oracle_quadrature;
mod oracle_wavefront;
mod physics;
mod snapshots;
mod spectral;
mod system_file;
mod wavefront_spectral;
