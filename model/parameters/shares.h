/* Parameters divided into shares, each of which one process updates and keeps the optimizer's state of (ZeRO,
 * Rajbhandari et al., arXiv 1910.02054).
 *
 * The flat buffers fall into pieces, each of one share. A hidden matrix that is updated as a whole lies in one piece;
 * matrices are dealt out by what orthogonalising them costs, the dearest first, each to the share that has the least.
 * Between matrices the buffers are cut at multiples of UPS_SHARE_ALIGNMENT elements: each run of UPS_SHARE_RUN of them
 * into as many equal parts as there are shares, so that gradients that are complete early in backward are of all
 * shares. Every set of parameters (parameters.h) is divided by itself, since a step may move some sets alone. */
#ifndef UPS_MODEL_PARAMETERS_SHARES_H
#define UPS_MODEL_PARAMETERS_SHARES_H

#include "model/parameters/parameters.h"

enum {
    UPS_SHARE_ALIGNMENT = 64, /* elements, like that of parameters */
    UPS_SHARE_PART = 1024     /* no run is cut into smaller parts */
};
#define UPS_SHARE_RUN (INT64_C(1) << 20)

typedef struct ups_share_piece {
    int64_t offset, count; /* elements of the flat buffers */
    int32_t share;
} ups_share_piece;

typedef struct ups_shares {
    int32_t count;
    ups_share_piece *pieces; /* all elements of the flat buffers, in order; neighbours are of different shares */
    int32_t piece_count;
} ups_shares;

/* One of them, and whose it is. */
typedef struct ups_share {
    const ups_shares *of; /* borrowed */
    int32_t index;
} ups_share;

/* A function of the parameters, which must be placed, and of nothing else: every process finds the same.
 * `whole_matrices`: those of ups_init.matrices are updated as wholes. Free also on failure. */
ups_status ups_shares_find(const ups_parameters *parameters, int32_t count, bool whole_matrices, ups_shares *shares,
                           ups_error *error);
void ups_shares_free(ups_shares *shares);
/* Index of the first piece that ends after this element; piece_count where there is none. */
int32_t ups_shares_piece_at(const ups_shares *shares, int64_t element);

/* What of a piece lies in the elements [begin, end); nothing: count ≤ 0. */
ups_share_piece ups_share_piece_within(ups_share_piece piece, int64_t begin, int64_t end);

/* The most elements of one share in the first `run` elements, the next `run` and so on. */
int64_t ups_shares_most_within(const ups_shares *shares, int64_t run);

/* What a rows × columns matrix costs: five steps of Newton–Schulz are so many times that many multiplications. */
double ups_share_matrix_cost(int64_t rows, int64_t columns);

#endif
