// Tangled from book/src/short-transforms.md: edit there, or here and run cargo tangle stitch.
// Short transforms by themselves, for the tests: ROWS rows, from memory to memory.

#include "linear/short_transforms.cuh"

// Transform rows for a test
template <int SIGN>
__device__ void transform_all(const Complex *x, const Complex *roots, Complex *y) {
    auto load = [&](int f, auto a, int b) { return x[f * LENGTH + a.value * REST + b]; };
    auto store = [&](int f, int k, Complex value) { y[f * LENGTH + k] = value; };
    Complex *work = reinterpret_cast<Complex *>(memory);
    transform<SIGN, ROWS, TEAM, (SIGN > 0)>(work, roots, load, store);
}

extern "C" __global__ void transform_forth(const Complex *x, const Complex *roots, Complex *y) {
    transform_all<-1>(x, roots, y);
}

extern "C" __global__ void transform_back(const Complex *x, const Complex *roots, Complex *y) {
    transform_all<1>(x, roots, y);
}
