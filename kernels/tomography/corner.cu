// Tangled from book/src/reconstructor-ranks.md: edit there, or here and run cargo tangle stitch.
// The corner of the factor of a bordered matrix.

#include "device/real.cuh"

/// The lower right corner of the factor, with its columns as rows: column k of the `width` columns of this rank is `slopes[k]`, and the
/// first in the corner is `from`; entries below the diagonal are zero. A thread for a column, and a row of blocks for a row.
extern "C" __global__ void take_corner(
    const real *matrix, const int *slopes, real *corner, int width, int from, int first, int order
) {
    const int k = from + blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (k >= width) return;
    const int column = slopes[k] - first;
    if (row <= column) corner[(size_t)column * order + row] = matrix[(size_t)(first + row) * width + k];
}
