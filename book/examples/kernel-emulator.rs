//! Draws how the threads of a block take turns, on a device and in the emulator, into the folder that is given.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::{error::Error, path::PathBuf};

const THREADS: i32 = 8;
const STEP: (i32, i32) = (20, 17);
const PANEL: (i32, i32) = (400, 205);

/// What a thread does in one step.
#[derive(Clone, Copy, PartialEq)]
enum Deed {
    Writes,
    Reads,
    ReadsNothing,
    Reported,
}
use Deed::{Reads, ReadsNothing, Reported, Writes};

/// Deeds as (time, thread, deed), and the time of the barrier, if there is one.
type Course = (Vec<(i32, i32, Deed)>, Option<i32>);

/// Two warps of four threads; the second gets its numbers late, and goes on first.
fn device() -> Course {
    let deeds = (0..THREADS).flat_map(|thread| {
        let late = thread / 4;
        [(3 * late, thread, Writes), (5 - late, thread, Reads)]
    });
    (deeds.collect(), Some(4))
}

/// Fibers run one after the other, each until it must wait.
fn emulator(descending: bool, barrier: bool) -> Course {
    let order = |rank: i32| if descending { THREADS - 1 - rank } else { rank };
    if barrier {
        let ranks = (0..THREADS).flat_map(|k| [(k, k, Writes), (THREADS + k, k, Reads)]);
        return (ranks.map(|(t, k, deed)| (t, order(k), deed)).collect(), Some(THREADS));
    }
    // The thread after the middle writes where one before it has read.
    let half = THREADS / 2;
    let ranks = (0..half).flat_map(|k| [(2 * k, k, Writes), (2 * k + 1, k, ReadsNothing)]);
    (ranks.chain([(2 * half, half, Reported)]).collect(), None)
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("sans-serif")?;
    let path = folder.join("fibers.svg");
    let size = (2 * PANEL.0 as u32, 2 * PANEL.1 as u32 + 40);
    let area = SVGBackend::new(&path, size).into_drawing_area();
    area.fill(&WHITE)?;
    let font = |size: i32, horizontal| {
        ("sans-serif", size).into_font().color(&BLACK).pos(Pos::new(horizontal, VPos::Center))
    };
    let colour = |deed| match deed {
        Writes => RGBColor(0, 114, 178),
        Reported => RGBColor(200, 30, 40),
        Reads | ReadsNothing => RGBColor(230, 159, 0),
    };
    let mark = |x: i32, y: i32, deed| {
        let corners = [(x + 1, y + 2), (x + STEP.0 - 1, y + STEP.1 - 2)];
        let style = colour(deed).stroke_width(2);
        Rectangle::new(corners, if deed == ReadsNothing { style } else { style.filled() })
    };

    let panels = [
        ("a device, two warps of four threads", device()),
        ("the emulator, an even block", emulator(false, true)),
        ("the emulator, an odd block", emulator(true, true)),
        ("the emulator, the barrier left out", emulator(false, false)),
    ];
    for (k, (title, (deeds, barrier))) in (0..).zip(panels) {
        let (left, top) = (k % 2 * PANEL.0 + 45, k / 2 * PANEL.1 + 40);
        let place = |time: i32, thread: i32| (left + time * STEP.0, top + thread * STEP.1);
        area.draw(&Text::new(title, (left, top - 18), font(16, HPos::Left)))?;
        for thread in 0..THREADS {
            let (x, y) = place(0, thread);
            let (at, style) = ((x - 10, y + STEP.1 / 2), font(14, HPos::Right));
            area.draw(&Text::new(thread.to_string(), at, style))?;
            let times = deeds.iter().filter(|deed| deed.1 == thread).map(|deed| deed.0);
            let middle = |(x, y)| (x + STEP.0 / 2, y + STEP.1 / 2);
            let line = times.map(|time| middle(place(time, thread)));
            if barrier.is_some() {
                area.draw(&PathElement::new(line.collect::<Vec<_>>(), BLACK.mix(0.3)))?;
            }
        }
        for &(time, thread, deed) in &deeds {
            let (x, y) = place(time, thread);
            area.draw(&mark(x, y, deed))?;
        }
        if let Some(time) = barrier {
            let (x, y) = place(time, 0);
            let line = [(x, y - 4), (x, y + THREADS * STEP.1 + 4)];
            area.draw(&PathElement::new(line, BLACK.stroke_width(2)))?;
        }
    }

    let legend = [
        (Writes, "writes s[k]"),
        (Reads, "reads s[7 − k]"),
        (ReadsNothing, "reads what nobody wrote"),
        (Reported, "is reported"),
    ];
    for ((deed, name), x) in legend.into_iter().zip([45, 190, 355, 590]) {
        let y = 2 * PANEL.1 + 12;
        area.draw(&mark(x, y, deed))?;
        area.draw(&Text::new(name, (x + 28, y + STEP.1 / 2), font(15, HPos::Left)))?;
    }
    area.present()?;
    Ok(())
}
