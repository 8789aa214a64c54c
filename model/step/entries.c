/* The schedule's calls: shapes and dtypes first, by which the device chooses kernels, addresses once there is memory.
 *
 * An address that an op's description does not promise to backward stays NULL, so that a kernel which reads more than
 * it says is found at once. */
#include "model/step/parts.h"

#include "model/differentiate.h"

/* ---- addresses --------------------------------------------------------------------------------------------------- */

size_t ups_step_value_bytes(const ups_graph *graph, ups_value value) {
    const ups_value_info *info = ups_graph_info(graph, value);
    return (size_t)ups_shape_elements(info->shape) * ups_dtype_size(info->dtype);
}

/* Of a parameter, in the buffers that the step is bound to. */
static int64_t weight_offset(const ups_step *step, const ups_value_info *info) {
    return ups_parameters_get(step->graph->parameters, info->parameter)->offset - step->weights.offset;
}

void *ups_step_value_address(const ups_step *step, ups_value value, int32_t position) {
    ups_value root = ups_graph_root(step->graph, value);
    const ups_value_info *info = ups_graph_info(step->graph, root);
    switch (info->kind) {
    case UPS_VALUE_INPUT:
    case UPS_VALUE_CONSTANT:
        return step->inputs + step->input_offsets[root];
    case UPS_VALUE_PARAMETER:
        return step->weights.values + weight_offset(step, info);
    case UPS_VALUE_ACTIVATION:
        return step->shared->arena + ups_plan_value(step->plan, root, position)->offset;
    case UPS_VALUE_VIEW:
        break; /* a root is none */
    }
    return NULL;
}

void *ups_step_gradient_address(const ups_step *step, ups_value value) {
    ups_value root = ups_graph_root(step->graph, value);
    const ups_value_info *info = ups_graph_info(step->graph, root);
    if (info->kind == UPS_VALUE_PARAMETER) {
        return step->weights.gradients ? step->weights.gradients + weight_offset(step, info) : NULL;
    }
    return step->shared->arena + ups_plan_gradient(step->plan, root)->offset;
}

/* ---- calls without addresses ------------------------------------------------------------------------------------- */

/* Shape and dtype; no address yet. */
static ups_tensor describe_tensor(const ups_graph *graph, ups_value value) {
    if (value == UPS_NO_VALUE) return (ups_tensor){0};
    const ups_value_info *info = ups_graph_info(graph, value);
    return (ups_tensor){.dtype = info->dtype, .shape = info->shape};
}

/* A parameter that the weights have a copy of in the compute dtype. What was measured is exact. */
static bool has_compute_copy(const ups_graph *graph, ups_value value) {
    if (graph->compute == UPS_F32 || value == UPS_NO_VALUE) return false;
    const ups_value_info *info = ups_graph_info(graph, ups_graph_root(graph, value));
    return info->kind == UPS_VALUE_PARAMETER && !ups_parameters_get(graph->parameters, info->parameter)->init.fixed;
}

/* Such a parameter that is read from the copy alone. */
static bool is_compute_copy(const ups_graph *graph, const ups_node *node, int input) {
    return (ups_op_describe(node->kind)->compute_inputs >> input & 1) && has_compute_copy(graph, node->inputs[input]);
}

/* The gradients that node `n`'s kernel has to write: those wanted that are not there already. */
static uint32_t written_gradients(const ups_step *step, int32_t n) {
    const ups_node *node = &step->graph->nodes[n];
    uint32_t wanted = ups_node_gradient_inputs(step->graph, node);
    for (int i = 0; i < node->input_count; i++) {
        if (ups_plan_shares(step->plan, n, i)) wanted &= ~(1u << i);
    }
    return wanted;
}

/* A call of node `n` with shapes and dtypes, no address yet. `gradients`: those that backward writes; 0: forward. */
static ups_op_call describe_call(const ups_step *step, int32_t n, uint32_t gradients) {
    const ups_graph *graph = step->graph;
    const ups_node *node = &graph->nodes[n];
    ups_op_call call = {.kind = node->kind,
                        .attributes = node->attributes,
                        .input_count = node->input_count,
                        .copies_dtype = graph->compute,
                        .output = describe_tensor(graph, node->output)};
    for (int i = 0; i < node->input_count; i++) {
        call.inputs[i] = describe_tensor(graph, node->inputs[i]);
        if (is_compute_copy(graph, node, i)) call.inputs[i].dtype = graph->compute;
        if (gradients >> i & 1) call.input_gradients[i] = describe_tensor(graph, node->inputs[i]);
    }
    for (int i = 0; i < node->saved_count; i++) call.saved[i] = describe_tensor(graph, node->saved[i]);
    if (gradients) call.output_gradient = call.output;
    return call;
}

/* Backward of node `n` begins a pair. */
static bool is_paired(const ups_step *step, int32_t n) {
    const ups_schedule *schedule = ups_plan_schedule(step->plan);
    for (int32_t at = schedule->backward; at < schedule->count; at++) {
        const ups_schedule_entry *entry = &schedule->entries[at];
        if (entry->action == UPS_BACKWARD && entry->node == n) return entry->with_next;
    }
    return false;
}

ups_status ups_step_prepare_node(ups_step *step, int32_t n, ups_error *error) {
    const ups_node *node = &step->graph->nodes[n];
    const char *op = ups_op_name(node->kind);
    uint32_t gradients = written_gradients(step, n);
    ups_op_call call = describe_call(step, n, gradients);
    call.paired = is_paired(step, n);
    ups_kernel *kernel = &step->kernels[n];
    if (class_of(step)->kernel(step->device, &call, gradients != 0, kernel, error) != UPS_OK) {
        return ups_fail_within(error, "%s in '%s'", op, node->scope);
    }
    if (!kernel->forward || (gradients && !kernel->backward)) {
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "the device '%s' has no kernel for %s of %s ('%s')",
                        class_of(step)->name, kernel->forward ? "backward" : "forward", op, node->scope);
    }
    if (kernel->workspace_bytes > step->workspace_bytes) step->workspace_bytes = kernel->workspace_bytes;
    return UPS_OK;
}

/* ---- calls with addresses ---------------------------------------------------------------------------------------- */

/* `reads`: a mask of inputs. */
static void address_inputs(const ups_step *step, int32_t at, uint32_t reads, ups_op_call *call) {
    const ups_graph *graph = step->graph;
    const ups_node *node = &graph->nodes[ups_plan_schedule(step->plan)->entries[at].node];
    for (int i = 0; i < node->input_count; i++) {
        ups_value value = node->inputs[i];
        if (value == UPS_NO_VALUE || !(reads >> i & 1)) continue;
        call->inputs[i].data = ups_step_value_address(step, value, at);
        if (!has_compute_copy(graph, value)) continue;
        const ups_value_info *info = ups_graph_info(graph, ups_graph_root(graph, value));
        uint16_t *copy = step->weights.compute + weight_offset(step, info);
        if (is_compute_copy(graph, node, i)) call->inputs[i].data = copy;
        call->copies[i] = copy;
    }
}

/* `gradients`: a mask of inputs, those whose gradient the entry writes. */
static void address_gradients(const ups_step *step, int32_t n, uint32_t gradients, prepared_entry *entry) {
    const ups_graph *graph = step->graph;
    const ups_node *node = &graph->nodes[n];
    ups_op_call *call = &entry->call;
    call->output_gradient.data = ups_step_gradient_address(step, node->output);
    for (int i = 0; i < node->input_count; i++) {
        if (!(gradients >> i & 1)) continue;
        call->input_gradients[i].data = ups_step_gradient_address(step, node->inputs[i]);
        call->accumulate[i] = ups_plan_accumulates(step->plan, n, i);
        ups_value root = ups_graph_root(graph, node->inputs[i]);
        bool is_parameter = ups_graph_info(graph, root)->kind == UPS_VALUE_PARAMETER;
        if (is_parameter && !call->accumulate[i]) entry->first_parameter_gradients |= 1u << i;
    }
}

static void address_entry(ups_step *step, int32_t at) {
    const ups_schedule_entry *scheduled = &ups_plan_schedule(step->plan)->entries[at];
    const ups_node *node = &step->graph->nodes[scheduled->node];
    const ups_op_description *op = ups_op_describe(node->kind);
    bool backward = scheduled->action == UPS_BACKWARD;
    uint32_t gradients = backward ? written_gradients(step, scheduled->node) : 0;
    prepared_entry *entry = &step->entries[at];
    ups_op_call *call = &entry->call;
    entry->runs = !backward || gradients;
    *call = describe_call(step, scheduled->node, gradients);
    call->state = step->kernels[scheduled->node].state;
    call->workspace = step->shared->workspace;
    if (!backward || op->backward_output) call->output.data = ups_step_value_address(step, node->output, at);
    for (int i = 0; i < node->saved_count && (!backward || op->backward_saved); i++) {
        call->saved[i].data = ups_step_value_address(step, node->saved[i], at);
    }
    address_inputs(step, at, backward ? ups_node_backward_inputs(step->graph, node) : UINT32_MAX, call);
    if (gradients) address_gradients(step, scheduled->node, gradients, entry);
}

/* Of entries that are addressed. */
static void pair_entries(ups_step *step) {
    const ups_schedule *schedule = ups_plan_schedule(step->plan);
    for (int32_t at = 0; at < schedule->count; at++) {
        const ups_schedule_entry *scheduled = &schedule->entries[at];
        step->entries[at].with_next = NULL;
        if (!scheduled->with_next || !step->entries[at].runs || !step->entries[at + 1].runs) continue;
        bool backward = scheduled->action == UPS_BACKWARD;
        const ups_kernel *second = &step->kernels[scheduled[backward ? 0 : 1].node];
        step->entries[at].with_next = backward ? second->pair_backward : second->pair_forward;
    }
}

/* Of the gradients that entry `at` writes, the first in the weights' buffers; or `before`, where that comes first. */
static int64_t first_gradient(const ups_step *step, int32_t at, int64_t before) {
    const ups_op_call *call = &step->entries[at].call;
    const ups_node *node = &step->graph->nodes[ups_plan_schedule(step->plan)->entries[at].node];
    for (int i = 0; i < node->input_count; i++) {
        if (!call->input_gradients[i].data) continue;
        const ups_value_info *info = ups_graph_info(step->graph, ups_graph_root(step->graph, node->inputs[i]));
        if (info->kind != UPS_VALUE_PARAMETER) continue;
        const int64_t offset = weight_offset(step, info);
        if (offset < before) before = offset;
    }
    return before;
}

/* From the end: what no later entry writes is complete. */
static void find_complete_gradients(ups_step *step) {
    int64_t complete = step->weights.count;
    for (int32_t at = ups_plan_schedule(step->plan)->count - 1; at >= 0; at--) {
        step->entries[at].complete = complete;
        if (ups_plan_schedule(step->plan)->entries[at].action == UPS_BACKWARD)
            complete = first_gradient(step, at, complete);
    }
}

void ups_step_address_entries(ups_step *step) {
    for (int32_t at = 0; at < ups_plan_schedule(step->plan)->count; at++) address_entry(step, at);
    pair_entries(step);
    find_complete_gradients(step);
}
