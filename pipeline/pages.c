#include "pipeline/pages.h"

#include "base/arena.h"
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

void *ups_pages_alloc(size_t bytes) {
    if (bytes > (size_t)-1 - HUGE_PAGE) return NULL;
    size_t whole = bytes ? (bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1) : HUGE_PAGE;
    void *memory = ups_aligned_alloc(HUGE_PAGE, whole);
    if (memory) (void)madvise(memory, whole, MADV_HUGEPAGE); /* a wish; ordinary pages work too */
    return memory;
}

void ups_pages_free(void *memory) {
    ups_aligned_free(memory);
}
