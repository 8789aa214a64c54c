/* The consumer's side of the loader: batches in order, the report of samples that were skipped, and where the time
 * went. */
#include "pipeline/loader/state.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Takes the record of this batch that comes first; NULL when there is none left. */
static ups_bad_record *take_bad(ups_loader *loader, int64_t batch) {
    ups_bad_record **first = NULL;
    pthread_mutex_lock(&loader->lock);
    for (ups_bad_record **at = &loader->bad; *at; at = &(*at)->next) {
        if ((*at)->batch != batch) continue;
        bool earlier = !first || (*at)->part < (*first)->part ||
                       ((*at)->part == (*first)->part && (*at)->attempt < (*first)->attempt);
        if (earlier) first = at;
    }
    ups_bad_record *record = first ? *first : NULL;
    if (record) *first = record->next;
    pthread_mutex_unlock(&loader->lock);
    return record;
}

/* Whether the sample is met for the first time; a task's table is made with its first bad sample. Without memory for
 * one, each of its bad windows is reported. */
static bool is_new(ups_loader_task_state *task, int64_t sample) {
    if (!task->reported) task->reported = calloc((size_t)task->task.source->count, sizeof *task->reported);
    if (!task->reported) return true;
    bool known = task->reported[sample];
    task->reported[sample] = true;
    return !known;
}

/* Makes room for one more line. Old arrays of lines stay in the arena, since a caller may hold them. */
static void grow_report(ups_loader *loader) {
    if (loader->bad_count < loader->bad_room) return;
    int64_t room = loader->bad_room ? 2 * loader->bad_room : 16;
    const char **lines = UPS_ARENA_ARRAY(loader->report, const char *, room);
    if (loader->bad_count) memcpy(lines, loader->bad_lines, (size_t)loader->bad_count * sizeof *lines);
    loader->bad_lines = lines;
    loader->bad_room = room;
}

/* Reports what was skipped for this batch, in the order in which it was drawn, whichever thread found it. */
static void report_bad(ups_loader *loader, int64_t batch) {
    ups_bad_record *record;
    while ((record = take_bad(loader, batch))) {
        if (is_new(&loader->tasks[record->task], record->index)) {
            grow_report(loader);
            loader->bad_lines[loader->bad_count++] = ups_arena_strdup(loader->report, record->line);
        }
        free(record->line);
        free(record);
    }
}

static ups_status end(ups_loader *loader, ups_status status, const ups_error *why, ups_error *error) {
    if (status != UPS_OK) {
        loader->ended = status;
        loader->ended_error = *why;
        if (error) *error = *why;
    }
    return status;
}

ups_status ups_loader_next(ups_loader *loader, const ups_batch **out, ups_error *error) {
    *out = NULL;
    if (loader->ended != UPS_OK) return end(loader, loader->ended, &loader->ended_error, error);
    ups_slot *slot = ups_ring_next(loader->ring);
    if (!slot) {
        pthread_mutex_lock(&loader->lock);
        ups_status broken = loader->broken;
        pthread_mutex_unlock(&loader->lock);
        return end(loader, broken, &loader->broken_error, error);
    }
    ups_batch *batch = &loader->batches[slot->number];
    report_bad(loader, slot->index);
    if (slot->status != UPS_OK) {
        ups_status status = end(loader, slot->status, &slot->error, error);
        ups_ring_release(loader->ring, slot);
        return status;
    }
    batch->data = loader->options.in_place ? NULL : slot->data;
    batch->dtype = loader->options.dtype;
    batch->window = &loader->windows[slot->number * loader->options.batch];
    pthread_mutex_lock(&loader->lock);
    loader->statistics.batches++;
    loader->statistics.windows += batch->windows;
    loader->statistics.bad_samples = loader->bad_count;
    pthread_mutex_unlock(&loader->lock);
    *out = batch;
    return UPS_OK;
}

bool ups_loader_wait(ups_loader *loader, double seconds) {
    return loader->ended != UPS_OK || ups_ring_wait(loader->ring, seconds);
}

void ups_loader_release(ups_loader *loader, const ups_batch *batch) {
    ups_ring_release(loader->ring, ups_ring_slot(loader->ring, (int)(batch - loader->batches)));
}

/* CPU seconds of a thread; 0 once it has ended. */
static double processor_seconds(pthread_t thread) {
    clockid_t clock;
    struct timespec used;
    if (pthread_getcpuclockid(thread, &clock) != 0 || clock_gettime(clock, &used) != 0) return 0.0;
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

void ups_loader_statistics_get(const ups_loader *loader, ups_loader_statistics *statistics) {
    ups_loader *counted = (ups_loader *)loader; /* its lock changes, nothing else */
    pthread_mutex_lock(&counted->lock);
    *statistics = counted->statistics;
    pthread_mutex_unlock(&counted->lock);
    statistics->seconds_consumer = ups_ring_seconds_waiting(counted->ring);
    statistics->seconds_full = ups_ring_seconds_full(counted->ring);
    double io = processor_seconds(counted->io_thread);
    if (io > statistics->processor_io) statistics->processor_io = io; /* else it has ended, and said so itself */
    for (int i = 0; i < counted->decoders_running; i++)
        statistics->processor_decode += processor_seconds(counted->decoders[i].thread);
}

int64_t ups_loader_bad_samples(const ups_loader *loader, const char *const **lines) {
    *lines = loader->bad_lines;
    return loader->bad_count;
}
