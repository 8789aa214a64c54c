/* `points` (point, d), (sample, point, d) where each sample has its own, or (sample, time, point, d) where they move:
 * fields on points that lie anywhere, the nodes of a mesh or particles, with 1 to 3 coordinates. Every other numeric
 * dataset at the root is a field if its axes are
 *
 *   (sample, time, point[, component])   what changes in time: one is needed, unless points move
 *   (sample, point[, component])         what does not: it stands in every frame
 *   (point[, component])                 what does not, the same for all samples
 *
 * in the order of their names; others are left out, and named. `t` (time), or (sample, time). `cells` (cell, corner),
 * counted from 0, says which points are the corners of a triangle or tetrahedron: pictures fill them. Parameters are
 * attributes, or `parameters/NAME` (sample).
 *
 * Where each sample has points of its own, they are fields too, `x`, `y`, `z` in front of the others: a model is to see
 * where its numbers lie. `count` (sample) says how many of them each has, where others have more: what is behind those
 * counts for nothing. Files of one task may differ in the length of that axis. */
#include "pipeline/layouts/source.h"

#include <math.h>
#include <string.h>

enum { MOST_COMPONENTS = 16 };

static void find_scale(void *context, const char *name, double number, const char *text) {
    (void)number;
    if (text && strcmp(name, "CLASS") == 0 && strcmp(text, "DIMENSION_SCALE") == 0) *(bool *)context = true;
}

/* A dimension of NetCDF-4 may be called so, too. */
static bool recognises(ups_hdf5_file *file) {
    ups_error error;
    bool dimension = false;
    return ups_hdf5_kind_of(file, "points") == UPS_HDF5_DATASET &&
           ups_hdf5_attributes(file, "points", find_scale, &dimension, &error) == UPS_OK && !dimension;
}

/* ---- the points ---------------------------------------------------------------------------------------------------
 */

static ups_status check_points(const ups_layout_builder *builder, const char *name, const ups_numbers *read,
                               int64_t samples, int64_t count, const int64_t *distinct, ups_error *error) {
    const bool own = read->rank == 3;
    const int64_t *shape = read->shape + own;
    if ((read->rank != 2 && !own) || shape[0] != count || (own && read->shape[0] != samples) || shape[1] < 1 ||
        shape[1] > UPS_MAX_POINT_DIMS)
        return ups_fail(
            error, UPS_ERR_FORMAT,
            "%s: '%s' has shape %s, where fields have %lld samples of %lld points; (point, d) or (sample, point, d) "
            "with 1 to %d coordinates was expected",
            builder->path, name, ups_layout_shape_text(builder->arena, read->rank, read->shape), (long long)samples,
            (long long)count, UPS_MAX_POINT_DIMS);
    for (int64_t i = 0; i < read->count; i++) {
        const int64_t point = i / shape[1] % count, sample = i / shape[1] / count;
        if (!isfinite(read->values[i]) && (!distinct || point < distinct[sample]))
            return ups_fail(error, UPS_ERR_FORMAT, "%s: '%s' has no number at point %lld", builder->path, name,
                            (long long)point);
    }
    return UPS_OK;
}

ups_status ups_layout_make_points(const ups_layout_builder *builder, const char *name, const ups_numbers *read,
                                  int64_t samples, int64_t count, const int64_t *distinct, ups_points ***points,
                                  bool *own, ups_error *error) {
    UPS_TRY(check_points(builder, name, read, samples, count, distinct, error));
    *own = read->rank == 3 || (*own && samples == 1);
    const int dims = (int)read->shape[read->rank - 1];
    const int64_t sets = *own ? samples : 1;
    *points = UPS_ARENA_ARRAY(builder->arena, ups_points *, sets);
    /* As the fields that tell them have them: who is given a frame alone finds the same order. */
    for (int64_t i = 0; *own && i < read->count; i++) read->values[i] = (double)(float)read->values[i];
    for (int64_t s = 0; s < sets; s++) {
        const double *coordinates = read->values + s * count * dims;
        const int64_t of_sample = distinct ? distinct[s] : count;
        (*points)[s] = builder->points_as_stored
                           ? ups_points_as_stored(builder->arena, dims, of_sample, count, coordinates)
                           : ups_points_create(builder->arena, dims, of_sample, count, coordinates);
        (*points)[s]->own = *own;
    }
    return UPS_OK;
}

/* What joins the points, where the file tells. */
static ups_status read_cells(const ups_layout_builder *builder, ups_points *points, ups_error *error) {
    enum { MOST_CORNERS = 8 };
    ups_arena *arena = builder->arena;
    ups_numbers read;
    if (ups_hdf5_kind_of(builder->file, "cells") != UPS_HDF5_DATASET) return UPS_OK;
    UPS_TRY(ups_hdf5_read_numbers(builder->file, "cells", UPS_LAYOUT_MOST_NUMBERS, arena, &read, error));
    if (read.rank != 2 || read.shape[1] < 2 || read.shape[1] > MOST_CORNERS)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: 'cells' has shape %s; (cell, corner) was expected", builder->path,
                        ups_layout_shape_text(arena, read.rank, read.shape));
    int32_t *corners = UPS_ARENA_ARRAY(arena, int32_t, read.count + 1);
    for (int64_t i = 0; i < read.count; i++) {
        if (!(read.values[i] >= 0 && read.values[i] < (double)points->count && read.values[i] == floor(read.values[i])))
            return ups_fail(error, UPS_ERR_FORMAT,
                            "%s: cell %lld has the corner %.9g, but points are counted from 0 to %lld", builder->path,
                            (long long)(i / read.shape[1]), read.values[i], (long long)points->count - 1);
        corners[i] = (int32_t)read.values[i];
    }
    ups_points_set_cells(arena, points, (int)read.shape[1], read.shape[0], corners);
    return UPS_OK;
}

/* ---- the fields ---------------------------------------------------------------------------------------------------
 */

typedef struct mesh {
    ups_layout_builder *builder;
    int64_t samples, times, count; /* of the first field that changes in time */
    const int64_t *distinct;       /* (samples) points of each, of `count`; NULL: all */
    ups_stored_array *places;      /* `points` */
    bool moving;                   /* which has an axis of time */
    ups_stored_array *arrays[UPS_LAYOUT_MAX_ARRAYS];
    ups_layout_part parts[UPS_LAYOUT_MAX_ARRAYS];
    const char *channel_names[UPS_LAYOUT_MAX_ARRAYS * UPS_MAX_POINT_DIMS];
    int part_count;
    int64_t channels;
} mesh;

static bool is_told_apart(const char *name) {
    static const char *const others[] = {"points", "cells", "t", "edges"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(name, others[i]) == 0) return true;
    }
    return false;
}

/* What an array's axes are; false where they are none of a field's. */
static bool tell_axes(const mesh *m, const ups_stored_array *array, ups_layout_part *part) {
    const int64_t *shape = array->shape;
    int rank = array->rank;
    *part = (ups_layout_part){.array = array, .first_channel = m->channels};
    if (rank > 1 && (rank > 3 || shape[rank - 1] != m->count) && shape[rank - 1] <= MOST_COMPONENTS) {
        part->component_axes = 1;
        rank--;
    }
    if (shape[rank - 1] != m->count) return false;
    part->by_sample = rank > 1 && shape[0] == m->samples;
    part->by_time = rank == 3 && shape[1] == m->times;
    return rank == 1 + part->by_sample + part->by_time && (part->by_sample || !part->by_time);
}

static void name_channels(mesh *m, const char *name, int64_t components) {
    static const char *const axes[] = {"x", "y", "z"};
    for (int64_t c = 0; c < components; c++) {
        ups_arena *arena = m->builder->arena;
        m->channel_names[m->channels++] = components == 1   ? ups_arena_strdup(arena, name)
                                          : components <= 3 ? ups_arena_printf(arena, "%s_%s", name, axes[c])
                                                            : ups_arena_printf(arena, "%s_%lld", name, (long long)c);
    }
}

static ups_status add_field(mesh *m, ups_stored_array *array, const ups_layout_part *part, ups_error *error) {
    const int64_t components = ups_layout_part_channels(part);
    if (m->part_count == UPS_LAYOUT_MAX_ARRAYS ||
        m->channels + components > (int64_t)(sizeof m->channel_names / sizeof *m->channel_names))
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "%s: more than %d fields; a `layout` of the task can name some",
                        m->builder->path, UPS_LAYOUT_MAX_ARRAYS);
    m->arrays[m->part_count] = array;
    m->parts[m->part_count++] = *part;
    name_channels(m, array->name, components);
    return UPS_OK;
}

/* The points of each sample, as fields. */
static void add_places(mesh *m) {
    static const char *const names[] = {"x", "y", "z"};
    ups_stored_array *array = m->places;
    m->arrays[0] = array;
    m->parts[m->part_count++] =
        (ups_layout_part){.array = array, .by_sample = true, .by_time = m->moving, .component_axes = 1};
    for (int64_t c = 0; c < array->shape[array->rank - 1]; c++) m->channel_names[m->channels++] = names[c];
}

/* What is none of the fields is named, and let be. */
static void leave_out(const mesh *m, const char *name, const char *what) {
    ups_layout_builder *builder = m->builder;
    builder->left_out = builder->left_out
                            ? ups_arena_printf(builder->arena, "%s, '%s' %s", builder->left_out, name, what)
                            : ups_arena_printf(builder->arena, "'%s' %s", name, what);
}

/* A dataset that may be a field; NULL: it holds no numbers. */
static ups_stored_array *map_numbers(const mesh *m, const char *name) {
    ups_error why;
    ups_stored_array *array = NULL;
    if (is_told_apart(name) || ups_hdf5_kind_of(m->builder->file, name) != UPS_HDF5_DATASET) return NULL;
    const ups_status status =
        ups_layout_map(m->builder, name, 1, UPS_ARRAY_MAX_RANK, "(sample, time, point)", &array, &why);
    return status == UPS_OK ? array : NULL;
}

/* How many points each sample has, where the file tells; NULL: as many as the axis is long. A field may be called
 * `count`, too. */
static ups_status read_counts(mesh *m, ups_error *error) {
    const ups_layout_builder *builder = m->builder;
    ups_numbers read;
    ups_layout_part part;
    int rank;
    if (ups_hdf5_kind_of(builder->file, "count") != UPS_HDF5_DATASET) return UPS_OK;
    const ups_stored_array *array = map_numbers(m, "count");
    if (array && array->rank > 1 && tell_axes(m, array, &part)) return UPS_OK;
    UPS_TRY(ups_hdf5_read_rank(builder->file, "count", builder->arena, &rank, error));
    if (rank != 1 || (array && array->shape[0] != m->samples))
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: 'count' has shape %s, where fields have %lld samples; the number of points of each was "
                        "expected, (sample)",
                        builder->path, array ? ups_layout_shape_text(builder->arena, array->rank, array->shape) : "()",
                        (long long)m->samples);
    UPS_TRY(ups_hdf5_read_numbers(builder->file, "count", UPS_LAYOUT_MOST_NUMBERS, builder->arena, &read, error));
    int64_t *counts = UPS_ARENA_ARRAY(builder->arena, int64_t, m->samples);
    for (int64_t s = 0; s < m->samples; s++) {
        const double told = read.values[s];
        if (!(told >= 1 && told <= (double)m->count && told == floor(told)))
            return ups_fail(error, UPS_ERR_FORMAT,
                            "%s: 'count' says that sample %lld has %.9g points; a whole number from 1 to %lld, which "
                            "'points' has room for, was expected",
                            builder->path, (long long)s, told, (long long)m->count);
        counts[s] = (int64_t)told;
    }
    m->distinct = counts;
    return UPS_OK;
}

/* The first dataset that can only be (sample, time, point): what all others are held against. */
static ups_status find_shape(mesh *m, int64_t count, const char *const *names, int64_t name_count, ups_error *error) {
    m->count = count;
    for (int64_t i = 0; i < name_count && m->times == 0; i++) {
        const ups_stored_array *array = map_numbers(m, names[i]);
        if (!array || array->rank < 3 || array->shape[2] != count || array->rank > 4) continue;
        m->samples = array->shape[0];
        m->times = array->shape[1];
    }
    if (m->times > 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s: 'points' has %lld points, but no dataset has axes (sample, time, point) with as many; a "
                    "`layout` of the task can say what axes are (docs/own-data.md)",
                    m->builder->path, (long long)count);
}

/* Where points are fields, no other field has their names. */
static ups_status check_name(const mesh *m, const char *name, ups_error *error) {
    const bool places = m->part_count > 0 && strcmp(m->arrays[0]->name, "points") == 0;
    for (int64_t c = 0; places && c < m->arrays[0]->shape[m->arrays[0]->rank - 1]; c++) {
        if (strcmp(m->channel_names[c], name) == 0)
            return ups_fail(error, UPS_ERR_FORMAT,
                            "%s: '%s' is a field, but the points of each sample are fields x, y, z themselves; give it "
                            "another name, or a `layout` in the task",
                            m->builder->path, name);
    }
    return UPS_OK;
}

static ups_status map_fields(mesh *m, const char *const *names, int64_t name_count, ups_error *error) {
    ups_layout_builder *builder = m->builder;
    bool changes = m->moving;
    for (int64_t i = 0; i < name_count; i++) {
        ups_layout_part part;
        if (is_told_apart(names[i]) || ups_hdf5_kind_of(builder->file, names[i]) != UPS_HDF5_DATASET) continue;
        if (m->distinct && strcmp(names[i], "count") == 0) continue;
        ups_stored_array *array = map_numbers(m, names[i]);
        if (!array) {
            leave_out(m, names[i], "(no numbers that can be read)");
        } else if (!tell_axes(m, array, &part)) {
            leave_out(m, names[i], ups_layout_shape_text(builder->arena, array->rank, array->shape));
        } else {
            UPS_TRY(check_name(m, names[i], error));
            UPS_TRY(add_field(m, array, &part, error));
            changes |= part.by_time;
        }
    }
    if (changes) return UPS_OK;
    return ups_fail(
        error, UPS_ERR_FORMAT,
        "%s: no dataset has axes (sample, time, point[, component]) with %lld points; a `layout` of the task "
        "can say what axes are (docs/own-data.md)",
        builder->path, (long long)m->count);
}

/* ---- the file -----------------------------------------------------------------------------------------------------
 */

static ups_status read_times(const mesh *m, const double **times, bool *by_sample, ups_error *error) {
    ups_layout_builder *builder = m->builder;
    ups_numbers t;
    *by_sample = false;
    if (ups_hdf5_kind_of(builder->file, "t") != UPS_HDF5_DATASET)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: dataset 't' is missing; the time of each of %lld frames was "
                        "expected",
                        builder->path, (long long)m->times);
    UPS_TRY(ups_hdf5_read_numbers(builder->file, "t", UPS_LAYOUT_LONGEST_AXIS, builder->arena, &t, error));
    *times = t.values;
    *by_sample = t.rank == 2;
    if (t.rank == 2 && t.shape[0] == m->samples && t.shape[1] == m->times) return UPS_OK;
    if (t.rank == 1 && t.shape[0] == m->times) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT, "%s: 't' has shape %s where fields have %lld samples of %lld frames",
                    builder->path, ups_layout_shape_text(builder->arena, t.rank, t.shape), (long long)m->samples,
                    (long long)m->times);
}

/* A member each where anything differs between samples. */
static ups_status add_members(mesh *m, ups_points *const *points, bool own_points, ups_dtype dtype, ups_error *error) {
    ups_layout_builder *builder = m->builder;
    const double *time = NULL;
    bool own_time = false;
    ups_sample_parameters own;
    ups_layout_member first = {.found = {.arena = builder->arena}, .boundary = "not said"};
    UPS_TRY(read_times(m, &time, &own_time, error));
    UPS_TRY(ups_layout_read_description(builder, "", &first, error));
    UPS_TRY(ups_layout_read_sample_parameters(builder, m->samples, &own, error));
    const bool differ = own_points || own_time || own.count > 0;
    const ups_layout_part *parts = NULL;
    for (int64_t s = 0; s < (differ ? m->samples : 1); s++) {
        ups_layout_member *member;
        UPS_TRY(ups_layout_add_member(builder, &member, error));
        *member = first;
        member->sample = (ups_sample){.times = m->times,
                                      .channels = m->channels,
                                      .dims = 1,
                                      .grid = {m->count, 1, 1},
                                      .order = UPS_CHANNELS_FIRST,
                                      .dtype = dtype,
                                      .time = time + (own_time ? s * m->times : 0),
                                      .points = points[own_points ? s : 0]};
        member->name = "sample";
        member->numbered = true;
        member->samples = differ ? 1 : m->samples;
        member->first_row = s;
        ups_layout_give_parameters(builder, &own, s, member);
        if (s == 0) ups_layout_set_parts(builder, member, m->parts, m->part_count);
        if (s == 0) parts = member->parts;
        member->parts = parts;
        member->part_count = m->part_count;
    }
    return UPS_OK;
}

/* Where points lie, in the first frame where they move; and how many samples, frames and points there are. */
static ups_status read_places(mesh *m, const char *const *names, int64_t name_count, ups_numbers *read,
                              ups_error *error) {
    ups_layout_builder *builder = m->builder;
    static const char meaning[] = "(point, d), (sample, point, d) or (sample, time, point, d)";
    int rank;
    UPS_TRY(ups_hdf5_read_rank(builder->file, "points", builder->arena, &rank, error));
    if (rank != 2) UPS_TRY(ups_layout_map(builder, "points", 2, 4, meaning, &m->places, error)); /* fields, too */
    m->moving = rank == 4;
    if (!m->moving) {
        UPS_TRY(ups_hdf5_read_numbers(builder->file, "points", UPS_LAYOUT_MOST_NUMBERS, builder->arena, read, error));
        return find_shape(m, read->shape[read->rank - 2], names, name_count, error);
    }
    if (m->places->shape[3] > UPS_MAX_POINT_DIMS)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: 'points' has shape %s; (sample, time, point, d) with 1 to %d coordinates was expected",
                        builder->path, ups_layout_shape_text(builder->arena, 4, m->places->shape), UPS_MAX_POINT_DIMS);
    m->samples = m->places->shape[0];
    m->times = m->places->shape[1];
    m->count = m->places->shape[2];
    return ups_hdf5_read_first(builder->file, "points", 1, UPS_LAYOUT_MOST_NUMBERS, builder->arena, read, error);
}

static ups_status describe(ups_layout_builder *builder, ups_error *error) {
    mesh *m = UPS_ARENA_NEW(builder->arena, mesh);
    const char *const *names;
    int64_t name_count;
    ups_numbers read;
    ups_points **points;
    bool own = false;
    m->builder = builder;
    UPS_TRY(ups_hdf5_list(builder->file, "", builder->arena, &names, &name_count, error));
    UPS_TRY(read_places(m, names, name_count, &read, error));
    if (read.rank == 3) UPS_TRY(read_counts(m, error));
    UPS_TRY(ups_layout_make_points(builder, "points", &read, m->samples, m->count, m->distinct, &points, &own, error));
    for (int64_t s = 0; s < m->samples && m->moving; s++) points[s]->moving = true;
    if (own) add_places(m);
    if (!own) UPS_TRY(read_cells(builder, points[0], error));
    UPS_TRY(map_fields(m, names, name_count, error));
    const ups_dtype dtype = ups_layout_share_dtype(builder, m->arrays, m->part_count);
    UPS_TRY(ups_layout_set_channels(builder, m->channels, m->channel_names, error));
    return add_members(m, points, own, dtype, error);
}

static const ups_source_class source_class = UPS_LAYOUT_CLASS("points");

const ups_layout ups_layout_points = {
    .kind = "points",
    .title = "fields on points",
    .reason = "dataset 'points' (point, d), (sample, point, d) or (sample, time, point, d)",
    .looks_for = {"points", "t"},
    .recognises = recognises,
    .describe = describe,
    .class = &source_class,
};
