// Tangled from book/src/dense-gpu.md: edit there, or here and run cargo tangle stitch.
// Slope covariances pair by pair.

#include "device/real.cuh"
#include "turbulence/hessian.cuh"
#include "turbulence/phase.cuh"

// View by two sensors in a kernel
constexpr int RULES = 6, PANEL = 10;

/// A layer as two sensors see it; lengths in metres.
struct View {
    /// Axes of the second sensor along those of the first: x in terms of (x, y), then y.
    double turn[4];
    /// Cosine and sine of the angle without its quarter turns.
    double cos, sin;
    double sides[2], strength, outer_scale;
    Phase phase;
    /// Half the square, and radius of the disc, in which edges serve.
    double box, disc;
    /// Distances from which rules serve, descending, and where their nodes begin and end.
    double from[RULES];
    int start[RULES + 1];
    int quarters, lines, rules;
};

// Integrate along a line by one thread
/// Integral of a table's function along a line that passes the origin at the distance across, u
/// from start to end; in *moment that of (u - start) times the function.
__device__ double along_line(
    const double *table, const View &view, const double *rule, double across, double start,
    double end, double *moment
) {
    const unsigned whole = 1u << 30;
    const double square = across * across, far = 8.0 * view.outer_scale;
    const double finest = fmin(fmin(view.sides[0], view.sides[1]), view.outer_scale) / 65536.0;
    double sum = 0.0, first = 0.0;
    for (int part = 0; part < 2; ++part) {
        const double sign = part ? -1.0 : 1.0;
        const double lo = fmax(part ? -end : start, 0.0), hi = part ? -start : end;
        if (!(hi > lo)) continue;
        const double unit = (hi - lo) / whole;
        unsigned place = 0, size = whole;
        while (place < whole) {
            // Take a panel or halve it
            const double from = lo + place * unit, length = size * unit;
            const double distance = square + from * from;
            const bool bends = length > view.outer_scale && distance < far * far;
            if ((length * length > distance && length > finest) || bends) {
                size >>= 1;
                continue;
            }
            for (int k = 0; k < PANEL; ++k) {
                const double u = sign * (from + 0.5 * length * (1.0 + rule[k]));
                const double f = 0.5 * length * rule[PANEL + k] * fall_of(table, view.phase, square + u * u);
                sum += f;
                first += (u - start) * f;
            }
            place += size;
            size = place & (~place + 1u);
        }
    }
    *moment = first;
    return sum;
}

// Corners and strips on the device
/// U of the corners of a square of side `other`, its centre at (x, y) and its axes turned by (c, s),
/// against the edges of a square of side d at the origin.
__device__ void corner_sums(
    const double *half_means, const View &view, const double *rule, double d, double other,
    double x, double y, double c, double s, double sums[2]
) {
    sums[0] = sums[1] = 0.0;
#pragma unroll 1
    for (int k = 0; k < 16; ++k) {
        const double p = (k & 1 ? 0.5 : -0.5) * other, q = (k & 2 ? 0.5 : -0.5) * other;
        const double edge = k & 4 ? 0.5 : -0.5, sign = p * q > 0.0 ? 2.0 : -2.0;
        const double px = x + c * p - s * q, py = y + s * p + c * q;
        const int axis = k >> 3;
        const double across = (axis ? py : px) - edge * d, middle = axis ? px : py;
        double moment;
        const double integral = along_line(
            half_means, view, rule, across, middle - 0.5 * d, middle + 0.5 * d, &moment
        );
        sums[axis] += sign * edge * across * integral;
    }
}

// Mean along an edge on the device
/// The mean of weight x S along the line from p to q, for a weight that changes linearly from
/// first to last; m rad^2.
__device__ double mean_along(
    const double *falls, const View &view, const double *rule, double px, double py, double qx,
    double qy, double first, double last
) {
    const double dx = qx - px, dy = qy - py, length = sqrt(dx * dx + dy * dy);
    if (length == 0.0) return 0.0;
    const double x = dx / length, y = dy / length, start = px * x + py * y;
    double moment;
    const double fall =
        along_line(falls, view, rule, px * y - py * x, start, start + length, &moment);
    return (first * fall + (last - first) / length * moment) / length;
}

// Strips of two edges on the device
/// The sum of e f W for the component along x, of edges that run along y.
__device__ double strips(
    const double *falls, const View &view, const double *rule, double x, double y, double s
) {
    const double one = 0.5 * view.sides[0], two = 0.5 * view.sides[1], c = view.cos;
    const double wide = one + c * two, flat = fabs(one - c * two);
    const double ends[4] = {-wide, -flat, flat, wide};
    double sum = 0.0;
#pragma unroll 1
    for (int k = 0; k < 12; ++k) {
        const double e = k & 1 ? 1.0 : -1.0, f = k & 2 ? 1.0 : -1.0;
        const double across = x + f * two * c - e * one, along = y + f * two * s;
        const double from = ends[k >> 2], to = ends[(k >> 2) + 1];
        const double low = fmax((from - one) / c, -two), high = fmin((from + one) / c, two);
        const double lower = fmax((to - one) / c, -two), higher = fmin((to + one) / c, two);
#pragma unroll 1
        for (int l = 0; l < view.lines; ++l) {
            // Add a line of the strip
            const double *lines = rule + 2 * PANEL;
            const double part = view.lines == 1 ? 0.5 : 0.5 + 0.5 * lines[l];
            const double weight = view.lines == 1 ? 1.0 : 0.5 * lines[4 + l];
            const double t = low + part * (high - low), u = lower + part * (higher - lower);
            sum += e * f * weight * (to - from)
                * mean_along(
                    falls, view, rule, across - t * s, along + from, across - u * s, along + to, high - low,
                    higher - lower
                );
        }
    }
    return sum;
}

// Covariance of two lenslets on the device
/// c_ab of two footprints that are near, by edges, without the quarter turns.
__device__ void by_edges(
    const double *falls, const double *half_means, const View &view, const double *rule,
    double x, double y, double c[4]
) {
    const double one = view.sides[0], two = view.sides[1];
    const double cos = view.cos, sin = view.sin, squares = one * one * two * two;
    double u[2], v[2];
    corner_sums(half_means, view, rule, one, two, x, y, cos, sin, u);
    corner_sums(half_means, view, rule, two, one, cos * x + sin * y, cos * y - sin * x, cos, -sin, v);
    c[1] = -(u[0] + v[1]) / (cos * squares);
    c[2] = -(u[1] + v[0]) / (cos * squares);
    if (view.lines) {
        c[0] = -strips(falls, view, rule, x, y, sin) / squares;
        c[3] = -strips(falls, view, rule, y, x, -sin) / squares;
    } else {
        c[0] = (u[0] - v[0]) / (sin * squares);
        c[3] = (v[1] - u[1]) / (sin * squares);
    }
}

// Average by nodes on the device
/// c_ab of two footprints that are not near, by the nodes of a rule, without the quarter turns.
__device__ void by_nodes(
    const real *slopes, const View &view, const real *nodes, double x, double y, double c[4]
) {
    const double square = x * x + y * y;
    int rule = 0;
    while (rule < view.rules - 1 && square < view.from[rule] * view.from[rule]) ++rule;
    real sum[3] = {0, 0, 0};
    for (int k = view.start[rule]; k < view.start[rule + 1]; ++k) {
        const real u = (real)x + nodes[3 * k], v = (real)y + nodes[3 * k + 1];
        real h[3], rise;
        const real p = slope_over_distance(slopes, view.phase, u * u + v * v, &rise);
        hessian(p, rise, u, v, h);
        for (int n = 0; n < 3; ++n) sum[n] += nodes[3 * k + 2] * h[n];
    }
    const double xx = sum[0], xy = sum[1], yy = sum[2];
    c[0] = xx * view.cos + xy * view.sin;
    c[1] = xy * view.cos - xx * view.sin;
    c[2] = xy * view.cos + yy * view.sin;
    c[3] = yy * view.cos - xy * view.sin;
}

// Place two lenslets on a layer
/// Two sensors on a layer: the coordinates along x and y of the columns and rows of each.
struct Places {
    const double *here, *there;
    int across_here, across_there;

    __device__ Places(const double *centres, int layer, int first, int second)
        : here(centres + (size_t)layer * 2 * (first + second)), there(here + 2 * first),
          across_here(first), across_there(second) {}

    /// The displacement from lenslet (j, i) of the first to (l, k) of the second, and whether they are near.
    __device__ bool near(const View &view, int j, int i, int l, int k, double &x, double &y) const {
        const double u = there[k], v = there[across_there + l];
        x = view.turn[0] * u + view.turn[2] * v - here[i];
        y = view.turn[1] * u + view.turn[3] * v - here[across_here + j];
        return fmax(fabs(x), fabs(y)) < view.box || x * x + y * y < view.disc * view.disc;
    }

    // Find where near lenslets begin
    /// The first row and column of the square of so many lenslets of the second that can be near (j, i).
    __device__ void nearby(const View &view, int j, int i, int box, int &row, int &column) const {
        const double x = here[i], y = here[across_here + j], reach = fmax(view.box, view.disc);
        const double u = view.turn[0] * x + view.turn[1] * y, v = view.turn[2] * x + view.turn[3] * y;
        const double left = (u - reach - there[0]) / view.sides[1];
        const double low = (v - reach - there[across_there]) / view.sides[1];
        const double last = across_there - box;
        column = (int)fmin(fmax(floor(left), 0.0), last);
        row = (int)fmin(fmax(floor(low), 0.0), last);
    }
};

// Compute near pairs by themselves
/// c of the pairs that are near, by layer, lenslet of the first sensor, and place in its square.
extern "C" __global__ void __launch_bounds__(64, 6) near_pairs(
    const View *views, const double *centres, const int *first, int across_first,
    int across_second, int box, const double *falls, const double *half_means, const double *rule,
    double *near
) {
    const int row = blockIdx.x, layer = blockIdx.y;
    const View &view = views[layer];
    const Places places(centres, layer, across_first, across_second);
    const int j = first[2 * row], i = first[2 * row + 1];
    int low, left;
    places.nearby(view, j, i, box, low, left);
    double *found = near + ((size_t)layer * gridDim.x + row) * box * box * 4;
    for (int k = threadIdx.x; k < box * box; k += blockDim.x) {
        double x, y;
        if (places.near(view, j, i, low + k / box, left + k % box, x, y)) {
            by_edges(falls, half_means, view, rule, x, y, found + 4 * k);
        }
    }
}

// Fill a block of two sensors
/// Covariances of the slopes of some lenslets of one sensor with those of another, in a matrix with
/// rows of `pitch` numbers. The second ones are given by row, column, and the places of their x and y
/// slopes in a row, less than 0 where one is not wanted; y slopes of the first stand `height` rows below
/// their x slopes. `centres` has for each layer the coordinates
/// along x and y of the first sensor's `across_first` columns and rows, then of the second's;
/// lenslets are rows and columns.
extern "C" __global__ void __launch_bounds__(128, 3) dense_block(
    const View *views, int layers, const double *centres, const int *first, const int *second,
    int across_first, int across_second, int columns, int pitch, int height, const real *slopes,
    const real *nodes, int box, const double *near, real *values
) {
    const int row = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    const int j = first[2 * row], i = first[2 * row + 1];
    const int l = second[4 * column], k = second[4 * column + 1];
    double sum[4] = {0.0, 0.0, 0.0, 0.0};
    for (int layer = 0; layer < layers; ++layer) {
        const View &view = views[layer];
        const Places places(centres, layer, across_first, across_second);
        // Average the layer over two lenslets
        double x, y, c[4];
        if (places.near(view, j, i, l, k, x, y)) {
            int low, left;
            places.nearby(view, j, i, box, low, left);
            const size_t square = ((size_t)layer * gridDim.y + row) * box * box;
            const double *found = near + 4 * (square + (l - low) * box + k - left);
            for (int n = 0; n < 4; ++n) c[n] = found[n];
        } else {
            by_nodes(slopes, view, nodes, x, y, c);
        }
        // Add the layer to the sums
        const bool odd = view.quarters & 1;
        const double of_x = view.quarters & 2 ? -view.strength : view.strength;
        const double of_y = odd ? -of_x : of_x;
        for (int a = 0; a < 4; a += 2) {
            sum[a] += of_x * (odd ? c[a + 1] : c[a]);
            sum[a + 1] += of_y * (odd ? c[a] : c[a + 1]);
        }
    }
    for (int b = 0; b < 2; ++b) {
        const int place = second[4 * column + 2 + b];
        if (place < 0) continue;
        real *at = values + (size_t)row * pitch + place;
        at[0] = (real)sum[b];
        at[(size_t)height * pitch] = (real)sum[2 + b];
    }
}

// Gather a block from its table
/// Covariances of two sensors that share a lattice, from xx, xy and yy over displacements, times `scale`; arranged as by `dense_block`.
extern "C" __global__ void gather_block(
    const real *table, int lenslets, const int *first, const int *second, int columns, int pitch,
    int height, double scale, real *values
) {
    const int row = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    const int lags = 2 * lenslets - 1, last = lenslets - 1;
    const int y = second[4 * column] - first[2 * row] + last;
    const int x = second[4 * column + 1] - first[2 * row + 1] + last;
    const real *lag = table + y * lags + x;
    for (int b = 0; b < 2; ++b) {
        const int place = second[4 * column + 2 + b];
        if (place < 0) continue;
        real *at = values + (size_t)row * pitch + place;
        at[0] = (real)(scale * lag[b * lags * lags]);
        at[(size_t)height * pitch] = (real)(scale * lag[(1 + b) * lags * lags]);
    }
}
