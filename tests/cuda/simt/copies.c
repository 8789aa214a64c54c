/* cp.async: a copy happens at the last moment it may, when its group is waited for. Until then its destination counts
 * as expected, and who reads it is told (races.c).
 *
 * cp.async.mbarrier.arrive: an arrival that happens when the copies that its thread issued before it are over. The
 * thread goes on, and may end. The arrival happens, and with it those of its copies that nobody waited for,
 *   - where no thread of the block can go on, one waits at this mbarrier, and earlier arrivals of the copying thread
 *     are over; one at a time, until some thread can go on
 *   - or where a thread went round a loop for so long that another gets its turn, since it may look for what waits for
 *     the arrival: then all that are under way happen
 *   - or each SWITCHES-th time that another thread runs, for the same reason: one, if possible one that is waited for
 *   - or, in random order, when another thread runs, at random
 *   - or where the thread has no room for more.
 * cp.async.wait_group has the copies happen, but not the arrivals. Copies that no arrival follows have to be waited for
 * before their thread ends. */
#include "tests/cuda/simt/block.h"
#include <string.h>

enum { SWITCHES = 1 << 10, EARLY = 4 /* one time in so many, in random order */ };

static uint32_t under_way; /* arrivals of the block */
static uint32_t switches;  /* while there are any */

void simt_copies_block(void) {
    under_way = switches = 0;
}

/* ---- what happens late ---------------------------------------------------------------------------------------------
 */

static void bring(const simt_thread *t, uint32_t from, uint32_t end, bool is_apart) {
    for (uint32_t i = from; i < end; i++) {
        const simt_copy *c = &t->copies[i];
        uint8_t *to = simt_now.shared + c->to;
        if (c->source_bytes) memcpy(to, c->from, c->source_bytes);
        memset(to + c->source_bytes, 0, c->bytes - c->source_bytes);
        simt_races_arrived(c->to, c->bytes, t->index, is_apart);
    }
}

static uint32_t less(uint32_t a, uint32_t b) {
    return a > b ? a - b : 0;
}

/* The first copies of a thread happen: those that an arrival follows apart from the thread, which does not know of it.
 */
static void complete(simt_thread *t, uint32_t count) {
    uint32_t done = 0;
    for (uint32_t i = 0; i < t->arrival_count; i++) {
        simt_arrival *a = &t->arrivals[i];
        uint32_t end = a->copies < count ? a->copies : count;
        if (end > done) {
            bring(t, done, end, true);
            uint32_t begin = 0;
            t->brought = simt_races_copied();
            for (uint32_t g = 0; g <= t->group_count; g++) {
                simt_copy_group *group = g < t->group_count ? &t->groups[g] : &t->open;
                if (begin < end && (g == t->group_count || group->end > done)) group->time = t->brought;
                begin = group->end;
            }
            done = end;
        }
        if (a->copies) a->time = t->brought;
        a->copies -= end;
    }
    bring(t, done, count, false);
    t->copy_count -= count;
    memmove(t->copies, t->copies + count, t->copy_count * sizeof *t->copies);
    for (uint32_t g = 0; g < t->group_count; g++) t->groups[g].end = less(t->groups[g].end, count);
}

/* A thread's first arrival happens. */
static void arrive(simt_thread *t) {
    if (t->arrivals[0].copies) complete(t, t->arrivals[0].copies);
    simt_arrival a = t->arrivals[0];
    memmove(t->arrivals, t->arrivals + 1, --t->arrival_count * sizeof *t->arrivals);
    under_way--;
    simt_mbarrier_copied(a.mbarrier, t->index, a.time);
}

static bool is_wanted(const simt_thread *t, bool awaited) {
    for (uint32_t i = 0; i < t->arrival_count; i++) {
        if (!awaited || simt_mbarrier_is_awaited(t->arrivals[i].mbarrier)) return true;
    }
    return false;
}

/* The first arrival of some thread happens: of one of which any is awaited, if that is asked for. */
static bool arrive_somewhere(bool awaited) {
    static simt_thread *found[SIMT_MAX_THREADS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < simt_now.thread_count && under_way; i++) {
        if (is_wanted(&simt_now.threads[i], awaited)) found[count++] = &simt_now.threads[i];
    }
    if (count > 0) arrive(found[simt_choose(count)]);
    return count > 0;
}

bool simt_copies_help(void) {
    return arrive_somewhere(true);
}

void simt_copies_switch(void) {
    if (!under_way) return;
    if (++switches % SWITCHES == 0 && !simt_copies_help()) arrive_somewhere(false);
    while (simt_order_wanted() == SIMT_RANDOM && under_way && simt_random(EARLY) == 0) arrive_somewhere(false);
}

void simt_copies_finish(void) {
    while (under_way) arrive_somewhere(false);
}

/* ---- what threads ask for ------------------------------------------------------------------------------------------
 */

void simt_copy_async(uint64_t to, uint64_t from, uint32_t bytes, uint32_t source_bytes, const simt_place *at) {
    simt_thread *t = simt_now.running;
    if (bytes != 4 && bytes != 8 && bytes != 16) simt_fail(at, "cp.async of %u bytes; 4, 8 or 16 were expected", bytes);
    if (source_bytes > bytes) simt_fail(at, "cp.async of %u bytes with a source of %u", bytes, source_bytes);
    while (t->copy_count == SIMT_MAX_COPIES && t->arrival_count) arrive(t);
    if (t->copy_count == SIMT_MAX_COPIES)
        simt_fail(at, "more than %d asynchronous copies of a thread at once", SIMT_MAX_COPIES);
    if (from % bytes)
        simt_fail(at, "cp.async: address %#llx of %u bytes is not aligned", (unsigned long long)from, bytes);
    const uint8_t *source = NULL;
    if (source_bytes) {
        uint32_t step = source_bytes == bytes ? bytes : 1;
        source = simt_reach(SIMT_GLOBAL, from, step, SIMT_READ, at);
        for (uint32_t i = step; i < source_bytes; i += step) simt_reach(SIMT_GLOBAL, from + i, step, SIMT_READ, at);
    }
    simt_reach(SIMT_SHARED, to, bytes, SIMT_WRITE, at);
    simt_races_expect((uint32_t)to, bytes, at);
    t->copies[t->copy_count++] = (simt_copy){(uint32_t)to, bytes, source_bytes, source, at};
}

void simt_copy_async_commit(void) {
    simt_thread *t = simt_now.running;
    if (t->group_count == SIMT_MAX_COPIES) simt_copy_async_wait(SIMT_MAX_COPIES - 1);
    t->open.end = t->copy_count;
    t->groups[t->group_count++] = t->open;
    t->open = (simt_copy_group){0};
}

void simt_copy_async_wait(uint32_t groups_left) {
    simt_thread *t = simt_now.running;
    if (t->group_count <= groups_left) return;
    uint32_t groups = t->group_count - groups_left;
    complete(t, t->groups[groups - 1].end);
    for (uint32_t g = 0; g < groups; g++) simt_races_hear_copies(t->groups[g].time);
    t->group_count = groups_left;
    memmove(t->groups, t->groups + groups, groups_left * sizeof *t->groups);
}

void simt_copy_async_arrive(uint64_t mbarrier, bool adds, const simt_place *at) {
    simt_thread *t = simt_now.running;
    if (t->arrival_count == SIMT_MAX_COPIES) arrive(t);
    simt_arrival a = {simt_mbarrier_expect(mbarrier, adds, at), t->copy_count, t->brought};
    t->arrivals[t->arrival_count++] = a;
    under_way++;
}

void simt_copies_end(void) {
    const simt_thread *t = simt_now.running;
    uint32_t followed = t->arrival_count ? t->arrivals[t->arrival_count - 1].copies : 0;
    if (t->copy_count > followed)
        simt_fail(t->copies[followed].at, "an asynchronous copy that nobody waited for before the thread ended");
}
