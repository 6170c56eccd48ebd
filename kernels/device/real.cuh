// Tangled from book/src/compiling-kernels.md: edit there, or here and run cargo tangle stitch.
// Real numbers of a kernel, and vectors of them side by side.
#pragma once

#ifndef REAL
#define REAL double
#endif
typedef REAL real;

/// What belongs to the block's vector, of several that stand one behind the other.
template <class Element>
__device__ __forceinline__ Element *of_vector(Element *first, int length) {
    return first + blockIdx.z * length;
}
