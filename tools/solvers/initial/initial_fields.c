/* What a file of plain arrays lacks is said by a mapping that is made here, in which the samples are the frames of one
 * trajectory: then one call reads one of them. */
#include "tools/solvers/initial/initial_fields.h"
#include "base/files.h"
#include "base/hash.h"
#include "pipeline/arrays/arrays.h"
#include "pipeline/layouts/layouts.h"
#include "pipeline/layouts/mapping.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_FIELDS = 8 };

struct ups_initial_fields {
    ups_arena *arena;
    const char *path;
    char digest[33];
    ups_source *source;
    bool by_frame; /* samples are frames of the source's only sample */
    int field_count, dims;
    int64_t resolution, points; /* resolution^dims */
    int64_t channel[MOST_FIELDS];
};

static const char *axes_text(ups_initial_fields *fields, const char *first, bool channel) {
    static const char *const names[] = {"x", "y", "z"};
    const char *text = first;
    for (int axis = 0; axis < fields->dims; axis++) text = ups_arena_printf(fields->arena, "%s, %s", text, names[axis]);
    return channel ? ups_arena_printf(fields->arena, "%s, channel", text) : text;
}

static const char *fields_text(ups_initial_fields *fields, const ups_solver *solver) {
    const char *text = solver->state[0];
    for (int f = 1; f < fields->field_count; f++)
        text = ups_arena_printf(fields->arena, "%s, %s", text, solver->state[f]);
    return text;
}

/* ---- plain arrays ---- */

static const ups_array_outline *find_outline(const ups_array_outline *outlines, int64_t count, const char *name) {
    for (int64_t i = 0; i < count; i++) {
        if (outlines[i].numeric && strcmp(outlines[i].name, name) == 0) return &outlines[i];
    }
    return NULL;
}

static ups_status wrong_arrays(ups_initial_fields *fields, const ups_solver *solver, ups_error *error) {
    if (fields->field_count == 1)
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%s: does not hold initial fields of %s; an array with the axes (%s), or a file that `ups data "
                        "inspect` knows with the field %s, was expected",
                        fields->path, solver->name, axes_text(fields, "sample", false), solver->state[0]);
    return ups_fail(
        error, UPS_ERR_ARGUMENT,
        "%s: does not hold initial fields of %s; an array for each of %s with the axes (%s), a single array "
        "with the axes (%s), or a file that `ups data inspect` knows with these fields was expected",
        fields->path, solver->name, fields_text(fields, solver), axes_text(fields, "sample", false),
        axes_text(fields, "sample", true));
}

/* What --layout would say of the file. */
static ups_status write_mapping(ups_initial_fields *fields, const ups_solver *solver, const ups_array_outline *outlines,
                                int64_t count, const char **text, ups_error *error) {
    ups_arena *arena = fields->arena;
    const ups_array_outline *only = NULL;
    int64_t numeric = 0;
    int named = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!outlines[i].numeric || outlines[i].rank < 2) continue;
        only = &outlines[i];
        numeric++;
    }
    for (int f = 0; f < fields->field_count; f++) named += find_outline(outlines, count, solver->state[f]) != NULL;
    const bool by_name = named == fields->field_count && fields->field_count > 1;
    const bool channels = !by_name && only && only->rank == fields->dims + 2;
    const bool fits =
        by_name || (numeric == 1 && (channels || (fields->field_count == 1 && only->rank == fields->dims + 1)));
    if (!fits) return wrong_arrays(fields, solver, error);
    if (channels && only->shape[only->rank - 1] != fields->field_count)
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: the last axis has %lld entries, and %s has %d fields: %s",
                        fields->path, (long long)only->shape[only->rank - 1], solver->name, fields->field_count,
                        fields_text(fields, solver));
    const char *list = "";
    for (int f = 0; f < fields->field_count; f++) {
        const char *array = by_name ? solver->state[f] : only->name;
        const char *where = channels ? ups_arena_printf(arena, ", channel: %d", f) : "";
        list = ups_arena_printf(arena, "%s%s%s: {array: '/%s'%s}", list, f ? ", " : "", solver->state[f], array, where);
    }
    *text = ups_arena_printf(arena, "{fields: {%s}, axes: [%s]}", list, axes_text(fields, "time", channels));
    return UPS_OK;
}

static ups_status open_arrays(ups_initial_fields *fields, const ups_solver *solver, ups_error *error) {
    ups_file_list files = {.arena = fields->arena};
    ups_arrays *arrays;
    const ups_array_outline *outlines;
    int64_t count;
    UPS_TRY(ups_arrays_open(fields->path, NULL, false, &files, &arrays, error));
    ups_status status = ups_arrays_list(arrays, fields->arena, &outlines, &count, error);
    ups_arrays_close(arrays);
    if (status != UPS_OK) return status;
    const char *text = NULL;
    ups_mapping mapping;
    UPS_TRY(write_mapping(fields, solver, outlines, count, &text, error));
    UPS_TRY(ups_mapping_parse(fields->path, text, fields->arena, &mapping, error));
    fields->by_frame = true;
    return ups_layout_open(fields->path, &(ups_layout_options){.mapping = &mapping}, &fields->source, error);
}

/* ---- opening ---- */

static ups_status open_source(ups_initial_fields *fields, const ups_solver *solver, ups_error *error) {
    const char *format;
    if (ups_arrays_are_foreign(fields->path, &format)) return open_arrays(fields, solver, error);
    ups_status status = ups_layout_open(fields->path, &(ups_layout_options){0}, &fields->source, error);
    if (status != UPS_ERR_FORMAT) return status;
    return open_arrays(fields, solver, error); /* HDF5 that is no layout we know */
}

static ups_status find_channels(ups_initial_fields *fields, const ups_solver *solver, ups_error *error) {
    const ups_source *source = fields->source;
    for (int f = 0; f < fields->field_count; f++) {
        fields->channel[f] = -1;
        for (int64_t c = 0; c < source->channels; c++) {
            if (strcmp(source->channel_names[c], solver->state[f]) == 0) fields->channel[f] = c;
        }
        if (fields->channel[f] < 0)
            return ups_fail(error, UPS_ERR_ARGUMENT, "%s: has no field %s, from which %s would begin; it needs %s",
                            fields->path, solver->state[f], solver->name, fields_text(fields, solver));
    }
    return UPS_OK;
}

static ups_status check_grid(const ups_initial_fields *fields, const ups_solver *solver, int64_t sample,
                             const ups_sample *found, ups_error *error) {
    bool same = found->dims == fields->dims;
    for (int axis = 0; same && axis < fields->dims; axis++) same = found->grid[axis] == fields->resolution;
    if (same && (found->dtype == UPS_F32 || found->dtype == UPS_F64)) return UPS_OK;
    if (same)
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s: holds %s; initial fields are float32 or float64", fields->path,
                        ups_dtype_name(found->dtype));
    const char *axes = fields->dims > 1 ? " along each axis" : "";
    char grid[100] = "";
    size_t used = 0;
    for (int axis = 0; axis < found->dims; axis++)
        used += (size_t)snprintf(grid + used, sizeof grid - used, "%s%lld", axis ? " x " : "",
                                 (long long)found->grid[axis]);
    if (found->dims == fields->dims && found->grid[0] >= solver->minimum_resolution)
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%s: sample %lld has %s points where %s is to work on %lld cells%s; --resolution %lld?",
                        fields->path, (long long)sample, grid, solver->name, (long long)fields->resolution, axes,
                        (long long)found->grid[0]);
    return ups_fail(error, UPS_ERR_ARGUMENT,
                    "%s: sample %lld has %s points where %s works on %lld cells along each of %d %s", fields->path,
                    (long long)sample, grid, solver->name, (long long)fields->resolution, fields->dims,
                    fields->dims > 1 ? "axes" : "axis");
}

/* XXH3 of a file's bytes. A store of many files has none: its path must do. */
static ups_status digest_file(ups_initial_fields *fields, ups_error *error) {
    struct stat found;
    if (stat(fields->path, &found) != 0) return ups_fail_errno(error, "%s", fields->path);
    if (!S_ISREG(found.st_mode)) return UPS_OK;
    enum { PIECE = 1 << 20 };
    const int descriptor = open(fields->path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return ups_fail_errno(error, "%s: cannot be opened", fields->path);
    void *piece = ups_arena_alloc(fields->arena, PIECE);
    ups_hasher *hasher = ups_hasher_create();
    ssize_t count;
    while ((count = read(descriptor, piece, PIECE)) > 0) ups_hasher_update(hasher, piece, (size_t)count);
    ups_hash_hex(ups_hasher_finish(hasher), fields->digest);
    ups_status status = count < 0 ? ups_fail_errno(error, "%s", fields->path) : UPS_OK;
    close(descriptor);
    return status;
}

static ups_status open_into(ups_initial_fields *fields, const ups_solver *solver, ups_error *error) {
    UPS_TRY(digest_file(fields, error));
    UPS_TRY(open_source(fields, solver, error));
    UPS_TRY(find_channels(fields, solver, error));
    ups_sample sample;
    for (int64_t i = 0; i < fields->source->count; i++) {
        UPS_TRY(ups_source_describe(fields->source, i, &sample, error));
        UPS_TRY(check_grid(fields, solver, i, &sample, error));
    }
    return UPS_OK;
}

ups_status ups_initial_fields_open(const char *path, const ups_solver *solver, int64_t resolution,
                                   ups_initial_fields **out, ups_error *error) {
    if (!solver->state)
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s cannot begin from given fields; leave --initial out",
                        solver->name);
    ups_arena *arena = ups_arena_create(0);
    if (!arena) return ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", path);
    ups_initial_fields *fields = UPS_ARENA_NEW(arena, ups_initial_fields);
    *fields = (ups_initial_fields){.arena = arena,
                                   .path = ups_arena_strdup(arena, path),
                                   .dims = solver->dims,
                                   .resolution = resolution,
                                   .points = 1};
    while (solver->state[fields->field_count]) fields->field_count++;
    for (int axis = 0; axis < solver->dims; axis++) fields->points *= resolution;
    ups_status status = open_into(fields, solver, error);
    if (status == UPS_OK)
        *out = fields;
    else
        ups_initial_fields_close(fields);
    return status;
}

void ups_initial_fields_close(ups_initial_fields *fields) {
    if (!fields) return;
    if (fields->source) ups_source_close(fields->source);
    ups_arena_destroy(fields->arena);
}

/* ---- reading ---- */

int64_t ups_initial_fields_samples(const ups_initial_fields *fields) {
    ups_sample sample;
    if (!fields->by_frame) return fields->source->count;
    return ups_source_describe(fields->source, 0, &sample, NULL) == UPS_OK ? sample.times : 0;
}

const char *ups_initial_fields_path(const ups_initial_fields *fields) {
    return fields->path;
}

const char *ups_initial_fields_digest(const ups_initial_fields *fields) {
    return fields->digest;
}

static double value_at(const void *frame, ups_dtype dtype, int64_t index) {
    return dtype == UPS_F64 ? ((const double *)frame)[index] : (double)((const float *)frame)[index];
}

ups_status ups_initial_fields_read(const ups_initial_fields *fields, int64_t sample, double *const *planes,
                                   ups_error *error) {
    const int64_t index = fields->by_frame ? 0 : sample, start = fields->by_frame ? sample : 0;
    ups_sample found;
    UPS_TRY(ups_source_describe(fields->source, index, &found, error));
    void *frame = ups_aligned_alloc(64, ups_sample_frame_bytes(&found));
    if (!frame) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for a sample of it", fields->path);
    ups_status status = ups_source_read(fields->source, index, (ups_frames){start, 1}, frame, error);
    const bool last = found.order == UPS_CHANNELS_LAST;
    for (int f = 0; status == UPS_OK && f < fields->field_count; f++) {
        const int64_t channel = fields->channel[f];
        bool finite = true;
        for (int64_t i = 0; i < fields->points; i++) {
            const int64_t at = last ? i * found.channels + channel : channel * fields->points + i;
            planes[f][i] = value_at(frame, found.dtype, at);
            finite &= isfinite(planes[f][i]);
        }
        if (!finite)
            status = ups_fail(error, UPS_ERR_NUMERIC, "%s: sample %lld has NaN or infinite values", fields->path,
                              (long long)sample);
    }
    ups_aligned_free(frame);
    return status;
}

ups_status ups_initial_fields_check_positive(const ups_initial_fields *fields, int64_t sample, const char *name,
                                             const double *plane, ups_error *error) {
    for (int64_t i = 0; i < fields->points; i++) {
        if (plane[i] > 0.0) continue;
        return ups_fail(error, UPS_ERR_NUMERIC, "%s: %s is %g somewhere in sample %lld; positive values were expected",
                        fields->path, name, plane[i], (long long)sample);
    }
    return UPS_OK;
}
