/* What the I/O thread and the decode threads do with a job: its windows, its way through a store, its end.
 *
 * What may surprise: the first draw of a sample that is to be kept reads (and with `ram` decodes) all of its
 * trajectory, whatever its windows need. Another job that draws the same sample meanwhile reads it from disk: waiting
 * for the first would hold up a batch. */
#include "pipeline/loader/state.h"

#include <string.h>

ups_frames ups_job_span(const ups_loader *loader, const ups_job *job) {
    const ups_loader_task_state *task = &loader->tasks[job->task];
    const ups_window *window = ups_job_windows(loader, job);
    int64_t first = INT64_MAX, last = 0;
    for (int64_t w = 0; w < loader->options.windows_per_draw; w++) {
        if (window[w].start < first) first = window[w].start;
        if (window[w].start > last) last = window[w].start;
    }
    return (ups_frames){first, last - first + (task->frames - 1) * task->stride + 1};
}

void ups_job_settle(ups_loader *loader, ups_job *job, ups_claim how) {
    if (!job->place) return;
    if (how == UPS_CLAIM_FILLED) job->kept = job->place;
    ups_store_settle(loader->tasks[job->task].task.store, job->index, how);
    job->place = NULL;
}

static void copy_window(const ups_window *window, size_t frame_bytes, size_t step_bytes, int64_t frames, uint8_t *out) {
    const uint8_t *from = window->frames;
    if (step_bytes == frame_bytes) {
        memcpy(out, from, frame_bytes * (size_t)frames);
        return;
    }
    for (int64_t i = 0; i < frames; i++)
        memcpy(out + (size_t)i * frame_bytes, from + (size_t)i * step_bytes, frame_bytes);
}

void ups_job_serve(const ups_loader *loader, ups_job *job, const uint8_t *trajectory, bool in_place) {
    const ups_loader_task_state *task = &loader->tasks[job->task];
    size_t element = ups_dtype_size(loader->options.dtype), frame = (size_t)task->frame_elements * element;
    uint8_t *out = ups_job_memory(loader, job);
    ups_window *window = ups_job_windows(loader, job);
    for (int64_t w = 0; w < loader->options.windows_per_draw; w++, out += frame * (size_t)task->frames) {
        window[w].frames = trajectory + (size_t)window[w].start * frame;
        window[w].frame_step = task->stride * task->frame_elements;
        if (in_place) continue;
        copy_window(&window[w], frame, frame * (size_t)task->stride, task->frames, out);
        window[w].frames = out;
        window[w].frame_step = task->frame_elements;
    }
}

void ups_job_keep_stored(ups_loader *loader, ups_job *job) {
    if (!job->place || job->frames_to == UPS_FRAMES_STORE) return;
    uint8_t *to = job->place;
    for (int64_t i = 0; i < job->whole_count; i++) {
        const ups_run *run = &job->runs[job->run_of[i]];
        memcpy(to, run->bytes + (job->whole[i].offset - run->extent.offset), job->whole[i].length);
        to += job->whole[i].length;
    }
    ups_job_settle(loader, job, UPS_CLAIM_FILLED);
}

static bool holds(const ups_extent *whole, const ups_extent *part) {
    return whole->file == part->file && part->offset >= whole->offset &&
           part->offset - whole->offset + part->length <= whole->length;
}

/* Extents of a range of frames come in the order of those of the whole trajectory, each within one of them: the search
 * goes on where the last one ended, and around once. */
static ups_status find_kept(ups_job *job) {
    int64_t at = 0;
    uint64_t before = 0; /* bytes of the extents ahead of `at` */
    for (int64_t i = 0; i < job->extent_count; i++) {
        int64_t tried = 0;
        for (; tried < job->whole_count && !holds(&job->whole[at], &job->extents[i]); tried++) {
            before += job->whole[at].length;
            if (++at < job->whole_count) continue;
            at = 0;
            before = 0;
        }
        if (tried == job->whole_count)
            return ups_fail(&job->error, UPS_ERR_ARGUMENT,
                            "bytes at offset %llu belong to no extent of the whole trajectory",
                            (unsigned long long)job->extents[i].offset);
        uint64_t offset = before + (job->extents[i].offset - job->whole[at].offset);
        job->pieces[i] = (ups_piece){job->kept + offset, job->extents[i].length};
    }
    return UPS_OK;
}

ups_status ups_job_find_pieces(ups_job *job) {
    if (job->kept) return find_kept(job);
    for (int64_t i = 0; i < job->extent_count; i++) {
        const ups_run *run = &job->runs[job->run_of[i]];
        job->pieces[i] =
            (ups_piece){run->bytes + (job->extents[i].offset - run->extent.offset), job->extents[i].length};
    }
    return UPS_OK;
}

void ups_loader_finish(ups_loader *loader, ups_job *job, double seconds) {
    if (job->status != UPS_OK) atomic_store(&loader->failed, true);
    ups_job_settle(loader, job, UPS_CLAIM_DROPPED); /* nothing, unless it failed */
    pthread_mutex_lock(&loader->lock);
    loader->statistics.seconds_decode += seconds;
    loader->statistics.trajectories++;
    loader->statistics.resident += job->bytes_from == UPS_BYTES_STORE;
    if (job->bytes_from != UPS_BYTES_STORE || job->frames_to != UPS_FRAMES_IN_PLACE)
        loader->statistics.bytes_decoded += (uint64_t)job->frames.count * ups_sample_frame_bytes(&job->sample);
    ups_ring_part_done(loader->ring, job->slot, job->part, job->status, &job->error);
    job->next = loader->idle;
    loader->idle = job;
    pthread_cond_signal(&loader->idle_some);
    pthread_mutex_unlock(&loader->lock);
}
