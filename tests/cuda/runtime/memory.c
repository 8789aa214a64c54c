/* Device memory, pinned host memory, copies and fills.
 *
 * While a copy from pinned memory is under way the host may not write its pages, and while one to it is, not even read
 * them: they are protected until the copy has run, and a fault is told with the line of the host that made it. Pages
 * that a copy shares with other memory cannot be protected; what is read from them is compared with what was there, and
 * what is to be written to them is NaN until then. */
#include "tests/cuda/runtime/runtime.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define DEVICE_BYTES ((size_t)8 << 30)
enum { PAGE = 4096, POISON = 0xff };

typedef struct pinned {
    struct pinned *next;
    uint8_t *memory;
    size_t bytes;
    uint16_t *reads, *writes;   /* of copies under way, by page */
    const emulated_body **last; /* one of them, by page */
} pinned;

/* Memory of the host that kernels have another address for. */
typedef struct mapped {
    struct mapped *next;
    void *host;
    uint64_t address;
} mapped;

static pinned *all_pinned;
static mapped *all_mapped;
static size_t device_used;
typedef struct sized {
    struct sized *next;
    void *memory;
    size_t bytes;
} sized;
static sized *device_memory;

/* ---- faults of the host -------------------------------------------------------------------------------------------
 */

static pinned *find_pinned(const void *host) {
    for (pinned *p = all_pinned; p; p = p->next) {
        if ((size_t)((const uint8_t *)host - p->memory) < p->bytes) return p;
    }
    return NULL;
}

/* Whoever is here made a mistake and ends: what is not safe in a signal handler is done all the same. */
static void on_fault(int number, siginfo_t *info, void *context) {
    emulated_caller here, issued;
    signal(number, SIG_DFL);
    emulated_caller_take(&here);
    /* The first frame is where it happened: the instruction itself, and not the one after a call. */
    here.frames[0] = (void *)(((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] + 1);
    pinned *p = find_pinned(info->si_addr);
    if (simt_memory_is_device(info->si_addr)) {
        fprintf(stderr, "%s: the host touches device memory at %p\n", emulated_caller_describe(&here), info->si_addr);
    } else if (p) {
        size_t page = (size_t)((uint8_t *)info->si_addr - p->memory) / PAGE;
        fprintf(stderr, "%s: the host %s pinned memory that a copy is still to %s; ", emulated_caller_describe(&here),
                p->writes[page] ? "touches" : "writes", p->writes[page] ? "fill" : "read");
        if (p->last[page])
            issued = p->last[page]->caller;
        else
            issued = here;
        fprintf(stderr, "the copy was issued in %s\n", emulated_caller_describe(&issued));
    } else {
        fprintf(stderr, "%s: a fault at %p\n", emulated_caller_describe(&here), info->si_addr);
    }
    abort();
}

__attribute__((constructor)) static void catch_faults(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
}

/* ---- memory -------------------------------------------------------------------------------------------------------
 */

cudaError_t cudaMalloc(void **memory, size_t bytes) {
    EMULATED_CALL_BEGINS();
    *memory = NULL;
    if (emulated_is_capturing()) return emulated_refuse(cudaErrorStreamCaptureUnsupported, "memory in a capture");
    if (bytes == 0) return cudaSuccess;
    uint64_t address = bytes <= DEVICE_BYTES - device_used ? simt_memory_allocate(bytes) : 0;
    if (!address) return emulated_refuse(cudaErrorMemoryAllocation, "%zu bytes of device memory", bytes);
    *memory = (void *)(uintptr_t)address;
    sized *made = malloc(sizeof *made);
    *made = (sized){device_memory, *memory, bytes};
    device_memory = made;
    device_used += bytes;
    emulated_counted.allocations++;
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory) {
    EMULATED_CALL_BEGINS();
    if (!memory) return cudaSuccess;
    if (emulated_is_capturing()) return emulated_refuse(cudaErrorStreamCaptureUnsupported, "memory in a capture");
    emulated_wait_for_all();
    sized **at = &device_memory;
    while (*at && (*at)->memory != memory) at = &(*at)->next;
    if (!*at || !simt_memory_free((uint64_t)(uintptr_t)memory))
        return emulated_refuse(cudaErrorInvalidValue, "memory that was not allocated, or was freed, is freed");
    sized *gone = *at;
    *at = gone->next;
    device_used -= gone->bytes;
    free(gone);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    *available = DEVICE_BYTES - device_used;
    *total = DEVICE_BYTES;
    return cudaSuccess;
}

static size_t whole_pages(size_t bytes) {
    return (bytes + PAGE - 1) / PAGE;
}

static cudaError_t allocate_mapped(void **memory, size_t bytes) {
    mapped *made = calloc(1, sizeof *made);
    uint64_t address = made ? simt_memory_allocate(bytes) : 0;
    if (!address) {
        free(made);
        return emulated_refuse(cudaErrorMemoryAllocation, "%zu bytes of mapped memory", bytes);
    }
    *made = (mapped){all_mapped, simt_memory_contents(address), address};
    all_mapped = made;
    *memory = made->host;
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **address, void *host, unsigned int flags) {
    EMULATED_CALL_BEGINS();
    for (mapped *m = all_mapped; m; m = m->next) {
        if (m->host != host) continue;
        *address = (void *)(uintptr_t)m->address;
        return cudaSuccess;
    }
    return emulated_refuse(cudaErrorInvalidValue, "an address on the device of memory that is not mapped");
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned int flags) {
    EMULATED_CALL_BEGINS();
    size_t pages = whole_pages(bytes);
    *memory = NULL;
    if (bytes == 0) return cudaSuccess;
    emulated_counted.host_allocations++;
    if (flags & cudaHostAllocMapped) return allocate_mapped(memory, bytes);
    pinned *p = calloc(1, sizeof *p);
    void *room = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!p || room == MAP_FAILED) {
        free(p);
        return emulated_refuse(cudaErrorMemoryAllocation, "%zu bytes of pinned memory", bytes);
    }
    memset(room, POISON, pages * PAGE);
    *p = (pinned){.next = all_pinned,
                  .memory = room,
                  .bytes = bytes,
                  .reads = calloc(pages, sizeof *p->reads),
                  .writes = calloc(pages, sizeof *p->writes),
                  .last = calloc(pages, sizeof *p->last)};
    all_pinned = p;
    *memory = room;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **memory, size_t bytes) {
    return cudaHostAlloc(memory, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *memory) {
    EMULATED_CALL_BEGINS();
    if (!memory) return cudaSuccess;
    for (mapped **m = &all_mapped; *m; m = &(*m)->next) {
        if ((*m)->host != memory) continue;
        emulated_wait_for_all();
        mapped *gone = *m;
        *m = gone->next;
        simt_memory_free(gone->address);
        free(gone);
        return cudaSuccess;
    }
    pinned **at = &all_pinned;
    while (*at && (*at)->memory != memory) at = &(*at)->next;
    if (!*at) return emulated_refuse(cudaErrorInvalidValue, "host memory that is not pinned is freed");
    emulated_wait_for_all();
    pinned *p = *at;
    *at = p->next;
    munmap(p->memory, whole_pages(p->bytes) * PAGE);
    free(p->reads);
    free(p->writes);
    free(p->last);
    free(p);
    return cudaSuccess;
}

bool emulated_copy_is_pinned(const void *host) {
    return find_pinned(host) != NULL;
}

/* ---- pages of copies under way ------------------------------------------------------------------------------------
 */

static void protect(const pinned *p, size_t page) {
    int protection = p->writes[page] ? PROT_NONE : p->reads[page] ? PROT_READ : PROT_READ | PROT_WRITE;
    mprotect(p->memory + page * PAGE, PAGE, protection);
}

/* The pages that belong to `bytes` bytes alone: those wholly within, and the last of the allocation. */
static void own_pages(const pinned *p, const uint8_t *host, size_t bytes, size_t *first, size_t *end) {
    size_t begin = (size_t)(host - p->memory), last = begin + bytes;
    *first = whole_pages(begin);
    *end = last >= p->bytes ? whole_pages(p->bytes) : last / PAGE;
    if (*end < *first) *end = *first;
}

static void count_pages(pinned *p, const void *host, size_t bytes, uint16_t *counts, int by,
                        const emulated_body *body) {
    size_t first, end;
    own_pages(p, host, bytes, &first, &end);
    for (size_t page = first; page < end; page++) {
        counts[page] = (uint16_t)(counts[page] + by);
        if (by > 0) p->last[page] = body;
        protect(p, page);
    }
}

/* For the emulator's own access. */
static void open_pages(const pinned *p, const void *host, size_t bytes) {
    size_t first = (size_t)((const uint8_t *)host - p->memory) / PAGE;
    size_t end = whole_pages((size_t)((const uint8_t *)host - p->memory) + bytes);
    mprotect(p->memory + first * PAGE, (end - first) * PAGE, PROT_READ | PROT_WRITE);
}

static void close_pages(const pinned *p, const void *host, size_t bytes) {
    size_t first = (size_t)((const uint8_t *)host - p->memory) / PAGE;
    size_t end = whole_pages((size_t)((const uint8_t *)host - p->memory) + bytes);
    for (size_t page = first; page < end; page++) protect(p, page);
}

/* ---- copies -------------------------------------------------------------------------------------------------------
 */

/* FNV-1a, 64 bits, by words (http://www.isthe.com/chongo/tech/comp/fnv). */
static uint64_t hash_of(const void *memory, size_t bytes) {
    const uint8_t *at = memory;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

void emulated_copy_begin(emulated_body *body) {
    pinned *from = find_pinned(body->from), *to = find_pinned(body->to);
    if (from && !body->owned) {
        open_pages(from, body->from, body->bytes);
        body->hash = hash_of(body->from, body->bytes);
        close_pages(from, body->from, body->bytes);
        count_pages(from, body->from, body->bytes, from->reads, 1, body);
    }
    if (to) {
        open_pages(to, body->to, body->bytes);
        memset(body->to, POISON, body->bytes);
        close_pages(to, body->to, body->bytes);
        count_pages(to, body->to, body->bytes, to->writes, 1, body);
    }
}

static _Noreturn void fail_copy(const emulated_body *body, const char *what) {
    fprintf(stderr, "%s: %s\n", emulated_caller_describe(&body->caller), what);
    abort();
}

/* Where the emulator reads or writes one side of a copy. */
static void *side(uint32_t work, const emulated_body *body, const void *address, bool write) {
    const char *wrong;
    char text[300];
    if (!simt_memory_is_device(address)) return (void *)(uintptr_t)address;
    void *found = simt_memory_reach(work, (uint64_t)(uintptr_t)address, body->bytes, write, &wrong);
    if (found) return found;
    snprintf(text, sizeof text, "%s %zu bytes of device memory: %s", write ? "writes" : "reads", body->bytes, wrong);
    fail_copy(body, text);
}

void emulated_copy_run(uint32_t work, emulated_body *body) {
    pinned *from = body->owned ? NULL : find_pinned(body->from), *to = find_pinned(body->to);
    const void *source = side(work, body, body->owned ? body->owned : body->from, false);
    void *target = side(work, body, body->to, true);
    if (from) {
        open_pages(from, body->from, body->bytes);
        if (hash_of(body->from, body->bytes) != body->hash)
            fail_copy(body, "the host changed pinned memory before this copy of it had run");
    }
    if (to) open_pages(to, body->to, body->bytes);
    memmove(target, source, body->bytes);
    if (from) count_pages(from, body->from, body->bytes, from->reads, -1, NULL);
    if (to) count_pages(to, body->to, body->bytes, to->writes, -1, NULL);
    if (from) close_pages(from, body->from, body->bytes);
    if (to) close_pages(to, body->to, body->bytes);
}

void emulated_fill_run(uint32_t work, emulated_body *body) {
    memset(side(work, body, body->to, true), body->value, body->bytes);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    EMULATED_CALL_BEGINS();
    if (bytes == 0) return cudaSuccess;
    bool to_device = simt_memory_is_device(to), from_device = simt_memory_is_device(from);
    bool right = kind == cudaMemcpyHostToDevice     ? to_device && !from_device
                 : kind == cudaMemcpyDeviceToHost   ? !to_device && from_device
                 : kind == cudaMemcpyDeviceToDevice ? to_device && from_device
                                                    : kind == cudaMemcpyDefault;
    if (!right) return emulated_refuse(cudaErrorInvalidValue, "a copy between other memories than its kind says");
    bool pageable_from = !from_device && !emulated_copy_is_pinned(from);
    bool pageable_to = !to_device && !emulated_copy_is_pinned(to);
    bool captured = (uintptr_t)stream > 2 && stream->capture;
    if (captured && (pageable_from || pageable_to))
        return emulated_refuse(cudaErrorStreamCaptureUnsupported, "a copy of pageable memory in a capture");
    emulated_body *body = emulated_body_create(EMULATED_COPY);
    emulated_work *work;
    body->to = to;
    body->from = from;
    body->bytes = bytes;
    if (pageable_from) { /* CUDA Runtime API, "API synchronization behavior": it is staged before the call returns */
        body->owned = malloc(bytes);
        if (!body->owned) return cudaErrorMemoryAllocation;
        memcpy(body->owned, from, bytes);
    }
    cudaError_t code = emulated_issue(stream, body, &work);
    if (code == cudaSuccess && pageable_to) { /* and there before it returns */
        emulated_work_wait(work);
        emulated_count_wait(false);
    }
    return code;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream) {
    EMULATED_CALL_BEGINS();
    if (bytes == 0) return cudaSuccess;
    if (!simt_memory_is_device(memory)) return emulated_refuse(cudaErrorInvalidValue, "host memory is filled");
    emulated_body *body = emulated_body_create(EMULATED_FILL);
    body->to = memory;
    body->value = value;
    body->bytes = bytes;
    return emulated_issue(stream, body, NULL);
}
