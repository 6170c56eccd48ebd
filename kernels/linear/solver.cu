// Tangled from book/src/solver-gpu.md: edit there, or here and run cargo tangle stitch.
// Conjugate gradients and MINRES, of which the device keeps the numbers.

#include "linear/solver.cuh"

// Leave sums and judge the residual
/// Leaves the parts of a·z and w·z; the block after the last judges the residual.
extern "C" __global__ void look(
    const State *now, State *next, const double *squares, const real *a, const real *z,
    const real *w, double *parts, int blocks, int n
) {
    now += blockIdx.z;
    next += blockIdx.z;
    squares = of_vector(squares, 3 * blocks);
    if (blockIdx.x + 1 == gridDim.x) return judge_parts(now, next, squares, blocks);
    if (now->done) return;
    a = of_vector(a, n);
    z = of_vector(z, n);
    w = of_vector(w, n);
    double sums[2] = {0, 0};
    for (int k = first_number(); k < n; k += blocks * blockDim.x) {
        double z_k = z[k];
        sums[0] += a[k] * z_k;
        sums[1] += w[k] * z_k;
    }
    leave_parts(sums, of_vector(parts, 2 * blocks), blocks);
}

// Multiply two vectors
/// Leaves the parts of a·z.
extern "C" __global__ void along(
    const real *a, const real *z, double *parts, int blocks, int n
) {
    double sums[1] = {0};
    for (int k = first_number(); k < n; k += blocks * blockDim.x) sums[0] += (double)a[k] * z[k];
    leave_parts(sums, parts, blocks);
}

// Open a sweep with its residual
/// r = b - A x, and parts of r·r, b·b and of the number of elements of b that are not 0.
extern "C" __global__ void open_sweep(
    const real *b, const real *product, real *r, double *squares, int blocks, int n
) {
    double sums[3] = {0, 0, 0};
    for (int k = first_number(); k < n; k += blocks * blockDim.x) {
        real r_k = b[k] - product[k];
        r[k] = r_k;
        sums[0] += (double)r_k * r_k;
        sums[1] += (double)b[k] * b[k];
        sums[2] += b[k] != 0;
    }
    leave_parts(sums, squares, blocks);
}

// Set the state of a sweep
/// Sets both states to the start of a sweep.
extern "C" __global__ void begin_sweep(
    State *now, State *next, const double *squares, int blocks, int first, double tolerance,
    double limit, double epsilon
) {
    double sums[3];
    sum_over_blocks(sums, squares, blocks);
    if (threadIdx.x > 0) return;
    State state = *next;
    if (first) {
        state = State();
        state.norm = sqrt(sums[1]);
        state.limit = limit;
        state.epsilon = epsilon;
    }
    state.start = sqrt(sums[0]) / state.norm;
    state.done = state.ended = 0;
    state.fresh = 1;
    // Aim at the tolerance or below
    double *history = (double *)(next + 1);
    if (sums[2] == 0) {
        state.norm = state.start = history[0] = 0;
        state.done = 1;
    } else if (!(state.norm >= 1e-150 && state.norm < 1e150)) {
        break_off(&state, NORM, state.norm);
    } else if (!is_finite(state.start)) {
        break_off(&state, START, state.start);
    } else {
        double first_aim = tolerance * (1 - 5e5 * epsilon);
        double aim = state.iteration == 0 ? first_aim : fmin(tolerance, 0.1 * state.start);
        state.target = fmax(aim, epsilon * state.start);
        state.done = state.start <= tolerance || state.iteration >= limit;
        history[(long long)state.iteration % HISTORY] = state.start;
    }
    state.residual = state.start;
    *now = *next = state;
}

// Kernel of a step along
/// Steps along the new direction; leaves the parts of r·r. z may be the same as r.
extern "C" __global__ void step_along(
    const State *now, State *next, const double *parts, const real *z, const real *w, real *p,
    real *s, real *x, real *r, double *squares, int blocks, int n
) {
    now += blockIdx.z;
    next += blockIdx.z;
    if (is_over(now, next)) return;
    // Vectors of the block's own system
    z = of_vector(z, n);
    w = of_vector(w, n);
    p = of_vector(p, n);
    s = of_vector(s, n);
    x = of_vector(x, n);
    r = of_vector(r, n);
    int k = first_number();
    Numbers old = fetch_numbers(min(k, n - 1), z, w, p, s, x, r);
    double sums[2], square[1] = {0};
    sum_over_blocks(sums, of_vector(parts, 2 * blocks), blocks);
    State state = *now;
    Move move = find_step(&state, sums[0], sums[1]);
    const bool is_over = state.done;
    if (!is_over) state.done = is_explained(state);
    if (is_first()) *next = state;
    if (is_over) return;
    // Update all elements of a thread
    while (k < n) {
        double r_k = move_numbers(move, k, old, p, s, x, r);
        square[0] += r_k * r_k;
        k += blocks * blockDim.x;
        old = fetch_numbers(min(k, n - 1), z, w, p, s, x, r);
    }
    leave_parts(square, of_vector(squares, 3 * blocks), blocks);
}

// Begin systems side by side
/// Sets the states of systems from the target of each, and makes r of b = r and of the product A x with the first guess; one block
/// each.
extern "C" __global__ void begin_systems(
    State *now, State *next, double *squares, const double *targets, double least, double limit,
    real *r, const real *x, const real *product, int blocks, int n
) {
    r = of_vector(r, n);
    x = of_vector(x, n);
    product = of_vector(product, n);
    double sums[2] = {0, 0};
    for (int k = threadIdx.x; k < n; k += blockDim.x) {
        const real b_k = r[k], r_k = b_k - product[k];
        sums[0] += ((double)b_k + r_k) * x[k];
        sums[1] += (double)r_k * r_k;
        r[k] = r_k;
    }
    sum_over_threads(sums, 2);
    // Set the state of a system
    squares = of_vector(squares, 3 * blocks);
    for (int k = threadIdx.x; k < blocks; k += blockDim.x) squares[k] = k == 0 ? sums[1] : 0;
    State state = State();
    state.explained = sums[0];
    state.target = targets[2 * blockIdx.z];
    state.whole = targets[2 * blockIdx.z + 1];
    state.least = least;
    state.limit = limit;
    state.norm = state.fresh = 1;
    state.done = state.target < 0;
    if (threadIdx.x == 0) now[blockIdx.z] = next[blockIdx.z] = state;
}

// Multiply all vectors with a few
/// The inner products of the block's vector with that of its row of blocks, (vectors, rows of blocks); one block each.
extern "C" __global__ void multiply_few(const real *r, const real *few, double *products, int n) {
    r = of_vector(r, n);
    few += (long long)blockIdx.y * n;
    double sums[1] = {0};
    for (int k = threadIdx.x; k < n; k += blockDim.x) sums[0] += (double)r[k] * few[k];
    sum_over_threads(sums, 1);
    if (threadIdx.x == 0) products[blockIdx.z * gridDim.y + blockIdx.y] = sums[0];
}

// Kernels of minimum residuals
// Length of a vector on the device
/// Leaves the parts of u·z_next.
extern "C" __global__ void measure(
    const State *now, const real *u, const real *z_next, double *parts, int blocks, int n
) {
    if (now->done) return;
    double sums[1] = {0};
    for (int k = first_number(); k < n; k += blocks * blockDim.x) sums[0] += (double)u[k] * z_next[k];
    leave_parts(sums, parts, blocks);
}

// Start Lanczos on the device
/// v and z from the residual r and z_next = P r, with the parts of r·P r.
extern "C" __global__ void start_lanczos(
    const State *now, State *next, const double *parts, const real *r, const real *z_next, real *v,
    real *v_last, real *z, real *d, real *d_last, int blocks, int n
) {
    if (is_over(now, next)) return;
    double sums[1];
    sum_over_blocks(sums, parts, blocks);
    // Start the rotations of the device
    State state = *now;
    state.beta = state.size = state.last_sine = state.before_sine = 0;
    state.phi = sqrt(sums[0]);
    state.last_cosine = state.before_cosine = 1;
    if (!(sums[0] > 0 && is_finite(sums[0]))) break_off(&state, ALONG, sums[0]);
    if (is_first()) *next = state;
    if (state.done) return;
    real scale = 1 / state.phi;
    for (int k = first_number(); k < n; k += blocks * blockDim.x) {
        v[k] = scale * r[k];
        z[k] = scale * z_next[k];
        v_last[k] = d[k] = d_last[k] = 0;
    }
}

// Orthogonalise the product on the device
/// u ← u − α v − β v_last, with the parts of u·z; leaves those of u·u.
extern "C" __global__ void orthogonalise(
    const State *now, State *next, const double *parts, const real *v, const real *v_last, real *u,
    double *squares, int blocks, int n
) {
    if (is_over(now, next)) return;
    double sums[2], square[1] = {0};
    sum_over_blocks(sums, parts, blocks);
    State state = *now;
    state.alpha = sums[1];
    if (!is_finite(sums[1])) break_off(&state, ALPHA, sums[1]);
    if (is_first()) *next = state;
    if (state.done) return;
    real alpha = state.alpha, beta = state.beta;
    for (int k = first_number(); k < n; k += blocks * blockDim.x) {
        real u_k = u[k] - alpha * v[k] - beta * v_last[k];
        u[k] = u_k;
        square[0] += (double)u_k * u_k;
    }
    leave_parts(square, squares, blocks);
}

// Turn the column on the device
/// Rotates the new column and steps along the new direction; leaves the parts of r·r. z_next
/// may be the same as u.
extern "C" __global__ void turn_column(
    const State *now, State *next, const double *parts, const real *u, const real *z_next, real *v,
    real *v_last, real *z, real *d, real *d_last, real *x, real *r, double *squares, int blocks,
    int n
) {
    if (is_over(now, next)) return;
    double sums[1], square[1] = {0};
    sum_over_blocks(sums, parts, blocks);
    State state = *now;
    // Rotate the new column on the device
    double beta = sums[0] == 0 ? 0 : sqrt(sums[0]);
    if (sums[0] != 0 && !(sums[0] > 0 && is_finite(sums[0]))) break_off(&state, BETA, sums[0]);
    double rotated = state.before_cosine * state.beta, epsilon = state.before_sine * state.beta;
    double delta = state.last_cosine * rotated + state.last_sine * state.alpha;
    double bar = state.last_cosine * state.alpha - state.last_sine * rotated;
    double gamma = hypot(bar, beta);
    state.size = fmax(fmax(state.size, fabs(state.alpha)), beta);
    if (!state.done && gamma <= state.epsilon * state.size) break_off(&state, SINGULAR, gamma);
    state.before_cosine = state.last_cosine;
    state.before_sine = state.last_sine;
    state.last_cosine = bar / gamma;
    state.last_sine = beta / gamma;
    double along = state.last_cosine * state.phi, squared = state.last_sine * state.last_sine;
    state.phi *= -state.last_sine;
    state.beta = beta;
    state.ended = sums[0] == 0;
    state.iteration += !state.done;
    double left = state.last_cosine * state.phi, scale = state.ended ? 1 : 1 / beta;
    if (is_first()) *next = state;
    if (state.done) return;
    for (int k = first_number(); k < n; k += blocks * blockDim.x) {
        // Move the vectors of Lanczos on
        real v_k = (real)scale * u[k];
        real z_k = (real)scale * z_next[k];
        real d_k = -(real)epsilon * d_last[k] - (real)delta * d[k];
        d_k = (real)(1 / gamma) * d_k + (real)(1 / gamma) * z[k];
        d_last[k] = d[k];
        d[k] = d_k;
        x[k] += (real)along * d_k;
        real r_k = (real)squared * r[k] + (real)left * v_k;
        r[k] = r_k;
        square[0] += (double)r_k * r_k;
        v_last[k] = v[k];
        v[k] = v_k;
        z[k] = z_k;
    }
    leave_parts(square, squares, blocks);
}
