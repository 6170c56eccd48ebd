// Tangled from book/src/plain-sum-gpu.md: edit there, or here and run cargo tangle stitch.
// Waiting for the work that was queued before a kernel.
#pragma once

__device__ __forceinline__ void wait_for_earlier_work() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
