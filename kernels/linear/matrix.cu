// Tangled from book/src/matrix-gpu.md: edit there, or here and run cargo tangle stitch.
// Products with a dense matrix.

#include "device/real.cuh"

/// y = A x for a matrix of rows × columns; a warp for each row.
extern "C" __global__ void multiply_rows(
    const real *matrix, const real *x, real *y, int rows, int columns
) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    real sum = 0;
    if (row < rows) {
        const real *elements = matrix + (long long)row * columns;
#pragma unroll 8
        for (int k = lane; k < columns; k += 32) sum += elements[k] * x[k];
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (row < rows && lane == 0) y[row] = sum;
}

// Multiply with the columns of a matrix
/// y = Aᵀ x; a thread for each column.
extern "C" __global__ void multiply_columns(
    const real *matrix, const real *x, real *y, int rows, int columns
) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    real sum = 0;
    for (int row = 0; row < rows; row++) sum += matrix[(long long)row * columns + column] * x[row];
    y[column] = sum;
}
