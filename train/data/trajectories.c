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

void ups_frames_channels_last(const ups_task *task, const float *frames, int64_t count, float *out) {
    const int64_t elements = ups_sample_frame_elements(&task->geometry), channels = task->geometry.channels;
    const int64_t points = elements / channels;
    if (task->geometry.order == UPS_CHANNELS_LAST || channels == 1) {
        memcpy(out, frames, (size_t)(count * elements) * sizeof *out);
        return;
    }
    for (int64_t f = 0; f < count; f++, frames += elements, out += elements) {
        for (int64_t c = 0; c < channels; c++) {
            for (int64_t p = 0; p < points; p++) out[p * channels + c] = frames[c * points + p];
        }
    }
}

void ups_frames_from_channels_last(const ups_task *task, const float *frames, int64_t count, float *out) {
    const int64_t elements = ups_sample_frame_elements(&task->geometry), channels = task->geometry.channels;
    const int64_t points = elements / channels;
    if (task->geometry.order == UPS_CHANNELS_LAST || channels == 1) {
        memcpy(out, frames, (size_t)(count * elements) * sizeof *out);
        return;
    }
    for (int64_t f = 0; f < count; f++, frames += elements, out += elements) {
        for (int64_t c = 0; c < channels; c++) {
            for (int64_t p = 0; p < points; p++) out[c * points + p] = frames[p * channels + c];
        }
    }
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
