/* Data sets: opening a cache or simulation files, saying what is in them, reading one trajectory after the other. */
#include "base/arena.h"
#include "base/json.h"
#include "base/log.h"
#include "cache/inspect/find.h"
#include "cache/store/source.h"
#include "pipeline/convert.h"
#include "pipeline/hdf5/driver.h"
#include "pipeline/layouts/layouts.h"
#include "pipeline/layouts/mapping.h"
#include "tools/libups/handles.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- opening ---------------------------------------------------------------------------------------------------- */

/* Once a process. A child of fork() would wait for ever for a lock that a thread of its parent held: fork waits for the
 * lock instead. Log lines are for those who ask for them. */
static void settle_in(void) {
    pthread_atfork(ups_hdf5_enter, ups_hdf5_leave, ups_hdf5_leave);
    if (!getenv("UPS_LOG")) ups_log_set_level(UPS_LOG_ERROR);
}

void ups_library_settle(void) {
    static pthread_once_t settled = PTHREAD_ONCE_INIT;
    pthread_once(&settled, settle_in);
}

static ups_status adopt(ups_source *source, const char *path, bool latent, ups_data **out, ups_error *error) {
    ups_data *data = calloc(1, sizeof *data);
    atomic_int *holders = malloc(sizeof *holders);
    char *name = strdup(path);
    char *attributes = latent ? json_dumps(ups_cache_source_attributes(source), JSON_COMPACT) : NULL;
    if (!data || !holders || !name || (latent && !attributes)) {
        free(data);
        free(holders);
        free(name);
        free(attributes);
        ups_source_close(source);
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for a data set");
    }
    atomic_init(holders, 1);
    *data = (ups_data){.source = source, .path = name, .latent = latent, .attributes = attributes, .holders = holders};
    *out = data;
    return UPS_OK;
}

/* A directory above caches: `error` becomes the list of what could have been meant. */
static ups_status name_caches_below(const char *path, ups_error *error) {
    ups_found_paths found;
    if (ups_cache_find(path, &found, NULL) != UPS_OK) return error->code;
    size_t prefix = strlen(path);
    while (prefix > 1 && path[prefix - 1] == '/') prefix--;
    char list[600] = "";
    size_t used = 0;
    bool below = false;
    for (int64_t i = 0; i < found.count; i++) {
        if (strlen(found.path[i]) <= prefix) continue; /* the directory itself: what was said of it stands */
        below = true;
        int more = snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", found.path[i] + prefix + 1);
        if (more < 0 || (size_t)more >= sizeof list - used - sizeof ", …") {
            snprintf(list + used, sizeof list - used, "%s…", used ? ", " : "");
            break;
        }
        used += (size_t)more;
    }
    ups_found_paths_free(&found);
    if (!below) return error->code;
    return ups_fail(error, UPS_ERR_ARGUMENT,
                    "%s is not the cache of one task and split, but has such below it: open one of %s", path, list);
}

static ups_status open_cache(const char *path, ups_data **data, ups_error *error) {
    ups_source *source;
    if (ups_cache_source_open(path, NULL, &source, error) != UPS_OK) return name_caches_below(path, error);
    return adopt(source, path, true, data, error);
}

static bool is_directory(const char *path) {
    struct stat entry;
    return stat(path, &entry) == 0 && S_ISDIR(entry.st_mode);
}

/* As `layout` says, or by what they hold where that is NULL. */
static ups_status open_source(const char *const *paths, int64_t count, const char *layout, ups_source **source,
                              ups_error *error) {
    ups_mapping mapping;
    ups_layout_options options = {.points_as_stored = true};
    if (!layout) return ups_layout_open_many(paths, count, &options, source, error);
    options.mapping = &mapping;
    ups_arena *arena = ups_arena_create(0);
    ups_status status = arena ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "no memory for the layout");
    if (status == UPS_OK) status = ups_mapping_parse("the layout", layout, arena, &mapping, error);
    if (status == UPS_OK) status = ups_layout_open_many(paths, count, &options, source, error);
    ups_arena_destroy(arena);
    if (status == UPS_ERR_CONFIG) status = error->code = UPS_ERR_ARGUMENT; /* it is the caller's text, of no file */
    return status;
}

static ups_status open_files(const char *const *paths, int64_t count, const char *layout, ups_data **data,
                             ups_error *error) {
    for (int64_t i = 0; i < count; i++) {
        if (!paths[i]) return ups_fail(error, UPS_ERR_ARGUMENT, "path %lld is NULL", (long long)i);
        if (!layout && is_directory(paths[i]))
            return ups_fail(error, UPS_ERR_ARGUMENT,
                            "%s is a directory: name simulation files, or open one cache as a data set of its own",
                            paths[i]);
    }
    ups_source *source;
    UPS_TRY(open_source(paths, count, layout, &source, error));
    return adopt(source, paths[0], false, data, error);
}

ups_data_status ups_data_open(const char *path, ups_data **data, ups_data_error *error) {
    return ups_data_open_files(&path, 1, data, error);
}

ups_data_status ups_data_open_files(const char *const *paths, int64_t count, ups_data **data, ups_data_error *error) {
    return ups_data_open_layout(paths, count, NULL, data, error);
}

ups_data_status ups_data_open_layout(const char *const *paths, int64_t count, const char *layout, ups_data **data,
                                     ups_data_error *error) {
    ups_library_settle();
    *data = NULL;
    ups_error inner;
    if (!paths) {
        ups_fail(&inner, UPS_ERR_ARGUMENT, "the list of paths is NULL");
        return ups_data_fail(error, &inner);
    }
    bool cache = !layout && count == 1 && paths[0] && is_directory(paths[0]);
    ups_status status = cache ? open_cache(paths[0], data, &inner) : open_files(paths, count, layout, data, &inner);
    return status == UPS_OK ? UPS_DATA_OK : ups_data_fail(error, &inner);
}

const ups_data *ups_data_keep(const ups_data *data) {
    atomic_fetch_add(data->holders, 1);
    return data;
}

void ups_data_close(ups_data *data) {
    if (!data || atomic_fetch_sub(data->holders, 1) > 1) return;
    ups_source_close(data->source);
    free(data->attributes);
    free(data->path);
    free(data->holders);
    free(data);
}

/* ---- describing ------------------------------------------------------------------------------------------------- */

int64_t ups_data_count(const ups_data *data) {
    return data->source->count;
}

ups_data_status ups_data_describe(const ups_data *data, ups_data_info *info, ups_data_error *error) {
    const ups_source *source = data->source;
    const ups_data_info own = {
        .count = source->count,
        .kind = source->class->kind,
        .channels = source->channels,
        .channel_names = source->channel_names,
        .parameter_count = source->parameter_count,
        .parameter_names = source->parameter_names,
        .file_count = source->file_count,
        .files = source->files,
        .attributes = data->attributes,
    };
    ups_error inner;
    if (ups_data_give("ups_data_info", info, &own, sizeof own, &inner) != UPS_OK) return ups_data_fail(error, &inner);
    return UPS_DATA_OK;
}

static const char *axis_name(const ups_data *data, const ups_sample *sample, int grid_axis) {
    static const char *const usual[UPS_MAX_GRID_DIMS] = {"x", "y", "z"};
    if (grid_axis == -1) return "time";
    if (grid_axis == -2) return "channel";
    if (data->latent) return "token";
    return sample->axis_names[grid_axis] ? sample->axis_names[grid_axis] : usual[grid_axis];
}

ups_data_status ups_data_describe_sample(const ups_data *data, int64_t index, ups_data_sample *given,
                                         ups_data_error *error) {
    ups_error inner;
    ups_sample sample;
    if (ups_source_describe(data->source, index, &sample, &inner) != UPS_OK) return ups_data_fail(error, &inner);
    ups_data_sample own = {
        .name = sample.name,
        .dtype = ups_data_dtype_of(sample.dtype),
        .periodic = sample.periodic,
        .parameters = sample.parameters,
        .origin = data->latent ? ups_cache_source_origin(data->source, index) : index,
    };
    int grid_axis[UPS_DATA_MAX_RANK], channel_axis;
    own.rank = ups_data_axes(&sample, own.shape, grid_axis, &channel_axis);
    own.channel_axis = channel_axis;
    for (int a = 0; a < own.rank; a++) {
        own.axes[a] = axis_name(data, &sample, grid_axis[a]);
        if (grid_axis[a] == -1) own.coordinates[a] = sample.time;
        if (grid_axis[a] >= 0) own.coordinates[a] = sample.coordinates[grid_axis[a]];
    }
    if (ups_data_give("ups_data_sample", given, &own, sizeof own, &inner) != UPS_OK)
        return ups_data_fail(error, &inner);
    return UPS_DATA_OK;
}

static ups_status copy_parameters(const ups_data *data, int64_t first, int64_t count, double *values, size_t bytes,
                                  ups_error *error) {
    const ups_source *source = data->source;
    size_t row = (size_t)source->parameter_count;
    if (first < 0 || count < 0 || first > source->count - count)
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%s has %lld samples, numbered from 0; parameters of %lld from sample %lld on were asked for",
                        data->path, (long long)source->count, (long long)count, (long long)first);
    if (row == 0 || count == 0) return UPS_OK;
    if (!values || bytes / (row * sizeof *values) < (size_t)count)
        return ups_fail(
            error, UPS_ERR_ARGUMENT,
            "%s: %zu parameters of %lld samples take %zu bytes a sample; there is room for %zu bytes in all",
            data->path, row, (long long)count, row * sizeof *values, values ? bytes : 0);
    for (int64_t i = 0; i < count; i++, values += row) {
        ups_sample sample;
        UPS_TRY(ups_source_describe(source, first + i, &sample, error));
        for (size_t p = 0; p < row; p++) values[p] = sample.parameters ? sample.parameters[p] : NAN;
    }
    return UPS_OK;
}

ups_data_status ups_data_parameters(const ups_data *data, int64_t first, int64_t count, double *values, size_t bytes,
                                    ups_data_error *error) {
    ups_error inner;
    if (copy_parameters(data, first, count, values, bytes, &inner) != UPS_OK) return ups_data_fail(error, &inner);
    return UPS_DATA_OK;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static ups_status read_converted(const ups_data *data, int64_t index, ups_frames frames, const ups_sample *sample,
                                 ups_dtype dtype, void *values, ups_error *error) {
    size_t elements = (size_t)(frames.count * ups_sample_frame_elements(sample));
    void *stored = ups_aligned_alloc(64, elements * ups_dtype_size(sample->dtype));
    if (!stored)
        return ups_fail(error, UPS_ERR_MEMORY, "no memory to convert %lld frames of sample %s", (long long)frames.count,
                        sample->name);
    ups_status status = ups_source_read(data->source, index, frames, stored, error);
    if (status == UPS_OK)
        (void)ups_convert(stored, sample->dtype, values, dtype, elements); /* NaN is served as it is */
    ups_aligned_free(stored);
    return status;
}

static ups_status read_frames(const ups_data *data, int64_t index, ups_frames frames, ups_data_dtype wanted,
                              void *values, size_t bytes, ups_error *error) {
    ups_sample sample;
    ups_dtype dtype;
    UPS_TRY(ups_source_describe(data->source, index, &sample, error));
    if (!ups_data_dtype_known(wanted, &dtype))
        return ups_fail(error, UPS_ERR_ARGUMENT, "%d is no element type; UPS_DATA_F32 is the usual one", (int)wanted);
    if (dtype != sample.dtype && !ups_convertible(sample.dtype, dtype))
        return ups_fail(error, UPS_ERR_UNSUPPORTED,
                        "sample %s holds %s values, which cannot be read as %s without loss; float32 and its own type "
                        "can be",
                        sample.name, ups_dtype_name(sample.dtype), ups_dtype_name(dtype));
    if (frames.start < 0 || frames.count < 0 || frames.start > sample.times - frames.count)
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "sample %s has %lld frames, numbered from 0; %lld from frame %lld on were asked for",
                        sample.name, (long long)sample.times, (long long)frames.count, (long long)frames.start);
    if (!values && frames.count > 0)
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "there is no memory to read %lld frames of sample %s into: values is NULL",
                        (long long)frames.count, sample.name);
    size_t frame = (size_t)ups_sample_frame_elements(&sample) * ups_dtype_size(dtype);
    if (bytes / frame < (size_t)frames.count)
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%lld frames of sample %s take %zu bytes each as %s; there is room for %zu bytes in all",
                        (long long)frames.count, sample.name, frame, ups_dtype_name(dtype), bytes);
    if (dtype == sample.dtype) return ups_source_read(data->source, index, frames, values, error);
    return read_converted(data, index, frames, &sample, dtype, values, error);
}

ups_data_status ups_data_read(const ups_data *data, int64_t index, int64_t first, int64_t frames, ups_data_dtype dtype,
                              void *values, size_t bytes, ups_data_error *error) {
    ups_error inner;
    ups_status status = read_frames(data, index, (ups_frames){first, frames}, dtype, values, bytes, &inner);
    if (status == UPS_OK) return UPS_DATA_OK;
    if (status == UPS_ERR_ARGUMENT || status == UPS_ERR_UNSUPPORTED) ups_fail_within(&inner, "%s", data->path);
    return ups_data_fail(error, &inner);
}
