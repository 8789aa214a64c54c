/* Fusing: two ops that a device does better as one, rewritten before differentiation. The table of patterns is the
 * same for every device; a fused op stands in the list (op.h) and so in the test of all ops.
 *
 * Where a fused op would make two values that others read, the two ops stay, and run in one pass instead: a pair. */
#ifndef UPS_MODEL_FUSE_H
#define UPS_MODEL_FUSE_H

#include "model/graph.h"

/* Rewrites what fits a pattern; values keep their numbers. Bits of results do not change where a device computes both
 * by the same kernels, which a card that looks for the fastest ones may not do. With UPS_CHECKPOINTING_CHEAP nothing is
 * fused: what fused ops keep is what it computes again. Differentiating does this first; graphs that only run forward
 * may ask for it. */
void ups_graph_fuse(ups_graph *graph);

/* Whether the second node, run after the first at once, makes a pair with it: a residual without a gate, and the norm
 * of its sum; in `backward`, which runs the second first, also a linear with GELU and the linear that alone reads it,
 * in half precision: the gradient of what is between them need not be made. */
bool ups_nodes_pair(const ups_graph *graph, int32_t first, int32_t second, bool backward);

#endif
