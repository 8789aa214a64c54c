#include "train/stages/sweep.h"

#include "base/files.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "train/config/load.h"
#include "train/metrics.h"
#include "train/run/comparison.h"
#include "train/run/summary.h"
#include "train/stages/stage.h"
#include "train/stages/train.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LONGEST_VALUE = 60 };

/* ---- keys and values --------------------------------------------------------------------------------------------- */

/* Where the value that begins at `text` ends: at a comma outside of brackets and quotes, or at the end. */
static const char *end_of_value(const char *text) {
    int depth = 0;
    char quote = 0;
    for (; *text && (*text != ',' || depth > 0 || quote); text++) {
        if (quote) {
            if (*text == quote) quote = 0;
        } else if (*text == '"' || *text == '\'') {
            quote = *text;
        } else if (*text == '[' || *text == '{') {
            depth++;
        } else if ((*text == ']' || *text == '}') && depth > 0) {
            depth--;
        }
    }
    return text;
}

/* "KEY=VALUE,VALUE": *key, and the values, ended by NULL. Both are the caller's to free. */
static ups_status split_key(const char *text, char **key, char ***values, ups_error *error) {
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1]) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "--sweep %s: KEY=VALUE,VALUE was expected, such as operator.optimizer.learning_rate=1e-3,3e-3",
                        text);
    }
    size_t count = 0;
    *key = strndup(text, (size_t)(equals - text));
    *values = calloc(strlen(equals) + 1, sizeof **values);
    bool had = *key && *values;
    for (const char *at = equals + 1; had; at++) {
        const char *end = end_of_value(at);
        if (end == at) return ups_fail(error, UPS_ERR_ARGUMENT, "--sweep %s: a value is missing", text);
        had = ((*values)[count++] = strndup(at, (size_t)(end - at))) != NULL;
        if (!*(at = end)) break;
    }
    return had ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
}

static void free_texts(char **texts) {
    for (char **at = texts; at && *at; at++) free(*at);
    free(texts);
}

/* ---- names of directories ---------------------------------------------------------------------------------------- */

/* The last word of a key where no other key ends the same, else all of it. */
static const char *short_key(const ups_sweep *sweep, size_t k) {
    const char *dot = strrchr(sweep->keys[k], '.'), *word = dot ? dot + 1 : sweep->keys[k];
    for (size_t i = 0; i < sweep->key_count; i++) {
        const char *other = strrchr(sweep->keys[i], '.');
        if (i != k && strcmp(other ? other + 1 : sweep->keys[i], word) == 0) return sweep->keys[k];
    }
    return word;
}

/* A value without brackets, quotes and blanks. Where anything else has to be left out, so that it can be a file's name,
 * a hash keeps values apart. */
static void name_value(const char *value, char *name, size_t bytes) {
    size_t length = 0;
    bool lost = false;
    for (const char *c = value; *c; c++) {
        if (strchr("[]{}'\" ", *c)) continue;
        bool safe = isalnum((unsigned char)*c) || strchr("._+-,", *c);
        lost = lost || !safe || length == LONGEST_VALUE;
        if (length < LONGEST_VALUE) name[length++] = (char)(safe ? *c : '-');
    }
    name[length] = '\0';
    if (!lost && length > 0) return;
    char hash[33];
    ups_hash_hex(ups_hash_bytes(value, strlen(value)), hash);
    snprintf(name + length, bytes - length, "-%.8s", hash);
}

/* "learning_rate=0.001_depth=4" */
static char *name_run(const ups_sweep *sweep, const ups_sweep_run *run) {
    char *name = strdup("");
    for (size_t k = 0; name && k < sweep->key_count; k++) {
        char value[LONGEST_VALUE + 16], *longer = NULL;
        name_value(run->values[k], value, sizeof value);
        if (asprintf(&longer, "%s%s%s=%s", name, k ? "_" : "", short_key(sweep, k), value) < 0) longer = NULL;
        free(name);
        name = longer;
    }
    for (char *c = name; c && *c; c++) {
        if (strchr("/[]", *c)) *c = '-'; /* of a key such as tasks[0].weight */
    }
    return name;
}

/* ---- combinations ------------------------------------------------------------------------------------------------ */

static ups_status make_run(const ups_sweep *sweep, char ***values, size_t index, ups_sweep_run *run, ups_error *error) {
    const ups_sweep_request *request = sweep->request;
    run->values = calloc(sweep->key_count + 1, sizeof *run->values);
    run->overrides = calloc(request->override_count + sweep->key_count + 1, sizeof *run->overrides);
    run->score = run->best = (double)NAN;
    if (!run->values || !run->overrides) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    for (size_t k = sweep->key_count; k-- > 0;) {
        size_t count = 0;
        while (values[k][count]) count++;
        run->values[k] = strdup(values[k][index % count]);
        index /= count;
    }
    run->override_count = request->override_count;
    bool had = true;
    if (request->override_count > 0)
        memcpy(run->overrides, request->overrides, request->override_count * sizeof *request->overrides);
    for (size_t k = 0; had && k < sweep->key_count; k++) {
        char *assignment = NULL;
        had = run->values[k] && asprintf(&assignment, "%s=%s", sweep->keys[k], run->values[k]) >= 0;
        if (had) run->overrides[run->override_count++] = assignment;
    }
    run->name = had ? name_run(sweep, run) : NULL;
    return run->name ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
}

ups_status ups_sweep_begin(const ups_sweep_request *request, ups_sweep *sweep, ups_error *error) {
    *sweep = (ups_sweep){.request = request};
    struct stat operand;
    if (stat(request->operand, &operand) == 0 && !S_ISREG(operand.st_mode) && !S_ISDIR(operand.st_mode)) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%s: a sweep reads its configuration again for each run, which only a file permits; write it "
                        "into one",
                        request->operand);
    }
    char ***values = calloc(request->key_count + 1, sizeof *values);
    sweep->keys = calloc(request->key_count + 1, sizeof *sweep->keys);
    ups_status status = values && sweep->keys ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    size_t count = 1;
    for (size_t k = 0; status == UPS_OK && k < request->key_count; k++, sweep->key_count++) {
        status = split_key(request->keys[k], &sweep->keys[k], &values[k], error);
        for (size_t i = 0; status == UPS_OK && i < k; i++) {
            if (strcmp(sweep->keys[i], sweep->keys[k]) == 0)
                status = ups_fail(error, UPS_ERR_ARGUMENT,
                                  "--sweep %s is given twice; one --sweep takes all its values", sweep->keys[k]);
        }
        size_t of_key = 0;
        while (status == UPS_OK && values[k][of_key]) of_key++;
        if (status == UPS_OK && (count *= of_key) > UPS_SWEEP_MOST_RUNS)
            status =
                ups_fail(error, UPS_ERR_ARGUMENT, "--sweep: more than %d runs; a sweep has fewer", UPS_SWEEP_MOST_RUNS);
    }
    if (status == UPS_OK) {
        sweep->runs = calloc(count, sizeof *sweep->runs);
        if (!sweep->runs) status = ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    }
    for (size_t i = 0; status == UPS_OK && i < count; i++)
        status = make_run(sweep, values, i, &sweep->runs[sweep->run_count++], error);
    for (size_t k = 0; values && k < request->key_count; k++) free_texts(values[k]);
    free(values);
    return status;
}

void ups_sweep_free(ups_sweep *sweep) {
    for (size_t i = 0; i < sweep->run_count; i++) {
        ups_sweep_run *run = &sweep->runs[i];
        for (size_t k = 0; run->values && k < sweep->key_count; k++) free((char *)run->values[k]);
        for (size_t k = sweep->request->override_count; k < run->override_count; k++) free((char *)run->overrides[k]);
        free(run->values);
        free(run->overrides);
        free(run->name);
        free(run->directory);
        ups_run_config_free(run->config);
    }
    free(sweep->runs);
    free_texts(sweep->keys);
    ups_run_differences_free(&sweep->refused);
}

/* ---- what is there ----------------------------------------------------------------------------------------------- */

/* How many differences results depend on; the first stage that one of them concerns. */
static ups_status compare(const ups_run_config *first, const ups_run_config *second, size_t *count, ups_stage *stage,
                          ups_error *error) {
    ups_run_differences differences;
    UPS_TRY(ups_run_compare(first, second, &differences, error));
    *count = 0;
    *stage = UPS_STAGE_COUNT;
    for (size_t i = 0; i < differences.count; i++) {
        const ups_run_difference *difference = &differences.list[i];
        ups_stage of = difference->of_stage ? difference->stage : (ups_stage)0;
        if (difference->neutral) continue;
        ++*count;
        if (of < *stage) *stage = of;
    }
    ups_run_differences_free(&differences);
    return UPS_OK;
}

static bool is_finished(const ups_run_config *config, const ups_run_state *state) {
    for (unsigned i = 0; i < config->stage_count; i++) {
        const ups_stage_class *stage = ups_stages[config->stages[i]];
        bool needless = stage->needless && stage->needless(config);
        if (!needless && !state->stage[config->stages[i]].finished) return false;
    }
    return true;
}

/* The last stage that is trained; −1: none. */
static int last_trained(const ups_run_config *config) {
    int last = -1;
    for (unsigned i = 0; i < config->stage_count; i++) {
        if (ups_run_training(config, config->stages[i])) last = (int)config->stages[i];
    }
    return last;
}

static double number_in(const json_t *summary, const char *key, double otherwise) {
    const json_t *number = json_object_get(summary, key);
    return json_is_number(number) ? json_number_value(number) : otherwise;
}

/* Scores and seconds, as the run's metrics tell them. */
static ups_status read_results(ups_sweep_run *run, ups_error *error) {
    char *path = ups_run_path(run->config, "metrics.jsonl");
    json_t *metrics = NULL;
    const int last = last_trained(run->config);
    ups_status status =
        path ? ups_metrics_read(path, &metrics, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    run->seconds = 0.0;
    for (int s = 0; status == UPS_OK && s < UPS_STAGE_COUNT; s++) {
        json_t *summary = ups_stage_summary(metrics, ups_stage_name((ups_stage)s));
        if (!summary) status = ups_fail(error, UPS_ERR_MEMORY, "%s: out of memory", path);
        run->seconds += number_in(summary, "training_s", 0);
        if (s == last) {
            run->score = number_in(summary, "validation", run->score);
            run->best = number_in(summary, "best", run->best);
        }
        json_decref(summary);
    }
    json_decref(metrics);
    free(path);
    return status;
}

/* Whether the run that lies in the directory is this one, and how far it has come. */
static ups_status look(ups_sweep *sweep, ups_sweep_run *run, ups_error *error) {
    ups_run_config *own = NULL;
    ups_run_progress progress;
    if (!ups_run_is_there(run->directory)) return UPS_OK;
    UPS_TRY(ups_run_config_load(run->directory, NULL, 0, &own, error));
    ups_status status = ups_run_look(own, &progress, error);
    size_t differences = 0;
    ups_stage first;
    if (status == UPS_OK) status = compare(own, run->config, &differences, &first, error);
    if (status == UPS_OK && differences > 0) {
        status = ups_run_compare(own, run->config, &sweep->refused, error);
        if (status == UPS_OK)
            status = ups_fail(error, UPS_ERR_ARGUMENT,
                              "%s holds a run of another configuration (key, run, now: see the table), and nothing was "
                              "changed; the runs of a sweep differ in the swept keys alone. Sweep into another "
                              "directory (--set output=DIR), or remove this one",
                              run->directory);
    }
    ups_run_config_free(own);
    UPS_TRY(status);
    if (is_finished(run->config, &progress.state)) {
        run->outcome = UPS_SWEEP_FINISHED;
        return read_results(run, error);
    }
    if (sweep->request->resume || progress.begun == 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT, "%s holds a run of this sweep that was stopped; --resume goes on with it",
                    run->directory);
}

/* Where it lies: below the configuration's output, its cache with it, or below the directory of caches that is
 * configured. */
static ups_status place(ups_sweep_run *run, ups_error *error) {
    ups_run_config *config = run->config;
    if (asprintf(&run->directory, "%s/%s", config->output, run->name) < 0) run->directory = NULL;
    if (!run->directory) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    char *output = NULL, *cache = NULL;
    const char **overrides = realloc(run->overrides, (run->override_count + 3) * sizeof *overrides);
    if (overrides) run->overrides = overrides;
    bool had = overrides && (output = ups_run_override("output", run->directory));
    if (had) run->overrides[run->override_count++] = output;
    if (had && config->cache.directory[0]) {
        char *path = NULL;
        had = asprintf(&path, "%s/%s", config->cache.directory, run->name) >= 0 &&
              (cache = ups_run_override("cache.directory", path));
        if (had) run->overrides[run->override_count++] = cache;
        free(path);
    }
    return had ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
}

ups_status ups_sweep_prepare(ups_sweep *sweep, ups_error *error) {
    const char *operand = sweep->request->operand;
    for (size_t i = 0; i < sweep->run_count; i++) {
        ups_sweep_run *run = &sweep->runs[i];
        UPS_TRY(ups_run_config_load(operand, run->overrides, run->override_count, &run->config, error));
        for (size_t j = 0; j < i; j++) {
            size_t differences = 0;
            ups_stage first;
            UPS_TRY(compare(sweep->runs[j].config, run->config, &differences, &first, error));
            if (differences > 0) continue;
            return ups_fail(error, UPS_ERR_ARGUMENT,
                            "--sweep: %s and %s would be the same run: no result depends on what differs",
                            sweep->runs[j].name, run->name);
        }
    }
    for (size_t i = 0; i < sweep->run_count; i++) {
        ups_sweep_run *run = &sweep->runs[i];
        UPS_TRY(place(run, error));
        ups_run_config_free(run->config);
        run->config = NULL;
        UPS_TRY(ups_run_config_load(operand, run->overrides, run->override_count, &run->config, error));
        UPS_TRY(look(sweep, run, error));
        if (run->outcome == UPS_SWEEP_FINISHED || ups_stages_check_all(run->config, error) == UPS_OK) continue;
        return ups_fail_within(error, "--sweep: %s", run->name);
    }
    return UPS_OK;
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

/* How many finished stages of the run in `directory` no difference concerns. */
static ups_status count_shared(const char *directory, const ups_run_config *config, int *shared, ups_error *error) {
    ups_run_config *own = NULL;
    ups_run_state state;
    size_t differences;
    ups_stage first = UPS_STAGE_COUNT;
    *shared = 0;
    if (!ups_run_is_there(directory)) return UPS_OK;
    UPS_TRY(ups_run_config_load(directory, NULL, 0, &own, error));
    ups_status status = ups_run_state_read(own, &state, error);
    if (status == UPS_OK) status = compare(own, config, &differences, &first, error);
    for (int s = 0; status == UPS_OK && s < (int)first; s++) *shared += state.stage[s].finished;
    ups_run_config_free(own);
    return status;
}

/* The run that most can be taken along from; NULL: none. Free with free(). */
static ups_status find_donor(const ups_sweep *sweep, size_t index, char **donor, ups_error *error) {
    const ups_sweep_run *run = &sweep->runs[index];
    int most = 0, shared;
    char *above = strndup(run->directory, strlen(run->directory) - strlen(run->name) - 1);
    const char *from = NULL;
    ups_status status =
        above ? count_shared(above, run->config, &most, error) : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK && most > 0) from = above;
    for (size_t j = 0; status == UPS_OK && j < sweep->run_count; j++) {
        if (j == index) continue;
        status = count_shared(sweep->runs[j].directory, run->config, &shared, error);
        if (status != UPS_OK || shared <= most) continue;
        most = shared;
        from = sweep->runs[j].directory;
    }
    *donor = status == UPS_OK && from ? strdup(from) : NULL;
    free(above);
    return status;
}

static ups_status train(const ups_sweep *sweep, size_t index, ups_error *error) {
    const ups_sweep_run *run = &sweep->runs[index];
    char *donor = NULL, *output = NULL;
    ups_train_request request = {.operand = sweep->request->operand,
                                 .overrides = run->overrides,
                                 .override_count = run->override_count,
                                 .stage = -1,
                                 .resume = true};
    if (!ups_path_exists(run->directory)) UPS_TRY(find_donor(sweep, index, &donor, error));
    const char **overrides = donor ? calloc(run->override_count + 1, sizeof *overrides) : NULL;
    if (donor) output = ups_run_override("output", donor);
    ups_status status = donor && (!overrides || !output) ? ups_fail(error, UPS_ERR_MEMORY, "out of memory") : UPS_OK;
    if (status == UPS_OK && donor) {
        memcpy(overrides, run->overrides, run->override_count * sizeof *overrides);
        overrides[run->override_count] = output;
        request.resume = false;
        request.afresh = true;
        request.fork = run->directory;
        request.overrides = overrides;
        request.override_count++;
    }
    ups_train_report report = {0};
    if (status == UPS_OK) status = ups_train(&request, &report, error);
    ups_train_report_free(&report);
    free(overrides);
    free(output);
    free(donor);
    return status;
}

ups_status ups_sweep_train(ups_sweep *sweep, ups_error *error) {
    for (size_t i = 0; i < sweep->run_count; i++) {
        ups_sweep_run *run = &sweep->runs[i];
        if (run->outcome == UPS_SWEEP_FINISHED) {
            ups_log(UPS_LOG_INFO, "run %zu of %zu, %s: finished earlier, skipped", i + 1, sweep->run_count, run->name);
            continue;
        }
        ups_log(UPS_LOG_INFO, "run %zu of %zu, %s", i + 1, sweep->run_count, run->name);
        ups_status status = train(sweep, i, &run->error);
        if (status == UPS_OK) {
            run->outcome = UPS_SWEEP_FINISHED;
        } else if (status == UPS_ERR_NUMERIC || status == UPS_ERR_MEMORY) {
            run->outcome = UPS_SWEEP_FAILED;
            ups_log(UPS_LOG_WARNING, "%s: %s; the next run begins", run->name, run->error.message);
        } else {
            *error = run->error;
            return status;
        }
        UPS_TRY(read_results(run, error));
    }
    return UPS_OK;
}

ups_status ups_sweep_compare(const ups_sweep *sweep, char reason[UPS_SWEEP_REASON_BYTES], ups_error *error) {
    const ups_run_config *first = NULL;
    reason[0] = '\0';
    for (size_t i = 0; i < sweep->run_count && !reason[0]; i++) {
        const ups_sweep_run *run = &sweep->runs[i];
        const int last = run->config ? last_trained(run->config) : -1;
        if (run->outcome != UPS_SWEEP_FINISHED || last < 0) continue;
        if (!first)
            first = run->config;
        else
            UPS_TRY(ups_validations_alike(first, run->config, (ups_stage)last, reason, UPS_SWEEP_REASON_BYTES, error));
    }
    return UPS_OK;
}
