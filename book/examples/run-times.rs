//! Writes the run times of products, as measured on this machine, into the folder that is given.

use lenslet::bench::{ARRAYS, Matrix, product_tables, time_products};
use lenslet::device::silent;
use std::{error::Error, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let times = |matrix| -> Result<Vec<_>, lenslet::Error> {
        ARRAYS.iter().map(|&lenslets| time_products(matrix, lenslets, 9, &silent)).collect()
    };
    let table = product_tables(&times(Matrix::Slopes)?, &times(Matrix::WavefrontSlope)?);
    Ok(std::fs::write(folder.join("run-times.txt"), table)?)
}
