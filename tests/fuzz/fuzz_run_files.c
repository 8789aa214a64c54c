/* What a run keeps for the next command: state.json, a checkpoint's latest.json and how its tasks are drawn,
 * metrics.jsonl, the journal of an interrupted `ups datagen`, which stages are done again, an evaluation that is held
 * against another one. The first byte chooses which of them the input is. */
#include "tests/fuzz/fuzz.h"

#include "base/files.h"
#include "model/devices/devices.h"
#include "tools/solvers/writer/unfinished.h"
#include "train/checkpoint.h"
#include "train/evaluation/scores/paired.h"
#include "train/metrics.h"
#include "train/run/replace.h"
#include "train/state.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATE, LATEST, SAMPLING, METRICS, JOURNAL, REDO, EVALUATION, KINDS };

static const char *place(const char *name) {
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", fuzz_directory(), name);
    return path;
}

static void read_state(fuzz_input input) {
    ups_run_config config = {.output = (char *)fuzz_directory()};
    ups_run_state state;
    ups_error error = {0};
    fuzz_write(place("state.json"), input.bytes, input.length);
    if (!fuzz_accepted(ups_run_state_read(&config, &state, &error), &error)) return;
    for (int s = 0; s < UPS_STAGE_COUNT; s++)
        FUZZ_CHECK(strlen(state.stage[s].weights) < sizeof state.stage[s].weights);
}

/* One parameter and its optimizer. */
static void small_training(ups_parameters **parameters, ups_optimizer **optimizer) {
    static ups_parameters *weights;
    static ups_optimizer *adamw;
    static ups_optimizer_config config;
    ups_device *device = NULL;
    ups_error error;
    if (!weights) {
        FUZZ_CHECK(ups_device_open(&(ups_device_options){.name = "cpu", .threads = 1}, &device, &error) == UPS_OK);
        weights = ups_parameters_create();
        ups_parameters_add(weights, "bias", 1, (int64_t[]){3}, (ups_init){.kind = UPS_INIT_ZEROS, .no_decay = true});
        FUZZ_CHECK(ups_parameters_allocate(weights, device, true, UPS_F16, 1, &error) == UPS_OK);
        FUZZ_CHECK(ups_optimizer_create(&config, device, weights, NULL, &adamw, &error) == UPS_OK);
    }
    *parameters = weights;
    *optimizer = adamw;
}

static void read_latest(fuzz_input input) {
    ups_error error = {0};
    static const char *const names[] = {"one", "two"};
    static const char *const losses[UPS_MAX_LOSSES] = {"near", "far"};
    ups_training_state state = {.seed = 42, .interval = {.tasks = 2, .task_names = names, .loss_names = losses}};
    int64_t batch_size;
    ups_parameters *parameters;
    ups_optimizer *optimizer;
    small_training(&parameters, &optimizer);
    fuzz_write(place("latest.json"), input.bytes, input.length);
    fuzz_accepted(ups_checkpoint_batch_size(fuzz_directory(), &batch_size, &error), &error);
    /* The weights that it names are not there: the document alone is what this reads. */
    FUZZ_CHECK(!fuzz_accepted(ups_checkpoint_load(fuzz_directory(), &state, parameters, optimizer, &error), &error));
}

static void read_sampling(fuzz_input input) {
    static ups_task_config tasks[] = {{.name = "one", .weight = 1},
                                      {.name = "two", .weight = 2, .from = 10, .ramp = 5}};
    static ups_run_config config = {.tasks = tasks, .task_count = 2};
    static ups_training_config training = {.steps = 100, .accumulation = 1};
    const ups_sampled_task sampled[] = {{&tasks[0], 100}, {&tasks[1], 50}};
    ups_error error = {0};
    ups_task_sampling *sampling;
    FUZZ_CHECK(ups_task_sampling_create(&config, &training, 4, sampled, 2, &sampling, &error) == UPS_OK);
    json_t *json = json_loadb((const char *)input.bytes, input.length, JSON_REJECT_DUPLICATES, NULL);
    if (json && fuzz_accepted(ups_task_sampling_from_json(sampling, json, "latest.json", &error), &error)) {
        int64_t count;
        const ups_sampler_phase *phases = ups_task_sampling_phases(sampling, &count);
        FUZZ_CHECK(count > 0 && phases != NULL);
        char text[200];
        ups_task_sampling_describe(sampling, text, sizeof text);
        json_decref(ups_task_sampling_report(sampling));
    }
    json_decref(json);
    ups_task_sampling_destroy(sampling);
}

static void read_metrics(fuzz_input input) {
    ups_metrics *metrics;
    ups_error error = {0};
    fuzz_write(place("metrics.jsonl"), input.bytes, input.length);
    if (!fuzz_accepted(ups_metrics_open(place("metrics.jsonl"), "operator", 10, &metrics, &error), &error)) return;
    ups_metrics_close(metrics);
}

static void read_journal(fuzz_input input) {
    enum { SAMPLES = 12 };
    ups_unfinished *unfinished;
    ups_error error = {0};
    json_t *identity = json_pack("{s:s, s:i}", "solver", "advection1d", "seed", 1);
    fuzz_write(place(".x.h5.ups-unfinished"), (const uint8_t *)"", 0);
    fuzz_write(place(".x.h5.ups-journal"), input.bytes, input.length);
    if (fuzz_accepted(ups_unfinished_open(place("x.h5"), identity, SAMPLES, false, &unfinished, &error), &error)) {
        int64_t found = 0;
        for (int64_t i = 0; i < SAMPLES; i++) found += ups_unfinished_has(unfinished, i);
        FUZZ_CHECK(found == ups_unfinished_samples(unfinished));
        ups_unfinished_discard(unfinished);
    }
    json_decref(identity);
}

static void read_redo(fuzz_input input) {
    unsigned stages;
    ups_error error = {0};
    fuzz_write(place("redo.json"), input.bytes, input.length);
    if (!fuzz_accepted(ups_run_redo_read(fuzz_directory(), &stages, &error), &error)) return;
    FUZZ_CHECK(stages > 0 && stages < 1u << UPS_STAGE_COUNT);
}

static void check_result(const ups_paired_result *result) {
    FUZZ_CHECK(result->trajectories > 0 && result->failed_a >= 0 && result->failed_b >= 0 && result->undefined >= 0);
    FUZZ_CHECK(!(result->low > result->high) && !(result->probability_a < 0) && !(result->probability_a > 1));
}

/* Against a sound one, on either side. */
static void read_evaluation(fuzz_input input) {
    static const char sound[] = "{\"tasks\": [{\"task\": \"one\", \"given\": 1, \"by_trajectory\": "
                                "{\"truth_xxh3\": [\"a\", \"b\"], \"nrmse\": [0.1, 0.2]}}]}";
    json_t *other = json_loads(sound, 0, NULL), *read = NULL;
    ups_paired paired;
    ups_error error = {0};
    fuzz_write(place("evaluation.json"), input.bytes, input.length);
    if (fuzz_accepted(ups_json_read(place("evaluation.json"), &read, &error), &error)) {
        for (int side = 0; side < 2; side++) {
            ups_status status = side == 0 ? ups_paired_compare(read, "read", other, "other", &paired, &error)
                                          : ups_paired_compare(other, "other", read, "read", &paired, &error);
            if (!fuzz_accepted(status, &error)) continue;
            FUZZ_CHECK(paired.count > 0);
            for (int i = 0; i < paired.count; i++) check_result(&paired.task[i].result);
            check_result(&paired.all);
            ups_paired_free(&paired);
        }
    }
    json_decref(read);
    json_decref(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const readers[KINDS])(fuzz_input) = {read_state,   read_latest, read_sampling,  read_metrics,
                                                       read_journal, read_redo,   read_evaluation};
    fuzz_input input = {data, size};
    readers[fuzz_byte(&input) % KINDS](input);
    return 0;
}
