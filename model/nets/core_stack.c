/* The core `stack`: `depth` pre-LayerNorm transformer blocks over all tokens. */
#include "model/nets/core.h"
#include "model/nets/core_blocks.h"

const ups_core_class ups_core_stack = {
    .name = "stack",
    .help = "pre-LayerNorm transformer blocks over all tokens",
    .mixing = UPS_MIXING_ATTENTION,
    .build = ups_core_blocks,
};
