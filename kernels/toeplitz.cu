// Tangled from book/src/toeplitz-gpu.md: edit there, or here and run cargo tangle stitch.
#ifndef REAL
#define REAL double
#endif
typedef REAL real;

// a complex number
/// A complex number.
struct alignas(2 * sizeof(real)) Complex {
    real re, im;
};

/// Two of them side by side, for wide loads.
struct alignas(16) Couple {
    Complex first, second;
};

// --- names of sizes
constexpr int REST = R2 * R3;
constexpr int LENGTH = R1 * REST;
constexpr int HALF = LENGTH / 2 + 1;
constexpr int BANKS = 128 / sizeof(Complex);

__host__ __device__ constexpr int up_to(int least, int residue, int modulus) {
    return least + ((residue - least) % modulus + modulus) % modulus;
}

constexpr int RUN = R3 == 1 ? 1 : R3 | 1;
constexpr int PITCH = R3 == 1 ? R2 | 1 : up_to(R2 * RUN, RUN, BANKS);
constexpr int WORK = up_to(R1 * PITCH, ROWS, BANKS);
constexpr int WHOLE = up_to(LENGTH, ROWS, BANKS);
constexpr int FROM_ROWS = up_to(FROM_POINTS, 0, ROWS);
constexpr int TO_ROWS = up_to(TO_POINTS, 0, ROWS);

// --- compile-time loops
template <int N> struct Int {
    static constexpr int value = N;
};

template <int FROM, int TO, class Step>
__device__ __forceinline__ void unroll(Step step) {
    if constexpr (FROM < TO) {
        step(Int<FROM>());
        unroll<FROM + 1, TO>(step);
    }
}

// --- cosines at compile time
constexpr double PI = 3.14159265358979323846;

__host__ __device__ constexpr double cosine_of(double x) {
    double sum = 1.0;
    for (int k = 20; k > 0; k -= 2) {
        sum = 1.0 - sum * x * x / (k * (k - 1));
    }
    return sum;
}

__host__ __device__ constexpr double sine_of(double x) {
    double sum = 1.0;
    for (int k = 21; k > 1; k -= 2) {
        sum = 1.0 - sum * x * x / (k * (k - 1));
    }
    return x * sum;
}

__host__ __device__ constexpr double cosine(int k, int n) {
    k = (k % n + n) % n;
    k = 2 * k > n ? n - k : k;
    if (4 * k > n) {
        return -cosine(n - 2 * k, 2 * n);
    }
    return 8 * k <= n ? cosine_of(2.0 * PI * k / n) : sine_of(PI * (n - 4 * k) / (2.0 * n));
}

__host__ __device__ constexpr double sine(int k, int n) {
    return cosine(4 * k - n, 4 * n);
}

// --- complex arithmetic
__device__ __forceinline__ Complex plus(Complex a, Complex b) {
    return {a.re + b.re, a.im + b.im};
}

__device__ __forceinline__ Complex minus(Complex a, Complex b) {
    return {a.re - b.re, a.im - b.im};
}

/// a b, or a times the conjugate of b.
template <int SIGN> __device__ __forceinline__ Complex times(Complex a, Complex b) {
    const real im = SIGN < 0 ? -b.im : b.im;
    return {a.re * b.re - a.im * im, a.re * im + a.im * b.re};
}

/// sum + a b, or with the conjugate of a.
template <int SIGN>
__device__ __forceinline__ Complex add_product(Complex sum, Complex a, Complex b) {
    const real im = SIGN < 0 ? -a.im : a.im;
    return {
        sum.re + a.re * b.re - im * b.im,
        sum.im + a.re * b.im + im * b.re,
    };
}

/// z times exp(± 2 pi i K / N).
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

// --- small transforms
__host__ __device__ constexpr int factor(int n) {
    return n == 16 || n == 12 || n == 20 ? 4 : n % 2 == 0 ? 2 : n % 3 == 0 ? 3 : n % 5 == 0 ? 5 : n;
}

template <int SIGN, int R> __device__ __forceinline__ void dft(Complex (&v)[R]);

template <int SIGN, int R> __device__ __forceinline__ void dft_of_odd(Complex (&v)[R]) {
    Complex sums[R / 2], differences[R / 2], result[R];
    result[0] = v[0];
    unroll<1, R / 2 + 1>([&](auto j) {
        sums[j.value - 1] = plus(v[j.value], v[R - j.value]);
        differences[j.value - 1] = minus(v[j.value], v[R - j.value]);
        result[0] = plus(result[0], sums[j.value - 1]);
    });
    unroll<1, R / 2 + 1>([&](auto k) {
        Complex even = v[0], odd = {0, 0};
        unroll<1, R / 2 + 1>([&](auto j) {
            constexpr int l = decltype(j)::value * decltype(k)::value;
            constexpr real c = cosine(l, R), s = SIGN * sine(l, R);
            even.re += c * sums[j.value - 1].re;
            even.im += c * sums[j.value - 1].im;
            odd.re -= s * differences[j.value - 1].im;
            odd.im += s * differences[j.value - 1].re;
        });
        result[k.value] = plus(even, odd);
        result[R - k.value] = minus(even, odd);
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
        dft_of_odd<SIGN>(v);
    } else if constexpr (R > 1) {
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

// --- transforms in shared memory
template <int SIGN, int COUNT, int THREADS, bool TOGETHER, class Load, class Store>
__device__ __forceinline__ void
transform(Complex *work, const Complex *__restrict__ roots, Load load, Store store) {
    for (int task = threadIdx.x; task < COUNT * REST; task += THREADS) {
        const int f = TOGETHER ? task % COUNT : task / REST;
        const int b = TOGETHER ? task / COUNT : task % REST;
        Complex v[R1];
        unroll<0, R1>([&](auto a) { v[a.value] = load(f, a, b); });
        dft<SIGN>(v);
        Complex *to = work + f * WORK + b / R3 * RUN + b % R3;
        unroll<0, R1>([&](auto c) {
            if constexpr (REST == 1) {
                store(f, c.value, v[c.value]);
            } else {
                to[c.value * PITCH] = times<-SIGN>(v[c.value], roots[b * c.value]);
            }
        });
    }
    if constexpr (REST > 1) {
        __syncthreads();
        for (int task = threadIdx.x; task < COUNT * R1 * R3; task += THREADS) {
            const int f = task / (R1 * R3), s = task % (R1 * R3);
            const int b = s % R3, c = s / R3;
            Complex *at = work + f * WORK + c * PITCH + b;
            Complex v[R2];
            unroll<0, R2>([&](auto a) { v[a.value] = at[a.value * RUN]; });
            dft<SIGN>(v);
            unroll<0, R2>([&](auto d) {
                if constexpr (R3 == 1) {
                    store(f, c + R1 * d.value, v[d.value]);
                } else {
                    at[d.value * RUN] = times<-SIGN>(v[d.value], roots[R1 * b * d.value]);
                }
            });
        }
    }
    if constexpr (R3 > 1) {
        __syncthreads();
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

extern __shared__ double2 memory[];

// --- rows forward
extern "C" __global__ __launch_bounds__(ROW_THREADS) void transform_rows(
    const real *__restrict__ x,
    const int2 *__restrict__ places,
    const Complex *__restrict__ roots,
    Complex *__restrict__ lines
) {
    Complex *work = reinterpret_cast<Complex *>(memory), *whole = work + ROWS * WORK;
    const int row = blockIdx.x * ROWS, pair = blockIdx.y;
    places += (pair * FROM_ROWS + row) * FROM_POINTS;
    auto load = [&](int f, auto a, int b) {
        const int n = a.value * REST + b;
        Complex value = {0, 0};
        if (n < FROM_POINTS) {
            const int2 place = places[f * FROM_POINTS + n];
            value.re = place.x < 0 ? 0 : x[place.x];
            value.im = place.y < 0 ? 0 : x[place.y];
        }
        return value;
    };
    auto store = [&](int f, int k, Complex value) { whole[f * WHOLE + k] = value; };
    transform<-1, ROWS, ROW_THREADS, false>(work, roots, load, store);
    __syncthreads();
    for (int task = threadIdx.x; task < HALF * ROWS; task += ROW_THREADS) {
        const int f = task % ROWS, k = task / ROWS;
        const Complex a = whole[f * WHOLE + k], b = whole[f * WHOLE + (k ? LENGTH - k : 0)];
        Complex *to = lines + (k * FROM_PAIRS + pair) * 2 * FROM_ROWS + row + f;
        to[0] = {a.re + b.re, a.im - b.im};
        to[FROM_ROWS] = {a.im + b.im, b.re - a.re};
    }
}

// --- columns
/// The spectra of two outputs and two inputs at one wave number, as they are kept.
struct Tile {
    Couple above, below;
    int adjoint;
};

/// Adds what a tile makes of the inputs a and b.
__device__ __forceinline__ void
apply_tile(Complex &first, Complex &second, const Tile &tile, Complex a, Complex b) {
    if (tile.adjoint) {
        first = add_product<-1>(first, tile.above.first, a);
        first = add_product<-1>(first, tile.below.first, b);
        second = add_product<-1>(second, tile.above.second, a);
        second = add_product<-1>(second, tile.below.second, b);
    } else {
        first = add_product<1>(first, tile.above.first, a);
        first = add_product<1>(first, tile.above.second, b);
        second = add_product<1>(second, tile.below.first, a);
        second = add_product<1>(second, tile.below.second, b);
    }
}

extern "C" __global__ __launch_bounds__(COLUMN_THREADS) void mix_columns(
    const Complex *__restrict__ lines,
    const Couple *__restrict__ spectra,
    const int *__restrict__ tiles,
    const Complex *__restrict__ roots,
    Complex *__restrict__ columns
) {
    constexpr int MOST = 2 * (FROM_GROUP > TO_GROUP ? FROM_GROUP : TO_GROUP);
    constexpr bool WHOLE_SUM = FROM_GROUP >= FROM_PAIRS;
    constexpr int HELD = FROM_GROUP > 1 && sizeof(real) == 4 ? 2 : 1;
    Complex *work = reinterpret_cast<Complex *>(memory), *inputs = work + MOST * WORK;
    Complex *outputs = WHOLE_SUM ? work : inputs + MOST * WORK;
    const int kx = blockIdx.x, first_output = blockIdx.y * TO_GROUP;
    lines += kx * (2 * FROM_PAIRS * FROM_ROWS);
    spectra += kx * (2 * TILES * LENGTH);
    for (int group = 0; group < FROM_PAIRS; group += FROM_GROUP) {
        if (group) {
            __syncthreads();
        }
        auto fetch = [&](int task, int q) {
            const int output = first_output + task / LENGTH, input = group + q;
            Tile tile = {};
            const bool there = (TO_GROUP == 1 || output < TO_PAIRS) && task < TO_GROUP * LENGTH;
            if (there && (WHOLE_SUM || input < FROM_PAIRS)) {
                const int which = tiles[output * FROM_PAIRS + input];
                const Couple *at = spectra + (which >> 1) * (2 * LENGTH) + task % LENGTH;
                tile = {at[0], at[LENGTH], which & 1};
            }
            return tile;
        };
        Tile held[HELD];
        unroll<0, HELD>([&](auto q) { held[q.value] = fetch(threadIdx.x, q.value); });
        auto load = [&](int f, auto a, int b) {
            const int n = a.value * REST + b;
            const bool there = n < FROM_POINTS && (WHOLE_SUM || 2 * group + f < 2 * FROM_PAIRS);
            return there ? lines[(2 * group + f) * FROM_ROWS + n] : Complex{0, 0};
        };
        auto store = [&](int f, int k, Complex value) { inputs[f * LENGTH + k] = value; };
        transform<-1, 2 * FROM_GROUP, COLUMN_THREADS, false>(work, roots, load, store);
        __syncthreads();
        for (int task = threadIdx.x; task < TO_GROUP * LENGTH; task += COLUMN_THREADS) {
            const int ky = task % LENGTH;
            Complex first = {0, 0}, second = {0, 0};
            unroll<0, FROM_GROUP>([&](auto q) {
                const Complex *input = inputs + 2 * q.value * LENGTH + ky;
                const bool here = q.value < HELD;
                const Tile tile = here ? held[here ? q.value : 0] : fetch(task, q.value);
                apply_tile(first, second, tile, input[0], input[LENGTH]);
            });
            unroll<0, HELD>([&](auto q) {
                held[q.value] = fetch(task + COLUMN_THREADS, q.value);
            });
            Complex *to = outputs + 2 * (task / LENGTH) * LENGTH + ky;
            if (!WHOLE_SUM && group) {
                first = plus(first, to[0]);
                second = plus(second, to[LENGTH]);
            }
            to[0] = first;
            to[LENGTH] = second;
        }
    }
    __syncthreads();
    columns += (kx * TO_PAIRS + first_output) * 2 * TO_ROWS;
    auto load = [&](int f, auto a, int b) { return outputs[f * LENGTH + a.value * REST + b]; };
    auto store = [&](int f, int n, Complex value) {
        if (n < TO_POINTS && 2 * first_output + f < 2 * TO_PAIRS) {
            columns[f * TO_ROWS + n] = value;
        }
    };
    transform<1, 2 * TO_GROUP, COLUMN_THREADS, false>(inputs, roots, load, store);
}

// --- rows back
template <bool DIAGONAL>
__device__ __forceinline__ void rows_back(
    const Complex *__restrict__ columns,
    const int2 *__restrict__ places,
    const Complex *__restrict__ roots,
    real *__restrict__ y,
    const real *__restrict__ noise,
    const real *__restrict__ x
) {
    Complex *work = reinterpret_cast<Complex *>(memory), *added = work + ROWS * WORK;
    int2 *kept = reinterpret_cast<int2 *>(added + DIAGONAL * ROWS * TO_POINTS);
    const int row = blockIdx.x * ROWS, pair = blockIdx.y;
    places += (pair * TO_ROWS + row) * TO_POINTS;
    for (int task = threadIdx.x; task < ROWS * TO_POINTS; task += ROW_THREADS) {
        const int2 place = places[task];
        kept[task] = place;
        if (DIAGONAL) {
            added[task].re = place.x < 0 ? 0 : noise[place.x] * x[place.x];
            added[task].im = place.y < 0 ? 0 : noise[place.y] * x[place.y];
        }
    }
    columns += 2 * pair * TO_ROWS + row;
    auto load = [&](int f, auto a, int b) {
        const int k = a.value * REST + b;
        const int q = k < HALF ? k : LENGTH - k;
        const Complex *at = columns + q * (2 * TO_PAIRS * TO_ROWS) + f;
        const Complex first = at[0], second = at[TO_ROWS];
        const real sign = k < HALF ? 1 : -1;
        return Complex{first.re - sign * second.im, sign * first.im + second.re};
    };
    auto store = [&](int f, int n, Complex value) {
        if (n < TO_POINTS) {
            const int at = f * TO_POINTS + n;
            const int2 place = kept[at];
            if (place.x >= 0) {
                y[place.x] = DIAGONAL ? value.re + added[at].re : value.re;
            }
            if (place.y >= 0) {
                y[place.y] = DIAGONAL ? value.im + added[at].im : value.im;
            }
        }
    };
    if (REST == 1) {
        __syncthreads();
    }
    transform<1, ROWS, ROW_THREADS, true>(work, roots, load, store);
}

extern "C" __global__ __launch_bounds__(ROW_THREADS) void
restore_rows(const Complex *columns, const int2 *places, const Complex *roots, real *y) {
    rows_back<false>(columns, places, roots, y, nullptr, nullptr);
}

extern "C" __global__ __launch_bounds__(ROW_THREADS) void restore_rows_with_diagonal(
    const Complex *columns,
    const int2 *places,
    const Complex *roots,
    real *y,
    const real *noise,
    const real *x
) {
    rows_back<true>(columns, places, roots, y, noise, x);
}
