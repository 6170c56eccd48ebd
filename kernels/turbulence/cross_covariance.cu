// Tangled from book/src/dense-gpu.md: edit there, or here and run cargo tangle stitch.
// Slope covariances pair by pair.

#include "device/real.cuh"
#include "turbulence/hessian.cuh"
#include "turbulence/phase.cuh"
#include "turbulence/places.cuh"

// Layer pair in the dense kernel
constexpr int RULES = 6, PANEL = 10;

/// Layer pair: parameters of a layer for two sensors; lengths in metres.
struct LayerPair {
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

// Averages of two footprints in kernels
// Integrate along a line by one thread
/// Integral of a table's function along a line that passes the origin at the distance across, u
/// from start to end; in *moment that of (u - start) times the function.
__device__ double along_line(
    const double *table, const LayerPair &view, const double *rule, double across, double start,
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
                const double f = 0.5 * length * rule[PANEL + k] * half_structure_of(table, view.phase, square + u * u);
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
    const double *half_means, const LayerPair &view, const double *rule, double d, double other,
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
    const double *half_structures, const LayerPair &view, const double *rule, double px, double py, double qx,
    double qy, double first, double last
) {
    const double dx = qx - px, dy = qy - py, length = sqrt(dx * dx + dy * dy);
    if (length == 0.0) return 0.0;
    const double x = dx / length, y = dy / length, start = px * x + py * y;
    double moment;
    const double half_structure =
        along_line(half_structures, view, rule, px * y - py * x, start, start + length, &moment);
    return (first * half_structure + (last - first) / length * moment) / length;
}

// Strips of two edges on the device
/// The sum of e f W for the component along x, of edges that run along y.
__device__ double strips(
    const double *half_structures, const LayerPair &view, const double *rule, double x, double y, double s
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
                    half_structures, view, rule, across - t * s, along + from, across - u * s, along + to, high - low,
                    higher - lower
                );
        }
    }
    return sum;
}

// Covariance of two lenslets on the device
/// c_ab of two footprints that are near, by edges, without the quarter turns.
__device__ void by_edges(
    const double *half_structures, const double *half_means, const LayerPair &view, const double *rule,
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
        c[0] = -strips(half_structures, view, rule, x, y, sin) / squares;
        c[3] = -strips(half_structures, view, rule, y, x, -sin) / squares;
    } else {
        c[0] = (u[0] - v[0]) / (sin * squares);
        c[3] = (v[1] - u[1]) / (sin * squares);
    }
}

// Average by nodes on the device
/// c_ab of two footprints that are not near, by the nodes of a rule, without the quarter turns.
__device__ void by_nodes(
    const real *slopes, const LayerPair &view, const real *nodes, double x, double y, double c[4]
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
    __device__ bool near(const LayerPair &view, int j, int i, int l, int k, double &x, double &y) const {
        const double u = there[k], v = there[across_there + l];
        x = view.turn[0] * u + view.turn[2] * v - here[i];
        y = view.turn[1] * u + view.turn[3] * v - here[across_here + j];
        return fmax(fabs(x), fabs(y)) < view.box || x * x + y * y < view.disc * view.disc;
    }

    // Find where near lenslets begin
    /// The first row and column of the square of so many lenslets of the second that can be near (j, i).
    __device__ void nearby(const LayerPair &view, int j, int i, int box, int &row, int &column) const {
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
/// c of the pairs that are near, by layer, lenslet of the first sensor, and position in its square.
extern "C" __global__ void __launch_bounds__(64, 6) near_pairs(
    const LayerPair *views, const double *centres, const int *first, int across_first,
    int across_second, int around, const double *half_structures, const double *half_means, const double *rule,
    double *near
) {
    const int row = blockIdx.x, layer = blockIdx.y;
    const LayerPair &view = views[layer];
    const Places places(centres, layer, across_first, across_second);
    const int j = first[2 * row], i = first[2 * row + 1];
    int low, left;
    places.nearby(view, j, i, around, low, left);
    double *found = near + ((size_t)layer * gridDim.x + row) * around * around * 4;
    for (int k = threadIdx.x; k < around * around; k += blockDim.x) {
        double x, y;
        if (places.near(view, j, i, low + k / around, left + k % around, x, y)) {
            by_edges(half_structures, half_means, view, rule, x, y, found + 4 * k);
        }
    }
}

// Put a pair of lenslets into the matrix
/// Adds c of two sensors, without their quarter turns, times the strength of a layer.
__device__ void add_turned(int quarters, double strength, const double c[4], double sum[4]) {
    const bool odd = quarters & 1;
    const double of_x = quarters & 2 ? -strength : strength, of_y = odd ? -of_x : of_x;
    for (int a = 0; a < 4; a += 2) {
        sum[a] += of_x * (odd ? c[a + 1] : c[a]);
        sum[a + 1] += of_y * (odd ? c[a] : c[a + 1]);
    }
}

// Fill a block of two sensors
/// Covariances of the slopes of some lenslets of one sensor with those of another, in a matrix with
/// rows of `pitch` numbers. The second ones are given by row, column, and the places of their x and y
/// slopes in a row, less than 0 for a slope that is not stored; y slopes of the first are `height` rows below
/// their x slopes. `centres` has for each layer the coordinates
/// along x and y of the first sensor's `across_first` columns and rows, then of the second's;
/// lenslets are rows and columns.
extern "C" __global__ void __launch_bounds__(128, 3) dense_block(
    const LayerPair *views, int layers, const double *centres, const int *first, const int *second,
    int across_first, int across_second, int columns, int pitch, int height, const real *slopes,
    const real *nodes, int around, const double *near, real *values
) {
    const int row = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    const int j = first[2 * row], i = first[2 * row + 1];
    const int l = second[4 * column], k = second[4 * column + 1];
    double sum[4] = {0.0, 0.0, 0.0, 0.0};
    for (int layer = 0; layer < layers; ++layer) {
        const LayerPair &view = views[layer];
        const Places places(centres, layer, across_first, across_second);
        // Average the layer over two lenslets
        double x, y, c[4];
        if (places.near(view, j, i, l, k, x, y)) {
            int low, left;
            places.nearby(view, j, i, around, low, left);
            const size_t square = ((size_t)layer * gridDim.y + row) * around * around;
            const double *found = near + 4 * (square + (l - low) * around + k - left);
            for (int n = 0; n < 4; ++n) c[n] = found[n];
        } else {
            by_nodes(slopes, view, nodes, x, y, c);
        }
        add_turned(view.quarters, view.strength, c, sum);
    }
    put(sum, second + 4 * column, row, pitch, height, values);
}

// Kernels of tables of parallel footprints
// Layer pair with tables in kernels
/// Coefficients of a polynomial, and numbers of a panel of a line: for each power xx, xy and yy.
constexpr int POWERS = 10, PANEL_OF_LINE = 3 * POWERS;

/// Layer pair of two sensors with parallel footprints; lengths in metres.
struct TableView {
    /// As in `LayerPair`.
    double turn[4];
    /// Half the sum and half the difference of the sides.
    double wide, flat;
    /// By what c is multiplied, and half the square in which corners serve.
    double strength, near;
    /// Where the ends of panels and the coefficients begin, and how many panels there are along an
    /// axis: of displacements, and of corners.
    int ends[2], coefficients[2], panels[2];
    int quarters;
    /// Rows of the second sensor that can be near a row of the first, at most.
    int box;
    /// Columns of either sensor.
    int across[2];
};

// Take parallel lenslets apart
/// The displacement along an axis from the first's line of that axis to the second's line along it.
__device__ double apart(const Places &places, const TableView &view, int axis, int from, int to) {
    const double *there = places.there, *across = places.there + places.across_there;
    const double second = view.turn[axis] * there[to] + view.turn[axis + 2] * across[to];
    return second - places.here[axis * places.across_here + from];
}

// Find a coordinate on its panel
/// A coordinate on its panel, from -1 to 1; bit 0 of `kind` says that it is negative, bit 1 that it is near.
struct alignas(16) PlaceOnPanel {
    double z;
    int panel, kind;
};

/// Where a coordinate is among the panels of displacements (0) or of corners (1).
__device__ PlaceOnPanel on_panel(
    const double *tables, const TableView &view, int which, double x
) {
    const double *ends = tables + view.ends[which], size = fabs(x);
    int low = 0, high = view.panels[which] - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (ends[middle] <= size) low = middle;
        else high = middle - 1;
    }
    const double from = ends[low], to = ends[low + 1];
    return {(2.0 * size - from - to) / (to - from), low, (x < 0.0) + 2 * (size < view.near)};
}

// Place columns on panels
/// Where the displacements of columns are on panels, by layer, column of the first, and of the second.
extern "C" __global__ void place_columns(
    const TableView *views, const double *centres, const double *tables, PlaceOnPanel *along
) {
    const TableView &view = views[blockIdx.y];
    const int first = view.across[0], second = view.across[1];
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= first * second) return;
    const Places places(centres, blockIdx.y, first, second);
    const double x = apart(places, view, 0, k / second, k % second);
    along[(size_t)blockIdx.y * first * second + k] = on_panel(tables, view, 0, x);
}

// Make lines of polynomials
// Number of a line from its table
/// A number of the line at a coordinate along y: the polynomial in y that is its coefficient.
__device__ double on_table(
    const double *tables, const TableView &view, int which, const PlaceOnPanel &place, int n
) {
    const int power = n / 3, component = n % 3, across = POWERS * view.panels[which];
    const double *c = tables + view.coefficients[which] + 4 * power + component;
    c += (size_t)4 * POWERS * across * place.panel;
    double sum = 0.0;
    for (int k = POWERS - 1; k >= 0; --k) sum = sum * place.z + c[(size_t)4 * across * k];
    return component == 1 && (place.kind & 1) ? -sum : sum;
}

/// Lines of displacements, each `length` long, by layer, row of the first from `first_row` on, and
/// row of the second; and those of corners by the number of that row modulo the box.
extern "C" __global__ void __launch_bounds__(128) lay_lines(
    const TableView *views, const double *centres, const double *tables, int first_row, real *lines,
    int length, double *near_lines, int near_length
) {
    const int other = blockIdx.x, layer = blockIdx.z;
    const TableView &view = views[layer];
    const Places places(centres, layer, view.across[0], view.across[1]);
    const double y = apart(places, view, 1, first_row + blockIdx.y, other);
    const size_t row = (size_t)layer * gridDim.y + blockIdx.y;
    real *line = lines + (row * view.across[1] + other) * length;
    const PlaceOnPanel place = on_panel(tables, view, 0, y);
    for (int n = threadIdx.x; n < PANEL_OF_LINE * view.panels[0]; n += blockDim.x) {
        line[n] = (real)(view.strength * on_table(tables, view, 0, place, n));
    }
    // Make the line of corners
    if (!(place.kind & 2)) return;
    double *near_line = near_lines + (row * view.box + other % view.box) * near_length;
    const PlaceOnPanel edges[4] = {
        on_panel(tables, view, 1, y - view.wide), on_panel(tables, view, 1, y - view.flat),
        on_panel(tables, view, 1, y + view.flat), on_panel(tables, view, 1, y + view.wide)
    };
    for (int n = threadIdx.x; n < PANEL_OF_LINE * view.panels[1]; n += blockDim.x) {
        const double outer =
            on_table(tables, view, 1, edges[0], n) + on_table(tables, view, 1, edges[3], n);
        const double inner =
            on_table(tables, view, 1, edges[1], n) + on_table(tables, view, 1, edges[2], n);
        near_line[n] = view.strength * (outer - inner);
    }
}

// Polynomials of a panel at a position
/// Adds xx, xy and yy of a panel at a position on it, times a sign.
template <typename T>
__device__ void add_panel(const T *panel, const PlaceOnPanel &place, double sign, double sum[3]) {
    const T z = (T)place.z;
    T c[3] = {0, 0, 0};
    #pragma unroll 5
    for (int power = POWERS - 1; power >= 0; --power) {
        for (int n = 0; n < 3; ++n) c[n] = c[n] * z + panel[3 * power + n];
    }
    sum[0] += sign * c[0];
    sum[1] += (place.kind & 1 ? -sign : sign) * c[1];
    sum[2] += sign * c[2];
}

// Fill a block from its lines
/// Covariances of two sensors' slopes, arranged as by `dense_block`, by lines for `line_rows` rows of lenslets from `first_row` on.
extern "C" __global__ void __launch_bounds__(128, 6) tabled_block(
    const TableView *views, int layers, const double *centres, const int *first, const int *second,
    int columns, int pitch, int height, const double *tables, const PlaceOnPanel *along,
    int first_row, int line_rows, const real *lines, int length, const double *near_lines,
    int near_length, real *values
) {
    // Lenslets of a thread and their coordinates
    const int row = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    const int j = first[2 * row], i = first[2 * row + 1];
    const int l = second[4 * column], k = second[4 * column + 1];
    const bool odd = views[0].quarters & 1;
    const int across = odd ? l : k, up = odd ? k : l;
    double sum[3] = {0.0, 0.0, 0.0};
    for (int layer = 0; layer < layers; ++layer) {
        const TableView &view = views[layer];
        const Places places(centres, layer, view.across[0], view.across[1]);
        const size_t line_row = (size_t)layer * line_rows + j - first_row;
        const size_t columns_before = (size_t)layer * view.across[0] + i;
        const PlaceOnPanel place = along[columns_before * view.across[1] + across];
        if ((place.kind & 2) && fabs(apart(places, view, 1, j, up)) < view.near) {
            // Add the sum over corners
            const double x = apart(places, view, 0, i, across);
            const double *line = near_lines + (line_row * view.box + up % view.box) * near_length;
            #pragma unroll 1
            for (int corner = 0; corner < 4; ++corner) {
                const bool outer = corner == 0 || corner == 3;
                const double offset = outer ? view.wide : view.flat;
                const PlaceOnPanel edge = on_panel(tables, view, 1, x + (corner < 2 ? -offset : offset));
                add_panel(line + PANEL_OF_LINE * edge.panel, edge, outer ? 1.0 : -1.0, sum);
            }
        } else {
            // Add the value of a line
            const real *line = lines + (line_row * view.across[1] + up) * length;
            add_panel(line + PANEL_OF_LINE * place.panel, place, 1.0, sum);
        }
    }
    // Rotate a pair and store it
    const double c[4] = {sum[0], sum[1], sum[1], sum[2]};
    double turned[4] = {0.0, 0.0, 0.0, 0.0};
    add_turned(views[0].quarters, 1.0, c, turned);
    put(turned, second + 4 * column, row, pitch, height, values);
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
    const double xy = scale * lag[lags * lags];
    const double c[4] = {scale * lag[0], xy, xy, scale * lag[2 * lags * lags]};
    put(c, second + 4 * column, row, pitch, height, values);
}
