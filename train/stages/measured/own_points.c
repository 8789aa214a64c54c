/* A token z decodes to values D z of its P points, normalised: (v − mean) · factor. A coordinate is one of the fields,
 * so that the middle of the points is the mean of P rows of D, and what lies between a point and the middle is its row
 * less that mean, whatever lies in the other fields. */
#include "train/stages/measured/own_points.h"

#include "base/half.h"
#include "pipeline/convert.h"
#include "train/objectives/field.h"

#include <math.h>
#include <stdlib.h>

enum { SAMPLES = 16 }; /* that deviations are measured on */

/* Rows of the map, in the coordinates' own unit. */
static ups_status fill(const ups_task *task, const ups_field *field, float *weight, ups_error *error) {
    const int dims = task->geometry.points->dims;
    const int64_t patch = task->patch[0], dim = field->dim;
    for (int axis = 0; axis < dims; axis++) {
        const char *name = task->geometry.points->names[axis];
        const int64_t channel = ups_field_channel(task, name);
        if (channel < 0)
            return ups_fail(error, UPS_ERR_FORMAT, "samples have points of their own, and no field is '%s'", name);
        const double factor = (double)field->statistics[2 * channel + 1];
        for (int64_t k = 0; k < dim; k++) {
            double mean = 0;
            for (int64_t p = 0; p < patch; p++)
                mean += (double)field->decode[(p * field->channels + channel) * dim + k] / (double)patch;
            weight[axis * dim + k] = (float)(mean / factor);
            for (int64_t p = 0; p < patch; p++) {
                const double row = (double)field->decode[(p * field->channels + channel) * dim + k];
                weight[(dims + p * dims + axis) * dim + k] = (float)((row - mean) / factor);
            }
        }
    }
    return UPS_OK;
}

/* Sums of squares, over tokens, of the first `dims` rows times z, each, and of all others together. */
static void add_squares(const float *weight, int64_t rows, int dims, int64_t dim, const float *z, double *squares) {
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;
        for (int64_t k = 0; k < dim; k++) sum += (double)weight[r * dim + k] * (double)z[k];
        squares[r < dims ? r : dims] += sum * sum;
    }
}

/* Of first frames: the deviation of places along the axis along which it is largest, and that of offsets. */
static ups_status measure(const ups_run_config *config, const ups_source *latents, const ups_latent_shape *shape,
                          const float *weight, int64_t rows, int dims, double deviation[2], ups_error *error) {
    const int64_t each = shape->tokens * shape->dim, samples = latents->count < SAMPLES ? latents->count : SAMPLES;
    const float bound = (float)config->model.bound;
    ups_f16 *stored = malloc((size_t)each * sizeof *stored);
    float *z = malloc((size_t)each * sizeof *z);
    ups_status status = stored && z ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    double squares[UPS_MAX_POINT_DIMS + 1] = {0};
    int64_t tokens = 0;
    for (int64_t i = 0; i < samples && status == UPS_OK; i++) {
        status = ups_source_read(latents, i * latents->count / samples, (ups_frames){0, 1}, stored, error);
        if (status != UPS_OK || !ups_convert(stored, UPS_F16, z, UPS_F32, (size_t)each)) continue; /* not a number */
        for (int64_t k = 0; k < each && bound > 0; k++) z[k] = bound * sinhf(z[k] / bound);
        for (int64_t t = 0; t < shape->tokens; t++)
            add_squares(weight, rows, dims, shape->dim, z + t * shape->dim, squares);
        tokens += shape->tokens;
    }
    free(stored);
    free(z);
    double widest = 0;
    for (int axis = 0; axis < dims; axis++) widest = fmax(widest, squares[axis]);
    deviation[0] = tokens > 0 ? sqrt(widest / (double)tokens) : 0;
    deviation[1] = tokens > 0 ? sqrt(squares[dims] / (double)(tokens * (rows - dims))) : 0;
    return status;
}

static void scale(float *weight, int64_t count, double deviation) {
    for (int64_t i = 0; i < count && deviation > 0; i++) weight[i] = (float)((double)weight[i] / deviation);
}

ups_status ups_own_points_find(const ups_run_config *config, const ups_tasks *tasks, int index,
                               const ups_source *latents, float *weight, float *bias, ups_error *error) {
    const ups_task *task = &tasks->task[index];
    const ups_latent_shape shape = ups_task_latents(config, task);
    const int dims = task->geometry.points->dims;
    const int64_t rows = dims + task->patch[0] * dims;
    ups_field_maps *maps = NULL;
    double deviation[2] = {0};
    UPS_TRY(ups_field_maps_load(config, tasks, &maps, error));
    const ups_field field = ups_field_of(config, tasks, index, maps, NULL);
    ups_status status = fill(task, &field, weight, error);
    ups_field_maps_free(maps);
    if (status == UPS_OK) status = measure(config, latents, &shape, weight, rows, dims, deviation, error);
    if (status != UPS_OK) return ups_fail_within(error, "task %s", task->name);
    /* What is drawn evenly from an interval of length 1 deviates by 1 / √12; middles of tokens by a little less. */
    scale(weight, dims * shape.dim, sqrt(12) * deviation[0]);
    scale(weight + dims * shape.dim, (rows - dims) * shape.dim, deviation[1]);
    for (int64_t r = 0; r < rows; r++) bias[r] = r < dims ? 0.5f : 0.0f;
    return UPS_OK;
}
