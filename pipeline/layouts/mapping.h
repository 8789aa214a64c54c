/* What a user says of a file of arrays: which of them are fields, what their axes mean, where times, coordinates and
 * parameters stand. It is the section `layout` of a task, and what `--layout` takes:
 *
 *   layout:
 *     fields: {u: /u, v: {array: /flow, channel: 1, scale: 0.01, offset: {attribute: add_offset}}}
 *     axes: [sample, time, x, y]
 *     time: /t
 *     coordinates: {x: /x, y: {from: 0, to: 1}}
 *     parameters: {nu: {attribute: nu}}
 *     periodic: [x, y]
 *
 * In the place of the grid's axes may stand one named `point`: points that lie anywhere, whose coordinates are an array
 * (point, d), or (sample, point, d); where they move, of any axes that the fields x, y, z say, time among them.
 *
 * docs/own-data.md is its manual. The section's table is here, so that a configuration and a command read it alike;
 * mapped.c holds it against a file. */
#ifndef UPS_PIPELINE_LAYOUTS_MAPPING_H
#define UPS_PIPELINE_LAYOUTS_MAPPING_H

#include "base/arena.h"
#include "base/config/document.h"
#include "base/config/table.h"
#include "pipeline/source.h"
#include "pipeline/storage/placing.h"

/* The section as a configuration keeps it: YAML texts. Without fields there is no mapping. */
typedef struct ups_mapping_config {
    char *fields, *array, *time, *coordinates, *parameters, *periodic;
    char **axes;
    unsigned axis_count;
} ups_mapping_config;

extern const ups_config_key ups_mapping_keys[];
bool ups_mapping_is_given(const ups_mapping_config *config);

typedef enum ups_mapped_axis_role {
    UPS_MAPPED_SAMPLE,
    UPS_MAPPED_TIME,
    UPS_MAPPED_CHANNEL,
    UPS_MAPPED_SINGLE, /* "_": an axis of one entry, which says nothing */
    UPS_MAPPED_GRID,
} ups_mapped_axis_role;

typedef struct ups_mapped_axes {
    int count;
    ups_mapped_axis_role role[UPS_ARRAY_MAX_RANK];
    int dim[UPS_ARRAY_MAX_RANK]; /* of a grid axis: which of the mapping's */
} ups_mapped_axes;

/* Where numbers come from. */
typedef enum ups_mapped_from {
    UPS_MAPPED_NOWHERE,
    UPS_MAPPED_NUMBER,    /* 0.01 */
    UPS_MAPPED_ARRAY,     /* /nu */
    UPS_MAPPED_ATTRIBUTE, /* {attribute: nu}, {attribute: units, of: /u} */
    UPS_MAPPED_EVEN,      /* {from: 0, to: 1}, {from: 0, step: 0.1}, {dt: 0.1} */
} ups_mapped_from;

typedef struct ups_mapped_value {
    ups_mapped_from from;
    double number;
    const char *name;   /* of the array, or of the attribute */
    const char *object; /* whose attribute; "": the file's; NULL: that of the array it is about, else the file's */
    const struct ups_mapped_value *first, *step, *last; /* of even numbers; NULL: not said. None is even itself */
    const char *key;                                    /* "layout.time", for messages */
} ups_mapped_value;

typedef struct ups_mapped_field {
    const char *name;
    const char *array; /* without the first slash; NULL: the mapping's, else the only one there is */
    int64_t channel;   /* along the axis `channel`; −1: there is no such axis */
    ups_mapped_axes axes;
    bool solution; /* of a steady problem: what is sought, from the fields that are given */
    ups_mapped_value scale, offset, missing;
    const char *key; /* "layout.fields.u" */
} ups_mapped_field;

typedef struct ups_mapped_parameter {
    const char *name;
    ups_mapped_value value;
    int64_t column; /* of the array, whose last axis is over parameters; −1: it has no such axis */
} ups_mapped_parameter;

typedef struct ups_mapping {
    int64_t field_count, parameter_count;
    const ups_mapped_field *fields;
    const ups_mapped_parameter *parameters;
    ups_mapped_axes axes; /* of fields that do not say theirs */
    bool steady;          /* no axis is time: two frames, (given, 0) and (given, solution) */
    int dims;
    const char *grid[UPS_MAX_GRID_DIMS]; /* names of the grid's axes, in the order of `axes` */
    bool points;                         /* there is no grid: its only axis is `point`, of points that lie anywhere */
    ups_mapped_value time, coordinates[UPS_MAX_GRID_DIMS];
    bool periodic_said, periodic[UPS_MAX_GRID_DIMS];
    const char *array; /* that numbers in `fields` are channels of; NULL: not said */
} ups_mapping;

/* Reads what the texts say, into `arena`. `place` names the section in messages: "x.yaml: tasks[0].layout".
 * UPS_ERR_CONFIG. */
ups_status ups_mapping_read(const ups_mapping_config *config, const char *place, ups_arena *arena, ups_mapping *mapping,
                            ups_error *error);

/* The same of a text: "{fields: …, axes: …}", or a configuration one of whose tasks has a layout. `name` stands for it
 * in messages. */
ups_status ups_mapping_parse(const char *name, const char *text, ups_arena *arena, ups_mapping *mapping,
                             ups_error *error);

/* Of such a text as YAML, what stands below `layout`: of a configuration, of the one task that has any. */
ups_status ups_mapping_section(const char *name, ups_yaml *root, ups_yaml **layout, ups_error *error);

#endif
