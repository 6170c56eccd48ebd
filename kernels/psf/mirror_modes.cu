// Tangled from book/src/structure-function-gpu.md: edit there, or here and run cargo tangle stitch.
// Modes of a mirror on the squares of a pupil, and the power of their transforms.

#include "device/real.cuh"

// Keep a triangle of a root
/// Empties what is below the diagonal of an n × n matrix, a row of blocks for each of its rows.
extern "C" __global__ void keep_upper(real *matrix, int n) {
    const int row = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column < row && column < n) matrix[(size_t)row * n + column] = 0;
}

// Compute modes on a pupil
// Modes of one thread at a time
/// Modes that a thread makes at a time.
#define SIDE_BY_SIDE 8

/// Puts modes on a pupil: map b of `area` points has that of row `first` + b of the `roots`, times the light, at the places of the
/// `count` lit squares, each of which feels `width` actuators. Adds their squares to the variances. There are `modes` in
/// the batch.
extern "C" __global__ void __launch_bounds__(128) lay_modes(
    real *maps, double *variances, const real *roots, const int *near, const real *heights, const real *light,
    const int *places, int count, int width, int actuators, int first, int modes, int area
) {
    // Lit square of a thread
    const int square = blockIdx.x * blockDim.x + threadIdx.x;
    if (square >= count) return;
    const real lit = light[square];
    real *own = maps + places[square];
    double variance = 0.0;
    for (int b = 0; b < modes; b += SIDE_BY_SIDE) {
        // Rows of the next modes
        real sums[SIDE_BY_SIDE] = {};
        const real *rows = roots + (size_t)(first + b) * actuators;
        const int here = modes - b < SIDE_BY_SIDE ? modes - b : SIDE_BY_SIDE;
        for (int k = 0; k < width; ++k) {
            const real height = heights[(size_t)k * count + square];
            const real *column = rows + near[(size_t)k * count + square];
#pragma unroll
            for (int m = 0; m < SIDE_BY_SIDE; ++m)
                if (m < here) sums[m] += height * column[(size_t)m * actuators];
        }
#pragma unroll
        for (int m = 0; m < SIDE_BY_SIDE; ++m) {
            if (m >= here) continue;
            own[(size_t)(b + m) * area] = lit * sums[m];
            variance += (double)sums[m] * sums[m];
        }
    }
    variances[square] += variance;
}

// Add powers of transforms
/// A complex number.
struct Pair { real re, im; };

/// Adds the squared magnitudes of the first `batch` transforms of `count` frequencies, a thread a frequency.
extern "C" __global__ void add_powers(const Pair *spectra, double *powers, int count, int batch) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= count) return;
    double sum = 0.0;
    for (int b = 0; b < batch; ++b) {
        const Pair value = spectra[(size_t)b * count + k];
        sum += (double)value.re * value.re + (double)value.im * value.im;
    }
    powers[k] += sum;
}
