/* The grid encoder: see the header. */
#include "model/nets/encoder.h"

#include "model/nets/blocks.h"

#include <stdio.h>
#include <string.h>

static const char trunk[] = "encoder.trunk";

ups_encoder_options ups_encoder_defaults(void) {
    return (ups_encoder_options){.patch = {8, 8, 8},
                                 .width = 128,
                                 .stem_width = 64,
                                 .tokens = 128,
                                 .dim = 128,
                                 .heads = 8,
                                 .mlp_ratio = 4,
                                 .frequency_count = 4,
                                 .frequencies = {1, 2, 4, 8}};
}

ups_status ups_encoder_check(const ups_encoder_options *o, ups_error *error) {
    if (o->patch[0] < 1 || o->patch[1] < 1 || o->patch[2] < 1 || o->width < 1 || o->tokens < 1 || o->dim < 1) {
        return ups_fail(error, UPS_ERR_CONFIG, "encoder: patches, width, tokens and dim must be at least 1");
    }
    if (o->stem_width < 0 || o->depth < 0) {
        return ups_fail(error, UPS_ERR_CONFIG, "encoder: stem_width and depth must not be negative");
    }
    bool attends = o->pooling == UPS_POOL_QUERIES || o->depth > 0;
    if (attends && (o->heads < 1 || o->width % o->heads != 0 || !(o->mlp_ratio * (float)o->width >= 1))) {
        return ups_fail(error, UPS_ERR_CONFIG,
                        "encoder: width (%lld) must be a multiple of heads (%d), and mlp_ratio (%g) positive",
                        (long long)o->width, o->heads, o->mlp_ratio);
    }
    if (o->frequency_count < 0 || o->frequency_count > UPS_MAX_FREQUENCIES) {
        return ups_fail(error, UPS_ERR_CONFIG, "encoder: %d frequencies; at most %d are possible", o->frequency_count,
                        UPS_MAX_FREQUENCIES);
    }
    return UPS_OK;
}

static void patch_of(const ups_encoder_options *o, const ups_field_shape *field, int64_t *patch, int64_t *cells) {
    for (int axis = 0; axis < field->dims; axis++) {
        patch[axis] = o->patch[axis];
        cells[axis] = (field->grid[axis] + patch[axis] - 1) / patch[axis];
    }
}

int64_t ups_encoder_patches(const ups_encoder_options *options, const ups_field_shape *field) {
    int64_t patch[3], cells[3], count = 1;
    patch_of(options, field, patch, cells);
    for (int axis = 0; axis < field->dims; axis++) count *= cells[axis];
    return count;
}

void ups_encoder_token_coordinates(const ups_encoder_options *options, const ups_field_shape *field, float *out) {
    int64_t patch[3], cells[3], patches = ups_encoder_patches(options, field), dims = field->dims;
    patch_of(options, field, patch, cells);
    for (int64_t token = 0; token < options->tokens; token++) {
        int64_t begin = token * patches / options->tokens;
        int64_t end = ((token + 1) * patches + options->tokens - 1) / options->tokens;
        double sum[3] = {0};
        for (int64_t cell = begin; cell < end; cell++) {
            int64_t rest = cell;
            for (int64_t axis = dims - 1; axis >= 0; axis--) {
                sum[axis] += ((double)(rest % cells[axis]) + 0.5) * (double)patch[axis] / (double)field->grid[axis];
                rest /= cells[axis];
            }
        }
        for (int64_t axis = 0; axis < dims; axis++)
            out[token * dims + axis] = (float)(sum[axis] / (double)(end - begin));
    }
}

/* The patch centres, a constant made once a graph and task. */
static ups_value centres(ups_graph *g, const ups_encoder_options *o, const ups_field_shape *field) {
    int64_t patch[3], cells[3], patches = ups_encoder_patches(o, field);
    patch_of(o, field, patch, cells);
    char name[200];
    snprintf(name, sizeof name, "encoder.centres.%s", field->task);
    ups_value found = ups_graph_find(g, name);
    if (found != UPS_NO_VALUE) return found;
    float *coordinates = UPS_ARENA_ARRAY(g->arena, float, patches * field->dims);
    ups_grid_coordinates(field->dims, cells, coordinates);
    for (int64_t i = 0; i < patches * field->dims;
         i++) { /* where patches do not divide the grid the last reach beyond 1 */
        int64_t axis = i % field->dims;
        coordinates[i] *= (float)(cells[axis] * patch[axis]) / (float)field->grid[axis];
    }
    return ups_graph_constant(g, name, UPS_F32, UPS_SHAPE(patches, field->dims), coordinates);
}

/* (B, N, P·C) → the same: a residual of two convolutions on the grid of patches. */
static ups_value stem(ups_graph *g, const char *prefix, const ups_encoder_options *o, const ups_field_shape *field,
                      const int64_t *cells, ups_value patches) {
    if (!o->stem_width) return patches;
    int64_t length = ups_shape_last(ups_graph_info(g, patches)->shape);
    ups_graph_scope(g, "%s.stem.0", prefix);
    ups_value taps = ups_neighborhood(g, patches, field->dims, cells, field->periodic);
    ups_value inner = ups_gelu(g, ups_dense(g, prefix, "stem.0", taps, o->stem_width, (ups_dense_options){0}));
    ups_value outer = ups_dense(g, prefix, "stem.1", inner, length, (ups_dense_options){.zero = true});
    return ups_residual(g, patches, outer, UPS_NO_VALUE, 0, 0);
}

static ups_value pool(ups_graph *g, const ups_encoder_options *o, ups_value x) {
    if (o->pooling == UPS_POOL_MEAN) {
        ups_graph_scope(g, "%s.pool", trunk);
        return ups_pool_tokens(g, x, o->tokens);
    }
    ups_graph_scope(g, "%s.pool", trunk);
    ups_init init = {.kind = UPS_INIT_NORMAL, .scale = 1, .no_decay = true};
    ups_value queries = ups_graph_parameter(g, "queries", UPS_SHAPE(o->tokens, o->width), init);
    queries = ups_broadcast(g, queries, ups_graph_info(g, x)->shape.size[0]);
    const ups_block_options block = {
        .heads = o->heads, .mlp_ratio = o->mlp_ratio, .qk_norm = true, .condition = UPS_NO_VALUE};
    return ups_block_cross(g, "encoder.trunk.pool", &block, queries, x);
}

ups_value ups_encoder_build(ups_graph *g, const ups_encoder_options *o, const ups_field_shape *field, ups_value values,
                            ups_value statistics) {
    char prefix[160], position[32];
    snprintf(prefix, sizeof prefix, "encoder.%s", field->task);
    snprintf(position, sizeof position, "position%dd", field->dims);
    int64_t patch[3], cells[3];
    patch_of(o, field, patch, cells);

    ups_graph_scope(g, "%s", prefix);
    ups_value x =
        ups_patchify(g, values, statistics, field->dims, field->grid, patch, field->channels, field->channels_first);
    x = stem(g, prefix, o, field, cells, x);
    x = ups_dense(g, prefix, "embed", x, o->width, (ups_dense_options){.output_f32 = true});
    x = ups_add(g, x,
                ups_position(g, trunk, position, centres(g, o, field), o->frequencies, o->frequency_count, o->width));
    x = pool(g, o, x);
    for (int i = 0; i < o->depth; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.blocks.%d", trunk, i);
        const ups_block_options block = {
            .heads = o->heads, .mlp_ratio = o->mlp_ratio, .qk_norm = true, .condition = UPS_NO_VALUE};
        x = ups_block_self(g, name, &block, x);
    }
    return ups_dense(g, trunk, "output", x, o->dim, (ups_dense_options){.output_f32 = true});
}
