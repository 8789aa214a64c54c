/* Parameters divided into shares, and optimizers that each move one: together they do what one optimizer does. The
 * processes are imagined; tests/python/test_shards.py starts real ones. */
#include "base/files.h"
#include "base/random.h"
#include "model/devices/devices.h"
#include "tests/base/testing.h"
#include "tests/model/claims.h"
#include "tests/model/on_device.h"
#include "train/checkpoint.h"
#include "train/learning_rate.h"
#include "train/optimizer.h"

#include <math.h>

enum { MOST = 7, STEPS = 4 };

typedef struct shape {
    const char *name;
    int rank;
    int64_t size[4];
    int32_t set;
    ups_init init;
} shape;

#define WEIGHT                                                                                                         \
    { .kind = UPS_INIT_NORMAL, .scale = 1 }
#define GAIN                                                                                                           \
    { .kind = UPS_INIT_ONES, .no_decay = true }
#define MATRICES(n)                                                                                                    \
    { .kind = UPS_INIT_NORMAL, .scale = 1, .matrices = (n) }

/* Sets of few and of many elements; matrices that can be told apart, that cannot, and one that is smaller than its
 * padding. */
static const shape shapes[] = {{"in.weight", 2, {40, 130}, 1, WEIGHT},      {"block.norm", 1, {130}, 0, GAIN},
                               {"block.qkv", 2, {72, 64}, 0, MATRICES(3)},  {"block.qkv_bias", 1, {216}, 0, GAIN},
                               {"block.odd", 2, {30, 10}, 0, MATRICES(3)},  {"block.up", 2, {40, 64}, 0, MATRICES(1)},
                               {"block.down", 2, {64, 40}, 0, MATRICES(1)}, {"block.table", 2, {100, 130}, 0, GAIN},
                               {"block.small", 2, {3, 4}, 0, MATRICES(1)},  {"out.mix", 2, {24, 16}, 2, MATRICES(1)},
                               {"out.weight", 1, {7}, 2, WEIGHT},           {"late.weight", 2, {90, 50}, 2, WEIGHT}};
enum { SHAPES = sizeof shapes / sizeof *shapes, SETS = 3 };

static ups_parameters *make_parameters(const shape *list, int count) {
    ups_parameters *made = ups_parameters_create();
    int32_t sets[64];
    for (int i = 0; i < count; i++) {
        ups_parameters_add(made, list[i].name, list[i].rank, list[i].size, list[i].init);
        sets[i] = list[i].set;
    }
    ups_parameters_divide(made, sets);
    return made;
}

/* ---- shares ------------------------------------------------------------------------------------------------------ */

static void assert_covers(const ups_shares *shares, const ups_parameters *parameters) {
    int64_t at = 0;
    for (int32_t p = 0; p < shares->piece_count; p++) {
        const ups_share_piece *piece = &shares->pieces[p];
        assert_int_equal(piece->offset, at);
        assert_true(piece->count > 0 && piece->count % UPS_SHARE_ALIGNMENT == 0);
        assert_true(piece->share >= 0 && piece->share < shares->count);
        assert_true(p == 0 || piece->share != shares->pieces[p - 1].share);
        at += piece->count;
    }
    assert_int_equal(at, ups_parameters_elements(parameters));
}

/* Whose an element is. */
static int32_t owner(const ups_shares *shares, int64_t element) {
    return shares->pieces[ups_shares_piece_at(shares, element)].share;
}

static void assert_matrices_are_whole(const ups_shares *shares, const ups_parameters *parameters) {
    for (int32_t i = 0; i < ups_parameters_count(parameters); i++) {
        const ups_parameter *p = ups_parameters_get(parameters, i);
        const int64_t count = p->init.matrices, each = count ? p->elements / count : 0;
        for (int64_t k = 0; k < count * each; k++)
            assert_int_equal(owner(shares, p->offset + k), owner(shares, p->offset + k / each * each));
    }
}

CLAIM(every_element_is_of_one_share_and_every_matrix_of_one) {
    ups_parameters *parameters = make_parameters(shapes, SHAPES);
    ups_parameters_place(parameters);
    for (int32_t count = 1; count <= 300; count = count < MOST ? count + 1 : 300 + (count == 300)) {
        for (int whole = 0; whole < 2; whole++) {
            ups_shares shares;
            ok(ups_shares_find(parameters, count, whole, &shares, &failure));
            assert_covers(&shares, parameters);
            if (whole) assert_matrices_are_whole(&shares, parameters);
            ups_shares_free(&shares);
        }
    }
    ups_parameters_destroy(parameters);
}

CLAIM(shares_are_a_function_of_parameters_and_of_their_number) {
    ups_parameters *a = make_parameters(shapes, SHAPES), *b = make_parameters(shapes, SHAPES);
    ups_shares of_a, of_b;
    ups_parameters_place(a), ups_parameters_place(b);
    ok(ups_shares_find(a, 3, true, &of_a, &failure));
    ok(ups_shares_find(b, 3, true, &of_b, &failure));
    assert_int_equal(of_a.piece_count, of_b.piece_count);
    for (int32_t p = 0; p < of_a.piece_count; p++) {
        assert_int_equal(of_a.pieces[p].offset, of_b.pieces[p].offset);
        assert_int_equal(of_a.pieces[p].share, of_b.pieces[p].share);
    }
    ups_shares_free(&of_a), ups_shares_free(&of_b);
    ups_parameters_destroy(a), ups_parameters_destroy(b);
}

/* What each share has of a set: elements between matrices, and the cost of matrices. */
static void weigh(const ups_shares *shares, const ups_parameters *parameters, int32_t set, int64_t *elements,
                  double *cost, double *dearest) {
    memset(elements, 0, (size_t)shares->count * sizeof *elements);
    memset(cost, 0, (size_t)shares->count * sizeof *cost);
    *dearest = 0;
    for (int32_t i = 0; i < ups_parameters_count(parameters); i++) {
        const ups_parameter *p = ups_parameters_get(parameters, i);
        const int64_t extent = ups_parameter_extent(p), columns = p->size[p->rank - 1];
        if (p->set != set) continue;
        for (int64_t k = 0; k < extent && !p->init.matrices; k += UPS_SHARE_ALIGNMENT)
            elements[owner(shares, p->offset + k)] += UPS_SHARE_ALIGNMENT;
        for (int64_t m = 0; m < p->init.matrices; m++) {
            const int64_t each = p->elements / p->init.matrices;
            const double of = ups_share_matrix_cost(each / columns, columns);
            const double together = each % UPS_SHARE_ALIGNMENT ? of * (double)p->init.matrices : of;
            cost[owner(shares, p->offset + m * each)] += of;
            if (together > *dearest) *dearest = together;
        }
    }
}

/* The reference operator in small: blocks of four square matrices and two of four times the width. */
static ups_parameters *make_blocks(int blocks, int64_t width) {
    ups_parameters *made = ups_parameters_create();
    char name[64];
    for (int b = 0; b < blocks; b++) {
        const struct {
            const char *name;
            int64_t rows, columns, matrices;
        } parts[] = {{"qkv", 3 * width, width, 3},       {"qkv_bias", 1, 3 * width, 0}, {"output", width, width, 1},
                     {"up", 4 * width, width, 1},        {"up_bias", 1, 4 * width, 0},  {"down", width, 4 * width, 1},
                     {"modulation", width, 6 * width, 0}};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            const int64_t size[] = {parts[i].rows, parts[i].columns};
            snprintf(name, sizeof name, "%d.%s", b, parts[i].name);
            ups_parameters_add(made, name, 2, size, (ups_init){.matrices = parts[i].matrices});
        }
    }
    ups_parameters_place(made);
    return made;
}

static double spread(const double *of, int32_t count) {
    double most = of[0], least = of[0];
    for (int32_t s = 1; s < count; s++) most = fmax(most, of[s]), least = fmin(least, of[s]);
    return most - least;
}

CLAIM(shares_of_every_set_are_as_large_but_for_a_part_and_a_matrix) {
    ups_parameters *models[] = {make_parameters(shapes, SHAPES), make_blocks(12, 96)};
    ups_parameters_place(models[0]);
    for (int m = 0; m < 2; m++) {
        for (int32_t count = 2; count <= MOST; count++) {
            ups_shares shares;
            ok(ups_shares_find(models[m], count, true, &shares, &failure));
            for (int32_t set = 0; set < ups_parameters_sets(models[m]); set++) {
                int64_t elements[MOST];
                double cost[MOST], counts[MOST], dearest;
                weigh(&shares, models[m], set, elements, cost, &dearest);
                for (int32_t s = 0; s < count; s++) counts[s] = (double)elements[s];
                assert_true(spread(counts, count) <= 2 * UPS_SHARE_PART);
                assert_true(spread(cost, count) <= dearest * (1 + 1e-12));
            }
            ups_shares_free(&shares);
        }
        ups_parameters_destroy(models[m]);
    }
}

CLAIM(matrices_of_a_deep_model_cost_every_share_the_same) {
    ups_parameters *parameters = make_blocks(12, 96);
    for (int32_t count = 2; count <= 6; count++) { /* which divide what twelve blocks cost */
        if (count == 5) continue;
        ups_shares shares;
        int64_t elements[MOST];
        double cost[MOST], dearest;
        ok(ups_shares_find(parameters, count, true, &shares, &failure));
        weigh(&shares, parameters, 0, elements, cost, &dearest);
        assert_true(spread(cost, count) <= 1e-9 * cost[0]);
        ups_shares_free(&shares);
    }
    ups_parameters_destroy(parameters);
}

/* One costs as much as two; dealt out in another order they do not come out even. */
CLAIM(dear_matrices_are_dealt_out_first_and_those_of_a_tensor_one_by_one) {
    const shape uneven[] = {{"small", 2, {32, 16}, 0, MATRICES(2)}, {"large", 2, {16, 40}, 0, MATRICES(1)}};
    const shape four[] = {{"four", 2, {64, 16}, 0, MATRICES(4)}};
    ups_parameters *models[] = {make_parameters(uneven, 2), make_parameters(four, 1)};
    for (int m = 0; m < 2; m++) {
        ups_shares shares;
        int64_t elements[2];
        double cost[2], dearest;
        ups_parameters_place(models[m]);
        ok(ups_shares_find(models[m], 2, true, &shares, &failure));
        weigh(&shares, models[m], 0, elements, cost, &dearest);
        assert_true(cost[0] == cost[1] && cost[0] > 0);
        ups_shares_free(&shares);
        ups_parameters_destroy(models[m]);
    }
}

CLAIM(a_large_tensor_is_of_all_shares_in_every_run) {
    enum { COUNT = 4 };
    const int64_t run = UPS_SHARE_RUN, size[] = {5 * run + 64};
    ups_parameters *parameters = ups_parameters_create();
    ups_parameters_add(parameters, "large", 1, size, (ups_init){0});
    ups_parameters_place(parameters);
    ups_shares shares;
    ok(ups_shares_find(parameters, COUNT, false, &shares, &failure));
    for (int64_t first = 0; first < 5 * run; first += run) {
        int64_t of[COUNT] = {0};
        for (int64_t k = first; k < first + run; k += UPS_SHARE_ALIGNMENT) of[owner(&shares, k)] += UPS_SHARE_ALIGNMENT;
        for (int s = 0; s < COUNT; s++) assert_int_equal(of[s], run / COUNT);
    }
    assert_int_equal(ups_shares_most_within(&shares, run), run / COUNT);
    ups_shares_free(&shares);
    ups_parameters_destroy(parameters);
}

/* ---- optimizers of shares ---------------------------------------------------------------------------------------- */

typedef struct member {
    ups_parameters *parameters;
    ups_optimizer *optimizer;
} member;

typedef struct group {
    ups_optimizer_config config;
    ups_device *device;
    ups_shares shares;
    int32_t count;
    member members[MOST];
    int64_t elements;
} group;

static ups_optimizer_config rules(ups_optimizer_kind kind) {
    return (ups_optimizer_config){.kind = kind,
                                  .learning_rate = 0.01,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .momentum = 0.95,
                                  .epsilon = 1e-8,
                                  .weight_decay = 0.1,
                                  .clip = 3,
                                  .ema_decay = 0.9};
}

static ups_device *open_device(void) {
    ups_device *device;
    ok(ups_device_open(&(ups_device_options){.name = "auto", .threads = 1}, &device, &failure));
    return device;
}

/* So many optimizers with a share each; 1: one without. */
static group begin(ups_optimizer_config config, ups_dtype compute, int32_t count) {
    group g = {.config = config, .device = open_device(), .count = count};
    for (int32_t i = 0; i < count; i++) {
        member *m = &g.members[i];
        m->parameters = make_parameters(shapes, SHAPES);
        ok(ups_parameters_allocate(m->parameters, g.device, true, compute, 5, &failure));
        if (i == 0)
            ok(ups_shares_find(m->parameters, count, ups_optimizer_moves_matrices(&config), &g.shares, &failure));
    }
    g.elements = ups_parameters_elements(g.members[0].parameters);
    for (int32_t i = 0; i < count; i++) {
        const ups_share share = {&g.shares, i};
        ok(ups_optimizer_create(&g.config, g.device, g.members[i].parameters, count > 1 ? &share : NULL,
                                &g.members[i].optimizer, &failure));
    }
    return g;
}

static void end(group *g) {
    for (int32_t i = 0; i < g->count; i++) {
        ups_optimizer_destroy(g->members[i].optimizer);
        ups_parameters_destroy(g->members[i].parameters);
    }
    ups_shares_free(&g->shares);
    ups_device_close(g->device);
}

static void *fetch(const group *g, const void *memory, size_t each) {
    return read_device(g->device, memory, (size_t)g->elements * each);
}

/* Each one's share of the values, and of their copy, to all. */
static void all_gather(group *g) {
    for (int32_t p = 0; p < g->shares.piece_count && g->count > 1; p++) {
        const ups_share_piece *piece = &g->shares.pieces[p];
        const float *from = ups_parameters_values(g->members[piece->share].parameters) + piece->offset;
        const size_t bytes = (size_t)piece->count * sizeof *from;
        float *host = read_device(g->device, from, bytes);
        for (int32_t i = 0; i < g->count; i++)
            write_device(g->device, ups_parameters_values(g->members[i].parameters) + piece->offset, host, bytes);
        free(host);
    }
    for (int32_t i = 0; i < g->count && g->count > 1; i++)
        ok(ups_parameters_refresh(g->members[i].parameters, &failure));
}

static void put_gradients(const group *g, const member *m, int64_t step, const bool *trained) {
    float *gradients = calloc((size_t)g->elements, sizeof *gradients);
    const ups_random stream = ups_random_stream(3, UPS_RANDOM_TEST, (uint32_t)step);
    for (int32_t i = 0; i < SHAPES; i++) {
        const ups_parameter *p = ups_parameters_get(m->parameters, i);
        for (int64_t k = p->offset; k < p->offset + p->elements && trained[p->set]; k++)
            gradients[k] = (float)ups_random_normal(stream, (uint64_t)k);
    }
    write_device(g->device, ups_parameters_gradients(m->parameters), gradients,
                 (size_t)g->elements * sizeof *gradients);
    free(gradients);
}

/* Every second step trains two of three sets. */
static void take_step(group *g, int64_t step) {
    bool trained[UPS_UPDATE_MAX_SETS] = {true, true, step % 2 == 0};
    for (int32_t i = 0; i < g->count; i++) {
        member *m = &g->members[i];
        ups_update result;
        put_gradients(g, m, step, trained);
        ok(ups_optimizer_begin(m->optimizer, &(ups_update_input){.step = step, .learning_rate = 0.01f}, &failure));
        ok(ups_optimizer_step(m->optimizer, trained, &failure));
        ok(ups_optimizer_result(m->optimizer, &result, &failure));
        assert_false(result.result.skipped);
    }
    all_gather(g);
}

/* What all members keep, whole: (buffers, elements); free with free(). */
static float *gather_kept(const group *g, int *count) {
    ups_parameter_buffer buffers[UPS_OPTIMIZER_MAX_BUFFERS];
    float *all = calloc((size_t)(UPS_OPTIMIZER_MAX_BUFFERS * g->elements), sizeof *all);
    for (int32_t i = 0; i < g->count; i++) {
        *count = ups_optimizer_buffers(g->members[i].optimizer, buffers);
        for (int b = 0; b < *count; b++) {
            for (int32_t k = 0; k < SHAPES; k++) {
                const ups_parameter *p = ups_parameters_get(g->members[i].parameters, k);
                const int64_t last = p->offset + p->elements;
                ups_parameter_part part;
                if (buffers[b].has && !buffers[b].has[k]) continue;
                for (int64_t at = p->offset;
                     ups_parameter_find_part(buffers[b].parts, buffers[b].part_count, at, last, &part);
                     at = part.offset + part.count)
                    ok(g->device->class->download(g->device, all + b * g->elements + part.offset,
                                                  buffers[b].values + part.place, (size_t)part.count * sizeof *all,
                                                  &failure));
            }
        }
    }
    return all;
}

static void assert_equal_groups(const group *g, const group *alone) {
    float *expected = fetch(alone, ups_parameters_values(alone->members[0].parameters), sizeof(float));
    const ups_weights *of_one = ups_parameters_weights(alone->members[0].parameters);
    uint16_t *copy = of_one->compute ? fetch(alone, of_one->compute, sizeof *copy) : NULL;
    for (int32_t i = 0; i < g->count; i++) {
        const ups_weights *weights = ups_parameters_weights(g->members[i].parameters);
        float *values = fetch(g, weights->values, sizeof *values);
        assert_memory_equal(values, expected, (size_t)g->elements * sizeof *values);
        uint16_t *own = copy ? fetch(g, weights->compute, sizeof *own) : NULL;
        if (copy) assert_memory_equal(own, copy, (size_t)g->elements * sizeof *own);
        free(values), free(own);
    }
    int count, other;
    float *kept = gather_kept(g, &count), *kept_by_one = gather_kept(alone, &other);
    assert_int_equal(count, other);
    assert_memory_equal(kept, kept_by_one, (size_t)count * (size_t)g->elements * sizeof *kept);
    free(expected), free(copy), free(kept), free(kept_by_one);
}

CLAIM(optimizers_of_shares_together_leave_the_bits_of_one) {
    for (int kind = 0; kind < 2; kind++) {
        for (int32_t count = 2; count <= MOST; count += kind ? 1 : 3) {
            const ups_dtype compute = count % 2 ? UPS_BF16 : UPS_F32;
            const ups_optimizer_config config = rules(kind ? UPS_OPTIMIZER_MUON : UPS_OPTIMIZER_ADAMW);
            group together = begin(config, compute, count), alone = begin(config, compute, 1);
            for (int64_t step = 0; step < STEPS; step++) take_step(&together, step), take_step(&alone, step);
            assert_equal_groups(&together, &alone);
            end(&together), end(&alone);
        }
    }
}

CLAIM(norms_of_shares_are_the_norm_of_all) {
    group together = begin(rules(UPS_OPTIMIZER_MUON), UPS_F32, 5), alone = begin(rules(UPS_OPTIMIZER_MUON), UPS_F32, 1);
    const bool all[] = {true, true, true};
    const ups_update_input input = {.clears = true, .learning_rate = 0.01f};
    double squares = 0;
    ups_update result;
    take_step(&alone, 0);
    put_gradients(&alone, &alone.members[0], 1, all);
    ok(ups_optimizer_begin(alone.members[0].optimizer, &input, &failure));
    ok(ups_optimizer_step(alone.members[0].optimizer, NULL, &failure));
    ok(ups_optimizer_result(alone.members[0].optimizer, &result, &failure));
    for (int32_t i = 0; i < together.count; i++) {
        member *m = &together.members[i];
        ups_update own;
        put_gradients(&together, m, 1, all);
        ok(ups_optimizer_begin(m->optimizer, &input, &failure));
        ok(ups_optimizer_measure_norm(m->optimizer, &failure));
        ok(ups_optimizer_step(m->optimizer, NULL, &failure)); /* which measures no other norm */
        ok(ups_optimizer_result(m->optimizer, &own, &failure));
        assert_true(own.result.squared_norm > 0 && own.result.squared_norm < result.result.squared_norm);
        squares += own.result.squared_norm;
    }
    assert_true(fabs(squares - result.result.squared_norm) < 1e-12 * squares);
    end(&together), end(&alone);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static size_t allocated;
static const ups_device_class *counted;

static ups_status count_bytes(ups_device *device, size_t bytes, void **memory, ups_error *error) {
    allocated += bytes;
    return counted->allocate(device, bytes, memory, error);
}

/* The tables that groups take beside it. */
static size_t tables(const group *g) {
    return (size_t)(SHAPES + g->shares.piece_count) * sizeof(ups_range) + sizeof(ups_update);
}

CLAIM(a_share_takes_what_is_planned_and_shares_together_what_one_takes) {
    for (int kind = 0; kind < 2; kind++) {
        group g = begin(rules(kind ? UPS_OPTIMIZER_MUON : UPS_OPTIMIZER_ADAMW), UPS_F32, 4);
        ups_parameters *parameters = g.members[0].parameters;
        ups_optimizer_memory whole, sum = {0};
        ups_optimizer_config plain = g.config;
        ok(ups_optimizer_measure(&plain, g.device, parameters, NULL, UPS_F32, &whole, &failure));
        counted = g.device->class;
        ups_device_class counting = *counted;
        counting.allocate = count_bytes;
        for (int32_t i = 0; i < g.count; i++) {
            const ups_share share = {&g.shares, i};
            ups_optimizer_memory memory;
            ups_optimizer *made;
            ok(ups_optimizer_measure(&g.config, g.device, parameters, &share, UPS_F32, &memory, &failure));
            allocated = 0;
            g.device->class = &counting;
            ok(ups_optimizer_create(&g.config, g.device, parameters, &share, &made, &failure));
            ups_optimizer_destroy(made);
            g.device->class = counted;
            assert_true(allocated >= memory.all && allocated <= memory.all + tables(&g));
            if (!kind) assert_true(memory.all <= whole.all / 4 + 3 * 2 * UPS_SHARE_PART * SETS * sizeof(float));
            sum.all += memory.all;
        }
        if (!kind) assert_int_equal(sum.all, whole.all);
        assert_true(sum.all >= whole.all); /* each has a workspace for its matrices */
        end(&g);
    }
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* What others hold of a buffer: what all hold of it, the first member's own included. */
typedef struct bringing {
    const ups_shares *shares;
    const float *whole; /* (elements) */
} bringing;

static ups_status bring(void *context, float *elements, int64_t offset, int64_t count, ups_error *error) {
    const bringing *b = context;
    (void)error;
    for (int64_t k = 0; k < count; k++) {
        const float *there = &b->whole[offset + k];
        if (owner(b->shares, offset + k) == 0) assert_memory_equal(&elements[k], there, sizeof *there);
        elements[k] = *there;
    }
    return UPS_OK;
}

static ups_training_state state_at(int64_t step) {
    return (ups_training_state){.step = step, .seed = 1, .batch_size = 2, .score = NAN, .running_loss = 0.5};
}

/* What one optimizer saved, read by members of any number; what they save of a buffer each is what it was. */
CLAIM(a_checkpoint_of_one_is_read_by_any_number_and_written_by_any_number) {
    group alone = begin(rules(UPS_OPTIMIZER_MUON), UPS_BF16, 1);
    for (int64_t step = 0; step < STEPS; step++) take_step(&alone, step);
    ups_training_state at_end = state_at(STEPS);
    ok(ups_checkpoint_save(scratch("one"), &at_end, alone.members[0].parameters, alone.members[0].optimizer, NULL,
                           &failure));
    for (int32_t count = 2; count <= 5; count++) {
        group g = begin(alone.config, UPS_BF16, count);
        for (int32_t i = 0; i < count; i++) {
            ups_training_state read = state_at(0);
            ok(ups_checkpoint_read(scratch("one"), &read, g.members[i].parameters, g.members[i].optimizer, &failure));
            assert_int_equal(read.step, STEPS);
        }
        assert_equal_groups(&g, &alone);
        int buffer_count;
        ups_parameter_buffer buffers[UPS_OPTIMIZER_MAX_BUFFERS];
        float *kept = gather_kept(&g, &buffer_count);
        ups_optimizer_buffers(g.members[0].optimizer, buffers);
        for (int b = 0; b < buffer_count; b++) {
            char *files[2];
            size_t bytes[2];
            bringing with = {&g.shares, kept + b * g.elements};
            const ups_parameter_gather gather = {bring, &with, .writes = true};
            ok(ups_parameters_save_buffers(g.members[0].parameters, NULL, &buffers[b], 1, &gather, NULL,
                                           scratch("shared.safetensors"), &failure));
            ups_parameter_buffer whole[UPS_OPTIMIZER_MAX_BUFFERS];
            ups_optimizer_buffers(alone.members[0].optimizer, whole);
            ok(ups_parameters_save_buffers(alone.members[0].parameters, NULL, &whole[b], 1, NULL, NULL,
                                           scratch("whole.safetensors"), &failure));
            ok(ups_read_file(scratch("shared.safetensors"), 1 << 24, &files[0], &bytes[0], &failure));
            ok(ups_read_file(scratch("whole.safetensors"), 1 << 24, &files[1], &bytes[1], &failure));
            assert_int_equal(bytes[0], bytes[1]);
            assert_memory_equal(files[0], files[1], bytes[0]);
            free(files[0]), free(files[1]);
        }
        free(kept);
        end(&g);
    }
    end(&alone);
}

int main(void) {
    return run_claims(make_scratch, remove_scratch, NULL);
}
