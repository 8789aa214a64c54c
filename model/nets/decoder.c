/* The any-point decoder: see the header. All samples of a batch are read at the same coordinates, so features of the
 * queries are computed once and broadcast. */
#include "model/nets/decoder.h"

#include "model/nets/blocks.h"

#include <stdio.h>

static const char prefix[] = "decoder";

ups_decoder_options ups_decoder_defaults(void) {
    return (ups_decoder_options){.tokens = 128,
                                 .dim = 128,
                                 .hidden = 128,
                                 .depth = 3,
                                 .heads = 8,
                                 .mlp_ratio = 4,
                                 .frequency_count = 4,
                                 .frequencies = {1, 2, 4, 8}};
}

ups_status ups_decoder_check(const ups_decoder_options *o, ups_error *error) {
    if (o->tokens < 1 || o->dim < 1 || o->hidden < 1 || o->depth < 1 || o->heads < 1) {
        return ups_fail(error, UPS_ERR_CONFIG, "decoder: tokens, dim, hidden, depth and heads must be at least 1");
    }
    if (o->hidden % o->heads != 0) {
        return ups_fail(error, UPS_ERR_CONFIG, "decoder: hidden (%lld) must be a multiple of heads (%d)",
                        (long long)o->hidden, o->heads);
    }
    if (!(o->mlp_ratio * (float)o->hidden >= 1)) {
        return ups_fail(error, UPS_ERR_CONFIG, "decoder: mlp_ratio %g leaves the MLP without width", o->mlp_ratio);
    }
    if (o->frequency_count < 0 || o->frequency_count > UPS_MAX_FREQUENCIES) {
        return ups_fail(error, UPS_ERR_CONFIG, "decoder: %d frequencies; at most %d are possible", o->frequency_count,
                        UPS_MAX_FREQUENCIES);
    }
    return UPS_OK;
}

static ups_value positioned(ups_graph *g, const ups_decoder_options *o, ups_value latents,
                            ups_value token_coordinates) {
    if (!o->position) return latents;
    char name[32];
    snprintf(name, sizeof name, "token%dd", (int)ups_shape_last(ups_graph_info(g, token_coordinates)->shape));
    ups_value position = ups_position(g, prefix, name, token_coordinates, o->frequencies, o->frequency_count, o->dim);
    return ups_add(g, latents, position);
}

ups_value ups_decoder_build(ups_graph *g, const ups_decoder_options *o, const char *task, int64_t channels,
                            ups_value latents, ups_value coordinates, ups_value token_coordinates) {
    char name[160];
    int64_t batch = ups_graph_info(g, latents)->shape.size[0];
    latents = positioned(g, o, latents, token_coordinates);
    snprintf(name, sizeof name, "query%dd", (int)ups_shape_last(ups_graph_info(g, coordinates)->shape));
    ups_value x = ups_position(g, prefix, name, coordinates, o->frequencies, o->frequency_count, o->hidden);
    x = ups_broadcast(g, x, batch);
    for (int i = 0; i < o->depth; i++) {
        const ups_block_options block = {.heads = o->heads, .mlp_ratio = o->mlp_ratio, .qk_norm = o->qk_norm};
        snprintf(name, sizeof name, "%s.layers.%d", prefix, i);
        x = ups_block_cross(g, name, &block, x, latents);
    }
    snprintf(name, sizeof name, "%s.%s", prefix, task);
    return ups_dense(g, name, "head", x, channels, (ups_dense_options){.output_f32 = true});
}
