// Tangled from book/src/dense-gpu.md: edit there, or here and run cargo tangle stitch.
//! Covariances without a Toeplitz form on graphics processors.

// What the dense kernel stands on
use super::{
    RINGS, SeenLayer, Slopes, TurnedAverage, half_square, pairs_of, rectangle, see_layers, square,
};
use crate::device::collective::Deal;
use crate::device::gpu::{self, Argument, Buffer, Gpu, Kernel, KernelSource, Shape};
use crate::device::headers::REAL;
use crate::device::{Watch, Workers, check, dispatch};
use crate::error::Error;
use crate::model::atmosphere::Atmosphere;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::sensor::Sensor;
use crate::model::source::ConeGradient;
use crate::numerics::quadrature::gauss_legendre;
use crate::numerics::real::{Precision, Real};
use crate::turbulence::direct::slope::gpu::HESSIAN;
use crate::turbulence::parallel::{FootprintAverage, NEAR, REACH};
use crate::turbulence::phase::gpu::{PHASE, PhaseTables, RADIAL_TABLE, phase_scales};
use crate::turbulence::turned::{THIN, Turn, TurnedSquares};
use ndarray::Array2;
use std::ops::Range;

/// The kernel of this chapter.
pub(crate) const DENSE: KernelSource = KernelSource {
    name: "dense.cu",
    text: include_str!("../../../kernels/turbulence/dense.cu"),
    headers: &[REAL, RADIAL_TABLE, PHASE, HESSIAN],
};

// View of a layer by two sensors
/// A layer as two sensors see it, as the kernel reads it; lengths in metres.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct View {
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

impl View {
    // View a layer by two sensors
    /// The view of sensors `p` and `q`; appends the nodes of its rules to `nodes`.
    fn new(layer: &SeenLayer, [p, q]: [usize; 2], nodes: &mut Vec<[f64; 3]>) -> Self {
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
        // Numbers of the view
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

// Blocks of two sensors
/// The tables and the kernel on a device.
struct Tools<T> {
    gpu: Gpu,
    tables: PhaseTables<T>,
    /// Ten nodes and weights of a panel, four of a strip.
    rule: Buffer<f64>,
    kernel: Kernel,
}

impl<T: Real> Tools<T> {
    fn on(gpu: &Gpu) -> Result<Self, Error> {
        let rules = [10, 4].map(gauss_legendre);
        let numbers: Vec<f64> =
            rules.iter().flat_map(|rule| [&rule.nodes[..], &rule.weights].concat()).collect();
        let kernel = gpu.program::<T>(&DENSE, &[])?.kernel("dense_block")?;
        let (gpu, rule) = (gpu.clone(), gpu.upload(&numbers)?);
        Ok(Self { tables: PhaseTables::on(&gpu)?, gpu, rule, kernel })
    }

    // Compute a piece of a block
    /// The covariances (2, rows, 2, columns) of some first lenslets of a block with all second ones.
    fn compute(&self, block: &Block, rows: &[[usize; 2]]) -> Result<Vec<T>, Error> {
        let (height, columns) = (rows.len(), block.lenslets[1].len());
        let values = self.gpu.zeros::<T>(4 * height * columns)?;
        let (pitch, at) = ([2 * columns, height], [Some(0), Some(columns)]);
        self.fill(block, [rows, block.lenslets[1]], values.view(..), (pitch, at))?;
        values.read()
    }

    // Fill a part of a matrix
    /// Queues the covariances of some first lenslets of a block with some second ones, in a matrix with rows of so many numbers, which
    /// begins with `values`; y slopes of the first stand so many rows below x slopes, and slopes of the second at the columns of `at`,
    /// those of x and of y, if they are wanted.
    fn fill(
        &self,
        block: &Block,
        [rows, columns]: [&[[usize; 2]]; 2],
        values: gpu::View<T>,
        ([pitch, height], at): ([usize; 2], [Option<usize>; 2]),
    ) -> Result<(), Error> {
        let gpu = &self.gpu;
        if columns.is_empty() {
            return Ok(());
        }
        let whole = |lenslets: &[[usize; 2]]| -> Vec<i32> {
            lenslets.as_flattened().iter().map(|&k| k as i32).collect()
        };
        let nodes: Vec<T> = block.nodes.as_flattened().iter().map(|&node| T::of(node)).collect();
        let (views, centres) = (gpu.upload(&block.views)?, gpu.upload(&block.centres)?);
        let (first, second) = (gpu.upload(&whole(rows))?, gpu.upload(&whole(columns))?);
        let nodes = gpu.upload(&nodes)?;
        // Launch the kernel of a block
        let arguments: [Argument; 18] = [
            (&views).into(),
            block.views.len().into(),
            (&centres).into(),
            (&first).into(),
            (&second).into(),
            block.across[0].into(),
            block.across[1].into(),
            columns.len().into(),
            pitch.into(),
            height.into(),
            at[0].unwrap_or(pitch).into(),
            at[1].unwrap_or(pitch).into(),
            (&self.tables.slope_over_distance).into(),
            (&self.tables.fall).into(),
            (&self.tables.half_mean).into(),
            (&self.rule).into(),
            (&nodes).into(),
            values.into(),
        ];
        gpu.launch(&self.kernel, Shape::over(columns.len(), 128, [rows.len(), 1]), &arguments)
    }
}

// Two sensors as all layers see them
/// Two sensors as all layers see them, and their valid lenslets.
struct Block<'a> {
    views: Vec<View>,
    nodes: Vec<[f64; 3]>,
    centres: Vec<f64>,
    across: [usize; 2],
    lenslets: [&'a [[usize; 2]]; 2],
}

impl<'a> Block<'a> {
    // Gather what two sensors see
    /// The block of sensor `p` of the rows and sensor `q` of the columns.
    fn new(layers: &[SeenLayer], [rows, columns]: [Slopes<'a>; 2], [p, q]: [usize; 2]) -> Self {
        let (sensors, mut nodes) = ([rows.first + p, columns.first + q], Vec::new());
        let views = layers.iter().map(|layer| View::new(layer, sensors, &mut nodes)).collect();
        let centres =
            |layer: &SeenLayer| sensors.map(|k| layer.footprints[k].centres.concat()).concat();
        Self {
            views,
            nodes,
            centres: layers.iter().flat_map(centres).collect(),
            across: sensors.map(|k| layers[0].footprints[k].centres[0].len()),
            lenslets: [rows.order.lenslets(p), columns.order.lenslets(q)],
        }
    }
}

// Dense covariance on devices
/// Rows of a piece with so many columns.
fn rows_of_piece<T: Real>(columns: usize) -> usize {
    ((64 << 20) / (4 * columns * size_of::<T>())).clamp(1, 32_768)
}

// Fill rows against columns on devices
/// The covariances of rows with columns. Where both are of the same sensors, those below the diagonal of blocks stay zero.
fn any_slopes<T: Real>(
    layers: &[SeenLayer],
    [rows, columns]: [Slopes; 2],
    gpus: &[Gpu],
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    let tools: Vec<Tools<T>> = gpus.iter().map(Tools::on).collect::<Result<_, _>>()?;
    let mut matrix = Array2::zeros((rows.order.len(), columns.order.len()));
    let block = |pair| (pair, Block::new(layers, [rows, columns], pair));
    let blocks: Vec<_> = pairs_of([rows, columns]).into_iter().map(block).collect();
    // Cut the blocks into pieces for devices
    let height = |k: usize| rows_of_piece::<T>(blocks[k].1.lenslets[1].len());
    let pieces_of = |k: usize| {
        let firsts = (0..blocks[k].1.lenslets[0].len()).step_by(height(k));
        firsts.map(move |first| (k, first))
    };
    let pieces: Vec<(usize, usize)> = (0..blocks.len()).flat_map(pieces_of).collect();
    let lenslets_of = |k: usize, first: usize| {
        let rest = &blocks[k].1.lenslets[0][first..];
        &rest[..rest.len().min(height(k))]
    };
    // Put each piece into the matrix
    let put = |piece: usize, values: Vec<T>| {
        let (k, first) = pieces[piece];
        let ([p, q], block) = &blocks[k];
        let (lenslets, count) = (lenslets_of(k, first).len(), block.lenslets[1].len());
        for (line, values) in values.chunks(count).enumerate() {
            let (a, b, row) = (line / 2 / lenslets, line % 2, line / 2 % lenslets);
            let row = rows.order.index(*p, a, first + row);
            let column = columns.order.index(*q, b, 0);
            for (k, value) in values.iter().enumerate() {
                matrix[[row, column + k]] = value.in_double();
            }
        }
        Ok(())
    };
    let compute = |tools: &Tools<T>, &(k, first): &(usize, usize)| {
        tools.compute(&blocks[k].1, lenslets_of(k, first))
    };
    dispatch(Workers::devices(&tools), &pieces, watch, compute, put)?;
    Ok(matrix)
}

// Dense covariances for the public
/// [`dense::slope_covariance`](super::slope_covariance) on graphics processors, in the precision `T`, rad².
///
/// Within 1e-11 of the largest entry of what the processor computes in double precision (1e-10 for sensors turned against each other
/// by about 0.001, where the method itself has that error), and 2e-6 in single. `watch` counts pieces.
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
        check_memory::<T>(slopes, gpus)?;
        let layers = see_layers(atmosphere, sensors, gradient, |_| 0.0);
        any_slopes::<T>(&layers, slopes, gpus, watch)
    })
}

// Rectangular covariance on devices
/// [`dense::between`](super::between) on graphics processors, in the precision `T`, rad²; as exact as [`slope_covariance`].
///
/// # Errors
/// Those of [`slope_covariance`].
pub fn between<T: Real>(
    atmosphere: &Atmosphere,
    first: (&[Sensor], &[Array2<bool>]),
    second: (&[Sensor], &[Array2<bool>]),
    gradient: ConeGradient,
    gpus: &[Gpu],
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    rectangle(atmosphere, [first, second], |all, slopes| {
        check_memory::<T>(slopes, gpus)?;
        let layers = see_layers(atmosphere, all, gradient, |_| 0.0);
        any_slopes::<T>(&layers, slopes, gpus, watch)
    })
}

// Leave a matrix on its device
/// The columns of a deal of the slope covariance matrix, (n, n), rad² over `unit`, on a device in the precision `T`; blocks of sensors below
/// the diagonal are zero.
///
/// # Errors
/// Those of [`slope_covariance`].
pub(crate) fn slopes_there<T: Real>(
    atmosphere: &Atmosphere,
    (sensors, valid): (&[Sensor], &[Array2<bool>]),
    gradient: ConeGradient,
    (gpu, unit, deal): (&Gpu, f64, &Deal),
    watch: &dyn Watch,
) -> Result<Buffer<T>, Error> {
    half_square(atmosphere, (sensors, valid), |sensors, slopes| {
        let layers = see_layers(atmosphere, sensors, gradient, |_| 0.0);
        there(&layers, slopes, (gpu, unit, deal), watch)
    })
}

/// The columns of a deal of the covariances of the slopes of some sensors with those of others, (m, n), rad² over `unit`, on a device.
///
/// # Errors
/// Those of [`slope_covariance`].
pub(crate) fn between_there<T: Real>(
    atmosphere: &Atmosphere,
    sets: [(&[Sensor], &[Array2<bool>]); 2],
    gradient: ConeGradient,
    (gpu, unit, deal): (&Gpu, f64, &Deal),
    watch: &dyn Watch,
) -> Result<Buffer<T>, Error> {
    rectangle(atmosphere, sets, |all, slopes| {
        let layers = see_layers(atmosphere, all, gradient, |_| 0.0);
        there(&layers, slopes, (gpu, unit, deal), watch)
    })
}

// Fill a matrix block by block
/// The columns of a deal of the covariances of rows with columns on a device. Where both are of the same sensors, blocks below the
/// diagonal stay zero.
fn there<T: Real>(
    layers: &[SeenLayer],
    [rows, columns]: [Slopes; 2],
    (gpu, unit, deal): (&Gpu, f64, &Deal),
    watch: &dyn Watch,
) -> Result<Buffer<T>, Error> {
    assert_eq!(deal.columns(), columns.order.len(), "all columns are dealt out");
    let (tools, pitch) = (Tools::on(gpu)?, deal.count());
    let matrix = gpu.zeros::<T>(rows.order.len() * pitch)?;
    for [p, q] in pairs_of([rows, columns]) {
        let mut block = Block::new(layers, [rows, columns], [p, q]);
        block.views.iter_mut().for_each(|view| view.strength /= unit);
        let first = rows.order.index(p, 0, 0) * pitch;
        for (k, tile) in deal.tiles().enumerate() {
            let at = k * deal.block();
            fill_columns(
                &tools,
                &block,
                (columns.order, q),
                tile,
                (matrix.view(first..), pitch, at),
            )?;
        }
        check(watch)?;
    }
    Ok(matrix)
}

// Fill some columns of a block
/// Queues those entries of a block of two sensors, the second of which is `q` in its order, that stand in a range of the matrix's columns;
/// the first of the range stands at `at` in the rows of `pitch` numbers, which begin with those of the first sensor.
fn fill_columns<T: Real>(
    tools: &Tools<T>,
    block: &Block,
    (order, q): (&SlopeOrder, usize),
    range: Range<usize>,
    (values, pitch, at): (gpu::View<T>, usize, usize),
) -> Result<(), Error> {
    let ([rows, lenslets], height) = (block.lenslets, block.lenslets[0].len());
    let starts = [0, 1].map(|axis| order.index(q, axis, 0));
    let part = |axis: usize| {
        let inside = |column: usize| column.saturating_sub(starts[axis]).min(lenslets.len());
        inside(range.start)..inside(range.end)
    };
    let place = |axis: usize| {
        let (start, part) = (starts[axis], part(axis));
        (!part.is_empty()).then(|| at + start + part.start - range.start)
    };
    let size = [pitch, height];
    // One launch does for both slopes where they are of the same lenslets.
    if part(0) == part(1) {
        let (lenslets, at) = (&lenslets[part(0)], [place(0), place(1)]);
        return tools.fill(block, [rows, lenslets], values, (size, at));
    }
    tools.fill(block, [rows, &lenslets[part(0)]], values, (size, [place(0), None]))?;
    tools.fill(block, [rows, &lenslets[part(1)]], values, (size, [None, place(1)]))
}

// Check that dense pieces fit
/// Bytes that a piece of a covariance and the tables take on a device.
pub(crate) fn bytes(precision: Precision) -> u64 {
    let tables = match precision {
        Precision::F64 => PhaseTables::<f64>::bytes(),
        Precision::F32 => PhaseTables::<f32>::bytes(),
    };
    tables + (65 << 20)
}

fn check_memory<T: Real>([rows, columns]: [Slopes; 2], gpus: &[Gpu]) -> Result<(), Error> {
    let [m, n] = [rows, columns].map(|slopes| slopes.order.len() as u64);
    let most = (0..rows.sensors).map(|p| 2 * rows.count(p) as u64).max().unwrap_or(0);
    super::check_memory(
        || format!("the covariance matrix of {m} slopes with {n}"),
        (m + most).saturating_mul(n),
    )?;
    let needed = bytes(T::PRECISION);
    gpus.iter().try_for_each(|gpu| gpu.refuse_beyond_memory(needed, "a piece of a covariance"))
}

// Tests of the dense kernel
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{gpu::test_machines, silent};
    use crate::model::atmosphere::Layer;
    use crate::model::{lenslet_array::LensletArray, source};
    use crate::turbulence::dense;

    // Sensors of every kind for devices
    /// Two layers of unlike outer scales, and four sensors, two to a set, turned by these angles.
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
            let (lenslets, pitch) = [(5, 0.4), (4, 0.5), (3, 0.41), (6, 0.3)][k];
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
        for gpu in test_machines() {
            let gpus = [gpu.clone(), gpu];
            for angles in [[0.0; 4], [0.0, 3.0, -120.0, 41.0], [0.0, 0.0, 1e-4, 90.0 + 1e-6]] {
                let (air, sensors, valid) = system(angles);
                let [first, second] = [0..2, 2..4].map(|k| (&sensors[k.clone()], &valid[k]));
                let cone = ConeGradient::Pupil;
                let here = dense::between(&air, first, second, cone, &silent).unwrap();
                let double = between::<f64>(&air, first, second, cone, &gpus, &silent).unwrap();
                let single = between::<f32>(&air, first, second, cone, &gpus, &silent).unwrap();
                let [double_error, single_error] =
                    [&double, &single].map(|there| largest(&(there - &here)) / largest(&here));
                assert!(double_error < 1e-11, "{angles:?}: {double_error:.1e}");
                assert!(
                    single_error < 2e-6 && single_error > 1e-9,
                    "{angles:?}: {single_error:.1e}"
                );
                let all =
                    slope_covariance::<f64>(&air, (&sensors, &valid), cone, &gpus[..1], &silent)
                        .unwrap();
                let (m, n) = double.dim();
                let rows = all.nrows();
                assert_eq!(all.slice(ndarray::s![..m, rows - n..]), double);
                assert_eq!(all, all.t());
            }
        }
    }
}
