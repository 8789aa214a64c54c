/* The race checker: two accesses of the same bytes, one of which writes, must be ordered by something.
 *
 * Beside every two bytes of device and shared memory stands who wrote them last and which two threads, of two warps,
 * read them last: line, thread, block, piece of work, and the block's time. A block's time passes when threads of it
 * synchronise; `seen[w][u]` is up to which time warp w knows what warp u did.
 *
 *   in a block      ordered by barriers of the block, and by __syncwarp within a warp; shuffles order nothing
 *   between blocks  ordered where one did an atomic after its access and the other one after that (the last block of a
 *                   sum, say); that a fence stood before it is not checked
 *   between works   the runtime knows: order on a stream, events, edges of a graph, waiting by the host
 *
 * Atomics do not race with each other. What it cannot see: a reader that two later readers of other warps took the
 * place of, and neighbouring single bytes of different threads where the later took the place of the earlier. */
#include "tests/cuda/simt/block.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { GRANULE = 2, WORK_THREAD = 0xffff };

typedef struct record {
    const simt_place *at; /* NULL: of work that is no kernel */
    uint32_t launch, block, time;
    uint16_t thread;
    uint8_t mask; /* of the granule's bytes; 0: nothing yet */
    uint8_t kind; /* simt_access, or EXPECTED */
} record;

enum { EXPECTED = SIMT_ATOMIC + 1 }; /* an asynchronous copy is to write here */

typedef struct granule {
    record written, read[2];
} granule;

/* A first write of the whole, such as zeroing what was allocated, is kept as one record. */
struct simt_shadow {
    record whole;
    bool is_touched;
    size_t bytes;
    granule *granules; /* pages of it are there once they are touched */
};

/* What is known of a block of the grid that runs, once it did an atomic. */
typedef struct released {
    uint32_t sequence, time;
} released;

static uint32_t now, seen[SIMT_MAX_WARPS][SIMT_MAX_WARPS];
static released *releases;
static uint32_t release_room, sequence, acquired;
static simt_shadow *of_shared;

static bool is_wanted(void) {
    static int wanted = -1;
    if (wanted < 0) {
        const char *text = getenv("SIMT_RACES");
        wanted = !(text && strcmp(text, "0") == 0);
    }
    return wanted;
}

static size_t granule_bytes(size_t bytes) {
    return (bytes / GRANULE + 1) * sizeof(granule);
}

simt_shadow *simt_shadow_create(size_t bytes) {
    if (!is_wanted()) return NULL;
    simt_shadow *shadow = calloc(1, sizeof *shadow);
    void *memory =
        mmap(NULL, granule_bytes(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!shadow || memory == MAP_FAILED)
        simt_fail(NULL, "no memory to look for races in %zu bytes; SIMT_RACES=0 does not", bytes);
    shadow->bytes = bytes;
    shadow->granules = memory;
    return shadow;
}

void simt_shadow_destroy(simt_shadow *shadow) {
    if (!shadow) return;
    munmap(shadow->granules, granule_bytes(shadow->bytes));
    free(shadow);
}

simt_shadow *simt_shadow_of_shared(void) {
    if (!of_shared) of_shared = simt_shadow_create(SIMT_MAX_SHARED);
    return of_shared;
}

/* ---- time ---------------------------------------------------------------------------------------------------------
 */

void simt_races_launch(uint32_t launch, uint32_t blocks) {
    sequence = 0;
    if (blocks > release_room) {
        free(releases);
        releases = malloc(blocks * sizeof *releases);
        if (!releases) simt_fail(NULL, "no memory for a grid of %u blocks", blocks);
        release_room = blocks;
    }
    memset(releases, 0, blocks * sizeof *releases);
}

void simt_races_block(void) {
    now = 1;
    acquired = 0;
    memset(seen, 0, sizeof seen);
}

void simt_races_synchronise(uint32_t warps) {
    uint32_t known[SIMT_MAX_WARPS] = {0};
    for (int w = 0; w < SIMT_MAX_WARPS; w++) {
        if (!(warps >> w & 1)) continue;
        for (int u = 0; u < SIMT_MAX_WARPS; u++) {
            if (seen[w][u] > known[u]) known[u] = seen[w][u];
        }
    }
    for (int u = 0; u < SIMT_MAX_WARPS; u++) {
        if (warps >> u & 1) known[u] = now;
    }
    for (int w = 0; w < SIMT_MAX_WARPS; w++) {
        if (warps >> w & 1) memcpy(seen[w], known, sizeof known);
    }
    now++;
}

/* A block releases what it did, and acquires what others released before. */
void simt_races_atomic(void) {
    releases[simt_now.number] = (released){++sequence, now};
    acquired = sequence;
}

/* ---- order --------------------------------------------------------------------------------------------------------
 */

static bool is_before(const record *r, uint32_t launch, uint32_t thread) {
    if (r->launch != launch) return !simt_is_ordered || simt_is_ordered(r->launch);
    if (thread == WORK_THREAD) return true; /* the same piece of work */
    if (r->block != simt_now.number) {
        const released *done = &releases[r->block];
        return done->sequence > 0 && done->sequence < acquired && done->time >= r->time;
    }
    return r->thread == thread || r->time <= seen[thread / SIMT_LANES][r->thread / SIMT_LANES];
}

static void describe(const record *r, char *text, size_t size) {
    static const char *const did[] = {"read", "write", "atomic", "asynchronous copy"};
    if (!r->at) {
        snprintf(text, size, "%s", simt_describe_work ? simt_describe_work(r->launch) : "other work");
        return;
    }
    int length = snprintf(text, size, "the %s in %s:%d", did[r->kind], r->at->file, r->at->line);
    if (length < 0 || (size_t)length >= size) return;
    char *rest = text + length;
    size -= (size_t)length;
    if (r->launch != simt_now.launch)
        snprintf(rest, size, " by an earlier kernel");
    else if (r->block != simt_now.number)
        snprintf(rest, size, " by thread %u of block %u", r->thread, r->block);
    else
        snprintf(rest, size, " by thread %u", r->thread);
}

static _Noreturn void report(const record *earlier, const record *later, const char *where, uint64_t offset) {
    static const char *const does[] = {"this read", "this write", "this atomic"};
    char other[512], self[256] = "";
    describe(earlier, other, sizeof other);
    const char *missing = earlier->launch != later->launch ? "no event or edge of a graph"
                          : earlier->block != later->block ? "nothing"
                                                           : "no barrier";
    if (!later->at) describe(later, self, sizeof self);
    simt_fail(later->at, "race in %s memory, byte %llu: %s and %s, with %s between them", where,
              (unsigned long long)offset, later->at ? does[later->kind] : self, other, missing);
}

static bool clashes(const record *r, const record *later) {
    if (!(r->mask & later->mask)) return false;
    if (r->kind == SIMT_READ && later->kind == SIMT_READ) return false;
    if (r->kind == SIMT_ATOMIC && later->kind == SIMT_ATOMIC) return false;
    return !is_before(r, later->launch, later->thread);
}

static void check_granule(simt_shadow *shadow, granule *g, const record *later, const char *where, uint64_t offset) {
    const record *written = g->written.mask ? &g->written : &shadow->whole;
    if (clashes(written, later)) report(written, later, where, offset);
    shadow->is_touched = true;
    if (later->kind == SIMT_READ) {
        uint32_t warp = later->thread / SIMT_LANES;
        bool same = g->read[0].launch == later->launch && g->read[0].block == later->block &&
                    g->read[0].thread / SIMT_LANES == warp;
        if (!same) g->read[1] = g->read[0];
        g->read[0] = *later;
        return;
    }
    for (int i = 0; i < 2; i++) {
        if (clashes(&g->read[i], later)) report(&g->read[i], later, where, offset);
        g->read[i].mask = 0;
    }
    g->written = *later;
}

static bool is_current(const record *r) {
    return r->launch == simt_now.launch && r->block == simt_now.number;
}

/* Shared memory is a block's own: what others left there does not count. */
static void forget_others(granule *s) {
    if (!is_current(&s->written)) s->written.mask = 0;
    for (int i = 0; i < 2; i++) {
        if (!is_current(&s->read[i])) s->read[i].mask = 0;
    }
}

void simt_races_check(simt_shadow *shadow, uint64_t offset, uint32_t bytes, simt_access access, const char *where,
                      const simt_place *at) {
    record later = {at, simt_now.launch, simt_now.number, now, (uint16_t)simt_now.running->index, 3, (uint8_t)access};
    if (bytes == 1) later.mask = (uint8_t)(1u << offset % GRANULE);
    if (access == SIMT_ATOMIC) simt_races_atomic();
    for (uint64_t i = offset / GRANULE; i <= (offset + bytes - 1) / GRANULE; i++) {
        granule *s = &shadow->granules[i];
        if (shadow == of_shared) {
            forget_others(s);
            if (s->written.mask && s->written.kind == EXPECTED) {
                simt_fail(at,
                          "%s shared memory, byte %llu, that the asynchronous copy in %s:%d is still to bring: it "
                          "was not waited for",
                          access == SIMT_READ ? "reads" : "writes", (unsigned long long)offset, s->written.at->file,
                          s->written.at->line);
            }
        }
        check_granule(shadow, s, &later, where, offset);
    }
}

void simt_races_check_work(simt_shadow *shadow, uint32_t launch, uint64_t offset, size_t bytes, bool write) {
    record later = {NULL, launch, 0, 0, WORK_THREAD, 3, write ? SIMT_WRITE : SIMT_READ};
    if (write && !shadow->is_touched && !shadow->whole.mask && offset == 0 && bytes == shadow->bytes) {
        shadow->whole = later;
        return;
    }
    for (uint64_t i = offset / GRANULE; bytes && i <= (offset + bytes - 1) / GRANULE; i++) {
        check_granule(shadow, &shadow->granules[i], &later, "device", i * GRANULE);
    }
}

void simt_races_expect(uint32_t offset, uint32_t bytes, const simt_place *at) {
    simt_shadow *shadow = simt_shadow_of_shared();
    for (uint32_t i = offset / GRANULE; shadow && i <= (offset + bytes - 1) / GRANULE; i++) {
        shadow->granules[i].written.kind = EXPECTED;
        shadow->granules[i].written.at = at;
    }
}

/* The copying thread writes, when it waits. */
void simt_races_arrived(uint32_t offset, uint32_t bytes, const simt_place *at) {
    simt_shadow *shadow = simt_shadow_of_shared();
    for (uint32_t i = offset / GRANULE; shadow && i <= (offset + bytes - 1) / GRANULE; i++) {
        shadow->granules[i].written.kind = SIMT_WRITE;
        shadow->granules[i].written.time = now;
    }
}
