// Tangled from book/src/matrix-estimator-gpu.md: edit there, or here and run cargo tangle stitch.
//! Application of a reconstructor on devices.

// Imports of the matrix estimator on a device
use super::{FrameProduct, ReconstructorMatrix, frames_in_batch, scaled};
use crate::device::engine::Engine;
use crate::device::gpu::{Buffer, Gpu, Pinned};
use crate::device::lock;
use crate::error::Error;
use crate::linear::matrix::gpu::MatrixGpu;
use crate::linear::matrix::gpu::WORKING;
use crate::linear::operator::gpu::DeviceOperator;
use crate::numerics::real::{Precision, Real};
use ndarray::{ArrayView2, ArrayViewMut2, Axis};
use rayon::prelude::*;
use std::sync::Mutex;

// Reconstructor on a device
/// Elements that are rounded and copied at a time.
const PIECE: usize = 1 << 24;

/// Copies elements to the device in pieces, rounded to its precision.
fn send<A: Real, T: Real>(elements: &[A], to: &Buffer<T>) -> Result<(), Error> {
    let mut piece = Vec::new();
    for (k, elements) in elements.chunks(PIECE).enumerate() {
        elements.par_iter().map(|&x| T::of(x.in_double())).collect_into_vec(&mut piece);
        to.view(k * PIECE..k * PIECE + piece.len()).write(&piece)?;
    }
    Ok(())
}

// Product on each device
impl ReconstructorMatrix {
    /// A product for each device of an engine.
    pub(super) fn on_devices(&self, engine: &Engine) -> Result<Vec<Box<dyn FrameProduct>>, Error> {
        let product = |gpu: &Gpu| -> Result<Box<dyn FrameProduct>, Error> {
            Ok(match engine.precision() {
                Precision::F64 => Box::new(OnDevice::<f64>::new(gpu, self)?),
                Precision::F32 => Box::new(OnDevice::<f32>::new(gpu, self)?),
            })
        };
        engine.devices().iter().map(product).collect()
    }

    /// Bytes on each device of an engine for a matrix with so many rows and columns, and its slots.
    pub(crate) fn bytes_on_devices([rows, n]: [usize; 2], engine: &Engine) -> Vec<u64> {
        let size = if engine.precision() == Precision::F64 { 8 } else { 4 };
        let (batch, [rows, n]) = (frames_in_batch(rows, n) as u64, [rows, n].map(|k| k as u64));
        let numbers = rows.saturating_mul(n).saturating_add(2 * batch * (rows + n));
        vec![size * numbers + WORKING; engine.devices().len()]
    }
}

/// A matrix on a device, and two slots for frames.
struct OnDevice<T> {
    matrix: MatrixGpu<T>,
    slots: Mutex<[Slot<T>; 2]>,
}

/// Frames on their way to the device and their products on the way back, with pinned memory for both on the host.
struct Slot<T> {
    slopes: Buffer<T>,
    products: Buffer<T>,
    given: Pinned<T>,
    taken: Pinned<T>,
}

// Products of frames in slots
impl<T: Real> OnDevice<T> {
    fn new(gpu: &Gpu, matrix: &ReconstructorMatrix) -> Result<Self, Error> {
        let (sets, rows, n) = matrix.dim();
        let (rows, batch) = (sets * rows, frames_in_batch(sets * rows, n));
        let bytes = (rows * n * size_of::<T>()) as u64;
        gpu.refuse_beyond_memory(bytes, "a reconstructor")?;
        let elements = gpu.zeros::<T>(rows * n)?;
        match matrix {
            ReconstructorMatrix::Double(matrix) => {
                send(matrix.as_slice().unwrap_or_default(), &elements)?;
            }
            ReconstructorMatrix::Single(matrix) => {
                send(matrix.as_slice().unwrap_or_default(), &elements)?;
            }
        }
        let slot = || -> Result<Slot<T>, Error> {
            Ok(Slot {
                slopes: gpu.zeros(batch * n)?,
                products: gpu.zeros(batch * rows)?,
                given: gpu.pinned(batch * n)?,
                taken: gpu.pinned(batch * rows)?,
            })
        };
        let slots = Mutex::new([slot()?, slot()?]);
        Ok(Self { matrix: MatrixGpu::of(gpu, elements, (rows, n))?, slots })
    }

    // Queue the product of one slot
    /// Queues the product of the first frames of a slot, and its copies.
    fn queue(&self, slot: &mut Slot<T>, frames: usize) -> Result<(), Error> {
        let (gpu, (rows, n)) = (self.matrix.gpu(), (self.matrix.rows(), self.matrix.columns()));
        gpu.send(&slot.given, slot.slopes.view(..frames * n))?;
        if frames == 1 {
            let (slopes, products) = (slot.slopes.view(..n), slot.products.view(..rows));
            self.matrix.multiply_vector(slopes, products)?;
        } else {
            let slopes = (slot.slopes.view(..frames * n), false);
            let matrix = (self.matrix.elements(), true);
            let products = slot.products.view(..frames * rows);
            gpu.multiply_matrices(
                [slopes, matrix],
                [frames, n, rows],
                products,
                [T::one(), T::zero()],
            )?;
        }
        gpu.fetch(slot.products.view(..frames * rows), &mut slot.taken)
    }
}

// Multiply frames slot by slot
impl<T: Real> FrameProduct for OnDevice<T> {
    // Frames that a device takes
    /// Frames of four batches, so that the slots alternate.
    fn batch(&self) -> usize {
        4 * frames_in_batch(self.matrix.rows(), self.matrix.columns())
    }

    fn multiply(
        &self,
        slopes: ArrayView2<f64>,
        mut results: ArrayViewMut2<f64>,
    ) -> Result<(), Error> {
        let batch = frames_in_batch(self.matrix.rows(), self.matrix.columns());
        let mut slots = lock(&self.slots);
        let mut waiting: [Option<Waiting>; 2] = [None, None];
        let parts = slopes.axis_chunks_iter(Axis(0), batch);
        let results_of_parts = results.axis_chunks_iter_mut(Axis(0), batch);
        for (k, (part, result)) in parts.zip(results_of_parts).enumerate() {
            let (slot, before) = (&mut slots[k % 2], &mut waiting[k % 2]);
            take(slot, before.take())?;
            let units = scaled(part, &mut slot.given.values_mut()?[..part.len()]);
            self.queue(slot, part.nrows())?;
            *before = Some((result, units));
        }
        slots.iter().zip(waiting).try_for_each(|(slot, last)| take(slot, last))
    }
}

// Take the products of a slot
/// Results of frames whose products are under way, and the units of the frames.
type Waiting<'a> = (ArrayViewMut2<'a, f64>, Vec<f64>);

/// Takes the products of a slot when they are there, in units of the frames.
fn take<T: Real>(slot: &Slot<T>, waiting: Option<Waiting>) -> Result<(), Error> {
    let Some((mut result, units)) = waiting else { return Ok(()) };
    let products = slot.taken.values()?;
    let each = products.chunks_exact(result.ncols().max(1));
    let rows: Vec<_> = result.rows_mut().into_iter().zip(units).zip(each).collect();
    rows.into_par_iter().for_each(|((mut row, unit), products)| {
        row.iter_mut().zip(products).for_each(|(to, from)| *to = unit * from.in_double());
    });
    Ok(())
}

// Tests of the matrix estimator on devices
#[cfg(test)]
mod tests {
    use super::super::tests::{frames, matrix};
    use super::super::{multiply_frames, products};
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::watch::unwatched;

    #[test]
    fn devices_multiply_frames_as_cores_do() {
        for (shape, count) in [((2, 37, 53), 1), ((1, 5, 300), 3), ((3, 41, 24), 1200)] {
            let stored = ReconstructorMatrix::from(matrix(shape));
            let (rows, n) = (shape.0 * shape.1, shape.2);
            let slopes = frames(count, n);
            let on = |engine: &Engine| {
                let workers = products(&stored, engine).unwrap();
                multiply_frames(&workers, slopes.view(), rows, "rows", &unwatched).unwrap()
            };
            let expected = on(&Engine::default());
            for gpu in test_backends() {
                for (precision, bound) in [(Precision::F64, 1e-14), (Precision::F32, 1e-5)] {
                    for devices in [vec![gpu.clone()], vec![gpu.clone(), gpu.clone()]] {
                        let engine = Engine::gpus(devices, precision).unwrap();
                        let found = on(&engine);
                        for (found, expected) in found.outer_iter().zip(expected.outer_iter()) {
                            let largest = expected.fold(0.0, |a: f64, b| a.max(b.abs()));
                            let gap = (&found - &expected).fold(0.0, |a: f64, b| a.max(b.abs()));
                            assert!(gap <= bound * largest, "{precision:?}: {:e}", gap / largest);
                            assert!(precision == Precision::F64 || gap > 0.0);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_device_counts_its_matrix_and_its_slots() {
        for gpu in test_backends() {
            let engine = Engine::gpus(vec![gpu.clone(), gpu], Precision::F32).unwrap();
            let bytes = ReconstructorMatrix::bytes_on_devices([1000, 2000], &engine);
            let frames = frames_in_batch(1000, 2000) as u64;
            let expected = 4 * (1000 * 2000 + 2 * frames * 3000) + WORKING;
            assert_eq!(bytes, vec![expected; 2]);
        }
    }
}
