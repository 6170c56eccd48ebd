// Tangled from book/src/plain-sum-gpu.md: edit there, or here and run cargo tangle stitch.
//! The lattices of a block Toeplitz matrix, as the kernels of a device see them.

use crate::device::gpu::{Buffer, Gpu};
use crate::error::Error;
use crate::linear::toeplitz::Parts;
use ndarray::Array2;

// Room that a block may have
/// Bytes of shared memory that a block takes where it has a choice, if the device has as many.
pub(crate) const SHARED_BY_CHOICE: usize = 96 << 10;

// What there is for both sides
/// What there is once for the inputs of a product, and once for its outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sides<S> {
    pub(crate) from: S,
    pub(crate) to: S,
}

impl<S> Sides<S> {
    /// The sides as they are, or exchanged.
    pub(crate) fn turned(self, transposed: bool) -> Self {
        let Self { from, to } = self;
        if transposed { Self { from: to, to: from } } else { Self { from, to } }
    }

    pub(crate) fn each_ref(&self) -> Sides<&S> {
        Sides { from: &self.from, to: &self.to }
    }
}

// What there is for both directions
/// A value for the product with a matrix, and one for that with its transpose unless the matrix is symmetric.
pub(crate) struct Directions<W> {
    forward: W,
    backward: Option<W>,
}

impl<W> Directions<W> {
    /// Whether one value serves both.
    pub(crate) fn is_symmetric(&self) -> bool {
        self.backward.is_none()
    }

    /// The value for the product with the matrix or its transpose.
    pub(crate) fn direction(&self, transposed: bool) -> &W {
        self.backward.as_ref().filter(|_| transposed).unwrap_or(&self.forward)
    }

    /// Each value once.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &W> {
        std::iter::once(&self.forward).chain(&self.backward)
    }
}

// Matrix on the way to a device
/// What is known of a matrix while its product is made.
pub(crate) struct ProductMatrix<'a, 'k> {
    pub(crate) gpu: &'a Gpu,
    pub(crate) parts: &'a Parts<'k>,
    /// The blocks, (lattices of outputs, lattices of inputs), as [`Parts::terms`] lists them.
    pub(crate) terms: Array2<(usize, bool)>,
    /// Points across the lattices.
    pub(crate) points: Sides<usize>,
    pub(crate) symmetric: bool,
    /// Places of the inputs in longer vectors, and of the outputs where the matrix is symmetric.
    at: Option<&'a [usize]>,
}

impl<'a, 'k> ProductMatrix<'a, 'k> {
    // Take the parts of a matrix
    pub(crate) fn new(
        gpu: &'a Gpu,
        parts: &'a Parts<'k>,
        symmetric: bool,
        at: Option<&'a [usize]>,
    ) -> Self {
        let to = parts.shape.points.div_ceil(parts.shape.step);
        let points = Sides { from: parts.shape.lenslets, to };
        Self { gpu, parts, terms: parts.terms(), points, symmetric, at }
    }

    /// Lattices of both sides.
    pub(crate) fn lattices(&self) -> Sides<usize> {
        Sides { from: self.terms.ncols(), to: self.terms.nrows() }
    }

    // Make both ways of a matrix
    /// What `make` makes of the matrix and, unless it is symmetric, of its transpose.
    pub(crate) fn directions<W>(
        &self,
        make: impl Fn(bool) -> Result<W, Error>,
    ) -> Result<Directions<W>, Error> {
        let forward = make(false)?;
        Ok(Directions { forward, backward: (!self.symmetric).then(|| make(true)).transpose()? })
    }

    // Put tables of places on a device
    /// Places in the vectors of the points of all lattices, whose rows are filled up to a multiple of `rows`.
    pub(crate) fn places(&self, rows: usize) -> Result<Sides<Buffer<[i32; 2]>>, Error> {
        let Parts { inputs, outputs, shape, .. } = self.parts;
        let on_device = |masks: &[Array2<bool>], step, points: usize, at| {
            let sizes = [points.next_multiple_of(rows), points];
            self.gpu.upload(&table(masks, step, sizes, at))
        };
        let (at, of_outputs) = (self.at, self.at.filter(|_| self.symmetric));
        let from = on_device(inputs, 1, self.points.from, at)?;
        Ok(Sides { from, to: on_device(outputs, shape.step, self.points.to, of_outputs)? })
    }
}

// Tables of places in vectors
/// Places in a vector of the points of lattices, by pairs: (pairs, rows, points); -1 where there is no number.
///
/// `at` are the places of the numbers in a longer vector.
fn table(
    masks: &[Array2<bool>],
    step: usize,
    [rows, points]: [usize; 2],
    at: Option<&[usize]>,
) -> Vec<[i32; 2]> {
    let sublattices = step * step;
    let pairs = (masks.len() * sublattices).div_ceil(2);
    let mut table = vec![[-1; 2]; pairs * rows * points];
    let mut number = 0;
    for (k, mask) in masks.iter().enumerate() {
        for ((y, x), _) in mask.indexed_iter().filter(|(_, used)| **used) {
            let lattice = k * sublattices + y % step * step + x % step;
            let place = (lattice / 2 * rows + y / step) * points + x / step;
            table[place][lattice % 2] = at.map_or(number, |at| at[number]) as i32;
            number += 1;
        }
    }
    table
}

// Tests of lattices on a device
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_knows_every_number_once() {
        let mut mask = Array2::from_elem((3, 3), true);
        mask[[0, 1]] = false;
        let even_rows = [[0, -1], [1, -1], [5, 6], [7, -1]];
        let odd_rows = [[2, 3], [4, -1], [-1, -1], [-1, -1]];
        let masks = [mask];
        assert_eq!(table(&masks, 2, [2, 2], None), [even_rows, odd_rows].concat());
        let at = [10, 11, 12, 13, 14, 15, 16, 17];
        let (moved, filled) = (table(&masks, 2, [2, 2], Some(&at)), table(&masks, 2, [3, 2], None));
        assert!(moved[..2] == [[10, -1], [11, -1]] && moved[4] == [12, 13]);
        assert_eq!(filled[4..8], [[-1, -1], [-1, -1], [2, 3], [4, -1]]);
    }
}
