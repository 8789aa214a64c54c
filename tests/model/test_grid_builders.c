/* The builders on token grids: persistence at first, histories and bundles, shifts, patches and their codes; and which
 * weights are hidden matrices. */
#include "model/nets/blocks.h"
#include "model/nets/decoder.h"
#include "model/nets/patch_code.h"
#include "tests/model/claims.h"
#include "tests/model/step_models.h"

#include <string.h>

static ups_operator_options on_grid(int dims, int64_t first, int64_t second, bool periodic) {
    ups_operator_options o = ups_operator_defaults();
    o.core = "spectral";
    o.grid = (ups_token_grid){.task = "wave", .dims = dims, .cells = {first, second}, .periodic = periodic};
    o.tokens = dims == 1 ? first : first * second;
    o.dim = 5;
    o.hidden = 24;
    o.depth = 2;
    o.drop_path = 0;
    o.modes[0] = o.modes[1] = 3;
    ok(ups_operator_check(&o, &failure));
    return o;
}

static ups_value advanced(model *m, const ups_operator_options *o) {
    ups_value next_state = ups_operator_build(m->graph, o, float_input(m, "z", UPS_SHAPE(2, o->tokens, o->dim)),
                                              float_input(m, "dt", UPS_SHAPE(2, 1)), UPS_NO_VALUE, UPS_NO_VALUE);
    ups_graph_keep(m->graph, next_state);
    return next_state;
}

/* `z` through the graph, whose output and skip are no longer zero. */
static float *advance(const model *m, ups_value next_state, const float *z) {
    ups_shape shape = ups_graph_info(m->graph, next_state)->shape;
    size_t bytes = sizeof(float) * (size_t)ups_shape_elements(shape);
    float *out = malloc(bytes), dt[] = {0.1f, 0.1f};
    ups_step *step;
    ok(ups_step_create(m->graph, device, &step, &failure));
    ok(ups_step_upload(step, ups_graph_find(m->graph, "z"), z, bytes, &failure));
    ok(ups_step_upload(step, ups_graph_find(m->graph, "dt"), dt, sizeof dt, &failure));
    ok(ups_step_run(step, &(ups_step_run_options){0}, &failure));
    ok(ups_step_download(step, next_state, out, bytes, &failure));
    ups_step_destroy(step);
    return out;
}

CLAIM(every_core_adds_to_a_half_stream_where_it_is_asked_for) {
    static const char *const cores[] = {"spectral", "stack", "unet"};
    for (int i = 0; i < 6; i++) {
        const bool half = i % 2;
        model m = begin(UPS_BF16);
        ups_operator_options o = on_grid(1, 16, 1, true);
        o.core = cores[i / 2];
        o.level_count = 2;
        o.depths[0] = o.depths[1] = 1;
        o.residual = half ? UPS_RESIDUAL_HALF : UPS_RESIDUAL_F32;
        ok(ups_operator_check(&o, &failure));
        ups_value next_state = advanced(&m, &o);
        int residuals = 0;
        for (int32_t n = 0; n < m.graph->node_count; n++) {
            const ups_node *node = &m.graph->nodes[n];
            if (node->kind != UPS_OP_RESIDUAL) continue;
            assert_int_equal(ups_graph_info(m.graph, node->output)->dtype, half ? UPS_BF16 : UPS_F32);
            residuals++;
        }
        assert_true(residuals > 0);
        ok(ups_parameters_allocate(m.parameters, device, false, UPS_BF16, 11, &failure));
        float z[2 * 16 * 5];
        ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, 9), 1, z, 2 * 16 * 5);
        float *next = advance(&m, next_state, z); /* it runs; untrained, it is persistence */
        assert_memory_equal(next, z, sizeof z);
        free(next);
        end(m);
    }
}

/* How many blocks mix modes, by the parameters that there are; that each of the others attends. */
static int spectral_blocks(const ups_operator_options *o, int blocks) {
    model m = begin(UPS_F32);
    advanced(&m, o);
    int spectral = 0;
    for (int i = 0; i < blocks; i++) {
        char modes[64], attention[64];
        snprintf(modes, sizeof modes, "operator.blocks.%d.spectral.local.weight", i);
        snprintf(attention, sizeof attention, "operator.blocks.%d.attention.qkv.weight", i);
        const bool mixes = ups_parameters_find(m.parameters, modes) >= 0;
        assert_int_equal(!mixes, ups_parameters_find(m.parameters, attention) >= 0);
        spectral += mixes;
    }
    end(m);
    return spectral;
}

CLAIM(mixing_by_size_attends_to_few_tokens_and_takes_modes_of_many) {
    for (int cells = 15; cells < 18; cells++) {
        ups_operator_options o = on_grid(1, cells, 1, true);
        o.core = "stack";
        o.mixing[0] = UPS_MIXING_AUTO;
        o.mixing_count = 1;
        o.attended_tokens = 16;
        o.heads = 2;
        o.positions = UPS_POSITIONS_ROTARY; /* of tasks that attend */
        ok(ups_operator_check(&o, &failure));
        assert_int_equal(spectral_blocks(&o, 2), cells > 16 ? 2 : 0);
        o.core = "unet"; /* whose coarser level has half as many */
        o.level_count = 2;
        o.depths[0] = o.depths[1] = 1;
        ok(ups_operator_check(&o, &failure));
        assert_int_equal(spectral_blocks(&o, 3), cells > 16 ? 2 : 0);
    }
}

CLAIM(a_half_of_the_blocks_that_is_a_task_s_own_is_named_after_it) {
    static const char *const parts[] = {"attention.qkv.weight", "attention.norm.bias", "convolution.1d.weight",
                                        "mlp.norm.weight", "mlp.down.bias"};
    for (int which = 0; which < 4; which++) {
        model m = begin(UPS_F32);
        ups_operator_options o = on_grid(1, 8, 1, true);
        o.core = "stack";
        o.convolution = 3;
        o.task_specific[UPS_HALF_MIXING] = which & 1;
        o.task_specific[UPS_HALF_MLP] = which & 2;
        ok(ups_operator_check(&o, &failure));
        advanced(&m, &o);
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            char own[80], shared[80];
            snprintf(own, sizeof own, "operator.wave.blocks.1.%s", parts[p]);
            snprintf(shared, sizeof shared, "operator.blocks.1.%s", parts[p]);
            const bool specific = o.task_specific[strncmp(parts[p], "mlp", 3) == 0 ? UPS_HALF_MLP : UPS_HALF_MIXING];
            assert_int_equal(ups_parameters_find(m.parameters, own) >= 0, specific);
            assert_int_equal(ups_parameters_find(m.parameters, shared) >= 0, !specific);
        }
        end(m);
    }
    ups_operator_options o = ups_operator_defaults();
    o.task_specific[UPS_HALF_MLP] = true;
    assert_int_equal(ups_operator_check(&o, &failure), UPS_ERR_CONFIG);
}

CLAIM(an_untrained_operator_on_a_grid_is_persistence) {
    model m = begin(UPS_F32);
    ups_operator_options o = on_grid(1, 12, 1, false);
    ups_value next_state = advanced(&m, &o);
    ok(ups_parameters_allocate(m.parameters, device, false, UPS_F32, 11, &failure));
    float z[2 * 12 * 5];
    ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, 9), 1, z, 2 * 12 * 5);
    float *next = advance(&m, next_state, z);
    assert_memory_equal(next, z, sizeof z);
    free(next);
    end(m);
}

/* Values of one parameter, by name. */
static void set_parameter(const model *m, const char *name, const float *values) {
    const ups_parameter *p = ups_parameters_get(m->parameters, ups_parameters_find(m->parameters, name));
    ok(device->class->upload(device, ups_parameters_values(m->parameters) + p->offset, values,
                             sizeof *values * (size_t)p->elements, &failure));
}

/* Frame `k` that an application gives of frames, all of them z. */
static ups_value given_one_frame(model *m, const ups_operator_options *o, int k) {
    ups_value z = float_input(m, "z", UPS_SHAPE(2, o->tokens, o->dim)), given[UPS_MAX_HISTORY], states[UPS_MAX_BUNDLE];
    for (int i = 0; i < o->history; i++) given[i] = z;
    ups_operator_rollout(m->graph, o, given, float_input(m, "dt", UPS_SHAPE(2, 1)), UPS_NO_VALUE, UPS_NO_VALUE, 1,
                         states);
    ups_graph_keep(m->graph, states[k]);
    return states[k];
}

CLAIM(every_frame_of_an_untrained_operators_bundle_is_the_one_it_was_given) {
    for (int k = 0; k < 3; k++) {
        model m = begin(UPS_F32);
        ups_operator_options o = on_grid(1, 12, 1, true);
        o.history = 2;
        o.bundle = 3;
        ups_value frame = given_one_frame(&m, &o, k);
        ok(ups_parameters_allocate(m.parameters, device, false, UPS_F32, 11, &failure));
        float z[2 * 12 * 5];
        ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, 9), 1, z, 2 * 12 * 5);
        float *next = advance(&m, frame, z);
        assert_memory_equal(next, z, sizeof z);
        free(next);
        end(m);
    }
}

/* Numbers that two models have in common whose parameters have the same names. */
static void fill_by_name(const model *m) {
    for (int32_t i = 0; i < ups_parameters_count(m->parameters); i++) {
        const ups_parameter *p = ups_parameters_get(m->parameters, i);
        float *values = malloc(sizeof *values * (size_t)p->elements);
        uint32_t item = 0;
        for (const char *letter = p->name; *letter; letter++) item = 31 * item + (uint32_t)*letter;
        ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, item), 0.2f, values, (size_t)p->elements);
        set_parameter(m, p->name, values);
        free(values);
    }
}

CLAIM(where_earlier_frames_repeat_one_the_operator_is_one_that_reads_one_frame) {
    float *out[2], z[2 * 12 * 5];
    ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, 9), 1, z, 2 * 12 * 5);
    for (int several = 0; several < 2; several++) {
        model m = begin(UPS_F32);
        ups_operator_options o = on_grid(1, 12, 1, true);
        o.history = several ? 3 : 1;
        ups_value frame = given_one_frame(&m, &o, 0);
        ok(ups_parameters_allocate(m.parameters, device, false, UPS_F32, 11, &failure));
        fill_by_name(&m);
        assert_int_equal(ups_parameters_find(m.parameters, "operator.wave.trend2.weight") >= 0, several);
        assert_int_equal(ups_parameters_find(m.parameters, "operator.wave.earlier3.weight") >= 0, 0);
        out[several] = advance(&m, frame, z);
        end(m);
    }
    assert_memory_equal(out[0], out[1], sizeof z);
    assert_true(difference(out[0], z, 2 * 12 * 5) > 1e-3);
    free(out[0]), free(out[1]);
}

enum { POINT_TOKENS = 7, PLACES = 2, OFFSETS = 4, GEOMETRY = PLACES + OFFSETS, CONTENT = 3 };

/* Of two samples on points, the next state, by an operator that knows where tokens lie (`known`), or that finds it in
 * the first numbers of a state. */
static float *advance_on_points(const char *core, bool windows, const float *known, const float *z) {
    float places[POINT_TOKENS * PLACES], offsets[POINT_TOKENS * OFFSETS], map[GEOMETRY * (GEOMETRY + CONTENT)] = {0};
    float bias[GEOMETRY] = {0};
    model m = begin(UPS_F32);
    ups_operator_options o = on_grid(1, POINT_TOKENS, 1, false);
    o.core = core;
    o.dim = GEOMETRY + CONTENT;
    o.heads = 2;
    o.level_count = 2;
    o.depths[0] = o.depths[1] = 1;
    o.positions = UPS_POSITIONS_ROTARY;
    o.attention = windows ? UPS_ATTENTION_WINDOW : UPS_ATTENTION_STANDARD;
    o.window[0] = 4;
    o.grid.scattered = true;
    o.grid.place_dims = PLACES;
    o.grid.offset_count = OFFSETS;
    for (int64_t t = 0; known && t < POINT_TOKENS; t++) {
        memcpy(places + t * PLACES, known + t * GEOMETRY, sizeof(float) * PLACES);
        memcpy(offsets + t * OFFSETS, known + t * GEOMETRY + PLACES, sizeof(float) * OFFSETS);
    }
    if (known) o.grid.places = places, o.grid.offsets = offsets;
    ok(ups_operator_check(&o, &failure));
    ups_value next_state = advanced(&m, &o);
    ok(ups_parameters_allocate(m.parameters, device, false, UPS_F32, 11, &failure));
    fill_by_name(&m);
    for (int i = 0; i < GEOMETRY; i++) map[i * (GEOMETRY + CONTENT) + i] = 1;
    if (!known) {
        set_parameter(&m, "operator.wave.geometry.weight", map);
        set_parameter(&m, "operator.wave.geometry.bias", bias);
    }
    float *next = advance(&m, next_state, z);
    end(m);
    return next;
}

CLAIM(where_each_sample_tells_where_its_points_lie_an_operator_does_what_one_does_that_knows_it) {
    static const char *const cores[] = {"stack", "unet"};
    enum { SAMPLE = POINT_TOKENS * (GEOMETRY + CONTENT) };
    float z[2 * SAMPLE], geometry[2][POINT_TOKENS * GEOMETRY];
    ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, 9), 1, z, 2 * SAMPLE);
    for (int b = 0; b < 2; b++) {
        for (int t = 0; t < POINT_TOKENS; t++)
            memcpy(geometry[b] + t * GEOMETRY, z + b * SAMPLE + t * (GEOMETRY + CONTENT), sizeof(float) * GEOMETRY);
    }
    for (int i = 0; i < 4; i++) {
        float *told = advance_on_points(cores[i / 2], i % 2, NULL, z);
        for (int b = 0; b < 2; b++) {
            float *known = advance_on_points(cores[i / 2], i % 2, geometry[b], z);
            assert_true(difference(told + b * SAMPLE, known + b * SAMPLE, SAMPLE) < 1e-4);
            assert_true(difference(told + (1 - b) * SAMPLE, known + (1 - b) * SAMPLE, SAMPLE) > 1e-2);
            free(known);
        }
        free(told);
    }
}

/* Rows and columns of the grid moved on by one, where what leaves comes in on the other side. */
static void shift(const ups_operator_options *o, const float *from, float *to) {
    int64_t rows = o->grid.dims == 2 ? o->grid.cells[0] : 1, columns = o->tokens / rows;
    for (int64_t b = 0; b < 2; b++) {
        for (int64_t i = 0; i < o->tokens; i++) {
            int64_t moved = (i / columns + (rows > 1)) % rows * columns + (i % columns + 1) % columns;
            memcpy(to + (b * o->tokens + moved) * o->dim, from + (b * o->tokens + i) * o->dim,
                   sizeof(float) * (size_t)o->dim);
        }
    }
}

/* How much advance(shift(z)) differs from shift(advance(z)). */
static double effect_of_a_shift(ups_operator_options o) {
    model m = begin(UPS_F32);
    ups_value next_state = advanced(&m, &o);
    ok(ups_parameters_allocate(m.parameters, device, false, UPS_F32, 11, &failure));
    randomise(&m, "operator.wave.output.weight");
    randomise(&m, "operator.wave.skip.weight");
    int64_t count = 2 * o.tokens * o.dim;
    float *z = malloc(sizeof(float) * (size_t)(3 * count)), *moved = z + count, *expected = moved + count;
    ups_random_fill_normal(ups_random_stream(1, UPS_RANDOM_TEST, 9), 1, z, (size_t)count);
    shift(&o, z, moved);
    float *one = advance(&m, next_state, z), *other = advance(&m, next_state, moved);
    shift(&o, one, expected);
    double effect = difference(other, expected, count);
    free(one), free(other), free(z);
    end(m);
    return effect;
}

CLAIM(the_spectral_core_commutes_with_shifts_of_a_periodic_grid_and_of_no_other) {
    assert_true(effect_of_a_shift(on_grid(1, 12, 1, true)) < 1e-5);
    assert_true(effect_of_a_shift(on_grid(2, 4, 6, true)) < 1e-5);
    assert_true(effect_of_a_shift(on_grid(1, 12, 1, false)) > 1e-3);
    assert_true(effect_of_a_shift(on_grid(2, 4, 6, false)) > 1e-3);
    for (int periodic = 0; periodic < 2; periodic++) { /* along each axis by itself, too */
        ups_operator_options o = on_grid(2, 4, 6, periodic);
        o.factorized = true;
        assert_int_equal(effect_of_a_shift(o) < 1e-5, periodic);
    }
}

/* Names that end in one of these, and no others, are of hidden matrices; so many lie in each. */
static void check_hidden(const ups_parameters *parameters, int64_t expected) {
    static const struct {
        const char *end;
        int64_t matrices;
    } hidden[] = {{".attention.qkv.weight", 3},       {".attention.output.weight", 1}, {".attention.query.weight", 1},
                  {".attention.key_value.weight", 2}, {".mlp.up.weight", 1},           {".mlp.down.weight", 1},
                  {".spectral.local.weight", 1}};
    int64_t found = 0;
    for (int32_t i = 0; i < ups_parameters_count(parameters); i++) {
        const ups_parameter *p = ups_parameters_get(parameters, i);
        int64_t matrices = 0;
        for (size_t k = 0; k < sizeof hidden / sizeof *hidden; k++) {
            const char *at = strstr(p->name, hidden[k].end);
            if (at && strcmp(at, hidden[k].end) == 0) matrices = hidden[k].matrices;
        }
        if (p->init.matrices != matrices)
            fail_msg("%s holds %lld matrices; %lld were expected", p->name, (long long)p->init.matrices,
                     (long long)matrices);
        if (matrices > 0) assert_int_equal(p->elements % (matrices * p->size[p->rank - 1]), 0);
        found += matrices > 0;
    }
    assert_int_equal(found, expected);
}

CLAIM(weights_within_blocks_are_hidden_matrices_and_inputs_outputs_and_norms_are_not) {
    model m = begin(UPS_F32);
    ups_operator_options o = on_grid(1, 12, 1, true);
    o.task_count = 2;
    ups_operator_build(m.graph, &o, ups_graph_input(m.graph, "z", UPS_F32, UPS_SHAPE(2, o.tokens, o.dim)),
                       ups_graph_input(m.graph, "dt", UPS_F32, UPS_SHAPE(2, 1)), UPS_NO_VALUE,
                       ups_graph_input(m.graph, "task", UPS_F32, UPS_SHAPE(2, 2)));
    check_hidden(m.parameters, 3 * o.depth); /* the matrices of modes are not among them */
    end(m);
    m = begin(UPS_F32);
    o = ups_operator_defaults();
    o.depth = 2;
    ups_operator_build(m.graph, &o, ups_graph_input(m.graph, "z", UPS_F32, UPS_SHAPE(2, o.tokens, o.dim)),
                       ups_graph_input(m.graph, "dt", UPS_F32, UPS_SHAPE(2, 1)), UPS_NO_VALUE, UPS_NO_VALUE);
    check_hidden(m.parameters, 4 * o.depth);
    end(m);
    m = begin(UPS_F32);
    ups_decoder_options d = ups_decoder_defaults();
    ups_decoder_build(m.graph, &d, "wave", 1, ups_graph_input(m.graph, "z", UPS_F32, UPS_SHAPE(2, d.tokens, d.dim)),
                      ups_graph_input(m.graph, "points", UPS_F32, UPS_SHAPE(5, 1)), UPS_NO_VALUE);
    check_hidden(m.parameters, 5 * d.depth);
    end(m);
}

CLAIM(tasks_on_grids_share_all_but_what_reads_and_writes_their_tokens) {
    model m = begin(UPS_F32);
    ups_operator_options o = on_grid(1, 12, 1, true);
    advanced(&m, &o);
    int32_t before = ups_parameters_count(m.parameters);
    ups_graph *g = ups_graph_create(m.parameters, UPS_F32);
    o.grid.task = "other";
    o.grid.cells[0] = o.tokens = 20;
    o.dim = 7;
    ups_operator_build(g, &o, ups_graph_input(g, "z", UPS_F32, UPS_SHAPE(2, 20, 7)),
                       ups_graph_input(g, "dt", UPS_F32, UPS_SHAPE(2, 1)), UPS_NO_VALUE, UPS_NO_VALUE);
    assert_int_equal(ups_parameters_count(m.parameters),
                     before + 7); /* input, output, skip: each with a bias; change */
    ups_graph_destroy(g);
    end(m);
}

CLAIM(patches_come_back_through_a_code_that_keeps_them) {
    model m = begin(UPS_F32);
    ups_patch_code code = {
        .field = {.task = "t", .dims = 2, .grid = {6, 10}, .channels = 2}, .patch = {3, 5}, .dim = 30};
    assert_int_equal(ups_patch_code_tokens(&code), 4);
    assert_int_equal(ups_patch_code_numbers(&code), 30);
    float places[6 * 10 * 2], identity[30 * 30] = {0};
    ups_grid_coordinates(2, code.field.grid, places);
    ups_value field = float_input(&m, "field", UPS_SHAPE(2, 120));
    ups_value at = ups_graph_constant(m.graph, "places", UPS_F32, UPS_SHAPE(60, 2), places);
    ups_value back = ups_patch_decode(m.graph, &code, ups_patch_encode(m.graph, &code, field, UPS_NO_VALUE), at);
    ups_graph_keep(m.graph, back);
    ups_graph_keep(m.graph, field);
    for (int i = 0; i < 30; i++) identity[31 * i] = 1;
    ok(ups_parameters_allocate(m.parameters, device, false, UPS_F32, 11, &failure));
    ok(ups_parameters_set(m.parameters, "encoder.t.patch.weight", identity, &failure));
    ok(ups_parameters_set(m.parameters, "decoder.t.patch.weight", identity, &failure));
    refused(ups_parameters_set(m.parameters, "encoder.t.missing", identity, &failure), UPS_ERR_ARGUMENT,
            "encoder.t.missing");
    float *found = evaluate(&m, back, 1), *given = evaluate(&m, field, 1);
    assert_true(difference(found, given, 2 * 120) < 1e-6);
    free(found), free(given);
    end(m);
}

/* A field of a plane, read off its points: with a correction that was not trained, and with one of random weights. */
CLAIM(a_correction_between_points_begins_as_nothing_and_is_nothing_at_grid_points) {
    enum { POINTS = 48, OFF = 19 };
    model m = begin(UPS_F32);
    ups_patch_reading plain = {.task = "t", .dims = 2, .grid = {6, 8}, .patch = {3, 4}, .channels = 2};
    ups_patch_reading corrected = plain;
    corrected.hidden = 7;
    float places[POINTS * 2], off[OFF * 2];
    ups_grid_coordinates(2, plain.grid, places);
    for (int i = 0; i < 2 * OFF; i++) off[i] = (float)((i * 37 + 5) % 101) / 101.0f;
    ups_value patches = float_input(&m, "patches", UPS_SHAPE(2, 4, 24));
    ups_value nodes = ups_graph_constant(m.graph, "nodes", UPS_F32, UPS_SHAPE(POINTS, 2), places);
    ups_value between = ups_graph_constant(m.graph, "between", UPS_F32, UPS_SHAPE(OFF, 2), off);
    ups_value read[] = {
        ups_patch_read(m.graph, &plain, patches, nodes), ups_patch_read(m.graph, &corrected, patches, nodes),
        ups_patch_read(m.graph, &plain, patches, between), ups_patch_read(m.graph, &corrected, patches, between)};
    for (int i = 0; i < 4; i++) ups_graph_keep(m.graph, read[i]);
    ok(ups_parameters_allocate(m.parameters, device, false, UPS_F32, 11, &failure));
    float *untrained[] = {evaluate(&m, read[2], 1), evaluate(&m, read[3], 1)};
    assert_memory_equal(untrained[0], untrained[1], 2 * OFF * 2 * sizeof(float));
    float weights[2 * 4 * 2 * 7];
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) weights[i] = (float)((i * 13) % 17) / 17.0f - 0.5f;
    ok(ups_parameters_set(m.parameters, "decoder.t.between.output.weight", weights, &failure));
    float *learnt[4];
    for (int i = 0; i < 4; i++) learnt[i] = evaluate(&m, read[i], 1);
    assert_true(difference(learnt[0], learnt[1], 2 * POINTS * 2) < 1e-5);
    assert_true(difference(learnt[2], learnt[3], 2 * OFF * 2) > 1e-2);
    for (int i = 0; i < 4; i++) free(learnt[i]);
    free(untrained[0]), free(untrained[1]);
    end(m);
}

int main(void) {
    return run_claims(open_device, close_device, NULL);
}
