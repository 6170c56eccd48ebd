//! Tests of the public interface, one module a subject; a single program, which is compiled and linked once.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests

mod allocation;
mod apply_reconstructor;
mod cli;
mod dependencies;
mod first_programs;
mod front_page;
mod gpu;
mod keys;
mod learn;
mod limits;
mod live;
mod memory;
mod moao_reference;
mod monte_carlo;
mod monte_carlo_estimate;
mod oracle_quadrature;
mod oracle_scan;
mod oracle_wavefront;
mod physics;
mod plans;
mod python;
mod range;
#[cfg(feature = "serde")]
mod serialisation;
mod snapshots;
mod spectral;
mod stem;
mod stem_signals;
mod system_file;
mod telemetry;
mod tiptop;
mod view_server;
mod wavefront_spectral;

#[test]
fn every_file_of_tests_is_a_module() {
    let here = include_str!("main.rs");
    for entry in std::fs::read_dir("tests").unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let is_module = here.contains(&format!("\nmod {name};\n"));
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        assert!(!is_source || name == "main" || is_module, "{name} is not compiled");
    }
}
