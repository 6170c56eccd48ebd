// Tangled from book/src/removed-modes-gpu.md: edit there, or here and run cargo tangle stitch.
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

/// Adds to entries of the rows from `row` on, in `count` of `width` columns from `first` on, the variance that their slopes have in
/// common, a block of threads a row.
extern "C" __global__ void add_common(
    real *matrix, int width, int row, int first, int count, double variance
) {
    real *own = matrix + (size_t)(row + blockIdx.x) * width + first;
    for (int k = threadIdx.x; k < count; k += blockDim.x) own[k] += (real)variance;
}

// Modes of a matrix that is half there
/// Products of rows with the part of a mode that is over `count` of their `width` columns, from `first` on, a block of threads a row.
extern "C" __global__ void __launch_bounds__(256) row_products(
    const real *rows, const double *here, int width, int first, int count, double *products
) {
    __shared__ double parts[256];
    const real *own = rows + (size_t)blockIdx.x * width + first;
    double sum = 0.0;
    for (int k = threadIdx.x; k < count; k += 256) sum += own[k] * here[k];
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) products[blockIdx.x] = parts[0];
}

// Products of columns with a mode
/// Products of a mode over `count` slopes from `first` on with the columns from `start` on, which lie behind it, at the places of their slopes.
extern "C" __global__ void column_products(
    const real *matrix, const double *mode, const int *slopes, int width, int start, int first, int count,
    double *products
) {
    const int k = start + blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= width) return;
    double sum = 0.0;
    for (int l = 0; l < count; ++l) sum += matrix[(size_t)(first + l) * width + k] * mode[l];
    products[slopes[k]] = sum;
}

// Take modes out of what is here
/// Takes z bᵗ + b zᵗ out of what is here of the rows that it touches, a block of threads a row. The mode is over slopes from `first` on,
/// and `here` over the columns from `start` to before `end`.
extern "C" __global__ void replace_mode(
    real *matrix, const double *mode, const double *here, const double *b, const int *slopes, int width, int first,
    int start, int end
) {
    const int i = blockIdx.x;
    const double z = i < first ? 0.0 : mode[i - first];
    real *row = matrix + (size_t)i * width;
    for (int k = start + threadIdx.x; k < (i < first ? end : width); k += blockDim.x) {
        row[k] -= (real)(z * b[slopes[k]] + (k < end ? b[i] * here[k - start] : 0.0));
    }
}

/// Takes the shares of a mode out of rows, over `count` of their `width` columns from `first` on, a block of threads a row.
extern "C" __global__ void take_out_mode(
    real *rows, const double *shares, const double *here, int width, int first, int count
) {
    real *own = rows + (size_t)blockIdx.x * width + first;
    for (int k = threadIdx.x; k < count; k += blockDim.x) own[k] -= (real)(shares[blockIdx.x] * here[k]);
}
