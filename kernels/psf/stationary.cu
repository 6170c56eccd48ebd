// Tangled from book/src/structure-function-gpu.md: edit there, or here and run cargo tangle stitch.
// The structure function of strokes whose covariance depends on their separation alone.

#include "device/real.cuh"
#include "device/block_sum.cuh"

// Average pairs of a separation by a block
/// The mean of the strokes' covariances at the places of a separation's pairs, 0 without any; a block of 128 threads a separation.
extern "C" __global__ void __launch_bounds__(128) average_pairs(
    real *means, const double *strokes, const int *pairs, const int *starts
) {
    const int start = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    double sum = 0.0;
#pragma unroll 4
    for (int k = start + threadIdx.x; k < end; k += 128) sum += strokes[pairs[k]];
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) means[blockIdx.x] = end > start ? (real)(sum / (end - start)) : (real)0;
}

// Weigh frequencies of the means
/// A complex number.
struct Pair { real re, im; };

/// The spectrum of a covariance from that of the means, a thread a frequency.
extern "C" __global__ void weigh_frequencies(Pair *spectrum, const real *sums, const real *weights, int count) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < count) spectrum[k] = {sums[k] * weights[k], 0};
}

// Write the structure function on a quadrant
/// Twice what is positive of a difference, or no number.
__device__ real twice(real difference) { return difference < 0 ? (real)0 : 2 * difference; }

/// The structure function at (i, j) and at (−i, j), each on side × side displacements, of a covariance on a plane of n × n points.
extern "C" __global__ void lay_structure(real *structure, const real *covariance, int side, int n) {
    const int j = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= side) return;
    const real variance = covariance[0], *row = covariance + (size_t)j * n;
    structure[(size_t)j * side + i] = twice(variance - row[i]);
    structure[(size_t)(side + j) * side + i] = twice(variance - row[i > 0 ? n - i : 0]);
}
