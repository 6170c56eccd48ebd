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
/// The sum of blocks in their places, Eq. [sum of blocks](https://lenslet.github.io/lenslet/operators-in-blocks.html#eq-sum-of-blocks).
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
    many: usize,
    few: usize,
    values: Vec<T>,
}

impl<T: Real> Strip<T> {
    /// Rows of a band.
    const BAND: usize = 128;

    /// The strip that has this transpose, (few, many).
    pub(crate) fn new(transpose: ArrayView2<f64>) -> Self {
        let (few, many) = transpose.dim();
        let mut values = Vec::with_capacity(few * many);
        for band in transpose.axis_chunks_iter(Axis(1), Self::BAND) {
            values.extend(band.iter().map(|&value| T::of(value)));
        }
        Self { many, few, values }
    }

    // What is known of a strip
    /// (many, few).
    pub(crate) fn dim(&self) -> (usize, usize) {
        (self.many, self.few)
    }

    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&self.values[..]) as u64
    }

    /// Numbers of `scratch` for [`pass`](Self::pass).
    pub(crate) fn scratch(&self) -> usize {
        self.few * self.many.div_ceil(Self::BAND)
    }

    // Go through a strip once for both products
    /// Adds B `few` to `many`, and gives as `sums` Bᵀ x in the same pass, of the given `x` or else of what `many` becomes.
    pub(crate) fn pass<V: Real>(
        &self,
        few: &[V],
        many: &mut [V],
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
            self.values.par_chunks(Self::BAND * self.few).zip(many.par_chunks_mut(Self::BAND));
        bands.zip(parts.par_chunks_mut(self.few)).enumerate().for_each(
            |(band, ((values, many), parts))| {
                let length = many.len();
                let columns = || values.chunks_exact(length);
                for (column, &factor) in columns().zip(few) {
                    let terms = many.iter_mut().zip(column);
                    terms.for_each(|(many, &value)| *many += factor * wide(value));
                }
                let rows = band * Self::BAND..band * Self::BAND + many.len();
                let x = x.map_or(&*many, |x| &x[rows]);
                parts.iter_mut().zip(columns()).for_each(|(part, column)| *part = dot(column, x));
            },
        );
        for parts in parts.chunks_exact(self.few) {
            sums.iter_mut().zip(parts).for_each(|(sum, &part)| *sum += part);
        }
    }
}

// A thin strip and its transpose
/// The few beside the many, Eq. [border](https://lenslet.github.io/lenslet/operators-in-blocks.html#eq-border), in vectors of the many and then the few.
pub(crate) struct Border<T> {
    /// B, (many, few), and D.
    pub(crate) between: Strip<T>,
    pub(crate) few: Dense<T>,
}

impl<T: Real> Operator<T> for Border<T> {
    // Answers of a border
    fn rows(&self) -> usize {
        let (many, few) = self.between.dim();
        many + few
    }

    fn columns(&self) -> usize {
        self.rows()
    }

    fn scratch(&self, _vectors: usize) -> usize {
        self.between.dim().1 + self.between.scratch().max(self.few.scratch(1))
    }

    fn apply_transpose(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        self.apply(x, y, scratch);
    }

    fn bytes(&self) -> u64 {
        self.between.bytes() + self.few.bytes()
    }

    fn apply(&self, x: &[T], y: &mut [T], scratch: &mut [T]) {
        let (m, few) = self.between.dim();
        let all = m + few;
        vectors(x, y, (all, all));
        let (sums, scratch) = scratch.split_at_mut(few);
        for (x, y) in x.chunks_exact(all).zip(y.chunks_exact_mut(all)) {
            let ((x_many, x_few), (many, few)) = (x.split_at(m), y.split_at_mut(m));
            many.fill(T::zero());
            self.between.pass(x_few, many, Some(x_many), [sums, scratch]);
            self.few.apply(x_few, few, scratch);
            few.iter_mut().zip(&*sums).for_each(|(few, &sum)| *few += sum);
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
        let (many, few) = (vec![1..3, 4..7], vec![0..1, 3..4]);
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
                block(&one, true, &many, &many),
                block(&other, false, &few, &many),
                block(&other, true, &many, &few),
                block(&one, false, &many, &vec![0..2, 2..5]),
            ]
        };
        let blocks = Blocks::new((8, 7), parts()).unwrap();
        let mut matrix = Array2::<f64>::zeros((8, 7));
        let (many, few) = ([1, 2, 4, 5, 6], [0, 3]);
        for i in 0..5 {
            (0..5).for_each(|j| matrix[[many[i], many[j]]] += square[[j, i]]);
            (0..5).for_each(|j| matrix[[many[i], j]] += square[[i, j]]);
            for j in 0..2 {
                matrix[[few[j], many[i]]] += thin[[j, i]];
                matrix[[many[i], few[j]]] += thin[[j, i]];
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
        for (few, many) in [(3, 1300), (2, 512), (9, 5)] {
            let (between, small) = (random((many, few), 1), random((few, few), 2));
            let small = &small + &small.t();
            let all = Array2::from_shape_fn((many + few, many + few), |(i, j)| {
                match (i < many, j < many) {
                    (true, true) => 0.0,
                    (true, false) => between[[i, j - many]],
                    (false, true) => between[[j, i - many]],
                    (false, false) => small[[i - many, j - many]],
                }
            });
            let border = Border { between: Strip::new(between.t()), few: Dense::new(small) };
            battery::check(&border, 1e-13);
            let x = battery::random(2 * (many + few), 3);
            let [ours, theirs] = [&border as &dyn Operator<f64>, &Dense::new(all)]
                .map(|operator| battery::product(operator, false, &x, 2));
            assert!(battery::distance(&ours, &theirs) < 1e-14, "{few} {many}");
        }
    }
}
