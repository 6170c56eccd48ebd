//! Options and results as JSON: what is written is read, and nothing else.

use super::plans::SYSTEM;
use lenslet::correction::{
    Correction, CorrectionMode, CorrectionOptions, SharedOptions, low_covariances,
};
use lenslet::data::{Coordinate, DataSet, Table, Variable};
use lenslet::electrons::{
    Aberration, Aberrations, Annulus, Beam, Comparison, DetectorError, DetectorOptions,
    PatternOptions, PotentialModel, PotentialOptions, Probe, Scan, Segmented, StemMethod,
    StemOptions, WaveGrid,
};
use lenslet::electrons::{HrtemOptics, HrtemOptions, ImageSamples};
use lenslet::estimation::{EstimateOptions, Quantity, Sampling, Simulation, SimulationOptions};
use lenslet::linear::{Interpolation, Solver};
use lenslet::model::{
    ActuatorLayout, ControlLoop, LoopKind, MeasuredInfluence, MirrorDesign, Spacing,
};
use lenslet::ndarray::{Array3, Axis, array};
use lenslet::num_complex::{Complex32, Complex64};
use lenslet::prelude::*;
use lenslet::profiling::{LearnOptions, LearnPlan, ParameterGroup, SlopeChecks};
use lenslet::psf::{
    Aperture, CameraOptions, ErrorTerm, Field, LoopSimulationOptions, LoopSimulationPlan,
    StructureFunctionModel, Vane,
};
use lenslet::specimen::{Atom, Element, Factors, Phonons, Slicing};
use lenslet::tomography::{CovarianceMatrices, ErrorSplit, PointErrorsPlan, ReconstructedQuantity};
use lenslet::turbulence::spectral::SpectralSampling;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, from_str, from_value, json, to_string, to_value};
use std::fmt::Debug;

type Checked = std::result::Result<(), Box<dyn std::error::Error>>;

/// What is written of a value, which is read as the same value.
fn round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) -> Value {
    let text = to_string(value).unwrap();
    assert_eq!(from_str::<T>(&text).unwrap(), *value, "{text}");
    from_str(&text).unwrap()
}

/// Why a text is not read as a `T`.
fn refused<T: DeserializeOwned + Debug>(written: Value) -> String {
    from_value::<T>(written).unwrap_err().to_string()
}

/// Options that differ from the `usual` ones in each field are read as they are written; `needed` fields alone give the usual ones, and a field more
/// or a needed one less is an error.
fn travels<T>(options: &T, usual: &T, needed: &[&str])
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let (written, defaults) = (round_trip(options), round_trip(usual));
    let (fields, defaults) = (written.as_object().unwrap(), defaults.as_object().unwrap());
    for (name, value) in fields {
        let differs = *value != defaults[name];
        assert!(differs || needed.contains(&&name[..]), "{name} has its default in this test");
    }
    let few = defaults.iter().filter(|(name, _)| needed.contains(&&name[..]));
    let few: Value = few.map(|(name, value)| (name.clone(), value.clone())).collect();
    assert_eq!(from_value::<T>(few.clone()).unwrap(), *usual);
    for missing in needed {
        let mut less = few.clone();
        less.as_object_mut().unwrap().remove(*missing);
        assert!(refused::<T>(less).contains(&format!("missing field `{missing}`")), "{missing}");
    }
    let mut more = few;
    more["misspelt"] = json!(1);
    assert!(refused::<T>(more).starts_with("unknown field `misspelt`, expected "));
}

fn probe() -> Probe {
    let term = Aberration { order: 3, fold: 1, magnitude: 250.0, angle: -0.5 };
    let aberrations = Aberrations { defocus: -45.5, c3: 1.25e4, c5: 3e6, terms: vec![term] };
    Probe { beam: Beam::new(80.0).unwrap(), semi_angle: 21.5, aberrations, tilt: [1.5, -0.25] }
}

fn slices() -> (WaveGrid, Slicing) {
    (WaveGrid::new([48, 40], [6.4, 5.2]).unwrap(), Slicing::new(12.0, 2.5).unwrap())
}

fn potential() -> PotentialOptions {
    let options = PotentialOptions::default().model(PotentialModel::Sampled);
    options.factors(Factors::KirklandRounded).bound(2.5).planes(5)
}

fn detectors() -> DetectorOptions {
    let segmented = Segmented { inner: 5.0, outer: 40.0, sectors: 3, rotation: 0.3 };
    let annulus = Annulus { inner: 20.0, outer: 60.0, exact: true };
    let options = DetectorOptions::default().bin(2.5).rings(12).centre_of_mass(true);
    let pattern = PatternOptions::default().crop(30.0).bin(2);
    options.annuli(vec![annulus]).segmented(vec![segmented]).pattern(pattern)
}

// Options of electrons
#[test]
fn options_of_electrons_travel() {
    let ((grid, slicing), scan) = (slices(), Scan::new([[0.0, 6.4], [1.0, 4.0]], [0.8, 0.7]));
    let scan = scan.unwrap();
    let usual = StemOptions::new(grid, slicing, probe(), scan);
    let method = StemMethod::Prism { factor: [2, 1], refocus: 12.0, margin: Some(1.5) };
    let phonons = Phonons { configurations: 4, seed: 9 };
    let stem = usual.clone().potential(potential()).phonons(phonons).tilt([0.5, -2.0]);
    let stem = stem.defoci(vec![0.0, 30.0]).method(method).detectors(detectors()).ends(vec![1, 3]);
    travels(&stem, &usual, &["grid", "slicing", "probe", "scan"]);
    let lens = HrtemOptics {
        aberrations: probe().aberrations,
        aperture: Some(25.0),
        tilt: [1.0, -0.5],
        focal_spread: 30.0,
        convergence: 0.5,
        ..HrtemOptics::perfect(Beam::new(300.0).unwrap())
    };
    travels(&lens, &HrtemOptics::perfect(lens.beam), &["beam"]);
    let usual = HrtemOptions::new(grid, slicing, lens);
    let hrtem = usual.clone().potential(potential()).phonons(phonons).tilt([0.5, -2.0]);
    let hrtem = hrtem.defoci(vec![-300.0, 20.0]).refocus(8.0).samples(ImageSamples::Mask);
    travels(&hrtem.ends(vec![2, 4]), &usual, &["grid", "slicing", "lens"]);
    travels(&detectors(), &DetectorOptions::default(), &[]);
    travels(&detectors().pattern.unwrap(), &PatternOptions::default(), &[]);
    travels(&potential(), &PotentialOptions::default(), &[]);
    travels(&phonons, &Phonons::default(), &[]);
    travels(&probe().aberrations, &Aberrations::default(), &[]);
    let upright = Probe { aberrations: Aberrations::default(), tilt: [0.0; 2], ..probe() };
    travels(&probe(), &upright, &["beam", "semi_angle"]);
    // The fewest words of a method and of detectors
    let method: StemMethod = from_value(json!({ "prism": { "factor": [4, 4] } })).unwrap();
    assert_eq!(method, StemMethod::Prism { factor: [4, 4], refocus: 0.0, margin: None });
    let annulus: Annulus = from_value(json!({ "inner": 60.0, "outer": 90.0 })).unwrap();
    assert_eq!(annulus, Annulus { inner: 60.0, outer: 90.0, exact: false });
}

// Options of images and corrections
/// Measured images, whose normalised heights have a mean of 1 to rounding only.
fn influence(width: f64) -> MeasuredInfluence {
    let heights = Array3::from_shape_fn((3, 6, 6), |(k, j, i)| {
        1.0 / (width + (j as f64 - 2.4).powi(2) + 2.0 * (i as f64 - 2.5).powi(2) + 0.1 * k as f64)
    });
    MeasuredInfluence::new(heights, 0.125).unwrap()
}

fn mirror() -> MirrorDesign {
    MirrorDesign {
        layout: ActuatorLayout::Hexagonal,
        altitude: 4500.0,
        coupling: 0.25,
        influence: Some(influence(1.3)),
        kept: Some([0.125, 1.125]),
        filter: 0.0625,
        ..MirrorDesign::new(Spacing::Pitch(0.5))
    }
}

fn correction() -> CorrectionOptions {
    let mirrors = vec![mirror(), MirrorDesign::new(Spacing::Actuators(9))];
    CorrectionOptions::new(CorrectionMode::Mcao, mirrors).weights(vec![1.0, 0.25])
}

fn camera() -> CameraOptions {
    let camera = CameraOptions::default().wavelengths(vec![1.25e-6, 2.2e-6]).pixel(2e-8).pixels(48);
    let camera = camera.terms(ErrorTerm::NAMES.map(|(_, term)| term)).extra(3e-8).jitter(1.5e-8);
    let camera = camera.structure(StructureFunctionModel::Stationary).ensquared(vec![2.5e-7]);
    let mask = Aperture::from_light(array![[0.0, 0.5], [1.0, 0.25]], 4.0).unwrap();
    camera.vanes(vec![Vane { width: 0.05, angle: 0.5, offset: -0.1 }]).mask(mask)
}

#[test]
fn options_of_images_travel() {
    let usual = CorrectionOptions::new(CorrectionMode::Mcao, correction().mirrors);
    travels(&correction(), &usual, &["mode", "mirrors"]);
    travels(&mirror(), &MirrorDesign::new(Spacing::Pitch(0.5)), &["spacing"]);
    for k in 0..50 {
        round_trip(&influence(0.7 + 0.03 * f64::from(k)));
    }
    travels(&camera(), &CameraOptions::default(), &[]);
    let shared = SharedOptions::default().noise_gain(0.5).by_cause(true).own(true).mirrors(3);
    travels(&shared, &SharedOptions::default(), &[]);
    let control = ControlLoop { kind: LoopKind::Closed, rate: 500.0, gain: 0.3, delay: 2.5 };
    let reconstructor = ReconstructorOptions::default();
    let usual = PsfOptions::new(reconstructor, correction(), CameraOptions::default());
    let reconstructor = reconstructor.method(Inversion::Eigen).filter(1e-6).delay(0.002);
    let reconstructor = reconstructor.predict(false).keep(true).tolerance(1e-4).errors_only(true);
    let reconstructor = reconstructor.to(ReconstructedQuantity::Wavefront);
    travels(&reconstructor, &ReconstructorOptions::default(), &[]);
    let psf = usual.clone().reconstructor(reconstructor).image(camera()).control(control);
    travels(&psf.field(Field { size: 3e-4, step: 1e-4 }), &usual, &["correction"]);
    let loops = LoopSimulationOptions::default().realisations(8).squares_per_lenslet(6);
    travels(&loops, &LoopSimulationOptions::default(), &[]);
}

// Options of covariances, estimates and fits
#[test]
fn options_of_turbulence_travel() {
    let spectral = |sampling| CovarianceOptions::default().method(Method::Spectral(sampling));
    let sampling = SpectralSampling::new(384, 6).unwrap();
    let covariance = spectral(Some(sampling)).form(Form::Toeplitz).slopes_only();
    travels(&covariance, &CovarianceOptions::default(), &[]);
    assert_eq!(round_trip(&spectral(None))["method"], json!({ "spectral": null }));
    let estimate = EstimateOptions::default().form(Form::Dense).exact(false).frames(7);
    let estimate = estimate.interpolation(Interpolation::Quintic).method(Inversion::Iterative);
    let estimate = estimate.filter(1e-5).solver(Solver::Minres).preconditioned(false);
    travels(&estimate.tolerance(1e-3).limited(Some(50)), &EstimateOptions::default(), &[]);
    let sampling = Sampling { period: 2.5, growth: 0.25, highest: 30.0 };
    travels(&sampling, &Sampling::default(), &[]);
    let simulation = SimulationOptions::default().sampling(sampling).frames(3).seed(1 << 60);
    travels(&simulation.lasting(0.5), &SimulationOptions::default(), &[]);
    let groups = ParameterGroup::NAMES.map(|(_, group)| group);
    travels(&LearnOptions::default().fit(groups).steps(7), &LearnOptions::default(), &[]);
    travels(&SlopeChecks { unit: true, order: true }, &SlopeChecks::default(), &[]);
}

// Names of files
#[test]
fn names_are_those_of_files() {
    fn all<T: Serialize, const N: usize>(names: [(&'static str, T); N]) {
        for (name, value) in names {
            assert_eq!(to_value(value).unwrap(), name);
        }
    }
    all(CorrectionMode::NAMES);
    all(ErrorTerm::NAMES);
    all(Inversion::NAMES);
    all(ParameterGroup::NAMES);
    all(StructureFunctionModel::NAMES);
    all(ReconstructedQuantity::NAMES);
    all([Interpolation::Linear, Interpolation::Cubic, Interpolation::Quintic]
        .map(|kind| (kind.name(), kind)));
    all([("kirkland", Factors::Kirkland), ("kirkland-rounded", Factors::KirklandRounded)]);
    all([("lookup", PotentialModel::Lookup), ("projected", PotentialModel::Projected)]);
    all([("sliced", PotentialModel::Sliced), ("sampled", PotentialModel::Sampled)]);
    all([("grid", ImageSamples::Grid), ("mask", ImageSamples::Mask)]);
    all([("open", LoopKind::Open), ("closed", LoopKind::Closed)]);
    all([("square", ActuatorLayout::Square), ("hexagonal", ActuatorLayout::Hexagonal)]);
}

// Values that constructors refuse
#[test]
fn values_are_refused_by_constructors() {
    fn as_by<T: DeserializeOwned + Debug>(written: Value, made: std::result::Result<T, Invalid>) {
        let expected = made.unwrap_err().to_string();
        assert_eq!(refused::<T>(written), expected);
    }
    let grid = json!({ "points": [256, 255], "lengths": [21.72, 10.86] });
    as_by(grid, WaveGrid::new([256, 255], [21.72, 10.86]));
    as_by(json!({ "height": 10.0, "thickness": 11.0 }), Slicing::new(10.0, 11.0));
    as_by(json!({ "energy_kev": 1e5 }), Beam::new(1e5));
    let window = [[0.0, 6.4], [4.0, 1.0]];
    as_by(json!({ "window": window, "step": [0.8, 0.7] }), Scan::new(window, [0.8, 0.7]));
    as_by(json!({ "samples": 386, "oversampling": 4 }), SpectralSampling::new(386, 4));
    as_by(json!("Xx"), Element::of_symbol("Xx"));
    let lit = Aperture::from_light(array![[0.5, 1.5]], 1.0);
    let light = |value: f64| json!({ "v": 1, "dim": [1, 1], "data": [value] });
    as_by(json!({ "light": { "v": 1, "dim": [1, 2], "data": [0.5, 1.5] }, "step": 1.0 }), lit);
    let dark = Aperture::from_light(array![[0.0]], 1.0);
    as_by(json!({ "light": light(0.0), "step": 1.0 }), dark);
    let flat = MeasuredInfluence::new(Array3::zeros((1, 4, 4)), 0.1);
    let heights = to_value(Array3::<f64>::zeros((1, 4, 4))).unwrap();
    as_by(json!({ "heights": heights, "step": 0.1 }), flat);
    let atom = Atom {
        element: Element::new(14).unwrap(),
        position: [1.0, 2.0, 7.5],
        occupancy: 1.0,
        displacement: 0.1,
    };
    let atoms = json!([{ "element": "Si", "position": [1.0, 2.0, 7.5], "occupancy": 1.0, "displacement": 0.1 }]);
    as_by(
        json!({ "cell": [4.0, 5.0, 6.0], "atoms": atoms }),
        Specimen::new([4.0, 5.0, 6.0], vec![atom]),
    );
    round_trip(&Specimen::new([4.0, 5.0, 8.0], vec![atom]).unwrap());
    // A bad part of options refuses all of them, and an unknown name tells the known ones
    let options = refused::<HrtemOptics>(json!({ "beam": { "energy_kev": 0.0 } }));
    assert_eq!(options, Beam::new(0.0).unwrap_err().to_string());
    let name = refused::<CovarianceOptions>(json!({ "form": "Dense" }));
    assert!(name.contains("`toeplitz`, `blocks`, `dense`"), "{name}");
}

// Data sets
fn every_kind() -> DataSet<'static> {
    let mut data = DataSet::default();
    data.add_result("double", array![[0.1, f64::NAN, -2e-13]]).unit("m").dimensions("y, x");
    data.add("height", array![f64::INFINITY, 9e4, f64::NEG_INFINITY]).long_name("of stars");
    data.add("single", array![0.1_f32, f32::NAN]);
    data.add("wave", array![Complex64::new(1.0, -2.0)]);
    data.add("single_wave", array![Complex32::new(0.3, f32::INFINITY)]);
    data.add("counts", array![7_u32, u32::MAX]).attribute("seen", true).attribute("seed", -7);
    data.add("lit", array![true, false]);
    data.add_text("system", "r0 = 0.1\n");
    let table = Table::of(&[3, -1]).integer("star", |star| *star);
    data.add_table("slopes", table.number("height", "m", |_| f64::INFINITY).table());
    let axes = vec![
        Coordinate::series("defocus", "Å", &[-300.0, 20.0]).unwrap(),
        Coordinate::navigation("x", "Å", 1.25, 0.5).unwrap().also("angle", "mrad", 2.5).unwrap(),
        Coordinate::labelled("part", &["re", "im", "abs"]).unwrap(),
    ];
    data.insert(Variable::new("scan", Array3::<f64>::ones((2, 1, 3)), axes).unwrap()).unwrap();
    data.set_attribute("sides", &[6.4, 5.2][..]).unwrap();
    data.set_attribute("sample", "silicon").unwrap();
    data
}

#[test]
fn data_sets_travel() -> Checked {
    let (data, text) = (every_kind(), to_string(&every_kind())?);
    let read: DataSet = from_str(&text)?;
    assert_eq!(to_string(&read)?, text);
    assert_eq!(read.shapes(), data.shapes());
    let (double, written) =
        (read.array::<f64, lenslet::ndarray::Ix2>("double")?, data.get("double"));
    assert!(double[[0, 1]].is_nan() && (double[[0, 0]], double[[0, 2]]) == (0.1, -2e-13));
    assert_eq!(
        read.get("double").map(|one| one.coordinates()),
        written.map(|one| one.coordinates())
    );
    let heights = read.view::<f64, lenslet::ndarray::Ix1>("height")?;
    assert_eq!(heights.to_vec(), [f64::INFINITY, 9e4, f64::NEG_INFINITY]);
    let wave = read.view::<Complex32, lenslet::ndarray::Ix1>("single_wave")?;
    assert_eq!(wave[0], Complex32::new(0.3, f32::INFINITY));
    assert_eq!(read.table("slopes")?.numbers("height"), Some(&[f64::INFINITY; 2][..]));
    let (axes, known) = (read.get("scan").unwrap().coordinates(), data.get("scan").unwrap());
    assert_eq!(axes, known.coordinates());
    assert_eq!(read.attributes(), data.attributes());
    assert!(text.contains(r#"{"f64":{"v":1,"dim":[1,3],"data":[0.1,"nan",-2e-13]}}"#), "{text}");
    Ok(())
}

#[test]
fn data_sets_are_checked() -> Checked {
    let good = to_value(every_kind())?;
    let place = |name: &str| {
        let all = good["variables"].as_array().unwrap();
        all.iter().position(|one| one["name"] == name).unwrap()
    };
    let refused = |name: &str, path: &str, value: Value| {
        let mut bad = good.clone();
        let one = bad["variables"][place(name)].pointer_mut(path).unwrap();
        assert_ne!(*one, value);
        *one = value;
        from_value::<DataSet>(bad).unwrap_err().to_string()
    };
    let twice = refused("lit", "/name", json!("wave"));
    assert_eq!(twice, "variable = \"wave\": expected another name for each");
    let name = refused("lit", "/name", json!("lit lenslets"));
    assert!(name.contains("expected a letter, then letters"), "{name}");
    let step = refused("scan", "/dimensions/1/positions/uniform/step", json!(0.0));
    assert_eq!(step, "step of dimension x = 0.0: expected a finite step other than 0");
    let series = refused("scan", "/dimensions/0/positions/values", json!([1.0, 1.0]));
    assert!(series.starts_with("values of dimension defocus = [1.0, 1.0]: expected finite"));
    let more = refused("scan", "/dimensions/0/positions/values", json!([1.0, 2.0, 3.0]));
    assert_eq!(more, "samples of scan along defocus = 2: expected 3, as there are values");
    let label = refused("scan", "/dimensions/2/positions/labels/1", json!(""));
    assert!(label.starts_with("label = \"\""), "{label}");
    let factor = refused("scan", "/dimensions/1/second/2", json!(-1.0));
    assert!(factor.starts_with("factor of dimension x = -1.0"), "{factor}");
    let fewer = refused("scan", "/dimensions", json!([good["variables"][0]["dimensions"][0]]));
    assert_eq!(fewer, "dimensions of scan = 1: expected none, or 3");
    let rows = refused("slopes", "/values/table/rows", json!([3]));
    assert_eq!(rows, "cells of column star = 2: expected 3, one for each row");
    let data = refused("double", "/values/array/f64/dim", json!([2, 3]));
    assert!(data.contains("data and dimension"), "{data}");
    let number = refused("double", "/values/array/f64/data/1", json!("null"));
    assert!(number.contains("expected a number, \"nan\", \"inf\" or \"-inf\""), "{number}");
    let key = refused("counts", "/attributes/1/name", json!("seen"));
    assert_eq!(key, "key of an attribute = \"seen\": expected another name for each");
    let mut bad = good.clone();
    bad["attributes"][0]["value"]["numbers"] = json!([]);
    let numbers = from_value::<DataSet>(bad).unwrap_err().to_string();
    assert_eq!(numbers, "sides = 0: expected 1 to 1000 numbers");
    Ok(())
}

// Results
/// A data set that is read as it is written.
fn data_set(data: DataSet) {
    let text = to_string(&data).unwrap();
    let read: DataSet = from_str(&text).unwrap();
    assert_eq!(to_string(&read).unwrap(), text);
}

#[test]
fn results_of_tomography_travel() -> Checked {
    let (file, cores) = (SystemFile::from_toml(SYSTEM, "s.toml")?, Engine::default());
    let system = file.system()?;
    let options = ReconstructorOptions::default().keep(true).method(Inversion::Eigen);
    let plan = ReconstructorPlan::new(&system, options)?;
    let found = plan.run(&cores, &unwatched)?;
    round_trip(&found);
    let errors = found.wavefront_errors(&system)?;
    let text = to_string(&errors)?;
    assert!(text.contains("\"nan\"") && !text.contains("null"));
    assert_eq!(to_string(&from_str::<Vec<WavefrontError>>(&text)?)?, text);
    data_set(found.to_data_set(&system, &errors));
    let options = ReconstructorOptions::default().to(ReconstructedQuantity::Wavefront);
    let found = ReconstructorPlan::new(&system, options)?.run(&cores, &unwatched)?;
    round_trip(&found);
    data_set(found.to_data_set(&system, &found.wavefront_errors(&system)?));
    let options = options.errors_only(true);
    let points = PointErrorsPlan::new(&system, options)?.run(&cores, &unwatched)?;
    let text = to_string(&points)?;
    let read: lenslet::tomography::PointErrors = from_str(&text)?;
    assert_eq!((to_string(&read)?, read.iterations), (text, points.iterations));
    data_set(points.to_data_set(&system));
    let covariances = CovariancePlan::new(&system, CovarianceOptions::default())?;
    data_set(covariances.run(&cores, &unwatched)?.to_data_set(&system));
    // Plans are described, and their memory is read
    let description = plan.describe(&cores)?;
    let written = to_value(&description)?;
    assert_eq!(written["stages"].as_array().map(Vec::len), Some(description.stages.len()));
    assert_eq!(round_trip(&description.memory), written["memory"]);
    Ok(())
}

#[test]
fn results_of_corrections_travel() -> Checked {
    let (file, cores) = (SystemFile::from_toml(SYSTEM, "s.toml")?, Engine::default());
    let options = CorrectionOptions::from_system_file(&file)?.ok_or("no mirror")?;
    let correction = Correction::new(&file.system()?, &options)?;
    let system = correction.system();
    let plan = ReconstructorPlan::new(system, ReconstructorOptions::default().keep(true))?;
    let found = plan.run(&cores, &unwatched)?;
    round_trip(&correction.of(&found, &cores)?);
    let whole = CovarianceMatrices::of(system, &unwatched)?.measurements;
    let split = ErrorSplit::new(system, whole, low_covariances(system, 0.5, &unwatched)?)?;
    let reconstructor = found.reconstructor.ok_or("no reconstructor")?;
    round_trip(&split.of(&reconstructor.index_axis(Axis(0), 1).to_owned(), 1)?);
    let options = SharedOptions::default().mirrors(2);
    let mirrors = correction.shared(&plan, options, (&cores, &unwatched))?;
    let strokes = to_value(mirrors.left(1, (&cores, &unwatched))?)?;
    assert_eq!((&strokes["parts"][0][0], &strokes["shape"]), (&json!("tomography"), &json!(1)));
    Ok(())
}

#[test]
fn results_of_estimates_travel() -> Checked {
    let (file, cores) = (SystemFile::from_toml(SYSTEM, "s.toml")?, Engine::default());
    let system = file.system()?;
    let options = SimulationOptions::default().frames(200).seed(3);
    let simulated = SimulationPlan::new(&system, options)?.run(&cores, &unwatched)?;
    round_trip(&simulated);
    round_trip(&Simulation::new(&system)?.realisation_of_frame(3, 1));
    round_trip(&Quantity::Slope { star: 1, axis: 0, lenslet: [2, 3] });
    round_trip(&Quantity::Wavefront { target: 1, point: [0, 4] });
    data_set(simulated.to_data_set(&system));
    let estimator =
        EstimatePlan::new(&system, EstimateOptions::default())?.run(&cores, &unwatched)?;
    let estimates = estimator.estimate(simulated.slopes.view(), false, &unwatched)?;
    round_trip(&estimates);
    data_set(estimates.to_data_set(&system));
    let learn = LearnPlan::new(&system, LearnOptions::default())?.with_slopes(simulated.slopes)?;
    let learned = learn.run(&cores, &unwatched)?;
    let written = to_value(&learned)?;
    assert_eq!(written["values"], round_trip(&learned.values));
    assert_eq!(written["warnings"], round_trip(&learned.warnings));
    assert_eq!(written["fried_parameter"][0], learned.fried_parameter.0);
    assert!(written.get("system").is_none() && written.get("maps").is_none());
    data_set(learned.to_data_set());
    Ok(())
}

#[test]
fn results_of_images_travel() -> Checked {
    let (file, cores) = (SystemFile::from_toml(SYSTEM, "s.toml")?, Engine::default());
    let (system, options) = (file.system()?, PsfOptions::from_system_file(&file)?);
    round_trip(&options);
    let options = options.field(Field { size: 1e-4, step: 1e-4 });
    let loops = LoopSimulationOptions::default().realisations(2);
    let loops = LoopSimulationPlan::new(&system, &options, loops)?;
    round_trip(&loops.run(&cores, &unwatched)?);
    let plan = PsfPlan::new(&system, options)?;
    let images = plan.run(&cores, &unwatched)?;
    let written = round_trip(&images);
    round_trip(&images.uncorrected.rings());
    data_set(images.to_data_set(&plan)?);
    let mut budget = written["targets"][0]["budget"].clone();
    budget[0]["variance"] = json!(1e300);
    let budget: lenslet::psf::Budget = from_value(budget)?;
    assert_eq!(budget.terms()[0].variance, 1e300);
    Ok(())
}

#[test]
fn results_of_electrons_travel() -> Checked {
    let sample = |configurations: usize| {
        format!(
            "sample = {{ file = 'book/systems/SI100.XYZ' }}
            potential = {{ grid = [48, 32], slice_thickness = 1.3575 }}
            phonons = {{ configurations = {configurations}, seed = 2 }}
            beam = {{ energy_kev = 100, semi_angle = 15 }}
            scan = {{ window = [[0.0, 5.43], [1.0, 4.0]], step = [1.4, 1.5] }}
            detector = {{ bin = 4.0, annuli = [[20.0, 40.0]] }}"
        )
    };
    for configurations in [0, 2] {
        let file = SampleFile::from_toml(&sample(configurations), "s.toml")?;
        let (plan, images) = (file.plan()?, file.hrtem()?);
        // A job: the specimen and its options, as another process reads them
        let job = to_string(&(plan.specimen(), plan.options()))?;
        let (specimen, options): (Specimen, StemOptions) = from_str(&job)?;
        let engine = Engine::default();
        let readings = plan.run(&engine, &unwatched)?;
        assert_eq!(StemPlan::new(specimen, options)?.run(&engine, &unwatched)?, readings);
        round_trip(&readings);
        round_trip(plan.detectors().layout());
        round_trip(&file.plan_with_summary()?.1);
        round_trip(images.options());
        round_trip(&images.run(&engine, &unwatched)?);
    }
    let error =
        |rms| DetectorError { name: "annulus_0".into(), scale: 0.0, rms, largest: f64::INFINITY };
    round_trip(&Comparison { places: vec![3, 7], detectors: vec![error(0.5)] });
    assert!(from_str::<DetectorError>(&to_string(&error(f64::NAN))?)?.rms.is_nan());
    Ok(())
}

// Numbers of other types
#[test]
fn numbers_may_be_whole_and_in_other_formats() -> Checked {
    let mut written = to_value(every_kind())?;
    let whole = json!({ "v": 1, "dim": [3], "data": [-3, 4, 5.5] });
    written["variables"][1]["values"]["array"]["f64"] = whole;
    let data: DataSet = from_value(written)?;
    assert_eq!(data.view::<f64, lenslet::ndarray::Ix1>("height")?.to_vec(), [-3.0, 4.0, 5.5]);
    let options = ReconstructorOptions::default().filter(1e-6);
    let text = lenslet::toml::to_string(&options)?;
    assert_eq!(lenslet::toml::from_str::<ReconstructorOptions>(&text)?, options);
    Ok(())
}
