/* Which losses are taken at which step, and that an objective is the weighted sum of its terms. */
#include "model/devices/devices.h"
#include "model/update_channel.h"
#include "tests/model/claims.h"
#include "train/losses.h"

#include <math.h>

static ups_loss_config losses[UPS_MAX_LOSSES];

static ups_loss_config taken(double weight, int64_t every, int64_t from) {
    return (ups_loss_config){.weight = weight, .every = every, .from = from};
}

static void set(ups_loss_config a, ups_loss_config b, ups_loss_config c) {
    losses[0] = a, losses[1] = b, losses[2] = c;
}

CLAIM(a_loss_is_taken_from_its_step_on_every_so_many_steps_and_never_without_weight) {
    set(taken(1, 1, 0), taken(0.5, 3, 4), taken(0, 1, 0));
    for (int64_t step = 0; step < 30; step++) {
        unsigned expected = 1u | (step >= 4 && step % 3 == 0 ? 2u : 0u);
        assert_int_equal(ups_losses_due(losses, step), expected);
    }
}

CLAIM(a_weight_rises_in_equal_steps_from_where_its_loss_begins) {
    const ups_loss_config at_once = taken(1, 1, 5), warm = {.weight = 2, .every = 1, .from = 5, .warmup = 4};
    for (int64_t since = 0; since < 8; since++) {
        assert_true(ups_losses_ramp(&at_once, 5 + since) == 1.0f);
        assert_true(ups_losses_ramp(&warm, 5 + since) == (since < 3 ? 0.25f * (float)(since + 1) : 1.0f));
    }
    assert_true(ups_losses_ramp(&warm, INT64_MAX - 1) == 1.0f); /* as validations ask */
}

/* The same, by looking at every step. */
static int count_masks(int64_t steps, unsigned *masks) {
    int found = 0;
    for (int64_t step = 0; step < steps; step++) {
        unsigned mask = ups_losses_due(losses, step);
        bool known = false;
        for (int i = 0; i < found; i++) known = known || masks[i] == mask;
        if (!known) masks[found++] = mask;
    }
    return found;
}

CLAIM(the_sets_of_losses_that_occur_are_those_of_every_step_in_order) {
    unsigned found[UPS_MAX_LOSS_SETS], expected[UPS_MAX_LOSS_SETS];
    for (int64_t every = 1; every <= 4; every++) {
        for (int64_t from = 0; from <= 40; from += 5) {
            for (int64_t steps = 1; steps < 90; steps += 11) {
                set(taken(1, 2, 0), taken(1, every, from), taken(1, 5, from / 2));
                int count = count_masks(steps, expected);
                assert_int_equal(ups_losses_masks(losses, steps, found), count);
                assert_memory_equal(found, expected, (size_t)count * sizeof *found);
            }
        }
    }
}

CLAIM(a_run_of_nine_quadrillion_steps_is_looked_through_at_once) {
    set(taken(1, 1, 0), taken(1, 2, INT64_C(4000000000000000)), taken(0, 7, 0));
    unsigned masks[UPS_MAX_LOSS_SETS];
    assert_int_equal(ups_losses_masks(losses, INT64_C(9000000000000000), masks), 2);
    assert_int_equal(masks[0], 1);
    assert_int_equal(masks[1], 3);
}

CLAIM(more_sets_of_losses_than_a_run_may_have_are_told_apart_from_those_that_fit) {
    unsigned masks[UPS_MAX_LOSS_SETS];
    for (int i = 0; i < 6; i++) losses[i] = taken(1, i + 2, 0);
    assert_int_equal(ups_losses_masks(losses, 100000, masks), UPS_MAX_LOSS_SETS + 1);
    memset(losses, 0, sizeof losses);
}

/* Σ weight · mean over the batch of each term, for a number of terms that needs one sum, and that needs sums of sums.
 */
static void check_objective(int terms) {
    enum { BATCH = 3, WIDTH = 5 };
    ups_device *device = NULL;
    ok(ups_device_open(&(ups_device_options){.name = "auto", .threads = 1}, &device, &failure));
    ups_parameters *parameters = ups_parameters_create();
    ups_graph *graph = ups_graph_create(parameters, UPS_F32);
    ups_objective objective = {0};
    float values[UPS_MAX_TERMS][BATCH * WIDTH], zeros[BATCH * WIDTH] = {0};
    ups_value inputs[UPS_MAX_TERMS], target = ups_graph_input(graph, "target", UPS_F32, UPS_SHAPE(BATCH, WIDTH));
    double expected[BATCH] = {0}, parts[2] = {0}, total = 0;
    for (int i = 0; i < terms; i++) {
        char name[16];
        snprintf(name, sizeof name, "term%d", i);
        inputs[i] = ups_graph_input(graph, name, UPS_F32, UPS_SHAPE(BATCH, WIDTH));
        double weight = 0.25 * (i + 1);
        objective.loss = i % 2 ? 3 : 0;
        ups_objective_add(graph, &objective, ups_loss_mse(graph, inputs[i], target), weight);
        for (int b = 0; b < BATCH; b++) {
            double squares = 0;
            for (int k = 0; k < WIDTH; k++) {
                values[i][b * WIDTH + k] = (float)sin(1 + i + 3 * b + 7 * k);
                squares += (double)values[i][b * WIDTH + k] * (double)values[i][b * WIDTH + k];
            }
            expected[b] += weight * squares / WIDTH;
            parts[i % 2] += weight * squares / WIDTH;
            total += weight * squares / WIDTH / BATCH;
        }
    }
    ups_objective_close(graph, &objective);
    ups_value tasks = ups_graph_input(graph, "tasks", UPS_I32, UPS_SHAPE(BATCH));
    ups_graph_keep(graph, objective.total);
    ups_step *step = NULL;
    ok(ups_parameters_allocate(parameters, device, false, UPS_F32, 0, &failure));
    ok(ups_step_create(graph, device, &step, &failure));
    ok(ups_step_upload(step, target, zeros, sizeof zeros, &failure));
    for (int i = 0; i < terms; i++) {
        ok(ups_step_upload(step, inputs[i], values[i], sizeof values[i], &failure));
    }
    const int32_t task_of[BATCH] = {7, 0, 7}; /* the last window's task is the first one's */
    ok(ups_step_upload(step, tasks, task_of, sizeof task_of, &failure));
    ok(ups_step_run(step, &(ups_step_run_options){0}, &failure));
    ups_update_channel *channel = NULL;
    ups_update all;
    float sum;
    ok(ups_update_open(device, &channel, &failure));
    ok(ups_update_give(channel, &(ups_update_input){0}, &failure));
    ups_update *update = ups_update_memory(channel);
    ok(ups_objective_add_losses(&objective, step, device, BATCH, tasks, update, &failure));
    ok(ups_update_take(channel, &failure));
    ok(ups_update_read(channel, &all, &failure));
    ok(ups_step_download(step, objective.total, &sum, sizeof sum, &failure));
    assert_true(fabs(all.result.loss[7] - expected[0] - expected[2]) <= 1e-5 * (expected[0] + expected[2]));
    assert_true(fabs(all.result.loss[0] - expected[1]) <= 1e-5 * expected[1]);
    assert_int_equal(all.result.windows[7], 2);
    for (int i = 0; i < 2; i++) {
        assert_true(fabs(all.result.part[3 * i] - parts[i]) <= 1e-5 * total);
        assert_int_equal(all.result.part_windows[3 * i], i < terms ? BATCH : 0);
    }
    assert_int_equal(all.result.part_windows[1], 0);
    assert_int_equal(all.result.windows[0], 1);
    assert_int_equal(all.result.bad_micro_batch, 0);
    assert_true(fabs((double)sum - total) <= 1e-5 * total);
    ups_update_close(channel);
    ups_step_destroy(step);
    ups_graph_destroy(graph);
    ups_parameters_destroy(parameters);
    ups_device_close(device);
}

CLAIM(an_objective_is_the_weighted_sum_of_its_terms_in_all_and_of_every_window) {
    check_objective(1);
    check_objective(3);
    check_objective(UPS_MAX_INPUTS);
    check_objective(UPS_MAX_INPUTS + 1);
    check_objective(UPS_MAX_TERMS);
}

int main(void) {
    return run_claims(NULL, NULL, NULL);
}
