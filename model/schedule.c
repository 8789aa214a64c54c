#include "model/schedule.h"

#include "model/differentiate.h"
#include "model/fuse.h"
#include <stdlib.h>
#include <string.h>

/* `there` (nodes): whose output and saved values are in memory during backward, so far. */
typedef struct builder {
    const ups_graph *graph;
    ups_schedule *schedule;
    bool *there;
} builder;

static void append(builder *b, ups_schedule_action action, int32_t node) {
    b->schedule->entries[b->schedule->count++] = (ups_schedule_entry){.action = action, .node = node};
}

static int32_t producer(const ups_graph *graph, ups_value value) {
    ups_value root = ups_graph_root(graph, value);
    return root == UPS_NO_VALUE ? -1 : graph->values[root].producer;
}

/* Nodes outside of blocks are kept, and those whose output another block reads; with `cheap` also products whose output
 * backward reads. */
static void find_kept(builder *b) {
    const ups_graph *graph = b->graph;
    for (int32_t n = 0; n < graph->node_count; n++) {
        const ups_node *node = &graph->nodes[n];
        b->there[n] = graph->checkpointing == UPS_CHECKPOINTING_NONE || node->block == UPS_NO_BLOCK ||
                      graph->values[node->output].keep;
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        const ups_node *node = &graph->nodes[n];
        uint32_t reads = ups_node_backward_inputs(graph, node);
        for (int i = 0; i < node->input_count; i++) {
            int32_t from = producer(graph, node->inputs[i]);
            if (from < 0) continue;
            bool product =
                graph->checkpointing == UPS_CHECKPOINTING_CHEAP && ups_op_describe(graph->nodes[from].kind)->product;
            if (graph->nodes[from].block != node->block || (product && reads >> i & 1)) b->there[from] = true;
        }
    }
}

/* What node `n` made is in memory after this. A block's inputs are always there, so that this ends within it. */
static void require(builder *b, int32_t n) {
    if (n < 0 || b->there[n]) return;
    const ups_node *node = &b->graph->nodes[n];
    for (int i = 0; i < node->input_count; i++) require(b, producer(b->graph, node->inputs[i]));
    append(b, UPS_RECOMPUTE, n);
    b->there[n] = true;
}

static void append_backward(builder *b, int32_t n) {
    const ups_node *node = &b->graph->nodes[n];
    const ups_op_description *op = ups_op_describe(node->kind);
    if (!ups_node_gradient_inputs(b->graph, node)) return;
    uint32_t reads = ups_node_backward_inputs(b->graph, node);
    for (int i = 0; i < node->input_count; i++) {
        if (reads >> i & 1) require(b, producer(b->graph, node->inputs[i]));
    }
    if (op->backward_output || (op->backward_saved && node->saved_count > 0)) require(b, n);
    append(b, UPS_BACKWARD, n);
}

static void find_pairs(builder *b) {
    for (int32_t at = 0; at + 1 < b->schedule->count; at++) {
        ups_schedule_entry *entry = &b->schedule->entries[at], *next = entry + 1;
        if (entry->action != next->action) continue;
        bool backward = entry->action == UPS_BACKWARD;
        int32_t first = backward ? next->node : entry->node, second = backward ? entry->node : next->node;
        entry->with_next = ups_nodes_pair(b->graph, first, second, backward);
        at += entry->with_next;
    }
}

ups_status ups_schedule_create(const ups_graph *graph, ups_schedule *schedule, ups_error *error) {
    size_t nodes = (size_t)graph->node_count + 1;
    *schedule = (ups_schedule){.entries = malloc(3 * nodes * sizeof *schedule->entries)};
    builder b = {graph, schedule, calloc(nodes, sizeof *b.there)};
    if (!schedule->entries || !b.there) {
        free(b.there);
        ups_schedule_destroy(schedule);
        return ups_fail(error, UPS_ERR_MEMORY, "no memory for the schedule of a graph of %d nodes", graph->node_count);
    }
    for (int32_t n = 0; n < graph->node_count; n++) append(&b, UPS_FORWARD, n);
    schedule->backward = schedule->count;
    if (graph->loss != UPS_NO_VALUE) {
        find_kept(&b);
        for (int32_t n = graph->node_count - 1; n >= 0; n--) append_backward(&b, n);
    }
    find_pairs(&b);
    free(b.there);
    return UPS_OK;
}

void ups_schedule_destroy(ups_schedule *schedule) {
    free(schedule->entries);
    *schedule = (ups_schedule){0};
}
