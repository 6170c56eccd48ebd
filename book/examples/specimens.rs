//! Draws cells of atoms, cut, turned and trembling, into the folder that is given.

use lenslet::specimen::{Atom, BeamDirection, Crystal, Cut, Element, Phonons, Slicing, Specimen};
use plotters::coord::Shift;
use plotters::prelude::*;
use serde_json::json;
use std::{env, error::Error, path::Path, path::PathBuf};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const BLUE: RGBColor = RGBColor(0, 114, 178);
const ORANGE: RGBColor = RGBColor(213, 94, 0);
const GREY: RGBColor = RGBColor(120, 120, 120);
const SILICON: &str = include_str!("../systems/SI100.XYZ");

/// A drawing in ångström, with the same scale along both axes.
#[derive(Default)]
struct Panel {
    title: &'static str,
    axes: [&'static str; 2],
    size: [f64; 2],
    /// Places, radii in pixels, colours, and whether they are filled.
    dots: Vec<([f64; 2], f64, RGBColor, bool)>,
    lines: Vec<(Vec<(f64, f64)>, RGBColor)>,
    words: Vec<([f64; 2], String)>,
}

impl Panel {
    const SCALE: f64 = 45.0;
    const MARGINS: [u32; 2] = [75, 95];

    fn pixels(&self) -> [u32; 2] {
        [0, 1].map(|axis| (Self::SCALE * (self.size[axis] + 0.8)) as u32 + Self::MARGINS[axis])
    }

    fn frame(&mut self) {
        let [x, y] = self.size;
        self.lines.push((vec![(0.0, 0.0), (x, 0.0), (x, y), (0.0, y), (0.0, 0.0)], GREY));
    }

    fn arrow(&mut self, from: [f64; 2], to: [f64; 2], colour: RGBColor) {
        let along = [to[0] - from[0], to[1] - from[1]];
        let length = along[0].hypot(along[1]);
        let [u, v] = along.map(|x| 0.18 * x / length);
        let tips = [
            [to[0] - u - v / 2.0, to[1] - v + u / 2.0],
            [to[0] - u + v / 2.0, to[1] - v - u / 2.0],
        ];
        for start in [from, tips[0], tips[1]] {
            self.lines.push((vec![(start[0], start[1]), (to[0], to[1])], colour));
        }
    }

    fn draw(&self, area: &Area) -> Result<(), Box<dyn Error>> {
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .caption(self.title, ("sans-serif", 15))
            .x_label_area_size(40)
            .y_label_area_size(55)
            .build_cartesian_2d(-0.4..self.size[0] + 0.4, -0.4..self.size[1] + 0.4)?;
        chart.configure_mesh().disable_mesh().x_desc(self.axes[0]).y_desc(self.axes[1]).draw()?;
        let lines = self
            .lines
            .iter()
            .map(|(line, colour)| PathElement::new(line.clone(), colour.stroke_width(2)));
        chart.draw_series(lines)?;
        chart.draw_series(self.dots.iter().map(|&([x, y], radius, colour, filled)| {
            let style = if filled { colour.filled() } else { colour.stroke_width(2) };
            Circle::new((x, y), radius, style)
        }))?;
        let words = self
            .words
            .iter()
            .map(|([x, y], text)| Text::new(text.clone(), (*x, *y), ("sans-serif", 14)));
        chart.draw_series(words)?;
        Ok(())
    }
}

fn picture(folder: &Path, name: &str, panels: &[Panel]) -> Result<(), Box<dyn Error>> {
    let path = folder.join(name);
    let width: u32 = panels.iter().map(|panel| panel.pixels()[0]).sum();
    let height = panels.iter().map(|panel| panel.pixels()[1]).max().unwrap_or(1);
    let area = SVGBackend::new(&path, (width, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut rest = area.clone();
    for panel in panels {
        let (left, right) = rest.split_horizontally(panel.pixels()[0]);
        panel.draw(&left.split_vertically(panel.pixels()[1]).0)?;
        rest = right;
    }
    area.present()?;
    Ok(())
}

/// A colour between blue at 0 and orange at 1.
fn between(share: f64) -> RGBColor {
    let mix = |a: u8, b: u8| (f64::from(a) * (1.0 - share) + f64::from(b) * share) as u8;
    RGBColor(mix(BLUE.0, ORANGE.0), mix(BLUE.1, ORANGE.1), mix(BLUE.2, ORANGE.2))
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("the output folder is missing")?);
    lenslet::plot::load_font("sans-serif")?;
    let silicon = Crystal::from_text(SILICON, "SI100.XYZ", None)?;
    let cell = silicon.specimen(BeamDirection::MinusZ, [1, 1, 1])?;

    draw_atoms(&folder, &cell)?;
    draw_slices(&folder, &cell)?;
    draw_phonons(&folder, &silicon)?;
    write_cell(&folder.join("live-silicon-cell.json"), &cell)?;
    draw_turned(&folder)?;
    draw_symmetry(&folder)?;
    draw_zone_axis(&folder, &silicon)
}

/// The cell along the beam and from the side; colours tell heights.
fn draw_atoms(folder: &Path, cell: &Specimen) -> Result<(), Box<dyn Error>> {
    let [x, y, z] = cell.cell();
    let mut top = Panel {
        title: "along the beam",
        axes: ["x [Å]", "y [Å]"],
        size: [x, y],
        ..Panel::default()
    };
    let mut side = Panel {
        title: "from the side",
        axes: ["x [Å]", "z [Å]"],
        size: [x, z + 1.2],
        ..Panel::default()
    };
    top.frame();
    side.lines.push((vec![(0.0, 0.0), (x, 0.0), (x, z), (0.0, z), (0.0, 0.0)], GREY));
    for atom in cell.atoms() {
        let [at, across, height] = atom.position;
        top.dots.push(([at, across], 11.0, between(height / z), true));
        side.dots.push(([at, height], 11.0, between(height / z), true));
    }
    for k in 1..4 {
        let at = x * f64::from(k) / 4.0;
        side.arrow([at, z + 1.2], [at, z + 0.5], GREY);
    }
    side.words.push(([0.1, z + 1.0], "beam".into()));
    picture(folder, "atoms.svg", &[top, side])
}

/// The cell from the side, with cuts.
fn draw_slices(folder: &Path, cell: &Specimen) -> Result<(), Box<dyn Error>> {
    let [x, _, z] = cell.cell();
    let slices = Slicing::new(z, z / 4.0)?;
    let mut side = Panel { axes: ["x [Å]", "z [Å]"], size: [x + 1.2, z], ..Panel::default() };
    for k in 0..slices.count() {
        let [lower, upper] = slices.bounds(k);
        side.lines
            .push((vec![(0.0, lower), (x, lower), (x, upper), (0.0, upper), (0.0, lower)], GREY));
        side.words.push(([x + 0.2, 0.5 * (lower + upper) + 0.1], format!("slice {k}")));
    }
    for atom in cell.atoms() {
        let [at, _, height] = atom.position;
        let colour = if slices.slice_of(height) % 2 == 0 { BLUE } else { ORANGE };
        side.dots.push(([at, height], 11.0, colour, true));
    }
    picture(folder, "slices.svg", &[side])
}

/// A snapshot, displacements five times as large.
fn draw_phonons(folder: &Path, silicon: &Crystal) -> Result<(), Box<dyn Error>> {
    let large = |atom: &Atom| Atom { displacement: 5.0 * atom.displacement, ..*atom };
    let crystal = Crystal::new(silicon.lattice(), silicon.atoms().iter().map(large).collect())?;
    let cell = crystal.specimen(BeamDirection::MinusZ, [1, 1, 1])?;
    let [x, y, _] = cell.cell();
    let mut top = Panel { axes: ["x [Å]", "y [Å]"], size: [x, y], ..Panel::default() };
    top.frame();
    let snapshot = Phonons { configurations: 1, seed: 3 }.displaced(&cell, 0);
    for (rest, moved) in cell.atoms().iter().zip(snapshot.atoms()) {
        let [from, to] = [rest, moved].map(|atom| [atom.position[0], atom.position[1]]);
        top.dots.push((from, 11.0, GREY, false));
        top.dots.push((to, 9.0, ORANGE, true));
        let near = (0..2).all(|axis| (to[axis] - from[axis]).abs() < x / 2.0);
        if near {
            top.lines.push((vec![(from[0], from[1]), (to[0], to[1])], GREY));
        }
    }
    picture(folder, "phonons.svg", &[top])
}

/// The cell at rest, for the live figure of the snapshot.
fn write_cell(path: &Path, cell: &Specimen) -> Result<(), Box<dyn Error>> {
    let atoms: Vec<[f64; 3]> = cell.atoms().iter().map(|atom| atom.position).collect();
    Ok(std::fs::write(path, json!({ "cell": cell.cell(), "atoms": atoms }).to_string())?)
}

/// A screw of atoms in its file's axes, and turned.
fn draw_turned(folder: &Path) -> Result<(), Box<dyn Error>> {
    let (length, width) = (6.0, 3.2);
    let element = Element::of_symbol("Te")?;
    let at = |k: i32| {
        let angle = f64::from(k) * std::f64::consts::PI / 4.0;
        let position = [0.375 * f64::from(k), 1.6 + angle.cos(), 1.6 + angle.sin()];
        Atom { element, position, occupancy: 1.0, displacement: 0.0 }
    };
    let lattice = [[length, 0.0, 0.0], [0.0, width, 0.0], [0.0, 0.0, width]];
    let screw = Crystal::new(lattice, (0..16).map(at).collect())?;
    let turned = screw.specimen(BeamDirection::PlusX, [1, 1, 1])?;

    let axes = ["x [Å]", "y [Å]"];
    let mut file = Panel {
        title: "in the file, seen from high z",
        axes,
        size: [length, width],
        ..Panel::default()
    };
    let axes = ["x [Å]", "z [Å]"];
    let mut side = Panel {
        title: "turned, seen from low y",
        axes,
        size: [width, length + 0.9],
        ..Panel::default()
    };
    file.frame();
    side.lines
        .push((vec![(0.0, 0.0), (width, 0.0), (width, length), (0.0, length), (0.0, 0.0)], GREY));
    side.arrow([width / 2.0, length + 1.1], [width / 2.0, length + 0.3], GREY);
    side.words.push(([0.1, length + 0.9], "beam".into()));
    let dot = |place: [f64; 2], near: f64| (place, 4.0 + 3.0 * near, between(near / 2.6), true);
    file.dots = screw
        .atoms()
        .iter()
        .map(|atom| dot([atom.position[0], atom.position[1]], atom.position[2]))
        .collect();
    let seen = |atom: &Atom| dot([atom.position[0], atom.position[2]], width - atom.position[1]);
    side.dots = turned.atoms().iter().map(seen).collect();
    for panel in [&mut file, &mut side] {
        panel.dots.sort_by(|a, b| a.1.total_cmp(&b.1));
    }
    picture(folder, "crystal-turned.svg", &[file, side])
}

/// The asymmetric unit of graphite, and its cell.
fn draw_symmetry(folder: &Path) -> Result<(), Box<dyn Error>> {
    let head = "_cell_length_a 2.46 _cell_length_b 2.46 _cell_length_c 6.71 _cell_angle_alpha 90 _cell_angle_beta 90 _cell_angle_gamma 120\n";
    let operations = "loop_ _space_group_symop_operation_xyz x,y,z -y,x-y,z -x+y,-x,z -x,-y,z+1/2 y,-x+y,z+1/2 x-y,x,z+1/2\n";
    let atoms = "loop_ _atom_site_label _atom_site_fract_x _atom_site_fract_y _atom_site_fract_z C1 0 0 0.25 C2 0.3333 0.6667 0.25\n";
    let mut panels = Vec::new();
    for (title, operations) in [("asymmetric unit", ""), ("cell", operations)] {
        let crystal =
            Crystal::from_text(&format!("{head}{operations}{atoms}"), "graphite.cif", None)?;
        let [a, b, c] = crystal.lattice();
        let mut panel = Panel {
            title,
            axes: ["from a [Å]", "along c [Å]"],
            size: [3.2, 7.4],
            ..Panel::default()
        };
        let flat = |place: [f64; 3]| [place[0] + 0.9 * place[1], place[2] + 0.3 * place[1]];
        let corner = |k: usize| {
            let on = |bit: usize| (k >> bit & 1) as f64;
            flat([0, 1, 2].map(|axis| on(0) * a[axis] + on(1) * b[axis] + on(2) * c[axis]))
        };
        for (from, bit) in (0..8)
            .flat_map(|from| [1, 2, 4].map(|bit| (from, bit)))
            .filter(|(from, bit)| from & bit == 0)
        {
            let ends = [from, from | bit].map(corner).map(|[x, y]| (x, y));
            panel.lines.push((ends.to_vec(), GREY));
        }
        let height = |atom: &Atom| atom.position[2] / c[2];
        panel.dots = crystal
            .atoms()
            .iter()
            .map(|atom| (flat(atom.position), 10.0, between(height(atom)), true))
            .collect();
        panels.push(panel);
    }
    picture(folder, "cif.svg", &panels)
}

/// Columns of silicon along 110 with the cell that is cut.
fn draw_zone_axis(folder: &Path, silicon: &Crystal) -> Result<(), Box<dyn Error>> {
    let cut = silicon.cut([1, 1, 0], Cut::EXACT)?.crystal;
    let [x, y, z] = cut.specimen(BeamDirection::MinusZ, [1, 1, 1])?.cell();
    let specimen = cut.specimen(BeamDirection::MinusZ, [3, 2, 1])?;
    let mut top = Panel {
        axes: ["along 1,−1,0 [Å]", "along 0,0,−1 [Å]"],
        size: [3.0 * x, 2.0 * y],
        ..Panel::default()
    };
    for atom in specimen.atoms() {
        let [at, across, height] = atom.position;
        top.dots.push(([at, across], 9.0, between(height / z), true));
    }
    top.lines.push((vec![(0.0, 0.0), (x, 0.0), (x, y), (0.0, y), (0.0, 0.0)], GREY));
    top.arrow([0.0, 0.0], [x, 0.0], BLACK);
    top.arrow([0.0, 0.0], [0.0, y], BLACK);
    picture(folder, "zone-axis.svg", &[top])
}
