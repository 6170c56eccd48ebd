//! The option `--reconstructor` of `lenslet estimate`: what it writes, and what it refuses.

use crate::cli::{Checked, Run};
use lenslet::data::DataSet;
use lenslet::files::Format;
use lenslet::model::{SlopeOrder, System};
use lenslet::numerics::Precision;
use ndarray::{Array2, Array3, Array4, Dimension, Ix3, Ix4};
use std::fs::{self, File};

/// Seven lenslets across, two stars off the axis, one of them a laser star without tilts, unequal layers, two targets.
const LOPSIDED: &str = "atmosphere = { r0 = 0.16, outer_scale = 20, layers = [
  { altitude = 9000, fraction = 0.4 }, { altitude = 0, fraction = 0.6 }] }
telescope = { diameter = 3.5, obstruction = 0.3 }
lenslet_array = { lenslets = 7 }
phase = { points = 9, oversampling = 1 }
guide_star = [{ zenith = 20, azimuth = 30, height = 90e3, noise = 1e-13, tip_tilt = 'removed' },
  { zenith = 15, azimuth = 200, height = inf, noise = 3e-13 }]
target = [{ zenith = 8, azimuth = 75 }, { zenith = 3 }]
";

fn printed(output: &std::process::Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Writes the array `reconstructor` of so many axes, and what its rows are, if that is stated.
fn write<D: Dimension>(run: &Run, file: &str, matrix: ndarray::Array<f64, D>, to: &str) -> Checked {
    let mut data = DataSet::default();
    data.add("reconstructor", matrix);
    if !to.is_empty() {
        data.set_attribute("to", to)?;
    }
    data.write(File::create(run.path(file))?, Format::Npz, Precision::F64)?;
    Ok(())
}

fn array<D: Dimension>(run: &Run, file: &str, name: &str) -> ndarray::Array<f64, D> {
    DataSet::read(&run.path(file)).unwrap().array(name).unwrap()
}

/// Largest difference, relative to the largest number.
fn distance<'a>(
    found: impl IntoIterator<Item = &'a f64>,
    expected: impl IntoIterator<Item = &'a f64> + Clone,
) -> f64 {
    let scale = expected.clone().into_iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    let gaps = found.into_iter().zip(expected).map(|(a, b)| (a - b).abs());
    gaps.fold(0.0, f64::max) / scale
}

#[test]
fn a_stored_reconstructor_of_wavefronts_estimates_as_the_solver_does() -> Checked {
    let run = Run::new()?;
    fs::write(run.path("s.toml"), LOPSIDED)?;
    let system = System::from_toml(LOPSIDED, "s.toml")?;
    let n = SlopeOrder::new(&system.valid_lenslets()).len();
    printed(&run.lenslet("simulate s.toml -o s.npy --frames 40 --seed 3")?);
    let iterate = "--method iterative --tolerance 1e-9";
    printed(&run.lenslet(&format!("estimate s.toml --slopes s.npy -o e.npz {iterate}"))?);
    // A column of the reconstructor is the estimate of a unit slope.
    ndarray_npy::write_npy(run.path("unit.npy"), &(1e-6 * Array2::<f64>::eye(n)))?;
    printed(&run.lenslet(&format!("estimate s.toml --slopes unit.npy -o u.npz {iterate}"))?);
    let columns: Array4<f64> = array::<Ix4>(&run, "u.npz", "wavefront") * 1e6;
    let element = |(t, row, k): (usize, usize, usize)| columns[[k, t, row / 9, row % 9]];
    let matrix = Array3::from_shape_fn((2, 81, n), element);
    write(&run, "r.npz", matrix.clone(), "wavefront")?;
    let flat = matrix.into_shape_with_order((162, n))?;
    ndarray_npy::write_npy(run.path("r.npy"), &flat)?;
    let expected: Array4<f64> = array::<Ix4>(&run, "e.npz", "wavefront");
    for (file, precision, bound) in
        [("r.npz", "f64", 1e-6), ("r.npy", "f64", 1e-6), ("r.npz", "f32", 1e-4)]
    {
        let args = format!(
            "estimate s.toml --slopes s.npy --reconstructor {file} -o w.npz --precision {precision} --plot w.svg --frame 7"
        );
        let told = printed(&run.lenslet(&args)?);
        assert!(told.contains(&format!("matrix      2 × 81 × {n} from {file}")), "{told}");
        assert!(told.contains("wavefront 40 × 2 × 9 × 9"), "{told}");
        let found: Array4<f64> = match precision {
            "f64" => array::<Ix4>(&run, "w.npz", "wavefront"),
            _ => DataSet::read(&run.path("w.npz"))?.array::<f32, Ix4>("wavefront")?.mapv(f64::from),
        };
        let gap = distance(&found, &expected);
        assert!(gap < bound, "{file} {precision}: {gap:e}");
        assert!(fs::read_to_string(run.path("w.svg"))?.contains("wavefronts of frame 7"));
    }
    // The summary for programs, and the plan.
    let args = "estimate s.toml --slopes s.npy --reconstructor r.npz -o w.npz --json --quiet";
    let told: serde_json::Value = serde_json::from_str(&printed(&run.lenslet(args)?))?;
    assert_eq!(told["to"], "wavefront");
    assert_eq!(told["shape"], serde_json::json!([40, 2, 9, 9]));
    assert_eq!(told["reconstructor_shape"], serde_json::json!([2, 81, n]));
    assert_eq!(told["frames_at_a_time"], 40);
    assert!(told["seconds_for_each_frame"].as_f64().is_some_and(|seconds| seconds > 0.0));
    let told = printed(&run.lenslet("estimate s.toml --reconstructor r.npz --plan")?);
    assert!(
        told.contains("the wavefronts of 2 targets from")
            && told.contains("wavefront 1 × 2 × 9 × 9"),
        "{told}"
    );
    Ok(())
}

#[test]
fn reconstructors_of_this_program_give_slopes_and_of_others_strokes() -> Checked {
    let run = Run::new()?;
    fs::write(run.path("s.toml"), LOPSIDED)?;
    printed(&run.lenslet("simulate s.toml -o s.npy --frames 5")?);
    printed(&run.lenslet("reconstruct s.toml -o r.npz")?);
    printed(&run.lenslet("reconstruct s.toml -o r.fits")?);
    let matrix: Array3<f64> = array::<Ix3>(&run, "r.npz", "reconstructor");
    let slopes: Array2<f64> = ndarray_npy::read_npy(run.path("s.npy"))?;
    for file in ["r.npz", "r.fits"] {
        let args = format!("estimate s.toml --slopes s.npy --reconstructor {file} -o t.npz");
        assert!(printed(&run.lenslet(&args)?).contains("truth slopes of each target"));
        let found: Array3<f64> = array::<Ix3>(&run, "t.npz", "slopes");
        let expected = Array3::from_shape_fn(found.dim(), |(frame, target, row)| {
            (0..slopes.ncols()).map(|k| matrix[[target, row, k]] * slopes[[frame, k]]).sum()
        });
        assert!(distance(&found, &expected) < 1e-12, "{file}");
    }
    // Strokes of two loops, without targets and without a grid of points.
    let n = slopes.ncols();
    let strokes = Array3::from_shape_fn((2, 5, n), |(l, a, k)| ((l + 3 * a + 7 * k) as f64).cos());
    write(&run, "c.npz", strokes.clone(), "actuators")?;
    let bare =
        LOPSIDED.lines().filter(|line| !line.starts_with("phase") && !line.starts_with("target"));
    fs::write(run.path("bare.toml"), bare.collect::<Vec<_>>().join("\n"))?;
    let args = "estimate bare.toml --slopes s.npy --reconstructor c.npz -o c.fits";
    assert!(printed(&run.lenslet(args)?).contains("strokes 5 × 2 × 5"));
    let found: Array3<f64> = array::<Ix3>(&run, "c.fits", "strokes");
    let expected: f64 = (0..n).map(|k| strokes[[1, 3, k]] * slopes[[4, k]]).sum();
    assert!((found[[4, 1, 3]] - expected).abs() < 1e-12 * expected.abs());
    let args = "estimate bare.toml --slopes s.npy --reconstructor";
    run.refuses(&format!("{args} r.npz -o w.npz"), &["r.npz", "target = 0", "[[target]]"])?;
    run.refuses(&format!("{args} c.npz -o w.npz --plot w.svg"), &["plot", "no picture"])
}

#[test]
fn options_and_matrices_without_sense_are_refused() -> Checked {
    let run = Run::new()?;
    fs::write(run.path("s.toml"), LOPSIDED)?;
    let system = System::from_toml(LOPSIDED, "s.toml")?;
    let n = SlopeOrder::new(&system.valid_lenslets()).len();
    ndarray_npy::write_npy(run.path("s.npy"), &Array2::from_elem((3, n), 1e-7))?;
    let good = Array3::from_elem((2, 81, n), 0.5);
    write(&run, "r.npz", good.clone(), "wavefront")?;
    let with = |matrix: &str, more: &str| {
        format!("estimate s.toml --slopes s.npy --reconstructor {matrix} -o w.npz {more}")
    };
    for option in [
        "--method cholesky",
        "--filter 0.1",
        "--solver cg",
        "--preconditioner none",
        "--tolerance 1e-6",
        "--max-iterations 9",
        "--warm-start",
        "--form auto",
        "--interpolation cubic",
    ] {
        let name = option.split(' ').next().unwrap_or_default();
        run.refuses(&with("r.npz", option), &[name, "no such option with --reconstructor"])?;
    }
    let mut hole = good.clone();
    hole[[1, 80, 3]] = f64::NAN;
    write(&run, "nan.npz", hole, "wavefront")?;
    write(&run, "short.npz", Array3::from_elem((2, 81, n - 1), 0.5), "wavefront")?;
    write(&run, "one.npz", Array3::from_elem((1, 81, n), 0.5), "wavefront")?;
    write(&run, "coarse.npz", Array3::from_elem((2, 64, n), 0.5), "wavefront")?;
    write(&run, "phase.npz", good.clone(), "phase")?;
    write(&run, "unknown.npz", Array3::from_elem((2, 63, n), 0.5), "")?;
    ndarray_npy::write_npy(run.path("turned.npy"), &Array2::from_elem((n, 162), 0.5))?;
    fs::write(run.path("text.npz"), "no matrix at all")?;
    for (file, words) in [
        ("nan.npz", &["nan.npz", "row 1", "NaN"][..]),
        ("short.npz", &["short.npz: slopes of the reconstructor", "the slopes of all guide stars"]),
        ("one.npz", &["one.npz: targets of the reconstructor = 1", "expected 2"]),
        ("coarse.npz", &["coarse.npz: wavefront points of the reconstructor = 64", "expected 81"]),
        ("phase.npz", &["phase.npz: to = phase", "actuators"]),
        ("unknown.npz", &["unknown.npz: shape = [2, 63", "2 × 81 rows for the wavefront"]),
        ("turned.npy", &["turned.npy: shape"]),
        ("text.npz", &["text.npz"]),
        ("absent.npz", &["absent.npz"]),
    ] {
        run.refuses(&with(file, ""), words)?;
    }
    run.refuses(&with("r.npz", "--plot w.svg --frame 3"), &["frame = 3", "between 0 and 2"])?;
    let args = "estimate s.toml --slopes s.npy --reconstructor r.npz -o ./r.npz";
    run.refuses(args, &["output", "another file than the reconstructor"])?;
    ndarray_npy::write_npy(run.path("long.npy"), &Array2::from_elem((3, n + 1), 1e-7))?;
    let args = "estimate s.toml --slopes long.npy --reconstructor r.npz -o w.npz";
    run.refuses(args, &["long.npy: slopes in a frame"])
}
