// Tangled from book/src/kernel-emulator.md: edit there, or here and run cargo tangle stitch.
// Runs the threads of kernels on the processor and watches what they do.

// What the C library brings
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

namespace processor {
// Threads and fibers of a block
// Thread and fiber
const int most_threads = 1024;
const size_t stack_bytes = 64 << 10, stack_pitch = stack_bytes + 5 * 64;

struct Thread {
    State state;
    int line, fiber, exchanges, warp_syncs;
};
struct Fiber {
    jmp_buf stopped;
};

// State of the running block
extern "C" {
HIDDEN uint3 thread_index __asm__("threadIdx"), block_index __asm__("blockIdx");
HIDDEN dim3 block_size __asm__("blockDim"), grid_size __asm__("gridDim");
}
static Thread threads[most_threads];
static Fiber fibers[most_threads];
/// Fibers that are free for another thread, those of this block, and those that were ever entered.
static int idle[most_threads], idle_fibers, block_fibers, entered_fibers;
/// The stacks of all fibers, one after the other, and that of the fiber that runs.
static char *stacks, *stack;
/// Where the scheduler goes on when no fiber is to follow.
static jmp_buf scheduler;
/// Threads of the block, those that have begun, those that may, and the one that runs now.
static int count, begun, admitted, current;
/// Threads that are resumed one after the other, and the first and last of these that have not been.
static int turns[warpSize], turn, last_turn;
/// Barriers of all blocks so far, and whether this one goes from its last thread to its first.
static int block_syncs;
static bool descending;
/// The kernel and its arguments.
static void (*body)(void **);
static void **arguments;

// Failure with its thread
static char failure[400];

static void complain(const char *what) {
    snprintf(
        failure, sizeof failure, "%s (thread %u of block %u, %u, %u)", what, thread_index.x,
        block_index.x, block_index.y, block_index.z
    );
}
[[noreturn]] static void fail(const char *what) {
    complain(what);
    _longjmp(scheduler, 1);
}

// Leaving a fiber
static void choose(int thread, int fiber) {
    current = thread;
    thread_index = {unsigned(thread), 0, 0};
    stack = stacks + fiber * stack_pitch;
}
[[noreturn]] static void hand_on() {
    if (turn == last_turn) _longjmp(scheduler, 1);
    int thread = turns[turn++], fiber = threads[thread].fiber;
    choose(thread, fiber);
    _longjmp(fibers[fiber].stopped, 1);
}
#define LEAVE(fiber) \
    if (_setjmp(fibers[fiber].stopped) == 0) hand_on()

// Threads run in a fiber
static int at_rank(int k) { return descending ? count - 1 - k : k; }
static void begin_next(int fiber) {
    int thread = at_rank(begun++);
    threads[thread] = {ready, 0, fiber, 0, 0};
    choose(thread, fiber);
}
static void run_threads() {
    for (;;) {
        body(arguments);
        int fiber = threads[current].fiber;
        threads[current].state = finished;
        if (begun < admitted) {
            begin_next(fiber);
            continue;
        }
        idle[idle_fibers++] = fiber;
        LEAVE(fiber);
    }
}

// Entering and resuming a fiber
static void enter(int fiber) {
    static ucontext_t start;
    entered_fibers = fiber + 1;
    getcontext(&start);
    start.uc_stack.ss_sp = stacks + fiber * stack_pitch;
    start.uc_stack.ss_size = stack_bytes;
    start.uc_link = nullptr;
    makecontext(&start, run_threads, 0);
    setcontext(&start);
}
/// Runs a fiber, and those whose turn is after it, until all have been left.
static void resume(int fiber) {
    if (_setjmp(scheduler) != 0) return;
    if (fiber < entered_fibers) _longjmp(fibers[fiber].stopped, 1);
    enter(fiber);
}

// Barriers of block and warp
#define WAIT(where, place) \
    Thread &thread = threads[current]; \
    thread.state = where, thread.line = place; \
    LEAVE(thread.fiber)

void wait(State where, int line) { WAIT(where, line); }

// Count those who wait
struct Group {
    int live, waiting;
    bool same_line;
};

static Group look(int from, int to, State where) {
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
/// Lets threads go on that wait together; false where there are none, or where they wait apart.
static bool release(int from, int to, State where, const char *otherwise) {
    Group group = look(from, to, where);
    if (group.waiting == 0 || failure[0] != 0) return false;
    if (group.waiting < group.live || !group.same_line) return complain(otherwise), false;
    for (int k = from; k < to; ++k) {
        if (threads[k].state != where) continue;
        threads[k].state = ready;
        threads[k].warp_syncs += where == at_warp;
    }
    return true;
}

// Threads of a warp
static void begin_threads() {
    while (begun < admitted && failure[0] == 0) {
        int fiber = idle_fibers > 0 ? idle[--idle_fibers] : block_fibers++;
        begin_next(fiber);
        resume(fiber);
    }
}
static void resume_threads(int from, int to) {
    turn = last_turn = 0;
    for (int k = 0; k < to - from; ++k) {
        int thread = descending ? to - 1 - k : from + k;
        if (threads[thread].state == ready) turns[last_turn++] = thread;
    }
    if (last_turn == 0) return;
    int first = turns[turn++], fiber = threads[first].fiber;
    choose(first, fiber);
    resume(fiber);
}
/// Runs a warp until its threads wait for the block or are through.
static void run_warp(int from, int to) {
    if (begun < admitted) begin_threads();
    else resume_threads(from, to);
    while (release(from, to, at_warp, "the threads of a warp wait apart")) resume_threads(from, to);
}

// All threads of a block
static bool run_block() {
    begun = idle_fibers = block_fibers = 0;
    do {
        for (int rank = 0; rank < count && failure[0] == 0;) {
            int from = at_rank(rank) / warpSize * warpSize, to = from + warpSize;
            if (to > count) to = count;
            admitted = rank += to - from;
            turn = last_turn = 0;
            run_warp(from, to);
        }
        block_syncs += 1;
    } while (release(0, count, at_block, "the threads of a block wait at different barriers"));
    return failure[0] == 0;
}

// Exchange of values in a warp
static Bytes boards[2][most_threads];

// Lane that a value comes from
static int source_lane(Shuffle shuffle, int lane, int by, int width) {
    int first = lane & ~(width - 1), end = first + width;
    switch (shuffle) {
    case of_lane: return first + (by & (width - 1));
    case from_below: return lane - by >= first ? lane - by : lane;
    case from_above: return lane + by < end ? lane + by : lane;
    default: return (lane ^ by) < end ? lane ^ by : lane;
    }
}

Bytes exchange_bytes(int line, Shuffle shuffle, unsigned mask, int by, int width, Bytes given) {
    if (mask != 0xffffffffu) fail("an exchange names less than the full warp");
    int round = ++threads[current].exchanges;
    boards[round & 1][current] = given;
    WAIT(at_warp, line);
    int lane = current % warpSize, source = current - lane + source_lane(shuffle, lane, by, width);
    bool took_part = source < count && threads[source].exchanges >= round;
    return took_part ? boards[round & 1][source] : Bytes{{~uint64_t(0), ~uint64_t(0)}};
}

// Watch over the memory
const size_t most_dynamic = 228 << 10;
alignas(16) unsigned char dynamic_shared[most_dynamic];
__shared__ int anchor __attribute__((used));

// Bounds that the linker knows
extern "C" {
extern HIDDEN unsigned char __start_shared_memory[], __stop_shared_memory[];
extern HIDDEN unsigned char __ehdr_start[], _end[];
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

// Watch over shared memory
struct Access {
    int thread, block_syncs, warp_syncs;
};
struct Word {
    Access written, read, read_before;
};
static Word *words;

// Order of two accesses
static bool before(const Access &access, const Access &now) {
    bool same_warp = access.thread / warpSize == now.thread / warpSize;
    return access.block_syncs < now.block_syncs || access.thread == now.thread
        || (same_warp && access.warp_syncs < now.warp_syncs);
}

static void watch_shared(size_t offset, size_t bytes, bool writes) {
    Access now = {current, block_syncs, threads[current].warp_syncs};
    for (size_t k = offset / 4; 4 * k < offset + bytes; ++k) {
        Word &word = words[k];
        // Watch over one word
        if (!before(word.written, now))
            fail("no barrier after another thread's write to shared memory");
        if (!writes) {
            if (!before(word.read, now)) word.read_before = word.read;
            word.read = now;
            continue;
        }
        if (!before(word.read, now) || !before(word.read_before, now))
            fail("no barrier after another thread's read of shared memory");
        word.written = now;
    }
}

// Buffer of an address
/// Buffers that were met before, each where the kibibytes of an address in it say.
const int met_bytes = 1024, met_places = 512;
static Buffer met[met_places];

static void find_buffer(uintptr_t begin, uintptr_t end, bool writes) {
    const Buffer *low = launch->buffer, *high = low + launch->buffers;
    while (high - low > 1) {
        const Buffer *middle = low + (high - low) / 2;
        (begin < middle->begin ? high : low) = middle;
    }
    if (low < high && begin >= low->begin && end <= low->end) {
        met[begin / met_bytes % met_places] = *low;
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
static bool within(uintptr_t begin, uintptr_t end, const void *from, const void *to) {
    return begin >= uintptr_t(from) && end <= uintptr_t(to);
}
// Watch over what is no buffer met before
static void watch_elsewhere(uintptr_t begin, uintptr_t end, bool writes) {
    size_t bytes = end - begin;
    if (within(begin, end, __start_shared_memory, __stop_shared_memory))
        watch_shared(most_dynamic + begin - uintptr_t(__start_shared_memory), bytes, writes);
    else if (within(begin, end, dynamic_shared, dynamic_shared + launch->shared))
        watch_shared(begin - uintptr_t(dynamic_shared), bytes, writes);
    else if (within(begin, end, dynamic_shared, dynamic_shared + most_dynamic))
        fail("an access beyond the shared memory of the launch");
    else if (!within(begin, end, __ehdr_start, _end)) find_buffer(begin, end, writes);
}

static inline void watch(const void *address, size_t bytes, bool writes) {
    uintptr_t begin = uintptr_t(address), end = begin + bytes;
    const Buffer &near = met[begin / met_bytes % met_places];
    if (begin >= near.begin && end <= near.end) return;
    if (!within(begin, end, stack, stack + stack_bytes)) watch_elsewhere(begin, end, writes);
}

// Launch of a watched kernel
const char *run(const Launch &asked, void (*kernel)(void **)) {
    size_t named = __stop_shared_memory - __start_shared_memory;
    // Room for stacks and words
    if (stacks == nullptr) {
        stacks = static_cast<char *>(malloc(stack_pitch * most_threads));
        words = static_cast<Word *>(calloc((most_dynamic + named) / 4 + 4, sizeof(Word)));
    }
    if (stacks == nullptr || words == nullptr) return "there is no memory for stacks";
    bool fits =
        asked.block >= 1 && asked.block <= unsigned(most_threads) && asked.shared <= most_dynamic;
    if (!fits) return "no device takes so many threads, or so much shared memory";
    launch = &asked, body = kernel, arguments = asked.arguments;
    count = int(asked.block), failure[0] = 0;
    memset(met, 0, sizeof met);
    block_size = {asked.block, 1, 1}, grid_size = {asked.grid[0], asked.grid[1], asked.grid[2]};
    unsigned plane = grid_size.x * grid_size.y;
    for (unsigned k = 0; k < plane * grid_size.z; ++k) {
        block_index = {k % grid_size.x, k % plane / grid_size.x, k / plane};
        descending = k % 2 == 1;
        block_syncs += 1;
        memset(dynamic_shared, 0xff, asked.shared);
        memset(__start_shared_memory, 0xff, named);
        if (run_block()) continue;
        entered_fibers = 0;
        return failure;
    }
    return nullptr;
}
} // namespace processor

// Functions that the watch is called by
#define WATCHED(name, bytes, writes) \
    extern "C" HIDDEN void __tsan_##name##bytes(const void *address) { \
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
extern "C" {
HIDDEN void __tsan_read_range(const void *address, size_t bytes) {
    processor::watch(address, bytes, false);
}
HIDDEN void __tsan_write_range(const void *address, size_t bytes) {
    processor::watch(address, bytes, true);
}
HIDDEN void __tsan_init() {}
HIDDEN void __tsan_func_entry(void *) {}
HIDDEN void __tsan_func_exit() {}
}
