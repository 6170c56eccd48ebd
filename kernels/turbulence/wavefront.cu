// Tangled from book/src/wavefront-gpu.md: edit there, or here and run cargo tangle stitch.
// Covariances of a wavefront with slopes by the direct method.

#include "device/generation.cuh"
#include "device/real.cuh"
#include "turbulence/phase.cuh"

// Reach of the box filter
#ifndef REACH
#define REACH 4 // samples beyond a lag on either side that the box filter uses; 0 for no filter
#endif

// Look an averaged structure function up on the device
/// A polynomial in (r - centre) / half on the segment that ends at `end`; `per_half` is 1 / half.
template <typename T> struct Stretch {
    T end, centre, per_half, c[17];
};

/// Half the structure function at r, or its slope, by whose segments are given.
template <typename T> __device__ inline T averaged(const Stretch<T> *segments, int count, T r) {
    int low = 0, high = count - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (segments[middle].end < r) low = middle + 1;
        else high = middle;
    }
    const Stretch<T> &s = segments[low];
    T u = (r - s.centre) * s.per_half, sum = s.c[16];
#pragma unroll
    for (int k = 15; k >= 0; --k) sum = sum * u + s.c[k];
    return sum;
}

// Evaluate the reference phase on the device
/// The phase with which a gradient is compared, averaged over a disc if there are `segments`;
/// singular at r = kink.
struct Reference {
    Phase phase;
    double kink, outer_scale, first, segments;
};

/// S(r), rad^2, at t = r^2 in m^2.
__device__ inline double reference_half_structure(
    const Reference &reference, const double *half_structures, const Stretch<double> *discs, double t
) {
    if (reference.segments == 0.0) return half_structure_of(half_structures, reference.phase, t);
    return averaged(discs + (int)reference.first, (int)reference.segments, sqrt(t));
}

/// S_1 of the gradient S_1 (x, y), rad^2 m^-2, at r^2 = t; AVERAGED says whether there are segments.
template <bool AVERAGED>
__device__ inline real reference_slope(
    const Reference &reference, const real *slopes, const Stretch<real> *discs, real t
) {
    real rise;
    if (!AVERAGED) return slope_over_distance(slopes, reference.phase, t, &rise);
    real r = sqrt(t);
    return r > 0 ? averaged(discs + (int)reference.first, (int)reference.segments, r) / r : 0;
}

// Cut a piece into panels
/// A part of a line on which the distance from the singular points grows from the near end on.
struct Part {
    double near, length; // the length is negative towards lesser u
    int halvings, bends; // panels of length / 2, / 4, ... towards the near end, each cut in so many
};

__device__ inline Part cut_part(const Reference &reference, double square, double from, double to) {
    double kink = reference.kink, inner = kink * kink - square, meets = sqrt(fabs(inner));
    double at_from = inner > 0.0 ? fabs(fabs(from) - meets) : sqrt(from * from - inner);
    double at_to = inner > 0.0 ? fabs(fabs(to) - meets) : sqrt(to * to - inner);
    double length = to - from, distance = fmin(at_from, at_to), scale = reference.outer_scale;
    Part part = {from, length, 0, 1};
    if (at_to < at_from) part.near = to, part.length = -length;
    double finest = fmin(length, scale) / 65536.0;
    for (double last = length; last > distance && last > finest; last *= 0.5) ++part.halvings;
    // Cut panels that are longer than the outer scale
    double s = sqrt(square + part.near * part.near);
    double longest = part.halvings > 0 ? 0.5 * length : length;
    if (longest > scale && fabs(s - kink) < 8.0 * scale) part.bends = (int)ceil(longest / scale);
    return part;
}

// Share out the nodes of panels
constexpr int PANEL_NODES = 10;

/// A thread's share of the integral of S along a part; `rule` holds nodes, then weights.
__device__ inline double along_part(
    const Reference &reference, const double *half_structures, const Stretch<double> *discs,
    const double *rule, double square, Part part, int lane
) {
    double sum = 0.0;
    int values = (part.halvings + 1) * part.bends * PANEL_NODES;
    for (int k = lane; k < values; k += 32) {
        int node = k % PANEL_NODES, bend = 0, halving = k / PANEL_NODES;
        if (part.bends > 1) {
            bend = halving % part.bends;
            halving /= part.bends;
        }
        // Place a node on its panel
        bool last = halving == part.halvings;
        double length = part.length * (double)__int_as_float((126 - halving + last) << 23);
        double start = last ? 0.0 : length;
        length /= part.bends;
        double u = part.near + start + length * (bend + 0.5 + 0.5 * rule[node]);
        double half_structure = reference_half_structure(reference, half_structures, discs, square + u * u);
        sum += 0.5 * fabs(length) * rule[PANEL_NODES + node] * half_structure;
    }
    return sum;
}

// Integrate along a piece on the device
/// The integral of S from `start` to `end` along a line at the distance `across`, in the first
/// of 32 threads.
__device__ inline double along(
    const Reference &reference, const double *half_structures, const Stretch<double> *discs,
    const double *rule, double across, double start, double end, int lane
) {
    double square = across * across, inner = reference.kink * reference.kink - square;
    double meets = inner > 0.0 ? sqrt(inner) : 0.0, cut = -meets, from = start, sum = 0.0;
    for (int part = 0; part < 4; ++part, cut += meets) {
        double to = part == 3 ? end : fmin(fmax(cut, from), end);
        if (from < to)
            sum += along_part(
                reference, half_structures, discs, rule, square, cut_part(reference, square, from, to), lane
            );
        from = to;
    }
    for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, distance);
    return sum;
}

// Average over a footprint on the device
/// What the host says of the zones: distances in sides, in steps, in steps; then rules of 4 to
/// 8 nodes, and the box.
struct Rules {
    real near, core, far, from[5], legendre[60], box[2 * REACH + 1];
};

/// The mean of grad S over the footprint at (x, y), `distance` sides from the singular circle.
template <bool AVERAGED>
__device__ inline void gauss_mean(
    const Reference &reference, const real *slopes, const Stretch<real> *discs, const Rules *rules,
    real side, real distance, real x, real y, real mean[2]
) {
    int n = 4;
    const real *nodes = rules->legendre;
    for (; distance < rules->from[n - 4]; ++n) nodes += 2 * n;
    const real *weights = nodes + n;
    real half = (real)0.5 * side, sum_x = 0, sum_y = 0;
    for (int b = 0; b < n; ++b) {
        // Add a row of nodes on the device
        real v = y + half * nodes[b], row = 0, row_x = 0;
        #pragma unroll 4
        for (int a = 0; a < n; ++a) {
            real u = x + half * nodes[a];
            real p = weights[a] * reference_slope<AVERAGED>(reference, slopes, discs, u * u + v * v);
            row += p;
            row_x += p * u;
        }
        sum_x += weights[b] * row_x;
        sum_y += weights[b] * row * v;
    }
    mean[0] = (real)0.25 * sum_x;
    mean[1] = (real)0.25 * sum_y;
}

// Layer pair in the wavefront kernels
/// First row and column, rows and columns of a rectangle, and the index of its first entry in a list.
struct Frame {
    int row, column, rows, columns, first;
};

/// Layer pair: parameters of a layer for a target and a guide star. Lag (j, i) is at (x + i step, y + j step);
/// metres, and for the strength m rad per rad^2 m^-1.
struct LayerPair {
    double x, y, step, side;
    Reference reference;
    double strength;
    Frame corners, middle;
};
/// The layer pair of entry k of a list: of the pieces around `corners` or of the means of the `middle`.
template <Frame LayerPair::*FRAME>
__device__ inline const LayerPair &view_of(const LayerPair *views, int count, int k) {
    int low = 0, high = count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if ((views[middle].*FRAME).first <= k) low = middle;
        else high = middle - 1;
    }
    return views[low];
}

// Kernel of the close lags
// Work of the near pieces
/// The integral of S along piece k, rad^2 m, by a warp; a piece farther than 2.75 sides stays
/// as it is.
__device__ inline void integrate_piece(
    const LayerPair *views, int count, const double *half_structures, const Stretch<double> *discs,
    const double *rule, int oversampling, double *pieces, int k
) {
    const LayerPair &view = view_of<&LayerPair::corners>(views, count, k);
    const Frame &frame = view.corners;
    int place = k - frame.first, plane = frame.rows * frame.columns, axis = place / plane;
    int j = frame.row + place % plane / frame.columns, i = frame.column + place % frame.columns;
    double corner = -0.5 * oversampling, step = view.step;
    double x = view.x + (i + corner) * step, y = view.y + (j + corner) * step;
    double across = fabs(axis == 0 ? x : y), start = axis == 0 ? y : x;
    double middle = start + 0.5 * step;
    double distance = fabs(sqrt(across * across + middle * middle) - view.reference.kink);
    if (distance > 2.75 * view.side) return;
    int lane = threadIdx.x % 32;
    double sum = along(view.reference, half_structures, discs, rule, across, start, start + step, lane);
    if (lane == 0) pieces[k] = sum;
}

// Place and distance of a lag
/// Coordinate of lag k, m, rounded at the end.
__device__ inline real coordinate(double first, int k, double step) {
    return (real)(first + k * step);
}

/// Distance in m of a lag from the singular circle.
__device__ inline real distance_from(const Reference &reference, real x, real y) {
    return fabs(sqrt(x * x + y * y) - (real)reference.kink);
}

// Work of the middle lags
/// The mean of grad S over the footprint of the lag at place k of the frames, if it is in the
/// middle zone.
__device__ inline void average_middle(
    const LayerPair *views, int count, const real *slopes, const Stretch<real> *discs,
    const Rules *rules, real *means, int k
) {
    const LayerPair &view = view_of<&LayerPair::middle>(views, count, k);
    const Frame &frame = view.middle;
    const Reference &reference = view.reference;
    int place = k - frame.first;
    real x = coordinate(view.x, frame.column + place % frame.columns, view.step);
    real y = coordinate(view.y, frame.row + place / frame.columns, view.step);
    real distance = distance_from(reference, x, y), side = (real)view.side,
         *mean = means + 2 * (size_t)k;
    if (distance < (real)0.999 * rules->near * side) return;
    if (distance > (real)1.001 * rules->far * (real)view.step) return;
    if (reference.segments == 0.0)
        gauss_mean<false>(reference, slopes, discs, rules, side, distance / side, x, y, mean);
    else gauss_mean<true>(reference, slopes, discs, rules, side, distance / side, x, y, mean);
}

/// Pieces of the near lags and means of the middle lags of all layer pairs, so many of each list.
extern "C" __global__ __launch_bounds__(128, 5) void wavefront_close(
    const LayerPair *views, int count, const double *half_structures, const Stretch<double> *half_structure_discs,
    const double *rule, int oversampling, double *pieces, int all_pieces, const real *slopes,
    const Stretch<real> *discs, const Rules *rules, real *means, int all_means
) {
    int with_pieces = (all_pieces + 3) / 4, k = blockIdx.x * 4 + threadIdx.x / 32;
    if (k < all_pieces)
        integrate_piece(views, count, half_structures, half_structure_discs, rule, oversampling, pieces, k);
    k = ((int)blockIdx.x - with_pieces) * 128 + threadIdx.x;
    if (k >= 0 && k < all_means) average_middle(views, count, slopes, discs, rules, means, k);
}

// Kernel of the wavefront's field
// Size of a tile of the field
constexpr int TILE = 16, WIDE = TILE + 2 * REACH, LAGS = TILE * TILE;
/// Blocks that a multiprocessor shall hold, for which registers are spared.
constexpr int IN_DOUBLE = GENERATION >= 100 ? 2 : 3, BLOCKS = sizeof(real) == 4 ? 4 : IN_DOUBLE;

// Sums of the pieces around a lag
/// The mean of grad S over the footprint at a near lag: differences of edges, each of so many
/// pieces.
__device__ inline void near_mean(
    const LayerPair &view, const double *pieces, int oversampling, int j, int i, real mean[2]
) {
    const Frame &frame = view.corners;
    int columns = frame.columns, place = (j - frame.row) * columns + i - frame.column;
    const double *vertical = pieces + frame.first + place;
    const double *horizontal = vertical + frame.rows * columns;
    double sum[2] = {0.0, 0.0};
    for (int k = 0; k < oversampling; ++k) {
        sum[0] += vertical[k * columns + oversampling] - vertical[k * columns];
        sum[1] += horizontal[oversampling * columns + k] - horizontal[k];
    }
    for (int a = 0; a < 2; ++a) mean[a] = (real)(sum[a] / (view.side * view.side));
}

/// That of a middle lag, from the list.
__device__ inline void middle_mean(
    const Frame &frame, const real *means, int j, int i, real mean[2]
) {
    int place = frame.first + (j - frame.row) * frame.columns + i - frame.column;
    for (int a = 0; a < 2; ++a) mean[a] = means[2 * (size_t)place + a];
}

// Samples of a tile and its margin
/// Gradients at the coordinates xs and ys, zero within `core` of the circle.
template <bool AVERAGED>
__device__ inline void sample_tile(
    const Reference &reference, const real *slopes, const Stretch<real> *discs, real core,
    const real *xs, const real *ys, real samples[2][WIDE][WIDE]
) {
    real kink = (real)reference.kink, outer = (kink + core) * (kink + core);
    real inner = kink > core ? (kink - core) * (kink - core) : -1;
#pragma unroll 3
    for (int k = threadIdx.x; k < WIDE * WIDE; k += TILE * TILE) {
        real u = xs[k % WIDE], v = ys[k / WIDE], t = u * u + v * v;
        real p = reference_slope<AVERAGED>(reference, slopes, discs, t);
        if (t > inner && t < outer) p = 0;
        samples[0][k / WIDE][k % WIDE] = p * u;
        samples[1][k / WIDE][k % WIDE] = p * v;
    }
}

/// Covariances (2, lags, lags) of pairs of a target and a star, one a plane of the grid, for
/// rows up to `end`, m rad.
extern "C" __global__ __launch_bounds__(LAGS, BLOCKS) void wavefront_field(
    const LayerPair *views, int stride, int layers, const real *slopes, const Stretch<real> *discs,
    const Rules *rules, const double *pieces, const real *means, int oversampling, real *field,
    int lags, int begin, int end
) {
    // Place and memory of a tile
    __shared__ real xs[WIDE], ys[WIDE], samples[2][WIDE][WIDE], filtered[2][WIDE][TILE];
    int column = threadIdx.x % TILE, row = threadIdx.x / TILE;
    int i0 = blockIdx.x * TILE, j0 = begin + blockIdx.y * TILE, i = i0 + column, j = j0 + row;
    real sum[2] = {0, 0};
    views += blockIdx.z * stride;
    for (int layer = 0; layer < layers; ++layer) {
        const LayerPair &view = views[layer];
        real mean[2] = {0, 0};
        // Filter the samples around the tile
        if (threadIdx.x < WIDE) {
            xs[threadIdx.x] = coordinate(view.x, i0 - REACH + (int)threadIdx.x, view.step);
            ys[threadIdx.x] = coordinate(view.y, j0 - REACH + (int)threadIdx.x, view.step);
        }
        __syncthreads();
        real x = xs[column + REACH], y = ys[row + REACH], core = rules->core * (real)view.step;
        if (REACH > 0 && view.reference.segments == 0.0)
            sample_tile<false>(view.reference, slopes, discs, core, xs, ys, samples);
        else if (REACH > 0) sample_tile<true>(view.reference, slopes, discs, core, xs, ys, samples);
        __syncthreads();
        for (int k = threadIdx.x; REACH > 0 && k < 2 * WIDE * TILE; k += TILE * TILE) {
            const real *from = &samples[k / (WIDE * TILE)][k / TILE % WIDE][k % TILE];
            real value = 0;
            for (int m = 0; m <= 2 * REACH; ++m) value += rules->box[m] * from[m];
            filtered[k / (WIDE * TILE)][k / TILE % WIDE][k % TILE] = value;
        }
        __syncthreads();
        // Take the value of the zone
        real distance = distance_from(view.reference, x, y);
        if (distance >= rules->far * (real)view.step) {
            for (int a = 0; a < 2; ++a)
                for (int m = 0; m <= 2 * REACH; ++m)
                    mean[a] += rules->box[m] * filtered[a][row + m][column];
        } else if (i < lags && j < end) {
            if (distance < rules->near * (real)view.side) near_mean(view, pieces, oversampling, j, i, mean);
            else middle_mean(view.middle, means, j, i, mean);
        }
        for (int a = 0; a < 2; ++a) sum[a] += (real)view.strength * mean[a];
    }
    // Store the sum over the layers
    if (i >= lags || j >= end) return;
    size_t place = (2 * (size_t)blockIdx.z * lags + j) * lags + i;
    for (int a = 0; a < 2; ++a) field[place + a * (size_t)lags * lags] = sum[a];
}
