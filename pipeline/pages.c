#include "pipeline/pages.h"

#include "base/arena.h"
#include <stdint.h>
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
