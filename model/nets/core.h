/* Cores of the operator: what changes tokens, between its input and its output. A core is a file core_NAME.c and a line
 * of the table in core.c; configurations name it. */
#ifndef UPS_MODEL_NETS_CORE_H
#define UPS_MODEL_NETS_CORE_H

#include "model/nets/operator_options.h"
#include "model/ops.h"

typedef struct ups_core_class {
    const char *name, *help;
    bool attends;    /* `heads` and `qk_norm` mean something: they are part of what a model is */
    bool needs_grid; /* tokens have to be the cells of a grid (options->grid) */
    /* What is wrong with the options for this core; the sentence begins with "operator: ". */
    ups_status (*check)(const ups_operator_options *options, ups_error *error);
    /* (B, tokens, hidden) float32 from (B, tokens, hidden) float32. `condition` (B, condition_hidden): what blocks are
     * modulated by, or UPS_NO_VALUE. Parameters are named PREFIX.…; `first_layer`: of the random streams that drop-path
     * may use, options->depth * 2 of them. */
    ups_value (*build)(ups_graph *graph, const char *prefix, const ups_operator_options *options, ups_value x,
                       ups_value condition, uint32_t first_layer);
} ups_core_class;

extern const ups_core_class ups_core_stack, ups_core_spectral;

/* The table, ended by NULL, and the core of a name (NULL: the default); NULL when there is none. */
extern const ups_core_class *const ups_cores[];
const ups_core_class *ups_core_find(const char *name);

#endif
