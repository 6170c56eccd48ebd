//! The command line from outside: what it writes, what it refuses, and that a refusal changes nothing.

use fitsio::{FitsFile, hdu::HduInfo, images::ImageType};
use lenslet::bench::calibration::Kept;
use lenslet::device::{Engine, Speed};
use ndarray::{Array1, Array2, Array4, Array5, Array6, array};
use ndarray_npy::NpzReader;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub type Checked = Result<(), Box<dyn std::error::Error>>;

/// A run of the program, in a folder of its own.
pub struct Run {
    folder: tempfile::TempDir,
}

impl Run {
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { folder: tempfile::tempdir()? })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn lenslet(&self, args: &str) -> std::io::Result<Output> {
        self.command(args).output()
    }

    /// The command, of a user who has no cache.
    fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lenslet"));
        command.args(args.split_whitespace()).current_dir(self.folder.path());
        command.env_remove("HOME").env_remove("XDG_CACHE_HOME");
        command
    }

    /// Runs `lenslet covariance` with a system of the book.
    fn covariance(&self, system: &str, args: &str) -> std::io::Result<Output> {
        self.lenslet(&format!("covariance {} {args}", book(system).display()))
    }

    /// Expects a refusal with exit code 2 that says all of `words`, in a folder that stays as it is.
    pub fn refuses(&self, args: &str, words: &[&str]) -> Checked {
        let before = self.names()?;
        let output = self.lenslet(args)?;
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args}: {message}");
        for word in words {
            assert!(message.contains(word), "{args}: no {word:?} in {message:?}");
        }
        assert!(!message.contains("panicked"), "{args}: {message}");
        assert!(output.stdout.is_empty(), "{args}");
        assert_eq!(self.names()?, before, "{args}: something was left behind");
        Ok(())
    }

    pub fn names(&self) -> std::io::Result<Vec<PathBuf>> {
        let entries =
            fs::read_dir(self.folder.path())?.map(|entry| entry.map(|entry| entry.path()));
        let mut names: Vec<_> = entries.collect::<Result<_, _>>()?;
        names.sort();
        Ok(names)
    }
}

fn book(system: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("book/systems/{system}.toml"))
}

fn archive(path: &Path) -> Result<NpzReader<File>, Box<dyn std::error::Error>> {
    Ok(NpzReader::new(File::open(path)?)?)
}

pub fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn covariance_writes_its_arrays() -> Checked {
    let run = Run::new()?;
    let said = said(&run.covariance("keck-lgs", "-o cov.npz --plot cov.svg --pair 0,1")?);
    for word in [
        "4 guide stars, 7 layers, 20 × 20 lenslets of 0.5 m",
        "rad²",
        "arcsec",
        "cov.npz",
        "cov.svg",
    ] {
        assert!(said.contains(word), "{word} in {said}");
    }
    let mut arrays = archive(&run.path("cov.npz"))?;
    let slopes: Array6<f64> = arrays.by_name("slope_slope")?;
    assert_eq!(slopes.dim(), (4, 4, 2, 2, 39, 39));
    assert!(slopes.iter().all(|c| c.is_finite()));
    let valid: Array2<bool> = arrays.by_name("valid")?;
    assert_eq!(valid.dim(), (20, 20));
    assert!(!valid[[0, 0]] && valid[[10, 2]] && !valid[[10, 10]]);
    let pitch: Array1<f64> = arrays.by_name("pitch")?;
    assert_eq!(pitch, array![0.5, 0.5, 0.5, 0.5]);
    let directions: Array2<f64> = arrays.by_name("directions")?;
    assert_eq!(directions.dim(), (4, 2));
    assert!(fs::read_to_string(run.path("cov.svg"))?.ends_with("</svg>\n"));
    assert_eq!(run.names()?.len(), 2, "no draft is left");
    Ok(())
}

#[test]
fn single_precision_and_json() -> Checked {
    let run = Run::new()?;
    let double = said(&run.covariance("small", "-o double.npz --quiet")?);
    assert_eq!(double, "");
    let told = said(&run.covariance("small", "-o single.npz --precision f32 --json")?);
    let told: serde_json::Value = serde_json::from_str(&told)?;
    let double: Array6<f64> = archive(&run.path("double.npz"))?.by_name("slope_slope")?;
    let single: Array6<f32> = archive(&run.path("single.npz"))?.by_name("slope_slope")?;
    let variance = double[[0, 0, 0, 0, 19, 19]];
    assert!(double.iter().zip(&single).all(|(d, s)| (d - f64::from(*s)).abs() < 1e-7 * variance));
    assert_eq!(told["variance"], variance);
    assert_eq!(told["method"], "direct");
    assert_eq!(told["shape"], serde_json::json!([1, 1, 2, 2, 39, 39]));
    assert_eq!(told["valid"], 400);
    assert_eq!(told["bytes"], fs::metadata(run.path("single.npz"))?.len());
    Ok(())
}

/// The numbers of an image, and its shape.
fn image<T>(
    fits: &mut FitsFile,
    name: &str,
) -> Result<(Vec<usize>, Vec<T>), Box<dyn std::error::Error>>
where
    Vec<T>: fitsio::images::ReadImage,
{
    let hdu = fits.hdu(name)?;
    let numbers = hdu.read_image(fits)?;
    match hdu.info {
        HduInfo::ImageInfo { shape, .. } => Ok((shape, numbers)),
        other => Err(format!("{name} is {other:?}").into()),
    }
}

#[test]
fn fits_files_hold_what_archives_hold() -> Checked {
    let run = Run::new()?;
    said(&run.covariance("keck-lgs", "-o cov.npz")?);
    let told = said(&run.covariance("keck-lgs", "-o cov.fits")?);
    assert!(told.contains("slope_slope 4 × 4 × 2 × 2 × 39 × 39") && told.contains("cov.fits"));
    let mut npz = archive(&run.path("cov.npz"))?;
    let mut fits = FitsFile::open(run.path("cov.fits"))?;
    assert_eq!(fits.num_hdus()?, 19); // slopes, 7 layers, wavefronts, 9 that describe
    let creator: String = fits.primary_hdu()?.read_key(&mut fits, "CREATOR")?;
    assert_eq!(creator, concat!("lenslet ", env!("CARGO_PKG_VERSION")));
    let (shape, slopes) = image::<f64>(&mut fits, "SLOPE_SLOPE")?;
    let wanted: Array6<f64> = npz.by_name("slope_slope")?;
    assert_eq!(shape, wanted.shape());
    assert!(wanted.iter().eq(&slopes));
    let (shape, valid) = image::<u8>(&mut fits, "VALID")?;
    let wanted: Array2<bool> = npz.by_name("valid")?;
    assert_eq!(shape, wanted.shape());
    assert!(wanted.iter().map(|valid| u8::from(*valid)).eq(valid));
    assert_eq!(image::<f64>(&mut fits, "PITCH")?, (vec![4], vec![0.5; 4]));
    let step: Array1<f64> = npz.by_name("wavefront_step")?;
    assert_eq!(image::<f64>(&mut fits, "WAVEFRONT_STEP")?, (step.shape().to_vec(), step.to_vec()));
    let (shape, directions) = image::<f64>(&mut fits, "DIRECTIONS")?;
    let wanted: Array2<f64> = npz.by_name("directions")?;
    assert_eq!(shape, wanted.shape());
    assert!(wanted.iter().eq(&directions));
    for (name, wanted) in [("SLOPE_SLOPE", "rad2"), ("PITCH", "m"), ("DIRECTIONS", "rad")] {
        let unit: String = fits.hdu(name)?.read_key(&mut fits, "BUNIT")?;
        assert_eq!(unit, wanted);
    }
    Ok(())
}

#[test]
fn the_format_follows_the_name_or_is_given_where_that_says_nothing() -> Checked {
    let run = Run::new()?;
    for (args, name, fits) in [
        ("-o a.FITS --precision f32", "a.FITS", true),
        ("-o b.fts --precision f32 --format fits", "b.fts", true),
        ("-o c.npz --precision f32", "c.npz", false),
        ("-o d.tmp --format fits --precision f32", "d.tmp", true),
        ("-o e --format npz --precision f32", "e", false),
    ] {
        let told = said(&run.covariance("small", &format!("{args} --json"))?);
        let told: serde_json::Value = serde_json::from_str(&told)?;
        assert_eq!(told["format"], if fits { "fits" } else { "npz" });
        let start: &[u8] = if fits { b"SIMPLE  =" } else { b"PK" };
        let file = fs::read(run.path(name))?;
        assert!(file.starts_with(start), "{args}");
        assert_eq!(told["bytes"], file.len());
    }
    let mut fits = FitsFile::open(run.path("d.tmp"))?;
    let single = fits.hdu("SLOPE_SLOPE")?.info;
    assert!(matches!(single, HduInfo::ImageInfo { image_type: ImageType::Float, .. }));
    let kept = fits.hdu("PITCH")?.info;
    assert!(matches!(kept, HduInfo::ImageInfo { image_type: ImageType::Double, .. }));
    let keck = book("keck-lgs");
    let keck = keck.display();
    for (args, words) in [
        (
            "covariance -o c.h5",
            "output = c.h5: expected a file name that ends in .npz, .fits, .fit or .fts",
        ),
        ("covariance -o c.npy", "ends in .npz, .fits, .fit or .fts"),
        ("covariance -o c.fits.gz", "ends in .npz, .fits, .fit or .fts"),
        ("covariance -o cov", "ends in .npz, .fits, .fit or .fts"),
        ("covariance -o c.fits --format npz", "ends in .npz"),
        ("covariance -o c.npy --format npz", "ends in .npz"),
        ("estimate --slopes s.npy -o e.dat", "ends in .npz, .fits, .fit or .fts"),
        (
            "simulate -o s.h5",
            "output = s.h5: expected a file name that ends in .npz, .npy, .fits, .fit or .fts",
        ),
        ("simulate -o s.npy --wavefront w.txt", "wavefront = w.txt"),
        ("simulate -o slopes", "ends in .npz, .npy, .fits, .fit or .fts"),
    ] {
        let (command, rest) = args.split_once(' ').ok_or("no command")?;
        run.refuses(&format!("{command} {keck} {rest}"), &[words])?;
    }
    Ok(())
}

/// Some libraries take brackets, signs and exclamation marks in a name as instructions. These are only names.
#[test]
fn names_are_nothing_but_names() -> Checked {
    let run = Run::new()?;
    said(&run.covariance("small", "-o plain.fits")?);
    // All but the first header, which tells the command and the date.
    let arrays = |name: &str| fs::read(run.path(name)).map(|file| file[2880..].to_vec());
    let plain = arrays("plain.fits")?;
    fs::create_dir(run.path("[1](copy)"))?;
    for name in ["!old.fits", "a[compress].fits", "b(c).fits+1", "[1](copy)/d[2:3].fits", "é.fits"]
    {
        fs::write(run.path(name), "an older result")?;
        said(&run.covariance("small", &format!("-o {name} --format fits"))?);
        assert!(arrays(name)? == plain, "{name}");
    }
    assert_eq!(run.names()?.len(), 6);
    Ok(())
}

#[test]
fn spectral_method_chooses_or_obeys() -> Checked {
    let run = Run::new()?;
    let told = said(&run.covariance(
        "small",
        "-o a.npz --method spectral --json --samples 4096 --oversampling 4",
    )?);
    let given: serde_json::Value = serde_json::from_str(&told)?;
    assert_eq!((&given["samples"], &given["oversampling"]), (&4096.into(), &4.into()));
    let told = said(&run.covariance("small", "-o b.npz --method spectral --json")?);
    let chosen: serde_json::Value = serde_json::from_str(&told)?;
    let exact: Array6<f64> = {
        said(&run.covariance("small", "-o c.npz")?);
        archive(&run.path("c.npz"))?.by_name("slope_slope")?
    };
    for (name, told) in [("a.npz", given), ("b.npz", chosen)] {
        let spectral: Array6<f64> = archive(&run.path(name))?.by_name("slope_slope")?;
        let largest = exact.iter().zip(&spectral).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let error = largest / exact[[0, 0, 0, 0, 19, 19]];
        let estimate = told["error_estimate"].as_f64().ok_or("no estimate")?;
        assert!(
            error < 1.5 * estimate && estimate < 20.0 * error,
            "{name}: {error:e}, {estimate:e}"
        );
    }
    Ok(())
}

#[test]
fn pictures_are_drawn_in_both_formats() -> Checked {
    let run = Run::new()?;
    said(&run.covariance("keck-lgs", "-o cov.npz --plot cov.PNG --pair 3,1")?);
    assert!(fs::read(run.path("cov.PNG"))?.starts_with(b"\x89PNG"));
    said(&run.covariance("small", "-o cov.npz --plot cov.svg")?);
    assert!(fs::metadata(run.path("cov.svg"))?.len() < 2_000_000);
    Ok(())
}

#[test]
fn bad_requests_are_refused() -> Checked {
    let run = Run::new()?;
    let small = book("small");
    let small = small.display();
    let keck = book("keck-lgs");
    let keck = keck.display();
    fs::write(run.path("cov.npz"), "an older result")?;
    fs::create_dir(run.path("folder.npz"))?;
    fs::write(run.path("latin1.toml"), b"# caf\xe9\n")?;
    fs::write(run.path("typo.toml"), "[atmosfere]\nr0 = 0.15\n")?;
    let cases: &[(String, &[&str])] = &[
        ("covariance absent.toml -o cov.npz".into(), &["absent.toml", "cannot read"]),
        ("covariance folder.npz -o cov.npz".into(), &["folder.npz", "cannot read"]),
        ("covariance latin1.toml -o cov.npz".into(), &["latin1.toml"]),
        ("covariance typo.toml -o cov.npz".into(), &["typo.toml", "atmosfere"]),
        (format!("covariance {small}"), &["--output"]),
        (format!("covariance {small} -o no/such/cov.npz"), &["no/such", "cannot write"]),
        (format!("covariance {small} -o folder.npz"), &["folder.npz", "cannot write"]),
        (format!("covariance {small} -o cov.npz --plot no/such/cov.svg"), &["no/such"]),
        (format!("covariance {small} -o cov.npz --plot cov.pdf"), &["cov.pdf", ".svg or .png"]),
        (format!("covariance {small} -o cov.npz --plot cov"), &[".svg or .png"]),
        (format!("covariance {small} -o cov.svg --format npz --plot ./cov.svg"), &["another file"]),
        (format!("covariance {small} -o cov.npz --pair 0,0"), &["--plot"]),
        (format!("covariance {small} -o cov.npz --plot c.svg --pair 0,1"), &["pair = 0,1", "0"]),
        (format!("covariance {keck} -o cov.npz --plot c.svg --pair 4,0"), &["pair = 4,0", "3"]),
        (format!("covariance {keck} -o cov.npz --plot c.svg --pair one"), &["0,1"]),
        (format!("covariance {small} -o cov.npz --method magic"), &["magic", "direct", "spectral"]),
        (format!("covariance {small} -o cov.npz --precision f16"), &["f16", "f32"]),
        (format!("covariance {small} -o cov.npz --format hdf5"), &["hdf5", "fits", "npz"]),
        (
            format!("covariance {small} -o cov.npz --samples 4096 --oversampling 4"),
            &["--method spectral"],
        ),
        (
            format!("covariance {small} -o cov.npz --method spectral --samples 4096"),
            &["--oversampling"],
        ),
        (
            format!(
                "covariance {small} -o cov.npz --method spectral --samples 4096 --oversampling 3"
            ),
            &["samples = 4096", "3"],
        ),
        (
            format!(
                "covariance {small} -o cov.npz --method spectral --samples 64 --oversampling 4"
            ),
            &["samples = 64", "156"],
        ),
        (
            format!("covariance {small} -o cov.npz --method spectral --samples 0 --oversampling 0"),
            &["oversampling = 0"],
        ),
        (format!("covariance {small} -o cov.npz --device gpu"), &["gpu", "cuda"]),
        (format!("covariance {small} -o cov.npz --device cuda:97"), &["device cuda:97"]),
        ("bench --device cpu:1".into(), &["cpu:1"]),
        ("bench --device cuda --lenslets 20".into(), &["lenslets", "graphics"]),
        (format!("covariance {small} -o cov.npz --surprise"), &["--surprise"]),
        ("info absent.toml".into(), &["absent.toml"]),
        ("bench covariance absent.toml".into(), &["absent.toml"]),
        ("bench covariance --repeat 0".into(), &["--repeat"]),
        ("bench stem --case 129-multislice".into(), &["--case", "128-multislice"]),
        ("bench stem --repeat 0".into(), &["--repeat"]),
        ("reconstruct".into(), &["reconstruct"]),
    ];
    for (args, words) in cases {
        run.refuses(args, words)?;
    }
    assert_eq!(fs::read_to_string(run.path("cov.npz"))?, "an older result");
    Ok(())
}

#[test]
fn options_without_effect_are_refused() -> Checked {
    let run = Run::new()?;
    let (small, keck) = (book("small"), book("keck-lgs"));
    let (small, keck) = (small.display(), keck.display());
    let with = |options: &str| format!("covariance {small} -o cov.npz {options}");
    let keck_with = |options: &str| format!("covariance {keck} -o cov.npz {options}");
    let cases: &[(String, &[&str])] = &[
        (with("--component xx"), &["--plot"]),
        (with("--scale log"), &["--plot"]),
        (with("--of slopes"), &["--plot"]),
        (with("--pair all"), &["--plot"]),
        (with("--plot c.svg --of wavefront"), &["of = wavefront", "[[target]]", "[phase]"]),
        (with("--plot c.svg --component x"), &["component = x", "xx, xy, yy or all"]),
        (with("--plot c.svg --scale cubic"), &["cubic", "linear", "root", "log"]),
        (
            keck_with("--plot c.svg --of wavefront --pair 2,0"),
            &["pair = 2,0", "target between 0 and 1"],
        ),
        (
            keck_with("--plot c.svg --of wavefront --component xx"),
            &["component = xx", "x, y or all"],
        ),
        ("bench covariance --plan --repeat 3".into(), &["--repeat", "--plan"]),
        (format!("simulate {small} -o s.npy --wavefront w.npy"), &["wavefront", "[[target]]"]),
        (
            format!("estimate {keck} --plan --form dense --interpolation cubic"),
            &["interpolation = cubic", "Toeplitz form"],
        ),
    ];
    for (args, words) in cases {
        run.refuses(args, words)?;
    }
    let coarse = fs::read_to_string(book("keck-lgs"))?.replace("lenslets = 20", "lenslets = 8");
    fs::write(run.path("keck-lgs.toml"), coarse.replace("points = 41", "points = 17"))?;
    said(&run.lenslet("simulate keck-lgs.toml -o slopes.npy --frames 2")?);
    let estimate = "estimate keck-lgs.toml --slopes slopes.npy -o wavefront.npz";
    run.refuses(&format!("{estimate} --frame 0"), &["--plot"])?;
    let words = ["frame = 2", "between 0 and 1", "slopes.npy"];
    run.refuses(&format!("{estimate} --plot w.svg --frame 2"), &words)?;
    let mut pictures = Vec::new();
    for frame in ["", "--frame 0", "--frame 1"] {
        said(&run.lenslet(&format!("{estimate} --plot w.svg {frame}"))?);
        pictures.push(fs::read_to_string(run.path("w.svg"))?);
    }
    // The first image is a map; the title is text beside it.
    let map = |k: usize| pictures[k].split("base64,").nth(1).and_then(|map| map.split('"').next());
    assert!(pictures[0] == pictures[1] && map(1).is_some() && map(1) != map(2));
    assert!(pictures[0].contains("keck-lgs.toml: wavefronts of frame 0"));
    assert!(pictures[2].contains("keck-lgs.toml: wavefronts of frame 1"));
    let told = said(&run.lenslet(&format!("estimate {keck} --plan --interpolation linear"))?);
    assert!(told.contains("toeplitz"), "{told}");
    Ok(())
}

#[test]
fn pictures_say_what_they_show() -> Checked {
    let run = Run::new()?;
    for (options, maps, words) in [
        ("--pair all --component yy", 10, ["all pairs of 4 guide stars, yy", "square-root"]),
        (
            "--of wavefront --pair 1,3 --scale log",
            14,
            ["wavefront of target 1 with slopes of guide star 3", "logarithmic"],
        ),
        (
            "--of wavefront --pair all --component x",
            56,
            ["2 wavefronts with slopes of 4 guide stars, x", "Grey"],
        ),
    ] {
        said(&run.covariance("keck-lgs", &format!("-o cov.npz --plot cov.svg {options}"))?);
        let picture = fs::read_to_string(run.path("cov.svg"))?;
        assert_eq!(picture.matches("data:image/png;base64,").count(), maps + 1, "{options}");
        for word in words.into_iter().chain(["keck-lgs.toml: "]) {
            assert!(picture.contains(word), "{word} for {options}");
        }
    }
    Ok(())
}

/// Words of a picture in SVG whose letters are at least 11 pixels high at the size at which it is shown.
fn words(path: std::path::PathBuf) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let svg = fs::read_to_string(path)?;
    for size in svg.split("font-size=\"").skip(1) {
        let size: f64 = size.split('"').next().ok_or("no size")?.parse()?;
        assert!(0.5 * size >= 11.0, "{size}");
    }
    let words = svg.split("<text").skip(1).filter_map(|text| text.split(['>', '<']).nth(1));
    Ok(words.map(|words| words.trim().to_string()).collect())
}

/// Each pair of stars is shown once, and errors begin at zero: every colour bar says what it shows in which unit.
#[test]
fn pictures_have_scales_with_quantity_and_unit() -> Checked {
    let run = Run::new()?;
    let (keck, moao) = (book("keck-lgs"), book("small-moao"));
    let realisation = |command: String| -> Result<Vec<String>, Box<dyn std::error::Error>> {
        said(&run.lenslet(&format!("{command} --plot p.svg --quiet"))?);
        words(run.path("p.svg"))
    };
    let all = realisation(format!("covariance {} -o c.npz --pair all", keck.display()))?;
    let pairs: Vec<&String> = all.iter().filter(|word| word.ends_with(" xx")).collect();
    assert_eq!(pairs.len(), 10, "{pairs:?}");
    assert!(pairs.iter().all(|pair| pair.as_bytes()[0] <= pair.as_bytes()[2]), "{pairs:?}");
    assert!(all.iter().any(|word| word.starts_with("covariance [10")), "{all:?}");
    let reconstruct = format!("reconstruct {} -o r.npz", moao.display());
    let error = realisation(reconstruct.clone())?;
    assert!(error.contains(&"rms error of the wavefront [nm]".to_string()), "{error:?}");
    assert!(!error.iter().any(|word| word == "−100" || word == "−200"), "{error:?}");
    let noise = realisation(format!("{reconstruct} --of noise"))?;
    for word in ["small-moao.toml: noise of the slopes", "guide star 2"] {
        assert!(noise.contains(&word.to_string()), "{noise:?}");
    }
    assert!(noise.iter().any(|word| word.ends_with("half a lenslet = 20.63 mas rms")), "{noise:?}");
    let spectrum = realisation(format!("{reconstruct} --method eigen --of spectrum"))?;
    assert!(spectrum.contains(&"eigenvalue [rad²]".to_string()), "{spectrum:?}");
    assert!(!spectrum.iter().any(|word| word == "10⁻²⁰" || word == "10⁻¹⁸"), "{spectrum:?}");
    let matrix = realisation(format!("{reconstruct} --of reconstructor"))?;
    assert!(matrix.iter().any(|word| word.ends_with("rad/rad]")), "{matrix:?}");
    let psf = realisation(format!("psf {} -o p.fits --decades 5", moao.display()))?;
    assert!(psf.contains(&"PSF / perfect peak, floor 10⁻⁵".to_string()), "{psf:?}");
    let profile = realisation(format!("psf {} -o p.fits --of profile", moao.display()))?;
    assert!(profile.contains(&"PSF / perfect peak, floor 10⁻⁴".to_string()), "{profile:?}");
    // A profile is one line, and its sample in the legend another.
    let svg = fs::read_to_string(run.path("p.svg"))?;
    for colour in ["#0072B2", "#009E73", "#CC79A7", "#E69F00"] {
        let lines = svg.lines().filter(|line| line.contains(&format!("stroke=\"{colour}\"")));
        assert_eq!(lines.count(), 2, "{colour}");
    }
    Ok(())
}

/// A layer a tenth of a millimetre below the stars: the lattice would have a hundred thousand million lags.
#[test]
fn layers_in_the_tip_of_a_cone_are_told_at_once() -> Checked {
    let run = Run::new()?;
    let text = fs::read_to_string(book("keck-lgs"))?;
    let text = text.replace("altitude = 16000.0", "altitude = 89999.9999");
    assert!(text.contains("89999.9999"));
    fs::write(run.path("tip.toml"), text)?;
    let start = std::time::Instant::now();
    let words = [
        "layers[6].altitude = 89999.9999",
        "guide stars at 90000 m",
        "1.1e-9 of the pupil",
        "lags",
    ];
    run.refuses("covariance tip.toml -o cov.npz", &words)?;
    let told = said(&run.lenslet("info tip.toml")?);
    for word in words {
        assert!(told.contains(word), "{word} in {told}");
    }
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    Ok(())
}

#[test]
fn too_large_a_system_is_refused_before_it_starts() -> Checked {
    let run = Run::new()?;
    let star = "[[guide_star]]\nzenith = 1.0\n".repeat(40);
    let text = fs::read_to_string(book("small"))?.replace("lenslets = 20 ", "lenslets = 9000 ");
    fs::write(run.path("large.toml"), text + "\n" + &star)?;
    run.refuses("covariance large.toml -o cov.npz", &["41 guide stars", "9000", "GiB", "available"])
}

#[test]
fn sources_at_unequal_heights_have_the_dense_form() -> Checked {
    let run = Run::new()?;
    let text = fs::read_to_string(book("small"))?.replace("lenslets = 20 ", "lenslets = 4 ");
    fs::write(run.path("mixed.toml"), text + "\n[[guide_star]]\nheight = 90e3\n")?;
    let args = "covariance mixed.toml -o cov.npz --form toeplitz";
    run.refuses(args, &["no Toeplitz form", "90000", "unequal"])?;
    run.refuses("covariance mixed.toml -o cov.npz --plot cov.svg", &["plot", "dense"])?;
    run.refuses("covariance mixed.toml -o cov.npz --method spectral", &["spectral", "toeplitz"])?;
    let told = said(&run.lenslet("info mixed.toml")?);
    assert!(told.contains("no Toeplitz form") && told.contains("dense form"), "{told}");
    let told = said(&run.lenslet("covariance mixed.toml -o cov.npz --json")?);
    let told: serde_json::Value = serde_json::from_str(&told)?;
    assert_eq!((&told["form"], &told["shape"]), (&"dense".into(), &serde_json::json!([64, 64])));
    let dense: Array2<f64> = archive(&run.path("cov.npz"))?.by_name("slope_slope_dense")?;
    // All turbulence is on the ground, where both stars see the same: the four blocks are equal.
    for ((row, column), value) in dense.indexed_iter() {
        let twin = dense[[row % 32, column % 32]];
        assert!((value - twin).abs() < 1e-12 * dense[[0, 0]], "{row} {column}");
    }
    Ok(())
}

/// A small laser system with a wavefront to estimate, in a file of the run.
fn write_laser_system(run: &Run) -> Checked {
    let text = fs::read_to_string(book("keck-lgs"))?
        .replace("lenslets = 20 ", "lenslets = 8 ")
        .replace("points = 41", "points = 11");
    Ok(fs::write(run.path("laser.toml"), text)?)
}

#[test]
fn wavefronts_are_simulated_and_estimated() -> Checked {
    let run = Run::new()?;
    write_laser_system(&run)?;
    said(&run.lenslet("simulate laser.toml -o s.npy --wavefront w.npy --frames 3 --seed 7")?);
    said(&run.lenslet("simulate laser.toml -o s.fits --frames 3 --seed 7")?);
    let told =
        said(&run.lenslet("estimate laser.toml --slopes s.npy -o e.npz --plot e.svg --json")?);
    let told: serde_json::Value = serde_json::from_str(&told)?;
    assert_eq!(told["shape"], serde_json::json!([3, 2, 11, 11]));
    assert!(told["residual"][2].as_f64().is_some_and(|residual| residual <= 1e-6), "{told}");
    // Dense matrices fit: nothing is interpolated.
    assert_eq!((&told["form"], &told["interpolation_error"]), (&"dense".into(), &0.0.into()));
    assert!(told["interpolation"].is_null() && told["interpolation_nm"].is_null(), "{told}");
    let estimate: Array4<f64> = archive(&run.path("e.npz"))?.by_name("wavefront")?;
    let truth: Array4<f64> = ndarray_npy::read_npy(run.path("w.npy"))?;
    // The estimate is nearer to the truth than nothing, and than the truth mirrored.
    let error = |other: &Array4<f64>| {
        let difference = &truth - other;
        let maps = difference.outer_iter().flat_map(|frame| {
            frame.outer_iter().map(|map| map.var(0.0)).collect::<Vec<f64>>() // piston is no error
        });
        maps.sum::<f64>()
    };
    let mirrored = estimate.slice(ndarray::s![.., .., .., ..;-1]).to_owned();
    assert!(error(&estimate) < 0.2 * error(&Array4::zeros(truth.dim())));
    assert!(error(&estimate) < 0.2 * error(&mirrored));
    assert!(fs::read_to_string(run.path("e.svg"))?.contains("target 1"));
    // Interpolated layers come near to that, and the summary states by how much they miss it.
    let layered = "estimate laser.toml --slopes s.npy -o layered.npz --form toeplitz";
    let told: serde_json::Value =
        serde_json::from_str(&said(&run.lenslet(&format!("{layered} --json"))?))?;
    assert_eq!((&told["form"], &told["interpolation"]), (&"toeplitz".into(), &"cubic".into()));
    assert!(told["interpolation_error"].as_f64().is_some_and(|e| (1e-5..0.02).contains(&e)));
    let other: Array4<f64> = archive(&run.path("layered.npz"))?.by_name("wavefront")?;
    let largest = estimate.iter().fold(0.0, |largest: f64, w| largest.max(w.abs()));
    let within = |j: usize, i: usize| (j as f64 - 5.0).hypot(i as f64 - 5.0) <= 5.0;
    let (mut gaps, mut whole, mut count) = (0.0, 0.0, 0.0);
    for (place, (a, b)) in other.indexed_iter().map(|(k, a)| (k, (a, &estimate[k]))) {
        if within(place.2, place.3) {
            (gaps, whole, count) = (gaps + (a - b) * (a - b), whole + a * a, count + 1.0);
        }
    }
    let [rms, percent] = [1e9 * f64::sqrt(gaps / count), 100.0 * f64::sqrt(gaps / whole)];
    for (key, measured) in [("interpolation_nm", rms), ("interpolation_percent", percent)] {
        let stated = told[key].as_f64().unwrap_or(f64::NAN);
        assert!((0.5..2.0).contains(&(stated / measured)), "{key}: {stated} {measured}");
    }
    let told = said(&run.lenslet(layered)?);
    assert!(told.contains("cubic interpolation: it adds an error of"), "{told}");
    // A single target on an odd number of points.
    let text = fs::read_to_string(run.path("laser.toml"))?;
    let second = text.rfind("[[target]]").ok_or("no second target")?;
    let phase = text.find("[phase]").ok_or("no grid")?;
    fs::write(run.path("odd.toml"), text[..second].to_string() + &text[phase..])?;
    said(&run.lenslet("estimate odd.toml --slopes s.npy -o odd.npz")?);
    let odd: Array4<f64> = archive(&run.path("odd.npz"))?.by_name("wavefront")?;
    let same = odd
        .iter()
        .zip(estimate.slice(ndarray::s![.., ..1, .., ..]))
        .all(|(a, b)| (a - b).abs() < 1e-9 * largest);
    assert!(same && odd.dim() == (3, 1, 11, 11));
    // FITS in, FITS out: the same numbers.
    said(
        &run.lenslet("estimate laser.toml --slopes s.fits -o e.fits --solver minres --warm-start")?,
    );
    let mut fits = FitsFile::open(run.path("e.fits"))?;
    let (shape, values) = image::<f64>(&mut fits, "WAVEFRONT")?;
    assert_eq!(shape, [3, 2, 11, 11]);
    let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-4 * largest;
    assert!(values.iter().zip(&estimate).all(close));
    Ok(())
}

/// Slopes in arcseconds, beside another image, give the wavefront of the same slopes in radians.
#[test]
fn slopes_are_taken_in_their_unit_and_from_the_image_that_is_chosen() -> Checked {
    use fitsio::images::ImageDescription;
    let run = Run::new()?;
    write_laser_system(&run)?;
    said(&run.lenslet("simulate laser.toml -o s.npy")?);
    let slopes: Array2<f64> = ndarray_npy::read_npy(run.path("s.npy"))?;
    let arcsec: Vec<f64> = slopes.iter().map(|slope| slope.to_degrees() * 3600.0).collect();
    let (frames, n) = slopes.dim();
    let mut fits = FitsFile::create(run.path("s.fits")).open()?;
    for (name, numbers) in [("FLUX", &vec![100.0; n]), ("SLOPES", &arcsec)] {
        let form = ImageDescription { data_type: ImageType::Double, dimensions: &[frames, n] };
        let image = fits.create_image(name, &form)?;
        image.write_image(&mut fits, numbers)?;
        image.write_key(&mut fits, "BUNIT", if name == "FLUX" { "photon" } else { "arcsec" })?;
    }
    drop(fits);
    let estimate = |slopes: &str| format!("estimate laser.toml --slopes {slopes} -o e.npz --quiet");
    let wavefront = |slopes: &str| -> Result<Array4<f64>, Box<dyn std::error::Error>> {
        said(&run.lenslet(&estimate(slopes))?);
        Ok(archive(&run.path("e.npz"))?.by_name("wavefront")?)
    };
    let wanted = wavefront("s.npy")?;
    let largest = wanted.iter().fold(0.0, |largest: f64, w| largest.max(w.abs()));
    for chosen in ["s.fits[SLOPES]", "s.fits[2]"] {
        let found = wavefront(chosen)?;
        let error = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(error < 1e-5 * largest, "{chosen}: {error:e} of {largest:e}"); // both solved to 1e-6
    }
    fs::remove_file(run.path("e.npz"))?;
    let list = format!("s.fits: images = 1 FLUX [1, {n}], 2 SLOPES [1, {n}]: expected one of them");
    run.refuses(&estimate("s.fits"), &[&list])?;
    run.refuses(&estimate("s.fits[FLUX]"), &["BUNIT = 'photon': expected rad, mrad"])
}

#[test]
fn bad_slopes_and_systems_are_refused_by_the_estimate() -> Checked {
    let run = Run::new()?;
    write_laser_system(&run)?;
    let slopes = |name: &str, columns: usize, bad: f64| {
        let mut slopes = Array2::from_elem((2, columns), 1e-7);
        slopes[[1, 3]] = bad;
        ndarray_npy::write_npy(run.path(name), &slopes)
    };
    let n = 8 * 48; // 48 valid lenslets of the annulus, two slopes of four stars each
    slopes("good.npy", n, 1e-7)?;
    slopes("short.npy", n - 1, 1e-7)?;
    slopes("nan.npy", n, f64::NAN)?;
    fs::write(run.path("text.npy"), "no slopes at all")?;
    let with = |name: &str| format!("estimate laser.toml --slopes {name} -o e.npz");
    assert!(run.lenslet(&(with("good.npy") + " --quiet"))?.status.success());
    fs::remove_file(run.path("e.npz"))?;
    run.refuses(&with("short.npy"), &["slopes in a frame = 383", "384"])?;
    run.refuses(&with("nan.npy"), &["nan.npy", "row 1", "index 3", "NaN"])?;
    run.refuses(&with("text.npy"), &["text.npy"])?;
    run.refuses(&with("absent.npy"), &["absent.npy"])?;
    run.refuses(&(with("good.npy") + " --tolerance 0"), &["tolerance"])?;
    run.refuses(&(with("good.npy") + " --device cuda:77"), &["cuda:77"])?;
    run.refuses(&(with("good.npy") + " --plot good.npy.svg.pdf"), &["plot", ".svg"])?;
    fs::copy(run.path("good.npy"), run.path("good.npz"))?;
    for slopes in ["good.npz", "good.npz[s]"] {
        let args = format!("estimate laser.toml --slopes {slopes} -o ./good.npz");
        run.refuses(&args, &["output", "another file than the slopes"])?;
    }
    let small = book("small");
    let args = format!("estimate {} --slopes good.npy -o e.npz", small.display());
    run.refuses(&args, &["target", "[[target]]"])?;
    // A grid that its layers cannot hold, and a pupil that leaves nothing.
    let text = fs::read_to_string(run.path("laser.toml"))?;
    fs::write(run.path("wide.toml"), text.replace("points = 11", "points = 60"))?;
    run.refuses(
        "estimate wide.toml --slopes good.npy -o e.npz",
        &["phase.points = 60", "at most"],
    )?;
    run.refuses("covariance wide.toml -o c.npz", &["phase.points = 60", "at most"])?;
    fs::write(
        run.path("dark.toml"),
        text.replace("valid_threshold = 0.5", "valid_threshold = 1.0")
            .replace("lenslets = 8 ", "lenslets = 1 "),
    )?;
    run.refuses("estimate dark.toml --slopes good.npy -o e.npz", &["lenslet"])?;
    // A sensor of its own that no light falls on, and more frames than fit.
    let star = "[[guide_star]]\nheight = 90e3\nlenslets = 1\npitch = 0.1\n";
    fs::write(run.path("blind.toml"), format!("{text}\n{star}"))?;
    run.refuses("covariance blind.toml -o c.npz", &["blind.toml:", "guide_star", "lenslets = 1"])?;
    let elt = book("elt");
    let args = format!("simulate {} -o s.npy --wavefront w.npy --frames 100000", elt.display());
    run.refuses(&args, &["100000 simulated frames", "GiB", "available"])?;
    run.refuses(&(with("good.npy") + " --tolerance 1"), &["tolerance", "between 0 and 1"])?;
    run.refuses("bench --lenslets 150,0", &["lenslets = 0"])?;
    Ok(())
}

/// A recording of two frames for the system of laser stars, of which the second is `other`.
fn record(run: &Run, other: impl Fn(usize) -> f64) -> Result<(), Box<dyn std::error::Error>> {
    write_laser_system(run)?;
    said(&run.lenslet("simulate laser.toml -o drawn.npy --frames 1 --seed 5")?);
    let drawn: Array2<f64> = ndarray_npy::read_npy(run.path("drawn.npy"))?;
    let n = drawn.ncols();
    let frames =
        Array2::from_shape_fn((2, n), |(k, i)| if k == 0 { drawn[[0, i]] } else { other(i) });
    Ok(ndarray_npy::write_npy(run.path("s.npy"), &frames)?)
}

#[test]
fn frames_that_fall_short_are_written_and_marked() -> Checked {
    let run = Run::new()?;
    record(&run, |_| 0.0)?;
    let output =
        run.lenslet("estimate laser.toml --slopes s.npy -o e.npz --max-iterations 2 --json")?;
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    for word in [
        "1 of 2 frames",
        "frame 0",
        "2 iterations",
        "residual",
        "--tolerance",
        "--max-iterations",
        "noise",
    ] {
        assert!(message.contains(word), "{word} in {message}");
    }
    let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(told["converged"], serde_json::json!([false, true]));
    assert!(told["shortfall"][0].is_string() && told["shortfall"][1].is_null());
    let mut arrays = archive(&run.path("e.npz"))?;
    let converged: ndarray::Array1<bool> = arrays.by_name("converged")?;
    assert_eq!(converged.to_vec(), [false, true]);
    let short: Array4<f64> = arrays.by_name("wavefront")?;
    // What the solver had after all iterations is near to the answer, and that after two is on its way there.
    said(&run.lenslet("estimate laser.toml --slopes drawn.npy -o whole.npz")?);
    let whole: Array4<f64> = archive(&run.path("whole.npz"))?.by_name("wavefront")?;
    let first = |w: &Array4<f64>| w.index_axis(ndarray::Axis(0), 0).to_owned();
    let [short, whole] = [first(&short), first(&whole)];
    let square = |w: ndarray::Array3<f64>| w.iter().map(|w| w * w).sum::<f64>();
    let left = square(&short - &whole) / square(whole);
    assert!((1e-8..0.7).contains(&left), "{left}");
    Ok(())
}

#[test]
fn slopes_that_do_not_fit_are_told() -> Checked {
    let run = Run::new()?;
    record(&run, |_| 0.0)?;
    let drawn: Array2<f64> = ndarray_npy::read_npy(run.path("drawn.npy"))?;
    let told = said(&run.lenslet("estimate laser.toml --slopes drawn.npy -o e.npz")?);
    assert!(told.contains("fit         χ²/n = "), "{told}");
    ndarray_npy::write_npy(run.path("arcsec.npy"), &(&drawn * 206_265.0))?;
    let output = run.lenslet("estimate laser.toml --slopes arcsec.npy -o e.npz --quiet")?;
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{message}");
    assert!(
        message.starts_with("warning: χ²/n = ") && message.contains("e10 on average"),
        "{message}"
    );
    Ok(())
}

#[test]
fn covariances_of_wavefronts_have_their_arrays() -> Checked {
    let run = Run::new()?;
    write_laser_system(&run)?;
    let star = fs::read_to_string(book("small"))?.replace("lenslets = 20 ", "lenslets = 5 ");
    let wavefront =
        "\n[[target]]\nzenith = 9.0\n[phase]\npoints = 8\noversampling = 3\ndisc_radius = 4.0\n";
    fs::write(run.path("star.toml"), star + wavefront)?;
    said(&run.lenslet("covariance star.toml -o star.npz")?);
    let mut npz = archive(&run.path("star.npz"))?;
    let direct: Array5<f64> = npz.by_name("wavefront_slope")?;
    assert_eq!(direct.dim(), (1, 1, 2, 20, 20));
    let among: Array4<f64> = npz.by_name("wavefront_wavefront")?;
    assert_eq!(among.dim(), (1, 1, 15, 15));
    assert!(among[[0, 0, 7, 7]] > among[[0, 0, 7, 8]] && among[[0, 0, 7, 8]] > 0.0);
    said(&run.lenslet("covariance star.toml -o spectral.npz --method spectral")?);
    let spectral: Array5<f64> = archive(&run.path("spectral.npz"))?.by_name("wavefront_slope")?;
    let largest = direct.iter().fold(0.0, |largest: f64, c| largest.max(c.abs()));
    assert!(direct.iter().zip(&spectral).all(|(a, b)| (a - b).abs() < 2e-4 * largest));
    said(&run.lenslet("covariance laser.toml -o laser.npz")?);
    let mut npz = archive(&run.path("laser.npz"))?;
    let points: Array1<i64> = npz.by_name("layer_points")?;
    for (layer, points) in points.iter().enumerate() {
        let lattice: Array5<f64> = npz.by_name(&format!("wavefront_slope_{layer}"))?;
        assert_eq!(lattice.dim().4, 2 * 7 + *points as usize);
    }
    Ok(())
}

#[cfg(target_os = "linux")]
#[test]
fn what_is_not_a_file_or_cannot_be_written_is_refused() -> Checked {
    let run = Run::new()?;
    let small = book("small");
    let small = small.display();
    for args in ["-o /dev/full --format npz", "-o /proc/cov.npz", "-o c.npz --plot /dev/cov.svg"] {
        let words = ["cannot write", "give the name of a file"];
        run.refuses(&format!("covariance {small} {args}"), &words)?;
    }
    Ok(())
}

/// What a shell says of a script in which `lenslet` is the program.
#[cfg(target_os = "linux")]
fn shell(run: &Run, script: &str) -> std::io::Result<Output> {
    let script = format!("lenslet() {{ {} \"$@\"; }}\n{script}", env!("CARGO_BIN_EXE_lenslet"));
    Command::new("sh").args(["-c", &script]).current_dir(run.folder.path()).output()
}

/// A log that the shell appends to must stay, byte for byte, also where the program gets its name through an open file descriptor.
#[cfg(target_os = "linux")]
#[test]
fn what_the_shell_has_open_is_not_replaced() -> Checked {
    let run = Run::new()?;
    let (small, keck) = (book("small"), book("keck-lgs"));
    let (small, keck) = (small.display(), keck.display());
    std::os::unix::fs::symlink("/dev/stdout", run.path("link.npz"))?;
    let log = "a year of messages\n";
    for (command, redirected) in [
        (format!("covariance {small} --format npz -o /dev/stdout"), ">> log"),
        (format!("covariance {small} -o link.npz"), ">> log"),
        (format!("covariance {small} --format npz -o /dev/fd/3"), "3>> log"),
        (format!("estimate {keck} --slopes s.npy --format fits -o /proc/self/fd/1"), ">> log"),
        (format!("covariance {small} -o c.npz --plot /dev/fd/3.svg"), "3>> log"),
    ] {
        fs::write(run.path("log"), log)?;
        let output = shell(&run, &format!("lenslet {command} {redirected}"))?;
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command}: {message}");
        assert!(message.contains("is open: give the name of a file"), "{command}: {message}");
        assert_eq!(fs::read_to_string(run.path("log"))?, log, "{command}");
        assert_eq!(run.names()?.len(), 2, "{command}: nothing is left behind");
    }
    // The refusal itself goes into a log that is the standard error.
    fs::write(run.path("log"), log)?;
    std::os::unix::fs::symlink("/dev/stderr", run.path("s.npy"))?;
    let output = shell(&run, &format!("lenslet simulate {small} -o s.npy 2>> log"))?;
    assert_eq!(output.status.code(), Some(2));
    let logged = fs::read_to_string(run.path("log"))?;
    assert!(logged.starts_with(log) && logged.ends_with("give the name of a file\n"), "{logged}");
    Ok(())
}

/// A private file stays private, and one that is protected stays what it is.
#[cfg(unix)]
#[test]
fn permissions_of_older_files_are_respected() -> Checked {
    use std::os::unix::fs::PermissionsExt;
    let run = Run::new()?;
    let set = |mode| fs::set_permissions(run.path("c.npz"), fs::Permissions::from_mode(mode));
    fs::write(run.path("c.npz"), "old")?;
    set(0o600)?;
    said(&run.covariance("small", "-o c.npz")?);
    assert_eq!(fs::metadata(run.path("c.npz"))?.permissions().mode() & 0o7777, 0o600);
    fs::write(run.path("c.npz"), "old")?;
    set(0o444)?;
    let small = book("small");
    let args = format!("covariance {} -o c.npz", small.display());
    run.refuses(&args, &["cannot write c.npz: the file is read-only"])?;
    assert_eq!(fs::read_to_string(run.path("c.npz"))?, "old");
    Ok(())
}

/// Where files must not grow, a run ends as on a full disk.
#[cfg(target_os = "linux")]
#[test]
fn a_limit_on_files_leaves_the_old_file() -> Checked {
    let run = Run::new()?;
    fs::write(run.path("c.npz"), "old")?;
    let keck = book("keck-lgs");
    let script = format!("ulimit -f 1; lenslet covariance {} -o c.npz", keck.display());
    let output = shell(&run, &script)?;
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(message.starts_with("error: cannot write c.npz: File too large"), "{message}");
    assert_eq!(fs::read_to_string(run.path("c.npz"))?, "old");
    assert_eq!(run.names()?, [run.path("c.npz")], "no draft is left");
    Ok(())
}

/// Where the system gives fewer threads than there are cores, or none, the others do the work, or the only one.
#[cfg(target_os = "linux")]
#[test]
fn threads_that_cannot_be_started_are_not_missed() -> Checked {
    let run = Run::new()?;
    write_laser_system(&run)?;
    let with =
        |before: &str, args: &str| -> Result<serde_json::Value, Box<dyn std::error::Error>> {
            let told = said(&shell(&run, &format!("{before} lenslet {args} --json"))?);
            Ok(serde_json::from_str(&told)?)
        };
    let none = "RUST_MIN_STACK=1000000000000000";
    let told = with(none, "simulate laser.toml -o s.npy")?;
    assert_eq!(told["threads"], 1);
    with(none, "estimate laser.toml --slopes s.npy -o e.npz")?;
    with("", "estimate laser.toml --slopes s.npy -o all.npz")?;
    let told = with(none, "covariance laser.toml -o c.npz --method spectral")?;
    assert_eq!(told["threads"], 1);
    let arrays =
        ["e.npz", "all.npz"].map(|name| -> Result<Array4<f64>, Box<dyn std::error::Error>> {
            Ok(archive(&run.path(name))?.by_name("wavefront")?)
        });
    let [alone, all] = arrays;
    assert_eq!(alone?, all?);
    // Two stacks of 1 GiB fit into 3 GiB, and three do not.
    let few = "ulimit -v 3145728; RAYON_NUM_THREADS=4 RUST_MIN_STACK=1073741824";
    let told = with(few, "simulate laser.toml -o s.npy")?;
    assert_eq!(told["threads"], 2);
    Ok(())
}

/// Mounts a tiny file system in a namespace of its own; where that is forbidden, there is nothing to test.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_the_old_file() -> Checked {
    for name in ["cov.npz", "cov.fits"] {
        full_disk(name)?;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn full_disk(name: &str) -> Checked {
    use std::io::Write;
    let run = Run::new()?;
    let script = format!(
        "mkdir disk && mount -t tmpfs -o size=64k tmpfs disk || exit 77; echo old > disk/{name}; echo mounted; \
         {} covariance {} -o disk/{name}; code=$?; ls -A disk; cat disk/{name}; exit $code",
        env!("CARGO_BIN_EXE_lenslet"),
        book("keck-lgs").display()
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    let output = unshare.current_dir(run.folder.path()).output();
    let Some(output) = output.ok().filter(|output| output.stdout.starts_with(b"mounted\n")) else {
        let text = b"skipped: there is no file system of our own here that could be full\n";
        return Ok(std::io::stderr().write_all(text)?); // past the test program, which swallows what succeeds
    };
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("mounted\n{name}\nold\n"),
        "{message}"
    );
    let expected = format!("error: cannot write disk/{name}: No space left on device");
    assert!(message.starts_with(&expected) && message.lines().count() == 1, "{message}");
    Ok(())
}

#[cfg(unix)]
#[test]
fn new_files_have_ordinary_permissions_and_links_are_kept() -> Checked {
    use std::os::unix::fs::PermissionsExt;
    let run = Run::new()?;
    fs::write(run.path("ordinary"), "")?;
    fs::write(run.path("real.npz"), "")?;
    std::os::unix::fs::symlink("real.npz", run.path("link.npz"))?;
    said(&run.covariance("small", "-o cov.npz")?);
    said(&run.covariance("small", "-o link.npz")?);
    let mode = |name: &str| fs::metadata(run.path(name)).map(|file| file.permissions().mode());
    assert_eq!(mode("cov.npz")?, mode("ordinary")?);
    assert!(fs::symlink_metadata(run.path("link.npz"))?.is_symlink());
    let slopes = |name: &str| {
        archive(&run.path(name))?.by_name::<_, ndarray::Ix6>("slope_slope").map_err(Box::from)
    };
    let [real, other]: [Result<Array6<f64>, Box<dyn std::error::Error>>; 2] =
        ["real.npz", "cov.npz"].map(slopes);
    assert_eq!(real?, other?);
    Ok(())
}

#[test]
fn info_tells_about_machine_and_system() -> Checked {
    let run = Run::new()?;
    let told = said(&run.lenslet("info")?);
    for word in [env!("CARGO_PKG_VERSION"), "thread", "CUDA", "nvrtc", "cufft", "cublas"] {
        assert!(told.contains(word), "{word} in {told}");
    }
    let told = said(&run.lenslet(&format!("info {} --json", book("keck-lgs").display()))?);
    let told: serde_json::Value = serde_json::from_str(&told)?;
    assert_eq!(told["version"], env!("CARGO_PKG_VERSION"));
    assert!(told["cuda"]["devices"].is_array() && told["cuda"]["libraries"]["nvrtc"].is_boolean());
    let files = told["cuda"]["library_files"].as_object().ok_or("no files")?;
    assert_eq!(files.len(), 4);
    for (name, file) in files {
        let is_found = &told["cuda"]["libraries"][name];
        assert!(*is_found == true || file.is_null(), "{name} in {file}: {is_found}");
    }
    assert_eq!(told["system"]["guide_stars"], 4);
    assert_eq!(told["system"]["toeplitz_bytes"], 8 * 16 * 4 * 39 * 39);
    let valid = told["system"]["valid"].as_u64().ok_or("no count")?;
    assert_eq!(told["system"]["dense_bytes"], 8 * (2 * 4 * valid).pow(2));
    let wavefront = &told["system"]["wavefront"];
    assert_eq!(
        (&wavefront["sampling"], &wavefront["blocks"]),
        (&0.25.into(), &(2 * 2 * 4 * 7).into())
    );
    assert_eq!(wavefront["dense_bytes"], 8 * 2 * 41 * 41 * 2 * 4 * valid);
    let highest = |told: &serde_json::Value| {
        let kappa = told["oversampling"].as_f64().unwrap_or(0.0);
        (
            told["highest_frequency"].as_f64(),
            Some(kappa / (2.0 * told["sampling"].as_f64().unwrap_or(0.0))),
        )
    };
    for told in [&told["system"], wavefront] {
        assert_eq!(highest(told).0, highest(told).1, "{told}");
    }
    Ok(())
}

#[test]
fn bench_compares_both_methods_with_the_original() -> Checked {
    let run = Run::new()?;
    let tiny = fs::read_to_string(book("small"))?.replace("lenslets = 20", "lenslets = 9");
    fs::write(run.path("tiny.toml"), tiny)?;
    let told = said(&run.lenslet("bench covariance tiny.toml --repeat 1 --json")?);
    let told: serde_json::Value = serde_json::from_str(&told)?;
    let seconds = &told["covariance"][0]["seconds"];
    let time = |name: &str| seconds[name].as_f64().unwrap_or(f64::NAN);
    assert!(time("direct") > 0.0 && time("spectral") > 0.0 && time("original") > time("direct"));
    assert!((1e-4..3e-3).contains(&time("difference")), "{seconds}");
    Ok(())
}

#[test]
fn bench_prints_the_table_of_the_original() -> Checked {
    let run = Run::new()?;
    let told = said(&run.lenslet("bench --lenslets 5,8 --repeat 1")?);
    for word in ["FULL MVM", "COMP MVM", "COMP EVAL", "Wavefront and slopes", "thread"] {
        assert!(told.contains(word), "{word} in {told}");
    }
    let told = said(&run.lenslet("bench --lenslets 6 --repeat 1 --json")?);
    let told: serde_json::Value = serde_json::from_str(&told)?;
    for matrix in ["slopes", "wavefront_slope"] {
        let times = &told[matrix][0];
        assert_eq!(times["lenslets"], 6);
        assert!(times["difference"].as_f64().is_some_and(|d| d < 1e-13), "{times}");
        assert!(times["full"].as_f64().is_some_and(|seconds| seconds > 0.0), "{times}");
    }
    Ok(())
}

#[test]
fn help_and_version_exist() -> Checked {
    let run = Run::new()?;
    assert!(said(&run.lenslet("--version")?).contains(env!("CARGO_PKG_VERSION")));
    let help = said(&run.lenslet("covariance --help")?);
    for option in [
        "--output",
        "--format",
        "--method",
        "--samples",
        "--oversampling",
        "--device",
        "--precision",
        "--plot",
        "--pair",
        "--json",
        "--quiet",
    ] {
        assert!(help.contains(option), "{option}");
    }
    for command in ["estimate", "simulate"] {
        let help = said(&run.lenslet(&format!("{command} --help"))?);
        for word in ["star by star", "x slopes", "+y", "radians"] {
            assert!(help.contains(word), "{command}: {word} in {help}");
        }
    }
    Ok(())
}

/// The system file is somebody's work, and the program must not write over it.
#[test]
fn the_system_file_is_never_the_output() -> Checked {
    let run = Run::new()?;
    let text = fs::read_to_string(book("small"))?;
    fs::write(run.path("own.svg"), &text)?;
    let expected = "another file than the system file";
    run.refuses("covariance own.svg -o ./own.svg --format npz", &["output", expected])?;
    run.refuses("covariance own.svg -o other.npz --plot own.svg", &["plot", expected])?;
    assert_eq!(fs::read_to_string(run.path("own.svg"))?, text);
    Ok(())
}

/// What a plan says is what the run then does, and saying it writes nothing.
#[test]
fn plans_are_told_and_nothing_is_written() -> Checked {
    let run = Run::new()?;
    let keck = book("keck-lgs");
    let keck = keck.display();
    for (args, words) in [
        (
            format!("covariance {keck} -o cov.npz"),
            ["toeplitz", "slope_slope 4 × 4 × 2 × 2 × 39 × 39"],
        ),
        (format!("covariance {keck} --form dense"), ["dense", "slope_slope_dense 2400 × 2400"]),
        (format!("covariance {keck} --method spectral"), ["spectral, ", "wavefront_wavefront"]),
        (format!("estimate {keck} --device cpu"), ["dense", "without interpolation of layers"]),
        (format!("estimate {keck} --form toeplitz"), ["circulant", "wavefront 1 × 2 × 41 × 41"]),
        (format!("simulate {keck} --frames 3"), ["frequencies", "slopes 3 × 2400"]),
        (format!("bench covariance {keck}"), ["spectral, 4096 samples", "direct"]),
    ] {
        let told = said(&run.lenslet(&format!("{args} --plan"))?);
        for word in words.iter().chain(&["memory", "on the host", "time", "about", "thread"]) {
            assert!(told.contains(word), "{args}: no {word:?} in {told}");
        }
        let json = said(&run.lenslet(&format!("{args} --plan --json"))?);
        let json: serde_json::Value = serde_json::from_str(&json)?;
        let first = if json.is_array() { &json[0] } else { &json };
        assert!(first["memory"]["host"].as_u64().is_some_and(|bytes| bytes > 64 << 20), "{json}");
        assert!(first["seconds"].as_f64().is_some_and(|time| time > 0.0), "{json}");
        assert!(first["stages"].as_array().is_some_and(|stages| !stages.is_empty()), "{json}");
    }
    assert!(run.names()?.is_empty());
    write_laser_system(&run)?;
    for system in ["laser.toml".into(), keck.to_string()] {
        let plan = said(&run.lenslet(&format!("covariance {system} --plan --json"))?);
        let told = said(&run.lenslet(&format!("covariance {system} -o cov.npz --json"))?);
        let [plan, told]: [serde_json::Value; 2] =
            [serde_json::from_str(&plan)?, serde_json::from_str(&told)?];
        let planned = plan["arrays"].as_object().ok_or("no arrays")?;
        assert!(!planned.is_empty());
        for (name, shape) in planned {
            assert_eq!(told["arrays"][name], *shape, "{name}");
        }
        let results = |name: &&String| name.contains("_slope") || name.contains("_wavefront");
        let written = told["arrays"].as_object().ok_or("no arrays")?.keys().filter(results);
        assert_eq!(written.count(), planned.len());
        assert_eq!(plan["form"], told["form"]);
    }
    run.refuses("covariance absent.toml --plan", &["absent.toml"])?;
    run.refuses(&format!("covariance {keck}"), &["--output"])
}

/// Slips of units in the tables of images, loops and fields are rejected by line with a value that is accepted.
#[test]
fn slips_of_units_in_images_suggest_the_value_that_was_meant() -> Checked {
    let run = Run::new()?;
    let text = fs::read_to_string(book("small-moao"))?
        + "extra = 30.0\njitter = 3.0\n[field]\nsize = 60.0\nstep = 30.0\n";
    for [key, good, bad, meant] in [
        ["wavelengths", "[1.65e-6]", "[2.2]", "2.2e-6"],
        ["wavelengths", "[1.65e-6]", "[1.65e-6, 1250]", "1.25e-6"],
        ["pixel", "15.0", "0.01", "10"],
        ["pixel", "15.0", "0.05", "50"],
        ["pixel", "15.0", "100e3", "100"],
        ["ensquared", "[150.0]", "[0.15]", "150"],
        ["extra", "30.0", "30e-9", "30"],
        ["jitter", "3.0", "0.003", "3"],
        ["jitter", "3.0", "1.5e-8", "3.09"],
        ["size", "60.0", "60e3", "60"],
        ["rate", "500.0", "0.005", "5"],
    ] {
        let from = format!("\n{key} = {good}");
        assert_eq!(text.matches(&from).count(), 1, "{from}");
        let with = |value: &str| text.replace(&from, &format!("\n{key} = {value}"));
        fs::write(run.path("bad.toml"), with(bad))?;
        let words = ["bad.toml:", key, &format!("; did you mean {meant}? That is ")];
        run.refuses("psf bad.toml --plan", &words)?;
        let value = if bad.starts_with('[') { format!("[{meant}]") } else { meant.into() };
        fs::write(run.path("good.toml"), with(&value))?;
        said(&run.lenslet("psf good.toml --plan --quiet")?);
    }
    // A delay in milliseconds
    fs::write(run.path("bad.toml"), text.replace("delay = 0.0", "delay = 2"))?;
    run.refuses("reconstruct bad.toml --plan", &["reconstructor.delay = 2", "did you mean 2e-3?"])
}

/// Altitudes in kilometres and angles in radians are warned of, as a few files mean them.
#[test]
fn values_that_suggest_another_unit_are_warned_of() -> Checked {
    let run = Run::new()?;
    let text = fs::read_to_string(book("small-moao"))?;
    let warnings = |text: &str| -> Result<String, Box<dyn std::error::Error>> {
        fs::write(run.path("s.toml"), text)?;
        let output = run.lenslet("covariance s.toml --plan")?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stderr)?)
    };
    assert_eq!(warnings(&text)?, "");
    let low = text.replace("altitude = 4500.0", "altitude = 4.5").replace("11000.0", "11.0");
    let low = warnings(&low)?;
    for words in ["warning: s.toml:", "atmosphere.layers[2].altitude = 11.0", "did you mean 11e3?"]
    {
        assert!(low.contains(words), "{low}");
    }
    let close =
        text.replace("zenith = 40.0", "zenith = 1.9e-4").replace("zenith = 10.0", "zenith = 5e-5");
    let close = warnings(&close.replace("zenith = 30.0", "zenith = 1e-4"))?;
    for words in ["guide_star[1].zenith = 1.9e-4", "did you mean 39.19? That is 0.00019 rad"] {
        assert!(close.contains(words), "{close}");
    }
    Ok(())
}

/// A picture that a system does not have is rejected with the list of those that it has.
#[test]
fn pictures_that_do_not_exist_list_those_that_do() -> Checked {
    let run = Run::new()?;
    let text = fs::read_to_string(book("small-moao"))?;
    let field = "\n[field]\nsize = 60.0\nstep = 30.0\n";
    let (first, last) = text.split_once("[[target]]").ok_or("no target")?;
    let (_, last) = last.split_once("[reconstructor]").ok_or("no reconstructor")?;
    fs::write(run.path("s.toml"), &text)?;
    fs::write(run.path("none.toml"), text.replace("ensquared", "terms = []\nensquared"))?;
    fs::write(run.path("field.toml"), format!("{first}[reconstructor]{last}{field}"))?;
    fs::write(
        run.path("unwatched.toml"),
        text.replace("noise = 2e-14", "").replace("noise = 1e-14", ""),
    )?;
    for (args, expected) in [
        (
            "psf s.toml --of field",
            "field: expected psf, profile or budget, which exist here; maps of a field need a table [field]",
        ),
        ("psf none.toml --of field", "field: expected psf or profile, which exist here"),
        (
            "psf none.toml --of budget",
            "budget: expected psf or profile, which exist here; a budget needs",
        ),
        (
            "psf field.toml --of profile",
            "profile: expected field, the only picture that exists here; the images of targets need a [[target]]",
        ),
        (
            "reconstruct s.toml --of spectrum --method cholesky",
            "spectrum: expected error, reconstructor or noise, which exist here; only eigenvectors",
        ),
        (
            "reconstruct unwatched.toml --of noise --method eigen",
            "noise: expected error, reconstructor or spectrum, which exist here; a map of noise needs",
        ),
    ] {
        run.refuses(&format!("{args} -o x.npz --plot x.svg"), &["of = ", expected])?;
    }
    Ok(())
}

/// Images come with a budget that adds up, in a file with the layout of TIPTOP's; what cannot be is refused by file, line and key.
#[test]
fn images_are_made_told_and_refused() -> Checked {
    let run = Run::new()?;
    let (moao, small) = (book("small-moao"), book("small"));
    let args = format!("psf {} -o p.fits --plot p.svg --csv p.csv --json", moao.display());
    let told: serde_json::Value = serde_json::from_str(&said(&run.lenslet(&args)?))?;
    assert_eq!((told["actuators"].as_u64(), told["mode"].as_str()), (Some(68), Some("moao")));
    for target in told["targets"].as_array().ok_or("no targets")? {
        let number = |value: &serde_json::Value| value.as_f64().unwrap_or(f64::NAN);
        let budget = target["budget_nm"].as_object().ok_or("no budget")?;
        assert_eq!(budget.len(), 8);
        let terms = budget.iter().filter(|(name, _)| *name != "total");
        let sum: f64 = terms.map(|(_, rms)| number(rms) * number(rms).abs()).sum();
        assert!((number(&budget["total"]).powi(2) / sum - 1.0).abs() < 1e-12);
        let marechal = (-(2.0 * std::f64::consts::PI * sum.sqrt() / 1650.0).powi(2)).exp();
        assert!((number(&target["strehl"][0]) / marechal - 1.0).abs() < 0.05, "{target}");
        // At least the diffraction limit, at most the seeing.
        assert!((80.0..600.0).contains(&number(&target["fwhm_mas"][0])), "{target}");
        assert!((0.3..0.7).contains(&number(&target["ensquared"][0][0])), "{target}");
        // In the middle there is all of the star, and no ring; far away nearly nothing.
        let contrast = |name: &str| target["contrast"][0][name].as_array().cloned();
        let [radius, mean, rms] = ["radius_mas", "mean", "rms"].map(contrast);
        let (radius, mean, rms) =
            (radius.ok_or("no radius")?, mean.ok_or("no mean")?, rms.ok_or("no rms")?);
        assert_eq!((radius.len(), number(&radius[0])), (64, 0.0));
        assert!((number(&mean[0]) - 1.0).abs() < 1e-12);
        assert!((number(&radius[40]) / 600.0 - 1.0).abs() < 0.01 && number(&rms[0]) < 1e-6);
        assert!(number(&mean[40]) < 0.01 && number(&rms[5]) < number(&mean[5]), "{target}");
    }
    let table = fs::read_to_string(run.path("p.csv"))?;
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    let column = |name: &str| lines[0].iter().position(|title| *title == name).ok_or("no column");
    assert_eq!(
        (lines.len(), lines[2][column("kind")?], lines[2][column("number")?]),
        (3, "target", "1")
    );
    for (name, value) in [
        ("strehl_1.6500", &told["targets"][1]["strehl"][0]),
        ("ensquared_150mas_1.6500", &told["targets"][1]["ensquared"][0][0]),
        ("total_nm", &told["targets"][1]["budget_nm"]["total"]),
    ] {
        let (read, value) = (lines[2][column(name)?].parse::<f64>()?, value.as_f64());
        assert!((read / value.unwrap_or(f64::NAN) - 1.0).abs() < 1e-12, "{name}");
    }
    let card = |name: &str| {
        fs::read(run.path("p.fits")).map(|bytes| String::from_utf8_lossy(&bytes).contains(name))
    };
    assert!(card("PSF CUBE")? && card("CCX0001")? && card("PIX_MAS")? && card("SR0001")?);
    assert!(fs::read_to_string(run.path("p.svg"))?.contains("without correction"));
    // A field is mapped around the targets, and drawn.
    let text = fs::read_to_string(&moao)?;
    let wide =
        text.replace("ensquared = [150.0]", "structure = \"stationary\"\nensquared = [150.0]");
    fs::write(run.path("f.toml"), wide + "\n[field]\nsize = 60.0\nstep = 30.0\n")?;
    let args = "psf f.toml -o f.npz --plot f.svg --of field --csv f.csv --json";
    let field: serde_json::Value = serde_json::from_str(&said(&run.lenslet(args)?))?;
    let strehl: ndarray::Array3<f64> = archive(&run.path("f.npz"))?.by_name("field_strehl")?;
    assert_eq!(strehl.dim(), (1, 3, 3));
    for (k, point) in field["field"]["points"].as_array().ok_or("no points")?.iter().enumerate() {
        assert_eq!(point["strehl"][0].as_f64(), Some(strehl[[0, k / 3, k % 3]]));
    }
    assert_eq!(field["targets"][0]["strehl"][0].as_f64(), Some(strehl[[0, 1, 1]]));
    let seen = words(run.path("f.svg"))?;
    for word in ["Strehl ratio", "FWHM [mas]", "natural guide star", "laser guide star"] {
        assert!(seen.contains(&word.to_string()), "{word}: {seen:?}");
    }
    let table = fs::read_to_string(run.path("f.csv"))?;
    assert_eq!(table.lines().filter(|line| line.starts_with("field,")).count(), 9);
    let corner: Vec<&str> = table
        .lines()
        .find(|line| line.starts_with("field,2,"))
        .ok_or("no corner")?
        .split(',')
        .collect();
    let place = [corner[2].parse::<f64>()?, corner[3].parse::<f64>()?];
    assert!((place[0] - 30.0).abs() < 1e-9 && (place[1] + 30.0).abs() < 1e-9, "{table}");
    ["f.toml", "f.npz", "f.svg", "f.csv"]
        .iter()
        .try_for_each(|name| fs::remove_file(run.path(name)))?;
    run.refuses(
        &format!("psf {} -o p.fits --plot g.svg --of field", moao.display()),
        &["of = field", "[field]"],
    )?;
    let table = format!("psf {} -o p.fits --csv p.txt", moao.display());
    run.refuses(&table, &["csv = p.txt", ".csv"])?;
    // A plan writes nothing.
    fs::remove_file(run.path("p.fits"))?;
    fs::remove_file(run.path("p.csv"))?;
    fs::remove_file(run.path("p.svg"))?;
    let plan = said(&run.lenslet(&format!("psf {} --plan", moao.display()))?);
    assert!(plan.contains("images") && plan.contains("psf"), "{plan}");
    assert!(run.names()?.is_empty());
    run.refuses(&format!("psf {} -o p.fits", small.display()), &["small.toml", "mirror"])?;
    for (from, to, words) in [
        ("[1.65e-6]", "[1.65e-6, 0.0]", ["bad.toml:", "image.wavelengths[1]"]),
        ("coupling = 0.2", "coupling = 1.2", ["bad.toml:", "mirror[0].coupling"]),
        (
            "obstruction = 0.25",
            "spiders = { width = 0, angles = [0] }",
            ["bad.toml:", "telescope.spiders.width"],
        ),
        ("rate = 500.0", "rate = 0.0", ["bad.toml:", "loop.rate"]),
        (
            "[correction]",
            "[field]\nsize = 60\nstep = 90\n[correction]",
            ["bad.toml:", "field.step"],
        ),
        ("\"moao\"", "\"magic\"", ["bad.toml:", "correction.mode"]),
        ("delay = 0.0 ", "delay = 0.01", ["reconstructor.delay", "[loop]"]),
        (
            "[telescope]\ndiameter = 4.0            # m\nobstruction = 0.25",
            "",
            ["bad.toml", "pitch"],
        ),
    ] {
        assert!(text.contains(from), "{from}");
        fs::write(run.path("bad.toml"), text.replace(from, to))?;
        run.refuses("psf bad.toml -o p.fits", &words)?;
    }
    Ok(())
}

/// A speed in the user's cache scales what a plan foretells; another machine's, and none, leave the built-in rates.
#[test]
fn plans_follow_the_speed_in_the_cache() -> Checked {
    let run = Run::new()?;
    let small = book("small-moao");
    let plan = |cache: Option<&Path>| -> Result<serde_json::Value, Box<dyn std::error::Error>> {
        let mut command = run.command(&format!("reconstruct {} --plan --json", small.display()));
        let output = command.envs(cache.map(|folder| ("XDG_CACHE_HOME", folder))).output()?;
        Ok(serde_json::from_str(&said(&output))?)
    };
    let built_in = plan(None)?;
    assert_eq!(built_in["rates"], "built in");
    let slow = Speed::measured("2026-11-23T04:00:00".into(), |_| 4.0)?;
    Kept::within(&run.path("lenslet"), &Engine::default()).keep(&slow)?;
    let kept = plan(Some(run.folder.path()))?;
    assert_eq!(kept["rates"], "measured 2026-11-23T04:00:00");
    let seconds = [&kept, &built_in].map(|plan| plan["seconds"].as_f64().unwrap_or(0.0));
    assert!((seconds[0] / seconds[1] - 4.0).abs() < 1e-9, "{seconds:?}");
    assert_eq!(kept["memory"], built_in["memory"]);
    Ok(())
}

/// Waits until a process has something to interrupt: until it catches signals, where the system tells, and some time besides.
#[cfg(unix)]
fn await_work(process: u32) {
    use std::{thread::sleep, time::Duration};
    const TERMINATE: u64 = 1 << 14;
    let caught = || {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    let mut waited = 0;
    while waited < 1500 && caught().is_none_or(|signals| signals & TERMINATE == 0) {
        sleep(Duration::from_millis(20));
        waited += 20;
    }
    sleep(Duration::from_millis(150));
}

/// The program, as somebody starts it who lets it have all signals: the tests may run in the background, where some are ignored.
#[cfg(unix)]
pub fn with_all_signals() -> Command {
    let program = env!("CARGO_BIN_EXE_lenslet");
    if !cfg!(target_os = "linux") {
        return Command::new(program);
    }
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,TERM,HUP", program]);
    command
}

/// An interrupt, or that the terminal is gone, ends a long run with 130, without a word; nothing is left behind, and an older
/// file stays.
#[cfg(unix)]
#[test]
fn an_interrupt_ends_a_run_cleanly() -> Checked {
    use std::process::Stdio;
    use std::time::{Duration, Instant};
    let run = Run::new()?;
    fs::write(run.path("slopes.npy"), "old")?;
    let system = book("keck-lgs").display().to_string();
    for signal in ["-INT", "-TERM", "-HUP"] {
        let args = ["simulate", &system, "-o", "slopes.npy", "--frames", "20000"];
        let mut process = with_all_signals()
            .args(args)
            .current_dir(run.folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        await_work(process.id());
        assert_eq!(process.try_wait()?, None, "the run is long enough to be interrupted");
        let start = Instant::now();
        Command::new("kill").args([signal, &process.id().to_string()]).status()?;
        let output = process.wait_with_output()?;
        assert_eq!(output.status.code(), Some(130), "{signal}: {output:?}");
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert_eq!(fs::read_to_string(run.path("slopes.npy"))?, "old");
        assert_eq!(run.names()?, [run.path("slopes.npy")], "no draft is left");
    }
    Ok(())
}

/// What `nohup` and a shell's background make a process ignore does not end it; what they leave alone still does.
#[cfg(target_os = "linux")]
#[test]
fn ignored_signals_end_nothing() -> Checked {
    let run = Run::new()?;
    let system = book("keck-lgs");
    let (system, program) = (system.display(), env!("CARGO_BIN_EXE_lenslet"));
    let script = format!(
        "trap '' HUP INT; RAYON_NUM_THREADS=1 exec env --default-signal=TERM {program} simulate {system} -o slopes.npy --frames 25 --quiet"
    );
    for (signals, code) in [(["-HUP", "-INT"], 0), (["-HUP", "-TERM"], 130)] {
        let mut process =
            Command::new("sh").args(["-c", &script]).current_dir(run.folder.path()).spawn()?;
        await_work(process.id());
        for signal in signals {
            assert_eq!(process.try_wait()?, None, "the run is long enough to be disturbed");
            Command::new("kill").args([signal, &process.id().to_string()]).status()?;
        }
        assert_eq!(process.wait()?.code(), Some(code), "{signals:?}");
        assert_eq!(run.path("slopes.npy").exists(), code == 0, "{signals:?}");
        let _ = fs::remove_file(run.path("slopes.npy"));
        assert!(run.names()?.is_empty(), "no draft is left");
    }
    Ok(())
}

#[test]
fn reconstructors_are_written_with_their_errors() -> Checked {
    let run = Run::new()?;
    let system = book("small-moao");
    let system = system.display();
    let args = format!("reconstruct {system} -o r.npz --plot e.svg --save c_mm,c_tm,c_tt --json");
    let told: serde_json::Value = serde_json::from_str(&said(&run.lenslet(&args)?))?;
    assert_eq!((&told["method"], &told["targets"]), (&"cholesky".into(), &2.into()));
    let mut arrays = archive(&run.path("r.npz"))?;
    let mut read = |name: &str| -> Result<ndarray::ArrayD<f64>, _> { arrays.by_name(name) };
    let three = |name: &str, array: ndarray::ArrayD<f64>| {
        array.into_dimensionality::<ndarray::Ix3>().map_err(|error| format!("{name}: {error}"))
    };
    let r = three("reconstructor", read("reconstructor")?)?;
    let errors = three("error_covariance", read("error_covariance")?)?;
    let [c_mm, c_tm, c_tt] = ["c_mm", "c_tm", "c_tt"]
        .map(|name| read(name).map(|array| array.into_dimensionality::<ndarray::Ix2>()));
    let (c_mm, c_tm, c_tt): (Array2<f64>, Array2<f64>, Array2<f64>) = (c_mm??, c_tm??, c_tt??);
    // The arrays fulfil their equations.
    let (targets, m, n) = r.dim();
    assert_eq!(
        (told["measurements"].as_u64(), told["truth_slopes"].as_u64()),
        (Some(n as u64), Some(m as u64))
    );
    let largest = |array: &Array2<f64>| array.fold(0.0, |most: f64, value| most.max(value.abs()));
    for t in 0..targets {
        let c_tm = c_tm.slice(ndarray::s![t * m..(t + 1) * m, ..]);
        let r = r.index_axis(ndarray::Axis(0), t);
        assert!(largest(&(r.dot(&c_mm) - c_tm)) < 1e-12 * largest(&c_tt));
        let rest = &c_tt - &r.dot(&c_tm.t()) - errors.index_axis(ndarray::Axis(0), t);
        assert!(largest(&rest) < 1e-12 * largest(&c_tt));
    }
    // The map belongs to the error that is told.
    let [map, rms] = ["error_map", "error_rms"].map(&mut read);
    let (map, rms) = (map?, rms?);
    for t in 0..targets {
        let told = told["error_nm"][t].as_f64().unwrap_or(f64::NAN);
        assert!((1e9 * rms[[t, 0]] / told - 1.0).abs() < 1e-12 && rms[[t, 1]] < rms[[t, 0]]);
        let lit = map.index_axis(ndarray::Axis(0), t);
        let lit: Vec<f64> = lit.iter().copied().filter(|v| !v.is_nan()).collect();
        let mean = lit.iter().sum::<f64>() / lit.len() as f64;
        assert!((1e9 * mean.sqrt() / told - 1.0).abs() < 0.2, "{told} {mean}");
    }
    assert!(fs::read_to_string(run.path("e.svg"))?.contains("nm rms"));
    Ok(())
}

#[test]
fn reconstructors_are_planned_and_refused() -> Checked {
    let run = Run::new()?;
    let (moao, small) = (book("small-moao"), book("small"));
    let (moao, small) = (moao.display(), small.display());
    let told = said(&run.lenslet(&format!("reconstruct {moao} --plan --filter 0.01"))?);
    for word in ["reconstructor", "eigenvectors", "a filter is asked for", "factorisation"] {
        assert!(told.contains(word), "{word} in {told}");
    }
    assert!(run.names()?.is_empty());
    run.refuses(&format!("reconstruct {small} -o r.npz"), &["target = 0", "[[target]]"])?;
    let with = |options: &str| format!("reconstruct {moao} -o r.npz {options}");
    run.refuses(&with("--method cholesky --filter 0.1"), &["filter = 0.1", "cholesky"])?;
    run.refuses(&with("--filter 2"), &["filter = 2", "less than 1"])?;
    run.refuses(&with("--method magic"), &["magic", "eigen"])?;
    run.refuses(&with("--save eigenvalues"), &["save = eigenvalues", "--method eigen"])?;
    for (picture, words) in [
        ("--of spectrum", ["of = spectrum", "--method eigen"]),
        ("--of reconstructor --target 2", ["target = 2", "between 0 and 1"]),
        ("--target 1", ["target = 1", "--of reconstructor"]),
        ("--of reconstructor --errors-only", ["of = reconstructor", "only errors"]),
    ] {
        run.refuses(&with(&format!("--plot p.svg {picture}")), &words)?;
    }
    let text = fs::read_to_string(book("small-moao"))?.replace("\"auto\"", "\"magic\"");
    fs::write(run.path("bad.toml"), &text)?;
    run.refuses(
        "reconstruct bad.toml -o r.npz",
        &["bad.toml:", "reconstructor.method", "magic", "eigen"],
    )?;
    let calm = text.replace("delay = 0.0", "delay = 0.01").replace("magic", "auto");
    fs::write(run.path("bad.toml"), calm.replace(", wind_speed = 15.0", ""))?;
    let words = ["bad.toml:12", "atmosphere.layers[1].wind_speed", "delay"];
    run.refuses("reconstruct bad.toml -o r.npz", &words)?;
    fs::write(
        run.path("later.toml"),
        calm.replace("delay = 0.01", "delay = 0.01\npredict = false"),
    )?;
    let told = said(&run.lenslet("reconstruct later.toml -o r.npz --errors-only --json")?);
    assert!(
        !archive(&run.path("r.npz"))?.names()?.iter().any(|name| name.starts_with("reconstructor"))
    );
    let told: serde_json::Value = serde_json::from_str(&told)?;
    let error = |key: &str| told[key][1].as_f64().unwrap_or(f64::NAN);
    assert_eq!(told["error_nm"], told["error_nm_without_prediction"]);
    assert!(error("error_nm") > 1.02 * error("error_nm_with_prediction"), "{told}");
    let spoilt = text.replace("[truth_sensor]\nlenslets = 8", "[truth_sensor]\nlenslets = 0");
    fs::write(run.path("bad.toml"), spoilt)?;
    run.refuses("reconstruct bad.toml -o r.npz", &["bad.toml:", "truth_sensor", "lenslets"])?;
    let spectrum = "--save eigenvalues --method eigen --quiet --plot p.svg --of spectrum";
    assert!(said(&run.lenslet(&with(spectrum))?).is_empty());
    assert!(fs::read_to_string(run.path("p.svg"))?.contains("232 kept"));
    let values: Array1<f64> = archive(&run.path("r.npz"))?.by_name("eigenvalues")?;
    assert!(values.len() > 100 && values[0] > 0.0);
    Ok(())
}

#[test]
fn errors_at_points_are_written_and_refused() -> Checked {
    let run = Run::new()?;
    let text =
        fs::read_to_string(book("small-moao"))? + "\n[phase]\npoints = 3\noversampling = 1\n";
    fs::write(run.path("s.toml"), text)?;
    let asked = "reconstruct s.toml -o e.npz --to wavefront --tolerance 1e-2";
    for (more, words) in [
        ("--save c_mm", ["save = c_mm", "covariance --form dense"]),
        ("--plot p.svg --of spectrum", ["of = spectrum", "error or noise"]),
        ("--method cholesky", ["method = \"cholesky\"", "auto or iterative"]),
    ] {
        run.refuses(&format!("{asked} --errors-only {more}"), &words)?;
    }
    let told = said(&run.lenslet(&format!("{asked} --errors-only --plot e.svg --json"))?);
    let told: serde_json::Value = serde_json::from_str(&told)?;
    assert_eq!((&told["to"], &told["points"]), (&"wavefront".into(), &3.into()));
    let mut arrays = archive(&run.path("e.npz"))?;
    let map: ndarray::Array3<f64> = arrays.by_name("error_map")?;
    let rms: Array2<f64> = arrays.by_name("error_rms")?;
    assert_eq!((map.dim(), rms.dim()), ((2, 3, 3), (2, 2)));
    for (t, map) in map.outer_iter().enumerate() {
        let error = told["error_nm"][t].as_f64().unwrap_or(f64::NAN);
        assert!((1e9 * rms[[t, 0]] / error - 1.0).abs() < 1e-12 && error < 1e3);
        assert!(map.iter().all(|variance| *variance > 0.0 && *variance < 1e-12), "{map}");
    }
    assert!(fs::read_to_string(run.path("e.svg"))?.contains("nm rms"));
    assert!(said(&run.lenslet(&format!("{asked} --errors-only --plan"))?).contains("3 × 3 points"));
    Ok(())
}

/// The matrix to the wavefront gives the estimate, and that to actuators the strokes of the mirrors.
#[test]
fn reconstructors_to_wavefronts_and_actuators_are_written() -> Checked {
    let run = Run::new()?;
    let text = fs::read_to_string(book("small-moao"))?;
    fs::write(run.path("s.toml"), text.clone() + "\n[phase]\npoints = 9\noversampling = 1\n")?;
    said(&run.lenslet("simulate s.toml -o s.npz --frames 2 --seed 4")?);
    said(&run.lenslet("estimate s.toml --slopes s.npz -o w.npz --tolerance 1e-10")?);
    let plan = said(&run.lenslet("reconstruct s.toml --to wavefront --plan")?);
    assert!(plan.contains("9 × 9 wavefront points of 2 targets"), "{plan}");
    let asked = "reconstruct s.toml -o r.npz --to wavefront --plot r.svg --json";
    let told: serde_json::Value = serde_json::from_str(&said(&run.lenslet(asked)?))?;
    assert_eq!((&told["to"], &told["points"]), (&"wavefront".into(), &9.into()));
    assert!(told["truth_slopes"].is_null() && told["actuators"].is_null());
    let mut arrays = archive(&run.path("r.npz"))?;
    let matrix: ndarray::Array3<f64> = arrays.by_name("reconstructor")?;
    let map: ndarray::Array3<f64> = arrays.by_name("error_map")?;
    assert_eq!((matrix.dim(), map.dim()), ((2, 81, 232), (2, 9, 9)));
    assert!(!arrays.names()?.iter().any(|name| name.starts_with("error_covariance")));
    let slopes: Array2<f64> = archive(&run.path("s.npz"))?.by_name("slopes")?;
    let wavefront: ndarray::Array4<f64> = archive(&run.path("w.npz"))?.by_name("wavefront")?;
    for (frame, slopes) in slopes.outer_iter().enumerate() {
        for (t, matrix) in matrix.outer_iter().enumerate() {
            let (found, expected) =
                (matrix.dot(&slopes), wavefront.slice(ndarray::s![frame, t, .., ..]));
            let largest = expected.fold(0.0, |most: f64, w| most.max(w.abs()));
            let gap = found.iter().zip(expected.iter()).map(|(a, b)| (a - b).abs());
            assert!(gap.fold(0.0, f64::max) < 1e-6 * largest);
        }
    }
    assert!(fs::read_to_string(run.path("r.svg"))?.contains("nm rms"));
    for (picture, target) in [("--to wavefront", 1), ("--to actuators", 1)] {
        let plot = format!("--plot p.svg --of reconstructor --target {target}");
        said(&run.lenslet(&format!("reconstruct s.toml -o p.npz {picture} {plot}"))?);
        assert!(fs::read_to_string(run.path("p.svg"))?.contains("m/rad"));
    }
    // Strokes of the mirrors
    let asked = "reconstruct s.toml -o a.npz --to actuators --json";
    let told: serde_json::Value = serde_json::from_str(&said(&run.lenslet(asked)?))?;
    let mut arrays = archive(&run.path("a.npz"))?;
    let matrix: ndarray::Array3<f64> = arrays.by_name("reconstructor")?;
    let mirrors: Array1<i64> = arrays.by_name("actuator_mirror")?;
    assert_eq!((matrix.dim(), mirrors.len()), ((2, 68, 232), 68));
    assert_eq!((&told["to"], &told["actuators"]), (&"actuators".into(), &68.into()));
    for (options, words) in [
        ("--to phase", ["phase", "actuators"]),
        ("--to wavefront --save c_mm", ["save = c_mm", "covariance --form dense"]),
        ("--to wavefront --telemetry t.aot.fits", ["telemetry = t.aot.fits", "--to wavefront"]),
        ("--to actuators --errors-only", ["errors_only = true", "need no mirror"]),
    ] {
        run.refuses(&format!("reconstruct s.toml -o r.npz {options}"), &words)?;
    }
    fs::write(run.path("none.toml"), text.split("[reconstructor]").next().unwrap_or_default())?;
    let words = ["none.toml:1: mirror is missing", "[[mirror]]"];
    run.refuses("reconstruct none.toml -o r.npz --to actuators", &words)?;
    let words = ["phase = none", "[phase]"];
    run.refuses("reconstruct none.toml -o r.npz --to wavefront", &words)
}

/// Ranks that cannot be are rejected by their key, and a process without these variables is no rank.
#[test]
fn ranks_that_make_no_sense_are_refused() -> Checked {
    let run = Run::new()?;
    let small = book("small-moao");
    let with = |options: &str| format!("reconstruct {} --plan {options}", small.display());
    run.refuses(
        &with("--rank 2 --ranks 2 --meet m"),
        &["rank = 2: expected a number from 0 to 1"],
    )?;
    run.refuses(&with("--rank 0 --ranks 2"), &["meet = : expected HOST:PORT"])?;
    let expected =
        ["ranks = 2: expected 1, or one graphics processor for each rank", "--device cuda"];
    run.refuses(&with("--rank 0 --ranks 2 --meet m"), &expected)
}

/// A command line of Prismatic is run as the sample file that it amounts to, which can be had by itself.
#[test]
fn lines_of_prismatic_are_run_as_sample_files() -> Checked {
    let run = Run::new()?;
    let atoms = "14 1 1 2.5 1.0 0.08\n79 3 2 0.5 1.0 0.08\n";
    fs::write(run.path("a b.xyz"), format!("two atoms\n4.1 3.2 3.0\n{atoms}-1\n"))?;
    let line = "-i 'a b.xyz' -a p -f 1 -p 0.2 -sa 25 -te 0 -3DP 0 -s 1.1 -d 10 -2D 20 40 -r 1.5";
    let stem = |line: &str, more: &str| {
        let mut command = run.command("stem --precision f64 --prismatic");
        command.arg(line).args(more.split_whitespace()).output()
    };
    assert!(said(&stem(line, "--write-sample s.toml")?).contains("s.toml"));
    assert_eq!(said(&stem(&format!("{line} -o line.npz"), "-q")?), "");
    said(&run.lenslet("stem s.toml -o file.npz --precision f64")?);
    let read = |name: &str| -> Result<ndarray::Array3<f64>, Box<dyn std::error::Error>> {
        Ok(archive(&run.path(name))?.by_name("annular")?)
    };
    let of_line = read("line.npz")?;
    assert_eq!((of_line.dim(), &of_line), ((3, 3, 5), &read("file.npz")?));
    assert!(of_line.sum() > 8.0 && of_line.sum() < 9.0, "{}", of_line.sum());
    // What is not as in Prismatic is told, unless nobody wants to hear it
    let noted = stem(&format!("{line} -A 24"), "--plan")?;
    assert_eq!(noted.stderr, b"note: -A: ignored, as by Prismatic itself\n");
    assert!(String::from_utf8_lossy(&noted.stdout).contains("PRISM with"));
    assert!(said(&stem(&format!("{line} -A 24"), "--plan -q")?).contains("3 × 3 probes"));
    // Refusals leave nothing behind
    let before = run.names()?;
    for (more, words) in [
        ("", "output = \"nothing\": expected -o FILE here or in the line of Prismatic"),
        (" -o out.tif", "output = out.tif: expected a file name that ends in .h5"),
        (
            " -o out.h5 -dff 3",
            "--prismatic = -dff: expected an option of Prismatic; did you mean -df?",
        ),
        (" -o out.h5 -r2 3", "--prismatic = -r2"),
        (" -o out.h5 -E", "--prismatic -E = nothing: expected an energy between 1 and 10000 keV"),
    ] {
        let output = stem(&format!("{line}{more}"), "-q")?;
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && message.contains(words), "{more}: {message}");
    }
    assert_eq!(run.names()?, before);
    Ok(())
}

/// A system of one laser star and one natural star, with a telescope of 2 m and this spider; a loop and an image.
fn with_spider(spider: &str) -> String {
    format!(
        "[atmosphere]\nr0 = 0.15\nouter_scale = 25.0\nlayers = [{{ altitude = 0.0, fraction = 1.0, wind_speed = 14.09 }}]\n\
         [telescope]\ndiameter = 2.0\nobstruction = 0.2\n{spider}\n[lenslet_array]\nlenslets = 6\n\
         [[guide_star]]\nnoise = 1e-14\n[[target]]\n[phase]\npoints = 7\n[[mirror]]\nactuators = 7\n\
         [loop]\nkind = \"closed\"\nrate = 500.0\n[image]\npixels = 64\n"
    )
}

#[test]
fn spiders_without_light_are_refused_by_every_command() -> Checked {
    let run = Run::new()?;
    let four = "angles = [0.0, 90.0, 180.0, 270.0]";
    for (width, angles) in [("2.5", four), ("50", four), ("2.0", "angles = [0.0]"), ("1.9", four)] {
        let spider = format!("spiders = {{ width = {width}, {angles} }}");
        fs::write(run.path("dark.toml"), with_spider(&spider))?;
        let wanted =
            format!("dark.toml:8: telescope.spiders.width = {width}: expected a width in metres");
        for command in [
            "psf dark.toml -o x.npz",
            "psf dark.toml --plan",
            "reconstruct dark.toml -o x.npz",
            "covariance dark.toml -o x.npz",
            "estimate dark.toml --plan",
            "simulate dark.toml -o x.npz",
            "learn dark.toml --plan",
            "info dark.toml",
        ] {
            run.refuses(command, &[&wanted, "millimetres"])?;
        }
    }
    let thin = format!("spiders = {{ width = 0.05, {four} }}");
    fs::write(run.path("thin.toml"), with_spider(&thin))?;
    said(&run.lenslet("reconstruct thin.toml --plan")?);
    said(&run.lenslet("psf thin.toml --plan")?);
    Ok(())
}

#[test]
fn errors_name_the_key_that_is_at_fault() -> Checked {
    let run = Run::new()?;
    let whole = with_spider("");
    let reconstructor = "[reconstructor]\ntruth = \"wavefront\"\n[[mirror]]";
    for (from, to, command, words) in [
        ("rate = 500.0", "rate = 1e-9", "psf", ["bad.toml:20: loop.rate = 1e-9", "at least", "Hz"]),
        ("pixels = 64", "pixel = 1e9", "psf", ["bad.toml:22: image.pixel = 1e9", "mas", "at most"]),
        ("pixels = 64", "pixel = 1e6", "psf", ["bad.toml:22: image.pixel = 1e6", "mas", "at most"]),
        (
            "wind_speed = 14.09",
            "wind_speed = 1e9",
            "psf",
            ["layers[0].wind_speed = 1e9", "bad.toml:4", "m/s"],
        ),
        ("[phase]\npoints = 7", "", "estimate", ["bad.toml:1: phase = none", "[phase]", "points"]),
        (
            "[[mirror]]",
            reconstructor,
            "reconstruct",
            ["reconstructor.truth = \"wavefront\"", "expected to, the new name", "bad.toml:"],
        ),
    ] {
        let text = whole.replacen(from, to, 1);
        assert!(text != whole, "{from}");
        fs::write(run.path("bad.toml"), text)?;
        run.refuses(&format!("{command} bad.toml --plan"), &words)?;
    }
    Ok(())
}

#[test]
fn plans_of_many_lenslets_take_seconds() -> Checked {
    let run = Run::new()?;
    let star = "[[guide_star]]\nheight = 90e3\nnoise = 1e-14\ntip_tilt = \"removed\"\nfocus = \"removed\"\n";
    for (lenslets, good) in [(1000, true), (10_000, false)] {
        let text = with_spider("").replace("lenslets = 6", &format!("lenslets = {lenslets}"));
        let text = text.replace("[[guide_star]]\nnoise = 1e-14\n", &star.repeat(3));
        let aloft = "fraction = 0.5 }, { altitude = 8e3, fraction = 0.5, wind_speed";
        let text = text.replace("fraction = 1.0, wind_speed", aloft);
        fs::write(run.path("many.toml"), text)?;
        for command in ["estimate", "learn", "reconstruct", "simulate", "covariance"] {
            let start = std::time::Instant::now();
            let output = run.lenslet(&format!("{command} many.toml --plan"))?;
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            let fine = good || command == "covariance";
            assert_eq!(output.status.success(), fine, "{command} {lenslets}: {message}");
            assert!(fine || message.contains("guide_star = 3 with"), "{message}");
            // Half a second alone; before, minutes.
            assert!(start.elapsed().as_secs_f64() < 30.0, "{command}: {:?}", start.elapsed());
        }
    }
    Ok(())
}

#[test]
fn seeds_have_no_frame_in_common() -> Checked {
    let run = Run::new()?;
    fs::write(run.path("small.toml"), with_spider(""))?;
    let mut frames: Vec<Vec<f64>> = Vec::new();
    for seed in [1, 2, 3] {
        said(&run.lenslet(&format!("simulate small.toml -o s.npy --frames 4 --seed {seed}"))?);
        let slopes: Array2<f64> = ndarray_npy::read_npy(run.path("s.npy"))?;
        frames.extend(slopes.outer_iter().map(|frame| frame.to_vec()));
    }
    for (k, frame) in frames.iter().enumerate() {
        assert!(!frames[..k].contains(frame), "frame {k} is one of those before");
    }
    said(&run.lenslet("simulate small.toml -o s.npy --frames 4 --seed 3")?);
    let again: Array2<f64> = ndarray_npy::read_npy(run.path("s.npy"))?;
    assert!(again.outer_iter().zip(&frames[8..]).all(|(a, b)| a.to_vec() == *b));
    Ok(())
}

/// The old option for the format of a file works with a note, and one that contradicts the new one is refused.
#[test]
fn the_old_option_for_formats_comes_with_a_note() -> Checked {
    let run = Run::new()?;
    let output = run.covariance("small", "-o a --save fits")?;
    assert!(output.status.success(), "{output:?}");
    let note = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(note, "note: --save fits has become --format fits\n");
    said(&run.covariance("small", "-o b --save fits --quiet")?);
    assert_eq!(fs::metadata(run.path("a"))?.len(), fs::metadata(run.path("b"))?.len());
    let small = book("small");
    run.refuses(
        &format!("covariance {} -o c --save fits --format npz", small.display()),
        &["--format"],
    )
}

/// Examples of all helps that take seconds run as they are printed.
#[test]
fn examples_of_helps_run_as_printed() -> Checked {
    let run = Run::new()?;
    fs::create_dir(run.path("out"))?;
    #[cfg(unix)]
    std::os::unix::fs::symlink(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("book"),
        run.path("book"),
    )?;
    let slow = ["lenslet bench", "lenslet stem book", "lenslet info", "out/covariance.npz"];
    let mut examples = Vec::new();
    for command in [
        "",
        "covariance",
        "estimate",
        "reconstruct",
        "psf",
        "import",
        "learn",
        "simulate",
        "stem",
        "view",
        "info",
        "bench",
    ] {
        let help = said(&run.lenslet(&format!("{command} --help"))?);
        let end: Vec<&str> = help.trim_end().lines().rev().take(3).collect();
        assert_eq!(end.last(), Some(&"Examples:"), "{help}");
        let lines = end[..2].iter().map(|line| line.trim_start().to_string());
        examples.extend(lines.filter(|line| !slow.iter().any(|slow| line.contains(slow))));
    }
    examples.dedup();
    assert!(examples.len() > 12, "{examples:?}");
    for line in examples {
        let mut command = Command::new("sh");
        let shown = line.replacen("lenslet", env!("CARGO_BIN_EXE_lenslet"), 1);
        command.args(["-c", &shown]).current_dir(run.path("."));
        let output = command.env_remove("HOME").env_remove("XDG_CACHE_HOME").output()?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !error.contains("error:"), "{line}: {error}");
        let words = line.split_whitespace();
        let written = words.filter(|word| word.starts_with("out/"));
        written.for_each(|file| assert!(run.path(file).exists(), "{line}"));
    }
    Ok(())
}

/// On a terminal one line shows stage, share and remaining time of the whole job, and ends at 100 %; a pipe gets nothing.
#[cfg(target_os = "linux")]
#[test]
fn terminals_show_the_progress_of_the_whole_job() -> Checked {
    let run = Run::new()?;
    let moao = book("small-moao");
    let line = format!("{} psf {} -o p.npz", env!("CARGO_BIN_EXE_lenslet"), moao.display());
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(run.path("."));
    let Ok(output) = command.env("TERM", "xterm").env("COLUMNS", "120").output() else {
        eprintln!("skipped: there is no command script");
        return Ok(());
    };
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = shown.split(['\r', '\u{1b}']).filter_map(|line| {
        let share = line.split(" %").next()?.rsplit([' ', ',']).next()?;
        share.parse::<u32>().ok().filter(|_| line.contains(" %"))
    });
    let shares: Vec<u32> = words.take_while(|_| true).collect();
    assert!(shares.is_sorted() && shares.last() == Some(&100), "{shares:?} in {shown}");
    assert!(shown.contains("images: target ") && shown.contains(" of 2, "), "{shown}");
    assert!(shown.contains("output      p.npz: psf"), "{shown}");
    let quiet = line + " --quiet";
    let mut command = Command::new("script");
    let output = command.args(["-qec", &quiet, "/dev/null"]).current_dir(run.path(".")).output()?;
    assert!(output.stdout.is_empty(), "{output:?}");
    Ok(())
}

/// Plans and summaries write one of anything in the singular, and name output and plot alike.
#[test]
fn one_of_anything_is_in_the_singular() -> Checked {
    let run = Run::new()?;
    let system = "atmosphere = { r0 = 0.16, outer_scale = 20, layers = [{ altitude = 0, fraction = 1, \
                  wind_speed = 8, wind_direction = 30 }] }\ntelescope = { diameter = 2.5 }\n\
                  lenslet_array = { lenslets = 5 }\nphase = { points = 6 }\n\
                  guide_star = [{ noise = 1e-13 }]\ntarget = [{ zenith = 8 }]\nmirror = [{ actuators = 6 }]\n\
                  image = { wavelengths = [1.65e-6], pixel = 20.0, pixels = 32 }\n";
    fs::write(run.path("one.toml"), system)?;
    let sample = "[sample]\nfile = \"SI100.XYZ\"\n[potential]\ngrid = [48, 32]\nslice_thickness = 5.43\n\
                  [beam]\nenergy_kev = 100.0\nsemi_angle = 15.0\n[scan]\nwindow = [[0.0, 5.43], [1.0, 4.0]]\n\
                  step = [5.43, 3.0]\n[detector]\nbin = 4.0\nannuli = [[20.0, 40.0]]\n";
    fs::write(run.path("one-sample.toml"), sample)?;
    fs::copy(book("small").with_file_name("SI100.XYZ"), run.path("SI100.XYZ"))?;
    for (args, files) in [
        ("covariance one.toml -o c.npz --plot c.svg", &["c.npz", "c.svg"][..]),
        ("simulate one.toml -o s.npz --wavefront t.npz", &["s.npz"]),
        ("simulate one.toml -o s.npz --frames 30 --seed 3", &["s.npz"]),
        ("estimate one.toml --slopes s.npz -o e.npz --plot e.svg", &["e.npz", "e.svg"]),
        (
            "learn one.toml --slopes s.npz --fit strengths -o l.toml --plot l.svg",
            &["l.toml", "l.svg"],
        ),
        ("reconstruct one.toml -o r.npz --plot r.svg", &["r.npz", "r.svg"]),
        (
            "reconstruct one.toml --to wavefront --errors-only -o w.npz --plot w.svg",
            &["w.npz", "w.svg"],
        ),
        ("reconstruct one.toml --to wavefront -o m.npz --plot m.svg", &["m.npz", "m.svg"]),
        ("reconstruct one.toml --to actuators -o a.npz", &["a.npz"]),
        ("psf one.toml -o p.fits --plot p.svg", &["p.fits", "p.svg"]),
        ("stem one-sample.toml -o o.npz --plot o.svg", &["o.npz", "o.svg"]),
    ] {
        let plan = said(&run.lenslet(&format!("{args} --plan"))?);
        let output = run.lenslet(args)?;
        assert!(output.status.success(), "{args}: {output:?}");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        for text in [&plan, &told] {
            for noun in [
                "configuration",
                "target",
                "guide star",
                "layer",
                "frame",
                "slice",
                "thread",
                "wavefront",
                "simulated frame",
                "iteration",
                "step",
                "refinement",
                "beam",
                "image",
                "probe",
            ] {
                let bad = format!(" 1 {noun}s");
                assert!(!text.contains(&bad), "{args}: {bad} in {text}");
            }
        }
        for (role, file) in ["output", "plot"].iter().zip(files) {
            let line = format!("\n{role:<12}{file}");
            assert!(told.contains(&line), "{args}: {line} in {told}");
        }
    }
    Ok(())
}
