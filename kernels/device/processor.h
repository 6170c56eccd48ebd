// Tangled from book/src/kernel-language.md: edit there, or here and run cargo tangle stitch.
// CUDA's words for a C++ compiler; processor.cpp does what they say.

#include <stddef.h>
#include <stdint.h>

// Words of the kernel language
#define __global__
#define __device__
#define __host__
#define __forceinline__
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
#define __constant__ static
#define __shared__ static __attribute__((section("shared_memory")))
#define UNWATCHED __attribute__((no_sanitize("thread")))
#define HIDDEN __attribute__((visibility("hidden")))

// Vectors of two to four numbers
struct uint3 {
    unsigned x, y, z;
};
typedef uint3 dim3;
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};

inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }

extern const HIDDEN uint3 threadIdx, blockIdx;
extern const HIDDEN dim3 blockDim, gridDim;
static const int warpSize = 32;

namespace processor {
// What kernels ask of the processor
/// What a thread does: it can run, or waits for its block or its warp, or is through.
enum State { ready, at_block, at_warp, finished };
/// Waits where a line of the source says.
HIDDEN void wait(State where, int line);

extern HIDDEN unsigned char dynamic_shared[];

struct Launch;
/// Launches a kernel that takes its arguments from a list; says what went wrong, or nothing.
HIDDEN const char *run(const Launch &launch, void (*kernel)(void **));

// Exchange of values by their bytes
/// Where an exchange takes its value from, by the lane.
enum Shuffle { of_lane, from_below, from_above, across };
/// The bytes of a value.
struct Bytes {
    uint64_t words[2];
};
/// Gives a value to the warp; what another lane has given.
HIDDEN Bytes exchange_bytes(int line, Shuffle shuffle, unsigned mask, int by, int width, Bytes given);

template <typename T>
inline T exchange(int line, Shuffle shuffle, unsigned mask, T value, int by, int width = warpSize) {
    static_assert(sizeof(T) <= 16 && __is_trivially_copyable(T), "too large to exchange");
    Bytes bytes = {};
    __builtin_memcpy(&bytes, &value, sizeof value);
    bytes = exchange_bytes(line, shuffle, mask, by, width, bytes);
    __builtin_memcpy(&value, &bytes, sizeof value);
    return value;
}

// Arguments by their types
template <typename T> UNWATCHED T next(void **&values) { return *static_cast<T *>(*values++); }
template <typename... T> struct Call {
    UNWATCHED Call(void (*kernel)(T...), T... values) { kernel(values...); }
};
template <typename... T> UNWATCHED void call(void (*kernel)(T...), void **values) {
    Call<T...>{kernel, next<T>(values)...};
}
} // namespace processor

// Barriers and exchanges by their names
#define __syncthreads() processor::wait(processor::at_block, __LINE__)
#define __syncwarp(...) processor::wait(processor::at_warp, __LINE__)
#define __shfl_sync(...) processor::exchange(__LINE__, processor::of_lane, __VA_ARGS__)
#define __shfl_up_sync(...) processor::exchange(__LINE__, processor::from_below, __VA_ARGS__)
#define __shfl_down_sync(...) processor::exchange(__LINE__, processor::from_above, __VA_ARGS__)
#define __shfl_xor_sync(...) processor::exchange(__LINE__, processor::across, __VA_ARGS__)

// Entry point of a kernel
#define KERNEL_ON_PROCESSOR(name) \
    extern "C" const char *name##_on_processor(const processor::Launch &launch) { \
        return processor::run(launch, [](void **values) { processor::call(name, values); }); \
    }
