//! The command `learn` from outside: a system file from slopes, and what is refused.

use crate::cli::{Checked, Run, said};
use lenslet::model::System;
use ndarray::{Array2, s};
use ndarray_npy::{ReadNpyExt, WriteNpyExt};
use std::fs::{self, File};

const TRUTH: &str = "\
# Mine.
[atmosphere]
r0 = 0.15                 # m, of tonight
outer_scale = 25.0
layers = [
    { altitude = 0.0, fraction = 0.6 },
    { altitude = 4000.0, fraction = 0.4 },  # the jet stream
]
[lenslet_array]
lenslets = 5
pitch = 0.5
[[guide_star]]            # the bright one
zenith = 30.0
noise = 2e-14
[[guide_star]]
zenith = 30.0
azimuth = 140.0
tip_tilt = \"removed\"
[[target]]
zenith = 5.0
";

/// A folder with 120 frames of the truth, and a system that is wrong in much.
fn measured() -> Result<Run, Box<dyn std::error::Error>> {
    let run = Run::new()?;
    fs::write(run.path("truth.toml"), TRUTH.replace("azimuth", "noise = 1e-14\nazimuth"))?;
    said(&run.lenslet("simulate truth.toml -o slopes.npy --frames 120 --seed 2")?);
    let start = TRUTH.replace("0.15  ", "0.2   ").replace("4000.0", "3500.0");
    fs::write(run.path("start.toml"), start)?;
    Ok(run)
}

#[test]
fn a_system_is_learned_from_its_slopes() -> Checked {
    let run = measured()?;
    let learn = "learn start.toml --slopes slopes.npy -o learned.toml --plot learned.svg";
    let told = said(&run.lenslet(&format!("{learn} --fit strengths,altitudes,shifts"))?);
    for word in ["120 × 100 from slopes.npy", "strengths, altitudes, shifts: ", "r0: 0.1", " ± "]
    {
        assert!(told.contains(word), "{word}: {told}");
    }
    let text = fs::read_to_string(run.path("learned.toml"))?;
    let words = ["# Learned by lenslet from slopes.npy", "#   altitude of layer 1: ", "# Mine."];
    for word in words.into_iter().chain(["# m, of tonight", "# the jet stream", "# the bright one"])
    {
        assert!(text.contains(word), "{word}: {text}");
    }
    let system = System::from_file(run.path("learned.toml"))?;
    let (air, stars) = (system.atmosphere(), system.guide_stars());
    assert!((air.fried_parameter() / 0.15 - 1.0).abs() < 0.15, "{air:?}");
    // The start is 500 m too low, and takes the second star to have no noise.
    assert!((air.layers()[1].altitude - 4000.0).abs() < 300.0, "{air:?}");
    for (star, noise) in stars.iter().zip([2e-14, 1e-14]) {
        assert!((star.noise.mean() / noise - 1.0).abs() < 0.5, "{text}");
    }
    assert!(stars[1].sensor.shift != [0.0; 2] && stars[0].noise != stars[1].noise, "{text}");
    assert_eq!((stars[0].sensor.shift, system.targets().len()), ([0.0; 2], 1));
    assert!(fs::read_to_string(run.path("learned.svg"))?.contains("learned from slopes.npy"));
    // Learn once more from what was learned
    let again = "learn learned.toml --slopes slopes.npy -o again.toml --json";
    let told: serde_json::Value = serde_json::from_str(&said(&run.lenslet(again)?))?;
    let r0 = &told["r0"];
    assert!((r0["value"].as_f64().unwrap_or(0.0) - air.fried_parameter()).abs() < 1e-5, "{told}");
    assert!(r0["error"].as_f64().is_some_and(|error| (1e-4..0.02).contains(&error)), "{told}");
    assert_eq!((told["converged"].as_bool(), told["blocks"].as_u64()), (Some(true), Some(64)));
    let text = fs::read_to_string(run.path("again.toml"))?;
    assert_eq!(text.matches("Learned by lenslet").count(), 1);
    let plan = said(&run.lenslet("learn start.toml --plan --fit outer-scale")?);
    assert!(plan.contains("outer-scale of 2 layers and 2 guide stars, from 1000 frames"), "{plan}");
    Ok(())
}

#[test]
fn what_cannot_be_learned_is_refused() -> Checked {
    let run = measured()?;
    let slopes = Array2::<f64>::read_npy(File::open(run.path("slopes.npy"))?)?;
    slopes.slice(s![..1, ..]).write_npy(File::create(run.path("one.npy"))?)?;
    slopes.slice(s![.., 1..]).write_npy(File::create(run.path("short.npy"))?)?;
    let mut bad = slopes.clone();
    bad[[3, 7]] = f64::NAN;
    bad.write_npy(File::create(run.path("bad.npy"))?)?;
    let ground = TRUTH.replace("4000.0", "0.0");
    fs::write(run.path("ground.toml"), ground.replace("outer_scale = 25.0", "outer_scale = inf"))?;
    let with = |args: &str| format!("learn start.toml -o learned.toml {args}");
    let cases: [(String, &[&str]); 11] = [
        (with("--slopes one.npy"), &["one.npy: frames = 1", "at least 2"]),
        (with("--slopes short.npy"), &["short.npy: slopes in a frame = 99", "expected 100"]),
        (with("--slopes bad.npy"), &["bad.npy: row 3, index 7 = NaN", "finite number"]),
        (with("--slopes absent.npy"), &["absent.npy"]),
        (with("--slopes slopes.npy --fit wind"), &["wind", "--fit", "strengths"]),
        (with("--slopes slopes.npy --plot a.pdf"), &["plot = a.pdf", ".svg"]),
        (
            "learn ground.toml --slopes slopes.npy -o l.toml --fit altitudes".into(),
            &["fit = \"altitudes\"", "at the ground"],
        ),
        (
            "learn ground.toml --slopes slopes.npy -o l.toml --fit outer-scale".into(),
            &["outer_scale = inf", "finite"],
        ),
        ("learn start.toml --slopes slopes.npy -o l.json".into(), &["output = l.json", ".toml"]),
        ("learn start.toml --slopes slopes.npy -o start.toml".into(), &["output = start.toml"]),
        ("learn start.toml --slopes slopes.npy".into(), &["--output"]),
    ];
    for (args, words) in cases {
        run.refuses(&args, words)?;
    }
    Ok(())
}

#[test]
fn slopes_of_other_units_orders_and_shapes_are_named_and_read() -> Checked {
    let run = measured()?;
    let slopes = Array2::<f64>::read_npy(File::open(run.path("slopes.npy"))?)?;
    let arcsec = std::f64::consts::PI / 648_000.0;
    (&slopes / arcsec).write_npy(File::create(run.path("arcsec.npy"))?)?;
    (&slopes / (0.4 * arcsec)).write_npy(File::create(run.path("pixels.npy"))?)?;
    (&slopes * 0.5).write_npy(File::create(run.path("metres.npy"))?)?;
    let turns = |k: usize| 50 * (k / 50) + 25 * (k % 2) + k % 50 / 2;
    let interleaved = Array2::from_shape_fn(slopes.dim(), |(t, k)| slopes[[t, turns(k)]]);
    interleaved.write_npy(File::create(run.path("turns.npy"))?)?;
    let columns = |k: usize| 25 * (k / 25) + 5 * (k % 5) + k % 25 / 5;
    let columns = Array2::from_shape_fn(slopes.dim(), |(t, k)| slopes[[t, columns(k)]]);
    columns.write_npy(File::create(run.path("columns.npy"))?)?;
    let cube = slopes.to_shape((120, 2, 50))?.to_owned();
    cube.write_npy(File::create(run.path("cube.npy"))?)?;
    let with = |args: &str| format!("learn start.toml -o learned.toml --json --slopes {args}");
    let r0 = |args: &str| -> Result<f64, Box<dyn std::error::Error>> {
        let told: serde_json::Value = serde_json::from_str(&said(&run.lenslet(&with(args))?))?;
        Ok(told["r0"]["value"].as_f64().unwrap_or(0.0))
    };
    let known = r0("slopes.npy")?;
    for args in [
        "arcsec.npy --unit arcsec",
        "pixels.npy --pixel-scale 0.4",
        "metres.npy --unit m",
        "turns.npy --order interleaved",
        "columns.npy --order columns",
        "cube.npy",
    ] {
        let found = r0(args)?;
        assert!((found - known).abs() < 1e-7, "{args}: {found} and not {known}");
    }
    run.refuses(&with("arcsec.npy"), &["arcsec.npy: r0 of the slopes", "--unit arcsec"])?;
    run.refuses(&with("pixels.npy"), &["pixels.npy: r0 of the slopes", "--pixel-scale"])?;
    run.refuses(&with("turns.npy"), &["turns.npy: order of the slopes", "--order interleaved,"])?;
    run.refuses(&with("columns.npy"), &["columns.npy: order", "--order columns,"])?;
    run.refuses(&with("slopes.npy --pixel-scale 0"), &["pixel-scale = 0", "arcsec"])?;
    Ok(())
}
