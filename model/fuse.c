#include "model/fuse.h"

/* `first` makes a value that only `second` reads; `second` follows at once, in the same block, with no other input and
 * nothing saved. The fused op has the inputs and attributes of the first, the output of the second, and saves the value
 * between them. Where the second knows more, fuse() needs a wider rule. */
static const struct pattern {
    ups_op_kind first, second, fused;
} patterns[] = {
    {UPS_OP_LINEAR, UPS_OP_GELU, UPS_OP_LINEAR_GELU},
};

static int32_t readers(const ups_graph *graph, ups_value root) {
    int32_t count = 0;
    for (int32_t n = 0; n < graph->node_count; n++) {
        const ups_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count; i++) count += ups_graph_root(graph, node->inputs[i]) == root;
    }
    return count;
}

/* Makes one node of `first` and `second`, in the place of `second`. */
static bool fuse(ups_graph *graph, const ups_node *first, ups_node *second) {
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        const struct pattern *pattern = &patterns[p];
        const ups_value_info *between = &graph->values[first->output], *out = &graph->values[second->output];
        if (first->kind != pattern->first || second->kind != pattern->second || second->inputs[0] != first->output)
            continue;
        if (between->keep || between->dtype != out->dtype || first->block != second->block) return false;
        if (readers(graph, first->output) != 1) return false;
        if (second->input_count != 1 || second->saved_count != 0 || first->saved_count == UPS_MAX_SAVED)
            ups_graph_abort(graph, ups_op_name(pattern->fused), "the pattern would lose inputs or saved values");
        ups_value output = second->output;
        *second = *first;
        second->kind = pattern->fused;
        second->output = output;
        second->saved[second->saved_count++] = first->output;
        return true;
    }
    return false;
}

/* A residual without a gate, and the norm of its sum. */
static bool is_normed_residual(const ups_node *sum, const ups_node *norm) {
    if (sum->kind != UPS_OP_RESIDUAL || norm->inputs[0] != sum->output) return false;
    if (norm->kind != UPS_OP_LAYER_NORM && norm->kind != UPS_OP_RMS_NORM) return false;
    return sum->inputs[2] == UPS_NO_VALUE;
}

/* A linear with GELU, and the linear that alone reads it. */
static bool is_hidden_layer(const ups_graph *graph, const ups_node *hidden, const ups_node *linear) {
    if (hidden->kind != UPS_OP_LINEAR_GELU || linear->kind != UPS_OP_LINEAR) return false;
    if (graph->compute == UPS_F32 || linear->inputs[0] != hidden->output || linear->block != hidden->block)
        return false;
    return !graph->values[hidden->output].keep && readers(graph, hidden->output) == 1;
}

bool ups_nodes_pair(const ups_graph *graph, int32_t first, int32_t second, bool backward) {
    const ups_node *a = &graph->nodes[first], *b = &graph->nodes[second];
    if (graph->unpaired) return false;
    return is_normed_residual(a, b) || (backward && is_hidden_layer(graph, a, b));
}

void ups_graph_fuse(ups_graph *graph) {
    if (graph->checkpointing == UPS_CHECKPOINTING_CHEAP) return;
    int32_t kept = 0;
    for (int32_t n = 0; n < graph->node_count; n++) {
        bool fused = n + 1 < graph->node_count && fuse(graph, &graph->nodes[n], &graph->nodes[n + 1]);
        if (!fused) graph->nodes[kept++] = graph->nodes[n];
    }
    graph->node_count = kept;
    for (int32_t n = 0; n < kept; n++) {
        const ups_node *node = &graph->nodes[n];
        graph->values[node->output].producer = n;
        for (int i = 0; i < node->saved_count; i++) graph->values[node->saved[i]].producer = n;
    }
}
