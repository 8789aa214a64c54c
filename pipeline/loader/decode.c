/* The decode threads: bytes that were read become windows of frames in a batch slot.
 *
 * Where types and windows allow, a source decodes straight into the slot; else into the thread's own staging memory,
 * from where the windows are converted and gathered. Everything that is handed out is checked for NaN and Inf. */
#include "pipeline/loader/state.h"

#include "base/random.h"
#include "base/system/numa.h"
#include "base/system/threads.h"
#include "pipeline/convert.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Replacements tried for one draw before its data is called hopeless. */
#define MAX_REPLACEMENTS 32

/* Waits for a job; NULL when closing. Counts the wait as waiting for the disk, less what it was waiting for the
 * consumer. */
static ups_job *take_fetched(ups_loader *loader) {
    pthread_mutex_lock(&loader->lock);
    if (!loader->fetched && !loader->closing) {
        double since = ups_now(), full = ups_ring_seconds_full(loader->ring);
        while (!loader->fetched && !loader->closing) pthread_cond_wait(&loader->fetched_some, &loader->lock);
        double waited = ups_now() - since - (ups_ring_seconds_full(loader->ring) - full);
        if (waited > 0.0) loader->statistics.seconds_disk += waited;
    }
    ups_job *job = loader->closing ? NULL : loader->fetched;
    if (job) loader->fetched = job->next;
    pthread_mutex_unlock(&loader->lock);
    return job;
}

/* Puts the job's windows into their places; `decoded` holds job->frames. False when a NaN or Inf is among them. */
static bool place_windows(const ups_loader *loader, const ups_job *job, const uint8_t *decoded) {
    const ups_loader_options *options = &loader->options;
    const ups_loader_task_state *task = &loader->tasks[job->task];
    const ups_window *window = ups_job_windows(loader, job);
    size_t elements = (size_t)task->frame_elements;
    size_t in_bytes = elements * ups_dtype_size(task->dtype), out_bytes = elements * ups_dtype_size(options->dtype);
    bool together = task->stride == 1; /* a window's frames are neighbours */
    int64_t pieces = together ? 1 : task->frames;
    size_t piece = together ? (size_t)task->frames : 1;
    uint8_t *out = ups_job_memory(loader, job);
    bool finite = true;
    for (int64_t w = 0; w < options->windows_per_draw; w++)
        for (int64_t i = 0; i < pieces; i++) {
            const uint8_t *in = decoded + (size_t)(window[w].start - job->frames.start + i * task->stride) * in_bytes;
            finite &= ups_convert(in, task->dtype, out, options->dtype, piece * elements);
            out += piece * out_bytes;
        }
    return finite;
}

/* The file that the job's sample lies in: that of its first extent. Without extents only a source of one file tells. */
static const char *where_from(const ups_source *source, const ups_job *job) {
    if (job->extent_count > 0) return source->files[job->extents[0].file];
    return source->file_count == 1 ? source->files[0] : source->class->kind;
}

/* What is wrong with the windows in the slot, as a sentence: "task x, sample 0007 (file.h5): 3 NaN values, first at
 * frame 12". Freed by the caller; NULL when out of memory. */
static char *describe_bad(const ups_loader *loader, const ups_job *job) {
    const ups_loader_task_state *task = &loader->tasks[job->task];
    const ups_window *window = ups_job_windows(loader, job);
    size_t elements = (size_t)task->frame_elements, bytes = elements * ups_dtype_size(loader->options.dtype);
    const uint8_t *at = ups_job_memory(loader, job);
    size_t nan = 0, infinite = 0;
    int64_t first = INT64_MAX;
    for (int64_t w = 0; w < loader->options.windows_per_draw; w++)
        for (int64_t i = 0; i < task->frames; i++, at += bytes) {
            size_t before = nan + infinite;
            ups_count_non_finite(at, loader->options.dtype, elements, &nan, &infinite);
            int64_t frame = window[w].start + i * task->stride;
            if (nan + infinite > before && frame < first) first = frame;
        }
    const char *what = infinite == 0 ? "NaN" : nan == 0 ? "infinite" : "NaN or infinite";
    const char *meaning = task->task.source->class->not_finite;
    char *line = NULL;
    if (asprintf(&line, "task %s, sample %s (%s): %zu %s value%s, first at frame %lld%s%s", task->task.name,
                 job->sample.name, where_from(task->task.source, job), nan + infinite, what,
                 nan + infinite == 1 ? "" : "s", (long long)first, meaning ? ": " : "", meaning ? meaning : "") < 0)
        return NULL;
    return line;
}

static void record_bad(ups_loader *loader, const ups_job *job, int64_t attempt, char *line) {
    ups_bad_record *record = malloc(sizeof *record);
    if (!record || !line) { /* without memory for a line the sample is skipped all the same */
        free(record);
        free(line);
        return;
    }
    *record = (ups_bad_record){.batch = loader->batches[job->slot->number].index,
                               .part = job->part,
                               .attempt = attempt,
                               .task = job->task,
                               .index = job->index,
                               .line = line};
    pthread_mutex_lock(&loader->lock);
    record->next = loader->bad;
    loader->bad = record;
    pthread_mutex_unlock(&loader->lock);
}

/* Puts another sample of the same task in the job's place, chosen by (seed, position, attempt) alone, and reads it on
 * this thread. */
static ups_status read_replacement(ups_decoder *decoder, ups_job *job, int64_t attempt, uint8_t *target) {
    ups_loader *loader = decoder->loader;
    const ups_loader_task_state *task = &loader->tasks[job->task];
    ups_random stream = ups_random_stream(loader->options.seed, UPS_RANDOM_SAMPLER,
                                          (uint32_t)(UPS_SAMPLER_MAX_TASKS + job->task)); /* apart from the orders' */
    uint64_t sample = ups_random_below(stream, (uint64_t)job->position * MAX_REPLACEMENTS + (uint64_t)attempt,
                                       (uint64_t)task->task.sample_count);
    job->index = task->task.samples ? task->task.samples[sample] : (int64_t)sample;
    UPS_TRY(ups_source_describe(task->task.source, job->index, &job->sample, &job->error));
    ups_window *window = ups_job_windows(loader, job);
    for (int64_t w = 0; w < loader->options.windows_per_draw; w++) {
        window[w].sample = job->index;
        window[w].parameters = job->sample.parameters;
        window[w].dt = ups_window_dt(task, &job->sample, window[w].start);
        window[w].time = job->sample.time + window[w].start;
    }
    /* Read below, without the job; listed here for the name of the file. */
    UPS_TRY(task->task.source->class->extents(task->task.source, job->index, job->frames, job->extents,
                                              &job->extent_count, &job->error));
    return ups_source_read(task->task.source, job->index, job->frames, target, &job->error);
}

/* The job's windows are not finite: the run stops, or another sample takes their place. */
static ups_status handle_bad(ups_decoder *decoder, ups_job *job) {
    ups_loader *loader = decoder->loader;
    const ups_loader_task_state *task = &loader->tasks[job->task];
    bool direct = task->one_window && task->dtype == loader->options.dtype;
    uint8_t *target = direct ? ups_job_memory(loader, job) : decoder->staging;
    for (int64_t attempt = 0; attempt < MAX_REPLACEMENTS; attempt++) {
        char *line = describe_bad(loader, job);
        if (loader->options.on_bad_sample == UPS_BAD_SAMPLE_STOP) {
            ups_status status = ups_fail(&job->error, UPS_ERR_NUMERIC, "%s; `on_bad_sample: skip` goes on without it",
                                         line ? line : "a sample is not finite");
            free(line);
            return status;
        }
        record_bad(loader, job, attempt, line);
        if (loader->options.sequential) { /* every sample once: nothing takes its place */
            ups_window *window = ups_job_windows(loader, job);
            for (int64_t w = 0; w < loader->options.windows_per_draw; w++) window[w].sample = UPS_NO_SAMPLE;
            return UPS_OK;
        }
        if (read_replacement(decoder, job, attempt, target) != UPS_OK) return ups_job_failed(loader, job);
        if (place_windows(loader, job, target)) return UPS_OK;
    }
    return ups_fail(&job->error, UPS_ERR_NUMERIC,
                    "task %s: %d samples drawn in a row hold NaN or infinite values: its data needs repair first",
                    task->task.name, MAX_REPLACEMENTS);
}

/* Decodes the job's frames into `to`, as the type that is handed out, the shortest way there is. */
static ups_status decode_as_wanted(ups_decoder *decoder, ups_job *job, uint8_t *to, bool *finite) {
    const ups_loader *loader = decoder->loader;
    const ups_loader_task_state *task = &loader->tasks[job->task];
    const ups_source *source = task->task.source;
    if (source->class->decode_f32 && loader->options.dtype == UPS_F32) {
        return source->class->decode_f32(source, job->index, job->frames, job->pieces, job->extent_count,
                                         decoder->scratch, (float *)(void *)to, finite, &job->error);
    }
    uint8_t *target = task->dtype == loader->options.dtype ? to : decoder->staging;
    UPS_TRY(source->class->decode(source, job->index, job->frames, job->pieces, job->extent_count, decoder->scratch,
                                  target, &job->error));
    *finite =
        ups_convert(target, task->dtype, to, loader->options.dtype, (size_t)(job->frames.count * task->frame_elements));
    return UPS_OK;
}

/* Copies what the page cache holds into the job's buffer. */
static ups_status copy_runs(ups_loader *loader, ups_job *job) {
    uint8_t *to = job->buffer;
    for (int64_t r = 0; r < job->run_count; r++) {
        ups_run *run = &job->runs[r];
        ups_io_completion read = ups_io_read_now(loader->io, run->extent, to);
        UPS_TRY(ups_io_completion_error(loader->io, &read, &job->error));
        run->bytes = read.bytes;
        to += ups_io_room(run->extent.length);
    }
    return UPS_OK;
}

/* Copies frames from the page cache to the slot, a piece at a time, so that the check finds them in a near cache. */
static ups_status copy_frames(ups_loader *loader, ups_job *job, bool *finite) {
    enum { PIECE = 256 << 10 };
    const ups_extent whole = job->runs[0].extent;
    const size_t element = ups_dtype_size(loader->options.dtype);
    uint8_t *to = ups_job_memory(loader, job);
    *finite = true;
    for (uint64_t at = 0; at < whole.length; at += PIECE) {
        uint64_t length = whole.length - at < PIECE ? whole.length - at : PIECE;
        ups_extent piece = {whole.file, whole.offset + at, length};
        ups_io_completion read = ups_io_read_now(loader->io, piece, to + at);
        UPS_TRY(ups_io_completion_error(loader->io, &read, &job->error));
        *finite &= ups_convert(to + at, loader->options.dtype, to + at, loader->options.dtype, length / element);
    }
    return UPS_OK;
}

/* Where a job's bytes are already frames of the batch. */
static ups_status take_frames(ups_loader *loader, ups_job *job, bool *finite) {
    if (job->bytes_from == UPS_BYTES_PAGE_CACHE) return copy_frames(loader, job, finite);
    *finite = true;
    if (job->bytes_from == UPS_BYTES_STORE)
        ups_job_serve(loader, job, job->kept, loader->options.in_place);
    else
        *finite = place_windows(loader, job, ups_job_memory(loader, job));
    return UPS_OK;
}

/* Decodes the whole trajectory into its place in the store, and serves the windows from there. One that is not finite
 * is not kept: its windows may be sound all the same. */
static ups_status fill_store(ups_decoder *decoder, ups_job *job, bool *finite) {
    ups_loader *loader = decoder->loader;
    const ups_loader_task_state *task = &loader->tasks[job->task];
    UPS_TRY(decode_as_wanted(decoder, job, job->place, finite));
    ups_job_serve(loader, job, job->place, loader->options.in_place && *finite);
    ups_job_settle(loader, job, *finite ? UPS_CLAIM_FILLED : UPS_CLAIM_REFUSED);
    if (*finite) return UPS_OK;
    size_t served = (size_t)(loader->options.windows_per_draw * task->frames * task->frame_elements);
    uint8_t *windows = ups_job_memory(loader, job);
    *finite = ups_convert(windows, loader->options.dtype, windows, loader->options.dtype, served);
    job->frames = ups_job_span(loader, job); /* what a replacement is read for */
    return UPS_OK;
}

static ups_status decode_and_gather(ups_decoder *decoder, ups_job *job, bool *finite) {
    const ups_source *source = decoder->loader->tasks[job->task].task.source;
    UPS_TRY(source->class->decode(source, job->index, job->frames, job->pieces, job->extent_count, decoder->scratch,
                                  decoder->staging, &job->error));
    *finite = place_windows(decoder->loader, job, decoder->staging);
    return UPS_OK;
}

/* Everything that the job's frames are decoded from, in memory. */
static ups_status bring_bytes(ups_loader *loader, ups_job *job) {
    if (job->bytes_from == UPS_BYTES_PAGE_CACHE) UPS_TRY(copy_runs(loader, job));
    ups_job_keep_stored(loader, job);
    return ups_job_find_pieces(job);
}

static ups_status make_frames(ups_decoder *decoder, ups_job *job, bool *finite) {
    ups_loader *loader = decoder->loader;
    if (job->frames_to != UPS_FRAMES_IN_PLACE) UPS_TRY(bring_bytes(loader, job));
    switch (job->frames_to) {
    case UPS_FRAMES_SLOT:
        return decode_as_wanted(decoder, job, ups_job_memory(loader, job), finite);
    case UPS_FRAMES_STAGING:
        return decode_and_gather(decoder, job, finite);
    case UPS_FRAMES_STORE:
        return fill_store(decoder, job, finite);
    case UPS_FRAMES_IN_PLACE:
        break;
    }
    return take_frames(loader, job, finite);
}

static ups_status serve(ups_decoder *decoder, ups_job *job) {
    bool finite;
    if (make_frames(decoder, job, &finite) != UPS_OK) return ups_job_failed(decoder->loader, job);
    return finite ? UPS_OK : handle_bad(decoder, job);
}

static bool starts_threads(const ups_loader *loader) {
    bool any = false;
    for (int32_t k = 0; k < loader->task_count; k++) any |= loader->tasks[k].task.source->limits.threaded;
    return any;
}

void *ups_loader_decode(void *context) {
    ups_decoder *decoder = context;
    ups_job *job;
    if (!starts_threads(decoder->loader))
        ups_numa_spread((int)(decoder - decoder->loader->decoders), decoder->loader->options.decode_threads);
    while ((job = take_fetched(decoder->loader))) {
        double since = ups_now();
        if (job->status == UPS_OK) job->status = serve(decoder, job);
        ups_loader_finish(decoder->loader, job, ups_now() - since);
    }
    return NULL;
}
