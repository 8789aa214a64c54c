/* `ups bench loader`: trajectories a second from disk to batches in memory, and where the time goes. */
#include "pipeline/loader/loader.h"
#include "base/json.h"
#include "base/system/memory_limit.h"
#include "base/system/threads.h"
#include "cache/store/source.h"
#include "pipeline/layouts/layouts.h"
#include "tools/bench/data.h"
#include "tools/bench/endurance.h"
#include "tools/bench/go_on.h"
#include "tools/command.h"
#include "tools/commands/commands.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BATCH,
    WINDOW,
    PER_DRAW,
    STRIDE,
    DTYPE,
    ENGINE,
    DIRECT,
    DEPTH,
    THREADS,
    SLOTS,
    RESIDENCY,
    MEMORY,
    IN_PLACE,
    TOUCH,
    EPOCHS,
    BATCHES,
    COLD,
    MAKE,
    PORTABLE,
    SAMPLES,
    OPTION_COUNT
};
static const ups_option options[OPTION_COUNT] = {
    [BATCH] = {"batch", 0, "N", "windows in a batch (default 4)"},
    [WINDOW] = {"window", 'w', "N", "frames in a window; 0: the whole trajectory (default 0)"},
    [PER_DRAW] = {"pairs-per-trajectory", 0, "N", "windows taken from one decoded trajectory (default 1)"},
    [STRIDE] = {"stride", 0, "N", "time steps between the frames of a window (default 1)"},
    [DTYPE] = {"dtype", 0, "f32|f16", "of the batches (default f32)"},
    [ENGINE] = {"io", 0, "auto|uring|threads", "how files are read (default auto)"},
    [DIRECT] = {"direct", 0, NULL, "read around the page cache (O_DIRECT)"},
    [DEPTH] = {"queue-depth", 0, "N", "reads in flight (default 64)"},
    [RESIDENCY] = {"residency", 0, "auto|stream|ram_compressed|ram", "what is kept in memory (default stream)"},
    [MEMORY] = {"memory", 0, "MIB", "what the residency may take (default: half of what is free)"},
    [IN_PLACE] = {"in-place", 0, NULL, "take windows where they lie instead of gathered into a batch"},
    [TOUCH] = {"touch", 0, NULL, "read every cache line of every window, as a consumer would"},
    [COLD] = {"cold", 0, NULL, "one pass, after the files have been dropped from the page cache"},
    [THREADS] = {"threads", 't', "N", "decode threads (default: all processors)"},
    [SLOTS] = {"slots", 0, "N", "batches in flight (default 4)"},
    [MAKE] = {"make", 0, "DIR", "make the synthetic cache in DIR and leave it there: DIR/bench/train"},
    [PORTABLE] = {"portable", 0, NULL, "make it plain Zarr and zstd, for other readers"},
    [SAMPLES] = {"samples", 'n', "N", "trajectories of the synthetic cache (default 32)"},
    [EPOCHS] = {"epochs", 'e', "N", "passes measured, after one that warms up (default 4)"},
    [BATCHES] = {"batches", 0, "N", "draw so many batches, and show whether memory or descriptors grow meanwhile"},
};

static const ups_usage usage = {
    "bench loader",
    "[DIR|FILE...]",
    "measures the loader: trajectories a second from disk to batches in memory",
    options,
    OPTION_COUNT,
    "Measures on a cache (the directory of one task and split), on PDEBench files of one task or, without either, on\n"
    "a cache of synthetic latents that it makes and removes. Samples come in random order. GB/s are of the batches\n"
    "handed out. `first batch` is the time from opening the loader to its first batch. `resident` draws found their\n"
    "sample in memory.",
};

typedef struct loading {
    ups_loader_options options;
    ups_residency residency;
    uint64_t memory;         /* for samples that stay */
    int64_t epochs, batches; /* batches > 0: memory is watched over so many, instead of passes being timed */
    bool cold, touch;
} loading;

typedef struct outcome {
    double first_batch_seconds, seconds;
    int64_t trajectories;
    double bytes;                        /* handed out */
    ups_loader_statistics before, after; /* of the measured passes */
    ups_residency residency;
    uint64_t store_bytes;
} outcome;

static bool is_directory(const char *path) {
    struct stat entry;
    return stat(path, &entry) == 0 && S_ISDIR(entry.st_mode);
}

/* Reads one value a cache line, so that all of the window has come to this core. */
static float touch_window(const ups_batch *batch, const ups_window *window) {
    const int64_t line = 64 / (int64_t)ups_dtype_size(batch->dtype);
    const size_t element = ups_dtype_size(batch->dtype);
    uint32_t seen = 0;
    for (int64_t f = 0; f < batch->frames; f++) {
        const uint8_t *frame = (const uint8_t *)window->frames + (size_t)(f * window->frame_step) * element;
        for (int64_t e = 0; e < batch->frame_elements; e += line) seen += frame[(size_t)e * element];
    }
    return (float)seen;
}

static ups_status take(ups_loader *loader, int64_t count, bool touch, double *bytes, ups_error *error) {
    volatile float seen = 0; /* or the compiler would see that nobody wants it */
    for (int64_t i = 0; i < count; i++) {
        const ups_batch *batch = NULL;
        UPS_TRY(ups_bench_go_on(error));
        UPS_TRY(ups_loader_next(loader, &batch, error));
        *bytes +=
            (double)(batch->windows * batch->frames * batch->frame_elements) * (double)ups_dtype_size(batch->dtype);
        for (int64_t w = 0; w < batch->windows && touch; w++) seen += touch_window(batch, &batch->window[w]);
        ups_loader_release(loader, batch);
    }
    (void)seen;
    return UPS_OK;
}

/* So that the next reads come from the disk. Best effort: what is dirty or mapped stays. */
static void drop_from_cache(const ups_source *source) {
    for (int64_t f = 0; f < source->file_count; f++) {
        int fd = open(source->files[f], O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        (void)fsync(fd);
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

static ups_status open_store(const loading *how, const ups_source *source, ups_store **store, ups_error *error) {
    *store = NULL;
    ups_residency_need need;
    UPS_TRY(ups_residency_measure(source, NULL, 0, how->options.dtype, &need, error));
    uint64_t memory = how->memory ? how->memory : ups_memory_free() / 2;
    ups_store_options kept = {.residency = ups_residency_choose(how->residency, need, memory),
                              .dtype = how->options.dtype,
                              .max_bytes = memory};
    if (kept.residency == UPS_RESIDENCY_STREAM) return UPS_OK;
    return ups_store_open(source, NULL, 0, &kept, store, error);
}

static ups_status measure_passes(const loading *how, const ups_loader_task *task, outcome *out, ups_error *error) {
    ups_loader *loader = NULL;
    double start = ups_now(), ignored = 0.0;
    UPS_TRY(ups_loader_open(&how->options, task, 1, &loader, error));
    int64_t draws = how->options.batch / how->options.windows_per_draw,
            epoch = (task->source->count + draws - 1) / draws;
    int64_t epochs = how->cold ? 1 : how->epochs, measured = epoch * epochs - how->cold;
    ups_status status = take(loader, 1, how->touch, how->cold ? &out->bytes : &ignored, error);
    out->first_batch_seconds = ups_now() - start;
    if (status == UPS_OK && !how->cold) status = take(loader, epoch, how->touch, &ignored, error); /* warm-up */
    if (!how->cold) {
        ups_loader_statistics_get(loader, &out->before);
        start = ups_now();
    }
    if (status == UPS_OK) status = take(loader, measured, how->touch, &out->bytes, error);
    out->seconds = ups_now() - start;
    out->trajectories = epoch * epochs * draws;
    ups_loader_statistics_get(loader, &out->after);
    ups_loader_close(loader);
    return status;
}

static ups_status measure(const loading *how, const ups_source *source, bool as_json, outcome *out, ups_error *error) {
    if (how->cold) drop_from_cache(source);
    ups_store *store;
    UPS_TRY(open_store(how, source, &store, error));
    ups_loader_task task = {.name = "bench", .source = source, .store = store};
    ups_status status = how->batches > 0 ? ups_bench_endure(&how->options, &task, how->batches, as_json, error)
                                         : measure_passes(how, &task, out, error);
    out->residency = UPS_RESIDENCY_STREAM;
    if (store) {
        out->residency = ups_store_look(store).residency;
        out->store_bytes = ups_store_look(store).bytes;
    }
    ups_store_close(store);
    return status;
}

static void print(const outcome *out, const ups_source *source, bool as_json) {
    double rate = (double)out->trajectories / out->seconds, speed = out->bytes / out->seconds / 1e9;
    double disk = out->after.seconds_disk - out->before.seconds_disk,
           decode = out->after.seconds_decode - out->before.seconds_decode,
           consumer = out->after.seconds_consumer - out->before.seconds_consumer,
           full = out->after.seconds_full - out->before.seconds_full;
    int64_t resident = out->after.resident - out->before.resident;
    const char *residency = ups_residency_name(out->residency);
    const char *engine = ups_io_engine_name(out->after.io);
    if (as_json) {
        json_t *facts =
            json_pack("{s:s, s:I, s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f, s:f, s:f}", "source",
                      source->class->kind, "samples", (json_int_t)source->count, "io", engine, "residency", residency,
                      "resident_bytes", (json_int_t)out->store_bytes, "resident", (json_int_t)resident, "samples_per_s",
                      rate, "gb_per_s", speed, "first_batch_s", out->first_batch_seconds, "trajectories",
                      (json_int_t)out->trajectories, "seconds", out->seconds, "seconds_disk", disk, "seconds_decode",
                      decode, "seconds_consumer", consumer, "seconds_full", full);
        ups_print_json(facts, JSON_REAL_PRECISION(6));
        json_decref(facts);
        return;
    }
    printf("%lld samples of kind %s, read by %s; residency %s", (long long)source->count, source->class->kind, engine,
           residency);
    if (out->store_bytes > 0)
        printf(" in %.1f MiB, %lld of %lld draws resident", (double)out->store_bytes / (1 << 20), (long long)resident,
               (long long)out->trajectories);
    putchar('\n');
    printf("%.1f trajectories/s, %.2f GB/s of batches; first batch after %.3f s\n", rate, speed,
           out->first_batch_seconds);
    printf("of %.2f s: decoding %.2f s and waiting for the disk %.2f s (summed over threads), consumer waiting %.2f s, "
           "all slots full %.2f s\n",
           out->seconds, decode, disk, consumer, full);
}

typedef struct making {
    const char *directory; /* NULL: a temporary one */
    int64_t samples;
    bool portable;
} making;

static ups_status open_source(int count, char **names, ups_source **source, ups_error *error) {
    if (count == 1 && is_directory(names[0])) return ups_cache_source_open(names[0], NULL, source, error);
    return ups_layout_open_many((const char *const *)names, count, NULL, source, error);
}

static ups_status run(const ups_arguments *arguments, const loading *how, const making *make, ups_error *error) {
    char *directory = NULL, *group = NULL;
    ups_source *source = NULL;
    ups_status status = UPS_OK;
    if (arguments->operand_count == 0) {
        if (!make->directory) status = ups_bench_directory(&directory, error);
        if (status == UPS_OK)
            status = ups_bench_make_latents(make->directory ? make->directory : directory, make->samples,
                                            make->portable, &group, error);
        if (status == UPS_OK) status = open_source(1, &group, &source, error);
    } else {
        status = open_source(arguments->operand_count, arguments->operands, &source, error);
    }
    outcome out = {0};
    if (status == UPS_OK) status = measure(how, source, arguments->json, &out, error);
    if (status == UPS_OK && how->batches == 0) print(&out, source, arguments->json);
    ups_source_close(source);
    free(group);
    ups_bench_remove(directory);
    return status;
}

int ups_cmd_bench_loader(int argc, char **argv) {
    enum { MAXIMUM = 1 << 20 };
    loading how = {.options = {.batch = 4, .windows_per_draw = 1, .stride = 1, .batch_count = -1}, .epochs = 4};
    making make = {.samples = 32};
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    int64_t threads = 0, slots = 0, depth = 0, mib = 0;
    int type = 0, engine = 0, residency = UPS_RESIDENCY_STREAM;
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == BATCH) ups_arguments_integer(&arguments, 1, MAXIMUM, &how.options.batch);
        if (option == WINDOW) ups_arguments_integer(&arguments, 0, MAXIMUM, &how.options.window);
        if (option == PER_DRAW) ups_arguments_integer(&arguments, 1, MAXIMUM, &how.options.windows_per_draw);
        if (option == STRIDE) ups_arguments_integer(&arguments, 1, MAXIMUM, &how.options.stride);
        if (option == DTYPE) ups_arguments_choice(&arguments, &type);
        if (option == ENGINE) ups_arguments_choice(&arguments, &engine);
        if (option == DIRECT) how.options.direct = true;
        if (option == DEPTH) ups_arguments_integer(&arguments, 1, 4096, &depth);
        if (option == RESIDENCY) ups_arguments_choice(&arguments, &residency);
        if (option == MEMORY) ups_arguments_integer(&arguments, 1, MAXIMUM, &mib);
        if (option == IN_PLACE) how.options.in_place = true;
        if (option == TOUCH) how.touch = true;
        if (option == COLD) how.cold = true;
        if (option == THREADS) ups_arguments_integer(&arguments, 1, 1024, &threads);
        if (option == SLOTS) ups_arguments_integer(&arguments, 1, MAXIMUM, &slots);
        if (option == MAKE) make.directory = arguments.value;
        if (option == PORTABLE) make.portable = true;
        if (option == SAMPLES) ups_arguments_integer(&arguments, 1, MAXIMUM, &make.samples);
        if (option == EPOCHS) ups_arguments_integer(&arguments, 1, MAXIMUM, &how.epochs);
        if (option == BATCHES) ups_arguments_integer(&arguments, 1, INT64_MAX, &how.batches);
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    how.options.dtype = type == 1 ? UPS_F16 : UPS_F32;
    how.options.io = (ups_io_engine)engine;
    how.options.queue_depth = (int)depth;
    how.options.decode_threads = (int)threads;
    how.options.slots = (int)slots;
    how.residency = (ups_residency)residency;
    how.memory = (uint64_t)mib << 20;
    ups_error error = {0};
    if (run(&arguments, &how, &make, &error) != UPS_OK) return ups_command_fail(&arguments, &error);
    return UPS_EXIT_OK;
}
