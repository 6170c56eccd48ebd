//! Telemetry from the command line: what one command writes another one reads, and what cannot be is refused with file, table and key.

use crate::cli::{Checked, Run, said};
use ndarray::Array4;
use ndarray_npy::NpzReader;
use std::fs::{self, File};

/// A laser star and a natural one, turned and coarser, over an obstructed pupil.
const SYSTEM: &str = "
atmosphere = { r0 = 0.16, outer_scale = 20, layers = [
    { altitude = 9000, fraction = 0.4 }, { altitude = 0, fraction = 0.6 } ] }
telescope = { diameter = 3.5, obstruction = 0.3 }
lenslet_array = { lenslets = 7 }
phase = { points = 8 }
guide_star = [
    { zenith = 20, azimuth = 30, height = 90e3, noise = 1e-13 },
    { zenith = 15, azimuth = 200, noise = 1e-13, lenslets = 5, rotation = 8, shift = [0.05, 0.1] } ]
target = [ { zenith = 8, azimuth = 75 } ]
mirror = [ { actuators = 8, kept = [0.2, 1.1] } ]
";

fn run() -> Result<Run, Box<dyn std::error::Error>> {
    let run = Run::new()?;
    fs::write(run.path("system.toml"), SYSTEM)?;
    Ok(run)
}

/// What a command that ends with the code 2 complains about.
fn refused(run: &Run, args: &str) -> Result<String, Box<dyn std::error::Error>> {
    let output = run.lenslet(args)?;
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args}: {message}");
    assert!(!message.contains("panicked"), "{args}: {message}");
    Ok(message)
}

#[test]
fn what_is_simulated_is_estimated() -> Checked {
    let run = run()?;
    for (name, estimate) in [("s.aot.fits", "a.npz"), ("s.npz[slopes]", "b.npz")] {
        let file = name.trim_end_matches("[slopes]");
        said(&run.lenslet(&format!("simulate system.toml -o {file} --seed 5 --frames 2"))?);
        let args = "--form dense --tolerance 1e-9 --method cholesky";
        said(&run.lenslet(&format!("estimate system.toml --slopes {name} -o {estimate} {args}"))?);
    }
    let wavefront = |name: &str| -> Result<Array4<f64>, Box<dyn std::error::Error>> {
        Ok(NpzReader::new(File::open(run.path(name))?)?.by_name("wavefront")?)
    };
    assert_eq!(wavefront("a.npz")?, wavefront("b.npz")?);
    // The slopes of another system are not taken.
    fs::write(run.path("other.toml"), SYSTEM.replace("lenslets = 5", "lenslets = 6"))?;
    let said = refused(&run, "estimate other.toml --slopes s.aot.fits -o c.npz")?;
    assert!(said.contains("s.aot.fits: AOT_WAVEFRONT_SENSORS[1].SUBAPERTURE_MASK"), "{said}");
    Ok(())
}

#[test]
fn what_is_reconstructed_is_imported() -> Checked {
    let run = run()?;
    let told =
        said(&run.lenslet("reconstruct system.toml -o r.npz --save c_mm --telemetry r.aot.fits")?);
    assert!(told.contains("telemetry   r.aot.fits"), "{told}");
    // The old spelling does the same, with a note.
    let output = run.lenslet("reconstruct system.toml -o old.npz --save aot,c_mm")?;
    let note = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{note}");
    assert_eq!(note, "note: --save aot has become --telemetry old.aot.fits\n");
    assert!(run.path("old.aot.fits").exists());
    let told = said(&run.lenslet("import r.aot.fits -o again.toml")?);
    assert!(told.contains("2 guide stars, ") && told.contains("2 layers, 1 target"), "{told}");
    let text = fs::read_to_string(run.path("again.toml"))?;
    assert!(text.starts_with("# Read from r.aot.fits by lenslet"), "{text}");
    assert_eq!(said(&run.lenslet("import r.aot.fits")?), text);
    // The error is that of the system itself, and so are the mirrors.
    let error = |system: &str| -> Result<f64, Box<dyn std::error::Error>> {
        let told = said(&run.lenslet(&format!("reconstruct {system} -o e.npz --json"))?);
        let told: serde_json::Value = serde_json::from_str(&told)?;
        told["error_nm"][0].as_f64().ok_or("no error".into())
    };
    assert!((error("again.toml")? / error("system.toml")? - 1.0).abs() < 1e-9);
    assert!(text.contains("[correction]\nmode = \"moao\"") && text.contains("actuators = 8"));
    let said = refused(&run, "reconstruct system.toml -o r.npz --save aot --errors-only")?;
    assert!(said.contains("save = \"aot\": expected no telemetry"), "{said}");
    let said =
        refused(&run, "reconstruct system.toml -o r.npz --telemetry t.aot.fits --errors-only")?;
    assert!(said.contains("telemetry = t.aot.fits: expected no telemetry"), "{said}");
    let said = refused(&run, "reconstruct system.toml -o r.npz --telemetry t.fits")?;
    assert!(said.contains("ends in .aot.fits"), "{said}");
    let said = refused(&run, "import system.toml -o x.toml")?;
    assert!(said.contains("system.toml:2: ") && said.contains("expected a section"), "{said}");
    let whole = fs::read(run.path("r.aot.fits"))?;
    fs::write(run.path("short.aot.fits"), &whole[..whole.len() - 2880])?;
    let said = refused(&run, "import short.aot.fits")?;
    assert!(said.contains("short.aot.fits[") && said.contains("cut short in its data"), "{said}");
    let scao = format!("{SYSTEM}correction = {{ mode = \"scao\" }}");
    fs::write(run.path("scao.toml"), scao)?;
    let said = refused(&run, "reconstruct scao.toml -o r.npz --telemetry s.aot.fits")?;
    assert!(said.contains("a [[target]] towards the first guide star"), "{said}");
    Ok(())
}

#[test]
fn fields_are_written_for_scopesim() -> Checked {
    let run = run()?;
    let table = "image = { pixel = 30.0, pixels = 16, structure = \"stationary\" }\n";
    fs::write(
        run.path("system.toml"),
        format!("{SYSTEM}{table}field = {{ size = 30, step = 30 }}"),
    )?;
    let told = said(&run.lenslet("psf system.toml -o p.fits --scopesim s.fits")?);
    assert!(told.contains("scopesim    s.fits"), "{told}");
    let mut fits = fitsio::FitsFile::open(run.path("s.fits"))?;
    let cube = fits.hdu(2)?;
    let values: Vec<f64> = cube.read_image(&mut fits)?;
    assert_eq!(values.len(), 4 * 15 * 15);
    let said = refused(&run, "psf system.toml -o p.fits --scopesim s.npz")?;
    assert!(said.contains("scopesim = s.npz"), "{said}");
    let said = refused(&run, "psf system.toml -o p.fits --scopesim p.fits")?;
    assert!(said.contains("p.fits"), "{said}");
    Ok(())
}
