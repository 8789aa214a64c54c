/* The loss of consistency in time against its definition, from single applications of the same operator, and its
 * gradient against the definition's slopes; steps of one length and of different ones, with a rollout at hand and
 * without. */
#include "base/random.h"
#include "model/differentiate.h"
#include "tests/model/claims.h"
#include "tests/model/step_models.h"
#include "train/objectives/semigroup.h"

#include <math.h>

enum { BATCH = 3, TOKENS = 6, DIM = 8, ROW = TOKENS * DIM };

static const float TIME[BATCH][2] = {{0.1f, 0.4f}, {0.3f, 0.05f}, {0.2f, 0.2f}};

static ups_operator_options told_of_time(void) {
    ups_operator_options o = ups_operator_defaults();
    o.tokens = TOKENS;
    o.dim = DIM;
    o.hidden = 16;
    o.depth = 1;
    o.heads = 2;
    o.drop_path = 0;
    ok(ups_operator_check(&o, &failure));
    return o;
}

static void upload_z(ups_step *step, const ups_graph *graph, const float *z) {
    ok(ups_step_upload(step, ups_graph_find(graph, "z"), z, sizeof(float) * BATCH * ROW, &failure));
}

/* Latents that every graph here begins with. */
static void draw_z(float *z) {
    ups_random_fill_normal(ups_random_stream(2, UPS_RANDOM_TEST, 0), 1, z, BATCH * ROW);
}

/* The loss as a stage builds it: a rollout of `steps`, whose applications are told `times` times. */
static model loss_model(int steps, int64_t times) {
    const ups_operator_options o = told_of_time();
    model m = begin(UPS_F32);
    ups_value z = ups_graph_input(m.graph, "z", UPS_F32, UPS_SHAPE(BATCH, TOKENS, DIM)), states[2];
    ups_value dt = ups_graph_input(m.graph, "dt", UPS_F32, UPS_SHAPE(BATCH, times));
    ups_operator_rollout(m.graph, &o, &z, dt, UPS_NO_VALUE, UPS_NO_VALUE, steps, states);
    ups_objective objective = {0};
    ups_semigroup_add(m.graph, &objective, &o, &(ups_semigroup_input){z, dt, UPS_NO_VALUE, UPS_NO_VALUE}, states, steps,
                      1);
    ups_objective_close(m.graph, &objective);
    m.loss = objective.total;
    ups_graph_differentiate(m.graph, m.loss);
    ready(&m);
    float start[BATCH * ROW], told[BATCH * 2];
    draw_z(start);
    for (int b = 0; b < BATCH; b++)
        for (int64_t i = 0; i < times; i++) told[b * times + i] = TIME[b][i];
    upload_z(m.step, m.graph, start);
    ok(ups_step_upload(m.step, dt, told, sizeof *told * (size_t)(BATCH * times), &failure));
    return m;
}

/* z one application of `dt` later. */
static void apply(ups_step *step, const ups_graph *graph, ups_value next, const float *z, const float *dt, float *out) {
    upload_z(step, graph, z);
    ok(ups_step_upload(step, ups_graph_find(graph, "dt"), dt, sizeof *dt * BATCH, &failure));
    ok(ups_step_run(step, &(ups_step_run_options){0}, &failure));
    ok(ups_step_download(step, next, out, sizeof *out * BATCH * ROW, &failure));
}

/* Where one step of both lengths leads, and where two steps lead. */
typedef struct ends {
    float at_once[BATCH * ROW], two[BATCH * ROW];
} ends;

/* By the weights that `m` has now. */
static ends both_ways(const model *m, bool own_times) {
    const ups_operator_options o = told_of_time();
    ups_graph *graph = ups_graph_create(m->parameters, UPS_F32);
    ups_value z = ups_graph_input(graph, "z", UPS_F32, UPS_SHAPE(BATCH, TOKENS, DIM));
    ups_value dt = ups_graph_input(graph, "dt", UPS_F32, UPS_SHAPE(BATCH, 1));
    ups_value next = ups_operator_build(graph, &o, z, dt, UPS_NO_VALUE, UPS_NO_VALUE);
    ups_graph_keep(graph, next);
    ups_step *step;
    ok(ups_step_create(graph, device, &step, &failure));
    float first[BATCH], second[BATCH], both[BATCH], start[BATCH * ROW], one[BATCH * ROW];
    for (int b = 0; b < BATCH; b++) {
        first[b] = TIME[b][0];
        second[b] = TIME[b][own_times ? 1 : 0];
        both[b] = first[b] + second[b];
    }
    draw_z(start);
    ends e;
    apply(step, graph, next, start, first, one);
    apply(step, graph, next, one, second, e.two);
    apply(step, graph, next, start, both, e.at_once);
    ups_step_destroy(step);
    ups_graph_destroy(graph);
    return e;
}

static double distance(const float *a, const float *b) {
    double sum = 0;
    for (int i = 0; i < ROW; i++) sum += pow((double)a[i] - (double)b[i], 2);
    return sqrt(sum);
}

/* ½ (‖a − b°‖ / ‖b°‖ + ‖b − a°‖ / ‖a°‖), a and b the ends of one step and of two, the mean over the batch. Gradients
 * take what bears a ring, the target, as it is. */
static double loss_by_definition(const ends *moved, const ends *held) {
    const float nothing[ROW] = {0};
    double sum = 0;
    for (int row = 0; row < BATCH * ROW; row += ROW)
        sum += (distance(moved->at_once + row, held->two + row) / distance(held->two + row, nothing) +
                distance(moved->two + row, held->at_once + row) / distance(held->at_once + row, nothing)) /
               2;
    return sum / BATCH;
}

static void check_value(int steps, int64_t times) {
    model m = loss_model(steps, times);
    run(&m, train);
    const ends e = both_ways(&m, times > 1);
    const double expected = loss_by_definition(&e, &e);
    assert_true(expected > 0.01); /* lengths of steps count */
    assert_true(fabs((double)loss_of(&m) - expected) < 1e-5 * expected);
    end(m);
}

CLAIM(one_step_of_twice_the_length_is_held_against_two_steps) {
    check_value(1, 1);
    check_value(2, 1);
}

CLAIM(where_two_steps_differ_in_length_the_long_one_is_their_sum) {
    check_value(2, 2);
}

static void check_slopes(int steps, int64_t times) {
    enum { DIRECTIONS = 3 };
    const float size = 0.0005f;
    model m = loss_model(steps, times);
    const size_t count = (size_t)ups_parameters_elements(m.parameters);
    run(&m, train);
    const ends held = both_ways(&m, times > 1);
    float *gradients = gradients_of(&m), *values = values_of(&m), *moved = malloc(sizeof *moved * count);
    float *direction = malloc(sizeof *direction * count);
    for (uint32_t d = 0; d < DIRECTIONS; d++) {
        double predicted = 0, sides[2];
        ups_random_fill_normal(ups_random_stream(3, UPS_RANDOM_TEST, d), 1, direction, count);
        for (size_t i = 0; i < count; i++) predicted += (double)direction[i] * (double)gradients[i];
        for (int side = 0; side < 2; side++) {
            for (size_t i = 0; i < count; i++) moved[i] = values[i] + (side ? -size : size) * direction[i];
            upload_values(&m, moved);
            const ends e = both_ways(&m, times > 1);
            sides[side] = loss_by_definition(&e, &held);
        }
        const double measured = (sides[0] - sides[1]) / (2 * (double)size);
        if (!(fabs(measured - predicted) <= 1e-2 * (fabs(predicted) + 0.1)))
            fail_msg("%d steps: gradient %g, measured %g", steps, predicted, measured);
    }
    free(direction);
    free(moved);
    free(values);
    free(gradients);
    end(m);
}

CLAIM(gradients_go_into_the_long_step_and_into_both_short_ones) {
    check_slopes(1, 1);
    check_slopes(2, 1);
    check_slopes(2, 2);
}

int main(void) {
    return run_claims(open_device, close_device, NULL);
}
