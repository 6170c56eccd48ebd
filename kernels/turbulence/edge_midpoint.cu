// Tangled from book/src/edge-midpoint-gpu.md: edit there, or here and run cargo tangle stitch.
// Covariances of slopes between midpoints of edges, pair by pair.

#include "device/real.cuh"
#include "numerics/radial_table.cuh"
#include "turbulence/places.cuh"

// Layer pair in the midpoint kernels
/// Layer pair: parameters of a layer for two sensors; lengths in metres.
struct LayerPair {
    /// Centres of the lenslets [0, 0], and steps along a row and along a column, of the first and the second.
    double corners[2][2], steps[2][2][2];
    /// Half sides of the footprints.
    double halves[2];
    /// By what differences of S are multiplied, and the least squared distance in its table.
    double strength, least;
    /// Where the table begins, and the numbers of its first and last segment.
    int table, first, last;
    /// Whether both sensors share a lattice on the layer.
    int together;

    /// A coordinate of the centre of a footprint.
    __device__ double centre(int sensor, int axis, int row, int column) const {
        const double *along = steps[sensor][0], *up = steps[sensor][1];
        return corners[sensor][axis] + column * along[axis] + row * up[axis];
    }
};

// Four points on a device
/// S in rad² at a displacement.
__device__ double half_structure(const double *tables, const LayerPair &view, double x, double y) {
    double slope;
    const double t = fmax(x * x + y * y, view.least);
    return look_up(tables + 8 * (size_t)view.table, view.first, view.last, t, &slope);
}

/// Adds xx, xy, yx and yy of a layer at a displacement of two lenslets.
__device__ void add_four_points(
    const double *tables, const LayerPair &view, double x, double y, double sum[4]
) {
    for (int a = 0; a < 2; ++a) {
        const double along_x = a == 0 ? view.halves[0] : 0.0, along_y = a == 1 ? view.halves[0] : 0.0;
        for (int b = 0; b < 2; ++b) {
            const double u = b == 0 ? view.halves[1] : 0.0, v = b == 1 ? view.halves[1] : 0.0;
            const double ahead = half_structure(tables, view, x + along_x + u, y + along_y + v)
                - half_structure(tables, view, x + along_x - u, y + along_y - v);
            const double behind = half_structure(tables, view, x - along_x - u, y - along_y - v)
                - half_structure(tables, view, x - along_x + u, y - along_y + v);
            sum[2 * a + b] += view.strength * (ahead + behind);
        }
    }
}

// Sum four points by displacement
/// xx, xy, yx and yy by displacement in rows and columns, `lags` of each, of the layers on which both sensors share a lattice.
extern "C" __global__ void four_points_by_lag(
    const LayerPair *views, int layers, const double *tables, int lenslets, int lags, double *sums
) {
    const int lag = blockIdx.x * blockDim.x + threadIdx.x;
    if (lag >= lags * lags) return;
    const int row = lag / lags - (lenslets - 1), column = lag % lags - (lenslets - 1);
    double sum[4] = {0.0, 0.0, 0.0, 0.0};
    for (int layer = 0; layer < layers; ++layer) {
        const LayerPair &view = views[layer];
        if (!view.together) continue;
        const double x = view.centre(1, 0, row, column) - view.corners[0][0];
        const double y = view.centre(1, 1, row, column) - view.corners[0][1];
        add_four_points(tables, view, x, y, sum);
    }
    for (int n = 0; n < 4; ++n) sums[4 * lag + n] = sum[n];
}

// Fill a block by four points
/// Covariances of the slopes of some lenslets of one sensor with those of another, arranged as by `dense_block`; `sums` are those of
/// `four_points_by_lag`.
extern "C" __global__ void four_points_block(
    const LayerPair *views, int layers, const double *tables, const double *sums, int lenslets, int lags,
    const int *first, const int *second, int columns, int pitch, int height, real *values
) {
    const int row = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    const int j = first[2 * row], i = first[2 * row + 1];
    const int l = second[4 * column], k = second[4 * column + 1];
    const double *lag = sums + 4 * ((l - j + lenslets - 1) * lags + k - i + lenslets - 1);
    double sum[4] = {lag[0], lag[1], lag[2], lag[3]};
    for (int layer = 0; layer < layers; ++layer) {
        const LayerPair &view = views[layer];
        if (view.together) continue;
        const double x = view.centre(1, 0, l, k) - view.centre(0, 0, j, i);
        const double y = view.centre(1, 1, l, k) - view.centre(0, 1, j, i);
        add_four_points(tables, view, x, y, sum);
    }
    put(sum, second + 4 * column, row, pitch, height, values);
}
