/* What kernels address.
 *
 *   device memory     a window that is never readable: the host faults on it. Its contents lie in a second window, the
 *                     same distance from each address
 *   shared memory     offsets from 0; as a generic address, in a window of its own that is never readable either
 *   local memory      of a thread, and its parameters: the addresses of what holds them
 *   variables         __constant__ and __device__: registered by the translated file
 *
 * Allocations are never handed out again, and begin 512 bytes into a page with a page behind them that nobody has: an
 * address just outside of one belongs to nothing, and one of memory that was freed is known as such. */
#include "tests/cuda/simt/block.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define WINDOW_BYTES ((uint64_t)64 << 30)
#define SHARED_WINDOW_BYTES ((uint64_t)1 << 20)
enum { PAGE = 4096, HUGE_FROM = 4 << 20, OFFSET = 512, POISON = 0xff, MAX_VARIABLES = 1024, MAX_KERNELS = 4096 };

typedef struct allocation {
    uint64_t begin, bytes;
    simt_shadow *shadow;
    bool freed;
} allocation;

typedef struct variable {
    const char *name;
    uint8_t *memory;
    size_t bytes;
    bool constant;
} variable;

static allocation *allocations; /* ascending */
static size_t allocation_count, allocation_room, last_found;
static uint64_t window, contents, used = PAGE, shared_window;
simt_open simt_opened;
static variable variables[MAX_VARIABLES];
static uint32_t variable_count;
static const simt_kernel *kernels[MAX_KERNELS];
static uint32_t kernel_count;

/* ---- kernels and variables ----------------------------------------------------------------------------------------
 */

const simt_kernel *simt_find_kernel(const char *name) {
    for (uint32_t i = 0; i < kernel_count; i++) {
        if (strcmp(kernels[i]->name, name) == 0) return kernels[i];
    }
    return NULL;
}

void simt_add_kernels(const simt_kernel *added) {
    for (; added->name; added++) {
        if (simt_find_kernel(added->name))
            simt_fail(NULL, "two kernels are named %s; give one another name", added->name);
        if (kernel_count == MAX_KERNELS) simt_fail(NULL, "more than %d kernels", MAX_KERNELS);
        kernels[kernel_count++] = added;
    }
}

void simt_add_variable(const char *name, void *memory, size_t bytes, bool constant) {
    if (variable_count == MAX_VARIABLES) simt_fail(NULL, "more than %d variables", MAX_VARIABLES);
    variables[variable_count++] = (variable){name, memory, bytes, constant};
}

/* ---- allocations --------------------------------------------------------------------------------------------------
 */

static uint64_t reserve(uint64_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) simt_fail(NULL, "no room for %llu MB of addresses", (unsigned long long)bytes >> 20);
    return (uint64_t)(uintptr_t)memory;
}

static void open_windows(void) {
    if (window) return;
    window = reserve(WINDOW_BYTES);
    contents = reserve(WINDOW_BYTES);
    shared_window = reserve(SHARED_WINDOW_BYTES);
}

void *simt_memory_contents(uint64_t address) {
    return (void *)(uintptr_t)(address - window + contents);
}

static uint64_t whole_pages(uint64_t bytes) {
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

uint64_t simt_memory_allocate(size_t bytes) {
    open_windows();
    uint64_t room = whole_pages(OFFSET + bytes);
    if (bytes > WINDOW_BYTES || used + room + PAGE > WINDOW_BYTES) return 0;
    uint64_t page = window + used;
    if (mprotect(simt_memory_contents(page), room, PROT_READ | PROT_WRITE) != 0) return 0;
    if (allocation_count == allocation_room) {
        allocation_room = allocation_room ? 2 * allocation_room : 64;
        allocations = realloc(allocations, allocation_room * sizeof *allocations);
        if (!allocations) simt_fail(NULL, "no memory for a list of allocations");
    }
    used += room + PAGE;
    allocations[allocation_count++] = (allocation){page + OFFSET, bytes, simt_shadow_create(bytes), false};
    if (room >= HUGE_FROM) madvise(simt_memory_contents(page), room, MADV_HUGEPAGE); /* fewer faults */
    memset(simt_memory_contents(page), POISON, room);
    return page + OFFSET;
}

/* The allocation that begins at or below an address; NULL: none does. */
static allocation *find(uint64_t address) {
    if (last_found < allocation_count) {
        allocation *last = &allocations[last_found];
        if (address - last->begin < last->bytes) return last;
    }
    size_t low = 0, high = allocation_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (allocations[middle].begin <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0) return NULL;
    last_found = low - 1;
    return &allocations[low - 1];
}

bool simt_memory_free(uint64_t address) {
    allocation *a = find(address);
    if (!a || a->begin != address || a->freed) return false;
    uint64_t page = address - OFFSET, room = whole_pages(OFFSET + a->bytes);
    mmap(simt_memory_contents(page), room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    simt_shadow_destroy(a->shadow);
    a->shadow = NULL;
    a->freed = true;
    simt_opened.bytes = 0;
    return true;
}

bool simt_memory_is_device(const void *address) {
    return window && (uint64_t)(uintptr_t)address - window < WINDOW_BYTES;
}

/* NULL, or what is wrong with an access. */
static const char *check(const allocation *a, uint64_t address, uint64_t bytes) {
    static char text[200];
    if (!simt_memory_is_device((void *)(uintptr_t)address)) return "no device memory";
    if (!a) return "below all device memory";
    uint64_t offset = address - a->begin;
    if (offset >= a->bytes || a->bytes - offset < bytes) {
        snprintf(text, sizeof text, "byte %llu of an allocation of %llu%s", (unsigned long long)offset,
                 (unsigned long long)a->bytes, a->freed ? ", which was freed besides" : "");
        return text;
    }
    return a->freed ? "memory that was freed" : NULL;
}

void *simt_memory_reach(uint32_t launch, uint64_t address, size_t bytes, bool write, const char **wrong) {
    const allocation *a = find(address);
    *wrong = check(a, address, bytes);
    if (*wrong) return NULL;
    if (a->shadow) simt_races_check_work(a->shadow, launch, address - a->begin, bytes, write);
    return simt_memory_contents(address);
}

/* ---- a kernel's accesses ------------------------------------------------------------------------------------------
 */

uint64_t simt_shared_to_generic(uint64_t offset) {
    return shared_window + offset;
}

uint64_t simt_generic_to_shared(uint64_t address) {
    return address - shared_window;
}

static void *reach_shared(uint64_t offset, uint32_t bytes, simt_access access, const simt_place *at) {
    offset &= 0xffffffffu; /* addresses of shared memory may be kept in 32 bits */
    if (offset + bytes > simt_now.shared_bytes) {
        simt_fail(at, "shared memory: %u bytes at byte %llu of %u", bytes, (unsigned long long)offset,
                  simt_now.shared_bytes);
    }
    simt_mbarrier_check(offset, bytes, at);
    simt_shadow *shadow = simt_shadow_of_shared();
    if (shadow) simt_races_check(shadow, offset, bytes, access, "shared", at);
    if (access != SIMT_READ && access != SIMT_ATOMIC_READ) simt_wgmma_check_write(offset, bytes, at);
    return simt_now.shared + offset;
}

static void *reach_variable(uint64_t address, uint32_t bytes, simt_access access) {
    for (uint32_t i = 0; i < variable_count; i++) {
        uint64_t offset = address - (uint64_t)(uintptr_t)variables[i].memory;
        if (offset >= variables[i].bytes || variables[i].bytes - offset < bytes) continue;
        bool reads = access == SIMT_READ || access == SIMT_ATOMIC_READ;
        if (access >= SIMT_ATOMIC) simt_races_atomic(access); /* a counter that orders what was done elsewhere */
        return variables[i].constant && !reads ? NULL : variables[i].memory + offset;
    }
    return NULL;
}

static bool is_local(uint64_t address, uint32_t bytes) {
    uint64_t offset = address - (uint64_t)(uintptr_t)simt_self.local;
    return simt_self.local && offset < simt_self.local_bytes && simt_self.local_bytes - offset >= bytes;
}

void *simt_reach(simt_space space, uint64_t address, uint32_t bytes, simt_access access, const simt_place *at) {
    static const char *const doing[] = {"reads", "writes", "changes", "reads", "writes"};
    if (address % bytes) {
        simt_fail(at, "%s %u bytes at address %#llx, which is not aligned to them", doing[access], bytes,
                  (unsigned long long)address);
    }
    if (space == SIMT_SHARED) return reach_shared(address, bytes, access, at);
    if (space == SIMT_GENERIC && address - shared_window < SHARED_WINDOW_BYTES)
        return reach_shared(address - shared_window, bytes, access, at);
    if (space != SIMT_GLOBAL && is_local(address, bytes)) return (void *)(uintptr_t)address;
    if (space == SIMT_LOCAL) simt_fail(at, "local memory: %u bytes at %#llx", bytes, (unsigned long long)address);
    const allocation *a = find(address);
    const char *wrong = check(a, address, bytes);
    if (!wrong) {
        if (a->shadow) {
            simt_races_check(a->shadow, address - a->begin, bytes, access, "device", at);
        } else {
            simt_opened.begin = a->begin;
            simt_opened.bytes = a->bytes;
            simt_opened.contents = simt_memory_contents(a->begin);
        }
        return simt_memory_contents(address);
    }
    void *found = reach_variable(address, bytes, access);
    if (found) return found;
    simt_fail(at, "%s %u bytes of global memory at %#llx: %s", doing[access], bytes, (unsigned long long)address,
              wrong);
}
