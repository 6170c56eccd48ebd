// Tangled from book/src/spectral-gpu.md: edit there, or here and run cargo tangle stitch.
// Covariances by the spectral method, around the transforms of cuFFT.

#include "device/real.cuh"

// Types and sizes of spectral kernels
#ifndef DERIVATIVES
#define DERIVATIVES 2
#endif
#ifndef PAIRS
#define PAIRS 4
#endif
constexpr int COMPONENTS = DERIVATIVES + 1, FIELDS = PAIRS * COMPONENTS;
/// Bins of a block, and threads that share a bin.
constexpr int BINS = 32, PARTS = 4;

/// A complex number, moved as a whole.
struct alignas(2 * sizeof(real)) complex {
    real re, im;
};
/// A layer: s, Σ in units of the strongest layer's, and the disc's radius times the step of the frequency.
struct Layer {
    double ratio, strength, disc;
};

// Wave of an offset on the device
/// exp(2πi n c) for a wave of `cycles` c a sample.
__device__ complex wave_at(int n, double cycles) {
    double sine, cosine;
    sincospi(2.0 * fmod(n * cycles, 1.0), &sine, &cosine);
    return complex{(real)cosine, (real)sine};
}

// Power of a frequency on the device
/// t^(−11/6).
__device__ real power(real t) {
    real inverse = 1 / t;
    return inverse * inverse * sqrt(cbrt(t));
}

// Transfer function of the disc
/// The transform of a disc of unit weight for `cycles` = R f.
__device__ double disc_transfer(double cycles) {
    double z = 2 * 3.141592653589793238 * cycles;
    return z == 0 ? 1 : 2 * j1(z) / z;
}

// Share of a sample at Nyquist's lines
/// One half for a sample within the original's square, and one half for its opposite.
__device__ real share(int n, int m, int half) {
    const int within = half > max(n, m), opposite = -half < min(n, m);
    return (real)0.5 * (within + opposite);
}

// Kernel that tabulates the waves
/// The waves of `count` cycles, each for n = 0 … length − 1; (count, length).
extern "C" __global__ void waves(const double *cycles, complex *table, int count, int length) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    int wave = blockIdx.y;
    if (n < length && wave < count) table[(size_t)wave * length + n] = wave_at(n, cycles[wave]);
}

// Kernel that folds the spectrum
// Tables that a fold reads
/// The factor G of a lenslet, and the waves (axes, layers, pairs of the group, N_F/2 + 1).
struct Tables {
    const real *lenslet;
    const complex *waves;
    int layers, half;

    __device__ complex wave(int axis, int layer, int pair, int n) const {
        size_t place = ((size_t)axis * layers + layer) * PAIRS + pair;
        complex wave = waves[place * (half + 1) + abs(n)];
        return n < 0 ? complex{wave.re, -wave.im} : wave;
    }
};

// Add one row of samples
// Weigh one sample of the spectrum
/// The factors of a sample that all pairs share, but for those of the row.
__device__ real sample_weight(const Tables &tables, const Layer &layer, int n, int m) {
    if (n == 0 && m == 0) return 0;
    real square = (real)n * n + (real)m * m;
    real weight = share(n, m, tables.half) * tables.lenslet[abs(n)]
        * power((real)layer.ratio * (square - 1) + 1);
    if (DERIVATIVES == 1 && layer.disc > 0)
        weight *= (real)disc_transfer(layer.disc * sqrt((double)square));
    return weight;
}

/// Adds samples n = first_n, first_n + F, … of one row and layer to the sums of all fields, Eq.
/// `[eq:rows-of-a-bin]`.
__device__ void add_row(
    const Tables &tables, const Layer &layer, int number, int m, int first_n, int folded,
    complex *sums
) {
    complex row[PAIRS][COMPONENTS] = {};
    for (int n = first_n; n <= tables.half; n += folded) {
        real weight = sample_weight(tables, layer, n, m);
#pragma unroll
        for (int pair = 0; pair < PAIRS; pair++) {
            complex wave = tables.wave(0, number, pair, n);
            real power = weight;
#pragma unroll
            for (int u = 0; u < COMPONENTS; u++) {
                row[pair][u].re += power * wave.re;
                row[pair][u].im += power * wave.im;
                power *= n;
            }
        }
    }
    // Multiply the row by its wave
    real scale = (real)layer.strength * tables.lenslet[abs(m)];
    #pragma unroll
    for (int pair = 0; pair < PAIRS; pair++) {
        complex wave = tables.wave(1, number, pair, m);
        if (DERIVATIVES == 1) wave = complex{-wave.im, wave.re};
        real factor = scale;
    #pragma unroll
        for (int a = 0; a < COMPONENTS; a++) {
            complex of_x = row[pair][DERIVATIVES - a];
            complex &sum = sums[pair * COMPONENTS + a];
            sum.re += factor * (wave.re * of_x.re - wave.im * of_x.im);
            sum.im += factor * (wave.re * of_x.im + wave.im * of_x.re);
            factor *= m;
        }
    }
}

/// Folds the spectra of a group of pairs, Eq. `[eq:hermitian-fold]`, into planes of two fields
/// each; (planes, F, F).
extern "C" __global__ void fold(
    const Layer *layers, const real *lenslet, const complex *waves, complex *planes,
    int layer_count, int folded, int half
) {
    __shared__ complex others[PARTS - 1][FIELDS][BINS];
    int lane = threadIdx.x % BINS, part = threadIdx.x / BINS;
    long long bin = (long long)blockIdx.x * BINS + lane;
    int j = (int)(bin / folded), i = (int)(bin % folded);
    bool inside = j <= folded / 2;
    complex sums[FIELDS] = {};
    // Add the rows of one part
    Tables tables = {lenslet, waves, layer_count, half};
    int first_n = (i + half) % folded - half, first_m = (j + half) % folded - half;
    int rows = inside ? (half - first_m) / folded + 1 : 0;
    for (int row = part; row < rows * layer_count; row += PARTS) {
        int layer = row / rows, m = first_m + row % rows * folded;
        add_row(tables, layers[layer], layer, m, first_n, folded, sums);
    }
    // Add the parts of a bin
    if (part > 0) {
    #pragma unroll
        for (int k = 0; k < FIELDS; k++) others[part - 1][k][lane] = sums[k];
    }
    __syncthreads();
    if (part > 0 || !inside) return;
    #pragma unroll
    for (int k = 0; k < FIELDS; k++) {
        for (int other = 0; other < PARTS - 1; other++) {
            sums[k].re += others[other][k][lane].re;
            sums[k].im += others[other][k][lane].im;
        }
    }
    // Store two fields in a plane
    bool alone = j == 0 || 2 * j == folded;
    size_t here = (size_t)j * folded + i, size = (size_t)folded * folded;
    size_t opposite = (size_t)(folded - j) * folded + (folded - i) % folded;
    #pragma unroll
    for (int k = 0; k < FIELDS; k += 2, planes += size) {
        complex one = sums[k], two = {0, 0};
        if (k + 1 < FIELDS) two = sums[k + 1];
        planes[here] = complex{one.re - two.im, one.im + two.re};
        if (!alone) planes[opposite] = complex{one.re + two.im, two.re - one.im};
    }
}

// Kernel that gathers the lags
/// The lags of all fields, from planes of two fields each; (fields, K, K). Lag 0 is at `shift`
/// along either axis.
extern "C" __global__ void gather(
    const complex *planes, real *fields, int folded, int lags, int shift
) {
    size_t k = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t square = (size_t)lags * lags;
    if (k >= FIELDS * square) return;
    int field = (int)(k / square), lag = (int)(k % square);
    size_t j = (lag / lags + shift) % folded, i = (lag % lags + shift) % folded;
    complex value = planes[((size_t)(field / 2) * folded + j) * folded + i];
    fields[k] = field % 2 ? value.im : value.re;
}
