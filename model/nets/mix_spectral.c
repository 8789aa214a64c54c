/* Mixing by modes of the token grid: spectral(x) + linear(x), the first half of a Fourier neural operator's layer
 * (arXiv 2010.08895) over tokens.
 *
 * Along a periodic axis modes are those of its length. Along any other they are those of twice its length, the second
 * half empty, so that what leaves on one side does not come in on the other: as zeros beyond the border. Tables are
 * orthonormal, so that a model reads other resolutions of the same domain. Matrices are shared by tasks with as many
 * axes and the same kind of border, PREFIX.spectral.2d.periodic; a task uses the lowest modes that its grid has. A
 * level of a U-Net has half as many along each axis as the one before, whether a task's tokens were merged there or
 * could not be, since tasks share the matrices.
 *
 * `factorized`: Σ_axes spectral along the axis (Tran et al., arXiv 2111.13802), each with matrices of its own,
 * PREFIX.spectral.2d.periodic.axis0: k matrices for k modes of an axis, where all axes together take k^dims. */
#include "model/nets/core_blocks.h"

#include "model/nets/blocks.h"

#include <math.h>
#include <stdio.h>

/* Modes of an axis: 0 to half its length where it is periodic, to its length otherwise. */
static int64_t modes_of(int64_t cells, bool periodic, int64_t most) {
    int64_t there = periodic ? cells / 2 + 1 : cells + 1;
    return there < most ? there : most;
}

/* (2 modes, cells): rows 2 k and 2 k + 1 are cos and sin of mode k, orthonormal over a whole period. */
static ups_value table(ups_graph *g, int64_t cells, bool periodic, int64_t modes) {
    char name[64];
    snprintf(name, sizeof name, "modes.%s.%lld.%lld", periodic ? "periodic" : "padded", (long long)cells,
             (long long)modes);
    ups_value found = ups_graph_find(g, name);
    if (found != UPS_NO_VALUE) return found;
    int64_t period = periodic ? cells : 2 * cells;
    float *host = UPS_ARENA_ARRAY(g->arena, float, 2 * modes * cells);
    for (int64_t k = 0; k < modes; k++) {
        bool alone = k == 0 || 2 * k == period; /* has no sine */
        double scale = sqrt((alone ? 1.0 : 2.0) / (double)period);
        for (int64_t i = 0; i < cells; i++) {
            double angle = 2.0 * M_PI * (double)(k * i % period) / (double)period;
            host[2 * k * cells + i] = (float)(scale * cos(angle));
            host[(2 * k + 1) * cells + i] = alone ? 0.0f : (float)(scale * sin(angle));
        }
    }
    return ups_graph_constant(g, name, UPS_F32, UPS_SHAPE(2 * modes, cells), host);
}

/* A matrix for each part of each mode. */
static ups_value matrices(ups_graph *g, const ups_operator_options *o, int64_t modes, int64_t parts) {
    /* No `matrices` to Muon: making each mode's orthogonal took two thirds of a step again, and AdamW did as well. */
    const ups_init init = {.kind = UPS_INIT_NORMAL, .scale = 1 / sqrtf((float)(2 * o->hidden)), .no_decay = true};
    return ups_graph_parameter(g, "weight", UPS_SHAPE(modes, parts * o->hidden, o->hidden), init);
}

/* Along each axis by itself, the results added up. */
static ups_value mix_axes(ups_graph *g, const char *prefix, const char *name, const ups_core_block *block,
                          const ups_value *tables, const int64_t *modes, ups_value x) {
    const ups_token_grid *grid = &block->grid;
    ups_value sum = UPS_NO_VALUE;
    int64_t inner = 1;
    for (int axis = grid->dims - 1; axis >= 0; axis--) {
        ups_graph_scope(g, "%s.%s.axis%d", prefix, name, axis);
        ups_value mixed =
            ups_spectral_lines(g, x, matrices(g, block->options, modes[axis], 2), tables[axis], inner, modes[axis]);
        sum = sum == UPS_NO_VALUE ? mixed : ups_add(g, sum, mixed);
        inner *= grid->cells[axis];
    }
    return sum;
}

ups_value ups_mix_spectral(ups_graph *g, const char *prefix, const ups_core_block *block, ups_value x) {
    const ups_operator_options *o = block->options;
    const ups_token_grid *grid = &block->grid;
    ups_value tables[3];
    int64_t modes[3], all = 1, parts = 1;
    for (int axis = 0; axis < grid->dims; axis++) {
        modes[axis] = ((o->modes[grid->dims - 1] - 1) >> block->level) + 1;
        tables[axis] =
            table(g, grid->cells[axis], grid->periodic, modes_of(grid->cells[axis], grid->periodic, modes[axis]));
        all *= modes[axis];
        parts *= 2;
    }
    char name[48];
    snprintf(name, sizeof name, "spectral.%dd.%s", grid->dims, grid->periodic ? "periodic" : "padded");
    ups_value mixed;
    if (o->factorized && grid->dims > 1) {
        mixed = mix_axes(g, prefix, name, block, tables, modes, x);
    } else {
        ups_graph_scope(g, "%s.%s", prefix, name);
        mixed = ups_spectral(g, x, matrices(g, o, all, parts), tables, grid->dims, modes);
    }
    return ups_add(g, mixed, ups_dense(g, prefix, "spectral.local", x, o->hidden, (ups_dense_options){.matrices = 1}));
}
