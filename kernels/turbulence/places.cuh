// Tangled from book/src/dense-gpu.md: edit there, or here and run cargo tangle stitch.
// Positions of the entries of two lenslets in a matrix.
#pragma once

#include "device/real.cuh"

/// Adds xx, xy, yx and yy to a lenslet's row; `second` has the positions of the other one's slopes.
__device__ inline void put(
    const double c[4], const int *second, size_t row, int pitch, int height, real *values
) {
    for (int b = 0; b < 2; ++b) {
        const int place = second[2 + b];
        if (place < 0) continue;
        real *at = values + row * pitch + place;
        at[0] += (real)c[b];
        at[(size_t)height * pitch] += (real)c[2 + b];
    }
}
