// Tangled from book/src/operators-in-blocks.md: edit there, or here and run cargo tangle stitch.
//! Operators put together from blocks, each of which takes some numbers of a vector to some of another.

pub(crate) mod gpu;

// Imports of operators in blocks
use crate::error::{Invalid, accept};
use crate::linear::matrix::{Dense, dot};
use crate::linear::operator::{Operator, count, gather, places_of, shape, starts, vectors};
use crate::numerics::real::Real;
use ndarray::{ArrayView2, Axis};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

// A block in its place
/// An operator that takes the numbers at some places of a longer vector to some places of another.
pub struct OperatorBlock<T> {
    /// What is multiplied by.
    pub operator: Arc<dyn Operator<T>>,
    /// Whether by its transpose.
    pub transposed: bool,
    /// Where the numbers that come out belong, one range after the other.
    pub rows: Vec<Range<usize>>,
    /// Where the numbers that go in stand.
    pub columns: Vec<Range<usize>>,
}

// Matrix of several blocks
// Example of a sum of blocks
/// The sum of blocks in their places, Eq. [sum of blocks](https://lenslet.github.io/lenslet/operators-in-blocks.html#eq-sum-of-blocks).
///
/// ```
/// use lenslet::linear::{Blocks, Dense, Operator, OperatorBlock};
/// use ndarray::array;
/// use std::sync::Arc;
///
/// let block = |matrix, transposed, rows, columns| OperatorBlock {
///     operator: Arc::new(Dense::new(matrix)) as Arc<dyn Operator<f64>>,
///     transposed,
///     rows: vec![rows],
///     columns: vec![columns],
/// };
/// let b = array![[1.0], [0.5]];
/// let blocks = vec![
///     block(array![[4.0, 1.0], [1.0, 4.0]], false, 0..2, 0..2),
///     block(b.clone(), false, 0..2, 2..3),
///     block(b, true, 2..3, 0..2),
///     block(array![[3.0]], false, 2..3, 2..3),
/// ];
/// let a = Blocks::new((3, 3), blocks)?;
/// let (mut y, mut scratch) = ([0.0; 3], vec![0.0; a.scratch(1)]);
/// a.apply(&[1.0, -1.0, 2.0], &mut y, &mut scratch);
/// assert_eq!(y, [5.0, -2.0, 6.5]);
/// # Ok::<(), lenslet::Error>(())
/// ```
pub struct Blocks<T> {
    rows: usize,
    columns: usize,
    blocks: Vec<OperatorBlock<T>>,
}

impl<T: Real> Blocks<T> {
    // Collect blocks that fit
    /// The operator of so many `rows` and `columns` made of `blocks`.
    ///
    /// # Errors
    /// `Invalid` where a block has not as many rows and columns as places, or a place lies beyond the vectors.
    pub fn new(
        (rows, columns): (usize, usize),
        blocks: Vec<OperatorBlock<T>>,
    ) -> Result<Self, Invalid> {
        // Check each block and its places
        for (k, block) in blocks.iter().enumerate() {
            let own = shape(block.operator.as_ref(), block.transposed);
            let sides =
                [("rows", own.0, &block.rows, rows), ("columns", own.1, &block.columns, columns)];
            for (side, own, places, most) in sides {
                let (places, end) = (count(places), places.iter().map(|place| place.end).max());
                accept(
                    places == own,
                    &format!("{side} of block {k}"),
                    own,
                    &format!("{places}, its places"),
                )?;
                let (name, end) = (format!("end of the {side} of block {k}"), end.unwrap_or(0));
                accept(end <= most, &name, end, &format!("at most {most}"))?;
            }
        }
        Ok(Self { rows, columns, blocks })
    }
    // Add up blocks in their places
    fn add_up(&self, transposed: bool, x: &[T], y: &mut [T], scratch: &mut [T]) {
        let (rows, columns) = shape(self, transposed);
        let vectors = vectors(x, y, (rows, columns));
        y.fill(T::zero());
        for block in &self.blocks {
            let (to, from) = match transposed {
                false => (&block.rows, &block.columns),
                true => (&block.columns, &block.rows),
            };
            let (inputs, rest) = scratch.split_at_mut(vectors * count(from));
            let (outputs, rest) = rest.split_at_mut(vectors * count(to));
            gather(x, columns, from, inputs);
            match block.transposed == transposed {
                true => block.operator.apply(inputs, outputs, rest),
                false => block.operator.apply_transpose(inputs, outputs, rest),
            }
            let sums = places_of(y.len(), rows, to).zip(starts(to, vectors));
            for (place, start) in sums {
                let product = &outputs[start..start + place.len()];
                y[place].iter_mut().zip(product).for_each(|(y, &product)| *y += product);
            }
        }
    }
}

impl<T: Real> Operator<T> for Blocks<T> {
    // Answers of blocks
    fn rows(&self) -> usize {
        self.rows
    }

    fn columns(&self) -> usize {
        self.columns
    }

    fn scratch(&self, vectors: usize) -> usize {
        let block = |block: &OperatorBlock<T>| {
            vectors * (count(&block.rows) + count(&block.columns)) + block.operator.scratch(vectors)
        };
        self.blocks.iter().map(block).max().unwrap_or(0)
    }

    fn apply(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        self.add_up(false, x, y, scratch);
    }

    fn apply_transpose(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        self.add_up(true, x, y, scratch);
    }
    // Weigh each operator once
    fn bytes(&self) -> u64 {
        let address = |block: &OperatorBlock<T>| Arc::as_ptr(&block.operator).cast::<u8>();
        let known = |k: usize| {
            self.blocks[..k].iter().any(|other| address(other) == address(&self.blocks[k]))
        };
        let new = (0..self.blocks.len()).filter(|&k| !known(k));
        new.map(|k| self.blocks[k].operator.bytes()).sum()
    }
}

// A strip in bands
/// A matrix B of many rows and few columns, in bands of rows, column by column in each.
pub(crate) struct Strip<T> {
    rows: usize,
    columns: usize,
    values: Vec<T>,
}

impl<T: Real> Strip<T> {
    /// Rows of a band.
    const BAND: usize = 128;

    /// The strip that has this transpose, (columns, rows).
    pub(crate) fn new(transpose: ArrayView2<f64>) -> Self {
        let (columns, rows) = transpose.dim();
        let mut values = Vec::with_capacity(columns * rows);
        for band in transpose.axis_chunks_iter(Axis(1), Self::BAND) {
            values.extend(band.iter().map(|&value| T::of(value)));
        }
        Self { rows, columns, values }
    }

    // What is known of a strip
    /// (rows, columns).
    pub(crate) fn dim(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&self.values[..]) as u64
    }

    /// Numbers of `scratch` for [`pass`](Self::pass).
    pub(crate) fn scratch(&self) -> usize {
        self.columns * self.rows.div_ceil(Self::BAND)
    }

    // Go through a strip once for both products
    /// Adds B `factors` to `y`, and in the same pass computes `sums`, Bᵀ x of the given `x`, or Bᵀ y of the increased `y` without one.
    pub(crate) fn pass<V: Real>(
        &self,
        factors: &[V],
        y: &mut [V],
        x: Option<&[V]>,
        [sums, scratch]: [&mut [V]; 2],
    ) {
        sums.fill(V::zero());
        if self.values.is_empty() {
            return;
        }
        let parts = &mut scratch[..self.scratch()];
        let wide = |value: T| V::of(value.in_double());
        let bands =
            self.values.par_chunks(Self::BAND * self.columns).zip(y.par_chunks_mut(Self::BAND));
        bands.zip(parts.par_chunks_mut(self.columns)).enumerate().for_each(
            |(band, ((values, y), parts))| {
                // Add and multiply one band
                let length = y.len();
                let columns = || values.chunks_exact(length);
                for (column, &factor) in columns().zip(factors) {
                    let terms = y.iter_mut().zip(column);
                    terms.for_each(|(y, &value)| *y += factor * wide(value));
                }
                let rows = band * Self::BAND..band * Self::BAND + y.len();
                let x = x.map_or(&*y, |x| &x[rows]);
                parts.iter_mut().zip(columns()).for_each(|(part, column)| *part = dot(column, x));
            },
        );
        for parts in parts.chunks_exact(self.columns) {
            sums.iter_mut().zip(parts).for_each(|(sum, &part)| *sum += part);
        }
    }
}

// A thin strip and its transpose
/// A bordered matrix with an empty square, Eq. [border](https://lenslet.github.io/lenslet/operators-in-blocks.html#eq-border), for vectors of B's rows and then its columns.
pub(crate) struct Border<T> {
    /// B, and the square D in the corner.
    pub(crate) between: Strip<T>,
    pub(crate) corner: Dense<T>,
}

impl<T: Real> Operator<T> for Border<T> {
    // Answers of a border
    fn rows(&self) -> usize {
        let (m, n) = self.between.dim();
        m + n
    }

    fn columns(&self) -> usize {
        self.rows()
    }

    fn scratch(&self, _vectors: usize) -> usize {
        self.between.dim().1 + self.between.scratch().max(self.corner.scratch(1))
    }

    fn apply_transpose(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        self.apply(x, y, scratch);
    }

    fn bytes(&self) -> u64 {
        self.between.bytes() + self.corner.bytes()
    }

    fn apply(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        let (m, n) = self.between.dim();
        let all = m + n;
        vectors(x, y, (all, all));
        let (sums, scratch) = scratch.split_at_mut(n);
        for (x, y) in x.chunks_exact(all).zip(y.chunks_exact_mut(all)) {
            let ((x_rows, x_columns), (y_rows, y_columns)) = (x.split_at(m), y.split_at_mut(m));
            y_rows.fill(T::zero());
            self.between.pass(x_columns, y_rows, Some(x_rows), [sums, scratch]);
            self.corner.apply(x_columns, y_columns, scratch);
            y_columns.iter_mut().zip(&*sums).for_each(|(y, &sum)| *y += sum);
        }
    }
}

// Tests of operators in blocks
#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::operator::battery;
    use ndarray::Array2;

    fn random(shape: (usize, usize), seed: u64) -> Array2<f64> {
        Array2::from_shape_vec(shape, battery::random(shape.0 * shape.1, seed)).unwrap()
    }

    // Compare blocks with their matrix
    #[test]
    fn blocks_are_the_matrix_that_they_make() {
        let (square, thin) = (random((5, 5), 1), random((2, 5), 2));
        let (wide, narrow) = (vec![1..3, 4..7], vec![0..1, 3..4]);
        let [one, other]: [Arc<dyn Operator<f64>>; 2] =
            [&square, &thin].map(|matrix| Arc::new(Dense::new(matrix.clone())) as Arc<_>);
        let block = |operator: &Arc<dyn Operator<f64>>,
                     transposed,
                     rows: &Vec<_>,
                     columns: &Vec<_>| OperatorBlock {
            operator: Arc::clone(operator),
            transposed,
            rows: rows.clone(),
            columns: columns.clone(),
        };
        let parts = || {
            vec![
                block(&one, true, &wide, &wide),
                block(&other, false, &narrow, &wide),
                block(&other, true, &wide, &narrow),
                block(&one, false, &wide, &vec![0..2, 2..5]),
            ]
        };
        let blocks = Blocks::new((8, 7), parts()).unwrap();
        let mut matrix = Array2::<f64>::zeros((8, 7));
        let (wide, narrow) = ([1, 2, 4, 5, 6], [0, 3]);
        for i in 0..5 {
            (0..5).for_each(|j| matrix[[wide[i], wide[j]]] += square[[j, i]]);
            (0..5).for_each(|j| matrix[[wide[i], j]] += square[[i, j]]);
            for j in 0..2 {
                matrix[[narrow[j], wide[i]]] += thin[[j, i]];
                matrix[[wide[i], narrow[j]]] += thin[[j, i]];
            }
        }
        let matrix = Dense::new(matrix);
        battery::check(&blocks, 1e-13);
        for transposed in [false, true] {
            let x = battery::random(3 * shape(&matrix, transposed).1, 3);
            let [ours, theirs] = [&blocks as &dyn Operator<f64>, &matrix]
                .map(|operator| battery::product(operator, transposed, &x, 3));
            assert!(battery::distance(&ours, &theirs) < 1e-14, "transposed: {transposed}");
        }
        assert_eq!(blocks.bytes(), 8 * (25 + 10));
        // Refuse blocks that do not fit
        let refused = |shape| Blocks::new(shape, parts()).err().unwrap().to_string();
        assert_eq!(refused((6, 7)), "end of the rows of block 0 = 7: expected at most 6");
        let wrong = vec![block(&other, false, &vec![0..0, 0..1], &vec![0..2, 2..5])];
        let error = Blocks::new((8, 7), wrong).err().unwrap().to_string();
        assert_eq!(error, "rows of block 0 = 2: expected 1, its places");
    }

    // Compare a border with its matrix
    #[test]
    fn a_border_is_the_matrix_around_an_empty_square() {
        for (columns, rows) in [(3, 1300), (2, 512), (9, 5)] {
            let (between, small) = (random((rows, columns), 1), random((columns, columns), 2));
            let small = &small + &small.t();
            let all = Array2::from_shape_fn((rows + columns, rows + columns), |(i, j)| {
                match (i < rows, j < rows) {
                    (true, true) => 0.0,
                    (true, false) => between[[i, j - rows]],
                    (false, true) => between[[j, i - rows]],
                    (false, false) => small[[i - rows, j - rows]],
                }
            });
            let border = Border { between: Strip::new(between.t()), corner: Dense::new(small) };
            battery::check(&border, 1e-13);
            let x = battery::random(2 * (rows + columns), 3);
            let [ours, theirs] = [&border as &dyn Operator<f64>, &Dense::new(all)]
                .map(|operator| battery::product(operator, false, &x, 2));
            assert!(battery::distance(&ours, &theirs) < 1e-14, "{columns} {rows}");
        }
    }
}
