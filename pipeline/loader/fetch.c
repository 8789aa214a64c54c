/* The I/O thread: plans batches, asks sources where the bytes are, keeps the engine's queue full, and passes complete
 * jobs on.
 *
 * What may surprise: reads are handed to the kernel a megabyte at a time, since with the ring a read from the page
 * cache is copied during that call, and nobody can decode while everything is copied first. */
#include "pipeline/loader/state.h"

#include "base/system/threads.h"

#define FLUSH_BYTES (1 << 20)
#define FLUSH_READS 16
/* Extents this close are read in one piece: a request costs more than copying the gap. */
#define MERGED_GAP 16384

typedef struct batch_plan {
    int64_t first; /* position of this rank's first draw */
    int64_t draws; /* fewer than loader->draws at the end of a sequential pass, down to none on the last ranks */
} batch_plan;

typedef struct fetch_state {
    ups_loader *loader;
    ups_slot *slot; /* the batch being started; NULL between batches */
    batch_plan plan;
    int64_t next_part;
    int64_t next_batch;
    bool ended;
    ups_job *job; /* begun and not yet submitted to its end */
    uint64_t queued_bytes;
    int queued_reads;
} fetch_state;

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

/* False behind the last batch. */
static bool plan_batch(const ups_loader *loader, int64_t batch, batch_plan *plan) {
    const ups_loader_options *options = &loader->options;
    if (options->batch_count >= 0 && batch >= options->batch_count) return false;
    *plan = (batch_plan){ups_sampler_position(batch, loader->global_draws, options->rank, options->ranks, 0),
                         loader->draws};
    if (!options->sequential) return true;
    /* A pass is cut into batches as a whole, or task by task. */
    const ups_loader_task_state *last = &loader->tasks[loader->task_count - 1];
    int64_t first = 0, end = last->first_position + last->task.sample_count;
    for (int32_t k = 0; options->one_task_per_batch && k < loader->task_count; k++) {
        first = loader->tasks[k].first_position;
        end = first + loader->tasks[k].task.sample_count;
        int64_t batches = (end - first + loader->global_draws - 1) / loader->global_draws;
        if (batch < batches) break;
        batch -= batches;
        first = end;
    }
    int64_t global = first + batch * loader->global_draws;
    if (global >= end) return false;
    plan->first = global + options->rank * loader->draws;
    plan->draws = clamp(end - plan->first, 0, loader->draws);
    return true;
}

/* The draw at a position of the run, whichever way positions are ordered. */
static void locate(const ups_loader *loader, int64_t position, int32_t *task, int64_t *index) {
    int64_t sample = 0;
    if (loader->sampler) {
        ups_draw draw = ups_sampler_draw(loader->sampler, position);
        *task = draw.task;
        sample = draw.sample;
    } else {
        int32_t k = loader->task_count - 1;
        while (loader->tasks[k].first_position > position) k--;
        *task = k;
        sample = position - loader->tasks[k].first_position;
    }
    const int64_t *split = loader->tasks[*task].task.samples;
    *index = split ? split[sample] : sample;
}

static void begin_batch(fetch_state *fetch, bool wait) {
    ups_loader *loader = fetch->loader;
    if (atomic_load(&loader->failed) || !plan_batch(loader, fetch->next_batch, &fetch->plan)) {
        fetch->ended = true;
        ups_ring_finish(loader->ring);
        return;
    }
    int32_t task;
    int64_t index;
    locate(loader, fetch->plan.draws ? fetch->plan.first : 0, &task, &index);
    ups_slot *slot = ups_ring_begin(loader->ring, fetch->plan.draws ? fetch->plan.draws : 1, wait);
    if (!slot) return;
    ups_batch *batch = &loader->batches[slot->number];
    batch->index = fetch->next_batch++;
    batch->windows = fetch->plan.draws * loader->options.windows_per_draw;
    batch->frames = loader->tasks[task].frames;
    batch->frame_elements = loader->tasks[task].frame_elements;
    fetch->next_part = 0;
    fetch->slot = fetch->plan.draws ? slot : NULL;
    if (!fetch->slot) ups_ring_part_done(loader->ring, slot, 0, UPS_OK, NULL); /* an empty batch is ready */
}

static ups_job *take_idle(ups_loader *loader, bool wait) {
    pthread_mutex_lock(&loader->lock);
    while (wait && !loader->closing && !loader->idle) pthread_cond_wait(&loader->idle_some, &loader->lock);
    ups_job *job = loader->closing ? NULL : loader->idle;
    if (job) loader->idle = job->next;
    pthread_mutex_unlock(&loader->lock);
    return job;
}

/* Says which frames the windows of the draw are, and where in the slot they will lie. */
static void choose_windows(const ups_loader *loader, ups_job *job) {
    const ups_loader_options *options = &loader->options;
    const ups_loader_task_state *task = &loader->tasks[job->task];
    ups_window *window = ups_job_windows(loader, job);
    const uint8_t *memory = ups_job_memory(loader, job);
    size_t bytes = (size_t)(task->frames * task->frame_elements) * ups_dtype_size(options->dtype);
    for (int64_t w = 0; w < options->windows_per_draw; w++) {
        int64_t start = loader->sampler ? ups_sampler_start(loader->sampler, job->position, w) : w % task->starts;
        window[w] = (ups_window){.task = job->task,
                                 .sample = job->index,
                                 .start = start,
                                 .dt = ups_window_dt(task, &job->sample, start),
                                 .time = job->sample.time + start,
                                 .parameters = job->sample.parameters,
                                 .frames = memory + (size_t)w * bytes,
                                 .frame_step = task->frame_elements};
    }
    job->frames = ups_job_span(loader, job);
}

/* The list whose bytes are read: all of the trajectory where they are to be kept. */
static const ups_extent *read_list(const ups_job *job, int64_t *count) {
    bool whole = job->place && job->whole_count > 0;
    *count = whole ? job->whole_count : job->extent_count;
    return whole ? job->whole : job->extents;
}

static void merge_extents(const ups_loader *loader, ups_job *job) {
    int64_t count;
    const ups_extent *list = read_list(job, &count);
    for (int64_t i = 0; i < count; i++) {
        const ups_extent *extent = &list[i];
        ups_extent *run = job->run_count ? &job->runs[job->run_count - 1].extent : NULL;
        uint64_t end = extent->offset + extent->length;
        uint32_t file = extent->file + loader->tasks[job->task].first_file;
        if (run && run->file == file && extent->offset >= run->offset &&
            extent->offset <= run->offset + run->length + MERGED_GAP) {
            if (end > run->offset + run->length) run->length = end - run->offset;
        } else {
            job->runs[job->run_count++].extent = (ups_extent){file, extent->offset, extent->length};
        }
        job->run_of[i] = job->run_count - 1;
    }
}

/* Bytes that are frames of the batch's type need no second copy. Around the page cache they do: reads then begin and
 * end at whole blocks, batch slots do not. */
static bool bytes_are_frames(const ups_loader *loader, const ups_job *job) {
    const ups_loader_task_state *task = &loader->tasks[job->task];
    return job->sample.as_stored && !loader->options.direct && !job->place && job->extent_count == 1 &&
           task->dtype == loader->options.dtype && task->one_window;
}

/* Judged by both ends of what is to be read: a draw is read as a whole, and as a whole it leaves the cache again. */
static bool is_cached(const ups_loader *loader, const ups_job *job) {
    if (!ups_io_cached(loader->io, job->runs[0].extent)) return false;
    return job->run_count == 1 || ups_io_cached(loader->io, job->runs[job->run_count - 1].extent);
}

static ups_status list_extents(const ups_loader *loader, ups_job *job, ups_frames frames, ups_extent *extents,
                               int64_t *count) {
    const ups_source *source = loader->tasks[job->task].task.source;
    return source->class->extents(source, job->index, frames, extents, count, &job->error);
}

/* Decides what the job does. Its sample is looked for in the task's store, or a place there is claimed for it. */
static void plan_job(ups_loader *loader, ups_job *job) {
    const ups_loader_task_state *task = &loader->tasks[job->task];
    job->submitted = job->read = job->run_count = job->extent_count = job->whole_count = 0;
    job->buffer_used = 0;
    job->bytes_from = UPS_BYTES_SOURCE;
    job->frames_to = task->one_window ? UPS_FRAMES_SLOT : UPS_FRAMES_STAGING;
    job->place = NULL;
    job->kept = NULL;
    job->sample = (ups_sample){0};
    job->status = ups_source_describe(task->task.source, job->index, &job->sample, &job->error);
    if (job->status != UPS_OK) return;
    choose_windows(loader, job);
    const ups_frames all = {0, job->sample.times};
    if (task->task.store) job->kept = ups_store_find(task->task.store, job->index);
    if (job->kept) job->bytes_from = UPS_BYTES_STORE;
    if (task->task.store && !job->kept) job->place = ups_store_claim(task->task.store, job->index);
    if (job->kept && task->residency == UPS_RESIDENCY_RAM) {
        job->frames_to = UPS_FRAMES_IN_PLACE;
        return;
    }
    if (job->place && task->residency == UPS_RESIDENCY_RAM) {
        job->frames_to = UPS_FRAMES_STORE;
        job->frames = all;
    }
    job->status = list_extents(loader, job, job->frames, job->extents, &job->extent_count);
    if (job->status == UPS_OK && (job->kept || job->place) && task->residency == UPS_RESIDENCY_RAM_COMPRESSED)
        job->status = list_extents(loader, job, all, job->whole, &job->whole_count);
    if (job->status != UPS_OK || job->kept) return;
    merge_extents(loader, job);
    if (job->run_count == 0) return;
    if (bytes_are_frames(loader, job)) job->frames_to = UPS_FRAMES_IN_PLACE;
    job->bytes_from = is_cached(loader, job) ? UPS_BYTES_PAGE_CACHE : UPS_BYTES_RING;
}

/* The next job, planned; NULL when there is none now: the slots or the jobs are all taken (with `wait` it waits), or
 * all batches are begun. */
static ups_job *begin_job(fetch_state *fetch, bool wait) {
    ups_loader *loader = fetch->loader;
    while (!fetch->slot && !fetch->ended) {
        int64_t before = fetch->next_batch;
        begin_batch(fetch, wait);
        if (fetch->next_batch == before) return NULL;
    }
    if (!fetch->slot) return NULL;
    ups_job *job = take_idle(loader, wait);
    if (!job) return NULL;
    job->slot = fetch->slot;
    job->part = fetch->next_part++;
    job->position = fetch->plan.first + job->part;
    if (fetch->next_part == fetch->plan.draws) fetch->slot = NULL;
    locate(loader, job->position, &job->task, &job->index);
    plan_job(loader, job);
    return job;
}

/* A window that is handed out where it lies takes nobody's time but this thread's. */
static void hand_out(ups_loader *loader, ups_job *job) {
    ups_job_serve(loader, job, job->kept, true);
    ups_loader_finish(loader, job, 0.0);
}

static void pass_on(ups_loader *loader, ups_job *job) {
    if (job->status != UPS_OK) ups_job_failed(loader, job);
    uint64_t bytes = 0;
    for (int64_t i = 0; i < job->run_count; i++) bytes += job->runs[i].extent.length;
    pthread_mutex_lock(&loader->lock);
    loader->statistics.bytes_read += bytes;
    job->next = NULL;
    if (loader->fetched)
        loader->fetched_last->next = job;
    else
        loader->fetched = job;
    loader->fetched_last = job;
    pthread_cond_signal(&loader->fetched_some);
    pthread_mutex_unlock(&loader->lock);
}

/* Queues the job's reads. False when the engine's queue is full before the last of them. */
static bool queue_reads(fetch_state *fetch, ups_job *job) {
    ups_loader *loader = fetch->loader;
    uint8_t *memory = job->frames_to == UPS_FRAMES_IN_PLACE ? ups_job_memory(loader, job) : job->buffer;
    for (; job->submitted < job->run_count; job->submitted++) {
        ups_run *run = &job->runs[job->submitted];
        uint64_t tag = (uint64_t)job->number << 32 | (uint64_t)job->submitted;
        if (!ups_io_submit(loader->io, run->extent, memory + job->buffer_used, tag)) return false;
        job->buffer_used += ups_io_room(run->extent.length);
        fetch->queued_bytes += run->extent.length;
        fetch->queued_reads++;
    }
    return true;
}

/* Does the I/O thread's part of the job. False when the rest of it has to wait. */
static bool submit(fetch_state *fetch, ups_job *job) {
    switch (job->bytes_from) {
    case UPS_BYTES_RING:
        return queue_reads(fetch, job);
    case UPS_BYTES_STORE:
        if (job->frames_to != UPS_FRAMES_IN_PLACE || !fetch->loader->options.in_place) break;
        hand_out(fetch->loader, job);
        return true;
    case UPS_BYTES_PAGE_CACHE:
    case UPS_BYTES_SOURCE:
        break;
    }
    pass_on(fetch->loader, job);
    return true;
}

static ups_status reap(fetch_state *fetch, bool wait, ups_error *error) {
    ups_loader *loader = fetch->loader;
    ups_io_completion completions[32];
    int count = 0;
    fetch->queued_bytes = 0;
    fetch->queued_reads = 0;
    UPS_TRY(ups_io_reap(loader->io, wait, completions, 32, &count, error));
    for (int i = 0; i < count; i++) {
        ups_job *job = &loader->jobs[completions[i].tag >> 32];
        job->runs[completions[i].tag & UINT32_MAX].bytes = completions[i].bytes;
        if (completions[i].status != UPS_OK && job->status == UPS_OK)
            job->status = ups_io_completion_error(loader->io, &completions[i], &job->error);
        if (++job->read == job->run_count) pass_on(loader, job);
    }
    return UPS_OK;
}

static bool closing(ups_loader *loader) {
    pthread_mutex_lock(&loader->lock);
    bool is = loader->closing;
    pthread_mutex_unlock(&loader->lock);
    return is;
}

/* The engine itself failed: nothing in flight will arrive, so everything ends here. */
static void give_up(ups_loader *loader, ups_status status, const ups_error *error) {
    pthread_mutex_lock(&loader->lock);
    loader->broken = status;
    loader->broken_error = *error;
    pthread_mutex_unlock(&loader->lock);
    ups_ring_close(loader->ring);
}

void *ups_loader_fetch(void *context) {
    ups_loader *loader = context;
    fetch_state fetch = {.loader = loader, .next_batch = loader->options.first_batch};
    while (!closing(loader)) {
        bool idle = ups_io_in_flight(loader->io) == 0;
        if (!fetch.job) fetch.job = begin_job(&fetch, idle);
        if (!fetch.job && idle) {
            if (fetch.ended) break;
            continue;
        }
        bool nothing_to_start = !fetch.job;
        if (fetch.job && submit(&fetch, fetch.job)) fetch.job = NULL;
        bool wait = nothing_to_start || fetch.job;
        if (!wait && fetch.queued_bytes < FLUSH_BYTES && fetch.queued_reads < FLUSH_READS) continue;
        ups_error error = {0};
        ups_status status = reap(&fetch, wait, &error);
        if (status == UPS_OK) continue;
        give_up(loader, status, &error);
        break;
    }
    ups_io_drain(loader->io); /* by the thread that submitted */
    pthread_mutex_lock(&loader->lock);
    loader->statistics.processor_io = ups_thread_seconds();
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}
