/* From a caller's options to the floors': ranges are checked, memory is bounded before there is any, and what stays in
 * memory between one draw and the next gets its stores. */
#include "base/system/memory_limit.h"
#include "base/system/threads.h"
#include "tools/libups/iteration.h"

#include <stdlib.h>

#define MIB ((double)(1 << 20))

/* Beyond these an option is a mistake; what fits into memory is found out later. */
enum { MOST_WINDOWS = 1 << 20, MOST_THREADS = 4096, MOST_SLOTS = 1 << 16, MOST_READS = 1 << 16 };
#define MOST_BATCHES ((int64_t)1 << 48)

static ups_status check_range(const char *name, int64_t value, int64_t most, ups_error *error) {
    if (value >= 0 && value <= most) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT, "%s is %lld; 0 to %lld are possible", name, (long long)value,
                    (long long)most);
}

static ups_status check(const ups_data_loader_options *given, ups_error *error) {
    const uint32_t known =
        UPS_DATA_SEQUENTIAL | UPS_DATA_ONE_TASK_PER_BATCH | UPS_DATA_IN_PLACE | UPS_DATA_DIRECT | UPS_DATA_SKIP_BAD;
    UPS_TRY(check_range("batch_size", given->batch_size, MOST_WINDOWS, error));
    UPS_TRY(check_range("frames", given->frames, INT32_MAX, error));
    UPS_TRY(check_range("time_stride", given->time_stride, INT32_MAX, error));
    UPS_TRY(check_range("windows_per_sample", given->windows_per_sample, MOST_WINDOWS, error));
    UPS_TRY(check_range("first_batch", given->first_batch, MOST_BATCHES, error));
    UPS_TRY(check_range("batches", given->batches, MOST_BATCHES, error));
    UPS_TRY(check_range("ranks", given->ranks, INT32_MAX / 2, error));
    UPS_TRY(check_range("rank", given->rank, given->ranks > 0 ? given->ranks - 1 : 0, error));
    UPS_TRY(check_range("threads", given->threads, MOST_THREADS, error));
    UPS_TRY(check_range("slots", given->slots, MOST_SLOTS, error));
    UPS_TRY(check_range("queue_depth", given->queue_depth, MOST_READS, error));
    UPS_TRY(check_range("strategy", (int64_t)given->strategy, UPS_DATA_TEMPERATURE, error));
    UPS_TRY(check_range("residency", (int64_t)given->residency, UPS_DATA_RESIDENCY_AUTO, error));
    if (given->flags & ~known)
        return ups_fail(error, UPS_ERR_ARGUMENT, "flags has bits that mean nothing here: 0x%x", given->flags & ~known);
    if (given->slots == 1)
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "slots is 1; a batch to read into beside the one that is held takes 2");
    if (!given->allocate != !given->release)
        return ups_fail(error, UPS_ERR_ARGUMENT, "allocate and release belong together; only one of them is set");
    if (given->temperature < 0 || given->temperature != given->temperature)
        return ups_fail(error, UPS_ERR_ARGUMENT, "temperature is %g; it is above 0", given->temperature);
    return UPS_OK;
}

static ups_sampler_strategy strategy_of(ups_data_strategy strategy) {
    if (strategy == UPS_DATA_BALANCED) return UPS_SAMPLER_BALANCED;
    return strategy == UPS_DATA_TEMPERATURE ? UPS_SAMPLER_TEMPERATURE : UPS_SAMPLER_PROPORTIONAL;
}

static ups_residency residency_of(ups_data_residency residency) {
    if (residency == UPS_DATA_RAM) return UPS_RESIDENCY_RAM;
    if (residency == UPS_DATA_RAM_COMPRESSED) return UPS_RESIDENCY_RAM_COMPRESSED;
    return residency == UPS_DATA_RESIDENCY_AUTO ? UPS_RESIDENCY_AUTO : UPS_RESIDENCY_STREAM;
}

static ups_status translate(const ups_data_loader_options *given, ups_loader_options *options, ups_error *error) {
    enum { DEFAULT_SLOTS = 4 };
    ups_dtype dtype = UPS_F32;
    if (given->dtype != 0 && !ups_data_dtype_known(given->dtype, &dtype))
        return ups_fail(error, UPS_ERR_ARGUMENT, "dtype is %d; batches are UPS_DATA_F32 or UPS_DATA_F16",
                        (int)given->dtype);
    *options = (ups_loader_options){
        .seed = given->seed,
        .strategy = strategy_of(given->strategy),
        .temperature = given->temperature,
        .batch = given->batch_size ? given->batch_size : 1,
        .windows_per_draw = given->windows_per_sample ? given->windows_per_sample : 1,
        .window = given->frames,
        .stride = given->time_stride ? given->time_stride : 1,
        .one_task_per_batch = given->flags & UPS_DATA_ONE_TASK_PER_BATCH,
        .dtype = dtype,
        .sequential = given->flags & UPS_DATA_SEQUENTIAL,
        .batch_count = given->batches ? given->batches : -1,
        .rank = given->rank,
        .ranks = given->ranks ? given->ranks : 1,
        .decode_threads = given->threads ? given->threads : ups_cpu_count(),
        .slots = given->slots ? given->slots : DEFAULT_SLOTS,
        .queue_depth = given->queue_depth,
        .direct = given->flags & UPS_DATA_DIRECT,
        .in_place = given->flags & UPS_DATA_IN_PLACE,
        .on_bad_sample = given->flags & UPS_DATA_SKIP_BAD ? UPS_BAD_SAMPLE_SKIP : UPS_BAD_SAMPLE_STOP,
        .allocate = given->allocate,
        .release = given->release,
        .allocator_context = given->allocator_context,
    };
    if (options->batch % options->windows_per_draw == 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT, "batch_size is %lld, which is no multiple of windows_per_sample, %lld",
                    (long long)options->batch, (long long)options->windows_per_draw);
}

/* A sample of each task stands for all: the loader refuses tasks whose samples differ in size. */
static ups_status describe_loads(const ups_data_loader *loader, bool kept, ups_loader_load *loads, ups_error *error) {
    for (int32_t k = 0; k < loader->task_count; k++) {
        const ups_loader_task *task = &loader->tasks[k];
        ups_sample sample;
        UPS_TRY(ups_source_describe(task->source, task->samples ? task->samples[0] : 0, &sample, error));
        int64_t frames = loader->options.window ? loader->options.window : sample.times;
        int64_t stride = loader->options.window ? loader->options.stride : 1, span = 0;
        if (__builtin_mul_overflow(frames - 1, stride, &span) || span >= sample.times)
            return ups_fail(error, UPS_ERR_ARGUMENT,
                            "%s: sample %s has %lld frames; windows of %lld with a time stride of %lld need more",
                            task->name, sample.name, (long long)sample.times, (long long)frames, (long long)stride);
        loads[k] = (ups_loader_load){.frames = frames,
                                     .stride = stride,
                                     .frame_elements = ups_sample_frame_elements(&sample),
                                     .dtype = sample.dtype,
                                     .limits = task->source->limits,
                                     .window = ups_source_window_limits(task->source, span + 1),
                                     .kept = kept};
    }
    return UPS_OK;
}

/* Fewer slots and threads, where the caller left them open, until the loader fits into `most` bytes. */
static ups_status fit(ups_data_loader *loader, const ups_data_loader_options *given, const ups_loader_load *loads,
                      uint64_t most, ups_error *error) {
    ups_loader_options *options = &loader->options;
    for (;;) {
        loader->memory = ups_loader_measure(options, loads, loader->task_count).total;
        if (loader->memory <= most) return UPS_OK;
        if (!given->slots && options->slots > 2)
            options->slots--;
        else if (!given->threads && options->decode_threads > 1)
            options->decode_threads--;
        else
            break;
    }
    return ups_fail(error, UPS_ERR_MEMORY,
                    "batches of %lld windows take %.1f MiB with %d slots and %d threads, but memory is bound to %.1f "
                    "MiB: allow more, or make batch_size, frames, slots or threads smaller",
                    (long long)options->batch, (double)loader->memory / MIB, options->slots, options->decode_threads,
                    (double)most / MIB);
}

static ups_status open_stores(ups_data_loader *loader, const ups_residency_need *needs, uint64_t room,
                              ups_error *error) {
    for (int32_t k = 0; k < loader->task_count; k++) {
        ups_loader_task *task = &loader->tasks[k];
        uint64_t wanted = ups_residency_bytes(loader->residency, needs[k]);
        ups_store_options options = {
            .residency = loader->residency, .dtype = loader->options.dtype, .max_bytes = wanted < room ? wanted : room};
        UPS_TRY(ups_store_open(task->source, task->samples, task->sample_count, &options, &task->store, error));
        loader->kept += ups_store_look(task->store).bytes;
        room -= options.max_bytes;
    }
    return UPS_OK;
}

/* What stays in memory gets what the loader leaves of the bound. */
static ups_status keep(ups_data_loader *loader, ups_residency wanted, uint64_t bound, ups_error *error) {
    if (wanted == UPS_RESIDENCY_STREAM) return UPS_OK;
    ups_residency_need all = {0}, *needs = calloc((size_t)loader->task_count, sizeof *needs);
    ups_status status = needs ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "no memory for %d tasks", loader->task_count);
    for (int32_t k = 0; k < loader->task_count && status == UPS_OK; k++) {
        const ups_loader_task *task = &loader->tasks[k];
        status = ups_residency_measure(task->source, task->samples, task->sample_count, loader->options.dtype,
                                       &needs[k], error);
        all.decoded += needs[k].decoded;
        all.stored += needs[k].stored;
    }
    if (status == UPS_OK) {
        uint64_t room = UINT64_MAX;
        if (bound) room = bound - loader->memory;
        if (!bound && wanted == UPS_RESIDENCY_AUTO) room = ups_memory_free() / 2;
        loader->residency = ups_residency_choose(wanted, all, room);
        if (loader->residency != UPS_RESIDENCY_STREAM) status = open_stores(loader, needs, room, error);
    }
    free(needs);
    return status;
}

static int64_t count_epoch_batches(const ups_data_loader *loader) {
    const ups_loader_options *options = &loader->options;
    int64_t draws = options->batch / options->windows_per_draw * options->ranks, samples = 0, batches = 0;
    for (int32_t k = 0; k < loader->task_count; k++) {
        int64_t count = loader->tasks[k].sample_count;
        samples += count;
        batches += (count + draws - 1) / draws;
    }
    if (options->sequential) return options->one_task_per_batch ? batches : (samples + draws - 1) / draws;
    return samples < draws ? 1 : samples / draws;
}

ups_status ups_iteration_plan(ups_data_loader *loader, const ups_data_loader_options *given, ups_error *error) {
    UPS_TRY(check(given, error));
    UPS_TRY(translate(given, &loader->options, error));
    ups_loader_load *loads = calloc((size_t)loader->task_count, sizeof *loads);
    if (!loads) return ups_fail(error, UPS_ERR_MEMORY, "no memory for %d tasks", loader->task_count);
    uint64_t bound = given->memory ? given->memory : UINT64_MAX;
    ups_residency wanted = residency_of(given->residency);
    /* Where samples may be kept the loader is measured as if they were: it then reads whole ones. */
    ups_status status = describe_loads(loader, wanted != UPS_RESIDENCY_STREAM, loads, error);
    if (status == UPS_OK) status = fit(loader, given, loads, bound, error);
    free(loads);
    loader->residency = UPS_RESIDENCY_STREAM;
    if (status == UPS_OK) status = keep(loader, wanted, given->memory, error);
    loader->epoch_batches = count_epoch_batches(loader);
    return status;
}
