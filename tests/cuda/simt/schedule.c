/* Threads of a block as fibers, barriers, and who goes next.
 *
 * The thread that stops chooses its successor: there is no scheduler in between. Blocks of a grid run one after the
 * other, in the order that is asked for: a block that waits for a later one is reported as hanging, which on a card it
 * would be too where they do not fit together. */
#include "tests/cuda/simt/block.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURNS_A_SLICE = 1 << 14, POISON = 0xff };

simt_registers simt_self;
simt_block simt_now;
bool (*simt_is_ordered)(uint32_t earlier);
const char *(*simt_describe_work)(uint32_t work);

typedef struct barrier {
    uint32_t arrived, expected; /* expected 0: all that have not ended */
    uint32_t warps;             /* of those that arrived */
    uint32_t predicates, total; /* of those that arrived; of the last time all had */
    const simt_place *at;
} barrier;

static simt_thread threads[SIMT_MAX_THREADS];
static simt_thread *ready[SIMT_MAX_THREADS];
static uint32_t ready_count;
static barrier barriers[SIMT_BARRIERS];
static simt_fiber host;
static _Alignas(128) uint8_t shared_memory[SIMT_MAX_SHARED];
static const uint8_t *parameters;

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void print_where(void) {
    if (!simt_now.kernel) return;
    fprintf(stderr, " (kernel %s, block (%u,%u,%u)", simt_now.kernel->name, simt_self.ctaid.x, simt_self.ctaid.y,
            simt_self.ctaid.z);
    if (simt_now.running) fprintf(stderr, ", thread (%u,%u,%u)", simt_self.tid.x, simt_self.tid.y, simt_self.tid.z);
    fputc(')', stderr);
}

_Noreturn void simt_fail(const simt_place *at, const char *format, ...) {
    va_list arguments;
    fflush(stdout);
    if (at) fprintf(stderr, "%s:%d: ", at->file, at->line);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    print_where();
    fputc('\n', stderr);
    abort();
}

/* ---- orders ------------------------------------------------------------------------------------------------------ */

static const char *setting(const char *name) {
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

simt_order simt_order_wanted(void) {
    static int known = -1;
    if (known < 0) {
        const char *text = setting("SIMT_ORDER");
        if (!text || strcmp(text, "forward") == 0)
            known = SIMT_FORWARD;
        else if (strcmp(text, "backward") == 0)
            known = SIMT_BACKWARD;
        else if (strcmp(text, "random") == 0)
            known = SIMT_RANDOM;
        else
            simt_fail(NULL, "SIMT_ORDER=%s: forward, backward or random was expected", text);
    }
    return (simt_order)known;
}

uint32_t simt_random(uint32_t below) {
    static uint64_t state;
    if (!state) {
        const char *text = setting("SIMT_SEED");
        state = (text ? strtoull(text, NULL, 10) : 1) * 0x9e3779b97f4a7c15u + 1;
    }
    state ^= state << 13; /* xorshift64 (Marsaglia 2003) */
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 32) * below >> 32);
}

uint32_t simt_choose(uint32_t count) {
    simt_order order = simt_order_wanted();
    return order == SIMT_FORWARD ? 0 : order == SIMT_BACKWARD ? count - 1 : simt_random(count);
}

/* ---- who goes next ------------------------------------------------------------------------------------------------
 */

/* The list is a ring, so that forward order is first come, first served. */
static uint32_t ready_first;

static simt_thread **ready_at(uint32_t i) {
    return &ready[(ready_first + i) % SIMT_MAX_THREADS];
}

void simt_wake(simt_thread *thread) {
    thread->waits = NULL;
    thread->barrier = -1;
    *ready_at(ready_count++) = thread;
}

/* The running thread spins: it comes behind all others, which backward order takes from the end. */
static void wake_last(simt_thread *thread) {
    simt_wake(thread);
    if (simt_order_wanted() != SIMT_BACKWARD) return;
    ready_first = (ready_first + SIMT_MAX_THREADS - 1) % SIMT_MAX_THREADS;
    *ready_at(0) = thread;
}

static simt_thread *take_ready(void) {
    uint32_t chosen = simt_choose(ready_count);
    simt_thread *thread = *ready_at(chosen);
    ready_count--;
    if (chosen == 0) {
        ready_first = (ready_first + 1) % SIMT_MAX_THREADS;
    } else {
        *ready_at(chosen) = *ready_at(ready_count);
    }
    return thread;
}

static _Noreturn void report_standstill(void) {
    fflush(stdout);
    const simt_thread *before = NULL;
    for (uint32_t i = 0; i < simt_now.thread_count; i++) {
        const simt_thread *t = &threads[i];
        if (t->done) continue;
        if (!before) {
            fprintf(stderr, "%s:%d: no thread can go on", t->at->file, t->at->line);
            simt_now.running = NULL;
            print_where();
            fputs(":\n", stderr);
        }
        if (!before || before->waits != t->waits || before->at != t->at) {
            fprintf(stderr, "  %s:%d: from thread %u on they wait for %s\n", t->at->file, t->at->line, i, t->waits);
        }
        before = t;
    }
    abort();
}

/* Leaves the running thread, or the host, for the next one. */
static void run_next(simt_fiber *from, bool ends) {
    simt_copies_switch();
    while (ready_count == 0 && simt_now.alive > 0) {
        if (!simt_copies_help()) report_standstill();
    }
    simt_thread *next = ready_count > 0 ? take_ready() : NULL;
    simt_now.running = next;
    if (next) {
        simt_self.tid = next->tid;
        simt_self.laneid = next->index % SIMT_LANES;
        simt_self.turns_left = TURNS_A_SLICE;
        simt_self.local = next->local;
        simt_self.local_bytes = next->local_bytes;
        if (&next->fiber == from) return;
    }
    simt_fiber_switch(from, next ? &next->fiber : &host, ends);
}

void simt_park(const char *waits, const simt_place *at) {
    simt_thread *t = simt_now.running;
    t->waits = waits;
    t->at = at;
    t->local = simt_self.local;
    t->local_bytes = simt_self.local_bytes;
    run_next(&t->fiber, false);
}

void simt_turned(const simt_place *at) {
    static uint64_t most;
    simt_thread *t = simt_now.running;
    if (!most) {
        const char *text = setting("SIMT_TURNS");
        most = text ? strtoull(text, NULL, 10) : (uint64_t)1 << 26;
    }
    t->turns += TURNS_A_SLICE;
    if (t->turns >= most) {
        simt_fail(at, "this loop does not end: the thread made %llu turns; SIMT_TURNS allows more",
                  (unsigned long long)t->turns);
    }
    simt_self.turns_left = TURNS_A_SLICE;
    simt_copies_finish(); /* they may be what it looks for */
    wake_last(t);
    simt_park("its turn", at);
}

/* ---- barriers -----------------------------------------------------------------------------------------------------
 */

static bool is_complete(const barrier *b) {
    return b->arrived > 0 && b->arrived >= (b->expected ? b->expected : simt_now.alive);
}

/* Wakes those who wait, but for the running thread. */
static void complete(uint32_t id) {
    barrier *b = &barriers[id];
    simt_races_synchronise(b->warps);
    b->total = b->predicates;
    b->arrived = b->predicates = b->warps = 0;
    for (uint32_t i = 0; i < simt_now.thread_count; i++) {
        if (threads[i].barrier == (int)id && &threads[i] != simt_now.running) simt_wake(&threads[i]);
    }
}

uint32_t simt_barrier_count(uint32_t id, bool predicate, const simt_place *at) {
    simt_thread *t = simt_now.running;
    if (id >= SIMT_BARRIERS) simt_fail(at, "barrier %u; there are %d", id, SIMT_BARRIERS);
    simt_wgmma_barrier(at);
    barrier *b = &barriers[id];
    if (b->arrived == 0) b->at = at;
    if (b->at != at && (b->at->line != at->line || strcmp(b->at->file, at->file) != 0)) {
        simt_fail(at, "a barrier that other threads of the block wait at in line %d (%s)", b->at->line, b->at->file);
    }
    b->arrived++;
    b->predicates += predicate;
    b->warps |= 1u << t->index / SIMT_LANES;
    if (is_complete(b)) {
        complete(id);
    } else {
        t->barrier = (int)id;
        simt_park("a barrier of the block", at);
    }
    return b->total;
}

void simt_barrier(uint32_t id, uint32_t count, const simt_place *at) {
    if (count % SIMT_LANES != 0) simt_fail(at, "a barrier of %u threads; whole warps were expected", count);
    if (id < SIMT_BARRIERS) barriers[id].expected = count;
    simt_barrier_count(id, false, at);
}

/* ---- a grid -------------------------------------------------------------------------------------------------------
 */

static void begin_thread(void) {
    simt_fiber_begun(&host);
    simt_now.kernel->run(parameters);
    simt_thread *t = simt_now.running;
    simt_copies_end();
    simt_wgmma_end();
    simt_pool_end();
    t->done = true;
    simt_now.alive--;
    simt_warp_left(t->index);
    for (uint32_t id = 0; id < SIMT_BARRIERS; id++) {
        if (barriers[id].expected == 0 && simt_now.alive > 0 && is_complete(&barriers[id])) complete(id);
    }
    run_next(&t->fiber, true);
    abort(); /* never reached */
}

static void run_block(simt_dim index, simt_dim size) {
    simt_self.ctaid = index;
    simt_now.alive = simt_now.thread_count;
    ready_count = ready_first = 0;
    memset(shared_memory, POISON, simt_now.shared_bytes);
    memset(barriers, 0, sizeof barriers);
    simt_warps_begin();
    simt_races_block();
    simt_wgmma_block();
    simt_mbarrier_block();
    simt_copies_block();
    simt_pool_block();
    simt_opened.shared = shared_memory;
    simt_opened.shared_bytes = simt_shadow_of_shared() ? 0 : simt_now.shared_bytes;
    for (uint32_t i = 0; i < simt_now.thread_count; i++) {
        simt_thread *t = &threads[i];
        t->tid = (simt_dim){i % size.x, i / size.x % size.y, i / size.x / size.y};
        t->index = i;
        t->done = false;
        t->turns = 0;
        t->local = NULL;
        t->local_bytes = 0;
        t->copy_count = t->group_count = t->arrival_count = t->brought = 0;
        t->open = (simt_copy_group){0};
        simt_fiber_begin(&t->fiber, begin_thread);
        simt_wake(t);
    }
    run_next(&host, false);
}

/* The i-th of `count` blocks in the order that is wanted; `stride` is coprime to `count`. */
static uint32_t block_at(uint32_t i, uint32_t count, uint32_t start, uint32_t stride) {
    switch (simt_order_wanted()) {
    case SIMT_FORWARD:
        return i;
    case SIMT_BACKWARD:
        return count - 1 - i;
    case SIMT_RANDOM:
        break;
    }
    return (uint32_t)((start + (uint64_t)i * stride) % count);
}

static uint32_t coprime_stride(uint32_t count) {
    for (;;) {
        uint32_t stride = 1 + simt_random(count), a = stride, b = count;
        while (b) {
            uint32_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1) return stride;
    }
}

void simt_launch(uint32_t launch, const simt_kernel *kernel, simt_dim grid, simt_dim block, uint32_t dynamic_shared,
                 const uint8_t *arguments) {
    static const simt_place launching = {"launch", 0};
    uint32_t count = grid.x * grid.y * grid.z;
    simt_now = (simt_block){.launch = launch,
                            .kernel = kernel,
                            .thread_count = block.x * block.y * block.z,
                            .threads = threads,
                            .shared = shared_memory,
                            .shared_bytes = kernel->shared_bytes + dynamic_shared};
    parameters = arguments;
    if (simt_now.thread_count == 0 || simt_now.thread_count > SIMT_MAX_THREADS)
        simt_fail(&launching, "%u threads a block", simt_now.thread_count);
    if (simt_now.shared_bytes > SIMT_MAX_SHARED)
        simt_fail(&launching, "%u bytes of shared memory", simt_now.shared_bytes);
    simt_self.ntid = block;
    simt_self.nctaid = grid;
    simt_races_launch(launch, count);
    uint32_t start = simt_random(count), stride = coprime_stride(count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = block_at(i, count, start, stride);
        simt_now.number = number;
        run_block((simt_dim){number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y}, block);
    }
    simt_now.kernel = NULL;
}
