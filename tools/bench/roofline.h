/* The time that a step takes on a card, predicted from what its data sheet says and from the step's shapes
 * (model/work.h): of each entry the larger of arithmetic and traffic. Nothing runs, and no card is needed. It is what a
 * perfect device would take: launches, caches and the last percents of peak are not thought of. */
#ifndef UPS_TOOLS_BENCH_ROOFLINE_H
#define UPS_TOOLS_BENCH_ROOFLINE_H

#include "model/work.h"
#include <jansson.h>

/* Dense peaks in FLOP/s, bandwidth in bytes/s. */
typedef struct ups_card {
    const char *name, *sheet;
    double fp8, half, tf32, single, bandwidth; /* half: of bf16 and fp16; fp8 0: the card has none */
} ups_card;

extern const char *const ups_card_names[]; /* ended by NULL */
const ups_card *ups_card_at(int index);    /* in the order of the names */

/* What the graph's products are in: "float32", "tf32", "bfloat16", "float16", "fp8". */
const char *ups_products_name(const ups_graph *graph);

/* What a step asks for on paper, whatever runs it. AdamW, which is no op, moves `moved` parameters, after the norm of
 * their gradients. */
typedef struct ups_step_work {
    struct {
        double flops, bytes;
    } of[UPS_OP_COUNT + 1]; /* each op's entries together; last, AdamW and the norm */
    double product_flops;   /* of all */
} ups_step_work;

ups_status ups_step_work_of(const ups_graph *graph, int64_t moved, ups_step_work *all, ups_error *error);

/* Prints a table by op, or returns it as JSON for the caller to print and free. The graph was differentiated; `moved`
 * parameters take an AdamW step. */
ups_status ups_roofline(const ups_graph *graph, const ups_card *card, int64_t moved, bool as_json, json_t **facts,
                        ups_error *error);

#endif
