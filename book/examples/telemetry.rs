//! Draws the figures of the chapters on files for other tools into the folder that is given.

mod boxes;

use boxes::{BLUE_INK, Drawn, GREEN_INK, Part, RED_INK, draw};
use plotters::prelude::*;
use std::path::{Path, PathBuf};

fn main() -> Drawn {
    lenslet::plot::load_font("DejaVu Sans")?;
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    references(&folder.join("telemetry-files.svg"))?;
    correspondence(&folder.join("telemetry.svg"))?;
    loops(&folder.join("telemetry-loops.svg"))?;
    field(&folder.join("scopesim-files.svg"))?;
    variables(&folder.join("variables.svg"))?;
    hierarchy(&folder.join("hdf5.svg"))?;
    prismatic(&folder.join("emd-files.svg"))?;
    chunks(&folder.join("zarr.svg"))?;
    sections(&folder.join("mrc.svg"))
}

/// Rows that point at rows of other tables and at images.
fn references(path: &Path) -> Drawn {
    let parts: [Part; 6] = [
        (
            (20, 20),
            (220, 84),
            &["AOT_SOURCES", "STAR 0: Sodium …", "STAR 1: Natural …", "TARGET 0: Science …"],
            BLUE_INK,
        ),
        ((20, 150), (220, 48), &["AOT_SOURCES_SODIUM_LGS", "STAR 0: 90 km"], BLUE_INK),
        (
            (290, 20),
            (250, 66),
            &["AOT_WAVEFRONT_SENSORS", "WFS 0: ROWREF<STAR 0>, …", "WFS 1: ROWREF<STAR 1>, …"],
            BLUE_INK,
        ),
        (
            (290, 150),
            (250, 66),
            &[
                "AOT_LOOPS, AOT_LOOPS_CONTROL",
                "LOOP 0 0: WFS 0, MIRROR 0",
                "LOOP 0 1: WFS 1, MIRROR 0",
            ],
            BLUE_INK,
        ),
        ((590, 20), (160, 66), &["image", "WFS 0 MASK", "8 × 8"], RED_INK),
        ((590, 150), (160, 66), &["image", "LOOP 0 0 CONTROL…", "68 × 2 × 48"], RED_INK),
    ];
    let arrows = [
        [(290, 50), (240, 50)],
        [(130, 150), (130, 104)],
        [(540, 50), (590, 50)],
        [(540, 183), (590, 183)],
        [(415, 150), (415, 86)],
    ];
    draw((path, (770, 240)), &parts, &arrows)
}

/// Which table of a system file is in which of telemetry.
fn correspondence(path: &Path) -> Drawn {
    let names: [(&'static [&'static str], &'static [&'static str]); 5] = [
        (&["[atmosphere]"], &["AOT_ATMOSPHERIC_PARAMETERS", "and images of the layers"]),
        (&["[telescope]"], &["AOT_TELESCOPES", "and an image of the pupil"]),
        (&["[[target]], [[guide_star]]"], &["AOT_SOURCES, …_SODIUM_LGS", "…_RAYLEIGH_LGS"]),
        (
            &["[lenslet_array]", "rotation, shift, noise"],
            &["AOT_WAVEFRONT_SENSORS", "masks, matrices and their cards"],
        ),
        (
            &["[[mirror]], [correction], [loop]"],
            &["AOT_WAVEFRONT_CORRECTORS", "AOT_LOOPS, AO-MODE"],
        ),
    ];
    let (mut parts, mut arrows): (Vec<Part>, Vec<_>) = (Vec::new(), Vec::new());
    for (k, (ours, theirs)) in names.into_iter().enumerate() {
        let y = 15 + 58 * k as i32;
        parts.push(((30, y), (250, 46), ours, GREEN_INK));
        parts.push(((430, y), (290, 46), theirs, BLUE_INK));
        arrows.push([(285, y + 17), (425, y + 17)]);
        arrows.push([(425, y + 29), (285, y + 29)]);
    }
    draw((path, (750, 310)), &parts, &arrows)
}

/// Sensors, the loops that lead from each of them to each mirror, and the mirrors.
fn loops(path: &Path) -> Drawn {
    let sensors: [&'static [&'static str]; 3] = [&["WFS 0"], &["WFS 1"], &["WFS 2"]];
    let (mut parts, mut arrows): (Vec<Part>, Vec<_>) = (Vec::new(), Vec::new());
    let loops: [&'static [&'static str]; 6] = [
        &["LOOP 0 0: 68 × 2 × 48"],
        &["LOOP 1 0: 68 × 2 × 48"],
        &["LOOP 0 1: 68 × 2 × 48"],
        &["LOOP 1 1: 68 × 2 × 48"],
        &["LOOP 0 2: 68 × 2 × 20"],
        &["LOOP 1 2: 68 × 2 × 20"],
    ];
    for (q, sensor) in sensors.into_iter().enumerate() {
        let y = 38 + 90 * q as i32;
        parts.push(((30, y), (90, 30), sensor, BLUE_INK));
        for k in 0..2 {
            let at = y - 20 + 40 * k as i32;
            parts.push(((230, at), (200, 30), loops[2 * q + k], RED_INK));
            arrows.push([(120, y + 15), (228, at + 15)]);
            arrows.push([(430, at + 15), (568, 90 + 100 * k as i32)]);
        }
    }
    parts.push(((570, 65), (160, 48), &["MIRROR 0", "68 strokes: a sum"], GREEN_INK));
    parts.push(((570, 165), (160, 48), &["MIRROR 1", "68 strokes: a sum"], GREEN_INK));
    draw((path, (760, 290)), &parts, &arrows)
}

/// The map of a field and the cube that it counts.
fn field(path: &Path) -> Drawn {
    let area = SVGBackend::new(path, (720, 270)).into_drawing_area();
    area.fill(&WHITE)?;
    let write = |text: &str, at: (i32, i32), colour: RGBColor| {
        Text::new(text.to_string(), at, ("DejaVu Sans", 14).into_font().color(&colour))
    };
    for k in 0..9 {
        let (x, y) = (60 + 60 * (k % 3), 165 - 60 * (k / 3));
        let cell = [(x, y), (x + 60, y + 60)];
        let chosen = k == 5;
        area.draw(&Rectangle::new(cell, RED_INK.mix(if chosen { 0.4 } else { 0.08 }).filled()))?;
        area.draw(&Rectangle::new(cell, BLUE_INK.stroke_width(1)))?;
        area.draw(&write(&k.to_string(), (x + 25, y + 22), BLACK))?;
    }
    area.draw(&write("y upwards, x to the right, (0, 0) in the middle", (40, 240), BLACK))?;
    area.draw(&write("index map", (115, 18), BLUE_INK))?;
    for k in (0..9).rev() {
        let (x, y) = (380 + 24 * k, 150 - 12 * k);
        let sheet = [(x, y), (x + 80, y + 80)];
        let depth = if k == 5 { 0.4 } else { 0.08 };
        area.draw(&Rectangle::new(sheet, WHITE.filled()))?;
        area.draw(&Rectangle::new(sheet, RED_INK.mix(depth).filled()))?;
        area.draw(&Rectangle::new(sheet, BLUE_INK.stroke_width(1)))?;
        area.draw(&Circle::new((x + 40, y + 40), 8 + k, BLACK.mix(0.35).filled()))?;
    }
    area.draw(&write("images 0 to 8 at one wavelength", (380, 240), BLUE_INK))?;
    let arrow = vec![(245, 135), (560, 133), (551, 128), (560, 133), (551, 138)];
    area.draw(&PathElement::new(arrow, BLACK.stroke_width(2)))?;
    area.present()?;
    Ok(())
}

/// A variable of four dimensions, and the formats of files for it.
fn variables(path: &Path) -> Drawn {
    let parts: [Part; 8] = [
        (
            (20, 30),
            (190, 66),
            &["dimensions of navigation", "x: 80 from 0 Å by 0.25 Å", "y: 60 from 0 Å by 0.25 Å"],
            BLUE_INK,
        ),
        (
            (20, 120),
            (190, 66),
            &["dimensions of signal", "qx: 128 by 0.02 1/Å", "qy: 96 by 0.02 1/Å"],
            RED_INK,
        ),
        ((270, 66), (150, 84), &["variable", "four_d", "80 × 60 × 128 × 96", "f32"], GREEN_INK),
        ((500, 10), (220, 30), &[".emd, .h5: trees in HDF5"], BLUE_INK),
        ((500, 54), (220, 30), &[".hspy, .zspy: HyperSpy's tree"], BLUE_INK),
        ((500, 98), (220, 30), &[".zarr: a folder for xarray"], BLUE_INK),
        ((500, 142), (220, 30), &[".mrc: a stack of images"], BLUE_INK),
        ((500, 186), (220, 30), &[".npz: arrays for NumPy"], BLUE_INK),
    ];
    let mut arrows = vec![[(210, 63), (268, 90)], [(210, 153), (268, 126)]];
    arrows.extend((0..5).map(|k| [(420, 108), (498, 25 + 44 * k)]));
    draw((path, (740, 230)), &parts, &arrows)
}

/// What points to what in a file in HDF5.
fn hierarchy(path: &Path) -> Drawn {
    let parts: [Part; 6] = [
        ((20, 20), (160, 66), &["superblock", "\\x89 H D F …", "end, root"], RED_INK),
        ((230, 20), (170, 66), &["OHDR: the root", "link \"data\"", "link \"log\""], BLUE_INK),
        (
            (450, 20),
            (190, 66),
            &["OHDR: a group", "link \"image\"", "soft link \"same\""],
            BLUE_INK,
        ),
        (
            (450, 130),
            (190, 84),
            &["OHDR: an array", "shape 4 × 3, f32", "attribute \"name\"", "checksum"],
            GREEN_INK,
        ),
        ((230, 130), (170, 48), &["numbers", "48 bytes in one piece"], GREEN_INK),
        ((230, 196), (170, 48), &["GCOL: texts", "1: \"x\", 2: \"Å\" …"], RED_INK),
    ];
    let arrows = [
        [(180, 60), (228, 50)],
        [(400, 50), (448, 50)],
        [(545, 86), (545, 128)],
        [(450, 158), (402, 152)],
        [(450, 192), (402, 212)],
    ];
    draw((path, (660, 262)), &parts, &arrows)
}

/// The tree of groups that Prismatic made.
fn prismatic(path: &Path) -> Drawn {
    let parts: [Part; 6] = [
        (
            (15, 90),
            (165, 66),
            &["4DSTEM_simulation", "emd_group_type = 2", "version 0.9"],
            BLUE_INK,
        ),
        (
            (220, 30),
            (120, 102),
            &["data", "datacubes", "diffractionslices", "realslices", "…"],
            BLUE_INK,
        ),
        ((220, 160), (120, 48), &["metadata", "metadata_0"], BLUE_INK),
        (
            (390, 10),
            (200, 84),
            &[
                "CBED_array_depth0000",
                "datacube, data → datacube",
                "dim1 … dim4",
                "emd_group_type = 1",
            ],
            GREEN_INK,
        ),
        (
            (390, 106),
            (200, 66),
            &["annular_detector_depth0000", "realslice, data → realslice", "dim1, dim2"],
            GREEN_INK,
        ),
        ((390, 184), (200, 48), &["simulation_parameters", "E = 100, s = 2, …"], RED_INK),
    ];
    let arrows = [
        [(180, 110), (218, 80)],
        [(180, 140), (218, 180)],
        [(340, 58), (388, 50)],
        [(340, 94), (388, 130)],
        [(340, 190), (388, 205)],
    ];
    draw((path, (605, 245)), &parts, &arrows)
}

/// An array in chunks, and the members of the archive.
fn chunks(path: &Path) -> Drawn {
    let mut parts: Vec<Part> = vec![
        ((330, 10), (190, 30), &["four_d/.zarray"], RED_INK),
        ((330, 50), (190, 30), &["four_d/.zattrs"], RED_INK),
        (
            (560, 50),
            (150, 66),
            &["Si.zarr", "a folder, or an archive", ".zmetadata at its end"],
            BLUE_INK,
        ),
    ];
    let labels: [&'static [&'static str]; 3] =
        [&["four_d/0.0.0.0"], &["four_d/1.0.0.0"], &["four_d/2.0.0.0"]];
    let mut arrows = vec![[(520, 25), (558, 65)], [(520, 65), (558, 75)]];
    for (k, label) in labels.into_iter().enumerate() {
        let y = 90 + 40 * k as i32;
        parts.push(((40, y - 30), (200, 36), &["a few megabytes"], GREEN_INK));
        parts.push(((330, y), (190, 30), label, GREEN_INK));
        arrows.push([(240, y - 12), (328, y + 15)]);
        arrows.push([(520, y + 15), (558, 90 + 8 * k as i32)]);
    }
    draw((path, (725, 215)), &parts, &arrows)
}

/// What is in a file in MRC.
fn sections(path: &Path) -> Drawn {
    let parts: [Part; 5] = [
        (
            (20, 20),
            (170, 102),
            &[
                "1024 bytes",
                "7 columns, 5 rows",
                "12 sections, 4 a volume",
                "steps, range",
                "ten labels",
            ],
            RED_INK,
        ),
        ((220, 20), (120, 48), &["section 0", "x = 0, y = 0"], GREEN_INK),
        ((350, 20), (120, 48), &["… section 3", "x = 3, y = 0"], GREEN_INK),
        ((480, 20), (120, 48), &["section 4", "x = 0, y = 1"], BLUE_INK),
        ((610, 20), (120, 48), &["… section 11", "x = 3, y = 2"], BLUE_INK),
    ];
    let arrows = [[(220, 95), (468, 95)], [(480, 95), (728, 95)]];
    draw((path, (750, 140)), &parts, &arrows)
}
