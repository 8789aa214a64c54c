#include "pipeline/io/io.h"

#include "base/log.h"
#include "pipeline/io/engine.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define DEFAULT_THREADS 4
#define LONGEST_READ (1u << 30) /* Linux transfers a little under 2 GiB at once */
#define MAX_REFUSALS 1000       /* EINTR and EAGAIN in a row before a read is given up */

static const char *const engine_names[] = {
    [UPS_IO_AUTO] = "auto", [UPS_IO_URING] = "uring", [UPS_IO_THREADS] = "threads"};

const char *ups_io_engine_name(ups_io_engine engine) {
    return engine_names[engine];
}

bool ups_io_engine_parse(const char *name, ups_io_engine *engine) {
    for (int i = 0; i < (int)(sizeof engine_names / sizeof *engine_names); i++) {
        if (strcmp(name, engine_names[i]) != 0) continue;
        *engine = (ups_io_engine)i;
        return true;
    }
    return false;
}

static uint64_t round_down(uint64_t bytes) {
    return bytes & ~(uint64_t)(UPS_IO_ALIGNMENT - 1);
}
static uint64_t round_up(uint64_t bytes) {
    return round_down(bytes + UPS_IO_ALIGNMENT - 1);
}

uint64_t ups_io_room(uint64_t length) {
    const uint64_t most = round_down(UINT64_MAX);
    return length > most - 2 * UPS_IO_ALIGNMENT ? most : round_up(length) + 2 * UPS_IO_ALIGNMENT;
}

static ups_status open_backend(ups_io *io, ups_error *error) {
    if (io->options.engine == UPS_IO_THREADS) {
        io->backend = &ups_io_threads_backend;
        return io->backend->open(io, error);
    }
    ups_error refused = {0};
    io->backend = &ups_io_uring_backend;
    ups_status status = io->backend->open(io, &refused);
    if (status == UPS_OK) return UPS_OK;
    if (io->options.engine == UPS_IO_URING || status != UPS_ERR_UNSUPPORTED) {
        io->backend = NULL;
        return ups_fail(error, status, "%s; `io: threads` works without it", refused.message);
    }
    static atomic_flag said = ATOMIC_FLAG_INIT; /* once a process is enough */
    if (!atomic_flag_test_and_set(&said)) ups_log(UPS_LOG_INFO, "%s; reading with threads instead", refused.message);
    io->backend = &ups_io_threads_backend;
    return io->backend->open(io, error);
}

ups_status ups_io_open(const char *const *files, int64_t count, const ups_io_options *options, ups_io **out,
                       ups_error *error) {
    *out = NULL;
    ups_io *io = calloc(1, sizeof *io);
    if (!io) return ups_fail(error, UPS_ERR_MEMORY, "no memory for an I/O engine");
    io->options = *options;
    if (io->options.queue_depth <= 0) io->options.queue_depth = UPS_IO_DEFAULT_QUEUE_DEPTH;
    if (io->options.threads <= 0) io->options.threads = DEFAULT_THREADS;
    size_t depth = (size_t)io->options.queue_depth;
    io->files = calloc((size_t)(count ? count : 1), sizeof *io->files);
    io->requests = calloc(depth, sizeof *io->requests);
    io->finished = calloc(depth, sizeof *io->finished);
    ups_status status = UPS_OK;
    if (!io->files || !io->requests || !io->finished)
        status = ups_fail(error, UPS_ERR_MEMORY, "no memory for an I/O engine of %lld files", (long long)count);
    if (status == UPS_OK) status = ups_io_files_open(io, files, count, error);
    if (status == UPS_OK) status = open_backend(io, error);
    if (status != UPS_OK) {
        ups_io_close(io);
        return status;
    }
    for (size_t i = 0; i < depth; i++) {
        io->requests[i].next = io->unused;
        io->unused = &io->requests[i];
    }
    *out = io;
    return UPS_OK;
}

/* The kernel may go on writing into buffers after a ring is closed, so every read is waited for. */
void ups_io_drain(ups_io *io) {
    ups_io_completion ignored;
    int count = 0;
    while (io->in_flight > 0 && ups_io_reap(io, true, &ignored, 1, &count, NULL) == UPS_OK) continue;
}

void ups_io_close(ups_io *io) {
    if (!io) return;
    if (io->engine) {
        ups_io_drain(io);
        io->backend->close(io);
    }
    ups_io_files_close(io);
    free(io->requests);
    free(io->finished);
    free(io);
}

ups_io_engine ups_io_chosen(const ups_io *io) {
    return io->backend == &ups_io_uring_backend ? UPS_IO_URING : UPS_IO_THREADS;
}
int ups_io_queue_depth(const ups_io *io) {
    return io->options.queue_depth;
}
int ups_io_in_flight(const ups_io *io) {
    return io->in_flight;
}

void ups_io_register_buffers(ups_io *io, void *memory, uint64_t length) {
    if (io->backend->register_buffers) io->backend->register_buffers(io, memory, length);
}

static ups_io_request request_of(const ups_io *io, ups_extent extent, void *buffer, uint64_t tag) {
    uint64_t end = extent.offset + extent.length;
    return (ups_io_request){.extent = extent,
                            .tag = tag,
                            .buffer = buffer,
                            .first = io->options.direct ? round_down(extent.offset) : extent.offset,
                            .end = io->options.direct ? round_up(end) : end};
}

bool ups_io_submit(ups_io *io, ups_extent extent, void *buffer, uint64_t tag) {
    ups_io_request *request = io->unused;
    if (!request || (io->in_flight > 0 && ups_io_file_must_wait(io, extent.file))) return false;
    io->unused = request->next;
    *request = request_of(io, extent, buffer, tag);
    io->in_flight++;
    request->error_number = ups_io_file_hold(io, extent.file);
    if (request->error_number == 0) {
        io->backend->start(io, request);
    } else {
        request->next = io->refused;
        io->refused = request;
    }
    return true;
}

void ups_io_next_read(const ups_io *io, ups_io_request *request) {
    ups_io_file *file = &io->files[request->extent.file];
    bool direct = atomic_load(&file->direct);
    uint64_t from = direct ? round_down(request->done) : request->done;
    uint64_t length = request->end - request->first - from;
    request->read = (ups_io_read){.fd = file->fd,
                                  .buffer = request->buffer + from,
                                  .length = length < LONGEST_READ ? (uint32_t)length : LONGEST_READ,
                                  .offset = request->first + from,
                                  .direct = direct};
}

/* From now on the file is read through the page cache. */
static void stop_direct(ups_io_file *file) {
    int flags = fcntl(file->fd, F_GETFL);
    if (flags >= 0) (void)fcntl(file->fd, F_SETFL, flags & ~O_DIRECT);
    atomic_store(&file->direct, false);
}

void ups_io_read_all(ups_io *io, ups_io_request *request) {
    ssize_t result;
    do {
        ups_io_next_read(io, request);
        const ups_io_read *next = &request->read;
        result = pread(next->fd, next->buffer, next->length, (off_t)next->offset);
        if (result < 0) result = -errno;
    } while (!ups_io_advance(io, request, result));
}

bool ups_io_advance(ups_io *io, ups_io_request *request, int64_t result) {
    const ups_io_read *read = &request->read;
    if (io->options.fault) {
        ups_extent tried = {request->extent.file, read->offset, read->length};
        result = io->options.fault(io->options.fault_context, &tried, result);
    }
    if ((result == -EINTR || result == -EAGAIN) && ++request->refusals < MAX_REFUSALS) return false;
    uint64_t now = (uint64_t)(read->buffer - request->buffer) + (result > 0 ? (uint64_t)result : 0);
    bool progress = now > request->done;
    if (progress) {
        request->done = now;
        request->refusals = 0;
    }
    if (result >= 0 && request->first + request->done >= request->extent.offset + request->extent.length) return true;
    if (progress) return false;
    if (read->direct && (result == -EINVAL || result >= 0)) { /* some file systems take the flag and refuse the read */
        ups_io_file *file = &io->files[request->extent.file];
        if (result == -EINVAL) ups_io_say_direct_is_refused(file); /* else the file ends within a block */
        stop_direct(file);
        return false;
    }
    if (result < 0) request->error_number = (int)-result;
    return true; /* refused, or the file ends here */
}

static ups_io_completion completion_of(const ups_io *io, const ups_io_request *request) {
    uint64_t ahead = request->extent.offset - request->first; /* bytes before the extent's first */
    uint64_t got = request->done > ahead ? request->done - ahead : 0;
    if (got > request->extent.length) got = request->extent.length;
    bool changed = request->error_number == 0 && ups_io_file_has_changed(&io->files[request->extent.file]);
    bool complete = request->error_number == 0 && got == request->extent.length && !changed;
    return (ups_io_completion){
        .tag = request->tag,
        .bytes = request->buffer + ahead,
        .status = complete                ? UPS_OK
                  : request->error_number ? UPS_ERR_IO
                  : changed               ? UPS_ERR_STALE
                                          : UPS_ERR_FORMAT,
        .extent = request->extent,
        .error_number = request->error_number,
        .changed = changed,
        .got = got,
    };
}

ups_status ups_io_reap(ups_io *io, bool wait, ups_io_completion *completions, int room, int *count, ups_error *error) {
    *count = 0;
    if (io->in_flight == 0 || room <= 0) return UPS_OK;
    if (room > io->options.queue_depth) room = io->options.queue_depth;
    ups_io_request *rest = io->refused;
    int refused = 0;
    for (; rest && refused < room; rest = rest->next) io->finished[refused++] = rest;
    int ready = refused;
    if (refused < room) UPS_TRY(io->backend->collect(io, wait && refused == 0, io->finished, room, &ready, error));
    io->refused = rest;
    *count = ready;
    for (int i = 0; i < *count; i++) {
        ups_io_request *request = io->finished[i];
        completions[i] = completion_of(io, request);
        if (i >= refused) ups_io_file_release(io, request->extent.file);
        request->next = io->unused;
        io->unused = request;
        io->in_flight--;
    }
    return UPS_OK;
}

static bool is_cached(ups_io_file *file, ups_extent extent) {
    /* The pages at the ends may be there for a neighbour's sake; the one in the middle is not. */
    const uint64_t places[] = {extent.offset + extent.length / 2, extent.offset, extent.offset + extent.length - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        uint8_t byte;
        struct iovec to = {&byte, 1};
        ssize_t got = preadv2(file->fd, &to, 1, (off_t)places[i], RWF_NOWAIT);
        if (got == 1) continue;
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            atomic_store_explicit(&file->untold, true, memory_order_relaxed);
        return false;
    }
    return true;
}

bool ups_io_cached(ups_io *io, ups_extent extent) {
    ups_io_file *file = &io->files[extent.file];
    if (io->options.direct || extent.length == 0 || atomic_load_explicit(&file->untold, memory_order_relaxed))
        return false;
    if (ups_io_file_hold(io, extent.file) != 0) return false;
    bool cached = is_cached(file, extent);
    ups_io_file_release(io, extent.file);
    return cached;
}

ups_io_completion ups_io_read_now(ups_io *io, ups_extent extent, void *buffer) {
    ups_io_request request = request_of(io, extent, buffer, 0);
    request.error_number = ups_io_file_hold(io, extent.file);
    if (request.error_number != 0) return completion_of(io, &request);
    ups_io_read_all(io, &request);
    ups_io_completion completion = completion_of(io, &request);
    ups_io_file_release(io, extent.file);
    return completion;
}

static ups_status describe_change(const ups_io_file *file, ups_error *error) {
    struct stat now = {0};
    (void)stat(ups_io_file_path(file), &now); /* it may be closed by now */
    return ups_fail(error, UPS_ERR_STALE,
                    "%s: was changed while it was being read (%llu bytes at opening, %llu now); what was read from it "
                    "is not used. Start again once nothing writes to it",
                    file->name, (unsigned long long)file->size, (unsigned long long)now.st_size);
}

ups_status ups_io_completion_error(const ups_io *io, const ups_io_completion *completion, ups_error *error) {
    if (completion->status == UPS_OK) return UPS_OK;
    const char *name = io->files[completion->extent.file].name;
    if (completion->changed) return describe_change(&io->files[completion->extent.file], error);
    if (completion->error_number == 0)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: truncated: %llu bytes expected at offset %llu, %llu found", name,
                        (unsigned long long)completion->extent.length, (unsigned long long)completion->extent.offset,
                        (unsigned long long)completion->got);
    errno = completion->error_number;
    return ups_fail_errno(error, "%s: %llu bytes at offset %llu could not be read", name,
                          (unsigned long long)completion->extent.length, (unsigned long long)completion->extent.offset);
}
