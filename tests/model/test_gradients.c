/* Gradients of whole graphs on the CPU: those of the function that was built, whatever it is computed with. */
#include "base/random.h"
#include "model/differentiate.h"
#include "model/nets/blocks.h"
#include "model/nets/decoder.h"
#include "tests/model/claims.h"
#include "tests/model/step_models.h"

#include <math.h>

/* (loss(p + h d) − loss(p − h d)) / 2h beside gradient · d, for random directions d of one parameter at a time. */
static void check_directions(model *m, const char *prefix, float size, double tolerance) {
    run(m, train);
    float *gradients = gradients_of(m);
    float *values = values_of(m);
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
        if (!(fabs(measured - predicted) <= tolerance * (fabs(predicted) + 0.01))) { /* a NaN, too */
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

CLAIM(gradients_of_a_tangled_graph_are_the_slopes_of_its_loss) {
    model m = tangled_model(0);
    check_directions(&m, "", 1e-2f, 1e-2);
    end(m);
    m = tangled_model(0.4f); /* the same draw on each run, so the loss is a function still */
    check_directions(&m, "", 1e-2f, 1e-2);
    end(m);
}

CLAIM(gradients_of_the_autoencoder_are_the_slopes_of_its_loss) {
    model m = autoencoder_model(UPS_POOL_MEAN);
    check_directions(&m, "", 3e-2f, 2e-2);
    end(m);
    m = autoencoder_model(UPS_POOL_QUERIES);
    check_directions(&m, "", 3e-2f, 2e-2);
    end(m);
}

/* Latents of a field beside those of what they are decoded to, at every point of the grid: its gradient comes by both.
 */
static model inverse_encoding_model(void) {
    enum { BATCH = 2, POINTS = 8 * 6, CHANNELS = 2, TOKENS = 4 };
    model m = begin(UPS_F32);
    ups_graph *g = m.graph;
    ups_encoder_options encoder = ups_encoder_defaults();
    ups_decoder_options decoder = ups_decoder_defaults();
    encoder.patch[0] = encoder.patch[1] = 2;
    encoder.width = encoder.stem_width = 16, encoder.tokens = TOKENS, encoder.dim = 8, encoder.depth = 1;
    decoder.tokens = TOKENS, decoder.dim = 8, decoder.hidden = 16, decoder.depth = 1, decoder.position = true;
    ups_field_shape stored = {
        .task = "flow", .dims = 2, .grid = {8, 6}, .channels = CHANNELS, .channels_first = true, .periodic = true};
    ups_field_shape decoded = stored;
    decoded.channels_first = false;
    float at[POINTS * 2], centres[TOKENS * 2];
    ups_grid_coordinates(2, stored.grid, at);
    ups_encoder_token_coordinates(&encoder, &stored, centres);
    const float statistics[] = {0.1f, 1.5f, -0.2f, 0.7f};
    ups_value field = ups_graph_input(g, "field", UPS_F32, UPS_SHAPE(BATCH, POINTS * CHANNELS));
    ups_value norms = ups_graph_constant(g, "statistics", UPS_F32, UPS_SHAPE(CHANNELS, 2), statistics);
    ups_value everywhere = ups_graph_constant(g, "coordinates", UPS_F32, UPS_SHAPE(POINTS, 2), at);
    ups_value tokens = ups_graph_constant(g, "tokens", UPS_F32, UPS_SHAPE(TOKENS, 2), centres);
    ups_value z = ups_encoder_build(g, &encoder, &stored, field, norms);
    ups_value read = ups_decoder_build(g, &decoder, "flow", CHANNELS, z, everywhere, tokens);
    read = ups_graph_reshape(g, read, UPS_SHAPE(BATCH, POINTS * CHANNELS));
    m.loss = mean_square(g, ups_encoder_build(g, &encoder, &decoded, read, UPS_NO_VALUE), z);
    ups_graph_differentiate(g, m.loss);
    ready(&m);
    upload_random(&m, "field", 0);
    return m;
}

CLAIM(gradients_of_inverse_encoding_are_the_slopes_of_its_loss) {
    model m = inverse_encoding_model();
    check_directions(&m, "", 1e-3f, 2e-2);
    end(m);
}

/* Three applications on a grid, each of three frames from the three before; all weights random, zeros too. */
static model rolling_model(const char *core, int history, int bundle) {
    enum { BATCH = 2, APPLICATIONS = 3, MOST = 16 };
    model m = begin(UPS_F32);
    ups_operator_options o = ups_operator_defaults();
    o.core = core;
    o.grid = (ups_token_grid){.task = "wave", .dims = 1, .cells = {6}, .periodic = true};
    o.tokens = 6, o.dim = 4, o.hidden = 16, o.depth = 2, o.heads = 2, o.modes[0] = 3, o.drop_path = 0;
    o.history = history, o.bundle = bundle;
    ups_shape latents = UPS_SHAPE(BATCH, o.tokens, o.dim);
    ups_value given[UPS_MAX_HISTORY], states[MOST], losses[MOST], dt;
    float weights[MOST];
    char name[16];
    for (int i = 0; i < history; i++) {
        snprintf(name, sizeof name, "z%d", i);
        given[i] = ups_graph_input(m.graph, name, UPS_F32, latents);
    }
    dt = ups_graph_input(m.graph, "dt", UPS_F32, UPS_SHAPE(BATCH, 1));
    ups_operator_rollout(m.graph, &o, given, dt, UPS_NO_VALUE, UPS_NO_VALUE, APPLICATIONS, states);
    const int last = APPLICATIONS * bundle;
    ups_value target = ups_graph_input(m.graph, "target", UPS_F32, latents);
    for (int k = 0; k < bundle; k++) { /* of the last application: all of it comes through the ones before */
        losses[k] = ups_loss_mse(m.graph, states[last - bundle + k], target);
        weights[k] = 1 / (float)bundle;
    }
    m.loss = ups_weighted_sum(m.graph, losses, weights, bundle);
    ups_graph_differentiate(m.graph, m.loss);
    ready(&m);
    float *values = values_of(&m);
    for (int32_t i = 0; i < ups_parameters_count(m.parameters); i++) {
        const ups_parameter *p = ups_parameters_get(m.parameters, i);
        if (p->rank < 2) continue; /* gains, scales */
        ups_random_fill_normal(ups_random_stream(6, UPS_RANDOM_TEST, (uint32_t)i), 0.5f / sqrtf((float)p->size[1]),
                               values + p->offset, (size_t)p->elements);
    }
    upload_values(&m, values);
    free(values);
    for (int i = 0; i < history; i++) {
        snprintf(name, sizeof name, "z%d", i);
        upload_random(&m, name, (uint32_t)(10 + i));
    }
    upload_random(&m, "dt", 1);
    upload_random(&m, "target", 2);
    return m;
}

CLAIM(gradients_through_applications_that_read_and_give_several_frames_are_the_slopes_of_the_loss) {
    static const struct {
        const char *core;
        int history, bundle;
    } list[] = {{"spectral", 3, 3}, {"spectral", 4, 2}, {"stack", 2, 5}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        model m = rolling_model(list[i].core, list[i].history, list[i].bundle);
        static const char *const parts[] = {"operator.blocks",       "operator.wave.input", "operator.wave.output",
                                            "operator.wave.earlier", "operator.wave.skip",  "operator.wave.trend",
                                            "operator.norm"};
        for (size_t part = 0; part < sizeof parts / sizeof *parts; part++)
            check_directions(&m, parts[part], 1e-2f, 2e-2);
        end(m);
    }
}

CLAIM(gradients_accumulate_or_are_overwritten_as_asked_and_scale_with_the_loss) {
    model m = tangled_model(0);
    size_t elements = (size_t)ups_parameters_elements(m.parameters);
    run(&m, train);
    float *once = gradients_of(&m);
    settings options = train;
    options.accumulate = true;
    options.share = 3;
    run(&m, options);
    float *four = gradients_of(&m);
    options.accumulate = false;
    run(&m, options);
    float *three = gradients_of(&m);
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

CLAIM(parameters_that_the_loss_does_not_touch_keep_their_gradients) {
    model m = tangled_model(0);
    const ups_parameter *unused = ups_parameters_get(m.parameters, ups_parameters_find(m.parameters, "unused"));
    float mark[7] = {1, 2, 3, 4, 5, 6, 7}, seen[7];
    float *there = ups_parameters_gradients(m.parameters) + unused->offset;
    ok(device->class->upload(device, there, mark, sizeof mark, &failure));
    run(&m, train);
    ok(device->class->download(device, seen, there, sizeof seen, &failure));
    assert_memory_equal(seen, mark, sizeof mark);
    end(m);
}

typedef struct outcome {
    float loss, *gradients;
    size_t bytes, activations;
} outcome;

static outcome outcome_of(model m) {
    run(&m, train);
    outcome o = {.loss = loss_of(&m), .gradients = gradients_of(&m)};
    o.bytes = sizeof(float) * (size_t)ups_parameters_elements(m.parameters);
    o.activations = ups_step_memory(m.step).activations;
    end(m);
    return o;
}

static void check_checkpointing(model (*make)(ups_dtype), ups_dtype compute) {
    outcome kept = outcome_of(make(compute));
    for (int mode = UPS_CHECKPOINTING_CHEAP; mode <= UPS_CHECKPOINTING_BLOCK; mode++) {
        checkpointing = (ups_checkpointing)mode;
        outcome again = outcome_of(make(compute));
        checkpointing = UPS_CHECKPOINTING_NONE;
        assert_true(again.activations < kept.activations);
        assert_true(again.loss == kept.loss);
        assert_memory_equal(again.gradients, kept.gradients, kept.bytes);
        free(again.gradients);
    }
    free(kept.gradients);
}

static model dropping_operator(ups_dtype compute) {
    ups_operator_options options = small_operator();
    options.drop_path = 0.5f;
    return operator_model(compute, options, 6);
}

static model query_autoencoder(ups_dtype compute) {
    return autoencoder_model(UPS_POOL_QUERIES);
}

/* Drop-path draws the same numbers again. */
CLAIM(recomputed_activations_give_the_same_bits_in_less_memory) {
    check_checkpointing(dropping_operator, UPS_F32);
    check_checkpointing(dropping_operator, UPS_BF16);
    check_checkpointing(query_autoencoder, UPS_F32);
}

static void check_reduced_gradients(ups_dtype compute, double loss_within, double cosine) {
    model f32 = operator_model(UPS_F32, small_operator(), 4), reduced = operator_model(compute, small_operator(), 4);
    run(&f32, train);
    run(&reduced, train);
    assert_true(fabs((double)(loss_of(&f32) - loss_of(&reduced))) < loss_within * (double)loss_of(&f32));
    float *a = gradients_of(&f32);
    float *b = gradients_of(&reduced);
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

CLAIM(gradients_of_reduced_precision_point_where_float32_gradients_do) {
    check_reduced_gradients(UPS_BF16, 0.01, 0.999);
    check_reduced_gradients(UPS_F16, 0.001, 0.99999);
}

int main(void) {
    return run_claims(open_device, close_device, NULL);
}
