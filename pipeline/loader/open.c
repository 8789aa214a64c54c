/* Opening a loader: options are checked, every sample is looked at, memory is taken, threads begin. And closing it. */
#include "pipeline/loader/loader.h"

#include "base/sizes.h"
#include "base/system/pages.h"
#include "base/system/threads.h"
#include "pipeline/convert.h"
#include "pipeline/loader/state.h"
#include <stdlib.h>
#include <string.h>

static ups_status check_options(ups_loader_options *options, int32_t task_count, ups_error *error) {
    ups_loader_fill_in(options);
    if (options->batch < 1 || options->batch % options->windows_per_draw != 0)
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "a batch of %lld windows is no multiple of %lld windows per trajectory",
                        (long long)options->batch, (long long)options->windows_per_draw);
    if (options->window < 0)
        return ups_fail(error, UPS_ERR_ARGUMENT, "a window of %lld frames makes no sense", (long long)options->window);
    if (options->rank < 0 || options->rank >= options->ranks)
        return ups_fail(error, UPS_ERR_ARGUMENT, "rank %d is not one of %d", options->rank, options->ranks);
    if (options->dtype != UPS_F32 && options->dtype != UPS_F16)
        return ups_fail(error, UPS_ERR_ARGUMENT, "batches are float32 or float16, not %s",
                        ups_dtype_name(options->dtype));
    if (options->first_batch < 0)
        return ups_fail(error, UPS_ERR_ARGUMENT, "the first batch is %lld; 0 is the lowest",
                        (long long)options->first_batch);
    if (task_count < 1 || task_count > UPS_SAMPLER_MAX_TASKS)
        return ups_fail(error, UPS_ERR_ARGUMENT, "%d tasks; 1 to %d can be loaded together", task_count,
                        UPS_SAMPLER_MAX_TASKS);
    return UPS_OK;
}

/* A sample's frames must be those of the first, and enough for a window; `all`: a window is the whole trajectory. */
static ups_status check_sample(const ups_loader_task_state *state, const ups_sample *sample, bool all,
                               ups_error *error) {
    int64_t elements = ups_sample_frame_elements(sample);
    if (elements != state->frame_elements || sample->dtype != state->dtype)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "task %s, sample %s: its frames are %lld %s values, those of the first sample %lld %s; all "
                        "must be alike",
                        state->task.name, sample->name, (long long)elements, ups_dtype_name(sample->dtype),
                        (long long)state->frame_elements, ups_dtype_name(state->dtype));
    int64_t span = (state->frames - 1) * state->stride + 1;
    if (sample->times < span || (all && sample->times != state->frames))
        return ups_fail(error, UPS_ERR_FORMAT, "task %s, sample %s has %lld frames; %lld are needed", state->task.name,
                        sample->name, (long long)sample->times, (long long)span);
    return UPS_OK;
}

/* Looks at every sample of the split, so that nothing about shapes can fail later. */
static ups_status inspect_task(const ups_loader_options *options, ups_loader_task_state *state, ups_error *error) {
    const ups_loader_task *task = &state->task;
    const ups_source *source = task->source;
    int64_t window = task->window > 0 ? task->window : options->window;
    state->stride = task->stride > 0 ? task->stride : options->stride;
    if (!task->samples) state->task.sample_count = source->count;
    if (task->sample_count < 1) return ups_fail(error, UPS_ERR_ARGUMENT, "task %s has no samples to load", task->name);
    int64_t shortest = INT64_MAX;
    for (int64_t i = 0; i < task->sample_count; i++) {
        ups_sample sample;
        ups_status status = ups_source_describe(source, task->samples ? task->samples[i] : i, &sample, error);
        if (status != UPS_OK) {
            ups_fail_within(error, "task %s", task->name);
            return status;
        }
        if (i == 0) {
            state->frame_elements = ups_sample_frame_elements(&sample);
            state->dtype = sample.dtype;
            state->frames = window ? window : sample.times;
            if (window == 0) state->stride = 1;
        }
        UPS_TRY(check_sample(state, &sample, window == 0, error));
        if (sample.times < shortest) shortest = sample.times;
    }
    state->starts = shortest - (state->frames - 1) * state->stride;
    state->one_window = options->windows_per_draw == 1 && (state->stride == 1 || state->frames == 1);
    ups_store_facts store = {.residency = UPS_RESIDENCY_STREAM, .dtype = options->dtype};
    if (task->store) store = ups_store_look(task->store);
    state->residency = store.residency;
    if (store.dtype != options->dtype)
        return ups_fail(error, UPS_ERR_ARGUMENT, "task %s: its store keeps %s values, the batches are %s", task->name,
                        ups_dtype_name(store.dtype), ups_dtype_name(options->dtype));
    if (ups_convertible(state->dtype, options->dtype)) return UPS_OK;
    return ups_fail(error, UPS_ERR_UNSUPPORTED, "task %s: %s frames cannot be handed out as %s without loss",
                    task->name, ups_dtype_name(state->dtype), ups_dtype_name(options->dtype));
}

static ups_status inspect_tasks(ups_loader *loader, const ups_loader_task *tasks, ups_error *error) {
    int64_t positions = 0;
    uint32_t files = 0;
    for (int32_t k = 0; k < loader->task_count; k++) {
        ups_loader_task_state *state = &loader->tasks[k];
        state->task = tasks[k];
        UPS_TRY(inspect_task(&loader->options, state, error));
        state->first_position = positions;
        state->first_file = files;
        positions += state->task.sample_count;
        files += (uint32_t)tasks[k].source->file_count;
        const ups_loader_task_state *first = &loader->tasks[0];
        if (loader->options.one_task_per_batch ||
            (state->frames == first->frames && state->frame_elements == first->frame_elements))
            continue;
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "windows of task %s are %lld × %lld values, those of %s %lld × %lld; tasks that share a batch "
                        "must be alike",
                        state->task.name, (long long)state->frames, (long long)state->frame_elements, first->task.name,
                        (long long)first->frames, (long long)first->frame_elements);
    }
    return UPS_OK;
}

static ups_status make_sampler(ups_loader *loader, ups_error *error) {
    const ups_loader_options *options = &loader->options;
    loader->draws = options->batch / options->windows_per_draw;
    loader->global_draws = loader->draws * options->ranks;
    if (options->sequential) return UPS_OK;
    ups_sampler_task tasks[UPS_SAMPLER_MAX_TASKS];
    for (int32_t k = 0; k < loader->task_count; k++)
        tasks[k] = (ups_sampler_task){loader->tasks[k].task.sample_count, loader->tasks[k].starts,
                                      loader->tasks[k].task.weight};
    ups_sampler_options sampler = {.seed = options->seed,
                                   .strategy = options->strategy,
                                   .temperature = options->temperature,
                                   .windows_per_draw = options->windows_per_draw,
                                   .block = options->one_task_per_batch ? loader->draws : 1};
    UPS_TRY(ups_sampler_create(&sampler, tasks, loader->task_count, &loader->sampler, error));
    for (int64_t p = 0; p < options->phase_count; p++) {
        UPS_TRY(ups_sampler_add_phase(loader->sampler, &options->phases[p], error));
    }
    ups_sampler_forget(loader->sampler, options->first_batch * loader->global_draws);
    return UPS_OK;
}

ups_status ups_loader_add_phase(ups_loader *loader, const ups_sampler_phase *phase, int64_t taken, ups_error *error) {
    ups_sampler_forget(loader->sampler, taken * loader->global_draws);
    return ups_sampler_add_phase(loader->sampler, phase, error);
}

static ups_status open_engine(ups_loader *loader, ups_error *error) {
    const ups_loader_task_state *last = &loader->tasks[loader->task_count - 1];
    int64_t count = last->first_file + last->task.source->file_count;
    const char **files = calloc((size_t)count + 1, sizeof *files);
    if (!files) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the names of %lld files", (long long)count);
    for (int32_t k = 0; k < loader->task_count; k++)
        for (int64_t f = 0; f < loader->tasks[k].task.source->file_count; f++)
            files[loader->tasks[k].first_file + f] = loader->tasks[k].task.source->files[f];
    ups_io_options options = {.engine = loader->options.io,
                              .queue_depth = loader->options.queue_depth,
                              .direct = loader->options.direct,
                              .fault = loader->options.fault,
                              .fault_context = loader->options.fault_context};
    ups_status status = ups_io_open(files, count, &options, &loader->io, error);
    if (status == UPS_OK) loader->statistics.io = ups_io_chosen(loader->io);
    free(files);
    return status;
}

static void measure(ups_loader *loader) {
    ups_loader_load loads[UPS_SAMPLER_MAX_TASKS];
    for (int32_t k = 0; k < loader->task_count; k++) {
        const ups_loader_task_state *task = &loader->tasks[k];
        int64_t span = (task->frames - 1) * task->stride + 1;
        loads[k] = (ups_loader_load){.frames = task->frames,
                                     .stride = task->stride,
                                     .frame_elements = task->frame_elements,
                                     .dtype = task->dtype,
                                     .limits = task->task.source->limits,
                                     .window = ups_source_window_limits(task->task.source, span),
                                     .kept = task->task.store != NULL};
    }
    loader->memory = ups_loader_measure(&loader->options, loads, loader->task_count);
}

static ups_status make_ring(ups_loader *loader, ups_error *error) {
    const ups_loader_options *options = &loader->options;
    ups_ring_options ring = {.slots = options->slots,
                             .slot_bytes = loader->memory.slot,
                             .allocate = options->allocate,
                             .release = options->release,
                             .context = options->allocator_context,
                             .pages = options->pages};
    UPS_TRY(ups_ring_create(&ring, options->first_batch, &loader->ring, error));
    loader->batches = UPS_ARENA_ARRAY(loader->arena, ups_batch, options->slots);
    loader->windows = UPS_ARENA_ARRAY(loader->arena, ups_window, options->slots * options->batch);
    return UPS_OK;
}

static ups_status make_jobs(ups_loader *loader, ups_error *error) {
    const int64_t extents = loader->memory.extents;
    bool keeps_stored = false;
    for (int32_t k = 0; k < loader->task_count; k++)
        keeps_stored |= loader->tasks[k].residency == UPS_RESIDENCY_RAM_COMPRESSED;
    const uint64_t room = loader->memory.read;
    const int64_t count = loader->memory.reads;
    const uint64_t all = ups_size_product((uint64_t)count, room);
    loader->read_memory = ups_pages_take(loader->options.pages, all);
    if (!loader->read_memory)
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for %lld reads of up to %.1f MiB", (long long)count,
                        (double)room / (1 << 20));
    /* Pages that the kernel copies into need no pinning; those that a disk writes into do. */
    if (loader->options.direct) ups_io_register_buffers(loader->io, loader->read_memory, all);
    loader->job_count = count;
    loader->jobs = UPS_ARENA_ARRAY(loader->arena, ups_job, count);
    for (int64_t i = count - 1; i >= 0; i--) {
        ups_job *job = &loader->jobs[i];
        job->number = i;
        job->buffer = loader->read_memory + (uint64_t)i * room;
        job->extents = UPS_ARENA_ARRAY(loader->arena, ups_extent, extents);
        job->pieces = UPS_ARENA_ARRAY(loader->arena, ups_piece, extents);
        job->whole = keeps_stored ? UPS_ARENA_ARRAY(loader->arena, ups_extent, extents) : NULL;
        job->run_of = UPS_ARENA_ARRAY(loader->arena, int64_t, extents);
        job->runs = UPS_ARENA_ARRAY(loader->arena, ups_run, extents);
        job->next = loader->idle;
        loader->idle = job;
    }
    return UPS_OK;
}

static ups_status start_threads(ups_loader *loader, ups_error *error) {
    const uint64_t staging = loader->memory.staging, scratch = loader->memory.scratch;
    loader->decoders = UPS_ARENA_ARRAY(loader->arena, ups_decoder, loader->options.decode_threads);
    for (int i = 0; i < loader->options.decode_threads; i++) {
        ups_decoder *decoder = &loader->decoders[i];
        decoder->loader = loader;
        decoder->scratch = ups_pages_take(loader->options.pages, scratch);
        decoder->staging = staging ? ups_pages_take(loader->options.pages, staging) : NULL;
        if (!decoder->scratch || (staging && !decoder->staging))
            return ups_fail(error, UPS_ERR_MEMORY, "no memory for %d decode threads of %.1f MiB; fewer need less",
                            loader->options.decode_threads, (double)(staging + scratch) / (1 << 20));
        if (pthread_create(&decoder->thread, NULL, ups_loader_decode, decoder) != 0)
            return ups_fail(
                error, UPS_ERR_MEMORY,
                "decode thread %d of %d could not be started; is a limit reached (ulimit -u, ulimit -v), or "
                "memory short?",
                i + 1, loader->options.decode_threads);
        loader->decoders_running++;
    }
    loader->io_running = pthread_create(&loader->io_thread, NULL, ups_loader_fetch, loader) == 0;
    return loader->io_running ? UPS_OK
                              : ups_fail(error, UPS_ERR_MEMORY,
                                         "the I/O thread could not be started; is a limit reached (ulimit -u, "
                                         "ulimit -v), or memory short?");
}

ups_status ups_loader_open(const ups_loader_options *options, const ups_loader_task *tasks, int32_t task_count,
                           ups_loader **out, ups_error *error) {
    *out = NULL;
    ups_loader *loader = calloc(1, sizeof *loader);
    if (!loader) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a loader");
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->fetched_some, NULL);
    pthread_cond_init(&loader->idle_some, NULL);
    loader->options = *options;
    loader->task_count = task_count;
    ups_status status = check_options(&loader->options, task_count, error);
    if (status == UPS_OK) {
        loader->arena = ups_arena_create(0);
        loader->report = ups_arena_create(0);
        if (!loader->arena || !loader->report) status = ups_fail(error, UPS_ERR_MEMORY, "no memory for a loader");
    }
    if (status == UPS_OK) {
        loader->tasks = UPS_ARENA_ARRAY(loader->arena, ups_loader_task_state, task_count);
        status = inspect_tasks(loader, tasks, error);
    }
    if (status == UPS_OK) status = make_sampler(loader, error);
    if (status == UPS_OK) status = open_engine(loader, error);
    if (status == UPS_OK) measure(loader);
    if (status == UPS_OK) status = make_ring(loader, error);
    if (status == UPS_OK) status = make_jobs(loader, error);
    if (status == UPS_OK) status = start_threads(loader, error);
    if (status != UPS_OK) {
        ups_loader_close(loader);
        return status;
    }
    *out = loader;
    return UPS_OK;
}

void ups_loader_close(ups_loader *loader) {
    if (!loader) return;
    pthread_mutex_lock(&loader->lock);
    loader->closing = true;
    pthread_cond_broadcast(&loader->fetched_some);
    pthread_cond_broadcast(&loader->idle_some);
    pthread_mutex_unlock(&loader->lock);
    if (loader->ring) ups_ring_close(loader->ring);
    if (loader->io_running) pthread_join(loader->io_thread, NULL);
    for (int i = 0; i < loader->decoders_running; i++) pthread_join(loader->decoders[i].thread, NULL);
    for (int64_t i = 0; i < loader->job_count; i++) ups_job_settle(loader, &loader->jobs[i], UPS_CLAIM_DROPPED);
    for (int i = 0; loader->decoders && i < loader->options.decode_threads; i++) {
        ups_pages_give(loader->options.pages, loader->decoders[i].scratch);
        ups_pages_give(loader->options.pages, loader->decoders[i].staging);
    }
    ups_io_close(loader->io);
    ups_ring_destroy(loader->ring);
    ups_sampler_destroy(loader->sampler);
    ups_pages_give(loader->options.pages, loader->read_memory);
    while (loader->bad) {
        ups_bad_record *record = loader->bad;
        loader->bad = record->next;
        free(record->line);
        free(record);
    }
    for (int32_t k = 0; loader->tasks && k < loader->task_count; k++) free(loader->tasks[k].reported);
    ups_arena_destroy(loader->report);
    ups_arena_destroy(loader->arena);
    pthread_mutex_destroy(&loader->lock);
    pthread_cond_destroy(&loader->fetched_some);
    pthread_cond_destroy(&loader->idle_some);
    free(loader);
}
