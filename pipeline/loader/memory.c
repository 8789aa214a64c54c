/* How much memory a loader takes: one place for the loader, which allocates it, and for plans made before it opens. */
#include "base/sizes.h"
#include "base/system/pages.h"
#include "base/system/threads.h"
#include "pipeline/io/io.h"
#include "pipeline/loader/state.h"

#define DEFAULT_SLOTS 4
/* Read memory beyond what keeps the decode threads busy: deep queues for small samples, no more than this for large
 * ones. */
#define READ_AHEAD_BYTES ((uint64_t)64 << 20)
/* Room for the gaps that merged extents carry along, and for alignment: see fetch.c. */
#define ROOM_PER_EXTENT (16384 + 3 * UPS_IO_ALIGNMENT)

void ups_loader_fill_in(ups_loader_options *options) {
    if (options->windows_per_draw <= 0) options->windows_per_draw = 1;
    if (options->stride <= 0) options->stride = 1;
    if (options->ranks <= 0) options->ranks = 1;
    if (options->slots <= 0) options->slots = DEFAULT_SLOTS;
    if (options->queue_depth <= 0) options->queue_depth = UPS_IO_DEFAULT_QUEUE_DEPTH;
    if (options->decode_threads <= 0) options->decode_threads = ups_cpu_count();
}

/* What one draw reads and decodes at most. */
static const ups_source_limits *limits_of(const ups_loader_options *options, const ups_loader_load *load) {
    bool one_window = options->windows_per_draw == 1 && !load->kept && load->window.decoded_bytes > 0;
    return one_window ? &load->window : &load->limits;
}

/* Frames of which a thread must keep a copy, in bytes: none where a source can decode straight into the slot. */
static uint64_t staging_bytes(const ups_loader_options *options, const ups_loader_load *load) {
    bool gathers = options->windows_per_draw > 1 || (load->stride > 1 && load->frames > 1);
    return gathers || load->dtype != options->dtype ? limits_of(options, load)->decoded_bytes : 0;
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Reads at once: as many as the queue is deep and their memory allows, but so many that decode threads have work. */
static int64_t count_reads(const ups_loader_options *options, uint64_t read) {
    int64_t draws = options->batch / options->windows_per_draw, least = options->decode_threads + 2;
    int64_t most = draws > INT64_MAX / options->slots ? INT64_MAX : draws * options->slots; /* no more have a slot */
    int64_t reads = (int64_t)(READ_AHEAD_BYTES / read);
    if (reads > options->queue_depth) reads = options->queue_depth;
    if (reads < least) reads = least;
    return reads < most ? reads : most;
}

ups_loader_memory ups_loader_measure(const ups_loader_options *given, const ups_loader_load *loads, int32_t count) {
    ups_loader_options options = *given;
    ups_loader_fill_in(&options);
    ups_loader_memory memory = {.scratch = 64, .extents = 1};
    for (int32_t k = 0; k < count; k++) {
        const ups_loader_load *load = &loads[k];
        uint64_t values = ups_size_product((uint64_t)load->frames, (uint64_t)load->frame_elements);
        uint64_t window = ups_size_product(values, ups_dtype_size(options.dtype));
        memory.slot = larger(memory.slot, ups_size_product(window, (uint64_t)options.batch));
        const ups_source_limits *limits = limits_of(&options, load);
        memory.read = larger(memory.read, ups_size_sum(limits->stored_bytes,
                                                       ups_size_product((uint64_t)limits->extents, ROOM_PER_EXTENT)));
        memory.scratch = larger(memory.scratch, limits->scratch_bytes);
        if (limits->extents > memory.extents) memory.extents = limits->extents;
        memory.staging = larger(memory.staging, staging_bytes(&options, load));
        memory.fixed = ups_size_sum(memory.fixed, load->limits.fixed_bytes);
    }
    memory.read = ups_io_room(memory.read);
    memory.reads = count_reads(&options, memory.read);
    const uint64_t slots = (uint64_t)options.slots, reads = (uint64_t)memory.reads;
    uint64_t of_extent = 2 * sizeof(ups_extent) + sizeof(ups_piece) + sizeof(int64_t) + sizeof(ups_run);
    uint64_t of_job = ups_size_sum(sizeof(ups_job), ups_size_product((uint64_t)memory.extents, of_extent));
    uint64_t of_thread =
        ups_size_sum(ups_pages_bytes(memory.scratch), memory.staging ? ups_pages_bytes(memory.staging) : 0);
    uint64_t windows = ups_size_product(slots, (uint64_t)options.batch);
    memory.tables = ups_size_sum(ups_size_product(reads, of_job), ups_size_product(windows, sizeof(ups_window)));
    const uint64_t parts[] = {
        ups_size_product(slots, ups_pages_bytes(memory.slot)), ups_pages_bytes(ups_size_product(reads, memory.read)),
        ups_size_product((uint64_t)options.decode_threads, of_thread), memory.fixed, memory.tables};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) memory.total = ups_size_sum(memory.total, parts[i]);
    return memory;
}
