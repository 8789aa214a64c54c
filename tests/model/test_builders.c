/* The builders: sizes, names, what is shared, and what must hold of the functions they build. */
#include "base/random.h"
#include "model/nets/blocks.h"
#include "model/nets/decoder.h"
#include "tests/model/claims.h"
#include "tests/model/step_models.h"

#include <math.h>
#include <string.h>

static void expect_shape(const ups_graph *g, ups_value v, ups_shape expected) {
    ups_shape shape = ups_graph_info(g, v)->shape;
    assert_int_equal(shape.rank, expected.rank);
    for (int i = 0; i < shape.rank; i++) assert_int_equal(shape.size[i], expected.size[i]);
}

CLAIM(the_reference_operator_has_21_4_million_parameters_and_drops_paths_rising_to_a_tenth) {
    model m = begin(UPS_F32);
    ups_operator_options o = ups_operator_defaults();
    ok(ups_operator_check(&o, &failure));
    ups_operator_build(m.graph, &o, float_input(&m, "z", UPS_SHAPE(8, 128, 128)),
                       float_input(&m, "dt", UPS_SHAPE(8, 1)), UPS_NO_VALUE, UPS_NO_VALUE);
    assert_int_equal(ups_parameters_trainable(m.parameters), 21407168); /* as the same module in PyTorch */
    float last = -1;
    int branches = 0;
    bool layers[24] = {false};
    for (int32_t n = 0; n < m.graph->node_count; n++) {
        const ups_node *node = &m.graph->nodes[n];
        if (node->kind != UPS_OP_RESIDUAL) continue;
        assert_true(fabsf(node->attributes->drop_path - 0.1f * (float)(branches / 2) / 11) < 1e-6f);
        assert_false(layers[node->attributes->layer]);
        layers[node->attributes->layer] = true;
        last = node->attributes->drop_path;
        branches++;
    }
    assert_int_equal(branches, 24);
    assert_true(last == 0.1f);
    end(m);
}

/* The dtype of all that residuals make, and that there are some. */
static void assert_stream(const model *m, ups_dtype dtype) {
    int residuals = 0;
    for (int32_t n = 0; n < m->graph->node_count; n++) {
        const ups_node *node = &m->graph->nodes[n];
        if (node->kind != UPS_OP_RESIDUAL) continue;
        assert_int_equal(ups_graph_info(m->graph, node->output)->dtype, dtype);
        residuals++;
    }
    assert_true(residuals > 0);
}

CLAIM(blocks_add_to_float32_unless_told_to_in_the_dtype_of_products) {
    static const ups_dtype computes[] = {UPS_F32, UPS_BF16, UPS_F16};
    for (int i = 0; i < 3; i++) {
        for (int half = 0; half < 2; half++) {
            model m = begin(computes[i]);
            ups_operator_options o = ups_operator_defaults();
            o.residual = half ? UPS_RESIDUAL_HALF : UPS_RESIDUAL_F32;
            ups_value z = float_input(&m, "z", UPS_SHAPE(2, 128, 128));
            ups_value next =
                ups_operator_build(m.graph, &o, z, float_input(&m, "dt", UPS_SHAPE(2, 1)), UPS_NO_VALUE, UPS_NO_VALUE);
            assert_int_equal(ups_graph_info(m.graph, next)->dtype, UPS_F32);
            assert_stream(&m, half ? computes[i] : UPS_F32);
            end(m);
        }
    }
}

static ups_operator_options tiny_operator(void) {
    ups_operator_options o = ups_operator_defaults();
    o.tokens = 12;
    o.dim = 16;
    o.hidden = 32;
    o.depth = 2;
    o.parameter_count = 3;
    o.task_count = 2;
    return o;
}

static ups_value conditioned(model *m, int steps, int64_t times) {
    ups_operator_options o = tiny_operator();
    ups_value states[4];
    ups_value z = float_input(m, "z", UPS_SHAPE(3, 12, 16));
    ups_operator_rollout(m->graph, &o, &z, float_input(m, "dt", UPS_SHAPE(3, times)),
                         float_input(m, "parameters", UPS_SHAPE(3, 3)), float_input(m, "task", UPS_SHAPE(3, 2)), steps,
                         states);
    ups_graph_keep(m->graph, states[steps - 1]);
    return states[steps - 1];
}

/* The same graph with other PDE parameters and tasks, all else equal. */
static double effect_of_the_condition(const model *m, ups_value state) {
    float *one = evaluate(m, state, 1);
    ups_graph *g = m->graph;
    const char *names[] = {"parameters", "task"};
    for (int i = 0; i < 2; i++) {
        ups_value_info *info = &g->values[ups_graph_find(g, names[i])];
        info->name = i ? "Task" : "Parameters"; /* inputs are drawn by their name */
    }
    float *other = evaluate(m, state, 1);
    for (int i = 0; i < 2; i++) g->values[ups_graph_find(g, i ? "Task" : "Parameters")].name = names[i];
    double effect = difference(one, other, 3 * 12 * 16);
    free(other);
    free(one);
    return effect;
}

CLAIM(the_condition_starts_without_effect_and_learns_one) {
    model m = begin(UPS_F32);
    ups_value z = conditioned(&m, 1, 1);
    assert_true(effect_of_the_condition(&m, z) == 0);
    randomise(&m, "operator.condition.output.weight");
    assert_true(effect_of_the_condition(&m, z) > 1e-3);
    end(m);
}

/* `own_times`: each application is told another one. */
static void check_rollout(bool own_times) {
    enum { B = 3, STEPS = 3, ELEMENTS = B * 12 * 16 };
    model m = begin(UPS_F32);
    ups_value last = conditioned(&m, STEPS, own_times ? STEPS : 1);
    float *rolled = evaluate(&m, last, 1);

    model one = {.parameters = m.parameters, .graph = ups_graph_create(m.parameters, UPS_F32)};
    ups_value next = conditioned(&one, 1, 1), dt = ups_graph_find(one.graph, "dt");
    ups_step *step;
    ok(ups_step_create(one.graph, device, &step, &failure));
    float *z = malloc(sizeof *z * ELEMENTS), times[B * STEPS], told[B];
    for (ups_value v = 0; v < one.graph->value_count; v++) {
        const ups_value_info *info = ups_graph_info(one.graph, v);
        if (info->kind != UPS_VALUE_INPUT) continue;
        size_t elements = (size_t)ups_shape_elements(info->shape);
        ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, (uint32_t)info->name[0]), 1, z, elements);
        ok(ups_step_upload(step, v, z, sizeof *z * elements, &failure));
    }
    ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, (uint32_t)'d'), 1, times, B * STEPS);
    for (int k = 0; k < STEPS; k++) {
        for (int b = 0; b < B; b++) told[b] = own_times ? times[STEPS * b + k] : times[b];
        ok(ups_step_upload(step, dt, told, sizeof told, &failure));
        ok(ups_step_run(step, &(ups_step_run_options){0}, &failure));
        ok(ups_step_download(step, next, z, sizeof *z * ELEMENTS, &failure));
        if (k < 2) ok(ups_step_upload(step, ups_graph_find(one.graph, "z"), z, sizeof *z * ELEMENTS, &failure));
    }
    assert_true(difference(rolled, z, ELEMENTS) < 1e-6);
    assert_int_equal(ups_parameters_count(m.parameters), ups_parameters_count(one.parameters));
    free(z);
    free(rolled);
    ups_step_destroy(step);
    ups_graph_destroy(one.graph);
    end(m);
}

CLAIM(a_rollout_is_the_operator_applied_again_and_again) {
    check_rollout(false);
}

CLAIM(each_application_of_a_rollout_may_be_told_its_own_time) {
    check_rollout(true);
}

static ups_encoder_options small_encoder(void) {
    ups_encoder_options o = ups_encoder_defaults();
    o.width = 32;
    o.stem_width = 8;
    o.tokens = 10;
    o.dim = 16;
    return o;
}

CLAIM(fields_of_one_two_and_three_axes_become_tokens) {
    const ups_field_shape fields[] = {
        {.task = "line", .dims = 1, .grid = {100}, .channels = 1, .periodic = true},
        {.task = "plane", .dims = 2, .grid = {20, 33}, .channels = 3, .channels_first = true},
        {.task = "volume", .dims = 3, .grid = {8, 9, 10}, .channels = 2},
    };
    const int64_t points_a_patch[][3] = {{8}, {5, 11}, {4, 3, 5}}; /* a length along each axis */
    const int64_t patches[] = {13, 4 * 3, 2 * 3 * 2};
    for (int i = 0; i < 6; i++) {
        const ups_field_shape *f = &fields[i % 3];
        ups_encoder_options o = small_encoder();
        for (int axis = 0; axis < f->dims; axis++) o.patch[axis] = points_a_patch[i % 3][axis];
        if (i >= 3) {
            o.pooling = UPS_POOL_QUERIES;
            o.depth = 1;
        }
        ok(ups_encoder_check(&o, &failure));
        assert_int_equal(ups_encoder_patches(&o, f), patches[i % 3]);
        int64_t points = f->grid[0] * (f->dims > 1 ? f->grid[1] : 1) * (f->dims > 2 ? f->grid[2] : 1);
        model m = begin(UPS_F32);
        ups_value field = float_input(&m, "field", UPS_SHAPE(2, points * f->channels));
        ups_value z = ups_encoder_build(m.graph, &o, f, field, UPS_NO_VALUE);
        ups_graph_keep(m.graph, z);
        expect_shape(m.graph, z, UPS_SHAPE(2, 10, 16));
        float *latents = evaluate(&m, z, 1);
        for (int k = 0; k < 2 * 10 * 16; k++) assert_true(isfinite(latents[k]));
        assert_true(difference(latents, latents + 160, 160) > 1e-3); /* two samples, two encodings */
        free(latents);
        end(m);
    }
}

CLAIM(tasks_share_the_trunk_and_have_stems_of_their_own) {
    model m = begin(UPS_F32);
    ups_encoder_options o = small_encoder();
    ups_field_shape f = {.task = "a", .dims = 1, .grid = {64}, .channels = 1};
    ups_encoder_build(m.graph, &o, &f, float_input(&m, "a", UPS_SHAPE(2, 64)), UPS_NO_VALUE);
    int32_t alone = ups_parameters_count(m.parameters);
    f.task = "b";
    f.channels = 2;
    ups_encoder_build(m.graph, &o, &f, float_input(&m, "b", UPS_SHAPE(2, 128)), UPS_NO_VALUE);
    int32_t both = ups_parameters_count(m.parameters);
    ups_encoder_build(m.graph, &o, &f, float_input(&m, "later", UPS_SHAPE(2, 128)),
                      UPS_NO_VALUE); /* the same task's next frame */
    assert_int_equal(ups_parameters_count(m.parameters), both);
    for (int32_t i = 0; i < both; i++) {
        const char *name = ups_parameters_get(m.parameters, i)->name;
        const char *expected = i >= alone ? "encoder.b." : strstr(name, "trunk") ? "encoder.trunk." : "encoder.a.";
        assert_memory_equal(name, expected, strlen(expected));
    }
    assert_true(ups_parameters_find(m.parameters, "encoder.a.stem.0.weight") >= 0);
    assert_true(ups_parameters_find(m.parameters, "encoder.trunk.position1d.weight") >= 0);
    end(m);
}

CLAIM(the_stem_starts_as_the_identity) {
    float *latents[2];
    for (int with = 0; with < 2; with++) {
        model m = begin(UPS_F32);
        ups_encoder_options o = small_encoder();
        if (!with) o.stem_width = 0;
        ups_field_shape f = {.task = "a", .dims = 2, .grid = {16, 16}, .channels = 2};
        ups_value z = ups_encoder_build(m.graph, &o, &f, float_input(&m, "field", UPS_SHAPE(2, 512)), UPS_NO_VALUE);
        ups_graph_keep(m.graph, z);
        latents[with] = evaluate(&m, z, 1);
        if (with) {
            randomise(&m, "encoder.a.stem.1.weight");
            float *moved = evaluate(&m, z, 1);
            assert_true(difference(moved, latents[1], 320) > 1e-3);
            free(moved);
        }
        end(m);
    }
    assert_true(difference(latents[0], latents[1], 320) < 1e-6);
    free(latents[0]);
    free(latents[1]);
}

CLAIM(statistics_normalise_what_is_encoded) {
    ups_field_shape f = {.task = "a", .dims = 1, .grid = {64}, .channels = 2};
    const float statistics[] = {3, 2, -1, 0.25f};
    ups_encoder_options o = small_encoder();
    model m = begin(UPS_F32);
    ups_value field = float_input(&m, "field", UPS_SHAPE(1, 128));
    ups_value norms = ups_graph_constant(m.graph, "norms", UPS_F32, UPS_SHAPE(2, 2), statistics);
    ups_value raw = ups_encoder_build(m.graph, &o, &f, field, norms);
    ups_graph_scope(m.graph, "normalised");
    int32_t every_point[64];
    for (int i = 0; i < 64; i++) every_point[i] = i;
    ups_value index = ups_graph_constant(m.graph, "index", UPS_I32, UPS_SHAPE(64), every_point);
    ups_value normalised = ups_gather_points(m.graph, field, index, norms, 2, false);
    normalised = ups_graph_reshape(m.graph, normalised, UPS_SHAPE(1, 128));
    ups_value same = ups_encoder_build(m.graph, &o, &f, normalised, UPS_NO_VALUE);
    ups_graph_keep(m.graph, raw);
    ups_graph_keep(m.graph, same);
    float *a = evaluate(&m, raw, 1), *b = evaluate(&m, same, 1);
    assert_true(difference(a, b, 160) < 1e-6);
    free(b);
    free(a);
    end(m);
}

CLAIM(token_coordinates_are_pooled_as_the_patches_are) {
    ups_encoder_options o = small_encoder();
    o.tokens = 7;
    const ups_field_shape f = {.task = "a", .dims = 2, .grid = {24, 40}, .channels = 1};
    int64_t cells[] = {3, 5};
    float centres[15 * 2], tokens[7 * 2];
    ups_grid_coordinates(2, cells, centres);
    assert_true(fabsf(centres[0] - 1.0f / 6) < 1e-6f && fabsf(centres[1] - 0.1f) < 1e-6f &&
                fabsf(centres[3] - 0.3f) < 1e-6f);
    ups_encoder_token_coordinates(&o, &f, tokens);
    model m = begin(UPS_F32);
    ups_value at = ups_graph_constant(m.graph, "at", UPS_F32, UPS_SHAPE(1, 15, 2), centres);
    ups_value pooled = ups_pool_tokens(m.graph, at, 7);
    ups_graph_keep(m.graph, pooled);
    ups_parameters_add(m.parameters, "any", 1, (int64_t[]){1}, (ups_init){0});
    float *expected = evaluate(&m, pooled, 1);
    assert_true(difference(tokens, expected, 14) < 1e-6);
    free(expected);
    end(m);
}

enum { QUERIES = 9 };

static float *decoded(ups_parameters *parameters, const float *coordinates, int64_t count, bool position, int dims) {
    model m = {.parameters = parameters, .graph = ups_graph_create(parameters, UPS_F32)};
    ups_decoder_options o = ups_decoder_defaults();
    o.tokens = 10, o.dim = 16, o.hidden = 32, o.position = position;
    ok(ups_decoder_check(&o, &failure));
    float where[10 * 3];
    for (int i = 0; i < 10 * dims; i++) where[i] = (float)i / (float)(10 * dims);
    ups_value z = float_input(&m, "z", UPS_SHAPE(2, 10, 16));
    ups_value at = ups_graph_constant(m.graph, "at", UPS_F32, UPS_SHAPE(count, dims), coordinates);
    ups_value tokens =
        position ? ups_graph_constant(m.graph, "tokens", UPS_F32, UPS_SHAPE(10, dims), where) : UPS_NO_VALUE;
    ups_value read = ups_decoder_build(m.graph, &o, "flow", 3, z, at, tokens);
    expect_shape(m.graph, read, UPS_SHAPE(2, count, 3));
    ups_graph_keep(m.graph, read);
    float *out = evaluate(&m, read, 1);
    ups_graph_destroy(m.graph);
    return out;
}

CLAIM(a_point_is_decoded_the_same_whatever_else_is_asked) {
    float coordinates[QUERIES * 2];
    for (int i = 0; i < QUERIES * 2; i++) coordinates[i] = (float)(i * 7 % 18) / 18;
    for (int position = 0; position < 2; position++) {
        ups_parameters *parameters = ups_parameters_create();
        float *all = decoded(parameters, coordinates, QUERIES, position, 2);
        float *some = decoded(parameters, coordinates + 2 * 4, 3, position, 2);
        for (int sample = 0; sample < 2; sample++) {
            assert_true(difference(some + sample * 9, all + (sample * QUERIES + 4) * 3, 9) < 1e-5);
        }
        assert_true(difference(all, all + 3, 3) > 1e-4); /* another point, another value */
        free(some);
        free(all);
        ups_parameters_destroy(parameters);
    }
}

CLAIM(decoders_of_one_and_two_axes_share_layers_and_heads) {
    ups_parameters *parameters = ups_parameters_create();
    model m = {.parameters = parameters, .graph = ups_graph_create(parameters, UPS_F32)};
    ups_decoder_options o = ups_decoder_defaults();
    ups_value z = float_input(&m, "z", UPS_SHAPE(2, 128, 128));
    ups_decoder_build(m.graph, &o, "a", 1, z, float_input(&m, "line", UPS_SHAPE(5, 1)), UPS_NO_VALUE);
    int32_t before = ups_parameters_count(parameters);
    ups_decoder_build(m.graph, &o, "b", 2, z, float_input(&m, "plane", UPS_SHAPE(5, 2)), UPS_NO_VALUE);
    assert_int_equal(ups_parameters_count(parameters), before + 4);
    assert_true(ups_parameters_find(parameters, "decoder.query1d.weight") >= 0);
    assert_true(ups_parameters_find(parameters, "decoder.query2d.weight") >= before);
    assert_true(ups_parameters_find(parameters, "decoder.b.head.bias") >= before);
    end(m);
}

CLAIM(options_that_cannot_be_are_sentences) {
    ups_operator_options operator= ups_operator_defaults();
    operator.heads = 7;
    assert_int_equal(ups_operator_check(&operator, & failure), UPS_ERR_CONFIG);
    assert_string_equal(failure.message, "operator: hidden (384) must be a multiple of heads (7)");
    operator= ups_operator_defaults();
    operator.bundle = 4;
    assert_int_equal(ups_operator_check(&operator, & failure), UPS_ERR_CONFIG);
    assert_contains(failure.message, "bundle of 4 needs a grid of tokens");
    operator.bundle = UPS_MAX_BUNDLE + 1;
    assert_int_equal(ups_operator_check(&operator, & failure), UPS_ERR_CONFIG);
    operator= ups_operator_defaults();
    operator.history = 2;
    assert_int_equal(ups_operator_check(&operator, & failure), UPS_ERR_CONFIG);
    assert_contains(failure.message, "history of 2 needs a grid of tokens");
    operator= ups_operator_defaults();
    operator.drop_path = 1;
    assert_int_equal(ups_operator_check(&operator, & failure), UPS_ERR_CONFIG);
    ups_encoder_options encoder = ups_encoder_defaults();
    encoder.patch[1] = 0;
    assert_int_equal(ups_encoder_check(&encoder, &failure), UPS_ERR_CONFIG);
    encoder = ups_encoder_defaults();
    encoder.heads = 3; /* of no matter to averages */
    ok(ups_encoder_check(&encoder, &failure));
    encoder.pooling = UPS_POOL_QUERIES;
    assert_int_equal(ups_encoder_check(&encoder, &failure), UPS_ERR_CONFIG);
    ups_decoder_options decoder = ups_decoder_defaults();
    decoder.frequency_count = 17;
    assert_int_equal(ups_decoder_check(&decoder, &failure), UPS_ERR_CONFIG);
}

static int count_fp8_layers(const char *const *patterns, unsigned count, int64_t width) {
    model m = begin(UPS_BF16);
    ups_operator_options o = ups_operator_defaults();
    int layers = 0;
    o.depth = 2;
    o.hidden = width;
    o.heads = 4;
    m.graph->fp8_layers = patterns;
    m.graph->fp8_layer_count = count;
    ups_operator_build(m.graph, &o, ups_graph_input(m.graph, "z", UPS_F32, UPS_SHAPE(2, o.tokens, o.dim)),
                       ups_graph_input(m.graph, "dt", UPS_F32, UPS_SHAPE(2, 1)), UPS_NO_VALUE, UPS_NO_VALUE);
    for (int32_t n = 0; n < m.graph->node_count; n++) {
        const ups_node *node = &m.graph->nodes[n];
        if (node->kind == UPS_OP_LINEAR && node->attributes->fp8) {
            const ups_value_info *states = ups_graph_info(m.graph, node->inputs[3]);
            assert_non_null(strstr(states->name, ".fp8"));
            layers++;
        }
    }
    end(m);
    return layers;
}

CLAIM(hidden_layers_that_patterns_name_multiply_fp8_where_their_sizes_allow_it) {
    static const char *const all[] = {"*"}, *const two[] = {"*.blocks.1.mlp.*", "operator.blocks.0.attention.qkv"};
    assert_int_equal(count_fp8_layers(all, 1, 64), 8);
    assert_int_equal(count_fp8_layers(two, 2, 64), 3);
    assert_int_equal(count_fp8_layers(two, 1, 64), 2);
    assert_int_equal(count_fp8_layers(NULL, 0, 64), 0);
    assert_int_equal(count_fp8_layers(all, 1, 72), 0);
}

int main(void) {
    return run_claims(open_device, close_device, NULL);
}
