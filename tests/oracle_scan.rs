//! Scans held against abTEM, a program that shares nothing with the crate but the physics: its own potentials, probes, masks and slices.
//!
//! `tests/oracle/scan.py` says of what the readings in `scan.csv` are, and makes them anew.

use crate::cli::{Checked, Run, said};
use ndarray::{Array1, Array4, Axis};
use ndarray_npy::NpzReader;
use std::fs::{self, File};

/// Number, samples along x and y, and depth below the side where electrons enter, Å.
const ATOMS: [(u8, u8, u8, f64); 6] = [
    (14, 35, 21, 0.5),
    (79, 106, 87, 1.6),
    (8, 189, 39, 2.8),
    (38, 70, 153, 3.9),
    (22, 214, 132, 4.4),
    (31, 144, 117, 5.3),
];

const SAMPLE: &str = "sample.file = 'crystal.xyz'
potential = { grid = [256, 192], slice_thickness = 1.0, factors = 'FACTORS' }
beam = { energy_kev = 100.0, semi_angle = 20.0CASE }
scan = { window = [[0.8, 8.0], [1.6, 4.0]], step = [2.4, 1.3] }
detector.four_d = {}
run.precision = 'f64'
";

const ABERRATED: &str = ", defocus = 60.0, c3 = 2e5, aberrations = [
    { m = 2, n = 2, magnitude = 2e3, angle_deg = 30.0 },
    { m = 3, n = 1, magnitude = 1e5, angle_deg = 70.0 },
    { m = 3, n = 3, magnitude = 7e4, angle_deg = 10.0 } ]";

/// λ at 100 kV, Å; angles between which electrons are counted, mrad; and how far the programs may be from each other there, in shares. At 110 mrad
/// abTEM's atoms scatter more than ours by some 0.17 %, and it lets frequencies pass up to two thirds of the highest, where we stop at a half.
const WAVELENGTH: f64 = 0.037_014_362;
const CONES: [([f64; 2], f64); 4] =
    [([0.0, 10.0], 2e-4), ([10.0, 20.0], 2e-4), ([20.0, 40.0], 3e-4), ([40.0, 60.0], 7e-4)];

/// Cells of the frequencies by which the tilted beam lies off the axis.
const TILT: [f64; 2] = [2.0 / 8.0, -1.0 / 6.4];

#[test]
fn scans_read_what_another_program_reads() -> Checked {
    let run = Run::new()?;
    let lines = ATOMS.map(|(number, i, j, depth)| {
        let [x, y] = [f64::from(i) * 8.0 / 256.0, f64::from(j) * 6.4 / 192.0];
        format!("{number} {x} {y} {} 1 0\n", 6.0 - depth)
    });
    fs::write(run.path("crystal.xyz"), format!("six\n8 6.4 6\n{}-1\n", lines.concat()))?;
    let tilted =
        format!(", tilt = [{}, {}]", 1e3 * WAVELENGTH * TILT[0], 1e3 * WAVELENGTH * TILT[1]);
    let cases = [("plain", ""), ("aberrated", ABERRATED), ("tilted", &tilted)];
    let table = include_str!("oracle/scan.csv");
    let rows: Vec<Vec<&str>> = table.lines().skip(2).map(|row| row.split(',').collect()).collect();
    assert_eq!(rows.len(), 2 * 3 * 6);
    for factors in ["kirkland", "lobato"] {
        for (case, beam) in cases {
            let text = SAMPLE.replace("FACTORS", factors).replace("CASE", beam);
            fs::write(run.path("sample.toml"), text)?;
            let name = format!("{factors}-{case}.npz");
            said(&run.lenslet(&format!("stem sample.toml -o {name}"))?);
            let mut file = NpzReader::new(File::open(run.path(&name))?)?;
            let patterns: Array4<f64> = file.by_name("four_d")?;
            let axes: [Array1<f64>; 4] =
                [file.by_name("x")?, file.by_name("y")?, file.by_name("qx")?, file.by_name("qy")?];
            let [x, y, qx, qy] = axes;
            let centre = if case == "tilted" { TILT } else { [0.0; 2] };
            let mut counted = 0;
            for row in rows.iter().filter(|row| row[..2] == [factors, case]) {
                let number = |k: usize| row[k].parse::<f64>().unwrap();
                let at = |axis: &Array1<f64>, place: f64| {
                    axis.iter().position(|x| (x - place).abs() < 1e-9).unwrap()
                };
                let pattern = patterns.index_axis(Axis(0), at(&x, number(2)));
                let pattern = pattern.index_axis(Axis(0), at(&y, number(3)));
                for (c, ([low, high], bound)) in CONES.into_iter().enumerate() {
                    let inside = |i: usize, j: usize| {
                        let angle = 1e3 * WAVELENGTH * (qx[i] - centre[0]).hypot(qy[j] - centre[1]);
                        angle >= low && angle < high
                    };
                    let mine = pattern.indexed_iter().filter(|((i, j), _)| inside(*i, *j));
                    let mine: f64 = mine.map(|(_, share)| share).sum();
                    let gap = mine / number(4 + c) - 1.0;
                    assert!(gap.abs() < bound, "{row:?}: {mine:e} from {low} mrad, {gap:e}");
                    counted += 1;
                }
            }
            assert_eq!(counted, 24);
        }
    }
    Ok(())
}
