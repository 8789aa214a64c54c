/* The io_uring engine. The ring is created disabled and enabled by the thread that first submits, which becomes its
 * single issuer; completions are then delivered only when that thread asks for them, which costs no interrupts. Files
 * and buffers are registered where the limits allow; each is an optimisation the engine can do without.
 *
 * What may surprise: a buffered read of pages that are in the page cache is copied by the submitting thread, within the
 * system call. */
#include "pipeline/io/engine.h"

#if defined(UPS_HAVE_LIBURING)

#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel limits one registered buffer to 1 GiB. */
#define REGISTERED_BUFFER_BYTES ((uint64_t)1 << 30)
#define MAX_REGISTERED_BUFFERS 64

typedef struct ring_engine {
    struct io_uring ring;
    bool enabled;          /* by the first start */
    bool files_registered; /* then a read names the file's index; not where files come and go */
    uint8_t *registered;   /* memory that the kernel has pinned */
    uint64_t registered_bytes;
} ring_engine;

/* The best set of flags that this kernel knows. */
static int make_ring(struct io_uring *ring, unsigned depth) {
    const unsigned flags[] = {
        IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, /* Linux 6.1 */
        IORING_SETUP_R_DISABLED | IORING_SETUP_COOP_TASKRUN,                               /* 5.19 */
        IORING_SETUP_R_DISABLED,                                                           /* 5.10 */
    };
    int result = -EINVAL;
    for (size_t i = 0; i < sizeof flags / sizeof *flags && result == -EINVAL; i++)
        result = io_uring_queue_init(depth, ring, flags[i]);
    return result;
}

static bool can_read(struct io_uring *ring) {
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool can = probe && io_uring_opcode_supported(probe, IORING_OP_READ);
    io_uring_free_probe(probe);
    return can;
}

bool ups_io_uring_available(char reason[200]) {
    struct io_uring ring;
    int result = make_ring(&ring, 2);
    if (result == 0) {
        bool can = can_read(&ring);
        io_uring_queue_exit(&ring);
        if (can) return true;
        if (reason) snprintf(reason, 200, "this kernel's io_uring has no read operation (Linux 5.10 is needed)");
    } else if (reason) {
        snprintf(reason, 200, "io_uring_setup: %s", strerror(-result));
    }
    return false;
}

static ups_status uring_open(ups_io *io, ups_error *error) {
    ring_engine *engine = calloc(1, sizeof *engine);
    if (!engine) return ups_fail(error, UPS_ERR_MEMORY, "no memory for an io_uring engine");
    int result = make_ring(&engine->ring, (unsigned)io->options.queue_depth);
    if (result < 0) {
        free(engine);
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "io_uring is refused here (io_uring_setup: %s)", strerror(-result));
    }
    if (!can_read(&engine->ring)) {
        io_uring_queue_exit(&engine->ring);
        free(engine);
        return ups_fail(error, UPS_ERR_UNSUPPORTED,
                        "this kernel's io_uring has no read operation (Linux 5.10 is needed)");
    }
    int *descriptors = io->bounded ? NULL : calloc((size_t)io->file_count + 1, sizeof *descriptors);
    for (int64_t i = 0; descriptors && i < io->file_count; i++) descriptors[i] = io->files[i].fd;
    engine->files_registered = descriptors && io->file_count > 0 &&
                               io_uring_register_files(&engine->ring, descriptors, (unsigned)io->file_count) == 0;
    free(descriptors);
    io->engine = engine;
    return UPS_OK;
}

static void uring_register_buffers(ups_io *io, void *memory, uint64_t length) {
    ring_engine *engine = io->engine;
    struct iovec parts[MAX_REGISTERED_BUFFERS];
    unsigned count = 0;
    for (uint64_t at = 0; at < length; at += REGISTERED_BUFFER_BYTES) {
        if (count == MAX_REGISTERED_BUFFERS) return;
        uint64_t left = length - at;
        parts[count].iov_base = (uint8_t *)memory + at;
        parts[count++].iov_len = left < REGISTERED_BUFFER_BYTES ? left : REGISTERED_BUFFER_BYTES;
    }
    if (count == 0 || io_uring_register_buffers(&engine->ring, parts, count) != 0) return;
    engine->registered = memory;
    engine->registered_bytes = length;
}

/* The index of the registered buffer that holds all of the read; −1 when none does. */
static int registered_index(const ring_engine *engine, const ups_io_read *read) {
    if (!engine->registered || read->buffer < engine->registered) return -1;
    uint64_t first = (uint64_t)(read->buffer - engine->registered), last = first + read->length;
    if (last > engine->registered_bytes || read->length == 0) return -1;
    if (first / REGISTERED_BUFFER_BYTES != (last - 1) / REGISTERED_BUFFER_BYTES) return -1;
    return (int)(first / REGISTERED_BUFFER_BYTES);
}

/* liburing 2.3 declares io_uring_enable_rings and its shared library lacks it. */
static bool enable(struct io_uring *ring) {
    return syscall(__NR_io_uring_register, ring->ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) == 0;
}

static void uring_start(ups_io *io, ups_io_request *request) {
    ring_engine *engine = io->engine;
    if (!engine->enabled) engine->enabled = enable(&engine->ring);
    /* There is room: the queue is at least queue_depth long and holds one entry a request. */
    struct io_uring_sqe *entry = io_uring_get_sqe(&engine->ring);
    ups_io_next_read(io, request);
    const ups_io_read *next = &request->read;
    int file = engine->files_registered ? (int)request->extent.file : next->fd;
    int buffer = registered_index(engine, next);
    if (buffer >= 0)
        io_uring_prep_read_fixed(entry, file, next->buffer, next->length, next->offset, buffer);
    else
        io_uring_prep_read(entry, file, next->buffer, next->length, next->offset);
    if (engine->files_registered) entry->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data(entry, request);
}

/* One visit to the kernel: hands over what was queued and waits for `least` completions. */
static ups_status enter(ring_engine *engine, unsigned least, ups_error *error) {
    int result = least ? io_uring_submit_and_wait(&engine->ring, least) : io_uring_submit_and_get_events(&engine->ring);
    if (result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY) return UPS_OK;
    return ups_fail(error, UPS_ERR_IO, "io_uring_enter: %s", strerror(-result));
}

static ups_status uring_collect(ups_io *io, bool wait, ups_io_request **finished, int room, int *count,
                                ups_error *error) {
    ring_engine *engine = io->engine;
    /* The kernel refuses a ring that no start has enabled yet; one that could not be enabled tells of it. */
    if (!engine->enabled && io_uring_sq_ready(&engine->ring) == 0) return UPS_OK;
    do {
        bool idle = io_uring_cq_ready(&engine->ring) == 0;
        UPS_TRY(enter(engine, wait && idle ? 1 : 0, error));
        struct io_uring_cqe *entry;
        while (*count < room && io_uring_peek_cqe(&engine->ring, &entry) == 0) {
            ups_io_request *request = io_uring_cqe_get_data(entry);
            int result = entry->res;
            io_uring_cqe_seen(&engine->ring, entry);
            if (ups_io_advance(io, request, result))
                finished[(*count)++] = request;
            else
                uring_start(io, request);
        }
    } while (wait && *count == 0);
    return UPS_OK;
}

static void uring_close(ups_io *io) {
    ring_engine *engine = io->engine;
    io_uring_queue_exit(&engine->ring);
    free(engine);
    io->engine = NULL;
}

const ups_io_backend ups_io_uring_backend = {
    .open = uring_open,
    .close = uring_close,
    .register_buffers = uring_register_buffers,
    .start = uring_start,
    .collect = uring_collect,
};

const char *ups_io_uring_version(void) {
    return UPS_LIBURING_VERSION;
}

#else

#include <stdio.h>

bool ups_io_uring_available(char reason[200]) {
    if (reason) snprintf(reason, 200, "this build has no liburing");
    return false;
}

static ups_status uring_open(ups_io *io, ups_error *error) {
    return ups_fail(error, UPS_ERR_UNSUPPORTED, "this build has no liburing");
}

const ups_io_backend ups_io_uring_backend = {.open = uring_open};

const char *ups_io_uring_version(void) {
    return NULL;
}

#endif
