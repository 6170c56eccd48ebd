// Tangled from book/src/factorisations-gpu.md: edit there, or here and run cargo tangle stitch.
// Rows of a matrix, each multiplied by a number of its own.

#include "device/real.cuh"

/// A block for each row, of n numbers.
extern "C" __global__ void scale_rows(real *matrix, const real *factors, int n) {
    size_t row = blockIdx.x;
    for (int k = threadIdx.x; k < n; k += blockDim.x) matrix[row * n + k] *= factors[row];
}
