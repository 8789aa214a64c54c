/* What the two I/O engines have in common; for the files of this folder
 * alone. */
#ifndef UPS_PIPELINE_IO_ENGINE_H
#define UPS_PIPELINE_IO_ENGINE_H

#include "pipeline/io/io.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

typedef struct ups_io_file {
    int fd;                             /* −1: closed, which it is only when nobody holds it */
    char *name;                         /* as it was given */
    char *absolute;                     /* of a relative name, once it was opened; else NULL */
    int holders;                        /* reads under way; counted where not all files are open */
    struct ups_io_file *before, *after; /* in the list of those that are open and not held */
    atomic_bool direct; /* reads go around the page cache; cleared when the file system turns out to refuse */
    atomic_bool untold; /* the kernel does not say what its page cache holds of this file */
    bool regular;       /* an ordinary file: those below mean something */
    uint64_t size;      /* at opening, as the next */
    struct timespec modified;
} ups_io_file;

ups_status ups_io_files_open(ups_io *io, const char *const *files, int64_t count, ups_error *error);
void ups_io_files_close(ups_io *io);
/* A file that is held is open until it is released, as often as it was held. Any thread; errno, or 0. */
int ups_io_file_hold(ups_io *io, uint32_t file);
/* As many files as may be open are held: one of them has to be released before this one is opened. */
bool ups_io_file_must_wait(ups_io *io, uint32_t file);
void ups_io_file_release(ups_io *io, uint32_t file);
const char *ups_io_file_path(const ups_io_file *file); /* where it is opened again */
bool ups_io_file_has_changed(const ups_io_file *file); /* since the engine was opened; while held */
void ups_io_say_direct_is_refused(const ups_io_file *file);

/* One read of a request; short ones make several. */
typedef struct ups_io_read {
    int fd;
    uint8_t *buffer;
    uint32_t length;
    uint64_t offset;
    bool direct; /* around the page cache when it was started */
} ups_io_read;

/* One extent on its way. The range read is [first, end) of the file; with `direct` it is the extent rounded out to
 * whole blocks. */
typedef struct ups_io_request {
    ups_extent extent;
    uint64_t tag;
    uint8_t *buffer;
    uint64_t first, end;
    uint64_t done;               /* bytes of the range that are in the buffer */
    ups_io_read read;            /* the one under way */
    int error_number;            /* of a read that failed */
    int refusals;                /* EINTR and EAGAIN since the last progress */
    struct ups_io_request *next; /* in a list of the engine's */
} ups_io_request;

typedef struct ups_io_backend {
    ups_status (*open)(ups_io *io, ups_error *error); /* fills io->engine */
    void (*close)(ups_io *io);
    void (*register_buffers)(ups_io *io, void *memory, uint64_t length); /* may be NULL */
    void (*start)(ups_io *io, ups_io_request *request); /* never refuses: at most queue_depth are under way */
    /* Up to `room` requests that are finished, at least one if `wait`. */
    ups_status (*collect)(ups_io *io, bool wait, ups_io_request **finished, int room, int *count, ups_error *error);
} ups_io_backend;

extern const ups_io_backend ups_io_uring_backend, ups_io_threads_backend;

struct ups_io {
    const ups_io_backend *backend;
    void *engine; /* the back end's own */
    ups_io_options options;
    ups_io_file *files;
    int64_t file_count;
    bool bounded; /* there are more files than may be open; all below are of that */
    int64_t most_open, open_count;
    ups_io_file *idle_first, *idle_last;
    pthread_mutex_t lock;              /* guards descriptors, holders and the list of idle files */
    ups_io_request *requests, *unused; /* (queue_depth), and the list of those not under way */
    ups_io_request *refused;           /* those whose file could not be opened again */
    ups_io_request **finished;         /* (queue_depth) scratch of reap */
    int in_flight;
};

/* Fills request->read with what is still missing. */
void ups_io_next_read(const ups_io *io, ups_io_request *request);

/* Reads the request to its end with plain reads on the calling thread. */
void ups_io_read_all(ups_io *io, ups_io_request *request);

/* Accounts for the result of a read (bytes, or −errno): true when the request is finished, false when it needs another
 * read. */
bool ups_io_advance(ups_io *io, ups_io_request *request, int64_t result);

#endif
