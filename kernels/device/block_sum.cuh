// Tangled from book/src/compiling-kernels.md: edit there, or here and run cargo tangle stitch.
// Sums over the threads of a block.
#pragma once

/// The sum over all threads of a block of whole warps, known to its first thread; to be asked for once in a kernel.
__device__ __forceinline__ double sum_of_block(double sum) {
    __shared__ double parts[32];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int warp = 1; warp < blockDim.x / 32; warp++) sum += parts[warp];
    return sum;
}
