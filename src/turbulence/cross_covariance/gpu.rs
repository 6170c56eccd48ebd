// Tangled from book/src/dense-gpu.md: edit there, or here and run cargo tangle stitch.
//! Covariances without a Toeplitz form on graphics processors.

// Imports of the dense kernel
use super::{
    AverageRequest, RINGS, SensorLayer, Slopes, TurnedAverage, average_requests, half_square,
    numbers_of_tables, pairs_of, prepare_averages, rectangle, see_layers, shares, square,
};
use crate::device::collective::BlockCyclic;
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{self, Buffer, Gpu, Header, KernelSource, Shape};
use crate::device::headers::REAL;
use crate::device::{Workers, dispatch};
use crate::error::Error;
use crate::model::atmosphere::Atmosphere;
use crate::model::sensor::{Groups, Sensor};
use crate::model::source::ConeGradient;
use crate::numerics::quadrature::gauss_legendre;
use crate::numerics::real::{Precision, Real};
use crate::turbulence::aligned_footprints::{FootprintAverage, NEAR, REACH};
use crate::turbulence::direct::slope::gpu::{self as tables, HESSIAN, SlopePlan};
use crate::turbulence::phase::gpu::{PHASE, PhaseTablesGpu, RADIAL_TABLE, phase_scales};
use crate::turbulence::rotated_footprints::{THIN, Turn, TurnedSquares};
use crate::turbulence::slope::SlopeProblem;
use crate::watch::{Watch, check};
use ndarray::Array2;
use std::sync::Arc;

/// The kernel of this chapter.
pub(crate) const DENSE: KernelSource = KernelSource {
    name: "cross_covariance.cu",
    text: include_str!("../../../kernels/turbulence/cross_covariance.cu"),
    headers: &[REAL, RADIAL_TABLE, PHASE, HESSIAN, PLACES],
};

// Kernels of two sensors
kernels! {
    /// Kernels of covariances without a Toeplitz form.
    struct CrossKernels in DENSE {
        /// Averages of pairs of lenslets that are near each other.
        near_pairs: NearPairs {
            views: [SensorPairLayer] as "LayerPair", centres: [f64], first: [i32], across_first: usize, across_second: usize,
            around: usize, half_structures: [f64], half_means: [f64], rule: [f64], near: [f64],
        }
        /// A block of averages.
        dense_block: DenseBlock<T> {
            views: [SensorPairLayer] as "LayerPair", layers: usize, centres: [f64], first: [i32], second: [i32],
            across_first: usize, across_second: usize, columns: usize, pitch: usize, height: usize,
            slopes: [T], nodes: [T], around: usize, near: [f64], values: [T],
        }
        /// The positions of columns on the panels of their tables.
        place_columns: PlaceColumns {
            views: [AlignedPairLayer] as "TableView", centres: [f64], tables: [f64], along: [[f64; 2]] as "PlaceOnPanel",
        }
        /// Tables of parallel footprints along lines.
        lay_lines: LayLines<T> {
            views: [AlignedPairLayer] as "TableView", centres: [f64], tables: [f64], first_row: usize, lines: [T],
            length: usize, near_lines: [f64], near_length: usize,
        }
        // Kernels of blocks from tables
        /// A block of parallel footprints from their lines.
        tabled_block: TabledBlock<T> {
            views: [AlignedPairLayer] as "TableView", layers: usize, centres: [f64], first: [i32], second: [i32],
            columns: usize, pitch: usize, height: usize, tables: [f64], along: [[f64; 2]] as "PlaceOnPanel",
            first_row: usize, line_rows: usize, lines: [T], length: usize, near_lines: [f64],
            near_length: usize, values: [T],
        }
        /// A block of a covariance over displacements.
        gather_block: GatherBlock<T> {
            table: [T], lenslets: usize, first: [i32], second: [i32], columns: usize, pitch: usize,
            height: usize, scale: f64, values: [T],
        }
    }
}

/// Where entries of two lenslets go.
pub(crate) const PLACES: Header = Header {
    name: "turbulence/places.cuh",
    text: include_str!("../../../kernels/turbulence/places.cuh"),
};

// Layer pair of two sensors
/// Parameters of a layer for two sensors, as the kernel reads them; lengths in metres.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct SensorPairLayer {
    turn: [f64; 4],
    angle: [f64; 2],
    sides: [f64; 2],
    strength: f64,
    outer_scale: f64,
    phase: [f64; 4],
    near: [f64; 2],
    from: [f64; REACH.len()],
    start: [i32; REACH.len() + 1],
    quarters: i32,
    lines: i32,
    rules: i32,
}

impl SensorPairLayer {
    // Make a layer pair of two sensors
    /// The layer pair of sensors `p` and `q`; appends the nodes of its rules to `nodes`.
    fn new(layer: &SensorLayer, [p, q]: [usize; 2], nodes: &mut Vec<[f64; 3]>) -> Self {
        let (sides, turn) = (layer.sides([p, q]), layer.turn([p, q]));
        let half_width = 0.5 * (sides[0] + sides[1]);
        let Turn { quarters, cos, sin } = turn;
        let (near, from, rules) = if sin == 0.0 {
            let rules = FootprintAverage::new(&layer.phase, sides).products();
            ([NEAR, 0.0], REACH.map(|(_, from)| from).to_vec(), rules)
        } else {
            let average = TurnedAverage::new(&layer.phase, TurnedSquares { sides, cos, sin });
            ([0.0, RINGS[1].1], RINGS.map(|(_, from)| from).to_vec(), average.rules.to_vec())
        };
        let (mut start, mut distances) = ([0; REACH.len() + 1], [0.0; REACH.len()]);
        for (k, (from, rule)) in from.iter().zip(rules).enumerate() {
            (start[k], distances[k]) = (nodes.len() as i32, from * half_width);
            nodes.extend(rule);
            start[k + 1] = nodes.len() as i32;
        }
        // Parameters of the layer pair
        let ([a, b], [c, d]) = (turn.apply([1.0, 0.0]), turn.apply([0.0, 1.0]));
        Self {
            turn: [a, b, c, d],
            angle: [cos, sin],
            sides,
            strength: layer.strength_for([p, q]),
            outer_scale: layer.phase.outer_scale,
            phase: phase_scales(layer.phase.outer_scale, half_width),
            near: near.map(|from| from * half_width),
            from: distances,
            start,
            quarters: quarters as i32,
            lines: if sin == 0.0 {
                1
            } else if sin.abs() > THIN {
                0
            } else {
                4
            },
            rules: from.len() as i32,
        }
    }
}

// Layer pair with its tables
/// Parameters of a layer for two sensors with parallel footprints, as the kernels read them; lengths in metres.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct AlignedPairLayer {
    turn: [f64; 4],
    half_widths: [f64; 2],
    strength: f64,
    near: f64,
    ends: [i32; 2],
    coefficients: [i32; 2],
    panels: [i32; 2],
    quarters: i32,
    around: i32,
    across: [i32; 2],
}

impl AlignedPairLayer {
    // Make a layer pair with its tables
    /// The layer pair of sensors `p` and `q` by their average, if it has both tables; these begin at index `start` of all numbers.
    fn new(
        layer: &SensorLayer,
        [p, q]: [usize; 2],
        average: &FootprintAverage,
        start: usize,
    ) -> Option<Self> {
        let tables = average.tables()?;
        let half_widths = average.half_widths();
        let (turn, near) = (layer.turn([p, q]), NEAR * half_widths[0]);
        let ([a, b], [c, d]) = (turn.apply([1.0, 0.0]), turn.apply([0.0, 1.0]));
        let across = [p, q].map(|k| layer.footprints[k].centres[0].len());
        let around = across[1].min((2.0 * near / layer.sides([p, q])[1]) as usize + 3);
        // Number the tables of a pair
        let (mut ends, mut coefficients, mut at) = ([0; 2], [0; 2], start);
        for (k, [of_ends, of_coefficients]) in tables.into_iter().enumerate() {
            (ends[k], coefficients[k]) = (at as i32, (at + of_ends.len()) as i32);
            at += of_ends.len() + of_coefficients.len();
        }
        Some(Self {
            turn: [a, b, c, d],
            half_widths,
            strength: layer.strength_for([p, q]),
            near,
            ends,
            coefficients,
            panels: tables.map(|[ends, _]| ends.len() as i32 - 1),
            quarters: turn.quarters as i32,
            around: around as i32,
            across: across.map(|n| n as i32),
        })
    }
}

// Pair of sensors on all layers
/// Two sensors, by their numbers among rows and among columns, with their valid lenslets.
struct SensorPairBlock<'a> {
    sensors: [usize; 2],
    lenslets: [&'a [[usize; 2]]; 2],
    source: BlockSource,
}

/// How the covariances of a block are computed.
enum BlockSource {
    /// From a table over displacements: that of a pair of a group.
    Gathered { group: usize, pair: usize, lenslets: usize },
    /// From tables of parallel footprints.
    Tabled(Tabled),
    /// As averages over two footprints.
    Averaged(Averaged),
}

// Block by tables of footprints
/// Layer pairs of two sensors with parallel footprints, by tables, and the centres of their lenslets.
struct Tabled {
    views: Vec<AlignedPairLayer>,
    centres: Vec<f64>,
}

impl Tabled {
    // Find the tables of two sensors
    /// The layer pairs of two sensors, by their numbers among all, if all layers have tables for them.
    fn new(
        layers: &[SensorLayer],
        averages: &[Vec<FootprintAverage>],
        sensors: [usize; 2],
    ) -> Option<Self> {
        let (mut views, mut start) = (Vec::new(), 0);
        for (layer, averages) in layers.iter().zip(averages) {
            let mut pair_view = None;
            for average in averages {
                if layer.turn(sensors).sin == 0.0 && average.is_of(layer.sides(sensors)) {
                    pair_view = AlignedPairLayer::new(layer, sensors, average, start);
                }
                start += parts(average).map(<[f64]>::len).sum::<usize>();
            }
            views.push(pair_view?);
        }
        Some(Self { views, centres: centres(layers, sensors) })
    }
}

// Block by averages of footprints
/// Layer pairs of two sensors, with the nodes of their rules and the centres of their lenslets.
struct Averaged {
    views: Vec<SensorPairLayer>,
    nodes: Vec<[f64; 3]>,
    centres: Vec<f64>,
    across: [usize; 2],
    /// Lenslets of the second along a side of the square that can be near one of the first.
    around: usize,
}

impl Averaged {
    // Gather the layer pairs of two sensors
    /// The layer pairs of two sensors, by their numbers among all.
    fn new(layers: &[SensorLayer], sensors: [usize; 2]) -> Self {
        let mut nodes = Vec::new();
        let views: Vec<SensorPairLayer> =
            layers.iter().map(|layer| SensorPairLayer::new(layer, sensors, &mut nodes)).collect();
        let across = sensors.map(|k| layers[0].footprints[k].centres[0].len());
        let lenslets =
            |view: &SensorPairLayer| 2.0 * f64::max(view.near[0], view.near[1]) / view.sides[1];
        let most = views.iter().map(lenslets).fold(0.0, f64::max);
        let around = across[1].min(most as usize + 3);
        Self { views, nodes, centres: centres(layers, sensors), across, around }
    }
}
/// The centres of two sensors' columns and rows on all layers, as kernels read them; metres.
fn centres(layers: &[SensorLayer], sensors: [usize; 2]) -> Vec<f64> {
    let of = |layer: &SensorLayer| sensors.map(|k| layer.footprints[k].centres.concat()).concat();
    layers.iter().flat_map(of).collect()
}
/// The tables of an average in their order on a device, if it has both.
fn parts(average: &FootprintAverage) -> impl Iterator<Item = &[f64]> {
    average.tables().into_iter().flatten().flatten()
}

// Blocks to compute on devices
/// The covariances of rows with columns, prepared for devices.
struct PosedBlocks<'a> {
    slopes: [Slopes<'a>; 2],
    /// Groups of sensors that share a lattice, with the pairs of each that occur in the matrix.
    shared: Vec<(SlopeProblem, Vec<(usize, usize)>)>,
    /// The tabulated averages of aligned footprints on each layer.
    averages: Vec<Vec<FootprintAverage>>,
    /// All pairs of sensors.
    blocks: Vec<SensorPairBlock<'a>>,
}

// Prepare the blocks of a matrix
impl<'a> PosedBlocks<'a> {
    /// Poses the covariances of sensors, those of the rows first.
    fn new(
        (atmosphere, gradient): (&Atmosphere, ConeGradient),
        sensors: &[Sensor],
        [rows, columns]: [Slopes<'a>; 2],
        watch: &dyn Watch,
    ) -> Result<Self, Error> {
        // Request averages and list groups
        let layers = see_layers(atmosphere, sensors, gradient, |_| 0.0, None);
        let (mut shared, groups) = (Vec::new(), Groups::new(sensors));
        let views = layers.iter().map(|layer| (layer.phase.outer_scale, &layer.footprints[..]));
        let mut wanted = average_requests(&shares(&groups), views, [rows, columns]);
        wanted.iter_mut().for_each(|layer| layer.retain(AverageRequest::has_corners));
        let averages = prepare_averages(&layers, wanted, watch)?;
        for members in groups.members() {
            let alike: Vec<Sensor> = members.iter().map(|&k| sensors[k]).collect();
            let problem = SlopeProblem::of_sensors(atmosphere, &alike, gradient)?;
            shared.push((problem, Vec::new()));
        }
        let mut blocks = Vec::new();
        for [p, q] in pairs_of([rows, columns]) {
            // Prepare a pair of sensors
            let [(group, first), (other, second)] =
                [rows.first + p, columns.first + q].map(|k| groups.place(k));
            let source = if group == other {
                let pairs = &mut shared[group].1;
                pairs.push((first, second));
                BlockSource::Gathered {
                    group,
                    pair: pairs.len() - 1,
                    lenslets: shared[group].0.lenslets(),
                }
            } else {
                let pair = [rows.first + p, columns.first + q];
                let tabled = Tabled::new(&layers, &averages, pair).map(BlockSource::Tabled);
                tabled.unwrap_or_else(|| BlockSource::Averaged(Averaged::new(&layers, pair)))
            };
            let lenslets = [rows.order.lenslets(p), columns.order.lenslets(q)];
            blocks.push(SensorPairBlock { sensors: [p, q], lenslets, source });
        }
        Ok(Self { slopes: [rows, columns], shared, averages, blocks })
    }
}

// Tables and kernels of a device
/// The tables and the kernels on a device.
struct CrossCovarianceTables<T> {
    gpu: Gpu,
    tables: Arc<PhaseTablesGpu<T>>,
    /// Ten nodes and weights of a panel, four of a strip.
    rule: Buffer<f64>,
    /// Tables of parallel footprints.
    averages: Buffer<f64>,
    kernels: CrossKernels<T>,
    /// The covariances of each group with pairs in the matrix.
    shared: Vec<Option<SlopePlan<T>>>,
}

// Prepare a device for blocks
impl<T: Real> CrossCovarianceTables<T> {
    fn on(gpu: &Gpu, posed: &PosedBlocks) -> Result<Self, Error> {
        let rules = [10, 4].map(gauss_legendre);
        let numbers: Vec<f64> =
            rules.iter().flat_map(|rule| [&rule.nodes[..], &rule.weights].concat()).collect();
        let kernels = CrossKernels::load(gpu, &[])?;
        let tables = Arc::new(PhaseTablesGpu::on(gpu)?);
        let plan = |(problem, pairs): &(SlopeProblem, Vec<_>)| {
            if pairs.is_empty() {
                return Ok(None);
            }
            let plan = SlopePlan::new(gpu, &tables, problem, pairs)?;
            plan.run()?;
            Ok(Some(plan))
        };
        let shared = posed.shared.iter().map(plan).collect::<Result<_, Error>>()?;
        let (averages, rule) = (upload_tables(gpu, &posed.averages)?, gpu.upload(&numbers)?);
        Ok(Self { gpu: gpu.clone(), rule, averages, kernels, shared, tables })
    }

    // Compute a piece of a block
    /// The covariances (2, rows, 2, columns) of some first lenslets of a block with all second ones.
    fn compute(&self, block: &SensorPairBlock, rows: &[[usize; 2]]) -> Result<Vec<T>, Error> {
        let (height, columns) = (rows.len(), block.lenslets[1].len());
        let values = self.gpu.zeros::<T>(4 * height * columns)?;
        let all = places(block.lenslets[1], |axis, k| Some(axis * columns + k));
        self.fill(block, (rows, &all), (values.view(..), 1.0), [2 * columns, height])?;
        values.read()
    }

    // Fill a part of a matrix
    /// Queues the covariances of some first lenslets of a block with some second ones, over `unit`, in a matrix with rows of so many
    /// numbers, which begins with `values`; y slopes of the first are so many rows below x slopes, slopes of the second in their
    /// [`places`].
    fn fill(
        &self,
        block: &SensorPairBlock,
        (rows, columns): (&[[usize; 2]], &[[i32; 4]]),
        (values, unit): (gpu::BufferView<T>, f64),
        [pitch, height]: [usize; 2],
    ) -> Result<(), Error> {
        let gpu = &self.gpu;
        let first: Vec<i32> = rows.as_flattened().iter().map(|&k| k as i32).collect();
        let (first, second) = (gpu.upload(&first)?, gpu.upload(columns.as_flattened())?);
        let columns = columns.len();
        // Choose the kernel of a block
        let averaged = match &block.source {
            BlockSource::Averaged(averaged) => averaged,
            BlockSource::Tabled(tabled) => {
                let (lenslets, sizes) = ([&first, &second], [columns, pitch, height]);
                return self.fill_by_tables(tabled, rows, lenslets, (values, unit), sizes);
            }
            BlockSource::Gathered { group, pair, lenslets } => {
                // Launch the kernel that gathers
                let plan = self.shared[*group].as_ref();
                let table = plan
                    .unwrap_or_else(|| unreachable!("a pair of the group is wanted"))
                    .pair(*pair);
                let shape = Shape::over(columns, 128, [rows.len(), 1]);
                let arguments = GatherBlock {
                    table,
                    lenslets: *lenslets,
                    first: first.view(..),
                    second: second.view(..),
                    columns,
                    pitch,
                    height,
                    scale: unit.recip(),
                    values,
                };
                return gpu.launch(&self.kernels.gather_block, shape, arguments);
            }
        };
        // Pass two sensors to the device
        let nodes: Vec<T> = averaged.nodes.as_flattened().iter().map(|&node| T::of(node)).collect();
        let mut views = averaged.views.clone();
        views.iter_mut().for_each(|view| view.strength /= unit);
        let (centres, nodes) = (gpu.upload(&averaged.centres)?, gpu.upload(&nodes)?);
        let (layers, views) = (views.len(), gpu.upload(&views)?);
        let (across, around) = (averaged.across, averaged.around);
        let square = 4 * layers * around * around;
        let part = (NEAR_BYTES / (size_of::<f64>() * square)).clamp(1, rows.len());
        let near = gpu.zeros::<f64>(part * square)?;
        for start in (0..rows.len()).step_by(part) {
            let count = part.min(rows.len() - start);
            // Launch the kernels of a block
            let lenslets = first.view(2 * start..2 * (start + count));
            let arguments = NearPairs {
                views: views.view(..),
                centres: centres.view(..),
                first: lenslets,
                across_first: across[0],
                across_second: across[1],
                around,
                half_structures: self.tables.half_structure.view(..),
                half_means: self.tables.half_mean.view(..),
                rule: self.rule.view(..),
                near: near.view(..),
            };
            let shape = Shape { grid: [count, layers, 1], block: 64, shared: 0 };
            gpu.launch(&self.kernels.near_pairs, shape, arguments)?;
            let arguments = DenseBlock {
                views: views.view(..),
                layers,
                centres: centres.view(..),
                first: lenslets,
                second: second.view(..),
                across_first: across[0],
                across_second: across[1],
                columns,
                pitch,
                height,
                slopes: self.tables.slope_over_distance.view(..),
                nodes: nodes.view(..),
                around,
                near: near.view(..),
                values: values.from(start * pitch),
            };
            let shape = Shape::over(columns, 128, [count, 1]);
            gpu.launch(&self.kernels.dense_block, shape, arguments)?;
        }
        Ok(())
    }

    // Fill a part by tables
    /// Queues the covariances of two sensors by tables, over `unit`; the lenslets of both are on the device, `columns` of the second.
    fn fill_by_tables(
        &self,
        tabled: &Tabled,
        rows: &[[usize; 2]],
        [first, second]: [&Buffer<i32>; 2],
        (values, unit): (gpu::BufferView<T>, f64),
        [columns, pitch, height]: [usize; 3],
    ) -> Result<(), Error> {
        let (gpu, tables) = (&self.gpu, &self.averages);
        // Pass the tables of two sensors
        let mut views = tabled.views.clone();
        views.iter_mut().for_each(|view| view.strength /= unit);
        let [across_first, across_second] = views[0].across.map(|n| n as usize);
        let most = |numbers: &mut dyn Iterator<Item = i32>| numbers.max().unwrap_or(0) as usize;
        let (layers, around) = (views.len(), most(&mut views.iter().map(|view| view.around)));
        let [length, near_length] =
            [0, 1].map(|k| PANEL_OF_LINE * most(&mut views.iter().map(|view| view.panels[k])));
        views.iter_mut().for_each(|view| view.around = around as i32);
        let (views, centres) = (gpu.upload(&views)?, gpu.upload(&tabled.centres)?);
        let along = gpu.zeros::<[f64; 2]>(layers * across_first * across_second)?;
        let (views, centres, tables) = (views.view(..), centres.view(..), tables.view(..));
        let arguments = PlaceColumns { views, centres, tables, along: along.view(..) };
        let shape = Shape::over(across_first * across_second, 128, [layers, 1]);
        gpu.launch(&self.kernels.place_columns, shape, arguments)?;
        // Allocate memory for lines
        let of_row = [layers * across_second * length, layers * around * near_length];
        let bytes = of_row[0] * size_of::<T>() + of_row[1] * size_of::<f64>();
        let height_of_part = (LINES_BYTES / bytes).clamp(1, across_first);
        let lines = gpu.zeros::<T>(height_of_part * of_row[0])?;
        let near_lines = gpu.zeros::<f64>(height_of_part * of_row[1])?;
        let mut start = 0;
        while start < rows.len() {
            let first_row = rows[start][0];
            let count =
                rows[start..].partition_point(|lenslet| lenslet[0] < first_row + height_of_part);
            let line_rows = rows[start + count - 1][0] - first_row + 1;
            // Launch the kernels of lines
            let (lines, near_lines) = (lines.view(..), near_lines.view(..));
            let arguments = LayLines {
                views,
                centres,
                tables,
                first_row,
                lines,
                length,
                near_lines,
                near_length,
            };
            let shape = Shape { grid: [across_second, line_rows, layers], block: 128, shared: 0 };
            gpu.launch(&self.kernels.lay_lines, shape, arguments)?;
            let arguments = TabledBlock {
                views,
                layers,
                centres,
                first: first.view(2 * start..),
                second: second.view(..),
                columns,
                pitch,
                height,
                tables,
                along: along.view(..),
                first_row,
                line_rows,
                lines,
                length,
                near_lines,
                near_length,
                values: values.from(start * pitch),
            };
            let shape = Shape::over(columns, 128, [count, 1]);
            gpu.launch(&self.kernels.tabled_block, shape, arguments)?;
            start += count;
        }
        Ok(())
    }
}

// Upload the tables of averages
/// The tables of all averages on a device, one after the other.
fn upload_tables(gpu: &Gpu, averages: &[Vec<FootprintAverage>]) -> Result<Buffer<f64>, Error> {
    let parts = || averages.iter().flatten().flat_map(parts);
    let tables = gpu.zeros(parts().map(<[f64]>::len).sum::<usize>().max(1))?;
    let mut start = 0;
    for part in parts() {
        tables.view(start..start + part.len()).write(part)?;
        start += part.len();
    }
    Ok(tables)
}

// Positions of slopes in a row
/// Those of some lenslets of which a slope is stored, as kernels read them: row, column, and the places of their x and y slopes in a row of
/// the matrix, −1 for a slope that is not stored; `place` gives it for an axis and the number of the lenslet.
fn places(lenslets: &[[usize; 2]], place: impl Fn(usize, usize) -> Option<usize>) -> Vec<[i32; 4]> {
    let of = |(k, &[row, column]): (usize, &[usize; 2])| {
        let [x, y] = [0, 1].map(|axis| place(axis, k).map_or(-1, |at| at as i32));
        [row as i32, column as i32, x, y]
    };
    let all = lenslets.iter().enumerate().map(of);
    all.filter(|[.., x, y]| x.max(y) >= &0).collect()
}

// Dense covariance on devices
/// Bytes that the near pairs of some rows take at most.
const NEAR_BYTES: usize = 64 << 20;

/// Bytes that the lines of some rows take at most.
const LINES_BYTES: usize = 64 << 20;

/// Numbers of a panel of a line; the kernels contain the same constant.
const PANEL_OF_LINE: usize = 30;

/// Rows of a piece with so many columns.
fn rows_of_piece<T: Real>(columns: usize) -> usize {
    ((64 << 20) / (4 * columns * size_of::<T>())).clamp(1, 32_768)
}

// Fill rows against columns on devices
/// The covariances of rows with columns. Where both are of the same sensors, those below the diagonal of blocks stay zero.
fn any_slopes<T: Real>(
    posed: &PosedBlocks,
    gpus: &[Gpu],
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    let tools = gpus
        .iter()
        .map(|gpu| CrossCovarianceTables::<T>::on(gpu, posed))
        .collect::<Result<Vec<_>, _>>()?;
    let PosedBlocks { slopes: [rows, columns], blocks, .. } = posed;
    let mut matrix = Array2::zeros((rows.order.len(), columns.order.len()));
    // Cut the blocks into pieces for devices
    let height = |k: usize| rows_of_piece::<T>(blocks[k].lenslets[1].len());
    let pieces_of = |k: usize| {
        let firsts = (0..blocks[k].lenslets[0].len()).step_by(height(k));
        firsts.map(move |first| (k, first))
    };
    let pieces: Vec<(usize, usize)> = (0..blocks.len()).flat_map(pieces_of).collect();
    let lenslets_of = |k: usize, first: usize| {
        let rest = &blocks[k].lenslets[0][first..];
        &rest[..rest.len().min(height(k))]
    };
    // Put each piece into the matrix
    let put = |piece: usize, values: Vec<T>| {
        let (k, first) = pieces[piece];
        let block = &blocks[k];
        let ([p, q], lenslets, count) =
            (block.sensors, lenslets_of(k, first).len(), block.lenslets[1].len());
        for (line, values) in values.chunks(count).enumerate() {
            let (a, b, row) = (line / 2 / lenslets, line % 2, line / 2 % lenslets);
            let row = rows.order.index(p, a, first + row);
            let column = columns.order.index(q, b, 0);
            for (k, value) in values.iter().enumerate() {
                matrix[[row, column + k]] = value.in_double();
            }
        }
        Ok(())
    };
    let compute = |tools: &CrossCovarianceTables<T>, &(k, first): &(usize, usize)| {
        tools.compute(&blocks[k], lenslets_of(k, first))
    };
    dispatch(Workers::devices(&tools), &pieces, watch, compute, put)?;
    Ok(matrix)
}

// Dense covariances for the public
// The documentation of dense covariance on devices
/// [`cross_covariance::slope_covariance`](super::slope_covariance) on graphics processors, in the precision `T`, rad².
///
/// Within 1e-11 of the largest entry of the matrix that the CPU computes in double precision (1e-10 for sensors rotated against each other
/// by about 0.001 rad, where the method itself has that error), and 2e-6 in single. `watch` counts pieces.
///
/// # Errors
/// `Invalid` as there, `Memory` where the matrix or a piece of it does not fit, `Device` and `Cuda` where a device fails.
pub fn slope_covariance<T: Real>(
    atmosphere: &Atmosphere,
    (sensors, valid): (&[Sensor], &[Array2<bool>]),
    gradient: ConeGradient,
    gpus: &[Gpu],
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    square(atmosphere, (sensors, valid), |sensors, slopes| {
        check_memory::<T>(slopes, (atmosphere, sensors), gpus)?;
        any_slopes::<T>(
            &PosedBlocks::new((atmosphere, gradient), sensors, slopes, watch)?,
            gpus,
            watch,
        )
    })
}

// Rectangular covariance on devices
/// [`cross_covariance::slope_cross_covariance`](super::slope_cross_covariance) on graphics processors, in the precision `T`, rad²; as exact as [`slope_covariance`].
///
/// # Errors
/// Those of [`slope_covariance`].
pub fn slope_cross_covariance<T: Real>(
    atmosphere: &Atmosphere,
    first: (&[Sensor], &[Array2<bool>]),
    second: (&[Sensor], &[Array2<bool>]),
    gradient: ConeGradient,
    gpus: &[Gpu],
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    rectangle(atmosphere, [first, second], |all, slopes| {
        check_memory::<T>(slopes, (atmosphere, all), gpus)?;
        any_slopes::<T>(&PosedBlocks::new((atmosphere, gradient), all, slopes, watch)?, gpus, watch)
    })
}

// Leave a matrix on its device
/// Columns of a rank in a block-cyclic layout of the slope covariance matrix, (n, n), rad² over `unit`, on a device in the precision `T`;
/// blocks of sensors below the diagonal are zero.
///
/// # Errors
/// Those of [`slope_covariance`].
pub(crate) fn slopes_on_device<T: Real>(
    atmosphere: &Atmosphere,
    (sensors, valid): (&[Sensor], &[Array2<bool>]),
    gradient: ConeGradient,
    to: (&Gpu, f64, &BlockCyclic),
    watch: &dyn Watch,
) -> Result<Buffer<T>, Error> {
    half_square(atmosphere, (sensors, valid), |sensors, slopes| {
        let matrix = to.0.zeros::<T>(slopes[0].order.len() * to.2.count())?;
        let posed = PosedBlocks::new((atmosphere, gradient), sensors, slopes, watch)?;
        add_on_device(&posed, to, matrix.view(..), watch)?;
        Ok(matrix)
    })
}

/// Adds the covariances of the slopes of some sensors with those of others, (m, n), rad² over `unit`, to a matrix on a device: the columns
/// of a rank in a block-cyclic layout.
///
/// # Errors
/// Those of [`slope_covariance`].
pub(crate) fn add_cross_covariance<T: Real>(
    atmosphere: &Atmosphere,
    sets: [(&[Sensor], &[Array2<bool>]); 2],
    gradient: ConeGradient,
    (to, matrix): ((&Gpu, f64, &BlockCyclic), gpu::BufferView<T>),
    watch: &dyn Watch,
) -> Result<(), Error> {
    rectangle(atmosphere, sets, |all, slopes| {
        let posed = PosedBlocks::new((atmosphere, gradient), all, slopes, watch)?;
        add_on_device(&posed, to, matrix, watch)
    })
}

// Fill a matrix block by block
/// Adds the covariances of rows with columns to a matrix on a device, for the columns of a rank in a block-cyclic layout. If both are of
/// the same sensors, blocks below the diagonal stay as they are.
fn add_on_device<T: Real>(
    posed: &PosedBlocks,
    (gpu, unit, deal): (&Gpu, f64, &BlockCyclic),
    matrix: gpu::BufferView<T>,
    watch: &dyn Watch,
) -> Result<(), Error> {
    let tools = CrossCovarianceTables::on(gpu, posed)?;
    let fill = |k: usize, lenslets: Lenslets, values: gpu::BufferView<T>, sizes: [usize; 2]| {
        tools.fill(&posed.blocks[k], lenslets, (values, unit), sizes)
    };
    fill_on_device(posed.slopes, (deal, matrix), &fill, watch)
}
// Block of a pair as a function
/// First lenslets of a block, by row and column, and the [`places`] of those second ones that are stored.
pub(crate) type Lenslets<'a> = (&'a [[usize; 2]], &'a [[i32; 4]]);

/// Queues the block of a pair of sensors, by its number among [`pairs_of`], into a part of a matrix that begins with it; the last two are
/// the length of a row of the matrix, and the number of rows from an x slope to its y slope.
pub(crate) type FillBlock<'a, T> =
    &'a dyn Fn(usize, Lenslets, gpu::BufferView<T>, [usize; 2]) -> Result<(), Error>;

/// Fills the columns of a rank in a block-cyclic layout of a matrix on a device, block by block; blocks of other pairs stay as they are.
pub(crate) fn fill_on_device<T: Real>(
    slopes: [Slopes; 2],
    (deal, matrix): (&BlockCyclic, gpu::BufferView<T>),
    fill: FillBlock<T>,
    watch: &dyn Watch,
) -> Result<(), Error> {
    let [rows, columns] = slopes;
    assert_eq!(deal.columns(), columns.order.len(), "all columns are dealt out");
    let pitch = deal.count();
    assert_eq!(matrix.len(), rows.order.len() * pitch, "a matrix fits its deal");
    for (k, [p, q]) in pairs_of(slopes).into_iter().enumerate() {
        let [first, second] = [rows.order.lenslets(p), columns.order.lenslets(q)];
        let kept = places(second, |axis, k| deal.place(columns.order.index(q, axis, k)));
        if !kept.is_empty() {
            let values = matrix.from(rows.order.index(p, 0, 0) * pitch);
            fill(k, (first, &kept), values, [pitch, first.len()])?;
        }
        check(watch)?;
    }
    Ok(())
}

// Check that dense pieces fit
/// Bytes that a piece of a covariance and the tables take on a device, for some sensors under an atmosphere.
pub(crate) fn bytes(precision: Precision, atmosphere: &Atmosphere, sensors: &[Sensor]) -> u64 {
    let (tables, shared): (u64, fn(usize, usize, usize) -> u64) = match precision {
        Precision::F64 => (PhaseTablesGpu::<f64>::bytes(), tables::bytes::<f64>),
        Precision::F32 => (PhaseTablesGpu::<f32>::bytes(), tables::bytes::<f32>),
    };
    let of_group = |members: &[usize]| {
        let lags = 2 * sensors[members[0]].array.lenslets() - 1;
        shared(atmosphere.layers().len(), lags, members.len() * (members.len() + 1) / 2)
    };
    let shared: u64 = Groups::new(sensors).members().map(of_group).sum();
    let averages = 8 * numbers_of_tables(atmosphere, sensors);
    let scratch = NEAR_BYTES.max(LINES_BYTES) as u64;
    tables + averages + shared + (66 << 20) + scratch
}

fn check_memory<T: Real>(
    [rows, columns]: [Slopes; 2],
    (atmosphere, sensors): (&Atmosphere, &[Sensor]),
    gpus: &[Gpu],
) -> Result<(), Error> {
    let [m, n] = [rows, columns].map(|slopes| slopes.order.len() as u64);
    let most = (0..rows.sensors).map(|p| 2 * rows.count(p) as u64).max().unwrap_or(0);
    super::check_memory(
        || format!("the covariance matrix of {m} slopes with {n}"),
        (m + most).saturating_mul(n),
    )?;
    let needed = bytes(T::PRECISION, atmosphere, sensors);
    gpus.iter().try_for_each(|gpu| gpu.refuse_beyond_memory(needed, "a piece of a covariance"))
}

// Tests of the dense kernel
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::model::atmosphere::Layer;
    use crate::model::{lenslet_array::LensletArray, source};
    use crate::turbulence::cross_covariance;
    use crate::watch::unwatched;

    // Sensors of every kind for devices
    /// Two layers of different outer scales, and four sensors, two to a lattice group, rotated by these angles.
    fn system(angles: [f64; 4]) -> (Atmosphere, Vec<Sensor>, Vec<Array2<bool>>) {
        let layers = vec![Layer::new(0.0, 0.6, 25.0), Layer::new(12e3, 0.4, f64::INFINITY)];
        let air = Atmosphere::new(0.15, 500e-9, layers).unwrap();
        let sensor = |k: usize| {
            let [zenith, azimuth, height] = [
                [1e-4, 0.4, 90e3],
                [5e-5, 4.0, f64::INFINITY],
                [8e-5, 2.0, 90e3],
                [2e-4, 0.0, f64::INFINITY],
            ][k];
            let (lenslets, pitch) = [(5, 0.4), (4, 0.5), (5, 0.4), (6, 0.3)][k];
            let array = LensletArray::new(lenslets, pitch).unwrap();
            let rest =
                Sensor::at_rest(source::Source::new(zenith, azimuth, height).unwrap(), array);
            Sensor { rotation: angles[k].to_radians(), shift: [0.05 * k as f64, 0.1], ..rest }
        };
        let sensors: Vec<Sensor> = (0..4).map(sensor).collect();
        let mask = |star: &Sensor| {
            let n = star.array.lenslets();
            Array2::from_shape_fn((n, n), |(j, i)| (2 * j + i) % 5 != 3)
        };
        let valid = sensors.iter().map(mask).collect();
        (air, sensors, valid)
    }

    // Compare dense blocks with the processor
    #[test]
    fn dense_blocks_agree_with_the_processor() {
        let largest = |m: &Array2<f64>| m.fold(0.0, |most: f64, v| most.max(v.abs()));
        for gpu in test_backends() {
            let gpus = [gpu.clone(), gpu];
            for angles in [[0.0; 4], [0.0, 3.0, -120.0, 41.0], [0.0, 0.0, 1e-4, 90.0 + 1e-6]] {
                let (air, sensors, valid) = system(angles);
                let [first, second] = [0..2, 2..4].map(|k| (&sensors[k.clone()], &valid[k]));
                let cone = ConeGradient::Pupil;
                let here =
                    cross_covariance::slope_cross_covariance(&air, first, second, cone, &unwatched)
                        .unwrap();
                let double =
                    slope_cross_covariance::<f64>(&air, first, second, cone, &gpus, &unwatched)
                        .unwrap();
                let single =
                    slope_cross_covariance::<f32>(&air, first, second, cone, &gpus, &unwatched)
                        .unwrap();
                let [double_error, single_error] =
                    [&double, &single].map(|there| largest(&(there - &here)) / largest(&here));
                assert!(double_error < 1e-11, "{angles:?}: {double_error:.1e}");
                assert!(
                    single_error < 2e-6 && single_error > 1e-9,
                    "{angles:?}: {single_error:.1e}"
                );
                let all =
                    slope_covariance::<f64>(&air, (&sensors, &valid), cone, &gpus[..1], &unwatched)
                        .unwrap();
                let (m, n) = double.dim();
                let rows = all.nrows();
                assert_eq!(all.slice(ndarray::s![..m, rows - n..]), double);
                assert_eq!(all, all.t());
            }
        }
    }

    // Compare tabled blocks with the processor
    /// Sensors of five lenslets across, lasers first, close enough for tables of few panels.
    fn close_system() -> (Atmosphere, Vec<Sensor>, Vec<Array2<bool>>) {
        let (air, sensors, _) = system([0.0; 4]);
        let array = sensors[0].array;
        let sensor = |k: usize| {
            let (azimuth, height) = (2.1 * k as f64, if k < 3 { 90e3 } else { f64::INFINITY });
            let source = source::Source::new(1e-5, azimuth, height).unwrap();
            let rotation = if k == 5 { -0.5 * std::f64::consts::PI } else { 0.0 };
            let shift = if k == 4 { [0.03, -0.07] } else { [0.0; 2] };
            Sensor { rotation, shift, ..Sensor::at_rest(source, array) }
        };
        let mask = Array2::from_shape_fn((5, 5), |(j, i)| [j, i] != [0, 1] && [j, i] != [3, 4]);
        (air, (0..6).map(sensor).collect(), vec![mask; 6])
    }

    #[test]
    fn tabled_blocks_agree_with_the_processor() {
        let largest = |m: &Array2<f64>| m.fold(0.0, |most: f64, v| most.max(v.abs()));
        let ((air, sensors, valid), cone) = (close_system(), ConeGradient::Pupil);
        let (lasers, stars) = ((&sensors[..3], &valid[..3]), (&sensors[3..], &valid[3..]));
        let pair = |p: usize, q: usize| {
            let [one, two] = [p, q].map(|k| (&sensors[k..][..1], &valid[k..][..1]));
            cross_covariance::slope_cross_covariance(&air, one, two, cone, &unwatched).unwrap()
        };
        let blocks = [[0, 3], [1, 4], [2, 5]].map(|[p, q]| (p, q - 3, pair(p, q)));
        for gpu in test_backends() {
            let tabled = rectangle(&air, [lasers, stars], |all, slopes| {
                let posed = PosedBlocks::new((&air, cone), all, slopes, &unwatched)?;
                Ok(posed.blocks.iter().all(|block| matches!(block.source, BlockSource::Tabled(_))))
            });
            assert!(tabled.unwrap());
            let gpus = [gpu];
            let double =
                slope_cross_covariance::<f64>(&air, lasers, stars, cone, &gpus, &unwatched)
                    .unwrap();
            let single =
                slope_cross_covariance::<f32>(&air, lasers, stars, cone, &gpus, &unwatched)
                    .unwrap();
            for (p, q, here) in &blocks {
                let (m, n) = here.dim();
                let block = ndarray::s![p * m..(p + 1) * m, q * n..(q + 1) * n];
                let [double, single] = [&double, &single]
                    .map(|all| largest(&(&all.slice(block) - here)) / largest(here));
                assert!(double < 1e-11, "{p} {q}: {double:.1e}");
                assert!(single < 2e-6 && single > 1e-9, "{p} {q}: {single:.1e}");
            }
        }
    }
}
