/* What entries of a schedule cost on paper: arithmetic and bytes, from the shapes alone. A device that does no more
 * than this needs at least the time of the larger of the two: the roofline (Williams et al., Communications of the ACM
 * 52, 2009). Caches are not thought of: what an entry reads and makes passes through memory once. */
#ifndef UPS_MODEL_WORK_H
#define UPS_MODEL_WORK_H

#include "model/plan.h"

typedef struct ups_work {
    bool fp8;             /* its products have operands of eight bits */
    double product_flops; /* of matrix products: linear layers, attention, mixing of modes and their transforms */
    double other_flops;   /* of convolutions a feature; what is done once an element is not counted */
    double again;         /* of product_flops: what backward computes that forward did already, attention's scores */
    double read, written; /* bytes; a gradient that is added to is both */
    double apart;         /* bytes read and written by passes before the product, which it waits for: rounding to FP8 */
    bool with_last;       /* it is the second entry of a pair (schedule.h): what the first makes it does not read */
} ups_work;

/* Of the entry at `position` of the plan's schedule, on the graph that it is of. */
ups_work ups_work_of(const ups_graph *graph, const ups_plan *plan, int32_t position);

#endif
