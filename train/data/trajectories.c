#include "train/data/trajectories.h"

#include "train/data/batches.h"
#include <string.h>

ups_status ups_trajectories_read(const ups_run_config *config, const ups_task *task, const int64_t *samples,
                                 int64_t count, ups_trajectory_visit visit, void *context, ups_error *error) {
    ups_loader_options options = ups_sequential_loader_options(config);
    ups_loader_task loader_task = {
        .name = task->name, .source = task->source, .samples = samples, .sample_count = count};
    ups_loader *loader = NULL;
    UPS_TRY(ups_loader_open(&options, &loader_task, 1, &loader, error));
    ups_status status = UPS_OK;
    while (status == UPS_OK) {
        const ups_batch *batch = NULL;
        status = ups_loader_next(loader, &batch, error);
        if (status != UPS_OK || !batch) break;
        if (batch->window[0].sample != UPS_NO_SAMPLE) { /* else a bad one */
            ups_sample sample;
            status = ups_source_describe(task->source, samples[batch->index], &sample, error);
            if (status == UPS_OK) status = visit(context, batch->index, &sample, batch->data, error);
        }
        ups_loader_release(loader, batch);
    }
    ups_loader_report_bad(loader, 0);
    ups_loader_close(loader);
    return status;
}

/* Frames (rows, columns) become (columns, rows), where the task's channels do not come last already. */
static void move_channels(const ups_task *task, const float *frames, int64_t count, bool to_last, float *out) {
    const int64_t elements = ups_sample_frame_elements(&task->geometry), channels = task->geometry.channels;
    const int64_t rows = to_last ? channels : elements / channels, columns = elements / rows;
    if (task->geometry.order == UPS_CHANNELS_LAST || channels == 1) {
        memcpy(out, frames, (size_t)(count * elements) * sizeof *out);
        return;
    }
    for (int64_t f = 0; f < count; f++, frames += elements, out += elements) {
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t c = 0; c < columns; c++) out[c * rows + r] = frames[r * columns + c];
        }
    }
}

void ups_frames_channels_last(const ups_task *task, const float *frames, int64_t count, float *out) {
    move_channels(task, frames, count, true, out);
}

void ups_frames_from_channels_last(const ups_task *task, const float *frames, int64_t count, float *out) {
    move_channels(task, frames, count, false, out);
}

int64_t ups_frames_points_first(const ups_sample *sample, int64_t count, int64_t channels, float *frames,
                                float *scratch) {
    const ups_points *points = sample->points;
    if (!points || points->distinct == points->count) return 0;
    const int64_t elements = points->count * channels;
    for (int64_t f = 0; f < count; f++, frames += elements) {
        memcpy(scratch, frames, (size_t)elements * sizeof *scratch);
        ups_points_unsort(points, channels, sizeof *frames, scratch, frames);
    }
    return points->distinct;
}

void ups_sample_domain(const ups_sample *sample, double low[UPS_MAX_GRID_DIMS], double high[UPS_MAX_GRID_DIMS]) {
    for (int a = 0; a < sample->dims; a++) {
        const double *x = sample->coordinates[a];
        int64_t n = sample->grid[a];
        low[a] = 0;
        high[a] = 1;
        if (!x || n < 2 || x[n - 1] == x[0]) continue;
        double half = 0.5 * (x[n - 1] - x[0]) / (double)(n - 1);
        low[a] = x[0] - half;
        high[a] = x[n - 1] + half;
    }
}

void ups_trajectory_changes(const float *frames, int64_t count, int64_t points, int64_t channels, bool *changes) {
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t f = 1; f < count && !changes[c]; f++) {
            const float *frame = frames + f * points * channels;
            for (int64_t p = c; p < points * channels; p += channels) {
                if (frame[p] != frames[p]) changes[c] = true;
            }
        }
    }
}
