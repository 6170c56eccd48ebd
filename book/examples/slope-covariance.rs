//! Draws which blocks of the slope covariance are computed, and which follow by symmetry, into the folder that is given.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::{error::Error, path::PathBuf};

const SOURCES: usize = 3;
const CELL: i32 = 64;
const MARGIN: i32 = 6;

/// Colour of a block: computed, copied, or turned by half a turn.
fn colour(p: usize, q: usize, a: usize, b: usize) -> RGBColor {
    let (computed, copied, turned) =
        (RGBColor(86, 180, 233), RGBColor(225, 225, 225), RGBColor(248, 211, 150));
    match (p, q) {
        (0, 0) if a <= b => computed,
        _ if p == q => copied,
        _ if p > q => turned,
        _ if a <= b => computed,
        _ => copied,
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("sans-serif")?;
    let side = 2 * SOURCES as i32 * CELL + 2 * MARGIN;
    let path = folder.join("slope-symmetry.svg");
    let area = SVGBackend::new(&path, (side as u32, side as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let label =
        ("sans-serif", 15).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Center));
    for (row, column) in (0..4 * SOURCES * SOURCES).map(|k| (k / (2 * SOURCES), k % (2 * SOURCES)))
    {
        let (p, a, q, b) = (row / 2, row % 2, column / 2, column % 2);
        let (x, y) = (MARGIN + column as i32 * CELL, MARGIN + row as i32 * CELL);
        let block = [(x + 1, y + 1), (x + CELL - 1, y + CELL - 1)];
        area.draw(&Rectangle::new(block, colour(p, q, a, b).filled()))?;
        let name = format!("{}{} {}{}", p + 1, q + 1, ["x", "y"][a], ["x", "y"][b]);
        area.draw(&Text::new(name, (x + CELL / 2, y + CELL / 2), label.clone()))?;
    }
    for k in 0..=SOURCES as i32 {
        let (at, end) = (MARGIN + 2 * k * CELL, side - MARGIN);
        area.draw(&PathElement::new([(at, MARGIN), (at, end)], BLACK.stroke_width(2)))?;
        area.draw(&PathElement::new([(MARGIN, at), (end, at)], BLACK.stroke_width(2)))?;
    }
    area.present()?;
    Ok(())
}
