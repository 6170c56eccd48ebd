//! Draws a matrix that is dealt out, a meeting of ranks, and what ranks do for a reconstructor, into the folder that is given.

use plotters::coord::Shift;
use plotters::prelude::*;
use std::{error::Error, path::Path, path::PathBuf};

const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(230, 159, 0);
const GREEN: RGBColor = RGBColor(0, 158, 115);
const RED: RGBColor = RGBColor(213, 94, 0);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

fn main() -> Drawn {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("DejaVu Sans")?;
    dealt(&folder.join("several-devices.svg"))?;
    rendezvous(&folder.join("meetings.svg"))?;
    shared(&folder.join("reconstructor-ranks.svg"))
}

fn write(area: &Area, text: &str, at: (i32, i32), size: i32, colour: &RGBColor) -> Drawn {
    let style = ("DejaVu Sans", size).into_font().color(colour);
    Ok(area.draw(&Text::new(text.to_string(), at, style))?)
}

fn fill(area: &Area, from: (i32, i32), to: (i32, i32), style: ShapeStyle) -> Drawn {
    Ok(area.draw(&Rectangle::new([from, to], style))?)
}

fn arrow(area: &Area, from: (i32, i32), to: (i32, i32), colour: &RGBColor) -> Drawn {
    let [x, y] = [f64::from(to.0 - from.0), f64::from(to.1 - from.1)];
    let (length, back) = (x.hypot(y), 8.0);
    let [u, v] = [x / length, y / length];
    let wing = |side: f64| {
        let [a, b] = [back * u + side * 4.0 * v, back * v - side * 4.0 * u];
        (to.0 - a.round() as i32, to.1 - b.round() as i32)
    };
    let line = vec![from, to, wing(1.0), to, wing(-1.0)];
    Ok(area.draw(&PathElement::new(line, colour.stroke_width(2)))?)
}

/// Seven blocks of columns, the last one narrow, and what each of two ranks keeps.
fn dealt(path: &Path) -> Drawn {
    let area = SVGBackend::new(path, (720, 330)).into_drawing_area();
    area.fill(&WHITE)?;
    let (block, columns, top) = (34, 6 * 34 + 20, 60);
    let colours = [BLUE, ORANGE];
    let part = |from: i32, to: i32, place: i32, rank: usize| -> Drawn {
        // What stands below the diagonal is not looked at.
        fill(
            &area,
            (place, top),
            (place + to - from, top + columns),
            colours[rank].mix(0.15).filled(),
        )?;
        let corner = |column: i32, row: i32| (place + column - from, top + row);
        let above = vec![corner(from, 0), corner(to, 0), corner(to, to), corner(from, from)];
        area.draw(&Polygon::new(above, colours[rank].mix(0.6)))?;
        fill(&area, (place, top), (place + to - from, top + columns), WHITE.stroke_width(1))
    };
    let mut kept = [0, 0];
    for k in 0..7 {
        let (rank, from) = (k as usize % 2, k * block);
        let to = (from + block).min(columns);
        part(from, to, 30 + from, rank)?;
        let place = 330 + 190 * rank as i32 + kept[rank];
        part(from, to, place, rank)?;
        write(&area, &k.to_string(), (30 + (from + to) / 2 - 4, top - 18), 14, &BLACK)?;
        write(&area, &k.to_string(), (place + (to - from) / 2 - 4, top - 18), 14, &BLACK)?;
        kept[rank] += to - from;
    }
    write(&area, "one matrix, seven blocks", (30, 14), 16, &BLACK)?;
    write(&area, "kept by rank 0", (330, 14), 16, &BLUE)?;
    write(&area, "kept by rank 1", (520, 14), 16, &RED)?;
    write(&area, "dark: looked at; pale: never", (30, top + columns + 18), 14, &BLACK)?;
    Ok(area.present()?)
}

/// Three ranks over time.
fn rendezvous(path: &Path) -> Drawn {
    let area = SVGBackend::new(path, (720, 300)).into_drawing_area();
    area.fill(&WHITE)?;
    let rows = [60, 150, 240];
    let end = [690, 500, 690];
    for (rank, row) in rows.into_iter().enumerate() {
        write(&area, &format!("rank {rank}"), (14, row - 8), 15, &BLACK)?;
        let line = vec![(80, row), (end[rank], row)];
        area.draw(&PathElement::new(line, BLACK.stroke_width(2)))?;
    }
    for (k, from) in [(1, 110), (2, 130)] {
        arrow(&area, (from, rows[k]), (from + 30, rows[0]), &BLUE)?;
        arrow(&area, (190, rows[0]), (220 + 10 * k as i32, rows[k]), &GREEN)?;
    }
    write(&area, "I am here", (100, 20), 14, &BLUE)?;
    write(&area, "welcome, and the identifier", (200, 20), 14, &GREEN)?;
    for x in (280..490).step_by(50) {
        arrow(&area, (x, rows[1]), (x + 12, rows[0]), &BLUE)?;
        arrow(&area, (x + 14, rows[0]), (x + 40, rows[2]), &BLUE)?;
    }
    write(&area, "alive, each second", (300, 262), 14, &BLUE)?;
    area.draw(&Circle::new((500, rows[1]), 8, RED.filled()))?;
    write(&area, "killed", (515, rows[1] - 8), 14, &RED)?;
    arrow(&area, (505, rows[1] - 8), (540, rows[0]), &RED)?;
    arrow(&area, (560, rows[0]), (610, rows[2]), &RED)?;
    write(&area, "rank 1 was lost", (560, 20), 14, &RED)?;
    Ok(area.present()?)
}

/// What two ranks do, one below the other, and where numbers cross.
fn shared(path: &Path) -> Drawn {
    let area = SVGBackend::new(path, (720, 270)).into_drawing_area();
    area.fill(&WHITE)?;
    let steps = ["fill", "factorise", "solve", "B Xᵗ", "hand over"];
    let crosses = [false, true, true, true, true];
    for (k, (step, crosses)) in steps.into_iter().zip(crosses).enumerate() {
        let left = 80 + 125 * k as i32;
        for (rank, (top, colour)) in [(40, BLUE), (170, ORANGE)].into_iter().enumerate() {
            fill(&area, (left, top), (left + 100, top + 50), colour.mix(0.3).filled())?;
            fill(&area, (left, top), (left + 100, top + 50), colour.stroke_width(1))?;
            write(&area, step, (left + 12, top + 16), 15, &BLACK)?;
            if k == 0 {
                write(&area, &format!("rank {rank}"), (14, top + 16), 15, &BLACK)?;
            } else {
                arrow(&area, (left - 23, top + 25), (left - 2, top + 25), &BLACK)?;
            }
        }
        if crosses {
            arrow(&area, (left + 50, 168), (left + 50, 94), &RED)?;
        }
        if crosses && k < 4 {
            arrow(&area, (left + 50, 94), (left + 50, 168), &RED)?;
        }
    }
    write(&area, "numbers that cross between devices", (330, 240), 14, &RED)?;
    Ok(area.present()?)
}
