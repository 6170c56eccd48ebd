// Tangled from book/src/plain-sum-gpu.md: edit there, or here and run cargo tangle stitch.
// Products with block Toeplitz matrices as plain sums, for small lattices, in one pass.

#include "device/real.cuh"
#include "linear/loops.cuh"
#include "linear/waiting.cuh"

// Sizes of tiles and windows
static_assert(WIDE * SPLIT == 32, "a warp has a thread for each column of a tile and of inputs");
constexpr int TAPS = FROM_POINTS + TO_POINTS - 1;
constexpr int SPANS = (FROM_POINTS + SPLIT - 1) / SPLIT, SPANNED = SPANS * SPLIT;
constexpr int DEEP = (FROM_POINTS + TALL - 1) / TALL * TALL;
/// Numbers of a wide load; a column begins at an odd multiple of it, which spreads columns over
/// the banks.
constexpr int PACK = 16 / sizeof(real), PITCH = DEEP + PACK;
constexpr int HIGH = DEEP + TALL - 1, BROAD = SPANNED + WIDE - 1;
/// Loads that a thread has on their way at a time.
constexpr int THREADS = 32 * WARPS, BATCH = 8;

struct alignas(16) Packed {
    real values[PACK];
};

__device__ __forceinline__ int place_of(int lattice, int points, int row, int x) {
    return (((lattice >> 1) * points + row) * points + x) * 2 + (lattice & 1);
}

extern __shared__ double2 memory[];

// Sum one tile of an output
template <bool DIAGONAL>
__device__ __forceinline__ void convolve_tile(
    const real *x, const int *__restrict__ from_places, const real *__restrict__ taps,
    const int *__restrict__ terms, const int *__restrict__ to_places,
    const real *__restrict__ noise, real *y
) {
    // Divide the shared memory of a tile
    real *inputs = reinterpret_cast<real *>(memory);
    real *windows = inputs + FROM_LATTICES * SPANNED * PITCH;
    real *partial = windows + FROM_LATTICES * HIGH * BROAD;
    const int left = blockIdx.x * WIDE, top = blockIdx.y * TALL, output = blockIdx.z;
    // Cut out the window of taps
    constexpr int WINDOWS = FROM_LATTICES * HIGH * BROAD;
    for (int first = threadIdx.x; first < WINDOWS; first += BATCH * THREADS) {
        real value[BATCH];
    #pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const int task = min(first + k * THREADS, WINDOWS - 1);
            // Find one tap of a window
            const int u = task % BROAD, w = task / BROAD % HIGH, lattice = task / (BROAD * HIGH);
            const int term =
                TRANSPOSED ? terms[lattice * TO_LATTICES + output] : terms[output * FROM_LATTICES + lattice];
            const int j = top + TALL - 1 - w, i = left + WIDE - 1 - u;
            const bool turned = (term & 1) != TRANSPOSED;
            const int at_j = turned ? TO_POINTS - 1 - j : j + FROM_POINTS - 1;
            const int at_i = turned ? TO_POINTS - 1 - i : i + FROM_POINTS - 1;
            const bool there = at_j >= 0 && at_j < TAPS && at_i >= 0 && at_i < TAPS;
            const int line = (term >> 1) * TAPS + max(0, min(at_j, TAPS - 1));
            const real tap = taps[line * TAPS + max(0, min(at_i, TAPS - 1))];
            value[k] = there ? tap : 0;
        }
    #pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (first + k * THREADS < WINDOWS) windows[first + k * THREADS] = value[k];
    }
    wait_for_earlier_work();
    // Gather all inputs by columns
    constexpr int INPUTS = FROM_LATTICES * DEEP * SPANNED;
    for (int first = threadIdx.x; first < INPUTS; first += BATCH * THREADS) {
        int place[BATCH], to[BATCH];
        real value[BATCH];
        repeat<0, BATCH>([&](auto k) {
            const int task = min(first + k.value * THREADS, INPUTS - 1);
            const int n = task % SPANNED, line = task / SPANNED, row = line % DEEP;
            const int lattice = line / DEEP, column = min(n, FROM_POINTS - 1);
            const int found = place_of(lattice, FROM_POINTS, min(row, FROM_POINTS - 1), column);
            to[k.value] = (lattice * SPANNED + n) * PITCH + row;
            place[k.value] = from_places[found];
            place[k.value] = n < FROM_POINTS && row < FROM_POINTS ? place[k.value] : -1;
        });
        repeat<0, BATCH>([&](auto k) { value[k.value] = x[max(place[k.value], 0)]; });
        repeat<0, BATCH>([&](auto k) {
            if (first + k.value * THREADS < INPUTS)
                inputs[to[k.value]] = place[k.value] < 0 ? 0 : value[k.value];
        });
    }
    __syncthreads();
    // Sum down the columns of inputs
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    real sums[TALL] = {};
    for (int item = warp; item < FROM_LATTICES * SPANS; item += WARPS) {
        const int lattice = item / SPANS, n = item % SPANS * SPLIT + lane / WIDE;
        const real *window = windows + lattice * HIGH * BROAD + n + WIDE - 1 - lane % WIDE;
        const real *input = inputs + (lattice * SPANNED + n) * PITCH;
        real held[2 * TALL - 1];
    #pragma unroll
        for (int k = 0; k < TALL - 1; k++) held[k] = window[k * BROAD];
        for (int row = 0; row < DEEP; row += TALL) {
            // Load eight inputs and taps
            #pragma unroll
            for (int k = 0; k < TALL; k++) held[TALL - 1 + k] = window[(row + TALL - 1 + k) * BROAD];
            real values[TALL];
            #pragma unroll
            for (int k = 0; k < TALL; k += PACK) {
                const Packed packed = *reinterpret_cast<const Packed *>(input + row + k);
            #pragma unroll
                for (int l = 0; l < PACK; l++) values[k + l] = packed.values[l];
            }
            // Make products of what is held
            #pragma unroll
            for (int k = 0; k < TALL; k++) {
            #pragma unroll
                for (int r = 0; r < TALL; r++) sums[r] += held[k - r + TALL - 1] * values[k];
            }
            #pragma unroll
            for (int k = 0; k < TALL - 1; k++) held[k] = held[k + TALL];
        }
    }
    // Add up the sums of threads
    #pragma unroll
    for (int r = 0; r < TALL; r++) {
    #pragma unroll
        for (int across = WIDE; across < 32; across *= 2)
            sums[r] += __shfl_xor_sync(0xffffffffu, sums[r], across);
        if (lane < WIDE) partial[(warp * TALL + r) * WIDE + lane] = sums[r];
    }
    __syncthreads();
    // Write the tile of an output
    const int row = top + threadIdx.x / WIDE, n = left + threadIdx.x % WIDE;
    if (threadIdx.x < TALL * WIDE && row < TO_POINTS && n < TO_POINTS) {
        const int place = to_places[place_of(output, TO_POINTS, row, n)];
        if (place >= 0) {
            real sum = DIAGONAL ? noise[place] * x[place] : 0;
            for (int k = 0; k < WARPS; k++) sum += partial[k * TALL * WIDE + threadIdx.x];
            y[place] = sum;
        }
    }
}

// Entries of the plain sum
extern "C" __global__ __launch_bounds__(THREADS) void convolve(
    const real *x, const int *__restrict__ from_places, const real *__restrict__ taps,
    const int *__restrict__ terms, const int *__restrict__ to_places, real *y
) {
    convolve_tile<false>(x, from_places, taps, terms, to_places, nullptr, y);
}

extern "C" __global__ __launch_bounds__(THREADS) void convolve_with_diagonal(
    const real *x, const int *__restrict__ from_places, const real *__restrict__ taps,
    const int *__restrict__ terms, const int *__restrict__ to_places, real *y,
    const real *__restrict__ noise
) {
    convolve_tile<true>(x, from_places, taps, terms, to_places, noise, y);
}
