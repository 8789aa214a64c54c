#include "model/work.h"

#include "model/differentiate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static ups_shape shape_of(const ups_graph *graph, ups_value value) {
    return ups_graph_info(graph, value)->shape;
}

static double elements(const ups_graph *graph, ups_value value) {
    return (double)ups_shape_elements(shape_of(graph, value));
}

static double bytes(const ups_graph *graph, ups_value value) {
    return elements(graph, value) * (double)ups_dtype_size(ups_graph_info(graph, value)->dtype);
}

/* Ops that read as many elements of their first input as they make, however large it is. */
static bool selects(ups_op_kind kind) {
    return kind == UPS_OP_SLICE || kind == UPS_OP_SELECT_FRAME || kind == UPS_OP_GATHER_POINTS;
}

/* ---- arithmetic: of forward, and how many times that of backward ---------------------------------------------------
 */

static double linear_flops(const ups_graph *graph, const ups_node *node) {
    ups_shape weight = shape_of(graph, node->inputs[1]);
    return 2.0 * elements(graph, node->inputs[0]) * (double)weight.size[0];
}

static double attention_flops(const ups_graph *graph, const ups_node *node) {
    const ups_op_attributes *a = node->attributes;
    ups_shape output = shape_of(graph, node->output);
    double keys = (double)output.size[1];
    if (node->inputs[1] != UPS_NO_VALUE) keys = (double)shape_of(graph, node->inputs[1]).size[1];
    if (a->dims > 0) {
        keys = 1.0;
        for (int axis = 0; axis < a->dims; axis++)
            keys *= (double)(a->patch[axis] < a->grid[axis] ? a->patch[axis] : a->grid[axis]);
    }
    return 4.0 * elements(graph, node->output) * keys;
}

static double mixing_flops(const ups_graph *graph, const ups_node *node) {
    double parts = 1.0;
    for (int axis = 0; axis < node->attributes->dims; axis++) parts *= 2.0;
    return 2.0 * elements(graph, node->saved[0]) * parts * (double)ups_shape_last(shape_of(graph, node->saved[0]));
}

/* One way, an axis after the other, the fastest first. */
static double transform_flops(const ups_graph *graph, const ups_node *node) {
    double flops = 0.0, volume = elements(graph, node->inputs[0]);
    for (int axis = node->attributes->dims - 1; axis >= 0; axis--) {
        ups_shape table = shape_of(graph, node->inputs[2 + axis]);
        flops += 2.0 * volume * (double)table.size[0];
        volume *= (double)table.size[0] / (double)table.size[1];
    }
    return flops;
}

static double taps(const ups_graph *graph, const ups_node *node) {
    return (double)shape_of(graph, node->inputs[1]).size[0];
}

static void count_flops(const ups_graph *graph, const ups_node *node, bool backward, ups_work *work) {
    uint32_t wanted = backward ? ups_node_gradient_inputs(graph, node) : 0;
    double both = (double)((wanted & 1u) + (wanted >> 1 & 1u)); /* gradients to what is mapped, and to the weight */
    switch (node->kind) {
    case UPS_OP_LINEAR:
    case UPS_OP_LINEAR_GELU:
        work->product_flops = linear_flops(graph, node) * (backward ? both : 1.0);
        break;
    case UPS_OP_ATTENTION: /* backward computes the scores again: five products instead of two */
        work->product_flops = attention_flops(graph, node) * (backward ? 2.5 : 1.0);
        work->again = attention_flops(graph, node) * (backward ? 0.5 : 0.0);
        break;
    case UPS_OP_SPECTRAL:
        work->product_flops = 2.0 * transform_flops(graph, node) + mixing_flops(graph, node) * (backward ? both : 1.0);
        break;
    case UPS_OP_FIELD_MODES: /* by fast transforms of two lines at once */
        for (int axis = 0; axis < node->attributes->dims; axis++)
            work->other_flops += 2.5 * elements(graph, node->output) * log2((double)node->attributes->grid[axis]);
        break;
    case UPS_OP_DEPTHWISE:
        work->other_flops = 2.0 * elements(graph, node->output) * taps(graph, node) * (backward ? both : 1.0);
        break;
    default:
        break;
    }
}

/* ---- bytes ---------------------------------------------------------------------------------------------------------
 */

static double input_bytes(const ups_graph *graph, const ups_node *node, int input) {
    ups_value value = node->inputs[input];
    double all = bytes(graph, value);
    if (input > 0 || !selects(node->kind)) return all;
    return elements(graph, node->output) * all / elements(graph, value);
}

static void count_forward_bytes(const ups_graph *graph, const ups_node *node, ups_work *work) {
    for (int i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != UPS_NO_VALUE) work->read += input_bytes(graph, node, i);
    }
    work->written += bytes(graph, node->output);
    for (int i = 0; i < node->saved_count; i++) work->written += bytes(graph, node->saved[i]);
}

static void count_backward_bytes(const ups_graph *graph, const ups_plan *plan, int32_t n, ups_work *work) {
    const ups_node *node = &graph->nodes[n];
    const ups_op_description *op = ups_op_describe(node->kind);
    uint32_t reads = ups_node_backward_inputs(graph, node), wanted = ups_node_gradient_inputs(graph, node);
    for (int i = 0; i < node->input_count; i++) {
        if (ups_plan_shares(plan, n, i)) wanted &= ~(1u << i);
    }
    if (!wanted) return; /* it hands its gradient on */
    for (int i = 0; i < node->input_count; i++) {
        if (reads >> i & 1) work->read += bytes(graph, node->inputs[i]);
        if (!(wanted >> i & 1)) continue;
        double gradient = bytes(graph, node->inputs[i]);
        work->written += gradient;
        if (ups_plan_accumulates(plan, n, i)) work->read += gradient;
    }
    work->read += bytes(graph, node->output); /* its gradient */
    if (op->backward_output) work->read += bytes(graph, node->output);
    for (int i = 0; op->backward_saved && i < node->saved_count; i++) work->read += bytes(graph, node->saved[i]);
}

/* Operands in FP8 are read and rounded by passes before the product, which reads what they wrote. */
static void count_fp8(const ups_graph *graph, const ups_node *node, bool backward, ups_work *work) {
    if (!node->attributes || !node->attributes->fp8) return;
    if (ups_shape_rows(shape_of(graph, node->output)) % UPS_FP8_MULTIPLE) return;
    work->fp8 = true;
    const uint32_t wanted = backward ? ups_node_gradient_inputs(graph, node) : 3u;
    const bool x = !backward || (wanted & 2u), weight = wanted & 1u; /* that are multiplied */
    const ups_value inputs[] = {node->inputs[0], node->inputs[1]};
    double sources = 0.0, rounded = 0.0;
    if (x) sources += bytes(graph, inputs[0]), rounded += elements(graph, inputs[0]);
    if (weight) sources += bytes(graph, inputs[1]), rounded += elements(graph, inputs[1]);
    if (backward) {
        sources += bytes(graph, node->output);
        rounded += (double)(x + weight) * elements(graph, node->output); /* as it lies, and transposed */
    }
    work->apart = sources + rounded;
    work->read += rounded - sources;
}

ups_work ups_work_of(const ups_graph *graph, const ups_plan *plan, int32_t position) {
    const ups_schedule_entry *entry = &ups_plan_schedule(plan)->entries[position];
    const ups_node *node = &graph->nodes[entry->node];
    bool backward = entry->action == UPS_BACKWARD;
    const bool paired = position > 0 && entry[-1].with_next;
    /* a hidden layer reads the gradient that its pair makes: its products do */
    ups_work work = {.with_last = paired && node->kind != UPS_OP_LINEAR_GELU};
    count_flops(graph, node, backward, &work);
    if (backward)
        count_backward_bytes(graph, plan, entry->node, &work);
    else
        count_forward_bytes(graph, node, &work);
    count_fp8(graph, node, backward, &work);
    /* the sum, or its gradient, which the first of the pair has made */
    if (work.with_last && work.read > 0.0) work.read -= bytes(graph, backward ? node->output : node->inputs[0]);
    return work;
}

/* ---- by op ------------------------------------------------------------------------------------------------------- */

void ups_op_work_add(ups_op_work *sum, const ups_op_work *op) {
    sum->flops += op->flops, sum->bytes += op->bytes;
    sum->forward += op->forward, sum->backward += op->backward, sum->recompute += op->recompute;
    sum->launches += op->launches, sum->by_traffic += op->by_traffic;
}

void ups_op_work_count(ups_op_work *op, const ups_work *work, double times) {
    op->flops += times * (work->product_flops + work->other_flops);
    op->bytes += times * (work->read + work->written + work->apart);
}

double *ups_op_pass(ups_op_work *op, ups_schedule_action action) {
    if (action == UPS_RECOMPUTE) return &op->recompute;
    return action == UPS_BACKWARD ? &op->backward : &op->forward;
}

double ups_op_seconds(const ups_op_work *op) {
    return op->forward + op->backward + op->recompute;
}

static int by_time(const void *a, const void *b) {
    const double x = ups_op_seconds(a), y = ups_op_seconds(b);
    return (x < y) - (x > y);
}

void ups_op_works_sort(ups_op_work *ops, int count) {
    qsort(ops, (size_t)count, sizeof *ops, by_time);
}

void ups_op_rate(double count, double seconds, char text[UPS_OP_RATE]) {
    text[0] = '\0';
    if (count > 0.0) snprintf(text, UPS_OP_RATE, "%.1f", count / seconds * 1e-9);
}
