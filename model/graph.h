/* The graph: a model is built once per shape as a static list of ops, differentiated, and its memory planned; a step
 * replays it.
 *
 *   build (ops.h) → ups_graph_differentiate → ups_plan_create (plan.h) → ups_step_create (step.h) → ups_step_run, again
 * and again
 *
 * So the step's memory is known before it runs, nothing is allocated while training, and a CUDA graph can capture a
 * whole step. Nodes stand in the order they were built, which is the order they run; backward runs them in reverse.
 * Nothing here knows which device it is for.
 *
 * Mixed precision is a property of values, decided while building: in a graph whose `compute` is UPS_BF16 or UPS_F16,
 * matmul inputs and outputs, and what is fused between them, have that dtype; the residual stream (unless it was
 * begun otherwise), losses, norm statistics, parameters and their gradients stay float32. The gradient of a value has
 * the dtype of the value. In a float32 graph with `tf32` products with trained weights may round their operands to
 * TF32's ten bits, on a device that multiplies these faster; values stay float32. In a bf16 graph with `fp8_layers` the
 * products of these layers may round their operands to FP8 in training, on a device that multiplies it; values stay
 * what they are.
 */
#ifndef UPS_MODEL_GRAPH_H
#define UPS_MODEL_GRAPH_H

#include "base/arena.h"
#include "base/error.h"
#include "model/op.h"
#include "model/parameters/parameters.h"
#include "model/shape.h"

typedef int32_t ups_value; /* index of a value in its graph */
#define UPS_NO_VALUE ((ups_value)-1)

typedef enum ups_value_kind {
    UPS_VALUE_INPUT,      /* filled by the caller before each run; no gradient */
    UPS_VALUE_CONSTANT,   /* filled once, when the step is created */
    UPS_VALUE_PARAMETER,  /* lives in the parameters' flat buffers */
    UPS_VALUE_ACTIVATION, /* made by a node; lives in the planned arena */
    UPS_VALUE_VIEW,       /* another shape of the memory of `base`; shares its gradient */
} ups_value_kind;

typedef struct ups_value_info {
    ups_value_kind kind;
    ups_dtype dtype;
    ups_shape shape;
    const char *name;     /* inputs, constants, parameters; else NULL */
    int32_t producer;     /* node that makes it, or −1 */
    int32_t parameter;    /* index in ups_parameters, or −1 */
    ups_value base;       /* of a view */
    bool held;            /* a view through which no gradient goes */
    const void *constant; /* host bytes of a constant, kept in the graph's arena */
    bool needs_gradient;  /* set by differentiate */
    bool keep;            /* stays readable after the run */
} ups_value_info;

typedef struct ups_node {
    ups_op_kind kind;
    const ups_op_attributes *attributes;
    int input_count;
    ups_value inputs[UPS_MAX_INPUTS]; /* UPS_NO_VALUE where an optional input is absent */
    ups_value output;
    int saved_count;
    ups_value
        saved[UPS_MAX_SAVED]; /* what forward leaves for backward: statistics, masks; activations without gradient */
    const char *scope;        /* where in the model: "blocks.3.attention", for profiles and messages */
    int32_t block;            /* of activation checkpointing, or UPS_NO_BLOCK */
} ups_node;

#define UPS_NO_BLOCK ((int32_t)-1)

/* What of a block's activations stays in memory from forward to backward; the rest is recomputed. What leaves a block
 * stays always. */
typedef enum ups_checkpointing {
    UPS_CHECKPOINTING_NONE,  /* all that backward reads */
    UPS_CHECKPOINTING_CHEAP, /* the products that backward reads: norms, activations, sums are recomputed */
    UPS_CHECKPOINTING_BLOCK, /* nothing: the block runs again */
} ups_checkpointing;

typedef struct ups_graph {
    ups_arena *arena;
    ups_parameters *parameters;    /* shared by all graphs of one model; borrowed */
    ups_dtype compute;             /* UPS_F32, UPS_BF16 or UPS_F16 */
    bool tf32;                     /* set before building: float32 products of trained weights may be TF32 */
    const char *const *fp8_layers; /* set before building, borrowed: hidden layers that may multiply FP8, by patterns
                                      (fnmatch) of their names */
    unsigned fp8_layer_count;
    ups_node *nodes;
    int32_t node_count, node_capacity;
    ups_value_info *values;
    int32_t value_count, value_capacity;
    ups_value loss;                  /* set by differentiate, else UPS_NO_VALUE */
    const char *scope;               /* current scope while building */
    int32_t block, block_count;      /* current block while building, and how many there are */
    ups_checkpointing checkpointing; /* set before a plan or a step is made of the graph */
    bool unpaired;                   /* set before, too: every op runs by itself (fuse.h) */
} ups_graph;

ups_graph *ups_graph_create(ups_parameters *parameters, ups_dtype compute);
void ups_graph_destroy(ups_graph *graph);

const ups_value_info *ups_graph_info(const ups_graph *graph, ups_value value);
ups_value ups_graph_find(const ups_graph *graph,
                         const char *input_name); /* input or constant by name; UPS_NO_VALUE when absent */

/* Building. Shapes that do not fit are a bug of the builder and abort with the op, scope and shapes: they cannot depend
 * on user data, which is checked when the configuration is. */
void ups_graph_scope(ups_graph *graph, const char *format, ...) __attribute__((format(printf, 2, 3)));
ups_value ups_graph_input(ups_graph *graph, const char *name, ups_dtype dtype, ups_shape shape);
ups_value ups_graph_constant(ups_graph *graph, const char *name, ups_dtype dtype, ups_shape shape, const void *bytes);
/* Named scope-relative: "weight" in scope "blocks.3.up" is the parameter "blocks.3.up.weight". Built again with the
 * same name it is the same one. */
ups_value ups_graph_parameter(ups_graph *graph, const char *name, ups_shape shape, ups_init init);
ups_value ups_graph_reshape(ups_graph *graph, ups_value value, ups_shape shape); /* a view */
/* The same value, a view, as a constant: who reads it gives it no gradient. */
ups_value ups_graph_hold(ups_graph *graph, ups_value value);
/* Between the two, nodes form a block of activation checkpointing: a few layers with one input. Not nested. */
void ups_graph_begin_block(ups_graph *graph);
void ups_graph_end_block(ups_graph *graph);
void ups_graph_keep(ups_graph *graph, ups_value value);

/* The value whose memory `value` has: itself, or what it is a view of. UPS_NO_VALUE stays what it is. */
ups_value ups_graph_root(const ups_graph *graph, ups_value value);

/* For the constructors of ops.h: appends a node with a copy of `attributes` (NULL: none) and returns its output. */
ups_value ups_graph_append(ups_graph *graph, ups_op_kind kind, const ups_op_attributes *attributes, int input_count,
                           const ups_value *inputs, ups_dtype dtype, ups_shape shape, int saved_count,
                           const ups_shape *saved_shapes);
/* Ends the process with the op, the scope and a printf-style complaint: the builder is wrong. */
_Noreturn void ups_graph_abort(const ups_graph *graph, const char *op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
