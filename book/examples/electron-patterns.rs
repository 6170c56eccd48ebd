//! Draws a convergent-beam pattern, a field of deflections, and the picture of a scan into the folder that is given.

mod images;

use images::{Drawn, TYPEFACE, grey, paint, picture, write};
use lenslet::data::{DataSet, TypedArray};
use lenslet::electrons::{Aberrations, Beam, DetectorOptions, Edge, Finishing, Multislice, Probe};
use lenslet::electrons::{Annulus, PatternOptions, Potential, PotentialOptions, Scan};
use lenslet::electrons::{StemOptions, StemPlan, WaveGrid, integrated};
use lenslet::numerics::Precision;
use lenslet::plan::Plan;
use lenslet::plot::{PictureFormat, ScanPicture, plot_scan};
use lenslet::prelude::Engine;
use lenslet::specimen::{self, Atom, Crystal, Element, Slicing};
use lenslet::watch::unwatched;
use ndarray::{Array3, s};
use plotters::prelude::*;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use std::{error::Error, f64::consts::PI, path::Path, path::PathBuf};

fn main() -> Drawn {
    lenslet::plot::load_font(TYPEFACE)?;
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    convergent_beam(&folder.join("convergent-beam.svg"))?;
    let plan = titanate()?;
    let readings = plan.run(&Engine::cpu(Precision::F32), &unwatched)?;
    let data = readings.to_data_set::<f32>(&plan, &Finishing::default())?;
    deflections(&folder.join("deflections.svg"), &plan, &data)?;
    let title = "strontium titanate, 200 keV, 22 mrad".into();
    let notes = vec![("annulus_0".into(), "50–75 mrad".into())];
    let specimen = plan.specimen();
    let picture =
        ScanPicture { title, specimen, data: &data, semi_angle: 22.0, notes, counted: false };
    Ok(std::fs::write(folder.join("scan-pictures.svg"), plot_scan(&picture, PictureFormat::Svg)?)?)
}

/// Colours from black over red and yellow to white.
fn fire(level: f64) -> RGBColor {
    const STATIONS: [[f64; 3]; 6] = [
        [0.0, 0.0, 4.0],
        [66.0, 10.0, 104.0],
        [147.0, 38.0, 103.0],
        [221.0, 81.0, 58.0],
        [252.0, 165.0, 10.0],
        [252.0, 255.0, 164.0],
    ];
    let place = level.clamp(0.0, 0.9999) * 5.0;
    let (k, share) = (place as usize, place.fract());
    let mix = |c: usize| (STATIONS[k][c] * (1.0 - share) + STATIONS[k + 1][c] * share) as u8;
    RGBColor(mix(0), mix(1), mix(2))
}

/// Patterns of 217 Å of silicon along 100, for cones whose discs are apart and overlap.
fn convergent_beam(path: &Path) -> Drawn {
    const ANGLES: [f64; 2] = [7.0, 14.0];
    let crystal = Crystal::from_text(include_str!("../systems/SI100.XYZ"), "SI100.XYZ", None)?;
    let cell = crystal.specimen(specimen::BeamDirection::MinusZ, [8, 8, 10])?;
    let [x, y, z] = cell.cell();
    let (grid, slicing) = (WaveGrid::new([288, 288], [x, y])?, Slicing::new(z, 1.3575)?);
    let beam = Beam::new(100.0)?;
    let [nx, ny] = [0, 1].map(|axis| grid.kept(axis).len());
    let mut light = Array3::<f64>::zeros((2, ny, nx));
    let multislice = Multislice::<f32>::new(grid, &beam, slicing.thickness())?;
    let phonons = specimen::Phonons { configurations: 4, seed: 1 };
    let mut random = StdRng::seed_from_u64(1);
    for c in 0..phonons.configurations {
        let moved = phonons.displaced(&cell, c);
        let potential = Potential::new(&moved, grid, slicing, PotentialOptions::default())?;
        let slices: Vec<_> = (0..potential.count()).map(|k| potential.slice(k)).collect();
        // Four times as thick, in an order that does not repeat.
        let cells: Vec<usize> = (0..40).map(|_| random.random_range(0..10)).collect();
        let slice = |k: usize| Ok(slices[4 * cells[k / 4] + k % 4].clone());
        let mut waves = Array3::zeros((2, ny, nx));
        for (wave, semi_angle) in waves.outer_iter_mut().zip(ANGLES) {
            let aberrations = Aberrations::default();
            let probe = Probe { beam, semi_angle, aberrations, tilt: [0.0; 2] };
            probe.wave(&grid)?.put([x / 2.0, y / 2.0], wave);
        }
        multislice.run(waves.view_mut(), slice, &[160], &unwatched, |_, _| Ok(()))?;
        light += &waves.mapv(|a| f64::from(a.norm_sqr()) / phonons.configurations as f64);
    }
    let whole = |angle: &f64| format!("{angle:.0}").replace('-', "−");
    picture(path, (1420, 720), |area| {
        for (k, angle) in ANGLES.into_iter().enumerate() {
            let own = light.slice(s![k, .., ..]);
            let most = own.iter().copied().fold(0.0, f64::max).log10();
            let title = if k == 0 { "discs apart" } else { "discs overlap" };
            let corner = (120 + 720 * k as i32, 70);
            write(area, &format!("semi-angle {angle} mrad: {title}"), (corner.0, 24))?;
            let around = area.clone().shrink((corner.0 - 110, corner.1), (670, 630));
            let mut chart = ChartBuilder::on(&around)
                .x_label_area_size(70)
                .y_label_area_size(110)
                .build_cartesian_2d(-46.0..46.0, -46.0..46.0)?;
            let mut mesh = chart.configure_mesh();
            mesh.disable_mesh().set_all_tick_mark_size(6).label_style((TYPEFACE, 24));
            mesh.x_label_formatter(&whole).y_label_formatter(&whole);
            mesh.x_desc("angle along x [mrad]")
                .y_desc("along y [mrad]")
                .x_labels(6)
                .y_labels(6)
                .draw()?;
            paint(&chart.plotting_area().strip_coord_spec(), |x, y| {
                let index = |share: f64, length: f64, n: usize| {
                    let frequency = beam.frequency(92.0 * (share - 0.5)) * length;
                    frequency.round().rem_euclid(n as f64) as usize
                };
                let a = own[[index(y, grid.lengths()[1], ny), index(x, grid.lengths()[0], nx)]];
                fire(1.0 + (a.max(1e-300).log10() - most) / 4.0)
            })?;
        }
        Ok(())
    })
}

/// A plan for a thin sheet of strontium titanate, scanned over two cells.
fn titanate() -> Result<StemPlan, Box<dyn Error>> {
    const SIDE: f64 = 3.905;
    let atom = |(symbol, [x, y, z]): (&str, [f64; 3])| {
        let element = Element::of_symbol(symbol)?;
        let position = [x * SIDE, y * SIDE, z * SIDE];
        Ok(Atom { element, position, occupancy: 1.0, displacement: 0.0 })
    };
    let places = [
        ("Sr", [0.25, 0.25, 0.25]),
        ("Ti", [0.75, 0.75, 0.75]),
        ("O", [0.25, 0.75, 0.75]),
        ("O", [0.75, 0.25, 0.75]),
        ("O", [0.75, 0.75, 0.25]),
    ];
    let atoms = places.into_iter().map(atom).collect::<Result<_, lenslet::Invalid>>()?;
    let crystal = Crystal::new([[SIDE, 0.0, 0.0], [0.0, SIDE, 0.0], [0.0, 0.0, SIDE]], atoms)?;
    let specimen = crystal.specimen(specimen::BeamDirection::MinusZ, [4, 4, 1])?;
    let slicing = Slicing::new(SIDE, SIDE / 2.0)?;
    let (tilt, aberrations) = ([0.0; 2], Aberrations::default());
    let probe = Probe { beam: Beam::new(200.0)?, semi_angle: 22.0, aberrations, tilt };
    let window = [[SIDE, 3.0 * SIDE], [SIDE, 2.0 * SIDE]];
    let detectors = DetectorOptions::default()
        .annuli(vec![Annulus { inner: 50.0, outer: 75.0, exact: false }])
        .centre_of_mass(true)
        .pattern(PatternOptions::default().crop(60.0));
    let grid = WaveGrid::new([192, 192], [4.0 * SIDE; 2])?;
    let scan = Scan::new(window, [SIDE / 24.0; 2])?;
    let options = StemOptions::new(grid, slicing, probe, scan).detectors(detectors);
    Ok(StemPlan::new(specimen, options)?)
}

/// The colour of a deflection in units of the largest.
fn direction([x, y]: [f64; 2]) -> RGBColor {
    let (size, angle) = (x.hypot(y).min(1.0), y.atan2(x));
    let turned = |k: f64| 0.5 * size * (1.0 + (angle - 2.0 * PI * k / 3.0).cos());
    let [red, green, blue] = [0.0, 1.0, 2.0].map(|k| (255.0 * turned(k)) as u8);
    RGBColor(red, green, blue)
}

/// Deflections in colour with a wheel, and their integral in grey.
fn deflections(path: &Path, plan: &StemPlan, data: &DataSet<'_>) -> Drawn {
    let centres = data.get("centre_of_mass");
    let Some(TypedArray::F32(centres)) = centres.and_then(|variable| variable.array()) else {
        return Err("no centres of mass".into());
    };
    let (step, [nx, ny]) = (plan.options().scan.step(), plan.options().scan.counts());
    let field = Array3::from_shape_fn((ny, nx, 2), |(j, i, axis)| f64::from(centres[[i, j, axis]]));
    let phase = integrated(field.view(), step, Edge::Periodic)?;
    let sizes = field.rows().into_iter().map(|d| d[0].hypot(d[1]));
    let longest = sizes.fold(0.0, f64::max);
    let [least, most] =
        [phase.fold(f64::INFINITY, |a, b| a.min(*b)), phase.fold(0.0, |a: f64, b| a.max(*b))];
    let place = |share: f64, n: usize| ((share * n as f64) as usize).min(n - 1);
    picture(path, (1560, 430), |area| {
        let (width, height) = (600, 300);
        write(area, "centre of mass of the pattern", (20, 20))?;
        paint(&area.clone().shrink((20, 64), (width, height)), |x, y| {
            let d = field.slice(s![place(y, ny), place(x, nx), ..]);
            direction([d[0] / longest, d[1] / longest])
        })?;
        paint(&area.clone().shrink((636, 64), (120, 120)), |x, y| {
            let d = [2.0 * x - 1.0, 2.0 * y - 1.0];
            if d[0].hypot(d[1]) < 1.0 { direction(d) } else { WHITE }
        })?;
        write(area, &format!("{longest:.3} 1/Å"), (634, 196))?;
        write(area, "its integral", (820, 20))?;
        paint(&area.clone().shrink((820, 64), (width, height)), |x, y| {
            let level = (phase[[place(y, ny), place(x, nx)]] - least) / (most - least);
            grey(level)
        })?;
        write(area, &format!("{:.2} rad", most), (1432, 64))?;
        write(area, &format!("to −{:.2}", least.abs()), (1432, 100))?;
        let pixels = |length: f64| (length * f64::from(width) / (nx as f64 * step[0])) as i32;
        for left in [20, 820] {
            area.draw(&Rectangle::new([(left, 386), (left + pixels(2.0), 394)], BLACK.filled()))?;
            write(area, "2 Å", (left + pixels(2.0) + 14, 376))?;
        }
        // Rings around the columns of the second cell, with their names.
        let columns = [("Sr", [0.25, 0.25]), ("Ti, O", [0.75, 0.75]), ("O", [0.25, 0.75])];
        for (k, (name, [x, y])) in columns.into_iter().enumerate() {
            let ink = Palette99::pick(k + 1).to_rgba();
            let at = (
                820 + pixels(3.905 * (1.0 + x) + 0.5 * step[0]),
                364 - pixels(3.905 * y + 0.5 * step[1]),
            );
            area.draw(&Circle::new(at, 34, ink.stroke_width(4)))?;
            let row = (1060 + 130 * k as i32, 390);
            area.draw(&Circle::new(row, 14, ink.stroke_width(4)))?;
            write(area, name, (row.0 + 24, row.1 - 14))?;
        }
        Ok(())
    })
}
