/* Interleaves tasks: says whose turn it is at any point of an endless sequence, without walking there.
 *
 * Two kinds. `exact` gives task k exactly counts[k] of every Σcounts turns, evenly spread, for counts of any size: a
 * Huffman tree of two-way splits, each the rounding of a straight line; O(tasks) memory, O(depth) time. `shares` keeps
 * every task's number of turns strictly within one of its target share at every prefix: a table of one period, made by
 * giving each turn to the task whose deadline is nearest (Tijdeman, "The chairman assignment problem", 1980; Steiner &
 * Yeomans 1993 show that the deadlines can always be met). */
#ifndef UPS_PIPELINE_SAMPLING_INTERLEAVE_H
#define UPS_PIPELINE_SAMPLING_INTERLEAVE_H

#include "base/error.h"
#include <stdint.h>

typedef struct ups_interleave ups_interleave;

/* counts (n), all > 0. */
ups_status ups_interleave_exact(const int64_t *counts, int32_t n, ups_interleave **interleave, ups_error *error);

/* weights (n), all > 0, need not sum to one. They become a ratio of whole numbers with a sum of at most
 * UPS_INTERLEAVE_PERIOD: exactly where there is one (1:2:2, 0.3:0.7), else the nearest. That ratio is the target share.
 */
ups_status ups_interleave_shares(const double *weights, int32_t n, ups_interleave **interleave, ups_error *error);

void ups_interleave_destroy(ups_interleave *interleave); /* NULL is fine */

#define UPS_INTERLEAVE_PERIOD 65536

typedef struct ups_turn {
    int32_t task;
    int64_t count; /* turns this task had before */
} ups_turn;

ups_turn ups_interleave_at(const ups_interleave *interleave, int64_t turn);

/* The target share of a task as a fraction. */
void ups_interleave_share(const ups_interleave *interleave, int32_t task, int64_t *numerator, int64_t *denominator);

int32_t ups_interleave_tasks(const ups_interleave *interleave);
/* How many of the first `turns` turns are those of `task`. */
int64_t ups_interleave_count(const ups_interleave *interleave, int32_t task, int64_t turns);

#endif
