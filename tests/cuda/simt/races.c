/* The race checker: two accesses of the same bytes, one of which writes, must be ordered by something.
 *
 * Beside every four bytes of device and shared memory stands who wrote them last and which two threads, of two warps,
 * read them last: line, thread, block, piece of work, and the block's time. A block's time passes when threads of it
 * synchronise; `seen[w][u]` is up to which time warp w knows what warp u did.
 *
 *   in a block      ordered by barriers of the block, and by __syncwarp within a warp; shuffles order nothing
 *   by mbarriers    an arrival releases what its thread did and knows, and a wait that succeeds takes over what all
 *                   arrivals of the last phase released. Both are of single threads: what other lanes of the arriving
 *                   warp did counts up to where the warp last met (__syncwarp, a barrier), and other lanes of the
 *                   waiting warp know of it when they meet. What a thread knows so, its fences hand to other blocks as
 *                   far as it knows it of a whole warp
 *   between blocks  ordered by fences and atomics on device memory (the last block of a sum, say). A thread's fence
 *                   holds what the thread did before, and what barriers ordered before it; the thread's next atomic
 *                   that writes releases that. A later atomic that reads, by any thread of another block, takes it,
 *                   and that thread's next fence hands it to what the thread does after, and behind its barriers:
 *                   fence.acq_rel on both sides, as in the memory model of PTX
 *   between works   the runtime knows: order on a stream, events, edges of a graph, waiting by the host
 *
 * Atomics do not race with each other; they are what PTX calls relaxed, acquire, release and atom. `volatile` is a
 * plain access: CUDA C++ promises no order of it.
 *
 * Copies that arrive at an mbarrier instead of their thread (copies.c) are not its own: whoever takes over what it did
 * knows nothing of them, itself included. They are an actor beside it. Who waited for the phase that they arrived in
 * knows of them, and the thread when it waited for their group; from there on it goes as with what threads did.
 *
 * Products of warpgroups read shared memory through the asynchronous proxy. What was written before, by threads or
 * cp.async, and is known to all 128 threads, is seen by them where fence.proxy.async stands between the two: run
 *   - by the thread that wrote it, after it (and after it waited for its copies), a barrier, or a phase of an mbarrier,
 *     that the warpgroup waited for coming after that
 *   - or by every thread of the warpgroup, after it knew of the write, before it came to the product.
 * (PTX's memory model knows of other threads' on the way between them, too.) What products read is kept by warpgroup.c,
 * which wants it unchanged until they are done.
 *
 * What it cannot see: a reader that two later readers of other warps took the place of, parts of the same four
 * bytes that different threads had to do with, where the later took the place of the earlier, and that the two atomics
 * of a release were of different addresses. A __syncwarp of some lanes counts as one of the whole warp. */
#include "tests/cuda/simt/block.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { GRANULE = 4, WORK_THREAD = 0xffff, PROXY_FENCES = 16, VIEWS = 4 };

/* Small, since there are three for every four bytes: what takes time is to fetch them. */
typedef struct record {
    int32_t place;   /* place_of() it; 0: of work that is no kernel */
    uint32_t turn;   /* whose it is: of `turns` */
    uint32_t time;   /* of the block */
    uint16_t thread; /* or another actor of shared memory */
    uint8_t mask;    /* of the granule's bytes; 0: nothing yet */
    uint8_t kind;    /* simt_access, EXPECTED or COPIED */
} record;

enum {
    EXPECTED = SIMT_ATOMIC_WRITE + 1, /* an asynchronous copy is to write here */
    COPIED,                           /* it wrote, apart from its thread */
};

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

/* What an atomic of a thread released, in the order of atomics: of its own up to a time, and of what each warp of its
 * block did up to one. */
typedef struct release {
    uint32_t thread, time, known[SIMT_MAX_WARPS];
    uint32_t before; /* 1 + the release of the same block before this one; 0: none */
} release;

/* Of a thread: its last fence, and how many releases its atomics and fences have taken. */
typedef struct ordering {
    uint32_t fenced; /* the time of its last fence; 0: none */
    bool is_released;
    uint32_t observed, acquired;
    uint32_t known[SIMT_MAX_WARPS]; /* what each warp had done up to the fence */
} ordering;

/* When a thread last ran fence.proxy.async, and up to when it knew of its own copies: the last PROXY_FENCES times, of
 * `count`. */
typedef struct proxy_fences {
    uint32_t count, times[PROXY_FENCES], copied[PROXY_FENCES];
} proxy_fences;

/* What ran: a block of a launch, or other work. */
typedef struct turn {
    uint32_t launch, block;
} turn;
static turn *turns;
static uint32_t turn_count, turn_room;
static uint32_t own_turn; /* of the running block */

static uint32_t now, seen[SIMT_MAX_WARPS][SIMT_MAX_WARPS];
/* By phases of mbarriers, up to which time a warp knows what single actors did, and a thread, until its warp meets. */
static uint32_t heard_by_warp[SIMT_MAX_WARPS][SIMT_MAX_ACTORS], heard_by_thread[SIMT_MAX_THREADS][SIMT_MAX_ACTORS];
static bool has_heard[SIMT_MAX_THREADS]; /* of heard_by_thread: otherwise it is all 0 */
static bool any_phase;                   /* was waited for in this block */
static bool any_apart;                   /* copies of this block were brought apart */
static proxy_fences proxies[SIMT_MAX_THREADS];
static uint32_t views[SIMT_MAX_THREADS][VIEWS][SIMT_MAX_ACTORS]; /* what threads knew when they last ran one */
static bool any_proxy_fence;                                     /* of this block */
static release *releases;
static uint32_t *last_release; /* 1 + that of each block of the grid; 0: none */
static uint32_t release_count, release_room, block_room;
static ordering orderings[SIMT_MAX_THREADS];
static bool any_ordering; /* a thread of this block has one */
/* Releases that all of a warp know of, and the most that one of its threads does. */
static uint32_t acquired_by[SIMT_MAX_WARPS], acquired_in[SIMT_MAX_WARPS];
static simt_shadow *of_shared;

/* Otherwise all is taken for known to all, and no time passes. */
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

static uint32_t begin_turn(uint32_t launch, uint32_t block) {
    if (turn_count == turn_room) {
        turn_room = turn_room ? 2 * turn_room : 1 << 16;
        turns = turn_room ? realloc(turns, turn_room * sizeof *turns) : NULL; /* 0 behind 2³¹ */
        if (!turns) simt_fail(NULL, "no memory for what ran before; SIMT_RACES=0 looks for no races");
    }
    turns[turn_count] = (turn){launch, block};
    return turn_count++;
}

/* How far it lies from something that lies among the places of all kernels: they are constants of one program. */
static const simt_place anchor;

static int32_t number_of(const simt_place *place) {
    const intptr_t distance = (intptr_t)((uintptr_t)place - (uintptr_t)&anchor);
    if (distance != (int32_t)distance) simt_fail(place, "this place is too far from the race checker's to be kept");
    return (int32_t)distance;
}

static const simt_place *place_of(const record *r) {
    return r->place ? (const simt_place *)((uintptr_t)&anchor + (uintptr_t)(intptr_t)r->place) : NULL;
}

/* ---- time ---------------------------------------------------------------------------------------------------------
 */

void simt_races_launch(uint32_t launch, uint32_t blocks) {
    if (!is_wanted()) return;
    release_count = 0;
    if (blocks > block_room) {
        free(last_release);
        last_release = malloc(blocks * sizeof *last_release);
        if (!last_release) simt_fail(NULL, "no memory for a grid of %u blocks", blocks);
        block_room = blocks;
    }
    memset(last_release, 0, blocks * sizeof *last_release);
}

void simt_races_block(void) {
    if (!is_wanted()) return;
    now = 1;
    own_turn = begin_turn(simt_now.launch, simt_now.number);
    memset(seen, 0, sizeof seen);
    memset(acquired_by, 0, sizeof acquired_by);
    memset(acquired_in, 0, sizeof acquired_in);
    if (any_ordering) memset(orderings, 0, sizeof orderings);
    if (any_proxy_fence) memset(proxies, 0, sizeof proxies);
    if (any_phase) {
        memset(heard_by_warp, 0, sizeof heard_by_warp);
        for (uint32_t t = 0; t < SIMT_MAX_THREADS; t++) {
            if (has_heard[t]) memset(heard_by_thread[t], 0, sizeof heard_by_thread[t]);
            has_heard[t] = false;
        }
    }
    any_ordering = any_proxy_fence = any_phase = any_apart = false;
}

uint32_t simt_races_actor(uint32_t thread) {
    return simt_now.thread_count + thread;
}

uint32_t simt_races_actors(void) {
    if (!is_wanted()) return 0;
    return any_apart ? 2 * simt_now.thread_count : simt_now.thread_count;
}

static void keep_later(uint32_t *known, const uint32_t *by) {
    for (uint32_t i = 0; i < simt_races_actors(); i++) known[i] = known[i] > by[i] ? known[i] : by[i];
}

/* What threads heard becomes their warp's, and what warps heard that of all that meet. */
static void hear(uint32_t warps) {
    uint32_t all[SIMT_MAX_ACTORS] = {0};
    for (uint32_t t = 0; t < simt_now.thread_count; t++) {
        uint32_t w = t / SIMT_LANES;
        if (!has_heard[t] || !(warps >> w & 1)) continue;
        keep_later(heard_by_warp[w], heard_by_thread[t]);
        memset(heard_by_thread[t], 0, sizeof heard_by_thread[t]);
        has_heard[t] = false;
    }
    for (int w = 0; w < SIMT_MAX_WARPS; w++) {
        if (warps >> w & 1) keep_later(all, heard_by_warp[w]);
    }
    for (int w = 0; w < SIMT_MAX_WARPS; w++) {
        if (warps >> w & 1) memcpy(heard_by_warp[w], all, sizeof all);
    }
}

void simt_races_synchronise(uint32_t warps) {
    if (!is_wanted()) return;
    uint32_t known[SIMT_MAX_WARPS] = {0}, acquired = 0;
    for (int w = 0; w < SIMT_MAX_WARPS; w++) {
        if (!(warps >> w & 1)) continue;
        if (acquired_in[w] > acquired) acquired = acquired_in[w];
        for (int u = 0; u < SIMT_MAX_WARPS; u++) {
            if (seen[w][u] > known[u]) known[u] = seen[w][u];
        }
    }
    for (int u = 0; u < SIMT_MAX_WARPS; u++) {
        if (warps >> u & 1) known[u] = now;
    }
    for (int w = 0; w < SIMT_MAX_WARPS; w++) {
        if (!(warps >> w & 1)) continue;
        memcpy(seen[w], known, sizeof known);
        acquired_by[w] = acquired_in[w] = acquired;
    }
    if (any_phase) hear(warps);
    now++;
}

/* Up to which time a thread of this block knows what another actor did. */
static uint32_t known_to(uint32_t thread, uint32_t other) {
    uint32_t warp = thread / SIMT_LANES, known = other < simt_now.thread_count ? seen[warp][other / SIMT_LANES] : 0;
    if (!any_phase) return known;
    if (heard_by_warp[warp][other] > known) known = heard_by_warp[warp][other];
    return heard_by_thread[thread][other] > known ? heard_by_thread[thread][other] : known;
}

static uint32_t known_of_warp(uint32_t thread, uint32_t warp) {
    uint32_t known = known_to(thread, warp * SIMT_LANES);
    if (!any_phase) return known;
    for (uint32_t t = warp * SIMT_LANES; t < (warp + 1) * SIMT_LANES && t < simt_now.thread_count; t++) {
        uint32_t of_lane = known_to(thread, t);
        if (of_lane < known) known = of_lane;
    }
    return known;
}

void simt_fence(void) {
    if (!is_wanted()) return;
    uint32_t thread = simt_now.running->index, warp = thread / SIMT_LANES;
    ordering *o = &orderings[thread];
    any_ordering = true;
    o->fenced = now++; /* what the thread does from here on is later */
    o->is_released = false;
    for (uint32_t w = 0; w * SIMT_LANES < simt_now.thread_count; w++) o->known[w] = known_of_warp(thread, w);
    o->acquired = o->observed;
    if (o->acquired > acquired_in[warp]) acquired_in[warp] = o->acquired;
}

void simt_races_atomic(simt_access access) {
    if (!is_wanted()) return;
    uint32_t thread = simt_now.running->index, *last = &last_release[simt_now.number];
    ordering *o = &orderings[thread];
    any_ordering = true;
    if (access != SIMT_ATOMIC_WRITE) o->observed = release_count;
    if (access == SIMT_ATOMIC_READ || !o->fenced || o->is_released) return;
    if (release_count == release_room) {
        release_room = release_room ? 2 * release_room : 64;
        releases = realloc(releases, release_room * sizeof *releases);
        if (!releases) simt_fail(NULL, "no memory for what atomics of a grid released");
    }
    release *r = &releases[release_count++];
    *r = (release){.thread = thread, .time = o->fenced, .before = *last};
    memcpy(r->known, o->known, sizeof r->known);
    *last = release_count;
    o->is_released = true;
}

/* ---- order --------------------------------------------------------------------------------------------------------
 */

/* Whether the running block's thread knows of an access of another block. */
static bool was_released(const record *r, uint32_t thread) {
    uint32_t warp = thread / SIMT_LANES, own = orderings[thread].acquired;
    uint32_t acquired = own > acquired_by[warp] ? own : acquired_by[warp];
    for (uint32_t i = last_release[turns[r->turn].block]; i > 0; i = releases[i - 1].before) {
        const release *done = &releases[i - 1];
        if (i > acquired) continue;
        if (r->thread == done->thread ? r->time <= done->time : r->time <= done->known[r->thread / SIMT_LANES])
            return true;
    }
    return false;
}

static bool is_before(const record *r, const record *later) {
    if (r->turn != later->turn) {
        const turn *earlier = &turns[r->turn];
        if (earlier->launch != turns[later->turn].launch) return !simt_is_ordered || simt_is_ordered(earlier->launch);
        if (later->thread != WORK_THREAD) return was_released(r, later->thread);
    }
    if (later->thread == WORK_THREAD) return true; /* the same piece of work */
    return r->thread == later->thread || r->time <= known_to(later->thread, r->thread);
}

/* The thread that wrote, or whose copies did, in this block. */
static uint32_t thread_of(const record *r) {
    return r->kind == COPIED ? r->thread - simt_now.thread_count : r->thread;
}

static void describe(const record *r, char *text, size_t size) {
    static const char *const did[] = {
        "read", "write", "atomic", "atomic read", "atomic write", "asynchronous copy", "asynchronous copy"};
    const simt_place *at = place_of(r);
    const turn *own = &turns[r->turn];
    if (!at) {
        snprintf(text, size, "%s", simt_describe_work ? simt_describe_work(own->launch) : "other work");
        return;
    }
    int length = snprintf(text, size, "the %s in %s:%d", did[r->kind], at->file, at->line);
    if (length < 0 || (size_t)length >= size) return;
    char *rest = text + length;
    size -= (size_t)length;
    if (own->launch != simt_now.launch)
        snprintf(rest, size, " by an earlier kernel");
    else if (own->block != simt_now.number)
        snprintf(rest, size, " by thread %u of block %u", r->thread, own->block);
    else
        snprintf(rest, size, " by thread %u", thread_of(r));
}

static _Noreturn void report(const record *earlier, const record *later, const char *where, uint64_t offset) {
    static const char *const does[] = {"this read", "this write", "this atomic", "this atomic read",
                                       "this atomic write"};
    char other[512], self[256] = "";
    describe(earlier, other, sizeof other);
    const turn *first = &turns[earlier->turn], *second = &turns[later->turn];
    const char *missing = earlier->kind == COPIED           ? "no wait for its arrival, or for it,"
                          : first->launch != second->launch ? "no event or edge of a graph"
                          : first->block != second->block   ? "no fences and atomics"
                                                            : "no barrier";
    if (!later->place) describe(later, self, sizeof self);
    simt_fail(place_of(later), "race in %s memory, byte %llu: %s and %s, with %s between them", where,
              (unsigned long long)offset, later->place ? does[later->kind] : self, other, missing);
}

static bool is_read(uint8_t kind) {
    return kind == SIMT_READ || kind == SIMT_ATOMIC_READ;
}

static bool is_atomic(uint8_t kind) {
    return kind == SIMT_ATOMIC || kind == SIMT_ATOMIC_READ || kind == SIMT_ATOMIC_WRITE;
}

static bool clashes(const record *r, const record *later) {
    if (!(r->mask & later->mask)) return false;
    if (is_read(r->kind) && is_read(later->kind)) return false;
    if (is_atomic(r->kind) && is_atomic(later->kind)) return false;
    return !is_before(r, later);
}

/* Of the granule at `i * GRANULE`, the bytes that an access has to do with. */
static uint8_t mask_of(uint64_t i, uint64_t offset, uint64_t bytes) {
    uint64_t first = i * GRANULE, below = offset > first ? offset - first : 0;
    uint64_t above = offset + bytes < first + GRANULE ? first + GRANULE - offset - bytes : 0;
    return (uint8_t)(0xf << below & 0xf >> above);
}

static void check_granule(simt_shadow *shadow, granule *g, const record *later, const char *where, uint64_t offset) {
    const record *written = g->written.mask ? &g->written : &shadow->whole;
    if (clashes(written, later)) report(written, later, where, offset);
    shadow->is_touched = true;
    if (is_read(later->kind)) {
        uint32_t warp = later->thread / SIMT_LANES;
        bool same = g->read[0].turn == later->turn && g->read[0].thread / SIMT_LANES == warp;
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
    return r->turn == own_turn;
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
    record later = {number_of(at), own_turn, now, (uint16_t)simt_now.running->index, 0, (uint8_t)access};
    if (shadow != of_shared && is_atomic(later.kind)) simt_races_atomic(access);
    for (uint64_t i = offset / GRANULE; i <= (offset + bytes - 1) / GRANULE; i++) {
        granule *s = &shadow->granules[i];
        later.mask = mask_of(i, offset, bytes);
        if (shadow == of_shared) {
            forget_others(s);
            if (s->written.mask && s->written.kind == EXPECTED) {
                simt_fail(at,
                          "%s shared memory, byte %llu, that the asynchronous copy in %s:%d is still to bring: it "
                          "was not waited for",
                          is_read(later.kind) ? "reads" : "writes", (unsigned long long)offset,
                          place_of(&s->written)->file, place_of(&s->written)->line);
            }
        }
        check_granule(shadow, s, &later, where, offset);
    }
}

void simt_races_check_work(simt_shadow *shadow, uint32_t launch, uint64_t offset, size_t bytes, bool write) {
    static uint32_t work_turn; /* the last one of a work */
    if (turn_count == 0 || turns[work_turn].launch != launch) work_turn = begin_turn(launch, 0);
    record later = {0, work_turn, 0, WORK_THREAD, 0, write ? SIMT_WRITE : SIMT_READ};
    if (write && !shadow->is_touched && !shadow->whole.mask && offset == 0 && bytes == shadow->bytes) {
        shadow->whole = later;
        shadow->whole.mask = 0xf;
        return;
    }
    for (uint64_t i = offset / GRANULE; bytes && i <= (offset + bytes - 1) / GRANULE; i++) {
        later.mask = mask_of(i, offset, bytes);
        check_granule(shadow, &shadow->granules[i], &later, "device", i * GRANULE);
    }
}

void simt_races_expect(uint32_t offset, uint32_t bytes, const simt_place *at) {
    simt_shadow *shadow = simt_shadow_of_shared();
    for (uint32_t i = offset / GRANULE; shadow && i <= (offset + bytes - 1) / GRANULE; i++) {
        shadow->granules[i].written.kind = EXPECTED;
        shadow->granules[i].written.place = number_of(at);
    }
}

void simt_races_arrived(uint32_t offset, uint32_t bytes, uint32_t thread, bool is_apart) {
    simt_shadow *shadow = simt_shadow_of_shared();
    any_apart |= is_apart;
    for (uint32_t i = offset / GRANULE; shadow && i <= (offset + bytes - 1) / GRANULE; i++) {
        record *written = &shadow->granules[i].written;
        written->kind = is_apart ? COPIED : SIMT_WRITE;
        written->thread = (uint16_t)(is_apart ? simt_races_actor(thread) : thread);
        written->time = now;
    }
}

uint32_t simt_races_copied(void) {
    return now++;
}

void simt_races_hear_copies(uint32_t time) {
    uint32_t thread = simt_now.running->index, *known = &heard_by_thread[thread][simt_races_actor(thread)];
    if (time == 0 || !is_wanted()) return;
    if (time > *known) *known = time;
    has_heard[thread] = any_phase = true;
}

/* ---- phases of mbarriers -------------------------------------------------------------------------------------------
 */

uint32_t simt_races_now(void) {
    return now;
}

uint32_t simt_races_known(uint32_t actor) {
    return is_wanted() ? known_to(simt_now.running->index, actor) : UINT32_MAX;
}

uint32_t simt_races_seen(uint32_t warp) {
    return is_wanted() ? seen[simt_now.running->index / SIMT_LANES][warp] : UINT32_MAX;
}

void simt_races_release(uint32_t *known) {
    if (!is_wanted()) return;
    uint32_t thread = simt_now.running->index;
    for (uint32_t i = 0; i < simt_races_actors(); i++) {
        uint32_t own = known_to(thread, i);
        if (own > known[i]) known[i] = own;
    }
    known[thread] = now++; /* what the thread does from here on is later */
}

void simt_races_acquire(const uint32_t *known) {
    if (!is_wanted()) return;
    uint32_t thread = simt_now.running->index;
    keep_later(heard_by_thread[thread], known);
    has_heard[thread] = any_phase = true;
}

/* ---- products of warpgroups ----------------------------------------------------------------------------------------
 */

void simt_races_readers(simt_readers *readers) {
    if (!is_wanted()) return;
    readers->warps = 0;
    memset(readers->known, 0xff, sizeof readers->known);
    memset(readers->fenced, 0xff, sizeof readers->fenced);
}

void simt_races_come(simt_readers *readers) {
    if (!is_wanted()) return;
    uint32_t thread = simt_now.running->index, warp = 1u << thread / SIMT_LANES;
    readers->fences[thread % SIMT_GROUP_THREADS] = proxies[thread].count;
    if (readers->warps & warp && !any_phase) return; /* a warp's first knows least */
    readers->warps |= warp;
    uint32_t actors = simt_races_actors();
    for (uint32_t i = 0; i < actors; i++) {
        uint32_t own = known_to(thread, i);
        if (own < readers->known[i]) readers->known[i] = own;
    }
    memset(readers->known + actors, 0, (2 * simt_now.thread_count - actors) * sizeof *readers->known);
}

void simt_proxy_fence(void) {
    if (!is_wanted()) return;
    uint32_t thread = simt_now.running->index, actors = simt_races_actors();
    proxy_fences *p = &proxies[thread];
    uint32_t *view = views[thread][p->count % VIEWS];
    any_proxy_fence = true;
    for (uint32_t i = 0; i < actors; i++) view[i] = known_to(thread, i);
    memset(view + actors, 0, (2 * simt_now.thread_count - actors) * sizeof *view);
    view[thread] = now;
    p->copied[p->count % PROXY_FENCES] = view[simt_races_actor(thread)];
    p->times[p->count++ % PROXY_FENCES] = now++; /* what the thread writes from here on is later */
}

/* Whether a thread ran fence.proxy.async between a write, of its own or its copies', and what the others know of it.
 * Fences that are too long ago to be remembered are taken for one. */
static bool is_fenced_by_writer(const record *written, const uint32_t *known) {
    uint32_t thread = thread_of(written);
    const proxy_fences *p = &proxies[thread];
    const uint32_t *covers = written->kind == COPIED ? p->copied : p->times;
    for (uint32_t i = 0; i < p->count && i < PROXY_FENCES; i++) {
        if (covers[i] >= written->time && p->times[i] <= known[thread]) return true;
    }
    return p->count > PROXY_FENCES && written->time < covers[p->count % PROXY_FENCES];
}

/* Up to which time a thread knew what an actor did before the `count`-th fence.proxy.async of its own, or the oldest
 * that is remembered. */
static uint32_t known_at_fence(uint32_t thread, uint32_t count, uint32_t actor) {
    uint32_t run = proxies[thread].count;
    if (count == 0) return 0;
    if (run > VIEWS && count < run - VIEWS + 1) count = run - VIEWS + 1;
    return views[thread][(count - 1) % VIEWS][actor];
}

/* Whether every thread of the running thread's warpgroup ran one between what it knows of a write and a product. */
static bool is_fenced_by_readers(const record *written, simt_readers *readers) {
    uint32_t first = simt_now.running->index / SIMT_GROUP_THREADS * SIMT_GROUP_THREADS;
    uint32_t *least = &readers->fenced[written->thread];
    if (*least == UINT32_MAX) {
        for (uint32_t t = 0; t < SIMT_GROUP_THREADS; t++) {
            uint32_t known = known_at_fence(first + t, readers->fences[t], written->thread);
            if (known < *least) *least = known;
        }
    }
    return written->time <= *least;
}

void simt_races_read_by_product(uint32_t offset, simt_readers *readers, const simt_place *at) {
    simt_shadow *shadow = simt_shadow_of_shared();
    for (uint32_t i = offset / GRANULE; shadow && i < (offset + SIMT_ROW) / GRANULE; i++) {
        const record *w = &shadow->granules[i].written;
        if (!w->mask || !is_current(w)) continue;
        if (w->kind == EXPECTED) {
            simt_fail(at,
                      "reads shared memory, byte %u, that the asynchronous copy in %s:%d is still to bring: it was "
                      "not waited for",
                      i * GRANULE, place_of(w)->file, place_of(w)->line);
        }
        if (w->time > readers->known[w->thread]) {
            simt_fail(at, "race in shared memory, byte %u: this wgmma and the %s in %s:%d by thread %u, with no %s",
                      i * GRANULE, w->kind == COPIED ? "asynchronous copy" : "write", place_of(w)->file,
                      place_of(w)->line, thread_of(w),
                      w->kind == COPIED ? "wait by all of the warpgroup for its arrival" : "barrier between them");
        }
        if (!is_fenced_by_writer(w, readers->known) && !is_fenced_by_readers(w, readers)) {
            simt_fail(at,
                      "this wgmma may not see byte %u of shared memory as thread %u wrote it in %s:%d: "
                      "fence.proxy.async is missing, either by that thread, between the write and the barrier or the "
                      "arrival that the warpgroup waited for, or by each thread of the warpgroup, after it waited",
                      i * GRANULE, thread_of(w), place_of(w)->file, place_of(w)->line);
        }
    }
}
