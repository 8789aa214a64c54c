/* The graph as a list: values and nodes are appended while building and never move afterwards in meaning, only in
 * memory (the two arrays grow), so values are indices. Names, attributes and constants lie in the graph's arena. */
#include "model/graph.h"

#include "base/log.h"
#include "base/system/exhausted.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *allocate_or_abort(void *old, size_t bytes) {
    void *made = realloc(old, bytes);
    if (!made) ups_out_of_memory("memory for a graph", bytes);
    return made;
}

ups_graph *ups_graph_create(ups_parameters *parameters, ups_dtype compute) {
    ups_graph *graph = allocate_or_abort(NULL, sizeof *graph);
    *graph = (ups_graph){
        .parameters = parameters, .compute = compute, .loss = UPS_NO_VALUE, .scope = "", .block = UPS_NO_BLOCK};
    graph->arena = ups_arena_create(0);
    if (!graph->arena) ups_out_of_memory("memory for a graph", 0);
    return graph;
}

void ups_graph_destroy(ups_graph *graph) {
    if (!graph) return;
    ups_arena_destroy(graph->arena);
    free(graph->nodes);
    free(graph->values);
    free(graph);
}

void ups_graph_abort(const ups_graph *graph, const char *op, const char *format, ...) {
    char complaint[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(complaint, sizeof complaint, format, arguments);
    va_end(arguments);
    ups_log(UPS_LOG_ERROR, "building the graph: %s in '%s': %s", op, graph->scope, complaint);
    abort();
}

static ups_value add_value(ups_graph *graph, ups_value_info info) {
    if (graph->value_count == graph->value_capacity) {
        graph->value_capacity = graph->value_capacity ? 2 * graph->value_capacity : 256;
        graph->values = allocate_or_abort(graph->values, sizeof *graph->values * (size_t)graph->value_capacity);
    }
    graph->values[graph->value_count] = info;
    return graph->value_count++;
}

/* A value without producer, parameter or base: what every kind starts from. */
static ups_value_info plain_value(ups_value_kind kind, ups_dtype dtype, ups_shape shape) {
    return (ups_value_info){
        .kind = kind, .dtype = dtype, .shape = shape, .producer = -1, .parameter = -1, .base = UPS_NO_VALUE};
}

static void check_shape(const ups_graph *graph, const char *what, ups_shape shape) {
    if (shape.rank < 1 || shape.rank > UPS_MAX_RANK) {
        ups_graph_abort(graph, what, "rank %d; 1 to %d are possible", shape.rank, UPS_MAX_RANK);
    }
    for (int i = 0; i < shape.rank; i++) {
        if (shape.size[i] < 1) ups_graph_abort(graph, what, "axis %d has size %lld", i, (long long)shape.size[i]);
    }
}

const ups_value_info *ups_graph_info(const ups_graph *graph, ups_value value) {
    if (value < 0 || value >= graph->value_count) ups_graph_abort(graph, "value", "%d is not in this graph", value);
    return &graph->values[value];
}

ups_value ups_graph_root(const ups_graph *graph, ups_value value) {
    while (value != UPS_NO_VALUE && ups_graph_info(graph, value)->kind == UPS_VALUE_VIEW) {
        value = graph->values[value].base;
    }
    return value;
}

ups_value ups_graph_find(const ups_graph *graph, const char *input_name) {
    for (ups_value value = 0; value < graph->value_count; value++) {
        const ups_value_info *info = &graph->values[value];
        if (info->kind != UPS_VALUE_INPUT && info->kind != UPS_VALUE_CONSTANT) continue;
        if (strcmp(info->name, input_name) == 0) return value;
    }
    return UPS_NO_VALUE;
}

void ups_graph_scope(ups_graph *graph, const char *format, ...) {
    char scope[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(scope, sizeof scope, format, arguments);
    va_end(arguments);
    graph->scope = ups_arena_strdup(graph->arena, scope);
}

ups_value ups_graph_input(ups_graph *graph, const char *name, ups_dtype dtype, ups_shape shape) {
    check_shape(graph, "input", shape);
    if (ups_graph_find(graph, name) != UPS_NO_VALUE) {
        ups_graph_abort(graph, "input", "there is an input or constant '%s' already", name);
    }
    ups_value_info info = plain_value(UPS_VALUE_INPUT, dtype, shape);
    info.name = ups_arena_strdup(graph->arena, name);
    return add_value(graph, info);
}

ups_value ups_graph_constant(ups_graph *graph, const char *name, ups_dtype dtype, ups_shape shape, const void *bytes) {
    ups_value value = ups_graph_input(graph, name, dtype, shape);
    size_t size = (size_t)ups_shape_elements(shape) * ups_dtype_size(dtype);
    void *copy = ups_arena_alloc(graph->arena, size);
    memcpy(copy, bytes, size);
    graph->values[value].kind = UPS_VALUE_CONSTANT;
    graph->values[value].constant = copy;
    return value;
}

ups_value ups_graph_parameter(ups_graph *graph, const char *name, ups_shape shape, ups_init init) {
    check_shape(graph, "parameter", shape);
    const char *full = graph->scope[0] ? ups_arena_printf(graph->arena, "%s.%s", graph->scope, name) : name;
    int32_t parameter = ups_parameters_add(graph->parameters, full, shape.rank, shape.size, init);
    for (ups_value value = 0; value < graph->value_count; value++) {
        if (graph->values[value].parameter == parameter) return value;
    }
    ups_value_info info = plain_value(UPS_VALUE_PARAMETER, UPS_F32, shape);
    info.parameter = parameter;
    info.name = ups_parameters_get(graph->parameters, parameter)->name;
    return add_value(graph, info);
}

ups_value ups_graph_reshape(ups_graph *graph, ups_value value, ups_shape shape) {
    check_shape(graph, "reshape", shape);
    const ups_value_info *from = ups_graph_info(graph, value);
    if (ups_shape_elements(from->shape) != ups_shape_elements(shape)) {
        ups_graph_abort(graph, "reshape", "%lld elements cannot become %lld",
                        (long long)ups_shape_elements(from->shape), (long long)ups_shape_elements(shape));
    }
    ups_value_info info = plain_value(UPS_VALUE_VIEW, from->dtype, shape);
    info.base = value;
    return add_value(graph, info);
}

ups_value ups_graph_hold(ups_graph *graph, ups_value value) {
    ups_value view = ups_graph_reshape(graph, value, ups_graph_info(graph, value)->shape);
    graph->values[view].held = true;
    return view;
}

void ups_graph_begin_block(ups_graph *graph) {
    graph->block = graph->block_count++;
}

void ups_graph_end_block(ups_graph *graph) {
    graph->block = UPS_NO_BLOCK;
}

void ups_graph_keep(ups_graph *graph, ups_value value) {
    graph->values[value].keep = true;
    graph->values[ups_graph_root(graph, value)].keep = true;
}

ups_value ups_graph_append(ups_graph *graph, ups_op_kind kind, const ups_op_attributes *attributes, int input_count,
                           const ups_value *inputs, ups_dtype dtype, ups_shape shape, int saved_count,
                           const ups_shape *saved_shapes) {
    check_shape(graph, ups_op_name(kind), shape);
    ups_op_attributes *copy = UPS_ARENA_NEW(graph->arena, ups_op_attributes);
    if (attributes) *copy = *attributes;
    ups_node node = {.kind = kind,
                     .attributes = copy,
                     .input_count = input_count,
                     .saved_count = saved_count,
                     .scope = graph->scope,
                     .block = graph->block};
    for (int i = 0; i < input_count; i++) node.inputs[i] = inputs[i];

    ups_value_info made = plain_value(UPS_VALUE_ACTIVATION, dtype, shape);
    made.producer = graph->node_count;
    node.output = add_value(graph, made);
    for (int i = 0; i < saved_count; i++) {
        ups_value_info saved = plain_value(UPS_VALUE_ACTIVATION, UPS_F32, saved_shapes[i]);
        saved.producer = graph->node_count;
        node.saved[i] = add_value(graph, saved);
    }

    if (graph->node_count == graph->node_capacity) {
        graph->node_capacity = graph->node_capacity ? 2 * graph->node_capacity : 128;
        graph->nodes = allocate_or_abort(graph->nodes, sizeof *graph->nodes * (size_t)graph->node_capacity);
    }
    graph->nodes[graph->node_count++] = node;
    return node.output;
}
