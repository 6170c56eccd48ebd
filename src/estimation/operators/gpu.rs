// Tangled from book/src/toeplitz-gpu.md: edit there, or here and run cargo tangle stitch.
//! Toeplitz operators made of the covariance of slopes, on a device.

// Imports of slope operators on devices
use crate::device::gpu::Gpu;
use crate::error::Error;
use crate::linear::toeplitz::Parts;
use crate::linear::toeplitz::gpu::{BlockToeplitzGpu, Tuning};
use crate::numerics::real::Real;
use crate::turbulence::slope::SlopeCovariance;
use ndarray::Array2;

impl<T: Real> BlockToeplitzGpu<T> {
    // Make the covariance of slopes on a device
    /// The covariance of slopes, rad², as [`BlockToeplitz::slopes`](crate::linear::toeplitz::BlockToeplitz::slopes).
    ///
    /// # Errors
    /// As in [`BlockToeplitzGpu::new`].
    pub fn slopes(
        gpu: &Gpu,
        covariance: &SlopeCovariance,
        valid: &[Array2<bool>],
    ) -> Result<Self, Error> {
        Self::of(gpu, &Parts::slopes(covariance, valid)?, true, Tuning::default())
    }
}
