// Tangled from book/src/reconstructor-gpu.md: edit there, or here and run cargo tangle stitch.
// Noise of slopes on the covariance matrix of their measurements.

#include "device/real.cuh"

/// Adds to columns of a matrix the variances of their slopes, and their covariances with their partners, the other slopes of their
/// lenslets: column k of the `count` that are here is that of slope `slopes[k]`.
extern "C" __global__ void add_noise(
    real *matrix, const int *slopes, const real *variances, const int *partners, const real *covariances, int count
) {
    size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (k >= count) return;
    matrix[(size_t)slopes[k] * count + k] += variances[k];
    matrix[(size_t)partners[k] * count + k] += covariances[k];
}
