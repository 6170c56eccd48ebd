// Tangled from book/src/kernel-emulator.md: edit there, or here and run cargo tangle stitch.
// CUDA's words for a C++ compiler: a launch runs on the processor, thread by thread, watched.

// What the C++ library brings
#include <math.h>

#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#include <ucontext.h>

// Words of the kernel language
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
#define __constant__ static
#define __shared__ static __attribute__((section("shared_memory")))
#define UNWATCHED __attribute__((no_sanitize("thread"), noinline))

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

static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
static const int warpSize = 32;

// Mathematics that C++ lacks
#define rsqrt inverse_root
#define rsqrtf inverse_root
#define sinpi sine_of_half_turns
#define sinpif sine_of_half_turns
#define cospi cosine_of_half_turns
#define cospif cosine_of_half_turns
#define sincospi both_of_half_turns
#define sincospif both_of_half_turns

inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float rsqrt(float x) { return float(1 / sqrt(double(x))); }
inline void sincos(float x, float *sine, float *cosine) { *sine = sinf(x), *cosine = cosf(x); }
template <typename T> T __ldg(const T *address) { return *address; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }

// Bits of floating-point numbers
inline long long __double_as_longlong(double x) {
    long long y;
    memcpy(&y, &x, 8);
    return y;
}
inline int __float_as_int(float x) {
    int y;
    memcpy(&y, &x, 4);
    return y;
}
inline float __int_as_float(int x) {
    float y;
    memcpy(&y, &x, 4);
    return y;
}

// Sine and cosine of half turns
UNWATCHED inline void sincospi(double x, double *sine, double *cosine) {
    double quarters = nearbyint(2 * x), rest = M_PI * (x - quarters / 2);
    double s = sin(rest), c = cos(rest);
    switch (int(quarters - 4 * floor(quarters / 4))) {
    case 0: *sine = s, *cosine = c; break;
    case 1: *sine = c, *cosine = -s; break;
    case 2: *sine = -s, *cosine = -c; break;
    default: *sine = -c, *cosine = s;
    }
}
inline void sincospi(float x, float *sine, float *cosine) {
    double s, c;
    sincospi(double(x), &s, &c);
    *sine = float(s), *cosine = float(c);
}

// Sine or cosine alone
template <typename T> T sinpi(T x) {
    T s, c;
    sincospi(x, &s, &c);
    return s;
}
template <typename T> T cospi(T x) {
    T s, c;
    sincospi(x, &s, &c);
    return c;
}

// Least and most of two numbers
#define LEAST_AND_MOST(type) \
    inline type min(type a, type b) { return b < a ? b : a; } \
    inline type max(type a, type b) { return a < b ? b : a; }
LEAST_AND_MOST(int)
LEAST_AND_MOST(unsigned)
LEAST_AND_MOST(long)
LEAST_AND_MOST(unsigned long)
LEAST_AND_MOST(long long)
LEAST_AND_MOST(unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

namespace processor {
// Threads and fibers of a block
// Thread and fiber
enum State { ready, at_block, at_warp, finished };
struct Thread {
    State state;
    int line, fiber, exchanges, warp_syncs;
};
struct Fiber {
    ucontext_t start;
    jmp_buf stopped;
    bool used;
};

// State of the running block
const int most_threads = 1024, stack_bytes = 64 << 10;

static Thread threads[most_threads];
/// All fibers, those that are free for another thread, and how many were made.
static Fiber fibers[most_threads];
static int idle[most_threads], idle_fibers, made_fibers;
/// The stacks of all fibers, one after the other.
static char *stacks;
/// Where the scheduler goes on when a fiber leaves.
static jmp_buf scheduler;
/// Threads of the block, those that have begun, and the one that runs now.
static int count, begun, current;
/// Barriers of all blocks so far, and whether this one goes from its last thread to its first.
static int block_syncs;
static bool descending;
/// The kernel and its arguments.
static void (*body)(void **);
static void **arguments;

// Failure with its thread
static char failure[400];

UNWATCHED static void complain(const char *what) {
    snprintf(
        failure, sizeof failure, "%s (thread %u of block %u, %u, %u)", what, threadIdx.x,
        blockIdx.x, blockIdx.y, blockIdx.z
    );
}
[[noreturn]] UNWATCHED static void fail(const char *what) {
    complain(what);
    _longjmp(scheduler, 2);
}

// Threads run in a fiber
UNWATCHED static int at_rank(int k) { return descending ? count - 1 - k : k; }
UNWATCHED static void choose(int thread) {
    current = thread;
    threadIdx = {unsigned(thread), 0, 0};
}
UNWATCHED static void begin_next(int fiber) {
    choose(at_rank(begun++));
    threads[current] = {ready, 0, fiber, 0, 0};
}
UNWATCHED static void leave(int fiber) {
    if (_setjmp(fibers[fiber].stopped) == 0) _longjmp(scheduler, 1);
}
UNWATCHED static void run_threads() {
    for (;;) {
        body(arguments);
        threads[current].state = finished;
        int fiber = threads[current].fiber;
        if (begun < count) begin_next(fiber);
        else idle[idle_fibers++] = fiber, leave(fiber);
    }
}

// Entering and leaving a fiber
/// Runs the threads of a fiber until one waits or none is left; false where one failed.
UNWATCHED static bool resume(int fiber) {
    switch (_setjmp(scheduler)) {
    case 0: break;
    case 1: return true;
    default: return false;
    }
    Fiber &chosen = fibers[fiber];
    if (chosen.used) _longjmp(chosen.stopped, 1);
    chosen.used = true;
    getcontext(&chosen.start);
    chosen.start.uc_stack.ss_sp = stacks + size_t(fiber) * stack_bytes;
    chosen.start.uc_stack.ss_size = stack_bytes;
    chosen.start.uc_link = nullptr;
    makecontext(&chosen.start, run_threads, 0);
    setcontext(&chosen.start);
    return false;
}

// Barriers of block and warp
UNWATCHED static void wait(State where, int line) {
    threads[current].state = where, threads[current].line = line;
    leave(threads[current].fiber);
}

// Count those who wait
struct Group {
    int live, waiting;
    bool same_line;
};

UNWATCHED static Group look(int from, int to, State where) {
    Group group = {0, 0, true};
    int line = 0;
    for (int k = from; k < to; ++k) {
        group.live += threads[k].state != finished;
        if (threads[k].state != where) continue;
        group.waiting += 1;
        if (line == 0) line = threads[k].line;
        group.same_line &= line == threads[k].line;
    }
    return group;
}

// Release of waiting threads
UNWATCHED static bool let_go(int from, int to, State where, const char *otherwise) {
    Group group = look(from, to, where);
    if (group.waiting < group.live || !group.same_line) return complain(otherwise), false;
    for (int k = from; k < to; ++k) {
        if (threads[k].state != where) continue;
        threads[k].state = ready;
        threads[k].warp_syncs += where == at_warp;
    }
    return true;
}
UNWATCHED static bool release() {
    bool released = false;
    int live = 0;
    for (int from = 0; from < count; from += warpSize) {
        int to = min(count, from + warpSize);
        Group group = look(from, to, at_warp);
        live += group.live;
        if (group.waiting == 0) continue;
        if (!let_go(from, to, at_warp, "the threads of a warp wait apart")) return false;
        released = true;
    }
    // Release of the whole block
    if (released || live == 0) return released;
    block_syncs += 1;
    return let_go(0, count, at_block, "the threads of a block wait at different barriers");
}

// All threads of a block
UNWATCHED static bool run_block() {
    begun = idle_fibers = made_fibers = 0;
    while (begun < count) {
        int fiber = idle_fibers > 0 ? idle[--idle_fibers] : made_fibers++;
        begin_next(fiber);
        if (!resume(fiber)) return false;
    }
    while (release()) {
        for (int k = 0; k < count; ++k) {
            int thread = at_rank(k);
            if (threads[thread].state != ready) continue;
            choose(thread);
            if (!resume(threads[thread].fiber)) return false;
        }
    }
    return failure[0] == 0;
}

// Exchange of values in a warp
static unsigned char boards[2][most_threads][16];

// Lane that a value comes from
enum Way { of_lane, from_below, from_above, across };

UNWATCHED static int source_lane(Way way, int lane, int by, int width) {
    int first = lane / width * width, end = first + width;
    switch (way) {
    case of_lane: return first + (by & (width - 1));
    case from_below: return lane - by >= first ? lane - by : lane;
    case from_above: return lane + by < end ? lane + by : lane;
    default: return (lane ^ by) < end ? lane ^ by : lane;
    }
}

template <typename T>
UNWATCHED T exchange(int line, Way way, unsigned mask, T value, int by, int width = warpSize) {
    static_assert(sizeof(T) <= 16 && std::is_trivially_copyable_v<T>, "too large to exchange");
    if (mask != 0xffffffffu) fail("an exchange names less than the full warp");
    int lane = current % warpSize, source = current - lane + source_lane(way, lane, by, width);
    int round = ++threads[current].exchanges;
    auto &board = boards[round & 1];
    memcpy(board[current], &value, sizeof value);
    wait(at_warp, line);
    bool took_part = source < count && threads[source].exchanges >= round;
    if (took_part) memcpy(&value, board[source], sizeof value);
    else memset(&value, 0xff, sizeof value);
    return value;
}

// Watch over the memory
const size_t most_dynamic = 228 << 10;
alignas(16) static unsigned char dynamic_shared[most_dynamic];
__shared__ int anchor __attribute__((used));

// Bounds that the linker knows
extern "C" {
__attribute__((visibility("hidden"))) extern unsigned char __start_shared_memory[];
__attribute__((visibility("hidden"))) extern unsigned char __stop_shared_memory[];
__attribute__((visibility("hidden"))) extern unsigned char __ehdr_start[], _end[];
}

struct Buffer {
    uintptr_t begin, end;
};
struct Launch {
    unsigned grid[3], block, shared, buffers;
    const Buffer *buffer;
    void **arguments;
};
static const Launch *launch;
/// The buffers that were found last, the last first.
static Buffer recent, earlier;

// Watch over shared memory
struct Access {
    int thread, block_syncs, warp_syncs;
};
struct Word {
    Access written, read, read_before;
};
static Word *words;

UNWATCHED static bool before_now(const Access &access) {
    bool same_warp = access.thread / warpSize == current / warpSize;
    return access.block_syncs < block_syncs || access.thread == current
        || (same_warp && access.warp_syncs < threads[current].warp_syncs);
}
UNWATCHED static void watch_shared(size_t offset, size_t bytes, bool writes) {
    Access now = {current, block_syncs, threads[current].warp_syncs};
    for (size_t k = offset / 4; 4 * k < offset + bytes; ++k) {
        Word &word = words[k];
        if (!before_now(word.written))
            fail("no barrier after another thread's write to shared memory");
        bool alone = before_now(word.read) && before_now(word.read_before);
        if (writes && !alone) fail("no barrier after another thread's read of shared memory");
        if (!writes && !before_now(word.read)) word.read_before = word.read;
        (writes ? word.written : word.read) = now;
    }
}

// Buffer of an address
UNWATCHED static void find_buffer(uintptr_t begin, uintptr_t end, bool writes) {
    const Buffer *low = launch->buffer, *high = low + launch->buffers;
    while (high - low > 1) {
        const Buffer *middle = low + (high - low) / 2;
        (begin < middle->begin ? high : low) = middle;
    }
    if (low < high && begin >= low->begin && end <= low->end) {
        earlier = recent, recent = *low;
        return;
    }
    // Say where an access went astray
    char text[200];
    const char *verb = writes ? "write" : "read";
    if (low < high && begin >= low->begin) {
        snprintf(
            text, sizeof text, "a %s of %zu bytes at byte %zu of a buffer of %zu bytes", verb,
            size_t(end - begin), size_t(begin - low->begin), size_t(low->end - low->begin)
        );
    } else {
        snprintf(
            text, sizeof text, "a %s of %zu bytes outside of all buffers", verb, size_t(end - begin)
        );
    }
    fail(text);
}

// Watch over one access
#define IN_PLACE static inline __attribute__((no_sanitize("thread"), always_inline))
IN_PLACE bool within(uintptr_t begin, uintptr_t end, const void *from, const void *to) {
    return begin >= uintptr_t(from) && end <= uintptr_t(to);
}
UNWATCHED static void watch(const void *address, size_t bytes, bool writes) {
    uintptr_t begin = uintptr_t(address), end = begin + bytes;
    if (begin >= recent.begin && end <= recent.end) return;
    if (begin >= earlier.begin && end <= earlier.end) return;
    const char *stack = stacks + size_t(threads[current].fiber) * stack_bytes;
    if (within(begin, end, stack, stack + stack_bytes)) return;
    if (within(begin, end, __start_shared_memory, __stop_shared_memory))
        watch_shared(most_dynamic + begin - uintptr_t(__start_shared_memory), bytes, writes);
    else if (within(begin, end, dynamic_shared, dynamic_shared + launch->shared))
        watch_shared(begin - uintptr_t(dynamic_shared), bytes, writes);
    else if (within(begin, end, dynamic_shared, dynamic_shared + most_dynamic))
        fail("an access beyond the shared memory of the launch");
    else if (!within(begin, end, __ehdr_start, _end)) find_buffer(begin, end, writes);
}

// Launch of a watched kernel
UNWATCHED static const char *run(const Launch &asked, void (*kernel)(void **)) {
    size_t named = __stop_shared_memory - __start_shared_memory;
    // Room for stacks and words
    if (stacks == nullptr) {
        stacks = static_cast<char *>(malloc(size_t(stack_bytes) * most_threads));
        words = static_cast<Word *>(calloc((most_dynamic + named) / 4 + 4, sizeof(Word)));
    }
    if (stacks == nullptr || words == nullptr) return "there is no memory for stacks";
    bool fits =
        asked.block >= 1 && asked.block <= unsigned(most_threads) && asked.shared <= most_dynamic;
    if (!fits) return "no device takes so many threads, or so much shared memory";
    launch = &asked, body = kernel, arguments = asked.arguments;
    count = int(asked.block), failure[0] = 0, recent = earlier = {0, 0};
    blockDim = {asked.block, 1, 1}, gridDim = {asked.grid[0], asked.grid[1], asked.grid[2]};
    for (Fiber &fiber : fibers) fiber.used = false;
    unsigned plane = gridDim.x * gridDim.y;
    for (unsigned k = 0; k < plane * gridDim.z; ++k) {
        blockIdx = {k % gridDim.x, k % plane / gridDim.x, k / plane};
        descending = k % 2 == 1;
        block_syncs += 1;
        memset(dynamic_shared, 0xff, asked.shared);
        memset(__start_shared_memory, 0xff, named);
        if (!run_block()) return failure;
    }
    return nullptr;
}

// Arguments by their types
template <typename... T, size_t... K>
UNWATCHED void unpack(void (*kernel)(T...), void **values, std::index_sequence<K...>) {
    kernel(*static_cast<T *>(values[K])...);
}
template <typename... T> UNWATCHED void call(void (*kernel)(T...), void **values) {
    unpack(kernel, values, std::index_sequence_for<T...>{});
}
} // namespace processor

// Barriers and exchanges by their names
#define __syncthreads() processor::wait(processor::at_block, __LINE__)
#define __syncwarp(...) processor::wait(processor::at_warp, __LINE__)
#define __shfl_sync(...) processor::exchange(__LINE__, processor::of_lane, __VA_ARGS__)
#define __shfl_up_sync(...) processor::exchange(__LINE__, processor::from_below, __VA_ARGS__)
#define __shfl_down_sync(...) processor::exchange(__LINE__, processor::from_above, __VA_ARGS__)
#define __shfl_xor_sync(...) processor::exchange(__LINE__, processor::across, __VA_ARGS__)

// Entry points for the loader and the compiler
#define KERNEL_ON_PROCESSOR(name) \
    extern "C" const char *name##_on_processor(const processor::Launch &launch) { \
        return processor::run(launch, [](void **values) { processor::call(name, values); }); \
    }

#define WATCHED(name, bytes, writes) \
    extern "C" UNWATCHED void __tsan_##name##bytes(const void *address) { \
        processor::watch(address, bytes, writes); \
    }
#define WATCHED_BOTH_WAYS(bytes) \
    WATCHED(read, bytes, false) \
    WATCHED(write, bytes, true) \
    WATCHED(unaligned_read, bytes, false) \
    WATCHED(unaligned_write, bytes, true)
WATCHED_BOTH_WAYS(1)
WATCHED_BOTH_WAYS(2)
WATCHED_BOTH_WAYS(4)
WATCHED_BOTH_WAYS(8)
WATCHED_BOTH_WAYS(16)

// Accesses of other lengths
extern "C" UNWATCHED void __tsan_read_range(const void *address, size_t bytes) {
    processor::watch(address, bytes, false);
}
extern "C" UNWATCHED void __tsan_write_range(const void *address, size_t bytes) {
    processor::watch(address, bytes, true);
}
extern "C" UNWATCHED void __tsan_init() {}
extern "C" UNWATCHED void __tsan_func_entry(void *) {}
extern "C" UNWATCHED void __tsan_func_exit() {}
