//! Draws the run time of the direct method against the number of lenslets into the folder that is given.

use lenslet::device::Engine;
use lenslet::model::{LensletArray, System};
use lenslet::plan::Plan;
use lenslet::plot::Figure;
use lenslet::turbulence::{SlopeCovariancePlan, SlopeProblem};
use lenslet::watch::unwatched;
use std::{error::Error, path::PathBuf, time::Instant};

/// The run time in seconds with the first `stars` guide stars and `n` × `n` lenslets, the shortest of those that fit into a moment.
fn time(system: &System, stars: usize, n: u32) -> Result<f64, lenslet::Error> {
    let array = LensletArray::new(n as usize, system.lenslet_array().pitch())?;
    let sources: Vec<_> =
        system.guide_stars().iter().take(stars).map(|star| star.sensor.source).collect();
    let problem = SlopeProblem::new(system.atmosphere(), &array, &sources, system.cone_gradient())?;
    let plan = SlopeCovariancePlan::direct(problem);
    let begin = Instant::now();
    let mut shortest = f64::INFINITY;
    while begin.elapsed().as_millis() < 70 {
        let start = Instant::now();
        plan.run(&Engine::default(), &unwatched)?;
        shortest = shortest.min(start.elapsed().as_secs_f64());
    }
    Ok(shortest)
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let root = env!("CARGO_MANIFEST_DIR");
    let system = System::from_file(format!("{root}/../systems/elt.toml"))?;
    let sizes = [10, 14, 20, 28, 40, 56, 80];
    let mut figure = Figure::new()
        .x_label("lenslets across the array, N")
        .y_label("run time [s]")
        .log_x()
        .log_y();
    let mut first = 0.0;
    for (name, stars) in [("one star", 1), ("six stars", 6)] {
        let mut times = Vec::new();
        for n in sizes {
            times.push((f64::from(n), time(&system, stars, n)?));
        }
        first = times[0].1;
        figure = figure.points(name, times);
    }
    let lags = |n: u32| f64::from(2 * n - 1);
    let equal_price = sizes.map(|n| (f64::from(n), first * (lags(n) / lags(sizes[0])).powi(2)));
    figure.dashes("as (2N − 1)²", equal_price).save(folder.join("direct-times.svg"))?;
    Ok(())
}
