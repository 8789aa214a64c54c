/* The core `spectral`: blocks that mix modes of the token grid, x + spectral(norm(x)) + linear(norm(x)), then x +
 * mlp(norm(x)): a Fourier neural operator (arXiv 2010.08895) over tokens, with a transformer's norms and MLP.
 *
 * Along a periodic axis modes are those of its length. Along any other they are those of twice its length, the second
 * half empty, so that what leaves on one side does not come in on the other: as zeros beyond the border. Tables are
 * orthonormal, so that a model reads other resolutions of the same domain. Matrices are shared by tasks with as many
 * axes and the same kind of border, PREFIX.blocks.N.spectral.2d.periodic; a task uses the lowest modes that its grid
 * has. */
#include "model/nets/blocks.h"
#include "model/nets/core.h"

#include <math.h>
#include <stdio.h>

static ups_status check(const ups_operator_options *o, ups_error *error) {
    if (!(o->mlp_ratio * (float)o->hidden >= 1)) {
        return ups_fail(error, UPS_ERR_CONFIG, "operator: mlp_ratio %g leaves the MLP without width", o->mlp_ratio);
    }
    return UPS_OK;
}

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

static ups_value mix(ups_graph *g, const char *prefix, const ups_operator_options *o, ups_value x) {
    const ups_token_grid *grid = &o->grid;
    ups_value tables[3];
    int64_t modes[3], all = 1, parts = 1;
    for (int axis = 0; axis < grid->dims; axis++) {
        modes[axis] = o->modes[grid->dims - 1];
        tables[axis] =
            table(g, grid->cells[axis], grid->periodic, modes_of(grid->cells[axis], grid->periodic, modes[axis]));
        all *= modes[axis];
        parts *= 2;
    }
    char name[48];
    snprintf(name, sizeof name, "spectral.%dd.%s", grid->dims, grid->periodic ? "periodic" : "padded");
    ups_graph_scope(g, "%s.%s", prefix, name);
    /* No `matrices`: making each mode's orthogonal took two thirds of a step again, and AdamW did as well. */
    ups_init init = {.kind = UPS_INIT_NORMAL, .scale = 1 / sqrtf((float)(2 * o->hidden)), .no_decay = true};
    ups_value weight = ups_graph_parameter(g, "weight", UPS_SHAPE(all, parts * o->hidden, o->hidden), init);
    ups_value mixed = ups_spectral(g, x, weight, tables, grid->dims, modes);
    return ups_add(g, mixed, ups_dense(g, prefix, "spectral.local", x, o->hidden, (ups_dense_options){.matrices = 1}));
}

static ups_value build(ups_graph *g, const char *prefix, const ups_operator_options *o, ups_value x,
                       ups_value condition, uint32_t first_layer) {
    for (int i = 0; i < o->depth; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.blocks.%d", prefix, i);
        const ups_block_options block = {.mlp_ratio = o->mlp_ratio,
                                         .drop_path = ups_operator_drop_path(o, i),
                                         .condition = condition,
                                         .layer = first_layer + 2 * (uint32_t)i};
        ups_graph_begin_block(g);
        ups_value normed = ups_conditioned_norm(g, name, "spectral.norm", x, condition);
        ups_value mixed = mix(g, name, o, normed);
        ups_graph_scope(g, "%s", name);
        x = ups_residual(g, x, mixed, UPS_NO_VALUE, block.drop_path, block.layer);
        x = ups_block_mlp(g, name, &block, x);
        ups_graph_end_block(g);
    }
    return x;
}

const ups_core_class ups_core_spectral = {
    .name = "spectral",
    .help = "Fourier modes of the token grid, each mixed by a matrix of its own, and an MLP",
    .needs_grid = true,
    .check = check,
    .build = build,
};
