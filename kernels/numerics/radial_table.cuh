// Tangled from book/src/quadrature.md: edit there, or here and run cargo tangle stitch.
// Functions of a squared distance from tables, in double and in single precision.
#pragma once

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
