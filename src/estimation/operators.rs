// Tangled from book/src/covariance-operators.md: edit there, or here and run cargo tangle stitch.
//! Toeplitz operators made of the covariance of slopes.

pub(crate) mod gpu;

use crate::error::{Error, Invalid};
use crate::linear::toeplitz::{Block, BlockToeplitz, Parts, size_of_masks};
use crate::numerics::real::Real;
use crate::turbulence::slope::SlopeCovariance;
use ndarray::{Array2, s};

impl<T: Real> BlockToeplitz<T> {
    // Make the operator of slopes
    /// The covariance matrix of the slopes of valid lenslets, given by one mask (N, N) for each source, rad².
    ///
    /// Rows and columns are in the order of [`SlopeOrder`](crate::model::lenslet_array::SlopeOrder), as those of
    /// [`SlopeCovariance::dense`] are.
    ///
    /// # Errors
    /// `Invalid` where the masks are not one for each source, have the wrong shape, or one of them leaves nothing.
    pub fn slopes(covariance: &SlopeCovariance, valid: &[Array2<bool>]) -> Result<Self, Error> {
        Ok(Self::of(&Parts::slopes(covariance, valid)?))
    }
}

impl<'a> Parts<'a> {
    // Parts of the covariance of slopes
    /// The parts of [`BlockToeplitz::slopes`].
    pub(crate) fn slopes(
        covariance: &'a SlopeCovariance,
        valid: &[Array2<bool>],
    ) -> Result<Self, Invalid> {
        let (sources, lenslets) = (covariance.sources(), covariance.lenslets());
        // Refuse masks of other lenslets
        let (masks, across) = (valid.len(), size_of_masks("valid", valid)?);
        if (masks, across) != (sources, lenslets) {
            let value = format!("{masks} masks of {across} × {across}");
            let expected =
                format!("{sources} masks of {lenslets} × {lenslets}, one for each source");
            return Err(Invalid::new("valid", value, expected));
        }
        let above = (0..sources).flat_map(|p| (p + 1..sources).map(move |q| (p, q)));
        let pairs: Vec<_> = std::iter::once((0, 0)).chain(above).collect();
        // List the blocks of slopes
        let components = [(0, 0), (0, 1), (1, 1)];
        let values = covariance.values();
        let kernels: Vec<_> = (pairs.iter())
            .flat_map(|&(p, q)| components.map(|(a, b)| values.slice(s![p, q, a, b, .., ..])))
            .collect();
        let blocks = Array2::from_shape_fn((2 * sources, 2 * sources), |(row, column)| {
            let (p, q) = (row / 2, column / 2);
            let key = if p == q { (0, 0) } else { (p.min(q), p.max(q)) };
            let pair = pairs.binary_search(&key).unwrap_or(0);
            Block { kernel: 3 * pair + row % 2 + column % 2, turned: p > q }
        });
        let masks: Vec<_> = valid.iter().flat_map(|mask| [mask.clone(), mask.clone()]).collect();
        Self::new(kernels, blocks, 1, masks.clone(), masks)
    }
}
