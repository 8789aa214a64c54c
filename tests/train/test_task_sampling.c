/* Shares of tasks during training: what difficulty makes of validation losses, when tasks enter, and that a checkpoint
 * brings all of it back. The order of draws that follows is the sampler's, which has tests of its own. */
#include "tests/model/claims.h"
#include "train/data/task_sampling.h"

#include <math.h>

enum { TASKS = 3, DRAWS = 6, ACCUMULATION = 3 };
/* Steps from a decision to its effect. */
enum { LEAD = (UPS_SAMPLING_LEAD + ACCUMULATION - 1) / ACCUMULATION };

static ups_task_config tasks[TASKS];
static ups_run_config config;
static const ups_training_config training = {.steps = 1000, .accumulation = ACCUMULATION, .validate_every = 10};

static int set_up(void **state) {
    static char *const names[] = {"wave", "shock", "vortex"};
    for (int k = 0; k < TASKS; k++) tasks[k] = (ups_task_config){.name = names[k]};
    config = (ups_run_config){.tasks = tasks, .task_count = TASKS};
    config.data.strategy = UPS_SAMPLER_DIFFICULTY;
    config.data.difficulty = (ups_difficulty_config){.smoothing = 0.5, .power = 1, .floor = 0.25, .ceiling = 4};
    return 0;
}

static ups_task_sampling *make(void) {
    const ups_sampled_task sampled[TASKS] = {{&tasks[0], 100}, {&tasks[1], 400}, {&tasks[2], 1600}};
    ups_task_sampling *sampling = NULL;
    ok(ups_task_sampling_create(&config, &training, DRAWS, sampled, TASKS, &sampling, &failure));
    return sampling;
}

/* The phase decided after a step, NULL for none. */
static const ups_sampler_phase *after(ups_task_sampling *sampling, int64_t step, const double *losses) {
    const ups_sampler_phase *decided = NULL;
    ok(ups_task_sampling_advance(sampling, step, losses, &decided, &failure));
    return decided;
}

static int64_t begins(int64_t step) {
    return step * ACCUMULATION * DRAWS;
}

static void is_shared(const ups_sampler_phase *phase, double a, double b, double c) {
    const double wanted[TASKS] = {a, b, c}, total = a + b + c;
    assert_non_null(phase);
    for (int k = 0; k < TASKS; k++) {
        double share = (double)phase->shares[k] / UPS_SAMPLER_SHARES;
        if (fabs(share - wanted[k] / total) > 1.0 / UPS_SAMPLER_SHARES)
            fail_msg("task %d has %g of the draws where %g was expected", k, share, wanted[k] / total);
    }
}

CLAIM(strategies_that_never_change_need_no_phases) {
    static const ups_sampler_strategy fixed[] = {UPS_SAMPLER_PROPORTIONAL, UPS_SAMPLER_BALANCED,
                                                 UPS_SAMPLER_TEMPERATURE};
    for (int i = 0; i < 3; i++) {
        int64_t count = 1;
        config.data.strategy = fixed[i];
        assert_false(ups_task_sampling_changes(&config));
        ups_task_sampling *sampling = make();
        for (int64_t step = 1; step < 100; step++) assert_null(after(sampling, step, (double[]){1, 2, 3}));
        ups_task_sampling_phases(sampling, &count);
        assert_int_equal(count, 0);
        ups_task_sampling_destroy(sampling);
    }
}

CLAIM(a_task_of_higher_validation_loss_is_drawn_more_often_a_lead_after_it_was_measured) {
    ups_task_sampling *sampling = make();
    int64_t count;
    const ups_sampler_phase *phases = ups_task_sampling_phases(sampling, &count);
    assert_int_equal(count, 1);
    assert_int_equal(phases[0].position, 0);
    is_shared(&phases[0], 1, 1, 1);
    for (int64_t step = 1; step < 10; step++) assert_null(after(sampling, step, NULL));
    const ups_sampler_phase *decided = after(sampling, 10, (double[]){1, 2, 3});
    is_shared(decided, 1, 2, 3);
    assert_int_equal(decided->position, begins(10 + LEAD));
    assert_true(decided->position / DRAWS - 10 * ACCUMULATION >= UPS_SAMPLING_LEAD); /* batches */
    assert_null(after(sampling, 11, NULL));
    ups_task_sampling_destroy(sampling);
}

CLAIM(losses_are_averaged_over_validations) {
    config.data.difficulty.smoothing = 0.75;
    ups_task_sampling *sampling = make();
    after(sampling, 10, (double[]){1, 1, 1});
    is_shared(after(sampling, 20, (double[]){5, 1, 1}), 2, 1, 1); /* 0.75·1 + 0.25·5 */
    is_shared(after(sampling, 30, (double[]){6, 1, 1}), 3, 1, 1); /* 0.75·2 + 0.25·6 */
    ups_task_sampling_destroy(sampling);
}

CLAIM(the_loss_enters_by_its_power_between_floor_and_ceiling) {
    ups_task_sampling *sampling = make();
    config.data.difficulty.ceiling = 2;
    is_shared(after(sampling, 10, (double[]){1e-6, 1, 1e6}), 0.25, 0.25, 2);
    ups_task_sampling_destroy(sampling);
    config.data.difficulty = (ups_difficulty_config){.smoothing = 0, .power = 2, .floor = 0.01, .ceiling = 100};
    sampling = make();
    is_shared(after(sampling, 10, (double[]){1, 2, 3}), 1, 4, 9);
    config.data.difficulty.power = 0;
    is_shared(after(sampling, 20, (double[]){1, 2, 3}), 1, 1, 1);
    ups_task_sampling_destroy(sampling);
}

CLAIM(weights_multiply_and_tasks_without_a_finite_validation_loss_count_as_the_mean) {
    tasks[1].weight = 2;
    ups_task_sampling *sampling = make();
    is_shared(after(sampling, 10, (double[]){1, NAN, 3}), 0.5, 2, 1.5);
    is_shared(after(sampling, 20, (double[]){1, INFINITY, 1}), 2.0 / 3, 2, 4.0 / 3); /* averages 1 and 2 */
    assert_null(after(sampling, 30, (double[]){NAN, NAN, NAN}));
    ups_task_sampling_destroy(sampling);
}

/* Share of a task at a step, by the phases. */
static double share_at(ups_task_sampling *sampling, int k, int64_t step) {
    int64_t count;
    const ups_sampler_phase *phases = ups_task_sampling_phases(sampling, &count);
    double share = NAN;
    for (int64_t p = 0; p < count && phases[p].position <= begins(step); p++) {
        share = (double)phases[p].shares[k] / UPS_SAMPLER_SHARES;
    }
    return share;
}

CLAIM(a_task_enters_at_its_step_and_rises_to_its_share) {
    config.data.strategy = UPS_SAMPLER_BALANCED;
    tasks[1].from = 7; /* within the first lead, and behind it */
    tasks[2].from = 100;
    tasks[2].ramp = 64;
    assert_true(ups_task_sampling_changes(&config));
    ups_task_sampling *sampling = make();
    for (int64_t step = 1; step <= 200; step++) after(sampling, step, NULL);
    assert_true(share_at(sampling, 1, 6) == 0);
    assert_true(share_at(sampling, 1, 7) == 0.5);
    assert_true(share_at(sampling, 2, 99) == 0);
    double before = 0;
    for (int64_t step = 100; step <= 164; step++) {
        double share = share_at(sampling, 2, step);
        assert_true(share > 0 && share >= before && share <= 0.334);
        before = share;
    }
    assert_true(share_at(sampling, 2, 120) < 0.2 && share_at(sampling, 2, 163) < 0.333);
    assert_true(fabs(share_at(sampling, 2, 164) - 1.0 / 3) < 1e-3);
    int64_t count;
    ups_task_sampling_phases(sampling, &count);
    assert_true(count <= 2 + 17); /* one a stair */
    ups_task_sampling_destroy(sampling);
}

/* Losses as validations could find them. */
static void losses_of(int64_t step, double *losses) {
    for (int k = 0; k < TASKS; k++)
        losses[k] = 1 / (1.0 + (double)(step * (k + 1))) + 0.1 * k + 0.01 * sin((double)step);
}

static void take(ups_task_sampling *sampling, int64_t first, int64_t last) {
    for (int64_t step = first; step <= last; step++) {
        double losses[TASKS];
        losses_of(step, losses);
        after(sampling, step, step % 10 == 0 ? losses : NULL);
    }
}

CLAIM(a_run_that_goes_on_from_its_checkpoint_decides_what_it_would_have_decided) {
    tasks[2].from = 40;
    tasks[2].ramp = 33;
    ups_task_sampling *whole = make();
    take(whole, 1, 300);
    int64_t expected, count;
    const ups_sampler_phase *all = ups_task_sampling_phases(whole, &expected);
    assert_true(expected > 30);
    for (int64_t stop = 0; stop < 300; stop += 7) {
        ups_task_sampling *stopped = make(), *resumed = make();
        take(stopped, 1, stop);
        json_t *json = ups_task_sampling_to_json(stopped);
        char *text = json_dumps(json, JSON_INDENT(2)); /* as a file has it */
        json_t *read = json_loads(text, 0, NULL);
        ok(ups_task_sampling_from_json(resumed, read, "latest.json", &failure));
        take(resumed, stop + 1, 300);
        const ups_sampler_phase *phases = ups_task_sampling_phases(resumed, &count);
        assert_int_equal(count, expected);
        for (int64_t p = 0; p < count; p++) {
            assert_int_equal(phases[p].position, all[p].position);
            assert_memory_equal(phases[p].shares, all[p].shares, TASKS * sizeof(int32_t));
        }
        free(text);
        json_decref(json);
        json_decref(read);
        ups_task_sampling_destroy(stopped);
        ups_task_sampling_destroy(resumed);
    }
    ups_task_sampling_destroy(whole);
}

static void refuses(const char *key, json_t *value, ups_status status, const char *part) {
    ups_task_sampling *from = make(), *to = make();
    json_t *json = ups_task_sampling_to_json(from);
    json_object_set_new(json, key, value);
    refused(ups_task_sampling_from_json(to, json, "latest.json", &failure), status, "latest.json", part);
    json_decref(json);
    ups_task_sampling_destroy(from);
    ups_task_sampling_destroy(to);
}

CLAIM(checkpoints_that_the_order_could_not_go_on_from_are_refused) {
    refuses("strategy", json_string("balanced"), UPS_ERR_STALE, "begun with data.sampling: balanced");
    refuses("draws_per_step", json_integer(17), UPS_ERR_STALE, "17 draws a step");
    refuses("tasks", json_pack("[s, s, s]", "shock", "wave", "vortex"), UPS_ERR_STALE, "in another order");
    refuses("phases", json_array(), UPS_ERR_STALE, "from or ramp");
    refuses("phases", json_pack("[{s:i, s:[i, i]}]", "draw", 0, "shares", 1, 2), UPS_ERR_FORMAT, "damaged");
    refuses("phases", json_pack("[{s:i, s:[i, i, i]}]", "draw", 0, "shares", 1, 2, -1), UPS_ERR_FORMAT, "damaged");
}

CLAIM(what_is_decided_is_told_in_words_and_numbers) {
    ups_task_sampling *sampling = make();
    char text[200];
    after(sampling, 10, (double[]){1, 1, 2});
    ups_task_sampling_describe(sampling, text, sizeof text);
    assert_string_equal(text, "from step 32 on: wave 25 %, shock 25 %, vortex 50 %");
    json_t *report = ups_task_sampling_report(sampling);
    assert_int_equal(json_integer_value(json_object_get(report, "from_step")), 32);
    assert_true(json_real_value(json_object_get(json_object_get(report, "shares"), "vortex")) == 0.5);
    assert_true(json_real_value(json_object_get(json_object_get(report, "difficulty"), "vortex")) == 2);
    json_decref(report);
    ups_task_sampling_destroy(sampling);
}

int main(void) {
    return run_claims(set_up, NULL, set_up);
}
