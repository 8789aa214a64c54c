/* `ups cache list`: every latent cache below some directories, as du lists files: what it is, how large, whether it is
 * sound at first sight. */
#include "cache/inspect/find.h"
#include "tools/command.h"
#include "tools/commands/cache/operand.h"
#include "tools/commands/commands.h"
#include "tools/report/cache/facts.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SORT, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [SORT] = {"sort", 0, "path|size|age", "order of the lines (default path)"},
};

static const ups_usage usage = {
    "cache list",
    "[DIR|CONFIG|RUN]...",
    "lists all latent caches below directories, with size and state",
    options,
    OPTION_COUNT,
    "DIR defaults to the current directory; a configuration, or the directory of a run, stands for the run's cache. "
    "Sizes are of all files of a cache; ups cache inspect says what its latents "
    "alone take.\nThe state is complete, unfinished, other format (made by another version "
    "of\n"
    "ups) or broken; ups cache verify looks closer, ups cache prune removes what can go.\n\n"
    "Example:\n"
    "  ups cache list /data/runs --sort size",
};

typedef struct totals {
    uint64_t stored, raw;
    int64_t samples, groups;
} totals;

static const char *state_of_failure(ups_status status) {
    return status == UPS_ERR_STALE ? "other format" : "broken";
}

/* Facts of one group; what is wrong with it is among them. */
static json_t *describe(const char *path, totals *sum) {
    ups_error error;
    ups_cache_group *group = NULL;
    ups_cache_survey survey = {0};
    ups_directory_size size = ups_directory_measure(path);
    ups_status status = ups_cache_group_open(path, &group, &error);
    if (status == UPS_OK) status = ups_cache_survey_take(group, &survey, &error);
    if (status == UPS_OK && group->complete && survey.shards < survey.shard_count) {
        status = ups_fail(&error, UPS_ERR_FORMAT, "%s: says it is complete, but %lld of %lld shards are missing", path,
                          (long long)(survey.shard_count - survey.shards), (long long)survey.shard_count);
    }
    json_t *facts = json_object();
    json_object_set_new(facts, "directory", json_string(path));
    json_object_set_new(facts, "bytes", json_integer((json_int_t)size.bytes));
    json_object_set_new(facts, "age_seconds", json_real(fmax(0, difftime(time(NULL), size.newest))));
    sum->groups++;
    sum->stored += size.bytes;
    if (status == UPS_OK) {
        double ratio = survey.stored_bytes ? (double)survey.raw_bytes / (double)survey.stored_bytes : NAN;
        json_object_set_new(facts, "state", json_string(group->complete ? "complete" : "unfinished"));
        json_object_set_new(facts, "task", json_string(group->task));
        json_object_set_new(facts, "split", json_string(group->split));
        json_object_set_new(facts, "samples", json_integer(group->shape.samples));
        json_object_set_new(facts, "present", json_integer(survey.present));
        json_object_set_new(facts, "raw_bytes", json_integer((json_int_t)survey.raw_bytes));
        json_object_set_new(facts, "ratio", ups_json_number(survey.present ? ratio : NAN));
        sum->raw += survey.raw_bytes;
        sum->samples += survey.present;
    } else {
        json_object_set_new(facts, "state", json_string(state_of_failure(status)));
        json_object_set_new(facts, "message", json_string(error.message));
    }
    ups_cache_survey_free(&survey);
    ups_cache_group_close(group);
    return facts;
}

static int by_size(const void *a, const void *b) {
    long long x = ups_fact_integer(*(json_t *const *)a, "bytes"), y = ups_fact_integer(*(json_t *const *)b, "bytes");
    return (x < y) - (x > y);
}

static int by_age(const void *a, const void *b) {
    double x = ups_fact_real(*(json_t *const *)a, "age_seconds"), y = ups_fact_real(*(json_t *const *)b, "age_seconds");
    return (x > y) - (x < y);
}

static int by_path(const void *a, const void *b) {
    return strcmp(ups_fact_text(*(json_t *const *)a, "directory"), ups_fact_text(*(json_t *const *)b, "directory"));
}

/* A new array in the order wanted. */
static json_t *sorted(const json_t *list, int order) {
    static int (*const orders[])(const void *, const void *) = {by_path, by_size, by_age};
    size_t count = json_array_size(list);
    json_t **entries = malloc((count + 1) * sizeof *entries), *result = json_array();
    for (size_t i = 0; entries && i < count; i++) entries[i] = json_array_get(list, i);
    if (entries) qsort(entries, count, sizeof *entries, orders[order]);
    for (size_t i = 0; i < count; i++) json_array_append(result, entries ? entries[i] : json_array_get(list, i));
    free(entries);
    return result;
}

static void print_line(const json_t *facts) {
    char size[24], age[24];
    const char *task = ups_fact_text(facts, "task"), *state = ups_fact_text(facts, "state");
    printf("%9s  %8s  ", ups_size_text((uint64_t)ups_fact_integer(facts, "bytes"), size),
           ups_age_text(ups_fact_real(facts, "age_seconds"), age));
    if (task) {
        printf("%9lld  %6.2f  %-12s  ", ups_fact_integer(facts, "present"), ups_fact_real(facts, "ratio"), state);
        printf("%s (%s, %s)\n", ups_fact_text(facts, "directory"), task, ups_fact_text(facts, "split"));
    } else {
        printf("%9s  %6s  %-12s  %s\n", "-", "-", state, ups_fact_text(facts, "directory"));
        printf("%*s%s\n", 33, "", ups_fact_text(facts, "message"));
    }
}

/* Whether a path lies below a directory, or is it, as both are written. */
static bool lies_within(const char *path, const char *directory) {
    size_t length = strlen(directory);
    while (length > 0 && directory[length - 1] == '/') length--;
    return strncmp(path, directory, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

static ups_status list_below(const char *directory, json_t *list, totals *sum, ups_error *error) {
    ups_found_paths found;
    UPS_TRY(ups_cache_find(directory, &found, error));
    for (int64_t i = 0; i < found.count; i++) json_array_append_new(list, describe(found.path[i], sum));
    ups_found_paths_free(&found);
    return UPS_OK;
}

int ups_cmd_cache_list(int argc, char **argv) {
    static char here[] = ".";
    char *here_alone[] = {here};
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    int order = 0;
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == SORT) ups_arguments_choice(&arguments, &order);
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    int count = arguments.operand_count > 0 ? arguments.operand_count : 1;
    char **directories = arguments.operand_count > 0 ? arguments.operands : here_alone;
    ups_error error;
    ups_status status = UPS_OK;
    totals sum = {0};
    json_t *list = json_array();
    for (int i = 0; i < count && status == UPS_OK; i++) {
        char *directory = NULL;
        status = ups_operand_cache(directories[i], NULL, 0, &directory, &error);
        /* Below a run there may be more caches than its own, those of a sweep for instance. */
        bool within = status == UPS_OK && lies_within(directory, directories[i]);
        if (status == UPS_OK) status = list_below(within ? directories[i] : directory, list, &sum, &error);
        free(directory);
    }
    json_t *ordered = sorted(list, order);
    json_decref(list);
    if (status == UPS_OK && arguments.json) {
        json_t *document = json_pack("{s:O, s:{s:I, s:I, s:I, s:I}}", "caches", ordered, "total", "caches",
                                     (json_int_t)sum.groups, "samples", (json_int_t)sum.samples, "bytes",
                                     (json_int_t)sum.stored, "raw_bytes", (json_int_t)sum.raw);
        ups_print_json(document, JSON_INDENT(2));
        json_decref(document);
    } else if (status == UPS_OK) {
        char size[24], raw[24];
        if (sum.groups > 0) {
            printf("%9s  %8s  %9s  %6s  %-12s  %s\n", "size", "age", "samples", "ratio", "state",
                   "cache (task, split)");
        }
        for (size_t i = 0; i < json_array_size(ordered); i++) print_line(json_array_get(ordered, i));
        printf("%9s  %lld caches, %lld samples, %s as plain FP16\n", ups_size_text(sum.stored, size),
               (long long)sum.groups, (long long)sum.samples, ups_size_text(sum.raw, raw));
    }
    json_decref(ordered);
    return status == UPS_OK ? UPS_EXIT_OK : ups_command_fail(&arguments, &error);
}
