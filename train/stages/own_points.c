/* A token z decodes to values D z of its P points, normalised: (v − mean) / deviation. A coordinate c is one of the
 * fields, so that the middle of the points is the mean of P rows of D, and what lies between a point and the middle is
 * its row less that mean, whatever lies in the other fields. */
#include "train/stages/own_points.h"

#include "base/half.h"
#include "pipeline/convert.h"
#include "train/objectives/field.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 16 }; /* that the deviation of offsets is measured on */

/* The channel that is a coordinate of the points. */
static ups_status find_channel(const ups_task *task, int axis, int64_t *channel, ups_error *error) {
    const char *name = task->geometry.points->names[axis];
    for (*channel = 0; *channel < task->geometry.channels; ++*channel)
        if (strcmp(task->source->channel_names[*channel], name) == 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT, "each sample has points of its own, and none of its fields is '%s'", name);
}

/* Rows of the map, offsets not yet scaled. Coordinates that were drawn evenly from an interval lie within √3 deviations
 * from its middle. */
static ups_status fill(const ups_task *task, const ups_field *field, float *weight, float *bias, ups_error *error) {
    const int dims = task->geometry.points->dims;
    const int64_t patch = task->patch[0], dim = field->dim;
    int64_t channels[UPS_MAX_POINT_DIMS];
    double widest = 0;
    for (int axis = 0; axis < dims; axis++) {
        UPS_TRY(find_channel(task, axis, &channels[axis], error));
        widest = fmax(widest, 1 / (double)field->statistics[2 * channels[axis] + 1]);
    }
    for (int axis = 0; axis < dims; axis++) {
        const double unit = 1 / (double)field->statistics[2 * channels[axis] + 1] / (2 * sqrt(3) * widest);
        for (int64_t k = 0; k < dim; k++) {
            double mean = 0;
            for (int64_t p = 0; p < patch; p++)
                mean += (double)field->decode[(p * field->channels + channels[axis]) * dim + k] / (double)patch;
            weight[axis * dim + k] = (float)(unit * mean);
            for (int64_t p = 0; p < patch; p++)
                weight[(dims + p * dims + axis) * dim + k] =
                    (float)(unit * ((double)field->decode[(p * field->channels + channels[axis]) * dim + k] - mean));
        }
        bias[axis] = 0.5f;
    }
    for (int64_t i = dims; i < dims + patch * dims; i++) bias[i] = 0;
    return UPS_OK;
}

/* Root mean square of rows·z over tokens of first frames. */
static ups_status measure(const ups_source *latents, const ups_latent_shape *shape, const float *rows, int64_t count,
                          double *deviation, ups_error *error) {
    const int64_t each = shape->tokens * shape->dim, samples = latents->count < SAMPLES ? latents->count : SAMPLES;
    ups_f16 *stored = malloc((size_t)each * sizeof *stored);
    float *z = malloc((size_t)each * sizeof *z);
    ups_status status = stored && z ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    double squares = 0;
    int64_t counted = 0;
    for (int64_t i = 0; i < samples && status == UPS_OK; i++) {
        status = ups_source_read(latents, i * latents->count / samples, (ups_frames){0, 1}, stored, error);
        if (status != UPS_OK || !ups_convert(stored, UPS_F16, z, UPS_F32, (size_t)each)) continue; /* not a number */
        for (int64_t token = 0; token < shape->tokens; token++) {
            for (int64_t r = 0; r < count; r++) {
                double sum = 0;
                for (int64_t k = 0; k < shape->dim; k++)
                    sum += (double)rows[r * shape->dim + k] * (double)z[token * shape->dim + k];
                squares += sum * sum;
            }
        }
        counted += shape->tokens * count;
    }
    free(stored);
    free(z);
    *deviation = counted > 0 ? sqrt(squares / (double)counted) : 0;
    return status;
}

ups_status ups_own_points_find(const ups_run_config *config, const ups_tasks *tasks, int index,
                               const ups_source *latents, float *weight, float *bias, ups_error *error) {
    const ups_task *task = &tasks->task[index];
    const ups_latent_shape shape = ups_task_latents(config, task);
    const int dims = task->geometry.points->dims;
    const int64_t offsets = task->patch[0] * dims;
    ups_field_maps *maps = NULL;
    double deviation = 0;
    UPS_TRY(ups_field_maps_load(config, tasks, &maps, error));
    const ups_field field = ups_field_of(config, tasks, index, maps, NULL);
    ups_status status = fill(task, &field, weight, bias, error);
    ups_field_maps_free(maps);
    if (status == UPS_OK) status = measure(latents, &shape, weight + dims * shape.dim, offsets, &deviation, error);
    for (int64_t i = dims * shape.dim; i < (dims + offsets) * shape.dim && status == UPS_OK && deviation > 0; i++)
        weight[i] /= (float)deviation;
    return status == UPS_OK ? status : ups_fail_within(error, "task %s", task->name);
}
