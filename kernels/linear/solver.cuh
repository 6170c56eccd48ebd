// Tangled from book/src/solver-gpu.md: edit there, or here and run cargo tangle stitch.
// The state of a solution on the device, sums in a fixed order, a step of conjugate gradients.
#pragma once
#include "device/real.cuh"

// State of a solution on the device
/// The numbers of a solution in progress; the host reads the first eight, and of systems side by side more.
struct State {
    double iteration, done, fault, value; // value: what broke an assumption
    double start, residual, norm; // relative residuals at the start of the sweep and now; norm of b
    double target, limit, epsilon; // where the sweep ends: residual, iterations, precision
    double fresh, ended;           // whether the sweep has made no iteration, and can make no more
    double along, step;            // conjugate gradients
    // MINRES, and its last two rotations; or how much of a variance steps explain, and what bounds the rest.
    union { double alpha, explained; };
    union { double beta, gap; };
    union { double phi, least; };
    double size;
    double last_cosine, last_sine, before_cosine, before_sine;
    double whole; // a variance, or 0
};
static_assert(sizeof(State) == 8 * SCALARS, "the host knows the size of the state");

// Faults of a solution on the device
/// What can break: the numbers by which the host tells them apart.
enum { FINE, NORM, START, RESIDUAL, ALONG, CURVATURE, ALPHA, BETA, SINGULAR };

__device__ bool is_finite(double value) { return fabs(value) <= 1.7976931348623157e308; }

__device__ void break_off(State *state, int fault, double value) {
    state->fault = fault;
    state->value = value;
    state->done = 1;
}

// Hand a finished state on
/// One thread of all, who writes what is to be written once.
__device__ bool is_first() { return blockIdx.x + blockIdx.y + threadIdx.x == 0; }

/// Whether there is nothing to do any more; the first thread then hands the state on.
__device__ bool is_over(const State *now, State *next) {
    if (now->done && is_first()) *next = *now;
    return now->done;
}

// Sum over the threads of a block
/// Makes of up to three numbers their sums over the threads of the block, in all of them.
__device__ void sum_over_threads(double *sums, int count) {
    __shared__ double warps[3][32];
    for (int k = 0; k < count; k++)
        for (int step = 16; step > 0; step /= 2)
            sums[k] += __shfl_xor_sync(0xffffffffu, sums[k], step);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        for (int k = 0; k < count; k++) warps[k][threadIdx.x / 32] = sums[k];
    __syncthreads();
    for (int k = 0; k < count; k++) {
        sums[k] = 0;
        for (int warp = 0; warp < blockDim.x / 32; warp++) sums[k] += warps[k][warp];
    }
}

// Sum over all the blocks
/// Leaves the block's sums among those of `blocks` blocks.
template <int COUNT> __device__ void leave_parts(double (&sums)[COUNT], double *parts, int blocks) {
    sum_over_threads(sums, COUNT);
    int block = blockIdx.y * gridDim.x + blockIdx.x;
    if (threadIdx.x == 0)
        for (int k = 0; k < COUNT; k++) parts[k * blocks + block] = sums[k];
}

/// The sums over all blocks.
template <int COUNT>
__device__ void sum_over_blocks(double (&sums)[COUNT], const double *parts, int blocks) {
    for (int k = 0; k < COUNT; k++) {
        sums[k] = 0;
        for (int block = threadIdx.x; block < blocks; block += blockDim.x)
            sums[k] += parts[k * blocks + block];
    }
    sum_over_threads(sums, COUNT);
}
__device__ int first_number() { return blockIdx.x * blockDim.x + threadIdx.x; }

// Judge the residual of an iteration
/// Takes the squares of the residual into the state, and ends the sweep where that is small enough.
__device__ void judge(State *state, double squares, double *history) {
    double residual = state->residual = sqrt(squares) / state->norm;
    if (!is_finite(residual)) return break_off(state, RESIDUAL, residual);
    if (history && !(state->whole > 0)) history[(long long)state->iteration % HISTORY] = residual;
    bool small = !(state->whole > 0) && residual <= state->target;
    state->done = small || state->iteration >= state->limit || state->ended;
}

/// Where the residuals of a system that is alone are recorded.
__device__ double *history_of(State *state) {
    return gridDim.z == 1 ? (double *)(state + 1) : nullptr;
}

/// Records the residual whose squares are given.
__device__ void judge_parts(const State *now, State *next, const double *squares, int blocks) {
    double square[1];
    sum_over_blocks(square, squares, blocks);
    if (threadIdx.x > 0) return;
    State state = *now;
    if (!state.done) judge(&state, square[0], history_of(next));
    *next = state;
}

// What a step explains
/// Takes a step into what is explained.
__device__ void explain(State *state, double share, double along, double step) {
    double last = state->gap - state->step;
    state->gap = state->fresh ? 1 / state->least : last / (state->least * last + share);
    if (state->gap <= step) state->gap = 1 / state->least + step;
    state->explained += step * along;
}

/// Whether a variance is explained.
__device__ bool is_explained(State state) {
    double rest = (state.gap - state.step) * state.along;
    return state.whole > 0 && rest <= state.target * (state.whole - state.explained);
}

// Numbers of the next step
/// How the vectors move in one step.
struct Move {
    bool fresh;
    real share, length;
};

/// The next step from r·z and w·z, which goes into the state; or what broke.
__device__ Move find_step(State *state, double along, double slope) {
    bool fresh = state->fresh;
    double share = fresh ? 0 : along / state->along;
    double curvature = fresh ? slope : slope - share * along / state->step;
    double step = along / curvature;
    if (!(along > 0 && is_finite(along))) {
        break_off(state, ALONG, along);
    } else if (!(curvature > 0 && is_finite(curvature))) {
        break_off(state, CURVATURE, curvature);
    } else {
        explain(state, share, along, step);
        state->along = along;
        state->step = step;
        state->fresh = 0;
        state->iteration += 1;
    }
    return {fresh, (real)share, (real)step};
}

// Move one element of all vectors
/// One element of all vectors of the method.
struct Numbers {
    real z, w, p, s, x, r;
};

__device__ Numbers fetch_numbers(
    int k, const real *z, const real *w, const real *p, const real *s, const real *x, const real *r
) {
    return {z[k], w[k], p[k], s[k], x[k], r[k]};
}

/// Moves one element; the new residual.
__device__ real move_numbers(Move move, int k, Numbers old, real *p, real *s, real *x, real *r) {
    real p_k = move.fresh ? old.z : old.z + move.share * old.p;
    real s_k = move.fresh ? old.w : old.w + move.share * old.s;
    real r_k = old.r - move.length * s_k;
    p[k] = p_k;
    s[k] = s_k;
    x[k] = old.x + move.length * p_k;
    r[k] = r_k;
    return r_k;
}
