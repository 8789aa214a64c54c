/* Differentiation: which values need a gradient, and what backward of each node reads and gives. No nodes are added:
 * backward is each kernel's other half. */
#ifndef UPS_MODEL_DIFFERENTIATE_H
#define UPS_MODEL_DIFFERENTIATE_H

#include "model/graph.h"

/* Fuses (fuse.h), then marks which values need gradients for the float32 scalar `loss`, which is kept. Once, after
 * building. */
void ups_graph_differentiate(ups_graph *graph, ups_value loss);
/* As above, but gradients flow only to parameters whose names start with one of the prefixes: the rest is frozen. */
void ups_graph_differentiate_only(ups_graph *graph, ups_value loss, const char *const *prefixes, int prefix_count);

/* The inputs (bits) that backward of this node gives gradients to; 0 when it has no backward. After differentiate. */
uint32_t ups_node_gradient_inputs(const ups_graph *graph, const ups_node *node);
/* The inputs that backward of this very node reads: those that the wanted gradients need and that are there. */
uint32_t ups_node_backward_inputs(const ups_graph *graph, const ups_node *node);

#endif
