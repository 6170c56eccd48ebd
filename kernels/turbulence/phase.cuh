// Tangled from book/src/phase-gpu.md: edit there, or here and run cargo tangle stitch.
// Von Kármán phase statistics from tables, for every outer scale.
#pragma once
#include "numerics/radial_table.cuh"

// Evaluate the phase on the device
// Range and scales of the phase
/// Numbers of the first and last segments of the universal tables, from 2^-120 to 2^40, and
/// where they end.
constexpr int FIRST_SEGMENT = (1023 - 120) << 5, LAST_SEGMENT = ((1023 + 40) << 5) - 1;
constexpr int FIRST_SLIVER = (127 - 120) << 6, LAST_SLIVER = ((127 + 40) << 6) - 1;
constexpr double TABLE_END = 1099511627776.0;

/// The phase of one outer scale: 1/l^2, l^(5/3), l^(-1/3) for a unit of length l; law 0 is von
/// Karman's, 1 a power.
struct Phase {
    double per_square, half_structure, slope, law;
};

// Look up a universal function
/// f(t) of one of the tables of both laws, without its factor; in *rise its derivative by t / l^2.
__device__ inline double universal(
    const double *table, const Phase &phase, double t, double *rise
) {
    const int count = LAST_SEGMENT - FIRST_SEGMENT + 1;
    table += 8 * count * (int)phase.law;
    double tau = t * phase.per_square;
    tau = tau < TABLE_END ? tau : 0.99 * TABLE_END;
    return look_up(table, FIRST_SEGMENT, LAST_SEGMENT, tau, rise);
}

__device__ inline float universal(const float *table, const Phase &phase, float t, float *rise) {
    const int count = LAST_SLIVER - FIRST_SLIVER + 1;
    table += 4 * count * (int)phase.law;
    float tau = t * (float)phase.per_square;
    tau = tau < (float)TABLE_END ? tau : 0.99f * (float)TABLE_END;
    return look_up(table, FIRST_SLIVER, LAST_SLIVER, tau, rise);
}

// Phase functions on the device
/// S or M, according to the table, at the squared distance t in m^2; rad^2.
__device__ inline double half_structure_of(const double *table, const Phase &phase, double t) {
    double rise;
    return phase.half_structure * universal(table, phase, t, &rise);
}

/// S_1(t), rad^2 m^-2, and dS_1/dt, rad^2 m^-4.
template <typename T>
__device__ inline T slope_over_distance(const T *table, const Phase &phase, T t, T *rise) {
    T factor = (T)phase.slope;
    T p = factor * universal(table, phase, t, rise);
    *rise *= factor * (T)phase.per_square;
    return p;
}
