// Tangled from book/src/factorisations-gpu.md: edit there, or here and run cargo tangle stitch.
//! Factorisations of dense symmetric matrices on a device.

// Imports of factorisations on a device
use super::{NotPositive, kept};
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, BufferView, Gpu, KernelSource, Shape};
use crate::device::headers::REAL;
use crate::error::Error;
use crate::numerics::real::Real;
use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;

const SOURCE: KernelSource = KernelSource {
    name: "scale.cu",
    text: include_str!("../../../kernels/linear/scale.cu"),
    headers: &[REAL],
};

kernels! {
    /// Kernel of factorisations.
    struct ScaleKernels in SOURCE {
        /// Multiplies each row of a matrix by its factor.
        scale_rows: ScaleRows<T> { matrix: [T], factors: [T], n: usize }
    }
}

// Copy large matrices piece by piece
/// Numbers that are rounded and copied at a time.
const PIECE: usize = 1 << 24;

/// The rows of a matrix on a device, divided by `unit` and rounded.
///
/// # Errors
/// `Memory` if they do not fit, and errors of the device.
pub(crate) fn upload_rows<'a, T: Real>(
    gpu: &Gpu,
    rows: impl Into<ArrayView2<'a, f64>>,
    unit: f64,
) -> Result<Buffer<T>, Error> {
    let rows = rows.into();
    let (count, n) = rows.dim();
    gpu.refuse_beyond_memory((count * n * size_of::<T>()) as u64, "a dense matrix")?;
    let (there, rows) = (gpu.zeros::<T>(count * n)?, rows.as_standard_layout());
    let values = rows.as_slice().unwrap_or_else(|| unreachable!("arrays are row by row here"));
    let mut piece = Vec::new();
    for (k, values) in values.chunks(PIECE).enumerate() {
        values.par_iter().map(|&value| T::of(value / unit)).collect_into_vec(&mut piece);
        there.view(k * PIECE..k * PIECE + piece.len()).write(&piece)?;
    }
    Ok(there)
}

// Copy large matrices back
// Copy rows in pieces of fixed size
/// Numbers that a device copies at a time.
pub(crate) const FETCHED: usize = 1 << 22;

/// Rows of `n` numbers from a device, times `unit`.
///
/// # Errors
/// Errors of the device.
pub(crate) fn read_rows<T: Real>(
    rows: BufferView<T>,
    n: usize,
    unit: f64,
) -> Result<Array2<f64>, Error> {
    read_pieces(rows, n, unit, FETCHED)
}

fn read_pieces<T: Real>(
    rows: BufferView<T>,
    n: usize,
    unit: f64,
    piece: usize,
) -> Result<Array2<f64>, Error> {
    let mut all = Array2::zeros((rows.len() / n.max(1), n));
    let values = all.as_slice_mut().unwrap_or_else(|| unreachable!("arrays are row by row here"));
    rows.read_pieces(piece, &mut |start, there| {
        let pairs = values[start..start + there.len()].par_iter_mut().zip(there);
        pairs.for_each(|(value, there)| *value = unit * there.in_double());
    })?;
    Ok(all)
}

// Memory of a factorisation
/// Matrices of the size of A that the computation of eigenvectors needs, including A.
pub(crate) const EIGENVECTORS: f64 = 5.0;

pub(crate) use crate::linear::matrix::gpu::WORKING;

// Cholesky factor on a device
/// A symmetric positive definite matrix on a device, in the form of Eq. [cholesky](https://lenslet.github.io/lenslet/factorisations.html#eq-cholesky).
pub(crate) struct CholeskyGpu<T> {
    gpu: Gpu,
    factor: Buffer<T>,
    order: usize,
}

impl<T: Real> CholeskyGpu<T> {
    /// Factorises a matrix in its own memory; only its upper triangle is read. The inner error is a matrix that is not positive
    /// definite.
    ///
    /// # Errors
    /// Those of [`Gpu::cholesky`].
    pub(crate) fn new(
        gpu: &Gpu,
        matrix: Buffer<T>,
        order: usize,
    ) -> Result<Result<Self, NotPositive>, Error> {
        let pivot = gpu.cholesky(&matrix, order)?;
        let factor = Self { gpu: gpu.clone(), factor: matrix, order };
        Ok(pivot.map_or(Ok(factor), |pivot| Err(NotPositive { pivot })))
    }

    // Solve with half a factor on a device
    /// Queues: each row b becomes L⁻¹ b.
    pub(crate) fn halve(&self, rows: &Buffer<T>) -> Result<(), Error> {
        self.gpu.solve_triangular(&self.factor, self.order, rows, false)
    }

    /// Queues: each row y becomes L⁻ᵗ y.
    pub(crate) fn finish(&self, rows: BufferView<T>) -> Result<(), Error> {
        self.gpu.solve_triangular(&self.factor, self.order, rows, true)
    }
}

// Eigenvectors on a device
/// A symmetric matrix on a device, in the form of Eq. [eigen](https://lenslet.github.io/lenslet/factorisations.html#eq-eigen); each eigenvector that is kept is divided by the root of its eigenvalue.
pub(crate) struct EigenGpu<T> {
    gpu: Gpu,
    vectors: Buffer<T>,
    values: Vec<f64>,
    kept: usize,
    /// Columns of the vectors that are on this device.
    width: usize,
}

impl<T: Real> EigenGpu<T> {
    // Decompose a matrix in its memory
    /// Decomposes a matrix in its own memory; only its upper triangle is read. Eigenvalues below `filter` times the largest are
    /// dropped.
    ///
    /// # Errors
    /// Those of [`Gpu::eigenvectors`].
    pub(crate) fn new(
        gpu: &Gpu,
        matrix: Buffer<T>,
        order: usize,
        filter: f64,
    ) -> Result<Self, Error> {
        let values = gpu.eigenvectors(&matrix, order)?;
        Self::of(gpu, (values, matrix), order, filter)
    }

    // Divide eigenvectors by their roots
    /// The decomposition by ascending eigenvalues and their eigenvectors, one in each row, of which `width` columns are on this device.
    ///
    /// # Errors
    /// Errors of the device.
    pub(crate) fn of(
        gpu: &Gpu,
        (values, vectors): (Vec<T>, Buffer<T>),
        width: usize,
        filter: f64,
    ) -> Result<Self, Error> {
        let values: Vec<f64> = values.into_iter().map(Real::in_double).collect();
        let kept = kept(&values, filter);
        let roots = values
            .iter()
            .map(|&value| if value > 0.0 { T::of(1.0 / value.sqrt()) } else { T::zero() });
        let factors = gpu.upload(&roots.collect::<Vec<T>>())?;
        let kernels = ScaleKernels::load(gpu, &[])?;
        let arguments = ScaleRows { matrix: vectors.view(..), factors: factors.view(..), n: width };
        let shape = Shape { grid: [values.len(), 1, 1], block: 256, shared: 0 };
        gpu.launch(&kernels.scale_rows, shape, arguments)?;
        Ok(Self { gpu: gpu.clone(), vectors, values, kept, width })
    }

    // Spectrum of a device's matrix
    /// The eigenvalues, ascending, and how many of the largest are kept.
    pub(crate) fn spectrum(&self) -> (&[f64], usize) {
        (&self.values, self.kept)
    }

    // Project onto eigenvectors on a device
    /// The rows of B along the eigenvectors that are kept: B V E^(−½), (m, kept); from the columns on this device.
    pub(crate) fn project(&self, rows: &Buffer<T>) -> Result<Buffer<T>, Error> {
        let (n, kept, width) = (self.values.len(), self.kept, self.width);
        let m = rows.len() / width;
        let along = self.gpu.zeros(m * kept)?;
        let factors = [(rows.view(..), false), (self.vectors.view((n - kept) * width..), true)];
        self.gpu.multiply_matrices(factors, [m, width, kept], &along, [T::one(), T::zero()])?;
        Ok(along)
    }

    /// Writes Y E^(−½) Vᵗ, (m, n), to `rows`, for rows Y of (m, kept).
    pub(crate) fn expand(&self, along: BufferView<T>, rows: BufferView<T>) -> Result<(), Error> {
        let (n, kept, width) = (self.values.len(), self.kept, self.width);
        let factors = [(along, false), (self.vectors.view((n - kept) * width..), false)];
        let shape = [rows.len() / width, kept, width];
        self.gpu.multiply_matrices(factors, shape, rows, [T::one(), T::zero()])
    }
}

// Tests of factorisations on a device
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::linear::operator::battery::random;
    use crate::linear::{Cholesky, Eigen};

    fn largest(matrix: &Array2<f64>) -> f64 {
        matrix.fold(0.0, |most: f64, value| most.max(value.abs()))
    }

    // Factors are those of the processor
    #[test]
    fn factors_are_those_of_the_processor() {
        let n = 37;
        let of = |rows, seed| Array2::from_shape_vec((rows, n), random(rows * n, seed)).unwrap();
        let (half, rows, unit) = (of(n + 3, 1), of(5, 2), 0.25);
        let a = half.t().dot(&half);
        let factor = Cholesky::new(a.clone()).unwrap();
        let mut halved = rows.clone();
        factor.halve(&mut halved);
        let mut solved = halved.clone();
        factor.finish(&mut solved);
        for gpu in test_backends() {
            let matrix = upload_rows::<f64>(&gpu, &a, unit).unwrap();
            let there = CholeskyGpu::new(&gpu, matrix, n).unwrap().unwrap();
            let x = upload_rows::<f64>(&gpu, &rows, unit).unwrap();
            // Five pieces and a rest come back as one.
            assert_eq!(read_pieces(x.view(..), n, unit, 36).unwrap(), rows);
            // L⁻¹ b grows with the root of the unit, and A⁻¹ b does not depend on it.
            there.halve(&x).unwrap();
            let found = read_rows(x.view(..), n, unit.sqrt()).unwrap();
            assert!(largest(&(&found - &halved)) < 1e-9 * largest(&halved), "{}", gpu.name());
            there.finish(x.view(..)).unwrap();
            let found = read_rows(x.view(..), n, 1.0).unwrap();
            assert!(largest(&(&found - &solved)) < 1e-9 * largest(&solved), "{}", gpu.name());
            let mut bad = a.clone();
            bad[[20, 20]] = -1.0;
            let bad = upload_rows::<f32>(&gpu, &bad, 1.0).unwrap();
            let refused = CholeskyGpu::new(&gpu, bad, n).unwrap().err();
            assert_eq!(refused, Some(NotPositive { pivot: 20 }));
        }
    }

    // Eigenvectors are those of the processor
    #[test]
    fn eigenvectors_are_those_of_the_processor() {
        let n = 41;
        let of = |rows, seed| Array2::from_shape_vec((rows, n), random(rows * n, seed)).unwrap();
        let (half, rows) = (of(n + 3, 3), of(7, 4));
        let a = half.t().dot(&half);
        let here = Eigen::new(&a).unwrap();
        for gpu in test_backends() {
            let matrix = upload_rows::<f64>(&gpu, &a, 1.0).unwrap();
            let there = match EigenGpu::new(&gpu, matrix, n, 1e-3) {
                Ok(there) => there,
                Err(reason) => {
                    eprintln!("skipped on {}: {reason}", gpu.name());
                    continue;
                }
            };
            let (values, kept) = there.spectrum();
            assert_eq!(kept, here.kept(1e-3));
            let gaps = values.iter().zip(here.values()).map(|(a, b)| (a - b).abs());
            assert!(gaps.fold(0.0, f64::max) < 1e-11 * values[n - 1]);
            // Rows over the matrix, filtered
            let x = upload_rows::<f64>(&gpu, &rows, 1.0).unwrap();
            let along = there.project(&x).unwrap();
            there.expand(along.view(..), x.view(..)).unwrap();
            let found = read_rows(x.view(..), n, 1.0).unwrap();
            let mut expected = here.project(&rows, kept);
            for mut row in expected.rows_mut() {
                row.iter_mut().zip(&here.values()[n - kept..]).for_each(|(b, value)| *b /= value);
            }
            let expected = here.expand(&expected);
            assert!(largest(&(&found - &expected)) < 1e-9 * largest(&expected));
        }
    }
}
