//! `lenslet stem` from the command line: pictures, what it refuses, and runs that are interrupted, shared, or find no room.

use crate::cli::{Checked, Run, said};
use ndarray::ArrayD;
use ndarray_npy::NpzReader;
use std::fs::{self, File};

/// A few probes over a thin crystal, lopsided in all that can be.
const SAMPLE: &str = "[sample]
file = \"crystal.xyz\"
[potential]
grid = [48, 32]
slice_thickness = 1.3575
[phonons]
configurations = 2
[beam]
energy_kev = 100.0
semi_angle = 15.0
[scan]
window = [[0.0, 5.43], [1.0, 4.0]]
step = [0.7, 0.5]
[detector]
bin = 4.0
annuli = [[20.0, 40.0]]
centre_of_mass = true
four_d = { crop = 30.0, bin = 1 }
";

const CRYSTAL: &str = include_str!("../book/systems/SI100.XYZ");

type Failed = Box<dyn std::error::Error>;

fn run() -> Result<Run, Failed> {
    let run = Run::new()?;
    fs::write(run.path("crystal.xyz"), CRYSTAL)?;
    fs::write(run.path("sample.toml"), SAMPLE)?;
    Ok(run)
}

/// A file of the run with one thing changed.
fn change(run: &Run, name: &str, text: &str, from: &str, to: &str) -> Checked {
    assert_eq!(text.matches(from).count(), 1, "{from}");
    Ok(fs::write(run.path(name), text.replace(from, to))?)
}

fn array(run: &Run, file: &str, name: &str) -> Result<ArrayD<f32>, Failed> {
    Ok(NpzReader::new(File::open(run.path(file))?)?.by_name(name)?)
}

/// Whether two files hold the same signals, to the bit.
fn same_signals(run: &Run, one: &str, other: &str) -> Checked {
    for name in ["annular", "annulus_0", "centre_of_mass", "four_d", "standard_error"] {
        let (one, other) = (array(run, one, name)?, array(run, other, name)?);
        assert!(one.iter().any(|x| *x != 0.0), "{name}");
        assert_eq!(one, other, "{name}");
    }
    Ok(())
}

#[test]
fn pictures_have_what_was_read() -> Checked {
    let run = run()?;
    let told = said(&run.lenslet("stem sample.toml -o a.npz --plot a.svg")?);
    assert!(told.ends_with("plot        a.svg\n"), "{told}");
    let drawn = fs::read_to_string(run.path("a.svg"))?;
    for word in [
        "sample.toml, 100 keV, 15 mrad",
        "columns of atoms",
        "Si",
        "annulus_0: 20–40 mrad",
        "centre_of_mass",
        "four_d (mean)",
        "2 Å",
    ] {
        assert!(drawn.contains(&format!(">\n{word}\n<")), "{word}");
    }
    assert!(!drawn.contains("standard_error") && !drawn.contains("annular"));
    // The shares of a run have no picture; what is joined has the same one.
    for k in 1..=2 {
        said(&run.lenslet(&format!("stem sample.toml -o part{k} --share {k}/2"))?);
    }
    said(&run.lenslet("stem sample.toml -o b.npz --collect part2 part1 --plot b.svg")?);
    assert_eq!(fs::read_to_string(run.path("b.svg"))?, drawn);
    same_signals(&run, "a.npz", "b.npz")?;
    let told = said(&run.lenslet("stem sample.toml -o a.npz --plot a.png --json")?);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&told)?["plot"], "a.png");
    assert!(fs::read(run.path("a.png"))?.starts_with(b"\x89PNG"));
    said(&run.lenslet("stem sample.toml --plan --plot c.svg")?);
    assert!(!run.path("c.svg").exists(), "a plan draws nothing");
    run.refuses("stem sample.toml -o a.npz --plot a.npz", &["plot", ".svg or .png"])?;
    run.refuses("stem sample.toml -o a.npz --plot a.pdf", &["plot", ".svg or .png"])?;
    run.refuses("stem sample.toml -o x.npz --plot no/a.svg", &["no/a.svg", "no folder"])?;
    run.refuses("stem sample.toml -o x --share 1/2 --plot a.svg", &["--plot", "--share"])?;
    Ok(())
}

#[test]
fn bad_crystals_are_refused_with_their_line() -> Checked {
    let run = run()?;
    fs::write(run.path("out.npz"), "old")?;
    for (from, to, words) in [
        ("14  0.0000  0.0000  0.0000", "104  0.0000  0.0000  0.0000", ["3: element = 104", "103"]),
        ("14  0.0000  0.0000  0.0000", "Sx  0.0000  0.0000  0.0000", ["3: element = Sx", "symbol"]),
        ("4.0725  1.3575  1.3575", "4.0725  1.3575  -0.2", ["6: z = -0.2", "0 to 5.43 Å"]),
        ("1.3575  1.3575  4.0725", "1.3575  1.3575  5.5", ["9: z = 5.5", "0 to 5.43 Å"]),
        (
            "2.7150  2.7150  0.0000  1.0",
            "2.7150  2.7150  0.0000  -0.5",
            ["4: occupancy = -0.5", ""],
        ),
        ("2.7150  2.7150  0.0000  1.0", "2.7150  2.7150  0.0000  1.5", ["4: occupancy = 1.5", ""]),
        ("5.43    5.43    5.43", "5.43    0.0    5.43", ["2: cell = 0.0", "three sides"]),
        ("1.3575  4.0725  1.3575", "1.3575  nan  1.3575", ["5: y = nan", "a place in Å"]),
    ] {
        change(&run, "crystal.xyz", CRYSTAL, from, to)?;
        run.refuses("stem sample.toml -o out.npz", &words)?;
    }
    fs::remove_file(run.path("crystal.xyz"))?;
    run.refuses("stem sample.toml -o out.npz", &["cannot read", "crystal.xyz"])?;
    assert_eq!(fs::read_to_string(run.path("out.npz"))?, "old");
    Ok(())
}

#[test]
fn bad_samples_are_refused_with_their_line() -> Checked {
    let run = run()?;
    fs::write(run.path("out.npz"), "old")?;
    let prism = "[method]\nalgorithm = \"prism\"\ninterpolation = [3, 5]\n[scan]";
    for (from, to, words) in [
        ("thickness = 1.3575", "thickness = 9.0", ["5: potential.slice_thickness = 9.0", "5.43"]),
        (
            "thickness = 1.3575",
            "thickness = 0",
            ["5: potential.slice_thickness = 0", "greater than"],
        ),
        ("semi_angle = 15.0", "semi_angle = 90.0", ["10: beam.semi_angle = 90.0", "at most 78.3"]),
        ("semi_angle = 15.0", "semi_angle = -1.0", ["10: beam.semi_angle = -1.0", "0 to 500"]),
        ("step = [0.7, 0.5]", "step = 0.0", ["13: scan.step = 0.0", "greater than 0"]),
        (
            "step = [0.7, 0.5]",
            "step = [0.7, 0.0]",
            ["13: scan.step = [0.7, 0.0]", "greater than 0"],
        ),
        ("[1.0, 4.0]", "[4.0, 1.0]", ["12: scan.window", "from below its to"]),
        ("[scan]", prism, ["interpolation = 5", "divides a quarter of 32 points"]),
        ("energy_kev = 100.0", "energy_kev = \"fast\"", ["9: beam.energy_kev = \"fast\"", "keV"]),
        ("energy_kev = 100.0", "", ["beam.energy_kev", "keV"]),
        ("grid = [48, 32]", "grid = 48", ["4: potential.grid = 48", "two multiples of 4"]),
        (
            "grid = [48, 32]",
            "grid = [48.5, 32]",
            ["4: potential.grid = [48.5, 32]", "two multiples"],
        ),
        ("configurations = 2", "configurations = -2", ["7: phonons.configurations = -2", "whole"]),
        ("bin = 4.0", "bin = [4.0]", ["15: detector.bin = [4.0]", "a number"]),
        ("[[20.0, 40.0]]", "[20.0, 40.0]", ["16: detector.annuli", "[inner, outer]"]),
        ("[[20.0, 40.0]]", "[[40.0, 20.0]]", ["16: detector.annuli[0]", "larger outer one"]),
        ("[[20.0, 40.0]]", "[[20.0, 300.0]]", ["16: detector.annuli[0]", "which the grid keeps"]),
        (
            "centre_of_mass = true",
            "centre_of_mass = 1",
            ["17: detector.centre_of_mass = 1", "true"],
        ),
        ("centre_of_mass", "center_of_mass", ["17: detector.center_of_mass", "centre_of_mass?"]),
    ] {
        change(&run, "bad.toml", SAMPLE, from, to)?;
        run.refuses("stem bad.toml -o out.npz", &["bad.toml:", words[0], words[1]])?;
    }
    run.refuses("stem crystal.xyz -o out.npz", &["crystal.xyz:1"])?;
    run.refuses("stem sample.toml -o out.npz --checkpoint 0", &["checkpoint = 0.0"])?;
    // Which signal goes into a file of one is asked for before days are spent.
    change(&run, "long.toml", SAMPLE, "configurations = 2", "configurations = 1000000")?;
    let which = "expected one of annular, annulus_0, four_d, centre_of_mass, standard_error";
    run.refuses("stem long.toml -o out.mrc", &[which])?;
    run.refuses("stem long.toml -o out.mrc --signal q", &["signal = q", which])?;
    run.refuses("stem sample.toml -o sample.npz.txt", &["output", ".h5"])?;
    run.refuses("stem sample.toml -o crystal.xyz --share 1/2", &["another file than the crystal"])?;
    run.refuses("stem sample.toml -o sample.toml --share 1/2", &["another file than the sample"])?;
    assert_eq!(fs::read_to_string(run.path("out.npz"))?, "old");
    Ok(())
}

/// Slips of units are rejected by line with the value that was meant, and with it the file is accepted.
#[test]
fn slips_of_units_in_samples_suggest_the_value_that_was_meant() -> Checked {
    use lenslet::electrons::sample_file::SampleFile;
    let text = "sample = { file = 'crystal.xyz', cell = [5.43, 5.43, 5.43] }\n[potential]\npixel = 0.1\nslice_thickness = 2.0\nbound = 3.0\n\
                [phonons]\nrms = { Si = 0.076 }\n[beam]\nenergy_kev = 200.0\nsemi_angle = 20.0\ndefocus = -500.0\nc3 = 1.2e7\nc5 = 5e7\n\
                [scan]\nstep = 0.25\nsource_size = 0.4\n[method]\nmargin = 2.5\nrefocus = 10.0\nthicknesses = [50.0]\n\
                [detector]\nbin = 1.0\nannuli = [[60.0, 100.0]]\nsegmented = [{ inner = 10.0, outer = 40.0 }]\nfour_d = { crop = 60.0 }\n\
                [imaging]\naperture = 12.5\nfocal_spread = 30.0\nconvergence = 0.2\n";
    let read = |text: &str| SampleFile::from_toml(text, "x.toml").map(drop);
    assert!(read(text).is_ok(), "{:?}", read(text));
    for [key, good, bad, meant] in [
        ["cell", "[5.43, 5.43, 5.43]", "[0.543, 0.543, 0.543]", "5.43"],
        ["pixel", "0.1", "8", "0.08"],
        ["pixel", "0.1", "0.004", "0.04"],
        ["slice_thickness", "2.0", "2e-10", "2"],
        ["slice_thickness", "2.0", "2e3", "20"],
        ["bound", "3.0", "0.3", "3"],
        ["bound", "3.0", "300", "3"],
        ["Si", "0.076", "7.6", "0.076"],
        ["Si", "0.076", "0.0076", "0.076"],
        ["energy_kev", "200.0", "200e3", "200"],
        ["energy_kev", "200.0", "0.2", "200"],
        ["semi_angle", "20.0", "0.02", "20"],
        ["semi_angle", "20.0", "20e3", "20"],
        ["defocus", "-500.0", "-50e-9", "-500"],
        ["defocus", "-500.0", "[0, -50e-9]", "-500"],
        ["c3", "1.2e7", "1.2", "12e6"],
        ["c3", "1.2e7", "1.2e-3", "12e6"],
        ["c5", "5e7", "5", "50e6"],
        ["step", "0.25", "0.0025", "0.025"],
        ["source_size", "0.4", "0.004", "0.04"],
        ["margin", "2.5", "0.0025", "2.5"],
        ["refocus", "10.0", "1e-9", "10"],
        ["thicknesses", "[50.0]", "[5e-9]", "50"],
        ["bin", "1.0", "0.001", "1"],
        ["annuli", "[[60.0, 100.0]]", "[[0.06, 0.1]]", "[60, 100]"],
        ["outer", "40.0", "0.04", "40"],
        ["crop", "60.0", "0.06", "60"],
        ["aperture", "12.5", "0.0125", "12.5"],
        ["focal_spread", "30.0", "3e-9", "30"],
        ["convergence", "0.2", "2e-4", "0.2"],
    ] {
        let from = format!("{key} = {good}");
        assert_eq!(text.matches(&from).count(), 1, "{from}");
        let with = |value: &str| text.replace(&from, &format!("{key} = {value}"));
        // The inner angle is mistaken with the outer one
        let bad_text = if key == "outer" {
            with(bad).replace("inner = 10.0", "inner = 0.01")
        } else {
            with(bad)
        };
        let refused =
            read(&bad_text).err().ok_or(format!("{key} = {bad} is accepted"))?.to_string();
        assert!(refused.starts_with("x.toml:") && refused.contains(key), "{refused}");
        assert!(refused.contains(&format!("; did you mean {meant}? That is ")), "{refused}");
        let list = bad.starts_with('[') && key != "cell" && key != "defocus";
        let value = match (key, list) {
            ("cell", _) => format!("[{meant}, {meant}, {meant}]"),
            (_, true) => format!("[{meant}]"),
            _ => meant.to_string(),
        };
        assert!(read(&with(&value)).is_ok(), "{key} = {value}: {:?}", read(&with(&value)));
    }
    // Nanobeams, axial bright field and files without aberrations are no slips
    for (from, to) in [
        ("semi_angle = 20.0", "semi_angle = 0.2\ntilt = [0.01, 0]"),
        ("annuli = [[60.0, 100.0]]", "annuli = [[0, 0.5]]"),
        ("c3 = 1.2e7", "c3 = 0"),
        ("c3 = 1.2e7", "c3 = -5e3"),
        ("defocus = -500.0", "defocus = [1e-15, 10]"),
        ("energy_kev = 200.0", "energy_kev = 1"),
        ("energy_kev = 200.0", "energy_kev = 3e3"),
        ("pixel = 0.1", "pixel = 2.0"),
        ("Si = 0.076", "Si = 0"),
    ] {
        assert!(read(&text.replace(from, to)).is_ok(), "{to}: {:?}", read(&text.replace(from, to)));
    }
    Ok(())
}

/// A plan and a run begin with what they take the sample for; what may be wrong with it is a warning, there, in the JSON and on the standard error.
#[test]
fn plans_and_runs_report_the_sample() -> Checked {
    let run = run()?;
    let plan = said(&run.lenslet("stem sample.toml --plan")?);
    let done = said(&run.lenslet("stem sample.toml -o out.npz")?);
    for told in [&plan, &done] {
        for line in [
            "cell        5.4300 × 5.4300 Å, 5.4300 Å thick, of 1 × 1 × 1 cells\n",
            "atoms       8 Si\n",
            "samples     48 × 32 of 0.1131 × 0.1697 Å, 4 slices, angles up to 54.533 mrad\n",
        ] {
            assert!(told.contains(line), "{line}: {told}");
        }
        assert!(!told.contains("warning"), "{told}");
    }
    for args in ["--plan --json", "-o out.npz --json"] {
        let told = said(&run.lenslet(&format!("stem sample.toml {args}"))?);
        let told: serde_json::Value = serde_json::from_str(&told)?;
        assert_eq!(told["cell"], serde_json::json!([5.43, 5.43, 5.43]));
        assert_eq!(told["atoms"], serde_json::json!({ "Si": 8 }));
        assert_eq!((&told["thickness"], &told["samples"][1]), (&5.43.into(), &32.into()));
        assert!(told["largest_angle"].as_f64().is_some_and(|a| (a - 54.533).abs() < 1e-3));
        assert_eq!(told["warnings"], serde_json::json!([]));
    }
    // A pattern beyond the largest angle, and atoms that are too close
    change(&run, "wide.toml", SAMPLE, "crop = 30.0", "crop = 300.0")?;
    let near = "  14  1.3575  1.3575  4.2725  1.0  0.076\n  -1";
    change(&run, "crystal.xyz", CRYSTAL, "  -1", near)?;
    for args in ["--plan", "-o out.npz", "--plan --json", "-o out.npz --json"] {
        let output = run.lenslet(&format!("stem wide.toml {args}"))?;
        assert!(output.status.success());
        let texts = [&output.stderr, &output.stdout].map(|text| String::from_utf8_lossy(text));
        for text in texts {
            for words in [
                "detector.four_d.crop = 300 is beyond 54.533 mrad",
                "crystal.xyz:11: atom is 0.2000 Å from the atom on line 9",
            ] {
                assert!(text.contains(words), "{args}: no {words} in {text}");
            }
        }
    }
    // The same atom again, on the other side of the cell
    let again = "  14  5.4300  5.4300  5.4300  1.0  0.076\n  -1";
    change(&run, "crystal.xyz", CRYSTAL, "  -1", again)?;
    let words = ["crystal.xyz:11: atom = 0.0000 Å from the atom on line 3", "leave out line 3 or"];
    run.refuses("stem sample.toml -o out.npz", &words)?;
    run.refuses("stem sample.toml --plan", &words)
}

/// Displacements, probes and windows that make a run meaningless are refused with their line, by plans as well.
#[test]
fn runs_without_meaning_are_refused() -> Checked {
    let run = run()?;
    fs::write(run.path("rest.xyz"), CRYSTAL.replace("0.076", "0.0"))?;
    change(&run, "rest.toml", SAMPLE, "crystal.xyz", "rest.xyz")?;
    let rest = fs::read_to_string(run.path("rest.toml"))?;
    let words = ["rest.toml:7: phonons.configurations = 2", "rms = { Si = 0.08 }", "_U_iso_"];
    run.refuses("stem rest.toml --plan", &words)?;
    run.refuses("stem rest.toml -o out.npz", &words)?;
    change(
        &run,
        "rms.toml",
        &rest,
        "configurations = 2",
        "configurations = 2\nrms = { Si = 0.076 }",
    )?;
    said(&run.lenslet("stem rms.toml -o rms.npz")?);
    said(&run.lenslet("stem sample.toml -o file.npz")?);
    same_signals(&run, "rms.npz", "file.npz")?;
    for (from, to, words) in [
        ("semi_angle = 15.0", "c3 = 1e300", ["10: beam.c3 = 1e300", "π is the limit"]),
        ("semi_angle = 15.0", "defocus = 1e6", ["10: beam.defocus = 1e6", "a cell of 5.43"]),
        ("semi_angle = 15.0", "tilt = [-490.0, 0.0]", ["10: beam.tilt[0] = -490.0", "at most 7"]),
        ("energy_kev = 100.0", "energy_kev = 0.1", ["9: beam.energy_kev = 0.1", "1 and 10000 keV"]),
        (
            "[scan]",
            "[method]\nalgorithm = \"prism\"\ninterpolation = 4\n[scan]",
            ["13: method.interpolation = 4", "expected at most [1, 1] here"],
        ),
    ] {
        change(&run, "bad.toml", SAMPLE, from, to)?;
        run.refuses("stem bad.toml --plan", &["bad.toml:", words[0], words[1]])?;
    }
    let wave = SAMPLE.replace("[scan]", "c3 = 1e300\n[method]\nalgorithm = \"hrtem\"\n[scan]");
    fs::write(run.path("wave.toml"), wave)?;
    run.refuses("stem wave.toml --plan", &["wave.toml:11: beam.c3 = 1e300", "no digit"])?;
    // Without a factor PRISM takes one that works, here every beam
    let prism = SAMPLE.replace("[scan]", "[method]\nalgorithm = \"prism\"\n[scan]");
    fs::write(run.path("prism.toml"), prism)?;
    let told = said(&run.lenslet("stem prism.toml --plan")?);
    assert!(told.contains("interpolation 1 × 1"), "{told}");
    Ok(())
}

/// A specimen that no memory holds is planned in a moment and refused; nothing aborts.
#[test]
fn specimens_beyond_all_memory_are_planned_and_refused() -> Checked {
    let run = run()?;
    let begun = std::time::Instant::now();
    let tile = |tile: &str| format!("[sample]\ntile = {tile}");
    change(&run, "many.toml", SAMPLE, "[sample]", &tile("[1000, 1000, 1000]"))?;
    let words = ["many.toml:2: sample.tile", "at most 2³¹ atoms"];
    run.refuses("stem many.toml --plan", &words)?;
    run.refuses("stem many.toml -o out.npz", &words)?;
    let fine = SAMPLE.replace("[48, 32]", "[1024, 1024]");
    change(&run, "large.toml", &fine, "[sample]", &tile("[32, 32, 200000]"))?;
    let told = said(&run.lenslet("stem large.toml --plan --json")?);
    let told: serde_json::Value = serde_json::from_str(&told)?;
    assert_eq!(told["atoms"]["Si"], 1_638_400_000_u64);
    assert!(told["memory"]["host"].as_f64() > Some(1e11), "{told}");
    let output = run.lenslet("stem large.toml -o out.npz")?;
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("the scan needs") && message.contains("are available"), "{message}");
    assert!(matches!(output.status.code(), Some(1 | 2)), "{output:?}");
    assert!(begun.elapsed().as_secs_f64() < 30.0, "{:?}", begun.elapsed());
    Ok(())
}

#[test]
fn checkpoints_of_others_are_refused() -> Checked {
    let run = run()?;
    fs::write(run.path("out.npz"), "old")?;
    let checkpoint = run.path("out.npz.checkpoint");
    said(&run.lenslet("stem sample.toml -o whole --share 1/1")?);
    said(&run.lenslet("stem sample.toml -o part --share 1/2")?);
    change(&run, "other.toml", SAMPLE, "semi_angle = 15.0", "semi_angle = 14.0")?;
    let (whole, part) = (fs::read(run.path("whole"))?, fs::read(run.path("part"))?);
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    for (bytes, sample, words) in [
        (&flipped, "sample.toml", "its sum is wrong"),
        (&whole[..whole.len() - 5].to_vec(), "sample.toml", "its length is wrong"),
        (&whole[..9].to_vec(), "sample.toml", "a file of readings"),
        (&Vec::new(), "sample.toml", "a file of readings"),
        (&CRYSTAL.into(), "sample.toml", "a file of readings"),
        (&whole, "other.toml", "readings of the same sample"),
        (&part, "sample.toml", "remove it to begin anew"),
    ] {
        fs::write(&checkpoint, bytes)?;
        run.refuses(&format!("stem {sample} -o out.npz"), &["checkpoint", words])?;
        assert_eq!(&fs::read(&checkpoint)?, bytes, "{words}");
    }
    let other = "stem sample.toml -o out.npz --precision f64";
    fs::write(&checkpoint, &whole)?;
    run.refuses(other, &["readings of the same sample, options, precision"])?;
    assert_eq!(fs::read_to_string(run.path("out.npz"))?, "old");
    // A range that makes no sense is refused, though the sum is right.
    for (at, number, words) in [
        (40, 99_u64, "configurations of the specimen = 99: expected at most 2"),
        (32, 4_900, "places"),
        (48, 1, "positions of the next configuration = 1"),
        (56, u64::MAX, "numbers for each position"),
        (64, u64::MAX, "blocks of deviations"),
        (72, f64::NAN.to_bits(), "finite readings"),
    ] {
        let forged = forged(&whole, at, number);
        fs::write(&checkpoint, &forged)?;
        run.refuses("stem sample.toml -o out.npz", &["checkpoint", words])?;
        run.refuses("stem sample.toml -o x.npz --collect out.npz.checkpoint", &[words])?;
        assert_eq!(fs::read(&checkpoint)?, forged, "{words}");
    }
    fs::write(&checkpoint, &whole)?;
    // A whole one needs only be written, and is not needed any more.
    said(&run.lenslet("stem sample.toml -o out.npz")?);
    assert!(!checkpoint.exists());
    said(&run.lenslet("stem sample.toml -o again.npz")?);
    same_signals(&run, "out.npz", "again.npz")
}

/// A checkpoint with one number changed, and the sum over its bytes.
fn forged(whole: &[u8], at: usize, number: u64) -> Vec<u8> {
    let mut bytes = whole[..whole.len() - 8].to_vec();
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
    let join = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325, join);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// Only the run that has written a checkpoint removes it.
#[test]
fn files_that_are_called_checkpoints_stay() -> Checked {
    let run = run()?;
    for k in 1..=2 {
        said(&run.lenslet(&format!("stem sample.toml -o part{k} --share {k}/2"))?);
    }
    let checkpoint = run.path("out.npz.checkpoint");
    let part = fs::read(run.path("part1"))?;
    for text in [SAMPLE.as_bytes(), CRYSTAL.as_bytes(), b"notes", b"", &part] {
        fs::write(&checkpoint, text)?;
        said(&run.lenslet("stem sample.toml -o out.npz --collect part1 part2")?);
        assert_eq!(fs::read(&checkpoint)?, text);
    }
    // A share that is joined may have such a name.
    said(&run.lenslet("stem sample.toml -o out.npz --collect out.npz.checkpoint part2")?);
    assert_eq!(fs::read(&checkpoint)?, part);
    // An input or a picture may not be where the checkpoint will be.
    fs::rename(run.path("sample.toml"), &checkpoint)?;
    run.refuses("stem out.npz.checkpoint -o out.npz", &["checkpoint = ", "than the sample file"])?;
    assert_eq!(fs::read_to_string(&checkpoint)?, SAMPLE);
    fs::rename(&checkpoint, run.path("sample.toml"))?;
    change(&run, "moved.toml", SAMPLE, "crystal.xyz", "out.npz.checkpoint")?;
    fs::write(&checkpoint, CRYSTAL)?;
    run.refuses("stem moved.toml -o out.npz", &["checkpoint = ", "another file than the crystal"])?;
    said(&run.lenslet("stem moved.toml -o other.npz")?);
    assert_eq!(fs::read_to_string(&checkpoint)?, CRYSTAL);
    Ok(())
}

/// Names that a checkpoint or the output itself could not have are refused before the run.
#[cfg(target_os = "linux")]
#[test]
fn names_that_are_too_long_are_refused() -> Checked {
    let run = run()?;
    change(&run, "long.toml", SAMPLE, "configurations = 2", "configurations = 1000000")?;
    let name = |length: usize| "o".repeat(length - 4) + ".npz";
    let (fits, long) = (name(244), name(245));
    let words = ["output = ooo", "at most 244 bytes, not 245", ".checkpoint"];
    run.refuses(&format!("stem long.toml -o {long}"), &words)?;
    run.refuses(&format!("stem long.toml -o {} --share 1/2", "s".repeat(250)), &["output", "244"])?;
    let plot = "p".repeat(252) + ".svg";
    let words = ["plot = ppp", "at most 255 bytes, not 256"];
    run.refuses(&format!("stem long.toml -o a.npz --plot {plot}"), &words)?;
    said(&run.lenslet(&format!("stem sample.toml -o {fits}"))?);
    assert!(run.path(&fits).exists());
    // Joined shares have no checkpoint.
    said(&run.lenslet("stem sample.toml -o whole --share 1/1")?);
    said(&run.lenslet(&format!("stem sample.toml -o {long} --collect whole"))?);
    run.refuses(&format!("stem sample.toml -o {} --collect whole", name(256)), &["at most 255"])?;
    let system = concat!(env!("CARGO_MANIFEST_DIR"), "/book/systems/small-moao.toml");
    for command in ["covariance", "psf", "simulate"] {
        let ending = if command == "psf" { "fits" } else { "npz" };
        let output = "o".repeat(256 - ending.len() - 1) + "." + ending;
        run.refuses(&format!("{command} {system} -o {output}"), &["output", "at most 255 bytes"])?;
    }
    Ok(())
}

/// A store in a folder is written anew in place of an older one, and of nothing else.
#[test]
fn folders_are_replaced_only_by_their_own_kind() -> Checked {
    let run = run()?;
    said(&run.lenslet("stem sample.toml -o whole --share 1/1")?);
    let collect = "stem sample.toml -o out.zarr --collect whole";
    said(&run.lenslet(collect)?);
    let chunk = run.path("out.zarr/annulus_0/annulus_0/0.0");
    let (image, first) = (array(run_npz(&run)?, "all.npz", "annulus_0")?, fs::read(&chunk)?);
    let bytes: Vec<u8> = image.iter().flat_map(|x| x.to_le_bytes()).collect();
    assert_eq!(first, bytes);
    // A folder is named with a slash behind it, as shells complete it; its checkpoint is next to it.
    fs::copy(run.path("whole"), run.path("out.zarr.checkpoint"))?;
    said(&run.lenslet("stem sample.toml -o out.zarr/")?);
    assert!(!run.path("out.zarr.checkpoint").exists() && fs::read(&chunk)? == first);
    run.refuses("stem sample.toml -o out.zarr --plot out.zarr/a.svg", &["plot", "outside"])?;
    fs::write(run.path("out.zarr/four_d/notes.txt"), "mine")?;
    change(&run, "long.toml", SAMPLE, "configurations = 2", "configurations = 1000000")?;
    let words = ["cannot write out.zarr", "four_d/notes.txt is not part of it", "another name"];
    run.refuses("stem long.toml -o out.zarr", &words)?;
    assert_eq!(fs::read_to_string(run.path("out.zarr/four_d/notes.txt"))?, "mine");
    fs::remove_file(run.path("out.zarr/four_d/notes.txt"))?;
    // What is not a store stays, and what cannot be written leaves the older store.
    fs::create_dir(run.path("mine.zarr"))?;
    run.refuses("stem sample.toml -o mine.zarr --collect whole", &["mine.zarr", "did not write"])?;
    run.refuses("stem sample.toml -o out.zarr --collect none", &["cannot read none"])?;
    assert_eq!(fs::read(&chunk)?, first);
    Ok(())
}

/// The same readings in an archive.
fn run_npz(run: &Run) -> Result<&Run, Failed> {
    said(&run.lenslet("stem sample.toml -o all.npz --collect whole")?);
    Ok(run)
}

#[test]
fn shares_that_do_not_fit_are_refused() -> Checked {
    let run = run()?;
    fs::write(run.path("out.npz"), "old")?;
    for part in ["1/3", "2/3", "3/3", "2/2"] {
        let name = part.replace('/', "of");
        said(&run.lenslet(&format!("stem sample.toml -o {name} --share {part}"))?);
    }
    change(&run, "other.toml", SAMPLE, "configurations = 2", "configurations = 3")?;
    said(&run.lenslet("stem other.toml -o foreign --share 2/3")?);
    for (parts, words) in [
        ("1of3 3of3", "shares leave places out"),
        ("1of3 2of3", "shares of all 48 places"),
        ("1of3 2of3 2of2", "shares overlap"),
        ("1of3 2of3 2of3 3of3", "shares overlap"),
        ("1of3 foreign 3of3", "readings of the same sample"),
        ("1of3 2of3 sample.toml", "a file of readings"),
        ("1of3 2of3 none", "cannot read none"),
    ] {
        run.refuses(&format!("stem sample.toml -o out.npz --collect {parts}"), &[words])?;
    }
    for (share, words) in
        [("4/3", "K from 1 to N"), ("0/3", "K from 1 to N"), ("1/49", "48 places"), ("3", "3/8")]
    {
        run.refuses(&format!("stem sample.toml -o out.npz --share {share}"), &[words])?;
    }
    let both = "stem sample.toml -o out.npz --share 1/3 --collect 1of3 2of3 3of3";
    run.refuses(both, &["cannot be used with"])?;
    run.refuses("stem sample.toml -o 1of3 --share 1/3 --collect 1of3", &["cannot be used with"])?;
    assert_eq!(fs::read_to_string(run.path("out.npz"))?, "old");
    said(&run.lenslet("stem sample.toml -o out.npz --collect 3of3 1of3 2of3")?);
    assert_eq!(array(&run, "out.npz", "annulus_0")?.shape(), [8, 6]);
    Ok(())
}

/// An interrupt between two checkpoints loses no block that was done, and the run that goes on ends as if there had been none.
#[cfg(unix)]
#[test]
fn interrupted_runs_go_on_to_the_same_end() -> Checked {
    use crate::cli::with_all_signals;
    use std::process::{Command, Stdio};
    use std::{thread::sleep, time::Instant};
    let run = run()?;
    change(&run, "sample.toml", SAMPLE, "[0.7, 0.5]", "[0.06, 0.07]")?;
    fs::write(run.path("out.npz"), "old")?;
    let start = |output: &str| {
        let mut command = with_all_signals();
        command.args(["stem", "sample.toml", "-o", output]).current_dir(run.path("."));
        command.env("RAYON_NUM_THREADS", "1").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let begun = Instant::now();
    said(&start("whole.npz")?.wait_with_output()?);
    let whole = begun.elapsed();
    let mut process = start("out.npz")?;
    sleep(whole.mul_f64(0.4));
    assert_eq!(process.try_wait()?, None, "the run is long enough to be interrupted");
    Command::new("kill").args(["-INT", &process.id().to_string()]).status()?;
    let output = process.wait_with_output()?;
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(fs::read_to_string(run.path("out.npz"))?, "old");
    assert!(run.path("out.npz.checkpoint").exists());
    assert_eq!(run.names()?.len(), 5, "no draft is left");
    let told = said(&run.lenslet("stem sample.toml -o out.npz --plot out.svg")?);
    for line in
        ["\nresumed     out.npz.checkpoint: ", "\noutput      out.npz\nplot        out.svg\n"]
    {
        assert!(told.contains(line), "{line} in {told}");
    }
    assert!(!run.path("out.npz.checkpoint").exists());
    let told = said(&run.lenslet("stem sample.toml -o again.npz --checkpoint 1e9")?);
    assert!(!told.contains("resumed"), "{told}");
    same_signals(&run, "out.npz", "whole.npz")
}

/// A run that is killed goes on from its last checkpoint; the readings of both are the same file, to the byte.
#[cfg(unix)]
#[test]
fn killed_runs_go_on_to_the_same_end() -> Checked {
    use std::process::{Command, Stdio};
    use std::{thread::sleep, time::Duration};
    let run = run()?;
    change(&run, "sample.toml", SAMPLE, "configurations = 2", "configurations = 120")?;
    let arguments = ["stem", "sample.toml", "-o", "part", "--share", "1/2", "--checkpoint", "0.02"];
    let mut process = Command::new(env!("CARGO_BIN_EXE_lenslet"))
        .args(arguments)
        .current_dir(run.path("."))
        .stderr(Stdio::null())
        .spawn()?;
    while !run.path("part.checkpoint").exists() && process.try_wait()?.is_none() {
        sleep(Duration::from_millis(2));
    }
    process.kill()?;
    assert_eq!(process.wait()?.code(), None, "the run is long enough to be killed");
    assert!(!run.path("part").exists());
    let kept = fs::read(run.path("part.checkpoint"))?;
    said(&run.lenslet(&arguments.join(" "))?);
    assert!(!run.path("part.checkpoint").exists());
    said(&run.lenslet("stem sample.toml -o whole --share 1/2")?);
    let whole = fs::read(run.path("whole"))?;
    assert_eq!(fs::read(run.path("part"))?, whole);
    assert!(kept.len() == whole.len() && kept != whole);
    Ok(())
}

/// Where no file may grow beyond a kilobyte, nothing is half written, whatever the format.
#[cfg(target_os = "linux")]
#[test]
fn files_without_room_leave_the_old_ones() -> Checked {
    let run = run()?;
    let program = env!("CARGO_BIN_EXE_lenslet");
    for (name, more) in [
        ("out.h5", ""),
        ("out.zspy", ""),
        ("out.zarr", ""),
        ("out.zarr.zip", ""),
        ("out.hspy", ""),
        ("out.npz", ""),
        ("out.mrc", "--signal annulus_0"),
        ("out", "--share 1/2"),
        ("new.npz", "--plot out.svg"),
    ] {
        let old = run.path(name);
        if !name.starts_with("new") {
            fs::write(&old, "old")?;
        }
        fs::write(run.path("out.svg"), "old")?;
        let before = run.names()?;
        let script =
            format!("trap '' XFSZ; ulimit -f 1; exec {program} stem sample.toml -o {name} {more}");
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .current_dir(run.path("."))
            .output()?;
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {output:?}");
        assert!(message.starts_with("error: cannot write out"), "{name}: {message}");
        assert!(message.contains("too large") && message.lines().count() == 1, "{name}: {message}");
        assert_eq!(run.names()?, before, "{name}");
        assert_eq!(fs::read_to_string(run.path("out.svg"))?, "old", "{name}");
        if old.exists() {
            assert_eq!(fs::read_to_string(&old)?, "old", "{name}");
        }
    }
    Ok(())
}
