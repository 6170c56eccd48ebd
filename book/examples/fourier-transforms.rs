//! Draws the cost of Fourier transforms of neighbouring lengths into the folder that is given.

use lenslet::plot::Figure;
use std::{error::Error, path::PathBuf};

/// Sum of the prime factors of a number: multiplications for each sample of a transform of this length.
fn cost(length: usize) -> usize {
    let (mut rest, mut sum) = (length, 0);
    for factor in 2..=length {
        while rest % factor == 0 {
            (rest, sum) = (rest / factor, sum + factor);
        }
    }
    sum
}

fn is_fast(length: &usize) -> bool {
    let others = [2, 3, 5].into_iter().fold(*length, |mut rest, prime| {
        while rest % prime == 0 {
            rest /= prime;
        }
        rest
    });
    others == 1
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let point = |length: usize| (length as f64, cost(length) as f64);
    let padded = |length: usize| {
        let next = (length..).find(is_fast).unwrap_or(length);
        (length as f64, (next * cost(next)) as f64 / length as f64)
    };
    Figure::new()
        .x_label("number of samples N")
        .y_label("multiplications for each sample")
        .log_y()
        .x_range(199.0, 301.0)
        .y_range(10.0, 1000.0)
        .points("length N", (200..=300).filter(|n| !is_fast(n)).map(point))
        .points(
            "length without other primes than 2, 3 and 5",
            (200..=300).filter(is_fast).map(point),
        )
        .line("zeros up to the next such length", (200..=300).map(padded))
        .save(folder.join("fourier-lengths.svg"))?;
    Ok(())
}
