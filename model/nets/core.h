/* Cores of the operator: what changes tokens, between its input and its output. A core is a file core_NAME.c and a line
 * of the table in core.c; configurations name it. */
#ifndef UPS_MODEL_NETS_CORE_H
#define UPS_MODEL_NETS_CORE_H

#include "model/nets/operator_options.h"
#include "model/ops.h"

/* What a core changes, and what it knows. */
typedef struct ups_core_input {
    ups_value x;          /* (B, tokens, hidden) float32 */
    ups_value condition;  /* (B, condition_hidden): what blocks are modulated by, or UPS_NO_VALUE */
    ups_value places;     /* (B, tokens, d) float32: where each sample's tokens lie; UPS_NO_VALUE: as the options say */
    uint32_t first_layer; /* of the random streams that drop-path may use, two a block */
} ups_core_input;

typedef struct ups_core_class {
    const char *name, *help;
    ups_mixing mixing; /* of its blocks, where the options name none */
    /* What is wrong with the options for this core alone; the sentence begins with "operator: ". NULL: nothing ever. */
    ups_status (*check)(const ups_operator_options *options, ups_error *error);
    int (*block_count)(const ups_operator_options *options);      /* NULL: options->depth */
    int (*level)(const ups_operator_options *options, int block); /* which it is of, finest first; NULL: there is one */
    /* (B, tokens, hidden) float32. Parameters are named PREFIX.…. */
    ups_value (*build)(ups_graph *graph, const char *prefix, const ups_operator_options *options,
                       const ups_core_input *input);
} ups_core_class;

extern const ups_core_class ups_core_stack, ups_core_spectral, ups_core_unet;

/* How many blocks the options' core has, what block `block` is told to do, what it does with tokens of the options'
 * grid (never `auto`), and whether any of them does it. */
int ups_core_block_count(const ups_operator_options *options);
ups_mixing ups_core_told_mixing(const ups_operator_options *options, int block);
ups_mixing ups_core_mixing(const ups_operator_options *options, int block);
bool ups_core_mixes_by(const ups_operator_options *options, ups_mixing mixing);

/* Whether any does or might, with tokens of another grid, and whether any depends on the grid. */
bool ups_core_may_attend(const ups_operator_options *options);
bool ups_core_may_choose(const ups_operator_options *options);

/* What is wrong with the options for the core that they name. */
ups_status ups_core_check(const ups_operator_options *options, ups_error *error);

/* Whether a level with this grid hands its tokens to the next one in pairs. */
bool ups_core_merges(const ups_operator_options *options, const ups_token_grid *grid);

/* The table, ended by NULL, and the core of a name (NULL: the default); NULL when there is none. */
extern const ups_core_class *const ups_cores[];
const ups_core_class *ups_core_find(const char *name);

#endif
