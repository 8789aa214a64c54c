/* The loader of the public header: batches handed out, released in any order and at any time, also after the loader
 * they came from. See iteration.h. */
#include "tools/libups/iteration.h"

#include "base/system/pages.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- slots' memory ---------------------------------------------------------------------------------------------- */

static void *take_memory(const ups_data_loader *loader, size_t bytes) {
    const ups_loader_options *options = &loader->options;
    return options->allocate ? options->allocate(options->allocator_context, bytes) : ups_pages_alloc(bytes);
}

static void give_memory(const ups_data_loader *loader, void *memory) {
    const ups_loader_options *options = &loader->options;
    if (options->release)
        options->release(options->allocator_context, memory);
    else
        ups_pages_free(memory);
}

/* Called while the pipeline's loader opens: nobody else looks at the table, but for who releases older batches. */
static void *allocate_slot(void *context, size_t bytes) {
    ups_data_loader *loader = context;
    uint8_t *memory = take_memory(loader, bytes);
    if (!memory) return NULL;
    pthread_mutex_lock(&loader->lock);
    int64_t i = 0;
    while (i < loader->slot_room && loader->slots[i].bytes) i++;
    if (i == loader->slot_room) {
        slot_memory *more = realloc(loader->slots, (size_t)(i + 1) * sizeof *more);
        if (more) loader->slots = more;
        if (more) loader->slot_room++;
    }
    bool has_entry = i < loader->slot_room;
    if (has_entry) loader->slots[i] = (slot_memory){.bytes = memory, .size = bytes};
    pthread_mutex_unlock(&loader->lock);
    if (has_entry) return memory;
    give_memory(loader, memory);
    return NULL;
}

/* The entry that `address` lies in; NULL: none, it lies in what is kept in memory. */
static slot_memory *find_slot(ups_data_loader *loader, const void *address) {
    uintptr_t at = (uintptr_t)address;
    for (int64_t i = 0; i < loader->slot_room; i++) {
        slot_memory *slot = &loader->slots[i];
        if (slot->bytes && at - (uintptr_t)slot->bytes < slot->size) return slot;
    }
    return NULL;
}

static void free_slot(const ups_data_loader *loader, slot_memory *slot) {
    give_memory(loader, slot->bytes);
    *slot = (slot_memory){0};
}

static void release_slot(void *context, void *memory) {
    ups_data_loader *loader = context;
    pthread_mutex_lock(&loader->lock);
    slot_memory *slot = find_slot(loader, memory);
    slot->orphaned = true;
    if (slot->held == 0) free_slot(loader, slot);
    pthread_mutex_unlock(&loader->lock);
}

/* The slot that the batch's windows lie in, those that are not kept in memory, is held once more or once less. */
static void hold_slot(ups_data_loader *loader, const handed_out *entry, int64_t by) {
    slot_memory *slot = NULL;
    for (int64_t w = 0; w < entry->public.windows && !slot; w++) slot = find_slot(loader, entry->window_values[w]);
    if (!slot) return;
    slot->held += by;
    if (slot->held == 0 && slot->orphaned) free_slot(loader, slot);
}

/* ---- opening and closing ---------------------------------------------------------------------------------------- */

static void free_entry(handed_out *entry) {
    free(entry->window_values);
    free(entry->frame_step);
    free(entry->sample);
    free(entry->start);
    free(entry->task);
    free(entry->dt);
    free(entry->parameters);
}

static ups_status make_entry(const ups_data_loader *loader, handed_out *entry, ups_error *error) {
    size_t windows = (size_t)loader->options.batch;
    size_t parameters = (size_t)(loader->parameter_count > 0 ? loader->parameter_count : 1);
    entry->window_values = calloc(windows, sizeof *entry->window_values);
    entry->frame_step = calloc(windows, sizeof *entry->frame_step);
    entry->sample = calloc(windows, sizeof *entry->sample);
    entry->start = calloc(windows, sizeof *entry->start);
    entry->task = calloc(windows, sizeof *entry->task);
    entry->dt = calloc(windows, sizeof *entry->dt);
    entry->parameters = calloc(windows * parameters, sizeof *entry->parameters);
    if (entry->window_values && entry->frame_step && entry->sample && entry->start && entry->task && entry->dt &&
        entry->parameters)
        return UPS_OK;
    return ups_fail(error, UPS_ERR_MEMORY, "no memory to describe batches of %zu windows", windows);
}

/* The caller has closed and released everything. */
static void destroy(ups_data_loader *loader) {
    for (int32_t s = 0; loader->held && s < loader->options.slots; s++) free_entry(&loader->held[s]);
    for (int32_t k = 0; k < loader->task_count; k++) {
        if (loader->tasks) {
            ups_store_close(loader->tasks[k].store);
            free((void *)loader->tasks[k].samples);
            free((void *)loader->tasks[k].name);
        }
        if (loader->data) ups_data_close((ups_data *)loader->data[k]);
    }
    pthread_mutex_destroy(&loader->lock);
    free(loader->held);
    free(loader->shapes);
    free(loader->slots);
    free(loader->tasks);
    free((void *)loader->data);
    free(loader);
}

/* Whoever releases a batch from now on finds no loader to give it back to. */
static void stop(ups_data_loader *loader) {
    pthread_mutex_lock(&loader->lock);
    ups_loader *inner = loader->inner;
    loader->inner = NULL;
    loader->generation++;
    pthread_mutex_unlock(&loader->lock);
    ups_loader_close(inner);
}

void ups_data_loader_close(ups_data_loader *loader) {
    if (!loader) return;
    stop(loader);
    pthread_mutex_lock(&loader->lock);
    loader->closed = true;
    bool last = loader->held_count == 0;
    pthread_mutex_unlock(&loader->lock);
    if (last) destroy(loader);
}

static ups_status copy_task(ups_data_loader *loader, int32_t k, const ups_data_task *given, ups_error *error) {
    ups_loader_task *task = &loader->tasks[k];
    if (!given->data) return ups_fail(error, UPS_ERR_ARGUMENT, "task %d has no data set", k);
    for (size_t i = 0; i < sizeof given->later / sizeof *given->later; i++) {
        if (given->later[i])
            return ups_fail(error, UPS_ERR_UNSUPPORTED, "task %d sets what this libups does not know: zero it", k);
    }
    if (!(given->weight >= 0) || isinf(given->weight))
        return ups_fail(error, UPS_ERR_ARGUMENT, "the weight of task %d is %g; it is 0 or above", k, given->weight);
    if (given->samples && given->sample_count < 1)
        return ups_fail(error, UPS_ERR_ARGUMENT, "task %d has a list of %lld samples", k,
                        (long long)given->sample_count);
    loader->data[k] = ups_data_keep(given->data);
    task->source = given->data->source;
    task->weight = given->weight;
    task->sample_count = given->samples ? given->sample_count : task->source->count;
    char number[32];
    snprintf(number, sizeof number, "%d", k);
    task->name = strdup(given->name ? given->name : number);
    if (given->samples) {
        size_t bytes = (size_t)given->sample_count * sizeof *given->samples;
        int64_t *samples = malloc(bytes);
        if (samples) memcpy(samples, given->samples, bytes);
        task->samples = samples;
    }
    if (!task->name || (given->samples && !task->samples))
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for the samples of task %d", k);
    if (task->source->parameter_count > loader->parameter_count)
        loader->parameter_count = task->source->parameter_count;
    return UPS_OK;
}

static ups_status copy_tasks(ups_data_loader *loader, const ups_data_task *given, int32_t count, ups_error *error) {
    if (!given) return ups_fail(error, UPS_ERR_ARGUMENT, "the list of tasks is NULL");
    if (count < 1 || count > UPS_SAMPLER_MAX_TASKS)
        return ups_fail(error, UPS_ERR_ARGUMENT, "%d tasks; 1 to %d can be loaded together", count,
                        UPS_SAMPLER_MAX_TASKS);
    loader->tasks = calloc((size_t)count, sizeof *loader->tasks);
    loader->data = calloc((size_t)count, sizeof *loader->data);
    if (!loader->tasks || !loader->data) return ups_fail(error, UPS_ERR_MEMORY, "no memory for %d tasks", count);
    loader->task_count = count;
    for (int32_t k = 0; k < count; k++) UPS_TRY(copy_task(loader, k, &given[k], error));
    return UPS_OK;
}

static ups_status make_entries(ups_data_loader *loader, ups_error *error) {
    loader->held = calloc((size_t)loader->options.slots, sizeof *loader->held);
    if (!loader->held) return ups_fail(error, UPS_ERR_MEMORY, "no memory for %d slots", loader->options.slots);
    for (int32_t s = 0; s < loader->options.slots; s++) UPS_TRY(make_entry(loader, &loader->held[s], error));
    return UPS_OK;
}

static ups_status shape_sample(const ups_source *source, int64_t index, frame_shape *shape, ups_error *error) {
    ups_sample sample;
    int64_t axes[UPS_DATA_MAX_RANK];
    int grid_axis[UPS_DATA_MAX_RANK], channel_axis;
    UPS_TRY(ups_source_describe(source, index, &sample, error));
    *shape = (frame_shape){.rank = ups_data_axes(&sample, axes, grid_axis, &channel_axis) - 1};
    memcpy(shape->axis, axes + 1, (size_t)shape->rank * sizeof *shape->axis);
    return UPS_OK;
}

static bool same_shape(const frame_shape *a, const frame_shape *b) {
    return a->rank == b->rank && memcmp(a->axis, b->axis, (size_t)a->rank * sizeof *a->axis) == 0;
}

/* Once, so that batches are shaped without asking every window's source. A task's frames are equal in size, which the
 * pipeline's loader has seen to, but 8 × 6 and 6 × 8 are both 48. */
static ups_status shape_tasks(ups_data_loader *loader, ups_error *error) {
    loader->shapes = calloc((size_t)loader->task_count, sizeof *loader->shapes);
    if (!loader->shapes) return ups_fail(error, UPS_ERR_MEMORY, "no memory for %d tasks", loader->task_count);
    for (int32_t k = 0; k < loader->task_count; k++) {
        const ups_loader_task *task = &loader->tasks[k];
        task_shape *shape = &loader->shapes[k];
        for (int64_t i = 0; i < task->sample_count && !shape->varies; i++) {
            frame_shape its;
            UPS_TRY(shape_sample(task->source, task->samples ? task->samples[i] : i, &its, error));
            if (i == 0) shape->first = its;
            shape->varies = !same_shape(&its, &shape->first);
        }
    }
    return UPS_OK;
}

static ups_status start(ups_data_loader *loader, int64_t position, ups_error *error) {
    ups_loader_options options = loader->options;
    options.first_batch = position;
    options.allocate = allocate_slot;
    options.release = release_slot;
    options.allocator_context = loader;
    ups_loader *inner;
    UPS_TRY(ups_loader_open(&options, loader->tasks, loader->task_count, &inner, error));
    pthread_mutex_lock(&loader->lock);
    loader->inner = inner;
    pthread_mutex_unlock(&loader->lock);
    loader->position = position;
    return UPS_OK;
}

static ups_status open_all(ups_data_loader *loader, const ups_data_task *tasks, int32_t count,
                           const ups_data_loader_options *given, ups_error *error) {
    ups_data_loader_options options;
    UPS_TRY(ups_data_take("ups_data_loader_options", &options, sizeof options, given, error));
    UPS_TRY(copy_tasks(loader, tasks, count, error));
    UPS_TRY(ups_iteration_plan(loader, &options, error));
    UPS_TRY(make_entries(loader, error));
    UPS_TRY(start(loader, options.first_batch, error));
    return shape_tasks(loader, error);
}

ups_data_status ups_data_loader_open(const ups_data_task *tasks, int32_t task_count,
                                     const ups_data_loader_options *options, ups_data_loader **out,
                                     ups_data_error *error) {
    *out = NULL;
    ups_error inner = {0};
    ups_data_loader *loader = calloc(1, sizeof *loader);
    if (!loader) {
        ups_fail(&inner, UPS_ERR_MEMORY, "no memory for a loader");
        return ups_data_fail(error, &inner);
    }
    pthread_mutex_init(&loader->lock, NULL);
    if (open_all(loader, tasks, task_count, options, &inner) != UPS_OK) {
        ups_data_loader_close(loader);
        return ups_data_fail(error, &inner);
    }
    *out = loader;
    return UPS_DATA_OK;
}

ups_data_status ups_data_loader_seek(ups_data_loader *loader, int64_t batch, ups_data_error *error) {
    ups_error inner = {0};
    if (batch < 0) {
        ups_fail(&inner, UPS_ERR_ARGUMENT, "batch %lld; 0 is the first", (long long)batch);
        return ups_data_fail(error, &inner);
    }
    stop(loader);
    return start(loader, batch, &inner) == UPS_OK ? UPS_DATA_OK : ups_data_fail(error, &inner);
}

/* ---- batches ---------------------------------------------------------------------------------------------------- */

/* The shape of one window's frames: its task's, or where those differ its sample's. */
static frame_shape window_shape(const ups_data_loader *loader, const ups_window *window) {
    const task_shape *task = &loader->shapes[window->task];
    frame_shape own = task->first;
    if (task->varies) (void)shape_sample(loader->tasks[window->task].source, window->sample, &own, NULL);
    return own;
}

/* (B, W, …) where the samples of all windows have frames of one shape; else (B, W, E). */
static void shape_batch(const ups_data_loader *loader, const ups_batch *batch, handed_out *entry) {
    frame_shape shape = {0};
    bool alike = true;
    for (int64_t w = 0; w < batch->windows && alike; w++) {
        const ups_window *window = &batch->window[w];
        if (window->sample == UPS_NO_SAMPLE) continue;
        frame_shape its = window_shape(loader, window);
        alike = shape.rank == 0 || same_shape(&its, &shape);
        shape = its;
    }
    if (shape.rank == 0 && loader->task_count == 1) shape = loader->shapes[0].first; /* every sample was skipped */
    if (!alike || shape.rank == 0) shape = (frame_shape){.rank = 1, .axis = {batch->frame_elements}};
    entry->shape[0] = batch->windows;
    entry->shape[1] = batch->frames;
    memcpy(entry->shape + 2, shape.axis, (size_t)shape.rank * sizeof *shape.axis);
    entry->public.rank = shape.rank + 2;
    entry->public.shape = entry->shape;
}

static void describe_windows(const ups_data_loader *loader, const ups_batch *batch, handed_out *entry) {
    for (int64_t w = 0; w < batch->windows; w++) {
        const ups_window *window = &batch->window[w];
        entry->window_values[w] = window->frames;
        entry->frame_step[w] = window->frame_step;
        entry->task[w] = window->task;
        entry->sample[w] = window->sample;
        entry->start[w] = window->start;
        entry->dt[w] = window->dt;
        double *parameters = entry->parameters + w * loader->parameter_count;
        int own = window->parameters ? loader->tasks[window->task].source->parameter_count : 0;
        for (int64_t p = 0; p < loader->parameter_count; p++) parameters[p] = p < own ? window->parameters[p] : NAN;
    }
}

static handed_out *take_entry(ups_data_loader *loader) {
    pthread_mutex_lock(&loader->lock);
    handed_out *entry = NULL;
    for (int32_t s = 0; s < loader->options.slots && !entry; s++)
        if (!loader->held[s].inner) entry = &loader->held[s];
    pthread_mutex_unlock(&loader->lock);
    return entry;
}

static const ups_data_batch *hand_out(ups_data_loader *loader, const ups_batch *batch, handed_out *entry) {
    entry->public = (ups_data_batch){
        .index = batch->index,
        .windows = batch->windows,
        .frames = batch->frames,
        .frame_elements = batch->frame_elements,
        .dtype = ups_data_dtype_of(batch->dtype),
        .values = batch->data,
        .window_values = entry->window_values,
        .frame_step = entry->frame_step,
        .task = entry->task,
        .sample = entry->sample,
        .start = entry->start,
        .dt = entry->dt,
        .parameter_count = loader->parameter_count,
        .parameters = entry->parameters,
    };
    shape_batch(loader, batch, entry);
    describe_windows(loader, batch, entry);
    pthread_mutex_lock(&loader->lock);
    entry->inner = batch;
    entry->generation = loader->generation;
    loader->held_count++;
    hold_slot(loader, entry, 1);
    pthread_mutex_unlock(&loader->lock);
    return &entry->public;
}

static ups_status next(ups_data_loader *loader, const ups_data_batch **batch, ups_error *error) {
    if (!loader->inner)
        return ups_fail(error, UPS_ERR_ARGUMENT, "this loader could not go on where it was sent: close it");
    handed_out *entry = take_entry(loader);
    if (!entry)
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "all %d batches in flight are held by the caller: release some, or ask for more slots",
                        loader->options.slots);
    const ups_batch *inner;
    UPS_TRY(ups_loader_next(loader->inner, &inner, error));
    if (!inner) return UPS_OK;
    loader->position = inner->index + 1;
    *batch = hand_out(loader, inner, entry);
    return UPS_OK;
}

ups_data_status ups_data_loader_next(ups_data_loader *loader, const ups_data_batch **batch, ups_data_error *error) {
    ups_error inner = {0};
    *batch = NULL;
    return next(loader, batch, &inner) == UPS_OK ? UPS_DATA_OK : ups_data_fail(error, &inner);
}

/* The entry of a batch that is held; NULL: it is none of this loader's, or was released already. */
static handed_out *find_held(const ups_data_loader *loader, const ups_data_batch *batch) {
    for (int32_t s = 0; s < loader->options.slots; s++)
        if (&loader->held[s].public == batch) return loader->held[s].inner ? &loader->held[s] : NULL;
    return NULL;
}

void ups_data_loader_release(ups_data_loader *loader, const ups_data_batch *batch) {
    if (!batch) return;
    pthread_mutex_lock(&loader->lock);
    handed_out *entry = find_held(loader, batch);
    if (!entry) {
        pthread_mutex_unlock(&loader->lock);
        return;
    }
    bool returns = loader->inner && entry->generation == loader->generation;
    hold_slot(loader, entry, -1);
    /* Within the lock, so that the loader is not closed meanwhile. */
    if (returns) ups_loader_release(loader->inner, entry->inner);
    entry->inner = NULL;
    loader->held_count--;
    bool last = loader->closed && loader->held_count == 0;
    pthread_mutex_unlock(&loader->lock);
    if (last) destroy(loader);
}

int32_t ups_data_loader_wait(ups_data_loader *loader, double seconds) {
    return !loader->inner || !take_entry(loader) || ups_loader_wait(loader->inner, seconds);
}

int64_t ups_data_loader_position(const ups_data_loader *loader) {
    return loader->position;
}

int64_t ups_data_loader_epoch_batches(const ups_data_loader *loader) {
    return loader->epoch_batches;
}

static ups_data_residency residency_of(ups_residency residency) {
    if (residency == UPS_RESIDENCY_RAM) return UPS_DATA_RAM;
    return residency == UPS_RESIDENCY_RAM_COMPRESSED ? UPS_DATA_RAM_COMPRESSED : UPS_DATA_STREAM;
}

ups_data_status ups_data_loader_describe(const ups_data_loader *loader, ups_data_loader_statistics *given,
                                         ups_data_error *error) {
    ups_data_loader_statistics own = {
        .memory = loader->memory,
        .kept = loader->kept,
        .residency = residency_of(loader->residency),
        .threads = loader->options.decode_threads,
        .slots = loader->options.slots,
    };
    if (loader->inner) {
        ups_loader_statistics counted;
        ups_loader_statistics_get(loader->inner, &counted);
        own.batches = counted.batches;
        own.windows = counted.windows;
        own.draws = counted.trajectories;
        own.resident = counted.resident;
        own.bytes_read = counted.bytes_read;
        own.seconds_disk = counted.seconds_disk;
        own.seconds_decode = counted.seconds_decode;
        own.seconds_consumer = counted.seconds_consumer;
        own.seconds_full = counted.seconds_full;
        own.skipped_count = ups_loader_bad_samples(loader->inner, &own.skipped);
    }
    ups_error inner = {0};
    if (ups_data_give("ups_data_loader_statistics", given, &own, sizeof own, &inner) != UPS_OK)
        return ups_data_fail(error, &inner);
    return UPS_DATA_OK;
}
