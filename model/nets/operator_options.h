/* What an operator is built from: read by the operator (operator.h) and by its cores (core.h). */
#ifndef UPS_MODEL_NETS_OPERATOR_OPTIONS_H
#define UPS_MODEL_NETS_OPERATOR_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ups_update_norm {
    UPS_UPDATE_LAYER_NORM, /* the default: the update has a known scale */
    UPS_UPDATE_PLAIN,      /* z' = z + core(…) */
} ups_update_norm;

typedef enum ups_residual_dtype {
    UPS_RESIDUAL_F32,  /* the default: what blocks add is not rounded away */
    UPS_RESIDUAL_HALF, /* in bf16 and fp16 runs the dtype of products: less memory is moved; sums are rounded, and
                          gradients */
} ups_residual_dtype;

/* A task whose tokens are the cells of a grid. */
typedef struct ups_token_grid {
    const char *task; /* names the parameters that are its own; NULL: tokens lie nowhere, and all tasks share all */
    int dims;
    int64_t cells[3]; /* along each axis, slowest first */
    bool periodic;
    int64_t stride; /* of the step, where the operator has learnt several, each with a change of its own; else 0 */
    /* Tokens that are runs of points that lie anywhere: dims is 1, and neighbours of a token along that axis lie near
     * it as a rule, no more. Where all samples have the same points, what blocks know of them: borrowed while the graph
     * is built. */
    bool scattered;
    int place_dims;
    float bound;          /* of latents, which ups_bound bounded; 0: none */
    int64_t offset_count; /* numbers that tell how a token's points lie */
    const float *places;  /* (cells, place_dims) in [0, 1]: the middle of each token's points; NULL: each sample has its
                             own points, and its state tells where */
    const float *offsets; /* (cells, offset_count): from its middle to each of its points, in units of their spread */
} ups_token_grid;

/* Most frames that an operator reads (PDEBench gives ten), and most that it gives. */
#define UPS_MAX_HISTORY 16
#define UPS_MAX_BUNDLE 32
/* What a block does with tokens before its MLP. `auto` is one of the other two, for each task by itself: attention
 * where there are at most `attended_tokens`, and where they lie on no regular grid; else modes. */
typedef enum ups_mixing { UPS_MIXING_ATTENTION, UPS_MIXING_SPECTRAL, UPS_MIXING_AUTO } ups_mixing;

/* What attention is over, and what it mixes. */
typedef enum ups_attention_kind {
    UPS_ATTENTION_STANDARD,          /* all tokens, all features */
    UPS_ATTENTION_CHANNEL_SEPARATED, /* all tokens; each group of 32 features by itself, with shared weights */
    UPS_ATTENTION_WINDOW,            /* tokens of a window of the grid, shifted in every second block that attends */
} ups_attention_kind;

/* How blocks know where tokens of a grid lie. */
typedef enum ups_positions {
    UPS_POSITIONS_BORDERS, /* a map of Fourier features of places is added, where the domain has borders */
    UPS_POSITIONS_NONE,
    UPS_POSITIONS_LEARNED, /* a table of each task is added */
    UPS_POSITIONS_ROTARY,  /* as `borders`, and attention turns queries and keys by their places */
} ups_positions;

enum { UPS_ATTENDED_TOKENS = 256 }; /* unless said otherwise */

/* The halves of a block, each with its norm. */
typedef enum ups_block_half { UPS_HALF_MIXING, UPS_HALF_MLP, UPS_HALF_COUNT } ups_block_half;

enum { UPS_MAX_TURNS = 8, UPS_MAX_LEVELS = 8, UPS_GROUP_WIDTH = 32 /* features, of channel-separated attention */ };

typedef struct ups_operator_options {
    const char *core;    /* name in the table of cores (core.h); NULL: stack */
    int64_t tokens, dim; /* of the latents */
    ups_token_grid grid;
    int64_t hidden;
    int depth, heads;
    float mlp_ratio;
    float drop_path; /* of the last block; rises linearly from 0 at the first */
    bool qk_norm;
    ups_mixing mixing[UPS_MAX_TURNS];   /* of the core's blocks in turn */
    int mixing_count;                   /* 0: all do what the core does by itself */
    bool task_specific[UPS_HALF_COUNT]; /* on a grid: halves of blocks that each task has weights of its own for */
    int64_t attended_tokens;            /* that a block with `auto` attends to, at most; in a U-Net, of its level */
    ups_attention_kind attention;
    int64_t window[3]; /* cells an axis, by the number of grid axes, as `modes` */
    ups_positions positions;
    int depths[UPS_MAX_LEVELS], level_count; /* of the core `unet`: blocks of each level, finest first */
    int64_t merge_above;      /* of the core `unet`: a level of at most so many tokens hands them on as they are */
    int convolution;          /* cells along an axis of a depthwise kernel beside the mixing: 3, 5, 7; 0: none */
    int64_t modes[3];         /* of spectral mixing along each grid axis, by their number: of 1D, 2D and 3D tasks */
    bool factorized;          /* modes along each axis by themselves, not of all axes together */
    int64_t time_hidden;      /* 64 */
    int64_t condition_hidden; /* width of the condition's MLP */
    int64_t parameter_count;  /* PDE parameters a sample; 0: none */
    int64_t task_count;       /* 0: the task does not enter */
    ups_update_norm update_norm;
    ups_residual_dtype residual; /* of the stream that the core's blocks add to */
    bool boundary;               /* on a grid: whether the domain is periodic is part of the condition */
    bool conserve;               /* on a grid: what was measured to stay the same on average over all tokens stays so */
    bool neighbors;              /* on a grid: the linear part of an update reads a token's neighbours, too */
    int history;                 /* frames that are read; more than one only on a grid */
    int bundle;                  /* frames that an application gives; likewise */
    bool pushforward;            /* of rollouts: no gradient goes from an application to those before it */
} ups_operator_options;

#endif
