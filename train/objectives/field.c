#include "train/objectives/field.h"

#include "base/nearest.h"
#include "model/parameters/safetensors.h"
#include "train/state.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ups_field_maps {
    int count;
    float **decode, **encode; /* by task */
};

static ups_status read_map(const ups_run_config *config, const ups_safetensors *file, const char *path,
                           const ups_task *task, bool encoder, float **map, ups_error *error) {
    char name[128];
    snprintf(name, sizeof name, "%s.%s.patch.weight", encoder ? "encoder" : "decoder", task->name);
    const ups_safetensor *tensor = ups_safetensors_find(file, name);
    const int64_t numbers = ups_task_patch_numbers(task), dim = ups_task_latents(config, task).dim;
    const int64_t rows = encoder ? dim : numbers, columns = encoder ? numbers : dim;
    if (!tensor) return ups_fail(error, UPS_ERR_FORMAT, "%s: tensor '%s' is missing", path, name);
    if (tensor->dtype != UPS_F32 || !tensor->known_dtype || tensor->rank != 2 || tensor->size[0] != rows ||
        tensor->size[1] != columns) {
        return ups_fail(error, UPS_ERR_FORMAT, "%s: tensor '%s' is no float32 matrix of %lld by %lld", path, name,
                        (long long)rows, (long long)columns);
    }
    *map = malloc((size_t)tensor->bytes);
    if (!*map) return ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", path);
    return ups_safetensors_read(file, tensor, *map, error);
}

ups_status ups_field_maps_load(const ups_run_config *config, const ups_tasks *tasks, ups_field_maps **maps,
                               ups_error *error) {
    char *path = ups_run_model_path(config, UPS_STAGE_AUTOENCODER);
    ups_field_maps *made = calloc(1, sizeof *made);
    ups_safetensors *file = NULL;
    if (made) made->decode = calloc((size_t)tasks->count, sizeof *made->decode);
    if (made) made->encode = calloc((size_t)tasks->count, sizeof *made->encode);
    ups_status status = path && made && made->decode && made->encode ? ups_safetensors_open(path, &file, error)
                                                                     : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (made && made->decode && made->encode) made->count = tasks->count;
    for (int t = 0; t < tasks->count && status == UPS_OK; t++) {
        status = read_map(config, file, path, &tasks->task[t], false, &made->decode[t], error);
        if (status == UPS_OK) status = read_map(config, file, path, &tasks->task[t], true, &made->encode[t], error);
    }
    ups_safetensors_close(file);
    free(path);
    if (status == UPS_OK)
        *maps = made;
    else
        ups_field_maps_free(made);
    return status;
}

void ups_field_maps_free(ups_field_maps *maps) {
    if (!maps) return;
    for (int t = 0; t < maps->count; t++) {
        free(maps->decode[t]);
        free(maps->encode[t]);
    }
    free(maps->decode);
    free(maps->encode);
    free(maps);
}

ups_field ups_field_of(const ups_run_config *config, const ups_tasks *tasks, int index, const ups_field_maps *maps,
                       ups_arena *arena) {
    const ups_task *task = &tasks->task[index];
    const ups_latent_shape latents = ups_task_latents(config, task);
    ups_field field = {.task = task,
                       .dim = latents.dim,
                       .tokens = latents.tokens,
                       .numbers = ups_task_patch_numbers(task),
                       .points = 1,
                       .channels = task->geometry.channels};
    for (int a = 0; a < task->geometry.dims; a++) {
        field.points *= task->geometry.grid[a];
        field.cells[a] = (task->geometry.grid[a] + task->patch[a] - 1) / task->patch[a];
    }
    field.decode = maps ? maps->decode[index] : UPS_ARENA_ARRAY(arena, float, field.numbers *field.dim);
    field.encode = maps ? maps->encode[index] : UPS_ARENA_ARRAY(arena, float, field.dim *field.numbers);
    field.statistics = task->statistics ? task->statistics : UPS_ARENA_ARRAY(arena, float, 2 * field.channels);
    return field;
}

bool ups_field_fits(const ups_field *field) {
    bool fits = true;
    for (int a = 0; a < field->task->geometry.dims; a++)
        fits = fits && field->cells[a] * field->task->patch[a] == field->task->geometry.grid[a];
    return fits;
}

void ups_field_point(const ups_task *task, int64_t number, int64_t at[UPS_MAX_GRID_DIMS]) {
    for (int a = task->geometry.dims - 1; a >= 0; a--) {
        at[a] = number % task->geometry.grid[a];
        number /= task->geometry.grid[a];
    }
}

bool ups_field_on_border(const ups_task *task, int64_t number) {
    int64_t at[UPS_MAX_GRID_DIMS];
    bool border = false;
    ups_field_point(task, number, at);
    for (int a = 0; a < task->geometry.dims; a++) border = border || at[a] == 0 || at[a] == task->geometry.grid[a] - 1;
    return border;
}

double ups_field_spacing(const ups_task *task, int axis) {
    const ups_sample *geometry = &task->geometry;
    const int64_t points = geometry->grid[axis];
    const double *x = geometry->coordinates[axis];
    double length = x && points > 1 ? fabs(x[points - 1] - x[0]) / (double)(points - 1) : 0;
    return length > 0 && isfinite(length) ? length : 1.0 / (double)points;
}

int64_t ups_field_number(const ups_field *field, const int64_t *at, int64_t channel) {
    int64_t cell = 0, inside = 0;
    for (int a = 0; a < field->task->geometry.dims; a++) {
        cell = cell * field->cells[a] + at[a] / field->task->patch[a];
        inside = inside * field->task->patch[a] + at[a] % field->task->patch[a];
    }
    return cell * field->numbers + inside * field->channels + channel;
}

float ups_field_offset(const ups_field *field, int64_t channel) {
    return field->statistics[2 * channel] * field->statistics[2 * channel + 1];
}

ups_value ups_field_constant(ups_graph *graph, const char *name, ups_dtype dtype, ups_shape shape, const void *bytes) {
    ups_value known = ups_graph_find(graph, name);
    return known != UPS_NO_VALUE ? known : ups_graph_constant(graph, name, dtype, shape, bytes);
}

ups_value ups_field_decode(ups_graph *graph, const ups_field *field, ups_value latents) {
    ups_value map =
        ups_field_constant(graph, "field_decode", UPS_F32, UPS_SHAPE(field->numbers, field->dim), field->decode);
    return ups_linear(graph, latents, map, UPS_NO_VALUE, true);
}

ups_value ups_field_encode(ups_graph *graph, const ups_field *field, ups_value patches) {
    ups_value map =
        ups_field_constant(graph, "field_encode", UPS_F32, UPS_SHAPE(field->dim, field->numbers), field->encode);
    return ups_linear(graph, patches, map, UPS_NO_VALUE, true);
}

ups_value ups_field_gather(ups_graph *graph, ups_value x, ups_value places) {
    ups_shape shape = ups_graph_info(graph, x)->shape;
    ups_value flat = ups_graph_reshape(graph, x, UPS_SHAPE(shape.size[0], ups_shape_elements(shape) / shape.size[0]));
    ups_value numbers = ups_gather_points(graph, flat, places, UPS_NO_VALUE, 1, false);
    return ups_graph_reshape(graph, numbers,
                             UPS_SHAPE(shape.size[0], ups_shape_elements(ups_graph_info(graph, places)->shape)));
}

int64_t ups_field_channel(const ups_task *task, const char *name) {
    for (int64_t c = 0; c < task->source->channels; c++) {
        if (strcmp(task->source->channel_names[c], name) == 0) return c;
    }
    return -1;
}

ups_status ups_field_check_names(const ups_field_names *names, const char *key, const ups_tasks *tasks,
                                 ups_error *error) {
    for (unsigned n = 0; n < names->count; n++) {
        ups_nearest nearest = {.word = names->names[n]};
        bool found = false;
        for (int t = 0; t < tasks->count; t++) {
            const ups_source *source = tasks->task[t].source;
            found = found || ups_field_channel(&tasks->task[t], names->names[n]) >= 0;
            for (int64_t c = 0; c < source->channels; c++) ups_nearest_try(&nearest, source->channel_names[c]);
        }
        if (found) continue;
        if (nearest.name) {
            return ups_fail(error, UPS_ERR_CONFIG, "%s: no task has a field '%s'; did you mean '%s'?", key,
                            names->names[n], nearest.name);
        }
        return ups_fail(error, UPS_ERR_CONFIG,
                        "%s: no task has a field '%s'; `ups data inspect FILE` lists a file's fields", key,
                        names->names[n]);
    }
    return UPS_OK;
}
