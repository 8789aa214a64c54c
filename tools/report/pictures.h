/* Whole figures of fields: what `ups rollout --png` and the page of `ups cache inspect` show. Every function begins and
 * draws `figure`; the caller ends it (figure.h). */
#ifndef UPS_TOOLS_REPORT_PICTURES_H
#define UPS_TOOLS_REPORT_PICTURES_H

#include "base/half.h"
#include "tools/report/plot.h"

/* A field's prediction and truth: a frame of a 2D field (rows along y, columns along x), or a 1D trajectory over space
 * and time (rows over time, columns along x). Values as in ups_field, the same strides for all. */
typedef struct ups_comparison_row {
    const char *name;        /* "t = 0.5", on the left; NULL: none */
    const float *prediction; /* never NULL */
    const float *truth;      /* NULL: there is none, neither is an error drawn */
    int64_t known;           /* of the truth, and so of the error, the first rows of the field; 0: all */
    const float *given;      /* what the prediction was made from; NULL: not drawn */
    double nrmse;            /* for the error's title; 0: of what the row shows */
} ups_comparison_row;

typedef struct ups_comparison {
    const char *title;
    const char *moment;                       /* "t = 0.5", in the upper right corner; NULL: none */
    const char *prediction_name, *truth_name; /* titles of columns */
    const char *given_name;                   /* of a first column that shows the rows' `given`; NULL: no such column */
    const ups_comparison_row *rows;           /* without a truth blank in its columns, which are left out if none has */
    int row_count;
    int64_t height, width, row_stride, column_stride;
    ups_axis x, y;
    bool truth_column; /* truth and error have their columns even if no row has a truth */
    bool outside;      /* what is NaN in the truth lies outside of the domain */
    bool stretched;    /* the axes have different units (space and time): the plots' shape is free */
    const ups_colour_scale *values,
        *errors; /* of all rows, and of what else is shown like them; NULL: each row's own */
} ups_comparison;

/* [given |] prediction [| truth | error], one line a row; "no truth" stands where others have one. Prediction and truth
 * of a row share one scale; the error's is symmetric about zero, and its title gives the row's nRMSE. */
void ups_draw_comparison(ups_figure *figure, ups_figure_kind kind, const ups_comparison *comparison);

/* A 1D field at several times, prediction over truth: one small plot a time, one scale for all. */
typedef struct ups_profile {
    const char *name;                /* "t = 0.5" */
    const float *prediction, *truth; /* (points), `stride` apart; truth NULL: there is none */
} ups_profile;

typedef struct ups_profiles {
    const char *title;
    const double *x; /* (points) */
    int64_t points, stride;
    const char *x_label, *y_label;
    const ups_profile *profiles;
    int count;
} ups_profiles;

void ups_draw_profiles(ups_figure *figure, ups_figure_kind kind, const ups_profiles *profiles);

/* A 1D field at one time: prediction over truth, and beside them the error, whose title gives its nRMSE. */
typedef struct ups_curves {
    const char *title, *moment; /* as in ups_comparison */
    const double *x;            /* (points) */
    int64_t points, stride;
    const char *x_label, *y_label;
    const float *prediction,
        *truth;         /* (points), `stride` apart; truth NULL: there is none, neither is an error drawn */
    bool with_error;    /* the error has a plot, blank without a truth */
    const float *error; /* prediction − truth, one behind the other */
    ups_colour_scale values, errors; /* what the y axes show at least */
} ups_curves;

void ups_draw_curves(ups_figure *figure, ups_figure_kind kind, const ups_curves *curves);

/* A trajectory of latents, (times, tokens, dim): maps of token and channel on one scale at up to four times, and below
 * them the channels of the middle token over time. `time` (times). */
typedef struct ups_latent_picture {
    const char *title;
    int64_t times, tokens, dim;
    const ups_f16 *values;
    const double *time;
} ups_latent_picture;

/* UPS_ERR_MEMORY: there is no figure to end then. */
ups_status ups_draw_latents(ups_figure *figure, ups_figure_kind kind, const ups_latent_picture *latents,
                            ups_error *error);

/* The figure's own title, in the upper left corner, and a moment in the right one (NULL: none); plots begin
 * UPS_PICTURE_TITLE below the figure's top. */
enum { UPS_PICTURE_TITLE = 30 };
void ups_draw_title(const ups_figure *figure, const char *title, const char *moment);

#endif
