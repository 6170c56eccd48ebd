// Tangled from book/src/phase-gpu.md: edit there, or here and run cargo tangle stitch.
// The tables and functions of the phase by themselves.

#include "device/real.cuh"
#include "turbulence/phase.cuh"

/// S, M, p and dp/dt at n squared distances t: values[4 k ...].
extern "C" __global__ void phase_functions(
    const real *slopes, const double *half_structures, const double *half_means, const Phase *phase,
    const double *t, double *values, int n
) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= n) return;
    real rise;
    real p = slope_over_distance(slopes, *phase, (real)t[k], &rise);
    values[4 * k] = half_structure_of(half_structures, *phase, t[k]);
    values[4 * k + 1] = half_structure_of(half_means, *phase, t[k]);
    values[4 * k + 2] = p;
    values[4 * k + 3] = rise;
}
