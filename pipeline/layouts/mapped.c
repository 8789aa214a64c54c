/* Any file of arrays, by a mapping that says what they are (mapping.h, docs/own-data.md): fields in one array or in
 * several, axes in any order, one trajectory a file or many. Becomes (t, channel, …) with the grid's axes in the order
 * that the mapping names them, or (t, …, channel) where one array keeps the channels last and is taken whole.
 *
 * A steady problem, without an axis of time, becomes two frames, as PDEBench's Darcy flow does (darcy.c): what is given
 * with zeros, then with the solution. The zeros are not stored.
 *
 * Nothing is guessed here. What a mapping says is held against the file: names, ranks, lengths. */
#include "pipeline/layouts/source.h"

#include <math.h>
#include <string.h>
#include <strings.h>

/* A field's array, with its axes in the order in which they are stored. */
typedef struct mapped_array {
    const char *name;
    ups_found_array found;
    ups_mapped_axes axes;
} mapped_array;

typedef struct mapped {
    ups_layout_builder *builder;
    const ups_mapping *mapping;
    int array_count, part_count;
    mapped_array arrays[UPS_LAYOUT_MAX_ARRAYS];
    int array_of[UPS_LAYOUT_MAX_ARRAYS]; /* of each field */
    ups_layout_part parts[UPS_LAYOUT_MAX_ARRAYS];
    int64_t samples, times, grid[UPS_MAX_GRID_DIMS]; /* 0: not known yet */
    bool by_sample;
} mapped;

/* ---- arrays --------------------------------------------------------------------------------------------------------
 */

static int64_t user_length(const ups_found_array *found, int axis) {
    for (int stored = 0; stored < found->array->rank; stored++) {
        if (found->axis_of[stored] == axis) return found->array->shape[stored];
    }
    return 0;
}

static const char *user_shape(const mapped *m, const ups_found_array *found) {
    int64_t shape[UPS_ARRAY_MAX_RANK];
    for (int axis = 0; axis < found->array->rank; axis++) shape[axis] = user_length(found, axis);
    return ups_layout_shape_text(m->builder->arena, found->array->rank, shape);
}

static const char *axes_text(const mapped *m, const ups_mapped_axes *axes) {
    static const char *const names[] = {"sample", "time", "channel", "_"};
    const char *text = "[";
    for (int axis = 0; axis < axes->count; axis++)
        text = ups_arena_printf(m->builder->arena, "%s%s%s", text, axis ? ", " : "",
                                axes->role[axis] == UPS_MAPPED_GRID ? m->mapping->grid[axes->dim[axis]]
                                                                    : names[axes->role[axis]]);
    return ups_arena_printf(m->builder->arena, "%s]", text);
}

/* A length must be what other arrays have; the first to tell it decides. */
static ups_status agree(const mapped *m, const mapped_array *array, const char *axis, int64_t length, int64_t *known,
                        ups_error *error) {
    if (length < 1)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: '%s' is empty along its axis %s; nothing was written to it",
                        m->builder->path, array->name, axis);
    if (*known == 0) *known = length;
    if (*known == length) return UPS_OK;
    return ups_fail(
        error, UPS_ERR_FORMAT,
        "%s: '%s' %s has %lld entries along its axis %s, where '%s' has %lld; fields of one task share their "
        "grid, or layout.axes is in another order than the file's",
        m->builder->path, array->name, user_shape(m, &array->found), (long long)length, axis, m->arrays[0].name,
        (long long)*known);
}

static ups_status check_lengths(mapped *m, const mapped_array *array, const ups_mapped_field *field, ups_error *error) {
    for (int axis = 0; axis < field->axes.count; axis++) {
        int64_t length = user_length(&array->found, axis);
        int dim = field->axes.dim[axis];
        switch (field->axes.role[axis]) {
        case UPS_MAPPED_SAMPLE:
            UPS_TRY(agree(m, array, "sample", length, &m->samples, error));
            m->by_sample = true;
            break;
        case UPS_MAPPED_TIME:
            UPS_TRY(agree(m, array, "time", length, &m->times, error));
            break;
        case UPS_MAPPED_GRID:
            UPS_TRY(agree(m, array, m->mapping->grid[dim], length, &m->grid[dim], error));
            break;
        case UPS_MAPPED_SINGLE:
            if (length == 1) break;
            return ups_fail(
                error, UPS_ERR_FORMAT,
                "%s: '%s' %s has %lld entries along axis %d, which %s calls _; that is for axes of one entry",
                m->builder->path, array->name, user_shape(m, &array->found), (long long)length, axis,
                axes_text(m, &field->axes));
        case UPS_MAPPED_CHANNEL:
            if (length < 1) UPS_TRY(agree(m, array, "channel", length, &length, error));
        }
    }
    return UPS_OK;
}

/* The file's only array of numbers with that many axes. */
static ups_status find_only_array(mapped *m, const ups_mapped_field *field, const char **name, ups_error *error) {
    const ups_array_outline *outlines;
    int64_t count, found = 0;
    UPS_TRY(ups_arrays_list(m->builder->arrays, m->builder->arena, &outlines, &count, error));
    for (int64_t i = 0; i < count; i++) {
        if (!outlines[i].numeric || outlines[i].rank != field->axes.count) continue;
        *name = outlines[i].name;
        found++;
    }
    if (found == 1) return UPS_OK;
    return ups_fail(error, UPS_ERR_CONFIG,
                    "%s: %s does not say which array it is in, and the file has %lld with %d axes; name it there or at "
                    "layout.array",
                    m->builder->path, field->key, (long long)found, field->axes.count);
}

/* Numbers of a value that is one: given, or an attribute, by default of the array it is about. */
static ups_status read_number(const mapped *m, const ups_mapped_value *value, const char *about, double *number,
                              ups_error *error) {
    *number = value->number;
    if (value->from != UPS_MAPPED_ATTRIBUTE) return UPS_OK;
    const char *object = value->object ? value->object : about;
    ups_attribute attribute;
    UPS_TRY(ups_arrays_attribute(m->builder->arrays, object, value->name, m->builder->arena, &attribute, error));
    if (attribute.present && attribute.numbers && attribute.count == 1) {
        *number = attribute.numbers[0];
        return UPS_OK;
    }
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s: %s is to be the attribute '%s' of '/%s', %s; one number was expected. {attribute: NAME, of: "
                    "ARRAY} names another object's",
                    m->builder->path, value->key, value->name, object,
                    !attribute.present  ? "which has none of that name"
                    : attribute.numbers ? "which holds several numbers"
                                        : "which holds no number");
}

/* How the array's elements become numbers, if the mapping says more of it than the file. */
static ups_status pack(mapped *m, const ups_mapped_field *field, const char *name, ups_stored_array *array,
                       ups_error *error) {
    if (!field->scale.from && !field->offset.from && !field->missing.from) return UPS_OK;
    ups_packing *packing = UPS_ARENA_NEW(m->builder->arena, ups_packing);
    if (array->packing) *packing = *array->packing;
    if (!array->packing) packing->number = array->dtype == UPS_F64 ? UPS_NUMBER_F64 : UPS_NUMBER_F32;
    if (packing->scaled || packing->shifted || packing->missing_count == UPS_PACKING_MAX_MISSING)
        return ups_fail(
            error, UPS_ERR_CONFIG,
            "%s: '%s' is scaled by its own attributes already, which are heeded; leave out scale and offset of "
            "%s",
            m->builder->path, name, field->key);
    double number;
    if (field->scale.from) UPS_TRY(read_number(m, &field->scale, name, &packing->scale, error));
    if (field->offset.from) UPS_TRY(read_number(m, &field->offset, name, &packing->offset, error));
    packing->scaled = field->scale.from != UPS_MAPPED_NOWHERE;
    packing->shifted = field->offset.from != UPS_MAPPED_NOWHERE;
    if (field->missing.from) UPS_TRY(read_number(m, &field->missing, name, &number, error));
    if (field->missing.from && isfinite(number)) /* what the stored type cannot hold is not there */
        packing->missing_count += ups_number_element(number, packing->number, packing->missing[packing->missing_count]);
    array->packing = packing;
    return UPS_OK;
}

static bool same_value(const ups_mapped_value *a, const ups_mapped_value *b) {
    if (a->from != b->from || a->number != b->number) return false;
    if (a->from != UPS_MAPPED_ATTRIBUTE) return true;
    return strcmp(a->name, b->name) == 0 && strcmp(a->object ? a->object : "", b->object ? b->object : "") == 0;
}

/* Fields that are channels of one array share it where they are read alike. */
static int find_array(const mapped *m, const ups_mapped_field *field, int64_t before, const char *name) {
    for (int64_t f = 0; f < before; f++) {
        const ups_mapped_field *other = &m->mapping->fields[f];
        if (strcmp(m->arrays[m->array_of[f]].name, name) == 0 && same_value(&field->scale, &other->scale) &&
            same_value(&field->offset, &other->offset) && same_value(&field->missing, &other->missing) &&
            field->solution == other->solution && memcmp(&field->axes, &other->axes, sizeof field->axes) == 0)
            return m->array_of[f];
    }
    return -1;
}

/* The axes of an array in the order in which they are stored, from the order in which they are said. */
static ups_mapped_axes stored_axes(const ups_mapped_axes *said, const ups_found_array *found) {
    ups_mapped_axes stored = {.count = said->count};
    for (int axis = 0; axis < said->count; axis++) {
        stored.role[axis] = said->role[found->axis_of[axis]];
        stored.dim[axis] = said->dim[found->axis_of[axis]];
    }
    return stored;
}

static ups_status map_field(mapped *m, int64_t f, ups_error *error) {
    const ups_mapped_field *field = &m->mapping->fields[f];
    const char *name = field->array ? field->array : m->mapping->array;
    if (!name) UPS_TRY(find_only_array(m, field, &name, error));
    m->array_of[f] = find_array(m, field, f, name);
    if (m->array_of[f] >= 0) return UPS_OK;
    mapped_array *array = &m->arrays[m->array_count];
    array->name = name;
    ups_status status = ups_arrays_map(m->builder->arrays, name, m->builder->arena, &array->found, error);
    if (status != UPS_OK) return ups_fail_within(error, "%s", field->key);
    if (array->found.array->rank != field->axes.count)
        return ups_fail(
            error, UPS_ERR_CONFIG,
            "%s: '%s' has the shape %s, but %s names %d axes: %s. One name for each axis was expected, in the "
            "order of the shape",
            m->builder->path, name, user_shape(m, &array->found), field->key, field->axes.count,
            axes_text(m, &field->axes));
    UPS_TRY(check_lengths(m, array, field, error));
    UPS_TRY(pack(m, field, name, array->found.array, error));
    array->axes = stored_axes(&field->axes, &array->found);
    m->array_of[f] = m->array_count++;
    return UPS_OK;
}

/* ---- parts ---------------------------------------------------------------------------------------------------------
 */

static int find_role(const ups_mapped_axes *axes, ups_mapped_axis_role role, int dim) {
    for (int axis = 0; axis < axes->count; axis++) {
        if (axes->role[axis] == role && (role != UPS_MAPPED_GRID || axes->dim[axis] == dim)) return axis;
    }
    return -1;
}

/* The stored axes in the order that parts have. */
static void order_axes(const mapped *m, const mapped_array *array, ups_layout_part *part) {
    const ups_mapped_axes *axes = &array->axes;
    int count = 0, axis;
    if ((axis = find_role(axes, UPS_MAPPED_SAMPLE, 0)) >= 0) part->order[count++] = axis;
    part->by_sample = axis >= 0;
    if ((axis = find_role(axes, UPS_MAPPED_TIME, 0)) >= 0) part->order[count++] = axis;
    part->by_time = axis >= 0;
    for (axis = 0; axis < axes->count; axis++) {
        if (axes->role[axis] != UPS_MAPPED_SINGLE) continue;
        part->order[count++] = axis;
        part->unit_axes++;
    }
    for (int dim = 0; dim < m->mapping->dims; dim++) {
        axis = find_role(axes, UPS_MAPPED_GRID, dim);
        part->repeated[dim] = axis < 0;
        if (axis >= 0) part->order[count++] = axis;
    }
    if ((axis = find_role(axes, UPS_MAPPED_CHANNEL, 0)) >= 0) part->order[count++] = axis;
    part->component_axes = axis >= 0;
    for (axis = 0; axis < count; axis++) part->reordered |= part->order[axis] != axis;
}

/* A part for each field, or one for neighbours that are neighbouring channels of one array. */
static ups_status make_parts(mapped *m, ups_error *error) {
    const ups_mapping *mapping = m->mapping;
    for (int64_t f = 0; f < mapping->field_count; f++) {
        const ups_mapped_field *field = &mapping->fields[f];
        const mapped_array *array = &m->arrays[m->array_of[f]];
        int channel_axis = find_role(&array->axes, UPS_MAPPED_CHANNEL, 0);
        int64_t channels = channel_axis >= 0 ? array->found.array->shape[channel_axis] : 0;
        if (channel_axis >= 0 && field->channel >= channels)
            return ups_fail(error, UPS_ERR_CONFIG, "%s: %s is channel %lld of '%s', which has %lld, counted from 0",
                            m->builder->path, field->key, (long long)field->channel, array->name, (long long)channels);
        ups_layout_part *last = m->part_count ? &m->parts[m->part_count - 1] : NULL;
        if (channel_axis >= 0 && last && last->array == array->found.array &&
            last->first_component + last->components == field->channel) {
            last->components++;
            continue;
        }
        ups_layout_part *part = &m->parts[m->part_count++];
        *part = (ups_layout_part){.array = array->found.array, .first_frame = field->solution, .first_channel = f};
        order_axes(m, array, part);
        if (channel_axis < 0) continue;
        part->first_component = field->channel;
        part->components = 1;
    }
    for (int p = 0; p < m->part_count; p++) {
        ups_layout_part *part = &m->parts[p];
        const int last = part->order[part->array->rank - 1];
        if (part->components == part->array->shape[last]) part->components = 0; /* all */
    }
    return UPS_OK;
}

/* ---- times, coordinates, parameters --------------------------------------------------------------------------------
 */

/* `count` numbers, evenly spaced. */
static ups_status make_even(const mapped *m, const ups_mapped_value *value, int64_t count, double *values,
                            ups_error *error) {
    double first = 0, step = 0, last = 0;
    if (value->first) UPS_TRY(read_number(m, value->first, "", &first, error));
    if (value->step) UPS_TRY(read_number(m, value->step, "", &step, error));
    if (value->last) UPS_TRY(read_number(m, value->last, "", &last, error));
    if (!value->step) step = count > 1 ? (last - first) / (double)(count - 1) : 0;
    for (int64_t i = 0; i < count; i++) values[i] = first + step * (double)i;
    if (!value->step && count > 1) values[count - 1] = last;
    return UPS_OK;
}

/* The numbers that a value stands for: as they are in an array or an attribute, or `count` made. */
static ups_status read_numbers(const mapped *m, const ups_mapped_value *value, int64_t count, ups_numbers *numbers,
                               ups_error *error) {
    ups_layout_builder *builder = m->builder;
    *numbers = (ups_numbers){.rank = 1, .shape = {count}, .count = count};
    if (value->from == UPS_MAPPED_ARRAY) {
        ups_status status =
            ups_arrays_read(builder->arrays, value->name, UPS_LAYOUT_LONGEST_AXIS, builder->arena, numbers, error);
        return status == UPS_OK ? status : ups_fail_within(error, "%s", value->key);
    }
    if (value->from == UPS_MAPPED_ATTRIBUTE) {
        ups_attribute attribute;
        const char *object = value->object ? value->object : "";
        UPS_TRY(ups_arrays_attribute(builder->arrays, object, value->name, builder->arena, &attribute, error));
        if (!attribute.numbers)
            return ups_fail(error, UPS_ERR_FORMAT,
                            "%s: %s is to be the attribute '%s' of '/%s', which %s; numbers were expected. {attribute: "
                            "NAME, of: ARRAY} names another object's",
                            builder->path, value->key, value->name, object,
                            attribute.present ? "holds none" : "has none of that name");
        numbers->values = (double *)attribute.numbers; /* only read */
        numbers->count = numbers->shape[0] = attribute.count;
        return UPS_OK;
    }
    if (count > UPS_LAYOUT_LONGEST_AXIS)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: %s would have %lld entries; at most %d make sense", builder->path,
                        value->key, (long long)count, UPS_LAYOUT_LONGEST_AXIS);
    numbers->values = UPS_ARENA_ARRAY(builder->arena, double, count + 1);
    return make_even(m, value, count, numbers->values, error);
}

static ups_status check_finite(const mapped *m, const ups_mapped_value *value, const ups_numbers *numbers,
                               ups_error *error) {
    for (int64_t i = 0; i < numbers->count; i++) {
        if (!isfinite(numbers->values[i]))
            return ups_fail(error, UPS_ERR_FORMAT, "%s: %s has no number at entry %lld", m->builder->path, value->key,
                            (long long)i);
    }
    return UPS_OK;
}

/* Times of all samples, or of each: *by_sample. */
static ups_status read_times(const mapped *m, const double **times, bool *by_sample, ups_error *error) {
    static const ups_mapped_value one = {.from = UPS_MAPPED_NUMBER, .number = 1};
    static const ups_mapped_value counted = {.from = UPS_MAPPED_EVEN, .step = &one, .key = "layout.time"};
    const ups_mapped_value *value = m->mapping->time.from ? &m->mapping->time : &counted;
    ups_numbers numbers;
    UPS_TRY(read_numbers(m, value, m->times, &numbers, error));
    UPS_TRY(check_finite(m, value, &numbers, error));
    *times = numbers.values;
    *by_sample = numbers.rank == 2 && numbers.shape[0] == m->samples && numbers.shape[1] == m->times;
    bool for_all = numbers.rank == 1 && (numbers.count == m->times || numbers.count == m->times + 1);
    if (for_all || *by_sample) return UPS_OK;
    return ups_fail(
        error, UPS_ERR_FORMAT,
        "%s: %s has the shape %s, where there are %lld samples of %lld frames; a list of %lld times (one more "
        "is allowed) or (samples, frames) was expected. {dt: 0.01} gives evenly spaced ones",
        m->builder->path, value->key, ups_layout_shape_text(m->builder->arena, numbers.rank, numbers.shape),
        (long long)m->samples, (long long)m->times, (long long)m->times);
}

static ups_status read_coordinate(const mapped *m, int dim, const double **values, ups_error *error) {
    const ups_mapped_value *value = &m->mapping->coordinates[dim];
    *values = NULL;
    if (value->from == UPS_MAPPED_NOWHERE) return UPS_OK;
    ups_numbers numbers;
    UPS_TRY(read_numbers(m, value, m->grid[dim], &numbers, error));
    UPS_TRY(check_finite(m, value, &numbers, error));
    *values = numbers.values;
    if (numbers.rank == 1 && numbers.count == m->grid[dim]) return UPS_OK;
    return ups_fail(
        error, UPS_ERR_FORMAT,
        "%s: %s has the shape %s where the grid has %lld points; a list of as many numbers was expected, or "
        "{from: 0, to: 1}",
        m->builder->path, value->key, ups_layout_shape_text(m->builder->arena, numbers.rank, numbers.shape),
        (long long)m->grid[dim]);
}

/* Of a table (samples, parameters), or a list over parameters, one parameter. */
static ups_status take_column(const mapped *m, const ups_mapped_parameter *parameter, ups_numbers *table,
                              ups_error *error) {
    const int64_t columns = table->rank > 0 ? table->shape[table->rank - 1] : 1;
    if (parameter->column >= columns)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: %s is to be column %lld of '%s', which has the shape %s; columns count from 0",
                        m->builder->path, parameter->value.key, (long long)parameter->column, parameter->value.name,
                        ups_layout_shape_text(m->builder->arena, table->rank, table->shape));
    const int64_t rows = table->count / columns;
    double *column = UPS_ARENA_ARRAY(m->builder->arena, double, rows);
    for (int64_t i = 0; i < rows; i++) column[i] = table->values[i * columns + parameter->column];
    *table = (ups_numbers){.rank = 1, .shape = {rows}, .count = rows, .values = column};
    return UPS_OK;
}

/* A parameter of all samples (*count 1), or of each. */
static ups_status read_parameter(const mapped *m, const ups_mapped_parameter *parameter, const double **values,
                                 int64_t *count, ups_error *error) {
    ups_layout_builder *builder = m->builder;
    double *one = UPS_ARENA_ARRAY(builder->arena, double, 1);
    *values = one;
    *count = 1;
    if (parameter->value.from != UPS_MAPPED_ARRAY) return read_number(m, &parameter->value, "", one, error);
    const int64_t most = parameter->column < 0 ? UPS_LAYOUT_MAX_SAMPLES : UPS_LAYOUT_MOST_NUMBERS;
    ups_numbers numbers;
    ups_status status = ups_arrays_read(builder->arrays, parameter->value.name, most, builder->arena, &numbers, error);
    if (status != UPS_OK) return ups_fail_within(error, "%s", parameter->value.key);
    if (parameter->column >= 0) UPS_TRY(take_column(m, parameter, &numbers, error));
    *values = numbers.values;
    *count = numbers.count;
    if (numbers.count == 1 || numbers.count == m->samples) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s: %s has %lld entries where there are %lld samples; one, or one each, was "
                    "expected%s",
                    builder->path, parameter->value.key, (long long)numbers.count, (long long)m->samples,
                    numbers.rank > 1 ? ". {array: NAME, column: 0} takes a column of a table" : "");
}

/* ---- points --------------------------------------------------------------------------------------------------------
 */

static const char *const place_names[UPS_MAX_POINT_DIMS] = {"x", "y", "z"};

/* The field that tells where points lie along an axis, by the array of coordinates; NULL: none does. */
static const ups_mapped_field *find_place(const mapped *m, const char *coordinates, int axis) {
    for (int64_t f = 0; f < m->mapping->field_count; f++) {
        const ups_mapped_field *field = &m->mapping->fields[f];
        if (strcmp(field->name, place_names[axis]) == 0 && field->channel == axis &&
            strcmp(m->arrays[m->array_of[f]].name, coordinates) == 0)
            return field;
    }
    return NULL;
}

/* The first axis along which no field tells where points lie; `dims` where all are told. */
static int find_untold(const mapped *m, const char *coordinates, int dims) {
    int axis = 0;
    while (axis < dims && find_place(m, coordinates, axis)) axis++;
    return axis;
}

static ups_status fail_untold(const mapped *m, const char *coordinates, int dims, bool moving, ups_error *error) {
    const int axis = find_untold(m, coordinates, dims);
    const char *axes = ups_arena_printf(m->builder->arena, "[%s%spoint, channel]", m->by_sample ? "sample, " : "",
                                        moving ? "time, " : "");
    for (int other = 0; other < dims; other++) {
        const ups_mapped_field *told = find_place(m, coordinates, other);
        if (told) axes = axes_text(m, &told->axes);
    }
    return ups_fail(error, UPS_ERR_CONFIG,
                    "%s: %s, so that a model has to be told where they lie: name their coordinates in layout.fields, "
                    "too: %s: {array: %s, channel: %d, axes: %s}",
                    m->builder->path, moving ? "points move" : "each sample has points of its own", place_names[axis],
                    coordinates, axis, axes);
}

/* The fields that tell where points lie are read as they are stored, along the same axes. */
static ups_status check_places(const mapped *m, const char *coordinates, ups_error *error) {
    const ups_mapped_field *first = find_place(m, coordinates, 0);
    for (int axis = 0; axis < UPS_MAX_POINT_DIMS; axis++) {
        const ups_mapped_field *told = find_place(m, coordinates, axis);
        if (!told) continue;
        if (told->scale.from || told->offset.from || told->missing.from)
            return ups_fail(error, UPS_ERR_CONFIG,
                            "%s: %s tells where points lie, which scale, offset and missing do not change; save "
                            "positions as the numbers that they are",
                            m->builder->path, told->key);
        if (first && memcmp(&told->axes, &first->axes, sizeof told->axes) != 0)
            return ups_fail(
                error, UPS_ERR_CONFIG, "%s: %s has the axes %s, but %s has %s; positions of one array have the same",
                m->builder->path, told->key, axes_text(m, &told->axes), first->key, axes_text(m, &first->axes));
    }
    return UPS_OK;
}

/* Numbers whose axes are said, with one frame left along time, as (sample, point, d); those that all samples share are
 * there for each of them. */
static ups_status order_first_places(const mapped *m, const ups_mapped_axes *axes, ups_numbers *numbers,
                                     ups_error *error) {
    const int64_t samples = m->samples, points = m->grid[0];
    int64_t sets = 1, of_sample = 0, of_point = 0, of_channel = 0, stride = 1;
    for (int axis = axes->count - 1; axis >= 0; stride *= numbers->shape[axis--]) {
        if (axes->role[axis] == UPS_MAPPED_SAMPLE) of_sample = stride, sets = samples;
        if (axes->role[axis] == UPS_MAPPED_GRID) of_point = stride;
        if (axes->role[axis] == UPS_MAPPED_CHANNEL) of_channel = stride;
    }
    if (of_point == 0 || of_channel == 0)
        return ups_fail(error, UPS_ERR_CONFIG, "%s: positions have the axes %s, where point and channel were expected",
                        m->builder->path, axes_text(m, axes));
    const int64_t each = numbers->count / points / sets;
    int64_t all;
    if (__builtin_mul_overflow(points * each, samples, &all) || all > UPS_LAYOUT_MOST_NUMBERS)
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: %lld samples of %lld points; at most %d coordinates in all make sense", m->builder->path,
                        (long long)samples, (long long)points, UPS_LAYOUT_MOST_NUMBERS);
    double *ordered = UPS_ARENA_ARRAY(m->builder->arena, double, samples *points *each + 1), *to = ordered;
    for (int64_t s = 0; s < samples; s++) {
        for (int64_t p = 0; p < points; p++) {
            for (int64_t c = 0; c < each; c++) *to++ = numbers->values[s * of_sample + p * of_point + c * of_channel];
        }
    }
    *numbers =
        (ups_numbers){.rank = 3, .shape = {samples, points, each}, .count = samples * points * each, .values = ordered};
    return UPS_OK;
}

/* Where points lie, (point, d) or (sample, point, d); where they move, by the first frame. They do where their array
 * has an axis of time, which the fields say that tell them. */
static ups_status read_places(const mapped *m, ups_numbers *numbers, bool *moving, ups_error *error) {
    const ups_mapped_value *value = &m->mapping->coordinates[0];
    ups_layout_builder *builder = m->builder;
    const ups_mapped_field *told = find_place(m, value->name, 0);
    int time = -1;
    for (int axis = 0; told && axis < told->axes.count; axis++)
        if (told->axes.role[axis] == UPS_MAPPED_TIME) time = axis;
    *moving = time >= 0;
    UPS_TRY(check_places(m, value->name, error));
    if (*moving) {
        UPS_TRY(ups_arrays_read_first(builder->arrays, value->name, time, UPS_LAYOUT_MOST_NUMBERS, builder->arena,
                                      numbers, error));
        return order_first_places(m, &told->axes, numbers, error);
    }
    ups_found_array found;
    UPS_TRY(ups_arrays_map(builder->arrays, value->name, builder->arena, &found, error));
    if (found.array->rank == 3 + m->by_sample && user_length(&found, m->by_sample) == m->times) {
        *moving = true;
        return fail_untold(m, value->name, 1, true, error);
    }
    return ups_arrays_read(builder->arrays, value->name, UPS_LAYOUT_MOST_NUMBERS, builder->arena, numbers, error);
}

/* Where points lie that have no grid: one set for all samples, or one each. A model must see those that differ, or
 * move. The only sample of a file has its own where fields tell them. */
static ups_status read_points(const mapped *m, ups_points ***points, bool *own, ups_error *error) {
    const ups_mapped_value *value = &m->mapping->coordinates[0];
    ups_numbers numbers;
    bool moving;
    *points = NULL;
    *own = false;
    if (!m->mapping->points) return UPS_OK;
    const ups_status read = read_places(m, &numbers, &moving, error);
    if (read != UPS_OK) return ups_fail_within(error, "%s", value->key);
    const int64_t stored = numbers.rank > 0 ? numbers.shape[numbers.rank - 1] : 0;
    const int dims = stored > UPS_MAX_POINT_DIMS ? UPS_MAX_POINT_DIMS : (int)stored;
    const int untold = find_untold(m, value->name, dims);
    *own = moving || (!m->by_sample && untold == dims);
    UPS_TRY(
        ups_layout_make_points(m->builder, value->name, &numbers, m->samples, m->grid[0], NULL, points, own, error));
    for (int64_t s = 0; s < m->samples && moving; s++) (*points)[s]->moving = true;
    return *own && untold < dims ? fail_untold(m, value->name, dims, moving, error) : UPS_OK;
}

/* ---- members -------------------------------------------------------------------------------------------------------
 */

static const char *boundary_text(const mapped *m) {
    const ups_mapping *mapping = m->mapping;
    const char *text = NULL;
    int count = 0;
    for (int dim = 0; dim < mapping->dims; dim++) {
        if (!mapping->periodic[dim]) continue;
        text = text ? ups_arena_printf(m->builder->arena, "%s and %s", text, mapping->grid[dim]) : mapping->grid[dim];
        count++;
    }
    if (!mapping->periodic_said) return "not said";
    if (count == 0) return "not periodic";
    return count == mapping->dims ? "periodic" : ups_arena_printf(m->builder->arena, "periodic in %s", text);
}

static ups_status describe_sample(const mapped *m, ups_dtype dtype, ups_sample *sample, ups_error *error) {
    const ups_layout_part *first = &m->parts[0];
    const bool channels_last = m->part_count == 1 && first->component_axes == 1 && first->components == 0 &&
                               first->order[first->array->rank - 1] == first->array->rank - 1;
    *sample = (ups_sample){.times = m->times,
                           .channels = m->mapping->field_count,
                           .dims = m->mapping->dims,
                           .grid = {1, 1, 1},
                           .order = channels_last ? UPS_CHANNELS_LAST : UPS_CHANNELS_FIRST,
                           .dtype = dtype,
                           .periodic = m->mapping->periodic_said};
    for (int dim = 0; dim < sample->dims; dim++) {
        sample->grid[dim] = m->grid[dim];
        sample->periodic &= m->mapping->periodic[dim];
        if (m->mapping->points) continue;
        sample->axis_names[dim] = ups_arena_strdup(m->builder->arena, m->mapping->grid[dim]);
        UPS_TRY(read_coordinate(m, dim, &sample->coordinates[dim], error));
    }
    return UPS_OK;
}

/* One member for all samples, or one each where their times, points or parameters differ. */
static ups_status add_members(const mapped *m, ups_dtype dtype, ups_error *error) {
    ups_layout_builder *builder = m->builder;
    const ups_mapping *mapping = m->mapping;
    ups_sample sample;
    const double *times, **values = UPS_ARENA_ARRAY(builder->arena, const double *, mapping->parameter_count + 1);
    int64_t *counts = UPS_ARENA_ARRAY(builder->arena, int64_t, mapping->parameter_count + 1);
    bool differ;
    UPS_TRY(describe_sample(m, dtype, &sample, error));
    UPS_TRY(read_times(m, &times, &differ, error));
    const bool times_differ = differ;
    ups_points **points;
    bool own_points;
    UPS_TRY(read_points(m, &points, &own_points, error));
    differ |= own_points;
    for (int64_t p = 0; p < mapping->parameter_count; p++) {
        UPS_TRY(read_parameter(m, &mapping->parameters[p], &values[p], &counts[p], error));
        differ |= counts[p] > 1;
    }
    const char *name = ups_layout_name_of_file(builder), *boundary = boundary_text(m);
    const ups_layout_part *parts = NULL;
    for (int64_t i = 0; i < (differ ? m->samples : 1); i++) {
        ups_layout_member *member;
        UPS_TRY(ups_layout_add_member(builder, &member, error));
        member->sample = sample;
        member->sample.points = points ? points[own_points ? i : 0] : NULL;
        member->sample.time = times + (times_differ ? i * m->times : 0);
        member->name = name;
        member->numbered = m->by_sample;
        member->samples = differ ? 1 : m->samples;
        member->first_row = i;
        member->boundary = boundary;
        if (i == 0) ups_layout_set_parts(builder, member, m->parts, m->part_count);
        if (i == 0) parts = member->parts;
        member->parts = parts;
        member->part_count = m->part_count;
        for (int64_t p = 0; p < mapping->parameter_count; p++)
            ups_pde_parameters_set(&member->found, mapping->parameters[p].name, values[p][counts[p] > 1 ? i : 0]);
    }
    return UPS_OK;
}

static ups_status describe(ups_layout_builder *builder, ups_error *error) {
    mapped *m = UPS_ARENA_NEW(builder->arena, mapped);
    m->builder = builder;
    m->mapping = builder->mapping;
    const int64_t fields = m->mapping->field_count;
    const char *names[UPS_LAYOUT_MAX_ARRAYS];
    if (fields > UPS_LAYOUT_MAX_ARRAYS)
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "layout.fields names %lld fields; up to %d can be read together",
                        (long long)fields, UPS_LAYOUT_MAX_ARRAYS);
    for (int64_t f = 0; f < fields; f++) {
        names[f] = m->mapping->fields[f].name;
        UPS_TRY(map_field(m, f, error));
    }
    if (m->samples == 0) m->samples = 1;
    if (m->mapping->steady) m->times = 2;
    for (int dim = 0; dim < m->mapping->dims; dim++) {
        if (m->grid[dim] == 0)
            return ups_fail(error, UPS_ERR_CONFIG, "%s: no field has the axis '%s' that layout.axes names",
                            builder->path, m->mapping->grid[dim]);
    }
    if (m->times == 0)
        return ups_fail(error, UPS_ERR_CONFIG, "%s: no field has the axis time; one that changes in time was expected",
                        builder->path);
    ups_stored_array *arrays[UPS_LAYOUT_MAX_ARRAYS];
    for (int a = 0; a < m->array_count; a++) arrays[a] = m->arrays[a].found.array;
    const ups_dtype dtype = ups_layout_share_dtype(builder, arrays, m->array_count);
    UPS_TRY(make_parts(m, error));
    UPS_TRY(ups_layout_set_channels(builder, fields, names, error));
    return add_members(m, dtype, error);
}

static bool recognises(ups_hdf5_file *file) {
    return false; /* it is told, not found */
}

static const ups_source_class source_class = UPS_LAYOUT_CLASS("mapped");

const ups_layout ups_layout_mapped = {
    .kind = "mapped",
    .title = "a mapping",
    .reason = "the layout that was given",
    .recognises = recognises,
    .describe = describe,
    .class = &source_class,
};
