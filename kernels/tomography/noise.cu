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

/// Adds to the entries of `count` slopes from `first` on the variance that they have in common, a block of threads a row.
extern "C" __global__ void add_common(real *matrix, int n, int first, int count, double variance) {
    real *row = matrix + (size_t)(first + blockIdx.x) * n + first;
    for (int k = threadIdx.x; k < count; k += blockDim.x) row[k] += (real)variance;
}

// Modes of a matrix that is half there
/// C z for a mode z over `count` slopes from `first` on; blocks of sensors below the diagonal are not there.
extern "C" __global__ void mode_products(
    const real *matrix, const double *mode, int n, int first, int count, double *products
) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= n) return;
    const bool above = k < first + count;
    const real *start = above ? matrix + (size_t)k * n + first : matrix + (size_t)first * n + k;
    const size_t step = above ? 1 : n;
    double sum = 0.0;
    for (int l = 0; l < count; ++l) sum += start[l * step] * mode[l];
    products[k] = sum;
}

/// Takes z bᵗ + b zᵗ out of what is there of the rows that it touches, a block of threads a row.
extern "C" __global__ void replace_mode(
    real *matrix, const double *mode, const double *b, int n, int first, int count
) {
    const int i = blockIdx.x, end = first + count;
    const double z = i < first ? 0.0 : mode[i - first];
    real *row = matrix + (size_t)i * n;
    for (int k = first + threadIdx.x; k < (i < first ? end : n); k += blockDim.x) {
        row[k] -= (real)(z * b[k] + (k < end ? b[i] * mode[k - first] : 0.0));
    }
}

// Take a mode out of rows
/// Takes a mode out of rows of n slopes, a block of threads a row.
extern "C" __global__ void __launch_bounds__(256) take_out_mode(
    real *rows, const double *mode, int n, int first, int count
) {
    __shared__ double parts[256];
    real *own = rows + (size_t)blockIdx.x * n + first;
    double sum = 0.0;
    for (int k = threadIdx.x; k < count; k += 256) sum += own[k] * mode[k];
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
        __syncthreads();
    }
    for (int k = threadIdx.x; k < count; k += 256) own[k] -= (real)(parts[0] * mode[k]);
}
