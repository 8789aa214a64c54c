/* Tasks: splits that are the sample's own, disjoint and complete; normalisation that is mean and deviation, computed
 * directly; configurations that do not fit the files refused. Files come from our own solvers. */
#include "base/files.h"
#include "base/json.h"
#include "tests/train/generate.h"

#include "model/parameters/safetensors.h"
#include "tests/base/capture.h"
#include "train/config/load.h"
#include "train/data/normalisation.h"
#include "train/data/tasks.h"

#include <hdf5.h>
#include <math.h>
#include <sys/stat.h>

enum { SAMPLES = 50, FRAMES = 6, POINTS = 16 };

static int make_data(void **state) {
    if (make_scratch(state) != 0) return -1;
    generate("advection1d", "wave.h5", SAMPLES, POINTS, FRAMES);
    generate("advection1d", "fine.h5", 4, 2 * POINTS, FRAMES);
    generate("darcy2d", "darcy.h5", 12, 16, 0);
    return 0;
}

static const char wave[] = "  - name: wave\n    files: [wave.h5]\n    patch: [4]\n";
static const char darcy[] = "  - name: darcy\n    files: [darcy.h5]\n    patch: [4]\n";

static ups_run_config *configure(const char *tasks, const char *override) {
    char text[2000];
    snprintf(text, sizeof text, "output: %s/run\ndata: {root: %s, decode_threads: 1}\ntasks:\n%s", scratch_directory,
             scratch_directory, tasks);
    write_text(scratch("tasks.yaml"), text);
    ups_run_config *config;
    ok(ups_run_config_load(scratch("tasks.yaml"), &override, override ? 1 : 0, &config, &failure));
    return config;
}

typedef struct opened {
    ups_run_config *config;
    ups_tasks *tasks;
} opened;

static opened open_tasks(const char *tasks, const char *override) {
    opened o = {.config = configure(tasks, override)};
    ok(ups_tasks_open(o.config, &o.tasks, &failure));
    return o;
}

static void close_tasks(opened *o) {
    ups_tasks_close(o->tasks);
    ups_run_config_free(o->config);
}

static int forget_run(void **state) {
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s/run'", scratch_directory);
    return system(command);
}

/* ---- splits ----------------------------------------------------------------------------------------------------- */

CLAIM(every_sample_is_in_one_split_and_splits_are_in_order) {
    opened o = open_tasks(wave, NULL);
    const ups_task *task = &o.tasks->task[0];
    int seen[SAMPLES] = {0};
    assert_int_equal(task->splits.count[UPS_SPLIT_TRAIN], 40);
    assert_int_equal(task->splits.count[UPS_SPLIT_VALIDATION], 5);
    assert_int_equal(task->splits.count[UPS_SPLIT_TEST], 5);
    for (int s = 0; s < UPS_SPLIT_COUNT; s++) {
        for (int64_t i = 0; i < task->splits.count[s]; i++) {
            assert_in_range(task->splits.samples[s][i], 0, SAMPLES - 1);
            seen[task->splits.samples[s][i]]++;
            if (i > 0) assert_true(task->splits.samples[s][i] > task->splits.samples[s][i - 1]);
        }
    }
    for (int i = 0; i < SAMPLES; i++) assert_int_equal(seen[i], 1);
    close_tasks(&o);
}

CLAIM(a_split_depends_on_the_tasks_name_and_nothing_else) {
    char both[400];
    snprintf(both, sizeof both, "%s%s", darcy, wave);
    opened alone = open_tasks(wave, NULL), reseeded = open_tasks(wave, "seed=77"), second = open_tasks(both, NULL);
    opened renamed = open_tasks(wave, "tasks[0].name=other");
    const ups_task *a = &alone.tasks->task[0], *b = &reseeded.tasks->task[0], *c = &second.tasks->task[1];
    const ups_task *d = &renamed.tasks->task[0];
    for (int s = 0; s < UPS_SPLIT_COUNT; s++) {
        size_t bytes = (size_t)a->splits.count[s] * sizeof(int64_t);
        assert_memory_equal(a->splits.samples[s], b->splits.samples[s], bytes);
        assert_memory_equal(a->splits.samples[s], c->splits.samples[s], bytes);
        assert_memory_not_equal(a->splits.samples[s], d->splits.samples[s], bytes);
    }
    close_tasks(&alone), close_tasks(&reseeded), close_tasks(&second), close_tasks(&renamed);
}

CLAIM(small_tasks_keep_a_sample_to_train_on_and_give_each_wanted_split_one_while_they_can) {
    static const int64_t expected[][UPS_SPLIT_COUNT] = {{1, 0, 0}, {1, 1, 0}, {1, 1, 1}, {2, 1, 1}};
    for (int count = 1; count <= 4; count++) {
        char override[40];
        snprintf(override, sizeof override, "tasks[0].max_samples=%d", count);
        opened o = open_tasks(wave, override);
        const ups_task *task = &o.tasks->task[0];
        int64_t all = 0;
        for (int s = 0; s < UPS_SPLIT_COUNT; s++) all += task->splits.count[s];
        assert_int_equal(all, count);
        assert_true(task->splits.count[UPS_SPLIT_TRAIN] >= 1);
        if (count > 2) assert_memory_equal(task->splits.count, expected[count - 1], sizeof expected[0]);
        close_tasks(&o);
    }
}

CLAIM(foreign_files_may_be_all_of_one_split) {
    opened o = open_tasks(wave, "data.split={train: 0, validation: 0, test: 1}");
    assert_int_equal(o.tasks->task[0].splits.count[UPS_SPLIT_TEST], SAMPLES);
    close_tasks(&o);
    o = open_tasks(wave, "data.split={train: 0, validation: 0.5, test: 0.5}");
    assert_int_equal(o.tasks->task[0].splits.count[UPS_SPLIT_TRAIN], 0);
    assert_int_equal(o.tasks->task[0].splits.count[UPS_SPLIT_VALIDATION], SAMPLES / 2);
    refused(ups_tasks_normalise_as_trained(o.config, o.tasks, NULL, &failure), UPS_ERR_CONFIG,
            "task wave: its training split (data.split.train) holds no samples");
    close_tasks(&o);
    generate("advection1d", "one.h5", 1, POINTS, FRAMES);
    const char *one = "  - name: wave\n    files: [one.h5]\n    patch: [4]\n";
    o = open_tasks(one, "data.split={train: 0, validation: 0, test: 1}");
    assert_int_equal(o.tasks->task[0].splits.count[UPS_SPLIT_TEST], 1);
    close_tasks(&o);
    o = open_tasks(one, "data.split={train: 0, validation: 1, test: 0}");
    assert_int_equal(o.tasks->task[0].splits.count[UPS_SPLIT_VALIDATION], 1);
    close_tasks(&o);
}

CLAIM(splits_that_nobody_wants_are_empty) {
    opened o = open_tasks(wave, "data.split={train: 1, validation: 0, test: 0}");
    assert_int_equal(o.tasks->task[0].splits.count[UPS_SPLIT_TRAIN], SAMPLES);
    assert_int_equal(ups_task_held_out(&o.tasks->task[0]), UPS_SPLIT_VALIDATION);
    close_tasks(&o);
}

/* ---- normalisation ---------------------------------------------------------------------------------------------- */

static float *read_dataset(const char *file, const char *name, int64_t count) {
    float *values = malloc((size_t)count * sizeof *values);
    hid_t id = H5Fopen(scratch(file), H5F_ACC_RDONLY, H5P_DEFAULT), set = H5Dopen2(id, name, H5P_DEFAULT);
    assert_true(H5Dread(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(set);
    H5Fclose(id);
    return values;
}

/* Mean and deviation in two passes over the samples of the training split. */
static void direct(const ups_task *task, const float *values, int64_t sample_values, double *mean, double *deviation) {
    double sum = 0, squares = 0;
    int64_t count = task->splits.count[UPS_SPLIT_TRAIN] * sample_values;
    for (int64_t i = 0; i < task->splits.count[UPS_SPLIT_TRAIN]; i++) {
        const float *at = values + task->splits.samples[UPS_SPLIT_TRAIN][i] * sample_values;
        for (int64_t k = 0; k < sample_values; k++) sum += (double)at[k];
    }
    *mean = sum / (double)count;
    for (int64_t i = 0; i < task->splits.count[UPS_SPLIT_TRAIN]; i++) {
        const float *at = values + task->splits.samples[UPS_SPLIT_TRAIN][i] * sample_values;
        for (int64_t k = 0; k < sample_values; k++) squares += ((double)at[k] - *mean) * ((double)at[k] - *mean);
    }
    *deviation = sqrt(squares / (double)count);
}

static void close_to(double found, double expected, double scale) {
    if (!(fabs(found - expected) <= 1e-6 * scale)) fail_msg("%.9g where %.9g was expected", found, expected);
}

CLAIM(fields_are_normalised_by_mean_and_deviation_over_the_training_split) {
    opened o = open_tasks(wave, NULL);
    const ups_task *task = &o.tasks->task[0];
    ok(ups_tasks_normalise_as_trained(o.config, o.tasks, NULL, &failure));
    float *values = read_dataset("wave.h5", "tensor", SAMPLES * FRAMES * POINTS);
    double mean, deviation;
    direct(task, values, FRAMES * POINTS, &mean, &deviation);
    close_to((double)task->statistics[0], mean, deviation);
    close_to((double)task->statistics[1] * deviation, 1, 1);
    free(values);
    close_tasks(&o);
}

/* Darcy's layout: two channels, (ν, 0) then (ν, u). */
CLAIM(each_field_has_its_own_statistics_and_a_scale_multiplies_its_own) {
    opened o = open_tasks(darcy, "tasks[0].field_scale=[1, 3]");
    const ups_task *task = &o.tasks->task[0];
    ok(ups_tasks_normalise_as_trained(o.config, o.tasks, NULL, &failure));
    float *nu = read_dataset("darcy.h5", "nu", 12 * 256), *u = read_dataset("darcy.h5", "tensor", 12 * 256);
    float *frames = calloc(12 * 512, sizeof *frames); /* of the solution: zeros, then u */
    for (int64_t i = 0; i < 12; i++) memcpy(frames + i * 512 + 256, u + i * 256, 256 * sizeof *u);
    double mean, deviation;
    direct(task, nu, 256, &mean, &deviation);
    close_to((double)task->statistics[0], mean, deviation);
    close_to((double)task->statistics[1] * deviation, 1, 1);
    direct(task, frames, 512, &mean, &deviation);
    close_to((double)task->statistics[2], mean, deviation);
    close_to((double)task->statistics[3] * deviation, 3, 3);
    free(nu), free(u), free(frames);
    close_tasks(&o);
}

/* What the file says of the task `wave` is replaced, true or not. */
static void keep_other_statistics(void) {
    json_t *kept = NULL;
    ok(ups_json_read(scratch("run/normalisation.json"), &kept, &failure));
    json_object_set_new(json_object_get(kept, "wave"), "statistics", json_pack("[f, f]", 0.25, 8.0));
    ok(ups_json_publish(scratch("run/normalisation.json"), kept, &failure));
    json_decref(kept);
}

CLAIM(statistics_are_recalled_by_the_next_command) {
    opened first = open_tasks(wave, NULL), second = open_tasks(wave, NULL);
    ok(ups_tasks_normalise_as_trained(first.config, first.tasks, NULL, &failure));
    keep_other_statistics();
    ok(ups_tasks_normalise_as_trained(second.config, second.tasks, NULL, &failure));
    assert_true(second.tasks->task[0].statistics[0] == 0.25f && second.tasks->task[0].statistics[1] == 8);
    close_tasks(&first), close_tasks(&second);
}

CLAIM(statistics_of_other_data_are_measured_anew_and_the_log_says_what_differs) {
    static const struct {
        const char *override, *said;
    } changes[] = {{"tasks[0].max_samples=20", "another number of samples"},
                   {"tasks[0].field_scale=[2]", "field_scale was changed"},
                   {"tasks[0].files=[other.h5]", "other names"},
                   {"data.root=%s/moved", "other contents"}};
    generate("advection1d", "other.h5", SAMPLES, POINTS, FRAMES);
    assert_int_equal(mkdir(scratch("moved"), 0700), 0);
    generate("burgers1d", "moved/wave.h5", SAMPLES, POINTS, FRAMES); /* of the same name and shape */
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char override[400];
        snprintf(override, sizeof override, changes[i].override, scratch_directory);
        opened first = open_tasks(wave, NULL);
        ok(ups_tasks_normalise_as_trained(first.config, first.tasks, NULL, &failure));
        keep_other_statistics();
        opened changed = open_tasks(wave, override);
        capture caught = capture_begin(0);
        ups_status status = ups_tasks_normalise_as_trained(changed.config, changed.tasks, NULL, &failure);
        const char *said = capture_end(&caught);
        ok(status);
        assert_contains(said, "task wave");
        assert_contains(said, changes[i].said);
        assert_true(changed.tasks->task[0].statistics[1] != 8);
        close_tasks(&first), close_tasks(&changed);
    }
}

/* A file of advection whose values are all `value`, but for a ramp of `height` along x. */
static void write_flat(const char *file, float value, float height) {
    generate("advection1d", file, SAMPLES, POINTS, FRAMES);
    int64_t count = (int64_t)SAMPLES * FRAMES * POINTS;
    float *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++) values[i] = value + height * (float)(i % POINTS) / POINTS;
    hid_t id = H5Fopen(scratch(file), H5F_ACC_RDWR, H5P_DEFAULT), set = H5Dopen2(id, "tensor", H5P_DEFAULT);
    assert_true(H5Dwrite(set, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    H5Dclose(set);
    H5Fclose(id);
    free(values);
}

CLAIM(a_constant_field_is_told_of_and_keeps_its_values_and_a_small_one_is_normalised) {
    static const struct {
        float value, height;
        bool constant;
    } cases[] = {{2.5f, 0, true}, {0, 0, true}, {0, 1e-40f, true}, {0, 1e-20f, false}, {1e20f, 1e19f, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_flat("flat.h5", cases[i].value, cases[i].height);
        opened o = open_tasks(wave, "tasks[0].files=[flat.h5]");
        capture caught = capture_begin(0);
        ups_status status = ups_tasks_normalise_as_trained(o.config, o.tasks, NULL, &failure);
        const char *said = capture_end(&caught);
        ok(status);
        const float *statistics = o.tasks->task[0].statistics;
        if (cases[i].constant) {
            assert_contains(said, "task wave: field 0 (u) is ");
            assert_contains(said, "everywhere in the training data");
            assert_true(statistics[1] == 1);
        } else {
            assert_null(strstr(said, "everywhere"));
            double deviation = 1 / (double)statistics[1], ramp = (double)cases[i].height / sqrt(12);
            assert_true(fabs(deviation / ramp - 1) < 0.05);
        }
        close_tasks(&o);
        forget_run(state);
    }
}

CLAIM(a_field_of_small_changes_on_a_large_mean_is_told_of_since_float32_rounds_them_off) {
    static const struct {
        float value, height;
        bool coarse;
    } cases[] = {{101325, 0.1f, true}, {101325, 3000, false}, {-1e5f, 1, true}, {0, 1e-20f, false}, {1, 0.1f, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_flat("flat.h5", cases[i].value, cases[i].height);
        opened o = open_tasks(wave, "tasks[0].files=[flat.h5]");
        capture caught = capture_begin(0);
        ups_status status = ups_tasks_normalise_as_trained(o.config, o.tasks, NULL, &failure);
        const char *said = capture_end(&caught);
        ok(status);
        if (cases[i].coarse) {
            assert_contains(said, "task wave: field 0 (u) has a mean of ");
            assert_contains(said, "Subtract a constant near the mean");
        } else {
            assert_null(strstr(said, "Subtract"));
        }
        close_tasks(&o);
        forget_run(state);
    }
}

/* Each as a list of JSON for the task `wave`, which has one field. */
static const struct {
    const char *statistics, *part;
} implausible[] = {
    {"[0.25, 0.0]", "the scale of field 0 (u) is 0"},
    {"[0.25, -8.0]", "the scale of field 0 (u) is -8"},
    {"[0.25, 1e-40]", "the scale of field 0"},
    {"[0.25, 3e38]", "the scale of field 0"}, /* a denormal deviation */
    {"[0.25, 1e300]", "the scale of field 0 (u) is inf"},
    {"[1e300, 8.0]", "the mean of field 0 (u) is inf"},
    {"[0.25, \"8\"]", "mean and"},
    {"[0.25, null]", "mean and"},
    {"[0.25]", "mean and"},
    {"\"none\"", ""},
};

CLAIM(statistics_that_can_normalise_nothing_are_refused_naming_file_task_and_field) {
    opened first = open_tasks(wave, NULL);
    ok(ups_tasks_normalise_as_trained(first.config, first.tasks, NULL, &failure));
    close_tasks(&first);
    for (size_t i = 0; i < sizeof implausible / sizeof *implausible; i++) {
        json_t *kept = NULL;
        ok(ups_json_read(scratch("run/normalisation.json"), &kept, &failure));
        json_t *changed = json_loads(implausible[i].statistics, JSON_DECODE_ANY, NULL);
        json_object_set_new(json_object_get(kept, "wave"), "statistics", changed);
        ok(ups_json_publish(scratch("run/normalisation.json"), kept, &failure));
        json_decref(kept);
        opened o = open_tasks(wave, NULL);
        refused(ups_tasks_normalise_as_trained(o.config, o.tasks, NULL, &failure), UPS_ERR_FORMAT,
                "run/normalisation.json", "wave");
        if (strncmp(implausible[i].part, "the", 3) == 0) assert_contains(failure.message, implausible[i].part);
        assert_contains(failure.message, "remove it");
        close_tasks(&o);
    }
}

CLAIM(a_model_that_tells_such_statistics_is_refused) {
    for (size_t i = 0; i < sizeof implausible / sizeof *implausible; i++) {
        char told[100];
        bool list = implausible[i].statistics[0] == '[';
        snprintf(told, sizeof told, list ? "[%s]" : "%s", implausible[i].statistics);
        ups_safetensors_writer *writer = ups_safetensors_writer_create();
        ups_safetensors_writer_metadata(writer, "wave.normalisation", told);
        ups_safetensors_writer_declare(writer, "encoder.none", UPS_F32, 1, (int64_t[]){1});
        ok(ups_safetensors_writer_begin(writer, scratch("model.safetensors"), &failure));
        ok(ups_safetensors_writer_append(writer, &(float){1}, sizeof(float), &failure));
        ok(ups_safetensors_writer_commit(writer, &failure));
        opened o = open_tasks(wave, NULL);
        refused(ups_tasks_normalise_as_trained(o.config, o.tasks, scratch("model.safetensors"), &failure),
                UPS_ERR_FORMAT, "model.safetensors", "wave", implausible[i].part);
        close_tasks(&o);
    }
}

/* ---- what does not fit ------------------------------------------------------------------------------------------ */

static void refuses(const char *tasks, const char *override, ups_status status, const char *part, const char *other) {
    ups_run_config *config = configure(tasks, override);
    ups_tasks *opened_tasks = NULL;
    refused(ups_tasks_open(config, &opened_tasks, &failure), status, part, other);
    assert_null(opened_tasks);
    ups_run_config_free(config);
}

CLAIM(configurations_that_do_not_fit_the_files_are_refused_naming_the_task) {
    refuses(wave, "tasks[0].patch=[4, 4]", UPS_ERR_CONFIG, "task wave", "1 grid ax");
    refuses(wave, "tasks[0].patch=[1024]", UPS_ERR_CONFIG, "task wave", "patches of 1024 points on a grid axis of ");
    refuses(darcy, "tasks[0].patch=[4, 4, 4]", UPS_ERR_CONFIG, "task darcy", "2 grid ax");
    refuses(wave, "tasks[0].field_scale=[1, 2]", UPS_ERR_CONFIG, "task wave", "field_scale");
    refuses(wave, "tasks[0].stride=6", UPS_ERR_CONFIG, "task wave", "stride of 6");
    refuses(wave, "tasks[0].files=[wave.h5, fine.h5]", UPS_ERR_FORMAT, "wave", "tasks of their own");
    refuses(wave, "tasks[0].files=[absent.h5]", UPS_ERR_IO, "task wave", "absent.h5");
}

CLAIM(a_patch_may_have_a_length_along_each_axis) {
    opened o = open_tasks(darcy, "tasks[0].patch=[2, 8]");
    assert_int_equal(o.tasks->task[0].patch[0], 2);
    assert_int_equal(o.tasks->task[0].patch[1], 8);
    close_tasks(&o);
}

CLAIM(conditions_are_padded_with_zeros_and_unknown_parameters_are_zero) {
    float out[4] = {9, 9, 9, 9};
    ups_source source = {.parameter_count = 2};
    ups_task_condition(&(ups_task){.source = &source}, (const double[]){0.5, NAN}, 4, out);
    assert_true(out[0] == 0.5f && out[1] == 0 && out[2] == 0 && out[3] == 0);
}

/* Writes a file whose metadata tell what an operator was conditioned on. */
static void tell_parameters(const char *list) {
    ups_safetensors_writer *writer = ups_safetensors_writer_create();
    ups_safetensors_writer_metadata(writer, "wave.parameters", list);
    ups_safetensors_writer_declare(writer, "operator.none", UPS_F32, 1, (int64_t[]){1});
    ok(ups_safetensors_writer_begin(writer, scratch("operator.safetensors"), &failure));
    ok(ups_safetensors_writer_append(writer, &(float){1}, sizeof(float), &failure));
    ok(ups_safetensors_writer_commit(writer, &failure));
}

static void forget_condition(ups_task *task) {
    for (int i = 0; i < task->condition_count; i++) free(task->condition_names[i]);
    free(task->condition_names);
    free(task->condition);
    free(task->scale);
}

CLAIM(parameters_reach_an_operator_by_name_whatever_their_order_in_a_file) {
    const char *const names[] = {"beta", "nu"};
    ups_source source = {.parameter_count = 2, .parameter_names = names};
    ups_task task = {.name = "wave", .source = &source};
    ups_tasks tasks = {.task = &task, .count = 1};
    float out[3] = {9, 9, 9};
    tell_parameters("[\"Nu\",\"rho\",\"beta\"]");
    capture caught = capture_begin(0);
    ups_status status = ups_tasks_condition_as_trained(&tasks, scratch("operator.safetensors"), &failure);
    const char *said = capture_end(&caught);
    ok(status);
    assert_contains(said, "task wave: the operator was trained with the parameter 'rho'");
    assert_int_equal(ups_tasks_parameter_count(&tasks), 3);
    ups_task_condition(&task, (const double[]){0.5, 0.25}, 3, out);
    assert_true(out[0] == 0.25f && out[1] == 0 && out[2] == 0.5f);
    tell_parameters("{\"names\":[\"nu\",\"beta\"],\"scale\":[[\"log\",-2,2],[\"linear\",0.25,0.5]]}");
    ok(ups_tasks_condition_as_trained(&tasks, scratch("operator.safetensors"), &failure));
    ups_task_condition(&task, (const double[]){0.5, exp(2)}, 3, out);
    assert_true(fabsf(out[0] - 2) < 1e-6f && out[1] == 0.5f && out[2] == 0);
    ups_task_condition(&task, (const double[]){0.5, -1}, 3, out); /* has no logarithm */
    assert_true(out[0] == 0);
    tell_parameters("{\"names\":[\"nu\"],\"scale\":[[\"log\",0,0]]}");
    refused(ups_tasks_condition_as_trained(&tasks, scratch("operator.safetensors"), &failure), UPS_ERR_FORMAT,
            "'wave.parameters' is not a list of names with a scale for each");
    tell_parameters("[\"nu\",3]");
    refused(ups_tasks_condition_as_trained(&tasks, scratch("operator.safetensors"), &failure), UPS_ERR_FORMAT,
            "operator.safetensors: 'wave.parameters' is not a list of names");
    forget_condition(&task);
}

CLAIM(an_operator_to_begin_with_is_told_new_parameters_behind_those_that_it_knows) {
    const char *const names[] = {"beta", "nu"};
    ups_source source = {.parameter_count = 2, .parameter_names = names};
    ups_task task = {.name = "wave", .source = &source, .scale = calloc(2, sizeof *task.scale)};
    ups_tasks tasks = {.task = &task, .count = 1};
    float out[3] = {9, 9, 9};
    task.scale[0] = (ups_parameter_scale){.mean = 1, .spread = 2};
    task.scale[1] = (ups_parameter_scale){.mean = 5, .spread = 5};
    tell_parameters("{\"names\":[\"nu\"],\"scale\":[[\"linear\",0.25,0.5]],\"constant\":[true]}");
    ok(ups_tasks_condition_to_begin(&tasks, scratch("operator.safetensors"), &failure));
    assert_int_equal(ups_tasks_parameter_count(&tasks), 2);
    ups_task_condition(&task, (const double[]){2, 0.75}, 3, out); /* beta, by its own scale; nu, as the model has it */
    assert_true(out[0] == 1 && out[1] == 0.5f && out[2] == 0);
    assert_false(task.scale[0].constant); /* it learns of others */
    forget_condition(&task);
}

CLAIM(a_parameter_is_judged_by_what_training_had_of_it) {
    const ups_parameter_scale linear = {.mean = 5, .spread = 2}, decades = {.logarithm = true, .mean = -2, .spread = 1},
                              one = {.mean = 0.4, .spread = 1, .constant = true};
    const struct {
        const ups_parameter_scale *scale;
        double value;
        ups_parameter_fit fit;
    } cases[] = {{NULL, -1e9, UPS_PARAMETER_FITS},          {NULL, INFINITY, UPS_PARAMETER_INFINITE},
                 {&linear, NAN, UPS_PARAMETER_FITS},        {&linear, -1, UPS_PARAMETER_FITS},
                 {&linear, -1.1, UPS_PARAMETER_FAR},        {&linear, -INFINITY, UPS_PARAMETER_INFINITE},
                 {&decades, 0.1, UPS_PARAMETER_FITS},       {&decades, 1e-9, UPS_PARAMETER_FAR},
                 {&decades, 0, UPS_PARAMETER_NOT_POSITIVE}, {&decades, -0.1, UPS_PARAMETER_NOT_POSITIVE},
                 {&one, (double)0.4f, UPS_PARAMETER_FITS},  {&one, 0.401, UPS_PARAMETER_NEW},
                 {&one, INFINITY, UPS_PARAMETER_INFINITE}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        assert_int_equal(ups_parameter_judge(cases[c].scale, cases[c].value), cases[c].fit);
}

int main(void) {
    return run_claims(make_data, remove_scratch, forget_run);
}
