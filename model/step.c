/* The step: every kernel call of the schedule, written out once with its addresses, so that running is a plain loop
 * over calls and allocates nothing.
 *
 * Device memory, three blocks: inputs and constants, the planned arena, one workspace shared by all kernels. Parameters
 * lie in their own buffers.
 *
 * Where the device has two input sets, a batch is uploaded to a staging block on the copy stream, beside the
 * computation of the batch before, and copied into the inputs when its own run begins: addresses stay the same from run
 * to run, so that a run can be captured. */
#include "model/step.h"

#include "base/system/threads.h"
#include "model/differentiate.h"
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

/* One entry of the schedule. */
typedef struct prepared_entry {
    ups_op_call call;
    bool runs;                          /* backward that has nothing to write does not */
    ups_pair_run *with_next;            /* runs this entry and the next; NULL: it runs by itself */
    uint32_t first_parameter_gradients; /* inputs whose gradient obeys ups_step_run_options.accumulate */
    int64_t complete;                   /* ups_gradient_watch: what is known after it */
} prepared_entry;

/* Inputs on their way in. */
typedef struct staged_inputs {
    unsigned char *memory; /* laid out as the inputs are; NULL: uploads go to the inputs themselves */
    ups_event *uploaded;   /* host memory of uploads so far is the caller's again */
    ups_event *consumed;   /* what was staged is in the inputs */
    bool filled;           /* since the last run */
} staged_inputs;

/* A run that was captured, replayed while its options are the same; the first one is issued call by call. */
enum { CAPTURES = 8 /* combinations of training, backward, accumulate */ };
typedef struct captured_run {
    bool issued;
    ups_capture *capture;
    const ups_update *update;
} captured_run;

/* The arena and workspace that a step fills from scratch whenever it runs; of one step, or of several of which one runs
 * at a time. */
typedef struct shared_arena {
    unsigned char *arena, *workspace;
    int steps; /* that use it */
} shared_arena;

struct ups_step {
    const ups_graph *graph;
    ups_device *device;
    ups_plan *plan;
    ups_kernel *kernels;     /* of the nodes */
    prepared_entry *entries; /* of the plan's schedule */
    int64_t *input_offsets;  /* one a value; inputs and constants */
    unsigned char *inputs;
    size_t input_bytes; /* of the inputs' block: what is uploaded; constants follow */
    staged_inputs staging;
    captured_run captured[CAPTURES];
    shared_arena *shared;
    ups_weights weights; /* borrowed buffers: what parameters are read from */
    size_t workspace_bytes;
    bool profiling;
    ups_step_profile profile;
};

static size_t value_bytes(const ups_graph *graph, ups_value value) {
    const ups_value_info *info = ups_graph_info(graph, value);
    return (size_t)ups_shape_elements(info->shape) * ups_dtype_size(info->dtype);
}

static const ups_device_class *class_of(const ups_step *step) {
    return step->device->class;
}

/* Of a parameter, in the buffers that the step is bound to. */
static int64_t weight_offset(const ups_step *step, const ups_value_info *info) {
    return ups_parameters_get(step->graph->parameters, info->parameter)->offset - step->weights.offset;
}

/* At a position of the schedule. */
static void *value_address(const ups_step *step, ups_value value, int32_t position) {
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

static void *gradient_address(const ups_step *step, ups_value value) {
    ups_value root = ups_graph_root(step->graph, value);
    const ups_value_info *info = ups_graph_info(step->graph, root);
    if (info->kind == UPS_VALUE_PARAMETER) {
        return step->weights.gradients ? step->weights.gradients + weight_offset(step, info) : NULL;
    }
    return step->shared->arena + ups_plan_gradient(step->plan, root)->offset;
}

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

static ups_status prepare_node(ups_step *step, int32_t n, ups_error *error) {
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

/* Inputs first, since they are staged together; constants behind them. */
static void place_inputs(ups_step *step) {
    const ups_value_kind kinds[] = {UPS_VALUE_INPUT, UPS_VALUE_CONSTANT};
    size_t offset = 0;
    for (int kind = 0; kind < 2; kind++) {
        for (ups_value v = 0; v < step->graph->value_count; v++) {
            if (step->graph->values[v].kind != kinds[kind]) continue;
            step->input_offsets[v] = (int64_t)offset;
            offset += (value_bytes(step->graph, v) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        }
        if (kinds[kind] == UPS_VALUE_INPUT) step->input_bytes = offset;
    }
}

/* Everything but memory: the plan, the calls' shapes, the kernels' states. */
static ups_status prepare_step(ups_step *step, ups_error *error) {
    const ups_graph *graph = step->graph;
    UPS_TRY(ups_plan_create(graph, &step->plan, error));
    step->kernels = calloc((size_t)graph->node_count + 1, sizeof *step->kernels);
    step->entries = calloc((size_t)ups_plan_schedule(step->plan)->count + 1, sizeof *step->entries);
    step->input_offsets = calloc((size_t)graph->value_count + 1, sizeof *step->input_offsets);
    if (!step->kernels || !step->entries || !step->input_offsets) {
        return ups_fail(error, UPS_ERR_MEMORY, "no memory to prepare a graph of %d nodes", graph->node_count);
    }
    place_inputs(step);
    for (int32_t n = 0; n < graph->node_count; n++) UPS_TRY(prepare_node(step, n, error));
    return UPS_OK;
}

static ups_status allocate(ups_step *step, size_t bytes, unsigned char **memory, const char *what, ups_error *error) {
    if (!bytes) return UPS_OK;
    void *allocated = NULL;
    if (class_of(step)->allocate(step->device, bytes, &allocated, error) != UPS_OK) {
        return ups_fail_within(error, "%s of the step, %zu MB", what, bytes >> 20);
    }
    *memory = allocated;
    return UPS_OK;
}

/* Where uploads go, and the events that guard it. */
static ups_status create_staging(ups_step *step, ups_error *error) {
    staged_inputs *staging = &step->staging;
    if (class_of(step)->input_sets > 1) {
        UPS_TRY(allocate(step, step->input_bytes, &staging->memory, "the staged inputs", error));
    }
    UPS_TRY(class_of(step)->event_create(step->device, &staging->uploaded, error));
    return class_of(step)->event_create(step->device, &staging->consumed, error);
}

static ups_status upload_constants(ups_step *step, ups_error *error) {
    const ups_graph *graph = step->graph;
    for (ups_value v = 0; v < graph->value_count; v++) {
        if (graph->values[v].kind != UPS_VALUE_CONSTANT) continue;
        UPS_TRY(class_of(step)->upload(step->device, value_address(step, v, 0), graph->values[v].constant,
                                       value_bytes(graph, v), error));
    }
    return UPS_OK;
}

/* What backward does not read stays NULL, so that a kernel that breaks its description is found at once. */
static void address_entry(ups_step *step, int32_t at) {
    const ups_schedule_entry *scheduled = &ups_plan_schedule(step->plan)->entries[at];
    const ups_graph *graph = step->graph;
    const ups_node *node = &graph->nodes[scheduled->node];
    const ups_op_description *op = ups_op_describe(node->kind);
    bool backward = scheduled->action == UPS_BACKWARD;
    uint32_t gradients = backward ? written_gradients(step, scheduled->node) : 0;
    uint32_t reads = backward ? ups_node_backward_inputs(graph, node) : UINT32_MAX;
    prepared_entry *entry = &step->entries[at];
    ups_op_call *call = &entry->call;
    entry->runs = !backward || gradients;
    *call = describe_call(step, scheduled->node, gradients);
    call->state = step->kernels[scheduled->node].state;
    call->workspace = step->shared->workspace;
    if (!backward || op->backward_output) call->output.data = value_address(step, node->output, at);
    for (int i = 0; i < node->saved_count && (!backward || op->backward_saved); i++) {
        call->saved[i].data = value_address(step, node->saved[i], at);
    }
    for (int i = 0; i < node->input_count; i++) {
        ups_value value = node->inputs[i];
        if (value == UPS_NO_VALUE || !(reads >> i & 1)) continue;
        call->inputs[i].data = value_address(step, value, at);
        if (!has_compute_copy(graph, value)) continue;
        const ups_value_info *info = ups_graph_info(graph, ups_graph_root(graph, value));
        uint16_t *copy = step->weights.compute + weight_offset(step, info);
        if (is_compute_copy(graph, node, i)) call->inputs[i].data = copy;
        call->copies[i] = copy;
    }
    if (!gradients) return;
    call->output_gradient.data = gradient_address(step, node->output);
    for (int i = 0; i < node->input_count; i++) {
        if (!(gradients >> i & 1)) continue;
        call->input_gradients[i].data = gradient_address(step, node->inputs[i]);
        call->accumulate[i] = ups_plan_accumulates(step->plan, scheduled->node, i);
        ups_value root = ups_graph_root(graph, node->inputs[i]);
        bool is_parameter = ups_graph_info(graph, root)->kind == UPS_VALUE_PARAMETER;
        if (is_parameter && !call->accumulate[i]) entry->first_parameter_gradients |= 1u << i;
    }
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

static void address_entries(ups_step *step) {
    for (int32_t at = 0; at < ups_plan_schedule(step->plan)->count; at++) address_entry(step, at);
    pair_entries(step);
    find_complete_gradients(step);
}

static ups_status check_weights(const ups_graph *graph, const ups_weights *weights, ups_error *error) {
    if (graph->compute != UPS_F32 && (!weights->compute || weights->compute_dtype != graph->compute)) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "the graph computes in %s but its weights have no %s copy",
                        ups_dtype_name(graph->compute), ups_dtype_name(graph->compute));
    }
    for (ups_value v = 0; v < graph->value_count; v++) {
        if (graph->values[v].kind != UPS_VALUE_PARAMETER) continue;
        const ups_parameter *parameter = ups_parameters_get(graph->parameters, graph->values[v].parameter);
        if (parameter->offset >= weights->offset &&
            parameter->offset + parameter->elements <= weights->offset + weights->count) {
            continue;
        }
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "the weights hold elements %lld to %lld; the graph's parameter '%s' lies outside",
                        (long long)weights->offset, (long long)(weights->offset + weights->count), parameter->name);
    }
    return UPS_OK;
}

static ups_status check_parameters(const ups_graph *graph, ups_error *error) {
    if (!ups_parameters_allocated(graph->parameters)) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "the parameters must be allocated before a step is created");
    }
    if (graph->loss != UPS_NO_VALUE && !ups_parameters_gradients(graph->parameters)) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "the graph has gradients but its parameters were allocated without");
    }
    return check_weights(graph, ups_parameters_weights(graph->parameters), error);
}

/* Steps prepared, without memory. */
static ups_status prepare_all(const ups_graph *const *graphs, int count, ups_device *device, ups_step **steps,
                              ups_error *error) {
    for (int i = 0; i < count; i++) {
        steps[i] = calloc(1, sizeof **steps);
        if (!steps[i]) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a step");
        steps[i]->graph = graphs[i];
        steps[i]->device = device;
        UPS_TRY(prepare_step(steps[i], error));
    }
    return UPS_OK;
}

/* Inputs are each step's own, since constants stay in them; the rest is as large as the largest. */
static ups_plan_memory sum_memory(ups_step *const *steps, int count) {
    ups_plan_memory all = {0};
    for (int i = 0; i < count; i++) {
        ups_plan_memory one = ups_step_memory(steps[i]);
        all.inputs += one.inputs;
        all.parameters = one.parameters;
        if (one.activations > all.activations) all.activations = one.activations;
        if (one.workspace > all.workspace) all.workspace = one.workspace;
        if (one.lower_bound > all.lower_bound) all.lower_bound = one.lower_bound;
    }
    return all;
}

static ups_status allocate_all(ups_step **steps, int count, ups_error *error) {
    shared_arena *shared = calloc(1, sizeof *shared);
    if (!shared) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a step");
    for (int i = 0; i < count; i++) {
        steps[i]->shared = shared;
        shared->steps++;
    }
    ups_plan_memory all = sum_memory(steps, count);
    UPS_TRY(allocate(steps[0], all.activations, &shared->arena, "the activations", error));
    UPS_TRY(allocate(steps[0], all.workspace, &shared->workspace, "the workspace", error));
    for (int i = 0; i < count; i++) {
        size_t inputs = ups_step_memory(steps[i]).inputs;
        if (class_of(steps[i])->input_sets > 1) inputs -= steps[i]->input_bytes;
        UPS_TRY(allocate(steps[i], inputs, &steps[i]->inputs, "the inputs", error));
        UPS_TRY(create_staging(steps[i], error));
        steps[i]->weights = *ups_parameters_weights(steps[i]->graph->parameters);
        address_entries(steps[i]);
        UPS_TRY(upload_constants(steps[i], error));
    }
    return class_of(steps[0])->synchronize(steps[0]->device, error); /* constants are the graphs' */
}

ups_status ups_step_create_together(const ups_graph *const *graphs, int count, ups_device *device, ups_step **steps,
                                    ups_error *error) {
    for (int i = 0; i < count; i++) steps[i] = NULL;
    for (int i = 0; i < count; i++) UPS_TRY(check_parameters(graphs[i], error));
    ups_status status = prepare_all(graphs, count, device, steps, error);
    if (status == UPS_OK && count > 0) status = allocate_all(steps, count, error);
    for (int i = 0; i < count && status != UPS_OK; i++) {
        ups_step_destroy(steps[i]);
        steps[i] = NULL;
    }
    return status;
}

ups_status ups_step_create(const ups_graph *graph, ups_device *device, ups_step **created, ups_error *error) {
    return ups_step_create_together(&graph, 1, device, created, error);
}

static void forget_captures(ups_step *step) {
    for (int i = 0; i < CAPTURES; i++) {
        if (step->captured[i].capture) class_of(step)->capture_release(step->device, step->captured[i].capture);
        step->captured[i].capture = NULL;
    }
}

ups_status ups_step_bind(ups_step *step, const ups_weights *weights, ups_error *error) {
    UPS_TRY(check_weights(step->graph, weights, error));
    step->weights = *weights;
    forget_captures(step);
    address_entries(step);
    return UPS_OK;
}

ups_status ups_step_measure_together(const ups_graph *const *graphs, int count, ups_device *device,
                                     ups_plan_memory *memory, ups_error *error) {
    ups_step **steps = calloc((size_t)count + 1, sizeof *steps);
    if (!steps) return ups_fail(error, UPS_ERR_MEMORY, "no memory for steps");
    const ups_kernel_choice before = ups_device_choose_kernels(device, UPS_KERNELS_BY_SHAPE); /* they will not run */
    ups_status status = prepare_all(graphs, count, device, steps, error);
    ups_device_choose_kernels(device, before);
    if (status == UPS_OK) *memory = sum_memory(steps, count);
    for (int i = 0; i < count; i++) ups_step_destroy(steps[i]);
    free(steps);
    return status;
}

ups_status ups_step_measure(const ups_graph *graph, ups_device *device, ups_plan_memory *memory, ups_error *error) {
    return ups_step_measure_together(&graph, 1, device, memory, error);
}

static void leave_shared(const ups_step *step) {
    shared_arena *shared = step->shared;
    if (!shared || --shared->steps > 0) return;
    if (shared->arena) class_of(step)->release(step->device, shared->arena);
    if (shared->workspace) class_of(step)->release(step->device, shared->workspace);
    free(shared);
}

void ups_step_destroy(ups_step *step) {
    if (!step) return;
    const ups_device_class *class = class_of(step);
    for (int32_t n = 0; step->kernels && n < step->graph->node_count; n++) {
        if (step->kernels[n].release) step->kernels[n].release(step->kernels[n].state);
    }
    forget_captures(step);
    if (step->inputs) class->release(step->device, step->inputs);
    if (step->staging.memory) class->release(step->device, step->staging.memory);
    if (step->staging.uploaded) class->event_destroy(step->device, step->staging.uploaded);
    if (step->staging.consumed) class->event_destroy(step->device, step->staging.consumed);
    leave_shared(step);
    ups_plan_destroy(step->plan);
    free(step->kernels);
    free(step->entries);
    free(step->input_offsets);
    free(step);
}

ups_plan_memory ups_step_memory(const ups_step *step) {
    ups_plan_memory memory = ups_plan_memory_get(step->plan);
    memory.workspace = step->workspace_bytes;
    if (class_of(step)->input_sets > 1) memory.inputs += step->input_bytes;
    return memory;
}

void *ups_step_data(const ups_step *step, ups_value value) {
    const ups_value_info *info = ups_graph_info(step->graph, ups_graph_root(step->graph, value));
    if (info->kind == UPS_VALUE_ACTIVATION && !info->keep) return NULL;
    return value_address(step, value, INT32_MAX); /* as it is after the run */
}

static ups_status require_input(const ups_step *step, ups_value input, size_t bytes, ups_error *error) {
    const ups_value_info *info = ups_graph_info(step->graph, ups_graph_root(step->graph, input));
    if (info->kind != UPS_VALUE_INPUT) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "value %d is no input of the graph", input);
    }
    if (bytes != value_bytes(step->graph, input)) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "input '%s' has %zu bytes; %zu were given", info->name,
                        value_bytes(step->graph, input), bytes);
    }
    return UPS_OK;
}

/* Where an input is staged, once what was there has been taken. */
static ups_status open_staging(ups_step *step, ups_value input, void **to, ups_error *error) {
    staged_inputs *staging = &step->staging;
    if (!staging->filled) UPS_TRY(class_of(step)->stream_wait(step->device, UPS_STREAM_COPY, staging->consumed, error));
    staging->filled = true;
    *to = staging->memory + step->input_offsets[ups_graph_root(step->graph, input)];
    return UPS_OK;
}

ups_status ups_step_upload(ups_step *step, ups_value input, const void *host, size_t bytes, ups_error *error) {
    const ups_device_class *class = class_of(step);
    staged_inputs *staging = &step->staging;
    void *to;
    UPS_TRY(require_input(step, input, bytes, error));
    if (!staging->memory) {
        UPS_TRY(class->upload(step->device, value_address(step, input, 0), host, bytes, error));
        return class->event_record(step->device, staging->uploaded, UPS_STREAM_COMPUTE, error);
    }
    UPS_TRY(open_staging(step, input, &to, error));
    UPS_TRY(class->upload_ahead(step->device, to, host, bytes, error));
    return class->event_record(step->device, staging->uploaded, UPS_STREAM_COPY, error);
}

ups_status ups_step_gather(ups_step *step, ups_value input, const void *const *rows, int64_t count, size_t row_bytes,
                           void *list, ups_error *error) {
    const ups_device_class *class = class_of(step);
    void *to;
    UPS_TRY(require_input(step, input, (size_t)count * row_bytes, error));
    if (!class->gather_ahead || !step->staging.memory)
        return ups_fail(error, UPS_ERR_ARGUMENT, "the device %s does not gather rows", class->name);
    UPS_TRY(open_staging(step, input, &to, error));
    UPS_TRY(class->upload_ahead(step->device, list, rows, (size_t)count * sizeof *rows, error));
    UPS_TRY(class->gather_ahead(step->device, to, list, count, row_bytes, error));
    return class->event_record(step->device, step->staging.uploaded, UPS_STREAM_COPY, error);
}

ups_status ups_step_wait_uploaded(const ups_step *step, ups_error *error) {
    return class_of(step)->event_wait(step->device, step->staging.uploaded, error);
}

/* Brings what was staged into the inputs. */
static ups_status take_staged(ups_step *step, ups_error *error) {
    const ups_device_class *class = class_of(step);
    staged_inputs *staging = &step->staging;
    if (!staging->filled) return UPS_OK;
    staging->filled = false;
    UPS_TRY(class->stream_wait(step->device, UPS_STREAM_COMPUTE, staging->uploaded, error));
    UPS_TRY(class->copy(step->device, step->inputs, staging->memory, step->input_bytes, error));
    return class->event_record(step->device, staging->consumed, UPS_STREAM_COMPUTE, error);
}

static ups_status find_kept(const ups_step *step, ups_value value, size_t bytes, const void **data, ups_error *error) {
    *data = ups_step_data(step, value);
    if (!*data) return ups_fail(error, UPS_ERR_ARGUMENT, "value %d is not kept: its memory was reused", value);
    if (bytes != value_bytes(step->graph, value)) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "value %d has %zu bytes; %zu were asked for", value,
                        value_bytes(step->graph, value), bytes);
    }
    return UPS_OK;
}

ups_status ups_step_download(const ups_step *step, ups_value value, void *host, size_t bytes, ups_error *error) {
    const void *data;
    UPS_TRY(find_kept(step, value, bytes, &data, error));
    return class_of(step)->download(step->device, host, data, bytes, error);
}

ups_status ups_step_download_later(const ups_step *step, ups_value value, void *host, size_t bytes,
                                   ups_event *downloaded, ups_error *error) {
    const void *data;
    UPS_TRY(find_kept(step, value, bytes, &data, error));
    UPS_TRY(class_of(step)->download_later(step->device, host, data, bytes, error));
    return class_of(step)->event_record(step->device, downloaded, UPS_STREAM_COMPUTE, error);
}

static void prepare_call(prepared_entry *entry, const ups_step_run_options *options) {
    ups_op_call *call = &entry->call;
    call->training = options->training;
    call->update = options->update;
    for (int i = 0; i < call->input_count; i++) {
        if (entry->first_parameter_gradients >> i & 1) call->accumulate[i] = options->accumulate;
    }
}

static ups_status run_call(ups_step *step, int32_t at, ups_error *error) {
    const ups_schedule_entry *scheduled = &ups_plan_schedule(step->plan)->entries[at];
    const ups_kernel *kernel = &step->kernels[scheduled->node];
    const prepared_entry *entry = &step->entries[at];
    bool backward = scheduled->action == UPS_BACKWARD;
    if (!entry->with_next) return (backward ? kernel->backward : kernel->forward)(step->device, &entry->call, error);
    const prepared_entry *next = entry + 1; /* backward begins with the second op */
    return entry->with_next(step->device, backward ? &next->call : &entry->call, backward ? &entry->call : &next->call,
                            error);
}

/* Runs the entry, or the pair that it begins. */
static ups_status run_entry(ups_step *step, int32_t at, const ups_step_run_options *options, ups_error *error) {
    const ups_schedule_entry *scheduled = &ups_plan_schedule(step->plan)->entries[at];
    prepared_entry *entry = &step->entries[at];
    if (!entry->runs) return UPS_OK;
    prepare_call(entry, options);
    if (entry->with_next) prepare_call(entry + 1, options);
    const ups_node *node = &step->graph->nodes[scheduled[entry->with_next && scheduled->action != UPS_BACKWARD].node];
    double begin = step->profiling ? ups_now() : 0;
    ups_device_range_begin(step->device, node->scope);
    ups_status status = run_call(step, at, error);
    ups_device_range_end(step->device);
    if (status == UPS_OK && step->profiling) {
        double *const seconds[] = {[UPS_FORWARD] = step->profile.forward,
                                   [UPS_BACKWARD] = step->profile.backward,
                                   [UPS_RECOMPUTE] = step->profile.recompute};
        status = class_of(step)->synchronize(step->device, error);
        seconds[scheduled->action][node->kind] += ups_now() - begin;
    }
    return status == UPS_OK ? UPS_OK : ups_fail_within(error, "%s in '%s'", ups_op_name(node->kind), node->scope);
}

static ups_status run_entries(ups_step *step, const char *name, int32_t first, int32_t end,
                              const ups_step_run_options *options, ups_error *error) {
    ups_status status = UPS_OK;
    ups_device_range_begin(step->device, name);
    const ups_gradient_watch *watch = first > 0 && class_of(step)->immediate ? options->watch : NULL;
    for (int32_t at = first, next; at < end && status == UPS_OK; at = next) {
        next = at + (step->entries[at].with_next ? 2 : 1);
        status = run_entry(step, at, options, error);
        if (watch && status == UPS_OK) watch->complete(watch->context, step->entries[next - 1].complete);
    }
    ups_device_range_end(step->device);
    return status;
}

static ups_status replay(ups_step *step, const ups_step_run_options *options, ups_error *error) {
    const ups_schedule *schedule = ups_plan_schedule(step->plan);
    UPS_TRY(run_entries(step, "forward", 0, schedule->backward, options, error));
    if (!options->backward) return UPS_OK;

    float *seed = gradient_address(step, step->graph->loss);
    UPS_TRY(class_of(step)->seed_backward(step->device, options->update, seed, error));
    return run_entries(step, "backward", schedule->backward, schedule->count, options, error);
}

typedef struct wanted_run {
    ups_step *step;
    const ups_step_run_options *options;
} wanted_run;

static ups_status replay_wanted(void *context, ups_error *error) {
    const wanted_run *wanted = context;
    return replay(wanted->step, wanted->options, error);
}

static ups_status launch(ups_step *step, const ups_step_run_options *options, ups_error *error) {
    const ups_device_class *class = class_of(step);
    captured_run *run = &step->captured[options->training | options->backward << 1 | options->accumulate << 2];
    if (!run->issued) { /* call by call: what a device loads then, it may not while it captures */
        run->issued = true;
        return replay(step, options, error);
    }
    if (run->capture && run->update != options->update) {
        class->capture_release(step->device, run->capture);
        run->capture = NULL;
    }
    if (!run->capture) {
        wanted_run wanted = {step, options};
        UPS_TRY(ups_device_capture(step->device, replay_wanted, &wanted, &run->capture, error));
        run->update = options->update;
    }
    return class->capture_launch(step->device, run->capture, error);
}

ups_status ups_step_run(ups_step *step, const ups_step_run_options *options, ups_error *error) {
    if (options->backward && step->graph->loss == UPS_NO_VALUE) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "backward was asked of a graph that was not differentiated");
    }
    if (options->backward && !step->weights.gradients) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "backward was asked with weights that have no gradients");
    }
    if ((options->backward || options->training) && !options->update) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "a training step needs an update (model/update.h)");
    }
    UPS_TRY(take_staged(step, error));
    const bool captures = class_of(step)->capture_begin && !step->profiling;
    ups_device_range_begin(step->device, options->backward ? "step" : "evaluation");
    ups_status status = captures ? launch(step, options, error) : replay(step, options, error);
    ups_device_range_end(step->device);
    return status;
}

void ups_step_profile_enable(ups_step *step, bool on) {
    step->profiling = on;
    step->profile = (ups_step_profile){0};
}

ups_step_profile ups_step_profile_get(const ups_step *step) {
    return step->profile;
}
