/* `ups cache diff`: whether two caches hold the same latents, made by the same things, and where they part. */
#include "cache/inspect/diff.h"
#include "base/progress.h"
#include "cache/inspect/find.h"
#include "tools/command.h"
#include "tools/commands/cache/operand.h"
#include "tools/commands/commands.h"
#include "train/metrics.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_DIFFERENT = 1, EXIT_TROUBLE = 2 }; /* as diff(1) has them */

enum { LIST, METADATA, THREADS, OPTION_COUNT };
static const ups_option options[OPTION_COUNT] = {
    [LIST] = {"list", 0, "N", "differing samples to name (default 10)"},
    [METADATA] = {"metadata", 'm', NULL, "compare what made them, shapes, times and conditions; read no latents"},
    [THREADS] = {"threads", 't', "N", "threads (default: all processors)"},
};

static const ups_usage usage = {
    "cache diff",
    "A B",
    "compares two latent caches: what made them, their shapes, and every value",
    options,
    OPTION_COUNT,
    "A and B are whole caches (tasks and splits are matched by name) or one task and split each; a configuration, or "
    "the\n"
    "directory of a run, stands for the run's cache. Samples are matched "
    "by\n"
    "their place in the source. Codec, level and shards do not count. Ends with 0 when both are the same, 1 when they\n"
    "differ, 2 in trouble.\n\n"
    "Example:\n"
    "  ups cache diff runs/a runs/b",
};

static const int64_t most_listed = 1000000, most_threads = 1024;

typedef struct request {
    const char *directory[2];
    ups_found_paths found[2];
    ups_diff_options options;
    json_t *result; /* array of pairs */
    bool json, differ;
} request;

static void show_progress(void *context, int64_t done, int64_t samples) {
    ups_progress_update(context, done, NULL);
}

/* ---- one pair ---- */

static json_t *sample_json(const ups_sample_difference *d) {
    return json_pack("{s:I, s:I, s:I, s:o, s:o, s:I, s:I, s:{s:I, s:I, s:I, s:o, s:o}}", "source_sample",
                     (json_int_t)d->source_sample, "a", (json_int_t)d->a, "b", (json_int_t)d->b, "max_abs",
                     ups_json_number(d->max_abs), "rms", ups_json_number(d->rms), "values", (json_int_t)d->values,
                     "non_finite", (json_int_t)d->non_finite, "first", "time", (json_int_t)d->first[0], "token",
                     (json_int_t)d->first[1], "dim", (json_int_t)d->first[2], "a", ups_json_number(d->first_a), "b",
                     ups_json_number(d->first_b));
}

static json_t *group_json(const ups_cache_group *group) {
    ups_chunk_shape shape = group->shape.trajectory;
    return json_pack("{s:s, s:I, s:[I,I,I], s:s, s:i, s:b}", "directory", group->directory, "samples",
                     (json_int_t)group->shape.samples, "shape", (json_int_t)shape.times, (json_int_t)shape.tokens,
                     (json_int_t)shape.dim, "codec", group->codec.portable ? "portable" : "ups.latent", "zstd_level",
                     group->codec.level, "complete", group->complete);
}

static json_t *difference_json(const ups_cache_group *a, const ups_cache_group *b, const ups_cache_difference *d) {
    int64_t parts;
    json_t *list = json_array(), *object = json_object();
    for (int64_t i = 0; i < d->list_count; i++) json_array_append_new(list, sample_json(&d->list[i]));
    json_object_set_new(object, "same", json_boolean(!ups_cache_differs(d)));
    json_object_set_new(object, "a", group_json(a));
    json_object_set_new(object, "b", group_json(b));
    json_object_set_new(object, "fingerprint", ups_fingerprint_difference(&a->fingerprint, &b->fingerprint, &parts));
    json_object_set_new(object, "shape_differs", json_boolean(d->shape));
    json_object_set_new(object, "times_or_conditions_differ", json_boolean(d->surroundings));
    json_object_set_new(object, "samples",
                        json_pack("{s:I, s:I, s:I, s:I, s:I}", "common", (json_int_t)d->common, "equal",
                                  (json_int_t)d->equal, "differing", (json_int_t)d->differing, "only_a",
                                  (json_int_t)d->only_a, "only_b", (json_int_t)d->only_b));
    json_object_set_new(object, "max_abs", ups_json_number(d->max_abs));
    json_object_set_new(object, "rms", ups_json_number(d->rms));
    json_object_set_new(object, "worst", d->differing > 0 ? sample_json(&d->worst) : json_null());
    json_object_set_new(object, "first", list);
    return object;
}

static void print_sample(const ups_sample_difference *d) {
    printf("    sample %lld of the source: ", (long long)d->source_sample);
    printf("max %.3g, rms %.3g, %lld values; first at frame %lld, token %lld, dim %lld: %.6g and %.6g\n", d->max_abs,
           d->rms, (long long)d->values, (long long)d->first[0], (long long)d->first[1], (long long)d->first[2],
           d->first_a, d->first_b);
    if (d->non_finite > 0) printf("      %lld of them NaN or infinite on a side\n", (long long)d->non_finite);
}

static void print_fingerprints(const ups_cache_group *a, const ups_cache_group *b) {
    int64_t differing;
    json_t *parts = ups_fingerprint_difference(&a->fingerprint, &b->fingerprint, &differing), *part;
    const char *key;
    json_object_foreach(parts, key, part) {
        if (json_is_true(json_object_get(part, "same"))) continue;
        const char *x = json_string_value(json_object_get(part, "a")),
                   *y = json_string_value(json_object_get(part, "b"));
        printf("  made by another %s: %.8s and %.8s\n", key, x && *x ? x : "-", y && *y ? y : "-");
    }
    json_decref(parts);
}

static void print_difference(const ups_cache_group *a, const ups_cache_group *b, const ups_cache_difference *d,
                             bool metadata_alone) {
    ups_chunk_shape x = a->shape.trajectory, y = b->shape.trajectory;
    printf("%s / %s: %s\n", a->task, a->split, ups_cache_differs(d) ? "different" : "the same");
    print_fingerprints(a, b);
    if (d->shape) {
        printf("  shapes differ: %lld x %lld x %lld and %lld x %lld x %lld; values were not compared\n",
               (long long)x.times, (long long)x.tokens, (long long)x.dim, (long long)y.times, (long long)y.tokens,
               (long long)y.dim);
    }
    if (d->surroundings) printf("  time grids or PDE parameters differ\n");
    if (d->only_a) printf("  %lld samples are in %s alone\n", (long long)d->only_a, a->directory);
    if (d->only_b) printf("  %lld samples are in %s alone\n", (long long)d->only_b, b->directory);
    if (a->codec.portable != b->codec.portable || a->codec.level != b->codec.level) {
        printf("  (stored differently, which does not count: %s level %d and %s level %d)\n",
               a->codec.portable ? "portable" : "ups.latent", a->codec.level,
               b->codec.portable ? "portable" : "ups.latent", b->codec.level);
    }
    if (!metadata_alone && !d->shape) {
        printf("  %lld samples are equal bit for bit, %lld differ", (long long)d->equal, (long long)d->differing);
        if (d->differing > 0) {
            printf(": max %.3g (sample %lld of the source), rms %.3g over all values", d->max_abs,
                   (long long)d->worst.source_sample, d->rms);
        }
        printf("\n");
    }
    for (int64_t i = 0; i < d->list_count; i++) print_sample(&d->list[i]);
    if (d->list_count < d->differing) printf("    and %lld more\n", (long long)(d->differing - d->list_count));
}

static ups_status compare_pair(request *r, const char *left, const char *right, ups_error *error) {
    ups_cache_group *a = NULL, *b = NULL;
    UPS_TRY(ups_cache_group_open(left, &a, error));
    ups_status status = ups_cache_group_open(right, &b, error);
    ups_cache_difference difference;
    if (status == UPS_OK) {
        int64_t samples = a->shape.samples > b->shape.samples ? a->shape.samples : b->shape.samples;
        ups_progress *progress = ups_progress_begin("diff", "samples", samples, 0);
        r->options.progress = show_progress;
        r->options.context = progress;
        status = ups_cache_diff(a, b, &r->options, &difference, error);
        ups_progress_end(progress);
    }
    if (status == UPS_OK) {
        if (ups_cache_differs(&difference)) r->differ = true;
        if (r->json)
            json_array_append_new(r->result, difference_json(a, b, &difference));
        else
            print_difference(a, b, &difference, r->options.metadata_alone);
        ups_cache_difference_free(&difference);
    }
    ups_cache_group_close(a);
    ups_cache_group_close(b);
    return status;
}

/* ---- pairs of groups ---- */

/* "task/split": the last two names of a group's path; the whole of a shorter one. */
static const char *tail_of(const char *path) {
    int slashes = 0;
    for (const char *at = path + strlen(path); at > path; at--) {
        if (at[-1] == '/' && ++slashes == 2) return at;
    }
    return path;
}

static int64_t partner(const request *r, int side, const char *path) {
    for (int64_t i = 0; i < r->found[side].count; i++) {
        if (strcmp(tail_of(r->found[side].path[i]), tail_of(path)) == 0) return i;
    }
    return -1;
}

static void tell_alone(request *r, int side, const char *path) {
    r->differ = true;
    if (r->json) {
        json_array_append_new(r->result, json_pack("{s:b, s:s}", "same", 0, side ? "only_in_b" : "only_in_a", path));
    } else {
        printf("%s: has no counterpart in %s\n", path, r->directory[!side]);
    }
}

static ups_status compare_all(request *r, ups_error *error) {
    if (r->found[0].count == 1 && r->found[1].count == 1)
        return compare_pair(r, r->found[0].path[0], r->found[1].path[0], error);
    for (int64_t i = 0; i < r->found[0].count; i++) {
        int64_t other = partner(r, 1, r->found[0].path[i]);
        if (other < 0)
            tell_alone(r, 0, r->found[0].path[i]);
        else
            UPS_TRY(compare_pair(r, r->found[0].path[i], r->found[1].path[other], error));
    }
    for (int64_t i = 0; i < r->found[1].count; i++) {
        if (partner(r, 0, r->found[1].path[i]) < 0) tell_alone(r, 1, r->found[1].path[i]);
    }
    return UPS_OK;
}

int ups_cmd_cache_diff(int argc, char **argv) {
    ups_arguments arguments;
    ups_arguments_begin(&arguments, &usage, argc, argv);
    request r = {.options = {.list = 10}};
    int64_t threads = 0;
    for (int option; (option = ups_arguments_next(&arguments)) >= 0;) {
        if (option == LIST) ups_arguments_integer(&arguments, 0, most_listed, &r.options.list);
        if (option == METADATA) r.options.metadata_alone = true;
        if (option == THREADS) ups_arguments_integer(&arguments, 1, most_threads, &threads);
    }
    if (arguments.stop) return ups_arguments_end(&arguments);
    if (arguments.operand_count != 2)
        return ups_command_usage_error(&arguments, "two were expected, A and B, each a DIR, CONFIG or RUN");
    r.json = arguments.json;
    r.options.threads = (int)threads;
    ups_error error;
    ups_status status = UPS_OK;
    char *directories[2] = {NULL, NULL};
    for (int side = 0; side < 2 && status == UPS_OK; side++) {
        status = ups_operand_cache(arguments.operands[side], NULL, 0, &directories[side], &error);
        r.directory[side] = directories[side];
        if (status == UPS_OK) status = ups_cache_find_all(r.directory[side], &r.found[side], &error);
    }
    r.result = json_array();
    if (status == UPS_OK) status = compare_all(&r, &error);
    if (status == UPS_OK && r.json) {
        json_t *document = json_pack("{s:b, s:O}", "same", !r.differ, "groups", r.result);
        ups_print_json(document, JSON_INDENT(2));
        json_decref(document);
    }
    json_decref(r.result);
    for (int side = 0; side < 2; side++) {
        ups_found_paths_free(&r.found[side]);
        free(directories[side]);
    }
    if (status == UPS_OK) return r.differ ? EXIT_DIFFERENT : UPS_EXIT_OK;
    int code = ups_command_fail(&arguments, &error);
    return code == UPS_EXIT_FAILURE ? EXIT_TROUBLE : code;
}
