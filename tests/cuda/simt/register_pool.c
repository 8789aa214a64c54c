/* setmaxnreg: registers that warpgroups give up to the block's pool, and take from it.
 *
 * PTX does not say how many registers a thread begins with: here it is the kernel's share by its launch bounds, 65536
 * by the threads of as many blocks as are to fit at once, in steps of 8 and 256 at most. The pool is empty when a block
 * begins, and a thread that takes more than is there waits for others to give up theirs. What a thread has when it ends
 * stays with it.
 *
 * PTX ISA 9.0, section 9.7.19.5. What is not looked at: whether a thread's values fit into what it keeps, and whether
 * the warps of a warpgroup meet between one setmaxnreg and the next. */
#include "tests/cuda/simt/block.h"
#include <string.h>

enum { STEP = 8, MOST_OF_THREAD = 256, MOST_OF_PROCESSOR = 65536, MOST_CHANGES = 16 };

/* A setmaxnreg that some of a warpgroup came to. */
typedef struct change {
    uint32_t count;
    bool takes;
    const simt_place *at;
} change;

typedef struct holder {
    uint32_t count, changes; /* registers; how many setmaxnreg the thread came to */
    bool waits;
} holder;

static holder holders[SIMT_MAX_THREADS];
static change changes[SIMT_MAX_GROUPS][MOST_CHANGES];
static uint32_t change_counts[SIMT_MAX_GROUPS], pool;
static bool any; /* setmaxnreg of this block */

void simt_pool_block(void) {
    any = false;
}

static void begin(void) {
    uint32_t threads = simt_now.kernel->most_threads * simt_now.kernel->least_blocks;
    uint32_t count = MOST_OF_PROCESSOR / threads / STEP * STEP;
    if (count > MOST_OF_THREAD) count = MOST_OF_THREAD;
    for (uint32_t t = 0; t < SIMT_MAX_THREADS; t++) holders[t] = (holder){.count = count};
    memset(change_counts, 0, sizeof change_counts);
    pool = 0;
    any = true;
}

/* All of a warpgroup come to the same ones, in the same order. */
static void check_change(uint32_t thread, uint32_t count, bool takes, const simt_place *at) {
    uint32_t group = thread / SIMT_GROUP_THREADS, number = holders[thread].changes++;
    if ((group + 1) * SIMT_GROUP_THREADS > simt_now.thread_count)
        simt_fail(at, "setmaxnreg by a warpgroup that is not whole: %u threads a block", simt_now.thread_count);
    if (number == MOST_CHANGES) simt_fail(at, "more than %d setmaxnreg of a thread", MOST_CHANGES);
    change *c = &changes[group][number];
    if (number == change_counts[group]) {
        *c = (change){count, takes, at};
        change_counts[group]++;
    } else if (c->count != count || c->takes != takes) {
        simt_fail(at, "setmaxnreg.%s of %u registers; other threads of the warpgroup have .%s of %u in %s:%d",
                  takes ? "inc" : "dec", count, c->takes ? "inc" : "dec", c->count, c->at->file, c->at->line);
    }
}

static void wake_waiting(void) {
    for (uint32_t t = 0; t < simt_now.thread_count; t++) {
        if (!holders[t].waits) continue;
        holders[t].waits = false;
        simt_wake(&simt_now.threads[t]);
    }
}

void simt_set_registers(uint32_t count, bool takes, const simt_place *at) {
    uint32_t thread = simt_now.running->index;
    if (!any) begin();
    holder *h = &holders[thread];
    check_change(thread, count, takes, at);
    if (takes ? count < h->count : count > h->count) {
        simt_fail(at, "setmaxnreg.%s to %u registers by a thread that has %u", takes ? "inc" : "dec", count, h->count);
    }
    while (takes && pool < count - h->count) {
        h->waits = true;
        simt_park("registers that other warpgroups have not given up", at);
    }
    pool += h->count;
    pool -= count;
    h->count = count;
    if (!takes) wake_waiting();
}

void simt_pool_end(void) {
    uint32_t thread = simt_now.running->index, group = thread / SIMT_GROUP_THREADS;
    if (!any || holders[thread].changes == change_counts[group]) return;
    simt_fail(changes[group][holders[thread].changes].at,
              "a setmaxnreg that thread %u of the warpgroup did not come to before it ended", thread);
}
