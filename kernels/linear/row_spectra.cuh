// Tangled from book/src/transforms-gpu.md: edit there, or here and run cargo tangle stitch.
// Rows of two lattices as complex rows, and their half spectra.
#pragma once
#include "linear/short_transforms.cuh"

// Rows that fill up a block
constexpr int FROM_ROWS = up_to(FROM_POINTS, 0, ROWS);
constexpr int TO_ROWS = up_to(TO_POINTS, 0, ROWS);

// Vectors side by side
/// Half spectra of the rows of one vector, and of its columns.
constexpr int LINES = HALF * 2 * FROM_PAIRS * FROM_ROWS, COLUMNS = HALF * 2 * TO_PAIRS * TO_ROWS;

/// A place in the first vector as that in the block's own, of `n` numbers each.
__device__ __forceinline__ int2 own_place(int2 place, int n) {
    const int own = blockIdx.z * n;
    return {place.x < 0 ? -1 : place.x + own, place.y < 0 ? -1 : place.y + own};
}

// Part the spectra of two rows
/// Leaves the half spectra of a pair of lattices, from `row` on.
__device__ __forceinline__ void
part_spectra(const Complex *whole, Complex *__restrict__ lines, int pair, int row) {
    for (int task = threadIdx.x; task < HALF * ROWS; task += ROW_THREADS) {
        const int f = task % ROWS, k = task / ROWS;
        const Complex a = whole[f * WHOLE + k], b = whole[f * WHOLE + (k ? LENGTH - k : 0)];
        Complex *to = lines + (k * FROM_PAIRS + pair) * 2 * FROM_ROWS + row + f;
        to[0] = {a.re + b.re, a.im - b.im};
        to[FROM_ROWS] = {a.im + b.im, b.re - a.re};
    }
}

// Join the spectra of two rows
/// The spectra of rows of a pair, from their columns.
__device__ __forceinline__ auto join_spectra(const Complex *columns) {
    return [=](int f, auto a, int b) {
        const int k = a.value * REST + b, q = k < HALF ? k : LENGTH - k;
        const Complex *at = columns + q * (2 * TO_PAIRS * TO_ROWS) + f;
        const Complex first = at[0], second = at[TO_ROWS];
        const real sign = k < HALF ? 1 : -1;
        return Complex{first.re - sign * second.im, sign * first.im + second.re};
    };
}
