#include "train/evaluation/scores/paired.h"

#include "base/hash.h"
#include "base/random.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 1 }; /* any; fixed, so that results repeat */

/* ---- the bootstrap ---------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Linear between neighbours. */
static double percentile(const double *sorted, double share) {
    const double at = share * (UPS_PAIRED_RESAMPLES - 1), below = floor(at);
    const int i = (int)below;
    return at == below ? sorted[i] : sorted[i] + (at - below) * (sorted[i + 1] - sorted[i]);
}

/* Interval and probability from the resamples' differences, which are sorted. */
static void judge(double *means, ups_paired_result *result) {
    double better = 0;
    for (int r = 0; r < UPS_PAIRED_RESAMPLES; r++) better += means[r] < 0 ? 1 : means[r] == 0 ? 0.5 : 0;
    qsort(means, UPS_PAIRED_RESAMPLES, sizeof *means, by_value);
    result->low = percentile(means, 0.5 * (1 - UPS_PAIRED_CONFIDENCE));
    result->high = percentile(means, 0.5 * (1 + UPS_PAIRED_CONFIDENCE));
    result->probability_a = better / UPS_PAIRED_RESAMPLES;
}

/* The means, and the difference of each resample. */
static void resample(const char *name, const double *a, const double *b, int64_t count, double *means,
                     ups_paired_result *result) {
    const ups_random stream =
        ups_random_stream(SEED, UPS_RANDOM_BOOTSTRAP, (uint32_t)ups_hash_bytes(name, strlen(name)).low);
    *result = (ups_paired_result){.trajectories = count, .low = NAN, .high = NAN, .probability_a = NAN};
    for (int64_t i = 0; i < count; i++) {
        result->a += a[i] / (double)count;
        result->b += b[i] / (double)count;
        result->difference += (a[i] - b[i]) / (double)count;
    }
    uint64_t drawn = 0;
    for (int r = 0; r < UPS_PAIRED_RESAMPLES; r++) {
        double sum = 0;
        for (int64_t k = 0; k < count; k++) {
            const uint64_t i = ups_random_below(stream, drawn++, (uint64_t)count);
            sum += a[i] - b[i];
        }
        means[r] = sum / (double)count;
    }
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

/* One trajectory of an evaluation; NaN: no finite error. */
typedef struct scored {
    const char *truth;
    double nrmse;
} scored;

static int by_truth(const void *a, const void *b) {
    const scored *x = a, *y = b;
    const int order = strcmp(x->truth, y->truth);
    return order ? order : by_value(&x->nrmse, &y->nrmse);
}

static ups_status read_task(const json_t *task, const char *where, const char **name, int64_t *given,
                            ups_error *error) {
    UPS_TRY(ups_json_string(task, "task", where, name, error));
    return ups_json_integer(task, "given", where, given, error);
}

/* The trajectories of a task, sorted by their truth. *list: freed by the caller. */
static ups_status read_trajectories(const json_t *task, const char *name, const char *where, scored **list,
                                    int64_t *count, ups_error *error) {
    json_t *by_trajectory, *truth, *nrmse;
    if (!json_object_get(task, "by_trajectory"))
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: task %s has no errors of trajectories; evaluate with 0 among evaluation.horizons", where,
                        name);
    UPS_TRY(ups_json_object(task, "by_trajectory", where, &by_trajectory, error));
    UPS_TRY(ups_json_array(by_trajectory, "truth_xxh3", where, &truth, error));
    UPS_TRY(ups_json_array(by_trajectory, "nrmse", where, &nrmse, error));
    *count = (int64_t)json_array_size(truth);
    if (*count == 0 || json_array_size(nrmse) != (size_t)*count)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: task %s: %lld trajectories have %zu errors; evaluate again", where,
                        name, (long long)*count, json_array_size(nrmse));
    scored *made = calloc((size_t)*count, sizeof *made);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    for (int64_t i = 0; i < *count; i++) {
        const json_t *value = json_array_get(nrmse, (size_t)i);
        made[i] = (scored){json_string_value(json_array_get(truth, (size_t)i)),
                           json_is_number(value) ? json_number_value(value) : NAN};
        if (made[i].truth && (json_is_number(value) || json_is_null(value))) continue;
        free(made);
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: task %s: trajectory %lld has no hash or no number as its error; evaluate again", where,
                        name, (long long)i);
    }
    qsort(made, (size_t)*count, sizeof *made, by_truth);
    *list = made;
    return UPS_OK;
}

/* ---- pairing ---------------------------------------------------------------------------------------------------- */

/* Trajectories of `a` that `b` lacks; both sorted. */
static int64_t missing(const scored *a, int64_t a_count, const scored *b, int64_t b_count) {
    int64_t lacking = 0, j = 0;
    for (int64_t i = 0; i < a_count; i++) {
        while (j < b_count && strcmp(b[j].truth, a[i].truth) < 0) j++;
        if (j < b_count && strcmp(b[j].truth, a[i].truth) == 0)
            j++;
        else
            lacking++;
    }
    return lacking;
}

static ups_status check_same(const char *name, const scored *a, int64_t a_count, const char *where_a, const scored *b,
                             int64_t b_count, const char *where_b, ups_error *error) {
    const int64_t lacking = missing(a, a_count, b, b_count), more = missing(b, b_count, a, a_count);
    if (lacking == 0 && more == 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT,
                    "task %s: the test trajectories differ: %lld of the %lld of %s are not among those of %s, and %lld "
                    "of its %lld not among these; evaluate both on the same files, data.split, stride and "
                    "evaluation.max_samples",
                    name, (long long)lacking, (long long)a_count, where_a, where_b, (long long)more,
                    (long long)b_count);
}

/* Pairs with both errors finite, into `errors`: those of A, then, `count` further, those of B. */
static void pair(const scored *a, const scored *b, int64_t count, double *errors, ups_paired_result *counts) {
    for (int64_t i = 0; i < count; i++) {
        const bool bad_a = isnan(a[i].nrmse), bad_b = isnan(b[i].nrmse);
        counts->undefined += bad_a && bad_b;
        counts->failed_a += bad_a && !bad_b;
        counts->failed_b += !bad_a && bad_b;
        if (bad_a || bad_b) continue;
        errors[counts->trajectories] = a[i].nrmse;
        errors[count + counts->trajectories++] = b[i].nrmse;
    }
}

/* `means` gets the resamples' differences, in the order drawn. */
static ups_status compare_task(const json_t *a, const char *where_a, const json_t *b, const char *where_b,
                               const char *name, double *means, ups_paired_result *result, ups_error *error) {
    scored *of_a = NULL, *of_b = NULL;
    int64_t a_count, b_count;
    UPS_TRY(read_trajectories(a, name, where_a, &of_a, &a_count, error));
    ups_status status = read_trajectories(b, name, where_b, &of_b, &b_count, error);
    double *errors = malloc(2 * (size_t)a_count * sizeof *errors);
    if (status == UPS_OK && !errors) status = ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    if (status == UPS_OK) status = check_same(name, of_a, a_count, where_a, of_b, b_count, where_b, error);
    if (status == UPS_OK) {
        ups_paired_result counts = {0};
        pair(of_a, of_b, a_count, errors, &counts);
        if (counts.trajectories > 0) {
            resample(name, errors, errors + a_count, counts.trajectories, means, result);
            result->failed_a = counts.failed_a;
            result->failed_b = counts.failed_b;
            result->undefined = counts.undefined;
        } else {
            status = ups_fail(
                error, UPS_ERR_NUMERIC,
                "task %s: on none of the %lld trajectories are the errors of both finite (%lld fail in %s "
                "alone, %lld in %s alone)",
                name, (long long)a_count, (long long)counts.failed_a, where_a, (long long)counts.failed_b, where_b);
        }
    }
    free(errors);
    free(of_a);
    free(of_b);
    return status;
}

static const json_t *find_task(const json_t *tasks, const char *name) {
    for (size_t i = 0; i < json_array_size(tasks); i++) {
        const json_t *task = json_array_get(tasks, i);
        const char *found = json_string_value(json_object_get(task, "task"));
        if (found && strcmp(found, name) == 0) return task;
    }
    return NULL;
}

/* Adds what a task gives to the result over all; `sums` of the resamples' differences. */
static void add_to_all(const ups_paired_result *result, const double *means, double *sums, ups_paired_result *all) {
    all->trajectories += result->trajectories;
    all->a += result->a;
    all->b += result->b;
    all->difference += result->difference;
    all->failed_a += result->failed_a;
    all->failed_b += result->failed_b;
    all->undefined += result->undefined;
    for (int r = 0; r < UPS_PAIRED_RESAMPLES; r++) sums[r] += means[r];
}

static ups_status note_alone(const json_t *tasks, const json_t *others, const char *where, char ***names, int *count,
                             ups_error *error) {
    *names = calloc(json_array_size(tasks) + 1, sizeof **names);
    if (!*names) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < json_array_size(tasks); i++) {
        const char *name;
        UPS_TRY(ups_json_string(json_array_get(tasks, i), "task", where, &name, error));
        if (find_task(others, name)) continue;
        (*names)[*count] = strdup(name);
        if (!(*names)[(*count)++]) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    }
    return UPS_OK;
}

static ups_status compare_tasks(const json_t *a, const char *where_a, const json_t *b, const char *where_b,
                                double *means, double *sums, ups_paired *paired, ups_error *error) {
    json_t *tasks_a, *tasks_b;
    UPS_TRY(ups_json_array(a, "tasks", where_a, &tasks_a, error));
    UPS_TRY(ups_json_array(b, "tasks", where_b, &tasks_b, error));
    UPS_TRY(note_alone(tasks_a, tasks_b, where_a, &paired->only_a, &paired->only_a_count, error));
    UPS_TRY(note_alone(tasks_b, tasks_a, where_b, &paired->only_b, &paired->only_b_count, error));
    paired->task = calloc(json_array_size(tasks_a) + 1, sizeof *paired->task);
    if (!paired->task) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    bool intervals = false;
    for (size_t i = 0; i < json_array_size(tasks_a); i++) {
        const json_t *task_a = json_array_get(tasks_a, i), *task_b;
        const char *name, *unused;
        int64_t given_a, given_b;
        UPS_TRY(read_task(task_a, where_a, &name, &given_a, error));
        if (!(task_b = find_task(tasks_b, name))) continue;
        UPS_TRY(read_task(task_b, where_b, &unused, &given_b, error));
        if (given_a != given_b)
            return ups_fail(error, UPS_ERR_ARGUMENT,
                            "task %s: %lld frames are given in %s and %lld in %s; evaluate both with the same "
                            "evaluation.given",
                            name, (long long)given_a, where_a, (long long)given_b, where_b);
        ups_paired_task *task = &paired->task[paired->count];
        UPS_TRY(compare_task(task_a, where_a, task_b, where_b, name, means, &task->result, error));
        task->name = strdup(name);
        if (!task->name) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
        paired->count++;
        add_to_all(&task->result, means, sums, &paired->all);
        if (task->result.trajectories < 2) continue;
        intervals = true;
        judge(means, &task->result);
    }
    if (paired->count == 0)
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s and %s have no task in common: nothing can be compared", where_a,
                        where_b);
    const double tasks = paired->count;
    paired->all.a /= tasks;
    paired->all.b /= tasks;
    paired->all.difference /= tasks;
    paired->all.low = paired->all.high = paired->all.probability_a = NAN;
    for (int r = 0; r < UPS_PAIRED_RESAMPLES; r++) sums[r] /= tasks;
    if (intervals) judge(sums, &paired->all);
    return UPS_OK;
}

ups_status ups_paired_compare(const json_t *a, const char *where_a, const json_t *b, const char *where_b,
                              ups_paired *paired, ups_error *error) {
    *paired = (ups_paired){0};
    double *means = malloc(UPS_PAIRED_RESAMPLES * sizeof *means), *sums = calloc(UPS_PAIRED_RESAMPLES, sizeof *sums);
    ups_status status = means && sums ? compare_tasks(a, where_a, b, where_b, means, sums, paired, error)
                                      : ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    free(means);
    free(sums);
    if (status != UPS_OK) ups_paired_free(paired);
    return status;
}

static void free_names(char **names, int count) {
    for (int i = 0; i < count; i++) free(names[i]);
    free(names);
}

void ups_paired_free(ups_paired *paired) {
    for (int i = 0; i < paired->count; i++) free(paired->task[i].name);
    free(paired->task);
    free_names(paired->only_a, paired->only_a_count);
    free_names(paired->only_b, paired->only_b_count);
    *paired = (ups_paired){0};
}
