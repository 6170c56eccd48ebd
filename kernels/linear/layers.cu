// Tangled from book/src/estimate-gpu.md: edit there, or here and run cargo tangle stitch.
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
