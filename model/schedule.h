/* The schedule: what a step does, as a list. The plan finds lifetimes over it, the step replays it, and a device may
 * capture it.
 *
 * It is forward of every node in order, then backward of those that give gradients, in reverse. Activation
 * checkpointing (Chen et al., arXiv 1604.06174) drops activations of blocks after forward and puts RECOMPUTE entries
 * before the backward that needs them. Recomputing gives the same bits: what is random in an op depends on seed, step
 * and layer alone. */
#ifndef UPS_MODEL_SCHEDULE_H
#define UPS_MODEL_SCHEDULE_H

#include "model/graph.h"

typedef enum ups_schedule_action { UPS_FORWARD, UPS_BACKWARD, UPS_RECOMPUTE } ups_schedule_action;

typedef struct ups_schedule_entry {
    ups_schedule_action action;
    int32_t node;
    bool with_next; /* this entry and the next are a pair (fuse.h): what they read and write is in memory during both */
} ups_schedule_entry;

typedef struct ups_schedule {
    ups_schedule_entry *entries;
    int32_t count;
    int32_t backward; /* where the backward half begins; count when the graph was not differentiated */
} ups_schedule;

/* Of the graph as it is, with graph->checkpointing. */
ups_status ups_schedule_create(const ups_graph *graph, ups_schedule *schedule, ups_error *error);
void ups_schedule_destroy(ups_schedule *schedule);

#endif
