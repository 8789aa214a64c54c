/* Steps on the CPU: gradients are those of the function that was built, run options mean what they say, memory is what
 * was promised, and nothing is allocated once training runs. */
#include "base/random.h"
#include "model/differentiate.h"
#include "model/nets/blocks.h"
#include "model/nets/decoder.h"
#include "model/nets/encoder.h"
#include "model/nets/operator.h"
#include "model/step.h"

#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/base/skipping.h"
#include "tests/model/on_device.h"

/* Watches the C library's allocator by standing in front of it, for the whole process, libraries included. Sanitizers
 * bring their own. */
#if !defined(UPS_SANITIZED) && defined(__GLIBC__)
#define WATCHES_ALLOCATIONS 1
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_long allocations;

#define WATCH() atomic_fetch_add(&allocations, 1)

void *malloc(size_t bytes) {
    WATCH();
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
    WATCH();
    return __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes) {
    WATCH();
    return __libc_realloc(old, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) {
    WATCH();
    return __libc_memalign(alignment, bytes);
}
int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    WATCH();
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : ENOMEM;
}
#endif

static ups_device *device;
static ups_update_channel *channel;
static ups_checkpointing checkpointing; /* of the models that are built */

static int open_device(void **state) {
    return ups_device_open(&(ups_device_options){.name = "auto", .threads = 2}, &device, NULL) != UPS_OK ||
           ups_update_open(device, &channel, NULL) != UPS_OK;
}

static int close_device(void **state) {
    ups_update_close(channel);
    ups_device_close(device);
    return 0;
}

static void ok(ups_status status, const ups_error *error) {
    if (status != UPS_OK) fail_msg("%s", error->message);
}

typedef struct model {
    ups_parameters *parameters;
    ups_graph *graph;
    ups_step *step;
    ups_value loss;
} model;

static model begin(ups_dtype compute) {
    model m = {.parameters = ups_parameters_create()};
    m.graph = ups_graph_create(m.parameters, compute);
    m.graph->checkpointing = checkpointing;
    return m;
}

static void ready(model *m) {
    ups_error error;
    ok(ups_parameters_allocate(m->parameters, device, true, m->graph->compute, 3, &error), &error);
    ok(ups_step_create(m->graph, device, &m->step, &error), &error);
}

static void end(model m) {
    ups_step_destroy(m.step);
    ups_graph_destroy(m.graph);
    ups_parameters_destroy(m.parameters);
}

typedef struct settings {
    bool training, backward, accumulate;
    float share;
    uint64_t item;
} settings;

static const settings train = {.training = true, .backward = true, .share = 1};

static ups_status try_run(const model *m, settings how, ups_error *error) {
    ups_update_input input = {.seed = 5, .item = how.item, .share = how.share};
    ups_step_run_options options = {.training = how.training, .backward = how.backward, .accumulate = how.accumulate};
    options.update = ups_update_memory(channel);
    UPS_TRY(ups_update_give(channel, &input, error));
    return ups_step_run(m->step, &options, error);
}

static void run(const model *m, settings how) {
    ups_error error;
    ok(try_run(m, how, &error), &error);
}

static float loss_of(const model *m) {
    ups_error error;
    float loss;
    ok(ups_step_download(m->step, m->loss, &loss, sizeof loss, &error), &error);
    return loss;
}

static float *download(const float *flat, const ups_parameters *parameters) {
    ups_error error;
    size_t bytes = sizeof(float) * (size_t)ups_parameters_elements(parameters);
    float *host = malloc(bytes);
    ok(device->class->download(device, host, flat, bytes, &error), &error);
    return host;
}

static void upload_values(const model *m, const float *host) {
    ups_error error;
    size_t bytes = sizeof(float) * (size_t)ups_parameters_elements(m->parameters);
    ok(device->class->upload(device, ups_parameters_values(m->parameters), host, bytes, &error), &error);
    ok(ups_parameters_refresh(m->parameters, &error), &error);
    ok(device->class->synchronize(device, &error), &error); /* `host` is the caller's */
}

static void upload_random(const model *m, const char *name, uint32_t item) {
    ups_error error;
    ups_value input = ups_graph_find(m->graph, name);
    size_t elements = (size_t)ups_shape_elements(ups_graph_info(m->graph, input)->shape);
    float *values = malloc(sizeof *values * elements);
    ups_random_fill_normal(ups_random_stream(9, UPS_RANDOM_TEST, item), 1, values, elements);
    ok(ups_step_upload(m->step, input, values, sizeof *values * elements, &error), &error);
    ok(ups_step_wait_uploaded(m->step, &error), &error);
    free(values);
}

static ups_value mean_square(ups_graph *g, ups_value x, ups_value target) {
    ups_value loss = ups_loss_mse(g, x, target);
    return ups_weighted_sum(g, &loss, (float[]){1}, 1);
}

static const ups_init small = {.kind = UPS_INIT_NORMAL, .scale = 0.3f};

/* Values with several consumers, views of views, parameters used twice, slices of one value, a branch that leads
 * nowhere. */
static model tangled_model(float drop_path) {
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
    ups_scale(g, unused, 2);
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

/* (loss(p + h d) − loss(p − h d)) / 2h beside gradient · d, for random directions d of one parameter at a time. */
static void check_directions(model *m, const char *prefix, float size, double tolerance) {
    run(m, train);
    float *gradients = download(ups_parameters_gradients(m->parameters), m->parameters);
    float *values = download(ups_parameters_values(m->parameters), m->parameters);
    size_t elements = (size_t)ups_parameters_elements(m->parameters);
    float *direction = malloc(sizeof *direction * elements), *moved = malloc(sizeof *moved * elements);
    settings forward = train;
    forward.backward = false;
    int checked = 0;
    for (int32_t i = 0; i < ups_parameters_count(m->parameters); i++) {
        const ups_parameter *p = ups_parameters_get(m->parameters, i);
        if (strncmp(p->name, prefix, strlen(prefix)) != 0) continue;
        ups_random_fill_normal(ups_random_stream(4, UPS_RANDOM_TEST, (uint32_t)i), 1 / sqrtf((float)p->elements),
                               direction, (size_t)p->elements);
        double predicted = 0, sides[2];
        for (int64_t k = 0; k < p->elements; k++) predicted += (double)direction[k] * (double)gradients[p->offset + k];
        for (int side = 0; side < 2; side++) {
            memcpy(moved, values, sizeof *moved * elements);
            for (int64_t k = 0; k < p->elements; k++) moved[p->offset + k] += (side ? -size : size) * direction[k];
            upload_values(m, moved);
            run(m, forward);
            sides[side] = (double)loss_of(m);
        }
        double measured = (sides[0] - sides[1]) / (2 * (double)size);
        if (fabs(measured - predicted) > tolerance * (fabs(predicted) + 0.01)) {
            fail_msg("%s: gradient %g, measured %g", p->name, predicted, measured);
        }
        checked++;
    }
    assert_true(checked > 0);
    upload_values(m, values);
    free(moved);
    free(direction);
    free(values);
    free(gradients);
}

static void gradients_of_a_tangled_graph_are_the_slopes_of_its_loss(void **state) {
    model m = tangled_model(0);
    check_directions(&m, "", 1e-2f, 1e-2);
    end(m);
    m = tangled_model(0.4f); /* the same draw on each run, so the loss is a function still */
    check_directions(&m, "", 1e-2f, 1e-2);
    end(m);
}

static model operator_model(ups_dtype compute, ups_operator_options options, int64_t batch) {
    model m = begin(compute);
    ups_shape latents = UPS_SHAPE(batch, options.tokens, options.dim);
    ups_value z = ups_graph_input(m.graph, "z", UPS_F32, latents);
    ups_value dt = ups_graph_input(m.graph, "dt", UPS_F32, UPS_SHAPE(batch, 1));
    ups_value target = ups_graph_input(m.graph, "target", UPS_F32, latents);
    m.loss = mean_square(m.graph, ups_operator_build(m.graph, &options, z, dt, UPS_NO_VALUE, UPS_NO_VALUE), target);
    ups_graph_differentiate(m.graph, m.loss);
    ready(&m);
    upload_random(&m, "z", 0);
    upload_random(&m, "dt", 1);
    upload_random(&m, "target", 2);
    return m;
}

static ups_operator_options small_operator(void) {
    ups_operator_options options = ups_operator_defaults();
    options.tokens = 16;
    options.dim = 32;
    options.hidden = 64;
    options.depth = 3;
    return options;
}

static model autoencoder_model(ups_pooling pooling) {
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

static void gradients_of_the_autoencoder_are_the_slopes_of_its_loss(void **state) {
    model m = autoencoder_model(UPS_POOL_MEAN);
    check_directions(&m, "", 3e-2f, 2e-2);
    end(m);
    m = autoencoder_model(UPS_POOL_QUERIES);
    check_directions(&m, "", 3e-2f, 2e-2);
    end(m);
}

static void gradients_accumulate_or_are_overwritten_as_asked_and_scale_with_the_loss(void **state) {
    model m = tangled_model(0);
    size_t elements = (size_t)ups_parameters_elements(m.parameters);
    run(&m, train);
    float *once = download(ups_parameters_gradients(m.parameters), m.parameters);
    settings options = train;
    options.accumulate = true;
    options.share = 3;
    run(&m, options);
    float *four = download(ups_parameters_gradients(m.parameters), m.parameters);
    options.accumulate = false;
    run(&m, options);
    float *three = download(ups_parameters_gradients(m.parameters), m.parameters);
    double largest = 0;
    for (size_t i = 0; i < elements; i++) {
        assert_true(fabsf(four[i] - 4 * once[i]) <= 1e-5f * (fabsf(four[i]) + 0.1f));
        assert_true(fabsf(three[i] - 3 * once[i]) <= 1e-5f * (fabsf(three[i]) + 0.1f));
        largest = fmax(largest, (double)fabsf(once[i]));
    }
    assert_true(largest > 0.01);
    free(three);
    free(four);
    free(once);
    end(m);
}

static void parameters_that_the_loss_does_not_touch_keep_their_gradients(void **state) {
    ups_error error;
    model m = tangled_model(0);
    const ups_parameter *unused = ups_parameters_get(m.parameters, ups_parameters_find(m.parameters, "unused"));
    float mark[7] = {1, 2, 3, 4, 5, 6, 7}, seen[7];
    float *there = ups_parameters_gradients(m.parameters) + unused->offset;
    ok(device->class->upload(device, there, mark, sizeof mark, &error), &error);
    run(&m, train);
    ok(device->class->download(device, seen, there, sizeof seen, &error), &error);
    assert_memory_equal(seen, mark, sizeof mark);
    end(m);
}

static void a_step_run_again_gives_the_same_bits(void **state) {
    ups_operator_options options = small_operator();
    options.drop_path = 0.5f;
    model m = operator_model(UPS_BF16, options, 6);
    run(&m, train);
    float first = loss_of(&m), *gradients = download(ups_parameters_gradients(m.parameters), m.parameters);
    settings other = train;
    other.item = 1;
    run(&m, other);
    assert_true(loss_of(&m) != first); /* other branches were dropped */
    other = train;
    other.training = false;
    run(&m, other);
    assert_true(loss_of(&m) != first); /* none was */
    run(&m, train);
    float *again = download(ups_parameters_gradients(m.parameters), m.parameters);
    assert_true(loss_of(&m) == first);
    assert_memory_equal(again, gradients, sizeof(float) * (size_t)ups_parameters_elements(m.parameters));
    free(again);
    free(gradients);
    end(m);
}

typedef struct outcome {
    float loss, *gradients;
    size_t bytes, activations;
} outcome;

static outcome outcome_of(model m) {
    ups_error error;
    run(&m, train);
    outcome o = {.loss = loss_of(&m), .gradients = download(ups_parameters_gradients(m.parameters), m.parameters)};
    o.bytes = sizeof(float) * (size_t)ups_parameters_elements(m.parameters);
    o.activations = ups_step_memory(m.step).activations;
    ok(device->class->synchronize(device, &error), &error);
    end(m);
    return o;
}

static void check_checkpointing(model (*make)(void)) {
    outcome kept = outcome_of(make());
    for (int mode = UPS_CHECKPOINTING_CHEAP; mode <= UPS_CHECKPOINTING_BLOCK; mode++) {
        checkpointing = (ups_checkpointing)mode;
        outcome again = outcome_of(make());
        checkpointing = UPS_CHECKPOINTING_NONE;
        assert_true(again.activations < kept.activations);
        assert_true(again.loss == kept.loss);
        assert_memory_equal(again.gradients, kept.gradients, kept.bytes);
        free(again.gradients);
    }
    free(kept.gradients);
}

static model dropping_operator_f32(void) {
    ups_operator_options options = small_operator();
    options.drop_path = 0.5f;
    return operator_model(UPS_F32, options, 6);
}

static model dropping_operator_bf16(void) {
    ups_operator_options options = small_operator();
    options.drop_path = 0.5f;
    return operator_model(UPS_BF16, options, 6);
}

static model query_autoencoder(void) {
    return autoencoder_model(UPS_POOL_QUERIES);
}

/* Drop-path draws the same numbers again. */
static void recomputed_activations_give_the_same_bits_in_less_memory(void **state) {
    check_checkpointing(dropping_operator_f32);
    check_checkpointing(dropping_operator_bf16);
    check_checkpointing(query_autoencoder);
}

static void check_reduced_gradients(ups_dtype compute, double loss_within, double cosine) {
    model f32 = operator_model(UPS_F32, small_operator(), 4), reduced = operator_model(compute, small_operator(), 4);
    run(&f32, train);
    run(&reduced, train);
    assert_true(fabs((double)(loss_of(&f32) - loss_of(&reduced))) < loss_within * (double)loss_of(&f32));
    float *a = download(ups_parameters_gradients(f32.parameters), f32.parameters);
    float *b = download(ups_parameters_gradients(reduced.parameters), reduced.parameters);
    double aa = 0, ab = 0, bb = 0;
    for (int64_t i = 0; i < ups_parameters_elements(f32.parameters); i++) {
        aa += (double)a[i] * (double)a[i];
        ab += (double)a[i] * (double)b[i];
        bb += (double)b[i] * (double)b[i];
    }
    assert_true(ab / sqrt(aa * bb) > cosine);
    assert_true(memcmp(a, b, sizeof *a * (size_t)ups_parameters_elements(f32.parameters)) != 0);
    free(b);
    free(a);
    end(reduced);
    end(f32);
}

static void gradients_of_reduced_precision_point_where_float32_gradients_do(void **state) {
    check_reduced_gradients(UPS_BF16, 0.01, 0.999);
    check_reduced_gradients(UPS_F16, 0.001, 0.99999);
}

/* The weights of `from`, in buffers of their own: all, or [offset, offset + count). */
static ups_weights copy_weights(const model *from, int64_t offset, int64_t count, bool gradients) {
    ups_error error;
    ups_weights weights;
    ok(ups_weights_allocate(device, offset, count, from->graph->compute, gradients, &weights, &error), &error);
    float *host = download(ups_parameters_values(from->parameters), from->parameters);
    ok(device->class->upload(device, weights.values, host + offset, sizeof *host * (size_t)count, &error), &error);
    ok(ups_weights_refresh(device, &weights, &error), &error);
    ok(device->class->synchronize(device, &error), &error);
    free(host);
    return weights;
}

/* `averaged` lends its values: a run with them is a run of that model, and the way back is exact, too. */
static void a_step_bound_to_other_weights_gives_the_bits_of_a_model_that_has_them(void **state) {
    static const ups_dtype computes[] = {UPS_F32, UPS_BF16, UPS_F16};
    settings forward = train;
    forward.backward = false;
    for (int i = 0; i < 3; i++) {
        ups_error error;
        model m = operator_model(computes[i], small_operator(), 4),
              other = operator_model(computes[i], small_operator(), 4);
        int64_t elements = ups_parameters_elements(m.parameters);
        float *values = download(ups_parameters_values(m.parameters), m.parameters);
        for (int64_t e = 0; e < elements; e++) values[e] *= 0.75f;
        upload_values(&other, values);
        run(&m, train);
        float own = loss_of(&m), *own_gradients = download(ups_parameters_gradients(m.parameters), m.parameters);
        run(&other, train);
        float *expected = download(ups_parameters_gradients(other.parameters), other.parameters);

        ups_weights average = copy_weights(&other, 0, elements, false),
                    teacher = copy_weights(&other, 0, elements, true);
        ok(ups_step_bind(m.step, &average, &error), &error);
        run(&m, forward);
        assert_true(loss_of(&m) == loss_of(&other) && loss_of(&m) != own);
        assert_int_equal(try_run(&m, train, &error), UPS_ERR_ARGUMENT);
        assert_non_null(strstr(error.message, "weights that have no gradients"));
        ok(ups_step_bind(m.step, &teacher, &error), &error);
        run(&m, train);
        float *taught = download(teacher.gradients, m.parameters);
        float *kept = download(ups_parameters_gradients(m.parameters), m.parameters);
        assert_memory_equal(taught, expected, sizeof *expected * (size_t)elements);
        assert_memory_equal(kept, own_gradients, sizeof *own_gradients * (size_t)elements);
        free(taught), free(kept);
        ok(ups_step_bind(m.step, ups_parameters_weights(m.parameters), &error), &error);
        run(&m, train);
        assert_true(loss_of(&m) == own);
        ups_weights_release(device, &average);
        ups_weights_release(device, &teacher);
        free(expected), free(own_gradients), free(values);
        end(other);
        end(m);
    }
}

static void a_step_runs_on_a_slice_that_holds_its_parameters_and_refuses_another(void **state) {
    ups_error error;
    model m = begin(UPS_BF16);
    ups_value x = ups_graph_input(m.graph, "x", UPS_F32, UPS_SHAPE(2, 4));
    ups_parameters_add(m.parameters, "elsewhere", 1, (int64_t[]){100}, (ups_init){.kind = UPS_INIT_ONES});
    ups_value w = ups_graph_parameter(m.graph, "w", UPS_SHAPE(4, 4), small);
    ups_parameters_add(m.parameters, "behind", 1, (int64_t[]){100}, (ups_init){.kind = UPS_INIT_ONES});
    m.loss = mean_square(m.graph, ups_linear(m.graph, x, w, UPS_NO_VALUE, true), x);
    ups_graph_differentiate(m.graph, m.loss);
    ready(&m);
    upload_random(&m, "x", 1);
    run(&m, train);
    float expected = loss_of(&m);
    const ups_parameter *p = ups_parameters_get(m.parameters, ups_parameters_find(m.parameters, "w"));
    assert_true(p->offset > 0);
    ups_weights slice = copy_weights(&m, p->offset, p->elements, true), off = slice, f32 = slice;
    ok(ups_step_bind(m.step, &slice, &error), &error);
    run(&m, train);
    assert_true(loss_of(&m) == expected);
    const size_t bytes = sizeof(float) * (size_t)p->elements;
    float *sliced = read_device(device, slice.gradients, bytes);
    float *whole = read_device(device, ups_parameters_gradients(m.parameters) + p->offset, bytes);
    assert_memory_equal(sliced, whole, bytes);
    free(sliced), free(whole);
    off.count--;
    assert_int_equal(ups_step_bind(m.step, &off, &error), UPS_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "'w' lies outside"));
    f32.compute = NULL;
    assert_int_equal(ups_step_bind(m.step, &f32, &error), UPS_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "no bfloat16 copy"));
    run(&m, train); /* still bound as before */
    assert_true(loss_of(&m) == expected);
    ups_weights_release(device, &slice);
    end(m);
}

static void nothing_is_allocated_after_the_first_step(void **state) {
#ifndef WATCHES_ALLOCATIONS
    skip_because("a sanitizer's allocator, or one that is not glibc's, cannot be watched");
#else
    if (strcmp(device->class->name, "cpu") != 0) skip_because("the test's own device allocates its queue");
    enum { STEPS = 10 };
    ups_dtype computes[] = {UPS_F32, UPS_BF16, UPS_F16};
    for (int i = 0; i < 3; i++) {
        model m = operator_model(computes[i], small_operator(), 4);
        run(&m, train);
        size_t in_use = mallinfo2().uordblks + mallinfo2().hblkhd;
        long before = atomic_load(&allocations);
        assert_true(before > 0); /* it does watch */
        for (int k = 0; k < STEPS; k++) run(&m, train);
        assert_int_equal(atomic_load(&allocations), before);
        assert_true(mallinfo2().uordblks + mallinfo2().hblkhd <= in_use);
        end(m);
    }
#endif
}

static void the_memory_of_a_step_is_known_before_it_is_created(void **state) {
    ups_error error;
    model m = begin(UPS_BF16);
    ups_operator_options options = small_operator();
    ups_shape latents = UPS_SHAPE(4, options.tokens, options.dim);
    ups_value z = ups_graph_input(m.graph, "z", UPS_F32, latents);
    ups_value dt = ups_graph_input(m.graph, "dt", UPS_F32, UPS_SHAPE(4, 1));
    ups_value target = ups_graph_input(m.graph, "target", UPS_F32, latents);
    m.loss = mean_square(m.graph, ups_operator_build(m.graph, &options, z, dt, UPS_NO_VALUE, UPS_NO_VALUE), target);
    ups_graph_differentiate(m.graph, m.loss);
    ups_plan_memory promised, taken;
    ok(ups_step_measure(m.graph, device, &promised, &error), &error);
    ready(&m);
    taken = ups_step_memory(m.step);
    assert_memory_equal(&promised, &taken, sizeof taken);
    assert_int_equal(taken.inputs, (size_t)device->class->input_sets * (2 * sizeof(float) * 4 * 16 * 32 + 64));
    assert_int_equal(taken.parameters, 10 * (size_t)ups_parameters_elements(m.parameters));
    assert_true(taken.activations > 0 && taken.lower_bound <= taken.activations);
    end(m);
}

/* A step, with the inputs it has in operator_model; its loss. */
static float run_again(model m, ups_step *step) {
    m.step = step;
    upload_random(&m, "z", 0);
    upload_random(&m, "dt", 1);
    upload_random(&m, "target", 2);
    run(&m, train);
    return loss_of(&m);
}

static void steps_made_together_share_the_largest_arena_and_give_the_bits_they_give_alone(void **state) {
    ups_error error;
    ups_operator_options deeper = small_operator();
    deeper.depth = 5;
    model one = operator_model(UPS_BF16, small_operator(), 6), other = operator_model(UPS_BF16, deeper, 4);
    run(&one, train);
    run(&other, train);
    float loss = loss_of(&one), other_loss = loss_of(&other);
    const ups_graph *graphs[] = {one.graph, other.graph};
    ups_step *steps[2];
    ups_plan_memory both, a = ups_step_memory(one.step), b = ups_step_memory(other.step);
    ok(ups_step_measure_together(graphs, 2, device, &both, &error), &error);
    assert_int_equal(both.activations, a.activations > b.activations ? a.activations : b.activations);
    assert_int_equal(both.workspace, a.workspace > b.workspace ? a.workspace : b.workspace);
    assert_int_equal(both.inputs, a.inputs + b.inputs);
    ok(ups_step_create_together(graphs, 2, device, steps, &error), &error);
    for (int turn = 0; turn < 2; turn++) {
        assert_true(run_again(one, steps[0]) == loss);
        assert_true(run_again(other, steps[1]) == other_loss);
    }
    ups_step_destroy(steps[0]);
    assert_true(run_again(other, steps[1]) == other_loss);
    ups_step_destroy(steps[1]);
    end(one);
    end(other);
}

static void values_that_are_not_kept_cannot_be_read(void **state) {
    ups_error error;
    model m = tangled_model(0);
    float host[72];
    ups_value first = m.graph->nodes[0].output;
    assert_int_equal(ups_step_download(m.step, first, host, sizeof host, &error), UPS_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "not kept"));
    assert_null(ups_step_data(m.step, first));
    assert_non_null(ups_step_data(m.step, m.loss));
    assert_int_equal(ups_step_upload(m.step, first, host, sizeof host, &error), UPS_ERR_ARGUMENT);
    ups_value x = ups_graph_find(m.graph, "x");
    assert_int_equal(ups_step_upload(m.step, x, host, sizeof host - 4, &error), UPS_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "'x' has 288 bytes; 284 were given"));
    end(m);
}

static void steps_that_cannot_be_are_refused_with_the_reason(void **state) {
    ups_error error;
    ups_step *step;
    model m = begin(UPS_BF16);
    ups_graph *g = m.graph;
    ups_value x = ups_graph_input(g, "x", UPS_F32, UPS_SHAPE(2, 4));
    ups_value w = ups_graph_parameter(g, "w", UPS_SHAPE(4, 4), small);
    m.loss = mean_square(g, ups_linear(g, x, w, UPS_NO_VALUE, true), x);
    assert_int_equal(ups_step_create(g, device, &step, &error), UPS_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "must be allocated"));
    assert_null(step);
    ok(ups_parameters_allocate(m.parameters, device, false, UPS_F32, 1, &error), &error);
    assert_int_equal(ups_step_create(g, device, &step, &error), UPS_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "no bfloat16 copy"));
    ups_graph_differentiate(g, m.loss);
    assert_int_equal(ups_step_create(g, device, &step, &error), UPS_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "gradients"));
    end(m);

    m = begin(UPS_F32);
    ups_value y = ups_gelu(m.graph, ups_graph_input(m.graph, "x", UPS_F32, UPS_SHAPE(2, 4)));
    ups_graph_keep(m.graph, y);
    ready(&m);
    assert_int_equal(try_run(&m, train, &error), UPS_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "not differentiated"));
    assert_int_equal(ups_step_run(m.step, &(ups_step_run_options){.training = true}, &error), UPS_ERR_ARGUMENT);
    assert_non_null(strstr(error.message, "needs an update"));
    end(m);
}

static void a_profile_has_time_in_the_ops_that_ran_and_in_no_others(void **state) {
    model m = operator_model(UPS_F32, small_operator(), 2);
    ups_step_profile_enable(m.step, true);
    run(&m, train);
    ups_step_profile profile = ups_step_profile_get(m.step);
    assert_true(profile.forward[UPS_OP_LINEAR] > 0 && profile.backward[UPS_OP_LINEAR] > 0);
    assert_true(profile.forward[UPS_OP_ATTENTION] > 0 && profile.backward[UPS_OP_ATTENTION] > 0);
    assert_true(profile.forward[UPS_OP_PATCHIFY] == 0 && profile.backward[UPS_OP_PATCHIFY] == 0);
    end(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_a_tangled_graph_are_the_slopes_of_its_loss),
        cmocka_unit_test(gradients_of_the_autoencoder_are_the_slopes_of_its_loss),
        cmocka_unit_test(gradients_accumulate_or_are_overwritten_as_asked_and_scale_with_the_loss),
        cmocka_unit_test(parameters_that_the_loss_does_not_touch_keep_their_gradients),
        cmocka_unit_test(a_step_run_again_gives_the_same_bits),
        cmocka_unit_test(recomputed_activations_give_the_same_bits_in_less_memory),
        cmocka_unit_test(gradients_of_reduced_precision_point_where_float32_gradients_do),
        cmocka_unit_test(a_step_bound_to_other_weights_gives_the_bits_of_a_model_that_has_them),
        cmocka_unit_test(a_step_runs_on_a_slice_that_holds_its_parameters_and_refuses_another),
        cmocka_unit_test(nothing_is_allocated_after_the_first_step),
        cmocka_unit_test(the_memory_of_a_step_is_known_before_it_is_created),
        cmocka_unit_test(steps_made_together_share_the_largest_arena_and_give_the_bits_they_give_alone),
        cmocka_unit_test(values_that_are_not_kept_cannot_be_read),
        cmocka_unit_test(steps_that_cannot_be_are_refused_with_the_reason),
        cmocka_unit_test(a_profile_has_time_in_the_ops_that_ran_and_in_no_others),
    };
    return cmocka_run_group_tests_name("step", tests, open_device, close_device);
}
