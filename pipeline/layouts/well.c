/* The Well's layout (Ohana et al., arXiv 2412.00568; docs/data_format.md of PolymathicAI/the_well), which PDEBench's
 * and other collections are offered in as well:
 *
 *   attributes `n_trajectories`, `simulation_parameters` (names of further attributes), `grid_type`, …
 *   dimensions/          `time` ([sample,] t) and one coordinate ([sample,] n) for each name in the attribute
 * `spatial_dims` t0_fields/ t1_fields/ t2_fields/ scalar, vector and tensor fields ([sample,] [t,] x[, y[, z]][,
 * component[, component]]); the attributes `sample_varying`, `time_varying` and `dim_varying` say which axes one has
 *   scalars/             numbers ([sample,] [t])
 *   boundary_conditions/ groups with `bc_type` (periodic, wall, open) and `associated_dims`
 *
 * Every component becomes a channel: `velocity_x`, `stress_xy`. Fields that lack an axis are repeated along it. Scalars
 * that change in time are neither fields nor parameters and are left out, which `left_out` says. */
#include "pipeline/layouts/source.h"

#include <math.h>
#include <string.h>
#include <strings.h>

enum { MAX_CHANNELS = 1024, ORDERS = 3 };

static const char *const field_groups[ORDERS] = {"t0_fields", "t1_fields", "t2_fields"};

static bool recognises(ups_hdf5_file *file) {
    bool fields = false;
    for (int order = 0; order < ORDERS; order++)
        fields |= ups_hdf5_kind_of(file, field_groups[order]) == UPS_HDF5_GROUP;
    return fields && ups_hdf5_kind_of(file, "dimensions") == UPS_HDF5_GROUP;
}

/* What is known of a file while it is described. */
typedef struct well {
    ups_layout_builder *builder;
    int64_t trajectories, times;
    int dims;
    const char *const *axis_names; /* (dims) */
    int64_t grid[UPS_MAX_GRID_DIMS];
    ups_numbers time, coordinates[UPS_MAX_GRID_DIMS]; /* rank 2 where they vary by sample */
    ups_layout_part parts[UPS_LAYOUT_MAX_ARRAYS];
    int part_count;
    const char *channel_names[MAX_CHANNELS];
    int64_t channels;
    const char *boundary;
    bool periodic;
} well;

/* ---- attributes ---------------------------------------------------------------------------------------------------
 */

/* A truth value; `otherwise` where the attribute is missing. */
static ups_status read_flag(const well *w, const char *object, const char *name, bool otherwise, bool *flag,
                            ups_error *error) {
    ups_attribute attribute;
    UPS_TRY(ups_hdf5_read_attribute(w->builder->file, object, name, w->builder->arena, &attribute, error));
    *flag = attribute.numbers && attribute.count == 1 ? attribute.numbers[0] != 0 : otherwise;
    return UPS_OK;
}

/* Names that a group lists in `field_names`, or those of its members where it does not. */
static ups_status list_fields(const well *w, const char *group, const char *const **names, int64_t *count,
                              ups_error *error) {
    *count = 0;
    if (ups_hdf5_kind_of(w->builder->file, group) != UPS_HDF5_GROUP) return UPS_OK;
    ups_attribute attribute;
    UPS_TRY(ups_hdf5_read_attribute(w->builder->file, group, "field_names", w->builder->arena, &attribute, error));
    if (!attribute.present) return ups_hdf5_list(w->builder->file, group, w->builder->arena, names, count, error);
    *names = attribute.texts;
    *count = attribute.texts ? attribute.count : 0;
    return UPS_OK;
}

static ups_status read_trajectory_count(well *w, ups_error *error) {
    ups_attribute attribute;
    UPS_TRY(ups_hdf5_read_attribute(w->builder->file, "", "n_trajectories", w->builder->arena, &attribute, error));
    double count = attribute.numbers && attribute.count == 1 ? attribute.numbers[0] : 0;
    if (!(count >= 1 && count <= UPS_LAYOUT_MAX_SAMPLES && count == floor(count)))
        return ups_fail(
            error, UPS_ERR_FORMAT,
            "%s: the attribute 'n_trajectories' of the root is %s; The Well's layout needs it, from 1 to %d",
            w->builder->path, attribute.present ? "no such number" : "missing", UPS_LAYOUT_MAX_SAMPLES);
    w->trajectories = (int64_t)count;
    return UPS_OK;
}

/* ---- dimensions ---------------------------------------------------------------------------------------------------
 */

/* Reads `dimensions/NAME`, (n) or (sample, n). */
static ups_status read_dimension(const well *w, const char *name, ups_numbers *numbers, ups_error *error) {
    const char *path = ups_arena_printf(w->builder->arena, "dimensions/%s", name);
    UPS_TRY(ups_hdf5_read_numbers(w->builder->file, path, UPS_LAYOUT_LONGEST_AXIS, w->builder->arena, numbers, error));
    bool fits = numbers->rank == 1 || (numbers->rank == 2 && numbers->shape[0] == w->trajectories);
    if (fits && numbers->count > 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s: '%s' has shape %s; one list, or one for each of %lld trajectories, was expected",
                    w->builder->path, path, ups_layout_shape_text(w->builder->arena, numbers->rank, numbers->shape),
                    (long long)w->trajectories);
}

static ups_status read_dimensions(well *w, ups_error *error) {
    ups_attribute names;
    UPS_TRY(ups_hdf5_read_attribute(w->builder->file, "dimensions", "spatial_dims", w->builder->arena, &names, error));
    if (!names.texts || names.count > UPS_MAX_GRID_DIMS)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: the attribute 'spatial_dims' of 'dimensions' names %lld axes; 1 to %d names were expected",
                        w->builder->path, (long long)(names.texts ? names.count : 0), UPS_MAX_GRID_DIMS);
    w->dims = (int)names.count;
    w->axis_names = names.texts;
    UPS_TRY(read_dimension(w, "time", &w->time, error));
    w->times = w->time.shape[w->time.rank - 1];
    for (int axis = 0; axis < UPS_MAX_GRID_DIMS; axis++) w->grid[axis] = 1;
    for (int axis = 0; axis < w->dims; axis++) {
        UPS_TRY(read_dimension(w, names.texts[axis], &w->coordinates[axis], error));
        w->grid[axis] = w->coordinates[axis].shape[w->coordinates[axis].rank - 1];
    }
    return UPS_OK;
}

/* Row `sample` of numbers that may vary by sample. */
static const double *row_of(const ups_numbers *numbers, int64_t sample) {
    return numbers->values + (numbers->rank == 2 ? sample * numbers->shape[1] : 0);
}

/* ---- fields -------------------------------------------------------------------------------------------------------
 */

/* Which axes a field has, by its attributes; `expected` becomes the shape that they say. */
static ups_status read_axes(const well *w, const char *path, int order, ups_layout_part *part, int64_t *expected,
                            int *rank, ups_error *error) {
    ups_attribute varying;
    *rank = 0;
    UPS_TRY(read_flag(w, path, "sample_varying", true, &part->by_sample, error));
    UPS_TRY(read_flag(w, path, "time_varying", true, &part->by_time, error));
    UPS_TRY(ups_hdf5_read_attribute(w->builder->file, path, "dim_varying", w->builder->arena, &varying, error));
    if (part->by_sample) expected[(*rank)++] = w->trajectories;
    if (part->by_time) expected[(*rank)++] = w->times;
    for (int axis = 0; axis < w->dims; axis++) {
        part->repeated[axis] = varying.numbers && axis < varying.count && varying.numbers[axis] == 0;
        if (!part->repeated[axis]) expected[(*rank)++] = w->grid[axis];
    }
    for (int component = 0; component < order; component++) expected[(*rank)++] = w->dims;
    part->component_axes = order;
    return UPS_OK;
}

/* "velocity" → velocity_x, velocity_y; "stress" → stress_xx, stress_xy, … */
static void name_components(well *w, const char *name, int order) {
    int64_t count = 1;
    for (int component = 0; component < order; component++) count *= w->dims;
    for (int64_t c = 0; c < count; c++) {
        ups_arena *arena = w->builder->arena;
        const char *last = w->axis_names[c % w->dims], *first = w->axis_names[c / w->dims];
        w->channel_names[w->channels++] = order == 0   ? name
                                          : order == 1 ? ups_arena_printf(arena, "%s_%s", name, last)
                                                       : ups_arena_printf(arena, "%s_%s%s", name, first, last);
    }
}

static ups_status add_field(well *w, const char *name, int order, ups_error *error) {
    ups_layout_builder *builder = w->builder;
    if (w->part_count == UPS_LAYOUT_MAX_ARRAYS || w->channels + 9 > MAX_CHANNELS)
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "%s: more than %d fields are not read", builder->path,
                        UPS_LAYOUT_MAX_ARRAYS);
    const char *path = ups_arena_printf(builder->arena, "%s/%s", field_groups[order], name);
    ups_layout_part *part = &w->parts[w->part_count];
    ups_stored_array *array;
    int64_t expected[2 + UPS_MAX_GRID_DIMS + ORDERS];
    int rank;
    UPS_TRY(ups_layout_map(builder, path, 1, UPS_ARRAY_MAX_RANK, "([sample,] [t,] x, …)", &array, error));
    *part = (ups_layout_part){.array = array, .first_channel = w->channels};
    UPS_TRY(read_axes(w, path, order, part, expected, &rank, error));
    if (array->rank != rank || memcmp(array->shape, expected, (size_t)rank * sizeof *expected) != 0)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: '%s' has shape %s; by its attributes and the file's dimensions it should be %s",
                        builder->path, path, ups_layout_shape_text(builder->arena, array->rank, array->shape),
                        ups_layout_shape_text(builder->arena, rank, expected));
    if (array->dtype != w->parts[0].array->dtype)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: '%s' is %s and '%s' is %s; store all fields in one type",
                        builder->path, w->parts[0].array->name, ups_dtype_name(w->parts[0].array->dtype), path,
                        ups_dtype_name(array->dtype));
    w->part_count++;
    name_components(w, name, order);
    return UPS_OK;
}

static ups_status map_fields(well *w, ups_error *error) {
    for (int order = 0; order < ORDERS; order++) {
        const char *const *names;
        int64_t count;
        UPS_TRY(list_fields(w, field_groups[order], &names, &count, error));
        for (int64_t i = 0; i < count; i++) UPS_TRY(add_field(w, names[i], order, error));
    }
    if (w->part_count > 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT, "%s: 't0_fields', 't1_fields' and 't2_fields' hold no field",
                    w->builder->path);
}

/* ---- parameters ---------------------------------------------------------------------------------------------------
 */

static void leave_out(const well *w, const char *name, const char *why) {
    ups_layout_builder *builder = w->builder;
    const char *entry = ups_arena_printf(builder->arena, "scalars/%s (%s)", name, why);
    builder->left_out =
        builder->left_out ? ups_arena_printf(builder->arena, "%s, %s", builder->left_out, entry) : entry;
}

/* One of `scalars`: a value for all trajectories, or one for each. */
static ups_status add_scalar(const well *w, const char *name, ups_pde_parameters *shared, ups_pde_parameters *by_sample,
                             ups_error *error) {
    const char *path = ups_arena_printf(w->builder->arena, "scalars/%s", name);
    if (ups_hdf5_kind_of(w->builder->file, path) != UPS_HDF5_DATASET)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: dataset '%s' is missing, though 'scalars' lists it",
                        w->builder->path, path);
    bool sample_varying, time_varying;
    UPS_TRY(read_flag(w, path, "sample_varying", false, &sample_varying, error));
    UPS_TRY(read_flag(w, path, "time_varying", false, &time_varying, error));
    if (time_varying) {
        leave_out(w, name, "changes in time");
        return UPS_OK;
    }
    ups_numbers numbers;
    ups_error reason = {0};
    if (ups_hdf5_read_numbers(w->builder->file, path, UPS_LAYOUT_MAX_SAMPLES, w->builder->arena, &numbers, &reason) !=
        UPS_OK) {
        leave_out(w, name, "no number");
        return UPS_OK;
    }
    if (!sample_varying && numbers.count == 1) {
        ups_pde_parameters_add(shared, name, numbers.values[0]);
    } else if (sample_varying && numbers.count == w->trajectories) {
        for (int64_t s = 0; s < w->trajectories; s++) ups_pde_parameters_add(&by_sample[s], name, numbers.values[s]);
    } else {
        leave_out(w, name, "more than one number");
    }
    return UPS_OK;
}

/* `shared` are parameters of all trajectories, by_sample (trajectories) what each has beyond them. */
static ups_status read_parameters(const well *w, ups_pde_parameters *shared, ups_pde_parameters *by_sample,
                                  ups_error *error) {
    ups_attribute names, value;
    UPS_TRY(ups_hdf5_read_attribute(w->builder->file, "", "simulation_parameters", w->builder->arena, &names, error));
    const char *const *scalars;
    int64_t count;
    UPS_TRY(list_fields(w, "scalars", &scalars, &count, error));
    for (int64_t i = 0; i < count; i++) UPS_TRY(add_scalar(w, scalars[i], shared, by_sample, error));
    for (int64_t i = 0; names.texts && i < names.count; i++) {
        if (ups_hdf5_read_attribute(w->builder->file, "", names.texts[i], w->builder->arena, &value, NULL) != UPS_OK)
            continue; /* neither number nor text: no parameter that a model could take */
        if (value.numbers && value.count == 1) ups_pde_parameters_add(shared, names.texts[i], value.numbers[0]);
    }
    return UPS_OK;
}

/* ---- boundary conditions ------------------------------------------------------------------------------------------
 */

static const char *lower(ups_arena *arena, const char *text) {
    char *copy = ups_arena_strdup(arena, text);
    for (char *c = copy; *c; c++) {
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    }
    return copy;
}

/* Adds a condition's type to the axes it belongs to. */
static ups_status read_condition(const well *w, const char *name, const char *types[UPS_MAX_GRID_DIMS],
                                 ups_error *error) {
    ups_layout_builder *builder = w->builder;
    const char *path = ups_arena_printf(builder->arena, "boundary_conditions/%s", name);
    ups_attribute type, axes;
    if (ups_hdf5_kind_of(builder->file, path) != UPS_HDF5_GROUP) return UPS_OK;
    UPS_TRY(ups_hdf5_read_attribute(builder->file, path, "bc_type", builder->arena, &type, error));
    UPS_TRY(ups_hdf5_read_attribute(builder->file, path, "associated_dims", builder->arena, &axes, error));
    for (int axis = 0; type.texts && axis < w->dims; axis++) {
        for (int64_t i = 0; axes.texts && i < axes.count; i++) {
            if (strcmp(axes.texts[i], w->axis_names[axis]) != 0) continue;
            const char *text = lower(builder->arena, type.texts[0]);
            if (types[axis] && strcmp(types[axis], text) == 0) continue;
            types[axis] = types[axis] ? ups_arena_printf(builder->arena, "%s and %s", types[axis], text) : text;
        }
    }
    return UPS_OK;
}

/* The domain counts as periodic when all its axes are; an axis without a condition is open, as The Well has it. */
static ups_status read_boundary(well *w, ups_error *error) {
    const char *types[UPS_MAX_GRID_DIMS] = {NULL};
    const char *const *names;
    int64_t count;
    ups_arena *arena = w->builder->arena;
    w->boundary = "not said";
    if (ups_hdf5_kind_of(w->builder->file, "boundary_conditions") != UPS_HDF5_GROUP) return UPS_OK;
    UPS_TRY(ups_hdf5_list(w->builder->file, "boundary_conditions", arena, &names, &count, error));
    for (int64_t i = 0; i < count; i++) UPS_TRY(read_condition(w, names[i], types, error));
    bool alike = true;
    const char *text = "";
    for (int axis = 0; axis < w->dims; axis++) {
        if (!types[axis]) types[axis] = "open";
        alike &= strcmp(types[axis], types[0]) == 0;
        text = ups_arena_printf(arena, "%s%s%s in %s", text, axis ? ", " : "", types[axis], w->axis_names[axis]);
    }
    w->boundary = alike ? types[0] : text;
    w->periodic = alike && strcmp(types[0], "periodic") == 0;
    return UPS_OK;
}

/* ---- all of it ----------------------------------------------------------------------------------------------------
 */

static ups_sample sample_of(const well *w, int64_t trajectory) {
    ups_sample sample = {.times = w->times,
                         .channels = w->channels,
                         .dims = w->dims,
                         .grid = {w->grid[0], w->grid[1], w->grid[2]},
                         .order = UPS_CHANNELS_FIRST,
                         .dtype = w->parts[0].array->dtype,
                         .periodic = w->periodic,
                         .time = row_of(&w->time, trajectory)};
    for (int axis = 0; axis < w->dims; axis++) {
        sample.coordinates[axis] = row_of(&w->coordinates[axis], trajectory);
        sample.axis_names[axis] = w->axis_names[axis];
    }
    return sample;
}

/* One member for all trajectories, or one for each where they differ in more than their fields. */
static ups_status add_members(const well *w, const ups_pde_parameters *shared, const ups_pde_parameters *by_sample,
                              ups_error *error) {
    bool differ = by_sample[0].count > 0 || w->time.rank == 2;
    for (int axis = 0; axis < w->dims; axis++) differ |= w->coordinates[axis].rank == 2;
    const ups_layout_part *parts = NULL;
    for (int64_t s = 0; s < (differ ? w->trajectories : 1); s++) {
        ups_layout_member *member;
        UPS_TRY(ups_layout_add_member(w->builder, &member, error));
        member->sample = sample_of(w, s);
        member->name = "trajectory";
        member->numbered = true;
        member->first_row = s;
        member->samples = differ ? 1 : w->trajectories;
        member->boundary = w->boundary;
        if (s == 0) ups_layout_set_parts(w->builder, member, w->parts, w->part_count);
        if (s == 0) parts = member->parts;
        member->parts = parts;
        member->part_count = w->part_count;
        for (int i = 0; i < by_sample[s].count; i++)
            ups_pde_parameters_add(&member->found, by_sample[s].list[i].name, by_sample[s].list[i].value);
        for (int i = 0; i < shared->count; i++)
            ups_pde_parameters_add(&member->found, shared->list[i].name, shared->list[i].value);
    }
    return UPS_OK;
}

static ups_status describe(ups_layout_builder *builder, ups_error *error) {
    well *w = UPS_ARENA_NEW(builder->arena, well);
    w->builder = builder;
    UPS_TRY(read_trajectory_count(w, error));
    UPS_TRY(read_dimensions(w, error));
    UPS_TRY(map_fields(w, error));
    UPS_TRY(read_boundary(w, error));
    UPS_TRY(ups_layout_set_channels(builder, w->channels, w->channel_names, error));
    ups_pde_parameters shared = {.arena = builder->arena};
    ups_pde_parameters *by_sample = UPS_ARENA_ARRAY(builder->arena, ups_pde_parameters, w->trajectories);
    for (int64_t s = 0; s < w->trajectories; s++) by_sample[s].arena = builder->arena;
    UPS_TRY(read_parameters(w, &shared, by_sample, error));
    return add_members(w, &shared, by_sample, error);
}

static const ups_source_class source_class = UPS_LAYOUT_CLASS("the_well");

const ups_layout ups_layout_well = {
    .kind = "the_well",
    .title = "The Well",
    .reason = "groups 'dimensions' and 't0_fields', 't1_fields' or 't2_fields'",
    .looks_for = {"dimensions", "t0_fields", "t1_fields", "t2_fields", "boundary_conditions"},
    .recognises = recognises,
    .describe = describe,
    .class = &source_class,
};
