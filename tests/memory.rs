//! The memory that a plan states bounds what the process really uses: the allocator of this whole program keeps the score.

#![allow(clippy::unwrap_used)] // helpers of tests

use lenslet::device::plan::{Memory, REST};
use lenslet::device::{engine::Engine, silent};
use lenslet::model::system::System;
use lenslet::tomography::estimate::EstimateOptions;
use lenslet::tomography::estimator::EstimatePlan;
use lenslet::tomography::simulation::{SimulationOptions, SimulationPlan};
use lenslet::turbulence::plan::{CovarianceOptions, CovariancePlan, Form, Method};
use std::alloc::{GlobalAlloc, Layout, System as Heap};
use std::sync::atomic::{AtomicUsize, Ordering};

static USED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The allocator of the system, and the bytes in use, now and at most.
struct Counting;

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(used, Ordering::Relaxed);
        unsafe { Heap.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { Heap.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The most bytes in use during `work`, beyond those from before.
fn peak<T>(work: impl FnOnce() -> T) -> u64 {
    let before = USED.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let result = work();
    let most = MOST.load(Ordering::Relaxed) - before;
    drop(result);
    most as u64
}

/// Expects the plan's bound above the peak, and not more than `factor` times the peak beyond the allowance for the rest.
fn holds(name: &str, stated: &Memory, peak: u64, factor: u64) {
    println!("{name}: {} stated, {peak} used", stated.host);
    assert!(peak <= stated.host, "{name}: {peak} used, and only {} stated", stated.host);
    let most = REST + factor * peak;
    assert!(stated.host <= most, "{name}: {} stated for {peak}", stated.host);
}

#[test]
fn plans_state_the_memory_that_they_take() {
    let system = |name: &str| System::from_file(format!("book/systems/{name}.toml")).unwrap();
    let (keck, elt, options) = (system("keck-lgs"), system("elt"), CovarianceOptions::default());
    let cpu = Engine::default();
    for (name, system, options) in [
        ("direct", &keck, options),
        ("spectral", &keck, options.method(Method::Spectral(None))),
        ("dense", &keck, options.form(Form::Dense)),
        ("slopes of a large telescope", &elt, options.slopes_only()),
    ] {
        let plan = CovariancePlan::new(system, options).unwrap();
        holds(name, &plan.memory(&cpu), peak(|| plan.run(&cpu, &silent).unwrap()), 4);
    }
    let plan = EstimatePlan::new(&keck, EstimateOptions::default()).unwrap();
    let flat = ndarray::Array2::zeros((1, plan.slopes()));
    let used = peak(|| {
        let estimator = plan.run(&cpu, &silent).unwrap();
        estimator.estimate(flat.view(), false, &silent).unwrap()
    });
    holds("estimate", &plan.memory(&cpu), used, 4);
    let plan = SimulationPlan::new(&keck, SimulationOptions::default().frames(20)).unwrap();
    holds("simulation", &plan.memory(), peak(|| plan.run(&cpu, &silent).unwrap()), 4);
}
