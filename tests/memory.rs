//! The memory that a plan states bounds what the process really uses: the allocator of this program keeps the score.

use crate::allocation::peak;
use lenslet::correction::CorrectionMode;
use lenslet::device::Engine;
use lenslet::estimation::{EstimateOptions, EstimatePlan, SimulationOptions, SimulationPlan};
use lenslet::model::{Atmosphere, Layer, System, SystemFile};
use lenslet::plan::{Memory, Plan};
use lenslet::psf::{ErrorTerm, Field, PsfOptions, PsfPlan, StructureFunctionModel};
use lenslet::turbulence::{CovarianceOptions, CovariancePlan, Form, Method};
use lenslet::watch::unwatched;

/// Expects the plan's bound above the peak, and not more than `factor` times the peak beyond the allowance for the rest.
fn holds(name: &str, stated: &Memory, peak: u64, factor: u64) {
    println!("{name}: {} stated, {peak} used", stated.host);
    assert!(peak <= stated.host, "{name}: {peak} used, and only {} stated", stated.host);
    let most = Memory::REST + factor * peak;
    assert!(stated.host <= most, "{name}: {} stated for {peak}", stated.host);
}

#[test]
fn plans_state_the_memory_that_they_take() {
    let system = |name: &str| System::from_file(format!("book/systems/{name}.toml")).unwrap();
    let (keck, options) = (system("keck-lgs"), CovarianceOptions::default());
    // The memory of the dense form does not depend on the number of layers, and its time does.
    let air = Atmosphere::new(0.18, 500e-9, vec![Layer::new(8e3, 1.0, 28.0)]).unwrap();
    let thin = System::builder(air, *keck.lenslet_array())
        .pupil(keck.pupil().copied())
        .guide_stars(keck.guide_stars()[..2].to_vec())
        .targets(keck.targets().to_vec())
        .phase(keck.phase())
        .build()
        .unwrap();
    let cpu = Engine::default();
    for (name, system, options) in [
        ("direct", &keck, options),
        ("spectral", &thin, options.method(Method::Spectral(None))),
        ("dense", &thin, options.form(Form::Dense)),
    ] {
        let plan = CovariancePlan::new(system, options).unwrap();
        let ((stated, _), used) =
            peak(|| (plan.memory(&cpu).unwrap(), plan.run(&cpu, &unwatched).unwrap()));
        holds(name, &stated, used, 4);
    }
    let plan = EstimatePlan::new(&keck, EstimateOptions::default()).unwrap();
    let flat = ndarray::Array2::zeros((1, plan.slopes()));
    let ((stated, _), used) = peak(|| {
        let estimator = plan.run(&cpu, &unwatched).unwrap();
        (plan.memory(&cpu).unwrap(), estimator.estimate(flat.view(), false, &unwatched).unwrap())
    });
    holds("estimate", &stated, used, 4);
    let plan = SimulationPlan::new(&keck, SimulationOptions::default().frames(5)).unwrap();
    let ((stated, _), used) =
        peak(|| (plan.memory(&cpu).unwrap(), plan.run(&cpu, &unwatched).unwrap()));
    holds("simulation", &stated, used, 4);
    // A field behind one mirror: what many directions take is what one takes.
    let small = SystemFile::from_file("book/systems/small-moao.toml").unwrap();
    let mut options = PsfOptions::from_system_file(&small).unwrap();
    options.correction.mode = CorrectionMode::Ltao;
    options.image.structure = StructureFunctionModel::Stationary;
    options.image.terms = Some(vec![ErrorTerm::Tomography, ErrorTerm::Anisoplanatism]);
    options.field = Some(Field { size: 1e-4, step: 2e-5 });
    let plan = PsfPlan::new(&small.system().unwrap(), options).unwrap();
    let ((stated, _), used) =
        peak(|| (plan.describe(&cpu).unwrap().memory, plan.run(&cpu, &unwatched).unwrap()));
    holds("shared mirrors", &stated, used, 4);
}
