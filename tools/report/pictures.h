/* Whole pictures, one PNG each: what `ups rollout --png`, `ups cache inspect --png` and the training report show.
 *
 * Every function draws, publishes `path` (complete or absent) and keeps nothing. Errors: UPS_ERR_ARGUMENT (nothing to
 * draw), UPS_ERR_MEMORY, UPS_ERR_IO. */
#ifndef UPS_TOOLS_REPORT_PICTURES_H
#define UPS_TOOLS_REPORT_PICTURES_H

#include "base/error.h"
#include "tools/report/plot.h"
#include <stdint.h>

/* A field's prediction and truth: a frame of a 2D field (rows along y, columns along x), or a 1D trajectory over space
 * and time (rows over time, columns along x). Values as in ups_heat_map, the same strides for both. */
typedef struct ups_comparison_row {
    const char *name; /* "u", "t = 0.5"; on the left; NULL: none */
    const float *prediction, *truth;
    double nrmse;       /* for the error's title; 0: found from what the row shows */
    const float *given; /* what the prediction was made from, with the same strides; NULL: not drawn */
} ups_comparison_row;

typedef struct ups_comparison {
    const char *title;
    const char *given_name; /* title of a first column that shows the rows' `given`; NULL: no such column */
    const ups_comparison_row *rows;
    int row_count; /* 1 to 16 */
    int64_t height, width, row_stride, column_stride;
    ups_axis x, y;  /* as in ups_heat_map */
    bool stretched; /* the axes have different units (space and time): the plot's shape is free */
} ups_comparison;

/* [given |] prediction | truth | error, one line a row. Prediction and truth of a row share one scale; the error's is
 * symmetric about zero; its title gives the row's nRMSE. */
ups_status ups_picture_comparison(const char *path, const ups_comparison *comparison, ups_error *error);

/* A 1D field at several times, prediction over truth: one small panel a time, one scale for all. */
typedef struct ups_profile {
    const char *name;                /* "t = 0.5" */
    const float *prediction, *truth; /* (points), `stride` apart */
} ups_profile;

typedef struct ups_profiles {
    const char *title;
    const double *x; /* (points); NULL: 0, 1, 2, … */
    int64_t points, stride;
    const char *x_label, *y_label;
    const ups_profile *profiles;
    int count; /* 1 to 12 */
} ups_profiles;

ups_status ups_picture_profiles(const char *path, const ups_profiles *profiles, ups_error *error);

/* One heat map with its colour bar: a field, a latent trajectory (tokens by dim, time by dim). */
ups_status ups_picture_heat_map(const char *path, const ups_heat_map *map, ups_error *error);

/* One line chart: losses over steps (y.logarithmic), errors over time. */
ups_status ups_picture_lines(const char *path, const ups_line_chart *chart, ups_error *error);

#endif
