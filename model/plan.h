/* The plan: every value's place in one arena, found from when it is first written and last read, so that memory is
 * known before a step runs and reused within it. */
#ifndef UPS_MODEL_PLAN_H
#define UPS_MODEL_PLAN_H

#include "model/schedule.h"

typedef struct ups_plan ups_plan;

typedef struct ups_plan_memory {
    size_t inputs;      /* inputs and constants */
    size_t activations; /* the arena: activations, their gradients, saved values */
    size_t workspace;   /* the largest any kernel wants; shared */
    size_t parameters;  /* values + gradients + compute copy, as the graph's parameters have them */
    size_t lower_bound; /* the most that is alive at any one moment: how good the placement is */
} ups_plan_memory;

typedef struct ups_placement {
    int64_t offset;
    size_t bytes;
    int32_t first, last;
} ups_placement; /* offset −1: not in the arena; schedule positions it is alive in */

ups_status ups_plan_create(const ups_graph *graph, ups_plan **plan, ups_error *error);
void ups_plan_destroy(ups_plan *plan);
ups_plan_memory ups_plan_memory_get(const ups_plan *plan); /* workspace is known once a step asked the device: 0 here */
const ups_schedule *ups_plan_schedule(const ups_plan *plan);
/* Where the value lies at a position of the schedule: one that is recomputed has two places, one after the other. */
const ups_placement *ups_plan_value(const ups_plan *plan, ups_value value, int32_t position);
const ups_placement *ups_plan_gradient(const ups_plan *plan, ups_value value);
/* Whether the gradient of input `input` that node `node`'s backward writes is the first contribution to that value
 * (overwrite) or a later one (accumulate). */
bool ups_plan_accumulates(const ups_plan *plan, int32_t node, int input);
/* Whether that gradient is the output's own, in the same memory, so that there is nothing to do: additions pass their
 * gradient on unchanged, and where it is the first contribution the two share one place. */
bool ups_plan_shares(const ups_plan *plan, int32_t node, int input);

#endif
