// Tangled from book/src/plain-sum-gpu.md: edit there, or here and run cargo tangle stitch.
// Loops unrolled by the compiler, whose index is a type.
#pragma once

template <int N> struct Int {
    static constexpr int value = N;
};

/// Does a step for Int<FROM>, …, Int<TO - 1>.
template <int FROM, int TO, class Step> __device__ __forceinline__ void unroll(Step step) {
    if constexpr (FROM < TO) {
        step(Int<FROM>());
        unroll<FROM + 1, TO>(step);
    }
}

// Loops that the processor may make
#ifdef __CUDACC__
/// Does a step for FROM, …, TO - 1; unrolled on a device, where values that are held find their registers so.
template <int FROM, int TO, class Step> __device__ __forceinline__ void repeat(Step step) {
    unroll<FROM, TO>(step);
}
#else
struct Index {
    int value;
};

template <int FROM, int TO, class Step> void repeat(Step step) {
    for (int k = FROM; k < TO; ++k) step(Index{k});
}
#endif
