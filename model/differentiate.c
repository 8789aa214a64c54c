/* A value needs one when a trainable parameter feeds it *and* it feeds the loss; a node has a backward when its output
 * needs one. No nodes are added: backward is each kernel's other half, run over the same list in reverse. */
#include "model/differentiate.h"
#include "model/fuse.h"

#include <stdlib.h>
#include <string.h>

static bool is_trainable(const ups_graph *graph, const ups_value_info *info, const char *const *prefixes,
                         int prefix_count) {
    if (info->kind != UPS_VALUE_PARAMETER) return false;
    if (ups_parameters_get(graph->parameters, info->parameter)->init.fixed) return false;
    for (int i = 0; i < prefix_count; i++) {
        if (strncmp(info->name, prefixes[i], strlen(prefixes[i])) == 0) return true;
    }
    return prefix_count == 0;
}

/* The root of input `i` where the op gives it a gradient, else UPS_NO_VALUE. */
static ups_value gradient_input(const ups_graph *graph, const ups_node *node, int i) {
    if (!(ups_op_describe(node->kind)->gradient_inputs >> i & 1)) return UPS_NO_VALUE;
    ups_value value = node->inputs[i];
    for (; value != UPS_NO_VALUE && graph->values[value].kind == UPS_VALUE_VIEW; value = graph->values[value].base) {
        if (graph->values[value].held) return UPS_NO_VALUE;
    }
    return value;
}

/* Two gradients of one node must not be the same memory: kernels write them side by side. */
static void refuse_twin_inputs(const ups_graph *graph, const ups_node *node) {
    uint32_t wanted = ups_node_gradient_inputs(graph, node);
    for (int i = 0; i < node->input_count; i++) {
        for (int k = 0; k < i; k++) {
            if (!(wanted >> i & 1) || !(wanted >> k & 1)) continue;
            if (gradient_input(graph, node, i) == gradient_input(graph, node, k)) {
                ups_graph_abort(graph, ups_op_name(node->kind),
                                "inputs %d and %d in '%s' are the same value and both need a gradient", k, i,
                                node->scope);
            }
        }
    }
}

void ups_graph_differentiate(ups_graph *graph, ups_value loss) {
    ups_graph_differentiate_only(graph, loss, NULL, 0);
}

void ups_graph_differentiate_only(ups_graph *graph, ups_value loss, const char *const *prefixes, int prefix_count) {
    const ups_value_info *scalar = ups_graph_info(graph, loss);
    if (graph->loss != UPS_NO_VALUE) ups_graph_abort(graph, "differentiate", "this graph was differentiated before");
    if (ups_shape_elements(scalar->shape) != 1 || scalar->dtype != UPS_F32) {
        ups_graph_abort(graph, "differentiate", "the loss has %lld elements of %s; one float32 was expected",
                        (long long)ups_shape_elements(scalar->shape), ups_dtype_name(scalar->dtype));
    }
    ups_graph_fuse(graph);
    ups_value_info *values = graph->values;

    for (ups_value v = 0; v < graph->value_count; v++) {
        values[v].needs_gradient = is_trainable(graph, &values[v], prefixes, prefix_count);
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        const ups_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            ups_value input = gradient_input(graph, node, i);
            if (input != UPS_NO_VALUE && values[input].needs_gradient) values[node->output].needs_gradient = true;
        }
    }
    ups_value root = ups_graph_root(graph, loss);
    if (!values[root].needs_gradient || values[root].kind != UPS_VALUE_ACTIVATION) {
        ups_graph_abort(graph, "differentiate", "no trainable parameter feeds the loss");
    }

    bool *feeds_loss = ups_arena_alloc(graph->arena, (size_t)graph->value_count);
    feeds_loss[root] = true;
    for (int32_t n = graph->node_count - 1; n >= 0; n--) {
        const ups_node *node = &graph->nodes[n];
        if (!feeds_loss[node->output]) continue;
        for (int i = 0; i < node->input_count; i++) {
            ups_value input = gradient_input(graph, node, i);
            if (input != UPS_NO_VALUE && values[input].needs_gradient) feeds_loss[input] = true;
        }
    }
    for (ups_value v = 0; v < graph->value_count; v++) {
        if (values[v].kind != UPS_VALUE_VIEW) values[v].needs_gradient = values[v].needs_gradient && feeds_loss[v];
    }
    for (ups_value v = 0; v < graph->value_count; v++) {
        if (values[v].kind == UPS_VALUE_VIEW)
            values[v].needs_gradient = values[ups_graph_root(graph, v)].needs_gradient;
    }
    for (int32_t n = 0; n < graph->node_count; n++) refuse_twin_inputs(graph, &graph->nodes[n]);
    graph->loss = loss;
    ups_graph_keep(graph, loss);
}

uint32_t ups_node_gradient_inputs(const ups_graph *graph, const ups_node *node) {
    if (!graph->values[node->output].needs_gradient) return 0;
    uint32_t wanted = 0;
    for (int i = 0; i < node->input_count; i++) {
        ups_value input = gradient_input(graph, node, i);
        if (input != UPS_NO_VALUE && graph->values[input].needs_gradient) wanted |= 1u << i;
    }
    return wanted;
}

uint32_t ups_node_backward_inputs(const ups_graph *graph, const ups_node *node) {
    uint32_t reads = ups_op_backward_inputs(node->kind, ups_node_gradient_inputs(graph, node));
    for (int i = 0; i < UPS_MAX_INPUTS; i++) {
        if (i >= node->input_count || node->inputs[i] == UPS_NO_VALUE) reads &= ~(1u << i);
    }
    return reads;
}
