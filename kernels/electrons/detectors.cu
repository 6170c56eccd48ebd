// Tangled from book/src/detectors-gpu.md: edit there, or here and run cargo tangle stitch.
// Sums of the intensity of waves over lists of frequencies.
#include "device/block_sum.cuh"
#include "device/real.cuh"

/// The intensity of frequency `k`.
__device__ __forceinline__ double intensity(const real *__restrict__ spectrum, unsigned k) {
    const real re = spectrum[2 * (size_t)k], im = spectrum[2 * (size_t)k + 1];
    return re * re + im * im;
}

// Add long lists
/// Readings (w, lists + bins) of spectra (w, frequencies) over the first lists, a block each.
extern "C" __global__ __launch_bounds__(128) void add_lists(
    const real *__restrict__ spectra, const unsigned *__restrict__ starts, const unsigned *__restrict__ places,
    const double *__restrict__ weights, double *readings, int frequencies, int lists, int bins
) {
    const real *spectrum = spectra + 2 * (size_t)blockIdx.y * frequencies;
    const unsigned end = starts[blockIdx.x + 1];
    double sum = 0.0;
    for (unsigned k = starts[blockIdx.x] + threadIdx.x; k < end; k += 128)
        sum += weights[k] * intensity(spectrum, places[k]);
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) readings[(size_t)blockIdx.y * (lists + bins) + blockIdx.x] = sum;
}

// Add bins of the pattern
/// Readings of spectra over the lists behind those, a thread each.
extern "C" __global__ __launch_bounds__(128) void add_bins(
    const real *__restrict__ spectra, const unsigned *__restrict__ starts, const unsigned *__restrict__ places,
    const double *__restrict__ weights, double *readings, int frequencies, int lists, int bins
) {
    const int bin = blockIdx.x * 128 + threadIdx.x;
    if (bin >= bins) return;
    const real *spectrum = spectra + 2 * (size_t)blockIdx.y * frequencies;
    double sum = 0.0;
    for (unsigned k = starts[lists + bin]; k < starts[lists + bin + 1]; k++)
        sum += weights[k] * intensity(spectrum, places[k]);
    readings[(size_t)blockIdx.y * (lists + bins) + lists + bin] = sum;
}
