/* mbarriers: arrivals are counted, and a phase is over when all that it expects have come. The next one begins at once.
 *
 * A thread that asks for a phase that is not over is parked until it is, and told no all the same, as on a card where
 * its time ran out: only a loop around mbarrier.try_wait is right. What is known by an arrival and a wait is kept by
 * races.c, thread by thread.
 *
 * An arrival may only come when its thread knows that the phase before is over: by having waited for it, or by
 * something that orders it behind one who did. Otherwise it could be one of that phase's, or one too many of them. So
 * surplus arrivals are found where they are made, not where the phases that they end too early are read.
 *
 * Copies may arrive instead of their thread (copies.c). Such an arrival is a thread's like others where it is issued:
 * it counts for the phase that runs then, which cannot be over before it came, and releases what its thread did and
 * knew until then. What the copies brought is added when they do.
 *
 * PTX ISA 9.0, section 9.7.13.15. Not there: transactions, arrivals that drop out or complete nothing, waits by state,
 * clusters. What is not looked at: whether a thread that waits for a parity is two phases late, and finds the one of a
 * later lap. */
#include "tests/cuda/simt/block.h"
#include <string.h>

enum { BYTES = 8, MOST = 256, MOST_ARRIVALS = (1 << 20) - 1, POISON = 0xff };

typedef struct mbarrier {
    const simt_place *at;               /* where it was initialised; NULL: it is none */
    uint32_t thread, time;              /* by whom, and when */
    uint32_t expected, pending;         /* arrivals a phase; those that are still to come */
    uint32_t under_way;                 /* of pending: those that follow copies which were issued */
    uint32_t waiting;                   /* threads that are parked at it */
    uint32_t over;                      /* phases */
    uint32_t gathered[SIMT_MAX_ACTORS]; /* what the arrivals of this phase know of each actor (races.c) */
    uint32_t released[SIMT_MAX_ACTORS]; /* what those of the last phase knew */
} mbarrier;

static mbarrier mbarriers[MOST];
static uint16_t places[SIMT_MAX_SHARED / BYTES]; /* 1 + the mbarrier that lies there; 0: none */
static uint16_t awaited[SIMT_MAX_THREADS];       /* 1 + the mbarrier that the thread is parked at; 0: none */
static bool any;                                 /* mbarrier of this block */

void simt_mbarrier_block(void) {
    if (!any) return;
    for (uint32_t i = 0; i < MOST; i++) mbarriers[i].at = NULL;
    memset(places, 0, sizeof places);
    memset(awaited, 0, sizeof awaited);
    any = false;
}

void simt_mbarrier_check(uint64_t offset, uint32_t bytes, const simt_place *at) {
    if (!any) return;
    for (uint64_t i = offset / BYTES; i <= (offset + bytes - 1) / BYTES; i++) {
        if (!places[i]) continue;
        const mbarrier *b = &mbarriers[places[i] - 1];
        simt_fail(at, "touches byte %llu of shared memory, where the mbarrier of %s:%d lies: mbarrier.inval is missing",
                  (unsigned long long)(i * BYTES), b->at->file, b->at->line);
    }
}

/* The mbarrier at an address, which the running thread is going to use. */
static mbarrier *find(uint64_t address, const char *doing, simt_access access, const simt_place *at) {
    uint64_t offset = address & 0xffffffffu;
    if (offset % BYTES)
        simt_fail(at, "%s at byte %llu of shared memory, which is not aligned to 8", doing, (unsigned long long)offset);
    if (offset + BYTES > simt_now.shared_bytes) {
        simt_fail(at, "%s at byte %llu of shared memory, which has %u", doing, (unsigned long long)offset,
                  simt_now.shared_bytes);
    }
    if (!places[offset / BYTES]) {
        simt_fail(at, "%s at byte %llu of shared memory, where no mbarrier was initialised before", doing,
                  (unsigned long long)offset);
    }
    mbarrier *b = &mbarriers[places[offset / BYTES] - 1];
    if (b->thread != simt_now.running->index && b->time > simt_races_known(b->thread)) {
        simt_fail(at, "race: %s, whose mbarrier thread %u initialised in %s:%d, with no barrier between them", doing,
                  b->thread, b->at->file, b->at->line);
    }
    simt_shadow *shadow = simt_shadow_of_shared();
    if (shadow) simt_races_check(shadow, offset, BYTES, access, "shared", at);
    return b;
}

static mbarrier *find_free(const simt_place *at) {
    for (uint32_t i = 0; i < MOST; i++) {
        if (!mbarriers[i].at) return &mbarriers[i];
    }
    simt_fail(at, "more than %d mbarriers of a block", MOST);
}

void simt_mbarrier_init(uint64_t address, uint64_t count, const simt_place *at) {
    if (count == 0 || count > MOST_ARRIVALS) {
        simt_fail(at, "mbarrier.init with a count of %llu; 1 to %d were expected", (unsigned long long)count,
                  MOST_ARRIVALS);
    }
    memset(simt_reach(SIMT_SHARED, address, BYTES, SIMT_WRITE, at), POISON, BYTES);
    mbarrier *b = find_free(at);
    *b = (mbarrier){.at = at,
                    .thread = simt_now.running->index,
                    .time = simt_races_now(),
                    .expected = (uint32_t)count,
                    .pending = (uint32_t)count};
    places[(address & 0xffffffffu) / BYTES] = (uint16_t)(b - mbarriers + 1);
    any = true;
    simt_opened.shared_bytes = 0;
}

void simt_mbarrier_inval(uint64_t address, const simt_place *at) {
    mbarrier *b = find(address, "mbarrier.inval", SIMT_WRITE, at);
    for (uint32_t t = 0; t < simt_now.thread_count; t++) {
        if (awaited[t] == b - mbarriers + 1) simt_fail(at, "mbarrier.inval while thread %u waits at it", t);
    }
    if (b->under_way) {
        simt_fail(at, "mbarrier.inval while asynchronous copies are still to arrive at the mbarrier of %s:%d",
                  b->at->file, b->at->line);
    }
    places[(address & 0xffffffffu) / BYTES] = 0;
    b->at = NULL;
}

/* The running thread knows of all arrivals of the phase before. */
static void check_phase(const mbarrier *b, const simt_place *at) {
    for (uint32_t i = 0; i < simt_races_actors(); i++) {
        if (i == simt_now.running->index || b->released[i] <= simt_races_known(i)) continue;
        simt_fail(
            at,
            "an arrival in phase %u of the mbarrier of %s:%d by a thread that does not know that phase %u is over: "
            "it did not wait for it, or these are more arrivals than the %u that a phase expects",
            b->over, b->at->file, b->at->line, b->over - 1, b->expected);
    }
}

static void end_phase(mbarrier *b) {
    memcpy(b->released, b->gathered, sizeof b->released);
    memset(b->gathered, 0, sizeof b->gathered);
    b->pending = b->expected;
    b->over++;
    b->waiting = 0;
    for (uint32_t t = 0; t < simt_now.thread_count; t++) {
        if (awaited[t] != b - mbarriers + 1) continue;
        awaited[t] = 0;
        simt_wake(&simt_now.threads[t]);
    }
}

uint64_t simt_mbarrier_arrive(uint64_t address, uint32_t count, const simt_place *at) {
    mbarrier *b = find(address, "mbarrier.arrive", SIMT_ATOMIC, at);
    if (count == 0 || count > b->pending - b->under_way) {
        simt_fail(at, "mbarrier.arrive with a count of %u, where the phase of the mbarrier of %s:%d still expects %u",
                  count, b->at->file, b->at->line, b->pending - b->under_way);
    }
    check_phase(b, at);
    uint64_t state = b->over;
    simt_races_release(b->gathered);
    b->pending -= count;
    if (b->pending == 0) end_phase(b);
    return state;
}

uint32_t simt_mbarrier_expect(uint64_t address, bool adds, const simt_place *at) {
    mbarrier *b = find(address, "cp.async.mbarrier.arrive", SIMT_ATOMIC, at);
    check_phase(b, at);
    if (adds && b->pending++ == MOST_ARRIVALS)
        simt_fail(at, "cp.async.mbarrier.arrive at an mbarrier that expects %d arrivals already", MOST_ARRIVALS);
    if (b->under_way++ == b->pending) {
        simt_fail(at,
                  "cp.async.mbarrier.arrive.noinc, where the phase of the mbarrier of %s:%d expects no more: these are "
                  "more arrivals than the %u that a phase expects",
                  b->at->file, b->at->line, b->expected);
    }
    simt_races_release(b->gathered); /* the phase is not over before they are */
    return (uint32_t)(b - mbarriers);
}

void simt_mbarrier_copied(uint32_t i, uint32_t thread, uint32_t time) {
    mbarrier *b = &mbarriers[i];
    uint32_t *gathered = &b->gathered[simt_races_actor(thread)];
    if (time > *gathered) *gathered = time;
    b->under_way--;
    if (--b->pending == 0) end_phase(b);
}

bool simt_mbarrier_is_awaited(uint32_t i) {
    return mbarriers[i].waiting > 0;
}

bool simt_mbarrier_wait(uint64_t address, uint32_t parity, bool parks, const simt_place *at) {
    mbarrier *b = find(address, parks ? "mbarrier.try_wait" : "mbarrier.test_wait", SIMT_ATOMIC_READ, at);
    if (parity > 1) simt_fail(at, "a wait for the parity %u of an mbarrier; 0 or 1 was expected", parity);
    if (b->over % 2 != parity) {
        simt_races_acquire(b->released);
        return true;
    }
    if (parks) {
        awaited[simt_now.running->index] = (uint16_t)(b - mbarriers + 1);
        b->waiting++;
        simt_park(parity ? "a phase of parity 1 of an mbarrier" : "a phase of parity 0 of an mbarrier", at);
    }
    return false;
}
