/* The core `unet`: blocks on the token grid, on one with half as many tokens along each axis, and so on; then back up,
 * where each level's own tokens, through a linear, are added to what comes from below.
 *
 *   down  x_l = blocks(coarsen(x_{l-1}))        up  y_l = blocks(refine(y_{l+1}) + linear(x_l))
 *
 * depths[l] blocks on the way down and as many on the way up; those of the coarsest level once. A fixed number of
 * tokens counts as a line. Where they are few already (merge_above), a level is as fine as the one before. */
#include "model/nets/blocks.h"
#include "model/nets/core.h"
#include "model/nets/core_blocks.h"

#include <stdio.h>

static ups_status check(const ups_operator_options *o, ups_error *error) {
    bool wrong = o->level_count < 1 || o->level_count > UPS_MAX_LEVELS;
    for (int level = 0; level < o->level_count && !wrong; level++) wrong = o->depths[level] < 1;
    if (!wrong) return UPS_OK;
    return ups_fail(error, UPS_ERR_CONFIG, "operator: depths must be 1 to %d numbers, each at least 1", UPS_MAX_LEVELS);
}

static int block_count(const ups_operator_options *o) {
    int count = 0;
    for (int level = 0; level < o->level_count; level++)
        count += (level + 1 < o->level_count ? 2 : 1) * o->depths[level];
    return count;
}

/* Down, and up again. */
static int level_of(const ups_operator_options *o, int block) {
    const int last = o->level_count - 1;
    for (int step = 0; step < 2 * last; step++) {
        const int level = step <= last ? step : 2 * last - step;
        if (block < o->depths[level]) return level;
        block -= o->depths[level];
    }
    return 0;
}

typedef struct level {
    ups_token_grid grid;
    ups_value angles, skip;
    bool merges; /* its tokens, for the next level */
} level;

typedef struct builder {
    const char *prefix;
    ups_core_block block; /* the next one */
    uint32_t first_layer;
} builder;

static ups_value run_level(ups_graph *g, builder *b, const level *at, int number, ups_value x) {
    b->block.grid = at->grid;
    b->block.angles = at->angles;
    b->block.level = number;
    for (int i = 0; i < b->block.options->depths[number]; i++, b->block.index++) {
        b->block.layer = b->first_layer + 2 * (uint32_t)b->block.index;
        x = ups_core_block_build(g, b->prefix, &b->block, x);
    }
    return x;
}

/* The grid of means of pairs; of points that lie anywhere, a pair lies in the middle between its two. */
static void coarsen_grid(ups_graph *g, const ups_token_grid *fine, ups_token_grid *coarse) {
    *coarse = *fine;
    for (int axis = 0; axis < fine->dims; axis++) coarse->cells[axis] = (fine->cells[axis] + 1) / 2;
    if (!fine->places) return; /* each sample's own: the builder's */
    const int dims = fine->place_dims;
    float *places = UPS_ARENA_ARRAY(g->arena, float, coarse->cells[0] * dims);
    for (int64_t i = 0; i < coarse->cells[0] * dims; i++) {
        const int64_t first = 2 * (i / dims), second = first + 1 < fine->cells[0] ? first + 1 : first;
        places[i] = 0.5f * (fine->places[first * dims + i % dims] + fine->places[second * dims + i % dims]);
    }
    coarse->places = places;
}

static ups_value build(ups_graph *g, const char *prefix, const ups_operator_options *o, const ups_core_input *input) {
    builder b = {.prefix = prefix, .first_layer = input->first_layer};
    b.block = (ups_core_block){.options = o, .count = block_count(o), .condition = input->condition};
    level levels[UPS_MAX_LEVELS] = {{.grid = o->grid, .angles = ups_core_angles(g, o, input->places)}};
    ups_value x = input->x, places = input->places;
    if (!o->grid.task) levels[0].grid = (ups_token_grid){.dims = 1, .cells = {o->tokens}};
    const int last = o->level_count - 1;
    for (int l = 0; l < last; l++) {
        const ups_token_grid *grid = &levels[l].grid;
        levels[l].skip = x = run_level(g, &b, &levels[l], l, x);
        ups_graph_scope(g, "%s.down.%d", prefix, l);
        levels[l].merges = ups_core_merges(o, grid);
        if (!levels[l].merges) {
            levels[l + 1] = levels[l];
            continue;
        }
        x = ups_coarsen(g, x, grid->dims, grid->cells);
        coarsen_grid(g, grid, &levels[l + 1].grid);
        if (places != UPS_NO_VALUE) places = ups_coarsen(g, places, grid->dims, grid->cells);
        levels[l + 1].angles = ups_core_angles(g, o, places);
    }
    x = run_level(g, &b, &levels[last], last, x);
    for (int l = last - 1; l >= 0; l--) {
        const ups_token_grid *grid = &levels[l].grid;
        char name[32];
        snprintf(name, sizeof name, "skips.%d", l);
        ups_value skip = ups_dense(g, prefix, name, levels[l].skip, o->hidden,
                                   (ups_dense_options){.output_f32 = true, .matrices = 1});
        ups_graph_scope(g, "%s.up.%d", prefix, l);
        if (levels[l].merges) x = ups_refine(g, x, grid->dims, grid->cells, grid->periodic);
        x = ups_add(g, x, skip);
        x = run_level(g, &b, &levels[l], l, x);
    }
    return x;
}

const ups_core_class ups_core_unet = {
    .name = "unet",
    .help = "blocks on ever coarser tokens and back, with skips",
    .mixing = UPS_MIXING_ATTENTION,
    .check = check,
    .block_count = block_count,
    .level = level_of,
    .build = build,
};
