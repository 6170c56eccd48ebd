// Tangled from book/src/direct-gpu.md: edit there, or here and run cargo tangle stitch.
// Second derivatives of the phase covariance.
#pragma once
#include "device/real.cuh"

// Hessian of the structure function on the device
/// H_xx, H_xy, H_yy at (x, y) from S₁ and dS₁/dt.
__device__ inline void hessian(real p, real slope, real x, real y, real h[3]) {
    const real q = 2 * slope;
    h[0] = p + q * x * x;
    h[1] = q * x * y;
    h[2] = p + q * y * y;
}
