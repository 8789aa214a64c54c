/* The training loop, driven with a model small enough to follow by hand: a weight vector pulled towards a target. When
 * what is called, what stops it, and that a stopped loop goes on as if it had not stopped. */
#include "base/files.h"
#include "base/system/cancel.h"
#include "model/parameters/parameters.h"
#include "tests/model/claims.h"

#include "model/devices/devices.h"
#include "tests/base/capture.h"
#include "tests/model/on_device.h"
#include "train/loop.h"

#include <math.h>

enum { WEIGHTS = 8, MOST_CALLS = 4096, FLOPS = 1000 /* of a micro-batch */ };

static ups_device *device;
static const char *const names[] = {"even", "odd"};

typedef struct pull {
    ups_parameters *parameters;
    ups_optimizer *optimizer;
    ups_training_config training;
    ups_training_state state;
    const char *output; /* folder of the run */
    bool zero_gradients, validates_nothing;
    double at_peak;    /* seconds of a micro-batch's arithmetic on a card; 0: it is not known */
    double falling;    /* by how much the score is lower from validation to validation */
    float spike_again; /* what the loss of step spike_again_at is larger by */
    int64_t bad_loss_at, bad_gradient_at, spike_at, spike_again_at, cancel_at; /* optimizer steps; -1: never */
    ups_micro_batch calls[MOST_CALLS];
    float seeds[MOST_CALLS];
    int call_count, validations;
} pull;

static pull *begin(int64_t steps) {
    pull *p = calloc(1, sizeof *p);
    p->training = (ups_training_config){.steps = steps,
                                        .batch_size = 2,
                                        .accumulation = 1,
                                        .log_every = 10,
                                        .optimizer = {.learning_rate = 0.05,
                                                      .beta1 = 0.9,
                                                      .beta2 = 0.99,
                                                      .epsilon = 1e-8,
                                                      .ema_decay = 0.9,
                                                      .schedule = UPS_SCHEDULE_COSINE}};
    p->state =
        (ups_training_state){.seed = 1, .batch_size = 4, .score = NAN, .interval = {.tasks = 2, .task_names = names}};
    p->output = "run";
    p->bad_loss_at = p->bad_gradient_at = p->spike_at = p->spike_again_at = p->cancel_at = -1;
    p->parameters = ups_parameters_create();
    ups_parameters_add(p->parameters, "weight", 1, (int64_t[]){WEIGHTS},
                       (ups_init){.kind = UPS_INIT_NORMAL, .scale = 1});
    ok(ups_parameters_allocate(p->parameters, device, true, UPS_F32, 3, &failure));
    ok(ups_optimizer_create(&p->training.optimizer, device, p->parameters, NULL, &p->optimizer, &failure));
    return p;
}

static void end(pull *p) {
    ups_optimizer_destroy(p->optimizer);
    ups_parameters_destroy(p->parameters);
    free(p);
}

static float *weights_of(const pull *p) {
    return read_device(device, ups_parameters_values(p->parameters), WEIGHTS * sizeof(float));
}

static void assert_same(const float *a, const float *b) {
    float *left = read_device(device, a, WEIGHTS * sizeof *a), *right = read_device(device, b, WEIGHTS * sizeof *b);
    assert_memory_equal(left, right, WEIGHTS * sizeof *a);
    free(left), free(right);
}

/* Loss Σ (w − target)² / 2 with a target of the micro-batch's own; gradients written or added as asked. */
static ups_status micro_batch(void *context, const ups_micro_batch *micro, ups_error *error) {
    pull *p = context;
    float *w = weights_of(p), *there = ups_parameters_gradients(p->parameters);
    float *g = read_device(device, there, WEIGHTS * sizeof *g);
    micro->trained[0] = true;
    micro->arithmetic->flops += FLOPS;
    micro->arithmetic->at_peak += p->at_peak;
    ups_update *update = read_device(device, micro->update, sizeof *update);
    const float seed = update->state.loss_scale * update->input.share; /* of backward */
    double loss = 0;
    p->seeds[p->call_count] = seed;
    p->calls[p->call_count++] = *micro;
    for (int i = 0; i < WEIGHTS; i++) {
        float target = 0.25f * (float)i + 0.01f * (float)((micro->step * 7 + micro->index * 3 + i) % 5);
        float gradient = (w[i] - target) * seed;
        g[i] = micro->accumulate ? g[i] + gradient : gradient;
        loss += 0.5 * (double)(w[i] - target) * (double)(w[i] - target);
    }
    if (micro->step == p->bad_loss_at) loss = NAN;
    if (micro->step == p->spike_at) loss += 1000;
    if (micro->step == p->spike_again_at) loss += p->spike_again;
    if (micro->step == p->bad_gradient_at) g[3] = INFINITY;
    for (int i = 0; i < WEIGHTS && ups_optimizer_scales_losses(p->optimizer); i++)
        g[i] = fabsf(g[i]) > 65504 ? INFINITY : g[i]; /* as fp16 tensors would */
    if (micro->step == p->cancel_at) ups_cancel_request();
    update->result.loss[micro->step % 2] += 2 * loss;
    update->result.windows[micro->step % 2] += 2;
    if (!isfinite(loss)) update->result.bad_micro_batch = micro->index + 1;
    write_device(device, there, g, WEIGHTS * sizeof *g);
    write_device(device, &micro->update->result, &update->result, sizeof update->result);
    free(w), free(g), free(update);
    return UPS_OK;
}

static ups_status validate(void *context, ups_loss_sums *sums, ups_error *error) {
    pull *p = context;
    p->validations++;
    if (p->validates_nothing) return UPS_OK;
    sums->sum[0] += 2 - 4 * p->falling * (p->validations - 1); /* of the even task alone */
    sums->count[0] += 4;
    sums->windows += 4;
    return UPS_OK;
}

/* Batches of the last two steps alone can be named. */
static void describe_batch(void *context, int64_t step, int64_t index, char *text, size_t bytes) {
    const pull *p = context;
    assert_true(p->calls[p->call_count - 1].step - step <= 1);
    snprintf(text, bytes, "even: tensor[7] frame %lld, batch %lld", (long long)step, (long long)index);
}

static ups_status run(pull *p, ups_error *error) {
    ups_loop_stage stage = {.name = "pull",
                            .context = p,
                            .micro_batch = micro_batch,
                            .validate = validate,
                            .describe_batch = describe_batch,
                            .zero_gradients = p->zero_gradients};
    ups_loop_options options = {.training = &p->training,
                                .seed = 1,
                                .output = scratch(p->output),
                                .resume = &p->state,
                                .device = device,
                                .parameters = p->parameters,
                                .optimizer = p->optimizer,
                                .task_names = names,
                                .task_count = 2};
    error->message[0] = '\0';
    return ups_loop_run(&options, &stage, error);
}

static char *read_metrics(void) {
    char *text;
    size_t length;
    ok(ups_read_file(scratch("run/metrics.jsonl"), 1 << 20, &text, &length, &failure));
    return text;
}

static int count_lines(const char *part) {
    char *text = read_metrics(), *rest;
    int count = 0;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        count += strstr(line, part) != NULL;
    }
    free(text);
    return count;
}

/* The lines of metrics.jsonl with a rate, a new array. */
static json_t *timed(void) {
    char *text = read_metrics(), *rest;
    json_t *lines = json_array();
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *json = json_loads(line, 0, NULL);
        if (json_object_get(json, "step_s")) json_array_append(lines, json);
        json_decref(json);
    }
    free(text);
    return lines;
}

static double number(const json_t *line, const char *key) {
    assert_non_null(json_object_get(line, key));
    return json_number_value(json_object_get(line, key));
}

/* metrics.jsonl without its rates, which are the clock's, and the machine's memory; a new array. */
static json_t *logged(void) {
    char *text = read_metrics(), *rest;
    json_t *lines = json_array();
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        json_t *json = json_loads(line, 0, NULL);
        json_object_del(json, "samples_per_s");
        json_object_del(json, "step_s");
        json_object_del(json, "time");
        json_object_del(json, "data_wait_share");
        json_object_del(json, "flops_per_s");
        json_object_del(json, "memory");
        json_object_del(json, "machine");
        json_array_append_new(lines, json);
    }
    free(text);
    return lines;
}

static int open_device(void **state) {
    return make_scratch(state) != 0 ||
           ups_device_open(&(ups_device_options){.name = "auto", .threads = 1}, &device, NULL) != UPS_OK;
}

static int close_device(void **state) {
    ups_device_close(device);
    return remove_scratch(state);
}

static int forget(void **state) {
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'/*", scratch_directory);
    ups_cancel_reset();
    return system(command);
}

CLAIM(micro_batches_come_in_order_and_share_one_step) {
    pull *p = begin(4);
    p->training.accumulation = 3;
    ok(run(p, &failure));
    assert_int_equal(p->call_count, 12);
    for (int i = 0; i < 12; i++) {
        assert_int_equal(p->calls[i].step, i / 3);
        assert_int_equal(p->calls[i].index, i % 3);
        assert_int_equal(p->calls[i].accumulate, i % 3 > 0);
    }
    end(p);
}

CLAIM(several_graphs_add_to_gradients_that_were_zeroed_and_end_with_the_same_weights) {
    pull *one = begin(6), *several = begin(6);
    one->training.accumulation = several->training.accumulation = 2;
    several->zero_gradients = true;
    ok(run(one, &failure));
    ok(run(several, &failure));
    for (int i = 0; i < several->call_count; i++) assert_true(several->calls[i].accumulate);
    assert_same(ups_parameters_values(one->parameters), ups_parameters_values(several->parameters));
    end(one);
    end(several);
}

CLAIM(lines_validations_and_checkpoints_come_when_they_fall_due_and_at_the_end) {
    pull *p = begin(25);
    p->training.validate_every = 8;
    p->training.checkpoint_every = 100;
    ok(run(p, &failure));
    assert_int_equal(count_lines("\"loss\""), 3); /* steps 10, 20, 25 */
    assert_int_equal(p->validations, 4);          /* steps 8, 16, 24, 25 */
    assert_int_equal(count_lines("\"validation\""), 4);
    assert_int_equal(count_lines("\"even\":0.5"), 4);
    assert_true(ups_path_exists(scratch("run/checkpoints/pull/step-00000025.safetensors")));
    end(p);
}

CLAIM(tasks_without_validation_windows_are_left_out_and_a_validation_of_none_has_no_score) {
    pull *p = begin(2), *none = begin(2);
    ok(run(p, &failure));
    assert_int_equal(count_lines("\"validation\":{\"even\":0.5},\"score\":0.5"), 1);
    none->validates_nothing = true;
    forget(state);
    ok(run(none, &failure));
    assert_int_equal(count_lines("\"validation\":{},\"score\":null"), 1);
    end(p);
    end(none);
}

/* Every validation has the score 0.5: the first is the best. */
CLAIM(a_stage_whose_validations_get_no_better_ends_and_goes_on_with_more_patience) {
    pull *p = begin(50), *whole = begin(50);
    p->training.validate_every = whole->training.validate_every = 8;
    p->training.patience = 2;
    capture caught = capture_begin(0);
    ups_status status = run(p, &failure);
    const char *said = capture_end(&caught);
    ok(status);
    assert_contains(said, "pull, step 8 of 50: validation 0.5 (even 0.5); the best so far");
    assert_contains(said, "pull, step 24 of 50: validation 0.5 (even 0.5); best 0.5 at step 8");
    assert_contains(said, "pull: ended at step 24 of 50: 2 validations in a row were no better than 0.5 at step 8");
    assert_int_equal(p->call_count, 24);
    assert_int_equal(count_lines("\"step\":24,\"loss\""), 1); /* no line fell due */
    assert_true(ups_path_exists(scratch("run/checkpoints/pull/step-00000024.safetensors")));
    assert_true(ups_path_exists(scratch("run/checkpoints/pull/best.safetensors")));
    ok(ups_checkpoint_load(scratch("run/checkpoints/pull"), &p->state, p->parameters, p->optimizer, &failure));
    assert_int_equal(p->state.best.step, 8);
    assert_int_equal(p->state.best.stale, 2);
    ok(run(p, &failure)); /* has ended */
    assert_int_equal(p->call_count, 24);
    p->training.patience = 0;
    ok(run(p, &failure));
    forget(state);
    ok(run(whole, &failure));
    assert_same(ups_parameters_values(p->parameters), ups_parameters_values(whole->parameters));
    end(p);
    end(whole);
}

CLAIM(only_a_score_that_is_lower_by_min_delta_is_better) {
    pull *p = begin(30);
    p->training.validate_every = 5;
    p->training.min_delta = 0.1;
    p->falling = 0.03; /* 0.5, 0.47, 0.44, 0.41, 0.38, 0.35: lower by 0.1 at step 25 */
    ok(run(p, &failure));
    ok(ups_checkpoint_load(scratch("run/checkpoints/pull"), &p->state, p->parameters, p->optimizer, &failure));
    assert_int_equal(p->state.best.step, 25);
    assert_int_equal(p->state.best.stale, 1);
    assert_int_equal(count_lines("\"best_step\":5,"), 4);
    end(p);
}

CLAIM(zero_means_only_at_the_end) {
    pull *p = begin(25);
    ok(run(p, &failure));
    assert_int_equal(p->validations, 1);
    assert_int_equal(count_entries(scratch("run/checkpoints/pull"), "step-"), 1);
    end(p);
}

/* A schedule that does not know how long the run is. */
static void hold_rate(pull *p) {
    ups_optimizer_destroy(p->optimizer);
    p->training.optimizer.schedule = UPS_SCHEDULE_CONSTANT;
    ok(ups_optimizer_create(&p->training.optimizer, device, p->parameters, NULL, &p->optimizer, &failure));
}

/* The run stops at step 17 with a sentence, and its last checkpoint, of step 15, is what it was. */
static void stops_at_17(pull *p, const char *what) {
    p->training.checkpoint_every = 5;
    hold_rate(p);
    refused(run(p, &failure), UPS_ERR_NUMERIC, "pull, step 17", what, "even: tensor[7] frame 17, batch 0",
            "pull.optimizer.learning_rate");
    /* Step 18 was issued before the result of 17 was read, and changed nothing either. */
    assert_int_equal(p->calls[p->call_count - 1].step, 18);
    pull *before = begin(25); /* as long as the steps before */
    before->training.steps = 17;
    before->training.log_every = 0;
    before->output = "before";
    hold_rate(before);
    ok(run(before, &failure));
    assert_same(ups_parameters_values(p->parameters), ups_parameters_values(before->parameters));
    end(before);
    assert_int_equal(count_entries(scratch("run/checkpoints/pull"), "step-"), 1);
    assert_true(ups_path_exists(scratch("run/checkpoints/pull/step-00000015.safetensors")));
    end(p);
}

CLAIM(a_loss_that_is_not_finite_stops_the_run_and_names_step_and_samples) {
    pull *p = begin(25);
    p->bad_loss_at = 17;
    stops_at_17(p, "loss is not finite");
}

CLAIM(a_gradient_that_is_not_finite_stops_the_run_before_it_reaches_a_weight) {
    pull *p = begin(25);
    p->bad_gradient_at = 17;
    stops_at_17(p, "gradient is not finite");
}

/* As fp16 does; 0: not at all. */
static void scale_losses(pull *p, float first) {
    if (first > 0) ok(ups_optimizer_scale_losses(p->optimizer, first, UPS_LOSS_SCALE_GOOD_STEPS, &failure));
}

CLAIM(in_fp16_steps_that_overflow_are_skipped_until_the_scale_fits) {
    pull *plain = begin(40), *p = begin(40);
    scale_losses(p, 0x1p20f);
    ok(run(plain, &failure));
    forget(state);
    ok(run(p, &failure));
    json_t *lines = logged(), *first = json_array_get(lines, 0), *line;
    size_t i;
    int64_t skipped = json_integer_value(json_object_get(first, "skipped"));
    assert_true(skipped > 2 && skipped < 9);
    for (int call = 0; call < 40; call++) { /* every batch is seen, also those of skipped steps */
        assert_int_equal(p->calls[call].step, call);
        assert_true((double)p->seeds[call] == ldexp(0x1p20, -(int)(call < skipped ? call : skipped)));
    }
    json_array_foreach(lines, i, line) {
        if (!json_object_get(line, "loss")) continue;
        assert_int_equal(json_integer_value(json_object_get(line, "skipped")), skipped);
        assert_true(json_real_value(json_object_get(line, "loss_scale")) == ldexp(0x1p20, -(int)skipped));
    }
    double distance[2] = {0};
    float *ends[] = {weights_of(plain), weights_of(p)};
    for (int w = 0; w < WEIGHTS; w++) {
        const float target = 0.25f * (float)w + 0.02f;
        distance[0] += fabs((double)(ends[0][w] - target));
        distance[1] += fabs((double)(ends[1][w] - target));
    }
    assert_true(distance[1] < 2 * distance[0] + 0.5);
    free(ends[0]), free(ends[1]);
    json_decref(lines);
    end(plain);
    end(p);
}

/* However often the scale is halved: the gradient itself is at fault. */
CLAIM(in_fp16_a_gradient_that_never_is_finite_stops_the_run) {
    pull *p = begin(40);
    scale_losses(p, 8);
    const float large = 1e6f;
    write_device(device, ups_parameters_values(p->parameters), &large, sizeof large);
    refused(run(p, &failure), UPS_ERR_NUMERIC, "pull, step 3: the gradient is not finite",
            "fp16 holds no value beyond 65504");
    end(p);
}

CLAIM(a_loss_that_spikes_is_reported_with_its_samples) {
    pull *p = begin(140);
    p->training.spike_factor = 10;
    p->spike_at = 120;
    capture caught = capture_begin(0);
    ups_status status = run(p, &failure);
    const char *said = capture_end(&caught);
    ok(status);
    assert_contains(said, "step 120");
    assert_contains(said, "spiked");
    assert_contains(said, "even: tensor[7] frame 120");
    end(p);
}

/* A step of as large a loss as one before, or larger. */
static void check_spiking_again(float loss, int reports) {
    pull *p = begin(160);
    p->training.spike_factor = 10;
    p->spike_at = 120;
    p->spike_again_at = 140;
    p->spike_again = loss;
    capture caught = capture_begin(0);
    ups_status status = run(p, &failure);
    const char *said = capture_end(&caught);
    ok(status);
    assert_contains(said, "step 120: the loss spiked");
    assert_int_equal(strstr(said, "step 140: the loss spiked") != NULL, reports == 2);
    assert_int_equal(strstr(said, "the loss spiked in 2 steps; those larger than all before were reported") != NULL,
                     reports == 1);
    end(p);
}

CLAIM(a_spike_is_reported_again_only_if_it_is_larger) {
    check_spiking_again(1000, 1);
    check_spiking_again(1e6f, 2);
}

typedef void change(pull *p);

/* Cancelled in the middle of step `at`, loaded into a model of other weights, run to the end. */
static void check_resuming(void **state, float scale, change *prepare) {
    pull *whole = begin(40);
    whole->training.validate_every = 7;
    if (prepare) prepare(whole);
    scale_losses(whole, scale);
    ok(run(whole, &failure));
    json_t *expected = logged();
    forget(state);
    for (int64_t at = 0; at < 39; at += 13) { /* in the middle of lines, too */
        pull *stopped = begin(40), *resumed = begin(40);
        stopped->training.validate_every = resumed->training.validate_every = 7;
        if (prepare) prepare(stopped), prepare(resumed);
        scale_losses(stopped, scale), scale_losses(resumed, scale);
        stopped->cancel_at = at;
        refused(run(stopped, &failure), UPS_ERR_CANCELLED, "--resume");
        ups_cancel_reset();
        const float zeros[WEIGHTS] = {0};
        write_device(device, ups_parameters_values(resumed->parameters), zeros, sizeof zeros);
        ok(ups_checkpoint_load(scratch("run/checkpoints/pull"), &resumed->state, resumed->parameters,
                               resumed->optimizer, &failure));
        assert_int_equal(resumed->state.step, at + 1);
        resumed->validations = stopped->validations; /* their scores depend on how many there were */
        ok(run(resumed, &failure));
        assert_int_equal(resumed->calls[0].step, at + 1);
        assert_same(ups_parameters_values(resumed->parameters), ups_parameters_values(whole->parameters));
        assert_same(ups_optimizer_average(resumed->optimizer), ups_optimizer_average(whole->optimizer));
        json_t *found = logged();
        assert_true(json_equal(found, expected));
        json_decref(found);
        end(stopped);
        end(resumed);
        forget(state);
    }
    json_decref(expected);
    end(whole);
}

CLAIM(a_cancelled_run_resumes_to_the_same_bits_the_same_running_loss_and_the_same_lines) {
    check_resuming(state, 0, NULL);
    check_resuming(state, 0x1p20f, NULL); /* fp16, that skips its first steps */
}

/* The optimizer with the training's options as they are now. */
static void make_optimizer(pull *p) {
    ups_optimizer_destroy(p->optimizer);
    ok(ups_optimizer_create(&p->training.optimizer, device, p->parameters, NULL, &p->optimizer, &failure));
}

static void decay_late(pull *p) {
    p->training.optimizer.schedule = UPS_SCHEDULE_WSD;
    p->training.optimizer.decay_fraction = 0.65; /* of 40: from step 14 on, which is where one is stopped */
    make_optimizer(p);
}

static void cut_at_plateaus(pull *p) {
    p->training.optimizer.schedule = UPS_SCHEDULE_PLATEAU;
    p->training.optimizer.plateau_factor = 0.5;
    p->training.optimizer.plateau_patience = 1;
    p->falling = 0; /* every validation after the first is a cut */
    make_optimizer(p);
}

CLAIM(every_schedule_is_resumed_to_the_same_bits_and_the_same_rates) {
    check_resuming(state, 0, decay_late);
    check_resuming(state, 0, cut_at_plateaus);
    check_resuming(state, 0x1p20f, cut_at_plateaus);
}

/* The learning rate of the line at this step. */
static double logged_rate(int64_t step) {
    json_t *lines = logged(), *line;
    size_t i;
    double rate = NAN;
    json_array_foreach(lines, i, line) {
        json_t *told = json_object_get(line, "learning_rate");
        if (told && json_integer_value(json_object_get(line, "step")) == step) rate = json_real_value(told);
    }
    json_decref(lines);
    return rate;
}

CLAIM(validations_that_get_no_better_cut_the_rate_after_the_lines_before_them) {
    pull *p = begin(40);
    cut_at_plateaus(p);
    p->training.validate_every = 10;
    ok(run(p, &failure));
    const double expected[] = {0.05, 0.05, 0.025, 0.0125}; /* the cut at step 20 is of the steps after it */
    for (int i = 0; i < 4; i++) assert_true(logged_rate(10 * (i + 1)) == expected[i]);
    assert_int_equal(p->state.plateau.begun, false); /* the caller's state is where the run began */
    end(p);
}

/* A run of 20 steps whose decay is undone ends as one that had 40 from the beginning. */
CLAIM(more_steps_of_wsd_go_on_from_before_the_decay_as_if_they_had_always_been_there) {
    pull *whole = begin(40), *first = begin(20), *more = begin(40);
    decay_late(whole), decay_late(first), decay_late(more);
    whole->training.validate_every = first->training.validate_every = more->training.validate_every = 5;
    ok(run(whole, &failure));
    json_t *expected = logged(), *found;
    forget(state);
    ok(run(first, &failure));
    ok(ups_checkpoint_go_back(scratch("run/checkpoints/pull"), &failure));
    ok(ups_checkpoint_load(scratch("run/checkpoints/pull"), &more->state, more->parameters, more->optimizer, &failure));
    assert_int_equal(more->state.step, 7);
    ok(run(more, &failure));
    found = logged();
    assert_true(json_equal(found, expected));
    assert_same(ups_parameters_values(more->parameters), ups_parameters_values(whole->parameters));
    assert_same(ups_optimizer_average(more->optimizer), ups_optimizer_average(whole->optimizer));
    json_decref(found);
    json_decref(expected);
    end(whole), end(first), end(more);
}

/* The run ends between two lines that fall due, and is given more steps: those lines are as if it had had them. */
CLAIM(a_run_given_more_steps_averages_whole_intervals) {
    pull *whole = begin(40), *first = begin(33), *more = begin(40);
    hold_rate(whole), hold_rate(first), hold_rate(more);
    ok(run(whole, &failure));
    json_t *expected = logged(), *wanted = json_array_get(expected, 3), *found, *line;
    size_t i;
    assert_int_equal(json_integer_value(json_object_get(wanted, "step")), 40);
    forget(state);
    ok(run(first, &failure));
    ok(ups_checkpoint_load(scratch("run/checkpoints/pull"), &more->state, more->parameters, more->optimizer, &failure));
    ok(run(more, &failure));
    found = logged();
    bool same = false;
    json_array_foreach(found, i, line) same = same || json_equal(line, wanted);
    assert_true(same);
    json_decref(found);
    json_decref(expected);
    end(whole), end(first), end(more);
}

/* Also the lines after a validation, and the last one, whose steps are fewer. */
CLAIM(a_line_tells_the_arithmetic_of_its_own_steps) {
    pull *p = begin(25);
    p->training.accumulation = 3;
    p->training.validate_every = 5;
    p->at_peak = 1e-5;
    ok(run(p, &failure));
    json_t *lines = timed(), *line;
    size_t index;
    assert_int_equal(json_array_size(lines), 3);
    json_array_foreach(lines, index, line) {
        assert_float_equal(number(line, "flops_per_s") * number(line, "step_s"), 3 * FLOPS, 1e-3);
        assert_float_equal(number(line, "mfu") * number(line, "step_s"), 3e-5, 1e-9);
        const json_t *memory = json_object_get(line, "memory");
        assert_true(number(memory, "resident") > 0);
        assert_true(number(memory, "resident_peak") >= number(memory, "resident"));
        assert_int_equal(json_object_get(memory, "device") != NULL, device->class->memory != NULL);
    }
    json_decref(lines);
    end(p);
}

CLAIM(utilisation_is_told_of_known_cards_alone) {
    pull *p = begin(10);
    ok(run(p, &failure));
    json_t *lines = timed();
    assert_int_equal(json_array_size(lines), 1);
    assert_null(json_object_get(json_array_get(lines, 0), "mfu"));
    json_decref(lines);
    end(p);
}

CLAIM(a_run_that_goes_on_counts_from_where_it_goes_on) {
    pull *p = begin(25), *again = begin(25);
    p->cancel_at = 13;
    refused(run(p, &failure), UPS_ERR_CANCELLED, "--resume");
    ups_cancel_reset();
    ok(ups_checkpoint_load(scratch("run/checkpoints/pull"), &again->state, again->parameters, again->optimizer,
                           &failure));
    assert_int_equal(again->state.step, 14);
    ok(run(again, &failure));
    json_t *lines = timed(), *line;
    size_t index;
    assert_int_equal(json_array_size(lines), 3);
    json_array_foreach(lines, index, line) {
        assert_float_equal(number(line, "flops_per_s") * number(line, "step_s"), FLOPS, 1e-3);
    }
    json_decref(lines);
    end(p), end(again);
}

int main(void) {
    return run_claims(open_device, close_device, forget);
}
