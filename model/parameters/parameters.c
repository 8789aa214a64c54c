/* Parameters: names and places of the weights in the flat buffers, their first values, and their way to and from files.
 *
 * They are placed set by set, each in the reverse of the order they were added in, which is the order of first use.
 * Each begins at a multiple of 64 elements, so kernels may assume alignment; the padding between stays zero, so that
 * norms over a whole buffer are norms over the parameters. */
#include "model/parameters/parameters.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/random.h"
#include "base/system/exhausted.h"
#include "model/device.h"
#include "model/parameters/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 }; /* elements */

struct ups_parameters {
    ups_arena *arena;
    ups_parameter *list;
    int32_t count, capacity, sets;
    int32_t *placed; /* indices, as they lie in the flat buffers; NULL until that is settled */
    int64_t elements;
    ups_device *device; /* NULL until allocated */
    ups_weights weights;
};

static _Noreturn void parameter_abort(const char *name, const char *complaint) {
    ups_log(UPS_LOG_ERROR, "parameter '%s' %s", name, complaint);
    abort();
}

static int64_t padded(int64_t elements) {
    return (elements + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

ups_parameters *ups_parameters_create(void) {
    ups_parameters *parameters = calloc(1, sizeof *parameters);
    if (!parameters) return NULL;
    parameters->sets = 1;
    parameters->arena = ups_arena_create(0);
    if (!parameters->arena) {
        free(parameters);
        return NULL;
    }
    return parameters;
}

void ups_parameters_destroy(ups_parameters *parameters) {
    if (!parameters) return;
    if (parameters->device) ups_weights_release(parameters->device, &parameters->weights);
    ups_arena_destroy(parameters->arena);
    free(parameters->list);
    free(parameters);
}

static bool same_shape(const ups_parameter *parameter, int rank, const int64_t *size) {
    return parameter->rank == rank && memcmp(parameter->size, size, sizeof *size * (size_t)rank) == 0;
}

int32_t ups_parameters_add(ups_parameters *parameters, const char *name, int rank, const int64_t *size, ups_init init) {
    int32_t found = ups_parameters_find(parameters, name);
    if (found >= 0) {
        if (!same_shape(&parameters->list[found], rank, size)) parameter_abort(name, "was built with two shapes");
        return found;
    }
    if (parameters->placed) parameter_abort(name, "was added after the parameters were placed");
    if (parameters->count == parameters->capacity) {
        parameters->capacity = parameters->capacity ? 2 * parameters->capacity : 64;
        parameters->list = realloc(parameters->list, sizeof *parameters->list * (size_t)parameters->capacity);
        if (!parameters->list) ups_out_of_memory("memory for parameters", 0);
    }
    ups_parameter *added = &parameters->list[parameters->count];
    *added = (ups_parameter){
        .name = ups_arena_strdup(parameters->arena, name), .rank = rank, .elements = 1, .offset = -1, .init = init};
    for (int i = 0; i < rank; i++) {
        added->size[i] = size[i];
        added->elements *= size[i];
    }
    parameters->elements += padded(added->elements);
    return parameters->count++;
}

void ups_parameters_divide(ups_parameters *parameters, const int32_t *set_of) {
    for (int32_t i = 0; i < parameters->count; i++) {
        parameters->list[i].set = set_of[i];
        if (set_of[i] >= parameters->sets) parameters->sets = set_of[i] + 1;
    }
}

int32_t ups_parameters_sets(const ups_parameters *parameters) {
    return parameters->sets;
}

int32_t ups_parameters_placed(const ups_parameters *parameters, int32_t i) {
    return parameters->placed[i];
}

int32_t ups_parameters_count(const ups_parameters *parameters) {
    return parameters->count;
}

const ups_parameter *ups_parameters_get(const ups_parameters *parameters, int32_t index) {
    return &parameters->list[index];
}

int32_t ups_parameters_find(const ups_parameters *parameters, const char *name) {
    for (int32_t i = 0; i < parameters->count; i++) {
        if (strcmp(parameters->list[i].name, name) == 0) return i;
    }
    return -1;
}

int64_t ups_parameters_elements(const ups_parameters *parameters) {
    return parameters->elements;
}

int64_t ups_parameter_extent(const ups_parameter *parameter) {
    return padded(parameter->elements);
}

int64_t ups_parameters_trainable(const ups_parameters *parameters) {
    int64_t sum = 0;
    for (int32_t i = 0; i < parameters->count; i++) {
        if (!parameters->list[i].init.fixed) sum += parameters->list[i].elements;
    }
    return sum;
}

float *ups_parameters_values(ups_parameters *parameters) {
    return parameters->weights.values;
}

float *ups_parameters_gradients(ups_parameters *parameters) {
    return parameters->weights.gradients;
}

const ups_weights *ups_parameters_weights(const ups_parameters *parameters) {
    return &parameters->weights;
}

bool ups_parameters_allocated(const ups_parameters *parameters) {
    return parameters->device != NULL;
}

ups_status ups_parameters_refresh(ups_parameters *parameters, ups_error *error) {
    return ups_weights_refresh(parameters->device, &parameters->weights, error);
}

static void initialise(const ups_parameter *parameter, uint64_t seed, float *out) {
    size_t count = (size_t)parameter->elements;
    ups_hash name = ups_hash_bytes(parameter->name, strlen(parameter->name));
    ups_random stream = ups_random_stream(seed, UPS_RANDOM_INIT, (uint32_t)name.low);
    switch (parameter->init.kind) {
    case UPS_INIT_ZEROS:
        break; /* `out` is */
    case UPS_INIT_ONES:
        for (size_t i = 0; i < count; i++) out[i] = 1;
        break;
    case UPS_INIT_NORMAL:
        ups_random_fill_normal(stream, parameter->init.scale, out, count);
        break;
    case UPS_INIT_UNIFORM:
        ups_random_fill_uniform(stream, -parameter->init.scale, parameter->init.scale, out, count);
        break;
    }
}

/* Sets are few. */
void ups_parameters_place(ups_parameters *parameters) {
    int64_t offset = 0;
    int32_t placed = 0;
    if (parameters->placed) return;
    parameters->placed = UPS_ARENA_ARRAY(parameters->arena, int32_t, parameters->count + 1);
    for (int32_t set = 0; set < parameters->sets; set++) {
        for (int32_t i = parameters->count - 1; i >= 0; i--) {
            if (parameters->list[i].set != set) continue;
            parameters->list[i].offset = offset;
            parameters->placed[placed++] = i;
            offset += padded(parameters->list[i].elements);
        }
    }
}

ups_status ups_parameters_allocate(ups_parameters *parameters, ups_device *device, bool gradients, ups_dtype compute,
                                   uint64_t seed, ups_error *error) {
    if (parameters->device) return ups_fail(error, UPS_ERR_ARGUMENT, "the parameters are allocated already");
    ups_parameters_place(parameters);
    parameters->device = device;
    const ups_device_class *class = device->class;
    size_t bytes = sizeof(float) * (size_t)parameters->elements;
    UPS_TRY(ups_weights_allocate(device, 0, parameters->elements, compute, gradients, &parameters->weights, error));

    float *host = calloc((size_t)parameters->elements, sizeof *host);
    if (!host)
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for the first values of %zu MB of parameters", bytes >> 20);
    for (int32_t i = 0; i < parameters->count; i++) {
        initialise(&parameters->list[i], seed, host + parameters->list[i].offset);
    }
    ups_status status = class->upload(device, parameters->weights.values, host, bytes, error);
    if (status == UPS_OK) status = class->synchronize(device, error); /* the host copy is freed below */
    free(host);
    if (status != UPS_OK) return status;
    return ups_parameters_refresh(parameters, error);
}

ups_status ups_parameters_set(ups_parameters *parameters, const char *name, const float *values, ups_error *error) {
    int32_t index = ups_parameters_find(parameters, name);
    if (index < 0 || !parameters->device)
        return ups_fail(error, UPS_ERR_ARGUMENT, "there is no parameter '%s', or no memory for it yet", name);
    const ups_parameter *of = &parameters->list[index];
    const ups_device_class *class = parameters->device->class;
    size_t bytes = (size_t)of->elements * sizeof *values;
    UPS_TRY(class->upload(parameters->device, parameters->weights.values + of->offset, values, bytes, error));
    return class->synchronize(parameters->device, error); /* the caller's memory is its own again */
}

ups_status ups_parameters_get_values(const ups_parameters *parameters, int32_t index, float *values, ups_error *error) {
    const ups_parameter *of = &parameters->list[index];
    const ups_device_class *class = parameters->device->class;
    const size_t bytes = (size_t)of->elements * sizeof *values;
    UPS_TRY(class->download(parameters->device, values, parameters->weights.values + of->offset, bytes, error));
    return class->synchronize(parameters->device, error);
}

static bool is_chosen(const ups_parameter *parameter, const char *only) {
    return !only || strncmp(parameter->name, only, strlen(only)) == 0;
}

static bool holds(const ups_parameters *parameters, const ups_parameter_buffer *buffer, int32_t index,
                  const char *only) {
    return is_chosen(&parameters->list[index], only) && (!buffer->has || buffer->has[index]);
}

bool ups_parameter_find_part(const ups_parameter_part *parts, int32_t count, int64_t at, int64_t end,
                             ups_parameter_part *found) {
    int32_t low = 0, high = count;
    *found = (ups_parameter_part){at, end - at, at};
    if (!parts) return at < end;
    while (low < high) { /* the first that ends after `at` */
        const int32_t middle = low + (high - low) / 2;
        if (parts[middle].offset + parts[middle].count > at)
            high = middle;
        else
            low = middle + 1;
    }
    if (low == count || parts[low].offset >= end) return false;
    const ups_parameter_part *part = &parts[low];
    const int64_t from = part->offset > at ? part->offset : at, to = part->offset + part->count;
    *found = (ups_parameter_part){from, (to < end ? to : end) - from, part->place + from - part->offset};
    return at < end;
}

/* What the buffer holds of a parameter, from its place in `host` (elements) to the device, or back. */
static ups_status move_tensor(ups_device *device, const ups_parameter_buffer *buffer, const ups_parameter *parameter,
                              float *host, bool to_device, ups_error *error) {
    const int64_t end = parameter->offset + parameter->elements;
    ups_parameter_part part;
    for (int64_t at = parameter->offset; ups_parameter_find_part(buffer->parts, buffer->part_count, at, end, &part);
         at = part.offset + part.count) {
        float *there = buffer->values + part.place, *here = host + (part.offset - parameter->offset);
        const size_t bytes = (size_t)part.count * sizeof *host;
        UPS_TRY(to_device ? device->class->upload(device, there, here, bytes, error)
                          : device->class->download(device, here, there, bytes, error));
    }
    return to_device ? device->class->synchronize(device, error) : UPS_OK; /* `host` is used again */
}

static int64_t largest(const ups_parameters *parameters) {
    int64_t elements = 0;
    for (int32_t i = 0; i < parameters->count; i++) {
        if (parameters->list[i].elements > elements) elements = parameters->list[i].elements;
    }
    return elements;
}

static const char *file_name(ups_arena *arena, const ups_parameter_buffer *buffer, const ups_parameter *parameter) {
    return ups_arena_printf(arena, "%s%s", buffer->prefix, parameter->name);
}

/* Its file up to the tensors' bytes. */
static ups_status begin_file(const ups_parameters *parameters, const char *only, const ups_parameter_buffer *buffers,
                             int buffer_count, const struct json_t *metadata, const char *path,
                             ups_safetensors_writer **made, ups_error *error) {
    ups_arena *names = ups_arena_create(0);
    ups_safetensors_writer *writer = *made = ups_safetensors_writer_create();
    const char *key;
    json_t *text;
    if (!names || !writer) {
        ups_arena_destroy(names);
        return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to write it", path);
    }
    json_object_foreach((json_t *)metadata, key, text) {
        ups_safetensors_writer_metadata(writer, key, json_string_value(text));
    }
    for (int b = 0; b < buffer_count; b++) {
        for (int32_t i = 0; i < parameters->count; i++) {
            const ups_parameter *parameter = &parameters->list[i];
            if (!holds(parameters, &buffers[b], i, only)) continue;
            ups_safetensors_writer_declare(writer, file_name(names, &buffers[b], parameter), UPS_F32, parameter->rank,
                                           parameter->size);
        }
    }
    ups_status status = ups_safetensors_writer_begin(writer, path, error);
    ups_arena_destroy(names);
    return status;
}

ups_status ups_parameters_save_buffers(const ups_parameters *parameters, const char *only,
                                       const ups_parameter_buffer *buffers, int buffer_count,
                                       const ups_parameter_gather *gather, const struct json_t *metadata,
                                       const char *path, ups_error *error) {
    ups_device *device = parameters->device;
    if (!device) return ups_fail(error, UPS_ERR_ARGUMENT, "%s: parameters that are not allocated have no values", path);
    float *host = malloc(sizeof *host * (size_t)(largest(parameters) + 1));
    ups_safetensors_writer *writer = NULL;
    ups_status status = host ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to write it", path);
    if (status == UPS_OK && (!gather || gather->writes))
        status = begin_file(parameters, only, buffers, buffer_count, metadata, path, &writer, error);
    for (int b = 0; b < buffer_count && status == UPS_OK; b++) {
        const bool apart = gather && buffers[b].parts;
        for (int32_t i = 0; i < parameters->count && status == UPS_OK; i++) {
            const ups_parameter *parameter = &parameters->list[i];
            if (!holds(parameters, &buffers[b], i, only) || !(writer || apart)) continue;
            status = move_tensor(device, &buffers[b], parameter, host, false, error);
            if (status == UPS_OK && apart)
                status = gather->bring(gather->context, host, parameter->offset, parameter->elements, error);
            if (status == UPS_OK && writer)
                status = ups_safetensors_writer_append(writer, host, sizeof *host * (size_t)parameter->elements, error);
        }
    }
    if (status == UPS_OK && writer) {
        status = ups_safetensors_writer_commit(writer, error);
        writer = NULL;
    }
    ups_safetensors_writer_abandon(writer);
    free(host);
    return status;
}

static void print_shape(const int64_t *size, int rank, char *out, size_t bytes) {
    size_t used = (size_t)snprintf(out, bytes, "(");
    for (int i = 0; i < rank && used < bytes; i++) {
        used += (size_t)snprintf(out + used, bytes - used, i ? ", %lld" : "%lld", (long long)size[i]);
    }
    if (used < bytes) snprintf(out + used, bytes - used, ")");
}

ups_status ups_parameter_check(const ups_parameter *parameter, const ups_safetensor *tensor, const char *path,
                               ups_error *error) {
    if (!tensor->known_dtype || tensor->dtype != UPS_F32) {
        return ups_fail(error, UPS_ERR_FORMAT, "%s: tensor '%s' is %s; F32 was expected", path, tensor->name,
                        tensor->dtype_name);
    }
    if (tensor->rank != parameter->rank ||
        memcmp(tensor->size, parameter->size, sizeof *tensor->size * (size_t)tensor->rank) != 0) {
        char found[128], expected[128];
        print_shape(tensor->size, tensor->rank, found, sizeof found);
        print_shape(parameter->size, parameter->rank, expected, sizeof expected);
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: tensor '%s' has shape %s where the model has %s: it was saved with another configuration",
                        path, tensor->name, found, expected);
    }
    return UPS_OK;
}

/* What the file's tensors become: one slot a buffer and parameter, the tensor or NULL. */
static ups_status match_tensors(const ups_parameters *parameters, const char *only, const ups_parameter_buffer *buffers,
                                int buffer_count, const ups_safetensors *file, const char *path, bool strict,
                                ups_arena *arena, const ups_safetensor **matched, ups_error *error) {
    bool *used = UPS_ARENA_ARRAY(arena, bool, ups_safetensors_count(file) + 1);
    for (int b = 0; b < buffer_count; b++) {
        for (int32_t i = 0; i < parameters->count; i++) {
            const ups_parameter *parameter = &parameters->list[i];
            if (!holds(parameters, &buffers[b], i, only)) continue;
            const char *name = file_name(arena, &buffers[b], parameter);
            const ups_safetensor *tensor = ups_safetensors_find(file, name);
            if (!tensor && strict) {
                return ups_fail(error, UPS_ERR_FORMAT,
                                "%s: has no tensor '%s': it was saved from another model or configuration", path, name);
            }
            if (!tensor) continue;
            UPS_TRY(ups_parameter_check(parameter, tensor, path, error));
            matched[b * parameters->count + i] = tensor;
            used[tensor - ups_safetensors_get(file, 0)] = true;
        }
    }
    for (int32_t t = 0; t < ups_safetensors_count(file) && strict; t++) {
        if (used[t]) continue;
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: tensor '%s' is no part of this model: it was saved from another model or configuration",
                        path, ups_safetensors_get(file, t)->name);
    }
    return UPS_OK;
}

/* A model with one NaN gives NaN for every field, and a mean over them that looks like any other failure. */
static ups_status check_finite(const ups_safetensors *file, const ups_safetensor *tensor, const char *path, float *host,
                               ups_error *error) {
    UPS_TRY(ups_safetensors_read(file, tensor, host, error));
    int64_t count = (int64_t)(tensor->bytes / sizeof *host), bad = 0, first = 0;
    for (int64_t i = count - 1; i >= 0; i--) {
        if (isfinite(host[i])) continue;
        bad++;
        first = i;
    }
    if (bad == 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_NUMERIC,
                    "%s: tensor '%s' holds %lld values that are NaN or infinite, element %lld the first: the file is "
                    "damaged or was made by a training that diverged; restore it, or train it again",
                    path, tensor->name, (long long)bad, (long long)first);
}

ups_status ups_parameters_load_buffers(ups_parameters *parameters, const char *only,
                                       const ups_parameter_buffer *buffers, int buffer_count, const char *path,
                                       bool strict, ups_error *error) {
    ups_device *device = parameters->device;
    if (!device)
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: parameters must be allocated before they are loaded", path);
    ups_safetensors *file = NULL;
    UPS_TRY(ups_safetensors_open(path, &file, error));
    ups_arena *arena = ups_arena_create(0);
    float *host = malloc(sizeof *host * (size_t)(largest(parameters) + 1));
    ups_status status = UPS_OK;
    if (!arena || !host) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to read it", path);
        goto cleanup;
    }
    const ups_safetensor **matched =
        UPS_ARENA_ARRAY(arena, const ups_safetensor *, (int64_t)buffer_count * parameters->count + 1);
    status = match_tensors(parameters, only, buffers, buffer_count, file, path, strict, arena, matched, error);
    for (int m = 0; m < buffer_count * parameters->count && status == UPS_OK; m++) {
        if (matched[m]) status = check_finite(file, matched[m], path, host, error);
    }
    bool values_changed = false;
    for (int b = 0; b < buffer_count && status == UPS_OK; b++) {
        values_changed |= buffers[b].values == parameters->weights.values;
        for (int32_t i = 0; i < parameters->count && status == UPS_OK; i++) {
            const ups_safetensor *tensor = matched[b * parameters->count + i];
            if (!tensor) continue;
            status = ups_safetensors_read(file, tensor, host, error);
            if (status == UPS_OK) status = move_tensor(device, &buffers[b], &parameters->list[i], host, true, error);
        }
    }
    if (status == UPS_OK && values_changed) status = ups_parameters_refresh(parameters, error);

cleanup:
    free(host);
    ups_arena_destroy(arena);
    ups_safetensors_close(file);
    return status;
}

ups_status ups_parameters_save(const ups_parameters *parameters, const char *path, ups_error *error) {
    ups_parameter_buffer values = {.prefix = "", .values = parameters->weights.values};
    return ups_parameters_save_buffers(parameters, NULL, &values, 1, NULL, NULL, path, error);
}

ups_status ups_parameters_load(ups_parameters *parameters, const char *path, bool strict, ups_error *error) {
    ups_parameter_buffer values = {.prefix = "", .values = parameters->weights.values};
    return ups_parameters_load_buffers(parameters, NULL, &values, 1, path, strict, error);
}
