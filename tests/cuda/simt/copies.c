/* cp.async: a copy happens at the last moment it may, when its group is waited for. Until then its destination counts
 * as expected, and who reads it is told (races.c). */
#include "tests/cuda/simt/block.h"
#include <string.h>

void simt_copy_async(uint64_t to, uint64_t from, uint32_t bytes, uint32_t source_bytes, const simt_place *at) {
    simt_thread *t = simt_now.running;
    if (bytes != 4 && bytes != 8 && bytes != 16) simt_fail(at, "cp.async of %u bytes; 4, 8 or 16 were expected", bytes);
    if (source_bytes > bytes) simt_fail(at, "cp.async of %u bytes with a source of %u", bytes, source_bytes);
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
    t->groups[t->group_count++] = t->copy_count;
}

void simt_copy_async_wait(uint32_t groups_left) {
    simt_thread *t = simt_now.running;
    if (t->group_count <= groups_left) return;
    uint32_t groups = t->group_count - groups_left, count = t->groups[groups - 1];
    for (uint32_t i = 0; i < count; i++) {
        const simt_copy *c = &t->copies[i];
        uint8_t *to = simt_now.shared + c->to;
        if (c->source_bytes) memcpy(to, c->from, c->source_bytes);
        memset(to + c->source_bytes, 0, c->bytes - c->source_bytes);
        simt_races_arrived(c->to, c->bytes, c->at);
    }
    t->copy_count -= count;
    t->group_count = groups_left;
    memmove(t->copies, t->copies + count, t->copy_count * sizeof *t->copies);
    for (uint32_t i = 0; i < groups_left; i++) t->groups[i] = t->groups[i + groups] - count;
}

void simt_copies_end(void) {
    const simt_thread *t = simt_now.running;
    if (t->copy_count)
        simt_fail(t->copies[0].at, "an asynchronous copy that nobody waited for before the thread ended");
}
