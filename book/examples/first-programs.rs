//! Draws the figures of the two first programs, and compares them with the library, into the folder that is given.

mod images;
mod lenslet_by_library;
mod microscope_by_library;
#[allow(dead_code)] // their main functions
#[path = "smallest-lenslet.rs"]
mod smallest_lenslet;
#[allow(dead_code)]
#[path = "smallest-microscope.rs"]
mod smallest_microscope;

use images::{Area, Drawn, TYPEFACE, grey, paint, picture, write};
use lenslet::plot::Figure;
use plotters::prelude::*;
use std::{env, fs, path::Path, path::PathBuf};

type Point = (i32, i32);

const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(213, 94, 0);
const GREY: RGBColor = RGBColor(120, 120, 120);

fn main() -> Drawn {
    lenslet::plot::load_font(TYPEFACE)?;
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("the output folder is missing")?);
    picture(&folder.join("smallest-lenslet-sketch.svg"), (1240, 640), sketch_of_lenslets)?;
    picture(&folder.join("smallest-microscope-sketch.svg"), (1240, 680), sketch_of_microscope)?;
    compare_lenslets(&folder)?;
    compare_microscopes(&folder)?;
    draw_image(&folder.join("smallest-microscope-image.svg"))
}

fn line(area: &Area, points: &[Point], colour: RGBColor, width: u32) -> Drawn {
    Ok(area.draw(&PathElement::new(points.to_vec(), colour.stroke_width(width)))?)
}

fn fill(area: &Area, points: &[Point], colour: RGBColor, opacity: f64) -> Drawn {
    Ok(area.draw(&Polygon::new(points.to_vec(), colour.mix(opacity)))?)
}

fn dot(area: &Area, at: Point, radius: i32, colour: RGBColor) -> Drawn {
    Ok(area.draw(&Circle::new(at, radius, colour.filled()))?)
}

/// A wave along x, for a layer or a wavefront, between two places.
fn ripple((left, right): Point, y: i32, height: f64) -> Vec<Point> {
    let at = |x: i32| {
        let x = f64::from(x);
        height * ((0.031 * x).sin() + 0.6 * (0.074 * x + 1.0).sin() + 0.3 * (0.17 * x).sin())
    };
    (left..=right).step_by(4).map(|x| (x, y + at(x).round() as i32)).collect()
}

/// Two beams through a layer onto four lenslets, from the side and at the layer.
fn sketch_of_lenslets(area: &Area) -> Drawn {
    let (ground, layer, pupil, shift) = (540, 230, [220, 420], 100);
    let beam = |colour, shift: i32| -> Drawn {
        let top = |x: i32| (x + shift * (ground - 60) / (ground - layer), 60);
        let [left, right] = pupil;
        fill(area, &[(left, ground), top(left), top(right), (right, ground)], colour, 0.15)?;
        line(area, &[(left, ground), top(left)], colour, 2)?;
        line(area, &[(right, ground), top(right)], colour, 2)
    };
    beam(BLUE, 0)?;
    beam(ORANGE, shift)?;
    for y in [layer - 14, layer, layer + 14] {
        line(area, &ripple((60, 700), y, 6.0), GREY, 3)?;
    }
    line(area, &ripple((pupil[0], pupil[1]), 450, 9.0), BLUE, 4)?;
    for centre in [270, 370] {
        let arc =
            |k: i32| (centre - 50 + 5 * k, ground - (16.0 * (f64::from(k) * 0.157).sin()) as i32);
        fill(area, &(0..=20).map(arc).collect::<Vec<_>>(), BLACK, 0.35)?;
        line(area, &[(centre - 50, ground), (centre + 50, ground)], BLACK, 3)?;
    }
    line(area, &[(120, layer + 30), (120, ground)], BLACK, 2)?;
    write(area, "h = 10 km", (20, 560))?;
    write(area, "guide star", (225, 22))?;
    write(area, "target, at θ", (445, 22))?;
    write(area, "turbulent layer", (510, layer + 30))?;
    write(area, "wavefront", (440, 436))?;
    write(area, "2 × 2 lenslets", (440, 520))?;
    write(area, "d", (262, 560))?;
    // The layer from above.
    for (colour, x) in [(BLUE, 820), (ORANGE, 820 + shift)] {
        let corners = |x: i32, y: i32, side: i32| {
            [(x, y), (x + side, y), (x + side, y + side), (x, y + side), (x, y)]
        };
        fill(area, &corners(x, 190, 200)[..4], colour, 0.15)?;
        for (i, j) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            line(area, &corners(x + 100 * i, 190 + 100 * j, 100), colour, 2)?;
        }
    }
    for (x, sign) in [(820, "−"), (920, "+")] {
        dot(area, (x, 240), 7, BLUE)?;
        write(area, sign, (x + 8, 206))?;
    }
    for k in 0..9 {
        dot(area, (920 + 100 * (k % 3), 190 + 100 * (k / 3)), 5, ORANGE)?;
    }
    line(area, &[(820, 420), (920, 420)], BLACK, 2)?;
    write(area, "hθ", (855, 428))?;
    write(area, "the layer from above", (840, 130))
}

/// A probe above a row of columns, and the detector below.
fn sketch_of_microscope(area: &Area) -> Drawn {
    let (x, focus) = (560, 190);
    fill(area, &[(x - 110, 40), (x, focus), (x + 110, 40)], BLUE, 0.25)?;
    fill(area, &[(x, focus), (x - 290, 600), (x + 290, 600)], BLUE, 0.12)?;
    for side in [-1, 1] {
        let ring = [(x, focus), (x + 380 * side, 600), (x + 520 * side, 600)];
        fill(area, &ring, ORANGE, 0.18)?;
        line(area, &ring[1..], ORANGE, 10)?;
    }
    line(area, &[(x - 130, 40), (x + 130, 40)], BLACK, 6)?;
    for k in 0..=4 {
        line(area, &[(x - 200, 170 + 60 * k), (x + 200, 170 + 60 * k)], GREY, 1)?;
    }
    for (column, atoms) in [1, 2, 4].into_iter().enumerate() {
        for k in 0..atoms {
            dot(area, (x + 120 * (column as i32 - 1), 200 + 60 * k), 13, RGBColor(190, 140, 0))?;
        }
    }
    line(area, &[(x + 230, 170), (x + 230, 230)], BLACK, 2)?;
    write(area, "Δ = 4.08 Å, one slice", (x + 245, 186))?;
    write(area, "lens", (x + 145, 26))?;
    write(area, "α = 20 mrad", (x + 105, 90))?;
    write(area, "columns of 1, 2 and 4 atoms", (x + 245, 300))?;
    write(area, "annular detector, 25 to 36 mrad", (x + 250, 618))?;
    write(area, "direct beam", (x - 70, 618))
}

/// The errors of four lenslets by the small program and by the library, as a figure and a table.
fn compare_lenslets(folder: &Path) -> Drawn {
    let angles: Vec<f64> = (0..=60).map(f64::from).collect();
    let nanometres = |errors: Vec<f64>| errors.iter().map(|error| 1e9 * error).collect::<Vec<_>>();
    let small: Vec<[f64; 2]> =
        angles.iter().map(|angle| smallest_lenslet::errors(*angle)).collect();
    let [before, after] =
        [0, 1].map(|k| nanometres(small.iter().map(|errors| errors[k]).collect()));
    let kolmogorov = nanometres(lenslet_by_library::errors(f64::INFINITY, &angles)?);
    let outer_scale = nanometres(lenslet_by_library::errors(25.0, &angles)?);
    let curve = |errors: &[f64]| angles.iter().copied().zip(errors.to_vec()).collect::<Vec<_>>();
    Figure::new()
        .x_label("angle between target and guide star [arcsec]")
        .y_label("wavefront error [nm rms]")
        .y_range(0.0, 720.0)
        .dashes("without correction", curve(&before))
        .line("this program", curve(&after))
        .line("library, lenslets as areas", curve(&kolmogorov))
        .line("library, outer scale 25 m", curve(&outer_scale))
        .save(folder.join("smallest-lenslet-errors.svg"))?;
    let mut table = "angle      this program   library   library, outer scale 25 m\n".to_string();
    for (k, angle) in angles.iter().enumerate().step_by(10) {
        table += &format!(
            "{angle:2} arcsec  {:8.0} nm {:9.0} nm {:13.0} nm\n",
            after[k], kolmogorov[k], outer_scale[k]
        );
    }
    Ok(fs::write(folder.join("smallest-lenslet-library.txt"), table)?)
}

/// The signals of the three columns by the small program and by the library, as a table.
fn compare_microscopes(folder: &Path) -> Drawn {
    let slices: Vec<_> = (0..4).map(smallest_microscope::transmission).collect();
    let small = [2.04, 6.12, 10.2].map(|x| smallest_microscope::signals(x, 4.08, &slices)[0]);
    let mut table = "atoms in the column                     1        2        4\n".to_string();
    let mut row = |name: &str, signals: &[f64]| {
        table += &format!("{name:32}");
        signals.iter().for_each(|signal| table += &format!(" {signal:6.2} %"));
        table += "\n";
    };
    row("this program", &small);
    row("library, 72 × 72 samples", &microscope_by_library::signals(72, 0)?);
    row("library, 288 × 288 samples", &microscope_by_library::signals(288, 0)?);
    row("the same, with vibrating atoms", &microscope_by_library::signals(288, 8)?);
    Ok(fs::write(folder.join("smallest-microscope-library.txt"), table)?)
}

/// The image of the row, with the signal's root as brightness.
fn draw_image(path: &Path) -> Drawn {
    let slices: Vec<_> = (0..4).map(smallest_microscope::transmission).collect();
    let signal = |row: usize, column: usize| {
        smallest_microscope::signals(0.34 * column as f64, 4.08 + 0.34 * row as f64, &slices)[0]
    };
    // The row is its own mirror image.
    let rows: Vec<Vec<f64>> =
        (0..5).map(|row| (0..36).map(|column| signal(row, column)).collect()).collect();
    picture(path, (1240, 400), |area| {
        let image = area.clone().shrink((44, 20), (1152, 288));
        paint(&image, |x, y| {
            let (row, column) = ((9.0 * y) as usize, (36.0 * x) as usize);
            grey((rows[row.abs_diff(4)][column] / 24.0).sqrt())
        })?;
        for (x, atoms) in [(236, "1 atom"), (620, "2 atoms"), (1004, "4 atoms")] {
            line(area, &[(x, 312), (x, 328)], BLACK, 2)?;
            write(area, atoms, (x - 44, 336))?;
        }
        line(area, &[(44, 340), (138, 340)], BLACK, 4)?;
        write(area, "1 Å", (44, 350))
    })
}
