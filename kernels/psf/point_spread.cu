// Tangled from book/src/point-spread-gpu.md: edit there, or here and run cargo tangle stitch.
// Light that telescope and wavefront let through, on a quarter of the displacements.

#include "device/real.cuh"
#include "device/block_sum.cuh"

// Add a structure function on a quarter
/// Adds a structure function to the total, both (2, side, side), a block of 128 threads a row; the sums of its rows with the transfer of
/// the telescope over the whole plane.
extern "C" __global__ void __launch_bounds__(128) add_structure(
    real *total, double *rows, const real *structure, const real *telescope, int side
) {
    const size_t row = (size_t)blockIdx.x * side, opposite = row + (size_t)side * side;
    double sum = 0.0;
    for (int i = threadIdx.x; i < side; i += 128) {
        const real here = structure[row + i], there = structure[opposite + i];
        total[row + i] += here;
        total[opposite + i] += there;
        const double both = (double)telescope[row + i] * here + (double)telescope[opposite + i] * there;
        sum += (i > 0 ? 1.0 : 0.5) * both;
    }
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) rows[blockIdx.x] = blockIdx.x > 0 ? 2.0 * sum : sum;
}

// Pass light through telescope and wavefront
/// What telescope and wavefront let through.
__device__ real passed(real telescope, real exponent) {
    return telescope > 0 ? telescope * exp(exponent) : (real)0;
}

/// Even and odd part of the transfer of each wavelength, (2, side, side); wavelengths along z, rows along y.
extern "C" __global__ void pass_light(
    real *quarters, const real *telescope, const real *total, const real *scales, int side
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y;
    if (i >= side) return;
    const size_t area = (size_t)side * side, place = (size_t)j * side + i;
    const real scale = scales[blockIdx.z];
    const real here = passed(telescope[place], scale * total[place]);
    const real there = passed(telescope[area + place], scale * total[area + place]);
    const real times = (real)((i > 0 ? 1.0 : 0.5) * (j > 0 ? 2.0 : 1.0));
    real *own = quarters + 2 * area * blockIdx.z + place;
    own[0] = times * (here + there);
    own[area] = times * (here - there);
}
