//! Writes the tables of timed scans, and draws those of the cores, from the figures measured, into the folder that is given.

use lenslet::bench::electrons::{StemSheet, StemTimes};
use lenslet::plot::Figure;
use std::{error::Error, fs, path::PathBuf};

/// Printed by `lenslet bench stem --json`, and by `lenslet bench stem --device cuda --json` where there are devices.
const MEASURED: [&str; 4] = [
    include_str!("../measured/stem-cores.json"),
    include_str!("../measured/stem-h200.json"),
    include_str!("../measured/stem-h200-x2.json"),
    include_str!("../measured/stem-h200-x4.json"),
];

/// Printed by `tests/oracle/scan.py times`: the rows of the first sheet, with abTEM's seconds in the second column.
const ABTEM: &str = include_str!("../measured/stem-abtem.txt");

/// Seconds of Prismatic for the rows of the first sheet, from the table of the chapter.
const PRISMATIC: [(f64, f64); 4] = [(1.0, 6.1), (1.0, 9.8), (2.0, 1.2), (2.0, 1.9)];

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("the output folder is missing")?);
    let sheets = MEASURED.iter().map(|text| serde_json::from_str::<StemSheet>(text));
    let sheets = sheets.collect::<Result<Vec<_>, _>>()?;
    let tables: Vec<String> = sheets.iter().map(StemSheet::table).collect();
    fs::write(folder.join("bench-electrons.txt"), tables.join("\n"))?;
    let cores = sheets.first().ok_or("no sheet of cores")?;
    let rows = |time: fn(&StemTimes) -> f64| {
        let row = move |(k, times)| ((k + 1) as f64, time(times));
        cores.rows.iter().enumerate().map(row).collect::<Vec<_>>()
    };
    let seconds = |line: &str| line.split_whitespace().nth(1).unwrap_or_default().parse::<f64>();
    let abtem =
        ABTEM.lines().skip(3).enumerate().map(|(k, line)| Ok(((k + 1) as f64, seconds(line)?)));
    let abtem = abtem.collect::<Result<Vec<_>, std::num::ParseFloatError>>()?;
    Figure::new()
        .title(&format!("{}, {}, {}", cores.processor, cores.engine, cores.date))
        .x_label("row of the table")
        .y_label("time [s]")
        .x_range(0.5, 6.5)
        .y_range(0.002, 3000.0)
        .log_y()
        .line("a scan", rows(|times| times.total))
        .points("of one probe", rows(|times| times.prepared))
        .dashes("transforms alone", rows(|times| times.transforms))
        .points("Prismatic, 2 cores", PRISMATIC)
        .points("abTEM", abtem)
        .save(folder.join("bench-electrons.svg"))?;
    Ok(())
}
