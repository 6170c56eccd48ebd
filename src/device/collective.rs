// Tangled from book/src/several-devices.md: edit there, or here and run cargo tangle stitch.
//! Block-cyclic layout of the columns of a matrix over several ranks.

// Imports of block-cyclic layouts
use crate::numerics::real::Real;
use ndarray::{ArrayViewMut1, s};
use std::ops::Range;

// Block-cyclic layout of columns
/// Block-cyclic layout of a matrix by rows: the columns that one of several ranks stores. Blocks of columns go to the ranks in turn,
/// and the blocks of a rank are contiguous in its part of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockCyclic {
    columns: usize,
    block: usize,
    rank: usize,
    ranks: usize,
}

/// Columns of the largest block: large enough for efficient products of matrices, small enough for an even distribution.
const BLOCK: usize = 2048;

// Make a block-cyclic layout
impl BlockCyclic {
    /// Layout of a matrix of so many columns for one of `ranks` ranks.
    ///
    /// # Panics
    /// If there is no such rank.
    pub(crate) fn new(columns: usize, [rank, ranks]: [usize; 2]) -> Self {
        assert!(rank < ranks, "rank {rank} of {ranks}");
        let block = columns.div_ceil(4 * ranks).next_power_of_two().clamp(16, BLOCK);
        Self { columns, block, rank, ranks }
    }

    /// Layout of all columns on one rank.
    pub(crate) fn whole(columns: usize) -> Self {
        Self { columns, block: columns.max(1), rank: 0, ranks: 1 }
    }

    /// Layout of the same matrix for another rank.
    pub(crate) fn of(self, rank: usize) -> Self {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        Self { rank, ..self }
    }

    // Count the columns of a rank
    /// All columns of the matrix.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Columns of a whole block.
    pub(crate) fn block(&self) -> usize {
        self.block
    }

    /// Number of columns that the rank stores.
    pub(crate) fn count(&self) -> usize {
        self.tiles().map(|tile| tile.len()).sum()
    }

    // Find the columns of a rank
    /// Columns that the rank stores, block by block; block k begins at column `k * block` of the rank's part.
    pub(crate) fn tiles(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Self { columns, block, rank, ranks } = *self;
        let starts = (rank * block..columns).step_by(block * ranks);
        starts.map(move |start| start..(start + block).min(columns))
    }

    /// Position of a column in the rank's part, if the rank stores it, Eq. [dealt](https://lenslet.github.io/lenslet/several-devices.html#eq-dealt).
    pub(crate) fn place(&self, column: usize) -> Option<usize> {
        let Self { block, rank, ranks, .. } = *self;
        let (turn, within) = (column / block, column % block);
        (turn % ranks == rank).then_some(turn / ranks * block + within)
    }

    // Write columns into a whole row
    /// Copies the rank's part of a row, times `unit`, to the columns of the row that it belongs to.
    pub(crate) fn put<T: Real>(&self, mut row: ArrayViewMut1<f64>, kept: &[T], unit: f64) {
        for (tile, kept) in self.tiles().zip(kept.chunks(self.block)) {
            let places = row.slice_mut(s![tile]);
            places.into_iter().zip(kept).for_each(|(to, value)| *to = unit * value.in_double());
        }
    }

    /// Whether each of `ranks` ranks stores at least one column.
    pub(crate) fn serves_all(columns: usize, ranks: usize) -> bool {
        Self::new(columns, [ranks - 1, ranks]).count() > 0
    }
}

// Tests of block-cyclic layouts
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_dealt_out_once() {
        for (columns, ranks) in [(1, 1), (64, 2), (233, 2), (233, 3), (5000, 4), (41_040, 2)] {
            let mut owners = vec![0; columns];
            for rank in 0..ranks {
                let deal = BlockCyclic::new(columns, [rank, ranks]);
                deal.tiles().flatten().for_each(|column| owners[column] += rank + 1);
                assert_eq!(deal.count(), deal.tiles().flatten().count());
                assert_eq!(deal, BlockCyclic::new(columns, [0, ranks]).of(rank));
                // Block k of a rank is block k ranks + rank of all.
                for (k, tile) in deal.tiles().enumerate() {
                    assert_eq!(tile.start, (k * ranks + rank) * deal.block());
                    let places = tile.clone().map(|column| deal.place(column));
                    assert!(places.eq((0..tile.len()).map(|i| Some(k * deal.block() + i))));
                }
            }
            let sum = (1..=ranks).map(|k| k * BlockCyclic::new(columns, [k - 1, ranks]).count());
            assert_eq!(owners.iter().sum::<usize>(), sum.sum::<usize>());
            let kept = (0..columns).filter_map(|j| BlockCyclic::new(columns, [0, ranks]).place(j));
            assert_eq!(kept.count(), BlockCyclic::new(columns, [0, ranks]).count());
            assert!(owners.iter().all(|&owner| (1..=ranks).contains(&owner)));
        }
        assert!(BlockCyclic::whole(7).tiles().eq(std::iter::once(0..7)));
        assert_eq!(
            (BlockCyclic::whole(0).count(), BlockCyclic::new(41_040, [0, 2]).block()),
            (0, 2048)
        );
        assert!(BlockCyclic::serves_all(17, 2) && !BlockCyclic::serves_all(16, 2));
    }
}
