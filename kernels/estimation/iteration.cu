// Tangled from book/src/between-transforms.md: edit there, or here and run cargo tangle stitch.
// Conjugate gradients between transforms; a block has ROW_THREADS threads and ROWS rows of
// a pair of lattices.
#include "linear/row_spectra.cuh"
#include "linear/solver.cuh"

// Rows of a block in shared memory
constexpr int NUMBERS = ROWS * FROM_POINTS;

/// What a block has in shared memory, and where its rows are.
struct Rows {
    Complex *work, *whole, *given;
    int2 *kept;
    int row, pair, blocks;
};

__device__ __forceinline__ Rows rows_of_block() {
    Complex *work = reinterpret_cast<Complex *>(memory), *whole = work + ROWS * WORK;
    Complex *given = whole + ROWS * WHOLE;
    int2 *kept = reinterpret_cast<int2 *>(given + NUMBERS);
    const int row = blockIdx.x * ROWS, pair = blockIdx.y, blocks = gridDim.x * gridDim.y;
    return {work, whole, given, kept, row, pair, blocks};
}

// Places of a block's numbers
/// The places of the block's numbers, of two lattices side by side; -1 where a point is masked.
__device__ __forceinline__ const int2 *places_of_block(const int2 *places, Rows rows) {
    return places + (rows.pair * FROM_ROWS + rows.row) * FROM_POINTS;
}

__device__ __forceinline__ Complex fetch_pair(const real *values, int2 place) {
    return {values[max(place.x, 0)], values[max(place.y, 0)]};
}

// Leave the lines of given rows
/// Transforms the given rows, and leaves them for the columns.
__device__ __forceinline__ void leave_lines(
    Rows rows, const Complex *__restrict__ roots, Complex *__restrict__ lines
) {
    const int row = rows.row, pair = rows.pair;
    Complex *whole = rows.whole;
    auto load = [&](int f, auto a, int b) {
        const int n = decltype(a)::value * REST + b;
        return n < FROM_POINTS ? rows.given[f * FROM_POINTS + n] : Complex{0, 0};
    };
    auto store = [&](int f, int k, Complex value) { whole[f * WHOLE + k] = value; };
    __syncthreads();
    transform<-1, ROWS, ROW_THREADS, false>(rows.work, roots, load, store);
    __syncthreads();
    part_spectra(whole, lines, pair, row);
}

// Restore rows and transform them again
/// z from the columns of P, with the parts of r·z; then rows of z for A.
extern "C" __global__ __launch_bounds__(ROW_THREADS, 2) void exchange_rows(
    const State *last, State *now, const Complex *columns, const int2 *places, const Complex *roots,
    const real *r, real *z, double *parts, Complex *lines, int n
) {
    if (is_first()) now[blockIdx.z] = last[blockIdx.z];
    if (last[blockIdx.z].done) return;
    const Rows rows = rows_of_block();
    places = places_of_block(places, rows);
    for (int task = threadIdx.x; task < NUMBERS; task += ROW_THREADS) {
        const int2 place = rows.kept[task] = own_place(places[task], n);
        rows.given[task] = fetch_pair(r, place);
    }
    columns = of_vector(columns, COLUMNS) + 2 * rows.pair * TO_ROWS + rows.row;
    double sums[1] = {0};
    auto load = join_spectra(columns);
    // Exchange the residual for its product
    auto store = [&](int f, int n, Complex value) {
        if (n >= FROM_POINTS) return;
        const int at = f * FROM_POINTS + n;
        const int2 place = rows.kept[at];
        const Complex r_k = rows.given[at];
        if (place.x < 0) value.re = 0;
        else z[place.x] = value.re;
        if (place.y < 0) value.im = 0;
        else z[place.y] = value.im;
        sums[0] += (double)value.re * r_k.re + (double)value.im * r_k.im;
        rows.given[at] = value;
    };
    if (REST == 1) __syncthreads();
    transform<1, ROWS, ROW_THREADS, true>(rows.work, roots, load, store);
    leave_lines(rows, roots, of_vector(lines, LINES));
    leave_parts(sums, of_vector(parts, 2 * rows.blocks), rows.blocks);
}

// Restore rows and add the noise
/// w from the columns of A and from z with its noise, with the parts of w·z.
extern "C" __global__ __launch_bounds__(ROW_THREADS) void finish_rows(
    const State *now, const Complex *columns, const int2 *places, const Complex *roots,
    const real *noise, const real *z, real *w, double *parts, int n
) {
    if (now[blockIdx.z].done) return;
    const Rows rows = rows_of_block();
    places = places_of_block(places, rows);
    for (int task = threadIdx.x; task < NUMBERS; task += ROW_THREADS) {
        const int2 place = places[task], own = rows.kept[task] = own_place(place, n);
        const Complex z_k = rows.given[task] = fetch_pair(z, own);
        const Complex n_k = fetch_pair(noise, place);
        rows.whole[task] = {z_k.re * n_k.re, z_k.im * n_k.im};
    }
    columns = of_vector(columns, COLUMNS) + 2 * rows.pair * TO_ROWS + rows.row;
    double sums[1] = {0};
    auto load = join_spectra(columns);
    // Add the noise and leave the rows
    auto store = [&](int f, int n, Complex value) {
        if (n >= FROM_POINTS) return;
        const int at = f * FROM_POINTS + n;
        const int2 place = rows.kept[at];
        const Complex z_k = rows.given[at], added = rows.whole[at];
        value = {value.re + added.re, value.im + added.im};
        if (place.x >= 0) {
            w[place.x] = value.re;
            sums[0] += (double)value.re * z_k.re;
        }
        if (place.y >= 0) {
            w[place.y] = value.im;
            sums[0] += (double)value.im * z_k.im;
        }
    };
    if (REST == 1) __syncthreads();
    transform<1, ROWS, ROW_THREADS, true>(rows.work, roots, load, store);
    leave_parts(sums, of_vector(parts, 2 * rows.blocks) + rows.blocks, rows.blocks);
}

// Squares of residuals by turns
__device__ double *squares_of(double *squares, double iteration, int blocks) {
    return squares + ((long long)iteration & 1) * blocks;
}

// Step and transform the rows
/// Judges the residual, steps along the new direction, leaves the parts of r·r and rows of r for P.
extern "C" __global__ __launch_bounds__(ROW_THREADS) void step_rows(
    const State *now, State *next, const double *parts, double *squares, const int2 *places,
    const Complex *roots, const real *z, const real *w, real *p, real *s, real *x, real *r,
    Complex *lines, int n
) {
    now += blockIdx.z;
    next += blockIdx.z;
    if (is_over(now, next)) return;
    const Rows rows = rows_of_block();
    places = places_of_block(places, rows);
    // Fetch the first numbers of two lattices
    int task = threadIdx.x;
    int2 place = {-1, -1};
    Numbers first = {}, second = {};
    auto fetch = [&]() {
        if (task >= NUMBERS) return;
        place = own_place(places[task], n);
        first = fetch_numbers(max(place.x, 0), z, w, p, s, x, r);
        second = fetch_numbers(max(place.y, 0), z, w, p, s, x, r);
    };
    fetch();
    // Judge the residual and find the step
    State state = *now;
    double sums[3];
    // Add up the parts of three sums
    sums[0] = sums[1] = sums[2] = 0;
    parts = of_vector(parts, 2 * rows.blocks);
    squares = of_vector(squares, 2 * rows.blocks);
    const double *last = squares_of(squares, state.iteration, rows.blocks);
    for (int block = threadIdx.x; block < rows.blocks; block += ROW_THREADS) {
        sums[0] += parts[block];
        sums[1] += parts[rows.blocks + block];
        sums[2] += last[block];
    }
    sum_over_threads(sums, 3);
    if (!state.fresh) judge(&state, sums[2], is_first() ? history_of(next) : nullptr);
    Move move = {};
    if (!state.done) move = find_step(&state, sums[0], sums[1]);
    const bool is_over = state.done;
    if (!is_over) state.done = is_explained(state);
    if (is_first()) *next = state;
    if (is_over) return;
    double square[1] = {0};
    // Move the numbers of two lattices
    while (task < NUMBERS) {
        Complex r_k = {0, 0};
        if (place.x >= 0) r_k.re = move_numbers(move, place.x, first, p, s, x, r);
        if (place.y >= 0) r_k.im = move_numbers(move, place.y, second, p, s, x, r);
        rows.given[task] = r_k;
        square[0] += (double)r_k.re * r_k.re + (double)r_k.im * r_k.im;
        task += ROW_THREADS;
        fetch();
    }
    leave_lines(rows, roots, of_vector(lines, LINES));
    leave_parts(square, squares_of(squares, state.iteration, rows.blocks), rows.blocks);
}

// Judge what the last step left
/// Records the residual that the last step has left; one block.
extern "C" __global__ void judge_rows(State *state, double *squares, int blocks) {
    double square[1];
    state += blockIdx.z;
    squares = of_vector(squares, 2 * blocks);
    sum_over_blocks(square, squares_of(squares, state->iteration, blocks), blocks);
    if (threadIdx.x == 0 && !state->done && !state->fresh)
        judge(state, square[0], history_of(state));
}
