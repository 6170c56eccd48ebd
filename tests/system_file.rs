//! The system file under mistakes: each has one message, with file, line, key, value and expectation;
//! and whatever comes in, nothing panics.

use lenslet::model::Light;
use lenslet::plan::Plan;
use lenslet::prelude::*;
use lenslet::toml;
use proptest::prelude::*;
use std::{fs, path::PathBuf};

fn shipped(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("book/systems").join(name);
    fs::read_to_string(path).unwrap()
}

/// A small file in which each line holds one thing, for the tests to spoil.
const GOOD: &str = "\
[atmosphere]
r0 = 0.15
wavelength = 500e-9
outer_scale = 25.0
layers = [
  { altitude = 0.0, fraction = 0.6 },
  { altitude = 5e3, fraction = 0.3, wind_speed = 10.0 },
  { altitude = 9e3, fraction = 0.1, outer_scale = inf },
]
[telescope]
diameter = 8.0
obstruction = 0.14
[lenslet_array]
lenslets = 16
valid_threshold = 0.5
[[guide_star]]
zenith = 60.0
azimuth = 120.0
height = 90e3
[[guide_star]]
zenith = 30.0
noise = 1e-14
[[target]]
azimuth = 10.0
[phase]
points = 17
";

/// The message for `GOOD` with one text replaced by another.
fn message(from: &str, to: &str) -> String {
    assert_eq!(GOOD.matches(from).count(), 1, "{from:?} must occur once");
    match System::from_toml(&GOOD.replace(from, to), "x.toml") {
        Ok(_) => "accepted".into(),
        Err(error) => {
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        }
    }
}

#[test]
fn every_mistake_has_its_message() {
    for (from, to, expected) in [
        (
            "r0 = 0.15",
            "r0 = -0.15",
            "x.toml:2: atmosphere.r0 = -0.15: expected a length in metres greater than 0",
        ),
        (
            "r0 = 0.15",
            "r0 = 0",
            "x.toml:2: atmosphere.r0 = 0: expected a length in metres greater than 0",
        ),
        (
            "r0 = 0.15",
            "r0 = nan",
            "x.toml:2: atmosphere.r0 = nan: expected a length in metres greater than 0",
        ),
        (
            "r0 = 0.15",
            "r0 = inf",
            "x.toml:2: atmosphere.r0 = inf: expected a finite length in metres",
        ),
        (
            "r0 = 0.15",
            "r0 = 1e-300",
            "x.toml:2: atmosphere.r0 = 1e-300: expected a length between 1e-9 and 1e15 m",
        ),
        ("r0 = 0.15", "r0 = 1e999", "x.toml:2: atmosphere.r0 = 1e999: expected a length in metres"),
        (
            "r0 = 0.15",
            "r0 = \"15 cm\"",
            "x.toml:2: atmosphere.r0 = \"15 cm\": expected a length in metres",
        ),
        (
            "r0 = 0.15",
            "r0 = [0.15]",
            "x.toml:2: atmosphere.r0 = [0.15]: expected a length in metres",
        ),
        (
            "r0 = 0.15",
            "ro = 0.15",
            "x.toml:2: atmosphere.ro = 0.15: expected a known key; did you mean r0?",
        ),
        (
            "r0 = 0.15",
            "scintillation = 0.7",
            "x.toml:2: atmosphere.scintillation = 0.7: expected one of the keys r0, seeing, wavelength, outer_scale, cone_gradient, layers",
        ),
        (
            "r0 = 0.15\n",
            "",
            "x.toml:1: atmosphere.r0 is missing: expected a length in metres, or a seeing in arcsec",
        ),
        (
            "r0 = 0.15",
            "r0 = 0.15\nr0 = 0.16",
            "x.toml:3: expected TOML: duplicate key, in `r0 = 0.16`",
        ),
        (
            "r0 = 0.15",
            "r0 0.15",
            "x.toml:2: expected TOML: key with no value, expected `=`, in `r0 0.15`",
        ),
        (
            "r0 = 0.15",
            "r0 =",
            "x.toml:2: expected TOML: string values must be quoted, expected literal string, in `r0 =`",
        ),
        (
            "r0 = 0.15",
            "r0 = 0.15 m",
            "x.toml:2: expected TOML: string values must be quoted, expected literal string, in `r0 = 0.15 m`",
        ),
        (
            "r0 = 0.15",
            "r0 = 0.15\ncone_gradient = \"pupils\"",
            "x.toml:3: atmosphere.cone_gradient = \"pupils\": expected \"pupil\" or \"layer\"",
        ),
        (
            "r0 = 0.15",
            "r0 = 0.15\ncone_gradient = true",
            "x.toml:3: atmosphere.cone_gradient = true: expected \"pupil\" or \"layer\"",
        ),
        (
            "wavelength = 500e-9",
            "wavelength = 500",
            "x.toml:3: atmosphere.wavelength = 500: expected a wavelength in metres, between 1e-9 and 1e-3; did you mean 500e-9? That is 500 nm",
        ),
        (
            "wavelength = 500e-9",
            "wavelength = 0.0",
            "x.toml:3: atmosphere.wavelength = 0.0: expected a wavelength in metres, between 1e-9 and 1e-3",
        ),
        (
            "outer_scale = 25.0",
            "outer_scale = 0.0",
            "x.toml:4: atmosphere.outer_scale = 0.0: expected a length in metres greater than 0, or inf",
        ),
        (
            "outer_scale = 25.0",
            "outer_scale = -inf",
            "x.toml:4: atmosphere.outer_scale = -inf: expected a length in metres greater than 0, or inf",
        ),
        ("outer_scale = 25.0", "outer_scale = inf", "accepted"),
        (
            "outer_scale = 25.0\n",
            "",
            "x.toml:5: atmosphere.layers[0].outer_scale is missing: expected a length in metres, or inf, here or as atmosphere.outer_scale",
        ),
        (
            "outer_scale = inf",
            "outer_scale = -1",
            "x.toml:8: atmosphere.layers[2].outer_scale = -1: expected a length in metres greater than 0, or inf",
        ),
        (
            "fraction = 0.3,",
            "fraction = 0.31,",
            "x.toml:5: atmosphere.layers = fractions with the sum 1.01: expected fractions that sum to 1 within 1e-6",
        ),
        ("fraction = 0.3,", "fraction = 0.3000009,", "accepted"),
        (
            "fraction = 0.3,",
            "fraction = 0.3000011,",
            "x.toml:5: atmosphere.layers = fractions with the sum 1.0000011: expected fractions that sum to 1 within 1e-6",
        ),
        (
            "fraction = 0.3,",
            "fraction = -0.3,",
            "x.toml:7: atmosphere.layers[1].fraction = -0.3: expected a finite number not less than 0",
        ),
        (
            "fraction = 0.3,",
            "fractoin = 0.3,",
            "x.toml:7: atmosphere.layers[1].fractoin = 0.3: expected a known key; did you mean fraction?",
        ),
        (
            "fraction = 0.3, ",
            "",
            "x.toml:7: atmosphere.layers[1].fraction is missing: expected a share of r0^(-5/3), from 0 to 1",
        ),
        (
            "altitude = 5e3",
            "altitude = -5e3",
            "x.toml:7: atmosphere.layers[1].altitude = -5e3: expected an altitude in metres, from 0 to 1e6",
        ),
        (
            "altitude = 5e3",
            "altitude = 95e3",
            "x.toml:19: guide_star[0].height = 90e3: expected a height above the highest layer, which is at 95000.0 m",
        ),
        (
            "wind_speed = 10.0",
            "wind_speed = \"strong\"",
            "x.toml:7: atmosphere.layers[1].wind_speed = \"strong\": expected a speed in m/s",
        ),
        (
            "{ altitude = 0.0, fraction = 0.6 }",
            "0.6",
            "x.toml:6: atmosphere.layers[0] = 0.6: expected a table",
        ),
        (
            "[atmosphere]",
            "[atmosphre]",
            "x.toml:1: atmosphre: expected a known key; did you mean atmosphere?",
        ),
        (
            "[telescope]",
            "[Telescope]",
            "x.toml:10: Telescope: expected a known key; did you mean telescope?",
        ),
        (
            "diameter = 8.0",
            "diameter = 0",
            "x.toml:11: telescope.diameter = 0: expected a length in metres greater than 0",
        ),
        ("diameter = 8.0", "diameter = 8", "accepted"),
        (
            "diameter = 8.0\n",
            "",
            "x.toml:10: telescope.diameter is missing: expected a length in metres",
        ),
        (
            "obstruction = 0.14",
            "obstruction = 1.0",
            "x.toml:12: telescope.obstruction = 1.0: expected a ratio of diameters from 0 to less than 1",
        ),
        (
            "obstruction = 0.14",
            "obstruction = -0.1",
            "x.toml:12: telescope.obstruction = -0.1: expected a ratio of diameters from 0 to less than 1",
        ),
        (
            "lenslets = 16",
            "lenslets = 0",
            "x.toml:14: lenslet_array.lenslets = 0: expected a whole number from 1 to 10000",
        ),
        (
            "lenslets = 16",
            "lenslets = 16.0",
            "x.toml:14: lenslet_array.lenslets = 16.0: expected a whole number from 1 to 10000",
        ),
        (
            "lenslets = 16",
            "lenslets = -16",
            "x.toml:14: lenslet_array.lenslets = -16: expected a whole number from 1 to 10000",
        ),
        (
            "lenslets = 16",
            "lenslets = 99999999999999999999",
            "x.toml:14: lenslet_array.lenslets = 99999999999999999999: expected a whole number from 1 to 10000",
        ),
        (
            "lenslets = 16",
            "lenslets = 16\npitch = nan",
            "x.toml:15: lenslet_array.pitch = nan: expected a length in metres greater than 0",
        ),
        (
            "lenslets = 16\n",
            "",
            "x.toml:13: lenslet_array.lenslets is missing: expected a whole number from 1 to 10000",
        ),
        (
            "valid_threshold = 0.5",
            "valid_threshold = 1.5",
            "x.toml:15: lenslet_array.valid_threshold = 1.5: expected a fraction from 0 to 1",
        ),
        ("valid_threshold = 0.5", "valid = \"centre\"", "accepted"),
        (
            "valid_threshold = 0.5",
            "valid = \"center\"",
            "x.toml:15: lenslet_array.valid = \"center\": expected \"centre\"",
        ),
        (
            "valid_threshold = 0.5",
            "valid_threshold = 0.5\nvalid = \"centre\"",
            "x.toml:15: lenslet_array.valid_threshold = 0.5: expected either valid or valid_threshold, not both",
        ),
        (
            "lenslets = 16\nvalid_threshold = 0.5",
            "lenslets = 2\nvalid_threshold = 1",
            "x.toml:14: lenslet_array.lenslets = 2: expected a pupil and a rule that leave at least one lenslet valid",
        ),
        (
            "zenith = 60.0",
            "zenith = -60.0",
            "x.toml:17: guide_star[0].zenith = -60.0: expected an angle from 0 to 0.1 rad (20626 arcsec)",
        ),
        (
            "zenith = 60.0",
            "zenith = 60000.0",
            "x.toml:17: guide_star[0].zenith = 60000.0: expected an angle from 0 to 0.1 rad (20626 arcsec); did you mean 60? That is 60e3 mas",
        ),
        ("azimuth = 120.0", "azimuth = -1e9", "accepted"),
        (
            "azimuth = 120.0",
            "azimuth = nan",
            "x.toml:18: guide_star[0].azimuth = nan: expected a finite number",
        ),
        (
            "height = 90e3",
            "height = 9e3",
            "x.toml:19: guide_star[0].height = 9e3: expected a height above the highest layer, which is at 9000.0 m",
        ),
        (
            "height = 90e3",
            "height = 90",
            "x.toml:19: guide_star[0].height = 90: expected a height above the highest layer, which is at 9000.0 m; did you mean 90e3? That is 90 km",
        ),
        (
            "height = 90e3",
            "height = -inf",
            "x.toml:19: guide_star[0].height = -inf: expected a length in metres greater than 0, or inf",
        ),
        ("height = 90e3", "height = 90e3\nlenslets = 17", "accepted"),
        (
            "noise = 1e-14",
            "noise = -1e-14",
            "x.toml:22: guide_star[1].noise = -1e-14: expected a finite number not less than 0",
        ),
        (
            "noise = 1e-14",
            "noise = 1e-14\npitch = 0.0",
            "x.toml:23: guide_star[1].pitch = 0.0: expected a length in metres greater than 0",
        ),
        (
            "noise = 1e-14",
            "noise = 1e-14\nmagnitude = 8",
            "x.toml:23: guide_star[1].magnitude = 8: expected one of the keys zenith, azimuth, height, noise, sensor, tip_tilt, tip_tilt_variance, focus, lenslets, pitch, rotation, shift, magnification",
        ),
        ("noise = 1e-14", "tip_tilt = 'removed'\nfocus = 'removed'", "accepted"),
        ("noise = 1e-14", "tip_tilt = 'measured'\nfocus = 'measured'", "accepted"),
        ("noise = 1e-14", "tip_tilt = 'unknown'\ntip_tilt_variance = 1e-11", "accepted"),
        (
            "noise = 1e-14",
            "tip_tilt = 'gone'",
            "x.toml:22: guide_star[1].tip_tilt = 'gone': expected \"measured\" or \"removed\" or \"unknown\"",
        ),
        (
            "noise = 1e-14",
            "tip_tilt = 'unknown'",
            "x.toml:20: guide_star[1].tip_tilt_variance is missing: expected a variance in rad², greater than 0 and at most 1e-5, for tip_tilt = \"unknown\"",
        ),
        (
            "noise = 1e-14",
            "tip_tilt = 'unknown'\ntip_tilt_variance = 0",
            "x.toml:23: guide_star[1].tip_tilt_variance = 0: expected a variance in rad², greater than 0 and at most 1e-5",
        ),
        (
            "noise = 1e-14",
            "tip_tilt = 'unknown'\ntip_tilt_variance = 'large'",
            "x.toml:23: guide_star[1].tip_tilt_variance = 'large': expected a variance in rad², greater than 0 and at most 1e-5",
        ),
        (
            "noise = 1e-14",
            "tip_tilt = 'removed'\ntip_tilt_variance = 1e-11",
            "x.toml:23: guide_star[1].tip_tilt_variance = 1e-11: expected no variance, unless tip_tilt = \"unknown\"",
        ),
        (
            "noise = 1e-14",
            "focus = 'unknown'",
            "x.toml:22: guide_star[1].focus = 'unknown': expected \"measured\" or \"removed\"",
        ),
        ("noise = 1e-14", "noise = 1e-14\nrotation = -360\nshift = [-1e3, 2]", "accepted"),
        (
            "noise = 1e-14",
            "rotation = 400",
            "x.toml:22: guide_star[1].rotation = 400: expected an angle from -360 to 360 degrees",
        ),
        (
            "noise = 1e-14",
            "shift = [0.1, 0.2, 0.3]",
            "x.toml:22: guide_star[1].shift = [0.1, 0.2, 0.3]: expected two lengths in metres, [x, y]",
        ),
        (
            "noise = 1e-14",
            "shift = [0.1, nan]",
            "x.toml:22: guide_star[1].shift[1] = nan: expected a shift from -1000 to 1000 m",
        ),
        (
            "noise = 1e-14",
            "magnification = 0",
            "x.toml:22: guide_star[1].magnification = 0: expected a factor from 0.1 to 10",
        ),
        (
            "noise = 1e-14",
            "noise = [1e-14]",
            "x.toml:22: guide_star[1].noise = [1e-14]: expected a variance in rad², or the name of a file of noise",
        ),
        (
            "[[target]]",
            "[target]",
            "x.toml:23: target: expected a list of tables, each under [[target]]",
        ),
        (
            "[[target]]",
            "[[targets]]",
            "x.toml:23: targets: expected a known key; did you mean target?",
        ),
        (
            "[[target]]",
            "[[target]]\nheight = 400e3",
            "x.toml:24: target[0].height = 400e3: expected inf, as a target is a direction",
        ),
        (
            "points = 17",
            "points = 0",
            "x.toml:26: phase.points = 0: expected a whole number from 1 to 100000",
        ),
        (
            "points = 17",
            "points = 17\noversampling = 0",
            "x.toml:27: phase.oversampling = 0: expected a whole number from 1 to 1000",
        ),
        (
            "points = 17",
            "points = 17\ndisc_radius = -1.0",
            "x.toml:27: phase.disc_radius = -1.0: expected an angle from 0 to 0.1 rad (20626 arcsec)",
        ),
        (
            "points = 17",
            "points = 17\n[covariance]\nslope_model = \"midpoint\"",
            "x.toml:28: covariance.slope_model = \"midpoint\": expected \"average\" or \"edge-midpoint\"",
        ),
        (
            "points = 17",
            "points = 17\n[covariance]\nslope_modell = \"average\"",
            "x.toml:28: covariance.slope_modell = \"average\": expected a known key; did you mean slope_model?",
        ),
        (
            "[telescope]",
            "cone_gradient = \"layer\"\n[covariance]\nslope_model = \"edge-midpoint\"\n[telescope]",
            "x.toml:12: covariance.slope_model = \"edge-midpoint\": expected average, as atmosphere.cone_gradient is layer, \
             and edges are on the pupil",
        ),
    ] {
        assert_eq!(message(from, to), expected, "{from:?} replaced by {to:?}");
    }
}

#[test]
fn the_first_unknown_key_is_reported_and_long_values_are_cut() {
    let two = message("r0 = 0.15", "zzz = 1\naaa = 2\nr0 = 0.15");
    assert!(two.starts_with("x.toml:2: atmosphere.zzz = 1: expected one of the keys r0, "));
    let long = message("r0 = 0.15", &format!("r0 = [\n{}]", "'é',\n ".repeat(100)));
    let quoted = format!("[ {}'…", "'é', ".repeat(11) + "'é");
    assert_eq!(long, format!("x.toml:2: atmosphere.r0 = {quoted}: expected a length in metres"));
}

#[test]
fn mistakes_of_the_whole_file() {
    let message = |text: &str| System::from_toml(text, "x.toml").unwrap_err().to_string();
    let stars = GOOD[..GOOD.find("[[guide_star]]").unwrap()].to_owned();
    assert_eq!(
        message(&stars),
        "x.toml:1: guide_star is missing: expected at least one table [[guide_star]]"
    );
    assert_eq!(message(""), "x.toml:1: atmosphere is missing: expected a table [atmosphere]");
    let telescope = GOOD.replace("[telescope]\ndiameter = 8.0\nobstruction = 0.14\n", "");
    assert_eq!(
        message(&telescope),
        "x.toml:10: lenslet_array.pitch is missing: expected a length in metres, or a [telescope]"
    );
    let layers = "[atmosphere]\nr0 = 0.1\nlayers = []\n";
    assert_eq!(
        message(layers),
        "x.toml:1: atmosphere.layers is missing: expected a list of at least one layer"
    );
    assert_eq!(
        message(
            "guide_star = 1\n[atmosphere]\nr0 = 1\nouter_scale = 9\n[[atmosphere.layers]]\naltitude = 0\nfraction = 1\n[lenslet_array]\nlenslets = 4\npitch = 0.1"
        ),
        "x.toml:1: guide_star = 1: expected a list of tables, each under [[guide_star]]"
    );
    let deep = format!("a = {}{}", "[".repeat(5000), "]".repeat(5000));
    assert!(message(&deep).starts_with("x.toml:1: expected TOML: "));
}

#[test]
fn files_that_are_no_system_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.toml");
    let name = path.display();
    let message = |path: &std::path::Path| {
        let error = System::from_file(path).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    };
    assert!(message(&path).starts_with(&format!("cannot read {name}: ")));
    assert!(message(folder.path()).starts_with("cannot read "));
    fs::write(&path, b"[atmosphere]\nr0 = 0.15 # caf\xe9\n").unwrap();
    assert_eq!(
        message(&path),
        format!("{name}:2: expected text in UTF-8, and the byte 0xe9 is none")
    );
    fs::write(&path, vec![b'#'; (16 << 20) + 1]).unwrap();
    assert!(message(&path).ends_with("it is larger than 16 MiB, too large for a system file"));
    fs::write(&path, [b"\xef\xbb\xbf", GOOD.as_bytes()].concat()).unwrap();
    assert!(System::from_file(&path).is_ok(), "a byte order mark is no mistake");
    fs::write(&path, GOOD.replace('\n', "\r\n").replace("r0 = 0.15", "r0 = 0")).unwrap();
    assert_eq!(
        message(&path),
        format!("{name}:2: atmosphere.r0 = 0: expected a length in metres greater than 0")
    );
}

/// Replaces a text of a file, expects a rejection that suggests a value, and expects that the file with this value is accepted.
fn slip(read: &dyn Fn(&str) -> Result<()>, file: &str, [key, good, bad, meant]: [&str; 4]) {
    let from = format!("{key} = {good}");
    assert_eq!(file.matches(&from).count(), 1, "{from:?} must occur once");
    let with = |value: &str| read(&file.replace(&from, &format!("{key} = {value}")));
    let refused = with(bad).expect_err(&format!("{key} = {bad}"));
    assert_eq!(refused.exit_code(), 2);
    let message = refused.to_string();
    assert!(message.starts_with("x.toml:") && message.contains(&format!("{key} ")), "{message}");
    assert!(
        message.contains(&format!("; did you mean {meant}? That is ")),
        "{key} = {bad}: {message}"
    );
    let meant = if bad.starts_with('[') && !meant.starts_with('[') {
        format!("[{meant}]")
    } else {
        meant.into()
    };
    assert!(with(&meant).is_ok(), "{key} = {meant}: {:?}", with(&meant));
}

#[test]
fn slips_of_units_suggest_the_value_that_was_meant() {
    let light = "[guide_star.sensor]\nmagnitude = 9\nzero_point = 1e10\nframe_rate = 500\nwavelength = 589e-9\npixel = 0.8\nfwhm = 1.1\n\
                 spot = { launch = [19.5, 0], altitude = 90e3, thickness = 10e3 }";
    let read = |text: &str| System::from_toml(text, "x.toml").map(drop);
    let with_light = GOOD.replace("noise = 1e-14", light);
    let pitch = GOOD.replace("lenslets = 16", "lenslets = 16\npitch = 0.5");
    let tilt = GOOD.replace("noise = 1e-14", "tip_tilt = 'unknown'\ntip_tilt_variance = 1e-11");
    let ground =
        GOOD.replace("altitude = 5e3", "altitude = 0").replace("altitude = 9e3", "altitude = 0.0");
    let disc = GOOD.replace("points = 17", "points = 17\ndisc_radius = 3.0");
    for (file, slips) in [
        (
            GOOD,
            &[
                ["r0", "0.15", "15", "0.15"],
                ["r0", "0.15", "150", "0.15"],
                ["wavelength", "500e-9", "500", "500e-9"],
                ["wavelength", "500e-9", "0.5", "500e-9"],
                ["wind_speed", "10.0", "10000", "10"],
                ["diameter", "8.0", "8000", "8"],
                ["zenith", "60.0", "60000", "60"],
                ["height", "90e3", "90", "90e3"],
                ["noise", "1e-14", "0.1", "2.35e-12"],
                ["noise", "1e-14", "1e-3", "23.5e-15"],
            ][..],
        ),
        (&ground, &[["height", "90e3", "90", "90e3"]][..]),
        (&pitch, &[["pitch", "0.5", "500", "0.5"]][..]),
        (&tilt, &[["tip_tilt_variance", "1e-11", "0.5", "11.8e-12"]][..]),
        (&disc, &[["disc_radius", "3.0", "30e3", "30"]][..]),
        (
            &with_light,
            &[
                ["zero_point", "1e10", "1e3", "10e6"],
                ["wavelength", "589e-9", "589", "589e-9"],
                ["wavelength", "589e-9", "0.589", "589e-9"],
                ["pixel", "0.8", "800", "0.8"],
                ["fwhm", "1.1", "1100", "1.1"],
                ["altitude", "90e3", "90", "90e3"],
                ["thickness", "10e3", "10", "10e3"],
            ][..],
        ),
    ] {
        slips.iter().for_each(|one| slip(&read, file, *one));
    }
    assert!(
        message("noise = 1e-14", "shift = [5000, 0]").ends_with("did you mean 5? That is 5e3 mm")
    );
    // A Fried parameter is compared at its wavelength, and one that is vast stands for no turbulence
    let infrared = GOOD.replace("wavelength = 500e-9", "wavelength = 10e-6");
    assert!(read(&infrared.replace("r0 = 0.15", "r0 = 9")).is_ok());
    assert!(read(&infrared.replace("r0 = 0.15", "r0 = 150")).is_err());
    assert!(read(&GOOD.replace("r0 = 0.15", "r0 = 1e6")).is_ok());
}

#[test]
fn unusual_instruments_are_accepted() {
    let read =
        |text: &str| System::from_toml(text, "x.toml").map(drop).map_err(|error| error.to_string());
    // A bench of 10 mm with a source at 2 m, lenslets of 0.6 mm and the noise of those
    let bench = "\
        atmosphere = { r0 = 1e-3, wavelength = 633e-9, outer_scale = 0.05, layers = [{ altitude = 0.3, fraction = 1 }] }\n\
        telescope = { diameter = 0.01 }\nlenslet_array = { lenslets = 16 }\n\
        guide_star = [{ height = 2.0, noise = 1e-8 }, { noise = 0 }]\n";
    assert_eq!(read(bench), Ok(()));
    assert!(read(&bench.replace("noise = 1e-8", "noise = 0.1")).is_err());
    for (from, to) in [
        ("diameter = 8.0", "diameter = 0.08"),
        ("diameter = 8.0", "diameter = 100.0"),
        ("height = 90e3", "height = 3.84e8"),
        ("wavelength = 500e-9", "wavelength = 200e-9"),
        ("wavelength = 500e-9", "wavelength = 30e-6"),
        ("wind_speed = 10.0", "wind_speed = 350"),
        ("outer_scale = 25.0", "outer_scale = 1e6"),
        ("noise = 1e-14", "noise = 0"),
        ("noise = 1e-14", "noise = 2e-9"),
        ("zenith = 30.0", "zenith = 1e-17"),
    ] {
        assert_eq!(read(&GOOD.replace(from, to)), Ok(()), "{to}");
    }
}

/// The message for a table of light in place of the noise of `GOOD`, in which one text is replaced by another.
fn message_about_light(from: &str, to: &str) -> String {
    let light = "\
[guide_star.sensor]
photons = 200.0
wavelength = 589e-9
pixel = 0.8
read_noise = 3.0
spot = { launch = [19.5, 0.0], altitude = 90e3, thickness = 10e3 }";
    assert_eq!(light.matches(from).count(), 1, "{from:?} must occur once");
    message("noise = 1e-14", &light.replace(from, to))
}

#[test]
fn every_mistake_about_light_has_its_message() {
    let magnitude = "magnitude = 9\nzero_point = 1e10\nframe_rate = 500";
    for (from, to, expected) in [
        ("photons = 200.0", magnitude, "accepted"),
        (
            "read_noise = 3.0",
            "excess_noise = 1.4\nbackground = 2\nwindow = 8\nfwhm = 1.1",
            "accepted",
        ),
        ("spot = { launch = [19.5, 0.0], altitude = 90e3, thickness = 10e3 }", "", "accepted"),
        (
            "[guide_star.sensor]",
            "noise = 1e-14\n[guide_star.sensor]",
            "22: guide_star[1].noise = 1e-14: expected either noise or a table [guide_star.sensor], not both",
        ),
        (
            "[guide_star.sensor]",
            "noise = 'noise.npy'\n[guide_star.sensor]",
            "22: guide_star[1].noise = 'noise.npy': expected either noise or a table [guide_star.sensor], not both",
        ),
        (
            "[guide_star.sensor]",
            "magnification = 0\n[guide_star.sensor]",
            "22: guide_star[1].magnification = 0: expected a factor from 0.1 to 10",
        ),
        (
            "[guide_star.sensor]",
            "[[guide_star.sensor]]",
            "22: guide_star[1].sensor: expected a table [sensor]",
        ),
        (
            "photons = 200.0",
            "photons = 0",
            "23: guide_star[1].sensor.photons = 0: expected a number of photons from 1e-3 to 1e15",
        ),
        (
            "photons = 200.0",
            "photons = 'many'",
            "23: guide_star[1].sensor.photons = 'many': expected a number of photons",
        ),
        (
            "photons = 200.0",
            "",
            "22: guide_star[1].sensor.photons is missing: expected a number of photons, or a magnitude",
        ),
        (
            "photons = 200.0",
            "photons = 200.0\nframe_rate = 500",
            "24: guide_star[1].sensor.frame_rate = 500: expected either photons, or magnitude with zero_point, throughput, frame_rate",
        ),
        (
            "photons = 200.0",
            "photons = 200.0\nmagnitude = 9",
            "24: guide_star[1].sensor.magnitude = 9: expected either photons, or magnitude with zero_point, throughput, frame_rate",
        ),
        (
            "photons = 200.0",
            "magnitude = 9\nframe_rate = 500",
            "22: guide_star[1].sensor.zero_point is missing: expected photons of magnitude 0, in 1/s/m²",
        ),
        (
            "photons = 200.0",
            "magnitude = 9\nzero_point = 1e10",
            "22: guide_star[1].sensor.frame_rate is missing: expected frames in a second",
        ),
        (
            "photons = 200.0",
            "magnitude = 9\nzero_point = 1e10\nframe_rate = 0",
            "25: guide_star[1].sensor.frame_rate = 0: expected a finite number greater than 0",
        ),
        (
            "photons = 200.0",
            "magnitude = 9\nzero_point = 1e10\nframe_rate = 500\nthroughput = 30",
            "26: guide_star[1].sensor.throughput = 30: expected a share greater than 0, and at most 1",
        ),
        (
            "photons = 200.0",
            "magnitude = 0\nzero_point = 1.0\nframe_rate = 500",
            "24: guide_star[1].sensor.zero_point = 1.0: expected a number of photons in 1/s/m², from 10e3 to 100e12",
        ),
        (
            "wavelength = 589e-9",
            "",
            "22: guide_star[1].sensor.wavelength is missing: expected a wavelength in metres",
        ),
        (
            "wavelength = 589e-9",
            "wavelength = 589",
            "24: guide_star[1].sensor.wavelength = 589: expected a wavelength in metres, between 1e-9 and 1e-3; did you mean 589e-9? That is 589 nm",
        ),
        (
            "pixel = 0.8",
            "pixel = 0",
            "25: guide_star[1].sensor.pixel = 0: expected an angle greater than 0, and at most 0.1 rad (20626 arcsec)",
        ),
        (
            "pixel = 0.8",
            "pixel = 1e-9",
            "25: guide_star[1].sensor.pixel = 1e-9: expected an angle in arcsec, from 60e-6 to 60",
        ),
        (
            "pixel = 0.8",
            "pixels = 0.8",
            "25: guide_star[1].sensor.pixels = 0.8: expected a known key; did you mean pixel?",
        ),
        (
            "read_noise = 3.0",
            "read_noise = -3",
            "26: guide_star[1].sensor.read_noise = -3: expected a number of electrons from 0 to 1e6",
        ),
        (
            "read_noise = 3.0",
            "fwhm = nan",
            "26: guide_star[1].sensor.fwhm = nan: expected an angle greater than 0, and at most 0.1 rad (20626 arcsec)",
        ),
        (
            "read_noise = 3.0",
            "excess_noise = 0",
            "26: guide_star[1].sensor.excess_noise = 0: expected a factor from 1 to 10",
        ),
        (
            "read_noise = 3.0",
            "background = -0.1",
            "26: guide_star[1].sensor.background = -0.1: expected a number of photons from 0 to 1e12",
        ),
        (
            "read_noise = 3.0",
            "window = 1",
            "26: guide_star[1].sensor.window = 1: expected a whole number of pixels from 2 to 10000",
        ),
        (
            "read_noise = 3.0",
            "window = 8.5",
            "26: guide_star[1].sensor.window = 8.5: expected a whole number of pixels from 2 to 10000",
        ),
        (
            "launch = [19.5, 0.0]",
            "launch = [19.5, 2e3]",
            "27: guide_star[1].sensor.spot.launch[1] = 2e3: expected a place from -1000 to 1000 m; did you mean 2? That is 2e3 mm",
        ),
        (
            "launch = [19.5, 0.0], ",
            "",
            "27: guide_star[1].sensor.spot.launch is missing: expected two lengths in metres, [x, y]",
        ),
        (
            "altitude = 90e3, ",
            "",
            "27: guide_star[1].sensor.spot.altitude is missing: expected the altitude of the sodium in metres, here or as the height of the star",
        ),
        (
            "altitude = 90e3",
            "altitude = 90",
            "27: guide_star[1].sensor.spot.altitude = 90: expected an altitude in metres, from 1e3 to 1e9; did you mean 90e3? That is 90 km",
        ),
        (
            "thickness = 10e3",
            "thickness = 100e3",
            "27: guide_star[1].sensor.spot.thickness = 100e3: expected a length in metres, less than the altitude",
        ),
        (
            "thickness = 10e3",
            "thickness = 10e3, depth = 1",
            "27: guide_star[1].sensor.spot.depth = 1: expected one of the keys launch, altitude, thickness",
        ),
    ] {
        let expected =
            if expected == "accepted" { expected.into() } else { format!("x.toml:{expected}") };
        assert_eq!(message_about_light(from, to), expected);
    }
}

#[test]
fn light_of_a_file_is_the_noise_of_its_star() {
    let keys = "sensor = { magnitude = 10, zero_point = 4e10, throughput = 0.5, frame_rate = 500, wavelength = 600e-9, \
                pixel = 0.5, fwhm = 1.5, read_noise = 2, excess_noise = 1.2, background = 0.5, window = 9";
    let read = |from: &str, to: &str| {
        System::from_toml(&GOOD.replace(from, to), "x.toml").map_err(|error| error.to_string())
    };
    let system = read("noise = 1e-14", &format!("{keys} }}")).unwrap();
    let (star, pupil) = (&system.guide_stars()[1], system.pupil());
    let light = Light {
        fwhm: Some(1.5 * ARCSEC),
        read_noise: 2.0,
        excess_noise: 1.2,
        background: 0.5,
        window: Some(9),
        // 1e-4 of 2e10 photons in a second and square metre, on a quarter of it
        ..Light::new(1000.0, 600e-9, 0.5 * ARCSEC)
    };
    let noise = light.noise(&star.sensor, pupil, system.validity(), system.atmosphere()).unwrap();
    assert!((star.noise.mean() / noise.mean() - 1.0).abs() < 1e-12);
    assert!(!noise.is_correlated() && noise.block(0) != noise.block(20)); // the first is not wholly lit

    // The sodium of a laser star is at its height, unless it is said to be elsewhere.
    let laser = |spot: &str| {
        let table = format!("height = 90e3\n{keys}, spot = {{ launch = [1, 5], {spot} }} }}");
        read("height = 90e3", &table).unwrap().guide_stars()[0].noise.clone()
    };
    let here = laser("thickness = 8e3");
    assert_eq!(here, laser("thickness = 8e3, altitude = 90e3"));
    assert!(here.is_correlated() && here.mean() < laser("thickness = 8e3, altitude = 85e3").mean());

    let dark = GOOD.replace("valid_threshold = 0.5", "valid_threshold = 0.0");
    let dark = dark.replace("noise = 1e-14", &format!("{keys} }}"));
    let message = System::from_toml(&dark, "x.toml").unwrap_err().to_string();
    let expected = "x.toml:22: guide_star[1].sensor.photons = 0.0: expected light behind all valid lenslets, and [0, 0] is valid \
                    without any";
    assert_eq!(message, expected);
}

#[test]
fn noise_comes_from_a_file_beside_the_system() {
    let folder = tempfile::tempdir().unwrap();
    let (system, noise) = (folder.path().join("s.toml"), folder.path().join("noise.npy"));
    fs::write(&system, GOOD.replace("noise = 1e-14", "noise = 'noise.npy'")).unwrap();
    let read = || System::from_file(&system);
    let complaint = || {
        let message = read().unwrap_err().to_string();
        let (place, rest) = message.split_once(": expected ").unwrap();
        assert!(place.ends_with("s.toml:22: guide_star[1].noise = 'noise.npy'"), "{message}");
        rest.to_owned()
    };
    let write = |numbers: Vec<f64>| {
        let array = ndarray::Array1::from(numbers);
        ndarray_npy::write_npy(&noise, &array).unwrap();
    };
    assert!(complaint().contains("cannot read"), "{}", complaint());
    let valid = System::from_toml(GOOD, "x.toml").unwrap().valid_lenslets().remove(1);
    let valid = valid.iter().filter(|valid| **valid).count();
    write(vec![1e-14; valid + 1]);
    assert_eq!(complaint(), format!("noise of {valid} lenslets, the valid ones of the sensor"));
    write((0..valid).map(|k| if k == 7 { -2e-14 } else { 1e-14 }).collect());
    assert!(complaint().contains("noise.npy: noise of lenslet 7 = -2e-14"), "{}", complaint());
    // Variances in arcsec²
    write((0..valid).map(|k| if k == 7 { 0.1 } else { 0.05 }).collect());
    let slip = "a file without a variance of 0.1: a variance of a slope in rad², from 0 to 2.35e-9; did you mean 2.35e-12? That is 0.1 arcsec²";
    assert_eq!(complaint(), slip);
    write((0..valid).map(|k| 1e-14 * k as f64).collect());
    assert_eq!(read().unwrap().guide_stars()[1].noise.block(3), [3e-14, 0.0, 3e-14]);
}

#[test]
fn the_shipped_systems_are_what_they_say() {
    let read = |name| System::from_toml(&shipped(name), name).unwrap();
    let counts = |system: &System| {
        let valid = system.lenslet_array().valid(system.pupil(), system.validity());
        let valid = valid.iter().filter(|&&valid| valid).count();
        (
            system.lenslet_array().lenslets(),
            system.guide_stars().len(),
            system.atmosphere().layers().len(),
            valid,
        )
    };
    let small = read("small.toml");
    assert_eq!(counts(&small), (20, 1, 1, 400));
    assert_eq!((small.lenslet_array().pitch(), small.atmosphere().fried_parameter()), (0.1, 0.15));
    assert_eq!(
        (small.guide_stars()[0].sensor.source.height(), small.phase()),
        (f64::INFINITY, None)
    );
    let keck = read("keck-lgs.toml");
    assert_eq!(counts(&keck), (20, 4, 7, 300));
    assert_eq!(keck.lenslet_array().pitch(), 0.5);
    let [x, y] = keck.guide_stars()[1].sensor.source.direction();
    assert!((x + y).abs() < 1e-18 && (y / ARCSEC - 14.142_136).abs() < 1e-6);
    assert!((keck.atmosphere().layers()[1].wind_direction - 255.0 * DEGREE).abs() < 1e-12);
    assert_eq!([0, 1].map(|l| keck.atmosphere().layers()[l].outer_scale), [25.0, 28.0]);
    assert_eq!((keck.targets().len(), keck.phase().unwrap().points), (2, 41));
    let elt = read("elt.toml");
    assert_eq!(counts(&elt), (80, 6, 10, 4632));
    assert_eq!(elt.cone_gradient(), ConeGradient::Pupil);
    assert_eq!(elt.validity(), Validity::LitFraction(0.5));
}

/// The example of the design, with the fractions of its layers made to sum to 1.
#[test]
fn every_key_is_accepted() {
    let text = r#"
[atmosphere]
r0 = 0.15                 # m, at `wavelength`
wavelength = 500e-9       # m
outer_scale = 25.0        # m
cone_gradient = "layer"
layers = [ { altitude = 0.0, fraction = 1.0, wind_speed = 10.0, wind_direction = 90.0, outer_scale = inf } ]

[telescope]
diameter = 8.0            # m
obstruction = 0.14        # ratio of diameters

[lenslet_array]
lenslets = 16
valid_threshold = 0.25

[[guide_star]]
zenith = 60.0             # arcsec
azimuth = 120.0           # degrees
height = inf              # m
noise = 1e-14             # rad²
rotation = 1.5            # degrees
shift = [0.1, -0.02]      # m
magnification = 1.01
tip_tilt = "unknown"
tip_tilt_variance = 1e-10
focus = "removed"
lenslets = 8
pitch = 0.9

[[target]]
zenith = 1.0
azimuth = 270.0

[phase]
points = 17
oversampling = 2
disc_radius = 3.0

[covariance]
slope_model = "average"
"#;
    let system = System::from_toml(text, "design.toml").unwrap();
    assert_eq!(system.cone_gradient(), ConeGradient::Layer);
    let layer = system.atmosphere().layers()[0];
    assert_eq!((layer.wind_speed, layer.outer_scale), (10.0, f64::INFINITY));
    assert!((layer.wind_direction - 90.0 * DEGREE).abs() < 1e-15);
    assert_eq!(system.validity(), Validity::LitFraction(0.25));
    assert_eq!((system.lenslet_array().lenslets(), system.lenslet_array().pitch()), (16, 0.5));
    let star = &system.guide_stars()[0];
    let array = star.sensor.array;
    assert_eq!((array.lenslets(), array.pitch(), star.noise.mean()), (8, 0.9, 1e-14));
    let (rotation, magnification) = (star.sensor.rotation, star.sensor.magnification);
    assert_eq!((rotation, star.sensor.shift, magnification), (1.5 * DEGREE, [0.1, -0.02], 1.01));
    assert_eq!((star.tip_tilt, star.focus), (TipTilt::Unknown { variance: 1e-10 }, Focus::Removed));
    let [x, y] = star.sensor.source.direction().map(|angle| angle / ARCSEC);
    assert!((x + 30.0).abs() < 1e-9 && (y - 51.961_524_227).abs() < 1e-8);
    let [x, y] = system.targets()[0].direction().map(|angle| angle / ARCSEC);
    assert!(x.abs() < 1e-12 && (y + 1.0).abs() < 1e-12);
    let phase = system.phase().unwrap();
    assert_eq!((phase.points, phase.oversampling), (17, 2));
    assert!((phase.disc_radius / ARCSEC - 3.0).abs() < 1e-12);
    assert_eq!(system.slope_model(), SlopeModel::Average);
}

#[test]
fn shipped_systems_with_mirrors_can_be_imaged()
-> std::result::Result<(), Box<dyn std::error::Error>> {
    let (mut posed, folder) = (0, PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("book/systems"));
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.ends_with(".toml") || !shipped(&name).contains("[[mirror]]") {
            continue;
        }
        let file = SystemFile::from_toml(&shipped(&name), &name)?;
        let options = lenslet::psf::PsfOptions::from_system_file(&file)?;
        let plan = lenslet::psf::PsfPlan::new(&file.system()?, options)?;
        let planned = plan.describe(&lenslet::device::Engine::default())?;
        assert!(planned.stages.iter().any(|stage| stage.seconds > 0.0), "{name}");
        posed += 1;
    }
    assert!(posed >= 3, "{posed} systems have mirrors");
    Ok(())
}

#[test]
fn slopes_between_midpoints_are_refused_where_they_cannot_serve() -> Result<()> {
    let text = format!("{GOOD}[covariance]\nslope_model = \"edge-midpoint\"\n");
    let system = System::from_toml(&text, "x.toml")?;
    assert_eq!(system.slope_model(), SlopeModel::EdgeMidpoint);
    let refused = |result: Result<()>| {
        let error = result.unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
        let message = error.to_string();
        assert!(message.contains("covariance.slope_model = edge-midpoint"), "{message}");
        assert!(message.contains("expected average"), "{message}");
    };
    let options = CovarianceOptions::default();
    let plan = |options| CovariancePlan::new(&system, options).map(drop);
    refused(plan(options));
    refused(plan(options.slopes_only().form(Form::Toeplitz)));
    refused(plan(options.slopes_only().method(Method::Spectral(None))));
    refused(EstimatePlan::new(&system, EstimateOptions::default()).map(drop));
    refused(SimulationPlan::new(&system, SimulationOptions::default()).map(drop));
    Ok(())
}

/// The values of `GOOD`, with one of them replaced.
fn values(change: impl Fn(&mut toml::Table)) -> toml::Table {
    let mut values = toml::from_str(GOOD).unwrap();
    change(&mut values);
    values
}

#[test]
fn a_dictionary_describes_the_same_system_as_a_file() -> Result<()> {
    let file = SystemFile::from_value(values(|_| ()))?;
    assert_eq!((file.system()?, file.name()), (System::from_toml(GOOD, "x.toml")?, ""));
    // What is stored with results describes the system as well.
    assert_eq!(System::from_toml(file.text(), "again.toml")?, file.system()?);
    Ok(())
}

#[test]
fn errors_of_a_dictionary_name_the_key_alone() {
    let refused = |change: &dyn Fn(&mut toml::Table)| {
        let error = SystemFile::from_value(values(change)).and_then(|file| file.system());
        error.map(|_| "accepted".to_string()).unwrap_or_else(|error| error.to_string())
    };
    let with = |table: &str, key: &str, value: toml::Value| {
        refused(&|values| {
            let table = match &mut values[table] {
                toml::Value::Array(list) => &mut list[0],
                table => table,
            };
            table.as_table_mut().unwrap().insert(key.into(), value.clone());
        })
    };
    let list = |values: &[f64]| toml::Value::from(values.to_vec());
    let table = || toml::Value::from(toml::Table::new());
    let metres = "expected a length in metres greater than 0";
    for (found, wanted) in [
        (with("atmosphere", "r0", (-0.15).into()), format!("atmosphere.r0 = -0.15: {metres}")),
        (with("atmosphere", "r0", f64::NAN.into()), format!("atmosphere.r0 = nan: {metres}")),
        (
            with("atmosphere", "r0", f64::INFINITY.into()),
            "atmosphere.r0 = inf: expected a finite length in metres".into(),
        ),
        (
            with("atmosphere", "r0", "0.15".into()),
            "atmosphere.r0 = \"0.15\": expected a length in metres".into(),
        ),
        (
            with("atmosphere", "r0", list(&[0.15])),
            "atmosphere.r0 = [0.15]: expected a length in metres".into(),
        ),
        (
            with("atmosphere", "r0", true.into()),
            "atmosphere.r0 = true: expected a length in metres".into(),
        ),
        (with("atmosphere", "r0", table()), "atmosphere.r0: expected a length in metres".into()),
        (
            with("atmosphere", "ro", 0.15.into()),
            "atmosphere.ro = 0.15: expected a known key; did you mean r0?".into(),
        ),
        (
            with("atmosphere", "layers", 3.into()),
            "atmosphere.layers = 3: expected a list of tables, each under [[atmosphere.layers]]"
                .into(),
        ),
        (
            with("lenslet_array", "lenslets", 16.0.into()),
            "lenslet_array.lenslets = 16.0: expected a whole number from 1 to 10000".into(),
        ),
        (
            with("guide_star", "shift", list(&[1.0])),
            "guide_star[0].shift = [1.0]: expected two lengths in metres, [x, y]".into(),
        ),
        (
            with("lenslet_array", "pitch", 1e-200.into()),
            "lenslet_array.pitch = 1e-200: expected a length between 1e-9 and 1e15 m".into(),
        ),
        (with("guide_star", "", 1.into()), "guide_star[0].\"\" = 1: expected".into()),
        (
            with("guide_star", "a\nb\u{1b}", "\u{7}".into()),
            "guide_star[0].a b = \"\\u0007\": expected".into(),
        ),
        (
            refused(&|values| drop(values.remove("atmosphere"))),
            "atmosphere is missing: expected a table [atmosphere]".into(),
        ),
        (
            refused(&|values| drop(values.insert("guide_star".into(), table()))),
            "guide_star: expected a list of tables, each under [[guide_star]]".into(),
        ),
        (
            refused(&|values| values.clear()),
            "atmosphere is missing: expected a table [atmosphere]".into(),
        ),
    ] {
        assert!(found.starts_with(&wanted), "{found} and not {wanted}");
    }
}

#[test]
fn a_dictionary_of_great_depth_is_refused() {
    let in_list = |value| toml::Value::Array(vec![value]);
    let in_table = |value| toml::Value::Table([("a".to_string(), value)].into_iter().collect());
    let nested = |depth: usize, wrap: &dyn Fn(toml::Value) -> toml::Value| {
        (0..depth).fold(toml::Value::from(1), |value, _| wrap(value))
    };
    let refused = |changes: [toml::Value; 2]| {
        let [one, other] = changes;
        let mut values = values(|_| ());
        values.insert("phase".into(), one);
        values.insert("target".into(), other);
        SystemFile::from_value(values).and_then(|file| file.system()).unwrap_err().to_string()
    };
    let expected = "expected at most 64 tables and lists inside of one another";
    for depth in [64, 200_000] {
        let deep = [nested(depth, &in_table), nested(depth, &in_list)];
        assert_eq!(refused(deep), format!("phase: {expected}"), "{depth}");
        let set = SystemFile::builder().set("phase.points", nested(depth, &in_list)).build();
        assert_eq!(set.unwrap_err().to_string(), format!("phase.points: {expected}"));
    }
    let last = [nested(63, &in_table), nested(63, &in_list)];
    assert!(refused(last).starts_with("target[0] = [[[["), "the deepest that is written");
    let path = ["a"; 200_000].join(".");
    let long = SystemFile::builder().set(&path, 1).build().unwrap_err().to_string();
    assert!(long.contains("expected a path of keys and numbers") && long.len() < 200, "{long}");
}

#[test]
fn files_are_built_and_edited_with_the_errors_of_a_file() -> Result<()> {
    let layer = |key: &str| format!("atmosphere.layers[0].{key}");
    let built = SystemFile::builder()
        .set("atmosphere.r0", 0.15)
        .set("atmosphere.outer_scale", 25)
        .set(&layer("altitude"), 0)
        .set(&layer("fraction"), 1)
        .set("lenslet_array.lenslets", 4)
        .set("lenslet_array.pitch", 0.5)
        .set("guide_star[0].zenith", 30.0)
        .set("guide_star[1].sensor.photons", 200.0)
        .set("guide_star[1].sensor.wavelength", 589e-9)
        .set("guide_star[1].sensor.pixel", 0.8);
    let file = built.clone().build()?;
    assert_eq!(file.system()?, System::from_toml(file.text(), "x.toml")?);
    assert_eq!(file.system()?.guide_stars().len(), 2);
    let refused = |path: &str, value: toml::Value| {
        built.clone().set(path, value).build().unwrap_err().to_string()
    };
    for (path, value, wanted) in [
        (
            "atmosphere.r0",
            0.into(),
            "atmosphere.r0 = 0: expected a length in metres greater than 0",
        ),
        (
            "image.pixle",
            4.into(),
            "image.pixle = 4: expected one of the keys wavelengths, pixel, pixels, ",
        ),
        (
            "guide_star[1].sensor.pixel",
            "x".into(),
            "guide_star[1].sensor.pixel = \"x\": expected an angle",
        ),
        (
            "guide_star[3].zenith",
            1.into(),
            "guide_star[3].zenith: expected a path of keys and numbers",
        ),
        ("atmosphere.r0.x", 1.into(), "atmosphere.r0.x: expected a path of keys and numbers"),
    ] {
        let found = refused(path, value);
        assert!(found.starts_with(wanted), "{found} and not {wanted}");
    }
    assert!(
        SystemFile::builder().build().unwrap_err().to_string().starts_with("atmosphere is missing")
    );
    // An edited file has its name, and the lines of its new text.
    let edited = SystemFile::from_toml(GOOD, "x.toml")?.to_builder();
    let wrong = edited.clone().set("atmosphere.cone_gradient", "pupil").set("atmosphere.r0", 0);
    let message = "x.toml:3: atmosphere.r0 = 0: expected a length in metres greater than 0";
    assert_eq!(wrong.build().unwrap_err().to_string(), message);
    let fewer = edited.remove("guide_star[0]").remove("target").build()?.system()?;
    assert_eq!((fewer.guide_stars().len(), fewer.targets().len()), (1, 0));
    Ok(())
}

#[test]
fn editing_leaves_texts_as_they_are() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut files = 0;
    for entry in fs::read_dir(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("book/systems"))? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        for text in [text.clone(), text.replace('\n', "\r\n"), text.trim_end().to_string()] {
            let file = SystemFile::from_toml(&text, "x.toml")?;
            assert_eq!(file.to_builder().text(), text, "{}", path.display());
        }
        files += 1;
    }
    assert!(files > 10, "{files} files");
    Ok(())
}

/// A command reads its system file once: of a pipe, a second reading would find nothing.
#[cfg(unix)]
#[test]
fn commands_read_their_file_once() -> std::result::Result<(), Box<dyn std::error::Error>> {
    use std::process::{Command, Stdio};
    for args in [
        "psf /dev/stdin --plan",
        "reconstruct /dev/stdin --plan",
        "estimate /dev/stdin --plan",
        "covariance /dev/stdin --plan",
        "simulate /dev/stdin --plan",
        "learn /dev/stdin --plan",
        "info /dev/stdin",
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lenslet"));
        let piped = command.args(args.split(' ')).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.stderr(Stdio::piped()).spawn()?;
        let text = shipped("small-moao.toml") + "\n[phase]\npoints = 9\n";
        std::io::Write::write_all(&mut child.stdin.take().ok_or("no pipe")?, text.as_bytes())?;
        let output = child.wait_with_output()?;
        assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// A text with one of the things done to it that happen to texts.
fn spoilt(text: &str, (kind, at, piece): (u8, prop::sample::Index, String)) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = at.index(chars.len() + 1);
    let end = (at + piece.chars().count()).min(chars.len());
    let (before, cut, after) = (&chars[..at], &chars[at..end], &chars[end..]);
    let joined = |parts: &[&[char]]| parts.concat().into_iter().collect::<String>();
    match kind {
        0 => joined(&[before, after]),
        1 => joined(&[before, cut, cut, after]),
        2 => joined(&[before]) + &piece + &joined(&[cut, after]),
        3 => joined(&[before]) + &piece + &joined(&[after]),
        _ => joined(&[before]),
    }
}

fn piece() -> impl Strategy<Value = String> {
    let token = "\\[\\[?[a-z_]{0,8}\\]?\\]?|[a-z_0-9]{1,9} ?= ?[-+.0-9einfa_x]{0,8}|[\\[\\]{}\"'=,.#\n]{1,6}|-?[0-9]{1,20}|nan|inf|\\PC{0,4}";
    prop::string::string_regex(token).unwrap()
}

/// Either a system, or an error that names a line of the text.
fn answer(text: &str) {
    match System::from_toml(text, "x.toml") {
        Ok(system) => assert!(!system.guide_stars().is_empty()),
        Err(Error::SystemFile(bad)) => {
            assert!((1..=text.lines().count() + 1).contains(&bad.line), "{bad}");
            assert!(!bad.to_string().contains('\n') && !bad.expected.is_empty(), "{bad}");
        }
        Err(other) => panic!("{other}"),
    }
    edited(text);
}

/// Expects that what can be parsed can be edited, and is the same as a dictionary.
fn edited(text: &str) {
    let Ok(file) = SystemFile::from_toml(text, "x.toml") else { return };
    let edited = file.to_builder().set("atmosphere.r0", 0.2).remove("target").text();
    assert!(SystemFile::from_toml(&edited, "x.toml").is_ok(), "{text:?} as {edited:?}");
    let Ok(values) = toml::from_str(text) else { return };
    let same = SystemFile::from_value(values).and_then(|file| file.system()).ok();
    assert_eq!(same, file.system().ok(), "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn spoilt_systems_never_panic(
        name in prop::sample::select(vec!["small.toml", "keck-lgs.toml", "elt.toml"]),
        changes in prop::collection::vec((0u8..5, any::<prop::sample::Index>(), piece()), 1..4),
    ) {
        answer(&changes.into_iter().fold(shipped(name), |text, change| spoilt(&text, change)));
    }

    #[test]
    fn random_text_never_panics(pieces in prop::collection::vec(piece(), 0..40)) {
        answer(&pieces.join(" "));
        answer(&pieces.join("\n"));
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(text) = std::str::from_utf8(&bytes) {
            answer(text);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, &bytes).unwrap();
        match System::from_file(&file) {
            Err(Error::SystemFile(bad)) => prop_assert!(bad.line <= bytes.len() + 1),
            other => prop_assert!(false, "{other:?}"),
        }
    }
}
