/* One group a seed, `0000`, `0001`, …, each with `data` (t, x, [y, [z,]] channel), `grid/t`, `grid/x`, …, and the
 * generator's settings as YAML in the attribute `config`: PDEBench's diffusion–sorption, diffusion–reaction and shallow
 * water. None of them wraps around, unless an attribute `bc` of the group says so. Files of `ups rollout` may call
 * their axes other names, which then are labels of the dimensions of `data`. */
#include "pipeline/layouts/source.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool all_digits(const char *name) {
    if (!*name) return false;
    for (; *name; name++) {
        if (!isdigit((unsigned char)*name)) return false;
    }
    return true;
}

/* "0999" before "1000" before "10000": by number, which for digits without leading zeros is by length first. */
static int compare_seeds(const void *first, const void *second) {
    const char *a = *(const char *const *)first, *b = *(const char *const *)second;
    const char *a_digits = a + strspn(a, "0"), *b_digits = b + strspn(b, "0");
    size_t a_length = strlen(a_digits), b_length = strlen(b_digits);
    if (a_length != b_length) return a_length < b_length ? -1 : 1;
    int order = strcmp(a_digits, b_digits);
    return order ? order : strcmp(a, b);
}

/* The seeds among the root's names, sorted; *count = 0 when there are none. */
static ups_status list_seeds(ups_hdf5_file *file, ups_arena *arena, const char ***seeds, int64_t *count,
                             ups_error *error) {
    const char *const *names;
    int64_t name_count;
    UPS_TRY(ups_hdf5_list(file, "", arena, &names, &name_count, error));
    *seeds = UPS_ARENA_ARRAY(arena, const char *, name_count ? name_count : 1);
    *count = 0;
    for (int64_t i = 0; i < name_count; i++) {
        if (all_digits(names[i])) (*seeds)[(*count)++] = names[i];
    }
    qsort(*seeds, (size_t)*count, sizeof **seeds, compare_seeds);
    return UPS_OK;
}

static bool recognises(ups_hdf5_file *file) {
    ups_arena *arena = ups_arena_create(0);
    if (!arena) return false;
    const char **seeds;
    int64_t count = 0;
    bool recognised = list_seeds(file, arena, &seeds, &count, NULL) == UPS_OK && count > 0 &&
                      ups_hdf5_kind_of(file, seeds[0]) == UPS_HDF5_GROUP;
    ups_arena_destroy(arena);
    return recognised;
}

static bool has_parameter(const ups_pde_parameters *parameters, const char *name) {
    for (int i = 0; i < parameters->count; i++) {
        if (strcmp(parameters->list[i].name, name) == 0) return true;
    }
    return false;
}

/* PDEBench's files do not name their channels; the generator's settings tell which equation it was. */
static const char *const *name_channels(const ups_layout_builder *builder, const char *const *told, int64_t channels,
                                        const ups_pde_parameters *parameters) {
    static const char *const single[] = {"u"}, *const depth[] = {"h"};
    static const char *const reaction[] = {"activator", "inhibitor"};
    if (told) return told;
    if (channels == 1) return has_parameter(parameters, "dam_radius") ? depth : single;
    if (channels == 2 && has_parameter(parameters, "Du") && has_parameter(parameters, "Dv")) return reaction;
    if (builder->channels == channels) return builder->channel_names;
    const char **names = UPS_ARENA_ARRAY(builder->arena, const char *, channels);
    for (int64_t c = 0; c < channels; c++) names[c] = ups_arena_printf(builder->arena, "field%lld", (long long)c);
    return names;
}

static ups_status check_channels(const ups_layout_builder *builder, const char *seed, int64_t channels,
                                 ups_error *error) {
    enum { MAX_CHANNELS = 1024 };
    if (channels >= 1 && channels <= MAX_CHANNELS) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s: dataset '%s/data' has %lld channels (its last axis); 1 to %d were expected", builder->path,
                    seed, (long long)channels, MAX_CHANNELS);
}

/* x, y and z, unless the dimensions of `data` have other names and there are coordinates for each. */
static const char *const *name_axes(ups_layout_builder *builder, const char *seed, const char *data, int dims) {
    static const char *const usual[UPS_MAX_GRID_DIMS] = {"x", "y", "z"};
    const char *const *labels = ups_layout_axis_labels(builder, data, 1, dims);
    for (int axis = 0; labels && axis < dims; axis++) {
        const char *grid = ups_arena_printf(builder->arena, "%s/grid/%s", seed, labels[axis]);
        if (ups_hdf5_kind_of(builder->file, grid) != UPS_HDF5_DATASET) return usual;
    }
    return labels ? labels : usual;
}

static ups_status describe_seed(ups_layout_builder *builder, const char *seed, ups_error *error) {
    const char *data_name = ups_arena_printf(builder->arena, "%s/data", seed);
    ups_stored_array *data;
    ups_layout_member *member;
    UPS_TRY(ups_layout_map(builder, data_name, 3, 5, "(t, x, [y, [z,]] channel)", &data, error));
    int dims = data->rank - 2;
    int64_t channels = data->shape[data->rank - 1];
    UPS_TRY(check_channels(builder, seed, channels, error));
    UPS_TRY(ups_layout_add_member(builder, &member, error));
    ups_sample *sample = &member->sample;
    *sample = (ups_sample){.times = data->shape[0],
                           .channels = channels,
                           .dims = dims,
                           .grid = {1, 1, 1},
                           .order = UPS_CHANNELS_LAST,
                           .dtype = data->dtype,
                           .periodic = false};
    member->name = seed;
    member->boundary = "not periodic";
    ups_layout_set_parts(builder, member, &(ups_layout_part){.array = data, .by_time = true, .component_axes = 1}, 1);
    const char *time_name = ups_arena_printf(builder->arena, "%s/grid/t", seed);
    UPS_TRY(ups_layout_read_coordinate(builder, time_name, sample->times, 1, &sample->time, error));
    const char *const *axis_names = name_axes(builder, seed, data_name, dims);
    for (int axis = 0; axis < dims; axis++) {
        sample->grid[axis] = data->shape[1 + axis];
        sample->axis_names[axis] = axis_names[axis];
        const char *name = ups_arena_printf(builder->arena, "%s/grid/%s", seed, axis_names[axis]);
        UPS_TRY(ups_layout_read_coordinate(builder, name, sample->grid[axis], 0, &sample->coordinates[axis], error));
    }
    UPS_TRY(ups_layout_read_description(builder, seed, member, error));
    const char *const *told = ups_layout_told_fields(builder, channels);
    return ups_layout_set_channels(builder, channels, name_channels(builder, told, channels, &member->found), error);
}

static ups_status describe(ups_layout_builder *builder, ups_error *error) {
    const char **seeds;
    int64_t count;
    UPS_TRY(list_seeds(builder->file, builder->arena, &seeds, &count, error));
    for (int64_t i = 0; i < count; i++) UPS_TRY(describe_seed(builder, seeds[i], error));
    return UPS_OK;
}

static const ups_source_class source_class = UPS_LAYOUT_CLASS("pdebench.seedgroup");

const ups_layout ups_layout_seedgroup = {
    .kind = "pdebench.seedgroup",
    .title = "one group a seed",
    .reason = "groups named by seed ('0000', '0001', …), each with a dataset 'data'",
    .looks_for = {"0000", "0000/data"},
    .recognises = recognises,
    .describe = describe,
    .class = &source_class,
};
