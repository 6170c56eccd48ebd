//! Writes the table of timed reconstructors on one, two and four devices, and draws their times against the number of slopes, into the folder
//! that is given.

use lenslet::plot::Figure;
use std::{error::Error, fs, path::PathBuf};

/// Printed by `lenslet bench reconstruct --device cuda`, line by line.
const MEASURED: &str = include_str!("../measured/reconstruct-scaling-h200.csv");

/// Operations per second of an H200 in double precision by its tensor cores, and in single precision without them, by its data sheet.
const PEAK: f64 = 67e12;

/// A reconstructor and its times in seconds.
struct Row<'a> {
    slopes: f64,
    truth: f64,
    devices: f64,
    /// Precision, devices, and whether R or the errors alone are computed.
    names: [&'a str; 3],
    /// Covariance of measurements, covariance with the truth, factorisation, reconstructor, error, all, and planned.
    seconds: Vec<f64>,
}

impl<'a> Row<'a> {
    fn read(line: &'a str) -> Result<Self, Box<dyn Error>> {
        let fields: Vec<_> = line.split(',').collect();
        let [slopes, truth, precision, devices, result, seconds @ ..] = &fields[..] else {
            return Err(format!("{line}: too few fields").into());
        };
        let number = |text: &&str| text.parse::<f64>();
        let seconds = seconds.iter().map(number).collect::<Result<Vec<_>, _>>()?;
        if seconds.len() != 7 {
            return Err(format!("{line}: {} times", seconds.len()).into());
        }
        let names = [*precision, *devices, *result];
        Ok(Self {
            slopes: number(slopes)?,
            truth: number(truth)?,
            devices: number(devices)?,
            names,
            seconds,
        })
    }

    fn errors_only(&self) -> bool {
        self.names[2] == "errors"
    }

    fn total(&self) -> f64 {
        self.seconds[5]
    }

    /// Additions and multiplications of the factor, and of the solution: half of it for the errors alone.
    fn operations(&self) -> f64 {
        let passes = if self.errors_only() { 1.0 } else { 2.0 };
        self.slopes.powi(3) / 3.0 + passes * self.truth * self.slopes.powi(2)
    }

    fn line(&self) -> String {
        let [precision, devices, result] = self.names;
        let cell = |(k, s): (usize, &f64)| {
            let width = if k < 5 { 7 } else { 8 };
            if *s > 0.0 { format!("{s:>width$.3}") } else { format!("{:>width$}", "–") }
        };
        let seconds: String = self.seconds.iter().enumerate().map(cell).collect();
        let share = self.operations() / self.total() / self.devices / PEAK;
        let (slopes, truth) = (self.slopes, self.truth);
        format!("{slopes:>6}{truth:>6} {precision}{devices:>8} {result:<6}{seconds}{share:>8.2}\n")
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let (notes, lines): (Vec<_>, Vec<_>) = MEASURED.lines().partition(|line| line.starts_with('#'));
    let rows = lines.iter().skip(1).map(|line| Row::read(line));
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let heading = "slopes truth     devices          C_mm   C_tm factor  solve  error     all planned of peak\n";
    let notes: String =
        notes.iter().map(|note| format!("{}\n", note.trim_start_matches("# "))).collect();
    let table: String = rows.iter().map(Row::line).collect();
    fs::write(folder.join("reconstructor-ranks.txt"), format!("{notes}\n{heading}{table}"))?;
    let times = |devices: f64, errors_only: bool| {
        let chosen = rows
            .iter()
            .filter(move |row| row.devices == devices && row.errors_only() == errors_only);
        chosen.map(|row| (row.slopes, row.total())).collect::<Vec<_>>()
    };
    let bound = |devices: f64| {
        let slopes = (0..=44).map(|k| 3e4 * 10f64.powf(f64::from(k) / 40.0));
        slopes.map(move |n| (n, n.powi(3) / 3.0 / devices / PEAK))
    };
    Figure::new()
        .title("Reconstructors on NVIDIA H200s")
        .x_label("slopes")
        .y_label("time [s]")
        .x_range(3e4, 4e5)
        .y_range(0.1, 200.0)
        .log_x()
        .log_y()
        .points("errors, one device", times(1.0, true))
        .points("errors, two devices", times(2.0, true))
        .points("errors, four devices", times(4.0, true))
        .points("R, one device", times(1.0, false))
        .points("R, two devices", times(2.0, false))
        .points("R, four devices", times(4.0, false))
        .line("bound of the factor, one device", bound(1.0))
        .dashes("bound, four devices", bound(4.0))
        .save(folder.join("reconstructor-ranks-times.svg"))?;
    Ok(())
}
