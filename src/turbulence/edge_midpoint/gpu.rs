// Tangled from book/src/edge-midpoint-gpu.md: edit there, or here and run cargo tangle stitch.
//! Covariances of slopes by the formula of four points on a graphics processor.

// Imports of four points on a device
use super::{HalfStructure, MidpointLayer, see_layers};
use crate::device::collective::BlockCyclic;
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{self, Buffer, Gpu, KernelSource, Shape};
use crate::device::headers::REAL;
use crate::device::{Workers, dispatch};
use crate::error::Error;
use crate::model::atmosphere::Atmosphere;
use crate::model::lenslet_array::SlopeOrder;
use crate::model::sensor::Sensor;
use crate::numerics::real::Real;
use crate::turbulence::cross_covariance::gpu::{Lenslets, PLACES, fill_on_device};
use crate::turbulence::cross_covariance::{Slopes, half_square, mirror, pairs_of, rectangle};
use crate::turbulence::phase::gpu::RADIAL_TABLE;
use crate::watch::Watch;
use ndarray::Array2;
use std::sync::Arc;

/// The kernels of this chapter.
pub(crate) const MIDPOINT: KernelSource = KernelSource {
    name: "edge_midpoint.cu",
    text: include_str!("../../../kernels/turbulence/edge_midpoint.cu"),
    headers: &[REAL, RADIAL_TABLE, PLACES],
};

// Kernels of four points
kernels! {
    /// Kernels of the formula of four points.
    struct MidpointKernels in MIDPOINT {
        /// Sums of four points at all displacements of two lattices.
        four_points_by_lag: FourPointsByLag {
            views: [MidpointLayerPair] as "LayerPair", layers: usize, tables: [f64], lenslets: usize, lags: usize, sums: [f64],
        }
        /// A block of sums of four points.
        four_points_block: FourPointsBlock<T> {
            views: [MidpointLayerPair] as "LayerPair", layers: usize, tables: [f64], sums: [f64], lenslets: usize, lags: usize,
            first: [i32], second: [i32], columns: usize, pitch: usize, height: usize, values: [T],
        }
    }
}

// Layer pair of two sensors with midpoints
/// Parameters of a layer for two sensors, as the kernels read them; lengths in metres.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct MidpointLayerPair {
    corners: [[f64; 2]; 2],
    steps: [[[f64; 2]; 2]; 2],
    halves: [f64; 2],
    strength: f64,
    least: f64,
    table: i32,
    first: i32,
    last: i32,
    together: i32,
}

impl MidpointLayerPair {
    /// The layer pair of two sensors, with the index at which the layer's table begins; the strength is multiplied by `scale`.
    fn new(layer: &MidpointLayer, [p, q]: [usize; 2], table: i32, scale: f64) -> Self {
        let views = [&layer.views[p], &layer.views[q]];
        let [first, last] = layer.half_structure.table.numbers();
        Self {
            corners: views.map(|view| view.corner),
            steps: views.map(|view| view.steps),
            halves: views.map(|view| view.half),
            strength: layer.strength * scale,
            least: layer.half_structure.least,
            table,
            first,
            last,
            together: i32::from(views[0].steps == views[1].steps),
        }
    }
}

// Tables of structure functions on a device
/// The tables of all layers, one after the other, and where that of each layer begins, in segments.
fn tables(layers: &[MidpointLayer]) -> (Vec<[f64; 8]>, Vec<i32>) {
    let (mut segments, mut known) = (Vec::new(), Vec::<(&Arc<HalfStructure>, i32)>::new());
    let starts = layers.iter().map(|layer| {
        let same = known
            .iter()
            .find(|(half_structure, _)| Arc::ptr_eq(half_structure, &layer.half_structure));
        same.map(|(_, start)| *start).unwrap_or_else(|| {
            let start = segments.len() as i32;
            segments.extend(layer.half_structure.table.segments());
            known.push((&layer.half_structure, start));
            start
        })
    });
    let starts = starts.collect();
    (segments, starts)
}

// Block of four points on a device
/// What a device has for all blocks.
struct MidpointTables<'a, T> {
    gpu: &'a Gpu,
    sensors: &'a [Sensor],
    layers: Vec<MidpointLayer>,
    /// The tables, and where that of each layer begins.
    segments: Buffer<f64>,
    starts: Vec<i32>,
    kernels: MidpointKernels<T>,
}

impl<'a, T: Real> MidpointTables<'a, T> {
    fn on(gpu: &'a Gpu, atmosphere: &Atmosphere, sensors: &'a [Sensor]) -> Result<Self, Error> {
        let layers = see_layers(atmosphere, sensors);
        let (segments, starts) = tables(&layers);
        let segments = gpu.upload(segments.as_flattened())?;
        let kernels = MidpointKernels::load(gpu, &[])?;
        Ok(Self { gpu, sensors, layers, segments, starts, kernels })
    }

    // Queue a block of four points
    /// Queues the block of two sensors, by their numbers among all, over `unit`; the other arguments are those of [`fill_on_device`].
    fn fill(
        &self,
        [p, q]: [usize; 2],
        (rows, columns): Lenslets,
        (values, unit): (gpu::BufferView<T>, f64),
        [pitch, height]: [usize; 2],
    ) -> Result<(), Error> {
        let gpu = self.gpu;
        // Sum the lattices of a block
        let scale = 1.0 / (self.sensors[p].side() * self.sensors[q].side() * unit);
        let view = |(layer, &start)| MidpointLayerPair::new(layer, [p, q], start, scale);
        let views: Vec<MidpointLayerPair> =
            self.layers.iter().zip(&self.starts).map(view).collect();
        let (layers, views) = (views.len(), gpu.upload(&views)?);
        let [lenslets, others] = [p, q].map(|k| self.sensors[k].array.lenslets());
        let lags = lenslets + others - 1;
        let sums = gpu.zeros::<f64>(4 * lags * lags)?;
        let (views, tables, sums) = (views.view(..), self.segments.view(..), sums.view(..));
        let arguments = FourPointsByLag { views, layers, tables, lenslets, lags, sums };
        let shape = Shape::over(lags * lags, 128, [1, 1]);
        gpu.launch(&self.kernels.four_points_by_lag, shape, arguments)?;
        // Launch the kernel of a block of points
        let first: Vec<i32> = rows.as_flattened().iter().map(|&k| k as i32).collect();
        let (first, second) = (gpu.upload(&first)?, gpu.upload(columns.as_flattened())?);
        let columns = columns.len();
        let arguments = FourPointsBlock {
            views,
            layers,
            tables,
            sums,
            lenslets,
            lags,
            first: first.view(..),
            second: second.view(..),
            columns,
            pitch,
            height,
            values,
        };
        let shape = Shape::over(columns, 128, [rows.len(), 1]);
        gpu.launch(&self.kernels.four_points_block, shape, arguments)
    }
}

// Store four points in a matrix
/// Columns of a rank in a block-cyclic layout of the slope covariance matrix by the formula of four points, (n, n), rad² over `unit`, on a
/// device; blocks of sensors below the diagonal are zero. In double precision an entry differs from that of the CPU by at most 1e-12 of the
/// variance of a slope, and in single precision it is rounded once.
///
/// # Errors
/// Those of [`edge_midpoint::slope_covariance`](super::slope_covariance), and errors of the device.
pub(crate) fn slopes_on_device<T: Real>(
    atmosphere: &Atmosphere,
    set: (&[Sensor], &[Array2<bool>]),
    to: (&Gpu, f64, &BlockCyclic),
    watch: &dyn Watch,
) -> Result<Buffer<T>, Error> {
    half_square(atmosphere, set, |all, slopes| {
        let matrix = to.0.zeros::<T>(slopes[0].order.len() * to.2.count())?;
        add_on_device(atmosphere, (all, slopes), (to, matrix.view(..)), watch)?;
        Ok(matrix)
    })
}

// Add four points to a matrix
/// Adds the covariances of the slopes of some sensors with those of others, (m, n), rad² over `unit`, to a matrix on a device: the columns
/// of a rank in a block-cyclic layout.
///
/// # Errors
/// Those of [`slopes_on_device`].
pub(crate) fn add_cross_covariance<T: Real>(
    atmosphere: &Atmosphere,
    sets: [(&[Sensor], &[Array2<bool>]); 2],
    to: ((&Gpu, f64, &BlockCyclic), gpu::BufferView<T>),
    watch: &dyn Watch,
) -> Result<(), Error> {
    rectangle(atmosphere, sets, |all, slopes| add_on_device(atmosphere, (all, slopes), to, watch))
}

// Make the blocks of all pairs
fn add_on_device<T: Real>(
    atmosphere: &Atmosphere,
    (sensors, slopes): (&[Sensor], [Slopes; 2]),
    ((gpu, unit, deal), matrix): ((&Gpu, f64, &BlockCyclic), gpu::BufferView<T>),
    watch: &dyn Watch,
) -> Result<(), Error> {
    let tools = MidpointTables::<T>::on(gpu, atmosphere, sensors)?;
    let pairs = pairs_of(slopes);
    let fill = |k: usize, lenslets: Lenslets, values: gpu::BufferView<T>, sizes: [usize; 2]| {
        let pair = [slopes[0].first + pairs[k][0], slopes[1].first + pairs[k][1]];
        tools.fill(pair, lenslets, (values, unit), sizes)
    };
    fill_on_device(slopes, (deal, matrix), &fill, watch)
}

// Four points from devices to the host
/// Numbers of a piece of the matrix that a device makes at a time.
const PIECE: usize = 1 << 26;

/// The slope covariance matrix by the formula of four points, (n, n), rad², some columns at a time on any of the devices.
///
/// # Errors
/// Those of [`slopes_on_device`].
pub(crate) fn slope_covariance<T: Real>(
    atmosphere: &Atmosphere,
    (sensors, valid): (&[Sensor], &[Array2<bool>]),
    gpus: &[Gpu],
    watch: &dyn Watch,
) -> Result<Array2<f64>, Error> {
    // Divide the columns into pieces
    let n = SlopeOrder::new(valid).len();
    let pieces = (n * n).div_ceil(PIECE).max(gpus.len());
    let deals =
        (0..pieces).map(|k| BlockCyclic::new(n, [k, pieces])).filter(|deal| deal.count() > 0);
    let deals: Vec<BlockCyclic> = deals.collect();
    let mut matrix = Array2::zeros((n, n));
    // Compute and store a piece
    let make = |gpu: &Gpu, deal: &BlockCyclic| {
        slopes_on_device::<T>(atmosphere, (sensors, valid), (gpu, 1.0, deal), watch)?.read()
    };
    let put = |k: usize, values: Vec<T>| {
        let deal = &deals[k];
        let rows = matrix.outer_iter_mut().zip(values.chunks_exact(deal.count()));
        rows.for_each(|(row, values)| deal.put(row, values, 1.0));
        Ok(())
    };
    dispatch(Workers::devices(gpus), &deals, watch, make, put)?;
    mirror(&mut matrix);
    Ok(matrix)
}

// Memory of four points on a device
/// Octaves of squared distance that a table has at most: from 1e-10 of a side to 1e4 of them.
const OCTAVES: u64 = 96;

/// Bytes that tables and a block's sums take on a device, for some sensors under an atmosphere.
pub(crate) fn bytes(atmosphere: &Atmosphere, sensors: &[Sensor]) -> u64 {
    let most = sensors.iter().map(|sensor| sensor.array.lenslets() as u64).max().unwrap_or(0);
    let tables = atmosphere.layers().len() as u64 * OCTAVES * 32 * size_of::<[f64; 8]>() as u64;
    tables + 4 * 8 * (2 * most).pow(2) + (1 << 20)
}

/// Bytes that tables, a block's sums and a piece of the matrix take on a device, for some sensors under an atmosphere.
pub(crate) fn bytes_with_piece(atmosphere: &Atmosphere, sensors: &[Sensor]) -> u64 {
    bytes(atmosphere, sensors) + 2 * 8 * PIECE as u64
}

// Tests of four points on devices
#[cfg(test)]
mod tests {
    use super::super::slope_cross_covariance;
    use super::super::tests::lopsided;
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::watch::unwatched;

    fn read<T: Real>(values: &Buffer<T>, rows: usize) -> Array2<f64> {
        let values: Vec<f64> =
            values.read().unwrap().iter().map(|value| value.in_double()).collect();
        Array2::from_shape_vec((rows, values.len() / rows), values).unwrap()
    }

    #[test]
    fn four_points_on_a_device_are_those_of_the_processor() {
        let (air, sensors, valid) = lopsided();
        let all = (&sensors[..], &valid[..]);
        let [one, two] = [(&sensors[..2], &valid[..2]), (&sensors[2..], &valid[2..])];
        let square = super::super::slope_covariance(&air, &sensors, &valid, &unwatched).unwrap();
        let across = slope_cross_covariance(&air, one, two, &unwatched).unwrap();
        let (unit, most) = (1e-13, square[[0, 0]]);
        for gpu in test_backends() {
            let [m, n] = [across.nrows(), across.ncols()];
            let to = |deal| (&gpu, unit, deal);
            let (whole, part) = (BlockCyclic::whole(m + n), BlockCyclic::whole(n));
            let double = slopes_on_device::<f64>(&air, all, to(&whole), &unwatched).unwrap();
            let single = gpu.zeros::<f32>(m * n).unwrap();
            add_cross_covariance(&air, [one, two], (to(&part), single.view(..)), &unwatched)
                .unwrap();
            let (double, single) = (unit * read(&double, m + n), unit * read(&single, m));
            for ((row, column), found) in double.indexed_iter() {
                // Blocks below the diagonal are left to those above it.
                let error = (found - square[[row, column]]).abs() / most;
                assert!(error < 1e-12 || *found == 0.0 && column < row, "{row} {column} {error:e}");
            }
            for (found, here) in single.iter().zip(&across) {
                let error = (found - here).abs();
                assert!(error < 6e-8 * here.abs() + 1e-12 * most, "{found:e} {here:e}");
            }
            assert!(single != across);
            // All of it comes to the host, from two devices as from one
            let gpus = [gpu.clone(), gpu.clone(), gpu.clone()];
            for count in [1, 3] {
                let all = slope_covariance::<f64>(&air, all, &gpus[..count], &unwatched).unwrap();
                let gap = (&all - &square).fold(0.0, |most: f64, gap| most.max(gap.abs()));
                assert!(gap < 1e-12 * most && all == all.t(), "{gap:e}");
            }
        }
    }
}
