//! `lenslet stem` from outside: what stands in its files beside the readings, and what it refuses.

use crate::cli::{Checked, Run};
use ndarray::{Array1, Array3, Array4, ArrayD, Axis, s};
use ndarray_npy::{NpzReader, ReadableElement};
use std::fs::{self, File};

const SAMPLE: &str = "sample = { file = 'SI100.XYZ', tile = [3, 1, 1] }
phonons = { configurations = 2, seed = 3 }
[potential]
grid = [144, 32]
slice_thickness = 1.3575
[beam]
energy_kev = 100.0
semi_angle = 24.0
[scan]
window = [[0.0, 5.43], [0.0, 5.43]]
step = [1.81, 1.3575]
source_size = 0.5
[method]
algorithm = 'prism'
interpolation = [2, 1]
refocus = 3.0
thicknesses = [2.7]
[detector]
bin = 4.0
annuli = [[24.0, 48.0]]
integrated_centre = true
dose = 2000
dose_seed = 8
[imaging]
aperture = 30.0
";

/// A folder with the crystal and this sample file.
fn folder(sample: &str) -> std::io::Result<Run> {
    let run = Run::new()?;
    let crystal = concat!(env!("CARGO_MANIFEST_DIR"), "/book/systems/SI100.XYZ");
    fs::copy(crystal, run.path("SI100.XYZ"))?;
    fs::write(run.path("si.toml"), sample)?;
    Ok(run)
}

/// Runs to the end and returns what was said.
fn said(run: &Run, args: &str) -> Result<String, Box<dyn std::error::Error>> {
    let output = run.lenslet(args)?;
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn array<T: ReadableElement>(
    run: &Run,
    file: &str,
    name: &str,
) -> Result<ArrayD<T>, Box<dyn std::error::Error>> {
    Ok(NpzReader::new(File::open(run.path(file))?)?.by_name(name)?)
}

#[test]
fn scans_tell_thicknesses_errors_and_what_they_are_made_of() -> Checked {
    let run = folder(SAMPLE)?;
    let told = said(
        &run,
        "stem si.toml -o si.npz --precision f64 --save potential,probe,smatrix --compare 3 --json",
    )?;
    let json: serde_json::Value = serde_json::from_str(&told)?;
    let detectors = json["compare"]["detectors"].as_array().ok_or("no errors")?;
    let names: Vec<_> = detectors.iter().map(|one| one["name"].as_str().unwrap_or("")).collect();
    let after = ["annulus_0_after_2", "centre_of_mass_after_2", "annulus_0", "centre_of_mass"];
    assert_eq!(names, after);
    assert_eq!(json["compare"]["places"].as_array().map(Vec::len), Some(3));
    assert!(detectors.iter().all(|one| one["rms"].as_f64() <= one["largest"].as_f64()));
    let npz = NpzReader::new(File::open(run.path("si.npz"))?)?.names()?;
    for name in [
        "annular",
        "annulus_0",
        "standard_error",
        "standard_error_annulus_0",
        "standard_error_centre_of_mass",
        "potential",
        "probe",
        "smatrix",
        "smatrix_beams",
    ] {
        assert!(npz.iter().any(|it| it == name), "no {name} in {npz:?}");
    }
    let images: Array3<f64> = array::<f64>(&run, "si.npz", "annulus_0")?.into_dimensionality()?;
    let rings: Array4<f64> = array::<f64>(&run, "si.npz", "annular")?.into_dimensionality()?;
    assert_eq!(images.dim(), (2, 3, 4));
    let (image, rings) = (images.index_axis(Axis(0), 1), rings.index_axis(Axis(0), 1));
    // Whole electrons, and an annulus has those of its rings
    assert!(image.iter().all(|x| x.fract() == 0.0) && image.sum() > 100.0);
    assert_eq!(image[[2, 1]], (6..12).map(|ring| rings[[2, 1, ring]]).sum::<f64>());
    let line = |name: &str| -> Result<Array1<f64>, Box<dyn std::error::Error>> {
        Ok(array::<f64>(&run, "si.npz", name)?.into_dimensionality()?)
    };
    let (angle, q) = (line("angle")?, line("q")?);
    assert!((q[1] - angle[1] * 1e-3 / 0.037014361993505496).abs() < 1e-12);
    assert_eq!((line("x")?.to_vec(), line("y")?[3]), (vec![0.0, 1.81, 3.62], 4.0725));
    assert_eq!(line("thicknesses")?.to_vec(), [2.715, 5.43]);
    assert_eq!(line("thickness")?.to_vec(), [2.715, 5.43]);
    assert_eq!(array::<f64>(&run, "si.npz", "idpc")?.shape(), [2, 3, 4]);
    assert_eq!(array::<f64>(&run, "si.npz", "potential")?.shape(), [144, 32, 4]);
    Ok(())
}

/// The errors of PRISM are one table at the end of the summary; large ones are a warning there, in the JSON and on the standard error.
#[test]
fn errors_of_prism_are_one_table_and_large_ones_are_warned_of() -> Checked {
    let sample = SAMPLE.replace("dose = 2000\ndose_seed = 8\n", "");
    let run =
        folder(&sample.replace("interpolation = [2, 1]", "interpolation = [1, 1]\nmargin = 20.0"))?;
    let output = run.lenslet("stem si.toml -o si.npz --precision f64 --compare 3 --plot si.svg")?;
    let (told, warned) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    assert!(output.status.success(), "{warned}");
    let (_, table) = told.split_once("compared    3 probes with multislice").ok_or(told.clone())?;
    let rows: Vec<_> = table.lines().skip(1).collect();
    assert_eq!(rows.len(), 4, "{told}");
    for (row, name) in rows.iter().zip([
        "annulus_0_after_2",
        "centre_of_mass_after_2",
        "annulus_0",
        "centre_of_mass",
    ]) {
        assert!(row.starts_with(&format!("  {name} ")) && row.contains(" %, largest "), "{told}");
    }
    // Half of the beams
    let run = folder(&sample.replace(
        "interpolation = [2, 1]",
        "interpolation = [4, 1]\ninterpolation_check = 'warn'",
    ))?;
    let output = run.lenslet("stem si.toml -o si.npz --precision f64 --compare 3")?;
    let (told, warned) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    let large = "PRISM differs from multislice by more than 5 %: ";
    for text in [&told, &warned] {
        let (_, large) = text.split_once(large).ok_or(text.clone())?;
        let large = large.lines().next().unwrap_or("");
        assert!(large.contains("annulus_0 by up to "), "{large}");
        assert!(large.contains("method.interpolation = [2, 1] in place of [4, 1]"), "{large}");
    }
    let json: serde_json::Value = serde_json::from_str(&said(
        &run,
        "stem si.toml -o si.npz --precision f64 --compare 3 --json",
    )?)?;
    let warnings = json["warnings"].as_array().ok_or("no warnings")?;
    assert!(
        warnings.iter().any(|one| one.as_str().is_some_and(|one| one.starts_with(large))),
        "{json}"
    );
    let largest = json["compare"]["detectors"].as_array().ok_or("none")?.iter();
    assert!(largest.filter_map(|one| one["largest"].as_f64()).any(|largest| largest > 0.05));
    Ok(())
}

#[test]
fn shares_are_counted_as_whole_scans() -> Checked {
    let run = folder(SAMPLE)?;
    said(&run, "stem si.toml -o whole.npz")?;
    for k in 1..=3 {
        said(&run, &format!("stem si.toml -o part.{k} --share {k}/3"))?;
    }
    said(&run, "stem si.toml -o joined.npz --collect part.3 part.1 part.2")?;
    for name in ["annular", "annulus_0", "centre_of_mass", "standard_error"] {
        assert_eq!(array::<f32>(&run, "whole.npz", name)?, array::<f32>(&run, "joined.npz", name)?);
    }
    // Another seed gives other counts
    fs::write(run.path("si.toml"), SAMPLE.replace("dose_seed = 8", "dose_seed = 9"))?;
    said(&run, "stem si.toml -o other.npz --collect part.3 part.1 part.2")?;
    assert_ne!(
        array::<f32>(&run, "whole.npz", "annular")?,
        array::<f32>(&run, "other.npz", "annular")?
    );
    Ok(())
}

#[test]
fn plane_waves_are_imaged() -> Checked {
    let wave = SAMPLE
        .replace("'prism'", "'hrtem'")
        .replace("semi_angle = 24.0", "defocus = [0.0, -300.0]");
    let run = folder(&wave)?;
    let told = said(&run, "stem si.toml -o si.npz --save wave,potential --plot si.svg")?;
    assert!(told.contains("4 images of si.toml"), "{told}");
    let drawn = std::fs::read_to_string(run.path("si.svg"))?;
    for defocus in ["image, defocus 0 Å", "image, defocus −300 Å"] {
        assert_eq!(drawn.matches(&format!(">\n{defocus},")).count(), 2, "{defocus}");
    }
    assert_eq!(drawn.matches(">\nintensity / incident\n<").count(), 4);
    std::fs::write(run.path("one.toml"), wave.replace("[0.0, -300.0]", "-300.0"))?;
    said(&run, "stem one.toml -o one.npz --plot one.svg")?;
    let drawn = std::fs::read_to_string(run.path("one.svg"))?;
    assert_eq!(drawn.matches("defocus −300 Å\n<").count(), 2);
    let images: Array4<f32> = array::<f32>(&run, "si.npz", "image")?.into_dimensionality()?;
    assert_eq!(images.dim(), (2, 2, 144, 32));
    // The aperture takes the same electrons from both images; the defocus redistributes the others.
    for thickness in 0..2 {
        let [focused, defocused] = [0, 1].map(|focus| images.slice(s![focus, thickness, .., ..]));
        let [left, other] = [&focused, &defocused].map(|image| image.mean().unwrap_or(f32::NAN));
        assert!(left < 1.0 && (left / other - 1.0).abs() < 1e-5, "{left} {other}");
        let moved = (&focused - &defocused).mapv(f32::abs).mean().unwrap_or(f32::NAN);
        assert!(moved > 0.01 * left, "{moved}");
    }
    assert_eq!(array::<f64>(&run, "si.npz", "defocus")?.into_raw_vec_and_offset().0, [0.0, -300.0]);
    let npz = NpzReader::new(File::open(run.path("si.npz"))?)?.names()?;
    for name in ["wave", "standard_error_image", "potential", "thickness", "x", "y"] {
        assert!(npz.iter().any(|it| it == name), "no {name} in {npz:?}");
    }
    let plan = said(&run, "stem si.toml --plan")?;
    assert!(plan.contains("images of a plane wave"), "{plan}");
    let expected = ["\"multislice\" or \"prism\""];
    run.refuses("stem si.toml -o a.npz --save smatrix", &["save = smatrix", expected[0]])?;
    run.refuses("stem si.toml -o a.npz --share 1/2", &["share = 1/2", expected[0]])?;
    run.refuses("stem si.toml -o a.npz --compare 2", &["compare = 2", expected[0]])?;
    // Neither a scan nor detectors are needed
    let few = "sample.file = 'SI100.XYZ'\nbeam.energy_kev = 200.0\nmethod.algorithm = 'hrtem'\n";
    fs::write(run.path("si.toml"), few.to_string() + "potential.grid = [64, 64]\n")?;
    assert!(said(&run, "stem si.toml -o few.h5")?.contains("1 image of si.toml"));
    Ok(())
}

#[test]
fn scans_that_cannot_be_are_refused_with_their_line() -> Checked {
    let run = folder(SAMPLE)?;
    run.refuses("stem si.toml -o a.npz --save wave", &["save = wave", "\"hrtem\""])?;
    run.refuses("stem si.toml -o a.npz --compare 0", &["compare = 0: expected at least one"])?;
    for (from, to, words) in [
        ("[2.7]", "[2.7, 6.0]", "si.toml:17: method.thicknesses[1] = 6.0: expected a length in Å"),
        ("3.0", "'far'", "si.toml:16: method.refocus = 'far': expected a length in Å"),
        ("0.5\n", "-0.5\n", "si.toml:12: scan.source_size = -0.5: expected a length"),
        ("2000", "0", "si.toml:22: detector.dose = 0: expected a number of electrons"),
        ("= 8", "= 0.5", "si.toml:23: detector.dose_seed = 0.5: expected a whole number"),
        ("= true", "= 'yes'", "si.toml:21: detector.integrated_centre = 'yes': expected true or"),
        ("= 30.0", "= -30.0", "si.toml:25: imaging.aperture = -30.0: expected a finite number"),
    ] {
        assert!(SAMPLE.contains(from), "{from}");
        fs::write(run.path("si.toml"), SAMPLE.replace(from, to))?;
        run.refuses("stem si.toml -o a.npz", &[words])?;
    }
    fs::write(run.path("si.toml"), SAMPLE.replace("'prism'", "'multislice'"))?;
    run.refuses("stem si.toml -o a.npz --save smatrix", &["save = smatrix", "\"prism\""])?;
    run.refuses("stem si.toml -o a.npz --compare 4", &["compare = 4", "\"prism\""])?;
    Ok(())
}
