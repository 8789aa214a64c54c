/* What a file of arrays probably holds: which arrays are fields, and what their axes mean. For suggest.c, which writes
 * it down for a person to check; nothing is read by a guess. */
#ifndef UPS_PIPELINE_LAYOUTS_GUESS_H
#define UPS_PIPELINE_LAYOUTS_GUESS_H

#include "pipeline/arrays/arrays.h"
#include "pipeline/layouts/mapping.h"

typedef struct ups_guess {
    const ups_array_outline *outlines;
    int64_t outline_count;
    const ups_array_outline *main;   /* the array that the axes are of; NULL: none could be fields */
    const ups_array_outline *places; /* where points lie that have no grid, (…, point, d), or NULL */
    int rank;
    const char *axes[UPS_ARRAY_MAX_RANK];                     /* "sample", "time", "channel", "x", … of `main` */
    const char *reasons[UPS_ARRAY_MAX_RANK];                  /* why: "its dimension is called that", … */
    int channel_axis;                                         /* of `main`, or −1 */
    const ups_array_outline *time;                            /* an array of times, or NULL */
    const ups_array_outline *coordinates[UPS_ARRAY_MAX_RANK]; /* of the axis, or NULL */
} ups_guess;

void ups_guess_axes(ups_arena *arena, const ups_array_outline *outlines, int64_t count, ups_guess *guess);

/* Whether an array is a field beside the main one: of the same lengths, but for the number of channels; or without an
 * axis of it, time or channels, and then *without is that axis, else −1. */
bool ups_guess_is_field(const ups_guess *guess, const ups_array_outline *outline, int *without);

/* The axis of the main array that an axis of `places` before the points is; −1: none is as long. */
int ups_guess_axis_of_places(const ups_guess *guess, int axis);
/* Whether it is a table (sample, parameter). */
bool ups_guess_is_table(const ups_guess *guess, const ups_array_outline *outline);
/* Whether it is one number for each sample, or one in all. */
bool ups_guess_is_parameter(const ups_guess *guess, const ups_array_outline *outline);

const char *ups_guess_last_part(const char *name); /* "v" of "group/v" */

#endif
