//! Writes and draws the run times on a graphics processor, from the figures measured there, into the folder that is given.

use lenslet::bench::gpu::{Case, Sheet};
use lenslet::plot::Figure;
use std::{error::Error, fs, path::PathBuf};

/// Printed by `lenslet bench --device cuda --json` on the machine that it names.
const MEASURED: &str = include_str!("../measured/h200.json");

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let sheet: Sheet = serde_json::from_str(MEASURED)?;
    fs::write(folder.join("gpu-times.txt"), sheet.table())?;
    let over_arrays = |kind: &str, time: fn(&Case) -> f64| {
        let prefix = format!("{kind}, N = ");
        let point = |case: &Case| {
            let lenslets = case.name.strip_prefix(&prefix)?.parse().ok()?;
            Some((lenslets, 1e3 * time(case)))
        };
        sheet.cases.iter().filter_map(point).collect::<Vec<(f64, f64)>>()
    };
    let original = |case: &Case| case.stripped.unwrap_or(case.original);
    let single = |case: &Case| case.time[1];
    Figure::new()
        .title(&format!("{}, {}, single precision", sheet.device, sheet.date))
        .x_label("lenslets across, N")
        .y_label("time [µs]")
        .y_range(1.0, 1e5)
        .log_y()
        .dashes(
            "slope covariance, original without its copy",
            over_arrays("slope covariance", original),
        )
        .line("slope covariance", over_arrays("slope covariance", single))
        .dashes("wavefront–slope, original", over_arrays("wavefront–slope", original))
        .line("wavefront–slope", over_arrays("wavefront–slope", single))
        .dashes("product, original", over_arrays("product", original))
        .line("product", over_arrays("product", single))
        .save(folder.join("gpu-times.svg"))?;
    Ok(())
}
