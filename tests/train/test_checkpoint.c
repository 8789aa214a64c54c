/* Checkpoints: what was saved comes back bit for bit; files that are damaged, foreign or missing are answered with a
 * sentence and change nothing; whatever moment a writer dies at, the latest checkpoint is whole. */
#include "base/files.h"
#include "base/random.h"
#include "model/devices/devices.h"
#include "model/parameters/parameters.h"
#include "tests/model/claims.h"
#include "tests/model/on_device.h"
#include "tests/train/buffers.h"
#include "train/checkpoint.h"
#include "train/stages/stage.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

typedef struct trained {
    ups_parameters *parameters;
    ups_optimizer *optimizer;
    ups_training_state state;
} trained;

static ups_device *device;
static const char *const names[] = {"one"};
static const char *const loss_names[UPS_MAX_LOSSES] = {"near", "far"};

/* A model with a matrix of `rows` rows and a bias; values and moments drawn from `seed`. */
static trained make_with(ups_optimizer_kind kind, int64_t rows, bool average, ups_dtype compute, uint64_t seed) {
    trained t = {.parameters = ups_parameters_create(),
                 .state = {.seed = 5,
                           .batch_size = 8,
                           .score = NAN,
                           .interval = {.tasks = 1, .task_names = names, .loss_names = loss_names}}};
    ups_optimizer_config config = {
        .kind = kind, .learning_rate = 0.1, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .momentum = 0.95};
    if (average) config.ema_decay = 0.5;
    ups_parameters_add(t.parameters, "layer.weight", 2, (int64_t[]){rows, 5},
                       (ups_init){.kind = UPS_INIT_NORMAL, .scale = 1, .matrices = 1});
    ups_parameters_add(t.parameters, "layer.bias", 1, (int64_t[]){3}, (ups_init){.kind = UPS_INIT_ONES});
    ok(ups_parameters_allocate(t.parameters, device, true, compute, seed, &failure));
    ok(ups_optimizer_create(&config, device, t.parameters, NULL, &t.optimizer, &failure));
    return t;
}

static trained make(int64_t rows, bool average, ups_dtype compute, uint64_t seed) {
    return make_with(UPS_OPTIMIZER_ADAMW, rows, average, compute, seed);
}

/* Some optimizer steps, so that no buffer is what it was at the start. */
static void advance(trained *t, int64_t steps) {
    ups_update result;
    for (int64_t s = 0; s < steps; s++, t->state.step++) {
        for (int32_t i = 0; i < ups_parameters_count(t->parameters); i++) {
            const ups_parameter *p = ups_parameters_get(t->parameters, i);
            float gradients[64];
            ups_random_fill_normal(ups_random_stream((uint64_t)i, UPS_RANDOM_TEST, (uint32_t)t->state.step), 1,
                                   gradients, (size_t)p->elements);
            write_device(device, ups_parameters_gradients(t->parameters) + p->offset, gradients,
                         (size_t)p->elements * sizeof *gradients);
        }
        ups_update_input input = {.step = t->state.step, .share = 1, .learning_rate = 0.1f};
        ok(ups_optimizer_begin(t->optimizer, &input, &failure));
        ok(ups_optimizer_step(t->optimizer, NULL, &failure));
        ok(ups_optimizer_result(t->optimizer, &result, &failure));
        t->state.running_loss = 1.0 / (double)(3 + t->state.step);
    }
}

static void end(trained *t) {
    ups_optimizer_destroy(t->optimizer);
    ups_parameters_destroy(t->parameters);
}

static ups_status save(trained *t, ups_error *error) {
    return ups_checkpoint_save(scratch("run"), &t->state, t->parameters, t->optimizer, NULL, error);
}

static ups_status load(trained *t, ups_error *error) {
    error->message[0] = '\0';
    return ups_checkpoint_load(scratch("run"), &t->state, t->parameters, t->optimizer, error);
}

static void assert_same_memory(const void *a, const void *b, size_t bytes) {
    void *left = read_device(device, a, bytes), *right = read_device(device, b, bytes);
    assert_memory_equal(left, right, bytes);
    free(left), free(right);
}

static void assert_same(trained *a, trained *b) {
    size_t bytes = (size_t)ups_parameters_elements(a->parameters) * sizeof(float);
    assert_same_memory(ups_parameters_values(a->parameters), ups_parameters_values(b->parameters), bytes);
    ups_parameter_buffer kept[2][UPS_OPTIMIZER_MAX_BUFFERS];
    int count = ups_optimizer_buffers(a->optimizer, kept[0]);
    assert_int_equal(ups_optimizer_buffers(b->optimizer, kept[1]), count);
    for (int i = 0; i < count; i++) {
        assert_string_equal(kept[0][i].prefix, kept[1][i].prefix);
        for (int32_t k = 0; k < ups_parameters_count(a->parameters); k++) {
            const ups_parameter *p = ups_parameters_get(a->parameters, k);
            const int64_t at = place_in(&kept[0][i], a->parameters, k);
            if (at < 0) continue;
            assert_same_memory(kept[0][i].values + at, kept[1][i].values + at, (size_t)p->elements * sizeof(float));
        }
    }
    const ups_weights *left = ups_parameters_weights(a->parameters), *right = ups_parameters_weights(b->parameters);
    if (left->compute) assert_same_memory(left->compute, right->compute, bytes / 2);
    ups_update_state scale = ups_optimizer_state(a->optimizer), other_scale = ups_optimizer_state(b->optimizer);
    assert_memory_equal(&scale, &other_scale, sizeof scale);
    assert_int_equal(a->state.step, b->state.step);
    assert_memory_equal(&a->state.interval, &b->state.interval, sizeof a->state.interval);
    assert_true(a->state.running_loss == b->state.running_loss);
    assert_int_equal(a->state.best.step, b->state.best.step);
    if (a->state.best.step > 0) assert_memory_equal(&a->state.best, &b->state.best, 3 * sizeof(double));
    assert_int_equal(a->state.best.stale, b->state.best.stale);
    assert_int_equal(a->state.plateau.begun, b->state.plateau.begun);
    assert_true(a->state.plateau.best == b->state.plateau.best);
    assert_int_equal(a->state.plateau.stale, b->state.plateau.stale);
    assert_int_equal(a->state.plateau.cuts, b->state.plateau.cuts);
    assert_true(a->state.score == b->state.score || (isnan(a->state.score) && isnan(b->state.score)));
}

static int empty(void **state) {
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s/run'", scratch_directory);
    return system(command);
}

static int open_device(void **state) {
    return make_scratch(state) != 0 ||
           ups_device_open(&(ups_device_options){.name = "auto", .threads = 1}, &device, NULL) != UPS_OK;
}

static int close_device(void **state) {
    ups_device_close(device);
    return remove_scratch(state);
}

CLAIM(a_checkpoint_comes_back_bit_for_bit) {
    static const ups_dtype computes[] = {UPS_F32, UPS_BF16, UPS_F16};
    for (int kind = 0; kind < 12; kind++) {
        const ups_optimizer_kind by = kind < 6 ? UPS_OPTIMIZER_ADAMW : UPS_OPTIMIZER_MUON;
        const ups_dtype compute = computes[kind / 2 % 3];
        trained saved = make_with(by, 4, kind & 1, compute, 1), loaded = make_with(by, 4, kind & 1, compute, 2);
        advance(&saved, 3);
        assert_int_equal(ups_optimizer_scales_losses(saved.optimizer), compute == UPS_F16);
        ups_update_state scale = {.loss_scale = 512, .good_steps = 17, .skipped = 1};
        if (compute == UPS_F16) ok(ups_optimizer_restore(saved.optimizer, &scale, &failure));
        scale = ups_optimizer_state(saved.optimizer);
        scale.taken[0] = kind % 3; /* as if other steps had trained something else */
        ok(ups_optimizer_restore(saved.optimizer, &scale, &failure));
        if (kind & 1) saved.state.score = 0.1;
        if (kind & 1) saved.state.best = (ups_best_score){.step = 2, .score = 0.1, .task = {1.0 / 3}, .stale = 1};
        if (kind & 1) saved.state.plateau = (ups_plateau){.begun = true, .best = 1.0 / 7, .stale = 2, .cuts = 1};
        saved.state.interval.sum[0] = 0.1 * 3;
        saved.state.interval.count[0] = kind + 1;
        saved.state.interval.part[1] = 0.1 * 7;
        saved.state.interval.part_count[1] = kind + 2;
        assert_false(ups_checkpoint_exists(scratch("run")));
        ok(save(&saved, &failure));
        assert_true(ups_checkpoint_exists(scratch("run")));
        ok(load(&loaded, &failure));
        assert_same(&loaded, &saved);
        advance(&saved, 2); /* and goes on alike */
        advance(&loaded, 2);
        assert_same(&loaded, &saved);
        end(&saved);
        end(&loaded);
        empty(state);
    }
}

CLAIM(only_the_latest_checkpoint_is_kept) {
    trained t = make(4, false, UPS_F32, 1);
    for (int i = 0; i < 3; i++) {
        advance(&t, 1);
        ok(save(&t, &failure));
        assert_int_equal(count_entries(scratch("run"), ".safetensors"), 1);
    }
    assert_true(ups_path_exists(scratch("run/step-00000003.safetensors")));
    end(&t);
}

CLAIM(as_many_as_the_state_says_are_kept_and_none_of_later_steps) {
    trained t = make(4, false, UPS_F32, 1);
    t.state.keep = 3;
    for (int i = 0; i < 5; i++) {
        advance(&t, 1);
        ok(save(&t, &failure));
    }
    assert_int_equal(count_entries(scratch("run"), ".safetensors"), 3);
    assert_true(ups_path_exists(scratch("run/step-00000003.safetensors")));
    write_text(scratch("run/step-00000009.safetensors"), "of a run that was killed");
    t.state.keep = 2;
    ok(load(&t, &failure));
    assert_int_equal(count_entries(scratch("run"), ".safetensors"), 2);
    assert_true(ups_path_exists(scratch("run/step-00000004.safetensors")));
    end(&t);
}

/* What would be taken as the best. */
static void assert_best(const char *file) {
    char *path = NULL;
    ok(ups_checkpoint_best_file(scratch("run"), &path, &failure));
    assert_string_equal(strrchr(path, '/') + 1, file);
    free(path);
}

CLAIM(the_best_weights_lie_beside_the_latest_checkpoint_unless_that_is_better) {
    char *path = NULL;
    trained t = make(4, true, UPS_F32, 1), other = make(4, true, UPS_F32, 2);
    assert_int_equal(ups_checkpoint_best_file(scratch("run"), &path, &failure), UPS_ERR_IO);
    advance(&t, 1);
    t.state.score = 0.5;
    ok(save(&t, &failure));
    assert_best("step-00000001.safetensors"); /* no validation fell due */
    t.state.best = (ups_best_score){.step = 1, .score = 0.5};
    ok(ups_checkpoint_save_best(scratch("run"), &t.state, t.parameters, t.optimizer, NULL, &failure));
    assert_best("best.safetensors");
    ups_parameter_buffer weights = {.prefix = "", .values = ups_parameters_values(other.parameters)};
    ok(ups_parameters_load_buffers(other.parameters, NULL, &weights, 1, scratch("run/best.safetensors"), false,
                                   &failure));
    size_t bytes = (size_t)ups_parameters_elements(t.parameters) * sizeof(float);
    assert_same_memory(ups_parameters_values(t.parameters), ups_parameters_values(other.parameters), bytes);
    advance(&t, 1);
    t.state.score = 0.6;
    ok(save(&t, &failure));
    assert_best("best.safetensors");
    t.state.score = 0.4; /* of a validation that did not fall due */
    ok(save(&t, &failure));
    assert_best("step-00000002.safetensors");
    assert_true(ups_path_exists(scratch("run/best.safetensors")));
    end(&t);
    end(&other);
}

CLAIM(where_there_is_none_the_file_looked_for_is_named) {
    trained t = make(4, false, UPS_F32, 1);
    refused(load(&t, &failure), UPS_ERR_IO, "run/latest.json");
    end(&t);
}

/* A writer that died before latest.json was replaced. */
CLAIM(a_file_that_latest_does_not_name_is_passed_over_and_cleared) {
    trained saved = make(4, false, UPS_F32, 1), loaded = make(4, false, UPS_F32, 2);
    advance(&saved, 1);
    ok(save(&saved, &failure));
    write_text(scratch("run/step-00000002.safetensors"), "half a file");
    write_text(scratch("run/notes.txt"), "mine");
    ok(load(&loaded, &failure));
    assert_same(&loaded, &saved);
    assert_false(ups_path_exists(scratch("run/step-00000002.safetensors")));
    assert_true(ups_path_exists(scratch("run/step-00000001.safetensors")));
    assert_true(ups_path_exists(scratch("run/notes.txt")));
    end(&saved);
    end(&loaded);
}

/* Loading fails with `status` and a sentence that holds `part`; the model stays as it was. */
static void refuses(trained *t, ups_status status, const char *part) {
    size_t bytes = (size_t)ups_parameters_elements(t->parameters) * sizeof(float);
    float *before = read_device(device, ups_parameters_values(t->parameters), bytes);
    ups_status found = load(t, &failure);
    if (found != status)
        fail_msg("%s where %s was expected: %s", ups_status_name(found), ups_status_name(status), failure.message);
    assert_contains(failure.message, part);
    assert_contains(failure.message, "run/");
    float *after = read_device(device, ups_parameters_values(t->parameters), bytes);
    assert_memory_equal(after, before, bytes);
    free(before), free(after);
}

CLAIM(a_checkpoint_cut_anywhere_is_refused_and_changes_nothing) {
    trained saved = make(4, true, UPS_F32, 1), t = make(4, true, UPS_F32, 2);
    advance(&saved, 1);
    ok(save(&saved, &failure));
    char *whole;
    size_t length;
    ok(ups_read_file(scratch("run/step-00000001.safetensors"), 1 << 20, &whole, &length, &failure));
    for (size_t cut = 0; cut < length; cut += 1 + length / 97) {
        FILE *file = fopen(scratch("run/step-00000001.safetensors"), "wb");
        assert_int_equal(fwrite(whole, 1, cut, file), cut);
        fclose(file);
        refuses(&t, UPS_ERR_FORMAT, "--restart");
    }
    free(whole);
    unlink(scratch("run/step-00000001.safetensors"));
    refuses(&t, UPS_ERR_IO, "step-00000001.safetensors");
    end(&saved);
    end(&t);
}

CLAIM(a_checkpoint_of_another_model_is_refused) {
    trained saved = make(4, false, UPS_F32, 1), wider = make(6, false, UPS_F32, 2),
            averaged = make(4, true, UPS_F32, 3);
    advance(&saved, 1);
    ok(save(&saved, &failure));
    refuses(&wider, UPS_ERR_FORMAT, "(4, 5)");
    refuses(&averaged, UPS_ERR_FORMAT, "ema.");
    end(&saved);
    ok(save(&averaged, &failure));
    trained plain = make(4, false, UPS_F32, 1);
    refuses(&plain, UPS_ERR_FORMAT, "ema.");
    end(&plain);
    end(&wider);
    end(&averaged);
}

CLAIM(a_checkpoint_of_another_optimizer_is_refused) {
    trained muon = make_with(UPS_OPTIMIZER_MUON, 4, false, UPS_F32, 1), adamw = make(4, false, UPS_F32, 2);
    advance(&muon, 1);
    ok(save(&muon, &failure));
    refuses(&adamw, UPS_ERR_FORMAT, "'adamw.first_moment.layer.weight'");
    ok(save(&adamw, &failure));
    refuses(&muon, UPS_ERR_FORMAT, "'muon.momentum.layer.weight'");
    end(&muon);
    end(&adamw);
}

CLAIM(what_muon_keeps_is_refused_where_it_is_cut_or_not_finite) {
    trained saved = make_with(UPS_OPTIMIZER_MUON, 4, true, UPS_F32, 1);
    trained t = make_with(UPS_OPTIMIZER_MUON, 4, true, UPS_F32, 2);
    ups_parameter_buffer kept[UPS_OPTIMIZER_MAX_BUFFERS];
    advance(&saved, 1);
    ok(save(&saved, &failure));
    char *whole;
    size_t length;
    ok(ups_read_file(scratch("run/step-00000001.safetensors"), 1 << 20, &whole, &length, &failure));
    for (size_t cut = 0; cut < length; cut += 1 + length / 41) {
        FILE *file = fopen(scratch("run/step-00000001.safetensors"), "wb");
        assert_int_equal(fwrite(whole, 1, cut, file), cut);
        fclose(file);
        refuses(&t, UPS_ERR_FORMAT, "--restart");
    }
    free(whole);
    assert_int_equal(ups_optimizer_buffers(saved.optimizer, kept), 4);
    assert_string_equal(kept[2].prefix, "muon.momentum.");
    const int32_t weight = ups_parameters_find(saved.parameters, "layer.weight");
    write_device(device, kept[2].values + place_in(&kept[2], saved.parameters, weight) + 3, &(float){NAN},
                 sizeof(float));
    ok(save(&saved, &failure));
    refuses(&t, UPS_ERR_NUMERIC, "'muon.momentum.layer.weight' holds 1 values that are NaN");
    end(&saved);
    end(&t);
}

/* Steps, the stable part's checkpoint among them, then more; and back. */
CLAIM(the_checkpoint_before_the_decay_is_kept_and_can_be_gone_back_to) {
    int64_t stable;
    char *path;
    trained t = make(4, false, UPS_F32, 1), back = make(4, false, UPS_F32, 2), reference = make(4, false, UPS_F32, 1);
    refused(ups_checkpoint_keep_stable(scratch("run"), &failure), UPS_ERR_IO, "latest.json");
    ok(ups_checkpoint_stable_step(scratch("run"), &stable, &failure));
    assert_int_equal(stable, -1);
    advance(&t, 2), advance(&reference, 2);
    t.state.score = reference.state.score = 0.5;
    t.state.best = reference.state.best = (ups_best_score){.step = 2, .score = 0.5, .task = {0.5}};
    ok(ups_checkpoint_save_best(scratch("run"), &t.state, t.parameters, t.optimizer, NULL, &failure));
    ok(save(&t, &failure));
    refused(ups_checkpoint_go_back(scratch("run"), &failure), UPS_ERR_IO, "stable.json");
    ok(ups_checkpoint_keep_stable(scratch("run"), &failure));
    advance(&t, 3);
    t.state.score = 0.1;
    t.state.best = (ups_best_score){.step = 5, .score = 0.1, .task = {0.1}};
    ok(ups_checkpoint_save_best(scratch("run"), &t.state, t.parameters, t.optimizer, NULL, &failure));
    ok(save(&t, &failure));
    ok(ups_checkpoint_stable_step(scratch("run"), &stable, &failure));
    assert_int_equal(stable, 2);
    assert_true(ups_path_exists(scratch("run/step-00000002.safetensors")));
    ok(ups_checkpoint_go_back(scratch("run"), &failure));
    ok(load(&back, &failure));
    assert_same(&back, &reference);
    assert_false(ups_path_exists(scratch("run/step-00000005.safetensors")));
    ok(ups_checkpoint_best_file(scratch("run"), &path, &failure));
    ups_parameter_buffer best = {.prefix = "", .values = ups_parameters_values(t.parameters)};
    ok(ups_parameters_load_buffers(t.parameters, NULL, &best, 1, path, true, &failure)); /* of step 2 */
    assert_same_memory(ups_parameters_values(t.parameters), ups_parameters_values(reference.parameters),
                       (size_t)ups_parameters_elements(t.parameters) * sizeof(float));
    free(path);
    end(&t), end(&back), end(&reference);
}

CLAIM(a_damaged_record_of_the_stable_part_is_refused) {
    static const char *const texts[] = {"", "{\"step\": 1", "[1]", "{\"format\": 1, \"step\": -3}"};
    int64_t stable;
    trained t = make(4, false, UPS_F32, 1);
    advance(&t, 1);
    ok(save(&t, &failure));
    ok(ups_checkpoint_keep_stable(scratch("run"), &failure));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        write_text(scratch("run/stable.json"), texts[i]);
        refused(ups_checkpoint_stable_step(scratch("run"), &stable, &failure), UPS_ERR_FORMAT, "run/stable.json");
        refused(ups_checkpoint_go_back(scratch("run"), &failure), UPS_ERR_FORMAT, "run/stable.json");
        ok(load(&t, &failure)); /* the run itself goes on */
    }
    ok(ups_checkpoint_keep_stable(scratch("run"), &failure));
    unlink(scratch("run/step-00000001.safetensors"));
    refused(ups_checkpoint_go_back(scratch("run"), &failure), UPS_ERR_IO, "step-00000001.safetensors", "is gone");
    end(&t);
}

CLAIM(a_checkpoint_of_another_seed_is_refused) {
    trained saved = make(4, false, UPS_F32, 1), other = make(4, false, UPS_F32, 2);
    ok(save(&saved, &failure));
    other.state.seed = 6;
    refuses(&other, UPS_ERR_STALE, "seed 5");
    end(&saved);
    end(&other);
}

CLAIM(a_latest_file_that_is_not_what_it_should_be_is_refused) {
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "latest.json"},
        {"{\"step\": 1", "latest.json"},
        {"[1, 2]", "latest.json"},
    };
    trained t = make(4, false, UPS_F32, 1);
    ok(save(&t, &failure));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text(scratch("run/latest.json"), cases[i].text);
        refuses(&t, UPS_ERR_FORMAT, cases[i].part);
    }
    end(&t);
}

/* Each with one value changed (NULL: taken away). The sentence names file, key and value, and what to do. */
CLAIM(a_state_that_no_run_can_have_left_is_refused) {
    static const struct {
        const char *key, *value, *part;
    } cases[] = {
        {"format", "\"1\"", "'format' is a string; an integer was expected"},
        {"format", NULL, "'format' is missing"},
        {"step", "-1", "'step' is -1; 0 or more was expected"},
        {"step", "4", "'step' is 4, and 'file' names 'step-00000003.safetensors'"},
        {"step", "\"one\"", "'step' is a string"},
        {"step", "3.0", "'step' is a number; an integer was expected"},
        {"step", NULL, "'step' is missing"},
        {"seed", NULL, "'seed' is missing"},
        {"seed", "null", "'seed' is null"},
        {"batch_size", "-8", "'batch_size' is -8; 1 or more was expected"},
        {"batch_size", "0", "'batch_size' is 0"},
        {"batch_size", "[8]", "'batch_size' is an array"},
        {"running_loss", NULL, "'running_loss' is missing"},
        {"running_loss", "-0.5", "'running_loss' is -0.5; 0 or more was expected"},
        {"running_loss", "true", "'running_loss' is a boolean"},
        {"score", "-1.5", "'score' is -1.5"},
        {"score", "\"low\"", "'score' is a string"},
        {"precision", "\"f16\"", "'precision' is not f32, tf32, bf16, fp16 or fp8"},
        {"precision", "\"auto\"", "'precision' is not f32, tf32, bf16, fp16 or fp8"},
        {"precision", "32", "'precision' is not f32, tf32, bf16, fp16 or fp8"},
        {"loss_scale", NULL, "'loss_scale' is missing"},
        {"loss_scale", "65536", "'loss_scale' is an integer"},
        {"loss_scale", "{\"scale\": 0.5, \"good_steps\": 1, \"skipped\": 0}", "'loss_scale' is 0.5 after 1 good"},
        {"loss_scale", "{\"scale\": 1e30, \"good_steps\": 1, \"skipped\": 0}", "'loss_scale' is 1e+30"},
        {"loss_scale", "{\"scale\": 2.0, \"good_steps\": 2000, \"skipped\": 0}", "after 2000 good steps"},
        {"loss_scale", "{\"scale\": 2.0, \"good_steps\": 1, \"skipped\": 4}", "4 skipped ones"},
        {"taken", "[]", "'taken' is an array"},
        {"taken", "{\"layer.none\": 1}", "'layer.none', which is no parameter of this run"},
        {"taken", "{\"layer.bias\": 4}", "'taken' is not an object of numbers of steps"},
        {"taken", "{\"layer.bias\": -1}", "'taken' is not an object of numbers of steps"},
        {"interval", "[]", "'interval' is an array"},
        {"interval", "{\"one\": 3}", "key 'sum'"},
        {"interval", "{\"one\": {\"sum\": -1.0, \"windows\": 4}}", "a loss of -1 over 4 windows for task one"},
        {"interval", "{\"one\": {\"sum\": 1.0, \"windows\": -4}}", "a loss of 1 over -4 windows for task one"},
        {"interval", "{\"two\": {\"sum\": 1.0, \"windows\": 4}}", "'two', which is no task of this run"},
        {"interval_losses", "[]", "'interval_losses' is an array"},
        {"interval_losses", "{\"far\": {\"sum\": 1.0}}", "windows"},
        {"interval_losses", "{\"far\": {\"sum\": 1.0, \"windows\": 0}}", "1 over 0 windows for far"},
        {"interval_losses", "{\"far\": {\"sum\": -1.0, \"windows\": 4}}", "-1 over 4 windows for far"},
        {"interval_losses", "{\"wide\": {\"sum\": 1.0, \"windows\": 4}}", "'wide', which is no loss of this stage"},
        {"best", "3", "'best' is an integer"},
        {"best", "{\"step\": 1}", "key 'score'"},
        {"best", "{\"step\": 1, \"score\": 0.5, \"stale\": 0}", "'tasks' is missing"},
        {"best", "{\"step\": 4, \"score\": 0.5, \"stale\": 0, \"tasks\": {}}", "a score of 0.5 at step 4"},
        {"best", "{\"step\": 0, \"score\": 0.5, \"stale\": 0, \"tasks\": {}}", "a score of 0.5 at step 0"},
        {"best", "{\"step\": 1, \"score\": -1.0, \"stale\": 0, \"tasks\": {}}", "a score of -1 at step 1"},
        {"best", "{\"step\": 1, \"score\": 0.5, \"stale\": -2, \"tasks\": {}}", "-2 validations before"},
        {"best", "{\"step\": 1, \"score\": 0.5, \"stale\": 0, \"tasks\": {\"two\": 1.0}}",
         "'two', which is no task of this run"},
        {"best", "{\"step\": 1, \"score\": 0.5, \"stale\": 0, \"tasks\": {\"one\": \"low\"}}",
         "not an object of numbers"},
        {"plateau", "3", "'plateau' is an integer"},
        {"plateau", "{\"stale\": 0, \"cuts\": 0}", "key 'best'"},
        {"plateau", "{\"best\": -1.0, \"stale\": 0, \"cuts\": 0}", "a best score of -1"},
        {"plateau", "{\"best\": 1.0, \"stale\": -1, \"cuts\": 0}", "-1 validations before"},
        {"plateau", "{\"best\": 1.0, \"stale\": 4, \"cuts\": 0}", "4 validations before"},
        {"plateau", "{\"best\": 1.0, \"stale\": 0, \"cuts\": 4}", "cut 4 times"},
        {"plateau", "{\"best\": 1.0, \"stale\": 0.5, \"cuts\": 0}", "'stale' is a number"},
        {"file", NULL, "'file' is missing"},
        {"file", "\"../step-00000003.safetensors\"", "beside it"},
        {"file", "\"step-00000002.safetensors\"", "'step-00000003.safetensors' was expected"},
    };
    trained t = make(4, false, UPS_F16, 1);
    advance(&t, 3);
    ok(save(&t, &failure));
    json_t *whole = NULL;
    ok(ups_json_read(scratch("run/latest.json"), &whole, &failure));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *changed = json_deep_copy(whole);
        if (cases[i].value)
            json_object_set_new(changed, cases[i].key, json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        else
            json_object_del(changed, cases[i].key);
        ok(ups_json_publish(scratch("run/latest.json"), changed, &failure));
        json_decref(changed);
        refuses(&t, UPS_ERR_FORMAT, cases[i].part);
        refuses(&t, UPS_ERR_FORMAT, "run/latest.json");
        refuses(&t, UPS_ERR_FORMAT, "restore it, or begin anew with --restart");
    }
    /* That of a later version is not damaged. */
    json_t *later = json_deep_copy(whole);
    json_object_set_new(later, "format", json_integer(2));
    ok(ups_json_publish(scratch("run/latest.json"), later, &failure));
    json_decref(later);
    refuses(&t, UPS_ERR_UNSUPPORTED, "'format' is 2; this version of UPS reads format 1 (use the version");
    ok(ups_json_publish(scratch("run/latest.json"), whole, &failure));
    ok(load(&t, &failure));
    json_decref(whole);
    end(&t);
}

CLAIM(weights_of_another_step_under_the_name_of_this_one_are_refused) {
    trained t = make(4, false, UPS_F32, 1);
    char earlier[300], later[300];
    advance(&t, 1);
    ok(save(&t, &failure));
    snprintf(earlier, sizeof earlier, "%s", scratch("kept"));
    snprintf(later, sizeof later, "%s", scratch("run/step-00000003.safetensors"));
    assert_int_equal(rename(scratch("run/step-00000001.safetensors"), earlier), 0);
    advance(&t, 2);
    ok(save(&t, &failure));
    assert_int_equal(rename(earlier, later), 0);
    refuses(&t, UPS_ERR_FORMAT, "step-00000003.safetensors: its weights are of step 1; latest.json says 3");
    end(&t);
}

CLAIM(a_checkpoint_in_another_precision_is_refused_and_one_that_tells_none_is_not) {
    ups_precision told = UPS_PRECISION_AUTO;
    trained saved = make(4, false, UPS_F32, 1), other = make(4, false, UPS_F32, 2);
    ok(ups_checkpoint_precision(scratch("run"), &told, &failure));
    assert_int_equal(told, UPS_PRECISION_AUTO); /* none there */
    saved.state.precision = UPS_PRECISION_BF16;
    ok(save(&saved, &failure));
    ok(ups_checkpoint_precision(scratch("run"), &told, &failure));
    assert_int_equal(told, UPS_PRECISION_BF16);
    other.state.precision = UPS_PRECISION_F32;
    refuses(&other, UPS_ERR_STALE, "a run in bf16, this one computes in f32");
    other.state.precision = UPS_PRECISION_BF16;
    ok(load(&other, &failure));
    saved.state.precision = UPS_PRECISION_AUTO; /* as older checkpoints are */
    ok(save(&saved, &failure));
    ok(ups_checkpoint_precision(scratch("run"), &told, &failure));
    assert_int_equal(told, UPS_PRECISION_AUTO);
    ok(load(&other, &failure));
    end(&saved);
    end(&other);
}

CLAIM(a_checkpoint_that_cannot_be_written_leaves_the_one_before) {
    trained saved = make(4, false, UPS_F32, 1), loaded = make(4, false, UPS_F32, 2), later = make(4, false, UPS_F32, 3);
    advance(&saved, 1);
    advance(&later, 2);
    ok(save(&saved, &failure));
    struct rlimit usual, full; /* files of a hundred bytes: as on a disk that fills up in the middle */
    getrlimit(RLIMIT_FSIZE, &usual);
    full = (struct rlimit){100, usual.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &full);
    ups_status status = save(&later, &failure);
    setrlimit(RLIMIT_FSIZE, &usual);
    assert_int_equal(status, UPS_ERR_IO);
    assert_contains(failure.message, "run/step-00000002.safetensors");
    assert_int_equal(count_entries(scratch("run"), "partial"), 0);
    assert_int_equal(count_entries(scratch("run"), "step-"), 1);
    ok(load(&loaded, &failure));
    assert_same(&loaded, &saved);
    end(&saved);
    end(&loaded);
    end(&later);
}

CLAIM(the_exported_model_is_the_average_where_there_is_one_and_the_weights_otherwise) {
    for (int average = 0; average < 2; average++) {
        trained t = make(4, average, false, 1), read = make(4, false, UPS_F32, 2);
        advance(&t, 3);
        const char *path = scratch("model.safetensors");
        ok(ups_model_export(path, t.parameters, t.optimizer, NULL, NULL, &failure));
        ok(ups_parameters_load(read.parameters, path, true, &failure));
        size_t bytes = (size_t)ups_parameters_elements(t.parameters) * sizeof(float);
        const float *expected = average ? ups_optimizer_average(t.optimizer) : ups_parameters_values(t.parameters);
        assert_same_memory(ups_parameters_values(read.parameters), expected, bytes);
        float *exported = read_device(device, expected, bytes);
        float *weights = read_device(device, ups_parameters_values(t.parameters), bytes);
        if (average) assert_memory_not_equal(exported, weights, bytes);
        free(exported), free(weights);
        end(&t);
        end(&read);
    }
}

CLAIM(a_checkpoint_of_another_origin_is_refused_and_one_that_tells_none_is_not) {
    json_t *ours = json_pack("{s:s}", "autoencoder", "aaaa"), *theirs = json_pack("{s:s}", "autoencoder", "bbbb");
    trained saved = make(4, false, UPS_F32, 1), loaded = make(4, false, UPS_F32, 2);
    loaded.state.origin = ours;
    saved.state.origin = theirs;
    ok(save(&saved, &failure));
    refused(load(&loaded, &failure), UPS_ERR_STALE, "another autoencoder", "--restart");
    saved.state.origin = ours;
    ok(save(&saved, &failure));
    ok(load(&loaded, &failure));
    saved.state.origin = NULL;
    ok(save(&saved, &failure));
    ok(load(&loaded, &failure));
    json_decref(ours);
    json_decref(theirs);
    end(&saved);
    end(&loaded);
}

static ups_status plan_batch(void *context, int64_t batch_size, ups_stage_plan *plan, ups_error *error) {
    *plan = (ups_stage_plan){.batch_size = batch_size, .total = (size_t)batch_size << 20};
    if (device->class->memory) plan->on_device = plan->total;
    return UPS_OK;
}

CLAIM(a_batch_size_found_by_itself_is_that_of_the_checkpoint_when_a_stage_goes_on) {
    ups_run_config config = {.output = (char *)scratch("batches")};
    config.op.training = (ups_training_config){.pairs_per_trajectory = 1, .memory_limit = 0.0625}; /* 64 MiB */
    char directory[512];
    snprintf(directory, sizeof directory, "%s/checkpoints/operator", config.output);
    const ups_session session = {.config = &config, .device = device};
    ups_stage_request request = {.session = &session, .resume = true};
    ups_stage_plan plan;
    ok(ups_stage_choose_batch(&request, UPS_STAGE_OPERATOR, plan_batch, NULL, &plan, &failure));
    assert_int_equal(plan.batch_size, 64); /* no checkpoint yet */
    trained t = make(4, false, UPS_F32, 1);
    t.state.batch_size = 12;
    ok(ups_checkpoint_save(directory, &t.state, t.parameters, t.optimizer, NULL, &failure));
    ok(ups_stage_choose_batch(&request, UPS_STAGE_OPERATOR, plan_batch, NULL, &plan, &failure));
    assert_int_equal(plan.batch_size, 12);
    request.resume = false;
    ok(ups_stage_choose_batch(&request, UPS_STAGE_OPERATOR, plan_batch, NULL, &plan, &failure));
    assert_int_equal(plan.batch_size, 64);
    request.resume = true;
    config.op.training.batch_size = 7;
    ok(ups_stage_choose_batch(&request, UPS_STAGE_OPERATOR, plan_batch, NULL, &plan, &failure));
    assert_int_equal(plan.batch_size, 7); /* what is asked for goes first */
    end(&t);
}

int main(void) {
    return run_claims(open_device, close_device, empty);
}
