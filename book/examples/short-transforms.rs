//! Draws which banks of shared memory neighbouring threads meet in a transform, into the folder that is given.

use lenslet::plot::Figure;
use std::{error::Error, path::PathBuf};

/// Rows of a transform of 168 numbers, and numbers of a run; a row has four runs.
const ROWS: usize = 6;
const RUN: usize = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    // Sixteen threads, and sixteen complex numbers of single precision that fill the banks.
    let banks = |place: &dyn Fn(usize) -> usize| {
        (0..16).map(|thread| (thread as f64, (place(thread) % 16) as f64)).collect::<Vec<_>>()
    };
    let (filled, bare) = (39, 28);
    let second = |pitch| move |thread| thread / RUN * pitch + thread % RUN;
    let third = |pitch| move |thread| thread % ROWS * pitch + thread / ROWS * RUN;
    Figure::new()
        .x_label("thread")
        .y_label("bank")
        .x_range(-0.5, 15.5)
        .y_range(-0.5, 19.5)
        .line("second step", banks(&second(filled)))
        .points("second step, without filling", banks(&second(bare)))
        .points("third step", banks(&third(filled)))
        .save(folder.join("banks.svg"))?;
    Ok(())
}
