//! The chapter on results shows how Python reads them: its lines run in Python, with NumPy, and agree with the program.

use crate::cli::{Checked, Run, said};
use std::fs;
use std::process::Command;

/// Python with NumPy, or nothing, with a word about it; where it is required, its absence is a failure.
fn python() -> Option<&'static str> {
    let asked = Command::new("python3").args(["-c", "import numpy"]).output();
    if asked.is_ok_and(|output| output.status.success()) {
        return Some("python3");
    }
    let reason = "there is no python3 that has NumPy";
    assert!(std::env::var_os("LENSLET_REQUIRE_PYTHON").is_none(), "{reason}");
    eprintln!("skipped: {reason}");
    None
}

/// Natural stars in unlike directions over an obstructed pupil, with the noise of the chapter.
const SYSTEM: &str = "# Chosen without symmetry – naïvely.
atmosphere = { r0 = 0.16, outer_scale = 20, layers = [
    { altitude = 9000, fraction = 0.4 }, { altitude = 0, fraction = 0.6 } ] }
telescope = { diameter = 3.5, obstruction = 0.3 }
lenslet_array = { lenslets = 7 }
phase = { points = 12, oversampling = 2 }
guide_star = [
    { zenith = 20, azimuth = 30, noise = 1e-13 }, { zenith = 15, azimuth = 200, noise = 1e-13 },
    { zenith = 9, azimuth = 100, noise = 1e-13 } ]
target = [ { zenith = 8, azimuth = 75 }, { zenith = 3 } ]
";

/// What is asserted after the chapter's lines.
const CHECKS: &str = r#"
estimate = np.load("wavefront.npz")
expected = estimate["wavefront"][0, 0]
assert w.shape == expected.shape == (12, 12)
assert np.abs(w - expected).max() < 1e-6 * np.abs(expected).max(), np.abs(w - expected).max()
s = np.load("slopes.npz")["slopes"][0]
chi = s @ np.linalg.solve(theta + 1e-13 * np.eye(len(s)), s) / len(s)
assert abs(chi - estimate["chi_squared"][0]) < 1e-6 * chi
assert np.array_equal(theta, theta.T) and np.linalg.eigvalsh(theta).min() > -1e-12 * np.linalg.norm(theta)
for data, command in (cov, "covariance"), (estimate, "estimate"), (np.load("slopes.npz"), "simulate"):
    assert str(data["program"]) == "lenslet" and str(data["command"]).startswith("lenslet " + command + " system.toml")
    assert str(data["system"]) == open("system.toml", encoding="utf-8").read()
    assert len(data["slope_table"]) == len(s) and len(str(data["date"])) == 19
table = cov["slope_table"]
assert set(table["star"]) == {0, 1, 2} and set(table["axis"]) == {0, 1}
assert np.allclose(table["x"], 0.5 * (table["column"] - 3)) and np.allclose(table["y"], 0.5 * (table["row"] - 3))
assert float(cov["tolerance"]) == 1e-10 and int(np.load("slopes.npz")["seed"]) == 4
"#;

#[test]
fn arrays_in_python_reconstruct_as_the_program_does() -> Checked {
    let Some(python) = python() else { return Ok(()) };
    let chapter = concat!(env!("CARGO_MANIFEST_DIR"), "/book/src/results.md");
    let chapter = fs::read_to_string(chapter)?;
    let (_, rest) = chapter.split_once("```python\n").ok_or("no Python in the chapter")?;
    let (shown, _) = rest.split_once("```").ok_or("no end of it")?;
    let run = Run::new()?;
    fs::write(run.path("system.toml"), SYSTEM)?;
    said(&run.lenslet("covariance system.toml -o cov.npz")?);
    said(&run.lenslet("simulate system.toml -o slopes.npz --seed 4")?);
    said(
        &run.lenslet("estimate system.toml --slopes slopes.npz -o wavefront.npz --tolerance 1e-9")?,
    );
    fs::write(run.path("check.py"), format!("{shown}{CHECKS}"))?;
    let output = Command::new(python).arg("check.py").current_dir(run.path(".")).output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
