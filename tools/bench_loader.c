/* `ups bench loader`: trajectories a second from disk to batches in memory, and where the time goes. */
#include "base/json.h"
#include "base/threads.h"
#include "cache/source.h"
#include "pipeline/layouts.h"
#include "pipeline/loader.h"
#include "tools/bench_data.h"
#include "tools/command.h"
#include "tools/commands.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { BATCH, WINDOW, PER_DRAW, STRIDE, DTYPE, ENGINE, DIRECT, THREADS, SLOTS, EPOCHS, MAKE, SAMPLES, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [BATCH] = {"batch", 'b', "N", "windows in a batch (default 4)"},
    [WINDOW] = {"window", 'w', "N", "frames in a window; 0: the whole trajectory (default 0)"},
    [PER_DRAW] = {"pairs-per-trajectory", 0, "N", "windows taken from one decoded trajectory (default 1)"},
    [STRIDE] = {"stride", 0, "N", "time steps between the frames of a window (default 1)"},
    [DTYPE] = {"dtype", 0, "TYPE", "of the batches: f32 or f16 (default f32)"},
    [ENGINE] = {"io", 0, "ENGINE", "auto, uring or threads (default auto)"},
    [DIRECT] = {"direct", 0, NULL, "read around the page cache (O_DIRECT)"},
    [THREADS] = {"threads", 't', "N", "decode threads (default: all processors)"},
    [SLOTS] = {"slots", 0, "N", "batches in flight (default 4)"},
    [MAKE] = {"make", 'm', "DIR", "make the synthetic cache in DIR and leave it there: DIR/bench/train"},
    [SAMPLES] = {"samples", 'n', "N", "trajectories of the synthetic cache (default 32)"},
    [EPOCHS] = {"epochs", 'e', "N", "passes measured, after one that warms up (default 4)"},
};

static const ups_usage usage = {
    "bench loader",
    "[DIR|FILE...]",
    "measures the loader: trajectories a second from disk to batches in memory",
    options,
    OPTION_COUNT,
    "Measures on a cache (the directory of one task and split), on PDEBench files of one task or, without either, on\n"
    "a cache of synthetic latents that it makes and removes. Samples come in random order. GB/s are of the batches\n"
    "handed out. `first batch` is the time from opening the loader to its first batch.",
};

typedef struct outcome {
    double first_batch_seconds, seconds;
    int64_t trajectories;
    double bytes;                        /* handed out */
    ups_loader_statistics before, after; /* of the measured passes */
} outcome;

static bool is_directory(const char *path) {
    struct stat entry;
    return stat(path, &entry) == 0 && S_ISDIR(entry.st_mode);
}

static ups_status take(ups_loader *loader, int64_t count, double *bytes, ups_error *error) {
    for (int64_t i = 0; i < count; i++) {
        const ups_batch *batch = NULL;
        UPS_TRY(ups_loader_next(loader, &batch, error));
        *bytes +=
            (double)(batch->windows * batch->frames * batch->frame_elements) * (double)ups_dtype_size(batch->dtype);
        ups_loader_release(loader, batch);
    }
    return UPS_OK;
}

static ups_status measure(const ups_loader_options *how, const ups_source *source, int64_t epochs, outcome *out,
                          ups_error *error) {
    ups_loader_task task = {.name = "bench", .source = source};
    ups_loader *loader = NULL;
    double start = ups_now(), ignored = 0.0;
    UPS_TRY(ups_loader_open(how, &task, 1, &loader, error));
    ups_status status = take(loader, 1, &ignored, error);
    out->first_batch_seconds = ups_now() - start;
    int64_t draws = how->batch / how->windows_per_draw, epoch = (source->count + draws - 1) / draws;
    if (status == UPS_OK) status = take(loader, epoch, &ignored, error); /* warm-up */
    ups_loader_statistics_get(loader, &out->before);
    start = ups_now();
    if (status == UPS_OK) status = take(loader, epoch * epochs, &out->bytes, error);
    out->seconds = ups_now() - start;
    out->trajectories = epoch * epochs * draws;
    ups_loader_statistics_get(loader, &out->after);
    ups_loader_close(loader);
    return status;
}

static void print(const outcome *out, const ups_source *source, bool as_json) {
    double rate = (double)out->trajectories / out->seconds, speed = out->bytes / out->seconds / 1e9;
    double disk = out->after.seconds_disk - out->before.seconds_disk,
           decode = out->after.seconds_decode - out->before.seconds_decode,
           consumer = out->after.seconds_consumer - out->before.seconds_consumer,
           full = out->after.seconds_full - out->before.seconds_full;
    const char *engine = ups_io_engine_name(out->after.io);
    if (as_json) {
        json_t *facts = json_pack(
            "{s:s, s:I, s:s, s:f, s:f, s:f, s:I, s:f, s:f, s:f, s:f, s:f}", "source", source->class->kind, "samples",
            (json_int_t)source->count, "io", engine, "samples_per_s", rate, "gb_per_s", speed, "first_batch_s",
            out->first_batch_seconds, "trajectories", (json_int_t)out->trajectories, "seconds", out->seconds,
            "seconds_disk", disk, "seconds_decode", decode, "seconds_consumer", consumer, "seconds_full", full);
        json_dumpf(facts, stdout, JSON_REAL_PRECISION(6));
        putchar('\n');
        json_decref(facts);
        return;
    }
    printf("%lld samples of kind %s, read by %s\n", (long long)source->count, source->class->kind, engine);
    printf("%.1f trajectories/s, %.2f GB/s of batches; first batch after %.3f s\n", rate, speed,
           out->first_batch_seconds);
    printf("of %.2f s: decoding %.2f s and waiting for the disk %.2f s (summed over threads), consumer waiting %.2f s, "
           "all slots full %.2f s\n",
           out->seconds, decode, disk, consumer, full);
}

static ups_status open_source(int count, char **names, ups_source **source, ups_error *error) {
    if (count == 1 && is_directory(names[0])) return ups_cache_source_open(names[0], NULL, source, error);
    return ups_layout_open_many((const char *const *)names, count, NULL, source, error);
}

static ups_status run(const ups_arguments *arguments, const ups_loader_options *how, int64_t epochs, const char *make,
                      int64_t samples, ups_error *error) {
    char *directory = NULL, *group = NULL;
    ups_source *source = NULL;
    ups_status status = UPS_OK;
    if (arguments->operand_count == 0) {
        if (!make) status = ups_bench_directory(&directory, error);
        if (status == UPS_OK) status = ups_bench_make_latents(make ? make : directory, samples, &group, error);
        if (status == UPS_OK) status = open_source(1, &group, &source, error);
    } else {
        status = open_source(arguments->operand_count, arguments->operands, &source, error);
    }
    outcome out = {0};
    if (status == UPS_OK) status = measure(how, source, epochs, &out, error);
    if (status == UPS_OK) print(&out, source, arguments->json);
    ups_source_close(source);
    free(group);
    ups_bench_remove(directory);
    return status;
}

int ups_cmd_bench_loader(int argc, char **argv) {
    enum { MOST = 1 << 20 };
    static const char *const types[] = {"f32", "f16", NULL}, *const engines[] = {"auto", "uring", "threads", NULL};
    ups_loader_options how = {.batch = 4, .windows_per_draw = 1, .stride = 1, .batch_count = -1};
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    int64_t threads = 0, slots = 0, epochs = 4, samples = 32;
    const char *make = NULL;
    int type = 0, engine = 0;
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == BATCH) ups_arguments_integer(&arguments, 1, MOST, &how.batch);
        if (option == WINDOW) ups_arguments_integer(&arguments, 0, MOST, &how.window);
        if (option == PER_DRAW) ups_arguments_integer(&arguments, 1, MOST, &how.windows_per_draw);
        if (option == STRIDE) ups_arguments_integer(&arguments, 1, MOST, &how.stride);
        if (option == DTYPE) ups_arguments_choice(&arguments, types, &type);
        if (option == ENGINE) ups_arguments_choice(&arguments, engines, &engine);
        if (option == DIRECT) how.direct = true;
        if (option == THREADS) ups_arguments_integer(&arguments, 1, 1024, &threads);
        if (option == SLOTS) ups_arguments_integer(&arguments, 1, MOST, &slots);
        if (option == MAKE) make = arguments.value;
        if (option == SAMPLES) ups_arguments_integer(&arguments, 1, MOST, &samples);
        if (option == EPOCHS) ups_arguments_integer(&arguments, 1, MOST, &epochs);
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    how.dtype = type == 1 ? UPS_F16 : UPS_F32;
    how.io = (ups_io_engine)engine;
    how.decode_threads = (int)threads;
    how.slots = (int)slots;
    ups_error error = {0};
    if (run(&arguments, &how, epochs, make, samples, &error) != UPS_OK) return ups_command_fail(&arguments, &error);
    return UPS_EXIT_OK;
}
