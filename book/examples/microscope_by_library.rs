// Tangled from book/src/smallest-microscope.md: edit there, or here and run cargo tangle stitch.
//! The row of the smallest microscope, scanned by the library.

use lenslet::prelude::*;

// Sample file of the gold row
const GOLD_ROW: &str = "sample.crystal = '''gold: columns of 1, 2 and 4 atoms
  12.24  12.24  16.32
  79   2.04  4.08  14.28  1.0  0.085
  79   6.12  4.08  14.28  1.0  0.085
  79   6.12  4.08  10.20  1.0  0.085
  79  10.20  4.08  14.28  1.0  0.085
  79  10.20  4.08  10.20  1.0  0.085
  79  10.20  4.08   6.12  1.0  0.085
  79  10.20  4.08   2.04  1.0  0.085
  -1'''
beam = { energy_kev = 200.0, semi_angle = 20.0 }
scan = { window = [[2.04, 12.24], [4.08, 4.5]], step = [4.08, 0.5] }
detector.annuli = [[25.0, 36.0]]
run.precision = 'f64'
";

// Scan the gold row by the library
pub fn signals(samples: usize, configurations: usize) -> Result<Vec<f64>> {
    let waves = format!("potential = {{ grid = [{samples}, {samples}], slice_thickness = 4.08 }}");
    let phonons = format!("phonons.configurations = {configurations}");
    let file = SampleFile::from_toml(&[&waves, &phonons, GOLD_ROW].join("\n"), "gold-row.toml")?;
    let plan = file.plan()?;
    let scan = plan.run(&Engine::default(), &unwatched)?;
    let annulus = scan.mean.column(plan.detectors().layout().annuli.start);
    Ok(annulus.iter().map(|share| 100.0 * share).collect()) // % of the electrons
}
