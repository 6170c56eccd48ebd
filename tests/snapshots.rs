//! Snapshots of the covariance of the shipped systems: chosen lags in units of the slope variance.
//!
//! Printed to 1e-9 of the variance. The direct method promises 1e-10, so that the last printed digit is not at the
//! mercy of rounding on another processor; a change of a snapshot is a change of the physics. Review with
//! `cargo insta review`, or set INSTA_UPDATE=always.

use lenslet::device::Engine;
use lenslet::model::{System, SystemFile};
use lenslet::plan::Plan;
use lenslet::turbulence::{
    SlopeCovariance, SlopeCovariancePlan, WavefrontCovariancePlan, slope_problem, wavefront_problem,
};
use lenslet::watch::unwatched;
use std::fmt::Write;

fn covariance(name: &str) -> SlopeCovariance {
    let system = System::from_file(format!("book/systems/{name}.toml")).unwrap();
    let plan = SlopeCovariancePlan::direct(slope_problem(&system).unwrap());
    plan.run(&Engine::default(), &unwatched).unwrap()
}

/// A table of some pairs at some lags (x, y) in pitches.
fn table(
    covariance: &SlopeCovariance,
    pairs: &[(usize, usize)],
    lags: &[(isize, isize)],
) -> String {
    let origin = covariance.lenslets() as isize - 1;
    let variance = covariance.variance();
    let mut text = format!("slope variance {variance:.9e} rad²\n");
    text += "pair      lag        xx             xy             yy      (of the variance)\n";
    for &(p, q) in pairs {
        for &(x, y) in lags {
            let at = |a: usize, b: usize| {
                let (j, i) = ((origin + y) as usize, (origin + x) as usize);
                let value = covariance.values()[[p, q, a, b, j, i]] / variance;
                // Adding zero turns a negative zero, which rounding may leave, into a plain one.
                (value * 1e9).round() / 1e9 + 0.0
            };
            let (xx, xy, yy) = (at(0, 0), at(0, 1), at(1, 1));
            let _ = writeln!(text, "{p} {q}  {x:4} {y:4} {xx:14.9} {xy:14.9} {yy:14.9}");
        }
    }
    text
}

#[test]
fn small() {
    let lags = [(0, 0), (1, 0), (0, 1), (1, 1), (-1, 2), (3, 0), (7, -4), (19, 0), (19, 19)];
    insta::assert_snapshot!(table(&covariance("small"), &[(0, 0)], &lags));
}

#[test]
fn keck_lgs() {
    let pairs = [(0, 0), (0, 1), (1, 0), (0, 2), (1, 3)];
    let lags = [(0, 0), (1, 0), (0, -1), (2, 5), (-19, 7)];
    insta::assert_snapshot!(table(&covariance("keck-lgs"), &pairs, &lags));
}

/// Wavefront and slopes of the first target of a system with some stars, layer by layer, at some lags of each lattice's middle.
fn wavefront_table(name: &str, stars: &[usize], lags: &[(isize, isize)]) -> String {
    let system = System::from_file(format!("book/systems/{name}.toml")).unwrap();
    let problem = wavefront_problem(&system).unwrap();
    let plan = WavefrontCovariancePlan::direct(problem.clone());
    let covariance = plan.run(&Engine::default(), &unwatched).unwrap();
    let largest = covariance.largest();
    let mut text = format!("largest entry {largest:.9e} m rad\n");
    text += "layer  star      lag        x              y        (of the largest entry)\n";
    for (layer, lattice) in covariance.lattices().iter().enumerate() {
        let middle = (lattice.dim().4 / 2) as isize;
        for (&q, &(x, y)) in stars.iter().flat_map(|q| lags.iter().map(move |lag| (q, lag))) {
            let at = |a: usize| {
                let value = lattice[[0, q, a, (middle + y) as usize, (middle + x) as usize]];
                (value / largest * 1e9).round() / 1e9 + 0.0
            };
            let (along_x, along_y) = (at(0), at(1));
            let _ = writeln!(text, "{layer:5} {q:5}  {x:4} {y:4} {along_x:14.9} {along_y:14.9}");
        }
    }
    text
}

#[test]
fn keck_lgs_wavefront() {
    let lags = [(0, 0), (-1, 0), (2, 5), (-30, 17)];
    insta::assert_snapshot!(wavefront_table("keck-lgs", &[0, 3], &lags));
}

#[test]
fn elt() {
    let pairs = [(0, 0), (0, 1), (2, 5), (5, 2), (4, 3)];
    let lags = [(0, 0), (0, 1), (-3, 2), (17, 0), (-60, 79)];
    insta::assert_snapshot!(table(&covariance("elt"), &pairs, &lags));
}

/// The budget of the tomographic error of a system: what each target is left with, in nanometres, printed to 1e-4 nm.
fn error_budget(system: &System) -> String {
    use lenslet::tomography::{ReconstructorOptions, ReconstructorPlan};
    let plan = ReconstructorPlan::new(system, ReconstructorOptions::default()).unwrap();
    let found = plan.run(&Engine::default(), &unwatched).unwrap();
    let mut text =
        format!("{} slopes, {} of the truth\n", plan.measurements(), plan.truth_slopes());
    for (t, error) in found.wavefront_errors(system).unwrap().iter().enumerate() {
        let [with, without] = [error.rms, error.rms_without_tilt].map(|rms| 1e9 * rms);
        let _ = writeln!(text, "target {t}: {with:9.4} nm, {without:9.4} nm without tilt");
    }
    text
}

#[test]
fn error_budgets() {
    let system = System::from_file("book/systems/small-moao.toml").unwrap();
    insta::assert_snapshot!(error_budget(&system));
}

/// Strehl ratios to 1e-4, widths and energies, and errors in nanometres by their causes: what changes them changes more than rounding.
#[test]
fn image_budgets() {
    use lenslet::psf::{PsfOptions, PsfPlan};
    let file = SystemFile::from_file("book/systems/small-moao.toml").unwrap();
    let options = PsfOptions::from_system_file(&file).unwrap();
    let plan = PsfPlan::new(&file.system().unwrap(), options).unwrap();
    let found = plan.run(&Engine::default(), &unwatched).unwrap();
    let mut told = String::new();
    for (t, target) in found.targets.iter().enumerate() {
        let seen = &target.exposures[0];
        let width =
            seen.width.map_or(f64::NAN, |width| 1e3 * width.mean() / lenslet::units::ARCSEC);
        let (strehl, energy) = (seen.image.strehl, seen.ensquared[0]);
        let _ = writeln!(
            told,
            "target {t}: Strehl {strehl:.4}, {width:.2} mas, {energy:.4} in the box"
        );
        let _ = writeln!(told, "  {}", target.budget);
    }
    insta::assert_snapshot!(told);
}

/// The budget of an instrument of a telescope of 39 m, with few lenslets in place of many: its sky and its stars are what is tested.
fn budget_with_few_lenslets(name: &str, lenslets: [(usize, usize); 2]) -> String {
    let mut text = std::fs::read_to_string(format!("book/systems/{name}.toml")).unwrap();
    for (many, few) in lenslets {
        text = text.replace(&format!("\nlenslets = {many}"), &format!("\nlenslets = {few}"));
    }
    error_budget(&System::from_toml(&text, name).unwrap())
}

#[test]
fn harmoni_error_budget() {
    insta::assert_snapshot!(budget_with_few_lenslets("harmoni-ltao", [(74, 4), (2, 2)]));
}

#[test]
fn micado_error_budget() {
    insta::assert_snapshot!(budget_with_few_lenslets("micado-mcao", [(68, 3), (8, 2)]));
}

#[test]
fn mosaic_error_budget() {
    insta::assert_snapshot!(budget_with_few_lenslets("mosaic", [(72, 4), (0, 0)]));
}

/// Files whose own size is for a device are at least planned, here by their numbers of slopes.
#[test]
fn large_systems_have_their_sizes() {
    use lenslet::tomography::{ReconstructorOptions, ReconstructorPlan};
    for (name, sizes) in [
        ("harmoni-ltao", (47_672, 7944)),
        ("micado-mcao", (40_560, 6712)),
        ("mosaic", (70_128, 7792)),
        ("moao-2014", (41_040, 4560)),
    ] {
        let system = System::from_file(format!("book/systems/{name}.toml")).unwrap();
        let plan = ReconstructorPlan::new(&system, ReconstructorOptions::default()).unwrap();
        assert_eq!((plan.measurements(), plan.truth_slopes()), sizes, "{name}");
    }
}
