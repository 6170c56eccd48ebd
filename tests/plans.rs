//! One battery for all plans: what each promises through the trait.

use lenslet::estimation::EstimateOptions;
use lenslet::model::SystemFile;
use lenslet::prelude::*;
use lenslet::profiling::{LearnOptions, LearnPlan};
use lenslet::psf::{LoopSimulationOptions, LoopSimulationPlan};
use lenslet::tomography::{PointErrorsPlan, ReconstructedQuantity};
use lenslet::turbulence::{
    SlopeCovariancePlan, WavefrontCovariancePlan, slope_problem, wavefront_problem,
};
use lenslet::watch::Observer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc::channel};

type Checked = std::result::Result<(), Box<dyn std::error::Error>>;

pub(super) const SYSTEM: &str = "
    atmosphere = { r0 = 0.16, outer_scale = 20, layers = [
        { altitude = 0, fraction = 0.6, wind_speed = 8, wind_direction = 30 },
        { altitude = 9000, fraction = 0.4, wind_speed = 20, wind_direction = 60 } ] }
    telescope = { diameter = 2.5, obstruction = 0.3 }
    lenslet_array = { lenslets = 5 }
    truth_sensor = { lenslets = 5 }
    phase = { points = 6 }
    guide_star = [
        { zenith = 20, azimuth = 30, noise = 1e-13 }, { zenith = 15, azimuth = 200, noise = 1e-13 } ]
    target = [ { zenith = 8, azimuth = 75 }, { zenith = 15, azimuth = 0 } ]
    mirror = [ { actuators = 6 } ]
    correction = { mode = 'moao' }
    loop = { kind = 'open', rate = 500.0, delay = 2.0 }
    image = { wavelengths = [1.65e-6], pixel = 20.0, pixels = 32, ensquared = [100.0] }
";

const SAMPLE: &str = "
    sample = { file = 'book/systems/SI100.XYZ' }
    potential = { grid = [48, 32], slice_thickness = 1.3575 }
    beam = { energy_kev = 100, semi_angle = 15 }
    scan = { window = [[0.0, 5.43], [1.0, 4.0]], step = [1.4, 1.5] }
    detector = { bin = 4.0, annuli = [[20.0, 40.0]] }
";

const PLANE_WAVE: &str = "
    sample = { file = 'book/systems/SI100.XYZ' }
    potential = { grid = [48, 32], slice_thickness = 1.3575 }
    beam = { energy_kev = 100 }
    method = { algorithm = 'hrtem' }
    imaging = { aperture = 15.0 }
";

/// Wants to stop from the beginning.
struct Never;

impl Watch for Never {
    fn cancelled(&self) -> bool {
        true
    }
}

/// The battery of a plan, whose CPU computes in single precision or not.
fn battery<P: Plan + Clone>(plan: &P, single: bool) -> Checked {
    let (name, engine) = (format!("{:?}", plan.clone()), Engine::default());
    let name = name.split([' ', '(']).next().unwrap();
    // A description agrees with memory and duration
    let description = plan.describe(&engine)?;
    assert!(!description.what.is_empty() && !description.stages.is_empty(), "{name}");
    assert!(description.arrays.iter().all(|(array, shape)| !array.is_empty() && !shape.is_empty()));
    assert_eq!(
        (&description.engine, &description.memory),
        (&engine.name(), &plan.memory(&engine)?)
    );
    assert!(description.memory.host > 0 && description.memory.devices.is_empty(), "{name}");
    let seconds = description.stages.iter().map(|stage| stage.seconds).sum::<f64>();
    assert!((plan.duration(&engine)?.as_secs_f64() - seconds).abs() < 1e-6, "{name}");
    assert!(seconds > 0.0, "{name}");
    plan.check(&engine)?;
    // Single precision is honoured or rejected
    let cpu = Engine::cpu(Precision::F32);
    if single {
        plan.check_engine(&cpu)?;
        plan.describe(&cpu)?;
        plan.run(&cpu, &unwatched).map(drop)?;
    } else {
        let refusals = [
            plan.check_engine(&cpu).err(),
            plan.describe(&cpu).err(),
            plan.memory(&cpu).err(),
            plan.duration(&cpu).err(),
            plan.check(&cpu).err(),
            plan.run(&cpu, &unwatched).err(),
        ];
        for refused in refusals {
            let said = refused.expect(name).to_string();
            let expected = "precision = f32: expected f64, as the CPU computes ";
            assert!(
                said.starts_with(expected) && said.ends_with(" in double precision only"),
                "{name}: {said}"
            );
        }
    }
    // A run stops where a watcher says so from the beginning, and where another thread does
    let stopped = plan.run(&engine, &Never).map(drop);
    assert!(matches!(stopped, Err(Error::Cancelled)), "{name}: {stopped:?}");
    let (cancel, (report, reports), (answer, answers)) =
        (Arc::new(AtomicBool::new(false)), channel(), channel());
    let flag = cancel.clone();
    let other = std::thread::spawn(move || {
        let first = reports.recv();
        flag.store(true, Ordering::Relaxed);
        drop(answer);
        first
    });
    let answers = Mutex::new(answers);
    let observer = Observer::new(cancel, move |progress| {
        let _ = report.send(progress);
        let _: std::result::Result<(), _> = answers.lock().unwrap().recv(); // until the flag is set
    });
    let stopped = plan.run(&engine, &observer).map(drop);
    assert!(matches!(stopped, Err(Error::Cancelled)), "{name}: {stopped:?}");
    assert!(other.join().unwrap().is_ok(), "{name}: nothing was reported");
    Ok(())
}

#[test]
fn covariances_keep_what_plans_promise() -> Checked {
    let system = System::from_toml(SYSTEM, "test")?;
    let options = CovarianceOptions::default();
    for form in [Form::Toeplitz, Form::Blocks, Form::Dense] {
        battery(&CovariancePlan::new(&system, options.form(form))?, false)?;
    }
    battery(&SlopeCovariancePlan::direct(slope_problem(&system)?), false)?;
    battery(&WavefrontCovariancePlan::direct(wavefront_problem(&system)?), false)
}

#[test]
fn estimates_and_simulations_keep_what_plans_promise() -> Checked {
    let system = System::from_toml(SYSTEM, "test")?;
    let options = EstimateOptions::default();
    let plan =
        |method, tolerance| EstimatePlan::new(&system, options.method(method).tolerance(tolerance));
    battery(&plan(Inversion::Cholesky, 1e-4)?, false)?;
    battery(&plan(Inversion::Iterative, 1e-7)?, false)?;
    battery(&plan(Inversion::Iterative, 1e-4)?, true)?;
    let plan = SimulationPlan::new(&system, SimulationOptions::default().frames(40))?;
    battery(&plan, false)?;
    let slopes = plan.run(&Engine::default(), &unwatched)?.slopes;
    let plan = LearnPlan::new(&system, LearnOptions::default())?;
    let without = plan.run(&Engine::default(), &unwatched).unwrap_err().to_string();
    assert!(without.starts_with("slopes = none: expected frames of slopes"), "{without}");
    battery(&plan.with_slopes(slopes)?, false)
}

#[test]
fn reconstructors_and_images_keep_what_plans_promise() -> Checked {
    let file = SystemFile::from_toml(SYSTEM, "test")?;
    let system = file.system()?;
    let options = ReconstructorOptions::default();
    for method in [Inversion::Cholesky, Inversion::Iterative] {
        battery(&ReconstructorPlan::new(&system, options.method(method))?, false)?;
    }
    for to in [ReconstructedQuantity::Wavefront, ReconstructedQuantity::Actuators] {
        battery(&ReconstructorPlan::from_system_file(&file, options.to(to))?, false)?;
    }
    let points = options.errors_only(true).tolerance(0.05).to(ReconstructedQuantity::Wavefront);
    battery(&PointErrorsPlan::new(&system, points)?, false)?;
    let options = PsfOptions::from_system_file(&file)?;
    battery(&PsfPlan::new(&system, options.clone())?, false)?;
    let loops = LoopSimulationOptions::default().realisations(2);
    battery(&LoopSimulationPlan::new(&system, &options, loops)?, false)
}

#[test]
fn electrons_keep_what_plans_promise() -> Checked {
    battery(&SampleFile::from_toml(SAMPLE, "test")?.plan()?, true)?;
    battery(&SampleFile::from_toml(PLANE_WAVE, "test")?.hrtem()?, true)
}
