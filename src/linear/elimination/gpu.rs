// Tangled from book/src/elimination-gpu.md: edit there, or here and run cargo tangle stitch.
//! Elimination of a few of many unknowns, on a device.

// Imports of the elimination on a device
use crate::device::gpu::{Buffer, Gpu, Shape};
use crate::error::{Error, accept};
use crate::linear::blocks::gpu::{SolveEliminated, WideMatrix};
use crate::linear::elimination::{check, invert, weighed};
use crate::linear::operator::gpu::{DeviceOperator, check_lengths};
use crate::numerics::real::Real;
use ndarray::{Array2, ArrayView2};
use std::ops::Range;
use std::sync::Arc;

// Elimination on a device
// What the elimination keeps on a device
/// The preconditioner of [`Elimination`](crate::linear::elimination::Elimination), on a device.
pub(crate) struct EliminationGpu<T> {
    /// P, which reads and writes the retained unknowns in vectors of all.
    inverse: Arc<dyn DeviceOperator<T>>,
    /// Bᵀ, and D⁻¹.
    between: WideMatrix<T>,
    small: Buffer<T>,
    /// Rᵀ and R of σ E⁻¹ = RᵀR, and a matrix of zeros.
    roots: [Buffer<T>; 2],
    zeros: Buffer<T>,
    /// Workspaces for the eliminated unknowns, and for a vector of all.
    left: Buffer<T>,
    known: Buffer<T>,
}

/// The most unknowns that one block of a device eliminates.
const MOST: usize = 1024;

impl<T: Real> EliminationGpu<T> {
    // Make the elimination on a device
    /// The preconditioner of [`Elimination::new`](crate::linear::elimination::Elimination::new), on a device; `inverse` acts on
    /// so many vectors of all unknowns, one behind the other, and leaves the eliminated ones unchanged.
    ///
    /// # Errors
    /// As there; `Invalid` where more than 1024 are to be eliminated; what the device says.
    pub(crate) fn new(
        inverse: Arc<dyn DeviceOperator<T>>,
        (between, [small, projected]): (Array2<f64>, [ArrayView2<f64>; 2]),
        [retained, eliminated]: [Vec<Range<usize>>; 2],
        vectors: usize,
    ) -> Result<Self, Error> {
        // Refuse what cannot be eliminated
        check(between.dim(), [small.dim(), projected.dim()], [&retained, &eliminated])?;
        accept(
            small.nrows() <= MOST,
            "eliminated unknowns",
            small.nrows(),
            &format!("at most {MOST}"),
        )?;
        // Upload matrices of the elimination
        let gpu = inverse.gpu();
        let upload = |matrix: ArrayView2<f64>| {
            gpu.upload(&matrix.iter().map(|&value| T::of(value)).collect::<Vec<_>>())
        };
        let root = weighed(projected)?;
        Ok(Self {
            between: WideMatrix::new(gpu, between.view(), [&eliminated, &retained], vectors)?,
            small: upload(invert(small)?.view())?,
            roots: [upload(root.t())?, upload(root.view())?],
            zeros: gpu.zeros(small.len())?,
            left: gpu.zeros(vectors * small.nrows())?,
            known: gpu.zeros(inverse.rows())?,
            inverse,
        })
    }
    // Solve for the eliminated unknowns on a device
    /// The eliminated unknowns of y: those of x, minus the sums of so many parts over the retained ones, times the transpose of a matrix.
    fn substitute(
        &self,
        matrix: &Buffer<T>,
        parts: usize,
        [x, y]: [&Buffer<T>; 2],
    ) -> Result<(), Error> {
        let rows = &self.between;
        let count = self.left.len() / rows.vectors;
        let arguments = SolveEliminated {
            inverse: matrix.view(..),
            sums: rows.sums.view(..),
            x: x.view(..),
            rows: rows.rows.view(..),
            left: self.left.view(..),
            y: y.view(..),
            count,
            parts,
            n: x.len() / rows.vectors,
        };
        let threads = count.next_multiple_of(32);
        let shape = Shape::over(threads, threads, [1, rows.vectors]);
        self.gpu().launch(&rows.kernels.solve_eliminated, shape, arguments)
    }
}

impl<T: Real> DeviceOperator<T> for EliminationGpu<T> {
    // Answers of the elimination on a device
    fn gpu(&self) -> &Gpu {
        self.inverse.gpu()
    }

    fn rows(&self) -> usize {
        self.inverse.rows()
    }

    fn columns(&self) -> usize {
        self.inverse.rows()
    }

    fn apply_transpose(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        self.apply(x, y)
    }

    fn bytes(&self) -> u64 {
        let [root, transposed] = self.roots.each_ref().map(Buffer::bytes);
        let small = self.small.bytes() + root + transposed + self.zeros.bytes() + self.left.bytes();
        self.inverse.bytes() + self.between.bytes() + small + self.known.bytes()
    }
    // Eliminate on a device
    fn apply(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        check_lengths(x, y, (self.rows(), self.rows()))?;
        let (known, parts) = (&self.known, self.between.parts);
        self.substitute(&self.small, 0, [x, known])?;
        self.between.add_columns([false, true], [known, x, known])?;
        self.inverse.apply(known, y)?;
        // Add the low-rank correction on a device
        let [transposed, root] = &self.roots;
        self.substitute(&self.zeros, 0, [known, known])?;
        self.between.sum(known)?;
        self.substitute(transposed, parts, [known, known])?;
        self.substitute(root, 0, [known, known])?;
        self.between.add_columns([false, true], [known, y, y])?;
        self.between.sum(y)?;
        self.substitute(&self.small, parts, [x, y])
    }
}
