// Tangled from book/src/direct-gpu.md: edit there, or here and run cargo tangle stitch.
//! Slope covariance in real space on graphics processors.

// Imports of the direct kernels
use crate::device::engine::Engine;
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{self, Buffer, Gpu, Header, KernelSource, Shape};
use crate::device::headers::REAL;
use crate::device::{Workers, gather, threads};
use crate::error::Error;
use crate::numerics::quadrature::gauss_legendre;
use crate::numerics::real::{Precision, Real};
use crate::turbulence::direct::slope::{
    CORE, FAR, FILTER, Gradients, LagGrid, NEAR, NEIGHBOURS, REACH, RULES, Window, covariance_of,
    tabulate,
};
use crate::turbulence::phase::gpu::{PHASE, PhaseTablesGpu, RADIAL_TABLE, phase_scales};
use crate::turbulence::slope::{PairCovariance, SlopeProblem};
use crate::watch::Watch;
use ndarray::Array3;
use std::{ops::Range, sync::Arc};

/// The kernels of this chapter.
pub(crate) const DIRECT: KernelSource = KernelSource {
    name: "direct.cu",
    text: include_str!("../../../../kernels/turbulence/direct.cu"),
    headers: &[REAL, RADIAL_TABLE, PHASE, HESSIAN],
};

kernels! {
    /// Kernels of the direct method.
    struct DirectKernels in DIRECT {
        /// Integrals along the edges of lenslets.
        integrate_edges: IntegrateEdges {
            views: [SourcePairLayer] as "LayerPair", half_structures: [f64], half_means: [f64], rule: [f64], edges: [f64],
        }
        /// The kernel of the filter near its centre.
        fill_windows: FillWindows<T> {
            views: [SourcePairLayer] as "LayerPair", edges: [f64], slopes: [T], rules: [f64], windows: [T],
        }
        /// Covariances at all displacements.
        compute_lags: ComputeLags<T> {
            views: [SourcePairLayer] as "LayerPair", layers: usize, slopes: [T], constants: [f64], windows: [T],
            covariance: [T], lags: usize,
        }
    }
}

/// H from S₁, for kernels that include it.
pub(crate) const HESSIAN: Header = Header {
    name: "turbulence/hessian.cuh",
    text: include_str!("../../../../kernels/turbulence/hessian.cuh"),
};

// Layer pair for the device
/// Parameters of a layer for a pair of sources, as the kernels read them; lengths in metres.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct SourcePairLayer {
    first: [f64; 2],
    side: f64,
    strength: f64,
    outer_scale: f64,
    phase: [f64; 4],
    near: [i32; 4],
    far: [i32; 4],
}

// Make the layer pairs of all layers
impl SourcePairLayer {
    /// The layer pairs of some pairs of sources, pair by pair.
    fn all(problem: &SlopeProblem, pairs: &[(usize, usize)]) -> Vec<Self> {
        let window = |window: Window| {
            let (rows, columns) = (window.rows, window.columns);
            [rows.start, rows.len(), columns.start, columns.len()].map(|k| k as i32)
        };
        let views = pairs.iter().flat_map(|&(p, q)| {
            // Make one layer pair after another
            problem.layers().iter().map(move |layer| {
                let grid = LagGrid::new(problem, layer, p, q);
                Self {
                    first: grid.first,
                    side: layer.side,
                    strength: layer.strength,
                    outer_scale: layer.outer_scale,
                    phase: phase_scales(layer.outer_scale, layer.side),
                    near: window(grid.window(NEAR)),
                    far: window(grid.window(FAR)),
                }
            })
        });
        views.collect()
    }
}

// Plan of a slope covariance
/// Slope covariance of some pairs of sources on one device, ready to run.
pub struct SlopePlan<T> {
    gpu: Gpu,
    tables: Arc<PhaseTablesGpu<T>>,
    constants: Buffer<f64>,
    panel: Buffer<f64>,
    views: Vec<Buffer<SourcePairLayer>>,
    edges: Buffer<f64>,
    windows: Buffer<T>,
    /// The results of each batch of pairs.
    covariance: Vec<Buffer<T>>,
    kernels: DirectKernels<T>,
    layers: usize,
    lags: usize,
}

// Sizes of a slope plan and its making
/// Edges and windows of a layer pair; the kernels have the same constants.
const EDGES: usize = 180;
const WINDOW: usize = 32;
const TILE: [usize; 2] = [32, 16];

/// Bytes of edges and windows at most.
const SCRATCH: usize = 24 << 20;

// Constants that all layer pairs share
/// The core, the weights of the filter, and the rules of the middle: nodes, distance, abscissae and weights of each.
fn constants() -> Vec<f64> {
    let mut constants = vec![CORE];
    constants.extend(*FILTER);
    for ((nodes, from), rule) in REACH.iter().zip(RULES.iter()) {
        constants.extend([*nodes as f64, *from]);
        constants.extend(rule.nodes.iter().chain(&rule.weights));
    }
    constants
}

/// Where the rules begin among the constants.
const RULES_AT: usize = 2 + NEIGHBOURS;

// Batches of pairs and their memory
/// Pairs of a batch.
fn batch<T: Real>(layers: usize) -> usize {
    let view = EDGES * 3 * size_of::<f64>() + 3 * WINDOW * WINDOW * size_of::<T>();
    (SCRATCH / (layers * view)).max(1)
}

/// Device memory in bytes for the covariance of a number of pairs: the result, and at most 32 MiB unless a single pair
/// needs more.
pub fn memory<T: Real>(problem: &SlopeProblem, pairs: usize) -> u64 {
    PhaseTablesGpu::<T>::bytes() + bytes::<T>(problem.layers().len(), problem.lags(), pairs)
}

/// Device memory in bytes for a number of pairs without the tables, by the layers and the lags along an axis.
pub(crate) fn bytes<T: Real>(layers: usize, lags: usize, pairs: usize) -> u64 {
    let values = 3 * lags.pow(2) * size_of::<T>();
    let views = layers * pairs.min(batch::<T>(layers));
    let scratch = views * (EDGES * 3 * size_of::<f64>() + 3 * WINDOW * WINDOW * size_of::<T>());
    let parameters = layers * pairs * size_of::<SourcePairLayer>() + 1024;
    (pairs * values + scratch + parameters) as u64
}

impl<T: Real> SlopePlan<T> {
    // Make a plan on a device
    /// Prepares the covariance of the given pairs.
    ///
    /// # Errors
    /// `Device` and `Cuda` where the device fails, or has too little memory.
    pub fn new(
        gpu: &Gpu,
        tables: &Arc<PhaseTablesGpu<T>>,
        problem: &SlopeProblem,
        pairs: &[(usize, usize)],
    ) -> Result<Self, Error> {
        let (layers, lags) = (problem.layers().len(), problem.lags());
        let kernels = DirectKernels::load(gpu, &[])?;
        let batches = || pairs.chunks(batch::<T>(layers));
        let most = layers * batches().map(<[_]>::len).max().unwrap_or(0);
        let panel = gauss_legendre(10);
        let result = |pairs: &[_]| gpu.zeros(pairs.len() * 3 * lags * lags);
        // Gather the parts of a plan
        Ok(Self {
            tables: Arc::clone(tables),
            constants: gpu.upload(&constants())?,
            panel: gpu.upload(&[panel.nodes, panel.weights].concat())?,
            views: batches()
                .map(|pairs| gpu.upload(&SourcePairLayer::all(problem, pairs)))
                .collect::<Result<_, _>>()?,
            edges: gpu.zeros(most * EDGES * 3)?,
            windows: gpu.zeros(most * 3 * WINDOW * WINDOW)?,
            covariance: batches().map(result).collect::<Result<_, _>>()?,
            kernels,
            layers,
            lags,
            gpu: gpu.clone(),
        })
    }
}

// Run the three kernels in batches
impl<T: Real> SlopePlan<T> {
    /// Queues the computation; the result stays on the device.
    ///
    /// # Errors
    /// `Cuda` where the device refuses.
    pub fn run(&self) -> Result<(), Error> {
        for (views, covariance) in self.views.iter().zip(&self.covariance) {
            // Launch the kernels for one batch
            let (kernels, tables, count) = (&self.kernels, &self.tables, views.len());
            let (views, edges, windows) =
                (views.view(..), self.edges.view(..), self.windows.view(..));
            let arguments = IntegrateEdges {
                views,
                half_structures: tables.half_structure.view(..),
                half_means: tables.half_mean.view(..),
                rule: self.panel.view(..),
                edges,
            };
            let shape = Shape { grid: [EDGES.div_ceil(8), count, 1], block: 384, shared: 0 };
            self.gpu.launch(&kernels.integrate_edges, shape, arguments)?;
            let slopes = tables.slope_over_distance.view(..);
            let rules = self.constants.view(RULES_AT..);
            let arguments = FillWindows { views, edges, slopes, rules, windows };
            let shape = Shape { grid: [WINDOW, count, 1], block: 3 * WINDOW, shared: 0 };
            self.gpu.launch(&kernels.fill_windows, shape, arguments)?;
            // Launch the kernel of the lags
            let arguments = ComputeLags {
                views,
                layers: self.layers,
                slopes,
                constants: self.constants.view(..),
                windows,
                covariance: covariance.view(..),
                lags: self.lags,
            };
            let grid =
                [self.lags.div_ceil(TILE[0]), self.lags.div_ceil(TILE[1]), count / self.layers];
            let shape = Shape { grid, block: 384, shared: 0 };
            self.gpu.launch(&kernels.compute_lags, shape, arguments)?;
        }
        Ok(())
    }

    /// Bytes of its buffers on the device.
    #[cfg(test)]
    fn bytes(&self) -> u64 {
        let views: u64 = self.views.iter().map(Buffer::bytes).sum();
        let results: u64 = self.covariance.iter().map(Buffer::bytes).sum();
        let shared = self.constants.bytes() + self.panel.bytes() + PhaseTablesGpu::<T>::bytes();
        views + results + shared + self.edges.bytes() + self.windows.bytes()
    }

    // Read the covariances of a plan
    /// The covariance of a pair on the device, by its number: xx, xy and yy over displacements, rad².
    pub fn pair(&self, pair: usize) -> gpu::BufferView<'_, T> {
        let (batch, values) = (batch::<T>(self.layers), 3 * self.lags.pow(2));
        let first = pair % batch * values;
        self.covariance[pair / batch].view(first..first + values)
    }

    /// The covariances of the plan's pairs, in their order, rad².
    ///
    /// # Errors
    /// `Cuda` where the device fails.
    pub fn read(&self) -> Result<Vec<PairCovariance>, Error> {
        let (lags, mut pairs) = (self.lags, Vec::new());
        for covariance in &self.covariance {
            for pair in covariance.read()?.chunks(3 * lags * lags) {
                let values = pair.iter().map(|value| value.in_double()).collect();
                let pair = Array3::from_shape_vec((3, lags, lags), values);
                pairs.push(pair.unwrap_or_else(|_| unreachable!("same length")));
            }
        }
        Ok(pairs)
    }
}

// Share pairs between graphics processors
// Share pairs in one precision
/// Slope covariance of the pairs of [`SlopeProblem::pairs`], in that order, rad², on graphics processors in the precision `T`.
///
/// # Errors
/// `Memory` where a device has too little, `Device` and `Cuda` where it fails.
#[cfg(any(test, feature = "command"))] // what benches time
pub fn pair_covariances<T: Real>(
    problem: &SlopeProblem,
    gpus: &[Gpu],
    watch: &dyn Watch,
) -> Result<Vec<PairCovariance>, Error> {
    shared::<T>(problem, gpus, false, watch)
}

/// Slope covariance of the pairs of a problem, in their order, rad², by all workers of an engine in its precision; cores use double.
///
/// # Errors
/// As for [`pair_covariances`].
pub fn pair_covariances_on(
    problem: &SlopeProblem,
    engine: &Engine,
    watch: &dyn Watch,
) -> Result<Vec<PairCovariance>, Error> {
    let (gpus, cores) = (engine.devices(), engine.has_cores());
    match engine.precision() {
        _ if gpus.is_empty() => super::pair_covariances(problem, watch),
        Precision::F64 => shared::<f64>(problem, gpus, cores, watch),
        Precision::F32 => shared::<f32>(problem, gpus, cores, watch),
    }
}

// Let cores and devices share the pairs
// Resources of a worker
/// Tables from which a worker computes slope covariances.
enum Resources<'a, T> {
    Cores(Vec<Arc<Gradients>>),
    Device(&'a Gpu, Arc<PhaseTablesGpu<T>>),
}

fn shared<T: Real>(
    problem: &SlopeProblem,
    gpus: &[Gpu],
    cores: bool,
    watch: &dyn Watch,
) -> Result<Vec<PairCovariance>, Error> {
    // Prepare devices and cores for pairs
    let pairs = problem.pairs();
    let prepare = |gpu| Ok(Resources::Device(gpu, Arc::new(PhaseTablesGpu::<T>::on(gpu)?)));
    let devices: Vec<_> = gpus.iter().map(prepare).collect::<Result<_, Error>>()?;
    let cores = cores.then(|| Resources::Cores(tabulate(problem)));
    let threads = if cores.is_some() { threads() } else { 0 };
    let pieces: Vec<_> = pieces(pairs.len(), gpus.len() + threads).collect();
    let workers = Workers { cores: cores.as_ref(), devices: &devices };
    let computed = gather(workers, pieces, watch, |tools, piece| match tools {
        Resources::Cores(gradients) => {
            let pairs = pairs[piece].iter();
            Ok(pairs.map(|&pair| covariance_of(problem, gradients, pair)).collect())
        }
        Resources::Device(gpu, tables) => {
            let plan = SlopePlan::new(gpu, tables, problem, &pairs[piece])?;
            plan.run()?;
            plan.read()
        }
    })?;
    Ok(computed.into_iter().flatten().collect())
}

// Cut pairs into equal pieces
/// Divides a number of items into equal ranges: one range for one worker, otherwise about four for each.
pub(crate) fn pieces(items: usize, workers: usize) -> impl Iterator<Item = Range<usize>> {
    let count = if workers == 1 { 1 } else { items.min(4 * workers) };
    (0..count).map(move |k| k * items / count..(k + 1) * items / count)
}

// Tests of the direct method on devices
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::model::atmosphere::{Atmosphere, Layer};
    use crate::model::lenslet_array::LensletArray;
    use crate::model::source::{ConeGradient, Source};
    use crate::watch::unwatched;

    // Pose a lopsided problem for devices
    fn problem(lenslets: usize, pitch: f64, height: f64, outer_scales: [f64; 3]) -> SlopeProblem {
        let altitudes = [0.0, 4000.0, 11_000.0];
        let layer = |k: usize| Layer::new(altitudes[k], [0.5, 0.3, 0.2][k], outer_scales[k]);
        let atmosphere = Atmosphere::new(0.15, 500e-9, (0..3).map(layer).collect()).unwrap();
        let star = |(zenith, azimuth)| Source::new(zenith, azimuth, height).unwrap();
        let stars = [(1e-4, 0.3), (3e-4, 2.0), (1.5e-3, 4.4)].map(star);
        let array = LensletArray::new(lenslets, pitch).unwrap();
        SlopeProblem::new(&atmosphere, &array, &stars, ConeGradient::Pupil).unwrap()
    }

    /// The largest difference from the processor, in units of the variance.
    fn error<T: Real>(problem: &SlopeProblem, gpu: &Gpu) -> f64 {
        let there = pair_covariances::<T>(problem, std::slice::from_ref(gpu), &unwatched).unwrap();
        let here = crate::turbulence::direct::slope::pair_covariances(problem, &unwatched).unwrap();
        let centre = problem.lenslets() - 1;
        let variance = here[0][[0, centre, centre]];
        assert_eq!(there.len(), here.len());
        let differences = there.iter().zip(&here).flat_map(|(there, here)| {
            there.iter().zip(here).map(|(there, here)| (there - here).abs())
        });
        differences.fold(0.0, |a: f64, b| if b.is_nan() { f64::INFINITY } else { a.max(b) })
            / variance
    }

    // Compare devices with the processor
    #[test]
    fn devices_agree_with_the_processor() {
        let infinity = f64::INFINITY;
        for gpu in test_backends() {
            for (lenslets, pitch, height, outer_scales) in [
                (1, 0.5, infinity, [25.0; 3]),
                (6, 0.4, infinity, [25.0, 9.0, infinity]),
                (27, 0.2, 90e3, [30.0, 0.05, 800.0]),
            ] {
                let problem = problem(lenslets, pitch, height, outer_scales);
                let [double, single] = [error::<f64>(&problem, &gpu), error::<f32>(&problem, &gpu)];
                assert!(double < 1e-12, "{gpu:?}, N = {lenslets}: {double:e}");
                assert!(single < 1e-6 && single > 1e-9, "{gpu:?}, N = {lenslets}: {single:e}");
            }
        }
    }

    // Check that devices share their work
    #[test]
    fn the_result_does_not_depend_on_the_number_of_devices() {
        for gpu in test_backends() {
            let problem = problem(5, 0.4, 90e3, [25.0; 3]);
            let one =
                pair_covariances::<f64>(&problem, std::slice::from_ref(&gpu), &unwatched).unwrap();
            let three =
                pair_covariances::<f64>(&problem, &[(); 3].map(|()| gpu.clone()), &unwatched);
            assert_eq!(one, three.unwrap());
            let engine = Engine::gpus(vec![gpu.clone()], Precision::F64).unwrap().with_cores();
            let mixed = pair_covariances_on(&problem, &engine, &unwatched).unwrap();
            let largest = one[0].iter().fold(0.0, |most: f64, value| most.max(value.abs()));
            let all = one.iter().flatten().zip(mixed.iter().flatten());
            assert!(
                mixed.len() == one.len()
                    && all.clone().all(|(a, b)| (a - b).abs() < 1e-11 * largest)
            );
            let tables = Arc::new(PhaseTablesGpu::<f64>::on(&gpu).unwrap());
            let plan = SlopePlan::new(&gpu, &tables, &problem, &problem.pairs()).unwrap();
            assert!(plan.bytes() <= memory::<f64>(&problem, problem.pairs().len()));
        }
    }
}
