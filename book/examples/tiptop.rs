//! Draws where sections of TIPTOP's files go, and two budgets side by side, into the folder that is given.

use plotters::coord::Shift;
use plotters::prelude::*;
use std::{error::Error, path::Path, path::PathBuf};

const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(230, 159, 0);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

fn main() -> Drawn {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("DejaVu Sans")?;
    sections(&folder.join("tiptop-files.svg"))?;
    budgets(&folder.join("tiptop-budget.svg"))
}

fn write(area: &Area, text: &str, at: (i32, i32), size: i32, colour: &RGBColor) -> Drawn {
    let style = ("DejaVu Sans", size).into_font().color(colour);
    Ok(area.draw(&Text::new(text.to_string(), at, style))?)
}

fn fill(area: &Area, from: (i32, i32), to: (i32, i32), style: ShapeStyle) -> Drawn {
    Ok(area.draw(&Rectangle::new([from, to], style))?)
}

/// Sections on the left, tables on the right, and what goes where.
fn sections(path: &Path) -> Drawn {
    let area = SVGBackend::new(path, (760, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let left = [
        "[telescope]",
        "[atmosphere]",
        "[sources_HO] [sensor_HO]",
        "[sources_LO] [sensor_LO]",
        "[sensor_Focus]",
        "[sources_science]",
        "[DM]",
        "[RTC]",
        "[sensor_science]",
    ];
    let right = [
        "[telescope]",
        "[atmosphere]",
        "[lenslet_array]",
        "[[guide_star]]",
        "[[target]]",
        "[correction] [[mirror]]",
        "[loop]",
        "[image]",
    ];
    let (row, top) = (38, 40);
    let (at_left, at_right) =
        (|k: usize| top + row * k as i32, |k: usize| top + 20 + row * k as i32);
    write(&area, "TIPTOP", (60, 12), 16, &BLACK)?;
    write(&area, "a system file", (500, 12), 16, &BLACK)?;
    // What matters most is drawn full, and what a section adds to a table drawn faint.
    let ways: [(usize, usize, f64); 18] = [
        (0, 0, 1.0),
        (0, 1, 0.35),
        (0, 3, 0.35),
        (0, 7, 0.35),
        (1, 1, 1.0),
        (1, 3, 0.35),
        (2, 2, 1.0),
        (2, 3, 1.0),
        (3, 3, 1.0),
        (4, 3, 1.0),
        (5, 4, 1.0),
        (5, 7, 0.35),
        (6, 4, 0.35),
        (6, 5, 1.0),
        (7, 6, 1.0),
        (7, 3, 0.35),
        (8, 7, 1.0),
        (0, 2, 0.35),
    ];
    for (from, to, share) in ways {
        let (start, end) = ((270, at_left(from) + 13), (486, at_right(to) + 13));
        let way = (0..=40).map(|k| {
            let t = f64::from(k) / 40.0;
            let ease = t * t * (3.0 - 2.0 * t);
            let x = f64::from(start.0) + t * f64::from(end.0 - start.0);
            let y = f64::from(start.1) + ease * f64::from(end.1 - start.1);
            (x.round() as i32, y.round() as i32)
        });
        let style = BLUE.mix(share).stroke_width(2);
        area.draw(&PathElement::new(way.collect::<Vec<_>>(), style))?;
        area.draw(&Circle::new(end, 4, BLUE.mix(share).filled()))?;
    }
    for (k, name) in left.iter().enumerate() {
        let y = at_left(k);
        fill(&area, (40, y), (270, y + 27), ORANGE.mix(0.25).filled())?;
        write(&area, name, (50, y + 6), 15, &BLACK)?;
    }
    for (k, name) in right.iter().enumerate() {
        let y = at_right(k);
        fill(&area, (490, y), (720, y + 27), BLUE.mix(0.2).filled())?;
        write(&area, name, (502, y + 6), 15, &BLACK)?;
    }
    Ok(area.present()?)
}

/// The terms of both programs for both instruments, in nanometres, from the measured table.
fn budgets(path: &Path) -> Drawn {
    let area = SVGBackend::new(path, (760, 380)).into_drawing_area();
    area.fill(&WHITE)?;
    let text = std::fs::read_to_string("book/measured/tiptop-budgets.txt")?;
    let terms = ["fitting", "temporal", "both", "noise"];
    let names = ["fitting", "temporal", "tomographic", "noise"];
    let (base, scale) = (330.0, 1.75);
    for (i, instrument) in ["MUSE_LTAO", "HarmoniLTAO_1"].into_iter().enumerate() {
        let left = 60 + 360 * i as i32;
        write(&area, instrument, (left + 90, 14), 16, &BLACK)?;
        for (k, term) in terms.into_iter().enumerate() {
            let line = text.lines().find(|line| line.trim_start().starts_with(term));
            let line = line.ok_or_else(|| format!("{term} is not in the table"))?;
            let numbers: Vec<f64> =
                line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            let place = left + 80 * k as i32;
            for (j, colour) in [ORANGE, BLUE].into_iter().enumerate() {
                let value = numbers[2 * i + j];
                let x = place + 30 * j as i32;
                let y = (base - scale * value) as i32;
                fill(&area, (x, y), (x + 28, base as i32), colour.mix(0.8).filled())?;
                write(&area, &format!("{value:.0}"), (x + 3, y - 15), 12, &BLACK)?;
            }
            write(&area, names[k], (place - 2, base as i32 + 6), 12, &BLACK)?;
        }
        area.draw(&PathElement::new(
            vec![(left - 8, base as i32), (left + 310, base as i32)],
            BLACK.stroke_width(1),
        ))?;
    }
    for (k, (name, colour)) in [("TIPTOP", ORANGE), ("lenslet", BLUE)].into_iter().enumerate() {
        let x = 290 + 100 * k as i32;
        fill(&area, (x, 356), (x + 14, 370), colour.mix(0.8).filled())?;
        write(&area, name, (x + 20, 356), 14, &BLACK)?;
    }
    Ok(area.present()?)
}
