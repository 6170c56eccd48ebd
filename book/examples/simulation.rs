//! Draws the error of a simulation's slope covariance over the lags, for three samplings, into the folder that is given.

use lenslet::device::Engine;
use lenslet::estimation::{Quantity, Sampling, Simulation};
use lenslet::model::System;
use lenslet::plan::Plan;
use lenslet::plot::Figure;
use lenslet::turbulence::{SlopeCovariancePlan, slope_problem};
use lenslet::watch::unwatched;
use std::{error::Error, path::PathBuf, time::Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let keck = System::from_file("book/systems/keck-lgs.toml")?;
    let plan = SlopeCovariancePlan::direct(slope_problem(&keck)?);
    let exact = plan.run(&Engine::default(), &unwatched)?;
    let lenslets = exact.lenslets();
    let simulation = Simulation::new(&keck)?;
    let start = Instant::now();
    for seed in 0..10 {
        simulation.realisation(seed);
    }
    println!(
        "frequencies {:?}, {:.0} ms a draw",
        simulation.frequencies(),
        start.elapsed().as_secs_f64() * 100.0
    );

    // Errors of ⟨s_x s_x⟩ along x, and between the first and the third star.
    let keck = keck.to_builder().targets([]).build()?;
    let mut figure = Figure::new()
        .x_label("lag along x [m]")
        .y_label("error / variance")
        .log_y()
        .y_range(1e-7, 1e-2);
    for (period, name) in [(1.1, "P_max = 1.1 r"), (1.5, "P_max = 1.5 r"), (2.5, "P_max = 2.5 r")] {
        let sampling = Sampling { period, ..Sampling::default() };
        let simulation = Simulation::with_sampling(&keck, &sampling)?;
        let error = |lag: usize| {
            let look = |star, lenslet| Quantity::Slope { star, axis: 0, lenslet };
            let simulated = simulation.covariance(look(0, [9, 0]), look(2, [9, lag]));
            let exact_value = exact.values()[[0, 2, 0, 0, lenslets - 1, lenslets - 1 + lag]];
            (simulated.unwrap_or(f64::NAN) - exact_value).abs() / exact.variance()
        };
        println!("{name}: frequencies {:?}", simulation.frequencies());
        figure =
            figure.line(name, (0..lenslets).map(|lag| (0.5 * lag as f64, error(lag).max(1e-9))));
    }
    figure.save(folder.join("simulation.svg"))?;
    Ok(())
}
