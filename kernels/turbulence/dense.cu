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

// Fill a block of two sensors
/// Covariances of the slopes of some lenslets of one sensor with those of another, in a matrix with
/// rows of `pitch` numbers: x slopes of `columns` lenslets stand at `at_x`, their y slopes at `at_y`, unless
/// it is `pitch`, and y slopes of the rows `height` rows below their x slopes. `centres` has for each layer the coordinates
/// along x and y of the first sensor's `across[0]` columns and rows, then of the second's; lenslets
/// are rows and columns.
extern "C" __global__ void __launch_bounds__(128, 3) dense_block(
    const View *views, int layers, const double *centres, const int *first, const int *second,
    int across_first, int across_second, int columns, int pitch, int height, int at_x, int at_y,
    const real *slopes, const double *falls, const double *half_means, const double *rule,
    const real *nodes, real *values
) {
    const int row = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    const int j = first[2 * row], i = first[2 * row + 1];
    const int l = second[2 * column], k = second[2 * column + 1];
    double sum[4] = {0.0, 0.0, 0.0, 0.0};
    for (int layer = 0; layer < layers; ++layer) {
        const View &view = views[layer];
        // Place the two lenslets on the layer
        const double *here = centres + (size_t)layer * 2 * (across_first + across_second);
        const double *there = here + 2 * across_first;
        const double u = there[k], v = there[across_second + l];
        const double x = view.turn[0] * u + view.turn[2] * v - here[i];
        const double y = view.turn[1] * u + view.turn[3] * v - here[across_first + j];
        // Add the layer to the sums
        double c[4];
        if (fmax(fabs(x), fabs(y)) < view.box || x * x + y * y < view.disc * view.disc) {
            by_edges(falls, half_means, view, rule, x, y, c);
        } else {
            by_nodes(slopes, view, nodes, x, y, c);
        }
        const bool odd = view.quarters & 1;
        const double of_x = view.quarters & 2 ? -view.strength : view.strength;
        const double of_y = odd ? -of_x : of_x;
        for (int a = 0; a < 4; a += 2) {
            sum[a] += of_x * (odd ? c[a + 1] : c[a]);
            sum[a + 1] += of_y * (odd ? c[a] : c[a + 1]);
        }
    }
    const size_t at = (size_t)row * pitch + column, below = at + (size_t)height * pitch;
    if (at_x < pitch) {
        values[at + at_x] = (real)sum[0];
        values[below + at_x] = (real)sum[2];
    }
    if (at_y < pitch) {
        values[at + at_y] = (real)sum[1];
        values[below + at_y] = (real)sum[3];
    }
}
