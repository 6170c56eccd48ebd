// Tangled from book/src/blocks-gpu.md: edit there, or here and run cargo tangle stitch.
// Products with a matrix of a few rows, between places of longer vectors.

#include "device/real.cuh"

// Partial sums along the rows
/// sums[row, part] = the sum over a part of the columns of A x; a block for each.
extern "C" __global__ void sum_parts(
    const real *matrix, const real *x, const int *columns, real *sums, int width, int n
) {
    x = of_vector(x, n);
    sums = of_vector(sums, gridDim.x * gridDim.y);
    __shared__ real shares[32];
    const real *elements = matrix + (long long)blockIdx.y * width;
    real sum = 0;
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < width; k += gridDim.x * blockDim.x)
        sum += elements[k] * x[columns[k]];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) shares[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int warp = 1; warp < blockDim.x / 32; warp++) sum += shares[warp];
    sums[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

// Add the partial sums to their rows
/// y[rows] = A x, or is increased by it; a thread for each row.
extern "C" __global__ void add_rows(
    const real *sums, real *y, const int *rows, int count, int parts, int begin, int n
) {
    sums = of_vector(sums, count * parts);
    y = of_vector(y, n);
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= count) return;
    real sum = begin ? 0 : y[rows[row]];
    for (int part = 0; part < parts; part++) sum += sums[row * parts + part];
    y[rows[row]] = sum;
}

// Add to the columns of a few rows
/// y = base + Aᵀ x at the columns, or base − Aᵀ x, or Aᵀ x alone to begin; a thread for each column.
extern "C" __global__ void add_columns(
    const real *matrix, const real *x, const int *rows, const real *base, real *y,
    const int *columns, int count, int width, int begin, int minus, int from, int to
) {
    x = of_vector(x, from);
    base = of_vector(base, to);
    y = of_vector(y, to);
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= width) return;
    real sum = 0;
    for (int row = 0; row < count; row++)
        sum += matrix[(long long)row * width + column] * x[rows[row]];
    real before = begin ? 0 : base[columns[column]];
    y[columns[column]] = minus ? before - sum : before + sum;
}

// Substitute the eliminated unknowns
/// y[rows] = D⁻¹ (x[rows] − the sums of each row); one block for a vector; `left` holds one number for each row.
extern "C" __global__ void solve_eliminated(
    const real *inverse, const real *sums, const real *x, const int *rows, real *left, real *y,
    int count, int parts, int n
) {
    sums = of_vector(sums, count * parts);
    left = of_vector(left, count);
    x = of_vector(x, n);
    y = of_vector(y, n);
    for (int row = threadIdx.x; row < count; row += blockDim.x) {
        real rest = x[rows[row]];
        for (int part = 0; part < parts; part++) rest -= sums[row * parts + part];
        left[row] = rest;
    }
    __syncthreads();
    for (int row = threadIdx.x; row < count; row += blockDim.x) {
        real sum = 0;
        for (int k = 0; k < count; k++) sum += inverse[k * count + row] * left[k];
        y[rows[row]] = sum;
    }
}

// Copy between places
/// to[k] = x[places[k]].
extern "C" __global__ void take(const real *x, const int *places, real *to, int count) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < count) to[k] = x[places[k]];
}

/// y[places[k]] = from[k], or is increased by it.
extern "C" __global__ void put(
    const real *from, real *y, const int *places, int count, int begin, int n
) {
    from = of_vector(from, count);
    y = of_vector(y, n);
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < count) y[places[k]] = begin ? from[k] : y[places[k]] + from[k];
}
