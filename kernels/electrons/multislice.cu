// Tangled from book/src/multislice-gpu.md: edit there, or here and run cargo tangle stitch.
// Waves through slices: rows through transmissions, columns through free space.
#include "linear/short_transforms.cuh"

// Frequencies that a device keeps
constexpr int KEPT = LENGTH / 2, HALF_KEPT = LENGTH / 4;

/// The place of frequency `k` among those that are kept; negative where it is not.
__device__ __forceinline__ int kept_place(int k) {
    return k < HALF_KEPT ? k : k >= LENGTH - HALF_KEPT ? k - KEPT : -1;
}

/// The index with its sign of the frequency at `place` of `kept`.
__device__ __forceinline__ int signed_index(int place, int half, int kept) {
    return place < half ? place : place - kept;
}

// Turn by the powers of a root
/// v[c] times root to the power c, or to its conjugate's if SIGN < 0.
template <int SIGN, int R>
__device__ __forceinline__ void turn_by_powers(Complex (&v)[R], Complex root) {
    Complex powers[R + 1];
    powers[1] = root;
    unroll<2, R>([&](auto c) {
        constexpr int k = decltype(c)::value;
        powers[k] = times<1>(powers[k / 2], powers[k - k / 2]);
    });
    unroll<1, R>([&](auto c) { v[c.value] = times<SIGN>(powers[c.value], v[c.value]); });
}

// Middle steps of three radices
template <int SIGN, int COUNT, int THREADS, class Between>
__device__ __forceinline__ void middle_steps(
    Complex *work, const Complex *__restrict__ roots, Between between
) {
    // Second radix on the way there
    for (int task = threadIdx.x; task < COUNT * R1 * R3; task += THREADS) {
        const int f = task / (R1 * R3), s = task % (R1 * R3);
        const int b = s % R3, c = s / R3;
        Complex *at = work + f * WORK + c * PITCH + b;
        Complex v[R2];
        unroll<0, R2>([&](auto a) { v[a.value] = at[a.value * RUN]; });
        dft<SIGN>(v);
        turn_by_powers<-SIGN>(v, roots[R1 * b]);
        unroll<0, R2>([&](auto d) { at[d.value * RUN] = v[d.value]; });
    }
    __syncthreads();
    for (int task = threadIdx.x; task < COUNT * R1 * R2; task += THREADS) {
        const int f = task / (R1 * R2), s = task % (R1 * R2);
        const int c = s % R1, d = s / R1;
        Complex *at = work + f * WORK + c * PITCH + d * RUN;
        Complex v[R3];
        unroll<0, R3>([&](auto b) { v[b.value] = at[b.value]; });
        dft<SIGN>(v);
        unroll<0, R3>([&](auto e) {
            v[e.value] = between(f, s + R1 * R2 * e.value, v[e.value]);
        });
        dft<-SIGN>(v);
        unroll<0, R3>([&](auto b) { at[b.value] = v[b.value]; });
    }
    __syncthreads();
    // Second radix on the way back
    for (int task = threadIdx.x; task < COUNT * R1 * R3; task += THREADS) {
        const int f = task / (R1 * R3), s = task % (R1 * R3);
        const int b = s % R3, c = s / R3;
        Complex *at = work + f * WORK + c * PITCH + b;
        Complex v[R2];
        unroll<0, R2>([&](auto d) { v[d.value] = at[d.value * RUN]; });
        turn_by_powers<SIGN>(v, roots[R1 * b]);
        dft<-SIGN>(v);
        unroll<0, R2>([&](auto a) { at[a.value * RUN] = v[a.value]; });
    }
}

// Go there and back
/// COUNT transforms with SIGN, `between` for each value of their results, and the transforms back, not divided by the
/// length, by THREADS threads; load(f, a, b) is value a REST + b of the transform f, between(f, k, z) takes its result k to
/// what is transformed back, store(f, a, b, z) takes the value a REST + b.
template <int SIGN, int COUNT, int THREADS, bool TOGETHER, class Load, class Between, class Store>
__device__ __forceinline__ void there_and_back(
    Complex *work, const Complex *__restrict__ roots, Load load, Between between, Store store
) {
    // First radix on the way there
    for (int task = threadIdx.x; task < COUNT * REST; task += THREADS) {
        const int f = TOGETHER ? task % COUNT : task / REST;
        const int b = TOGETHER ? task / COUNT : task % REST;
        Complex v[R1];
        unroll<0, R1>([&](auto a) { v[a.value] = load(f, a.value, b); });
        dft<SIGN>(v);
        turn_by_powers<-SIGN>(v, roots[b]);
        Complex *to = work + f * WORK + b / R3 * RUN + b % R3;
        unroll<0, R1>([&](auto c) { to[c.value * PITCH] = v[c.value]; });
    }
    __syncthreads();
    if constexpr (R3 > 1) {
        middle_steps<SIGN, COUNT, THREADS>(work, roots, between);
    } else {
        // Turn back after two radices
        for (int task = threadIdx.x; task < COUNT * R1; task += THREADS) {
            const int f = task / R1, c = task % R1;
            Complex *at = work + f * WORK + c * PITCH;
            Complex v[R2];
            unroll<0, R2>([&](auto b) { v[b.value] = at[b.value * RUN]; });
            dft<SIGN>(v);
            unroll<0, R2>([&](auto d) {
                v[d.value] = between(f, c + R1 * d.value, v[d.value]);
            });
            dft<-SIGN>(v);
            unroll<0, R2>([&](auto b) { at[b.value * RUN] = v[b.value]; });
        }
    }
    __syncthreads();
    // First radix on the way back
    for (int task = threadIdx.x; task < COUNT * REST; task += THREADS) {
        const int f = TOGETHER ? task % COUNT : task / REST;
        const int b = TOGETHER ? task / COUNT : task % REST;
        const Complex *from = work + f * WORK + b / R3 * RUN + b % R3;
        Complex v[R1];
        unroll<0, R1>([&](auto c) { v[c.value] = from[c.value * PITCH]; });
        turn_by_powers<SIGN>(v, roots[b]);
        dft<-SIGN>(v);
        unroll<0, R1>([&](auto a) { store(f, a.value, b, v[a.value]); });
    }
}

// Rows through the transmission
/// Rows of waves (w, ny, KEPT) back to x, times the transmission (ny, LENGTH), forth to k_x.
extern "C" __global__ __launch_bounds__(TEAM) void transmit(
    Complex *waves, const Complex *__restrict__ transmission, const Complex *__restrict__ roots,
    int ny
) {
    const int first = blockIdx.x * ROWS;
    Complex *wave = waves + (size_t)blockIdx.y * ny * KEPT;
    auto load = [&](int f, int a, int b) {
        const int place = kept_place(a * REST + b), y = first + f;
        return place >= 0 && y < ny ? wave[y * KEPT + place] : Complex{0, 0};
    };
    auto between = [&](int f, int x, Complex value) {
        const int y = min(first + f, ny - 1);
        return times<1>(transmission[y * LENGTH + x], value);
    };
    auto store = [&](int f, int a, int b, Complex value) {
        const int place = kept_place(a * REST + b), y = first + f;
        if (place >= 0 && y < ny) wave[y * KEPT + place] = value;
    };
    Complex *work = reinterpret_cast<Complex *>(memory);
    there_and_back<1, ROWS, TEAM, false>(work, roots, load, between, store);
}

// Columns through the propagator
/// Columns of waves (w, LENGTH, nx) forth to k_y, times the propagator, back to y.
extern "C" __global__ __launch_bounds__(TEAM) void propagate(
    Complex *waves, const Complex *__restrict__ along_x, const Complex *__restrict__ along_y,
    const Complex *__restrict__ roots, int nx
) {
    const int first = blockIdx.x * ROWS;
    Complex *wave = waves + (size_t)blockIdx.y * LENGTH * nx + first;
    auto load = [&](int f, int a, int b) {
        return first + f < nx ? wave[(size_t)(a * REST + b) * nx + f] : Complex{0, 0};
    };
    auto between = [&](int f, int k, Complex value) {
        return times<1>(along_y[k], times<1>(along_x[min(first + f, nx - 1)], value));
    };
    auto store = [&](int f, int a, int b, Complex value) {
        if (first + f < nx) wave[(size_t)(a * REST + b) * nx + f] = value;
    };
    Complex *work = reinterpret_cast<Complex *>(memory);
    there_and_back<-1, ROWS, TEAM, true>(work, roots, load, between, store);
}

// Begin with probes at places
/// Waves (w, LENGTH, nx) of probes with the spectrum (KEPT, nx) at places x, y \[cells\].
extern "C" __global__ __launch_bounds__(TEAM, 1) void begin_probes(
    Complex *waves, const Complex *__restrict__ spectrum, const double2 *__restrict__ places,
    const Complex *__restrict__ roots, int nx
) {
    const int first = blockIdx.x * ROWS;
    const double2 place = places[blockIdx.y];
    Complex *wave = waves + (size_t)blockIdx.y * LENGTH * nx + first;
    auto load = [&](int f, auto a, int b) {
        const int k = a.value * REST + b, j = kept_place(k), i = first + f;
        if (j < 0 || i >= nx) return Complex{0, 0};
        const double turns = signed_index(i, nx / 2, nx) * place.x + signed_index(j, HALF_KEPT, KEPT) * place.y;
        double sine, cosine;
        sincospi(-2 * (turns - floor(turns)), &sine, &cosine);
        return times<1>(Complex{(real)cosine, (real)sine}, spectrum[j * nx + i]);
    };
    auto store = [&](int f, int k, Complex value) {
        if (first + f < nx) wave[(size_t)k * nx + f] = value;
    };
    Complex *work = reinterpret_cast<Complex *>(memory);
    transform<1, ROWS, TEAM, true>(work, roots, load, store);
}

// Begin with plane waves
/// Waves (w, LENGTH, nx) that are plane, at places x, y among the frequencies that are kept.
extern "C" __global__ void begin_beams(
    Complex *waves, const int *__restrict__ beams, const Complex *__restrict__ roots, int nx
) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x, y = k / nx;
    if (y >= LENGTH) return;
    const int *beam = beams + 2 * blockIdx.y;
    const int frequency = beam[1] < HALF_KEPT ? beam[1] : beam[1] + LENGTH - KEPT;
    const Complex root = roots[(long long)frequency * y % LENGTH];
    waves[(size_t)blockIdx.y * LENGTH * nx + k] = k % nx == beam[0] ? Complex{root.re, -root.im} : Complex{0, 0};
}

// Look at the spectra of waves
/// Spectra (w, KEPT, nx) of waves (w, LENGTH, nx).
extern "C" __global__ __launch_bounds__(TEAM) void look(
    const Complex *__restrict__ waves, Complex *spectra, const Complex *__restrict__ roots, int nx
) {
    const int first = blockIdx.x * ROWS;
    const Complex *wave = waves + (size_t)blockIdx.y * LENGTH * nx + first;
    Complex *spectrum = spectra + (size_t)blockIdx.y * KEPT * nx + first;
    auto load = [&](int f, auto a, int b) {
        return first + f < nx ? wave[(size_t)(a.value * REST + b) * nx + f] : Complex{0, 0};
    };
    auto store = [&](int f, int k, Complex value) {
        const int place = kept_place(k);
        if (place < 0 || first + f >= nx) return;
        spectrum[(size_t)place * nx + f] = {value.re / LENGTH, value.im / LENGTH};
    };
    Complex *work = reinterpret_cast<Complex *>(memory);
    transform<-1, ROWS, TEAM, true>(work, roots, load, store);
}
