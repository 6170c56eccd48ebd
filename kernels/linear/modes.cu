// Tangled from book/src/modes-gpu.md: edit there, or here and run cargo tangle stitch.
// Modes: vectors that are not zero over some rows that follow each other.

#include "device/block_sum.cuh"
#include "device/real.cuh"

/// Where a mode begins among the rows, how many of them it has, and where its numbers begin among those of all modes.
struct Mode {
    int first, length, place;
};

// Products of modes with vectors
/// The products of each mode with each vector, (vectors, modes); a block for each.
extern "C" __global__ void mode_shares(
    const real *x, const Mode *modes, const real *shapes, real *shares, int n
) {
    x = of_vector(x, n);
    shares = of_vector(shares, gridDim.x);
    const Mode mode = modes[blockIdx.x];
    double sum = 0;
    for (int k = threadIdx.x; k < mode.length; k += blockDim.x)
        sum += (double)x[mode.first + k] * shapes[mode.place + k];
    sum = sum_of_block(sum);
    if (threadIdx.x == 0) shares[blockIdx.x] = sum;
}

// Add modes to vectors
/// y = x and each mode as often as its weight times its share says; a thread for each row. y may be x.
extern "C" __global__ void add_modes(
    const real *x, real *y, const Mode *modes, const real *shapes, const real *shares,
    const real *weights, int count, int n
) {
    x = of_vector(x, n);
    y = of_vector(y, n);
    shares = of_vector(shares, count);
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= n) return;
    real sum = x[k];
    for (int m = 0; m < count; m++) {
        int at = k - modes[m].first;
        if (at >= 0 && at < modes[m].length)
            sum += weights[m] * shares[m] * shapes[modes[m].place + at];
    }
    y[k] = sum;
}
