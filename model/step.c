/* The step: every kernel call of the schedule, written out once with its addresses, so that running is a plain loop
 * over calls and allocates nothing.
 *
 * Device memory, three blocks: inputs and constants, the planned arena, one workspace shared by all kernels. Parameters
 * lie in their own buffers. */
#include "model/step.h"

#include "base/system/threads.h"
#include "model/differentiate.h"
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

typedef struct prepared_node {
    const ups_kernel *kernel;
    void *state;
} prepared_node;

/* One entry of the schedule. */
typedef struct prepared_entry {
    ups_op_call call;
    bool runs;                          /* backward that has nothing to write does not */
    uint32_t first_parameter_gradients; /* inputs whose gradient obeys ups_step_run_options.accumulate */
} prepared_entry;

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
    prepared_node *nodes;
    prepared_entry *entries; /* of the plan's schedule */
    int32_t prepared;        /* nodes whose state is to be released */
    int64_t *input_offsets;  /* one a value; inputs and constants */
    unsigned char *inputs;
    shared_arena *shared;
    ups_weights weights; /* borrowed buffers: what parameters are read from */
    size_t workspace_bytes;
    float seed_gradient; /* what backward starts from; here, since uploads may read it later */
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

/* A parameter that is read from the weights' copy in the compute dtype. */
static bool is_compute_copy(const ups_graph *graph, const ups_node *node, int input) {
    return graph->compute != UPS_F32 && ups_op_describe(node->kind)->compute_inputs >> input & 1 &&
           ups_graph_info(graph, ups_graph_root(graph, node->inputs[input]))->kind == UPS_VALUE_PARAMETER;
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
    ups_op_call call = {.attributes = node->attributes,
                        .input_count = node->input_count,
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

static ups_status prepare_node(ups_step *step, int32_t n, ups_error *error) {
    const ups_node *node = &step->graph->nodes[n];
    prepared_node *prepared = &step->nodes[n];
    const char *op = ups_op_name(node->kind);
    uint32_t gradients = written_gradients(step, n);
    prepared->kernel = class_of(step)->kernel(node->kind);
    if (!prepared->kernel->forward || (gradients && !prepared->kernel->backward)) {
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "the device '%s' has no kernel for %s of %s ('%s')",
                        class_of(step)->name, prepared->kernel->forward ? "backward" : "forward", op, node->scope);
    }
    if (!prepared->kernel->prepare) return UPS_OK;
    size_t workspace = 0;
    ups_op_call call = describe_call(step, n, gradients);
    ups_status status =
        prepared->kernel->prepare(step->device, &call, gradients != 0, &prepared->state, &workspace, error);
    if (status != UPS_OK) return ups_fail_within(error, "%s in '%s'", op, node->scope);
    if (workspace > step->workspace_bytes) step->workspace_bytes = workspace;
    return UPS_OK;
}

/* Everything but memory: the plan, the calls' shapes, the kernels' states. */
static ups_status prepare_step(ups_step *step, ups_error *error) {
    const ups_graph *graph = step->graph;
    UPS_TRY(ups_plan_create(graph, &step->plan, error));
    step->nodes = calloc((size_t)graph->node_count + 1, sizeof *step->nodes);
    step->entries = calloc((size_t)ups_plan_schedule(step->plan)->count + 1, sizeof *step->entries);
    step->input_offsets = calloc((size_t)graph->value_count + 1, sizeof *step->input_offsets);
    if (!step->nodes || !step->entries || !step->input_offsets) {
        return ups_fail(error, UPS_ERR_MEMORY, "no memory to prepare a graph of %d nodes", graph->node_count);
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        step->prepared = n + 1; /* what it has of a state is released even if it fails */
        UPS_TRY(prepare_node(step, n, error));
    }
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

static ups_status upload_constants(ups_step *step, ups_error *error) {
    const ups_graph *graph = step->graph;
    for (ups_value v = 0; v < graph->value_count; v++) {
        if (graph->values[v].kind != UPS_VALUE_CONSTANT) continue;
        UPS_TRY(class_of(step)->upload(step->device, value_address(step, v, 0), graph->values[v].constant,
                                       value_bytes(graph, v), error));
    }
    return UPS_OK;
}

static void place_inputs(ups_step *step) {
    int64_t offset = 0;
    for (ups_value v = 0; v < step->graph->value_count; v++) {
        ups_value_kind kind = step->graph->values[v].kind;
        if (kind != UPS_VALUE_INPUT && kind != UPS_VALUE_CONSTANT) continue;
        step->input_offsets[v] = offset;
        offset += (int64_t)((value_bytes(step->graph, v) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    }
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
    call->state = step->nodes[scheduled->node].state;
    call->workspace = step->shared->workspace;
    if (!backward || op->backward_output) call->output.data = value_address(step, node->output, at);
    for (int i = 0; i < node->saved_count && (!backward || op->backward_saved); i++) {
        call->saved[i].data = value_address(step, node->saved[i], at);
    }
    for (int i = 0; i < node->input_count; i++) {
        ups_value value = node->inputs[i];
        if (value == UPS_NO_VALUE || !(reads >> i & 1)) continue;
        call->inputs[i].data = value_address(step, value, at);
        if (is_compute_copy(graph, node, i)) {
            const ups_value_info *info = ups_graph_info(graph, ups_graph_root(graph, value));
            call->inputs[i].data = step->weights.compute + weight_offset(step, info);
        }
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
        UPS_TRY(allocate(steps[i], inputs, &steps[i]->inputs, "the inputs", error));
        place_inputs(steps[i]);
        steps[i]->weights = *ups_parameters_weights(steps[i]->graph->parameters);
        for (int32_t at = 0; at < ups_plan_schedule(steps[i]->plan)->count; at++) address_entry(steps[i], at);
        UPS_TRY(upload_constants(steps[i], error));
    }
    return UPS_OK;
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

ups_status ups_step_bind(ups_step *step, const ups_weights *weights, ups_error *error) {
    UPS_TRY(check_weights(step->graph, weights, error));
    step->weights = *weights;
    for (int32_t at = 0; at < ups_plan_schedule(step->plan)->count; at++) address_entry(step, at);
    return UPS_OK;
}

ups_status ups_step_measure_together(const ups_graph *const *graphs, int count, ups_device *device,
                                     ups_plan_memory *memory, ups_error *error) {
    ups_step **steps = calloc((size_t)count + 1, sizeof *steps);
    if (!steps) return ups_fail(error, UPS_ERR_MEMORY, "no memory for steps");
    ups_status status = prepare_all(graphs, count, device, steps, error);
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
    for (int32_t n = 0; n < step->prepared; n++) {
        const prepared_node *node = &step->nodes[n];
        if (node->state && node->kernel->release) node->kernel->release(step->device, node->state);
    }
    if (step->inputs) class->release(step->device, step->inputs);
    leave_shared(step);
    ups_plan_destroy(step->plan);
    free(step->nodes);
    free(step->entries);
    free(step->input_offsets);
    free(step);
}

ups_plan_memory ups_step_memory(const ups_step *step) {
    ups_plan_memory memory = ups_plan_memory_get(step->plan);
    memory.workspace = step->workspace_bytes;
    return memory;
}

void *ups_step_data(const ups_step *step, ups_value value) {
    const ups_value_info *info = ups_graph_info(step->graph, ups_graph_root(step->graph, value));
    if (info->kind == UPS_VALUE_ACTIVATION && !info->keep) return NULL;
    return value_address(step, value, INT32_MAX); /* as it is after the run */
}

ups_status ups_step_upload(ups_step *step, ups_value input, const void *host, size_t bytes, ups_error *error) {
    const ups_value_info *info = ups_graph_info(step->graph, ups_graph_root(step->graph, input));
    if (info->kind != UPS_VALUE_INPUT) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "value %d is no input of the graph", input);
    }
    if (bytes != value_bytes(step->graph, input)) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "input '%s' has %zu bytes; %zu were given", info->name,
                        value_bytes(step->graph, input), bytes);
    }
    return class_of(step)->upload(step->device, value_address(step, input, 0), host, bytes, error);
}

ups_status ups_step_download(const ups_step *step, ups_value value, void *host, size_t bytes, ups_error *error) {
    const void *data = ups_step_data(step, value);
    if (!data) return ups_fail(error, UPS_ERR_ARGUMENT, "value %d is not kept: its memory was reused", value);
    if (bytes != value_bytes(step->graph, value)) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "value %d has %zu bytes; %zu were asked for", value,
                        value_bytes(step->graph, value), bytes);
    }
    return class_of(step)->download(step->device, host, data, bytes, error);
}

static ups_status run_entry(ups_step *step, int32_t at, const ups_step_run_options *options, ups_error *error) {
    const ups_schedule_entry *scheduled = &ups_plan_schedule(step->plan)->entries[at];
    const ups_node *node = &step->graph->nodes[scheduled->node];
    const ups_kernel *kernel = step->nodes[scheduled->node].kernel;
    prepared_entry *entry = &step->entries[at];
    ups_op_call *call = &entry->call;
    if (!entry->runs) return UPS_OK;
    call->training = options->training;
    call->seed = options->seed;
    call->step = options->step;
    for (int i = 0; i < call->input_count; i++) {
        if (entry->first_parameter_gradients >> i & 1) call->accumulate[i] = options->accumulate;
    }
    double begin = step->profiling ? ups_now() : 0;
    ups_status status =
        (scheduled->action == UPS_BACKWARD ? kernel->backward : kernel->forward)(step->device, call, error);
    if (status == UPS_OK && step->profiling) {
        double *const seconds[] = {[UPS_FORWARD] = step->profile.forward,
                                   [UPS_BACKWARD] = step->profile.backward,
                                   [UPS_RECOMPUTE] = step->profile.recompute};
        status = class_of(step)->synchronize(step->device, error);
        seconds[scheduled->action][node->kind] += ups_now() - begin;
    }
    return status == UPS_OK ? UPS_OK : ups_fail_within(error, "%s in '%s'", ups_op_name(node->kind), node->scope);
}

ups_status ups_step_run(ups_step *step, const ups_step_run_options *options, ups_error *error) {
    const ups_schedule *schedule = ups_plan_schedule(step->plan);
    if (options->backward && step->graph->loss == UPS_NO_VALUE) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "backward was asked of a graph that was not differentiated");
    }
    if (options->backward && !step->weights.gradients) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "backward was asked with weights that have no gradients");
    }
    for (int32_t at = 0; at < schedule->backward; at++) UPS_TRY(run_entry(step, at, options, error));
    if (!options->backward) return UPS_OK;

    step->seed_gradient = options->loss_scale;
    UPS_TRY(class_of(step)->upload(step->device, gradient_address(step, step->graph->loss), &step->seed_gradient,
                                   sizeof step->seed_gradient, error));
    for (int32_t at = schedule->backward; at < schedule->count; at++) UPS_TRY(run_entry(step, at, options, error));
    return UPS_OK;
}

void ups_step_profile_enable(ups_step *step, bool on) {
    step->profiling = on;
    step->profile = (ups_step_profile){0};
}

ups_step_profile ups_step_profile_get(const ups_step *step) {
    return step->profile;
}
