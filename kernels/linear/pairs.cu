// Tangled from book/src/device-operators.md: edit there, or here and run cargo tangle stitch.
// Elements that join rows in pairs.

#include "device/real.cuh"

/// y += E x, where row k of E has one element, in the column of its partner.
extern "C" __global__ void add_pairs(
    const real *x, real *y, const int *partners, const real *elements, int rows
) {
    x = of_vector(x, rows);
    y = of_vector(y, rows);
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < rows) y[k] += elements[k] * x[partners[k]];
}
