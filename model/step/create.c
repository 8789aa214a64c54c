/* A step's life: what its graph needs is found out, memory is had for it, weights are bound to it, and all is given
 * back. Of steps that share their memory, only what a batch brings in is each one's own. */
#include "model/step/parts.h"

#include <stdlib.h>

enum { ALIGNMENT = 64 };

/* ---- without memory ---------------------------------------------------------------------------------------------- */

/* Inputs first, since they are staged together; constants behind them. */
static void place_inputs(ups_step *step) {
    const ups_value_kind kinds[] = {UPS_VALUE_INPUT, UPS_VALUE_CONSTANT};
    size_t offset = 0;
    for (int kind = 0; kind < 2; kind++) {
        for (ups_value v = 0; v < step->graph->value_count; v++) {
            if (step->graph->values[v].kind != kinds[kind]) continue;
            step->input_offsets[v] = (int64_t)offset;
            offset += (ups_step_value_bytes(step->graph, v) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
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
    for (int32_t n = 0; n < graph->node_count; n++) UPS_TRY(ups_step_prepare_node(step, n, error));
    return UPS_OK;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

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
        UPS_TRY(class_of(step)->upload(step->device, ups_step_value_address(step, v, 0), graph->values[v].constant,
                                       ups_step_value_bytes(graph, v), error));
    }
    return UPS_OK;
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

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

/* ---- from graphs to steps ---------------------------------------------------------------------------------------- */

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
        ups_step_address_entries(steps[i]);
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
    for (int i = 0; i < CAPTURES; i++) ups_step_forget_capture(step, &step->captured[i]);
}

ups_status ups_step_bind(ups_step *step, const ups_weights *weights, ups_error *error) {
    UPS_TRY(check_weights(step->graph, weights, error));
    step->weights = *weights;
    forget_captures(step);
    ups_step_address_entries(step);
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
    ups_error after;
    class->synchronize(step->device, &after); /* what was issued may still use all this */
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

const ups_plan *ups_step_plan(const ups_step *step) {
    return step->plan;
}

ups_plan_memory ups_step_memory(const ups_step *step) {
    ups_plan_memory memory = ups_plan_memory_get(step->plan);
    memory.workspace = step->workspace_bytes;
    if (class_of(step)->input_sets > 1) memory.inputs += step->input_bytes;
    return memory;
}
