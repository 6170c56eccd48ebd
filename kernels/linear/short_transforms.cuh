// Tangled from book/src/short-transforms.md: edit there, or here and run cargo tangle stitch.
// Short Fourier transforms in shared memory by up to three radices.
#pragma once
#include "device/real.cuh"
#include "linear/loops.cuh"

// Complex numbers by ones and twos
struct alignas(2 * sizeof(real)) Complex {
    real re, im;
};

/// Two of them side by side, so that one load fetches both.
struct alignas(16) Couple {
    Complex first, second;
};

// Sizes of transforms and their room
constexpr int REST = R2 * R3, LENGTH = R1 * REST, HALF = LENGTH / 2 + 1;
/// Complex numbers that fill all banks.
constexpr int BANKS = 128 / sizeof(Complex);

/// The next number from `least` that leaves the rest `residue` by `modulus`.
__host__ __device__ constexpr int up_to(int least, int residue, int modulus) {
    return least + ((residue - least) % modulus + modulus) % modulus;
}

constexpr int RUN = R3 == 1 ? 1 : R3 | 1;
constexpr int PITCH = R3 == 1 ? R2 | 1 : up_to(R2 * RUN, RUN, BANKS);
constexpr int WORK = up_to(R1 * PITCH, ROWS, BANKS);
constexpr int WHOLE = up_to(LENGTH, ROWS, BANKS);

extern __shared__ double2 memory[];

// Cosines that the compiler computes
/// cos x or x⁻¹ sin x for small x: terms up to x to the power `last`, which is even or odd.
__host__ __device__ constexpr double series(double x, int last) {
    double sum = 1.0;
    for (int k = last; k > 1; k -= 2) sum = 1.0 - sum * x * x / (k * (k - 1));
    return sum;
}

/// cos(2 pi k / n).
__host__ __device__ constexpr double cosine(int k, int n) {
    const double pi = 3.14159265358979323846;
    k = (k % n + n) % n;
    k = 2 * k > n ? n - k : k;
    if (4 * k > n) return -cosine(n - 2 * k, 2 * n);
    const double left = pi * (n - 4 * k) / (2.0 * n);
    return 8 * k <= n ? series(2.0 * pi * k / n, 20) : left * series(left, 21);
}

/// sin(2 pi k / n).
__host__ __device__ constexpr double sine(int k, int n) { return cosine(4 * k - n, 4 * n); }

// Arithmetic of complex numbers
__device__ __forceinline__ Complex plus(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }

__device__ __forceinline__ Complex minus(Complex a, Complex b) {
    return {a.re - b.re, a.im - b.im};
}

/// a b, or with the conjugate of a if SIGN < 0.
template <int SIGN> __device__ __forceinline__ Complex times(Complex a, Complex b) {
    const real im = SIGN < 0 ? -a.im : a.im;
    return {a.re * b.re - im * b.im, a.re * b.im + im * b.re};
}

// Turn by a constant root of unity
/// z times exp(SIGN 2 pi i K / N).
template <int SIGN, int K, int N> __device__ __forceinline__ Complex turn(Complex z) {
    constexpr int k = (SIGN * K % N + N) % N;
    if constexpr (k == 0) {
        return z;
    } else if constexpr (4 * k == N) {
        return {-z.im, z.re};
    } else if constexpr (2 * k == N) {
        return {-z.re, -z.im};
    } else if constexpr (4 * k == 3 * N) {
        return {z.im, -z.re};
    } else {
        constexpr real c = cosine(k, N), s = sine(k, N);
        return {c * z.re - s * z.im, c * z.im + s * z.re};
    }
}

// Small transforms in registers
/// What a length is split by first.
__host__ __device__ constexpr int factor(int n) {
    return n == 16 || n == 12 ? 4 : n % 2 == 0 ? 2 : n % 3 == 0 ? 3 : n % 5 == 0 ? 5 : n;
}

// Transform an odd prime number of values
template <int SIGN, int R> __device__ __forceinline__ void dft_of_prime(Complex (&v)[R]) {
    constexpr int PAIRS = R / 2;
    Complex sums[PAIRS], differences[PAIRS], result[R];
    result[0] = v[0];
    unroll<0, PAIRS>([&](auto j) {
        sums[j.value] = plus(v[j.value + 1], v[R - 1 - j.value]);
        differences[j.value] = minus(v[j.value + 1], v[R - 1 - j.value]);
        result[0] = plus(result[0], sums[j.value]);
    });
    unroll<0, PAIRS>([&](auto k) {
        Complex even = v[0], odd = {0, 0};
        // Sum cosines and sines of pairs
        unroll<0, PAIRS>([&](auto j) {
            constexpr int l = (decltype(j)::value + 1) * (decltype(k)::value + 1);
            constexpr real c = cosine(l, R), s = SIGN * sine(l, R);
            even.re += c * sums[j.value].re;
            even.im += c * sums[j.value].im;
            odd.re -= s * differences[j.value].im;
            odd.im += s * differences[j.value].re;
        });
        result[k.value + 1] = plus(even, odd);
        result[R - 1 - k.value] = minus(even, odd);
    });
    unroll<0, R>([&](auto k) { v[k.value] = result[k.value]; });
}

template <int SIGN, int R> __device__ __forceinline__ void dft(Complex (&v)[R]) {
    constexpr int A = factor(R), B = R / A;
    if constexpr (R == 2) {
        const Complex difference = minus(v[0], v[1]);
        v[0] = plus(v[0], v[1]);
        v[1] = difference;
    } else if constexpr (A == R && R > 1) {
        dft_of_prime<SIGN>(v);
    } else if constexpr (R > 1) {
        // Split a small transform in two
        Complex t[A][B];
        unroll<0, B>([&](auto b) {
            Complex column[A];
            unroll<0, A>([&](auto a) { column[a.value] = v[B * a.value + b.value]; });
            dft<SIGN>(column);
            unroll<0, A>([&](auto c) {
                constexpr int k = decltype(b)::value * decltype(c)::value;
                t[c.value][b.value] = turn<SIGN, k, R>(column[c.value]);
            });
        });
        unroll<0, A>([&](auto c) {
            dft<SIGN>(t[c.value]);
            unroll<0, B>([&](auto d) { v[c.value + A * d.value] = t[c.value][d.value]; });
        });
    }
}

// Transform in shared memory by radices
/// COUNT transforms by THREADS threads; load(f, a, b) is value a REST + b of the transform f,
/// store(f, k, z) takes
/// its result k. Neighbouring threads begin with the same b of different transforms if
/// TOGETHER, else reversed.
template <int SIGN, int COUNT, int THREADS, bool TOGETHER, class Load, class Store>
__device__ __forceinline__ void transform(
    Complex *work, const Complex *__restrict__ roots, Load load, Store store
) {
    // Step of the first radix
    for (int task = threadIdx.x; task < COUNT * REST; task += THREADS) {
        const int f = TOGETHER ? task % COUNT : task / REST;
        const int b = TOGETHER ? task / COUNT : task % REST;
        Complex v[R1];
        unroll<0, R1>([&](auto a) { v[a.value] = load(f, a, b); });
        dft<SIGN>(v);
        Complex *to = work + f * WORK + b / R3 * RUN + b % R3;
        unroll<0, R1>([&](auto c) {
            if constexpr (REST == 1) store(f, c.value, v[c.value]);
            else to[c.value * PITCH] = times<-SIGN>(roots[b * c.value], v[c.value]);
        });
    }
    if constexpr (REST > 1) {
        __syncthreads();
        // Step of the second radix
        for (int task = threadIdx.x; task < COUNT * R1 * R3; task += THREADS) {
            const int f = task / (R1 * R3), s = task % (R1 * R3);
            const int b = s % R3, c = s / R3;
            Complex *at = work + f * WORK + c * PITCH + b;
            Complex v[R2];
            unroll<0, R2>([&](auto a) { v[a.value] = at[a.value * RUN]; });
            dft<SIGN>(v);
            unroll<0, R2>([&](auto d) {
                if constexpr (R3 == 1) store(f, c + R1 * d.value, v[d.value]);
                else at[d.value * RUN] = times<-SIGN>(roots[R1 * b * d.value], v[d.value]);
            });
        }
    }
    if constexpr (R3 > 1) {
        __syncthreads();
        // Step of the third radix
        for (int task = threadIdx.x; task < COUNT * R1 * R2; task += THREADS) {
            const int f = task / (R1 * R2), s = task % (R1 * R2);
            const int c = s % R1, d = s / R1;
            const Complex *at = work + f * WORK + c * PITCH + d * RUN;
            Complex v[R3];
            unroll<0, R3>([&](auto b) { v[b.value] = at[b.value]; });
            dft<SIGN>(v);
            unroll<0, R3>([&](auto e) { store(f, c + R1 * (d + R2 * e.value), v[e.value]); });
        }
    }
}
