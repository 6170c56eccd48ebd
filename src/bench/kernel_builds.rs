// Tangled from book/src/kernel-builds.md: edit there, or here and run cargo tangle stitch.
//! Every kernel, compiled for several generations of devices without one.

// Chapters that have kernels
use crate::bench::{ARRAYS, SYSTEMS, reconstruct};
use crate::device::cuda::{compiler, probe};
use crate::device::emulator::collector::{Request, requests};
use crate::device::engine::Engine;
use crate::device::gpu::{self, Gpu};
use crate::electrons::detector::gpu::DetectorsGpu;
use crate::electrons::multislice::gpu::PassesGpu;
use crate::electrons::prism::gpu::{PlanesGpu, WindowsGpu};
use crate::electrons::{Beam, DetectorOptions, Detectors, WaveGrid};
use crate::error::Error;
use crate::linear::blocks::gpu::WideMatrix;
use crate::linear::matrix::gpu::MatrixGpu;
use crate::linear::operator::Pairs;
use crate::linear::operator::gpu::WithPairsGpu;
use crate::linear::toeplitz::gpu::BlockToeplitzGpu;
use crate::model::atmosphere::{Atmosphere, Layer};
use crate::model::lenslet_array::{LensletArray, Pupil};
use crate::model::source::{ConeGradient, Source};
use crate::model::system::System;
use crate::numerics::real::Real;
use crate::plan::Plan;
use crate::psf::structure_function::{Actuators, MeanStructure};
use crate::psf::{Aperture, CameraOptions, Exposures, StructureFunctionModel};
use crate::watch::unwatched;

// Estimates and covariances that have kernels
use crate::estimation::estimate::gpu::EstimatorGpu;
use crate::estimation::estimate::{EstimateOptions, PosedEstimate};
use crate::estimation::inversion::Inversion;
use crate::tomography::reconstructor::{ReconstructorOptions, ReconstructorPlan};
use crate::turbulence::direct::slope::gpu::SlopePlan;
use crate::turbulence::direct::wavefront::gpu::WavefrontPlan;
use crate::turbulence::phase::gpu::PhaseTablesGpu;
use crate::turbulence::plan::{SlopeCovariancePlan, slope_problem, wavefront_problem};
use crate::turbulence::slope::SlopeProblem;
use crate::turbulence::spectral;
use crate::turbulence::spectral::slope::SpectralSampling;
use ndarray::Array2;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::env;
use std::sync::Arc;

// Systems whose kernels are compiled
/// Asks for the programs of the covariances and the estimate of a system.
fn ask_for_system<T: Real>(gpu: &Gpu, system: &System) -> Result<(), Error> {
    let tables = Arc::new(PhaseTablesGpu::<T>::on(gpu)?);
    let (slopes, wavefront) = (slope_problem(system)?, wavefront_problem(system)?);
    SlopePlan::new(gpu, &tables, &slopes, &slopes.pairs())?;
    WavefrontPlan::new(gpu, &tables, &wavefront)?;
    let options = EstimateOptions::default();
    let model = PosedEstimate::new(system, options)?.compute(&Engine::default(), &unwatched)?;
    EstimatorGpu::<T>::of(gpu, &model, options)?;
    let sampling = SpectralSampling::new(1024, 4)?;
    let gpus = std::slice::from_ref(gpu);
    spectral::gpu::slope_pairs::<T>(&slopes, &sampling, gpus, &unwatched)?;
    spectral::gpu::wavefront::<T>(&wavefront, &sampling, gpus, &unwatched)?;
    Ok(())
}

// Ask for products with one star
/// Asks for the programs of the product with one star.
fn ask_for_product<T: Real>(gpu: &Gpu, lenslets: usize) -> Result<(), Error> {
    let atmosphere = Atmosphere::new(0.15, 500e-9, vec![Layer::new(0.0, 1.0, 30.0)])?;
    let (array, star) = (LensletArray::new(lenslets, 0.1)?, [Source::star(0.0, 0.0)?]);
    let problem = SlopeProblem::new(&atmosphere, &array, &star, ConeGradient::Pupil)?;
    let covariance = SlopeCovariancePlan::direct(problem).run(&Engine::default(), &unwatched)?;
    let everywhere = [Array2::from_elem((lenslets, lenslets), true)];
    BlockToeplitzGpu::<T>::slopes(gpu, &covariance, &everywhere)?;
    Ok(())
}

// Requests of all chapters
/// All programs of this crate, in a precision.
fn all_requests<T: Real>() -> Result<Vec<Request>, Error> {
    requests(|gpu| {
        for (name, text) in &SYSTEMS[1..] {
            let system = System::from_toml(text, name)?;
            let system = system.to_builder().targets([Source::star(0.0, 0.0)?]).build()?;
            ask_for_system::<T>(gpu, &system)?;
        }
        for lenslets in ARRAYS {
            ask_for_product::<T>(gpu, lenslets)?;
        }
        let matrix = Arc::new(MatrixGpu::<T>::new(gpu, Array2::zeros((2, 2)).view())?);
        WithPairsGpu::new(matrix, &Pairs::new(vec![1, 0], vec![0.5; 2])?)?;
        let few = Array2::zeros((2, 2));
        WideMatrix::<T>::new(gpu, few.view(), [&[0..1, 1..2], &[0..1, 1..2]], 1)?;
        ask_for_reconstructor::<T>(gpu)?;
        ask_for_modes::<T>(gpu)?;
        ask_for_slices::<T>(gpu)
    })
}

// Ask for a reconstructor
/// Asks for the kernels of pairs without a lattice, of their noise, and of eigenvectors.
fn ask_for_reconstructor<T: Real>(gpu: &Gpu) -> Result<(), Error> {
    let (name, text) = reconstruct::SYSTEM;
    let options = ReconstructorOptions::default().method(Inversion::Eigen);
    let plan = ReconstructorPlan::new(&System::from_toml(text, name)?, options)?;
    plan.run(&Engine::gpus(vec![gpu.clone()], T::PRECISION)?, &unwatched)?;
    Ok(())
}
/// Asks for the kernels of multislice, of PRISM and of detectors, with two radices and with three.
fn ask_for_slices<T: Real>(gpu: &Gpu) -> Result<(), Error> {
    for points in [[256, 512], [512, 256]] {
        let grid = WaveGrid::new(points, [20.0, 20.0])?;
        let one = points.map(|points| vec![num_complex::Complex::ONE; points / 2]);
        PassesGpu::<T>::new(gpu, &grid, &one)?;
        PlanesGpu::<T>::new(gpu, &grid, &one)?;
        let twice = WaveGrid::new(points.map(|points| 2 * points), [20.0, 20.0])?;
        WindowsGpu::<T>::new(gpu, &twice)?;
        let (beam, options) = (Beam::new(100.0)?, DetectorOptions::default());
        DetectorsGpu::<T>::new(gpu, &Detectors::new(grid, &beam, options)?)?;
    }
    Ok(())
}
/// Asks for the kernels of a mirror's modes, and of exposures as if its strokes were stationary.
fn ask_for_modes<T: Real>(gpu: &Gpu) -> Result<(), Error> {
    let aperture = Aperture::across(&Pupil::new(2.0, 0.0)?, &[], 8)?;
    let influence = |[x, y]: [f64; 2]| (-x * x - y * y).exp();
    let actuators = Actuators { positions: &[[0.0; 2]], pitch: 1.0, influence: &influence };
    let engine = Engine::gpus(vec![gpu.clone()], T::PRECISION)?;
    MeanStructure::new(actuators, &aperture, 16, &engine)?;
    let image = CameraOptions {
        structure: StructureFunctionModel::Stationary,
        pixels: 8,
        ..Default::default()
    };
    Exposures::new(actuators, &aperture, &image, 2.0, &engine)?;
    Ok(())
}

// Resources of a compiled kernel
/// Resources of a kernel: bytes spilled, registers, bytes of stack and of shared memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Usage {
    spilled: usize,
    registers: usize,
    stack: usize,
    shared: usize,
}

// Kernels of a log
/// The kernels of a log with their resources.
fn usages(log: &str) -> Vec<(String, Usage)> {
    let mut usages: Vec<(String, Usage)> = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            usages.push((rest.split('\'').next().unwrap_or_default().into(), Usage::default()));
        }
        let Some((_, usage)) = usages.last_mut() else { continue };
        let before = |unit: &str| number_before(line, unit);
        usage.spilled = before(" bytes spill stores").unwrap_or(usage.spilled);
        usage.stack = before(" bytes stack frame").unwrap_or(usage.stack);
        usage.registers = before(" registers").unwrap_or(usage.registers);
        usage.shared = before(" bytes smem").unwrap_or(usage.shared);
    }
    usages
}

// Number in front of a unit
fn number_before(line: &str, unit: &str) -> Option<usize> {
    line.split_once(unit)?.0.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

// Generations that are compiled for
/// Generations of devices: the oldest that CUDA 13 knows, and those after it.
const GENERATIONS: [(i32, i32); 4] = [(7, 5), (8, 0), (9, 0), (12, 0)];

// Get the compiler's log once
/// The compiler's log of a source for a generation, from the cache or from the compiler.
fn log_of(
    source: &gpu::KernelSource,
    options: &[String],
    device: (i32, i32),
) -> Result<String, Error> {
    let verbose = [options, &["--ptxas-options=-v".into()]].concat();
    let key = compiler::key_of(source, &verbose, device, compiler::version());
    let folder = env::current_exe().map(|program| program.with_file_name("kernels-compiled"));
    let file = folder.ok().map(|folder| folder.join(compiler::file_name(source, &key)));
    if let Some(log) = file.as_deref().and_then(|file| compiler::kept(file, &key)) {
        return Ok(String::from_utf8_lossy(&log).into_owned());
    }
    let (_, log) = compiler::compile(source, &verbose, device)?;
    let _ = file.map(|file| compiler::keep(&file, &key, log.as_bytes()));
    Ok(log)
}

// Compile all kernels
#[test]
fn every_kernel_compiles_for_every_generation() {
    if let Err(reason) = probe::require(probe::Library::Nvrtc) {
        return eprintln!("skipped: {reason}");
    }
    let requests = [all_requests::<f64>().unwrap(), all_requests::<f32>().unwrap()].concat();
    let builds: Vec<_> =
        requests.iter().flat_map(|request| GENERATIONS.map(|device| (request, device))).collect();
    let logs: Vec<_> = builds
        .par_iter()
        .map(|((source, options), device)| log_of(source, options, *device))
        .collect();
    // Check the compiler's logs
    let (mut worst, mut spills) = (BTreeMap::<_, (Usage, String)>::new(), Vec::new());
    for (((source, options), (major, minor)), log) in builds.iter().zip(logs) {
        let log = log.unwrap();
        assert!(!log.contains("warning"), "{} {options:?}: {log}", source.name);
        for (kernel, usage) in usages(&log) {
            let build = format!("sm_{major}{minor} {}", options.join(" "));
            if usage.spilled > 0 {
                spills.push(format!("{kernel} {usage:?} {build}"));
            }
            let known = worst.entry((source.name, kernel)).or_default();
            *known = (usage, build).max(known.clone());
        }
    }
    // Print the worst build of each kernel
    for ((source, kernel), (usage, build)) in &worst {
        let Usage { spilled, registers, stack, shared } = usage;
        let name = format!("{source} {kernel}");
        eprintln!(
            "{name:<44}{registers:4} registers{spilled:4} spilled{stack:4} stack{shared:6} shared  {build}"
        );
    }
    let (major, minor) = compiler::version();
    let by = format!("NVRTC {major}.{minor}");
    eprintln!("compiled: {} programs, {} kernels by {by}", builds.len(), worst.len());
    assert!(spills.is_empty(), "these spill:\n{}", spills.join("\n"));
}

// Check how a log is read
#[test]
fn a_log_tells_what_kernels_take() {
    let log = "ptxas info    : 0 bytes gmem\n\
               ptxas info    : Compiling entry function 'sum' for 'sm_90'\n\
               ptxas info    : Function properties for sum\n\
               \x20   8 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads\n\
               ptxas info    : Used 56 registers, used 1 barriers, 41472 bytes smem\n\
               ptxas info    : Compiling entry function 'set' for 'sm_90'\n\
               ptxas info    : Used 7 registers, used 0 barriers";
    let sum = Usage { spilled: 16, registers: 56, stack: 8, shared: 41472 };
    let set = Usage { registers: 7, ..Usage::default() };
    assert_eq!(usages(log), [("sum".to_string(), sum), ("set".to_string(), set)]);
}
