// Tangled from book/src/wavefront-gpu.md: edit there, or here and run cargo tangle stitch.
//! Wavefront–slope covariance in real space, on graphics processors.

// Imports of the wavefront kernels
use crate::device::engine::Engine;
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, Gpu, KernelSource, Shape};
use crate::device::headers::{GENERATION, REAL};
use crate::device::{Workers, gather, threads};
use crate::error::Error;
use crate::numerics::quadrature::gauss_legendre;
use crate::numerics::real::Real;
use crate::turbulence::direct::slope::gpu::pieces;
use crate::turbulence::direct::wavefront::{CORE, FAR, NEAR, NODES, box_filter, distances};
use crate::turbulence::direct::wavefront::{Reference, field_of, references};
use crate::turbulence::disc::DiscAverage;
use crate::turbulence::phase::VonKarman;
use crate::turbulence::phase::gpu::{PHASE, PhaseTablesGpu, RADIAL_TABLE, phase_scales};
use crate::turbulence::wavefront::{WavefrontLayer, WavefrontProblem, WavefrontSlope};
use crate::watch::Watch;
use ndarray::Array5;
use rayon::prelude::*;
use std::{ops::Range, sync::Arc};

/// The kernels of this chapter.
pub(crate) const WAVEFRONT: KernelSource = KernelSource {
    name: "wavefront.cu",
    text: include_str!("../../../../kernels/turbulence/wavefront.cu"),
    headers: &[GENERATION, REAL, RADIAL_TABLE, PHASE],
};

// Kernels of wavefronts and slopes
kernels! {
    /// Kernels of the wavefront–slope covariance in real space.
    struct WavefrontKernels in WAVEFRONT {
        /// Integrals and means near the axis.
        wavefront_close: WavefrontClose<T> {
            views: [TargetStarLayer] as "LayerPair", count: usize, half_structures: [f64], half_structure_discs: [f64] as "Stretch<double>",
            rule: [f64], oversampling: usize, pieces: [f64], all_pieces: usize, slopes: [T],
            discs: [T] as "Stretch<real>", rules: [T] as "Rules", means: [T], all_means: usize,
        }
        /// Covariances at all displacements of some rows.
        wavefront_field: WavefrontField<T> {
            views: [TargetStarLayer] as "LayerPair", stride: usize, layers: usize, slopes: [T], discs: [T] as "Stretch<real>",
            rules: [T] as "Rules", pieces: [f64], means: [T], oversampling: usize, field: [T],
            lags: usize, begin: usize, end: usize,
        }
    }
}

// Layer pair for a wavefront
/// Parameters of a layer for a target and a guide star, as the kernels read them.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct TargetStarLayer {
    first: [f64; 2],
    step: f64,
    side: f64,
    phase: [f64; 4],
    kink: f64,
    outer_scale: f64,
    segments: [f64; 2],
    strength: f64,
    corners: GridFrame,
    middle: GridFrame,
}

/// First row and column, rows, columns, and the number of the first in its list.
type GridFrame = [i32; 5];

impl TargetStarLayer {
    // Make the layer pair of a wavefront
    fn new(
        problem: &WavefrontProblem,
        layer: &WavefrontLayer,
        (t, q): (usize, usize),
        segments: Range<usize>,
    ) -> Self {
        Self {
            first: problem.first_lag(layer, t, q),
            step: layer.step,
            side: layer.side,
            phase: phase_scales(layer.outer_scale, layer.side),
            kink: layer.disc,
            outer_scale: layer.outer_scale,
            segments: [segments.start, segments.len()].map(|k| k as f64),
            strength: -layer.slope_strength,
            corners: [0; 5],
            middle: [0; 5],
        }
    }

    // Frame the close lags of a layer
    // Find the lags near the circle
    /// The rows and the columns of lags within `distance` \[m\] of the circle.
    fn within(&self, distance: f64, [rows, columns]: [&Range<usize>; 2]) -> [Range<usize>; 2] {
        let reach = self.kink + distance + 0.01 * self.side;
        [(1, rows), (0, columns)].map(|(axis, all)| {
            let number = |x: f64| (x - self.first[axis]) / self.step;
            let first = number(-reach).ceil().max(all.start as f64) as usize;
            let last = number(reach).floor().min(all.end as f64 - 1.0);
            first..(last + 1.0).max(first as f64) as usize
        })
    }

    /// Frames the close lags among `lags` columns and the given rows, and lengthens the lists of pieces and of means.
    fn frame(
        &mut self,
        lags: usize,
        rows: &Range<usize>,
        oversampling: usize,
        lists: &mut [usize; 2],
    ) {
        let all = [&(rows.start..rows.end.min(lags)), &(0..lags)];
        let frame = |distance: f64, more: usize, first: usize| {
            let [rows, columns] = self.within(distance, all);
            let empty = rows.is_empty() || columns.is_empty();
            let [tall, wide] =
                [&rows, &columns].map(|range| if empty { 0 } else { range.len() + more });
            ([rows.start, columns.start, tall, wide, first].map(|k| k as i32), tall * wide)
        };
        let (corners, crossings) = frame(NEAR * self.side, oversampling, lists[0]);
        let (middle, means) = frame(far(oversampling) * self.step, 0, lists[1]);
        (self.corners, self.middle) = (corners, middle);
        *lists = [lists[0] + 2 * crossings, lists[1] + means];
    }
}

// Where the far zone begins
/// Beyond so many steps to a side the rules of Gauss do the filter's work.
const WIDEST: usize = 16;

/// Where the far zone begins, in steps; at the end of the world where there is none.
fn far(oversampling: usize) -> f64 {
    if oversampling > WIDEST { 1e30 } else { FAR[0] + FAR[1] * oversampling as f64 }
}

// Averaged phases for devices
/// Segments of all averaged phases, and which of them are each layer's.
struct Averages {
    half_structures: Vec<f64>,
    slopes: Vec<f64>,
    layers: Vec<Range<usize>>,
}

impl Averages {
    fn new(problem: &WavefrontProblem) -> Self {
        let tabulate = |layer: &WavefrontLayer| {
            let [_, farthest] = distances(problem, layer);
            let phase = VonKarman::new(layer.outer_scale);
            let disc = || DiscAverage::new(&phase, layer.disc, farthest).stretches();
            if layer.disc > 0.0 { disc() } else { Default::default() }
        };
        let tables: Vec<_> = problem.layers().par_iter().map(tabulate).collect();
        // Gather the segments of all layers
        let (mut half_structures, mut slopes, mut layers, mut first) =
            (Vec::new(), Vec::new(), Vec::new(), 0);
        for [half_structure, slope] in tables {
            layers.push(first..first + half_structure.len());
            first += half_structure.len();
            half_structures.extend(half_structure.into_iter().flatten());
            slopes.extend(slope.into_iter().flatten());
        }
        Self { half_structures, slopes, layers }
    }
}

// Plans of wavefronts on devices
// Batches of wavefront layer pairs
/// Bytes of the two lists at most, unless a single band of rows needs more.
const SCRATCH: usize = 24 << 20;

/// The narrowest band of rows, a multiple of a tile's.
const BAND: usize = 64;

/// Layer pairs whose pieces and means are in the lists at the same time.
struct Batch {
    /// Their pairs of a target and a star, as numbers in the plan; each has a layer pair for every layer.
    pairs: Range<usize>,
    /// The rows of lags that they cover.
    rows: Range<usize>,
    views: Vec<TargetStarLayer>,
    /// The lengths of their lists, of pieces and of means.
    lists: [usize; 2],
}

impl Batch {
    // Frame the layer pairs of a batch
    fn new(
        problem: &WavefrontProblem,
        averages: &[Range<usize>],
        pairs: &[(usize, usize)],
        numbers: Range<usize>,
        rows: Range<usize>,
    ) -> Self {
        let (mut views, mut lists) = (Vec::new(), [0, 0]);
        for &pair in &pairs[numbers.clone()] {
            for (layer, segments) in problem.layers().iter().zip(averages) {
                let mut view = TargetStarLayer::new(problem, layer, pair, segments.clone());
                let oversampling = problem.grid().oversampling;
                view.frame(problem.lags(layer), &rows, oversampling, &mut lists);
                views.push(view);
            }
        }
        Self { pairs: numbers, rows, views, lists }
    }

    // Measure the lists of a batch
    /// Bytes of both lists.
    fn bytes<T>(&self) -> usize {
        self.lists[0] * size_of::<f64>() + self.lists[1] * 2 * size_of::<T>()
    }
}

// Halve the work into batches
/// The batches of a plan, with lists of `most` bytes where that can be had.
fn batches<T>(
    problem: &WavefrontProblem,
    averages: &[Range<usize>],
    pairs: &[(usize, usize)],
    most: usize,
) -> Vec<Batch> {
    let lags = problem.layers().iter().map(|layer| problem.lags(layer)).max().unwrap_or(0);
    let (mut waiting, mut batches) = (vec![(0..pairs.len(), 0..lags)], Vec::new());
    while let Some((numbers, rows)) = waiting.pop() {
        let batch = Batch::new(problem, averages, pairs, numbers.clone(), rows.clone());
        let too_large = batch.bytes::<T>() > most;
        // Halve a batch that is too large
        if too_large && numbers.len() > 1 {
            let middle = numbers.start + numbers.len() / 2;
            waiting.push((middle..numbers.end, rows.clone()));
            waiting.push((numbers.start..middle, rows));
        } else if too_large && rows.len() > BAND {
            let middle = rows.start + (rows.len() / 2).next_multiple_of(BAND).min(rows.len() - 1);
            waiting.push((numbers.clone(), middle..rows.end));
            waiting.push((numbers, rows.start..middle));
        } else {
            batches.push(batch);
        }
    }
    batches
}

// Rules of the zones for devices
/// Distances and rules of the zones, as the kernels' `Rules` hold them, and the filter's reach.
fn rules(oversampling: usize) -> (Vec<f64>, usize) {
    let mut rules = vec![NEAR, CORE, far(oversampling)];
    rules.extend(NODES.map(|(_, from)| from));
    for rule in NODES.map(|(nodes, _)| gauss_legendre(nodes)) {
        rules.extend(rule.nodes.iter().chain(&rule.weights));
    }
    let filter = if oversampling > WIDEST { vec![0.0] } else { box_filter(oversampling) };
    rules.extend(&filter);
    (rules, filter.len() / 2)
}

// What a device keeps for wavefronts
/// What the plans of a problem share on one device.
struct WavefrontTables<T> {
    gpu: Gpu,
    kernels: WavefrontKernels<T>,
    tables: Arc<PhaseTablesGpu<T>>,
    half_structures: Buffer<f64>,
    slopes: Buffer<T>,
    rules: Buffer<T>,
    panel: Buffer<f64>,
}

/// Nodes on a panel of a piece, as in the kernels.
const PANEL_NODES: usize = 10;

// Copy what a device keeps
impl<T: Real> WavefrontTables<T> {
    fn new(
        gpu: &Gpu,
        tables: &Arc<PhaseTablesGpu<T>>,
        problem: &WavefrontProblem,
        averages: &Averages,
    ) -> Result<Self, Error> {
        let (rules, reach) = rules(problem.grid().oversampling);
        let panel = gauss_legendre(PANEL_NODES);
        // Copy the tools to the device
        let round = |values: &[f64]| values.iter().map(|&value| T::of(value)).collect::<Vec<T>>();
        Ok(Self {
            kernels: WavefrontKernels::load(gpu, &[("REACH", reach)])?,
            tables: Arc::clone(tables),
            half_structures: gpu.upload(&averages.half_structures)?,
            slopes: gpu.upload(&round(&averages.slopes))?,
            rules: gpu.upload(&round(&rules))?,
            panel: gpu.upload(&[panel.nodes, panel.weights].concat())?,
            gpu: gpu.clone(),
        })
    }
}

// Plan of a wavefront covariance
/// Wavefront–slope covariance on one device, ready to run.
pub struct WavefrontPlan<T> {
    tools: Arc<WavefrontTables<T>>,
    oversampling: usize,
    /// First layer, layers and lags of each lattice.
    lattices: Vec<[usize; 3]>,
    batches: Vec<(Batch, Buffer<TargetStarLayer>)>,
    pieces: Buffer<f64>,
    means: Buffer<T>,
    fields: Vec<Buffer<T>>,
}

// Make, run and read a plan
impl<T: Real> WavefrontPlan<T> {
    // Make a plan for all pairs
    /// Prepares the covariance of all targets and guide stars of a problem.
    ///
    /// # Errors
    /// `Device` and `Cuda` where the device fails, or has too little memory.
    #[cfg(any(test, feature = "command"))] // what benches time
    pub fn new(
        gpu: &Gpu,
        tables: &Arc<PhaseTablesGpu<T>>,
        problem: &WavefrontProblem,
    ) -> Result<Self, Error> {
        let pairs = pairs(problem);
        let averages = Averages::new(problem);
        let tools = Arc::new(WavefrontTables::new(gpu, tables, problem, &averages)?);
        Self::of_pairs(&tools, problem, &averages.layers, &pairs, SCRATCH)
    }

    // Make a plan for some pairs
    /// A plan of the given pairs only, with lists of `most` bytes.
    fn of_pairs(
        tools: &Arc<WavefrontTables<T>>,
        problem: &WavefrontProblem,
        averages: &[Range<usize>],
        pairs: &[(usize, usize)],
        most: usize,
    ) -> Result<Self, Error> {
        let gpu = &tools.gpu;
        // Number the layers of each lattice
        let mut first = 0;
        let lattices = problem.lattices().map(|layers| {
            first += layers.len();
            [first - layers.len(), layers.len(), problem.lags(&layers[0])]
        });
        let lattices: Vec<[usize; 3]> = lattices.collect();
        let batches = batches::<T>(problem, averages, pairs, most);
        let longest = |k: usize| batches.iter().map(|batch| batch.lists[k]).max().unwrap_or(0);
        let (pieces, means) = (longest(0), longest(1));
        let field = |&[_, _, lags]: &[usize; 3]| gpu.zeros(pairs.len() * 2 * lags * lags);
        let upload = |batch: Batch| gpu.upload(&batch.views).map(|views| (batch, views));
        Ok(Self {
            tools: Arc::clone(tools),
            oversampling: problem.grid().oversampling,
            pieces: gpu.zeros(pieces)?,
            means: gpu.zeros(2 * means)?,
            fields: lattices.iter().map(field).collect::<Result<_, _>>()?,
            batches: batches.into_iter().map(upload).collect::<Result<_, _>>()?,
            lattices,
        })
    }

    // Run the plan batch by batch
    /// Queues the computation; the result stays on the device.
    ///
    /// # Errors
    /// `Cuda` if a launch fails.
    pub fn run(&self) -> Result<(), Error> {
        for (batch, views) in &self.batches {
            self.compute_close(batch, views)?;
            for (lattice, field) in self.lattices.iter().zip(&self.fields) {
                self.fill_field(batch, views, lattice, field)?;
            }
        }
        Ok(())
    }

    // Launch the kernel of the close lags
    fn compute_close(&self, batch: &Batch, views: &Buffer<TargetStarLayer>) -> Result<(), Error> {
        let (tools, [pieces, means]) = (&*self.tools, batch.lists);
        let arguments = WavefrontClose {
            views: views.view(..),
            count: views.len(),
            half_structures: tools.tables.half_structure.view(..),
            half_structure_discs: tools.half_structures.view(..),
            rule: tools.panel.view(..),
            oversampling: self.oversampling,
            pieces: self.pieces.view(..),
            all_pieces: pieces,
            slopes: tools.tables.slope_over_distance.view(..),
            discs: tools.slopes.view(..),
            rules: tools.rules.view(..),
            means: self.means.view(..),
            all_means: means,
        };
        let blocks = pieces.div_ceil(4) + means.div_ceil(128);
        let shape = Shape::over(128 * blocks, 128, [1, 1]);
        tools.gpu.launch(&tools.kernels.wavefront_close, shape, arguments)
    }

    // Launch the kernel of the field
    fn fill_field(
        &self,
        batch: &Batch,
        views: &Buffer<TargetStarLayer>,
        &[first, layers, lags]: &[usize; 3],
        field: &Buffer<T>,
    ) -> Result<(), Error> {
        let tools = &*self.tools;
        let rows = batch.rows.start..batch.rows.end.min(lags);
        let grid = [lags.div_ceil(TILE), rows.len().div_ceil(TILE), batch.pairs.len()];
        let stride = views.len() / batch.pairs.len();
        // Arguments of the kernel of the field
        let arguments = WavefrontField {
            views: views.view(first..),
            stride,
            layers,
            slopes: tools.tables.slope_over_distance.view(..),
            discs: tools.slopes.view(..),
            rules: tools.rules.view(..),
            pieces: self.pieces.view(..),
            means: self.means.view(..),
            oversampling: self.oversampling,
            field: field.view(batch.pairs.start * 2 * lags * lags..),
            lags,
            begin: rows.start,
            end: rows.end,
        };
        let shape = Shape { grid, block: TILE * TILE, shared: 0 };
        tools.gpu.launch(&tools.kernels.wavefront_field, shape, arguments)
    }

    // Read the fields of a plan
    /// The result on the device, an array (pairs, 2, K, K) for each lattice, by rows, m rad. The pairs are the stars of the first
    /// target, then those of the second, …
    #[cfg(test)]
    fn fields(&self) -> &[Buffer<T>] {
        &self.fields
    }

    /// The fields in double precision, an array (pairs, 2, K, K) for each lattice.
    fn read(&self) -> Result<Vec<Vec<f64>>, Error> {
        let read = |field: &Buffer<T>| {
            field.read().map(|values| values.iter().map(|value| value.in_double()).collect())
        };
        self.fields.iter().map(read).collect()
    }
    /// Bytes of its buffers on the device.
    #[cfg(test)]
    fn bytes(&self) -> u64 {
        let tools = &*self.tools;
        let tools = [
            tools.half_structures.bytes(),
            tools.slopes.bytes(),
            tools.rules.bytes(),
            tools.panel.bytes(),
        ];
        let views: u64 = self.batches.iter().map(|(_, views)| views.bytes()).sum();
        let fields: u64 = self.fields.iter().map(Buffer::bytes).sum();
        let lists = self.pieces.bytes() + self.means.bytes();
        PhaseTablesGpu::<T>::bytes() + tools.iter().sum::<u64>() + views + fields + lists
    }
}

// Memory that a plan takes
/// Target and guide star of each pair: the stars of the first target, then those of the second, …
fn pairs(problem: &WavefrontProblem) -> Vec<(usize, usize)> {
    let stars = problem.stars();
    (0..problem.targets() * stars).map(|k| (k / stars, k % stars)).collect()
}

/// Bytes of a device's memory that the covariance of so many pairs of a target and a star takes: the result, and at most 32 MiB.
pub fn memory<T: Real>(problem: &WavefrontProblem, pairs: usize) -> u64 {
    let (points, all) = (vec![0..0; problem.layers().len()], self::pairs(problem));
    let batches = batches::<T>(problem, &points, &all, SCRATCH);
    let longest = batches.iter().map(Batch::bytes::<T>).max().unwrap_or(0);
    let lists = longest.max(SCRATCH.min(batches.iter().map(Batch::bytes::<T>).sum()));
    let views: usize =
        batches.iter().map(|batch| batch.views.len() * size_of::<TargetStarLayer>()).sum();
    let result = problem.len() / all.len() * pairs * size_of::<T>();
    // A disc's table has some 50 segments, or a few hundred where the outer scale is far shorter than the disc.
    let discs = problem.layers().iter().filter(|layer| layer.disc > 0.0).count();
    PhaseTablesGpu::<T>::bytes() + (result + lists + views + (discs << 17) + 4096) as u64
}

// Lags that a block computes
/// Rows and columns of lags that a block computes, as in the kernels.
const TILE: usize = 16;

// Share targets and stars between devices
// Cores together with devices
/// What wavefronts and slopes are computed with.
enum WavefrontWorker<T> {
    Cores(Vec<Reference>),
    Device(Arc<WavefrontTables<T>>),
}

/// The fields of some pairs of target and star, lattice by lattice, as a device's plan reads them.
fn on_cores(
    problem: &WavefrontProblem,
    references: &[Reference],
    pairs: &[(usize, usize)],
) -> Vec<Vec<f64>> {
    let field_on = |(k, lattice): (usize, &[WavefrontLayer])| {
        let fields = pairs.iter().map(|&pair| field_of(problem, (lattice, &references[k..]), pair));
        fields.flat_map(|field| field.into_iter()).collect()
    };
    problem.lattices().enumerate().map(field_on).collect()
}

/// Wavefront–slope covariance by all workers of an engine, devices among them, in the precision `T` on these, m rad; cores compute in
/// double precision.
///
/// Within 1e-11 of the largest entry of what [`crate::turbulence::direct::wavefront::covariance`] computes in double precision, and 2e-6 in
/// single.
///
/// # Errors
/// `Memory` where a device has too little, `Device` and `Cuda` where it fails.
pub fn covariance<T: Real>(
    problem: &WavefrontProblem,
    engine: &Engine,
    watch: &dyn Watch,
) -> Result<WavefrontSlope, Error> {
    let (averages, pairs, gpus) = (Averages::new(problem), pairs(problem), engine.devices());
    // Give tables to all workers
    let prepare = |gpu: &Gpu| {
        let tables = Arc::new(PhaseTablesGpu::on(gpu)?);
        WavefrontTables::<T>::new(gpu, &tables, problem, &averages)
            .map(|tools| WavefrontWorker::Device(tools.into()))
    };
    let devices: Vec<_> = gpus.iter().map(prepare).collect::<Result<_, _>>()?;
    let cores = engine.has_cores().then(|| WavefrontWorker::Cores(references(problem)));
    let threads = if cores.is_some() { threads() } else { 0 };
    let pieces: Vec<_> = pieces(pairs.len(), gpus.len() + threads).collect();
    // Compute the pieces of pairs
    let workers = Workers { cores: cores.as_ref(), devices: &devices };
    let fields = gather(workers, pieces, watch, |worker, piece| {
        let pairs = &pairs[piece];
        match worker {
            WavefrontWorker::Cores(references) => Ok(on_cores(problem, references, pairs)),
            WavefrontWorker::Device(tools) => {
                let layers = &averages.layers;
                let plan = WavefrontPlan::of_pairs(tools, problem, layers, pairs, SCRATCH)?;
                plan.run()?;
                plan.read()
            }
        }
    })?;
    // Gather the fields in their lattices
    let (targets, stars) = (problem.targets(), problem.stars());
    let gather = |(lattice, layers): (usize, &[WavefrontLayer])| {
        let lags = problem.lags(&layers[0]);
        let values: Vec<f64> =
            fields.iter().flat_map(|piece| piece[lattice].iter().copied()).collect();
        let array = Array5::from_shape_vec((targets, stars, 2, lags, lags), values);
        array.unwrap_or_else(|_| unreachable!("pairs of all pieces, in their order"))
    };
    Ok(WavefrontSlope::of_lattices(problem.lattices().enumerate().map(gather).collect()))
}

// Tests of the wavefront kernels
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::model::atmosphere::{Atmosphere, Layer};
    use crate::model::lenslet_array::LensletArray;
    use crate::model::source::{ConeGradient, Source};
    use crate::model::wavefront_grid::PhaseGrid;
    use crate::numerics::real::Precision;
    use crate::turbulence::direct;
    use crate::watch::unwatched;

    // Pose lopsided wavefronts for devices
    /// Three layers, two targets at infinity, three stars at `height`, none in the middle.
    fn problem(
        (lenslets, pitch): (usize, f64),
        (points, oversampling): (usize, usize),
        (height, disc): (f64, f64),
        outer_scales: [f64; 3],
    ) -> WavefrontProblem {
        let altitudes = [0.0, 4000.0, 11_000.0];
        let layer = |k: usize| Layer::new(altitudes[k], [0.5, 0.3, 0.2][k], outer_scales[k]);
        let atmosphere = Atmosphere::new(0.15, 500e-9, (0..3).map(layer).collect()).unwrap();
        let star = |(zenith, azimuth)| Source::new(zenith, azimuth, height).unwrap();
        let stars = [(1e-4, 0.3), (3e-4, 2.0), (2e-3, 4.4)].map(star);
        let targets = [(2e-5, 1.0), (4e-4, 3.0)].map(|(z, a)| Source::star(z, a).unwrap());
        let array = LensletArray::new(lenslets, pitch).unwrap();
        let grid = PhaseGrid::new(points, oversampling, disc).unwrap();
        WavefrontProblem::new(&atmosphere, &array, (&targets, &stars), grid, ConeGradient::Pupil)
            .unwrap()
    }

    // Largest difference from the processor
    /// The largest difference from what the processor has found, in units of the largest entry.
    fn error<T: Real>(problem: &WavefrontProblem, here: &WavefrontSlope, gpu: &Gpu) -> f64 {
        let engine = Engine::gpus(vec![gpu.clone()], T::PRECISION).unwrap();
        let there = covariance::<T>(problem, &engine, &unwatched).unwrap();
        let pairs = there.lattices().iter().zip(here.lattices());
        let differences = pairs.flat_map(|(there, here)| {
            assert_eq!(there.dim(), here.dim());
            there.iter().zip(here).map(|(there, here)| (there - here).abs())
        });
        let largest = |a: f64, b: f64| if b.is_nan() { f64::INFINITY } else { a.max(b) };
        differences.fold(0.0, largest) / here.largest()
    }

    // Compare wavefronts with the processor
    #[test]
    fn devices_agree_with_the_processor() {
        let infinity = f64::INFINITY;
        for gpu in test_backends() {
            for (array, grid, sources, outer_scales) in [
                ((9, 0.2), (10, 1), (90e3, 0.0), [25.0, 0.1, infinity]),
                ((7, 0.5), (9, 2), (infinity, 1e-4), [25.0, 2.0, infinity]),
                ((5, 0.4), (10, 3), (90e3, 2e-4), [infinity, 25.0, 0.3]),
                ((2, 0.5), (12, 11), (90e3, 0.0), [infinity, 25.0, 0.3]),
            ] {
                let problem = problem(array, grid, sources, outer_scales);
                let here = direct::wavefront::covariance(&problem, &unwatched).unwrap();
                let double = error::<f64>(&problem, &here, &gpu);
                let single = error::<f32>(&problem, &here, &gpu);
                assert!(double < 1e-11, "{gpu:?}, {array:?}, {grid:?}: {double:e}");
                assert!(single < 2e-6 && single > 1e-9, "{gpu:?}, {array:?}, {grid:?}: {single:e}");
            }
        }
    }

    // Check that devices share their wavefronts
    #[test]
    fn the_result_does_not_depend_on_devices_or_batches() {
        for gpu in test_backends() {
            let problem = problem((30, 0.4), (41, 1), (90e3, 2e-4), [25.0; 3]);
            let engine = |count| Engine::gpus(vec![gpu.clone(); count], Precision::F32).unwrap();
            let computed = |problem: &WavefrontProblem, engine| {
                covariance::<f32>(problem, &engine, &unwatched).unwrap()
            };
            assert_eq!(computed(&problem, engine(1)), computed(&problem, engine(3)));
            // Let cores work beside a device
            let small = self::problem((3, 0.4), (5, 1), (90e3, 0.0), [25.0; 3]);
            let [one, mixed] = [engine(1), engine(1).with_cores()].map(|e| computed(&small, e));
            for (ours, theirs) in mixed.lattices().iter().zip(one.lattices()) {
                assert!((ours - theirs).iter().all(|rest| rest.abs() < 2e-6 * one.largest()));
            }
            // Compute the same in many batches
            let averages = Averages::new(&problem);
            let tables = Arc::new(PhaseTablesGpu::on(&gpu).unwrap());
            let tools =
                Arc::new(WavefrontTables::<f32>::new(&gpu, &tables, &problem, &averages).unwrap());
            let plan = |most| {
                let pairs = &pairs(&problem);
                WavefrontPlan::of_pairs(&tools, &problem, &averages.layers, pairs, most).unwrap()
            };
            let (whole, many) = (plan(SCRATCH), plan(1000));
            assert!(
                whole.batches.len() == 1
                    && many.batches.len() > 6
                    && many.pieces.len() < whole.pieces.len()
            );
            let needed = memory::<f32>(&problem, 6);
            assert!(whole.bytes() <= needed && needed < whole.bytes() + (1 << 20));
            whole.run().unwrap();
            many.run().unwrap();
            assert_eq!(whole.read().unwrap(), many.read().unwrap());
            let record = gpu.record(|| whole.run()).unwrap();
            whole.fields()[0].clear().unwrap();
            gpu.replay(&record).unwrap();
            assert_eq!(whole.fields()[0].read().unwrap(), many.fields()[0].read().unwrap());
        }
    }
}
