/* What a solver's file holds: declared by the solver, laid out by the writer (pdebench_writer.h), filled by the sink
 * (sink.h). The declaration covers PDEBench's families:
 *
 *   advection, Burgers, reaction–diffusion   `tensor` (sample, t, x)
 *   Darcy                                    `nu` (sample, x, y), `tensor` (sample, 1, x, y)
 *   compressible flow                        `density`, `pressure`, `Vx`, …  (sample, t, x[, y[, z]])
 *   incompressible flow                      `velocity` (sample, t, x, y, 2), `force` (sample, x, y, 2), `t` (sample,
 * t) seed groups                              `0000/data` (t, x[, y], channel), `0000/grid/x`, …, attribute `config`
 *
 * and files of meshes, whose points lie anywhere:
 *
 *   transport on a mesh                      `u` (sample, t, point), `vx`, `vy` (sample, point), `points` (point, 2),
 *                                            `cells` (cell, 3), `t` (t)
 *
 * Parameters that differ between samples stand in `parameters/NAME` (sample); in `config`, with seed groups.
 *
 * All numbers are float32 in the file, but for cells, which are int32; a space axis has `resolution` cells everywhere,
 * or is that of all points. Names are borrowed: string constants. */
#ifndef UPS_TOOLS_SOLVERS_WRITER_FILE_LAYOUT_H
#define UPS_TOOLS_SOLVERS_WRITER_FILE_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    UPS_FILE_ARRAYS = 8,
    UPS_FILE_COORDINATES = 4,
    UPS_FILE_TABLES = 2,
    UPS_FILE_ATTRIBUTES = 8,
    UPS_FILE_RANK = 6, /* sample, t, x, y, z, channel */
};

/* A large array, written frame by frame. In the file its axes are (sample, [t,] [x, [y, [z,]]] [channel]), the first
 * two and the last where they exist. */
typedef struct ups_file_array {
    const char *name;
    int64_t times;    /* stored times; 0: an array without a time axis, which has one frame */
    int dims;         /* space axes, 0 to 3 */
    int64_t cells;    /* along each of them */
    int64_t channels; /* the last axis; 0: none */
} ups_file_array;

/* A small vector: value i is begin + (end - begin) · (i + offset) / intervals. */
typedef struct ups_file_coordinate {
    const char *name;
    int64_t count;
    double begin, end, offset;
    int64_t intervals;
} ups_file_coordinate;

typedef enum ups_file_table_type { UPS_TABLE_FLOAT, UPS_TABLE_INTEGER } ups_file_table_type;

/* Numbers that all samples share, (rows, columns), written when the file is laid out: float32 from doubles, or int32.
 */
typedef struct ups_file_table {
    const char *name;
    ups_file_table_type type;
    int64_t rows, columns;
    const void *values; /* double, or int32_t; borrowed */
} ups_file_table;

/* A PDE parameter, kept as a float64 attribute of the root group; or a text of the equation's ("bc": "periodic"). */
typedef struct ups_file_attribute {
    const char *name;
    double value;
    const char *text; /* NULL: a number */
} ups_file_attribute;

typedef struct ups_file_layout {
    ups_file_array arrays[UPS_FILE_ARRAYS];
    int array_count;
    ups_file_coordinate coordinates[UPS_FILE_COORDINATES];
    int coordinate_count;
    ups_file_table tables[UPS_FILE_TABLES]; /* not in a file of seed groups */
    int table_count;
    ups_file_attribute attributes[UPS_FILE_ATTRIBUTES];
    int attribute_count;
    bool seed_groups; /* one group a sample, `0000`, `0001`, …, with arrays, coordinates and `config` inside */
} ups_file_layout;

/* For a solver's `describe`. More than fits is a mistake in the solver: an assertion. */
void ups_file_add_array(ups_file_layout *layout, const char *name, int64_t times, int dims, int64_t cells,
                        int64_t channels);
/* Centres of `cells` equal cells of [begin, end]. */
void ups_file_add_centres(ups_file_layout *layout, const char *name, int64_t cells, double begin, double end);
/* `count` times that are `steps - 1` intervals from 0 to `end`; count = steps, or steps + 1 for PDEBench's 1D and
 * compressible files, whose time coordinate has one entry more than their data. */
void ups_file_add_times(ups_file_layout *layout, const char *name, int64_t count, int64_t steps, double end);
void ups_file_add_table(ups_file_layout *layout, const char *name, ups_file_table_type type, int64_t rows,
                        int64_t columns, const void *values);
void ups_file_add_attribute(ups_file_layout *layout, const char *name, double value);
void ups_file_add_text(ups_file_layout *layout, const char *name, const char *text);

/* The layout of PDEBench's one-dimensional files of one field on [0, 1): `tensor` (sample, steps, cells), x-coordinate
 * at the centres, t-coordinate of steps + 1. */
void ups_file_describe_tensor(ups_file_layout *layout, int64_t steps, int64_t cells, double t_end);

double ups_file_coordinate_at(const ups_file_coordinate *coordinate, int64_t index);

/* Frames of one sample; values of one frame; values of one sample. The limits on resolution and steps keep them far
 * below 2⁶³. */
int64_t ups_file_frames(const ups_file_array *array);
int64_t ups_file_frame_values(const ups_file_array *array);
int64_t ups_file_sample_values(const ups_file_array *array);

#endif
