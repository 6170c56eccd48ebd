// Tangled from book/src/direct-gpu.md: edit there, or here and run cargo tangle stitch.
// Slope covariances by the direct method.

#include "device/real.cuh"
#include "turbulence/hessian.cuh"
#include "turbulence/phase.cuh"

// Layer pair in the direct kernels
constexpr int NEAR_LAGS = 8, WINDOW = 32;
constexpr int LINES = NEAR_LAGS + 2, EDGES = 2 * LINES * (LINES - 1);

/// First row, rows, first column and columns of a window of lags.
struct Window {
    int row, rows, column, columns;
};

/// Layer pair: parameters of a layer for a pair of sources; lengths in metres.
struct LayerPair {
    double x, y, side, strength, outer_scale;
    Phase phase;
    Window near, far;
};

// Sums and positions of a walk
/// Integrals along an edge: of S, rad^2 m, of u S, u from its start, rad^2 m^2, and of M, rad^2 m.
struct Edge {
    double half_structure, moment, half_mean;
};

/// Parameters of a thread for its walks along an edge: its panels, by their number modulo WALKERS,
/// and the node.
constexpr int WALKERS = 4;
struct Walk {
    double across, start, node, weight;
    int own, panel;
};

// Walk the panels of an edge
/// Adds a node of the walker's panels of the part lo <= |u| <= hi of an edge; u = sign |u|.
__device__ void walk(
    Edge *sum, Walk *walk, const LayerPair &view, const double *half_structures, const double *half_means,
    double lo, double hi, double sign
) {
    const unsigned whole = 1u << 30;
    const double unit = (hi - lo) / whole, finest = fmin(view.side, view.outer_scale) / 65536.0;
    const double square = walk->across * walk->across, far = 8.0 * view.outer_scale;
    unsigned place = 0, size = whole;
    while (place < whole) {
        const double from = lo + place * unit, length = size * unit;
        const double distance = square + from * from;
        const bool bends = length > view.outer_scale && distance < far * far;
        if ((length * length > distance && length > finest) || bends) {
            size >>= 1;
            continue;
        }
        if (walk->panel++ % WALKERS == walk->own) {
            // Add a node of the panel
            const double u = sign * (from + 0.5 * length * (1.0 + walk->node));
            const double weight = 0.5 * length * walk->weight;
            const double t = square + u * u, half_structure = weight * half_structure_of(half_structures, view.phase, t);
            sum->half_structure += half_structure;
            sum->moment += (u - walk->start) * half_structure;
            sum->half_mean += weight * half_structure_of(half_means, view.phase, t);
        }
        place += size;
        size = place & (~place + 1u);
    }
}

// Integrate all edges of layer pairs
constexpr int NODES = 10, SLOTS = 12, PARTS = SLOTS * WALKERS, EDGES_OF_BLOCK = 8;

/// Integrals (layer pairs, EDGES, 3) along the edges around the near lags; blocks along x for
/// edges, along y for layer pairs.
extern "C" __global__ void integrate_edges(
    const LayerPair *views, const double *half_structures, const double *half_means, const double *rule,
    double *edges
) {
    __shared__ double parts[3][PARTS][EDGES_OF_BLOCK];
    const LayerPair &view = views[blockIdx.y];
    const int lane = threadIdx.x % EDGES_OF_BLOCK, part = threadIdx.x / EDGES_OF_BLOCK;
    const int number = blockIdx.x * EDGES_OF_BLOCK + lane;
    // Locate the edge of this number
    const bool along_y = number < EDGES / 2;
    const int k = along_y ? number : number - EDGES / 2, lines = along_y ? LINES : LINES - 1;
    const int j = k / lines, i = k % lines;
    const bool empty = view.near.rows == 0 || view.near.columns == 0;
    const int last_line = (along_y ? view.near.columns : view.near.rows) + 1;
    const int last_cell = (along_y ? view.near.rows : view.near.columns);
    const int line = along_y ? i : j, cell = along_y ? j : i;
    const bool exists = number < EDGES && !empty && line <= last_line && cell <= last_cell;
    const double left = view.x + (view.near.column + i - 1) * view.side;
    const double low = view.y + (view.near.row + j - 1) * view.side;
    const double across = fabs(along_y ? left : low);
    const double start = along_y ? low : left, end = start + view.side;
    Edge sum = {0.0, 0.0, 0.0};
    const int node = part % SLOTS;
    if (exists && node < NODES) {
        Walk mine = {across, start, rule[node], rule[NODES + node], part / SLOTS, 0};
        if (end > 0.0) walk(&sum, &mine, view, half_structures, half_means, fmax(start, 0.0), end, 1.0);
        if (start < 0.0) walk(&sum, &mine, view, half_structures, half_means, fmax(-end, 0.0), -start, -1.0);
    }
    // Sum the nodes of each edge
    parts[0][part][lane] = sum.half_structure;
    parts[1][part][lane] = sum.moment;
    parts[2][part][lane] = sum.half_mean;
    __syncthreads();
    if (part < 3 && exists) {
        double total = 0.0;
    #pragma unroll
        for (int k = 0; k < PARTS; ++k) total += parts[part][k][lane];
        edges[3 * ((size_t)blockIdx.y * EDGES + number) + part] = total;
    }
}

// Combine edges into near lags
// Edges of a window by row and column
/// The edges of a layer pair, three integrals each, in the order of their numbers.
struct Lattice {
    const double *edges;

    __device__ Edge vertical(int j, int i) const { return at(j * LINES + i); }
    __device__ Edge horizontal(int j, int i) const { return at(EDGES / 2 + j * (LINES - 1) + i); }
    __device__ Edge at(int k) const {
        const Edge edge = {edges[3 * k], edges[3 * k + 1], edges[3 * k + 2]};
        return edge;
    }
};

// Combine edges into triangles and cells on the device
/// The triangle integral over two edges parallel to y, or to x, of length d; the weight rises on the first and
/// falls on the second.
__device__ inline double triangle_y(const Lattice &lattice, double d, int j, int i) {
    const Edge rising = lattice.vertical(j, i), falling = lattice.vertical(j + 1, i);
    return rising.moment + d * falling.half_structure - falling.moment;
}

__device__ inline double triangle_x(const Lattice &lattice, double d, int j, int i) {
    const Edge rising = lattice.horizontal(j, i), falling = lattice.horizontal(j, i + 1);
    return rising.moment + d * falling.half_structure - falling.moment;
}

/// The integral over the cell (j, i); (x, y) is the lower left corner of the cell (1, 1).
__device__ inline double cell(const Lattice &lattice, double d, double x, double y, int j, int i) {
    return (y + j * d) * lattice.horizontal(j + 1, i).half_mean
        - (y + (j - 1) * d) * lattice.horizontal(j, i).half_mean
        + (x + i * d) * lattice.vertical(j, i + 1).half_mean
        - (x + (i - 1) * d) * lattice.vertical(j, i).half_mean;
}

/// Covariances xx, xy, yy of one near lag, counted from the near window's first; rad^2 m^-2.
__device__ void near_average(
    const Lattice &lattice, const LayerPair &view, int j, int i, double covariance[3]
) {
    const double x = view.x + view.near.column * view.side;
    const double y = view.y + view.near.row * view.side;
    const double d = view.side;
    const double area = d * d, scale = 1.0 / (area * area);
    covariance[0] = scale
        * (triangle_y(lattice, d, j, i) - 2.0 * triangle_y(lattice, d, j, i + 1)
           + triangle_y(lattice, d, j, i + 2));
    covariance[1] = scale
        * (cell(lattice, d, x, y, j + 1, i + 1) - cell(lattice, d, x, y, j + 1, i)
           - cell(lattice, d, x, y, j, i + 1) + cell(lattice, d, x, y, j, i));
    covariance[2] = scale
        * (triangle_x(lattice, d, j, i) - 2.0 * triangle_x(lattice, d, j + 1, i)
           + triangle_x(lattice, d, j + 2, i));
}

// Average by Gauss on the device
/// Where the abscissae begin of the first rule that suffices at a distance in sides; its number of
/// nodes in *nodes.
__device__ inline int rule_for(double distance, const double *rules, int *nodes) {
    int at = 0;
    for (int k = 0; k < 3; ++k) {
        *nodes = (int)rules[at];
        if (k == 2 || distance >= rules[at + 1]) break;
        at += 2 + 2 * *nodes;
    }
    return at + 2;
}

/// H_xx, H_xy, H_yy at the displacement (x, y); rad^2 m^-2.
__device__ inline void gradients(const real *slopes, const LayerPair &view, real x, real y, real h[3]) {
    real rise, p = slope_over_distance(slopes, view.phase, x * x + y * y, &rise);
    hessian(p, rise, x, y, h);
}

// Average over a footprint by Gauss
constexpr int SHARE = 3;

/// Contribution of the rows own, own + SHARE, ... of the nodes to the average.
__device__ void gauss_average(
    const real *slopes, const LayerPair &view, const double *rules, double x, double y, int own,
    double covariance[3]
) {
    int nodes;
    const double *rule = rules + rule_for(sqrt(x * x + y * y) / view.side, rules, &nodes);
    real sum[3] = {0, 0, 0};
    for (int j = own; j < nodes; j += SHARE) {
        const real v = (real)(y + rule[j] * view.side), weight_v = (real)rule[nodes + j];
        for (int i = 0; i < nodes; ++i) {
            real h[3];
            gradients(slopes, view, (real)(x + rule[i] * view.side), v, h);
            const real weight = weight_v * (real)rule[nodes + i];
            for (int c = 0; c < 3; ++c) sum[c] += weight * h[c];
        }
    }
    for (int c = 0; c < 3; ++c) covariance[c] = sum[c];
}

// Fill the windows of all layer pairs
/// Exact covariances (layer pairs, 3, WINDOW, WINDOW) within the far windows, rad^2; blocks along
/// x: rows, along y: layer pairs.
extern "C" __global__ void fill_windows(
    const LayerPair *views, const double *edges, const real *slopes, const double *rules, real *windows
) {
    __shared__ double parts[SHARE][3][WINDOW];
    const LayerPair &view = views[blockIdx.y];
    const int row = blockIdx.x, column = threadIdx.x % WINDOW, own = threadIdx.x / WINDOW;
    const int j = view.far.row + row, i = view.far.column + column;
    const int near_j = j - view.near.row, near_i = i - view.near.column;
    double covariance[3] = {0.0, 0.0, 0.0};
    if (row < view.far.rows && column < view.far.columns) {
        if (near_j < 0 || near_j >= view.near.rows || near_i < 0 || near_i >= view.near.columns) {
            gauss_average(
                slopes, view, rules, view.x + i * view.side, view.y + j * view.side, own, covariance
            );
        } else if (own == 0) {
            const Lattice lattice = {edges + 3 * (size_t)blockIdx.y * EDGES};
            near_average(lattice, view, near_j, near_i, covariance);
        }
    }
    // Sum the shares of a lag
    for (int c = 0; c < 3; ++c) parts[own][c][column] = covariance[c];
    __syncthreads();
    double sum = 0.0; // of component `own`
    for (int k = 0; k < SHARE; ++k) sum += parts[k][own][column];
    windows += ((size_t)blockIdx.y * 3 + own) * WINDOW * WINDOW;
    windows[row * WINDOW + column] = (real)(view.strength * sum);
}

// Filter the lattice of a tile
constexpr int TILE_X = 32, TILE_Y = 16, NEIGHBOURS = 4, STRIP = 4;
constexpr int LATTICE_X = TILE_X + 2 * NEIGHBOURS, LATTICE_Y = TILE_Y + 2 * NEIGHBOURS;
constexpr int THREADS = 3 * TILE_X * TILE_Y / STRIP;

/// Gradients on the lattice of a tile, and the same after the filter along x; rad^2.
struct Tile {
    real lattice[3][LATTICE_Y][LATTICE_X];
    real along_x[3][LATTICE_Y][TILE_X];
};

// Sum gradients on a tile's lattice
/// Gradients on the lattice of the tile that begins at lag (j, i), summed over the layers of
/// the mask; rad^2.
__device__ void sum_gradients(
    Tile &tile, const LayerPair *views, unsigned mask, const real *slopes, double core, int j, int i
) {
    for (int k = threadIdx.x; k < LATTICE_Y * LATTICE_X; k += THREADS) {
        const int row = k / LATTICE_X, column = k % LATTICE_X;
        real sum[3] = {0, 0, 0};
        for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
            const LayerPair &view = views[__ffs((int)rest) - 1];
            const double x = view.x + (i + column - NEIGHBOURS) * view.side;
            const double y = view.y + (j + row - NEIGHBOURS) * view.side;
            if (fabs(x) < core * view.side && fabs(y) < core * view.side) continue;
            real h[3];
            gradients(slopes, view, (real)x, (real)y, h);
            for (int c = 0; c < 3; ++c) sum[c] += (real)view.strength * h[c];
        }
        for (int c = 0; c < 3; ++c) tile.lattice[c][row][column] = sum[c];
    }
}

// Filter a strip of twelve numbers
/// Four results of the filter from the twelve numbers around them.
__device__ inline void filter_strip(
    const real in[STRIP + 2 * NEIGHBOURS], const real *weights, real out[STRIP]
) {
#pragma unroll
    for (int k = 0; k < STRIP; ++k) {
        real sum = weights[0] * in[k + NEIGHBOURS];
#pragma unroll
        for (int n = 1; n <= NEIGHBOURS; ++n)
            sum += weights[n] * (in[k + NEIGHBOURS - n] + in[k + NEIGHBOURS + n]);
        out[k] = sum;
    }
}

// Filter a tile along both axes
/// Filters the lattice along x.
__device__ void filter_along_x(Tile &tile, const real *weights) {
    for (int k = threadIdx.x; k < 3 * LATTICE_Y * TILE_X / STRIP; k += THREADS) {
        const int strip = k % (TILE_X / STRIP), line = k / (TILE_X / STRIP);
        const int c = line / LATTICE_Y, row = line % LATTICE_Y;
        real in[STRIP + 2 * NEIGHBOURS], out[STRIP];
#pragma unroll
        for (int n = 0; n < STRIP + 2 * NEIGHBOURS; ++n)
            in[n] = tile.lattice[c][row][STRIP * strip + n];
        filter_strip(in, weights, out);
#pragma unroll
        for (int n = 0; n < STRIP; ++n) tile.along_x[c][row][STRIP * strip + n] = out[n];
    }
}

// Filter the strip of a thread along y
/// Filters along y the strip of component c that belongs to this thread.
__device__ void filter_along_y(
    const Tile &tile, const real *weights, int c, int row, int column, real out[STRIP]
) {
    real in[STRIP + 2 * NEIGHBOURS];
#pragma unroll
    for (int n = 0; n < STRIP + 2 * NEIGHBOURS; ++n) in[n] = tile.along_x[c][row + n][column];
    filter_strip(in, weights, out);
}

// Add the windows of a layer
/// Whether a tile that begins at lag (j, i) meets a window.
__device__ inline bool meets(const Window &window, int j, int i) {
    return window.row < j + TILE_Y && j < window.row + window.rows && window.column < i + TILE_X
        && i < window.column + window.columns;
}

/// Adds a layer to a strip: the values of its window inside the window, filtered ones elsewhere.
__device__ void add_masked(
    const LayerPair &view, const real *window, int j, int i, const real filtered[STRIP], real sum[STRIP]
) {
#pragma unroll
    for (int k = 0; k < STRIP; ++k) {
        const int row = j + k - view.far.row, column = i - view.far.column;
        const bool inside =
            row >= 0 && row < view.far.rows && column >= 0 && column < view.far.columns;
        sum[k] += inside ? window[row * WINDOW + column] : filtered[k];
    }
}

// Compute the lags of a tile
/// Covariances (pairs, 3, lags, lags) of all lags, rad^2; blocks along x and y for tiles, along
/// z for pairs.
extern "C" __global__ void compute_lags(
    const LayerPair *views, int layers, const real *slopes, const double *constants, const real *windows,
    real *covariance, int lags
) {
    __shared__ Tile tile;
    real weights[NEIGHBOURS + 1], sum[STRIP] = {}, filtered[STRIP] = {};
    for (int k = 0; k <= NEIGHBOURS; ++k) weights[k] = (real)constants[1 + k];
    const int i = blockIdx.x * TILE_X, j = blockIdx.y * TILE_Y, strip = threadIdx.x / TILE_X;
    const int column = threadIdx.x % TILE_X;
    const int row = strip % (TILE_Y / STRIP) * STRIP, c = strip / (TILE_Y / STRIP);
    views += (size_t)blockIdx.z * layers;
    windows += ((size_t)blockIdx.z * layers * 3 + c) * WINDOW * WINDOW;
    for (int first = 0; first < layers; first += 32) {
        // Sort up to 32 layers by their windows
        unsigned free = 0, covered = 0;
        const int count = layers - first < 32 ? layers - first : 32;
        for (int l = 0; l < count; ++l) {
            const Window &far = views[first + l].far;
            if (!meets(far, j, i)) free |= 1u << l;
            const int bottom = min(j + TILE_Y, lags), right = min(i + TILE_X, lags);
            if (far.row <= j && bottom <= far.row + far.rows && far.column <= i
                && right <= far.column + far.columns)
                covered |= 1u << l;
        }
        // Filter the layers of a tile
        for (int l = -1; l < count; ++l) {
            if (l >= 0 && (free >> l & 1u)) continue;
            const unsigned mask = l < 0 ? free : (covered >> l & 1u) ? 0u : 1u << l;
            if (mask != 0) {
                __syncthreads();
                sum_gradients(tile, views + first, mask, slopes, constants[0], j, i);
                __syncthreads();
                filter_along_x(tile, weights);
                __syncthreads();
                filter_along_y(tile, weights, c, row, column, filtered);
            }
            if (l >= 0) {
                const real *window = windows + (size_t)(first + l) * 3 * WINDOW * WINDOW;
                add_masked(views[first + l], window, j + row, i + column, filtered, sum);
            } else if (mask != 0) {
                for (int k = 0; k < STRIP; ++k) sum[k] += filtered[k];
            }
        }
    }
    covariance += (((size_t)blockIdx.z * 3 + c) * lags + j + row) * lags + i + column;
    for (int k = 0; k < STRIP; ++k)
        if (j + row + k < lags && i + column < lags) covariance[(size_t)k * lags] = sum[k];
}
