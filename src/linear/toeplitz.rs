// Tangled from book/src/toeplitz-products.md: edit there, or here and run cargo tangle stitch.
//! Block matrices of two-level Toeplitz blocks, multiplied by Fourier transforms.

pub(crate) mod gpu;

// Imports of Toeplitz products
use crate::error::{Error, Invalid};
use crate::linear::operator::{Operator, vectors};
use crate::numerics::fft::even_fast_length;
use crate::numerics::real::Real;
use bytemuck::cast_slice_mut;
use ndarray::{Array2, ArrayView1, ArrayView2, ArrayView5, s};
use num_complex::Complex;
use rayon::prelude::*;
use realfft::{ComplexToReal, RealToComplex};
use rustfft::Fft;
use std::ops::Range;
use std::sync::Arc;

// Sizes of pieces of work
/// Numbers that are multiplied side by side.
const LANES: usize = 8;

/// Real parts of so many complex numbers, then their imaginary parts.
type Lanes<T> = [T; 2 * LANES];

/// Rows of lattices that one thread transforms at a time.
const ROWS: usize = 8;

/// Columns of spectra that one thread takes at a time; four complex numbers fill a line of the cache.
const COLUMNS: usize = 4;

// Kernel of one block
/// What fills a block of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Which of the kernels.
    pub kernel: usize,
    /// Whether the kernel is turned by half a turn: C\[K − 1 − j, K − 1 − i\] in place of C\[j, i\].
    pub turned: bool,
}

// Block matrix of Toeplitz blocks
// Example of a Toeplitz product
/// A block matrix whose blocks are two-level Toeplitz, between masked lattices; Eq. [block toeplitz](https://lenslet.github.io/lenslet/toeplitz-products.html#eq-block-toeplitz).
///
/// A vector holds the unmasked numbers of all lattices of its side: lattice by lattice, each by rows.
///
/// ```
/// use lenslet::linear::{BlockToeplitz, Operator};
/// use ndarray::{Array2, Array5};
///
/// let mut kernels = Array5::zeros((1, 1, 2, 4, 4));
/// for (i, value) in [3.0, 4.0, 2.0, 1.0].into_iter().enumerate() {
///     kernels[[0, 0, 0, 1, i]] = value; // T₁, T₀, T₋₁, T₋₂ at displacement 0 along y
/// }
/// let first_row = |n| vec![Array2::from_shape_fn((n, n), |(row, _)| row == 0)];
/// let operator =
///     BlockToeplitz::wavefront_slope(kernels.view(), 1, &first_row(2), &first_row(3))?;
/// let (mut y, mut scratch) = ([0.0f64; 2], vec![0.0; operator.scratch(1)]);
/// operator.apply(&[1.0, 2.0, -1.0, 0.0, 0.0, 0.0], &mut y, &mut scratch);
/// assert!((y[0] - 7.0).abs() < 1e-14 && (y[1] - 9.0).abs() < 1e-14);
/// # Ok::<(), lenslet::Error>(())
/// ```
pub struct BlockToeplitz<T> {
    inputs: LatticeSide,
    outputs: LatticeSide,
    /// The blocks, (sublattices of outputs, inputs): index of the spectrum, and whether it is conjugate.
    terms: Array2<(usize, bool)>,
    /// Spectra divided by F², (F/2 + 1, spectra, lanes along y).
    spectra: Vec<Lanes<T>>,
    transforms: RowColumnTransforms<T>,
}

// Makers and answers of the operator
impl<T: Real> BlockToeplitz<T> {
    // Make the operator from kernels and masks
    /// The operator with the blocks `blocks`, (outputs, inputs), made of kernels of shape (K, K), K = osf (N − 1) + M.
    ///
    /// Each input has a mask of shape (N, N), each output one of shape (M, M); true is used. Lag (j, i) of a kernel is
    /// that of lenslet n and point m with i = osf n − m + M − 1 along x, and so j along y.
    ///
    /// ```
    /// use lenslet::linear::{Block, BlockToeplitz, Operator};
    /// use ndarray::{Array2, arr2};
    /// // One block, 2 × 2 to 2 × 2, whose kernel is 1 where the lenslet lies one pitch to the right of the point.
    /// let kernel = arr2(&[[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]);
    /// let blocks = Array2::from_elem((1, 1), Block { kernel: 0, turned: false });
    /// let all = [Array2::from_elem((2, 2), true)];
    /// let shift = BlockToeplitz::<f64>::new(&[kernel.view()], &blocks, 1, &all, &all)?;
    /// let (mut y, mut scratch) = ([0.0; 4], vec![0.0; shift.scratch(1)]);
    /// shift.apply(&[1.0, 2.0, 3.0, 4.0], &mut y, &mut scratch);
    /// assert!(y.iter().zip([2.0, 0.0, 4.0, 0.0]).all(|(y, exact)| (y - exact).abs() < 1e-14));
    /// # Ok::<(), lenslet::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Invalid` where a mask has the wrong shape or leaves nothing, a kernel has the wrong length or is not finite, or a
    /// block asks for a kernel that is not there, or for one turned that is not square in this sense: osf = 1, M = N.
    // Assemble the operator, if its parts fit
    pub fn new(
        kernels: &[ArrayView2<f64>],
        blocks: &Array2<Block>,
        oversampling: usize,
        outputs: &[Array2<bool>],
        inputs: &[Array2<bool>],
    ) -> Result<Self, Error> {
        let (kernels, outputs, inputs) = (kernels.to_vec(), outputs.to_vec(), inputs.to_vec());
        Ok(Self::of(&Parts::new(kernels, blocks.clone(), oversampling, outputs, inputs)?))
    }

    /// The operator of these parts.
    pub(crate) fn of(parts: &Parts) -> Self {
        let length = even_fast_length(parts.shape.least_length());
        Self {
            inputs: LatticeSide::new(&parts.inputs, 1, length),
            outputs: LatticeSide::new(&parts.outputs, parts.shape.step, length),
            terms: parts.terms(),
            spectra: spectra(&parts.kernels, &parts.shape, length),
            transforms: RowColumnTransforms::new(length),
        }
    }

    // Make the operator from slopes to wavefronts
    /// The matrix that takes slopes to wavefront points, from kernels of shape (T, S, 2, K, K), K = osf (N − 1) + M.
    ///
    /// Rows are the unmasked points of `points`, one mask (M, M) for each of T targets; columns the slopes of the valid
    /// lenslets of `valid`, one mask (N, N) for each of S sources, in the order of
    /// [`SlopeOrder`](crate::model::lenslet_array::SlopeOrder).
    ///
    /// # Errors
    /// `Invalid` as in [`BlockToeplitz::new`], and where there are not as many masks as targets and sources.
    pub fn wavefront_slope(
        kernels: ArrayView5<f64>,
        oversampling: usize,
        points: &[Array2<bool>],
        valid: &[Array2<bool>],
    ) -> Result<Self, Error> {
        let parts = Parts::wavefront_slope(kernels.reborrow(), oversampling, points, valid)?;
        Ok(Self::of(&parts))
    }

    // Facts about the operator
    /// Length F of the transforms, [transform length](https://lenslet.github.io/lenslet/toeplitz-products.html#eq-transform-length).
    pub fn length(&self) -> usize {
        self.transforms.length
    }

    /// Spectra that are kept: one for each distinct kernel and sublattice.
    pub fn spectra(&self) -> usize {
        self.spectra.len() / (self.transforms.half() * self.transforms.groups())
    }
}

impl<T: Real> Operator<T> for BlockToeplitz<T> {
    // Answers of a block Toeplitz matrix
    fn rows(&self) -> usize {
        self.outputs.len()
    }

    fn columns(&self) -> usize {
        self.inputs.len()
    }

    fn scratch(&self, vectors: usize) -> usize {
        let numbers = |transposed| {
            Multiplication::new(self, transposed, vectors).scratch_parts().iter().sum()
        };
        usize::max(numbers(false), numbers(true))
    }

    fn apply(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        let vectors = vectors(x, y, (self.rows(), self.columns()));
        Multiplication::new(self, false, vectors).run(x, y, scratch);
    }

    fn apply_transpose(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        let vectors = vectors(x, y, (self.columns(), self.rows()));
        Multiplication::new(self, true, vectors).run(x, y, scratch);
    }

    // Weigh spectra and masks
    fn bytes(&self) -> u64 {
        let of_side = |side: &LatticeSide| {
            size_of_val(side.places.as_slice()) + size_of_val(side.rows.as_slice())
        };
        let spectra = size_of_val(self.spectra.as_slice());
        (spectra + of_side(&self.inputs) + of_side(&self.outputs)) as u64
    }
}

// Lattices of one side of the matrix
/// The lattices of the inputs, or of the outputs.
struct LatticeSide {
    /// Sublattices along an axis, 1 for inputs.
    step: usize,
    /// The rows that have unmasked points, lattice by lattice.
    rows: Vec<LatticeRow>,
    /// Which of the rows belong to each lattice.
    lattices: Vec<Range<usize>>,
    /// Where each number of a vector stands in the lines of its row.
    places: Vec<usize>,
}

// Row of a masked lattice
/// A row of a lattice that has unmasked points.
struct LatticeRow {
    /// Which sublattice along y it belongs to.
    residue: usize,
    /// Its number within the sublattice.
    y: usize,
    /// Where its numbers start in the vector.
    start: usize,
}

impl LatticeSide {
    // List the rows of masked lattices
    fn new(masks: &[Array2<bool>], step: usize, length: usize) -> Self {
        let (mut rows, mut lattices, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for mask in masks {
            let first = rows.len();
            for (y, row) in mask.rows().into_iter().enumerate() {
                let start = places.len();
                let used = row.iter().enumerate().filter(|&(_, &used)| used);
                places.extend(used.map(|(x, _)| x % step * length + x / step));
                if places.len() > start {
                    rows.push(LatticeRow { residue: y % step, y: y / step, start });
                }
            }
            lattices.push(first..rows.len());
        }
        Self { step, rows, lattices, places }
    }

    // Find numbers and rows of a side
    /// Numbers in a vector.
    fn len(&self) -> usize {
        self.places.len()
    }

    /// Sublattices of all lattices: lattice by lattice, by residue along y, then along x.
    fn sublattices(&self) -> usize {
        self.lattices.len() * self.step * self.step
    }

    /// Where row `row` of any vector starts in the vectors.
    fn start(&self, row: usize) -> usize {
        let (vector, row) = (row / self.rows.len(), row % self.rows.len());
        vector * self.len() + self.rows[row].start
    }

    /// The places of the numbers of row `row` of any vector.
    fn places(&self, row: usize) -> &[usize] {
        let row = row % self.rows.len();
        let end = self.rows.get(row + 1).map_or(self.len(), |next| next.start);
        &self.places[self.rows[row].start..end]
    }

    // Find the rows of a sublattice
    /// The rows of a sublattice of a vector, with their number within it, and its residue along x.
    fn rows_of(
        &self,
        vector: usize,
        sublattice: usize,
    ) -> (impl Iterator<Item = (usize, usize)>, usize) {
        let (line, residue) = (sublattice / self.step, sublattice % self.step);
        let (lattice, of_y) = (line / self.step, line % self.step);
        let rows =
            self.lattices[lattice].clone().filter(move |&row| self.rows[row].residue == of_y);
        let first = vector * self.rows.len();
        (rows.map(move |row| (first + row, self.rows[row].y)), residue)
    }
}

// Check masks and their size
/// The number of points across the lattices of these masks.
pub(crate) fn size_of_masks(name: &str, masks: &[Array2<bool>]) -> Result<usize, Invalid> {
    let first = masks.first().ok_or_else(|| Invalid::new(name, "none", "at least one"))?;
    let points = first.nrows();
    for (k, mask) in masks.iter().enumerate() {
        let name = format!("{name}[{k}]");
        let (rows, columns) = mask.dim();
        if (rows, columns) != (points, points) {
            let expected = format!("a square mask, {points} × {points} as the first");
            return Err(Invalid::new(name, format!("{rows} × {columns}"), expected));
        }
        if !mask.iter().any(|&used| used) {
            return Err(Invalid::new(name, "a mask that leaves nothing", "at least one point"));
        }
    }
    Ok(points)
}

// What fixes the shape of a block
/// What fixes the shape of a block: N, M and osf.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockShape {
    pub(crate) lenslets: usize,
    pub(crate) points: usize,
    pub(crate) step: usize,
}

impl BlockShape {
    /// The least length of the transforms, [transform length](https://lenslet.github.io/lenslet/toeplitz-products.html#eq-transform-length).
    pub(crate) fn least_length(&self) -> usize {
        self.lenslets + self.points.div_ceil(self.step) - 1
    }

    // Take the shape of masks
    fn of_masks(
        step: usize,
        outputs: &[Array2<bool>],
        inputs: &[Array2<bool>],
    ) -> Result<Self, Invalid> {
        if step == 0 {
            return Err(Invalid::new("oversampling", step, "a whole number from 1"));
        }
        let lenslets = size_of_masks("input masks", inputs)?;
        Ok(Self { lenslets, points: size_of_masks("output masks", outputs)?, step })
    }

    // Check kernels and blocks
    fn check(
        &self,
        kernels: &[ArrayView2<f64>],
        blocks: &Array2<Block>,
        shape: (usize, usize),
    ) -> Result<(), Invalid> {
        if blocks.dim() != shape {
            let [value, expected] =
                [blocks.dim(), shape].map(|(rows, columns)| format!("{rows} × {columns}"));
            return Err(Invalid::new("blocks", value, format!("{expected}, as there are masks")));
        }
        let lags = self.step * (self.lenslets - 1) + self.points;
        for (k, kernel) in kernels.iter().enumerate() {
            // Refuse a kernel of the wrong length
            let (name, (rows, columns)) = (format!("kernels[{k}]"), kernel.dim());
            if (rows, columns) != (lags, lags) {
                let expected = format!("{lags} × {lags} lags, osf (N − 1) + M along each axis");
                return Err(Invalid::new(name, format!("{rows} × {columns}"), expected));
            }
            if let Some(value) = kernel.iter().find(|value| !value.is_finite()) {
                return Err(Invalid::new(name, value, "finite numbers"));
            }
        }
        // Refuse a block without a kernel
        let can_turn = self.step == 1 && self.points == self.lenslets;
        for ((output, input), block) in blocks.indexed_iter() {
            let name = format!("blocks[{output}, {input}]");
            if block.kernel >= kernels.len() {
                let expected = format!("one of {} kernels", kernels.len());
                return Err(Invalid::new(name, block.kernel, expected));
            }
            if block.turned && !can_turn {
                return Err(Invalid::new(name, "turned", "not turned unless osf = 1 and M = N"));
            }
        }
        Ok(())
    }
}

// Parts of a block matrix
/// What a block matrix is made of; all of it fits.
pub(crate) struct Parts<'a> {
    pub(crate) kernels: Vec<ArrayView2<'a, f64>>,
    pub(crate) blocks: Array2<Block>,
    pub(crate) shape: BlockShape,
    pub(crate) outputs: Vec<Array2<bool>>,
    pub(crate) inputs: Vec<Array2<bool>>,
}

impl<'a> Parts<'a> {
    // Take parts if they fit
    pub(crate) fn new(
        kernels: Vec<ArrayView2<'a, f64>>,
        blocks: Array2<Block>,
        oversampling: usize,
        outputs: Vec<Array2<bool>>,
        inputs: Vec<Array2<bool>>,
    ) -> Result<Self, Invalid> {
        let shape = BlockShape::of_masks(oversampling, &outputs, &inputs)?;
        shape.check(&kernels, &blocks, (outputs.len(), inputs.len()))?;
        Ok(Self { kernels, blocks, shape, outputs, inputs })
    }

    // Terms of sublattices and inputs
    /// The blocks, (sublattices of outputs, inputs): index of the spectrum, and whether it is conjugate.
    pub(crate) fn terms(&self) -> Array2<(usize, bool)> {
        let sublattices = self.shape.step * self.shape.step;
        let shape = (self.blocks.nrows() * sublattices, self.blocks.ncols());
        Array2::from_shape_fn(shape, |(output, input)| {
            let Block { kernel, turned } = self.blocks[[output / sublattices, input]];
            (kernel * sublattices + output % sublattices, turned)
        })
    }

    // Parts from slopes to wavefronts
    /// The parts of [`BlockToeplitz::wavefront_slope`].
    pub(crate) fn wavefront_slope(
        kernels: ArrayView5<'a, f64>,
        oversampling: usize,
        points: &[Array2<bool>],
        valid: &[Array2<bool>],
    ) -> Result<Self, Invalid> {
        let (targets, sources, components, ..) = kernels.dim();
        // Refuse a number of masks that does not fit
        size_of_masks("points", points)?;
        size_of_masks("valid", valid)?;
        let [given, fits] = [(targets, sources, components), (points.len(), valid.len(), 2)]
            .map(|(targets, sources, components)| format!("{targets} × {sources} × {components}"));
        if given != fits {
            let expected = format!("{fits}: targets, sources and components as there are masks");
            return Err(Invalid::new("kernels", given, expected));
        }
        let inputs: Vec<_> = valid.iter().flat_map(|mask| [mask.clone(), mask.clone()]).collect();
        let blocks = Array2::from_shape_fn((targets, 2 * sources), |(target, input)| Block {
            kernel: 2 * sources * target + input,
            turned: false,
        });
        let kernel = |k| s![k / (2 * sources), k / 2 % sources, k % 2, .., ..];
        let kernels = (0..blocks.len()).map(|k| kernels.slice_move(kernel(k))).collect();
        Self::new(kernels, blocks, oversampling, points.to_vec(), inputs)
    }
}

// Plans of row and column transforms
/// Transforms of rows (real) and columns (complex) of one length.
struct RowColumnTransforms<T> {
    length: usize,
    row_forward: Arc<dyn RealToComplex<T>>,
    row_inverse: Arc<dyn ComplexToReal<T>>,
    column_forward: Arc<dyn Fft<T>>,
    column_inverse: Arc<dyn Fft<T>>,
}

impl<T: Real> RowColumnTransforms<T> {
    fn new(length: usize) -> Self {
        let (row_forward, row_inverse) = T::plan_real(length);
        let (column_forward, column_inverse) = T::plan_complex(length);
        Self { length, row_forward, row_inverse, column_forward, column_inverse }
    }

    // Sizes of spectra and scratch
    /// Wave numbers along x, F/2 + 1.
    fn half(&self) -> usize {
        self.length / 2 + 1
    }

    /// Groups of lanes along y.
    fn groups(&self) -> usize {
        self.length.div_ceil(LANES)
    }

    /// Complex numbers that any of the transforms needs to work in.
    fn scratch(&self) -> usize {
        let rows = self.row_forward.get_scratch_len().max(self.row_inverse.get_scratch_len());
        let forward = self.column_forward.get_inplace_scratch_len();
        rows.max(forward).max(self.column_inverse.get_inplace_scratch_len())
    }

    // Transform one row forth and back
    fn forward(&self, line: &mut [T], spectrum: &mut [Complex<T>], scratch: &mut [Complex<T>]) {
        let done = self.row_forward.process_with_scratch(line, spectrum, scratch);
        debug_assert!(done.is_ok());
    }

    fn inverse(&self, spectrum: &mut [Complex<T>], line: &mut [T], scratch: &mut [Complex<T>]) {
        spectrum[0].im = T::zero();
        spectrum[self.length / 2].im = T::zero();
        let done = self.row_inverse.process_with_scratch(spectrum, line, scratch);
        debug_assert!(done.is_ok());
    }
}

// Spectra of all kernels
/// The spectra of all kernels on all sublattices, in lanes.
fn spectra<T: Real>(
    kernels: &[ArrayView2<f64>],
    shape: &BlockShape,
    length: usize,
) -> Vec<Lanes<T>> {
    let (fields, groups) = (fields(kernels, shape, length), length.div_ceil(LANES));
    let column = fields.len() * groups;
    let mut spectra = vec![[T::zero(); 2 * LANES]; (length / 2 + 1) * column];
    spectra.par_chunks_mut(column).enumerate().for_each(|(kx, column)| {
        // Round the columns of all spectra
        for (field, lanes) in fields.iter().zip(column.chunks_mut(groups)) {
            let values = &field[kx * length..(kx + 1) * length];
            into_lanes(values.iter().copied().map(T::of_complex), lanes);
        }
    });
    spectra
}

// Transform all kernels on all sublattices
/// The spectra of all kernels on all sublattices, divided by F², each by kx, then ky.
pub(crate) fn fields(
    kernels: &[ArrayView2<f64>],
    shape: &BlockShape,
    length: usize,
) -> Vec<Vec<Complex<f64>>> {
    let transforms = RowColumnTransforms::<f64>::new(length);
    let sublattices = shape.step * shape.step;
    let spectrum = |k: usize| {
        let (kernel, sublattice) = (&kernels[k / sublattices], k % sublattices);
        let residues = [sublattice / shape.step, sublattice % shape.step];
        shape.spectrum(kernel, residues, &transforms)
    };
    (0..kernels.len() * sublattices).into_par_iter().map(spectrum).collect()
}

// Put complex numbers into lanes
fn into_lanes<T: Real>(values: impl Iterator<Item = Complex<T>>, lanes: &mut [Lanes<T>]) {
    let mut values = values.fuse();
    for lanes in lanes {
        let (re, im) = lanes.split_at_mut(LANES);
        for (re, im) in re.iter_mut().zip(im) {
            let value = values.next().unwrap_or_default();
            (*re, *im) = (value.re, value.im);
        }
    }
}

// Transform a kernel on one sublattice
impl BlockShape {
    /// Where T_h\[k\] of Eq. [polyphase](https://lenslet.github.io/lenslet/toeplitz-products.html#eq-polyphase), periodic in k, is found in a kernel.
    pub(crate) fn lag(&self, k: usize, residue: usize, length: usize) -> Option<usize> {
        let last = (self.points - 1).checked_sub(residue)?;
        if k <= last / self.step {
            Some(last - self.step * k)
        } else {
            (length - k < self.lenslets).then(|| last + self.step * (length - k))
        }
    }

    // Transform the kernel along both axes
    /// The spectrum of a kernel on the sublattice of two residues, divided by F²: by kx, then ky.
    fn spectrum(
        &self,
        kernel: &ArrayView2<f64>,
        [of_y, of_x]: [usize; 2],
        transforms: &RowColumnTransforms<f64>,
    ) -> Vec<Complex<f64>> {
        let (length, half) = (transforms.length, transforms.half());
        let scale = (length as f64).powi(-2);
        let mut line = vec![0.0; length];
        let mut row = vec![Complex::default(); half];
        let mut scratch = vec![Complex::default(); transforms.scratch()];
        let mut spectrum = vec![Complex::default(); half * length];
        for (y, j) in (0..length).filter_map(|y| Some((y, self.lag(y, of_y, length)?))) {
            let at = |x| self.lag(x, of_x, length).map_or(0.0, |i| scale * kernel[[j, i]]);
            line.iter_mut().enumerate().for_each(|(x, value)| *value = at(x));
            transforms.forward(&mut line, &mut row, &mut scratch);
            spectrum[y..].iter_mut().step_by(length).zip(&row).for_each(|(to, &from)| *to = from);
        }
        transforms.column_forward.process_with_scratch(&mut spectrum, &mut scratch);
        spectrum
    }
}

// One product with its direction
// Complex numbers in real room
/// Room for complex numbers in room for real ones, but for the last if their number is odd.
fn complex<T: Real>(numbers: &mut [T]) -> &mut [Complex<T>] {
    let even = numbers.len() / 2 * 2;
    cast_slice_mut(&mut numbers[..even])
}

/// One product: from which side to which, and of how many vectors.
struct Multiplication<'a, T> {
    operator: &'a BlockToeplitz<T>,
    from: &'a LatticeSide,
    to: &'a LatticeSide,
    transposed: bool,
    vectors: usize,
}

impl<'a, T: Real> Multiplication<'a, T> {
    // Choose the direction of a product
    fn new(operator: &'a BlockToeplitz<T>, transposed: bool, vectors: usize) -> Self {
        let (mut from, mut to) = (&operator.inputs, &operator.outputs);
        if transposed {
            std::mem::swap(&mut from, &mut to);
        }
        Self { operator, from, to, transposed, vectors }
    }

    fn transforms(&self) -> &'a RowColumnTransforms<T> {
        &self.operator.transforms
    }

    // Count the scratch of a product
    /// Numbers of scratch for the spectra of rows, the columns, and the tasks.
    fn scratch_parts(&self) -> [usize; 3] {
        let half = self.transforms().half();
        let lines = |side: &LatticeSide| self.vectors * side.rows.len() * side.step;
        let tasks = |side: &LatticeSide| (self.vectors * side.rows.len()).div_ceil(ROWS);
        let columns = half.div_ceil(COLUMNS);
        let of_rows = |side| tasks(side) * self.row_work(side);
        let work = (columns * self.column_work()).max(of_rows(self.from)).max(of_rows(self.to));
        [2 * half * lines(self.from), 2 * columns * COLUMNS * lines(self.to), work]
    }

    /// Numbers that a task on rows needs: the lines of one row, its spectrum, and scratch.
    fn row_work(&self, side: &LatticeSide) -> usize {
        let transforms = self.transforms();
        side.step * transforms.length + 2 * (transforms.half() + transforms.scratch())
    }

    /// Numbers that a task on columns needs: the columns of all inputs in lanes, one as it is, and scratch.
    fn column_work(&self) -> usize {
        let lanes = 2 * LANES * self.transforms().groups();
        let column = 2 * (self.transforms().length + self.transforms().scratch());
        self.vectors * self.from.sublattices() * lanes + column
    }

    // Multiply in three passes
    /// y = A x, or Aᵀ x.
    fn run(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        let [lines, columns, _] = self.scratch_parts();
        if self.vectors == 0 {
            return;
        }
        let (lines, scratch) = scratch.split_at_mut(lines);
        let (columns, scratch) = scratch.split_at_mut(columns);
        let (lines, columns) = (complex(lines), complex(columns));
        self.transform_rows(x, lines, scratch);
        self.mix_columns(lines, columns, scratch);
        self.restore_rows(0..self.vectors * self.to.rows.len(), columns, y, scratch);
    }

    // Transform the rows of all inputs
    /// The first pass: half spectra of the lines of all rows, row by row.
    fn transform_rows(&self, x: &[T], lines: &mut [Complex<T>], work: &mut [T]) {
        let row = self.from.step * self.transforms().half();
        let work = work.par_chunks_mut(self.row_work(self.from));
        lines.par_chunks_mut(ROWS * row).zip(work).enumerate().for_each(
            |(task, (spectra, work))| {
                for (k, spectra) in spectra.chunks_mut(row).enumerate() {
                    self.transform_row(task * ROWS + k, x, spectra, work);
                }
            },
        );
    }

    // Transform the lines of one row
    fn transform_row(&self, row: usize, x: &[T], spectra: &mut [Complex<T>], work: &mut [T]) {
        let (transforms, side) = (self.transforms(), self.from);
        let (lines, scratch) = work.split_at_mut(side.step * transforms.length);
        let scratch = complex(scratch);
        lines.fill(T::zero());
        for (&place, &value) in side.places(row).iter().zip(&x[side.start(row)..]) {
            lines[place] = value;
        }
        let lines = lines.chunks_mut(transforms.length);
        for (line, spectrum) in lines.zip(spectra.chunks_mut(transforms.half())) {
            transforms.forward(line, spectrum, scratch);
        }
    }

    // Transform, mix and restore the columns
    /// The second pass: columns of the outputs from those of the inputs, by groups of wave numbers along x.
    fn mix_columns(&self, lines: &[Complex<T>], columns: &mut [Complex<T>], work: &mut [T]) {
        let (half, sublattices) = (self.transforms().half(), self.from.sublattices());
        let group = columns.len() / half.div_ceil(COLUMNS);
        let work = work.par_chunks_mut(self.column_work());
        columns.par_chunks_mut(group).zip(work).enumerate().for_each(|(task, (columns, work))| {
            let lanes = self.vectors * sublattices * self.transforms().groups();
            let (lanes, work) = work.split_at_mut(2 * LANES * lanes);
            let (lanes, _) = lanes.as_chunks_mut();
            let (column, scratch) = complex(work).split_at_mut(self.transforms().length);
            for kx in task * COLUMNS..half.min((task + 1) * COLUMNS) {
                self.transform_columns(kx, lines, lanes, column, scratch);
                self.mix_column(kx, lanes, columns, column, scratch);
            }
        });
    }

    // Transform a column of all inputs
    /// Transforms the columns at `kx` of all sublattices of all vectors, and puts them into lanes.
    fn transform_columns(
        &self,
        kx: usize,
        lines: &[Complex<T>],
        lanes: &mut [Lanes<T>],
        column: &mut [Complex<T>],
        scratch: &mut [Complex<T>],
    ) {
        let (transforms, sublattices) = (self.transforms(), self.from.sublattices());
        for (k, lanes) in lanes.chunks_mut(transforms.groups()).enumerate() {
            let (rows, residue) = self.from.rows_of(k / sublattices, k % sublattices);
            column.fill(Complex::default());
            for (row, y) in rows {
                column[y] = lines[(row * self.from.step + residue) * transforms.half() + kx];
            }
            transforms.column_forward.process_with_scratch(column, scratch);
            into_lanes(column.iter().copied(), lanes);
        }
    }

    // Mix a column of all outputs
    /// Mixes the columns at `kx` of all inputs into those of the outputs, and transforms them back.
    fn mix_column(
        &self,
        kx: usize,
        lanes: &[Lanes<T>],
        columns: &mut [Complex<T>],
        column: &mut [Complex<T>],
        scratch: &mut [Complex<T>],
    ) {
        let (operator, of_vector) =
            (self.operator, self.from.sublattices() * self.transforms().groups());
        let terms = if self.transposed { operator.terms.t() } else { operator.terms.view() };
        for (sublattice, terms) in terms.rows().into_iter().enumerate() {
            for (vector, lanes) in lanes.chunks(of_vector).enumerate() {
                self.sum_terms(kx, terms, lanes, column);
                self.transforms().column_inverse.process_with_scratch(column, scratch);
                // Keep the rows of the output
                let (rows, residue) = self.to.rows_of(vector, sublattice);
                for (row, y) in rows {
                    let line = row * self.to.step + residue;
                    columns[line * COLUMNS + kx % COLUMNS] = column[y];
                }
            }
        }
    }

    // Sum the products of spectra
    /// The column at `kx` of one output: the sum over all inputs, whose columns are in `lanes`.
    fn sum_terms(
        &self,
        kx: usize,
        terms: ArrayView1<(usize, bool)>,
        lanes: &[Lanes<T>],
        column: &mut [Complex<T>],
    ) {
        let (groups, spectra) = (self.transforms().groups(), &self.operator.spectra);
        let of_kx = spectra.len() / self.transforms().half();
        let spectra = &spectra[kx * of_kx..(kx + 1) * of_kx];
        for (group, column) in column.chunks_mut(LANES).enumerate() {
            let mut sum = [T::zero(); 2 * LANES];
            for (&(spectrum, turned), lanes) in terms.iter().zip(lanes.chunks(groups)) {
                let spectrum = &spectra[spectrum * groups + group];
                multiply_add(&mut sum, spectrum, &lanes[group], turned != self.transposed);
            }
            for (k, value) in column.iter_mut().enumerate() {
                *value = Complex::new(sum[k], sum[LANES + k]);
            }
        }
    }

    // Restore the rows of all outputs
    /// The third pass: the unmasked numbers of a range of rows, from the columns of their spectra.
    fn restore_rows(
        &self,
        rows: Range<usize>,
        columns: &[Complex<T>],
        y: &mut [T],
        work: &mut [T],
    ) {
        if rows.len() <= ROWS {
            return self.restore_few_rows(rows, columns, y, work);
        }
        let middle = rows.start + (rows.len() / 2).next_multiple_of(ROWS);
        let (first, second) = y.split_at_mut(self.to.start(middle) - self.to.start(rows.start));
        let tasks = (middle - rows.start) / ROWS;
        let (work, other_work) = work.split_at_mut(tasks * self.row_work(self.to));
        rayon::join(
            || self.restore_rows(rows.start..middle, columns, first, work),
            || self.restore_rows(middle..rows.end, columns, second, other_work),
        );
    }

    // Restore a few rows
    fn restore_few_rows(
        &self,
        rows: Range<usize>,
        columns: &[Complex<T>],
        mut y: &mut [T],
        work: &mut [T],
    ) {
        let (transforms, side) = (self.transforms(), self.to);
        let (lines, work) = work.split_at_mut(side.step * transforms.length);
        let (spectrum, scratch) = complex(work).split_at_mut(transforms.half());
        for row in rows {
            for (residue, line) in lines.chunks_mut(transforms.length).enumerate() {
                self.gather_spectrum(row * side.step + residue, columns, spectrum);
                transforms.inverse(spectrum, line, scratch);
            }
            let places = side.places(row);
            let (values, rest) = y.split_at_mut(places.len());
            values.iter_mut().zip(places).for_each(|(value, &place)| *value = lines[place]);
            y = rest;
        }
    }

    // Gather the spectrum of a line
    fn gather_spectrum(&self, line: usize, columns: &[Complex<T>], spectrum: &mut [Complex<T>]) {
        let group = columns.len() / spectrum.len().div_ceil(COLUMNS);
        for (part, columns) in spectrum.chunks_mut(COLUMNS).zip(columns.chunks(group)) {
            part.copy_from_slice(&columns[line * COLUMNS..][..part.len()]);
        }
    }
}

// Multiply and add complex lanes
/// Adds a b to the sum, or a* b, lane by lane.
#[inline(always)]
fn multiply_add<T: Real>(sum: &mut Lanes<T>, a: &Lanes<T>, b: &Lanes<T>, conjugate: bool) {
    if conjugate {
        for k in 0..LANES {
            sum[k] += a[k] * b[k] + a[LANES + k] * b[LANES + k];
            sum[LANES + k] += a[k] * b[LANES + k] - a[LANES + k] * b[k];
        }
    } else {
        for k in 0..LANES {
            sum[k] += a[k] * b[k] - a[LANES + k] * b[LANES + k];
            sum[LANES + k] += a[k] * b[LANES + k] + a[LANES + k] * b[k];
        }
    }
}

// Tests of Toeplitz products
#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::linear::operator::battery::{check, distance, product, random};
    use crate::model::atmosphere::{Atmosphere, Layer};
    use crate::model::lenslet_array::{LensletArray, SlopeOrder};
    use crate::model::source::{ConeGradient, Source};
    use crate::turbulence::slope::{SlopeCovariance, SlopeProblem};
    use ndarray::{Array1, Array3, Array5};
    use proptest::{prelude::*, test_runner::RngSeed};

    // Lopsided masks and kernels
    /// Masks of `points` × `points` with about `share` of the points, and never none.
    pub(crate) fn masks(number: usize, points: usize, share: f64, seed: u64) -> Vec<Array2<bool>> {
        let numbers: Vec<f64> = random(number * points * points, seed);
        let kept = |k: usize, [j, i]: [usize; 2]| {
            [j, i] == [points / 3, points / 2]
                || numbers[(k * points + j) * points + i] < 2.0 * share - 1.0
        };
        let mask = |k| Array2::from_shape_fn((points, points), |(j, i)| kept(k, [j, i]));
        (0..number).map(mask).collect()
    }

    /// The points that a mask leaves, by rows.
    fn left(mask: &Array2<bool>) -> Vec<[usize; 2]> {
        let used = mask.indexed_iter().filter(|(_, used)| **used);
        used.map(|((j, i), _)| [j, i]).collect()
    }

    /// Random kernels (T, S, 2, K, K).
    pub(crate) fn kernels(targets: usize, sources: usize, lags: usize, seed: u64) -> Array5<f64> {
        let numbers = random(targets * sources * 2 * lags * lags, seed);
        Array5::from_shape_vec((targets, sources, 2, lags, lags), numbers).unwrap()
    }

    // Sum straight from the definition
    /// The dense matrix of Eq. [block toeplitz](https://lenslet.github.io/lenslet/toeplitz-products.html#eq-block-toeplitz), element by element.
    fn dense(
        kernels: &Array5<f64>,
        oversampling: usize,
        points: &[Array2<bool>],
        valid: &[Array2<bool>],
    ) -> Array2<f64> {
        let m = points[0].nrows();
        let rows: Vec<_> = (points.iter().enumerate())
            .flat_map(|(t, mask)| left(mask).into_iter().map(move |point| (t, point)))
            .collect();
        let columns: Vec<_> = (valid.iter().enumerate())
            .flat_map(|(s, mask)| [0, 1].map(|a| (s, a, left(mask))))
            .flat_map(|(s, a, lenslets)| lenslets.into_iter().map(move |lenslet| (s, a, lenslet)))
            .collect();
        Array2::from_shape_fn((rows.len(), columns.len()), |(row, column)| {
            let ((t, point), (s, a, lenslet)) = (rows[row], columns[column]);
            let [j, i] = [0, 1].map(|axis| oversampling * lenslet[axis] + m - 1 - point[axis]);
            kernels[[t, s, a, j, i]]
        })
    }

    // Hold products to the definition
    /// Holds an operator to its dense matrix, both ways, and to the battery.
    fn compare<T: Real>(operator: &BlockToeplitz<T>, dense: &Array2<f64>, tolerance: f64) {
        assert_eq!((operator.rows(), operator.columns()), dense.dim());
        check(operator, tolerance);
        for (transposed, matrix) in [(false, dense.view()), (true, dense.t())] {
            let x: Vec<f64> = random(matrix.ncols(), 1);
            let expected = matrix.dot(&Array1::from(x.clone())).to_vec();
            let x: Vec<T> = x.into_iter().map(|x| T::of(x)).collect();
            let y = product(operator, transposed, &x, 1);
            let y: Vec<f64> = y.into_iter().map(|y| y.in_double()).collect();
            let error = distance(&y, &expected);
            assert!(error <= tolerance, "{error:e}, transposed: {transposed}");
        }
    }

    // Draw systems at random
    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, rng_seed: RngSeed::Fixed(1), ..Default::default() })]

        #[test]
        fn products_are_those_of_the_definition(
            (targets, sources) in (1usize..3, 1usize..3),
            (lenslets, m, oversampling) in (1usize..9, 1usize..17, 1usize..5),
            (share, seed) in (0.1f64..1.1, 0u64..1000),
        ) {
            let (points, valid) =
                (masks(targets, m, share, seed), masks(sources, lenslets, share, seed + 1));
            let kernels = kernels(targets, sources, oversampling * (lenslets - 1) + m, seed + 2);
            let dense = dense(&kernels, oversampling, &points, &valid);
            let double =
                BlockToeplitz::<f64>::wavefront_slope(kernels.view(), oversampling, &points, &valid);
            compare(&double.unwrap(), &dense, 1e-12);
            let single =
                BlockToeplitz::<f32>::wavefront_slope(kernels.view(), oversampling, &points, &valid);
            compare(&single.unwrap(), &dense, 1e-5);
        }
    }

    // Hold slopes to their dense matrix
    /// Random covariances of the slopes of some stars, with the symmetries of true ones.
    pub(crate) fn covariance(sources: usize, lenslets: usize) -> SlopeCovariance {
        let (altitude, fraction, outer_scale, wind_speed, wind_direction) =
            (0.0, 1.0, 25.0, 0.0, 0.0);
        let layer = Layer { altitude, fraction, outer_scale, wind_speed, wind_direction };
        let atmosphere = Atmosphere::new(0.15, 500e-9, vec![layer]).unwrap();
        let array = LensletArray::new(lenslets, 0.5).unwrap();
        let stars = vec![Source::star(0.0, 0.0).unwrap(); sources];
        let problem = SlopeProblem::new(&atmosphere, &array, &stars, ConeGradient::Pupil).unwrap();
        let lags = problem.lags();
        let pair = |k| Array3::from_shape_vec((3, lags, lags), random(3 * lags * lags, k)).unwrap();
        let pairs: Vec<_> = (0..problem.pairs().len() as u64).map(pair).collect();
        SlopeCovariance::from_pairs(&problem, &pairs)
    }

    #[test]
    fn slopes_are_those_of_the_dense_matrix() {
        for (sources, lenslets) in [(1, 1), (1, 6), (3, 5), (4, 2)] {
            let covariance = covariance(sources, lenslets);
            let valid = masks(sources, lenslets, 0.7, 5);
            let dense = covariance.dense(&SlopeOrder::new(&valid));
            compare(&BlockToeplitz::<f64>::slopes(&covariance, &valid).unwrap(), &dense, 1e-12);
            compare(&BlockToeplitz::<f32>::slopes(&covariance, &valid).unwrap(), &dense, 1e-5);
        }
    }

    // Check refusals of masks and kernels
    /// Name and value that a refusal of kernels and masks complains of.
    fn refusal(
        kernels: &Array5<f64>,
        oversampling: usize,
        points: &[Array2<bool>],
        valid: &[Array2<bool>],
    ) -> String {
        let view = kernels.view();
        let made = BlockToeplitz::<f64>::wavefront_slope(view, oversampling, points, valid);
        let message = made.err().unwrap().to_string();
        message.split(':').next().unwrap().to_owned()
    }

    // Refuse bad masks and kernels
    #[test]
    fn bad_masks_and_kernels_are_refused() {
        let [points, valid] = [4, 3].map(|points| masks(2, points, 1.0, 1));
        let good = kernels(2, 2, 8, 2);
        let none = [points[0].clone(), Array2::from_elem((4, 4), false)];
        let wide = [valid[0].clone(), Array2::from_elem((3, 5), true)];
        let mut infinite = good.clone();
        infinite[[1, 0, 1, 3, 4]] = f64::INFINITY;
        let said = |kernels, step, points: &[_], valid: &[_]| refusal(kernels, step, points, valid);
        assert_eq!(said(&good, 2, &none, &valid), "points[1] = a mask that leaves nothing");
        assert_eq!(said(&good, 2, &points, &wide), "valid[1] = 3 × 5");
        assert_eq!(said(&good, 2, &points[..1], &valid), "kernels = 2 × 2 × 2");
        assert_eq!(said(&good, 3, &points, &valid), "kernels[0] = 8 × 8");
        assert_eq!(said(&good, 0, &points, &valid), "oversampling = 0");
        assert_eq!(said(&infinite, 2, &points, &valid), "kernels[5] = inf");
        assert_eq!(said(&kernels(0, 2, 8, 3), 2, &[], &valid), "points = none");
    }

    // Check refusals of blocks
    #[test]
    fn bad_blocks_are_refused() {
        let (masks, kernel) = (masks(2, 3, 1.0, 1), Array2::zeros((5, 5)));
        let make = |block, number: usize| {
            let blocks = Array2::from_elem((number, 2), block);
            BlockToeplitz::<f64>::new(&[kernel.view()], &blocks, 1, &masks, &masks)
        };
        assert!(make(Block { kernel: 0, turned: true }, 2).is_ok());
        let said = |made: Result<_, Error>| made.err().map(|error| error.to_string()).unwrap();
        assert!(said(make(Block { kernel: 1, turned: false }, 2)).starts_with("blocks[0, 0] = 1"));
        assert!(said(make(Block { kernel: 0, turned: true }, 3)).starts_with("blocks = 3 × 2"));
        let (kernel, one) = (Array2::zeros((6, 6)), Array2::from_elem((4, 4), true));
        let blocks = Array2::from_elem((1, 1), Block { kernel: 0, turned: true });
        let made = BlockToeplitz::<f64>::new(&[kernel.view()], &blocks, 1, &[one], &masks[..1]);
        assert!(said(made).starts_with("blocks[0, 0] = turned"));
        let error = BlockToeplitz::<f64>::slopes(&covariance(3, 2), &masks);
        assert!(said(error).starts_with("valid = 2 masks of 3 × 3"));
    }

    // Check lengths and sizes of spectra
    #[test]
    fn lengths_are_fast_and_spectra_few() {
        assert_eq!(
            [1, 2, 7, 11, 79, 159, 161, 299].map(even_fast_length),
            [2, 2, 8, 12, 80, 160, 162, 300]
        );
        let slopes = BlockToeplitz::<f64>::slopes(&covariance(6, 3), &masks(6, 3, 1.0, 1)).unwrap();
        assert_eq!((slopes.length(), slopes.spectra()), (6, 48));
        let dense = slopes.dense_bytes();
        assert_eq!(dense, (108 * 108 * 8) as u64);
        let lanes = 48 * 4 * 2 * LANES * 8; // spectra, wave numbers along x, one group of lanes, bytes
        assert!((lanes..lanes + 5000).contains(&(slopes.bytes() as usize)), "{}", slopes.bytes());
    }
}
