/* The time that a step takes on a card, predicted from what its data sheet says and from the step's shapes
 * (model/work.h): of each entry the larger of arithmetic and traffic. Nothing runs, and no card is needed. It is what a
 * perfect device would take: launches, caches and the last percents of peak are not thought of. */
#ifndef UPS_TOOLS_BENCH_ROOFLINE_H
#define UPS_TOOLS_BENCH_ROOFLINE_H

#include "model/devices/cards.h"
#include <jansson.h>

/* What the graph's products are in: "float32", "tf32", "bfloat16", "float16", "fp8". */
const char *ups_products_name(const ups_graph *graph);

/* What a step asks for on paper, whatever runs it. With a card, the seconds that it takes at best, too. */
typedef struct ups_step_work {
    ups_op_work of[UPS_OP_COUNT + 1]; /* last, AdamW, which is no op, after the norm of gradients */
    double product_flops;             /* of all products, those that are computed again among them */
    ups_arithmetic model;             /* what MFU counts */
    double seconds;                   /* of all ops */
} ups_step_work;

/* The graph was differentiated; `moved` parameters take an AdamW step. `card` may be NULL. */
ups_status ups_step_work_of(const ups_graph *graph, int64_t moved, const ups_card *card, ups_step_work *all,
                            ups_error *error);

/* Prints a table by op, or returns it as JSON for the caller to print and free. */
ups_status ups_roofline(const ups_graph *graph, const ups_card *card, int64_t moved, bool as_json, json_t **facts,
                        ups_error *error);

#endif
