// Tangled from book/src/toeplitz-gpu.md: edit there, or here and run cargo tangle stitch.
#ifndef REAL
#define REAL double
#endif
typedef REAL real;

constexpr int TALL = 8, WIDE = 4, SPLIT = 8;
constexpr int TAPS = FROM_POINTS + TO_POINTS - 1;
constexpr int SPANS = (FROM_POINTS + SPLIT - 1) / SPLIT, SPANNED = SPANS * SPLIT;
constexpr int DEEP = (FROM_POINTS + TALL - 1) / TALL * TALL;
constexpr int PACK = 16 / sizeof(real), PITCH = DEEP + PACK;
constexpr int HIGH = DEEP + TALL - 1, BROAD = SPANNED + WIDE - 1;
constexpr int THREADS = 32 * WARPS;

struct alignas(16) Packed {
    real values[PACK];
};

__device__ __forceinline__ int lattice_place(int lattice, int points, int row, int x) {
    return (((lattice >> 1) * points + row) * points + x) * 2 + (lattice & 1);
}

template <bool DIAGONAL>
__device__ __forceinline__ void convolve_tile(
    const real *__restrict__ x,
    const int *__restrict__ from_places,
    const real *__restrict__ taps,
    const int *__restrict__ terms,
    const int *__restrict__ to_places,
    const real *__restrict__ noise,
    real *__restrict__ y
) {
    extern __shared__ double2 memory[];
    real *inputs = reinterpret_cast<real *>(memory);
    real *windows = inputs + FROM_LATTICES * SPANNED * PITCH;
    real *partial = windows + FROM_LATTICES * HIGH * BROAD;
    const int left = blockIdx.x * WIDE, top = blockIdx.y * TALL, output = blockIdx.z;
    for (int task = threadIdx.x; task < FROM_LATTICES * DEEP * SPANNED; task += THREADS) {
        const int n = task % SPANNED, row = task / SPANNED % DEEP;
        const int lattice = task / (SPANNED * DEEP);
        real value = 0;
        if (n < FROM_POINTS && row < FROM_POINTS) {
            const int place = from_places[lattice_place(lattice, FROM_POINTS, row, n)];
            value = place < 0 ? 0 : x[place];
        }
        inputs[(lattice * SPANNED + n) * PITCH + row] = value;
    }
    for (int task = threadIdx.x; task < FROM_LATTICES * HIGH * BROAD; task += THREADS) {
        const int u = task % BROAD, w = task / BROAD % HIGH, lattice = task / (BROAD * HIGH);
        const int term = TRANSPOSED ? terms[lattice * TO_LATTICES + output]
                                    : terms[output * FROM_LATTICES + lattice];
        const int j = top + TALL - 1 - w, i = left + WIDE - 1 - u;
        const bool turned = (term & 1) != TRANSPOSED;
        const int at_j = turned ? TO_POINTS - 1 - j : j + FROM_POINTS - 1;
        const int at_i = turned ? TO_POINTS - 1 - i : i + FROM_POINTS - 1;
        const bool there = at_j >= 0 && at_j < TAPS && at_i >= 0 && at_i < TAPS;
        windows[task] = there ? taps[((term >> 1) * TAPS + at_j) * TAPS + at_i] : 0;
    }
    __syncthreads();
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    real sums[TALL] = {};
    for (int item = warp; item < FROM_LATTICES * SPANS; item += WARPS) {
        const int lattice = item / SPANS, n = item % SPANS * SPLIT + lane / WIDE;
        const real *window = windows + lattice * HIGH * BROAD + n + WIDE - 1 - lane % WIDE;
        const real *input = inputs + (lattice * SPANNED + n) * PITCH;
        real held[2 * TALL - 1];
#pragma unroll
        for (int k = 0; k < TALL - 1; k++) {
            held[k] = window[k * BROAD];
        }
        for (int row = 0; row < DEEP; row += TALL) {
#pragma unroll
            for (int k = 0; k < TALL; k++) {
                held[TALL - 1 + k] = window[(row + TALL - 1 + k) * BROAD];
            }
            real values[TALL];
#pragma unroll
            for (int k = 0; k < TALL; k += PACK) {
                const Packed packed = *reinterpret_cast<const Packed *>(input + row + k);
#pragma unroll
                for (int l = 0; l < PACK; l++) {
                    values[k + l] = packed.values[l];
                }
            }
#pragma unroll
            for (int k = 0; k < TALL; k++) {
#pragma unroll
                for (int r = 0; r < TALL; r++) {
                    sums[r] += held[k - r + TALL - 1] * values[k];
                }
            }
#pragma unroll
            for (int k = 0; k < TALL - 1; k++) {
                held[k] = held[k + TALL];
            }
        }
    }
#pragma unroll
    for (int r = 0; r < TALL; r++) {
#pragma unroll
        for (int across = WIDE; across < 32; across *= 2) {
            sums[r] += __shfl_xor_sync(0xffffffffu, sums[r], across);
        }
        if (lane < WIDE) {
            partial[(warp * TALL + r) * WIDE + lane] = sums[r];
        }
    }
    __syncthreads();
    const int row = top + threadIdx.x / WIDE, n = left + threadIdx.x % WIDE;
    if (threadIdx.x < TALL * WIDE && row < TO_POINTS && n < TO_POINTS) {
        const int place = to_places[lattice_place(output, TO_POINTS, row, n)];
        if (place >= 0) {
            real sum = DIAGONAL ? noise[place] * x[place] : 0;
            for (int k = 0; k < WARPS; k++) {
                sum += partial[k * TALL * WIDE + threadIdx.x];
            }
            y[place] = sum;
        }
    }
}

extern "C" __global__ __launch_bounds__(THREADS) void convolve(
    const real *x,
    const int *from_places,
    const real *taps,
    const int *terms,
    const int *to_places,
    real *y
) {
    convolve_tile<false>(x, from_places, taps, terms, to_places, nullptr, y);
}

extern "C" __global__ __launch_bounds__(THREADS) void convolve_with_diagonal(
    const real *x,
    const int *from_places,
    const real *taps,
    const int *terms,
    const int *to_places,
    real *y,
    const real *noise
) {
    convolve_tile<true>(x, from_places, taps, terms, to_places, noise, y);
}
