/* What a layout's description of a file is made with: members, parts, channels, arrays and coordinates, each checked
 * against what the layout expects. */
#include "pipeline/layouts/source.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

ups_status ups_layout_add_member(ups_layout_builder *builder, ups_layout_member **member, ups_error *error) {
    if (builder->member_count == builder->member_capacity) {
        int64_t capacity = builder->member_capacity ? 2 * builder->member_capacity : 16;
        ups_layout_member *members = realloc(builder->members, (size_t)capacity * sizeof *members);
        if (!members) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for the list of samples", builder->path);
        builder->members = members;
        builder->member_capacity = capacity;
    }
    *member = &builder->members[builder->member_count++];
    **member = (ups_layout_member){.samples = 1, .boundary = "not said", .found = {.arena = builder->arena}};
    return UPS_OK;
}

void ups_layout_set_parts(ups_layout_builder *builder, ups_layout_member *member, const ups_layout_part *parts,
                          int count) {
    ups_layout_part *copy = UPS_ARENA_ARRAY(builder->arena, ups_layout_part, count);
    memcpy(copy, parts, (size_t)count * sizeof *copy);
    member->parts = copy;
    member->part_count = count;
}

static const char *join(ups_arena *arena, int64_t count, const char *const *names) {
    const char *text = count > 0 ? names[0] : "none";
    enum { MAX_SHOWN = 12 };
    for (int64_t i = 1; i < count && i < MAX_SHOWN; i++) text = ups_arena_printf(arena, "%s, %s", text, names[i]);
    return count > MAX_SHOWN ? ups_arena_printf(arena, "%s, …", text) : text;
}

ups_status ups_layout_set_channels(ups_layout_builder *builder, int64_t count, const char *const *names,
                                   ups_error *error) {
    bool same = builder->channels == count;
    for (int64_t c = 0; same && c < count; c++) same = strcmp(builder->channel_names[c], names[c]) == 0;
    if (same) return UPS_OK;
    if (builder->channels)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s has %lld channels (%s) where the samples before it have %lld (%s); samples of one task "
                        "must have the same",
                        builder->path, (long long)count, join(builder->arena, count, names),
                        (long long)builder->channels, join(builder->arena, builder->channels, builder->channel_names));
    const char **copy = UPS_ARENA_ARRAY(builder->arena, const char *, count);
    for (int64_t c = 0; c < count; c++) copy[c] = ups_arena_strdup(builder->arena, names[c]);
    builder->channels = count;
    builder->channel_names = copy;
    return UPS_OK;
}

static void visit_parameter(void *context, const char *name, double number, const char *text) {
    ups_pde_parameters *parameters = context;
    if (text && strcmp(name, "config") == 0) ups_pde_parameters_from_yaml(parameters, text);
    if (!text) ups_pde_parameters_add(parameters, name, number);
}

ups_status ups_layout_read_parameters(ups_layout_builder *builder, const char *object, ups_pde_parameters *parameters,
                                      ups_error *error) {
    return ups_hdf5_attributes(builder->file, object, visit_parameter, parameters, error);
}

typedef struct described {
    ups_layout_builder *builder;
    ups_layout_member *member;
} described;

static void visit_description(void *context, const char *name, double number, const char *text) {
    described *d = context;
    visit_parameter(&d->member->found, name, number, text);
    if (!text || (strcasecmp(name, "bc") != 0 && strcasecmp(name, "boundary") != 0)) return;
    d->member->boundary = ups_arena_strdup(d->builder->arena, text);
    d->member->sample.periodic = strcasecmp(text, "periodic") == 0;
}

ups_status ups_layout_read_description(ups_layout_builder *builder, const char *object, ups_layout_member *member,
                                       ups_error *error) {
    return ups_hdf5_attributes(builder->file, object, visit_description, &(described){builder, member}, error);
}

ups_status ups_layout_read_sample_parameters(ups_layout_builder *builder, int64_t samples,
                                             ups_sample_parameters *parameters, ups_error *error) {
    static const char group[] = "parameters";
    ups_arena *arena = builder->arena;
    const char *const *names;
    int64_t count;
    *parameters = (ups_sample_parameters){0};
    if (ups_hdf5_kind_of(builder->file, group) != UPS_HDF5_GROUP) return UPS_OK;
    UPS_TRY(ups_hdf5_list(builder->file, group, arena, &names, &count, error));
    const double **values = UPS_ARENA_ARRAY(arena, const double *, count + 1);
    for (int64_t i = 0; i < count; i++) {
        const char *path = ups_arena_printf(arena, "%s/%s", group, names[i]);
        ups_numbers read;
        UPS_TRY(ups_hdf5_read_numbers(builder->file, path, UPS_LAYOUT_MAX_SAMPLES, arena, &read, error));
        if (read.rank != 1 || read.count != samples)
            return ups_fail(
                error, UPS_ERR_FORMAT,
                "%s: '%s' has shape %s where there are %lld samples; one number for each sample was expected",
                builder->path, path, ups_layout_shape_text(arena, read.rank, read.shape), (long long)samples);
        for (int64_t s = 0; s < samples; s++) {
            if (!isfinite(read.values[s]))
                return ups_fail(error, UPS_ERR_FORMAT, "%s: '%s' has no number for sample %lld", builder->path, path,
                                (long long)s);
        }
        values[i] = read.values;
    }
    *parameters = (ups_sample_parameters){.count = count, .names = names, .values = values};
    return UPS_OK;
}

void ups_layout_give_parameters(ups_layout_builder *builder, const ups_sample_parameters *parameters, int64_t row,
                                ups_layout_member *member) {
    const ups_pde_parameters others = member->found;
    member->found = (ups_pde_parameters){.arena = builder->arena};
    for (int64_t i = 0; i < parameters->count; i++)
        ups_pde_parameters_set(&member->found, parameters->names[i], parameters->values[i][row]);
    for (int i = 0; i < others.count; i++)
        ups_pde_parameters_set(&member->found, others.list[i].name, others.list[i].value);
}

ups_status ups_layout_split_by_parameters(ups_layout_builder *builder, ups_error *error) {
    const ups_layout_member whole = builder->members[builder->member_count - 1];
    ups_sample_parameters parameters;
    UPS_TRY(ups_layout_read_sample_parameters(builder, whole.samples, &parameters, error));
    if (parameters.count == 0) return UPS_OK;
    builder->member_count--;
    for (int64_t row = 0; row < whole.samples; row++) {
        ups_layout_member *member;
        UPS_TRY(ups_layout_add_member(builder, &member, error));
        *member = whole;
        member->samples = 1;
        member->first_row = whole.first_row + row;
        ups_layout_give_parameters(builder, &parameters, row, member);
    }
    return UPS_OK;
}

const char *const *ups_layout_told_fields(ups_layout_builder *builder, int64_t channels) {
    static const char between[] = ", ";
    ups_attribute told;
    if (ups_hdf5_read_attribute(builder->file, "", "ups.fields", builder->arena, &told, NULL) != UPS_OK) return NULL;
    if (!told.texts || told.count != 1) return NULL;
    const char **names = UPS_ARENA_ARRAY(builder->arena, const char *, channels);
    char *rest = ups_arena_strdup(builder->arena, told.texts[0]);
    for (int64_t c = 0; c < channels; c++) {
        if (!rest || !*rest) return NULL;
        names[c] = rest;
        rest = strstr(rest, between);
        if (!rest) continue;
        *rest = '\0';
        rest += strlen(between);
    }
    return rest ? NULL : names;
}

const char *const *ups_layout_axis_labels(ups_layout_builder *builder, const char *dataset, int first, int dims) {
    ups_attribute told;
    if (ups_hdf5_read_attribute(builder->file, dataset, "DIMENSION_LABELS", builder->arena, &told, NULL) != UPS_OK)
        return NULL;
    if (!told.texts || told.count < first + dims) return NULL;
    for (int a = first; a < first + dims; a++) {
        if (!told.texts[a][0]) return NULL;
    }
    return told.texts + first;
}

ups_status ups_layout_map(ups_layout_builder *builder, const char *name, int least, int most, const char *meaning,
                          ups_stored_array **array, ups_error *error) {
    if (ups_hdf5_kind_of(builder->file, name) != UPS_HDF5_DATASET)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: dataset '%s' is missing; the layout needs it, with axes %s",
                        builder->path, name, meaning);
    *array = UPS_ARENA_NEW(builder->arena, ups_stored_array);
    UPS_TRY(ups_hdf5_map(builder->file, name, builder->file_index, builder->arena, *array, error));
    if ((*array)->rank < least || (*array)->rank > most)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: dataset '%s' has rank %d; axes %s were expected", builder->path,
                        name, (*array)->rank, meaning);
    for (int axis = 0; axis < (*array)->rank; axis++) {
        if ((*array)->shape[axis] < 1)
            return ups_fail(error, UPS_ERR_FORMAT,
                            "%s: dataset '%s' is empty along axis %d of %s; nothing was written to it", builder->path,
                            name, axis, meaning);
    }
    return UPS_OK;
}

/* What is a float32 becomes the float64 of the same value. */
static void widen_number(uint8_t number[8]) {
    float narrow;
    memcpy(&narrow, number, sizeof narrow);
    const double wide = (double)narrow;
    memcpy(number, &wide, sizeof wide);
}

void ups_layout_widen(const ups_layout_builder *builder, ups_stored_array *array) {
    ups_packing *packing = UPS_ARENA_NEW(builder->arena, ups_packing);
    if (array->packing) *packing = *array->packing;
    if (!array->packing) packing->number = UPS_NUMBER_F32;
    if (array->storage == UPS_STORAGE_LIBRARY && packing->number == UPS_NUMBER_F32) { /* it reads float64 by itself */
        for (int i = 0; i < packing->missing_count; i++) widen_number(packing->missing[i]);
        widen_number(packing->least);
        widen_number(packing->greatest);
        packing->number = UPS_NUMBER_F64;
    }
    array->packing = packing;
    array->dtype = UPS_F64;
}

ups_dtype ups_layout_share_dtype(const ups_layout_builder *builder, ups_stored_array *const *arrays, int count) {
    ups_dtype dtype = UPS_F32;
    for (int a = 0; a < count; a++) {
        if (arrays[a]->dtype == UPS_F64) dtype = UPS_F64;
    }
    for (int a = 0; a < count; a++) {
        if (arrays[a]->dtype != dtype) ups_layout_widen(builder, arrays[a]);
    }
    return dtype;
}

ups_status ups_layout_read_coordinate(ups_layout_builder *builder, const char *name, int64_t length, int64_t spare,
                                      const double **values, ups_error *error) {
    double *read;
    int64_t count;
    UPS_TRY(ups_hdf5_read_axis(builder->file, name, UPS_LAYOUT_LONGEST_AXIS, builder->arena, &read, &count, error));
    if (count < length || count > length + spare)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: coordinate '%s' has %lld entries where the data have %lld%s",
                        builder->path, name, (long long)count, (long long)length,
                        spare ? " (one more is allowed)" : "");
    *values = read;
    return UPS_OK;
}

ups_status ups_layout_read_optional_coordinate(ups_layout_builder *builder, const char *name, int64_t length,
                                               const double **values, ups_error *error) {
    if (ups_hdf5_kind_of(builder->file, name) != UPS_HDF5_DATASET) return UPS_OK;
    return ups_layout_read_coordinate(builder, name, length, 0, values, error);
}

ups_status ups_layout_cut(ups_layout_builder *builder, int64_t first, ups_error *error) {
    const int64_t segment = builder->segment;
    for (int64_t m = first; m < builder->member_count && segment > 0; m++) {
        ups_layout_member *member = &builder->members[m];
        const int64_t times = member->sample.times;
        if (times < segment)
            return ups_fail(error, UPS_ERR_FORMAT,
                            "%s: its trajectories have %lld frames, too few for a segment of %lld; choose a smaller "
                            "`segment`, or leave it out",
                            builder->path, (long long)times, (long long)segment);
        if (member->sample.points && member->sample.points->moving) /* their order is that of the first frame */
            return ups_fail(error, UPS_ERR_UNSUPPORTED,
                            "%s: trajectories of points that move cannot be cut into segments; remove `segment`, or "
                            "save segments as samples",
                            builder->path);
        member->stored_times = times;
        member->segments = times / segment;
        member->sample.times = segment;
        if (__builtin_mul_overflow(member->samples, member->segments, &member->samples))
            member->samples = INT64_MAX; /* which no source has */
    }
    return UPS_OK;
}

const char *ups_layout_name_of_file(const ups_layout_builder *builder) {
    char *path = ups_arena_strdup(builder->arena, builder->path);
    for (size_t length = strlen(path); length > 1 && path[length - 1] == '/';) path[--length] = '\0';
    char *slash = strrchr(path, '/'), *name = slash && slash[1] ? slash + 1 : path, *dot = strrchr(name, '.');
    if (dot && dot > name) *dot = '\0';
    return name;
}

const char *ups_layout_shape_text(ups_arena *arena, int rank, const int64_t *shape) {
    const char *text = "(";
    for (int axis = 0; axis < rank; axis++)
        text = ups_arena_printf(arena, "%s%s%lld", text, axis ? ", " : "", (long long)shape[axis]);
    return ups_arena_printf(arena, "%s)", text);
}
