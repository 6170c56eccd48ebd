// Tangled from book/src/compiling-kernels.md: edit there, or here and run cargo tangle stitch.
// The generation of the device that the compiler makes code for.
#pragma once

#ifdef __CUDA_ARCH__
constexpr int GENERATION = __CUDA_ARCH__ / 10;
#else
constexpr int GENERATION = 90;
#endif
