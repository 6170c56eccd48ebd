// Tangled from book/src/phase-gpu.md: edit there, or here and run cargo tangle stitch.
// The tables and functions of the phase by themselves.

// Real numbers of a kernel
#ifndef REAL
#define REAL double
#endif
typedef REAL real;

// Look up the radial table on the device
// Look up a segment in double precision
/// A polynomial in t - centre.
struct alignas(16) Segment {
    double centre, c[7];
};

/// f(t) and df/dt, from a table whose segments are numbered from `first` to `last`.
__device__ inline double look_up(
    const double *table, int first, int last, double t, double *slope
) {
    int number = (int)(__double_as_longlong(t) >> 47);
    number = number < first ? first : number > last ? last : number;
    const Segment s = ((const Segment *)table)[number - first];
    double u = t - s.centre, value = s.c[6], rise = 0.0;
#pragma unroll
    for (int k = 5; k >= 0; --k) {
        rise = rise * u + value;
        value = value * u + s.c[k];
    }
    *slope = rise;
    return value;
}

// Look up a sliver in single precision
/// A cubic in (t - centre) / 2^e, 64 segments to the octave from 2^e to 2^(e + 1).
struct alignas(16) Sliver {
    float c[4];
};

__device__ inline float look_up(const float *table, int first, int last, float t, float *slope) {
    int number = __float_as_int(t) >> 17;
    number = number < first ? first : number > last ? last : number;
    const Sliver s = ((const Sliver *)table)[number - first];
    float per_octave = __int_as_float((254 - (number >> 6)) << 23);
    float u = (t - __int_as_float((number << 17) | (1 << 16))) * per_octave;
    *slope = (s.c[1] + u * (2.0f * s.c[2] + u * 3.0f * s.c[3])) * per_octave;
    return s.c[0] + u * (s.c[1] + u * (s.c[2] + u * s.c[3]));
}

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
    double per_square, fall, slope, law;
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
/// S or M at the squared distance t in m^2, by whose table is given; rad^2.
__device__ inline double fall_of(const double *table, const Phase &phase, double t) {
    double rise;
    return phase.fall * universal(table, phase, t, &rise);
}

/// p(t), rad^2 m^-2, and dp/dt, rad^2 m^-4.
template <typename T>
__device__ inline T slope_over_distance(const T *table, const Phase &phase, T t, T *rise) {
    T factor = (T)phase.slope;
    T p = factor * universal(table, phase, t, rise);
    *rise *= factor * (T)phase.per_square;
    return p;
}

/// S, M, p and dp/dt at n squared distances t: values[4 k ...].
extern "C" __global__ void phase_functions(
    const real *slopes, const double *falls, const double *half_means, const Phase *phase,
    const double *t, double *values, int n
) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= n) return;
    real rise;
    real p = slope_over_distance(slopes, *phase, (real)t[k], &rise);
    values[4 * k] = fall_of(falls, *phase, t[k]);
    values[4 * k + 1] = fall_of(half_means, *phase, t[k]);
    values[4 * k + 2] = p;
    values[4 * k + 3] = rise;
}
