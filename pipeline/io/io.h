/* The I/O engine: fetches extents of a fixed set of files, many at once, completion by completion.
 *
 *   ups_io_open → (ups_io_submit × n → ups_io_reap) × … → ups_io_close
 *
 * Two engines behind one interface. `uring` is a ring with registered files and buffers and one system call a batch of
 * requests; `threads` is a few threads in pread. Both resubmit short reads, EINTR and EAGAIN; both complete out of
 * order. UPS_IO_AUTO takes the ring where the kernel grants one (containers often refuse it) and threads elsewhere, and
 * logs the reason once.
 *
 * One thread submits and reaps: the one that made the first submit (the kernel then spares itself locking). Another may
 * open, and may close when nothing is in flight. Beside it, any thread may look into the page cache (ups_io_cached) and
 * copy out of it by itself (ups_io_read_now). Nothing is allocated after open.
 *
 * Of many files a bounded number are open at a time (files.c).
 *
 * A file that changes while it is open is not served: size and time of modification are compared after every read with
 * those at opening, and a read that comes after a change fails with a sentence that says so.
 *
 * What may surprise: with `direct` (O_DIRECT) the engine reads whole 4096-byte blocks around the extent, so a buffer
 * needs ups_io_room() bytes and the extent's first byte is not the buffer's: take `bytes` from the completion. */
#ifndef UPS_PIPELINE_IO_IO_H
#define UPS_PIPELINE_IO_IO_H

#include "base/error.h"
#include "pipeline/source.h"

typedef enum ups_io_engine { UPS_IO_AUTO, UPS_IO_URING, UPS_IO_THREADS } ups_io_engine;
const char *ups_io_engine_name(ups_io_engine engine);              /* "auto", "uring", "threads" */
bool ups_io_engine_parse(const char *name, ups_io_engine *engine); /* false when it is none of them */

/* True when this kernel grants a ring that can read; else `reason` (may be NULL) says why not: "io_uring_setup:
 * Operation not permitted". */
bool ups_io_uring_available(char reason[200]);

/* Of the liburing that this build has; NULL: it has none, and only the threads engine. */
const char *ups_io_uring_version(void);

#define UPS_IO_ALIGNMENT 4096 /* of buffers, and of reads that go around the page cache */

#define UPS_IO_DEFAULT_QUEUE_DEPTH 64

/* For tests: is told the outcome of every read, in bytes or −errno, before the engine accounts for it, and returns the
 * outcome that the engine is to believe (fewer bytes, or an error). Called on any thread. */
typedef int64_t (*ups_io_fault)(void *context, const ups_extent *read, int64_t outcome);

typedef struct ups_io_options {
    ups_io_engine engine;
    int queue_depth; /* requests in flight, at most; 0: UPS_IO_DEFAULT_QUEUE_DEPTH */
    int threads;     /* of the threads engine; 0: 4 */
    bool direct;     /* O_DIRECT; files whose file system refuses it are read through the page cache, which is said */
    ups_io_fault fault; /* NULL but in tests */
    void *fault_context;
} ups_io_options;

typedef struct ups_io_completion {
    uint64_t tag;         /* as submitted */
    const uint8_t *bytes; /* the extent, somewhere in the submitted buffer */
    ups_status status;    /* UPS_OK, or the read failed: ups_io_completion_error has the sentence */
    ups_extent extent;    /* as submitted */
    int error_number;     /* errno of a failed read; 0: the file ended early, or changed */
    bool changed;         /* the file is not what it was at opening */
    uint64_t got;         /* bytes of the extent that were there */
} ups_io_completion;

typedef struct ups_io ups_io;

/* Opens all files (relative paths are taken now). `files` is copied. UPS_ERR_IO naming the file that cannot be opened;
 * UPS_ERR_UNSUPPORTED when UPS_IO_URING was asked for and the kernel refuses it. */
ups_status ups_io_open(const char *const *files, int64_t count, const ups_io_options *options, ups_io **io,
                       ups_error *error);
void ups_io_drain(ups_io *io); /* waits for what is in flight; its completions are lost */
void ups_io_close(ups_io *io); /* drains. NULL is fine */

ups_io_engine ups_io_chosen(const ups_io *io); /* UPS_IO_URING or UPS_IO_THREADS */
int ups_io_queue_depth(const ups_io *io);
int ups_io_in_flight(const ups_io *io); /* submitted and not yet reaped */

/* Bytes a buffer must have to receive an extent of `length` bytes, whichever its offset; a multiple of
 * UPS_IO_ALIGNMENT, and for an absurd length the largest there is. Without `direct`, extent.length bytes at any address
 * do. */
uint64_t ups_io_room(uint64_t length);

/* Tells the engine where buffers will lie, so that the kernel pins them once instead of at each read. Best effort:
 * without enough RLIMIT_MEMLOCK the engine goes on unregistered. At most once, before the first submit. */
void ups_io_register_buffers(ups_io *io, void *memory, uint64_t length);

/* Queues a read; it may start only with the next ups_io_reap. `buffer` is aligned to UPS_IO_ALIGNMENT, has
 * ups_io_room(extent.length) bytes and stays put until reaped. False when queue_depth requests are in flight, or
 * when they hold as many files as may be open: reap first. Length 0 is allowed. */
bool ups_io_submit(ups_io *io, ups_extent extent, void *buffer, uint64_t tag);

/* Starts what was queued and collects up to `room` completions; with `wait`, at least one (if any is in flight). A
 * failed read is a completion with a status, not an error here; an error here means that the engine itself broke. */
ups_status ups_io_reap(ups_io *io, bool wait, ups_io_completion *completions, int room, int *count, ups_error *error);

/* True when the page cache seems to hold the extent: its first, middle and last byte can be had without the disk. A
 * hint, for the price of three system calls; false where the kernel does not tell, and with `direct`. Thread-safe. */
bool ups_io_cached(ups_io *io, ups_extent extent);

/* Reads on the calling thread, whichever it is, and waits for the disk where it must. `buffer` as for ups_io_submit. */
ups_io_completion ups_io_read_now(ups_io *io, ups_extent extent, void *buffer);

/* Fills `error` from a completion that failed: "fields.h5: truncated: 4096 bytes expected at offset 81920, 100 found".
 * Returns its code. */
ups_status ups_io_completion_error(const ups_io *io, const ups_io_completion *completion, ups_error *error);

#endif
