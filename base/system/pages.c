#include "base/system/pages.h"

#include "base/arena.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ORDINARY_PAGE ((size_t)4 << 10)
#define HUGE_PAGE ((size_t)2 << 20)

static size_t page_of(size_t bytes) {
    return bytes < HUGE_PAGE ? ORDINARY_PAGE : HUGE_PAGE;
}

size_t ups_pages_bytes(size_t bytes) {
    size_t page = page_of(bytes);
    if (bytes > SIZE_MAX - HUGE_PAGE) return SIZE_MAX;
    return bytes ? (bytes + page - 1) & ~(page - 1) : page;
}

void *ups_pages_alloc(size_t bytes) {
    if (bytes > SIZE_MAX - HUGE_PAGE) return NULL;
    size_t whole = ups_pages_bytes(bytes);
    void *memory = ups_aligned_alloc(page_of(bytes), whole);
    if (memory && whole >= HUGE_PAGE) (void)madvise(memory, whole, MADV_HUGEPAGE); /* a wish; ordinary pages work too */
    return memory;
}

void ups_pages_free(void *memory) {
    ups_aligned_free(memory);
}

typedef struct kept {
    void *memory;
    size_t bytes;
    bool taken;
    struct kept *next;
} kept;

struct ups_pages_store {
    kept *first;
};

ups_pages_store *ups_pages_store_create(void) {
    return calloc(1, sizeof(ups_pages_store));
}

static void free_idle(ups_pages_store *store) {
    for (kept **at = &store->first; *at;) {
        kept *k = *at;
        if (k->taken) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        ups_pages_free(k->memory);
        free(k);
    }
}

void ups_pages_store_destroy(ups_pages_store *store) {
    if (!store) return;
    free_idle(store);
    free(store);
}

void *ups_pages_take(ups_pages_store *store, size_t bytes) {
    if (!store) return ups_pages_alloc(bytes);
    for (kept *k = store->first; k; k = k->next)
        if (!k->taken && k->bytes == bytes) {
            k->taken = true;
            return k->memory;
        }
    free_idle(store); /* what is wanted has changed: nothing is kept for wants that may never come */
    kept *k = malloc(sizeof *k);
    if (!k) return NULL;
    *k = (kept){.memory = ups_pages_alloc(bytes), .bytes = bytes, .taken = true, .next = store->first};
    if (!k->memory) {
        free(k);
        return NULL;
    }
    store->first = k;
    return k->memory;
}

void ups_pages_give(ups_pages_store *store, void *memory) {
    if (!store) {
        ups_pages_free(memory);
        return;
    }
    for (kept *k = store->first; k; k = k->next)
        if (k->memory == memory) k->taken = false;
}
