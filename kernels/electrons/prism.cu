// Tangled from book/src/prism-gpu.md: edit there, or here and run cargo tangle stitch.
// Probes as sums of beams in windows.
#include "linear/short_transforms.cuh"

// Weigh the beams of probes
/// Amplitudes (w, count) of the beams of probes at places x, y [cells of the window], for the beams' indices (count, 2).
extern "C" __global__ void weigh_beams(
    Complex *weights, const Complex *__restrict__ probe, const int *__restrict__ beams,
    const double2 *__restrict__ places, int count
) {
    const int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= count) return;
    const double2 place = places[blockIdx.y];
    const double turns = beams[2 * b] * place.x + beams[2 * b + 1] * place.y;
    double sine, cosine;
    sincospi(-2 * (turns - floor(turns)), &sine, &cosine);
    weights[(size_t)blockIdx.y * count + b] = times<1>(Complex{(real)cosine, (real)sine}, probe[b]);
}

// Sum the beams of probes
/// Sums (w, wide_y, wide_x) of `count` planes (ny, nx) in the windows that begin at pixels x, y.
extern "C" __global__ void sum_beams(
    Complex *sums, const Complex *__restrict__ planes, const Complex *__restrict__ weights,
    const int *__restrict__ firsts, int count, int nx, int ny, int wide_x, int wide_y
) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= wide_x * wide_y) return;
    const int *first = firsts + 2 * blockIdx.y;
    const int apart_x = (k % wide_x - first[0] % wide_x + wide_x) % wide_x;
    const int apart_y = (k / wide_x - first[1] % wide_y + wide_y) % wide_y;
    const int x = (first[0] + apart_x) % nx, y = (first[1] + apart_y) % ny;
    const Complex *plane = planes + (size_t)y * nx + x;
    const Complex *weight = weights + (size_t)blockIdx.y * count;
    const size_t next = (size_t)nx * ny;
    Complex sum = {0, 0};
    for (int b = 0; b < count; b++) sum = plus(sum, times<1>(weight[b], plane[b * next]));
    sums[(size_t)blockIdx.y * wide_x * wide_y + k] = sum;
}

// Transform the windows of probes
/// Transforms `count` rows of LENGTH numbers in place.
extern "C" __global__ __launch_bounds__(TEAM) void transform_rows(
    Complex *sums, const Complex *__restrict__ roots, int count
) {
    const int first = blockIdx.x * ROWS;
    Complex *rows = sums + (size_t)first * LENGTH;
    auto load = [&](int f, auto a, int b) {
        return first + f < count ? rows[f * LENGTH + a.value * REST + b] : Complex{0, 0};
    };
    auto store = [&](int f, int k, Complex value) {
        if (first + f < count) rows[f * LENGTH + k] = value;
    };
    Complex *work = reinterpret_cast<Complex *>(memory);
    transform<-1, ROWS, TEAM, false>(work, roots, load, store);
}

// Transform the columns of windows
/// Transforms the columns of planes (w, LENGTH, nx) in place.
extern "C" __global__ __launch_bounds__(TEAM) void transform_columns(
    Complex *sums, const Complex *__restrict__ roots, int nx
) {
    const int first = blockIdx.x * ROWS;
    Complex *plane = sums + (size_t)blockIdx.y * LENGTH * nx + first;
    auto load = [&](int f, auto a, int b) {
        return first + f < nx ? plane[(size_t)(a.value * REST + b) * nx + f] : Complex{0, 0};
    };
    auto store = [&](int f, int k, Complex value) {
        if (first + f < nx) plane[(size_t)k * nx + f] = value;
    };
    Complex *work = reinterpret_cast<Complex *>(memory);
    transform<-1, ROWS, TEAM, true>(work, roots, load, store);
}

// Turn spectra of beams into planes
/// Turns `count` rows of LENGTH frequencies, each times a factor, into samples, in place.
extern "C" __global__ __launch_bounds__(TEAM) void back_along_rows(
    Complex *planes, const Complex *__restrict__ factors, const Complex *__restrict__ roots, int count
) {
    const int first = blockIdx.x * ROWS;
    Complex *rows = planes + (size_t)first * LENGTH;
    auto load = [&](int f, auto a, int b) {
        const int k = a.value * REST + b;
        return first + f < count ? times<1>(factors[k], rows[f * LENGTH + k]) : Complex{0, 0};
    };
    auto store = [&](int f, int x, Complex value) {
        if (first + f < count) rows[f * LENGTH + x] = value;
    };
    Complex *work = reinterpret_cast<Complex *>(memory);
    transform<1, ROWS, TEAM, false>(work, roots, load, store);
}

// Back along columns of beams
/// Turns columns of planes (w, LENGTH, nx) of frequencies, each times a factor, into samples, in place.
extern "C" __global__ __launch_bounds__(TEAM) void back_along_columns(
    Complex *planes, const Complex *__restrict__ factors, const Complex *__restrict__ roots, int nx
) {
    const int first = blockIdx.x * ROWS;
    Complex *plane = planes + (size_t)blockIdx.y * LENGTH * nx + first;
    auto load = [&](int f, auto a, int b) {
        const int k = a.value * REST + b;
        return first + f < nx ? times<1>(factors[k], plane[(size_t)k * nx + f]) : Complex{0, 0};
    };
    auto store = [&](int f, int y, Complex value) {
        if (first + f < nx) plane[(size_t)y * nx + f] = value;
    };
    Complex *work = reinterpret_cast<Complex *>(memory);
    transform<1, ROWS, TEAM, true>(work, roots, load, store);
}
