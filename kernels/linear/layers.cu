// Tangled from book/src/layers-gpu.md: edit there, or here and run cargo tangle stitch.
// Between wavefronts at the layers and the wavefront in the pupil.

#include "device/real.cuh"

/// A layer: points across its grid, and where its first wavefront starts among all.
struct Layer {
    int size, start;
};

// Gather all layers in the pupil
/// Wavefronts of all targets in the pupil, (targets, points, points), from those of all layers,
/// layer by layer (targets, size, size). Stencils: first (layers, points), weights (layers,
/// points, WIDTH).
extern "C" __global__ void gather_layers(
    const real *wavefronts, real *pupil, const Layer *layers, const int *first, const real *weights,
    int count, int points, int targets
) {
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= targets * points * points) return;
    int i = k % points, j = k / points % points, target = k / (points * points);
    real sum = 0;
    for (int l = 0; l < count; l++) {
        // Gather one layer with its stencil
        int size = layers[l].size, x = l * points + i, y = l * points + j;
        const real *field = wavefronts + layers[l].start + target * size * size;
        for (int b = 0; b < WIDTH; b++) {
            const real *row = field + min(first[y] + b, size - 1) * size;
            real along = 0;
            for (int a = 0; a < WIDTH; a++)
                along += weights[x * WIDTH + a] * row[min(first[x] + a, size - 1)];
            sum += weights[y * WIDTH + b] * along;
        }
    }
    pupil[k] = sum;
}

// Scatter the pupil to the layers
/// The transpose of gather_layers for layer l = blockIdx.y.
extern "C" __global__ void scatter_layers(
    const real *pupil, real *wavefronts, const Layer *layers, const int *first, const real *weights,
    int points, int targets
) {
    int k = blockIdx.x * blockDim.x + threadIdx.x, size = layers[blockIdx.y].size;
    if (k >= targets * size * size) return;
    int i = k % size, j = k / size % size, target = k / (size * size);
    first += blockIdx.y * points;
    weights += blockIdx.y * points * WIDTH;
    real sum = 0;
    for (int y = 0; y < points; y++) {
        int b = j - first[y];
        if (b < 0 || b >= WIDTH) continue;
        const real *row = pupil + (target * points + y) * points;
        for (int x = 0; x < points; x++) {
            int a = i - first[x];
            if (a < 0 || a >= WIDTH) continue;
            sum += weights[y * WIDTH + b] * weights[x * WIDTH + a] * row[x];
        }
    }
    wavefronts[layers[blockIdx.y].start + k] = sum;
}

// Scatter points one by one
/// What scatter_layers makes of a pupil that is 1 at one point and less by the mean elsewhere, for each of the points of
/// all targets from one on: vectors of `length` one behind the other. `mean` is what it makes of the mean in all pupils.
extern "C" __global__ void scatter_points(
    const real *mean, real *wavefronts, const Layer *layers, const int *first, const real *weights,
    int from, int points, int targets, int length
) {
    int k = blockIdx.x * blockDim.x + threadIdx.x, size = layers[blockIdx.y].size;
    if (k >= targets * size * size) return;
    int i = k % size, j = k / size % size, target = k / (size * size);
    int point = min(from + (int)blockIdx.z, targets * points * points - 1);
    int x = point % points, y = point / points % points, at = layers[blockIdx.y].start + k;
    real sum = 0;
    if (target == point / (points * points)) {
        int a = i - first[blockIdx.y * points + x], b = j - first[blockIdx.y * points + y];
        weights += (long long)blockIdx.y * points * WIDTH;
        if (0 <= a && a < WIDTH && 0 <= b && b < WIDTH)
            sum = weights[y * WIDTH + b] * weights[x * WIDTH + a];
        sum -= mean[at];
    }
    wavefronts[(long long)blockIdx.z * length + at] = sum;
}
