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

/* The entries of one op together, and the seconds that they take: at best, by a card's data sheet, or measured. */
typedef struct ups_op_work {
    int kind; /* ups_op_kind; UPS_OP_COUNT: the optimizer, which is no op */
    double flops, bytes;
    double forward, backward, recompute; /* seconds */
    int launches;                        /* of those at best alone */
    double by_traffic;                   /* seconds of those at best where memory is the bound */
} ups_op_work;

void ups_op_work_add(ups_op_work *sum, const ups_op_work *op);
/* Adds what an entry asks for, `times` times. */
void ups_op_work_count(ups_op_work *op, const ups_work *work, double times);
double *ups_op_pass(ups_op_work *op, ups_schedule_action action); /* its seconds */
double ups_op_seconds(const ups_op_work *op);                     /* of all passes */
void ups_op_works_sort(ups_op_work *ops, int count);              /* what takes longest comes first */

/* For tables: GFLOP/s or GB/s of so many, empty where none are counted. */
enum { UPS_OP_RATE = 24 };
void ups_op_rate(double count, double seconds, char text[UPS_OP_RATE]);

#endif
