//! Draws the residuals of both solvers, with and without the preconditioner, into the folder that is given.

use lenslet::device::Engine;
use lenslet::estimation::{Circulant, Group};
use lenslet::linear::{BlockToeplitz, Diagonal, Operator, Solver, Stop, Sum};
use lenslet::model::System;
use lenslet::plan::Plan;
use lenslet::plot::Figure;
use lenslet::turbulence::{SlopeCovariancePlan, slope_problem};
use lenslet::watch::unwatched;
use rand::{SeedableRng, rngs::StdRng};
use rand_distr::{Distribution, StandardNormal};
use std::{error::Error, path::PathBuf, sync::Arc};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let system = System::from_file("book/systems/keck-lgs.toml")?;
    let plan = SlopeCovariancePlan::direct(slope_problem(&system)?);
    let covariance = plan.run(&Engine::default(), &unwatched)?;
    let valid = system.valid_lenslets();
    let noise: Vec<_> = system.guide_stars().iter().map(|star| star.noise.mean()).collect();
    let turbulence = Arc::new(BlockToeplitz::slopes(&covariance, &valid)?);
    let size = turbulence.rows();
    let diagonal = Arc::new(Diagonal::new(vec![noise[0]; size]));
    let a = Sum::new(vec![turbulence.clone() as Arc<dyn Operator<f64>>, diagonal])?;
    let stars: Vec<_> = (0..noise.len()).collect();
    let (covariance, noise, valid) = (&covariance, &noise[..], &valid[..]);
    let p = Circulant::new(&[Group { covariance, noise, valid, stars: &stars }])?;

    // Smooth slopes of the right variance, with noise.
    let mut random = StdRng::seed_from_u64(1);
    let white: Vec<f64> = (0..2 * size).map(|_| StandardNormal.sample(&mut random)).collect();
    let (mut b, mut scratch) = (vec![0.0; size], vec![0.0; turbulence.scratch(1)]);
    turbulence.apply(&white[..size], &mut b, &mut scratch);
    let mean_square = b.iter().map(|b| b * b).sum::<f64>() / size as f64;
    let scale = (covariance.variance() / mean_square).sqrt();
    for (b, white) in b.iter_mut().zip(&white[size..]) {
        *b = scale * *b + noise[0].sqrt() * white;
    }

    let history = |solver: Solver, p: Option<&dyn Operator<f64>>| -> Result<_, Box<dyn Error>> {
        let stop = Stop { tolerance: 1e-6, iterations: 1000 };
        let solved = solver.solve(&a, p, &b, &mut vec![0.0; size], &stop, &mut |_, _| Ok(()))?;
        println!("{solver:?}, {}: {}", p.is_some(), solved.iterations);
        let points = solved.history.into_iter().enumerate();
        Ok(points.map(|(k, residual)| (k as f64, residual)).collect::<Vec<_>>())
    };
    let (cg, minres) = (Solver::ConjugateGradients, Solver::Minres);
    Figure::new()
        .x_label("iterations")
        .y_label("relative residual")
        .log_y()
        .line("conjugate gradients, preconditioned", history(cg, Some(&p))?)
        .line("MINRES, preconditioned", history(minres, Some(&p))?)
        .dashes("conjugate gradients", history(cg, None)?)
        .dashes("MINRES", history(minres, None)?)
        .save(folder.join("convergence.svg"))?;
    Ok(())
}
