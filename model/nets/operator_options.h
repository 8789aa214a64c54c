/* What an operator is built from: read by the operator (operator.h) and by its cores (core.h). */
#ifndef UPS_MODEL_NETS_OPERATOR_OPTIONS_H
#define UPS_MODEL_NETS_OPERATOR_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ups_update_norm {
    UPS_UPDATE_LAYER_NORM, /* the default: the update has a known scale */
    UPS_UPDATE_PLAIN,      /* z' = z + core(…) */
} ups_update_norm;

/* A task whose tokens are the cells of a grid. */
typedef struct ups_token_grid {
    const char *task; /* names the parameters that are its own; NULL: tokens lie nowhere, and all tasks share all */
    int dims;
    int64_t cells[3]; /* along each axis, slowest first */
    bool periodic;
} ups_token_grid;

/* Most frames that an operator reads, and most that it gives. */
#define UPS_MAX_HISTORY 8
#define UPS_MAX_BUNDLE 32

typedef struct ups_operator_options {
    const char *core;    /* name in the table of cores (core.h); NULL: stack */
    int64_t tokens, dim; /* of the latents */
    ups_token_grid grid;
    int64_t hidden;
    int depth, heads;
    float mlp_ratio;
    float drop_path; /* of the last block; rises linearly from 0 at the first */
    bool qk_norm;
    int64_t modes[3];         /* of the core `spectral` along each grid axis, by their number: of 1D, 2D and 3D tasks */
    int64_t time_hidden;      /* 64 */
    int64_t condition_hidden; /* width of the condition's MLP */
    int64_t parameter_count;  /* PDE parameters a sample; 0: none */
    int64_t task_count;       /* 0: the task does not enter */
    ups_update_norm update_norm;
    bool conserve; /* on a grid: what was measured to stay the same on average over all tokens stays so */
    int history;   /* frames that are read; more than one only on a grid */
    int bundle;    /* frames that an application gives; likewise */
} ups_operator_options;

/* Of block `block`: rises linearly from 0 at the first to options->drop_path at the last. */
static inline float ups_operator_drop_path(const ups_operator_options *options, int block) {
    return options->depth > 1 ? options->drop_path * (float)block / (float)(options->depth - 1) : 0;
}

#endif
