// Tangled from book/src/transforms-gpu.md: edit there, or here and run cargo tangle stitch.
// Products with block Toeplitz matrices by Fourier transforms in shared memory, in three passes.

#include "device/generation.cuh"
#include "linear/row_spectra.cuh"
#include "linear/waiting.cuh"

// First pass along the rows
/// Half spectra of the rows of all inputs, (HALF, FROM_PAIRS, 2, FROM_ROWS), twice as large as
/// they should be.
extern "C" __global__ __launch_bounds__(ROW_THREADS) void transform_rows(
    const real *x, const int2 *__restrict__ places, const Complex *__restrict__ roots,
    Complex *__restrict__ lines, int length
) {
    Complex *work = reinterpret_cast<Complex *>(memory), *whole = work + ROWS * WORK;
    const int row = blockIdx.x * ROWS, pair = blockIdx.y, own = blockIdx.z * length;
    places += (pair * FROM_ROWS + row) * FROM_POINTS;
    wait_for_earlier_work();
    // Gather two real rows as one
    auto load = [&](int f, auto a, int b) {
        constexpr int FIRST = decltype(a)::value * REST;
        Complex value = {0, 0};
        if constexpr (FIRST < FROM_POINTS) {
            const int n = FIRST + b;
            const int2 place = places[f * FROM_POINTS + min(n, FROM_POINTS - 1)];
            const Complex found = {x[own + max(place.x, 0)], x[own + max(place.y, 0)]};
            value.re = n < FROM_POINTS && place.x >= 0 ? found.re : 0;
            value.im = n < FROM_POINTS && place.y >= 0 ? found.im : 0;
        }
        return value;
    };
    auto store = [&](int f, int k, Complex value) { whole[f * WHOLE + k] = value; };
    transform<-1, ROWS, ROW_THREADS, false>(work, roots, load, store);
    __syncthreads();
    part_spectra(whole, of_vector(lines, LINES), pair, row);
}

// Second pass along the columns
/// The spectra of two outputs by two inputs at one wave number, as they are kept.
struct Tile {
    Couple above, below;
    int adjoint;
};

// Apply a tile to two inputs
/// sum + a b, or with the conjugate of a if sign is -1.
__device__ __forceinline__ Complex add_product(Complex sum, Complex a, Complex b, real sign) {
    const real im = sign * a.im;
    const real re = sum.re + a.re * b.re - im * b.im;
    return {re, sum.im + a.re * b.im + im * b.re};
}

/// Adds to two outputs what a tile makes of the inputs a and b.
__device__ __forceinline__ void apply_tile(
    Complex &first, Complex &second, const Tile &tile, Complex a, Complex b
) {
    const bool adjoint = tile.adjoint;
    const real sign = adjoint ? -1 : 1;
    first = add_product(first, tile.above.first, a, sign);
    first = add_product(first, adjoint ? tile.below.first : tile.above.second, b, sign);
    second = add_product(second, adjoint ? tile.above.second : tile.below.first, a, sign);
    second = add_product(second, tile.below.second, b, sign);
}

// Mix tiles and their mirror images
constexpr int PARTS = COLUMN_THREADS >= LENGTH ? COLUMN_THREADS / LENGTH : 1;
constexpr int UPPER = MIRRORED ? FROM_PAIRS * (FROM_PAIRS + 1) / 2 : 1;

// Tiles that are fetched early
constexpr int IN_DOUBLE = GENERATION >= 80, IN_SINGLE = FROM_GROUP > 1 ? 2 : 1;
constexpr int HELD = sizeof(real) == 8 ? IN_DOUBLE : IN_SINGLE, ROOM = HELD ? HELD : 1;

/// The column of the tile k on or above the diagonal, if these are counted column by column;
/// and its row.
__host__ __device__ constexpr int column_of(int k) {
    int column = 0;
    while ((column + 1) * (column + 2) / 2 <= k) column++;
    return column;
}

__host__ __device__ constexpr int row_of(int k) {
    return k - column_of(k) * (column_of(k) + 1) / 2;
}

// Fetch the tile k above the diagonal
template <int K>
__device__ __forceinline__ Tile
fetch_upper(const Couple *__restrict__ spectra, const int *__restrict__ tiles) {
    const int which = tiles[row_of(K) * FROM_PAIRS + column_of(K)];
    const Couple *at = spectra + (which >> 1) * (2 * LENGTH) + threadIdx.x % LENGTH;
    return {at[0], at[LENGTH], 0};
}

/// The first tiles of a part, if it is that of the thread.
template <int PART>
__device__ __forceinline__ void fetch_first(
    Tile (&held)[ROOM], const Couple *__restrict__ spectra, const int *__restrict__ tiles
) {
    if (threadIdx.x / LENGTH == PART) {
        unroll<0, HELD>([&](auto h) {
            constexpr int k = PART + decltype(h)::value * PARTS;
            held[h.value] = fetch_upper<k % UPPER>(spectra, tiles);
        });
    }
}

// Mix one part of the tiles
template <int PART>
__device__ __forceinline__ void mix_part(
    Complex (&sums)[2 * FROM_PAIRS], const Tile (&held)[ROOM], const Complex *inputs,
    const Couple *__restrict__ spectra, const int *__restrict__ tiles
) {
    unroll<0, (UPPER - PART + PARTS - 1) / PARTS>([&](auto count) {
        constexpr int number = decltype(count)::value, k = PART + number * PARTS;
        constexpr int p = row_of(k), q = column_of(k);
        Tile tile = held[number < HELD ? number : 0];
        if constexpr (number >= HELD) tile = fetch_upper<k>(spectra, tiles);
        // Apply a tile and its adjoint
        const Complex *from_p = inputs + 2 * p * LENGTH, *from_q = inputs + 2 * q * LENGTH;
        apply_tile(sums[2 * p], sums[2 * p + 1], tile, from_q[0], from_q[LENGTH]);
        if constexpr (p != q) {
            tile.adjoint = 1;
            apply_tile(sums[2 * q], sums[2 * q + 1], tile, from_p[0], from_p[LENGTH]);
        }
    });
}

/// Columns of all outputs, (HALF, TO_PAIRS, 2, TO_ROWS), from those of the inputs; of vectors for which `done`, if it is given, is 0 at
/// `every` times their number.
extern "C" __global__ __launch_bounds__(COLUMN_THREADS, 1) void mix_columns(
    const Complex *lines, const Couple *__restrict__ spectra, const int *__restrict__ tiles,
    const Complex *__restrict__ roots, Complex *__restrict__ columns, const double *done, int every
) {
    // Divide the shared memory among columns
    constexpr int MOST = 2 * (FROM_GROUP > TO_GROUP ? FROM_GROUP : TO_GROUP);
    constexpr bool AT_ONCE = FROM_GROUP >= FROM_PAIRS;
    constexpr int TASKS = TO_GROUP * LENGTH, ROUNDS = (TASKS + COLUMN_THREADS - 1) / COLUMN_THREADS;
    constexpr int UNROLLED = ROUNDS > 4 ? 1 : ROUNDS;
    Complex *work = reinterpret_cast<Complex *>(memory), *inputs = work + MOST * WORK;
    Complex *outputs = AT_ONCE ? work : inputs + MOST * WORK;
    const int kx = blockIdx.x, first_output = blockIdx.y * TO_GROUP;
    lines = of_vector(lines, LINES) + kx * (2 * FROM_PAIRS * FROM_ROWS);
    spectra += kx * (2 * TILES * LENGTH);
    for (int group = 0; group < FROM_PAIRS; group += FROM_GROUP) {
        // Transform and mix some of the inputs
        if (group) __syncthreads();
        // Fetch a tile of spectra
        auto fetch = [&](int task, int q) {
            task = min(task, TASKS - 1);
            const int output = min(first_output + task / LENGTH, TO_PAIRS - 1);
            const int input = AT_ONCE ? q : min(group + q, FROM_PAIRS - 1);
            const int which = tiles[output * FROM_PAIRS + input];
            const Couple *at = spectra + (which >> 1) * (2 * LENGTH) + task % LENGTH;
            return Tile{at[0], at[LENGTH], which & 1};
        };
        Tile held[ROOM];
        if (MIRRORED)
            unroll<0, PARTS>([&](auto part) { fetch_first<decltype(part)::value>(held, spectra, tiles); });
        else unroll<0, HELD>([&](auto q) { held[q.value] = fetch(threadIdx.x, q.value); });
        if (group == 0) {
            wait_for_earlier_work();
            if (done && done[blockIdx.z * every]) return;
        }
        // Load the column of an input
        auto load = [&](int f, auto a, int b) {
            constexpr int FIRST = decltype(a)::value * REST;
            Complex value = {0, 0};
            if constexpr (FIRST < FROM_POINTS) {
                const int n = FIRST + b, input = AT_ONCE ? f : min(2 * group + f, 2 * FROM_PAIRS - 1);
                const Complex found = lines[input * FROM_ROWS + min(n, FROM_POINTS - 1)];
                const bool there = n < FROM_POINTS && (AT_ONCE || group + f / 2 < FROM_PAIRS);
                value = there ? found : value;
            }
            return value;
        };
        auto store = [&](int f, int k, Complex value) { inputs[f * LENGTH + k] = value; };
        transform<-1, 2 * FROM_GROUP, COLUMN_THREADS, false>(work, roots, load, store);
        __syncthreads();
        if (MIRRORED) {
            // Mix mirrored tiles part by part
            const int ky = threadIdx.x % LENGTH, mine = threadIdx.x / LENGTH;
            Complex sums[2 * FROM_PAIRS] = {};
            unroll<0, PARTS>([&](auto part) {
                if (mine == part.value)
                    mix_part<decltype(part)::value>(sums, held, inputs + ky, spectra, tiles);
            });
            unroll<0, PARTS>([&](auto part) {
                if (part.value) __syncthreads();
                if (mine == part.value) {
                    unroll<0, 2 * FROM_PAIRS>([&](auto k) {
                        Complex *to = outputs + k.value * LENGTH + ky;
                        *to = part.value ? plus(*to, sums[k.value]) : sums[k.value];
                    });
                }
            });
        } else {
        #pragma unroll UNROLLED
            for (int round = 0; round < ROUNDS; round++) {
                // Mix inputs at one wave number
                const int task = round * COLUMN_THREADS + threadIdx.x, ky = task % LENGTH;
                Complex first = {0, 0}, second = {0, 0};
                unroll<0, FROM_GROUP>([&](auto q) {
                    const Complex *input = inputs + 2 * q.value * LENGTH + ky;
                    const bool here = q.value < HELD;
                    const Tile tile = here ? held[here ? q.value : 0] : fetch(task, q.value);
                    apply_tile(first, second, tile, input[0], input[LENGTH]);
                });
                if (round + 1 < ROUNDS)
                    unroll<0, HELD>([&](auto q) { held[q.value] = fetch(task + COLUMN_THREADS, q.value); });
                Complex *to = outputs + 2 * (task / LENGTH) * LENGTH + ky;
                if (task < TASKS) {
                    to[0] = AT_ONCE || group == 0 ? first : plus(first, to[0]);
                    to[LENGTH] = AT_ONCE || group == 0 ? second : plus(second, to[LENGTH]);
                }
            }
        }
    }
    __syncthreads();
    // Transform the mixed columns back
    columns = of_vector(columns, COLUMNS) + (kx * TO_PAIRS + first_output) * 2 * TO_ROWS;
    auto load = [&](int f, auto a, int b) { return outputs[f * LENGTH + a.value * REST + b]; };
    auto store = [&](int f, int n, Complex value) {
        if (n < TO_POINTS && first_output + f / 2 < TO_PAIRS) columns[f * TO_ROWS + n] = value;
    };
    transform<1, 2 * TO_GROUP, COLUMN_THREADS, false>(inputs, roots, load, store);
}

// Third pass back to vectors
template <bool DIAGONAL>
__device__ __forceinline__ void rows_back(
    const Complex *columns, const int2 *__restrict__ places, const Complex *__restrict__ roots,
    real *y, const real *__restrict__ noise, const real *x, int length
) {
    Complex *work = reinterpret_cast<Complex *>(memory), *added = work + ROWS * WORK;
    int2 *kept = reinterpret_cast<int2 *>(added + DIAGONAL * ROWS * TO_POINTS);
    const int row = blockIdx.x * ROWS, pair = blockIdx.y;
    places += (pair * TO_ROWS + row) * TO_POINTS;
    // Look up places and noise early
    if (DIAGONAL) wait_for_earlier_work();
    for (int task = threadIdx.x; task < ROWS * TO_POINTS; task += ROW_THREADS) {
        const int2 place = places[task];
        kept[task] = own_place(place, length);
        if (DIAGONAL) {
            const int first = max(place.x, 0), second = max(place.y, 0);
            const int own = blockIdx.z * length;
            added[task] = {noise[first] * x[own + first], noise[second] * x[own + second]};
        }
    }
    if (REST == 1) __syncthreads();
    if (!DIAGONAL) wait_for_earlier_work();
    columns = of_vector(columns, COLUMNS) + 2 * pair * TO_ROWS + row;
    auto load = join_spectra(columns);
    // Scatter two rows into the vector
    auto store = [&](int f, int n, Complex value) {
        if (n < TO_POINTS) {
            const int at = f * TO_POINTS + n;
            const int2 place = kept[at];
            if (place.x >= 0) y[place.x] = DIAGONAL ? value.re + added[at].re : value.re;
            if (place.y >= 0) y[place.y] = DIAGONAL ? value.im + added[at].im : value.im;
        }
    };
    transform<1, ROWS, ROW_THREADS, true>(work, roots, load, store);
}

// Entries of the third pass
extern "C" __global__ __launch_bounds__(ROW_THREADS) void restore_rows(
    const Complex *columns, const int2 *__restrict__ places, const Complex *__restrict__ roots,
    real *y, int length
) {
    rows_back<false>(columns, places, roots, y, nullptr, nullptr, length);
}

extern "C" __global__ __launch_bounds__(ROW_THREADS) void restore_rows_with_diagonal(
    const Complex *columns, const int2 *__restrict__ places, const Complex *__restrict__ roots,
    real *y, int length, const real *__restrict__ noise, const real *x
) {
    rows_back<true>(columns, places, roots, y, noise, x, length);
}
