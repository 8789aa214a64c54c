#include "tests/model/step_models.h"
#include "base/random.h"
#include "model/devices/devices.h"
#include "model/differentiate.h"
#include "model/nets/blocks.h"
#include "model/nets/decoder.h"
#include "model/update_channel.h"
#include "tests/model/claims.h"

#include <math.h>

ups_device *device;
static ups_update_channel *channel;
ups_checkpointing checkpointing;

int open_device(void **state) {
    return ups_device_open(&(ups_device_options){.name = "auto", .threads = 2}, &device, NULL) != UPS_OK ||
           ups_update_open(device, &channel, NULL) != UPS_OK;
}

int close_device(void **state) {
    ups_update_close(channel);
    ups_device_close(device);
    return 0;
}

model begin(ups_dtype compute) {
    model m = {.parameters = ups_parameters_create()};
    m.graph = ups_graph_create(m.parameters, compute);
    m.graph->checkpointing = checkpointing;
    return m;
}

void ready(model *m) {
    ok(ups_parameters_allocate(m->parameters, device, true, m->graph->compute, 3, &failure));
    ok(ups_step_create(m->graph, device, &m->step, &failure));
}

void end(model m) {
    ups_step_destroy(m.step);
    ups_graph_destroy(m.graph);
    ups_parameters_destroy(m.parameters);
}

ups_status try_run(const model *m, settings how, ups_error *error) {
    ups_update_input input = {.seed = 5, .item = how.item, .share = how.share};
    ups_step_run_options options = {
        .training = how.training, .backward = how.backward, .accumulate = how.accumulate, .watch = how.watch};
    options.update = ups_update_memory(channel);
    UPS_TRY(ups_update_give(channel, &input, error));
    return ups_step_run(m->step, &options, error);
}

void run(const model *m, settings how) {
    ok(try_run(m, how, &failure));
}

float loss_of(const model *m) {
    float loss;
    ok(ups_step_download(m->step, m->loss, &loss, sizeof loss, &failure));
    return loss;
}

static size_t bytes_of(const model *m) {
    return sizeof(float) * (size_t)ups_parameters_elements(m->parameters);
}

float *gradients_of(const model *m) {
    return read_device(device, ups_parameters_gradients(m->parameters), bytes_of(m));
}

float *values_of(const model *m) {
    return read_device(device, ups_parameters_values(m->parameters), bytes_of(m));
}

void upload_values(const model *m, const float *host) {
    write_device(device, ups_parameters_values(m->parameters), host, bytes_of(m));
    ok(ups_parameters_refresh(m->parameters, &failure));
}

void upload_random(const model *m, const char *name, uint32_t item) {
    ups_value input = ups_graph_find(m->graph, name);
    size_t elements = (size_t)ups_shape_elements(ups_graph_info(m->graph, input)->shape);
    float *values = malloc(sizeof *values * elements);
    ups_random_fill_normal(ups_random_stream(9, UPS_RANDOM_TEST, item), 1, values, elements);
    ok(ups_step_upload(m->step, input, values, sizeof *values * elements, &failure));
    ok(ups_step_wait_uploaded(m->step, &failure));
    free(values);
}

float *evaluate(const model *m, ups_value kept, uint32_t draw) {
    ups_step *step;
    if (!ups_parameters_allocated(m->parameters)) {
        ok(ups_parameters_allocate(m->parameters, device, false, UPS_F32, 11, &failure));
    }
    ok(ups_step_create(m->graph, device, &step, &failure));
    for (ups_value v = 0; v < m->graph->value_count; v++) {
        const ups_value_info *info = ups_graph_info(m->graph, v);
        if (info->kind != UPS_VALUE_INPUT) continue;
        size_t elements = (size_t)ups_shape_elements(info->shape);
        float *values = malloc(sizeof *values * elements);
        ups_random_fill_normal(ups_random_stream(draw, UPS_RANDOM_TEST, (uint32_t)info->name[0]), 1, values, elements);
        ok(ups_step_upload(step, v, values, sizeof *values * elements, &failure));
        free(values);
    }
    ok(ups_step_run(step, &(ups_step_run_options){0}, &failure));
    size_t bytes = sizeof(float) * (size_t)ups_shape_elements(ups_graph_info(m->graph, kept)->shape);
    float *out = malloc(bytes);
    ok(ups_step_download(step, kept, out, bytes, &failure));
    ups_step_destroy(step);
    return out;
}

double difference(const float *a, const float *b, int64_t count) {
    double apart = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        apart += (double)(a[i] - b[i]) * (double)(a[i] - b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(apart / size);
}

ups_value float_input(model *m, const char *name, ups_shape shape) {
    return ups_graph_input(m->graph, name, UPS_F32, shape);
}

void randomise(const model *m, const char *name) {
    const ups_parameter *p = ups_parameters_get(m->parameters, ups_parameters_find(m->parameters, name));
    float *values = malloc(sizeof *values * (size_t)p->elements);
    ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, 77), 0.2f, values, (size_t)p->elements);
    ok(device->class->upload(device, ups_parameters_values(m->parameters) + p->offset, values,
                             sizeof *values * (size_t)p->elements, &failure));
    free(values);
}

ups_value mean_square(ups_graph *g, ups_value x, ups_value target) {
    ups_value loss = ups_loss_mse(g, x, target);
    return ups_weighted_sum(g, &loss, (float[]){1}, 1);
}

model tangled_model(float drop_path) {
    model m = begin(UPS_F32);
    ups_graph *g = m.graph;
    const ups_value none = UPS_NO_VALUE;
    ups_value x = ups_graph_input(g, "x", UPS_F32, UPS_SHAPE(3, 4, 6));
    ups_value w = ups_graph_parameter(g, "w", UPS_SHAPE(6, 6), small);
    ups_value b = ups_graph_parameter(g, "b", UPS_SHAPE(6), small);
    ups_value wide = ups_graph_parameter(g, "wide", UPS_SHAPE(18, 6), small);
    ups_value gain = ups_graph_parameter(g, "gain", UPS_SHAPE(6), small);
    ups_value unused = ups_graph_parameter(g, "unused", UPS_SHAPE(7), small);
    ups_value h = ups_linear(g, x, w, b, false);
    ups_value again = ups_linear(g, ups_gelu(g, h), w, b, false);
    ups_value flat = ups_graph_reshape(g, ups_graph_reshape(g, h, UPS_SHAPE(3, 24)), UPS_SHAPE(12, 6));
    ups_value normed = ups_graph_reshape(g, ups_layer_norm(g, flat, gain, none, true), UPS_SHAPE(3, 4, 6));
    ups_value attended = ups_attention(g, ups_linear(g, normed, wide, none, false), none, none, none, 2);
    h = ups_residual(g, h, attended, none, drop_path, 0);
    ups_value condition = ups_linear(g, ups_select_frame(g, again, 2), wide, none, false);
    ups_value modulated = ups_modulate(g, h, ups_slice(g, condition, 0, 6), ups_slice(g, condition, 6, 6));
    h = ups_residual(g, h, modulated, ups_slice(g, condition, 12, 6), 0, 1);
    ups_scale(g, unused, 2, UPS_NO_VALUE);
    ups_silu(g, ups_add(g, h, b)); /* leads nowhere */
    ups_value table = ups_broadcast(g, ups_slice(g, ups_graph_reshape(g, wide, UPS_SHAPE(3, 36)), 3, 6), 3);
    ups_value pooled = ups_add(g, ups_pool_tokens(g, ups_add(g, h, again), 3), table);
    m.loss = mean_square(g, pooled, ups_graph_input(g, "target", UPS_F32, UPS_SHAPE(3, 3, 6)));
    ups_graph_differentiate(g, m.loss);
    ready(&m);
    upload_random(&m, "x", 0);
    upload_random(&m, "target", 1);
    return m;
}

model operator_graph(ups_dtype compute, ups_operator_options options, int64_t batch) {
    model m = begin(compute);
    ups_shape latents = UPS_SHAPE(batch, options.tokens, options.dim);
    ups_value z = ups_graph_input(m.graph, "z", UPS_F32, latents);
    ups_value dt = ups_graph_input(m.graph, "dt", UPS_F32, UPS_SHAPE(batch, 1));
    ups_value target = ups_graph_input(m.graph, "target", UPS_F32, latents);
    m.loss = mean_square(m.graph, ups_operator_build(m.graph, &options, z, dt, UPS_NO_VALUE, UPS_NO_VALUE), target);
    ups_graph_differentiate(m.graph, m.loss);
    return m;
}

void upload_operator(const model *m) {
    upload_random(m, "z", 0);
    upload_random(m, "dt", 1);
    upload_random(m, "target", 2);
}

model operator_model(ups_dtype compute, ups_operator_options options, int64_t batch) {
    model m = operator_graph(compute, options, batch);
    ready(&m);
    upload_operator(&m);
    return m;
}

ups_operator_options small_operator(void) {
    ups_operator_options options = ups_operator_defaults();
    options.tokens = 16;
    options.dim = 32;
    options.hidden = 64;
    options.depth = 3;
    return options;
}

model autoencoder_model(ups_pooling pooling) {
    enum { BATCH = 3, POINTS = 12 * 10, QUERIES = 20 };
    model m = begin(UPS_F32);
    ups_encoder_options encoder = ups_encoder_defaults();
    ups_decoder_options decoder = ups_decoder_defaults();
    encoder.patch[0] = encoder.patch[1] = 4;
    encoder.width = 32, encoder.stem_width = 16, encoder.tokens = 6, encoder.dim = 16, encoder.depth = 1;
    encoder.pooling = pooling;
    decoder.tokens = 6, decoder.dim = 16, decoder.hidden = 32, decoder.depth = 2, decoder.position = true;
    decoder.qk_norm = true;
    ups_field_shape shape = {
        .task = "flow", .dims = 2, .grid = {12, 10}, .channels = 2, .channels_first = true, .periodic = true};
    float at[POINTS * 2], centres[6 * 2];
    ups_grid_coordinates(2, shape.grid, at);
    ups_encoder_token_coordinates(&encoder, &shape, centres);
    int32_t points[QUERIES];
    float coordinates[QUERIES * 2];
    for (int i = 0; i < QUERIES; i++) {
        points[i] = i * 37 % POINTS;
        memcpy(coordinates + 2 * i, at + 2 * points[i], 2 * sizeof *at);
    }
    const float statistics[] = {0.1f, 1.5f, -0.2f, 0.7f};
    ups_graph *g = m.graph;
    ups_value field = ups_graph_input(g, "field", UPS_F32, UPS_SHAPE(BATCH, 2 * POINTS));
    ups_value norms = ups_graph_constant(g, "statistics", UPS_F32, UPS_SHAPE(2, 2), statistics);
    ups_value index = ups_graph_constant(g, "index", UPS_I32, UPS_SHAPE(QUERIES), points);
    ups_value where = ups_graph_constant(g, "coordinates", UPS_F32, UPS_SHAPE(QUERIES, 2), coordinates);
    ups_value tokens = ups_graph_constant(g, "tokens", UPS_F32, UPS_SHAPE(6, 2), centres);
    ups_value z = ups_encoder_build(g, &encoder, &shape, field, norms);
    ups_value read = ups_decoder_build(g, &decoder, "flow", 2, z, where, tokens);
    ups_value losses[] = {ups_loss_relative(g, read, ups_gather_points(g, field, index, norms, 2, true)),
                          ups_loss_mse(g, z, ups_graph_input(g, "z", UPS_F32, UPS_SHAPE(BATCH, 6, 16)))};
    m.loss = ups_weighted_sum(g, losses, (float[]){1, 0.1f}, 2);
    ups_graph_differentiate(g, m.loss);
    ready(&m);
    upload_random(&m, "field", 0);
    upload_random(&m, "z", 1);
    return m;
}
