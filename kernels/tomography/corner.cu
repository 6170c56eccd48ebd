// Tangled from book/src/reconstructor-ranks.md: edit there, or here and run cargo tangle stitch.
// The corner of the factor of a bordered matrix.

#include "device/real.cuh"

/// The part of the factor from a row and column on, its columns as rows: column k of the `width` that are here is `slopes[k]`, and the
/// first of the corner is `from`; below the diagonal there is nothing. A thread for a column, and a row of blocks for a row.
extern "C" __global__ void take_corner(
    const real *matrix, const int *slopes, real *corner, int width, int from, int first, int order
) {
    const int k = from + blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (k >= width) return;
    const int column = slopes[k] - first;
    if (row <= column) corner[(size_t)column * order + row] = matrix[(size_t)(first + row) * width + k];
}
