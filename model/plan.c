/* The plan: lifetimes, then placement.
 *
 * An activation is alive from the entry of the schedule that makes it to the last one that reads it; where it is
 * recomputed for backward it has a second place. Its gradient is alive from the first contribution to its producer's
 * backward. Along a residual stream all those gradients are one: an addition hands its output's gradient on, and later
 * contributions are added to it where it lies. What backward reads is what ups_node_backward_inputs says, so everything
 * else is dropped as forward moves on.
 *
 * Placement is offline dynamic storage allocation: NP-hard, but a greedy best fit comes close. Three orders are tried
 * (largest first, longest-lived first, first come first served) and the smallest arena is taken. */
#include "model/plan.h"

#include "model/differentiate.h"
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

struct ups_plan {
    const ups_graph *graph;
    ups_schedule schedule;
    ups_placement *values, *again; /* one a value, of roots only: as forward makes it, and as recomputing does */
    ups_placement *gradients;
    ups_value *gradient_of; /* one a value: whose place in `gradients` holds its gradient */
    uint8_t *accumulates;   /* one a node: bit i: input i is a later contribution */
    uint8_t *shares;        /* one a node: bit i: the gradient of input i is the output's */
    ups_plan_memory memory;
};

static size_t value_bytes(const ups_value_info *info) {
    size_t bytes = (size_t)ups_shape_elements(info->shape) * ups_dtype_size(info->dtype);
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Of a pair, what either entry makes is there when the first begins, and what either reads until the second ends. */
static int32_t begin_of(const ups_plan *plan, int32_t position) {
    return position > 0 && plan->schedule.entries[position - 1].with_next ? position - 1 : position;
}

static int32_t end_of(const ups_plan *plan, int32_t position) {
    return plan->schedule.entries[position].with_next ? position + 1 : position;
}

/* Whose place the value has at the moment: that of forward, or that of recomputing. */
static ups_placement *current(ups_plan *plan, ups_value root) {
    return plan->again[root].bytes ? &plan->again[root] : &plan->values[root];
}

static void read_at(ups_plan *plan, ups_value value, int32_t position) {
    ups_value root = ups_graph_root(plan->graph, value);
    if (root == UPS_NO_VALUE || plan->graph->values[root].kind != UPS_VALUE_ACTIVATION) return;
    ups_placement *place = current(plan, root);
    if (end_of(plan, position) > place->last) place->last = end_of(plan, position);
}

static void write_at(ups_plan *plan, ups_placement *placements, ups_value value, int32_t position) {
    const ups_value_info *info = &plan->graph->values[value];
    int32_t last = info->keep ? plan->schedule.count - 1 : end_of(plan, position);
    placements[value] = (ups_placement){.bytes = value_bytes(info), .first = begin_of(plan, position), .last = last};
}

/* What an entry reads and makes, in the order in which entries run. */
static void find_value_lifetimes(ups_plan *plan) {
    const ups_graph *graph = plan->graph;
    for (int32_t at = 0; at < plan->schedule.count; at++) {
        const ups_schedule_entry *entry = &plan->schedule.entries[at];
        const ups_node *node = &graph->nodes[entry->node];
        const ups_op_description *op = ups_op_describe(node->kind);
        bool backward = entry->action == UPS_BACKWARD;
        uint32_t reads = backward ? ups_node_backward_inputs(graph, node) : UINT32_MAX;
        for (int i = 0; i < node->input_count; i++) {
            if (reads >> i & 1) read_at(plan, node->inputs[i], at);
        }
        if (backward) {
            if (op->backward_output) read_at(plan, node->output, at);
            for (int i = 0; i < node->saved_count && op->backward_saved; i++) read_at(plan, node->saved[i], at);
        } else {
            ups_placement *placements = entry->action == UPS_RECOMPUTE ? plan->again : plan->values;
            write_at(plan, placements, node->output, at);
            for (int i = 0; i < node->saved_count; i++) write_at(plan, placements, node->saved[i], at);
        }
    }
}

/* Inputs whose gradient is the output's gradient, element by element. */
static bool passes_gradient(const ups_graph *graph, const ups_node *node, int input) {
    const ups_value_info *from = &graph->values[node->output];
    const ups_value_info *to = ups_graph_info(graph, ups_graph_root(graph, node->inputs[input]));
    return ups_op_describe(node->kind)->passes_gradient >> input & 1 && to->kind == UPS_VALUE_ACTIVATION &&
           to->dtype == from->dtype && ups_shape_elements(to->shape) == ups_shape_elements(from->shape);
}

/* One contribution to the gradient of `root`, by input `input` of node `n`, whose backward runs at `position`. */
static void contribute(ups_plan *plan, int32_t n, int32_t position, int input, ups_value root, bool *contributed) {
    const ups_node *node = &plan->graph->nodes[n];
    if (contributed[root]) {
        plan->accumulates[n] |= (uint8_t)(1u << input);
        return;
    }
    contributed[root] = true;
    if (!plan->shares[n] && passes_gradient(plan->graph, node, input)) {
        plan->shares[n] = (uint8_t)(1u << input);
        plan->gradient_of[root] = plan->gradient_of[node->output];
        return;
    }
    if (plan->graph->values[root].kind != UPS_VALUE_ACTIVATION) return;
    plan->gradients[root] =
        (ups_placement){.bytes = value_bytes(&plan->graph->values[root]), .first = begin_of(plan, position)};
}

/* A gradient is alive from its first contribution to the backward of the node that made the value. `contributed`
 * (values), zeros: whose gradient something was added to already. */
static void find_gradient_lifetimes(ups_plan *plan, bool *contributed) {
    const ups_graph *graph = plan->graph;
    for (ups_value v = 0; v < graph->value_count; v++) plan->gradient_of[v] = v;
    if (graph->loss == UPS_NO_VALUE) return;
    ups_value loss = ups_graph_root(graph, graph->loss); /* its seed is put in before backward starts */
    plan->gradients[loss] =
        (ups_placement){.bytes = value_bytes(&graph->values[loss]), .first = plan->schedule.backward};
    for (int32_t at = plan->schedule.backward; at < plan->schedule.count; at++) {
        const ups_schedule_entry *entry = &plan->schedule.entries[at];
        if (entry->action != UPS_BACKWARD) continue;
        const ups_node *node = &graph->nodes[entry->node];
        uint32_t wanted = ups_node_gradient_inputs(graph, node);
        plan->gradients[plan->gradient_of[node->output]].last = end_of(plan, at);
        for (int i = 0; i < node->input_count; i++) {
            if (wanted >> i & 1)
                contribute(plan, entry->node, at, i, ups_graph_root(graph, node->inputs[i]), contributed);
        }
    }
}

static int compare(int64_t a, int64_t b) {
    return a < b ? -1 : a > b;
}

static int64_t duration(const ups_placement *placement) {
    return (int64_t)placement->last - placement->first;
}

static int largest_first(const void *a, const void *b) {
    const ups_placement *x = *(ups_placement *const *)a, *y = *(ups_placement *const *)b;
    int order = compare((int64_t)y->bytes, (int64_t)x->bytes);
    if (!order) order = compare(duration(y), duration(x));
    return order ? order : compare(x->first, y->first);
}

static int longest_first(const void *a, const void *b) {
    const ups_placement *x = *(ups_placement *const *)a, *y = *(ups_placement *const *)b;
    int order = compare(duration(y), duration(x));
    if (!order) order = compare((int64_t)y->bytes, (int64_t)x->bytes);
    return order ? order : compare(x->first, y->first);
}

static int earliest_first(const void *a, const void *b) {
    const ups_placement *x = *(ups_placement *const *)a, *y = *(ups_placement *const *)b;
    int order = compare(x->first, y->first);
    if (!order) order = compare((int64_t)y->bytes, (int64_t)x->bytes);
    return order ? order : compare(duration(y), duration(x));
}

/* Places `items` in their order, each into the tightest gap between what is placed and alive with it; returns the
 * arena's size. `placed`: scratch for `count` pointers, kept sorted by offset. */
static size_t place(ups_placement **items, int32_t count, ups_placement **placed) {
    size_t arena = 0;
    for (int32_t i = 0; i < count; i++) {
        ups_placement *item = items[i];
        int64_t end = 0, best = -1, best_gap = INT64_MAX, bytes = (int64_t)item->bytes;
        for (int32_t k = 0; k < i; k++) {
            const ups_placement *other = placed[k];
            if (other->last < item->first || other->first > item->last) continue;
            int64_t gap = other->offset - end;
            if (gap >= bytes && gap < best_gap) {
                best = end;
                best_gap = gap;
            }
            if (other->offset + (int64_t)other->bytes > end) end = other->offset + (int64_t)other->bytes;
        }
        item->offset = best >= 0 ? best : end;
        int32_t at = i;
        for (; at > 0 && placed[at - 1]->offset > item->offset; at--) placed[at] = placed[at - 1];
        placed[at] = item;
        if ((size_t)(item->offset + bytes) > arena) arena = (size_t)(item->offset + bytes);
    }
    return arena;
}

static size_t peak_of(ups_placement *const *items, int32_t count, int32_t positions, int64_t *changes) {
    memset(changes, 0, sizeof *changes * (size_t)(positions + 1));
    for (int32_t i = 0; i < count; i++) {
        changes[items[i]->first] += (int64_t)items[i]->bytes;
        changes[items[i]->last + 1] -= (int64_t)items[i]->bytes;
    }
    int64_t alive = 0, peak = 0;
    for (int32_t p = 0; p < positions; p++) {
        alive += changes[p];
        if (alive > peak) peak = alive;
    }
    return (size_t)peak;
}

static void place_all(ups_plan *plan, ups_placement **items, int32_t count, ups_placement **placed) {
    int (*const orders[])(const void *, const void *) = {longest_first, earliest_first, largest_first};
    enum { ORDERS = sizeof orders / sizeof orders[0] };
    size_t smallest = SIZE_MAX;
    int best = 0;
    for (int i = 0; i < ORDERS; i++) {
        qsort(items, (size_t)count, sizeof *items, orders[i]);
        size_t arena = place(items, count, placed);
        if (arena < smallest) {
            smallest = arena;
            best = i;
        }
    }
    qsort(items, (size_t)count, sizeof *items, orders[best]);
    plan->memory.activations = place(items, count, placed);
}

static void measure_outside(ups_plan *plan) {
    const ups_graph *graph = plan->graph;
    for (ups_value v = 0; v < graph->value_count; v++) {
        ups_value_kind kind = graph->values[v].kind;
        if (kind != UPS_VALUE_INPUT && kind != UPS_VALUE_CONSTANT) continue;
        plan->memory.inputs += value_bytes(&graph->values[v]);
    }
    size_t elements = (size_t)ups_parameters_elements(graph->parameters);
    bool allocated = ups_parameters_allocated(graph->parameters);
    bool gradients = allocated ? ups_parameters_gradients(graph->parameters) != NULL : graph->loss != UPS_NO_VALUE;
    ups_dtype compute = allocated ? ups_parameters_weights(graph->parameters)->compute_dtype : graph->compute;
    size_t copy = compute == UPS_F32 ? 0 : ups_dtype_size(compute);
    plan->memory.parameters = elements * (sizeof(float) * (gradients ? 2 : 1) + copy);
}

ups_status ups_plan_create(const ups_graph *graph, ups_plan **created, ups_error *error) {
    *created = NULL;
    size_t count = (size_t)graph->value_count;
    ups_schedule schedule;
    UPS_TRY(ups_schedule_create(graph, &schedule, error));
    ups_plan *plan = calloc(1, sizeof *plan);
    ups_placement **items = calloc(3 * count + 1, sizeof *items), **placed = calloc(3 * count + 1, sizeof *placed);
    int64_t *changes = calloc((size_t)schedule.count + 1, sizeof *changes);
    bool *contributed = calloc(count + 1, sizeof *contributed);
    ups_status status = UPS_OK;
    if (plan) {
        *plan = (ups_plan){.graph = graph,
                           .schedule = schedule,
                           .values = calloc(count + 1, sizeof *plan->values),
                           .again = calloc(count + 1, sizeof *plan->again),
                           .gradients = calloc(count + 1, sizeof *plan->gradients),
                           .gradient_of = calloc(count + 1, sizeof *plan->gradient_of),
                           .shares = calloc((size_t)graph->node_count + 1, sizeof *plan->shares),
                           .accumulates = calloc((size_t)graph->node_count + 1, sizeof *plan->accumulates)};
    }
    if (!plan || !items || !placed || !changes || !contributed || !plan->values || !plan->again || !plan->gradients ||
        !plan->gradient_of || !plan->shares || !plan->accumulates) {
        if (!plan) ups_schedule_destroy(&schedule);
        status = ups_fail(error, UPS_ERR_MEMORY, "no memory to plan a graph of %d nodes", graph->node_count);
        goto cleanup;
    }
    find_value_lifetimes(plan);
    find_gradient_lifetimes(plan, contributed);
    int32_t item_count = 0;
    for (size_t v = 0; v < count; v++) {
        ups_placement *all[] = {&plan->values[v], &plan->again[v], &plan->gradients[v]};
        for (int i = 0; i < 3; i++) {
            all[i]->offset = -1;
            if (all[i]->bytes) items[item_count++] = all[i];
        }
    }
    place_all(plan, items, item_count, placed);
    plan->memory.lower_bound = peak_of(items, item_count, schedule.count, changes);
    measure_outside(plan);
    *created = plan;
    plan = NULL;

cleanup:
    ups_plan_destroy(plan);
    free(items);
    free(placed);
    free(changes);
    free(contributed);
    return status;
}

void ups_plan_destroy(ups_plan *plan) {
    if (!plan) return;
    ups_schedule_destroy(&plan->schedule);
    free(plan->values);
    free(plan->again);
    free(plan->gradients);
    free(plan->gradient_of);
    free(plan->shares);
    free(plan->accumulates);
    free(plan);
}

ups_plan_memory ups_plan_memory_get(const ups_plan *plan) {
    return plan->memory;
}

const ups_schedule *ups_plan_schedule(const ups_plan *plan) {
    return &plan->schedule;
}

const ups_placement *ups_plan_value(const ups_plan *plan, ups_value value, int32_t position) {
    ups_value root = ups_graph_root(plan->graph, value);
    const ups_placement *again = &plan->again[root];
    return again->bytes && position >= again->first ? again : &plan->values[root];
}

const ups_placement *ups_plan_gradient(const ups_plan *plan, ups_value value) {
    return &plan->gradients[plan->gradient_of[ups_graph_root(plan->graph, value)]];
}

bool ups_plan_accumulates(const ups_plan *plan, int32_t node, int input) {
    return plan->accumulates[node] >> input & 1;
}

bool ups_plan_shares(const ups_plan *plan, int32_t node, int input) {
    return plan->shares[node] >> input & 1;
}
