/* NetCDF files with time and space dimensions, as the CF conventions name them (cfconventions.org, §4 coordinate
 * types).
 *
 * A dimension's meaning comes from its coordinate variable (`axis`, `standard_name`, units of time), else from its
 * name; one that says nothing is a grid axis, but an unlimited one is time where no other is. Variables over
 * ([sample,] time, 1 to 3 grid axes) become channels; where several grids are in a file, the one of most variables is
 * taken. Variables over that grid without time are channels too, the same in every frame: a topography, a coefficient.
 * Scalars and numeric global attributes become parameters, and so do variables over the sample dimension alone. What is
 * left out is said. Times are seconds, whatever unit of time the file has; dimensions of length 1 before the grid are
 * passed over. */
#include "pipeline/layouts/names.h"
#include "pipeline/layouts/source.h"
#include "pipeline/netcdf/cf.h"
#include "pipeline/netcdf/hdf5.h"
#include "pipeline/netcdf/storage.h"
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <strings.h>

typedef enum dimension_role { ROLE_SPACE, ROLE_TIME, ROLE_SAMPLE } dimension_role;

/* A variable that can be a channel. */
typedef struct field {
    const ups_netcdf_variable *variable;
    int64_t sample, time; /* dimensions, or −1 */
    int unit_axes, dims;
    int64_t grid[UPS_MAX_GRID_DIMS]; /* dimensions */
} field;

typedef struct contents {
    ups_layout_builder *builder;
    ups_netcdf_file *file;
    const ups_netcdf_header *header;
    dimension_role *roles;
    field *fields; /* candidates */
    int64_t field_count;
    field shape; /* that of the channels: dimensions, no variable */
    const ups_netcdf_variable **per_sample;
    int64_t per_sample_count;
    const char *left_out;
} contents;

/* ---- what dimensions mean ------------------------------------------------------------------------------------------
 */

static bool is_one_of(const char *name, const char *const *names) {
    for (; *names; names++) {
        if (strcasecmp(name, *names) == 0) return true;
    }
    return false;
}

static bool numeric(const ups_netcdf_variable *variable) {
    return variable->type != UPS_NETCDF_CHAR && variable->type != UPS_NETCDF_OTHER;
}

/* The variable that gives a dimension's coordinates: it has its name, and that dimension alone. */
static const ups_netcdf_variable *coordinate_of(const ups_netcdf_header *header, int64_t dimension) {
    for (int64_t v = 0; v < header->variable_count; v++) {
        const ups_netcdf_variable *variable = &header->variables[v];
        if (variable->rank == 1 && variable->dimensions[0] == dimension && numeric(variable) &&
            strcmp(variable->name, header->dimensions[dimension].name) == 0)
            return variable;
    }
    return NULL;
}

static const char *text_of(const ups_netcdf_variable *variable, const char *name) {
    const ups_netcdf_attribute *attribute =
        variable ? ups_netcdf_find(variable->attributes, variable->attribute_count, name) : NULL;
    return attribute && attribute->type == UPS_NETCDF_CHAR ? attribute->values : "";
}

static dimension_role role_of(const ups_netcdf_header *header, int64_t dimension, bool *certain) {
    const char *name = header->dimensions[dimension].name;
    const ups_netcdf_variable *coordinate = coordinate_of(header, dimension);
    const char *axis = text_of(coordinate, "axis"), *standard = text_of(coordinate, "standard_name");
    const char *units = text_of(coordinate, "units");
    *certain = true;
    if (strcasecmp(axis, "T") == 0 || strcmp(standard, "time") == 0) return ROLE_TIME;
    if (strcmp(standard, "realization") == 0) return ROLE_SAMPLE;
    if (*axis && strchr("XYZxyz", *axis) && !axis[1]) return ROLE_SPACE;
    if (strstr(units, " since ") && ups_netcdf_seconds(units) > 0) return ROLE_TIME;
    if (ups_name_is_time(name)) return ROLE_TIME;
    if (ups_name_is_sample(name)) return ROLE_SAMPLE;
    if (ups_netcdf_seconds(units) > 0) return ROLE_TIME;
    *certain = *standard;
    return ROLE_SPACE;
}

static void find_roles(contents *in) {
    const ups_netcdf_header *header = in->header;
    in->roles = UPS_ARENA_ARRAY(in->builder->arena, dimension_role, header->dimension_count + 1);
    int64_t unlimited = -1;
    bool has_time = false;
    for (int64_t d = 0; d < header->dimension_count; d++) {
        bool certain;
        in->roles[d] = role_of(header, d, &certain);
        has_time |= in->roles[d] == ROLE_TIME;
        if (header->dimensions[d].unlimited && in->roles[d] == ROLE_SPACE && !certain && unlimited < 0) unlimited = d;
    }
    if (!has_time && unlimited >= 0) in->roles[unlimited] = ROLE_TIME;
}

/* ---- which variables are fields ------------------------------------------------------------------------------------
 */

static bool has_word(const char *text, const char *word) {
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += length) {
        bool begins = at == text || isspace((unsigned char)at[-1]);
        bool ends = !at[length] || isspace((unsigned char)at[length]);
        if (begins && ends) return true;
    }
    return false;
}

static bool names_it(const ups_netcdf_attribute *attributes, int64_t count, const char *name) {
    static const char *const about_others[] = {
        "coordinates",         "bounds",        "climatology", "cell_measures", "grid_mapping",
        "ancillary_variables", "formula_terms", NULL};
    for (int64_t a = 0; a < count; a++) {
        if (attributes[a].type == UPS_NETCDF_CHAR && is_one_of(attributes[a].name, about_others) &&
            has_word(attributes[a].values, name))
            return true;
    }
    return false;
}

/* Coordinates, their bounds, cell areas and the like: they tell about other variables. */
static bool is_auxiliary(const ups_netcdf_header *header, const ups_netcdf_variable *variable) {
    if (variable->rank == 1 && coordinate_of(header, variable->dimensions[0]) == variable) return true;
    if (*text_of(variable, "grid_mapping_name")) return true;
    if (names_it(header->attributes, header->attribute_count, variable->name)) return true;
    for (int64_t v = 0; v < header->variable_count; v++) {
        if (names_it(header->variables[v].attributes, header->variables[v].attribute_count, variable->name))
            return true;
    }
    return false;
}

/* ([sample,] [time,] axes of one entry, 1 to 3 grid axes) */
static bool shape_of(const contents *in, const ups_netcdf_variable *variable, field *found) {
    *found = (field){.variable = variable, .sample = -1, .time = -1};
    int axis = 0, rank = variable->rank;
    if (axis < rank && in->roles[variable->dimensions[axis]] == ROLE_SAMPLE)
        found->sample = variable->dimensions[axis++];
    if (axis < rank && in->roles[variable->dimensions[axis]] == ROLE_TIME) found->time = variable->dimensions[axis++];
    for (int a = axis; a < rank; a++) {
        if (in->roles[variable->dimensions[a]] != ROLE_SPACE) return false;
    }
    for (; axis + 1 < rank && in->header->dimensions[variable->dimensions[axis]].length == 1; axis++)
        found->unit_axes++;
    if (rank - axis < 1 || rank - axis > UPS_MAX_GRID_DIMS || rank > UPS_ARRAY_MAX_RANK) return false;
    for (; axis < rank; axis++) found->grid[found->dims++] = variable->dimensions[axis];
    return true;
}

static bool same_grid(const field *a, const field *b) {
    return a->dims == b->dims && memcmp(a->grid, b->grid, sizeof a->grid) == 0;
}

static void leave_out(contents *in, const ups_netcdf_variable *variable) {
    enum { LONGEST = 400 };
    if (in->left_out && strlen(in->left_out) > LONGEST) return;
    in->left_out = in->left_out ? ups_arena_printf(in->builder->arena, "%s, %s", in->left_out, variable->name)
                                : ups_arena_strdup(in->builder->arena, variable->name);
}

/* Sorts variables into candidates, numbers of each sample, and the rest. */
static void find_fields(contents *in) {
    const ups_netcdf_header *header = in->header;
    in->fields = UPS_ARENA_ARRAY(in->builder->arena, field, header->variable_count + 1);
    in->per_sample = UPS_ARENA_ARRAY(in->builder->arena, const ups_netcdf_variable *, header->variable_count + 1);
    for (int64_t v = 0; v < header->variable_count; v++) {
        const ups_netcdf_variable *variable = &header->variables[v];
        if (variable->rank == 0 || is_auxiliary(header, variable)) continue;
        if (numeric(variable) && shape_of(in, variable, &in->fields[in->field_count])) {
            in->field_count++;
        } else if (numeric(variable) && variable->rank == 1 && in->roles[variable->dimensions[0]] == ROLE_SAMPLE) {
            in->per_sample[in->per_sample_count++] = variable;
        } else {
            leave_out(in, variable);
        }
    }
}

/* The grid and time that most variables share; of several, the first. */
static bool choose_shape(contents *in) {
    int64_t most = 0;
    for (int64_t f = 0; f < in->field_count; f++) {
        const field *one = &in->fields[f];
        if (one->time < 0) continue;
        int64_t alike = 0, sample = -1;
        for (int64_t g = 0; g < in->field_count; g++) {
            const field *other = &in->fields[g];
            if (other->time != one->time || !same_grid(one, other)) continue;
            alike++;
            if (sample < 0) sample = other->sample;
        }
        if (alike <= most) continue;
        most = alike;
        in->shape = *one;
        in->shape.sample = sample;
    }
    return most > 0;
}

/* Keeps the fields of the chosen shape: first those that change in time. */
static void keep_fields(contents *in) {
    field *kept = UPS_ARENA_ARRAY(in->builder->arena, field, in->field_count + 1);
    int64_t count = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t f = 0; f < in->field_count; f++) {
            const field *one = &in->fields[f];
            bool fits = same_grid(one, &in->shape) && (one->sample < 0 || one->sample == in->shape.sample) &&
                        (one->time < 0 || one->time == in->shape.time);
            if (fits && (one->time < 0) == pass) kept[count++] = *one;
            if (!fits && pass == 0) leave_out(in, one->variable);
        }
    }
    in->fields = kept;
    in->field_count = count;
}

/* ---- saying why not ------------------------------------------------------------------------------------------------
 */

static const char *list_dimensions(const contents *in, const ups_netcdf_variable *variable) {
    const char *text = "(";
    for (int axis = 0; axis < variable->rank; axis++)
        text = ups_arena_printf(in->builder->arena, "%s%s%s", text, axis ? ", " : "",
                                in->header->dimensions[variable->dimensions[axis]].name);
    return ups_arena_printf(in->builder->arena, "%s)", text);
}

/* Names the variables with their dimensions, and what was wanted. */
static ups_status fail_without_fields(const contents *in, ups_error *error) {
    enum { MAX_SHOWN = 6 };
    const char *found = NULL;
    int shown = 0;
    for (int64_t v = 0; v < in->header->variable_count && shown < MAX_SHOWN; v++) {
        const ups_netcdf_variable *variable = &in->header->variables[v];
        if (variable->rank == 0 || is_auxiliary(in->header, variable)) continue;
        found = ups_arena_printf(in->builder->arena, "%s%s%.64s %s", found ? found : "", found ? ", " : "",
                                 variable->name, list_dimensions(in, variable));
        shown++;
    }
    if (!found)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s is a NetCDF file, but it holds no variable with fields in its root group",
                        in->builder->path);
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s is a NetCDF file, but no variable of numbers has dimensions ([sample,] time, one to three grid "
                    "axes), in that order. It has %.500s. Time is recognised by `axis` = T, standard_name, units, or "
                    "the name 'time' or 't'; reorder dimensions with `ncpdq -a`",
                    in->builder->path, found);
}

/* ---- making members ------------------------------------------------------------------------------------------------
 */

static int64_t length_of(const contents *in, int64_t dimension) {
    return in->header->dimensions[dimension].length;
}

static ups_status check_lengths(const contents *in, ups_error *error) {
    const field *shape = &in->shape;
    int64_t dimensions[UPS_MAX_GRID_DIMS + 2] = {shape->time};
    int count = 1;
    if (shape->sample >= 0) dimensions[count++] = shape->sample;
    for (int a = 0; a < shape->dims; a++) dimensions[count++] = shape->grid[a];
    for (int d = 0; d < count; d++) {
        if (length_of(in, dimensions[d]) < 1)
            return ups_fail(error, UPS_ERR_FORMAT, "%s: dimension '%s' has length 0; nothing was written along it",
                            in->builder->path, in->header->dimensions[dimensions[d]].name);
    }
    return UPS_OK;
}

/* A dimension's coordinates, or NULL when it has none. */
static ups_status read_coordinate(contents *in, int64_t dimension, double **values, ups_error *error) {
    *values = NULL;
    const ups_netcdf_variable *variable = coordinate_of(in->header, dimension);
    if (!variable) return UPS_OK;
    int64_t count;
    UPS_TRY(ups_netcdf_read(in->file, variable, UPS_LAYOUT_LONGEST_AXIS, in->builder->arena, values, &count, error));
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite((*values)[i]))
            return ups_fail(error, UPS_ERR_FORMAT,
                            "%s: coordinate '%s' has no number at entry %lld (missing, or never written)",
                            in->builder->path, variable->name, (long long)i);
    }
    return UPS_OK;
}

/* In seconds; without a coordinate variable frames are counted. */
static ups_status read_time(contents *in, const double **time, ups_error *error) {
    int64_t count = length_of(in, in->shape.time);
    double *values;
    UPS_TRY(read_coordinate(in, in->shape.time, &values, error));
    if (!values) {
        if (count > UPS_LAYOUT_LONGEST_AXIS)
            return ups_fail(error, UPS_ERR_FORMAT, "%s has %lld frames; at most %d make sense", in->builder->path,
                            (long long)count, UPS_LAYOUT_LONGEST_AXIS);
        values = UPS_ARENA_ARRAY(in->builder->arena, double, count);
        for (int64_t i = 0; i < count; i++) values[i] = (double)i;
    } else {
        double seconds = ups_netcdf_seconds(text_of(coordinate_of(in->header, in->shape.time), "units"));
        for (int64_t i = 0; seconds > 0 && i < count; i++) values[i] *= seconds;
    }
    *time = values;
    return UPS_OK;
}

/* All channels in one type: the widest. */
static ups_dtype common_dtype(const contents *in) {
    for (int64_t f = 0; f < in->field_count; f++) {
        if (ups_netcdf_dtype(in->fields[f].variable) == UPS_F64) return UPS_F64;
    }
    return UPS_F32;
}

static ups_status map_parts(contents *in, ups_dtype dtype, ups_layout_part *parts, ups_error *error) {
    const char *names[UPS_LAYOUT_MAX_ARRAYS];
    for (int64_t f = 0; f < in->field_count; f++) {
        const field *one = &in->fields[f];
        ups_stored_array *array = UPS_ARENA_NEW(in->builder->arena, ups_stored_array);
        UPS_TRY(
            ups_netcdf_map(in->file, one->variable, dtype, in->builder->file_index, in->builder->arena, array, error));
        names[f] = one->variable->name;
        parts[f] = (ups_layout_part){.array = array,
                                     .by_sample = one->sample >= 0,
                                     .by_time = one->time >= 0,
                                     .unit_axes = one->unit_axes,
                                     .first_channel = f};
    }
    return ups_layout_set_channels(in->builder, in->field_count, names, error);
}

/* Scalars and global attributes: what the whole file has in common. */
static ups_status read_parameters(contents *in, ups_pde_parameters *parameters, ups_error *error) {
    const ups_netcdf_header *header = in->header;
    for (int64_t a = 0; a < header->attribute_count; a++) {
        const ups_netcdf_attribute *attribute = &header->attributes[a];
        if (attribute->type == UPS_NETCDF_CHAR) {
            if (strcmp(attribute->name, "config") == 0) ups_pde_parameters_from_yaml(parameters, attribute->values);
        } else if (attribute->count == 1 && attribute->name[0] != '_') {
            ups_pde_parameters_add(parameters, attribute->name, ups_netcdf_number(attribute, 0));
        }
    }
    for (int64_t v = 0; v < header->variable_count; v++) {
        const ups_netcdf_variable *variable = &header->variables[v];
        if (variable->rank > 0 || !numeric(variable) || is_auxiliary(header, variable)) continue;
        double *value;
        int64_t count;
        UPS_TRY(ups_netcdf_read(in->file, variable, 1, in->builder->arena, &value, &count, error));
        ups_pde_parameters_add(parameters, variable->name, value[0]);
    }
    return UPS_OK;
}

/* One member for all samples, or one each where their parameters differ. */
static ups_status add_members(contents *in, const ups_sample *sample, const ups_layout_part *parts, ups_error *error) {
    ups_layout_builder *builder = in->builder;
    int64_t samples = in->shape.sample >= 0 ? length_of(in, in->shape.sample) : 1;
    const char *name = ups_layout_name_of_file(builder);
    double **values = UPS_ARENA_ARRAY(builder->arena, double *, in->per_sample_count + 1);
    int64_t kept = 0;
    for (int64_t p = 0; p < in->per_sample_count; p++) {
        int64_t count;
        const ups_netcdf_variable *variable = in->per_sample[p];
        if (variable->dimensions[0] != in->shape.sample) {
            leave_out(in, variable);
            continue;
        }
        UPS_TRY(
            ups_netcdf_read(in->file, variable, UPS_LAYOUT_LONGEST_AXIS, builder->arena, &values[kept], &count, error));
        in->per_sample[kept++] = variable;
    }
    ups_pde_parameters common = {.arena = builder->arena};
    UPS_TRY(read_parameters(in, &common, error));
    int64_t members = kept ? samples : 1;
    for (int64_t m = 0; m < members; m++) {
        ups_layout_member *member;
        UPS_TRY(ups_layout_add_member(builder, &member, error));
        member->sample = *sample;
        member->name = name;
        member->numbered = in->shape.sample >= 0;
        member->samples = samples / members;
        member->first_row = m;
        if (m == 0) {
            ups_layout_set_parts(builder, member, parts, (int)in->field_count);
        } else {
            member->parts = member[-1].parts;
            member->part_count = member[-1].part_count;
        }
        for (int64_t p = 0; p < kept; p++)
            ups_pde_parameters_add(&member->found, in->per_sample[p]->name, values[p][m]);
        for (int p = 0; p < common.count; p++)
            ups_pde_parameters_add(&member->found, common.list[p].name, common.list[p].value);
    }
    return UPS_OK;
}

static ups_status describe_fields(contents *in, ups_error *error) {
    find_roles(in);
    find_fields(in);
    if (!choose_shape(in)) return fail_without_fields(in, error);
    keep_fields(in);
    UPS_TRY(check_lengths(in, error));
    if (in->field_count > UPS_LAYOUT_MAX_ARRAYS)
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "%s has %lld fields on one grid; up to %d can be read together",
                        in->builder->path, (long long)in->field_count, UPS_LAYOUT_MAX_ARRAYS);
    ups_layout_part parts[UPS_LAYOUT_MAX_ARRAYS];
    ups_sample sample = {.times = length_of(in, in->shape.time),
                         .channels = in->field_count,
                         .dims = in->shape.dims,
                         .grid = {1, 1, 1},
                         .order = UPS_CHANNELS_FIRST,
                         .dtype = common_dtype(in)};
    UPS_TRY(map_parts(in, sample.dtype, parts, error));
    UPS_TRY(read_time(in, &sample.time, error));
    for (int axis = 0; axis < sample.dims; axis++) {
        double *values;
        sample.grid[axis] = length_of(in, in->shape.grid[axis]);
        UPS_TRY(read_coordinate(in, in->shape.grid[axis], &values, error));
        sample.coordinates[axis] = values;
        sample.axis_names[axis] =
            ups_arena_strdup(in->builder->arena, in->header->dimensions[in->shape.grid[axis]].name);
        const char *units = text_of(coordinate_of(in->header, in->shape.grid[axis]), "units");
        if (*units) sample.axis_units[axis] = ups_arena_strdup(in->builder->arena, units);
    }
    if (ups_netcdf_seconds(text_of(coordinate_of(in->header, in->shape.time), "units")) > 0) sample.time_units = "s";
    UPS_TRY(add_members(in, &sample, parts, error));
    if (in->left_out)
        in->builder->left_out = ups_arena_printf(in->builder->arena, "variables on other dimensions: %s", in->left_out);
    return UPS_OK;
}

static bool recognises(ups_hdf5_file *file) {
    return ups_netcdf_hdf5_recognises(file);
}

static ups_status describe(ups_layout_builder *builder, ups_error *error) {
    contents in = {.builder = builder};
    if (builder->file) {
        UPS_TRY(ups_netcdf_open_hdf5(builder->file, &in.file, error));
    } else {
        if (builder->through_library)
            return ups_fail(error, UPS_ERR_UNSUPPORTED,
                            "%s is a classic NetCDF file, which UPS reads by itself and never through a library: "
                            "choose another way of reading",
                            builder->path);
        UPS_TRY(ups_netcdf_open(builder->path, &in.file, error));
    }
    in.header = ups_netcdf_contents(in.file);
    ups_status status = describe_fields(&in, error);
    ups_netcdf_close(in.file); /* what lives on is in the builder's arena */
    return status;
}

static const ups_source_class source_class = UPS_LAYOUT_CLASS("netcdf");

const ups_layout ups_layout_netcdf = {
    .kind = "netcdf",
    .title = "NetCDF",
    .reason = "a NetCDF file with variables over a time dimension and one to three grid axes",
    .recognises = recognises,
    .describe = describe,
    .class = &source_class,
};
