// Tangled from book/src/reconstructor-gpu.md: edit there, or here and run cargo tangle stitch.
// Noise of slopes on the covariance matrix of their measurements.

#include "device/real.cuh"

/// Adds to row k of a matrix, n × n, the variance of slope k, and its covariance with its partner, the other slope of its lenslet.
extern "C" __global__ void add_noise(
    real *matrix, const real *variances, const int *partners, const real *covariances, int n
) {
    size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (k >= n) return;
    matrix[k * n + k] += variances[k];
    matrix[k * n + partners[k]] += covariances[k];
}
