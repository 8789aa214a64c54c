#include "pipeline/layouts/mapping.h"

#include "base/config/config.h"
#include "base/config/document.h"
#include "base/config/key.h"
#include "base/nearest.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ----------------------------------------------------------------------------------------------------
 */

static ups_status check_fields(const ups_yaml *node, const char *place, ups_error *error);
static ups_status check_time(const ups_yaml *node, const char *place, ups_error *error);
static ups_status check_coordinates(const ups_yaml *node, const char *place, ups_error *error);
static ups_status check_parameters(const ups_yaml *node, const char *place, ups_error *error);
static ups_status check_periodic(const ups_yaml *node, const char *place, ups_error *error);

#define KEY(...) UPS_CONFIG_KEY(ups_mapping_config, __VA_ARGS__)

static const char time_forms[] = "an array's name, {dt: 0.01}, {from: 0, to: 1} or {attribute: NAME}";
static const char coordinate_forms[] = "an array's name, {from: 0, to: 1}, {from: 0, step: 0.1} or {attribute: NAME}";
static const char parameter_forms[] = "a number, an array's name, {array: NAME, column: 0} or {attribute: NAME}";

const ups_config_key ups_mapping_keys[] = {
    KEY(YAML, "fields", fields, "{}", 0, 0, "the fields by their names, and the array or channel that each is",
        .word = "fields by name, such as {u: /u, v: {array: /flow, channel: 1}}", .check = check_fields),
    KEY(TEXT, "axes", axes, "[]", 1, 64,
        "what the arrays' axes are, as h5py or NumPy show them: sample, time, channel, _ (of one entry); any other "
        "name is "
        "an axis of the grid; point: of points that lie anywhere",
        .list = UPS_CONFIG_LIST(ups_mapping_config, axes, axis_count, 0, UPS_ARRAY_MAX_RANK)),
    KEY(TEXT, "array", array, "''", 0, 0, "the array that numbers in `fields` are channels of; empty: the only one"),
    KEY(YAML, "time", time, "{}", 0, 0, "times of the frames; without it frames are counted from 0", .word = time_forms,
        .check = check_time),
    KEY(YAML, "coordinates", coordinates, "{}", 0, 0,
        "coordinates of the grid's axes; of points: {point: /pos}, an array (point, d), (sample, point, d), or with an "
        "axis of time where they move",
        .word = "axes by name, such as {x: /x, y: {from: 0, to: 1}}", .check = check_coordinates),
    KEY(YAML, "parameters", parameters, "{}", 0, 0, "PDE parameters by their names",
        .word = "parameters by name, such as {nu: /nu, beta: 0.4, Re: {attribute: Re}}", .check = check_parameters),
    KEY(YAML, "periodic", periodic, "{}", 0, 0, "whether the domain wraps around, or along which axes",
        .word = "true, false or a list of axes", .check = check_periodic),
    {.name = NULL}};

bool ups_mapping_is_given(const ups_mapping_config *config) {
    return config->axis_count > 0 || (config->fields && strcmp(config->fields, "{}\n") != 0);
}

/* ---- reading nodes ------------------------------------------------------------------------------------------------
 */

typedef struct reader {
    ups_arena *arena;
    const char *place; /* of the node that is read, for messages */
    const char *key;   /* the same as later messages have it: "layout.fields.u" */
    ups_error *error;
} reader;

static ups_status wrong(const reader *r, const ups_yaml *node, const char *expected) {
    const char *found = node->kind == UPS_YAML_LIST      ? "a list"
                        : node->kind == UPS_YAML_MAPPING ? "a mapping"
                        : ups_yaml_is_null(node)         ? "no value"
                                                         : ups_arena_printf(r->arena, "'%.60s'", node->text);
    return ups_fail(r->error, UPS_ERR_CONFIG, "%s: %s stands here; %s was expected", r->place, found, expected);
}

static reader below(const reader *r, const char *name) {
    reader child = *r;
    child.place = ups_arena_printf(r->arena, "%s.%s", r->place, name);
    child.key = ups_arena_printf(r->arena, "%s.%s", r->key, name);
    return child;
}

/* All keys of a mapping are among `known`, and none is there twice. */
static ups_status check_keys(const reader *r, const ups_yaml *node, const char *const *known, ups_error *error) {
    for (const ups_yaml *child = node->first; child; child = child->next) {
        bool found = false;
        const char *list = "";
        ups_nearest nearest = {.word = child->key};
        for (int k = 0; known[k]; k++) {
            found |= strcmp(known[k], child->key) == 0;
            ups_nearest_try(&nearest, known[k]);
            list = ups_arena_printf(r->arena, "%s%s%s", list, k ? ", " : "", known[k]);
        }
        if (!found && nearest.name)
            return ups_fail(error, UPS_ERR_CONFIG, "%s.%s: there is no such key; did you mean '%s'?", r->place,
                            child->key, nearest.name);
        if (!found)
            return ups_fail(error, UPS_ERR_CONFIG, "%s.%s: there is no such key; the keys here are %s", r->place,
                            child->key, list);
        if (ups_yaml_child(node, child->key) != child)
            return ups_fail(error, UPS_ERR_CONFIG, "%s.%s: this key is given twice", r->place, child->key);
    }
    return UPS_OK;
}

static bool is_number(const ups_yaml *node, double *number) {
    bool too_large;
    double value;
    return node->kind == UPS_YAML_SCALAR && !node->quoted &&
           ups_config_parse_number(node->text, UPS_CONFIG_DOUBLE, &value, number, &too_large);
}

static const char *array_name(ups_arena *arena, const char *text) {
    while (*text == '/') text++;
    return ups_arena_strdup(arena, text);
}

static bool is_text(const ups_yaml *node) {
    double number;
    return node->kind == UPS_YAML_SCALAR && !ups_yaml_is_null(node) && node->text[0] && !is_number(node, &number);
}

/* {attribute: NAME, of: ARRAY} */
static ups_status read_attribute(const reader *r, const ups_yaml *node, ups_mapped_value *value) {
    static const char *const known[] = {"attribute", "of", NULL};
    UPS_TRY(check_keys(r, node, known, r->error));
    const ups_yaml *name = ups_yaml_child(node, "attribute"), *of = ups_yaml_child(node, "of");
    reader name_reader = below(r, "attribute"), of_reader = below(r, "of");
    if (name->kind != UPS_YAML_SCALAR || ups_yaml_is_null(name))
        return wrong(&name_reader, name, "an attribute's name");
    if (of && !is_text(of)) return wrong(&of_reader, of, "the name of the array or group that has it, or /");
    value->from = UPS_MAPPED_ATTRIBUTE;
    value->name = ups_arena_strdup(r->arena, name->text);
    value->object = of ? array_name(r->arena, of->text) : NULL;
    return UPS_OK;
}

static ups_status read_value(const reader *r, const ups_yaml *node, bool arrays, bool even, const char *expected,
                             ups_mapped_value *value);

/* {from, to}, {from, step} or {dt}, each a number or an attribute. */
static ups_status read_even(const reader *r, const ups_yaml *node, const char *expected, ups_mapped_value *value) {
    static const char *const known[] = {"from", "to", "step", "dt", NULL};
    UPS_TRY(check_keys(r, node, known, r->error));
    const ups_mapped_value *parts[4] = {NULL};
    for (int k = 0; known[k]; k++) {
        const ups_yaml *child = ups_yaml_child(node, known[k]);
        if (!child) continue;
        reader part = below(r, known[k]);
        ups_mapped_value *made = UPS_ARENA_NEW(r->arena, ups_mapped_value);
        UPS_TRY(read_value(&part, child, false, false, "a number or {attribute: NAME}", made));
        parts[k] = made;
    }
    if (parts[2] && parts[3])
        return ups_fail(r->error, UPS_ERR_CONFIG, "%s: dt and step mean the same; give one", r->place);
    value->from = UPS_MAPPED_EVEN;
    value->first = parts[0];
    value->last = parts[1];
    value->step = parts[2] ? parts[2] : parts[3];
    if (!value->step != !value->last) return UPS_OK;
    return ups_fail(r->error, UPS_ERR_CONFIG, "%s: %s; %s was expected", r->place,
                    value->step ? "a step and an end cannot both be given" : "neither a step nor an end is given",
                    expected);
}

static ups_status read_value(const reader *r, const ups_yaml *node, bool arrays, bool even, const char *expected,
                             ups_mapped_value *value) {
    *value = (ups_mapped_value){.key = r->key};
    if (is_number(node, &value->number)) {
        if (arrays && even) return wrong(r, node, expected); /* a list of numbers is wanted, not one */
        value->from = UPS_MAPPED_NUMBER;
        return UPS_OK;
    }
    if (arrays && is_text(node)) {
        value->from = UPS_MAPPED_ARRAY;
        value->name = array_name(r->arena, node->text);
        return UPS_OK;
    }
    if (node->kind == UPS_YAML_MAPPING && ups_yaml_child(node, "attribute")) return read_attribute(r, node, value);
    if (node->kind == UPS_YAML_MAPPING && even) return read_even(r, node, expected, value);
    return wrong(r, node, expected);
}

/* ---- axes ---------------------------------------------------------------------------------------------------------
 */

/* The role of a name that is no grid axis. */
static bool find_role(const char *name, ups_mapped_axis_role *role) {
    static const char *const names[] = {"sample", "time", "channel", "_"};
    for (int i = 0; i < 4; i++) {
        *role = (ups_mapped_axis_role)i;
        if (strcmp(name, names[i]) == 0) return true;
    }
    *role = UPS_MAPPED_GRID;
    return false;
}

static ups_status add_axis(const reader *r, const char *name, bool may_name, ups_mapping *mapping,
                           ups_mapped_axes *axes) {
    ups_mapped_axis_role role;
    int dim = 0;
    if (axes->count == UPS_ARRAY_MAX_RANK)
        return ups_fail(r->error, UPS_ERR_CONFIG, "%s: more than %d axes", r->place, UPS_ARRAY_MAX_RANK);
    if (!find_role(name, &role)) {
        while (dim < mapping->dims && strcmp(mapping->grid[dim], name) != 0) dim++;
        if (dim == mapping->dims && !may_name)
            return ups_fail(r->error, UPS_ERR_CONFIG, "%s: '%s' is no axis that layout.axes names", r->place, name);
        if (dim == UPS_MAX_GRID_DIMS)
            return ups_fail(
                r->error, UPS_ERR_CONFIG,
                "%s: '%s' would be a fourth axis of the grid, beside %s, %s and %s; at most %d are read. Axes "
                "that are none are called sample, time, channel, or _ where they have one entry",
                r->place, name, mapping->grid[0], mapping->grid[1], mapping->grid[2], UPS_MAX_GRID_DIMS);
        if (dim == mapping->dims) mapping->grid[mapping->dims++] = ups_arena_strdup(r->arena, name);
    }
    for (int a = 0; a < axes->count; a++) {
        if (role != UPS_MAPPED_SINGLE && axes->role[a] == role && (role != UPS_MAPPED_GRID || axes->dim[a] == dim))
            return ups_fail(r->error, UPS_ERR_CONFIG, "%s: '%s' stands there twice", r->place, name);
    }
    axes->role[axes->count] = role;
    axes->dim[axes->count++] = dim;
    return UPS_OK;
}

static bool has_role(const ups_mapped_axes *axes, ups_mapped_axis_role role) {
    for (int a = 0; a < axes->count; a++) {
        if (axes->role[a] == role) return true;
    }
    return false;
}

static ups_status read_axes(const reader *r, const ups_mapping_config *config, ups_mapping *mapping) {
    if (config->axis_count == 0)
        return ups_fail(r->error, UPS_ERR_CONFIG,
                        "%s: the key is missing; what the arrays' axes are was expected, such as [sample, time, x, y]",
                        r->place);
    for (unsigned a = 0; a < config->axis_count; a++)
        UPS_TRY(add_axis(r, config->axes[a], true, mapping, &mapping->axes));
    if (mapping->dims == 0)
        return ups_fail(r->error, UPS_ERR_CONFIG,
                        "%s: none is an axis of the grid; one to three were expected, such as x, y", r->place);
    for (int dim = 0; dim < mapping->dims; dim++) mapping->points |= strcmp(mapping->grid[dim], "point") == 0;
    if (mapping->points && mapping->dims > 1)
        return ups_fail(r->error, UPS_ERR_CONFIG,
                        "%s: '%s' is an axis of a grid, which points that lie anywhere have none of; beside point, the "
                        "axes sample, time, channel and _ were expected",
                        r->place, mapping->grid[strcmp(mapping->grid[0], "point") == 0]);
    mapping->steady = !has_role(&mapping->axes, UPS_MAPPED_TIME);
    return UPS_OK;
}

/* ---- fields -------------------------------------------------------------------------------------------------------
 */

static const char field_forms[] = "an array's name, the number of a channel, or {array: NAME, channel: 0, axes: "
                                  "[sample, time, x], scale: 1, offset: 0, solution: false}";

static ups_status read_channel(const reader *r, const ups_yaml *node, ups_mapped_field *field) {
    double number;
    if (!is_number(node, &number) || number < 0 || number != floor(number) || number > INT32_MAX)
        return wrong(r, node, "the number of a channel, counted from 0,");
    field->channel = (int64_t)number;
    return UPS_OK;
}

static ups_status read_field_axes(const reader *r, const ups_yaml *node, ups_mapping *mapping, ups_mapped_axes *axes) {
    if (node->kind != UPS_YAML_LIST) return wrong(r, node, "a list such as [sample, x, y]");
    *axes = (ups_mapped_axes){0};
    for (const ups_yaml *item = node->first; item; item = item->next) {
        if (item->kind != UPS_YAML_SCALAR) return wrong(r, item, "an axis's name");
        if (mapping) UPS_TRY(add_axis(r, item->text, false, mapping, axes));
    }
    return UPS_OK;
}

/* Without a mapping, the axes are not known yet. */
static ups_status read_field(const reader *r, const ups_yaml *node, ups_mapping *mapping, ups_mapped_field *field) {
    static const char *const known[] = {"array", "channel", "axes", "scale", "offset", "missing", "solution", NULL};
    static const char number_forms[] = "a number or {attribute: NAME}";
    double number;
    *field = (ups_mapped_field){.name = ups_arena_strdup(r->arena, node->key), .channel = -1, .key = r->key};
    if (mapping) field->axes = mapping->axes;
    if (is_number(node, &number)) return read_channel(r, node, field);
    if (is_text(node)) {
        field->array = array_name(r->arena, node->text);
        return UPS_OK;
    }
    if (node->kind != UPS_YAML_MAPPING) return wrong(r, node, field_forms);
    UPS_TRY(check_keys(r, node, known, r->error));
    const ups_yaml *child;
    reader at = below(r, "array");
    if ((child = ups_yaml_child(node, "array"))) {
        if (child->kind != UPS_YAML_SCALAR || ups_yaml_is_null(child)) return wrong(&at, child, "an array's name");
        field->array = array_name(r->arena, child->text);
    }
    at = below(r, "channel");
    if ((child = ups_yaml_child(node, "channel"))) UPS_TRY(read_channel(&at, child, field));
    at = below(r, "axes");
    if ((child = ups_yaml_child(node, "axes"))) UPS_TRY(read_field_axes(&at, child, mapping, &field->axes));
    ups_mapped_value *values[] = {&field->scale, &field->offset, &field->missing};
    for (int v = 0; v < 3; v++) {
        at = below(r, known[3 + v]);
        if ((child = ups_yaml_child(node, known[3 + v])))
            UPS_TRY(read_value(&at, child, false, false, number_forms, values[v]));
    }
    at = below(r, "solution");
    if ((child = ups_yaml_child(node, "solution")) &&
        (child->kind != UPS_YAML_SCALAR || !ups_config_parse_bool(child->text, &field->solution)))
        return wrong(&at, child, "true or false");
    return UPS_OK;
}

/* Of a steady problem some fields are given and some are sought; of any other all change in time, or are given. */
static ups_status check_solution(const reader *r, const ups_mapping *mapping, const ups_mapped_field *fields) {
    const ups_mapped_field *sought = NULL, *given = NULL;
    for (int64_t f = 0; f < mapping->field_count; f++) {
        if (mapping->steady && has_role(&fields[f].axes, UPS_MAPPED_TIME))
            return ups_fail(r->error, UPS_ERR_CONFIG,
                            "%s.%s: it has an axis time, and layout.axes names none; name it there", r->place,
                            fields[f].name);
        if (fields[f].solution)
            sought = &fields[f];
        else
            given = &fields[f];
    }
    if (!mapping->steady && sought)
        return ups_fail(r->error, UPS_ERR_CONFIG,
                        "%s: %s is said to be a solution, which is of steady problems, but layout.axes names time; "
                        "leave one of them out",
                        r->place, sought->name);
    if (!mapping->steady || (sought && given)) return UPS_OK;
    return ups_fail(r->error, UPS_ERR_CONFIG,
                    "%s: layout.axes names no axis time. A trajectory has frames, and a field of it that does not "
                    "change is given axes of its own: {array: NAME, axes: [sample, x]}. A steady problem says which "
                    "field is sought, {array: NAME, solution: true}, and has %s",
                    r->place, sought ? "a field that it is sought from as well" : "other fields, which are given");
}

static ups_status read_fields(const reader *r, const ups_yaml *node, ups_mapping *mapping, ups_mapped_field *fields) {
    if (node->kind != UPS_YAML_MAPPING) return wrong(r, node, "a mapping such as {u: /u, v: /v}");
    int64_t count = 0;
    for (const ups_yaml *child = node->first; child; child = child->next, count++) {
        reader at = below(r, child->key);
        ups_mapped_field field;
        if (ups_yaml_child(node, child->key) != child)
            return ups_fail(r->error, UPS_ERR_CONFIG, "%s: this field is given twice", at.place);
        UPS_TRY(read_field(&at, child, mapping, &field));
        if (!mapping) continue;
        bool along = has_role(&field.axes, UPS_MAPPED_CHANNEL);
        if (along && field.channel < 0)
            return ups_fail(r->error, UPS_ERR_CONFIG,
                            "%s: its array has an axis 'channel': say which of its channels the field is, as in "
                            "{array: NAME, channel: 0}, or %s: 0 and the array's name at layout.array",
                            at.place, child->key);
        if (!along && field.channel >= 0)
            return ups_fail(r->error, UPS_ERR_CONFIG,
                            "%s: it is a channel of an array, but no axis is called channel; name it in layout.axes",
                            at.place);
        fields[count] = field;
    }
    if (!mapping) return UPS_OK;
    mapping->field_count = count;
    return check_solution(r, mapping, fields);
}

/* ---- the other keys -----------------------------------------------------------------------------------------------
 */

static bool is_empty(const ups_yaml *node) {
    return ups_yaml_is_null(node) || (node->kind == UPS_YAML_MAPPING && !node->first);
}

static ups_status read_time(const reader *r, const ups_yaml *node, ups_mapped_value *value) {
    *value = (ups_mapped_value){0};
    return is_empty(node) ? UPS_OK : read_value(r, node, true, true, time_forms, value);
}

static ups_status read_coordinates(const reader *r, const ups_yaml *node, ups_mapping *mapping) {
    if (is_empty(node)) return UPS_OK;
    if (node->kind != UPS_YAML_MAPPING) return wrong(r, node, "a mapping such as {x: /x, y: {from: 0, to: 1}}");
    for (const ups_yaml *child = node->first; child; child = child->next) {
        reader at = below(r, child->key);
        ups_mapped_value value;
        UPS_TRY(read_value(&at, child, true, true, coordinate_forms, &value));
        int dim = 0;
        while (mapping && dim < mapping->dims && strcmp(mapping->grid[dim], child->key) != 0) dim++;
        if (mapping && dim == mapping->dims)
            return ups_fail(r->error, UPS_ERR_CONFIG, "%s: layout.axes names no axis '%s' of the grid", at.place,
                            child->key);
        if (mapping) mapping->coordinates[dim] = value;
    }
    return UPS_OK;
}

/* {array: NAME, column: 0} */
static ups_status read_column(const reader *r, const ups_yaml *node, ups_mapped_parameter *parameter) {
    static const char *const known[] = {"array", "column", NULL};
    UPS_TRY(check_keys(r, node, known, r->error));
    const ups_yaml *name = ups_yaml_child(node, "array"), *column = ups_yaml_child(node, "column");
    reader name_reader = below(r, "array"), column_reader = below(r, "column");
    double number;
    if (!is_text(name)) return wrong(&name_reader, name, "an array's name");
    if (!column) return wrong(r, node, parameter_forms);
    if (!is_number(column, &number) || number < 0 || number != floor(number) || number > INT32_MAX)
        return wrong(&column_reader, column, "the number of a column, counted from 0,");
    parameter->value =
        (ups_mapped_value){.key = r->key, .from = UPS_MAPPED_ARRAY, .name = array_name(r->arena, name->text)};
    parameter->column = (int64_t)number;
    return UPS_OK;
}

static ups_status read_parameters(const reader *r, const ups_yaml *node, ups_mapping *mapping) {
    if (is_empty(node)) return UPS_OK;
    if (node->kind != UPS_YAML_MAPPING) return wrong(r, node, "a mapping such as {nu: 0.01, Re: {attribute: Re}}");
    int64_t count = 0;
    for (const ups_yaml *child = node->first; child; child = child->next) count++;
    ups_mapped_parameter *list = UPS_ARENA_ARRAY(r->arena, ups_mapped_parameter, count), *next = list;
    for (const ups_yaml *child = node->first; child; child = child->next, next++) {
        reader at = below(r, child->key);
        if (ups_yaml_child(node, child->key) != child)
            return ups_fail(r->error, UPS_ERR_CONFIG, "%s: this parameter is given twice", at.place);
        next->name = ups_arena_strdup(r->arena, child->key);
        next->column = -1;
        if (child->kind == UPS_YAML_MAPPING && ups_yaml_child(child, "array"))
            UPS_TRY(read_column(&at, child, next));
        else
            UPS_TRY(read_value(&at, child, true, false, parameter_forms, &next->value));
    }
    if (mapping) mapping->parameters = list;
    if (mapping) mapping->parameter_count = count;
    return UPS_OK;
}

static ups_status read_periodic(const reader *r, const ups_yaml *node, ups_mapping *mapping) {
    static const char forms[] = "true, false or a list of axes such as [x, y]";
    bool all = false;
    if (is_empty(node)) return UPS_OK;
    if (mapping) mapping->periodic_said = true;
    if (node->kind == UPS_YAML_SCALAR && !node->quoted && ups_config_parse_bool(node->text, &all)) {
        for (int dim = 0; mapping && dim < mapping->dims; dim++) mapping->periodic[dim] = all;
        return UPS_OK;
    }
    if (node->kind != UPS_YAML_LIST) return wrong(r, node, forms);
    for (const ups_yaml *item = node->first; item; item = item->next) {
        if (item->kind != UPS_YAML_SCALAR) return wrong(r, item, forms);
        int dim = 0;
        while (mapping && dim < mapping->dims && strcmp(mapping->grid[dim], item->text) != 0) dim++;
        if (mapping && dim == mapping->dims)
            return ups_fail(r->error, UPS_ERR_CONFIG, "%s: layout.axes names no axis '%s' of the grid", r->place,
                            item->text);
        if (mapping) mapping->periodic[dim] = true;
    }
    return UPS_OK;
}

/* ---- a configuration's checks: form alone, where the lines are known -----------------------------------------------
 */

typedef ups_status (*form_reader)(const reader *r, const ups_yaml *node, ups_mapping *mapping);

static ups_status check_form(const ups_yaml *node, const char *place, form_reader read, ups_error *error) {
    ups_arena *arena = ups_arena_create(0);
    if (!arena) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to read it", place);
    reader r = {arena, place, "", error};
    ups_status status = read(&r, node, NULL);
    ups_arena_destroy(arena);
    return status;
}

static ups_status fields_form(const reader *r, const ups_yaml *node, ups_mapping *mapping) {
    return read_fields(r, node, mapping, NULL);
}

static ups_status time_form(const reader *r, const ups_yaml *node, ups_mapping *mapping) {
    ups_mapped_value value;
    return read_time(r, node, &value);
}

static ups_status check_fields(const ups_yaml *node, const char *place, ups_error *error) {
    return check_form(node, place, fields_form, error);
}

static ups_status check_time(const ups_yaml *node, const char *place, ups_error *error) {
    return check_form(node, place, time_form, error);
}

static ups_status check_coordinates(const ups_yaml *node, const char *place, ups_error *error) {
    return check_form(node, place, read_coordinates, error);
}

static ups_status check_parameters(const ups_yaml *node, const char *place, ups_error *error) {
    return check_form(node, place, read_parameters, error);
}

static ups_status check_periodic(const ups_yaml *node, const char *place, ups_error *error) {
    return check_form(node, place, read_periodic, error);
}

/* ---- all of it ----------------------------------------------------------------------------------------------------
 */

static ups_status parse(const reader *r, const char *text, const ups_yaml **node) {
    ups_yaml *root = NULL;
    UPS_TRY(ups_yaml_parse(r->arena, r->place, false, text, strlen(text), &root, r->error));
    *node = root ? root : ups_yaml_scalar(r->arena, "", false);
    return UPS_OK;
}

static int64_t count_children(const ups_yaml *node) {
    int64_t count = 0;
    for (const ups_yaml *child = node->first; child; child = child->next) count++;
    return count;
}

ups_status ups_mapping_read(const ups_mapping_config *config, const char *place, ups_arena *arena, ups_mapping *mapping,
                            ups_error *error) {
    const reader all = {arena, place, "layout", error};
    const ups_yaml *node;
    *mapping = (ups_mapping){0};
    reader r = below(&all, "axes");
    UPS_TRY(read_axes(&r, config, mapping));
    if (config->array[0]) mapping->array = array_name(arena, config->array);
    r = below(&all, "fields");
    UPS_TRY(parse(&r, config->fields, &node));
    if (is_empty(node))
        return ups_fail(error, UPS_ERR_CONFIG, "%s: the key is missing; %s was expected", r.place,
                        "a mapping such as {u: /u, v: /v}");
    ups_mapped_field *fields = UPS_ARENA_ARRAY(arena, ups_mapped_field, count_children(node) + 1);
    mapping->fields = fields;
    UPS_TRY(read_fields(&r, node, mapping, fields));
    r = below(&all, "time");
    UPS_TRY(parse(&r, config->time, &node));
    UPS_TRY(read_time(&r, node, &mapping->time));
    if (mapping->steady && mapping->time.from)
        return ups_fail(error, UPS_ERR_CONFIG, "%s: layout.axes names no axis time; a steady problem has no times",
                        r.place);
    r = below(&all, "coordinates");
    UPS_TRY(parse(&r, config->coordinates, &node));
    UPS_TRY(read_coordinates(&r, node, mapping));
    if (mapping->points && mapping->coordinates[0].from != UPS_MAPPED_ARRAY)
        return ups_fail(error, UPS_ERR_CONFIG,
                        "%s: where the points lie was expected, such as {point: /pos}: an array (point, d), "
                        "(sample, point, d), or with an axis of time where they move",
                        r.place);
    r = below(&all, "parameters");
    UPS_TRY(parse(&r, config->parameters, &node));
    UPS_TRY(read_parameters(&r, node, mapping));
    r = below(&all, "periodic");
    UPS_TRY(parse(&r, config->periodic, &node));
    UPS_TRY(read_periodic(&r, node, mapping));
    if (mapping->points && mapping->periodic[0])
        return ups_fail(error, UPS_ERR_CONFIG, "%s: points that lie anywhere are not periodic; leave it out", r.place);
    return UPS_OK;
}

ups_status ups_mapping_section(const char *name, ups_yaml *root, ups_yaml **layout, ups_error *error) {
    const ups_yaml *tasks = ups_yaml_child(root, "tasks");
    int found = 0;
    *layout = root;
    for (const ups_yaml *task = tasks ? tasks->first : NULL; task; task = task->next) {
        ups_yaml *child = ups_yaml_child(task, "layout");
        if (!child) continue;
        *layout = child;
        found++;
    }
    if (tasks && found != 1)
        return ups_fail(error, UPS_ERR_CONFIG,
                        "%s: %d of its tasks have a layout, where one was expected; give the YAML of the one that is "
                        "meant, or inspect "
                        "the configuration itself, which shows all tasks",
                        name, found);
    if (!tasks && ups_yaml_child(root, "layout")) *layout = ups_yaml_child(root, "layout");
    return UPS_OK;
}

ups_status ups_mapping_parse(const char *name, const char *text, ups_arena *arena, ups_mapping *mapping,
                             ups_error *error) {
    const ups_config_schema schema = {ups_mapping_keys, sizeof(ups_mapping_config)};
    ups_yaml *root, *layout;
    char *below = NULL;
    size_t length = strlen(text);
    void *config = NULL;
    UPS_TRY(ups_yaml_parse(arena, name, true, text, length, &root, error));
    if (root) {
        UPS_TRY(ups_mapping_section(name, root, &layout, error));
        if (layout != root) UPS_TRY(ups_yaml_emit(layout, &below, &length, error));
    }
    ups_status status = ups_config_load_text(name, below ? below : text, length, &schema, NULL, 0, &config, error);
    free(below);
    if (status == UPS_OK) status = ups_mapping_read(config, name, arena, mapping, error);
    ups_config_free(config);
    return status;
}
