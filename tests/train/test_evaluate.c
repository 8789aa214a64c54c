/* Evaluation and rollouts of tiny models with random weights, against the same computed one frame at a time with graphs
 * and formulas of the test's own. */
#include "base/progress.h"
#include "model/parameters/safetensors.h"
#include "tests/model/claims.h"
#include "tiny_models.h"
#include "train/data/origin.h"
#include "train/evaluation/evaluate.h"
#include "train/evaluation/rollout.h"
#include "train/networks.h"
#include <hdf5.h>
#include <math.h>
#include <sys/stat.h>

enum { LATENTS = 4 * 8, MOST_FRAMES = 8, MOST_ELEMENTS = 128 };

static tiny_run run;

static int open_run(void **state) {
    ups_progress_enable(false);
    if (make_scratch(state) != 0) return -1;
    tiny_run_open(&run, scratch_directory);
    return 0;
}

static int close_run(void **state) {
    tiny_run_close(&run);
    return remove_scratch(state);
}

static ups_surrogate *open_surrogate(int task, ups_surrogate_use use) {
    ups_surrogate_files files;
    ups_surrogate *surrogate;
    ok(ups_surrogate_find(run.config, NULL, &files, &failure));
    ok(ups_surrogate_open(run.config, run.tasks, task, run.device, &files, use, &surrogate, &failure));
    ups_surrogate_files_free(&files);
    return surrogate;
}

static ups_task_evaluation evaluate(int task) {
    ups_task_evaluation evaluation;
    ups_surrogate *surrogate = open_surrogate(task, (ups_surrogate_use){0});
    ok(ups_evaluate_task(run.config, run.tasks, task, UPS_SPLIT_COUNT, &(ups_evaluated){.surrogate = surrogate},
                         &evaluation, &failure));
    ups_surrogate_close(surrogate);
    return evaluation;
}

/* ---- the same, directly ---------------------------------------------------------------------------------------- */

/* What a trajectory's frames are predicted as: frame k of `out` is the field k steps after `start`. */
static void predict(tiny_models *models, const ups_sample *sample, int64_t stride, const float *truth, int64_t elements,
                    int64_t start, int64_t steps, float *out) {
    float latents[LATENTS];
    tiny_encode(models, truth + start * elements, latents);
    tiny_decode(models, latents, out);
    for (int64_t k = 1; k <= steps; k++) {
        double dt = sample->time[(start + k) * stride] - sample->time[(start + k - 1) * stride];
        tiny_advance(models, latents, dt, sample->parameters);
        tiny_decode(models, latents, out + k * elements);
    }
}

/* Means over windows and frames of one field's errors. */
typedef struct direct_sums {
    double rmse, nrmse, largest[MOST_FRAMES], mean_squares[MOST_FRAMES];
    int64_t count, windows, frames;
} direct_sums;

static void add(direct_sums *sums, const float *prediction, const float *truth, int64_t points, int64_t channels,
                int64_t channel, int64_t frame) {
    double squares = 0, truth_squares = 0, total = 0;
    for (int64_t p = 0; p < points; p++) {
        double e = (double)prediction[p * channels + channel] - (double)truth[p * channels + channel];
        squares += e * e;
        total += e;
        truth_squares += (double)truth[p * channels + channel] * (double)truth[p * channels + channel];
        if (fabs(e) > sums->largest[frame]) sums->largest[frame] = fabs(e);
    }
    sums->rmse += sqrt(squares / (double)points);
    sums->nrmse += sqrt(squares / truth_squares);
    sums->mean_squares[frame] += total / (double)points * (total / (double)points);
    sums->count++;
    if (frame == 0) sums->windows++;
    if (frame >= sums->frames) sums->frames = frame + 1;
}

static void assert_near(double found, double expected) {
    if (!(fabs(found - expected) <= 2e-5 * fabs(expected) + 1e-9))
        fail_msg("%.9g where %.9g is right", found, expected);
}

static void assert_metrics(const ups_pde_metrics_values *found, const direct_sums *sums) {
    double largest = 0, conserved = 0;
    for (int64_t f = 0; f < sums->frames; f++) {
        largest += sums->largest[f] / (double)sums->frames;
        conserved += sqrt(sums->mean_squares[f] / (double)sums->windows) / (double)sums->frames;
    }
    assert_int_equal(found->trajectories, sums->windows);
    assert_near(found->rmse, sums->rmse / (double)sums->count);
    assert_near(found->nrmse, sums->nrmse / (double)sums->count);
    assert_near(found->max_error, largest);
    assert_near(found->crmse, conserved);
}

/* One horizon of one field by the definition in evaluate.h. */
static void compare_horizon(const ups_task_evaluation *evaluation, int index, int task, int64_t channel) {
    const ups_horizon_evaluation *h = &evaluation->horizons[index];
    const ups_task *t = evaluation->task;
    const int64_t elements = ups_sample_frame_elements(&t->geometry), channels = t->geometry.channels;
    const int64_t start_every = run.config->evaluation.start_every;
    direct_sums sums[UPS_FORECASTS] = {0};
    tiny_models *models = tiny_models_open(&run, task);
    float predicted[MOST_FRAMES * MOST_ELEMENTS], again[MOST_ELEMENTS], latents[LATENTS];
    for (int64_t i = 0; i < t->splits.count[UPS_SPLIT_TEST]; i++) {
        ups_sample sample;
        ok(ups_source_describe(t->source, t->splits.samples[UPS_SPLIT_TEST][i], &sample, &failure));
        float *truth = tiny_truth(&run, task, t->splits.samples[UPS_SPLIT_TEST][i]);
        int64_t steps = h->steps ? h->steps : evaluation->steps;
        for (int64_t ahead = 0; ahead + steps <= evaluation->steps; ahead += start_every) {
            const int64_t start = evaluation->given - 1 + ahead;
            if (h->steps == 0 && ahead > 0) break;
            predict(models, &sample, t->config->stride, truth, elements, start, steps, predicted);
            for (int64_t k = h->steps ? steps : 1; k <= steps; k++) {
                int64_t frame = h->steps ? 0 : k - 1;
                const float *target = truth + (start + k) * elements;
                tiny_encode(models, target, latents);
                tiny_decode(models, latents, again);
                const float *forecasts[UPS_FORECASTS] = {predicted + k * elements, truth + start * elements, again};
                for (int f = 0; f < UPS_FORECASTS; f++) {
                    add(&sums[f], forecasts[f], target, elements / channels, channels, channel, frame);
                }
            }
        }
        free(truth);
    }
    tiny_models_close(models);
    for (int f = 0; f < UPS_FORECASTS; f++) assert_metrics(&h->fields[f][channel], &sums[f]);
}

/* ---- claims ---------------------------------------------------------------------------------------------------- */

CLAIM(errors_of_model_persistence_and_reconstruction_equal_direct_computation) {
    ups_task_evaluation evaluation = evaluate(WAVE);
    assert_int_equal(evaluation.steps, 4); /* nine stored frames, every other one */
    assert_int_equal(evaluation.trajectories, 3);
    assert_int_equal(evaluation.horizons[0].windows, 6); /* starts 0 and 2 */
    assert_int_equal(evaluation.horizons[1].windows, 3); /* three steps ahead: start 0 alone */
    assert_int_equal(evaluation.horizons[3].frames, 4);
    compare_horizon(&evaluation, 0, WAVE, 0);
    compare_horizon(&evaluation, 1, WAVE, 0);
    compare_horizon(&evaluation, 3, WAVE, 0);
    ups_task_evaluation_free(&evaluation);
}

CLAIM(given_frames_are_not_scored_and_horizons_count_from_the_last_of_them) {
    run.config->evaluation.given = 2;
    ups_task_evaluation evaluation = evaluate(WAVE), darcy = evaluate(DARCY);
    assert_int_equal(evaluation.given, 2);
    assert_int_equal(evaluation.steps, 3);
    assert_int_equal(evaluation.horizons[0].windows, 6); /* starts at frames 1 and 3 */
    assert_int_equal(evaluation.horizons[3].frames, 3);
    compare_horizon(&evaluation, 0, WAVE, 0);
    compare_horizon(&evaluation, 1, WAVE, 0);
    compare_horizon(&evaluation, 3, WAVE, 0);
    assert_int_equal(darcy.given, 1); /* what is given of a steady problem is one frame */
    assert_int_equal(darcy.steps, 1);
    compare_horizon(&darcy, 3, DARCY, 1);
    ups_task_evaluation_free(&evaluation);
    ups_task_evaluation_free(&darcy);
    ok(ups_evaluation_check(run.config, run.tasks, &failure));
    run.config->evaluation.given = 5;
    refused(ups_evaluation_check(run.config, run.tasks, &failure), UPS_ERR_CONFIG,
            "task wave: evaluation.given is 5, which leaves none of the 5 frames of its trajectories to be scored; at "
            "most 4 can be given");
    run.config->evaluation.given = 1;
}

CLAIM(fields_stored_channels_first_are_scored_field_by_field) {
    ups_task_evaluation evaluation = evaluate(DARCY);
    compare_horizon(&evaluation, 0, DARCY, 0);
    compare_horizon(&evaluation, 0, DARCY, 1);
    compare_horizon(&evaluation, 3, DARCY, 1);
    ups_task_evaluation_free(&evaluation);
}

CLAIM(a_field_that_never_changes_is_left_out_of_the_summary) {
    ups_task_evaluation evaluation = evaluate(DARCY);
    assert_false(evaluation.solution[0]);
    assert_true(evaluation.solution[1]);
    const ups_horizon_evaluation *h = &evaluation.horizons[0];
    assert_true(h->summary[UPS_FORECAST_MODEL].nrmse == h->fields[UPS_FORECAST_MODEL][1].nrmse);
    assert_true(h->fields[UPS_FORECAST_PERSISTENCE][0].rmse == 0);
    assert_near(h->summary[UPS_FORECAST_PERSISTENCE].nrmse, 1); /* Darcy's solution starts as zero */
    ups_task_evaluation_free(&evaluation);
}

CLAIM(a_horizon_beyond_the_data_has_no_windows) {
    ups_task_evaluation evaluation = evaluate(WAVE);
    assert_int_equal(evaluation.horizons[2].steps, 50);
    assert_int_equal(evaluation.horizons[2].windows, 0);
    json_t *json;
    ok(ups_task_evaluation_json(&evaluation, &json, &failure));
    const json_t *horizon = json_array_get(json_object_get(json, "horizons"), 2);
    assert_null(json_object_get(horizon, "model"));
    assert_non_null(json_object_get(json_array_get(json_object_get(json, "horizons"), 3), "nrmse_by_frame"));
    json_decref(json);
    ups_task_evaluation_free(&evaluation);
}

CLAIM(the_mean_over_frames_of_a_rollouts_nrmse_is_its_nrmse) {
    ups_task_evaluation evaluation = evaluate(WAVE);
    const ups_horizon_evaluation *whole = &evaluation.horizons[3];
    double mean = 0;
    for (int64_t f = 0; f < whole->frames; f++) mean += whole->nrmse_by_frame[UPS_FORECAST_MODEL][f] / 4;
    assert_near(mean, whole->summary[UPS_FORECAST_MODEL].nrmse);
    ups_task_evaluation_free(&evaluation);
}

static ups_rollouts roll_out(int task, int64_t steps, int64_t points) {
    const ups_task *t = &run.tasks->task[task];
    ups_rollout_request request = {
        .samples = t->splits.samples[UPS_SPLIT_TEST], .count = t->splits.count[UPS_SPLIT_TEST], .steps = steps};
    for (int a = 0; a < t->geometry.dims; a++) request.grid[a] = points;
    ups_surrogate *surrogate = open_surrogate(task, (ups_surrogate_use){.points = 5, .states = 2});
    ups_rollouts rollouts;
    ok(ups_rollouts_run(run.config, run.tasks, task, &request, surrogate, &rollouts, &failure));
    ups_surrogate_close(surrogate);
    return rollouts;
}

/* Batches of five points and two states: neither divides what there is to do. */
CLAIM(a_rollout_in_small_batches_equals_direct_computation) {
    ups_rollouts rollouts = roll_out(WAVE, 0, 0);
    const ups_task *t = &run.tasks->task[WAVE];
    tiny_models *models = tiny_models_open(&run, WAVE);
    float predicted[MOST_FRAMES * MOST_ELEMENTS];
    assert_int_equal(rollouts.count, 3);
    assert_int_equal(rollouts.frames, 5);
    for (int64_t i = 0; i < rollouts.count; i++) {
        const ups_rollout *rollout = &rollouts.list[i];
        float *truth = tiny_truth(&run, WAVE, t->splits.samples[UPS_SPLIT_TEST][i]);
        predict(models, &rollout->sample, t->config->stride, truth, 16, 0, 4, predicted);
        for (int64_t k = 0; k < 5 * 16; k++) assert_near(rollout->prediction[k], predicted[k]);
        assert_memory_equal(rollout->truth, truth, 5 * 16 * sizeof(float));
        free(truth);
    }
    tiny_models_close(models);
    ups_rollouts_free(&rollouts);
}

/* Cell i of n and cell 3i + 1 of 3n have the same centre. */
CLAIM(a_rollout_at_three_times_the_resolution_passes_through_the_same_points) {
    ups_rollouts coarse = roll_out(DARCY, 1, 0), fine = roll_out(DARCY, 1, 24);
    assert_null(fine.list[0].truth);
    assert_true(isnan(fine.list[0].nrmse[1]));
    assert_true(coarse.list[0].nrmse[1] > 0);
    for (int64_t f = 0; f < 2; f++) {
        for (int64_t i = 0; i < 8; i++) {
            for (int64_t j = 0; j < 8; j++) {
                int64_t at = (f * 64 + i * 8 + j) * 2, fine_at = (f * 576 + (3 * i + 1) * 24 + 3 * j + 1) * 2;
                float expected = coarse.list[0].prediction[at], found = fine.list[0].prediction[fine_at];
                if (!(fabsf(found - expected) <= 1e-4f))
                    fail_msg("%g where %g is right", (double)found, (double)expected);
                assert_near(ups_rollouts_coordinate(&fine, 0, 3 * i + 1), ups_rollouts_coordinate(&coarse, 0, i));
            }
        }
    }
    ups_rollouts_free(&coarse);
    ups_rollouts_free(&fine);
}

CLAIM(a_rollout_beyond_the_data_goes_on_in_steps_of_the_last_interval) {
    ups_rollouts rollouts = roll_out(WAVE, 6, 0);
    const double *time = rollouts.list[0].time;
    assert_int_equal(rollouts.frames, 7);
    assert_int_equal(rollouts.truth_frames, 5);
    assert_near(time[6] - time[5], time[4] - time[3]);
    assert_true(rollouts.list[0].nrmse[0] > 0);
    ups_rollouts_free(&rollouts);
}

/* Puts numbers into the file of the wave, in the place of `old` (may be NULL). */
static void exchange(const hsize_t start[3], const hsize_t count[3], const float *values, float *old) {
    hid_t file = H5Fopen(scratch("wave.h5"), H5F_ACC_RDWR, H5P_DEFAULT), set = H5Dopen2(file, "tensor", H5P_DEFAULT);
    hid_t space = H5Dget_space(set), memory = H5Screate_simple(3, count, NULL);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
    if (old) assert_true(H5Dread(set, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, old) >= 0);
    assert_true(H5Dwrite(set, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, values) >= 0);
    H5Sclose(memory);
    H5Sclose(space);
    H5Dclose(set);
    H5Fclose(file);
}

/* One number of the wave's first held-out sample; returns what stood there. */
static float poke_first_sample(float value) {
    const hsize_t first = (hsize_t)run.tasks->task[WAVE].splits.samples[UPS_SPLIT_TEST][0];
    float old;
    exchange((hsize_t[]){first, 3, 5}, (hsize_t[]){1, 1, 1}, &value, &old);
    return old;
}

CLAIM(a_trajectory_with_nan_stops_the_evaluation_or_is_left_out_as_configured) {
    float old = poke_first_sample(NAN);
    ups_surrogate *surrogate = open_surrogate(WAVE, (ups_surrogate_use){0});
    ups_task_evaluation evaluation;
    refused(ups_evaluate_task(run.config, run.tasks, WAVE, UPS_SPLIT_TEST, &(ups_evaluated){.surrogate = surrogate},
                              &evaluation, &failure),
            UPS_ERR_NUMERIC, "wave");
    ups_surrogate_close(surrogate);
    run.config->data.on_bad_sample = UPS_BAD_SAMPLE_SKIP;
    evaluation = evaluate(WAVE);
    assert_int_equal(evaluation.trajectories, 2);
    assert_int_equal(evaluation.horizons[3].windows, 2);
    assert_true(isfinite(evaluation.horizons[0].summary[UPS_FORECAST_PERSISTENCE].nrmse));
    ups_task_evaluation_free(&evaluation);
    ups_rollouts rollouts = roll_out(WAVE, 0, 0);
    assert_int_equal(rollouts.count, 2);
    assert_int_equal(rollouts.list[0].position, 1);
    ups_rollouts_free(&rollouts);
    run.config->data.on_bad_sample = UPS_BAD_SAMPLE_STOP;
    poke_first_sample(old);
}

/* Replaces the last frame of every held-out wave; `old` (may be NULL) is what stood there. */
static void write_last_frames(const float *values, float *old) {
    const ups_task *t = &run.tasks->task[WAVE];
    const int64_t points = ups_task_points(t);
    for (int64_t i = 0; i < t->splits.count[UPS_SPLIT_TEST]; i++) {
        const hsize_t start[3] = {(hsize_t)t->splits.samples[UPS_SPLIT_TEST][i], (hsize_t)t->geometry.times - 1, 0};
        exchange(start, (hsize_t[]){1, 1, (hsize_t)points}, values + i * points, old ? old + i * points : NULL);
    }
}

CLAIM(frames_that_are_zero_everywhere_are_left_out_of_a_rollouts_nrmse_and_no_others) {
    const float zeros[3 * MOST_ELEMENTS] = {0};
    float old[3 * MOST_ELEMENTS];
    write_last_frames(zeros, old);
    ups_task_evaluation evaluation = evaluate(WAVE);
    write_last_frames(old, NULL);
    const ups_horizon_evaluation *whole = &evaluation.horizons[3];
    const ups_pde_metrics_values *model = &whole->summary[UPS_FORECAST_MODEL];
    assert_int_equal(model->zero_targets, 3); /* one frame of four in each of three trajectories */
    double mean = 0;
    for (int64_t f = 0; f < 3; f++) mean += whole->nrmse_by_frame[UPS_FORECAST_MODEL][f] / 3;
    assert_near(model->nrmse, mean);
    assert_true(isnan(whole->nrmse_by_frame[UPS_FORECAST_MODEL][3]));
    ups_task_evaluation_free(&evaluation);
}

/* ---- mistakes -------------------------------------------------------------------------------------------------- */

static void expect_refusal(const char *checkpoint, ups_status expected, const char *part) {
    ups_surrogate_files files;
    refused(ups_surrogate_find(run.config, checkpoint, &files, &failure), expected, part);
    assert_null(files.op);
}

CLAIM(models_that_are_missing_or_damaged_are_refused_with_a_sentence) {
    expect_refusal(scratch("none.safetensors"), UPS_ERR_IO, "the checkpoint cannot be opened");
    assert_int_equal(mkdir(scratch("empty"), 0700), 0);
    expect_refusal(scratch("empty"), UPS_ERR_IO, "a directory without operator.safetensors");
    write_text(scratch("damaged.safetensors"), "these are not tensors");
    expect_refusal(scratch("damaged.safetensors"), UPS_ERR_FORMAT, "damaged.safetensors");
    write_text(scratch("damaged.safetensors"), "\x02");
    expect_refusal(scratch("damaged.safetensors"), UPS_ERR_FORMAT, "damaged.safetensors");

    assert_int_equal(rename(scratch("operator.safetensors"), scratch("empty/model.safetensors")), 0);
    expect_refusal(NULL, UPS_ERR_IO, "there is no trained operator yet; run `ups train`");
    assert_int_equal(rename(scratch("empty/model.safetensors"), scratch("operator.safetensors")), 0);
}

/* Writes a model again with an entry in its header; NULL: without any. */
static void tell_origin(const char *model, const char *key, const char *text) {
    const char *path = scratch(model);
    ups_safetensors *file;
    ok(ups_safetensors_open(path, &file, &failure));
    ups_safetensors_writer *writer = ups_safetensors_writer_create();
    if (key) ups_safetensors_writer_metadata(writer, key, text);
    for (int32_t i = 0; i < ups_safetensors_count(file); i++) {
        const ups_safetensor *t = ups_safetensors_get(file, i);
        ups_safetensors_writer_declare(writer, t->name, t->dtype, t->rank, t->size);
    }
    ok(ups_safetensors_writer_begin(writer, path, &failure));
    for (int32_t i = 0; i < ups_safetensors_count(file); i++) {
        const ups_safetensor *t = ups_safetensors_get(file, i);
        void *bytes = malloc(t->bytes);
        ok(ups_safetensors_read(file, t, bytes, &failure));
        ok(ups_safetensors_writer_append(writer, bytes, t->bytes, &failure));
        free(bytes);
    }
    ok(ups_safetensors_writer_commit(writer, &failure));
    ups_safetensors_close(file);
}

static void expect_stale(const char *part) {
    ups_surrogate_files files;
    ups_surrogate *surrogate = NULL;
    ok(ups_surrogate_find(run.config, NULL, &files, &failure));
    refused(ups_surrogate_open(run.config, run.tasks, WAVE, run.device, &files, (ups_surrogate_use){0}, &surrogate,
                               &failure),
            UPS_ERR_STALE, part);
    ups_surrogate_files_free(&files);
}

CLAIM(models_that_tell_of_another_origin_are_refused_naming_what_differs) {
    tell_origin("operator.safetensors", "autoencoder", "0123456789abcdef0123456789abcdef");
    expect_stale("operator.safetensors: the model was trained with another autoencoder");
    tell_origin("operator.safetensors", "operator", "{\"heads\":4}"); /* shapes are those of two heads, too */
    expect_stale("operator.safetensors: the model was trained with another operator than this configuration, its files "
                 "and its run have: its 'heads' is 4, here it is 2; go back");
    tell_origin("operator.safetensors", "wave.parameters", "[\"nu\"]");
    expect_stale("another wave.parameters than this configuration, its files and its run have: there it is [\"nu\"], "
                 "here {\"constant\":[true],\"names\":[\"beta\"]");
    tell_origin("operator.safetensors", NULL, NULL);
    tell_origin("autoencoder.safetensors", "wave.normalisation", "[[0.0,1.0]]");
    expect_stale("autoencoder.safetensors: the model was trained with another wave.normalisation");
    tell_origin("autoencoder.safetensors", "wave.encoder", "{\"periodic\":false}");
    expect_stale("another wave.encoder than this configuration, its files and its run have: its 'periodic' is false, "
                 "here it is true");
    tell_origin("autoencoder.safetensors", "burgers.normalisation", "[[0.0,1.0]]"); /* a task of another run */
    ups_surrogate_close(open_surrogate(WAVE, (ups_surrogate_use){0}));
    tell_origin("autoencoder.safetensors", NULL, NULL);
}

CLAIM(an_operator_of_this_autoencoder_and_configuration_is_taken) {
    ups_surrogate_files files;
    ok(ups_surrogate_find(run.config, NULL, &files, &failure));
    json_t *origin = ups_origin_operator(run.config, run.tasks, files.autoencoder_hash);
    const char *key;
    json_t *text;
    json_object_foreach(origin, key, text) {
        tell_origin("operator.safetensors", key, json_string_value(text));
        ups_surrogate_close(open_surrogate(WAVE, (ups_surrogate_use){0}));
    }
    assert_int_equal(json_object_size(origin), 4); /* autoencoder, operator, and each task's parameters */
    json_decref(origin);
    origin = ups_origin_autoencoder(run.config, run.tasks);
    json_object_foreach(origin, key, text) {
        tell_origin("autoencoder.safetensors", key, json_string_value(text));
        tell_origin("operator.safetensors", NULL, NULL);
        ups_surrogate_close(open_surrogate(WAVE, (ups_surrogate_use){0}));
    }
    assert_int_equal(json_object_size(origin), 6);
    json_decref(origin);
    tell_origin("autoencoder.safetensors", NULL, NULL);
    ups_surrogate_files_free(&files);
}

CLAIM(a_training_checkpoint_is_found_through_its_latest_json) {
    ups_surrogate_files files;
    assert_int_equal(mkdir(scratch("steps"), 0700), 0);
    assert_int_equal(link(scratch("operator.safetensors"), scratch("steps/step-00000007.safetensors")), 0);
    write_text(scratch("steps/latest.json"),
               "{\"format\": 1, \"step\": 7, \"seed\": 1, \"batch_size\": 4, \"running_loss\": 0.5, "
               "\"file\": \"step-00000007.safetensors\"}\n");
    ok(ups_surrogate_find(run.config, scratch("steps"), &files, &failure));
    assert_contains(files.op, "/steps/step-00000007.safetensors");
    assert_contains(files.autoencoder, "/autoencoder.safetensors"); /* the run's own */
    ups_surrogate_files_free(&files);
    write_text(scratch("steps/latest.json"),
               "{\"format\": 1, \"step\": 7, \"seed\": 1, \"batch_size\": 4, \"running_loss\": 0.5, "
               "\"file\": \"../operator.safetensors\"}\n");
    expect_refusal(scratch("steps"), UPS_ERR_FORMAT, "must name a file beside it");
}

CLAIM(a_model_of_another_configuration_is_refused_naming_the_tensor) {
    ups_surrogate_files files;
    ups_surrogate *surrogate;
    ok(ups_surrogate_find(run.config, NULL, &files, &failure));
    int64_t hidden = run.config->model.core.hidden;
    run.config->model.core.hidden = 24;
    refused(ups_surrogate_open(run.config, run.tasks, WAVE, run.device, &files, (ups_surrogate_use){0}, &surrogate,
                               &failure),
            UPS_ERR_FORMAT, "operator.");
    run.config->model.core.hidden = hidden;
    ups_surrogate_files_free(&files);
}

int main(void) {
    return run_claims(open_run, close_run, NULL);
}
