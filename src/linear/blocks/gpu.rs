// Tangled from book/src/blocks-gpu.md: edit there, or here and run cargo tangle stitch.
//! Blocks between places of longer vectors, on a device.

// Imports of blocks on a device
use crate::device::gpu::kernels::kernels;
use crate::device::gpu::{Buffer, Gpu, KernelSource, Shape};
use crate::device::headers::REAL;
use crate::error::{Error, accept};
use crate::linear::operator::count;
use crate::linear::operator::gpu::{DeviceOperator, check_lengths};
use crate::numerics::real::Real;
use ndarray::ArrayView2;
use std::ops::Range;
use std::slice::from_ref;
use std::sync::Arc;

const SOURCE: KernelSource = KernelSource {
    name: "blocks.cu",
    text: include_str!("../../../kernels/linear/blocks.cu"),
    headers: &[REAL],
};

// Kernels of blocks
kernels! {
    /// Kernels of blocks between places of longer vectors.
    pub(crate) struct BlockKernels in SOURCE {
        /// Sums of parts of A x.
        sum_parts: SumParts<T> {
            matrix: [T], x: [T], columns: [i32], sums: [T], width: usize, n: usize,
        }
        /// Adds sums of parts at the rows of y.
        add_rows: AddRows<T> {
            sums: [T], y: [T], rows: [i32], count: usize, parts: usize, begin: bool, n: usize,
        }
        /// Adds Aᵀ x at the columns of y.
        add_columns: AddColumns<T> {
            matrix: [T], x: [T], rows: [i32], base: [T], y: [T], columns: [i32], count: usize, width: usize,
            begin: bool, minus: bool, from: usize, to: usize,
        }
        /// Solves for the eliminated unknowns.
        solve_eliminated: SolveEliminated<T> {
            inverse: [T], sums: [T], x: [T], rows: [i32], left: [T], y: [T], count: usize, parts: usize, n: usize,
        }
        /// Takes numbers from their places.
        take: Take<T> { x: [T], places: [i32], to: [T], count: usize }
        /// Puts numbers at their places.
        put: Put<T> { from: [T], y: [T], places: [i32], count: usize, begin: bool, n: usize }
    }
}

/// Threads in a block, as the kernels have it.
const THREADS: usize = 256;

/// Columns of a part whose sum is made by one block.
const PART: usize = 16 * THREADS;

/// Places one by one, on a device.
fn upload(gpu: &Gpu, places: &[Range<usize>]) -> Result<Buffer<i32>, Error> {
    gpu.upload(&places.iter().cloned().flatten().map(|place| place as i32).collect::<Vec<_>>())
}

// A few rows between places
/// A wide matrix, of a few rows, whose products are added at places of longer vectors.
pub(crate) struct WideMatrix<T> {
    gpu: Gpu,
    matrix: Buffer<T>,
    shape: (usize, usize),
    pub(crate) rows: Buffer<i32>,
    columns: Buffer<i32>,
    /// (rows, parts).
    pub(crate) sums: Buffer<T>,
    pub(crate) parts: usize,
    /// How many vectors stand one behind the other.
    pub(crate) vectors: usize,
    pub(crate) kernels: BlockKernels<T>,
}

// Steps of a few rows
impl<T: Real> WideMatrix<T> {
    // Put a few rows on a device
    /// The matrix on a device, rounded to its precision, with the places of its rows and columns, for so many vectors one behind the
    /// other.
    ///
    /// # Errors
    /// `Invalid` where there are not as many places; `Memory` where it does not fit, and what the device says.
    pub(crate) fn new(
        gpu: &Gpu,
        matrix: ArrayView2<f64>,
        [rows, columns]: [&[Range<usize>]; 2],
        vectors: usize,
    ) -> Result<Self, Error> {
        let (shape, places) = (matrix.dim(), (count(rows), count(columns)));
        accept(places == shape, "places of a matrix", places, &format!("{shape:?}, its shape"))?;
        gpu.refuse_beyond_memory((matrix.len() * size_of::<T>()) as u64, "a matrix of a few rows")?;
        let elements: Vec<T> = matrix.iter().map(|&element| T::of(element)).collect();
        let parts = shape.1.div_ceil(PART).max(1);
        Ok(Self {
            matrix: gpu.upload(&elements)?,
            shape,
            rows: upload(gpu, rows)?,
            columns: upload(gpu, columns)?,
            sums: gpu.zeros(vectors * shape.0 * parts)?,
            parts,
            vectors,
            kernels: BlockKernels::load(gpu, &[])?,
            gpu: gpu.clone(),
        })
    }
    // Sum along a few rows
    /// The sums of parts of A x for the numbers of x at the columns.
    pub(crate) fn sum(&self, x: &Buffer<T>) -> Result<(), Error> {
        let (rows, width) = self.shape;
        let arguments = SumParts {
            matrix: self.matrix.view(..),
            x: x.view(..),
            columns: self.columns.view(..),
            sums: self.sums.view(..),
            width,
            n: x.len() / self.vectors,
        };
        let block = width.next_multiple_of(32).min(THREADS);
        let shape = Shape::over(self.parts * block, block, [rows, self.vectors]);
        self.gpu.launch(&self.kernels.sum_parts, shape, arguments)
    }

    // Put the sums at their rows
    /// Puts A x at the rows of y, or adds it unless it is to `begin`.
    pub(crate) fn add_rows(&self, begin: bool, [x, y]: [&Buffer<T>; 2]) -> Result<(), Error> {
        self.sum(x)?;
        let arguments = AddRows {
            sums: self.sums.view(..),
            y: y.view(..),
            rows: self.rows.view(..),
            count: self.shape.0,
            parts: self.parts,
            begin,
            n: y.len() / self.vectors,
        };
        let shape = Shape::over(self.shape.0, THREADS, [1, self.vectors]);
        self.gpu.launch(&self.kernels.add_rows, shape, arguments)
    }
    // Multiply the columns of a few rows
    /// Puts at the columns of y those of `base` and Aᵀ x, `begin`ning with nothing in place of the base, or `minus` Aᵀ x.
    pub(crate) fn add_columns(
        &self,
        [begin, minus]: [bool; 2],
        [x, base, y]: [&Buffer<T>; 3],
    ) -> Result<(), Error> {
        let (count, width) = self.shape;
        let [from, to] = [x, y].map(|vectors| vectors.len() / self.vectors);
        let (matrix, rows) = (self.matrix.view(..), self.rows.view(..));
        let [x, base, y] = [x, base, y].map(|vectors| vectors.view(..));
        let columns = self.columns.view(..);
        let arguments =
            AddColumns { matrix, x, rows, base, y, columns, count, width, begin, minus, from, to };
        let shape = Shape::over(width, THREADS, [1, self.vectors]);
        self.gpu.launch(&self.kernels.add_columns, shape, arguments)
    }

    pub(crate) fn bytes(&self) -> u64 {
        let places = self.rows.bytes() + self.columns.bytes();
        self.matrix.bytes() + places + self.sums.bytes()
    }
}

// An operator embedded in longer vectors
/// An operator whose vectors go in at places of a longer vector.
struct EmbeddedOperator<T> {
    operator: Arc<dyn DeviceOperator<T>>,
    places: Buffer<i32>,
    taken: Buffer<T>,
}

/// A term of operators side by side.
enum Term<T> {
    Operator(EmbeddedOperator<T>),
    /// The transpose of a few rows, which are the numbers that go in.
    Transposed(WideMatrix<T>),
}

/// What operators side by side take in from a longer vector.
pub(crate) enum Given<'a, T> {
    Operator(Arc<dyn DeviceOperator<T>>),
    /// The transpose, with a few rows for the numbers that go in.
    Transposed(ArrayView2<'a, f64>),
}

// Operators side by side on a device
/// The sum of operators, each for some places of a longer vector, on a device: (A B …).
pub(crate) struct SideBySideGpu<T> {
    gpu: Gpu,
    shape: (usize, usize),
    terms: Vec<Term<T>>,
    sum: Buffer<T>,
    all: Buffer<i32>,
    kernels: BlockKernels<T>,
}

impl<T: Real> SideBySideGpu<T> {
    // Collect operators side by side
    /// Operators of as many `rows` each, with the places of their columns among all.
    ///
    /// # Errors
    /// `Invalid` where they do not fit; what the device says.
    pub(crate) fn new(
        gpu: &Gpu,
        (rows, columns): (usize, usize),
        given: Vec<(Given<T>, Vec<Range<usize>>)>,
    ) -> Result<Self, Error> {
        let mut terms = Vec::new();
        for (given, places) in given {
            terms.push(match given {
                Given::Transposed(matrix) => Term::Transposed(WideMatrix::new(
                    gpu,
                    matrix,
                    [&places, from_ref(&(0..rows))],
                    1,
                )?),
                // Embed an operator of the device
                Given::Operator(operator) => {
                    let (own, expected) =
                        ((operator.rows(), operator.columns()), (rows, count(&places)));
                    accept(
                        own == expected,
                        "shape of an operator",
                        format!("{own:?}"),
                        &format!("{expected:?}"),
                    )?;
                    let taken = gpu.zeros(operator.columns())?;
                    Term::Operator(EmbeddedOperator {
                        operator,
                        places: upload(gpu, &places)?,
                        taken,
                    })
                }
            });
        }
        let kernels = BlockKernels::load(gpu, &[])?;
        let (sum, all) = (gpu.zeros(rows)?, upload(gpu, from_ref(&(0..rows)))?);
        Ok(Self { gpu: gpu.clone(), shape: (rows, columns), terms, sum, all, kernels })
    }
    // Copy numbers to their places
    /// Puts the numbers of `from` at places of y, or adds them.
    fn put(
        &self,
        begin: bool,
        [from, y]: [&Buffer<T>; 2],
        places: &Buffer<i32>,
    ) -> Result<(), Error> {
        let ([from, y], count) = ([from, y].map(|vector| vector.view(..)), places.len());
        let arguments = Put { from, y, places: places.view(..), count, begin, n: y.len() };
        self.gpu.launch(&self.kernels.put, Shape::over(count, THREADS, [1, 1]), arguments)
    }

    fn take(&self, x: &Buffer<T>, embedded: &EmbeddedOperator<T>) -> Result<(), Error> {
        let (places, to) = (embedded.places.view(..), embedded.taken.view(..));
        let count = places.len();
        let arguments = Take { x: x.view(..), places, to, count };
        self.gpu.launch(&self.kernels.take, Shape::over(count, THREADS, [1, 1]), arguments)
    }
}

impl<T: Real> DeviceOperator<T> for SideBySideGpu<T> {
    // Answers of operators side by side
    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn rows(&self) -> usize {
        self.shape.0
    }

    fn columns(&self) -> usize {
        self.shape.1
    }

    fn bytes(&self) -> u64 {
        let term = |term: &Term<T>| match term {
            Term::Operator(embedded) => {
                embedded.operator.bytes() + embedded.places.bytes() + embedded.taken.bytes()
            }
            Term::Transposed(matrix) => matrix.bytes(),
        };
        self.terms.iter().map(term).sum::<u64>() + self.sum.bytes() + self.all.bytes()
    }
    // Add up operators side by side
    fn apply(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        check_lengths(x, y, self.shape)?;
        for (k, term) in self.terms.iter().enumerate() {
            match term {
                Term::Transposed(matrix) => matrix.add_columns([k == 0, false], [x, y, y])?,
                Term::Operator(embedded) => {
                    self.take(x, embedded)?;
                    let to = if k == 0 { y } else { &self.sum };
                    embedded.operator.apply(&embedded.taken, to)?;
                    if k > 0 {
                        self.put(false, [&self.sum, y], &self.all)?;
                    }
                }
            }
        }
        Ok(())
    }

    // Transpose operators side by side
    fn apply_transpose(&self, x: &Buffer<T>, y: &Buffer<T>) -> Result<(), Error> {
        check_lengths(x, y, (self.shape.1, self.shape.0))?;
        for term in &self.terms {
            match term {
                Term::Transposed(matrix) => matrix.add_rows(true, [x, y])?,
                Term::Operator(embedded) => {
                    embedded.operator.apply_transpose(x, &embedded.taken)?;
                    self.put(true, [&embedded.taken, y], &embedded.places)?;
                }
            }
        }
        Ok(())
    }
}

// Rows of a table at their places
/// A table whose rows are put at places of longer vectors, one behind the other.
#[cfg_attr(not(feature = "factorise"), allow(dead_code))]
pub(crate) struct RowsAtPlaces<T> {
    gpu: Gpu,
    table: Buffer<T>,
    places: Buffer<i32>,
    kernels: BlockKernels<T>,
}

#[cfg_attr(not(feature = "factorise"), allow(dead_code))]
impl<T: Real> RowsAtPlaces<T> {
    // Upload a table of rows
    /// The rows of `table`, and zeros beyond the last for as many more as there are vectors.
    ///
    /// # Errors
    /// `Invalid` where there are not as many places as columns; `Memory` where it does not fit, and what the device says.
    pub(crate) fn new(
        gpu: &Gpu,
        table: ArrayView2<f64>,
        places: &[Range<usize>],
        vectors: usize,
    ) -> Result<Self, Error> {
        let (columns, expected) = (table.ncols(), count(places));
        accept(columns == expected, "columns of a table", columns, &format!("{expected} places"))?;
        let length = table.len() + vectors * columns;
        gpu.refuse_beyond_memory((length * size_of::<T>()) as u64, "a table of rows")?;
        let mut values: Vec<T> = table.iter().map(|&value| T::of(value)).collect();
        values.resize(length, T::zero());
        let kernels = BlockKernels::load(gpu, &[])?;
        let (table, places) = (gpu.upload(&values)?, upload(gpu, places)?);
        Ok(Self { gpu: gpu.clone(), table, places, kernels })
    }

    // Put rows of a table
    /// Puts the rows from `first` on, one into each of so many vectors that stand one behind the other in y.
    pub(crate) fn put(&self, first: usize, vectors: usize, y: &Buffer<T>) -> Result<(), Error> {
        let count = self.places.len();
        let from = self.table.view(first * count..);
        let (places, n) = (self.places.view(..), y.len() / vectors);
        let arguments = Put { from, y: y.view(..), places, count, begin: true, n };
        self.gpu.launch(&self.kernels.put, Shape::over(count, THREADS, [1, vectors]), arguments)
    }
}

// Tests of blocks on a device
#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::gpu::test_backends;
    use crate::linear::blocks::{Blocks, OperatorBlock};
    use crate::linear::matrix::{Dense, gpu::MatrixGpu};
    use crate::linear::operator::gpu::OnHost;
    use crate::linear::operator::{Operator, battery};
    use ndarray::Array2;

    // Hold operators side by side to the host
    #[test]
    fn operators_side_by_side_are_those_of_the_host() {
        let rows = PART + 3;
        let random = |columns: usize, seed| {
            Array2::from_shape_vec((rows, columns), battery::random(rows * columns, seed)).unwrap()
        };
        let matrices = [random(3, 1), random(2, 2), random(4, 3)];
        let places = [vec![1..3, 7..8], vec![0..1, 8..9], vec![3..5, 5..7]];
        let block = |k: usize| OperatorBlock {
            operator: Arc::new(Dense::new(matrices[k].clone())) as Arc<dyn Operator<f64>>,
            transposed: false,
            rows: vec![0..1, 1..rows],
            columns: places[k].clone(),
        };
        let here = Blocks::new((rows, 9), (0..3).map(block).collect()).unwrap();
        for gpu in test_backends() {
            for order in [[0, 1, 2], [1, 0, 2]] {
                let given = |k: usize| match k {
                    1 => Given::Transposed(matrices[1].t()),
                    k => {
                        Given::Operator(Arc::new(MatrixGpu::new(&gpu, matrices[k].view()).unwrap()))
                    }
                };
                let given = order.map(|k| (given(k), places[k].clone())).into();
                let there = SideBySideGpu::<f64>::new(&gpu, (rows, 9), given).unwrap();
                let there = OnHost(Arc::new(there));
                battery::check(&there, 1e-13);
                let x = battery::random(9, 4);
                let [here, there] = [&here as &dyn Operator<f64>, &there]
                    .map(|operator| battery::product(operator, false, &x, 1));
                assert!(battery::distance(&there, &here) < 1e-14, "{order:?}");
            }
        }
    }
}
