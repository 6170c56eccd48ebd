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
