/* The core `stack`: `depth` pre-LayerNorm transformer blocks over all tokens. */
#include "model/nets/blocks.h"
#include "model/nets/core.h"

#include <stdio.h>

static ups_status check(const ups_operator_options *o, ups_error *error) {
    if (o->hidden % o->heads != 0) {
        return ups_fail(error, UPS_ERR_CONFIG, "operator: hidden (%lld) must be a multiple of heads (%d)",
                        (long long)o->hidden, o->heads);
    }
    if (!(o->mlp_ratio * (float)o->hidden >= 1)) {
        return ups_fail(error, UPS_ERR_CONFIG, "operator: mlp_ratio %g leaves the MLP without width", o->mlp_ratio);
    }
    return UPS_OK;
}

static ups_value build(ups_graph *g, const char *prefix, const ups_operator_options *o, ups_value x,
                       ups_value condition, uint32_t first_layer) {
    for (int i = 0; i < o->depth; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.blocks.%d", prefix, i);
        ups_block_options block = {.heads = o->heads,
                                   .mlp_ratio = o->mlp_ratio,
                                   .qk_norm = o->qk_norm,
                                   .drop_path = ups_operator_drop_path(o, i),
                                   .condition = condition,
                                   .layer = first_layer + 2 * (uint32_t)i};
        x = ups_block_self(g, name, &block, x);
    }
    return x;
}

const ups_core_class ups_core_stack = {
    .name = "stack",
    .help = "pre-LayerNorm transformer blocks over all tokens",
    .attends = true,
    .check = check,
    .build = build,
};
